//! Calls whose effect must be on stable storage before they return.
//!
//! Such a call takes effect once, notes in its thread what it waits for ([`Continuation::Durable`]) and parks; when
//! it is done again it finds the note and only waits on. So a call that was parked never does a
//! thing twice.

use alloc::vec::Vec;

use abi::{
    Error,
    address::{PAGE, slot_of},
};
use kcore::wait::Key;
use store::{DirtyPage, NoRoom, ObjectRecord, PutError, Ticket};

use crate::{
    Server, Step, Stop, World,
    containers::{push_reserved, reserve},
    directory::object::{Object, ObjectId, Which},
    durability::freeze::{COST_TABLE, freezing},
    lives::budget::Cost,
    lives::continuation::Continuation,
    lives::thread::{Caller, Life},
    pages::page::Range,
    pages::pager::index_of,
};

/// Pages that one sync writes, all as they are at one moment; more of them are a checkpoint's work.
pub const SYNC_PAGES_MAX: usize = 10;
/// Ranges, each perhaps of another object, that one sync writes pages of; more of them are a checkpoint's work.
pub const SYNC_RANGES_MAX: usize = 4;
/// Page tables in which a sync looks for them.
const SYNC_TABLES_MAX: u64 = 64;
/// The most that freezing the pages of a sync may cost, which is done in one event: pages that are far apart are dear.
const SYNC_COST_MAX: u64 = 13_000;

/// The sync or checkpoint that a call waits for before it may tell that it is done.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Goal {
    /// A sync.
    Sync(Ticket),
    /// A checkpoint, by number.
    Checkpoint(u64),
}

/// The error that a task is told when the store has no room.
pub(crate) fn no_room(error: NoRoom) -> Error {
    match error {
        NoRoom::Disk => Error::DiskFull,
        NoRoom::Memory => Error::NoMemory,
    }
}

/// Objects that are deleted while a checkpoint writes the table, at most.
pub const DELETIONS_BESIDE: usize = 16;
/// The cost of a call beside the sync that it begins, in instructions, roughly.
const COST_CALL: Cost = Cost::own(4_500);
/// The cost of each further range of the sync.
const COST_RANGE: Cost = Cost::own(1_500);
/// The cost of entering a record into the object table.
const COST_RECORD: Cost = Cost::own(4_500);

impl Server {
    /// Writes the record of a persistent object into the object table. Durable with the next
    /// checkpoint.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::InUse`]; the table is as it was.
    pub(crate) fn put_record(&mut self, record: ObjectRecord) -> Result<(), Error> {
        self.budget.spend(COST_RECORD);
        self.store.put_object(record).map_err(|error| match error {
            PutError::DiskFull => Error::DiskFull,
            // Those who enter an object, or make one longer, have looked for its neighbours.
            PutError::Memory | PutError::Absent => Error::NoMemory,
            PutError::Limits => Error::TableFull,
            PutError::Range => Error::BadArgument,
            PutError::Overlap | PutError::DeletionPending => Error::InUse,
        })?;
        self.checkpoint.note_change();
        Ok(())
    }

    /// Whether the row of an object may change or go now. While a checkpoint writes the table, changes are kept beside it, and nobody pays for them:
    /// they wait for its end when the heap is short. A look-up passes each deletion, so they wait when there are many.
    pub(crate) fn row_may_change(&self, world: &impl World, id: ObjectId) -> Step<()> {
        let waits = self.objects.get(id).is_persistent()
            && self.store.writes_table()
            && (self.store.deletions_beside() >= DELETIONS_BESIDE || self.enough_heap(world).is_err());
        if waits {
            Err(Stop::Wait(Key::Checkpoint))
        } else {
            Ok(())
        }
    }

    /// Begins to make the row of an object (which may be deleted) durable.
    pub(crate) fn sync_row<W: World>(&mut self, world: &mut W, base: u64) -> Goal {
        self.sync_begin(world, &[(base, 0, 0)])
    }

