//! The kernel's logic put together: what the trap handlers call, and [`Machine`] for the server.
//!
//! Locking: none here. The kernel binary guards the whole value with one lock and calls it with
//! interrupts off.

mod check;
pub(crate) mod doors;
mod machine;
pub mod messages;
mod places;
pub(crate) mod processors;
mod report;
mod roots;
mod vectors;

use alloc::{vec, vec::Vec};
use core::mem::offset_of;

use abi::Error;

use crate::{
    Half, Hardware, SpaceId,
    frames::{Frames, Range},
    portal::Portals,
    scheduler::{Link, NONE},
    shares::Shares,
    smp::Processors,
    space::Spaces,
    thread::{NO_TIME, Operation, Resumed, State, Thread, Threads},
    timers::Timers,
    trace::Kind,
    wait::{AT_ONCE, Key, WaitQueues},
};

pub use roots::Crossing;

/// How long a thread runs before others of its priority do, in nanoseconds.
pub const TIME_SLICE_NS: u64 = 10_000_000;

/// Threads that one event wakes at most.
pub(crate) const WOKEN_AT_ONCE: u32 = 32;
/// Threads that one tick wakes, from the heaps of times too: that costs twice as much.
const WOKEN_BY_A_TICK: u32 = 8;
/// The time until the next ones if more threads are to be woken. Meanwhile the woken ones run, the most urgent ones.
const PAUSE_NS: u64 = 50_000;

/// All kernel state but what only the hardware layer knows. `P` is the second half. Its rooms are private to this folder: others look at them
/// and change them through the doors in `doors` and `messages`, and through [`crate::Machine`] (decision 0119).
pub struct Kernel<H: Hardware, P = ()> {
    /// The machine below.
    pub hardware: H,
    /// Physical memory.
    frames: Frames,
    /// Spaces.
    spaces: Spaces,
    /// Threads.
    threads: Threads<H::Row>,
    /// Remembered ways into protected procedures.
    portals: Portals,
    /// The record of the processor that this event is handled on, which the machine finds, and those of the others.
    processor: H::Processors,
    /// One more than the highest number of a processor; zero where there is but one.
    processors: u32,
    links: Vec<Link>,
    waits: WaitQueues,
    /// When threads with a deadline are woken.
    timers: Timers,
    /// How long the threads of each account may run before all others go first.
    shares: Shares,
    /// The second half, if this system has one.
    pub(crate) half: P,
}

/// The outcome of a yield.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Index of the thread that runs now.
    pub next: u32,
    /// Whether nothing must be set up for it but its space: no vector unit, no ports, no call to be done again.
    pub is_plain: bool,
}

impl<H: Hardware, P: Half> Kernel<H, P> {
    /// Offset of the address of the table of threads, for the fast paths in assembly.
    pub const THREADS: usize = offset_of!(Self, threads) + Threads::<H::Row>::BASE;
    /// Offset of the address of the first space.
    pub const SPACES: usize = offset_of!(Self, spaces) + Spaces::BASE;
    /// Offset of the address of the portal cache.
    pub const WAYS: usize = offset_of!(Self, portals) + Portals::BASE;

    /// A kernel over these ranges of memory.
    pub fn new(mut hardware: H, ranges: &[Range]) -> Self {
        let frames = Frames::new(ranges);
        let spaces = Spaces::new(hardware.tags(), frames.total());
        let threads = Threads::new(hardware.threads(), P::THREADS_MAX);
        let waits = WaitQueues::new(hardware.random());
        let processor = hardware.processors();
        Self {
            hardware,
            frames,
            spaces,
            threads,
            portals: Portals::default(),
            processor,
            processors: 0,
            links: vec![Link::LOOSE; P::THREADS_MAX],
            waits,
            timers: Timers::new(P::THREADS_MAX),
            shares: Shares::default(),
            half: P::default(),
        }
    }

    /// Parks the current thread.
    pub fn park(&mut self, key: Key, deadline: Option<u64>, operation: Option<Operation>) {
        let Some(index) = self.current() else { return };
        self.account();
        self.processor.vacate();
        self.threads.table[index as usize].operation = operation;
        self.wait_for(index, key);
        let thread = &mut self.threads.table[index as usize];
        if thread.is_intercepted() {
            thread.wait_begins(self.processor.since_ns);
        }
        if let Some(at_ns) = deadline {
            self.set_deadline(index, at_ns);
        }
    }

