//! A sync that is begun while a checkpoint makes a generation goes ahead of it.

mod plain;

use plain::PlainWorld;
use std::ops::Range;
use store::{
    BLOCK, BadPage, Budget, CheckpointKind, DirtyPage, Disk, DiskError, Event, FormatOptions, Frame, MountMode,
    ObjectRecord, Operation, PageFlags, Pages, QueueFull, Random, ReadStart, Request, Store, Ticket,
};

const BLOCKS: u64 = 40_000;
const JOURNAL: u64 = 40;
/// The blocks of the bitmaps: a checkpoint waits before its superblock as long as they are held.
const BITMAPS: Range<u64> = 4 + 2 * JOURNAL..4 + 2 * JOURNAL + 9;
/// The superblocks: it waits behind its superblock.
const SUPERBLOCKS: Range<u64> = 0..4;
const BASE: u64 = 1 << 32;
const OTHER: u64 = 1 << 33;

fn record(base: u64, pages: u64) -> ObjectRecord {
    ObjectRecord {
        base,
        pages,
        ..ObjectRecord::default()
    }
}

/// A store with an object of 1,000 pages, the first three of which are full of their number and 1.
fn sample() -> (PlainWorld, Store) {
    let mut world = PlainWorld::new(BLOCKS);
    let options = FormatOptions {
        journal_blocks: Some(JOURNAL as u32),
        ..FormatOptions::default()
    };
    Store::format(&mut world, &options).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    store.put_object(record(BASE, 1000)).expect("put");
    let pages = (0..3).map(|page| dirty(&mut world, &mut store, BASE, page, page as u8 + 1));
    let pages = pages.collect();
    checkpoint_begin(&mut world, &mut store, pages);
    assert_eq!(drive(&mut world, &mut store), ["checkpoint"]);
    (world, store)
}

fn dirty(world: &mut PlainWorld, store: &mut Store, base: u64, page: u64, stamp: u8) -> DirtyPage {
    store.reserve(base, page).expect("room");
    world.dirty(base, page, stamp)
}

fn checkpoint_begin(world: &mut PlainWorld, store: &mut Store, pages: Vec<DirtyPage>) {
    store
        .checkpoint_begin(world, pages, CheckpointKind::Generation)
        .expect("idle");
}

/// Begins a checkpoint of a page, which waits for the blocks that are held.
fn begin_held(world: &mut PlainWorld, store: &mut Store, held: Range<u64>) {
    world.held = held;
    let page = dirty(world, store, BASE, 2, 20);
    checkpoint_begin(world, store, vec![page]);
    assert!(drive(world, store).is_empty(), "it waits");
}

fn sync(world: &mut PlainWorld, store: &mut Store, pages: &[(u64, u64, u8)], objects: &[u64]) -> Ticket {
    let pages = pages
        .iter()
        .map(|&(base, page, stamp)| dirty(world, store, base, page, stamp));
    let pages = pages.collect();
    store.sync_begin(world, pages, objects).expect("heap")
}

/// What is told until nothing happens any more.
fn drive(world: &mut PlainWorld, store: &mut Store) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(event) = store.poll(world) {
        match event {
            Event::CheckpointDone { .. } => told.push("checkpoint".into()),
            Event::CheckpointFailed { .. } => told.push("checkpoint failed".into()),
            Event::SyncDone(Ticket(number)) => told.push(format!("sync {number}")),
            Event::SyncFailed(Ticket(number), _) => told.push(format!("sync {number} failed")),
            Event::SyncNeedsCheckpoint(_) => told.push("refused".into()),
            _ => {}
        }
        if matches!(event, Event::CheckpointDone { .. } | Event::CheckpointFailed { .. }) {
            while store.page_over().is_some() {}
        }
    }
    told
}

/// The byte that a page is full of.
fn stamp(world: &mut PlainWorld, store: &mut Store, base: u64, page: u64) -> u8 {
    match store.read_page(world, base, page) {
        ReadStart::Zero(_) => 0,
        ReadStart::NoMemory => panic!("no heap"),
        ReadStart::Reading => loop {
            match store.poll(world).expect("it is read") {
                Event::PageRead { frame, .. } => {
                    let byte = world.bytes(frame)[0];
                    world.free(frame);
                    return byte;
                }
                Event::PageBad {
                    reason: BadPage::Gone, ..
                } => return 0,
                Event::PageBad { reason, .. } => panic!("{reason:?}"),
                _ => {}
            }
        },
    }
}

