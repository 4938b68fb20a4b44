//! A disk that crashes.
//!
//! Writes go through a volatile cache: what is complete but not flushed, and what is still under way,
//! may be on the medium after a crash or not, each write by itself, whole or in part. Parts
//! are sectors of 512 bytes. Requests complete in an order drawn from the seed. A flush covers
//! the writes that were complete when it was submitted, no others. Requests may be made to fail, reads to give something else
//! than what is there, and a [`Lie`] makes it break one of these promises.

use crate::rng::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use store::{BLOCK, DiskError, Operation, QueueFull, Request};

/// Bytes that are written all or not at all.
pub const SECTOR: usize = 512;
/// Sectors of a block.
const SECTORS: usize = BLOCK / SECTOR;

/// The contents of a block.
pub type Block = Arc<[u8; BLOCK]>;

/// What becomes of a write in a crash.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It never happened.
    Lost,
    /// It is on the medium.
    Whole,
    /// Only the sectors of this mask are.
    Torn(u8),
}

/// A promise of disks that this one breaks. A judge that sees none of them proves nothing.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Lie {
    /// A flush makes nothing stable.
    Flush,
    /// A flush leaves the oldest of the writes that it covers behind.
    Overtaken,
    /// A flush makes the first sector of each write stable, and drops the others.
    Halves,
    /// Writes to these blocks, from the first up to the second, are acknowledged and dropped.
    Dropped(u64, u64),
    /// One write in so many goes to the block behind its own.
    Misdirected(u64),
    /// One read in so many gives the contents before the last flush of the block.
    StaleReads(u64),
}

impl Lie {
    /// Writes to superblocks are dropped.
    pub const SUPERBLOCKS: Self = Self::Dropped(0, 4);
}

/// A write that is not on the medium for certain.
#[derive(Clone)]
struct Volatile {
    /// The number of the request.
    number: u64,
    sequence: u64,
    block: u64,
    data: Block,
}

/// A request under way.
struct Flight {
    /// Requests are numbered in the order in which they came.
    number: u64,
    request: Request,
    /// The frames behind that of the request, of a read or a write of neighbouring blocks.
    behind: Vec<store::Frame>,
    /// The contents of a write, block by block.
    data: Vec<Block>,
    /// For a flush: writes before this sequence number become stable.
    mark: u64,
}

/// What a step did; for whoever must move the data.
pub enum Stepped {
    /// Nothing was under way.
    Idle,
    /// Data was read: put each block there.
    Read(Vec<(store::Frame, Block)>),
    /// The write is complete: it must still be what it was when it was submitted.
    Wrote(Vec<(store::Frame, Block)>),
    /// Nothing to move.
    Other,
}

/// The disk.
pub struct CrashDisk {
    blocks: u64,
    medium: BTreeMap<u64, Block>,
    cache: Vec<Volatile>,
    sequence: u64,
    flights: Vec<Flight>,
    done: VecDeque<(u32, Result<(), DiskError>)>,
    depth: usize,
    order: Rng,
    /// One request in so many fails; zero for none.
    failing: u64,
    /// So many reads of this block fail, beside those.
    unreadable: (u64, u32),
    /// So many reads of this block give another bit there.
    misread: (u64, u32, usize),
    lie: Option<Lie>,
    /// The contents before the last write of each block, if they are kept.
    former: Option<BTreeMap<u64, Block>>,
    numbers: u64,
    /// Stands for what was made stable, and in which order.
    settled: u64,
    /// After so many steps more, a copy of the state is kept.
    fuse: Option<u64>,
    blown: Option<Box<CrashDisk>>,
    steps: u64,
    /// Blocks written so far.
    pub written: u64,
    /// Requests for several neighbouring blocks so far.
    pub runs: u64,
}

impl CrashDisk {
    /// An empty disk. `order` decides the order of completions.
    pub fn new(blocks: u64, order: Rng) -> Self {
        Self {
            blocks,
            medium: BTreeMap::new(),
            cache: Vec::new(),
            sequence: 0,
            flights: Vec::new(),
            done: VecDeque::new(),
            depth: 16,
            order,
            failing: 0,
            unreadable: (0, 0),
            misread: (0, 0, 0),
            lie: None,
            former: None,
            numbers: 0,
            settled: 0,
            fuse: None,
            blown: None,
            steps: 0,
            written: 0,
            runs: 0,
        }
    }

    /// A disk with these contents.
    pub fn from_medium(blocks: u64, medium: BTreeMap<u64, Block>, order: Rng) -> Self {
        Self {
            medium,
            ..Self::new(blocks, order)
        }
    }

