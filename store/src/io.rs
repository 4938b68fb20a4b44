//! Requests on their way to the disk, and the frames they need.
//!
//! A request to the disk names a [`Purpose`]; with the completion the purpose comes
//! back. Requests that the disk's queue does not take wait here in order. A few frames are kept
//! in reserve, so that a checkpoint gets through when memory is used up.

use crate::containers::{Map, Queue, push_reserved, reserve};
use crate::geometry::RECORD_BLOCKS;
use crate::heap::NoHeap;
use crate::map::MapKey;
use crate::world::{BLOCK, DiskError, Frame, Operation, Pages, Request, World};
use alloc::vec::Vec;

/// Frames kept in reserve: one record, and some to spare.
const RESERVE: usize = 20;
/// Writes that a job keeps under way.
pub(crate) const WRITES_MAX: usize = 64;

/// Requests that jobs have under way at most: writes, a record, flushes, and second copies of superblocks.
const JOBS_MAX: usize = WRITES_MAX + RECORD_BLOCKS as usize + 4;

/// The purpose of a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// To read a page; the number of the read.
    Page(u64),
    /// To read a page and some behind it; the number of the read.
    Run(u64),
    /// To read a map node.
    Node(MapKey),
    /// To read a leaf of the table, or a body of one of its rows; the number of the leaf.
    Leaf(u32),
    /// To write a page of the running checkpoint; its place in the list.
    Write(usize),
    /// To write a block from a frame of ours, which is then free.
    Scratch(Frame),
    /// To write a map node from where it lies.
    Resident,
    /// To write the second copy of a superblock from a frame of ours to a block, or to flush it. If it fails, nothing is lost.
    Copy(Option<(Frame, u64)>),
    /// To look at a block.
    Scrub,
    /// To flush.
    Flush,
}

/// Requests under way.
#[derive(Default)]
pub(crate) struct Io {
    waiting: Queue<Request>,
    under_way: Map<u32, Purpose>,
    next_tag: u32,
    reserve: Vec<Frame>,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
}

impl Io {
    /// Finds heap for so many requests to read, beside those of jobs.
    ///
    /// # Errors
    /// [`NoHeap`].
    pub(crate) fn expect(&mut self, reads: usize) -> Result<(), NoHeap> {
        self.waiting.reserve(JOBS_MAX + reads)?;
        self.under_way.reserve(JOBS_MAX + reads)?;
        Ok(())
    }

    /// Gives heap back that so many requests to read do not need.
    pub(crate) fn trim(&mut self, reads: usize) {
        self.under_way.release(JOBS_MAX + reads);
    }

    /// Fills the reserve; `false` if there are not enough frames.
    ///
    /// # Errors
    /// [`NoHeap`].
    pub(crate) fn fill_reserve(&mut self, world: &mut impl World) -> Result<bool, NoHeap> {
        reserve(&mut self.reserve, RESERVE)?;
        while self.reserve.len() < RESERVE {
            let Some(frame) = world.alloc() else { return Ok(false) };
            push_reserved(&mut self.reserve, frame);
        }
        Ok(true)
    }

    /// Gives the reserve back.
    pub(crate) fn empty_reserve(&mut self, world: &mut impl World) {
        self.reserve.drain(..).for_each(|frame| world.free(frame));
    }

    /// A frame for the running job, at need from the reserve.
    pub(crate) fn frame(&mut self, world: &mut impl World) -> Option<Frame> {
        world.alloc().or_else(|| self.reserve.pop())
    }

    /// Memory whose last frames are those of the reserve.
    pub(crate) fn lender<'a, W: World>(&'a mut self, world: &'a mut W) -> Lender<'a, W> {
        Lender { io: self, world }
    }

    /// Takes a frame back.
    pub(crate) fn recycle(&mut self, world: &mut impl World, frame: Frame) {
        if self.reserve.len() < RESERVE.min(self.reserve.capacity()) {
            push_reserved(&mut self.reserve, frame);
        } else {
            world.free(frame);
        }
    }

    /// Sends a request, now or when the disk's queue has room. There must be [room](Io::expect) for it here.
    pub(crate) fn submit(
        &mut self,
        world: &mut impl World,
        operation: Operation,
        block: u64,
        frame: Frame,
        purpose: Purpose,
    ) {
        match operation {
            Operation::Read => self.reads += 1,
            Operation::Write => self.writes += 1,
            Operation::Flush => self.flushes += 1,
        }
        let request = Request {
            tag: self.free_tag(),
            operation,
            block,
            frame,
        };
        self.note(request.tag, purpose);
        self.waiting.push_reserved(request);
        self.pump(world);
    }

    /// A tag that no request under way has.
    fn free_tag(&mut self) -> u32 {
        while self.under_way.has(self.next_tag) {
            self.next_tag = self.next_tag.wrapping_add(1);
        }
        self.next_tag
    }

    fn note(&mut self, tag: u32, purpose: Purpose) {
        let noted = self.under_way.insert(tag, purpose);
        debug_assert!(noted.is_ok(), "room was made");
        self.next_tag = tag.wrapping_add(1);
    }

    /// Sends one request for neighbouring blocks, if the disk takes it at once; tells whether it did. There must be [room](Io::expect) for it here.
    pub(crate) fn read_run(&mut self, world: &mut impl World, first: u64, frames: &[Frame], purpose: Purpose) -> bool {
        if self.waiting.first().is_some() {
            return false;
        }
        let tag = self.free_tag();
        if world.read_run(tag, first, frames).is_err() {
            return false;
        }
        self.note(tag, purpose);
        self.reads += frames.len() as u64;
        true
    }

    /// Sends what waits.
    pub(crate) fn pump(&mut self, world: &mut impl World) {
        while let Some(&request) = self.waiting.first() {
            if world.submit(request).is_err() {
                break;
            }
            self.waiting.pop();
        }
    }

    /// One completion. Completions of requests that are not ours are swallowed.
    pub(crate) fn complete(&mut self, world: &mut impl World) -> Option<(Purpose, Result<(), DiskError>)> {
        while let Some((tag, result)) = world.complete() {
            if let Some(purpose) = self.under_way.remove(tag) {
                return Some((purpose, result));
            }
        }
        None
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }
}

/// The world's memory with the reserve behind it: what a job makes nodes from.
pub(crate) struct Lender<'a, W: World> {
    io: &'a mut Io,
    world: &'a mut W,
}

impl<W: World> Pages for Lender<'_, W> {
    fn alloc(&mut self) -> Option<Frame> {
        self.io.frame(self.world)
    }
    fn free(&mut self, frame: Frame) {
        self.io.recycle(self.world, frame);
    }
    fn bytes(&self, frame: Frame) -> &[u8; BLOCK] {
        self.world.bytes(frame)
    }
    fn bytes_mut(&mut self, frame: Frame) -> &mut [u8; BLOCK] {
        self.world.bytes_mut(frame)
    }
}
