//! A random life of a store, with crashes, beside the model.
//!
//! The driver plays the server: it changes objects and pages, keeps dirty pages in "memory",
//! begins checkpoints and syncs, and takes up events. Beside the state as it is (`live`) it keeps
//! the state as the store alone would show it (`stored`, without dirty pages), the last durable
//! state, and the jobs begun since. After a crash the store must show the durable state, or that
//! with the first few of the jobs on top: nothing acknowledged is lost, nothing is half.

use crate::model::{Job, Object, Page, State, fill, is_filled};
use sim::disk::{CrashDisk, Fate};
use sim::rng::Rng;
use sim::world::SimWorld;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::{
    BLOCK, BadPage, Breaks, CheckpointKind, DirtyPage, Event, Failure, FormatOptions, Frame, MountMode, MountReport, ObjectRecord,
    PageFlags, Pages, PdxRecord, PutError, ReadStart, Store, Ticket,
};

/// What a run does.
#[derive(Copy, Clone)]
pub struct Options {
    pub breaks: Breaks,
    /// Blocks of the disk.
    pub blocks: u64,
    /// Steps of the workload.
    pub steps: u64,
    /// One request in so many fails; zero for none.
    pub failing: u64,
}

/// What a run saw; to know that the tests test something.
#[derive(Default, Debug, Clone)]
pub struct Tally {
    pub crashes: u64,
    pub images: u64,
    pub checkpoints: u64,
    pub failed_checkpoints: u64,
    pub syncs: u64,
    pub refused_syncs: u64,
    pub failed_syncs: u64,
    pub replayed: u64,
    pub tails: u64,
    pub reads: u64,
    pub disk_full: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.crashes += other.crashes;
        self.images += other.images;
        self.checkpoints += other.checkpoints;
        self.failed_checkpoints += other.failed_checkpoints;
        self.syncs += other.syncs;
        self.refused_syncs += other.refused_syncs;
        self.failed_syncs += other.failed_syncs;
        self.replayed += other.replayed;
        self.tails += other.tails;
        self.reads += other.reads;
        self.disk_full += other.disk_full;
    }
}

type Check<T = ()> = Result<T, String>;
type PageName = (u64, u64);

const SLOT: u64 = 2 << 20;
const MEMORY: usize = 2000;
/// Below this many volatile writes every subset is tried.
const EXHAUSTIVE: usize = 5;

/// A page that the store is writing.
struct InFlight {
    frame: Frame,
    /// The sync it belongs to, if it is one.
    job: Option<Ticket>,
    written: Page,
    /// What the store showed before.
    before: Page,
}

struct Driver {
    rng: Rng,
    options: Options,
    world: SimWorld,
    store: Store,
    live: State,
    stored: State,
    durable: State,
    jobs: VecDeque<Job>,
    /// Jobs that failed and may be durable all the same.
    maybe: Vec<Job>,
    dirty: BTreeSet<PageName>,
    in_flight: BTreeMap<PageName, InFlight>,
    /// Pages that came back and whose job is not done.
    returned: Vec<(PageName, InFlight)>,
    /// Reads under way, with what they should give; nothing once the page has changed.
    reading: BTreeMap<PageName, Option<Page>>,
    unusable: BTreeSet<u64>,
    next_slot: u64,
    next_stamp: u64,
    tally: Tally,
}

fn mount(world: &mut SimWorld, mode: MountMode, breaks: Breaks) -> Check<(Store, MountReport)> {
    Store::mount_broken(world, mode, breaks).map_err(|error| format!("mount ({mode:?}): {error:?}"))
}

