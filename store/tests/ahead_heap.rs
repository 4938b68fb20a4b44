//! Heap that is refused when a sync would go ahead of a checkpoint: it waits, and is durable when it is acknowledged.

mod plain;

use plain::PlainWorld;
use std::ops::Range;
use store::{
    BLOCK, BadPage, CheckpointKind, DirtyPage, Disk, DiskError, Event, FormatOptions, Frame, MountMode, ObjectRecord,
    Operation, PageFlags, Pages, QueueFull, Random, ReadStart, Request, Store, Ticket,
};

const BLOCKS: u64 = 40_000;
const JOURNAL: u64 = 40;
/// The blocks of the bitmaps: a checkpoint waits before its superblock as long as they are held.
const BITMAPS: Range<u64> = 4 + 2 * JOURNAL..4 + 2 * JOURNAL + 9;
const BASE: u64 = 1 << 32;

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

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Allocations of whole blocks, by the thread of a test, that succeed before one is refused.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

struct Failing;

// SAFETY: everything is handed to the system's allocator as it came, or refused with a null pointer, which the trait allows.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() == BLOCK && LEFT.get() != usize::MAX && LEFT.replace(LEFT.get().wrapping_sub(1)) == 0 {
            return core::ptr::null_mut();
        }
        // SAFETY: the caller answers for the layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above; what was given has that size.
        unsafe {
            let given = self.alloc(layout);
            if !given.is_null() {
                given.write_bytes(0, layout.size());
            }
            given
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: every pointer given out came from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;

/// One block of heap is refused when a sync would go ahead: it waits for the checkpoint then, and is acknowledged behind it. It must be there.
#[test]
fn a_sync_that_found_no_heap_to_go_ahead_is_durable_when_it_is_acknowledged() {
    let mut lost = Vec::new();
    for number in 0..4 {
        let (mut world, mut store) = sample();
        begin_held(&mut world, &mut store, BITMAPS);
        let pages = vec![dirty(&mut world, &mut store, BASE, 0, 10)];
        world.log.reserve(10_000);
        store.sync_begin(&mut world, pages, &[]).expect("heap");
        LEFT.set(number);
        let mut told = drive(&mut world, &mut store);
        LEFT.set(usize::MAX);
        told.extend(release(&mut world, &mut store));
        if !told.contains(&"sync 1".into()) {
            continue;
        }
        let shown = behind_a_cut(&world);
        if shown.0 != [10, 2, 20, 0] {
            lost.push((number, shown));
        }
        // All that is acknowledged behind it.
        sync(&mut world, &mut store, &[(BASE, 1, 12)], &[]);
        let told = drive(&mut world, &mut store);
        let shown = behind_a_cut(&world);
        if told == ["sync 2"] && shown.0 != [10, 12, 20, 0] {
            lost.push((number, shown));
        }
    }
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
}

/// The same, with syncs behind it that need more room than its record.
#[test]
fn syncs_behind_one_that_found_no_heap_do_not_panic() {
    let (mut world, mut store) = sample();
    begin_held(&mut world, &mut store, BITMAPS);
    let pages = vec![dirty(&mut world, &mut store, BASE, 0, 10)];
    store.sync_begin(&mut world, pages, &[]).expect("heap");
    LEFT.set(1);
    assert!(drive(&mut world, &mut store).is_empty());
    LEFT.set(usize::MAX);
    for number in 0..20 {
        let pages: Vec<_> = (0..10).map(|page| (BASE, 100 + 10 * number + page, 7)).collect();
        sync(&mut world, &mut store, &pages, &[]);
    }
    let told = release(&mut world, &mut store);
    assert_eq!(told.len(), 22, "{told:?}");
}
