//! One case for each rule.

use abi::{Error, Rights};
use kcore::bare::mapping::{DEPTH_MAX, Fpage, How, NODE_UNITS, Own, Progress, TABLE_UNITS};

use crate::world::{GIB, LARGE, Op, PAGE, PORTS, RWX, SLOT, World, flush, give, memory};

/// Pages around everything that the cases touch.
fn samples() -> Vec<u64> {
    let mut samples = Vec::new();
    for slot in [
        0,
        1,
        2,
        0x4_0000 / 512,
        0x4_0200 / 512,
        0x7_fe00 / 512,
        0x10_0000 / 512,
        0x10_0200 / 512,
    ] {
        samples.extend([0, 1, 2, 3, 255, 511].map(|page| slot * 512 + page));
    }
    samples.extend((0..16).map(|port| PORTS + 0x3f0 + port));
    samples
}

fn world(spaces: usize) -> World {
    let mut world = World::new(&[(0, 512), LARGE], &samples(), 1 << 20);
    for _ in 0..spaces {
        world.create(0, 50_000).expect("a space");
    }
    world
}

#[test]
fn map_keeps_and_grant_gives_away() {
    let mut world = world(3);
    let before = world.memory();
    world
        .run(&give(
            How::Map,
            0,
            memory(3, PAGE, RWX),
            1,
            memory(512, PAGE, Rights::RW),
        ))
        .expect("map");
    assert_eq!(world.translate(1, 512), Some((3, Rights::RW)));
    world
        .run(&give(
            How::Map,
            1,
            memory(512, PAGE, RWX),
            2,
            memory(513, PAGE, Rights::R),
        ))
        .expect("map");
    world
        .run(&give(How::Grant, 2, memory(513, PAGE, RWX), 3, memory(514, PAGE, RWX)))
        .expect("grant");
    assert_eq!(
        (world.translate(2, 513), world.translate(3, 514)),
        (None, Some((3, Rights::R)))
    );
    // The granter has no hold on it any more (the paper's Figure 1), its own giver has.
    world
        .run(&flush(2, memory(513, PAGE, RWX), RWX, Own::Too))
        .expect("flush");
    assert!(world.translate(3, 514).is_some());
    world
        .run(&flush(1, memory(512, PAGE, RWX), RWX, Own::Kept))
        .expect("flush");
    assert_eq!(
        (world.translate(3, 514), world.translate(1, 512)),
        (None, Some((3, Rights::RW)))
    );
    world
        .run(&flush(1, memory(512, PAGE, RWX), RWX, Own::Too))
        .expect("flush");
    assert_eq!(world.memory(), before, "tables and nodes went with the pages");
}

#[test]
fn some_rights_can_be_taken() {
    let mut world = world(3);
    world
        .run(&give(How::Map, 0, memory(3, PAGE, RWX), 1, memory(3, PAGE, RWX)))
        .expect("map");
    world
        .run(&give(How::Map, 1, memory(3, PAGE, RWX), 2, memory(3, PAGE, RWX)))
        .expect("map");
    world
        .run(&flush(0, memory(3, PAGE, RWX), Rights::W, Own::Kept))
        .expect("flush");
    assert_eq!(world.translate(2, 3), Some((3, Rights::RX)));
    // A page mapped onward has no more rights than are left.
    world
        .run(&give(How::Map, 2, memory(3, PAGE, RWX), 3, memory(3, PAGE, RWX)))
        .expect("map");
    assert_eq!(world.translate(3, 3), Some((3, Rights::RX)));
    world
        .run(&flush(2, memory(3, PAGE, RWX), Rights::X, Own::Too))
        .expect("flush");
    assert_eq!(world.translate(1, 3), Some((3, Rights::RX)));
    assert_eq!(world.translate(3, 3), Some((3, Rights::R)));
}

