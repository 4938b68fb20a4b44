//! More groups: a store grows while it is mounted.
//!
//! The tables become longer first. That changes nothing, for no group behind the last one is asked for, so heap can be refused and what was done stays.
//! Blocks come in afterwards, group by group, and that needs no heap any more.

use super::{AREA, Area, BITS, Groups, SUMS};
use crate::heap::NoHeap;
use alloc::vec::Vec;
use core::ops::Range;

impl Groups {
    /// Has a table long enough for so many groups: the first, second or third row of bits, or else the one of areas.
    pub(in super::super) fn make_room(&mut self, table: usize, groups: u64) -> Result<(), NoHeap> {
        match table {
            0 => self.there.extend(groups, 0),
            1 => self.full.extend(groups, 0),
            2 => self.closed.extend(groups, u64::MAX),
            _ => {
                let areas = groups.div_ceil(SUMS) as usize;
                let more = areas.saturating_sub(self.areas.len());
                self.areas.try_reserve_exact(more).map_err(|_| NoHeap)?;
                self.areas.resize_with(areas.max(self.areas.len()), Area::default);
                Ok(())
            }
        }
    }

    /// Has the table there in which a group stands.
    pub(in super::super) fn make_room_above(&mut self, group: usize) -> Result<(), NoHeap> {
        self.open_area(group / AREA)
    }

    /// The bitmaps stand elsewhere: among blocks that are yet to come in. Where they stood blocks stay busy until somebody clears them.
    pub(in super::super) fn move_reserved(&mut self, to: Range<u64>) {
        self.reserved = to;
    }

    /// Takes blocks in that stand behind the last one, up to `end` or the end of a group; tells whether there are more. A group that has to be there takes
    /// one of the `spare` words; without any, nothing more comes in before the next mount.
    pub(in super::super) fn extend(&mut self, end: u64, spare: &mut Vec<Vec<u64>>) -> bool {
        let from = self.blocks;
        if from >= end {
            return false;
        }
        let group = (from / BITS) as usize;
        let behind = (group as u64 + 1) * BITS;
        // Absent groups are as many as one likes at once, but the last one of before may be there.
        let is_rest = from.is_multiple_of(BITS) && from >= self.reserved.end;
        let to = if is_rest { end } else { behind.min(end) };
        let has_reserved = self.reserved.start < behind && self.reserved.end > from;
        if self.is_there(group) {
            self.blocks = to;
            self.free += to - from;
            self.free -= self.reserve(group);
            let is_full = self.group(group).map(|group| u64::from(group.busy)) == Some(self.size(group));
            self.full.put(group, is_full);
            self.closed.put(group, is_full);
        } else if !has_reserved {
            self.blocks = to;
            self.absent += to - from;
        } else if let Some(words) = spare.pop() {
            self.blocks = to;
            self.absent += to - from;
            self.install(group, words);
        } else {
            return false;
        }
        to < end
    }
}

#[cfg(test)]
impl Groups {
    /// Whether what is counted is what there is.
    pub(in super::super) fn is_consistent(&self) -> bool {
        let mut sums = (0, 0);
        for group in 0..self.count() {
            let size = self.size(group);
            let busy = self.group(group).map(|group| u64::from(group.busy));
            match busy {
                Some(busy) => sums.0 += size - busy,
                None => sums.1 += size,
            }
            let mut bits = [&self.there, &self.full, &self.closed].map(|row| row.next(group) != Some(group));
            if group + 1 == self.count() {
                // Nothing is behind it that is busy.
                bits[0] = self.is_there(group);
            }
            let is_full = busy == Some(size);
            if bits != [busy.is_some(), is_full, is_full || busy.is_none()] {
                return false;
            }
        }
        sums == (self.free, self.absent)
    }
}
