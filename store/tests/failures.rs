//! The traces of a failed request of the disk, and the order in which things must wait.

mod plain;

use plain::PlainWorld;
use store::{
    BLOCK, BadPage, CheckpointKind, DirtyPage, Disk, DiskError, Event, Failure, FormatOptions, Frame, MountMode,
    NoRoom, ObjectRecord, Operation, PageFlags, PageLookup, Pages, QueueFull, Random, Request, Store, Ticket,
};

const BASE: u64 = 1 << 40;
/// Blocks of superblocks.
const SUPERBLOCKS: u64 = 4;

fn start() -> (PlainWorld, Store) {
    let mut world = PlainWorld::new(2000);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    let record = ObjectRecord {
        base: BASE,
        pages: 8,
        ..ObjectRecord::default()
    };
    store.put_object(record).expect("room");
    assert_eq!(checkpoint(&mut world, &mut store, 1), Ok(()));
    world.log.clear();
    (world, store)
}

fn dirty(world: &mut PlainWorld, store: &mut Store, stamp: u8) -> DirtyPage {
    store.reserve(BASE, 0).expect("room");
    world.dirty(BASE, 0, stamp)
}

/// Takes up all events that come without anything more being done; what became of the checkpoint, if it is over, and its pages, if it has failed.
fn drive_back(world: &mut PlainWorld, store: &mut Store) -> (Option<Result<(), Failure>>, Vec<DirtyPage>) {
    let mut over = None;
    while let Some(event) = store.poll(world) {
        match event {
            Event::CheckpointDone { .. } => over = Some(Ok(())),
            Event::CheckpointFailed { reason } => over = Some(Err(reason)),
            _ => {}
        }
    }
    (over, core::iter::from_fn(|| store.page_over()).collect())
}

fn drive(world: &mut PlainWorld, store: &mut Store) -> Option<Result<(), Failure>> {
    drive_back(world, store).0
}

fn begin(world: &mut PlainWorld, store: &mut Store, kind: CheckpointKind, stamp: u8) {
    let page = dirty(world, store, stamp);
    store.checkpoint_begin(world, vec![page], kind).expect("idle");
}

fn checkpoint(world: &mut PlainWorld, store: &mut Store, stamp: u8) -> Result<(), Failure> {
    begin(world, store, CheckpointKind::Generation, stamp);
    drive(world, store).expect("it ends")
}

fn sync(world: &mut PlainWorld, store: &mut Store, stamp: u8) -> Event {
    let page = dirty(world, store, stamp);
    let ticket = store.sync_begin(world, vec![page], &[BASE]).expect("heap");
    let about = |event: &Event| match *event {
        Event::SyncDone(of) | Event::SyncNeedsCheckpoint(of) | Event::SyncFailed(of, _) => of == ticket,
        _ => false,
    };
    loop {
        let event = store.poll(world).expect("it ends");
        if about(&event) {
            return event;
        }
    }
}

fn is_done(event: &Event) -> bool {
    matches!(event, Event::SyncDone(Ticket(_)))
}

/// Reads the page: its first byte.
fn read(world: &mut PlainWorld, store: &mut Store) -> Result<u8, BadPage> {
    let _ = store.read_page(world, BASE, 0);
    loop {
        match store.poll(world).expect("it is answered") {
            Event::PageRead { frame, .. } => return Ok(world.bytes(frame)[0]),
            Event::PageBad { reason, .. } => return Err(reason),
            _ => {}
        }
    }
}

