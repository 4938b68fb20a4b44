//! Pages go: dropped with their object, unmapped, or taken back when memory is short.
//!
//! A frame that leaves a page table may still be remembered by a processor, so translations are
//! forgotten before the frame is given back, unless nobody links the page any more.
//!
//! When no frame is free, clean pages of persistent objects are taken from memory: the disk has
//! them. If there are only dirty ones a checkpoint makes them clean. Transient pages stay: there is
//! no swap.

use alloc::vec::Vec;
use core::ops::Range;

use abi::{
    Error, Rights,
    address::{PAGE, PAGES_PER_SLOT, SLOT, slot_of, system_objects},
};
use kcore::{Frame, Leaf, wait::Key};
use store::Look;

use crate::{
    Server, Step, Stop, World,
    accounts::{AccountId, Cached, RESOURCE_LIST, Resource, limits},
    containers::push_reserved,
    directory::object::{ObjectId, Which},
    lives::budget::Cost,
    pages::{
        pager::FRAME_RESERVE,
        slots::{CHUNK_COST, Slots, first_run},
    },
};

/// Frames that are taken from objects at once when memory is short.
const RECLAIM_BATCH: usize = 64;
/// How far a look for a clean page reaches, what it costs in instructions, roughly, and what going on to the next object does.
const LOOK_REACH: u64 = 4 * SLOT;
const COST_LOOK: Cost = Cost::calling(260, 3);
const COST_OBJECT: Cost = Cost::own(15);
/// Looks that are done in any case.
const LOOKS_LEAST: u64 = 10;
/// The cost of taking a clean page, beside that of the look.
const COST_TAKEN: Cost = Cost::calling(200, 2);
/// The cost of having the store give up a map node, and of having it look at one that stays.
pub(crate) const COST_NODE_GONE: Cost = Cost::calling(1_600, 2);
const COST_NODE_PASSED: Cost = Cost::own(300);
/// The part of the budget that is left to the caller, to make use of a frame, roughly.
const COST_CALLER: Cost = Cost::calling(5_000, 12);
/// The cost of freeing what is known of neighbouring slots, in instructions, roughly, and of looking whether blocks are charged in them; of taking back
/// those of a slot that has some, and so many of them that cost one more.
const COST_CHUNK: Cost = Cost::own(2_300);
const COST_MARKS: u64 = 140;
const MARKS_COUNTED: u64 = 5;
/// Slots of which they are taken back before the budget is asked again.
const MARKS_AT_ONCE: u64 = 16;
/// The cost of forgetting a page that is on its way, and of waking the thread that waits for it.
const COST_FORGET: Cost = Cost::calling(430, 1);
/// The part of all programs' page tables that the cache may have.
const CACHE_PART: u64 = 8;
/// The part of it that may get dirty from one checkpoint to the next.
const DIRT_PART: u64 = 4;
/// What a piece of a call may need of it at once, and more: it needs source and target together.
const CACHE_SHORT: Cached = Cached {
    leaves: 8,
    bytes: 64 << 10,
};
/// Frames that go before translations are forgotten once for all of them.
const GONE_BATCH: usize = 16;
/// Pages whose translations are forgotten one by one; for more, all are.
pub(crate) const FLUSH_SINGLY: usize = 8;

/// Whether translations of pages that go are still remembered somewhere.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Remembered {
    Perhaps,
    No,
}

impl Server {
    // ---- pages go ---------------------------------------------------------------------------------

