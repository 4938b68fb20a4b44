//! Objects that are active: what the server knows of each, and which address belongs to which.
//!
//! An object is *active* from its creation, or from an access
//! that reached it in the object table, until it is deleted or comes to rest ([`crate::directory::activity`]). Objects own whole slots, so a two-level
//! table over slot numbers finds the object of an address in a few loads; two gigabytes that
//! belong to one object take one entry.
//!
//! * **Transient**: on the kill list of a task (or a stack); not in the store unless it is *backed* ([`crate::pages::backing`]).
//! * **Persistent**: kept; its record is in the store's object table, and stays equal to `record`.
//!
//! Invariants: every slot of an active object leads to it, and no other slot does. Only domains that
//! have a node in its list link its leaves.

mod blocks;
mod charges;

pub use charges::{KEPT, REST_BYTES, active_bytes, charges_of, kept_charges, record_bytes, row_bytes};

use alloc::vec::Vec;

use abi::{
    Error, Rights,
    address::{PAGE, SLOT, slot_of},
    layout::{OBJECT_PERSISTENT, OBJECT_STACK},
};
use kcore::{Leaf, ThreadId};
use store::{ObjectRecord, ROW_ENDS};

use crate::{
    accounts::{AccountId, Amounts, Cached, Ledger, RESOURCES, Resource},
    containers::{Boxed, Places, boxed, push, push_reserved, reserve},
    directory::lists::{KINDS, Kind, Neighbours, ObjectList},
    directory::resize::Cut,
    directory::slot_map::SlotMap,
    lives::task::TaskId,
    pages::slots::Slots,
    protection::node::NodeList,
};

/// Bytes that an object costs at least: its row and record, a few capabilities, and its place in free lists.
pub const OBJECT_BYTES: u64 = core::mem::size_of::<Object>() as u64 + 4 * CAPABILITY_BYTES + BESIDE;
/// Bytes of the heap beside that: what the allocator adds, the place in the table of objects, and room for its addresses to come back. An object of one page was measured
/// to take 801 bytes in all.
const BESIDE: u64 = 88;
/// Bytes of a capability beyond the first four.
const CAPABILITY_BYTES: u64 = 16;
/// Bytes of a PDX capability without its entries, with the name of its Clist, and of an entry.
const PDX_BYTES: u64 = 96;
const ENTRY_BYTES: u64 = 8;

/// An active object, by its place in the table. Valid until the object is deleted.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct ObjectId(pub u32);

/// Stands for the thread that deletes an object where that ends by itself.
pub(crate) const ENDS: ThreadId = ThreadId(u64::MAX);

/// Limits of pages that are not resident, for a range of pages.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LimitRange {
    /// First page.
    pub first: u64,
    /// One past the last.
    pub end: u64,
    /// The most that any domain may do with them.
    pub limits: Rights,
}

/// How far the store has been told the limits of pages of an object that is to be kept and are not resident.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Prepared {
    /// It knows none.
    No,
    /// Those of all pages before this one.
    Until(u64),
    /// Some that have changed since. It has to forget them.
    Outdated,
}

impl Prepared {
    /// The limits change, or the number of pages.
    pub(crate) fn outdate(&mut self) {
        if *self != Self::No {
            *self = Self::Outdated;
        }
    }
}

