//! Syncs: some pages and rows made durable now, by one journal record and one flush.
//!
//! Syncs that wait are taken together into one record. A sync begun while a checkpoint runs waits
//! for it, for the record must follow the new superblock. Space in the journal is promised when a
//! sync is begun; one that does not fit is handed back at once, and the caller checkpoints.

use crate::event::{DirtyPage, Event, Failure, MountMode, Ticket};
use crate::geometry::RECORD_BLOCKS;
use crate::heap::NoHeap;
use crate::io::{Purpose, WRITES_MAX};
use crate::journal::{HEADER, Item, record_blocks};
use crate::map::{Entry, Path};
use crate::pending::{Entries, Journaled, MapChanges};
use crate::space::Loan;
use crate::store::{COST_BLOCK, COST_READ, JournalState, Progress, Running, Store, Work};
use crate::world::{BLOCK, DiskError, Frame, Operation, World};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// A sync that waits.
pub(crate) struct SyncRequest {
    ticket: Ticket,
    pages: Vec<DirtyPage>,
    /// Rows and pending map changes, as of the moment it was begun.
    items: Vec<Item>,
    /// Objects whose rows it carries.
    changed: BTreeSet<u64>,
    /// The pending map changes of its objects: before it is accepted as it would leave them,
    /// afterwards as they were.
    pub(crate) replaced: Vec<(u64, MapChanges)>,
    /// The promises of its pages.
    loan: Loan,
    /// What is left of the blocks promised to its pages and their paths.
    share: u64,
}

impl SyncRequest {
    /// Bytes of its items, pages included.
    fn bytes(&self) -> usize {
        const PAGE: Item = Item::Page {
            base: 0,
            page: 0,
            entry: Entry::NONE,
        };
        self.items.iter().map(Item::bytes).sum::<usize>() + self.pages.len() * PAGE.bytes()
    }

    /// What is left of the blocks promised to it.
    pub(crate) fn share(&self) -> u64 {
        self.share
    }

    /// Journal blocks it takes if it gets a record of its own.
    fn blocks(&self) -> u64 {
        record_blocks(self.bytes())
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    Grow,
    Pages,
    Record,
    Flush,
    Done,
}

/// The syncs that share a record.
pub(crate) struct SyncGroup {
    phase: Phase,
    pub(crate) requests: Vec<SyncRequest>,
    /// Journal blocks of its record.
    blocks: u64,
    /// Pages (request, page) that are yet to be begun.
    unready: Vec<(usize, usize)>,
    /// Those whose nodes are being read, and how many nodes had come when they were last looked at.
    blocked: Vec<(usize, usize)>,
    nodes_seen: u64,
    /// Where each page goes.
    places: BTreeMap<(usize, usize), Entry>,
    outstanding: usize,
    failure: Option<Failure>,
    /// Of the record, once it is on its way: checksum and blocks.
    record: Option<(u64, u64)>,
    flushing: bool,
}

impl Store {
    /// Begins to make `pages` and the rows of `objects` durable, of which some may be deleted. A sync
    /// also carries the discards and limits pending for the objects it names, and the row of
    /// every object of `pages` if it has changed. The frames stay frozen until they come back; pages
    /// outside every object come back at once, unwritten.
    pub fn sync_begin(&mut self, world: &mut impl World, pages: Vec<DirtyPage>, objects: &[u64]) -> Ticket {
        let _ = &world;
        let ticket = self.new_ticket();
        // A record that names a page of no object would not be believed, and all behind it neither.
        let inside = |page: &DirtyPage| self.object(page.base).is_some_and(|record| page.page < record.pages);
        let (pages, strays): (Vec<_>, Vec<_>) = pages.into_iter().partition(inside);
        for page in &strays {
            self.give_back(page);
        }
        let (mut request, room) = self.request(ticket, pages, objects);
        self.awake = true;
        if self.mode == MountMode::ReadOnly {
            self.refuse(&request, |ticket| Event::SyncFailed(ticket, Failure::ReadOnly));
        } else if room.is_err() || self.is_short() {
            self.refuse(&request, |ticket| Event::SyncFailed(ticket, Failure::Memory));
        } else if !self.fits(&request) {
            self.refuse(&request, Event::SyncNeedsCheckpoint);
        } else if self.lend_all(&mut request).is_err() {
            self.refuse(&request, |ticket| Event::SyncFailed(ticket, Failure::Memory));
        } else {
            request.share = request.loan.blocks();
            self.take_changes(&mut request);
            self.budget += request.share;
            self.queue.push_back(Work::Sync(request));
        }
        ticket
    }

