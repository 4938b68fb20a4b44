//! Servers for which other threads wait. Two machines do the same, one of them on the fast paths wherever they lead. Nothing tells them apart: threads,
//! registers, buffers, and the order in which threads wait and run are the same.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::nucleus::{ANYONE, Call, NEVER, tag};
use kcore::{Hardware, SpaceId, ThreadId, paging, thread::State};

use crate::{
    fake::Random,
    ways::{Machine, Picture, Short, Way, picture},
};

struct World {
    machine: Machine,
    spaces: Vec<(u64, SpaceId)>,
    threads: Vec<u64>,
    /// The thread that each thread called last.
    awaits: std::collections::HashMap<u64, u64>,
}

impl World {
    fn new(way: Way) -> Self {
        let (machine, root, first) = Machine::new(way, true, 400);
        let mut world = Self {
            machine,
            spaces: vec![(0, root)],
            threads: vec![first],
            awaits: std::collections::HashMap::new(),
        };
        let pager = world
            .machine
            .value(Call::ThreadCreate, [0, 0x40_0000, 0x7e_0000, 0, 5, 0]);
        world.threads.push(pager);
        for number in 0..3 {
            let supervisor = if number == 2 { pager } else { 0 };
            let space = world
                .machine
                .value(Call::SpaceCreate, [4000, pager, 0, supervisor, 0, 0]);
            world.spaces.push((space, SpaceId(space as u32 & 0xffff)));
            for priority in [3, 4, 5, 5] {
                world.create(space, priority);
            }
        }
        world.machine.call(Call::InterruptBind, [4, pager, 0, 0, 0, 0]);
        let server = world.threads[2];
        world.machine.call(Call::InterruptBind, [5, server, 0, 0, 0, 0]);
        world
    }

    fn create(&mut self, space: u64, priority: u64) {
        let made = [space, 0x40_0000, 0x7d_0000, 0, priority, 0];
        let thread = self.machine.value(Call::ThreadCreate, made);
        self.threads.push(thread);
    }

    fn buffer(&self, thread: u64) -> Option<&[AtomicU64; 512]> {
        let index = self.machine.kernel.threads().find(ThreadId(thread))?;
        let space = self.machine.kernel.threads().table[index as usize].space;
        let (_, entry) = self.machine.entry(space, abi::nucleus::message_buffer(thread));
        Some(self.machine.kernel.hardware.table(paging::frame_of(entry)))
    }

    /// Of each thread that is there, also the marks that keep it from the fast paths.
    fn pictures(&self) -> Vec<Option<(Picture, u32)>> {
        let threads = self.machine.kernel.threads();
        let thread = |&id: &u64| {
            let thread = &threads.table[threads.find(ThreadId(id))? as usize];
            Some((picture(thread), thread.slow))
        };
        self.threads.iter().map(thread).collect()
    }
}

/// The vector registers of the thread that runs next must be the same on both machines.
fn units(worlds: &mut [World; 2], context: &str) {
    let [first, second] = worlds.each_mut().map(|world| {
        let kernel = &mut world.machine.kernel;
        let me = kernel.current()?;
        kernel.vectors_follow(me);
        Some(kernel.hardware.unit[0])
    });
    assert_eq!(first, second, "{context}: vectors");
}

enum Step {
    Call(Call, [u64; 6]),
    Interrupt(usize),
    Pass(u64),
    Delete(usize),
}

impl World {
    fn state(&self, id: u64) -> Option<State> {
        let threads = self.machine.kernel.threads();
        let index = threads.find(ThreadId(id))?;
        Some(threads.table[index as usize].state)
    }

    /// Mostly a thread in a wanted state, sometimes any thread.
    fn pick(&self, random: &mut Random, wanted: impl Fn(State) -> bool) -> u64 {
        let is_wanted = |&id: &u64| self.state(id).is_some_and(&wanted);
        let all: Vec<u64> = self.threads.iter().copied().filter(is_wanted).collect();
        let any = self.threads[random.below(self.threads.len())];
        if random.below(8) == 0 || all.is_empty() {
            any
        } else {
            all[random.below(all.len())]
        }
    }

