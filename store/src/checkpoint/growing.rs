//! A checkpoint that makes the store larger (`growth.rs`).
//!
//! Its generation has the new size. Where the bitmaps need more blocks they go to their new place, all of them, and the generation before keeps its own. What is new is used
//! when that generation is durable, and not before; a checkpoint that fails leaves the old size.

use super::{Checkpoint, Step};
use crate::allocation::Growth;
use crate::geometry::Geometry;
use crate::heap::NoHeap;
use crate::store::{COST_BLOCK, Store};

/// The cost of finding a piece of heap for a larger store, and of taking a group of new blocks in. Both are bounds: a piece takes some 6,000 instructions at most
/// (the table of 64 GiB, the rows of a region of 16 TiB), a group 8,500. Each begins where a block could be written, and an event stays below 20,000.
const COST_ROOM: u64 = 12_000;
const COST_GROUP: u64 = 12_000;

impl Checkpoint {
    /// Takes over what is to be done about the size.
    pub(crate) fn grow(&mut self, growing: Option<Growth>) {
        self.growing = growing;
    }

    /// The layout of the generation that is being made.
    pub(super) fn geometry(&self, store: &Store) -> Geometry {
        self.growing.as_ref().map_or(store.geometry, |growth| growth.geometry)
    }

    /// Finds the heap for a larger store. Without, the store keeps its size.
    pub(super) fn make_room(&mut self, store: &mut Store) -> Step {
        while let Some(growth) = &mut self.growing {
            if !store.may_go_on(COST_BLOCK) {
                return Step::Waiting;
            }
            store.spend(COST_ROOM);
            match store.allocation.make_room(growth) {
                Ok(true) => break,
                Ok(false) => {}
                Err(NoHeap) => self.growing = None,
            }
        }
        Step::Complete
    }

    /// The generation is durable, and with it the size.
    pub(super) fn commit_growth(&self, store: &mut Store) {
        if let Some(growth) = &self.growing {
            store.geometry = growth.geometry;
            store.allocation.grow(growth);
        }
    }

    /// Takes new blocks in; tells whether there may be more.
    pub(super) fn grow_some(&mut self, store: &mut Store) -> bool {
        let Some(growth) = &mut self.growing else {
            return false;
        };
        if store.may_go_on(COST_BLOCK) {
            store.spend(COST_GROUP);
            if !store.allocation.grow_some(growth) {
                self.growing = None;
                return false;
            }
        }
        true
    }
}