    /// Hands the promises of its pages over to a request, or none of them.
    fn lend_all(&mut self, request: &mut SyncRequest) -> Result<(), NoHeap> {
        for (lent, page) in request.pages.iter().enumerate() {
            if let Err(no_heap) = self.lend(&mut request.loan, page) {
                self.promises.settle(request.loan);
                request.pages[..lent].iter().for_each(|page| self.promise_again(page));
                return Err(no_heap);
            }
        }
        Ok(())
    }

    /// Gathers what the sync must carry.
    fn request(&mut self, ticket: Ticket, pages: Vec<DirtyPage>, objects: &[u64]) -> (SyncRequest, Result<(), NoHeap>) {
        let named: BTreeSet<u64> = objects.iter().copied().collect();
        let touched: BTreeSet<u64> = pages
            .iter()
            .map(|page| page.base)
            .chain(named.iter().copied())
            .collect();
        let mut request = SyncRequest {
            ticket,
            pages,
            items: Vec::new(),
            changed: BTreeSet::new(),
            replaced: Vec::new(),
            loan: Loan::default(),
            share: 0,
        };
        for base in touched {
            let changed = self.changed.remove(base).is_some();
            if changed {
                request.changed.insert(base);
            }
            match self.object(base) {
                Some(record) if changed || named.contains(&base) => request.items.push(Item::Put(record.clone())),
                None if changed => request.items.push(Item::Delete(base)),
                _ => {}
            }
            let mut changes = match self.changes_without(base, &request.pages) {
                Ok(Some(changes)) => changes,
                Ok(None) => continue,
                Err(NoHeap) => return (request, Err(NoHeap)),
            };
            if changes.journaled == Journaled::No {
                changes.journaled = Journaled::Yes;
                let zeroed = changes
                    .zeroed
                    .iter()
                    .map(|(start, end)| Item::Zero { base, start, end });
                request.items.extend(zeroed);
                let limits = changes
                    .flags
                    .iter()
                    .map(|(page, flags)| Item::Limit { base, page, flags });
                request.items.extend(limits);
            }
            request.replaced.push((base, changes));
        }
        let room = self.room_for_changes(request.replaced.len());
        (request, room)
    }

    /// A copy of an object's pending changes without those that what the sync writes is newer than. There is room for either to come
    /// back.
    fn changes_without(&mut self, base: u64, pages: &[DirtyPage]) -> Result<Option<MapChanges>, NoHeap> {
        let Some(entries) = self.pending.by_object().get_ref(base).map(MapChanges::entries) else {
            return Ok(None);
        };
        let written = || pages.iter().filter(|page| page.base == base).map(|page| page.page);
        let more = Entries {
            zeroed: entries.zeroed + written().count(),
            flags: entries.flags,
        };
        self.room_for_entries(base, more)?;
        let all = self.entries_of(base).and(more);
        let Some(pending) = self.pending.by_object().get_ref(base) else {
            return Ok(None);
        };
        let mut changes = pending.copy(all)?;
        written().try_for_each(|page| changes.punch(page))?;
        Ok(Some(changes))
    }

    /// The sync will be made: the pending changes are as it leaves them. It keeps what they were.
    fn take_changes(&mut self, request: &mut SyncRequest) {
        for (base, changes) in &mut request.replaced {
            self.pending.change(*base, |pending| core::mem::swap(pending, changes));
        }
    }

    /// Whether the journal has room behind all syncs that are before this one.
    fn fits(&self, request: &SyncRequest) -> bool {
        let mut used = 0;
        if !self.is_frozen() {
            if self.journal_state == JournalState::Closed {
                return false;
            }
            used = self.journal.used;
            if let Running::Sync(group) = &self.running {
                used += group.blocks;
            }
        }
        for work in &self.queue {
            match work {
                Work::Checkpoint(_) => used = 0,
                Work::Sync(request) => used += request.blocks(),
            }
        }
        request.blocks() <= RECORD_BLOCKS && used + request.blocks() <= self.geometry.journal
    }

    /// Hands back a request that was not accepted.
    fn refuse(&mut self, request: &SyncRequest, event: impl FnOnce(Ticket) -> Event) {
        request.pages.iter().for_each(|page| self.give_back(page));
        self.changed_again(request.changed.iter().copied());
        self.events.push_back(event(request.ticket));
    }

    /// Notes rows again whose change was not carried. A sync carries the rows of the objects that it names all the same, so what finds no
    /// heap here comes with the next checkpoint at the latest.
    pub(crate) fn changed_again(&mut self, bases: impl Iterator<Item = u64>) {
        for base in bases {
            let _ = self.changed.insert(base, ());
        }
    }