#[test]
fn large_pages_are_one_entry_and_one_node() {
    let mut world = world(2);
    let nodes = world.kernel.mapping_nodes();
    world
        .run(&give(
            How::Map,
            0,
            memory(0x4_0000, GIB, RWX),
            1,
            memory(0x10_0000, GIB, RWX),
        ))
        .expect("map");
    assert_eq!(world.kernel.mapping_nodes(), nodes + 1);
    let id = world.id(1).expect("a space");
    assert_eq!(
        world.kernel.free_space_quota(id),
        Some((50_000, 2 * TABLE_UNITS + NODE_UNITS[2]))
    );
    // A part mapped onward needs nodes for the parts that it comes from, and its receiver pays.
    world
        .run(&give(
            How::Map,
            1,
            memory(0x10_0001, PAGE, RWX),
            2,
            memory(1, PAGE, RWX),
        ))
        .expect("map");
    assert_eq!(world.kernel.mapping_nodes(), nodes + 1 + NODE_UNITS[0]);
    assert_eq!(world.translate(2, 1), Some((0x4_0001, RWX)));
    world
        .run(&flush(1, memory(0x10_0000, PAGE, RWX), RWX, Own::Kept))
        .expect("flush");
    assert!(world.translate(2, 1).is_some(), "the page beside it is flushed");
    world
        .run(&flush(0, memory(0x4_0000, SLOT, RWX), RWX, Own::Kept))
        .expect("flush");
    assert_eq!((world.translate(2, 1), world.translate(1, 0x10_0001)), (None, None));
    assert_eq!(
        world.translate(1, 0x10_0200),
        Some((0x4_0200, RWX)),
        "the rest of the large page is there"
    );
    assert_eq!(world.kernel.mapping_nodes(), nodes + 1);
}

#[test]
fn a_part_of_a_large_page_can_be_granted_and_comes_back() {
    let mut world = world(2);
    let before = world.memory();
    world
        .run(&give(
            How::Grant,
            0,
            memory(0x4_0000, SLOT, RWX),
            1,
            memory(0, SLOT, Rights::RW),
        ))
        .expect("grant");
    world
        .run(&give(How::Grant, 1, memory(2, PAGE, RWX), 2, memory(3, PAGE, RWX)))
        .expect("grant");
    assert_eq!(
        (world.translate(1, 2), world.translate(2, 3)),
        (None, Some((0x4_0002, Rights::RW)))
    );
    world.run(&Op::Destroy { space: 1 }).expect("destroy");
    assert!(world.translate(2, 3).is_some(), "a granted page outlives its granter");
    assert_eq!(world.translate(0, 0x4_0003), None);
    world.run(&Op::Destroy { space: 2 }).expect("destroy");
    assert_eq!(
        world.translate(0, 0x4_0003),
        Some((0x4_0003, RWX)),
        "memory that nobody has is σ₀'s"
    );
    assert_eq!(world.memory().1, before.1);
}

/// Appendix A: a granter has no hold on what it granted, whatever larger range it flushes. What it mapped beside it goes.
#[test]
fn sigma0_has_no_hold_on_what_it_granted() {
    for (how, taken) in [(SLOT, memory(0x4_0000, SLOT, RWX)), (GIB, memory(0x4_0000, GIB, RWX))] {
        let mut world = world(3);
        let one = memory(0x4_0003, PAGE, RWX);
        // Space 1 has the whole, as a large page, and loses the page that is granted.
        let whole = memory(0x4_0000, how, RWX);
        world.run(&give(How::Map, 0, whole, 1, whole)).expect("map");
        world.run(&give(How::Grant, 0, one, 2, one)).expect("grant");
        world.run(&give(How::Map, 2, one, 3, one)).expect("map onward");
        world.run(&flush(0, taken, Rights::W, Own::Kept)).expect("flush");
        assert_eq!(world.translate(1, 0x4_0002), Some((0x4_0002, Rights::RX)));
        assert_eq!(world.translate(2, 0x4_0003), Some((0x4_0003, RWX)));
        world.run(&flush(0, taken, RWX, Own::Kept)).expect("flush");
        assert_eq!(world.translate(1, 0x4_0002), None);
        assert_eq!(world.translate(2, 0x4_0003), Some((0x4_0003, RWX)));
        assert_eq!(world.translate(3, 0x4_0003), Some((0x4_0003, RWX)));
        // It is gone from there when its holder goes, and σ₀ has it again.
        world.run(&Op::Destroy { space: 2 }).expect("destroy");
        assert_eq!(world.translate(3, 0x4_0003), None);
        assert_eq!(world.translate(0, 0x4_0003), Some((0x4_0003, RWX)));
    }
    let mut world = world(2);
    let (all, one) = (
        Fpage::ports(0, 16).expect("ports"),
        Fpage::ports(0x3f8, 0).expect("a port"),
    );
    world.run(&give(How::Map, 0, all, 1, all)).expect("map");
    world.run(&give(How::Grant, 0, one, 2, all)).expect("grant");
    world.run(&flush(0, all, Rights::RW, Own::Kept)).expect("flush");
    assert_eq!(world.translate(1, PORTS + 0x3f9), None);
    assert!(world.translate(2, PORTS + 0x3f8).is_some());
}

