//! The calls of the bare µ-kernel, made as programs make them: spaces below spaces, their threads, faults and interrupts as messages.

mod fake;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::{
    Error, Rights,
    address::{PAGE, USER_END},
    nucleus::{
        ANYONE, BUFFER_REGISTERS, Call, EXCHANGE_READ, EXCHANGE_START, EXCHANGE_STOP, EXCHANGE_WRITE, GRANT,
        LABEL_EXCEPTION, LABEL_FAULT, LABEL_INTERRUPT, LINK, MAP, NO_TIMEOUTS, Registers, TAG_KERNEL, THREAD_FAULTED,
        THREAD_READY, THREAD_RECEIVING, THREAD_SENDING, THREAD_STOPPED, fpage, message_buffer, tag, timeouts,
    },
};
use fake::{Asked, Fake, Random, walk};
use kcore::{
    Hardware, Kernel, Machine, ThreadId,
    bare::Bare,
    event::{Access, Event, Outcome},
    space::Tags,
    thread::{Context, Operation, Resumed, State, VectorState},
};

const FRAMES: u32 = 600;
/// Memory of σ₀ beyond the kernel's, in pages.
const MEMORY: (u32, u32) = (0x400, 0x800);
const QUOTA: u64 = 6000;
const RIP: u64 = 0x40_0000;
const RSP: u64 = 0x50_0000;
/// Priority of the root's threads.
const HIGH: u8 = 5;

/// The outcome of a call for its thread.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Answer {
    Done(Result<(u64, u64), Error>),
    /// It waits, is gone, or goes on without a result.
    Waits,
}

fn exception(thread: ThreadId) -> Event {
    Event::Exception {
        thread,
        kind: 0,
        address: 0,
    }
}

struct Rig {
    kernel: Kernel<Fake, Bare>,
    /// A thread of the root program.
    boss: ThreadId,
}

impl Rig {
    fn new() -> Self {
        let mut kernel = Kernel::<Fake, Bare>::new(Fake::new(FRAMES, Tags::Absent), &[(1, FRAMES)]);
        let root = kernel.sigma0_create(1 << 20, &[MEMORY], &[], 1).expect("σ₀");
        kernel.nucleus_root(root).expect("the root's part");
        let boss = kernel.nucleus_thread(root, [RIP, RSP, 0], HIGH).expect("a thread");
        Self { kernel, boss }
    }

    /// Makes a thread the running one, with what it has to do again done.
    fn run(&mut self, thread: ThreadId) {
        let index = self.kernel.threads().find(thread).expect("the thread is there");
        if self.kernel.current() != Some(index) {
            fake::make_running(&mut self.kernel, thread);
        }
    }

    fn call(&mut self, thread: ThreadId, call: Call, arguments: &[u64]) -> Answer {
        self.run(thread);
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        let mut operation = Operation::called(call as u64, all);
        let mut resumed = Resumed::First;
        for _ in 0..1000 {
            match self.kernel.nucleus_event(operation.event(thread, resumed)) {
                Outcome::Return(result) => return Answer::Done(result),
                Outcome::Again => resumed = Resumed::Woken,
                _ => return Answer::Waits,
            }
            operation = self.kernel.take_operation(thread.index() as u32).unwrap_or(operation);
        }
        panic!("{call:?} never ends");
    }

    fn done(&mut self, thread: ThreadId, call: Call, arguments: &[u64]) -> (u64, u64) {
        match self.call(thread, call, arguments) {
            Answer::Done(Ok(values)) => values,
            other => panic!("{call:?} {arguments:x?}: {other:?}"),
        }
    }

    fn refused(&mut self, thread: ThreadId, call: Call, arguments: &[u64], error: Error) {
        assert_eq!(
            self.call(thread, call, arguments),
            Answer::Done(Err(error)),
            "{call:?} {arguments:x?}"
        );
    }

    /// A space below the root's: its identifier.
    fn space(&mut self, [pager, handler, supervisor]: [u64; 3]) -> u64 {
        self.done(self.boss, Call::SpaceCreate, &[QUOTA, pager, handler, supervisor])
            .0
    }

    fn thread(&mut self, maker: ThreadId, space: u64) -> ThreadId {
        ThreadId(self.done(maker, Call::ThreadCreate, &[space, RIP, RSP, 7, 3]).0)
    }

    fn context(&mut self, thread: ThreadId) -> &mut Context {
        &mut self.kernel.threads_mut().get_mut(thread).context
    }

    /// A thread's message buffer.
    fn buffer(&self, thread: ThreadId) -> &[AtomicU64; 512] {
        let space = self.kernel.threads().get(thread).space;
        let (frame, ..) = walk(&self.kernel, space, message_buffer(thread.0)).expect("a buffer");
        self.kernel.hardware.table(frame)
    }

