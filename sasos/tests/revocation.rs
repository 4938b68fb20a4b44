//! Rights that were taken away are gone when the call returns: random users against a model.
//!
//! Domains have two or three capabilities for each object. Revocations go on in pieces, and between two of them domains touch
//! what they like, find objects again by another capability, forget, end. After a call that takes rights away has
//! returned, no domain reads or writes through the page tables what the model forbids.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use abi::{
    Call, Error, Rights,
    address::{PAGE, SLOT},
    layout::Capability,
};
use common::{Actor, Order, Rig};
use kcore::thread::Resumed;
use sasos::{
    Access, Event, Outcome,
    accounts::{AccountId, Resource, limits},
    protection::apd::Apd,
};
use sim::{machine::Touch, rng::Rng, seeds};

const R: u64 = Rights::R.bits() as u64;
const RW: u64 = Rights::RW.bits() as u64;

/// The passwords that users may hold for an object.
const fn passwords(number: usize) -> core::ops::Range<u64> {
    let first = 10 * (number as u64 + 1);
    first..first + 3
}

struct Target {
    base: u64,
    slots: u64,
    owner: Actor,
    /// Passwords that are listed, with whether they let one write.
    listed: BTreeMap<u64, bool>,
}

/// A call under way.
struct Running {
    actor: Actor,
    call: Call,
    arguments: Vec<u64>,
    resumed: Resumed,
    target: usize,
}

/// How many nodes a user may have.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Tables {
    /// As many as it likes.
    Wide,
    /// A page of them, and more objects than fit.
    Tight,
}

struct Play {
    tables: Tables,
    /// Objects that every user may read, where tables are tight.
    others: Vec<u64>,
    rig: Rig,
    rng: Rng,
    owners: Vec<Actor>,
    /// Domains, and the passwords in the Clist of each, by object.
    users: Vec<(Actor, BTreeSet<(usize, u64)>)>,
    targets: Vec<Option<Target>>,
    running: Vec<Running>,
}

impl Play {
    fn new(seed: u64, tables: Tables) -> Self {
        let mut rig = Rig::new(seed, 16000, 4096);
        let mut rng = rig.rng.fork();
        let owners: Vec<Actor> = (0..3).map(|_| rig.actor(Apd::EMPTY)).collect();
        let others = if tables == Tables::Tight { 80 } else { 0 };
        let others = (0..others).map(|_| rig.call(owners[0], Call::ObjCreate, &[PAGE, 9]).unwrap().0);
        let others = others.collect();
        let mut new = Self {
            tables,
            others,
            rng: rng.fork(),
            rig,
            owners,
            users: Vec::new(),
            targets: Vec::new(),
            running: Vec::new(),
        };
        for _ in 0..4 {
            new.make_target();
        }
        for _ in 0..30 {
            new.make_user();
        }
        new
    }

    fn make_target(&mut self) {
        // One that is in the middle of no call.
        let idle: Vec<Actor> = self
            .owners
            .iter()
            .copied()
            .filter(|owner| !self.is_busy(*owner))
            .collect();
        if idle.is_empty() {
            return;
        }
        let owner = *self.rng.pick(&idle);
        let most = if self.tables == Tables::Tight { 160 } else { 40 };
        let slots = 1 + self.rng.below(most);
        let (base, own) = self.rig.call(owner, Call::ObjCreate, &[slots * SLOT, 0]).unwrap();
        let mut listed = BTreeMap::from([(own, true)]);
        // An address may come back, a password does not.
        let number = self.targets.len();
        for password in passwords(number) {
            let write = self.rng.one_in(2);
            let rights = if write { RW } else { R };
            self.rig
                .call(owner, Call::ObjPasswd, &[base, password, rights])
                .unwrap();
            listed.insert(password, write);
        }
        for slot in 0..slots {
            self.rig.store(owner.space, base + slot * SLOT, slot).unwrap();
        }
        self.targets.push(Some(Target {
            base,
            slots,
            owner,
            listed,
        }));
    }

