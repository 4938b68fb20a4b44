//! Threads: user registers, portal frames, and what a parked thread will do again.
//!
//! A thread is nothing else (`docs/design/microkernel.md`): there is no kernel stack to keep. Its registers stand in
//! a [`Context`] into which the processor itself pushes when user code is interrupted.

mod context;
mod vectors;

use alloc::vec::Vec;
use core::{fmt, mem::offset_of, ops::DerefMut};

use abi::layout::CALL_DEPTH_MAX;

use crate::{
    Frame, SpaceId,
    event::Event,
    machine::Shortage,
    messages,
    scheduler::{NONE, Standing},
    wait::{self, Key},
};

pub use context::{Context, USER_CODE, USER_DATA, USER_FLAGS};
pub use vectors::VectorState;

/// Threads that may exist under a server. There are places for as many as there were at once (decision 0103).
pub const THREADS_MAX: usize = 1 << 14;
/// Bytes that the state of a thread's vector registers takes: x87, SSE and AVX.
pub const VECTORS_BYTES: usize = 1024;
/// Bytes of frames that the kernel takes for good for the place of a thread that uses its vector registers.
pub const PLACE_BYTES: u64 = (size_of::<Thread>() + VECTORS_BYTES) as u64;

/// A thread, unique in space and time: the index in the low 16 bits, above it a version that is
/// never used twice. Zero names no thread.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct ThreadId(pub u64);

impl ThreadId {
    /// Its place in the thread table.
    #[inline]
    pub const fn index(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

/// A thread as people write it: its place in the table, a dot, its version.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Name(pub ThreadId);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.index(), self.0.0 >> 16)
    }
}

/// A frame of the portal stack: where a protected call returns to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PortalFrame {
    /// The caller's next instruction.
    pub rip: u64,
    /// The caller's stack pointer.
    pub rsp: u64,
    /// Top of the callee's stack, to give back.
    pub stack: u64,
    /// The caller's space.
    pub space: SpaceId,
}

/// How a parked thread came back.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Resumed {
    /// It was not parked before.
    First,
    /// Its key was woken.
    Woken,
    /// Its time came.
    TimedOut,
}

/// The state of a thread. The tag stands first; the fast paths in assembly write it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(C, u32)]
pub enum State {
    /// No thread has this place.
    Free,
    /// On a run queue.
    Ready,
    /// On a processor.
    Running = State::RUNNING,
    /// Waiting for a key.
    Parked(Key),
    /// Waiting to send a message to the thread in this place.
    Sending(u32),
    /// Waiting for a message.
    Receiving = State::RECEIVING,
    /// Off until woken by name.
    Suspended,
}

/// A system call that a parked thread will do again.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// The call's number.
    pub number: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

impl Operation {
    /// Number of a call that stands for an exception whose instruction is behind, and which could not be told anybody yet.
    /// No user makes it: what he calls by this number has the one below, which does not exist either
    /// ([`Operation::called`]).
    const RAISE: u64 = u64::MAX;

    /// The operation that a user called.
    #[inline]
    pub fn called(number: u64, arguments: [u64; 6]) -> Self {
        let number = number.min(Self::RAISE - 1);
        Self { number, arguments }
    }

    /// An exception that is to be raised when the thread runs again, as if it had come then: `kind` as in
    /// `abi::layout`, the address that it concerns.
    pub fn raised(kind: u64, address: u64) -> Self {
        let arguments = [kind, address, 0, 0, 0, 0];
        let number = Self::RAISE;
        Self { number, arguments }
    }

    /// Whether it is such an exception. The thread's registers are then as they were, not those of a caller.
    pub fn is_raised(&self) -> bool {
        self.number == Self::RAISE
    }

    /// The event that it is.
    pub fn event(self, thread: ThreadId, resumed: Resumed) -> Event {
        let Self { number, arguments } = self;
        if self.is_raised() {
            let [kind, address, ..] = arguments;
            return Event::Exception { thread, kind, address };
        }
        Event::Call {
            thread,
            number,
            arguments,
            resumed,
        }
    }
}

