//! Syncs: some pages and rows made durable now, by one journal record and one flush.
//!
//! Syncs that wait are taken together into one record. A sync begun while a checkpoint runs waits
//! for it, for the record must follow the new superblock. Space in the journal is promised when a
//! sync is begun; one that does not fit is handed back at once, and the caller checkpoints.

use crate::containers::{Queue, filled, push, push_reserved, reserve};
use crate::event::{DirtyPage, Event, Failure, MountMode, Ticket};
use crate::geometry::RECORD_BLOCKS;
use crate::heap::{NoHeap, with_room};
use crate::io::{Purpose, WRITES_MAX};
use crate::journal::{Item, record_blocks};
use crate::map::{Entry, Path};
use crate::pending::{Entries, Journaled, MapChanges};
use crate::space::Loan;
use crate::store::{COST_BLOCK, COST_READ, JournalState, Progress, Running, Store, Work};
use crate::world::{BLOCK, DiskError, Frame, Operation, World};
use alloc::vec::Vec;

/// Syncs that share a record at most.
const GROUP_MAX: usize = 32;

/// A sync that waits.
pub(crate) struct SyncRequest {
    ticket: Ticket,
    pages: Vec<DirtyPage>,
    /// Where each page goes, once it is begun.
    places: Vec<Entry>,
    /// Rows and pending map changes, as of the moment it was begun, with room for the pages.
    items: Vec<Item>,
    /// Objects whose rows it carries.
    changed: Vec<u64>,
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

/// The syncs that share a record, or the place for the next ones.
pub(crate) struct SyncGroup {
    phase: Phase,
    pub(crate) requests: Vec<SyncRequest>,
    /// Journal blocks of its record.
    blocks: u64,
    /// The page (request, page) that is begun next.
    next: (usize, usize),
    /// Those that may be looked at again, those whose nodes are being read, and how many nodes had come when they were last looked at.
    retry: Queue<(usize, usize)>,
    blocked: Queue<(usize, usize)>,
    nodes_seen: u64,
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
    ///
    /// # Errors
    /// [`Failure::Memory`] if there is no heap to note it, not even that it failed; nothing was taken.
    pub fn sync_begin(
        &mut self,
        world: &mut impl World,
        mut pages: Vec<DirtyPage>,
        objects: &[u64],
    ) -> Result<Ticket, Failure> {
        let _ = &world;
        // A sync tells of each of its pages, and of its end.
        self.expect_job(pages.len() + 1)?;
        let ticket = self.new_ticket();
        // A record that names a page of no object would not be believed, and all behind it neither.
        pages.retain(|page| {
            let inside = self.object(page.base).is_some_and(|record| page.page < record.pages);
            if !inside {
                self.give_back(page);
            }
            inside
        });
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
            self.queue.push_reserved(Work::Sync(request));
        }
        Ok(ticket)
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
        let mut request = SyncRequest {
            ticket,
            pages,
            places: Vec::new(),
            items: Vec::new(),
            changed: Vec::new(),
            replaced: Vec::new(),
            loan: Loan::default(),
            share: 0,
        };
        let gathered = self.gather(&mut request, objects);
        (request, gathered)
    }

