//! Too little heap. For a large disk: the mount says how much it takes, has written nothing, and a later one succeeds. For a record: the checkpoint makes a generation.

mod plain;

use plain::PlainWorld;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use store::{
    BLOCK, CheckpointKind, DirtyPage, Disk, DiskError, Event, FormatOptions, Frame, MountError, MountMode, NoRoom,
    ObjectRecord, Operation, PageFlags, Pages, QueueFull, Random, Request, SnapshotError, SnapshotName, Store,
};

/// Bits of a group of blocks: two for each, and one for each word.
const GROUP: usize = 2 * BLOCK + 64;
/// In place of a number of allocations: each fails.
const ALL: u64 = 1 << 63;
/// The record of a small checkpoint of one page.
const RECORD: usize = 3 * BLOCK;
/// An object.
const BASE: u64 = 1 << 32;
/// A TiB.
const BLOCKS: u64 = 1 << 28;

thread_local! {
    /// The sizes of which allocations of this thread are counted, from the first to the last, and how many of them succeed before one fails.
    static FAILING: Cell<(usize, usize, u64)> = const { Cell::new((usize::MAX, 0, 0)) };
    /// Bytes that this thread has taken and not given back, and the most that there were.
    static TAKEN: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn take(bytes: isize) {
    let (now, most) = TAKEN.get();
    TAKEN.set((now + bytes, most.max(now + bytes)));
}

/// Has one allocation fail, of this size or more, behind so many others of that size.
fn fail_behind(size: usize, others: u64) {
    FAILING.set((size, usize::MAX, others));
}

/// No allocation fails.
fn fail_none() {
    FAILING.set((usize::MAX, 0, 0));
}

struct Failing;

impl Failing {
    /// Whether this allocation is the one that fails.
    fn fails(size: usize) -> bool {
        let (from, to, left) = FAILING.get();
        if size < from || size > to {
            return false;
        }
        if left == ALL {
            return true;
        }
        FAILING.set((from, to, left.wrapping_sub(1)));
        left == 0
    }
}

// SAFETY: everything is handed to the system's allocator as it came, or refused with a null pointer, which the trait allows.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if Self::fails(layout.size()) {
            return core::ptr::null_mut();
        }
        take(layout.size().cast_signed());
        // SAFETY: the caller answers for the layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        take(-layout.size().cast_signed());
        // SAFETY: every pointer given out came from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;

/// A store on a disk of so many blocks, with an object of so many pages.
fn sample(blocks: u64, pages: u64) -> (PlainWorld, Store) {
    let mut world = PlainWorld::new(blocks);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    let record = ObjectRecord {
        base: BASE,
        pages,
        ..ObjectRecord::default()
    };
    store.put_object(record).expect("put");
    (world, store)
}

fn checkpoint(world: &mut PlainWorld, store: &mut Store, pages: Vec<DirtyPage>) {
    let begun = store.checkpoint_begin(world, pages, CheckpointKind::Generation);
    begun.expect("idle");
    while let Some(event) = store.poll(world) {
        assert!(!matches!(event, Event::CheckpointFailed { .. }), "{event:?}");
    }
    while store.page_over().is_some() {}
}

#[test]
fn a_disk_that_is_too_large_for_the_heap_is_refused_in_a_sentence() {
    for mode in [MountMode::ReadOnly, MountMode::ReadWrite] {
        let (mut world, mut store) = sample(BLOCKS, 1);
        checkpoint(&mut world, &mut store, Vec::new());
        store.dismantle(&mut world);
        let before = world.disk.clone();
        FAILING.set((GROUP, GROUP, 0));
        let mounted = Store::mount(&mut world, mode);
        let reached = FAILING.get().2 == u64::MAX;
        fail_none();
        let error = mounted.err().expect("a group finds no heap");
        assert!(
            reached && matches!(error, MountError::TooLarge { blocks: BLOCKS, .. }),
            "{error:?}"
        );
        let told = error.to_string();
        assert!(
            told.contains("1048576 MiB") && told.contains(" KiB of the heap"),
            "{told}"
        );
        assert!(world.disk == before, "it wrote");
        Store::mount(&mut world, mode).expect("it can be mounted where there is heap");
    }
}