/// A read that takes long finds what was there when it began: its block is not written meanwhile, however many generations come.
#[test]
fn a_block_that_is_being_read_is_not_written() {
    let (mut world, mut store) = start();
    world.log.clear();
    assert_eq!(read(&mut world, &mut store), Ok(1));
    let &[(Operation::Read, block)] = world.log.as_slice() else {
        panic!("one read: {:?}", world.log);
    };
    world.held = block..block + 1;
    let _ = store.read_page(&mut world, BASE, 0);
    assert_eq!(drive(&mut world, &mut store), None);
    assert_eq!(world.log, [(Operation::Read, block); 2]);
    // What was freed since it began is kept for it, so the disk ends.
    let mut generations = 0;
    while store.reserve(BASE, 0).is_ok() {
        assert_eq!(checkpoint(&mut world, &mut store, 2), Ok(()), "{generations}");
        generations += 1;
    }
    assert!(generations > 100, "{generations}");
    assert!(!world.log.contains(&(Operation::Write, block)));
    world.held = 0..0;
    let read = store.poll(&mut world);
    assert!(
        matches!(read, Some(Event::PageRead { frame, .. }) if world.bytes(frame)[0] == 1),
        "{read:?}"
    );
    // Nobody reads it any more: with the next generations all is free again.
    for _ in 0..3 {
        let begun = store.checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation);
        assert_eq!(begun.map(|()| drive(&mut world, &mut store)), Ok(Some(Ok(()))));
    }
    assert_eq!(store.reserve(BASE, 0), Ok(()));
}

/// A page behind the end of its object comes back at once, and is in no record.
#[test]
fn a_sync_leaves_out_pages_behind_the_end() {
    for (page, is_inside) in [(7, true), (8, false), (9, false)] {
        let (mut world, mut store) = start();
        store.reserve(BASE, 7).expect("room");
        let page = world.dirty(BASE, page, 2);
        let ticket = store.sync_begin(&mut world, vec![page], &[BASE]).expect("heap");
        let mut is_over = false;
        while let Some(event) = store.poll(&mut world) {
            is_over |= matches!(event, Event::SyncDone(of) if of == ticket);
        }
        assert!(is_over);
        let is_written = world
            .log
            .iter()
            .any(|&(kind, block)| kind == Operation::Write && world.disk[&block] == [2; BLOCK]);
        assert_eq!(is_written, is_inside);
    }
}

/// The generation that a mount of the disk as it is would find, and the first byte of the page.
fn found(world: &PlainWorld) -> (u64, u8) {
    let mut other = PlainWorld::new(2000);
    other.disk.clone_from(&world.disk);
    let (mut store, report) = Store::mount(&mut other, MountMode::ReadOnly).expect("mount");
    assert_eq!(report.damage, []);
    let byte = read(&mut other, &mut store);
    (report.generation, byte.expect("intact"))
}

/// The superblocks that were written, in order.
fn superblocks(world: &PlainWorld) -> Vec<u64> {
    let writes = world.log.iter().filter(|request| request.0 == Operation::Write);
    writes
        .map(|request| request.1)
        .filter(|&block| block < SUPERBLOCKS)
        .collect()
}

#[test]
fn after_a_failed_sync_no_record_follows_in_its_generation() {
    for failing in [(Operation::Flush, 0..1), (Operation::Write, 0..2000)] {
        let (mut world, mut store) = start();
        assert!(is_done(&sync(&mut world, &mut store, 2)));
        world.failing = Some(failing);
        assert!(matches!(
            sync(&mut world, &mut store, 3),
            Event::SyncFailed(_, Failure::Disk)
        ));
        world.failing = None;
        world.log.clear();
        assert!(matches!(sync(&mut world, &mut store, 4), Event::SyncNeedsCheckpoint(_)));
        assert!(world.log.is_empty(), "a record may be on the disk");
        assert_eq!(checkpoint(&mut world, &mut store, 5), Ok(()));
        assert!(is_done(&sync(&mut world, &mut store, 6)));
        assert_eq!(found(&world).1, 6);
    }
}

