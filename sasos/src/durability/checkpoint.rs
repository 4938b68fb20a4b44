//! Checkpoints and syncs: how changes come to stable storage, and who waits for that.
//!
//! Checkpoints are numbered. One that is *requested* has the number after the last begun, so it
//! holds everything up to now; a call that needs that waits for the number. Dirty pages are frozen
//! ([`crate::durability::freeze`]) and their frames keep a reference of the store until the checkpoint
//! or sync is over; if it failed they count as dirty again.
//! The goals that single calls wait for stand in [`crate::durability::durable`].

use alloc::vec::Vec;

use abi::{
    Error,
    address::{PAGE, slot_of},
    host::EXIT_FAILURE,
    layout::StoreReport,
};
use kcore::{Frame, wait::Key};
use store::{DirtyPage, Event, Failure, Ticket};

use crate::{
    Server, World,
    accounts::{AccountId, limits},
    containers::Map,
    directory::object::ObjectId,
    durability::durable::SYNC_RANGES_MAX,
    durability::freeze::{COST_LET_GO, Freezing},
    durability::snapshots::{Asked, Part},
    lives::budget::Cost,
    pages::pager::index_of,
};

/// Time between two checkpoints while something changes.
pub const PERIOD_NS: u64 = 1_000_000_000;
/// Blocks that wait for a checkpoint to be free and are worth one. Each checkpoint itself leaves a few.
pub(super) const HELD_MANY: u64 = 64;
/// The cost of taking a page in that was read.
const COST_ARRIVAL: Cost = Cost::calling(1_600, 4);
/// Failed syncs that are remembered for those who wait for them.
const FAILURES_MAX: usize = 256;

/// The checkpoint that is running.
pub(crate) struct Running {
    pub(crate) number: u64,
    /// How it went, once the store has done with it and its pages are being let go.
    pub(crate) result: Option<Result<(), Error>>,
}

/// The checkpoint before the machine stops. From the moment on that it is asked for no sync begins, and from its own moment on no other checkpoint: what they would
/// write behind it would make the disk look as if the power had failed.
struct Closing {
    number: u64,
    exit: u8,
    /// Whether the machine stops even if it fails.
    anyway: bool,
}

/// A sync that is not over.
struct Sync {
    pages: Vec<DirtyPage>,
    /// The objects whose rows it carries, or zero.
    bases: [u64; SYNC_RANGES_MAX],
    /// The number of the account that asked for it, which may be closed by the end.
    asker: u64,
}

/// Failures that are remembered, each in the place of its ticket.
struct Failures([Option<(Ticket, Error)>; FAILURES_MAX]);

impl Default for Failures {
    fn default() -> Self {
        Self([None; FAILURES_MAX])
    }
}

impl Failures {
    /// The entry in the place of a ticket.
    fn of(&self, ticket: Ticket) -> Option<(Ticket, Error)> {
        self.0[ticket.0 as usize % FAILURES_MAX]
    }

    /// Notes a failure in the place of another one, which is returned.
    fn note(&mut self, ticket: Ticket, error: Error) -> Option<(Ticket, Error)> {
        self.0[ticket.0 as usize % FAILURES_MAX].replace((ticket, error))
    }
}

