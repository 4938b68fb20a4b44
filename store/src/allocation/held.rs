//! What snapshots hold. Such blocks are busy; one that is set free stays so, and waits in no list: it is noted as free with the last
//! snapshot that holds it.
//!
//! The blocks that tell of snapshots are held and not used: no table leads to them.

use super::{Allocation, BITS, BLOCK, hold, words};
use crate::heap::NoHeap;

impl Allocation {
    /// Whether a snapshot holds a block.
    pub(crate) fn is_held(&self, block: u64) -> bool {
        self.geometry.is_data(block) && self.groups.is_held(block - self.geometry.data_start())
    }

    /// Groups that are there.
    pub(crate) fn groups_there(&self) -> u64 {
        self.groups.count_there()
    }

    /// The last group before one of which a block may be used.
    pub(crate) fn last_there(&self, below: usize) -> Option<usize> {
        self.groups.last_there(below)
    }

    /// The words of the held blocks of a group, none if there are none.
    pub(crate) fn held_words(&self, group: usize) -> &[u64] {
        self.groups.held_words(group)
    }

    /// Blocks that only snapshots hold.
    pub(crate) fn only_held(&self) -> u64 {
        self.groups.only_held()
    }

    /// Holds what a bitmap block of a snapshot names; `false` if it names blocks past the end.
    pub(crate) fn hold_group(&mut self, group: usize, bytes: &[u8; BLOCK]) -> Result<bool, NoHeap> {
        self.groups.hold(group, words(bytes))
    }

    /// The same for words.
    pub(crate) fn hold_words(&mut self, group: usize, words: &[u64]) -> Result<bool, NoHeap> {
        self.groups.hold(group, words.iter().copied())
    }

    /// Clears the bits past the end among the words of a group.
    pub(crate) fn mask(&self, group: usize, words: &mut [u64]) {
        self.groups.mask(group, words);
    }

    /// Holds all blocks of a group: nobody knows which ones a snapshot holds.
    pub(crate) fn hold_all(&mut self, group: usize) -> Result<(), NoHeap> {
        self.groups.hold_all(group)?;
        self.unknown.insert(group, ())?;
        Ok(())
    }

    /// Whether a snapshot is known to hold a block: not where all of its group is held because nobody knows.
    pub(crate) fn is_surely_held(&self, block: u64) -> bool {
        self.is_held(block) && !self.unknown.has(((block - self.geometry.data_start()) / BITS) as usize)
    }

    /// Holds a block that tells of a snapshot.
    pub(crate) fn hold_block(&mut self, block: u64) -> Result<(), NoHeap> {
        if self.geometry.is_data(block) {
            let bit = block - self.geometry.data_start();
            self.groups.open_held((bit / BITS) as usize)?;
            self.groups.put_held(bit, true);
            self.groups.put_busy(bit, true);
        }
        Ok(())
    }

    /// Finds room for what a snapshot will hold of a group.
    pub(crate) fn expect_held(&mut self, group: usize) -> Result<(), NoHeap> {
        self.groups.open_held(group)
    }

    /// Holds the used blocks of a group, for which there is room.
    pub(crate) fn hold_used(&mut self, group: usize) {
        self.groups.hold_used(group);
    }

    /// A block that was taken tells of a snapshot: it is held, and not used.
    pub(crate) fn make_held(&mut self, block: u64) -> Result<(), NoHeap> {
        let bit = block - self.geometry.data_start();
        self.groups.open_held((bit / BITS) as usize)?;
        self.mark(bit, false);
        self.groups.put_held(bit, true);
        Ok(())
    }

    /// Takes back one that nothing durable names.
    pub(crate) fn release_held(&mut self, block: u64) {
        self.groups.put_held(block - self.geometry.data_start(), false);
        self.release(block);
    }

    /// A block is no longer held. It may be used again when that is durable for two generations, unless it is used.
    pub(crate) fn free_held(&mut self, block: u64) {
        if !self.geometry.is_data(block) {
            return;
        }
        let bit = block - self.geometry.data_start();
        if self.groups.put_held(bit, false) && !self.groups.is_used(bit) {
            hold(&mut self.freed_now, block);
        }
    }

    /// Holds for two generations what the generation before had of snapshots: a block that was held then.
    pub(crate) fn hold_block_before(&mut self, block: u64) -> Result<(), NoHeap> {
        if self.geometry.is_data(block) {
            let bit = block - self.geometry.data_start();
            self.groups.open((bit / BITS) as usize)?;
            if self.groups.put_busy(bit, true) {
                hold(&mut self.freed_before, block);
            }
        }
        Ok(())
    }
}
