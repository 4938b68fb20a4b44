//! Checkpoints and syncs: how changes come to stable storage, and who waits for that.
//!
//! Checkpoints are numbered. One that is *requested* has the number after the last begun, so it
//! holds everything up to now; whoever needs that waits for the number. Dirty pages are frozen
//! ([`Server::freeze_dirty`]) and their frames keep a reference of the store until the checkpoint
//! or sync is over; if it failed they count as dirty again.
//!
//! A call whose effect must be durable does it once, notes in its thread what it waits for
//! ([`Pending`]) and parks; when it is done again it finds the note and only waits on.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

use abi::{
    Error,
    address::{PAGE, slot_of},
    layout::StoreReport,
};
use kcore::wait::Key;
use store::{CheckpointKind, DirtyPage, Event, Failure, Ticket};

use crate::{
    Server, Step, Stop, World,
    object::{Object, ObjectId},
    pager::{index_of, kernel_frame},
    thread::Caller,
};

/// Time between two checkpoints while something changes.
pub const PERIOD_NS: u64 = 1_000_000_000;
/// Failed syncs that are remembered for those who wait for them.
const FAILURES_MAX: usize = 256;

/// What a call waits for before it may tell that it is done.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Goal {
    /// A sync.
    Sync(Ticket),
    /// A checkpoint, by number.
    Checkpoint(u64),
}

/// A call that has taken effect and waits until that is durable.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Pending {
    /// What it waits for.
    pub goal: Goal,
    /// What it does then.
    pub then: Then,
}

/// What a call does when what it waited for has come.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Then {
    /// It returns these values.
    Return(u64, u64),
    /// It begins anew, whether that went well or not.
    Again,
}

/// The checkpoint that is running.
struct Running {
    number: u64,
    pages: Vec<DirtyPage>,
}

/// A sync that is not over.
struct Sync {
    pages: Vec<DirtyPage>,
    base: u64,
    /// The checkpoint that will do its work, if the journal had no room.
    checkpoint: Option<u64>,
}

/// Checkpoints and syncs under way.
#[derive(Default)]
pub struct Checkpoints {
    /// Number of the last one that was begun.
    begun: u64,
    /// Number of the last one that is over.
    finished: u64,
    /// Number of the last one that is durable.
    good: u64,
    /// Number of the last one that was requested.
    wanted: u64,
    kind: Option<CheckpointKind>,
    running: Option<Running>,
    syncs: BTreeMap<Ticket, Sync>,
    failures: VecDeque<(Ticket, Error)>,
    /// Slots that persistent objects gave up, first and count, and the number of the checkpoint
    /// from which on the disk agrees.
    held: VecDeque<(u64, u64, u64)>,
    /// Whether the table has changed since the last checkpoint was begun.
    changed: bool,
    next_ns: u64,
    polling: bool,
    /// Journal records that the mount replayed; for reports.
    pub replayed: u64,
}

impl Checkpoints {
    /// Whether one is running.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether the last one that is over has failed.
    pub fn last_failed(&self) -> bool {
        self.finished > self.good
    }

    /// Asks for one that holds everything up to now; tells its number. It begins with the next poll.
    pub fn request(&mut self) -> u64 {
        self.wanted = self.wanted.max(self.begun + 1);
        self.begun + 1
    }

    /// Number of the next one to begin.
    pub(crate) fn next(&self) -> u64 {
        self.begun + 1
    }

    /// Notes that the object table has changed.
    pub(crate) fn note_change(&mut self) {
        self.changed = true;
    }

    /// How a sync went; `None` while it is not over.
    fn sync_result(&self, ticket: Ticket) -> Option<Result<(), Error>> {
        if self.syncs.contains_key(&ticket) {
            return None;
        }
        let failure = self.failures.iter().find(|failure| failure.0 == ticket);
        Some(failure.map_or(Ok(()), |&(_, error)| Err(error)))
    }

    /// Keeps slots that a persistent object gave up until that is in a checkpoint.
    pub(crate) fn hold_addresses(&mut self, first: u64, slots: u64) {
        self.held.push_back((self.next(), first, slots));
    }
}

fn error_of(failure: Failure) -> Error {
    match failure {
        Failure::DiskFull => Error::DiskFull,
        Failure::Memory => Error::NoMemory,
        _ => Error::DiskError,
    }
}

impl Server {
    /// Asks for a checkpoint that holds everything up to now and begins it if it can; tells its number.
    pub fn checkpoint_request<W: World>(&mut self, world: &mut W) -> u64 {
        let number = self.checkpoint.request();
        self.poll_store(world);
        number
    }

