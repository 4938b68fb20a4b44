//! `PageCopy`: what it costs, and what is left when it fails.

mod common;

use abi::{Call, Error, address::PAGE, layout::UNMAP_ZERO};
use common::{Actor, Rig};
use kcore::thread::Resumed;
use sasos::accounts::{AccountId, Resource, limits};
use sasos::{Access, pages::copy::PIECE_PAGES, protection::apd::Apd};

/// A kept object of so many pages, each with its number, none of them in memory.
fn stored(rig: &mut Rig, actor: Actor, pages: u64) -> u64 {
    let base = rig.kept(actor, pages, 0);
    for page in 0..pages {
        rig.store(actor.space, base + page * PAGE, page + 1).unwrap();
    }
    rig.put_away();
    base
}

fn accesses_of_a_copy(pages: u64) -> u64 {
    let mut rig = Rig::new(1, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let source = stored(&mut rig, actor, pages);
    let (target, _) = rig.call(actor, Call::ObjCreate, &[pages * PAGE, 0]).unwrap();
    let before = rig.world.kernel.hardware.accesses();
    rig.call(actor, Call::PageCopy, &[source, target, pages]).unwrap();
    let accesses = rig.world.kernel.hardware.accesses() - before;
    for page in 0..pages {
        assert_eq!(rig.load(actor.space, target + page * PAGE), Ok(page + 1));
    }
    rig.check();
    accesses
}

#[test]
fn copying_what_is_on_the_disk_costs_so_much_a_page() {
    let (few, many) = (accesses_of_a_copy(200), accesses_of_a_copy(800));
    assert!(many < 6 * few, "200 pages: {few} accesses, 800 pages: {many}");
}

#[test]
fn no_event_of_a_copy_does_more_than_its_pieces() {
    let mut rig = Rig::new(2, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let source = stored(&mut rig, actor, 1000);
    for page in 0..1000 {
        rig.touch(actor.space, source + page * PAGE, Access::Read).unwrap();
    }
    let (target, _) = rig.call(actor, Call::ObjCreate, &[1000 * PAGE, 0]).unwrap();
    let longest = rig.longest_event(actor, Call::PageCopy, &[source, target, 1000]);
    assert!(longest < 30 * PIECE_PAGES, "{longest} accesses in one event");
    assert_eq!(rig.load(actor.space, target + 999 * PAGE), Ok(1000));
}

/// A read costs some 3,300 instructions before it is on its way.
#[test]
fn no_event_of_a_copy_asks_for_more_pages_than_its_budget_pays_for() {
    let mut rig = Rig::new(7, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let source = stored(&mut rig, actor, 500);
    let (target, _) = rig.call(actor, Call::ObjCreate, &[500 * PAGE, 0]).unwrap();
    let arguments = [source, target, 500];
    let most = rig.largest_step(actor, Call::PageCopy, &arguments, |rig| {
        rig.world.disk.under_way() as u64
    });
    assert!((2..=5).contains(&most), "{most} reads begun in one event");
    for page in 0..500 {
        assert_eq!(rig.load(actor.space, target + page * PAGE), Ok(page + 1));
    }
    rig.check();
}

/// An event copies fewer pages if the store must be asked for each page and for its target.
#[test]
fn pages_that_the_store_must_be_asked_for_take_more_events() {
    let mut rig = Rig::new(8, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let [source, target] = [0; 2].map(|_| {
        let base = rig.kept(actor, 1001, 0);
        rig.store(actor.space, base + 1000 * PAGE, 1).unwrap();
        base
    });
    rig.put_away();
    for base in [source, target] {
        assert_eq!(rig.load(actor.space, base + 1000 * PAGE), Ok(1));
    }
    // Zeroes over zeroes, which nobody knows but the store.
    let mut resumed = Resumed::First;
    let mut events = 1;
    while rig
        .begin(actor, Call::PageCopy, &[source, target, 1000], resumed)
        .is_none()
    {
        resumed = Resumed::Woken;
        events += 1;
        assert!(events < 10_000, "it never ends");
    }
    assert!(events > 150, "{events} events");
    rig.check();
}

/// The account is looked at before the first page is changed.
#[test]
fn a_copy_that_the_account_cannot_pay_for_copies_nothing() {
    let mut rig = Rig::new(3, 4000, 4096);
    let actor = rig.actor_in(AccountId::ROOT, limits::of_frames(500));
    let (source, _) = rig.call(actor, Call::ObjCreate, &[300 * PAGE, 0]).unwrap();
    let (target, _) = rig.call(actor, Call::ObjCreate, &[300 * PAGE, 0]).unwrap();
    for page in 0..300 {
        rig.store(actor.space, source + page * PAGE, page + 1).unwrap();
    }
    assert_eq!(
        rig.call(actor, Call::PageCopy, &[source, target, 300]),
        Err(Error::LimitReached)
    );
    for page in 0..300 {
        assert_eq!(
            rig.load(actor.space, target + page * PAGE).unwrap_or(0),
            0,
            "page {page}"
        );
    }
    rig.check();
    // As many pages as fit are copied.
    rig.call(actor, Call::ObjDelete, &[target]).unwrap();
    let (target, _) = rig.call(actor, Call::ObjCreate, &[300 * PAGE, 0]).unwrap();
    rig.call(actor, Call::PageCopy, &[source, target, 150]).unwrap();
    assert_eq!(rig.load(actor.space, target + 149 * PAGE), Ok(150));
    rig.check();
}

/// So is the disk. The promises of a copy that is refused are not kept.
#[test]
fn a_copy_that_the_disk_has_no_room_for_copies_nothing() {
    let mut rig = Rig::new(4, 8000, 1200);
    let actor = rig.actor(Apd::EMPTY);
    let (source, _) = rig.call(actor, Call::ObjCreate, &[2000 * PAGE, 0]).unwrap();
    let (target, _) = rig.call(actor, Call::ObjCreate, &[2000 * PAGE, 0]).unwrap();
    for page in 0..2000 {
        rig.store(actor.space, source + page * PAGE, page + 1).unwrap();
    }
    rig.call(actor, Call::KeepObject, &[target]).unwrap();
    let promised = rig.server.store.stats().reserved;
    assert_eq!(
        rig.call(actor, Call::PageCopy, &[source, target, 2000]),
        Err(Error::DiskFull)
    );
    assert_eq!(rig.server.store.stats().reserved, promised);
    for page in 0..2000 {
        assert_eq!(rig.load(actor.space, target + page * PAGE), Ok(0), "page {page}");
    }
    rig.call(actor, Call::PageCopy, &[source, target, 500]).unwrap();
    assert_eq!(rig.load(actor.space, target + 499 * PAGE), Ok(500));
    rig.checkpoint().unwrap();
    rig.check();
}

/// An account without blocks pays for the pages that were copied, and for no others.
#[test]
fn a_copy_ends_at_the_blocks_of_the_account() {
    const BLOCKS: u64 = 100;
    /// Nodes of the map that are charged with them: two levels above each part of a slot.
    const NODES: u64 = 3 * 2;
    let mut rig = Rig::new(5, 4000, 4096);
    let mut amounts = limits::of_frames(3000);
    amounts[Resource::Slots as usize] = limits::PROGRAM_SLOTS;
    amounts[Resource::Blocks as usize] = BLOCKS;
    let actor = rig.actor_in(AccountId::ROOT, amounts);
    let [source, target] = [0; 2].map(|_| rig.call(actor, Call::ObjCreate, &[300 * PAGE, 0]).unwrap().0);
    for page in 0..300 {
        rig.store(actor.space, source + page * PAGE, page + 1).unwrap();
    }
    rig.call(actor, Call::KeepObject, &[target]).unwrap();
    let paid = |rig: &mut Rig| {
        rig.server.ledger.empty_all_hands();
        rig.server.ledger.used(AccountId::ROOT, Resource::Blocks)
    };
    let before = paid(&mut rig);
    for pages in [BLOCKS + 1, 300, 2 * PIECE_PAGES, BLOCKS + 1] {
        let result = rig.call(actor, Call::PageCopy, &[source, target, pages]);
        assert_eq!(result.is_err(), pages > BLOCKS, "{result:?}");
        if result.is_err() {
            assert_eq!(result, Err(Error::LimitReached));
        }
        rig.check();
        let copied = (0..300).filter(|page| rig.load(actor.space, target + page * PAGE) != Ok(0));
        let copied = copied.count() as u64;
        let nodes = paid(&mut rig) - before - copied;
        assert!(
            nodes <= NODES,
            "the rest of the last piece is not paid: {nodes} beside the copies"
        );
    }
}

/// Pages of a source that does not fit into memory come one after the other, and the target is written behind them.
#[test]
fn a_source_may_be_larger_than_memory() {
    let mut rig = Rig::new(5, 420, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let source = stored(&mut rig, actor, 900);
    let target = rig.kept(actor, 900, 0);
    for first in [0, 150, 300, 450, 600, 750] {
        rig.call(
            actor,
            Call::PageCopy,
            &[source + first * PAGE, target + first * PAGE, 150],
        )
        .unwrap();
        // Frames that two pages share are not taken back: the target's go.
        for page in first..first + 150 {
            rig.store(actor.space, target + page * PAGE + 8, page).unwrap();
        }
    }
    for page in 0..900 {
        assert_eq!(rig.load(actor.space, target + page * PAGE), Ok(page + 1));
        assert_eq!(rig.load(actor.space, target + page * PAGE + 8), Ok(page));
        assert_eq!(rig.load(actor.space, source + page * PAGE + 8), Ok(0));
    }
    rig.check();
}

/// Zeroes are copied too: over pages that are in memory, and over pages that are on the disk.
#[test]
fn zeroes_take_the_place_of_what_was_there() {
    let mut rig = Rig::new(6, 4000, 8192);
    let actor = rig.actor(Apd::EMPTY);
    let target = stored(&mut rig, actor, 100);
    for page in 0..50 {
        rig.touch(actor.space, target + page * PAGE, Access::Read).unwrap();
    }
    let (source, _) = rig.call(actor, Call::ObjCreate, &[100 * PAGE, 0]).unwrap();
    rig.store(actor.space, source + 70 * PAGE, 99).unwrap();
    rig.call(actor, Call::PageCopy, &[source, target, 100]).unwrap();
    for page in 0..100 {
        let expected = if page == 70 { 99 } else { 0 };
        assert_eq!(rig.load(actor.space, target + page * PAGE), Ok(expected), "page {page}");
    }
    // No page is another's.
    rig.store(actor.space, target + PAGE, 5).unwrap();
    assert_eq!(rig.load(actor.space, target + 2 * PAGE), Ok(0));
    rig.check();
    rig.put_away();
    for (page, expected) in [(0, 0), (1, 5), (2, 0), (70, 99), (99, 0)] {
        assert_eq!(rig.load(actor.space, target + page * PAGE), Ok(expected), "page {page}");
    }
}

/// The target goes between two pieces, and another object comes in its place. The copy, or the taking back of pages, begins anew in that one.
#[test]
fn a_call_on_pages_that_meets_another_object_begins_anew() {
    const PAGES: u64 = 100;
    for call in [Call::PageCopy, Call::PageUnMap] {
        let mut begun = false;
        for pieces in 1..40 {
            let mut rig = Rig::new(3, 20_000, 4096);
            let actor = rig.actor(Apd::EMPTY);
            let sibling = rig.sibling(actor);
            let filled = |rig: &mut Rig, password| {
                let made = rig.call(sibling, Call::ObjCreate, &[PAGES * PAGE, password]);
                let (base, _) = made.expect("an object");
                for page in 0..PAGES {
                    rig.store(actor.space, base + page * PAGE, 7).expect("its own");
                }
                base
            };
            let (source, target) = (filled(&mut rig, 4), filled(&mut rig, 5));
            let arguments = match call {
                Call::PageCopy => [source, target, PAGES],
                _ => [target, PAGES, UNMAP_ZERO],
            };
            let mut answer = rig.begin(actor, call, &arguments, Resumed::First);
            for _ in 1..pieces {
                if answer.is_none() {
                    answer = rig.begin(actor, call, &arguments, Resumed::Woken);
                }
            }
            if answer.is_some() {
                break;
            }
            begun = true;
            rig.call(sibling, Call::ObjDelete, &[target]).expect("its own");
            let anew = if call == Call::PageCopy {
                rig.call(sibling, Call::ObjCreate, &[PAGES * PAGE, 5])
                    .expect("an object")
                    .0
            } else {
                filled(&mut rig, 5)
            };
            assert_eq!(anew, target, "it comes in the same place");
            while rig.begin(actor, call, &arguments, Resumed::Woken).is_none() {}
            for page in 0..PAGES {
                let word = if call == Call::PageCopy { 7 } else { 0 };
                assert_eq!(
                    rig.load(actor.space, target + page * PAGE),
                    Ok(word),
                    "{call:?}, {page}"
                );
            }
            rig.check();
        }
        assert!(begun, "{call:?} is not done in pieces");
    }
}
