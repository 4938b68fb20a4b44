//! `PageCopy`: the pages of one range get the frames of another, copy-on-write.
//!
//! Done in pieces, from the first page on, each as far as the event's budget reaches: so the kernel is held for a bounded time,
//! and the source may be larger than memory. There are two passes. The first only looks: whether every page of the target may be
//! written, and how many pages the target has to be given, which must not be more than the account and the disk have. The second
//! copies. In it a piece ends at the first page that must be read, and asks for those behind it, too. It then takes what it needs,
//! and only then changes pages, which cannot fail any more.
//!
//! So a call that fails has copied nothing, or whole pages from the first one on: where a page of the source is damaged,
//! others took the memory that was there at the beginning, or there is none for all that one page needs at once.

use abi::{
    Error, Rights,
    address::{PAGE, slot_of},
    call::arguments,
};
use kcore::{Frame, PageEntry, wait::Key};
use store::{PageFlags, PageLookup};

use crate::{
    Server, Step, Stop, World,
    accounts::Resource,
    directory::object::ObjectId,
    lives::budget::Cost,
    lives::continuation::Continuation,
    lives::thread::Caller,
    pages::clone::{COST_FOUND, COST_TABLE, withhold},
    pages::page::Range,
    pages::pager::{Content, Place, index_of},
    pages::release::FLUSH_SINGLY,
};

/// Pages that are copied in one piece, at most.
pub const PIECE_PAGES: u64 = 32;
/// The cost of looking at a page and at the one that it is copied to, of copying one, and of having the store promise a block for it, in
/// instructions, roughly.
const COST_LOOK: Cost = Cost::own(300);
const COST_COPY: Cost = Cost::calling(750, 6);
const COST_PROMISED: Cost = Cost::own(350);
/// How often a copy waits for the disk and gets no further. If memory is short, each thing that it waits for may take the frame of the one before: the page
/// of the source, or a node of the map of source or target.
const WAITS_MAX: u32 = 64;

/// The fate of a page of the target.
#[derive(Copy, Clone)]
enum Fate {
    /// It holds already what it should.
    Stays,
    /// It gets a frame, and these limits.
    Gets(Frame, Rights),
}

/// The pages of a piece, as far as they are known.
struct Piece {
    /// For each page of the source a frame, with a reference that is ours, or zeroes.
    frames: [Option<Frame>; PIECE_PAGES as usize],
    /// The limits of the pages of the target.
    limits: [Rights; PIECE_PAGES as usize],
    /// How many of the leading ones are known.
    ready: usize,
}

impl Server {
    /// `PageCopy`: from, to, pages.
    ///
    /// # Errors
    /// [`Error::BadArgument`] (unaligned, overlapping, empty, too many), [`Error::BadAddress`],
    /// [`Error::Protection`], memory, account and disk space, [`Error::DiskError`].
    pub fn page_copy<W: World>(
        &mut self,
        world: &mut W,
        caller: Caller,
        arguments: arguments::PageCopy,
    ) -> Step<(u64, u64)> {
        let arguments::PageCopy { from, to, pages } = arguments;
        let source = self.range(world, caller, from, pages, Rights::R)?;
        let target = self.range(world, caller, to, pages, Rights::W)?;
        Self::bounded(source)?;
        if source.from < target.to && target.from < source.to {
            return Err(Error::BadArgument.into());
        }
        let of = [source, target].map(|range| self.objects.get(range.id).serial);
        // Each event gets on, though the search for rights may have left nothing of its budget.
        loop {
            let begun = self.threads.record(caller.thread).continuation;
            self.threads.record(caller.thread).continuation = if let Continuation::Copies { done, waits, of: then } =
                begun
                && then == of
            {
                let count = (pages - done).min(PIECE_PAGES);
                let parts = [part(source, done, count), part(target, done, count)];
                let copied = self.copy_piece(world, parts[0], parts[1]);
                // Where many read, it may also wait for pages of others.
                if let Err(Stop::Wait(Key::Page(at))) = copied
                    && parts.iter().any(|part| (part.from..part.to).contains(&at))
                {
                    let is_short = waits == WAITS_MAX;
                    let waits = if is_short { 0 } else { waits + 1 };
                    self.threads.record(caller.thread).continuation = Continuation::Copies { done, waits, of };
                    if is_short {
                        return Err(Error::NoMemory.into());
                    }
                }
                let done = done + copied?;
                if done == pages {
                    return Ok((0, 0));
                }
                Continuation::Copies { done, waits: 0, of }
            } else {
                let (seen, lacks) = match begun {
                    Continuation::CopyLooks { seen, lacks, of: then } if then == of => (seen, lacks),
                    // It begins, or another object stands in the place of one.
                    _ => (0, 0),
                };
                let at = seen * PAGE;
                let lacks = lacks + u64::from(self.look_at(world, (source.id, from + at), (target.id, to + at))?);
                let seen = seen + 1;
                if seen < pages {
                    Continuation::CopyLooks { seen, lacks, of }
                } else {
                    self.room_for(target.id, lacks)?;
                    Continuation::Copies { done: 0, waits: 0, of }
                }
            };
            if !self.budget.is_left() {
                return Err(Stop::Again);
            }
        }
    }

