//! Promises of disk space are exact, and a checkpoint needs no more memory than it has set aside.

use sim::disk::CrashDisk;
use sim::rng::Rng;
use sim::world::SimWorld;
use store::{CheckpointKind, DirtyPage, Event, Failure, FormatOptions, Look, MountMode, ObjectRecord, Store};

const BASE: u64 = 1 << 32;
const SLOT: u64 = 2 << 20;
const OBJECTS: u64 = 64;
const PAGES: u64 = 64;

fn start(blocks: u64) -> (SimWorld, Store) {
    let mut world = SimWorld::new(CrashDisk::new(blocks, Rng::new(1)), 1 << 20, Rng::new(2));
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    (world, store)
}

/// Every page of every object, written once and promised room.
fn fill(store: &mut Store, world: &mut SimWorld) -> Vec<DirtyPage> {
    let mut dirty = Vec::new();
    for object in 0..OBJECTS {
        let base = BASE + object * SLOT;
        let record = ObjectRecord {
            base,
            pages: PAGES,
            ..ObjectRecord::default()
        };
        store.put_object(record).expect("room");
        for page in 0..PAGES {
            store.reserve(base, page).expect("room");
            dirty.push(sim::world::dirty(world, base, page, object as u8 + 1));
        }
    }
    dirty
}

fn checkpoint(store: &mut Store, world: &mut SimWorld, dirty: &[DirtyPage]) -> Result<(), Failure> {
    for &page in dirty {
        store.freeze_page(page).expect("heap");
    }
    store
        .checkpoint_begin(world, Vec::new(), CheckpointKind::Generation)
        .expect("idle");
    let mut result = None;
    while !store.is_idle() {
        match store.poll(world) {
            Some(Event::CheckpointDone { .. }) => result = Some(Ok(())),
            Some(Event::CheckpointFailed { reason }) => result = Some(Err(reason)),
            Some(_) => {}
            None => {
                world.step();
            }
        }
    }
    while store.page_over().is_some() {}
    result.expect("it ends")
}

/// What the store holds after a mount is sound and whole.
fn check(world: &mut SimWorld, store: Store) {
    store.dismantle(world);
    let (store, _) = Store::mount(world, MountMode::ReadOnly).expect("mount");
    let mut findings = Vec::new();
    let found = store
        .verify(world, &mut |finding| findings.push(finding))
        .expect("memory");
    assert_eq!((findings, found.pages), (Vec::new(), OBJECTS * PAGES));
}

/// Every frame is a dirty page. The reserve is enough, however many map nodes are to be written.
#[test]
fn a_checkpoint_needs_no_memory_but_its_reserve() {
    for spare in [0, 1, 5, 30] {
        let (mut world, mut store) = start(20_000);
        let dirty = fill(&mut store, &mut world);
        world.memory.set_limit(world.memory.used() + spare);
        assert_eq!(
            checkpoint(&mut store, &mut world, &dirty),
            Ok(()),
            "{spare} frames to spare"
        );
        world.memory.set_limit(1 << 20);
        check(&mut world, store);
    }
}

/// The same where the nodes are on the disk and must be read first, and maps have two levels.
#[test]
fn a_checkpoint_reads_its_nodes_into_the_reserve() {
    let (mut world, mut store) = start(40_000);
    for object in 0..OBJECTS {
        let record = ObjectRecord {
            base: BASE + object * SLOT,
            pages: 512,
            ..ObjectRecord::default()
        };
        store.put_object(record).expect("room");
    }
    let every = |world: &mut SimWorld, stamp: u8| -> Vec<DirtyPage> {
        let pages = (0..OBJECTS).flat_map(|object| [3, 300].map(|page| (BASE + object * SLOT, page)));
        pages
            .map(|(base, page)| sim::world::dirty(world, base, page, stamp))
            .collect()
    };
    let dirty = every(&mut world, 1);
    assert_eq!(checkpoint(&mut store, &mut world, &dirty), Ok(()));
    while store.shrink(&mut world) != Look::Over {}
    let dirty = every(&mut world, 2);
    world.memory.set_limit(world.memory.used());
    assert_eq!(checkpoint(&mut store, &mut world, &dirty), Ok(()));
    world.memory.set_limit(1 << 20);
    store.dismantle(&mut world);
    let (store, _) = Store::mount(&mut world, MountMode::ReadOnly).expect("mount");
    let mut findings = Vec::new();
    let found = store
        .verify(&mut world, &mut |finding| findings.push(finding))
        .expect("memory");
    assert_eq!((findings, found.pages), (Vec::new(), OBJECTS * 2));
}