/// Lives one life.
pub fn run(seed: u64, options: Options) -> Check<Tally> {
    let mut rng = Rng::new(seed);
    let disk = CrashDisk::new(options.blocks, rng.fork());
    let mut world = SimWorld::new(disk, MEMORY, rng.fork());
    let journal_blocks = Some(4 + rng.below(20) as u32);
    Store::format(&mut world, &FormatOptions { journal_blocks, first_slot: 8, ..FormatOptions::default() })
        .map_err(|error| format!("format: {error:?}"))?;
    let (store, report) = mount(&mut world, MountMode::ReadWrite, options.breaks)?;
    world.disk.set_failing(options.failing);
    let mut driver = Driver {
        rng,
        options,
        world,
        store,
        live: State::new(),
        stored: State::new(),
        durable: State::new(),
        jobs: VecDeque::new(),
        maybe: Vec::new(),
        dirty: BTreeSet::new(),
        in_flight: BTreeMap::new(),
        returned: Vec::new(),
        reading: BTreeMap::new(),
        unusable: BTreeSet::new(),
        next_slot: report.first_slot,
        next_stamp: 1,
        tally: Tally::default(),
    };
    for step in 0..options.steps {
        driver.step().map_err(|what| format!("step {step}: {what}"))?;
    }
    driver.crash()?;
    Ok(driver.tally)
}

impl Driver {
    fn step(&mut self) -> Check {
        match self.rng.below(100) {
            0..6 => self.create(),
            6..38 => self.write(),
            38..40 => self.delete(),
            40..44 => self.change_record(),
            44..49 => self.discard(),
            49..52 => self.limit(),
            52..54 => self.resize(),
            54..64 => self.sync(),
            64..68 => self.checkpoint(CheckpointKind::Periodic),
            68..76 => self.read(),
            76..95 => self.run_disk(),
            95 => self.shrink(),
            96 => self.restart(),
            _ => {
                if self.rng.one_in(3) {
                    self.crash()
                } else {
                    Ok(())
                }
            }
        }?;
        self.events()
    }

    // ---- changes

    fn any_object(&mut self) -> Option<u64> {
        let bases: Vec<u64> = self.live.keys().copied().collect();
        (!bases.is_empty()).then(|| *self.rng.pick(&bases))
    }

    fn any_page(&mut self, base: u64) -> u64 {
        let object = &self.live[&base];
        let known: Vec<u64> = object.pages.keys().copied().collect();
        if !known.is_empty() && self.rng.one_in(2) {
            return *self.rng.pick(&known);
        }
        let pages = object.record.pages;
        let reach = if self.rng.one_in(4) { pages } else { pages.min(12) };
        self.rng.below(reach)
    }

    fn body(&mut self, record: &mut ObjectRecord) {
        let many = if self.rng.one_in(6) { 128 } else { 4 };
        let count = self.rng.below(many + 1);
        record.capabilities = (0..count).map(|_| (self.rng.next_u64(), 15)).collect();
        let calls = if self.rng.one_in(8) { self.rng.below(4) } else { 0 };
        record.pdx = (0..calls)
            .map(|_| PdxRecord { password: self.rng.next_u64(), clist: 0, entries: vec![7; self.rng.below(193) as usize] })
            .collect();
    }

    fn create(&mut self) -> Check {
        if self.live.len() > 14 || self.next_slot >= self.store.lease() {
            return Ok(());
        }
        let pages = *self.rng.pick(&[1, 1, 3, 20, 300, 70_000]);
        let mut record =
            ObjectRecord { base: self.next_slot * SLOT, pages, tag: self.rng.next_u64(), ..ObjectRecord::default() };
        self.next_slot += (pages * BLOCK as u64).div_ceil(SLOT);
        self.store.raise_high_water(self.next_slot);
        self.body(&mut record);
        match self.store.put_object(&record) {
            Ok(()) => {
                let object = Object { record: record.clone(), pages: BTreeMap::new() };
                self.stored.insert(record.base, object.clone());
                self.live.insert(record.base, object);
            }
            Err(PutError::DiskFull) => self.tally.disk_full += 1,
            Err(error) => return Err(format!("put {record:?}: {error:?}")),
        }
        Ok(())
    }

    fn change_record(&mut self) -> Check {
        let Some(base) = self.any_object() else { return Ok(()) };
        let mut record = self.live[&base].record.clone();
        self.body(&mut record);
        record.modified_ns = self.rng.next_u64();
        match self.store.put_object(&record) {
            Ok(()) => self.set_record(base, &record),
            Err(PutError::DiskFull) => self.tally.disk_full += 1,
            Err(error) => return Err(format!("change {record:?}: {error:?}")),
        }
        // Revocation is synced with no pages.
        if self.rng.one_in(2) { self.begin_sync(Vec::new(), &[base]) } else { Ok(()) }
    }

