//! A bare machine whose calls, faults and interrupts take the fast paths wherever they lead, or the general way alone. Tests that compare the two share it.

use std::sync::atomic::Ordering::Relaxed;

use abi::nucleus::{Call, LINK};
use kcore::{
    Hardware, Kernel, SpaceId,
    bare::{Bare, ipc::Apart},
    event::{Access, Event, Outcome},
    paging,
    thread::{Operation, Resumed, State, Thread},
};

use super::fake::{self, Fake};

/// The first frame of σ₀'s memory, and how many frames it has: a slot and some pages more.
pub const FIRST: u32 = 0x1000;
pub const FRAMES: u32 = 0x208;
/// The addresses at which pages are touched.
pub const PLACE: u64 = 0x2000_0000_0000;

/// In a thread's `slow`: it waits for the answer to a fault.
pub const WAITS: u32 = 4;
/// In a thread's `slow`: its end has begun.
const ENDS: u32 = 64;

/// Which way is taken.
#[derive(Copy, Clone, PartialEq, Eq)]
pub enum Way {
    General,
    ShortFirst,
}

/// The cases that have fast paths: a page or a slot is given, a page is taken, a message of words, a message with an item, a fault or an interrupt
/// becomes a message, half a message is over at once or waits.
pub enum Short {
    Map,
    Link,
    Flush,
    Fast,
    Answer,
    Fault,
    Interrupt,
    Over,
    Waits,
    Kinds,
}

/// The parts of a thread that a program can see: its state, its operation, its registers, and where it goes on.
pub type Picture = (State, Option<Operation>, [u64; 7], [u64; 2]);

/// The registers of a thread that waits for a message are not compared: the message overwrites them. Those of a thread that waits for the answer to a fault
/// stay.
pub fn picture(thread: &Thread) -> Picture {
    let context = &thread.context;
    let registers = if thread.state == State::Receiving && thread.slow & WAITS == 0 {
        [0; 7]
    } else {
        [
            context.rax,
            context.rdx,
            context.rsi,
            context.r12,
            context.r13,
            context.r14,
            context.r15,
        ]
    };
    (thread.state, thread.operation, registers, [context.rip, context.rsp])
}

/// The machine.
pub struct Machine {
    pub kernel: Kernel<Fake, Bare>,
    way: Way,
    /// Events that took a fast path, by kind.
    pub short: [u32; Short::Kinds as usize],
}

impl Machine {
    /// σ₀ has its memory as a large page and some small ones, or as small ones alone. One thread of its runs.
    pub fn new(way: Way, large: bool, frames: u32) -> (Self, SpaceId, u64) {
        let mut kernel = fake::bare(frames);
        let first = (FIRST, FIRST + if large { 512 } else { FRAMES / 4 });
        let memory = [first, (FIRST + 512, FIRST + FRAMES)];
        let root = kernel.sigma0_create(20_000, &memory, &[], 1).expect("σ₀");
        kernel.nucleus_root(root).expect("memory");
        let first = kernel
            .nucleus_thread(root, [0x40_0000, 0x7f_0000, 0], 5)
            .expect("a thread");
        let short = [0; Short::Kinds as usize];
        let mut machine = Self { kernel, way, short };
        assert_eq!(machine.next(), Some(first.0));
        (machine, root, first.0)
    }

    /// The thread whose turn it is. What threads had to do again is done before.
    pub fn next(&mut self) -> Option<u64> {
        for _ in 0..100_000 {
            let index = self.kernel.schedule()?;
            let thread = &mut self.kernel.threads_mut().table[index as usize];
            let Some(operation) = thread.operation.take() else {
                return Some(thread.id.0);
            };
            let event = operation.event(thread.id, thread.resumed);
            let outcome = self.event(event);
            self.settle(outcome, operation);
        }
        panic!("never ends")
    }

    /// A piece of an operation. While threads end, all pieces of a deletion follow at once, because not as many threads end in a piece on both ways:
    /// a fast path may mark a thread as awaited although no thread waits for it, and for each mark a piece looks at the threads that share it.
    fn event(&mut self, event: Event) -> Outcome {
        let deletes = [Call::SpaceDelete, Call::ThreadDelete].map(|call| call as u64);
        let is_delete = matches!(event, Event::Call { number, .. } if deletes.contains(&number));
        let there = |machine: &Self| {
            let table = &machine.kernel.threads().table;
            table.iter().filter(|thread| thread.state != State::Free).count()
        };
        loop {
            let before = there(self);
            let outcome = self.kernel.nucleus_event(event);
            let ends = self.kernel.threads().table.iter().any(|thread| thread.slow & ENDS != 0);
            if !is_delete || outcome != Outcome::Again || !ends && there(self) == before {
                return outcome;
            }
        }
    }

