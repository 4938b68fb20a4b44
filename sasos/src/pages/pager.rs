//! Pages: made when first touched, read from the disk, copied when first written.
//!
//! A leaf entry that *withholds* writing makes the next write come here. Which of three things it
//! means follows from what is counted anyway:
//!
//! * the frame has other references: a checkpoint is writing it, or a clone shares it. The writer
//!   gets a copy in a new frame, the others keep the old one;
//! * the object is persistent and the page not dirty: it goes onto the dirty list, and the disk
//!   space for it is promised now, so that no checkpoint finds the disk full;
//! * neither, because the others are gone: writing is simply allowed.
//!
//! Pages of a persistent object that are not resident are on the disk or zero, which the store
//! knows; those of a transient object are zero. The path of a first touch takes no tree and no heap.

use abi::{
    Error, Rights,
    address::{PAGE, PAGES_PER_SLOT, slot_of},
    layout::{EXCEPTION_DAMAGED, EXCEPTION_PROTECTION, EXCEPTION_RESOURCE},
};
use kcore::{Frame, Leaf, PageEntry, SpaceId, ThreadId, wait::Key};
use store::PageFlags;

use crate::{
    Access, Outcome, Server, Step, Stop, World,
    accounts::{Cached, Resource},
    containers::Map,
    directory::object::{LimitRange, ObjectId},
    durability::durable::no_room,
    lives::continuation::Continuation,
    lives::exception::Fault,
    lives::thread::Tries,
    lives::work::piece,
    pages::ahead::Ahead,
    pages::idle::Idle,
    pages::queues::Queues,
    pages::slots::Slot,
    protection::domain::Linked,
};

/// Frames that pages leave for tables and for the store, which must be able to write a checkpoint
/// when memory is full of dirty pages.
pub(crate) const FRAME_RESERVE: u64 = 64;
/// Pages of which it is noted that they could not be had.
const FAILED_MAX: usize = 1024;
/// Frames that a touch of a new slot takes at most: a page, its page table, and two tables above that.
const FRAMES_OF_SLOT: u64 = 4;

/// Reads under way, and counts for all objects.
#[derive(Default)]
pub struct Pager {
    /// How far taking back what nobody uses has got.
    pub(crate) idle: Idle,
    /// The place of the object that it looks at next.
    pub(crate) hand_of_idle: u32,
    /// Addresses of pages on their way from the disk.
    pub(crate) reading: Map<u64, ()>,
    /// The places where pages are read in order, and how far ahead.
    pub(crate) ahead: Ahead,
    /// Pages that could not be had, and why; the next one who asks is told, then it is tried again.
    pub(crate) failed: Map<u64, Error>,
    /// Dirty pages of all objects.
    pub dirty: u64,
    /// Leaves of all objects.
    pub(crate) leaves: u64,
    /// The whole cache ([`super::cache`]).
    pub(crate) cached: Cached,
    /// Whether somebody was refused because it is full.
    pub(crate) cache_refused: bool,
    /// The order in which clean pages leave memory, as far as it is known.
    pub(crate) queues: Queues,
    /// Whether spared pages may go, too, until some have gone.
    pub(crate) spares_none: bool,
    /// The place where the search for frames to take back goes on: in this object, at this address.
    pub(crate) hand: u32,
    pub(crate) hand_at: u64,
    /// Objects that it has left since it found one.
    pub(crate) left_in_vain: u32,
    /// Map nodes of the store that are to go before pages are looked for again.
    pub(crate) nodes_left: usize,
}

impl Pager {
    /// Page tables of all objects.
    pub fn tables(&self) -> u64 {
        self.leaves
    }

    /// Pages on their way from the disk.
    pub fn reads(&self) -> usize {
        self.reading.count()
    }

    /// Whether somebody may wait for a page, or is to be told that it could not be had.
    #[inline]
    pub(crate) fn awaits_pages(&self) -> bool {
        !self.reading.is_empty() || !self.failed.is_empty()
    }

