//! Power cuts: disks as they may be found, and what must be found on them.

use super::{Check, Driver, EXHAUSTIVE, MEMORY, mount};
use crate::model::{Object, Page, State, is_filled};
use sim::disk::{CrashDisk, Fate};
use sim::rng::Rng;
use sim::world::SimWorld;
use std::collections::{BTreeMap, BTreeSet};
use store::{
    BLOCK, CheckpointKind, Event, Failure, MountError, MountMode, MountReport, ObjectRecord, Pages, ReadStart, Store,
};

impl Driver {
    /// The states that a mount may show.
    pub(super) fn candidates(&self) -> Vec<State> {
        let mut all = vec![self.durable.clone()];
        // Jobs that failed early are certainly missing while later ones may be there.
        for skipped in 0..=self.maybe.len() {
            let mut state = self.durable.clone();
            for job in self.maybe[skipped..].iter().chain(&self.jobs) {
                job.apply(&mut state);
                all.push(state.clone());
            }
        }
        all
    }

    /// Power-off and on, cleanly.
    pub(super) fn restart(&mut self) -> Check {
        self.settle()?;
        if self.options.failing != 0 {
            return Ok(());
        }
        self.checkpoint(CheckpointKind::Shutdown)?;
        self.settle()?;
        if self.durable != self.live {
            return Err("the state after a shutdown is not the live one".into());
        }
        let expected = self.store.high_water();
        let disk = self
            .world
            .disk
            .crash(&vec![Fate::Lost; self.world.disk.volatile_len()], self.rng.fork());
        let report = self.mount_again(disk)?;
        if !report.clean || report.first_slot != expected {
            return Err(format!("not clean: {report:?}"));
        }
        Ok(())
    }

    /// Until nothing is under way.
    pub(super) fn settle(&mut self) -> Check {
        self.events()?;
        while self.world.step() || self.store.is_stopped() {
            self.events()?;
        }
        if self.store.is_idle() {
            Ok(())
        } else {
            Err("the store waits for nothing".into())
        }
    }

    pub(super) fn crash(&mut self) -> Check {
        self.tally.crashes += 1;
        let candidates = self.candidates();
        let failing = core::mem::take(&mut self.options.failing);
        let mut rng = self.rng.fork();
        if let Some(all) = self.world.disk.all_fates(EXHAUSTIVE) {
            for fates in all {
                let image = self.world.disk.crash(&fates, rng.fork());
                self.check_image(image, &candidates)?;
            }
        }
        for _ in 0..2 {
            let image = self.world.disk.crash(&self.world.disk.draw_fates(&mut rng), rng.fork());
            self.check_image(image, &candidates)?;
        }
        let mut image = self.world.disk.crash(&self.world.disk.draw_fates(&mut rng), rng.fork());
        self.durable = self.check_image(image.crash(&[], rng.fork()), &candidates)?;
        // Sometimes the power fails again while the mount recovers, and sometimes requests of that mount fail.
        while rng.one_in(3) {
            image.set_fuse(rng.below(60));
            if rng.one_in(2) {
                image.set_failing(failing / 4);
            }
            let mut world = SimWorld::new(image, MEMORY, rng.fork());
            match Store::mount_broken(&mut world, MountMode::ReadWrite, self.options.breaks) {
                Err(MountError::Disk | MountError::Recovery(Failure::Disk)) if failing != 0 => {}
                Err(error) => return Err(format!("mount again: {error:?}")),
                Ok(_) => {}
            }
            let cut = world.disk.take_blown();
            let cut = cut.as_deref().unwrap_or(&world.disk);
            image = cut.crash(&cut.draw_fates(&mut rng), rng.fork());
            let only = [self.durable.clone()];
            self.check_image(image.crash(&[], rng.fork()), &only)?;
        }
        self.options.failing = failing;
        self.mount_again(image)?;
        Ok(())
    }

    /// Mounts a disk and goes on with the durable state.
    pub(super) fn mount_again(&mut self, disk: CrashDisk) -> Check<MountReport> {
        let mut world = SimWorld::new(disk, MEMORY, self.rng.fork());
        let (store, report) = mount(&mut world, MountMode::ReadWrite, self.options.breaks)?;
        if report.first_slot < self.next_slot {
            return Err("slot numbers would be issued again".into());
        }
        world.disk.set_failing(self.options.failing);
        self.next_slot = report.first_slot;
        self.world = world;
        self.generation = store.stats().generation;
        self.store = store;
        self.live = self.durable.clone();
        self.stored = self.durable.clone();
        self.jobs.clear();
        self.maybe.clear();
        self.dirty.clear();
        self.in_flight.clear();
        self.returned.clear();
        self.reading.clear();
        self.unusable.clear();
        self.reusable.clear();
        Ok(report)
    }