/// Checkpoints and syncs under way.
#[derive(Default)]
pub struct Checkpoints {
    /// Number of the last one whose moment is past.
    pub(crate) begun: u64,
    /// Number of the last one that is over.
    finished: u64,
    /// Number of the last one that is durable.
    good: u64,
    /// Number of the last one that was requested.
    wanted: u64,
    /// Number of the last one that is to make a generation in any case.
    generation: u64,
    /// The last one before the machine stops, if it was asked to stop.
    closing: Option<Closing>,
    /// The one whose pages are being frozen.
    pub(crate) freezing: Option<Freezing>,
    pub(crate) running: Option<Running>,
    syncs: Map<Ticket, Sync>,
    /// Those whose work a checkpoint will do, by its number.
    handed: Map<(u64, Ticket), ()>,
    failures: Failures,
    /// The last ticket whose failure is no longer listed.
    forgotten_failures: Option<Ticket>,
    /// Who has asked for a snapshot, or to drop one.
    pub(crate) asked: Option<Asked>,
    /// Generations that are still to be asked for until all blocks of snapshots that were dropped have come back.
    pub(crate) returning: u8,
    /// Blocks of the disk when its size was read last.
    pub(crate) disk_blocks: u64,
    /// Slots that persistent objects gave up: the number of the checkpoint from which on the disk agrees and the first slot, to their count.
    held: Map<(u64, u64), u64>,
    /// Whether the table has changed since the last checkpoint was begun.
    pub(crate) changed: bool,
    next_ns: u64,
    pub(crate) polling: bool,
    /// Whether the last poll left nothing of the allowance for a piece of freezing or letting go.
    passed_over: bool,
    /// Journal records that the mount replayed; for reports.
    pub replayed: u64,
    /// 1 if it discarded the end of the journal; for reports.
    pub cut: u64,
}

impl Checkpoints {
    /// Whether one is running, freezing included.
    pub fn is_running(&self) -> bool {
        self.running.is_some() || self.freezing.is_some()
    }

    /// Number of the last one whose moment is past.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Whether one is running, or a sync.
    pub fn is_busy(&self) -> bool {
        self.is_running() || !self.syncs.is_empty()
    }

    /// Whether pages are being frozen.
    #[inline]
    pub fn is_freezing(&self) -> bool {
        self.freezing.is_some()
    }

    /// Whether the store has done with the one that is running, and its pages are being let go.
    pub(crate) fn is_letting_go(&self) -> bool {
        self.last_result().is_some()
    }

    /// How the store has done with the one that is running, if it has.
    pub(crate) fn last_result(&self) -> Option<Result<(), Error>> {
        self.running.as_ref()?.result
    }

    /// Whether the last one that is over has failed.
    pub fn last_failed(&self) -> bool {
        self.finished > self.good
    }

    /// Asks for one that holds everything up to now; tells its number. It begins with the next poll. (While one is being
    /// frozen its moment is still to come, so it is that one.)
    pub fn request(&mut self) -> u64 {
        self.wanted = self.wanted.max(self.begun + 1);
        self.begun + 1
    }

    /// The same for one that makes a generation, however little has changed: blocks, addresses and map nodes in memory are free behind it.
    pub(crate) fn request_generation(&mut self) -> u64 {
        self.generation = self.request();
        self.generation
    }

    /// Whether one was asked for, has not begun, and may begin.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted > self.begun && self.closing.as_ref().is_none_or(|last| last.number > self.begun)
    }

    /// Whether the last one before the machine stops is asked for, or over.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Whether syncs are under way that no checkpoint is to do.
    pub(crate) fn has_syncs(&self) -> bool {
        self.syncs.count() > self.handed.count()
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
    pub(crate) fn sync_result(&self, ticket: Ticket) -> Option<Result<(), Error>> {
        if self.is_syncing(ticket) {
            return None;
        }
        if let Some((_, error)) = self.failures.of(ticket).filter(|failure| failure.0 == ticket) {
            return Some(Err(error));
        }
        // A failure that is no longer listed must not look like success; an old success may look like failure.
        Some(if Some(ticket) <= self.forgotten_failures {
            Err(Error::DiskError)
        } else {
            Ok(())
        })
    }

    /// Makes room for one more sync.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn expect_sync(&mut self) -> Result<(), Error> {
        self.handed.reserve(self.syncs.count() + 1)?;
        self.syncs.reserve(self.syncs.count() + 1)
    }

    /// Notes a sync that was begun, where there is [room](Checkpoints::expect_sync).
    pub(crate) fn note_sync(
        &mut self,
        ticket: Ticket,
        pages: Vec<DirtyPage>,
        bases: [u64; SYNC_RANGES_MAX],
        asker: u64,
    ) {
        let _ = self.syncs.insert(ticket, Sync { pages, bases, asker });
    }

    /// Whether a sync is not over.
    pub(crate) fn is_syncing(&self, ticket: Ticket) -> bool {
        self.syncs.has(ticket)
    }

    /// Whether the checkpoint with that number, or a later one in its place, is durable.
    pub(crate) fn is_good(&self, number: u64) -> bool {
        number <= self.good
    }

    /// Whether the one with that number is to make a generation in any case.
    pub(crate) fn makes_generation(&self, number: u64) -> bool {
        self.generation == number
    }

    /// Number of the one that is running, freezing included.
    pub(crate) fn running_number(&self) -> Option<u64> {
        let freezing = self.freezing.as_ref().map(|freezing| freezing.number);
        self.running.as_ref().map(|running| running.number).or(freezing)
    }

    /// Keeps slots that a persistent object gave up until that is in a checkpoint; without memory to note it, until the next start.
    pub(crate) fn hold_addresses(&mut self, first: u64, slots: u64) {
        let _ = self.held.insert((self.next(), first), slots);
    }

    /// Runs of slots that wait for a checkpoint.
    pub(crate) fn held_runs(&self) -> usize {
        self.held.count()
    }

    /// Whether slots wait for a checkpoint.
    pub(crate) fn holds_addresses(&self) -> bool {
        !self.held.is_empty()
    }
}

