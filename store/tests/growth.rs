//! A store that grows: what it holds stays, the bitmaps find another place, and a power cut leaves the old size or the new one.

mod kept;
mod plain;
mod shown;

use kept::{Medium, State, name, on, record};
use plain::PlainWorld;
use std::collections::BTreeSet;
use store::{
    BLOCK, BLOCKS_MAX, BadSize, CheckpointKind, DirtyPage, Disk, DiskError, Event, FormatOptions, Frame, GrowError,
    MountError, MountMode, ObjectRecord, Operation, PageFlags, Pages, QueueFull, Random, Request, Store,
};

const FIRST: u64 = 1 << 32;
/// Blocks that one bitmap block tells of.
const GROUP: u64 = 32_768;

fn base(number: u64) -> u64 {
    FIRST + (number << 30)
}

fn finish(store: &mut Store, world: &mut PlainWorld) {
    let mut is_done = false;
    while !store.is_idle() {
        match store.poll(world) {
            Some(Event::PageWritten { frame, .. }) => world.free(frame),
            Some(Event::CheckpointDone { .. }) => is_done = true,
            Some(Event::CheckpointFailed { reason }) => panic!("{reason:?}"),
            _ => {}
        }
    }
    assert!(is_done, "the checkpoint has ended");
    while store.page_over().is_some() {}
}

fn commit(store: &mut Store, world: &mut PlainWorld, dirty: Vec<DirtyPage>) {
    store
        .checkpoint_begin(world, dirty, CheckpointKind::Generation)
        .expect("idle");
    finish(store, world);
}

fn write(store: &mut Store, world: &mut PlainWorld, base: u64, pages: std::ops::Range<u64>, stamp: u8) {
    let pages = pages.map(|page| {
        store.reserve(base, page).expect("room");
        world.dirty(base, page, stamp)
    });
    let pages = pages.collect();
    commit(store, world, pages);
}

/// A disk with objects, a snapshot, and a journal that is not empty.
fn sample(blocks: u64) -> (Medium, State) {
    let mut world = PlainWorld::new(blocks);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    for number in 0..4 {
        store.put_object(record(base(number), 20)).expect("room");
        write(&mut store, &mut world, base(number), 0..9, number as u8 + 1);
    }
    store.keep_snapshot(name("before"), 1).expect("room");
    commit(&mut store, &mut world, Vec::new());
    write(&mut store, &mut world, base(0), 3..12, 77);
    store.delete_object(base(2)).expect("it is there");
    commit(&mut store, &mut world, Vec::new());
    store.reserve(base(1), 0).expect("room");
    let dirty = vec![world.dirty(base(1), 0, 88)];
    store.sync_begin(&mut world, dirty, &[base(1)]).expect("memory");
    while !store.is_idle() {
        if let Some(Event::PageWritten { frame, .. }) = store.poll(&mut world) {
            world.free(frame);
        }
    }
    let state = sound(&world.disk, blocks, None).0;
    (world.disk, state)
}

/// The state of a disk, or of a snapshot on it, and how many blocks the store has. All of it must be sound.
#[track_caller]
fn sound(medium: &Medium, blocks: u64, of: Option<&str>) -> (State, u64) {
    let mut world = on(medium, blocks);
    let mounted = match of {
        None => Store::mount(&mut world, MountMode::ReadOnly),
        Some(of) => Store::mount_snapshot(&mut world, &name(of)).map(|found| found.expect("it is there")),
    };
    let (mut store, report) = mounted.expect("it opens");
    assert!(
        report.damage.is_empty() && report.losses.is_empty(),
        "{:?}",
        report.damage
    );
    let mut wrong = Vec::new();
    let checked = store.verify(&mut world, &mut |finding| wrong.push(finding));
    checked.expect("memory");
    assert!(wrong.is_empty(), "{of:?}: {wrong:?}");
    let records: Vec<ObjectRecord> = store.objects().cloned().collect();
    let pages = records
        .iter()
        .map(|record| (record.base, shown::pages_of(&mut world, &mut store, record)));
    let state = pages.collect();
    (state, store.stats().blocks)
}

fn grown(medium: &Medium, blocks: u64) -> Medium {
    let mut world = on(medium, blocks);
    Store::grow(&mut world, blocks).expect("it grows");
    world.disk
}

