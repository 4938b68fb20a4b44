//! The size of an object: it grows in one event, and so it is cut short. The rest behind the new end goes in pieces after that.
//!
//! The shorter length comes first: the record, its row and the slot map change in one event, which may fail. From then on nobody finds the addresses behind
//! the end, so nothing comes there any more, and what is there goes in pieces ([`Server::cut_piece`]): by the call, which comes back when all is gone,
//! and by the list of work. A call that would meet the rest does it first: another `ObjResize`, `KeepObject`, a delete, and the freezing of the
//! object's dirty pages. The slots stay taken until then.
//!
//! Domains link page tables that go. If these domains are many, the object is withdrawn from all of them once, in pieces; a domain that comes back
//! finds it with its new end, and links none of these tables.

use abi::{
    Error, Rights,
    address::{PAGE, PAGES_PER_SLOT, SLOT, pages_for},
    call::arguments::ObjResize,
};

use crate::{
    Answer, Server, Step, Stop, World,
    accounts::Resource,
    directory::address::{COST_SETTLE, OBJECT_SLOTS_MAX},
    directory::object::{ObjectId, slots_for},
    directory::slot_map::cost_of_slots,
    lives::continuation::Continuation,
    lives::thread::Caller,
    lives::work::{Piece, Work},
    pages::release::Remembered,
    pages::slots::Slots,
    protection::withdraw::FEW,
};

/// The names by which slots are charged, and those of a kept object once more.
const SLOTS: [Resource; 2] = [Resource::Slots, Resource::Kept];

/// The rest of an object that was cut short, behind its end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cut {
    /// The address where it ended before.
    pub(crate) end: u64,
    /// The address up to which it is emptied.
    at: u64,
    /// The epoch of the withdrawal that takes it away from those who had it then, if they are, or were, many.
    pub(crate) withdrawn: Option<u64>,
}

impl Server {
    /// `ObjResize`: address, bytes.
    pub(crate) fn obj_resize(&mut self, world: &mut impl World, caller: Caller, arguments: ObjResize) -> Answer {
        let ObjResize { address, bytes } = arguments;
        if let Continuation::Cut { base, serial } = self.threads.record(caller.thread).continuation {
            return self.cut_goes_on(world, caller, (base, serial), false);
        }
        let pages = pages_for(bytes).filter(|&pages| pages > 0).ok_or(Error::BadArgument)?;
        let id = self.require_at(world, caller.domain, address, Rights::OWNER)?;
        self.row_may_change(world, id)?;
        if self.objects.get(id).is_persistent() {
            self.may_note(world)?;
        }
        if !self.cut_piece(world, id) {
            return Err(Stop::Again);
        }
        let object = self.objects.get(id);
        let (before, base, serial) = (object.record.pages, object.base(), object.serial);
        if pages > before {
            if self.objects.get(id).is_persistent() {
                self.rows_near(world, base)?;
            }
            self.grow(world, id, pages)?;
        } else if pages < before {
            self.shrink(world, id, pages)?;
            return self.cut_goes_on(world, caller, (base, serial), true);
        }
        Ok((0, 0))
    }

    /// A piece of a cut by the call that has made it.
    fn cut_goes_on(&mut self, world: &mut impl World, caller: Caller, of: (u64, u64), first: bool) -> Answer {
        let (base, serial) = of;
        self.goes_on(world, Work::Cut(base, serial), first).inspect_err(|_| {
            self.threads.record(caller.thread).continuation = Continuation::Cut { base, serial };
        })?;
        Ok((0, 0))
    }

    /// A piece of it by the list.
    pub(crate) fn cut_of(&mut self, world: &mut impl World, base: u64, serial: u64) -> Piece {
        let id = self.objects.find_serial(base, serial);
        if id.is_none_or(|id| self.cut_piece(world, id)) {
            Piece::Done
        } else {
            Piece::More
        }
    }

