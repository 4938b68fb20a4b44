//! Each kind of finding, made on purpose in a store that is sound: exactly it is found.

use super::*;
use crate::plain::PlainWorld;
use crate::table::Held;
use crate::{CheckpointKind, DirtyPage, Disk, Event, FormatOptions, MountMode, ObjectRecord, Operation, PageFlags};
use alloc::{vec, vec::Vec};

const BLOCKS: u64 = 2000;
/// Three levels of map, though its pages need but two: the reach of a map grows with the pages that are written.
const LARGE: u64 = 1 << 40;
/// One page, no node.
const SMALL: u64 = LARGE + (1 << 30);
/// A record that does not fit into its leaf.
const MANY: u64 = SMALL + (1 << 21);
const PAGES: u64 = 600;
/// Pages of the large object with contents: more than are read at a time, in three nodes, the last of which only the journal knows.
const WRITTEN: [u64; 4] = [0, 200, 270, 599];

fn record(base: u64, pages: u64, capabilities: usize) -> ObjectRecord {
    ObjectRecord {
        base,
        pages,
        capabilities: vec![(1, 15); capabilities],
        ..ObjectRecord::default()
    }
}

fn dirty(world: &mut PlainWorld, base: u64, page: u64) -> DirtyPage {
    world.dirty(base, page, (page % 250) as u8 + 1)
}

/// The disk, and the store on it as a read-only mount finds it: with a checkpoint and one record in the journal.
fn sample() -> (PlainWorld, Store) {
    let mut world = PlainWorld::new(BLOCKS);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    for record in [record(LARGE, PAGES, 0), record(SMALL, 1, 0), record(MANY, 1, 128)] {
        store.put_object(record).expect("room");
    }
    store.set_page_flags(LARGE, 500, PageFlags::EXECUTE).expect("room");
    let mut pages = vec![dirty(&mut world, SMALL, 0), dirty(&mut world, LARGE, WRITTEN[0])];
    pages.extend((WRITTEN[1]..WRITTEN[2]).map(|page| dirty(&mut world, LARGE, page)));
    store
        .checkpoint_begin(&mut world, pages, CheckpointKind::Generation)
        .expect("idle");
    while !matches!(store.poll(&mut world), Some(Event::CheckpointDone { .. })) {}
    let page = dirty(&mut world, LARGE, WRITTEN[3]);
    store.sync_begin(&mut world, vec![page], &[]).expect("heap");
    while !matches!(store.poll(&mut world), Some(Event::SyncDone(_))) {}
    let mut other = PlainWorld::new(BLOCKS);
    other.disk.clone_from(&world.disk);
    let (store, _) = Store::mount(&mut other, MountMode::ReadOnly).expect("mount");
    (other, store)
}

fn verify(world: &mut PlainWorld, store: &Store) -> (Verification, Vec<Finding>) {
    let mut findings = Vec::new();
    let tally = store
        .verify(world, &mut |finding| findings.push(finding))
        .expect("memory");
    let wrong = findings.iter().filter(|found| !matches!(found, Finding::Lost { .. }));
    assert_eq!(tally.findings, wrong.count() as u64);
    (tally, findings)
}

/// The findings after this harm was done to the sample.
fn found(harm: impl FnOnce(&mut PlainWorld, &mut Store)) -> Vec<Finding> {
    let (mut world, mut store) = sample();
    harm(&mut world, &mut store);
    verify(&mut world, &store).1
}

fn small(store: &Store) -> Entry {
    store.table.get(SMALL).expect("a row").map.entry
}

fn put(store: &mut Store, base: u64, levels: u8, block: u64) {
    let entry = Entry { block, ..Entry::NONE };
    store.table.set_map(base, MapRoot { levels, entry });
}

fn mark(store: &mut Store, block: u64) {
    store.allocation.flip(block);
}