    /// The same of several objects, each with those of its dirty pages that lie in a range of addresses: [`SYNC_RANGES_MAX`] ranges and [`SYNC_PAGES_MAX`]
    /// pages in all, at most.
    fn sync_begin<W: World>(&mut self, world: &mut W, parts: &[(u64, u64, u64)]) -> Goal {
        // Without memory for a sync, or where the machine is about to stop, a checkpoint does its work.
        let room = (room_for_sync(), room_for_sync(), self.checkpoint.expect_sync());
        let (false, (Ok(mut pages), Ok(mut written), Ok(()))) = (self.checkpoint.is_closing(), room) else {
            return Goal::Checkpoint(self.checkpoint_request(world));
        };
        let mut bases = [0; SYNC_RANGES_MAX];
        for (place, &(base, from, to)) in bases.iter_mut().zip(parts) {
            *place = base;
            let Some(id) = self.alive(base) else { continue };
            let most = SYNC_PAGES_MAX - pages.len();
            let list = |_: &mut store::Store, page| {
                push_reserved(&mut pages, page);
                push_reserved(&mut written, page);
                Ok(())
            };
            // Nothing can fail in it.
            let _ = self.freeze_dirty(world, id, (from, to), (most, false), list);
        }
        let count = parts.len();
        let Ok(ticket) = self.store.sync_begin(world, written, &bases[..count]) else {
            self.thaw(world, &pages, true);
            return Goal::Checkpoint(self.checkpoint_request(world));
        };
        for id in bases.map(|base| self.alive(base)).into_iter().flatten() {
            let object = self.objects.get_mut(id);
            object.sync = Some(ticket);
            object.changed_before = 0;
        }
        let asker = self.ledger.number(self.account_of(self.current));
        self.checkpoint.note_sync(ticket, pages, bases, asker);
        // The call has done its part: the record is written in an event of its own.
        self.budget.spend(COST_CALL.and(COST_RANGE.times(count as u64 - 1)));
        self.poll_store(world);
        Goal::Sync(ticket)
    }

    /// The object that begins at an address, unless it is deleted.
    fn alive(&self, base: u64) -> Option<ObjectId> {
        let found = self.objects.find(base)?;
        (self.objects.get(found).base() == base).then_some(found)
    }

    /// Makes pages in some ranges, and the rows of their objects, durable together: by a sync, or by a checkpoint where there is too much
    /// for one.
    pub(crate) fn flush_begin<W: World>(&mut self, world: &mut W, ranges: &[Range]) -> Goal {
        let mut tables = SYNC_TABLES_MAX;
        let is_sync = ranges.len() <= SYNC_RANGES_MAX && self.are_few(ranges, &mut tables);
        if is_sync {
            self.budget.spend(COST_TABLE.times(SYNC_TABLES_MAX - tables));
            let parts = ranges
                .iter()
                .map(|range| (self.objects.get(range.id).base(), range.from, range.to));
            let mut bases = [(0, 0, 0); SYNC_RANGES_MAX];
            bases.iter_mut().zip(parts).for_each(|(place, part)| *place = part);
            return self.sync_begin(world, &bases[..ranges.len()]);
        }
        self.budget.spend(COST_TABLE.times(SYNC_TABLES_MAX - tables));
        Goal::Checkpoint(self.checkpoint_request(world))
    }

    /// Whether the dirty pages of some ranges are few enough for a sync, which freezes them in one event.
    fn are_few(&self, ranges: &[Range], tables: &mut u64) -> bool {
        let (mut cost, mut pages) = (Cost::own(0), 0);
        for range in ranges {
            let (mut next, mut table) = (range.from, None);
            let object = self.objects.get(range.id);
            while let Some(place) = object.next_near(Which::Dirty, &mut next, range.to, tables) {
                next = place.address + PAGE;
                pages += 1;
                cost = cost.and(freezing(table.replace(place.slot) != Some(place.slot)));
                if pages > SYNC_PAGES_MAX || self.budget.price(cost) > SYNC_COST_MAX {
                    return false;
                }
            }
            if *tables == 0 {
                return false;
            }
        }
        true
    }

    /// Whether the pages in some ranges, and the rows of their objects, are durable as they are. It looks at [`SYNC_TABLES_MAX`] page tables in all.
    pub(crate) fn are_durable(&mut self, ranges: &[Range]) -> bool {
        let mut tables = SYNC_TABLES_MAX;
        let all = ranges.iter().all(|range| {
            let object = self.objects.get(range.id);
            self.is_written_but_for_dirty(object) && !has_dirty(object, (range.from, range.to), &mut tables)
        });
        self.budget.spend(COST_TABLE.times(SYNC_TABLES_MAX - tables));
        all
    }