    /// A job failed, and all that wait behind it do. The changes to maps that they had are pending again: those of the newest job first,
    /// for each lies beneath what came later.
    pub(crate) fn changes_come_back(&mut self, failed: &mut [SyncRequest]) {
        let mut queue = core::mem::take(&mut self.queue);
        for work in queue.iter_mut().rev() {
            match work {
                Work::Sync(request) => self.replaced_come_back(request),
                Work::Checkpoint(_) => self.settling_comes_back(),
            }
        }
        self.queue = queue;
        for request in failed.iter_mut().rev() {
            self.replaced_come_back(request);
        }
    }

    fn replaced_come_back(&mut self, request: &mut SyncRequest) {
        for (base, older) in core::mem::take(&mut request.replaced) {
            if self.object(base).is_some() {
                self.pending_again(base, older);
            }
        }
    }

    /// Undoes an accepted request that came to nothing and whose [changes came back](Store::changes_come_back): its pages are promises
    /// again.
    pub(crate) fn undo(&mut self, request: &SyncRequest, event: impl FnOnce(Ticket) -> Event) {
        self.budget = self.budget.saturating_sub(request.share);
        self.promises.settle(request.loan);
        request.pages.iter().for_each(|page| self.promise_again(page));
        self.refuse(request, event);
    }

    /// Takes the syncs that follow `first` into its record, as far as they fit.
    pub(crate) fn group(&mut self, first: SyncRequest) -> SyncGroup {
        let mut bytes = first.bytes();
        let mut requests = Vec::from([first]);
        while let Some(Work::Sync(next)) = self.queue.front()
            && record_blocks(bytes + next.bytes()) <= RECORD_BLOCKS
            && let Some(Work::Sync(next)) = self.queue.pop_front()
        {
            bytes += next.bytes();
            requests.push(next);
        }
        let unready = requests
            .iter()
            .enumerate()
            .flat_map(|(at, request)| (0..request.pages.len()).map(move |page| (at, page)))
            .rev()
            .collect();
        SyncGroup {
            phase: Phase::Grow,
            requests,
            blocks: record_blocks(bytes),
            unready,
            blocked: Vec::new(),
            nodes_seen: 0,
            places: BTreeMap::new(),
            outstanding: 0,
            failure: None,
            record: None,
            flushing: false,
        }
    }
}

impl SyncGroup {
    pub(crate) fn completed(&mut self, _purpose: Purpose, result: Result<(), DiskError>) {
        self.outstanding -= 1;
        if result.is_err() {
            self.failure.get_or_insert(Failure::Disk);
        }
    }

    pub(crate) fn advance(&mut self, store: &mut Store, world: &mut impl World) -> Progress {
        while self.failure.is_none() && self.phase != Phase::Done {
            match self.step(store, world) {
                Ok(Progress::Over) => {}
                Ok(Progress::Waiting) => return Progress::Waiting,
                Err(reason) => self.failure = Some(reason),
            }
        }
        if self.outstanding > 0 {
            return Progress::Waiting;
        }
        if self.failure.is_none() {
            self.apply(store, world);
        }
        Progress::Over
    }

    fn step(&mut self, store: &mut Store, world: &mut impl World) -> Result<Progress, Failure> {
        match self.phase {
            Phase::Grow => {
                let pages = self.requests.iter().flat_map(|request| request.pages.iter());
                store.grow_maps(world, pages.map(|page| (page.base, page.page)))?;
                self.phase = Phase::Pages;
                Ok(Progress::Over)
            }
            Phase::Pages => self.write_pages(store, world),
            Phase::Record => {
                if !store.may_go_on(COST_BLOCK) {
                    return Ok(Progress::Waiting);
                }
                self.write_record(store, world)?;
                store.spend(COST_BLOCK * self.blocks);
                self.phase = Phase::Flush;
                Ok(Progress::Over)
            }
            Phase::Flush => {
                if self.outstanding > 0 {
                    return Ok(Progress::Waiting);
                }
                if self.flushing {
                    self.phase = Phase::Done;
                } else {
                    self.flushing = true;
                    self.outstanding += 1;
                    store.io.submit(world, Operation::Flush, 0, Frame(0), Purpose::Flush);
                }
                Ok(Progress::Over)
            }
            Phase::Done => Ok(Progress::Over),
        }
    }

