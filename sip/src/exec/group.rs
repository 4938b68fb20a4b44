//! Processes that take turns on one thread. One runs until it waits for a message that is not there,
//! ends or traps; then the next runs whose message has come. A process that ends, however, gives back
//! its endpoints and blocks at once, so that its peers see it gone in their next send or receive.

use super::asm::{self, Registers};
use super::{Exchange, HostError, LinkError, Member, Runtime, Store, Trap, host};
use crate::contract::Protocol;
use crate::exchange::endpoints::{Endpoint, EndpointError};
use crate::exchange::{Channels, End, Process};
use crate::translate::TrapKind;
use alloc::{boxed::Box, string::String, sync::Arc, vec::Vec};

/// A group's record of a process, and the processes' record of one another.
pub(super) struct Seat {
    /// Its number in the group.
    pub at: usize,
    pub process: Process,
    pub runtime: *mut Runtime,
    pub member: *mut Member,
    /// The end at which it waits for a message.
    pub waiting: Option<End>,
    /// The endpoint at which it waits, while `waiting` is some.
    pub into: *mut Endpoint,
    /// The message that came past the queue; it waits no more then.
    pub delivered: Option<u16>,
    /// Its stack pointer while it waits.
    pub saved: u64,
}

impl Seat {
    /// Whether what the process waits for is there.
    pub fn is_ready(&self, channels: &Channels) -> bool {
        self.delivered.is_some() || self.waiting.is_some_and(|end| channels.is_ready(end))
    }
}

/// The state that the processes of a group share with it.
pub(super) struct Shared {
    /// In the order in which they joined, so of their numbers; each stays where it is.
    pub seats: Vec<Box<Seat>>,
    /// The process that runs.
    pub current: usize,
    /// Changes from process to process since the group had the processor.
    pub handovers: u32,
    /// Whether messages may go past the queues, and how many did.
    pub short: bool,
    pub passed: u64,
}

/// How far a process is.
enum Stage {
    /// Without a function to start with.
    New,
    /// To start with this function.
    Ready(u64),
    /// It has run and waits.
    Waiting,
    /// It has ended.
    Done(Result<(), Trap>),
}

/// Processes on one thread that exchange over one heap.
pub struct Group {
    heap: Arc<Exchange>,
    stages: Vec<Stage>,
    shared: Box<Shared>,
    stores: Vec<Box<Store>>,
}

impl Group {
    /// A group without processes.
    pub fn new(heap: &Arc<Exchange>) -> Self {
        Self {
            heap: heap.clone(),
            stages: Vec::new(),
            shared: Box::new(Shared {
                seats: Vec::new(),
                current: 0,
                handovers: 0,
                short: true,
                passed: 0,
            }),
            stores: Vec::new(),
        }
    }

    /// Lets every message of processes yet to be added go the general way, through queues: slower, and otherwise
    /// the same. Tests compare the two.
    pub fn without_short_way(&mut self) {
        self.shared.short = false;
    }

    /// How many messages went the short way.
    pub fn passed(&self) -> u64 {
        self.shared.passed
    }

    /// Adds a process that has joined the heap; returns its number in the group.
    ///
    /// # Errors
    /// No memory.
    pub fn add(&mut self) -> Result<usize, LinkError> {
        let mut store = Store::new()?;
        let member: *mut Member = store.join(&self.heap);
        // SAFETY: the store owns the member, in a box, and keeps it as long as it lives.
        let process = unsafe { (*member).process };
        store.group = &raw mut *self.shared;
        self.shared.seats.push(Box::new(Seat {
            at: self.stores.len(),
            process,
            runtime: &raw mut *store.runtime,
            member,
            waiting: None,
            into: core::ptr::null_mut(),
            delivered: None,
            saved: 0,
        }));
        self.stores.push(store);
        self.stages.push(Stage::New);
        Ok(self.stores.len() - 1)
    }

    /// A process's store: to instantiate its modules in.
    pub fn store(&mut self, process: usize) -> &mut Store {
        &mut self.stores[process]
    }