/// An active object.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each says one thing, and they are independent"
)]
pub struct Object {
    /// Its row in the object table, or the row that it would have if it were kept.
    pub record: ObjectRecord,
    /// Never the same for two objects since the start of the system. That of a kept one is the birth of its row, and stays when it rests; those of old images have zero.
    pub serial: u64,
    /// Pages, slot by slot.
    pub slots: Slots,
    /// Nodes of the domains that have it, or had it in an earlier epoch and may still link some of it.
    pub(crate) nodes: NodeList,
    /// How often it was taken away from those who had it, this object or one before it in this place.
    pub(crate) epoch: u64,
    /// Whether a domain may have P on it.
    pub(crate) called: bool,
    /// The thread that deletes it, or [`ENDS`].
    pub(crate) closed_by: ThreadId,
    /// The rest behind its end, for some time, if it was cut short.
    pub(crate) cut: Option<Cut>,
    /// Pages in memory.
    pub resident: u64,
    /// Pages that were changed since they last went to the disk.
    pub dirty: u64,
    /// The task on whose kill list it stands.
    pub owner: Option<TaskId>,
    /// The account that pays for it. Its row names the number of that.
    pub account: AccountId,
    /// Bytes of the server that are charged for it, and those of them that are for `absent_limits`.
    pub bytes: u64,
    /// See `bytes`.
    pub limit_bytes: u64,
    /// Its page tables.
    pub leaves: u64,
    /// Its part of the cache, and the program that had the first of that made; the root if no program had.
    pub(crate) cached: Cached,
    pub(crate) user: AccountId,
    /// Pages of a kept object that are charged as blocks of the disk. Of a transient object: those that the store has promised a block, because it
    /// is to be kept; they have their bits of dirty pages.
    pub blocks: u64,
    /// Lowest nodes of its map in which such pages stand, counted once for each slot. For each of them as many nodes are charged as the map has levels.
    pub(crate) parts: u64,
    /// The levels of its map that are charged for them: the most that it has had since the first block or limit came, for the store keeps all levels
    /// while there is any.
    levels: u8,
    /// Nodes of its map that limits of pages may take, charged as `parts` are. The number falls when the object ends, or is not kept after all: no limit
    /// says whether others stand in the same node.
    pub(crate) limited: u64,
    /// Bytes of the server that are charged for limits which the store is told before it is kept.
    pub(crate) prepared_bytes: u64,
    /// See `blocks`.
    pub(crate) prepared: Prepared,
    /// Serial number of the domain that has all rights without a capability: the one that made it,
    /// while the object is transient. Zero is none.
    pub home: u64,
    /// Limits of pages that are not resident, where they are not all; none overlap. Holds for
    /// transient objects, and for pages of others before `known`; of the rest only the store knows.
    pub absent_limits: Vec<LimitRange>,
    /// The address up to which every page that the store holds is resident, so that it need not be asked; the last one for all pages.
    pub known: u64,
    /// Its neighbours in the lists in which it stands.
    pub(crate) neighbours: [Neighbours; KINDS],
    /// The last checkpoint that took pages or the record of it.
    pub checkpoint: u64,
    /// The checkpoint before whose end its row is not durable.
    pub changed_before: u64,
    /// The last sync that did.
    pub sync: Option<store::Ticket>,
    /// The checkpoint before whose beginning it is not looked at to be [backed](crate::pages::backing): it could not be.
    pub(crate) stays_until: u64,
    /// Whether a row that has ended, perhaps not yet on the disk, has named it as a Clist ([`crate::directory::names`]).
    pub in_rows: bool,
}

/// Which pages of an object are meant.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Which {
    /// Those in memory.
    Resident,
    /// Those that were changed since they last went to the disk.
    Dirty,
    /// Those in memory that were not.
    Clean,
}

/// A page of an object that is in memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PageAt {
    /// Slot within the object.
    pub slot: u64,
    /// The page table of the slot.
    pub leaf: Leaf,
    /// The entry of it.
    pub index: usize,
    /// First address of the page.
    pub address: u64,
}

impl Object {
    /// Whether the store need not be asked for any page.
    pub(crate) fn is_complete(&self) -> bool {
        self.known == u64::MAX
    }

    fn vacant() -> Self {
        Self {
            record: ObjectRecord::default(),
            serial: 0,
            slots: Slots::default(),
            nodes: NodeList::EMPTY,
            epoch: 0,
            called: false,
            closed_by: ThreadId(0),
            cut: None,
            resident: 0,
            dirty: 0,
            owner: None,
            account: AccountId::ROOT,
            bytes: 0,
            limit_bytes: 0,
            leaves: 0,
            cached: Cached::default(),
            user: AccountId::ROOT,
            blocks: 0,
            parts: 0,
            levels: 0,
            limited: 0,
            prepared_bytes: 0,
            prepared: Prepared::No,
            home: 0,
            absent_limits: Vec::new(),
            known: 0,
            neighbours: [None; KINDS],
            checkpoint: 0,
            changed_before: 0,
            sync: None,
            stays_until: 0,
            in_rows: false,
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

    /// One past the last address where it may have something.
    pub(crate) fn reach(&self) -> u64 {
        self.cut.map_or(self.end(), |cut| cut.end)
    }

    /// Domains that may link its page tables from a slot on.
    pub(crate) fn linkers(&self, slot: u64) -> u32 {
        let withdrawn = self.cut.is_some_and(|cut| cut.withdrawn.is_some()) && slot >= self.slot_count();
        if withdrawn { 0 } else { self.nodes.len() }
    }

    /// Whether the address is inside.
    #[inline]
    pub fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.record.base) < self.record.pages * PAGE
    }