pub(crate) fn error_of(failure: Failure) -> Error {
    match failure {
        Failure::DiskFull => Error::DiskFull,
        Failure::Memory => Error::NoMemory,
        _ => Error::DiskError,
    }
}

impl Server {
    /// Asks for a checkpoint that holds everything up to now and begins it if it can; tells its number. A small one on a
    /// disk that works at once is over then; otherwise the next polls see to it.
    pub fn checkpoint_request<W: World>(&mut self, world: &mut W) -> u64 {
        let number = self.checkpoint.request();
        self.poll_checkpoint(world);
        number
    }

    /// The same for [one that makes a generation](Checkpoints::request_generation).
    pub(crate) fn generation_request<W: World>(&mut self, world: &mut W) -> u64 {
        let number = self.checkpoint.request_generation();
        self.poll_checkpoint(world);
        number
    }

    /// Polls the store, and does a piece of what a checkpoint has left before and behind it.
    pub fn poll_checkpoint<W: World>(&mut self, world: &mut W) {
        // However much is read meanwhile, it gets on: every second time it goes first.
        let first = core::mem::take(&mut self.checkpoint.passed_over);
        if first {
            self.checkpoint_piece(world);
        }
        self.poll_store(world);
        let has_pieces = self.checkpoint.is_freezing() || self.checkpoint.is_letting_go();
        self.checkpoint.passed_over = has_pieces && !self.has_budget() && !first;
        if self.checkpoint.is_freezing() && self.has_budget() {
            self.checkpoint_piece(world);
            self.poll_store(world);
        }
        if self.checkpoint.is_letting_go() && self.has_budget() {
            self.checkpoint_piece(world);
        }
    }

    /// Whether the store has left something of the event's budget.
    fn has_budget(&self) -> bool {
        self.budget.is_left() && !self.store.is_stopped()
    }

    /// Asks for the last checkpoint before the machine stops with this value, by itself when all is written; `anyway`: even if the checkpoint fails. Tells its number.
    /// If it was asked for before, the first request counts; should that one fail, who asked later asks again.
    pub(crate) fn close<W: World>(&mut self, world: &mut W, exit: u8, anyway: bool) -> u64 {
        let number = self.checkpoint.request();
        let closing = self.checkpoint.closing.get_or_insert(Closing { number, exit, anyway });
        closing.anyway |= anyway;
        self.poll_checkpoint(world);
        number
    }

