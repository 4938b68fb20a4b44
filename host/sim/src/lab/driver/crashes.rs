//! Power cuts: disks as they may be found, and what must be found on them.

use super::rows::all_records;
use super::{Check, Driver, EXHAUSTIVE, HISTORY_MAX, MEMORY, RUNS};
use crate::disk::{CrashDisk, Fate};
use crate::lab::mend::judge_sound;
use crate::lab::model::{Job, Object, Objects, Page, State, enter, is_filled};
use crate::own::{self, Tried};
use crate::rng::Rng;
use crate::world::SimWorld;
use std::collections::{BTreeMap, BTreeSet};
use store::{
    BLOCK, BadPage, CheckpointKind, Event, Failure, MountError, MountMode, MountReport, ObjectRecord, Pages, ReadStart,
    Store,
};

/// Objects as a mounted store shows them, each with pages that could be read and pages that could not.
pub(in crate::lab) type Shown = BTreeMap<u64, (ObjectRecord, BTreeMap<u64, Result<Page, BadPage>>)>;

/// How many of the disks that a cut may leave are judged, where they are too many.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Care {
    /// A few.
    Some,
    /// Those that lack or have one write alone, or have one torn, and more.
    Much,
}

impl Driver {
    /// The states that a mount may show: the durable one, and what jobs that failed or are under way may have made of it.
    ///
    /// Nothing follows a record that failed before a generation is there, and what waits behind one is not written. So of syncs that failed those
    /// may be there that shared a record: some that were begun one behind the other, for any before or behind them may have been refused
    /// before it was written. The last of them may not be told yet, and count as under way.
    pub(in crate::lab) fn candidates(&self) -> Vec<State> {
        let mut all = vec![self.durable.clone()];
        // In the journal of the durable generation: without the checkpoint, if there is one.
        let failed: Vec<&Objects> = self.maybe.iter().filter_map(Job::alone).collect();
        let before = self.jobs.iter().take_while(|job| job.ticket().is_some());
        let behind = || self.jobs.iter().skip_while(|job| job.ticket().is_some());
        let under_way: Vec<&Objects> = before
            .filter_map(Job::objects)
            .chain(behind().filter_map(Job::ahead))
            .collect();
        enter_some(&self.durable, &failed, &under_way, &mut all);
        // In that of a generation that a checkpoint made, or may have made.
        for (at, job) in self.maybe.iter().enumerate() {
            if let Job::Checkpoint(state, _) = job {
                let behind = self.maybe[at + 1..].iter();
                let behind = behind.take_while(|job| job.ticket().is_some());
                all.push(state.clone());
                enter_some(state, &with_it(behind), &[], &mut all);
            }
        }
        if let Some(Job::Checkpoint(state, last)) = behind().next() {
            let failed = self.maybe.iter().filter(|job| job.ticket() > Some(*last));
            all.push(state.clone());
            let under_way: Vec<&Objects> = behind().filter_map(Job::objects).collect();
            enter_some(state, &with_it(failed), &under_way, &mut all);
        }
        all
    }

    /// Power-off and on, cleanly.
    pub(super) fn restart(&mut self) -> Check {
        self.settle()?;
        if self.options.is_hard() {
            return Ok(());
        }
        let held = if self.rng.one_in(2) {
            Some(self.let_all_come_back()?)
        } else {
            None
        };
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
        let now = self.store.blocks_of_snapshots();
        if held.is_some_and(|held| held != now) {
            return Err(format!("{held:?} blocks were held before the start, and {now} are"));
        }
        Ok(())
    }

