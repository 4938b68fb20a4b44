//! The cache: page tables, and records of slots, of kept objects that all programs pay for together.
//!
//! Such an object comes from an earlier start, or its program has ended, or it is the first task's and a program uses it. The disk has its content, so all of it in memory can be taken
//! back ([`super::idle`]) and found again. The cache has a bound, so it keeps nothing from programs; and each object in it has a user, so that the program that has most of the cache
//! gives way first. See decision 0186.

use abi::{Error, address::system_objects};

use crate::{
    Server,
    accounts::{AccountId, Cached, RESOURCE_LIST, Resource, limits},
    directory::object::{ObjectId, kept_charges},
    pages::slots::CHUNK_COST,
};

/// The part of all programs' page tables that the cache may have.
const CACHE_PART: u64 = 8;
/// The part of it that may get dirty from one checkpoint to the next.
const DIRT_PART: u64 = 4;
/// More than a piece of a call needs of it at once: source and target together.
const CACHE_SHORT: Cached = Cached {
    leaves: 8,
    bytes: 64 << 10,
};

impl Server {
    /// Whether all programs together pay for a kept object, and none that lives.
    pub(crate) fn is_cached(&self, id: ObjectId) -> bool {
        let object = self.objects.get(id);
        object.account == self.programs && object.is_persistent() && self.programs != AccountId::ROOT
    }

    /// Notes what an object has in the cache by now.
    #[inline]
    pub(crate) fn cache_follows(&mut self, id: ObjectId) {
        if self.is_cached(id) {
            let object = self.objects.get(id);
            let now = Cached {
                leaves: object.leaves,
                bytes: object.slots.bytes(),
            };
            self.cache_change(id, now);
        }
    }

    /// Notes that an object has so much in the cache. The program that has the first of it made is its user.
    #[cold]
    pub(crate) fn cache_change(&mut self, id: ObjectId, now: Cached) {
        let before = self.objects.get(id).cached;
        if before == now {
            return;
        }
        if before == Cached::default() {
            let account = self.account_of(self.current);
            let program = self.ledger.program_of(account, self.programs);
            self.objects.get_mut(id).user = program.unwrap_or(AccountId::ROOT);
        }
        let object = self.objects.get_mut(id);
        object.cached = now;
        self.pager.cached = self.pager.cached.changed(before, now);
        self.ledger.change_cached(object.user, before, now);
    }

    /// Page tables that the cache may have.
    fn cache_leaves(&self) -> u64 {
        self.ledger.limit(self.programs, Resource::Tables) / CACHE_PART
    }

    /// A measure of how much of the cache somebody has: page tables and heap, each in parts of 2^20 of what there may be.
    pub(crate) fn part_of_cache(&self, what: Cached) -> u64 {
        (what.leaves << 20) / self.cache_leaves().max(1) + (what.bytes << 20) / self.heap_of_first.max(1)
    }

    /// Whether so many page tables, or bytes, more would be too many for the cache. It has an eighth, so whatever is read and written of such objects keeps no program from
    /// starting.
    fn is_beyond_cache(&self, leaves: u64, bytes: u64) -> bool {
        let has = self.pager.cached;
        has.leaves + leaves > self.cache_leaves() || has.bytes > 0 && has.bytes + bytes > self.heap_of_first
    }

    /// Whether somebody may have been refused because the cache is full, or is soon.
    pub(crate) fn is_cache_short(&self, error: Error) -> bool {
        error == Error::LimitReached
            && self.programs != AccountId::ROOT
            && self.is_beyond_cache(CACHE_SHORT.leaves, CACHE_SHORT.bytes)
    }

    /// Makes sure that the cache may have a page table for a slot, if the object is one of it.
    ///
    /// # Errors
    /// [`Error::LimitReached`].
    pub(crate) fn cache_has_room(&mut self, id: ObjectId, slot: u64) -> Result<(), Error> {
        let object = self.objects.get(id);
        if self.is_cached(id) && self.is_beyond_cache(1, object.slots.cost(slot)) {
            self.pager.cache_refused = true;
            return Err(Error::LimitReached);
        }
        Ok(())
    }

    /// How many dirty pages count beside one that gets dirty in a slot of the cache. A page table or a chunk of records that gets dirty with it cannot be taken back until the page was
    /// written. In a round and the checkpoint behind it, programs make a half of the cache dirty at most.
    pub(crate) fn dirt_in_cache(&self, id: ObjectId, slot: u64) -> u64 {
        if !self.is_cached(id) {
            return 0;
        }
        let (slot, chunk) = self.objects.get(id).slots.are_clean(slot);
        let most = self.ledger.limit(self.programs, Resource::Dirty);
        let counts = |is_clean: bool, all: u64| if is_clean { most / (all / DIRT_PART).max(1) } else { 0 };
        counts(slot, self.cache_leaves()) + counts(chunk, self.heap_of_first / CHUNK_COST)
    }

    /// Whether no program that lives pays for a kept object. It may be in use all the same.
    pub(crate) fn is_unpaid(&self, id: ObjectId) -> bool {
        let object = self.objects.get(id);
        object.is_persistent() && !self.ledger.is_of_one_that_lives(object.account, self.programs)
    }

    /// An object of the system or of the first task that a program changes is paid by all programs from then on, with what the program has done for
    /// it: else nothing bound that. So is a kept one whose program has ended. The objects of the system stay their own; they hold little.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: nothing has changed.
    pub(crate) fn programs_take_over(&mut self, id: ObjectId) -> Result<(), Error> {
        let object = self.objects.get(id);
        let (payer, is_kept) = (object.account, object.is_persistent());
        let is_of_others = !self.ledger.is_within(payer, self.programs);
        let has_ended = payer != self.programs && self.is_unpaid(id);
        let takes = (is_of_others || has_ended)
            && self.is_of_program(self.current)
            && !system_objects().contains(&object.base());
        if takes && is_kept {
            // It takes nothing that it does not have already, so that counts without a bound: somebody may only want to read it.
            let object = self.objects.get(id);
            let charges = object.charges();
            for (resource, amount) in RESOURCE_LIST.into_iter().zip(charges) {
                self.ledger.force(self.programs, resource, amount);
            }
            if payer == AccountId::ROOT {
                // It is of an earlier start: the bounds of all programs were made without it.
                let slots = (Resource::Slots, object.slot_count());
                let kept = kept_charges(&object.record).into_iter().chain([slots]);
                limits::raise(&mut self.ledger, self.programs, kept);
            }
            self.paid_by(id, self.programs);
            self.cache_follows(id);
            // Without memory for it, the row names the payer before, and the next start asks once more.
            if let Ok(record) = self.objects.get(id).record.copy()
                && self.put_record(record).is_ok()
            {
                self.note_row_change(id);
            }
        } else if takes {
            self.set_account(id, self.programs)?;
        }
        Ok(())
    }
}