#[test]
fn a_flush_that_cannot_split_takes_the_large_page() {
    let mut world = world(0);
    world.tight = true;
    // Root, two tables, one node of 2 MiB: nothing is left for a third table.
    let first = world.create(0, 3 * TABLE_UNITS + NODE_UNITS[1]).expect("a space");
    let second = world.create(0, 50_000).expect("a space");
    world
        .run(&give(
            How::Map,
            0,
            memory(0x4_0000, SLOT, RWX),
            first,
            memory(0, SLOT, RWX),
        ))
        .expect("map");
    world
        .run(&give(
            How::Map,
            first,
            memory(0, SLOT, RWX),
            second,
            memory(0, SLOT, RWX),
        ))
        .expect("map");
    world
        .run(&flush(0, memory(0x4_0001, PAGE, RWX), RWX, Own::Kept))
        .expect("flush");
    assert_eq!((world.translate(first, 0), world.translate(second, 0)), (None, None));
    // With the quota for it, only the page is lost.
    let third = world.create(0, 4 * TABLE_UNITS + NODE_UNITS[1]).expect("a space");
    world.tight = false;
    world
        .run(&give(
            How::Map,
            0,
            memory(0x4_0000, SLOT, RWX),
            third,
            memory(0, SLOT, RWX),
        ))
        .expect("map");
    world
        .run(&flush(0, memory(0x4_0001, PAGE, RWX), RWX, Own::Kept))
        .expect("flush");
    assert_eq!(
        (world.translate(third, 0), world.translate(third, 1)),
        (Some((0x4_0000, RWX)), None)
    );
}

#[test]
fn links_show_what_the_owner_has_now_and_later() {
    let mut world = world(3);
    let before = world.memory();
    let slot = memory(0, SLOT, RWX);
    world
        .run(&give(How::Map, 0, memory(0, PAGE, RWX), 1, memory(1, PAGE, RWX)))
        .expect("map");
    world
        .run(&give(How::Link, 1, slot, 2, memory(0, SLOT, Rights::R)))
        .expect("link");
    assert_eq!(world.translate(2, 1), Some((0, Rights::R)));
    world
        .run(&give(How::Map, 0, memory(2, PAGE, RWX), 1, memory(2, PAGE, RWX)))
        .expect("map");
    assert_eq!(world.translate(2, 2), Some((2, Rights::R)), "a later page is seen");
    // Nothing goes onward from a link but by its owner.
    world.run(&give(How::Map, 2, slot, 3, slot)).expect("nothing to map");
    world.run(&give(How::Link, 2, slot, 3, slot)).expect("nothing to link");
    assert_eq!(world.translate(3, 1), None);
    // Less than a slot is neither replaced nor linked, and no link is put where others link.
    assert_eq!(
        world.run(&give(How::Map, 0, memory(0, PAGE, RWX), 2, memory(3, PAGE, RWX))),
        Err(Error::InUse)
    );
    assert_eq!(
        world.run(&give(How::Link, 1, memory(1, PAGE, RWX), 3, slot)),
        Err(Error::BadArgument)
    );
    assert_eq!(world.run(&give(How::Link, 3, slot, 1, slot)), Err(Error::InUse));
    world
        .run(&flush(0, memory(2, PAGE, RWX), RWX, Own::Kept))
        .expect("flush");
    assert_eq!(
        (world.translate(2, 2), world.translate(2, 1)),
        (None, Some((0, Rights::R)))
    );
    // The owner may lose all pages and the link stays; a flush of the slot takes it.
    world
        .run(&flush(1, memory(1, PAGE, RWX), RWX, Own::Too))
        .expect("flush");
    world
        .run(&give(How::Map, 0, memory(0, PAGE, RWX), 1, memory(1, PAGE, RWX)))
        .expect("map");
    assert_eq!(world.translate(2, 1), Some((0, Rights::R)));
    world.run(&flush(1, slot, RWX, Own::Kept)).expect("flush");
    assert_eq!((world.translate(2, 1), world.translate(1, 1)), (None, Some((0, RWX))));
    world.run(&flush(1, slot, RWX, Own::Too)).expect("flush");
    assert_eq!(world.memory(), before);
}

