//! Work by small grants: what waits for the disk asks for all that it needs, and then leaves nothing to be done.

use sim::disk::CrashDisk;
use sim::rng::Rng;
use sim::world::SimWorld;
use store::{
    CheckpointKind, DirtyPage, Event, FormatOptions, MountMode, ObjectRecord, PageFlags, Pages, ReadStart, Store,
};

const BASE: u64 = 1 << 32;
const BLOCKS: u64 = 1 << 18;
const PAGES: u64 = 65536;
/// Pages so far apart that each has a node of its own, and how many of them there are.
const APART: u64 = 1024;
const COUNT: usize = (PAGES / APART) as usize;
/// What the server grants for an event.
const GRANT: u64 = 165;
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
    store.put_object(&object).expect("put");
    let all = dirty(&mut world);
    store
        .checkpoint_begin(&mut world, all, CheckpointKind::Periodic)
        .expect("idle");
    finish(&mut store, &mut world);
    let (store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    (world, store)
}

fn dirty(world: &mut SimWorld) -> Vec<DirtyPage> {
    let page = |page| DirtyPage {
        base: BASE,
        page,
        frame: world.alloc().expect("memory"),
        flags: PageFlags::empty(),
    };
    (0..PAGES).step_by(APART as usize).map(page).collect()
}

/// One grant, and the events that came.
fn grant(store: &mut Store, world: &mut SimWorld) {
    store.allow(GRANT);
    while let Some(event) = store.poll(world) {
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
            .checkpoint_begin(world, pages, CheckpointKind::Periodic)
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