    /// The same for the last checkpoint before the power goes.
    pub fn checkpoint_request_last<W: World>(&mut self, world: &mut W) -> u64 {
        self.checkpoint.kind = Some(CheckpointKind::Shutdown);
        self.checkpoint_request(world)
    }

    /// How the checkpoint with that number, or a later one in its place, went; `None` while it is not over.
    pub fn checkpoint_reached(&self, number: u64) -> Option<Result<(), Error>> {
        if self.checkpoint.good >= number {
            return Some(Ok(()));
        }
        (self.checkpoint.finished >= number).then_some(Err(Error::DiskError))
    }

    /// Has the store go on, takes its events, and begins what can begin. To be called whenever the
    /// disk has completed something or something was begun.
    pub fn poll_store<W: World>(&mut self, world: &mut W) {
        if self.checkpoint.polling {
            return;
        }
        self.checkpoint.polling = true;
        loop {
            while let Some(event) = self.store.poll(world) {
                self.store_event(world, &event);
            }
            if self.checkpoint.wanted <= self.checkpoint.begun || !self.checkpoint_begin(world) {
                break;
            }
        }
        self.checkpoint.polling = false;
    }

    /// Looks whether a periodic checkpoint is due.
    pub fn poll_clock<W: World>(&mut self, world: &mut W) {
        let now = world.now_ns();
        if now < self.checkpoint.next_ns {
            return;
        }
        self.checkpoint.next_ns = now + PERIOD_NS;
        if self.pager.dirty > 0 || self.checkpoint.changed || self.addresses.lease_is_short() {
            self.checkpoint_request(world);
        }
    }

    /// Begins a checkpoint; tells whether it could.
    fn checkpoint_begin<W: World>(&mut self, world: &mut W) -> bool {
        if self.checkpoint.running.is_some() {
            return false;
        }
        let number = self.checkpoint.begun + 1;
        let pages = self.freeze_everything(world, number);
        self.store.raise_high_water(self.addresses.lease_goal());
        let kind = self.checkpoint.kind.unwrap_or(CheckpointKind::Periodic);
        if self.store.checkpoint_begin(world, pages.clone(), kind).is_err() {
            // Only this module begins checkpoints, so the store should be free. Try again later.
            self.thaw(world, &pages, Outcome::Failed);
            return false;
        }
        self.checkpoint.kind = None;
        self.checkpoint.begun = number;
        self.checkpoint.changed = false;
        self.checkpoint.running = Some(Running { number, pages });
        true
    }

    fn freeze_everything<W: World>(&mut self, world: &mut W, number: u64) -> Vec<DirtyPage> {
        let mut pages = Vec::with_capacity(self.pager.dirty as usize);
        let mut taken_away = false;
        let mut listed = core::mem::take(&mut self.pager.dirty_objects);
        for id in listed.drain(..) {
            self.objects.get_mut(id).listed_dirty = false;
            if self.objects.is_live(id) && self.objects.get(id).dirty > 0 {
                taken_away |= self.freeze_dirty(world, id, 0, u64::MAX, &mut pages);
                self.objects.get_mut(id).checkpoint = number;
            }
        }
        self.pager.dirty_objects = listed;
        if taken_away {
            world.flush_everything();
        }
        pages
    }

    /// Takes frames back from the store.
    fn thaw<W: World>(&mut self, world: &mut W, pages: &[DirtyPage], outcome: Outcome) {
        for page in pages {
            if outcome == Outcome::Failed {
                self.dirty_again(world, page);
            }
            world.frame_release(kernel_frame(page.frame));
        }
    }

    /// A page that was to be written and was not.
    fn dirty_again<W: World>(&mut self, world: &W, page: &DirtyPage) {
        let address = page.base + page.page * PAGE;
        let Some(id) = self.objects.find(address) else { return };
        let object = self.objects.get(id);
        if object.base() != page.base || !object.is_persistent() {
            return;
        }
        let slot = slot_of(address) - object.first_slot();
        let index = index_of(address);
        let state = object.slots.get(slot).copied();
        let Some((state, leaf)) = state.and_then(|state| Some((state, state.leaf()?))) else { return };
        // Dropped since, or another object's: there is nothing to write any more.
        if world.leaf_get(leaf, index).is_none() || state.dirty.has(index) {
            return;
        }
        // It was promised space before. Should the disk have filled up meanwhile, the next
        // checkpoint says so.
        let _ = self.store.reserve(page.base, page.page);
        self.note_dirty(id, slot, index);
    }