    /// Registers that pass by a thread's message buffer.
    fn passed(&self, thread: ThreadId) -> Registers {
        let words = &self.buffer(thread)[BUFFER_REGISTERS..][..Registers::WORDS];
        Registers::from_words(core::array::from_fn(|place| words[place].load(Relaxed)))
    }

    fn pass(&self, thread: ThreadId, registers: &Registers) {
        for (place, word) in self.buffer(thread)[BUFFER_REGISTERS..].iter().zip(registers.to_words()) {
            place.store(word, Relaxed);
        }
    }

    fn send(&mut self, from: ThreadId, to: ThreadId, tag: u64, words: [u64; 4]) -> Answer {
        self.run(from);
        let context = self.context(from);
        [context.r12, context.r13, context.r14, context.r15] = words;
        self.call(from, Call::Ipc, &[to.0, 0, tag, NO_TIMEOUTS, 0])
    }

    fn receive(&mut self, thread: ThreadId, from: u64, window: u64) -> Answer {
        self.call(thread, Call::Ipc, &[0, from, 0, NO_TIMEOUTS, window])
    }

    /// The message that a thread was given: tag, sender, words.
    fn got(&mut self, thread: ThreadId) -> (u64, u64, [u64; 4]) {
        let context = self.context(thread);
        (
            context.rdx,
            context.rsi,
            [context.r12, context.r13, context.r14, context.r15],
        )
    }

    fn state(&self, thread: ThreadId) -> State {
        self.kernel.threads().get(thread).state
    }

    fn check(&mut self) {
        self.kernel.check().expect("the kernel is consistent");
    }
}

/// A thread may control threads of its own space, and of those below.
#[test]
fn threads_are_controlled_from_their_space_and_above() {
    let mut rig = Rig::new();
    let boss = rig.boss;
    let [one, two] = [(); 2].map(|()| rig.space([0; 3]));
    let [first, second] = [one, two].map(|space| rig.thread(boss, space));
    assert_eq!(rig.done(first, Call::ThreadSelf, &[]), (first.0, one));
    rig.done(first, Call::LogWrite, &[u64::from_le_bytes(*b"hello, w"), 99]);
    rig.done(first, Call::LogWrite, &[u64::from_le_bytes(*b"orld----"), 4]);
    assert_eq!(rig.kernel.hardware.logged, "hello, world");
    let context = rig.context(first);
    assert_eq!((context.rip, context.rsp, context.rdi), (RIP, RSP, 7));
    let own = rig.thread(first, 0);
    let same = rig.thread(first, one);
    for target in [second.0, boss.0] {
        rig.refused(first, Call::ThreadDelete, &[target], Error::Protection);
        rig.refused(first, Call::ThreadPriority, &[target, 1], Error::Protection);
        rig.refused(first, Call::ThreadExchange, &[target, EXCHANGE_STOP], Error::Protection);
    }
    rig.refused(first, Call::ThreadCreate, &[two, RIP, RSP, 0, 1], Error::Protection);
    rig.refused(first, Call::ThreadCreate, &[1 << 40, RIP, RSP, 0, 1], Error::BadAddress);
    rig.refused(first, Call::ThreadDelete, &[1 << 40], Error::NoSuchThread);
    for (rip, rsp) in [(USER_END, RSP), (USER_END - 1, USER_END + 1)] {
        rig.refused(first, Call::ThreadCreate, &[0, rip, rsp, 0, 1], Error::BadAddress);
    }
    rig.done(first, Call::ThreadCreate, &[0, USER_END - 1, USER_END, 0, 1]);
    // Priorities: at most one's own.
    rig.refused(first, Call::ThreadCreate, &[0, RIP, RSP, 0, 4], Error::Protection);
    rig.refused(
        boss,
        Call::ThreadPriority,
        &[first.0, u64::from(HIGH) + 1],
        Error::Protection,
    );
    rig.refused(boss, Call::ThreadPriority, &[first.0, 1 << 8], Error::BadArgument);
    rig.done(boss, Call::ThreadPriority, &[first.0, 4]);
    assert_eq!(rig.kernel.threads().get(first).standing.priority(), 4);
    rig.done(first, Call::ThreadPriority, &[0, 2]);
    assert_eq!(rig.kernel.threads().get(first).standing.priority(), 2);
    for target in [own, same] {
        rig.done(first, Call::ThreadDelete, &[target.0]);
        assert!(rig.kernel.threads().find(target).is_none());
    }
    assert_eq!(rig.call(first, Call::ThreadDelete, &[0]), Answer::Waits);
    assert!(rig.kernel.threads().find(first).is_none());
    rig.done(boss, Call::ThreadDelete, &[second.0]);
    // Only the root program has the machine.
    let third = rig.thread(boss, one);
    for (call, arguments) in [
        (Call::MachineStop, &[0][..]),
        (Call::InterruptBind, &[1, 0]),
        (Call::InterruptMessage, &[24]),
        (Call::KernelCheck, &[]),
    ] {
        rig.refused(third, call, arguments, Error::Protection);
    }
    rig.done(boss, Call::KernelCheck, &[]);
    rig.done(boss, Call::MachineStop, &[3]);
    assert_eq!(rig.kernel.hardware.stopped, Some(3));
    rig.check();
}