    /// A thread that waits for an answer of this thread, or 0.
    fn caller_of(&self, random: &mut Random, thread: u64) -> u64 {
        let waits = |&id: &u64| self.state(id) == Some(State::Receiving) && self.awaits.get(&id) == Some(&thread);
        let all: Vec<u64> = self.threads.iter().copied().filter(waits).collect();
        if all.is_empty() {
            0
        } else {
            all[random.below(all.len())]
        }
    }

    /// The running thread, its place, and whether it is one of the two servers.
    fn running(&self) -> (u64, u32, bool) {
        let me = self.machine.kernel.current().expect("one runs");
        let id = self.machine.kernel.threads().table[me as usize].id.0;
        (id, me, self.threads[1..3].contains(&id))
    }
}

/// Mostly the tag of a message of words alone, sometimes any word.
fn label(random: &mut Random) -> u64 {
    let words = match random.below(4) {
        0 => random.below(5),
        1 => 60 + random.below(6),
        _ => random.below(65),
    } as u64;
    if random.below(60) == 0 {
        random.next()
    } else {
        tag(random.next() >> 40, words, 0)
    }
}

/// A server answers and waits for the next call, or a client calls a server.
fn usual_step(random: &mut Random, world: &World) -> Step {
    let (mine, me, is_server) = world.running();
    let (label, window) = (label(random), random.next());
    let receive = if is_server || random.below(4) > 0 {
        NEVER
    } else {
        [NEVER, NEVER, 0, 100, 1000, 3000][random.below(6)]
    };
    let timeouts = u64::from(NEVER) << 32 | u64::from(receive);
    let (to, from) = if is_server {
        let queued = world.pick(random, |state| state == State::Sending(me));
        let by_name = random.below(3) == 0 && world.state(queued) == Some(State::Sending(me));
        (world.caller_of(random, mine), if by_name { queued } else { ANYONE })
    } else {
        let to = world.threads[1 + random.below(2)];
        (to, [to, to, to, to, to, to, 0, ANYONE][random.below(8)])
    };
    Step::Call(Call::Ipc, [to, from, label, timeouts, window, 0])
}

fn step(random: &mut Random, world: &World) -> Step {
    if random.below(16) > 0 {
        return usual_step(random, world);
    }
    let (_, me, _) = world.running();
    let machine = &world.machine;
    let is_root = machine.kernel.threads().table[me as usize].space == world.spaces[0].1;
    let (label, window) = (label(random), random.next());
    let send = [NEVER, NEVER, NEVER, 0, 200][random.below(5)];
    let receive = [NEVER, NEVER, 0, 100, 1000, 3000][random.below(6)];
    let timeouts = u64::from(send) << 32 | u64::from(receive);
    let queued = |random: &mut Random| world.pick(random, |state| state == State::Sending(me));
    let (to, from) = match random.below(24) {
        0 => return Step::Interrupt(4 + random.below(2)),
        1 => return Step::Pass(random.below(3000) as u64),
        2 if is_root => return Step::Delete(2 + random.below(world.threads.len() - 2)),
        2 => return Step::Call(Call::Yield, [0; 6]),
        3 => (0, ANYONE),
        4 => (0, queued(random)),
        // A call, mostly of one of two servers.
        5..13 => {
            let to = match random.below(4) {
                0 => world.pick(random, |_| true),
                1 => world.threads[1],
                _ => world.threads[2],
            };
            (to, [to, to, to, to, 0, ANYONE][random.below(6)])
        }
        // An answer, to a thread that waits for a message.
        _ => {
            let to = world.pick(random, |state| state == State::Receiving);
            let from = match random.below(8) {
                0 => to,
                1..4 => queued(random),
                4 => 5 + random.below(2) as u64,
                _ => ANYONE,
            };
            (to, from)
        }
    };
    Step::Call(Call::Ipc, [to, from, label, timeouts, window, 0])
}

/// One step of both machines.
struct Turn {
    step: Step,
    /// The words of the message: in registers, and mixed with the number of the step in the buffer.
    words: [u64; 4],
    number: u64,
    uses_vectors: bool,
}