    /// Whether a page of the target, which must be one that may be written, lacks what the source has.
    fn look_at<W: World>(&mut self, world: &mut W, from: (ObjectId, u64), to: (ObjectId, u64)) -> Step<bool> {
        let cost = COST_LOOK.and(self.cost_of_asking(from)).and(self.cost_of_asking(to));
        self.budget.spend(cost);
        if !self.limits_known(world, to.0, to.1)?.contains(Rights::W) {
            return Err(Error::Protection.into());
        }
        let stored = matches!(self.lookup(world, from.0, from.1), PageLookup::Stored(_));
        Ok(stored && !self.is_resident(to.0, to.1))
    }

    /// The cost of asking the store for a page, if it must be asked.
    fn cost_of_asking(&self, (id, address): (ObjectId, u64)) -> Cost {
        if self.is_asked_for(id) && !self.is_resident(id, address) {
            COST_FOUND
        } else {
            Cost::own(0)
        }
    }

    /// Refuses what the account of an object, or the disk, certainly cannot hold.
    fn room_for(&mut self, id: ObjectId, pages: u64) -> Result<(), Error> {
        let object = self.objects.get(id);
        if !object.is_persistent() {
            if self.ledger.left(object.account, Resource::Frames) < pages {
                return Err(Error::LimitReached);
            }
        } else if !self.store.has_room_for(pages) {
            return Err(Error::DiskFull);
        }
        Ok(())
    }

    /// The limits of a page, without making it resident if that can be helped.
    fn limits_known<W: World>(&mut self, world: &mut W, id: ObjectId, address: u64) -> Step<Rights> {
        let object = self.objects.get(id);
        if !object.is_persistent() || object.is_complete() || self.is_resident(id, address) {
            self.limits_at(world, id, address)
        } else {
            self.limits_on_disk(world, id, address)
        }
    }

    /// Whether a page holds anything; only the store may not know it at once.
    fn lookup<W: World>(&self, world: &W, id: ObjectId, address: u64) -> PageLookup {
        let object = self.objects.get(id);
        if self.is_resident(id, address) {
            PageLookup::Stored(PageFlags::empty())
        } else if !object.is_persistent() || object.is_complete() {
            PageLookup::Absent
        } else {
            self.store.page_flags(world, object.base(), object.page_of(address))
        }
    }