    /// The same of an object without dirty pages.
    pub(crate) fn is_written_but_for_dirty(&self, object: &Object) -> bool {
        let writing = self.checkpoint_of(object).is_some();
        let syncing = object.sync.is_some_and(|ticket| self.checkpoint.is_syncing(ticket));
        self.checkpoint.is_good(object.changed_before) && !writing && !syncing
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
        // The effect of the call may have ended the caller itself: nobody waits then, and its record is the next thread's.
        if self
            .threads
            .find(caller.thread)
            .is_none_or(|record| record.life != Life::Live)
        {
            return Ok(values);
        }
        self.threads.record(caller.thread).continuation = Continuation::Durable { goal, values };
        self.resume_durable(caller).unwrap_or(Ok(values))
    }

    /// The checkpoint that is writing pages of an object just now.
    pub(crate) fn checkpoint_of(&self, object: &Object) -> Option<u64> {
        self.checkpoint
            .running_number()
            .filter(|&number| number == object.checkpoint)
    }

    /// Has a call wait until the store has done with the pages of an object, whether that goes well or not.
    ///
    /// # Errors
    /// The need to wait.
    pub(crate) fn wait_for_writing(&self, id: ObjectId) -> Step<()> {
        let object = self.objects.get(id);
        let syncing = object.sync.filter(|ticket| self.checkpoint.is_syncing(*ticket));
        match (self.checkpoint_of(object), syncing) {
            (Some(_), _) => Err(Stop::Wait(Key::Checkpoint)),
            (None, Some(ticket)) => Err(Stop::Wait(Key::Sync(ticket.0))),
            (None, None) => Ok(()),
        }
    }

    /// Has a flush wait until the store has done with the pages in its ranges. What a checkpoint is writing of the same objects does not matter if the flush has few pages
    /// and none of them is among it, or all were written again since: a sync of these goes ahead.
    ///
    /// # Errors
    /// The need to wait.
    pub(crate) fn wait_for_ranges<W: World>(&mut self, world: &W, ranges: &[Range]) -> Step<()> {
        let pages = ranges
            .iter()
            .map(|range| range.to.saturating_sub(range.from) / PAGE)
            .sum::<u64>();
        let may_go_ahead = pages <= SYNC_PAGES_MAX as u64 && !self.checkpoint.is_freezing();
        for range in ranges {
            let object = self.objects.get(range.id);
            let syncing = object.sync.is_some_and(|ticket| self.checkpoint.is_syncing(ticket));
            if syncing || !may_go_ahead || self.checkpoint_of(object).is_none() {
                self.wait_for_writing(range.id)?;
                continue;
            }
            self.budget
                .spend(COST_TABLE.times(range.to.saturating_sub(range.from) / PAGE));
            if self.has_frozen(world, range) {
                return Err(Stop::Wait(Key::Checkpoint));
            }
        }
        Ok(())
    }

    /// Whether somebody else has the frame of a page in a range that is not dirty: the checkpoint perhaps.
    fn has_frozen<W: World>(&self, world: &W, range: &Range) -> bool {
        let object = self.objects.get(range.id);
        let pages = (range.from..range.to).step_by(PAGE as usize);
        let mut clean = pages.filter_map(|address| {
            let state = object.slots.get(slot_of(address) - object.first_slot())?;
            let entry = world.leaf_get(state.leaf()?, index_of(address))?;
            (!state.dirty.has(index_of(address))).then_some(entry.frame)
        });
        clean.any(|frame| world.frame_references(frame) > 1)
    }

    /// The rest of a call that has taken effect before and is made again; nothing if this one has not.
    pub(crate) fn resume_durable(&mut self, caller: Caller) -> Option<Step<(u64, u64)>> {
        let Continuation::Durable { goal, values } = self.threads.record(caller.thread).continuation else {
            return None;
        };
        let (result, key) = match goal {
            Goal::Sync(ticket) => (self.checkpoint.sync_result(ticket), Key::Sync(ticket.0)),
            Goal::Checkpoint(number) => (self.checkpoint_reached(number), Key::Checkpoint),
        };
        Some(match result {
            Some(result) => result.map(|()| values).map_err(Stop::from),
            None => Err(Stop::Wait(key)),
        })
    }
}

/// A list for the pages of a sync.
fn room_for_sync() -> Result<Vec<DirtyPage>, Error> {
    let mut pages = Vec::new();
    reserve(&mut pages, SYNC_PAGES_MAX)?;
    Ok(pages)
}

/// Whether an object may have dirty pages in a range of addresses: it has, or the range has more page tables than may still be looked at.
fn has_dirty(object: &Object, (from, to): (u64, u64), tables: &mut u64) -> bool {
    let mut from = from;
    object.dirty > 0 && (object.next_near(Which::Dirty, &mut from, to, tables).is_some() || *tables == 0)
}
