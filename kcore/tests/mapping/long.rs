//! Operations that take many calls: each does a bounded part, and others may come between.

use abi::Rights;
use kcore::{
    Kernel, Machine, SpaceId,
    bare::{
        Bare,
        going::{Going, WORK_MAX},
        mapping::{Fpage, How, NODE_UNITS, Own, Progress, TABLE_UNITS},
    },
    space::Tags,
};

use crate::{
    fake::Fake,
    world::{GIB, PAGE, RWX, SLOT, memory, walk},
};

/// σ₀ with one page of a gibibyte at its own address, and that many spaces.
fn kernel(frames: u32, spaces: u32, quota: u32) -> (Kernel<Fake, Bare>, SpaceId, Vec<SpaceId>) {
    let mut kernel = Kernel::new(Fake::new(frames, Tags::Present), &[(1, frames)]);
    let sigma0 = kernel
        .sigma0_create(1 << 24, &[(0x4_0000, 0x8_0000)], &[], 2)
        .expect("σ₀");
    let spaces = (0..spaces).map(|_| kernel.free_space_create(sigma0, quota).expect("a space"));
    let spaces = spaces.collect();
    (kernel, sigma0, spaces)
}

/// Calls until the end, how many, and that none makes or removes more nodes than it may.
fn calls(
    kernel: &mut Kernel<Fake, Bare>,
    mut call: impl FnMut(&mut Kernel<Fake, Bare>, &mut Going) -> Progress,
) -> usize {
    let mut going = Going::default();
    for number in 1..1_000_000 {
        let nodes = kernel.mapping_nodes();
        let progress = call(kernel, &mut going);
        going = going.next_piece();
        let changed = kernel.mapping_nodes().abs_diff(nodes);
        assert!(changed <= 3 * WORK_MAX as u32, "{changed} nodes in one call");
        if progress == Progress::Done {
            return number;
        }
    }
    panic!("never ends");
}

fn map(kernel: &mut Kernel<Fake, Bare>, from: SpaceId, source: Fpage, to: SpaceId, window: Fpage) {
    calls(kernel, |kernel, going| {
        kernel
            .map((from, source), (to, window), How::Map, going)
            .expect("map")
            .progress
    });
}

#[test]
fn a_page_of_a_thousand_spaces_is_flushed_in_pieces() {
    let (mut kernel, sigma0, spaces) = kernel(8200, 1000, 5 * TABLE_UNITS + 2 * NODE_UNITS[0]);
    let before = (kernel.frames_free(), kernel.mapping_nodes());
    let first = spaces[0];
    map(
        &mut kernel,
        sigma0,
        memory(0x4_0007, PAGE, RWX),
        first,
        memory(7, PAGE, RWX),
    );
    for &space in &spaces[1..] {
        map(&mut kernel, first, memory(7, PAGE, RWX), space, memory(7, PAGE, RWX));
    }
    let number = calls(&mut kernel, |kernel, going| {
        kernel
            .flush(sigma0, memory(0x4_0007, PAGE, RWX), (Rights::W, Own::Kept), going)
            .expect("flush")
    });
    assert!(number > 1000 / WORK_MAX as usize, "{number} calls");
    assert!(
        spaces
            .iter()
            .all(|&space| walk(&kernel, space, 7) == Some((0x4_0007, Rights::RX)))
    );
    let mut calls_made = 0;
    let number = calls(&mut kernel, |kernel, going| {
        // Between the calls others take, and give, and do other things from the same space.
        calls_made += 1;
        if calls_made % 3 == 0 {
            let one = memory(0x4_0009, PAGE, RWX);
            assert_eq!(
                kernel.flush(first, memory(8, PAGE, RWX), (RWX, Own::Too), &mut Going::default()),
                Ok(Progress::Done)
            );
            kernel
                .map(
                    (sigma0, one),
                    (first, memory(8, PAGE, RWX)),
                    How::Map,
                    &mut Going::default(),
                )
                .expect("map");
        }
        kernel.mapping_check().expect("invariants");
        kernel
            .flush(sigma0, memory(0x4_0007, PAGE, RWX), (RWX, Own::Kept), going)
            .expect("flush")
    });
    assert!(number > 1000 / WORK_MAX as usize, "{number} calls");
    assert!(spaces.iter().all(|&space| walk(&kernel, space, 7).is_none()));
    assert_eq!(
        kernel.flush(first, memory(8, PAGE, RWX), (RWX, Own::Too), &mut Going::default()),
        Ok(Progress::Done)
    );
    assert_eq!((kernel.frames_free(), kernel.mapping_nodes()), before);
}

