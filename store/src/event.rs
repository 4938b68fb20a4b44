//! The plain types of the store's interface: what it takes, tells and refuses.

use crate::containers::Queue;
use crate::heap::NoHeap;
use crate::loss::Loss;
use crate::world::Frame;
use alloc::vec::Vec;

bitflags::bitflags! {
    /// The limits of one page, kept in its map entry: what *no* domain may exceed.
    /// The bits are those of [`abi::Rights`].
    #[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
    pub struct PageFlags: u16 {
        /// May be executed.
        const EXECUTE = 1;
        /// May be written.
        const WRITE = 2;
        /// May be read.
        const READ = 4;
        /// The other bits are kept as they are.
        const _ = !0;
    }
}

/// A changed page, handed over for writing. Its frame must not change until it comes back.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct DirtyPage {
    /// The object.
    pub base: u64,
    /// Page within the object.
    pub page: u64,
    /// The frame that has the contents.
    pub frame: Frame,
    /// Its limits.
    pub flags: PageFlags,
}

/// Names a sync until its event.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct Ticket(pub u64);

/// The purpose of a checkpoint.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum CheckpointKind {
    /// Life goes on. What is small is a record in the journal.
    Periodic,
    /// It makes a generation, however small it is: blocks that nothing needs come back after two of these.
    Generation,
    /// The last one before power-off: the next mount finds the store clean and loses no addresses.
    Shutdown,
}

/// Why a checkpoint or a sync failed. The last durable state stays valid.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Failure {
    /// The disk reported an error.
    Disk,
    /// No frame could be had.
    Memory,
    /// No block could be had: more was written than was reserved.
    DiskFull,
    /// A map node that was needed is damaged.
    Damaged,
    /// A checkpoint that it depended on failed.
    Checkpoint,
    /// The store is mounted read-only.
    ReadOnly,
}

/// Why a page could not be read.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum BadPage {
    /// The contents do not have the checksum that their map entry states.
    Checksum,
    /// A node of the page map on the way is damaged.
    Map,
    /// The disk reported an error.
    Disk,
    /// No frame could be had; try again.
    Memory,
    /// The object was deleted meanwhile.
    Gone,
    /// It was read ahead, together with others, and that failed. Nothing is known of the page itself: a read of it alone tells.
    Ahead,
}

/// Why rows of the object table could not be read.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum BadRows {
    /// Their leaf does not have the checksum that its parent states, or does not make sense: the objects in it cannot be reached.
    Rotten,
    /// The disk reported an error; try again.
    Disk,
    /// No frame or no heap could be had; try again.
    Memory,
}

/// The outcome of something that was begun.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Event {
    /// A page was read; the frame now belongs to the receiver.
    PageRead {
        /// The object.
        base: u64,
        /// Page within it.
        page: u64,
        /// The contents.
        frame: Frame,
        /// The limits.
        flags: PageFlags,
    },
    /// A page could not be read.
    PageBad {
        /// The object.
        base: u64,
        /// Page within it.
        page: u64,
        /// Why.
        reason: BadPage,
    },
    /// Rows were read, or could not be: those who [wait](crate::Store::read_rows) for them look again.
    RowsRead {
        /// The number by which they wait.
        key: u64,
    },
    /// The store no longer looks at the frame of this dirty page: it may be written to again. Its
    /// contents must stay in memory until the `…Done` of the same checkpoint or sync, for after a
    /// `…Failed` the page counts as dirty again, and the disk may not have it. Not told if the caller has said that it [takes pages back
    /// with the job](crate::Store::omit_pages).
    PageWritten {
        /// The object.
        base: u64,
        /// Page within it.
        page: u64,
        /// The frame, back in the caller's hands.
        frame: Frame,
    },
    /// A checkpoint is durable. Sent after the `PageWritten` of all its pages.
    CheckpointDone {
        /// Its generation.
        generation: u64,
    },
    /// A checkpoint failed; all its pages count as dirty. Sent after all their `PageWritten`.
    CheckpointFailed {
        /// Why.
        reason: Failure,
    },
    /// A sync is durable. Sent after the `PageWritten` of all its pages.
    SyncDone(Ticket),
    /// The journal has no room: the next checkpoint (with all dirty pages) makes it durable.
    /// Sent after the `PageWritten` of all its pages, none of which was written.
    SyncNeedsCheckpoint(Ticket),
    /// A sync failed; its pages count as dirty. Sent after the `PageWritten` of all of them.
    SyncFailed(Ticket, Failure),
    /// Damage was met on the way; what it costs shows when the pages concerned are read.
    Damaged {
        /// The damaged structure.
        structure: Structure,
        /// Where.
        block: u64,
        /// The object, or for rows of the table an address from which on the objects are concerned; zero if that is not known.
        base: u64,
        /// The first page concerned, for pages and maps.
        page: u64,
        /// The generation of the [snapshot](crate::Store::snapshot_from) that it is part of; zero for the present state, which may share it with some.
        snapshot: u64,
    },
}

