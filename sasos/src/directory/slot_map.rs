//! Which object a slot belongs to: a two-level table over all slot numbers of the address space.
//!
//! A stretch of sixteen gigabytes that belongs to one object, or to none, takes one entry; others
//! have a table of their own while anything is in it.

use alloc::vec::Vec;

use abi::{
    Error,
    address::{SLOT, USER_END},
};

use crate::containers::filled;

const NONE: u32 = u32::MAX;

/// Slot numbers in a second-level table.
pub(crate) const REACH: u64 = 8192;

/// Whose a stretch of [`REACH`] slots is.
enum Stretch {
    Free,
    Whole(u32),
    Mixed { owners: Vec<u32>, used: u32 },
}

/// Slot numbers to objects.
pub(crate) struct SlotMap {
    stretches: Vec<Stretch>,
}

impl SlotMap {
    pub(crate) fn new() -> Self {
        Self {
            stretches: (0..(USER_END / SLOT).div_ceil(REACH)).map(|_| Stretch::Free).collect(),
        }
    }

    /// Whose a slot is.
    #[inline]
    pub(crate) fn get(&self, slot: u64) -> Option<u32> {
        match self.stretches.get((slot / REACH) as usize)? {
            Stretch::Free => None,
            Stretch::Whole(owner) => Some(*owner),
            Stretch::Mixed { owners, .. } => Some(owners[(slot % REACH) as usize]).filter(|&owner| owner != NONE),
        }
    }

    /// Whose a slot is, and a slot behind it up to which nothing changes: what is behind the slot itself in a table, the
    /// end of the stretch elsewhere. None behind the last one.
    pub(crate) fn run(&self, slot: u64) -> Option<(u64, Option<u32>)> {
        let end = (slot / REACH + 1) * REACH;
        Some(match self.stretches.get((slot / REACH) as usize)? {
            Stretch::Free => (end, None),
            Stretch::Whole(owner) => (end, Some(*owner)),
            Stretch::Mixed { .. } => (slot + 1, self.get(slot)),
        })
    }

    /// Gives slots to an owner, or to none. They all had the other state before.
    ///
    /// # Errors
    /// [`Error::NoMemory`]: nothing has changed.
    pub(crate) fn set(&mut self, first: u64, count: u64, owner: Option<u32>) -> Result<(), Error> {
        // Most objects have one slot, in a stretch that has a table and keeps it.
        if count == 1
            && let Some(Stretch::Mixed { owners, used }) = self.stretches.get_mut((first / REACH) as usize)
            && (owner.is_some() || *used > 1)
        {
            owners[(first % REACH) as usize] = owner.unwrap_or(NONE);
            *used = if owner.is_some() { *used + 1 } else { *used - 1 };
            return Ok(());
        }
        let end = first + count;
        let [head, tail] = [first, end - 1].map(|slot| (slot / REACH) as usize);
        // Only the first and the last stretch can be parted.
        if !first.is_multiple_of(REACH) || end < (head as u64 + 1) * REACH {
            self.part(head)?;
        }
        if tail != head && !end.is_multiple_of(REACH) {
            self.part(tail)?;
        }
        let mut slot = first;
        while slot < end {
            let stretch_end = (slot / REACH + 1) * REACH;
            let part_end = end.min(stretch_end);
            if let Some(stretch) = self.stretches.get_mut((slot / REACH) as usize) {
                stretch.set(slot % REACH, part_end - slot, owner);
            }
            slot = part_end;
        }
        Ok(())
    }

    #[inline]
    fn part(&mut self, stretch: usize) -> Result<(), Error> {
        match self.stretches.get_mut(stretch) {
            None | Some(Stretch::Mixed { .. }) => Ok(()),
            Some(stretch) => stretch.part(),
        }
    }
}

impl Stretch {
    /// Gives it a table of its own.
    #[cold]
    fn part(&mut self) -> Result<(), Error> {
        let (fill, used) = match self {
            Stretch::Free => (NONE, 0),
            Stretch::Whole(owner) => (*owner, REACH as u32),
            Stretch::Mixed { .. } => return Ok(()),
        };
        *self = Stretch::Mixed {
            owners: filled(fill, REACH as usize)?,
            used,
        };
        Ok(())
    }

    fn set(&mut self, first: u64, count: u64, owner: Option<u32>) {
        if count == REACH {
            *self = owner.map_or(Stretch::Free, Stretch::Whole);
            return;
        }
        let Stretch::Mixed { owners, used } = self else { return };
        owners[first as usize..(first + count) as usize].fill(owner.unwrap_or(NONE));
        if owner.is_some() {
            *used += count as u32;
        } else {
            *used = used.saturating_sub(count as u32);
            if *used == 0 {
                *self = Stretch::Free;
            }
        }
    }
}

impl SlotMap {
    /// Whether no slot belongs to anybody and no table is left over.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.stretches.iter().all(|stretch| matches!(stretch, Stretch::Free))
    }
}