    /// Drops the resident pages of an object from address `from` to `to`.
    pub(crate) fn drop_pages<W: World>(
        &mut self,
        world: &mut W,
        id: ObjectId,
        from: u64,
        to: u64,
        remembered: Remembered,
    ) {
        let object = self.objects.get(id);
        let (base, first_slot, resident) = (object.base(), object.first_slot(), object.resident);
        // Pages that nobody remembers need no list.
        let mut gone = (remembered == Remembered::Perhaps).then(Gone::default);
        let mut dropped = 0;
        let mut at = from.max(base);
        while at < to
            && dropped < resident
            && let Some(number) = self.objects.get(id).slots.next_with_leaf(slot_of(at) - first_slot)
        {
            let start = (first_slot + number) * SLOT;
            let [first, end] = [at, to].map(|address| address.saturating_sub(start).div_ceil(PAGE) as usize);
            at = start + SLOT;
            let mut next = first;
            while dropped < resident {
                let state = self.objects.get_mut(id).slots.touch(number);
                let page = state.resident.next(next).filter(|&page| page < end);
                let (Some(page), Some(leaf)) = (page, state.leaf()) else {
                    break;
                };
                let word = page / 64;
                next = (word + 1) * 64;
                let mut pages = state.resident.take_word(word, first, end);
                let dirty = state.dirty.take_word(word, first, end);
                if dirty != 0 {
                    self.dirty_gone(id, number, word, dirty);
                }
                while pages != 0 {
                    let (run, run_end) = first_run(pages);
                    pages &= u64::MAX.checked_shl(run_end as u32).unwrap_or(0);
                    dropped += (run_end - run) as u64;
                    let entries = word * 64 + run..word * 64 + run_end;
                    match &mut gone {
                        None => world.leaf_clear(leaf, entries),
                        Some(gone) => gone.take(world, leaf, start, entries),
                    }
                }
            }
        }
        if let Some(mut gone) = gone {
            gone.release(world);
        }
        if dropped > 0 {
            self.objects.get_mut(id).resident -= dropped;
            self.objects.resident_pages -= dropped;
            self.refund_pages(id, dropped);
        }
        if self.pager.awaits_pages() {
            while !self.forget_reads(world, from.max(base), to) {}
        }
    }

    /// Pages in memory, of a word of a slot, go that were changed since they last went to the disk: nobody pays for that any more.
    #[cold]
    fn dirty_gone(&mut self, id: ObjectId, number: u64, word: usize, mut dirty: u64) {
        let object = self.objects.get(id);
        let (base, account, persistent) = (object.base(), object.account, object.is_persistent());
        let start = (object.first_slot() + number) * SLOT;
        while dirty != 0 {
            let index = word * 64 + dirty.trailing_zeros() as usize;
            dirty &= dirty - 1;
            if persistent {
                self.objects.get_mut(id).dirty -= 1;
                self.pager.dirty -= 1;
                self.ledger.give(account, Resource::Dirty, 1);
            } else {
                self.block_gone(id, number, index);
            }
            self.store.unreserve(base, (start + index as u64 * PAGE - base) / PAGE);
        }
    }

    /// Pages on their way for these addresses are not wanted any more: at least one, and more as far as the budget reaches. Tells whether those were
    /// all.
    #[inline]
    pub(crate) fn forget_reads<W: World>(&mut self, world: &mut W, from: u64, to: u64) -> bool {
        while let Some((address, ())) = self.pager.reading.first_in(from..to) {
            self.pager.reading.remove(address);
            world.wake(Key::Page(address), u32::MAX);
            if !self.budget.spend(COST_FORGET) {
                return false;
            }
        }
        while let Some((address, _)) = self.pager.failed.first_in(from..to) {
            self.pager.failed.remove(address);
            if !self.budget.spend(COST_FORGET) {
                return false;
            }
        }
        true
    }

    /// Destroys the leaves of an object in a range of slots, where no pages are left.
    pub(crate) fn drop_leaves<W: World>(&mut self, world: &mut W, id: ObjectId, slots: &Range<u64>) {
        let first = self.objects.get(id).slots.next_with_leaf(slots.start);
        if first.is_none_or(|number| number >= slots.end) {
            // Nobody can have linked anything, so nobody is looked at.
            return;
        }
        if self.objects.get(id).linkers(slots.start) > 0 {
            self.unlink_everywhere(world, id, slots);
        }
        self.leaves_go(world, id, slots);
    }