    /// Copies the leading pages of a piece, one at least; tells how many.
    fn copy_piece<W: World>(&mut self, world: &mut W, source: Range, target: Range) -> Step<u64> {
        let mut piece = Piece {
            frames: [None; PIECE_PAGES as usize],
            limits: [Rights::RWX; PIECE_PAGES as usize],
            ready: 0,
        };
        let gathered = self.gather(world, source, target, &mut piece);
        let copied = match gathered {
            Err(stop) if piece.ready == 0 => Err(stop),
            _ => self.copy_gathered(world, source, target, &piece),
        };
        let known = piece.frames[..piece.ready].iter().flatten();
        known.for_each(|&frame| world.frame_release(frame));
        copied
    }

    /// Finds out what a piece needs, as far as the budget reaches, up to the first page that must be read.
    fn gather<W: World>(&mut self, world: &mut W, source: Range, target: Range, piece: &mut Piece) -> Step<()> {
        let is_kept = self.objects.get(target.id).is_persistent();
        let cost_copy = if is_kept {
            COST_COPY.and(COST_PROMISED)
        } else {
            COST_COPY
        };
        for (index, (from, to)) in source.pages().zip(target.pages()).enumerate() {
            if index > 0 && !self.budget.is_left() {
                break;
            }
            let cost = cost_copy
                .and(self.cost_of_asking((source.id, from)))
                .and(self.cost_of_asking((target.id, to)));
            self.budget.spend(cost);
            if self.leaf_at(target.id, to).is_none() {
                self.budget.spend(COST_TABLE);
                let slot = slot_of(to) - self.objects.get(target.id).first_slot();
                self.make_leaf(world, target.id, slot)?;
            }
            let limits = self.limits_known(world, target.id, to)?;
            if !limits.contains(Rights::W) {
                return Err(Error::Protection.into());
            }
            let entry = self.peek(world, source.id, from);
            if let Err(Stop::Wait(Key::Page(_))) = entry {
                self.read_ahead(world, source.id, from, source.to);
            }
            // With our reference it stays, though memory for the others be short.
            let frame = entry?.map(|entry| entry.frame);
            if let Some(frame) = frame {
                world.frame_share(frame);
            }
            (piece.frames[index], piece.limits[index]) = (frame, limits);
            piece.ready = index + 1;
        }
        Ok(())
    }

    /// Copies what is known of a piece.
    fn copy_gathered<W: World>(&mut self, world: &mut W, source: Range, target: Range, piece: &Piece) -> Step<u64> {
        // Should no page of the target have to be cleared, it goes back.
        let clears = piece.frames[..piece.ready].iter().any(Option::is_none);
        let zeroes = if clears {
            Some(self.frame(world, Content::Zeroes)?)
        } else {
            None
        };
        // Freezing may have begun while the store was asked.
        let may = if self.objects.get(target.id).is_persistent() {
            self.may_get_dirty(world, target.id)
        } else {
            Ok(())
        };
        let copied = may.and_then(|()| Ok(self.give_frames(world, source, target, piece, zeroes)?));
        if let Some(frame) = zeroes {
            world.frame_release(frame);
        }
        copied
    }

    /// Takes what the target needs and then changes its pages; tells how many there are.
    fn give_frames<W: World>(
        &mut self,
        world: &mut W,
        source: Range,
        target: Range,
        piece: &Piece,
        zeroes: Option<Frame>,
    ) -> Result<u64, Error> {
        let mut fates = [Fate::Stays; PIECE_PAGES as usize];
        let mut lacks = 0;
        for (index, address) in target.pages().enumerate().take(piece.ready) {
            let Some(frame) = self.content_of(world, target.id, address, piece.frames[index], zeroes) else {
                continue;
            };
            fates[index] = Fate::Gets(frame, piece.limits[index]);
            lacks += u64::from(!self.is_resident(target.id, address));
        }
        let fates = &fates[..piece.ready];
        self.charge_pages(target.id, lacks)?;
        if let Err(error) = self.promise(world, target, fates) {
            self.refund_pages(target.id, lacks);
            return Err(error);
        }
        let mut old = [None; PIECE_PAGES as usize];
        let mut changed = 0;
        for (index, (from, to)) in source.pages().zip(target.pages()).enumerate().take(fates.len()) {
            let Fate::Gets(frame, limits) = fates[index] else {
                continue;
            };
            if piece.frames[index].is_some()
                && let Some(leaf) = self.leaf_at(source.id, from)
            {
                changed += usize::from(withhold(world, leaf, index_of(from)));
            }
            world.frame_share(frame);
            old[index] = self.put_frame(world, target.id, to, PageEntry::new(frame, limits).withheld());
            changed += usize::from(old[index].is_some());
        }
        if changed > FLUSH_SINGLY {
            world.flush_everything();
        } else if changed > 0 {
            for (from, to) in source.pages().zip(target.pages()).take(fates.len()) {
                world.flush_page(from);
                world.flush_page(to);
            }
        }
        let old = old[..fates.len()].iter().flatten();
        old.for_each(|&frame| world.frame_release(frame));
        Ok(fates.len() as u64)
    }

