//! Syncs that go ahead of a checkpoint: when they may begin, and what their records carry for it.

use super::relief::Relief;
use super::{Checkpoint, Phase, Step};
use crate::event::CheckpointKind;
use crate::store::{COST_BLOCK, COST_SIPHASH, Store};

/// The event in which a checkpoint writes its superblock.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Turn {
    /// This one, if nothing else was done in it.
    Any,
    /// The one behind that in which it was put off, in any case.
    Next,
}

impl Checkpoint {
    /// Whether it makes a generation.
    pub(crate) fn makes_generation(&self) -> bool {
        self.recorded.is_none() && self.kind != CheckpointKind::Shutdown
    }

    /// Whether syncs may begin beside it: the changes of its maps are made, and its superblock is not stable yet.
    pub(crate) fn takes_syncs(&self) -> bool {
        let is_on_its_way = (Phase::Doom..Phase::Second).contains(&self.phase);
        self.makes_generation()
            && is_on_its_way
            && self.superblock == Turn::Any
            && self.failure.is_none()
            && self.relief == Relief::None
    }

    /// The step before its superblock, which costs as much as an event may. If something else was done in this one it is put off, once: others may do something in each. No
    /// further sync goes ahead meanwhile.
    pub(super) fn when_superblock_may_go(&mut self, store: &mut Store) -> Step {
        let may_go = self.outstanding == 0
            && (core::mem::replace(&mut self.superblock, Turn::Next) == Turn::Next
                || store.may_go_on(COST_BLOCK + COST_SIPHASH));
        if may_go { Step::Complete } else { Step::Waiting }
    }

    /// Whether it does nothing but wait for them.
    pub(crate) fn waits_for_syncs(&self) -> bool {
        self.outstanding == 0 && (self.phase >= Phase::Second || self.failure.is_some())
    }

    /// Whether it makes a change of a row durable.
    pub(crate) fn has_changed(&self, base: u64) -> bool {
        self.changed.has(base)
    }

    /// A record has made that durable.
    pub(crate) fn row_is_carried(&mut self, base: u64) {
        self.changed.remove(base);
    }
}