    /// [`Kernel::park`] and [`Kernel::schedule`] in one, for a caller that waits for as long as it takes. `None` if no thread that stands as the
    /// caller is next here: nothing was done. If a turn is plain, the next thread's space must be entered at once: then nothing keeps that one from
    /// going on ([`Kernel::is_undisturbed`]). Counted in instructions (`sem-round-trip`).
    #[inline(always)]
    pub fn park_for_next(&mut self, key: Key, operation: impl FnOnce() -> Operation) -> Option<Rotation> {
        let current = self.current()?;
        let next = self.take_same()?;
        let now = self.hardware.now_ns();
        let before = &mut self.threads.table[current as usize];
        before.time_ns += now.saturating_sub(self.processor.since_ns);
        let context = &mut before.context;
        context.reset(context.rip, context.rsp);
        let is_plain = before.is_plain();
        // In its place: it is 56 bytes long.
        before.operation = Some(operation());
        self.wait_for(current, key);
        if !is_plain {
            self.threads.table[current as usize].wait_begins(now);
        }
        let thread = self.begin_run(next, now);
        let is_plain = is_plain && thread.is_plain() && thread.operation.is_none();
        // It was the first of all that wait here.
        self.processor.upset = !is_plain;
        Some(Rotation { next, is_plain })
    }

    /// The turn of the thread that was passed the processor of one that is gone ([`Machine::thread_answer`](crate::Machine::thread_answer)). Its space must be
    /// entered at once, as behind [`Kernel::park_for_next`]. `None`: there is no such thread, somebody is more urgent, or more than the space must be set up.
    #[inline(always)]
    pub fn passed_on(&mut self) -> Option<Rotation> {
        let processor = &mut *self.processor;
        let next = processor.current;
        let thread = self.threads.table.get(next as usize)?;
        let is_plain = thread.is_plain() && thread.operation.is_none();
        if !is_plain || processor.unit != NONE || processor.queues.has_above(thread.standing.level()) {
            return None;
        }
        processor.upset = false;
        Some(Rotation { next, is_plain })
    }

    /// A thread that is in no list waits for a key.
    #[inline(always)]
    fn wait_for(&mut self, index: u32, key: Key) {
        let thread = &mut self.threads.table[index as usize];
        thread.unbegun = false;
        thread.state = State::Parked(key);
        self.hardware.trace(Kind::Park, thread.id, key.word());
        if let Key::Stack(space) = key {
            self.spaces.get_mut(SpaceId(space)).want_stack();
        }
        if key.has_queue() {
            self.waits
                .park(&mut self.threads.table, &mut self.links, key.word(), index);
        }
    }

    /// A parked thread leaves the queue of its key.
    #[inline]
    fn leave_queue(&mut self, index: u32, key: Key) {
        if key.has_queue() {
            self.waits.remove(&mut self.threads.table, &mut self.links, index);
        }
    }

    /// A thread that waits is woken at that time at the latest.
    #[inline]
    fn set_deadline(&mut self, index: u32, at_ns: u64) {
        let thread = &mut self.threads.table[index as usize];
        thread.deadline_ns = at_ns;
        if thread.timer_ns <= at_ns {
            return;
        }
        thread.timer_ns = at_ns;
        let priority = thread.standing.priority();
        self.timers.remove(index);
        self.timers.insert(at_ns, index, priority);
        self.hardware.set_timer(at_ns);
    }

    /// The time has come under which the timers have a thread: wakes it, or puts it there again if its deadline is later by now.
    fn time_came(&mut self, index: u32, now: u64) {
        self.forget_timer(index);
        let deadline_ns = self.threads.table[index as usize].deadline_ns;
        if deadline_ns <= now {
            self.wake_index(index, Resumed::TimedOut);
        } else if deadline_ns != NO_TIME {
            self.set_deadline(index, deadline_ns);
        }
    }

    /// The timers do not have a thread any more.
    #[inline]
    fn forget_timer(&mut self, index: u32) {
        let timer_ns = &mut self.threads.table[index as usize].timer_ns;
        if core::mem::replace(timer_ns, NO_TIME) != NO_TIME {
            self.timers.remove(index);
        }
    }

    /// Parks the current thread until the server outside has done what it works on. The thread then does its operation, a call
    /// perhaps, as it would have now.
    pub fn put_off(&mut self, operation: Option<(Operation, Resumed)>) {
        let Some(index) = self.current() else { return };
        self.park(Key::Supervisor, None, operation.map(|(operation, _)| operation));
        let thread = &mut self.threads.table[index as usize];
        thread.resumed = operation.map_or(Resumed::First, |(_, resumed)| resumed);
        thread.unbegun = true;
    }