    /// Until nothing is under way.
    pub(in crate::lab) fn settle(&mut self) -> Check {
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

    /// Cuts the power behind every request until nothing is under way.
    pub(in crate::lab) fn cut_everywhere(&mut self) -> Check {
        self.events()?;
        loop {
            self.tally.crashes += 1;
            let candidates = self.candidates();
            self.judge_cuts(&candidates, Care::Much)?;
            if self.rng.one_in(4) {
                let mut rng = self.rng.fork();
                let image = self.world.disk.crash(&self.world.disk.draw_fates(&mut rng), rng.fork());
                let state = self.check_image(image.crash(&[], rng.fork()), &candidates)?;
                self.recover_with_cuts(image, &state, &mut rng)?;
            }
            if !self.world.step() && !self.store.is_stopped() {
                break;
            }
            self.events()?;
        }
        if self.store.is_idle() {
            Ok(())
        } else {
            Err("the store waits for nothing".into())
        }
    }

    /// Judges what a cut here would leave, and goes on as if there was none.
    pub(super) fn judge_now(&mut self) -> Check {
        self.tally.crashes += 1;
        let candidates = self.candidates();
        self.judge_cuts(&candidates, Care::Some)
    }

    /// Cuts the power here, judges what it may leave, and goes on with one of these disks.
    pub(super) fn crash(&mut self) -> Check {
        let image = self.cut()?;
        let mut rng = self.rng.fork();
        let state = self.durable.clone();
        let image = self.recover_with_cuts(image, &state, &mut rng)?;
        self.mount_again(image)?;
        Ok(())
    }

    /// Cuts the power here, judges what it may leave, and gives one of these disks. Its state is the durable one.
    pub(super) fn cut(&mut self) -> Check<CrashDisk> {
        self.tally.crashes += 1;
        let candidates = self.candidates();
        let mut rng = self.rng.fork();
        self.judge_cuts(&candidates, Care::Some)?;
        let image = self.world.disk.crash(&self.world.disk.draw_fates(&mut rng), rng.fork());
        self.durable = self.check_image(image.crash(&[], rng.fork()), &candidates)?;
        if self.rng.one_in(4) {
            judge_sound(image.crash(&[], rng.fork()))?;
        }
        // Another disk that this cut may leave is what a damaged one falls back to, some states later.
        for state in candidates {
            self.note_history(state);
        }
        Ok(image)
    }

    /// Notes a state that was, or may have been, durable.
    pub(super) fn note_history(&mut self, state: State) {
        if self.options.rot {
            if self.history.len() == HISTORY_MAX {
                self.history.pop_front();
            }
            self.history.push_back(state);
        }
    }

    /// Judges disks that the power may leave if it fails now.
    fn judge_cuts(&mut self, candidates: &[State], care: Care) -> Check {
        let mut rng = self.rng.fork();
        let disk = &self.world.disk;
        let writes = disk.volatile_len();
        let mut all: Vec<Vec<Fate>> = Vec::new();
        if let Some(subsets) = disk.all_fates(EXHAUSTIVE) {
            all.extend(subsets);
        } else if care == Care::Much {
            for base in [Fate::Lost, Fate::Whole] {
                all.push(vec![base; writes]);
                all.extend((0..writes).map(|at| {
                    let mut fates = vec![base; writes];
                    fates[at] = if base == Fate::Lost { Fate::Whole } else { Fate::Lost };
                    fates
                }));
            }
        }
        if care == Care::Much {
            all.extend((0..writes).map(|at| {
                let mut fates: Vec<Fate> = disk.draw_fates(&mut rng);
                fates[at] = Fate::Torn(rng.next_u64() as u8);
                fates
            }));
        }
        all.extend((0..2).map(|_| disk.draw_fates(&mut rng)));
        for fates in all {
            let name = (self.world.disk.name_of(&fates), self.acknowledged, self.jobs.len());
            if !self.judged.insert(name) {
                continue;
            }
            let image = self.world.disk.crash(&fates, rng.fork());
            if self.options.rot {
                self.judge_damaged(&image, candidates, &mut rng)?;
            }
            self.check_image(image, candidates)?;
        }
        Ok(())
    }

    /// Sometimes the power fails again while the mount recovers, and sometimes requests of that mount fail, or its memory.
    fn recover_with_cuts(&mut self, mut image: CrashDisk, state: &State, rng: &mut Rng) -> Check<CrashDisk> {
        let only = [state.clone()];
        let Self { options, .. } = *self;
        while rng.one_in(3) {
            self.tally.recovery_cuts += 1;
            image.set_fuse(rng.below(60));
            if rng.one_in(2) {
                image.set_failing(options.failing / 4);
            }
            let mut world = SimWorld::new(image, MEMORY, rng.fork());
            if options.memory && rng.one_in(2) {
                world.memory.fail_at(rng.below(60), 1 + rng.below(20));
                own::fail_at(rng.below(300));
            }
            let mounted = {
                let _tried = Tried::begin();
                (options.subject.mount)(&mut world, MountMode::ReadWrite)
            };
            match mounted {
                Err(MountError::Disk | MountError::Recovery(Failure::Disk)) if options.failing != 0 => {}
                Err(MountError::Memory | MountError::Recovery(Failure::Memory) | MountError::TooLarge { .. })
                    if options.memory => {}
                Err(error) => return Err(format!("mount again: {error:?}")),
                Ok(_) => {}
            }
            self.tally.refused_pages += world.memory.refused;
            let cut = world.disk.take_blown();
            let cut = cut.as_deref().unwrap_or(&world.disk);
            image = cut.crash(&cut.draw_fates(rng), rng.fork());
            self.check_image(image.crash(&[], rng.fork()), &only)?;
        }
        Ok(image)
    }

    /// Mounts a disk and goes on with the durable state.
    pub(super) fn mount_again(&mut self, disk: CrashDisk) -> Check<MountReport> {
        let mut world = SimWorld::new(disk, MEMORY, self.rng.fork());
        let (store, report) = self.options.mount(&mut world, MountMode::ReadWrite)?;
        if report.first_slot < self.next_slot {
            return Err("slot numbers would be issued again".into());
        }
        let is_cheap = self.options.rot;
        judge_start(&store, &mut world, &self.durable)?;
        world.run_max = *self.rng.pick(&RUNS);
        world.disk.set_failing(self.options.failing);
        self.next_slot = report.first_slot;
        self.tally.refused_pages += self.world.memory.refused;
        self.world = world;
        (self.generation, self.blocks) = (store.stats().generation, store.stats().blocks);
        self.store = store;
        self.live = self.durable.clone();
        self.stored = self.durable.clone();
        self.jobs.clear();
        (self.bare, self.last_ticket) = (None, store::Ticket(0));
        self.maybe.clear();
        self.dirty.clear();
        self.in_flight.clear();
        self.returned.clear();
        self.reading.clear();
        self.unusable.clear();
        self.reusable.clear();
        self.judged.clear();
        self.snapshots_at_start();
        if !is_cheap {
            self.judge_balance()?;
        }
        Ok(report)
    }

    /// Mounts an image read-only; it must be sound and show one of the candidates. Gives that.
    pub(super) fn check_image(&mut self, image: CrashDisk, candidates: &[State]) -> Check<State> {
        self.tally.states += 1;
        let copy = image.crash(&[], Rng::new(1));
        let mut world = SimWorld::new(image, MEMORY, Rng::new(0));
        let (mut store, report) = self.options.mount(&mut world, MountMode::ReadOnly)?;
        self.tally.replayed += u64::from(report.replayed);
        self.tally.tails += u64::from(report.tail.is_some());
        let (found, lost) = show(&mut store, &mut world, &candidates.iter().collect::<Vec<_>>())?;
        if !lost.is_empty() {
            return Err(format!("rows cannot be read: {lost:x?}"));
        }
        let found = whole(found).map_err(|what| format!("{what}; {report:?}"))?;
        if !candidates.contains(&found) {
            let nearest: Vec<String> = candidates.iter().map(|state| difference(state, &found)).collect();
            return Err(format!(
                "after a crash none of {} states: {nearest:?}; {report:?}",
                candidates.len()
            ));
        }
        self.judge_names(&found)?;
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
        let there = self.judge_list(&store)?;
        store.dismantle(&mut world);
        if world.memory.used() != 0 {
            return Err(format!("{} frames leaked", world.memory.used()));
        }
        if self.tally.states.is_multiple_of(7) {
            for text in there {
                self.judge_snapshot(copy.crash(&[], Rng::new(1)), &text)?;
            }
        }
        Ok(found)
    }
}

/// The objects of the syncs that went ahead of a checkpoint, as they are once that is durable, too.
fn with_it<'a>(syncs: impl Iterator<Item = &'a Job>) -> Vec<&'a Objects> {
    let ahead = syncs.filter(|job| job.ahead().is_some());
    ahead.filter_map(Job::objects).collect()
}

