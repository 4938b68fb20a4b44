//! Objects come and go: made, dropped.
//!
//! Making an object costs a slot of addresses and an entry in the tables; page tables and pages
//! come when it is touched. Dropping it takes it away from every domain before anything is freed.

use abi::{
    Error,
    address::{PAGE, PAGES_PER_SLOT, SLOT, STACK_BYTES, slot_of, stack_base},
    layout::OBJECT_STACK,
};
use kcore::{Machine, SpaceId, ThreadId, wait::Key};
use store::ObjectRecord;

use crate::{
    Answer, Server, Step, Stop, World,
    accounts::{AccountId, Cached, Resource},
    directory::address::{COST_SETTLE, OBJECT_SLOTS_MAX},
    directory::object::{OBJECT_BYTES, ObjectId, REST_BYTES, slots_for},
    lives::task::TaskId,
    pages::release::Remembered,
};

/// Bytes of the server's heap below which nothing new is made, ...
pub const HEAP_RESERVE: u64 = 1 << 20;
/// ... and more for each frame of memory, which may hold a dirty page: its place in the list of a checkpoint, and the
/// store's promises of a block for it and for the node above it.
pub const HEAP_A_FRAME: u64 = 64;

/// The part of the heap that is left to what is not refused.
#[inline]
pub fn heap_reserve(world: &impl Machine) -> u64 {
    HEAP_RESERVE + world.frames_total() * HEAP_A_FRAME
}

/// The use of a new object.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Data or a program; may be kept.
    Plain,
    /// A stack, [`STACK_BYTES`] long, at [`stack_base`] of a slot of the window of stacks. Never kept.
    Stack,
}

/// The base of an object in a slot: some pages in, a different number from slot to slot, so that
/// first pages do not all fall in one set of the TLB; unless that would cost another slot.
pub(crate) const fn coloured(slot: u64, pages: u64) -> u64 {
    let colour = slot * 7 % 16;
    if pages.is_multiple_of(PAGES_PER_SLOT) || pages % PAGES_PER_SLOT + colour > PAGES_PER_SLOT {
        slot * SLOT
    } else {
        slot * SLOT + colour * PAGE
    }
}

impl Server {
    /// Refuses to make anything while the server's own heap is short.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    #[inline]
    pub fn enough_heap(&self, world: &impl World) -> Result<(), Error> {
        let left = world.heap().1.saturating_sub(heap_reserve(world));
        if left > self.heap_of_first || left > 0 && !self.is_of_program(self.current) {
            Ok(())
        } else {
            Err(Error::NoMemory)
        }
    }

    /// Whether a thread is a program's, and not the first task's.
    #[cold]
    pub(crate) fn is_of_program(&self, thread: ThreadId) -> bool {
        self.programs != AccountId::ROOT && self.ledger.is_within(self.account_of(thread), self.programs)
    }

    /// The object that holds an address, activated from the object table if need be.
    ///
    /// # Errors
    /// [`Error::BadAddress`], or no memory to activate it; the need to wait for its row; [`Error::DiskError`] if that cannot be read.
    #[inline]
    pub fn object_at(&mut self, world: &mut impl World, address: u64) -> Step<ObjectId> {
        match self.objects.find(address) {
            Some(id) => Ok(id),
            None => self.activate(world, address),
        }
    }

    /// Charges bytes that an object takes further.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: nothing has changed.
    pub(crate) fn pay_bytes(&mut self, id: ObjectId, bytes: u64) -> Result<(), Error> {
        if bytes > 0 {
            self.programs_take_over(id)?;
        }
        self.ledger.take(self.objects.get(id).account, Resource::Bytes, bytes)?;
        self.objects.get_mut(id).bytes += bytes;
        Ok(())
    }

    /// Gives back what was charged so.
    pub(crate) fn refund_bytes(&mut self, id: ObjectId, bytes: u64) {
        let object = self.objects.get_mut(id);
        object.bytes -= bytes;
        self.ledger.give(object.account, Resource::Bytes, bytes);
    }

