//! The part that differs for each architecture: how a fault of compiled code comes back to the engine.
//!
//! Contract: `register`.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::register;