#[test]
fn all_that_a_store_holds_stays_where_it_grows() {
    for blocks in [900, GROUP - 20] {
        let (medium, state) = sample(blocks);
        let before = sound(&medium, blocks, Some("before")).0;
        let mut at = medium;
        for more in [
            1,
            30,
            GROUP,
            GROUP + 77,
            5 * GROUP,
            6 * GROUP + 1000,
            600 * GROUP,
            1200 * GROUP,
        ] {
            let total = blocks + more;
            at = grown(&at, total);
            assert_eq!(sound(&at, total, None), (state.clone(), total));
            assert_eq!(sound(&at, total, Some("before")), (before.clone(), total));
            // It opens for writing, by the mount of the system, too.
            let mut world = on(&at, total);
            let (store, report) =
                Store::mount_in_parts(&mut world, MountMode::ReadWrite, store::Leaves::AsNeeded(3)).expect("mount");
            assert!(report.clean);
            store.dismantle(&mut world);
            at = world.disk;
            assert_eq!(sound(&at, total, None), (state.clone(), total));
        }
        let total = blocks + 1200 * GROUP;
        let mut world = on(&at, total);
        Store::roll_back(&mut world, &name("before"), None).expect("it goes back");
        assert_eq!(sound(&world.disk, total, None), (before, total));
    }
}

/// What is new is used, all of it, and nothing else: neither the bitmaps in their new place, nor what they have left before two generations.
#[test]
fn a_store_that_has_grown_fills_its_disk() {
    let blocks = GROUP - 20;
    let (medium, _) = sample(blocks);
    // The second growth gives the place of the first bitmaps back.
    let total = 2 * GROUP + 40;
    let at = grown(&grown(&medium, GROUP + 40), total);
    let mut world = on(&at, total);
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    for _ in 0..3 {
        commit(&mut store, &mut world, Vec::new());
    }
    store.put_object(record(base(9), 3 * GROUP)).expect("room");
    let mut written = 0;
    let mut is_full = false;
    while !is_full {
        let mut pages = Vec::new();
        for page in written..written + 2000 {
            if store.reserve(base(9), page).is_err() {
                is_full = true;
                break;
            }
            pages.push(world.dirty(base(9), page, 9));
        }
        written += pages.len() as u64;
        commit(&mut store, &mut world, pages);
    }
    let stats = store.stats();
    assert!(written > 2 * GROUP - 1400 && stats.free < 700, "{written} {stats:?}");
    store.dismantle(&mut world);
    let (state, _) = sound(&world.disk, total, None);
    assert!(state[&base(9)][..written as usize].iter().all(|&page| page == Some(9)));
    assert_eq!(state[&base(0)][4], Some(77));
    sound(&world.disk, total, Some("before"));
}

/// The power fails at each request, and then again in a life that goes on with that disk.
#[test]
fn a_cut_leaves_the_old_size_or_the_new_one() {
    for (blocks, total) in [
        (900, 1000),
        (900, 3 * GROUP),
        (GROUP - 20, GROUP + 40),
        (GROUP + 5, 2 * GROUP + 100),
    ] {
        let (mut medium, state) = sample(blocks.min(GROUP - 20));
        if blocks > GROUP {
            medium = grown(&medium, blocks);
        }
        let before = sound(&medium, blocks, Some("before")).0;
        let mut sizes = BTreeSet::new();
        for cut in 0.. {
            let mut world = on(&medium, total);
            world.failing_numbers = cut..usize::MAX;
            let outcome = Store::grow(&mut world, total);
            let disk = core::mem::take(&mut world.disk);
            let (found, size) = sound(&disk, total, None);
            assert_eq!(found, state, "{blocks} {total} {cut}");
            assert!(size == blocks || size == total);
            sizes.insert(size);
            assert_eq!(sound(&disk, total, Some("before")).0, before);
            // Whatever it left can be grown, and changed, and the old place of the bitmaps is not needed any more then.
            let at = grown(&disk, total);
            let mut world = on(&at, total);
            let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
            for stamp in 0..3 {
                write(&mut store, &mut world, base(1), 2..15, 200 + stamp);
                sound(&world.disk, total, None);
            }
            assert_eq!(sound(&world.disk, total, Some("before")).0, before);
            if outcome.is_ok() {
                assert_eq!(size, total);
                break;
            }
        }
        assert_eq!(sizes, BTreeSet::from([blocks, total]));
    }
}