#[test]
fn a_link_goes_with_either_space() {
    let mut world = world(2);
    let slot = memory(0, SLOT, RWX);
    let before = world.memory();
    world.run(&give(How::Link, 1, slot, 2, slot)).expect("link");
    world.run(&flush(2, slot, RWX, Own::Too)).expect("flush");
    assert_eq!(world.memory(), before);
    world.run(&give(How::Link, 1, slot, 2, slot)).expect("link");
    world
        .run(&give(How::Map, 0, memory(3, PAGE, RWX), 1, memory(3, PAGE, RWX)))
        .expect("map");
    world.run(&Op::Destroy { space: 1 }).expect("destroy");
    assert_eq!(world.translate(2, 3), None);
    world.finish(
        samples()
            .iter()
            .filter(|&&page| !(512..PORTS).contains(&page) || (0x4_0000..0x8_0000).contains(&page))
            .count(),
    );
}

#[test]
fn ports_are_pages_at_their_own_numbers() {
    let mut world = world(2);
    let com1 = Fpage::ports(0x3f8, 3).expect("ports");
    let all = Fpage::ports(0, 16).expect("ports");
    assert!(world.kernel.ports(world.id(1).expect("a space")).is_none());
    world.run(&give(How::Map, 0, com1, 1, all)).expect("map");
    world.run(&give(How::Map, 1, all, 2, all)).expect("map");
    assert_eq!(world.translate(2, PORTS + 0x3f8), Some((PORTS + 0x3f8, Rights::RW)));
    assert_eq!(world.translate(2, PORTS + 0x3f7), None);
    world
        .run(&flush(0, Fpage::ports(0x3f9, 0).expect("ports"), RWX, Own::Kept))
        .expect("flush");
    assert_eq!(
        (world.translate(2, PORTS + 0x3f9), world.translate(1, PORTS + 0x3f9)),
        (None, None)
    );
    assert!(world.translate(1, PORTS + 0x3fa).is_some());
    world.run(&give(How::Grant, 1, com1, 2, com1)).expect("grant");
    assert!(world.translate(1, PORTS + 0x3fa).is_none() && world.translate(2, PORTS + 0x3fa).is_some());
    world.run(&give(How::Grant, 0, all, 1, all)).expect("grant");
    assert!(world.translate(0, PORTS + 0x3f0).is_none());
    world.run(&Op::Destroy { space: 1 }).expect("destroy");
    assert!(world.translate(0, PORTS + 0x3f0).is_some());
}

/// A receiver pays for one node, whatever the size of the bitmap.
#[test]
fn all_ports_at_once_are_one_mapping() {
    let mut world = world(2);
    let all = Fpage::ports(0, 16).expect("ports");
    let nodes = world.kernel.mapping_nodes();
    world.run(&give(How::Map, 0, all, 1, all)).expect("map");
    assert_eq!(world.kernel.mapping_nodes(), nodes + 1);
    world.run(&give(How::Map, 1, all, 2, all)).expect("map");
    assert_eq!(world.kernel.mapping_nodes(), nodes + 2);
}

#[test]
fn only_ports_that_nobody_has_come_back() {
    let mut world = world(3);
    let [one, some, all] = [0, 9, 16].map(|log2| Fpage::ports(0, log2).expect("ports"));
    let mine = |world: &World, port: u64| world.translate(0, PORTS + port).is_some();
    // All go at once; what goes on from there goes back alone.
    world.run(&give(How::Grant, 0, all, 1, all)).expect("grant");
    world.run(&give(How::Grant, 1, one, 2, all)).expect("grant");
    world.run(&flush(2, one, RWX, Own::Too)).expect("flush");
    assert!(mine(&world, 0) && !mine(&world, 1), "another space has it");
    world.run(&give(How::Grant, 1, some, 2, all)).expect("grant");
    let other = Fpage::ports(7, 0).expect("ports");
    world.run(&give(How::Grant, 2, other, 3, all)).expect("grant");
    world.run(&flush(3, other, RWX, Own::Too)).expect("flush");
    assert!(mine(&world, 7) && !mine(&world, 1) && !mine(&world, 512));
    world.run(&flush(2, some, RWX, Own::Too)).expect("flush");
    assert!(mine(&world, 1) && mine(&world, 511) && !mine(&world, 512));
    world.run(&flush(1, all, RWX, Own::Too)).expect("flush");
    assert!(mine(&world, 512));
    // One of a range that others have by mapping comes back at once.
    world.run(&give(How::Map, 0, all, 1, all)).expect("map");
    world.run(&give(How::Grant, 0, one, 2, all)).expect("grant");
    assert!(!mine(&world, 0));
    world.run(&flush(2, one, RWX, Own::Too)).expect("flush");
    assert!(mine(&world, 0));
}

