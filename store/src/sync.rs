//! Syncs: some pages and rows made durable now, by one journal record and one flush.
//!
//! Syncs that wait are taken together into one record. A sync begun while a checkpoint runs goes ahead of
//! it (`ahead.rs`) or waits for it. Space in the journal behind the checkpoint is promised when a
//! sync is begun; one that does not fit is handed back at once, and the caller checkpoints.

use crate::breaks::Invariant;
use crate::containers::{filled, push, push_reserved, reserve};
use crate::event::{DirtyPage, Event, Failure, MountMode, Ticket};
use crate::geometry::RECORD_BLOCKS;
use crate::heap::{NoHeap, with_room};
use crate::io::Purpose;
use crate::jobs::{Progress, Running, Work};
use crate::journal::{IsAhead, Item, PAGE_BYTES, record_blocks};
use crate::map::Entry;
use crate::pending::{CHANGES_MAX, Entries, Journaled, MapChanges};
use crate::recording::Recording;
use crate::space::Loan;
use crate::store::{COST_STEP, JournalState, Store};
use crate::world::{DiskError, Frame, Operation, World};
use crate::writing::{PageJob, PageWriter};
use alloc::vec::Vec;

/// Syncs that share a record at most, and that wait at most: a checkpoint does the work of more.
pub(crate) const GROUP_MAX: usize = 32;
/// Changes that jobs have of such an object at most and that must have room in the copy.
const BENEATH_MAX: usize = 256;
/// The cost of giving a page back, or of promising it its room again.
const COST_PAGE: u64 = 450;

/// A sync that waits.
pub(crate) struct SyncRequest {
    ticket: Ticket,
    pub(crate) pages: Vec<DirtyPage>,
    /// The place of each page, once it is begun.
    pub(crate) places: Vec<Entry>,
    /// Rows and pending map changes, as of the moment it was begun, with room for the pages.
    items: Vec<Item>,
    /// Bytes of them, pages included.
    pub(crate) bytes: usize,
    /// Objects that it names, those of its pages among them.
    pub(crate) touched: Vec<u64>,
    /// Whether it may go ahead of the checkpoint that runs: nodes are promised for that.
    pub(crate) may_go_ahead: bool,
    /// Objects whose rows it carries.
    changed: Vec<u64>,
    /// The pending map changes of its objects: before it is accepted as it would leave them,
    /// afterwards as they were.
    pub(crate) replaced: Vec<(u64, MapChanges)>,
    /// The promises of its pages.
    loan: Loan,
    /// The rest of the blocks promised to its pages and their paths.
    pub(crate) share: u64,
}

impl SyncRequest {
    /// The rest of the blocks promised to it.
    pub(crate) fn share(&self) -> u64 {
        self.share
    }

