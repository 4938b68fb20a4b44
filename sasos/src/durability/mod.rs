//! Stable storage, and those who wait for it: checkpoints, freezing, syncs, snapshots, the scrub.

pub mod checkpoint;
pub mod durable;
pub mod freeze;
mod keeping;
pub(crate) mod scrubbing;
mod snapshots;
