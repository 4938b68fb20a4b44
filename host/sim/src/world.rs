//! Memory, disk and chance together.

use crate::disk::{Block, CrashDisk, Stepped};
use crate::memory::Memory;
use crate::own::Own;
use crate::rng::Rng;
use std::sync::Arc;
use store::world::RUN_MAX;
use store::{BLOCK, DirtyPage, Disk, DiskError, Frame, Operation, PageFlags, Pages, QueueFull, Random, Request};

/// A world for the store.
pub struct SimWorld {
    /// Its memory.
    pub memory: Memory,
    /// Its disk.
    pub disk: CrashDisk,
    /// The most blocks that a request may read or write.
    pub run_max: usize,
    rng: Rng,
}

impl SimWorld {
    /// A world with this disk and so many pages of memory.
    pub fn new(disk: CrashDisk, pages: usize, rng: Rng) -> Self {
        Self {
            memory: Memory::new(pages),
            disk,
            run_max: RUN_MAX,
            rng,
        }
    }

    /// Lets the disk complete one request; `false` if none was under way.
    ///
    /// # Panics
    /// If a frame was changed while it was being written.
    pub fn step(&mut self) -> bool {
        match self.disk.step() {
            Stepped::Idle => return false,
            Stepped::Read(read) => {
                for (frame, data) in read {
                    self.memory.bytes_mut(frame).copy_from_slice(&data[..]);
                }
            }
            Stepped::Wrote(written) => {
                for (frame, data) in written {
                    assert!(
                        self.memory.bytes(frame) == &*data,
                        "{frame:?} was changed while it was being written"
                    );
                }
            }
            Stepped::Other => {}
        }
        true
    }
}

/// A page of an object in a frame of its own, full of a byte.
///
/// # Panics
/// If memory has no frame.
pub fn dirty(world: &mut impl Pages, base: u64, page: u64, stamp: u8) -> DirtyPage {
    let frame = world.alloc().expect("memory");
    world.bytes_mut(frame).fill(stamp);
    DirtyPage {
        base,
        page,
        frame,
        flags: PageFlags::READ,
    }
}

impl Pages for SimWorld {
    fn alloc(&mut self) -> Option<Frame> {
        let _own = Own::begin();
        self.memory.alloc()
    }
    fn free(&mut self, frame: Frame) {
        let _own = Own::begin();
        self.memory.free(frame);
    }
    fn bytes(&self, frame: Frame) -> &[u8; BLOCK] {
        self.memory.bytes(frame)
    }
    fn bytes_mut(&mut self, frame: Frame) -> &mut [u8; BLOCK] {
        self.memory.bytes_mut(frame)
    }
}

impl Disk for SimWorld {
    fn blocks(&self) -> u64 {
        self.disk.blocks()
    }

    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        let _own = Own::begin();
        let data: Option<Block> =
            (request.operation == Operation::Write).then(|| Arc::new(*self.memory.bytes(request.frame)));
        self.disk.submit(request, data)
    }

    fn run_max(&self) -> usize {
        self.run_max
    }

    fn submit_run(&mut self, tag: u32, operation: Operation, first: u64, frames: &[Frame]) -> Result<(), QueueFull> {
        let _own = Own::begin();
        assert!(frames.len() <= self.run_max, "{} blocks in one request", frames.len());
        let written = frames.iter().filter(|_| operation == Operation::Write);
        let data = written.map(|&frame| Arc::new(*self.memory.bytes(frame))).collect();
        self.disk.submit_run(tag, operation, first, frames, data)
    }

    fn complete(&mut self) -> Option<(u32, Result<(), DiskError>)> {
        self.disk.complete()
    }

    fn wait(&mut self) {
        let _own = Own::begin();
        while !self.disk.has_completions() {
            assert!(self.step(), "the store waits and nothing is under way");
        }
    }
}

impl Random for SimWorld {
    fn next_u64(&mut self) -> u64 {
        self.rng.next_u64()
    }
}