#[test]
fn a_sound_store_is_counted() {
    let (mut world, store) = sample();
    let (tally, findings) = verify(&mut world, &store);
    assert_eq!(findings, []);
    let (objects, pages) = (3, 1 + 1 + (WRITTEN[2] - WRITTEN[1]) + 1);
    // Beside the pages a leaf of the table, the blocks behind it, and three nodes of the map. The fourth is in memory alone.
    assert_eq!((tally.objects, tally.pages), (objects, pages));
    let overflow = store.table.get(MANY).expect("a row").overflow.len() as u64;
    assert_eq!(tally.blocks, pages + 1 + overflow + 3);
}

#[test]
fn the_bitmap_is_compared() {
    let (_, store) = sample();
    let block = small(&store).block;
    assert_eq!(found(|_, store| mark(store, block)), [Finding::MarkedFree(block)]);
    for unused in [BLOCKS - 1, BLOCKS - 200] {
        assert_eq!(found(|_, store| mark(store, unused)), [Finding::Leaked(unused)]);
    }
    // The blocks of a row that is gone are free with the next checkpoint, those of its map are lost unless it is noted.
    let remove = |store: &mut Store, base| {
        store.table.expect_removal(0).expect("heap");
        store.table.remove(base).expect("a row")
    };
    assert_eq!(found(|_, store| _ = remove(store, MANY)), []);
    assert_eq!(found(|_, store| _ = remove(store, SMALL)), [Finding::Leaked(block)]);
    let noted = |_: &mut PlainWorld, store: &mut Store| {
        let map = remove(store, SMALL);
        let _ = store.doomed.insert(SMALL, map);
    };
    assert_eq!(found(noted), []);
}

#[test]
fn a_block_with_two_ways_to_it_or_outside_is_found() {
    let (_, store) = sample();
    let (entry, data) = (small(&store), store.geometry.data_start());
    let twice = |_: &mut PlainWorld, store: &mut Store| {
        store.table.put(record(MANY + (1 << 21), 1, 0), Held::No).expect("heap");
        store.table.set_map(MANY + (1 << 21), MapRoot { levels: 0, entry });
    };
    assert_eq!(found(twice), [Finding::SharedBlock(entry.block)]);
    for outside in [1, data - 1, BLOCKS] {
        let wanted = [Finding::SharedBlock(outside), Finding::Leaked(entry.block)];
        assert_eq!(found(|_, store| put(store, SMALL, 0, outside)), wanted);
        let damaged = Finding::Damaged {
            structure: Structure::Map,
            block: outside,
            base: SMALL,
            page: 0,
            end: FANOUT,
            fault: Fault::Rotten,
        };
        assert_eq!(
            found(|_, store| put(store, SMALL, 1, outside)),
            [Finding::SharedBlock(outside), damaged, Finding::Leaked(entry.block)]
        );
    }
}

/// Nodes all of whose entries lead to the same node below: a look at all paths would never end.
#[test]
fn nodes_with_many_parents_are_gone_through_once() {
    let (mut world, mut store) = sample();
    let mut entry = small(&store);
    for level in 1..=6 {
        let block = BLOCKS - level;
        let mut bytes = [0; BLOCK];
        for slot in 0..FANOUT as usize {
            bytes[16 * slot..][..8].copy_from_slice(&entry.block.to_le_bytes());
            bytes[16 * slot + 8..][..8].copy_from_slice(&entry.checksum.to_le_bytes());
        }
        world.disk.insert(block, bytes);
        let checksum = store.checksums.of(block, &bytes);
        entry = Entry {
            block,
            checksum,
            ..Entry::NONE
        };
        mark(&mut store, block);
    }
    store.table.set_map(SMALL, MapRoot { levels: 6, entry });
    let mut shared = 0;
    let tally = store.verify(&mut world, &mut |finding| {
        shared += u64::from(matches!(finding, Finding::SharedBlock(_)));
        assert!(shared <= 6 * (FANOUT - 1), "nodes are gone through again");
    });
    assert!(tally.is_ok());
    assert_eq!(shared, 6 * (FANOUT - 1));
}

