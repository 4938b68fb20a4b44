//! The bare µ-kernel on several processors: random events, each on some processor, while every processor keeps translations of the space it is in as a real one
//! does. Nobody keeps one that was taken, and in the end all is given back.

mod fake;

use std::{collections::HashMap, sync::atomic::Ordering::Relaxed};

use abi::{
    Rights,
    nucleus::{
        ANYONE, Call, EXCHANGE_READ, EXCHANGE_START, EXCHANGE_STOP, EXCHANGE_WRITE, GRANT, LINK, MAP, NEVER, fpage,
        message_buffer, tag, timeouts,
    },
};
use fake::{Asked, Fake, Random};
use kcore::{
    Hardware, Kernel, SpaceId, ThreadId,
    bare::{
        Bare,
        going::Going,
        mapping::{Fpage, How, Own, Progress},
    },
    event::{Access, Event, Outcome},
    paging,
    smp::{HandedOver, Request},
    space::Tags,
    thread::{Operation, Resumed, VectorState},
};

const FRAMES: u32 = 4000;
const MEMORY: (u32, u32) = (0x1000, 0x2000);
const FROM: u64 = (MEMORY.0 as u64) << 12;
const SIZES: [u8; 12] = [12, 12, 12, 12, 12, 12, 13, 13, 14, 16, 16, 21];
const AT: (u64, u64) = (0x40_0000, 0x50_0000);

/// Translations of a processor: root and page to frame, whether it may be written, whether executed.
type Translations = HashMap<(u32, u64), (u64, bool, bool)>;

struct World {
    kernel: Kernel<Fake, Bare>,
    random: Random,
    count: u32,
    boss: ThreadId,
    root: SpaceId,
    threads: Vec<ThreadId>,
    /// A space, and the thread that made it.
    spaces: Vec<(u64, ThreadId)>,
    kept: Vec<Translations>,
    story: Vec<String>,
    is_boss: bool,
    /// Pieces of long work, short calls, and translations that were forgotten because another processor asked.
    counts: [usize; 3],
}

