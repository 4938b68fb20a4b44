//! Snapshots in a life: each is what the state was at its checkpoint, whatever came later. What was acknowledged is there, what was dropped is not, and all blocks
//! come back.

use super::crashes::whole;
use super::{Check, Driver, MEMORY, show};
use crate::disk::CrashDisk;
use crate::lab::model::State;
use crate::rng::Rng;
use crate::world::SimWorld;
use std::collections::BTreeMap;
use store::{CheckpointKind, Failure, MountError, MountMode, RollBackError, SnapshotError, SnapshotName, Store};

/// Snapshots that a life has at once, at most.
const KEPT_MAX: usize = 5;

/// Whether a snapshot is on the disk, as far as the model knows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stand {
    /// It is there.
    There,
    /// It is being made, or its making failed and may be durable all the same.
    Coming,
    /// The same of its end.
    Going,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Act {
    Keep,
    Drop,
}

/// The snapshots of a life.
#[derive(Default)]
pub(super) struct Kept {
    all: BTreeMap<String, (State, Stand)>,
    /// The act that waits for the next checkpoint, and the one that the running checkpoint does.
    waits: Option<(Act, String)>,
    runs: Option<(Act, String)>,
    names: u64,
    /// The state at the moment of each snapshot that was ever begun, by its name.
    ever: BTreeMap<String, State>,
}

fn name(text: &str) -> SnapshotName {
    SnapshotName::new(text).expect("a name")
}

impl Driver {
    /// Asks for one, or for the end of one.
    pub(super) fn snapshot(&mut self) -> Check {
        if self.kept.runs.is_some() {
            // Its event is still to come, and its outcome would be forgotten.
            return Ok(());
        }
        let there = self.kept.all.iter().filter(|(_, (_, stand))| *stand == Stand::There);
        let there: Vec<String> = there.map(|(text, _)| text.clone()).collect();
        let drops = there.len() >= KEPT_MAX || !there.is_empty() && self.rng.one_in(3);
        let (act, text) = if drops {
            (Act::Drop, self.rng.pick(&there).clone())
        } else {
            self.kept.names += 1;
            (Act::Keep, format!("s{}", self.kept.names))
        };
        let asked = self.tried(|store, _| match act {
            Act::Keep => store.keep_snapshot(name(&text), 1),
            Act::Drop => store.drop_snapshot(name(&text)),
        });
        let is_busy = self.kept.waits.is_some();
        match asked {
            Ok(()) if is_busy => return Err("two snapshots at once".into()),
            Ok(()) => self.kept.waits = Some((act, text)),
            Err(SnapshotError::Busy) if is_busy => {}
            Err(SnapshotError::Memory) if self.options.memory => {}
            Err(SnapshotError::DiskFull) => self.tally.disk_full += 1,
            Err(error) => return Err(format!("{act:?} {text}: {error:?}")),
        }
        if self.kept.waits.is_some() && self.rng.one_in(8) {
            self.store.forget_snapshot();
            self.kept.waits = None;
        }
        if self.rng.one_in(2) {
            self.checkpoint(CheckpointKind::Periodic)?;
        }
        Ok(())
    }

    /// A checkpoint has begun.
    pub(super) fn snapshot_begins(&mut self) {
        let Some((act, text)) = self.kept.waits.take() else {
            return;
        };
        match act {
            Act::Keep => {
                self.kept.all.insert(text.clone(), (self.live.clone(), Stand::Coming));
                self.kept.ever.insert(text.clone(), self.live.clone());
            }
            Act::Drop => {
                if let Some(kept) = self.kept.all.get_mut(&text) {
                    kept.1 = Stand::Going;
                }
            }
        }
        self.kept.runs = Some((act, text));
    }

    /// Something was acknowledged: nothing that failed before it shows any more.
    pub(super) fn snapshots_settle(&mut self) {
        let runs = self.kept.runs.as_ref().map(|(_, text)| text.clone());
        self.kept.all.retain(|text, kept| {
            if runs.as_ref() == Some(text) {
                return true;
            }
            let is_there = kept.1 != Stand::Coming;
            kept.1 = Stand::There;
            is_there
        });
    }

