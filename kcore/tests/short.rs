//! The fast paths against the slow one: two machines do the same, one of them on the fast paths wherever they lead, and
//! nothing tells them apart. (That mappings themselves come out the same is tested in `mapping`, whose calls take both.)

#[path = "short/busy.rs"]
mod busy;
mod fake;
mod ways;

use std::ops::{Deref, DerefMut};

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::{
    Error, Rights,
    address::PAGE,
    nucleus::{ANYONE, Call, GRANT, LINK, MAP, MESSAGE_AREA, NEVER, ROOT_GIVES_BELOW, fpage, tag},
};
use fake::Random;
use kcore::{
    Hardware, SpaceId, ThreadId,
    bare::mapping::{NODE_UNITS, TABLE_UNITS},
    event::{Access, Event, Outcome},
    paging,
    thread::State,
};
use ways::{FIRST, FRAMES, Machine, PLACE, Picture, Short, Way, picture};

struct World {
    machine: Machine,
    /// Identifiers and numbers of σ₀ and two spaces below it.
    spaces: Vec<(u64, SpaceId)>,
    threads: Vec<u64>,
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

/// Nine in ten of the fast paths that were taken when this was measured, with large pages and without. A case that leaves the
/// fast path does the same as before, and is only slower: these numbers show it.
const LEAST: [[u32; Short::Kinds as usize]; 2] = [
    [439, 77, 716, 55, 18, 494, 72, 227, 2304],
    [366, 80, 2285, 53, 21, 504, 72, 274, 2259],
];

impl World {
    fn new(way: Way, large: bool) -> Self {
        let (machine, root, first) = Machine::new(way, large, 400);
        let mut world = Self {
            machine,
            spaces: vec![(0, root)],
            threads: vec![first],
        };
        let pager = world.value(Call::ThreadCreate, [0, 0x40_0000, 0x7e_0000, 0, 5, 0]);
        world.threads.push(pager);
        for _ in 0..2 {
            let space = world.value(Call::SpaceCreate, [4000, pager, 0, 0, 0, 0]);
            world.spaces.push((space, SpaceId(space as u32 & 0xffff)));
            for priority in [3, 5] {
                let thread = world.value(Call::ThreadCreate, [space, 0x40_0000, 0x7d_0000, 0, priority, 0]);
                world.threads.push(thread);
            }
        }
        world.call(Call::InterruptBind, [4, pager, 0, 0, 0, 0]);
        world
    }

    /// A thread's message buffer.
    fn buffer(&self, thread: u64) -> &[AtomicU64; 512] {
        let space = self.kernel.threads().get(ThreadId(thread)).space;
        let (_, entry) = self.entry(space, abi::nucleus::message_buffer(thread));
        self.kernel.hardware.table(paging::frame_of(entry))
    }

    fn pictures(&self) -> Vec<Picture> {
        let threads = self.kernel.threads();
        self.threads
            .iter()
            .map(|&id| picture(threads.get(ThreadId(id))))
            .collect()
    }

    fn check(&mut self) -> Result<(), &'static str> {
        self.kernel.check_messages().and_then(|()| self.kernel.mapping_check())
    }
}

/// An fpage, mostly one page, of σ₀'s memory or of the place where pages are touched.
fn memory(random: &mut Random, base: u64) -> u64 {
    let rights = [Rights::R, Rights::RW, Rights::RWX][random.below(3)];
    let base = if random.below(8) == 0 {
        PLACE + (u64::from(FIRST) << 12) - base
    } else {
        base
    };
    // An address beyond the address space names nothing, whatever its lower bits are.
    let base = if random.below(80) == 0 {
        base | 1 << (56 + random.below(8))
    } else {
        base
    };
    match random.below(12) {
        0 => fpage(base, 21, rights),
        1 => fpage(base, 13, rights),
        2 => fpage(base, 15, rights),
        _ => fpage(base + ((random.below(6) as u64) << 12), 12, rights),
    }
}

fn source(random: &mut Random) -> u64 {
    memory(random, u64::from(FIRST) << 12)
}

fn window(random: &mut Random) -> u64 {
    memory(random, PLACE)
}