    /// Stops the machine if the last checkpoint is on the disk.
    fn stop_when_stable(&mut self, world: &mut impl World) {
        let Some(last) = &self.checkpoint.closing else { return };
        let running = self.checkpoint.running.as_ref();
        let result = running
            .filter(|running| running.number >= last.number)
            .map_or_else(|| self.checkpoint_reached(last.number), |running| running.result);
        match result {
            Some(Ok(())) if self.store.is_copied() => world.stop(last.exit),
            Some(Err(_)) if last.anyway => world.stop(EXIT_FAILURE),
            Some(Err(_)) => self.checkpoint.closing = None,
            _ => {}
        }
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
        let was_copied = self.store.is_copied();
        while let Some(event) = self.store.poll_within(world, self.budget.left_to_store()) {
            self.store_event(world, &event);
        }
        if self.checkpoint.is_wanted() && !self.checkpoint.is_running() {
            self.checkpoint.freezing = Some(Freezing::new(self.checkpoint.next()));
        }
        self.checkpoint.polling = false;
        // The frame of a superblock's second copy is free now, for which somebody may wait.
        if !was_copied && self.store.is_copied() {
            world.wake(Key::Checkpoint, u32::MAX);
        }
        self.stop_when_stable(world);
    }

    /// Asks for a periodic checkpoint if one is due. Where nothing has changed, what the last record names is proved to be there.
    pub(crate) fn poll_clock<W: World>(&mut self, world: &mut W) {
        let now = world.now_ns();
        if now < self.checkpoint.next_ns {
            return;
        }
        self.checkpoint.next_ns = now + PERIOD_NS;
        let mends = !self.checkpoint.is_closing() && self.scrub_period(world);
        // Blocks of removed objects are free after a second checkpoint.
        let held = self.store.stats().held;
        let frees = held > HELD_MANY;
        if self.brings_back(held) || mends {
            self.checkpoint.request_generation();
        } else if self.pager.dirty > 0 || self.checkpoint.changed || frees {
            self.checkpoint.request();
        } else if !self.checkpoint.is_busy() && !self.checkpoint.is_closing() {
            self.store.seal(world);
        }
    }

    /// Takes frames of a sync back from the store.
    pub(crate) fn thaw<W: World>(&mut self, world: &mut W, pages: &[DirtyPage], failed: bool) {
        self.budget.spend(COST_LET_GO.times(pages.len() as u64));
        for page in pages {
            if let Some(frame) = self.come_back(world, page, failed) {
                world.frame_release(frame);
            }
        }
    }

    /// Takes the frame of a page of a checkpoint back from the store.
    pub(crate) fn let_go<W: World>(&mut self, world: &mut W, page: &DirtyPage, failed: bool) {
        if let Some(frame) = self.come_back(world, page, failed) {
            world.frame_let_go(frame);
        }
    }

    /// A page was written, or is dirty again: its frame.
    fn come_back<W: World>(&mut self, world: &W, page: &DirtyPage, failed: bool) -> Option<Frame> {
        if failed {
            self.dirty_again(world, page);
        } else {
            self.pager.queues.arrived(page.frame.0, page.base + page.page * PAGE);
        }
        world.frame_found(page.frame.0)
    }

    /// A page that was to be written and was not. The store has promised it space again.
    fn dirty_again<W: World>(&mut self, world: &W, page: &DirtyPage) {
        let address = page.base + page.page * PAGE;
        match self.resident_place(world, page.base, address) {
            Some((_, _, _, true)) => {}
            Some((id, slot, frame, false)) if frame.number() == page.frame.0 => {
                self.note_dirty(id, slot, index_of(address));
            }
            // Dropped since, and perhaps read again as what it is by now, or another object's: there is nothing to write any more.
            _ => self.store.unreserve(page.base, page.page),
        }
    }

    /// A page of the persistent object at `base` in memory: the object, the slot in it, the frame, and whether it is dirty.
    fn resident_place<W: World>(&self, world: &W, base: u64, address: u64) -> Option<(ObjectId, u64, Frame, bool)> {
        let id = self.objects.find(address)?;
        let object = self.objects.get(id);
        let slot = slot_of(address) - object.first_slot();
        let state = object
            .slots
            .get(slot)
            .filter(|_| object.base() == base && object.is_persistent())?;
        let entry = world.leaf_get(state.leaf()?, index_of(address))?;
        Some((id, slot, entry.frame, state.dirty.has(index_of(address))))
    }

