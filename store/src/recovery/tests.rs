//! Journals that a stranger has made, with checksums that are right.

use super::*;
use crate::checksum::Checksums;
use crate::event::{CheckpointKind, Event, PageFlags};
use crate::geometry::Geometry;
use crate::plain::PlainWorld;
use crate::superblock::Superblock;
use crate::{FormatOptions, ObjectRecord};

const BASE: u64 = 1 << 40;

/// A disk with an object of a page, and a journal of one record with this item.
fn sample(item: &Item) -> PlainWorld {
    let mut world = PlainWorld::new(2000);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    let record = ObjectRecord {
        base: BASE,
        pages: 1,
        ..ObjectRecord::default()
    };
    store.put_object(record).expect("room");
    store
        .checkpoint_begin(&mut world, alloc::vec::Vec::new(), CheckpointKind::Shutdown)
        .expect("idle");
    while !matches!(store.poll(&mut world), Some(Event::CheckpointDone { .. })) {}
    let newest = Geometry::superblock(store.stats().generation, 0);
    let (superblock, checksum) = Superblock::decode(newest, &world.disk[&newest]).expect("intact");
    let checksums = Checksums::new(superblock.key, false).expect("heap");
    let chain = Chain::new(
        superblock.generation,
        superblock.nonce,
        superblock.root_of_journal(checksum),
    );
    let mut draft = chain
        .draft(&checksums, item.bytes(), crate::journal::IsAhead::No)
        .expect("heap");
    draft.put(item);
    let start = superblock.geometry.journal_start(superblock.generation);
    while draft.sum_up(&checksums, start).is_none() {}
    for (block, piece) in (start..).zip(draft.blocks()) {
        world.disk.insert(block, piece.try_into().expect("a block"));
    }
    world
}

/// A limit further than any map reaches made a map of more levels than the table may name: the mount took it, and none could mount the store again.
#[test]
fn a_limit_beyond_all_maps_is_no_reason_to_lose_the_store() {
    for page in [1 << 20, 1 << 47, 1 << 48, 1 << 56, 1 << 63, u64::MAX] {
        let limit = Item::Limit {
            base: BASE,
            page,
            flags: PageFlags::READ,
        };
        let mut world = sample(&limit);
        let is_possible = page < 1 << 48;
        let mounted = Store::mount(&mut world, MountMode::ReadWrite);
        assert_eq!(mounted.is_ok(), is_possible, "{page:#x}");
        for mode in [MountMode::AcceptLoss, MountMode::ReadWrite] {
            let (store, _) = Store::mount(&mut world, mode).expect("it is as it was, but for that record");
            assert_eq!(store.objects().count(), 1, "{page:#x}");
        }
    }
}
