//! The calls by which threads act on each other: suspend, resume, name. One place decides who may.

use abi::{
    Error,
    call::arguments::{ThreadResume, ThreadSleep},
    layout::FOREVER,
};
use kcore::{ThreadId, thread::Resumed, wait::Key};

use crate::{
    Answer, Outcome, Server, World,
    lives::task::TaskId,
    lives::thread::{Caller, Life, Pause},
};

/// An act on a thread that a caller asks for.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Control {
    /// End it.
    Delete,
    /// Suspend it.
    Sleep,
    /// Let it go on.
    Resume,
    /// Give its task the terminal's interrupt.
    Foreground,
}

impl Server {
    /// The thread that a caller names, if he may control it.
    pub(crate) fn thread_controlled(
        &mut self,
        caller: Caller,
        thread: u64,
        control: Control,
    ) -> Result<ThreadId, Error> {
        let at_home = self.at_home(caller);
        let initial = self.tasks.initial == Some(caller.task);
        let record = self.threads.find(ThreadId(thread)).ok_or(Error::NoSuchThread)?;
        let child = record.parent == caller.thread && record.parent_domain == self.domains.serial(caller.domain);
        let same_task = at_home && record.task == caller.task;
        let orphan = at_home && initial && record.parent.0 == 0;
        let allowed = match control {
            Control::Sleep => same_task,
            Control::Delete | Control::Resume => child || same_task || orphan,
            Control::Foreground => child || orphan,
        };
        if allowed {
            Ok(record.id)
        } else {
            Err(Error::NoSuchThread)
        }
    }

    /// The task of a child.
    pub(crate) fn task_of_child(&mut self, caller: Caller, thread: u64) -> Result<TaskId, Error> {
        let child = self.thread_controlled(caller, thread, Control::Foreground)?;
        Ok(self.threads.record(child).task)
    }

    /// `ThreadSleep`: thread (0: the caller), nanoseconds. Another thread can only be suspended.
    pub fn thread_sleep(&mut self, world: &mut impl World, caller: Caller, arguments: ThreadSleep) -> Outcome {
        let ThreadSleep { thread, ns } = arguments;
        if thread != 0 && thread != caller.thread.0 {
            return Outcome::Return(self.thread_suspend(world, caller, thread, ns).map(|()| (0, 0)));
        }
        if ns == 0 {
            Self::yield_now(world, caller.thread);
            return Outcome::Gone;
        }
        if caller.resumed != Resumed::First {
            self.threads.record(caller.thread).pause = Pause::No;
            return Outcome::Return(Ok((0, 0)));
        }
        let deadline = self.call_deadline(world, caller, ns);
        self.threads.record(caller.thread).pause = Pause::Sleeping;
        Outcome::Block(Key::Nothing, deadline)
    }

    /// Puts the calling thread behind the others of its priority; the call has succeeded then.
    fn yield_now(world: &mut impl World, thread: ThreadId) {
        let mut context = world.thread_context(thread);
        // Only these two are the thread's own: the others may be left over from a callee.
        let (rip, rsp) = (context.rip, context.rsp);
        context.reset(rip, rsp);
        context.set_results(0, 0, 0);
        world.thread_set_context(thread, &context);
        world.thread_suspend(thread);
        world.thread_drop_operation(thread);
        world.thread_wake(thread, Resumed::First);
    }

    fn thread_suspend(&mut self, world: &mut impl World, caller: Caller, thread: u64, ns: u64) -> Result<(), Error> {
        let target = self.thread_controlled(caller, thread, Control::Sleep)?;
        if ns != FOREVER {
            return Err(Error::BadArgument);
        }
        let inside = world.portal_depth(target) > 0;
        let record = self.threads.record(target);
        if record.life != Life::Live || record.doom.is_some() {
            return Ok(());
        }
        if inside {
            // It is inside a protected procedure of others, and holds one of their stacks, perhaps their locks.
            return Err(Error::InUse);
        }
        record.pause = Pause::Suspended;
        self.waiting_passes_on(world, target);
        world.thread_suspend(target);
        Ok(())
    }

    /// `ThreadResume`: thread.
    pub(crate) fn thread_resume(&mut self, world: &mut impl World, caller: Caller, arguments: ThreadResume) -> Answer {
        let target = self.thread_controlled(caller, arguments.thread, Control::Resume)?;
        let inside = world.portal_depth(target) > 0;
        let record = self.threads.record(target);
        // Inside a procedure of others it is they who asked for the pause, and theirs to end it.
        if record.life == Life::Live && record.pause != Pause::No && !inside {
            // A sleeper clears its own mark when its call is done again.
            if record.pause == Pause::Suspended {
                record.pause = Pause::No;
            }
            world.thread_wake(target, Resumed::Woken);
        }
        Ok((0, 0))
    }
}