#[test]
fn lost_maps_and_pages_beyond_the_end_are_found() {
    let (_, store) = sample();
    let leaked = Finding::Leaked(small(&store).block);
    for levels in [0, 1] {
        let lost = Finding::Lost {
            base: SMALL,
            page: 0,
            end: reach(levels),
        };
        assert_eq!(found(|_, store| put(store, SMALL, levels, LOST)), [lost, leaked]);
    }
    let beyond = |page| Finding::BeyondEnd { base: LARGE, page };
    let cut = |pages| {
        found(|_, store| {
            store.table.put(record(LARGE, pages, 0), Held::No).expect("heap");
        })
    };
    assert_eq!(cut(600), []);
    assert_eq!(cut(599), [beyond(599)]);
    assert_eq!(cut(269), [beyond(269), beyond(599)]);
    // Pages that are cut off are there until the next checkpoint is written.
    let noted = found(|_, store| {
        store.table.put(record(LARGE, 269, 0), Held::No).expect("heap");
        store.note_zeroed(LARGE, 269, PAGES).expect("heap");
    });
    assert_eq!(noted, []);
}

#[test]
fn rows_in_disorder_are_found() {
    let overlap = found(|_, store| store.table.put(record(LARGE + 4096, 1, 0), Held::No).expect("heap"));
    assert_eq!(overlap, [Finding::TableOrder]);
}

/// Every block that is reached, damaged in turn, is one finding that names it.
#[test]
fn each_damaged_block_is_named() {
    let (mut world, store) = sample();
    let mut names = Vec::new();
    for block in store.geometry.data_start()..BLOCKS {
        let Some(bytes) = world.disk.get(&block).copied() else {
            continue;
        };
        let mut bad = bytes;
        bad[77] ^= 1;
        world.disk.insert(block, bad);
        let (_, findings) = verify(&mut world, &store);
        world.disk.insert(block, bytes);
        for finding in findings {
            match finding {
                Finding::Damaged {
                    structure,
                    block: named,
                    base,
                    page,
                    fault: Fault::Rotten,
                    ..
                } if named == block => names.push((structure, base, page)),
                // Nobody knows what stands below a damaged node.
                Finding::Leaked(_) if matches!(names.last(), Some((Structure::Map, ..))) => {}
                other => panic!("{other:?} for {block}"),
            }
        }
    }
    let of = |wanted| {
        names
            .iter()
            .filter(move |name| name.0 == wanted)
            .map(|name| (name.1, name.2))
    };
    let mut pages: Vec<_> = of(Structure::Page).collect();
    pages.sort_unstable();
    let mut wanted = vec![(LARGE, 0)];
    wanted.extend((WRITTEN[1]..WRITTEN[2]).map(|page| (LARGE, page)));
    wanted.extend([(LARGE, 599), (SMALL, 0)]);
    assert_eq!(pages, wanted);
    let mut nodes: Vec<_> = of(Structure::Map).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [(LARGE, 0), (LARGE, 0), (LARGE, 256)]);
    assert!(of(Structure::Table).all(|name| name == (0, 0)) && of(Structure::Table).count() >= 2);
}

/// A disk that cannot be read is damaged, too; without memory nothing is said.
#[test]
fn what_cannot_be_read_is_damaged() {
    let (mut world, store) = sample();
    let block = small(&store).block;
    world.failing = Some((Operation::Read, block..block + 1));
    let (tally, findings) = verify(&mut world, &store);
    assert!(matches!(
        findings[..],
        [Finding::Damaged {
            structure: Structure::Page,
            base: SMALL,
            fault: Fault::Unread,
            ..
        }]
    ));
    assert_eq!((tally.findings, world.blocks()), (1, BLOCKS));
}
