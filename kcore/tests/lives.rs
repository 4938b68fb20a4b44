//! Whole lives on two machines: one takes the fast paths wherever they lead, the other the general way alone.
mod fake;
mod ways;

use std::ops::{Deref, DerefMut};

use std::sync::atomic::Ordering::Relaxed;

use abi::{
    Rights,
    nucleus::{ANYONE, Call, EXCHANGE_START, EXCHANGE_STOP, EXCHANGE_WRITE, GRANT, LINK, MAP, NEVER, fpage, tag},
};
use fake::Random;
use kcore::{
    Hardware, SpaceId, ThreadId,
    event::{Access, Event},
    paging,
    thread::{Operation, State, Thread},
};
use ways::{FIRST, Machine, PLACE, Short, WAITS, Way, picture};

struct World {
    machine: Machine,
    spaces: Vec<u64>,
    threads: Vec<u64>,
    calls: u64,
}

impl Deref for World {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.machine
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }
}

impl World {
    fn new(way: Way, large: bool, frames: u32, quota: u64) -> Self {
        let (machine, root, first) = Machine::new(way, large, frames);
        let mut world = Self {
            machine,
            spaces: vec![0x10000 | u64::from(root.0)],
            threads: vec![first],
            calls: 0,
        };
        let pager = world.value(Call::ThreadCreate, [0, 0x40_0000, 0x7e_0000, 0, 5, 0]);
        world.threads.push(pager);
        for _ in 0..3 {
            let space = world.value(Call::SpaceCreate, [quota + 900, pager, pager, 0, 0, 0]);
            world.spaces.push(space);
            for priority in [3, 5] {
                let thread = world.value(Call::ThreadCreate, [space, 0x40_0000, 0x7d_0000, 0, priority, 0]);
                world.threads.push(thread);
            }
        }
        world.call(Call::InterruptBind, [4, pager, 0, 0, 0, 0]);
        world
    }

    fn exception(&mut self) {
        let thread = self.kernel.current_thread_mut().expect("it runs").id;
        let outcome = self.kernel.nucleus_event(Event::Exception {
            thread,
            kind: 13,
            address: 0,
        });
        self.settle(outcome, Operation::raised(0, 0));
    }

    fn interrupt(&mut self, number: usize) {
        if self.kernel.hardware.masked >> number & 1 != 0 {
            return;
        }
        // The kernel masks it when it comes.
        self.kernel.hardware.masked |= 1 << number;
        self.machine.interrupt(number);
    }

    fn buffer(&self, index: usize) -> Option<&[std::sync::atomic::AtomicU64; 512]> {
        let thread = &self.kernel.threads().table[index];
        if thread.state == State::Free {
            return None;
        }
        let (level, entry) = self.entry(thread.space, abi::nucleus::message_buffer(thread.id.0));
        (level == 0 && paging::is_present(entry)).then(|| self.kernel.hardware.table(paging::frame_of(entry)))
    }

    fn is_of_root(&self, thread: u64) -> bool {
        let space = self.kernel.threads().get(ThreadId(thread)).space;
        u64::from(space.0) == self.spaces[0] & 0xffff
    }

    /// Puts these words into the registers of the running thread, and again and again into its buffer.
    fn writes(&mut self, words: [u64; 4]) {
        let Some(index) = self.kernel.current() else { return };
        let context = &mut self.kernel.threads_mut().table[index as usize].context;
        [context.r12, context.r13, context.r14, context.r15] = words;
        for (at, word) in self
            .buffer(index as usize)
            .into_iter()
            .flatten()
            .enumerate()
            .skip(4)
            .take(70)
        {
            word.store(words[at % 4], Relaxed);
        }
    }

    /// The space or thread that the thread has just created, or 0.
    fn made(&self, thread: Option<u64>, step: Step) -> u64 {
        let Step::Call(Call::SpaceCreate | Call::ThreadCreate, _) = step else {
            return 0;
        };
        let index = thread.and_then(|thread| self.kernel.threads().find(ThreadId(thread)));
        let context = index.map(|index| &self.kernel.threads().table[index as usize].context);
        context.map_or(0, |context| if context.rax == 0 { context.rdx } else { 0 })
    }