/// Another thread is stopped, read, written and started; the states are told.
#[test]
fn registers_pass_by_the_message_buffer() {
    let mut rig = Rig::new();
    let boss = rig.boss;
    let space = rig.space([boss.0, boss.0, 0]);
    let thread = rig.thread(boss, space);
    let exchange = |rig: &mut Rig, what: u64| rig.done(boss, Call::ThreadExchange, &[thread.0, what]).0;
    assert_eq!(exchange(&mut rig, 0), THREAD_READY);
    assert_eq!(exchange(&mut rig, EXCHANGE_STOP), THREAD_READY);
    assert_eq!(exchange(&mut rig, 0), THREAD_STOPPED);
    let words: [u64; Registers::WORDS] = core::array::from_fn(|place| 1000 + place as u64);
    let mut given = Registers::from_words(words);
    given.rflags = u64::MAX;
    rig.pass(boss, &given);
    exchange(&mut rig, EXCHANGE_WRITE);
    rig.pass(boss, &Registers::from_words([0; Registers::WORDS]));
    exchange(&mut rig, EXCHANGE_READ);
    // Arithmetic flags, TF and DF are the program's; interrupts stay on, and IOPL and NT stay off.
    given.rflags = 0xfd7 & !0x2 | 0x202;
    assert_eq!(rig.passed(boss), given);
    for (rip, rsp) in [(USER_END, RSP), (RIP, USER_END + 1)] {
        rig.pass(boss, &Registers { rip, rsp, ..given });
        rig.refused(
            boss,
            Call::ThreadExchange,
            &[thread.0, EXCHANGE_WRITE],
            Error::BadAddress,
        );
    }
    rig.refused(boss, Call::ThreadExchange, &[thread.0, 16], Error::BadArgument);
    rig.refused(boss, Call::ThreadExchange, &[boss.0, 0], Error::BadArgument);
    assert_eq!(exchange(&mut rig, EXCHANGE_START), THREAD_STOPPED);
    assert_eq!(exchange(&mut rig, EXCHANGE_START), THREAD_READY);
    // One that waits for a message does so again when it is started, and gives it up for new registers.
    assert_eq!(rig.receive(thread, boss.0, 0), Answer::Waits);
    assert_eq!(exchange(&mut rig, EXCHANGE_STOP), THREAD_RECEIVING);
    assert_eq!(exchange(&mut rig, EXCHANGE_START), THREAD_STOPPED);
    rig.run(thread);
    let operation = rig
        .kernel
        .take_operation(thread.index() as u32)
        .expect("it receives again");
    assert_eq!(rig.call(thread, Call::Ipc, &operation.arguments), Answer::Waits);
    rig.pass(boss, &given);
    rig.kernel.threads_mut().get_mut(thread).vectors = VectorState::SAVED;
    assert_eq!(exchange(&mut rig, EXCHANGE_WRITE), THREAD_RECEIVING);
    assert_eq!(exchange(&mut rig, 0), THREAD_READY);
    assert_eq!(rig.context(thread).rip, given.rip);
    assert_eq!(rig.kernel.threads().get(thread).vectors, VectorState::INITIAL);
    assert_eq!(rig.send(thread, boss, tag(9, 4, 0), [1; 4]), Answer::Waits);
    assert_eq!(exchange(&mut rig, EXCHANGE_STOP | EXCHANGE_START), THREAD_SENDING);
    // One in trouble waits on with them.
    rig.run(thread);
    rig.kernel.threads_mut().get_mut(thread).operation = None;
    rig.context(thread).vector = 6;
    assert_eq!(rig.kernel.nucleus_event(exception(thread)), Outcome::Gone);
    assert_eq!(exchange(&mut rig, EXCHANGE_WRITE), THREAD_FAULTED);
    assert_eq!(exchange(&mut rig, 0), THREAD_FAULTED);
    rig.check();
}

/// The address at which a page is touched.
const TOUCHED: u64 = 0x7000_1234;

