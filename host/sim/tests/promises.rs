//! Promises of disk space are exact, and a checkpoint needs no more memory than it has set aside.

use sim::disk::CrashDisk;
use sim::rng::Rng;
use sim::world::SimWorld;
use store::{
    CheckpointKind, DirtyPage, Event, Failure, FormatOptions, MountMode, ObjectRecord, PageFlags, Pages, Store,
};

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
        store.put_object(&record).expect("room");
        for page in 0..PAGES {
            store.reserve(base, page).expect("room");
            let frame = world.alloc().expect("memory");
            world.bytes_mut(frame).fill(object as u8 + 1);
            dirty.push(DirtyPage {
                base,
                page,
                frame,
                flags: PageFlags::READ,
            });
        }
    }
    dirty
}

fn checkpoint(store: &mut Store, world: &mut SimWorld, dirty: &[DirtyPage]) -> Result<(), Failure> {
    for &page in dirty {
        store.freeze_page(page).expect("heap");
    }
    store
        .checkpoint_begin(world, Vec::new(), CheckpointKind::Periodic)
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

#[test]
fn failing_checkpoints_leak_no_room() {
    let (mut world, mut store) = start(20_000);
    let dirty = fill(&mut store, &mut world);
    world.memory.set_limit(world.memory.used() + 30);
    for round in 0..20 {
        let result = checkpoint(&mut store, &mut world, &dirty);
        println!("{round}: {result:?} {:?}", store.stats());
    }
}
