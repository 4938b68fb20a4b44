//! Lives of a server whose object table is in memory in parts: objects come when they are needed, and addresses are looked at when others have run out.

mod common;

use std::collections::BTreeMap;

use abi::{
    Error,
    address::{PAGE, SLOT},
    call::Call,
};
use common::{Actor, Rig};
use sasos::{
    accounts::{AccountId, UNLIMITED},
    directory::address::OBJECT_SLOTS_MAX,
};
use sim::{rng::Rng, seeds::number};

const PASSWORD: u64 = 77;

/// Kept objects: their pages, and the word at the beginning of each.
type Kept = BTreeMap<u64, (u64, u64)>;

/// The slots of an object.
fn slots(base: u64, pages: u64) -> std::ops::Range<u64> {
    base / SLOT..(base + pages * PAGE).div_ceil(SLOT)
}

/// No object that is kept has a slot of another one.
fn judge(kept: &Kept, base: u64, pages: u64) {
    let new = slots(base, pages);
    for (&other, &(others, _)) in kept.iter().filter(|(other, _)| **other != base) {
        let old = slots(other, others);
        assert!(
            new.end <= old.start || old.end <= new.start,
            "{base:#x} of {pages} pages stands in slots of {other:#x}"
        );
    }
}

fn create(rig: &mut Rig, actor: Actor, kept: &Kept, pages: u64) -> Result<u64, Error> {
    let made = rig.call(actor, Call::ObjCreate, &[pages * PAGE, PASSWORD])?;
    judge(kept, made.0, pages);
    Ok(made.0)
}

fn live(rig: &mut Rig, rng: &mut Rng, kept: &mut Kept) {
    let (actor, _) = rig.first_task();
    let mut names: Vec<u64> = kept.keys().copied().collect();
    if !names.is_empty() {
        rig.gets(actor, &names, PASSWORD);
    }
    for step in 0..60 {
        let base = (!names.is_empty()).then(|| *rng.pick(&names));
        match (rng.below(11), base) {
            (0..3, _) | (_, None) => {
                let pages = *rng.pick(&[1, 1, 3, 513, 1500]);
                let base = create(rig, actor, kept, pages).expect("addresses");
                rig.call(actor, Call::KeepObject, &[base]).expect("it is kept");
                rig.store(actor.space, base, step).expect("its maker may write");
                kept.insert(base, (pages, step));
                names.push(base);
            }
            (3, _) => {
                let _ = create(rig, actor, kept, 600).expect("addresses");
            }
            (4, Some(base)) => {
                rig.call(actor, Call::ObjDelete, &[base]).expect("it goes");
                kept.remove(&base);
                names.retain(|&name| name != base);
            }
            (5, Some(base)) => {
                let pages = 1 + rng.below(1600);
                match rig.call(actor, Call::ObjResize, &[base, pages * PAGE]) {
                    Ok(_) => {
                        judge(kept, base, pages);
                        kept.get_mut(&base).expect("it is kept").0 = pages;
                    }
                    Err(error) => assert_eq!(error, Error::CannotGrow),
                }
            }
            (6, Some(base)) => {
                rig.store(actor.space, base, 1000 + step).expect("a right");
                kept.get_mut(&base).expect("it is kept").1 = 1000 + step;
            }
            (7, _) => {
                rig.put_to_rest();
                // The rights of who made an object are those of a capability from then on.
                if !names.is_empty() {
                    rig.gets(actor, &names, PASSWORD);
                }
            }
            (_, Some(base)) => {
                assert_eq!(rig.load(actor.space, base), Ok(kept[&base].1));
            }
        }
    }
}

/// Whatever comes and goes, each object is found as it was left, and none stands in another one.
#[test]
fn objects_come_when_they_are_needed() {
    for seed in 0..number("GOND_SEEDS").unwrap_or(12) {
        let mut rng = Rng::new(seed);
        // From the beginning, so that nodes are small.
        let mut rig = Rig::new(seed, 4000, 20_000).crash_in_parts().0;
        let mut kept = Kept::new();
        for _ in 0..5 {
            live(&mut rig, &mut rng, &mut kept);
            rig.settle();
            rig.generation().expect("the disk works");
            rig = rig.crash_in_parts().0;
        }
        let actor = rig.actor_in(AccountId::ROOT, UNLIMITED);
        let names: Vec<u64> = kept.keys().copied().collect();
        rig.gets(actor, &names, PASSWORD);
        for (&base, &(_, word)) in &kept {
            assert_eq!(rig.load(actor.space, base), Ok(word), "seed {seed}, {base:#x}");
        }
    }
}

/// Where all addresses behind the last object are taken, those between objects of earlier starts are found.
#[test]
fn addresses_between_objects_are_found_when_others_run_out() {
    let mut rig = Rig::new(5, 4000, 20_000).crash_in_parts().0;
    let (actor, _) = rig.first_task();
    let (mut kept, mut gone) = (Kept::new(), 0);
    for number in 0..60 {
        let base = create(&mut rig, actor, &kept, 1).expect("addresses");
        if number % 3 == 2 {
            gone += 1;
        } else {
            rig.call(actor, Call::KeepObject, &[base]).expect("it is kept");
            kept.insert(base, (1, 0));
        }
    }
    rig.settle();
    rig.generation().expect("the disk works");
    let mut rig = rig.crash_in_parts().0;
    assert!(!rig.server.store.has_all_rows());
    let actor = rig.actor_in(AccountId::ROOT, UNLIMITED);
    let large = OBJECT_SLOTS_MAX * SLOT / PAGE;
    while let Ok(base) = create(&mut rig, actor, &kept, large) {
        assert!(base > *kept.keys().next_back().expect("some are kept"));
    }
    // What is left behind the last one, as far as it is no more than a hundred objects.
    let mut found = 0;
    let last = *kept.keys().next_back().expect("some are kept");
    for _ in 0..OBJECT_SLOTS_MAX {
        match create(&mut rig, actor, &kept, 1) {
            Ok(base) => found += u64::from(base < last),
            Err(error) => {
                assert!(matches!(error, Error::NoMemory | Error::LimitReached), "{error:?}");
                break;
            }
        }
        if found >= gone - 1 {
            break;
        }
    }
    assert!(found >= gone - 1, "{found} of {gone} were found");
}
