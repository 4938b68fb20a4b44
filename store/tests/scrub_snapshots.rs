//! The scrub of what only snapshots hold: each block is read, what is shared is read once, what is rotten is named with the snapshot that has it, and snapshots that come and go
//! meanwhile blame nothing.

#[allow(dead_code, reason = "others keep what they look at")]
mod kept;
mod plain;
mod scrubbed;

use kept::{Medium, name, on};
use plain::PlainWorld;
use scrubbed::{
    COPIES, LARGE, change_meanwhile, checkpoint, fill, finish, formatted, generation, pass, record, slot, verified,
};
use std::collections::{BTreeMap, BTreeSet};
use store::{
    BLOCK, CheckpointKind, DirtyPage, Disk, DiskError, Event, Frame, Leaves, MountError, MountMode, Operation,
    PageFlags, Pages, QueueFull, Random, Request, Store, Structure,
};

const BLOCKS: u64 = 1600;
const OBJECTS: u64 = 200;

fn keep(store: &mut Store, world: &mut PlainWorld, text: &str) {
    store.keep_snapshot(name(text), 7).expect("room");
    generation(store, world, Vec::new());
    assert_eq!(store.snapshot_outcome(), Some(Ok(())));
}

/// Three snapshots, each of another state, and a state that has changed since.
fn sample() -> Medium {
    let (mut world, mut store) = formatted(BLOCKS);
    fill(&mut store, &mut world, OBJECTS);
    keep(&mut store, &mut world, "first");
    // Some pages, a body, and a row.
    store.put_object(record(slot(47), 2, 127)).expect("room");
    store.delete_object(slot(90)).expect("it is there");
    let dirty = vec![
        world.dirty(LARGE, 1, 3),
        world.dirty(LARGE, 600, 3),
        world.dirty(slot(3), 1, 3),
    ];
    generation(&mut store, &mut world, dirty);
    keep(&mut store, &mut world, "second");
    let dirty = vec![world.dirty(LARGE, 255, 4), world.dirty(slot(3), 1, 4)];
    generation(&mut store, &mut world, dirty);
    keep(&mut store, &mut world, "third");
    store.delete_object(LARGE).expect("it is there");
    for number in 60..75 {
        store.delete_object(slot(number)).expect("it is there");
    }
    store.put_object(record(slot(7), 2, 3)).expect("room");
    let dirty = (100..103).map(|number| world.dirty(slot(number), 0, 5)).collect();
    generation(&mut store, &mut world, dirty);
    generation(&mut store, &mut world, Vec::new());
    world.disk
}

fn mount(medium: &Medium, leaves: Leaves) -> Option<(PlainWorld, Store)> {
    scrubbed::mount(on(medium, BLOCKS), leaves)
}

#[test]
fn all_that_snapshots_hold_is_read_and_pages_once() {
    let medium = sample();
    for leaves in [Leaves::All, Leaves::AsNeeded(2)] {
        let (mut world, mut store) = mount(&medium, leaves).expect("mount");
        let only_held = store.blocks_of_snapshots();
        assert!(only_held > 50, "{only_held}");
        let begun = world.log.len();
        assert_eq!(pass(&mut world, &mut store), []);
        let report = store.scrub_report();
        let mut times: BTreeMap<u64, u64> = BTreeMap::new();
        for &(kind, block) in &world.log[begun..] {
            assert_eq!(kind, Operation::Read);
            *times.entry(block).or_default() += 1;
        }
        assert_eq!(times.len() as u64, report.all, "{leaves:?}");
        for (block, times) in times {
            let bytes = &medium[&block];
            let is_page = bytes.iter().all(|&byte| byte == bytes[0]);
            // A node that two states do not share may be compared with that of the state before, and leaves of the present state come with the bodies of their rows.
            let most = if is_page { 1 } else { 3 };
            assert!(times <= most, "block {block} was read {times} times");
        }
        assert!(
            report.seen + 8 >= report.all && report.seen <= report.all + 4,
            "{report:?}"
        );
        assert_eq!((report.damaged, store.stats().damaged), (0, 0));
    }
}

/// What a check of a snapshot says, or where its table is damaged so that it cannot be mounted.
fn findings(medium: &Medium, text: &str) -> Result<Vec<(Structure, u64, u64, u64)>, u64> {
    let mut world = on(medium, BLOCKS);
    match Store::mount_snapshot(&mut world, &name(text)) {
        Ok(Some((store, _))) => Ok(verified(&store, &mut world)),
        Err(MountError::Damaged(Structure::Table, block)) => Err(block),
        other => panic!("{:?}", other.map(|_| ())),
    }
}