    fn set_record(&mut self, base: u64, record: &ObjectRecord) {
        for state in [&mut self.live, &mut self.stored] {
            if let Some(object) = state.get_mut(&base) {
                object.record = record.clone();
            }
        }
    }

    fn resize(&mut self) -> Check {
        let Some(base) = self.any_object() else { return Ok(()) };
        let mut record = self.live[&base].record.clone();
        // Within the slots it has.
        let slots = (record.pages * BLOCK as u64).div_ceil(SLOT);
        let pages = 1 + self.rng.below(slots * SLOT / BLOCK as u64);
        match self.store.resize(base, pages) {
            Ok(()) => {
                let old = record.pages;
                record.pages = pages;
                self.set_record(base, &record);
                self.forget(base, pages, old);
            }
            Err(PutError::DiskFull) => self.tally.disk_full += 1,
            Err(error) => return Err(format!("resize {base:#x} to {pages}: {error:?}")),
        }
        Ok(())
    }

    /// Pages of a range are zero from now on.
    fn forget(&mut self, base: u64, start: u64, end: u64) {
        for state in [&mut self.live, &mut self.stored] {
            if let Some(object) = state.get_mut(&base) {
                object.pages.retain(|page, _| !(start..end).contains(page));
            }
        }
        let gone: Vec<PageName> =
            self.dirty.iter().filter(|name| name.0 == base && (start..end).contains(&name.1)).copied().collect();
        for name in gone {
            self.dirty.remove(&name);
            self.store.unreserve(name.0, name.1);
        }
        let returned = self.returned.iter_mut().map(|(name, flight)| (&*name, flight));
        for (name, flight) in self.in_flight.iter_mut().chain(returned) {
            if name.0 == base && (start..end).contains(&name.1) {
                flight.before = Page::default();
                flight.written = Page::default();
            }
        }
        for (name, wanted) in &mut self.reading {
            if name.0 == base && (start..end).contains(&name.1) {
                *wanted = None;
            }
        }
    }

    fn delete(&mut self) -> Check {
        let Some(base) = self.any_object() else { return Ok(()) };
        self.forget(base, 0, u64::MAX);
        self.live.remove(&base);
        self.stored.remove(&base);
        self.unusable.insert(base);
        self.store.delete_object(base).map_err(|_| format!("delete {base:#x}: no object"))?;
        if self.rng.one_in(3) { self.begin_sync(Vec::new(), &[base]) } else { Ok(()) }
    }

    fn write(&mut self) -> Check {
        let Some(base) = self.any_object() else { return Ok(()) };
        for _ in 0..=self.rng.below(4) {
            let page = self.any_page(base);
            if self.store.reserve(base, page).is_err() {
                self.tally.disk_full += 1;
                return Ok(());
            }
            self.reading.entry((base, page)).and_modify(|wanted| *wanted = None);
            let flags = PageFlags::from_bits_retain(self.rng.below(8) as u16);
            let contents = Page { stamp: self.next_stamp, flags };
            self.next_stamp += 1;
            if let Some(object) = self.live.get_mut(&base) {
                object.pages.insert(page, contents);
            }
            self.dirty.insert((base, page));
        }
        Ok(())
    }

    fn discard(&mut self) -> Check {
        let Some(base) = self.any_object() else { return Ok(()) };
        let start = self.any_page(base);
        let end = if self.rng.one_in(4) { u64::MAX } else { start + 1 + self.rng.below(5) };
        if self.store.discard_pages(base, start, end).is_err() {
            self.tally.disk_full += 1;
            return Ok(());
        }
        self.forget(base, start, end);
        Ok(())
    }

    fn limit(&mut self) -> Check {
        let Some(base) = self.any_object() else { return Ok(()) };
        let page = self.any_page(base);
        let name = (base, page);
        if self.dirty.contains(&name) || self.in_flight.contains_key(&name) || self.is_returned(name) {
            return Ok(());
        }
        let flags = PageFlags::from_bits_retain(1 + self.rng.below(7) as u16);
        if self.store.set_page_flags(base, page, flags).is_err() {
            self.tally.disk_full += 1;
            return Ok(());
        }
        for state in [&mut self.live, &mut self.stored] {
            if let Some(object) = state.get_mut(&base) {
                object.pages.entry(page).or_default().flags = flags;
            }
        }
        self.reading.entry(name).and_modify(|wanted| *wanted = None);
        Ok(())
    }