#[test]
fn a_superblock_that_may_be_durable_is_wiped_out_before_anything_else() {
    let (mut world, mut store) = start();
    let (generation, _) = found(&world);
    let first = (generation + 1) % 2 * 2;
    // The superblock is written, and the flush after it fails: nobody knows what is on the disk.
    world.held = first..first + 2;
    begin(&mut world, &mut store, CheckpointKind::Generation, 2);
    assert_eq!(drive(&mut world, &mut store), None);
    world.failing = Some((Operation::Flush, 0..1));
    world.held = 0..0;
    assert_eq!(drive(&mut world, &mut store), Some(Err(Failure::Disk)));
    assert_eq!(found(&world), (generation + 1, 2));
    world.failing = None;
    assert!(matches!(sync(&mut world, &mut store, 3), Event::SyncNeedsCheckpoint(_)));

    // The next attempt does not get as far as its own. It may have written over the blocks of the first.
    world.log.clear();
    world.failing = Some((Operation::Write, SUPERBLOCKS..2000));
    assert_eq!(checkpoint(&mut world, &mut store, 4), Err(Failure::Disk));
    let writes = world
        .log
        .iter()
        .position(|request| *request == (Operation::Write, first));
    let flushes = world.log.iter().position(|request| request.0 == Operation::Flush);
    assert_eq!((writes, flushes), (Some(0), Some(1)), "{:?}", world.log);
    assert_eq!(found(&world), (generation, 1));

    // It is wiped out once.
    world.failing = None;
    world.log.clear();
    assert_eq!(checkpoint(&mut world, &mut store, 5), Ok(()));
    assert_eq!(superblocks(&world), [first, first + 1]);
    assert_eq!(found(&world), (generation + 1, 5));
}

#[test]
fn a_superblock_is_written_when_the_one_before_has_both_its_copies() {
    let (mut world, mut store) = start();
    let (generation, _) = found(&world);
    let [before, next] = [1, 2].map(|more| (generation + more) % 2 * 2);
    world.held = before + 1..before + 2;
    assert_eq!(
        checkpoint(&mut world, &mut store, 2),
        Ok(()),
        "nobody waits for the copy"
    );
    assert_eq!(superblocks(&world), [before, before + 1]);
    world.log.clear();
    begin(&mut world, &mut store, CheckpointKind::Generation, 3);
    assert_eq!(drive(&mut world, &mut store), None);
    assert!(superblocks(&world).is_empty() && !world.log.contains(&(Operation::Flush, 0)));
    world.held = 0..0;
    assert_eq!(drive(&mut world, &mut store), Some(Ok(())));
    assert_eq!(superblocks(&world), [next, next + 1]);
    assert_eq!(found(&world), (generation + 2, 3));
}

#[test]
fn at_power_off_the_second_copy_is_waited_for_and_flushed() {
    let (mut world, mut store) = start();
    let (generation, _) = found(&world);
    let pair = (generation + 1) % 2 * 2;
    world.held = pair + 1..pair + 2;
    begin(&mut world, &mut store, CheckpointKind::Shutdown, 2);
    assert_eq!(drive(&mut world, &mut store), None);
    assert_eq!(world.log.last(), Some(&(Operation::Write, pair + 1)));
    world.held = 0..0;
    assert_eq!(drive(&mut world, &mut store), Some(Ok(())));
    assert_eq!(world.log.last(), Some(&(Operation::Flush, 0)));
}

#[test]
fn a_copy_that_could_not_be_written_is_written_first_the_next_time() {
    let (mut world, mut store) = start();
    let (generation, _) = found(&world);
    let [pair, other] = [1, 2].map(|more| (generation + more) % 2 * 2);
    world.failing = Some((Operation::Write, pair + 1..pair + 2));
    assert_eq!(checkpoint(&mut world, &mut store, 2), Ok(()));
    assert_eq!(found(&world), (generation + 1, 2));
    world.failing = None;
    world.log.clear();
    assert_eq!(checkpoint(&mut world, &mut store, 3), Ok(()));
    assert_eq!(checkpoint(&mut world, &mut store, 4), Ok(()));
    assert_eq!(superblocks(&world), [other, other + 1, pair + 1, pair]);
    assert_eq!(found(&world), (generation + 3, 4));
}

/// Changes pending when jobs began that all fail are pending again in the order in which they were asked for.
#[test]
fn changes_that_come_back_lie_beneath_later_ones() {
    for by_checkpoint in [false, true] {
        let (mut world, mut store) = start();
        store.set_page_flags(BASE, 1, PageFlags::EXECUTE).expect("room");
        store.sync_begin(&mut world, Vec::new(), &[BASE]).expect("heap");
        store.discard_pages(BASE, 1, 2, &[]).expect("room");
        let page = DirtyPage {
            page: 1,
            ..dirty(&mut world, &mut store, 7)
        };
        store.reserve(BASE, 1).expect("room");
        if by_checkpoint {
            store
                .checkpoint_begin(&mut world, vec![page], CheckpointKind::Generation)
                .expect("idle");
        } else {
            store.sync_begin(&mut world, vec![page], &[BASE]).expect("heap");
        }
        world.failing = Some((Operation::Write, 0..2000));
        assert_eq!(
            drive(&mut world, &mut store),
            by_checkpoint.then_some(Err(Failure::Disk))
        );
        assert_eq!(store.page_flags(&world, BASE, 1), PageLookup::Absent, "{by_checkpoint}");
    }
}

