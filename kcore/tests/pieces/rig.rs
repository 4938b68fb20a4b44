//! A bare machine whose threads' operations are done piece by piece.

use abi::{
    Error, Rights,
    nucleus::{ANYONE, Call, MAP, fpage, tag, timeouts},
};
use kcore::{
    Kernel, ThreadId,
    bare::Bare,
    event::{Access, Event, Outcome},
    space::Tags,
    thread::{Operation, Resumed, State},
};
use std::ops::Range;

use crate::fake::{self, Fake, make_running, walk};

pub const FRAMES: u32 = 4000;
/// Memory of σ₀ beyond the kernel's, in pages.
pub const MEMORY: (u32, u32) = (0x1000, 0x2000);
pub const FROM: u64 = (MEMORY.0 as u64) << 12;
pub const TO: u64 = 0x3000_0000_0000;
/// Log2 of the bytes of a large item: 64 pages.
pub const LARGE: u8 = 18;

pub type Answer = Result<(u64, u64), Error>;

pub struct Rig {
    pub kernel: Kernel<Fake, Bare>,
    /// A thread of the root program.
    pub boss: ThreadId,
    /// The space that was made last.
    pub last_space: u64,
}

impl Rig {
    pub fn new() -> Self {
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
    pub fn run(&mut self, thread: ThreadId) -> u32 {
        make_running(&mut self.kernel, thread)
    }

    /// One piece of an operation, which begins; the answer, unless it goes on or waits.
    pub fn begin(&mut self, thread: ThreadId, call: Call, arguments: [u64; 6]) -> Option<Answer> {
        self.run(thread);
        self.piece(thread, Operation::called(call as u64, arguments), Resumed::First)
    }

    /// Its next piece.
    pub fn go_on(&mut self, thread: ThreadId) -> Option<Answer> {
        let index = self.run(thread);
        let operation = self.kernel.take_operation(index).expect("it goes on");
        let resumed = self.kernel.thread(index).resumed;
        self.piece(thread, operation, resumed)
    }

    /// A thread faults: on the short path, or if that refuses on the general one.
    pub fn fault(&mut self, thread: ThreadId) {
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

    pub fn piece(&mut self, thread: ThreadId, operation: Operation, resumed: Resumed) -> Option<Answer> {
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
    pub fn goes_on(&self, thread: ThreadId) -> bool {
        let record = self
            .kernel
            .threads()
            .find(thread)
            .map(|index| self.kernel.thread(index));
        record.is_some_and(|record| record.state == State::Ready && record.operation.is_some())
    }

    /// All of an operation: its answer if it has one, and its pieces.
    pub fn all(&mut self, thread: ThreadId, call: Call, arguments: [u64; 6]) -> (Option<Answer>, usize) {
        let mut answer = self.begin(thread, call, arguments);
        for pieces in 1..5000 {
            if answer.is_some() || !self.goes_on(thread) {
                return (answer, pieces);
            }
            answer = self.go_on(thread);
        }
        panic!("{call:?} never ends");
    }

    pub fn done(&mut self, thread: ThreadId, call: Call, arguments: [u64; 6]) -> u64 {
        match self.all(thread, call, arguments).0 {
            Some(Ok((value, _))) => value,
            other => panic!("{call:?} {arguments:x?}: {other:?}"),
        }
    }

    /// A thread in a space of its own.
    pub fn other(&mut self) -> ThreadId {
        let space = self.done(self.boss, Call::SpaceCreate, [20_000, 0, 0, 0, 0, 0]);
        self.last_space = space;
        ThreadId(self.done(self.boss, Call::ThreadCreate, [space, 0x40_0000, 0x50_0000, 0, 3, 0]))
    }

    /// A thread beside the root program's.
    pub fn mate(&mut self) -> ThreadId {
        ThreadId(self.done(self.boss, Call::ThreadCreate, [0, 0x40_0000, 0x50_0000, 0, 3, 0]))
    }

    /// The words of a message that a thread sends.
    pub fn words(&mut self, thread: ThreadId, words: &[u64]) {
        fake::set_words(&mut self.kernel, thread, words);
    }

    /// So many items of a size, one behind the other, as the words of a thread.
    pub fn items(&mut self, thread: ThreadId, count: u64, log2: u8) {
        self.items_of(thread, 0..count, log2);
    }

    /// The same of other pages.
    pub fn items_of(&mut self, thread: ThreadId, items: Range<u64>, log2: u8) {
        let words: Vec<u64> = items
            .flat_map(|item| [fpage(FROM + (item << log2), log2, Rights::RW), MAP])
            .collect();
        self.words(thread, &words);
    }

    pub fn state(&self, thread: ThreadId) -> State {
        self.kernel.threads().get(thread).state
    }

    /// Pages that a thread has in its window.
    pub fn pages(&self, thread: ThreadId) -> usize {
        let space = self.kernel.threads().get(thread).space;
        let has = |page: &u64| walk(&self.kernel, space, TO + FROM + (page << 12)).is_some();
        (0..1024).filter(has).count()
    }
}

/// The largest window that an item lands in at its own address.
pub fn window() -> u64 {
    fpage(TO, 40, Rights::RWX)
}

pub fn send(to: ThreadId, items: u64, timeout_us: u32) -> [u64; 6] {
    [to.0, 0, tag(0, 0, items), timeouts(timeout_us, 0), 0, 0]
}

pub fn receive(timeouts: u64) -> [u64; 6] {
    [0, ANYONE, 0, timeouts, window(), 0]
}