    fn is_returned(&self, name: PageName) -> bool {
        self.returned.iter().any(|(other, ..)| *other == name)
    }

    // ---- durability

    /// Hands a dirty page over.
    fn hand_over(&mut self, name: PageName) -> Option<DirtyPage> {
        let frame = self.world.alloc()?;
        let contents = self.live[&name.0].pages[&name.1];
        fill(contents.stamp, self.world.bytes_mut(frame));
        self.dirty.remove(&name);
        let shown = self.stored.get_mut(&name.0)?.pages.insert(name.1, contents).unwrap_or_default();
        self.in_flight.insert(name, InFlight { frame, job: None, written: contents, before: shown });
        Some(DirtyPage { base: name.0, page: name.1, frame, flags: contents.flags })
    }

    fn checkpoint(&mut self, kind: CheckpointKind) -> Check {
        // A page may be dirty and in flight at once; the driver waits rather than keep two frames.
        if self.dirty.iter().any(|name| self.in_flight.contains_key(name) || self.is_returned(*name)) {
            return Ok(());
        }
        if self.jobs.iter().any(|job| matches!(job, Job::Checkpoint(_))) {
            return match self.store.checkpoint_begin(&mut self.world, Vec::new(), kind) {
                Err(_) => Ok(()),
                Ok(()) => Err("a second checkpoint was taken".into()),
            };
        }
        let names: Vec<PageName> = self.dirty.iter().copied().collect();
        let pages = names.into_iter().filter_map(|name| self.hand_over(name)).collect();
        self.store.checkpoint_begin(&mut self.world, pages, kind).map_err(|_| "checkpoint: busy")?;
        self.jobs.push_back(Job::Checkpoint(self.live.clone()));
        if self.live != self.stored {
            return Err("the driver's own states differ".into());
        }
        Ok(())
    }

    fn sync(&mut self) -> Check {
        let Some(base) = self.any_object() else { return Ok(()) };
        let everything = self.rng.one_in(4);
        let names: Vec<PageName> = self
            .dirty
            .iter()
            .filter(|name| everything || name.0 == base)
            .filter(|name| !self.in_flight.contains_key(name) && !self.is_returned(**name))
            .copied()
            .collect();
        let names: Vec<PageName> = names.into_iter().filter(|_| !self.rng.one_in(5)).collect();
        self.begin_sync(names, &[base])
    }

    fn begin_sync(&mut self, names: Vec<PageName>, named: &[u64]) -> Check {
        let touched: BTreeSet<u64> = names.iter().map(|name| name.0).chain(named.iter().copied()).collect();
        let pages: Vec<DirtyPage> = names.into_iter().filter_map(|name| self.hand_over(name)).collect();
        let handed: Vec<PageName> = pages.iter().map(|page| (page.base, page.page)).collect();
        let ticket = self.store.sync_begin(&mut self.world, pages, named);
        for name in handed {
            if let Some(flight) = self.in_flight.get_mut(&name) {
                flight.job = Some(ticket);
            }
        }
        let objects = touched.into_iter().map(|base| (base, self.stored.get(&base).cloned())).collect();
        self.jobs.push_back(Job::Sync(ticket, objects));
        Ok(())
    }

    fn run_disk(&mut self) -> Check {
        for _ in 0..self.rng.below(30) {
            if !self.world.step() {
                break;
            }
            if self.rng.one_in(2) {
                self.events()?;
            }
        }
        Ok(())
    }

    fn shrink(&mut self) -> Check {
        self.store.shrink(&mut self.world, 1000);
        Ok(())
    }

    // ---- reading

