//! Checkpoints and syncs, reads, and what the store says of them.

use super::{Check, Driver, InFlight, PageName};
use crate::lab::model::{Job, Page, State, enter, fill, is_filled};
use std::collections::BTreeSet;
use store::{
    BadPage, Budget, CheckpointKind, DirtyPage, Event, Failure, Frame, Look, NotBegun, Pages, ReadStart, Store, Ticket,
};

/// Whether pages were handed over for a sync, or for a checkpoint.
#[derive(Copy, Clone, PartialEq, Eq)]
enum IsSync {
    Yes,
    No,
}

impl Driver {
    /// Hands a dirty page over.
    pub(super) fn hand_over(&mut self, name: PageName) -> Option<DirtyPage> {
        let frame = self.world.memory.take()?;
        let contents = self.live[&name.0].pages[&name.1];
        fill(contents.stamp, self.world.bytes_mut(frame));
        self.dirty.remove(&name);
        let [before, bare_before] = [Some(&mut self.stored), self.bare.as_mut()].map(|state| {
            let object = state.and_then(|state| state.get_mut(&name.0));
            let before = object.and_then(|object| object.pages.insert(name.1, contents));
            before.unwrap_or_default()
        });
        let flight = InFlight {
            frame,
            job: None,
            written: contents,
            before,
            bare_before,
        };
        self.in_flight.push((name, flight));
        Some(DirtyPage {
            base: name.0,
            page: name.1,
            frame,
            flags: contents.flags,
        })
    }

    pub(in crate::lab) fn checkpoint(&mut self, kind: CheckpointKind) -> Check {
        // A page may be dirty and in flight at once; the driver waits rather than keep two frames.
        if self.dirty.iter().any(|name| self.is_away(*name)) {
            return Ok(());
        }
        if self.jobs.iter().any(|job| matches!(job, Job::Checkpoint(..))) {
            if self.store.is_ready() {
                // It is over, and its event is still to come.
                return Ok(());
            }
            return match self.store.checkpoint_begin(&mut self.world, Vec::new(), kind) {
                Err(_) => Ok(()),
                Ok(()) => Err("a second checkpoint was taken".into()),
            };
        }
        if !self.store.is_ready() {
            return Ok(());
        }
        let names: Vec<PageName> = self.dirty.iter().copied().collect();
        let bare = self.stored.clone();
        let pages: Vec<DirtyPage> = names.into_iter().filter_map(|name| self.hand_over(name)).collect();
        let handed: Vec<Frame> = pages.iter().map(|page| page.frame).collect();
        match self.tried(|store, world| store.checkpoint_begin(world, pages, kind)) {
            Ok(()) => {}
            Err(NotBegun::Memory) if self.options.memory => {
                self.take_back(&handed, IsSync::No);
                return Ok(());
            }
            Err(error) => return Err(format!("checkpoint: {error:?}")),
        }
        self.jobs
            .push_back(Job::Checkpoint(self.live.clone(), self.last_ticket));
        self.bare = Some(bare);
        self.snapshot_begins();
        if self.live != self.stored {
            return Err("the driver's own states differ".into());
        }
        Ok(())
    }

    pub(super) fn sync(&mut self) {
        let Some(base) = self.any_object() else { return };
        let everything = self.rng.one_in(4);
        let names: Vec<PageName> = self
            .dirty
            .iter()
            .filter(|name| (everything || name.0 == base) && !self.is_directory(name.0))
            .filter(|name| !self.is_syncing(**name))
            .copied()
            .collect();
        let names: Vec<PageName> = names.into_iter().filter(|_| !self.rng.one_in(5)).collect();
        self.begin_sync(names, &[base]);
    }

