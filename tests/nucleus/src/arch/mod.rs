//! Acts that no safe code can do: exceptions on purpose, and other threads' registers. Name by name:
//!
//! * `CRIMES`: the exceptions that `crime` can run into, by vector.
//! * `crime(number) -> u64`: runs into one; gives what a register holds afterwards.
//! * `move_on(number, registers)`: changes the registers so that the thread goes on behind it, with 42 in that register.
//! * `any(number, arguments)`: any call.
//! * `start_here(entry, stack_top, parameter, priority)`: a thread of this space on a stack in free memory.
//! * `exchange(me, thread, what, registers)`: `ThreadExchange`.
//! * `read_port(port)`, `write_port(port, value)`: I/O ports; `AllPorts`: the same for the crate `drivers`.
//! * `registers(address, bytes) -> Window`: device registers.
//! * `fill_vectors(pattern)`, `held_vectors(pattern) -> Held`: sets all vector registers and their control words; tells whether they
//!   are those, or initial.

use nucleus::call::{self, ThreadEntry};

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::{
    AllPorts, CRIMES, Held, crime, exchange, fill_vectors, held_vectors, move_on, read_port, registers, write_port,
};

/// Any call: for what the kernel makes of bad ones.
///
/// # Errors
/// As the table says.
pub fn any(number: u64, arguments: [u64; 6]) -> abi::error::Result<(u64, u64)> {
    // SAFETY: the kernel writes to no address that it is given; where the fuzzer makes threads, it does so in spaces below.
    unsafe { call::raw(number, arguments) }.result()
}

/// A thread of this space on a stack in free memory.
///
/// # Errors
/// As `NucleusThreadCreate`.
pub fn start_here(entry: ThreadEntry, stack_top: u64, parameter: u64, priority: u64) -> abi::error::Result<u64> {
    // SAFETY: the caller takes each stack from a part of memory that nobody else uses, and takes it again only when its thread is deleted.
    unsafe { call::thread_create(0, entry.address(), stack_top, parameter, priority) }.map(|(thread, _)| thread)
}
