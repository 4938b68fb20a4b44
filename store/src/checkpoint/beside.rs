//! Syncs that go ahead of a checkpoint: when they may begin, and what their records carry for it.

use super::relief::Relief;
use super::{Checkpoint, Phase};
use crate::event::CheckpointKind;

impl Checkpoint {
    /// Whether it makes a generation.
    pub(crate) fn makes_generation(&self) -> bool {
        self.recorded.is_none() && self.kind != CheckpointKind::Shutdown
    }

    /// Whether syncs may begin beside it: the changes of its maps are made, and its superblock is not stable yet.
    pub(crate) fn takes_syncs(&self) -> bool {
        let is_on_its_way = (Phase::Doom..Phase::Second).contains(&self.phase);
        self.makes_generation() && is_on_its_way && self.failure.is_none() && self.relief == Relief::None
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