    /// Has the current thread do an operation again, as if it had been woken. It is next of its priority here, and runs
    /// nowhere until then. Its slice goes on; when that is over, the thread comes behind the others of its priority.
    pub fn again(&mut self, operation: Option<Operation>) {
        let Some(index) = self.current() else { return };
        self.account();
        let is_over = self.hardware.now_ns() >= self.processor.slice_ns + TIME_SLICE_NS;
        self.processor.again_slice_ns = self.processor.slice_ns;
        self.processor.vacate();
        let thread = &mut self.threads.table[index as usize];
        thread.operation = operation;
        thread.resumed = Resumed::Woken;
        thread.state = State::Ready;
        thread.processor = self.processor.number;
        if is_over && operation.is_some() {
            return self.enqueue(index);
        }
        let level = self.new_level(index);
        self.processor.queues.push_front(&mut self.links, index, level);
        self.processor.again = if operation.is_some() { index } else { NONE };
    }

    /// Puts the current thread behind the others of its priority.
    pub fn yield_current(&mut self) {
        let Some(index) = self.current() else { return };
        self.account();
        self.processor.vacate();
        self.enqueue(index);
    }

    /// [`Kernel::yield_current`] and [`Kernel::schedule`] in one, for a thread that goes on there with no result. `None`
    /// if nobody waits here with its priority: the current thread stays (nobody more urgent waits while it runs), and
    /// nothing was done. Counted in instructions (`yield-switch`).
    #[inline(always)]
    pub fn rotate(&mut self, rip: u64, rsp: u64) -> Option<Rotation> {
        let processor = &mut *self.processor;
        let current = processor.current;
        let standing = self.threads.table.get(current as usize)?.standing;
        let next = processor.queues.rotate(&mut self.links, current, standing.level())?;
        let now = self.hardware.now_ns();
        processor.current = next;
        processor.upset = true;
        let before = &mut self.threads.table[current as usize];
        before.time_ns += now.saturating_sub(processor.since_ns);
        before.state = State::Ready;
        before.context.reset(rip, rsp);
        let is_plain = before.is_plain();
        processor.since_ns = now;
        processor.slice_ns = now;
        // The timer is set already, for the end of a slice that ends no later.
        let thread = &mut self.threads.table[next as usize];
        thread.state = State::Running;
        thread.processor = processor.number;
        thread.unbegun = false;
        let is_plain = is_plain && thread.is_plain() && thread.operation.is_none();
        if thread.standing != standing {
            self.stands(next);
        }
        Some(Rotation { next, is_plain })
    }

    /// Whether a waiting thread should run instead of the current one.
    #[inline]
    pub fn should_preempt(&self) -> bool {
        let processor = &*self.processor;
        match (processor.queues.highest(), self.current()) {
            (Some(waiting), Some(current)) => waiting > self.threads.table[current as usize].standing.level(),
            (waiting, None) => waiting.is_some(),
            (None, Some(_)) => false,
        }
    }

    /// Whether somebody was woken who is more urgent than the thread that runs, or than the one that is to do its operation again.
    pub fn has_woken(&self) -> bool {
        let first = self.processor.queues.first().map(|(index, _)| index);
        self.should_preempt() && !(self.current().is_none() && first == Some(self.processor.again))
    }

    /// Whether the current thread can just go on: same space, nobody more urgent.
    #[inline]
    pub fn stays(&self) -> bool {
        self.stays_in(self.processor.space)
    }

    /// Whether nothing has happened since the last look that may keep the thread with this index, which ran then, from going on at once.
    #[inline(always)]
    pub fn is_undisturbed(&self, index: u32) -> bool {
        debug_assert!(
            self.processor.upset || self.current() == Some(index) && self.stays(),
            "something has happened that nobody noted"
        );
        !self.processor.upset
    }

    /// Looks whether the thread with this index, from which the event came, can go on at once: it runs here still, and [stays](Kernel::stays).
    pub fn goes_on(&mut self, index: u32) -> bool {
        let goes_on = self.current() == Some(index) && self.stays();
        self.processor.upset = !goes_on;
        goes_on
    }

    /// The same for a thread that was in `space` when the server outside was entered for it.
    #[inline]
    pub fn stays_in(&self, space: SpaceId) -> bool {
        let processor = &*self.processor;
        let index = self.processor.runs_now();
        self.threads.table.get(index).is_some_and(|thread| {
            thread.space == space && !processor.anew && !processor.queues.has_above(thread.standing.level())
        })
    }