/// The generation before stays whole, with its bitmaps, and a repair goes back to it.
#[test]
fn the_generation_of_the_old_size_is_what_a_repair_falls_back_to() {
    let blocks = GROUP + 5;
    let (medium, state) = sample(900);
    let medium = grown(&medium, blocks);
    let total = 3 * GROUP;
    // Behind the first generation of the new size, before the second one.
    let newest = |medium: &Medium| {
        let mut world = on(medium, total);
        let (store, report) = Store::mount(&mut world, MountMode::ReadOnly).expect("it opens");
        (store.stats().blocks, report.generation, report.superblock)
    };
    let mut cut = 0;
    let (disk, superblock) = loop {
        let mut world = on(&medium, total);
        world.failing_numbers = cut..usize::MAX;
        let _ = Store::grow(&mut world, total);
        if let (size, _, superblock) = newest(&world.disk)
            && size == total
        {
            break (world.disk, superblock);
        }
        cut += 1;
    };
    // The nine blocks where its bitmaps stood are held for it.
    let held = |medium: &Medium| {
        let mut world = on(medium, total);
        let (store, _) = Store::mount(&mut world, MountMode::ReadOnly).expect("it opens");
        store.stats().held
    };
    let all = grown(&medium, total);
    assert_eq!(held(&disk), held(&all) + 9);
    let mut rotten = disk;
    for copy in [superblock & !1, superblock | 1] {
        rotten.insert(copy, [0x5a; BLOCK]);
    }
    // Nothing but a repair gives up what may have been in it.
    let mut world = on(&rotten, total);
    assert!(Store::mount(&mut world, MountMode::ReadWrite).is_err());
    let mut world = on(&rotten, total);
    let (store, _) = Store::mount(&mut world, MountMode::AcceptLoss).expect("the generation before is whole");
    assert_eq!(store.stats().blocks, blocks);
    store.dismantle(&mut world);
    assert_eq!(sound(&world.disk, total, None), (state, blocks));
}

#[test]
fn sizes_that_cannot_be_are_refused_and_nothing_is_written() {
    let (medium, _) = sample(GROUP - 4);
    for (total, wanted) in [
        (GROUP - 5, GrowError::Size(BadSize::Smaller(GROUP - 4))),
        (GROUP + 1, GrowError::Size(BadSize::TooLittle(GROUP + 6))),
        (BLOCKS_MAX + 1, GrowError::Size(BadSize::TooLarge(BLOCKS_MAX))),
        (
            2 * GROUP,
            GrowError::Mount(MountError::Truncated(2 * GROUP, 2 * GROUP - 1)),
        ),
    ] {
        let mut world = on(&medium, (2 * GROUP - 1).min(total.max(GROUP)));
        assert_eq!(Store::grow(&mut world, total), Err(wanted));
        assert!(world.log.iter().all(|request| request.0 == Operation::Read));
    }
    // It has that size already.
    let mut world = on(&medium, GROUP + 100);
    assert_eq!(Store::grow(&mut world, GROUP - 4), Ok(GROUP - 4));
    assert_eq!(sound(&world.disk, GROUP - 4, None).1, GROUP - 4);
}

/// What has rotted among the bitmaps in their new place is made anew.
#[test]
fn bitmaps_in_their_new_place_are_rebuilt() {
    let (medium, state) = sample(900);
    let total = 3 * GROUP;
    let at = grown(&medium, total);
    let bitmaps: Vec<u64> = at.keys().copied().filter(|block| (900..912).contains(block)).collect();
    assert!(bitmaps.len() > 3, "{bitmaps:?}");
    let mut refused = 0;
    for block in bitmaps {
        let mut rotten = at.clone();
        rotten.insert(block, [0x5a; BLOCK]);
        let mut world = on(&rotten, total);
        refused += u64::from(Store::mount(&mut world, MountMode::ReadWrite).is_err());
        let mut world = on(&rotten, total);
        let (mut store, plan) = Store::mount_for_repair(&mut world).expect("it can be repaired");
        store.repair(&mut world, &plan).expect("it is repaired");
        store.dismantle(&mut world);
        assert_eq!(sound(&world.disk, total, None), (state.clone(), total));
        sound(&world.disk, total, Some("before"));
    }
    assert!(refused > 0);
}
