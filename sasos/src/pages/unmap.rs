//! `PageUnMap`: content is dropped, either for zeroes or for what the last checkpoint had.
//!
//! The limits of pages are not content: they stay. A page that must not be written must not be
//! dropped either.
//!
//! Done in pieces, in two passes: the first looks whether every page may be written, the second drops.

use alloc::vec::Vec;

use abi::{
    Error, Rights,
    address::{PAGE, SLOT},
    call::arguments,
    layout::{UNMAP_REPLACE, UNMAP_ZERO},
};

use store::PageFlags;

use crate::{
    Server, Step, Stop, World,
    containers::push,
    directory::object::{ObjectId, Which},
    durability::durable::no_room,
    lives::continuation::Continuation,
    lives::thread::Caller,
    pages::page::Range,
    pages::pager::{absent_limits, from_flags, to_flags},
    pages::release::Remembered,
};

/// Pages in memory, or of a persistent object, that are looked at or dropped in one piece.
const PIECE_PAGES: u64 = 16;
/// How far a piece of a transient object reaches.
const PIECE_REACH: u64 = 32 * SLOT;

/// The content that takes the place of what is dropped.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Disposition {
    Zero,
    Replace,
}

impl Server {
    /// `PageUnMap`: page, pages, disposition.
    ///
    /// # Errors
    /// [`Error::BadArgument`], [`Error::BadAddress`], [`Error::Protection`], [`Error::DiskFull`].
    pub fn page_un_map<W: World>(
        &mut self,
        world: &mut W,
        caller: Caller,
        arguments: arguments::PageUnMap,
    ) -> Step<(u64, u64)> {
        let arguments::PageUnMap {
            page,
            pages,
            disposition,
        } = arguments;
        if let Some(step) = self.resume_durable(caller) {
            return step;
        }
        let range = self.range(world, caller, page, pages, Rights::W)?;
        let persistent = self.objects.get(range.id).is_persistent();
        let disposition = match disposition {
            UNMAP_REPLACE if persistent => Disposition::Replace,
            // A transient object was never in a checkpoint.
            UNMAP_ZERO | UNMAP_REPLACE => Disposition::Zero,
            _ => return Err(Error::BadArgument.into()),
        };
        if disposition == Disposition::Replace {
            // A page that is just being written must not be read back from where it was before.
            self.wait_for_writing(range.id)?;
        } else if persistent {
            Self::bounded(range)?;
            self.enough_heap(world)?;
        }
        loop {
            if persistent {
                self.may_note(world)?;
            }
            let begun = self.threads.record(caller.thread).continuation;
            let (looks, done) = match begun {
                Continuation::UnMaps(done) => (false, done),
                Continuation::UnMapLooks(seen) => (true, seen),
                _ => (true, 0),
            };
            let piece = self.piece(range, range.from + done * PAGE);
            match (disposition, looks) {
                (Disposition::Zero, true) => self.check_zero(world, piece)?,
                (Disposition::Zero, false) => self.unmap_zero(world, piece)?,
                (Disposition::Replace, true) => self.check_replace(world, piece)?,
                (Disposition::Replace, false) => self.unmap_replace(world, piece)?,
            }
            let done = done + piece.count();
            self.threads.record(caller.thread).continuation = match looks {
                true if done < pages => Continuation::UnMapLooks(done),
                true => Continuation::UnMaps(0),
                false if done < pages => Continuation::UnMaps(done),
                false => return Ok((0, 0)),
            };
            // Looking and dropping are one piece if the pages are few.
            if !looks || pages > PIECE_PAGES / 2 {
                return Err(Stop::Again);
            }
        }
    }

    /// The piece of a range that begins at `from`.
    fn piece(&self, range: Range, from: u64) -> Range {
        let object = self.objects.get(range.id);
        if object.is_persistent() {
            let to = range.to.min(from + PIECE_PAGES * PAGE);
            return Range { from, to, ..range };
        }
        let to = range.to.min(from + PIECE_REACH);
        let mut end = from;
        for _ in 0..PIECE_PAGES {
            match object.next_page(Which::Resident, end, to) {
                Some(place) => end = place.address + PAGE,
                None => return Range { from, to, ..range },
            }
        }
        Range { from, to: end, ..range }
    }

    // ---- for zeroes -------------------------------------------------------------------------------

    /// Whether every page of a piece may be written.
    fn check_zero<W: World>(&mut self, world: &mut W, piece: Range) -> Step<()> {
        self.limited_pages(world, piece)?;
        let object = self.objects.get(piece.id);
        if object.is_persistent() {
            self.absent_limited(world, piece)?;
            return Ok(());
        }
        let first = object.page_of(piece.from);
        let end = first + piece.count();
        for limit in object
            .absent_limits
            .iter()
            .filter(|limit| !limit.limits.contains(Rights::W))
        {
            let mut pages = limit.first.max(first)..limit.end.min(end);
            if pages.any(|page| !self.is_resident(piece.id, object.address_of(page))) {
                return Err(Error::Protection.into());
            }
        }
        Ok(())
    }