/// Events that the caller has not taken yet, with room for those that will come.
#[derive(Default)]
pub(crate) struct Events {
    queue: Queue<Event>,
    /// Those that there is room for and that have not come.
    expected: usize,
    /// Whether pages come back with the job that they belong to, and nothing is told of each.
    pub(crate) omits_pages: bool,
}

impl Events {
    /// Finds heap for so many events, which will come.
    ///
    /// # Errors
    /// [`NoHeap`].
    pub(crate) fn expect(&mut self, more: usize) -> Result<(), NoHeap> {
        self.queue.reserve(self.queue.count() + self.expected + more)?;
        self.expected += more;
        Ok(())
    }

    /// Some will not come.
    pub(crate) fn forget(&mut self, fewer: usize) {
        self.expected -= fewer;
    }

    /// How many events so many pages take when they come back.
    pub(crate) fn of_pages(&self, pages: usize) -> usize {
        if self.omits_pages { 0 } else { pages }
    }

    /// A page comes back, which was [expected](Events::of_pages).
    pub(crate) fn tell_page(&mut self, page: &DirtyPage) {
        if !self.omits_pages {
            self.tell(written(page));
        }
    }

    /// One that was [expected](Events::expect).
    pub(crate) fn tell(&mut self, event: Event) {
        self.forget(1);
        self.queue.push_reserved(event);
    }

    /// One that may be left out.
    pub(crate) fn mention(&mut self, event: Event) {
        if self.expect(1).is_ok() {
            self.tell(event);
        }
    }

    /// The next one.
    pub(crate) fn take(&mut self) -> Option<Event> {
        self.queue.pop()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// The event that gives the frame of a page back.
pub(crate) fn written(page: &DirtyPage) -> Event {
    Event::PageWritten {
        base: page.base,
        page: page.page,
        frame: page.frame,
    }
}

/// How a read began.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum ReadStart {
    /// The page was never written: zeroes, and the limits if any were set.
    Zero(Option<PageFlags>),
    /// [`Event::PageRead`] or [`Event::PageBad`] will come.
    Reading,
    /// There is no heap to note that it is read; try again.
    NoMemory,
}

/// The facts known at once about a page.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum PageLookup {
    /// Never written and without limits: zeroes.
    Absent,
    /// No contents (zeroes), but limits.
    Zero(PageFlags),
    /// Contents on the disk.
    Stored(PageFlags),
    /// A map node must be read first; `read_page` does it.
    Unknown,
}

/// Why a checkpoint was not begun.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum NotBegun {
    /// One is running or waiting already.
    Busy,
    /// There is no heap for it.
    Memory,
}

/// There is no room for this.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum NoRoom {
    /// The disk has no block for it. Blocks set free by deletions come back after the two next checkpoints.
    Disk,
    /// There is no heap to note it; nothing was changed.
    Memory,
}

/// Why an object was not deleted.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum DeleteError {
    /// There is none.
    NoObject,
    /// There is no heap to note it.
    Memory,
}

/// Why a record was not taken.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum PutError {
    /// The base is not at a page, or the object has no page or too many for the address width.
    Range,
    /// Another object is there.
    Overlap,
    /// More capabilities, PDX records or entry points than an object may have, or undefined rights.
    Limits,
    /// The deletion of an object at that base is not yet in a checkpoint.
    DeletionPending,
    /// No block for it.
    DiskFull,
    /// No heap for it.
    Memory,
    /// A leaf of the table that it needs is not in memory: [`Store::find_near`](crate::Store::find_near) tells which.
    Absent,
}

/// Leaves of the object table that are in memory.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Leaves {
    /// All of them, from the mount on.
    All,
    /// Those that are needed, and so many others at most. An object whose pages or row are used must be [held](crate::Store::hold).
    AsNeeded(usize),
}

/// How to mount.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum MountMode {
    /// Recover, commit a new generation, go on. Refused with [`MountError::Loss`] where that would put something
    /// over what could not be read.
    ReadWrite,
    /// Recover in memory only; nothing is written.
    ReadOnly,
    /// As [`MountMode::ReadWrite`], also where that makes a loss final. Only on a person's word.
    AcceptLoss,
}

