//! The whole system on the host: server, kernel logic and store over a fake machine, driven by
//! scripted users.
//!
//! A test plays the threads: it says which thread makes which call or touches which address, as
//! the machine would, and the harness does what the kernel does with the server's answers.

use std::collections::{BTreeMap, BTreeSet};

use abi::{
    Call, Error,
    address::{FIRST_PROGRAM, PAGE},
    layout::{CONTROL_POWER_OFF, Capability, FOREVER},
};
use kcore::{
    Machine, SpaceId, ThreadId,
    space::Tags,
    thread::{Operation, Resumed, State},
};
use sasos::{Access, Event, Outcome, Server};
use sim::{
    disk::CrashDisk,
    machine::{Platform, Touch},
    rng::Rng,
};
use store::{MountMode, Store};

use crate::install::{clist_bytes, installed_disk};

/// Offset of the entry point in the first program; the page may be executed and not written.
pub const ENTRY: u64 = PAGE;
/// Offset of its data page.
pub const DATA: u64 = 2 * PAGE;
/// Pages of the first program.
pub const PROGRAM_PAGES: u64 = 3;
/// The price of a call of the machine with the server inside of the kernel, and outside.
pub const PRICES: [u64; 2] = [0, kcore::outside::Remote::<()>::CALL];
/// Steps after which something that does not end counts as hanging.
pub const RETRIES: u32 = 20_000;
/// The most pieces that are waited for: far more than the largest work of a test takes.
const PIECES_MOST: u32 = 1_000_000;

/// The outcome of a call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It came back.
    Done(Result<(u64, u64), Error>),
    /// The thread is parked.
    Blocked,
    /// The thread goes on somewhere else: in a callee, in a handler, back at its caller.
    Elsewhere,
    /// The thread is not running any more.
    Gone,
}

/// The outcome of touching memory, if not a success.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The thread goes on somewhere else.
    Elsewhere,
    /// The thread has ended.
    Ended,
}

/// The system.
pub struct System {
    pub platform: Platform,
    pub server: Server,
    /// The first thread.
    pub first: ThreadId,
    /// Answers of calls that had been parked.
    pub late: BTreeMap<ThreadId, Answer>,
    /// Threads whose last call was parked, until its end is [noticed](System::over).
    parked: BTreeSet<ThreadId>,
    /// The place of the thread that had the processor last while another one waited.
    turn: usize,
    /// If there is one, long work and calls that go on in pieces do few of them at a time, in an order that it chooses.
    pub slow: Option<Rng>,
}

impl System {
    /// A system with a new disk.
    pub fn boot(seed: u64) -> Self {
        Self::boot_with(seed, 4096, 16384)
    }

    /// The same with so much memory and disk.
    pub fn boot_with(seed: u64, frames: u32, blocks: u64) -> Self {
        let mut rng = Rng::new(seed);
        let disk = installed_disk(blocks, 4096, &mut rng);
        Self::mount(disk, frames, rng)
    }

    /// A system on a disk that was in use before.
    pub fn mount(disk: CrashDisk, frames: u32, mut rng: Rng) -> Self {
        let tags = if rng.one_in(2) { Tags::Absent } else { Tags::Present };
        let mut platform = Platform::new(frames, tags, disk, rng.fork());
        let (store, report) = Store::mount(&mut platform, MountMode::ReadWrite).expect("mount");
        let mut server = Server::new(&mut platform, store, &report).expect("a server");
        let first = server.start(&mut platform).expect("start");
        Self {
            platform,
            server,
            first,
            late: BTreeMap::new(),
            parked: BTreeSet::new(),
            turn: 0,
            slow: None,
        }
    }

    // ---- running --------------------------------------------------------------------------------

    /// Makes a thread the running one.
    pub fn run(&mut self, thread: ThreadId) {
        let kernel = &mut self.platform.kernel;
        let index = kernel.threads().find(thread).expect("the thread is there");
        if kernel.current() != Some(index) {
            kernel.yield_current();
            let mut others = Vec::new();
            loop {
                let Some(other) = kernel.schedule() else {
                    // Many went behind at once: interrupts would have their turn.
                    if kernel.has_waiting() {
                        continue;
                    }
                    break;
                };
                if other == index {
                    break;
                }
                let record = &kernel.threads().table[other as usize];
                others.push((record.id, record.resumed));
                kernel.thread_suspend(others[others.len() - 1].0);
            }
            for (other, resumed) in others {
                kernel.thread_wake(other, resumed);
            }
        }
        assert_eq!(
            kernel.current(),
            Some(index),
            "thread {thread:?} cannot run: {:?}",
            kernel.threads().table[index as usize].state
        );
        let space = kernel.threads().table[index as usize].space;
        kernel.enter_space(space);
    }

