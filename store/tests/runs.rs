//! Writes of neighbouring blocks go to the disk as one request.

mod plain;

use plain::PlainWorld;
use store::world::RUN_MAX;
use store::{
    BLOCK, CheckpointKind, DirtyPage, Disk, DiskError, Event, FormatOptions, Frame, MountMode, ObjectRecord, Operation,
    PageFlags, Pages, QueueFull, Random, Request, Store,
};

const BASE: u64 = 1 << 40;
const PAGES: u64 = 256;

fn start(run_max: usize) -> (PlainWorld, Store) {
    let mut world = PlainWorld::new(4000);
    world.run_max = run_max;
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    let record = ObjectRecord {
        base: BASE,
        pages: PAGES,
        ..ObjectRecord::default()
    };
    store.put_object(record).expect("room");
    write(&mut world, &mut store, 0..1, 1);
    (world.runs, world.log) = (Vec::new(), Vec::new());
    (world, store)
}

fn dirty(world: &mut PlainWorld, store: &mut Store, pages: core::ops::Range<u64>, stamp: u8) -> Vec<DirtyPage> {
    pages
        .map(|page| {
            store.reserve(BASE, page).expect("room");
            world.dirty(BASE, page, stamp)
        })
        .collect()
}

/// Whether a checkpoint with these pages was done.
fn write(world: &mut PlainWorld, store: &mut Store, pages: core::ops::Range<u64>, stamp: u8) -> bool {
    let pages = dirty(world, store, pages, stamp);
    store
        .checkpoint_begin(world, pages, CheckpointKind::Generation)
        .expect("idle");
    let mut done = None;
    while let Some(event) = store.poll(world) {
        match event {
            Event::CheckpointDone { .. } => done = Some(true),
            Event::CheckpointFailed { .. } => done = Some(false),
            Event::PageWritten { frame, .. } => world.free(frame),
            _ => {}
        }
    }
    done.expect("it ends")
}

/// What a sync of these pages came to.
fn sync(world: &mut PlainWorld, store: &mut Store, pages: core::ops::Range<u64>, stamp: u8) -> Event {
    let pages = dirty(world, store, pages, stamp);
    let ticket = store.sync_begin(world, pages, &[BASE]).expect("heap");
    loop {
        match store.poll(world).expect("it ends") {
            event @ (Event::SyncDone(of) | Event::SyncNeedsCheckpoint(of) | Event::SyncFailed(of, _))
                if of == ticket =>
            {
                return event;
            }
            _ => {}
        }
    }
}

/// After a start, all pages up to one are full of a byte.
fn holds(world: &mut PlainWorld, pages: u64, stamp: u8) {
    let (mut store, _) = Store::mount(world, MountMode::ReadOnly).expect("mount");
    for page in 0..pages {
        let _ = store.read_page(world, BASE, page);
        let read = core::iter::from_fn(|| store.poll(world)).find_map(|event| match event {
            Event::PageRead { frame, .. } => Some(frame),
            _ => None,
        });
        let frame = read.expect("it is read");
        assert!(world.bytes(frame).iter().all(|byte| *byte == stamp), "page {page}");
        world.free(frame);
    }
}

fn writes(world: &PlainWorld) -> usize {
    let writes = world.log.iter().filter(|(kind, _)| *kind == Operation::Write);
    writes.count()
}

#[test]
fn pages_that_are_written_together_lie_and_go_together() {
    let (mut world, mut store) = start(RUN_MAX);
    assert!(write(&mut world, &mut store, 0..PAGES, 2));
    let in_runs: usize = world.runs.iter().sum();
    let requests = world.runs.len() + writes(&world) - in_runs;
    assert!(requests < 40, "{requests} requests for {} blocks", writes(&world));
    holds(&mut world, PAGES, 2);
}

#[test]
fn a_sync_of_many_pages_takes_few_requests() {
    let (mut world, mut store) = start(RUN_MAX);
    assert!(matches!(sync(&mut world, &mut store, 0..100, 3), Event::SyncDone(_)));
    let in_runs: usize = world.runs.iter().sum();
    let requests = world.runs.len() + writes(&world) - in_runs;
    assert!(requests < 15, "{requests} requests for {} blocks", writes(&world));
    holds(&mut world, 100, 3);
}

#[test]
fn a_disk_that_takes_no_runs_is_written_block_by_block() {
    let (mut world, mut store) = start(1);
    assert!(write(&mut world, &mut store, 0..PAGES, 2));
    assert!(world.runs.is_empty());
    holds(&mut world, PAGES, 2);
}

#[test]
fn the_writes_of_a_run_that_fails_are_asked_for_one_by_one() {
    let (mut world, mut store) = start(RUN_MAX);
    world.failing_runs = 3;
    assert!(write(&mut world, &mut store, 0..PAGES, 2));
    assert!(world.runs.iter().any(|&run| run >= 3), "{:?}", world.runs);
    assert!(matches!(sync(&mut world, &mut store, 0..100, 3), Event::SyncDone(_)));
    holds(&mut world, 100, 3);
}

#[test]
fn a_block_that_cannot_be_written_fails_what_needs_it() {
    let (mut world, mut store) = start(RUN_MAX);
    // All that is free: whatever block the pages come to.
    world.failing = Some((Operation::Write, 100..4000));
    assert!(!write(&mut world, &mut store, 0..PAGES, 2));
    assert!(matches!(
        sync(&mut world, &mut store, 0..100, 3),
        Event::SyncFailed(..) | Event::SyncNeedsCheckpoint(_)
    ));
    world.failing = None;
    assert!(store.is_ready());
    let mut again = Vec::new();
    while let Some(page) = store.page_over() {
        again.push(page);
    }
    assert!(!again.is_empty());
    assert!(write(&mut world, &mut store, 0..PAGES, 4));
    holds(&mut world, PAGES, 4);
}

/// A caller that takes pages back with the checkpoint or sync that has them is told of no page, however that ends.
#[test]
fn a_caller_that_knows_its_pages_is_told_of_the_end_alone() {
    for is_sound in [true, false] {
        let (mut world, mut store) = start(RUN_MAX);
        store.omit_pages();
        world.failing = (!is_sound).then_some((Operation::Write, 100..4000));
        let pages = dirty(&mut world, &mut store, 0..40, 2);
        let frames: Vec<Frame> = pages.iter().map(|page| page.frame).collect();
        let begun = store.checkpoint_begin(&mut world, pages, CheckpointKind::Generation);
        begun.expect("idle");
        let told: Vec<Event> = core::iter::from_fn(|| store.poll(&mut world)).collect();
        let is_done = matches!(told[..], [Event::CheckpointDone { .. }]);
        let has_failed = matches!(told[..], [Event::CheckpointFailed { .. }]);
        assert!(if is_sound { is_done } else { has_failed }, "{told:?}");
        let mut back: Vec<Frame> = core::iter::from_fn(|| store.page_over())
            .map(|page| page.frame)
            .collect();
        back.reverse();
        assert_eq!(back, frames);
        let pages = dirty(&mut world, &mut store, 0..10, 3);
        let begun = store.sync_begin(&mut world, pages, &[BASE]);
        let told: Vec<Event> = core::iter::from_fn(|| store.poll(&mut world)).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        let done = Event::SyncDone(begun.expect("heap"));
        assert_eq!(told[0] == done, is_sound, "{told:?}");
    }
}