/// The translation of a page as the processor would find it.
fn translation(kernel: &Kernel<Fake, Bare>, root: kcore::Frame, page: u64) -> Option<(u64, bool, bool)> {
    let (mut table, mut write, mut execute) = (root, true, true);
    for level in (0..4).rev() {
        let entry = kernel.hardware.table(table)[(page >> (9 * level)) as usize & 511].load(Relaxed);
        if !paging::is_present(entry) {
            return None;
        }
        (write, execute) = (write && entry & 2 != 0, execute && entry >> 63 == 0);
        if level == 0 || paging::is_large(entry) {
            let below = (1 << (9 * level)) - 1;
            return Some((
                (u64::from(paging::number_of(entry)) & !below) + (page & below),
                write,
                execute,
            ));
        }
        table = paging::frame_of(entry);
    }
    None
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let count = random.of(&[2, 3, 4, 16]);
        let mut kernel = Kernel::<Fake, Bare>::new(Fake::new(FRAMES, Tags::Absent), &[(1, FRAMES)]);
        kernel.set_processors((1 << count) - 1);
        let root = kernel.sigma0_create(1 << 20, &[MEMORY], &[], 1).expect("σ₀");
        kernel.nucleus_root(root).expect("the root's part");
        let boss = kernel.nucleus_thread(root, [AT.0, AT.1, 0], 5).expect("a thread");
        let mut world = Self {
            kernel,
            random,
            count,
            boss,
            root,
            threads: vec![boss],
            spaces: Vec::new(),
            kept: vec![Translations::new(); count as usize],
            story: Vec::new(),
            is_boss: false,
            counts: [0; 3],
        };
        for _ in 0..3 {
            let mate = world.kernel.nucleus_thread(root, [AT.0, AT.1, 0], 3).expect("a thread");
            world.threads.push(mate);
        }
        world
    }

    fn on(&mut self, processor: u32) {
        self.kernel.change_over(processor);
        self.kernel.hardware.here = processor;
        assert!(self.kernel.is_root_known());
    }

    /// Leaves the kernel on this processor: the thread goes on, or another one does.
    fn leave(&mut self) {
        let stays = self.kernel.current().is_some_and(|index| self.kernel.goes_on(index));
        if !stays {
            if self.kernel.should_preempt() {
                self.kernel.yield_current();
            }
            match self.kernel.schedule() {
                Some(index) => {
                    let space = self.kernel.threads().table[index as usize].space;
                    self.kernel.vectors_follow(index);
                    self.kernel.enter_space(space);
                }
                None => self.kernel.rest(),
            }
        }
        self.look();
    }

    /// Does what was asked, and looks at what is kept.
    fn look(&mut self) {
        let here = self.kernel.hardware.here as usize;
        for asked in std::mem::take(&mut self.kernel.hardware.asked) {
            match asked {
                Asked::Request(bits, request) => {
                    for (number, kept) in self
                        .kept
                        .iter_mut()
                        .enumerate()
                        .filter(|(number, _)| bits >> number & 1 != 0)
                    {
                        assert!(number != here, "a processor asks itself");
                        self.counts[2] += kept.len();
                        match request {
                            Request::ForgetPage(address) => kept.retain(|&(_, page), _| page != address >> 12),
                            _ => kept.clear(),
                        }
                    }
                }
                Asked::Stop(number) => {
                    self.kept[number as usize].clear();
                }
                Asked::Wake(_) => {}
            }
        }
        let flushed = self.kernel.hardware.take_flushed();
        let kept = &mut self.kept[here];
        if flushed.everything {
            kept.clear();
        }
        kept.retain(|(root, page), _| !flushed.roots.contains(root) && !flushed.pages.contains(&(page << 12)));
        for (number, kept) in self.kept.iter_mut().enumerate() {
            let loaded = self.kernel.hardware.loaded[number].map(kcore::Frame::number);
            // No tags: a root that is loaded takes the place of all translations.
            kept.retain(|&(root, _), _| Some(root) == loaded);
        }
        for (number, kept) in self.kept.iter().enumerate() {
            let Some(root) = self.kernel.hardware.loaded[number] else {
                continue;
            };
            for (&(_, page), &(frame, write, execute)) in kept {
                let now = translation(&self.kernel, root, page);
                let holds = now.is_some_and(|now| now.0 == frame && now.1 >= write && now.2 >= execute);
                if !holds {
                    let tail = self.story.len().saturating_sub(40);
                    println!("{}", self.story[tail..].join("\n"));
                    panic!("processor {number} keeps page {page:x} at {frame:x} {write} {execute}, now {now:x?}");
                }
            }
        }
    }

    /// A thread touches some pages.
    fn touch(&mut self) {
        let here = self.kernel.hardware.here as usize;
        let Some(root) = self.kernel.hardware.loaded[here] else {
            return;
        };
        for _ in 0..6 {
            let page = match self.random.below(8) {
                0 => message_buffer(self.random.of(&self.threads).0) >> 12,
                _ => (FROM >> 12) + self.random.of(&[0u64, 512, 1024]) + self.random.below(24) as u64,
            };
            if let Some(found) = translation(&self.kernel, root, page) {
                let number = root.number();
                self.kept[here].insert((number, page), found);
            }
        }
    }

    fn item(&mut self) -> (u64, u64) {
        let log2 = self.random.of(&SIZES);
        let page = self.random.of(&[0u64, 1, 2, 8, 16, 512, 513, 1024]);
        let at = (FROM + (page << 12)) >> log2 << log2;
        let rights = self.random.of(&[Rights::RWX, Rights::RW, Rights::R]);
        (fpage(at, log2, rights), self.random.of(&[MAP, MAP, MAP, GRANT, LINK]))
    }

    fn window(&mut self) -> u64 {
        match self.random.below(5) {
            0 => 0,
            1 => self.item().0,
            _ => fpage(0, 47, Rights::RWX),
        }
    }

    fn patience(&mut self) -> u32 {
        self.random.of(&[NEVER, 0, 50, 50, 300])
    }

    fn any_thread(&mut self) -> u64 {
        self.random.of(&self.threads).0
    }

    fn any_space(&mut self) -> u64 {
        if self.spaces.is_empty() {
            0
        } else {
            self.random.of(&self.spaces).0
        }
    }

    fn call(&mut self, me: ThreadId) -> (Call, [u64; 6]) {
        let is_boss = me == self.boss;
        self.is_boss = is_boss;
        let (what, way) = self.item();
        let (space, thread, helper) = (self.any_space(), self.any_thread(), self.any_of_root());
        match self.random.below(30) {
            0 if self.spaces.len() < 12 => {
                let helper = self.random.of(&[0, helper]);
                (
                    Call::SpaceCreate,
                    [self.random.of(&[2000, 6000, 20_000]), helper, helper, 0, 0, 0],
                )
            }
            0..=3 if self.threads.len() < 40 => {
                let space = self.random.of(&[0, space]);
                (
                    Call::ThreadCreate,
                    [space, AT.0, AT.1, 0, 1 + self.random.below(4) as u64, 0],
                )
            }
            4 if !is_boss && thread != self.boss.0 && self.random.below(2) == 0 => {
                (Call::ThreadDelete, [self.random.of(&[0, thread]), 0, 0, 0, 0, 0])
            }
            4 if self.random.below(4) == 0 => (Call::SpaceDelete, [self.any_space(), 0, 0, 0, 0, 0]),
            5 | 6 if thread != self.boss.0 => {
                let all = EXCHANGE_READ | EXCHANGE_STOP | EXCHANGE_START | EXCHANGE_WRITE;
                let what = self.random.next() & all | if self.random.below(3) > 0 { EXCHANGE_START } else { 0 };
                (Call::ThreadExchange, [self.any_thread(), what, 0, 0, 0, 0])
            }
            7 => (
                Call::ThreadPriority,
                [self.any_thread(), self.random.below(6) as u64, 0, 0, 0, 0],
            ),
            8 => (Call::Yield, [0; 6]),
            9 => (
                Call::SpaceControl,
                [space, helper, 0, self.random.of(&[0, 0, helper]), 0, 0],
            ),
            10 | 11 if is_boss => (
                Call::InterruptBind,
                [self.random.below(4) as u64 + 4, self.any_thread(), 0, 0, 0, 0],
            ),
            10..=16 => {
                let window = if self.random.below(3) == 0 {
                    self.window()
                } else {
                    fpage(0, 47, Rights::RWX)
                };
                (Call::Map, [what, self.any_space(), window, way, 0, 0])
            }
            17..=20 => (
                Call::Flush,
                [
                    what,
                    self.random.of(&[7, 7, 2, 4]),
                    self.random.of(&[0, 0, 0, 1]),
                    0,
                    0,
                    0,
                ],
            ),
            _ => self.message(),
        }
    }

    fn any_of_root(&mut self) -> u64 {
        self.threads[self.random.below(4.min(self.threads.len()))].0
    }

    fn message(&mut self) -> (Call, [u64; 6]) {
        let (to, from) = (self.any_thread(), self.any_thread());
        let to = self.random.of(&[0, 0, to, to, to]);
        let from = self.random.of(&[0, from, to, to, ANYONE, ANYONE, 5]);
        let label = tag(
            self.random.below(9) as u64,
            self.random.of(&[0, 2, 4, 9]),
            self.random.of(&[0, 0, 1, 2, 3]),
        );
        let (mut sends, mut receives) = (self.patience(), self.patience());
        if self.is_boss {
            (sends, receives) = (sends.min(100), receives.min(100));
        }
        (
            Call::Ipc,
            [to, from, label, timeouts(sends, receives), self.window(), 0],
        )
    }

    /// The words of a message.
    fn words(&mut self, me: ThreadId, count: usize, items: usize) {
        let mut words = vec![0; count];
        for _ in 0..items {
            let (what, way) = self.item();
            words.extend([what, way]);
        }
        fake::set_words(&mut self.kernel, me, &words);
    }

    fn event(&mut self, me: ThreadId, event: Event, operation: Option<Operation>) {
        let mut handed = self.call(ThreadId(0));
        if handed.0 == Call::ThreadDelete {
            handed = (Call::ClockNow, [0; 6]);
        }
        self.kernel.hardware.handed = (self.random.below(3) == 0).then(|| HandedOver {
            operation: Operation::called(handed.0 as u64, handed.1),
            rip: AT.0,
            rsp: AT.1,
        });
        let outcome = self.kernel.nucleus_event(event);
        self.kernel.hardware.handed = None;
        self.settle(me, event, outcome, operation);
    }

    fn settle(&mut self, me: ThreadId, event: Event, outcome: Outcome, operation: Option<Operation>) {
        let kernel = &mut self.kernel;
        match outcome {
            Outcome::Return(result) => {
                let index = kernel.current().expect("who called runs");
                assert_eq!(kernel.id_of(index), me);
                let context = kernel.context_of(index);
                context.reset(context.rip, context.rsp);
                let (error, value, value2) = match result {
                    Ok((value, value2)) => (0, value, value2),
                    Err(error) => (error as u64, 0, 0),
                };
                context.set_results(error, value, value2);
                if let (Event::Call { number, .. }, Ok((value, _))) = (event, result) {
                    match Call::from_number(number) {
                        Some(Call::SpaceCreate) => self.spaces.push((value, me)),
                        Some(Call::ThreadCreate) => self.threads.push(ThreadId(value)),
                        _ => {}
                    }
                }
            }
            Outcome::Again => {
                self.counts[0] += 1;
                let changed = kernel.take_operation(me.index() as u32);
                kernel.again(changed.or(operation));
            }
            Outcome::Resume => assert_eq!(kernel.current(), Some(me.index() as u32)),
            _ => {}
        }
        self.kernel.check().unwrap_or_else(|what| {
            let tail = self.story.len().saturating_sub(40);
            panic!("{what}\n{}", self.story[tail..].join("\n"))
        });
        let kernel = &self.kernel;
        self.threads.retain(|&id| kernel.threads().find(id).is_some());
    }

    fn step(&mut self) {
        let mut here = self.random.below(self.count as usize) as u32;
        for _ in 0..4 {
            self.kernel.change_over(here);
            if self.kernel.current().is_some() {
                break;
            }
            here = self.random.below(self.count as usize) as u32;
        }
        self.on(here);
        self.kernel.hardware.now_ns += self.random.below(30_000) as u64;
        if self.random.below(6) == 0 {
            if self.kernel.tick() {
                self.kernel.yield_current();
            }
            self.story.push(format!("{here}: tick"));
            return self.leave();
        }
        if self
            .kernel
            .current()
            .is_some_and(|index| self.kernel.id_of(index) == self.boss)
            && self.random.below(3) == 0
        {
            // So that something happens: who waits goes on with other registers.
            let thread = self.any_thread();
            if thread != self.boss.0 {
                let index = self.kernel.current().expect("the boss runs");
                if self.kernel.thread(index).operation.is_none() && self.kernel.goes_on(index) {
                    let call = [thread, EXCHANGE_WRITE | EXCHANGE_START, 0, 0, 0, 0];
                    self.story.push(format!("{here}: boss revives {thread:x}"));
                    let operation = Operation::called(Call::ThreadExchange as u64, call);
                    self.event(self.boss, operation.event(self.boss, Resumed::First), Some(operation));
                    return self.leave();
                }
            }
        }
        if self.random.below(20) == 0 {
            let number = self.random.below(4) + 4;
            self.story.push(format!("{here}: interrupt {number}"));
            self.kernel.interrupt(number);
            return self.leave();
        }
        // It was stopped, or called.
        let is_here = self.kernel.current().is_some_and(|index| self.kernel.goes_on(index));
        if !is_here || self.random.below(12) == 0 {
            return self.leave();
        }
        let index = self.kernel.current().expect("somebody runs");
        let me = self.kernel.id_of(index);
        if self.kernel.thread(index).operation.is_some() {
            let resumed = self.kernel.thread(index).resumed;
            let operation = self.kernel.take_operation(index).expect("an operation");
            self.story.push(format!(
                "{here}: {:x} goes on {resumed:?} {:?} {:x?}",
                me.0,
                Call::from_number(operation.number),
                operation.arguments
            ));
            self.event(me, operation.event(me, resumed), Some(operation));
            return self.leave();
        }
        self.touch();
        if self.random.below(15) == 0 && self.kernel.thread(index).vectors == VectorState::UNUSED {
            self.kernel.vectors_begin();
        }
        if self.random.below(20) == 0 {
            let address = FROM + self.random.below(1600 << 12) as u64;
            let access = self.random.of(&[Access::Read, Access::Write]);
            self.story.push(format!("{here}: {:x} faults at {address:x}", me.0));
            if me == self.boss || self.kernel.thread(index).space == self.root {
                return;
            }
            if self.random.below(2) == 0 && self.kernel.fault_short(address, access).is_some() {
                return self.leave();
            }
            let fault = Event::Fault {
                thread: me,
                address,
                access,
            };
            self.event(me, fault, None);
            return self.leave();
        }
        let (call, arguments) = self.call(me);
        if call == Call::Ipc {
            self.words(me, arguments[2] as usize & 63, (arguments[2] >> 8) as usize & 15);
        }
        self.story.push(format!("{here}: {:x} {call:?} {arguments:x?}", me.0));
        if self.random.below(2) == 0 && fake::is_short(&mut self.kernel, me, call, arguments) {
            self.counts[1] += 1;
            self.kernel.check().expect("all is well behind a short call");
            return self.leave();
        }
        let operation = Operation::called(call as u64, arguments);
        self.event(me, operation.event(me, Resumed::First), Some(operation));
        self.leave();
    }
}

