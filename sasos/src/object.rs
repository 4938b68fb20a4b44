//! Objects that are active: what the server knows of each, and which address belongs to which.
//!
//! An object is *active* from its creation, or from the first access since the start of the system
//! that reached it in the object table, until it is deleted. Objects own whole slots, so a two-level
//! table over slot numbers finds the object of an address in a few loads; sixteen gigabytes that
//! belong to one object take one entry.
//!
//! * **Transient**: on the kill list of a task (or a stack); never in the store.
//! * **Persistent**: kept; its record is in the store's object table, and stays equal to `record`.
//!
//! Invariants: every slot of an active object leads to it, and no other slot does. A domain is in
//! `holders` if and only if its cache has the object. Only domains in `holders` link its leaves.

use alloc::{boxed::Box, vec::Vec};

use abi::{
    Error, Rights,
    address::{OBJECTS_END, PAGE, PAGES_PER_SLOT, SLOT, STACK_BYTES, USER_START, slot_of},
    layout::{OBJECT_PERSISTENT, OBJECT_STACK},
};
use kcore::{SpaceId, wait::Key};
use store::ObjectRecord;

use crate::{Server, Step, Stop, World, address::OBJECT_SLOTS_MAX, release::Remembered, slot_map::SlotMap, slots::Slots, task::TaskId};

/// Bytes of the server's heap below which nothing new is made.
pub const HEAP_RESERVE: u64 = 1 << 20;

/// An active object, by its place in the table. Valid until the object is deleted.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct ObjectId(pub u32);

/// Limits of pages that are not resident, for a range of pages.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LimitRange {
    /// First page.
    pub first: u64,
    /// One past the last.
    pub end: u64,
    /// What any domain may do with them at most.
    pub limits: Rights,
}

/// An active object.
#[derive(Debug)]
pub struct Object {
    /// What the object table says of it, or would say if it were kept.
    pub record: ObjectRecord,
    /// Never the same for two objects since the start of the system.
    pub serial: u64,
    /// Pages, slot by slot.
    pub slots: Slots,
    /// Domains whose cache has it.
    pub holders: Vec<SpaceId>,
    /// Pages in memory.
    pub resident: u64,
    /// Pages that were changed since they last went to the disk.
    pub dirty: u64,
    /// The task on whose kill list it stands.
    pub owner: Option<TaskId>,
    /// The task whose account pays for its pages, while that lives.
    pub account: Option<TaskId>,
    /// Serial number of the domain that has all rights without a capability: the one that made it,
    /// while the object is transient. Zero is none.
    pub home: u64,
    /// Limits of pages that are not resident, where they are not all; none overlap. Holds for
    /// transient objects and for those that are `complete`; for others the store knows.
    pub absent_limits: Vec<LimitRange>,
    /// Whether every page that the store holds is resident, so that it need not be asked.
    pub complete: bool,
    /// Whether the pager's list of objects with dirty pages has it.
    pub listed_dirty: bool,
    /// The last checkpoint that took pages or the record of it.
    pub checkpoint: u64,
    /// The checkpoint before whose end its row is not durable.
    pub changed_before: u64,
    /// The last sync that did.
    pub sync: Option<store::Ticket>,
    live: bool,
}

impl Object {
    fn vacant() -> Self {
        Self {
            record: ObjectRecord::default(),
            serial: 0,
            slots: Slots::default(),
            holders: Vec::new(),
            resident: 0,
            dirty: 0,
            owner: None,
            account: None,
            home: 0,
            absent_limits: Vec::new(),
            complete: false,
            listed_dirty: false,
            checkpoint: 0,
            changed_before: 0,
            sync: None,
            live: false,
        }
    }

    /// First address.
    #[inline]
    pub fn base(&self) -> u64 {
        self.record.base
    }

    /// One past the last address.
    #[inline]
    pub fn end(&self) -> u64 {
        self.record.base + self.record.pages * PAGE
    }

