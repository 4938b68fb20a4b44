//! What no safe code can do: exceptions on purpose, and other threads' registers. Name by name:
//!
//! * `CRIMES`: the exceptions that `crime` can run into, by vector.
//! * `crime(number) -> u64`: runs into one; gives what a register holds afterwards.
//! * `move_on(number, registers)`: changes the registers so that the thread goes on behind it, with 42 in that register.
//! * `exchange(me, thread, what, registers)`: `ThreadExchange`.
//! * `read_port(port)`, `write_port(port, value)`: I/O ports; `AllPorts`: the same for the crate `drivers`.
//! * `registers(address, bytes) -> Window`: device registers.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::{AllPorts, CRIMES, crime, exchange, move_on, read_port, registers, write_port};
