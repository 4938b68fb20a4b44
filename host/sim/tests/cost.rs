//! What durability costs, in blocks written: logical bytes written for each byte committed.
//!
//! `cargo test -p sim --test cost -- --nocapture` prints the figures.

#![allow(clippy::cast_precision_loss, reason = "the figures are small")]

use sim::disk::CrashDisk;
use sim::rng::Rng;
use sim::world::SimWorld;
use std::time::Instant;
use store::{CheckpointKind, DirtyPage, Event, FormatOptions, MountMode, ObjectRecord, PageFlags, Pages, Store};

const BASE: u64 = 1 << 32;
/// 1 GiB.
const BLOCKS: u64 = 1 << 18;
const ROUNDS: u64 = 100;

fn finish(store: &mut Store, world: &mut SimWorld) {
    while !store.is_idle() {
        match store.poll(world) {
            Some(Event::PageWritten { frame, .. }) => world.free(frame),
            Some(Event::CheckpointDone { .. } | Event::SyncDone(_)) => {}
            Some(other) => panic!("{other:?}"),
            None => {
                world.step();
            }
        }
    }
}

fn start() -> (SimWorld, Store) {
    let mut world = SimWorld::new(CrashDisk::new(BLOCKS, Rng::new(1)), 4000, Rng::new(2));
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    store
        .put_object(ObjectRecord {
            base: BASE,
            pages: 65536,
            ..ObjectRecord::default()
        })
        .expect("put");
    let all = (0..65536).step_by(16).map(|page| dirty(&mut world, page)).collect();
    store
        .checkpoint_begin(&mut world, all, CheckpointKind::Generation)
        .expect("idle");
    finish(&mut store, &mut world);
    (world, store)
}

fn dirty(world: &mut SimWorld, page: u64) -> DirtyPage {
    world.memory.set_limit(1 << 20);
    DirtyPage {
        flags: PageFlags::empty(),
        ..sim::world::dirty(world, BASE, page, 0)
    }
}

#[derive(Copy, Clone, PartialEq)]
enum Way {
    Sync,
    Checkpoint,
}

/// Blocks written for each page committed, `pages` random pages at a time, and flushes per commit.
fn cost(pages: u64, way: Way) -> (f64, f64) {
    let (mut world, mut store) = start();
    let mut rng = Rng::new(pages);
    let before = store.stats();
    for _ in 0..ROUNDS {
        let chosen: std::collections::BTreeSet<u64> = (0..pages).map(|_| rng.below(65536)).collect();
        let list: Vec<DirtyPage> = chosen.into_iter().map(|page| dirty(&mut world, page)).collect();
        if way == Way::Sync {
            store.sync_begin(&mut world, list, &[]).expect("heap");
        } else {
            store
                .checkpoint_begin(&mut world, list, CheckpointKind::Generation)
                .expect("idle");
        }
        finish(&mut store, &mut world);
    }
    let after = store.stats();
    let committed = (pages * ROUNDS) as f64;
    (
        (after.writes - before.writes) as f64 / committed,
        (after.flushes - before.flushes) as f64 / ROUNDS as f64,
    )
}

#[test]
fn a_commit_writes_little_more_than_it_commits() {
    println!("written per byte committed (random pages of a 256 MiB object, 1 GiB disk), flushes per commit");
    for (pages, way, name, limit) in [
        (1, Way::Sync, "sync        1 x 4 KiB", 2.01),
        (256, Way::Sync, "sync      256 x 4 KiB", 1.02),
        (1, Way::Checkpoint, "checkpoint  1 x 4 KiB", 9.0),
        (256, Way::Checkpoint, "checkpoint 256 x 4 KiB", 2.0),
    ] {
        let (ratio, flushes) = cost(pages, way);
        println!("{name:<24}{ratio:6.2}{flushes:6.2}");
        assert!(ratio <= limit, "{name}: {ratio}");
    }
}

#[test]
fn a_large_disk_is_formatted_and_mounted_at_once() {
    for blocks in [1 << 18, 1 << 28] {
        let mut world = SimWorld::new(CrashDisk::new(blocks, Rng::new(1)), 4000, Rng::new(2));
        let begin = Instant::now();
        Store::format(&mut world, &FormatOptions::default()).expect("format");
        let formatted = begin.elapsed();
        let written = world.disk.written;
        let begin = Instant::now();
        let (store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
        println!(
            "{:5} GiB: format {formatted:?}, {written} blocks; mount {:?}, {} blocks read, {} written",
            blocks >> 18,
            begin.elapsed(),
            store.stats().reads,
            world.disk.written - written
        );
        assert!(written <= 6 && world.disk.written - written < 20);
        assert!(blocks > 1 << 18 || begin.elapsed().as_millis() < 50);
    }
}
