//! `KeepObject`: a transient object becomes persistent.
//!
//! First the store promises each page in memory a block, and is told the limits of pages that are not: in pieces, which nobody sees. Then the object
//! enters the object table, in one event. The object notes what the pieces have prepared, and the call notes nothing, so two calls can work on one object at once.
//! Pages that come or go meanwhile are counted: a page with a promise has its bits of dirty pages and of blocks, and their number says whether there are others.
//! If the call fails, it takes all of that back. If its thread ends, that stays until the object ends or is kept.

use abi::{
    Error, Rights,
    address::PAGE,
    call::arguments::KeepObject,
    layout::{OBJECT_PERSISTENT, OBJECT_STACK},
};
use store::ROW_ENDS;

use crate::{
    Answer, Server, Step, Stop, World,
    accounts::Resource,
    directory::object::{ObjectId, PageAt, Prepared, REST_BYTES, Which, row_bytes},
    durability::durable::no_room,
    lives::budget::Cost,
    lives::continuation::Continuation,
    lives::thread::Caller,
    pages::pager::to_flags,
};

/// What a transient object becomes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Becomes {
    /// A kept one.
    Kept,
    /// One that [the disk takes over](crate::pages::backing).
    Backed,
}

/// Neighbouring pages that are promised blocks together, and what that costs in instructions, roughly.
const RUN_PAGES: usize = 64;
const COST_RUN: Cost = Cost::own(3_300);
/// The cost of taking the promise of a page back, of telling the store the limits of one, and of having it forget some.
const COST_UNPROMISED: Cost = Cost::own(350);
const COST_LIMIT: Cost = Cost::own(1_000);
const COST_FORGOTTEN: Cost = Cost::own(2_500);
/// The cost of entering the row.
const COST_KEEP: Cost = Cost::own(7_000);
/// Heap that the store takes for a limit of a page.
const NOTED_BYTES: u64 = 40;

impl Server {
    /// `KeepObject`: address. It is durable with the next checkpoint.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::InUse`] and others: the object is as transient as before.
    pub(crate) fn keep_object(&mut self, world: &mut impl World, caller: Caller, arguments: KeepObject) -> Answer {
        let id = self.object_at(world, arguments.address)?;
        if self.objects.get(id).record.flags & OBJECT_STACK != 0 {
            return Err(Error::NotPersistent.into());
        }
        self.require(world, caller.domain, id, Rights::OWNER)?;
        let object = self.objects.get(id);
        if object.is_backed() {
            self.keep_backed(world, id)?;
        }
        if self.objects.get(id).is_persistent() {
            return Ok((0, 0));
        }
        // Its rest is that of a transient object.
        if !self.cut_piece(world, id) {
            return Err(Stop::Again);
        }
        let own = self.objects.get(id).serial;
        let (mut at, failed) = match self.threads.record(caller.thread).continuation {
            Continuation::Keep { serial, at } if serial == own => (at, None),
            Continuation::KeepFails { serial, at, error } if serial == own => (at, Some(error)),
            // It has gone meanwhile, and another object got its address.
            Continuation::Keep { .. } | Continuation::KeepFails { .. } => return Err(Error::BadAddress.into()),
            _ => (0, None),
        };
        let step = match failed {
            None => self.keep_piece(world, id, &mut at, Becomes::Kept),
            Some(error) => Err(error.into()),
        };
        let (continuation, stop) = match step {
            Ok(()) => return Ok((0, 0)),
            Err(Stop::Fail(error)) if self.keep_undone(id, &mut at) => (Continuation::None, error.into()),
            Err(Stop::Fail(error)) => (Continuation::KeepFails { serial: own, at, error }, Stop::Again),
            Err(stop) => (Continuation::Keep { serial: own, at }, stop),
        };
        self.threads.record(caller.thread).continuation = continuation;
        Err(stop)
    }

    /// A piece of it.
    pub(crate) fn keep_piece(
        &mut self,
        world: &mut impl World,
        id: ObjectId,
        at: &mut u64,
        becomes: Becomes,
    ) -> Step<()> {
        if self.is_closed(id) {
            return Err(Error::BadAddress.into());
        }
        // The disk has no limits without R, and guards would take a place there page by page.
        let ranges = &self.objects.get(id).absent_limits;
        if ranges.iter().any(|range| range.limits == Rights::NONE) {
            return Err(Error::NotPersistent.into());
        }
        self.enough_heap(world)?;
        self.may_get_dirty(world, id)?;
        self.may_note(world)?;
        if !self.promise_pages(id, at)? || !self.prepare_limits(id)? {
            return Err(Stop::Again);
        }
        if !self.budget.allows(COST_KEEP) {
            return Err(Stop::Again);
        }
        self.rows_near(world, self.objects.get(id).base())?;
        Ok(self.keep(id, becomes)?)
    }

