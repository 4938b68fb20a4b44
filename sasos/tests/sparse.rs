//! Objects that are large with few pages, objects that many domains have, and sources that change while they are cloned: no event has more to do for
//! them than for others.

mod common;

use abi::{
    Call, Error,
    address::{PAGE, SLOT},
};
use common::{Actor, Rig};
use kcore::{Machine, thread::Resumed};
use sasos::{
    accounts::{AccountId, Resource},
    protection::apd::Apd,
};

/// Slots that the server makes room for together.
const CHUNK: u64 = 64;
/// Chunks of an object with a page in each.
const CHUNKS: u64 = 300;
/// Bytes of the server for a chunk, at least.
const CHUNK_BYTES: u64 = CHUNK * 192;
/// Chunks, and page tables, that come or go in one event at most.
const SMALL: u64 = 24;

/// An object with a page in each of its chunks.
fn sparse(rig: &mut Rig, actor: Actor) -> u64 {
    let bytes = (CHUNKS * CHUNK + 1) * SLOT;
    let (base, _) = rig.call(actor, Call::ObjCreate, &[bytes, 0]).unwrap();
    for chunk in 0..CHUNKS {
        let address = base + (1 + chunk * CHUNK + chunk % CHUNK) * SLOT;
        rig.store(actor.space, address, chunk).unwrap();
    }
    base
}

/// Bytes that all records of the server cost.
fn bytes(rig: &Rig) -> u64 {
    rig.server.ledger.used(AccountId::ROOT, Resource::Bytes)
}

#[test]
fn a_sparse_object_is_forgotten_in_pieces() {
    for kept in [false, true] {
        for left in [Some(2 * SLOT), Some(60 * CHUNK * SLOT), None] {
            let mut rig = Rig::new(1, 8000, 20_000);
            let actor = rig.actor(Apd::EMPTY);
            rig.server.ledger.empty_all_hands();
            let base = sparse(&mut rig, actor);
            if kept {
                rig.call(actor, Call::KeepObject, &[base]).unwrap();
                rig.checkpoint().unwrap();
                rig.settle();
            }
            let before = bytes(&rig);
            let most = if let Some(left) = left {
                rig.largest_step(actor, Call::ObjResize, &[base, left], bytes)
            } else {
                rig.largest_step(actor, Call::ObjDelete, &[base], bytes)
            };
            assert!(
                most < SMALL * CHUNK_BYTES,
                "{most} bytes in one event, {kept}, {left:?}"
            );
            rig.settle();
            let gone = before - bytes(&rig);
            let chunks = CHUNKS - left.unwrap_or_default() / SLOT / CHUNK;
            assert!(
                gone > (chunks - 2) * CHUNK_BYTES,
                "{gone} bytes of {chunks} chunks came back"
            );
            rig.check();
        }
    }
}