    /// Whether so much time has passed since the thread was taken that this processor took last.
    pub fn has_run_for(&self, ns: u64) -> bool {
        self.hardware.now_ns() >= self.processor.since_ns + ns
    }

    /// A timer interrupt: wakes whose time has come; tells whether the current thread's slice is
    /// over and another of its priority waits.
    pub fn tick(&mut self) -> bool {
        let now = self.hardware.now_ns();
        self.wake_due(now);
        let Some(current) = self.current() else { return false };
        self.charge(now);
        self.stands(current);
        let processor = &*self.processor;
        if now < processor.slice_ns + TIME_SLICE_NS {
            self.hardware.set_timer(processor.slice_ns + TIME_SLICE_NS);
            return false;
        }
        // A thread that becomes ready from now on waits for a slice, not for some timer of others.
        self.hardware.set_timer(now + TIME_SLICE_NS);
        let standing = self.threads.table[current as usize].standing;
        processor
            .queues
            .highest()
            .is_some_and(|waiting| waiting >= standing.level())
            || standing.is_behind() && self.is_anybody_ahead()
    }

    /// Takes the next thread to run; `None` if there is none, or if so many had to be put behind first that interrupts should have their turn
    /// ([`Kernel::has_waiting`]). A thread that is still current stays.
    pub fn schedule(&mut self) -> Option<u32> {
        if let Some(current) = self.current() {
            return Some(current);
        }
        if self.processor.queues.count() == 0 {
            self.wake_due(self.hardware.now_ns());
        }
        let index = match self.take_same() {
            Some(index) => index,
            None => self.take_first()?,
        };
        let now = self.hardware.now_ns();
        self.begin_run(index, now);
        Some(index)
    }

    /// A thread that is in no list has this processor from now on.
    #[inline(always)]
    fn begin_run(&mut self, index: u32, now: u64) -> &Thread {
        self.begin_slice(now);
        let processor = &mut *self.processor;
        processor.current = index;
        processor.upset = true;
        let thread = &mut self.threads.table[index as usize];
        thread.state = State::Running;
        thread.processor = processor.number;
        // Its operation, if it has one, is begun now.
        thread.unbegun = false;
        let on = u64::from(processor.number) << 32 | u64::from(thread.space.0);
        self.hardware.trace(Kind::Switch, thread.id, on);
        thread
    }

    /// The slice of the thread that runs here from now on begins.
    #[inline(always)]
    pub(crate) fn begin_slice(&mut self, now: u64) {
        let processor = &mut *self.processor;
        processor.since_ns = now;
        processor.slice_ns = now;
        self.hardware.set_timer(now + TIME_SLICE_NS);
    }

    /// Charges the current thread for its time.
    #[inline]
    pub(crate) fn account(&mut self) {
        let now = self.hardware.now_ns();
        let processor = &mut *self.processor;
        if let Some(thread) = self.threads.table.get_mut(processor.current as usize) {
            thread.time_ns += now.saturating_sub(processor.since_ns);
        }
        processor.since_ns = now;
    }

    /// Takes the running thread off its processor; it is in no list then.
    pub(crate) fn leave_processor(&mut self, index: u32) {
        if self.processor.current == index {
            self.account();
            self.processor.vacate();
        }
    }

    /// Lets a thread that is in no list run: at once, on the slice of the one that has just left
    /// this processor, unless somebody more urgent waits; else in its turn.
    #[inline]
    pub(crate) fn pass_to(&mut self, index: u32) {
        let thread = &mut self.threads.table[index as usize];
        let processor = &mut *self.processor;
        let can_run = thread.can_run_on(processor.number);
        if processor.current == NONE && can_run && processor.queues.highest() <= Some(thread.standing.level()) {
            if thread.standing.payer() != processor.payer && !self.stands_ahead(index) {
                return;
            }
            let thread = &mut self.threads.table[index as usize];
            let processor = &mut *self.processor;
            thread.behind_in = self.shares.period();
            thread.state = State::Running;
            thread.processor = processor.number;
            thread.unbegun = false;
            processor.current = index;
        } else {
            self.enqueue(index);
        }
    }

    #[inline]
    pub(crate) fn enqueue(&mut self, index: u32) {
        if self.has_others() {
            self.enqueue_at(index, self.place(index));
        } else {
            self.enqueue_here(index);
        }
    }

