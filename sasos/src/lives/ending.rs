//! How threads end, and how their parents learn of it.
//!
//! The end of a thread takes it out of its calls, its waits and its task, hands its children on,
//! and leaves a record for its parent. With the last thread of a task the task ends
//! ([`crate::lives::task`]).

use alloc::vec::Vec;

use abi::{Error, call::arguments, layout::ExitReport};
use kcore::{ThreadId, scheduler::NONE, thread::Resumed, wait::Key};

use crate::{
    Outcome, Server, World,
    accounts::Resource,
    containers::push_reserved,
    lives::continuation::Continuation,
    lives::control::Control,
    lives::thread::{Caller, Life, Pause},
};

impl Server {
    /// Ends a thread at once, wherever it is. With the last thread of a task the task ends, when the event is over
    /// ([`Server::finish_ends`]): the end of a task may end callees, and threads inside of them, and with these
    /// further tasks, which must not pile up on the kernel's stack.
    pub fn thread_end(&mut self, world: &mut impl World, thread: ThreadId, report: ExitReport) {
        for _ in 0..world.portal_depth(thread) {
            self.callee_leave(world, thread, 0, 0, 0);
        }
        self.waiting_ends(world, thread);
        let record = self.threads.record(thread);
        let (task, stack) = (record.task, record.stack);
        record.report = report;
        record.saved = Vec::new();
        let condemned = record.doom.take().is_some();
        record.pause = Pause::No;
        let has_children = record.children.head != NONE || record.ended.head != NONE;
        if condemned {
            self.threads.pardon(thread);
        }
        if has_children {
            self.children_to_heir(world, thread);
        }
        if self.tasks.initial == Some(task) {
            self.tell_first_end(world, task, thread, report);
        }
        if let Some(task) = self.tasks.get_mut(task) {
            push_reserved(&mut task.stacks, stack);
            task.threads -= 1;
            self.threads.leave(&mut task.members, thread);
            if task.threads == 0 {
                let id = task.id;
                task.last = thread;
                world.thread_suspend(thread);
                self.threads.record(thread).life = Life::Ending;
                self.task_ends(id);
                return;
            }
        }
        self.thread_has_ended(world, thread);
    }

    /// The parent of a thread learns that it has ended: with the last of a task, when the task has given back what it had.
    pub(crate) fn thread_has_ended(&mut self, world: &mut impl World, thread: ThreadId) {
        let record = self.threads.record(thread);
        let (parent, status) = (record.parent, record.report.status);
        self.threads.leave_parent(thread);
        self.threads.record(thread).life = Life::Ended;
        if parent.0 == 0 {
            self.thread_reap(world, thread);
        } else if self.is_awaited(world, parent, thread) {
            // Nothing keeps its record or its place: the parent has its answer here and now.
            self.thread_reap(world, thread);
            world.thread_answer(parent, thread.0, status);
        } else {
            world.thread_suspend(thread);
            self.threads.adopt(parent, thread);
            world.wake(Key::Child(parent.0), u32::MAX);
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

    /// The children of a thread that ends get another parent, or none.
    fn children_to_heir(&mut self, world: &mut impl World, thread: ThreadId) {
        let task = self.threads.record(thread).task;
        let heir = self.tasks.get(task).map(|task| task.first);
        let heir = heir.filter(|&first| {
            first != thread && self.threads.find(first).is_some_and(|record| record.life == Life::Live)
        });
        loop {
            let record = self.threads.record(thread);
            let index = if record.children.head == NONE {
                record.ended.head
            } else {
                record.children.head
            };
            if index == NONE {
                return;
            }
            let child = self.threads.table[index as usize].id;
            self.threads.leave_parent(child);
            match heir {
                Some(heir) => {
                    self.threads.adopt(heir, child);
                    world.wake(Key::Child(heir.0), u32::MAX);
                }
                None if self.threads.record(child).life == Life::Ended => self.thread_reap(world, child),
                None => {}
            }
        }
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
        record.life = Life::Vacant;
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
    pub fn thread_delete(
        &mut self,
        world: &mut impl World,
        caller: Caller,
        arguments: arguments::ThreadDelete,
    ) -> Outcome {
        let arguments::ThreadDelete { thread, status } = arguments;
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
            world.log(format_args!(
                "thread {:#x}: a callee gave up with status {status:#x}",
                caller.thread.0
            ));
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
    pub fn thread_wait(&mut self, world: &mut impl World, caller: Caller, arguments: arguments::ThreadWait) -> Outcome {
        let arguments::ThreadWait {
            thread,
            timeout_ns,
            report,
            room,
        } = arguments;
        let deadline = self.call_deadline(world, caller, timeout_ns);
        let ended = match self.ended_child(caller, ThreadId(thread)) {
            Ok(Some(ended)) => ended,
            Ok(None) if caller.resumed == Resumed::TimedOut || timeout_ns == 0 => {
                return Outcome::Return(Err(Error::TimedOut));
            }
            Ok(None) => {
                if report == 0 {
                    self.threads.record(caller.thread).continuation = Continuation::Child(ThreadId(thread));
                }
                return Outcome::Block(Key::Child(caller.thread.0), deadline);
            }
            Err(error) => return Outcome::Return(Err(error)),
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
    fn ended_child(&mut self, caller: Caller, wanted: ThreadId) -> Result<Option<ThreadId>, Error> {
        let domain = self.domains.serial(caller.domain);
        if wanted.0 == 0 {
            let record = self.threads.record(caller.thread);
            let (children, ended) = (record.children, record.ended);
            if let Some(child) = self.threads.child_of_domain(ended, domain) {
                return Ok(Some(child));
            }
            return self
                .threads
                .child_of_domain(children, domain)
                .map(|_| None)
                .ok_or(Error::NoSuchThread);
        }
        let child = self.threads.find(wanted).ok_or(Error::NoSuchThread)?;
        if child.parent != caller.thread || child.parent_domain != domain {
            return Err(Error::NoSuchThread);
        }
        Ok((child.life == Life::Ended).then_some(wanted))
    }
}
