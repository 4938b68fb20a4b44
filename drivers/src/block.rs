//! virtio-blk (5.2): a disk of 4 KiB blocks.
//!
//! Requests are queued with a tag of the caller's and come back, in any order, with the tag and a
//! result. A request is a chain of three: a header the device reads, the page of data, a status
//! byte the device writes; a flush has no data. Headers and status bytes of all requests share one
//! page, 32 bytes each.
//!
//! **Flush.** A device that offers `VIRTIO_BLK_F_FLUSH` may hold completed writes in a volatile
//! cache; a flush makes all writes durable whose completion was taken before the flush was
//! submitted. One that does not offer it writes through ([`WriteCache::Through`]): then a flush
//! completes at once, because by the same rule nothing is left to do.
//!
//! **When the device breaks** (a used ring that contradicts the driver's record, or its status says
//! so) it is reset, each request it held completes with [`DiskError::DeviceLost`], exactly once,
//! and nothing more is accepted.

use crate::dma::DataPage;
use crate::pci::{Address, Pci};
use crate::virtio::queue::{Direction, MOST_DESCRIPTORS, Queue, Segment};
use crate::virtio::transport::Transport;
use crate::virtio::{ProbeError, Signal};
use crate::world::{DmaMemory, Mmio, PAGE_BYTES, Ports, World};
use core::fmt;
use store::world::{Operation, RUN_MAX};

/// Bytes in a block, the unit of every transfer.
pub const BLOCK_BYTES: usize = PAGE_BYTES;

/// virtio's sectors, whatever the disk's own are.
const SECTORS_PER_BLOCK: u64 = BLOCK_BYTES as u64 / 512;

const FEATURE_MOST_SEGMENTS: u64 = 1 << 2;
const FEATURE_READ_ONLY: u64 = 1 << 5;
const FEATURE_FLUSH: u64 = 1 << 9;

/// In the device's structure: its size in sectors, eight bytes; and where [`FEATURE_MOST_SEGMENTS`] is agreed on, the most segments that
/// a request's data may have.
const CAPACITY: usize = 0;
const MOST_SEGMENTS: usize = 12;
const DEVICE_BYTES: usize = 16;

const TYPE_READ: u32 = 0;
const TYPE_WRITE: u32 = 1;
const TYPE_FLUSH: u32 = 4;

const STATUS_OK: u8 = 0;
const STATUS_FAILED: u8 = 1;
const STATUS_UNSUPPORTED: u8 = 2;
/// Stands in the status byte until the device has written one.
const STATUS_NONE: u8 = 0xff;

const DESCRIPTORS_PER_REQUEST: u16 = 3;

/// The most requests that can be with the device: what a full-size queue holds.
const MOST_REQUESTS: usize = (MOST_DESCRIPTORS / DESCRIPTORS_PER_REQUEST) as usize;

/// A request's part of the shared page: {type u32, zero u32, sector u64}, then the status byte.
const RECORD_BYTES: usize = 32;
const RECORD_SECTOR: usize = 8;
const RECORD_STATUS: usize = 16;
const HEADER_BYTES: u32 = 16;

/// A request to the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Fill `page` from `block`.
    Read {
        /// Number of the block, from 0.
        block: u64,
        /// Where its contents go.
        page: DataPage,
    },
    /// Put `page` into `block`.
    Write {
        /// Number of the block, from 0.
        block: u64,
        /// Its new contents.
        page: DataPage,
    },
    /// Make durable every write whose completion was taken before.
    Flush,
}

/// Why a request was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubmitError {
    /// As many requests as the queue holds are out: take completions, then try again.
    QueueFull,
    /// The disk has no such block.
    OutOfRange,
    /// A write to a read-only disk.
    ReadOnly,
    /// The device broke; it will not work again.
    DeviceLost,
}

/// How a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskError {
    /// The device reports an I/O error. What the page of a read, or the block of a write, holds is
    /// unknown.
    Failed,
    /// The device does not know this kind of request.
    Unsupported,
    /// The device gave the request back with a status that means nothing.
    BadStatus(u8),
    /// The device broke before it answered. Whether a write was done is unknown.
    DeviceLost,
}

impl fmt::Display for DiskError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskError::Failed => formatter.write_str("I/O error"),
            DiskError::Unsupported => formatter.write_str("request not supported by the disk"),
            DiskError::BadStatus(status) => write!(formatter, "status {status:#04x} from the disk means nothing"),
            DiskError::DeviceLost => formatter.write_str("the disk stopped working"),
        }
    }
}

impl core::error::Error for DiskError {}

/// The meaning of a completed write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteCache {
    /// It may be in a volatile cache until a flush.
    Back,
    /// It is durable.
    Through,
}

