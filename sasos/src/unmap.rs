//! `PageUnMap`: content is dropped, either for zeroes or for what the last checkpoint had.
//!
//! The limits of pages are not content: they stay. A page that must not be written must not be
//! dropped either.

use alloc::vec::Vec;

use abi::{
    Error, Rights,
    address::{PAGE, SLOT, slot_of},
    layout::{UNMAP_REPLACE, UNMAP_ZERO},
};

use crate::{
    Server, Step, World,
    object::ObjectId,
    page::Range,
    pager::{from_flags, to_flags},
    release::Remembered,
    thread::Caller,
};

impl Server {
    /// `PageUnMap`: page, pages, disposition.
    ///
    /// # Errors
    /// [`Error::BadArgument`], [`Error::BadAddress`], [`Error::Protection`], [`Error::DiskFull`].
    pub fn page_un_map<W: World>(&mut self, world: &mut W, caller: Caller, arguments: [u64; 6]) -> Step<(u64, u64)> {
        let [page, pages, disposition, ..] = arguments;
        if let Some(step) = self.resume_durable(caller) {
            return step;
        }
        let range = self.range(world, caller, page, pages, Rights::W)?;
        match disposition {
            UNMAP_ZERO => self.unmap_zero(world, range)?,
            UNMAP_REPLACE => self.unmap_replace(world, caller, range)?,
            _ => return Err(Error::BadArgument.into()),
        }
        Ok((0, 0))
    }

    fn unmap_zero<W: World>(&mut self, world: &mut W, range: Range) -> Step<()> {
        let persistent = self.objects.get(range.id).is_persistent();
        if persistent {
            Self::bounded(range)?;
        }
        // Pages with limits of their own keep them. Resident ones are zeroed where they are, the
        // others of this range go.
        let limited = self.limited_pages(world, range)?;
        let absent = self.absent_limited(world, range)?;
        for &address in &limited {
            self.zero_page(world, range.id, address)?;
        }
        self.drop_between(world, range, &limited);
        if persistent {
            self.discard(range, &absent)?;
        }
        Ok(())
    }

    /// Drops what lies between some pages of a range that stay.
    fn drop_between<W: World>(&mut self, world: &mut W, range: Range, stay: &[u64]) {
        let mut from = range.from;
        for &address in stay.iter().chain([&range.to]) {
            if from < address {
                self.drop_pages(world, range.id, from, address, Remembered::Perhaps);
            }
            from = address + PAGE;
        }
    }

    /// Pages of a range that are resident and not free of limits.
    ///
    /// # Errors
    /// [`Error::Protection`] if one of them must not be written.
    fn limited_pages<W: World>(&mut self, world: &mut W, range: Range) -> Step<Vec<u64>> {
        let mut limited = Vec::new();
        let object = self.objects.get(range.id);
        let mut next = object.slots.next_with_leaf(slot_of(range.from) - object.first_slot());
        while let Some(slot) = next {
            let start = (object.first_slot() + slot) * SLOT;
            let Some(state) = object.slots.get(slot).filter(|_| start < range.to) else {
                break;
            };
            let mut index = range.from.saturating_sub(start).div_ceil(PAGE) as usize;
            while let Some(found) = state.resident.next(index) {
                index = found + 1;
                let address = start + found as u64 * PAGE;
                let limits = state
                    .leaf()
                    .and_then(|leaf| world.leaf_get(leaf, found))
                    .map_or(Rights::RWX, |entry| entry.limits);
                if address >= range.to {
                    break;
                }
                if limits != Rights::RWX {
                    limited.push(address);
                }
                if !limits.contains(Rights::W) {
                    return Err(Error::Protection.into());
                }
            }
            next = object.slots.next_with_leaf(slot + 1);
        }
        Ok(limited)
    }