/// Nodes of maps are read from a disk that fails and then works again, and for a record of the journal.
#[test]
fn nodes_of_maps_are_read_when_they_are_needed() {
    let (mut world, mut store) = start();
    // With a second page the map has a node.
    store.reserve(BASE, 5).expect("room");
    let page = world.dirty(BASE, 5, 1);
    store
        .checkpoint_begin(&mut world, vec![page], CheckpointKind::Generation)
        .expect("idle");
    assert_eq!(drive(&mut world, &mut store), Some(Ok(())));
    let (mut reader, _) = Store::mount(&mut world, MountMode::ReadOnly).expect("mount");
    world.failing = Some((Operation::Read, 0..2000));
    assert_eq!(read(&mut world, &mut reader), Err(BadPage::Disk));
    world.failing = None;
    assert_eq!(read(&mut world, &mut reader), Ok(1));
    assert!(is_done(&sync(&mut world, &mut store, 2)));
    assert_eq!(found(&world).1, 2);
}

/// A page that has a promise keeps it, however little room is left since.
#[test]
fn a_promise_is_kept_when_it_is_asked_for_again() {
    let (_, mut store) = start();
    let other = ObjectRecord {
        base: BASE << 1,
        pages: 70_000,
        ..ObjectRecord::default()
    };
    store.put_object(other).expect("room");
    let full = (0..70_000).find(|&page| store.reserve(BASE << 1, page).is_err());
    assert!(full.is_some());
    // Discards may use what is kept from writers.
    store.discard_pages(BASE, 0, 8, &[]).expect("the pool");
    let promised = store.stats();
    assert_eq!(store.reserve(BASE << 1, 0), Ok(()));
    assert!(store.reserve(BASE, 0).is_err());
    assert_eq!(store.stats(), promised);
}

/// A promise that is refused leaves nothing, also where the object has grown since others of its pages were promised.
#[test]
fn a_promise_that_is_refused_leaves_nothing() {
    let (_, mut store) = start();
    let sized = |base, pages| ObjectRecord {
        base,
        pages,
        ..ObjectRecord::default()
    };
    store.put_object(sized(BASE, 2)).expect("room");
    store.reserve(BASE, 0).expect("room");
    store.put_object(sized(BASE, 70_000)).expect("room");
    store.put_object(sized(BASE << 1, 70_000)).expect("room");
    assert!((0..70_000).any(|page| store.reserve(BASE << 1, page).is_err()));
    let promised = store.stats();
    for page in [1, 300, 69_999] {
        let refused = store.reserve(BASE, page);
        assert_eq!((refused, store.stats()), (Err(NoRoom::Disk), promised), "page {page}");
    }
    store.unreserve(BASE, 0);
    assert_eq!(store.stats().reserved, promised.reserved - 2);
}

/// A page that is stored may be written again on a full disk, as far as the pool lends blocks; a page that was never written may not.
#[test]
fn what_is_stored_may_be_rewritten_on_a_full_disk() {
    let (mut world, mut store) = start();
    let stored = dirty(&mut world, &mut store, 7);
    let (base, page) = (stored.base, stored.page);
    store
        .checkpoint_begin(&mut world, vec![stored], CheckpointKind::Generation)
        .expect("idle");
    assert_eq!(drive(&mut world, &mut store), Some(Ok(())));
    let other = ObjectRecord {
        base: BASE << 1,
        pages: 70_000,
        ..ObjectRecord::default()
    };
    store.put_object(other).expect("room");
    assert!((0..70_000).any(|page| store.reserve(BASE << 1, page).is_err()));
    assert_eq!(store.reserve(base, page), Err(NoRoom::Disk));
    assert_eq!(store.reserve_stored(&world, base, page + 1), Err(NoRoom::Disk));
    assert_eq!(store.reserve_stored(&world, base, page), Ok(()));
    // The blocks that deletes need are still there.
    let stats = store.stats();
    assert!(stats.free + 24 - 8 >= stats.reserved, "{stats:?}");
}