    /// Drops what an object that was cut short has behind its end, as far as the budget reaches; tells whether nothing is left there.
    #[inline(always)]
    pub(crate) fn cut_piece(&mut self, world: &mut impl World, id: ObjectId) -> bool {
        match self.objects.get(id).cut {
            None => true,
            Some(cut) => self.cut_further(world, id, cut),
        }
    }

    #[cold]
    #[inline(never)]
    fn cut_further(&mut self, world: &mut impl World, id: ObjectId, cut: Cut) -> bool {
        if !self.cut_withdrawn(world, id, cut) {
            return false;
        }
        let end = self.objects.get(id).end();
        if let Some(at) = self.dismantle(world, id, &(end..cut.end), cut.at) {
            if let Some(cut) = &mut self.objects.get_mut(id).cut {
                cut.at = at;
            }
            return false;
        }
        self.cut_over(world, id, cut)
    }

    /// Takes the object away from those who may link tables that go, if they are many; tells whether that was all.
    fn cut_withdrawn(&mut self, world: &mut impl World, id: ObjectId, cut: Cut) -> bool {
        let object = self.objects.get(id);
        let epoch = match cut.withdrawn {
            Some(epoch) => epoch,
            None if object.nodes.len() <= FEW || object.slots.next_with_leaf(object.slot_count()).is_none() => {
                return true;
            }
            None => {
                let withdrawn = self.withdraw_begin(world, id).epoch;
                self.objects.get_mut(id).cut = Some(Cut {
                    withdrawn: Some(withdrawn),
                    ..cut
                });
                withdrawn
            }
        };
        self.unlink_older(world, id, epoch)
    }

    /// Little is left behind the end: that goes, and with it the slots.
    fn cut_over(&mut self, world: &mut impl World, id: ObjectId, cut: Cut) -> bool {
        let object = self.objects.get(id);
        let (base, end, pages, left) = (object.base(), object.end(), object.record.pages, object.slot_count());
        self.drop_pages(world, id, end, cut.end, Remembered::Perhaps);
        self.drop_leaves(world, id, &(left..u64::MAX));
        if !self.forget_slots(id, left) {
            return false;
        }
        if !self.blocks_go(id, pages, Slots::whole_chunks(left) * PAGES_PER_SLOT) {
            return false;
        }
        let object = self.objects.get_mut(id);
        object.cut = None;
        let (first, persistent) = (object.first_slot(), object.is_persistent());
        let count = slots_for(base, (cut.end - base) / PAGE) - left;
        if count > 0 {
            // The object comes back in two parts.
            self.addresses.note_issued();
            self.slots_end(first + left, count, persistent);
        }
        true
    }

    fn grow(&mut self, world: &mut impl World, id: ObjectId, pages: u64) -> Step<()> {
        let object = self.objects.get(id);
        if pages > OBJECT_SLOTS_MAX * (SLOT / PAGE) {
            return Err(Error::CannotGrow.into());
        }
        let (first, count) = (object.first_slot(), object.slot_count());
        let wanted = slots_for(object.base(), pages);
        if wanted > OBJECT_SLOTS_MAX {
            return Err(Error::CannotGrow.into());
        }
        self.enough_heap(world)?;
        let more = wanted - count;
        while more > 0 && self.addresses.settle_one() {
            if !self.budget.spend(COST_SETTLE) {
                return Err(Stop::Again);
            }
        }
        let behind = first + count;
        while more > 0
            && self
                .unknown
                .from(behind)
                .is_some_and(|(start, _)| start < behind + more)
        {
            self.reveal(world, behind)?;
            while self.addresses.settle_one() {}
            if !self.budget.spend(COST_SETTLE) {
                return Err(Stop::Again);
            }
        }
        if more > 0 && !self.addresses.extend(first + count, more) {
            return Err(Error::CannotGrow.into());
        }
        let charged = self.pay(id, SLOTS, more);
        let changed = charged.and_then(|()| {
            self.change_pages(world, id, pages)
                .inspect_err(|_| self.refund(id, SLOTS, more))
        });
        if let Err(error) = changed {
            if more > 0 {
                // The object still comes back, too.
                self.addresses.note_issued();
                self.addresses.give_back(first + count, more);
            }
            return Err(error.into());
        }
        Ok(())
    }