/// Faults are messages to the pager, other exceptions to the handler; the answer lets the thread go on with its registers.
#[test]
fn faults_are_messages_and_answers_let_go_on() {
    let mut rig = Rig::new();
    let boss = rig.boss;
    let space = rig.space([boss.0, boss.0, 0]);
    let thread = rig.thread(boss, space);
    let fault = |thread| Event::Fault {
        thread,
        address: TOUCHED,
        access: Access::Write,
    };
    // The pager waits already, or receives later.
    for waits in [true, false] {
        if waits {
            assert_eq!(rig.receive(boss, ANYONE, 0), Answer::Waits);
        }
        rig.run(thread);
        rig.context(thread).rbx = 77;
        assert_eq!(rig.kernel.nucleus_event(fault(thread)), Outcome::Gone);
        if !waits {
            assert!(matches!(
                rig.receive(boss, thread.0, 0),
                Answer::Done(Ok(_)) | Answer::Waits
            ));
        }
        let words = [TOUCHED, u64::from(Rights::W.bits()), RIP, space];
        assert_eq!(rig.got(boss), (tag(LABEL_FAULT, 4, 0) | TAG_KERNEL, thread.0, words));
        // The page goes to where it was touched, whatever window.
        let page = fpage(u64::from(MEMORY.0) * PAGE, 12, Rights::RW);
        assert_eq!(
            rig.send(boss, thread, tag(1, 0, 1), [page, MAP, 0, 0]),
            Answer::Done(Ok((0, 0)))
        );
        let id = rig.kernel.threads().get(thread).space;
        let (frame, write, _) = walk(&rig.kernel, id, TOUCHED).expect("it is mapped");
        assert_eq!((frame.number(), write), (MEMORY.0, true));
        rig.run(thread);
        assert_eq!((rig.context(thread).rbx, rig.context(thread).rip), (77, RIP));
        rig.done(boss, Call::Flush, &[page, u64::from(Rights::RWX.bits()), 0]);
        assert!(walk(&rig.kernel, id, TOUCHED).is_none());
    }
    let context = rig.context(thread);
    (context.vector, context.error) = (13, 5);
    rig.run(thread);
    assert_eq!(rig.kernel.nucleus_event(exception(thread)), Outcome::Gone);
    assert_eq!(rig.done(boss, Call::ThreadExchange, &[thread.0, 0]).0, THREAD_FAULTED);
    rig.receive(boss, thread.0, 0);
    assert_eq!(
        rig.got(boss),
        (tag(LABEL_EXCEPTION, 4, 0) | TAG_KERNEL, thread.0, [13, 5, RIP, RSP])
    );
    // Nothing was touched, so it takes no page.
    let page = [fpage(u64::from(MEMORY.0) * PAGE, 12, Rights::RW), MAP, 0, 0];
    for (items, answer) in [(1, Err(Error::Protection)), (0, Ok((0, 0)))] {
        assert_eq!(rig.send(boss, thread, tag(0, 0, items), page), Answer::Done(answer));
    }
    assert_eq!(rig.state(thread), State::Ready);
    // Other helpers: a dead one, and none, end the thread; a root's thread the machine.
    rig.done(boss, Call::SpaceControl, &[space, 0, 0, 0]);
    for event in [fault as fn(ThreadId) -> Event, exception] {
        let doomed = rig.thread(boss, space);
        rig.run(doomed);
        assert_eq!(rig.kernel.nucleus_event(event(doomed)), Outcome::Gone);
        assert!(rig.kernel.threads().find(doomed).is_none());
    }
    assert_eq!(rig.kernel.hardware.stopped, None);
    rig.run(boss);
    assert_eq!(rig.kernel.nucleus_event(fault(boss)), Outcome::Gone);
    assert!(rig.kernel.hardware.stopped.is_some());
    rig.check();
}

/// A thread under a supervisor sends to it only, and one that was there before its naming as well.
#[test]
fn who_has_a_supervisor_sends_to_it_alone() {
    let mut rig = Rig::new();
    let boss = rig.boss;
    let space = rig.space([0, 0, boss.0]);
    let [one, two] = [(); 2].map(|()| rig.thread(boss, space));
    let to = |to: ThreadId| [to.0, 0, tag(0, 0, 0), timeouts(0, 0), 0];
    rig.refused(one, Call::Ipc, &to(two), Error::Protection);
    rig.refused(one, Call::Ipc, &to(boss), Error::TimedOut);
    rig.done(boss, Call::SpaceControl, &[space, 0, 0, 0]);
    rig.refused(one, Call::Ipc, &to(two), Error::TimedOut);
    rig.done(boss, Call::SpaceControl, &[space, 0, 0, two.0]);
    rig.refused(one, Call::Ipc, &to(two), Error::TimedOut);
    rig.refused(one, Call::Ipc, &to(boss), Error::Protection);
    rig.refused(one, Call::SpaceControl, &[space, 0, 0, 0], Error::Protection);
    rig.check();
}

