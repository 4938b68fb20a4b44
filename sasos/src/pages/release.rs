//! Pages go: dropped with their object, unmapped, or taken back when memory is short.
//!
//! A frame that leaves a page table may still be remembered by a processor, so translations are
//! forgotten before the frame is given back, unless nobody links the page any more.
//!
//! When no frame is free, clean pages of persistent objects are taken from memory, in the order that `queues.rs` says: the disk has
//! them. If there are only dirty ones a checkpoint makes them clean. Pages of transient objects stay, unless these are [backed](crate::pages::backing).

use alloc::vec::Vec;
use core::ops::Range;

use abi::{
    Error, Rights,
    address::{PAGE, PAGES_PER_SLOT, SLOT, slot_of},
};
use kcore::{Frame, Leaf, PageEntry, wait::Key};
use store::Look;

use crate::{
    Server, Step, Stop, World,
    accounts::{AccountId, Resource, limits},
    containers::push_reserved,
    directory::object::{Object, ObjectId, Which},
    lives::{budget::Cost, thread::PAGES_OF_INSTRUCTION},
    pages::{
        pager::{FRAME_RESERVE, index_of},
        queues::Candidate,
        slots::{Slots, first_run},
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
const COST_MARKS: u64 = 165;
const MARKS_COUNTED: u64 = 5;
/// Slots of which they are taken back before the budget is asked again.
const MARKS_AT_ONCE: u64 = 8;
/// The cost of forgetting a page that is on its way, and of waking the thread that waits for it.
const COST_FORGET: Cost = Cost::calling(430, 1);
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

impl Remembered {
    /// Of the pages of an object: where no domain has it any more, they were forgotten with the links to them.
    pub(crate) fn of(object: &Object) -> Self {
        if object.has_holders() { Self::Perhaps } else { Self::No }
    }
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
        let object = self.objects.get_mut(id);
        let bytes = object.slots.free(first);
        object.bytes -= bytes;
        self.ledger.give(object.account, Resource::Bytes, bytes);
        self.cache_follows(id);
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

    /// Charges blocks of the disk that an object takes further. Where all programs have as many as they may, their bound is that of the disk as it is by now: what was
    /// removed is theirs again.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: nothing is charged.
    pub(crate) fn charge_blocks(&mut self, id: ObjectId, blocks: u64) -> Result<(), Error> {
        self.programs_take_over(id)?;
        let payer = self.objects.get(id).account;
        self.ledger.take(payer, Resource::Blocks, blocks).or_else(|_| {
            self.renew_blocks();
            self.ledger.take(payer, Resource::Blocks, blocks)
        })
    }

    /// Gives back what was charged so.
    pub(crate) fn refund_blocks(&mut self, id: ObjectId, blocks: u64) {
        let payer = self.objects.get(id).account;
        self.ledger.give(payer, Resource::Blocks, blocks);
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
    pub(crate) fn paid_by(&mut self, id: ObjectId, payer: AccountId) {
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
            return Err(self.spares_no_more());
        }
        // One that runs gives frames back when it ends, and so does the second copy of its superblock. Asking for a further one each time would
        // never come to an end.
        if self.checkpoint.is_running() || !self.store.is_copied() {
            return Err(Stop::Wait(Key::Checkpoint));
        }
        if self.pager.dirty == 0 && !self.store.has_unwritten() {
            return Err(self.spares_no_more());
        }
        let number = self.generation_request(world);
        match self.checkpoint_reached(number) {
            // A disk that works while one asks. Dirty pages and map nodes are clean now.
            Some(Ok(())) if self.take_frames(world)? > 0 => Ok(()),
            Some(_) => Err(self.spares_no_more()),
            None => Err(Stop::Wait(Key::Checkpoint)),
        }
    }

    /// The pages that stay in memory though room is made for the thread: those that it has had read in vain, taking them from itself again and again.
    fn spared(&self) -> [u64; PAGES_OF_INSTRUCTION] {
        let thread = self.threads.find(self.current);
        let spared = thread
            .filter(|_| !self.pager.spares_none)
            .map(|thread| thread.helped.spared());
        spared.unwrap_or_default()
    }

    /// No checkpoint makes room: the spared pages may go, too. If that was so before, there is none.
    fn spares_no_more(&mut self) -> Stop {
        if self.spared() == [0; PAGES_OF_INSTRUCTION] {
            return Error::NoMemory.into();
        }
        self.pager.spares_none = true;
        Stop::Again
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
        self.budget.at_least_once(COST_CALLER.and(COST_LOOK.times(LOOKS_LEAST)));
        let spared = self.spared();
        let mut stay = 0;
        while frames.len() < RECLAIM_BATCH
            && stay <= spared.len()
            && self.budget.has(COST_CALLER)
            && let Some(candidate) = self.pager.queues.take_first()
        {
            self.budget.spend(COST_LOOK);
            if spared.contains(&candidate.address) {
                self.pager.queues.stays(&candidate);
                stay += 1;
                continue;
            }
            if let Some(frame) = self.take_queued(world, &candidate) {
                self.pager.queues.gone(&candidate);
                push_reserved(&mut frames, frame);
                self.budget.spend(COST_TAKEN);
            }
        }
        // The hand by address finds pages that no queue names.
        let over = frames.is_empty() && self.reclaim_by_address(world, &mut frames, &spared);
        if !frames.is_empty() {
            self.pager.spares_none = false;
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

    /// Takes the page whose turn it is in a queue, if it is there and clean.
    fn take_queued<W: World>(&mut self, world: &mut W, candidate: &Candidate) -> Option<Frame> {
        let id = self.objects.find(candidate.address)?;
        let leaf = self.leaf_at(id, candidate.address)?;
        let index = index_of(candidate.address);
        let entry = world.leaf_get(leaf, index)?;
        let object = self.objects.get_mut(id);
        let slot = slot_of(candidate.address) - object.first_slot();
        let is_persistent = object.is_persistent();
        let state = object.slots.get_mut(slot)?;
        let is_it = is_persistent
            && self.pager.queues.is_of(candidate, entry.frame.number())
            && state.resident.has(index)
            && !state.dirty.has(index);
        if !is_it || !may_go(world, entry) {
            return None;
        }
        world.leaf_set(leaf, index, None);
        state.resident.clear(index);
        object.known = 0;
        object.resident -= 1;
        self.objects.resident_pages -= 1;
        Some(entry.frame)
    }

    /// Takes some clean pages, object by object from where that stopped the last time; tells whether all were looked at in vain.
    fn reclaim_by_address<W: World>(&mut self, world: &mut W, frames: &mut Vec<Frame>, spared: &[u64]) -> bool {
        let count = self.objects.table_len();
        self.budget.at_least_once(COST_CALLER.and(COST_LOOK.times(LOOKS_LEAST)));
        // The first object was perhaps begun in its middle, and is looked at once more.
        while frames.len() < RECLAIM_BATCH && self.pager.left_in_vain <= count && self.budget.has(COST_CALLER) {
            self.budget.spend(COST_OBJECT);
            let id = ObjectId(self.pager.hand);
            let persistent = self.objects.is_live(id) && self.objects.get(id).is_persistent();
            if !persistent || self.reclaim_from(world, id, frames, spared) {
                self.pager.hand = (id.0 + 1) % count.max(1);
                self.pager.hand_at = 0;
                self.pager.left_in_vain += 1;
            }
        }
        let over = self.pager.left_in_vain > count;
        if over || !frames.is_empty() {
            self.pager.left_in_vain = 0;
        }
        over
    }

    /// Takes clean pages of an object from the hand on; tells whether it came to the end of the object.
    fn reclaim_from<W: World>(&mut self, world: &mut W, id: ObjectId, frames: &mut Vec<Frame>, spared: &[u64]) -> bool {
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
            if may_go(world, entry) && !spared.contains(&place.address) {
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

/// Whether nobody can write a page of a kept object that is not dirty, nor holds its frame.
fn may_go(world: &impl World, entry: PageEntry) -> bool {
    let clean = entry.write_withheld || !entry.limits.contains(Rights::W);
    clean && world.frame_references(entry.frame) == 1
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
