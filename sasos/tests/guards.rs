//! Guards by `PageLimit` over ranges with many page tables that have no page: the look goes in pieces, and takes these tables back.

mod common;

use abi::{Call, Error, address::SLOT};
use common::{Actor, Rig};
use kcore::thread::Resumed;
use sasos::protection::apd::Apd;

const SLOTS: u64 = 400;
/// Page tables that one event looks at, or takes back, at most.
const MOST: u64 = 128;

/// An object with a page table in each slot, and no page.
fn bare(rig: &mut Rig, actor: Actor) -> u64 {
    let (base, _) = rig.call(actor, Call::ObjCreate, &[SLOTS * SLOT, 5]).unwrap();
    for slot in 0..SLOTS {
        rig.store(actor.space, base + slot * SLOT, 1).unwrap();
        rig.call(actor, Call::PageUnMap, &[base + slot * SLOT, 1, 0]).unwrap();
    }
    base
}

/// Sets a guard over all of an object; tells how many events that took, and the most accesses of one. Something else happens between them.
fn guard(rig: &mut Rig, actor: Actor, base: u64, mut between: impl FnMut(&mut Rig)) -> (u64, u64, Result<(), Error>) {
    let arguments = [base, SLOTS * SLOT / 4096, 0];
    let (mut resumed, mut most) = (Resumed::First, 0);
    for events in 1..1000 {
        rig.server.put_off_check();
        let before = rig.world.kernel.hardware.accesses();
        let result = rig.begin(actor, Call::PageLimit, &arguments, resumed);
        most = most.max(rig.world.kernel.hardware.accesses() - before);
        if let Some(result) = result {
            rig.check();
            return (events, most, result.map(|_| ()));
        }
        between(rig);
        resumed = Resumed::Woken;
    }
    panic!("it never ends");
}

#[test]
fn a_guard_over_bare_page_tables_goes_in_pieces() {
    for users in [0, 30] {
        let mut rig = Rig::new(1, 8000, 4096);
        let actor = rig.actor(Apd::EMPTY);
        let base = bare(&mut rig, actor);
        let users: Vec<Actor> = (0..users).map(|_| rig.holder(base, 5)).collect();
        for user in &users {
            rig.load(user.space, base).unwrap();
        }
        rig.call(actor, Call::PageUnMap, &[base, 1, 0]).unwrap();
        let (events, most, result) = guard(&mut rig, actor, base, |_| {});
        assert_eq!(result, Ok(()));
        assert!(events >= SLOTS / MOST, "{events} events for {SLOTS} page tables");
        assert!(most < 600, "{most} accesses in one event");
        for slot in [0, SLOTS - 1] {
            assert_eq!(rig.load(actor.space, base + slot * SLOT), Err(Error::Protection));
        }
    }
}

/// A page that comes between two pieces, wherever it is, is seen before the guard stands.
#[test]
fn a_page_that_comes_between_two_pieces_is_seen() {
    for slot in [0, SLOTS / 2, SLOTS - 1] {
        let mut rig = Rig::new(2, 8000, 4096);
        let actor = rig.actor(Apd::EMPTY);
        let base = bare(&mut rig, actor);
        let other = rig.sibling(actor);
        let mut came = false;
        let (_, _, result) = guard(&mut rig, actor, base, |rig| {
            if !came {
                rig.store(other.space, base + slot * SLOT, 7).unwrap();
            }
            came = true;
        });
        assert!(came);
        assert_eq!(result, Err(Error::BadArgument));
        assert_eq!(rig.load(actor.space, base + slot * SLOT), Ok(7));
        rig.call(actor, Call::PageUnMap, &[base + slot * SLOT, 1, 0]).unwrap();
        assert_eq!(guard(&mut rig, actor, base, |_| {}).2, Ok(()));
    }
}
