//! What each processor architecture provides, name by name:
//!
//! * `system_call(number, arguments) -> Answer`: the trap.
//! * `message(arguments, words) -> (Answer, words)`: `Ipc`, whose words pass in registers.
//! * `ticks() -> u64`: a counter of time, as fine as the processor has it.
//! * `fault() -> !`: an illegal instruction.
//! * `_start`: the first instruction of a program; gives [`super::entry::begin`] the root page, the
//!   dynamic section and the base of the image, in position-independent code.
//! * `is_relative(kind) -> bool`: whether a relocation of that kind is "base plus addend".
//! * `nucleus_thread_wrapper!`: what stands between the kernel's way of entering a thread and a C function.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::{fault, message, system_call, ticks};

#[cfg(all(target_arch = "x86_64", target_os = "none"))]
pub use x86_64::is_relative;