    /// Size in blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// What is on the medium for certain.
    pub fn medium(&self) -> &BTreeMap<u64, Block> {
        &self.medium
    }

    /// Changes what is on the medium, as rot does.
    pub fn medium_mut(&mut self) -> &mut BTreeMap<u64, Block> {
        &mut self.medium
    }

    /// Makes the disk larger or smaller.
    pub fn set_blocks(&mut self, blocks: u64) {
        self.blocks = blocks;
    }

    /// Lets one request in `rate` fail; zero for none.
    pub fn set_failing(&mut self, rate: u64) {
        self.failing = rate;
    }

    /// Lets so many reads of a block fail.
    pub fn set_unreadable(&mut self, block: u64, reads: u32) {
        self.unreadable = (block, reads);
    }

    /// Lets so many reads of a block give another bit in place of the right one.
    pub fn set_misread(&mut self, block: u64, reads: u32, bit: usize) {
        self.misread = (block, reads, bit);
    }

    /// Breaks a promise from now on.
    pub fn set_lie(&mut self, lie: Option<Lie>) {
        self.lie = lie;
        if matches!(lie, Some(Lie::StaleReads(_))) {
            self.keep_former();
        }
    }

    /// Keeps what blocks held before their last write from now on.
    pub fn keep_former(&mut self) {
        self.former.get_or_insert_default();
    }

    /// The content of a block before its last write that became stable, if that was kept.
    pub fn former(&self, block: u64) -> Option<&Block> {
        self.former.as_ref()?.get(&block)
    }

    /// Keeps a copy of the state after `steps` more steps.
    pub fn set_fuse(&mut self, steps: u64) {
        self.fuse = Some(self.steps + steps);
        self.blown = None;
    }

    /// The copy that the fuse made, if it came to that.
    pub fn take_blown(&mut self) -> Option<Box<Self>> {
        self.fuse = None;
        self.blown.take()
    }

    /// Requests under way.
    pub fn under_way(&self) -> usize {
        self.flights.len()
    }

    /// Takes a request; `data` is what a write carries.
    ///
    /// # Errors
    /// [`QueueFull`].
    pub fn submit(&mut self, request: Request, data: Option<Block>) -> Result<(), QueueFull> {
        self.take(request, &[], data.into_iter().collect())
    }

    /// Takes a request to read or write neighbouring blocks; `data` is what a write carries.
    ///
    /// # Errors
    /// [`QueueFull`].
    pub fn submit_run(
        &mut self,
        tag: u32,
        operation: Operation,
        first: u64,
        frames: &[store::Frame],
        data: Vec<Block>,
    ) -> Result<(), QueueFull> {
        let (&frame, behind) = frames.split_first().ok_or(QueueFull)?;
        let request = Request {
            tag,
            operation,
            block: first,
            frame,
        };
        self.take(request, behind, data)?;
        self.runs += 1;
        Ok(())
    }

    fn take(&mut self, request: Request, behind: &[store::Frame], data: Vec<Block>) -> Result<(), QueueFull> {
        if self.flights.len() >= self.depth {
            return Err(QueueFull);
        }
        self.flights.push(Flight {
            number: self.numbers,
            request,
            behind: behind.to_vec(),
            data,
            mark: self.sequence,
        });
        // Each of its blocks meets a fate of its own.
        self.numbers += 1 + behind.len() as u64;
        Ok(())
    }

    /// A completion.
    pub fn complete(&mut self) -> Option<(u32, Result<(), DiskError>)> {
        self.done.pop_front()
    }

    /// Whether completions wait.
    pub fn has_completions(&self) -> bool {
        !self.done.is_empty()
    }

