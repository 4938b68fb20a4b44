//! Objects that are set aside: what a task deletes and makes anew again and again.
//!
//! A small object that its maker deletes loses its pages, its passwords and its name like any other, and nobody finds it any more. But its slot, its page
//! table, the link of that and the domain's node stay, and so does all that is charged for them. The next small object of that domain is made of it, so
//! neither has to be found, linked and charged again: decision 0172.
//!
//! A domain sets [`PLACES`] objects aside at most, and only after it has deleted some. They stand on the kill list and end with the task, or earlier, when
//! somebody lacks memory ([`crate::pages::idle`]). An object without pages is one that is set aside; there are no others.

use abi::{
    Error, Rights,
    address::{PAGE, SLOT},
};

use kcore::ThreadId;

use crate::{
    Server, World,
    accounts::{AccountId, Resource},
    directory::creation::{AddressesOf, coloured},
    directory::object::{OBJECT_BYTES, Object, ObjectId, Objects, Prepared},
    lives::budget::Cost,
    lives::thread::Caller,
    pages::release::FLUSH_SINGLY,
    protection::domain::Linked,
};

/// Objects that a domain deletes before it sets one aside.
const DELETED_BEFORE: u8 = 4;
/// Objects that a domain has set aside at most.
const PLACES: usize = 4;
/// The cost of setting an object aside, in instructions, roughly, and that of each of its pages.
const COST_ASIDE: Cost = Cost::own(400);
const COST_PAGE: Cost = Cost::calling(100, 4);

/// The objects that a domain has set aside.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Aside {
    /// Their places and serial numbers. Should one have gone, no object has both.
    objects: [Option<(ObjectId, u64)>; PLACES],
    /// Small objects that the domain has deleted, up to [`DELETED_BEFORE`].
    deleted: u8,
}

impl Object {
    /// Whether nothing is known of it but pages in its first slot, and nobody knows it but a domain.
    fn is_plain(&self) -> bool {
        let numbers =
            self.record.flags | self.blocks | self.parts | self.limited | self.prepared_bytes | self.closed_by.0;
        numbers == 0
            && self.nodes.len() == 1
            && self.leaves == 1
            && self.resident <= FLUSH_SINGLY as u64
            && self.bytes == OBJECT_BYTES
            && self.slots.is_one()
            && self.slot_count() == 1
            && self.cut.is_none()
            && self.record.pdx.is_empty()
            && self.absent_limits.is_empty()
            && self.prepared == Prepared::No
            && !(self.called || self.in_rows || self.is_listed_dirty())
    }
}

impl Objects {
    /// Whether the object with this serial number is in this place and set aside.
    pub(crate) fn is_aside(&self, id: ObjectId, serial: u64) -> bool {
        let object = self.table.get(id.0);
        object.is_some_and(|object| object.serial == serial && object.is_set_aside())
    }

    /// From now on an object has no name, and nobody finds it.
    pub(crate) fn put_aside(&mut self, id: ObjectId) {
        let object = self.get_mut(id);
        object.epoch += 1;
        object.record.capabilities.clear();
        // Behind the first page of the slot, so that it has a slot without having a page.
        object.record.base = object.first_slot() * SLOT + PAGE;
        object.record.pages = 0;
        self.aside += 1;
    }

    /// An object ends. If it was set aside it has an address again, by which the ways of an end find it.
    pub(crate) fn leave_aside(&mut self, id: ObjectId) {
        if self.get(id).is_set_aside() {
            self.get_mut(id).record.pages = 1;
            self.aside -= 1;
        }
    }

    /// Makes a new object of one that was set aside.
    pub(crate) fn take_aside(&mut self, id: ObjectId, base: u64, pages: u64, now_ns: u64) {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.aside -= 1;
        let object = self.get_mut(id);
        object.serial = serial;
        let record = &mut object.record;
        (record.base, record.pages, record.tag) = (base, pages, 0);
        (record.created_ns, record.modified_ns) = (now_ns, now_ns);
    }
}

