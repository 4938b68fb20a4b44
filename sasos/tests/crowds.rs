//! Programs come and go beside a cache that is too small for what they read and write.
//!
//! Objects of an earlier start are the cache (decision 0186). In each storm programs with children read and write them page by page, keep objects of their own,
//! delete some, call procedures, and end at any moment, also in the middle of a read or of taking back. In some storms the disk fails now and then. After some steps the server is
//! checked; nobody may go without an answer for long; and when all have ended, nothing is left that they had, everything can be had by others, and the disk holds what was written.
//!
//! `GOND_SEED` repeats one seed, `GOND_SEEDS` sets how many there are, `GOND_FROM` the first of them.

mod common;

use std::collections::BTreeMap;

use abi::{
    Call, Rights,
    address::{PAGE, SLOT},
    layout::{PD_EMPTY, PD_MERGE, UNMAP_REPLACE, UNMAP_ZERO},
};
use common::{Actor, Rig};
use kcore::{Hardware, outside::Remote, thread::Resumed};
use sasos::{
    Access, Event,
    accounts::{AccountId, RESOURCE_LIST, Resource, UNLIMITED},
    protection::apd::Apd,
};
use sim::{machine::Touch, rng::Rng, seeds};

/// Storms, unless `GOND_SEEDS` says otherwise, and the steps of one.
const SEEDS: u64 = 60;
const STEPS: u32 = 3000;
/// Objects of the earlier start, and programs at a time.
const OBJECTS: usize = 9;
const PROGRAMS: usize = 12;
/// The password of each object.
const PASSWORD: u64 = 9;
/// Events of one thread until it has a page or is refused.
const PATIENCE: u32 = 20_000;
/// Page tables so few that a program may be refused one: upper ones of its domain, and what others have in hand.
const FEW: u64 = 24;

struct Program {
    actor: Actor,
    /// The objects whose passwords it has.
    knows: Vec<u64>,
    /// The object that it walks through, the slot where it is, and how many it goes on by.
    base: u64,
    slot: u64,
    step: u64,
    access: Access,
    /// Events since it last had a page.
    waits: u32,
}

