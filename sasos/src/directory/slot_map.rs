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
struct Stretch {
    /// Of each slot, if they are not all of one owner.
    owners: Vec<u32>,
    /// Of all of them else.
    owner: u32,
    /// Slots in the table that have an owner.
    used: u32,
}

/// Slot numbers to objects.
pub(crate) struct SlotMap {
    stretches: Vec<Stretch>,
}

impl SlotMap {
    pub(crate) fn new() -> Self {
        Self {
            stretches: (0..(USER_END / SLOT).div_ceil(REACH))
                .map(|_| Stretch::of_one(NONE))
                .collect(),
        }
    }

    /// Whose a slot is.
    #[inline]
    pub(crate) fn get(&self, slot: u64) -> Option<u32> {
        let stretch = self.stretches.get((slot / REACH) as usize)?;
        let owner = stretch.owners.get((slot % REACH) as usize);
        Some(*owner.unwrap_or(&stretch.owner)).filter(|&owner| owner != NONE)
    }

    /// Whose a slot is, and a slot behind it up to which nothing changes: what is behind the slot itself in a table, the
    /// end of the stretch elsewhere. None behind the last one.
    pub(crate) fn run(&self, slot: u64) -> Option<(u64, Option<u32>)> {
        let stretch = self.stretches.get((slot / REACH) as usize)?;
        let next = if stretch.owners.is_empty() {
            (slot / REACH + 1) * REACH
        } else {
            slot + 1
        };
        Some((next, self.get(slot)))
    }

    /// Gives slots to an owner, or to none. They all had the other state before.
    ///
    /// # Errors
    /// [`Error::NoMemory`]: nothing has changed.
    pub(crate) fn set(&mut self, first: u64, count: u64, owner: Option<u32>) -> Result<(), Error> {
        // Most objects have one slot, in a stretch that has a table and keeps it.
        if count == 1
            && let Some(Stretch { owners, used, .. }) = self.stretches.get_mut((first / REACH) as usize)
            && (owner.is_some() || *used > 1)
            && let Some(place) = owners.get_mut((first % REACH) as usize)
        {
            *place = owner.unwrap_or(NONE);
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
                stretch.set(slot % REACH, part_end - slot, owner.unwrap_or(NONE));
            }
            slot = part_end;
        }
        Ok(())
    }

    /// Sees to it that slots from this one on can be given to nobody without memory: the stretch that this parts has a table.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn expect_end(&mut self, slot: u64) -> Result<(), Error> {
        if slot.is_multiple_of(REACH) {
            return Ok(());
        }
        self.part((slot / REACH) as usize)
    }

    fn part(&mut self, stretch: usize) -> Result<(), Error> {
        self.stretches.get_mut(stretch).map_or(Ok(()), Stretch::part)
    }
}

impl Stretch {
    const fn of_one(owner: u32) -> Self {
        let owners = Vec::new();
        Self { owners, owner, used: 0 }
    }

    /// Gives it a table of its own.
    fn part(&mut self) -> Result<(), Error> {
        if self.owners.is_empty() {
            self.owners = filled(self.owner, REACH as usize)?;
            self.used = if self.owner == NONE { 0 } else { REACH as u32 };
        }
        Ok(())
    }

    fn set(&mut self, first: u64, count: u64, owner: u32) {
        if count == REACH {
            *self = Self::of_one(owner);
            return;
        }
        self.owners[first as usize..(first + count) as usize].fill(owner);
        if owner == NONE {
            self.used -= count as u32;
        } else {
            self.used += count as u32;
        }
        if self.used == 0 {
            *self = Self::of_one(NONE);
        }
    }
}

impl SlotMap {
    /// Whether no slot belongs to anybody and no table is left over.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let free = |stretch: &Stretch| stretch.owners.is_empty() && stretch.owner == NONE;
        self.stretches.iter().all(free)
    }
}
