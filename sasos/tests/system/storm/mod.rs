//! Short memory and a disk that fails, both at once, and then rest.
//!
//! Several threads of the first task read, write, create, keep, delete, resize, clone, copy, drop, limit and flush pages of objects, with checkpoints beside
//! it, in a machine with few frames. For a while requests to the disk fail. Then the disk works again and nobody begins anything:
//! every call must return and every fault be resolved, a checkpoint must succeed, every page must be readable and writable, and hold what a model says, also
//! after a power cut.
//!
//! `GOND_SEED` repeats one seed, `GOND_SEEDS` sets how many there are, `GOND_FROM` the first of them.

mod acts;
mod model;

use std::collections::BTreeSet;

use abi::{
    Call, Error, Rights,
    address::{FIRST_PROGRAM, PAGE},
    layout::{
        CLIST_MAGIC, CLIST_VERSION, CONTROL_CHECKPOINT, Capability, ClistHeader, EXCEPTION_DAMAGED, EXCEPTION_RESOURCE,
        RESUME_RETRY,
    },
};
use kcore::{Machine, ThreadId};
use sim::{machine::Touch, rng::Rng, seeds};

use crate::harness::{Answer, ENTRY, RETRIES, System, Trouble};
use model::{Doing, Effect, Model, Thing};

/// Seeds, unless `GOND_SEEDS` says otherwise.
const SEEDS: u64 = 300;
/// Threads beside the first one.
const OTHERS: usize = 4;
/// Objects at most.
const THINGS: usize = 10;
/// Frames that the pager leaves to tables and the store.
const FRAME_RESERVE: u64 = 64;
/// Frames that transient objects leave for page tables and what is being read, where they do not crowd everything else out.
const LEFT: u64 = 24;
/// Free blocks below which the disk is full for pages that are rewritten.
const FULL: u64 = 24;
/// Checkpoints of which one must succeed when the disk works again.
const CHECKPOINTS: usize = 2;

/// How many acts of a storm failed, by cause.
#[derive(Copy, Clone, Debug, Default)]
struct Failures {
    memory: u64,
    disk: u64,
}

struct Actor {
    thread: ThreadId,
    doing: Option<Doing>,
}