    /// Makes room for so many reads more, and for notes that their pages could not be had.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn expect_reads(&mut self, more: usize) -> Result<(), Error> {
        let reads = self.reading.count() + more;
        self.reading.reserve(reads)?;
        self.failed.reserve(self.failed.count() + reads)?;
        Ok(())
    }

    /// Notes that a page could not be had. Room was made when the page was asked for. Nobody pays for notes, and not all who asked come back for theirs: when there are
    /// [`FAILED_MAX`] the next one behind it gives way, and whoever asks for that page has it read again.
    pub(crate) fn note_failed(&mut self, address: u64, error: Error) {
        if self.failed.count() >= FAILED_MAX && !self.failed.has(address) {
            let behind = self.failed.from(address).map(|(address, _)| address);
            if let Some(gives_way) = behind.or_else(|| self.failed.first_key()) {
                self.failed.remove(gives_way);
            }
        }
        let _ = self.failed.insert(address, error);
    }
}

/// A page of an object, as the page tables see it.
#[derive(Copy, Clone)]
pub(crate) struct Place {
    pub id: ObjectId,
    /// Slot within the object.
    pub slot: u64,
    pub leaf: Leaf,
    /// Entry of the leaf.
    pub index: usize,
    /// Address of the page, or inside it.
    pub address: u64,
}

/// Entry of a leaf that serves an address.
#[inline]
pub(crate) const fn index_of(address: u64) -> usize {
    (address / PAGE % PAGES_PER_SLOT) as usize
}

/// A kernel's frame in the store's type.
pub(crate) const fn store_frame(frame: Frame) -> store::world::Frame {
    store::world::Frame(frame.number())
}

/// Limits as the map entries on the disk have them.
pub(crate) fn to_flags(limits: Rights) -> PageFlags {
    PageFlags::from_bits_retain(u16::from(limits.intersection(Rights::RWX).bits()))
}

/// Limits from the disk. The server never stores any without R, so where that is missing none were set.
pub(crate) fn from_flags(flags: PageFlags) -> Rights {
    Rights::from_bits(u64::from(flags.bits() & 7))
        .filter(|limits| limits.contains(Rights::R))
        .unwrap_or(Rights::RWX)
}

/// Limits of a page that is not resident, where the object itself knows them.
pub(crate) fn absent_limits(ranges: &[LimitRange], page: u64) -> Rights {
    let range = ranges.get(ranges.partition_point(|range| range.end <= page));
    range
        .filter(|range| range.first <= page)
        .map_or(Rights::RWX, |range| range.limits)
}

/// The content that a requested frame must hold.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Zeroes,
    Any,
}

impl Server {
    // ---- faults ---------------------------------------------------------------------------------

    /// A page fault of user code.
    #[inline]
    pub fn fault<W: World>(&mut self, world: &mut W, thread: ThreadId, address: u64, access: Access) -> Outcome {
        let space = world.thread_space(thread);
        self.current = thread;
        if self.threads.record(thread).tries.backing.is_some() {
            return self.fault_backs(world, thread);
        }
        match self.touch(world, space, address, access) {
            Ok(()) => {
                self.threads.record(thread).tries = Tries::default();
                Outcome::Resume
            }
            // After a piece of a long search the thread runs into it once more.
            Err(Stop::Again) => Outcome::Resume,
            Err(Stop::Wait(key)) => self.fault_waits(thread, key),
            Err(Stop::Fail(error)) => self.fault_fails(world, thread, space, address, access, error),
        }
    }

    /// A piece of what the fault has begun because it lacks a frame.
    #[cold]
    fn fault_backs<W: World>(&mut self, world: &mut W, thread: ThreadId) -> Outcome {
        match self.backing_goes_on(world, thread) {
            Some(Stop::Wait(key)) => self.fault_waits(thread, key),
            _ => Outcome::Resume,
        }
    }

    /// Parks the thread of a fault, unless what it waits for has come by now.
    fn fault_waits(&mut self, thread: ThreadId, key: Key) -> Outcome {
        // The last call of the thread is over, and so is what that has waited for.
        self.threads.record(thread).continuation = Continuation::None;
        if self.still_awaited(thread, key) {
            Outcome::Block(key, None)
        } else {
            Outcome::Resume
        }
    }

