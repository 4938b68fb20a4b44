//! System calls: the trap, one function for each call of `abi`'s table, and the start code.
//!
//! Each function bears the name and the arguments of the table (`docs/spec/abi.md`) and returns its
//! values or the error. A test compares them with the table.
//!
//! What is safe? A call that *writes* to an address it is given, or changes what
//! stands behind an address, is unsafe unless the function takes a reference instead; so is a
//! call that lets another thread run at an address, or that names addresses of this program where others may enter it. A
//! call that deletes or shortens an object refuses what Rust owns ([`Error::InUse`]): the address might be given to the
//! program's own heap again. A limit of pages only makes accesses fault, and that is safe. The rules for memory that others
//! may change stand in [`crate::object`].

mod arch;
#[cfg(all(target_os = "none", feature = "module"))]
mod c;
pub mod entry;
pub(crate) mod foreign;
pub mod kernel_page;
mod procedure;
#[cfg(target_os = "none")]
pub(crate) mod program;

pub(crate) use arch::JUMP_TO_NEXT;
#[doc(hidden)]
pub use arch::leave_procedure;
#[cfg(all(target_os = "none", feature = "module"))]
pub(crate) use arch::stack_pointer;
pub use procedure::PdxEntry;
pub(crate) use procedure::register_entries;

use core::sync::atomic::AtomicU8;

use abi::{
    Call, Error,
    error::Result,
    layout::{ApdDescription, ExitReport, ObjectInfo, TOPIC_LOG, ThreadReport},
};

use crate::object;

pub use crt0::{Answer, ticks, use_vectors};

/// Any system call with any arguments, as the table says it.
///
/// # Safety
/// Whatever the call does to memory at the addresses given keeps Rust's rules for it.
#[inline(always)]
#[cfg(not(test))]
pub unsafe fn raw(number: u64, arguments: [u64; 6]) -> Answer {
    // SAFETY: promised by the caller.
    unsafe { crt0::system_call(number, arguments) }
}