    fn settle(&mut self, outcome: Outcome, operation: Option<Operation>) -> Answer {
        self.platform.kernel.hardware.now_ns += 1000;
        match outcome {
            Outcome::Return(result) => {
                let (error, value, value2) = match result {
                    Ok((value, value2)) => (0, value, value2),
                    Err(error) => (error as u64, 0, 0),
                };
                let thread = self
                    .platform
                    .kernel
                    .current_thread_mut()
                    .expect("a call returns to a running thread");
                let (rip, rsp) = (thread.context.rip, thread.context.rsp);
                thread.context.reset(rip, rsp);
                thread.context.set_results(error, value, value2);
                Answer::Done(result)
            }
            Outcome::Block(key, deadline) => {
                self.platform.kernel.park(key, deadline, operation);
                Answer::Blocked
            }
            Outcome::Again => {
                self.platform.kernel.again(operation);
                Answer::Blocked
            }
            Outcome::Resume => Answer::Elsewhere,
            Outcome::Gone => Answer::Gone,
        }
    }

    /// A call with any number, by the ways that the kernel has.
    pub fn raw_call(&mut self, thread: ThreadId, number: u64, arguments: [u64; 6]) -> Answer {
        self.run(thread);
        let kernel = &mut self.platform.kernel;
        let index = thread.index();
        assert!(
            kernel.threads().table[index].operation.is_none(),
            "{thread:?} is still in a call"
        );
        let (rip, rsp) = (
            kernel.threads().table[index].context.rip,
            kernel.threads().table[index].context.rsp,
        );
        if number == Call::PdxCall as u64 {
            // The slow path is the oracle of the fast one.
            let (home, entry, pd) = (kernel.threads().table[index].space, arguments[0], arguments[2]);
            let way = kernel.portal_way(home, entry, pd);
            assert!(
                way.is_none_or(|callee| self.server.would_enter(home, entry, pd, callee)),
                "the kernel remembers a call of {home:?} to {entry:#x} that the server would refuse"
            );
        }
        let crossing = match Call::from_number(number) {
            Some(Call::PdxCall) => kernel.portal_call(arguments[0], arguments[2], rip, rsp),
            Some(Call::PdxReturn) => kernel.portal_return(),
            _ => None,
        };
        if let Some(crossing) = crossing {
            let context = &mut kernel.threads_mut().table[index].context;
            (context.rip, context.rsp) = (crossing.rip, crossing.rsp);
            if number == Call::PdxReturn as u64 {
                context.set_results(0, arguments[0], arguments[1]);
            } else {
                context.set_arguments([arguments[1], arguments[3], arguments[4], arguments[5]]);
            }
            return Answer::Elsewhere;
        }
        if let Some(value) = self.server.immediate(thread, number) {
            return Answer::Done(Ok((value, 0)));
        }
        let event = Event::Call {
            thread,
            number,
            arguments,
            resumed: Resumed::First,
        };
        let outcome = self.server.handle(&mut self.platform, event);
        let answer = self.settle(outcome, Some(Operation { number, arguments }));
        if answer == Answer::Blocked {
            self.parked.insert(thread);
        }
        answer
    }

    /// A call, up to six arguments.
    pub fn start(&mut self, thread: ThreadId, call: Call, arguments: &[u64]) -> Answer {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        self.raw_call(thread, call as u64, all)
    }

    /// A call that comes back, perhaps after waiting for the disk.
    pub fn call(&mut self, thread: ThreadId, call: Call, arguments: &[u64]) -> Result<(u64, u64), Error> {
        match self.start(thread, call, arguments) {
            Answer::Done(result) => result,
            Answer::Blocked => match self.wait_for(thread) {
                Answer::Done(result) => result,
                other => panic!("{call:?} ended in {other:?}"),
            },
            other => panic!("{call:?} ended in {other:?}"),
        }
    }