    #[cold]
    fn fault_fails<W: World>(
        &mut self,
        world: &mut W,
        thread: ThreadId,
        space: SpaceId,
        address: u64,
        access: Access,
        error: Error,
    ) -> Outcome {
        if self.backing_comes_first(world, thread, address, error) {
            return Outcome::Resume;
        }
        if self.may_be_helped(thread) && self.ends_may_help(world, thread, address & !(PAGE - 1), error) {
            // The list may have ended the thread.
            return self.settle(world, thread, 0, Outcome::Resume);
        }
        if self.checkpoint_may_help(world, thread, address, error) {
            return self.fault_waits(thread, Key::Checkpoint);
        }
        if self.backing_begins(world, thread, address, error) {
            return Outcome::Resume;
        }
        let kind = match error {
            Error::NoMemory | Error::LimitReached | Error::DiskFull => EXCEPTION_RESOURCE,
            Error::DiskError => EXCEPTION_DAMAGED,
            _ => EXCEPTION_PROTECTION,
        };
        let had = if kind == EXCEPTION_RESOURCE {
            error as u64
        } else {
            self.known_rights(space, address).bits().into()
        };
        self.raise(
            world,
            thread,
            Fault {
                kind,
                address,
                wanted: access.right(),
                had,
            },
        )
    }

    /// Makes an access of a domain possible: right, page and link.
    ///
    /// # Errors
    /// [`Error::BadAddress`], [`Error::Protection`]; what it takes to have the page.
    pub fn touch<W: World>(&mut self, world: &mut W, space: SpaceId, address: u64, access: Access) -> Step<()> {
        self.budget.begin(piece());
        let id = self.object_at(world, address)?;
        self.require(world, space, id, access.right())?;
        let place = self.present(world, id, address, access)?;
        let slot = slot_of(address);
        if self.domains.linked(space, slot).is_none() {
            self.link_slot(world, space, (id, place.leaf), address, access)?;
        }
        Ok(())
    }

    /// Links the slot of an address of an object with all that its domain has found out about that.
    #[inline]
    fn link_slot<W: World>(
        &mut self,
        world: &mut W,
        space: SpaceId,
        (id, leaf): (ObjectId, Leaf),
        address: u64,
        access: Access,
    ) -> Result<(), Error> {
        // A link without a node could not be taken away, and one without a right to its pages would give some.
        let cached = self.note_linked(space, id, access.right()).ok_or(Error::Protection)?;
        let made = world.link(space, slot_of(address), leaf, cached.rights);
        let made = made.map_err(|_| Error::NoMemory);
        if let Err(error) = made.and_then(|()| self.charge_tables(world, space)) {
            // With the new tables goes the link.
            self.tables_go_back(world, space);
            return Err(error);
        }
        let linked = Linked::of(address, id, cached, self.objects.get(id).epoch);
        self.domains.remember_linked(space, linked);
        Ok(())
    }

    /// A touch of a further page in a slot that the domain touched of late, where it is simple: a
    /// transient object whose absent pages are all alike. All or
    /// nothing: what it does not do, [`Server::fault`] does. Counted in instructions (`first-touch`).
    #[inline(always)]
    pub fn touch_further<W: World>(
        &mut self,
        world: &mut W,
        thread: ThreadId,
        address: u64,
        access: Access,
    ) -> Option<()> {
        let space = world.thread_space(thread);
        let Some(linked) = self.domains.linked(space, slot_of(address)) else {
            return self.touch_other_slot(world, space, thread, address, access);
        };
        if !linked.rights.contains(access.right()) {
            return None;
        }
        let object = self.objects.get_mut(linked.object);
        if object.epoch != linked.epoch
            || object.is_persistent()
            || !object.absent_limits.is_empty()
            || !object.holds(address)
        {
            return None;
        }
        let number = linked.slot - object.first_slot();
        let slot = object.slots.get_mut(number)?;
        let leaf = slot.leaf()?;
        let index = index_of(address);
        if slot.resident.has(index) || world.frames_free() <= FRAME_RESERVE {
            return None;
        }
        self.ledger.take(object.account, Resource::Frames, 1).ok()?;
        let Ok(frame) = world.frame_zeroed() else {
            self.ledger.give(object.account, Resource::Frames, 1);
            return None;
        };
        slot.resident.set(index);
        world.leaf_set(leaf, index, Some(PageEntry::new(frame, Rights::RWX)));
        object.resident += 1;
        self.objects.resident_pages += 1;
        Some(())
    }

