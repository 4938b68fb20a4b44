//! The Gondwana kernel: the privileged part, thin around `kcore`, `sasos` and `store`.
//!
//! A library over who answers events ([`supervisor`]); `src/bin` has its three images: the server inside the kernel, the server outside,
//! no server. [`boot`] is the whole boot in order. After it there are only events ([`event`]): a
//! system call, a trap or an interrupt comes in, takes the lock on the [`system`], and leaves to user
//! mode. Privileged and unsafe code stands in [`arch`] and [`mem`].
#![no_std]

extern crate alloc;

mod arch;
pub mod bare;
mod boot;
mod console;
mod debugger;
mod disk;
mod domains;
mod event;
pub mod inside;
mod log;
mod mem;
pub mod outside;
mod panic;
mod pc;
mod root;
mod supervisor;
mod system;
mod trace;

pub use kcore::thread::Context;
