#![allow(unused)]
//! Attacks of issue 13 by calls of threads.

mod fake;

use abi::{
    Error, Rights,
    nucleus::{
        ANYONE, Call, EXCHANGE_START, EXCHANGE_STOP, GRANT, LINK, MAP, NO_TIMEOUTS, THREAD_FAULTED, THREAD_READY,
        THREAD_STOPPED, fpage, message_buffer, port_fpage, tag, timeouts,
    },
};
use fake::{Fake, walk};
use kcore::{
    Hardware, Kernel, Machine, SpaceId, ThreadId,
    bare::Bare,
    event::{Access, Event, Outcome},
    space::Tags,
    thread::{Operation, Resumed, State},
};
use std::{ops::Range, sync::atomic::Ordering::Relaxed};

const FRAMES: u32 = 4000;
/// Memory of σ₀ beyond the kernel's, in pages.
const MEMORY: (u32, u32) = (0x1000, 0x2000);
const FROM: u64 = (MEMORY.0 as u64) << 12;
const TO: u64 = 0x3000_0000_0000;
/// Log2 of the bytes of a large item: 64 pages.
const LARGE: u8 = 18;

type Answer = Result<(u64, u64), Error>;

struct Rig {
    kernel: Kernel<Fake, Bare>,
    /// A thread of the root program.
    boss: ThreadId,
    /// The space that was made last.
    last_space: u64,
}

impl Rig {
    fn new() -> Self {
        let mut kernel = Kernel::<Fake, Bare>::new(Fake::new(FRAMES, Tags::Absent), &[(1, FRAMES)]);
        let root = kernel.sigma0_create(1 << 20, &[MEMORY], &[], 1).expect("σ₀");
        kernel.nucleus_root(root).expect("the root's part");
        let boss = kernel
            .nucleus_thread(root, [0x40_0000, 0x50_0000, 0], 5)
            .expect("a thread");
        Self {
            kernel,
            boss,
            last_space: 0,
        }
    }

    /// Makes a thread the running one.
    fn run(&mut self, thread: ThreadId) -> u32 {
        let index = self.kernel.threads().find(thread).expect("the thread is there");
        self.kernel.yield_current();
        let mut others = Vec::new();
        while let Some(other) = self.kernel.schedule().filter(|&other| other != index) {
            let record = &self.kernel.threads().table[other as usize];
            others.push((record.id, record.resumed));
            self.kernel.thread_suspend(others[others.len() - 1].0);
        }
        for (other, resumed) in others {
            self.kernel.thread_wake(other, resumed);
        }
        assert_eq!(self.kernel.current(), Some(index), "{:?}", self.state(thread));
        index
    }

    /// One piece of an operation, which begins; the answer, unless it goes on or waits.
    fn begin(&mut self, thread: ThreadId, call: Call, arguments: [u64; 6]) -> Option<Answer> {
        self.run(thread);
        self.piece(thread, Operation::called(call as u64, arguments), Resumed::First)
    }

    /// Its next piece.
    fn go_on(&mut self, thread: ThreadId) -> Option<Answer> {
        let index = self.run(thread);
        let operation = self.kernel.take_operation(index).expect("it goes on");
        let resumed = self.kernel.thread(index).resumed;
        self.piece(thread, operation, resumed)
    }

    /// A thread faults: on the short path, or if that refuses on the general one.
    fn fault(&mut self, thread: ThreadId) {
        self.run(thread);
        let (address, access) = (0x1000, Access::Read);
        if self.kernel.fault_short(address, access).is_none() {
            let fault = Event::Fault {
                thread,
                address,
                access,
            };
            assert_eq!(self.kernel.nucleus_event(fault), Outcome::Gone);
        }
    }

    fn piece(&mut self, thread: ThreadId, operation: Operation, resumed: Resumed) -> Option<Answer> {
        let outcome = self.kernel.nucleus_event(operation.event(thread, resumed));
        self.kernel.check().expect("the kernel is consistent");
        match outcome {
            Outcome::Return(result) => Some(result),
            Outcome::Again => {
                let index = thread.index() as u32;
                let changed = self.kernel.take_operation(index);
                self.kernel.again(changed.or(Some(operation)));
                None
            }
            _ => None,
        }
    }