    /// Brings everything that ends to its end, in as many pieces as it takes.
    ///
    /// # Panics
    /// If that never happens.
    pub fn finish_work(&mut self) {
        for _ in 0..PIECES_MOST {
            if self.server.work.is_empty() {
                return;
            }
            self.server.handle(&mut self.platform, Event::Poll);
        }
        panic!("work does not come to its end");
    }

    /// Does again what woken threads were parked with: all of it, or a few pieces where they come slowly.
    pub fn pump(&mut self) {
        if let Some(mut slow) = self.slow.take() {
            for _ in 0..slow.below(4) {
                let waiting = self.woken();
                if waiting.is_empty() {
                    break;
                }
                self.goes_on(*slow.pick(&waiting));
            }
            self.slow = Some(slow);
            return;
        }
        let mut last = None;
        for again in 0.. {
            assert!(again < PIECES_MOST, "a call is made again and again: {last:?}");
            self.finish_work();
            let Some(&thread) = self.woken().first() else { return };
            last = self.goes_on(thread).or(last);
        }
    }

    /// Threads that can run and are in the middle of a call.
    fn woken(&self) -> Vec<ThreadId> {
        let table = &self.platform.kernel.threads().table;
        let woken = table
            .iter()
            .filter(|thread| thread.state == State::Ready && thread.operation.is_some());
        woken.map(|thread| thread.id).collect()
    }

    /// A thread does its call again; which one that is, if it still has one when it runs.
    fn goes_on(&mut self, thread: ThreadId) -> Option<Operation> {
        let resumed = self.platform.kernel.threads().table[thread.index()].resumed;
        self.run(thread);
        let operation = self.platform.kernel.threads_mut().table[thread.index()]
            .operation
            .take()?;
        let event = Event::Call {
            thread,
            number: operation.number,
            arguments: operation.arguments,
            resumed,
        };
        let outcome = self.server.handle(&mut self.platform, event);
        let answer = self.settle(outcome, Some(operation));
        if answer != Answer::Blocked {
            self.late.insert(thread, answer);
        }
        Some(operation)
    }

    /// The disk moves by one completion, and the server looks.
    pub fn step(&mut self) -> bool {
        let moved = self.platform.step_disk();
        self.server.handle(&mut self.platform, Event::Poll);
        self.pump();
        moved
    }

    /// Time passes.
    pub fn pass(&mut self, ns: u64) {
        self.platform.kernel.hardware.now_ns += ns;
        self.platform.kernel.tick();
        self.server.handle(&mut self.platform, Event::Poll);
        self.pump();
    }

    /// Time passes, and one after the other of the threads that can has the processor.
    pub fn pass_to_others(&mut self) {
        let table = &self.platform.kernel.threads().table;
        let able = |index: &usize| {
            let thread = &table[*index];
            matches!(thread.state, State::Ready | State::Running) && thread.operation.is_none()
        };
        let next = (self.turn + 1..table.len()).chain(0..=self.turn).find(able);
        if let Some(index) = next {
            self.turn = index;
            self.spin(self.platform.kernel.threads().table[index].id, 500_000_000);
        } else {
            self.pass(1_000_000);
        }
    }

    /// A thread computes for so long.
    pub fn spin(&mut self, thread: ThreadId, ns: u64) {
        self.run(thread);
        self.pass(ns);
    }

    /// Waits until a parked call of a thread is over: lets the disk work, then time pass.
    pub fn wait_for(&mut self, thread: ThreadId) -> Answer {
        for _ in 0..RETRIES {
            self.pump();
            if let Some(answer) = self.over(thread) {
                return answer;
            }
            if !self.step() {
                self.pass_to_others();
            }
        }
        panic!(
            "{thread:?} waits for ever: {:?}",
            self.platform.kernel.threads().table[thread.index()].state
        );
    }

    /// Has a thread ask for power-off. The call is over only if that fails.
    pub fn ask_for_the_end(&mut self, thread: ThreadId, exit: u8) {
        let answer = self.start(thread, Call::SystemControl, &[CONTROL_POWER_OFF, exit.into()]);
        assert_eq!(answer, Answer::Blocked);
    }

    /// Has a thread power off: the machine stops when all is stable.
    pub fn power_off(&mut self, thread: ThreadId, exit: u8) {
        self.ask_for_the_end(thread, exit);
        for _ in 0..RETRIES {
            if self.platform.kernel.hardware.stop == Some(exit) {
                return;
            }
            self.step();
        }
        panic!("the machine does not stop");
    }