/// How long a message waits, to be sent and to be received: for ever, not at all, or a while.
fn patience(random: &mut Random) -> u64 {
    let send = [NEVER, 0, 200, 200][random.below(4)];
    let receive = [NEVER, 0, 100, 1000, 1000, 3000][random.below(6)];
    u64::from(send) << 32 | u64::from(receive)
}

/// The operation of the running thread: the same for both machines.
enum Step {
    Call(Call, [u64; 6]),
    Fault(u64, Access),
    Interrupt,
    Pass(u64),
}

fn step(random: &mut Random, world: &World) -> Step {
    let thread = |random: &mut Random| world.threads[random.below(world.threads.len())];
    let waiting = |random: &mut Random| {
        let receives = |&&id: &&u64| world.kernel.threads().get(ThreadId(id)).state == State::Receiving;
        let all: Vec<u64> = world.threads[2..].iter().filter(receives).copied().collect();
        all.get(random.below(all.len() + 1))
            .copied()
            .unwrap_or_else(|| thread(random))
    };
    // Nobody handles a fault of the root program's.
    let root =
        (world.kernel.current()).is_some_and(|me| world.kernel.threads().table[me as usize].space == world.spaces[0].1);
    match random.below(20) {
        0..4 if root => Step::Call(Call::Yield, [0; 6]),
        0..4 => {
            let access = [Access::Read, Access::Write, Access::Execute][random.below(3)];
            Step::Fault(PLACE + ((random.below(6) as u64) << 12) + 8, access)
        }
        4 if random.below(2) == 0 => {
            let (target, _) = world.spaces[random.below(3)];
            let slot = (u64::from(FIRST) << 12) + ((random.below(2) as u64) << 21);
            let [given, taken] =
                [(); 2].map(|()| fpage(slot, 21, [Rights::R, Rights::RW, Rights::RWX][random.below(3)]));
            Step::Call(Call::Map, [given, target, taken, LINK, 0, 0])
        }
        4..7 => {
            let (target, _) = world.spaces[random.below(3)];
            let how = [MAP, MAP, MAP, GRANT, LINK][random.below(5)];
            Step::Call(Call::Map, [source(random), target, window(random), how, 0, 0])
        }
        7..9 => {
            let rights = [7, 7, 7, 2][random.below(4)];
            Step::Call(
                Call::Flush,
                [source(random), rights, u64::from(random.below(8) == 0), 0, 0, 0],
            )
        }
        9 => Step::Interrupt,
        10 => Step::Pass(random.below(3000) as u64),
        11 => Step::Call(Call::Ipc, [0, ANYONE, 0, patience(random), window(random), 0]),
        12 => Step::Call(Call::Ipc, [0, thread(random), 0, patience(random), window(random), 0]),
        13 => Step::Call(Call::Ipc, [0, 5, 0, 100, 0, 0]),
        14..17 => {
            let to = if random.below(3) == 0 {
                thread(random)
            } else {
                waiting(random)
            };
            let from = [0, to, to, ANYONE][random.below(4)];
            let words = [0, 2, 4, 5, 9, 62, 64, 65][random.below(8)];
            let label = tag(7, words, u64::from(random.below(4) == 0));
            let label = if random.below(40) == 0 { random.next() } else { label };
            Step::Call(Call::Ipc, [to, from, label, patience(random), window(random), 0])
        }
        // An answer with one page, as a pager gives it.
        _ => {
            let timeouts = [u64::from(NEVER), 1000, 1000, 0][random.below(4)];
            Step::Call(
                Call::Ipc,
                [waiting(random), ANYONE, tag(0, 0, 1), timeouts, window(random), 0],
            )
        }
    }
}

