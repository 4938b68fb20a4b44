//! Who owns each block. All state is atomic words; see the theory of the module above.

use super::atomic::{AtomicU32, AtomicU64, Ordering};
use alloc::vec::Vec;

/// A process, as an owner. 0 and `u32::MAX` are nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(pub u32);

/// Number of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block(u32);

const FREE: u32 = 0;
const IN_FLIGHT: u32 = u32::MAX;
/// Least size of a block's memory, 2⁶, and number of size classes, each twice the one before.
const LEAST: u32 = 6;
const CLASSES: usize = 26;
const NONE: u32 = u32::MAX;

struct Record {
    owner: AtomicU32,
    next: AtomicU32,
    class: AtomicU32,
    base: AtomicU64,
    length: AtomicU64,
}

/// The blocks of one exchange heap.
pub struct Owners {
    records: Vec<Record>,
    used: AtomicU32,
    /// Offset of the memory never given yet.
    fresh: AtomicU64,
    base: u64,
    bytes: u64,
    /// Per class, the first free record and a tag that every change advances.
    free: Vec<AtomicU64>,
}

impl Owners {
    /// A heap of `bytes` from `base` with at most `blocks` blocks.
    pub fn new(base: u64, bytes: u64, blocks: u32) -> Self {
        let record = |_| Record {
            owner: AtomicU32::new(FREE),
            next: AtomicU32::new(NONE),
            class: AtomicU32::new(0),
            base: AtomicU64::new(0),
            length: AtomicU64::new(0),
        };
        Self {
            records: (0..blocks).map(record).collect(),
            used: AtomicU32::new(0),
            fresh: AtomicU64::new(0),
            base,
            bytes,
            free: (0..CLASSES).map(|_| AtomicU64::new(u64::from(NONE))).collect(),
        }
    }

    fn class(bytes: u64) -> Option<usize> {
        let bits = bytes.max(1).checked_next_power_of_two()?.trailing_zeros();
        let class = bits.saturating_sub(LEAST) as usize;
        (class < CLASSES).then_some(class)
    }

    /// Makes a block; `None` if memory or records are exhausted.
    pub fn alloc(&self, process: Process, bytes: u64) -> Option<Block> {
        let class = Self::class(bytes)?;
        let block = match self.pop(class) {
            Some(block) => block,
            None => self.carve(class)?,
        };
        let record = &self.records[block as usize];
        record.length.store(bytes, Ordering::Relaxed);
        record.owner.store(process.0, Ordering::Release);
        Some(Block(block))
    }

    fn carve(&self, class: usize) -> Option<u32> {
        let size = 1u64 << (class as u32 + LEAST);
        let mut at = self.fresh.load(Ordering::Relaxed);
        loop {
            let end = at.checked_add(size).filter(|end| *end <= self.bytes)?;
            match self
                .fresh
                .compare_exchange(at, end, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => at = now,
            }
        }
        let mut block = self.used.load(Ordering::Relaxed);
        loop {
            if block as usize >= self.records.len() {
                return None;
            }
            match self
                .used
                .compare_exchange(block, block + 1, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => block = now,
            }
        }
        let record = &self.records[block as usize];
        record.base.store(self.base + at, Ordering::Relaxed);
        record.class.store(class as u32, Ordering::Relaxed);
        Some(block)
    }

    fn pop(&self, class: usize) -> Option<u32> {
        let mut head = self.free[class].load(Ordering::Acquire);
        loop {
            let block = head as u32;
            if block == NONE {
                return None;
            }
            let next = self.records[block as usize].next.load(Ordering::Relaxed);
            let new = ((head >> 32) + 1) << 32 | u64::from(next);
            match self.free[class].compare_exchange(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(block),
                Err(now) => head = now,
            }
        }
    }

    fn push(&self, block: u32) {
        let record = &self.records[block as usize];
        let free = &self.free[record.class.load(Ordering::Relaxed) as usize];
        let mut head = free.load(Ordering::Acquire);
        loop {
            record.next.store(head as u32, Ordering::Relaxed);
            let new = ((head >> 32) + 1) << 32 | u64::from(block);
            match free.compare_exchange(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn change(&self, block: Block, from: u32, to: u32) -> bool {
        let owner = &self.records[block.0 as usize].owner;
        owner
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Ends a block; says whether it was the process's.
    pub fn free(&self, process: Process, block: Block) -> bool {
        let owned = self.change(block, process.0, FREE);
        if owned {
            self.push(block.0);
        }
        owned
    }

    /// Puts a block into a message; says whether it was the process's.
    pub fn send(&self, process: Process, block: Block) -> bool {
        self.change(block, process.0, IN_FLIGHT)
    }

    /// Takes a block from a message; says whether it was in one.
    pub fn accept(&self, process: Process, block: Block) -> bool {
        self.change(block, IN_FLIGHT, process.0)
    }

    /// The owner, for tests and statistics: `None` if free or in flight.
    pub fn owner(&self, block: Block) -> Option<Process> {
        match self.records[block.0 as usize].owner.load(Ordering::Acquire) {
            FREE | IN_FLIGHT => None,
            process => Some(Process(process)),
        }
    }

    /// Lowest address of a block.
    pub fn base(&self, block: Block) -> u64 {
        self.records[block.0 as usize].base.load(Ordering::Relaxed)
    }

    /// Length of a block.
    pub fn length(&self, block: Block) -> u64 {
        self.records[block.0 as usize].length.load(Ordering::Relaxed)
    }
}
