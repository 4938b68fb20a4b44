//! A disk that gives another bit once, or reports an error once, at each read of a running store in turn: what is read again is as it was written, so
//! nothing is lost or blamed.

mod plain;

use plain::PlainWorld;
use std::collections::BTreeMap;
use store::{
    BLOCK, CheckpointKind, DirtyPage, Disk, DiskError, Event, FormatOptions, Frame, Leaves, MountMode, ObjectRecord,
    Operation, PageFlags, Pages, QueueFull, Random, ReadStart, Request, Store,
};

const LARGE: u64 = 1 << 32;
const PAGES: u64 = 600;
/// Pages with contents, below three nodes of the lowest level.
const WRITTEN: [u64; 5] = [0, 1, 2, 300, 599];

/// How a read goes wrong.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Wrong {
    Bit,
    Error,
}

fn sample() -> BTreeMap<u64, [u8; BLOCK]> {
    let mut world = PlainWorld::new(900);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    for number in 0..120 {
        let record = ObjectRecord {
            base: LARGE + (number << 22),
            pages: if number == 0 { PAGES } else { 1 },
            capabilities: vec![(number, 15); if number % 50 == 7 { 128 } else { 3 }],
            ..ObjectRecord::default()
        };
        store.put_object(record).expect("room");
    }
    let dirty = WRITTEN.map(|page| world.dirty(LARGE, page, 1)).to_vec();
    store
        .checkpoint_begin(&mut world, dirty, CheckpointKind::Shutdown)
        .expect("idle");
    while !store.is_idle() {
        store.poll(&mut world);
    }
    world.disk
}

/// Until nothing is under way; pages that were read are full of their byte.
fn finish(store: &mut Store, world: &mut PlainWorld, pages: &BTreeMap<u64, u8>, what: &str) {
    loop {
        match store.poll(world) {
            Some(Event::PageRead { page, frame, .. }) => {
                assert!(
                    world.bytes(frame).iter().all(|byte| *byte == pages[&page]),
                    "{what}: page {page}"
                );
                world.free(frame);
            }
            Some(Event::PageWritten { frame, .. }) => world.free(frame),
            Some(
                event @ (Event::PageBad { .. }
                | Event::Damaged { .. }
                | Event::CheckpointFailed { .. }
                | Event::SyncFailed(..)
                | Event::SyncNeedsCheckpoint(_)),
            ) => panic!("{what}: {event:?}"),
            None if store.is_idle() => return,
            _ => {}
        }
    }
}

/// The large object, held.
fn hold(store: &mut Store, world: &mut PlainWorld, pages: &BTreeMap<u64, u8>, what: &str) {
    for base in [LARGE + (100 << 22), LARGE + (57 << 22), LARGE] {
        while let Err(absent) = store.find_from(base) {
            store
                .read_rows(world, absent)
                .unwrap_or_else(|bad| panic!("{what}: {bad:?}"));
            finish(store, world, pages, what);
        }
    }
    store.hold(LARGE);
}

