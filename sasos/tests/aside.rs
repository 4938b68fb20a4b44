//! Objects that are set aside: whatever their domain keeps of them, nobody sees it, it is paid for, and it comes back.

mod common;

use abi::{
    Call, Error, Rights,
    address::{PAGE, PAGES_PER_SLOT, SLOT, slot_of},
    layout::{INFO_SET_TAG, TOPIC_OBJECT},
};
use common::{Actor, Order, Rig};
use kcore::Machine;
use sasos::{
    Access,
    accounts::{AccountId, Amounts, Resource, UNLIMITED, limits},
    protection::apd::Apd,
};
use sim::rng::Rng;

/// Rounds after which a domain sets objects aside.
const ROUNDS: u64 = 8;

/// An object that is made, written to and deleted; tells where it was.
fn round(rig: &mut Rig, actor: Actor, pages: u64) -> u64 {
    let (base, _) = rig.call(actor, Call::ObjCreate, &[pages * PAGE, 7]).unwrap();
    for page in 0..pages.min(3) {
        assert_eq!(
            rig.load(actor.space, base + page * PAGE),
            Ok(0),
            "pages of a new object"
        );
        rig.store(actor.space, base + page * PAGE, 5).unwrap();
    }
    rig.call(actor, Call::ObjDelete, &[base]).unwrap();
    base
}

fn frames(rig: &Rig) -> u64 {
    rig.world.kernel.frames().free()
}

fn used(rig: &Rig, actor: Actor, resource: Resource) -> u64 {
    let account = rig.server.tasks.get(actor.task).expect("a task").account;
    rig.server.ledger.used(account, resource)
}

/// The slot and the page table of the last object serve the next one.
#[test]
fn a_domain_that_does_it_again_keeps_one_page_table() {
    let mut rig = Rig::new(1, 4000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let (before, slots) = (frames(&rig), used(&rig, actor, Resource::Slots));
    round(&mut rig, actor, 1);
    // Only upper tables stay of the first rounds.
    let (upper, active) = (before - frames(&rig), rig.server.objects.count());
    for _ in 0..ROUNDS {
        round(&mut rig, actor, 1);
    }
    assert_eq!(before - frames(&rig), upper + 1);
    assert_eq!(used(&rig, actor, Resource::Slots), slots + 1);
    assert_eq!(rig.server.objects.count(), active, "nobody counts it");
    let (base, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 7]).unwrap();
    let (other, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 7]).unwrap();
    assert_ne!(slot_of(base), slot_of(other));
    assert!(
        rig.touch_further(actor.space, base, Access::Write),
        "its first touch is that of a further page"
    );
    assert!(!rig.touch_further(actor.space, other, Access::Write));
    rig.check();
    rig.ends(actor);
    rig.check();
}