/// A virtio disk. It is moved about two kilobytes at a time: put it where it stays.
#[derive(Debug)]
pub struct BlockDevice<W: World> {
    // First, so that the device is reset before its pages are dropped.
    transport: Transport<W::Window>,
    queue: Queue<W::Page>,
    requests: Requests<W::Page>,
    capacity_blocks: u64,
    run_max: usize,
    features: u64,
    is_lost: bool,
}

impl<W: World> BlockDevice<W> {
    /// Brings up the disk that is the PCI function at `address` (found by
    /// [`VENDOR`](crate::virtio::VENDOR) and [`BLOCK_DEVICE`](crate::virtio::BLOCK_DEVICE)). With
    /// [`Signal::Message`] the interrupt may come from now on.
    ///
    /// # Errors
    /// A [`ProbeError`]; the device is then left reset.
    pub fn probe<P: Ports>(pci: &Pci<P>, address: Address, world: &mut W, signal: Signal) -> Result<Self, ProbeError> {
        let mut transport = Transport::open(pci, address, world, signal, DEVICE_BYTES)?;
        let features = transport.negotiate(FEATURE_MOST_SEGMENTS | FEATURE_READ_ONLY | FEATURE_FLUSH)?;
        let records = world.allocate_page().ok_or(ProbeError::OutOfMemory)?;
        let queue = transport.start(world, signal, DESCRIPTORS_PER_REQUEST)?;
        let requests = Requests::new(records, usize::from(queue.size() / DESCRIPTORS_PER_REQUEST));
        // A device whose registers never hold still has no size to speak of: nothing will be in
        // range.
        let capacity_blocks = capacity_of(&transport).unwrap_or(0);
        // A device that does not say how many it takes is asked for no more than one.
        let segments = if features & FEATURE_MOST_SEGMENTS == 0 {
            None
        } else {
            transport.read_device(|registers| registers.read_u32(MOST_SEGMENTS))
        };
        let run_max = segments.map_or(1, |most| RUN_MAX.min(most as usize));
        // Header and status stand beside them.
        let run_max = run_max.min(usize::from(queue.size()).saturating_sub(2)).max(1);
        Ok(BlockDevice {
            transport,
            queue,
            requests,
            capacity_blocks,
            run_max,
            features,
            is_lost: false,
        })
    }

    /// The disk's size in blocks of [`BLOCK_BYTES`] when it was probed or [measured](Self::measure) last; a last part of a block does
    /// not count.
    pub fn capacity_blocks(&self) -> u64 {
        self.capacity_blocks
    }

    /// Reads the disk's size again, which the host may have changed: from now on requests behind the new end are refused. A device that is lost, or whose registers never
    /// hold still, keeps the size that it had.
    pub fn measure(&mut self) {
        if !self.is_lost
            && let Some(blocks) = capacity_of(&self.transport)
        {
            self.capacity_blocks = blocks;
        }
    }

    /// Whether the disk refuses writes.
    pub fn is_read_only(&self) -> bool {
        self.features & FEATURE_READ_ONLY != 0
    }

    /// Tells what a completed write means on this disk.
    pub fn write_cache(&self) -> WriteCache {
        if self.features & FEATURE_FLUSH == 0 {
            WriteCache::Through
        } else {
            WriteCache::Back
        }
    }

    /// How many more requests would be accepted now.
    pub fn room(&self) -> usize {
        if self.is_lost { 0 } else { self.requests.free_count() }
    }

    /// Requests submitted and not yet returned by [`complete`](Self::complete).
    pub fn outstanding(&self) -> usize {
        self.requests.outstanding
    }

    /// Queues `request` under `tag` (any number; the device never sees it) and tells the device.
    ///
    /// # Errors
    /// A [`SubmitError`]; the request was then not queued.
    pub fn submit(&mut self, tag: u32, request: Request) -> Result<(), SubmitError> {
        self.enqueue(tag, request)?;
        self.ring();
        Ok(())
    }