    fn make_user(&mut self) {
        let actor = if self.tables == Tables::Tight {
            let mut limits = limits::of_frames(4000);
            limits[Resource::Bytes as usize] = 24 << 10;
            self.rig.actor_in(AccountId::ROOT, limits)
        } else {
            self.rig.actor(Apd::EMPTY)
        };
        let mut held = BTreeSet::new();
        for (number, target) in self.targets.iter().enumerate() {
            for password in passwords(number) {
                if target.is_some() && self.rng.one_in(2) {
                    held.insert((number, password));
                }
            }
        }
        let mut list: Vec<_> = held
            .iter()
            .map(|&(number, password)| Capability {
                address: self.targets[number].as_ref().unwrap().base,
                password,
            })
            .collect();
        let others = self.others.iter();
        list.extend(others.map(|&address| Capability { address, password: 9 }));
        let (clist, _) = self.rig.call(actor, Call::ObjCreate, &[2 * PAGE, 0]).unwrap();
        self.rig.write_clist(actor.space, clist, &list, Order::Any);
        self.rig.call(actor, Call::ApdInsert, &[0, clist]).unwrap();
        if self.tables == Tables::Tight {
            while self.rig.call(actor, Call::ObjCreate, &[PAGE, 0]).is_ok() {}
        }
        self.users.push((actor, held));
    }

    /// Whether the model lets a domain read, and write, an object. Its owner may do both.
    fn allows(&self, actor: Actor, held: &BTreeSet<(usize, u64)>, number: usize) -> (bool, bool) {
        let Some(target) = &self.targets[number] else {
            return (false, false);
        };
        if target.owner.space == actor.space {
            return (true, true);
        }
        let by = target
            .listed
            .iter()
            .filter(|(password, _)| held.contains(&(number, **password)));
        by.fold((false, false), |sum, (_, write)| (true, sum.1 || *write))
    }

    fn is_busy(&self, actor: Actor) -> bool {
        self.running.iter().any(|running| running.actor.thread == actor.thread)
    }

    fn touch(&mut self) {
        if self.users.is_empty() {
            return;
        }
        let user = self.rng.below(self.users.len() as u64) as usize;
        let number = self.rng.below(self.targets.len() as u64) as usize;
        let Some(target) = &self.targets[number] else { return };
        let address = target.base + self.rng.below(target.slots) * SLOT;
        let (actor, held) = self.users[user].clone();
        let access = if self.rng.one_in(2) {
            Access::Write
        } else {
            Access::Read
        };
        let (read, write) = self.allows(actor, &held, number);
        let changing = self.running.iter().any(|running| running.target == number);
        let found = self.rig.touch(actor.space, address, access);
        if !changing {
            let allowed = if access == Access::Write { write } else { read };
            assert_eq!(
                found.is_ok(),
                allowed,
                "user {user}, object {number}, {access:?}: {found:?}"
            );
        }
    }

    /// One event of a fault of somebody, who may do something else then.
    fn nudge(&mut self) {
        let user = self.rng.below(self.users.len() as u64) as usize;
        let (actor, _) = self.users[user];
        let number = self.rng.below(self.targets.len() as u64) as usize;
        let address = match &self.targets[number] {
            Some(target) if self.rng.one_in(3) => target.base + self.rng.below(target.slots) * SLOT,
            _ => *self.rng.pick(&self.others),
        };
        let _ = self
            .rig
            .server
            .touch(&mut self.rig.world, actor.space, address, Access::Read);
    }

    /// No domain touches through its page tables, or what a processor remembers, what it must not. While an object is being taken
    /// away it is left out.
    fn check_tables(&mut self) {
        let changing: BTreeSet<usize> = self.running.iter().map(|running| running.target).collect();
        for user in 0..self.users.len() {
            let (actor, held) = self.users[user].clone();
            self.rig.world.kernel.enter_space(actor.space);
            for number in (0..self.targets.len()).filter(|number| !changing.contains(number)) {
                let Some(target) = &self.targets[number] else { continue };
                let (read, write) = self.allows(actor, &held, number);
                for slot in 0..target.slots {
                    let address = target.base + slot * SLOT;
                    let hardware = &mut self.rig.world.kernel.hardware;
                    let reads = hardware.translate(address, Touch::Read).is_ok();
                    let writes = hardware.translate(address, Touch::Write).is_ok();
                    assert!(read || !reads, "user {user} reads slot {slot} of object {number}");
                    assert!(write || !writes, "user {user} writes slot {slot} of object {number}");
                }
            }
        }
    }

