//! The crash laboratory: lives of a store on a disk that loses what it may lose, judged by a model.
//!
//! A run has a [`Kind`] and a seed, and is a function of both. A life makes objects, writes, syncs, names, renames, deletes, revokes,
//! resizes, keeps and drops snapshots and makes checkpoints, mostly several at once, and the power is cut in the middle of it: after any subset of the writes
//! that were not flushed, whole or torn, also while a start recovers from the cut before. Each disk so made is a *state*. It is
//! mounted, and must show what was acknowledged and nothing that was not asked for; `verify` must find it sound. The kinds differ in
//! what else goes wrong. [`Kind::Rot`] damages the disks beforehand: the answer must be an error by name, or right data.
//!
//! Reading order: [`model`] is what the store ought to hold, `driver` lives a life and judges its disks, `rot` damages them, `mend` repairs them,
//! `short` tries all short lives. A [`Subject`] is the store and the disk that are tried: with one of their promises broken, the
//! laboratory must notice (`host/sim/tests/broken.rs`).

mod model;

mod driver;

mod rot;

mod mend;

mod short;

use crate::disk::Lie;
use crate::own;
use crate::world::SimWorld;
use driver::Options;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use store::{MountError, MountMode, MountReport, Store};

/// How a store is mounted.
pub type Mount = fn(&mut SimWorld, MountMode) -> Result<(Store, MountReport), MountError>;

/// The store and the disk that are tried.
#[derive(Copy, Clone)]
pub struct Subject {
    /// Mounts the store.
    pub mount: Mount,
    /// The promise that the disk breaks, if it breaks one.
    pub lie: Option<Lie>,
}

impl Subject {
    /// The store as it is, on a disk that keeps its promises.
    pub const SOUND: Self = Self {
        mount: |world, mode| Store::mount(world, mode),
        lie: None,
    };
}

/// The things that go wrong in a run beside the power.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Nothing.
    Cuts,
    /// The disk is full.
    Full,
    /// Requests fail.
    Failing,
    /// Both.
    Tight,
    /// Pages of memory are refused.
    Memory,
    /// Blocks rot, are lost, misdirected or unreadable.
    Rot,
    /// Nothing; checkpoints that make generations are under way most of the time, and syncs go ahead of them.
    Ahead,
    /// The same, and pages of memory are refused, and heap, if the program's allocator does that.
    Heap,
    /// Nothing; the seed chooses a sequence of up to three operations, and every request is followed by a cut.
    Short,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Cuts,
        Self::Full,
        Self::Failing,
        Self::Tight,
        Self::Memory,
        Self::Rot,
        Self::Ahead,
        Self::Heap,
        Self::Short,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cuts => "cuts",
            Self::Full => "full",
            Self::Failing => "failing",
            Self::Tight => "tight",
            Self::Memory => "memory",
            Self::Rot => "rot",
            Self::Ahead => "ahead",
            Self::Heap => "heap",
            Self::Short => "short",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// How many seeds there are of it, if they end.
    pub fn seeds(self) -> Option<u64> {
        (self == Self::Short).then_some(short::SEQUENCES)
    }

    fn options(self, seed: u64, subject: Subject) -> Options {
        let usual = Options {
            subject,
            blocks: 900,
            steps: 250,
            failing: 0,
            memory: false,
            rot: false,
            ahead: false,
        };
        match self {
            Self::Cuts | Self::Short => usual,
            Self::Full => Options { blocks: 140, ..usual },
            Self::Failing => Options { failing: 60, ..usual },
            Self::Tight => {
                let (blocks, failing) = [(140, 30), (150, 30), (180, 20), (250, 30)][seed as usize % 4];
                Options {
                    blocks,
                    failing,
                    steps: 300,
                    ..usual
                }
            }
            Self::Memory => Options { memory: true, ..usual },
            // Some on a small disk.
            Self::Rot => Options {
                rot: true,
                blocks: [900, 900, 900, 200][seed as usize % 4],
                ..usual
            },
            Self::Heap => Options {
                ahead: true,
                memory: true,
                failing: [0, 0, 80][seed as usize % 3],
                ..usual
            },
            // Some with requests that fail, some on a small disk.
            Self::Ahead => Options {
                ahead: true,
                failing: [0, 0, 0, 80][seed as usize % 4],
                blocks: [900, 900, 200, 900][seed as usize % 4],
                ..usual
            },
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The events that runs saw; to know that they test something.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Lives.
    pub runs: u64,
    /// Moments at which the power was cut.
    pub crashes: u64,
    /// Disks mounted and judged, no two of a moment alike.
    pub states: u64,
    /// Cuts while a start recovered from the cut before.
    pub recovery_cuts: u64,
    /// Times that the store grew.
    pub growths: u64,
    /// Cuts while it did.
    pub growth_cuts: u64,
    /// Times that it grew while it was mounted.
    pub mounted_growths: u64,
    /// Snapshots that were kept.
    pub kept: u64,
    /// Those of them that were dropped.
    pub dropped: u64,
    /// Times that the store went back to one.
    pub rolled: u64,
    /// Checkpoints that were acknowledged.
    pub checkpoints: u64,
    /// Those of them that were records of the journal.
    pub small_checkpoints: u64,
    /// Checkpoints that failed.
    pub failed_checkpoints: u64,
    /// Syncs that were acknowledged.
    pub syncs: u64,
    /// Those of them that went ahead of a checkpoint.
    pub syncs_ahead: u64,
    /// Syncs that were left to a checkpoint.
    pub refused_syncs: u64,
    /// Syncs that failed.
    pub failed_syncs: u64,
    /// Journal records replayed.
    pub replayed: u64,
    /// Disks whose journal had an end that was discarded.
    pub tails: u64,
    /// Pages read in the middle of a life.
    pub reads: u64,
    /// Pages that were read together with another one before them.
    pub reads_ahead: u64,
    /// Passes of the scrub that were over when a next look began.
    pub scrubs: u64,
    /// Leaves of the object table that were read in the middle of a life.
    pub leaves: u64,
    /// Operations for which the disk had no room.
    pub disk_full: u64,
    /// Pages of memory that were refused.
    pub refused_pages: u64,
    /// Groups of changes under one sync.
    pub acts: u64,
    /// Names given, changed and taken away.
    pub names: u64,
    /// Damaged disks that were refused, or whose damage was named.
    pub told: u64,
    /// Damaged disks that showed everything all the same.
    pub unharmed: u64,
    /// Damaged disks that were repaired.
    pub repairs: u64,
    /// Cuts in the middle of a repair.
    pub repair_cuts: u64,
    /// Damaged disks that showed an older state without a word, where the format cannot tell the damage from a power cut.
    pub silent: u64,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        let Self {
            runs,
            crashes,
            states,
            recovery_cuts,
            growths,
            growth_cuts,
            mounted_growths,
            kept,
            dropped,
            rolled,
            checkpoints,
            small_checkpoints,
            failed_checkpoints,
            syncs,
            syncs_ahead,
            refused_syncs,
            failed_syncs,
            replayed,
            tails,
            reads,
            reads_ahead,
            scrubs,
            leaves,
            disk_full,
            refused_pages,
            acts,
            names,
            told,
            unharmed,
            repairs,
            repair_cuts,
            silent,
        } = *other;
        self.runs += runs;
        self.crashes += crashes;
        self.states += states;
        self.recovery_cuts += recovery_cuts;
        self.growths += growths;
        self.growth_cuts += growth_cuts;
        self.mounted_growths += mounted_growths;
        self.kept += kept;
        self.dropped += dropped;
        self.rolled += rolled;
        self.checkpoints += checkpoints;
        self.small_checkpoints += small_checkpoints;
        self.failed_checkpoints += failed_checkpoints;
        self.syncs += syncs;
        self.syncs_ahead += syncs_ahead;
        self.refused_syncs += refused_syncs;
        self.failed_syncs += failed_syncs;
        self.replayed += replayed;
        self.tails += tails;
        self.reads += reads;
        self.reads_ahead += reads_ahead;
        self.scrubs += scrubs;
        self.leaves += leaves;
        self.disk_full += disk_full;
        self.refused_pages += refused_pages;
        self.acts += acts;
        self.names += names;
        self.told += told;
        self.unharmed += unharmed;
        self.repairs += repairs;
        self.repair_cuts += repair_cuts;
        self.silent += silent;
    }
}

