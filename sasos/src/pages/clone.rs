//! `ObjClone`: a copy of an object at a new address, page by page copy-on-write.
//!
//! The clone shares the frames of the source; both entries withhold writing, and whoever writes
//! first gets a frame of his own. All pages of the source that the disk holds are brought in first,
//! so a clone depends on nobody's disk and a source may go its way. The limits of pages go with
//! them, those of pages that are not resident included: so a program image is cloned.

use alloc::vec::Vec;

use abi::{
    Error, Rights,
    address::{PAGE, pages_for, slot_of},
    call::arguments,
};
use kcore::{Leaf, PageEntry, SpaceId, wait::Key};

use crate::{
    Server, Step, Stop, World,
    accounts::AccountId,
    containers::{copied, push},
    directory::creation::{AddressesOf, Kind},
    directory::object::{LimitRange, ObjectId, Which, slots_for},
    lives::continuation::Continuation,
    lives::task::TaskId,
    lives::thread::Caller,
    pages::pager::{Place, index_of},
    pages::slots::Slot,
    protection::capability::password_or_random,
};

/// Pages an object may have to be cloned.
pub const CLONE_PAGES_MAX: u64 = 1 << 16;
/// Pages that are shared in one piece. One costs some 300 instructions, 700 with the server outside.
const PIECE_PAGES: usize = 15;
/// An object with no more pages is cloned in one piece.
const WHOLE_PAGES: usize = 20;
/// What making a page table costs, in instructions, roughly.
const COST_TABLE: u64 = 1000;
/// Ranges of limits that an object may have for pages that are not resident.
pub const LIMIT_RANGES_MAX: usize = 64;

impl Server {
    /// `ObjClone`: source, extra bytes, password. Done in pieces: each page is as it is at some moment of the call.
    ///
    /// # Errors
    /// [`Error::BadAddress`], [`Error::Protection`], [`Error::BadArgument`] for a source that is too
    /// large, [`Error::NoMemory`], [`Error::LimitReached`], [`Error::DiskError`]. There is no clone then.
    pub fn obj_clone<W: World>(
        &mut self,
        world: &mut W,
        caller: Caller,
        arguments: arguments::ObjClone,
    ) -> Step<(u64, u64)> {
        if let Continuation::CloneFails { base, serial, error } = self.threads.record(caller.thread).continuation {
            return self.clone_goes(world, caller, (base, serial), error);
        }
        let step = self.clone_piece(world, caller, arguments);
        if let Err(Stop::Fail(error)) = step
            && let Continuation::Clone { base, serial, .. } = self.threads.record(caller.thread).continuation
        {
            return self.clone_goes(world, caller, (base, serial), error);
        }
        step
    }

    /// A piece of the end of a clone that could not be made whole. It stands on the kill list, so it goes in any case.
    fn clone_goes<W: World>(
        &mut self,
        world: &mut W,
        caller: Caller,
        (base, serial): (u64, u64),
        error: Error,
    ) -> Step<(u64, u64)> {
        let goes_on = self.objects.find_serial(base, serial).is_some() && !self.object_ends(world, base);
        let record = self.threads.record(caller.thread);
        if goes_on {
            record.continuation = Continuation::CloneFails { base, serial, error };
            return Err(Stop::Again);
        }
        record.continuation = Continuation::None;
        Err(error.into())
    }

    fn clone_piece<W: World>(
        &mut self,
        world: &mut W,
        caller: Caller,
        arguments: arguments::ObjClone,
    ) -> Step<(u64, u64)> {
        let arguments::ObjClone {
            source,
            extra_bytes: extra,
            password,
        } = arguments;
        self.require_at(world, caller.domain, source, Rights::RX)?;
        let source = self.object_at(world, source)?;
        let begun = self.threads.record(caller.thread).continuation;
        let (clone, from) = if let Continuation::Clone { from, .. } = begun {
            // It is in nobody's hands yet, but an address can be guessed: somebody may have deleted it, or kept it.
            let clone = self.clone_begun(caller).ok_or(Error::BadAddress)?;
            self.bring_in(world, source)?;
            (clone, from)
        } else {
            let payer = self.payer(caller);
            let clone = self.clone_make(world, caller.domain, payer, Some(caller.task), source, extra)?;
            (clone, 0)
        };
        let object = self.objects.get(clone);
        let (base, serial) = (object.base(), object.serial);
        self.threads.record(caller.thread).continuation = Continuation::Clone { base, serial, from };
        // To make a large one is a piece of its own.
        let most = match begun {
            Continuation::Clone { .. } => PIECE_PAGES,
            _ if self.objects.get(source).resident > WHOLE_PAGES as u64 => return Err(Stop::Again),
            _ => WHOLE_PAGES,
        };
        if from == 0 && !self.make_leaves(world, source, clone)? {
            return Err(Stop::Again);
        }
        if let Some(from) = self.share_pages(world, source, clone, from, most)? {
            self.threads.record(caller.thread).continuation = Continuation::Clone { base, serial, from };
            return Err(Stop::Again);
        }
        Ok(self.clone_done(world, clone, password))
    }

