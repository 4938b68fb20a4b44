//! The heap, asked before it is used: what a disk or a task can make large must not end the system.

use crate::event::{Failure, MountError};
use alloc::vec::Vec;

/// No heap.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct NoHeap;

impl From<abi::Error> for NoHeap {
    fn from(_: abi::Error) -> Self {
        Self
    }
}

impl From<NoHeap> for Failure {
    fn from(_: NoHeap) -> Self {
        Self::Memory
    }
}

impl From<abi::Error> for Failure {
    fn from(_: abi::Error) -> Self {
        Self::Memory
    }
}

impl From<NoHeap> for MountError {
    fn from(_: NoHeap) -> Self {
        Self::Memory
    }
}

impl From<abi::Error> for MountError {
    fn from(_: abi::Error) -> Self {
        Self::Memory
    }
}

/// So many zeroes.
pub(crate) fn zeroed(count: u64) -> Result<Vec<u64>, NoHeap> {
    let count = usize::try_from(count).map_err(|_| NoHeap)?;
    let mut words = with_room(count)?;
    words.resize(count, 0);
    Ok(words)
}

/// An empty vector with room for so many.
pub(crate) fn with_room<T>(count: usize) -> Result<Vec<T>, NoHeap> {
    let mut vector = Vec::new();
    vector.try_reserve_exact(count).map_err(|_| NoHeap)?;
    Ok(vector)
}
