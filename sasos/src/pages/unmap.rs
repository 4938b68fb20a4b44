//! `PageUnMap`: content is dropped, either for zeroes or for what the last checkpoint had.
//!
//! The limits of pages are not content: they stay. A page that must not be written must not be
//! dropped either.
//!
//! Done in pieces, each as far as the event's budget reaches, in two passes: the first looks whether every page may be written, the
//! second drops.

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
    lives::budget::Cost,
    lives::continuation::Continuation,
    lives::thread::Caller,
    pages::clone::COST_FOUND,
    pages::page::Range,
    pages::pager::{absent_limits, from_flags, to_flags},
    pages::release::Remembered,
};

/// Pages in memory, or of a persistent object, that are looked at or dropped in one piece, at most.
const PIECE_PAGES: u64 = 16;
/// The cost of looking at a page in memory, of dropping it, of copying one that is shared and filling it with zeroes, and of having the store note
/// limits, in instructions, roughly.
const COST_LOOK: Cost = Cost::own(140);
const COST_DROP: Cost = Cost::calling(500, 4);
const COST_ZERO: Cost = Cost::calling(1_800, 6);
const COST_NOTED: Cost = Cost::own(1_700);
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
        let object = self.objects.get(range.id);
        let (persistent, is_kept) = (object.is_persistent(), object.is_kept());
        let disposition = match disposition {
            UNMAP_REPLACE if is_kept => Disposition::Replace,
            // A transient object was never in a checkpoint.
            UNMAP_ZERO | UNMAP_REPLACE => Disposition::Zero,
            _ => return Err(Error::BadArgument.into()),
        };
        if disposition == Disposition::Replace {
            // A page that is just being written must not be read back from where it was before.
            self.wait_for_writing(range.id)?;
        } else if persistent {
            if is_kept {
                Self::bounded(range)?;
            }
            self.enough_heap(world)?;
        }
        let serial = self.objects.get(range.id).serial;
        loop {
            if persistent {
                self.may_note(world)?;
            }
            let begun = self.threads.record(caller.thread).continuation;
            let (looks, done) = match begun {
                Continuation::UnMaps(of, done) if of == serial => (false, done),
                Continuation::UnMapLooks(of, seen) if of == serial => (true, seen),
                // It begins, or another object stands there now.
                _ => (true, 0),
            };
            let mut piece = self.piece(range, range.from + done * PAGE);
            match (disposition, looks) {
                (Disposition::Zero, true) => self.check_zero(world, &mut piece)?,
                (Disposition::Zero, false) => self.unmap_zero(world, &mut piece)?,
                (Disposition::Replace, true) => self.check_replace(world, &piece)?,
                (Disposition::Replace, false) => self.unmap_replace(world, &mut piece)?,
            }
            let done = done + piece.count();
            self.threads.record(caller.thread).continuation = match looks {
                true if done < pages => Continuation::UnMapLooks(serial, done),
                true => Continuation::UnMaps(serial, 0),
                false if done < pages => Continuation::UnMaps(serial, done),
                false => return Ok((0, 0)),
            };
            // Looking and dropping are one piece if the pages are few.
            if !looks || pages > PIECE_PAGES / 2 || !self.budget.is_left() {
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

    /// Whether every page of a piece may be written. The piece becomes shorter where the budget is used up.
    fn check_zero<W: World>(&mut self, world: &mut W, piece: &mut Range) -> Step<()> {
        if self.objects.get(piece.id).is_persistent() {
            self.absent_limited(world, piece)?;
        }
        self.limited_pages(world, piece)?;
        let object = self.objects.get(piece.id);
        if object.is_persistent() {
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

    /// Makes a piece read as zeroes. It becomes shorter where the budget is used up.
    fn unmap_zero<W: World>(&mut self, world: &mut W, piece: &mut Range) -> Step<()> {
        // Pages with limits of their own keep them. Resident ones are zeroed where they are, the
        // others of this piece go.
        let persistent = self.objects.get(piece.id).is_persistent();
        let mut absent = if persistent {
            self.absent_limited(world, piece)?
        } else {
            Vec::new()
        };
        let mut stay = self.limited_pages(world, piece)?;
        for &address in &stay {
            if !self.piece_reaches(COST_ZERO, piece, address) {
                break;
            }
            self.zero_page(world, piece.id, address)?;
        }
        if persistent {
            let object = self.objects.get(piece.id);
            let end = object.page_of(piece.from) + piece.count();
            absent.retain(|&(page, _)| page < end);
            for &(page, _) in &absent {
                push(&mut stay, self.objects.get(piece.id).address_of(page))?;
            }
            stay.sort_unstable();
            // It may have no room for that, and then all pages stay.
            self.discard(*piece, &absent)?;
        }
        self.drop_between(world, *piece, &stay);
        Ok(())
    }

    /// Takes the cost of a page off the budget. A piece ends before a page for which nothing is left, unless it is its first.
    fn piece_reaches(&mut self, cost: Cost, piece: &mut Range, address: u64) -> bool {
        let goes_on = self.budget.spend(cost) || address == piece.from;
        if !goes_on {
            piece.to = address;
        }
        goes_on
    }

    /// Drops what lies between some pages of a piece that stay. Their blocks are paid for as before: they will be written, or the nodes
    /// above them stay for their limits.
    fn drop_between<W: World>(&mut self, world: &mut W, piece: Range, stay: &[u64]) {
        let mut from = piece.from;
        let stay = stay.iter().filter(|&&address| address < piece.to);
        for &address in stay.chain([&piece.to]) {
            if from < address {
                self.drop_pages(world, piece.id, from, address, Remembered::Perhaps);
                let object = self.objects.get(piece.id);
                if object.is_persistent() {
                    let (first, count) = (object.page_of(from), (address - from) / PAGE);
                    self.blocks_gone(piece.id, first, first + count);
                }
            }
            from = address + PAGE;
        }
    }

    /// Pages of a piece that are resident and not free of limits, as far as the budget reaches.
    ///
    /// # Errors
    /// [`Error::Protection`] if one of them must not be written.
    fn limited_pages<W: World>(&mut self, world: &mut W, piece: &mut Range) -> Step<Vec<u64>> {
        let mut limited = Vec::new();
        let mut from = piece.from;
        while let Some(place) = self.objects.get(piece.id).next_page(Which::Resident, from, piece.to)
            && self.piece_reaches(COST_LOOK, piece, place.address)
        {
            from = place.address + PAGE;
            let entry = world.leaf_get(place.leaf, place.index);
            let limits = entry.map_or(Rights::RWX, |entry| entry.limits);
            if !limits.contains(Rights::W) {
                return Err(Error::Protection.into());
            }
            if limits == Rights::RWX {
                self.budget.spend(COST_DROP);
            } else {
                push(&mut limited, place.address)?;
            }
        }
        Ok(limited)
    }

    /// Pages of a piece of a persistent object that are not resident and not free of limits, by number, as far as the budget reaches.
    ///
    /// # Errors
    /// [`Error::Protection`] if one of them must not be written.
    fn absent_limited<W: World>(&mut self, world: &mut W, piece: &mut Range) -> Step<Vec<(u64, PageFlags)>> {
        let mut absent = Vec::new();
        for address in piece.pages() {
            if self.is_resident(piece.id, address) {
                continue;
            }
            let is_complete = self.objects.get(piece.id).is_complete();
            let cost = if is_complete { COST_LOOK } else { COST_FOUND };
            if !self.piece_reaches(cost, piece, address) {
                break;
            }
            let object = self.objects.get(piece.id);
            let page = object.page_of(address);
            let limits = if is_complete {
                absent_limits(&object.absent_limits, page)
            } else {
                self.limits_on_disk(world, piece.id, address)?
            };
            if !limits.contains(Rights::W) {
                return Err(Error::Protection.into());
            }
            if limits != Rights::RWX {
                self.budget.spend(COST_NOTED);
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
        self.note_row_change(range.id);
        Ok(())
    }

    // ---- for what the last checkpoint had -----------------------------------------------------------

    /// Whether every page of a piece that is changed may be written. One that must not be must not be dropped either, and its
    /// limits stand in its entry alone as long as no checkpoint took it.
    fn check_replace<W: World>(&mut self, world: &mut W, piece: &Range) -> Step<()> {
        let mut from = piece.from;
        while let Some(place) = self.objects.get(piece.id).next_page(Which::Dirty, from, piece.to) {
            self.budget.spend(COST_LOOK);
            from = place.address + PAGE;
            let entry = world.leaf_get(place.leaf, place.index);
            if entry.is_some_and(|entry| !entry.limits.contains(Rights::W)) {
                return Err(Error::Protection.into());
            }
        }
        Ok(())
    }

    /// Drops the pages of a piece that are changed. It becomes shorter where the budget is used up.
    fn unmap_replace<W: World>(&mut self, world: &mut W, piece: &mut Range) -> Step<()> {
        self.check_replace(world, piece)?;
        // A checkpoint that failed leaves its entries in the maps in memory. A page that is dropped would be read from there, and nothing would
        // make that durable: first another one has to take these pages.
        if !self.checkpoint.is_good(self.objects.get(piece.id).checkpoint) {
            self.wait_for_checkpoint(world)?;
        }
        let mut from = piece.from;
        while let Some(place) = self.objects.get(piece.id).next_page(Which::Dirty, from, piece.to)
            && self.piece_reaches(COST_DROP, piece, place.address)
        {
            from = place.address + PAGE;
            let object = self.objects.get(piece.id);
            let entry = world.leaf_get(place.leaf, place.index);
            let limits = entry.map_or(Rights::RWX, |entry| entry.limits);
            if limits != Rights::RWX {
                self.budget.spend(COST_NOTED);
                // Their part of the map was paid for when they were set, or stood on the disk at the start.
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