    /// Has blocks promised to the pages in memory, and charges them, as far as the budget reaches; tells whether all have one.
    fn promise_pages(&mut self, id: ObjectId, at: &mut u64) -> Result<bool, Error> {
        while self.objects.get(id).blocks < self.objects.get(id).resident {
            if !self.budget.spend(COST_RUN) {
                return Ok(false);
            }
            let Some(place) = self.look_further(id, Which::Clean, at) else {
                continue;
            };
            let object = self.objects.get_mut(id);
            let (base, page, pages) = (object.base(), object.page_of(place.address), object.record.pages);
            object.settle_levels(&self.store);
            let colour = object.part_colour();
            let state = object.slots.touch(place.slot);
            let run = state.resident.without(&state.dirty).next_run(place.index);
            let end = run.map_or(place.index, |run| run.1).min(place.index + RUN_PAGES);
            let count = (end - place.index) as u64;
            let mut blocks = state.blocks;
            blocks.set_run(place.index, end);
            let parts = blocks.parts(colour) - state.blocks.parts(colour);
            let charged = object.with_nodes(count, parts);
            self.charge_blocks(id, charged)?;
            if let Err(error) = self.store.reserve_run(base, pages, page, page + count) {
                self.refund_blocks(id, charged);
                return Err(no_room(error));
            }
            let object = self.objects.get_mut(id);
            let state = object.slots.touch(place.slot);
            state.dirty.set_run(place.index, end);
            state.blocks = blocks;
            object.blocks += count;
            object.parts += parts;
            *at = place.address + count * PAGE;
        }
        Ok(true)
    }

    /// Tells the store the limits of pages that are not in memory, as far as the budget reaches; tells whether it knows all.
    fn prepare_limits(&mut self, id: ObjectId) -> Result<bool, Error> {
        loop {
            if self.objects.get(id).prepared == Prepared::Outdated && !self.unprepare(id) {
                return Ok(false);
            }
            let object = self.objects.get_mut(id);
            let from = match object.prepared {
                Prepared::Until(page) => page,
                Prepared::No | Prepared::Outdated => 0,
            };
            let Some(range) = object.absent_limits.iter().find(|range| range.end > from) else {
                return Ok(true);
            };
            if !self.budget.spend(COST_LIMIT) {
                return Ok(false);
            }
            if object.prepared == Prepared::No {
                let limits = object.absent_limits.iter().map(|range| range.end - range.first).sum();
                self.pay_prepared(id, limits)?;
                continue;
            }
            let (page, flags) = (range.first.max(from), to_flags(range.limits));
            object.prepared = Prepared::Until(page);
            self.store
                .prepare_limit(object.record.base, object.record.pages, page, flags)
                .map_err(no_room)?;
            object.prepared = Prepared::Until(page + 1);
        }
    }

    /// Charges what the store needs to be told so many limits.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: nothing has changed.
    fn pay_prepared(&mut self, id: ObjectId, limits: u64) -> Result<(), Error> {
        let bytes = limits * NOTED_BYTES;
        self.pay_bytes(id, bytes)?;
        let paid = self.pay_map(id, limits);
        paid.inspect_err(|_| self.refund_bytes(id, bytes))?;
        let object = self.objects.get_mut(id);
        object.prepared_bytes = bytes;
        object.prepared = Prepared::Until(0);
        Ok(())
    }

    /// The store has the limits as those of a kept object, or has forgotten them.
    fn prepared_over(&mut self, id: ObjectId) {
        let object = self.objects.get_mut(id);
        object.prepared = Prepared::No;
        let bytes = core::mem::take(&mut object.prepared_bytes);
        self.refund_bytes(id, bytes);
    }

    /// Has the store forget the limits that it was told, as far as the budget reaches; tells whether those were all.
    pub(crate) fn unprepare(&mut self, id: ObjectId) -> bool {
        let object = self.objects.get_mut(id);
        if object.prepared == Prepared::No {
            return true;
        }
        object.prepared.outdate();
        while self.objects.get(id).prepared != Prepared::No {
            if !self.budget.spend(COST_FORGOTTEN) {
                return false;
            }
            if self.store.forget_prepared(self.objects.get(id).base()) {
                let object = self.objects.get_mut(id);
                let nodes = core::mem::take(&mut object.limited);
                self.ledger
                    .give(object.account, Resource::Blocks, object.with_nodes(0, nodes));
                self.prepared_over(id);
            }
        }
        true
    }