    /// The same in a slot that the domain does not remember. Nobody has touched it, but the domain linked another one of the object last, and what is known of
    /// the slot has its room already (`first-touch-new-slot`).
    #[inline(never)]
    fn touch_other_slot<W: World>(
        &mut self,
        world: &mut W,
        space: SpaceId,
        thread: ThreadId,
        address: u64,
        access: Access,
    ) -> Option<()> {
        let last = *self.domains.last_linked(space)?;
        let object = self.objects.active(last.object)?;
        let slot = slot_of(address);
        let number = slot.wrapping_sub(object.first_slot());
        let is_simple = object.epoch == last.epoch
            && last.rights.contains(access.right())
            && object.holds(address)
            && !object.is_persistent()
            && object.absent_limits.is_empty()
            && object.slots.get(number).is_some_and(|slot| slot.leaf().is_none())
            && world.frames_free() > FRAME_RESERVE + FRAMES_OF_SLOT;
        // Nobody takes over what is paid by the one who touches it.
        let payer = object.account;
        if !is_simple || self.account_of(thread) != payer {
            return self.touch_known_slot(world, space, thread, address, access);
        }
        self.ledger.take(payer, Resource::Frames, 2).ok()?;
        if self.ledger.take(payer, Resource::Tables, 1).is_err() {
            self.ledger.give(payer, Resource::Frames, 2);
            return None;
        }
        // There are so many frames.
        let (leaf, frame) = (world.leaf_create().ok()?, world.frame_zeroed().ok()?);
        let index = index_of(address);
        world.leaf_set(leaf, index, Some(PageEntry::new(frame, Rights::RWX)));
        let object = self.objects.get_mut(last.object);
        object.slots.enter_leaf(number, leaf, index);
        object.leaves += 1;
        object.resident += 1;
        self.objects.resident_pages += 1;
        self.pager.leaves += 1;
        // The page is there, whatever becomes of the link.
        world.link(space, slot, leaf, last.rights).ok()?;
        if self.charge_tables(world, space).is_err() {
            self.tables_go_back(world, space);
            return None;
        }
        self.domains.remember_linked(space, Linked { slot, ..last });
        Some(())
    }

    /// The same where the domain has touched the slot, but others since, so that it does not remember it (`first-touch-of-64`).
    #[cold]
    #[inline(never)]
    fn touch_known_slot<W: World>(
        &mut self,
        world: &mut W,
        space: SpaceId,
        thread: ThreadId,
        address: u64,
        access: Access,
    ) -> Option<()> {
        let id = self.objects.find(address)?;
        let leaf = self.leaf_at(id, address)?;
        self.link_slot(world, space, (id, leaf), address, access).ok()?;
        self.touch_further(world, thread, address, access)
    }

    /// Makes a page of an object resident and fit for an access.
    ///
    /// # Errors
    /// [`Error::Protection`] by the page's own limits; the need to wait for the disk; memory, account
    /// and disk space; [`Error::DiskError`].
    #[inline]
    pub(crate) fn present<W: World>(
        &mut self,
        world: &mut W,
        id: ObjectId,
        address: u64,
        access: Access,
    ) -> Step<Place> {
        let object = self.objects.get(id);
        let slot = slot_of(address) - object.first_slot();
        let leaf = match object.slots.get(slot).and_then(Slot::leaf) {
            Some(leaf) => leaf,
            None => self.make_leaf(world, id, slot)?,
        };
        let place = Place {
            id,
            slot,
            leaf,
            index: index_of(address),
            address,
        };
        match world.leaf_get(leaf, place.index) {
            None => self.fill(world, place, access)?,
            Some(entry) if !entry.limits.contains(access.right()) => return Err(Error::Protection.into()),
            Some(entry) if access == Access::Write && entry.write_withheld => self.unshare(world, place, entry)?,
            Some(_) => {}
        }
        Ok(place)
    }

    // ---- pages come -------------------------------------------------------------------------------

    /// The page table that serves an address of an object.
    pub(crate) fn leaf_at(&self, id: ObjectId, address: u64) -> Option<Leaf> {
        let object = self.objects.get(id);
        object
            .slots
            .get(slot_of(address) - object.first_slot())
            .and_then(Slot::leaf)
    }