    fn store_event<W: World>(&mut self, world: &mut W, event: &Event) {
        match *event {
            Event::PageRead { base, page, frame, flags } => self.page_arrived(world, base, page, kernel_frame(frame), flags),
            Event::PageBad { base, page, reason } => self.page_failed(world, base, page, reason),
            // The frame is kept until all is durable: until then a page that leaves memory could
            // not be read back.
            Event::PageWritten { .. } => {}
            Event::CheckpointDone { .. } => {
                self.addresses.set_leased(self.store.lease());
                self.checkpoint_over(world, Ok(()));
            }
            Event::CheckpointFailed { reason } => {
                world.log(format_args!("checkpoint failed: {reason:?}"));
                self.checkpoint_over(world, Err(error_of(reason)));
            }
            Event::SyncDone(ticket) => self.sync_over(world, ticket, Ok(())),
            Event::SyncFailed(ticket, reason) => {
                world.log(format_args!("sync failed: {reason:?}"));
                self.sync_over(world, ticket, Err(error_of(reason)));
            }
            Event::SyncNeedsCheckpoint(ticket) => {
                let number = self.checkpoint.request();
                if let Some(sync) = self.checkpoint.syncs.get_mut(&ticket) {
                    sync.checkpoint = Some(number);
                    let pages = core::mem::take(&mut sync.pages);
                    self.thaw(world, &pages, Outcome::Failed);
                }
            }
            Event::Damaged { structure, block } => {
                world.log(format_args!("the disk is damaged: {structure:?} in block {block}"));
            }
        }
    }

    fn checkpoint_over<W: World>(&mut self, world: &mut W, result: Result<(), Error>) {
        let Some(running) = self.checkpoint.running.take() else { return };
        self.checkpoint.finished = running.number;
        match result {
            Ok(()) => self.checkpoint.good = running.number,
            Err(_) => self.checkpoint.changed = true,
        }
        self.thaw(world, &running.pages, if result.is_ok() { Outcome::Durable } else { Outcome::Failed });
        while let Some(&(number, first, slots)) = self.checkpoint.held.front()
            && number <= self.checkpoint.good
        {
            self.checkpoint.held.pop_front();
            self.addresses.give_back(first, slots);
        }
        let settled = |sync: &Sync| sync.checkpoint.is_some_and(|number| number <= running.number);
        while let Some(ticket) = self.checkpoint.syncs.iter().find(|(_, sync)| settled(sync)).map(|(&ticket, _)| ticket) {
            self.sync_over(world, ticket, result);
        }
        world.wake(Key::Checkpoint, u32::MAX);
    }

    fn sync_over<W: World>(&mut self, world: &mut W, ticket: Ticket, result: Result<(), Error>) {
        let Some(sync) = self.checkpoint.syncs.remove(&ticket) else { return };
        self.thaw(world, &sync.pages, if result.is_ok() { Outcome::Durable } else { Outcome::Failed });
        if let Err(error) = result {
            if self.checkpoint.failures.len() == FAILURES_MAX {
                self.checkpoint.failures.pop_front();
            }
            self.checkpoint.failures.push_back((ticket, error));
            let next = self.checkpoint.next();
            if let Some(id) = self.objects.find(sync.base) {
                self.objects.get_mut(id).changed_before = next;
            }
            self.checkpoint.changed = true;
        }
        world.wake(Key::Sync(ticket.0), u32::MAX);
    }

    // ---- durable calls ----------------------------------------------------------------------------

    /// Writes the record of a persistent object into the object table. Durable with the next
    /// checkpoint.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::InUse`]; the table is as it was.
    pub(crate) fn put_record(&mut self, record: &store::ObjectRecord) -> Result<(), Error> {
        self.store.put_object(record).map_err(|error| match error {
            store::PutError::DiskFull => Error::DiskFull,
            store::PutError::Limits => Error::TableFull,
            store::PutError::Range => Error::BadArgument,
            store::PutError::Overlap | store::PutError::DeletionPending => Error::InUse,
        })?;
        self.checkpoint.note_change();
        Ok(())
    }

    /// Begins to make the row of an object (which may be deleted) durable, and those of its dirty
    /// pages that lie in a range of addresses.
    pub(crate) fn sync_begin<W: World>(&mut self, world: &mut W, base: u64, from: u64, to: u64) -> Goal {
        let mut pages = Vec::new();
        let id = self.objects.find(base).filter(|&id| self.objects.get(id).base() == base);
        if let Some(id) = id
            && self.freeze_dirty(world, id, from, to, &mut pages)
        {
            world.flush_everything();
        }
        let ticket = self.store.sync_begin(world, pages.clone(), &[base]);
        if let Some(id) = id {
            let object = self.objects.get_mut(id);
            object.sync = Some(ticket);
            object.changed_before = 0;
        }
        self.checkpoint.syncs.insert(ticket, Sync { pages, base, checkpoint: None });
        self.poll_store(world);
        Goal::Sync(ticket)
    }

