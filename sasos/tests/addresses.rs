//! Addresses come back: those of deleted objects, those that procedures named, and all that nobody holds at a start.

mod common;

use abi::{
    Call, Error,
    address::{FIRST_FREE, OBJECT_BYTES_MAX, OBJECTS_END, PAGE, SLOT, slot_of},
};
use common::{Actor, Order, Rig};
use sasos::{
    accounts::{AccountId, UNLIMITED},
    protection::apd::Apd,
};

/// Objects of the largest size that fill all addresses.
const FILL: u64 = (OBJECTS_END - FIRST_FREE) / OBJECT_BYTES_MAX;

/// A Clist as large as an object can be.
fn large_clist(rig: &mut Rig, actor: Actor) -> u64 {
    let (clist, _) = rig
        .call(actor, Call::ObjCreate, &[OBJECT_BYTES_MAX, 0])
        .expect("there are addresses for it");
    rig.write_clist(actor.space, clist, &[], Order::Any);
    clist
}

fn create(rig: &mut Rig, actor: Actor) -> u64 {
    rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap().0
}

#[test]
fn a_procedure_that_names_a_deleted_clist_holds_one_slot_of_it() {
    let mut rig = Rig::new(1, 4000, 8192);
    let actor = rig.actor(Apd::EMPTY);
    let service = rig.service(actor, 5);
    let arguments = rig.entry_of(actor, service, 5, 0);
    for _ in 0..FILL + 100 {
        let clist = large_clist(&mut rig, actor);
        let [base, password, _, entries, count] = arguments;
        rig.call(actor, Call::ObjCrePdx, &[base, password, clist, entries, count])
            .unwrap();
        rig.call(actor, Call::ObjDelete, &[clist]).unwrap();
    }
    rig.check();
}

#[test]
fn procedures_of_kept_objects_hold_one_slot_each_over_a_start() {
    let mut rig = Rig::new(2, 4000, 8192);
    let actor = rig.actor(Apd::EMPTY);
    let mut clists = Vec::new();
    let services: Vec<u64> = (0..FILL / 16 + 5).map(|_| rig.kept(actor, 1, 9)).collect();
    for &service in &services {
        for password in 100..116 {
            let clist = large_clist(&mut rig, actor);
            rig.registers(actor, service, password, clist);
            rig.call(actor, Call::ObjDelete, &[clist]).unwrap();
            clists.push(clist);
        }
    }
    rig.checkpoint().unwrap();
    let (mut rig, _) = rig.crash();
    let actor = rig.holder(services[0], 9);
    large_clist(&mut rig, actor);
    // None of the named slots is used for anything else.
    let made: Vec<u64> = (0..3 * clists.len()).map(|_| create(&mut rig, actor)).collect();
    let named = |base: u64| clists.iter().any(|&clist| slot_of(clist) == slot_of(base));
    assert!(!made.into_iter().any(named), "a named address was used again");
    rig.check();
}

#[test]
fn all_addresses_that_nobody_holds_are_free_at_every_start() {
    let mut rig = Rig::new(3, 4000, 8192);
    for _ in 0..FILL / 15 + 5 {
        let actor = rig.actor(Apd::EMPTY);
        for _ in 0..15 {
            rig.call(actor, Call::ObjCreate, &[OBJECT_BYTES_MAX, 0]).unwrap();
        }
        rig.checkpoint().unwrap();
        (rig, _) = rig.crash();
    }
    rig.check();
}

#[test]
fn holes_do_not_keep_large_objects_from_their_place() {
    let mut rig = Rig::new(4, 4000, 8192);
    let actor = rig.actor(Apd::EMPTY);
    // A hundred holes of two slots, and behind them all the rest.
    let bases: Vec<u64> = (0..200)
        .map(|_| rig.call(actor, Call::ObjCreate, &[2 * SLOT, 0]).unwrap().0)
        .collect();
    for &base in bases.iter().step_by(2) {
        rig.call(actor, Call::ObjDelete, &[base]).unwrap();
    }
    for _ in 0..FILL + 100 {
        let (base, _) = rig.call(actor, Call::ObjCreate, &[OBJECT_BYTES_MAX, 0]).unwrap();
        rig.call(actor, Call::ObjDelete, &[base]).unwrap();
    }
    rig.check();
}

#[test]
fn kept_objects_that_are_deleted_do_not_use_addresses_up_before_a_checkpoint() {
    let mut rig = Rig::new(5, 4000, 8192);
    let actor = rig.actor(Apd::EMPTY);
    for _ in 0..FILL + 100 {
        let base = rig.kept(actor, OBJECT_BYTES_MAX / PAGE, 0);
        rig.call(actor, Call::ObjDelete, &[base]).unwrap();
    }
    rig.check();
}

