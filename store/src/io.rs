//! Requests on their way to the disk, and the frames they need.
//!
//! A request to the disk names a [`Purpose`]; with the completion the purpose comes
//! back. Requests that the disk's queue does not take wait here in order, and writes of neighbouring
//! blocks that follow one another go as one request, a *run*. A few frames are kept
//! in reserve, so that a checkpoint gets through when memory is used up.

use crate::containers::{Queue, push_reserved, reserve, shrink};
use crate::geometry::RECORD_BLOCKS;
use crate::heap::NoHeap;
use crate::map::{Entry, MapKey};
use crate::world::{BLOCK, DiskError, Frame, Operation, Pages, RUN_MAX, Request, World};
use alloc::vec::Vec;

/// Frames kept in reserve: one record, and some to spare.
const RESERVE: usize = 20;
/// Writes that a job keeps under way.
pub(crate) const WRITES_MAX: usize = 64;

/// Requests that jobs have under way at most: writes, a record, flushes, and second copies of superblocks; and those of a sync beside a checkpoint, which has two records.
const JOBS_MAX: usize = 2 * WRITES_MAX + 3 * RECORD_BLOCKS as usize + 5;

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
    /// To write a page of the running checkpoint; its place in the list, and what its map will have.
    Write(usize, Entry),
    /// To write a block from a frame of ours, which is then free.
    Scratch(Frame),
    /// To write a map node from where it lies.
    Resident,
    /// To write the second copy of a superblock from a frame of ours to a block, or to flush it. If it fails, nothing is lost.
    Copy(Option<(Frame, u64)>),
    /// To look at a block.
    Scrub,
    /// To read what a snapshot holds.
    Reclaim,
    /// To flush.
    Flush,
    /// Any of a sync: to write a page of it, or a block of its record from a frame of ours, which is then free, or to flush.
    Sync(Option<Frame>),
}

/// A request under way, or that waits.
#[derive(Copy, Clone)]
struct Flight {
    purpose: Purpose,
    /// Where a write goes, and from where.
    block: u64,
    frame: Frame,
    /// The write to the next block, if that is one request with this one.
    next: Option<u32>,
}

/// The requests under way, or that wait, by tag: that is its place here, and another one's when it is over.
#[derive(Default)]
struct Flights {
    places: Vec<Option<Flight>>,
    vacant: Vec<u32>,
}

impl Waiting {
    /// Whether these are writes, and that block comes behind them.
    #[inline]
    fn ends_at(&self, block: u64) -> bool {
        self.request.operation == Operation::Write && self.request.block.wrapping_add(self.blocks as u64) == block
    }
}

impl Flights {
    fn reserve(&mut self, flights: usize) -> Result<(), NoHeap> {
        let places = flights.saturating_sub(self.places.len());
        let vacant = flights.saturating_sub(self.vacant.len());
        reserve(&mut self.places, places)?;
        reserve(&mut self.vacant, vacant)?;
        Ok(())
    }

    /// Gives heap back that so many do not need, if there are none now.
    fn release(&mut self, flights: usize) {
        if self.is_empty() {
            self.places.clear();
            self.vacant.clear();
            shrink(&mut self.places, flights);
            shrink(&mut self.vacant, flights);
        }
    }

    fn is_empty(&self) -> bool {
        self.places.len() == self.vacant.len()
    }

    /// Where there is [room](Flights::reserve): the tag.
    fn add(&mut self, flight: Flight) -> u32 {
        let place = self.vacant.pop().unwrap_or_else(|| {
            push_reserved(&mut self.places, None);
            self.places.len() as u32 - 1
        });
        if let Some(vacant) = self.places.get_mut(place as usize) {
            *vacant = Some(flight);
        }
        place
    }

    fn get_mut(&mut self, tag: u32) -> Option<&mut Flight> {
        self.places.get_mut(tag as usize)?.as_mut()
    }

