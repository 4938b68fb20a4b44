//! The fast paths of a first touch beside the slow one: two servers see the same touches, and must come to the same.

mod common;

use abi::{
    Call, Error, Rights,
    address::{PAGE, SLOT},
    layout::{Capability, PD_EMPTY},
};
use common::{Actor, Order, Rig};
use kcore::Machine;
use sasos::{
    Access,
    accounts::{Amounts, RESOURCE_LIST, Resource, limits},
    protection::apd::Apd,
};
use sim::rng::Rng;

const RW: u64 = 3;
const SLOTS: u64 = 150;

/// The charges of an account, and the pages that all objects have in memory.
fn charged(rig: &Rig, actor: Actor) -> (Vec<u64>, u64) {
    let account = rig.server.tasks.get(actor.task).expect("a task").account;
    let used = RESOURCE_LIST.map(|resource| rig.server.ledger.used(account, resource));
    (used.to_vec(), rig.server.objects.resident())
}

/// A task with limits, and another one that may use its objects.
fn two(rig: &mut Rig, frames: u64, tables: u64) -> [Actor; 2] {
    let mut limits: Amounts = limits::of_frames(rig.world.frames_total() / 4 * 3);
    limits[Resource::Slots as usize] = 100_000;
    limits[Resource::Frames as usize] = frames;
    limits[Resource::Tables as usize] = tables;
    let programs = rig.server.programs;
    let owner = rig.actor_in(programs, limits);
    [owner, rig.actor(Apd::EMPTY)]
}

#[test]
fn touches_of_new_slots_come_to_the_same_on_both_paths() {
    let (mut touched, mut refused) = (0, 0);
    for seed in 0..12 {
        let mut rigs = [0, 1].map(|_| Rig::new(seed, 6000, 4096));
        rigs[1].is_slow = true;
        let mut rng = Rng::new(seed);
        let (frames, tables) = (400 + rng.below(1500), 60 + rng.below(400));
        let actors = rigs.each_mut().map(|rig| two(rig, frames, tables));
        assert_eq!(actors[0].map(|actor| actor.space), actors[1].map(|actor| actor.space));
        let [owner, guest] = actors[0];
        let mut bases: Vec<u64> = Vec::new();
        for _ in 0..700 {
            if bases.len() < 3 {
                let made = rigs
                    .each_mut()
                    .map(|rig| rig.call(owner, Call::ObjCreate, &[SLOTS * SLOT, 7]));
                assert_eq!(made[0], made[1], "seed {seed}");
                bases.push(made[0].expect("an object").0);
            }
            let which = rng.below(bases.len() as u64) as usize;
            let base = bases[which];
            match rng.below(100) {
                0 => {
                    let shorter = (1 + rng.below(SLOTS)) * SLOT;
                    for rig in &mut rigs {
                        let _ = rig.call(owner, Call::ObjResize, &[base, shorter]);
                    }
                }
                1 => {
                    // One that was kept may be out of reach.
                    let gone = rigs.each_mut().map(|rig| {
                        let gone = rig.call(owner, Call::ObjDelete, &[base]);
                        rig.settle();
                        gone
                    });
                    assert_eq!(gone[0], gone[1], "seed {seed}");
                    bases.swap_remove(which);
                }
                2 => {
                    for rig in &mut rigs {
                        rig.call(owner, Call::ApdFlush, &[]).expect("forgotten");
                    }
                }
                3 => {
                    for rig in &mut rigs {
                        let _ = rig.call(owner, Call::KeepObject, &[base]);
                    }
                }
                4 => {
                    let page = base + rng.below(SLOTS) * SLOT;
                    for rig in &mut rigs {
                        let _ = rig.call(owner, Call::PageLimit, &[page, 1, u64::from(Rights::R.bits())]);
                    }
                }
                _ => {
                    let slot = rng.below(SLOTS + 3);
                    let address = base + slot * SLOT + rng.below(3) * PAGE;
                    let access = [Access::Read, Access::Write, Access::Execute][rng.below(3) as usize];
                    let space = if rng.one_in(9) { guest.space } else { owner.space };
                    let seen = rigs.each_mut().map(|rig| rig.touch(space, address, access).map(drop));
                    assert_eq!(seen[0], seen[1], "seed {seed}: {access:?} of slot {slot}");
                    touched += u64::from(seen[0].is_ok());
                    refused += u64::from(matches!(seen[0], Err(Error::LimitReached)));
                }
            }
            let [fast, slow] = rigs.each_ref().map(|rig| charged(rig, owner));
            assert_eq!(fast, slow, "seed {seed}");
        }
        for rig in &mut rigs {
            rig.check();
        }
    }
    assert!(touched > 2000 && refused > 50, "{touched} touches, {refused} refused");
}