struct Storm {
    rig: Rig,
    rng: Rng,
    programs: AccountId,
    /// Bases and slots of the objects there are.
    objects: Vec<(u64, u64)>,
    running: Vec<Program>,
    /// The last value that was written at the beginning of each slot.
    written: BTreeMap<u64, u64>,
    next: u64,
    had: u64,
    /// Entry points that were registered; some have gone since.
    entries: Vec<u64>,
    /// Whether the disk fails now and then, and whether it did.
    may_fail: bool,
    has_failed: bool,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x000c_5031);
        let mut rig = Rig::new(seed, 4000 + rng.below(8000) as u32, 60_000);
        let owners = [(); 2].map(|()| rig.actor(Apd::EMPTY));
        let mut written = BTreeMap::new();
        let mut objects = Vec::new();
        for number in 0..OBJECTS {
            let slots = *rng.pick(&[1, 2, 3, 40, 170, 2000]);
            let owner = owners[number % 2];
            let base = rig.kept(owner, slots * SLOT / PAGE, PASSWORD);
            for slot in (0..slots).step_by(1 + (slots / 8) as usize) {
                rig.store(owner.space, base + slot * SLOT, slot + 7).expect("a page");
                written.insert(base + slot * SLOT, slot + 7);
            }
            objects.push((base, slots));
        }
        rig.checkpoint().expect("a checkpoint");
        let (mut rig, _) = rig.crash();
        rig.world.kernel.hardware.heap_left = (12 + rng.below(40)) << 18;
        let (_, programs) = rig.first_task();
        let may_fail = rng.one_in(3);
        rig.server.price_calls(rng.below(Remote::<()>::CALL + 1));
        let mut limits = rig.server.ledger.limits(programs);
        let tables = rig.server.ledger.used(programs, Resource::Tables) + 300 + rng.below(800);
        limits[Resource::Tables as usize] = tables.min(limits[Resource::Tables as usize]);
        rig.server.ledger.set_limits(programs, limits);
        Self {
            rig,
            rng,
            programs,
            objects,
            running: Vec::new(),
            written,
            next: 1 << 20,
            had: 0,
            entries: Vec::new(),
            may_fail,
            has_failed: false,
        }
    }

    /// A program begins, or a child of one, with the passwords of some objects. It may be refused.
    fn begins(&mut self) {
        let Self { rig, rng, .. } = self;
        let parent = match self.running.len() as u64 {
            many if many > 0 && rng.one_in(4) => {
                let task = self.running[rng.below(many) as usize].actor.task;
                rig.server.tasks.get(task).expect("it lives").account
            }
            _ => self.programs,
        };
        let bases: Vec<u64> = self.objects.iter().map(|&(base, _)| base).collect();
        let Ok(actor) = rig.may_begin(parent, UNLIMITED, &bases, PASSWORD) else {
            return;
        };
        let mut program = Program {
            actor,
            knows: bases,
            base: 0,
            slot: 0,
            step: 1,
            access: Access::Read,
            waits: 0,
        };
        self.walks(&mut program);
        self.running.push(program);
    }

    /// How many slots an object has, if it is there.
    fn slots(&self, base: u64) -> Option<u64> {
        let found = self.objects.iter().find(|&&(at, _)| at == base);
        found.map(|&(_, slots)| slots)
    }

    /// A program begins to walk through an object.
    fn walks(&mut self, program: &mut Program) {
        program.base = *self.rng.pick(&program.knows);
        program.slot = self.rng.below(self.slots(program.base).unwrap_or(1));
        program.step = *self.rng.pick(&[1, 1, 64]);
        program.access = *self.rng.pick(&[Access::Read, Access::Read, Access::Write]);
        program.waits = 0;
    }

    /// A program goes on with its walk for some steps.
    fn touches(&mut self) {
        let which = self.rng.below(self.running.len() as u64) as usize;
        let mut program = self.running.swap_remove(which);
        program.knows.retain(|&known| self.slots(known).is_some());
        if program.knows.is_empty() {
            self.rig.server.task_kill(program.actor.task, 1);
            return;
        }
        if self.slots(program.base).is_none() || self.rng.one_in(8) {
            self.walks(&mut program);
        }
        let slots = self.slots(program.base).expect("it is there");
        for _ in 0..=self.rng.below(40) {
            let (actor, address) = (program.actor, program.base + program.slot % slots * SLOT);
            match self.rig.touches(actor, address, program.access) {
                None => {
                    program.waits += 1;
                    assert!(program.waits < PATIENCE, "{address:#x} never comes");
                }
                Some(true) => {
                    self.had += 1;
                    program.waits = 0;
                    program.slot += program.step;
                    if program.access == Access::Write && writes(&mut self.rig, actor, address, self.next) {
                        self.written.insert(address, self.next);
                        self.next += 1;
                    }
                }
                Some(false) => {
                    let left = self.rig.server.ledger.left(self.programs, Resource::Tables);
                    assert!(
                        left < FEW || self.has_failed,
                        "{address:#x} was refused, and {left} page tables are left"
                    );
                    return;
                }
            }
        }
        self.running.push(program);
    }

    fn forgets_ended(&mut self) {
        let rig = &self.rig;
        self.running.retain(|program| rig.lives(program.actor));
    }

    fn ends(&mut self) {
        let which = self.rng.below(self.running.len() as u64) as usize;
        let program = self.running.swap_remove(which);
        self.rig.server.task_kill(program.actor.task, 1);
        if self.rng.one_in(2) {
            self.rig.server.finish_ends(&mut self.rig.world);
        }
        self.forgets_ended();
    }

    /// A program keeps a new object, or deletes one.
    fn keeps(&mut self) {
        let actor = self.rng.pick(&self.running).actor;
        if self.objects.len() < 2 * OBJECTS && self.rng.one_in(2) {
            let slots = *self.rng.pick(&[1, 3, 100]);
            let created = self.rig.call(actor, Call::ObjCreate, &[slots * SLOT, PASSWORD]);
            if let Ok((base, _)) = created
                && self.rig.call(actor, Call::KeepObject, &[base]).is_ok()
            {
                self.objects.push((base, slots));
            }
        } else if self.objects.len() > OBJECTS / 2 {
            let which = self.rng.below(self.objects.len() as u64) as usize;
            let (base, _) = self.objects[which];
            let deleted = self.rig.call(actor, Call::ObjDelete, &[base]);
            // Its pages go in pieces.
            self.rig.settle();
            assert!(deleted.is_err() || self.rig.server.objects.find(base).is_none());
            self.looks_at(base);
        }
    }

    /// Looks what has become of an object behind a call that may have failed, before or after its effect.
    fn looks_at(&mut self, base: u64) {
        let which = self
            .objects
            .iter()
            .position(|&(at, _)| at == base)
            .expect("it was there");
        let slots = self.objects[which].1;
        let left = match self.rig.server.object_at(&mut self.rig.world, base) {
            Ok(id) => self.rig.server.objects.get(id).slot_count(),
            Err(_) => 0,
        };
        if left == 0 {
            self.objects.swap_remove(which);
        } else {
            self.objects[which].1 = left;
        }
        let gone = base + left * SLOT..base + slots * SLOT;
        self.written.retain(|address, _| !gone.contains(address));
    }

    /// A program copies pages from one object to another, cuts one short, has what it knows looked up anew, or changes limits, passwords and procedures.
    fn calls(&mut self) {
        let program = self.rng.pick(&self.running);
        let actor = program.actor;
        let sized = program.knows.iter().filter_map(|&base| Some((base, self.slots(base)?)));
        let known: Vec<(u64, u64)> = sized.collect();
        if known.len() < 2 {
            return;
        }
        let [(from, some), (to, slots)] = [(); 2].map(|()| *self.rng.pick(&known));
        let end = to + slots * SLOT;
        // Nothing is written there, nor at the entry point.
        let (aside, entry) = (to + (1 + 2 * self.rng.below(200)) * PAGE, end - PAGE);
        let (call, arguments, first) = match self.rng.below(12) {
            0 if from != to => {
                let most = some.min(slots).min(8);
                let pages = (1 + self.rng.below(most)) * SLOT / PAGE;
                (Call::PageCopy, [from, to, pages, 0, 0], to)
            }
            1 => {
                let left = 1 + self.rng.below(slots);
                (Call::ObjResize, [to, left * SLOT, 0, 0, 0], to + left * SLOT)
            }
            2 => {
                let rights = *self.rng.pick(&[Rights::R, Rights::RX, Rights::RWX]);
                (Call::PageLimit, [aside, 1, rights.bits().into(), 0, 0], end)
            }
            3 if some < 100 => (Call::ObjClone, [from, PAGE, 0, 0, 0], end),
            4 => {
                let rights = *self.rng.pick(&[Rights::R, Rights::NONE]);
                let password = 100 + self.rng.below(8);
                (Call::ObjPasswd, [to, password, rights.bits().into(), 0, 0], end)
            }
            5 => {
                let Ok((list, _)) = self.rig.call(actor, Call::ObjCreate, &[PAGE, 0]) else {
                    return;
                };
                if !self.rig.has(actor, list, Access::Write) || !writes(&mut self.rig, actor, list, entry) {
                    return self.forgets_ended();
                }
                (Call::ObjCrePdx, [to, 200 + self.rng.below(3), 0, list, 1], end)
            }
            6 => {
                let how = *self.rng.pick(&[UNMAP_ZERO, UNMAP_REPLACE]);
                let at = to + self.rng.below(slots) * SLOT;
                let pages = (1 + self.rng.below(1000)).min((end - at) / PAGE);
                (Call::PageUnMap, [at, pages, how, 0, 0], to)
            }
            7 if slots < 3000 => {
                let more = 1 + self.rng.below(200);
                (Call::ObjResize, [to, (slots + more) * SLOT, 0, 0, 0], end)
            }
            8 => (
                Call::PageFlush,
                [to, self.rng.below(some.min(slots)) * SLOT / PAGE, 0, 0, 0],
                end,
            ),
            9 => return self.keeps_limited(actor),
            10 if !self.entries.is_empty() => {
                let entry = *self.rng.pick(&self.entries);
                return self.enters(actor, entry);
            }
            _ => (Call::ApdFlush, [0; 5], end),
        };
        // A call that fails may have copied or cut a part.
        self.written.retain(|address, _| !(first..end).contains(address));
        let done = self.rig.call(actor, call, &arguments);
        self.looks_at(to);
        if call == Call::ObjCrePdx && done.is_ok() {
            self.entries.push(entry);
            self.enters(actor, entry);
        }
        if let (Call::ObjClone, Ok((clone, _))) = (call, done)
            && self.rng.one_in(2)
        {
            self.rig.call(actor, Call::ObjDelete, &[clone]).expect("its own");
        }
    }

    /// A program calls what may be a procedure, and comes back or ends inside. The domain stays for the next call.
    fn enters(&mut self, actor: Actor, entry: u64) {
        let pd = *self.rng.pick(&[PD_MERGE, PD_EMPTY]);
        if self.rig.enters(actor, entry, pd).is_err() {
            return;
        }
        if self.rng.one_in(3) {
            // It is over when the call comes back, at the latest.
            self.rig.server.task_kill(actor.task, 1);
            (0..self.rng.below(3)).for_each(|_| self.rig.poll());
            self.running.retain(|program| program.actor.task != actor.task);
        }
        self.rig.event(actor, Call::PdxReturn, [0; 6], Resumed::First);
    }

    /// A program limits pages of a new object that are not there, and keeps it.
    fn keeps_limited(&mut self, actor: Actor) {
        let slots = 1 + self.rng.below(20);
        let Ok((base, _)) = self.rig.call(actor, Call::ObjCreate, &[slots * SLOT, PASSWORD]) else {
            return;
        };
        for _ in 0..self.rng.below(12) {
            // Nothing is written there.
            let at = base + self.rng.below(slots) * SLOT + (1 + self.rng.below(500)) * PAGE;
            let pages = 1 + self.rng.below(8);
            let limited = self
                .rig
                .call(actor, Call::PageLimit, &[at, pages, Rights::R.bits().into()]);
            if limited.is_err() {
                break;
            }
        }
        if self.rig.call(actor, Call::KeepObject, &[base]).is_ok() {
            let listed = self.objects.len() < 2 * OBJECTS && self.rng.one_in(2);
            if listed {
                self.objects.push((base, slots));
            } else {
                // It may fail on a disk that fails, or for want of memory.
                let _ = self.rig.call(actor, Call::ObjDelete, &[base]);
                self.rig.settle();
            }
        }
    }

    fn step(&mut self) {
        let choice = self.rng.below(100);
        match choice {
            _ if self.running.is_empty() => self.begins(),
            0..4 if self.running.len() < PROGRAMS => self.begins(),
            4..6 => self.ends(),
            6 => self.keeps(),
            7 if self.may_fail && self.rng.one_in(8) => {
                let rate = *self.rng.pick(&[0, 0, 4, 20]);
                self.rig.world.disk.set_failing(rate);
                self.has_failed |= rate > 0;
            }
            7 if self.rng.one_in(6) => {
                self.rig.server.checkpoint_request(&mut self.rig.world);
            }
            8..10 => self.calls(),
            10..17 => self.rig.move_disk(),
            17..19 => {
                self.rig.server.handle(&mut self.rig.world, Event::Poll);
            }
            _ => self.touches(),
        }
    }

    /// The charges of the first task with the system, and those of all programs.
    fn charges(&mut self) -> [[u64; RESOURCE_LIST.len()]; 2] {
        let ledger = &mut self.rig.server.ledger;
        ledger.empty_all_hands();
        let used = |account| RESOURCE_LIST.map(|resource| ledger.used(account, resource));
        let (all, programs) = (used(AccountId::ROOT), used(self.programs));
        [core::array::from_fn(|place| all[place] - programs[place]), programs]
    }

    /// All programs end, and nothing is left of them.
    fn over(&mut self, before: [[u64; RESOURCE_LIST.len()]; 2]) {
        while !self.running.is_empty() {
            self.ends();
        }
        self.rig.rests();
        let [own, programs] = self.charges();
        let kept = [
            Resource::Blocks,
            Resource::Rows,
            Resource::Kept,
            Resource::Bytes,
            Resource::Slots,
        ];
        for (place, resource) in RESOURCE_LIST.into_iter().enumerate() {
            let was = before.map(|used| used[place]);
            // A table of the map from slots to objects is paid by whose object becomes active in it first.
            let tables = if resource == Resource::Bytes { 1 << 10 } else { 0 };
            assert!(
                own[place] <= was[0] + tables,
                "{} of {resource:?} are charged to others, {} were",
                own[place],
                was[0]
            );
            let stays = kept.contains(&resource);
            assert!(
                stays || programs[place] <= was[1],
                "{} of {resource:?} are left, {} were there",
                programs[place],
                was[1]
            );
        }
        let server = &self.rig.server;
        let leaves: u64 = server.objects.iter().map(|(_, object)| object.leaves).sum();
        assert_eq!(leaves, 0, "page tables of objects are left");
    }

    /// Others find all that was written, now and after a power cut.
    fn all_is_there(self) {
        let Self { mut rig, written, .. } = self;
        for _ in 0..2 {
            let bases: Vec<u64> = self.objects.iter().map(|&(base, _)| base).collect();
            let reader = |rig: &mut Rig| {
                let reader = rig.actor(Apd::EMPTY);
                rig.gets(reader, &bases, PASSWORD);
                reader
            };
            let mut owner = reader(&mut rig);
            for (&address, &value) in &written {
                if self.has_failed && !rig.has(owner, address, Access::Read) {
                    // A read that has failed is told once, to the first reader.
                    owner = reader(&mut rig);
                }
                assert!(rig.has(owner, address, Access::Read), "{address:#x}");
                assert_eq!(rig.load(owner.space, address), Ok(value), "{address:#x}");
            }
            rig.settle();
            rig.check();
            (rig, _) = rig.crash();
        }
    }
}

/// A program writes to a page that it has just had.
fn writes(rig: &mut Rig, actor: Actor, address: u64, value: u64) -> bool {
    rig.world.kernel.enter_space(actor.space);
    let Ok(frame) = rig.world.kernel.hardware.translate(address, Touch::Write) else {
        return false;
    };
    rig.world
        .kernel
        .hardware
        .write(frame, (address % PAGE) as usize, &value.to_le_bytes());
    true
}

#[test]
fn programs_come_and_go_beside_a_small_cache() {
    seeds::run(SEEDS, |seed| {
        let mut storm = Storm::new(seed);
        let before = storm.charges();
        for step in 0..STEPS {
            storm.step();
            if step % 64 == 0 {
                // Something may just be taken away from those who have it linked, so that is looked at in the end.
                if let Err(broken) = storm.rig.server.check(&storm.rig.world) {
                    panic!("{broken}");
                }
            }
        }
        assert!(storm.had > 1000, "few pages were had: {}", storm.had);
        storm.over(before);
        storm.all_is_there();
    });
}