#[cfg(test)]
std::thread_local! {
    /// Calls that a test of this thread would have made: on the host nobody answers them.
    pub(crate) static COUNTED: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

/// Any system call, counted and refused.
///
/// # Safety
/// None is needed.
#[cfg(test)]
pub unsafe fn raw(_: u64, _: [u64; 6]) -> Answer {
    COUNTED.set(COUNTED.get() + 1);
    Answer {
        error: Error::BadCall as u64,
        value: 0,
        value2: 0,
    }
}

#[inline(always)]
unsafe fn call(call: Call, arguments: [u64; 6]) -> Result<(u64, u64)> {
    // SAFETY: promised by the caller.
    unsafe { raw(call as u64, arguments) }.result()
}

/// Defines the calls that take and give plain words and are safe whatever the words are.
macro_rules! safe_calls {
    ($($call:ident $name:ident($($argument:ident),*) -> $shape:ident;)*) => {
        $(
            #[doc = concat!("`", stringify!($call), "` of the table (`docs/spec/abi.md`).")]
            ///
            /// # Errors
            /// As the table says.
            #[inline]
            pub fn $name($($argument: u64),*) -> safe_calls!(@type $shape) {
                // SAFETY: the call writes to no address it is given (module theory).
                unsafe { call(Call::$call, words([$($argument),*])) }.map(safe_calls!(@map $shape))
            }
        )*

        /// Names and arguments, for the test.
        #[cfg(test)]
        const SAFE: &[(&str, &[&str])] = &[$((stringify!($name), &[$(stringify!($argument)),*]),)*];
    };
    (@type none) => { Result<()> };
    (@type one) => { Result<u64> };
    (@type two) => { Result<(u64, u64)> };
    (@map none) => { |_| () };
    (@map one) => { |(value, _)| value };
    (@map two) => { |values| values };
}

/// Arguments padded to six.
#[inline(always)]
const fn words<const N: usize>(given: [u64; N]) -> [u64; 6] {
    let mut all = [0; 6];
    let mut index = 0;
    while index < N {
        all[index] = given[index];
        index += 1;
    }
    all
}

safe_calls! {
    PdxCall pdx_call(entry, parameter0, pd, parameter1, parameter2, parameter3) -> two;
    PdxReturn pdx_return(result, result2) -> none;
    DomainCall domain_call(entry, parameter0, parameter1, parameter2, parameter3) -> two;
    ObjCreate obj_create(bytes, password) -> two;
    ObjPasswd obj_passwd(address, password, rights) -> one;
    KeepObject keep_object(address) -> none;
    ObjClone obj_clone(source, extra_bytes, password) -> two;
    PageFlush page_flush(page, pages) -> none;
    PageLimit page_limit(page, pages, rights) -> none;
    ApdInsert apd_insert(slot, clist) -> none;
    ApdDelete apd_delete(slot) -> none;
    ApdLock apd_lock(slot) -> none;
    ApdLookup apd_lookup(address, rights) -> one;
    ApdFlush apd_flush() -> none;
    ThreadDelete thread_delete(thread, status) -> none;
    ThreadSleep thread_sleep(thread, ns) -> none;
    ThreadResume thread_resume(thread) -> none;
    SemCreate sem_create(address, value) -> none;
    SemDelete sem_delete(address) -> none;
    SemWait sem_wait(address, timeout_ns) -> none;
    SemSignal sem_signal(address) -> none;
    AddressWait address_wait(address, expected, timeout_ns) -> none;
    AddressWake address_wake(address, count) -> one;
    ConsoleForeground console_foreground(thread) -> none;
    ClockRead clock_read() -> two;
    SystemControl system_control(operation, argument, second, third, fourth) -> none;
}

/// Defines calls that take an object away, or a part of it: a safe function that refuses what Rust owns, and one that
/// does not look.
macro_rules! taking_calls {
    ($($call:ident $name:ident $unchecked:ident($($argument:ident),*);)*) => { $(
        #[doc = concat!("`", stringify!($call), "` of the table, for what is not Rust's own.")]
        ///
        /// # Errors
        /// [`Error::InUse`] for the program's image, heap, data of modules, or a stack; as the table says.
        pub fn $name(address: u64 $(, $argument: u64)*) -> Result<()> {
            if object::is_rusts_own(address) {
                return Err(Error::InUse);
            }
            // SAFETY: Rust owns nothing in the object that holds the address, as just seen: its memory is whole objects.
            unsafe { $unchecked(address $(, $argument)*) }
        }

        #[doc = concat!("`", stringify!($call), "` of the table.")]
        ///
        /// # Safety
        /// 1. Rust owns nothing in the object that holds the address.
        ///
        /// # Errors
        /// As the table says.
        #[inline]
        pub unsafe fn $unchecked(address: u64 $(, $argument: u64)*) -> Result<()> {
            // SAFETY: what goes away is not Rust's (1).
            unsafe { call(Call::$call, words([address $(, $argument)*])) }.map(|_| ())
        }
    )* };
}

taking_calls! {
    ObjDelete obj_delete obj_delete_unchecked();
    ObjResize obj_resize obj_resize_unchecked(bytes);
    ObjRetire obj_retire obj_retire_unchecked();
}

/// The calling thread.
#[inline]
pub fn thread_my_id() -> u64 {
    // SAFETY: it has no arguments and writes nothing. It cannot fail.
    unsafe { raw(Call::ThreadMyId as u64, [0; 6]) }.value
}

/// A word from the system's random generator.
///
/// # Errors
/// As the table says.
pub fn random_read() -> Result<u64> {
    // SAFETY: it has no arguments and writes nothing.
    unsafe { call(Call::RandomRead, [0; 6]) }.map(|(word, _)| word)
}

/// `ObjInfo`: what the object that holds `address` is.
///
/// # Errors
/// As the table says.
pub fn obj_info(address: u64) -> Result<ObjectInfo> {
    obj_info_change(address, 0, ObjectInfo::default())
}

/// `ObjInfo` with [`abi::layout::INFO_USED`]: cheap, and not all of the domain's rights may stand in it.
///
/// # Errors
/// As the table says.
pub fn obj_info_used(address: u64) -> Result<ObjectInfo> {
    obj_info_change(address, abi::layout::INFO_USED, ObjectInfo::default())
}

/// `ObjInfo`, changing from `new` what the `INFO_SET_` flags name; gives what was before.
///
/// # Errors
/// As the table says.
pub fn obj_info_change(address: u64, flags: u64, new: ObjectInfo) -> Result<ObjectInfo> {
    let mut info = new;
    // SAFETY: the buffer is an `ObjectInfo` of ours: plain words.
    unsafe {
        call(
            Call::ObjInfo,
            words([address, flags, &raw mut info as u64, ObjectInfo::BYTES as u64]),
        )
    }?;
    Ok(info)
}

/// `ObjCrePdx`: gives the password. [`crate::pdx::register`] is the safe form.
///
/// # Safety
/// 1. Each entry that is an instruction of this program's is the first of a procedure made by [`crate::pdx_entry!`] (or
///    keeps the rules of one).
///
/// # Errors
/// As the table says.
pub unsafe fn obj_cre_pdx(address: u64, password: u64, clist: u64, entries: &[u64]) -> Result<u64> {
    let arguments = words([address, password, clist, entries.as_ptr() as u64, entries.len() as u64]);
    // SAFETY: the kernel reads the entries only; who enters there does so at procedures (1).
    unsafe { call(Call::ObjCrePdx, arguments) }.map(|(password, _)| password)
}

/// `PageFlushAll`: ranges of pages, each by its first page and how many.
///
/// # Errors
/// As the table says.
pub fn page_flush_all(ranges: &[[u64; 2]]) -> Result<()> {
    let arguments = words([ranges.as_ptr() as u64, ranges.len() as u64]);
    // SAFETY: the kernel only reads the ranges.
    unsafe { call(Call::PageFlushAll, arguments) }.map(|_| ())
}

/// `PageCopy`.
///
/// # Safety
/// The destination holds plain data to which no reference is live.
///
/// # Errors
/// As the table says.
pub unsafe fn page_copy(from: u64, to: u64, pages: u64) -> Result<()> {
    // SAFETY: promised by the caller.
    unsafe { call(Call::PageCopy, words([from, to, pages])) }.map(|_| ())
}

/// `PageUnMap`.
///
/// # Safety
/// The range holds plain data to which no reference is live.
///
/// # Errors
/// As the table says.
pub unsafe fn page_un_map(page: u64, pages: u64, disposition: u64) -> Result<()> {
    // SAFETY: promised by the caller.
    unsafe { call(Call::PageUnMap, words([page, pages, disposition])) }.map(|_| ())
}

/// `ApdGet`: the caller's active protection domain.
///
/// # Errors
/// As the table says.
pub fn apd_get() -> Result<ApdDescription> {
    let mut description = ApdDescription::default();
    // SAFETY: the buffer is an `ApdDescription` of ours: plain words.
    unsafe {
        call(
            Call::ApdGet,
            words([&raw mut description as u64, ApdDescription::BYTES as u64]),
        )
    }?;
    Ok(description)
}

/// `PdxCall` in an explicit domain.
///
/// # Errors
/// As the table says.
pub fn pdx_call_in(entry: u64, parameters: [u64; 4], domain: &ApdDescription) -> Result<(u64, u64)> {
    let [p0, p1, p2, p3] = parameters;
    pdx_call(entry, p0, core::ptr::from_ref(domain) as u64, p1, p2, p3)
}

/// `TaskCreate`: gives the first thread and the task. `apd` none: the caller's own.
///
/// # Errors
/// [`Error::InUse`] for an entry in the program's own image, heap or stacks: they would be the new task's; as the table says.
pub fn task_create(
    entry: u64,
    parameter: u64,
    apd: Option<&ApdDescription>,
    limit_pages: u64,
    priority: u64,
    limit_share: u64,
) -> Result<(u64, u64)> {
    if object::is_rusts_own(entry) {
        return Err(Error::InUse);
    }
    let apd = apd.map_or(0, |apd| core::ptr::from_ref(apd) as u64);
    // SAFETY: the new task has a domain of its own, and its first object is not Rust's here; it can touch this program's
    // memory only by capabilities, as any other program can.
    unsafe {
        call(
            Call::TaskCreate,
            words([entry, parameter, apd, limit_pages, priority, limit_share]),
        )
    }
}

/// `ThreadCreate`.
///
/// # Safety
/// `entry` is the first instruction of a procedure made by [`crate::thread_entry!`] (or keeps the
/// rules of one) and may be called with `parameter` from another thread.
///
/// # Errors
/// As the table says.
pub unsafe fn thread_create(entry: u64, parameter: u64, priority: u64) -> Result<u64> {
    // SAFETY: promised by the caller.
    unsafe { call(Call::ThreadCreate, words([entry, parameter, priority])) }.map(|(thread, _)| thread)
}

/// `ThreadWait` with its report.
///
/// # Errors
/// As the table says.
pub fn thread_wait(thread: u64, timeout_ns: u64) -> Result<ExitReport> {
    let mut report = ExitReport::default();
    // SAFETY: the buffer is an `ExitReport` of ours: plain words.
    unsafe {
        call(
            Call::ThreadWait,
            words([thread, timeout_ns, &raw mut report as u64, ExitReport::BYTES as u64]),
        )
    }?;
    Ok(report)
}

/// `ThreadWait` without a report: gives the thread and its status.
///
/// # Errors
/// As the table says.
pub fn thread_wait_status(thread: u64, timeout_ns: u64) -> Result<(u64, u64)> {
    // SAFETY: without a report the call writes nothing.
    unsafe { call(Call::ThreadWait, words([thread, timeout_ns, 0])) }
}

/// `ThreadInfo` (0: the caller).
///
/// # Errors
/// As the table says.
pub fn thread_info(thread: u64) -> Result<ThreadReport> {
    let mut report = ThreadReport::default();
    // SAFETY: the buffer is a `ThreadReport` of ours: plain words.
    unsafe {
        call(
            Call::ThreadInfo,
            words([thread, &raw mut report as u64, ThreadReport::BYTES as u64]),
        )
    }?;
    Ok(report)
}

/// `ExcptReg`: gives the handler that was there (0: none).
///
/// # Safety
/// `handler` is 0 or the address of a C function (kind, address, instruction, wanted rights) that
/// ends with [`excpt_return`] and keeps Rust's rules wherever the exception strikes.
///
/// # Errors
/// As the table says.
pub unsafe fn excpt_reg(kind: u64, handler: u64) -> Result<u64> {
    // SAFETY: promised by the caller.
    unsafe { call(Call::ExcptReg, words([kind, handler])) }.map(|(old, _)| old)
}

/// `ExcptReturn`: leaves an exception handler.
///
/// # Safety
/// With `RESUME_AT` the address is one where the interrupted thread can go on.
///
/// # Errors
/// As the table says; a handler that runs never sees one.
pub unsafe fn excpt_return(action: u64, address: u64) -> Result<()> {
    // SAFETY: promised by the caller.
    unsafe { call(Call::ExcptReturn, words([action, address])) }.map(|_| ())
}

/// `ConsoleWrite`: gives how many bytes were taken.
///
/// # Errors
/// As the table says.
pub fn console_write(stream: u64, bytes: &[u8]) -> Result<usize> {
    // SAFETY: the kernel reads the bytes only.
    unsafe {
        call(
            Call::ConsoleWrite,
            words([stream, bytes.as_ptr() as u64, bytes.len() as u64]),
        )
    }
    .map(|(written, _)| written as usize)
}

/// `ConsoleRead`: gives how many bytes came; 0 means the end.
///
/// # Errors
/// As the table says.
pub fn console_read(stream: u64, buffer: &mut [u8]) -> Result<usize> {
    let arguments = words([stream, buffer.as_mut_ptr() as u64, buffer.len() as u64]);
    // SAFETY: the kernel writes bytes into the buffer, which is ours alone.
    unsafe { call(Call::ConsoleRead, arguments) }.map(|(read, _)| read as usize)
}

/// `ConsoleRead` into places that other threads may look at. Each byte stands in its place when the call returns, so a
/// thread that is ended behind the call loses none.
///
/// # Errors
/// As the table says.
pub fn console_read_shared(stream: u64, places: &[AtomicU8]) -> Result<usize> {
    let arguments = words([stream, places.as_ptr() as u64, places.len() as u64]);
    // SAFETY: the kernel writes bytes into the places, which may change under a shared reference.
    unsafe { call(Call::ConsoleRead, arguments) }.map(|(read, _)| read as usize)
}

/// `SystemInfo`: the words of the report that the topic names, as many as `buffer` has room for; gives how many bytes
/// the system's version of the report has.
///
/// # Errors
/// As the table says; [`Error::Protection`] for a topic that the caller may not see.
pub fn system_info(topic: u64, index: u64, buffer: &mut [u64]) -> Result<u64> {
    let place = [buffer.as_mut_ptr() as u64, size_of_val(buffer) as u64];
    // SAFETY: the system writes no more than fits into the buffer, which is ours alone.
    unsafe { call(Call::SystemInfo, words([topic, index, place[0], place[1]])) }.map(|(bytes, _)| bytes)
}

/// `SystemInfo` about the log: the position of the first byte that was written to the buffer, and how many.
///
/// # Errors
/// As the table says; [`Error::BadAddress`] for who may not see it.
pub fn system_log(position: u64, buffer: &mut [u8]) -> Result<(u64, usize)> {
    let place = [buffer.as_mut_ptr() as u64, buffer.len() as u64];
    // SAFETY: the system writes no more than fits into the buffer, which is ours alone.
    let told = unsafe { call(Call::SystemInfo, words([TOPIC_LOG, position, place[0], place[1]])) };
    told.map(|(bytes, first)| (first, bytes as usize))
}

/// The first procedure of a thread; made by [`thread_entry!`](crate::thread_entry).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ThreadEntry {
    address: u64,
}

