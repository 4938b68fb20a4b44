//! Pages: what is known of one at once, and reading one.

use crate::event::{BadPage, Event, PageFlags, PageLookup, ReadStart};
use crate::heap::NoHeap;
use crate::io::Purpose;
use crate::map::{Entry, Missing, Walk};
use crate::store::{COST_READ, Store};
use crate::world::{DiskError, Frame, Operation, World};

/// A page being read.
pub(crate) struct Read {
    base: u64,
    page: u64,
    /// The durable generation when it began.
    pub(crate) generation: u64,
    /// The frame, once the contents are on their way.
    arriving: Option<(Frame, Entry)>,
}

/// A page as lookups see it, all pending changes included.
pub(crate) enum View {
    /// There is no such object.
    Gone,
    /// Zeroes, with limits if any were set.
    Zero(Option<PageFlags>),
    /// Contents at this entry.
    Stored(Entry),
    /// A node must be read first.
    Missing(Missing),
    /// The contents are lost.
    Lost,
}

impl Store {
    pub(crate) fn view(&self, world: &impl World, base: u64, page: u64) -> View {
        let Some(record) = self.object(base) else {
            return View::Gone;
        };
        if page >= record.pages {
            return View::Zero(None);
        }
        let mut limits = None;
        for changes in [self.pending.by_object().get_ref(base), self.settling.get_ref(base)]
            .into_iter()
            .flatten()
        {
            limits = limits.or_else(|| changes.flags.get(page));
            if changes.is_zeroed(page) {
                return View::Zero(limits);
            }
        }
        let Some(row) = self.table.get(base) else {
            return View::Zero(limits);
        };
        match self.maps.walk(world, base, &row.map, page) {
            Walk::Missing(missing) => View::Missing(missing),
            Walk::Lost => View::Lost,
            Walk::Entry(entry) => {
                let entry = Entry {
                    flags: limits.unwrap_or(entry.flags),
                    ..entry
                };
                if entry.block != 0 {
                    View::Stored(entry)
                } else if entry.is_none() {
                    View::Zero(limits)
                } else {
                    View::Zero(Some(entry.flags))
                }
            }
        }
    }

    /// The facts known at once about a page.
    pub fn page_flags(&self, world: &impl World, base: u64, page: u64) -> PageLookup {
        match self.view(world, base, page) {
            View::Gone | View::Zero(None) => PageLookup::Absent,
            View::Zero(Some(flags)) => PageLookup::Zero(flags),
            View::Stored(entry) => PageLookup::Stored(entry.flags),
            View::Missing(_) => PageLookup::Unknown,
            View::Lost => PageLookup::Stored(PageFlags::empty()),
        }
    }

    /// Begins to read a page, or says that it is zero. Each call that gives [`ReadStart::Reading`] is
    /// answered by one event; a caller that asks twice gets two frames.
    pub fn read_page(&mut self, world: &mut impl World, base: u64, page: u64) -> ReadStart {
        if let View::Zero(limits) = self.view(world, base, page) {
            return ReadStart::Zero(limits);
        }
        let read = Read {
            base,
            page,
            generation: self.generation,
            arriving: None,
        };
        if self.expect_page().is_err() || self.page_reads.insert(self.next_read, read).is_err() {
            return ReadStart::NoMemory;
        }
        self.next_read += 1;
        self.reads_due = true;
        self.awake = true;
        ReadStart::Reading
    }

    /// Finds heap for one more page to be read.
    fn expect_page(&mut self) -> Result<(), NoHeap> {
        self.expect_read()?;
        self.page_reads.reserve(self.page_reads.count() + 1)?;
        self.events.expect(1)
    }

    /// Lets every read that waits for a node go on. All at once, whatever the budget: each takes its frame here, so that
    /// a caller that asks for more than memory holds is told, and does not have pages brought in and taken away again for ever.
    pub(crate) fn advance_reads(&mut self, world: &mut impl World) {
        let mut next = 0;
        while let Some((id, read)) = self.page_reads.from(next) {
            next = id + 1;
            if read.arriving.is_none() {
                self.spend(COST_READ);
                self.advance_read(world, id);
            }
        }
    }

    fn advance_read(&mut self, world: &mut impl World, id: u64) {
        let Some(&Read { base, page, .. }) = self.page_reads.get_ref(id) else {
            return;
        };
        let outcome = match self.view(world, base, page) {
            View::Gone => Err(BadPage::Gone),
            View::Lost => Err(BadPage::Map),
            View::Missing(missing) => match self.load(world, missing) {
                Ok(()) => return,
                Err(reason) => Err(reason),
            },
            View::Zero(limits) => match world.alloc() {
                None => Err(BadPage::Memory),
                Some(frame) => {
                    world.bytes_mut(frame).fill(0);
                    Ok((frame, limits.unwrap_or_default()))
                }
            },
            View::Stored(entry) => match world.alloc() {
                None => Err(BadPage::Memory),
                Some(frame) if !self.geometry.is_data(entry.block) => {
                    world.free(frame);
                    Err(BadPage::Checksum)
                }
                Some(frame) => {
                    if let Some(read) = self.page_reads.get_mut(id) {
                        read.arriving = Some((frame, entry));
                    }
                    self.io
                        .submit(world, Operation::Read, entry.block, frame, Purpose::Page(id));
                    return;
                }
            },
        };
        self.page_reads.remove(id);
        self.tell(base, page, outcome);
    }

    pub(crate) fn page_arrived(&mut self, world: &mut impl World, id: u64, result: Result<(), DiskError>) {
        let Some(Read {
            base,
            page,
            arriving: Some((frame, entry)),
            ..
        }) = self.page_reads.remove(id)
        else {
            return;
        };
        let outcome = if result.is_err() {
            Err(BadPage::Disk)
        } else if self.key.checksum(entry.block, world.bytes(frame)) == entry.checksum {
            Ok((frame, entry.flags))
        } else {
            Err(BadPage::Checksum)
        };
        if outcome.is_err() {
            world.free(frame);
        }
        self.tell(base, page, outcome);
    }

    fn tell(&mut self, base: u64, page: u64, outcome: Result<(Frame, PageFlags), BadPage>) {
        let event = match outcome {
            Ok((frame, flags)) => Event::PageRead {
                base,
                page,
                frame,
                flags,
            },
            Err(reason) => {
                self.damaged += u64::from(matches!(reason, BadPage::Checksum | BadPage::Map));
                Event::PageBad { base, page, reason }
            }
        };
        self.events.tell(event);
    }
}