/// Pages of a large page that cannot be split are taken in pieces. Between two of them its space may become able to pay for the split: the page is
/// lost all the same, for some of those that had it from here have lost it by then.
#[test]
fn a_large_page_that_is_lost_stays_lost() {
    let (mut kernel, sigma0, spaces) = kernel(3000, 200, 5 * TABLE_UNITS + 3 * NODE_UNITS[0]);
    // Root and two tables, a node of 2 MiB; of one page beside it two tables and a node.
    let tight = 5 * TABLE_UNITS + NODE_UNITS[1] + NODE_UNITS[0];
    let first = kernel.free_space_create(sigma0, tight).expect("a space");
    let large = (memory(0x4_0000, SLOT, RWX), memory(0, SLOT, RWX));
    map(&mut kernel, sigma0, large.0, first, large.1);
    let beside = memory(512, PAGE, RWX);
    map(&mut kernel, sigma0, memory(0x4_0200, PAGE, RWX), first, beside);
    for &space in &spaces {
        map(&mut kernel, first, memory(7, PAGE, RWX), space, memory(7, PAGE, RWX));
    }
    let mut pieces = 0;
    calls(&mut kernel, |kernel, going| {
        pieces += 1;
        if pieces == 2 {
            let given = kernel.flush(first, beside, (RWX, Own::Too), &mut Going::default());
            assert_eq!(given, Ok(Progress::Done));
        }
        let one = memory(0x4_0001, PAGE, RWX);
        kernel.flush(sigma0, one, (RWX, Own::Kept), going).expect("flush")
    });
    assert!(pieces > 2, "{pieces} pieces");
    assert!(spaces.iter().all(|&space| walk(&kernel, space, 7).is_none()));
    assert_eq!(walk(&kernel, first, 0), None);
    kernel.mapping_check().expect("invariants");
}

#[test]
fn a_gibibyte_of_small_pages_is_mapped_and_deleted_in_pieces() {
    let (mut kernel, sigma0, spaces) = kernel(3000, 2, 4_000_000);
    let before = (kernel.frames_free(), kernel.mapping_nodes());
    let (source, target) = (memory(0x4_0000, GIB, RWX), memory(0x8_0000, GIB, RWX));
    map(&mut kernel, sigma0, source, spaces[0], source);
    // One page of every slot is missing: then all the others are small pages.
    for slot in 0..512 {
        let page = memory(0x4_0000 + slot * 512 + slot, PAGE, RWX);
        calls(&mut kernel, |kernel, going| {
            kernel.flush(spaces[0], page, (RWX, Own::Too), going).expect("flush")
        });
    }
    let mut pages = 0;
    let number = calls(&mut kernel, |kernel, going| {
        let mapped = kernel
            .map((spaces[0], source), (spaces[1], target), How::Map, going)
            .expect("map");
        pages += mapped.count;
        mapped.progress
    });
    assert_eq!(pages, 511 * 512);
    assert!(number > 511 * 512 / WORK_MAX as usize, "{number} calls");
    kernel.mapping_check().expect("invariants");
    assert_eq!(walk(&kernel, spaces[1], 0x8_0000 + 512), Some((0x4_0000 + 512, RWX)));
    assert_eq!(walk(&kernel, spaces[1], 0x8_0000 + 513), None);
    calls(&mut kernel, |kernel, going| {
        kernel
            .flush(spaces[0], source, (Rights::W, Own::Kept), going)
            .expect("flush")
    });
    assert_eq!(walk(&kernel, spaces[1], 0xb_0000), Some((0x7_0000, Rights::RX)));
    kernel.mapping_check().expect("invariants");
    // Half of it by the receiver's deletion, the rest by the giver's.
    for _ in 0..2000 {
        assert_eq!(kernel.free_space_destroy(spaces[1]), Ok(Progress::More));
    }
    kernel.mapping_check().expect("invariants");
    calls(&mut kernel, |kernel, _| {
        kernel.free_space_destroy(spaces[0]).expect("destroy")
    });
    let number = calls(&mut kernel, |kernel, _| {
        kernel.free_space_destroy(spaces[1]).expect("destroy")
    });
    assert!(number < 1000, "little was left to do");
    kernel.mapping_check().expect("invariants");
    assert_eq!(kernel.mapping_nodes(), before.1);
    // Two root tables.
    assert_eq!(kernel.frames_free(), before.0 + 2);
}