/// A space has a gibibyte as one page, and in one of its slots another mapping, which is in small pages now: these are not the gibibyte's.
#[test]
fn parts_of_a_mapping_within_a_larger_one_stay_its_own() {
    let mut world = world(3);
    let (all, slot) = (memory(0x4_0000, GIB, RWX), memory(0x4_0000, SLOT, RWX));
    world.run(&give(How::Map, 0, all, 1, all)).expect("map");
    world.run(&give(How::Map, 0, slot, 1, slot)).expect("map");
    for page in [0, 1, 2] {
        let one = memory(0x4_0000 + page, PAGE, RWX);
        world.run(&give(How::Grant, 0, one, 2, one)).expect("grant");
        assert_eq!(world.translate(1, 0x4_0000 + page), None);
    }
    world.run(&flush(0, slot, RWX, Own::Kept)).expect("flush");
    assert_eq!(world.translate(1, 0x4_0003), None);
    assert_eq!(world.translate(1, 0x4_0200), Some((0x4_0200, RWX)));
}

/// A page by itself and a part of a large page stand in one table, and are given at once.
#[test]
fn a_page_beside_parts_of_a_larger_one_is_given_as_what_it_is() {
    let mut world = world(2);
    let (slot, page) = (memory(0x4_0000, SLOT, RWX), |number| memory(number, PAGE, RWX));
    let pair = memory(0, PAGE + 1, RWX);
    world
        .run(&give(How::Map, 0, slot, 1, memory(0, SLOT, RWX)))
        .expect("map");
    world.run(&give(How::Map, 0, page(0), 1, page(0))).expect("map");
    // The first one makes the tables: the fast path has none to make.
    for given in [page(3), pair] {
        world.run(&give(How::Map, 1, given, 2, given)).expect("map");
    }
    for (page, real) in [(0, 0), (1, 0x4_0001), (3, 0x4_0003)] {
        assert_eq!(world.translate(2, page), Some((real, RWX)));
    }
    world.run(&flush(1, page(0), RWX, Own::Too)).expect("flush");
    assert!(world.translate(2, 0).is_none() && world.translate(2, 1).is_some());
    world.run(&flush(0, slot, RWX, Own::Kept)).expect("flush");
    assert_eq!(world.translate(2, 1), None);
}

#[test]
fn a_quota_refuses_and_nothing_changes() {
    let mut world = world(0);
    let space = world.create(0, 5 * TABLE_UNITS + 2 * NODE_UNITS[0]).expect("a space");
    for page in 0..2 {
        world
            .run(&give(
                How::Map,
                0,
                memory(page, PAGE, RWX),
                space,
                memory(page, PAGE, RWX),
            ))
            .expect("map");
    }
    let before = world.memory();
    let third = give(How::Map, 0, memory(2, PAGE, RWX), space, memory(2, PAGE, RWX));
    assert_eq!(world.run(&third), Err(Error::LimitReached));
    let again = give(How::Map, 0, memory(3, PAGE, RWX), space, memory(1, PAGE, RWX));
    world.run(&again).expect("what is replaced pays for what replaces it");
    assert_eq!(world.memory(), before);
    world
        .run(&flush(0, memory(0, PAGE, RWX), RWX, Own::Kept))
        .expect("flush");
    world.run(&third).expect("there is room again");
    assert_eq!(world.create(space, TABLE_UNITS), Err(Error::LimitReached));
    assert_eq!(world.create(0, TABLE_UNITS - 1), Err(Error::LimitReached));
}

