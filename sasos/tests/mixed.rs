//! Pieces of calls by several programs, in any order.
//!
//! Each thread of some programs has a call under way, or a page that it wants, and gets one event of it at a time. They work on objects of an earlier start, of the first task, and
//! of programs that live or have ended, with little memory and small bounds, and on a disk that fails in a third of the runs. The server is checked all the time; no call and no fault goes
//! on for ever; a clone has the limits of its source; and when all programs and objects have gone, nothing is charged to programs.
//!
//! `GOND_SEED` repeats one seed, `GOND_SEEDS` sets how many there are, `GOND_FROM` the first of them.

mod common;

use abi::{
    Call, Error, Rights,
    address::{PAGE, SLOT},
    layout::{UNMAP_REPLACE, UNMAP_ZERO},
};
use common::{Actor, Rig};
use kcore::{outside::Remote, thread::Resumed};
use sasos::{
    Access, Event, Outcome,
    accounts::{AccountId, RESOURCE_LIST, Resource, UNLIMITED},
    protection::apd::Apd,
};
use sim::{rng::Rng, seeds};

/// Runs, unless `GOND_SEEDS` says otherwise, and the steps of one.
const SEEDS: u64 = 60;
const STEPS: u32 = 3000;
/// The password of each object.
const PASSWORD: u64 = 9;
/// Threads of programs at a time, and objects that one has of its own.
const THREADS: usize = 10;
const OWN: usize = 6;
/// Events of one call or fault until it counts as one without an end.
const PATIENCE: u32 = 60_000;
/// Blocks that may be promised at the end.
const RESERVED: u64 = 60;

const R: u64 = Rights::R.bits() as u64;

/// A call under way, or a page that is wanted.
#[derive(Copy, Clone)]
enum Doing {
    Nothing,
    Calls(Call, [u64; 6], Resumed),
    Wants(u64, Access),
}

struct Player {
    actor: Actor,
    /// Objects that it has not kept.
    own: Vec<u64>,
    /// A page for entries of procedures.
    list: u64,
    doing: Doing,
    events: u32,
}

struct Mix {
    rig: Rig,
    rng: Rng,
    programs: AccountId,
    first: Actor,
    /// Kept objects.
    objects: Vec<u64>,
    /// Those of an earlier start whose limits nobody changes, and how many of their odd pages are limited.
    limited: Vec<(u64, u64)>,
    players: Vec<Player>,
    may_fail: bool,
    clones: u32,
}

