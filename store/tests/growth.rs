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

/// Asks a mounted store for a size, on a disk that has it.
fn ask(store: &mut Store, world: &mut PlainWorld, total: u64) {
    world.blocks = total;
    store.grow_mounted(world, total).expect("a size");
}

/// A sync of a page of the second object: its record names a new block.
fn sync(store: &mut Store, world: &mut PlainWorld, page: u64, stamp: u8) -> bool {
    store.reserve(base(1), page).expect("room");
    let dirty = vec![world.dirty(base(1), page, stamp)];
    store.sync_begin(world, dirty, &[base(1)]).expect("memory");
    let mut is_done = false;
    while !store.is_idle() {
        match store.poll(world) {
            Some(Event::PageWritten { frame, .. }) => world.free(frame),
            Some(Event::SyncDone(_)) => is_done = true,
            _ => {}
        }
    }
    is_done
}

/// In the middle of work: each checkpoint is one that would be a record, and between two of them syncs stand in the journal.
#[test]
fn a_mounted_store_takes_what_is_new_with_its_next_checkpoint() {
    for blocks in [900, GROUP - 20] {
        let (medium, _) = sample(blocks);
        let before = sound(&medium, blocks, Some("before")).0;
        let mut world = on(&medium, blocks);
        let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
        let mut total = blocks;
        let sizes = [1, 30, GROUP, GROUP + 77, 5 * GROUP, 600 * GROUP, 1200 * GROUP];
        for (stamp, more) in (100..).zip(sizes) {
            let free = store.stats().free;
            ask(&mut store, &mut world, blocks + more);
            assert_eq!(store.stats().blocks, total, "not before it is durable");
            assert!(sync(&mut store, &mut world, 3, stamp));
            store.reserve(base(1), 4).expect("room");
            let dirty = vec![world.dirty(base(1), 4, stamp)];
            store
                .checkpoint_begin(&mut world, dirty, CheckpointKind::Periodic)
                .expect("idle");
            finish(&mut store, &mut world);
            total = blocks + more;
            assert_eq!(store.stats().blocks, total);
            assert!(store.stats().free > free || more < 40, "{:?}", store.stats());
            assert!(sync(&mut store, &mut world, 5, stamp));
            // The power fails here: the record names blocks of the new size.
            let (state, size) = sound(&world.disk, total, None);
            assert_eq!(size, total);
            assert_eq!(state[&base(1)][3..6], [Some(stamp); 3]);
            assert_eq!(sound(&world.disk, total, Some("before")).0, before);
        }
        store
            .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Shutdown)
            .expect("idle");
        finish(&mut store, &mut world);
        store.dismantle(&mut world);
        sound(&world.disk, total, None);
        Store::roll_back(&mut world, &name("before"), None).expect("it goes back");
        assert_eq!(sound(&world.disk, total, None), (before, total));
    }
}

/// All that is new is used without another mount, where the bitmaps have moved twice, and nothing else.
#[test]
fn a_store_that_grew_while_it_was_mounted_fills_its_disk() {
    let blocks = GROUP - 20;
    let (medium, _) = sample(blocks);
    let total = 2 * GROUP + 40;
    let mut world = on(&medium, blocks);
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    for size in [GROUP + 40, total] {
        ask(&mut store, &mut world, size);
        for _ in 0..2 {
            commit(&mut store, &mut world, Vec::new());
        }
    }
    commit(&mut store, &mut world, Vec::new());
    store.put_object(record(base(9), 3 * GROUP)).expect("room");
    let mut written = 0;
    while store.reserve(base(9), written).is_ok() {
        let mut pages = vec![world.dirty(base(9), written, 9)];
        written += 1;
        while pages.len() < 2000 && store.reserve(base(9), written).is_ok() {
            pages.push(world.dirty(base(9), written, 9));
            written += 1;
        }
        commit(&mut store, &mut world, pages);
    }
    let stats = store.stats();
    assert!(written > 2 * GROUP - 1400 && stats.free < 700, "{written} {stats:?}");
    store.dismantle(&mut world);
    let (state, _) = sound(&world.disk, total, None);
    assert!(state[&base(9)][..written as usize].iter().all(|&page| page == Some(9)));
    sound(&world.disk, total, Some("before"));
}