    /// Whether the disk has it: it was kept, or is backed.
    #[inline]
    pub fn is_persistent(&self) -> bool {
        self.record.flags & OBJECT_PERSISTENT != 0
    }

    /// Whether it is a transient object whose pages the disk takes when memory is short ([`crate::pages::backing`]).
    pub(crate) fn is_backed(&self) -> bool {
        self.record.flags & ROW_ENDS != 0
    }

    /// Whether it was kept, so that it outlives its program and the power.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_persistent() && !self.is_backed()
    }

    /// Bytes that it costs whatever is known of its pages: the object with its record, and the row of a kept one.
    pub(crate) fn own_bytes(&self) -> u64 {
        if self.is_persistent() {
            REST_BYTES + active_bytes(&self.record)
        } else {
            OBJECT_BYTES + record_bytes(&self.record)
        }
    }

    /// Whether it ends, whatever becomes of the call that ends it. The store does not have a kept object any more then, so its pages are
    /// nobody's content.
    pub(crate) fn ends(&self) -> bool {
        self.closed_by == ENDS
    }

    /// Whether it is set aside for the next object.
    #[inline]
    pub(crate) fn is_set_aside(&self) -> bool {
        self.record.pages == 0
    }

    /// Whether it stands in the list of those that have, or had, dirty pages.
    pub(crate) fn is_listed_dirty(&self) -> bool {
        self.neighbours[Kind::Dirty as usize].is_some()
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

    /// The first page of some from address `from` on and before `to`. So pages are visited one by one, and whatever is
    /// done with one, the next is found.
    #[inline]
    pub fn next_page(&self, which: Which, from: u64, to: u64) -> Option<PageAt> {
        let (mut from, mut all) = (from, u64::MAX);
        self.next_near(which, &mut from, to, &mut all)
    }

    /// The same, but it looks at so many page tables at most, and counts them down to zero. `from` moves on to the page, or as far as it has looked.
    #[inline]
    pub fn next_near(&self, which: Which, from: &mut u64, to: u64, tables: &mut u64) -> Option<PageAt> {
        *from = self.base().max(*from);
        while *from < to && *tables > 0 {
            *tables -= 1;
            let slot = self.slots.next_with_leaf(slot_of(*from) - self.first_slot());
            let Some((slot, state)) = slot.and_then(|slot| Some((slot, self.slots.get(slot)?))) else {
                *from = to;
                break;
            };
            let start = (self.first_slot() + slot) * SLOT;
            let first = from.saturating_sub(start).div_ceil(PAGE) as usize;
            let found = match which {
                Which::Resident => state.resident.next(first),
                Which::Dirty => state.dirty.next(first),
                Which::Clean => state.resident.without(&state.dirty).next(first),
            };
            if let Some(index) = found {
                let address = start + index as u64 * PAGE;
                *from = address.min(to);
                let leaf = state.leaf().filter(|_| address < to)?;
                return Some(PageAt {
                    slot,
                    leaf,
                    index,
                    address,
                });
            }
            *from = to.min(start + SLOT);
        }
        None
    }

    /// The amounts that it is charged for.
    pub fn charges(&self) -> Amounts {
        let pages = if self.is_persistent() { 0 } else { self.resident };
        let mut amounts = [0; RESOURCES];
        amounts[Resource::Frames as usize] = pages + self.leaves;
        amounts[Resource::Tables as usize] = self.leaves;
        amounts[Resource::Dirty as usize] = self.dirty;
        amounts[Resource::Blocks as usize] = self.all_blocks();
        amounts[Resource::Bytes as usize] = self.bytes;
        amounts[Resource::Slots as usize] = self.slot_count();
        if self.is_persistent() {
            amounts[Resource::Rows as usize] = REST_BYTES;
            amounts[Resource::Kept as usize] = self.slot_count();
        }
        amounts
    }

    /// Whether a domain has found it, and may link some of it.
    pub(crate) fn has_holders(&self) -> bool {
        self.nodes.len() > 0
    }

    /// Whether a domain has found it, or may have P on it.
    pub(crate) fn is_held(&self) -> bool {
        self.called || self.has_holders()
    }

    /// The rights that its home has without a capability. The server counts on stacks being where
    /// it made them, so they can only be read and written.
    pub const fn home_rights(&self) -> Rights {
        if self.record.flags & OBJECT_STACK != 0 {
            Rights::RW
        } else {
            Rights::OWNER
        }
    }

    /// A password that the object table lists with a right to read, which W and X bring along.
    pub fn reading_password(&self) -> Option<u64> {
        let mut listed = self.record.capabilities.iter();
        listed
            .find(|listed| listed.1 & Rights::RWX.bits() != 0)
            .map(|listed| listed.0)
    }

    /// The rights that the object table lists for a password. Every entry is compared, whatever
    /// was found, and without a branch: the time tells nothing of the passwords.
    pub fn rights_of(&self, password: u64) -> Rights {
        let mut found = 0;
        for &(listed, rights) in &self.record.capabilities {
            found |= rights & equal_mask(listed, password);
        }
        for pdx in self.record.pdx.iter() {
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

/// Capabilities for which a vacant object keeps room, and how many such objects are kept for the next ones.
const CAPABILITIES_KEPT: usize = 4;
const OBJECTS_KEPT: usize = 32;

/// All active objects.
pub struct Objects {
    pub(super) table: Places<Object>,
    /// Vacant ones.
    spare: Vec<Boxed<Object>>,
    /// The result for a stale identifier: an object without pages.
    nobody: Object,
    /// Above the epochs of all objects that were removed.
    epoch: u64,
    /// Those that have, or had, dirty pages.
    dirty: ObjectList,
    /// How many are set aside ([`crate::directory::aside`]).
    pub(super) aside: usize,
    pub(crate) map: SlotMap,
    pub(crate) next_serial: u64,
    /// Resident pages of all of them.
    pub(crate) resident_pages: u64,
}

impl Default for Objects {
    fn default() -> Self {
        Self {
            table: Places::default(),
            spare: Vec::new(),
            nobody: Object {
                epoch: u64::MAX,
                ..Object::vacant()
            },
            epoch: 0,
            dirty: ObjectList::default(),
            aside: 0,
            map: SlotMap::new(),
            next_serial: 1,
            resident_pages: 0,
        }
    }
}

impl Objects {
    /// Places in the table, vacant ones included.
    pub(crate) fn table_len(&self) -> u32 {
        self.table.end()
    }

    /// How many are active, those that are set aside left out.
    pub fn count(&self) -> u64 {
        (self.table.count() - self.aside) as u64
    }

    /// Resident pages of all of them.
    pub fn resident(&self) -> u64 {
        self.resident_pages
    }

    /// The active object that owns the slot of an address *and* holds the address.
    #[inline]
    pub fn find(&self, address: u64) -> Option<ObjectId> {
        let index = self.map.get(slot_of(address))?;
        self.table.get(index)?.holds(address).then_some(ObjectId(index))
    }

    /// One step through all active objects in the order of their addresses: the object at `address`, if any, and where
    /// the next step begins. None behind the last address.
    pub(crate) fn at_or_behind(&self, address: u64) -> Option<(u64, Option<ObjectId>)> {
        let (end, owner) = self.map.run(slot_of(address))?;
        let Some(owner) = owner else {
            return Some((end * SLOT, None));
        };
        let object = self.get(ObjectId(owner));
        Some((
            (object.first_slot() + object.slot_count()) * SLOT,
            (!object.is_set_aside()).then_some(ObjectId(owner)),
        ))
    }

    /// An active object. A stale identifier is a bug above; it gets what is there now, or an object without pages.
    #[inline]
    pub fn get(&self, id: ObjectId) -> &Object {
        self.table.get(id.0).unwrap_or(&self.nobody)
    }

    /// The object with this number, if there is one.
    #[inline]
    pub(crate) fn active(&self, id: ObjectId) -> Option<&Object> {
        self.table.get(id.0)
    }

    /// The same, to change.
    #[inline]
    pub fn get_mut(&mut self, id: ObjectId) -> &mut Object {
        self.table.get_mut(id.0).unwrap_or(&mut self.nobody)
    }

    /// The object that begins at an address, also if it is set aside.
    pub(crate) fn find_base(&self, base: u64) -> Option<ObjectId> {
        let index = self.map.get(slot_of(base))?;
        (self.table.get(index)?.base() == base).then_some(ObjectId(index))
    }

    /// An object that is there and has this serial number.
    pub fn find_serial(&self, base: u64, serial: u64) -> Option<ObjectId> {
        self.find(base).filter(|&id| self.get(id).serial == serial)
    }

    /// Every active object.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectId, &Object)> {
        self.table.iter().map(|(index, object)| (ObjectId(index), object))
    }

    /// Whether the identifier names an active object now.
    pub fn is_live(&self, id: ObjectId) -> bool {
        self.table.get(id.0).is_some()
    }

    /// Enters an object, which an account pays for. Its slots belong to no other.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::LimitReached`]: nothing has changed.
    pub fn insert(&mut self, record: ObjectRecord, payer: AccountId, ledger: &mut Ledger) -> Result<ObjectId, Error> {
        if self.spare.is_empty() {
            reserve(&mut self.spare, OBJECTS_KEPT)?;
            push(&mut self.spare, boxed(Object::vacant())?)?;
        }
        let index = self.table.vacant()?;
        let slots = slots_for(record.base, record.pages);
        self.map.set(slot_of(record.base), slots, Some(index), payer, ledger)?;
        let mut object = self.spare.pop().ok_or(Error::NoMemory)?;
        object.record = record;
        if object.is_persistent() {
            object.serial = object.record.birth;
        } else {
            object.serial = self.next_serial;
            self.next_serial += 1;
        }
        object.epoch = self.epoch;
        self.table.put(index, object);
        Ok(ObjectId(index))
    }

    /// Takes an object off. Its pages, leaves, holders and place on a kill list are gone already.
    pub(crate) fn remove(&mut self, id: ObjectId, ledger: &mut Ledger) {
        if self.get(id).neighbours[Kind::Dirty as usize].is_some() {
            self.unlist_dirty(id);
        }
        let Some(mut object) = self.table.take(id.0) else {
            return;
        };
        // A stretch that is parted has its table already.
        let (first, slots) = (object.first_slot(), object.slot_count());
        let _ = self.map.set(first, slots, None, object.account, ledger);
        self.epoch = self.epoch.max(object.epoch + 1);
        if self.spare.len() >= OBJECTS_KEPT {
            return;
        }
        // Memory that was paid for goes back to the heap; room for the first capability serves the next object.
        let mut slots = core::mem::take(&mut object.slots);
        slots.clear();
        let mut capabilities = core::mem::take(&mut object.record.capabilities);
        capabilities.clear();
        if capabilities.capacity() > CAPABILITIES_KEPT {
            capabilities = Vec::new();
        }
        *object = Object {
            slots,
            ..Object::vacant()
        };
        object.record.capabilities = capabilities;
        push_reserved(&mut self.spare, object);
    }

    /// Gives some memory of vacant places back.
    pub(crate) fn give_back(&mut self) {
        self.table.give_back();
    }

    // ---- objects with dirty pages

    /// The object that was listed last as one with dirty pages.
    pub(crate) fn first_dirty(&self) -> Option<ObjectId> {
        self.dirty.first()
    }

    /// Lists an object as one with dirty pages.
    pub(crate) fn list_dirty(&mut self, id: ObjectId) {
        let mut list = self.dirty;
        self.enlist(Kind::Dirty, &mut list, id);
        self.dirty = list;
    }

    /// Takes an object off that list.
    pub(crate) fn unlist_dirty(&mut self, id: ObjectId) {
        let mut list = self.dirty;
        self.unlist(Kind::Dirty, &mut list, id);
        self.dirty = list;
    }

    /// Changes the length, and which slots lead to the object.
    pub(crate) fn set_pages(&mut self, id: ObjectId, pages: u64, ledger: &mut Ledger) -> Result<(), Error> {
        let object = self.get(id);
        let payer = object.account;
        let (first, before) = (object.first_slot(), object.slot_count());
        let after = slots_for(object.base(), pages);
        if after > before {
            self.map
                .set(first + before, after - before, Some(id.0), payer, ledger)?;
        } else if after < before {
            self.map.set(first + after, before - after, None, payer, ledger)?;
        }
        self.get_mut(id).record.pages = pages;
        Ok(())
    }

    /// Sees to it that [`Objects::set_pages`] with fewer pages cannot fail.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::LimitReached`]: nothing has changed.
    pub(crate) fn expect_fewer_pages(&mut self, id: ObjectId, pages: u64, ledger: &mut Ledger) -> Result<(), Error> {
        let object = self.get(id);
        let end = object.first_slot() + slots_for(object.base(), pages);
        let payer = object.account;
        self.map.expect_end(end, payer, ledger)
    }

    /// An empty vector for capabilities, with the room of that of the object that goes in next.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn spare_capabilities(&mut self) -> Result<Vec<(u64, u8)>, Error> {
        let next = self.spare.last_mut();
        let mut spare = next.map_or_else(Vec::new, |next| core::mem::take(&mut next.record.capabilities));
        reserve(&mut spare, 1)?;
        Ok(spare)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::slot_map::REACH;
    use abi::address::{PAGES_PER_SLOT, USER_START};

    fn record(base: u64, pages: u64) -> ObjectRecord {
        ObjectRecord {
            base,
            pages,
            ..ObjectRecord::default()
        }
    }

    #[test]
    fn slots_lead_to_their_object_and_nowhere_else() {
        let (mut objects, mut ledger) = (Objects::default(), Ledger::new(1));
        let large = objects
            .insert(
                record(USER_START + 100 * SLOT, PAGES_PER_SLOT * (3 * REACH + 5)),
                AccountId::ROOT,
                &mut ledger,
            )
            .unwrap();
        let small = objects
            .insert(
                record(USER_START + 7 * SLOT + 3 * PAGE, 2),
                AccountId::ROOT,
                &mut ledger,
            )
            .unwrap();
        assert_eq!(objects.find(USER_START + 7 * SLOT + 4 * PAGE), Some(small));
        assert_eq!(
            objects.find(USER_START + 7 * SLOT),
            None,
            "the gap before the first page"
        );
        assert_eq!(
            objects.find(USER_START + 7 * SLOT + 5 * PAGE),
            None,
            "behind the last page"
        );
        let end = objects.get(large).end();
        for address in [USER_START + 100 * SLOT, USER_START + (100 + 2 * REACH) * SLOT, end - 1] {
            assert_eq!(objects.find(address), Some(large));
        }
        assert_eq!(objects.find(end), None);
        objects.set_pages(large, PAGES_PER_SLOT, &mut ledger).unwrap();
        assert_eq!(objects.find(end - 1), None);
        assert_eq!(objects.find(USER_START + 100 * SLOT), Some(large));
        objects.remove(large, &mut ledger);
        objects.remove(small, &mut ledger);
        assert_eq!(objects.find(USER_START + 100 * SLOT), None);
        assert_eq!(objects.find(u64::MAX), None);
        assert_eq!(objects.count(), 0);
        assert!(objects.map.is_empty());
        assert_eq!(ledger.used(AccountId::ROOT, Resource::Bytes), 0);
    }

    #[test]
    fn an_object_at_an_address_that_was_used_is_another_one() {
        let (mut objects, mut ledger) = (Objects::default(), Ledger::new(1));
        let mut serials = Vec::new();
        for _ in 0..3 {
            let id = objects
                .insert(record(USER_START, 1), AccountId::ROOT, &mut ledger)
                .unwrap();
            let serial = objects.get(id).serial;
            assert_eq!(objects.find_serial(USER_START, serial), Some(id));
            assert!(
                serials
                    .iter()
                    .all(|&other| objects.find_serial(USER_START, other).is_none())
            );
            serials.push(serial);
            objects.remove(id, &mut ledger);
        }
    }

    #[test]
    fn passwords_give_their_rights() {
        let mut object = Object::vacant();
        object.record.capabilities = vec![(5, Rights::OWNER.bits()), (6, Rights::R.bits())];
        let pdx = store::PdxRecord {
            password: 7,
            ..store::PdxRecord::default()
        };
        object.record.pdx.add(pdx).unwrap();
        assert_eq!(object.rights_of(5), Rights::OWNER);
        assert_eq!(object.rights_of(6), Rights::R);
        assert_eq!(object.rights_of(7), Rights::P);
        assert_eq!(object.rights_of(8), Rights::NONE);
        assert_eq!(object.rights_of(5 | 1 << 63), Rights::NONE);
    }
}