/// Reads and writes; the number of requests. One of them goes wrong.
fn live(medium: &BTreeMap<u64, [u8; BLOCK]>, number: usize, wrong: Wrong) -> usize {
    let what = format!("request {number}, {wrong:?}");
    let mut world = PlainWorld::new(900);
    world.disk.clone_from(medium);
    let (mut store, _) = Store::mount_in_parts(&mut world, MountMode::ReadWrite, Leaves::AsNeeded(1)).expect("mount");
    let begun = world.log.len();
    match wrong {
        Wrong::Bit => world.misread = Some(begun + number),
        Wrong::Error => world.failing_reads = begun + number..begun + number + 1,
    }
    let mut pages: BTreeMap<u64, u8> = WRITTEN.map(|page| (page, 1)).into();
    hold(&mut store, &mut world, &pages, &what);
    assert!(matches!(store.read_page(&mut world, LARGE, 2), ReadStart::Reading));
    finish(&mut store, &mut world, &pages, &what);
    for (page, stamp) in [(300, 2), (300, 3), (599, 4), (0, 5)] {
        store.reserve(LARGE, page).expect("room");
        let dirty = vec![world.dirty(LARGE, page, stamp)];
        if stamp % 2 == 0 {
            store.sync_begin(&mut world, dirty, &[]).expect("heap");
        } else {
            store
                .checkpoint_begin(&mut world, dirty, CheckpointKind::Generation)
                .expect("idle");
        }
        pages.insert(page, stamp);
        finish(&mut store, &mut world, &pages, &what);
        // Nodes leave memory.
        while store.shrink(&mut world) != store::Look::Over {}
    }
    let requests = world.log.len() - begun;
    (world.misread, world.failing_reads) = (None, 0..0);
    for &page in pages.keys() {
        assert!(
            matches!(store.read_page(&mut world, LARGE, page), ReadStart::Reading),
            "{what}"
        );
        finish(&mut store, &mut world, &pages, &what);
    }
    assert_eq!(store.stats().damaged, 0, "{what}");
    let (reader, _) = Store::mount(&mut world, MountMode::ReadOnly).expect("mount");
    let verified = reader.verify(&mut world, &mut |finding| panic!("{what}: {finding:?}"));
    assert_eq!(verified.expect("memory").pages, WRITTEN.len() as u64);
    requests
}

#[test]
fn what_is_read_wrong_once_is_read_again() {
    let medium = sample();
    for wrong in [Wrong::Bit, Wrong::Error] {
        let requests = live(&medium, usize::MAX / 2, wrong);
        assert!(requests > 30, "{requests}");
        for number in 0..requests {
            live(&medium, number, wrong);
        }
    }
}

/// A block that is never read again takes with it what is below it, and keeps no checkpoint from its end for long. While the disk does nothing at all, nothing is given up.
#[test]
fn a_node_that_is_never_read_is_given_up_at_last() {
    let medium = sample();
    for is_dead in [false, true] {
        let mut world = PlainWorld::new(900);
        world.disk.clone_from(&medium);
        let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
        let begun = world.log.len();
        assert!(matches!(store.read_page(&mut world, LARGE, 300), ReadStart::Reading));
        finish(&mut store, &mut world, &WRITTEN.map(|page| (page, 1)).into(), "healthy");
        // The root of the map, the node of the page, the page.
        let (_, node) = world.log[begun + 1];
        while store.shrink(&mut world) != store::Look::Over {}
        let attempts = 10;
        let mut failed = 0;
        store.reserve(LARGE, 301).expect("room");
        let mut dirty = vec![world.dirty(LARGE, 301, 9)];
        let mut checkpoint = |store: &mut Store, world: &mut PlainWorld| {
            store
                .checkpoint_begin(world, core::mem::take(&mut dirty), CheckpointKind::Generation)
                .expect("idle");
            let mut went_well = true;
            loop {
                match store.poll(world) {
                    Some(Event::CheckpointFailed { .. }) => went_well = false,
                    None if store.is_idle() => break,
                    _ => {}
                }
            }
            while let Some(page) = store.page_over() {
                if went_well {
                    world.free(page.frame);
                } else {
                    dirty.push(page);
                }
            }
            went_well
        };
        if is_dead {
            world.failing_numbers = 0..usize::MAX;
            for _ in 0..attempts {
                assert!(!checkpoint(&mut store, &mut world), "the disk does nothing");
            }
            world.failing_numbers = 0..0;
        } else {
            world.failing = Some((Operation::Read, node..node + 1));
            while failed < attempts && !checkpoint(&mut store, &mut world) {
                failed += 1;
            }
            assert!((1..attempts).contains(&failed), "{failed} failed");
            world.failing = None;
        }
        assert!(checkpoint(&mut store, &mut world));
        assert_eq!(store.stats().damaged, u64::from(!is_dead));
        let (reader, _) = Store::mount(&mut world, MountMode::ReadOnly).expect("mount");
        let mut lost = Vec::new();
        let verified = reader.verify(&mut world, &mut |finding| lost.push(format!("{finding:?}")));
        verified.expect("memory");
        assert_eq!(lost.is_empty(), is_dead, "{lost:?}");
    }
}