impl World {
    /// Puts the words into the registers and the buffer of the running thread.
    fn prepare(&mut self, turn: &Turn) {
        let Some(thread) = self.machine.kernel.current_thread_mut() else {
            return;
        };
        let context = &mut thread.context;
        [context.r12, context.r13, context.r14, context.r15] = turn.words;
        let id = thread.id.0;
        for (at, word) in self.buffer(id).expect("its").iter().enumerate().skip(4).take(70) {
            word.store(turn.words[0] ^ (turn.number << 8 | at as u64), Relaxed);
        }
        let kernel = &mut self.machine.kernel;
        let me = kernel.current().expect("it runs");
        kernel.vectors_follow(me);
        if turn.uses_vectors {
            if kernel.hardware.unit[0].is_none() {
                kernel.vectors_begin().expect("room");
            }
            kernel.hardware.unit[0] = Some(turn.words[1]);
        }
    }

    fn does(&mut self, step: &Step) {
        match *step {
            Step::Call(call, arguments) => {
                let me = self.machine.kernel.current_thread_mut().expect("it runs").id.0;
                self.awaits.insert(me, arguments[0]);
                self.machine.call(call, arguments);
            }
            Step::Interrupt(number) => self.machine.interrupt(number),
            Step::Pass(us) => {
                let kernel = &mut self.machine.kernel;
                kernel.hardware.now_ns += us * 1000;
                if kernel.tick() || kernel.should_preempt() {
                    kernel.yield_current();
                }
            }
            Step::Delete(index) => {
                let victim = self.threads[index];
                self.machine.call(Call::ThreadDelete, [victim, 0, 0, 0, 0, 0]);
            }
        }
    }
}

/// All threads, their registers, vector units and buffers must be the same.
fn compare(worlds: &mut [World; 2], context: &str) {
    let [general, quick] = &*worlds;
    assert_eq!(general.pictures(), quick.pictures(), "{context}");
    units(worlds, context);
    let [general, quick] = &*worlds;
    for &id in &general.threads {
        if let (Some(a), Some(b)) = (general.buffer(id), quick.buffer(id)) {
            let mut words = a.iter().zip(b).take(80);
            let same = words.all(|(a, b)| a.load(Relaxed) == b.load(Relaxed));
            assert!(same, "{context}: the buffer of {id:#x}");
        }
    }
}

#[test]
fn busy_servers_do_what_the_general_way_does() {
    let (mut answers, mut waits) = (0, 0);
    for seed in 0..400 {
        let mut random = Random(seed);
        let mut worlds = [Way::General, Way::ShortFirst].map(World::new);
        for world in &mut worlds {
            world.machine.kernel.hardware.has_quick_vectors = seed % 5 > 0;
        }
        let mut idle = 0;
        for number in 0..500_u64 {
            let context = format!("seed {seed}, step {number}");
            let turns = worlds.each_mut().map(|world| world.machine.next());
            assert_eq!(turns[0], turns[1], "{context}");
            let step = match turns[0] {
                Some(_) => step(&mut random, &worlds[0]),
                None if idle > 3 => break,
                None if idle % 2 == 0 => Step::Interrupt(4 + (number % 2) as usize),
                None => Step::Pass(2000),
            };
            idle = if turns[0].is_some() { 0 } else { idle + 1 };
            let turn = Turn {
                step,
                words: std::array::from_fn(|_| random.next()),
                number,
                uses_vectors: random.below(3) == 0,
            };
            for world in &mut worlds {
                world.prepare(&turn);
                world.does(&turn.step);
                if number % 4 == 0 {
                    assert_eq!(world.machine.kernel.check_messages(), Ok(()), "{context}");
                }
                world.machine.next();
            }
            compare(&mut worlds, &context);
        }
        answers += worlds[1].machine.short[Short::Over as usize];
        waits += worlds[1].machine.short[Short::Waits as usize];
    }
    assert!(answers > 4000 && waits > 8000, "{answers} answers, {waits} waits");
}
