//! Damaged disks: bits that turned, writes that were acknowledged and never came or came elsewhere, blocks that cannot be read.
//!
//! The store must answer with right data or with an error by name: a mount that is refused, a loss or a discarded end of the journal in
//! its report, a finding, a bad page. The one exception is what the format cannot tell from a power cut (docs/spec/store-format.md,
//! "Losses"): with damage in a superblock or in the journal an older state that was once durable may show without a word. It is
//! counted apart.

use super::driver::{Check, Driver, MEMORY, Shown, difference, show};
use super::model::{Object, Page, State};
use crate::disk::{Block, CrashDisk, Fate};
use crate::rng::Rng;
use crate::world::SimWorld;
use std::sync::Arc;
use store::{BLOCK, Failure, Loss, MountError, MountMode, Store, Structure};

/// Blocks of superblocks.
const SUPERBLOCKS: u64 = 4;
/// Damaged disks for each disk that a cut may leave.
const DISKS: u64 = 2;

/// A kind of damage.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// A bit turns.
    Turned { block: u64, bit: usize },
    /// A sector is full of something else.
    Garbled { block: u64, sector: usize },
    /// The last write of the block never came.
    Lost { block: u64 },
    /// It came to another one.
    Misdirected { from: u64, to: u64 },
    /// So many reads of the block are errors.
    Unreadable { block: u64, reads: u32 },
    /// The first read of the block gives another bit.
    Misread { block: u64, bit: usize },
}

impl Fault {
    fn draw(disk: &CrashDisk, journal: u64, rng: &mut Rng) -> Self {
        let blocks: Vec<u64> = disk.medium().keys().copied().collect();
        let any = |rng: &mut Rng| match rng.below(8) {
            0 => rng.below(SUPERBLOCKS),
            1 => SUPERBLOCKS + rng.below(2 * journal),
            _ => *rng.pick(&blocks),
        };
        let (block, bit) = (any(rng), rng.below(8 * BLOCK as u64) as usize);
        match rng.below(8) {
            0 | 1 => Self::Turned { block, bit },
            2 => Self::Garbled { block, sector: bit % 8 },
            3 | 4 => Self::Lost { block },
            5 => Self::Misdirected {
                from: block,
                to: any(rng),
            },
            6 => {
                let reads = *rng.pick(&[1, u32::MAX]);
                Self::Unreadable { block, reads }
            }
            _ => Self::Misread { block, bit },
        }
    }

    fn apply(self, disk: &mut CrashDisk) {
        let block_of = |disk: &CrashDisk, block: u64| -> Block { disk.read(block) };
        let former = |disk: &CrashDisk, block: u64| disk.former(block).cloned().unwrap_or_else(|| Arc::new([0; BLOCK]));
        match self {
            Self::Turned { block, bit } => {
                let mut data = block_of(disk, block);
                Arc::make_mut(&mut data)[bit / 8] ^= 1 << (bit % 8);
                disk.medium_mut().insert(block, data);
            }
            Self::Garbled { block, sector } => {
                let mut data = block_of(disk, block);
                let mut rng = Rng::new(block);
                let bytes = &mut Arc::make_mut(&mut data)[sector * 512..][..512];
                bytes.fill_with(|| rng.next_u64() as u8);
                disk.medium_mut().insert(block, data);
            }
            Self::Lost { block } => {
                let data = former(disk, block);
                disk.medium_mut().insert(block, data);
            }
            Self::Misdirected { from, to } => {
                let (data, before) = (block_of(disk, from), former(disk, from));
                disk.medium_mut().insert(from, before);
                disk.medium_mut().insert(to, data);
            }
            Self::Unreadable { block, reads } => disk.set_unreadable(block, reads),
            Self::Misread { block, bit } => disk.set_misread(block, 1, bit),
        }
    }

    /// Whether a store may take this for a power cut.
    pub(super) fn resembles_a_cut(self, journal: u64) -> bool {
        let proofs = 0..SUPERBLOCKS + 2 * journal;
        match self {
            Self::Turned { block, .. }
            | Self::Garbled { block, .. }
            | Self::Lost { block }
            | Self::Misread { block, .. } => proofs.contains(&block),
            Self::Misdirected { from, to } => proofs.contains(&from) || proofs.contains(&to),
            Self::Unreadable { .. } => false,
        }
    }

    /// Whether it is over after the first read.
    fn passes(self) -> bool {
        matches!(self, Self::Unreadable { .. } | Self::Misread { .. })
    }
}

/// The state that is shown, of those that are known.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Age {
    /// One that may be there without damage.
    Current,
    /// One that was durable before.
    Older,
}

/// The outcome of a mount of a damaged disk.
#[derive(Debug)]
enum Outcome {
    Refused(MountError),
    Shown {
        age: Age,
        /// Whether anything was said.
        told: bool,
        /// Whether it was said that something newer is missing.
        told_older: bool,
        losses: usize,
    },
}

