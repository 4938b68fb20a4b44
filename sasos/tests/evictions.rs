//! Domains that use more objects than they may have nodes: what they give up is out of reach once it is revoked, and their threads go on.

mod common;

use abi::{
    Call, Rights,
    address::{PAGE, SLOT},
    layout::Capability,
};
use common::{Actor, Order, Rig};
use kcore::{Machine, ThreadId, thread::Resumed};
use sasos::{
    Access, Stop,
    accounts::{AccountId, Resource, limits},
    protection::{apd::Apd, node::NODES_MAX},
};
use sim::machine::Touch;

const R: u64 = Rights::R.bits() as u64;
const RW: u64 = Rights::RW.bits() as u64;
const X: u64 = Rights::X.bits() as u64;
/// Events that an instruction with a handful of operands may take: each object may have a large one given up for it.
const EVENTS: u32 = 40;

fn object(rig: &mut Rig, actor: Actor, bytes: u64) -> u64 {
    rig.call(actor, Call::ObjCreate, &[bytes, 0]).unwrap().0
}

/// Objects of a domain itself, each of which it has found.
fn found(rig: &mut Rig, actor: Actor, count: usize) -> Vec<u64> {
    let all: Vec<u64> = (0..count).map(|_| object(rig, actor, PAGE)).collect();
    for &base in &all {
        rig.call(actor, Call::ApdLookup, &[base, R]).unwrap();
    }
    all
}

fn nodes(rig: &Rig, actor: Actor) -> u64 {
    rig.server.domains.get(actor.space).unwrap().cached_objects()
}

/// An instruction with some operands in memory: it executes when none of them faults. Tells how many events that took.
fn execute(rig: &mut Rig, actor: Actor, operands: &[(u64, Access)]) -> u32 {
    let mut events = 0;
    loop {
        let fault = operands.iter().find(|(address, access)| {
            rig.world.kernel.enter_space(actor.space);
            let touch = match access {
                Access::Read => Touch::Read,
                Access::Write => Touch::Write,
                Access::Execute => Touch::Execute,
            };
            rig.world.kernel.hardware.translate(*address, touch).is_err()
        });
        let Some(&(address, access)) = fault else { return events };
        match rig.server.touch(&mut rig.world, actor.space, address, access) {
            Ok(()) | Err(Stop::Again) => {}
            Err(stop) => panic!("{address:#x}: {stop:?}"),
        }
        assert_eq!(rig.server.check_nodes(&rig.world), None);
        events += 1;
        assert!(events < EVENTS, "the instruction never executes");
    }
}

fn reads(rig: &mut Rig, actor: Actor, address: u64) -> bool {
    rig.world.kernel.enter_space(actor.space);
    rig.world.kernel.hardware.translate(address, Touch::Read).is_ok()
}

/// Objects of an owner, with a Clist of a user that has all of them.
fn shown(rig: &mut Rig, owner: Actor, user: Actor, count: usize, bytes: u64) -> Vec<u64> {
    let all: Vec<u64> = (0..count).map(|_| object(rig, owner, bytes)).collect();
    for &base in &all {
        rig.call(owner, Call::ObjPasswd, &[base, 5, RW]).unwrap();
    }
    let clist = object(rig, user, (count as u64 + 2) * 16);
    let capability = |&address: &u64| Capability { address, password: 5 };
    let list: Vec<Capability> = all.iter().map(capability).collect();
    rig.write_clist(user.space, clist, &list, Order::Sorted);
    rig.call(user, Call::ApdInsert, &[0, clist]).unwrap();
    all
}

/// An owner's object with `slots` slots that are resident, the domain of a full table in which it has the first place, and other objects of that.
fn full_table(seed: u64, slots: u64) -> (Rig, Actor, Actor, u64, Vec<u64>) {
    let mut rig = Rig::new(seed, 16000, 4096);
    let owner = rig.actor(Apd::EMPTY);
    let base = object(&mut rig, owner, slots * SLOT);
    rig.call(owner, Call::ObjPasswd, &[base, 5, R]).unwrap();
    for slot in 0..slots {
        rig.store(owner.space, base + slot * SLOT, slot).unwrap();
    }
    let user = rig.holder(base, 5);
    // A task can make no more than some thousands.
    let own = shown(&mut rig, owner, user, NODES_MAX / 2, PAGE);
    for slot in 0..slots {
        rig.load(user.space, base + slot * SLOT).unwrap();
    }
    for &base in &own {
        rig.call(user, Call::ApdLookup, &[base, R]).unwrap();
    }
    found(&mut rig, user, NODES_MAX / 2 - 1);
    assert_eq!(nodes(&rig, user), NODES_MAX as u64);
    (rig, owner, user, base, own)
}

#[test]
fn an_object_that_is_being_given_up_is_out_of_reach_once_it_is_revoked() {
    for events in 1..10 {
        let slots = 120;
        let (mut rig, owner, user, base, _) = full_table(21, slots);
        // One that it has no node for takes the place of others. Between two pieces of that it reads on.
        let mut fresh = 0;
        for event in 0..events {
            if event % 4 == 0 {
                fresh = object(&mut rig, user, PAGE);
            }
            let operand = if event % 2 == 0 { fresh } else { base + event / 8 * SLOT };
            let _ = rig.server.touch(&mut rig.world, user.space, operand, Access::Read);
            assert_eq!(rig.server.check_nodes(&rig.world), None);
        }
        if events % 3 == 0 {
            rig.call(owner, Call::ObjDelete, &[base]).unwrap();
        } else {
            rig.call(owner, Call::ObjPasswd, &[base, 5, 0]).unwrap();
        }
        for slot in 0..slots {
            let address = base + slot * SLOT;
            assert!(!reads(&mut rig, user, address), "slot {slot} after {events} events");
        }
        rig.settle();
        rig.check();
    }
}

