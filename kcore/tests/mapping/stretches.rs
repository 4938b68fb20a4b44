//! Small pages that go, or lose rights, in one stretch, beside those of other kinds.

use abi::Rights;
use kcore::bare::mapping::{Fpage, How, Own, Progress};

use crate::world::{GIB, LARGE, Op, PAGE, RWX, SLOT, World, flush, give, memory};

fn world(spaces: usize) -> World {
    let slots = [0, 512, 0x4_0000, 0x4_0200];
    let samples: Vec<u64> = slots
        .iter()
        .flat_map(|slot| [0, 1, 2, 3, 255, 511].map(|page| slot + page))
        .collect();
    let mut world = World::new(&[LARGE], &samples, 1 << 20);
    for _ in 0..spaces {
        world.create(0, 50_000).expect("a space");
    }
    world
}

fn page(number: u64) -> Fpage {
    memory(number, PAGE, RWX)
}

/// In one table of a space that ends stand a part of a large page, another space's small page, a page that was granted, one that was given on, and others
/// link it: each goes, and with it what came from there.
#[test]
fn pages_of_all_kinds_go_with_their_space() {
    let mut world = world(4);
    // The other spaces' tables stay.
    for op in [
        give(How::Map, 0, page(0x4_0201), 2, page(513)),
        give(How::Map, 0, page(0x4_0203), 3, page(513)),
        give(How::Map, 0, page(0x4_0203), 4, page(0x4_0000)),
    ] {
        world.run(&op).expect("it goes");
    }
    let before = world.memory();
    let slot = memory(0, SLOT, RWX);
    for op in [
        give(How::Map, 0, page(0x4_0000), 1, page(0)),
        give(How::Map, 2, page(513), 1, page(1)),
        give(How::Grant, 0, page(0x4_0002), 1, page(2)),
        give(How::Map, 0, page(0x4_0003), 1, page(3)),
        give(How::Map, 1, page(3), 3, page(514)),
        give(How::Map, 0, page(0x4_00ff), 1, page(255)),
        give(How::Map, 2, page(513), 1, page(511)),
        give(How::Map, 0, page(0x4_0201), 1, page(0x4_0000)),
        give(How::Link, 1, slot, 4, slot),
    ] {
        world.run(&op).expect("it goes");
    }
    let seen =
        |world: &World, space| [0, 1, 2, 3, 255, 511].map(|page| world.translate(space, page).map(|found| found.0));
    let frames = [0x4_0000, 0x4_0201, 0x4_0002, 0x4_0003, 0x4_00ff, 0x4_0201].map(Some);
    assert_eq!((seen(&world, 1), seen(&world, 4)), (frames, frames));
    assert_eq!(world.translate(3, 514), Some((0x4_0003, RWX)));
    assert_eq!(world.translate(0, 0x4_0002), None);
    world.run(&Op::Destroy { space: 1 }).expect("destroy");
    assert_eq!((seen(&world, 4), world.translate(3, 514)), ([None; 6], None));
    assert_eq!(world.translate(0, 0x4_0002), Some((0x4_0002, RWX)));
    // The root table is free, too. σ₀ keeps the two tables that parted its page when it granted a piece.
    assert_eq!(world.memory(), (before.0 + 1 - 2, before.1));
}

/// Rights to a small page are taken from a space whose slot another one links: that one may have translations, too.
#[test]
fn who_links_a_slot_loses_the_rights_that_its_owner_loses() {
    let mut world = world(2);
    let slot = memory(0, SLOT, RWX);
    for op in [
        give(How::Map, 0, page(0x4_0000), 1, page(0)),
        give(How::Map, 0, page(0x4_0001), 1, page(1)),
        give(How::Link, 1, slot, 2, slot),
    ] {
        world.run(&op).expect("it goes");
    }
    assert_eq!(world.translate(2, 0), Some((0x4_0000, RWX)));
    let taken = flush(0, page(0x4_0000), Rights::W, Own::Kept);
    world.run(&taken).expect("flush");
    assert_eq!(world.translate(2, 0), Some((0x4_0000, Rights::RX)));
    assert_eq!(world.translate(2, 1), Some((0x4_0001, RWX)));
}

/// Each page of a stretch comes from another slot of a page of 1 GiB, so that two parts of that go with it, which cost a piece as much as the page: 256 went in
/// 5 pieces, the longest of which took 30,171 instructions.
#[test]
fn parts_that_go_with_pages_are_work_of_the_piece() {
    let mut world = World::new(&[LARGE], &[], 1 << 20);
    for _ in 0..2 {
        world.create(0, 50_000).expect("a space");
    }
    let gib = memory(0x4_0000, GIB, RWX);
    world.run(&give(How::Map, 0, gib, 1, gib)).expect("it goes");
    let before = world.memory();
    for number in 0..256 {
        let op = give(How::Map, 1, page(0x4_0000 + 512 * number), 2, page(number));
        world.run(&op).expect("it goes");
    }
    assert_eq!(world.memory().1, before.1 + 3 * 256);
    let mut pieces = 1;
    while world.step(&Op::Destroy { space: 2 }) == Ok(Progress::More) {
        pieces += 1;
    }
    assert_eq!(world.memory(), (before.0 + 1, before.1));
    assert!((12..=16).contains(&pieces), "{pieces} pieces");
}

/// Pages that a space does not have cost a flush of a range little: one of 256 that is there took 16 pieces.
#[test]
fn a_range_of_few_pages_is_flushed_in_one_piece() {
    let mut world = World::new(&[LARGE], &[], 1 << 20);
    for _ in 0..2 {
        world.create(0, 50_000).expect("a space");
    }
    // The last one keeps the other space's table.
    for op in [
        give(How::Map, 0, page(0x4_0000), 1, page(100)),
        give(How::Map, 1, page(100), 2, page(100)),
        give(How::Map, 0, page(0x4_0001), 2, page(511)),
    ] {
        world.run(&op).expect("it goes");
    }
    let range = memory(0, PAGE + 8, RWX);
    for (rights, left) in [(Rights::W, Some((0x4_0000, Rights::RX))), (RWX, None)] {
        let flush = flush(1, range, rights, Own::Kept);
        assert_eq!(world.step(&flush), Ok(Progress::Done), "{rights}");
        assert_eq!(world.translate(2, 100), left);
    }
}

/// A page of 1 GiB was parted, so that its slots go one by one, each a step of the piece: they went in 6 pieces, the longest of which took 39,937 instructions.
#[test]
fn slots_of_a_parted_page_go_in_pieces() {
    let mut world = World::new(&[LARGE], &[], 1 << 20);
    world.create(0, 50_000).expect("a space");
    let gib = memory(0x4_0000, GIB, RWX);
    world.run(&give(How::Map, 0, gib, 1, gib)).expect("it goes");
    world
        .run(&flush(1, page(0x4_0007), RWX, Own::Too))
        .expect("its first slot is parted");
    for rights in [Rights::W, RWX] {
        let taken = flush(0, gib, rights, Own::Kept);
        let mut pieces = 1;
        while world.step(&taken) == Ok(Progress::More) {
            pieces += 1;
        }
        assert!((16..=32).contains(&pieces), "{rights}: {pieces} pieces");
    }
}