#[test]
fn short_ways_do_what_the_general_one_does() {
    let mut short = [[0; Short::Kinds as usize]; 2];
    for seed in 0..900 {
        let mut random = Random(seed);
        let mut worlds = [Way::General, Way::ShortFirst].map(|way| World::new(way, seed % 2 == 0));
        let mut idle = 0;
        for number in 0..600 {
            let context = format!("seed {seed}, step {number}");
            let turns = worlds.each_mut().map(|world| world.next());
            assert_eq!(turns[0], turns[1], "{context}");
            let taken = match turns[0] {
                Some(_) => step(&mut random, &worlds[0]),
                None if idle > 3 => break,
                None if idle % 2 == 0 => Step::Interrupt,
                None => Step::Pass(2000),
            };
            idle = if turns[0].is_some() { 0 } else { idle + 1 };
            let words = [source(&mut random), [MAP, MAP, MAP, LINK, GRANT][random.below(5)], 3, 4];
            for world in &mut worlds {
                if let Some(thread) = world.kernel.current_thread_mut() {
                    let context = &mut thread.context;
                    [context.r12, context.r13, context.r14, context.r15] = words;
                    let id = thread.id.0;
                    for (at, word) in world.buffer(id).iter().enumerate().skip(4).take(70) {
                        word.store(words[0] ^ (number << 8 | at) as u64, Relaxed);
                    }
                }
                match taken {
                    Step::Call(call, arguments) => world.call(call, arguments),
                    Step::Fault(address, access) => world.fault(address, access),
                    Step::Interrupt => world.interrupt(4),
                    Step::Pass(us) => {
                        world.kernel.hardware.now_ns += us * 1000;
                        if world.kernel.tick() || world.kernel.should_preempt() {
                            world.kernel.yield_current();
                        }
                    }
                }
                if number % 4 == 0 {
                    assert_eq!(world.check(), Ok(()), "{context}");
                }
                world.next();
            }
            let [general, quick] = &worlds;
            assert_eq!(general.pictures(), quick.pictures(), "{context}");
            for &id in &general.threads {
                let same = |(general, quick): (&AtomicU64, &AtomicU64)| general.load(Relaxed) == quick.load(Relaxed);
                let buffers = general.buffer(id).iter().zip(quick.buffer(id));
                assert!(buffers.clone().take(80).all(same), "{context}: the buffer of {id:#x}");
            }
            for &(_, space) in &general.spaces {
                for page in 0..8 {
                    for base in [u64::from(FIRST) << 12, u64::from(FIRST + 512) << 12, PLACE] {
                        let address = base + (page << 12);
                        let seen = worlds.each_ref().map(|world| world.entry(space, address));
                        assert_eq!(seen[0], seen[1], "{context}: {address:#x} of {space:?}");
                    }
                }
            }
        }
        for (sum, count) in short[seed as usize % 2].iter_mut().zip(worlds[1].short) {
            *sum += count;
        }
    }
    let mut counts = short.as_flattened().iter().zip(LEAST.as_flattened());
    assert!(
        counts.all(|(count, least)| count >= least),
        "fast paths were taken {short:?} times only"
    );
}

/// The fast path gives a space nothing from the message buffers on; the root's own part belongs to the root alone.
#[test]
fn pages_up_to_the_message_buffers_are_given_on_the_fast_path() {
    let mut world = World::new(Way::ShortFirst, false);
    let (space, _) = world.spaces[1];
    let given = [
        (PLACE, true),
        (ROOT_GIVES_BELOW - PAGE, true),
        (ROOT_GIVES_BELOW, true),
        (MESSAGE_AREA - PAGE, true),
        (MESSAGE_AREA, false),
    ];
    for (target, is_given) in given {
        for (number, source) in [FIRST, FIRST + 1].into_iter().enumerate() {
            let before = world.short[Short::Map as usize];
            let window = fpage(target ^ (number as u64 * PAGE), 12, Rights::R);
            let source = fpage(u64::from(source) * PAGE, 12, Rights::R);
            world.call(Call::Map, [source, space, window, MAP, 0, 0]);
            // The first page makes the tables.
            let fast = world.short[Short::Map as usize] - before;
            assert_eq!(fast, u32::from(is_given && number == 1), "{target:#x}");
        }
    }
}

