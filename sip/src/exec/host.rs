//! The platform layer for Unix hosts: reservations by `mmap`, traps by signals, limits of time by a timer's.

use super::Runtime;
use core::cell::Cell;
use core::ptr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Once, OnceLock};
use std::time::Duration;

std::thread_local! {
    /// The runtime block of the process that runs on this thread, or null.
    static CURRENT: Cell<*mut Runtime> = const { Cell::new(ptr::null_mut()) };
}

/// Names the process that runs on this thread and returns the one before it.
pub(super) fn set_current(runtime: *mut Runtime) -> *mut Runtime {
    install();
    CURRENT.with(|current| current.replace(runtime))
}

/// As [`set_current`], from one process to another of the same run: the first call has set the handlers up.
#[inline]
pub(super) fn switch_current(runtime: *mut Runtime) {
    CURRENT.with(|current| current.set(runtime));
}

/// The use that a range of addresses allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protection {
    /// Reading and writing.
    ReadWrite,
    /// Reading and running.
    ReadExecute,
}

/// Reserves an address range that nothing may touch; null if there is none.
pub(super) fn reserve(bytes: usize) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice disturbs nothing.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        ptr::null_mut()
    } else {
        at.cast()
    }
}

/// Changes what a part of a reservation may be used for; says whether that was possible.
///
/// # Safety
/// 1. The range is whole pages of a reservation of [`reserve`]'s. 2. No reference is live to
///    what loses a right by it.
pub(super) unsafe fn protect(at: *mut u8, bytes: usize, protection: Protection) -> bool {
    let protection = match protection {
        Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        Protection::ReadExecute => libc::PROT_READ | libc::PROT_EXEC,
    };
    // SAFETY: the caller's conditions are mprotect's.
    bytes == 0 || unsafe { libc::mprotect(at.cast(), bytes, protection) } == 0
}

/// Pages that are made zero one by one. A range with more of them in memory gives them all back to the operating
/// system, which gives new ones when they are touched: a fault for each.
const CLEARED: usize = 64;
/// Pages of a range that is looked at page by page.
const LOOKED_AT: usize = 1024;
const PAGE: usize = 4096;

/// The operating system's words for the pages of a range, one each; `None` if it has none, or for too many.
fn page_map(at: *mut u8, bytes: usize) -> Option<[u64; LOOKED_AT]> {
    static MAP: OnceLock<Option<File>> = OnceLock::new();
    let map = MAP.get_or_init(|| File::open("/proc/self/pagemap").ok()).as_ref()?;
    let mut words = [0; LOOKED_AT];
    let count = bytes / PAGE;
    let into = words.get_mut(..count)?;
    let place = libc::off_t::try_from(at as usize / PAGE * size_of::<u64>()).ok()?;
    // SAFETY: the buffer has the length that is passed, and any bytes are words.
    let read = unsafe {
        let into = into.as_mut_ptr().cast();
        libc::pread(map.as_raw_fd(), into, count * size_of::<u64>(), place)
    };
    (usize::try_from(read) == Ok(count * size_of::<u64>())).then_some(words)
}

/// Makes a usable part of a reservation read as zero; says whether that was possible. Pages that were never touched
/// cost next to nothing, and few that were stay where they are.
///
/// # Safety
/// The range is whole pages of a reservation of [`reserve`]'s that may be written, and no reference is
/// live to any of it.
pub(super) unsafe fn discard(at: *mut u8, bytes: usize) -> bool {
    /// In a word of the map: the page is in memory, or in the swap space.
    const THERE: u64 = 3 << 62;
    if let Some(words) = page_map(at, bytes) {
        let there = || {
            words[..bytes / PAGE]
                .iter()
                .enumerate()
                .filter(|(_, word)| *word & THERE != 0)
        };
        if there().count() <= CLEARED {
            for (page, _) in there() {
                // SAFETY: a page of the range, by the caller's condition.
                unsafe { ptr::write_bytes(at.add(page * PAGE), 0, PAGE) };
            }
            return true;
        }
    }
    // SAFETY: the caller's conditions; the pages stay mapped, and are new ones when touched.
    unsafe { libc::madvise(at.cast(), bytes, libc::MADV_DONTNEED) == 0 }
}

/// Gives a reservation back.
///
/// # Safety
/// The range is a whole reservation of [`reserve`]'s, and nothing refers to it any more.
pub(super) unsafe fn release(at: *mut u8, bytes: usize) {
    // SAFETY: the caller's condition.
    unsafe { libc::munmap(at.cast(), bytes) };
}