    /// The checkpoint is over.
    pub(super) fn snapshot_ends(&mut self, is_done: bool) -> Check {
        let Some((act, text)) = self.kept.runs.take() else {
            return Ok(());
        };
        let outcome = self.store.snapshot_outcome();
        let outcome = outcome.ok_or_else(|| format!("{act:?} {text}: nobody knows how it ended"))?;
        match outcome {
            Ok(()) if !is_done => return Err(format!("{act:?} {text} was done by a checkpoint that failed")),
            Ok(()) if act == Act::Keep => {
                self.tally.kept += 1;
                self.kept.all.entry(text).and_modify(|kept| kept.1 = Stand::There);
            }
            Ok(()) => {
                self.tally.dropped += 1;
                self.kept.all.remove(&text);
            }
            // The checkpoint failed, and may be durable all the same: so may the snapshot.
            Err(SnapshotError::Checkpoint) if !is_done => {}
            Err(error) if is_done && (error == SnapshotError::Memory && self.options.memory) => {
                self.snapshots_settle();
            }
            Err(error) if !is_done && self.options.is_hard() => {
                let _ = error;
                self.snapshots_settle();
            }
            Err(error) => return Err(format!("{act:?} {text}: {error:?}, done: {is_done}")),
        }
        Ok(())
    }

    /// The disk was mounted.
    pub(super) fn snapshots_at_start(&mut self) {
        let there: Vec<String> = self.store.snapshots().map(|one| one.name.to_string()).collect();
        self.kept.waits = None;
        self.kept.runs = None;
        self.kept.all.retain(|text, kept| {
            kept.1 = Stand::There;
            there.contains(text)
        });
    }

    /// The snapshots of a mounted disk are those that may be there.
    pub(super) fn judge_list(&self, store: &Store) -> Check<Vec<String>> {
        let there: Vec<String> = store.snapshots().map(|one| one.name.to_string()).collect();
        if store.snapshots().any(|one| one.is_damaged) {
            return Err("a snapshot is damaged".into());
        }
        for text in &there {
            if !self.kept.all.contains_key(text) {
                return Err(format!("there is a snapshot {text}"));
            }
        }
        for (text, (_, stand)) in &self.kept.all {
            if *stand == Stand::There && !there.contains(text) {
                return Err(format!("there is no snapshot {text}"));
            }
        }
        Ok(there)
    }

    /// A snapshot of a disk is what the state was.
    pub(super) fn judge_snapshot(&self, image: CrashDisk, text: &str) -> Check {
        let mut world = SimWorld::new(image, MEMORY, Rng::new(0));
        let mounted = Store::mount_snapshot(&mut world, &name(text)).map_err(|error| format!("{text}: {error:?}"))?;
        let (mut store, _) = mounted.ok_or_else(|| format!("{text} is not there"))?;
        let Some((state, _)) = self.kept.all.get(text) else {
            return Err(format!("{text} is not known"));
        };
        let (found, lost) = show(&mut store, &mut world, &[state])?;
        if !lost.is_empty() || whole(found)? != *state {
            return Err(format!("snapshot {text} is not what the state was"));
        }
        let mut findings = Vec::new();
        let verified = store.verify(&mut world, &mut |finding| findings.push(finding));
        verified.map_err(|error| format!("verify {text}: {error:?}"))?;
        if !findings.is_empty() {
            return Err(format!("verify {text}: {findings:?}"));
        }
        store.dismantle(&mut world);
        if world.memory.used() != 0 {
            return Err(format!("{text}: {} frames leaked", world.memory.used()));
        }
        Ok(())
    }

    /// The state that a damaged disk's snapshot of this name must show, as far as it can be read.
    pub(in crate::lab) fn state_of_snapshot(&self, text: &str) -> Check<&State> {
        let state = self.kept.ever.get(text);
        state.ok_or_else(|| format!("there is a snapshot {text}, which was never made"))
    }

    /// Snapshots that are there whatever the power left.
    pub(in crate::lab) fn certain_snapshots(&self) -> impl Iterator<Item = &String> {
        let all = self.kept.all.iter();
        all.filter(|(_, (_, stand))| *stand == Stand::There)
            .map(|(text, _)| text)
    }