/// Eight pages go by one fast path and come back by another one, which also forgets the translations.
#[test]
fn a_run_of_pages_is_given_and_taken_on_the_fast_path() {
    let mut world = World::new(Way::ShortFirst, false);
    let (id, space) = world.spaces[1];
    let root = world.kernel.spaces().get(space).root().number();
    let source = fpage(u64::from(FIRST) * PAGE, 15, Rights::RW);
    let window = fpage(PLACE, 15, Rights::RW);
    let calls = [
        (Call::Map, [source, id, window, MAP, 0, 0], Short::Map as usize),
        (Call::Flush, [source, 7, 0, 0, 0, 0], Short::Flush as usize),
    ];
    // A page that stays makes the tables: the fast path takes no table with its last page.
    let [from, to] = [u64::from(FIRST) * PAGE, PLACE].map(|base| fpage(base + 9 * PAGE, 12, Rights::R));
    world.call(Call::Map, [from, id, to, MAP, 0, 0]);
    assert_eq!(world.next(), Some(world.threads[0]));
    for round in 0..3 {
        let [given, taken] = calls.map(|(call, arguments, kind)| {
            let before = world.short[kind];
            world.kernel.hardware.take_flushed();
            world.call(call, arguments);
            assert_eq!(world.next(), Some(world.threads[0]));
            let is_forgotten = world.kernel.hardware.take_flushed().roots.contains(&root);
            let is_there = paging::is_present(world.entry(space, PLACE + 7 * PAGE).1);
            (world.short[kind] - before, is_forgotten, is_there)
        });
        assert_eq!(given, (1, false, true), "round {round}");
        assert_eq!(taken, (1, true, false), "round {round}");
    }
}

/// The fast path takes the rights to write and execute from all spaces that have the pages, whether these are small pages of the giver's or parts of a large one.
/// The processors drop the translations of the spaces that lost rights. Then the fast path takes the pages.
#[test]
fn rights_are_taken_on_the_fast_path() {
    for (large, log2) in [(false, 12), (false, 15), (true, 12), (true, 15)] {
        let mut world = World::new(Way::ShortFirst, large);
        let [first, second] = [1, 2].map(|number| world.spaces[number]);
        let roots = [first, second].map(|(_, space)| world.kernel.spaces().get(space).root().number());
        let [from, to] = [u64::from(FIRST) * PAGE, PLACE];
        // A page that stays makes the tables.
        for (id, _) in [first, second] {
            let [from, to] = [from, to].map(|base| fpage(base + 9 * PAGE, 12, Rights::RW));
            world.call(Call::Map, [from, id, to, MAP, 0, 0]);
            assert_eq!(world.next(), Some(world.threads[0]));
        }
        let [source, window] = [from, to].map(|base| fpage(base, log2, Rights::RWX));
        for (id, _) in [first, second] {
            world.call(Call::Map, [source, id, window, MAP, 0, 0]);
            assert_eq!(world.next(), Some(world.threads[0]));
        }
        let flushes = [
            (Rights::W, [true; 2], Rights::RX),
            (Rights::W, [false; 2], Rights::RX),
            (Rights::W.union(Rights::X), [true; 2], Rights::R),
            (Rights::RWX, [true; 2], Rights::NONE),
        ];
        for (rights, is_lost, left) in flushes {
            let before = world.short[Short::Flush as usize];
            world.kernel.hardware.take_flushed();
            world.call(Call::Flush, [source, rights.bits().into(), 0, 0, 0, 0]);
            assert_eq!(world.next(), Some(world.threads[0]));
            let flushed = world.kernel.hardware.take_flushed();
            let case = format!("{large}, {log2}: {rights}");
            // The general way takes parts of a large page that several spaces have.
            let is_fast = !large || rights != Rights::RWX;
            assert_eq!(
                world.short[Short::Flush as usize] - before,
                u32::from(is_fast),
                "{case}"
            );
            assert_eq!(roots.map(|root| flushed.roots.contains(&root)), is_lost, "{case}");
            for (_, space) in [first, second] {
                for page in 0..(1 << log2) / PAGE {
                    let (_, entry) = world.entry(space, PLACE + page * PAGE);
                    let has = if paging::is_present(entry) {
                        paging::mapping_rights(entry)
                    } else {
                        Rights::NONE
                    };
                    assert_eq!(has, left, "{case}");
                }
                let (_, kept) = world.entry(space, PLACE + 9 * PAGE);
                assert_eq!(paging::mapping_rights(kept), Rights::RW, "{case}");
            }
            assert_eq!(world.check(), Ok(()), "{case}");
        }
    }
}