/// An interrupt goes to its thread when that receives; until it receives again the next one waits, masked.
#[test]
fn interrupts_wait_until_they_are_received() {
    let mut rig = Rig::new();
    let boss = rig.boss;
    let [driver, other] = [(); 2].map(|()| rig.thread(boss, 0));
    let got = |number: u64| (tag(LABEL_INTERRUPT, 1, 0) | TAG_KERNEL, number + 1, [number, 0, 0, 0]);
    rig.refused(boss, Call::InterruptBind, &[32, driver.0], Error::BadArgument);
    rig.refused(boss, Call::InterruptBind, &[u64::MAX, driver.0], Error::BadArgument);
    rig.refused(boss, Call::InterruptBind, &[3, 1 << 40], Error::NoSuchThread);
    for number in [0, 5, 31] {
        rig.done(boss, Call::InterruptBind, &[number, driver.0]);
    }
    assert_eq!(rig.kernel.hardware.masked, !(1 | 1 << 5 | 1 << 31));
    for number in [22, 23, 32] {
        rig.refused(boss, Call::InterruptMessage, &[number], Error::BadArgument);
    }
    assert_eq!(rig.done(boss, Call::InterruptMessage, &[24]), (0xfee0_0000, 24));
    assert_eq!(rig.done(boss, Call::InterruptMessage, &[31]), (0xfee0_0000, 31));
    // Nobody's, and none at all.
    rig.kernel.interrupt(4);
    rig.kernel.interrupt(400);
    // It waits for that one, or for anyone.
    for (from, number) in [(6, 5), (ANYONE, 31), (1, 0)] {
        assert_eq!(rig.receive(driver, from, 0), Answer::Waits);
        // Another one stays for later, but for a thread that takes anyone's.
        if from != ANYONE {
            rig.kernel.interrupt(if number == 5 { 31 } else { 5 });
            assert_eq!(rig.state(driver), State::Receiving);
        }
        rig.kernel.hardware.mask_interrupt(number as usize);
        rig.kernel.interrupt(number as usize);
        rig.run(driver);
        assert_eq!(rig.got(driver), got(number));
        assert_ne!(rig.kernel.hardware.masked & 1 << number, 0);
        if from == 6 {
            // A waiting interrupt comes at once; to receive from one lets that one in again.
            rig.receive(driver, 32, 0);
            assert_eq!((rig.state(driver), rig.got(driver)), (State::Running, got(31)));
            assert_ne!(rig.kernel.hardware.masked & 1 << 5, 0);
            let nothing = [0, 6, 0, timeouts(0, 0), 0];
            rig.refused(driver, Call::Ipc, &nothing, Error::TimedOut);
            assert_eq!(rig.kernel.hardware.masked & 1 << 5, 0);
        }
    }
    rig.receive(driver, ANYONE, 0);
    assert_eq!((rig.state(driver), rig.got(driver)), (State::Running, got(5)));
    // A new thread has nothing of the old one's; the end of a thread masks.
    rig.kernel.interrupt(5);
    rig.done(boss, Call::InterruptBind, &[5, other.0]);
    let nothing = [0, ANYONE, 0, timeouts(0, 0), 0];
    rig.refused(driver, Call::Ipc, &nothing, Error::TimedOut);
    rig.refused(other, Call::Ipc, &nothing, Error::TimedOut);
    rig.kernel.interrupt(5);
    rig.receive(other, ANYONE, 0);
    assert_eq!((rig.state(other), rig.got(other)), (State::Running, got(5)));
    rig.done(boss, Call::InterruptBind, &[5, 0]);
    assert_eq!(rig.kernel.hardware.masked, !(1 | 1 << 31));
    rig.done(boss, Call::ThreadDelete, &[driver.0]);
    assert_eq!(rig.kernel.hardware.masked, u32::MAX);
    rig.check();
}