/// The bitmaps take heap for what is used of a disk, not for its size.
#[test]
fn a_mount_takes_little_heap_however_large_the_disk_is() {
    for blocks in [1 << 18, 1 << 24, 1 << 28, store::BLOCKS_MAX] {
        let (mut world, mut store) = sample(blocks, 1);
        checkpoint(&mut world, &mut store, Vec::new());
        store.dismantle(&mut world);
        world.log = Vec::new();
        let before = TAKEN.get().0;
        TAKEN.set((before, before));
        let (store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
        let most = TAKEN.get().1 - before;
        println!(
            "{blocks} blocks: {most} bytes at most, {} in the end",
            TAKEN.get().0 - before
        );
        assert!(most < 700 << 10, "{most} bytes for {blocks} blocks");
        store.dismantle(&mut world);
    }
}

/// Blocks that are promised stand in groups that have their heap: what was promised is written where none is left, and more is refused.
#[test]
fn what_was_promised_needs_no_heap() {
    const PAGES: u64 = 40_000;
    let (mut world, mut store) = sample(BLOCKS, 2 * PAGES);
    checkpoint(&mut world, &mut store, Vec::new());
    store.reserve_run(BASE, 2 * PAGES, 0, PAGES).expect("room");
    let mut frame = None;
    let short = || FAILING.set((GROUP, GROUP, ALL));
    for piece in 0..PAGES / 5000 {
        let frame = *frame.get_or_insert_with(|| world.alloc().expect("memory"));
        let pages = piece * 5000..(piece + 1) * 5000;
        let dirty = pages.map(|page| DirtyPage {
            base: BASE,
            page,
            frame,
            flags: PageFlags::READ,
        });
        let pages = dirty.collect();
        let begun = store.checkpoint_begin(&mut world, pages, CheckpointKind::Generation);
        begun.expect("idle");
        loop {
            short();
            let event = store.poll(&mut world);
            fail_none();
            let Some(event) = event else { break };
            assert!(!matches!(event, Event::CheckpointFailed { .. }), "{event:?}");
        }
        while store.page_over().is_some() {}
    }
    short();
    let refused = store.reserve_run(BASE, 2 * PAGES, PAGES, 2 * PAGES);
    fail_none();
    assert_eq!(refused, Err(NoRoom::Memory));
    store
        .reserve_run(BASE, 2 * PAGES, PAGES, 2 * PAGES)
        .expect("there is heap again");
    let mut findings = Vec::new();
    store
        .verify(&mut world, &mut |finding| findings.push(finding))
        .expect("memory");
    assert_eq!(findings, []);
}

#[test]
fn a_checkpoint_without_heap_for_its_record_makes_a_generation() {
    let mut world = PlainWorld::new(2000);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    let base = 1 << 32;
    let record = ObjectRecord {
        base,
        pages: 1,
        ..ObjectRecord::default()
    };
    store.put_object(record).expect("put");
    for is_short in [false, true] {
        let before = store.stats().generation;
        store.reserve(base, 0).expect("room");
        let page = world.dirty(base, 0, 7);
        let begun = store.checkpoint_begin(&mut world, vec![page], CheckpointKind::Periodic);
        begun.expect("idle");
        if is_short {
            fail_behind(RECORD, 0);
        }
        let events: Vec<Event> = core::iter::from_fn(|| store.poll(&mut world)).collect();
        fail_none();
        let generation = before + u64::from(is_short);
        assert!(events.contains(&Event::CheckpointDone { generation }), "{events:?}");
    }
}

/// Two groups have blocks in use, and heap for what is held of one of them: the checkpoint goes on without the snapshot.
#[test]
fn a_snapshot_without_heap_is_given_up_and_takes_nothing() {
    /// Bytes of a group with a plane of held blocks.
    const WITH_HELD: usize = 8 * (1024 + 8 + 512);
    let (mut world, mut store) = sample(70_000, 40_000);
    let pages = (0..36_000).map(|page| {
        store.reserve(BASE, page).expect("room");
        world.dirty(BASE, page, 7)
    });
    let pages = pages.collect();
    for pages in [pages, Vec::new(), Vec::new()] {
        checkpoint(&mut world, &mut store, pages);
    }
    let free = store.stats().free;
    let name = SnapshotName::new("one").expect("a name");
    for others in 0..3 {
        FAILING.set((WITH_HELD, WITH_HELD, others));
        store.keep_snapshot(name, 1).expect("room");
        checkpoint(&mut world, &mut store, Vec::new());
        fail_none();
        let outcome = store.snapshot_outcome().expect("it has ended");
        if others < 2 {
            assert_eq!(outcome, Err(SnapshotError::Memory));
            assert_eq!(store.stats().free, free);
        } else {
            // What the others have opened is still there.
            assert_eq!(outcome, Ok(()));
        }
        checkpoint(&mut world, &mut store, Vec::new());
    }
    assert_eq!(store.blocks_of_snapshots(), 2 + 2 + 2);
}

/// A store with an object whose first checkpoint has failed, for the disk takes no writes; allocation number `n` has failed, too. With the pages that came
/// back, and whether there were so many allocations.
fn failed_checkpoint(world: &mut PlainWorld, n: u64) -> (Store, Vec<DirtyPage>, bool) {
    Store::format(world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(world, MountMode::ReadWrite).expect("mount");
    let record = ObjectRecord {
        base: BASE,
        pages: 1,
        ..ObjectRecord::default()
    };
    store.put_object(record).expect("put");
    store.reserve(BASE, 0).expect("room");
    let page = world.dirty(BASE, 0, 7);
    world.failing = Some((Operation::Write, 0..2000));
    // Only allocations of the store fail.
    world.log.reserve(1000);
    let begun = store.checkpoint_begin(world, vec![page], CheckpointKind::Generation);
    begun.expect("idle");
    let mut events = Vec::with_capacity(100);
    fail_behind(0, n);
    while let Some(event) = store.poll(world) {
        events.push(event);
    }
    let reached = FAILING.get().2 > n;
    fail_none();
    world.failing = None;
    let failed = |event: &Event| matches!(event, Event::CheckpointFailed { .. });
    assert!(events.iter().any(failed), "{events:?}");
    let pages = core::iter::from_fn(|| store.page_over()).collect();
    (store, pages, reached)
}

/// The row of a checkpoint that failed is in no record where its return has found no heap: what follows must not be acknowledged without it.
#[test]
fn a_row_that_comes_back_without_heap_is_carried_by_what_is_acknowledged_next() {
    for by_sync in [false, true] {
        for n in 0.. {
            let mut world = PlainWorld::new(2000);
            let (mut store, pages, reached) = failed_checkpoint(&mut world, n);
            let mut pages = Some(pages);
            if by_sync && let Some(synced) = pages.take() {
                store.sync_begin(&mut world, synced, &[]).expect("heap");
                let refused = |event| matches!(event, Event::SyncNeedsCheckpoint(_));
                if core::iter::from_fn(|| store.poll(&mut world)).any(refused) {
                    pages = Some(vec![world.dirty(BASE, 0, 7)]);
                }
            }
            if let Some(pages) = pages {
                let begun = store.checkpoint_begin(&mut world, pages, CheckpointKind::Periodic);
                begun.expect("idle");
                let done = |event| matches!(event, Event::CheckpointDone { .. });
                assert!(core::iter::from_fn(|| store.poll(&mut world)).any(done));
            }
            let mounted = Store::mount(&mut world, MountMode::ReadWrite);
            let (store, report) = mounted.unwrap_or_else(|error| panic!("allocation {n}: {error}"));
            assert_eq!((report.losses.len(), report.tail), (0, None));
            assert!(store.object(BASE).is_some(), "allocation {n}");
            if !reached {
                assert!(n > 2, "{n} allocations");
                break;
            }
        }
    }
}

/// A journal that is full is replayed record by record: a small machine that filled it must be able to start from it. One of 32 MiB has 4 MiB of heap.
#[test]
fn a_mount_takes_little_heap_however_full_the_journal_is() {
    /// Records of a block each; for the last two blocks no small checkpoint begins.
    const RECORDS: u64 = 1022;
    const PAGES: u64 = 5;
    let mut world = PlainWorld::new(1 << 16);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    let record = ObjectRecord {
        base: BASE,
        pages: PAGES,
        ..ObjectRecord::default()
    };
    store.put_object(record).expect("put");
    while store.stats().journal_used < RECORDS {
        let mut pages = Vec::new();
        for page in 0..PAGES {
            store.reserve(BASE, page).expect("room");
            pages.push(world.dirty(BASE, page, 7));
        }
        let begun = store.checkpoint_begin(&mut world, pages, CheckpointKind::Periodic);
        begun.expect("idle");
        while let Some(event) = store.poll(&mut world) {
            if let Event::PageWritten { frame, .. } = event {
                world.free(frame);
            }
        }
        while store.page_over().is_some() {}
    }
    drop(store);
    world.log = Vec::new();
    for mode in [MountMode::ReadOnly, MountMode::ReadWrite] {
        let before = TAKEN.get().0;
        TAKEN.set((before, before));
        let (_store, report) = Store::mount(&mut world, mode).expect("mount");
        assert_eq!(u64::from(report.replayed), RECORDS);
        let most = TAKEN.get().1 - before;
        assert!(most < 1 << 20, "{most} bytes");
    }
}
