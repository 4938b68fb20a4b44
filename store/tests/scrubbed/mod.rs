//! Stores that a scrub looks at, and what it names, for tests of the present state and of snapshots.

use super::plain::PlainWorld;
use store::{
    CheckpointKind, DirtyPage, Disk, Event, Finding, FormatOptions, Leaves, MountMode, ObjectRecord, Pages, Store,
    Structure,
};

/// The large object, its pages, and those with contents: three levels, several nodes.
pub const LARGE: u64 = 1 << 32;
pub const PAGES: u64 = 70_000;
pub const WRITTEN: [u64; 6] = [0, 1, 255, 256, 600, 69_999];
/// Copies of superblocks, which a pass looks at, too.
pub const COPIES: u64 = 4;

/// What an event of damage says: structure, block, object, page, generation of the snapshot.
pub type Named = (Structure, u64, u64, u64, u64);

/// The base of a small object.
pub fn slot(number: u64) -> u64 {
    LARGE + ((number + 200) << 21)
}

pub fn record(base: u64, pages: u64, capabilities: usize) -> ObjectRecord {
    ObjectRecord {
        base,
        pages,
        capabilities: (0..capabilities as u64).map(|at| (at, 15)).collect(),
        ..ObjectRecord::default()
    }
}

/// A blank store.
pub fn formatted(blocks: u64) -> (PlainWorld, Store) {
    let mut world = PlainWorld::new(blocks);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    (world, store)
}

/// The large object and so many small ones, some with bodies beside their rows.
pub fn fill(store: &mut Store, world: &mut PlainWorld, objects: u64) {
    store.put_object(record(LARGE, PAGES, 2)).expect("room");
    for number in 0..objects {
        let capabilities = if number % 40 == 7 { 128 } else { 3 };
        store.put_object(record(slot(number), 2, capabilities)).expect("room");
    }
    let mut dirty: Vec<_> = WRITTEN.into_iter().map(|page| world.dirty(LARGE, page, 1)).collect();
    dirty.extend((0..objects).map(|number| world.dirty(slot(number), number % 2, 2)));
    generation(store, world, dirty);
}

/// Lets the store come to rest; tells what was named as damaged.
pub fn finish(store: &mut Store, world: &mut PlainWorld) -> Vec<Named> {
    let mut named = Vec::new();
    loop {
        match store.poll(world) {
            Some(Event::PageWritten { frame, .. }) => world.free(frame),
            Some(Event::Damaged {
                structure,
                block,
                base,
                page,
                snapshot,
            }) => named.push((structure, block, base, page, snapshot)),
            Some(Event::CheckpointFailed { reason }) => panic!("{reason:?}"),
            None if store.is_idle() => {
                while store.page_over().is_some() {}
                return named;
            }
            Some(_) | None => {}
        }
    }
}

pub fn checkpoint(
    store: &mut Store,
    world: &mut PlainWorld,
    dirty: Vec<DirtyPage>,
    kind: CheckpointKind,
) -> Vec<Named> {
    store.checkpoint_begin(world, dirty, kind).expect("idle");
    finish(store, world)
}

/// A checkpoint that makes a generation, in which nothing is damaged.
pub fn generation(store: &mut Store, world: &mut PlainWorld, dirty: Vec<DirtyPage>) {
    assert_eq!(checkpoint(store, world, dirty, CheckpointKind::Generation), []);
}

pub fn mount(mut world: PlainWorld, leaves: Leaves) -> Option<(PlainWorld, Store)> {
    let (store, _) = Store::mount_in_parts(&mut world, MountMode::ReadOnly, leaves).ok()?;
    Some((world, store))
}

/// Runs a pass with a few blocks at a time; tells what it named.
pub fn pass(world: &mut PlainWorld, store: &mut Store) -> Vec<Named> {
    let passes = store.scrub_report().passes;
    store.scrub_begin();
    let mut named = Vec::new();
    for _ in 0..10_000 {
        if store.scrub_report().passes > passes {
            return named;
        }
        let before = world.log.len();
        store.scrub_some(3);
        named.extend(finish(store, world));
        // Each is read twice at most, and a leaf with the bodies of its rows.
        assert!(world.log.len() - before <= 12, "{} requests", world.log.len() - before);
    }
    panic!("the pass does not end: {:?}", store.scrub_report());
}

/// What a check finds damaged.
pub fn verified(store: &Store, world: &mut PlainWorld) -> Vec<(Structure, u64, u64, u64)> {
    let mut found = Vec::new();
    let told = store.verify(world, &mut |finding| {
        if let Finding::Damaged {
            structure,
            block,
            base,
            page,
            ..
        } = finding
        {
            found.push((structure, block, base, page));
        }
    });
    told.expect("memory");
    found
}

/// A pass reads some blocks, which are on their way in some rounds, and meanwhile the state changes: gives the pages to be written.
pub fn change_meanwhile(
    store: &mut Store,
    world: &mut PlainWorld,
    round: u64,
    (some, objects): (u64, u64),
) -> Vec<DirtyPage> {
    store.scrub_begin();
    // A block that is on its way stays there until all has changed.
    world.held = if round.is_multiple_of(3) {
        0..world.blocks()
    } else {
        0..0
    };
    store.scrub_some(1 + round % some);
    while store.poll(world).is_some() {}
    world.held = 0..0;
    let number = round * 7 % objects;
    match round % 11 {
        4 => drop(store.discard_pages(slot(number), 0, 2, &[])),
        5 if store.delete_object(slot(number)).is_ok() => {}
        6 => drop(store.put_object(record(slot(number), 2, 3))),
        _ => {}
    }
    let mut dirty = vec![world.dirty(LARGE, WRITTEN[(round % 6) as usize], round as u8)];
    if store.object(slot(number)).is_some() {
        dirty.push(world.dirty(slot(number), 1, round as u8));
    }
    dirty
}