    fn gather(&mut self, request: &mut SyncRequest, objects: &[u64]) -> Result<(), NoHeap> {
        let pages = request.pages.len();
        request.places = filled(Entry::NONE, pages)?;
        let mut touched = with_room(pages + objects.len())?;
        touched.extend(
            request
                .pages
                .iter()
                .map(|page| page.base)
                .chain(objects.iter().copied()),
        );
        touched.sort_unstable();
        touched.dedup();
        reserve(&mut request.changed, touched.len())?;
        reserve(&mut request.replaced, touched.len())?;
        for base in touched {
            let changed = self.changed.remove(base).is_some();
            if changed {
                push_reserved(&mut request.changed, base);
            }
            match self.object(base) {
                Some(record) if changed || objects.contains(&base) => {
                    push(&mut request.items, Item::Put(record.copy()?))?;
                }
                None if changed => push(&mut request.items, Item::Delete(base))?,
                _ => {}
            }
            let Some(mut changes) = self.changes_without(base, &request.pages)? else {
                continue;
            };
            if changes.journaled == Journaled::No {
                changes.journaled = Journaled::Yes;
                let entries = changes.entries();
                reserve(&mut request.items, entries.zeroed + entries.flags)?;
                let zeroed = changes.zeroed.iter();
                request
                    .items
                    .extend(zeroed.map(|(start, end)| Item::Zero { base, start, end }));
                let flags = changes.flags.iter();
                request
                    .items
                    .extend(flags.map(|(page, flags)| Item::Limit { base, page, flags }));
            }
            push_reserved(&mut request.replaced, (base, changes));
        }
        reserve(&mut request.items, pages)?;
        self.room_for_changes(request.replaced.len())
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
        for work in self.queue.iter() {
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
        self.events.tell(event(request.ticket));
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
}

impl SyncGroup {
    /// With room for syncs, and for the pages that it works at.
    ///
    /// # Errors
    /// [`NoHeap`].
    pub(crate) fn new() -> Result<Self, NoHeap> {
        let mut group = Self {
            phase: Phase::Done,
            requests: with_room(GROUP_MAX)?,
            blocks: 0,
            next: (0, 0),
            retry: Queue::default(),
            blocked: Queue::default(),
            nodes_seen: 0,
            outstanding: 0,
            failure: None,
            record: None,
            flushing: false,
        };
        group.retry.reserve(WRITES_MAX)?;
        group.blocked.reserve(WRITES_MAX)?;
        Ok(group)
    }

    /// Begins anew with a sync, and takes those that follow into its record, as far as they fit.
    pub(crate) fn begin(&mut self, store: &mut Store, first: SyncRequest) {
        let mut bytes = first.bytes();
        self.requests.clear();
        push_reserved(&mut self.requests, first);
        while let Some(Work::Sync(next)) = store.queue.first()
            && self.requests.len() < GROUP_MAX
            && record_blocks(bytes + next.bytes()) <= RECORD_BLOCKS
            && let Some(Work::Sync(next)) = store.queue.pop()
        {
            bytes += next.bytes();
            push_reserved(&mut self.requests, next);
        }
        self.phase = Phase::Grow;
        self.blocks = record_blocks(bytes);
        self.next = (0, 0);
        self.retry.clear();
        self.blocked.clear();
        self.nodes_seen = 0;
        self.outstanding = 0;
        self.failure = None;
        self.record = None;
        self.flushing = false;
    }

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

    /// The page that is to be looked at next.
    fn next_page(&mut self) -> Option<(usize, usize)> {
        if let Some(at) = self.retry.pop() {
            return Some(at);
        }
        loop {
            let (request, page) = self.next;
            if page < self.requests.get(request)?.pages.len() {
                self.next = (request, page + 1);
                return Some((request, page));
            }
            self.next = (request + 1, 0);
        }
    }

    fn write_pages(&mut self, store: &mut Store, world: &mut impl World) -> Result<Progress, Failure> {
        if self.nodes_seen != store.nodes_came {
            self.nodes_seen = store.nodes_came;
            while let Some(at) = self.blocked.pop() {
                self.retry.push_reserved(at);
            }
        }
        while self.outstanding < WRITES_MAX && self.blocked.count() < WRITES_MAX && store.may_go_on(COST_BLOCK) {
            let Some(at) = self.next_page() else { break };
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
                        self.blocked.push_reserved(at);
                        store.load_for_job(world, missing)?;
                        continue;
                    }
                }
            }
            store.spend(COST_BLOCK);
            let block = store.take_block(&mut self.requests[at.0].share)?;
            self.requests[at.0].places[at.1] = Entry {
                block,
                flags: page.flags,
                checksum: store.key.checksum(block, world.bytes(page.frame)),
            };
            self.outstanding += 1;
            store
                .io
                .submit(world, Operation::Write, block, page.frame, Purpose::Resident);
        }
        if self.next.0 == self.requests.len() && self.retry.is_empty() && self.blocked.is_empty() {
            self.phase = Phase::Record;
            return Ok(Progress::Over);
        }
        Ok(Progress::Waiting)
    }

    fn write_record(&mut self, store: &mut Store, world: &mut impl World) -> Result<(), Failure> {
        for request in &mut self.requests {
            let placed = request.pages.iter().zip(&request.places);
            for (&DirtyPage { base, page, .. }, &entry) in placed {
                push_reserved(&mut request.items, Item::Page { base, page, entry });
            }
        }
        let items = self.requests.iter().flat_map(|request| &request.items);
        let start = store.geometry.journal_start(store.generation) + store.journal.used;
        let (bytes, checksum) = store.journal.encode(store.key, start, items)?;
        debug_assert!(bytes.len() <= self.blocks as usize * BLOCK);
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
        let requests = self.requests.iter();
        for (page, &entry) in requests.flat_map(|request| request.pages.iter().zip(&request.places)) {
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
    pub(crate) fn finish(&mut self, store: &mut Store) {
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
                store.events.tell(Event::SyncDone(request.ticket));
            }
            self.requests.clear();
            return;
        };
        // The record may have reached the disk all the same: its blocks stay pinned like any
        // others, nothing may follow it, and what relied on it fails too.
        let places = self.requests.iter().flat_map(|request| &request.places);
        places
            .filter(|entry| entry.block != 0)
            .for_each(|entry| store.allocation.free(entry.block));
        store.journal_state = JournalState::Closed;
        store.changes_come_back(&mut self.requests);
        for request in self.requests.drain(..) {
            store.undo(&request, |ticket| Event::SyncFailed(ticket, reason));
        }
        let mut behind_checkpoint = false;
        for _ in 0..store.queue.count() {
            match store.queue.pop() {
                Some(Work::Sync(request)) if !behind_checkpoint => store.undo(&request, Event::SyncNeedsCheckpoint),
                Some(Work::Checkpoint(mut job)) => {
                    job.fail(reason);
                    behind_checkpoint = true;
                    store.queue.push_reserved(Work::Checkpoint(job));
                }
                Some(work @ Work::Sync(_)) => store.queue.push_reserved(work),
                None => {}
            }
        }
    }
}
