//! Several processors: where a thread waits, who takes it, and what must be asked of the others.
//!
//! Each processor has its run queues. A thread that becomes ready goes to a processor that is idle, to the one it ran on
//! last if that will do; else to one whose thread is less urgent; else to the shortest queues. A processor with empty
//! queues takes from the others'. So no processor is idle while a thread waits that it could run.
//!
//! Nothing is read or written of a thread that runs elsewhere but what the kernel keeps itself: its registers
//! are in that processor. [`Kernel::hold`] takes it off first.

use super::{Kernel, TIME_SLICE_NS};
use crate::{
    Half, Hardware, SpaceId,
    scheduler::{AHEAD, Link, NONE, Standing},
    smp::{Processor, Processors, record::ROOT},
    thread::{Resumed, State, Thread},
};

/// Threads that are put behind at once at most, before interrupts have their turn. One may cost 2,600 instructions, with accounts 16 levels deep.
const PUT_BEHIND_AT_ONCE: u32 = 6;

/// The burden of a processor by its queues alone: more than whoever runs on one without.
const fn burden_of_queue(waiting: u32) -> u64 {
    1 << 40 | (waiting as u64) << 8
}

impl Processor {
    /// A thread that is in no list waits here at a level. Tells whether it is more urgent than the one that runs here.
    #[inline(always)]
    fn admit(&mut self, table: &mut [Thread], links: &mut [Link], index: u32, level: u8) -> bool {
        let thread = &mut table[index as usize];
        thread.state = State::Ready;
        thread.processor = self.number;
        self.queues.push(links, index, level);
        let running = table.get(self.current as usize);
        let urgent = running.is_none_or(|running| running.standing.level() < level);
        self.upset |= urgent;
        urgent
    }
}

/// The processors beside the one that handles this event.
#[derive(Copy, Clone)]
pub struct Elsewhere<'a> {
    /// The records of all.
    pub(super) processors: &'a dyn Processors,
    /// How many there are, or zero where there is but one.
    pub(super) count: u32,
}

