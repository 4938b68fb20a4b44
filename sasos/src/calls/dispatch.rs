//! Events, and who answers them: one `match` over the table of calls.

use abi::{Call, Error};
use kcore::{SpaceId, ThreadId, thread::Resumed, wait::Key};
use store::Budget;

use crate::{
    Answer, Event, Outcome, Server, World,
    durability::durable::Goal,
    durability::freeze::waits_for_freezing,
    lives::budget::Cost,
    lives::continuation::Continuation,
    lives::thread::Caller,
    lives::work::{COST_LARGEST, PIECE, piece},
    procedures::pdx::Stage,
};

/// The cost of giving back some of the heap that long lists had.
const COST_GIVES_BACK: Cost = Cost::own(4_500);

/// The answer of a call, as who answers it has it.
#[derive(Copy, Clone, Debug)]
pub enum Reply {
    /// Values, or why there are none.
    Step(Answer),
    /// The fate of the thread.
    Outcome(Outcome),
}

impl Reply {
    /// The values, if the call has succeeded.
    #[inline(always)]
    pub const fn values(&self) -> Option<(u64, u64)> {
        match *self {
            Self::Step(Ok(values)) | Self::Outcome(Outcome::Return(Ok(values))) => Some(values),
            _ => None,
        }
    }
}

impl From<Answer> for Reply {
    #[inline(always)]
    fn from(step: Answer) -> Self {
        Self::Step(step)
    }
}

impl From<Outcome> for Reply {
    #[inline(always)]
    fn from(outcome: Outcome) -> Self {
        Self::Outcome(outcome)
    }
}

impl Server {
    /// The value of a call that needs nothing but the caller's identity. For the kernel's fast path.
    #[inline(always)]
    pub fn immediate(&self, thread: ThreadId, number: u64) -> Option<u64> {
        (number == Call::ThreadMyId as u64).then_some(thread.0)
    }

    /// Whether a call is nothing but the caller's wish to let others run: `ThreadSleep` of itself for no time. The
    /// kernel does that by itself.
    #[inline(always)]
    pub fn yields(&self, number: u64, thread: u64, ns: u64) -> bool {
        number == Call::ThreadSleep as u64 && thread == 0 && ns == 0
    }

    /// Takes an event and says what becomes of the thread it came from.
    // Inlined, so that a kernel that knows the kind of event goes straight to who answers it.
    #[inline(always)]
    pub fn handle(&mut self, world: &mut impl World, event: Event) -> Outcome {
        let outcome = match event {
            Event::Call {
                thread,
                number,
                arguments,
                resumed,
            } => self.call(world, thread, number, arguments, resumed),
            Event::Fault {
                thread,
                address,
                access,
            } => self.fault(world, thread, address, access),
            Event::Exception { thread, kind, address } => self.exception(world, thread, kind, address),
            Event::Interrupt => {
                self.budget.begin(piece());
                let outcome = self.interrupt(world);
                self.finish_ends(world);
                outcome
            }
            Event::Poll => {
                self.budget.begin(piece());
                // Work on ends comes first, unless it left nothing to the store the last time. What is only looked for because somebody lacks memory
                // comes last: that one's calls go on with it as well.
                let is_idle = self.work.is_idle();
                if !self.work.had_all() {
                    // The first item of the list gets on, however much the looks before it take.
                    self.budget.begin(Budget::of(PIECE - COST_LARGEST));
                    self.poll_control(world);
                    self.budget.begin(Budget::of(COST_LARGEST + self.budget.left()));
                    if !is_idle {
                        self.work_on(world);
                    }
                }
                if let Some(left) = self.work.leaves_some(self.budget.left()) {
                    self.budget.begin(left);
                    self.poll_clock(world);
                    self.poll_checkpoint(world);
                }
                if is_idle {
                    self.work_on(world);
                }
                if self.budget.has(COST_GIVES_BACK) {
                    self.work.give_back();
                    self.objects.give_back();
                    self.ledger.give_back();
                    self.store.give_heap_back();
                }
                Outcome::Resume
            }
        };
        if cfg!(debug_assertions) {
            self.check_now_and_then(world);
        }
        outcome
    }

    fn call<W: World>(
        &mut self,
        world: &mut W,
        thread: ThreadId,
        number: u64,
        arguments: [u64; 6],
        resumed: Resumed,
    ) -> Outcome {
        if let Some(value) = self.immediate(thread, number) {
            return Outcome::Return(Ok((value, 0)));
        }
        let Some(call) = Call::from_number(number) else {
            return Outcome::Return(Err(Error::BadCall));
        };
        let caller = self.caller(world, thread, resumed);
        let backs = resumed != Resumed::First && self.threads.record(thread).tries.backing.is_some();
        let goes_on = if backs {
            self.backing_goes_on(world, thread)
        } else {
            None
        };
        let reply = match goes_on {
            Some(stop) => Reply::Step(Err(stop)),
            None => self.reply(world, caller, call, arguments),
        };
        self.end_call(world, thread, reply)
    }