    /// Does one step, which is the same on both machines.
    fn takes(&mut self, step: Step) {
        match step {
            Step::Call(call, arguments) => {
                self.calls += 1;
                self.call(call, arguments);
            }
            Step::Fault(address, access) => {
                self.calls += 1;
                self.fault(address, access);
            }
            Step::Exception => self.exception(),
            Step::Interrupt(number) => self.interrupt(number),
            Step::Pass(us) => {
                self.kernel.hardware.now_ns += us * 1000;
                if self.kernel.tick() || self.kernel.should_preempt() {
                    self.kernel.yield_current();
                }
            }
        }
    }

    fn look(&self) -> String {
        use std::fmt::Write;
        let mut out = String::new();
        for (index, thread) in self.kernel.threads().table.iter().enumerate().take(PLACES) {
            if thread.state == State::Free {
                continue;
            }
            writeln!(
                out,
                "thread {index} {:x} slow {} {:x?} deadline {:?}",
                thread.id.0,
                thread.slow & !TAKES,
                picture(thread),
                thread.deadline()
            )
            .unwrap();
            if let Some(buffer) = self.buffer(index) {
                let sum = buffer.iter().take(80).fold(0u64, |sum, word| {
                    sum.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word.load(Relaxed)
                });
                writeln!(out, "  buffer {sum:x}").unwrap();
            }
        }
        for &id in &self.spaces {
            let space = SpaceId(id as u32 & 0xffff);
            let Some(quota) = self.kernel.free_space_quota(space) else {
                continue;
            };
            writeln!(out, "space {id:x} {quota:?}").unwrap();
            for base in BASES {
                for page in 0..9 {
                    let address = base + (page << 12);
                    let (level, entry) = self.entry(space, address);
                    if paging::is_present(entry) {
                        writeln!(out, "  {address:x}: {level} {entry:x}").unwrap();
                    }
                }
            }
        }
        let hardware = &self.kernel.hardware;
        writeln!(
            out,
            "nodes {} frames {} masked {:x} stopped {:?} log {:?}",
            self.kernel.mapping_nodes(),
            self.kernel.frames().free(),
            hardware.masked,
            hardware.stopped,
            hardware.logged
        )
        .unwrap();
        out
    }
}

/// The tests look at so many places of the thread table.
const PLACES: usize = 48;
/// The number of the interrupt.
const INTERRUPT: usize = 4;
/// In a thread's `slow`: it takes items of a message. A fast path may need fewer pieces for that.
const TAKES: u32 = 32;
const BASES: [u64; 6] = [
    (FIRST as u64) << 12,
    ((FIRST + 504) as u64) << 12,
    ((FIRST + 512) as u64) << 12,
    PLACE,
    PLACE + 0x1f_c000,
    PLACE + 0x20_0000,
];

fn rights(random: &mut Random) -> Rights {
    [
        Rights::R,
        Rights::RW,
        Rights::RX,
        Rights::RWX,
        Rights::RWX,
        Rights::RWX,
        Rights::RWX,
    ][random.below(7)]
}

fn memory(random: &mut Random, from_root: bool) -> u64 {
    let base = match random.below(12) {
        0..4 => BASES[random.below(6)],
        _ if from_root => BASES[[0, 0, 0, 1, 2][random.below(5)]],
        _ => BASES[[3, 3, 3, 4, 5][random.below(5)]],
    };
    let base = if random.below(120) == 0 {
        base | 1 << (47 + random.below(16))
    } else {
        base
    };
    let rights = rights(random);
    let page = base + ((random.below(8) as u64) << 12);
    match random.below(16) {
        0 => fpage(base >> 21 << 21, 21, rights),
        1 | 2 => fpage(page >> 13 << 13, 13, rights),
        3 | 4 => fpage(page >> 14 << 14, 14, rights),
        5 | 6 => fpage(base >> 15 << 15, 15, rights),
        7 => fpage(base >> 16 << 16, 16, rights),
        8 => fpage(base >> 17 << 17, 17, rights),
        9 if random.below(6) == 0 => fpage(0, 47, rights),
        9 if random.below(6) == 0 => random.next(),
        _ => fpage(page, 12, rights),
    }
}

/// Chooses the next step, which is the same on both machines.
#[derive(Debug, Clone, Copy)]
enum Step {
    Call(Call, [u64; 6]),
    Fault(u64, Access),
    Exception,
    Interrupt(usize),
    Pass(u64),
}

/// Chooses what the running thread does.
struct Chooser<'a> {
    random: &'a mut Random,
    world: &'a World,
    quota: u64,
}