#[test]
fn each_damaged_block_is_named_once_with_the_first_state_that_has_it() {
    let medium = sample();
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    let generations: Vec<(String, u64)> = {
        let (_, store) = mount(&medium, Leaves::All).expect("mount");
        let snapshots = store.snapshots().map(|one| (one.name.to_string(), one.generation));
        snapshots.collect()
    };
    assert_eq!(generations.len(), 3);
    for &block in medium.keys().filter(|&&block| block >= COPIES) {
        let mut bad = medium.clone();
        bad.get_mut(&block).expect("written")[77] ^= 1;
        let Some((mut world, mut store)) = mount(&bad, Leaves::AsNeeded(2)) else {
            continue;
        };
        let of_now = verified(&store, &mut world);
        let named = pass(&mut world, &mut store);
        if of_now.iter().any(|found| found.0 == Structure::Snapshots) {
            assert_eq!(named.len(), 1, "{block}: {named:?}");
            assert_eq!((named[0].0, named[0].1), (Structure::Snapshots, block));
            *kinds.entry("Snapshots".to_string()).or_default() += 1;
            continue;
        }
        let mut wanted: Vec<(Structure, u64, u64, u64, u64)> = of_now
            .iter()
            .map(|&(structure, block, base, page)| (structure, block, base, page, 0))
            .collect();
        for (text, generation) in &generations {
            if !wanted.is_empty() {
                break;
            }
            match findings(&bad, text) {
                Ok(found) => wanted.extend(
                    found
                        .iter()
                        .map(|&(structure, block, base, page)| (structure, block, base, page, *generation)),
                ),
                Err(block) => wanted.push((Structure::Table, block, 0, 0, *generation)),
            }
        }
        assert_eq!(named.len(), wanted.len(), "{block}: {named:?}, {wanted:?}");
        assert!(wanted.len() <= 1, "{wanted:?}");
        for (named, wanted) in named.iter().zip(&wanted) {
            let of = if wanted.4 == 0 { "now" } else { "then" };
            *kinds.entry(format!("{:?} {of}", named.0)).or_default() += 1;
            if wanted.0 == Structure::Table {
                assert_eq!((named.0, named.4), (wanted.0, wanted.4));
                assert!(named.4 == 0 || named.1 == block, "{named:?}, {block}");
            } else {
                assert_eq!(named, wanted);
            }
        }
        assert_eq!(store.scrub_report().damaged, named.len() as u64, "{block}");
    }
    eprintln!("{kinds:?}");
    for (kind, least) in [
        ("Page now", 100),
        ("Page then", 20),
        ("Map then", 8),
        ("Table then", 8),
        ("Snapshots", 10),
    ] {
        assert!(
            kinds.get(kind).is_some_and(|&count| count >= least),
            "{kind}: {kinds:?}"
        );
    }
}

/// Reads of a disk that fails once are no damage, in snapshots neither.
#[test]
fn what_is_read_wrong_once_is_not_blamed() {
    let medium = sample();
    let (mut world, mut store) = mount(&medium, Leaves::AsNeeded(1)).expect("mount");
    for failing in 0..900 {
        let at = world.log.len() + failing % 7;
        world.failing_numbers = at..at + 1;
        store.scrub_begin();
        store.scrub_some(5);
        assert_eq!(finish(&mut store, &mut world), []);
        assert_eq!(store.scrub_report().damaged, 0, "{failing}");
    }
    assert!(store.scrub_report().passes > 1, "{:?}", store.scrub_report());
}