    /// The same of leaves that nobody links any more.
    pub(crate) fn leaves_go<W: World>(&mut self, world: &mut W, id: ObjectId, slots: &Range<u64>) {
        let object = self.objects.get_mut(id);
        let mut from = slots.start;
        let mut dropped = 0;
        while dropped < object.leaves
            && let Some(number) = object.slots.next_with_leaf(from).filter(|&number| number < slots.end)
        {
            from = number + 1;
            if let Some(state) = object.slots.get(number)
                && let Some(leaf) = state.leaf().filter(|_| state.resident.is_empty())
            {
                object.slots.set_leaf(number, None);
                world.leaf_destroy(leaf);
                dropped += 1;
            }
        }
        self.pager.leaves -= dropped;
        self.objects.get_mut(id).leaves -= dropped;
        self.refund_leaves(id, dropped);
        self.cache_follows(id);
    }

    /// Forgets what is known of the slots of an object behind a number of them, where no leaves are left, as far as the budget reaches; tells whether
    /// that was all. Nobody pays for blocks of their pages any more.
    pub(crate) fn forget_slots(&mut self, id: ObjectId, count: u64) -> bool {
        while let Some(first) = self.objects.get(id).slots.last_bare(count) {
            let end = Slots::whole_chunks(first + 1);
            if !self.marks_go(id, first * PAGES_PER_SLOT, end * PAGES_PER_SLOT) || !self.budget.spend(COST_CHUNK) {
                return false;
            }
            self.free_slots(id, first);
        }
        true
    }

    /// Frees the records of the neighbouring slots from one on, which have no leaves.
    pub(crate) fn free_slots(&mut self, id: ObjectId, first: u64) {
        let bytes = self.objects.get_mut(id).slots.free(first);
        self.refund_slots_of(id, bytes);
    }

    // ---- paying ---------------------------------------------------------------------------------

    /// Charges pages of an object that come into memory. Those of a kept object are a cache, which nobody pays for.
    #[inline]
    pub(crate) fn charge_pages(&mut self, id: ObjectId, pages: u64) -> Result<(), Error> {
        let object = self.objects.get(id);
        if object.is_persistent() {
            Ok(())
        } else {
            self.ledger.take(object.account, Resource::Frames, pages)
        }
    }

    /// Takes that back.
    #[inline]
    pub(crate) fn refund_pages(&mut self, id: ObjectId, pages: u64) {
        let object = self.objects.get(id);
        if !object.is_persistent() {
            self.ledger.give(object.account, Resource::Frames, pages);
        }
    }

    /// Charges a page table of an object.
    ///
    /// # Errors
    /// [`Error::LimitReached`].
    pub(crate) fn charge_leaf(&mut self, id: ObjectId) -> Result<(), Error> {
        let payer = self.objects.get(id).account;
        self.ledger.take(payer, Resource::Frames, 1)?;
        self.ledger
            .take(payer, Resource::Tables, 1)
            .inspect_err(|_| self.ledger.give(payer, Resource::Frames, 1))
    }

    /// Takes that back.
    pub(crate) fn refund_leaves(&mut self, id: ObjectId, count: u64) {
        let payer = self.objects.get(id).account;
        self.ledger.give(payer, Resource::Tables, count);
        self.ledger.give(payer, Resource::Frames, count);
    }

    /// Makes room for what is known of a slot.
    ///
    /// # Errors
    /// [`Error::LimitReached`], [`Error::NoMemory`]: nothing has changed.
    pub(crate) fn make_slot(&mut self, id: ObjectId, slot: u64) -> Result<(), Error> {
        let object = self.objects.get(id);
        if object.slots.get(slot).is_some() {
            return Ok(());
        }
        let (payer, cost) = (object.account, object.slots.cost(slot));
        self.ledger.take(payer, Resource::Bytes, cost)?;
        let object = self.objects.get_mut(id);
        object
            .slots
            .make(slot)
            .inspect_err(|_| self.ledger.give(payer, Resource::Bytes, cost))?;
        object.bytes += cost;
        self.cache_follows(id);
        Ok(())
    }