    fn begin(&mut self, actor: Actor, call: Call, arguments: Vec<u64>, target: usize) {
        self.running.push(Running {
            actor,
            call,
            arguments,
            resumed: Resumed::First,
            target,
        });
        self.go_on(self.running.len() - 1);
    }

    /// Does a piece of a call that is under way.
    fn go_on(&mut self, place: usize) {
        let running = &mut self.running[place];
        let mut arguments = [0; 6];
        arguments[..running.arguments.len()].copy_from_slice(&running.arguments);
        let event = Event::Call {
            thread: running.actor.thread,
            number: running.call as u64,
            arguments,
            resumed: core::mem::replace(&mut running.resumed, Resumed::Woken),
        };
        match self.rig.server.handle(&mut self.rig.world, event) {
            Outcome::Again => {}
            Outcome::Block(..) => self.rig.move_disk(),
            Outcome::Return(result) => {
                let running = self.running.swap_remove(place);
                result.unwrap_or_else(|error| panic!("{:?}: {error:?}", running.call));
                if running.call == Call::ObjDelete {
                    self.targets[running.target] = None;
                }
                self.check_tables();
            }
            other => panic!("{other:?}"),
        }
    }

    /// An owner takes a right away, or gives one.
    fn change_rights(&mut self) {
        let number = self.rng.below(self.targets.len() as u64) as usize;
        let Some(target) = &self.targets[number] else { return };
        let (owner, base) = (target.owner, target.base);
        if self.is_busy(owner) || self.running.iter().any(|running| running.target == number) {
            return;
        }
        let password = passwords(number).start + self.rng.below(3);
        let listed = &mut self.targets[number].as_mut().unwrap().listed;
        let rights = match listed.get(&password) {
            Some(true) if self.rng.one_in(2) => R,
            Some(_) => 0,
            None => RW,
        };
        if rights == 0 {
            listed.remove(&password);
        } else {
            listed.insert(password, rights == RW);
        }
        self.begin(owner, Call::ObjPasswd, vec![base, password, rights], number);
    }

    fn delete(&mut self) {
        let number = self.rng.below(self.targets.len() as u64) as usize;
        let Some(target) = &self.targets[number] else { return };
        let (owner, base) = (target.owner, target.base);
        if !self.is_busy(owner) && !self.running.iter().any(|running| running.target == number) {
            self.begin(owner, Call::ObjDelete, vec![base], number);
            self.make_target();
        }
    }

    fn step(&mut self) {
        match self.rng.below(40) {
            0..2 => self.change_rights(),
            2 if self.rng.one_in(8) => self.delete(),
            3 => {
                let user = self.rng.below(self.users.len() as u64) as usize;
                let (actor, _) = self.users[user];
                self.rig.call(actor, Call::ApdFlush, &[]).unwrap();
            }
            4 if self.rng.one_in(2) => {
                let user = self.rng.below(self.users.len() as u64) as usize;
                let (actor, _) = self.users.swap_remove(user);
                self.rig.server.task_kill(actor.task, 1);
                self.rig.server.finish_ends(&mut self.rig.world);
                self.make_user();
            }
            5 => {
                self.rig.server.handle(&mut self.rig.world, Event::Poll);
            }
            6..12 if !self.running.is_empty() => {
                let place = self.rng.below(self.running.len() as u64) as usize;
                self.go_on(place);
            }
            12..34 if self.tables == Tables::Tight => self.nudge(),
            _ => self.touch(),
        }
        assert_eq!(self.rig.server.check_nodes(&self.rig.world), None);
    }
}

#[test]
fn what_was_taken_away_is_out_of_reach() {
    what_was_taken_away(Tables::Wide);
}

