//! The scrub: a pass looks at every block that a check reaches, names the damaged one and no other, and blames nothing that
//! changes while it looks.

mod plain;

use plain::PlainWorld;
use std::collections::BTreeMap;
use store::{
    BLOCK, CheckpointKind, DirtyPage, Disk, DiskError, Event, Finding, FormatOptions, Frame, Leaves, MountMode,
    ObjectRecord, Operation, PageFlags, Pages, QueueFull, Random, Request, Store, Structure,
};

const BLOCKS: u64 = 900;
const LARGE: u64 = 1 << 32;
const PAGES: u64 = 70_000;
const OBJECTS: u64 = 130;
/// Pages of the large object with contents: three levels, several nodes.
const WRITTEN: [u64; 6] = [0, 1, 255, 256, 600, 69_999];

/// Copies of superblocks, which a pass looks at, too.
const COPIES: u64 = 4;

type Medium = BTreeMap<u64, [u8; BLOCK]>;
type Named = (Structure, u64, u64, u64);

fn slot(number: u64) -> u64 {
    LARGE + ((number + 200) << 21)
}

fn record(base: u64, pages: u64, capabilities: usize) -> ObjectRecord {
    ObjectRecord {
        base,
        pages,
        capabilities: (0..capabilities as u64).map(|at| (at, 15)).collect(),
        ..ObjectRecord::default()
    }
}

fn finish(store: &mut Store, world: &mut PlainWorld) -> Vec<Named> {
    let mut named = Vec::new();
    loop {
        match store.poll(world) {
            Some(Event::PageWritten { frame, .. }) => world.free(frame),
            Some(Event::Damaged {
                structure,
                block,
                base,
                page,
                snapshot,
            }) => {
                assert_eq!(snapshot, 0);
                named.push((structure, block, base, page));
            }
            Some(Event::CheckpointFailed { reason }) => panic!("{reason:?}"),
            None if store.is_idle() => return named,
            Some(_) | None => {}
        }
    }
}

fn checkpoint(store: &mut Store, world: &mut PlainWorld, dirty: Vec<DirtyPage>) -> Vec<Named> {
    store
        .checkpoint_begin(world, dirty, CheckpointKind::Generation)
        .expect("idle");
    finish(store, world)
}

fn sample() -> Medium {
    let mut world = PlainWorld::new(BLOCKS);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    store.put_object(record(LARGE, PAGES, 2)).expect("room");
    for number in 0..OBJECTS {
        let capabilities = if number % 40 == 7 { 128 } else { 3 };
        store.put_object(record(slot(number), 2, capabilities)).expect("room");
    }
    let mut dirty: Vec<_> = WRITTEN.into_iter().map(|page| world.dirty(LARGE, page, 1)).collect();
    dirty.extend((0..OBJECTS).map(|number| world.dirty(slot(number), number % 2, 2)));
    checkpoint(&mut store, &mut world, dirty);
    world.disk
}

fn mount(medium: &Medium, leaves: Leaves) -> Option<(PlainWorld, Store)> {
    let mut world = PlainWorld::new(BLOCKS);
    world.disk.clone_from(medium);
    let (store, _) = Store::mount_in_parts(&mut world, MountMode::ReadOnly, leaves).ok()?;
    Some((world, store))
}

/// Runs a pass with a few blocks at a time; tells what it named.
fn pass(world: &mut PlainWorld, store: &mut Store) -> Vec<Named> {
    let passes = store.scrub_report().passes;
    store.scrub_begin();
    let mut named = Vec::new();
    for _ in 0..10_000 {
        if store.scrub_report().passes > passes {
            return named;
        }
        let before = world.log.len();
        store.scrub_some(3);
        named.extend(finish(store, world));
        // Each is read twice at most, and a leaf with the bodies of its rows.
        assert!(world.log.len() - before <= 12, "{} requests", world.log.len() - before);
    }
    panic!("the pass does not end: {:?}", store.scrub_report());
}

#[test]
fn a_pass_looks_at_everything_once() {
    let medium = sample();
    for leaves in [Leaves::All, Leaves::AsNeeded(2), Leaves::AsNeeded(1)] {
        let (mut world, mut store) = mount(&medium, leaves).expect("mount");
        let mut reached = COPIES;
        let tally = store
            .verify(&mut world, &mut |finding| panic!("{finding:?}"))
            .expect("memory");
        reached += tally.blocks;
        let begun = world.log.len();
        assert_eq!(pass(&mut world, &mut store), []);
        let report = store.scrub_report();
        assert!(!report.runs && report.damaged == 0 && report.passes == 1, "{report:?}");
        // Bodies of rows come with their leaves where these are not in memory.
        assert!(
            report.seen + 8 >= reached && report.seen <= reached + 4,
            "{report:?} of {reached}"
        );
        assert_eq!(report.all, reached);
        let read: std::collections::BTreeSet<u64> = world.log[begun..].iter().map(|&(_, block)| block).collect();
        assert_eq!(read.len() as u64, reached, "{leaves:?}");
        assert!(world.log[begun..].iter().all(|&(kind, _)| kind == Operation::Read));
        assert_eq!(store.stats().damaged, 0);
    }
}