/// A page that is granted out of a large one costs its giver the table that parts that; within one space the giver and the receiver pay from one quota.
#[test]
fn each_space_pays_for_its_own_tables() {
    let large = memory(512, SLOT, RWX);
    let [part, landed] = [memory(515, PAGE, RWX), memory(0x4_0000, PAGE, RWX)];
    let granted = |from, to| give(How::Grant, from, part, to, landed);
    // Tables of the space: its root, three to the large page's place less one; the node of that page.
    let begun = 3 * TABLE_UNITS + NODE_UNITS[1];
    let landing = |tables: u32| tables * TABLE_UNITS + NODE_UNITS[0];
    // Within the space: the table that parts the large page, and of the place where the page lands two tables and that of its node.
    for (receiver, giver_has, receiver_has) in [
        (None, begun + TABLE_UNITS + landing(3), 0),
        (Some(()), begun + TABLE_UNITS, TABLE_UNITS + landing(4)),
    ] {
        for missing in [0, 1] {
            for short in 0..=usize::from(receiver.is_some()) {
                let mut world = world(0);
                let has = |number: usize, all: u32| all - if number == short { missing } else { 0 };
                let giver = world.create(0, has(0, giver_has)).expect("a space");
                let receiver = receiver.map_or(giver, |()| world.create(0, has(1, receiver_has)).expect("a space"));
                world
                    .run(&give(How::Map, 0, memory(0x4_0000, SLOT, RWX), giver, large))
                    .expect("map");
                let given = world.run(&granted(giver, receiver));
                let expected = if missing == 0 { Ok(()) } else { Err(Error::LimitReached) };
                assert_eq!(given, expected, "{missing} units missing of {short}");
                for space in [giver, receiver] {
                    let (all, used) = world
                        .kernel
                        .free_space_quota(world.id(space).expect("it lives"))
                        .expect("one");
                    assert!(used <= all, "{used} of {all}");
                    assert!(missing != 0 || used == all, "{used} of {all}");
                }
            }
        }
    }
}

/// A call that has given some pages and may give no more says so; the call that goes on there is refused.
#[test]
fn pages_before_an_error_are_told() {
    let mut world = world(0);
    let space = world.create(0, 5 * TABLE_UNITS + 3 * NODE_UNITS[0]).expect("a space");
    // The first page makes the tables: the next ones are a run.
    world
        .run(&give(How::Map, 0, memory(8, PAGE, RWX), space, memory(8, PAGE, RWX)))
        .expect("map");
    let pages = give(How::Map, 0, memory(0, PAGE + 3, RWX), space, memory(0, PAGE + 3, RWX));
    assert_eq!(world.step(&pages), Ok(Progress::More));
    assert_eq!(
        [0, 1, 2].map(|page| world.translate(space, page).is_some()),
        [true, true, false]
    );
    assert_eq!(world.step(&pages), Err(Error::LimitReached));
}

#[test]
fn a_space_goes_with_those_it_created_and_the_quota_returns() {
    let mut world = world(0);
    let sigma0 = world.id(0).expect("σ₀");
    let used = world.kernel.free_space_quota(sigma0);
    let first = world.create(0, 10_000).expect("a space");
    let second = world.create(first, 3_000).expect("a space");
    let third = world.create(second, 1_000).expect("a space");
    world
        .run(&give(How::Map, 0, memory(1, PAGE, RWX), third, memory(1, PAGE, RWX)))
        .expect("map");
    world
        .run(&give(
            How::Map,
            third,
            memory(1, PAGE, RWX),
            first,
            memory(1, PAGE, RWX),
        ))
        .expect("map");
    world.run(&Op::Destroy { space: first }).expect("destroy");
    assert!([first, second, third].iter().all(|&space| world.id(space).is_none()));
    assert_eq!(world.kernel.free_space_quota(sigma0), used);
    assert_eq!(world.run(&Op::Destroy { space: 0 }), Err(Error::BadArgument));
}

