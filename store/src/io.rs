//! Requests on their way to the disk, and the frames they need.
//!
//! A request to the disk names a [`Purpose`]; with the completion the purpose comes
//! back. Requests that the disk's queue does not take wait here in order, and writes of neighbouring
//! blocks that follow one another go as one request, a *run*. A few frames are kept
//! in reserve, so that a checkpoint gets through when memory is used up.

use crate::containers::{Queue, push_reserved, reserve, shrink};
use crate::geometry::RECORD_BLOCKS;
use crate::heap::NoHeap;
use crate::map::MapKey;
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
    /// The write to the next block that is complete when this one is.
    next: Option<u32>,
}

/// The requests under way, or that wait, by tag: that is its place here, and another one's when it is over.
#[derive(Default)]
struct Flights {
    places: Vec<Option<Flight>>,
    vacant: Vec<u32>,
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
    waiting: Queue<Request>,
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
        // Only what may be one request waits for more: so no more than that is sent at once.
        if operation != Operation::Write || !self.follows(block) {
            self.pump_all(world);
        }
        let tag = self.note(purpose, block, frame);
        self.waiting.push_reserved(Request {
            tag,
            operation,
            block,
            frame,
        });
        self.pump(world);
    }

    /// Whether a write to this block goes with the last one that waits.
    pub(crate) fn follows(&self, block: u64) -> bool {
        let last = self.waiting.last();
        last.is_some_and(|last| last.operation == Operation::Write && last.block.wrapping_add(1) == block)
    }

    /// Whether the next completion is that of a write that was one request with the last one.
    pub(crate) fn has_more(&self) -> bool {
        self.complete.is_some()
    }

    /// Whether what waits may grow until something is complete: the disk has so much to do that it does not wait for it.
    pub(crate) fn may_grow(&self) -> bool {
        let under_way = self.under_way.places.len() - self.under_way.vacant.len();
        under_way - self.waiting.count() >= RUN_MAX
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
        let before = self.waiting.count();
        if before > 0 {
            self.send(world, Last::Goes);
        }
        self.waiting.count() < before
    }

    /// Sends all that waits, unless something has moved since the last time: for the end of a poll that soon goes on. What would keep a poll from writing might keep all.
    pub(crate) fn pump_at_rest(&mut self, world: &mut impl World) {
        if !core::mem::take(&mut self.has_moved) {
            self.pump_all(world);
        }
    }

    fn send(&mut self, world: &mut impl World, last: Last) {
        let most = world.run_max();
        let is_write = |request: &Request| request.operation == Operation::Write;
        // Few enough to be one run with what comes: that is not looked at with each.
        if last == Last::MayGrow && self.waiting.count() < most && self.waiting.last().is_none_or(is_write) {
            return;
        }
        while let Some(&request) = self.waiting.first() {
            let mut frames = [request.frame; RUN_MAX];
            let count = self.run_at_front(most, &mut frames);
            let may_grow = is_write(&request) && count == self.waiting.count() && count < most;
            if may_grow && last == Last::MayGrow {
                break;
            }
            let sent = match count {
                1 => world.submit(request),
                _ => world.submit_run(request.tag, request.operation, request.block, &frames[..count]),
            };
            if sent.is_err() {
                break;
            }
            self.waiting.pop();
            let mut last = request.tag;
            for _ in 1..count {
                let Some(next) = self.waiting.pop() else { break };
                if let Some(flight) = self.under_way.get_mut(last) {
                    flight.next = Some(next.tag);
                }
                last = next.tag;
            }
        }
    }

    /// The number of writes at the front that can be one request, and their frames. Anything else is one request.
    fn run_at_front(&self, most: usize, frames: &mut [Frame; RUN_MAX]) -> usize {
        let mut waiting = self.waiting.iter().take(most);
        let Some(first) = waiting.next() else { return 0 };
        let behind = (first.block + 1..).zip(waiting);
        let run = behind.take_while(|(block, next)| {
            [first.operation, next.operation] == [Operation::Write; 2] && next.block == *block
        });
        let places = frames[1..].iter_mut().zip(run);
        1 + places.map(|(place, (_, next))| *place = next.frame).count()
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
            self.waiting.push_front_reserved(Request {
                tag,
                operation: Operation::Write,
                block: flight.block,
                frame: flight.frame,
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