    /// The answer of a call that was parked, if that is over.
    pub fn over(&mut self, thread: ThreadId) -> Option<Answer> {
        self.parked.get(&thread)?;
        let answer = self.late.remove(&thread).or_else(|| self.answered(thread))?;
        self.parked.remove(&thread);
        Some(answer)
    }

    /// The answer that a parked thread was given without doing its call again.
    fn answered(&self, thread: ThreadId) -> Option<Answer> {
        let thread = &self.platform.kernel.threads().table[thread.index()];
        let goes_on = matches!(thread.state, State::Ready | State::Running) && thread.operation.is_none();
        goes_on.then(|| {
            assert_eq!(thread.context.rax, 0, "only good news comes that way");
            Answer::Done(Ok((thread.context.rdx, thread.context.rsi)))
        })
    }

    /// Lets everything that is under way come to rest.
    pub fn quiesce(&mut self) {
        for _ in 0..RETRIES {
            if !self.step() && self.server.store.is_idle() && !self.server.is_unfinished() {
                return;
            }
        }
        let parked: Vec<_> = self
            .platform
            .kernel
            .threads()
            .table
            .iter()
            .filter(|thread| matches!(thread.state, State::Parked(_)))
            .map(|thread| (thread.state, thread.operation))
            .collect();
        panic!(
            "parked: {parked:?} the store does not come to rest: {} free frames, {} under way, {:?}, {:?}",
            self.platform.frames_free(),
            self.platform.disk.under_way(),
            self.server.store.stats(),
            self.server.store_report()
        );
    }

    // ---- memory ---------------------------------------------------------------------------------

    /// Touches an address as user code does.
    pub fn touch(&mut self, thread: ThreadId, address: u64, touch: Touch) -> Result<kcore::Frame, Trouble> {
        for _ in 0..RETRIES {
            for _ in 0..RETRIES {
                if self.is_able(thread) {
                    break;
                }
                if !self.step() {
                    self.pass(1_000_000);
                }
            }
            if let Some(frame) = self.try_touch(thread, address, touch)? {
                return Ok(frame);
            }
        }
        panic!("the fault at {address:#x} is never resolved");
    }

    /// Whether a thread can run user code.
    pub fn is_able(&self, thread: ThreadId) -> bool {
        let thread = &self.platform.kernel.threads().table[thread.index()];
        matches!(thread.state, State::Ready | State::Running) && thread.operation.is_none()
    }

    /// One touch; none if the thread has to touch once more, perhaps behind a wait.
    pub fn try_touch(&mut self, thread: ThreadId, address: u64, touch: Touch) -> Result<Option<kcore::Frame>, Trouble> {
        self.run(thread);
        if let Ok(frame) = self.platform.kernel.hardware.translate(address, touch) {
            return Ok(Some(frame));
        }
        let before = self.position(thread);
        let access = match touch {
            Touch::Read => Access::Read,
            Touch::Write => Access::Write,
            Touch::Execute => Access::Execute,
        };
        if !(address / PAGE).is_multiple_of(3) {
            let kernel = &mut self.platform.kernel;
            kernel.prepare_frame(1);
        }
        // As the kernel does, which tries the fast path first.
        let fast = self.server.touch_further(&mut self.platform, thread, address, access);
        if fast.is_some() {
            return Ok(None);
        }
        let outcome = self.server.handle(
            &mut self.platform,
            Event::Fault {
                thread,
                address,
                access,
            },
        );
        match self.settle(outcome, None) {
            Answer::Elsewhere if self.position(thread) != before => Err(Trouble::Elsewhere),
            Answer::Elsewhere | Answer::Blocked => Ok(None),
            Answer::Gone => Err(Trouble::Ended),
            Answer::Done(result) => panic!("a fault returned {result:?}"),
        }
    }

    fn position(&self, thread: ThreadId) -> (u64, u64, SpaceId) {
        let thread = &self.platform.kernel.threads().table[thread.index()];
        (thread.context.rip, thread.context.rsp, thread.space)
    }

