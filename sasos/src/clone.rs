//! `ObjClone`: a copy of an object at a new address, page by page copy-on-write.
//!
//! The clone shares the frames of the source; both entries withhold writing, and whoever writes
//! first gets a frame of his own. All pages of the source that the disk holds are brought in first,
//! so a clone depends on nobody's disk and a source may go its way. The limits of pages go with
//! them, those of pages that are not resident included: so a program image is cloned.

use alloc::vec::Vec;

use abi::{
    Error, Rights,
    address::{PAGE, SLOT, pages_for, slot_of},
};
use kcore::{Frame, Leaf, PageEntry, SpaceId, wait::Key};

use crate::{
    Server, Step, Stop, World,
    capability::password_or_random,
    creation::{AddressesOf, Kind},
    object::{LimitRange, ObjectId},
    pager::{Place, index_of},
    slots::Slot,
    task::TaskId,
    thread::Caller,
};

/// Pages an object may have to be cloned.
pub const CLONE_PAGES_MAX: u64 = 1 << 16;
/// Ranges of limits that an object may have for pages that are not resident.
pub const LIMIT_RANGES_MAX: usize = 64;

impl Server {
    /// `ObjClone`: source, extra bytes, password.
    ///
    /// # Errors
    /// [`Error::BadAddress`], [`Error::Protection`], [`Error::BadArgument`] for a source that is too
    /// large, [`Error::NoMemory`], [`Error::LimitReached`], [`Error::DiskError`].
    pub fn obj_clone<W: World>(&mut self, world: &mut W, caller: Caller, arguments: [u64; 6]) -> Step<(u64, u64)> {
        let [source, extra, password, ..] = arguments;
        self.require_at(world, caller.domain, source, Rights::RX)?;
        self.object_clone(world, caller.domain, Some(caller.task), source, extra, password)
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
        task: Option<TaskId>,
        source: u64,
        extra_bytes: u64,
        password: u64,
    ) -> Step<(u64, u64)> {
        let source = self.object_at(world, source)?;
        let pages = self.objects.get(source).record.pages;
        if pages > CLONE_PAGES_MAX {
            return Err(Error::BadArgument.into());
        }
        let extra = pages_for(extra_bytes).ok_or(Error::NoMemory)?;
        let total = pages.checked_add(extra).ok_or(Error::NoMemory)?;
        self.bring_in(world, source)?;
        let clone = self.object_make(world, Kind::Plain, total, task, domain)?;
        if let Err(stop) = self.share_pages(world, source, clone) {
            self.object_drop(world, clone, AddressesOf::Free);
            return Err(stop);
        }
        let password = password_or_random(world, password);
        let record = &mut self.objects.get_mut(clone).record;
        record.capabilities.push((password, Rights::OWNER.bits()));
        Ok((record.base, password))
    }

    /// Makes all pages of an object resident that the disk holds. From then on it is `complete`.
    fn bring_in<W: World>(&mut self, world: &mut W, id: ObjectId) -> Step<()> {
        let object = self.objects.get(id);
        if !object.is_persistent() || object.complete {
            return Ok(());
        }
        let limits = loop {
            let mut limits = Vec::new();
            match self.begin_bringing(world, id, &mut limits)? {
                None => break limits,
                // Meanwhile it may have come, and nobody will wake for it again: look anew.
                Some(address) if !self.pager.reading.contains(&address) => {}
                Some(address) => return Err(Stop::Wait(Key::Page(address))),
            }
        };
        let object = self.objects.get_mut(id);
        object.absent_limits = limits;
        object.complete = true;
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
                        add_limit(limits, page, found);
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

    /// Gives the clone the frames of the source.
    fn share_pages<W: World>(&mut self, world: &mut W, source: ObjectId, clone: ObjectId) -> Step<()> {
        let object = self.objects.get(source);
        let (pages, resident) = (object.record.pages, object.resident);
        let limits = object.absent_limits.clone();
        self.objects.get_mut(clone).absent_limits = limits;
        // Memory first. Nothing below asks for a frame, so no entry of the source goes meanwhile.
        for slot in 0..(self.objects.get(clone).base() % SLOT + pages * PAGE).div_ceil(SLOT) {
            self.make_leaf(world, clone, slot)?;
        }
        // Unless it took pages of the source itself to find that memory.
        let object = self.objects.get(source);
        if object.is_persistent() && !object.complete {
            return Err(Error::NoMemory.into());
        }
        self.charge(clone, resident)?;
        let mut shared = 0;
        let mut taken_away = false;
        let mut next = self.objects.get(source).slots.next_with_leaf(0);
        while let Some(slot) = next {
            let mut index = 0;
            while let Some(found) = self
                .objects
                .get(source)
                .slots
                .get(slot)
                .and_then(|state| state.resident.next(index))
            {
                index = found + 1;
                let object = self.objects.get(source);
                let address = (object.first_slot() + slot) * SLOT + found as u64 * PAGE;
                let page = object.page_of(address);
                let Some(leaf) = object.slots.get(slot).and_then(Slot::leaf) else {
                    continue;
                };
                let from = Place {
                    id: source,
                    slot,
                    leaf,
                    index: found,
                    address,
                };
                let Some((frame, entry, took)) = share_entry(world, from) else {
                    continue;
                };
                taken_away |= took;
                let target = self.objects.get(clone);
                let address = target.address_of(page);
                let slot = slot_of(address) - target.first_slot();
                let Some(leaf) = target.slots.get(slot).and_then(Slot::leaf) else {
                    world.frame_release(frame);
                    continue;
                };
                self.install(
                    world,
                    Place {
                        id: clone,
                        slot,
                        leaf,
                        index: index_of(address),
                        address,
                    },
                    entry,
                );
                shared += 1;
            }
            next = self.objects.get(source).slots.next_with_leaf(slot + 1);
        }
        self.refund(clone, resident - shared);
        if taken_away {
            world.flush_everything();
        }
        Ok(())
    }
}

/// Adds a reference to the frame of a page and withholds writing from it. Tells the frame, the
/// entry for the other one who shares it, and whether writing was taken away.
fn share_entry<W: World>(world: &mut W, place: Place) -> Option<(Frame, PageEntry, bool)> {
    let entry = world.leaf_get(place.leaf, place.index)?;
    let took = withhold(world, place.leaf, place.index);
    world.frame_share(entry.frame);
    let shared = PageEntry::new(entry.frame, entry.limits);
    let shared = if entry.limits.contains(Rights::W) {
        shared.withheld()
    } else {
        shared
    };
    Some((entry.frame, shared, took))
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
fn add_limit(ranges: &mut Vec<LimitRange>, page: u64, limits: Rights) {
    if limits == Rights::RWX {
        return;
    }
    match ranges.last_mut() {
        Some(last) if last.end == page && last.limits == limits => last.end += 1,
        _ => ranges.push(LimitRange {
            first: page,
            end: page + 1,
            limits,
        }),
    }
}