/// One thread. The order of the first fields is what the fast paths in assembly rest on.
#[repr(C)]
pub struct Thread {
    /// User registers.
    pub context: Context,
    /// The space it runs in.
    pub space: SpaceId,
    /// Frames in use.
    pub depth: u32,
    /// Its state of the vector unit.
    pub vectors: VectorState,
    /// Not zero while its messages and protected calls take the slow path: read together with the field above.
    pub slow: u32,
    /// The levels above its own, a bit each: [`more_urgent`]. Only messages ask, and where there are messages all threads are ahead.
    pub more_urgent: u32,
    /// Its state.
    pub state: State,
    /// Its priority, and its share of the processors.
    pub standing: Standing,
    /// The period in which it was put behind; in a later one it has come forward, whatever its standing says.
    pub behind_in: u32,
    /// Its identifier now, or that of the last thread in this place.
    pub id: ThreadId,
    /// The call to do again, if it is parked in one.
    pub operation: Option<Operation>,
    /// Whether that call was not even begun: it was waiting for its turn.
    pub unbegun: bool,
    /// The processor that it runs on, waits for, or ran on last.
    pub processor: u32,
    /// How it came back.
    pub resumed: Resumed,
    /// Absolute time at which it is woken, or [`NO_TIME`]. Only one that waits has one.
    pub(crate) deadline_ns: u64,
    /// The time under which the timers have it, never later than its deadline, or [`NO_TIME`]. It stays there when it is woken earlier: with
    /// its next deadline, which is mostly later, it need not be put there again.
    pub(crate) timer_ns: u64,
    /// Processor time, nanoseconds.
    pub time_ns: u64,
    /// The time for which it has waited while the server saw its protected calls, without the wait that [`Self::waits_since_ns`] began.
    waited_ns: u64,
    /// Since when it waits, if that is counted, or [`NO_TIME`].
    waits_since_ns: u64,
    /// Its messages.
    pub ipc: messages::Part,
    /// Its place among those that wait.
    pub(crate) wait: wait::Place,
    /// Portal frames; the first `depth` are in use.
    pub frames: [PortalFrame; CALL_DEPTH_MAX],
}

/// In place of a time: never.
pub const NO_TIME: u64 = u64::MAX;

/// The levels above this one, a bit each.
const fn more_urgent(level: u8) -> u32 {
    !((2 << level) - 1)
}

impl Thread {
    /// Offset of its deadline, for the fast path of messages.
    pub const DEADLINE: usize = offset_of!(Self, deadline_ns);
    /// Offset of the time under which the timers have it.
    pub const TIMER: usize = offset_of!(Self, timer_ns);

    /// Changes the priority, to at most the highest. The thread waits in no run queue.
    pub fn set_priority(&mut self, priority: u8) {
        let standing = Standing::new(self.standing.share(), priority);
        self.set_standing(if self.standing.is_behind() {
            standing.behind()
        } else {
            standing
        });
    }

    fn set_standing(&mut self, standing: Standing) {
        self.standing = standing;
        self.more_urgent = more_urgent(standing.level());
    }

    /// Absolute time at which it is woken, if it waits until some time.
    pub fn deadline(&self) -> Option<u64> {
        (self.deadline_ns != NO_TIME).then_some(self.deadline_ns)
    }

    /// It is in no list, and waits for a message from there on.
    #[inline(always)]
    pub(crate) fn receive(&mut self, from: u64, window: u64) {
        self.state = State::Receiving;
        self.ipc.wait_for = from;
        self.ipc.window = window;
    }

    /// Whether the server sees its protected calls. The time for which it waits is counted meanwhile, and nobody else's, because that costs.
    #[inline(always)]
    pub(crate) fn is_intercepted(&self) -> bool {
        self.slow & messages::INTERCEPTED != 0
    }

