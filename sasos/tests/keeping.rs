//! `KeepObject` in pieces: it succeeds or fails as a whole, whatever happens between two of them.

mod common;

use abi::{
    Call, Error, Rights,
    address::PAGE,
    layout::{EXCEPTION_KILL, OBJECT_PERSISTENT, UNMAP_ZERO},
};
use common::{Actor, Rig};
use kcore::thread::Resumed;
use sasos::{
    accounts::{AccountId, Resource, limits},
    protection::apd::Apd,
};
use sim::seeds;

/// Pages, every second in memory.
const PAGES: u64 = 3000;
/// Pages with limits of their own, none in memory.
const LIMITED: u64 = 1000;
const PASSWORD: u64 = 77;

/// A transient object with every second page in memory, and behind these pages that may only be read.
fn with_gaps(rig: &mut Rig, actor: Actor) -> u64 {
    let bytes = (PAGES + LIMITED) * PAGE;
    let (base, _) = rig.call(actor, Call::ObjCreate, &[bytes, PASSWORD]).unwrap();
    for page in (0..PAGES).step_by(2) {
        rig.store(actor.space, base + page * PAGE, page + 1).unwrap();
    }
    rig.call(actor, Call::PageLimit, &[base + PAGES * PAGE, LIMITED, 4])
        .unwrap();
    base
}

fn reserved(rig: &Rig) -> u64 {
    rig.server.store.stats().reserved
}

fn is_kept(rig: &Rig, base: u64) -> bool {
    let id = rig.server.objects.find(base).expect("it is there");
    rig.server.objects.get(id).is_persistent()
}

