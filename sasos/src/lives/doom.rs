//! Threads that have to end and are inside a procedure of others.
//!
//! Such a thread holds one of the procedure's stacks, perhaps its locks, so it may return first. It has a bound of
//! [`UNWIND_BOUND_NS`], of which its own processor time is taken, and the time in which it waits; the time in which
//! others kept the processor from it is not. The kernel counts both. When the bound is used up, the domain of the innermost call is told by its handler for
//! `EXCEPTION_KILL`, if it has registered one and none runs in that call; a wait is cut short for that and returns `TimedOut`. The handler has the same bound once
//! more. Then that one call is unwound, its caller gets `CalleeFault` and the bound anew: a service that has called another one
//! can put its own data in order. A thread that is out of all calls ends.
//!
//! The bound belongs to the call in which it began: time inside calls that this one makes meanwhile counts, too. A call is never cut off
//! before its own bound, so one that runs when its caller's time is up gets a bound of its own, and from then on the thread makes no further calls
//! ([`Error::TooDeep`]). So the thread comes out of at most [`CALL_DEPTH_MAX`] calls twice.

use abi::{
    Error, Rights,
    layout::{CALL_DEPTH_MAX, EXCEPTION_KILL, ExitReport},
};
use kcore::{
    ThreadId,
    machine::Intercept,
    thread::{Context, Resumed},
};

use crate::{
    Server, World,
    lives::budget::Cost,
    lives::exception::Fault,
    lives::thread::Pause,
    lives::work::{COST_LARGEST, PIECE},
};

/// How long a thread that is to end may work or wait inside a foreign callee.
pub const UNWIND_BOUND_NS: u64 = 1_000_000_000;

/// The cost of looking at a condemned thread, in instructions, roughly, and of unwinding it.
const COST_LOOK: Cost = Cost::calling(300, 3);
const COST_UNWIND: Cost = Cost::calling(1500, 8);
// Each poll has enough for one before the list of work, and each second poll looks at them before it looks at callees.
const _: () = assert!(COST_LOOK.and(COST_UNWIND).outside() <= PIECE - COST_LARGEST);

/// The time from the beginning of a round of looks to that of the next one.
const ROUND_NS: u64 = 100_000_000;

/// A round of looks at all threads that are condemned, in pieces.
#[derive(Default)]
pub(crate) struct Round {
    /// How many there are.
    count: usize,
    /// How many of them this round has left to look at.
    unseen: usize,
    /// When the next round begins.
    next_ns: u64,
}

impl Round {
    /// One more is condemned.
    pub(crate) const fn enter(&mut self) {
        self.count += 1;
    }

    /// One is not any more.
    pub(crate) fn leave(&mut self) {
        self.count -= 1;
        self.unseen = self.unseen.min(self.count);
    }

    /// Whether a round has begun and is not over.
    #[inline]
    pub(crate) const fn is_under_way(&self) -> bool {
        self.unseen > 0
    }

    /// Begins a round if one is due.
    const fn begin(&mut self, now_ns: u64) {
        if self.unseen == 0 && now_ns >= self.next_ns {
            (self.unseen, self.next_ns) = (self.count, now_ns + ROUND_NS);
        }
    }
}

/// A thread that has to end when it comes back from a foreign callee.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Doom {
    /// How it ends.
    pub report: ExitReport,
    /// The depth of the call that the bound belongs to.
    depth: usize,
    /// The time that is left of that bound.
    left_ns: u64,
    /// Whether the callee there has been told.
    told: bool,
    /// Whether the thread may make no further calls.
    closed: bool,
    /// The time that it had worked and waited when it was looked at last.
    spent_ns: u64,
}

impl Doom {
    /// The bound begins anew, and belongs to the call at a depth.
    fn begin(&mut self, depth: usize) {
        (self.depth, self.left_ns, self.told) = (depth, UNWIND_BOUND_NS, false);
    }

    /// The thread has left a call, and `depth` are left.
    pub fn left_call(&mut self, depth: usize) {
        if depth < self.depth {
            self.begin(depth);
        }
    }

    /// How many calls the thread may be inside of.
    pub fn depth_max(&self) -> usize {
        if self.closed { self.depth } else { CALL_DEPTH_MAX }
    }
}

/// The time that a thread has worked, and that it has waited since its returns are intercepted. It is counted, for a thread could arrange to be ready at
/// each look and sleep in between.
fn spent_ns(world: &impl World, thread: ThreadId) -> u64 {
    world.thread_time_ns(thread) + world.thread_waited_ns(thread)
}

