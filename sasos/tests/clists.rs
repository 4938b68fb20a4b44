//! Clists and APDs: hostile data, deletion and reuse, locks, pages that are still on the disk.

mod common;

use abi::{
    Call, Error, Rights,
    address::PAGE,
    layout::{APD_SLOTS, CLIST_MAGIC, CLIST_SORTED, CLIST_VERSION, Capability, ClistHeader},
};
use common::{Actor, Order, Rig};
use sasos::{Access, protection::apd::Apd};

const R: u64 = Rights::R.bits() as u64;

/// Two tasks: one that owns an object with a password for reading, one that has nothing.
fn pair(seed: u64) -> (Rig, Actor, Actor, Capability) {
    let mut rig = Rig::new(seed, 8000, 8192);
    let owner = rig.actor(Apd::EMPTY);
    let other = rig.actor(Apd::EMPTY);
    let (address, _) = rig.call(owner, Call::ObjCreate, &[2 * PAGE, 0]).unwrap();
    let (password, _) = rig.call(owner, Call::ObjPasswd, &[address, 0, R]).unwrap();
    (rig, owner, other, Capability { address, password })
}

fn write_header(rig: &mut Rig, actor: Actor, clist: u64, header: ClistHeader) {
    for (index, word) in header.to_words().into_iter().enumerate() {
        rig.store(actor.space, clist + index as u64 * 8, word).unwrap();
    }
}

#[test]
fn a_clist_must_be_well_formed_to_be_inserted() {
    let (mut rig, _, other, _) = pair(1);
    let (clist, _) = rig.call(other, Call::ObjCreate, &[PAGE, 0]).unwrap();
    let good = ClistHeader {
        magic: CLIST_MAGIC,
        version: CLIST_VERSION,
        flags: CLIST_SORTED,
        count: 254,
    };
    let bad = [
        ClistHeader { magic: 0, ..good },
        ClistHeader { version: 2, ..good },
        ClistHeader { flags: 2, ..good },
        ClistHeader { count: 255, ..good },
        ClistHeader {
            count: u64::MAX,
            ..good
        },
        ClistHeader::default(),
    ];
    for header in bad {
        write_header(&mut rig, other, clist, header);
        assert_eq!(
            rig.call(other, Call::ApdInsert, &[0, clist]),
            Err(Error::BadClist),
            "{header:?}"
        );
    }
    write_header(&mut rig, other, clist, good);
    assert_eq!(rig.call(other, Call::ApdInsert, &[1, clist]), Err(Error::BadArgument));
    assert_eq!(rig.call(other, Call::ApdInsert, &[0, 7]), Err(Error::BadAddress));
    for _ in 0..APD_SLOTS {
        rig.call(other, Call::ApdInsert, &[0, clist]).unwrap();
    }
    assert_eq!(rig.call(other, Call::ApdInsert, &[0, clist]), Err(Error::TableFull));
}

/// A list of a billion capabilities, none of them ever written, that says whatever it likes.
#[test]
fn a_hostile_list_costs_little_and_grants_nothing() {
    let (mut rig, _, other, capability) = pair(2);
    let bytes = 16 << 30;
    let (clist, _) = rig.call(other, Call::ObjCreate, &[bytes, 0]).unwrap();
    let count = (bytes - ClistHeader::BYTES as u64) / Capability::BYTES as u64;
    for flags in [0, CLIST_SORTED] {
        write_header(
            &mut rig,
            other,
            clist,
            ClistHeader {
                magic: CLIST_MAGIC,
                version: CLIST_VERSION,
                flags,
                count,
            },
        );
        rig.call(other, Call::ApdInsert, &[0, clist]).unwrap();
        let resident = rig.server.objects.resident();
        for _ in 0..20 {
            assert_eq!(
                rig.call(other, Call::ApdLookup, &[capability.address, R]),
                Err(Error::Protection)
            );
            assert_eq!(
                rig.touch(other.space, capability.address, Access::Read),
                Err(Error::Protection)
            );
        }
        assert_eq!(rig.server.objects.resident(), resident, "searching makes no page");
    }
    // A list that was good when it was inserted and is not any more is as if empty.
    write_header(
        &mut rig,
        other,
        clist,
        ClistHeader {
            magic: CLIST_MAGIC,
            version: CLIST_VERSION,
            flags: 0,
            count: u64::MAX,
        },
    );
    assert_eq!(
        rig.call(other, Call::ApdLookup, &[capability.address, R]),
        Err(Error::Protection)
    );
    rig.write_clist(other.space, clist, &[capability], Order::Any);
    assert_eq!(
        rig.call(other, Call::ApdLookup, &[capability.address, R]),
        Ok((clist + 32, 0))
    );
}