    /// [`Server::look_on`] to the end of an object, and then from its beginning.
    fn look_further(&mut self, id: ObjectId, which: Which, at: &mut u64) -> Option<PageAt> {
        let object = self.objects.get(id);
        if *at < object.base() || *at >= object.end() {
            *at = object.base();
        }
        let end = object.end();
        self.look_on(id, which, at, end)
    }

    /// Everything is prepared: makes a transient object persistent.
    ///
    /// # Errors
    /// Nothing has changed.
    fn keep(&mut self, id: ObjectId, becomes: Becomes) -> Result<(), Error> {
        let flags = match becomes {
            Becomes::Kept => OBJECT_PERSISTENT,
            Becomes::Backed => OBJECT_PERSISTENT | ROW_ENDS,
        };
        let mut record = self.objects.get(id).record.copy()?;
        record.flags |= flags;
        record.birth = self.objects.get(id).serial;
        let object = self.objects.get(id);
        let (base, payer, slots) = (record.base, object.account, object.slot_count());
        let (birth, bytes) = (record.birth, row_bytes(&record) + REST_BYTES);
        self.store.expect_prepared().map_err(no_room)?;
        self.ledger.take(payer, Resource::Kept, slots)?;
        let paid = self.ledger.take(payer, Resource::Rows, REST_BYTES);
        paid.inspect_err(|_| self.ledger.give(payer, Resource::Kept, slots))?;
        let put = self.ledger.take(payer, Resource::Bytes, bytes).and_then(|()| {
            self.put_record(record)
                .inspect_err(|_| self.ledger.give(payer, Resource::Bytes, bytes))
        });
        put.inspect_err(|_| {
            self.ledger.give(payer, Resource::Rows, REST_BYTES);
            self.ledger.give(payer, Resource::Kept, slots);
        })?;
        self.store.enter_prepared(base);
        self.prepared_over(id);
        self.note_row_change(id);
        let object = self.objects.get_mut(id);
        let pages = object.resident;
        object.bytes += bytes;
        // From now on memory is only a cache of it, which can be taken back once its pages are on the disk.
        self.ledger.give(payer, Resource::Frames, pages);
        self.ledger.force(payer, Resource::Dirty, pages);
        self.pager.dirty += pages;
        object.dirty = pages;
        object.record.flags |= flags;
        object.record.birth = birth;
        // Nothing of it is on the disk, so there is nothing to ask the store for.
        object.known = u64::MAX;
        if becomes == Becomes::Kept {
            self.leaves_home(id);
        }
        self.cache_follows(id);
        self.ledger
            .take_of_part(self.account_of(self.current), self.programs, pages);
        if pages > 0 {
            self.objects.list_dirty(id);
        }
        Ok(())
    }

    /// Its program has kept an object: it outlives its task, and nobody has it without a capability.
    fn leaves_home(&mut self, id: ObjectId) {
        self.objects.get_mut(id).home = 0;
        self.disown(id);
    }

    /// A backed object is kept: its row stays.
    fn keep_backed(&mut self, world: &mut impl World, id: ObjectId) -> Step<()> {
        self.row_may_change(world, id)?;
        self.rows_near(world, self.objects.get(id).base())?;
        let mut record = self.objects.get(id).record.copy()?;
        record.flags &= !ROW_ENDS;
        self.put_record(record)?;
        self.note_row_change(id);
        self.objects.get_mut(id).record.flags &= !ROW_ENDS;
        self.leaves_home(id);
        Ok(())
    }

    /// Takes back what was prepared, as far as the budget reaches; tells whether that was all.
    pub(crate) fn keep_undone(&mut self, id: ObjectId, at: &mut u64) -> bool {
        while self.objects.get(id).blocks > 0 {
            if !self.budget.spend(COST_UNPROMISED) {
                return false;
            }
            let Some(place) = self.look_further(id, Which::Dirty, at) else {
                continue;
            };
            self.objects
                .get_mut(id)
                .slots
                .touch(place.slot)
                .dirty
                .clear(place.index);
            self.block_gone(id, place.slot, place.index);
            let object = self.objects.get(id);
            self.store.unreserve(object.base(), object.page_of(place.address));
        }
        self.unprepare(id)
    }
}
