//! Kept objects become active, and come to rest again.
//!
//! An object that is active has a record in the server, and its row stays in the memory of the store. It costs some 1,400 bytes of the heap, which are charged for as long as it is active. One that rests costs
//! next to nothing: its row is on the disk, and comes when somebody needs the object. Objects come to rest when heap is short ([`crate::pages::idle`]), those first that nobody uses.
//! Then one is as if it were of an earlier start: no program that lives pays for it, nor for its blocks of the disk. See decision 0201.

use abi::{
    Error,
    address::{OBJECTS_END, SLOT, USER_START, slot_of, system_objects},
    layout::OBJECT_PERSISTENT,
};
use kcore::wait::Key;
use store::{Absent, BadRows, ObjectRecord};

use crate::{
    Server, Step, Stop, World,
    accounts::{AccountId, Cached, Ledger, Resource},
    directory::address::OBJECT_SLOTS_MAX,
    directory::object::{Object, ObjectId, active_bytes, kept_charges, slots_for},
    lives::budget::Cost,
    pages::pager::FRAME_RESERVE,
};

/// The cost of making an object active, whose row is in memory, and of having one come to rest.
const COST_ACTIVE: Cost = Cost::own(4_000);
pub(crate) const COST_REST: Cost = Cost::own(4_000);

/// The cost of asking for rows that are not in memory, in instructions, roughly.
const COST_ROWS: Cost = Cost::calling(2_500, 1);

impl Server {
    /// Makes the object active that holds an address.
    ///
    /// # Errors
    /// Those of [`Server::object_at`].
    #[cold]
    pub(super) fn activate(&mut self, world: &mut impl World, address: u64) -> Step<ObjectId> {
        if !(USER_START..OBJECTS_END).contains(&address) {
            return Err(Error::BadAddress.into());
        }
        let found = match self.row_to_activate(address) {
            Ok(found) => found,
            Err(absent) => return Err(self.rows_wait(world, absent)),
        };
        let record = found.ok_or(Error::BadAddress)?;
        self.enough_heap(world)?;
        let mut record = record.copy()?;
        self.budget.spend(COST_ACTIVE);
        record.flags |= OBJECT_PERSISTENT;
        let payer = self.payer_of_active(&record);
        let bytes = active_bytes(&record);
        self.addresses.expect_back()?;
        self.unknown.expect()?;
        self.ledger.take(payer, Resource::Bytes, bytes)?;
        let (first, slots) = (slot_of(record.base), slots_for(record.base, record.pages));
        let entered = self.objects.insert(record, payer, &mut self.ledger);
        let id = entered.inspect_err(|_| self.ledger.give(payer, Resource::Bytes, bytes))?;
        self.unknown.take_out(first, slots);
        self.ledger.force(payer, Resource::Slots, slots);
        self.rests_no_more(id, payer);
        let object = self.objects.get_mut(id);
        object.account = payer;
        object.bytes = object.own_bytes();
        self.addresses.note_issued();
        self.store.hold(self.objects.get(id).base());
        Ok(id)
    }

    /// The row of the object that holds an address, if that may become active.
    ///
    /// # Errors
    /// [`Absent`]: rows must be read first.
    fn row_to_activate(&self, address: u64) -> Result<Option<&ObjectRecord>, Absent> {
        let Some(record) = self.store.find_containing(address)? else {
            return Ok(None);
        };
        let slots = slots_for(record.base, record.pages);
        let first = slot_of(record.base);
        let last = first + slots.max(1) - 1;
        // A disk made by others may hold what ours never would: objects too large, beyond their window, or in shared slots. Neither of two that
        // share one can be reached, so no slot comes back while another object stands in it.
        let next = match self.store.find_from(record.base + 1) {
            // All that is in there begins behind it.
            Err(absent) if slot_of(absent.from()) > last => None,
            next => next?,
        };
        let start = (first * SLOT).max(USER_START);
        let before = match self.store.find_containing(start)? {
            None => self.store.find_from(start)?,
            before => before,
        };
        let is_ours = slots <= OBJECT_SLOTS_MAX
            && last < slot_of(OBJECTS_END)
            && ![first, last]
                .into_iter()
                .any(|slot| self.objects.map.get(slot).is_some())
            && next.is_none_or(|next| slot_of(next.base) > last)
            && before.is_none_or(|before| before.base >= record.base);
        Ok(is_ours.then_some(record))
    }

