//! The scrub: a pass looks at every block that a check reaches, names the damaged one and no other, and blames nothing that
//! changes while it looks.

mod plain;
mod scrubbed;

use plain::PlainWorld;
use scrubbed::{COPIES, LARGE, WRITTEN, change_meanwhile, checkpoint, fill, finish, formatted, pass, slot, verified};
use std::collections::BTreeMap;
use store::{
    BLOCK, CheckpointKind, DirtyPage, Disk, DiskError, Event, Frame, Leaves, MountMode, Operation, PageFlags, Pages,
    QueueFull, Random, Request, Store, Structure,
};

const BLOCKS: u64 = 900;
const OBJECTS: u64 = 130;

type Medium = BTreeMap<u64, [u8; BLOCK]>;

fn sample() -> Medium {
    let (mut world, mut store) = formatted(BLOCKS);
    fill(&mut store, &mut world, OBJECTS);
    world.disk
}

fn mount(medium: &Medium, leaves: Leaves) -> Option<(PlainWorld, Store)> {
    let mut world = PlainWorld::new(BLOCKS);
    world.disk.clone_from(medium);
    scrubbed::mount(world, leaves)
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
            let wanted = verified(&store, &mut world);
            let named = pass(&mut world, &mut store);
            assert_eq!(named.len(), wanted.len(), "{block}: {named:?}, {wanted:?}");
            for (&(structure, block, base, page, snapshot), wanted) in named.iter().zip(&wanted) {
                let named = (structure, block, base, page);
                assert_eq!(snapshot, 0);
                *kinds.entry(format!("{:?}", named.0)).or_insert(0) += 1;
                assert_eq!(named.0, wanted.0);
                if named.0 == Structure::Table {
                    continue;
                }
                assert_eq!(named, *wanted);
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
        let dirty = change_meanwhile(&mut store, &mut world, round, (9, OBJECTS));
        let kind = if round % 4 == 0 {
            CheckpointKind::Generation
        } else {
            CheckpointKind::Periodic
        };
        let named = checkpoint(&mut store, &mut world, dirty, kind);
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
        assert_eq!(named, [(Structure::Page, block, LARGE, page, 0)]);
        assert_eq!(store.scrub_report().damaged, 1);
    }
}