    fn store_event<W: World>(&mut self, world: &mut W, event: &Event) {
        match *event {
            Event::PageRead {
                base,
                page,
                frame,
                flags,
            } => {
                self.budget.spend(COST_ARRIVAL);
                if let Some(frame) = world.frame_found(frame.0) {
                    self.page_arrived(world, base, page, frame, flags);
                }
            }
            Event::PageBad { base, page, reason } => self.page_failed(world, base, page, reason),
            Event::RowsRead { key } => {
                world.wake(Key::Page(key), u32::MAX);
            }
            // Not told: the frame is kept until all is durable, for until then a page that leaves memory could not be read back.
            Event::PageWritten { .. } => {}
            Event::CheckpointDone { .. } => self.checkpoint_result(Ok(())),
            Event::CheckpointFailed { reason } => {
                self.log.say(world, format_args!("checkpoint failed: {reason:?}"));
                self.checkpoint_result(Err(error_of(reason)));
            }
            Event::SyncDone(ticket) => self.sync_over(world, ticket, Ok(())),
            Event::SyncFailed(ticket, Failure::ReadOnly) => {
                self.sync_over(world, ticket, Err(Error::DiskError));
            }
            Event::SyncFailed(ticket, reason) => {
                self.log.say(
                    world,
                    format_args!("sync failed: {reason:?}; a checkpoint is tried instead"),
                );
                self.sync_by_checkpoint(world, ticket);
            }
            Event::SyncNeedsCheckpoint(ticket) => self.sync_by_checkpoint(world, ticket),
            Event::Damaged {
                structure,
                block,
                base: 0,
                snapshot,
                ..
            } => self.log.say(
                world,
                format_args!(
                    "the disk is damaged: {structure:?} in block {block}{}",
                    Part(&self.store, snapshot)
                ),
            ),
            Event::Damaged {
                structure,
                block,
                base,
                page,
                snapshot,
            } => self.log.say(
                world,
                format_args!(
                    "the disk is damaged: {structure:?} in block {block}, page {page} of object {base:#x}{}",
                    Part(&self.store, snapshot)
                ),
            ),
        }
    }

    /// The next checkpoint is to do the work of a sync.
    fn sync_by_checkpoint<W: World>(&mut self, world: &mut W, ticket: Ticket) {
        let number = self.checkpoint.request();
        if let Some(sync) = self.checkpoint.syncs.get_mut(ticket) {
            let pages = core::mem::take(&mut sync.pages);
            let _ = self.checkpoint.handed.insert((number, ticket), ());
            self.thaw(world, &pages, true);
        }
    }

    /// The store has done with the checkpoint that is running. Its pages are still to be let go.
    fn checkpoint_result(&mut self, result: Result<(), Error>) {
        if let Some(running) = &mut self.checkpoint.running {
            running.result = Some(result);
        }
    }

    /// The checkpoint that is running is over, and its pages were let go.
    pub(crate) fn checkpoint_over<W: World>(&mut self, world: &mut W) {
        let Some(running) = self.checkpoint.running.take() else {
            return;
        };
        let result = running.result.unwrap_or(Ok(()));
        self.checkpoint.finished = running.number;
        match result {
            Ok(()) => self.checkpoint.good = running.number,
            Err(_) => self.checkpoint.changed = true,
        }
        self.snapshot_over(running.number, result);
        self.bound_dirty_pages();
        world.wake(Key::Checkpoint, u32::MAX);
    }

    /// Bounds the dirty pages of all programs by what is free on the disk now.
    pub(crate) fn bound_dirty_pages(&mut self) {
        if self.programs != AccountId::ROOT {
            limits::renew_dirty(&mut self.ledger, self.programs, self.store.stats().free);
        }
    }

