//! Exceptions: faults and traps of user code, and the handlers that a domain registers for them.
//!
//! A handler is called on the thread's own stack as a C function of kind, address, instruction and
//! wanted rights. The interrupted state is kept whole in the server until `ExcptReturn`, or until the call ends in which
//! it happened. The task pays for that; in a callee it is paid with each stack. In each call a thread is in one handler at a time; an exception inside of it counts as not handled there. A
//! handler that makes a protected call switches off nothing of the callee's.
//!
//! Not handled, an exception ends one program and nobody else: inside a protected call the call is
//! unwound and its caller gets `CalleeFault`; otherwise the thread ends, and if it is the first of
//! its task, the task. Handlers belong to a domain: a handler that a callee registers is called for
//! exceptions of the callee's code only, and never runs in the domain of its caller.

use abi::{
    Error, Rights,
    call::arguments::{ExcptReg, ExcptReturn},
    layout::{EXCEPTION_KINDS, ExitReport, RESUME_AT, RESUME_END, RESUME_RETRY, STATUS_SYSTEM, exception_name},
};
use kcore::{SpaceId, ThreadId, machine::Intercept, thread::Context};

use crate::{
    Answer, Outcome, Server, World,
    accounts::{AccountId, Resource},
    containers::push_reserved,
    lives::thread::Caller,
    lives::work::piece,
};

/// Bytes below the stack pointer that compiled code may use without moving it.
const RED_ZONE: u64 = 128;

/// Entry points of handlers by kind of exception; zero is none.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Handlers([u64; EXCEPTION_KINDS]);

impl Handlers {
    /// The handler for a kind.
    pub fn get(&self, kind: u64) -> Option<u64> {
        self.0.get(kind as usize).copied().filter(|&handler| handler != 0)
    }

    /// Puts a handler in the place of the one that is returned.
    pub fn replace(&mut self, kind: u64, handler: u64) -> u64 {
        self.0
            .get_mut(kind as usize)
            .map_or(0, |place| core::mem::replace(place, handler))
    }
}

/// The exception that happened.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// One of `abi::layout::EXCEPTION_*`.
    pub kind: u64,
    /// The address that was touched.
    pub address: u64,
    /// The rights that this took.
    pub wanted: Rights,
    /// The rights that there were, as bits; for [`EXCEPTION_RESOURCE`](abi::layout::EXCEPTION_RESOURCE) the error that says what was short.
    pub had: u64,
}

/// The state that a handler interrupted.
#[derive(Clone, Debug)]
pub struct Saved {
    context: Context,
    fault: Fault,
    /// Calls that the thread was inside of: a handler ends where it began.
    depth: usize,
    /// The account that pays for this: that of the task whose handler it is. In a callee it is paid with each stack.
    pub(crate) payer: Option<AccountId>,
}

/// Bytes that one costs.
pub(crate) const SAVED_BYTES: u64 = size_of::<Saved>() as u64;

impl Server {
    /// An exception of user code other than a page fault.
    pub fn exception(&mut self, world: &mut impl World, thread: ThreadId, kind: u64, address: u64) -> Outcome {
        self.current = thread;
        self.budget.begin(piece());
        self.raise(
            world,
            thread,
            Fault {
                kind,
                address,
                wanted: Rights::NONE,
                had: 0,
            },
        )
    }

    /// Calls the handler for what went wrong, or ends what the thread was doing.
    pub fn raise(&mut self, world: &mut impl World, thread: ThreadId, fault: Fault) -> Outcome {
        if let Some(handler) = self.handler_for(world, thread, fault.kind) {
            self.handler_enter(world, thread, handler, fault);
            return Outcome::Resume;
        }
        let instruction = world.thread_context(thread).rip;
        let outcome = self.unhandled(world, thread, fault, instruction);
        self.finish_ends(world);
        self.settle(world, thread, 0, outcome)
    }

    /// The handler that an exception of a thread goes to now; none if none is registered in the domain where it is, or one runs
    /// already in the same call, or the task's account cannot pay for what it interrupts. That is paid then, so [`Server::handler_enter`] has to follow.
    pub(crate) fn handler_for(
        &mut self,
        world: &mut impl World,
        thread: ThreadId,
        kind: u64,
    ) -> Option<(u64, Option<AccountId>)> {
        let domain = world.thread_space(thread);
        let handler = self.handlers_of(thread, domain)?.get(kind)?;
        let depth = world.portal_depth(thread);
        let saved = &self.threads.record(thread).saved;
        if saved.last().is_some_and(|saved| saved.depth >= depth) {
            return None;
        }
        self.enough_heap(world).ok()?;
        self.threads.record(thread).saved.try_reserve_exact(1).ok()?;
        if depth > 0 {
            return Some((handler, None));
        }
        let payer = self.domains.get(domain)?.account;
        self.ledger.take(payer, Resource::Bytes, SAVED_BYTES).ok()?;
        Some((handler, Some(payer)))
    }

    /// The handlers that count in a domain for that thread.
    fn handlers_of(&mut self, thread: ThreadId, domain: SpaceId) -> Option<&mut Handlers> {
        let record = self.threads.record(thread);
        if record.domain == domain {
            return self.tasks.get_mut(record.task).map(|task| &mut task.handlers);
        }
        self.callees.handlers_mut(domain)
    }

