//! A disk whose bitmap has several blocks: what is allocated beyond the first one's reach is known again after a mount, and what was freed
//! is used again.

mod plain;

use plain::PlainWorld;
use store::{
    BLOCK, CheckpointKind, DirtyPage, Disk, DiskError, Event, FormatOptions, Frame, MountMode, ObjectRecord, Operation,
    PageFlags, Pages, QueueFull, Random, Request, Store,
};

const BASE: u64 = 1 << 40;
/// Two and a half blocks of the bitmap.
const BLOCKS: u64 = 80_000;
const PAGES: u64 = 60_000;

fn mount(world: &mut PlainWorld) -> Store {
    let (store, report) = Store::mount(world, MountMode::ReadWrite).expect("mount");
    assert_eq!(report.replayed, 0, "{report:?}");
    store
}

fn checkpoint(world: &mut PlainWorld, store: &mut Store, pages: Vec<DirtyPage>) {
    store
        .checkpoint_begin(world, pages, CheckpointKind::Generation)
        .expect("idle");
    while let Some(event) = store.poll(world) {
        assert!(!matches!(event, Event::CheckpointFailed { .. }), "{event:?}");
    }
    while store.page_over().is_some() {}
}

/// Writes pages, all with one content.
fn write(world: &mut PlainWorld, store: &mut Store, pages: core::ops::Range<u64>, stamp: u8) {
    let frame = world.alloc().expect("memory");
    *world.bytes_mut(frame) = [stamp; BLOCK];
    let all: Vec<u64> = pages.collect();
    for piece in all.chunks(5000) {
        store
            .reserve_run(BASE, 1, piece[0], piece[piece.len() - 1] + 1)
            .expect("room");
        let dirty = |&page: &u64| DirtyPage {
            base: BASE,
            page,
            frame,
            flags: PageFlags::READ,
        };
        checkpoint(world, store, piece.iter().map(dirty).collect());
    }
}

/// Takes the store down and mounts it again: it knows what it knew, and nothing is wrong.
fn again(world: &mut PlainWorld, store: Store, pages: u64) -> Store {
    let before = store.stats();
    store.dismantle(world);
    let store = mount(world);
    let after = store.stats();
    assert_eq!(after.free + after.held, before.free + before.held);
    let mut findings = Vec::new();
    let found = store
        .verify(world, &mut |finding| findings.push(finding))
        .expect("memory");
    assert_eq!((findings, found.pages), (Vec::new(), pages));
    store
}

#[test]
fn all_blocks_of_the_bitmap_come_back() {
    let mut world = PlainWorld::new(BLOCKS);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let mut store = mount(&mut world);
    let record = ObjectRecord {
        base: BASE,
        pages: PAGES,
        ..ObjectRecord::default()
    };
    store.put_object(record).expect("room");
    write(&mut world, &mut store, 0..PAGES, 1);
    let mut store = again(&mut world, store, PAGES);
    // The disk is nearly full: the next pages go where others have gone.
    store.discard_pages(BASE, 0, PAGES - 5000, &[]).expect("heap");
    (0..3).for_each(|_| checkpoint(&mut world, &mut store, Vec::new()));
    let mut store = again(&mut world, store, 5000);
    write(&mut world, &mut store, 0..PAGES - 10_000, 2);
    again(&mut world, store, PAGES - 5000);
}