/// A state with the first few of the syncs under way, and those with some that failed and were begun one behind the other.
fn enter_some(state: &State, failed: &[&Objects], under_way: &[&Objects], all: &mut Vec<State>) {
    for first in 0..=failed.len() {
        let mut state = state.clone();
        for objects in failed[first..].iter().chain(under_way) {
            enter(objects, &mut state);
            all.push(state.clone());
        }
    }
}

/// A store that has just recovered is sound, and has contents for the pages of the state and for no others.
fn judge_start(store: &Store, world: &mut SimWorld, state: &State) -> Check {
    let mut findings = Vec::new();
    let verified = store
        .verify(world, &mut |finding| findings.push(finding))
        .map_err(|error| format!("verify behind the start: {error:?}"))?;
    if !findings.is_empty() {
        return Err(format!("verify behind the start: {findings:?}"));
    }
    let pages = state.values().flat_map(|object| object.pages.values());
    let pages = pages.filter(|page| page.stamp != 0).count() as u64;
    if verified.pages != pages {
        return Err(format!(
            "{} pages have contents, and {pages} were written",
            verified.pages
        ));
    }
    Ok(())
}

/// The state that a store shows, as far as the candidates know of pages; and the ranges of addresses of which it says that nothing can be known.
pub(in crate::lab) fn show(
    store: &mut Store,
    world: &mut SimWorld,
    candidates: &[&State],
) -> Check<(Shown, Vec<(u64, u64)>)> {
    let mut found = Shown::new();
    let (records, lost) = all_records(store, world)?;
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
            let contents = read(store, world, base, page)?;
            if contents != Ok(Page::default()) {
                pages.insert(page, contents);
            }
        }
        found.insert(base, (record, pages));
    }
    Ok((found, lost))
}

