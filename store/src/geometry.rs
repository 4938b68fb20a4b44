//! The places of the fixed structures. Everything follows from the number of blocks and the size of a
//! journal region, both in the superblock.
//!
//! ```text
//! 0 1   superblock of even generations, twice        2 3   of odd generations, twice
//! 4     journal of even generations, then of odd ones
//! …     bitmap of generations 0, 1, 2 modulo 3: index blocks, then bitmap blocks
//! …     data
//! ```
//!
//! A store that has grown has its bitmaps among the data, where the disk ended before ([`Geometry::grown`]); what was their place stays unused.

use crate::event::FormatError;
use crate::world::BLOCK;
use core::ops::Range;

/// Bits in a bitmap block.
pub(crate) const BITS: u64 = BLOCK as u64 * 8;
/// Checksums in an index block.
pub(crate) const SUMS: u64 = BLOCK as u64 / 8;
/// Index blocks that a superblock can list.
pub(crate) const INDEX_MAX: u64 = 256;
/// Bitmap regions; a generation writes region `generation % 3`, so that those of the current and
/// the previous generation stay whole.
pub(crate) const BITMAPS: usize = 3;
/// Journal blocks of the largest record.
pub(crate) const RECORD_BLOCKS: u64 = 16;
/// Blocks of the largest journal region: a mount may have to take all of it into memory.
const JOURNAL_MAX: u64 = 1 << 16;
/// The smallest store.
pub const BLOCKS_MIN: u64 = 128;
/// The largest store, 16 TiB.
pub const BLOCKS_MAX: u64 = INDEX_MAX * SUMS * BITS;
/// Blocks before the journal.
const SUPERBLOCKS: u64 = 4;

/// The layout of one store.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct Geometry {
    /// Blocks of the store.
    pub(crate) total: u64,
    /// Blocks of one journal region.
    pub(crate) journal: u64,
    /// The first index block of region 0.
    pub(crate) bitmaps: u64,
    /// The first block of data.
    pub(crate) data: u64,
}

/// Why a store does not grow to a size.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum BadSize {
    /// It has so many blocks already.
    Smaller(u64),
    /// What is new has no room for the bitmaps: this many blocks are the least.
    TooLittle(u64),
    /// A store has this many blocks at most.
    TooLarge(u64),
}

/// Blocks of the three regions of a disk of so many blocks.
fn blocks_of_bitmaps(total: u64) -> u64 {
    let bitmaps = total.div_ceil(BITS);
    BITMAPS as u64 * (bitmaps.div_ceil(SUMS) + bitmaps)
}

impl Geometry {
    /// A layout for a disk of `total` blocks.
    pub(crate) fn new(total: u64, journal: Option<u32>) -> Result<Self, FormatError> {
        if total < BLOCKS_MIN {
            return Err(FormatError::TooSmall(BLOCKS_MIN));
        }
        if total > BLOCKS_MAX {
            return Err(FormatError::TooLarge(BLOCKS_MAX));
        }
        let journal = journal.map_or((total / 64).clamp(16, 1024), u64::from);
        let geometry = Self::usual(total, journal);
        if geometry.is_sound() {
            Ok(geometry)
        } else {
            Err(FormatError::TooSmall(BLOCKS_MIN))
        }
    }

    /// The layout of a store that has never grown, from numbers that may come from a disk.
    pub(crate) fn usual(total: u64, journal: u64) -> Self {
        let bitmaps = journal.saturating_mul(2).saturating_add(SUPERBLOCKS);
        Self {
            total,
            journal,
            bitmaps,
            data: bitmaps.saturating_add(blocks_of_bitmaps(total)),
        }
    }

    /// The layout of the same store with more blocks. All that is there stays where it is, but for the bitmaps: where they need more blocks, they stand
    /// at the beginning of what is new.
    ///
    /// # Errors
    /// [`BadSize`].
    pub(crate) fn grown(&self, total: u64) -> Result<Self, BadSize> {
        if total < self.total {
            return Err(BadSize::Smaller(self.total));
        }
        if total > BLOCKS_MAX {
            return Err(BadSize::TooLarge(BLOCKS_MAX));
        }
        if blocks_of_bitmaps(total) == blocks_of_bitmaps(self.total) {
            return Ok(Self { total, ..*self });
        }
        let bitmaps = self.total;
        if blocks_of_bitmaps(total) >= total - bitmaps {
            // What is new has bitmaps, too, which may need a few more.
            let mut least = bitmaps;
            while least - bitmaps <= blocks_of_bitmaps(least) {
                least = bitmaps + blocks_of_bitmaps(least) + 1;
            }
            return Err(BadSize::TooLittle(least));
        }
        Ok(Self {
            total,
            bitmaps,
            ..*self
        })
    }

    /// Whether the bitmaps stand among the data.
    pub(crate) fn has_grown(&self) -> bool {
        self.bitmaps >= self.data
    }