    /// Queues like [`submit`](Self::submit), but the device need not notice before
    /// [`ring`](Self::ring) is called: for many requests at once, which devices merge.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn enqueue(&mut self, tag: u32, request: Request) -> Result<(), SubmitError> {
        if self.is_lost {
            return Err(SubmitError::DeviceLost);
        }
        let (kind, sector, data) = match request {
            Request::Read { block, page } => (
                TYPE_READ,
                self.first_sector(block)?,
                Some((page, Direction::DeviceWrites)),
            ),
            Request::Write { .. } if self.is_read_only() => return Err(SubmitError::ReadOnly),
            Request::Write { block, page } => (
                TYPE_WRITE,
                self.first_sector(block)?,
                Some((page, Direction::DeviceReads)),
            ),
            Request::Flush if self.write_cache() == WriteCache::Through => {
                return self.requests.add_finished(tag);
            }
            Request::Flush => (TYPE_FLUSH, 0, None),
        };
        let slot = self.requests.free_slot().ok_or(SubmitError::QueueFull)?;
        let [header, status] = self.requests.write_record(slot, kind, sector);
        let head = match data {
            Some((page, direction)) => {
                let data = Segment {
                    physical: page.physical(),
                    bytes: BLOCK_BYTES as u32,
                    direction,
                };
                self.queue.add(&[header, data, status])
            }
            None => self.queue.add(&[header, status]),
        }
        .map_err(|_| SubmitError::QueueFull)?;
        self.requests.occupy(slot, tag, State::WithDevice { head });
        Ok(())
    }

    /// How many blocks one request may read or write.
    pub fn run_max(&self) -> usize {
        self.run_max
    }

    /// Queues one request under `tag` that reads neighbouring blocks, from `first` on, each into a page, or writes them, and tells the device. It completes as a whole.
    ///
    /// # Errors
    /// As [`submit`](Self::submit); [`SubmitError::QueueFull`] also where that are more blocks than [`run_max`](Self::run_max), or none.
    pub fn submit_run(
        &mut self,
        tag: u32,
        operation: Operation,
        first: u64,
        pages: impl ExactSizeIterator<Item = DataPage>,
    ) -> Result<(), SubmitError> {
        let count = pages.len();
        if self.is_lost {
            return Err(SubmitError::DeviceLost);
        }
        if count == 0 || count > self.run_max {
            return Err(SubmitError::QueueFull);
        }
        let (kind, direction) = match operation {
            Operation::Read => (TYPE_READ, Direction::DeviceWrites),
            Operation::Write if self.is_read_only() => return Err(SubmitError::ReadOnly),
            Operation::Write => (TYPE_WRITE, Direction::DeviceReads),
            Operation::Flush => return Err(SubmitError::QueueFull),
        };
        let sector = self.first_sector(first)?;
        self.first_sector(first.saturating_add(count as u64 - 1))?;
        let slot = self.requests.free_slot().ok_or(SubmitError::QueueFull)?;
        let [header, status] = self.requests.write_record(slot, kind, sector);
        let mut segments = [header; RUN_MAX + 2];
        for (segment, page) in segments[1..].iter_mut().zip(pages) {
            *segment = Segment {
                physical: page.physical(),
                bytes: BLOCK_BYTES as u32,
                direction,
            };
        }
        segments[count + 1] = status;
        let head = self
            .queue
            .add(&segments[..count + 2])
            .map_err(|_| SubmitError::QueueFull)?;
        self.requests.occupy(slot, tag, State::WithDevice { head });
        self.ring();
        Ok(())
    }

    /// Tells the device of what was enqueued, if it wants to be told.
    pub fn ring(&self) {
        if !self.is_lost && self.queue.wants_doorbell() {
            self.transport.ring();
        }
    }

    /// Takes one finished request: its tag, and how it went. `None` if no request has finished.
    /// Each submitted request is returned exactly once.
    pub fn complete(&mut self) -> Option<(u32, Result<(), DiskError>)> {
        if let Some(tag) = self.requests.take_finished() {
            return Some((tag, Ok(())));
        }
        if !self.is_lost {
            match self
                .queue
                .take_used()
                .map(|used| used.map(|used| self.requests.take(used.head)))
            {
                Ok(None) => return None,
                Ok(Some(Some((tag, status)))) => return Some((tag, result_of(status))),
                // The used ring tells of a request that was not made: nothing it says can be believed
                // any more.
                Ok(Some(None)) | Err(_) => self.give_up(),
            }
        }
        self.requests.take_any().map(|tag| (tag, Err(DiskError::DeviceLost)))
    }

    /// Whether [`complete`](Self::complete) would return something.
    pub fn has_completions(&self) -> bool {
        self.requests.finished != 0
            || if self.is_lost {
                self.outstanding() != 0
            } else {
                self.queue.has_used()
            }
    }

    /// To be called when the device's interrupt has come (MSI-X needs no other acknowledgement), or
    /// from time to time when polling; then take completions until there are none. An interrupt
    /// without a completion may mean that the device broke, so that is looked up here, and nowhere
    /// else.
    pub fn acknowledge_interrupt(&mut self) {
        if !self.is_lost && !self.queue.has_used() && self.transport.is_broken() {
            self.give_up();
        }
    }

    /// Resets the device and uses it no more: what it still holds completes with
    /// [`DiskError::DeviceLost`]. For a caller who has waited too long.
    pub fn give_up(&mut self) {
        self.is_lost = true;
        // If it does not confirm, it was told to stop all the same; there is no stronger means
        // without an IOMMU.
        let _ = self.transport.reset();
    }

    /// Whether the device broke or was given up.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    fn first_sector(&self, block: u64) -> Result<u64, SubmitError> {
        // Below the capacity, which was itself a number of sectors, so the product fits.
        if block < self.capacity_blocks {
            Ok(block * SECTORS_PER_BLOCK)
        } else {
            Err(SubmitError::OutOfRange)
        }
    }
}