/// The state changes, snapshots are kept and dropped, and their blocks are used anew while a pass looks at them.
#[test]
fn snapshots_that_come_and_go_meanwhile_blame_nothing() {
    let (mut world, mut store) = formatted(BLOCKS);
    fill(&mut store, &mut world, OBJECTS);
    let (mut kept, mut next) = (Vec::new(), 0);
    let mut cut_short = 0;
    for round in 0..1500_u64 {
        let dirty = change_meanwhile(&mut store, &mut world, round, (23, OBJECTS));
        match round % 17 {
            2 if kept.len() < 4 && store.keep_snapshot(name(&format!("s{next}")), 1).is_ok() => {
                kept.push(format!("s{next}"));
                next += 1;
            }
            9 | 13 if !kept.is_empty() => {
                let text = kept.remove((round as usize * 5) % kept.len());
                store.drop_snapshot(name(&text)).expect("it is there");
                cut_short += 1;
            }
            _ => {}
        }
        let kind = if round % 4 == 0 {
            CheckpointKind::Generation
        } else {
            CheckpointKind::Periodic
        };
        assert_eq!(checkpoint(&mut store, &mut world, dirty, kind), [], "{round}");
    }
    let report = store.scrub_report();
    assert!(report.passes > 10 && report.damaged == 0, "{report:?}");
    assert!(next > 50 && cut_short > 50, "{next}, {cut_short}");
    store.scrub_end(&mut world);
    finish(&mut store, &mut world);
    // All frames but those of map nodes and the reserve are back.
    let frames = world.frames_out() as u64;
    assert!(frames <= store.stats().map_nodes + 24, "{frames}");
}

/// A snapshot is dropped while a rotten block of it is on its way: nobody has it any more.
#[test]
fn what_is_rotten_in_a_snapshot_that_is_gone_is_not_named() {
    let medium = sample();
    let page = {
        let (mut world, mut store) = mount(&medium, Leaves::All).expect("mount");
        let (mut bad, mut seen) = (medium.clone(), BTreeSet::new());
        assert_eq!(pass(&mut world, &mut store), []);
        for (&block, bytes) in &medium {
            if bytes.iter().all(|&byte| byte == 4) {
                seen.insert(block);
                bad.get_mut(&block).expect("written")[5] ^= 1;
            }
        }
        *seen.first().expect("pages of the third")
    };
    for dropped in [false, true] {
        let mut world = on(&medium, BLOCKS);
        world.disk.get_mut(&page).expect("written")[5] ^= 1;
        let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
        let (mut named, mut was_held) = (Vec::new(), false);
        store.scrub_begin();
        while store.scrub_report().runs {
            let log = world.log.len();
            world.held = page..page + 1;
            store.scrub_some(1);
            while store.poll(&mut world).is_some() {}
            let is_on_its_way = world.log[log..].iter().any(|&(_, block)| block == page);
            if is_on_its_way && dropped && !was_held {
                was_held = true;
                store.drop_snapshot(name("third")).expect("it is there");
                store
                    .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation)
                    .expect("idle");
                while !matches!(store.poll(&mut world), Some(Event::CheckpointDone { .. })) {}
                assert_eq!(store.snapshot_outcome(), Some(Ok(())));
            }
            world.held = 0..0;
            named.extend(finish(&mut store, &mut world));
        }
        assert_eq!(was_held, dropped);
        assert_eq!(named.len(), usize::from(!dropped), "{named:?}");
        // The walk leaves it at once.
        let reads = world.log.iter().filter(|&&(_, block)| block == page).count();
        assert_eq!(reads, if dropped { 1 } else { 2 });
    }
}

/// A record of the journal has a new page in it, and neither the map nor the table on the disk says so: their old blocks are still in use, and lead to a page that only the
/// snapshot has.
#[test]
fn what_was_given_up_since_the_last_generation_is_looked_at() {
    for (base, page) in [(LARGE, 600), (LARGE, 0), (slot(4), 0), (slot(7), 1)] {
        let (mut world, mut store) = formatted(BLOCKS);
        fill(&mut store, &mut world, OBJECTS);
        let first = vec![world.dirty(base, page, 9)];
        generation(&mut store, &mut world, first);
        keep(&mut store, &mut world, "first");
        generation(&mut store, &mut world, Vec::new());
        let before = store.stats().generation;
        let second = vec![world.dirty(base, page, 10)];
        assert_eq!(checkpoint(&mut store, &mut world, second, CheckpointKind::Periodic), []);
        assert_eq!(store.stats().generation, before, "it is a record");
        let mut pages = world
            .disk
            .iter_mut()
            .filter(|(_, bytes)| bytes.iter().all(|&byte| byte == 9));
        let (&block, bytes) = pages.next().expect("the old page");
        bytes[0] ^= 1;
        assert!(pages.next().is_none());
        let snapshot = store.snapshots().next().expect("one").generation;
        let named = pass(&mut world, &mut store);
        assert_eq!(named, [(Structure::Page, block, base, page, snapshot)], "{base:#x}");
    }
}
