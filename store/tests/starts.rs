//! Starts on a disk that fails: a power cut has left deletions in the journal, and each request of the mount that finishes them fails in turn.

mod plain;

use plain::PlainWorld;
use std::collections::BTreeMap;
use store::{
    BLOCK, CheckpointKind, DirtyPage, Disk, DiskError, Event, Failure, FormatOptions, Frame, Look, MountError,
    MountMode, ObjectRecord, Operation, PageFlags, Pages, QueueFull, Random, ReadStart, Request, Store,
};

const BLOCKS: u64 = 3000;
/// An object whose pages were written again behind the last checkpoint, and two that were deleted then.
const KEPT: u64 = 1 << 40;
const DELETED: [u64; 2] = [1 << 41, 1 << 42];
/// Pages of each object, in three levels of its map.
const PAGES: [u64; 6] = [0, 1, 255, 300, 70_000, 131_000];

fn dirty(world: &mut PlainWorld, store: &mut Store, (base, page): (u64, u64), stamp: u8) -> DirtyPage {
    store.reserve(base, page).expect("room");
    world.dirty(base, page, stamp)
}

/// Runs the store until it has nothing to do; the last event that was not a page.
fn run(world: &mut PlainWorld, store: &mut Store) -> Option<Event> {
    let mut last = None;
    while let Some(event) = store.poll(world) {
        if !matches!(event, Event::PageWritten { .. }) {
            last = Some(event);
        }
    }
    while store.page_over().is_some() {}
    last
}

/// The disk as a power cut left it: two records in the journal, each with a deletion and a page.
fn sample() -> BTreeMap<u64, [u8; BLOCK]> {
    let mut world = PlainWorld::new(BLOCKS);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    let mut pages = Vec::new();
    for base in [KEPT, DELETED[0], DELETED[1]] {
        let record = ObjectRecord {
            base,
            pages: 140_000,
            ..ObjectRecord::default()
        };
        store.put_object(record).expect("room");
        pages.extend(PAGES.map(|page| dirty(&mut world, &mut store, (base, page), 1)));
    }
    store
        .checkpoint_begin(&mut world, pages, CheckpointKind::Generation)
        .expect("idle");
    assert!(matches!(
        run(&mut world, &mut store),
        Some(Event::CheckpointDone { .. })
    ));
    for (base, page) in DELETED.into_iter().zip(PAGES) {
        store.delete_object(base).expect("it is there");
        let page = dirty(&mut world, &mut store, (KEPT, page), 2);
        store.sync_begin(&mut world, vec![page], &[base]).expect("heap");
        assert!(matches!(run(&mut world, &mut store), Some(Event::SyncDone(_))));
    }
    world.disk
}

/// What a start with a good disk finds: all that was stable, and nothing of what was deleted.
fn is_finished(disk: &BTreeMap<u64, [u8; BLOCK]>, what: &str) {
    let mut world = PlainWorld::new(BLOCKS);
    world.disk.clone_from(disk);
    let (store, _) = Store::mount(&mut world, MountMode::ReadWrite).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    store.dismantle(&mut world);
    let (mut store, report) = Store::mount(&mut world, MountMode::ReadOnly).expect("mount");
    assert_eq!(report.replayed, 0, "{what}");
    let tally = store
        .verify(&mut world, &mut |finding| panic!("{what}: {finding:?}"))
        .expect("memory");
    assert_eq!((tally.objects, tally.pages), (1, PAGES.len() as u64), "{what}");
    for (at, page) in PAGES.into_iter().enumerate() {
        assert_eq!(store.read_page(&mut world, KEPT, page), ReadStart::Reading, "{what}");
        let Some(Event::PageRead { frame, .. }) = run(&mut world, &mut store) else {
            panic!("{what}: page {page}")
        };
        let stamp = if at < DELETED.len() { 2 } else { 1 };
        assert_eq!(*world.bytes(frame), [stamp; BLOCK], "{what}: page {page}");
    }
}

#[test]
fn a_start_that_finishes_deletions_bears_a_failing_disk() {
    let disk = sample();
    let start = |numbers, done_all_the_same| {
        let mut world = PlainWorld::new(BLOCKS);
        world.disk.clone_from(&disk);
        (world.failing_numbers, world.done_all_the_same) = (numbers, done_all_the_same);
        let mounted = Store::mount(&mut world, MountMode::ReadWrite).map(|(store, _)| store.dismantle(&mut world));
        (world, mounted)
    };
    let (good, mounted) = start(0..0, false);
    assert_eq!(mounted, Ok(()));
    is_finished(&good.disk, "a good disk");
    let requests = good.log.len();
    assert!(requests > 60, "{requests} requests");
    let mut refused = 0;
    for first in 0..requests {
        for end in [first + 1, usize::MAX] {
            for done_all_the_same in [false, true] {
                let what = format!("requests {first} to {end}, {:?}, {done_all_the_same}", good.log[first]);
                let (world, mounted) = start(first..end, done_all_the_same);
                match mounted {
                    // The other copy of a superblock will do.
                    Ok(()) => {}
                    Err(MountError::Disk | MountError::Recovery(Failure::Disk)) => refused += 1,
                    Err(MountError::Damaged(..)) if end == usize::MAX && first < 4 => refused += 1,
                    Err(error) => panic!("{what}: {error:?}"),
                }
                assert!(world.log.len() <= requests + 4, "{what}: {} requests", world.log.len());
                is_finished(&world.disk, &what);
            }
        }
    }
    assert!(refused > requests, "{refused} of {requests}");
}

/// The same in a system that runs: a checkpoint that takes the maps of deleted objects down fails at each of its requests, and the next one ends that.
#[test]
fn a_checkpoint_that_finishes_deletions_bears_a_failing_disk() {
    let disk = sample();
    let mut failed = 0;
    for first in 0.. {
        for (end, done_all_the_same) in [(first + 1, false), (first + 1, true), (usize::MAX, false)] {
            let what = format!("requests {first} to {end}, {done_all_the_same}");
            let mut world = PlainWorld::new(BLOCKS);
            world.disk.clone_from(&disk);
            let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
            let again = ObjectRecord {
                base: DELETED[0] << 2,
                pages: 140_000,
                ..ObjectRecord::default()
            };
            let base = again.base;
            store.put_object(again).expect("room");
            let pages = PAGES.map(|page| dirty(&mut world, &mut store, (base, page), 3));
            store
                .checkpoint_begin(&mut world, pages.to_vec(), CheckpointKind::Generation)
                .expect("idle");
            run(&mut world, &mut store);
            // Its map has to be read again.
            while store.shrink(&mut world) != Look::Over {}
            store.delete_object(base).expect("it is there");
            world.log.clear();
            (world.failing_numbers, world.done_all_the_same) = (first..end, done_all_the_same);
            store
                .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation)
                .expect("idle");
            let result = run(&mut world, &mut store);
            let requests = world.log.len();
            if first >= requests {
                assert!(failed > 20, "{failed}");
                return;
            }
            match result {
                Some(Event::CheckpointFailed { reason }) => {
                    assert_eq!(reason, Failure::Disk, "{what}");
                    failed += 1;
                }
                // The second copy of the superblock is not waited for.
                Some(Event::CheckpointDone { .. }) => {}
                other => panic!("{what}: {other:?}"),
            }
            world.failing_numbers = 0..0;
            store
                .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation)
                .expect("idle");
            let result = run(&mut world, &mut store);
            assert!(
                matches!(result, Some(Event::CheckpointDone { .. })),
                "{what}: {result:?}"
            );
            is_finished(&world.disk, &what);
        }
    }
}
