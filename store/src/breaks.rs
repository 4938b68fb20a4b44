//! Switches that break the invariants one by one.
//!
//! A test that never fails proves nothing. With the feature `break-invariants` each invariant can be
//! switched off at run time, and the simulator must notice. Without it every switch is constantly off.

/// The invariants of the design, by number.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Invariant {
    /// 1: a block reachable from the current or the previous root is never reused.
    NoReuse,
    /// 2: a flush stands before the superblock.
    FlushFirst,
    /// 3: the last record is believed only if its pages have the checksums it states.
    DataChecksums,
    /// 4: a record is believed only if generation, nonce and chain are right.
    Chain,
    /// 5: blocks named by a live record stay pinned until the next checkpoint.
    Pins,
    /// 6: after recovery a new generation is committed before a sync is accepted.
    CommitAfterRecovery,
    /// 7: a sync that goes ahead of a checkpoint has its record in the journals of both generations.
    BothJournals,
    /// 8: what a sync needs of the checkpoint that it goes ahead of is in its record.
    Carried,
    /// 9: no generation names a block that was taken ahead of it.
    Unnamed,
    /// 10: a record that is ahead of its superblock proves no generation.
    AheadIsNoProof,
    /// 11: syncs that do not go ahead after all begin their record anew.
    BegunAnew,
}

#[cfg(any(test, feature = "break-invariants"))]
impl Invariant {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::NoReuse,
        Self::FlushFirst,
        Self::DataChecksums,
        Self::Chain,
        Self::Pins,
        Self::CommitAfterRecovery,
        Self::BothJournals,
        Self::Carried,
        Self::Unnamed,
        Self::AheadIsNoProof,
        Self::BegunAnew,
    ];
}

/// Which invariant is off, if any.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct Breaks {
    #[cfg(any(test, feature = "break-invariants"))]
    off: Option<Invariant>,
}

impl Breaks {
    /// Everything holds.
    pub const NONE: Self = Self {
        #[cfg(any(test, feature = "break-invariants"))]
        off: None,
    };

    /// Switches one invariant off.
    #[cfg(any(test, feature = "break-invariants"))]
    pub const fn without(invariant: Invariant) -> Self {
        Self { off: Some(invariant) }
    }

    /// Whether `invariant` is kept.
    #[cfg(any(test, feature = "break-invariants"))]
    pub(crate) fn keeps(self, invariant: Invariant) -> bool {
        self.off != Some(invariant)
    }

    /// Whether `invariant` is kept: always.
    #[cfg(not(any(test, feature = "break-invariants")))]
    #[allow(clippy::unused_self, reason = "the same call in both builds")]
    pub(crate) fn keeps(self, _invariant: Invariant) -> bool {
        true
    }
}