impl Elsewhere<'_> {
    /// Bits of those for which something holds.
    fn that(self, holds: impl Fn(&Processor) -> bool) -> u32 {
        let here = self.processors.number;
        (0..self.count)
            .filter(|&number| number != here && holds(self.processors.part(number)))
            .fold(0, |found, number| found | 1 << number)
    }

    /// Bits of those who are in a space for which something holds, and so may hold translations of it.
    pub fn inside(self, holds: impl Fn(SpaceId) -> bool) -> u32 {
        self.that(|part| part.space != SpaceId::NONE && holds(part.space))
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
            self.processors = u32::BITS - running.leading_zeros();
            for number in 0..self.processors {
                self.processor.part_mut(number).runs = running & 1 << number != 0;
            }
            self.shares.set_processors(running.count_ones());
            self.spaces.keep_nothing();
        }
    }

    /// The processor that handles this event.
    #[inline]
    pub fn here(&self) -> u32 {
        self.processor.own_number()
    }

    /// Whether several processors run.
    #[inline]
    pub fn has_others(&self) -> bool {
        self.processors > 0
    }

    /// A processor handles events again, after another one. Its record is where it was.
    pub fn change_over(&mut self, number: u32) {
        self.processor.come_in(number);
        self.processor.called = false;
    }

    /// The records of all processors.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Processor> {
        (0..self.processors.max(1)).map(|number| self.processor.part(number))
    }

    /// Bits of the other processors for which something holds.
    fn others_where(&self, holds: impl Fn(&Processor) -> bool) -> u32 {
        self.elsewhere().that(holds)
    }

    pub(super) fn elsewhere(&self) -> Elsewhere<'_> {
        Elsewhere {
            processors: &self.processor,
            count: self.processors,
        }
    }

    /// How long a thread has been running since it was charged last.
    pub(super) fn running_ns(&self, thread: &Thread) -> u64 {
        if thread.state != State::Running {
            return 0;
        }
        let since_ns = self.processor.part(thread.processor).since_ns;
        self.hardware.now_ns().saturating_sub(since_ns)
    }

    // ---- where threads run ----------------------------------------------------------------------

    /// The processor at which a ready thread should wait.
    pub(super) fn place(&self, index: u32) -> u32 {
        let thread = &self.threads.table[index as usize];
        if let Some(number) = thread.vectors.processor() {
            return number;
        }
        let last = self.processor.part(thread.processor);
        if last.is_idle() {
            return last.number;
        }
        if self.processor.is_idle() {
            return self.processor.number;
        }
        // Idle before busy with something less urgent before the shortest queue; where it was last if that is as good.
        let level = u64::from(thread.standing.level());
        let mut best = (self.burden(last, level), last.number);
        for part in self.parts() {
            // Mostly the queue alone is too long: then nothing is asked about the thread that runs there.
            let waiting = part.queues.count();
            if !part.runs || waiting > 0 && burden_of_queue(waiting) >= best.0 {
                continue;
            }
            let burden = self.burden(part, level);
            if burden < best.0 {
                best = (burden, part.number);
            }
        }
        best.1
    }

    /// How little a processor suits a thread of this level: nothing if it is idle; what runs there if that is less urgent and nobody waits; else mostly the
    /// length of its queues.
    #[inline(always)]
    fn burden(&self, part: &Processor, level: u64) -> u64 {
        let running = self.threads.table.get(part.current as usize);
        let urgency = running.map_or(0, |running| 1 + u64::from(running.standing.level()));
        let waiting = part.queues.count();
        if waiting == 0 && urgency <= level {
            urgency
        } else {
            burden_of_queue(waiting) | urgency
        }
    }

    /// Processors that are looked at for each thread that becomes ready; none where there is but one. Work in pieces pays for that.
    pub(crate) fn processors_looked_at(&self) -> i32 {
        self.processors.cast_signed()
    }

    /// Puts a thread on the queues of a processor, and calls that if it should look.
    pub(crate) fn enqueue_at(&mut self, index: u32, number: u32) {
        if number == self.processor.number {
            return self.enqueue_here(index);
        }
        let level = self.new_level(index);
        let part = self.processor.part_mut(number);
        let urgent = part.admit(&mut self.threads.table, &mut self.links, index, level);
        if urgent && !part.called {
            part.called = true;
            self.hardware.wake_processor(number);
        }
    }

    /// Puts a thread on the queues of this processor.
    #[inline(always)]
    pub(crate) fn enqueue_here(&mut self, index: u32) {
        let level = self.new_level(index);
        self.processor
            .admit(&mut self.threads.table, &mut self.links, index, level);
    }

    /// Has the processor look again that a thread runs on, if that is another one.
    pub(super) fn call(&mut self, index: u32) {
        let thread = &self.threads.table[index as usize];
        let number = thread.processor;
        if thread.state == State::Running && number != self.processor.number {
            self.processor.part_mut(number).called = true;
            self.hardware.wake_processor(number);
        }
    }

    /// Takes a thread that waits for another processor, at a level above this one.
    #[cold]
    fn steal(&mut self, above: Option<u8>) -> Option<u32> {
        let here = self.processor.number;
        let table = &self.threads.table;
        let fits = |thread: u32| table[thread as usize].can_run_on(here);
        let mut best: Option<(u32, u8, u32)> = None;
        for part in self.parts().filter(|part| part.number != here) {
            if part.queues.count() > 0
                && let Some((thread, level)) = part.queues.find(&self.links, fits)
                && Some(level) > best.map_or(above, |(_, best, _)| Some(best))
            {
                best = Some((thread, level, part.number));
            }
        }
        let (thread, level, from) = best?;
        let part = self.processor.part_mut(from);
        part.queues.remove(&mut self.links, thread, level);
        if part.again == thread {
            part.again = NONE;
        }
        Some(thread)
    }

    /// Nothing keeps a thread on this processor any more: if it waits, somebody idle may take it.
    pub(super) fn unbind(&mut self, index: u32) {
        if self.threads.table[index as usize].state != State::Ready || !self.has_others() {
            return;
        }
        let idle = self.others_where(|part| part.is_idle() && !part.called);
        if idle != 0 {
            let number = idle.trailing_zeros();
            self.processor.part_mut(number).called = true;
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
        let part = self.processor.part_mut(number);
        let ran_ns = now.saturating_sub(part.since_ns);
        part.vacate();
        // It left the space when it was stopped.
        part.leave_space();
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

    // ---- who pays, and who waits behind all others (decision 0113) ---------------------------------

    /// The level that a thread waits at: one that was put behind in an earlier period has come forward.
    pub(super) fn level(&self, thread: &Thread) -> u8 {
        if thread.standing.is_behind() && thread.behind_in != self.shares.period() {
            return thread.standing.ahead().level();
        }
        thread.standing.level()
    }

    /// The level at which a thread begins to wait.
    #[inline]
    pub(super) fn new_level(&mut self, index: u32) -> u8 {
        let thread = &self.threads.table[index as usize];
        if thread.standing.is_behind() && thread.behind_in != self.shares.period() {
            self.refresh(index);
        }
        self.threads.table[index as usize].standing.level()
    }

    /// Takes the first thread that waits here, if it stands as the one that ran last, and nobody elsewhere goes before it.
    #[inline(always)]
    pub(super) fn take_same(&mut self) -> Option<u32> {
        let processor = &mut *self.processor;
        let (index, level) = processor.queues.first()?;
        let standing = self.threads.table.get(index as usize)?.standing;
        if standing.payer() != processor.payer || standing.level() != level || level < AHEAD && self.processors > 0 {
            return None;
        }
        processor.queues.remove_first(&mut self.links, level);
        Some(index)
    }

    /// Takes the first thread that waits, here or, if nobody is ahead here, elsewhere. Threads whose shares are spent are put behind until one is
    /// found, or interrupts have to have their turn.
    #[cold]
    pub(super) fn take_first(&mut self) -> Option<u32> {
        for _ in 0..PUT_BEHIND_AT_ONCE {
            let highest = self.processor.queues.highest();
            let stolen = if highest >= Some(AHEAD) || !self.has_others() {
                None
            } else {
                self.steal(highest.map(|_| AHEAD - 1))
            };
            let Some(index) = stolen.or_else(|| self.processor.queues.pop(&mut self.links)) else {
                self.pay_by(ROOT);
                return None;
            };
            if self.stands_ahead(index) {
                return Some(index);
            }
        }
        None
    }

    /// Whether somebody waits for another processor and is ahead.
    pub(super) fn is_anybody_ahead(&self) -> bool {
        self.others_where(|part| part.queues.highest() >= Some(AHEAD)) != 0
    }

    /// Whether threads wait here.
    pub fn has_waiting(&self) -> bool {
        self.processor.queues.count() > 0
    }

    /// A thread that is in no list is about to run here; false if its share turns out to be spent, and it waits behind instead.
    #[cold]
    pub(super) fn stands_ahead(&mut self, index: u32) -> bool {
        let was_ahead = self.level(&self.threads.table[index as usize]) >= AHEAD;
        self.stands(index);
        let goes_behind = was_ahead && self.threads.table[index as usize].standing.is_behind();
        if goes_behind {
            self.enqueue_at(index, self.processor.number);
        }
        !goes_behind
    }

    /// A thread that is in no list runs here from now on: its share pays.
    #[cold]
    pub(super) fn stands(&mut self, index: u32) {
        self.pay_by(self.threads.table[index as usize].standing);
        self.refresh(index);
        self.processor.payer = self.threads.table[index as usize].standing.payer();
    }

    /// Puts a thread that is in no list, or runs here, where it belongs: behind if its share is spent. Otherwise this processor looks again when
    /// it may be.
    #[cold]
    fn refresh(&mut self, index: u32) {
        let thread = &mut self.threads.table[index as usize];
        let left_ns = self.shares.left_ns(thread.standing.share());
        if left_ns == 0 {
            thread.standing = thread.standing.behind();
            thread.behind_in = self.shares.period();
            self.processor.upset = true;
            return;
        }
        thread.standing = thread.standing.ahead();
        if left_ns < TIME_SLICE_NS {
            let now = self.hardware.now_ns();
            self.hardware.set_timer(now + left_ns);
        }
    }

    /// From now on the time of this processor is charged to the share of whoever stands so.
    fn pay_by(&mut self, standing: Standing) {
        if standing.share() != self.processor.payer.share() {
            self.charge(self.hardware.now_ns());
        }
        self.processor.payer = standing.payer();
    }

    /// Charges the time of this processor, and begins a period if it is time.
    pub(super) fn charge(&mut self, now: u64) {
        let part = &mut *self.processor;
        let ns = now.saturating_sub(core::mem::replace(&mut part.charged_ns, now));
        self.shares.charge(part.payer.share(), ns);
        if self.shares.next_period(now) {
            for number in 0..self.processors.max(1) {
                let part = self.processor.part_mut(number);
                part.queues.come_forward(&mut self.links);
                part.upset = true;
                part.payer = part.payer.ahead();
                if let Some(thread) = self.threads.table.get_mut(part.current as usize) {
                    thread.standing = thread.standing.ahead();
                }
            }
        }
    }
}