/// How to format.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct FormatOptions {
    /// Width of addresses: 47 or 56.
    pub address_bits: u32,
    /// The first slot number that may be issued.
    pub first_slot: u64,
    /// Blocks in each of the two journal regions, or `None` for a size that suits the disk.
    pub journal_blocks: Option<u32>,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            address_bits: abi::address::ADDRESS_BITS,
            first_slot: 0,
            journal_blocks: None,
        }
    }
}

/// Why a disk was not formatted.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum FormatError {
    /// Fewer blocks than the smallest store needs (given).
    TooSmall(u64),
    /// More blocks than the format can describe (given).
    TooLarge(u64),
    /// The address width is neither 47 nor 56.
    AddressBits,
    /// The disk reported an error.
    Disk,
    /// No frame could be had.
    Memory,
}

/// Which structure is damaged.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Structure {
    /// The superblocks.
    Superblock,
    /// The allocation bitmap or its index.
    Bitmap,
    /// The object table.
    Table,
    /// A page map.
    Map,
    /// The journal.
    Journal,
    /// The contents of a page.
    Page,
    /// The blocks that tell of snapshots.
    Snapshots,
}

/// Why a disk was not mounted. Nothing was written to it.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum MountError {
    /// Not a Gondwana disk.
    Foreign,
    /// The store is larger (first, in blocks) than the disk (second).
    Truncated(u64, u64),
    /// A structure without which there is no safe mount is damaged, at this block.
    Damaged(Structure, u64),
    /// Written by a newer system: its format version.
    Newer(u32),
    /// It has features that this system does not know, without which it cannot be read, or not be written to: their bits.
    Features(u64),
    /// For another address width (given).
    AddressBits(u32),
    /// The disk reported an error, where something stable may be.
    Disk,
    /// No frame could be had.
    Memory,
    /// There is no heap for the allocation bitmaps of a disk of so many blocks: they take so many bytes.
    TooLarge {
        /// Blocks of the store.
        blocks: u64,
        /// Bytes of heap.
        heap: u64,
    },
    /// Recovery could not commit a generation.
    Recovery(Failure),
    /// Something stable is lost, and a new generation would go over what could not be read. This is the
    /// first loss; a read-only mount reports all.
    Loss(Loss),
}

/// Why the end of the journal was not replayed.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum TailReason {
    /// A record of this generation is incomplete: the power failed while it was written.
    Torn,
    /// A page of the last record is not as the record says: the power failed while it was written.
    Data,
    /// A complete record that does not continue the chain before it.
    Chain,
    /// A record whose contents make no sense although its checksum holds.
    Nonsense,
    /// The disk reports an error where a record may be, or a page of the last one.
    Unread,
}

/// A discarded end of the journal. No part of it had been acknowledged unless the disk rotted.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Tail {
    /// Sequence number of the first record that is missing.
    pub sequence: u64,
    /// Why.
    pub reason: TailReason,
    /// Intact records of this generation found *behind* it: not zero means bit rot.
    pub stranded: u32,
}

/// The findings of a mount.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct MountReport {
    /// The generation that was found.
    pub generation: u64,
    /// Block of the superblock copy that was used, 0 to 3.
    pub superblock: u64,
    /// Superblock copies that are unreadable. One pair is normal after a crash during a commit.
    pub bad_superblocks: Vec<u64>,
    /// Whether the last power-off was clean.
    pub clean: bool,
    /// Journal records replayed.
    pub replayed: u32,
    /// The discarded end of the journal, if any.
    pub tail: Option<Tail>,
    /// Damage found that did not prevent the mount.
    pub damage: Vec<(Structure, u64)>,
    /// Things that were stable and are lost; always empty after [`MountMode::ReadWrite`].
    pub losses: Vec<Loss>,
    /// The first slot number that may be issued.
    pub first_slot: u64,
}

/// Figures of a mounted store.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct Stats {
    /// Blocks of the store, all included.
    pub blocks: u64,
    /// Blocks of data and tree nodes that may be allocated now.
    pub free: u64,
    /// Blocks set free that come back after the next checkpoints.
    pub held: u64,
    /// Blocks promised (pages not yet written, nodes to be rewritten, the emergency pool).
    pub reserved: u64,
    /// The last durable generation.
    pub generation: u64,
    /// Objects in the table.
    pub objects: u64,
    /// Map nodes in memory.
    pub map_nodes: u64,
    /// Nodes of the object table in memory.
    pub table_nodes: u64,
    /// Blocks written since the mount.
    pub writes: u64,
    /// Blocks read since the mount.
    pub reads: u64,
    /// Flushes since the mount.
    pub flushes: u64,
    /// Journal blocks in use in this generation.
    pub journal_used: u64,
    /// Damaged pages and nodes met since the mount.
    pub damaged: u64,
}