    /// Journal blocks it takes if it gets a record of its own.
    fn blocks(&self) -> u64 {
        record_blocks(self.bytes)
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    Grow,
    Pages,
    /// Of one that goes ahead: what it carries for the checkpoint.
    Carry,
    Encode,
    Sum,
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
    /// The page or item (request, page) that comes next in the phase.
    next: (usize, usize),
    writer: PageWriter<(usize, usize)>,
    outstanding: usize,
    failure: Option<Failure>,
    record: Recording,
    /// Of one that goes ahead: the record in the journal of the next generation.
    record_ahead: Recording,
    is_ahead: bool,
    flushing: bool,
    /// Whether the disk has done its part.
    is_ending: bool,
}

impl Store {
    /// Begins to make `pages` and the rows of `objects` durable, of which some may be deleted. A sync
    /// also carries the discards and limits pending for the objects it names, and the row of
    /// every object of `pages` if it has changed. The frames stay frozen until they come back; pages
    /// outside every object come back at once, unwritten. Pages that a checkpoint has are not among it: the sync may be durable before that. Whoever wants one of
    /// them durable with the sync waits for the checkpoint.
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
        self.expect_job(self.events.of_pages(pages.len()) + 1)?;
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
        } else if room == Err(Failure::Memory) || self.is_short() {
            self.refuse(&request, |ticket| Event::SyncFailed(ticket, Failure::Memory));
        } else if room.is_err() || !self.fits(&request) || !self.may_fail(&request) {
            self.refuse(&request, Event::SyncNeedsCheckpoint);
        } else if self.lend_all(&mut request).is_err() {
            self.refuse(&request, |ticket| Event::SyncFailed(ticket, Failure::Memory));
        } else {
            request.share = request.loan.blocks();
            self.take_changes(&mut request);
            self.budget += request.share;
            self.promise_landing(&mut request);
            self.queue.push_reserved(Work::Sync(request));
        }
        Ok(ticket)
    }

    /// Whether there is room for the pages of all syncs once more. Those of a sync that fails keep their blocks until the next checkpoint is over, which
    /// writes them to others.
    fn may_fail(&mut self, request: &SyncRequest) -> bool {
        let pages = self.syncs().map(|sync| sync.pages.len()).sum::<usize>() + request.pages.len();
        self.allocation.promise(self.needed() + pages as u64).is_ok()
    }

    /// Hands the promises of its pages over to a request, or none of them.
    fn lend_all(&mut self, request: &mut SyncRequest) -> Result<(), NoHeap> {
        for (lent, page) in request.pages.iter().enumerate() {
            if let Err(no_heap) = self.lend(&mut request.loan, page) {
                request.pages[..lent].iter().for_each(|page| self.promise_again(page));
                self.promises.settle(request.loan);
                return Err(no_heap);
            }
        }
        Ok(())
    }

    /// Gathers what the sync must carry.
    fn request(
        &mut self,
        ticket: Ticket,
        pages: Vec<DirtyPage>,
        objects: &[u64],
    ) -> (SyncRequest, Result<(), Failure>) {
        let mut request = SyncRequest {
            ticket,
            pages,
            places: Vec::new(),
            items: Vec::new(),
            bytes: 0,
            touched: Vec::new(),
            may_go_ahead: false,
            changed: Vec::new(),
            replaced: Vec::new(),
            loan: Loan::default(),
            share: 0,
        };
        let gathered = self.gather(&mut request, objects);
        (request, gathered)
    }

    /// If this fails, everything gathered is to be given back: [`Failure::Checkpoint`] if there is too much of it for a sync.
    fn gather(&mut self, request: &mut SyncRequest, objects: &[u64]) -> Result<(), Failure> {
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
        request.touched = touched;
        for at in 0..request.touched.len() {
            let base = request.touched[at];
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
            if self.object(base).is_none() {
                continue;
            }
            let Some(mut changes) = self.changes_without(base, &request.pages)? else {
                continue;
            };
            if changes.journaled == Journaled::No {
                changes.journaled = Journaled::Yes;
                reserve(&mut request.items, changes.count())?;
                changes
                    .items(base)
                    .for_each(|item| push_reserved(&mut request.items, item));
            }
            push_reserved(&mut request.replaced, (base, changes));
        }
        request.bytes = request.items.iter().map(Item::bytes).sum::<usize>() + pages * PAGE_BYTES;
        Ok(self.room_for_changes(request.replaced.len())?)
    }

    /// A copy of an object's pending changes without those that what the sync writes is newer than. There is room for either to come
    /// back.
    fn changes_without(&self, base: u64, pages: &[DirtyPage]) -> Result<Option<MapChanges>, Failure> {
        let Some(pending) = self.pending.by_object().get_ref(base) else {
            return Ok(None);
        };
        let beneath = self.beneath(base);
        // They are copied.
        if pending.count() > CHANGES_MAX || beneath.room() > BENEATH_MAX {
            return Err(Failure::Checkpoint);
        }
        let written = || pages.iter().filter(|page| page.base == base).map(|page| page.page);
        let more = Entries {
            zeroed: written().count(),
            flags: 0,
        };
        let mut changes = pending.copy(beneath, more)?;
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
        let waiting = self.queue.iter().filter(|work| matches!(work, Work::Sync(_)));
        // Nothing builds on a job that has failed, as long as the caller may not know that.
        if self.is_undoing || self.over_share.is_some() || self.unnoted.is_some() || waiting.count() >= GROUP_MAX {
            return false;
        }
        let (end, blocks) = (self.journal_end(), request.blocks());
        blocks <= RECORD_BLOCKS && end.is_some_and(|end| end + blocks <= self.geometry.journal)
    }

    /// The end of the journal behind all that runs and waits; `None` if no record may follow.
    pub(crate) fn journal_end(&self) -> Option<u64> {
        let is_open = self.journal_state == JournalState::Open;
        let end = is_open.then_some(self.journal.used);
        let end = match &self.running {
            Running::Nothing => end,
            Running::Checkpoint(job) => {
                let beside = self.beside.as_ref().map_or(0, |group| group.blocks);
                job.journal_behind(end).map(|end| end + self.ahead.chain.used + beside)
            }
            Running::Sync(group) => end.map(|end| end + group.blocks),
        };
        self.queue.iter().fold(end, |end, work| match work {
            Work::Checkpoint(job) => job.journal_behind(end),
            Work::Sync(request) => end.map(|end| end + request.blocks()),
        })
    }

    /// Hands back a request that was not accepted.
    fn refuse(&mut self, request: &SyncRequest, event: impl FnOnce(Ticket) -> Event) {
        request.pages.iter().for_each(|page| self.give_back(page));
        self.changed_again(request.changed.iter().copied());
        self.events.tell(event(request.ticket));
    }

    /// Notes rows again whose change was not carried. Records know only what is noted, so where one finds no heap here, no record is accepted before
    /// a generation, which carries all rows.
    pub(crate) fn changed_again(&mut self, bases: impl Iterator<Item = u64>) {
        for base in bases {
            if self.changed.insert(base, ()).is_err() {
                self.unnoted = Some(self.checkpoints);
            }
        }
    }

    /// A job failed, and all that wait behind it do. The changes to maps that they had are pending again, some in a step: those of the
    /// newest job first, for each lies beneath what came later. Tells whether there was something to be done.
    pub(crate) fn change_comes_back(&mut self, failed: &mut [SyncRequest]) -> bool {
        let mut queue = core::mem::take(&mut self.queue);
        let waiting = queue.iter_mut().rev().any(|work| match work {
            Work::Sync(request) => self.replaced_come_back(request),
            Work::Checkpoint(_) => self.settling_comes_back(),
        });
        self.queue = queue;
        waiting || failed.iter_mut().rev().any(|request| self.replaced_come_back(request))
    }

    fn replaced_come_back(&mut self, request: &mut SyncRequest) -> bool {
        let Some((base, mut older)) = request.replaced.pop() else {
            return false;
        };
        if self.object(base).is_some() && !self.pending_again(base, &mut older) {
            push_reserved(&mut request.replaced, (base, older));
        }
        true
    }

    /// Undoes an accepted request that came to nothing and whose [changes came back](Store::change_comes_back): its pages are promises
    /// again.
    pub(crate) fn undo(&mut self, request: &SyncRequest, event: impl FnOnce(Ticket) -> Event) {
        self.budget = self.budget.saturating_sub(request.share);
        self.spend(COST_PAGE * request.pages.len() as u64);
        request.pages.iter().for_each(|page| self.promise_again(page));
        self.promises.settle(request.loan);
        self.refuse(request, event);
    }
}