impl Server {
    /// The program of a thread that was refused something by its limits, if objects are set aside: their slots and tables may be what it lacks, however much it
    /// has left.
    pub(crate) fn who_has_set_aside(&self, thread: ThreadId, error: Error) -> Option<AccountId> {
        let may_help = error == Error::LimitReached && self.objects.aside > 0;
        may_help.then(|| self.ledger.family(self.account_of(thread), self.programs))
    }

    /// Sets an object aside that a task deletes at home, where it may be and is worth it; tells whether it did. The right to delete was there.
    pub(crate) fn set_aside(&mut self, world: &mut impl World, caller: Caller, id: ObjectId) -> bool {
        let object = self.objects.get(id);
        let (base, end, slot) = (object.base(), object.end(), object.first_slot());
        // Its link has all rights, or it would not be remembered with them.
        let is_linked = self.domains.linked(caller.domain, slot).is_some_and(|linked| {
            linked.object == id && linked.epoch == object.epoch && linked.rights.contains(Rights::OWNER)
        });
        let payer = self.payer(caller);
        let is_own = object.owner == Some(caller.task) && object.account == payer && !self.names.has(slot);
        let Some(domain) = self.domains.get_mut(caller.domain) else {
            return false;
        };
        let is_home = object.home == domain.serial && domain.task == Some(caller.task);
        if !(is_linked && is_own && is_home && object.is_plain()) {
            return false;
        }
        if domain.aside.deleted < DELETED_BEFORE {
            domain.aside.deleted += 1;
            return false;
        }
        let is_free =
            |place: &&mut Option<(ObjectId, u64)>| !place.is_some_and(|(id, serial)| self.objects.is_aside(id, serial));
        let Some(place) = domain.aside.objects.iter_mut().find(is_free) else {
            return false;
        };
        *place = Some((id, object.serial));
        if !self.semaphores_go(world, base..end) {
            return false;
        }
        self.pages_of_one_go(world, id);
        self.objects.put_aside(id);
        true
    }

    /// The few pages of an object with one page table go.
    fn pages_of_one_go(&mut self, world: &mut impl World, id: ObjectId) {
        let object = self.objects.get_mut(id);
        let (account, start) = (object.account, object.first_slot() * SLOT);
        let state = object.slots.touch(0);
        let gone = core::mem::take(&mut state.resident);
        let leaf = state.leaf();
        let count = core::mem::take(&mut object.resident);
        self.objects.resident_pages -= count;
        self.budget.spend(COST_ASIDE.and(COST_PAGE.times(count)));
        let mut next = 0;
        while let (Some(leaf), Some(index)) = (leaf, gone.next(next)) {
            next = index + 1;
            if let Some(entry) = world.leaf_get(leaf, index) {
                world.leaf_set(leaf, index, None);
                world.flush_page(start + index as u64 * PAGE);
                world.frame_release(entry.frame);
            }
        }
        self.ledger.give(account, Resource::Frames, count);
    }

    /// Makes a new object of so many pages, which fit into a slot, of one that the caller's domain has set aside, if it has any.
    pub(crate) fn take_aside(&mut self, world: &mut impl World, caller: Caller, pages: u64) -> Option<ObjectId> {
        let domain = self.domains.get_mut(caller.domain)?;
        let mut places = domain.aside.objects.iter_mut();
        let (id, _) =
            places.find_map(|place| place.take().filter(|&(id, serial)| self.objects.is_aside(id, serial)))?;
        let epoch = self.objects.get(id).epoch;
        let slot = self.objects.get(id).first_slot();
        // A domain that has forgotten it has unlinked it, or is about to.
        let Some(cached) = domain.revive(id, epoch) else {
            self.object_drop(world, id, AddressesOf::Free);
            return None;
        };
        let now = world.boot_time_ns() + world.now_ns();
        let base = coloured(slot, pages);
        self.objects.take_aside(id, base, pages, now);
        let linked = Linked::of(base, id, cached, epoch);
        self.domains.remember_linked(caller.domain, linked);
        Some(id)
    }
}