impl Server {
    /// Ends a thread; one that is inside a foreign callee may return first, so that the callee's data are whole.
    pub fn thread_condemn(&mut self, world: &mut impl World, thread: ThreadId, report: ExitReport) {
        let depth = world.portal_depth(thread);
        if depth == 0 {
            self.thread_end(world, thread, report);
            return;
        }
        let spent_ns = spent_ns(world, thread);
        let record = self.threads.record(thread);
        if record.doom.is_none() {
            record.doom = Some(Doom {
                report,
                depth,
                left_ns: UNWIND_BOUND_NS,
                told: false,
                closed: false,
                spent_ns,
            });
            let task = record.task;
            self.threads.condemn(thread);
            if let Some(task) = self.tasks.get_mut(task) {
                self.threads.leave(&mut task.members, thread);
            }
        }
        world.portal_intercept(thread, Intercept::Yes);
    }

    /// Whether a thread that came back from a callee has to end now; it is ended then.
    pub fn doom_falls(&mut self, world: &mut impl World, thread: ThreadId) -> bool {
        let Some(doom) = self.threads.record(thread).doom else {
            return false;
        };
        if world.portal_depth(thread) > 0 {
            return false;
        }
        self.thread_end(world, thread, doom.report);
        true
    }

    /// What `Event::Poll` does on threads and callees that are to end, as far as the budget reaches: of the two kinds each goes first every second time, for the
    /// other might use it up.
    pub fn poll_control(&mut self, world: &mut impl World) {
        let callees_first = self.callees.take_turn();
        if callees_first {
            self.retired_callees_end(world);
        }
        self.condemned_threads_go_on(world);
        if !callees_first {
            self.retired_callees_end(world);
        }
        self.finish_ends(world);
    }

    /// Unwinds what was condemned and has not returned in time: looks at each of them in turn.
    fn condemned_threads_go_on(&mut self, world: &mut impl World) {
        if self.threads.dooms.count == 0 {
            return;
        }
        self.threads.dooms.begin(world.now_ns());
        while self.threads.dooms.is_under_way()
            && self.budget.has(COST_LOOK.and(COST_UNWIND))
            && let Some(thread) = self.threads.first_condemned()
        {
            self.threads.dooms.unseen -= 1;
            self.budget.spend(COST_LOOK);
            self.doom_goes_on(world, thread);
        }
    }

    /// Looks at a thread that was condemned.
    fn doom_goes_on(&mut self, world: &mut impl World, thread: ThreadId) {
        let Some(mut doom) = self.threads.find(thread).and_then(|record| record.doom) else {
            return;
        };
        let spent_ns = spent_ns(world, thread);
        doom.left_ns = doom.left_ns.saturating_sub(spent_ns.saturating_sub(doom.spent_ns));
        doom.spent_ns = spent_ns;
        let depth = world.portal_depth(thread);
        let mut unwinds = false;
        if doom.left_ns == 0 && depth > doom.depth {
            doom.closed = true;
            doom.begin(depth);
        } else if doom.left_ns == 0 {
            self.budget.spend(COST_UNWIND);
            doom.left_ns = UNWIND_BOUND_NS;
            doom.told = !doom.told && self.doom_is_told(world, thread);
            unwinds = !doom.told;
        }
        self.threads.record(thread).doom = Some(doom);
        if unwinds {
            self.remark(world, format_args!("thread {:#x} is unwound by force", thread.0));
            self.unwind_to(world, thread, depth.saturating_sub(1));
            self.doom_falls(world, thread);
        }
    }

    /// Calls the handler of the domain that a condemned thread is inside of, if it has one.
    fn doom_is_told(&mut self, world: &mut impl World, thread: ThreadId) -> bool {
        let fault = Fault {
            kind: EXCEPTION_KILL,
            address: 0,
            wanted: Rights::NONE,
            had: 0,
        };
        let Some(handler) = self.handler_for(world, thread, fault.kind) else {
            return false;
        };
        let ready = world.thread_is_ready(thread);
        self.waiting_ends(world, thread);
        if world.thread_drop_operation(thread) {
            // Only these two are kept of a call, and it returns when the handler is over.
            let context = world.thread_context(thread);
            let mut after = Context::scrubbed(context.rip, context.rsp);
            after.set_results(Error::TimedOut as u64, 0, 0);
            world.thread_set_context(thread, &after);
        }
        let record = self.threads.record(thread);
        record.bookmark = None;
        record.pause = Pause::No;
        self.handler_enter(world, thread, handler, fault);
        if !ready {
            world.thread_wake(thread, Resumed::Woken);
        }
        true
    }
}