#[test]
fn a_list_that_is_gone_grants_nothing_even_if_another_takes_its_place() {
    let (mut rig, owner, other, capability) = pair(3);
    let (clist, _) = rig.call(other, Call::ObjCreate, &[PAGE, 0]).unwrap();
    rig.write_clist(other.space, clist, &[], Order::Any);
    rig.call(other, Call::ApdInsert, &[0, clist]).unwrap();
    rig.call(other, Call::ApdLock, &[u64::MAX]).unwrap();
    assert_eq!(rig.call(other, Call::ApdInsert, &[1, clist]), Err(Error::Locked));
    assert_eq!(rig.call(other, Call::ApdDelete, &[0]), Err(Error::Locked));
    rig.call(other, Call::ObjDelete, &[clist]).unwrap();
    // The address is free at once and comes to somebody who would like to let the other out.
    let (again, _) = rig.call(owner, Call::ObjCreate, &[PAGE, 0]).unwrap();
    assert_eq!(again, clist);
    rig.write_clist(owner.space, clist, &[capability], Order::Any);
    assert_eq!(
        rig.call(other, Call::ApdLookup, &[capability.address, R]),
        Err(Error::Protection)
    );
    assert!(rig.call(other, Call::ApdFlush, &[]).is_ok());
    assert_eq!(
        rig.touch(other.space, capability.address, Access::Read),
        Err(Error::Protection)
    );
}

#[test]
fn the_domain_of_a_protected_procedure_cannot_change_its_apd() {
    let (mut rig, owner, _, _) = pair(4);
    let (clist, _) = rig.call(owner, Call::ObjCreate, &[PAGE, 0]).unwrap();
    rig.write_clist(owner.space, clist, &[], Order::Any);
    let mut apd = Apd::EMPTY;
    apd.add(rig.server.clist_ref(&mut rig.world, clist).unwrap()).unwrap();
    assert!(apd.sealed().insert(0, apd.slots()[0]).is_err());
    assert!(apd.sealed().delete(0).is_err());
    assert!(apd.sealed().lock(0).is_err());
}

#[test]
fn a_list_that_is_still_on_the_disk_is_waited_for() {
    let (mut rig, owner, _, capability) = pair(5);
    let many: u64 = 3000;
    let bytes = 32 + 16 * (many + 1);
    let (clist, _) = rig.call(owner, Call::ObjCreate, &[bytes, 5]).unwrap();
    // Sorted, and the one that counts somewhere in the middle.
    let filler = (0..many).map(|index| {
        let address = if index < 1500 {
            index
        } else {
            capability.address + (1 << 40) + index
        };
        Capability { address, password: 1 }
    });
    let list: Vec<_> = filler
        .chain([
            capability,
            Capability {
                address: clist,
                password: 5,
            },
        ])
        .collect();
    rig.call(owner, Call::ObjResize, &[clist, bytes + 16]).unwrap();
    rig.write_clist(owner.space, clist, &list, Order::Sorted);
    for object in [clist, capability.address] {
        rig.call(owner, Call::KeepObject, &[object]).unwrap();
    }
    rig.store(owner.space, capability.address, 4711).unwrap();
    rig.checkpoint().unwrap();
    let (mut rig, _) = rig.crash();
    let mut apd = Apd::EMPTY;
    apd.add(rig.server.clist_ref(&mut rig.world, clist).unwrap()).unwrap();
    let actor = rig.actor(apd);
    assert_eq!(rig.load(actor.space, capability.address), Ok(4711));
    assert_eq!(
        rig.touch(actor.space, capability.address, Access::Write),
        Err(Error::Protection)
    );
    // The list names itself, so it can be read as well; nearly all of it is still on the disk.
    assert_eq!(rig.load(actor.space, clist), Ok(CLIST_MAGIC));
    assert!(rig.server.objects.resident() < 10);
    rig.check();
}

#[test]
fn an_object_is_retired_only_when_nobody_else_has_it() {
    let (mut rig, owner, other, capability) = pair(5);
    let (clist, _) = rig.call(other, Call::ObjCreate, &[PAGE, 0]).unwrap();
    rig.write_clist(other.space, clist, &[capability], Order::Any);
    rig.call(other, Call::ApdInsert, &[0, clist]).unwrap();
    let base = capability.address;
    assert_eq!(rig.call(other, Call::ObjRetire, &[base]), Err(Error::Protection));
    rig.touch(other.space, base, Access::Read).unwrap();
    assert_eq!(rig.call(owner, Call::ObjRetire, &[base]), Err(Error::InUse));
    rig.touch(other.space, base, Access::Read).unwrap();
    // A domain that drops what it found is no user of the object any more.
    rig.call(other, Call::ApdFlush, &[]).unwrap();
    rig.call(owner, Call::ObjRetire, &[base]).unwrap();
    assert_eq!(rig.touch(other.space, base, Access::Read), Err(Error::BadAddress));
}