    fn read(&mut self) -> Check {
        let Some(base) = self.any_object() else { return Ok(()) };
        let page = self.any_page(base);
        let name = (base, page);
        let in_memory = self.dirty.contains(&name) || self.in_flight.contains_key(&name) || self.is_returned(name);
        if in_memory || self.reading.contains_key(&name) {
            return Ok(());
        }
        let wanted = self.live[&base].pages.get(&page).copied().unwrap_or_default();
        match self.store.read_page(&mut self.world, base, page) {
            ReadStart::Zero(flags) if wanted.stamp == 0 && flags.unwrap_or_default() == wanted.flags => {}
            ReadStart::Zero(flags) => return Err(format!("page {base:#x}+{page} is zero {flags:?}, not {wanted:?}")),
            ReadStart::Reading => {
                self.reading.insert(name, Some(wanted));
            }
        }
        self.tally.reads += 1;
        Ok(())
    }

    // ---- events

    fn events(&mut self) -> Check {
        while let Some(event) = self.store.poll(&mut self.world) {
            self.event(event)?;
        }
        Ok(())
    }

    fn event(&mut self, event: Event) -> Check {
        match event {
            Event::PageRead { base, page, frame, flags } => {
                let wanted = self.reading.remove(&(base, page)).ok_or("a page was read that was not asked for")?;
                let right = wanted.is_none_or(|wanted| {
                    is_filled(wanted.stamp, self.world.bytes(frame)) && flags == wanted.flags
                });
                self.world.free(frame);
                if !right {
                    return Err(format!("page {base:#x}+{page} was read wrong"));
                }
            }
            Event::PageBad { base, page, reason } => {
                let expected = self.reading.remove(&(base, page)).flatten().is_none();
                let excused = self.options.failing != 0 && reason == BadPage::Disk;
                if !expected && !excused {
                    return Err(format!("page {base:#x}+{page} is bad: {reason:?}"));
                }
            }
            Event::PageWritten { base, page, frame } => {
                let name = (base, page);
                let flight = self.in_flight.remove(&name).ok_or("a page came back that was not away")?;
                if flight.frame != frame {
                    return Err("another frame came back".into());
                }
                self.world.free(frame);
                self.returned.push((name, flight));
            }
            Event::CheckpointDone { deleted, .. } => {
                self.tally.checkpoints += 1;
                deleted.iter().for_each(|base| {
                    self.unusable.remove(base);
                });
                self.done(|job| matches!(job, Job::Checkpoint(_)))?;
                self.maybe.clear();
            }
            Event::SyncDone(ticket) => {
                self.tally.syncs += 1;
                self.done(|job| matches!(job, Job::Sync(other, _) if *other == ticket))?;
            }
            Event::CheckpointFailed { reason } => {
                self.tally.failed_checkpoints += 1;
                self.failed(|job| matches!(job, Job::Checkpoint(_)), reason)?;
            }
            Event::SyncFailed(ticket, reason) => {
                self.tally.failed_syncs += 1;
                self.failed(|job| matches!(job, Job::Sync(other, _) if *other == ticket), reason)?;
            }
            Event::SyncNeedsCheckpoint(ticket) => {
                self.tally.refused_syncs += 1;
                self.jobs.retain(|job| !matches!(job, Job::Sync(other, _) if *other == ticket));
                self.revert(Some(ticket));
            }
            Event::Damaged { structure, block } => return Err(format!("{structure:?} damaged at {block}")),
        }
        Ok(())
    }

    fn done(&mut self, is_it: impl Fn(&Job) -> bool) -> Check {
        let first = self.jobs.pop_front().ok_or("something is done that was not begun")?;
        if !is_it(&first) {
            return Err("jobs are done out of order".into());
        }
        first.apply(&mut self.durable);
        // Nothing that failed before may show behind what is acknowledged now.
        self.maybe.clear();
        self.returned.retain(|(_, flight)| flight.job != first.ticket());
        Ok(())
    }

    fn failed(&mut self, is_it: impl Fn(&Job) -> bool, reason: Failure) -> Check {
        if self.options.failing == 0 {
            return Err(format!("something failed ({reason:?}) on a good disk"));
        }
        let at = self.jobs.iter().position(is_it).ok_or("something failed that was not begun")?;
        if let Some(job) = self.jobs.remove(at) {
            self.revert(job.ticket());
            self.maybe.push(job);
        }
        Ok(())
    }

