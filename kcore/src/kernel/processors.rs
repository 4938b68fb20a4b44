//! Several processors: where a thread waits, who takes it, and what must be asked of the others.
//!
//! Each processor has its run queues. A thread that becomes ready goes to a processor that is idle, to the one it ran on
//! last if that will do; else to one whose thread is less urgent; else to the shortest queues. Who finds his own
//! queues empty takes from the others'. So nobody is idle while a thread waits that he could run.
//!
//! Nothing is read or written of a thread that runs elsewhere but what the kernel keeps itself: its registers
//! are in that processor. [`Kernel::hold`] takes it off first.

use alloc::vec::Vec;

use super::{Kernel, Processor};
use crate::{
    Half, Hardware, SpaceId,
    scheduler::NONE,
    smp::Request,
    thread::{Resumed, State, Thread},
};

impl Processor {
    /// One that does nothing.
    pub(super) fn new(number: u32) -> Self {
        Self {
            number,
            current: NONE,
            space: SpaceId::NONE,
            anew: false,
            since_ns: 0,
            slice_ns: 0,
            called: false,
            runs: true,
            queues: crate::scheduler::RunQueues::default(),
        }
    }

    /// Whether it has nothing to do, now or next.
    fn is_idle(&self) -> bool {
        self.current == NONE && self.queues.count() == 0 && self.runs
    }
}

/// The processors beside the one that handles this event.
#[derive(Copy, Clone)]
pub struct Elsewhere<'a> {
    /// All parts by number, or none where there is but one.
    pub parts: &'a [Processor],
    /// This one's number.
    pub here: u32,
}

impl Elsewhere<'_> {
    /// Bits of those for which something holds.
    fn that(self, holds: impl Fn(&Processor) -> bool) -> u32 {
        let mut found = 0;
        for (number, part) in self.parts.iter().enumerate() {
            if number as u32 != self.here && holds(part) {
                found |= 1 << number;
            }
        }
        found
    }

    /// Bits of those who are in a space, and so may hold translations of it.
    pub fn inside(self, space: SpaceId) -> u32 {
        self.that(|part| part.space == space)
    }

    /// Bits of those who are in some space: the others hold no user translation.
    pub fn in_any(self) -> u32 {
        self.that(|part| part.space != SpaceId::NONE)
    }
}

impl<H: Hardware, P: Half> Kernel<H, P> {
    /// Says which processors run (a bit for each number, this one's among them), before the first thread does.
    pub fn set_processors(&mut self, running: u32) {
        if running.count_ones() > 1 {
            self.others = (0..32 - running.leading_zeros())
                .map(|number| Processor {
                    runs: running & 1 << number != 0,
                    ..Processor::new(number)
                })
                .collect::<Vec<_>>();
            self.spaces.keep_nothing();
        }
    }

    /// The processor that handles this event.
    #[inline]
    pub fn here(&self) -> u32 {
        self.processor.number
    }

    /// Whether several processors run.
    #[inline]
    pub fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// Another processor handles events now.
    pub fn change_over(&mut self, number: u32) {
        let here = self.processor.number as usize;
        if number as usize >= self.others.len() || number as usize == here {
            return;
        }
        core::mem::swap(&mut self.processor, &mut self.others[here]);
        core::mem::swap(&mut self.processor, &mut self.others[number as usize]);
        self.processor.called = false;
    }

