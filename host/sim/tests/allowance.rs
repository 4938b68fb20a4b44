//! Work by small grants: what waits for the disk asks for all that it needs, and then leaves nothing to be done.

use sim::disk::CrashDisk;
use sim::rng::Rng;
use sim::world::SimWorld;
use std::cell::Cell;
use store::{
    BLOCK, Budget, CheckpointKind, DirtyPage, Disk, DiskError, Event, FormatOptions, Frame, MountMode, ObjectRecord,
    Operation, PageFlags, Pages, QueueFull, Random, ReadStart, Request, Store,
};

const BASE: u64 = 1 << 32;
const BLOCKS: u64 = 1 << 18;
const PAGES: u64 = 65536;
/// Pages so far apart that each has a node of its own, and how many of them there are.
const APART: u64 = 1024;
const COUNT: usize = (PAGES / APART) as usize;
/// The budget that the server grants an event.
const GRANT: u64 = 16_500;
/// Grants that are more than enough for asking the disk for a node for each page.
const GRANTS_MAX: usize = COUNT;

/// A store with that object on the disk and nothing of its map in memory.
fn cold() -> (SimWorld, Store) {
    let mut world = SimWorld::new(CrashDisk::new(BLOCKS, Rng::new(1)), 4000, Rng::new(2));
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    let object = ObjectRecord {
        base: BASE,
        pages: PAGES,
        ..ObjectRecord::default()
    };
    store.put_object(object).expect("put");
    let all = dirty(&mut world);
    store
        .checkpoint_begin(&mut world, all, CheckpointKind::Generation)
        .expect("idle");
    finish(&mut store, &mut world);
    let (store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    (world, store)
}

fn dirty(world: &mut SimWorld) -> Vec<DirtyPage> {
    let page = |page| DirtyPage {
        flags: PageFlags::empty(),
        ..sim::world::dirty(world, BASE, page, 0)
    };
    (0..PAGES).step_by(APART as usize).map(page).collect()
}

/// One grant, and the events that came.
fn grant(store: &mut Store, world: &mut SimWorld) {
    let mut budget = Budget::of(GRANT);
    while let Some(event) = store.poll_within(world, &mut budget) {
        match event {
            Event::PageWritten { frame, .. } | Event::PageRead { frame, .. } => world.free(frame),
            Event::CheckpointDone { .. } | Event::SyncDone(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn finish(store: &mut Store, world: &mut SimWorld) {
    while !store.is_idle() {
        grant(store, world);
        if !store.is_stopped() {
            world.step();
        }
    }
}

/// Requests that the disk takes at once, less a few that it is about to get.
const MANY: usize = 12;

/// While the disk does nothing, few grants are used, and the disk is asked for all that it can give; then it comes to its end.
fn waits_quietly(begin: impl Fn(&mut Store, &mut SimWorld)) {
    let (mut world, mut store) = cold();
    begin(&mut store, &mut world);
    let mut grants = 0;
    loop {
        grant(&mut store, &mut world);
        grants += 1;
        if !store.is_stopped() {
            break;
        }
        assert!(grants < GRANTS_MAX, "it works on and on, and the disk has done nothing");
    }
    // The first nodes are the uppermost ones; behind them each page asks for its own.
    while world.disk.under_way() < MANY {
        assert!(!store.is_idle(), "it never asked for {MANY} nodes at once");
        if !store.is_stopped() {
            world.step();
        }
        grant(&mut store, &mut world);
    }
    finish(&mut store, &mut world);
}

#[test]
fn a_checkpoint_asks_for_its_nodes_at_once_and_waits() {
    waits_quietly(|store, world| {
        let pages = dirty(world);
        store
            .checkpoint_begin(world, pages, CheckpointKind::Generation)
            .expect("idle");
    });
}

#[test]
fn a_sync_asks_for_its_nodes_at_once_and_waits() {
    waits_quietly(|store, world| {
        let pages = dirty(world);
        store.sync_begin(world, pages, &[]).expect("heap");
    });
}

#[test]
fn reads_ask_for_their_nodes_at_once_and_wait() {
    waits_quietly(|store, world| {
        for page in (0..PAGES).step_by(APART as usize) {
            assert_eq!(store.read_page(world, BASE, page), ReadStart::Reading);
        }
    });
}

/// A world that counts how often the store touches memory or asks the disk for something.
struct Counted {
    world: SimWorld,
    touches: Cell<u64>,
    /// Blocks that the disk was to write.
    writes: u64,
}

impl Counted {
    fn count(&self) {
        self.touches.set(self.touches.get() + 1);
    }
}

impl Pages for Counted {
    fn alloc(&mut self) -> Option<Frame> {
        self.world.alloc()
    }
    fn free(&mut self, frame: Frame) {
        self.world.free(frame);
    }
    fn bytes(&self, frame: Frame) -> &[u8; BLOCK] {
        self.count();
        self.world.bytes(frame)
    }
    fn bytes_mut(&mut self, frame: Frame) -> &mut [u8; BLOCK] {
        self.count();
        self.world.bytes_mut(frame)
    }
}

impl Disk for Counted {
    fn blocks(&self) -> u64 {
        self.world.disk.blocks()
    }
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        self.count();
        Disk::submit(&mut self.world, request)?;
        // One that finds the queue full is offered again with the next event.
        self.writes += u64::from(request.operation == Operation::Write);
        Ok(())
    }
    fn complete(&mut self) -> Option<(u32, Result<(), DiskError>)> {
        Disk::complete(&mut self.world)
    }
    fn wait(&mut self) {
        Disk::wait(&mut self.world);
    }
}

impl Random for Counted {
    fn next_u64(&mut self) -> u64 {
        self.world.next_u64()
    }
}

/// The most that one grant does: touches of the world, events, and rows that come into the table. And how many grants were used up by none of these.
#[derive(Default, Debug)]
struct Most {
    touches: u64,
    writes: u64,
    events: u64,
    rows: u64,
    inward: u64,
}

impl Most {
    fn is_little(&self) -> bool {
        // A block is two or three touches, a map entry some; a step of a job's end gives a few pages back. About twice what was measured.
        self.touches < 25 && self.writes < 9 && self.events < 60 && self.rows < 5
    }
}

/// Drives the store by grants until nothing is left to be done; tells the most that one of them did.
fn most_of(store: &mut Store, world: &mut Counted) -> Most {
    let mut most = Most::default();
    while !store.is_idle() {
        let (touches, writes, rows) = (world.touches.get(), world.writes, store.stats().objects);
        let mut events = 0;
        let mut budget = Budget::of(GRANT);
        while let Some(event) = store.poll_within(world, &mut budget) {
            events += 1;
            if let Event::PageWritten { frame, .. } = event {
                world.free(frame);
            }
        }
        most.touches = most.touches.max(world.touches.get() - touches);
        most.writes = most.writes.max(world.writes - writes);
        most.rows = most.rows.max(store.stats().objects.abs_diff(rows));
        most.events = most.events.max(events);
        let is_inward = events == 0 && world.touches.get() == touches && store.is_stopped();
        most.inward += u64::from(is_inward);
        if !store.is_stopped() {
            world.world.step();
        }
    }
    while store.page_over().is_some() {}
    most
}

const SLOT: u64 = 2 << 20;

fn record(number: u64, pages: u64) -> ObjectRecord {
    ObjectRecord {
        base: BASE + (number + 1000) * SLOT,
        pages,
        ..ObjectRecord::default()
    }
}

/// So many objects on the disk.
fn with_objects(count: u64) -> (Counted, Store) {
    let (world, mut store) = cold();
    let mut world = Counted {
        world,
        touches: Cell::new(0),
        writes: 0,
    };
    world.world.memory.set_limit(1 << 16);
    (0..count).for_each(|number| store.put_object(record(number, 64)).expect("room"));
    store
        .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation)
        .expect("idle");
    most_of(&mut store, &mut world);
    (world, store)
}

/// Pages of an object that are dirty and promised.
fn promised(store: &mut Store, world: &mut Counted, number: u64, count: u64) -> Vec<DirtyPage> {
    let base = record(number, 0).base;
    let page = |page| {
        store.reserve(base, page).expect("room");
        sim::world::dirty(world, base, page, 0)
    };
    (0..count).map(page).collect()
}

/// The rows of a table that has changed everywhere are looked at in pieces before the first part is written.
#[test]
fn the_parts_of_the_table_are_listed_in_pieces() {
    const ROWS: u64 = 4000;
    let (mut world, mut store) = with_objects(ROWS);
    (0..ROWS).for_each(|number| store.put_object(record(number, 65)).expect("room"));
    store
        .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation)
        .expect("idle");
    let most = most_of(&mut store, &mut world);
    assert!(most.inward > 15, "{most:?}");
}

/// Thirty-two syncs of sixteen pages each share a record: writing it, making what it says, or undoing it goes in pieces.
#[test]
fn syncs_that_share_a_record_go_in_pieces() {
    for failing in [0, 1, 40] {
        let (mut world, mut store) = with_objects(40);
        for number in 0..33 {
            let pages = promised(&mut store, &mut world, number, 16);
            let base = record(number, 0).base;
            store
                .put_object(ObjectRecord {
                    capabilities: vec![(1, 15); 100],
                    ..record(number, 64)
                })
                .expect("room");
            store.sync_begin(&mut world, pages, &[base]).expect("heap");
        }
        world.world.disk.set_failing(failing);
        let most = most_of(&mut store, &mut world);
        assert!(most.is_little(), "failing {failing}: {most:?}");
    }
}

/// A checkpoint that writes a thousand pages, their nodes and a table of some blocks; then one that takes most of it away.
#[test]
fn a_checkpoint_of_many_pages_goes_in_pieces() {
    let (mut world, mut store) = with_objects(100);
    let mut pages = Vec::new();
    for number in 0..100 {
        pages.extend(promised(&mut store, &mut world, number, 10));
    }
    store
        .checkpoint_begin(&mut world, pages, CheckpointKind::Generation)
        .expect("idle");
    let most = most_of(&mut store, &mut world);
    assert!(most.is_little(), "{most:?}");
    for number in 0..90 {
        store.delete_object(record(number, 0).base).expect("room");
    }
    for number in 90..100 {
        store.discard_pages(record(number, 0).base, 0, 8, &[]).expect("room");
    }
    store
        .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation)
        .expect("idle");
    let most = most_of(&mut store, &mut world);
    assert!(most.is_little(), "{most:?}");
    assert_eq!(store.stats().objects, 11);
}

/// Maps that become higher by some levels do that level by level, for pages that are written and for limits far from all others.
#[test]
fn maps_grow_in_pieces() {
    let (mut world, mut store) = with_objects(40);
    let pages =
        |store: &mut Store, world: &mut Counted| (0..40).flat_map(|number| promised(store, world, number, 1)).collect();
    let first: Vec<DirtyPage> = pages(&mut store, &mut world);
    let place = |number: u64| ObjectRecord {
        base: BASE * (100 + number),
        pages: 1 << 20,
        ..ObjectRecord::default()
    };
    let stored = first.iter().zip(0..).map(|(&page, number)| DirtyPage {
        base: place(number).base,
        ..page
    });
    (0..40).for_each(|number| store.put_object(place(number)).expect("room"));
    let stored = stored.collect();
    store
        .checkpoint_begin(&mut world, stored, CheckpointKind::Generation)
        .expect("idle");
    most_of(&mut store, &mut world);
    let second: Vec<DirtyPage> = pages(&mut store, &mut world);
    let far = second.iter().zip(0..).map(|(&page, number)| DirtyPage {
        base: place(number).base,
        page: (1 << 20) - 1,
        ..page
    });
    let far = far.collect();
    store
        .checkpoint_begin(&mut world, far, CheckpointKind::Generation)
        .expect("idle");
    let most = most_of(&mut store, &mut world);
    assert!(most.is_little(), "pages: {most:?}");
    for number in 0..40 {
        let base = place(number).base;
        store.set_page_flags(base, 1 << 19, PageFlags::READ).expect("room");
    }
    store
        .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation)
        .expect("idle");
    let most = most_of(&mut store, &mut world);
    assert!(most.is_little(), "limits: {most:?}");
}