impl Driver {
    /// Damages copies of a disk that a cut may leave, and judges them.
    pub(super) fn judge_damaged(&mut self, image: &CrashDisk, candidates: &[State], rng: &mut Rng) -> Check {
        for _ in 0..DISKS {
            let count = if rng.one_in(4) { 1 + rng.below(3) } else { 1 };
            let faults: Vec<Fault> = (0..count).map(|_| Fault::draw(image, self.journal, rng)).collect();
            self.tally.states += 1;
            let judged = self.judge_faults(image, &faults, candidates, rng);
            judged.map_err(|what| format!("damaged by {faults:?}: {what}"))?;
        }
        Ok(())
    }

    fn judge_faults(&mut self, image: &CrashDisk, faults: &[Fault], candidates: &[State], rng: &mut Rng) -> Check {
        let damaged = |rng: &mut Rng| {
            let mut disk = image.crash(&[], rng.fork());
            for fault in faults {
                fault.apply(&mut disk);
            }
            disk
        };
        let may_be_silent = faults.iter().any(|fault| fault.resembles_a_cut(self.journal));
        let states: Vec<&State> = candidates.iter().chain(&self.history).collect();
        let known = (&states[..], candidates.len());
        let (read_only, _) = self.look(damaged(rng), MountMode::ReadOnly, known)?;
        let (mut told, mut silent) = (false, false);
        let mut judge = |outcome: &Outcome| match *outcome {
            Outcome::Refused(error) => {
                told = true;
                judge_refusal(error, faults)
            }
            Outcome::Shown {
                age: Age::Older,
                told_older: false,
                ..
            } if !may_be_silent => Err("an older state is shown, and nothing is said".into()),
            Outcome::Shown {
                age,
                told: said,
                told_older,
                ..
            } => {
                told |= said;
                silent |= age == Age::Older && !told_older;
                Ok(())
            }
        };
        judge(&read_only).map_err(|what| format!("read-only: {what}"))?;
        let must_be_there = !may_be_silent && matches!(read_only, Outcome::Shown { told: false, .. });
        self.judge_snapshots(&damaged(rng), faults, must_be_there, rng)?;
        let (mut written, mut rest) = self.look(damaged(rng), MountMode::ReadWrite, known)?;
        judge(&written).map_err(|what| format!("read-write: {what}"))?;
        let passes = faults.iter().all(|fault| fault.passes());
        if let (Outcome::Shown { .. }, Outcome::Shown { losses: 1.., .. }, false) = (&written, &read_only, passes) {
            return Err("a loss was made final and nobody had said so".into());
        }
        if let Outcome::Refused(MountError::Loss(_)) = written {
            let (accepted, after) = self.look(damaged(rng), MountMode::AcceptLoss, known)?;
            judge(&accepted).map_err(|what| format!("with the loss accepted: {what}"))?;
            (written, rest) = (accepted, after);
        }
        let (repaired, cuts) = self.judge_repair(damaged(rng), faults, known, rng)?;
        // A look at the rest shows as much.
        let (later, _) = self.look(rest, MountMode::ReadOnly, known)?;
        let said_before = matches!(
            written,
            Outcome::Shown { age: Age::Older, .. } | Outcome::Shown { told_older: true, .. }
        );
        if !said_before {
            judge(&later).map_err(|what| format!("after {written:?}: {what}"))?;
        }
        self.tally.repairs += u64::from(repaired);
        self.tally.repair_cuts += cuts;
        let count = match (told, silent) {
            (_, true) => &mut self.tally.silent,
            (true, false) => &mut self.tally.told,
            (false, false) => &mut self.tally.unharmed,
        };
        *count += 1;
        Ok(())
    }

    /// Judges the snapshots of a damaged disk: each is one that was made, and shows what the state was then, or is refused, or its pages are told to be bad.
    /// Where nothing was said, all are there.
    pub(super) fn judge_snapshots(
        &self,
        disk: &CrashDisk,
        faults: &[Fault],
        must_be_there: bool,
        rng: &mut Rng,
    ) -> Check {
        let mut world = SimWorld::new(disk.crash(&[], rng.fork()), MEMORY, Rng::new(8));
        let Ok((store, _)) = (self.options.subject.mount)(&mut world, MountMode::ReadOnly) else {
            return Ok(());
        };
        let there: Vec<_> = store.snapshots().map(|one| one.name).collect();
        store.dismantle(&mut world);
        if must_be_there {
            let missing = |text: &&String| !there.iter().any(|name| name.to_string() == **text);
            if let Some(text) = self.certain_snapshots().find(missing) {
                return Err(format!("there is no snapshot {text}, and nothing is said"));
            }
        }
        for name in there {
            let state = self.state_of_snapshot(&name.to_string())?;
            let mut world = SimWorld::new(disk.crash(&[], rng.fork()), MEMORY, Rng::new(9));
            match Store::mount_snapshot(&mut world, &name) {
                Err(error) => judge_refusal(error, faults).map_err(|what| format!("snapshot {name}: {what}"))?,
                Ok(None) => return Err(format!("snapshot {name} is there and cannot be found")),
                Ok(Some((mut store, report))) => {
                    let (shown, lost) = show(&mut store, &mut world, &[state])?;
                    if !fits(&shown, &without(state, &lost)) {
                        let found = difference(&without(state, &lost), &readable(&shown));
                        return Err(format!("snapshot {name}: {found}, lost {lost:x?}, {report:?}"));
                    }
                    let verified = store.verify(&mut world, &mut |_| {});
                    verified.map_err(|error| format!("verify {name}: {error:?}"))?;
                    store.dismantle(&mut world);
                }
            }
            if world.memory.used() != 0 {
                return Err(format!("snapshot {name}: {} frames leaked", world.memory.used()));
            }
        }
        Ok(())
    }