/// The power fails at each request of a life in which the disk grows: the size is the old one or the new one, and it is the new one where a state is that came with it.
#[test]
fn a_cut_while_it_is_mounted_leaves_the_old_size_or_the_new_one() {
    for (blocks, total) in [
        (900, 1000),
        (900, 3 * GROUP),
        (GROUP - 20, GROUP + 40),
        (GROUP + 5, 2 * GROUP + 100),
    ] {
        let (mut medium, _) = sample(blocks.min(GROUP - 20));
        if blocks > GROUP {
            medium = grown(&medium, blocks);
        }
        let before = sound(&medium, blocks, Some("before")).0;
        let mut sizes = BTreeSet::new();
        let mut newest = 0;
        for cut in 0.. {
            let mut world = on(&medium, blocks);
            let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
            let begun = world.log.len();
            world.failing_numbers = begun + cut..usize::MAX;
            // Each of these is one state more, by its stamp; the second has the new size.
            let alive = (101..=106).all(|stamp| {
                if stamp == 102 {
                    ask(&mut store, &mut world, total);
                }
                if stamp % 2 == 1 {
                    return sync(&mut store, &mut world, 3, stamp) && world.log.len() < begun + cut;
                }
                store.reserve(base(1), 3).expect("room");
                let dirty = vec![world.dirty(base(1), 3, stamp)];
                let kind = CheckpointKind::Periodic;
                store.checkpoint_begin(&mut world, dirty, kind).expect("idle");
                while !store.is_idle() {
                    if let Some(Event::PageWritten { frame, .. }) = store.poll(&mut world) {
                        world.free(frame);
                    }
                }
                world.log.len() < begun + cut
            });
            let (found, size) = sound(&world.disk, total, None);
            let state = found[&base(1)][3].expect("readable");
            let state = state.saturating_sub(100);
            assert!(state >= newest, "{blocks} {total} {cut}: {state} behind {newest}");
            newest = state;
            assert_eq!(size, if state < 2 { blocks } else { total }, "{cut}: {state}");
            sizes.insert(size);
            assert_eq!(sound(&world.disk, total, Some("before")).0, before);
            // Whatever it left goes on, and what the older generation needed is needed no more then.
            let mut world = on(&world.disk, total);
            let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
            ask(&mut store, &mut world, total);
            for stamp in 200..203 {
                write(&mut store, &mut world, base(1), 2..15, stamp);
                assert_eq!(sound(&world.disk, total, None).1, total);
            }
            if alive {
                assert_eq!(state, 6);
                break;
            }
        }
        assert_eq!(sizes, BTreeSet::from([blocks, total]));
    }
}

/// A checkpoint that fails, be it at a new block or at the superblock, leaves the size as it is, in memory too; the next one does not try again, and one that is asked does.
#[test]
fn a_growth_that_fails_is_given_up_and_can_be_asked_for_again() {
    let (blocks, total) = (900, 3 * GROUP);
    let (medium, _) = sample(blocks);
    for failing in [blocks..total, 0..4] {
        for done_all_the_same in [false, true] {
            let mut world = on(&medium, blocks);
            let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
            ask(&mut store, &mut world, total);
            world.failing = Some((Operation::Write, failing.clone()));
            world.done_all_the_same = done_all_the_same;
            store
                .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation)
                .expect("idle");
            let mut failed = false;
            while !store.is_idle() {
                failed |= matches!(store.poll(&mut world), Some(Event::CheckpointFailed { .. }));
            }
            while store.page_over().is_some() {}
            assert!(failed);
            assert_eq!(store.stats().blocks, blocks);
            world.failing = None;
            write(&mut store, &mut world, base(1), 2..15, 150);
            assert_eq!(
                (store.stats().blocks, sound(&world.disk, total, None).1),
                (blocks, blocks)
            );
            assert!(sync(&mut store, &mut world, 3, 151));
            sound(&world.disk, total, None);
            ask(&mut store, &mut world, total);
            write(&mut store, &mut world, base(1), 2..15, 152);
            assert_eq!(sound(&world.disk, total, None).1, total);
            assert!(sync(&mut store, &mut world, 3, 153));
            sound(&world.disk, total, None);
        }
    }
}

/// A group that no generation has changed for so long that no region lacks its bitmap is written to each of the three in their new place.
#[test]
fn bitmaps_that_move_are_all_written_though_nothing_has_changed() {
    let blocks = 3 * GROUP;
    let mut world = PlainWorld::new(blocks);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    store.put_object(record(base(0), GROUP + 4000)).expect("room");
    store.put_object(record(base(1), 20)).expect("room");
    for first in (0..GROUP + 4000).step_by(4000) {
        write(
            &mut store,
            &mut world,
            base(0),
            first..(first + 4000).min(GROUP + 4000),
            1,
        );
    }
    // What is written now is behind the first group, and what it leaves too.
    for stamp in 2..9 {
        write(&mut store, &mut world, base(1), 0..9, stamp);
    }
    let mut total = blocks;
    for more in [5 * GROUP, 9 * GROUP] {
        total += more;
        ask(&mut store, &mut world, total);
        for stamp in 10..14 {
            write(&mut store, &mut world, base(1), 0..9, stamp);
            let (state, size) = sound(&world.disk, total, None);
            assert_eq!(size, total);
            assert_eq!(state[&base(1)][8], Some(stamp));
            assert!(state[&base(0)].iter().all(|&page| page == Some(1)));
        }
    }
}

#[test]
fn a_mounted_store_refuses_sizes_that_cannot_be() {
    let (medium, _) = sample(GROUP - 4);
    let mut world = on(&medium, 2 * GROUP - 1);
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    for (total, wanted) in [
        (GROUP - 5, GrowError::Size(BadSize::Smaller(GROUP - 4))),
        (GROUP + 1, GrowError::Size(BadSize::TooLittle(GROUP + 6))),
        (BLOCKS_MAX + 1, GrowError::Size(BadSize::TooLarge(BLOCKS_MAX))),
        (
            2 * GROUP,
            GrowError::Mount(MountError::Truncated(2 * GROUP, 2 * GROUP - 1)),
        ),
    ] {
        assert_eq!(store.grow_mounted(&world, total), Err(wanted));
        write(&mut store, &mut world, base(1), 2..15, 150);
        assert_eq!(store.stats().blocks, GROUP - 4);
    }
    // It has that size already.
    assert_eq!(store.grow_mounted(&world, GROUP - 4), Ok(()));
    write(&mut store, &mut world, base(1), 2..15, 151);
    assert_eq!(sound(&world.disk, GROUP - 4, None).1, GROUP - 4);
}