#[test]
fn promises_and_limits_are_made_in_pieces() {
    let mut rig = Rig::new(1, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let base = with_gaps(&mut rig, actor);
    let most = rig.largest_step(actor, Call::KeepObject, &[base], reserved);
    assert!(most < 25, "room for {most} blocks is asked for in one event");
    assert!(is_kept(&rig, base));
    rig.check();
    rig.checkpoint().unwrap();
    let (mut rig, _) = rig.crash();
    let user = rig.holder(base, PASSWORD);
    for page in 0..PAGES {
        let wanted = if page % 2 == 0 { page + 1 } else { 0 };
        assert_eq!(rig.load(user.space, base + page * PAGE), Ok(wanted));
    }
    for page in PAGES..PAGES + LIMITED {
        let written = rig.store(user.space, base + page * PAGE, 1);
        assert_eq!(written, Err(Error::Protection), "page {page}");
    }
    rig.check();
}

/// It fails because the account or the disk has no room for so many pages: in its last piece, or any before.
#[test]
fn a_failure_leaves_the_object_as_it_was() {
    let mut ends = [0; 3];
    let accounts = [20, 700, 1499].map(|blocks| (blocks, 20_000));
    let disks = (900..1700).step_by(25).map(|disk| (9000, disk));
    for (blocks, disk) in accounts.into_iter().chain(disks) {
        let mut rig = Rig::new(2, 8000, disk);
        let mut amounts = limits::of_frames(4000);
        amounts[Resource::Blocks as usize] = blocks;
        let actor = rig.actor_in(AccountId::ROOT, amounts);
        let base = with_gaps(&mut rig, actor);
        let before = reserved(&rig);
        let (most, result) = rig.largest_step_of(actor, Call::KeepObject, &[base], reserved);
        assert!(most < 100, "{most} promises in one event");
        match result {
            Err(Error::LimitReached) => ends[0] += 1,
            Err(Error::DiskFull) => ends[1] += 1,
            other => {
                assert!(other.is_ok() && is_kept(&rig, base));
                ends[2] += 1;
                continue;
            }
        }
        assert!(!is_kept(&rig, base));
        rig.check();
        rig.settle();
        let id = rig.server.objects.find(base).unwrap();
        assert_eq!(
            (reserved(&rig), rig.server.objects.get(id).blocks),
            (before, 0),
            "all of it came back"
        );
        assert_eq!(rig.store(actor.space, base + PAGE, 7), Ok(()));
    }
    assert!(ends[0] == 3 && ends[1] > 10 && ends[2] > 0, "{ends:?}");
}

/// The thread ends, or forgets the call, in the middle. The object is transient; what was promised goes with it, or serves the next call.
#[test]
fn a_call_that_is_given_up_leaves_nothing_behind() {
    for events in [1, 40, 220] {
        for kept_later in [false, true] {
            let mut rig = Rig::new(3, 8000, 20_000);
            let actor = rig.actor(Apd::EMPTY);
            let base = with_gaps(&mut rig, actor);
            let before = (reserved(&rig), rig.server.pager.dirty);
            let other = rig.sibling(actor);
            for event in 0..events {
                let resumed = if event == 0 { Resumed::First } else { Resumed::Woken };
                assert_eq!(rig.begin(other, Call::KeepObject, &[base], resumed), None);
            }
            rig.call(actor, Call::ThreadDelete, &[other.thread.0, 0]).unwrap();
            assert!(reserved(&rig) > before.0 && rig.server.pager.dirty == before.1);
            rig.checkpoint().unwrap();
            rig.settle();
            rig.check();
            assert!(!is_kept(&rig, base) && rig.server.store.object(base).is_none());
            if kept_later {
                rig.call(actor, Call::KeepObject, &[base]).unwrap();
                rig.check();
                rig.call(actor, Call::ObjDelete, &[base]).unwrap();
            } else {
                rig.server.task_kill(actor.task, EXCEPTION_KILL);
            }
            rig.settle();
            rig.checkpoint().unwrap();
            rig.settle();
            assert_eq!(reserved(&rig), before.0);
            rig.check();
        }
    }
}

/// The store was told limits of pages that are cut off then: pages that come in their place have none.
#[test]
fn limits_of_pages_that_are_cut_off_are_forgotten() {
    let mut rig = Rig::new(4, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let base = with_gaps(&mut rig, actor);
    let keeper = rig.sibling(actor);
    let mut resumed = Resumed::First;
    // Each event promises some blocks until all have one.
    for _ in 0..220 {
        assert_eq!(rig.begin(keeper, Call::KeepObject, &[base], resumed), None);
        resumed = Resumed::Woken;
    }
    for pages in [PAGES, PAGES + LIMITED] {
        rig.call(actor, Call::ObjResize, &[base, pages * PAGE]).unwrap();
    }
    while rig.begin(keeper, Call::KeepObject, &[base], resumed).is_none() {}
    rig.put_away();
    for page in PAGES..PAGES + LIMITED {
        assert_eq!(rig.store(actor.space, base + page * PAGE, 1), Ok(()), "page {page}");
    }
    rig.check();
}

/// Another thread changes the object between the pieces. The object is kept as it is at the end.
#[test]
fn it_keeps_what_is_there_at_its_end() {
    seeds::run(60, |seed| {
        let mut rig = Rig::new(seed, 8000, 20_000);
        let actor = rig.actor(Apd::EMPTY);
        let base = with_gaps(&mut rig, actor);
        let keeper = rig.sibling(actor);
        let mut model: Vec<(u64, Rights)> = (0..PAGES + LIMITED)
            .map(|page| match page {
                PAGES.. => (0, Rights::R),
                _ if page % 2 == 0 => (page + 1, Rights::RWX),
                _ => (0, Rights::RWX),
            })
            .collect();
        let mut resumed = Resumed::First;
        loop {
            let begun = rig.begin(keeper, Call::KeepObject, &[base], resumed);
            rig.check();
            if let Some(result) = begun {
                result.unwrap();
                break;
            }
            resumed = Resumed::Woken;
            if rig.rng.one_in(3) {
                change(&mut rig, actor, base, &mut model);
            } else if rig.rng.one_in(20) {
                rig.server.checkpoint_request(&mut rig.world);
            } else {
                rig.move_disk();
            }
        }
        assert!(is_kept(&rig, base));
        rig.checkpoint().unwrap();
        rig.settle();
        let reserved_before = reserved(&rig);
        let (mut rig, _) = rig.crash();
        assert!(reserved(&rig) <= reserved_before, "no promise was left");
        let user = rig.holder(base, PASSWORD);
        for (page, &(value, limits)) in (0..).zip(&model) {
            let address = base + page * PAGE;
            assert_eq!(
                rig.load(user.space, address),
                Ok(value),
                "page {page} of {}",
                model.len()
            );
            let written = rig.store(user.space, address, 9);
            assert_eq!(
                written.is_ok(),
                limits.contains(Rights::W),
                "page {page} of {}",
                model.len()
            );
        }
        let end = base + model.len() as u64 * PAGE;
        assert_eq!(rig.load(user.space, end), Err(Error::BadAddress));
        rig.check();
    });
}

/// An object is deleted between two pieces of a call, and another one gets its address: the call is not about that one.
#[test]
fn a_call_does_not_go_on_with_another_object() {
    for (call, more) in [(Call::KeepObject, 0), (Call::ObjDelete, 0), (Call::ObjResize, PAGE)] {
        let mut rig = Rig::new(3, 8000, 16_000);
        let actor = rig.actor(Apd::EMPTY);
        let (base, _) = rig.call(actor, Call::ObjCreate, &[500 * PAGE, 77]).unwrap();
        for page in 0..500 {
            rig.store(actor.space, base + page * PAGE, 1).unwrap();
            if page % 2 == 1 {
                rig.call(actor, Call::PageUnMap, &[base + page * PAGE, 1, 0]).unwrap();
            }
        }
        let other = rig.sibling(actor);
        assert_eq!(
            rig.begin(other, call, &[base, more], Resumed::First),
            None,
            "it goes in pieces"
        );
        rig.call(actor, Call::ObjDelete, &[base]).unwrap();
        let (next, _) = rig.call(actor, Call::ObjCreate, &[500 * PAGE, 78]).unwrap();
        assert_eq!(next, base);
        let result = (0..1000).find_map(|_| rig.begin(other, call, &[base, more], Resumed::Woken));
        // A resize has taken effect with its first piece.
        let answer = if call == Call::ObjResize {
            Ok((0, 0))
        } else {
            Err(Error::BadAddress)
        };
        assert_eq!(result, Some(answer), "{call:?}");
        let id = rig.server.objects.find(next).expect("it is there still");
        let object = rig.server.objects.get(id);
        assert!(!object.is_persistent() && object.record.pages == 500);
        rig.check();
    }
}

/// One change of an object, and of its model.
fn change(rig: &mut Rig, actor: Actor, base: u64, model: &mut Vec<(u64, Rights)>) {
    let pages = model.len() as u64;
    let first = rig.rng.below(pages);
    let count = 1 + rig.rng.below((pages - first).min(200));
    let address = base + first * PAGE;
    let range = first as usize..(first + count) as usize;
    match rig.rng.below(12) {
        0..7 => {
            let value = 1 + rig.rng.below(1 << 30);
            match rig.store(actor.space, address, value) {
                Ok(()) => model[range.start].0 = value,
                Err(error) => {
                    assert_eq!(error, Error::Protection);
                    assert!(!model[range.start].1.contains(Rights::W));
                }
            }
        }
        7 => {
            let limits = *rig.rng.pick(&[Rights::R, Rights::RX, Rights::RWX]);
            match rig.call(actor, Call::PageLimit, &[address, count, u64::from(limits.bits())]) {
                Ok(_) => model[range].iter_mut().for_each(|page| page.1 = limits),
                Err(error) => assert_eq!(error, Error::TableFull),
            }
        }
        8 => match rig.call(actor, Call::PageUnMap, &[address, count, UNMAP_ZERO]) {
            Ok(_) => model[range].iter_mut().for_each(|page| page.0 = 0),
            Err(error) => assert_eq!(error, Error::Protection),
        },
        9 => {
            let more = if rig.rng.one_in(2) { first + 1 } else { pages + count };
            if rig.call(actor, Call::ObjResize, &[base, more * PAGE]).is_ok() {
                model.resize(more as usize, (0, Rights::RWX));
            }
        }
        10 => {
            let (clone, _) = rig.call(actor, Call::ObjClone, &[base, 0, 0]).unwrap();
            rig.call(actor, Call::ObjDelete, &[clone]).unwrap();
        }
        _ => {
            // A second one that keeps it, for a piece.
            let other = rig.sibling(actor);
            let _ = rig.begin(other, Call::KeepObject, &[base], Resumed::First);
            rig.call(actor, Call::ThreadDelete, &[other.thread.0, 0]).unwrap();
        }
    }
}

/// While an object is not active, only the store knows anything of it.
#[test]
fn the_row_of_a_kept_object_says_that_it_is_kept() {
    let mut rig = Rig::new(6, 4000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let base = rig.kept(actor, 1, PASSWORD);
    let row = rig.server.store.object(base).expect("a row");
    assert_eq!(row.flags & OBJECT_PERSISTENT, OBJECT_PERSISTENT);
}

/// Limits are paid by how many pages have them, not by where these pages are.
#[test]
fn limits_far_behind_cost_no_more() {
    let mut rig = Rig::new(9, 4000, 4096);
    let mut amounts = sasos::accounts::UNLIMITED;
    amounts[Resource::Bytes as usize] = 200 << 10;
    let actor = rig.actor_in(AccountId::ROOT, amounts);
    let (base, _) = rig.call(actor, Call::ObjCreate, &[100_001 * PAGE, 0]).unwrap();
    let limit = [base + 100_000 * PAGE, 1, u64::from(Rights::R.bits())];
    rig.call(actor, Call::PageLimit, &limit).unwrap();
    rig.call(actor, Call::KeepObject, &[base]).unwrap();
    rig.check();
}