impl Mix {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x03c1_39ed);
        let frames = {
            let most = *rng.pick(&[700, 6000]);
            300 + rng.below(most) as u32
        };
        let mut rig = Rig::new(seed, frames + 1200, *rng.pick(&[3000, 9000, 60_000]));
        let owner = rig.actor(Apd::EMPTY);
        let (mut objects, mut limited) = (Vec::new(), Vec::new());
        for number in 0..6 {
            let slots = *rng.pick(&[1, 2, 3, 40, 300]);
            let base = rig.kept(owner, slots * SLOT / PAGE, PASSWORD);
            for slot in (0..slots).step_by(1 + (slots / 6) as usize) {
                rig.store(owner.space, base + slot * SLOT, slot + 7).expect("a page");
            }
            let limits = rng.below(20);
            for place in 0..limits {
                let page = base + (1 + 2 * place) * PAGE;
                rig.call(owner, Call::PageLimit, &[page, 1, R]).expect("its own");
                if rng.one_in(4) {
                    rig.store(owner.space, page + PAGE, 5).expect("a page");
                }
            }
            if number < 3 {
                limited.push((base, limits));
            }
            objects.push(base);
        }
        rig.checkpoint().expect("a checkpoint");
        let (mut rig, _) = rig.crash();
        rig.world.kernel.hardware.heap_left = (10 + rng.below(40)) << 18;
        let (first, programs) = rig.first_task();
        rig.server.price_calls(rng.below(Remote::<()>::CALL + 1));
        for _ in 0..3 {
            let base = rig.kept(first, *rng.pick(&[1, 2, 30, 200]) * SLOT / PAGE, PASSWORD);
            if rng.one_in(2) {
                rig.store(first.space, base, 3).expect("a page");
            }
            objects.push(base);
        }
        rig.gets(first, &objects, PASSWORD);
        let mut limits = rig.server.ledger.limits(programs);
        let mut bounds = |resource, more| {
            let limit = &mut limits[resource as usize];
            *limit = (*limit).min(rig.server.ledger.used(programs, resource) + more);
        };
        if rng.one_in(2) {
            bounds(Resource::Tables, 200 + rng.below(800));
        }
        if rng.one_in(3) {
            bounds(Resource::Rows, 4000 + rng.below(40_000));
        }
        rig.server.ledger.set_limits(programs, limits);
        let may_fail = rng.one_in(3);
        Self {
            rig,
            rng,
            programs,
            first,
            objects,
            limited,
            players: Vec::new(),
            may_fail,
            clones: 0,
        }
    }

    /// A program begins, or a child of one, with one thread or two. It may be refused.
    fn begins(&mut self) {
        let parent = match self.players.len() as u64 {
            many if many > 0 && self.rng.one_in(3) => {
                let task = self.players[self.rng.below(many) as usize].actor.task;
                self.rig.server.tasks.get(task).expect("it lives").account
            }
            _ => self.programs,
        };
        let mut limits = UNLIMITED;
        if self.rng.one_in(3) {
            limits[Resource::Frames as usize] = 60 + self.rng.below(600);
        }
        let rig = &mut self.rig;
        let Ok(actor) = rig.may_begin(parent, limits, &self.objects, PASSWORD) else {
            return;
        };
        let task = actor.task;
        let Ok(list) = page_of(rig, actor) else {
            rig.server.task_kill(task, 1);
            return;
        };
        let mut threads = vec![actor.thread];
        if self.rng.one_in(2) {
            threads.extend(rig.server.thread_make(&mut rig.world, task, None, 0x1_0000_0000, 0, 3));
        }
        self.players.extend(threads.into_iter().map(|thread| Player {
            actor: Actor { thread, ..actor },
            own: Vec::new(),
            list,
            doing: Doing::Nothing,
            events: 0,
        }));
    }

    /// Leaves out the threads and objects that are gone.
    fn forgets(&mut self) {
        let Self {
            rig, players, objects, ..
        } = self;
        players.retain(|player| rig.lives(player.actor));
        objects.retain(|&base| rig.server.object_at(&mut rig.world, base).is_ok());
    }

    /// How many pages an object has.
    fn pages(&mut self, base: u64) -> u64 {
        let found = self.rig.server.object_at(&mut self.rig.world, base);
        found.map_or(1, |id| self.rig.server.objects.get(id).record.pages)
    }

    /// Something for a thread to do.
    fn chooses(&mut self, which: usize) -> Doing {
        let Player { own, list, actor, .. } = &self.players[which];
        let (own, list, space) = (own.clone(), *list, actor.space);
        let all: Vec<u64> = self.objects.iter().chain(&own).copied().collect();
        if all.is_empty() {
            return Doing::Calls(Call::ObjCreate, [PAGE, PASSWORD, 0, 0, 0, 0], Resumed::First);
        }
        let mine = !own.is_empty() && self.rng.one_in(2);
        let base = *self.rng.pick(if mine { &own } else { &all });
        let other = *self.rng.pick(&all);
        let (pages, room) = (self.pages(base), self.pages(other));
        let rng = &mut self.rng;
        let near = if rng.one_in(2) { pages.min(40) } else { pages };
        let page = rng.below(near);
        let at = base + page * PAGE;
        let most = *rng.pick(&[12, 12, 600]);
        let some = (1 + rng.below(most)).min(pages - page);
        let is_limited = self.limited.iter().any(|&(limited, _)| limited == base);
        let (call, arguments) = match rng.below(20) {
            0 => (
                Call::ObjCreate,
                [*rng.pick(&[1, 2, 130, 513, 1500, 40_000]) * PAGE, PASSWORD, 0, 0],
            ),
            1 => (Call::KeepObject, [*own.first().unwrap_or(&base), 0, 0, 0]),
            2 | 3 if !is_limited || page >= 64 => (Call::PageLimit, [at, some, 4 + rng.below(4), 0]),
            4..7 => {
                let source = if rng.one_in(2) { rng.pick(&self.limited).0 } else { base };
                (Call::ObjClone, [source, rng.below(3) * PAGE, PASSWORD, 0])
            }
            7 if !is_limited => {
                let sizes = [
                    1,
                    100,
                    513,
                    1300,
                    pages + 1,
                    pages.max(2) - 1,
                    pages + 700,
                    pages / 2 + 1,
                ];
                (Call::ObjResize, [base, *rng.pick(&sizes) * PAGE, 0, 0])
            }
            8 => (Call::PageUnMap, [at, some, UNMAP_ZERO, 0]),
            9 => (Call::PageUnMap, [at, some, UNMAP_REPLACE, 0]),
            10 => (Call::PageCopy, [other, at, some.min(room), 0]),
            11 => (Call::PageFlush, [at, some, 0, 0]),
            12 if !is_limited && rng.one_in(3) => (Call::ObjDelete, [base, 0, 0, 0]),
            13 => (Call::ObjPasswd, [base, 100 + rng.below(9), *rng.pick(&[0, R]), 0]),
            14 => {
                let password = 200 + rng.below(3);
                let _ = self.rig.store(space, list, base + (pages - 1) * PAGE);
                return Doing::Calls(Call::ObjCrePdx, [base, password, 0, list, 1, 0], Resumed::First);
            }
            15 if rng.one_in(4) => (Call::ApdFlush, [0; 4]),
            _ => {
                let far = *rng.pick(&[0, 1, 512]) * rng.below(8);
                let access = *rng.pick(&[Access::Read, Access::Write]);
                return Doing::Wants(base + (page + far) % pages * PAGE, access);
            }
        };
        let [one, two, three, four] = arguments;
        Doing::Calls(call, [one, two, three, four, 0, 0], Resumed::First)
    }

    /// A thread has one event.
    fn goes_on(&mut self, which: usize) {
        let actor = self.players[which].actor;
        let doing = self.players[which].doing;
        self.players[which].events += 1;
        assert!(self.players[which].events < PATIENCE, "it never ends");
        match doing {
            Doing::Nothing => {
                let doing = self.chooses(which);
                let player = &mut self.players[which];
                (player.doing, player.events) = (doing, 0);
            }
            Doing::Wants(address, access) => {
                if self.rig.touches(actor, address, access).is_some() {
                    self.players[which].doing = Doing::Nothing;
                }
            }
            Doing::Calls(call, arguments, resumed) => {
                self.players[which].doing = Doing::Calls(call, arguments, Resumed::Woken);
                match self.rig.event(actor, call, arguments, resumed) {
                    Outcome::Return(result) => {
                        self.players[which].doing = Doing::Nothing;
                        if let Ok((value, _)) = result {
                            self.is_done(which, (call, arguments[0]), value);
                        }
                    }
                    Outcome::Block(..) if self.rng.one_in(2) => self.rig.move_disk(),
                    Outcome::Again if self.rng.one_in(40) => self.rig.poll(),
                    _ => {}
                }
            }
        }
        self.forgets();
    }

    /// A call has succeeded.
    fn is_done(&mut self, which: usize, (call, base): (Call, u64), value: u64) {
        let actor = self.players[which].actor;
        if call == Call::ObjClone
            && let Some(&(_, limits)) = self.limited.iter().find(|(source, _)| *source == base)
        {
            self.clones += 1;
            for place in 0..limits {
                let page = value + (1 + 2 * place) * PAGE;
                let written = self.rig.touch(actor.space, page, Access::Write);
                assert!(
                    written.is_err(),
                    "the limit of {page:#x} was lost in a clone of {base:#x}"
                );
            }
        }
        match call {
            Call::ObjCreate | Call::ObjClone => self.players[which].own.push(value),
            Call::KeepObject | Call::ObjDelete => {
                for player in &mut self.players {
                    player.own.retain(|&own| own != base);
                }
                if call == Call::KeepObject && !self.objects.contains(&base) {
                    self.objects.push(base);
                }
            }
            _ => {}
        }
        let player = &mut self.players[which];
        if player.own.len() > OWN {
            let oldest = [player.own[0], 0, 0, 0, 0, 0];
            player.doing = Doing::Calls(Call::ObjDelete, oldest, Resumed::First);
        }
    }

    /// A program ends wherever it is.
    fn ends(&mut self) {
        let task = self.rng.pick(&self.players).actor.task;
        self.players.retain(|player| player.actor.task != task);
        self.rig.server.task_kill(task, 1);
        if self.rng.one_in(2) {
            self.rig.server.finish_ends(&mut self.rig.world);
        }
        self.forgets();
    }

    fn step(&mut self) {
        match self.rng.below(200) {
            _ if self.players.is_empty() => self.begins(),
            0..3 if self.players.len() < THREADS => self.begins(),
            3 => self.ends(),
            4 if self.may_fail => self.rig.world.disk.set_failing(*self.rng.pick(&[0, 0, 4, 20])),
            5 => {
                self.rig.server.checkpoint_request(&mut self.rig.world);
            }
            6..20 => self.rig.move_disk(),
            20..24 => {
                self.rig.server.handle(&mut self.rig.world, Event::Poll);
            }
            24 if self.rng.one_in(3) => {
                self.rig.server.reclaim(&mut self.rig.world);
            }
            _ => {
                let which = self.rng.below(self.players.len() as u64) as usize;
                for _ in 0..=self.rng.below(6) {
                    if which < self.players.len() {
                        self.goes_on(which);
                    }
                }
            }
        }
    }

    /// All programs end and all objects are deleted: nothing is charged to programs then.
    fn over(mut self) {
        while !self.players.is_empty() {
            self.ends();
        }
        self.rig.rests();
        let bases: Vec<u64> = self.rig.server.store.objects().map(|object| object.base).collect();
        for base in bases {
            if self.rig.call(self.first, Call::ObjDelete, &[base]).is_err() {
                let owner = self.rig.actor(Apd::EMPTY);
                self.rig.gets(owner, &[base], PASSWORD);
                self.rig.call(owner, Call::ObjDelete, &[base]).expect("its own");
                self.rig.ends(owner);
            }
        }
        self.rig.rests();
        assert_eq!(self.rig.server.store.objects().count(), 0);
        self.rig.server.ledger.empty_all_hands();
        for resource in RESOURCE_LIST {
            let used = self.rig.server.ledger.used(self.programs, resource);
            assert!(
                used == 0 || resource == Resource::Processor,
                "{used} of {resource:?} are left"
            );
        }
        let reserved = self.rig.server.store.stats().reserved;
        assert!(reserved < RESERVED, "{reserved} blocks are promised to nobody");
    }
}

/// A new page of a program.
fn page_of(rig: &mut Rig, actor: Actor) -> Result<u64, Error> {
    let (base, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0])?;
    rig.touch(actor.space, base, Access::Write)?;
    Ok(base)
}

#[test]
fn pieces_of_calls_come_in_any_order() {
    let runs = seeds::run(SEEDS, |seed| {
        let mut mix = Mix::new(seed);
        for step in 0..STEPS {
            mix.step();
            if step % 64 == 0
                && let Err(broken) = mix.rig.server.check(&mix.rig.world)
            {
                panic!("step {step}: {broken}");
            }
        }
        let clones = mix.clones;
        mix.over();
        clones
    });
    // Otherwise this says little of limits. One seed that is repeated may have none.
    let clones = runs.map(|runs| runs.into_iter().sum::<u32>());
    assert!(
        clones.is_none_or(|clones| clones > 100),
        "{clones:?} clones of objects with limits"
    );
}
