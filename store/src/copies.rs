//! The four copies of superblocks: which is written first, and which may bear a generation that must not come back.
//!
//! A checkpoint writes over the bitmap of three generations ago, whose number another superblock may share that could not be read. So a copy
//! that may bear the number of the next generation, or a later one, is wiped and flushed before anything of that generation is written.

use crate::geometry::Geometry;

/// Copies on a disk, in blocks from 0 on.
pub(crate) const COPIES: u64 = 4;

/// The state of the copies of a mounted store.
#[derive(Default)]
pub(crate) struct Copies {
    /// Which copy is written first, by the parity of the generation.
    first: [u64; 2],
    /// Whether a copy may bear a generation that is not the store's, by block.
    doubtful: [bool; COPIES as usize],
    /// Whether a copy is known to be unreadable, by block.
    bad: [bool; COPIES as usize],
    /// The block that the superblock being written goes to first.
    begun: u64,
    /// Generations that are still to be made until all copies that a look has found unreadable are written anew.
    wanted: u8,
    /// Requests under way for the second copy of the last superblock.
    pub(crate) under_way: usize,
}

impl Copies {
    /// The copy in a block is unreadable: in its pair it is written first, while the other one stands.
    pub(crate) fn note_bad(&mut self, block: u64) {
        self.first[(block / 2 % 2) as usize] = block % 2;
        self.bad[(block % COPIES) as usize] = true;
    }

    /// A copy is as it should be.
    pub(crate) fn note_good(&mut self, block: u64) {
        self.bad[(block % COPIES) as usize] = false;
    }

    /// Whether it is known that a copy is unreadable.
    pub(crate) fn is_bad(&self, block: u64) -> bool {
        self.bad[(block % COPIES) as usize]
    }

    /// An unreadable copy is to be written anew: the pair of this generation has its turn with the one after the next.
    pub(crate) fn want(&mut self, block: u64, generation: u64) {
        let generations = if block / 2 == generation % 2 { 2 } else { 1 };
        self.wanted = self.wanted.max(generations);
    }

    /// Whether a generation is wanted for that.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted > 0
    }

    /// The block to which the superblock of a generation is written first.
    pub(crate) fn begin(&mut self, generation: u64) -> u64 {
        let [block, _] = self.blocks(generation);
        self.begun = block;
        block
    }

    /// That one is stable, and so is the generation.
    pub(crate) fn first_is_written(&mut self) {
        self.note_good(self.begun);
        self.wanted = self.wanted.saturating_sub(1);
    }

    /// Whether a block may bear a superblock that nothing may build on.
    pub(crate) fn is_doubtful(&self, block: u64) -> bool {
        self.doubtful[(block % COPIES) as usize]
    }

    /// The blocks of a generation's superblock, in the order in which they are written.
    pub(crate) fn blocks(&self, generation: u64) -> [u64; 2] {
        let first = self.first[(generation % 2) as usize];
        [first, 1 - first].map(|copy| Geometry::superblock(generation, copy))
    }

    /// A block may bear a superblock that nothing may build on.
    pub(crate) fn doubt(&mut self, block: u64) {
        self.doubtful[(block % COPIES) as usize] = true;
    }

    /// The blocks to be wiped.
    pub(crate) fn doubtful(&self) -> impl Iterator<Item = u64> + use<> {
        (0..).zip(self.doubtful).filter_map(|(block, is)| is.then_some(block))
    }

    /// They are wiped, and that is stable.
    pub(crate) fn trust_all(&mut self) {
        self.doubtful = Default::default();
    }
}