    /// The blocks of the bitmaps, if they stand among the data.
    pub(crate) fn among_data(&self) -> Range<u64> {
        if self.has_grown() {
            self.bitmaps..self.bitmaps + blocks_of_bitmaps(self.total)
        } else {
            self.data..self.data
        }
    }

    /// Whether blocks are numbered as in another one, which may be larger or smaller.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.journal == other.journal && self.data == other.data
    }

    /// Whether the numbers, which may come from a disk, make a usable store.
    pub(crate) fn is_sound(&self) -> bool {
        let are_numbers = (BLOCKS_MIN..=BLOCKS_MAX).contains(&self.total)
            && (1..=JOURNAL_MAX).contains(&self.journal)
            && self.journal < self.total / 4
            && self.data <= self.total
            && self.bitmaps <= self.total;
        if !are_numbers {
            return false;
        }
        let (behind, bitmaps) = (SUPERBLOCKS + 2 * self.journal, blocks_of_bitmaps(self.total));
        let is_placed = if self.has_grown() {
            self.data >= behind && self.bitmaps + bitmaps <= self.total
        } else {
            self.bitmaps == behind && self.data == self.bitmaps + bitmaps
        };
        is_placed && self.data + BLOCKS_MIN / 4 < self.total
    }

    /// The place of copy 0 or 1 of a generation's superblock.
    pub(crate) fn superblock(generation: u64, copy: u64) -> u64 {
        generation % 2 * 2 + copy
    }

    /// First block of a generation's journal.
    pub(crate) fn journal_start(&self, generation: u64) -> u64 {
        SUPERBLOCKS + generation % 2 * self.journal
    }

    /// Bitmap blocks in one region.
    pub(crate) fn bitmap_blocks(&self) -> u64 {
        self.total.div_ceil(BITS)
    }

    /// Index blocks in one region.
    pub(crate) fn index_blocks(&self) -> u64 {
        self.bitmap_blocks().div_ceil(SUMS)
    }

    /// First index block of a region.
    pub(crate) fn index_start(&self, region: usize) -> u64 {
        self.bitmaps + region as u64 * (self.index_blocks() + self.bitmap_blocks())
    }

    /// First bitmap block of a region.
    pub(crate) fn bitmap_start(&self, region: usize) -> u64 {
        self.index_start(region) + self.index_blocks()
    }

    /// First block of data.
    pub(crate) fn data_start(&self) -> u64 {
        self.data
    }

    /// Whether `block` lies in the data.
    pub(crate) fn is_data(&self, block: u64) -> bool {
        (self.data..self.total).contains(&block) && !self.among_data().contains(&block)
    }

    /// Blocks of data.
    pub(crate) fn data_blocks(&self) -> u64 {
        let bitmaps = self.among_data();
        self.total - self.data - (bitmaps.end - bitmaps.start)
    }
}

/// The bitmap region of a generation.
pub(crate) fn region_of(generation: u64) -> usize {
    (generation % BITMAPS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_has_room_in_memory_however_large_the_disk_is() {
        let with = |journal| Geometry::new(BLOCKS_MAX, Some(journal)).is_ok();
        assert_eq!([0, 1, 1 << 16, (1 << 16) + 1].map(with), [false, true, true, false]);
    }

    #[test]
    fn what_grows_keeps_its_data_where_they_are() {
        for total in [128, 1000, BITS - 1, BITS, BITS + 7, 100 * BITS, SUMS * BITS - 1] {
            let Ok(before) = Geometry::new(total, None) else {
                continue;
            };
            for more in [0, 1, 5, 12, 100, BITS, 9 * BITS + 3, SUMS * BITS, BLOCKS_MAX - total] {
                let after = match before.grown(total + more) {
                    Ok(after) => after,
                    Err(BadSize::TooLittle(least)) => {
                        assert!(least > total + more, "{total} {more} {least}");
                        assert!(before.grown(least - 1).is_err() && before.grown(least).is_ok());
                        continue;
                    }
                    Err(other) => panic!("{total} {more}: {other:?}"),
                };
                assert!(after.is_sound() && after.is_like(&before), "{before:?} {after:?}");
                assert!((before.data..total).all(|block| after.is_data(block)) || total > 2 * BITS);
                for region in 0..BITMAPS {
                    let start = after.index_start(region);
                    assert!(after == before || !after.has_grown() || start >= total, "{after:?}");
                    assert!(!after.is_data(start) && !after.is_data(after.bitmap_start(region)));
                }
                let again = after.grown(after.total + 3 * BITS);
                assert!(again.is_err() || again.is_ok_and(|again| again.is_sound()), "{after:?}");
            }
            assert_eq!(before.grown(total - 1), Err(BadSize::Smaller(total)));
            assert_eq!(before.grown(BLOCKS_MAX + 1), Err(BadSize::TooLarge(BLOCKS_MAX)));
        }
    }
}