/// Rows that came while a checkpoint ran come into the table in pieces, and a checkpoint that fails is undone in pieces, with all that waits
/// behind it.
#[test]
fn the_end_of_a_checkpoint_goes_in_pieces() {
    for failing in [0, 1] {
        let (mut world, mut store) = with_objects(300);
        for page in promised(&mut store, &mut world, 0, 60) {
            store.freeze_page(page).expect("heap");
        }
        for number in 0..300 {
            store
                .set_page_flags(record(number, 0).base, 63, PageFlags::READ)
                .expect("room");
        }
        let bases: Vec<u64> = (0..300).map(|number| record(number, 0).base).collect();
        store
            .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation)
            .expect("idle");
        for number in 300..600 {
            store.put_object(record(number, 64)).expect("room");
        }
        for &base in &bases[..32] {
            store.set_page_flags(base, 62, PageFlags::READ).expect("room");
            store.sync_begin(&mut world, Vec::new(), &[base]).expect("heap");
        }
        world.world.disk.set_failing(failing);
        let most = most_of(&mut store, &mut world);
        assert!(most.is_little(), "failing {failing}: {most:?}");
        assert_eq!(store.stats().objects, 601);
        for &base in &bases {
            let found = store.page_flags(&world, base, 63);
            assert_eq!(found, store::PageLookup::Zero(PageFlags::READ), "{base:#x}");
        }
    }
}