/// A space goes with its threads, those who wait for them are told, and the quota and the frames come back.
#[test]
fn a_space_goes_with_its_threads_and_those_below() {
    let mut rig = Rig::new();
    let boss = rig.boss;
    let free = |rig: &Rig| rig.kernel.frames().free();
    let mut before = 0;
    for round in 0..4 {
        let space = rig.space([boss.0, 0, 0]);
        let head = rig.thread(boss, space);
        let (below, _) = rig.done(head, Call::SpaceCreate, &[QUOTA / 4, head.0, 0, 0]);
        // More than go in one piece.
        let many: Vec<ThreadId> = (0..12).map(|_| rig.thread(head, space)).collect();
        let deep = rig.thread(head, below);
        let stranger = rig.thread(boss, 0);
        rig.refused(stranger, Call::SpaceDelete, &[below + (1 << 16)], Error::BadAddress);
        rig.refused(deep, Call::SpaceDelete, &[space], Error::Protection);
        rig.refused(deep, Call::SpaceDelete, &[below], Error::Protection);
        assert_eq!(rig.send(stranger, many[3], tag(0, 0, 0), [0; 4]), Answer::Waits);
        let waiting = rig.thread(boss, 0);
        assert_eq!(rig.receive(waiting, deep.0, 0), Answer::Waits);
        let page = fpage(u64::from(MEMORY.0 + 1) * PAGE, 12, Rights::RW);
        rig.done(boss, Call::Map, &[page, space, fpage(0x10_0000, 12, Rights::RW), MAP]);
        rig.done(boss, Call::SpaceDelete, &[space]);
        for gone in many.iter().chain([&head, &deep]) {
            assert!(rig.kernel.threads().find(*gone).is_none());
        }
        for (left, error) in [(stranger, Error::NoSuchThread), (waiting, Error::Deleted)] {
            rig.run(left);
            assert_eq!(rig.context(left).rax, error as u64);
            rig.done(boss, Call::ThreadDelete, &[left.0]);
        }
        for id in [space, below] {
            rig.refused(boss, Call::SpaceControl, &[id, 0, 0, 0], Error::BadAddress);
        }
        rig.check();
        if round > 0 {
            assert_eq!(free(&rig), before, "round {round}");
        }
        before = free(&rig);
    }
    // The quota is the root's again: it can be given as a whole, again and again.
    for _ in 0..300 {
        let space = rig.space([0; 3]);
        rig.done(boss, Call::SpaceDelete, &[space]);
    }
    rig.refused(boss, Call::SpaceCreate, &[1 << 32, 0, 0, 0], Error::BadArgument);
    rig.refused(boss, Call::SpaceCreate, &[1 << 30, 0, 0, 0], Error::LimitReached);
}

/// One piece of a deletion ends some threads only, and the last one forgets the translations of the message buffers before their frames go.
#[test]
fn a_space_of_many_threads_goes_in_pieces() {
    let mut rig = Rig::new();
    let boss = rig.boss;
    let id = rig.space([boss.0, 0, 0]);
    let threads: Vec<ThreadId> = (0..20).map(|_| rig.thread(boss, id)).collect();
    let root = rig
        .kernel
        .spaces()
        .get(rig.kernel.threads().get(threads[0]).space)
        .root()
        .number();
    rig.run(boss);
    let mut left = threads.len();
    while left > 0 {
        assert!(
            !rig.kernel.hardware.take_flushed().roots.contains(&root),
            "{left} threads are left"
        );
        let event = Event::Call {
            thread: boss,
            number: Call::SpaceDelete as u64,
            arguments: [id, 0, 0, 0, 0, 0],
            resumed: Resumed::First,
        };
        assert_eq!(rig.kernel.nucleus_event(event), Outcome::Again);
        let now = threads
            .iter()
            .filter(|thread| rig.kernel.threads().find(**thread).is_some())
            .count();
        assert!(now < left && now + 8 >= left, "{left} threads, then {now}");
        left = now;
    }
    rig.done(boss, Call::SpaceDelete, &[id]);
    assert!(rig.kernel.hardware.take_flushed().roots.contains(&root));
    rig.check();
}

/// The registers of a thread that runs on another processor are in that processor: it is stopped first.
#[test]
fn registers_are_exchanged_with_a_thread_that_has_been_stopped() {
    let mut rig = Rig::new();
    let boss = rig.boss;
    let id = rig.space([boss.0, 0, 0]);
    let thread = rig.thread(boss, id);
    rig.run(boss);
    let kernel = &mut rig.kernel;
    kernel.set_processors(3);
    kernel.change_over(1);
    kernel.hardware.here = 1;
    let index = kernel.schedule().expect("a thread is ready");
    assert_eq!(kernel.id_of(index), thread);
    kernel.enter_space(kernel.threads().table[index as usize].space);
    kernel.change_over(0);
    kernel.hardware.here = 0;
    kernel.hardware.asked.clear();
    rig.done(boss, Call::ThreadExchange, &[thread.0, EXCHANGE_READ]);
    assert!(
        rig.kernel.hardware.asked.contains(&Asked::Stop(1)),
        "{:?}",
        rig.kernel.hardware.asked
    );
}

/// A thread costs its space; a thread it cannot pay for is not made.
#[test]
fn a_space_pays_for_its_threads() {
    let mut rig = Rig::new();
    let boss = rig.boss;
    let (space, _) = rig.done(boss, Call::SpaceCreate, &[1500, 0, 0, 0]);
    let mut made = Vec::new();
    loop {
        match rig.call(boss, Call::ThreadCreate, &[space, RIP, RSP, 0, 3]) {
            Answer::Done(Ok((thread, buffer))) => {
                assert_eq!(buffer, message_buffer(thread));
                made.push(ThreadId(thread));
            }
            other => {
                assert_eq!(other, Answer::Done(Err(Error::LimitReached)));
                break;
            }
        }
        rig.check();
    }
    assert!((2..20).contains(&made.len()), "{}", made.len());
    for _ in 0..3 {
        rig.done(boss, Call::ThreadDelete, &[made.pop().unwrap().0]);
        made.push(rig.thread(boss, space));
        rig.refused(boss, Call::ThreadCreate, &[space, RIP, RSP, 0, 3], Error::LimitReached);
        rig.check();
    }
}