    /// The clone that a call has begun.
    fn clone_begun(&mut self, caller: Caller) -> Option<ObjectId> {
        let Continuation::Clone { base, serial, .. } = self.threads.record(caller.thread).continuation else {
            return None;
        };
        let clone = self.objects.find_serial(base, serial)?;
        (!self.objects.get(clone).is_persistent()).then_some(clone)
    }

    /// Clones an object whatever the rights on it. The clone stands on the task's kill list, and
    /// `domain` has all rights. Tells base and password.
    ///
    /// # Errors
    /// Those of [`Server::obj_clone`].
    pub fn object_clone<W: World>(
        &mut self,
        world: &mut W,
        domain: SpaceId,
        task: TaskId,
        source: u64,
        extra_bytes: u64,
    ) -> Step<(u64, u64)> {
        let source = self.object_at(world, source)?;
        let payer = self.tasks.get(task).map_or(AccountId::ROOT, |task| task.account);
        let clone = self.clone_make(world, domain, payer, Some(task), source, extra_bytes)?;
        let made = self.unbounded(|server| server.make_leaves(world, source, clone));
        if let Err(stop) = made.and_then(|_| self.share_pages(world, source, clone, 0, usize::MAX)) {
            self.object_drop(world, clone, AddressesOf::Free);
            return Err(stop);
        }
        Ok(self.clone_done(world, clone, 0))
    }

    /// A clone that has no pages yet.
    fn clone_make<W: World>(
        &mut self,
        world: &mut W,
        domain: SpaceId,
        payer: AccountId,
        task: Option<TaskId>,
        source: ObjectId,
        extra_bytes: u64,
    ) -> Step<ObjectId> {
        let pages = self.objects.get(source).record.pages;
        if pages > CLONE_PAGES_MAX {
            return Err(Error::BadArgument.into());
        }
        let extra = pages_for(extra_bytes).ok_or(Error::NoMemory)?;
        let total = pages.checked_add(extra).ok_or(Error::NoMemory)?;
        self.bring_in(world, source)?;
        let clone = self.object_make(world, Kind::Plain, total, payer, task, domain)?;
        let limits = copied(&self.objects.get(source).absent_limits);
        let step = limits
            .map_err(Stop::from)
            .and_then(|limits| self.set_limits(clone, limits).map_err(Stop::from));
        if let Err(stop) = step {
            self.object_drop(world, clone, AddressesOf::Free);
            return Err(stop);
        }
        Ok(clone)
    }

    /// Gives a clone the page tables for the pages of its source, as far as the budget reaches; tells whether those were all.
    fn make_leaves<W: World>(&mut self, world: &mut W, source: ObjectId, clone: ObjectId) -> Step<bool> {
        let pages = self.objects.get(source).record.pages;
        for slot in 0..slots_for(self.objects.get(clone).base(), pages) {
            let slots = &self.objects.get(clone).slots;
            if slots.get(slot).is_some_and(|slot| slot.leaf().is_some()) {
                continue;
            }
            if !self.budget.spend(COST_TABLE) {
                return Ok(false);
            }
            self.make_leaf(world, clone, slot)?;
        }
        Ok(true)
    }

    /// Lists the password of a clone that is complete. Tells base and password.
    fn clone_done<W: World>(&mut self, world: &mut W, clone: ObjectId, password: u64) -> (u64, u64) {
        let password = password_or_random(world, password);
        let record = &mut self.objects.get_mut(clone).record;
        // Room was made with the object.
        let _ = push(&mut record.capabilities, (password, Rights::OWNER.bits()));
        (record.base, password)
    }

    /// Makes all pages of an object resident that the disk holds. From then on it is `complete`.
    fn bring_in<W: World>(&mut self, world: &mut W, id: ObjectId) -> Step<()> {
        let object = self.objects.get(id);
        if !object.is_persistent() || object.complete {
            return Ok(());
        }
        let mut limits = Vec::new();
        if let Some(address) = self.begin_bringing(world, id, &mut limits)? {
            return Err(Stop::Wait(Key::Page(address)));
        }
        self.set_limits(id, limits)?;
        self.objects.get_mut(id).complete = true;
        Ok(())
    }