    /// Begins to read rows that are not in memory; tells what the call waits for, or why they cannot be had.
    #[cold]
    pub(crate) fn rows_wait(&mut self, world: &mut impl World, absent: Absent) -> Stop {
        if let Err(error) = self.enough_heap(world) {
            return error.into();
        }
        // The store takes a frame for what it reads.
        while world.frames_free() <= FRAME_RESERVE {
            if let Err(stop) = self.make_room(world) {
                return stop;
            }
        }
        self.budget.spend(COST_ROWS);
        match self.store.read_rows(world, absent) {
            Ok(key) => Stop::Wait(Key::Page(key)),
            Err(BadRows::Memory) => Error::NoMemory.into(),
            Err(BadRows::Rotten | BadRows::Disk) => Error::DiskError.into(),
        }
    }

    /// Has the rows in memory that an object needs to be entered in the table, or to get longer there.
    ///
    /// # Errors
    /// The need to wait for them; [`Error::DiskError`] if they cannot be read.
    pub(crate) fn rows_near(&mut self, world: &mut impl World, base: u64) -> Step<()> {
        match self.store.find_near(base) {
            Ok(()) => Ok(()),
            Err(absent) => Err(self.rows_wait(world, absent)),
        }
    }

    /// An object is active from now on, and this account pays for it: it counts no more among those that rest.
    fn rests_no_more(&mut self, id: ObjectId, payer: AccountId) {
        let record = &self.objects.get(id).record;
        let before = self.payer_of_row(record);
        let resting = &mut self.resting[class_of(record)];
        for (sum, (resource, amount)) in resting.iter_mut().zip(kept_charges(record)) {
            *sum = sum.saturating_sub(amount);
            self.ledger.force(payer, resource, amount);
            self.ledger.give(before, resource, amount);
        }
    }

    /// Whether all that is known of a kept object is on the disk: in its row, its map and its pages.
    pub(crate) fn is_written(&self, id: ObjectId) -> bool {
        let object = self.objects.get(id);
        !object.is_listed_dirty() && self.is_written_but_for_dirty(object) && self.store.may_let_go(object.base())
    }

    /// Whether nothing of a kept object is in memory, and nobody uses it.
    fn may_rest(&self, id: ObjectId) -> bool {
        let object = self.objects.get(id);
        let has_nothing = object.leaves == 0 && object.slots.chunks() == 0 && object.bytes == object.own_bytes();
        let is_free = !object.has_holders() && object.closed_by.0 == 0 && object.cut.is_none() && !object.in_rows;
        has_nothing
            && is_free
            && object.is_kept()
            && !system_objects().contains(&object.base())
            && self.is_written(id)
            && self.has_row_of_payer(object)
    }

    /// Whether the row of an object names the account that its record names: the sums over rows that rest go by it.
    fn has_row_of_payer(&self, object: &Object) -> bool {
        let row = self.store.find_containing(object.base());
        row.is_ok_and(|row| row.is_some_and(|row| row.account == object.record.account))
    }

    /// Has an object come to rest, if it may; tells whether it did. What is charged for it goes back to who paid; all programs together, or the root, pay for what stays.
    pub(crate) fn come_to_rest(&mut self, world: &mut impl World, id: ObjectId) -> bool {
        if !self.may_rest(id) {
            return false;
        }
        // Nobody has it, but the kernel may remember calls.
        self.withdraw_begin(world, id);
        self.cache_change(id, Cached::default());
        let object = self.objects.get(id);
        let (base, account, charges) = (object.base(), object.account, object.charges());
        let (class, kept) = (class_of(&object.record), kept_charges(&object.record));
        let payer = self.payer_of_row(&object.record);
        for (sum, (resource, amount)) in self.resting[class].iter_mut().zip(kept) {
            *sum = sum.saturating_add(amount);
            self.ledger.force(payer, resource, amount);
        }
        self.ledger.give_all(account, &charges);
        self.objects.remove(id, &mut self.ledger);
        self.budget.spend(self.objects.map.cost_of_lists());
        self.addresses.note_rests();
        self.store.let_go(base);
        true
    }

    /// The account that pays for a kept object while it is active: that which its row names, while its program lives.
    fn payer_of_active(&self, record: &ObjectRecord) -> AccountId {
        let named = self.ledger.find_known(record.account);
        let lives = |&account: &AccountId| self.ledger.is_of_one_that_lives(account, self.programs);
        named.filter(lives).unwrap_or_else(|| self.payer_of_row(record))
    }

    /// The account that pays for a kept object that rests, or that is of an earlier start, whose own account is gone: all programs together for those of programs, or a program
    /// could keep an object, and in the next start nothing would bind what is done with it.
    pub(crate) fn payer_of_row(&self, record: &ObjectRecord) -> AccountId {
        if Ledger::is_of_programs(record.account) {
            self.programs
        } else {
            AccountId::ROOT
        }
    }
}

/// Which sums a row that rests belongs to ([`Server::resting`]).
fn class_of(record: &ObjectRecord) -> usize {
    usize::from(!Ledger::is_of_programs(record.account))
}