fn run(seed: u64, steps: usize) -> [usize; 3] {
    let mut world = World::new(seed);
    for _ in 0..steps {
        world.step();
    }
    world.counts
}

#[test]
fn no_processor_keeps_what_was_taken() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let (first, seeds) = (number("SEED").unwrap_or(0), number("SEEDS").unwrap_or(12));
    let steps = number("STEPS").unwrap_or(1500) as usize;
    let mut counts = [0; 3];
    for seed in first..first + seeds {
        println!("seed {seed}");
        for (count, more) in counts.iter_mut().zip(run(seed, steps)) {
            *count += more;
        }
    }
    let least = [500, 100, 1000];
    assert!(
        counts.iter().zip(least).all(|(&count, least)| count > least),
        "{counts:?}"
    );
}

/// Spaces that run on fifteen other processors have sixteen pages each, and lose a right to them: the others are not asked for each space and page.
#[test]
fn who_loses_rights_in_one_event_is_asked_a_few_times() {
    let mut kernel = Kernel::<Fake, Bare>::new(Fake::new(FRAMES, Tags::Absent), &[(1, FRAMES)]);
    kernel.set_processors(0xffff);
    let root = kernel.sigma0_create(1 << 20, &[MEMORY], &[], 1).expect("σ₀");
    let pages = Fpage::memory(FROM, 16, Rights::RW).expect("an fpage");
    for number in 0..16 {
        let space = kernel.free_space_create(root, 1000).expect("a space");
        let mut going = Going::default();
        while kernel
            .map((root, pages), (space, pages), How::Map, &mut going)
            .expect("mapped")
            .progress
            == Progress::More
        {
            going = going.next_piece();
        }
        fake::spawn(&mut kernel, space, 3);
        kernel.change_over(number);
        kernel.hardware.here = number;
        kernel.schedule().expect("it runs here");
        kernel.enter_space(space);
    }
    let (mut going, mut events) = (Going::default(), 0);
    loop {
        kernel.hardware.asked.clear();
        let progress = kernel.flush(root, pages, (Rights::W, Own::Kept), &mut going);
        assert!(kernel.hardware.asked.len() <= 3, "{:?}", kernel.hardware.asked);
        events += 1;
        if progress == Ok(Progress::Done) {
            break;
        }
        going = going.next_piece();
    }
    assert!(events > 3, "{events} events");
}
