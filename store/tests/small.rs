//! Small checkpoints are records of the journal; what a record cannot hold, or what is to be done with, makes a generation.

mod plain;

use plain::PlainWorld;
use store::{
    BLOCK, BadPage, CheckpointKind, DirtyPage, Disk, DiskError, Event, Failure, FormatOptions, Frame, MountMode,
    ObjectRecord, Operation, PageFlags, PageLookup, Pages, QueueFull, Random, ReadStart, Request, Store, TailReason,
};

const BLOCKS: u64 = 40_000;
const BASE: u64 = 1 << 32;
/// Pages of the object: so many that its map has two levels.
const PAGES: u64 = 100_000;
const JOURNAL: u32 = 200;

fn record(base: u64, pages: u64) -> ObjectRecord {
    ObjectRecord {
        base,
        pages,
        ..ObjectRecord::default()
    }
}

/// A store with one object, all of it stable.
fn sample() -> (PlainWorld, Store) {
    let mut world = PlainWorld::new(BLOCKS);
    let options = FormatOptions {
        journal_blocks: Some(JOURNAL),
        ..FormatOptions::default()
    };
    Store::format(&mut world, &options).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    store.put_object(record(BASE, PAGES)).expect("put");
    let all = [0, PAGES - 1].map(|page| dirty(&mut world, &mut store, page, 1));
    assert!(checkpoint(&mut world, &mut store, all.to_vec(), CheckpointKind::Generation).makes_generation);
    (world, store)
}

fn dirty(world: &mut PlainWorld, store: &mut Store, page: u64, stamp: u8) -> DirtyPage {
    store.reserve(BASE, page).expect("room");
    world.dirty(BASE, page, stamp)
}

/// The work of a checkpoint.
#[derive(PartialEq, Debug)]
struct Did {
    makes_generation: bool,
    writes: usize,
    flushes: usize,
}

fn drive(world: &mut PlainWorld, store: &mut Store) -> Result<(), Failure> {
    let mut over = None;
    while let Some(event) = store.poll(world) {
        match event {
            Event::CheckpointDone { .. } => over = Some(Ok(())),
            Event::CheckpointFailed { reason } => over = Some(Err(reason)),
            _ => {}
        }
    }
    while store.page_over().is_some() {}
    over.expect("it ends")
}

fn checkpoint(world: &mut PlainWorld, store: &mut Store, pages: Vec<DirtyPage>, kind: CheckpointKind) -> Did {
    let generation = store.stats().generation;
    world.log.clear();
    store.checkpoint_begin(world, pages, kind).expect("idle");
    drive(world, store).expect("it is durable");
    let count = |kind| world.log.iter().filter(|&&(operation, _)| operation == kind).count();
    Did {
        makes_generation: store.stats().generation > generation,
        writes: count(Operation::Write),
        flushes: count(Operation::Flush),
    }
}

fn periodic(world: &mut PlainWorld, store: &mut Store, pages: &[(u64, u8)]) -> Did {
    let pages = pages.iter().map(|&(page, stamp)| dirty(world, store, page, stamp));
    let pages = pages.collect();
    checkpoint(world, store, pages, CheckpointKind::Periodic)
}

/// The byte that a page is full of.
fn stamp(world: &mut PlainWorld, store: &mut Store, page: u64) -> u8 {
    match store.read_page(world, BASE, page) {
        ReadStart::Zero(_) => 0,
        ReadStart::NoMemory => panic!("no heap"),
        ReadStart::Reading => match store.poll(world) {
            Some(Event::PageRead { frame, .. }) => {
                let byte = world.bytes(frame)[0];
                world.free(frame);
                byte
            }
            other => panic!("{other:?}"),
        },
    }
}

/// The store behind a power cut, and how many records its mount replayed.
fn cut(world: &mut PlainWorld) -> (Store, u32) {
    let (store, report) = Store::mount(world, MountMode::ReadWrite).expect("mount");
    assert_eq!((report.losses.len(), report.tail), (0, None));
    (store, report.replayed)
}