    /// Charges something that an object takes further, by a second name, too, if it is kept. If a program takes it for an object of others, all programs pay for that from then on.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: nothing is charged.
    pub(crate) fn pay(&mut self, id: ObjectId, [any, kept]: [Resource; 2], amount: u64) -> Result<(), Error> {
        if amount > 0 {
            self.programs_take_over(id)?;
        }
        let object = self.objects.get(id);
        let payer = object.account;
        self.ledger.take(payer, any, amount)?;
        if object.is_persistent() {
            let paid = self.ledger.take(payer, kept, amount);
            return paid.inspect_err(|_| self.ledger.give(payer, any, amount));
        }
        Ok(())
    }

    /// Gives back what was charged so.
    pub(crate) fn refund(&mut self, id: ObjectId, [any, kept]: [Resource; 2], amount: u64) {
        let object = self.objects.get(id);
        self.ledger.give(object.account, any, amount);
        if object.is_persistent() {
            self.ledger.give(object.account, kept, amount);
        }
    }

    /// Makes a transient object that has no password yet, paid for by an account. With a task it goes onto
    /// the kill list of that task. `home` is the domain that has all rights on it without a capability.
    pub(crate) fn object_make(
        &mut self,
        world: &mut impl World,
        kind: Kind,
        pages: u64,
        payer: AccountId,
        task: Option<TaskId>,
        home: SpaceId,
    ) -> Step<ObjectId> {
        if pages == 0 {
            return Err(Error::BadArgument.into());
        }
        if pages > OBJECT_SLOTS_MAX * PAGES_PER_SLOT {
            return Err(Error::NoMemory.into());
        }
        self.enough_heap(world)?;
        // Colours never cost a slot.
        let slots = pages.div_ceil(PAGES_PER_SLOT);
        self.ledger.take(payer, Resource::Bytes, OBJECT_BYTES)?;
        if let Err(error) = self.ledger.take(payer, Resource::Slots, slots) {
            self.ledger.give(payer, Resource::Bytes, OBJECT_BYTES);
            return Err(error.into());
        }
        let made = self.object_make_paid(world, kind, pages, payer, task, home);
        if made.is_err() {
            self.ledger.give(payer, Resource::Bytes, OBJECT_BYTES);
            self.ledger.give(payer, Resource::Slots, slots);
        }
        made
    }

    #[inline]
    fn object_make_paid(
        &mut self,
        world: &mut impl World,
        kind: Kind,
        pages: u64,
        payer: AccountId,
        owner: Option<TaskId>,
        home: SpaceId,
    ) -> Step<ObjectId> {
        if let Some(task) = owner {
            self.tasks.may_own(task)?;
        }
        let (base, flags) = match kind {
            Kind::Plain => self.place_plain(world, pages)?,
            Kind::Stack => self.place_stack()?,
        };
        let now = world.boot_time_ns() + world.now_ns();
        let place = (slot_of(base), slots_for(base, pages));
        let capabilities = self.objects.spare_capabilities();
        let capabilities = capabilities.inspect_err(|_| self.addresses.give_back(place.0, place.1))?;
        let pages = if kind == Kind::Stack { STACK_BYTES / PAGE } else { pages };
        let record = ObjectRecord {
            base,
            pages,
            flags,
            created_ns: now,
            modified_ns: now,
            capabilities,
            account: self.ledger.number(payer),
            ..ObjectRecord::default()
        };
        let made = self.objects.insert(record, payer, &mut self.ledger);
        let id = made.inspect_err(|_| self.addresses.give_back(place.0, place.1))?;
        let serial = self.domains.serial(home);
        let object = self.objects.get_mut(id);
        object.account = payer;
        object.bytes = OBJECT_BYTES;
        object.home = serial;
        if let Some(task) = owner {
            self.own(task, id);
        }
        Ok(id)
    }

