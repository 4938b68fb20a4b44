//! The places of the fixed structures. Everything follows from the number of blocks and the size of a
//! journal region, both in the superblock.
//!
//! ```text
//! 0 1   superblock of even generations, twice        2 3   of odd generations, twice
//! 4     journal of even generations, then of odd ones
//! …     bitmap of generations 0, 1, 2 modulo 3: index blocks, then bitmap blocks
//! …     data
//! ```

use crate::event::FormatError;
use crate::world::BLOCK;

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
        let geometry = Self { total, journal };
        if geometry.is_sound() {
            Ok(geometry)
        } else {
            Err(FormatError::TooSmall(BLOCKS_MIN))
        }
    }

    /// Whether the numbers, which may come from a disk, make a usable store.
    pub(crate) fn is_sound(&self) -> bool {
        (BLOCKS_MIN..=BLOCKS_MAX).contains(&self.total)
            && (1..=JOURNAL_MAX).contains(&self.journal)
            && self.journal < self.total / 4
            && self.data_start() + BLOCKS_MIN / 4 < self.total
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
        SUPERBLOCKS + 2 * self.journal + region as u64 * (self.index_blocks() + self.bitmap_blocks())
    }

    /// First bitmap block of a region.
    pub(crate) fn bitmap_start(&self, region: usize) -> u64 {
        self.index_start(region) + self.index_blocks()
    }

    /// First block of data.
    pub(crate) fn data_start(&self) -> u64 {
        self.index_start(BITMAPS)
    }

    /// Whether `block` lies in the data.
    pub(crate) fn is_data(&self, block: u64) -> bool {
        (self.data_start()..self.total).contains(&block)
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
}