/// Reads that wait for one map node go on in pieces when it has come, by any grant, and none is forgotten.
#[test]
fn reads_that_wait_for_one_node_go_on_in_pieces() {
    for size in [1, 2_000, GRANT] {
        let (mut world, mut store) = with_objects(2);
        (0..2).for_each(|number| store.put_object(record(number, 256)).expect("room"));
        let pages: Vec<DirtyPage> = (0..2)
            .flat_map(|number| promised(&mut store, &mut world, number, 200))
            .collect();
        store
            .checkpoint_begin(&mut world, pages, CheckpointKind::Generation)
            .expect("idle");
        most_of(&mut store, &mut world);
        let mut world = world.world;
        let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
        let (mut begun, mut arrived, mut most, mut grants) = (0, 0, 0, 0);
        while arrived < 400 {
            // Others ask while some go on.
            for page in begun / 2..(begun / 2 + 20).min(200) {
                for number in 0..2 {
                    let base = record(number, 0).base;
                    assert_eq!(store.read_page(&mut world, base, page), ReadStart::Reading);
                    begun += 1;
                }
            }
            let (before, mut budget) = (store.stats().reads, Budget::of(size));
            while let Some(event) = store.poll_within(&mut world, &mut budget) {
                let Event::PageRead { frame, .. } = event else {
                    panic!("{event:?}")
                };
                world.free(frame);
                arrived += 1;
            }
            most = most.max(store.stats().reads - before);
            if begun == 400 && !store.is_stopped() {
                world.step();
            }
            grants += 1;
            assert!(grants < 20_000, "{arrived} of 400 came by grants of {size}");
        }
        assert!(most < 12, "{most} reads went on by one grant of {size}");
        assert!(store.is_idle());
    }
}

