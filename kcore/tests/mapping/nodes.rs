//! The tables of nodes that stand beside tables of small pages: when they come and go, and who pays.

use abi::Error;
use kcore::{
    Kernel, Machine,
    bare::{
        Bare,
        going::Going,
        mapping::{How, NODE_UNITS, Own, Progress, TABLE_UNITS},
    },
    space::Tags,
};

use crate::{
    fake::Fake,
    world::{LARGE, Op, PAGE, RWX, SLOT, World, flush, give, memory},
};

/// The part of σ₀'s large page that is given as a slot, and another page.
const GIVEN: u64 = 0x4_0000;
const OTHER: u64 = 0x5_0007;

fn world() -> World {
    let samples: Vec<u64> = [0, GIVEN]
        .iter()
        .flat_map(|slot| [0, 1, 3, 7, 511].map(|page| slot + page))
        .chain([OTHER])
        .collect();
    World::new(&[LARGE], &samples, 1 << 20)
}

fn map(from: u64, log2: u8, to: usize, at: u64) -> Op {
    give(How::Map, 0, memory(from, log2, RWX), to, memory(at, log2, RWX))
}

fn take(page: u64, log2: u8) -> Op {
    flush(0, memory(page, log2, RWX), RWX, Own::Kept)
}

fn used(world: &World, space: usize) -> u32 {
    let quota = world.id(space).and_then(|id| world.kernel.free_space_quota(id));
    quota.map_or(0, |(_, used)| used)
}

#[test]
fn a_table_of_nodes_comes_with_a_small_page_and_goes_with_the_table() {
    let mut world = world();
    let space = world.create(0, 50_000).expect("a space");
    let (free, nodes) = world.memory();
    let mut check = |op: Op, tables: u32, units: u32| {
        world.run(&op).expect("it goes");
        assert_eq!(used(&world, space), (1 + tables) * TABLE_UNITS + units, "{op:?}");
        assert_eq!(world.kernel.frames_free(), free - u64::from(tables), "{op:?}");
        world.kernel.mapping_nodes() - nodes
    };
    let [_, large, small] = [2, 1, 0].map(|level| NODE_UNITS[level]);
    assert_eq!(check(map(GIVEN, SLOT, space, 0), 2, large), 2);
    // The large page is parted: its table has no page of its own.
    assert_eq!(check(take(GIVEN + 3, PAGE), 3, large), 2);
    assert_eq!(check(map(OTHER, PAGE, space, 3), 4, large + small), 5);
    // It stays as long as the table, for other pages.
    assert_eq!(check(take(OTHER, PAGE), 4, large), 2);
    assert_eq!(check(map(OTHER, PAGE, space, 3), 4, large + small), 5);
    assert_eq!(check(take(GIVEN, SLOT), 4, small), 3);
    assert_eq!(check(take(OTHER, PAGE), 0, 0), 0);
}

/// A page of a parted large one stays where what would replace it cannot be paid.
#[test]
fn a_page_that_cannot_pay_for_a_table_of_nodes_replaces_nothing() {
    for missing in [0, 1] {
        let mut world = world();
        let quota = 5 * TABLE_UNITS + NODE_UNITS[1] + NODE_UNITS[0] - missing;
        let space = world.create(0, quota).expect("a space");
        for op in [map(GIVEN, SLOT, space, 0), take(GIVEN + 3, PAGE)] {
            world.run(&op).expect("it goes");
        }
        let before = (world.memory(), world.translate(space, 7));
        assert_eq!(before.1, Some((GIVEN + 7, RWX)));
        let given = world.run(&map(OTHER, PAGE, space, 7));
        if missing == 0 {
            assert_eq!((given, world.translate(space, 7)), (Ok(()), Some((OTHER, RWX))));
        } else {
            assert_eq!(given, Err(Error::LimitReached));
            assert_eq!((world.memory(), world.translate(space, 7)), before);
        }
    }
}

/// A first space of small pages that cannot have all its tables, or their nodes, leaves none of them.
#[test]
fn a_first_space_that_cannot_pay_gives_all_back() {
    let (mut made, mut refused) = (0, 0);
    for quota in 3 * TABLE_UNITS..9 * TABLE_UNITS {
        let mut kernel: Kernel<Fake, Bare> = Kernel::new(Fake::new(64, Tags::Absent), &[(1, 64)]);
        let before = (kernel.frames_free(), kernel.mapping_nodes());
        if kernel.sigma0_create(quota, &[(0x100, 0x103)], &[], 2).is_err() {
            assert_eq!((kernel.frames_free(), kernel.mapping_nodes()), before, "{quota} units");
            refused += 1;
        } else {
            made += 1;
        }
        kernel.mapping_check().expect("invariants");
    }
    assert!(made > 0 && refused > 0, "{made} made");
}

/// Too little quota, or too few frames, for one of the tables: the call is refused, and what it took is given back.
#[test]
fn a_page_without_its_table_of_nodes_is_refused() {
    // Root, two tables above the lowest, that one, the one beside it.
    let enough = 5 * TABLE_UNITS + NODE_UNITS[0];
    for quota in [enough - NODE_UNITS[0], enough - 1, enough] {
        let mut world = world();
        let space = world.create(0, quota).expect("a space");
        let before = (world.memory(), used(&world, space));
        let given = world.run(&map(OTHER, PAGE, space, 7));
        assert_eq!(given.is_ok(), quota == enough);
        if given.is_err() {
            assert_eq!(given, Err(Error::LimitReached));
            assert_eq!((world.memory(), used(&world, space)), before);
        }
    }
    let mut refused = 0;
    for frames in 4..12 {
        let mut kernel: Kernel<Fake, Bare> = Kernel::new(Fake::new(frames, Tags::Absent), &[(1, frames)]);
        let Ok(sigma0) = kernel.sigma0_create(1 << 20, &[LARGE], &[], 2) else {
            continue;
        };
        let Ok(space) = kernel.free_space_create(sigma0, 50_000) else {
            continue;
        };
        let before = (kernel.frames_free(), kernel.mapping_nodes());
        let (source, window) = ((sigma0, memory(OTHER, PAGE, RWX)), (space, memory(7, PAGE, RWX)));
        match kernel.map(source, window, How::Map, &mut Going::default()) {
            Ok(mapped) => assert_eq!((mapped.progress, mapped.count), (Progress::Done, 1)),
            Err(error) => {
                assert_eq!(error, Error::NoMemory);
                assert_eq!((kernel.frames_free(), kernel.mapping_nodes()), before);
                refused += 1;
            }
        }
        kernel.mapping_check().expect("invariants");
    }
    assert!(refused >= 3, "{refused} refused");
}