/// Makes small objects until one stands in a slot; tells whether one did.
fn is_used_again(rig: &mut Rig, actor: Actor, slot: u64) -> bool {
    let made: Vec<u64> = (0..600).map(|_| create(rig, actor)).collect();
    let found = made.iter().any(|&base| slot_of(base) == slot);
    for base in made {
        rig.call(actor, Call::ObjDelete, &[base]).unwrap();
    }
    found
}

#[test]
fn the_last_record_that_names_a_clist_sets_its_address_free() {
    let mut rig = Rig::new(6, 4000, 8192);
    let actor = rig.actor(Apd::EMPTY);
    let (one, two) = (rig.service(actor, 5), rig.service(actor, 5));
    let clist = create(&mut rig, actor);
    rig.write_clist(actor.space, clist, &[], Order::Any);
    rig.registers(actor, one, 5, clist);
    rig.registers(actor, two, 5, clist);
    rig.registers(actor, two, 6, clist);
    rig.call(actor, Call::ObjDelete, &[clist]).unwrap();
    let slot = slot_of(clist);
    assert!(!is_used_again(&mut rig, actor, slot));
    // A record ends with its object, with its password, or another takes its place.
    rig.call(actor, Call::ObjDelete, &[one]).unwrap();
    assert!(!is_used_again(&mut rig, actor, slot));
    rig.call(actor, Call::ObjPasswd, &[two, 6, 0]).unwrap();
    assert!(!is_used_again(&mut rig, actor, slot));
    rig.registers(actor, two, 5, 0);
    assert!(is_used_again(&mut rig, actor, slot));
    rig.check();
}

#[test]
fn a_row_that_is_still_on_the_disk_holds_the_address_that_it_names() {
    for deletes_first in [false, true] {
        let mut rig = Rig::new(7, 4000, 8192);
        let actor = rig.actor(Apd::EMPTY);
        let service = rig.kept(actor, 1, 9);
        let clist = create(&mut rig, actor);
        rig.write_clist(actor.space, clist, &[], Order::Any);
        rig.registers(actor, service, 5, clist);
        rig.checkpoint().unwrap();
        let order = if deletes_first {
            [clist, service]
        } else {
            [service, clist]
        };
        for base in order {
            rig.call(actor, Call::ObjDelete, &[base]).unwrap();
        }
        assert!(!is_used_again(&mut rig, actor, slot_of(clist)));
        rig.checkpoint().unwrap();
        rig.settle();
        assert!(is_used_again(&mut rig, actor, slot_of(clist)));
        rig.check();
    }
}

#[test]
fn a_call_that_fails_names_nothing() {
    let mut rig = Rig::new(8, 4000, 8192);
    let actor = rig.actor(Apd::EMPTY);
    let service = rig.service(actor, 5);
    let clist = create(&mut rig, actor);
    rig.write_clist(actor.space, clist, &[], Order::Any);
    // The password of a capability.
    rig.call(actor, Call::ObjPasswd, &[service, 7, 1]).unwrap();
    let arguments = rig.entry_of(actor, service, 7, clist);
    assert_eq!(rig.call(actor, Call::ObjCrePdx, &arguments), Err(Error::InUse));
    rig.call(actor, Call::ObjDelete, &[clist]).unwrap();
    assert!(is_used_again(&mut rig, actor, slot_of(clist)));
    rig.check();
}

/// All addresses are taken. Those of a kept object that was deleted are free with a checkpoint, for which the next object waits; without any the error is told.
#[test]
fn the_last_addresses_are_waited_for() {
    let mut rig = Rig::new(31, 60_000, 4096);
    let actor = rig.actor_in(AccountId::ROOT, UNLIMITED);
    let make = |rig: &mut Rig, bytes: u64| rig.call(actor, Call::ObjCreate, &[bytes, 0]).map(|(base, _)| base);
    let kept = make(&mut rig, OBJECT_BYTES_MAX).unwrap();
    rig.call(actor, Call::KeepObject, &[kept]).unwrap();
    rig.checkpoint().unwrap();
    let mut bytes = OBJECT_BYTES_MAX;
    while bytes >= SLOT {
        if make(&mut rig, bytes).is_err() {
            bytes /= 2;
        }
    }
    assert_eq!(make(&mut rig, PAGE), Err(Error::NoMemory));
    rig.call(actor, Call::ObjDelete, &[kept]).unwrap();
    let next = make(&mut rig, OBJECT_BYTES_MAX).unwrap();
    assert_eq!(slot_of(next), slot_of(kept), "the same place");
    rig.check();
}