    /// Begins to read every page of an object that is not resident, and notes the limits of those that are not on
    /// the disk. Tells the address of a page that has to be waited for, if there was one.
    fn begin_bringing<W: World>(
        &mut self,
        world: &mut W,
        id: ObjectId,
        limits: &mut Vec<LimitRange>,
    ) -> Step<Option<u64>> {
        let object = self.objects.get(id);
        let (base, pages) = (object.base(), object.record.pages);
        let mut wait = None;
        for page in 0..pages {
            let address = base + page * PAGE;
            while !self.is_resident(id, address) {
                match self.limits_of_absent(world, id, address) {
                    Ok(Some(found)) => {
                        add_limit(limits, page, found)?;
                        if limits.len() > LIMIT_RANGES_MAX {
                            return Err(Error::TableFull.into());
                        }
                        break;
                    }
                    // It came at once: it is resident now, or the next look tells why not.
                    Ok(None) => {}
                    Err(Stop::Wait(Key::Page(waiting))) => {
                        wait = wait.or(Some(waiting));
                        break;
                    }
                    Err(stop) => return Err(stop),
                }
            }
        }
        Ok(wait)
    }

    /// Whether a page of an object has an entry.
    pub(crate) fn is_resident(&self, id: ObjectId, address: u64) -> bool {
        let object = self.objects.get(id);
        let slot = object.slots.get(slot_of(address) - object.first_slot());
        slot.is_some_and(|slot| slot.resident.has(index_of(address)))
    }

    /// Gives the clone the frames of up to `most` pages of the source from an address on. Tells where to go on, if there are more.
    fn share_pages<W: World>(
        &mut self,
        world: &mut W,
        source: ObjectId,
        clone: ObjectId,
        from: u64,
        most: usize,
    ) -> Step<Option<u64>> {
        // Nothing below asks for a frame, so no entry of the source goes meanwhile; unless finding memory for the clone took some.
        let object = self.objects.get(source);
        if object.is_persistent() && !object.complete {
            return Err(Error::NoMemory.into());
        }
        let charged = object.resident.min(most as u64);
        self.charge_pages(clone, charged)?;
        let (mut shared, mut looked) = (0, 0);
        let mut taken_away = false;
        let mut next = from;
        let mut more = false;
        while let Some(place) = self.next_resident(source, next) {
            if looked == most {
                more = true;
                break;
            }
            looked += 1;
            next = place.address + PAGE;
            let page = self.objects.get(source).page_of(place.address);
            let target = self.objects.get(clone);
            let address = target.address_of(page);
            let slot = slot_of(address) - target.first_slot();
            let inside = page < target.record.pages;
            // Its task may have cut it short by now, or written to it.
            let Some(leaf) = target.slots.get(slot).and_then(Slot::leaf).filter(|_| inside) else {
                continue;
            };
            if self.is_resident(clone, address) {
                continue;
            }
            let Some((entry, took)) = share_entry(world, place) else {
                continue;
            };
            taken_away |= took;
            let index = index_of(address);
            let target = Place {
                id: clone,
                slot,
                leaf,
                index,
                address,
            };
            self.install(world, target, entry);
            shared += 1;
        }
        self.refund_pages(clone, charged - shared);
        if taken_away {
            world.flush_everything();
        }
        Ok(more.then_some(next))
    }

    /// The first resident page of an object from an address on.
    fn next_resident(&self, id: ObjectId, from: u64) -> Option<Place> {
        let object = self.objects.get(id);
        let place = object.next_page(Which::Resident, from, object.end())?;
        Some(Place {
            id,
            slot: place.slot,
            leaf: place.leaf,
            index: place.index,
            address: place.address,
        })
    }
}

/// Adds a reference to the frame of a page and withholds writing from it. Tells the
/// entry for the other one who shares it, and whether writing was taken away.
fn share_entry<W: World>(world: &mut W, place: Place) -> Option<(PageEntry, bool)> {
    let entry = world.leaf_get(place.leaf, place.index)?;
    let took = withhold(world, place.leaf, place.index);
    world.frame_share(entry.frame);
    let shared = PageEntry::new(entry.frame, entry.limits);
    let shared = if entry.limits.contains(Rights::W) {
        shared.withheld()
    } else {
        shared
    };
    Some((shared, took))
}

/// Withholds writing from a page that its limits let be written; tells whether it was taken away. Then
/// translations are to be flushed.
pub(crate) fn withhold<W: World>(world: &mut W, leaf: Leaf, index: usize) -> bool {
    let Some(entry) = world.leaf_get(leaf, index) else {
        return false;
    };
    let took = entry.limits.contains(Rights::W) && !entry.write_withheld;
    if took {
        world.leaf_set(leaf, index, Some(PageEntry::new(entry.frame, entry.limits).withheld()));
    }
    took
}

/// Adds the limits of a page to ranges in rising order.
fn add_limit(ranges: &mut Vec<LimitRange>, page: u64, limits: Rights) -> Result<(), Error> {
    if limits == Rights::RWX {
        return Ok(());
    }
    match ranges.last_mut() {
        Some(last) if last.end == page && last.limits == limits => {
            last.end += 1;
            Ok(())
        }
        _ => {
            let range = LimitRange {
                first: page,
                end: page + 1,
                limits,
            };
            push(ranges, range)
        }
    }
}
