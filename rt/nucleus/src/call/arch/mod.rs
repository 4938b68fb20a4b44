//! The names that each processor architecture provides:
//!
//! * `message(arguments, words) -> (Answer, words)`: `Ipc`, whose words pass in registers.
//! * `nucleus_thread_wrapper!`: what stands between the kernel's way of entering a thread and a C function.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::message;