    /// Loads bytes.
    pub fn load(&mut self, thread: ThreadId, address: u64, into: &mut [u8]) -> Result<(), Trouble> {
        let mut at = address;
        let mut rest = into;
        while !rest.is_empty() {
            let offset = (at % PAGE) as usize;
            let length = rest.len().min(PAGE as usize - offset);
            let frame = self.touch(thread, at, Touch::Read)?;
            let (piece, more) = rest.split_at_mut(length);
            self.platform.frame_read(frame, offset, piece);
            rest = more;
            at += length as u64;
        }
        Ok(())
    }

    /// Stores bytes.
    pub fn store(&mut self, thread: ThreadId, address: u64, from: &[u8]) -> Result<(), Trouble> {
        let mut at = address;
        let mut rest = from;
        while !rest.is_empty() {
            let offset = (at % PAGE) as usize;
            let length = rest.len().min(PAGE as usize - offset);
            let frame = self.touch(thread, at, Touch::Write)?;
            self.platform.frame_write(frame, offset, &rest[..length]);
            rest = &rest[length..];
            at += length as u64;
        }
        Ok(())
    }

    /// Loads a word.
    pub fn word(&mut self, thread: ThreadId, address: u64) -> Result<u64, Trouble> {
        let mut bytes = [0; 8];
        self.load(thread, address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Stores a word.
    pub fn set_word(&mut self, thread: ThreadId, address: u64, word: u64) -> Result<(), Trouble> {
        self.store(thread, address, &word.to_le_bytes())
    }

    /// Loads words, as reports are made of.
    pub fn words<const N: usize>(&mut self, thread: ThreadId, address: u64) -> [u64; N] {
        core::array::from_fn(|place| {
            self.word(thread, address + 8 * place as u64)
                .expect("the buffer can be read")
        })
    }

    // ---- what users do often --------------------------------------------------------------------

    /// A new object of so many pages; its base and password.
    pub fn object(&mut self, thread: ThreadId, pages: u64) -> (u64, u64) {
        self.call(thread, Call::ObjCreate, &[pages * PAGE, 0])
            .expect("an object")
    }

    /// A new object that holds a Clist.
    pub fn clist(&mut self, thread: ThreadId, capabilities: &[(u64, u64)]) -> (u64, u64) {
        let object = self.object(thread, 1);
        self.clist_fill(thread, object.0, capabilities);
        object
    }

    /// Writes a Clist.
    pub fn clist_fill(&mut self, thread: ThreadId, base: u64, capabilities: &[(u64, u64)]) {
        let capabilities: Vec<_> = capabilities
            .iter()
            .map(|&(address, password)| Capability { address, password })
            .collect();
        self.store(thread, base, &clist_bytes(&capabilities))
            .expect("the Clist can be written");
    }

    /// A clone of the first program.
    pub fn image(&mut self, thread: ThreadId) -> u64 {
        self.call(thread, Call::ObjClone, &[FIRST_PROGRAM, PAGE, 0])
            .expect("a clone")
            .0
    }

    /// A child task in a clone of the first program: its first thread.
    pub fn task(&mut self, thread: ThreadId) -> ThreadId {
        self.task_with(thread, 0, 0)
    }

    /// The same with an APD (address of a description) and a limit.
    pub fn task_with(&mut self, thread: ThreadId, apd: u64, limit_pages: u64) -> ThreadId {
        let image = self.image(thread);
        let made = self.call(
            thread,
            Call::TaskCreate,
            &[image + ENTRY, image + PROGRAM_PAGES * PAGE, apd, limit_pages, 3],
        );
        ThreadId(made.expect("a task").0)
    }

    /// Base of the image that a thread runs in.
    pub fn image_of(&self, thread: ThreadId) -> u64 {
        self.platform.thread_context(thread).rip - ENTRY
    }

    /// Ends a thread by its own call.
    pub fn exit(&mut self, thread: ThreadId, status: u64) {
        assert_eq!(self.start(thread, Call::ThreadDelete, &[0, status]), Answer::Gone);
    }

    /// Waits for a child that has ended; its status.
    pub fn reap(&mut self, parent: ThreadId, child: ThreadId) -> Result<u64, Error> {
        self.call(parent, Call::ThreadWait, &[child.0, FOREVER, 0])
            .map(|(_, status)| status)
    }

    /// The last lines of the kernel's log, to tell why something failed.
    pub fn log(&self) -> Vec<String> {
        self.platform.kernel.hardware.log.iter().cloned().collect()
    }
}