impl SyncGroup {
    /// With room for syncs, and for the pages that it works at.
    ///
    /// # Errors
    /// [`NoHeap`].
    pub(crate) fn new() -> Result<Self, NoHeap> {
        Ok(Self {
            phase: Phase::Done,
            requests: with_room(GROUP_MAX)?,
            blocks: 0,
            next: (0, 0),
            writer: PageWriter::new()?,
            outstanding: 0,
            failure: None,
            record: Recording::default(),
            record_ahead: Recording::default(),
            is_ahead: false,
            flushing: false,
            is_ending: false,
        })
    }

    /// Begins anew with a sync, and takes those that follow into its record, as far as they fit.
    pub(crate) fn begin(&mut self, store: &mut Store, first: SyncRequest) {
        let mut bytes = first.bytes;
        self.requests.clear();
        push_reserved(&mut self.requests, first);
        while let Some(Work::Sync(next)) = store.queue.first()
            && self.requests.len() < GROUP_MAX
            && record_blocks(bytes + next.bytes) <= RECORD_BLOCKS
            && let Some(Work::Sync(next)) = store.queue.pop()
        {
            bytes += next.bytes;
            push_reserved(&mut self.requests, next);
        }
        self.begin_anew(bytes);
        // Rows that came during a checkpoint may have found no heap since: without them the pages would have no map to stand in.
        if store.is_short() {
            self.failure = Some(Failure::Memory);
        }
    }

