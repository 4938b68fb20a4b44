//! Objects come to rest where heap is short, and are what they were when they are needed again.

mod common;

use abi::{Call, Error, Rights, address::PAGE, layout::Capability};
use common::{Actor, Order, Rig};
use sasos::{
    Access,
    accounts::{AccountId, Resource, UNLIMITED},
    directory::object::REST_BYTES,
};

const PASSWORD: u64 = 77;
const R: u64 = Rights::R.bits() as u64;

/// An object with a word in it, kept, with its password.
fn kept(rig: &mut Rig, actor: Actor, word: u64) -> u64 {
    let (base, _) = rig.call(actor, Call::ObjCreate, &[PAGE, PASSWORD]).expect("an object");
    assert!(rig.has(actor, base, Access::Write), "{word}");
    rig.store(actor.space, base, word).expect("its maker may write");
    rig.call(actor, Call::KeepObject, &[base]).expect("it is kept");
    base
}

fn capability(address: u64) -> Capability {
    Capability {
        address,
        password: PASSWORD,
    }
}

/// Whether an object is active.
fn is_active(rig: &Rig, base: u64) -> bool {
    rig.server.objects.find(base).is_some()
}

/// A program keeps many times as many objects as it can have active at once, looks at all of them, and deletes them.
#[test]
fn a_program_has_many_more_objects_than_can_be_active() {
    const MANY: u64 = 3000;
    // What the program has little of: a third or less of what all objects would take.
    let little = [
        (Resource::Bytes, 1 << 20),
        (Resource::Tables, 500),
        (Resource::Frames, 500),
    ];
    for (is_program, (resource, most)) in [true, false]
        .into_iter()
        .flat_map(|is| little.map(|little| (is, little)))
    {
        let mut rig = Rig::new(21, 8000, 40_000);
        let (_, programs) = rig.first_task();
        let account = if is_program { programs } else { AccountId::ROOT };
        let mut limits = UNLIMITED;
        limits[resource as usize] = most;
        let actor = rig.actor_in(account, limits);
        let bytes = (16 * (MANY + 2)).next_multiple_of(PAGE);
        let (list, _) = rig.call(actor, Call::ObjCreate, &[bytes, 0]).expect("an object");
        (0..bytes)
            .step_by(PAGE as usize)
            .for_each(|at| assert!(rig.has(actor, list + at, Access::Write)));
        let bases: Vec<u64> = (0..MANY).map(|word| kept(&mut rig, actor, word)).collect();
        rig.check();
        let most = rig.server.objects.count();
        assert!(
            resource != Resource::Bytes || most < MANY / 2,
            "{most} of {MANY} are active"
        );
        let all: Vec<Capability> = bases.iter().map(|&base| capability(base)).collect();
        rig.write_clist(actor.space, list, &all, Order::Any);
        rig.call(actor, Call::ApdInsert, &[0, list]).expect("its own");
        for (word, &base) in (0..).zip(&bases) {
            assert!(rig.has(actor, base, Access::Read), "{word}, {resource:?}");
            assert_eq!(rig.load(actor.space, base), Ok(word), "{word}");
        }
        rig.check();
        for &base in &bases {
            rig.call(actor, Call::ObjDelete, &[base]).expect("it goes");
        }
        rig.settle();
        rig.checkpoint().expect("the disk works");
        rig.check();
        assert_eq!(rig.server.ledger.used(AccountId::ROOT, Resource::Rows), 0);
        rig.ends(actor);
        rig.check();
    }
}

/// What an object costs while it rests, and that blocks and addresses are charged to nobody by name then.
#[test]
fn what_rests_costs_next_to_nothing() {
    let mut rig = Rig::new(22, 8000, 20_000);
    let (_, programs) = rig.first_task();
    let actor = rig.actor_in(programs, UNLIMITED);
    rig.server.ledger.empty_all_hands();
    let used = |rig: &Rig| {
        [Resource::Bytes, Resource::Rows, Resource::Blocks, Resource::Slots]
            .map(|what| rig.server.ledger.used(programs, what))
    };
    let before = used(&rig);
    let base = kept(&mut rig, actor, 5);
    rig.ends(actor);
    rig.put_to_rest();
    assert!(!is_active(&rig, base));
    rig.server.ledger.empty_all_hands();
    let now = used(&rig);
    assert!(now[0] <= before[0] + REST_BYTES);
    assert_eq!(now[1..], [before[1] + REST_BYTES, 0, 0]);
    let holder = rig.holder(base, PASSWORD);
    assert_eq!(rig.load(holder.space, base), Ok(5));
    rig.check();
}

/// A Clist that rests is the same one when it is needed; one that is made at its address later is another.
#[test]
fn a_clist_that_rests_stays_in_its_apd() {
    let mut rig = Rig::new(23, 8000, 20_000);
    let owner = rig.actor_in(AccountId::ROOT, UNLIMITED);
    let [one, two] = [5, 6].map(|word| kept(&mut rig, owner, word));
    let actor = rig.actor_in(AccountId::ROOT, UNLIMITED);
    let (list, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).expect("an object");
    rig.write_clist(actor.space, list, &[capability(one), capability(two)], Order::Any);
    rig.call(actor, Call::ObjPasswd, &[list, 99, R]).expect("its maker may");
    rig.call(actor, Call::KeepObject, &[list]).expect("it is kept");
    rig.gets(actor, &[list], 99);
    rig.call(actor, Call::ApdInsert, &[0, list]).expect("it may be read");
    assert_eq!(rig.load(actor.space, one), Ok(5));
    rig.put_to_rest();
    assert!(!is_active(&rig, list) && !is_active(&rig, one));
    assert_eq!(rig.load(actor.space, two), Ok(6));
    assert!(is_active(&rig, list) && !is_active(&rig, one));
    // A password goes while its object rests.
    let holder = rig.holder(one, PASSWORD);
    rig.put_to_rest();
    rig.call(holder, Call::ObjPasswd, &[one, PASSWORD, 0])
        .expect("it has all rights");
    assert_eq!(rig.load(actor.space, one), Err(Error::Protection));
    assert_eq!(rig.load(actor.space, two), Ok(6));
    rig.check();
}