/// Changes a bit of the block that is full of a byte.
fn rot(world: &mut PlainWorld, byte: u8) {
    let block = world.disk.values_mut().find(|block| **block == [byte; BLOCK]);
    block.expect("it is on the disk")[77] ^= 1;
}

#[test]
fn a_small_checkpoint_is_its_pages_a_record_and_a_flush() {
    let (mut world, mut store) = sample();
    // Rows, limits and what reads as zero are in the record, too.
    store.put_object(record(BASE + (1 << 40), 7)).expect("put");
    store.set_page_flags(BASE, 70_000, PageFlags::EXECUTE).expect("limits");
    store.discard_pages(BASE, PAGES - 1, PAGES, &[]).expect("discard");
    let pages: Vec<(u64, u8)> = (0..20).map(|at| (at * 500, at as u8 + 2)).collect();
    let did = periodic(&mut world, &mut store, &pages);
    let small = Did {
        makes_generation: false,
        writes: pages.len() + 1,
        flushes: 1,
    };
    assert_eq!(did, small);
    // A second one stands behind it.
    assert_eq!(periodic(&mut world, &mut store, &[(3, 99)]), Did { writes: 2, ..small });
    let (mut store, replayed) = cut(&mut world);
    assert_eq!(replayed, 2);
    for &(page, byte) in &pages {
        assert_eq!(stamp(&mut world, &mut store, page), byte, "page {page}");
    }
    assert_eq!(stamp(&mut world, &mut store, 3), 99);
    assert_eq!(stamp(&mut world, &mut store, PAGES - 1), 0);
    assert_eq!(
        store.page_flags(&world, BASE, 70_000),
        PageLookup::Zero(PageFlags::EXECUTE)
    );
    assert_eq!(store.object(BASE + (1 << 40)).map(|row| row.pages), Some(7));
    assert_eq!(
        store
            .verify(&mut world, &mut |finding| panic!("{finding:?}"))
            .map(|tally| tally.findings),
        Ok(0)
    );
}

#[test]
fn maps_are_written_once_for_many_records() {
    let (mut world, mut store) = sample();
    let mut small = 0;
    let first = loop {
        let did = periodic(&mut world, &mut store, &[(small * 7, 5)]);
        if did.makes_generation {
            break did;
        }
        small += 1;
    };
    // A record is a block of the journal, and is begun as long as there is room for two blocks of rows.
    assert_eq!(small, u64::from(JOURNAL) - 2);
    assert!(first.writes < 40, "{first:?}");
    assert!(
        !periodic(&mut world, &mut store, &[(1, 6)]).makes_generation,
        "the journal is empty again"
    );
}

#[test]
fn what_is_not_small_makes_a_generation() {
    let kinds: [fn(&mut PlainWorld, &mut Store) -> Vec<DirtyPage>; 4] = [
        // Nothing has changed: blocks that nothing needs come back.
        |_, _| Vec::new(),
        // An object is gone: its address is to be free behind it.
        |_, store| {
            store.put_object(record(BASE + (1 << 40), 1)).expect("put");
            store.delete_object(BASE + (1 << 40)).expect("delete");
            Vec::new()
        },
        |world, store| (0..1001).map(|page| dirty(world, store, page, 3)).collect(),
        // More map nodes than are to stay unwritten.
        |world, store| (0..300).map(|at| dirty(world, store, at * 300, 3)).collect(),
    ];
    for (number, prepare) in kinds.into_iter().enumerate() {
        let (mut world, mut store) = sample();
        store.keep_unwritten(290);
        let pages = prepare(&mut world, &mut store);
        let count = pages.len();
        assert!(
            checkpoint(&mut world, &mut store, pages, CheckpointKind::Periodic).makes_generation,
            "{number}"
        );
        let few = [dirty(&mut world, &mut store, 1, 4)].to_vec();
        let did = checkpoint(&mut world, &mut store, few, CheckpointKind::Periodic);
        assert!(!did.makes_generation, "{number}: behind {count} pages one is few again");
        for kind in [CheckpointKind::Generation, CheckpointKind::Shutdown] {
            let few = [dirty(&mut world, &mut store, 1, 4)].to_vec();
            assert!(checkpoint(&mut world, &mut store, few, kind).makes_generation);
        }
    }
}

