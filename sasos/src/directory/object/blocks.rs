//! What is charged for a kept object's pages on the disk, and for the nodes of its map above them.
//!
//! The nodes are counted from above: each part of the map in which a page has a block, or may have a limit of its own, costs a node on every level, though
//! such nodes share those above them (decision 0085).

use abi::address::{PAGE, SLOT};
use store::{FANOUT, Store, levels_for};

use super::Object;

impl Object {
    /// Blocks that are charged for so many of its pages in so many parts of its map.
    #[inline]
    pub(crate) fn with_nodes(&self, blocks: u64, parts: u64) -> u64 {
        blocks + parts * u64::from(self.levels)
    }

    /// The levels that are charged when the object has so many pages. While nothing is charged they stay as they are: [`Object::settle_levels`] sets them
    /// when the first block or limit comes.
    pub(crate) fn levels_at(&self, pages: u64) -> u8 {
        if self.pays_for_map() {
            levels_for(pages).max(self.levels)
        } else {
            self.levels
        }
    }

    /// A block or a limit comes. If it is the first, the map has the levels of the object's length, or those that it still has in the store.
    #[inline]
    pub(crate) fn settle_levels(&mut self, store: &Store) {
        if !self.pays_for_map() {
            let before = store
                .map_levels(self.base())
                .map_or(0, |levels| levels.max(self.levels));
            self.levels = levels_for(self.record.pages).max(before);
        }
    }

    /// Whether anything is charged for its map.
    fn pays_for_map(&self) -> bool {
        self.blocks > 0 || self.limited > 0
    }

    /// Sets the levels that are charged. The caller has charged the difference.
    pub(crate) const fn set_levels(&mut self, levels: u8) {
        self.levels = levels;
    }

    /// All blocks of the disk that are charged for it.
    pub(crate) fn all_blocks(&self) -> u64 {
        self.with_nodes(self.blocks, self.parts + self.limited)
    }

    /// How many pages the first part of its map is from the start of a slot.
    #[inline]
    pub(crate) fn part_colour(&self) -> usize {
        (self.base() % SLOT / PAGE % FANOUT) as usize
    }
}