    /// Whether the address is inside.
    #[inline]
    pub fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.record.base) < self.record.pages * PAGE
    }

    /// Whether it was kept.
    #[inline]
    pub fn is_persistent(&self) -> bool {
        self.record.flags & OBJECT_PERSISTENT != 0
    }

    /// The first slot it owns.
    #[inline]
    pub fn first_slot(&self) -> u64 {
        slot_of(self.record.base)
    }

    /// How many slots it owns.
    pub fn slot_count(&self) -> u64 {
        slots_for(self.record.base, self.record.pages)
    }

    /// Number of the page within the object that holds an address inside.
    #[inline]
    pub fn page_of(&self, address: u64) -> u64 {
        (address - self.record.base) / PAGE
    }

    /// Address of a page by its number within the object.
    #[inline]
    pub fn address_of(&self, page: u64) -> u64 {
        self.record.base + page * PAGE
    }

    /// The rights that its home has without a capability. The server counts on stacks being where
    /// it made them, so they can only be read and written.
    pub const fn home_rights(&self) -> Rights {
        if self.record.flags & OBJECT_STACK != 0 { Rights::RW } else { Rights::OWNER }
    }

    /// The rights that the object table lists for a password. Every entry is compared, whatever
    /// was found, and without a branch: the time tells nothing of the passwords.
    pub fn rights_of(&self, password: u64) -> Rights {
        let mut found = 0;
        for &(listed, rights) in &self.record.capabilities {
            found |= rights & equal_mask(listed, password);
        }
        for pdx in &self.record.pdx {
            found |= Rights::P.bits() & equal_mask(pdx.password, password);
        }
        Rights::from_bits(u64::from(found)).unwrap_or(Rights::NONE)
    }
}

/// All ones if the words are equal, else zero.
const fn equal_mask(one: u64, other: u64) -> u8 {
    let difference = one ^ other;
    let differs = (difference | difference.wrapping_neg()) >> 63;
    (differs as u8).wrapping_sub(1)
}

/// Slots that a range of pages from `base` on reaches into.
pub const fn slots_for(base: u64, pages: u64) -> u64 {
    (base % SLOT + pages * PAGE).div_ceil(SLOT)
}

/// What a new object is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Data or a program; may be kept.
    Plain,
    /// A stack: [`STACK_BYTES`] in the middle of a slot of the window of stacks. Never kept.
    Stack,
}

/// All active objects.
pub struct Objects {
    // Boxes: growing the table moves no object, and a freed one keeps its vectors for the next.
    #[allow(clippy::vec_box, reason = "growth must not copy all objects")]
    table: Vec<Box<Object>>,
    free: Vec<u32>,
    map: SlotMap,
    next_serial: u64,
    live: u64,
    /// Resident pages of all of them.
    pub(crate) resident_pages: u64,
}

impl Default for Objects {
    fn default() -> Self {
        Self { table: Vec::new(), free: Vec::new(), map: SlotMap::new(), next_serial: 1, live: 0, resident_pages: 0 }
    }
}

impl Objects {
    /// Places in the table, vacant ones included.
    pub(crate) fn table_len(&self) -> u32 {
        self.table.len() as u32
    }

    /// How many are active.
    pub fn count(&self) -> u64 {
        self.live
    }

    /// Resident pages of all of them.
    pub fn resident(&self) -> u64 {
        self.resident_pages
    }

    /// The active object that owns the slot of an address *and* holds the address.
    #[inline]
    pub fn find(&self, address: u64) -> Option<ObjectId> {
        let index = self.map.get(slot_of(address))?;
        self.table[index as usize].holds(address).then_some(ObjectId(index))
    }

    /// An active object. A stale identifier is a bug above; it gets what is there now.
    #[inline]
    pub fn get(&self, id: ObjectId) -> &Object {
        &self.table[id.0 as usize]
    }

    /// The same, to change.
    #[inline]
    pub fn get_mut(&mut self, id: ObjectId) -> &mut Object {
        &mut self.table[id.0 as usize]
    }

    /// An object that is there and has this serial number.
    pub fn find_serial(&self, base: u64, serial: u64) -> Option<ObjectId> {
        self.find(base).filter(|&id| self.get(id).serial == serial)
    }

    /// Every active object.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectId, &Object)> {
        self.table.iter().enumerate().filter(|(_, object)| object.live).map(|(index, object)| (ObjectId(index as u32), &**object))
    }

    /// Whether the identifier names an active object now.
    pub fn is_live(&self, id: ObjectId) -> bool {
        self.table.get(id.0 as usize).is_some_and(|object| object.live)
    }

    /// Enters an object. Its slots belong to no other.
    pub fn insert(&mut self, record: ObjectRecord) -> ObjectId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.table.push(Box::new(Object::vacant()));
            self.table.len() as u32 - 1
        });
        self.map.set(slot_of(record.base), slots_for(record.base, record.pages), Some(index));
        let object = &mut self.table[index as usize];
        object.record = record;
        object.serial = self.next_serial;
        object.live = true;
        self.next_serial += 1;
        self.live += 1;
        ObjectId(index)
    }

    /// Takes an object off. Its pages, leaves, holders and place on a kill list are gone already.
    fn remove(&mut self, id: ObjectId) {
        let object = &mut self.table[id.0 as usize];
        self.map.set(object.first_slot(), object.slot_count(), None);
        object.slots.clear();
        object.absent_limits.clear();
        object.record.capabilities.clear();
        object.record.pdx = Vec::new();
        object.resident = 0;
        object.dirty = 0;
        object.owner = None;
        object.account = None;
        object.home = 0;
        object.complete = false;
        object.checkpoint = 0;
        object.changed_before = 0;
        object.sync = None;
        object.live = false;
        self.free.push(id.0);
        self.live -= 1;
    }

    /// Changes the length, and which slots lead to the object.
    pub fn set_pages(&mut self, id: ObjectId, pages: u64) {
        let object = &mut self.table[id.0 as usize];
        let (first, before) = (object.first_slot(), object.slot_count());
        object.record.pages = pages;
        let after = object.slot_count();
        if after > before {
            self.map.set(first + before, after - before, Some(id.0));
        } else if after < before {
            self.map.set(first + after, before - after, None);
        }
    }
}