/// Long messages pass by the buffers, items by mapping; a forbidden item is refused.
#[test]
fn messages_carry_words_and_pages() {
    let mut rig = Rig::new();
    let boss = rig.boss;
    let space = rig.space([0; 3]);
    let receiver = rig.thread(boss, space);
    let id = rig.kernel.threads().get(receiver).space;
    for words in [0, 4, 5, 30, 64] {
        for (place, word) in rig.buffer(boss).iter().enumerate().take(80) {
            word.store(500 + place as u64, Relaxed);
        }
        rig.buffer(receiver).iter().for_each(|word| word.store(0, Relaxed));
        assert_eq!(rig.receive(receiver, boss.0, 0), Answer::Waits);
        assert_eq!(
            rig.send(boss, receiver, tag(3, words, 0), [1, 2, 3, 4]),
            Answer::Done(Ok((0, 0)))
        );
        assert_eq!(rig.got(receiver), (tag(3, words, 0), boss.0, [1, 2, 3, 4]));
        for (place, word) in rig.buffer(receiver).iter().enumerate().take(80) {
            let passed = (4..words as usize).contains(&place);
            assert_eq!(
                word.load(Relaxed),
                if passed { 500 + place as u64 } else { 0 },
                "{words} {place}"
            );
        }
        rig.run(receiver);
    }
    // A sender that had to wait goes on when its message is taken.
    let sender = rig.thread(boss, space);
    assert_eq!(rig.send(sender, receiver, tag(2, 4, 0), [9; 4]), Answer::Waits);
    rig.receive(receiver, ANYONE, 0);
    assert_eq!(rig.got(receiver), (tag(2, 4, 0), sender.0, [9; 4]));
    assert_eq!((rig.state(sender), rig.context(sender).rax), (State::Ready, 0));
    rig.done(boss, Call::ThreadDelete, &[sender.0]);
    let bad = [
        tag(0, 65, 0),
        tag(0, 0, 9),
        tag(0, 63, 1),
        tag(0, 0, 0) | TAG_KERNEL,
        1 << 7,
        1 << 12,
    ];
    for tag in bad {
        assert_eq!(
            rig.send(boss, receiver, tag, [0; 4]),
            Answer::Done(Err(Error::BadArgument)),
            "{tag:x}"
        );
    }
    let page = |page: u32| fpage(u64::from(MEMORY.0 + page) * PAGE, 12, Rights::RW);
    let slot = fpage(u64::from(MEMORY.0) * PAGE, 21, Rights::RW);
    let [small, large] = [(0x10_0000, 12), (0x20_0000, 21)].map(|(at, size)| (at, fpage(at, size, Rights::RWX)));
    for (what, how, window, given) in [
        (page(3), MAP, small.1, Ok(Some(small.0))),
        (page(4), GRANT, large.1, Ok(Some(large.0 + 4 * PAGE))),
        (
            slot,
            LINK,
            fpage(u64::from(MEMORY.0) * PAGE, 21, Rights::RWX),
            Ok(Some(u64::from(MEMORY.0) * PAGE)),
        ),
        (page(5), 3, small.1, Err(Error::BadArgument)),
        (page(5) | 1 << 11, MAP, small.1, Err(Error::BadArgument)),
        (page(5), MAP, 0, Err(Error::Protection)),
        (
            page(5),
            MAP,
            fpage(message_buffer(0), 12, Rights::RW),
            Err(Error::Protection),
        ),
    ] {
        assert_eq!(rig.receive(receiver, ANYONE, window), Answer::Waits);
        let sent = rig.send(boss, receiver, tag(0, 0, 1), [what, how, 0, 0]);
        assert_eq!(sent, Answer::Done(given.map(|_| (0, 0))), "{what:x} {how}");
        if let Ok(Some(at)) = given {
            assert!(walk(&rig.kernel, id, at).is_some(), "{what:x} {how}");
        }
        if given.is_err() {
            assert_eq!(rig.send(boss, receiver, tag(0, 0, 0), [0; 4]), Answer::Done(Ok((0, 0))));
        }
        rig.run(receiver);
        rig.check();
    }
}