    /// Cuts an object that has nothing behind its end, and leaves what it has behind the new one to the pieces.
    ///
    /// # Errors
    /// Nothing has changed.
    fn shrink(&mut self, world: &mut impl World, id: ObjectId, pages: u64) -> Result<(), Error> {
        // The list takes the rest of it in any case.
        self.work.reserve()?;
        let object = self.objects.get(id);
        let (base, end, count) = (object.base(), object.end(), object.slot_count());
        self.change_pages(world, id, pages)?;
        let lists = self.objects.map.cost_of_lists();
        let object = self.objects.get_mut(id);
        object.prepared.outdate();
        object.cut = Some(Cut {
            end,
            at: object.end(),
            withdrawn: None,
        });
        let gone = count - object.slot_count();
        self.budget.spend(cost_of_slots(gone).and(lists));
        if !object.record.pdx.is_empty() {
            // An entry point may have gone.
            self.calls_into_stale(world, base);
        }
        self.refund(id, SLOTS, gone);
        Ok(())
    }

    /// Changes the length, and what is charged for the nodes of the map above pages that have blocks or limits. In a longer object more may stand above each;
    /// a shorter one keeps those that it has.
    fn change_pages(&mut self, world: &impl World, id: ObjectId, pages: u64) -> Result<(), Error> {
        let object = self.objects.get(id);
        let (before, levels) = (object.all_blocks(), object.levels_at(pages));
        let more = object.blocks + (object.parts + object.limited) * u64::from(levels) - before;
        if more > 0 {
            self.charge_blocks(id, more)?;
        }
        self.change_length(world, id, pages)
            .inspect_err(|_| self.refund_blocks(id, more))?;
        self.objects.get_mut(id).set_levels(levels);
        Ok(())
    }

    /// Changes the length in the record, the object table and the slot map.
    fn change_length(&mut self, world: &impl World, id: ObjectId, pages: u64) -> Result<(), Error> {
        let now = world.boot_time_ns().saturating_add(world.now_ns());
        let before = self.objects.get(id).record.pages;
        // The slots first, for what the row says counts: more of them can be taken back, and for fewer all is prepared.
        if pages > before {
            self.objects.set_pages(id, pages, &mut self.ledger)?;
        } else {
            self.objects.expect_fewer_pages(id, pages, &mut self.ledger)?;
        }
        if self.objects.get(id).is_persistent() {
            if let Err(error) = self.change_row(id, pages, now) {
                self.objects.set_pages(id, before, &mut self.ledger)?;
                return Err(error);
            }
            self.note_row_change(id);
        }
        self.objects.set_pages(id, pages, &mut self.ledger)?;
        let object = self.objects.get_mut(id);
        object.record.modified_ns = now;
        let before = object.own_bytes();
        cut_entries(&mut object.record);
        let gone = before - object.own_bytes();
        self.refund_bytes(id, gone);
        let object = self.objects.get_mut(id);
        object.absent_limits.retain_mut(|range| {
            range.end = range.end.min(pages);
            range.first < range.end
        });
        Ok(())
    }

    /// Writes the row of an object that has so many pages from now on.
    fn change_row(&mut self, id: ObjectId, pages: u64, now: u64) -> Result<(), Error> {
        let mut record = self.objects.get(id).record.copy()?;
        record.pages = pages;
        record.modified_ns = now;
        cut_entries(&mut record);
        self.put_record(record)
    }
}

/// Takes entry points that the object no longer has out of its record: they must not come back when it grows again.
fn cut_entries(record: &mut store::ObjectRecord) {
    record.pdx.cut(record.base + record.pages * PAGE);
}
