//! Text names: what turns `tools/hello` into a capability.
//!
//! The system below knows addresses only. A *directory* is an ordinary object whose bytes map names
//! to capabilities; a *Clist* is one whose bytes are a sorted array of capabilities. Both formats are
//! specified in `docs/spec/directory-format.md` and read and written here, in the target's programs
//! and in the host tool alike.
//!
//! * [`directory`]: lookup, insert, replace and remove over a byte slice.
//! * [`clist`]: the same for Clists.
//! * [`act`]: names and their objects changed together, in orders that a power cut cannot spoil.
//! * [`path`]: cutting a text path into names; following it needs capabilities and is the caller's.
//!
//! Bytes are never trusted: whoever may write the object may have put anything there. Nothing here
//! panics, and every change leaves the object meaningful after each single store, because the power
//! may fail, and a checkpoint may be taken, between any two.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod path;

pub mod directory;

pub mod clist;

pub mod act;

mod bytes;

pub use directory::{Directory, DirectoryView, Entry, Error, Kind};
pub use path::{NAME_BYTES, Path, PathError, Quoted, check_name};

/// The name, in the root directory, of the object to which the first shell writes the system's log.
pub const SYSTEM_LOG: &str = "system-log";