/// The base of an object in a slot: some pages in, a different number from slot to slot, so that
/// first pages do not all fall in one set of the TLB; unless that would cost another slot.
const fn coloured(slot: u64, pages: u64) -> u64 {
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
    pub fn enough_heap<W: World>(&self, world: &W) -> Result<(), Error> {
        if world.heap().1 < HEAP_RESERVE { Err(Error::NoMemory) } else { Ok(()) }
    }

    /// The object that holds an address, activated from the object table if need be.
    ///
    /// # Errors
    /// [`Error::BadAddress`], or no memory to activate it.
    #[inline]
    pub fn object_at<W: World>(&mut self, world: &W, address: u64) -> Result<ObjectId, Error> {
        match self.objects.find(address) {
            Some(id) => Ok(id),
            None => self.activate(world, address),
        }
    }

    #[cold]
    fn activate<W: World>(&mut self, world: &W, address: u64) -> Result<ObjectId, Error> {
        if !(USER_START..OBJECTS_END).contains(&address) {
            return Err(Error::BadAddress);
        }
        let Some(record) = self.store.object_containing(address) else { return Err(Error::BadAddress) };
        let slots = slots_for(record.base, record.pages);
        let first = slot_of(record.base);
        // A disk made by others may hold what ours never would: objects too large or in shared slots.
        if slots > OBJECT_SLOTS_MAX || (first..first + slots).any(|slot| self.objects.map.get(slot).is_some()) {
            return Err(Error::BadAddress);
        }
        self.enough_heap(world)?;
        let mut record = record.clone();
        record.flags |= OBJECT_PERSISTENT;
        Ok(self.objects.insert(record))
    }

    /// Makes a transient object that has no password yet, paid for by a task. A plain one goes onto
    /// the kill list of that task. `home` is the domain that has all rights on it without a capability.
    ///
    /// # Errors
    /// [`Error::BadArgument`] for no pages, [`Error::NoMemory`], [`Error::LimitReached`].
    pub fn object_make<W: World>(
        &mut self,
        world: &mut W,
        kind: Kind,
        pages: u64,
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
        let owner = if kind == Kind::Plain { task } else { None };
        let (base, flags) = match kind {
            Kind::Plain => self.place_plain(world, pages)?,
            Kind::Stack => self.place_stack()?,
        };
        if let Some(task) = owner
            && let Err(error) = self.own(task, base, pages)
        {
            self.addresses.give_back(slot_of(base), slots_for(base, pages));
            return Err(error.into());
        }
        let now = world.boot_time_ns() + world.now_ns();
        let capabilities = self.objects.spare_capabilities();
        let pages = if kind == Kind::Stack { STACK_BYTES / PAGE } else { pages };
        let record = ObjectRecord { base, pages, flags, created_ns: now, modified_ns: now, capabilities, ..ObjectRecord::default() };
        let id = self.objects.insert(record);
        let serial = self.domains.serial(home);
        let object = self.objects.get_mut(id);
        object.owner = owner;
        object.account = task;
        object.home = serial;
        Ok(id)
    }

    /// Puts an object on a kill list and charges its addresses.
    pub(crate) fn own(&mut self, task: TaskId, base: u64, pages: u64) -> Result<(), Error> {
        let slots = slots_for(base, pages);
        self.tasks.charge_slots(task, slots)?;
        self.tasks.own(task, base).inspect_err(|_| self.tasks.refund_slots(task, slots))
    }

    /// Takes that back.
    pub(crate) fn disown(&mut self, task: TaskId, base: u64, pages: u64) {
        self.tasks.disown(task, base);
        self.tasks.refund_slots(task, slots_for(base, pages));
    }

    fn place_plain<W: World>(&mut self, world: &mut W, pages: u64) -> Step<(u64, u64)> {
        let slots = pages.div_ceil(PAGES_PER_SLOT);
        if let Some(slot) = self.addresses.take(slots) {
            return Ok((coloured(slot, pages), 0));
        }
        if !self.addresses.has_room_behind(slots) {
            return Err(Error::NoMemory.into());
        }
        // Only the lease is short. A checkpoint renews it, on some disks while one asks.
        self.checkpoint_request(world);
        match self.addresses.take(slots) {
            Some(slot) => Ok((coloured(slot, pages), 0)),
            None if self.checkpoint.last_failed() => Err(Error::DiskError.into()),
            None => Err(Stop::Wait(Key::Checkpoint)),
        }
    }

    fn place_stack(&mut self) -> Step<(u64, u64)> {
        let slot = self.addresses.take_stack().ok_or(Error::NoMemory)?;
        // Half a slot in the middle, at a varying colour: what runs over hits nothing on either side.
        let base = slot * SLOT + (SLOT - STACK_BYTES) / 2 + slot * 7 % 16 * PAGE;
        Ok((base, OBJECT_STACK))
    }

    /// Destroys an object in memory: every domain loses it at once. A persistent one must be taken
    /// out of the store by the caller, who also says when its address is free again.
    pub fn object_drop<W: World>(&mut self, world: &mut W, id: ObjectId, addresses: AddressesOf) {
        let object = self.objects.get(id);
        let (base, end, pages) = (object.base(), object.end(), object.record.pages);
        let (first, slots) = (object.first_slot(), object.slot_count());
        let (owner, serial) = (object.owner, object.serial);
        let has_procedures = !object.record.pdx.is_empty();
        if has_procedures {
            world.portal_forget();
            self.pdx_object_gone(world, base);
            // Threads were unwound; with them a task may have ended that had this on its kill list.
            if self.objects.find_serial(base, serial).is_none() {
                return;
            }
        }
        self.withdraw(world, id);
        self.semaphores_gone(world, base, end);
        self.drop_pages(world, id, base, end, Remembered::No);
        self.drop_leaves(world, id, 0);
        if let Some(task) = owner {
            self.disown(task, base, pages);
        }
        self.objects.remove(id);
        match addresses {
            AddressesOf::Free => self.addresses.give_back(first, slots),
            AddressesOf::Held => self.checkpoint.hold_addresses(first, slots),
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

impl Objects {
    /// An empty vector for capabilities, with the room of that of the object that goes in next.
    fn spare_capabilities(&mut self) -> Vec<(u64, u8)> {
        match self.free.last() {
            Some(&index) => core::mem::take(&mut self.table[index as usize].record.capabilities),
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot_map::REACH;

    fn record(base: u64, pages: u64) -> ObjectRecord {
        ObjectRecord { base, pages, ..ObjectRecord::default() }
    }

    #[test]
    fn slots_lead_to_their_object_and_nowhere_else() {
        let mut objects = Objects::default();
        let large = objects.insert(record(USER_START + 100 * SLOT, PAGES_PER_SLOT * (3 * REACH + 5)));
        let small = objects.insert(record(USER_START + 7 * SLOT + 3 * PAGE, 2));
        assert_eq!(objects.find(USER_START + 7 * SLOT + 4 * PAGE), Some(small));
        assert_eq!(objects.find(USER_START + 7 * SLOT), None, "the gap before the first page");
        assert_eq!(objects.find(USER_START + 7 * SLOT + 5 * PAGE), None, "behind the last page");
        let end = objects.get(large).end();
        for address in [USER_START + 100 * SLOT, USER_START + (100 + 2 * REACH) * SLOT, end - 1] {
            assert_eq!(objects.find(address), Some(large));
        }
        assert_eq!(objects.find(end), None);
        objects.set_pages(large, PAGES_PER_SLOT);
        assert_eq!(objects.find(end - 1), None);
        assert_eq!(objects.find(USER_START + 100 * SLOT), Some(large));
        objects.remove(large);
        objects.remove(small);
        assert_eq!(objects.find(USER_START + 100 * SLOT), None);
        assert_eq!(objects.find(u64::MAX), None);
        assert_eq!(objects.count(), 0);
        assert!(objects.map.is_empty());
    }

    #[test]
    fn passwords_give_their_rights() {
        let mut object = Object::vacant();
        object.record.capabilities = vec![(5, Rights::OWNER.bits()), (6, Rights::R.bits())];
        object.record.pdx = vec![store::PdxRecord { password: 7, clist: 0, entries: Vec::new() }];
        assert_eq!(object.rights_of(5), Rights::OWNER);
        assert_eq!(object.rights_of(6), Rights::R);
        assert_eq!(object.rights_of(7), Rights::P);
        assert_eq!(object.rights_of(8), Rights::NONE);
        assert_eq!(object.rights_of(5 | 1 << 63), Rights::NONE);
    }

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