/// Objects whose maps have many nodes, some of them in memory and not on the disk, are deleted while memory is short: nodes are given up while
/// the maps are taken down, and read again.
#[test]
fn a_deletion_without_memory_leaves_nothing_behind() {
    const WIDE: u64 = 20;
    // Pages of all parts of a map of three levels, and of one of four.
    let page = |level: u32, number: u64| (number / WIDE) << (8 * level) | (number % WIDE) << 8;
    let free = [1 << 20, 0].map(|spare| {
        let (mut world, mut store) = start(40_000);
        let objects = [(BASE << 4, 2), (BASE << 5, 3)];
        let dirty = |world: &mut SimWorld, numbers: u64| -> Vec<DirtyPage> {
            let all = objects
                .iter()
                .flat_map(|object| (0..numbers).map(move |number| (object, number)));
            all.map(|(&(base, level), number)| sim::world::dirty(world, base, page(level, number), 0))
                .collect()
        };
        for (base, level) in objects {
            let record = ObjectRecord {
                base,
                pages: WIDE << (8 * level),
                ..ObjectRecord::default()
            };
            store.put_object(record).expect("room");
        }
        let pages = dirty(&mut world, WIDE * WIDE);
        assert_eq!(checkpoint(&mut store, &mut world, &pages), Ok(()));
        while store.shrink(&mut world) != Look::Over {}
        let pages = dirty(&mut world, 2);
        store.sync_begin(&mut world, pages, &[]).expect("heap");
        while !store.is_idle() {
            if store.poll(&mut world).is_none() {
                world.step();
            }
        }
        for (base, _) in objects {
            store.delete_object(base).expect("it is there");
        }
        world.memory.set_limit(world.memory.used() + spare);
        assert_eq!(
            checkpoint(&mut store, &mut world, &[]),
            Ok(()),
            "{spare} frames to spare"
        );
        world.memory.set_limit(1 << 20);
        assert_eq!(checkpoint(&mut store, &mut world, &[]), Ok(()));
        assert_eq!(store.stats().damaged, 0, "{spare} frames to spare");
        let free = store.stats().free;
        store.dismantle(&mut world);
        let (store, _) = Store::mount(&mut world, MountMode::ReadOnly).expect("mount");
        let mut findings = Vec::new();
        store
            .verify(&mut world, &mut |finding| findings.push(finding))
            .expect("memory");
        assert_eq!(findings, [], "{spare} frames to spare");
        free
    });
    assert_eq!(free[0], free[1], "blocks are lost");
}

#[test]
fn failing_checkpoints_use_up_no_room() {
    let (mut world, mut store) = start(10_000);
    let dirty = fill(&mut store, &mut world);
    let before = store.stats();
    for round in 0..20 {
        world.disk.set_failing(40);
        if checkpoint(&mut store, &mut world, &dirty).is_ok() {
            // It does not matter which; written again, the pages need as much room.
            for page in &dirty {
                store.reserve(page.base, page.page).expect("room");
            }
        }
        let now = store.stats();
        let taken = before.free - now.free;
        assert!(taken <= 3 * OBJECTS * (PAGES + 2), "round {round}: {now:?}");
        assert!(now.reserved <= before.reserved + 3 * OBJECTS, "round {round}: {now:?}");
    }
    world.disk.set_failing(0);
    assert_eq!(checkpoint(&mut store, &mut world, &dirty), Ok(()));
    check(&mut world, store);
}

/// Objects that go while a checkpoint fails take their promises along.
#[test]
fn what_is_deleted_meanwhile_is_promised_nothing() {
    let (mut world, mut store) = start(20_000);
    let empty = store.stats().reserved;
    let dirty = fill(&mut store, &mut world);
    for &page in &dirty {
        store.freeze_page(page).expect("heap");
    }
    store
        .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation)
        .expect("idle");
    world.disk.set_failing(1);
    for object in 0..OBJECTS {
        store.delete_object(BASE + object * SLOT).expect("it is there");
    }
    while !store.is_idle() {
        if store.poll(&mut world).is_none() {
            world.step();
        }
    }
    while store.page_over().is_some() {}
    world.disk.set_failing(0);
    let now = store.stats().reserved;
    assert!(
        now <= empty + OBJECTS,
        "{now} blocks are promised to nobody; {empty} were"
    );
    assert_eq!(checkpoint(&mut store, &mut world, &[]), Ok(()));
    assert_eq!(store.stats().reserved, empty);
}
