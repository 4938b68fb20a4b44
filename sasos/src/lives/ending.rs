//! How threads end, and how their parents learn of it.
//!
//! The end of a thread takes it out of its calls, its waits and its task, hands its children on,
//! and leaves a record for its parent. With the last thread of a task the task ends
//! ([`crate::lives::task`]). Children are handed on in pieces, as part of the work of the task; the thread has ended
//! when all are.

use abi::{
    Error,
    call::arguments::{ThreadDelete, ThreadWait},
    layout::ExitReport,
};
use kcore::{ThreadId, scheduler::NONE, thread::Resumed, wait::Key};

use crate::{
    Outcome, Server, Step, Stop, World,
    accounts::Resource,
    containers::push_reserved,
    lives::budget::Cost,
    lives::continuation::Continuation,
    lives::control::Control,
    lives::task::TaskId,
    lives::thread::{Caller, Life, Pause},
};

/// The cost of handing a child on, in instructions, roughly; of giving the place of one back, and of looking at one.
const COST_CHILD: Cost = Cost::own(200);
const COST_REAP: Cost = Cost::calling(800, 1);
const COST_LOOK: Cost = Cost::own(60);

impl Server {
    /// Ends a thread at once, wherever it is. With the last thread of a task the task ends, when the event is over
    /// ([`Server::finish_ends`]): the end of a task may end callees, and threads inside of them, and with these
    /// further tasks, which must not pile up on the kernel's stack.
    pub fn thread_end(&mut self, world: &mut impl World, thread: ThreadId, report: ExitReport) {
        for _ in 0..world.portal_depth(thread) {
            self.callee_leave(world, thread, 0, 0, 0);
        }
        self.waiting_ends(world, thread);
        self.handlers_end(thread);
        let record = self.threads.record(thread);
        let (task, stack) = (record.task, record.stack);
        record.report = report;
        let condemned = record.doom.take().is_some();
        record.pause = Pause::No;
        let has_children = record.children.head != NONE || record.ended.head != NONE;
        if condemned {
            self.threads.pardon(thread);
        }
        if self.tasks.initial == Some(task) {
            self.tell_first_end(world, task, thread, report);
        }
        if let Some(task) = self.tasks.get_mut(task) {
            push_reserved(&mut task.stacks, stack);
            task.threads -= 1;
            if !condemned {
                self.threads.leave(&mut task.members, thread);
            }
            if task.threads == 0 || has_children {
                let id = task.id;
                if task.threads == 0 {
                    task.last = thread;
                }
                if has_children {
                    self.threads.join(&mut task.parting, thread);
                }
                world.thread_suspend(thread);
                self.threads.record(thread).life = Life::Ending;
                self.task_ends(id);
                return;
            }
        }
        self.thread_has_ended(world, thread);
    }

    /// The parent of a thread learns that it has ended: when its children have another one, and with the last of a task, when the task
    /// has given back what it had.
    pub(crate) fn thread_has_ended(&mut self, world: &mut impl World, thread: ThreadId) {
        let record = self.threads.record(thread);
        let (parent, status) = (record.parent, record.report.status);
        if parent.0 == 0 {
            self.thread_reap(world, thread);
        } else if self.is_awaited(world, parent, thread) {
            // Nothing keeps its record or its place: the parent has its answer here and now.
            self.thread_reap(world, thread);
            world.thread_answer(parent, thread.0, status);
        } else {
            self.threads.leave_parent(thread);
            self.threads.record(thread).life = Life::Ended;
            world.thread_suspend(thread);
            self.threads.adopt(parent, thread);
            // If the parent is in another domain, it does not wait for this child.
            if self.threads.record(thread).parent_domain == self.domains.serial(world.thread_space(parent)) {
                world.wake(Key::Child(parent.0), u32::MAX);
            }
        }
    }

    /// Whether a thread is parked in a call whose whole answer is the end of this child.
    #[inline]
    fn is_awaited(&mut self, world: &impl World, parent: ThreadId, child: ThreadId) -> bool {
        let Continuation::Child(wanted) = self.threads.record(parent).continuation else {
            return false;
        };
        let made_in = self.threads.record(child).parent_domain;
        let fits = wanted == child || wanted.0 == 0 && made_in == self.domains.serial(world.thread_space(parent));
        fits && world.thread_can_be_answered(parent, Key::Child(parent.0))
    }

