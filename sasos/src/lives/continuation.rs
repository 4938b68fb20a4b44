//! How far a thread's call has got that has begun and is not over.
//!
//! A call that waits, or that has done a piece, is made again. Its state stands here, in the one variant that is its own: so a position
//! belongs to the work it is of, and cannot be taken for that of another call. A position in something that may go names it by its serial
//! number. (A search for a right has a bookmark beside it: that is a cache, and a fault has one, too. See [`crate::protection::search`].)
//!
//! The effect of a power cut on a call follows from its variant ([`Continuation::is_begun_anew`]), for the day when threads are saved.

use abi::Error;
use kcore::ThreadId;

use crate::{calls::sight::Sight, durability::durable::Goal, protection::withdraw::Withdrawal};

/// How far a call has got.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Continuation {
    /// At its beginning.
    #[default]
    None,
    /// `PageFlush`: it has waited for a sync of the same object by somebody else.
    Waited,
    /// It has taken effect, and returns these values when that is on stable storage.
    Durable {
        /// The goal that it waits for.
        goal: Goal,
        /// The values that it returns then.
        values: (u64, u64),
    },
    /// `ObjDelete`, `ObjRetire`: everybody loses the object.
    Delete {
        /// The withdrawal that takes it away.
        withdrawal: Withdrawal,
        /// The address up to which it is emptied.
        at: u64,
    },
    /// `ObjResize` has cut an object short: what it has behind its end goes.
    Cut {
        /// Its base.
        base: u64,
        /// Its serial number.
        serial: u64,
    },
    /// `ObjPasswd`, `ObjCrePdx`: the list of passwords has changed, and everybody loses the object.
    Revoke {
        /// The withdrawal that takes it away.
        withdrawal: Withdrawal,
        /// The password that it returns.
        password: u64,
    },
    /// `ObjClone`: a clone was made that has not all its pages.
    Clone {
        /// Its base.
        base: u64,
        /// Its serial number.
        serial: u64,
        /// The serial number of the source.
        source: u64,
        /// The address in the source where it goes on.
        from: u64,
        /// Whether the store is asked for what is not in memory.
        asks: bool,
    },
    /// `ObjClone` has failed: the clone that it has begun goes.
    CloneFails {
        /// Its base.
        base: u64,
        /// Its serial number.
        serial: u64,
        /// The error that the call returns then.
        error: Error,
    },
    /// `KeepObject`: room on the disk is promised to its pages.
    Keep {
        /// The serial number of the object.
        serial: u64,
        /// The address where it goes on.
        at: u64,
    },
    /// `KeepObject` has failed: what was promised goes back.
    KeepFails {
        /// The serial number of the object.
        serial: u64,
        /// The address where that goes on.
        at: u64,
        /// The error that the call returns then.
        error: Error,
    },
    /// `PageLimit`: the limits of pages change.
    Limits {
        /// The serial number of the object.
        serial: u64,
        /// The address up to which that is done.
        at: u64,
    },
    /// `PageLimit` takes page tables back that have no page, before it sets a guard.
    Guards {
        /// The serial number of the object.
        serial: u64,
        /// The epoch of the withdrawal that takes the object away from those who link these tables, if they were many.
        withdrawn: Option<u64>,
    },
    /// `PageCopy` looks at the pages.
    CopyLooks {
        /// Pages that it has seen.
        seen: u64,
        /// Pages that the target has to be given.
        lacks: u64,
        /// The serial numbers of source and target.
        of: [u64; 2],
    },
    /// `PageCopy` copies.
    Copies {
        /// Pages that it has copied.
        done: u64,
        /// How often it has waited for the disk since it copied one.
        waits: u32,
        /// The serial numbers of source and target.
        of: [u64; 2],
    },
    /// `PageUnMap` looks at the pages of the object with a serial number: those that it has seen.
    UnMapLooks(u64, u64),
    /// `PageUnMap` drops: the object's serial number, and pages that are gone.
    UnMaps(u64, u64),
    /// `ApdInsert`, `ApdDelete`, `ApdFlush`: the change is made, and the domain forgets what it found before.
    ApdForgets {
        /// How often the domain had been drained when this call had drained it.
        until: u64,
    },
    /// `PdxCall`, `TaskCreate`: some of the Clists that it shows were seen; they stand in the record of the thread.
    Shows,
    /// `SystemInfo`, `ThreadInfo`: what the caller may see, and the place in a table where it goes on.
    Report {
        /// How much the caller may see.
        sight: Sight,
        /// The place.
        at: u64,
        /// The domain whose threads it counts, by its serial number, the place of the next thread, and those that were counted.
        counts: (u64, u32, u32),
    },
    /// `SystemControl` waits for the checkpoint with this number before it looks at the caller's right.
    CheckpointForRoom(u64),
    /// `SystemControl` waits for the checkpoint with this number.
    Checkpoint(u64),
    /// `SystemControl` has asked the checkpoint with this number to make or drop a snapshot.
    Snapshot {
        /// The number.
        number: u64,
        /// How that went, once it is over.
        result: Option<Result<(), Error>>,
    },
    /// `SystemControl` has asked the checkpoint with this number to make the store larger.
    Growth {
        /// The number.
        number: u64,
        /// The blocks that it is to have then.
        blocks: u64,
    },
    /// `SemWait` waits for the semaphore at an address, which had this serial number.
    Semaphore(u64, u64),
    /// `AddressWait` waits on the word at an address.
    Address(u64),
    /// `AddressWake` has woken so many whose right is known, and `SemSignal` none, and has looked at so many.
    Wakes(u32, u16),
    /// `ThreadWait` for any child looks for one that was made in the domain it is in.
    ChildLooks {
        /// Whether one lives; unknown while it looks at those that live.
        lives: Option<bool>,
        /// The child where it goes on.
        at: ThreadId,
    },
    /// `ThreadWait`, wanting no report in memory, waits for this child, or with zero for any that was made in the domain it is in.
    Child(ThreadId),
}

impl Continuation {
    /// Whether the call has done all it does, or has failed for good, and only its result is waited for.
    pub(crate) const fn has_taken_effect(&self) -> bool {
        matches!(
            self,
            Self::Durable { .. }
                | Self::Checkpoint(_)
                | Self::Snapshot { .. }
                | Self::Growth { .. }
                | Self::Cut { .. }
                | Self::CloneFails { .. }
        )
    }

    /// Whether the call may be begun anew after a power cut instead of being gone on with: it has changed nothing that is not derived.
    pub const fn is_begun_anew(&self) -> bool {
        match self {
            Self::None
            | Self::Waited
            | Self::Guards { .. }
            | Self::CopyLooks { .. }
            | Self::UnMapLooks(..)
            | Self::Keep { .. }
            | Self::Shows
            | Self::CheckpointForRoom(_)
            | Self::Report { .. }
            | Self::ChildLooks { .. } => true,
            Self::Durable { .. }
            | Self::Delete { .. }
            | Self::Cut { .. }
            | Self::Revoke { .. }
            | Self::Clone { .. }
            | Self::CloneFails { .. }
            | Self::KeepFails { .. }
            | Self::Limits { .. }
            | Self::Copies { .. }
            | Self::UnMaps(..)
            | Self::ApdForgets { .. }
            | Self::Checkpoint(_)
            | Self::Snapshot { .. }
            | Self::Growth { .. }
            | Self::Semaphore(..)
            | Self::Address(_)
            | Self::Wakes(..)
            | Self::Child(_) => false,
        }
    }
}

// Each call that waits or is done with waiting moves one.
const _: () = assert!(size_of::<Continuation>() <= 40);