    /// Whether an operation of a thread goes on.
    fn goes_on(&self, thread: ThreadId) -> bool {
        let record = self
            .kernel
            .threads()
            .find(thread)
            .map(|index| self.kernel.thread(index));
        record.is_some_and(|record| record.state == State::Ready && record.operation.is_some())
    }

    /// All of an operation: its answer if it has one, and its pieces.
    fn all(&mut self, thread: ThreadId, call: Call, arguments: [u64; 6]) -> (Option<Answer>, usize) {
        let mut answer = self.begin(thread, call, arguments);
        for pieces in 1..5000 {
            if answer.is_some() || !self.goes_on(thread) {
                return (answer, pieces);
            }
            answer = self.go_on(thread);
        }
        panic!("{call:?} never ends");
    }

    fn done(&mut self, thread: ThreadId, call: Call, arguments: [u64; 6]) -> u64 {
        match self.all(thread, call, arguments).0 {
            Some(Ok((value, _))) => value,
            other => panic!("{call:?} {arguments:x?}: {other:?}"),
        }
    }

    /// A thread in a space of its own.
    fn other(&mut self) -> ThreadId {
        let space = self.done(self.boss, Call::SpaceCreate, [20_000, 0, 0, 0, 0, 0]);
        self.last_space = space;
        ThreadId(self.done(self.boss, Call::ThreadCreate, [space, 0x40_0000, 0x50_0000, 0, 3, 0]))
    }

    /// A thread beside the root program's.
    fn mate(&mut self) -> ThreadId {
        ThreadId(self.done(self.boss, Call::ThreadCreate, [0, 0x40_0000, 0x50_0000, 0, 3, 0]))
    }

    /// The words of a message that a thread sends.
    fn words(&mut self, thread: ThreadId, words: &[u64]) {
        let record = self.kernel.threads_mut().get_mut(thread);
        let space = record.space;
        let mut first = [0; 4];
        let count = words.len().min(4);
        first[..count].copy_from_slice(&words[..count]);
        let context = &mut record.context;
        [context.r12, context.r13, context.r14, context.r15] = first;
        let (frame, ..) = walk(&self.kernel, space, message_buffer(thread.0)).expect("a buffer");
        for (place, word) in self.kernel.hardware.table(frame).iter().zip(words) {
            place.store(*word, Relaxed);
        }
    }

    /// So many items of a size, one behind the other, as the words of a thread.
    fn items(&mut self, thread: ThreadId, count: u64, log2: u8) {
        self.items_of(thread, 0..count, log2);
    }

    /// The same of other pages.
    fn items_of(&mut self, thread: ThreadId, items: Range<u64>, log2: u8) {
        let words: Vec<u64> = items
            .flat_map(|item| [fpage(FROM + (item << log2), log2, Rights::RW), MAP])
            .collect();
        self.words(thread, &words);
    }

    fn state(&self, thread: ThreadId) -> State {
        self.kernel.threads().get(thread).state
    }
}

/// The largest window that an item lands in at its own address.
fn window() -> u64 {
    fpage(TO, 40, Rights::RWX)
}

fn send(to: ThreadId, items: u64, timeout_us: u32) -> [u64; 6] {
    [to.0, 0, tag(0, 0, items), timeouts(timeout_us, 0), 0, 0]
}

fn receive(timeouts: u64) -> [u64; 6] {
    [0, ANYONE, 0, timeouts, window(), 0]
}

/// A hostile space with a pager: its threads fill the page for which the pager answers, and give that page on.
struct Hostile {
    rig: Rig,
    space: u64,
    below: u64,
    faulting: ThreadId,
    sender: ThreadId,
    receiver: ThreadId,
    next: u64,
    events: usize,
}

const AT: u64 = 0x1000;
const MINE: u64 = 0x8000;

impl Hostile {
    fn new() -> Self {
        let mut rig = Rig::new();
        let faulting = rig.other();
        let space = rig.last_space;
        let boss = rig.boss;
        let mut make = || ThreadId(rig.done(boss, Call::ThreadCreate, [space, 0x40_0000, 0x50_0000, 0, 3, 0]));
        let (sender, receiver) = (make(), make());
        rig.done(boss, Call::SpaceControl, [space, boss.0, 0, 0, 0, 0]);
        let below = rig.done(sender, Call::SpaceCreate, [8000, 0, 0, 0, 0, 0]);
        let given = [
            fpage(FROM, 12, Rights::RWX),
            space,
            fpage(MINE, 12, Rights::RWX),
            MAP,
            0,
            0,
        ];
        rig.done(boss, Call::Map, given);
        Self {
            rig,
            space,
            below,
            faulting,
            sender,
            receiver,
            next: 0,
            events: 0,
        }
    }