    /// Takes a thread out of whatever list or processor it is in. It is nowhere then.
    #[inline]
    pub(crate) fn detach(&mut self, index: u32) {
        self.hold(index);
        let thread = &mut self.threads.table[index as usize];
        let (state, number) = (thread.state, thread.processor);
        thread.deadline_ns = NO_TIME;
        match state {
            State::Ready => {
                let level = self.level(&self.threads.table[index as usize]);
                let part = self.processor.part_mut(number);
                part.queues.remove(&mut self.links, index, level);
                if part.again == index {
                    part.again = NONE;
                }
            }
            State::Parked(key) => self.leave_queue(index, key),
            State::Running => {
                self.account();
                if self.processor.current == index {
                    self.processor.vacate();
                }
            }
            State::Sending(to) => {
                let queue = &mut self.threads.table[to as usize].ipc.senders;
                queue.remove(&mut self.links, index);
            }
            State::Receiving => {
                self.end_wait(index);
            }
            State::Free | State::Suspended => {}
        }
        self.threads.table[index as usize].state = State::Suspended;
    }

    /// Wakes some of the threads whose time has come, those of the highest priority first, and of those that are on their way. The others
    /// follow after a pause (decision 0130).
    fn wake_due(&mut self, now: u64) {
        for _ in 0..WOKEN_BY_A_TICK {
            if let Some(index) = self.timers.due(now) {
                self.time_came(index, now);
            } else if let Some(index) = self.waits.first_on_its_way() {
                self.wake_index(index, Resumed::Woken);
            } else {
                break;
            }
        }
        let later = now + PAUSE_NS;
        if self.waits.first_on_its_way().is_some() {
            self.hardware.set_timer(later);
        }
        if let Some(at_ns) = self.timers.next_ns(now, later) {
            self.hardware.set_timer(at_ns);
        }
    }

    /// Wakes up to `count` threads of a key, given as a word: all, or [`WOKEN_AT_ONCE`] at most.
    #[inline]
    fn wake_word(&mut self, word: u64, count: u32) -> u32 {
        match self.waits.oldest(&self.threads.table, word) {
            Some((oldest, waiting)) if count.min(waiting) == 1 => {
                self.wake_index(oldest, Resumed::Woken);
                1
            }
            Some((_, waiting)) => self.wake_several(word, count, waiting),
            None => 0,
        }
    }

    fn wake_several(&mut self, word: u64, count: u32, waiting: u32) -> u32 {
        if waiting > AT_ONCE && waiting <= count {
            self.waits.send_off(&mut self.threads.table, &mut self.links, word);
            self.hardware.set_timer(self.hardware.now_ns());
            return waiting;
        }
        let woken = waiting.min(count).min(WOKEN_AT_ONCE);
        for _ in 0..woken {
            if let Some((oldest, _)) = self.waits.oldest(&self.threads.table, word) {
                self.wake_index(oldest, Resumed::Woken);
            }
        }
        woken
    }

    fn wake_index(&mut self, index: u32, resumed: Resumed) {
        match self.threads.table[index as usize].state {
            State::Parked(key) => self.leave_queue(index, key),
            State::Sending(to) => {
                let queue = &mut self.threads.table[to as usize].ipc.senders;
                queue.remove(&mut self.links, index);
            }
            // Only time wakes it without a message.
            State::Receiving => return self.fail(index, Error::TimedOut),
            State::Suspended => {}
            State::Free | State::Ready | State::Running => return,
        }
        let thread = &mut self.threads.table[index as usize];
        thread.deadline_ns = NO_TIME;
        if thread.is_intercepted() {
            thread.wait_ends(self.hardware.now_ns());
        }
        if !thread.unbegun {
            thread.resumed = resumed;
        }
        self.hardware.trace(Kind::Wake, thread.id, resumed as u64);
        self.enqueue(index);
    }

    /// A parked thread's operation fails.
    pub(crate) fn fail(&mut self, index: u32, error: Error) {
        self.detach(index);
        let thread = &mut self.threads.table[index as usize];
        thread.operation = None;
        if thread.ipc.trouble.take().is_none() {
            let context = &mut thread.context;
            context.reset(context.rip, context.rsp);
            context.set_results(error as u64, 0, 0);
        }
        self.enqueue(index);
    }

    /// An interrupt has come that a program may have asked for.
    pub fn interrupt(&mut self, interrupt: usize) {
        P::interrupt(self, interrupt);
    }

    /// The I/O permission bitmap of a space in the processor's format (a set bit forbids), or nothing if it never had a port. The space's
    /// root is flushed ([`Hardware::flush_root`]) when it changes.
    pub fn ports(&self, space: SpaceId) -> Option<&[u8; 8192]> {
        self.half.ports(space)
    }
}