    /// Completes one request, any of those under way.
    pub fn step(&mut self) -> Stepped {
        if self.flights.is_empty() {
            return Stepped::Idle;
        }
        if self.fuse == Some(self.steps) {
            self.blown = Some(Box::new(self.copy()));
        }
        self.steps += 1;
        let at = self.order.below(self.flights.len() as u64) as usize;
        let Flight {
            number,
            request,
            behind,
            data,
            mark,
        } = self.flights.swap_remove(at);
        let last = request.block.saturating_add(behind.len() as u64);
        let frames = core::iter::once(request.frame).chain(behind);
        let unread = request.operation == Operation::Read
            && (request.block..=last).contains(&self.unreadable.0)
            && self.unreadable.1 > 0;
        self.unreadable.1 -= u32::from(unread);
        let fails = unread || self.failing != 0 && self.order.one_in(self.failing);
        let outside = request.operation != Operation::Flush && last >= self.blocks;
        if outside || fails {
            // A write that failed may have reached the medium all the same, each block for itself.
            for (place, data) in (0..).zip(data) {
                if !outside && self.order.one_in(2) {
                    self.keep(number + place, request.block + place, data);
                }
            }
            self.done.push_back((request.tag, Err(DiskError)));
            return Stepped::Other;
        }
        self.done.push_back((request.tag, Ok(())));
        match request.operation {
            Operation::Write => {
                for (place, data) in (0..).zip(&data) {
                    let block = request.block + place;
                    match self.lie {
                        Some(Lie::Dropped(from, to)) if (from..to).contains(&block) => {}
                        Some(Lie::Misdirected(rate)) if self.order.one_in(rate) => {
                            self.keep(number + place, block + 1, data.clone());
                        }
                        _ => self.keep(number + place, block, data.clone()),
                    }
                }
                Stepped::Wrote(frames.zip(data).collect())
            }
            Operation::Read => {
                let blocks = frames.zip(request.block..);
                Stepped::Read(blocks.map(|(frame, block)| (frame, self.read_perhaps(block))).collect())
            }
            Operation::Flush => {
                self.settle(mark);
                Stepped::Other
            }
        }
    }

    fn keep(&mut self, number: u64, block: u64, data: Block) {
        self.written += 1;
        self.cache.push(Volatile {
            number,
            sequence: self.sequence,
            block,
            data,
        });
        self.sequence += 1;
    }

    fn settle(&mut self, mark: u64) {
        let from = match self.lie {
            Some(Lie::Flush) => return,
            Some(Lie::Overtaken) => self.cache.first().map_or(0, |write| write.sequence + 1),
            _ => 0,
        };
        for write in self
            .cache
            .extract_if(.., |write| (from..mark).contains(&write.sequence))
        {
            let data = match self.lie {
                Some(Lie::Halves) => mix(self.medium.get(&write.block).cloned(), &write.data, 1),
                _ => write.data,
            };
            self.settled = chain(self.settled, write.number, u8::MAX);
            let before = self.medium.insert(write.block, data);
            if let Some(former) = &mut self.former {
                former.insert(write.block, before.unwrap_or_else(|| Arc::new([0; BLOCK])));
            }
        }
    }

    /// The content that a read of the block gives, on a disk that may misread.
    fn read_perhaps(&mut self, block: u64) -> Block {
        if let Some(Lie::StaleReads(rate)) = self.lie
            && self.order.one_in(rate)
            && let Some(former) = self.former(block)
        {
            return former.clone();
        }
        let mut data = self.read(block);
        let (misread, left, bit) = &mut self.misread;
        if *misread == block && *left > 0 {
            *left -= 1;
            Arc::make_mut(&mut data)[*bit / 8 % BLOCK] ^= 1 << (*bit % 8);
        }
        data
    }

    /// What a read of the block gives now.
    pub fn read(&self, block: u64) -> Block {
        let cached = self
            .cache
            .iter()
            .rev()
            .find(|write| write.block == block)
            .map(|write| &write.data);
        cached
            .or_else(|| self.medium.get(&block))
            .cloned()
            .unwrap_or_else(|| Arc::new([0; BLOCK]))
    }

    fn copy(&self) -> Self {
        let flights = self
            .flights
            .iter()
            .map(|flight| Flight {
                number: flight.number,
                request: flight.request,
                behind: flight.behind.clone(),
                data: flight.data.clone(),
                mark: flight.mark,
            })
            .collect();
        Self {
            medium: self.medium.clone(),
            cache: self.cache.clone(),
            flights,
            sequence: self.sequence,
            former: self.former.clone(),
            numbers: self.numbers,
            settled: self.settled,
            ..Self::new(self.blocks, self.order.clone())
        }
    }

    /// The writes that a crash may lose, oldest first, with the numbers of their requests.
    fn volatile(&self) -> Vec<(u64, u64, &Block)> {
        let cached = self.cache.iter().map(|write| (write.number, write.block, &write.data));
        let flying = self.flights.iter().flat_map(|flight| {
            let places = (flight.number..).zip(flight.request.block..);
            places
                .zip(&flight.data)
                .map(|((number, block), data)| (number, block, data))
        });
        cached.chain(flying).collect()
    }