/// One run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// Its kind.
    pub kind: Kind,
    /// Its seed.
    pub seed: u64,
}

impl Run {
    /// Does it.
    ///
    /// # Errors
    /// A sentence about the first thing that was not as it must be.
    pub fn go(self, subject: Subject) -> Result<Tally, String> {
        let options = self.kind.options(self.seed, subject);
        // The run before this one on the same thread may have left a refusal behind.
        own::fail_at(u64::MAX);
        let live = || match self.kind {
            Kind::Short => short::run(self.seed, options),
            _ => driver::run(self.seed, options),
        };
        // Where a panic ends the process, the caller's hook has the last word.
        let outcome = catch_unwind(AssertUnwindSafe(live)).unwrap_or_else(|_| Err("the store panicked".into()));
        outcome.map(|tally| Tally { runs: 1, ..tally })
    }
}

/// The runs of some kinds with seeds from `from` on, one kind after the other for each seed.
pub fn plan(kinds: &[Kind], from: u64, seeds: u64) -> Vec<Run> {
    let all = (from..from.saturating_add(seeds)).flat_map(|seed| kinds.iter().map(move |&kind| Run { kind, seed }));
    all.filter(|run| run.kind.seeds().is_none_or(|end| run.seed < end))
        .collect()
}

/// Whether more runs are begun.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Go {
    /// They are.
    On,
    /// Those that were begun come to their end, and no more.
    Home,
}

/// Does runs on all processors. `begin` is called by the thread that does a run, before it; `tell` is told what came of each, and decides
/// whether more are begun.
pub fn go(
    runs: &[Run],
    subject: Subject,
    begin: impl Fn(Run) + Sync,
    mut tell: impl FnMut(Run, Result<Tally, String>) -> Go,
) {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (next, home) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (sender, outcomes) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, home, begin) = (sender.clone(), &next, &home, &begin);
            scope.spawn(move || {
                while !home.load(Ordering::Relaxed)
                    && let Some(&run) = runs.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    begin(run);
                    if sender.send((run, run.go(subject))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (run, outcome) in outcomes {
            if tell(run, outcome) == Go::Home {
                home.store(true, Ordering::Relaxed);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names_and_short_lives_end() {
        for kind in Kind::ALL {
            assert_eq!(Kind::named(kind.name()), Some(kind));
        }
        assert_eq!(Kind::named("none"), None);
        let runs = plan(&[Kind::Short, Kind::Cuts], short::SEQUENCES - 1, 2);
        let seeds: Vec<(Kind, u64)> = runs.iter().map(|run| (run.kind, run.seed)).collect();
        let last = short::SEQUENCES - 1;
        assert_eq!(seeds, [(Kind::Short, last), (Kind::Cuts, last), (Kind::Cuts, last + 1)]);
    }

    #[test]
    fn a_run_is_a_function_of_its_seed() {
        for kind in Kind::ALL {
            let run = Run { kind, seed: 5 };
            assert_eq!(run.go(Subject::SOUND), run.go(Subject::SOUND), "{kind}");
        }
    }
}