    /// Gives a slot of an object its page table.
    #[cold]
    pub(crate) fn make_leaf<W: World>(&mut self, world: &mut W, id: ObjectId, slot: u64) -> Step<Leaf> {
        if self.objects.get(id).slots.get(slot).is_none() {
            self.enough_heap(world)?;
        }
        self.programs_take_over(id)?;
        self.cache_has_room(id, slot)?;
        self.charge_leaf(id)?;
        self.make_slot(id, slot).inspect_err(|_| self.refund_leaves(id, 1))?;
        loop {
            if world.frames_free() > FRAME_RESERVE
                && let Ok(leaf) = world.leaf_create()
            {
                self.enter_leaf(id, slot, leaf);
                return Ok(leaf);
            }
            let room = self.make_room(world);
            // Making room may have polled the store, and a page that was read may have made the leaf.
            let made = self.objects.get(id).slots.get(slot).and_then(Slot::leaf);
            if room.is_err() || made.is_some() {
                self.refund_leaves(id, 1);
            }
            room?;
            if let Some(leaf) = made {
                return Ok(leaf);
            }
        }
    }

    pub(crate) fn enter_leaf(&mut self, id: ObjectId, slot: u64, leaf: Leaf) {
        let object = self.objects.get_mut(id);
        object.slots.set_leaf(slot, Some(leaf));
        object.leaves += 1;
        self.pager.leaves += 1;
        self.cache_follows(id);
    }

    /// A frame, zeroed or not, for a page.
    #[inline]
    pub(crate) fn frame<W: World>(&mut self, world: &mut W, content: Content) -> Step<Frame> {
        loop {
            if world.frames_free() > FRAME_RESERVE {
                let frame = match content {
                    Content::Zeroes => world.frame_zeroed(),
                    Content::Any => world.frame_any(),
                };
                if let Ok(frame) = frame {
                    return Ok(frame);
                }
            }
            self.make_room(world)?;
        }
    }

    /// Makes a page that is not resident.
    fn fill<W: World>(&mut self, world: &mut W, place: Place, access: Access) -> Step<()> {
        let object = self.objects.get(place.id);
        let persistent = object.is_persistent();
        if persistent && access == Access::Write {
            self.may_write(world, place.id)?;
        }
        let object = self.objects.get(place.id);
        let limits = if persistent && !object.is_complete() {
            match self.stored(world, place.id, place.address)? {
                Some(limits) => limits,
                // It came at once. Next time round it is resident, or has failed.
                None => return self.present(world, place.id, place.address, access).map(|_| ()),
            }
        } else if object.absent_limits.is_empty() {
            Rights::RWX
        } else {
            absent_limits(&object.absent_limits, object.page_of(place.address))
        };
        if !limits.contains(access.right()) {
            return Err(Error::Protection.into());
        }
        self.charge_pages(place.id, 1)?;
        let frame = match self.frame(world, Content::Zeroes) {
            Ok(frame) => frame,
            Err(stop) => {
                self.refund_pages(place.id, 1);
                return Err(stop);
            }
        };
        let mut entry = PageEntry::new(frame, limits);
        if persistent {
            if access == Access::Write {
                if let Err(error) = self.mark_dirty(world, place) {
                    world.frame_release(frame);
                    self.refund_pages(place.id, 1);
                    return Err(error.into());
                }
            } else {
                entry = entry.withheld();
                self.pager
                    .queues
                    .arrived(frame.number(), place.address - place.address % PAGE);
            }
        }
        self.install(world, place, entry);
        Ok(())
    }

    /// Puts an entry where there is none. The page is paid for.
    #[inline]
    pub(crate) fn install<W: World>(&mut self, world: &mut W, place: Place, entry: PageEntry) {
        world.leaf_set(place.leaf, place.index, Some(entry));
        let object = self.objects.get_mut(place.id);
        object.slots.touch(place.slot).resident.set(place.index);
        object.resident += 1;
        self.objects.resident_pages += 1;
    }

    // ---- writing ----------------------------------------------------------------------------------