    /// The frame that a page of the target must get to hold what the source holds; none if it does already.
    fn content_of<W: World>(
        &self,
        world: &W,
        id: ObjectId,
        address: u64,
        source: Option<Frame>,
        zeroes: Option<Frame>,
    ) -> Option<Frame> {
        let leaf = self.leaf_at(id, address)?;
        match (world.leaf_get(leaf, index_of(address)), source) {
            (Some(entry), Some(frame)) => (entry.frame != frame).then_some(frame),
            (None, Some(frame)) => Some(frame),
            (Some(_), None) => zeroes,
            (None, None) => match self.lookup(world, id, address) {
                PageLookup::Absent | PageLookup::Zero(_) => None,
                PageLookup::Stored(_) | PageLookup::Unknown => zeroes,
            },
        }
    }

    /// Has the store promise space for the pages of a piece that will be dirty and are not: for all or for none.
    fn promise<W: World>(&mut self, world: &W, target: Range, fates: &[Fate]) -> Result<(), Error> {
        if !self.objects.get(target.id).is_persistent() {
            return Ok(());
        }
        let mut fresh = [None; PIECE_PAGES as usize];
        for (index, address) in target.pages().enumerate().take(fates.len()) {
            let object = self.objects.get(target.id);
            let slot = object.slots.get(slot_of(address) - object.first_slot());
            let dirty = slot.is_some_and(|slot| slot.dirty.has(index_of(address)));
            if dirty || matches!(fates[index], Fate::Stays) {
                continue;
            }
            let slot = slot_of(address) - object.first_slot();
            let page = object.page_of(address);
            match self.promise_block(world, target.id, slot, index_of(address), page) {
                Ok(charged) => fresh[index] = Some((slot, index_of(address), page, charged)),
                Err(error) => {
                    for (slot, index, page, charged) in fresh.into_iter().flatten() {
                        self.unpromise_block(target.id, slot, index, page, charged);
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Gives a page that is paid for and promised another frame; tells the one that it had.
    fn put_frame<W: World>(&mut self, world: &mut W, id: ObjectId, address: u64, entry: PageEntry) -> Option<Frame> {
        let leaf = self.leaf_at(id, address)?;
        let object = self.objects.get(id);
        let (slot, index) = (slot_of(address) - object.first_slot(), index_of(address));
        let persistent = object.is_persistent();
        let old = world.leaf_get(leaf, index).map(|old| old.frame);
        if old.is_some() {
            world.leaf_set(leaf, index, Some(entry));
        } else {
            let place = Place {
                id,
                slot,
                leaf,
                index,
                address,
            };
            self.install(world, place, entry);
        }
        if persistent {
            self.make_dirty(id, slot, index);
            self.pager.failed.remove(address);
        }
        old
    }
}

/// A part of a range, by pages.
const fn part(range: Range, first: u64, count: u64) -> Range {
    let from = range.from + first * PAGE;
    Range {
        id: range.id,
        from,
        to: from + count * PAGE,
    }
}