    /// The pages of a job are dirty again, unless they were discarded meanwhile.
    fn revert(&mut self, job: Option<Ticket>) {
        for (name, flight) in self.returned.extract_if(.., |(_, flight)| flight.job == job) {
            if flight.written == Page::default() {
                continue;
            }
            if let Some(object) = self.stored.get_mut(&name.0) {
                if flight.before == Page::default() {
                    object.pages.remove(&name.1);
                } else {
                    object.pages.insert(name.1, flight.before);
                }
                self.dirty.insert(name);
            }
        }
    }

    // ---- crashes

    /// The states that a mount may show.
    fn candidates(&self) -> Vec<State> {
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
    fn restart(&mut self) -> Check {
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
        let disk = self.world.disk.crash(&vec![Fate::Lost; self.world.disk.volatile_len()], self.rng.fork());
        let report = self.mount_again(disk)?;
        if !report.clean || report.first_slot != expected {
            return Err(format!("not clean: {report:?}"));
        }
        Ok(())
    }

    /// Until nothing is under way.
    fn settle(&mut self) -> Check {
        self.events()?;
        while self.world.step() {
            self.events()?;
        }
        if self.store.is_idle() { Ok(()) } else { Err("the store waits for nothing".into()) }
    }

    fn crash(&mut self) -> Check {
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
        // Sometimes the power fails again while the mount recovers.
        while rng.one_in(3) {
            image.set_fuse(rng.below(30));
            let mut world = SimWorld::new(image, MEMORY, rng.fork());
            mount(&mut world, MountMode::ReadWrite, self.options.breaks)?;
            let Some(blown) = world.disk.take_blown() else {
                image = world.disk.crash(&[], rng.fork());
                break;
            };
            image = blown.crash(&blown.draw_fates(&mut rng), rng.fork());
            let only = [self.durable.clone()];
            self.check_image(image.crash(&[], rng.fork()), &only)?;
        }
        self.options.failing = failing;
        self.mount_again(image)?;
        Ok(())
    }

    /// Mounts a disk and goes on with the durable state.
    fn mount_again(&mut self, disk: CrashDisk) -> Check<MountReport> {
        let mut world = SimWorld::new(disk, MEMORY, self.rng.fork());
        let (store, report) = mount(&mut world, MountMode::ReadWrite, self.options.breaks)?;
        if report.first_slot < self.next_slot {
            return Err("slot numbers would be issued again".into());
        }
        world.disk.set_failing(self.options.failing);
        self.next_slot = report.first_slot;
        self.world = world;
        self.store = store;
        self.live = self.durable.clone();
        self.stored = self.durable.clone();
        self.jobs.clear();
        self.maybe.clear();
        self.dirty.clear();
        self.in_flight.clear();
        self.returned.clear();
        self.reading.clear();
        Ok(report)
    }

    /// Mounts an image read-only; it must be sound and show one of the candidates. Gives that.
    fn check_image(&mut self, image: CrashDisk, candidates: &[State]) -> Check<State> {
        self.tally.images += 1;
        let mut world = SimWorld::new(image, MEMORY, Rng::new(0));
        let (mut store, report) = mount(&mut world, MountMode::ReadOnly, self.options.breaks)?;
        self.tally.replayed += u64::from(report.replayed);
        self.tally.tails += u64::from(report.tail.is_some());
        let found = show(&mut store, &mut world, candidates)?;
        if !candidates.contains(&found) {
            let nearest: Vec<String> = candidates.iter().map(|state| difference(state, &found)).collect();
            return Err(format!("after a crash none of {} states: {nearest:?}; {report:?}", candidates.len()));
        }
        let mut findings = Vec::new();
        store.verify(&mut world, &mut |finding| findings.push(finding)).map_err(|error| format!("verify: {error:?}"))?;
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
                ReadStart::Zero(flags) => Page { stamp: 0, flags: flags.unwrap_or_default() },
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
                let page = names.into_iter().find(|page| object.pages.get(page) != other.pages.get(page));
                return format!("{base:#x} page {page:?}: wanted {:?}, found {:?}", page.map(|p| object.pages.get(p)), page.map(|p| other.pages.get(p)));
            }
            Some(_) => {}
        }
    }
    found.keys().find(|base| !wanted.contains_key(base)).map_or(String::new(), |base| format!("{base:#x} should be gone"))
}