#[test]
fn what_is_set_aside_is_out_of_reach() {
    let mut rig = Rig::new(2, 4000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    for pages in [1, 3, 8, PAGES_PER_SLOT] {
        for _ in 0..ROUNDS {
            round(&mut rig, actor, pages);
        }
        let base = round(&mut rig, actor, pages);
        for address in [base, base + PAGE, base / SLOT * SLOT, base / SLOT * SLOT + PAGE] {
            for access in [Access::Read, Access::Write, Access::Execute] {
                let touched = rig.touch(actor.space, address, access).map(drop);
                assert_eq!(touched, Err(Error::BadAddress), "{address:#x}");
            }
            for (call, arguments) in [
                (Call::ObjDelete, [address, 0, 0]),
                (Call::ObjResize, [address, 2 * PAGE, 0]),
                (Call::ObjPasswd, [address, 3, 1]),
                (Call::KeepObject, [address, 0, 0]),
                (Call::ObjClone, [address, 0, 0]),
                (Call::ApdLookup, [address, u64::from(Rights::R.bits()), 0]),
            ] {
                let result = rig.call(actor, call, &arguments);
                assert_eq!(result, Err(Error::BadAddress), "{call:?} of {address:#x}");
            }
        }
        // Its password was that of another object.
        let holder = rig.holder(base, 7);
        let (again, _) = rig.call(actor, Call::ObjCreate, &[pages * PAGE, 8]).unwrap();
        assert_eq!(slot_of(again), slot_of(base));
        assert_eq!(
            rig.touch(holder.space, again, Access::Read).map(drop),
            Err(Error::Protection)
        );
        rig.call(actor, Call::ObjDelete, &[again]).unwrap();
        rig.check();
    }
}

#[test]
fn it_goes_when_somebody_lacks_memory() {
    let mut rig = Rig::new(3, 4000, 4096);
    let limits: Amounts = limits::of_frames(rig.world.frames_total() / 2);
    let programs = rig.server.programs;
    let actors: Vec<Actor> = (0..5).map(|_| rig.actor_in(programs, limits)).collect();
    let before = frames(&rig);
    let slots = used(&rig, actors[0], Resource::Slots);
    for &actor in &actors {
        for _ in 0..ROUNDS {
            round(&mut rig, actor, 2);
        }
    }
    let kept = before - frames(&rig);
    rig.server.take_back(&mut rig.world);
    assert_eq!(before - frames(&rig), kept - actors.len() as u64);
    for &actor in &actors {
        assert_eq!(used(&rig, actor, Resource::Slots), slots);
        round(&mut rig, actor, 2);
    }
    rig.check();
}

/// An object with something else than few pages, or that somebody else has found, goes as a whole.
#[test]
fn only_few_pages_are_set_aside() {
    type Change = fn(&mut Rig, Actor, u64);
    let changes: [(bool, Change); 7] = [
        (true, |rig, actor, base| touched(rig, actor, base, 8)),
        (false, |rig, actor, base| touched(rig, actor, base, 9)),
        (false, |rig, _, base| {
            let other = rig.holder(base, 7);
            assert_eq!(rig.load(other.space, base), Ok(1));
        }),
        (false, |rig, actor, base| rig.registers(actor, base, 9, 0)),
        (false, |rig, actor, base| {
            rig.call(actor, Call::PageLimit, &[base + 3 * PAGE, 1, 4]).unwrap();
        }),
        (false, |rig, actor, base| {
            rig.call(actor, Call::KeepObject, &[base]).unwrap();
        }),
        (false, |rig, actor, base| {
            rig.write_clist(actor.space, base, &[], Order::Any);
            let (procedure, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
            rig.registers(actor, procedure, 9, base);
        }),
    ];
    for (number, (is_aside, change)) in changes.into_iter().enumerate() {
        let mut rig = Rig::new(6, 4000, 4096);
        let actor = rig.actor(Apd::EMPTY);
        for _ in 0..ROUNDS {
            round(&mut rig, actor, 10);
        }
        let (base, _) = rig.call(actor, Call::ObjCreate, &[10 * PAGE, 7]).unwrap();
        touched(&mut rig, actor, base, 1);
        change(&mut rig, actor, base);
        rig.call(actor, Call::ObjDelete, &[base]).unwrap();
        rig.settle();
        let slot = |(_, object): (_, &sasos::directory::object::Object)| object.record.base / SLOT == base / SLOT;
        assert_eq!(rig.server.objects.iter().any(slot), is_aside, "change {number}");
        rig.check();
    }
}

fn touched(rig: &mut Rig, actor: Actor, base: u64, pages: u64) {
    for page in 0..pages {
        rig.store(actor.space, base + page * PAGE, 1).unwrap();
    }
}

/// The object that is made of it has another number, another time and no tag, and stands where any new one would; semaphores went with the old one.
#[test]
fn an_object_in_its_place_is_a_new_one() {
    let mut rig = Rig::new(7, 4000, 4096);
    let (actor, neighbour) = (rig.actor(Apd::EMPTY), rig.actor(Apd::EMPTY));
    let (info, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
    for word in 0..PAGE / 8 {
        rig.store(actor.space, info + 8 * word, 9).unwrap();
    }
    for _ in 0..ROUNDS {
        round(&mut rig, actor, 1);
    }
    let make = |rig: &mut Rig, actor: Actor, pages: u64| {
        let (base, _) = rig.call(actor, Call::ObjCreate, &[pages * PAGE, 7]).unwrap();
        rig.store(actor.space, base, 1).unwrap();
        let object = rig
            .server
            .objects
            .get(rig.server.objects.find(base).expect("an object"));
        (base, object.serial, object.record.tag, object.record.created_ns)
    };
    let old = make(&mut rig, actor, 1);
    rig.call(actor, Call::SemCreate, &[old.0, 3]).unwrap();
    rig.call(actor, Call::ObjInfo, &[old.0, INFO_SET_TAG, info, PAGE])
        .unwrap();
    rig.call(actor, Call::ObjDelete, &[old.0]).unwrap();
    rig.world.kernel.hardware.now_ns += 1000;
    let new = make(&mut rig, actor, 1);
    let other = make(&mut rig, neighbour, 1);
    assert_eq!(new.0, old.0, "the same slot");
    assert_eq!(new.0 / PAGE % PAGES_PER_SLOT, slot_of(new.0) * 7 % 16, "its colour");
    assert!(
        new.1 > old.1 && other.1 > new.1,
        "numbers of objects: {old:?} {new:?} {other:?}"
    );
    assert!(new.2 == 0 && new.3 > old.3, "tag and time: {old:?} {new:?}");
    rig.call(actor, Call::SemCreate, &[new.0, 0])
        .expect("no semaphore is there");
    rig.check();
}

/// A domain that has forgotten what it set aside gives it back with the next object that it makes.
#[test]
fn what_a_domain_has_forgotten_goes_with_the_next_one() {
    let mut rig = Rig::new(8, 4000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let slots = used(&rig, actor, Resource::Slots);
    for _ in 0..ROUNDS {
        round(&mut rig, actor, 1);
    }
    rig.call(actor, Call::ApdFlush, &[]).unwrap();
    rig.settle();
    rig.call(actor, Call::ObjCreate, &[PAGE, 7]).unwrap();
    assert_eq!(used(&rig, actor, Resource::Slots), slots + 1);
    rig.check();
}

#[test]
fn no_list_has_it() {
    let mut rig = Rig::new(11, 4000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let (buffer, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
    for _ in 0..ROUNDS {
        round(&mut rig, actor, 1);
    }
    let slot = slot_of(round(&mut rig, actor, 1));
    let told = rig.call(actor, Call::SystemInfo, &[TOPIC_OBJECT, slot * SLOT, buffer, PAGE]);
    assert!(told.is_err() || slot_of(rig.load(actor.space, buffer).unwrap()) != slot);
}

/// Objects that are there at once, and more of them than are set aside.
fn many(rig: &mut Rig, actor: Actor, count: u64) -> Vec<u64> {
    let made = (0..count).map(|_| rig.call(actor, Call::ObjCreate, &[PAGE, 7]).unwrap().0);
    let bases: Vec<u64> = made.collect();
    for &base in &bases {
        touched(rig, actor, base, 1);
        rig.call(actor, Call::ObjDelete, &[base]).unwrap();
    }
    bases
}

#[test]
fn a_domain_sets_four_objects_aside() {
    let mut rig = Rig::new(10, 4000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let slots = used(&rig, actor, Resource::Slots);
    many(&mut rig, actor, 4);
    assert_eq!(used(&rig, actor, Resource::Slots), slots, "the first four go");
    many(&mut rig, actor, 6);
    assert_eq!(used(&rig, actor, Resource::Slots), slots + 4);
    let mut bases: Vec<u64> = (0..4)
        .map(|_| rig.call(actor, Call::ObjCreate, &[PAGE, 7]).unwrap().0)
        .collect();
    assert_eq!(used(&rig, actor, Resource::Slots), slots + 4, "they are made of those");
    for &base in &bases {
        assert!(rig.touch_further(actor.space, base, Access::Write));
    }
    bases.dedup_by_key(|base| slot_of(*base));
    assert_eq!(bases.len(), 4);
    rig.check();
    rig.ends(actor);
    rig.check();
}

/// An object that none of them can be made of gets their slots, however many it needs.
#[test]
fn a_larger_object_is_not_refused_for_them() {
    for all in [6, 20, 64, 68, 69, 200] {
        let mut rig = Rig::new(12, 4000, 4096);
        let mut limits = UNLIMITED;
        limits[Resource::Slots as usize] = all;
        let actor = rig.actor_in(AccountId::ROOT, limits);
        let slots = used(&rig, actor, Resource::Slots);
        many(&mut rig, actor, 4);
        many(&mut rig, actor, 4);
        assert_eq!(used(&rig, actor, Resource::Slots), slots + 4);
        let larger = [(all - slots) * SLOT - PAGE, 0];
        let made = rig.call(actor, Call::ObjCreate, &larger);
        assert!(made.is_ok(), "{all} slots: {made:?}");
        rig.check();
    }
}

/// The place in the table is another domain's by now, whose object is set aside there.
#[test]
fn what_another_domain_has_set_aside_stays() {
    let mut rig = Rig::new(9, 4000, 4096);
    let [first, second] = [(); 2].map(|()| rig.actor(Apd::EMPTY));
    for actor in [first, second] {
        for _ in 0..ROUNDS {
            round(&mut rig, actor, 1);
        }
        if actor.task == first.task {
            rig.server.take_back(&mut rig.world);
        }
    }
    let slots = used(&rig, second, Resource::Slots);
    let base = round(&mut rig, first, 1);
    assert_eq!(used(&rig, second, Resource::Slots), slots);
    assert_ne!(slot_of(round(&mut rig, second, 1)), slot_of(base));
    rig.check();
}

/// An account at its limit, with a stack, gets what its own domain has set aside.
#[test]
fn nobody_is_refused_for_it() {
    let mut rig = Rig::new(4, 4000, 4096);
    let mut limits = UNLIMITED;
    limits[Resource::Slots as usize] = 4;
    let actor = rig.actor_in(AccountId::ROOT, limits);
    let slots = used(&rig, actor, Resource::Slots);
    for _ in 0..ROUNDS {
        round(&mut rig, actor, 1);
    }
    assert_eq!(used(&rig, actor, Resource::Slots), slots + 1);
    let made: Vec<bool> = (0..4)
        .map(|_| rig.call(actor, Call::ObjCreate, &[PAGE, 7]).is_ok())
        .collect();
    assert_eq!(made, [true, true, true, false]);
}

/// Random objects of several tasks, with all that makes a domain forget between.
#[test]
fn whatever_happens_between_it_is_found_or_gone() {
    for seed in 0..20 {
        let mut rig = Rig::new(seed, 4000, 8192);
        let mut rng = Rng::new(seed);
        let start = frames(&rig);
        let mut actors: Vec<Actor> = (0..3).map(|_| rig.actor(Apd::EMPTY)).collect();
        let mut objects: Vec<(usize, u64)> = Vec::new();
        for _ in 0..400 {
            let which = rng.below(actors.len() as u64) as usize;
            let actor = actors[which];
            match rng.below(20) {
                0 => {
                    rig.call(actor, Call::ApdFlush, &[]).unwrap();
                }
                1 => rig.server.take_back(&mut rig.world),
                2 if rng.one_in(3) => {
                    rig.ends(actor);
                    actors[which] = rig.actor(Apd::EMPTY);
                    objects.retain(|&(of, _)| of != which);
                }
                3 => {
                    let (list, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 7]).unwrap();
                    rig.store(actor.space, list, 1).unwrap();
                    if rig.call(actor, Call::KeepObject, &[list]).is_ok() {
                        rig.checkpoint().unwrap();
                    }
                    rig.call(actor, Call::ObjDelete, &[list]).unwrap();
                }
                4 if !objects.is_empty() => {
                    let (of, base) = objects[rng.below(objects.len() as u64) as usize];
                    let _ = rig.call(actors[of], Call::ObjResize, &[base, (1 + rng.below(700)) * PAGE]);
                }
                5..=11 => {
                    let pages = [1, 1, 2, 9, 500, 600][rng.below(6) as usize];
                    let (base, _) = rig.call(actor, Call::ObjCreate, &[pages * PAGE, 7]).unwrap();
                    assert_eq!(rig.load(actor.space, base), Ok(0), "seed {seed}");
                    rig.store(actor.space, base, 1 + base).unwrap();
                    objects.push((which, base));
                }
                _ if !objects.is_empty() => {
                    let (of, base) = objects.swap_remove(rng.below(objects.len() as u64) as usize);
                    assert_eq!(rig.load(actors[of].space, base), Ok(1 + base), "seed {seed}");
                    rig.call(actors[of], Call::ObjDelete, &[base]).unwrap();
                    rig.settle();
                    assert_eq!(
                        rig.touch(actors[of].space, base, Access::Read).map(drop),
                        Err(Error::BadAddress)
                    );
                }
                _ => {}
            }
            rig.check();
        }
        for actor in actors {
            rig.ends(actor);
        }
        rig.checkpoint().unwrap();
        rig.settle();
        rig.check();
        assert!(frames(&rig) + 100 > start, "seed {seed}: frames are lost");
        assert_eq!(rig.server.objects.count(), 0, "seed {seed}");
    }
}
