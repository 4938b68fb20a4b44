//! Services of the system for the engine: ranges of addresses out of transient objects.
//!
//! A reservation is an object as long as the whole range, which costs a page when it is touched and nothing
//! before that. All of it is limited to no rights, so that a touch there is a fault; making a part usable
//! lifts the limits of its pages. So a memory with its guard of 8 GiB is one object, and the guard is
//! addresses that nobody has.

use abi::address::{PAGE, pages_for};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use rt::{Rights, call};
use sip::exec::{PageProtection, Platform, set_platform};

/// The word that the engine keeps for the one thread that runs compiled code.
static CURRENT: AtomicU64 = AtomicU64::new(0);

/// Pages that one call may limit.
const PIECE: u64 = 1 << 16;

static PLATFORM: Platform = Platform {
    reserve,
    protect,
    release,
    set_current,
};

/// Names the platform to the engine and leads faults to it.
///
/// # Errors
/// As `ExcptReg`.
pub fn set_up() -> rt::Result<()> {
    set_platform(&PLATFORM);
    crate::arch::register()
}

/// The engine's word.
pub fn current() -> u64 {
    CURRENT.load(Relaxed)
}

fn set_current(word: u64) -> u64 {
    CURRENT.swap(word, Relaxed)
}

fn limit(at: u64, pages: u64, rights: Rights) -> bool {
    (0..pages).step_by(PIECE as usize).all(|first| {
        let count = PIECE.min(pages - first);
        call::page_limit(at + first * PAGE, count, rights.bits().into()).is_ok()
    })
}

fn reserve(bytes: usize) -> *mut u8 {
    let Ok((base, _)) = call::obj_create(bytes as u64, 0) else {
        return core::ptr::null_mut();
    };
    let pages = pages_for(bytes as u64).unwrap_or(0);
    if call::page_limit(base, pages, Rights::NONE.bits().into()).is_err() {
        let _ = call::obj_delete(base);
        return core::ptr::null_mut();
    }
    base as *mut u8
}

fn protect(at: *mut u8, bytes: usize, protection: PageProtection) -> bool {
    let rights = match protection {
        // As any object of one's own: what is not verified code is never jumped to.
        PageProtection::ReadWrite => Rights::RWX,
        PageProtection::ReadExecute => Rights::RX,
    };
    limit(at as u64, bytes as u64 / PAGE, rights)
}

fn release(at: *mut u8, _bytes: usize) {
    let _ = call::obj_delete(at as u64);
}

/// Takes the right to run away from a program's code, or gives it back: what runs it stops at its next
/// instruction, with [`sip::translate::TrapKind::Interrupted`].
pub fn set_runnable(code: &Range<u64>, rights: Rights) -> bool {
    limit(code.start, (code.end - code.start) / PAGE, rights)
}
