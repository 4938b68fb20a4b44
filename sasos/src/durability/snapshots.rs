//! Snapshots of the running system: somebody asks for one, or to drop one, and the next checkpoint does it.
//!
//! One request is under way at a time; who comes later waits for the end of that checkpoint. The answer stands in the continuation of
//! the call. The store has what was asked for, so a caller who ends meanwhile takes nothing back: the checkpoint does it, and nobody is told.
//!
//! What a snapshot holds is counted for no account: the right that the call needs is the right on the whole disk. Its heap is the store's, at
//! most 64 snapshots and 4 KiB for each 128 MiB of the disk in which something is held; a drop gives it back (decision 0204).
//!
//! Blocks that only a dropped one held are found by the store while nobody wants the disk. They are free two generations later, which nobody else may have a
//! reason to make: the clock asks for these.

use core::fmt;

use abi::{
    Error, Rights,
    address::ROOT_DIRECTORY,
    call::arguments::SystemControl,
    layout::{SnapshotReport, snapshot_bytes, snapshot_words},
};
use kcore::{ThreadId, wait::Key};
use store::{SnapshotError, SnapshotName, Store};

use crate::{
    Answer, Server, Stop, World,
    durability::checkpoint::HELD_MANY,
    lives::budget::Cost,
    lives::continuation::Continuation,
    lives::thread::{Caller, Life},
};

/// The cost of a request, which looks at the names of all snapshots, and at which groups of the disk are in use.
const COST_REQUEST: Cost = Cost::own(6_000);
/// Generations behind which a block is free that was set free before them.
const GENERATIONS: u8 = 2;

/// Who has asked for something about snapshots.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    /// The number of the checkpoint that does it.
    number: u64,
    thread: ThreadId,
    drops: bool,
}

/// The error that a task is told.
const fn refusal(error: SnapshotError) -> Error {
    match error {
        SnapshotError::Exists | SnapshotError::Busy => Error::InUse,
        SnapshotError::Missing => Error::BadAddress,
        SnapshotError::TooMany => Error::TableFull,
        SnapshotError::DiskFull => Error::DiskFull,
        SnapshotError::Memory => Error::NoMemory,
        SnapshotError::Checkpoint | SnapshotError::ReadOnly => Error::DiskError,
    }
}

/// The answer to who has asked, by what the store says of the request, and how the checkpoint went. One that went well may have given the request up.
fn answer_of(outcome: Option<Result<(), SnapshotError>>, checkpoint: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        None | Some(Err(SnapshotError::Checkpoint)) => checkpoint.and(Err(Error::DiskError)),
        Some(outcome) => outcome.map_err(refusal),
    }
}

/// The name in the arguments of a call.
fn name_in(arguments: &SystemControl) -> Option<SnapshotName> {
    let SystemControl {
        argument,
        second,
        third,
        fourth,
        ..
    } = *arguments;
    let (bytes, length) = snapshot_bytes([argument, second, third, fourth]);
    SnapshotName::new(core::str::from_utf8(bytes.get(..length)?).ok()?)
}

impl Server {
    /// `SystemControl`: keeps a snapshot of all as it is at a moment of this call, or drops one.
    pub(crate) fn snapshot_control<W: World>(
        &mut self,
        world: &mut W,
        caller: Caller,
        drops: bool,
        arguments: &SystemControl,
    ) -> Answer {
        if let Some(answer) = self.snapshot_answer(caller) {
            return answer;
        }
        let name = name_in(arguments).ok_or(Error::BadArgument)?;
        self.validate(world, caller.domain, ROOT_DIRECTORY, Rights::D)?;
        if self.checkpoint.asked.is_some() {
            return Err(Stop::Wait(Key::Checkpoint));
        }
        if !self.budget.allows(COST_REQUEST) {
            return Err(Stop::Again);
        }
        self.budget.spend(COST_REQUEST);
        let begun = if drops {
            self.store.drop_snapshot(name)
        } else {
            self.enough_heap(world)?;
            let time = world.boot_time_ns().saturating_add(world.now_ns());
            self.store.keep_snapshot(name, time)
        };
        begun.map_err(refusal)?;
        let number = self.checkpoint.request_generation();
        let thread = caller.thread;
        self.checkpoint.asked = Some(Asked { number, thread, drops });
        self.threads.record(thread).continuation = Continuation::Snapshot { number, result: None };
        self.poll_checkpoint(world);
        // A small disk that works at once has done it.
        self.snapshot_answer(caller).unwrap_or(Err(Stop::Wait(Key::Checkpoint)))
    }

