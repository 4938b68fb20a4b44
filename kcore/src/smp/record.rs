//! The record of each processor: the thread that runs there, the space whose root is loaded, and the marks that both leave.
//!
//! It stands where its processor finds it, and never moves: with [`Hardware`](crate::Hardware) in the kernel that is the area at GS, so the fast
//! paths in assembly reach it by an offset alone. The holder of the kernel lock reaches all of them ([`Processors`]).

use core::{mem::offset_of, ops::DerefMut};

use crate::{
    SpaceId,
    scheduler::{NONE, RunQueues, Standing},
};

/// The standing of work for no thread: the root's share pays.
pub(crate) const ROOT: Standing = Standing::new(0, 0);

/// One processor's record.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each holds of a processor, or does not, and none follows from another"
)]
pub struct Processor {
    /// Its number.
    pub(crate) number: u32,
    /// Index of the thread that runs on it, or [`NONE`].
    pub(crate) current: u32,
    /// The space whose root is loaded; none only while it is on the kernel's own. Written where the root is loaded.
    pub(crate) space: SpaceId,
    /// Whether the processor must be set up before a thread goes on, even if the thread's root is loaded.
    pub(crate) anew: bool,
    /// Whether something may have happened since the last look that keeps the thread that ran then from going on at once: another one runs, it
    /// is in another space, somebody is more urgent, or the machine stops ([`crate::Kernel::is_undisturbed`]).
    pub(crate) upset: bool,
    /// When the current thread began to run.
    pub(crate) since_ns: u64,
    /// When the slice began that it runs on: its own, or one that was passed to it with a message.
    pub(crate) slice_ns: u64,
    /// [`Standing::payer`] of the thread that runs, or ran last; the root's share pays while nobody runs.
    pub(crate) payer: Standing,
    /// Until when the time of this processor was charged to shares.
    pub(crate) charged_ns: u64,
    /// Index of the thread whose state its vector unit holds, or [`NONE`]: the unit is off.
    pub(crate) unit: u32,
    /// Whether it was told to look for a thread and has not been here since.
    pub(crate) called: bool,
    /// Index of the thread that is to do its operation again here next, or [`NONE`].
    pub(crate) again: u32,
    /// When the slice began in which that one did it last.
    pub(crate) again_slice_ns: u64,
    /// Whether it has started at all.
    pub(crate) runs: bool,
    pub(crate) queues: RunQueues,
}

impl Processor {
    // Offsets for the fast paths in assembly.
    /// Offset of the space whose root is loaded.
    pub const SPACE: usize = offset_of!(Self, space);
    /// Offset of the index of the thread that runs.
    pub const CURRENT: usize = offset_of!(Self, current);
    /// Offset of its number.
    pub const NUMBER: usize = offset_of!(Self, number);
    /// Offset of the index of the thread that uses the vector unit.
    pub const UNIT: usize = offset_of!(Self, unit);
    /// Offset of the levels that have a thread waiting here, a bit each.
    pub const OCCUPIED: usize = offset_of!(Self, queues) + RunQueues::OCCUPIED;

    /// One that does nothing.
    pub const fn new(number: u32) -> Self {
        Self {
            number,
            current: NONE,
            space: SpaceId::NONE,
            anew: false,
            upset: true,
            since_ns: 0,
            slice_ns: 0,
            payer: ROOT,
            charged_ns: 0,
            unit: NONE,
            called: false,
            again: NONE,
            again_slice_ns: 0,
            runs: true,
            queues: RunQueues::EMPTY,
        }
    }

    /// Nobody runs on it any more.
    #[inline(always)]
    pub(crate) fn vacate(&mut self) {
        self.current = NONE;
        self.upset = true;
    }

    /// It is in no space any more.
    pub(crate) fn leave_space(&mut self) {
        self.space = SpaceId::NONE;
        self.upset = true;
    }

    /// Whether it has nothing to do, now or next.
    pub(crate) fn is_idle(&self) -> bool {
        self.current == NONE && self.queues.count() == 0 && self.runs
    }
}

/// The records of all processors, for the holder of the kernel lock. Taken as one, it is that of the processor that looks.
pub trait Processors: DerefMut<Target = Processor> {
    /// The record of a processor; its own if there is none with that number.
    fn part(&self, number: u32) -> &Processor;

    /// The same, to change.
    fn part_mut(&mut self, number: u32) -> &mut Processor;

    /// Its own number. This and the next two are for the fast paths: a machine may have an instruction that needs no address.
    #[inline(always)]
    fn own_number(&self) -> u32 {
        self.number
    }

    /// Index of the thread that runs on it, or [`NONE`].
    #[inline(always)]
    fn runs_now(&self) -> usize {
        self.current as usize
    }

    /// Notes the space whose root is loaded here.
    #[inline(always)]
    fn note_space(&mut self, space: SpaceId) {
        self.space = space;
    }

    /// The processor with this number looks from now on. Nothing to do where the machine knows that by itself.
    fn come_in(&mut self, number: u32) {
        let _ = number;
    }
}

/// Records of processors that only seem to be there.
#[cfg(any(test, feature = "fake-hardware"))]
pub struct FakeProcessors {
    records: alloc::vec::Vec<Processor>,
    here: usize,
}

#[cfg(any(test, feature = "fake-hardware"))]
impl Default for FakeProcessors {
    fn default() -> Self {
        Self {
            records: (0..super::PROCESSORS_MAX as u32).map(Processor::new).collect(),
            here: 0,
        }
    }
}

#[cfg(any(test, feature = "fake-hardware"))]
impl core::ops::Deref for FakeProcessors {
    type Target = Processor;

    fn deref(&self) -> &Processor {
        &self.records[self.here]
    }
}

#[cfg(any(test, feature = "fake-hardware"))]
impl DerefMut for FakeProcessors {
    fn deref_mut(&mut self) -> &mut Processor {
        &mut self.records[self.here]
    }
}

#[cfg(any(test, feature = "fake-hardware"))]
impl Processors for FakeProcessors {
    fn part(&self, number: u32) -> &Processor {
        self.records.get(number as usize).unwrap_or(self)
    }

    fn part_mut(&mut self, number: u32) -> &mut Processor {
        let number = number as usize;
        let place = if number < self.records.len() { number } else { self.here };
        &mut self.records[place]
    }

    fn come_in(&mut self, number: u32) {
        self.here = number as usize;
    }
}
