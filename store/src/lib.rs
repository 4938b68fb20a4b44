//! The store: persistence for one address space.
//!
//! A disk of 4 KiB blocks holds objects, which are ranges of pages at fixed addresses. Nothing that
//! is reachable is ever overwritten: pages, page maps, the object table and the allocation
//! bitmap go to new blocks, and a new superblock, alternating between two places, makes them the
//! state (a *checkpoint*). Between checkpoints a *sync* makes single pages and rows durable by
//! a journal record that says where they went. Every block's checksum stands in its parent.
//!
//! The crate is pure: it reaches memory, disk and chance through [`World`], never waits outside
//! [`Store::format`], [`Store::mount`] and [`Store::verify`], and never panics whatever a disk holds.
//! `docs/spec/store-format.md` is the format; the modules below stand in reading order.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod world;

mod budget;
mod event;
mod loss;

mod breaks;
mod bytes;
mod checksum;

pub mod containers;
mod heap;

mod copies;
mod geometry;
mod sums;
mod superblock;

mod allocation;
mod bitmaps;
mod space;

pub(crate) mod snapshots;

mod record;
mod table;
mod table_format;
mod table_loading;

mod map;
mod pending;
mod prepared;

mod io;
mod journal;
mod recording;

mod jobs;
mod store;

mod addresses;
mod handover;
mod loading;
mod objects;
mod pages;
mod rows;

mod settle;

mod writing;

mod checkpoint;
mod sync;

mod ahead;

mod blocking;
mod format;
mod mount;
mod recovery;
mod verify;

mod growth;

mod difference;
mod stream;

mod repair;
mod salvage;

mod scrub;

#[cfg(test)]
#[path = "../tests/plain/mod.rs"]
mod plain;

#[cfg(any(test, feature = "break-invariants"))]
pub use breaks::{Breaks, Invariant};
pub use budget::Budget;
pub use event::{
    BadPage, BadRows, CheckpointKind, DeleteError, DirtyPage, Event, Failure, FormatError, FormatOptions, Leaves,
    MountError, MountMode, MountReport, NoRoom, NotBegun, PageFlags, PageLookup, PutError, ReadStart, Stats, Structure,
    Tail, TailReason, Ticket,
};
pub use geometry::{BLOCKS_MAX, BLOCKS_MIN, BadSize};
pub use growth::GrowError;
pub use loss::Loss;
pub use map::{FANOUT, Look, levels_for};
pub use objects::Objects;
pub use record::{BIRTH_END, ObjectRecord, PdxList, PdxRecord, ROW_ENDS};
pub use repair::{Plan, Step};
pub use scrub::ScrubReport;
pub use snapshots::{Identity, RollBackError, SNAPSHOTS_MAX, Snapshot, SnapshotError, SnapshotName};
pub use store::Store;
pub use stream::{Named, Source, StreamError, StreamHead, StreamItem, StreamReader, StreamWriter};
pub use sums::{ACCOUNT_PLACE_BITS, Sums, is_account_of_program};
pub use table::{Absent, ROW_HEAP_BYTES};
pub use table_format::LEAF_ROWS_MAX;
pub use table_loading::Seen;
pub use verify::{Fault, Finding, Verification};
pub use world::{BLOCK, Disk, DiskError, Frame, Operation, Pages, QueueFull, Random, Request, World};