/// One event with such a grant; the disk moves when the store waits for it.
fn poll_once(store: &mut Store, world: &mut Counted, size: u64) {
    let mut budget = Budget::of(size);
    while store.poll_within(world, &mut budget).is_some() {}
    if !store.is_stopped() {
        world.world.step();
    }
}

/// However little an event grants, each one gets on: nothing is spent before that which then is too much.
#[test]
fn jobs_come_to_their_end_by_any_grant() {
    for (failing, size) in [0, 1]
        .into_iter()
        .flat_map(|failing| [1, 2_000, 6_000, 9_000, 11_920].map(|size| (failing, size)))
    {
        let (mut world, mut store) = with_objects(40);
        let pages = (0..40)
            .flat_map(|number| promised(&mut store, &mut world, number, 10))
            .collect();
        store
            .checkpoint_begin(&mut world, pages, CheckpointKind::Generation)
            .expect("idle");
        most_of(&mut store, &mut world);
        (0..10).for_each(|number| store.delete_object(record(number, 0).base).expect("room"));
        for number in 10..40 {
            let base = record(number, 0).base;
            store.discard_pages(base, 0, 8, &[]).expect("room");
            store.set_page_flags(base, 60, PageFlags::READ).expect("room");
        }
        store
            .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation)
            .expect("idle");
        (40..60).for_each(|number| store.put_object(record(number, 64)).expect("room"));
        store
            .sync_begin(&mut world, Vec::new(), &[record(50, 0).base])
            .expect("heap");
        world.world.disk.set_failing(failing);
        let mut grants = 0;
        while !store.is_idle() {
            poll_once(&mut store, &mut world, size);
            grants += 1;
            assert!(grants < 20_000, "failing {failing}: grants of {size} do not get on");
        }
    }
}

