//! Passwords while the heap of the server is short: none are added, and all can be revoked.

mod common;

use abi::{Call, Error, Rights, address::PAGE};
use common::Rig;
use sasos::apd::Apd;

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
            let named: Vec<_> = pdx.iter().map(|pdx| (pdx.password, pdx.entries.as_slice())).collect();
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