    /// Lets a page be written whose entry withheld it.
    fn unshare<W: World>(&mut self, world: &mut W, place: Place, entry: PageEntry) -> Step<()> {
        let persistent = self.objects.get(place.id).is_persistent();
        if persistent {
            self.may_write(world, place.id)?;
        }
        let references = world.frame_references(entry.frame);
        if persistent && references > 1 && self.checkpoint.is_freezing() {
            // Only the list of frozen pages and this page have the frame: it is frozen once more, as it is then.
            let is_frozen = references == 2 && world.frame_is_held(entry.frame);
            let object = self.objects.get(place.id);
            let (base, page) = (object.base(), object.page_of(place.address));
            if !is_frozen || self.store.reserve_stored(world, base, page).is_err() {
                return Err(Stop::Wait(Key::Checkpoint));
            }
            self.note_dirty(place.id, place.slot, place.index);
            world.leaf_set(place.leaf, place.index, Some(PageEntry::new(entry.frame, entry.limits)));
            return Ok(());
        }
        if references == 1 {
            if persistent {
                self.mark_dirty(world, place)?;
            }
            world.leaf_set(place.leaf, place.index, Some(PageEntry::new(entry.frame, entry.limits)));
            return Ok(());
        }
        let copy = self.frame(world, Content::Any)?;
        // Making room may have polled the store, and the page may have gone meanwhile.
        if world
            .leaf_get(place.leaf, place.index)
            .is_none_or(|now| now.frame != entry.frame)
        {
            world.frame_release(copy);
            return self.present(world, place.id, place.address, Access::Write).map(|_| ());
        }
        if persistent && let Err(error) = self.mark_dirty(world, place) {
            world.frame_release(copy);
            return Err(error.into());
        }
        world.frame_copy(entry.frame, copy);
        world.leaf_set(place.leaf, place.index, Some(PageEntry::new(copy, entry.limits)));
        world.flush_page(place.address);
        world.frame_release(entry.frame);
        Ok(())
    }

    /// Whether a page may become dirty by a write. While dirty pages are being frozen, the writer first freezes more of them than it makes dirty.
    ///
    /// # Errors
    /// As [`Self::may_get_dirty`].
    fn may_write<W: World>(&mut self, world: &mut W, id: ObjectId) -> Step<()> {
        if self.checkpoint.is_freezing() {
            self.pay_for_freezing(world)?;
        }
        self.has_dirt_left(world, id)
    }

    /// The same of a page that gets another frame, which waits for the end of freezing.
    ///
    /// # Errors
    /// The need to wait; [`Error::DiskError`] if the last checkpoint has failed and the account cannot get rid of its dirt.
    pub(crate) fn may_get_dirty<W: World>(&mut self, world: &mut W, id: ObjectId) -> Step<()> {
        if self.checkpoint.is_freezing() {
            return Err(Stop::Wait(Key::Checkpoint));
        }
        self.has_dirt_left(world, id)
    }

    /// An account that has as many dirty pages as it may, and a program that has used up its part of this round, waits for a checkpoint, which is asked for now.
    fn has_dirt_left<W: World>(&mut self, world: &mut W, id: ObjectId) -> Step<()> {
        // The program whose thread writes has a part, whoever pays for the object.
        let is_left = self.ledger.is_part_left(self.account_of(self.current), self.programs);
        let payer = self.objects.get(id).account;
        if is_left && self.ledger.left(payer, Resource::Dirty) > 0 {
            return Ok(());
        }
        self.wait_for_checkpoint(world)?;
        // A disk that works while one asks: now it may have a part.
        Err(Stop::Again)
    }

    /// Waits for a checkpoint, which is asked for now if none is running.
    ///
    /// # Errors
    /// The need to wait; [`Error::DiskError`] if the last checkpoint has failed.
    pub(crate) fn wait_for_checkpoint<W: World>(&mut self, world: &mut W) -> Step<()> {
        if self.checkpoint.is_running() {
            return Err(Stop::Wait(Key::Checkpoint));
        }
        if self.checkpoint.last_failed() {
            return Err(Error::DiskError.into());
        }
        let number = self.checkpoint_request(world);
        match self.checkpoint_reached(number) {
            // A disk that works while one asks.
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(error.into()),
            None => Err(Stop::Wait(Key::Checkpoint)),
        }
    }