    /// Mounts an image read-only; it must be sound and show one of the candidates. Gives that.
    pub(super) fn check_image(&mut self, image: CrashDisk, candidates: &[State]) -> Check<State> {
        self.tally.images += 1;
        let mut world = SimWorld::new(image, MEMORY, Rng::new(0));
        let (mut store, report) = mount(&mut world, MountMode::ReadOnly, self.options.breaks)?;
        self.tally.replayed += u64::from(report.replayed);
        self.tally.tails += u64::from(report.tail.is_some());
        let found = show(&mut store, &mut world, candidates)?;
        if !candidates.contains(&found) {
            let nearest: Vec<String> = candidates.iter().map(|state| difference(state, &found)).collect();
            return Err(format!(
                "after a crash none of {} states: {nearest:?}; {report:?}",
                candidates.len()
            ));
        }
        let mut findings = Vec::new();
        store
            .verify(&mut world, &mut |finding| findings.push(finding))
            .map_err(|error| format!("verify: {error:?}"))?;
        if !findings.is_empty() {
            return Err(format!("verify: {findings:?}; {report:?}"));
        }
        if world.disk.written != 0 {
            return Err("a read-only mount wrote".into());
        }
        store.dismantle(&mut world);
        if world.memory.used() != 0 {
            return Err(format!("{} frames leaked", world.memory.used()));
        }
        Ok(found)
    }
}

/// The state that a store shows, as far as the candidates know of pages.
fn show(store: &mut Store, world: &mut SimWorld, candidates: &[State]) -> Check<State> {
    let mut found = State::new();
    let records: Vec<ObjectRecord> = store.objects().cloned().collect();
    for record in records {
        let base = record.base;
        let known: BTreeSet<u64> = candidates
            .iter()
            .filter_map(|state| state.get(&base))
            .flat_map(|object| object.pages.keys().copied())
            .filter(|&page| page < record.pages)
            .collect();
        let mut pages = BTreeMap::new();
        for page in known {
            let contents = match store.read_page(world, base, page) {
                ReadStart::Zero(flags) => Page {
                    stamp: 0,
                    flags: flags.unwrap_or_default(),
                },
                ReadStart::NoMemory => return Err("no heap".into()),
                ReadStart::Reading => loop {
                    match store.poll(world) {
                        Some(Event::PageRead { frame, flags, .. }) => {
                            let stamp = stamp_of(world.bytes(frame)).ok_or("a page is garbage")?;
                            world.free(frame);
                            break Page { stamp, flags };
                        }
                        Some(other) => return Err(format!("reading {base:#x}+{page}: {other:?}")),
                        None => {
                            world.step();
                        }
                    }
                },
            };
            if contents != Page::default() {
                pages.insert(page, contents);
            }
        }
        found.insert(base, Object { record, pages });
    }
    Ok(found)
}

fn stamp_of(bytes: &[u8; BLOCK]) -> Option<u64> {
    let first = u64::from_le_bytes(bytes[..8].try_into().ok()?);
    // The inverse of the factor in `fill`, modulo 2^64.
    let stamp = first.wrapping_mul(0xf1de_83e1_9937_733d);
    is_filled(stamp, bytes).then_some(stamp)
}

fn difference(wanted: &State, found: &State) -> String {
    for (base, object) in wanted {
        match found.get(base) {
            None => return format!("{base:#x} is missing"),
            Some(other) if other.record != object.record => return format!("{base:#x}: another record"),
            Some(other) if other.pages != object.pages => {
                let names: BTreeSet<&u64> = object.pages.keys().chain(other.pages.keys()).collect();
                let page = names
                    .into_iter()
                    .find(|page| object.pages.get(page) != other.pages.get(page));
                return format!(
                    "{base:#x} page {page:?}: wanted {:?}, found {:?}",
                    page.map(|p| object.pages.get(p)),
                    page.map(|p| other.pages.get(p))
                );
            }
            Some(_) => {}
        }
    }
    found
        .keys()
        .find(|base| !wanted.contains_key(base))
        .map_or(String::new(), |base| format!("{base:#x} should be gone"))
}