    fn unmap_zero<W: World>(&mut self, world: &mut W, piece: Range) -> Step<()> {
        // Pages with limits of their own keep them. Resident ones are zeroed where they are, the
        // others of this piece go.
        let limited = self.limited_pages(world, piece)?;
        let persistent = self.objects.get(piece.id).is_persistent();
        let absent = if persistent {
            self.absent_limited(world, piece)?
        } else {
            Vec::new()
        };
        for &address in &limited {
            self.zero_page(world, piece.id, address)?;
        }
        self.drop_between(world, piece, &limited);
        if persistent {
            self.discard(piece, &absent)?;
        }
        Ok(())
    }

    /// Drops what lies between some pages of a piece that stay.
    fn drop_between<W: World>(&mut self, world: &mut W, piece: Range, stay: &[u64]) {
        let mut from = piece.from;
        for &address in stay.iter().chain([&piece.to]) {
            if from < address {
                self.drop_pages(world, piece.id, from, address, Remembered::Perhaps);
            }
            from = address + PAGE;
        }
    }

    /// Pages of a piece that are resident and not free of limits.
    ///
    /// # Errors
    /// [`Error::Protection`] if one of them must not be written.
    fn limited_pages<W: World>(&mut self, world: &mut W, piece: Range) -> Step<Vec<u64>> {
        let mut limited = Vec::new();
        let mut from = piece.from;
        let object = self.objects.get(piece.id);
        while let Some(place) = object.next_page(Which::Resident, from, piece.to) {
            from = place.address + PAGE;
            let entry = world.leaf_get(place.leaf, place.index);
            let limits = entry.map_or(Rights::RWX, |entry| entry.limits);
            if !limits.contains(Rights::W) {
                return Err(Error::Protection.into());
            }
            if limits != Rights::RWX {
                push(&mut limited, place.address)?;
            }
        }
        Ok(limited)
    }

    /// Pages of a piece of a persistent object that are not resident and not free of limits, by number.
    ///
    /// # Errors
    /// [`Error::Protection`] if one of them must not be written.
    fn absent_limited<W: World>(&mut self, world: &mut W, piece: Range) -> Step<Vec<(u64, PageFlags)>> {
        let mut absent = Vec::new();
        for address in piece.pages() {
            let object = self.objects.get(piece.id);
            let page = object.page_of(address);
            let limits = if self.is_resident(piece.id, address) {
                continue;
            } else if object.is_complete() {
                absent_limits(&object.absent_limits, page)
            } else {
                self.limits_on_disk(world, piece.id, address)?
            };
            if !limits.contains(Rights::W) {
                return Err(Error::Protection.into());
            }
            if limits != Rights::RWX {
                push(&mut absent, (page, to_flags(limits)))?;
            }
        }
        Ok(absent)
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
    fn discard(&mut self, range: Range, absent: &[(u64, PageFlags)]) -> Step<()> {
        let object = self.objects.get(range.id);
        let (base, first) = (object.base(), object.page_of(range.from));
        self.store
            .discard_pages(base, first, first + range.count(), absent)
            .map_err(no_room)?;
        self.blocks_gone(range.id, first, first + range.count());
        self.note_row_change(range.id);
        Ok(())
    }

    // ---- for what the last checkpoint had -----------------------------------------------------------

    /// Whether every page of a piece that is changed may be written. One that must not be must not be dropped either, and its
    /// limits stand in its entry alone as long as no checkpoint took it.
    fn check_replace<W: World>(&mut self, world: &mut W, piece: Range) -> Step<()> {
        let mut from = piece.from;
        let object = self.objects.get(piece.id);
        while let Some(place) = object.next_page(Which::Dirty, from, piece.to) {
            from = place.address + PAGE;
            let entry = world.leaf_get(place.leaf, place.index);
            if entry.is_some_and(|entry| !entry.limits.contains(Rights::W)) {
                return Err(Error::Protection.into());
            }
        }
        Ok(())
    }

    fn unmap_replace<W: World>(&mut self, world: &mut W, piece: Range) -> Step<()> {
        self.check_replace(world, piece)?;
        // A checkpoint that failed leaves its entries in the maps in memory. A page that is dropped would be read from there, and nothing would
        // make that durable: first another one has to take these pages.
        if !self.checkpoint.is_good(self.objects.get(piece.id).checkpoint) {
            self.wait_for_checkpoint(world)?;
        }
        let mut from = piece.from;
        while let Some(place) = self.objects.get(piece.id).next_page(Which::Dirty, from, piece.to) {
            from = place.address + PAGE;
            let object = self.objects.get(piece.id);
            let entry = world.leaf_get(place.leaf, place.index);
            let limits = entry.map_or(Rights::RWX, |entry| entry.limits);
            if limits != Rights::RWX {
                self.store
                    .set_page_flags(object.base(), object.page_of(place.address), to_flags(limits))
                    .map_err(no_room)?;
                self.note_row_change(piece.id);
            }
            self.objects.get_mut(piece.id).known = 0;
            self.drop_pages(world, piece.id, place.address, from, Remembered::Perhaps);
        }
        Ok(())
    }
}
