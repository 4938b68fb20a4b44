//! Pages of persistent objects that are not resident: what the store says of them, and their way in.
//!
//! A page is asked for once, whoever waits for it; all wait on its address. A read that failed
//! is told to the next who asks, and then tried again: never is a page that cannot be read taken
//! for zeroes.

use abi::{
    Error, Rights,
    address::{PAGE, slot_of},
};
use kcore::{Frame, PageEntry, wait::Key};
use store::{BadPage, PageFlags, PageLookup, ReadStart};

use crate::{
    Server, Step, Stop, World,
    directory::object::ObjectId,
    lives::budget::Cost,
    pages::pager::{FRAME_RESERVE, Place, absent_limits, from_flags, index_of},
};

/// The cost of asking for a page, in instructions, roughly.
const COST_READ: Cost = Cost::calling(2_000, 2);

/// The cost of asking for a further page with the same request.
const COST_AHEAD: Cost = Cost::calling(450, 1);

/// The most that the store may do at once to begin the read and the one that was asked for before. With all that was left it also took up what had been written for others, and a fault was 27,000
/// instructions long.
const COST_BEGIN: Cost = Cost::calling(5_000, 4);

/// Pages that may be on their way from the disk: more than it works on at once.
pub(crate) const READS_MAX: usize = 256;

impl Server {
    /// The frame of a page that is resident; nothing if the page is zero and not resident.
    ///
    /// # Errors
    /// The need to wait for the disk; [`Error::DiskError`].
    pub(crate) fn peek<W: World>(&mut self, world: &mut W, id: ObjectId, address: u64) -> Step<Option<PageEntry>> {
        loop {
            let object = self.objects.get(id);
            let leaf = self.leaf_at(id, address);
            if let Some(entry) = leaf.and_then(|leaf| world.leaf_get(leaf, index_of(address))) {
                return Ok(Some(entry));
            }
            if !object.is_persistent() || object.is_complete() || self.stored(world, id, address)?.is_some() {
                return Ok(None);
            }
        }
    }

    /// The limits of a page that is not resident.
    pub(crate) fn limits_of_absent<W: World>(
        &mut self,
        world: &mut W,
        id: ObjectId,
        address: u64,
    ) -> Step<Option<Rights>> {
        let object = self.objects.get(id);
        if !object.is_persistent() || address < object.known {
            return Ok(Some(absent_limits(&object.absent_limits, object.page_of(address))));
        }
        self.stored(world, id, address)
    }

    /// Asks the store for a page that is not resident: its limits if it is zero. If the disk has it
    /// the caller waits, or finds it resident by now (`None`).
    #[cold]
    pub(crate) fn stored<W: World>(&mut self, world: &mut W, id: ObjectId, address: u64) -> Step<Option<Rights>> {
        let object = self.objects.get(id);
        let (base, page) = (object.base(), object.page_of(address));
        let address = object.address_of(page);
        if let Some(error) = self.pager.failed.remove(address) {
            return Err(error.into());
        }
        if !self.pager.reading.has(address) {
            // Nobody pays for reads under way, so they have a bound.
            if let Some(first) = self.pager.reading.first_key().filter(|_| self.has_all_reads()) {
                return Err(Stop::Wait(Key::Page(first)));
            }
            // The store takes a frame for what it reads.
            let is_short = world.frames_free() <= FRAME_RESERVE;
            while world.frames_free() <= FRAME_RESERVE {
                self.make_room(world)?;
            }
            if is_short && self.reads_in_vain(address) {
                return Err(Error::NoMemory.into());
            }
            let mut most = self.pages_ahead(world, id, address);
            if self.pager.expect_reads(most).is_err() {
                most = 1;
                self.pager.expect_reads(most)?;
            }
            let behind = match self.store.read_pages(world, base, page, most) {
                (ReadStart::Zero(flags), _) => {
                    self.pager.ahead.goes_on_at(address + PAGE);
                    return Ok(Some(flags.map_or(Rights::RWX, from_flags)));
                }
                (ReadStart::NoMemory, _) => return Err(Error::NoMemory.into()),
                (ReadStart::Reading, behind) => behind,
            };
            for ahead in 0..=behind as u64 {
                self.pager.reading.insert(address + ahead * PAGE, ())?;
            }
            self.pager.ahead.goes_on_at(address + (behind as u64 + 1) * PAGE);
            self.budget.spend(COST_AHEAD.times(behind as u64));
            // It needs a page table when it arrives, and nobody would know then who has asked for it.
            if self.leaf_at(id, address).is_none() {
                self.make_leaf(world, id, slot_of(address) - self.objects.get(id).first_slot())?;
            }
            // What has come meanwhile, and checkpoints, go on in events of their own.
            self.budget.spend(COST_READ);
            let rest = self.budget.narrow(COST_BEGIN);
            self.poll_store(world);
            self.budget.widen(rest);
        }
        if self.pager.reading.has(address) {
            Err(Stop::Wait(Key::Page(address)))
        } else {
            Ok(None)
        }
    }

    /// Whether as many pages are on their way as may be.
    pub(crate) fn has_all_reads(&self) -> bool {
        self.pager.reading.count() >= READS_MAX
    }

    /// A page that the store has read.
    pub(crate) fn page_arrived<W: World>(
        &mut self,
        world: &mut W,
        base: u64,
        page: u64,
        frame: Frame,
        flags: PageFlags,
    ) {
        let address = base + page * PAGE;
        let expected = self.pager.reading.remove(address).is_some();
        let id = self
            .objects
            .find(address)
            .filter(|&id| expected && self.objects.get(id).base() == base);
        // The limits may have changed since the read was asked for.
        let flags = match self.store.page_flags(world, base, page) {
            PageLookup::Stored(now) | PageLookup::Zero(now) => now,
            PageLookup::Absent | PageLookup::Unknown => flags,
        };
        if !id.is_some_and(|id| self.place_read(world, id, address, frame, flags)) {
            world.frame_release(frame);
        }
        world.wake(Key::Page(address), u32::MAX);
    }

    /// Installs a page that was read, unless something took its place meanwhile; tells whether it did. A page whose table was taken back is read again when it is touched.
    fn place_read<W: World>(
        &mut self,
        world: &mut W,
        id: ObjectId,
        address: u64,
        frame: Frame,
        flags: PageFlags,
    ) -> bool {
        let Some(leaf) = self.leaf_at(id, address) else {
            return false;
        };
        let slot = slot_of(address) - self.objects.get(id).first_slot();
        let index = index_of(address);
        if world.leaf_get(leaf, index).is_some() {
            return false;
        }
        self.install(
            world,
            Place {
                id,
                slot,
                leaf,
                index,
                address,
            },
            PageEntry::new(frame, from_flags(flags)).withheld(),
        );
        self.pager.queues.arrived(frame.number(), address);
        true
    }

    /// A page that the store could not read.
    pub(crate) fn page_failed<W: World>(&mut self, world: &mut W, base: u64, page: u64, reason: BadPage) {
        let address = base + page * PAGE;
        if self.pager.reading.remove(address).is_none() {
            return;
        }
        if reason == BadPage::Ahead {
            // Nobody has touched it, or those who have ask for it alone.
            self.pager.ahead.fails(address);
            world.wake(Key::Page(address), u32::MAX);
            return;
        }
        let error = if reason == BadPage::Memory {
            Error::NoMemory
        } else {
            Error::DiskError
        };
        if error == Error::DiskError {
            self.say(world, format_args!("page {address:#x} cannot be read: {reason:?}"));
        }
        self.pager.note_failed(address, error);
        world.wake(Key::Page(address), u32::MAX);
    }
}