const SIGNALS: [i32; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
/// The handlers that stood before ours.
static mut PREVIOUS: [Option<libc::sigaction>; 4] = [None; 4];

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (at, signal) in SIGNALS.into_iter().enumerate() {
            // SAFETY: a zeroed `sigaction` is valid; `PREVIOUS` is written once, before any signal
            // of ours can be delivered.
            unsafe {
                let mut action: libc::sigaction = core::mem::zeroed();
                let mut previous: libc::sigaction = core::mem::zeroed();
                action.sa_sigaction = handler as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
                libc::sigemptyset(&raw mut action.sa_mask);
                libc::sigaction(signal, &raw const action, &raw mut previous);
                PREVIOUS[at] = Some(previous);
            }
        }
    });
}

extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let runtime = CURRENT.with(Cell::get);
    // SAFETY: the kernel passes a valid context; the runtime block of the current process lives
    // until `set_current` names another.
    unsafe {
        let context = context.cast::<libc::ucontext_t>();
        let registers = &mut (*context).uc_mcontext.gregs;
        let at = registers[libc::REG_RIP as usize] as u64;
        if !runtime.is_null() {
            let address = if signal == libc::SIGSEGV || signal == libc::SIGBUS {
                (*info).si_addr() as u64
            } else {
                0
            };
            if let Some((landing, stack)) = super::on_fault(runtime, at, address) {
                registers[libc::REG_RIP as usize] = landing.cast_signed();
                registers[libc::REG_RSP as usize] = stack.cast_signed();
                return;
            }
        }
        // Not ours: let the earlier handler have it when the instruction faults again.
        let at = SIGNALS.iter().position(|have| *have == signal).unwrap_or(0);
        let previous = &raw const PREVIOUS;
        if let Some(previous) = (*previous)[at].as_ref() {
            libc::sigaction(signal, previous, ptr::null_mut());
        }
    }
}

/// The signal of [`Deadline`]'s timers.
const TIME_OVER: i32 = libc::SIGALRM;
/// How long after a signal the next comes: a process that was not in compiled code at one may be at the next.
const AGAIN: Duration = Duration::from_millis(1);

/// A limit of time for the processes that this thread runs. From its end on, whichever runs is stopped with
/// [`crate::translate::TrapKind::Interrupted`], until the limit is dropped. Compiled code pays nothing for it.
///
/// It uses `SIGALRM`, for whose handler the whole program must have no other use. A function of the host that waits
/// is not cut short, but does not return to the process.
pub struct Deadline {
    timer: libc::timer_t,
}

impl Deadline {
    /// Stops what this thread runs when so much time has passed (at least a millisecond).
    ///
    /// # Errors
    /// The operating system has no timer for it; its own error is returned.
    pub fn after(limit: Duration) -> std::io::Result<Self> {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: a zeroed `sigaction` is valid; the handler is of the form that its flags say.
            unsafe {
                let mut action: libc::sigaction = core::mem::zeroed();
                action.sa_sigaction = on_time_over as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigemptyset(&raw mut action.sa_mask);
                libc::sigaction(TIME_OVER, &raw const action, ptr::null_mut());
            }
        });
        let span = |time: Duration| libc::timespec {
            tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(time.subsec_nanos().cast_signed()),
        };
        // SAFETY: both structures are filled before they are passed, and live through the calls.
        unsafe {
            let mut event: libc::sigevent = core::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = TIME_OVER;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = ptr::null_mut();
            if libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            let made = Self { timer };
            let when = libc::itimerspec {
                it_interval: span(AGAIN),
                it_value: span(limit.max(AGAIN)),
            };
            if libc::timer_settime(timer, 0, &raw const when, ptr::null_mut()) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(made)
        }
    }

    /// Ends the whole program with a status, from any thread, while there are limits. `std::process::exit` must not be
    /// used for that: it takes away the stack on which the thread of a limit may be answering its signal.
    pub fn end_program(status: i32) -> ! {
        // SAFETY: it runs no code of the program's any more.
        unsafe { libc::_exit(status) }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        // SAFETY: the timer is this value's own.
        unsafe { libc::timer_delete(self.timer) };
    }
}

extern "C" fn on_time_over(_signal: i32, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let runtime = CURRENT.with(Cell::get);
    if runtime.is_null() {
        return;
    }
    // SAFETY: as in `handler`; the timer's signal goes to the thread that made it, whose process this is.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let at = registers[libc::REG_RIP as usize] as u64;
        if let Some((landing, stack)) = super::on_time_over(runtime, at) {
            registers[libc::REG_RIP as usize] = landing.cast_signed();
            registers[libc::REG_RSP as usize] = stack.cast_signed();
        }
    }
}