/// The fast path links nothing for a domain whose right is gone.
#[test]
fn a_new_slot_of_what_was_revoked_is_not_touched() {
    let mut rig = Rig::new(6, 8000, 4096);
    let owner = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(owner, Call::ObjCreate, &[70 * SLOT, 0]).unwrap();
    rig.store(owner.space, base + SLOT, 1).unwrap();
    let touch =
        |rig: &mut Rig, actor: Actor, slot: u64| rig.touch_further(actor.space, base + slot * SLOT, Access::Write);
    assert!(touch(&mut rig, owner, 2));
    assert!(!touch(&mut rig, owner, 2), "it is resident");
    let next = base + 2 * SLOT + PAGE;
    assert!(
        rig.touch_further(owner.space, next, Access::Write),
        "the slot is known now"
    );
    assert!(!touch(&mut rig, owner, 66), "nothing is known of such slots");
    assert!(!touch(&mut rig, owner, 70), "it is behind the end");
    rig.call(owner, Call::ObjPasswd, &[base, 5, RW]).unwrap();
    let user = rig.holder(base, 5);
    rig.store(user.space, base, 1).unwrap();
    assert!(!touch(&mut rig, user, 3), "another account pays");
    rig.call(owner, Call::ApdFlush, &[]).unwrap();
    rig.call(owner, Call::ObjPasswd, &[base, 5, 0]).unwrap();
    assert!(!touch(&mut rig, user, 3));
    rig.check();
}

/// A procedure of the same account, which may only read, gets no page by writing to a new slot.
#[test]
fn a_new_slot_is_linked_with_the_rights_of_the_last_one() {
    let mut rig = Rig::new(7, 8000, 4096);
    let owner = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(owner, Call::ObjCreate, &[70 * SLOT, 0]).unwrap();
    rig.store(owner.space, base + SLOT, 1).unwrap();
    rig.call(owner, Call::ObjPasswd, &[base, 5, 1]).unwrap();
    let (list, _) = rig.call(owner, Call::ObjCreate, &[PAGE, 0]).unwrap();
    let capability = Capability {
        address: base,
        password: 5,
    };
    rig.write_clist(owner.space, list, &[capability], Order::Any);
    let (service, _) = rig.call(owner, Call::ObjCreate, &[PAGE, 0]).unwrap();
    rig.registers(owner, service, 9, list);
    let reader = rig.sibling(owner);
    let space = rig.enters(reader, service, PD_EMPTY).unwrap();
    rig.touch(space, base + SLOT, Access::Read).unwrap();
    let touch = |rig: &mut Rig, slot: u64, access| rig.touch_further(space, base + slot * SLOT, access);
    assert!(!touch(&mut rig, 2, Access::Write));
    assert!(touch(&mut rig, 2, Access::Read));
    assert_eq!(
        rig.touch(space, base + 2 * SLOT, Access::Write).map(drop),
        Err(Error::Protection)
    );
    rig.call(owner, Call::ObjPasswd, &[base, 5, 0]).unwrap();
    assert!(!touch(&mut rig, 3, Access::Read));
    rig.check();
}
