//! Calls of the µ-kernel: the trap, one function for each call of the table, and what is unsafe besides.
//!
//! Each function bears the name and the arguments of the table (`docs/spec/abi.md`) and returns its
//! values or the error. A test compares them with the table.
//!
//! What is safe? As in `rt`: a call that takes memory away makes the next access fault, and that is safe.
//! Memory that arrives, in a window or by [`map`], lands where this library lets it: in
//! [`memory`]'s own range of addresses, where no Rust object is.

mod arch;
pub mod entry;
pub mod heap;
pub mod memory;
mod procedure;

use abi::{
    error::Result,
    nucleus::{BUFFER_REGISTERS, Call, MESSAGE_WORDS, REGISTER_WORDS, Registers, message_buffer},
};
use memory::Window;

pub use crt0::{Answer, ticks, use_vectors};

/// Any call with any arguments, as the table says it.
///
/// # Safety
/// 1. Whatever the call does to memory at the addresses given keeps Rust's rules for it.
/// 2. A thread that it makes or starts in this space runs a procedure as [`thread_create`] asks.
#[inline(always)]
pub unsafe fn raw(number: u64, arguments: [u64; 6]) -> Answer {
    // SAFETY: promised by the caller.
    unsafe { crt0::system_call(number, arguments) }
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

/// Defines the calls that take and give plain words and are safe whatever the words are.
macro_rules! safe_calls {
    ($($call:ident $name:ident($($argument:ident),*) -> $shape:ident;)*) => {
        $(
            #[doc = concat!("`Nucleus", stringify!($call), "` of the table (`docs/spec/abi.md`).")]
            ///
            /// # Errors
            /// As the table says.
            #[inline]
            pub fn $name($($argument: u64),*) -> safe_calls!(@type $shape) {
                // SAFETY: the call writes to no address it is given (module theory).
                unsafe { raw(Call::$call as u64, words([$($argument),*])) }.result().map(safe_calls!(@map $shape))
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

safe_calls! {
    LogWrite log_write(bytes, count) -> none;
    MachineStop machine_stop(exit) -> none;
    ThreadSelf thread_self() -> two;
    ClockNow clock_now() -> one;
    SpaceCreate space_create(quota, pager, handler, supervisor) -> one;
    SpaceDelete space_delete(space) -> none;
    SpaceControl space_control(space, pager, handler, supervisor) -> none;
    ThreadDelete thread_delete(thread) -> none;
    ThreadPriority thread_priority(thread, priority) -> none;
    Yield yield_now() -> none;
    Map map(source, space, window, how) -> one;
    InterruptBind interrupt_bind(interrupt, thread) -> none;
    InterruptMessage interrupt_message(interrupt) -> two;
    KernelCheck kernel_check() -> two;
}

/// A message that was received.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// Its tag.
    pub tag: u64,
    /// The sender: a thread, or an interrupt (its number plus one).
    pub sender: u64,
    /// Its first words; the others are in the message buffer ([`buffer_word`]).
    pub words: [u64; REGISTER_WORDS],
}

/// `NucleusIpc`: sends to a thread (0: to nobody), then receives (from 0: from nobody). Fpages are
/// received in the window.
///
/// # Errors
/// As the table says.
#[inline(always)]
pub fn ipc(
    to: u64,
    from: u64,
    tag: u64,
    timeouts: u64,
    window: Window,
    words: [u64; REGISTER_WORDS],
) -> Result<Received> {
    // SAFETY: what is received lands in a window, where no Rust object is; message buffers are
    // reached by volatile accesses only.
    let (answer, words) = unsafe { arch::message([to, from, tag, timeouts, window.word()], words) };
    let (tag, sender) = answer.result()?;
    Ok(Received { tag, sender, words })
}

/// A word of the caller's message buffer: the `index`-th of the last long message that it received.
///
/// # Panics
/// If there is no such word.
pub fn buffer_word(thread: u64, index: usize) -> u64 {
    assert!(index < BUFFER_WORDS, "word {index} of a message buffer");
    // SAFETY: every thread of a free space has its buffer there; only its bytes are looked at.
    unsafe { (message_buffer(thread) as *const u64).add(index).read_volatile() }
}

/// Sets a word of the caller's message buffer.
///
/// # Panics
/// If there is no such word.
pub fn set_buffer_word(thread: u64, index: usize, word: u64) {
    assert!(index < BUFFER_WORDS, "word {index} of a message buffer");
    // SAFETY: as in `buffer_word`; no Rust object is there.
    unsafe { (message_buffer(thread) as *mut u64).add(index).write_volatile(word) };
}

/// Words of a message buffer that this library uses: a message, then registers.
const BUFFER_WORDS: usize = MESSAGE_WORDS + Registers::WORDS;
const _: () = assert!(BUFFER_REGISTERS == MESSAGE_WORDS);

/// `NucleusThreadExchange` of a thread other than the caller, `me`. Registers are given to be
/// written, and come back as they were if they are to be read. Gives the thread's state, too.
///
/// # Safety
/// With `EXCHANGE_WRITE` the thread can go on with those registers.
///
/// # Errors
/// As the table says.
pub unsafe fn thread_exchange(me: u64, thread: u64, what: u64, registers: &mut Registers) -> Result<u64> {
    for (index, word) in registers.to_words().into_iter().enumerate() {
        set_buffer_word(me, BUFFER_REGISTERS + index, word);
    }
    // SAFETY: what the thread does then is the caller's promise.
    let state = unsafe { raw(Call::ThreadExchange as u64, words([thread, what])) }
        .result()?
        .0;
    let mut after = [0; Registers::WORDS];
    for (index, word) in after.iter_mut().enumerate() {
        *word = buffer_word(me, BUFFER_REGISTERS + index);
    }
    *registers = Registers::from_words(after);
    Ok(state)
}

/// `NucleusThreadCreate`: gives the thread and the address of its message buffer.
///
/// # Safety
/// `rip` is the first instruction of a procedure made by [`crate::thread_entry!`] (or keeps the rules
/// of one) and `rsp` the top of a stack that nobody else uses, as the space sees them.
///
/// # Errors
/// As the table says.
pub unsafe fn thread_create(space: u64, rip: u64, rsp: u64, parameter: u64, priority: u64) -> Result<(u64, u64)> {
    // SAFETY: promised by the caller.
    unsafe { raw(Call::ThreadCreate as u64, words([space, rip, rsp, parameter, priority])) }.result()
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
    /// It is a naked function whose body is `nucleus_thread_wrapper!`, around a function that may be
    /// called with any word from any thread.
    #[doc(hidden)]
    pub const unsafe fn new(address: u64) -> Self {
        Self { address }
    }

    /// Its address.
    pub const fn address(self) -> u64 {
        self.address
    }
}

/// A thread of the caller's space that begins with `entry` on this stack, which is its own from now on.
///
/// # Errors
/// As the table says.
pub fn start_thread(entry: ThreadEntry, stack: &'static mut [u64], parameter: u64, priority: u64) -> Result<u64> {
    let top = (stack.as_mut_ptr_range().end as u64) & !15;
    // SAFETY: an entry is made by `thread_entry!` only, of a function that takes any word.
    unsafe { thread_create(0, entry.address, top, parameter, priority) }.map(|(thread, _)| thread)
}

/// A thread of a space below the caller's, whose pager sees to it that image and stack are there. It
/// can touch what is mapped to it, as any other program can.
///
/// # Errors
/// `BadArgument` for the caller's own space, where nobody vouches for the stack; as the table says.
pub fn start_thread_in(space: u64, entry: ThreadEntry, stack_top: u64, parameter: u64, priority: u64) -> Result<u64> {
    if space == 0 || space == thread_self()?.1 {
        return Err(abi::Error::BadArgument);
    }
    // SAFETY: an entry is made by `thread_entry!` only, of a function that takes any word; another space's memory is its
    // own affair.
    unsafe { thread_create(space, entry.address, stack_top, parameter, priority) }.map(|(thread, _)| thread)
}

/// Takes rights on a range of this library's ([`Window`]) from all who have it from here; with `own`
/// from this space too.
///
/// # Errors
/// As the table says.
pub fn flush(what: Window, rights: u64, own: u64) -> Result<()> {
    // SAFETY: what goes away is no Rust object's.
    unsafe { raw(Call::Flush as u64, words([what.word(), rights, own])) }
        .result()
        .map(|_| ())
}

/// Stops the machine with that value of the exit device, or, where the caller may not, the thread.
pub fn stop(exit: u8) -> ! {
    let _ = machine_stop(u64::from(exit));
    crt0::fault()
}

#[cfg(test)]
mod tests {
    use super::SAFE;

    /// Calls written by hand above.
    const OTHERS: &[&str] = &["ipc", "thread_create", "thread_exchange", "flush"];

    #[test]
    fn every_call_of_the_table_has_its_function() {
        for info in abi::nucleus::TABLE {
            let safe = SAFE.iter().find(|(name, _)| *name == info.rust_name);
            match safe {
                Some((_, arguments)) => assert_eq!(*arguments, info.arguments, "{}", info.name),
                None => assert!(OTHERS.contains(&info.rust_name), "{}", info.name),
            }
        }
        assert_eq!(SAFE.len() + OTHERS.len(), abi::nucleus::TABLE.len());
    }
}