#[test]
fn what_was_taken_away_is_out_of_reach_of_those_who_give_up_for_it() {
    what_was_taken_away(Tables::Tight);
}

fn what_was_taken_away(tables: Tables) {
    seeds::run(12, |seed| {
        let mut users = Play::new(seed, tables);
        for step in 0..1500 {
            users.step();
            if step % 100 == 0 {
                assert_eq!(users.rig.server.check(&users.rig.world), Ok(()));
            }
        }
        while !users.running.is_empty() {
            users.go_on(0);
        }
        users.rig.settle();
        users.check_tables();
        users.rig.check();
    });
}

/// The first capability is revoked, a domain finds the object again by the second, which is revoked too.
#[test]
fn a_second_capability_keeps_nothing_of_the_first() {
    for between in [0, 1, 3, 9] {
        let mut rig = Rig::new(5, 16000, 4096);
        let owner = rig.actor(Apd::EMPTY);
        let other = rig.sibling(owner);
        let slots = 24;
        let (base, _) = rig.call(owner, Call::ObjCreate, &[slots * SLOT, 0]).unwrap();
        for password in [5, 6] {
            rig.call(owner, Call::ObjPasswd, &[base, password, R]).unwrap();
        }
        for slot in 0..slots {
            rig.store(owner.space, base + slot * SLOT, slot).unwrap();
        }
        let users: Vec<Actor> = (0..60)
            .map(|_| {
                let actor = rig.actor(Apd::EMPTY);
                let (list, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
                let capabilities = [5, 6].map(|password| Capability {
                    address: base,
                    password,
                });
                rig.write_clist(actor.space, list, &capabilities, Order::Any);
                rig.call(actor, Call::ApdInsert, &[0, list]).unwrap();
                for slot in 0..slots {
                    rig.load(actor.space, base + slot * SLOT).unwrap();
                }
                actor
            })
            .collect();
        // The one revocation is in its middle when the other one begins.
        let mut first = rig.begin(owner, Call::ObjPasswd, &[base, 5, 0], Resumed::First);
        for round in 0..between {
            for actor in users.iter().skip(round).step_by(3) {
                let _ = rig.touch(actor.space, base + round as u64 * SLOT, Access::Read);
            }
            first = first.or_else(|| rig.begin(owner, Call::ObjPasswd, &[base, 5, 0], Resumed::Woken));
        }
        rig.call(other, Call::ObjPasswd, &[base, 6, 0]).unwrap();
        for (number, actor) in users.iter().enumerate() {
            rig.world.kernel.enter_space(actor.space);
            for slot in 0..slots {
                let reads = rig.world.kernel.hardware.translate(base + slot * SLOT, Touch::Read);
                assert!(reads.is_err(), "{between}: user {number} reads slot {slot}");
            }
            assert_eq!(rig.touch(actor.space, base, Access::Read), Err(Error::Protection));
        }
        while first.is_none() {
            first = rig.begin(owner, Call::ObjPasswd, &[base, 5, 0], Resumed::Woken);
        }
        rig.settle();
        rig.check();
    }
}

/// The fast path of a page fault makes nothing resident for a domain whose right is gone.
#[test]
fn the_fast_path_forgets_what_was_revoked() {
    let mut rig = Rig::new(6, 8000, 4096);
    let owner = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(owner, Call::ObjCreate, &[SLOT, 0]).unwrap();
    rig.call(owner, Call::ObjPasswd, &[base, 5, RW]).unwrap();
    let user = rig.holder(base, 5);
    rig.store(user.space, base, 1).unwrap();
    let touch = |rig: &mut Rig, page: u64| {
        let kernel = &mut rig.world.kernel;
        kernel.prepare_frame(1);
        rig.touch_further(user.space, base + page * PAGE, Access::Write)
    };
    assert!(touch(&mut rig, 1));
    assert!(!touch(&mut rig, 1), "it is resident");
    rig.call(owner, Call::ObjPasswd, &[base, 5, 0]).unwrap();
    assert!(!touch(&mut rig, 2));
    rig.check();
}