    /// The page is replaced by a message within the space: as many events as are left.
    fn fill(&mut self) -> bool {
        let rig = &mut self.rig;
        if !rig.goes_on(self.sender) {
            let window = [0, self.sender.0, 0, NO_TIMEOUTS, fpage(AT, 12, Rights::RWX), 0];
            assert_eq!(rig.begin(self.receiver, Call::Ipc, window), None);
            self.events = self.events.saturating_sub(1);
            rig.words(self.sender, &[fpage(MINE, 12, Rights::RWX), MAP]);
            let to = [self.receiver.0, 0, tag(0, 0, 1), NO_TIMEOUTS, 0, 0];
            let answer = rig.begin(self.sender, Call::Ipc, to);
            self.events = self.events.saturating_sub(1);
            if answer.is_some() {
                return true;
            }
        }
        while self.events > 0 {
            self.events -= 1;
            if rig.go_on(self.sender).is_some() {
                return true;
            }
        }
        false
    }

    fn give_on(&mut self) {
        while self.events > 0 {
            self.events -= 1;
            self.next = self.next % 4000 + 1;
            let to = fpage(self.next << 12, 12, Rights::RWX);
            let _ = self.rig.all(
                self.sender,
                Call::Map,
                [fpage(AT, 12, Rights::RWX), self.below, to, MAP, 0, 0],
            );
        }
    }
}

/// A pager answers a fault with a page. It never ends: nobody else is served.
#[test]
fn a_pager_ends_its_answer() {
    let mut hostile = Hostile::new();
    let boss = hostile.rig.boss;
    assert_eq!(
        hostile.rig.begin(boss, Call::Ipc, [0, ANYONE, 0, NO_TIMEOUTS, 0, 0]),
        None
    );
    hostile.rig.fault(hostile.faulting);
    hostile.events = 24;
    assert!(hostile.fill());
    hostile.give_on();
    let item = [fpage(FROM + 0x1000, 12, Rights::RWX), MAP];
    hostile.rig.words(boss, &item);
    // A send timeout of zero, as pagers have it.
    let answer = [hostile.faulting.0, 0, tag(0, 0, 1), timeouts(0, 0), 0, 0];
    let mut ended = hostile.rig.begin(boss, Call::Ipc, answer);
    let mut pieces = 1;
    while ended.is_none() && pieces < 2000 {
        hostile.events = 24;
        if hostile.fill() {
            hostile.give_on();
        }
        ended = hostile.rig.go_on(boss);
        pieces += 1;
    }
    assert!(ended.is_some(), "the pager's answer does not end in {pieces} pieces");
}

/// The same of a call that gives a page to a space below.
#[test]
fn a_gift_to_a_space_below_ends() {
    let mut hostile = Hostile::new();
    let boss = hostile.rig.boss;
    hostile.events = 24;
    assert!(hostile.fill());
    hostile.give_on();
    let given = [
        fpage(FROM + 0x1000, 12, Rights::RWX),
        hostile.space,
        fpage(AT, 12, Rights::RWX),
        MAP,
        0,
        0,
    ];
    let mut ended = hostile.rig.begin(boss, Call::Map, given);
    let mut pieces = 1;
    while ended.is_none() && pieces < 2000 {
        hostile.events = 24;
        if hostile.fill() {
            hostile.give_on();
        }
        ended = hostile.rig.go_on(boss);
        pieces += 1;
    }
    assert!(ended.is_some(), "the gift does not end in {pieces} pieces");
}