    /// Pages of a range that are not resident and not free of limits, by number.
    ///
    /// # Errors
    /// [`Error::Protection`] if one of them must not be written.
    fn absent_limited<W: World>(&mut self, world: &mut W, range: Range) -> Step<Vec<(u64, Rights)>> {
        let object = self.objects.get(range.id);
        let first = object.page_of(range.from);
        let end = first + range.count();
        let mut absent = Vec::new();
        if !object.is_persistent() || object.complete {
            for limit in &object.absent_limits {
                for page in limit.first.max(first)..limit.end.min(end) {
                    if !self.is_resident(range.id, object.address_of(page)) {
                        absent.push((page, limit.limits));
                    }
                }
            }
        } else {
            for (page, address) in (first..end).zip(range.pages()) {
                let limits = self.limits_on_disk(world, range.id, address)?;
                if limits != Rights::RWX {
                    absent.push((page, limits));
                }
            }
        }
        if absent.iter().all(|page| page.1.contains(Rights::W)) {
            Ok(absent)
        } else {
            Err(Error::Protection.into())
        }
    }

    /// The limits that the store knows for a page that is not resident, without reading the page.
    pub(crate) fn limits_on_disk<W: World>(&mut self, world: &mut W, id: ObjectId, address: u64) -> Step<Rights> {
        if self.is_resident(id, address) {
            return Ok(Rights::RWX);
        }
        let object = self.objects.get(id);
        match self.store.page_flags(world, object.base(), object.page_of(address)) {
            store::PageLookup::Absent => Ok(Rights::RWX),
            store::PageLookup::Zero(flags) | store::PageLookup::Stored(flags) => Ok(from_flags(flags)),
            // Part of the map must be read first. Reading the page does it.
            store::PageLookup::Unknown => self.limits_at(world, id, address),
        }
    }

    /// Has the store forget the content of a range, but not the limits of these pages.
    fn discard(&mut self, range: Range, absent: &[(u64, Rights)]) -> Step<()> {
        let object = self.objects.get(range.id);
        let (base, first) = (object.base(), object.page_of(range.from));
        self.store
            .discard_pages(base, first, first + range.count())
            .map_err(|_| Error::DiskFull)?;
        for &(page, limits) in absent {
            self.store
                .set_page_flags(base, page, to_flags(limits))
                .map_err(|_| Error::DiskFull)?;
        }
        self.note_row_change(range.id);
        Ok(())
    }

    fn unmap_replace<W: World>(&mut self, world: &mut W, caller: Caller, range: Range) -> Step<()> {
        if !self.objects.get(range.id).is_persistent() {
            // There is no checkpoint it was ever in.
            return self.unmap_zero(world, range);
        }
        // A page that is just being written must not be read back from where it was before.
        self.wait_for_writing(caller, range.id)?;
        let mut dirty = Vec::new();
        let object = self.objects.get(range.id);
        let mut next = object.slots.next_with_leaf(slot_of(range.from) - object.first_slot());
        while let Some(slot) = next {
            let start = (object.first_slot() + slot) * SLOT;
            let Some(state) = object.slots.get(slot).filter(|_| start < range.to) else {
                break;
            };
            let mut index = range.from.saturating_sub(start).div_ceil(PAGE) as usize;
            while let Some(found) = state.dirty.next(index) {
                index = found + 1;
                let address = start + found as u64 * PAGE;
                if address < range.to {
                    dirty.push(address);
                }
            }
            next = object.slots.next_with_leaf(slot + 1);
        }
        // All that can fail comes first. A page that must not be written must not be dropped either, and its limits stand
        // in its entry alone as long as no checkpoint took it.
        let base = self.objects.get(range.id).base();
        let mut limited = Vec::new();
        for &address in &dirty {
            let limits = self.limits_at(world, range.id, address)?;
            if !limits.contains(Rights::W) {
                return Err(Error::Protection.into());
            }
            if limits != Rights::RWX {
                limited.push((address, limits));
            }
        }
        for (address, limits) in limited {
            self.store
                .set_page_flags(base, (address - base) / PAGE, to_flags(limits))
                .map_err(|_| Error::DiskFull)?;
            self.note_row_change(range.id);
        }
        if !dirty.is_empty() {
            self.objects.get_mut(range.id).complete = false;
        }
        for address in dirty {
            self.drop_pages(world, range.id, address, address + PAGE, Remembered::Perhaps);
        }
        Ok(())
    }
}