    /// Takes that back.
    fn refund_slots_of(&mut self, id: ObjectId, bytes: u64) {
        let object = self.objects.get_mut(id);
        object.bytes -= bytes;
        self.ledger.give(object.account, Resource::Bytes, bytes);
        self.cache_follows(id);
    }

    /// Some pages of an object, by number, hold nothing on the disk any more: nobody pays for blocks of them. As far as the budget reaches; tells whether that
    /// was all.
    pub(crate) fn blocks_go(&mut self, id: ObjectId, first: u64, end: u64) -> bool {
        let colour = self.objects.get(id).base() % SLOT / PAGE;
        self.marks_go(id, first + colour, end + colour)
    }

    /// The same of the few pages of a piece.
    pub(crate) fn blocks_gone(&mut self, id: ObjectId, first: u64, end: u64) {
        let colour = self.objects.get(id).base() % SLOT / PAGE;
        self.marks_gone(id, first + colour, end + colour);
    }

    /// Nobody pays for blocks in some slots of a kept object any more, though they are in use. The bound of all programs falls with that, for the disk has none more. As far as the
    /// budget reaches; tells whether that was all.
    pub(crate) fn blocks_of_slots_go(&mut self, id: ObjectId, first: u64, end: u64) -> bool {
        let all = self.marks_go(id, first * PAGES_PER_SLOT, end * PAGES_PER_SLOT);
        self.renew_blocks();
        all
    }

    /// Charges blocks of the disk. Where all programs have as many as they may, their bound is that of the disk as it is by now: what was removed is theirs again.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: nothing is charged.
    pub(crate) fn charge_blocks(&mut self, payer: AccountId, blocks: u64) -> Result<(), Error> {
        self.ledger.take(payer, Resource::Blocks, blocks).or_else(|_| {
            self.renew_blocks();
            self.ledger.take(payer, Resource::Blocks, blocks)
        })
    }

    /// Bounds the blocks of all programs by what the disk has free, or soon has.
    pub(crate) fn renew_blocks(&mut self) {
        if self.programs != AccountId::ROOT {
            let stats = self.store.stats();
            let free = (stats.free + stats.held).saturating_sub(stats.reserved);
            limits::renew_blocks(&mut self.ledger, self.programs, free, self.blocks_of_first);
        }
    }

    /// [`Server::blocks_go`] with pages counted from the start of the first slot.
    fn marks_go(&mut self, id: ObjectId, first: u64, end: u64) -> bool {
        let mut from = first;
        while from < end && self.objects.get(id).blocks > 0 {
            if !self.budget.is_left() {
                return false;
            }
            let to = end.min(from + MARKS_AT_ONCE * PAGES_PER_SLOT);
            self.marks_gone(id, from, to);
            from = to;
        }
        true
    }

    fn marks_gone(&mut self, id: ObjectId, first: u64, end: u64) {
        let object = self.objects.get_mut(id);
        if object.blocks > 0 {
            let (gone, parts, slots) = object.slots.clear_blocks(first, end, object.part_colour());
            self.budget.spend(Cost::own(slots * COST_MARKS + gone / MARKS_COUNTED));
            object.blocks -= gone;
            object.parts -= parts;
            self.ledger
                .give(object.account, Resource::Blocks, object.with_nodes(gone, parts));
        }
    }

    // ---- the cache ------------------------------------------------------------------------------

    /// Whether no program that lives pays for an object, but all together do. What is known of such a kept object's slots, and its page tables, are a *cache* of what the
    /// disk has (decision 0186).
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

    /// The same. The program that has the first of it made is its user.
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

