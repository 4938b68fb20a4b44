//! The kernel binary's work around the operation: registers in, outcome settled, the next thread.

use std::collections::BTreeMap;

use abi::nucleus::Call;
use kcore::{
    Kernel, Machine, SpaceId, ThreadId,
    bare::Bare,
    event::{Event, Outcome},
    scheduler::Standing,
    thread::{Operation, Resumed, State},
};

use crate::fake::{Fake, Random, bare};

/// Which way operations take.
#[derive(Copy, Clone, PartialEq, Eq)]
pub enum Way {
    /// The general one.
    General,
    /// The fast one where it is one.
    FastFirst,
}

/// The values that a thread finds in its registers.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    pub error: u64,
    pub tag: u64,
    pub sender: u64,
    pub words: [u64; 4],
}

pub struct Driver {
    pub kernel: Kernel<Fake, Bare>,
    way: Way,
    spaces: Vec<SpaceId>,
    ids: Vec<u64>,
    /// Operations that took the fast path.
    pub fast: u32,
    /// Threads that did an operation again since somebody asked.
    pub redone: Vec<u64>,
    /// Messages that were found received.
    pub delivered: u32,
    /// The vector registers of the threads that use the unit.
    vectors: BTreeMap<u64, u64>,
}

impl Driver {
    pub fn new(threads: usize, way: Way) -> Self {
        let mut kernel = bare(64);
        let spaces = (0..2).map(|_| kernel.space_create().expect("space")).collect();
        let mut driver = Self {
            kernel,
            way,
            spaces,
            ids: Vec::new(),
            fast: 0,
            redone: Vec::new(),
            delivered: 0,
            vectors: BTreeMap::new(),
        };
        for _ in 0..threads {
            driver.add();
        }
        driver
    }

    /// Threads that exist, in the order of their places.
    pub fn ids(&self) -> Vec<u64> {
        self.ids.clone()
    }

    pub fn add(&mut self) -> u64 {
        let space = self.spaces[self.ids.len() % self.spaces.len()];
        let thread = self
            .kernel
            .thread_create(space, 0x40_0000, 0x7f_0000, [0; 4], Standing::new(0, 3))
            .expect("a thread");
        let context = &mut self.kernel.threads_mut().get_mut(thread).context;
        context.reset(0x40_0000, 0x7f_0000);
        self.kernel.thread_wake(thread, Resumed::First);
        self.ids.push(thread.0);
        self.ids.sort_by_key(|id| id & 0xffff);
        thread.0
    }

    pub fn delete(&mut self, id: u64) {
        self.kernel.thread_destroy(ThreadId(id));
        self.ids.retain(|&other| other != id);
    }

    pub fn pass(&mut self, us: u64) {
        self.kernel.hardware.now_ns += us * 1000;
        self.kernel.tick();
    }

    /// The thread whose turn it is, everything done that it had to do again.
    pub fn next(&mut self) -> Option<u64> {
        loop {
            let index = self.kernel.schedule()?;
            let thread = &mut self.kernel.threads_mut().table[index as usize];
            let Some(operation) = thread.operation.take() else {
                let id = thread.id.0;
                self.kernel.vectors_follow(index);
                return Some(id);
            };
            let event = Event::Call {
                thread: thread.id,
                number: operation.number,
                arguments: operation.arguments,
                resumed: thread.resumed,
            };
            self.redone.push(thread.id.0);
            let outcome = self.kernel.nucleus_event(event);
            self.settle(outcome);
        }
    }