    pub(in crate::lab) fn begin_sync(&mut self, names: Vec<PageName>, named: &[u64]) {
        let touched: BTreeSet<u64> = names.iter().map(|name| name.0).chain(named.iter().copied()).collect();
        for &base in &touched {
            self.hold(base);
        }
        let pages: Vec<DirtyPage> = names.into_iter().filter_map(|name| self.hand_over(name)).collect();
        let handed: Vec<Frame> = pages.iter().map(|page| page.frame).collect();
        let begun = self.tried(|store, world| store.sync_begin(world, pages, named));
        if begun.is_err() && self.options.memory {
            self.take_back(&handed, IsSync::Yes);
            return;
        }
        let ticket = begun.expect("heap");
        for (_, flight) in &mut self.in_flight {
            if handed.contains(&flight.frame) {
                flight.job = Some(ticket);
            }
        }
        let objects_of = |state: &State| touched.iter().map(|&base| (base, state.get(&base).cloned())).collect();
        let ahead = self.bare.as_ref().map(objects_of);
        self.jobs.push_back(Job::Sync(ticket, objects_of(&self.stored), ahead));
        self.last_ticket = ticket;
    }

    pub(super) fn seal(&mut self) {
        if let Some(ticket) = self.store.seal(&mut self.world) {
            self.jobs.push_back(Job::Sync(ticket, Vec::new(), None));
            self.last_ticket = ticket;
        }
    }

    /// Pages that were handed over for a job that was not begun are dirty as before.
    fn take_back(&mut self, handed: &[Frame], is_sync: IsSync) {
        let flights = self
            .in_flight
            .extract_if(.., |(_, flight)| handed.contains(&flight.frame));
        let flights: Vec<_> = flights.collect();
        for (name, flight) in flights {
            self.world.free(flight.frame);
            self.take_page_back(name, &flight, is_sync);
        }
    }

