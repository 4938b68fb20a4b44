//! The simplest world: a disk that does everything at once, in order, and never fails.

use std::collections::{BTreeMap, VecDeque};
use store::{BLOCK, Disk, DiskError, Frame, Operation, Pages, QueueFull, Random, Request};

/// The world.
pub struct PlainWorld {
    /// Blocks that were written.
    pub disk: BTreeMap<u64, [u8; BLOCK]>,
    blocks: u64,
    memory: Vec<[u8; BLOCK]>,
    free: Vec<Frame>,
    done: VecDeque<u32>,
    chance: u64,
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
        }
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
        let at = request.frame.0 as usize;
        match request.operation {
            Operation::Read => self.memory[at] = self.disk.get(&request.block).copied().unwrap_or([0; BLOCK]),
            Operation::Write => {
                self.disk.insert(request.block, self.memory[at]);
            }
            Operation::Flush => {}
        }
        self.done.push_back(request.tag);
        Ok(())
    }
    fn complete(&mut self) -> Option<(u32, Result<(), DiskError>)> {
        self.done.pop_front().map(|tag| (tag, Ok(())))
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
