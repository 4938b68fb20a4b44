//! Disks with snapshots, and what stands on them, for tests that keep some and look at them later.

use super::plain::PlainWorld;
use std::collections::BTreeMap;
use store::{BLOCK, ObjectRecord, SnapshotName};

/// The blocks of a disk that were written.
pub type Medium = BTreeMap<u64, [u8; BLOCK]>;
/// Each object, and the first bytes of its pages; none for one that cannot be read.
pub type State = BTreeMap<u64, Vec<Option<u8>>>;

/// The name of a snapshot.
pub fn name(text: &str) -> SnapshotName {
    SnapshotName::new(text).expect("a name")
}

/// An object with one password.
pub fn record(base: u64, pages: u64) -> ObjectRecord {
    ObjectRecord {
        base,
        pages,
        account: 2,
        capabilities: vec![(base, 15)],
        ..ObjectRecord::default()
    }
}

/// A world with such a disk.
pub fn on(medium: &Medium, blocks: u64) -> PlainWorld {
    let mut world = PlainWorld::new(blocks);
    world.disk.clone_from(medium);
    world
}