#[test]
fn a_space_that_is_being_destroyed_takes_part_in_nothing() {
    let mut world = world(2);
    world
        .run(&give(How::Map, 0, memory(0, SLOT, RWX), 1, memory(512, SLOT, RWX)))
        .expect("map");
    for page in 0..200 {
        world
            .run(&give(
                How::Map,
                0,
                memory(page, PAGE, RWX),
                2,
                memory(page * 512, PAGE, RWX),
            ))
            .expect("map");
    }
    assert_eq!(world.step(&Op::Destroy { space: 2 }), Ok(Progress::More));
    let into = give(How::Map, 0, memory(0, PAGE, RWX), 2, memory(0, PAGE, RWX));
    assert_eq!(world.run(&into), Err(Error::BadArgument));
    assert_eq!(
        world.run(&flush(2, memory(0, PAGE, RWX), RWX, Own::Too)),
        Err(Error::BadArgument)
    );
    world.run(&Op::Destroy { space: 2 }).expect("destroy");
}

#[test]
fn pages_are_mapped_onward_only_so_often() {
    // Within one space, and to and fro between two, which the fast path does; small pages, and parts of a large one.
    for (other, size, part) in [
        (1, PAGE, PAGE),
        (2, PAGE, PAGE),
        (1, SLOT, PAGE),
        (2, SLOT, PAGE),
        (2, SLOT, SLOT),
    ] {
        let mut world = world(2);
        let to = |depth: u64| if depth.is_multiple_of(2) { 1 } else { other };
        let piece = |depth: u64, size: u8| memory(depth << (size - PAGE), size, RWX);
        let onward = |depth: u64| {
            let from = if depth == 0 { 0 } else { to(depth - 1) };
            let source = if depth == 0 {
                memory(0x4_0000, size, RWX)
            } else {
                piece(depth - 1, size)
            };
            give(How::Map, from, source, to(depth), piece(depth, size))
        };
        for depth in 0..u64::from(DEPTH_MAX) {
            world.run(&onward(depth)).expect("map");
        }
        let last = u64::from(DEPTH_MAX);
        // The receiver has a table here already.
        let beside = memory(600 << (SLOT - PAGE), PAGE, RWX);
        world
            .run(&give(How::Map, 0, memory(0, PAGE, RWX), to(last), beside))
            .expect("map");
        let below = memory((600 << (SLOT - PAGE)) + 1, PAGE, RWX);
        let window = if part == PAGE { below } else { piece(last, part) };
        let source = memory((last - 1) << (size - PAGE), part, RWX);
        let too_deep = give(How::Map, to(last - 1), source, to(last), window);
        assert_eq!(world.run(&too_deep), Err(Error::TableFull), "{other} {size} {part}");
        world
            .run(&flush(0, memory(0x4_0000, size, RWX), RWX, Own::Kept))
            .expect("flush");
        assert_eq!(world.translate(1, 0), None);
    }
}

/// The fast path gives and takes single pages: each is charged, and there is a node for each however many there are.
#[test]
fn a_slot_is_given_and_taken_page_by_page() {
    for from in [0, LARGE.0 / 512] {
        let mut world = world(0);
        let quota = 3 * TABLE_UNITS + 2 * TABLE_UNITS + 512 * NODE_UNITS[0];
        let space = world.create(0, quota).expect("a space");
        let page = |number: u64| memory(u64::from(from) * 512 + number, PAGE, RWX);
        let onto = |number: u64| memory(512 + number, PAGE, Rights::RW);
        let before = world.memory();
        for number in 0..512 {
            world
                .run(&give(How::Map, 0, page(number), space, onto(number)))
                .expect("map");
            assert_eq!(
                world.translate(space, 512 + number),
                Some((u64::from(from) * 512 + number, Rights::RW))
            );
        }
        let id = world.id(space).expect("a space");
        assert_eq!(world.kernel.free_space_quota(id), Some((quota, quota)));
        let beyond = give(How::Map, 0, page(0), space, memory(600, PAGE, RWX));
        world.run(&beyond).expect("what is replaced pays");
        let beyond = give(How::Map, 0, page(0), space, memory(1024, PAGE, RWX));
        assert_eq!(world.run(&beyond), Err(Error::LimitReached));
        for number in 0..512 {
            world.run(&flush(0, page(number), RWX, Own::Kept)).expect("flush");
            assert_eq!(world.translate(space, 512 + number), None);
        }
        assert_eq!(world.memory(), before);
    }
}