/// The blocks spoken for, with changes of maps that are pending: their nodes, but no more than a map has, and the next writing of the table.
#[test]
fn changes_of_maps_are_paid_for() {
    let (_, mut store) = start();
    // The pool, and a table of one block that may get a root above it and another block.
    assert_eq!(store.stats().reserved, 24 + 1 + 1 + 1);
    let base = BASE + (1 << 30);
    let record = ObjectRecord {
        base,
        pages: 70_000,
        ..ObjectRecord::default()
    };
    store.put_object(record).expect("room");
    let mut reserved = store.stats().reserved;
    let mut costs = |store: &mut Store, wanted: u64| {
        let now = store.stats().reserved;
        assert_eq!(now - core::mem::replace(&mut reserved, now), wanted);
    };
    // Three levels: the path to either end of a range, that to a page, and once the left edge, for a limit beyond the reach of the map.
    store.discard_pages(base, 5, 9, &[]).expect("room");
    costs(&mut store, 6);
    store
        .discard_pages(base, 500, 9_000, &[(600, PageFlags::READ)])
        .expect("room");
    costs(&mut store, 9 + 3);
    store.set_page_flags(base, 69_999, PageFlags::READ).expect("room");
    costs(&mut store, 3);
    store
        .set_page_flags(base, 70_000, PageFlags::READ)
        .expect("it is outside");
    costs(&mut store, 0);
    // A map of one node.
    store.discard_pages(BASE, 0, 1, &[]).expect("room");
    costs(&mut store, 2);
    store.discard_pages(BASE, 3, 4, &[]).expect("room");
    costs(&mut store, 0);
}

/// Limits of pages go on until nothing is left but the pool, and no further: a map may grow for them. What is discarded may use that.
#[test]
fn limits_leave_the_pool_to_discards() {
    for before in 0..3 {
        let (_, mut store) = start();
        let base = BASE + (1 << 30);
        let record = ObjectRecord {
            base,
            pages: 1 << 24,
            ..ObjectRecord::default()
        };
        store.put_object(record).expect("room");
        // A change of the first object takes one block, of this one three or more: each remainder comes up.
        (0..before).for_each(|page| store.discard_pages(BASE, page, page + 1, &[]).expect("room"));
        let full = (0..1 << 16).find(|page| store.set_page_flags(base, page << 8, PageFlags::READ).is_err());
        let stats = store.stats();
        // The path to a page.
        let left = stats.free.checked_sub(stats.reserved);
        assert!(full > Some(100) && left.is_some_and(|left| left < 3), "{stats:?}");
        store.discard_pages(base, 1 << 20, (1 << 20) + 1, &[]).expect("room");
    }
}

