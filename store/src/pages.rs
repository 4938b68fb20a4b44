//! Pages: what is known of one at once, and reading one.

use crate::event::{BadPage, Event, PageFlags, PageLookup, ReadStart};
use crate::heap::NoHeap;
use crate::io::Purpose;
use crate::map::{Entry, Missing, Walk};
use crate::store::{COST_LOOK, COST_READ, Store};
use crate::world::{DiskError, Frame, Operation, World};

/// A page being read.
pub(crate) struct Read {
    base: u64,
    page: u64,
    /// The durable generation when it began.
    pub(crate) generation: u64,
    /// Taken when the read begins: a caller that asks for more than memory holds is told at once, and reads that go on need nothing.
    frame: Frame,
    /// Where the contents stand, once they are on their way.
    arriving: Option<Entry>,
}

/// How far the reads that wait for nodes were looked at. Reads are numbered in the order in which they began.
#[derive(Default)]
pub(crate) struct Pass {
    /// The next one to be looked at, and the end of the pass; behind that stand reads that began later.
    at: u64,
    end: u64,
    /// Whether a node came since the pass began, so that there has to be another one.
    pub(crate) again: bool,
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
        if self.expect_page().is_err() {
            return ReadStart::NoMemory;
        }
        let Some(frame) = world.alloc() else {
            return ReadStart::NoMemory;
        };
        let read = Read {
            base,
            page,
            generation: self.generation,
            frame,
            arriving: None,
        };
        let noted = self.page_reads.insert(self.next_read, read);
        debug_assert!(noted.is_ok(), "room was made");
        self.next_read += 1;
        self.awake = true;
        ReadStart::Reading
    }

    /// Finds heap for one more page to be read.
    fn expect_page(&mut self) -> Result<(), NoHeap> {
        self.expect_read()?;
        self.page_reads.reserve(self.page_reads.count() + 1)?;
        self.events.expect(1)
    }

    /// Lets the reads go on that have just begun, and with a node that came those that wait for one, as far as the budget reaches; tells whether
    /// all had their turn.
    pub(crate) fn advance_reads(&mut self, world: &mut impl World) -> bool {
        loop {
            let Pass { at, end, .. } = self.pass;
            if let Some((id, read)) = self.page_reads.from(at).filter(|&(id, _)| id < end) {
                let waits = read.arriving.is_none();
                let cost = if waits { COST_READ } else { COST_LOOK };
                if !self.may_go_on(cost) {
                    return false;
                }
                self.spend(cost);
                self.pass.at = id + 1;
                if waits {
                    self.advance_read(world, id);
                }
            } else if core::mem::take(&mut self.pass.again) {
                self.pass.at = 0;
                self.pass.end = self.next_read;
            } else if end < self.next_read {
                self.pass.at = end;
                self.pass.end = self.next_read;
            } else {
                return true;
            }
        }
    }

    fn advance_read(&mut self, world: &mut impl World, id: u64) {
        let Some(&Read { base, page, frame, .. }) = self.page_reads.get_ref(id) else {
            return;
        };
        let outcome = match self.view(world, base, page) {
            View::Gone => Err(BadPage::Gone),
            View::Lost => Err(BadPage::Map),
            View::Missing(missing) => match self.load(world, missing) {
                Ok(()) => return,
                Err(reason) => Err(reason),
            },
            View::Zero(limits) => {
                world.bytes_mut(frame).fill(0);
                Ok(limits.unwrap_or_default())
            }
            View::Stored(entry) if !self.geometry.is_data(entry.block) => Err(BadPage::Checksum),
            View::Stored(entry) => {
                if let Some(read) = self.page_reads.get_mut(id) {
                    read.arriving = Some(entry);
                }
                self.io
                    .submit(world, Operation::Read, entry.block, frame, Purpose::Page(id));
                return;
            }
        };
        self.page_reads.remove(id);
        self.tell(world, (base, page), frame, outcome);
    }

    pub(crate) fn page_arrived(&mut self, world: &mut impl World, id: u64, result: Result<(), DiskError>) {
        let Some(Read {
            base,
            page,
            frame,
            arriving: Some(entry),
            ..
        }) = self.page_reads.remove(id)
        else {
            return;
        };
        let outcome = if result.is_err() {
            Err(BadPage::Disk)
        } else if self.checksums.fit(entry.checksum, entry.block, world.bytes(frame)) {
            Ok(entry.flags)
        } else {
            Err(BadPage::Checksum)
        };
        self.tell(world, (base, page), frame, outcome);
    }

    fn tell(
        &mut self,
        world: &mut impl World,
        (base, page): (u64, u64),
        frame: Frame,
        outcome: Result<PageFlags, BadPage>,
    ) {
        let event = match outcome {
            Ok(flags) => Event::PageRead {
                base,
                page,
                frame,
                flags,
            },
            Err(reason) => {
                world.free(frame);
                self.damaged += u64::from(matches!(reason, BadPage::Checksum | BadPage::Map));
                Event::PageBad { base, page, reason }
            }
        };
        self.events.tell(event);
    }
}
