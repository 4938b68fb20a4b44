//! Our store does the work of each row, and its world counts what the rows of `docs/benchmarks.md` say.

use std::path::PathBuf;
use store_bench::{Counts, Engine, Own, PAGE, Row, Size, filled, measured, verified};

/// A file that goes with the test.
struct Disk(PathBuf);

impl Disk {
    fn filled(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("store-bench-{}-{name}", std::process::id()));
        let disk = Self(path);
        let mut own = Box::new(Own::create(&disk.0, Size::Small.pages()).unwrap());
        filled(own.as_mut(), Size::Small).unwrap();
        own.close().unwrap();
        disk
    }

    fn open(&self) -> Box<Own> {
        Box::new(Own::open(&self.0).unwrap())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The requests of all turns of a row, how many turns there were, and how many generations were made.
fn counted(row: Row) -> (Counts, u64, u64) {
    let disk = Disk::filled(row.name());
    let mut own = disk.open();
    let (before, generation) = (own.counts().unwrap(), own.generation());
    let mut marks = 0;
    let done = measured(own.as_mut(), row, Size::Small, 3, &mut || marks += 1).unwrap();
    let counts = own.counts().unwrap().since(before);
    let generations = own.generation() - generation;
    own.close().unwrap();
    let sum = verified(disk.open().as_mut(), row, Size::Small, 3).unwrap();
    assert_eq!(sum != 0, !row.reads() && row != Row::CreateDelete);
    assert_eq!(done.sum != 0, row.reads() || row == Row::CreateDelete);
    // Another round has left something else, or has read something else.
    assert!(row.payload().is_none() || row.reads() || verified(disk.open().as_mut(), row, Size::Small, 4).is_err());
    (counts, marks - 1, generations)
}

fn written(blocks: u64, flushes: u64) -> (u64, u64, u64) {
    (blocks, blocks * PAGE as u64, flushes)
}

fn writes(counts: Counts) -> (u64, u64, u64) {
    (counts.writes, counts.written, counts.flushes)
}

#[test]
fn a_page_is_two_blocks_and_a_flush() {
    let (counts, turns, generations) = counted(Row::Sync1);
    assert_eq!((turns, generations), (100, 0));
    assert_eq!(writes(counts), written(2 * turns, turns));
}

/// So many blocks were written and flushed, up to sixteen with one request.
fn are_together(counts: Counts, blocks: u64, flushes: u64) {
    assert_eq!((counts.written, counts.flushes), (blocks * PAGE as u64, flushes));
    assert!(counts.writes <= blocks / 14, "{counts:?}");
}

#[test]
fn a_mebibyte_is_its_pages_three_blocks_and_a_flush() {
    let (counts, turns, generations) = counted(Row::Sync256);
    assert_eq!((turns, generations), (8, 0));
    are_together(counts, 259 * turns, turns);
}

/// As long as few blocks wait to be free, and few map nodes have changed.
#[test]
fn a_checkpoint_of_random_pages_is_as_cheap() {
    let (counts, turns, generations) = counted(Row::Checkpoint256);
    assert_eq!((turns, generations), (8, 0));
    are_together(counts, 259 * turns, turns);
}

#[test]
fn each_page_is_read_once() {
    for row in [Row::Scan, Row::Probe] {
        let (counts, _, generations) = counted(row);
        let pages = if row == Row::Scan { 1024 } else { 500 };
        assert_eq!((writes(counts), generations), (written(0, 0), 0));
        // The nodes of the map besides: 16 leaves at most, and the root.
        assert!((pages..=pages + 17).contains(&counts.reads), "{counts:?}");
        assert_eq!(counts.read, counts.reads * PAGE as u64);
    }
}

#[test]
fn small_records_come_and_go_by_generations() {
    let (counts, turns, generations) = counted(Row::CreateDelete);
    assert_eq!((turns, generations, counts.flushes), (3, 6, 12));
}