    /// Whether it waits. While the server outside does others' work, a thread whose call has to wait for that is as good as ready.
    fn is_waiting(&self) -> bool {
        use State::{Free, Parked, Ready, Running};
        !matches!(self.state, Free | Ready | Running | Parked(Key::Supervisor))
    }

    /// It may have begun to wait, and may be intercepted.
    #[cold]
    pub(crate) fn wait_begins(&mut self, now: u64) {
        if self.is_intercepted() && self.is_waiting() && self.waits_since_ns == NO_TIME {
            self.waits_since_ns = now;
        }
    }

    /// It is not intercepted any more, or about to become ready.
    #[cold]
    pub(crate) fn wait_ends(&mut self, now: u64) {
        self.waited_ns = self.waited_by(now);
        self.waits_since_ns = NO_TIME;
    }

    /// The time for which it has waited so far, as far as that is counted.
    pub(crate) fn waited_by(&self, now: u64) -> u64 {
        // The clock of the processor that ends a wait may be behind a little; and nothing is later than no time.
        self.waited_ns + now.saturating_sub(self.waits_since_ns)
    }

    /// Whether a wait is being counted just if one should be.
    pub(crate) fn counts_rightly(&self) -> bool {
        (self.waits_since_ns != NO_TIME) == (self.is_intercepted() && self.is_waiting())
    }

    /// Whether it has neither a state of the vector unit nor a reason to be slow, of which ports that are on are one.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.vectors.bits() | self.slow == 0
    }

    /// Whether it can run on a processor: its state of the vector unit is in no other one's.
    #[inline(always)]
    pub fn can_run_on(&self, processor: u32) -> bool {
        self.vectors.processor().is_none_or(|on| on == processor)
    }

    /// The record of a place before its first thread.
    pub fn vacant(index: usize) -> Self {
        Self {
            context: Context::default(),
            space: SpaceId(0),
            depth: 0,
            vectors: VectorState::UNUSED,
            slow: 0,
            more_urgent: 0,
            state: State::Free,
            standing: Standing::new(0, 0),
            behind_in: 0,
            id: ThreadId(index as u64),
            operation: None,
            unbegun: false,
            processor: 0,
            resumed: Resumed::First,
            deadline_ns: NO_TIME,
            timer_ns: NO_TIME,
            time_ns: 0,
            waited_ns: 0,
            waits_since_ns: NO_TIME,
            ipc: messages::Part::NONE,
            wait: wait::Place::NONE,
            frames: [PortalFrame {
                rip: 0,
                rsp: 0,
                stack: 0,
                space: SpaceId(0),
            }; CALL_DEPTH_MAX],
        }
    }
}

/// Places of threads in a row that grows in place: none ever moves, because the processor pushes into them.
pub trait Row: DerefMut<Target = [Thread]> {
    /// Takes a zeroed frame for more places. It may become a page table of theirs.
    fn extend(&mut self, frame: Frame);
}

/// A row that moves as it grows: where no processor pushes into it.
#[cfg(any(test, feature = "fake-hardware"))]
pub struct FakeRow(Vec<Thread>);

#[cfg(any(test, feature = "fake-hardware"))]
impl FakeRow {
    /// So many places.
    pub fn of(places: usize) -> Self {
        Self((0..places).map(Thread::vacant).collect())
    }
}

#[cfg(any(test, feature = "fake-hardware"))]
impl core::ops::Deref for FakeRow {
    type Target = [Thread];

    fn deref(&self) -> &[Thread] {
        &self.0
    }
}

#[cfg(any(test, feature = "fake-hardware"))]
impl DerefMut for FakeRow {
    fn deref_mut(&mut self) -> &mut [Thread] {
        &mut self.0
    }
}

#[cfg(any(test, feature = "fake-hardware"))]
impl Row for FakeRow {
    fn extend(&mut self, _: Frame) {
        let places = crate::frames::PAGE_BYTES / size_of::<Thread>();
        self.0.extend((self.0.len()..self.0.len() + places).map(Thread::vacant));
    }
}