    /// Calls a handler that [`Server::handler_for`] has found.
    pub(crate) fn handler_enter(
        &mut self,
        world: &mut impl World,
        thread: ThreadId,
        (handler, payer): (u64, Option<AccountId>),
        fault: Fault,
    ) {
        let depth = world.portal_depth(thread);
        let context = world.thread_context(thread);
        let saved = Saved {
            context,
            fault,
            depth,
            payer,
        };
        let instruction = context.rip;
        // As behind a call: the stack is aligned to 16 bytes but for the return address.
        let stack = (context.rsp.wrapping_sub(RED_ZONE) & !15).wrapping_sub(8);
        // All registers count: it begins like any C function.
        let mut context = Context::scrubbed(handler, stack);
        context.set_arguments([fault.kind, fault.address, instruction, u64::from(fault.wanted.bits())]);
        world.thread_set_context(thread, &context);
        push_reserved(&mut self.threads.record(thread).saved, saved);
        if depth > 0 {
            // The callee may return out of its handler, which must then be known to be over.
            world.portal_intercept(thread, Intercept::Yes);
        }
    }

    fn unhandled(&mut self, world: &mut impl World, thread: ThreadId, fault: Fault, instruction: u64) -> Outcome {
        let Fault {
            kind,
            address,
            wanted,
            had,
        } = fault;
        self.remark(
            world,
            format_args!(
                "thread {:#x}: {} at {address:#x} (needs {wanted}, has {had}), instruction {instruction:#x}",
                thread.0,
                exception_name(kind),
            ),
        );
        let depth = world.portal_depth(thread);
        if depth > 0 {
            self.unwind_to(world, thread, depth - 1);
            return if self.doom_falls(world, thread) {
                Outcome::Gone
            } else {
                Outcome::Resume
            };
        }
        let report = ExitReport {
            thread: thread.0,
            status: STATUS_SYSTEM + kind,
            exception: kind,
            address,
            instruction,
            wanted: u64::from(wanted.bits()),
            had,
        };
        let task = self.threads.record(thread).task;
        let whole_task = self.tasks.get(task).is_some_and(|task| task.first == thread);
        self.thread_end(world, thread, report);
        if whole_task {
            self.task_kill(task, kind);
        }
        Outcome::Gone
    }

    /// A thread has come back to fewer calls: handlers that were running inside of them are over.
    pub fn handler_left(&mut self, world: &mut impl World, thread: ThreadId) {
        let depth = world.portal_depth(thread);
        while let Some(saved) = self.threads.record(thread).saved.pop_if(|saved| saved.depth > depth) {
            self.handler_over(world, thread, &saved);
        }
    }

    /// A thread ends, and so do its handlers.
    pub(crate) fn handlers_end(&mut self, thread: ThreadId) {
        for saved in core::mem::take(&mut self.threads.record(thread).saved) {
            self.give_back_saved(&saved);
        }
    }

    /// A handler is over. If none runs in a callee any more, returns may take the fast path again, unless the thread is condemned.
    fn handler_over(&mut self, world: &mut impl World, thread: ThreadId, saved: &Saved) {
        self.give_back_saved(saved);
        let record = self.threads.record(thread);
        if record.doom.is_none() && record.saved.last().is_none_or(|saved| saved.depth == 0) {
            world.portal_intercept(thread, Intercept::No);
        }
    }

    fn give_back_saved(&mut self, saved: &Saved) {
        if let Some(payer) = saved.payer {
            self.ledger.give(payer, Resource::Bytes, SAVED_BYTES);
        }
    }

    /// `ExcptReg`: kind, handler (0: none).
    pub(crate) fn excpt_reg(&mut self, world: &mut impl World, caller: Caller, arguments: ExcptReg) -> Answer {
        let ExcptReg { kind, handler } = arguments;
        if kind == 0 || kind >= EXCEPTION_KINDS as u64 {
            return Err(Error::BadArgument.into());
        }
        if handler != 0 {
            self.validate(world, caller.domain, handler, Rights::X)?;
        }
        let handlers = self.handlers_of(caller.thread, caller.domain).ok_or(Error::NoHandler)?;
        Ok((handlers.replace(kind, handler), 0))
    }

    /// `ExcptReturn`: action, address.
    pub fn excpt_return(&mut self, world: &mut impl World, caller: Caller, arguments: ExcptReturn) -> Outcome {
        let ExcptReturn { action, address } = arguments;
        let depth = world.portal_depth(caller.thread);
        let record = self.threads.record(caller.thread);
        let Some(saved) = record.saved.pop_if(|saved| saved.depth == depth) else {
            return Outcome::Return(Err(Error::NoHandler));
        };
        let mut context = saved.context;
        match action {
            // After a jump out of the address space, some processors report the target as the place of the fault.
            RESUME_RETRY if context.rip < abi::address::USER_END => {}
            RESUME_AT if address < abi::address::USER_END => context.rip = address,
            RESUME_END | RESUME_RETRY => {
                self.handler_over(world, caller.thread, &saved);
                return self.unhandled(world, caller.thread, saved.fault, saved.context.rip);
            }
            _ => {
                push_reserved(&mut record.saved, saved);
                return Outcome::Return(Err(Error::BadArgument));
            }
        }
        world.thread_set_context(caller.thread, &context);
        self.handler_over(world, caller.thread, &saved);
        Outcome::Resume
    }
}

#[cfg(test)]
mod tests {
    use super::Handlers;
    use abi::layout::EXCEPTION_KINDS;

    #[test]
    fn handlers_are_replaced_and_no_kind_is_out_of_range() {
        let mut handlers = Handlers::default();
        assert_eq!(handlers.replace(2, 0x1000), 0);
        assert_eq!(handlers.replace(2, 0x2000), 0x1000);
        assert_eq!(handlers.get(2), Some(0x2000));
        assert_eq!(handlers.get(1), None);
        for kind in [EXCEPTION_KINDS as u64, u64::MAX] {
            assert_eq!(handlers.replace(kind, 1), 0);
            assert_eq!(handlers.get(kind), None);
        }
    }
}