    /// Each block of data is free, or will be, or is used, or held by a snapshot.
    pub(super) fn judge_balance(&mut self) -> Check {
        if self.options.memory {
            return Ok(());
        }
        let stats = self.store.stats();
        // A block that is not read would not be counted.
        self.world.disk.set_failing(0);
        let verified = self.store.verify(&mut self.world, &mut |_| {});
        self.world.disk.set_failing(self.options.failing);
        let used = verified.map_err(|error| format!("verify: {error:?}"))?.blocks;
        let held = self.store.blocks_of_snapshots();
        let bitmaps = 3 * (1 + stats.blocks.div_ceil(32_768));
        let moved = if bitmaps > 6 { bitmaps } else { 0 };
        let data = stats.blocks - 4 - 2 * self.journal - 6 - moved;
        if stats.free + stats.held + used + held != data {
            return Err(format!(
                "of {data} blocks {} are free, {} will be, {used} are used and {held} held",
                stats.free, stats.held
            ));
        }
        Ok(())
    }

    /// Waits until the blocks of dropped snapshots are free again, without a new start. Gives the number of blocks that snapshots still hold.
    pub(super) fn let_all_come_back(&mut self) -> Check<u64> {
        for _ in 0..4 {
            self.checkpoint(CheckpointKind::Generation)?;
            self.settle()?;
        }
        if self.store.is_reclaiming() {
            return Err("the search for free blocks has no end".into());
        }
        self.judge_balance()?;
        Ok(self.store.blocks_of_snapshots())
    }

    /// The power is cut, and the store goes back to a snapshot, perhaps with more cuts on the way.
    pub(super) fn roll_back(&mut self) -> Check {
        let mut image = self.cut()?;
        let mut rng = self.rng.fork();
        let mut world = SimWorld::new(image.crash(&[], rng.fork()), MEMORY, Rng::new(0));
        let (store, _) = self.options.mount(&mut world, MountMode::ReadOnly)?;
        let there = self.judge_list(&store)?;
        self.kept.waits = None;
        self.kept.runs = None;
        self.kept.all.retain(|text, kept| {
            kept.1 = Stand::There;
            there.contains(text)
        });
        if there.is_empty() {
            return self.mount_again(image).map(drop);
        }
        let text = rng.pick(&there).clone();
        let keep = rng.one_in(2).then(|| {
            self.kept.names += 1;
            format!("r{}", self.kept.names)
        });
        if let Some(keep) = &keep {
            self.kept
                .all
                .insert(keep.clone(), (self.durable.clone(), Stand::Coming));
        }
        let wanted = self.kept.all[&text].0.clone();
        let is_cut = rng.one_in(2);
        if is_cut {
            image.set_fuse(rng.below(120));
        }
        if self.options.failing != 0 && rng.one_in(2) {
            image.set_failing(self.options.failing);
        }
        let mut world = SimWorld::new(image, MEMORY, rng.fork());
        let outcome = Store::roll_back(&mut world, &name(&text), keep.as_ref().map(|keep| (name(keep), 2)));
        let blown = world.disk.take_blown();
        let cut = blown.as_deref().unwrap_or(&world.disk);
        let image = cut.crash(&cut.draw_fates(&mut rng), rng.fork());
        let both = [self.durable.clone(), wanted.clone()];
        self.durable = self.check_image(image.crash(&[], rng.fork()), &both)?;
        match outcome {
            _ if is_cut => {}
            Ok(()) if self.durable != wanted => return Err("it did not go back".into()),
            Ok(()) => self.tally.rolled += 1,
            Err(RollBackError::Snapshot(SnapshotError::DiskFull)) if keep.is_some() => {}
            Err(RollBackError::Mount(MountError::Recovery(Failure::DiskFull))) => self.tally.disk_full += 1,
            Err(_) if self.options.failing != 0 => {}
            Err(error) => return Err(format!("going back to {text}: {error:?}")),
        }
        self.mount_again(image)?;
        Ok(())
    }
}