    fn begin_anew(&mut self, bytes: usize) {
        self.phase = Phase::Grow;
        self.blocks = record_blocks(bytes);
        self.next = (0, 0);
        self.writer.clear();
        self.failure = None;
        self.is_ahead = false;
        self.flushing = false;
        self.is_ending = false;
    }

    /// Begins anew with the first syncs that wait, ahead of a checkpoint for which they carry so many bytes.
    ///
    /// # Errors
    /// [`NoHeap`]: they wait as before.
    pub(crate) fn begin_beside(&mut self, store: &mut Store, count: usize, carried: usize) -> Result<(), NoHeap> {
        let waiting = store.queue.iter().take(count);
        let bytes = waiting
            .map(|work| if let Work::Sync(next) = work { next.bytes } else { 0 })
            .sum();
        let own = (store.journal, IsAhead::No);
        let ahead = (store.ahead.chain, IsAhead::Yes);
        let begun = (self.record.begin(store, own, bytes + carried))
            .and_then(|()| self.record_ahead.begin(store, ahead, bytes));
        if begun.is_err() {
            // One that is begun is of this generation's journal, and the syncs' turn may come in another.
            if store.breaks.keeps(Invariant::BegunAnew) {
                self.record.clear();
                self.record_ahead.clear();
            }
            return begun;
        }
        self.requests.clear();
        for _ in 0..count {
            if let Some(Work::Sync(next)) = store.queue.pop() {
                push_reserved(&mut self.requests, next);
            }
        }
        self.begin_anew(bytes);
        self.is_ahead = true;
        self.phase = Phase::Pages;
        Ok(())
    }

    pub(crate) fn completed(&mut self, result: Result<(), DiskError>) {
        self.outstanding -= 1;
        if result.is_err() {
            self.failure.get_or_insert(Failure::Disk);
        }
    }

    pub(crate) fn advance(&mut self, store: &mut Store, world: &mut impl World) -> Progress {
        while self.failure.is_none() && self.phase != Phase::Done {
            match self.step(store, world) {
                Ok(true) => {
                    self.phase = self.phase.next();
                    self.next = (0, 0);
                }
                Ok(false) => return Progress::Waiting,
                Err(reason) => self.failure = Some(reason),
            }
        }
        if self.outstanding > 0 {
            return Progress::Waiting;
        }
        if !core::mem::replace(&mut self.is_ending, true) {
            self.next = (0, 0);
            if self.failure.is_some() {
                // The record may have reached the disk all the same: its blocks stay pinned like any
                // others, nothing may follow it, and what relied on it fails too.
                store.journal_state = JournalState::Closed;
                store.is_undoing = true;
                self.record.clear();
                self.record_ahead.clear();
                if let Running::Checkpoint(job) = &mut store.running {
                    job.fail(self.failure.unwrap_or(Failure::Checkpoint));
                }
            } else {
                if let Some((journal, has_pages)) = self.record.done() {
                    (store.journal, store.is_sealed) = (journal, !has_pages);
                }
                if let Some((journal, has_pages)) = self.record_ahead.done() {
                    (store.ahead.chain, store.ahead.is_sealed) = (journal, !has_pages);
                }
                self.blocks = 0;
            }
        }
        while store.may_go_on(COST_STEP) {
            store.spend(COST_STEP);
            let more = match self.failure {
                None => self.apply_step(store, world),
                Some(reason) => self.undo_step(store, reason),
            };
            if !more {
                return Progress::Over;
            }
        }
        Progress::Waiting
    }

