//! Everything that both sides of the system call boundary must agree on, defined once.
//!
//! * [`address`]: pages, slots and the windows of the one address space.
//! * [`rights`]: what a capability allows.
//! * [`error`]: the one table of results.
//! * [`call`]: the one table of system calls; stubs, dispatch, manual and C header come from it.
//! * [`layout`]: the shapes of what passes through memory (Clists, APDs, reports).
//! * [`start`]: what a new task finds on its start page.
//! * [`host`]: what the guest and the host tool say to each other.
//! * [`kernel_page`]: what the kernel tells every program without being asked.
//! * [`machine`]: what the kernel offers to a server outside of it.
//! * [`nucleus`]: what the µ-kernel offers to programs that run on it without the server.
//! * [`interface`]: how constants and layouts are defined, so that the manual and the C header have them all.
//! * [`document`]: the manual page and the C header, made from the tables.
//!
//! The crate depends on nothing and holds no behaviour beyond conversions.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod address;
pub mod call;
pub mod document;
pub mod error;
pub mod host;
pub mod interface;
pub mod kernel_page;
pub mod layout;
pub mod machine;
pub mod nucleus;
pub mod rights;
pub mod start;

pub use call::Call;
pub use error::Error;
pub use rights::Rights;