#[test]
fn a_row_that_is_too_long_for_the_record_makes_a_generation() {
    let (mut world, mut store) = sample();
    for at in 1..13 {
        let mut long = record(BASE + (at << 40), 1);
        long.capabilities = (0..128).map(|password| (password, 15)).collect();
        store.put_object(long).expect("put");
    }
    assert!(periodic(&mut world, &mut store, &[(5, 5)]).makes_generation);
    let (mut store, _) = cut(&mut world);
    assert_eq!((stamp(&mut world, &mut store, 5), store.objects().count()), (5, 13));
}

#[test]
fn a_record_that_fails_is_followed_by_a_generation() {
    for (operation, blocks) in [
        (Operation::Write, 4..4 + 2 * u64::from(JOURNAL)),
        (Operation::Flush, 0..1),
    ] {
        let (mut world, mut store) = sample();
        world.failing = Some((operation, blocks));
        let page = dirty(&mut world, &mut store, 8, 8);
        store
            .checkpoint_begin(&mut world, vec![page], CheckpointKind::Periodic)
            .expect("idle");
        assert_eq!(drive(&mut world, &mut store), Err(Failure::Disk));
        world.failing = None;
        // It may be on the disk all the same: nothing may stand behind it.
        let page = world.dirty(BASE, 8, 9);
        assert!(checkpoint(&mut world, &mut store, vec![page], CheckpointKind::Periodic).makes_generation);
        let (mut store, replayed) = cut(&mut world);
        assert_eq!((stamp(&mut world, &mut store, 8), replayed), (9, 0));
    }
}

#[test]
fn a_sync_and_a_small_checkpoint_that_wait_for_each_other_stand_in_one_chain() {
    let (mut world, mut store) = sample();
    let page = dirty(&mut world, &mut store, 8, 8);
    store.sync_begin(&mut world, vec![page], &[BASE]).expect("heap");
    let page = dirty(&mut world, &mut store, 9, 9);
    store
        .checkpoint_begin(&mut world, vec![page], CheckpointKind::Periodic)
        .expect("idle");
    let page = dirty(&mut world, &mut store, 10, 10);
    store.sync_begin(&mut world, vec![page], &[BASE]).expect("heap");
    drive(&mut world, &mut store).expect("it is durable");
    let (mut store, replayed) = cut(&mut world);
    assert_eq!(replayed, 3);
    assert_eq!([8, 9, 10].map(|page| stamp(&mut world, &mut store, page)), [8, 9, 10]);
}

#[test]
fn a_page_that_rots_is_told_by_name_once_its_record_is_sealed() {
    let few = [(8, 28), (9, 29), (10, 30)];
    // The last record: it cannot be told from one that the power cut off, and the state before it counts.
    let (mut world, mut store) = sample();
    periodic(&mut world, &mut store, &few);
    rot(&mut world, 29);
    let (mut store, report) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    assert_eq!(
        (report.replayed, report.tail.map(|tail| tail.reason)),
        (0, Some(TailReason::Data))
    );
    assert_eq!(stamp(&mut world, &mut store, 8), 0);

    let (mut world, mut store) = sample();
    periodic(&mut world, &mut store, &few);
    world.log.clear();
    store.seal(&mut world);
    while store.poll(&mut world).is_some() {}
    assert_eq!(world.log.len(), 2, "a block and a flush");
    world.log.clear();
    store.seal(&mut world);
    while store.poll(&mut world).is_some() {}
    assert_eq!(world.log, [], "it is sealed");
    rot(&mut world, 29);
    let (mut store, replayed) = cut(&mut world);
    assert_eq!(replayed, 2);
    assert_eq!([8, 10].map(|page| stamp(&mut world, &mut store, page)), [28, 30]);
    assert_eq!(store.read_page(&mut world, BASE, 9), ReadStart::Reading);
    let reason = BadPage::Checksum;
    let (base, page) = (BASE, 9);
    assert_eq!(store.poll(&mut world), Some(Event::PageBad { base, page, reason }));
}