/// One page of several is what a window of one page gets, and several land in a larger window.
#[test]
fn an_fpage_of_another_size_than_its_window_takes_the_fast_path() {
    let mut world = World::new(Way::ShortFirst, false);
    let (id, space) = world.spaces[1];
    let source = fpage(u64::from(FIRST) * PAGE, 15, Rights::RW);
    // A page that stays makes the tables.
    let [from, to] = [u64::from(FIRST) * PAGE, PLACE].map(|base| fpage(base + 9 * PAGE, 12, Rights::R));
    world.call(Call::Map, [from, id, to, MAP, 0, 0]);
    let windows = [
        (PLACE + 5 * PAGE, 12, 5..6),
        (PLACE + 2 * PAGE, 13, 2..4),
        (PLACE, 21, 0..8),
    ];
    for (place, log2, pages) in windows {
        let before = world.short[Short::Map as usize];
        let given = world.value(Call::Map, [source, id, fpage(place, log2, Rights::R), MAP, 0, 0]);
        assert_eq!(world.short[Short::Map as usize], before + 1, "{log2}");
        assert_eq!(given, pages.end - pages.start, "{log2}");
        for page in 0..9 {
            let (_, entry) = world.entry(space, PLACE + page * PAGE);
            let there = paging::is_present(entry).then(|| paging::frame_of(entry).number());
            let expected = pages.contains(&page).then(|| FIRST + page as u32);
            assert_eq!(there, expected, "{log2}: page {page}");
        }
        world.value(Call::Flush, [source, 7, 0, 0, 0, 0]);
    }
}

/// The fast path passes over the pages of a range that the giver does not have. If the giver has none of them, the general path answers.
#[test]
fn a_range_with_holes_takes_the_fast_path() {
    // σ₀ has two pages of the first of these ranges, and none behind.
    let last = u64::from(FRAMES / 4 - 2);
    for (first, log2, given) in [(last, 14, 2), (last, 15, 2), (last + 8, 15, 0)] {
        let found = [Way::General, Way::ShortFirst].map(|way| {
            let mut world = World::new(way, false);
            let (id, space) = world.spaces[1];
            let [from, to] = [u64::from(FIRST) * PAGE, PLACE].map(|base| base + first * PAGE);
            // A page that stays makes the tables.
            let kept = [u64::from(FIRST) * PAGE, PLACE].map(|base| fpage(base, 12, Rights::R));
            world.call(Call::Map, [kept[0], id, kept[1], MAP, 0, 0]);
            assert_eq!(world.next(), Some(world.threads[0]));
            let [range, window] = [from, to].map(|base| fpage(base, log2, Rights::RW));
            let before = world.short[Short::Map as usize];
            world.call(Call::Map, [range, id, window, MAP, 0, 0]);
            let fast = world.short[Short::Map as usize] - before;
            assert_eq!(fast, u32::from(way == Way::ShortFirst && given > 0), "{first}, {log2}");
            while world.next() != Some(world.threads[0]) {
                world.kernel.yield_current();
            }
            assert_eq!(world.check(), Ok(()), "{first}, {log2}");
            let context = &world.kernel.current_thread_mut().expect("it runs").context;
            let answer = (context.rax, context.rdx);
            let entries: Vec<_> = (0..8).map(|page| world.entry(space, to + page * PAGE)).collect();
            (answer, entries)
        });
        assert_eq!(found[0], found[1], "{first}, {log2}");
        assert!(
            given == 0 || found[0].0 == (0, given),
            "{first}, {log2}: {:?}",
            found[0].0
        );
    }
}

