//! What is on stable storage, and who waits for it: checkpoints, freezing, syncs.

pub mod checkpoint;
pub mod durable;
pub mod freeze;