    /// Begins [`Server::handle`] for a call that a thread makes for the first time, in this space. If the compiler knows the call's number, the choice of
    /// the function that answers costs nothing. [`Server::end_call`] must follow, unless the call has values at once and [nothing is left behind it](Server::is_call_over).
    #[inline(always)]
    pub fn begin_call<W: World>(
        &mut self,
        world: &mut W,
        thread: ThreadId,
        space: SpaceId,
        call: Call,
        arguments: [u64; 6],
    ) -> Reply {
        let caller = self.caller_in(space, thread, Resumed::First);
        let reply = self.reply(world, caller, call, arguments);
        if cfg!(debug_assertions) {
            self.check_now_and_then(world);
        }
        reply
    }

    #[inline(always)]
    fn reply<W: World>(&mut self, world: &mut W, caller: Caller, call: Call, arguments: [u64; 6]) -> Reply {
        if self.checkpoint.is_freezing() && waits_for_freezing(call) {
            return Reply::Outcome(Outcome::Block(Key::Checkpoint, None));
        }
        self.answer(world, caller, call, arguments)
    }

    /// Whether nothing has to be done behind a call that has values at once.
    #[inline(always)]
    pub fn is_call_over(&self) -> bool {
        !self.work.is_fresh()
    }

    /// Does what a call has left to be done behind it, and looks whether what it is about to wait for is still to come.
    #[inline(always)]
    pub fn end_call<W: World>(&mut self, world: &mut W, thread: ThreadId, reply: Reply) -> Outcome {
        let outcome = match reply {
            Reply::Step(step) => step.into(),
            Reply::Outcome(outcome) => outcome,
        };
        match outcome {
            Outcome::Return(Err(_)) => {}
            // These are woken by other events alone, and what was looked at in this one is as it was.
            Outcome::Block(key, _) if !matches!(key, Key::Semaphore(_) | Key::Address(_) | Key::Child(_)) => {}
            _ if self.is_call_over() => return outcome,
            _ => {}
        }
        self.look_behind(world, thread, outcome)
    }

    #[inline(never)]
    fn look_behind<W: World>(&mut self, world: &mut W, thread: ThreadId, mut outcome: Outcome) -> Outcome {
        if self.has_work_behind(&outcome) {
            outcome = self.work_behind(world, thread, outcome);
        }
        if let Outcome::Block(key, _) = outcome
            && !self.still_awaited(thread, key)
        {
            outcome = Outcome::Again;
        }
        outcome
    }

    /// Whether what a thread is about to wait for is still to come, so that somebody will wake it. This is the one place
    /// where an answer becomes a park: no call looks for itself. A disk may complete one request while it is given
    /// another, so what a call began to wait for may be there before the call is at its end.
    pub(crate) fn still_awaited(&mut self, thread: ThreadId, key: Key) -> bool {
        match key {
            Key::Page(address) => self.pager.reading.has(address) || self.store.reads_rows(address),
            Key::Sync(ticket) => self.checkpoint.is_syncing(store::Ticket(ticket)),
            Key::Checkpoint => match self.threads.record(thread).continuation {
                Continuation::Durable {
                    goal: Goal::Checkpoint(number),
                    ..
                }
                | Continuation::Growth { number, .. } => self.checkpoint_reached(number).is_none(),
                Continuation::Snapshot { result, .. } => result.is_none(),
                _ => {
                    self.checkpoint.is_running()
                        || self.checkpoint.is_wanted()
                        || self.checkpoint.is_closing()
                        || !self.store.is_copied()
                }
            },
            // The end of a task, which this event may have brought about, ends callees.
            Key::Stack(space) | Key::Turn(space, _) => {
                let callee = self.callees.get(SpaceId(space));
                callee.is_some_and(|callee| callee.stage == Stage::Open)
            }
            // These are woken by other events alone, and what was looked at in this one is as it was.
            Key::Nothing
            | Key::Semaphore(_)
            | Key::Address(_)
            | Key::Child(_)
            | Key::ConsoleIn(_)
            | Key::ConsoleOut(_)
            | Key::Supervisor => true,
        }
    }