/// The first pages of the object as a power cut at this moment leaves them, and how many records its mount replays.
fn behind_a_cut(world: &PlainWorld) -> ([u8; 4], u32) {
    let (mut world, mut store, replayed) = cut(world);
    (
        [0, 1, 2, 3].map(|page| stamp(&mut world, &mut store, BASE, page)),
        replayed,
    )
}

fn cut(world: &PlainWorld) -> (PlainWorld, Store, u32) {
    let mut after = PlainWorld::new(BLOCKS);
    after.disk.clone_from(&world.disk);
    let (store, report) = Store::mount(&mut after, MountMode::ReadWrite).expect("mount");
    assert_eq!((report.losses.len(), report.tail), (0, None));
    let mut findings = Vec::new();
    let verified = store.verify(&mut after, &mut |finding| findings.push(finding));
    assert!(verified.is_ok() && findings.is_empty(), "{findings:?}");
    (after, store, report.replayed)
}

fn release(world: &mut PlainWorld, store: &mut Store) -> Vec<String> {
    world.held = 0..0;
    drive(world, store)
}

/// What was synced is there whether the power fails before the superblock or behind it, and costs a page, two records and a flush.
#[test]
fn a_sync_does_not_wait_for_a_checkpoint() {
    for held in [BITMAPS, SUPERBLOCKS] {
        let is_before = held == BITMAPS;
        let (mut world, mut store) = sample();
        begin_held(&mut world, &mut store, held);
        world.log.clear();
        sync(&mut world, &mut store, &[(BASE, 0, 10)], &[]);
        assert_eq!(drive(&mut world, &mut store), ["sync 1"]);
        let count = |wanted| world.log.iter().filter(|&&(operation, _)| operation == wanted).count();
        assert_eq!(
            [Operation::Write, Operation::Flush, Operation::Read].map(count),
            [3, 1, 0]
        );
        assert_eq!(stamp(&mut world, &mut store, BASE, 0), 10);
        // The checkpoint's page is not there before its superblock is.
        let last = if is_before { 3 } else { 20 };
        assert_eq!(behind_a_cut(&world), ([10, 2, last, 0], 1));
        sync(&mut world, &mut store, &[(BASE, 0, 11), (BASE, 3, 12)], &[BASE]);
        assert_eq!(drive(&mut world, &mut store), ["sync 2"]);
        assert_eq!(behind_a_cut(&world), ([11, 2, last, 12], 2));
        assert_eq!(release(&mut world, &mut store), ["checkpoint"]);
        assert_eq!(behind_a_cut(&world), ([11, 2, 20, 12], 2));
        // The journal goes on behind them, and the next generation has all.
        sync(&mut world, &mut store, &[(BASE, 1, 13)], &[]);
        assert_eq!(drive(&mut world, &mut store), ["sync 3"]);
        assert_eq!(behind_a_cut(&world), ([11, 13, 20, 12], 3));
        checkpoint_begin(&mut world, &mut store, Vec::new());
        assert_eq!(drive(&mut world, &mut store), ["checkpoint"]);
        assert_eq!(behind_a_cut(&world), ([11, 13, 20, 12], 0));
    }
}

/// Syncs that wait together share the two records.
#[test]
fn syncs_that_wait_go_ahead_together() {
    let (mut world, mut store) = sample();
    begin_held(&mut world, &mut store, BITMAPS);
    world.log.clear();
    for page in 0..4 {
        sync(&mut world, &mut store, &[(BASE, page, 30 + page as u8)], &[]);
    }
    assert_eq!(drive(&mut world, &mut store), ["sync 1", "sync 2", "sync 3", "sync 4"]);
    assert_eq!(world.log.len(), 4 + 2 + 1);
    assert_eq!(behind_a_cut(&world), ([30, 31, 32, 33], 1));
}

/// The record in the current journal also says what only the checkpoint knew: the object, its pages that are gone, its limits.
#[test]
fn what_the_checkpoint_has_of_an_object_goes_along() {
    for held in [BITMAPS, SUPERBLOCKS] {
        let (mut world, mut store) = sample();
        store.put_object(record(OTHER, 5)).expect("put");
        store.discard_pages(BASE, 1, 2, &[]).expect("room");
        store.set_page_flags(BASE, 7, PageFlags::READ).expect("room");
        begin_held(&mut world, &mut store, held);
        sync(&mut world, &mut store, &[(OTHER, 4, 10), (BASE, 0, 11)], &[]);
        assert_eq!(drive(&mut world, &mut store), ["sync 1"]);
        let (mut after, mut store, _) = cut(&world);
        assert_eq!(stamp(&mut after, &mut store, OTHER, 4), 10);
        assert_eq!([0, 1].map(|page| stamp(&mut after, &mut store, BASE, page)), [11, 0]);
        assert_eq!(
            store.page_flags(&after, BASE, 7),
            store::PageLookup::Zero(PageFlags::READ)
        );
    }
}