    /// Joins two processes by a channel of a contract, which each gets by `start`.
    ///
    /// # Errors
    /// The heap has as many channels as it may have, or a process as many endpoints.
    pub fn connect(&mut self, protocol: &Arc<Protocol>, client: usize, server: usize) -> Result<(), EndpointError> {
        let seats = &self.shared.seats;
        let (from, to) = (seats[client].process, seats[server].process);
        let channels = self.heap.channels();
        let ends = channels.open(from, protocol.key()).ok_or(EndpointError::Endpoints)?;
        // The second end changes hands by way of a message that is never sent.
        if !channels.give(from, ends[1]) || !channels.accept(to, ends[1]) {
            return Err(EndpointError::Stale);
        }
        for (process, end) in [(client, ends[0]), (server, ends[1])] {
            self.stores[process].start_with(protocol, end)?;
        }
        Ok(())
    }

    /// Names the function, of no parameters, with which a process starts.
    pub fn start(&mut self, process: usize, function: u64) {
        self.stages[process] = Stage::Ready(function);
    }

    /// Runs all processes to their ends, and says how each ended. A process that waits when none can run any
    /// more is ended with a trap that says so.
    pub fn run(&mut self) -> Vec<Result<(), Trap>> {
        let mut next = 0;
        while let Some(at) = self.runnable(next) {
            next = at + 1;
            self.shared.current = at;
            self.shared.handovers = 0;
            let outcome = self.enter(at);
            // Not necessarily the one that was entered: they change among themselves.
            let at = self.shared.current;
            match outcome {
                Ok(true) => self.stages[at] = Stage::Waiting,
                Ok(false) => self.done(at, Ok(())),
                Err(trap) => self.done(at, Err(trap)),
            }
            if next <= at {
                next = at + 1;
            }
        }
        for at in 0..self.stages.len() {
            if matches!(self.stages[at], Stage::Waiting) {
                let text = String::from("it waits for a message that nobody can send any more");
                let trap = Trap {
                    host: Some(HostError::Failed(text)),
                    ..Trap::new(TrapKind::Service)
                };
                self.done(at, Err(trap));
            }
        }
        let outcome = |stage: &Stage| match stage {
            Stage::Done(outcome) => outcome.clone(),
            _ => Ok(()),
        };
        self.stages.iter().map(outcome).collect()
    }

    fn done(&mut self, at: usize, outcome: Result<(), Trap>) {
        self.stages[at] = Stage::Done(outcome);
        self.shared.seats[at].waiting = None;
        self.shared.seats[at].delivered = None;
        self.stores[at].depth = 0;
        if let Some(member) = self.stores[at].member() {
            member.leave();
        }
    }

    /// The next process that can run, in turn.
    fn runnable(&self, from: usize) -> Option<usize> {
        let count = self.stages.len();
        (0..count)
            .map(|step| (from + step) % count)
            .find(|at| match self.stages[*at] {
                Stage::Ready(_) => true,
                Stage::Waiting => self.shared.seats[*at].is_ready(self.heap.channels()),
                _ => false,
            })
    }

    /// Runs from a process on until one leaves; says whether that one waits.
    fn enter(&mut self, at: usize) -> Result<bool, Trap> {
        let mut registers = Registers::default();
        let store = &mut self.stores[at];
        let ready = match self.stages[at] {
            Stage::Ready(function) => Some(store.prepare(function, &[], &mut registers)?),
            _ => None,
        };
        // From now on it waits whenever another one leaves.
        self.stages[at] = Stage::Waiting;
        let runtime: *mut Runtime = &raw mut *store.runtime;
        let top = store.stack_top();
        store.depth = 1;
        let previous = host::set_current(runtime);
        // SAFETY: a process that is ready has an unused stack, and its code and registers are a
        // verified function's; one that waits has left its stack pointer in its seat.
        let status = unsafe {
            match ready {
                Some((code, _)) => asm::sip_enter(&raw mut registers, code, runtime.cast(), top),
                None => asm::sip_resume(&raw mut registers, self.shared.seats[at].saved, runtime.cast()),
            }
        };
        host::set_current(previous);
        match status {
            0 => Ok(false),
            2 => Ok(true),
            _ => {
                let current = self.shared.current;
                Err(self.stores[current].trap())
            }
        }
    }
}
