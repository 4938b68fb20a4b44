//! Passwords: while the heap of the server is short none are added and all can be revoked; revoking what many have linked is done in
//! pieces; entry points go with the pages that they are in.

mod common;

use abi::{
    Call, Error, Rights,
    address::{PAGE, SLOT},
};
use common::{Actor, Rig};
use kcore::thread::Resumed;
use sasos::{Access, Event, protection::apd::Apd};

#[test]
fn without_heap_nothing_is_registered_and_everything_can_be_revoked() {
    let mut rig = Rig::new(1, 4000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(actor, Call::ObjCreate, &[2 * PAGE, 0]).unwrap();
    let (entries, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
    rig.store(actor.space, entries, base + 64).unwrap();
    let read = u64::from(Rights::R.bits());
    rig.call(actor, Call::ObjPasswd, &[base, 5, read]).unwrap();
    rig.call(actor, Call::ObjCrePdx, &[base, 6, 0, entries, 1]).unwrap();
    let whole = core::mem::replace(&mut rig.world.kernel.hardware.heap_left, 1000);
    assert_eq!(rig.call(actor, Call::ObjPasswd, &[base, 7, read]), Err(Error::NoMemory));
    assert_eq!(
        rig.call(actor, Call::ObjCrePdx, &[base, 8, 0, entries, 1]),
        Err(Error::NoMemory)
    );
    assert_eq!(rig.call(actor, Call::KeepObject, &[base]), Err(Error::NoMemory));
    assert_eq!(rig.call(actor, Call::SemCreate, &[base, 0]), Err(Error::NoMemory));
    for password in [5, 6] {
        rig.call(actor, Call::ObjPasswd, &[base, password, 0]).unwrap();
    }
    rig.world.kernel.hardware.heap_left = whole;
    let id = rig.server.objects.find(base).unwrap();
    let record = &rig.server.objects.get(id).record;
    assert_eq!(record.capabilities.len(), 1, "the owner's own");
    assert!(record.pdx.is_empty());
    rig.call(actor, Call::ObjPasswd, &[base, 7, read]).unwrap();
    rig.check();
}

/// An entry point that is cut off does not come back when the object grows again, in memory and on the disk.
#[test]
fn entries_beyond_the_end_go_with_it() {
    for kept in [false, true] {
        let mut rig = Rig::new(2, 4000, 4096);
        let actor = rig.actor(Apd::EMPTY);
        let (base, _) = rig.call(actor, Call::ObjCreate, &[3 * PAGE, 9]).unwrap();
        let (entries, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
        let [inside, outside] = [base + 64, base + 2 * PAGE];
        rig.store(actor.space, entries, inside).unwrap();
        rig.store(actor.space, entries + 8, outside).unwrap();
        rig.call(actor, Call::ObjCrePdx, &[base, 6, 0, entries, 2]).unwrap();
        rig.call(actor, Call::ObjCrePdx, &[base, 7, 0, entries + 8, 1]).unwrap();
        if kept {
            rig.call(actor, Call::KeepObject, &[base]).unwrap();
        }
        for pages in [2, 3] {
            rig.call(actor, Call::ObjResize, &[base, pages * PAGE]).unwrap();
            let id = rig.server.objects.find(base).unwrap();
            let pdx = rig.server.objects.get(id).record.pdx.clone();
            let named: Vec<_> = pdx.iter().map(|pdx| (pdx.password, pdx.entries)).collect();
            assert_eq!(named, [(6, &[inside][..]), (7, &[][..])]);
            if kept {
                assert_eq!(rig.server.store.object(base).map(|record| &record.pdx), Some(&pdx));
            }
        }
        assert_eq!(
            rig.call(actor, Call::PdxCall, &[outside, 0, abi::layout::PD_EMPTY]),
            Err(Error::NotAnEntry)
        );
        rig.check();
    }
}

const SLOTS: u64 = 30;

/// An object of many slots, all linked by its maker and by many who hold the password 5.
fn shared(rig: &mut Rig) -> (Actor, u64, Vec<Actor>) {
    let owner = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(owner, Call::ObjCreate, &[SLOTS * SLOT, 0]).unwrap();
    let read = u64::from(Rights::R.bits());
    rig.call(owner, Call::ObjPasswd, &[base, 5, read]).unwrap();
    for slot in 0..SLOTS {
        rig.store(owner.space, base + slot * SLOT, slot).unwrap();
    }
    let holders: Vec<Actor> = (0..30).map(|_| rig.holder(base, 5)).collect();
    for holder in &holders {
        for slot in 0..SLOTS {
            assert_eq!(rig.load(holder.space, base + slot * SLOT), Ok(slot));
        }
    }
    (owner, base, holders)
}

#[test]
fn no_event_of_a_revocation_takes_long_and_none_is_left() {
    for delete in [false, true] {
        let mut rig = Rig::new(3, 8000, 4096);
        let (owner, base, holders) = shared(&mut rig);
        let longest = if delete {
            rig.longest_event(owner, Call::ObjDelete, &[base])
        } else {
            rig.longest_event(owner, Call::ObjPasswd, &[base, 5, 0])
        };
        assert!(longest < 900, "{longest} accesses in one event");
        rig.check();
        let error = if delete { Error::BadAddress } else { Error::Protection };
        for holder in &holders {
            for slot in [0, SLOTS / 2, SLOTS - 1] {
                assert_eq!(rig.touch(holder.space, base + slot * SLOT, Access::Read), Err(error));
            }
        }
        if !delete {
            rig.store(owner.space, base, 7).unwrap();
        }
        rig.check();
    }
}

/// The thread that revokes ends in the middle, and so does one of those who lose the right.
#[test]
fn a_revocation_that_is_begun_is_completed() {
    let mut rig = Rig::new(4, 8000, 4096);
    let (owner, base, holders) = shared(&mut rig);
    let begun = rig.begin(owner, Call::ObjPasswd, &[base, 5, 0], Resumed::First);
    assert_eq!(begun, None, "there is more than one piece");
    assert!(rig.server.is_unfinished());
    // Nobody gets anything any more that is derived from the right.
    assert_eq!(rig.server.known_rights(holders[0].space, base), Rights::NONE);
    // While it goes on a leaf may go, and a domain.
    for actor in [holders[29], holders[3]] {
        rig.server.task_kill(actor.task, 1);
        rig.server.finish_ends(&mut rig.world);
    }
    rig.call(holders[5], Call::ObjCreate, &[PAGE, 0]).unwrap();
    let other = rig.actor(Apd::EMPTY);
    assert_eq!(rig.call(owner, Call::ObjResize, &[base, 20 * SLOT]), Ok((0, 0)));
    while rig.server.is_unfinished() {
        rig.server.handle(&mut rig.world, Event::Poll);
    }
    rig.check();
    for actor in [holders[0], holders[5], other] {
        assert_eq!(rig.touch(actor.space, base, Access::Read), Err(Error::Protection));
    }
    assert_eq!(rig.load(owner.space, base + SLOT), Ok(1));
    rig.check();
}
