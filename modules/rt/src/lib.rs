//! The user runtime as a module: the archive that `modules/rt/rt.md` makes a module of. All of it is `rt`, built so
//! that it finds its state from the stack (decision 0066); what it exports stands in `rt/src/call/c.rs`, for who calls
//! it in `rt.h`.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

pub use rt;
