//! Stable storage, and those who wait for it: checkpoints, freezing, syncs, snapshots, the scrub, the size of the disk.

pub mod checkpoint;
pub mod durable;
pub mod freeze;
mod growth;
pub(crate) mod keeping;
pub(crate) mod scrubbing;
mod snapshots;