    /// Whether the pages of an object in a range, and its row, are durable as they are.
    pub(crate) fn is_durable(&self, object: &Object, from: u64, to: u64) -> bool {
        let writing = self.checkpoint_of(object).is_some();
        let syncing = object.sync.is_some_and(|ticket| self.checkpoint.syncs.contains_key(&ticket));
        object.changed_before <= self.checkpoint.good && !writing && !syncing && !has_dirty(object, from, to)
    }

    /// Notes that the row of an object, or what the store knows of its pages, has changed.
    pub(crate) fn note_row_change(&mut self, id: ObjectId) {
        self.objects.get_mut(id).changed_before = self.checkpoint.next();
        self.checkpoint.note_change();
    }

    /// Ends a call that has taken effect, when that is durable.
    ///
    /// # Errors
    /// The need to wait; [`Error::DiskError`] and the like if it cannot be made durable.
    pub(crate) fn finish_durable(&mut self, caller: Caller, goal: Goal, values: (u64, u64)) -> Step<(u64, u64)> {
        self.threads.record(caller.thread).pending = Some(Pending { goal, then: Then::Return(values.0, values.1) });
        self.resume_durable(caller).unwrap_or(Ok(values))
    }

    /// The checkpoint that is writing pages of an object just now.
    pub(crate) fn checkpoint_of(&self, object: &Object) -> Option<u64> {
        let running = self.checkpoint.running.as_ref()?;
        (running.number == object.checkpoint).then_some(running.number)
    }

    /// Lets a call begin anew when the store has done with the pages of an object; nothing if it
    /// has already.
    ///
    /// # Errors
    /// The need to wait.
    pub(crate) fn wait_for_writing(&mut self, caller: Caller, id: ObjectId) -> Step<()> {
        let object = self.objects.get(id);
        let syncing = object.sync.filter(|ticket| self.checkpoint.syncs.contains_key(ticket));
        let goal = match (self.checkpoint_of(object), syncing) {
            (Some(number), _) => Goal::Checkpoint(number),
            (None, Some(ticket)) => Goal::Sync(ticket),
            (None, None) => return Ok(()),
        };
        self.threads.record(caller.thread).pending = Some(Pending { goal, then: Then::Again });
        match self.resume_durable(caller) {
            Some(Err(stop)) => Err(stop),
            _ => Ok(()),
        }
    }

    /// What is to be done by a call that has taken effect before and is done again; nothing if this
    /// one has not.
    pub(crate) fn resume_durable(&mut self, caller: Caller) -> Option<Step<(u64, u64)>> {
        let Pending { goal, then } = self.threads.record(caller.thread).pending?;
        let (result, key) = match goal {
            Goal::Sync(ticket) => (self.checkpoint.sync_result(ticket), Key::Sync(ticket.0)),
            Goal::Checkpoint(number) => (self.checkpoint_reached(number), Key::Checkpoint),
        };
        let Some(result) = result else { return Some(Err(Stop::Wait(key))) };
        self.threads.record(caller.thread).pending = None;
        match then {
            Then::Return(value, value2) => Some(result.map(|()| (value, value2)).map_err(Stop::from)),
            Then::Again => None,
        }
    }

    /// What `SystemInfo` tells of the store.
    pub fn store_report(&self) -> StoreReport {
        let stats = self.store.stats();
        StoreReport {
            blocks: stats.blocks,
            free: stats.free,
            reserved: stats.reserved,
            generation: stats.generation,
            objects: stats.objects,
            dirty: self.pager.dirty,
            replayed: self.checkpoint.replayed,
            damaged: stats.damaged,
        }
    }
}

/// Whether an object has dirty pages in a range of addresses.
fn has_dirty(object: &Object, from: u64, to: u64) -> bool {
    if object.dirty == 0 {
        return false;
    }
    let first = from.max(object.base());
    let mut next = object.slots.next_with_leaf(slot_of(first) - object.first_slot());
    while let Some(slot) = next {
        let start = (object.first_slot() + slot) * abi::address::SLOT;
        if start >= to {
            return false;
        }
        let index = first.saturating_sub(start).div_ceil(PAGE) as usize;
        let dirty = object.slots.get(slot).and_then(|state| state.dirty.next(index));
        if dirty.is_some_and(|index| start + index as u64 * PAGE < to) {
            return true;
        }
        next = object.slots.next_with_leaf(slot + 1);
    }
    false
}

/// What became of pages that were handed over.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Outcome {
    Durable,
    Failed,
}
