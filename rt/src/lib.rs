//! The runtime of Gondwana's programs.
//!
//! A program is a static-PIE image that runs at whatever address its clone was given: [`call`]
//! holds the start code that relocates it and the stubs of the system calls, [`object`] everything
//! that looks at memory by address (objects, persistent pointers, the heap). These two are the only
//! modules with unsafe code; the rest, and every program, is safe Rust over them.
//!
//! A newcomer needs [`entry!`], [`println!`], [`Directory`] (names), [`Object`] (memory that
//! outlives the program) and [`Ptr`] (a pointer that may be stored in an object: it means the same
//! to everyone, today and after the power has failed). Then [`task`], [`thread`], [`sync`], and
//! [`pdx`] for protected procedures, [`module`] for libraries that stand once for everybody.
//!
//! On the host the crate builds too, so that the pure parts of programs are tested there.
#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code)]

extern crate alloc;

#[allow(unsafe_code, reason = "the system-call module: stubs and start code")]
pub mod call;

#[allow(unsafe_code, reason = "the object module: memory by address")]
pub mod object;

pub mod error;

pub mod arguments;
pub mod console;

pub mod clist;
pub mod directory;

pub mod module;
pub mod pdx;
pub mod report;
pub mod sync;
pub mod system;
pub mod task;
pub mod thread;
pub mod time;

pub use abi::{self, Rights};
pub use call::entry::exit;
pub use clist::Clist;
pub use directory::{Directory, Kind};
pub use error::{Error, Result};
pub use names;
pub use object::{Cell, Object, Persist, Plain, Ptr, Region};