    fn write_pages(&mut self, store: &mut Store, world: &mut impl World) -> Result<Progress, Failure> {
        if self.nodes_seen != store.nodes_came {
            self.nodes_seen = store.nodes_came;
            self.unready.append(&mut self.blocked);
        }
        while self.outstanding < WRITES_MAX && !self.unready.is_empty() && store.may_go_on(COST_BLOCK) {
            let Some(at) = self.unready.pop() else { break };
            let page = self.requests[at.0].pages[at.1];
            if let Some(row) = store.table.get(page.base) {
                let mut root = row.map;
                let path = store.prepare(world, page.base, &mut root, page.page);
                store.table.set_map(page.base, root);
                match path {
                    Path::Ready => {}
                    Path::NoMemory => return Err(Failure::Memory),
                    Path::Missing(missing) => {
                        store.spend(COST_READ);
                        self.blocked.push(at);
                        store.load_for_job(world, missing)?;
                        continue;
                    }
                }
            }
            store.spend(COST_BLOCK);
            let block = store.take_block(&mut self.requests[at.0].share)?;
            let checksum = store.key.checksum(block, world.bytes(page.frame));
            self.places.insert(
                at,
                Entry {
                    block,
                    flags: page.flags,
                    checksum,
                },
            );
            self.outstanding += 1;
            store
                .io
                .submit(world, Operation::Write, block, page.frame, Purpose::Resident);
        }
        if self.unready.is_empty() && self.blocked.is_empty() {
            self.phase = Phase::Record;
            return Ok(Progress::Over);
        }
        Ok(Progress::Waiting)
    }

    fn write_record(&mut self, store: &mut Store, world: &mut impl World) -> Result<(), Failure> {
        let mut items = Vec::new();
        for (number, request) in self.requests.iter_mut().enumerate() {
            items.append(&mut request.items);
            for (at, page) in request.pages.iter().enumerate() {
                if let Some(&entry) = self.places.get(&(number, at)) {
                    items.push(Item::Page {
                        base: page.base,
                        page: page.page,
                        entry,
                    });
                }
            }
        }
        debug_assert!(HEADER + items.iter().map(Item::bytes).sum::<usize>() <= self.blocks as usize * BLOCK);
        let start = store.geometry.journal_start(store.generation) + store.journal.used;
        let (bytes, checksum) = store.journal.encode(store.key, start, &items);
        let blocks = (bytes.len() / BLOCK) as u64;
        self.record = Some((checksum, blocks));
        for (at, piece) in bytes.chunks_exact(BLOCK).enumerate() {
            let frame = store.io.frame(world).ok_or(Failure::Memory)?;
            world.bytes_mut(frame).copy_from_slice(piece);
            self.outstanding += 1;
            store.io.submit(
                world,
                Operation::Write,
                start + at as u64,
                frame,
                Purpose::Scratch(frame),
            );
        }
        Ok(())
    }

    /// Makes in memory what the record says, now that it is durable.
    fn apply(&mut self, store: &mut Store, world: &mut impl World) {
        if let Some((checksum, blocks)) = self.record {
            store.journal = store.journal.after(checksum, blocks);
        }
        for (&(request, at), &entry) in &self.places {
            let page = self.requests[request].pages[at];
            // The object may have been deleted meanwhile; the record still names the block.
            let replaced = if store.table.get(page.base).is_some() {
                store.set_entry(world, page.base, page.page, entry)
            } else {
                entry
            };
            store.allocation.free(replaced.block);
        }
    }

    /// The job is over, one way or the other.
    pub(crate) fn finish(mut self, store: &mut Store) {
        let Some(reason) = self.failure else {
            let left: u64 = self.requests.iter().map(|request| request.share).sum();
            let heir = store.queue.iter_mut().find_map(|work| match work {
                Work::Checkpoint(job) => Some(job),
                Work::Sync(_) => None,
            });
            match heir {
                Some(job) => job.inherit(left),
                None => store.budget = store.budget.saturating_sub(left),
            }
            for request in &self.requests {
                store.promises.settle(request.loan);
                request.pages.iter().for_each(|page| store.give_back(page));
                store.events.push_back(Event::SyncDone(request.ticket));
            }
            return;
        };
        // The record may have reached the disk all the same: its blocks stay pinned like any
        // others, nothing may follow it, and what relied on it fails too.
        self.places
            .values()
            .for_each(|entry| store.allocation.free(entry.block));
        store.journal_state = JournalState::Closed;
        store.changes_come_back(&mut self.requests);
        for request in &self.requests {
            store.undo(request, |ticket| Event::SyncFailed(ticket, reason));
        }
        let mut rest = alloc::collections::VecDeque::new();
        for work in core::mem::take(&mut store.queue) {
            match work {
                Work::Sync(request) if !rest.iter().any(|work| matches!(work, Work::Checkpoint(_))) => {
                    store.undo(&request, Event::SyncNeedsCheckpoint);
                }
                Work::Checkpoint(mut job) => {
                    job.fail(reason);
                    rest.push_back(Work::Checkpoint(job));
                }
                work @ Work::Sync(_) => rest.push_back(work),
            }
        }
        store.queue = rest;
    }
}
