//! Relief: a checkpoint that has no frame left gives up map nodes.
//!
//! First it waits until nothing is under way, then it writes the dirty nodes before their turn, then it gives up all of them, a few in each event:
//! there are as many as memory holds. Between two events the maps are whole: a node that is in memory is as it is on the disk, and one
//! that is not is read from there.

use super::{Checkpoint, Phase, Step};
use crate::event::Failure;
use crate::settle::Settling;
use crate::store::Store;
use crate::world::World;

/// The cost of giving up a map node.
const COST_GIVEN_UP: u64 = 1_600;

/// How nodes are being given up for want of frames.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Relief {
    None,
    /// Until nothing is under way.
    Quiet,
    /// They are written.
    Nodes,
    /// They are given up.
    Frames,
}

/// How far a checkpoint is: what changes with everything that it gets done.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) struct Position {
    phase: Phase,
    pages: usize,
    settling: Settling,
    left: usize,
    places: usize,
    free: u64,
}

impl Checkpoint {
    /// Whether memory may come from map nodes, and something was done since that was tried last.
    pub(super) fn may_relieve(&mut self, store: &Store) -> bool {
        let position = Position {
            phase: self.phase,
            pages: self.written,
            settling: self.settling,
            left: store.settling.count() + store.doomed.count() + self.begun_parts + self.bitmap + self.index,
            places: store.ahead.count(),
            free: store.allocation.free_blocks() + store.allocation.held_blocks(),
        };
        self.writer.narrow = true;
        self.relieved_at.replace(position) != Some(position) && (store.maps.len() > 0 || store.is_loading())
    }

    /// Waits until nothing is under way that changes nodes.
    pub(super) fn quiet_for_relief(&self, store: &Store) -> Step {
        if store.is_loading() {
            Step::Waiting
        } else {
            self.when_quiet()
        }
    }

    /// No frame is left: writes the dirty nodes to the disk before their turn. Until the commit nothing durable leads there.
    pub(super) fn write_for_relief(&mut self, store: &mut Store, world: &mut impl World) -> Result<Step, Failure> {
        if self.phase < Phase::Nodes && matches!(self.write_nodes(store, world)?, Step::Waiting) || self.outstanding > 0
        {
            return Ok(Step::Waiting);
        }
        self.node = None;
        store.maps.release_arrived();
        Ok(Step::Complete)
    }

    /// Gives up all nodes, now that they are as they are on the disk, as far as the budget reaches. Those that are needed again are read again:
    /// reads beside may need one before all have gone, and then it stays for them. No node is looked at twice, so this ends.
    pub(super) fn relieve(&mut self, store: &mut Store, world: &mut impl World) -> Step {
        while store.may_go_on(COST_GIVEN_UP) {
            let Some(node) = store.maps.give_up(&mut store.io.lender(world), self.node) else {
                self.node = None;
                self.writer.unblock();
                return Step::Complete;
            };
            store.spend(COST_GIVEN_UP);
            self.node = Some(node);
        }
        Step::Waiting
    }
}