    /// A step of the phase; tells whether that is complete.
    fn step(&mut self, store: &mut Store, world: &mut impl World) -> Result<bool, Failure> {
        match self.phase {
            Phase::Grow => loop {
                let before = self.next;
                let Some(at) = self.next_place() else { return Ok(true) };
                let page = self.requests[at.0].pages[at.1];
                if store.grow_map(world, page.base, page.page)?.is_none() {
                    self.next = before;
                    return Ok(false);
                }
            },
            Phase::Pages => {
                let mut writer = core::mem::take(&mut self.writer);
                let written = writer.write(store, world, self);
                self.writer = writer;
                written
            }
            Phase::Carry => self.carry(store),
            Phase::Encode => self.encode(store),
            Phase::Sum => Ok(self.record.sum_up(store) && self.record_ahead.sum_up(store)),
            Phase::Record => self.write_records(store, world),
            Phase::Flush => {
                if self.outstanding == 0 && !core::mem::replace(&mut self.flushing, true) {
                    self.outstanding += 1;
                    store
                        .io
                        .submit(world, Operation::Flush, 0, Frame(0), Purpose::Sync(None));
                }
                Ok(self.outstanding == 0)
            }
            Phase::Done => Ok(true),
        }
    }

    /// The next page of all, request by request.
    fn next_place(&mut self) -> Option<(usize, usize)> {
        loop {
            let (request, page) = self.next;
            if page < self.requests.get(request)?.pages.len() {
                self.next = (request, page + 1);
                return Some((request, page));
            }
            self.next = (request + 1, 0);
        }
    }

    /// Puts items into the record, request by request, those of the pages behind the others.
    fn encode(&mut self, store: &mut Store) -> Result<bool, Failure> {
        if !self.record.has_begun() {
            let bytes = self.requests.iter().map(|request| request.bytes).sum();
            self.record.begin(store, (store.journal, IsAhead::No), bytes)?;
        }
        while let Some(request) = self.requests.get(self.next.0) {
            let at = self.next.1;
            let item = if let Some(item) = request.items.get(at) {
                item
            } else if let Some(&DirtyPage { base, page, .. }) = request.pages.get(at - request.items.len()) {
                let entry = request.places[at - request.items.len()];
                &Item::Page { base, page, entry }
            } else {
                self.next = (self.next.0 + 1, 0);
                continue;
            };
            if !self.record.put(store, item) {
                return Ok(false);
            }
            if self.is_ahead {
                self.record_ahead.put_again(store, item);
            }
            self.next.1 += 1;
        }
        Ok(true)
    }

    /// Writes the record, or both. One that goes ahead waits for frames that the checkpoint gives back.
    fn write_records(&mut self, store: &mut Store, world: &mut impl World) -> Result<bool, Failure> {
        let purpose = |frame| Purpose::Sync(Some(frame));
        let keeps = store.breaks.keeps(Invariant::BothJournals);
        let mut records = [&mut self.record, &mut self.record_ahead];
        for record in &mut records[..if keeps { 2 } else { 1 }] {
            match record.write(store, world, &mut self.outstanding, purpose) {
                Ok(true) => {}
                Err(Failure::Memory) if self.is_ahead && (self.outstanding > 0 || !store.waits_for_beside()) => {
                    return Ok(false);
                }
                other => return other,
            }
        }
        Ok(true)
    }

    /// Puts into the record of the current generation what the checkpoint has of the objects of the syncs.
    fn carry(&mut self, store: &mut Store) -> Result<bool, Failure> {
        while let Some(request) = self.requests.get(self.next.0)
            && self.is_ahead
            && store.breaks.keeps(Invariant::Carried)
        {
            let Some(&base) = request.touched.get(self.next.1) else {
                self.next = (self.next.0 + 1, 0);
                continue;
            };
            if !store.carry(&mut self.record, base)? {
                return Ok(false);
            }
            self.next.1 += 1;
        }
        Ok(true)
    }

    /// The record is durable: makes some of what it says in memory, then tells of the syncs; tells whether there is more.
    fn apply_step(&mut self, store: &mut Store, world: &mut impl World) -> bool {
        if self.is_ahead {
            return self.apply_ahead(store);
        }
        if let Some(at) = self.next_place() {
            let (page, entry) = (self.requests[at.0].pages[at.1], self.requests[at.0].places[at.1]);
            // The object may have been deleted meanwhile; the record still names the block.
            let replaced = if store.table.get(page.base).is_some() {
                store.set_entry(world, page.base, page.page, entry)
            } else {
                entry
            };
            store.allocation.free(replaced.block);
            if let Some(block) = store.ahead.remove(page.base, page.page) {
                store.allocation.free(block);
            }
            return true;
        }
        if self.requests.is_empty() {
            return false;
        }
        let heir = store.queue.iter_mut().find_map(|work| match work {
            Work::Checkpoint(job) => Some(job),
            Work::Sync(_) => None,
        });
        match heir {
            Some(job) => job.inherit(self.requests[0].share),
            None => store.budget = store.budget.saturating_sub(self.requests[0].share),
        }
        self.tell_first(store);
        true
    }