/// A thread of a space that has one page, which it gave to another space many times.
fn given_on(rig: &mut Rig) -> (u64, ThreadId, ThreadId) {
    let boss = rig.boss;
    let giver = rig.other();
    let space = rig.last_space;
    let taker = rig.other();
    let page = fpage(0, 12, Rights::RWX);
    rig.done(boss, Call::Map, [fpage(FROM, 12, Rights::RWX), space, page, MAP, 0, 0]);
    for place in 1..40u64 {
        let window = [0, giver.0, 0, NO_TIMEOUTS, fpage(place << 12, 12, Rights::RWX), 0];
        assert_eq!(rig.begin(taker, Call::Ipc, window), None);
        rig.words(giver, &[page, MAP]);
        let sent = rig.begin(giver, Call::Ipc, [taker.0, 0, tag(0, 0, 1), NO_TIMEOUTS, 0, 0]);
        assert_eq!(sent, Some(Ok((0, 0))));
    }
    (space, giver, taker)
}

/// The pieces that a flush of the root's page takes then.
fn waits(rig: &mut Rig) -> usize {
    let boss = rig.boss;
    let (answer, pieces) = rig.all(boss, Call::Flush, [fpage(FROM, 12, Rights::RWX), 7, 0, 0, 0, 0]);
    assert_eq!(answer, Some(Ok((0, 0))));
    pieces
}

#[test]
fn nobody_waits_for_the_end_of_a_space_whose_caller_ended() {
    let mut rig = Rig::new();
    let (space, ..) = given_on(&mut rig);
    let mate = rig.mate();
    let mut answer = rig.begin(mate, Call::SpaceDelete, [space, 0, 0, 0, 0, 0]);
    while rig.kernel.mapping_open().is_none() && answer.is_none() {
        answer = rig.go_on(mate);
    }
    assert_eq!(answer, None);
    let boss = rig.boss;
    rig.done(boss, Call::ThreadDelete, [mate.0, 0, 0, 0, 0, 0]);
    let pieces = waits(&mut rig);
    assert!(pieces < 100, "{pieces} pieces");
}

#[test]
fn nobody_waits_for_the_flush_of_a_thread_that_got_other_registers() {
    let mut rig = Rig::new();
    let (_, giver, _) = given_on(&mut rig);
    assert_eq!(
        rig.begin(giver, Call::Flush, [fpage(0, 12, Rights::RWX), 7, 1, 0, 0, 0]),
        None
    );
    let boss = rig.boss;
    // Its registers stand in the buffer of the caller, as an earlier exchange has read them.
    rig.done(
        boss,
        Call::ThreadExchange,
        [giver.0, abi::nucleus::EXCHANGE_READ, 0, 0, 0, 0],
    );
    rig.done(
        boss,
        Call::ThreadExchange,
        [giver.0, abi::nucleus::EXCHANGE_WRITE, 0, 0, 0, 0],
    );
    assert!(!rig.goes_on(giver), "it goes on");
    let pieces = waits(&mut rig);
    assert!(pieces < 100, "{pieces} pieces");
}

/// A message's receiver does the work, and the sender ends.
#[test]
fn nobody_waits_for_what_a_message_cleared_whose_sender_ended() {
    for ends in 0..2 {
        let mut rig = Rig::new();
        let (space, giver, _) = given_on(&mut rig);
        let sender = rig.mate();
        rig.words(sender, &[fpage(FROM + 0x1000, 12, Rights::RWX), MAP]);
        let boss = rig.boss;
        let window = [0, sender.0, 0, timeouts(0, 1000), fpage(0, 12, Rights::RWX), 0];
        let sends = [giver.0, 0, tag(0, 0, 1), NO_TIMEOUTS, 0, 0];
        if ends == 0 {
            assert_eq!(rig.begin(sender, Call::Ipc, sends), None);
            assert_eq!(rig.begin(giver, Call::Ipc, window), None);
            assert!(rig.kernel.mapping_open().is_some());
            rig.done(boss, Call::ThreadDelete, [sender.0, 0, 0, 0, 0, 0]);
            let answer = rig.go_on(giver);
            println!("{answer:?}");
        } else {
            assert_eq!(rig.begin(giver, Call::Ipc, window), None);
            assert_eq!(rig.begin(sender, Call::Ipc, sends), None);
            assert!(rig.kernel.mapping_open().is_some());
            rig.done(boss, Call::ThreadDelete, [giver.0, 0, 0, 0, 0, 0]);
            let answer = rig.go_on(sender);
            println!("{answer:?}");
        }
        let pieces = waits(&mut rig);
        println!("ends {ends}: {pieces} pieces");
        assert!(pieces < 100, "{ends}: {pieces} pieces");
    }
}
