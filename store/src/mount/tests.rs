//! Tables that a stranger has made, with checksums that are right.

use super::*;
use crate::plain::PlainWorld;
use crate::superblock::Place;
use crate::table_loading::HEIGHT_MAX;
use crate::world::BLOCK;
use crate::{FormatOptions, ObjectRecord, Operation};
use alloc::vec;

const BLOCKS: u64 = 2000;
/// Blocks that nobody uses.
const INNER: u64 = 1500;
const LEAF: u64 = 1501;
/// Bytes of a row before its overflow blocks.
const ROW: usize = 85;
/// Children of an inner node.
const CHILDREN: usize = 170;

/// A disk with an object whose record does not fit into its leaf, and the superblock that leads to it.
fn sample() -> (PlainWorld, u64, Superblock) {
    let mut world = PlainWorld::new(BLOCKS);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    let record = ObjectRecord {
        base: 1 << 40,
        pages: 1,
        capabilities: vec![(1, 15); 128],
        ..ObjectRecord::default()
    };
    store.put_object(record).expect("room");
    store
        .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Shutdown)
        .expect("idle");
    while !matches!(store.poll(&mut world), Some(Event::CheckpointDone { .. })) {}
    let newest = Geometry::superblock(store.stats().generation, 0);
    let (superblock, _) = Superblock::decode(newest, &world.disk[&newest]).expect("intact");
    (world, newest, superblock)
}

/// Writes a block, and gives its place.
fn put(world: &mut PlainWorld, superblock: &Superblock, block: u64, bytes: &[u8]) -> Place {
    let mut whole = [0; BLOCK];
    whole[..bytes.len()].copy_from_slice(bytes);
    world.disk.insert(block, whole);
    let checksums = Checksums::new(superblock.key, false).expect("heap");
    let checksum = checksums.of(block, &whole);
    Place { block, checksum }
}

/// An inner node with these children, each with its smallest key.
fn inner(children: &[(u64, Place)]) -> Vec<u8> {
    let mut bytes = b"GINN".to_vec();
    bytes.extend((children.len() as u32).to_le_bytes());
    for (key, child) in children {
        for word in [*key, child.block, child.checksum] {
            bytes.extend(word.to_le_bytes());
        }
    }
    bytes
}

/// Mounts a store with this table; tells the error, and how many blocks were read.
fn mount(mut world: PlainWorld, newest: u64, superblock: &Superblock) -> (Option<MountError>, usize) {
    for block in [newest, newest + 1] {
        superblock.encode(block, world.disk.entry(block).or_insert([0; BLOCK]));
    }
    world.log.clear();
    let error = Store::mount(&mut world, MountMode::ReadOnly).err();
    let reads = world.log.iter().filter(|(operation, _)| *operation == Operation::Read);
    (error, reads.count())
}

#[test]
fn a_leaf_with_two_parents_is_refused_before_it_is_read_twice() {
    let (mut world, newest, mut superblock) = sample();
    let leaf = superblock.table;
    let children: Vec<_> = (0..CHILDREN as u64).map(|key| (key, leaf)).collect();
    let inner = inner(&children);
    superblock.table = put(&mut world, &superblock, INNER, &inner);
    superblock.objects = CHILDREN as u64;
    let (error, reads) = mount(world, newest, &superblock);
    assert_eq!(error, Some(MountError::Damaged(Structure::Table, leaf.block)));
    assert!(reads < 40, "{reads} blocks were read");
}

#[test]
fn a_body_with_two_rows_is_refused_before_it_is_read_twice() {
    let (mut world, newest, mut superblock) = sample();
    let leaf = world.disk[&superblock.table.block];
    let length = u32::from_le_bytes(leaf[8 + ROW - 4..8 + ROW].try_into().expect("four bytes")) as usize;
    let row = &leaf[8..8 + ROW + 16 * length.div_ceil(BLOCK)];
    let rows = (BLOCK - 8) / row.len();
    let mut many = b"GLEF".to_vec();
    many.extend((rows as u32).to_le_bytes());
    for number in 0..rows as u64 {
        many.extend(((1 << 40) + (number << 21)).to_le_bytes());
        many.extend(&row[8..]);
    }
    superblock.table = put(&mut world, &superblock, LEAF, &many);
    superblock.objects = rows as u64;
    let (error, reads) = mount(world, newest, &superblock);
    assert!(
        matches!(error, Some(MountError::Damaged(Structure::Table, block)) if block != LEAF),
        "{error:?}"
    );
    assert!(reads < 30, "{reads} blocks were read");
}

#[test]
fn leaves_at_different_depths_are_refused() {
    for deep_first in [false, true] {
        let (mut world, newest, mut superblock) = sample();
        let low = superblock.table;
        let leaf = world.disk[&low.block];
        let high = put(&mut world, &superblock, LEAF, &leaf);
        let between = put(&mut world, &superblock, INNER, &inner(&[(0, low)]));
        let children = if deep_first { [between, high] } else { [high, between] };
        let root = inner(&[(0, children[0]), (1, children[1])]);
        superblock.table = put(&mut world, &superblock, INNER + 10, &root);
        let (error, _) = mount(world, newest, &superblock);
        // The first one says what all are; the other is named.
        let named = if deep_first { LEAF } else { INNER };
        assert_eq!(error, Some(MountError::Damaged(Structure::Table, named)));
    }
}