/// The size that the device says it has, in whole blocks.
fn capacity_of<M: Mmio>(transport: &Transport<M>) -> Option<u64> {
    let sectors = transport.read_device(|registers| {
        u64::from(registers.read_u32(CAPACITY)) | u64::from(registers.read_u32(CAPACITY + 4)) << 32
    });
    sectors.map(|sectors| sectors / SECTORS_PER_BLOCK)
}

fn result_of(status: u8) -> Result<(), DiskError> {
    match status {
        STATUS_OK => Ok(()),
        STATUS_FAILED => Err(DiskError::Failed),
        STATUS_UNSUPPORTED => Err(DiskError::Unsupported),
        other => Err(DiskError::BadStatus(other)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    /// In the queue as the chain that starts at `head`.
    WithDevice {
        head: u16,
    },
    /// Completed by the driver itself.
    Finished,
}

/// The requests that are out, and the page of their records. The device writes that page: only
/// status bytes are ever read back from it.
#[derive(Debug)]
struct Requests<D> {
    records: D,
    states: [State; MOST_REQUESTS],
    tags: [u32; MOST_REQUESTS],
    /// Slots in use are below this.
    limit: usize,
    /// Slots that are not free, and those of them that are finished.
    outstanding: usize,
    finished: usize,
    /// For the head of a chain in the queue: its slot.
    slot_of_head: [u8; MOST_DESCRIPTORS as usize],
}

impl<D: DmaMemory> Requests<D> {
    fn new(records: D, limit: usize) -> Self {
        Requests {
            records,
            states: [State::Free; MOST_REQUESTS],
            tags: [0; MOST_REQUESTS],
            limit: limit.min(MOST_REQUESTS),
            outstanding: 0,
            finished: 0,
            slot_of_head: [0; MOST_DESCRIPTORS as usize],
        }
    }

    fn free_count(&self) -> usize {
        self.limit - self.outstanding
    }

    fn free_slot(&self) -> Option<usize> {
        self.states[..self.limit].iter().position(|state| *state == State::Free)
    }

    /// Writes the record of a request; gives the segments of its header and its status.
    fn write_record(&self, slot: usize, kind: u32, sector: u64) -> [Segment; 2] {
        let record = slot * RECORD_BYTES;
        self.records.write_u32(record, kind);
        self.records.write_u32(record + 4, 0);
        self.records.write_u64(record + RECORD_SECTOR, sector);
        self.records.write_u8(record + RECORD_STATUS, STATUS_NONE);
        let physical = self.records.physical() + record as u64;
        [
            Segment {
                physical,
                bytes: HEADER_BYTES,
                direction: Direction::DeviceReads,
            },
            Segment {
                physical: physical + RECORD_STATUS as u64,
                bytes: 1,
                direction: Direction::DeviceWrites,
            },
        ]
    }

    fn occupy(&mut self, slot: usize, tag: u32, state: State) {
        if let State::WithDevice { head } = state {
            self.slot_of_head[usize::from(head)] = slot as u8;
        }
        self.states[slot] = state;
        self.tags[slot] = tag;
        self.outstanding += 1;
    }

    fn add_finished(&mut self, tag: u32) -> Result<(), SubmitError> {
        let slot = self.free_slot().ok_or(SubmitError::QueueFull)?;
        self.occupy(slot, tag, State::Finished);
        self.finished += 1;
        Ok(())
    }

    /// Frees `slot` and returns its tag.
    fn free(&mut self, slot: usize) -> u32 {
        self.states[slot] = State::Free;
        self.outstanding -= 1;
        self.tags[slot]
    }

    fn take_finished(&mut self) -> Option<u32> {
        if self.finished == 0 {
            return None;
        }
        let slot = self.states.iter().position(|state| *state == State::Finished)?;
        self.finished -= 1;
        Some(self.free(slot))
    }

    /// Takes the request whose chain starts at `head`: tag and status byte.
    fn take(&mut self, head: u16) -> Option<(u32, u8)> {
        let slot = usize::from(*self.slot_of_head.get(usize::from(head))?);
        if self.states[slot] != (State::WithDevice { head }) {
            return None;
        }
        let status = self.records.read_u8(slot * RECORD_BYTES + RECORD_STATUS);
        Some((self.free(slot), status))
    }

    /// Takes any request that is out.
    fn take_any(&mut self) -> Option<u32> {
        let slot = self.states.iter().position(|state| *state != State::Free)?;
        Some(self.free(slot))
    }
}

#[cfg(test)]
mod tests;