    /// So much is something of the cache, in parts of 2^20, as a page table or as heap.
    pub(crate) fn part_of_cache(&self, what: Cached) -> u64 {
        let leaves = self.ledger.limit(self.programs, Resource::Tables) / CACHE_PART;
        (what.leaves << 20) / leaves.max(1) + (what.bytes << 20) / self.heap_of_first.max(1)
    }

    /// Whether so many page tables, or bytes, more would be too many for the cache. It has an eighth, so whatever is read and written of such objects keeps no program from
    /// starting.
    fn is_beyond_cache(&self, leaves: u64, bytes: u64) -> bool {
        let has = self.pager.cached;
        has.leaves + leaves > self.ledger.limit(self.programs, Resource::Tables) / CACHE_PART
            || has.bytes > 0 && has.bytes + bytes > self.heap_of_first
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
    pub(crate) fn cache_has_room(&self, id: ObjectId, slot: u64) -> Result<(), Error> {
        let object = self.objects.get(id);
        if self.is_cached(id) && self.is_beyond_cache(1, object.slots.cost(slot - object.first_slot())) {
            return Err(Error::LimitReached);
        }
        Ok(())
    }

    /// So many dirty pages count for one beside itself that gets dirty in a slot of the cache: what it makes dirty with it cannot be taken back until it was written. In a round and the
    /// checkpoint behind it, programs make a half of the cache dirty at most.
    pub(crate) fn dirt_in_cache(&self, id: ObjectId, slot: u64) -> u64 {
        if !self.is_cached(id) {
            return 0;
        }
        let (slot, chunk) = self.objects.get(id).slots.are_clean(slot);
        let most = self.ledger.limit(self.programs, Resource::Dirty);
        let counts = |is_clean: bool, all: u64| if is_clean { most / (all / DIRT_PART).max(1) } else { 0 };
        let leaves = self.ledger.limit(self.programs, Resource::Tables) / CACHE_PART;
        counts(slot, leaves) + counts(chunk, self.heap_of_first / CHUNK_COST)
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
            let before = limits::that_stays(&self.ledger, self.programs);
            let object = self.objects.get(id);
            for (resource, amount) in RESOURCE_LIST.into_iter().zip(object.charges()) {
                self.ledger.force(self.programs, resource, amount);
            }
            self.paid_by(id, self.programs);
            self.cache_follows(id);
            limits::follow(&mut self.ledger, self.programs, before);
            self.renew_blocks();
            // Without memory for it, the row names the payer before, and the next start asks once more.
            let record = self.objects.get(id).record.copy()?;
            let _ = self.put_record(record);
            self.note_row_change(id);
        } else if takes {
            self.set_account(id, self.programs)?;
        }
        Ok(())
    }

    /// Says from now on who pays for a transient object.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: nothing has changed.
    pub(crate) fn set_account(&mut self, id: ObjectId, payer: AccountId) -> Result<(), Error> {
        let object = self.objects.get(id);
        if object.account != payer {
            self.ledger.take_all(payer, &object.charges())?;
            self.paid_by(id, payer);
        }
        Ok(())
    }

    /// An account that was charged for all that an object has pays for it instead of the one before.
    fn paid_by(&mut self, id: ObjectId, payer: AccountId) {
        let number = self.ledger.number(payer);
        let object = self.objects.get_mut(id);
        let (before, charges) = (object.account, object.charges());
        object.account = payer;
        object.record.account = number;
        self.ledger.give_all(before, &charges);
    }

    // ---- when memory is short ---------------------------------------------------------------------

    /// No frame is free. Takes clean pages of persistent objects back, or has dirty ones written
    /// first and lets the caller wait. Frames whose entry somebody holds in his hands while he asks
    /// for another one must have a second reference, or be dirty or transient.
    ///
    /// # Errors
    /// [`Stop::Again`]: the event has done its share, and the next one goes on from there. The need to wait for a checkpoint;
    /// [`Error::NoMemory`].
    #[cold]
    pub(crate) fn make_room<W: World>(&mut self, world: &mut W) -> Step<()> {
        let step = self.some_room(world);
        if step.is_err() {
            self.budget.raise_again();
        }
        step
    }