#[test]
fn a_run_of_pages_ends_at_the_limit_of_the_space() {
    let mut world = World::new(Way::ShortFirst, false);
    let tables = 5 * TABLE_UNITS;
    for more in NODE_UNITS[0]..10 * NODE_UNITS[0] {
        let quota = u64::from(tables + more);
        let pager = world.threads[1];
        let id = world.value(Call::SpaceCreate, [quota, pager, 0, 0, 0, 0]);
        // The first page makes the tables, and the next eight are a run.
        for (first, size) in [(8, 12), (0, 15)] {
            let at = |base: u64| fpage(base + first * PAGE, size, Rights::R);
            let pages = [at(u64::from(FIRST) * PAGE), id, at(PLACE), MAP, 0, 0];
            world.call(Call::Map, pages);
            assert!(world.next().is_some());
        }
        let space = SpaceId(id as u32 & 0xffff);
        let is_there = |page: &u64| paging::is_present(world.entry(space, PLACE + page * PAGE).1);
        let there = (0..9).filter(is_there).count() as u32;
        let paid = there * NODE_UNITS[0];
        assert_eq!(there, (more / NODE_UNITS[0]).min(9), "{more} units");
        assert_eq!(
            world.kernel.free_space_quota(space),
            Some((tables + more, tables + paid)),
            "{more} units"
        );
    }
    assert_eq!(world.check(), Ok(()));
}

/// A refused call changes nothing: the larger page that would be parted is there as before.
#[test]
fn a_page_that_cannot_be_paid_replaces_nothing() {
    let mut world = World::new(Way::General, true);
    let quota = u64::from(3 * TABLE_UNITS + NODE_UNITS[1] + NODE_UNITS[0]);
    let pager = world.threads[1];
    let id = world.value(Call::SpaceCreate, [quota, pager, 0, 0, 0, 0]);
    let space = SpaceId(id as u32 & 0xffff);
    let give = |world: &mut World, frame: u32, target: u64, size| {
        let source = fpage(u64::from(frame) * PAGE, size, Rights::RW);
        world.call(Call::Map, [source, id, fpage(target, size, Rights::RW), MAP, 0, 0]);
        world.kernel.current_thread_mut().expect("it runs").context.rax
    };
    assert_eq!(give(&mut world, FIRST, PLACE, 21), 0);
    let (before, quota) = (world.entry(space, PLACE), world.kernel.free_space_quota(space));
    assert_eq!((before.0, paging::is_present(before.1)), (1, true));
    let refused = give(&mut world, FIRST + 512, PLACE + 5 * PAGE, 12);
    assert_eq!(refused, Error::LimitReached as u64);
    assert_eq!(world.entry(space, PLACE + 5 * PAGE), before);
    assert_eq!(world.kernel.free_space_quota(space), quota);
}

/// An item of several pages comes to a thread that waits, whatever its window is, as on the general path.
#[test]
fn items_of_several_pages_land_as_on_the_general_path() {
    for (log2, room) in [
        (12, 12),
        (13, 12),
        (12, 16),
        (13, 16),
        (15, 15),
        (16, 21),
        (17, 21),
        (21, 13),
    ] {
        let landed = [Way::General, Way::ShortFirst].map(|way| {
            let mut world = World::new(way, false);
            let (id, space) = world.spaces[1];
            let base = u64::from(FIRST) * PAGE;
            let (source, window) = (fpage(base, log2, Rights::RW), fpage(PLACE, room, Rights::R));
            // This page makes the tables.
            let kept = [base, PLACE].map(|base| fpage(base + 40 * PAGE, 12, Rights::R));
            world.call(Call::Map, [kept[0], id, kept[1], MAP, 0, 0]);
            let waiting = world.threads[3];
            while world.next() != Some(waiting) {
                world.kernel.yield_current();
            }
            world.call(Call::Ipc, [0, ANYONE, 0, NEVER.into(), window, 0]);
            while world.next() != Some(world.threads[0]) {
                world.kernel.yield_current();
            }
            let context = &mut world.kernel.current_thread_mut().expect("it runs").context;
            [context.r12, context.r13] = [source, MAP];
            world.call(Call::Ipc, [waiting, ANYONE, tag(0, 0, 1), NEVER.into(), 0, 0]);
            while world.next().is_some_and(|next| next != waiting) {
                world.kernel.yield_current();
            }
            assert_eq!(world.check(), Ok(()), "{log2}, {room}");
            let entries: Vec<_> = (0..41).map(|page| world.entry(space, PLACE + page * PAGE).1).collect();
            let pages = entries
                .iter()
                .take(40)
                .filter(|&&entry| paging::is_present(entry))
                .count();
            assert_eq!(pages, (1 << (log2.min(room) - 12)).min(40), "{log2}, {room}");
            (entries, world.pictures(), world.short[Short::Answer as usize])
        });
        let [general, quick] = &landed;
        assert_eq!((&general.0, &general.1), (&quick.0, &quick.1), "{log2}, {room}");
        assert_eq!(
            (general.2, quick.2),
            (0, u32::from(log2.min(room) <= 16)),
            "{log2}, {room}"
        );
    }
}

