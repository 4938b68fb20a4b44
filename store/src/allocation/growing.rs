//! A store that grows while it is mounted, as far as the allocator has part in it.
//!
//! Before the first generation of the new size only heap is found for it, piece by piece. Nothing of what is new is used: a record of the journal that names such a
//! block would make no sense to a mount that finds the old size. When that generation is durable the new blocks come in.

use super::groups::new_words;
use super::{Allocation, BITMAPS, BITS, Geometry, reserved};
use crate::containers::{push, push_reserved};
use crate::heap::NoHeap;
use alloc::vec::Vec;
use core::ops::Range;

/// A growth under way.
pub(crate) struct Growth {
    /// The layout that the store will have.
    pub(crate) geometry: Geometry,
    /// Pieces of heap that were found.
    pieces: usize,
    /// What the groups need in which the bitmaps will stand.
    spare: Vec<Vec<u64>>,
}

/// Where bitmaps stood among the data, before they moved.
#[derive(Default)]
pub(super) struct Retired {
    /// What the generation before needs, which a mount may fall back to.
    needed: Range<u64>,
    /// What none needs any more.
    due: Range<u64>,
}

impl Retired {
    /// Another generation is durable, and what was due is used again.
    pub(super) fn commit(&mut self) {
        self.due = core::mem::take(&mut self.needed);
    }

    /// Blocks that are not used yet.
    pub(super) fn count(&self) -> u64 {
        [&self.needed, &self.due].map(|bits| bits.end - bits.start).iter().sum()
    }

    pub(super) fn is_releasing(&self) -> bool {
        !self.due.is_empty()
    }

    /// The next bit that may be used again.
    pub(super) fn next(&mut self) -> Option<u64> {
        self.due.next()
    }
}

impl Allocation {
    /// Asks the next checkpoint for a store of so many blocks. The newest request counts.
    pub(crate) fn ask_to_grow(&mut self, total: u64) {
        self.wanted = Some(total);
    }

    /// Whether the next checkpoint is to grow.
    pub(crate) fn is_to_grow(&self) -> bool {
        self.wanted.is_some()
    }

    /// The growth that was asked for: a checkpoint begins with it. The checkpoint before may have been another one, so the layout is found out now.
    pub(crate) fn take_growth(&mut self) -> Option<Growth> {
        let geometry = self.geometry.grown(self.wanted.take()?).ok()?;
        if geometry.total == self.geometry.total {
            return None;
        }
        Some(Growth {
            geometry,
            pieces: 0,
            spare: Vec::new(),
        })
    }

    /// Finds a piece of the heap that a larger store needs; tells whether all is there. What was found stays where the next piece is refused: 100 KiB at most, for 16 TiB.
    pub(crate) fn make_room(&mut self, growth: &mut Growth) -> Result<bool, NoHeap> {
        let geometry = growth.geometry;
        let moves = geometry.bitmaps != self.geometry.bitmaps;
        let groups = (geometry.total - geometry.data_start()).div_ceil(BITS);
        match growth.pieces {
            table @ 0..4 => self.groups.make_room(table, groups)?,
            at @ 4..7 => {
                let region = &mut self.regions[at - 4];
                region.stale.extend(geometry.bitmap_blocks(), 0)?;
                let more = (geometry.index_blocks() as usize).saturating_sub(region.index.len());
                region.index.try_reserve_exact(more).map_err(|_| NoHeap)?;
            }
            _ if !moves => return Ok(true),
            // In their new place the regions have nothing yet.
            at @ 7..10 => self.restale(at - 7),
            at => {
                let bitmaps = reserved(&geometry);
                let group = bitmaps.start / BITS + (at - 10) as u64 / 2;
                if group >= bitmaps.end.div_ceil(BITS) {
                    return Ok(true);
                }
                if at.is_multiple_of(2) {
                    self.groups.make_room_above(group as usize)?;
                } else {
                    push(&mut growth.spare, new_words()?)?;
                }
            }
        }
        growth.pieces += 1;
        Ok(false)
    }

    /// The first generation of the new size is durable: the new blocks may [come in](Allocation::grow_some).
    pub(crate) fn grow(&mut self, growth: &Growth) {
        let before = reserved(&self.geometry);
        if growth.geometry.bitmaps != self.geometry.bitmaps {
            self.retired.needed = before;
            self.groups.move_reserved(reserved(&growth.geometry));
        }
        self.geometry = growth.geometry;
        let sums = self.geometry.index_blocks() as usize;
        for region in &mut self.regions {
            (region.index.len()..sums).for_each(|_| push_reserved(&mut region.index, 0));
        }
    }

    /// Takes some of the new blocks in; tells whether there are more.
    pub(crate) fn grow_some(&mut self, growth: &mut Growth) -> bool {
        self.groups.extend(self.blocks(), &mut growth.spare)
    }
}

const _: () = assert!(BITMAPS == 3, "the pieces count the regions");
