//! The fast paths remember tables and large pages from one operation to the next: what makes that wrong comes between two of them.

use abi::Rights;
use kcore::{
    Machine,
    bare::mapping::{Fpage, How, Own},
};

use crate::world::{LARGE, Op, PAGE, RWX, SLOT, World, flush, give, memory};

/// The slot of σ₀'s large page that one space has as a large page, and another page.
const GIVEN: u64 = 0x4_0000;
const OTHER: u64 = 0x5_0007;

fn map(from: usize, source: Fpage, to: usize, window: Fpage) -> Op {
    give(How::Map, from, source, to, window)
}

fn take(page: u64, log2: u8, rights: Rights) -> Op {
    flush(0, memory(page, log2, RWX), rights, Own::Kept)
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
    let slot = map(0, memory(GIVEN, SLOT, RWX), 1, memory(0, SLOT, RWX));
    for op in [slot, map(1, page(0), 2, page(0)), map(1, page(1), 2, page(1))] {
        world.run(&op).expect("it goes");
    }
    world
}

fn third(world: &mut World) -> Option<(u64, Rights)> {
    world.run(&map(1, page(2), 2, page(2))).expect("it goes");
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
    world.run(&map(0, page(OTHER), 2, page(3))).expect("it keeps the table");
    world.run(&take(GIVEN, SLOT, RWX)).expect("flush");
    assert_eq!(third(&mut world), None);
}

#[test]
fn a_small_page_in_a_parted_one_is_found_by_its_new_table() {
    let mut world = world();
    for op in [
        take(GIVEN + 2, PAGE, RWX),
        // The table of the parted page is remembered, which has none of nodes.
        map(1, page(3), 2, page(3)),
        map(0, page(OTHER), 1, page(2)),
    ] {
        world.run(&op).expect("it goes");
    }
    assert_eq!(third(&mut world), Some((OTHER, RWX)));
}

/// The table went with its last page, on the fast path, and the space has another one in its place: as the giver's and as the receiver's.
#[test]
fn a_table_that_has_gone_with_its_last_page_is_not_written_to() {
    let mut world = World::new(&[LARGE], &[0, 1, 2, 3 * 512, 4 * 512, GIVEN, GIVEN + 1, OTHER], 1 << 20);
    for _ in 0..2 {
        world.create(0, 50_000).expect("a space");
    }
    let kept = page(3 * 512);
    for space in [1, 2] {
        world
            .run(&map(0, page(OTHER), space, kept))
            .expect("it keeps the table above");
    }
    for (slot, number) in (4..).zip([0, 1, 0]) {
        // Other tables get the frames that were free first.
        world.run(&map(0, page(OTHER), 2, page(slot * 512))).expect("a page");
        let free = world.kernel.frames_free();
        let given = page(GIVEN + number);
        world
            .run(&map(0, given, 1, page(number)))
            .expect("the first page of a table");
        world
            .run(&map(1, page(number), 2, page(2)))
            .expect("the giver's table is remembered");
        assert_eq!(world.translate(2, 2), world.translate(1, number));
        assert_eq!(world.kernel.frames_free(), free - 4, "two tables each");
        world
            .run(&flush(1, page(number), RWX, Own::Kept))
            .expect("the last page of a table");
        assert_eq!(world.kernel.frames_free(), free - 2);
        world
            .run(&take(GIVEN + number, PAGE, RWX))
            .expect("the last page of the giver's");
        assert_eq!(world.kernel.frames_free(), free);
        assert_eq!(world.translate(1, number), None);
    }
}

/// A page that is granted on the fast path is lost to its giver, and to who links the giver's slot: nobody keeps a translation.
#[test]
fn nobody_keeps_a_page_that_is_granted() {
    for is_linked in [false, true] {
        let mut world = world();
        for _ in 0..2 {
            world.create(0, 50_000).expect("a space");
        }
        // The receiver has a table, and the giver keeps one.
        let mut ops = vec![map(1, page(3), 3, page(3)), map(1, page(2), 2, page(2))];
        if is_linked {
            let slot = memory(0, SLOT, RWX);
            ops.push(give(How::Link, 2, slot, 4, slot));
        }
        for op in ops {
            world.run(&op).expect("it goes");
        }
        for number in [1, 2] {
            world
                .run(&give(How::Grant, 2, page(number), 3, page(number)))
                .expect("grant");
            assert_eq!(world.translate(2, number), None);
            assert_eq!(world.translate(4, number), None);
            assert_eq!(world.translate(3, number), Some((GIVEN + number, RWX)));
        }
    }
}

/// A part of a large page that is given again with more rights, and with fewer, as behind faults of a reader that then writes.
#[test]
fn a_part_that_is_given_again_has_the_new_rights_alone() {
    let mut world = world();
    for rights in [Rights::R, Rights::RW, Rights::RX, Rights::R] {
        world
            .run(&map(1, memory(1, PAGE, rights), 2, page(1)))
            .expect("it is given again");
        assert_eq!(world.translate(2, 1), Some((GIVEN + 1, rights)));
    }
    world.run(&flush(1, page(1), RWX, Own::Kept)).expect("flush");
    assert_eq!(world.translate(2, 1), None);
}

/// σ₀ grants a page that it has as a small one to a space that has a table there, which is the fast path's case but
/// for the page's owner: the page is σ₀'s
/// again when nobody has it, and σ₀ has no hold on it before.
#[test]
fn a_small_page_of_sigma0_is_granted_where_a_table_is() {
    let mut world = World::new(&[(0, 16)], &[0, 1, 2, 3, 15, 255], 1 << 20);
    for _ in 0..3 {
        world.create(0, 50_000).expect("a space");
    }
    let page = |number| memory(number, PAGE, RWX);
    for space in [1, 2] {
        let kept = give(How::Map, 0, page(1), space, page(255));
        world.run(&kept).expect("the page that makes the table");
    }
    let before = world.memory();
    world.run(&give(How::Grant, 0, page(2), 1, page(0))).expect("grant");
    assert_eq!((world.translate(1, 0), world.translate(0, 2)), (Some((2, RWX)), None));
    world.run(&flush(0, page(2), RWX, Own::Kept)).expect("flush");
    world
        .run(&flush(0, memory(0, PAGE + 4, RWX), Rights::W, Own::Kept))
        .expect("flush");
    assert_eq!(world.translate(1, 0), Some((2, RWX)));
    // From hand to hand, by the fast path if it takes it.
    world.run(&give(How::Grant, 1, page(0), 2, page(3))).expect("grant");
    world.run(&give(How::Map, 2, page(3), 1, page(3))).expect("map");
    assert_eq!(
        (world.translate(2, 3), world.translate(1, 3)),
        (Some((2, RWX)), Some((2, RWX)))
    );
    world.run(&flush(2, page(3), RWX, Own::Too)).expect("flush");
    assert_eq!((world.translate(1, 3), world.translate(0, 2)), (None, Some((2, RWX))));
    assert_eq!(world.memory(), before);
    // It goes with its holder, too.
    world.run(&give(How::Grant, 0, page(2), 1, page(0))).expect("grant");
    world.run(&Op::Destroy { space: 1 }).expect("destroy");
    assert_eq!(world.translate(0, 2), Some((2, RWX)));
}
