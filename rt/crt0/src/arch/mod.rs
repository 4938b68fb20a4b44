//! The names that each processor architecture provides:
//!
//! * `system_call(number, arguments) -> Answer`: the trap.
//! * `ticks() -> u64`: a counter of time, as fine as the processor has it.
//! * `use_vectors()`: uses the unit of floating point and vectors, for measurements.
//! * `fault() -> !`: an illegal instruction.
//! * `is_relative(kind) -> bool`: whether a relocation of that kind is "base plus addend".
//! * `start!`: the first instruction of a program.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::{fault, is_relative, system_call, ticks, use_vectors};