/// What was promised can be written on a full disk: also where a map is higher than its object, for that was cut, or grows on its left edge.
#[test]
fn promises_have_all_the_nodes_that_maps_get() {
    /// A size of an object in pages, and the pages of it that are written.
    type Step = (u64, &'static [u64]);
    let ways: [(&[Step], &[Step]); 3] = [
        // What has a checkpoint each, and what the last one writes.
        (&[(1, &[0])], &[(70_000, &[69_999])]),
        (&[(70_000, &[0, 69_999]), (1, &[])], &[(1, &[0])]),
        (&[], &[(2, &[0]), (70_000, &[69_999])]),
    ];
    for (way, (before, last)) in ways.into_iter().enumerate() {
        let (mut world, mut store) = start();
        let take = |world: &mut PlainWorld, store: &mut Store, &(size, written): &Step| {
            let mut pages = Vec::new();
            for base in (1..60).map(|number| BASE + (number << 30)) {
                let record = ObjectRecord {
                    base,
                    pages: size,
                    ..ObjectRecord::default()
                };
                store.put_object(record).expect("room");
                for &page in written {
                    store.reserve(base, page).expect("room");
                    pages.push(world.dirty(base, page, 1));
                }
            }
            pages
        };
        let write = |world: &mut PlainWorld, store: &mut Store, pages| {
            store
                .checkpoint_begin(world, pages, CheckpointKind::Generation)
                .expect("idle");
            drive(world, store)
        };
        for step in before {
            let pages = take(&mut world, &mut store, step);
            assert_eq!(write(&mut world, &mut store, pages), Some(Ok(())));
        }
        let mut pages: Vec<_> = (last.iter())
            .flat_map(|step| take(&mut world, &mut store, step))
            .collect();
        let other = ObjectRecord {
            base: BASE << 1,
            pages: 70_000,
            ..ObjectRecord::default()
        };
        store.put_object(other).expect("room");
        let room = (0..70_000).take_while(|&page| store.reserve(BASE << 1, page).is_ok());
        let rest: Vec<u64> = room.collect();
        pages.extend(rest.into_iter().map(|page| world.dirty(BASE << 1, page, 1)));
        assert_eq!(write(&mut world, &mut store, pages), Some(Ok(())), "way {way}");
    }
}

/// A full disk but for so many pages, all of them written, and the pages that have the rest promised.
fn full(left: u64) -> (PlainWorld, Store, Vec<DirtyPage>) {
    let (mut world, mut store) = start();
    let base = BASE << 1;
    let record = ObjectRecord {
        base,
        pages: 70_000,
        ..ObjectRecord::default()
    };
    store.put_object(record).expect("room");
    let mut page = 0;
    let mut fill = |world: &mut PlainWorld, store: &mut Store, left: u64| {
        let mut dirty = Vec::new();
        while store.stats().free >= store.stats().reserved + left && store.reserve(base, page).is_ok() {
            dirty.push(world.dirty(base, page, 1));
            page += 1;
        }
        dirty
    };
    let most = fill(&mut world, &mut store, left);
    store
        .checkpoint_begin(&mut world, most, CheckpointKind::Generation)
        .expect("idle");
    assert_eq!(drive(&mut world, &mut store), Some(Ok(())));
    let rest = fill(&mut world, &mut store, 0);
    assert!(rest.len() as u64 > left / 2);
    (world, store, rest)
}

/// A checkpoint that failed keeps its blocks until its pages are written anew. On a full disk the next one goes on with those that come back.
#[test]
fn a_checkpoint_that_failed_on_a_full_disk_is_made_again() {
    for request in (0..110).step_by(9) {
        let (mut world, mut store, mut rest) = full(100);
        let at = world.log.len() + request;
        world.failing_numbers = at..at + 1;
        let mut ends = Vec::new();
        while ends.len() < 3 && !ends.ends_with(&[Ok(())]) {
            store
                .checkpoint_begin(&mut world, rest, CheckpointKind::Generation)
                .expect("idle");
            let (end, back) = drive_back(&mut world, &mut store);
            rest = back;
            ends.push(end.expect("it ends"));
        }
        assert!(ends.ends_with(&[Ok(())]), "request {request}: {ends:?}");
    }
}

/// The blocks of a sync that failed are free when the next checkpoint is over. So a sync begins only where that checkpoint finds others.
#[test]
fn a_sync_that_failed_on_a_full_disk_leaves_room_for_a_checkpoint() {
    for (pages, request) in [(8, 0), (8, 5), (8, 9), (30, 0), (30, 15), (30, 31)] {
        let (mut world, mut store, rest) = full(100);
        let at = world.log.len() + request;
        world.failing_numbers = at..at + 1;
        store
            .sync_begin(&mut world, rest[..pages].to_vec(), &[BASE << 1])
            .expect("heap");
        assert_eq!(drive(&mut world, &mut store), None);
        world.failing_numbers = 0..0;
        // A page that the sync has written is written once more.
        for page in &rest {
            store.reserve(page.base, page.page).expect("it was promised");
        }
        store
            .checkpoint_begin(&mut world, rest, CheckpointKind::Generation)
            .expect("idle");
        let end = drive(&mut world, &mut store);
        assert_eq!(end, Some(Ok(())), "{pages} pages, request {request}");
    }
}