    fn place_plain(&mut self, world: &mut impl World, pages: u64) -> Answer {
        let slots = pages.div_ceil(PAGES_PER_SLOT);
        self.addresses.expect_back()?;
        loop {
            if let Some(slot) = self.addresses.take(slots) {
                return Ok((coloured(slot, pages), 0));
            }
            // Then those that nobody has looked at since the start.
            if !self.addresses.settle_one() && !self.reveal(world, 0)? {
                break;
            }
            if !self.budget.spend(COST_SETTLE) {
                return Err(Stop::Again);
            }
        }
        if !self.checkpoint.holds_addresses() {
            return Err(Error::NoMemory.into());
        }
        // Those of deleted objects come back with a checkpoint, on some disks while one asks.
        self.generation_request(world);
        match self.addresses.take(slots) {
            Some(slot) => Ok((coloured(slot, pages), 0)),
            None if self.checkpoint.last_failed() => Err(Error::DiskError.into()),
            None => Err(Stop::Wait(Key::Checkpoint)),
        }
    }

    fn place_stack(&mut self) -> Answer {
        let slot = self.addresses.take_stack().ok_or(Error::NoMemory)?;
        Ok((stack_base(slot), OBJECT_STACK))
    }

    /// Destroys an object in memory, whose semaphores have gone: every domain loses it at once. A persistent one must be taken
    /// out of the store by the caller, who also says when its address is free again.
    pub fn object_drop(&mut self, world: &mut impl World, id: ObjectId, addresses: AddressesOf) {
        self.objects.leave_aside(id);
        // Those who drop in pieces have done this before.
        if self.objects.get(id).cut.is_some() {
            self.unbounded(|server| server.cut_piece(world, id));
        }
        let object = self.objects.get(id);
        let (base, end) = (object.base(), object.end());
        let (first, slots) = (object.first_slot(), object.slot_count());
        let (has_procedures, was_row, is_held) =
            (!object.record.pdx.is_empty(), object.is_persistent(), object.is_held());
        // A delete in pieces has seen to this before.
        if has_procedures {
            self.unbounded(|server| server.callees_of_object_end(world, base));
        }
        if is_held {
            self.withdraw_whole(world, id);
        }
        self.drop_pages(world, id, base, end, Remembered::No);
        self.drop_leaves(world, id, &(0..u64::MAX));
        self.disown(id);
        let procedures = core::mem::take(&mut self.objects.get_mut(id).record.pdx);
        procedures.iter().for_each(|pdx| self.name_ends(pdx.clist, was_row));
        let object = self.objects.get(id);
        let lasting = addresses == AddressesOf::Held || object.in_rows;
        // Its pages and page tables have gone before.
        self.cache_change(id, Cached::default());
        let object = self.objects.get(id);
        self.ledger.give(object.account, Resource::Bytes, object.bytes);
        self.ledger.give(object.account, Resource::Slots, slots);
        let blocks = object.all_blocks();
        if blocks > 0 {
            self.ledger.give(object.account, Resource::Blocks, blocks);
        }
        if was_row {
            self.ledger.give(object.account, Resource::Rows, REST_BYTES);
            self.ledger.give(object.account, Resource::Kept, slots);
        }
        self.objects.remove(id, &mut self.ledger);
        self.budget.spend(self.objects.map.cost_of_lists());
        if !self.names.object_goes(first, lasting) {
            self.slots_end(first, slots, lasting);
        } else if slots > 1 {
            // It comes back in two parts.
            self.addresses.note_issued();
            self.slots_end(first + 1, slots - 1, lasting);
        }
    }
}

/// Whether the addresses of an object that goes may be used again at once.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AddressesOf {
    /// At once: it was never on the disk.
    Free,
    /// When its deletion is in a checkpoint.
    Held,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_never_cost_a_slot() {
        for slot in 2048..2100 {
            for pages in [1, 15, 496, 500, 505, 511, 512, 513, 1000, 1024] {
                let base = coloured(slot, pages);
                assert_eq!(slots_for(base, pages), pages.div_ceil(PAGES_PER_SLOT));
                assert_eq!(slot_of(base), slot);
            }
        }
    }
}