    fn some_room<W: World>(&mut self, world: &mut W) -> Step<()> {
        if self.take_frames(world)? > 0 {
            // A caller that needs more frames than that does not go on in this event.
            return if world.frames_free() > FRAME_RESERVE || self.budget.has(COST_CALLER) {
                Ok(())
            } else {
                Err(Stop::Again)
            };
        }
        if self.checkpoint.last_failed() {
            return Err(Error::NoMemory.into());
        }
        // One that runs gives frames back when it ends. Asking for a further one each time would
        // never come to an end.
        if self.checkpoint.is_running() {
            return Err(Stop::Wait(Key::Checkpoint));
        }
        if self.pager.dirty == 0 {
            return Err(Error::NoMemory.into());
        }
        let number = self.checkpoint_request(world);
        match self.checkpoint_reached(number) {
            // A disk that works while one asks. Dirty pages are clean now.
            Some(Ok(())) if self.reclaim_piece(world)? > 0 => Ok(()),
            Some(_) => Err(Error::NoMemory.into()),
            None => Err(Stop::Wait(Key::Checkpoint)),
        }
    }

    /// Takes some clean pages from memory, or where there are none some map nodes of the store; tells how many.
    ///
    /// # Errors
    /// [`Stop::Again`]: there are further ones to look at.
    fn take_frames<W: World>(&mut self, world: &mut W) -> Step<usize> {
        let goes_on = self.pager.nodes_left > 0;
        if !goes_on {
            let taken = self.reclaim_piece(world)?;
            if taken > 0 {
                return Ok(taken);
            }
            self.pager.nodes_left = RECLAIM_BATCH;
        }
        // Nodes that a running job has just read are not taken from under it.
        let gone = if self.checkpoint.is_busy() {
            self.pager.nodes_left = 0;
            0
        } else {
            self.nodes_go(world)?
        };
        // Clean pages may have come since an earlier event looked for them.
        if gone == 0 && goes_on {
            self.reclaim_piece(world)
        } else {
            Ok(gone)
        }
    }

    /// Has the store give up map nodes, as far as the budget reaches; tells how many.
    ///
    /// # Errors
    /// [`Stop::Again`]: none was found yet.
    fn nodes_go<W: World>(&mut self, world: &mut W) -> Step<usize> {
        // Each event gets on, however much was spent before; but once, or one that asks for many frames never ended.
        self.budget.at_least_once(COST_CALLER.and(COST_NODE_GONE));
        let mut gone = 0;
        while self.pager.nodes_left > 0 && self.budget.has(COST_CALLER) {
            match self.store.shrink(world) {
                Look::Dropped => {
                    self.budget.spend(COST_NODE_GONE);
                    self.pager.nodes_left -= 1;
                    gone += 1;
                }
                Look::Passed => {
                    self.budget.spend(COST_NODE_PASSED);
                }
                Look::Over => self.pager.nodes_left = 0,
            }
        }
        if gone == 0 && self.pager.nodes_left > 0 {
            return Err(Stop::Again);
        }
        Ok(gone)
    }

    /// Takes some clean pages of persistent objects from memory, which are read again when touched.
    /// Tells how many.
    pub fn reclaim<W: World>(&mut self, world: &mut W) -> usize {
        self.unbounded(|server| server.reclaim_piece(world)).unwrap_or(0)
    }

