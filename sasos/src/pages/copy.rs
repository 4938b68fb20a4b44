//! `PageCopy`: the pages of one range get the frames of another, copy-on-write.
//!
//! Done in pieces, from the first page on: so the kernel is held for a bounded time, and the source may be larger than
//! memory. There are two passes. The first only looks: whether every page of the target may be written, and how many
//! pages the target has to be given, which must not be more than the account and the disk have. The second copies.
//! In it a piece first has all its reads asked for at once, then takes what it needs, and only then changes pages,
//! which cannot fail any more.
//!
//! So a call that fails has copied nothing, or whole pages from the first one on: where a page of the source is damaged,
//! or others took the memory that was there at the beginning.

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
    lives::continuation::Continuation,
    lives::thread::Caller,
    pages::clone::withhold,
    pages::page::Range,
    pages::pager::{Content, Place, index_of},
    pages::release::FLUSH_SINGLY,
    pages::slots::Slot,
};

/// Pages of a piece. A page costs some 200 instructions, so that one event stays below 20,000.
pub const PIECE_PAGES: u64 = 32;
/// Pieces of either pass that are done in one event.
const PIECES_AT_ONCE: u32 = 2;

/// The fate of a page of the target.
#[derive(Copy, Clone)]
enum Fate {
    /// It holds already what it should.
    Stays,
    /// It gets a frame, and these limits.
    Gets(Frame, Rights),
}

/// Limits of the pages of a piece.
type PieceLimits = [Rights; PIECE_PAGES as usize];

/// The sources of a piece: for each page a frame, with a reference that is ours, or zeroes.
struct Sources {
    frames: [Option<Frame>; PIECE_PAGES as usize],
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
        for _ in 0..PIECES_AT_ONCE {
            let begun = self.threads.record(caller.thread).continuation;
            self.threads.record(caller.thread).continuation = if let Continuation::Copies(done) = begun {
                let count = (pages - done).min(PIECE_PAGES);
                let done = done + self.copy_piece(world, part(source, done, count), part(target, done, count))?;
                if done == pages {
                    return Ok((0, 0));
                }
                Continuation::Copies(done)
            } else {
                let (seen, lacks) = match begun {
                    Continuation::CopyLooks { seen, lacks } => (seen, lacks),
                    _ => (0, 0),
                };
                let count = (pages - seen).min(PIECE_PAGES);
                let lacks = lacks + self.look_at(world, part(source, seen, count), part(target, seen, count))?;
                let seen = seen + count;
                if seen < pages {
                    Continuation::CopyLooks { seen, lacks }
                } else {
                    self.room_for(target.id, lacks)?;
                    Continuation::Copies(0)
                }
            };
        }
        Err(Stop::Again)
    }

    /// Whether a piece of the target may be written, and how many pages it lacks that the source has.
    fn look_at<W: World>(&mut self, world: &mut W, source: Range, target: Range) -> Step<u64> {
        let mut lacks = 0;
        for (from, to) in source.pages().zip(target.pages()) {
            if !self.limits_known(world, target.id, to)?.contains(Rights::W) {
                return Err(Error::Protection.into());
            }
            let stored = matches!(self.lookup(world, source.id, from), PageLookup::Stored(_));
            lacks += u64::from(stored && !self.is_resident(target.id, to));
        }
        Ok(lacks)
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
        if self.objects.get(target.id).is_persistent() {
            self.may_get_dirty(world, target.id)?;
        }
        for slot in slot_of(target.from)..=slot_of(target.to - 1) {
            let object = self.objects.get(target.id);
            let slot = slot - object.first_slot();
            if object.slots.get(slot).and_then(Slot::leaf).is_none() {
                self.make_leaf(world, target.id, slot)?;
            }
        }
        let mut limits: PieceLimits = [Rights::RWX; PIECE_PAGES as usize];
        for (index, address) in target.pages().enumerate() {
            limits[index] = self.limits_known(world, target.id, address)?;
            if !limits[index].contains(Rights::W) {
                return Err(Error::Protection.into());
            }
        }
        let sources = self.sources(world, source)?;
        // Should no page of the target have to be cleared, it goes back.
        let zeroes = if sources.frames[..sources.ready].iter().any(Option::is_none) {
            match self.frame(world, Content::Zeroes) {
                Ok(frame) => Some(frame),
                Err(stop) => {
                    sources.give_back(world);
                    return Err(stop);
                }
            }
        } else {
            None
        };
        let copied = self.give_frames(world, source, target, &sources, &limits, zeroes);
        sources.give_back(world);
        if let Some(frame) = zeroes {
            world.frame_release(frame);
        }
        Ok(copied?)
    }

    /// Finds the frames of a piece of the source, and asks for all that are on the disk.
    fn sources<W: World>(&mut self, world: &mut W, source: Range) -> Step<Sources> {
        let mut sources = Sources {
            frames: [None; PIECE_PAGES as usize],
            ready: 0,
        };
        let mut stopped = None;
        for (index, address) in source.pages().enumerate() {
            match self.peek(world, source.id, address) {
                // With our reference it stays, though memory for the others be short.
                Ok(entry) if stopped.is_none() => {
                    sources.frames[index] = entry.map(|entry| entry.frame);
                    sources.frames[index]
                        .into_iter()
                        .for_each(|frame| world.frame_share(frame));
                    sources.ready = index + 1;
                }
                Ok(_) => {}
                Err(stop) => {
                    stopped.get_or_insert(stop);
                    // Pages behind it are asked for too, as long as there is room.
                    if !matches!(stop, Stop::Wait(Key::Page(_))) {
                        break;
                    }
                }
            }
        }
        match stopped {
            Some(stop) if sources.ready == 0 => Err(stop),
            _ => Ok(sources),
        }
    }

    /// Takes what the target needs and then changes its pages; tells how many there are.
    fn give_frames<W: World>(
        &mut self,
        world: &mut W,
        source: Range,
        target: Range,
        sources: &Sources,
        limits: &PieceLimits,
        zeroes: Option<Frame>,
    ) -> Result<u64, Error> {
        let mut fates = [Fate::Stays; PIECE_PAGES as usize];
        let mut lacks = 0;
        for (index, address) in target.pages().enumerate().take(sources.ready) {
            let Some(frame) = self.content_of(world, target.id, address, sources.frames[index], zeroes) else {
                continue;
            };
            fates[index] = Fate::Gets(frame, limits[index]);
            lacks += u64::from(!self.is_resident(target.id, address));
        }
        let fates = &fates[..sources.ready];
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
            if sources.frames[index].is_some()
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
            self.note_dirty(id, slot, index);
            self.pager.failed.remove(address);
        }
        old
    }
}

impl Sources {
    /// Gives the references back.
    fn give_back<W: World>(self, world: &mut W) {
        let known = self.frames[..self.ready].iter().flatten();
        known.for_each(|&frame| world.frame_release(frame));
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
