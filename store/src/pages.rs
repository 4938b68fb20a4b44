//! Pages: what is known of one at once, and reading one.

use crate::containers::{Boxed, boxed};
use crate::event::{BadPage, Event, PageFlags, PageLookup, ReadStart};
use crate::heap::NoHeap;
use crate::io::Purpose;
use crate::map::{Entry, Missing, Walk};
use crate::store::{COST_LOOK, COST_READ, Store};
use crate::world::{DiskError, Frame, Operation, RUN_MAX, World};

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
    /// The pages behind it that come with the same request.
    behind: Option<Boxed<Behind>>,
    /// Whether it was read wrong before.
    again: bool,
}

/// The pages of a run behind the first one.
struct Behind {
    pages: [(Frame, Entry); RUN_MAX - 1],
    count: usize,
    /// Those that were told, once the run has arrived.
    told: usize,
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
        if let Some(entry) = self.ahead.get(base, page) {
            let flags = limits.unwrap_or(entry.flags);
            return View::Stored(Entry { flags, ..entry });
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
        self.read_pages(world, base, page, 1).0
    }

    /// The same of a page and of some behind it, `most` in all, where one request of the disk can have them: they lie in neighbouring blocks, and what says so is in
    /// memory. Tells how many behind the first one are read. Each page has an event and a frame of its own. If the request fails, the first page is read alone, and the others are [`BadPage::Ahead`].
    pub fn read_pages(&mut self, world: &mut impl World, base: u64, page: u64, most: usize) -> (ReadStart, usize) {
        let view = self.view(world, base, page);
        if let View::Zero(limits) = view {
            return (ReadStart::Zero(limits), 0);
        }
        if self.expect_page().is_err() {
            return (ReadStart::NoMemory, 0);
        }
        let Some(frame) = world.alloc() else {
            return (ReadStart::NoMemory, 0);
        };
        let mut read = Read {
            base,
            page,
            generation: self.generation,
            frame,
            arriving: None,
            behind: None,
            again: false,
        };
        let mut count = 0;
        if let View::Stored(entry) = view
            && self.geometry.is_data(entry.block)
        {
            // Nothing has to be read first.
            read.arriving = Some(entry);
            if most > 1 {
                read.behind = self.begin_run(world, &read, entry, most);
            }
            if let Some(behind) = &read.behind {
                count = behind.count;
            } else {
                let purpose = Purpose::Page(self.next_read);
                self.io.submit(world, Operation::Read, entry.block, frame, purpose);
            }
        }
        let noted = self.page_reads.insert(self.next_read, read);
        debug_assert!(noted.is_ok(), "room was made");
        self.next_read += 1;
        self.awake = true;
        (ReadStart::Reading, count)
    }

    /// Asks for a page and for those behind it that lie in the next blocks, in one request. Nothing has changed if that is not to be had: no such page, no memory, or a disk that
    /// takes no such request now.
    fn begin_run(&mut self, world: &mut impl World, read: &Read, first: Entry, most: usize) -> Option<Boxed<Behind>> {
        let Read { base, page, frame, .. } = *read;
        let most = most.min(RUN_MAX);
        let pages = self.object(base)?.pages;
        // Changes that are not in the maps yet stand in lists, which tell of single pages.
        if self.pending.by_object().get_ref(base).is_some() || self.settling.get_ref(base).is_some() {
            return None;
        }
        if self.ahead.has(base, page, page.saturating_add(most as u64)) {
            return None;
        }
        let mut behind = boxed(Behind {
            pages: [(frame, Entry::NONE); RUN_MAX - 1],
            count: 0,
            told: 0,
        })
        .ok()?;
        let mut count = 0;
        let map = self.table.get(base)?.map;
        let wanted = (most as u64).min(pages.saturating_sub(page)).saturating_sub(1);
        for (entry, block) in self
            .maps
            .entries_behind(world, base, &map, page)
            .take(wanted as usize)
            .zip(first.block + 1..)
        {
            if entry.block != block {
                break;
            }
            behind.pages[count].1 = entry;
            count += 1;
        }
        if count == 0 || !self.geometry.is_data(first.block + count as u64) {
            return None;
        }
        let mut frames = [frame; RUN_MAX];
        for place in 0..count {
            let Some(frame) = world.alloc() else {
                break;
            };
            behind.pages[place].0 = frame;
            behind.count += 1;
            frames[behind.count] = frame;
        }
        let count = behind.count;
        let begun = count > 0 && self.events.expect(count).is_ok() && {
            let begun = self
                .io
                .read_run(world, first.block, &frames[..=count], Purpose::Run(self.next_read));
            if !begun {
                self.events.forget(count);
            }
            begun
        };
        if !begun {
            frames[1..=count].iter().for_each(|&frame| world.free(frame));
        }
        begun.then_some(behind)
    }

    /// A run has come, well or not: one of its pages is told, the first one last, so that those who wait for it find the others there. Tells whether there are further ones.
    pub(crate) fn run_arrived(&mut self, world: &mut impl World, id: u64, result: Result<(), DiskError>) -> bool {
        let Some(read) = self.page_reads.get_mut(id) else {
            return false;
        };
        let (Some(entry), Some(behind)) = (read.arriving, read.behind.as_mut()) else {
            return false;
        };
        if behind.told < behind.count {
            let (base, (frame, entry)) = (read.base, behind.pages[behind.told]);
            behind.told += 1;
            let page = read.page + behind.told as u64;
            let fits = result.is_ok() && self.checksums.fit(entry.checksum, entry.block, world.bytes(frame));
            let outcome = if fits { Ok(entry.flags) } else { Err(BadPage::Ahead) };
            self.tell(world, (base, page), frame, outcome);
            return true;
        }
        read.behind = None;
        if result.is_ok() {
            self.page_arrived(world, id, result);
        } else {
            // Which of the blocks cannot be read is not known.
            let frame = read.frame;
            self.io
                .submit(world, Operation::Read, entry.block, frame, Purpose::Page(id));
        }
        false
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
        let Some(&mut Read {
            base,
            page,
            frame,
            arriving: Some(entry),
            ref mut again,
            ..
        }) = self.page_reads.get_mut(id)
        else {
            return;
        };
        let fits = result.is_ok() && self.checksums.fit(entry.checksum, entry.block, world.bytes(frame));
        if !fits && !core::mem::replace(again, true) {
            // What is read wrong once is not blamed.
            self.io
                .submit(world, Operation::Read, entry.block, frame, Purpose::Page(id));
            return;
        }
        self.page_reads.remove(id);
        let outcome = if result.is_err() {
            Err(BadPage::Disk)
        } else if fits {
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