impl Chooser<'_> {
    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound)
    }

    fn any<T: Copy, const N: usize>(&mut self, of: [T; N]) -> T {
        of[self.random.below(N)]
    }

    /// Mostly one of the youngest sixteen.
    fn one_of(&mut self, all: &[u64]) -> u64 {
        match self.below(30) {
            0 => 0,
            1 => self.random.next(),
            2 => all[self.below(all.len())],
            _ => all[all.len() - 1 - self.below(all.len().min(16))],
        }
    }

    fn thread(&mut self) -> u64 {
        let world = self.world;
        self.one_of(&world.threads)
    }

    /// Mostly a space that exists.
    fn space(&mut self) -> u64 {
        let (kernel, spaces) = (&self.world.kernel, &self.world.spaces);
        let is_there = |&&id: &&u64| kernel.free_space_quota(SpaceId(id as u32 & 0xffff)).is_some();
        let all: Vec<u64> = spaces[1..].iter().filter(is_there).copied().collect();
        if all.is_empty() || self.below(8) == 0 {
            return self.one_of(spaces);
        }
        all[self.below(all.len())]
    }

    /// Mostly a thread for which `wanted` holds.
    fn of_those(&mut self, wanted: fn(&Thread) -> bool) -> u64 {
        let table = self.world.kernel.threads().table.iter().take(PLACES);
        let all: Vec<u64> = table
            .filter(|thread| wanted(thread))
            .map(|thread| thread.id.0)
            .collect();
        let place = self.below(all.len() + 1);
        all.get(place).copied().unwrap_or_else(|| self.thread())
    }

    fn waiting(&mut self) -> u64 {
        self.of_those(|thread| thread.state == State::Receiving)
    }

    fn sending(&mut self) -> u64 {
        self.of_those(|thread| matches!(thread.state, State::Sending(_)))
    }

    fn faulted(&mut self) -> u64 {
        self.of_those(|thread| thread.state == State::Receiving && thread.slow & WAITS != 0)
    }

    fn window(&mut self) -> u64 {
        let of_root = self.below(16) == 0;
        memory(self.random, of_root)
    }

    fn patience(&mut self) -> u64 {
        let send = self.any([NEVER, 0, 200, 200, 200, 0, 0, 1000]);
        let receive = self.any([NEVER, 0, 100, 1000, 1000, 3000, 2000, 0]);
        u64::from(send) << 32 | u64::from(receive)
    }

    fn step(&mut self) -> Step {
        let me = self.world.kernel.current().expect("it runs") as usize;
        let thread = &self.world.kernel.threads().table[me];
        let is_root = u64::from(thread.space.0) == self.world.spaces[0] & 0xffff;
        // The first pager mostly answers.
        if thread.id.0 == self.world.threads[1] && self.below(2) == 0 {
            let timeouts = NEVER.into();
            return Step::Call(Call::Ipc, [self.faulted(), ANYONE, tag(0, 0, 1), timeouts, 0, 0]);
        }
        match self.below(96) {
            0..32 => self.exchange(),
            32..40 if is_root => Step::Call(Call::Ipc, [0, ANYONE, 0, 300, self.window(), 0]),
            32..40 => {
                let access = self.any([Access::Read, Access::Write, Access::Execute]);
                let base = self.any([BASES[3], BASES[4], BASES[5]]);
                Step::Fault(base + ((self.below(8) as u64) << 12) + 8, access)
            }
            40..57 => self.memory(is_root),
            57 => Step::Interrupt(INTERRUPT),
            58 => Step::Pass(self.below(3000) as u64),
            59..87 => self.message(),
            87..95 => self.life(),
            _ if self.below(3) == 0 && !is_root => Step::Exception,
            _ => Step::Call(Call::Yield, [0; 6]),
        }
    }

    /// A message to a thread that waits. The sender then waits too.
    fn exchange(&mut self) -> Step {
        let timeouts = self.any([u64::from(NEVER), 1000, 3000]);
        let to = if self.below(2) == 0 {
            self.faulted()
        } else {
            self.waiting()
        };
        let from = self.any([to, ANYONE, ANYONE, ANYONE]);
        let words = self.any([0, 3, 4, 5, 40, 64]);
        let tag = self.any([tag(0, 0, 1), tag(3, words, 0)]);
        Step::Call(Call::Ipc, [to, from, tag, timeouts, self.window(), 0])
    }

    fn memory(&mut self, is_root: bool) -> Step {
        if self.below(8) == 0 {
            let slot = self.any([BASES[0], BASES[2], BASES[3], BASES[5]]);
            let [given, taken] = [(); 2].map(|()| fpage(slot, 21, rights(self.random)));
            return Step::Call(Call::Map, [given, self.space(), taken, LINK, 0, 0]);
        }
        let what = memory(self.random, is_root);
        if self.below(3) == 0 {
            let rights = self.any([7, 7, 7, 7, 1, 2, 6, 4]);
            return Step::Call(Call::Flush, [what, rights, u64::from(self.below(8) == 0), 0, 0, 0]);
        }
        let how = self.any([MAP, MAP, MAP, GRANT, GRANT, LINK]);
        Step::Call(Call::Map, [what, self.space(), self.window(), how, 0, 0])
    }

    fn message(&mut self) -> Step {
        let (patience, window) = (self.patience(), self.window());
        let [to, from, tag, timeouts] = match self.below(28) {
            0..3 => [0, ANYONE, 0, patience],
            3..5 => [0, self.thread(), 0, patience],
            5..7 => [0, self.sending(), 0, patience],
            7 => [0, INTERRUPT as u64 + 1, 0, 100],
            8..19 => {
                let to = [self.thread(), self.waiting(), self.waiting()][self.below(3)];
                let from = [0, 0, to, to, ANYONE, self.thread()][self.below(6)];
                let (words, items) = (self.any([0, 2, 4, 5, 9, 62, 64, 65]), self.any([0, 0, 0, 1, 1, 2]));
                let odd = self.below(40) == 0;
                let label = if odd { self.random.next() } else { tag(7, words, items) };
                [to, from, label, patience]
            }
            _ => {
                let receive = self.any([NEVER, 1000, 1000, 0, NEVER]);
                let send = self.any([NEVER, 0, 0, 0]);
                let timeouts = u64::from(send) << 32 | u64::from(receive);
                [self.waiting(), self.any([ANYONE, ANYONE, 0]), tag(0, 0, 1), timeouts]
            }
        };
        Step::Call(Call::Ipc, [to, from, tag, timeouts, window, 0])
    }

    /// Threads and spaces begin, change and end.
    fn life(&mut self) -> Step {
        let supervisor = if self.below(5) == 0 { self.thread() } else { 0 };
        let helpers = [self.thread(), self.thread(), supervisor];
        let priority = 1 + self.below(5) as u64;
        match self.below(18) {
            0..2 => {
                let quota = self.below(self.quota as usize + 900) as u64;
                Step::Call(Call::SpaceCreate, [quota, helpers[0], helpers[1], helpers[2], 0, 0])
            }
            2 if self.below(3) == 0 => Step::Call(Call::SpaceDelete, [self.space(), 0, 0, 0, 0, 0]),
            2..6 => Step::Call(
                Call::SpaceControl,
                [self.space(), helpers[0], helpers[1], helpers[2], 0, 0],
            ),
            6..10 => {
                let start = [self.space(), 0x40_0000, 0x7d_0000, 0, priority, 0];
                Step::Call(Call::ThreadCreate, start)
            }
            10 => Step::Call(Call::ThreadDelete, [self.thread(), 0, 0, 0, 0, 0]),
            11..13 => Step::Call(Call::ThreadPriority, [self.thread(), priority, 0, 0, 0, 0]),
            13 => Step::Call(Call::InterruptBind, [INTERRUPT as u64, self.thread(), 0, 0, 0, 0]),
            _ => {
                // No thread reads the registers of another one: those of a thread that waits for a message mean nothing.
                let (stop, write, start) = (EXCHANGE_STOP, EXCHANGE_WRITE, EXCHANGE_START);
                let what = self.any([stop, start, start, stop | start, write, stop | write | start]);
                Step::Call(Call::ThreadExchange, [self.thread(), what, 0, 0, 0, 0])
            }
        }
    }
}