#[test]
fn a_program_with_a_full_table_runs_on() {
    let (mut rig, _, user, base, own) = full_table(22, 120);
    let image = own[3];
    for step in 0..300 {
        let fresh = object(&mut rig, user, PAGE);
        let operands = [
            (image, Access::Read),
            (base + step % 120 * SLOT, Access::Read),
            (own[step as usize * 6], Access::Write),
            (fresh, Access::Write),
        ];
        execute(&mut rig, user, &operands);
        assert_eq!(nodes(&rig, user), NODES_MAX as u64);
    }
    rig.check();
}

/// The same where the account cannot pay for more than a page of nodes. An instruction with six operands executes, whichever.
#[test]
fn a_program_that_cannot_pay_for_nodes_runs_on() {
    let mut rig = Rig::new(23, 16000, 4096);
    let owner = rig.actor(Apd::EMPTY);
    let mut limits = limits::of_frames(4000);
    limits[Resource::Bytes as usize] = 40 << 10;
    let user = rig.actor_in(AccountId::ROOT, limits);
    let others = shown(&mut rig, owner, user, 120, 2 * SLOT);
    while rig.call(user, Call::ObjCreate, &[PAGE, 0]).is_ok() {}
    for _ in 0..400 {
        let mut operands = [(others[0], Access::Read); 6];
        for operand in &mut operands[1..] {
            *operand = (*rig.rng.pick(&others) + rig.rng.below(2) * SLOT, Access::Write);
        }
        execute(&mut rig, user, &operands);
    }
    assert_eq!(nodes(&rig, user), 64);
    rig.check();
}

/// The thread that changes an APD ends before all has been forgotten that was found by it. The domain of a merged call forgets all the same.
#[test]
fn merged_callees_forget_though_the_call_that_changed_the_apd_ends() {
    let mut rig = Rig::new(24, 16000, 4096);
    let owner = rig.actor(Apd::EMPTY);
    let secret = object(&mut rig, owner, PAGE);
    rig.call(owner, Call::ObjPasswd, &[secret, 5, R]).unwrap();
    rig.store(owner.space, secret, 1).unwrap();
    let service = rig.service(owner, 9);
    let user = rig.holder(secret, 5);
    let calls = object(&mut rig, user, PAGE);
    let entry = Capability {
        address: service,
        password: 9,
    };
    rig.write_clist(user.space, calls, &[entry], Order::Any);
    rig.call(user, Call::ApdInsert, &[1, calls]).unwrap();
    let (inside, killer) = (rig.sibling(user), rig.sibling(user));
    let callee = Actor {
        space: rig.enters(inside, service, abi::layout::PD_MERGE).unwrap(),
        ..inside
    };
    assert_ne!(callee.space, user.space);
    rig.load(callee.space, secret).unwrap();
    found(&mut rig, user, 500);
    let deleted = rig.begin(user, Call::ApdDelete, &[0], Resumed::First);
    assert_eq!(deleted, None, "it goes on in pieces");
    rig.call(killer, Call::ThreadDelete, &[user.thread.0, 0]).unwrap();
    rig.settle();
    assert!(!reads(&mut rig, callee, secret));
    assert!(rig.touch(callee.space, secret, Access::Read).is_err());
    rig.check();
}

/// A program does not run as long as its maker can write its image.
#[test]
fn an_image_is_its_programs_alone_when_that_begins() {
    let mut rig = Rig::new(25, 16000, 4096);
    let parent = rig.actor(Apd::EMPTY);
    let slots = 300;
    let image = object(&mut rig, parent, slots * SLOT);
    for slot in 0..slots {
        rig.store(parent.space, image + slot * SLOT, slot).unwrap();
    }
    rig.call(parent, Call::ApdLookup, &[image, X]).unwrap();
    let (child, _) = rig.call(parent, Call::TaskCreate, &[image, 0, 0, 0, 3]).unwrap();
    let child = Actor {
        space: rig.world.thread_space(ThreadId(child)),
        ..parent
    };
    let mut events = 0;
    while !reads(&mut rig, child, image) {
        let access = Access::Execute;
        let _ = rig.server.touch(&mut rig.world, child.space, image, access);
        assert_eq!(rig.server.check_nodes(&rig.world), None);
        events += 1;
    }
    assert!(events > 1, "all was done at once");
    for slot in 0..slots {
        assert!(!reads(&mut rig, parent, image + slot * SLOT), "slot {slot}");
    }
    rig.settle();
    rig.check();
}

/// Places of nodes that are vacant cost a domain nothing when it forgets the few that it has.
#[test]
fn a_domain_that_had_many_objects_forgets_at_once() {
    let mut rig = Rig::new(3, 4000, 4096);
    let owner = rig.actor(Apd::EMPTY);
    let make = |rig: &mut Rig| rig.call(owner, Call::ObjCreate, &[PAGE, 0]).unwrap().0;
    let last = make(&mut rig);
    let bases: Vec<_> = (0..3500).map(|_| make(&mut rig)).collect();
    for base in bases {
        rig.call(owner, Call::ObjDelete, &[base]).unwrap();
    }
    rig.store(owner.space, last, 1).unwrap();
    let done = rig.begin(owner, Call::ApdFlush, &[], Resumed::First);
    assert_eq!(done, Some(Ok((0, 0))));
    rig.check();
}
