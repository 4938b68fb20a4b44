//! Pure kernel logic: what a µ-kernel decides, without the instructions that only a kernel may use.
//!
//! * [`frames`]: physical memory by counted references.
//! * [`paging`]: the format of page-table entries; [`space`]: the upper tables and the leaves they link,
//!   which serve one slot everywhere.
//! * [`thread`]: registers, portal frames and states; [`wait`]: what parked threads wait for;
//!   [`scheduler`]: who runs next; [`shares`]: how much of the processors an account gets; `timers`: who is woken when;
//!   [`portal`]: the cache of protected calls.
//! * [`trace`]: the last events; [`debugger`]: what the kernel tells of itself to whoever debugs it.
//! * [`event`]: what happens to a thread and what becomes of it.
//! * [`smp`]: how several processors take turns and ask things of one another.
//! * [`machine`]: the contract with the server above; [`hardware`]: the contract with what is below.
//! * [`outside`]: the contract with a server that is not in the kernel.
//! * [`kernel`]: all of it put together; [`half`]: what only some systems have; [`bare`]: the half of the bare µ-kernel, with its mapping
//!   trees, messages and calls.
//!
//! Event-driven (`docs/design/microkernel.md`): nothing here blocks or keeps a stack. A thread that must wait is
//! parked with the operation it will do again. The crate has no unsafe code and runs on the host.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod hardware;
pub mod machine;

pub mod bare;
pub mod debugger;
pub mod event;
pub mod frames;
pub mod half;
pub mod kernel;
pub mod looks;
pub mod outside;
#[cfg(not(feature = "fake-hardware"))]
mod paging;
#[cfg(feature = "fake-hardware")]
pub mod paging;
pub mod portal;
pub mod scheduler;
pub mod shares;
pub mod smp;
pub mod space;
pub mod thread;
mod timers;
pub mod trace;
pub mod wait;

pub use frames::Frame;
pub use half::Half;
pub use hardware::Hardware;
pub use kernel::{Kernel, messages};
pub use machine::{HoldsMachine, Machine, Shortage};
pub use paging::PageEntry;
pub use space::{Leaf, SpaceId};
pub use thread::ThreadId;