/// No thread ends the first two threads, and the first one never waits for ever.
fn careful(step: Step, me: u64, first: u64) -> Step {
    match step {
        Step::Call(Call::ThreadDelete | Call::ThreadExchange | Call::ThreadPriority, [id, ..])
            if id == first || id == first + 1 || id == 0 && me <= first + 1 =>
        {
            Step::Call(Call::Yield, [0; 6])
        }
        Step::Call(Call::Ipc, [to, from, tag, timeouts, window, _]) if me == first => {
            let (send, receive) = ((timeouts >> 32).min(200), (timeouts & 0xffff_ffff).min(1000));
            Step::Call(Call::Ipc, [to, from, tag, send << 32 | receive, window, 0])
        }
        step => step,
    }
}

/// Makes an item one page large, or at most two.
fn few(word: u64, two: bool) -> u64 {
    let log2 = word >> 4 & 63;
    if log2 > 13 || log2 == 13 && !two {
        word & !(63 << 4) | 12 << 4
    } else {
        word
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The words of a message that may be two items. They are small: the two ways would give larger items in different pieces, and other threads run between pieces.
fn items(random: &mut Random, is_root: bool) -> [u64; 4] {
    let of_root = is_root != (random.below(16) == 0);
    [
        few(memory(random, of_root), true),
        [MAP, MAP, MAP, LINK, GRANT, GRANT][random.below(6)],
        few(memory(random, of_root), false),
        [MAP, MAP, MAP, GRANT][random.below(4)],
    ]
}

/// One life. Returns how many events took each fast path, and how many calls there were.
fn life(seed: u64, steps: u64) -> ([u32; Short::Kinds as usize], u64) {
    let mut random = Random(seed);
    let large = random.below(2) == 0;
    let frames = [600, 600, 150, 110][random.below(4)];
    let quota = [4000, 4000, 400, 150][random.below(4)];
    let mut worlds = [Way::General, Way::ShortFirst].map(|way| World::new(way, large, frames, quota));
    let mut idle = 0;
    for number in 0..steps {
        let context = format!("repeat with GOND_SEED={seed}: step {number}");
        let turns = worlds.each_mut().map(|world| world.next());
        assert_eq!(turns[0], turns[1], "{context}");
        idle = if turns[0].is_some() { 0 } else { idle + 1 };
        let world = &worlds[0];
        let first = world.threads[0];
        let step = match turns[0] {
            Some(me) => {
                let random = &mut random;
                careful(Chooser { random, world, quota }.step(), me, first)
            }
            None if idle > 20 => break,
            None if idle % 2 == 0 => Step::Interrupt(INTERRUPT),
            None => Step::Pass(2000),
        };
        let words = items(&mut random, turns[0].is_some_and(|me| world.is_of_root(me)));
        let made = worlds.each_mut().map(|world| {
            world.writes(words);
            world.takes(step);
            let made = world.made(turns[0], step);
            if number % 8 == 0 {
                assert_eq!(world.kernel.check_messages(), Ok(()), "{context}");
                assert_eq!(world.kernel.mapping_check(), Ok(()), "{context}");
            }
            match (step, made) {
                (_, 0) => {}
                (Step::Call(Call::SpaceCreate, _), _) => world.spaces.push(made),
                _ => world.threads.push(made),
            }
            // This finishes what threads have to do again.
            world.next();
            made
        });
        assert_eq!(made[0], made[1], "{context}");
        let [general, short] = worlds.each_ref().map(World::look);
        if general != short {
            for (one, other) in general.lines().zip(short.lines()).filter(|(one, other)| one != other) {
                println!("general: {one}\nshort:   {other}");
            }
            panic!("{context}: {:x?} did {step:x?} with {words:x?}", turns[0]);
        }
    }
    (worlds[1].short, worlds[1].calls)
}

/// `GOND_SEED` repeats one life; `GOND_RUNS` sets how many there are, `GOND_FROM` the first of them.
#[test]
fn lives_are_the_same_on_both_ways() {
    let (one, from) = (number("GOND_SEED"), number("GOND_FROM").unwrap_or(0));
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => from..from + number("GOND_RUNS").unwrap_or(100),
    };
    let (mut sums, mut calls) = ([0; Short::Kinds as usize], 0);
    for seed in seeds {
        let (short, count) = life(seed, 1500);
        (sums.iter_mut().zip(short)).for_each(|(sum, count)| *sum += count);
        calls += count;
    }
    println!("{calls} calls, of which on short ways: {sums:?}");
    assert!(
        one.is_some() || sums.iter().all(|&count| count > 0),
        "{sums:?} of {calls}"
    );
}
