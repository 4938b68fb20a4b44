//! What each processor architecture provides, name by name:
//!
//! * `pdx_wrapper!`, `thread_wrapper!`: what stands between the kernel's way of entering a protected
//!   procedure or a thread and a C function.

#[cfg(target_arch = "x86_64")]
mod x86_64;