/// Records of slots that a cut leaves for later are no part of the object when it grows again.
#[test]
fn an_object_that_grows_at_once_has_nothing_of_what_was_cut() {
    let mut rig = Rig::new(2, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    for kept in [false, true] {
        let base = sparse(&mut rig, actor);
        if kept {
            rig.call(actor, Call::KeepObject, &[base]).unwrap();
            rig.checkpoint().unwrap();
        }
        rig.call(actor, Call::ObjResize, &[base, PAGE]).unwrap();
        if kept {
            // The addresses are free when a checkpoint has the cut.
            rig.checkpoint().unwrap();
        }
        rig.call(actor, Call::ObjResize, &[base, CHUNKS * CHUNK * SLOT])
            .unwrap();
        for chunk in [0, 1, CHUNKS - 1] {
            let address = base + (1 + chunk * CHUNK + chunk % CHUNK) * SLOT;
            assert_eq!(rig.load(actor.space, address), Ok(0));
            rig.store(actor.space, address, 1).unwrap();
        }
        let object = rig.server.objects.get(rig.server.objects.find(base).unwrap());
        assert_eq!(object.blocks, if kept { 3 } else { 0 });
        rig.check();
    }
}

/// An account whose bytes are used up can still cut its object short: what the cut gives back comes first.
#[test]
fn who_has_no_bytes_left_can_cut() {
    let mut rig = Rig::new(3, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let base = sparse(&mut rig, actor);
    let account = rig.server.tasks.get(actor.task).unwrap().account;
    rig.server.ledger.empty_all_hands();
    let used = rig.server.ledger.used(account, Resource::Bytes);
    let mut limits = sasos::accounts::UNLIMITED;
    limits[Resource::Bytes as usize] = used;
    rig.server.ledger.set_limits(account, limits);
    assert_eq!(
        rig.call(actor, Call::ObjResize, &[base, 200 * CHUNK * SLOT]),
        Ok((0, 0))
    );
    rig.check();
}

#[test]
fn a_page_is_cut_off_though_many_have_the_object() {
    let mut rig = Rig::new(4, 16_000, 4096);
    let owner = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(owner, Call::ObjCreate, &[3 * PAGE, 0]).unwrap();
    rig.call(owner, Call::ObjPasswd, &[base, 5, 1]).unwrap();
    for page in 0..3 {
        rig.store(owner.space, base + page * PAGE, page).unwrap();
    }
    let users: Vec<Actor> = (0..200).map(|_| rig.holder(base, 5)).collect();
    for user in &users {
        rig.load(user.space, base + 2 * PAGE).unwrap();
    }
    let longest = rig.longest_event(owner, Call::ObjResize, &[base, 2 * PAGE]);
    assert!(longest < 60, "{longest} accesses in one event");
    for user in users {
        assert_eq!(rig.load(user.space, base + PAGE), Ok(1));
        assert_eq!(rig.load(user.space, base + 2 * PAGE), Err(Error::BadAddress));
    }
    rig.check();
}

/// Goes on with a call; tells its result and the most frames that it took or gave back in one event.
fn goes_on(rig: &mut Rig, actor: Actor, call: Call, arguments: &[u64]) -> (Result<(u64, u64), Error>, u64) {
    let mut most = 0;
    loop {
        let before = rig.world.frames_free();
        let result = rig.begin(actor, call, arguments, Resumed::Woken);
        most = most.max(rig.world.frames_free().abs_diff(before));
        if let Some(result) = result {
            return (result, most);
        }
    }
}

#[test]
fn a_clone_whose_source_grows_has_no_tables_behind_its_end() {
    let mut rig = Rig::new(5, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let other = rig.sibling(actor);
    // A place for the clone, so that the source has room behind it.
    let (place, _) = rig.call(actor, Call::ObjCreate, &[2 * SLOT, 0]).unwrap();
    let (source, _) = rig.call(actor, Call::ObjCreate, &[900 * SLOT, 0]).unwrap();
    rig.call(actor, Call::ObjResize, &[source, 2 * SLOT]).unwrap();
    rig.call(actor, Call::ObjDelete, &[place]).unwrap();
    for page in 0..60 {
        rig.store(actor.space, source + page * PAGE, page).unwrap();
    }
    assert_eq!(rig.begin(actor, Call::ObjClone, &[source, 0, 0], Resumed::First), None);
    rig.call(other, Call::ObjResize, &[source, 900 * SLOT]).unwrap();
    rig.store(other.space, source + 100 * SLOT, 1).unwrap();
    let (result, most) = goes_on(&mut rig, actor, Call::ObjClone, &[source, 0, 0]);
    let (clone, _) = result.unwrap();
    assert!(most < SMALL, "{most} frames in one event");
    let object = rig.server.objects.get(rig.server.objects.find(clone).unwrap());
    assert_eq!((object.leaves, object.resident), (2, 60));
    rig.check();
}

/// Another object at the address of a source that has gone is not what was to be cloned.
#[test]
fn a_clone_whose_source_is_replaced_fails() {
    let mut rig = Rig::new(6, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let other = rig.sibling(actor);
    let (source, _) = rig.call(actor, Call::ObjCreate, &[SLOT, 0]).unwrap();
    for page in 0..60 {
        rig.store(actor.space, source + page * PAGE, page).unwrap();
    }
    assert_eq!(rig.begin(actor, Call::ObjClone, &[source, 0, 0], Resumed::First), None);
    rig.call(other, Call::ObjDelete, &[source]).unwrap();
    let made = (0..1000).map(|_| rig.call(other, Call::ObjCreate, &[SLOT, 0]).unwrap().0);
    assert!(made.into_iter().any(|base| base == source), "the address is used again");
    rig.store(other.space, source, 77).unwrap();
    let count = rig.server.objects.count();
    let (result, _) = goes_on(&mut rig, actor, Call::ObjClone, &[source, 0, 0]);
    assert_eq!(result, Err(Error::BadAddress));
    assert_eq!(rig.server.objects.count(), count - 1, "the clone has gone");
    rig.check();
}

/// The account of a source pays for what a clone finds out about it, but the clone does not depend on that.
#[test]
fn a_clone_is_made_though_the_account_of_its_source_is_full() {
    let mut rig = Rig::new(7, 8000, 20_000);
    let owner = rig.actor_in(AccountId::ROOT, sasos::accounts::UNLIMITED);
    let source = rig.kept(owner, 100, 77);
    for page in (0..100).step_by(2) {
        rig.store(owner.space, source + page * PAGE, page).unwrap();
    }
    for page in [5, 9, 50] {
        rig.call(owner, Call::PageLimit, &[source + page * PAGE, 1, 4]).unwrap();
    }
    rig.put_away();
    let other = rig.holder(source, 77);
    let account = rig.server.tasks.get(owner.task).unwrap().account;
    rig.server.ledger.empty_all_hands();
    let mut limits = sasos::accounts::UNLIMITED;
    limits[Resource::Bytes as usize] = rig.server.ledger.used(account, Resource::Bytes);
    rig.server.ledger.set_limits(account, limits);
    let (clone, _) = rig.call(other, Call::ObjClone, &[source, 0, 0]).unwrap();
    for page in 0..100 {
        let wanted = if page % 2 == 0 { page } else { 0 };
        assert_eq!(rig.load(other.space, clone + page * PAGE), Ok(wanted));
        let written = rig.store(other.space, clone + page * PAGE, 1);
        assert_eq!(written.is_err(), [5, 9, 50].contains(&page), "page {page}");
    }
    rig.check();
}