    /// What a call is told that has asked before.
    fn snapshot_answer(&mut self, caller: Caller) -> Option<Answer> {
        let Continuation::Snapshot { result, .. } = self.threads.record(caller.thread).continuation else {
            return None;
        };
        Some(match result {
            Some(result) => result.map(|()| (0, 0)).map_err(Stop::from),
            None => Err(Stop::Wait(Key::Checkpoint)),
        })
    }

    /// A checkpoint is over: tells who asked it for something about snapshots.
    pub(crate) fn snapshot_over(&mut self, number: u64, result: Result<(), Error>) {
        let Some(asked) = self.checkpoint.asked.take_if(|asked| asked.number <= number) else {
            return;
        };
        let outcome = self.store.snapshot_outcome();
        if outcome.is_none() {
            // It failed before the store began it, and no later one is to do what nobody waits for.
            self.store.forget_snapshot();
        }
        let result = answer_of(outcome, result);
        if asked.drops && result.is_ok() {
            self.checkpoint.returning = GENERATIONS;
        }
        let lives = |life| life == Life::Live;
        if !self.threads.find(asked.thread).is_some_and(|record| lives(record.life)) {
            return;
        }
        let continuation = &mut self.threads.record(asked.thread).continuation;
        let waits = Continuation::Snapshot {
            number: asked.number,
            result: None,
        };
        if *continuation == waits {
            *continuation = Continuation::Snapshot {
                number: asked.number,
                result: Some(result),
            };
        }
    }

    /// Whether a generation is due that brings blocks of dropped snapshots back. So many blocks wait for one. The search for them goes on meanwhile; where it
    /// is over two generations do it, whether they succeed or not, so there is an end.
    pub(crate) fn brings_back(&mut self, held: u64) -> bool {
        if self.store.is_reclaiming() {
            self.store.reclaim_again();
            return held > HELD_MANY;
        }
        let due = self.checkpoint.returning > 0 && held > 0;
        self.checkpoint.returning = if due { self.checkpoint.returning - 1 } else { 0 };
        due
    }

    /// The report on the first snapshot whose generation is at least this.
    pub(crate) fn snapshot_report(&self, generation: u64) -> Option<SnapshotReport> {
        let snapshot = self.store.snapshot_from(generation)?;
        let [name, name2, name3, name4] = snapshot_words(snapshot.name.as_str())?;
        Some(SnapshotReport {
            name,
            name2,
            name3,
            name4,
            generation: snapshot.generation,
            time_ns: snapshot.time,
            objects: snapshot.objects,
            blocks: snapshot.blocks,
            damaged: snapshot.is_damaged.into(),
        })
    }
}

/// The snapshot of a generation as part of a line of the log; nothing for the present state, which is zero.
pub(super) struct Part<'a>(pub(super) &'a Store, pub(super) u64);

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(store, generation) = *self;
        let snapshot = store.snapshot_from(generation);
        match snapshot.filter(|one| one.generation == generation) {
            _ if generation == 0 => Ok(()),
            Some(one) => write!(f, " of snapshot '{}'", one.name),
            None => write!(f, " of the snapshot that was generation {generation}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_was_given_up_is_no_success() {
        for (outcome, checkpoint, answer) in [
            (Some(Ok(())), Ok(()), Ok(())),
            (Some(Err(SnapshotError::DiskFull)), Ok(()), Err(Error::DiskFull)),
            (Some(Err(SnapshotError::Memory)), Ok(()), Err(Error::NoMemory)),
            (
                Some(Err(SnapshotError::Memory)),
                Err(Error::DiskError),
                Err(Error::NoMemory),
            ),
            (
                Some(Err(SnapshotError::Checkpoint)),
                Err(Error::DiskFull),
                Err(Error::DiskFull),
            ),
            (None, Err(Error::NoMemory), Err(Error::NoMemory)),
            (None, Ok(()), Err(Error::DiskError)),
        ] {
            assert_eq!(answer_of(outcome, checkpoint), answer, "{outcome:?} {checkpoint:?}");
        }
    }
}
