//! The fast paths remember tables and large pages from one operation to the next: what makes that wrong comes between two of them.

use abi::Rights;
use kcore::bare::mapping::{Fpage, How, Own};

use crate::world::{Op, World, memory};

const PAGE: u8 = 12;
const SLOT: u8 = 21;
const RWX: Rights = Rights::RWX;
const LARGE: (u32, u32) = (0x4_0000, 0x8_0000);
/// The slot of it that one space has as a large page, and another page.
const GIVEN: u64 = 0x4_0000;
const OTHER: u64 = 0x5_0007;

fn give(from: usize, source: Fpage, to: usize, window: Fpage) -> Op {
    Op::Give {
        how: How::Map,
        from,
        source,
        to,
        window,
    }
}

fn take(page: u64, log2: u8, rights: Rights) -> Op {
    Op::Flush {
        space: 0,
        what: memory(page, log2, RWX),
        rights,
        own: Own::Kept,
    }
}

fn page(number: u64) -> Fpage {
    memory(number, PAGE, RWX)
}

/// A space with a large page at its first slot, of which another one has two small pages: the second was given on the fast path.
fn world() -> World {
    let samples: Vec<u64> = [0, GIVEN]
        .iter()
        .flat_map(|slot| [0, 1, 2, 3, 511].map(|page| slot + page))
        .chain([OTHER])
        .collect();
    let mut world = World::new(&[LARGE], &samples, 1 << 20);
    for _ in 0..2 {
        world.create(0, 50_000).expect("a space");
    }
    let slot = give(0, memory(GIVEN, SLOT, RWX), 1, memory(0, SLOT, RWX));
    for op in [slot, give(1, page(0), 2, page(0)), give(1, page(1), 2, page(1))] {
        world.run(&op).expect("it goes");
    }
    world
}

fn third(world: &mut World) -> Option<(u64, Rights)> {
    world.run(&give(1, page(2), 2, page(2))).expect("it goes");
    world.translate(2, 2)
}

#[test]
fn a_page_that_a_parted_one_lost_is_not_given() {
    let mut world = world();
    // Not by σ₀, whose own large page would be remembered instead.
    let flush = Op::Flush {
        space: 1,
        what: page(2),
        rights: RWX,
        own: Own::Too,
    };
    world.run(&flush).expect("flush");
    assert_eq!(third(&mut world), None);
}

#[test]
fn a_large_page_that_lost_rights_gives_what_is_left() {
    let mut world = world();
    world.run(&take(GIVEN, SLOT, Rights::W)).expect("flush");
    assert_eq!(third(&mut world), Some((GIVEN + 2, Rights::RX)));
}

#[test]
fn a_large_page_that_is_gone_gives_nothing() {
    let mut world = world();
    world
        .run(&give(0, page(OTHER), 2, page(3)))
        .expect("it keeps the table");
    world.run(&take(GIVEN, SLOT, RWX)).expect("flush");
    assert_eq!(third(&mut world), None);
}

#[test]
fn a_small_page_in_a_parted_one_is_found_by_its_new_table() {
    let mut world = world();
    for op in [
        take(GIVEN + 2, PAGE, RWX),
        // The table of the parted page is remembered, which has none of nodes.
        give(1, page(3), 2, page(3)),
        give(0, page(OTHER), 1, page(2)),
    ] {
        world.run(&op).expect("it goes");
    }
    assert_eq!(third(&mut world), Some((OTHER, RWX)));
}