    /// The running thread does the operation.
    pub fn operate(&mut self, arguments: [u64; 5], words: [u64; 4]) {
        let index = self.kernel.current().expect("a running thread");
        let (rip, rsp) = (0x40_0000 + words[0] % 4096, 0x7f_0000 - words[1] % 4096);
        if self.way == Way::FastFirst
            && let Some(to) = self.kernel.ipc_fast(arguments, rip, rsp)
        {
            self.fast += 1;
            // The entry code leaves this in the receiver's registers.
            let context = &mut self.kernel.threads_mut().table[to.receiver as usize].context;
            assert_eq!((to.rip, to.rsp), (context.rip, context.rsp));
            context.reset(to.rip, to.rsp);
            context.set_results(0, arguments[2], to.sender);
            [context.r12, context.r13, context.r14, context.r15] = words;
            self.note_waits();
            // The receiver goes on at once.
            self.see_vectors("a message on the fast path");
            return;
        }
        let thread = &mut self.kernel.threads_mut().table[index as usize];
        let context = &mut thread.context;
        (context.rip, context.rsp) = (rip, rsp);
        [context.r12, context.r13, context.r14, context.r15] = words;
        let [to, from, tag, timeouts, window] = arguments;
        let event = Event::Call {
            thread: thread.id,
            number: Call::Ipc as u64,
            arguments: [to, from, tag, timeouts, window, 0],
            resumed: Resumed::First,
        };
        let outcome = self.kernel.nucleus_event(event);
        self.settle(outcome);
    }

    /// The running thread sees its own vector registers, or the unit is off. (How one that has waited for a message sees the initial
    /// state: [`Self::note_waits`].)
    fn see_vectors(&self, context: &str) -> u64 {
        let me = self.kernel.current_thread().expect("a running thread").id.0;
        let expected = self.vectors.get(&me).copied();
        assert_eq!(self.kernel.hardware.unit[0], expected, "{context}: thread {me:#x}");
        me
    }

    /// It sees that, and may use the unit.
    pub fn use_vectors(&mut self, random: &mut Random, context: &str) {
        let me = self.see_vectors(context);
        if random.below(3) > 0 {
            return;
        }
        if self.kernel.hardware.unit[0].is_none() {
            self.kernel.vectors_begin().expect("room");
            assert_eq!(
                self.kernel.hardware.unit[0],
                Some(0),
                "{context}: thread {me:#x} begins"
            );
        }
        let state = random.next();
        self.kernel.hardware.unit[0] = Some(state);
        self.vectors.insert(me, state);
    }

    /// A thread that waits for a message keeps no vector registers.
    fn note_waits(&mut self) {
        for (id, state) in &mut self.vectors {
            let thread = self.kernel.threads().find(ThreadId(*id));
            if thread.is_some_and(|index| self.kernel.thread(index).state == State::Receiving) {
                *state = 0;
            }
        }
    }

    fn settle(&mut self, outcome: Outcome) {
        self.note_waits();
        let Some(thread) = self.kernel.current_thread_mut() else {
            return;
        };
        match outcome {
            Outcome::Return(result) => {
                let (rip, rsp) = (thread.context.rip, thread.context.rsp);
                thread.context.reset(rip, rsp);
                match result {
                    Ok((value, value2)) => thread.context.set_results(0, value, value2),
                    Err(error) => thread.context.set_results(error as u64, 0, 0),
                }
            }
            Outcome::Resume | Outcome::Gone => {}
            other => panic!("{other:?} from a message without items"),
        }
    }

    /// The values that the running thread finds.
    pub fn result(&mut self) -> Answer {
        let context = self.kernel.current_thread().expect("a running thread").context;
        let answer = Answer {
            error: context.rax,
            tag: context.rdx,
            sender: context.rsi,
            words: [context.r12, context.r13, context.r14, context.r15],
        };
        self.delivered += u32::from(answer.sender != 0);
        answer
    }

    /// All that can be told apart.
    pub fn picture(&self) -> Vec<(u64, State, Option<Operation>, u64, u64, Answer)> {
        let thread = |id: &u64| {
            let thread = self.kernel.threads().get(ThreadId(*id));
            let context = &thread.context;
            let answer = Answer {
                error: context.rax,
                tag: context.rdx,
                sender: context.rsi,
                words: [context.r12, context.r13, context.r14, context.r15],
            };
            // The registers of one that waits to receive mean nothing.
            let answer = if thread.state == State::Receiving {
                Answer::default()
            } else {
                answer
            };
            (*id, thread.state, thread.operation, context.rip, context.rsp, answer)
        };
        self.ids.iter().map(thread).collect()
    }

    pub fn check(&mut self, context: &str) {
        if let Err(what) = self.kernel.check() {
            panic!("{context}: {what}");
        }
    }
}