    /// The same of one that goes ahead: its pages have their places beside the maps.
    fn apply_ahead(&mut self, store: &mut Store) -> bool {
        if let Some(at) = self.next_place() {
            self.put_ahead(store, at);
            return true;
        }
        let Some(request) = self.requests.first() else {
            return false;
        };
        store.budget = store.budget.saturating_sub(request.share);
        request.touched.iter().for_each(|&base| store.is_carried(base));
        self.tell_first(store);
        true
    }

    /// The first sync is done.
    fn tell_first(&mut self, store: &mut Store) {
        let request = self.requests.remove(0);
        store.spend(COST_PAGE * request.pages.len() as u64);
        store.promises.settle(request.loan);
        request.pages.iter().for_each(|page| store.give_back(page));
        store.events.tell(Event::SyncDone(request.ticket));
    }

    /// It failed: undoes some of it, and of what waits behind it; tells whether there is more.
    fn undo_step(&mut self, store: &mut Store, reason: Failure) -> bool {
        if let Some((request, page)) = self.next_place() {
            let block = self.requests[request].places[page].block;
            if self.is_ahead {
                store.ahead.give_up(block);
            } else {
                store.allocation.free(block);
            }
            return true;
        }
        if store.change_comes_back(&mut self.requests) {
            return true;
        }
        if !self.requests.is_empty() {
            let request = self.requests.remove(0);
            store.undo(&request, |ticket| Event::SyncFailed(ticket, reason));
            return true;
        }
        if let Some(Work::Sync(_)) = store.queue.first()
            && let Some(Work::Sync(request)) = store.queue.pop()
        {
            store.undo(&request, Event::SyncNeedsCheckpoint);
            return true;
        }
        if let Some(Work::Checkpoint(job)) = store.queue.iter_mut().next() {
            job.fail(reason);
        }
        // A checkpoint that runs fails with it, and goes on with that.
        store.is_undoing = self.is_ahead;
        false
    }
}

impl PageJob for SyncGroup {
    type At = (usize, usize);

    fn next(&mut self, _: &mut Store) -> Result<Option<Self::At>, Failure> {
        Ok(self.next_place())
    }
    fn has_next(&self) -> bool {
        let (request, page) = self.next;
        let mut left = self.requests.iter().skip(request).map(|request| request.pages.len());
        left.next().is_some_and(|pages| page < pages) || left.any(|pages| pages > 0)
    }
    fn page(&self, (request, page): Self::At) -> Option<DirtyPage> {
        self.requests.get(request)?.pages.get(page).copied()
    }
    fn wants(&self, _: DirtyPage, _: Option<u64>) -> bool {
        true
    }
    fn enters_maps(&self) -> bool {
        !self.is_ahead
    }
    fn take_block(&mut self, store: &mut Store, at: Self::At) -> Result<u64, Failure> {
        let share = &mut self.requests[at.0].share;
        if self.is_ahead && store.breaks.keeps(Invariant::Unnamed) {
            store.take_block_ahead(share)
        } else {
            store.take_block(share)
        }
    }
    fn placed(&mut self, at: Self::At, entry: Entry) -> Purpose {
        self.requests[at.0].places[at.1] = entry;
        Purpose::Sync(None)
    }
    fn outstanding(&mut self) -> &mut usize {
        &mut self.outstanding
    }
}

impl Phase {
    fn next(self) -> Self {
        match self {
            Self::Grow => Self::Pages,
            Self::Pages => Self::Carry,
            Self::Carry => Self::Encode,
            Self::Encode => Self::Sum,
            Self::Sum => Self::Record,
            Self::Record => Self::Flush,
            Self::Flush | Self::Done => Self::Done,
        }
    }
}