    /// Mounts a disk and looks which of the known states it shows: the first so many are current. Gives what is stable then, too.
    fn look(&self, disk: CrashDisk, mode: MountMode, known: (&[&State], usize)) -> Check<(Outcome, CrashDisk)> {
        let (states, current) = known;
        let mut world = SimWorld::new(disk, MEMORY, Rng::new(3));
        let outcome = match (self.options.subject.mount)(&mut world, mode) {
            Err(error) => Outcome::Refused(error),
            Ok((mut store, report)) => {
                let (shown, lost) = show(&mut store, &mut world, states)?;
                let fits = states.iter().position(|state| fits(&shown, &without(state, &lost)));
                let place = fits.ok_or_else(|| {
                    let shown = readable(&shown);
                    let nearest = |state: &&State| difference(&without(state, &lost), &shown);
                    let nearest: Vec<String> = states.iter().map(nearest).collect();
                    format!("{mode:?}: no state that ever was: {report:?}, lost {lost:x?}; from {current} current ones: {nearest:?}")
                })?;
                let is_bad = shown.values().flat_map(|(_, pages)| pages.values()).any(Result::is_err);
                let mut findings = 0;
                store
                    .verify(&mut world, &mut |_| findings += 1)
                    .map_err(|error| format!("verify: {error:?}"))?;
                let of_all = |loss: &Loss| matches!(loss, Loss::Generation { .. } | Loss::Records { .. });
                let told_older = report.tail.is_some() || report.losses.iter().any(of_all);
                store.dismantle(&mut world);
                Outcome::Shown {
                    age: if place < current { Age::Current } else { Age::Older },
                    told: told_older
                        || is_bad
                        || !lost.is_empty()
                        || findings > 0
                        || !report.losses.is_empty()
                        || !report.damage.is_empty()
                        || !report.bad_superblocks.is_empty(),
                    told_older,
                    losses: report.losses.len(),
                }
            }
        };
        let lost = vec![Fate::Lost; world.disk.volatile_len()];
        Ok((outcome, world.disk.crash(&lost, Rng::new(4))))
    }
}

/// A refusal must be an error that this damage explains.
pub(super) fn judge_refusal(error: MountError, faults: &[Fault]) -> Check {
    let is_unreadable = faults.iter().any(|fault| matches!(fault, Fault::Unreadable { .. }));
    match error {
        MountError::Loss(_)
        | MountError::Damaged(
            Structure::Superblock | Structure::Journal | Structure::Bitmap | Structure::Table | Structure::Snapshots,
            _,
        )
        | MountError::Recovery(Failure::Damaged) => Ok(()),
        MountError::Disk | MountError::Recovery(Failure::Disk) if is_unreadable => Ok(()),
        // Nothing is left by which it could be known.
        MountError::Foreign if faults.len() > 2 => Ok(()),
        other => Err(format!("refused with {other:?}")),
    }
}

/// A state without the objects of which it is said that nothing can be known.
fn without(state: &State, lost: &[(u64, u64)]) -> State {
    let is_lost = |base: u64| lost.iter().any(|&(from, end)| (from..end).contains(&base));
    let known = state.iter().filter(|(base, _)| !is_lost(**base));
    known.map(|(base, object)| (*base, object.clone())).collect()
}

/// The part of the shown state that could be read.
fn readable(shown: &Shown) -> State {
    let objects = shown.iter().map(|(base, (record, pages))| {
        let pages = pages
            .iter()
            .filter_map(|(page, contents)| Some((*page, contents.ok()?)));
        let object = Object {
            record: record.clone(),
            pages: pages.collect(),
        };
        (*base, object)
    });
    objects.collect()
}

/// Whether what is shown is the state, but for pages that are told to be bad.
fn fits(shown: &Shown, state: &State) -> bool {
    shown.len() == state.len()
        && shown
            .iter()
            .zip(state)
            .all(|((base, (record, pages)), (wanted, object))| {
                let right = |page: &u64, contents: &Page| match pages.get(page) {
                    None => *contents == Page::default(),
                    Some(Ok(found)) => found == contents,
                    Some(Err(_)) => true,
                };
                let asked_for = |page: &u64| pages[page].is_err() || object.pages.contains_key(page);
                base == wanted
                    && *record == object.record
                    && object.pages.iter().all(|(page, contents)| right(page, contents))
                    && pages.keys().all(asked_for)
            })
}
