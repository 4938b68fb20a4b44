//! The names that each processor architecture provides:
//!
//! * `pdx_wrapper!`, `thread_wrapper!`: what stands between the kernel's way of entering a protected
//!   procedure or a thread and a C function;
//! * `leave_procedure`: the end of a protected call;
//! * `JUMP_TO_NEXT`: the first instructions of a program that is a module;
//! * `stack_pointer`, `entered!`, where the runtime is a module: on which stack one is, and functions that begin on one.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::{JUMP_TO_NEXT, leave_procedure};
#[cfg(all(target_arch = "x86_64", target_os = "none", feature = "module"))]
pub(crate) use x86_64::{entered, stack_pointer};