#[test]
fn a_table_that_is_too_high_is_refused() {
    for (above, is_refused) in [(HEIGHT_MAX - 1, false), (HEIGHT_MAX, true)] {
        let (mut world, newest, mut superblock) = sample();
        for level in 0..above as u64 {
            let node = inner(&[(0, superblock.table)]);
            superblock.table = put(&mut world, &superblock, INNER + level, &node);
        }
        let root = superblock.table.block;
        let (error, _) = mount(world, newest, &superblock);
        let refused = MountError::Damaged(Structure::Table, root);
        assert_eq!(error, is_refused.then_some(refused), "{above} levels above the leaf");
    }
}

/// The generation before the newest one is found by its number: blocks that only it needs are not used again yet.
#[test]
fn the_generation_before_is_found() {
    let (mut world, _, superblock) = sample();
    let found = find_superblocks(&mut world, MountMode::ReadOnly).expect("a store");
    let before = found.previous.map(|previous| previous.0.generation);
    assert_eq!(
        (found.current.generation, before),
        (superblock.generation, Some(superblock.generation - 1))
    );
}

#[test]
fn unknown_features_are_refused_by_name() {
    let (world, newest, superblock) = sample();
    let with = |at: usize, bits: u64| {
        let mut changed = PlainWorld::new(BLOCKS);
        for (&block, bytes) in &world.disk {
            let mut bytes = *bytes;
            if block / 2 == newest / 2 {
                bytes[at..at + 8].copy_from_slice(&bits.to_le_bytes());
                let sum = superblock.key.checksum(newest & !1, &bytes[..BLOCK - 8]);
                bytes[BLOCK - 8..].copy_from_slice(&sum.to_le_bytes());
            }
            changed.disk.insert(block, bytes);
        }
        changed
    };
    let mount = |mut world: PlainWorld, mode| Store::mount(&mut world, mode).map(|_| ());
    for mode in [MountMode::ReadOnly, MountMode::ReadWrite, MountMode::AcceptLoss] {
        assert_eq!(mount(with(2160, 1 << 40), mode), Err(MountError::Features(1 << 40)));
        let to_write = if mode == MountMode::ReadOnly {
            Ok(())
        } else {
            Err(MountError::Features(2))
        };
        assert_eq!(mount(with(2168, 2), mode), to_write);
        assert_eq!(mount(with(2160, 0), mode), Ok(()));
    }
}

/// The blocks that a mount reads, and how many rows there are then, and in memory.
fn rows_in_parts(world: &mut PlainWorld, mode: MountMode) -> (usize, u64, usize) {
    world.log.clear();
    let (store, _) = Store::mount_in_parts(world, mode, Leaves::AsNeeded(2)).expect("mount");
    let reads = world.log.iter().filter(|(operation, _)| *operation == Operation::Read);
    (reads.count(), store.stats().objects, store.objects().count())
}

/// An image whose parents tell nothing of their leaves is read as it is, all leaves once. The first mount for writing makes one of it that tells.
#[test]
fn leaves_that_are_not_told_of_are_read_once() {
    const OBJECTS: u64 = 400;
    let (mut world, _, _) = sample();
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    for number in 1..OBJECTS {
        let record = ObjectRecord {
            base: (1 << 40) + (number << 21),
            pages: 1,
            birth: number,
            ..ObjectRecord::default()
        };
        store.put_object(record).expect("room");
    }
    store
        .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Shutdown)
        .expect("idle");
    while !matches!(store.poll(&mut world), Some(Event::CheckpointDone { .. })) {}
    let sums = store.sums();
    let newest = Geometry::superblock(store.stats().generation, 0);
    let (mut superblock, _) = Superblock::decode(newest, &world.disk[&newest]).expect("intact");
    let (few, objects, in_memory) = rows_in_parts(&mut world, MountMode::ReadOnly);
    assert_eq!((objects, in_memory), (OBJECTS, 0));
    // As an older system would have written it.
    let mut root = world.disk[&superblock.table.block];
    let children = u32::from_le_bytes(root[4..8].try_into().expect("four bytes")) as usize;
    for child in 0..children {
        root[8 + 24 * child + 14..][..2].fill(0);
    }
    superblock.table = put(&mut world, &superblock, INNER, &root);
    superblock.leaves_are_told = false;
    superblock.totals = crate::sums::Totals::default();
    for block in [newest, newest + 1] {
        superblock.encode(block, world.disk.entry(block).or_insert([0; BLOCK]));
    }
    let (many, objects, in_memory) = rows_in_parts(&mut world, MountMode::ReadOnly);
    assert_eq!((objects, in_memory), (OBJECTS, 0));
    assert!(
        many >= few + children,
        "{few} blocks were read before, {many} now, and there are {children} leaves"
    );
    rows_in_parts(&mut world, MountMode::ReadWrite);
    let told = rows_in_parts(&mut world, MountMode::ReadOnly);
    assert!(told.0 <= few + 2, "{few} blocks were read at first, {} now", told.0);
    let (store, _) = Store::mount(&mut world, MountMode::ReadOnly).expect("mount");
    assert_eq!(
        (store.sums(), store.births(), store.objects().count() as u64),
        (sums, OBJECTS, OBJECTS)
    );
}