impl ThreadEntry {
    /// The procedure at an address.
    ///
    /// # Safety
    /// It is a naked function whose body is `thread_wrapper!`, around a function that may be called
    /// with any word from any thread.
    #[doc(hidden)]
    pub const unsafe fn new(address: u64) -> Self {
        Self { address }
    }

    /// Its address.
    pub const fn address(self) -> u64 {
        self.address
    }
}

/// `ThreadCreate` with an entry that is known to be one.
///
/// # Errors
/// As the table says.
pub fn start_thread(entry: ThreadEntry, parameter: u64, priority: u64) -> Result<u64> {
    // SAFETY: an entry is made by `thread_entry!` only, of a function that takes any word.
    unsafe { thread_create(entry.address, parameter, priority) }
}

#[cfg(test)]
mod tests {
    use super::SAFE;

    /// Calls written by hand above, because they take references.
    const OTHERS: &[&str] = &[
        "thread_my_id",
        "random_read",
        "obj_delete",
        "obj_resize",
        "obj_retire",
        "obj_info",
        "obj_cre_pdx",
        "page_flush_all",
        "page_copy",
        "page_un_map",
        "apd_get",
        "task_create",
        "thread_create",
        "thread_wait",
        "thread_info",
        "excpt_reg",
        "excpt_return",
        "console_write",
        "console_read",
        "system_info",
    ];

    #[test]
    fn every_call_of_the_table_has_its_stub() {
        for info in abi::call::TABLE {
            let safe = SAFE.iter().find(|(name, _)| *name == info.rust_name);
            match safe {
                Some((_, arguments)) => assert_eq!(*arguments, info.arguments, "{}", info.name),
                None => assert!(OTHERS.contains(&info.rust_name), "{} has no stub", info.name),
            }
        }
        assert_eq!(SAFE.len() + OTHERS.len(), abi::call::TABLE.len());
    }
}