/// A page whose contents the checkpoint has discarded waits: should the checkpoint fail, that would come back above it.
#[test]
fn a_page_whose_map_the_checkpoint_has_changed_waits() {
    let (mut world, mut store) = sample();
    store.discard_pages(BASE, 0, 2, &[]).expect("room");
    begin_held(&mut world, &mut store, BITMAPS);
    sync(&mut world, &mut store, &[(BASE, 0, 10)], &[]);
    assert!(drive(&mut world, &mut store).is_empty());
    assert_eq!(release(&mut world, &mut store), ["checkpoint", "sync 1"]);
    assert_eq!(behind_a_cut(&world), ([10, 0, 20, 0], 1));
}

/// It waits as well where the current journal has no room, and behind a small checkpoint.
#[test]
fn a_sync_waits_where_it_cannot_go_ahead() {
    let (mut world, mut store) = sample();
    let mut told = 0;
    while store.stats().journal_used < JOURNAL {
        sync(&mut world, &mut store, &[(BASE, 0, 9)], &[]);
        told += drive(&mut world, &mut store).len();
    }
    assert_eq!(told as u64, JOURNAL);
    begin_held(&mut world, &mut store, BITMAPS);
    sync(&mut world, &mut store, &[(BASE, 0, 10)], &[]);
    assert!(drive(&mut world, &mut store).is_empty());
    let last = format!("sync {}", JOURNAL + 1);
    assert_eq!(release(&mut world, &mut store), ["checkpoint".into(), last]);
    world.held = 4..BITMAPS.start;
    let page = dirty(&mut world, &mut store, BASE, 1, 21);
    store
        .checkpoint_begin(&mut world, vec![page], CheckpointKind::Periodic)
        .expect("idle");
    let generation = store.stats().generation;
    sync(&mut world, &mut store, &[(BASE, 0, 11)], &[]);
    assert!(drive(&mut world, &mut store).is_empty());
    let last = format!("sync {}", JOURNAL + 2);
    assert_eq!(release(&mut world, &mut store), ["checkpoint".into(), last]);
    assert_eq!(store.stats().generation, generation, "the checkpoint was a record");
}

/// An acknowledged sync outlives the failure of the checkpoint that it went ahead of, whatever is done then.
#[test]
fn a_checkpoint_that_fails_takes_no_sync_with_it() {
    for (held, failing) in [(BITMAPS, SUPERBLOCKS), (SUPERBLOCKS, 0..1)] {
        let (mut world, mut store) = sample();
        begin_held(&mut world, &mut store, held.clone());
        sync(&mut world, &mut store, &[(BASE, 0, 10), (BASE, 2, 11)], &[]);
        assert_eq!(drive(&mut world, &mut store), ["sync 1"]);
        world.failing = if held == BITMAPS {
            Some((Operation::Write, failing))
        } else {
            Some((Operation::Flush, failing))
        };
        assert_eq!(release(&mut world, &mut store), ["checkpoint failed"]);
        world.failing = None;
        let all = [0, 1, 2, 3].map(|page| stamp(&mut world, &mut store, BASE, page));
        assert_eq!(all, [10, 2, 11, 0]);
        assert_eq!(behind_a_cut(&world).0, all);
        // The next one makes the same generation, and does not believe the record of the one that failed.
        checkpoint_begin(&mut world, &mut store, Vec::new());
        assert_eq!(drive(&mut world, &mut store), ["checkpoint"]);
        assert_eq!(behind_a_cut(&world), (all, 0));
        sync(&mut world, &mut store, &[(BASE, 1, 12)], &[]);
        assert_eq!(drive(&mut world, &mut store), ["sync 2"]);
        assert_eq!(behind_a_cut(&world), ([10, 12, 11, 0], 1));
    }
}

