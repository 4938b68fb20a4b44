//! Stable storage, and those who wait for it: checkpoints, freezing, syncs, snapshots.

pub mod checkpoint;
pub mod durable;
pub mod freeze;
mod keeping;
mod snapshots;