    fn remove(&mut self, tag: u32) -> Option<Flight> {
        let flight = self.places.get_mut(tag as usize)?.take()?;
        push_reserved(&mut self.vacant, tag);
        Some(flight)
    }
}

/// What waits to be sent: a request, or a run of writes.
#[derive(Copy, Clone)]
struct Waiting {
    /// That of the first block.
    request: Request,
    blocks: usize,
    /// The tag of the last one: each flight names the next.
    last: u32,
}

/// What becomes of the last writes that wait, if they are fewer than a run may have.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Last {
    /// They wait for those of the next blocks.
    MayGrow,
    /// They go.
    Goes,
}

/// Requests under way.
#[derive(Default)]
pub(crate) struct Io {
    waiting: Queue<Waiting>,
    /// Requests of all these.
    unsent: usize,
    under_way: Flights,
    /// The next of the writes that are complete with the last one that was told.
    complete: Option<u32>,
    /// Whether anything was submitted or complete since the last poll that stopped.
    has_moved: bool,
    reserve: Vec<Frame>,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
    /// Requests that the disk has done.
    pub(crate) answers: u64,
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

    /// Sends a request, at once or when the disk's queue has room; a write perhaps only [when all go](Io::pump_all). There must be [room](Io::expect) for it here.
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
        if operation == Operation::Write && self.join(world, block, frame, purpose) {
            return;
        }
        // Only what may be one request waits for more: so no more than that is sent at once.
        self.pump_all(world);
        let tag = self.note(purpose, block, frame);
        self.wait(Request {
            tag,
            operation,
            block,
            frame,
        });
        self.pump(world);
    }

    /// Has a write go with the last ones that wait, if it follows them and they are fewer than a run may have; tells whether it does.
    fn join(&mut self, world: &mut impl World, block: u64, frame: Frame, purpose: Purpose) -> bool {
        let most = world.run_max();
        let Some(last) = self
            .waiting
            .last()
            .filter(|run| run.blocks < most && run.ends_at(block))
        else {
            return false;
        };
        let before = last.last;
        let tag = self.note(purpose, block, frame);
        if let Some(flight) = self.under_way.get_mut(before) {
            flight.next = Some(tag);
        }
        self.unsent += 1;
        let mut is_full = false;
        if let Some(run) = self.waiting.last_mut() {
            (run.last, run.blocks) = (tag, run.blocks + 1);
            is_full = run.blocks == most;
        }
        if is_full {
            self.pump(world);
        }
        true
    }

    /// Puts a request behind those that wait.
    fn wait(&mut self, request: Request) {
        self.unsent += 1;
        self.waiting.push_reserved(Waiting {
            request,
            blocks: 1,
            last: request.tag,
        });
    }

    /// Whether a write to this block goes with the last one that waits.
    pub(crate) fn follows(&self, block: u64) -> bool {
        self.waiting.last().is_some_and(|run| run.ends_at(block))
    }

    /// Whether the next completion is that of a write that was one request with the last one.
    pub(crate) fn has_more(&self) -> bool {
        self.complete.is_some()
    }

    /// Whether what waits may grow until something is complete: the disk has so much to do that it does not wait for it.
    pub(crate) fn may_grow(&self) -> bool {
        let under_way = self.under_way.places.len() - self.under_way.vacant.len();
        under_way - self.unsent >= RUN_MAX
    }

    fn note(&mut self, purpose: Purpose, block: u64, frame: Frame) -> u32 {
        self.has_moved = true;
        self.under_way.add(Flight {
            purpose,
            block,
            frame,
            next: None,
        })
    }

    /// Sends one request to read neighbouring blocks, if the disk takes it at once; tells whether it did. There must be [room](Io::expect) for it here.
    pub(crate) fn read_run(&mut self, world: &mut impl World, first: u64, frames: &[Frame], purpose: Purpose) -> bool {
        let (Some(&frame), true) = (
            frames.first(),
            self.waiting.is_empty() && frames.len() <= world.run_max(),
        ) else {
            return false;
        };
        let tag = self.note(purpose, first, frame);
        if world.submit_run(tag, Operation::Read, first, frames).is_err() {
            self.under_way.remove(tag);
            return false;
        }
        self.reads += frames.len() as u64;
        true
    }

    /// Sends what waits, as far as the disk takes it, but for writes that those of the next blocks may follow.
    #[inline]
    pub(crate) fn pump(&mut self, world: &mut impl World) {
        if !self.waiting.is_empty() {
            self.send(world, Last::MayGrow);
        }
    }

    /// Sends all that waits, as far as the disk takes it: for when nothing more is written until something has come. Tells whether that was anything.
    #[inline]
    pub(crate) fn pump_all(&mut self, world: &mut impl World) -> bool {
        let before = self.unsent;
        if before > 0 {
            self.send(world, Last::Goes);
        }
        self.unsent < before
    }

    /// Sends all that waits, unless something has moved since the last time: for the end of a poll that soon goes on. What would keep a poll from writing might keep all.
    pub(crate) fn pump_at_rest(&mut self, world: &mut impl World) {
        if !core::mem::take(&mut self.has_moved) {
            self.pump_all(world);
        }
    }

    fn send(&mut self, world: &mut impl World, last: Last) {
        let most = world.run_max();
        while let Some(&Waiting { request, blocks, .. }) = self.waiting.first() {
            let is_last = self.waiting.count() == 1;
            if is_last && last == Last::MayGrow && request.operation == Operation::Write && blocks < most {
                break;
            }
            let sent = if blocks == 1 {
                world.submit(request)
            } else {
                let mut frames = [request.frame; RUN_MAX];
                let count = self.frames_of(request.tag, &mut frames);
                world.submit_run(request.tag, request.operation, request.block, &frames[..count])
            };
            if sent.is_err() {
                break;
            }
            self.waiting.pop();
            self.unsent -= blocks;
        }
    }

    /// The frames of a run, by the tag of its first write; tells how many they are.
    fn frames_of(&mut self, first: u32, frames: &mut [Frame; RUN_MAX]) -> usize {
        let (mut next, mut count) = (Some(first), 0);
        for place in frames {
            let Some(flight) = next.and_then(|tag| self.under_way.get_mut(tag)) else {
                break;
            };
            *place = flight.frame;
            next = flight.next;
            count += 1;
        }
        count
    }

    /// One completion. Completions of requests that are not ours are swallowed.
    pub(crate) fn complete(&mut self, world: &mut impl World) -> Option<(Purpose, Result<(), DiskError>)> {
        loop {
            let (tag, result) = match self.complete.take() {
                Some(tag) => (tag, Ok(())),
                None => world.complete()?,
            };
            let Some(flight) = self.under_way.get_mut(tag) else {
                continue;
            };
            if flight.next.is_some() && result.is_err() {
                self.send_apart(tag);
                self.pump(world);
                continue;
            }
            let Some(flight) = self.under_way.remove(tag) else {
                continue;
            };
            self.complete = flight.next;
            self.has_moved = true;
            self.answers += u64::from(result.is_ok());
            return Some((flight.purpose, result));
        }
    }

    /// The writes of a run that has failed are sent one by one, so that each has its own result. They stand from the last to the first: so they are no run again.
    fn send_apart(&mut self, first: u32) {
        let mut next = Some(first);
        while let Some(tag) = next {
            let Some(flight) = self.under_way.get_mut(tag) else {
                return;
            };
            next = flight.next.take();
            let request = Request {
                tag,
                operation: Operation::Write,
                block: flight.block,
                frame: flight.frame,
            };
            self.unsent += 1;
            self.waiting.push_front_reserved(Waiting {
                request,
                blocks: 1,
                last: tag,
            });
        }
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