    /// A number that stands for the contents of the disk after such a crash: two that differ may be equal all the same, two that are
    /// equal do not differ.
    pub fn name_of(&self, fates: &[Fate]) -> u64 {
        let volatile = self.volatile();
        volatile
            .iter()
            .zip(fates)
            .fold(self.settled, |name, ((number, ..), fate)| match fate {
                Fate::Lost | Fate::Torn(0) => name,
                Fate::Whole => chain(name, *number, u8::MAX),
                Fate::Torn(mask) => chain(name, *number, *mask),
            })
    }

    /// How many writes a crash may lose.
    pub fn volatile_len(&self) -> usize {
        self.volatile().len()
    }

    /// The disk after a crash in which each write meets its fate.
    #[must_use]
    pub fn crash(&self, fates: &[Fate], order: Rng) -> Self {
        let mut medium = self.medium.clone();
        let mut former = self.former.clone();
        for ((_, block, data), fate) in self.volatile().into_iter().zip(fates) {
            let mask = match fate {
                Fate::Lost => continue,
                Fate::Whole => u8::MAX,
                Fate::Torn(mask) => *mask,
            };
            let old = medium.get(&block).cloned();
            medium.insert(block, mix(old.clone(), data, mask));
            if let Some(former) = &mut former {
                former.insert(block, old.unwrap_or_else(|| Arc::new([0; BLOCK])));
            }
        }
        Self {
            former,
            lie: self.lie,
            settled: self.name_of(fates),
            numbers: self.numbers,
            ..Self::from_medium(self.blocks, medium, order)
        }
    }

    /// Random fates for what a crash may lose. Sometimes nearly all is lost, sometimes nearly nothing.
    pub fn draw_fates(&self, rng: &mut Rng) -> Vec<Fate> {
        let kept = rng.below(9);
        let torn = rng.below(4);
        (0..self.volatile_len())
            .map(|_| {
                if rng.below(8) < torn {
                    Fate::Torn(rng.next_u64() as u8)
                } else if rng.below(8) < kept {
                    Fate::Whole
                } else {
                    Fate::Lost
                }
            })
            .collect()
    }

    /// Every combination of lost and whole, if there are at most `limit` writes to lose.
    pub fn all_fates(&self, limit: usize) -> Option<impl Iterator<Item = Vec<Fate>> + use<>> {
        let count = self.volatile_len();
        (count <= limit).then(|| {
            (0_u64..1 << count).map(move |set| {
                (0..count)
                    .map(|at| if set >> at & 1 == 0 { Fate::Lost } else { Fate::Whole })
                    .collect()
            })
        })
    }
}

/// The name of a disk, once a write is added to it.
fn chain(name: u64, number: u64, mask: u8) -> u64 {
    Rng::new(name ^ (number << 8 | u64::from(mask))).next_u64()
}

/// The new data in the sectors of the mask, the old elsewhere.
pub fn mix(old: Option<Block>, new: &Block, mask: u8) -> Block {
    if mask == u8::MAX {
        return new.clone();
    }
    let mut mixed = old.map_or([0; BLOCK], |old| *old);
    for sector in (0..SECTORS).filter(|sector| mask >> sector & 1 != 0) {
        let range = sector * SECTOR..(sector + 1) * SECTOR;
        mixed[range.clone()].copy_from_slice(&new[range]);
    }
    Arc::new(mixed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Frame;

    fn write(disk: &mut CrashDisk, tag: u32, block: u64, byte: u8) {
        let request = Request {
            tag,
            operation: Operation::Write,
            block,
            frame: Frame(0),
        };
        disk.submit(request, Some(Arc::new([byte; BLOCK]))).unwrap();
    }

    #[test]
    fn only_what_was_complete_before_the_flush_is_stable() {
        let mut disk = CrashDisk::new(10, Rng::new(1));
        write(&mut disk, 0, 1, 1);
        disk.step();
        disk.submit(
            Request {
                tag: 1,
                operation: Operation::Flush,
                block: 0,
                frame: Frame(0),
            },
            None,
        )
        .unwrap();
        write(&mut disk, 2, 2, 2);
        while !matches!(disk.step(), Stepped::Idle) {}
        assert_eq!(disk.medium().keys().copied().collect::<Vec<_>>(), [1]);
        assert_eq!(disk.volatile_len(), 1);
        assert_eq!(disk.read(2)[0], 2);
        let torn = disk.crash(&[Fate::Torn(0b10)], Rng::new(2));
        assert_eq!(
            (torn.read(2)[0], torn.read(2)[SECTOR], torn.read(2)[2 * SECTOR]),
            (0, 2, 0)
        );
    }
}
