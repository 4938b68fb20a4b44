//! The owner of each block. All state is atomic words; see the theory of the module above.

use super::atomic::{AtomicU32, AtomicU64, Ordering};
use alloc::vec::Vec;

/// A process, as an owner. 0 and the two greatest numbers are nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(pub u32);

/// Number of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block(u32);

impl Block {
    /// As a word of a message.
    pub const fn word(self) -> u64 {
        self.0 as u64
    }
    /// From a word that [`Block::word`] made.
    pub const fn from_word(word: u64) -> Self {
        Self(word as u32)
    }
}

const FREE: u32 = 0;
const IN_FLIGHT: u32 = u32::MAX;
const IN_BLOCK: u32 = u32::MAX - 1;
/// Slots of a block at most: places for blocks that belong to it.
pub const SLOTS: u32 = 64;
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
    /// The first of the blocks in its slots; only its owner follows and changes these links.
    child: AtomicU32,
    /// The next block in a slot of the same block, and which slot this one is in.
    sibling: AtomicU32,
    slot: AtomicU32,
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
            child: AtomicU32::new(NONE),
            sibling: AtomicU32::new(NONE),
            slot: AtomicU32::new(0),
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

    #[inline]
    fn change(&self, block: Block, from: u32, to: u32) -> bool {
        let owner = &self.records[block.0 as usize].owner;
        owner
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Ends a block and what is in its slots; says whether it was the process's.
    pub fn free(&self, process: Process, block: Block) -> bool {
        let owned = self.change(block, process.0, FREE);
        if owned {
            self.release(block);
        }
        owned
    }

    /// Ends a block of a message that nobody receives; says whether it was in one.
    pub fn discard(&self, block: Block) -> bool {
        let owned = self.change(block, IN_FLIGHT, FREE);
        if owned {
            self.release(block);
        }
        owned
    }

    /// Gives back a tree whose root has just become free: a list of what remains to be done is kept
    /// in the sibling links, so that no depth of a tree needs a stack.
    fn release(&self, root: Block) {
        self.records[root.0 as usize].sibling.store(NONE, Ordering::Relaxed);
        let mut list = root.0;
        while list != NONE {
            let record = &self.records[list as usize];
            let rest = record.sibling.load(Ordering::Relaxed);
            let first = record.child.load(Ordering::Relaxed);
            record.child.store(NONE, Ordering::Relaxed);
            let done = list;
            list = if first == NONE {
                rest
            } else {
                let mut last = first;
                loop {
                    let link = &self.records[last as usize].sibling;
                    match link.load(Ordering::Relaxed) {
                        NONE => break link.store(rest, Ordering::Relaxed),
                        next => last = next,
                    }
                }
                first
            };
            record.owner.store(FREE, Ordering::Release);
            self.push(done);
        }
    }

    /// Moves a block into a slot of another, both the process's; says whether that was done: not if
    /// the slot is taken, beyond [`SLOTS`], or one of the blocks is not the process's. A tree cannot
    /// close to a ring: what is in a slot is nobody's, and a root is in none.
    pub fn put(&self, process: Process, parent: Block, slot: u32, child: Block) -> bool {
        let free = slot < SLOTS && parent != child && self.owner(parent) == Some(process);
        if !free || self.find(parent, slot).is_some() || !self.change(child, process.0, IN_BLOCK) {
            return false;
        }
        let (parent, record) = (&self.records[parent.0 as usize], &self.records[child.0 as usize]);
        record
            .sibling
            .store(parent.child.load(Ordering::Relaxed), Ordering::Relaxed);
        record.slot.store(slot, Ordering::Relaxed);
        parent.child.store(child.0, Ordering::Relaxed);
        true
    }

    /// Moves a block out of a slot of one of the process's.
    pub fn take(&self, process: Process, parent: Block, slot: u32) -> Option<Block> {
        if self.owner(parent) != Some(process) {
            return None;
        }
        let (before, block) = self.find(parent, slot)?;
        let next = self.records[block as usize].sibling.load(Ordering::Relaxed);
        let link = match before {
            Some(before) => &self.records[before as usize].sibling,
            None => &self.records[parent.0 as usize].child,
        };
        link.store(next, Ordering::Relaxed);
        let block = Block(block);
        self.change(block, IN_BLOCK, process.0).then_some(block)
    }

    /// The block in a slot, and the one before it in the list.
    fn find(&self, parent: Block, slot: u32) -> Option<(Option<u32>, u32)> {
        let mut before = None;
        let mut at = self.records[parent.0 as usize].child.load(Ordering::Relaxed);
        while at != NONE {
            let record = &self.records[at as usize];
            if record.slot.load(Ordering::Relaxed) == slot {
                return Some((before, at));
            }
            before = Some(at);
            at = record.sibling.load(Ordering::Relaxed);
        }
        None
    }

    /// Puts a block into a message; says whether it was the process's.
    pub fn send(&self, process: Process, block: Block) -> bool {
        self.change(block, process.0, IN_FLIGHT)
    }

    /// Passes a block from one process straight to another; says whether it was the first one's.
    #[inline]
    pub fn pass(&self, from: Process, to: Process, block: Block) -> bool {
        self.change(block, from.0, to.0)
    }

    /// Takes a block from a message; says whether it was in one.
    pub fn accept(&self, process: Process, block: Block) -> bool {
        self.change(block, IN_FLIGHT, process.0)
    }

    /// The owner: `None` if free, in flight or in a slot.
    pub fn owner(&self, block: Block) -> Option<Process> {
        match self.records[block.0 as usize].owner.load(Ordering::Acquire) {
            FREE | IN_FLIGHT | IN_BLOCK => None,
            process => Some(Process(process)),
        }
    }

    /// How many blocks are not free, for tests and statistics.
    pub fn owned(&self) -> usize {
        let used = &self.records[..self.used() as usize];
        let owned = |record: &&Record| record.owner.load(Ordering::Acquire) != FREE;
        used.iter().filter(owned).count()
    }

    /// How many records were ever used, for tests and statistics.
    pub fn used(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
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