    /// Has the store promise a block for a page of a kept object, and charges it. Tells whether it was charged now.
    ///
    /// # Errors
    /// [`Error::LimitReached`], [`Error::DiskFull`]: nothing has changed.
    pub(crate) fn promise_block<W: World>(
        &mut self,
        world: &W,
        id: ObjectId,
        slot: u64,
        index: usize,
        page: u64,
    ) -> Result<bool, Error> {
        let object = self.objects.get_mut(id);
        object.settle_levels(&self.store);
        let colour = object.part_colour();
        let blocks = &object.slots.touch(slot).blocks;
        let fresh = !blocks.has(index);
        let part = u64::from(fresh && !blocks.has_part(index, colour));
        let charged = object.with_nodes(fresh.into(), part);
        let base = object.record.base;
        if fresh {
            self.charge_blocks(id, charged)?;
        }
        if let Err(error) = self.store.reserve_stored(world, base, page) {
            if fresh {
                self.refund_blocks(id, charged);
            }
            return Err(no_room(error));
        }
        if fresh {
            let object = self.objects.get_mut(id);
            object.slots.touch(slot).blocks.set(index);
            object.blocks += 1;
            object.parts += part;
        }
        Ok(fresh)
    }

    /// Takes a promise back; `charged` is what it told.
    pub(crate) fn unpromise_block(&mut self, id: ObjectId, slot: u64, index: usize, page: u64, charged: bool) {
        self.store.unreserve(self.objects.get(id).record.base, page);
        if charged {
            self.block_gone(id, slot, index);
        }
    }

    /// Nobody pays any more for the block of a page, if somebody has.
    pub(crate) fn block_gone(&mut self, id: ObjectId, slot: u64, index: usize) {
        let object = self.objects.get_mut(id);
        let colour = object.part_colour();
        let blocks = &mut object.slots.touch(slot).blocks;
        if blocks.clear(index) {
            let part = u64::from(!blocks.has_part(index, colour));
            object.blocks -= 1;
            object.parts -= part;
            self.ledger
                .give(object.account, Resource::Blocks, object.with_nodes(1, part));
        }
    }

    /// Notes that a page of a persistent object is changed, and has the store promise space for it.
    pub(crate) fn mark_dirty<W: World>(&mut self, world: &W, place: Place) -> Result<(), Error> {
        let object = self.objects.get_mut(place.id);
        if object.slots.touch(place.slot).dirty.has(place.index) {
            return Ok(());
        }
        let page = object.page_of(place.address);
        self.promise_block(world, place.id, place.slot, place.index, page)?;
        self.make_dirty(place.id, place.slot, place.index);
        Ok(())
    }

    /// Sets the bit of a page that the current thread changes.
    pub(crate) fn make_dirty(&mut self, id: ObjectId, slot: u64, index: usize) {
        let beside = self.dirt_in_cache(id, slot);
        if self.note_dirty(id, slot, index) {
            self.ledger
                .take_of_part(self.account_of(self.current), self.programs, 1 + beside);
        }
    }

    /// Sets the bit of a page that is changed; tells whether it was not set before.
    pub(crate) fn note_dirty(&mut self, id: ObjectId, slot: u64, index: usize) -> bool {
        let object = self.objects.get_mut(id);
        let fresh = object.slots.touch(slot).dirty.set(index);
        if fresh {
            object.dirty += 1;
            self.pager.dirty += 1;
            self.ledger.force(object.account, Resource::Dirty, 1);
            self.objects.list_dirty(id);
        }
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_pages_that_could_not_be_had_are_bounded() {
        let mut pager = Pager::default();
        let pages = 2 * FAILED_MAX as u64;
        for page in (0..pages).chain([0, 7]) {
            pager.note_failed(page * PAGE, Error::DiskError);
            assert!(pager.failed.has(page * PAGE) && pager.failed.count() <= FAILED_MAX);
        }
        pager.note_failed(7 * PAGE, Error::NoMemory);
        assert_eq!(pager.failed.remove(7 * PAGE), Some(Error::NoMemory));
        assert_eq!(pager.failed.count(), FAILED_MAX - 1);
    }
}