/// Rows change faster than the end of a checkpoint enters them in the table: it comes to its end all the same.
#[test]
fn a_checkpoint_ends_however_many_rows_change() {
    let (mut world, mut store) = with_objects(300);
    store
        .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation)
        .expect("idle");
    let mut grants = 0;
    while !store.is_idle() {
        for number in 0..300 {
            let tag = grants * 1000 + number;
            store
                .put_object(ObjectRecord {
                    tag,
                    ..record(number, 64)
                })
                .expect("room");
        }
        poll_once(&mut store, &mut world, GRANT);
        grants += 1;
        assert!(grants < 2000, "it does not end");
    }
    for number in 0..300 {
        let found = store.object(record(number, 64).base).expect("an object");
        assert_eq!(found.tag, (grants - 1) * 1000 + number);
    }
}

/// The pages of a failed checkpoint are promised their room again as they are taken back, not before, and no room is lost meanwhile.
#[test]
fn promises_of_a_failed_checkpoint_come_back_page_by_page() {
    let (mut world, mut store) = with_objects(1);
    let pages = promised(&mut store, &mut world, 0, 64);
    let before = store.stats().reserved;
    for &page in &pages {
        store.freeze_page(page).expect("heap");
    }
    world.world.disk.set_failing(1);
    store
        .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation)
        .expect("idle");
    while !store.is_idle() {
        if store.poll(&mut world).is_none() {
            world.world.step();
        }
    }
    // A sync may not build on what has failed while somebody does not know it.
    let base = record(0, 0).base;
    store.sync_begin(&mut world, Vec::new(), &[base]).expect("heap");
    assert!(matches!(store.poll(&mut world), Some(Event::SyncNeedsCheckpoint(_))));
    let mut left = 64;
    loop {
        // Map nodes that the first attempt has made dirty have their promises, too.
        let reserved = store.stats().reserved;
        assert!(
            (before..before + 4).contains(&reserved),
            "{reserved} of {before} with {left} pages to come"
        );
        let Some(page) = store.page_over() else { break };
        left -= 1;
        // Its promise is there: taking it back gives a block, and perhaps that of its node.
        store.unreserve(base, page.page);
        assert!(store.stats().reserved < reserved, "page {}", page.page);
        store.reserve(base, page.page).expect("room");
    }
    assert_eq!(left, 0);
}