    pub(super) fn run_disk(&mut self) -> Check {
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

    pub(super) fn shrink(&mut self) {
        while self.tried(Store::shrink) != Look::Over {}
    }

    pub(super) fn read(&mut self) -> Check {
        let Some(base) = self.any_object() else { return Ok(()) };
        let page = self.any_page(base);
        let name = (base, page);
        if self.dirty.contains(&name) || self.is_away(name) || self.reading.contains_key(&name) {
            return Ok(());
        }
        let wanted = self.live[&base].pages.get(&page).copied().unwrap_or_default();
        let most = if self.rng.one_in(2) { 1 } else { 2 + self.rng.below(15) };
        let behind = page + 1..page + most;
        // Each page is asked for once at a time.
        let most = if behind.clone().any(|page| self.reading.contains_key(&(base, page))) {
            1
        } else {
            most
        };
        let (start, count) = self.tried(|store, world| store.read_pages(world, base, page, most as usize));
        for page in behind.take(count) {
            let name = (base, page);
            let changes = self.dirty.contains(&name) || self.is_away(name);
            let wanted = self.live[&base].pages.get(&page).copied().unwrap_or_default();
            self.reading.insert(name, (!changes).then_some(wanted));
            self.tally.reads_ahead += 1;
        }
        match start {
            ReadStart::Zero(flags) if wanted.stamp == 0 && flags.unwrap_or_default() == wanted.flags => {}
            ReadStart::Zero(flags) => return Err(format!("page {base:#x}+{page} is zero {flags:?}, not {wanted:?}")),
            ReadStart::NoMemory if self.options.memory => {}
            ReadStart::NoMemory => return Err("no heap".into()),
            ReadStart::Reading => {
                self.reading.insert(name, Some(wanted));
            }
        }
        self.tally.reads += 1;
        Ok(())
    }

    /// A look at some blocks that nobody reads. One that fails twice would be blamed.
    pub(super) fn scrub(&mut self) {
        if self.options.failing == 0 {
            self.tally.scrubs += self.store.scrub_report().passes;
            self.store.scrub_begin();
            self.store.scrub_some(1 + self.rng.below(60));
        }
    }

    pub(in crate::lab) fn events(&mut self) -> Check {
        // Often in pieces, so that anything may come between two of them.
        let mut budget = match self.rng.below(3) {
            0 => Budget::ALL,
            1 => Budget::of(16_500),
            _ => Budget::of(self.rng.below(8_000)),
        };
        while let Some(event) = self.tried(|store, world| store.poll_within(world, &mut budget)) {
            self.event(&event)?;
        }
        Ok(())
    }

    pub(super) fn event(&mut self, event: &Event) -> Check {
        match *event {
            Event::PageRead {
                base,
                page,
                frame,
                flags,
            } => {
                let wanted = self
                    .reading
                    .remove(&(base, page))
                    .ok_or("a page was read that was not asked for")?;
                let right = wanted
                    .is_none_or(|wanted| is_filled(wanted.stamp, self.world.bytes(frame)) && flags == wanted.flags);
                self.world.free(frame);
                if !right {
                    return Err(format!("page {base:#x}+{page} was read wrong"));
                }
            }
            Event::PageBad { base, page, reason } => {
                let expected = self.reading.remove(&(base, page)).flatten().is_none();
                let of_disk = matches!(reason, BadPage::Disk | BadPage::Ahead);
                let excused = self.options.failing != 0 && of_disk || self.options.memory && reason == BadPage::Memory;
                if !expected && !excused {
                    return Err(format!("page {base:#x}+{page} is bad: {reason:?}"));
                }
            }
            Event::RowsRead { key } => self.rows_read(key),
            Event::PageWritten { base, page, frame } => {
                let name = (base, page);
                let mut flights = self.in_flight.iter();
                let at = flights.position(|(other, flight)| *other == name && flight.frame == frame);
                let (name, flight) = self.in_flight.remove(at.ok_or("a page came back that was not away")?);
                self.world.free(frame);
                self.returned.push((name, flight));
            }
            Event::CheckpointDone { generation } => {
                self.tally.small_checkpoints += u64::from(generation == self.generation);
                self.generation = generation;
                self.tally.checkpoints += 1;
                self.tally.mounted_growths += u64::from(self.store.stats().blocks > self.blocks);
                self.blocks = self.store.stats().blocks;
                while self.store.page_over().is_some() {}
                let store = &self.store;
                let durable = self.unusable.extract_if(.., |&base, _| !store.awaits_deletion(base));
                self.reusable.extend(durable);
                self.snapshot_ends(true)?;
                self.done(|job| matches!(job, Job::Checkpoint(..)))?;
                self.bare = None;
                self.jobs.iter_mut().for_each(Job::comes_behind);
            }
            Event::SyncDone(ticket) => {
                self.tally.syncs += 1;
                self.sync_done(ticket)?;
            }
            Event::CheckpointFailed { reason } => {
                self.tally.failed_checkpoints += 1;
                while self.store.page_over().is_some() {}
                self.snapshot_ends(false)?;
                self.failed(|job| matches!(job, Job::Checkpoint(..)), reason)?;
                self.bare = None;
            }
            Event::SyncFailed(ticket, reason) => {
                self.tally.failed_syncs += 1;
                self.failed(|job| job.ticket() == Some(ticket), reason)?;
            }
            Event::SyncNeedsCheckpoint(ticket) => {
                self.tally.refused_syncs += 1;
                self.jobs.retain(|job| job.ticket() != Some(ticket));
                self.revert(Some(ticket));
            }
            Event::Damaged { structure, block, .. } => return Err(format!("{structure:?} damaged at {block}")),
        }
        Ok(())
    }

    pub(super) fn done(&mut self, is_it: impl Fn(&Job) -> bool) -> Check {
        let first = self.jobs.pop_front().ok_or("something is done that was not begun")?;
        if !is_it(&first) {
            return Err("jobs are done out of order".into());
        }
        self.acknowledged += 1;
        self.note_history(self.durable.clone());
        first.apply(&mut self.durable);
        // Nothing that failed before may show behind what is acknowledged now.
        self.maybe.clear();
        self.snapshots_settle();
        self.returned.retain(|(_, flight)| flight.job != first.ticket());
        Ok(())
    }

    /// A sync is done, in its turn or ahead of the checkpoint before it.
    fn sync_done(&mut self, ticket: Ticket) -> Check {
        if !matches!(self.jobs.front(), Some(Job::Checkpoint(..))) {
            return self.done(|job| job.ticket() == Some(ticket));
        }
        let (Some(Job::Checkpoint(mut all, begun)), Some(Job::Sync(first, objects, Some(ahead)))) =
            (self.jobs.pop_front(), self.jobs.pop_front())
        else {
            return Err("a sync is done that was not begun behind the checkpoint".into());
        };
        if first != ticket {
            return Err("syncs are done out of order".into());
        }
        self.tally.syncs_ahead += 1;
        self.acknowledged += 1;
        self.note_history(self.durable.clone());
        enter(&ahead, &mut self.durable);
        // A disk that has lost the record behind the checkpoint shows that.
        self.note_history(all.clone());
        enter(&objects, &mut all);
        self.jobs.push_front(Job::Checkpoint(all, begun));
        self.maybe.clear();
        self.snapshots_settle();
        // Where the checkpoint has the same pages, its contents are older: they do not come back if it fails.
        let done: BTreeSet<PageName> = self
            .returned
            .extract_if(.., |(_, flight)| flight.job == Some(ticket))
            .map(|(name, _)| name)
            .collect();
        self.returned.retain(|(name, _)| !done.contains(name));
        for (name, flight) in &mut self.in_flight {
            if done.contains(name) {
                flight.written = Page::default();
            }
        }
        Ok(())
    }

    pub(super) fn failed(&mut self, is_it: impl Fn(&Job) -> bool, reason: Failure) -> Check {
        let excused = match reason {
            Failure::Disk => self.options.failing != 0,
            Failure::Memory => self.options.memory,
            _ => self.options.is_hard(),
        };
        if !excused {
            return Err(format!("something failed ({reason:?}) that had all it needs"));
        }
        let at = self
            .jobs
            .iter()
            .position(is_it)
            .ok_or("something failed that was not begun")?;
        if let Some(job) = self.jobs.remove(at) {
            self.revert(job.ticket());
            // Those that were written fail in the order in which they were begun: this one was refused before it was.
            let mut before = self.jobs.iter().take(at);
            if job.ticket().is_some() && before.any(|other| other.ticket().is_some()) {
                return Ok(());
            }
            // Syncs behind it that went ahead have failed before.
            let at = match &job {
                Job::Checkpoint(_, begun) => {
                    let mut failed = self.maybe.iter();
                    failed.position(|other| other.ticket().is_some_and(|ticket| ticket > *begun))
                }
                Job::Sync(..) => None,
            };
            self.maybe.insert(at.unwrap_or(self.maybe.len()), job);
        }
        Ok(())
    }

    /// The pages of a job are dirty again, unless they were discarded meanwhile.
    pub(super) fn revert(&mut self, job: Option<Ticket>) {
        let flights = self.returned.extract_if(.., |(_, flight)| flight.job == job);
        let flights: Vec<_> = flights.collect();
        let is_sync = if job.is_some() { IsSync::Yes } else { IsSync::No };
        for (name, flight) in flights {
            self.take_page_back(name, &flight, is_sync);
        }
    }

    fn take_page_back(&mut self, name: PageName, flight: &InFlight, is_sync: IsSync) {
        if flight.written == Page::default() {
            return;
        }
        // A sync that waits behind the checkpoint has it, too: that one's will come back.
        let mut later = self.in_flight.iter_mut().chain(&mut self.returned);
        if is_sync == IsSync::No
            && let Some((_, later)) = later.find(|(other, later)| *other == name && later.job.is_some())
        {
            later.before = flight.before;
            return;
        }
        let states = [
            (Some(&mut self.stored), flight.before),
            (
                self.bare.as_mut().filter(|_| is_sync == IsSync::Yes),
                flight.bare_before,
            ),
        ];
        for (state, before) in states {
            let Some(object) = state.and_then(|state| state.get_mut(&name.0)) else {
                continue;
            };
            if before == Page::default() {
                object.pages.remove(&name.1);
            } else {
                object.pages.insert(name.1, before);
            }
        }
        if self.stored.contains_key(&name.0) {
            self.dirty.insert(name);
        }
    }
}