    /// Does a call.
    #[inline(always)]
    fn answer<W: World>(&mut self, world: &mut W, caller: Caller, call: Call, arguments: [u64; 6]) -> Reply {
        match call {
            Call::ThreadMyId => Ok((caller.thread.0, 0)).into(),
            Call::PdxCall => self.pdx_call(world, caller, arguments.into()).into(),
            Call::PdxReturn => self.pdx_return(world, caller, arguments.into()).into(),

            // Kernel domains are the kernel's own.
            Call::DomainCall => Err(Error::NotAnEntry.into()).into(),

            Call::ObjCreate => self.obj_create(world, caller, arguments.into()).into(),
            Call::ObjDelete => self.upsetting(world, caller, |server, world| {
                server.obj_delete(world, caller, arguments.into())
            }),
            Call::ObjRetire => self.upsetting(world, caller, |server, world| {
                server.obj_retire(world, caller, arguments.into())
            }),
            Call::ObjResize => self.obj_resize(world, caller, arguments.into()).into(),
            Call::ObjPasswd => self.upsetting(world, caller, |server, world| {
                server.obj_passwd(world, caller, arguments.into())
            }),
            Call::ObjInfo => self.obj_info(world, caller, arguments.into()).into(),
            Call::ObjCrePdx => self.upsetting(world, caller, |server, world| {
                server.obj_cre_pdx(world, caller, arguments.into())
            }),
            Call::KeepObject => self.keep_object(world, caller, arguments.into()).into(),
            Call::ObjClone => self.obj_clone(world, caller, arguments.into()).into(),

            Call::PageCopy => self.page_copy(world, caller, arguments.into()).into(),
            Call::PageUnMap => self.page_un_map(world, caller, arguments.into()).into(),
            Call::PageFlushAll => self.page_flush_all(world, caller, arguments.into()).into(),
            Call::PageFlush => self.page_flush(world, caller, arguments.into()).into(),
            Call::PageLimit => self.page_limit(world, caller, arguments.into()).into(),

            Call::ApdInsert => self.apd_insert(world, caller, arguments.into()).into(),
            Call::ApdDelete => self.apd_delete(world, caller, arguments.into()).into(),
            Call::ApdGet => self.apd_get(world, caller, arguments.into()).into(),
            Call::ApdLock => self.apd_lock(world, caller, arguments.into()).into(),
            Call::ApdLookup => self.apd_lookup(world, caller, arguments.into()).into(),
            Call::ApdFlush => self.apd_flush(world, caller, arguments.into()).into(),

            Call::TaskCreate => self.task_create(world, caller, arguments.into()).into(),
            Call::ThreadCreate => self.thread_create(world, caller, arguments.into()).into(),
            Call::ThreadDelete => {
                // The call may end a callee that the caller is inside of.
                let depth = world.portal_depth(caller.thread);
                let outcome = self.thread_delete(world, caller, arguments.into());
                self.finish_ends(world);
                self.settle(world, caller.thread, depth, outcome).into()
            }
            Call::ThreadWait => self.thread_wait(world, caller, arguments.into()).into(),
            Call::ThreadSleep => self.thread_sleep(world, caller, arguments.into()).into(),
            Call::ThreadResume => self.thread_resume(world, caller, arguments.into()).into(),
            Call::ThreadInfo => self.thread_info(world, caller, arguments.into()).into(),
            Call::ExcptReg => self.excpt_reg(world, caller, arguments.into()).into(),
            Call::ExcptReturn => self.excpt_return(world, caller, arguments.into()).into(),

            Call::SemCreate => self.sem_create(world, caller, arguments.into()).into(),
            Call::SemDelete => self.sem_delete(world, caller, arguments.into()).into(),
            Call::SemWait => self.sem_wait(world, caller, arguments.into()).into(),
            Call::SemSignal => self.sem_signal(world, caller, arguments.into()).into(),
            Call::AddressWait => self.address_wait(world, caller, arguments.into()).into(),
            Call::AddressWake => self.address_wake(world, caller, arguments.into()).into(),

            Call::ConsoleWrite => self.console_write(world, caller, arguments.into()).into(),
            Call::ConsoleRead => self.console_read(world, caller, arguments.into()).into(),
            Call::ConsoleForeground => self.console_foreground(world, caller, arguments.into()).into(),
            Call::ClockRead => {
                let now = world.now_ns();
                Ok((now, world.boot_time_ns().saturating_add(now))).into()
            }
            Call::RandomRead => Ok((world.random(), 0)).into(),
            Call::SystemInfo => self.system_info(world, caller, arguments.into()).into(),
            Call::SystemControl => self.system_control(world, caller, arguments.into()).into(),
        }
    }

    /// A call that may end protected procedures, the one that the caller is inside of among them.
    fn upsetting<W: World>(
        &mut self,
        world: &mut W,
        caller: Caller,
        call: impl FnOnce(&mut Self, &mut W) -> Answer,
    ) -> Reply {
        let depth = world.portal_depth(caller.thread);
        let step = call(self, world);
        self.finish_ends(world);
        self.settle(world, caller.thread, depth, step.into()).into()
    }
}