#[test]
fn fpages_of_other_sizes_are_ranges_of_pages() {
    let mut world = world(2);
    let nodes = world.kernel.mapping_nodes();
    world
        .run(&give(How::Map, 0, memory(0x4_0000, 22, RWX), 1, memory(0, 22, RWX)))
        .expect("map");
    assert_eq!(
        world.kernel.mapping_nodes(),
        nodes + 4,
        "two large pages, and the parts they come from"
    );
    world
        .run(&give(How::Map, 1, memory(2, 13, RWX), 2, memory(0, 47, RWX)))
        .expect("map");
    assert_eq!(
        (world.translate(2, 1), world.translate(2, 2)),
        (None, Some((0x4_0002, RWX)))
    );
    assert_eq!(world.translate(2, 3), Some((0x4_0003, RWX)));
    world
        .run(&flush(0, memory(0x4_0000, 14, RWX), Rights::W, Own::Kept))
        .expect("flush");
    assert_eq!(world.translate(2, 3), Some((0x4_0003, Rights::RX)));
    world.run(&flush(0, memory(0, 47, RWX), RWX, Own::Kept)).expect("flush");
    assert_eq!(world.kernel.mapping_nodes(), nodes);
}

/// Spaces of the next two cases: more than are remembered, and more than one run takes a page from.
const MANY: usize = 40;

/// A page of space 1 that all others have at its place, each beside another one, so that its tables stay.
fn shared_by_many() -> World {
    let mut world = World::new(&[(0, 512)], &[0, 1, 2, 3, 512, 513, 514], 1 << 20);
    for _ in 0..=MANY {
        world.create(0, 1_000).expect("a space");
    }
    let small = |page| memory(page, PAGE, RWX);
    for page in 0..3 {
        world
            .run(&give(How::Map, 0, small(page), 1, small(512 + page)))
            .expect("map");
    }
    for space in 2..=MANY + 1 {
        for page in [514, 512, 513] {
            world
                .run(&give(How::Map, 1, small(page), space, small(page)))
                .expect("map");
        }
    }
    world
}

#[test]
fn pages_of_many_spaces_are_taken_from_all() {
    let mut world = shared_by_many();
    world
        .run(&flush(1, memory(512, PAGE + 1, RWX), RWX, Own::Kept))
        .expect("flush");
    for space in 2..=MANY + 1 {
        let has = [512, 513, 514].map(|page| world.translate(space, page).is_some());
        assert_eq!(has, [false, false, true], "space {space}");
    }
}

/// The run stops in the midst of those who have the page, at the one that gave it on. The rest is taken, whatever the order.
#[test]
fn a_page_that_one_of_many_gave_on_is_taken_from_all() {
    for giver in [2, 3, MANY / 2, MANY, MANY + 1] {
        let mut world = shared_by_many();
        let onward = give(How::Map, giver, memory(512, PAGE, RWX), 1, memory(3, PAGE, RWX));
        world.run(&onward).expect("map");
        let page = memory(512, PAGE, RWX);
        world.run(&flush(1, page, RWX, Own::Kept)).expect("flush");
        for space in 2..=MANY + 1 {
            assert_eq!(world.translate(space, 512), None, "space {space}");
            assert!(world.translate(space, 513).is_some(), "space {space}");
        }
        assert_eq!(world.translate(1, 3), None);
    }
}

/// A page takes the place of another one: from now on it is its new giver's to take.
#[test]
fn a_page_in_the_place_of_another_is_its_givers() {
    let mut world = shared_by_many();
    let small = |page| memory(page, PAGE, RWX);
    world.create(0, 1_000).expect("a space");
    let other = MANY + 2;
    // The other giver has its page from the first one, so both have it as a small page.
    for page in [513, 514] {
        world
            .run(&give(How::Map, 1, small(page), other, small(page)))
            .expect("map");
    }
    let instead = give(How::Map, other, memory(513, PAGE, Rights::R), 7, small(512));
    world.run(&instead).expect("map");
    assert_eq!(world.translate(7, 512), Some((1, Rights::R)));
    world.run(&flush(1, small(512), RWX, Own::Kept)).expect("flush");
    let has = |world: &World, space: usize| world.translate(space, 512).is_some();
    assert_eq!((has(&world, 7), has(&world, 8)), (true, false));
    world.run(&flush(other, small(513), RWX, Own::Kept)).expect("flush");
    assert!(!has(&world, 7) && world.translate(7, 513).is_some());
}