fn read(store: &mut Store, world: &mut SimWorld, base: u64, page: u64) -> Check<Result<Page, BadPage>> {
    match store.read_page(world, base, page) {
        ReadStart::Zero(flags) => {
            return Ok(Ok(Page {
                stamp: 0,
                flags: flags.unwrap_or_default(),
            }));
        }
        ReadStart::NoMemory => return Err("no heap".into()),
        ReadStart::Reading => {}
    }
    loop {
        match store.poll(world) {
            Some(Event::PageRead { frame, flags, .. }) => {
                let stamp = stamp_of(world.bytes(frame)).ok_or("a page is garbage")?;
                world.free(frame);
                return Ok(Ok(Page { stamp, flags }));
            }
            Some(Event::PageBad { reason, .. }) => return Ok(Err(reason)),
            Some(Event::Damaged { .. }) => {}
            Some(other) => return Err(format!("reading {base:#x}+{page}: {other:?}")),
            None if world.step() => {}
            None => return Err(format!("the read of {base:#x}+{page} waits for nothing")),
        }
    }
}

/// The state that is shown, if all of it could be read.
pub(super) fn whole(shown: Shown) -> Check<State> {
    let objects = shown.into_iter().map(|(base, (record, pages))| {
        let pages = pages.into_iter().map(|(page, contents)| {
            let contents = contents.map_err(|reason| format!("page {base:#x}+{page} is bad: {reason:?}"));
            contents.map(|contents| (page, contents))
        });
        let pages: Check<_> = pages.collect();
        pages.map(|pages| (base, Object { record, pages }))
    });
    objects.collect()
}

fn stamp_of(bytes: &[u8; BLOCK]) -> Option<u64> {
    let first = u64::from_le_bytes(bytes[..8].try_into().ok()?);
    // The inverse of the factor in `fill`, modulo 2^64.
    let stamp = first.wrapping_mul(0xf1de_83e1_9937_733d);
    is_filled(stamp, bytes).then_some(stamp)
}

pub(in crate::lab) fn difference(wanted: &State, found: &State) -> String {
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
