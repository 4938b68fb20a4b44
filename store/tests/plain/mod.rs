//! The simplest world: a disk that does everything at once, in order, and fails only where it is told to.

use super::{BLOCK, DirtyPage, Disk, DiskError, Frame, Operation, PageFlags, Pages, QueueFull, Random, Request};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// The world.
pub struct PlainWorld {
    /// Blocks that were written.
    pub disk: BTreeMap<u64, [u8; BLOCK]>,
    /// Blocks of the disk.
    pub blocks: u64,
    memory: Vec<[u8; BLOCK]>,
    free: Vec<Frame>,
    done: VecDeque<(u32, Result<(), DiskError>)>,
    chance: u64,
    /// The requests to the disk, flushes with block zero.
    pub log: Vec<(Operation, u64)>,
    /// Requests of this kind for these blocks do nothing and fail.
    pub failing: Option<(Operation, Range<u64>)>,
    /// Requests with these numbers, which are their places in the log, fail; whether they are done all the same.
    pub failing_numbers: Range<usize>,
    pub done_all_the_same: bool,
    /// The requests with these numbers fail if they read; the one with this number gives another bit if it reads.
    pub failing_reads: Range<usize>,
    pub misread: Option<usize>,
    /// How many blocks a request may write, and how many it may not in truth: such a one fails though it is done.
    pub run_max: usize,
    pub failing_runs: usize,
    /// The number of blocks of each run.
    pub runs: Vec<usize>,
    /// Reads of these blocks are done, and writes to them complete, only when this is empty again.
    pub held: Range<u64>,
    kept: VecDeque<Request>,
}

impl PlainWorld {
    /// With an empty disk.
    pub fn new(blocks: u64) -> Self {
        Self {
            disk: BTreeMap::new(),
            blocks,
            memory: Vec::new(),
            free: Vec::new(),
            done: VecDeque::new(),
            chance: 0,
            log: Vec::new(),
            failing: None,
            failing_numbers: 0..0,
            done_all_the_same: false,
            failing_reads: 0..0,
            misread: None,
            run_max: 1,
            failing_runs: usize::MAX,
            runs: Vec::new(),
            held: 0..0,
            kept: VecDeque::new(),
        }
    }

    /// Frames that were taken and not given back.
    #[allow(dead_code, reason = "few tests count them")]
    pub fn frames_out(&self) -> usize {
        self.memory.len() - self.free.len()
    }

    /// A page of an object in a frame of its own, full of a byte.
    #[allow(dead_code, reason = "not every test that has this world has pages")]
    pub fn dirty(&mut self, base: u64, page: u64, stamp: u8) -> DirtyPage {
        let frame = self.alloc().expect("memory");
        self.bytes_mut(frame).fill(stamp);
        DirtyPage {
            base,
            page,
            frame,
            flags: PageFlags::READ,
        }
    }
}

impl PlainWorld {
    fn end(&mut self, request: &Request) {
        if request.operation == Operation::Read {
            let bytes = self.disk.get(&request.block).copied().unwrap_or([0; BLOCK]);
            self.memory[request.frame.0 as usize] = bytes;
        }
        self.done.push_back((request.tag, Ok(())));
    }
}

impl Pages for PlainWorld {
    fn alloc(&mut self) -> Option<Frame> {
        Some(self.free.pop().unwrap_or_else(|| {
            self.memory.push([0xee; BLOCK]);
            Frame(self.memory.len() as u32 - 1)
        }))
    }
    fn free(&mut self, frame: Frame) {
        self.free.push(frame);
    }
    fn bytes(&self, frame: Frame) -> &[u8; BLOCK] {
        &self.memory[frame.0 as usize]
    }
    fn bytes_mut(&mut self, frame: Frame) -> &mut [u8; BLOCK] {
        &mut self.memory[frame.0 as usize]
    }
}

impl Disk for PlainWorld {
    fn blocks(&self) -> u64 {
        self.blocks
    }
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        let (number, reads) = (self.log.len(), request.operation == Operation::Read);
        let by_number = self.failing_numbers.contains(&number) || reads && self.failing_reads.contains(&number);
        self.log.push((request.operation, request.block));
        let fails = by_number
            || matches!(&self.failing, Some((kind, blocks)) if *kind == request.operation && blocks.contains(&request.block));
        if fails {
            if by_number && self.done_all_the_same && request.operation == Operation::Write {
                self.disk.insert(request.block, self.memory[request.frame.0 as usize]);
            }
            self.done.push_back((request.tag, Err(DiskError)));
            return Ok(());
        }
        if request.operation == Operation::Write {
            self.disk.insert(request.block, self.memory[request.frame.0 as usize]);
        }
        if request.operation != Operation::Flush && self.held.contains(&request.block) {
            self.kept.push_back(request);
        } else {
            self.end(&request);
            if reads && self.misread == Some(number) {
                self.memory[request.frame.0 as usize][77] ^= 1;
            }
        }
        Ok(())
    }
    fn run_max(&self) -> usize {
        self.run_max
    }
    fn submit_run(&mut self, tag: u32, operation: Operation, first: u64, frames: &[Frame]) -> Result<(), QueueFull> {
        if operation != Operation::Write {
            return Err(QueueFull);
        }
        self.runs.push(frames.len());
        let done = self.done.len();
        for (&frame, block) in frames.iter().zip(first..) {
            let request = Request {
                tag,
                operation,
                block,
                frame,
            };
            self.submit(request)?;
        }
        let all = self.done.split_off(done);
        let is_well = frames.len() < self.failing_runs && all.iter().all(|(_, result)| result.is_ok());
        self.done
            .push_back((tag, if is_well { Ok(()) } else { Err(DiskError) }));
        Ok(())
    }
    fn complete(&mut self) -> Option<(u32, Result<(), DiskError>)> {
        while self.held.is_empty()
            && let Some(request) = self.kept.pop_front()
        {
            self.end(&request);
        }
        self.done.pop_front()
    }
    fn wait(&mut self) {
        assert!(!self.done.is_empty(), "the store waits for nothing");
    }
}

impl Random for PlainWorld {
    fn next_u64(&mut self) -> u64 {
        self.chance = self
            .chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.chance
    }
}
