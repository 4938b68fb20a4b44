//! The library of programs that run on the bare µ-kernel, without the server.
//!
//! [`call`] holds the trap, the start code, the heap and the root page: all that is unsafe. Above it
//! stand [`log!`](crate::log), and [`message`] for the forms of the one message operation.
//!
//! A program names its `main` with [`entry!`] and, if it allocates, its heap:
//!
//! ```ignore
//! #[global_allocator]
//! static HEAP: nucleus::Heap<{ 64 << 10 }> = nucleus::Heap::new();
//! nucleus::entry!(main);
//! fn main(root: nucleus::RootPage) { nucleus::log!("hello"); }
//! ```
#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code)]

#[allow(
    unsafe_code,
    reason = "the one module with unsafe code: trap, start code, heap, root page"
)]
pub mod call;

pub mod log;
pub mod memory;
pub mod message;

pub use abi::{self, Error, Rights};
pub use call::{entry::RootPage, heap::Heap};