/// Whichever of its requests fails, the checkpoint fails with it: nothing builds on what may be there.
#[test]
fn a_sync_that_fails_takes_the_checkpoint_with_it() {
    for number in 0..4 {
        for done in [false, true] {
            let (mut world, mut store) = sample();
            begin_held(&mut world, &mut store, BITMAPS);
            let next = world.log.len() + number;
            (world.failing_numbers, world.done_all_the_same) = (next..next + 1, done);
            sync(&mut world, &mut store, &[(BASE, 0, 10)], &[]);
            sync(&mut world, &mut store, &[(OTHER, 0, 10)], &[]);
            let mut told = drive(&mut world, &mut store);
            told.extend(release(&mut world, &mut store));
            assert_eq!(
                told,
                ["sync 1 failed", "sync 2 failed", "checkpoint failed"],
                "request {number}"
            );
            assert_eq!(stamp(&mut world, &mut store, BASE, 0), 1);
            // Nothing is acknowledged before a generation is durable, which shows neither.
            checkpoint_begin(&mut world, &mut store, Vec::new());
            assert_eq!(drive(&mut world, &mut store), ["checkpoint"]);
            assert_eq!(behind_a_cut(&world), ([1, 2, 20, 0], 0));
        }
    }
}

/// An object that is deleted, or cut, behind the sync of its page: the next checkpoint finds no place for that, and sets its block free.
#[test]
fn a_page_that_is_gone_is_not_landed() {
    for cut_off in [false, true] {
        let (mut world, mut store) = sample();
        begin_held(&mut world, &mut store, BITMAPS);
        sync(&mut world, &mut store, &[(BASE, 3, 10)], &[]);
        assert_eq!(drive(&mut world, &mut store), ["sync 1"]);
        if cut_off {
            store.resize(BASE, 3).expect("room");
            store.resize(BASE, 1000).expect("room");
        } else {
            store.delete_object(BASE).expect("there");
        }
        assert_eq!(release(&mut world, &mut store), ["checkpoint"]);
        assert_eq!(stamp(&mut world, &mut store, BASE, 3), 0);
        checkpoint_begin(&mut world, &mut store, Vec::new());
        assert_eq!(drive(&mut world, &mut store), ["checkpoint"]);
        let (mut after, mut store, _) = cut(&world);
        assert_eq!(stamp(&mut after, &mut store, BASE, 3), 0);
        assert_eq!(stamp(&mut after, &mut store, BASE, 2), if cut_off { 20 } else { 0 });
    }
}

/// The newest superblock is taken for what it is: a record ahead of the next one proves nothing.
#[test]
fn a_record_ahead_proves_no_generation() {
    let (mut world, mut store) = sample();
    let generation = store.stats().generation;
    begin_held(&mut world, &mut store, BITMAPS);
    sync(&mut world, &mut store, &[(BASE, 0, 10)], &[]);
    assert_eq!(drive(&mut world, &mut store), ["sync 1"]);
    let mut after = PlainWorld::new(BLOCKS);
    after.disk.clone_from(&world.disk);
    let (_, report) = Store::mount(&mut after, MountMode::ReadOnly).expect("mount");
    assert_eq!(
        (report.generation, report.losses.len(), report.replayed),
        (generation, 0, 1)
    );
}

/// The same pages are written again and again ahead of one checkpoint, each time to other blocks.
#[test]
fn blocks_taken_beside_a_checkpoint_are_bounded() {
    let (mut world, mut store) = sample();
    begin_held(&mut world, &mut store, BITMAPS);
    let free = store.stats().free;
    loop {
        let pages: Vec<_> = (0..450).map(|page| (BASE, 100 + page, 7)).collect();
        sync(&mut world, &mut store, &pages, &[]);
        let told = drive(&mut world, &mut store);
        if told.is_empty() || told == ["refused"] {
            break;
        }
    }
    let taken = free - store.stats().free;
    assert!((1000..=4000).contains(&taken), "{taken} blocks");
}

/// Polls, each with the budget of an event of which others have used some, until the superblock of a checkpoint is asked for. In the first of them the last blocks before it are complete.
fn polls_before_superblock(used: u64) -> usize {
    let (mut world, mut store) = sample();
    begin_held(&mut world, &mut store, BITMAPS);
    world.held = 0..0;
    let asked = world.log.len();
    let is_superblock =
        |&(operation, block): &(Operation, u64)| operation == Operation::Write && SUPERBLOCKS.contains(&block);
    let mut polls = 0;
    while !world.log[asked..].iter().any(is_superblock) {
        let mut budget = Budget::of(12_000);
        if used > 0 {
            budget.spend(used);
        }
        while store.poll_within(&mut world, &mut budget).is_some() {}
        polls += 1;
        assert!(polls < 10, "others keep it from it");
    }
    polls
}

/// A superblock costs as much as an event may, so it is put off to the next one behind other work. Where there is some in each, it is put off once only.
#[test]
fn a_superblock_is_put_off_once() {
    assert_eq!([0, 1, 2_000].map(polls_before_superblock), [2; 3]);
}