/// A message with an item to a thread that has ended reaches no thread, even if another thread waits in its place of the table now.
#[test]
fn an_item_for_a_thread_that_ended_goes_to_nobody() {
    for way in [Way::General, Way::ShortFirst] {
        let mut world = World::new(way, false);
        let (id, space) = world.spaces[1];
        let source = fpage(u64::from(FIRST) * PAGE, 12, Rights::R);
        // This page makes the tables: the fast path has none to make.
        world.call(Call::Map, [source, id, fpage(PLACE + PAGE, 12, Rights::R), MAP, 0, 0]);
        let ended = world.threads[3];
        world.call(Call::ThreadDelete, [ended, 0, 0, 0, 0, 0]);
        let thread = world.value(Call::ThreadCreate, [id, 0x40_0000, 0x7d_0000, 0, 5, 0]);
        assert_eq!(thread as u16, ended as u16, "the same place");
        assert_ne!(thread, ended);
        while world.next() != Some(thread) {
            world.kernel.yield_current();
        }
        world.call(Call::Ipc, [0, ANYONE, 0, NEVER.into(), fpage(PLACE, 12, Rights::R), 0]);
        assert!(world.next().is_some());
        while world.next() != Some(world.threads[0]) {
            world.kernel.yield_current();
        }
        let context = &mut world.kernel.current_thread_mut().expect("it runs").context;
        [context.r12, context.r13] = [source, MAP];
        world.call(Call::Ipc, [ended, ANYONE, tag(0, 0, 1), NEVER.into(), 0, 0]);
        assert_eq!(world.next(), Some(world.threads[0]));
        let context = &world.kernel.current_thread_mut().expect("it runs").context;
        assert_eq!(context.rax, Error::NoSuchThread as u64);
        assert!(!paging::is_present(world.entry(space, PLACE).1));
        assert_eq!(world.kernel.threads().get(ThreadId(thread)).state, State::Receiving);
    }
}

/// A thread that waits for the answer to an exception has touched no page: an item in the answer is refused on both paths.
#[test]
fn an_answer_to_an_exception_gives_no_page() {
    for way in [Way::General, Way::ShortFirst] {
        let mut world = World::new(way, false);
        let (id, space) = world.spaces[1];
        let [pager, thread] = [1, 3].map(|number| world.threads[number]);
        world.call(Call::SpaceControl, [id, pager, pager, 0, 0, 0]);
        let page = |base: u64| fpage(base, 12, Rights::R);
        let source = page(u64::from(FIRST) * PAGE);
        // This page makes the tables: the fast path has none to make.
        world.call(Call::Map, [source, id, page(PAGE), MAP, 0, 0]);
        for from in [pager, ANYONE] {
            world.call(Call::Ipc, [0, from, 0, NEVER.into(), 0, 0]);
            world.next();
        }
        let context = &mut world.kernel.current_thread_mut().expect("it runs").context;
        (context.vector, context.error) = (13, 5);
        let raised = Event::Exception {
            thread: ThreadId(thread),
            kind: 0,
            address: 0,
        };
        assert_eq!(world.kernel.nucleus_event(raised), Outcome::Gone);
        assert_eq!(world.next(), Some(pager));
        let context = &mut world.kernel.current_thread_mut().expect("it runs").context;
        [context.r12, context.r13] = [source, MAP];
        world.call(Call::Ipc, [thread, ANYONE, tag(0, 0, 1), NEVER.into(), 0, 0]);
        assert_eq!(world.next(), Some(pager));
        let context = &world.kernel.current_thread_mut().expect("it runs").context;
        assert_eq!(context.rax, Error::Protection as u64);
        assert!(!paging::is_present(world.entry(space, 0).1));
        assert_eq!(world.kernel.threads().get(ThreadId(thread)).state, State::Receiving);
    }
}