    /// Threads of a task that have ended hand their children on, as far as the budget reaches; tells whether those were all.
    pub(crate) fn children_of_task_go(&mut self, world: &mut impl World, id: TaskId) -> bool {
        while let Some(task) = self.tasks.get(id)
            && let Some(thread) = self.threads.at(task.parting.head as usize).map(|record| record.id)
        {
            let (first, last) = (task.first, task.last);
            let heir = self.threads.find(first).filter(|record| record.life == Life::Live);
            let heir = heir.map(|record| record.id);
            if !self.children_to_heir(world, thread, heir) {
                return false;
            }
            if let Some(task) = self.tasks.get_mut(id) {
                self.threads.leave(&mut task.parting, thread);
            }
            if thread != last {
                self.thread_has_ended(world, thread);
            }
        }
        true
    }

    /// The children of a thread that ends get another parent, or none, as far as the budget reaches; tells whether those were all.
    fn children_to_heir(&mut self, world: &mut impl World, thread: ThreadId, heir: Option<ThreadId>) -> bool {
        let mut wakes = None;
        let done = loop {
            let record = self.threads.record(thread);
            let index = if record.children.head == NONE {
                record.ended.head
            } else {
                record.children.head
            };
            let Some(child) = self.threads.at(index as usize) else {
                break true;
            };
            let (child, ended) = (child.id, child.life == Life::Ended);
            let reaps = ended && heir.is_none();
            if !self.budget.spend(if reaps { COST_REAP } else { COST_CHILD }) {
                break false;
            }
            self.threads.leave_parent(child);
            if let Some(heir) = heir {
                self.threads.adopt(heir, child);
                if ended {
                    wakes = Some(heir);
                }
            } else if reaps {
                self.thread_reap(world, child);
            }
        };
        if let Some(heir) = wakes {
            world.wake(Key::Child(heir.0), u32::MAX);
        }
        done
    }

    /// The domain with this serial number ends. Nobody can speak for it any more, so what was made in it is an orphan.
    pub(crate) fn child_loses_domain(&mut self, world: &mut impl World, index: usize, domain: u64) {
        let record = &self.threads.table[index];
        if record.life == Life::Vacant || record.parent_domain != domain {
            return;
        }
        let (thread, life) = (record.id, record.life);
        self.threads.leave_parent(thread);
        if life == Life::Ended {
            self.thread_reap(world, thread);
        }
    }

    /// Gives the place of an ended thread back.
    #[inline]
    pub(crate) fn thread_reap(&mut self, world: &mut impl World, thread: ThreadId) {
        self.threads.leave_parent(thread);
        let record = self.threads.record(thread);
        record.vacate();
        let payer = record.payer;
        self.threads.count -= 1;
        self.ledger.give(payer, Resource::Threads, 1);
        world.thread_destroy(thread);
    }

    /// Removes a thread that never ran.
    pub fn thread_discard(&mut self, world: &mut impl World, thread: ThreadId) {
        let record = self.threads.record(thread);
        let (task, stack) = (record.task, record.stack);
        if let Some(task) = self.tasks.get_mut(task) {
            push_reserved(&mut task.stacks, stack);
            task.threads -= 1;
            self.threads.leave(&mut task.members, thread);
        }
        self.thread_reap(world, thread);
    }

    /// `ThreadDelete`: thread (0: the caller), status.
    pub fn thread_delete(&mut self, world: &mut impl World, caller: Caller, arguments: ThreadDelete) -> Outcome {
        let ThreadDelete { thread, status } = arguments;
        if thread == 0 || thread == caller.thread.0 {
            return self.thread_delete_self(world, caller, status);
        }
        let target = match self.thread_to_delete(caller, thread) {
            Ok(target) => target,
            Err(error) => return Outcome::Return(Err(error)),
        };
        let Some(record) = self.threads.find(target) else {
            return Outcome::Return(Err(Error::NoSuchThread));
        };
        let (task, ended) = (record.task, record.life != Life::Live);
        let whole_task = task != caller.task && self.tasks.get(task).is_some_and(|task| task.first == target);
        if !ended {
            self.thread_condemn(world, target, Self::killed(target, status));
        }
        // Also where the first thread has ended by itself: its task may live on with others.
        if whole_task {
            self.task_kill(task, abi::layout::EXCEPTION_KILL);
        }
        Outcome::Return(Ok((0, 0)))
    }

    /// The thread that a caller names, if he may end it: he controls it, or he is the first task at home, which ends anything, so that
    /// nothing lives that nobody can end.
    fn thread_to_delete(&mut self, caller: Caller, thread: u64) -> Result<ThreadId, Error> {
        let controlled = self.thread_controlled(caller, thread, Control::Delete);
        if controlled.is_ok() || self.tasks.initial != Some(caller.task) || !self.at_home(caller) {
            return controlled;
        }
        let record = self.threads.find(ThreadId(thread));
        record.map(|record| record.id).ok_or(Error::NoSuchThread)
    }