/// The table of threads.
pub struct Threads<R> {
    /// All places.
    pub table: R,
    /// Vacant ones. It has room for all.
    free: Vec<u32>,
    /// Address of the table, for the fast path in assembly.
    base: u64,
    /// Places that are in use or on the list of vacant ones.
    places: usize,
}

impl<R: Row> Threads<R> {
    /// Offset of the address of the table.
    pub const BASE: usize = offset_of!(Self, base);

    /// The table of at most so many threads, with the places that it has already.
    pub(crate) fn new(table: R, most: usize) -> Self {
        let mut threads = Self {
            base: table.as_ptr() as u64,
            table,
            free: Vec::with_capacity(most),
            places: 0,
        };
        threads.admit(most);
        threads
    }

    /// Whether no place is vacant.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Places that are known.
    pub(crate) fn places(&self) -> usize {
        self.places
    }

    /// Makes the places known that the table has got, as far as there may be so many.
    pub(crate) fn admit(&mut self, most: usize) {
        let places = self.table.len().min(most);
        self.free.extend((self.places as u32..places as u32).rev());
        self.places = places;
    }

    /// A suspended thread.
    ///
    /// # Errors
    /// [`Shortage::Threads`].
    #[inline]
    pub fn create(
        &mut self,
        space: SpaceId,
        rip: u64,
        rsp: u64,
        arguments: [u64; 4],
        standing: Standing,
    ) -> Result<ThreadId, Shortage> {
        let index = self.free.pop().ok_or(Shortage::Threads)?;
        let thread = &mut self.table[index as usize];
        // Versions start at one, so that no identifier is ever zero.
        thread.id = ThreadId(thread.id.0 + (1 << 16));
        thread.context.reset(rip, rsp);
        thread.context.set_arguments(arguments);
        thread.space = space;
        thread.depth = 0;
        thread.slow = 0;
        thread.state = State::Suspended;
        thread.set_standing(standing);
        thread.operation = None;
        thread.unbegun = false;
        thread.resumed = Resumed::First;
        thread.deadline_ns = NO_TIME;
        thread.time_ns = 0;
        thread.waited_ns = 0;
        thread.ipc.clear(index);
        Ok(thread.id)
    }

    /// Gives a place back.
    #[inline]
    pub fn remove(&mut self, index: u32) {
        let thread = &mut self.table[index as usize];
        (thread.state, thread.vectors) = (State::Free, VectorState::UNUSED);
        thread.waits_since_ns = NO_TIME;
        self.free.push(index);
    }

    /// The index of a thread that exists.
    #[inline]
    pub fn find(&self, id: ThreadId) -> Option<u32> {
        let thread = self.table.get(id.index())?;
        (thread.id == id && thread.state != State::Free).then_some(id.index() as u32)
    }

    /// The thread with this identifier; a stale one gets the place's present thread, which is a
    /// bug above that debug builds report.
    #[inline]
    pub fn get(&self, id: ThreadId) -> &Thread {
        debug_assert!(self.find(id).is_some(), "stale thread {id:?}");
        &self.table[id.index()]
    }

    /// The same, to change.
    #[inline]
    pub fn get_mut(&mut self, id: ThreadId) -> &mut Thread {
        debug_assert!(self.find(id).is_some(), "stale thread {id:?}");
        &mut self.table[id.index()]
    }
}

impl State {
    /// The tag of [`Self::Running`].
    pub const RUNNING: u32 = 2;
    /// The tag of [`Self::Receiving`].
    pub const RECEIVING: u32 = 5;
}

const _: () = assert!(NONE as usize > THREADS_MAX);
const _: () = assert!(THREADS_MAX.is_power_of_two());
// One comparison of 64 bits looks at both.
const _: () = assert!(offset_of!(Thread, vectors) % 8 == 0);
const _: () = assert!(offset_of!(Thread, slow) == offset_of!(Thread, vectors) + 4);
const _: () = assert!(size_of::<Context>() == 176);