    /// The same as far as the budget reaches, from where the search stopped the last time.
    ///
    /// # Errors
    /// [`Stop::Again`]: there are further pages to look at.
    fn reclaim_piece<W: World>(&mut self, world: &mut W) -> Step<usize> {
        let mut frames = Vec::new();
        if frames.try_reserve_exact(RECLAIM_BATCH).is_err() {
            return Ok(0);
        }
        let count = self.objects.table_len();
        self.budget.at_least_once(COST_CALLER.and(COST_LOOK.times(LOOKS_LEAST)));
        // The first object was perhaps begun in its middle, and is looked at once more.
        while frames.len() < RECLAIM_BATCH && self.pager.left_in_vain <= count && self.budget.has(COST_CALLER) {
            self.budget.spend(COST_OBJECT);
            let id = ObjectId(self.pager.hand);
            let persistent = self.objects.is_live(id) && self.objects.get(id).is_persistent();
            if !persistent || self.reclaim_from(world, id, &mut frames) {
                self.pager.hand = (id.0 + 1) % count.max(1);
                self.pager.hand_at = 0;
                self.pager.left_in_vain += 1;
            }
        }
        let over = self.pager.left_in_vain > count;
        if over || !frames.is_empty() {
            self.pager.left_in_vain = 0;
        }
        if !frames.is_empty() {
            world.flush_everything();
        }
        for &frame in &frames {
            world.frame_release(frame);
        }
        if frames.is_empty() && !over {
            return Err(Stop::Again);
        }
        Ok(frames.len())
    }

    /// Takes clean pages of an object from the hand on; tells whether it came to the end of the object.
    fn reclaim_from<W: World>(&mut self, world: &mut W, id: ObjectId, frames: &mut Vec<Frame>) -> bool {
        let object = self.objects.get_mut(id);
        let before = frames.len();
        let end = object.end();
        let mut from = self.pager.hand_at.max(object.base());
        while from < end && frames.len() < RECLAIM_BATCH && self.budget.has(COST_CALLER) {
            self.budget.spend(COST_LOOK);
            let to = end.min(from + LOOK_REACH);
            let Some(place) = object.next_page(Which::Clean, from, to) else {
                from = to;
                continue;
            };
            from = place.address + PAGE;
            let Some(entry) = world.leaf_get(place.leaf, place.index) else {
                continue;
            };
            let state = object.slots.touch(place.slot);
            let clean = entry.write_withheld || !entry.limits.contains(Rights::W);
            if clean && world.frame_references(entry.frame) == 1 {
                world.leaf_set(place.leaf, place.index, None);
                state.resident.clear(place.index);
                push_reserved(frames, entry.frame);
                self.budget.spend(COST_TAKEN);
            }
        }
        self.pager.hand_at = from;
        let taken = (frames.len() - before) as u64;
        if taken > 0 {
            object.known = 0;
            object.resident -= taken;
            self.objects.resident_pages -= taken;
        }
        from >= end
    }
}

/// Frames that were taken out of page tables and may still be remembered by a processor.
struct Gone {
    pages: [(u64, Option<Frame>); GONE_BATCH],
    count: usize,
}

impl Default for Gone {
    fn default() -> Self {
        Self {
            pages: [(0, None); GONE_BATCH],
            count: 0,
        }
    }
}

impl Gone {
    /// Takes entries out of the page table of the slot that begins at an address.
    #[inline(never)]
    fn take<W: World>(&mut self, world: &mut W, leaf: Leaf, start: u64, entries: Range<usize>) {
        for index in entries {
            let Some(entry) = world.leaf_get(leaf, index) else {
                continue;
            };
            world.leaf_set(leaf, index, None);
            if self.count == self.pages.len() {
                self.release(world);
            }
            self.pages[self.count] = (start + index as u64 * PAGE, Some(entry.frame));
            self.count += 1;
        }
    }

    fn release<W: World>(&mut self, world: &mut W) {
        let pages = &self.pages[..self.count];
        if pages.len() > FLUSH_SINGLY {
            world.flush_everything();
        } else {
            for &(address, _) in pages {
                world.flush_page(address);
            }
        }
        for frame in pages.iter().filter_map(|&(_, frame)| frame) {
            world.frame_release(frame);
        }
        self.count = 0;
    }
}