    /// A callee that ends "itself" ends the call, not its caller's thread.
    #[inline]
    fn thread_delete_self(&mut self, world: &mut impl World, caller: Caller, status: u64) -> Outcome {
        let depth = world.portal_depth(caller.thread);
        if depth > 0 {
            self.remark(
                world,
                format_args!(
                    "thread {:#x}: a callee gave up with status {status:#x}",
                    caller.thread.0
                ),
            );
            self.unwind_to(world, caller.thread, depth - 1);
            return if self.doom_falls(world, caller.thread) {
                Outcome::Gone
            } else {
                Outcome::Resume
            };
        }
        let report = ExitReport {
            thread: caller.thread.0,
            status,
            ..ExitReport::default()
        };
        self.thread_end(world, caller.thread, report);
        Outcome::Gone
    }

    // ---- waiting for children -------------------------------------------------------------------

    /// `ThreadWait`.
    pub fn thread_wait(&mut self, world: &mut impl World, caller: Caller, arguments: ThreadWait) -> Outcome {
        let ThreadWait {
            thread,
            timeout_ns,
            report,
            room,
        } = arguments;
        let deadline = self.call_deadline(world, caller, timeout_ns);
        let ended = match self.ended_child(caller, ThreadId(thread)) {
            Ok(Some(ended)) => ended,
            // A call that has looked in pieces is not told that it has timed out.
            Ok(None)
                if caller.resumed == Resumed::TimedOut
                    || timeout_ns == 0
                    || deadline.is_some_and(|deadline| deadline <= world.now_ns()) =>
            {
                return Outcome::Return(Err(Error::TimedOut));
            }
            Ok(None) => {
                self.threads.record(caller.thread).continuation = match report {
                    0 => Continuation::Child(ThreadId(thread)),
                    _ => Continuation::None,
                };
                return Outcome::Block(Key::Child(caller.thread.0), deadline);
            }
            Err(stop) => return Outcome::from(Err(stop)),
        };
        let exit = self.threads.record(ended).report;
        if report != 0
            && let Err(stop) = self.tell(world, caller, (report, room), &exit.to_bytes())
        {
            // It stays to be waited for again.
            return Outcome::from(Err(stop));
        }
        self.thread_reap(world, ended);
        Outcome::Return(Ok((ended.0, exit.status)))
    }

    /// A child that ended: that one, or any.
    #[inline]
    fn ended_child(&mut self, caller: Caller, wanted: ThreadId) -> Step<Option<ThreadId>> {
        let domain = self.domains.serial(caller.domain);
        if wanted.0 == 0 {
            return self.any_ended_child(caller, domain);
        }
        let child = self.threads.find(wanted).ok_or(Error::NoSuchThread)?;
        if child.parent != caller.thread || child.parent_domain != domain {
            return Err(Error::NoSuchThread.into());
        }
        Ok((child.life == Life::Ended).then_some(wanted))
    }

    /// Any of those that were made in this domain. Children of other domains may be many, so all are looked at in pieces: first those
    /// that live, then those that have ended, for one that ends meanwhile is the last of these.
    fn any_ended_child(&mut self, caller: Caller, domain: u64) -> Step<Option<ThreadId>> {
        let record = self.threads.record(caller.thread);
        let (children, ended, begun) = (record.children, record.ended, record.continuation);
        let oldest = self.threads.at(ended.head as usize);
        if let Some(oldest) = oldest.filter(|oldest| oldest.parent_domain == domain) {
            return Ok(Some(oldest.id));
        }
        let (mut lives, mut at) = match begun {
            // It may have left the list.
            Continuation::ChildLooks { lives, at }
                if self.threads.find(at).is_some_and(|record| {
                    record.parent == caller.thread && (record.life == Life::Ended) == lives.is_some()
                }) =>
            {
                (lives, at.index() as u32)
            }
            _ => (None, children.head),
        };
        loop {
            while let Some(child) = self.threads.at(at as usize) {
                let id = child.id;
                if child.parent_domain == domain {
                    if lives.is_some() {
                        return Ok(Some(id));
                    }
                    break;
                }
                if !self.budget.spend(COST_LOOK) {
                    self.threads.record(caller.thread).continuation = Continuation::ChildLooks { lives, at: id };
                    return Err(Stop::Again);
                }
                at = self.threads.sibling(at);
            }
            match lives {
                None => (lives, at) = (Some(at != NONE), ended.head),
                Some(true) => return Ok(None),
                Some(false) => return Err(Error::NoSuchThread.into()),
            }
        }
    }
}