    /// The parts of all processors, in no order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Processor> {
        // What stands in the place of the one that is here counts for nothing.
        let here = self.processor.number;
        core::iter::once(&self.processor).chain(
            self.others
                .iter()
                .enumerate()
                .filter(move |(number, _)| *number as u32 != here)
                .map(|(_, part)| part),
        )
    }

    /// A processor's part.
    pub(super) fn part(&self, number: u32) -> &Processor {
        if number == self.processor.number {
            return &self.processor;
        }
        self.others.get(number as usize).unwrap_or(&self.processor)
    }

    /// The same, to change.
    pub(super) fn part_mut(&mut self, number: u32) -> &mut Processor {
        if number == self.processor.number {
            return &mut self.processor;
        }
        self.others.get_mut(number as usize).unwrap_or(&mut self.processor)
    }

    /// Bits of the other processors for which something holds.
    fn others_where(&self, holds: impl Fn(&Processor) -> bool) -> u32 {
        self.elsewhere().that(holds)
    }

    fn elsewhere(&self) -> Elsewhere<'_> {
        Elsewhere {
            parts: &self.others,
            here: self.processor.number,
        }
    }

    /// How long a thread has been running since it was charged last.
    pub(super) fn running_ns(&self, thread: &Thread) -> u64 {
        if thread.state != State::Running {
            return 0;
        }
        let since_ns = self.part(thread.processor).since_ns;
        self.hardware.now_ns().saturating_sub(since_ns)
    }

    // ---- where threads run ----------------------------------------------------------------------

    /// Where a thread that is ready should wait.
    pub(super) fn place(&self, index: u32) -> u32 {
        let thread = &self.threads.table[index as usize];
        if thread.vector_on != NONE {
            return thread.vector_on;
        }
        let last = self.part(thread.processor);
        if last.is_idle() {
            return last.number;
        }
        if self.processor.is_idle() {
            return self.processor.number;
        }
        // Idle before busy with something less urgent before the shortest queue; where it was last if that is as good.
        let burden = |part: &Processor| {
            let priority = self
                .threads
                .table
                .get(part.current as usize)
                .map_or(0, |running| 1 + u32::from(running.priority));
            let waiting = part.queues.count();
            if part.current == NONE && waiting == 0 {
                (0, 0, 0)
            } else if waiting == 0 && priority <= u32::from(thread.priority) {
                (1, priority, 0)
            } else {
                (2, waiting, priority)
            }
        };
        let mut best = (burden(last), last.number);
        for number in 0..self.others.len() as u32 {
            let part = self.part(number);
            if part.runs && burden(part) < best.0 {
                best = (burden(part), number);
            }
        }
        best.1
    }

    /// Puts a thread on the queues of a processor, and calls that if it should look.
    #[inline]
    pub(crate) fn enqueue_at(&mut self, index: u32, number: u32) {
        let thread = &mut self.threads.table[index as usize];
        let priority = thread.priority;
        thread.state = State::Ready;
        thread.processor = number;
        if number == self.processor.number {
            self.processor.queues.push(&mut self.links, index, priority);
            return;
        }
        let Some(part) = self.others.get_mut(number as usize) else {
            return;
        };
        part.queues.push(&mut self.links, index, priority);
        let urgent = self
            .threads
            .table
            .get(part.current as usize)
            .is_none_or(|running| running.priority < priority);
        if urgent && !part.called {
            part.called = true;
            self.hardware.wake_processor(number);
        }
    }

    /// Has the processor look again that a thread runs on, if that is another one.
    pub(super) fn call(&mut self, index: u32) {
        let thread = &self.threads.table[index as usize];
        let number = thread.processor;
        if thread.state == State::Running && number != self.processor.number {
            self.part_mut(number).called = true;
            self.hardware.wake_processor(number);
        }
    }

    /// Takes a thread that waits for another processor.
    #[cold]
    pub(super) fn steal(&mut self) -> Option<u32> {
        let here = self.processor.number;
        let table = &self.threads.table;
        let fits = |thread: u32| {
            let on = table[thread as usize].vector_on;
            on == NONE || on == here
        };
        let mut best: Option<(u32, u8, u32)> = None;
        for part in self.others.iter().filter(|part| part.number != here) {
            if part.queues.count() > 0
                && let Some((thread, priority)) = part.queues.find(&self.links, fits)
                && best.is_none_or(|(_, best, _)| priority > best)
            {
                best = Some((thread, priority, part.number));
            }
        }
        let (thread, priority, from) = best?;
        self.others[from as usize]
            .queues
            .remove(&mut self.links, thread, priority);
        Some(thread)
    }

    /// The state that kept a thread on this processor is saved: if it waits, somebody idle may take it.
    pub fn unbind(&mut self, index: u32) {
        let thread = &mut self.threads.table[index as usize];
        thread.vector_on = NONE;
        if thread.state != State::Ready || !self.has_others() {
            return;
        }
        let idle = self.others_where(|part| part.is_idle() && !part.called);
        if idle != 0 {
            let number = idle.trailing_zeros();
            self.part_mut(number).called = true;
            self.hardware.wake_processor(number);
        }
    }

    /// Takes a thread off the processor that it runs on, if that is another one: it is ready then, and its registers
    /// stand in its context.
    #[inline]
    pub(crate) fn hold(&mut self, index: u32) {
        let thread = &self.threads.table[index as usize];
        if thread.state == State::Running && thread.processor != self.processor.number {
            self.take_off(index);
        }
    }

    #[cold]
    fn take_off(&mut self, index: u32) {
        let number = self.threads.table[index as usize].processor;
        let handed = self.hardware.stop_processor(number);
        let now = self.hardware.now_ns();
        let part = self.part_mut(number);
        let ran_ns = now.saturating_sub(part.since_ns);
        part.current = NONE;
        // It left the space when it was stopped.
        part.space = SpaceId::NONE;
        // It comes by without being called: to find that its thread is gone.
        part.called = true;
        let thread = &mut self.threads.table[index as usize];
        thread.time_ns += ran_ns;
        if let Some(call) = handed {
            if !call.operation.is_raised() {
                thread.context.reset(call.rip, call.rsp);
            }
            thread.operation = Some(call.operation);
            thread.resumed = Resumed::First;
            thread.unbegun = true;
        }
        self.enqueue_at(index, number);
    }

    // ---- which root is loaded (decision 0070) ------------------------------------------------------

    /// Loads a root by its space's value ([`crate::space::Space::load`]) and notes down whose it is.
    #[inline(always)]
    pub fn load(&mut self, space: SpaceId, load: u64) {
        self.hardware.load_root(load);
        self.processor.space = space;
    }

    /// Puts this processor in `space`, for a thread that it is set up for.
    #[inline(always)]
    pub fn enter_space(&mut self, space: SpaceId) {
        self.processor.anew = false;
        if self.processor.space != space {
            self.load_space(space);
        }
    }

    /// Loads the root of a space.
    #[inline(always)]
    fn load_space(&mut self, space: SpaceId) {
        let load = self.spaces.get(space).load;
        self.spaces.loaded(space);
        self.load(space, load);
    }

    /// Whatever thread runs next here, the processor is set up for it first ([`Kernel::enter_space`]).
    pub fn set_up_anew(&mut self) {
        self.processor.anew = true;
    }

    /// Whether the root that is loaded here is the one that is noted down.
    pub fn is_root_known(&self) -> bool {
        let noted = self.processor.space;
        self.hardware.loaded_root() == (noted != SpaceId::NONE).then(|| self.spaces.get(noted).root.physical())
    }

    /// This processor has nothing to run: it leaves the space that it was in, so that nobody has to ask it to forget anything.
    pub fn rest(&mut self) {
        if self.has_others() {
            self.leave_space();
        }
    }

    /// This processor goes to the kernel's own root.
    pub(super) fn leave_space(&mut self) {
        self.hardware.leave_all_roots();
        self.processor.space = SpaceId::NONE;
    }

    /// Every processor that is in a space leaves it, before what it is made of is freed.
    pub(super) fn leave_everywhere(&mut self, space: SpaceId) {
        self.ask_inside(space, Request::LeaveRoot);
        for processor in &mut self.others {
            if processor.space == space {
                processor.space = SpaceId::NONE;
            }
        }
        if self.processor.space == space {
            self.leave_space();
        }
        debug_assert!(
            self.is_root_known(),
            "a root is freed while another is loaded than is noted down"
        );
    }

    // ---- what others remember -------------------------------------------------------------------

    /// Asks those who are in a space.
    #[inline(always)]
    pub(crate) fn ask_inside(&mut self, space: SpaceId, request: Request) {
        if self.has_others() {
            self.ask_others_inside(space, request);
        }
    }

    #[cold]
    fn ask_others_inside(&mut self, space: SpaceId, request: Request) {
        let inside = self.elsewhere().inside(space);
        if inside != 0 {
            self.hardware.ask(inside, request);
        }
    }

    /// Asks everyone who may hold user translations.
    pub(super) fn ask_all(&mut self, request: Request) {
        if !self.has_others() {
            return;
        }
        let inside = self.elsewhere().in_any();
        if inside != 0 {
            self.hardware.ask(inside, request);
        }
    }
}