#[test]
fn each_damaged_block_is_named_and_no_other() {
    let medium = sample();
    let mut kinds = BTreeMap::new();
    for &block in medium.keys() {
        let mut bad = medium.clone();
        bad.get_mut(&block).expect("written")[77] ^= 1;
        for leaves in [Leaves::All, Leaves::AsNeeded(2)] {
            let Some((mut world, mut store)) = mount(&bad, leaves) else {
                continue;
            };
            let mut wanted = Vec::new();
            let told = store.verify(&mut world, &mut |finding| {
                if let Finding::Damaged {
                    structure,
                    block,
                    base,
                    page,
                    ..
                } = finding
                {
                    wanted.push((structure, block, base, page));
                }
            });
            told.expect("memory");
            let named = pass(&mut world, &mut store);
            assert_eq!(named.len(), wanted.len(), "{block}: {named:?}, {wanted:?}");
            for (named, wanted) in named.iter().zip(&wanted) {
                *kinds.entry(format!("{:?}", named.0)).or_insert(0) += 1;
                assert_eq!(named.0, wanted.0);
                if named.0 == Structure::Table {
                    continue;
                }
                assert_eq!(named, wanted);
            }
            assert_eq!(store.scrub_report().damaged, named.len() as u64, "{block}");
        }
    }
    assert!(
        kinds["Page"] >= 2 * (6 + OBJECTS) && kinds["Map"] >= 10 && kinds["Table"] >= 6,
        "{kinds:?}"
    );
}

/// Reads of a disk that fails once are no damage.
#[test]
fn what_is_read_wrong_once_is_not_blamed() {
    let medium = sample();
    for leaves in [Leaves::All, Leaves::AsNeeded(1)] {
        let (mut world, mut store) = mount(&medium, leaves).expect("mount");
        for failing in 0..400 {
            let at = world.log.len() + failing % 7;
            world.failing_numbers = at..at + 1;
            store.scrub_begin();
            store.scrub_some(5);
            assert_eq!(finish(&mut store, &mut world), []);
            assert_eq!(store.scrub_report().damaged, 0, "{leaves:?}, {failing}");
        }
        assert!(store.scrub_report().passes > 1, "{:?}", store.scrub_report());
    }
}

/// Everything changes again and again while it is looked at, and blocks are used anew.
#[test]
fn what_changes_meanwhile_is_not_blamed() {
    let mut world = PlainWorld::new(BLOCKS);
    world.disk = sample();
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    for round in 0..400_u64 {
        store.scrub_begin();
        // A block that is on its way stays there until all has changed.
        world.held = if round % 3 == 0 { 0..BLOCKS } else { 0..0 };
        store.scrub_some(1 + round % 9);
        while store.poll(&mut world).is_some() {}
        world.held = 0..0;
        let number = round * 7 % OBJECTS;
        match round % 11 {
            4 => drop(store.discard_pages(slot(number), 0, 2, &[])),
            5 if store.delete_object(slot(number)).is_ok() => {}
            6 => drop(store.put_object(record(slot(number), 2, 3))),
            _ => {}
        }
        let page = WRITTEN[(round % 6) as usize];
        let mut dirty = vec![world.dirty(LARGE, page, round as u8)];
        if store.object(slot(number)).is_some() {
            dirty.push(world.dirty(slot(number), 1, round as u8));
        }
        let named = if round % 4 == 0 {
            checkpoint(&mut store, &mut world, dirty)
        } else {
            store
                .checkpoint_begin(&mut world, dirty, CheckpointKind::Periodic)
                .expect("idle");
            finish(&mut store, &mut world)
        };
        assert_eq!(named, [], "{round}");
    }
    let report = store.scrub_report();
    assert!(report.passes > 3 && report.damaged == 0, "{report:?}");
    store.scrub_end(&mut world);
    assert!(!store.scrub_report().runs);
}

/// Rows leave memory while a pass is at the pages of their object, because others are looked for.
#[test]
fn an_object_whose_row_has_left_memory_meanwhile_is_looked_at_to_its_end() {
    let medium = sample();
    let (mut world, mut store) = mount(&medium, Leaves::All).expect("mount");
    let mut pages = BTreeMap::new();
    for page in WRITTEN {
        let begun = world.log.len();
        let _ = store.read_page(&mut world, LARGE, page);
        while let Some(event) = store.poll(&mut world) {
            if let Event::PageRead { frame, .. } = event {
                world.free(frame);
            }
        }
        let (_, block) = world.log[begun..].last().expect("it is read");
        pages.insert(page, *block);
    }
    for (&page, &block) in &pages {
        let mut bad = medium.clone();
        bad.get_mut(&block).expect("written")[77] ^= 1;
        let (mut world, mut store) = mount(&bad, Leaves::AsNeeded(1)).expect("mount");
        store.scrub_begin();
        let mut named = Vec::new();
        for round in 0..20_000_u64 {
            if store.scrub_report().passes > 0 {
                break;
            }
            store.scrub_some(1 + round % 2);
            named.extend(finish(&mut store, &mut world));
            if let Err(absent) = store.find_containing(slot(round * 37 % OBJECTS)) {
                store.read_rows(&mut world, absent).expect("sound");
            }
            named.extend(finish(&mut store, &mut world));
        }
        assert_eq!(store.scrub_report().passes, 1, "the pass ends");
        assert_eq!(named, [(Structure::Page, block, LARGE, page)]);
        assert_eq!(store.scrub_report().damaged, 1);
    }
}