    pub fn settle(&mut self, outcome: Outcome, operation: Operation) {
        if let Some(thread) = self.kernel.current_thread_mut() {
            let (rip, rsp) = (thread.context.rip, thread.context.rsp);
            match outcome {
                Outcome::Return(result) => {
                    let (error, (value, value2)) = match result {
                        Ok(values) => (0, values),
                        Err(error) => (error as u64, (0, 0)),
                    };
                    thread.context.reset(rip, rsp);
                    thread.context.set_results(error, value, value2);
                }
                Outcome::Again => {
                    let operation = thread.operation.take().or(Some(operation));
                    self.kernel.again(operation);
                }
                Outcome::Resume | Outcome::Gone => {}
                Outcome::Block(..) => panic!("the µ-kernel blocks nobody"),
            }
        }
        if self.kernel.should_preempt() {
            self.kernel.yield_current();
        }
    }

    pub fn call(&mut self, call: Call, arguments: [u64; 6]) {
        let [first, second, third, fourth, ..] = arguments;
        let short = match (self.way, call) {
            (Way::ShortFirst, Call::Map) => self.kernel.map_short([first, second, third, fourth]),
            (Way::ShortFirst, Call::Flush) => self.kernel.flush_short([first, second, third]),
            _ => None,
        };
        if let Some(value) = short {
            let kind = match (call, fourth) {
                (Call::Flush, _) => Short::Flush,
                (_, LINK) => Short::Link,
                _ => Short::Map,
            };
            self.short[kind as usize] += 1;
            let context = &mut self.kernel.current_thread_mut().expect("it runs").context;
            context.reset(context.rip, context.rsp);
            context.set_results(0, value, 0);
            return;
        }
        let (rip, rsp) = (0x40_0000 + first % 4096, 0x7f_0000);
        if self.way == Way::ShortFirst
            && call == Call::Ipc
            && let [to, from, tag, timeouts, window, _] = arguments
        {
            let context = &self.kernel.current_thread_mut().expect("it runs").context;
            let words = [context.r12, context.r13, context.r14, context.r15];
            let arguments = [to, from, tag, timeouts, window];
            if let Some(to) = self.kernel.ipc_fast(arguments, rip, rsp) {
                self.short[Short::Fast as usize] += 1;
                // The entry code leaves this in the receiver's registers.
                let context = &mut self.kernel.threads_mut().table[to.receiver as usize].context;
                context.reset(to.rip, to.rsp);
                context.set_results(0, tag, to.sender);
                [context.r12, context.r13, context.r14, context.r15] = words;
                return;
            }
            if let Some(turn) = self.kernel.item_short(arguments, words, (rip, rsp)) {
                assert_eq!(self.kernel.current(), Some(turn.next));
                self.short[Short::Answer as usize] += 1;
                return;
            }
            if let Some(apart) = self.kernel.ipc_apart(arguments, words, (rip, rsp)) {
                let runs = self.kernel.current().is_some();
                assert_eq!(runs, apart == Apart::GoesOn);
                self.short[if runs { Short::Over } else { Short::Waits } as usize] += 1;
                if self.kernel.should_preempt() {
                    self.kernel.yield_current();
                }
                return;
            }
        }
        let thread = self.kernel.current_thread_mut().expect("it runs");
        let event = Event::Call {
            thread: thread.id,
            number: call as u64,
            arguments,
            resumed: Resumed::First,
        };
        if call == Call::Ipc {
            (thread.context.rip, thread.context.rsp) = (rip, rsp);
        }
        let outcome = self.event(event);
        let number = call as u64;
        self.settle(outcome, Operation { number, arguments });
    }

    pub fn value(&mut self, call: Call, arguments: [u64; 6]) -> u64 {
        self.call(call, arguments);
        let context = &self.kernel.current_thread_mut().expect("it runs").context;
        assert_eq!(context.rax, 0, "{call:?}");
        context.rdx
    }

    pub fn fault(&mut self, address: u64, access: Access) {
        if self.way == Way::ShortFirst && self.kernel.fault_short(address, access).is_some() {
            self.short[Short::Fault as usize] += 1;
            return;
        }
        let thread = self.kernel.current_thread_mut().expect("it runs").id;
        let outcome = self.kernel.nucleus_event(Event::Fault {
            thread,
            address,
            access,
        });
        assert!(matches!(outcome, Outcome::Gone | Outcome::Again | Outcome::Return(_)));
        self.settle(outcome, Operation::raised(0, address));
    }

    pub fn interrupt(&mut self, number: usize) {
        if self.way == Way::ShortFirst && self.kernel.interrupt_short(number).is_some() {
            self.short[Short::Interrupt as usize] += 1;
            return;
        }
        self.kernel.interrupt_message(number);
        if self.kernel.should_preempt() {
            self.kernel.yield_current();
        }
    }

    /// The last page-table entry on the way to an address, and its level.
    pub fn entry(&self, space: SpaceId, address: u64) -> (usize, u64) {
        let mut table = self.kernel.spaces().get(space).root();
        for level in (0..4).rev() {
            let entry = self.kernel.hardware.table(table)[(address >> (12 + 9 * level)) as usize & 511].load(Relaxed);
            if level == 0 || !paging::is_present(entry) || paging::is_large(entry) {
                return (level, entry);
            }
            table = paging::frame_of(entry);
        }
        unreachable!("level 0 ends it")
    }
}