    /// Tells of one of the syncs whose work the checkpoint was to do that is running, or gives the slots of one object back; tells whether
    /// there was one.
    pub(crate) fn checkpoint_over_step<W: World>(&mut self, world: &mut W) -> bool {
        let checkpoint = &mut self.checkpoint;
        let Some((number, result)) = checkpoint
            .running
            .as_ref()
            .map(|running| (running.number, running.result))
        else {
            return false;
        };
        let result = result.unwrap_or(Ok(()));
        if let Some((by, ticket)) = checkpoint.handed.first_key().filter(|first| first.0 <= number) {
            checkpoint.handed.remove((by, ticket));
            self.sync_over(world, ticket, result);
            return true;
        }
        let held = checkpoint
            .held
            .first_key()
            .filter(|first| result.is_ok() && first.0 <= number);
        let Some((number, first)) = held else { return false };
        if let Some(slots) = checkpoint.held.remove((number, first)) {
            self.addresses.give_back(first, slots);
        }
        true
    }

    fn sync_over<W: World>(&mut self, world: &mut W, ticket: Ticket, result: Result<(), Error>) {
        let Some(sync) = self.checkpoint.syncs.remove(ticket) else {
            return;
        };
        self.checkpoint.syncs.release(0);
        self.checkpoint.handed.release(self.checkpoint.syncs.count());
        self.thaw(world, &sync.pages, result.is_err());
        if result.is_ok() {
            let asker = self.ledger.find(sync.asker);
            self.ledger.give_to_part(asker, self.programs, sync.pages.len() as u64);
        }
        if let Err(error) = result {
            let forgotten = self.checkpoint.failures.note(ticket, error).map(|failure| failure.0);
            self.checkpoint.forgotten_failures = self.checkpoint.forgotten_failures.max(forgotten);
            let next = self.checkpoint.next();
            for id in sync.bases.map(|base| self.objects.find(base)).into_iter().flatten() {
                self.objects.get_mut(id).changed_before = next;
            }
            self.checkpoint.changed = true;
        }
        world.wake(Key::Sync(ticket.0), u32::MAX);
    }

    /// The report of `SystemInfo` on the store.
    pub fn store_report(&self) -> StoreReport {
        let (stats, scrub) = (self.store.stats(), self.store.scrub_report());
        StoreReport {
            blocks: stats.blocks,
            free: stats.free,
            reserved: stats.reserved,
            generation: stats.generation,
            objects: stats.objects,
            dirty: self.pager.dirty,
            replayed: self.checkpoint.replayed,
            damaged: stats.damaged,
            cut: self.checkpoint.cut,
            checkpoints: self.checkpoint.good,
            scrubbing: scrub.runs.into(),
            scrub_seen: scrub.seen,
            scrub_all: scrub.all.max(scrub.seen),
            scrub_damaged: scrub.damaged,
            scrubs: scrub.passes,
            scrub_next_ns: self.scrubbing.next_ns(),
            reads: stats.reads,
            writes: stats.writes,
            flushes: stats.flushes,
            snapshots: self.store.snapshot_count() as u64,
            disk_blocks: self.checkpoint.disk_blocks,
            returning: u64::from(self.store.is_reclaiming() || self.checkpoint.returning > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_that_failed_never_looks_like_one_that_went_well() {
        let mut checkpoints = Checkpoints::default();
        let [first, second] = [Ticket(5), Ticket(5 + FAILURES_MAX as u64)];
        for (ticket, error) in [(first, Error::DiskFull), (second, Error::NoMemory)] {
            let forgotten = checkpoints.failures.note(ticket, error).map(|failure| failure.0);
            checkpoints.forgotten_failures = checkpoints.forgotten_failures.max(forgotten);
        }
        let results = [4, 5, 6, second.0, second.0 + 1].map(|ticket| checkpoints.sync_result(Ticket(ticket)));
        let failed = Some(Err(Error::DiskError));
        assert_eq!(
            results,
            [failed, failed, Some(Ok(())), Some(Err(Error::NoMemory)), Some(Ok(()))]
        );
    }
}