/// A random call of thread `me`.
fn random_call(rig: &mut Rig, random: &mut Random, other: ThreadId, space: u64) -> (Call, Vec<u64>) {
    let page = fpage((u64::from(MEMORY.0) + random.below(64) as u64) * PAGE, 12, Rights::RW);
    let window = fpage(0x1000_0000, 24, Rights::RWX);
    let wait = [NO_TIMEOUTS, timeouts(0, 0), timeouts(20, 20)][random.below(3)];
    let mut below = |bound: usize| random.below(bound) as u64;
    match below(14) {
        0 => (
            Call::SpaceCreate,
            vec![800 + below(800), other.0, rig.boss.0, below(2) * other.0],
        ),
        1 if below(4) == 0 => (Call::SpaceDelete, vec![space]),
        2 | 3 => (Call::ThreadCreate, vec![below(2) * space, RIP, RSP, 1, below(4)]),
        4 if other != rig.boss => (Call::ThreadDelete, vec![other.0]),
        5 => (Call::ThreadExchange, vec![other.0, below(16)]),
        6 => (Call::ThreadPriority, vec![other.0, below(5)]),
        7 => (Call::Map, vec![page, space, window, below(3)]),
        8 => (Call::Flush, vec![page, below(8), below(2)]),
        9 => (Call::InterruptBind, vec![below(32), other.0]),
        10 => (Call::SpaceControl, vec![space, other.0, other.0, 0]),
        11 => {
            rig.kernel.interrupt_message(below(32) as usize);
            rig.kernel.hardware.now_ns += 5000;
            rig.kernel.tick();
            (Call::Ipc, vec![0, ANYONE, 0, wait, window])
        }
        12 => (Call::Ipc, vec![other.0, 0, tag(0, below(20), below(2)), wait, window]),
        _ => (Call::Ipc, vec![other.0, other.0, tag(1, 4, 0), wait, window]),
    }
}

/// Does all operations that wait to be done again.
fn redo(rig: &mut Rig, threads: &[ThreadId]) {
    for &thread in threads {
        let Some(index) = rig.kernel.threads().find(thread) else {
            continue;
        };
        let record = &mut rig.kernel.threads_mut().table[index as usize];
        if record.state == State::Ready
            && let Some(operation) = record.operation.take()
        {
            let resumed = record.resumed;
            rig.run(thread);
            rig.kernel.nucleus_event(Event::Call {
                thread,
                number: operation.number,
                arguments: operation.arguments,
                resumed,
            });
        }
    }
}

/// Random calls of random threads: the kernel stays consistent.
#[test]
fn random_calls_leave_the_kernel_whole() {
    for seed in 0..40 {
        let mut rig = Rig::new();
        let mut random = Random(seed);
        let boss = rig.boss;
        let mut spaces = vec![rig.space([boss.0, boss.0, 0])];
        let mut threads = vec![rig.thread(boss, spaces[0])];
        for step in 0..300 {
            threads.retain(|&thread| thread != boss && rig.kernel.threads().find(thread).is_some());
            threads.push(boss);
            let is_able = |thread: &ThreadId| {
                let record = rig.kernel.threads().get(*thread);
                matches!(record.state, State::Ready | State::Running) && record.operation.is_none()
            };
            let able: Vec<_> = threads.iter().copied().filter(is_able).collect();
            if able.is_empty() {
                // The root's thread gives its wait up.
                rig.kernel.thread_suspend(boss);
                rig.kernel.threads_mut().get_mut(boss).operation = None;
                rig.kernel.thread_wake(boss, Resumed::First);
                continue;
            }
            let [me, other] = [&able, &threads].map(|of| of[random.below(of.len())]);
            let space = spaces[random.below(spaces.len())];
            let (call, arguments) = random_call(&mut rig, &mut random, other, space);
            if rig.kernel.threads().find(me).is_none() || !matches!(rig.state(me), State::Ready | State::Running) {
                continue;
            }
            rig.run(me);
            if me != boss && random.below(12) == 0 {
                let fault = Event::Fault {
                    thread: me,
                    address: TOUCHED,
                    access: Access::Read,
                };
                rig.kernel.nucleus_event([fault, exception(me)][random.below(2)]);
            } else {
                let context = rig.context(me);
                (context.r12, context.r13) = (fpage(u64::from(MEMORY.0) * PAGE, 13, Rights::RW), MAP);
                if let Answer::Done(Ok((made, _))) = rig.call(me, call, &arguments) {
                    match call {
                        Call::SpaceCreate => spaces.push(made),
                        Call::ThreadCreate => threads.push(ThreadId(made)),
                        _ => {}
                    }
                }
            }
            redo(&mut rig, &threads);
            if let Err(what) = rig.kernel.check() {
                panic!("seed {seed}, step {step}, {call:?} {arguments:x?} of {me:?}: {what}");
            }
        }
    }
}