struct Storm {
    system: System,
    rng: Rng,
    actors: Vec<Actor>,
    model: Model,
    clist: u64,
    /// Whether transient objects may take nearly all, and how much.
    is_crowded: bool,
    room: u64,
    has_replacement: bool,
    next: u64,
    /// Whether the disk works again, so that nothing fails any more.
    is_over: bool,
    /// The address and kind of the last fault that could not be resolved, and those that told of the disk behind the storm.
    fault: Option<(u64, u64)>,
    told: BTreeSet<u64>,
    failures: Failures,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x0570_2a11);
        let frames = 130 + rng.below(170) as u32;
        let blocks = *rng.pick(&[700, 1500, 4096]);
        let mut system = System::boot_with(seed, frames, blocks);
        system.server.price_calls(rng.below(crate::harness::PRICES[1] + 1));
        let first = system.first;
        let (clist, _) = system.clist(first, &[]);
        system.call(first, Call::ApdInsert, &[0, clist]).unwrap();
        for kind in [EXCEPTION_RESOURCE, EXCEPTION_DAMAGED] {
            system
                .call(first, Call::ExcptReg, &[kind, FIRST_PROGRAM + ENTRY])
                .unwrap();
        }
        let mut actors = vec![Actor {
            thread: first,
            doing: None,
        }];
        for _ in 0..OTHERS {
            let (thread, _) = system
                .call(first, Call::ThreadCreate, &[FIRST_PROGRAM + ENTRY, 0, 3])
                .expect("a thread");
            actors.push(Actor {
                thread: ThreadId(thread),
                doing: None,
            });
        }
        let is_crowded = rng.one_in(3);
        let free = system.platform.frames_free().saturating_sub(FRAME_RESERVE);
        let room = if is_crowded {
            free.saturating_sub(rng.below(LEFT)) * (1 + rng.below(2))
        } else {
            free.saturating_sub(LEFT) / 2
        };
        Self {
            system,
            actors,
            model: Model::new(THINGS),
            clist,
            is_crowded,
            room,
            has_replacement: !rng.one_in(3),
            next: 1,
            is_over: false,
            fault: None,
            told: BTreeSet::new(),
            failures: Failures::default(),
            rng,
        }
    }

    fn begin(&mut self, actor: usize, doing: Doing) {
        self.model.begins(&doing);
        if let Doing::Call(call, arguments, _) = doing {
            let answer = self.system.raw_call(self.actors[actor].thread, call as u64, arguments);
            self.actors[actor].doing = Some(doing);
            if answer != Answer::Blocked {
                self.answered(actor, answer);
            }
        } else {
            self.actors[actor].doing = Some(doing);
        }
    }

    /// A call is over.
    fn answered(&mut self, actor: usize, answer: Answer) {
        let Answer::Done(result) = answer else {
            panic!("{:?} ended in {answer:?}", self.actors[actor].doing);
        };
        let Some(Doing::Call(call, arguments, effect)) = self.end(actor) else {
            panic!("no call is under way");
        };
        match result {
            Ok(values) => {
                let made = self.model.takes_effect(effect, values);
                if matches!(effect, Effect::Create(_))
                    && let Some(number) = made.filter(|_| !self.rng.one_in(4))
                {
                    self.begin(actor, Doing::Note(number));
                }
            }
            Err(
                error @ (Error::NoMemory
                | Error::DiskError
                | Error::DiskFull
                | Error::LimitReached
                | Error::TableFull
                | Error::CannotGrow
                | Error::InUse),
            ) => {
                self.failures.memory += u64::from(error == Error::NoMemory);
                self.failures.disk += u64::from(error == Error::DiskError);
                if let Some(number) = self.model.fails(effect) {
                    let pages = self.length_of(number);
                    self.model.has_length(number, pages);
                }
            }
            Err(error) => panic!("{call:?} {arguments:x?} {effect:?}: {error:?}"),
        }
    }

    /// The act of a thread is over.
    fn end(&mut self, actor: usize) -> Option<Doing> {
        let doing = self.actors[actor].doing.take()?;
        self.model.ends(&doing);
        Some(doing)
    }

    /// The pages of an object, if it is there. Another one may have its address by now.
    fn length_of(&self, number: usize) -> Option<u64> {
        let Thing { base, password, .. } = self.model.things[number].as_ref()?;
        let server = &self.system.server;
        let object = server.objects.get(server.objects.find(*base)?);
        (object.rights_of(*password) == Rights::OWNER).then_some(object.record.pages)
    }

    /// A thread does one thing, if it can.
    fn act(&mut self, actor: usize) {
        let thread = self.actors[actor].thread;
        match self.actors[actor].doing.clone() {
            None if self.is_over => {}
            None => {
                if let Some(doing) = self.draw() {
                    self.begin(actor, doing);
                }
            }
            Some(Doing::Call(..)) => {
                if let Some(answer) = self.system.over(thread) {
                    self.answered(actor, answer);
                }
            }
            Some(_) if !self.system.is_able(thread) => {}
            Some(Doing::Note(number)) => {
                let Thing { base, password, .. } = *self.model.thing(number);
                let capability = Capability {
                    address: base,
                    password,
                };
                let Some(frame) = self.touched(actor, self.clist, Touch::Write) else {
                    return;
                };
                let header = ClistHeader {
                    magic: CLIST_MAGIC,
                    version: CLIST_VERSION,
                    flags: 0,
                    count: self.model.things.len() as u64,
                };
                let (head, entry) = (header.to_bytes(), capability.to_bytes());
                self.system.platform.frame_write(frame, 0, &head);
                self.system
                    .platform
                    .frame_write(frame, head.len() + number * entry.len(), &entry);
                self.model.thing(number).noted = true;
                let base = self.model.thing(number).base;
                self.end(actor);
                let arguments = [base, 0, 0, 0, 0, 0];
                self.begin(actor, Doing::Call(Call::KeepObject, arguments, Effect::Keep(number)));
            }
            Some(Doing::Touch(number, page, count, value)) => {
                let address = self.model.thing(number).base + page as u64 * PAGE;
                let touch = if value.is_some() { Touch::Write } else { Touch::Read };
                let Some(frame) = self.touched(actor, address, touch) else {
                    return;
                };
                self.has_page(number, page, frame, value);
                if count == 1 {
                    self.end(actor);
                } else {
                    self.actors[actor].doing = Some(Doing::Touch(number, page + 1, count - 1, value));
                }
            }
        }
    }

    /// A thread touches an address: the frame, if it has it now. If it cannot have it, it does not go on with what it does.
    fn touched(&mut self, actor: usize, address: u64, touch: Touch) -> Option<kcore::Frame> {
        let thread = self.actors[actor].thread;
        // It goes on at once, unless it waits.
        let mut touched = Ok(None);
        for tries in 0.. {
            touched = self.system.try_touch(thread, address, touch);
            if !matches!(touched, Ok(None)) || !self.system.is_able(thread) {
                break;
            }
            assert!(
                tries < RETRIES,
                "the fault at {address:#x} is made again for ever; {}",
                self.state()
            );
        }
        match touched {
            Ok(frame) => frame,
            Err(Trouble::Ended) => panic!("{thread:?} ended at {address:#x}"),
            Err(Trouble::Elsewhere) => {
                let context = self.system.platform.thread_context(thread);
                let kind = context.rdi;
                assert!(kind == EXCEPTION_RESOURCE || kind == EXCEPTION_DAMAGED);
                self.failures.memory += u64::from(kind == EXCEPTION_RESOURCE);
                self.failures.disk += u64::from(kind == EXCEPTION_DAMAGED);
                self.fault = Some((address, kind));
                let back = self.system.start(thread, Call::ExcptReturn, &[RESUME_RETRY, 0]);
                assert_eq!(back, Answer::Elsewhere);
                self.end(actor);
                None
            }
        }
    }

    /// A page is there, and is read or written.
    fn has_page(&mut self, number: usize, page: usize, frame: kcore::Frame, value: Option<u64>) {
        let platform = &mut self.system.platform;
        let mut bytes = [0; 8];
        platform.frame_read(frame, 0, &mut bytes);
        let found = u64::from_le_bytes(bytes);
        if let Some(value) = value {
            platform.frame_write(frame, 0, &value.to_le_bytes());
        }
        self.model.has(number, page, found, value);
    }

    fn step(&mut self) {
        match self.rng.below(10) {
            0..6 => {
                let actor = self.rng.below(self.actors.len() as u64) as usize;
                self.act(actor);
            }
            6..9 => drop(self.system.step()),
            _ => {
                let ns = self.rng.below(400_000_000);
                self.system.pass(ns);
            }
        }
    }

    /// The disk works again: everything that was begun comes to its end.
    fn rest(&mut self) {
        self.system.platform.disk.set_failing(0);
        // A call that began in the storm may still be told that the disk failed.
        for _ in 0..RETRIES {
            if self.actors.iter().all(|actor| actor.doing.is_none()) {
                break;
            }
            for actor in 0..self.actors.len() {
                if self.actors[actor].doing.is_some() {
                    self.act(actor);
                }
            }
            if !self.system.step() {
                self.system.pass(1_000_000);
            }
        }
        for actor in &self.actors {
            assert!(
                actor.doing.is_none(),
                "{:?} does not come to its end: {:?}; {}",
                actor.doing,
                self.system.platform.kernel.threads().table[actor.thread.index()].state,
                self.state()
            );
        }
    }

    fn state(&self) -> String {
        let system = &self.system;
        let objects = system.server.objects.iter();
        let objects = objects.map(|(_, object)| (object.is_persistent(), object.resident, object.dirty, object.leaves));
        let objects: Vec<_> = objects.filter(|object| object.1 + object.3 > 0).collect();
        let log = system.log();
        format!(
            "{objects:?} {} of {} frames free, {} under way, {} reads, {:?}, {:?}, {:?}",
            system.platform.frames_free(),
            system.platform.frames_total(),
            system.platform.disk.under_way(),
            system.server.pager.reads(),
            system.server.store.stats(),
            system.server.store_report(),
            log.last_chunk::<4>()
        )
    }

    fn checkpoint(&mut self, tries: usize) {
        let first = self.system.first;
        let mut answers = Vec::new();
        for _ in 0..tries {
            let answer = self.system.call(first, Call::SystemControl, &[CONTROL_CHECKPOINT, 0]);
            if answer.is_ok() {
                return;
            }
            answers.push(answer);
        }
        panic!("no checkpoint succeeds: {answers:?}; {}", self.state());
    }

    /// The first thread touches a page, which works. It may be told once of a read that failed in the storm.
    fn visit(&mut self, number: usize, page: usize, value: Option<u64>) {
        self.fault = None;
        self.begin(0, Doing::Touch(number, page, 1, value));
        for _ in 0..RETRIES {
            self.act(0);
            if self.actors[0].doing.is_none() {
                let Some((address, kind)) = self.fault.take() else {
                    return;
                };
                if kind == EXCEPTION_DAMAGED && self.told.insert(address) {
                    self.begin(0, Doing::Touch(number, page, 1, value));
                    continue;
                }
                let stats = self.system.server.store.stats();
                if value.is_some() && stats.free < stats.reserved + FULL {
                    return;
                }
                panic!("the fault at {address:#x} fails: kind {kind}; {}", self.state());
            }
            if !self.system.is_able(self.system.first) && !self.system.step() {
                self.system.pass(1_000_000);
            }
        }
        panic!(
            "a fault is never resolved: {:?}; {}",
            self.actors[0].doing,
            self.state()
        );
    }

    /// Everything is as the model has it, and can be used.
    fn check(mut self) {
        self.is_over = true;
        let first = self.system.first;
        // The right to a checkpoint must be found again, for which a Clist may have to be read.
        self.system.call(first, Call::ApdFlush, &[]).unwrap();
        if self.is_crowded {
            // There may be no memory for anything. It comes back with those who have taken it.
            let checkpoints = |system: &mut System| system.call(first, Call::SystemControl, &[CONTROL_CHECKPOINT, 0]);
            let mut answer = checkpoints(&mut self.system);
            if answer == Err(Error::DiskError) {
                // That of one which began in the storm.
                answer = checkpoints(&mut self.system);
            }
            assert!(
                answer.is_ok() || matches!(answer, Err(Error::NoMemory | Error::LimitReached)),
                "{answer:?}"
            );
            for number in 0..self.model.things.len() {
                if let Some(thing) = self.model.things[number].take_if(|thing| !thing.kept) {
                    let answer = self.system.call(first, Call::ObjDelete, &[thing.base]);
                    assert_eq!(answer, Ok((0, 0)), "{}", self.state());
                }
            }
        }
        self.checkpoint(CHECKPOINTS);
        let visits: Vec<_> = (0..self.model.things.len())
            .flat_map(|number| {
                let thing = self.model.things[number].as_ref();
                let (kept, pages) = thing.map_or((false, &[][..]), |thing| (thing.kept, &thing.pages));
                let pages = pages.iter().enumerate().filter(move |(_, page)| kept || page.touched);
                pages.map(move |(page, _)| (number, page))
            })
            .collect();
        for &(number, page) in &visits {
            self.visit(number, page, None);
        }
        for &(number, page) in visits.iter().step_by(5) {
            self.next += 1;
            self.visit(number, page, Some(self.next));
        }
        self.checkpoint(1);
        self.system.check();
        let Self { system, model, .. } = self;
        let disk = system.platform.disk.crash(&[], Rng::new(1));
        system.check_to_the_end();
        let kept: Vec<_> = model.things.into_iter().flatten().filter(|thing| thing.kept).collect();
        let mut system = System::mount(disk, 4096, Rng::new(2));
        let first = system.first;
        let list: Vec<_> = kept.iter().map(|thing| (thing.base, thing.password)).collect();
        let (clist, _) = system.clist(first, &list);
        system.call(first, Call::ApdInsert, &[0, clist]).unwrap();
        for thing in &kept {
            for (number, page) in thing.pages.iter().enumerate() {
                let found = system.word(first, thing.base + number as u64 * PAGE);
                assert_eq!(
                    found,
                    Ok(page.now[0]),
                    "page {number} of {:#x} behind a power cut",
                    thing.base
                );
            }
        }
        let stats = system.server.store.stats();
        assert_eq!(stats.damaged, 0);
    }
}

fn run(seed: u64) -> Failures {
    let mut storm = Storm::new(seed);
    let rate = *storm.rng.pick(&[2, 3, 4, 8, 16, 64]);
    for _ in 0..300 + storm.rng.below(600) {
        storm.step();
    }
    for _ in 0..=storm.rng.below(3) {
        storm.system.platform.disk.set_failing(rate);
        for _ in 0..storm.rng.below(800) {
            storm.step();
        }
        storm.system.platform.disk.set_failing(0);
        for _ in 0..storm.rng.below(400) {
            storm.step();
        }
    }
    storm.rest();
    let failures = storm.failures;
    storm.check();
    failures
}

#[test]
fn a_storm_comes_to_rest() {
    let Some(runs) = seeds::run(SEEDS, run) else { return };
    let mut all = Failures::default();
    for failures in runs {
        all.memory += failures.memory;
        all.disk += failures.disk;
    }
    assert!(all.memory > 0 && all.disk > 0, "that was no storm: {all:?}");
}
