//! Jobs get on however little they are given at a time.

use sim::disk::CrashDisk;
use sim::rng::Rng;
use sim::world::{SimWorld, dirty};
use store::{Budget, CheckpointKind, Event, FormatOptions, MountMode, ObjectRecord, Pages, Store};

const BASE: u64 = 1 << 40;
/// Budgets of a poll: the server's whole one, and two that other work has taken a part of.
const GRANTS: [u64; 3] = [12_000, 10_000, 9_000];
/// More than any job of these needs.
const POLLS_MAX: usize = 20_000;

/// Polls until nothing is left to do.
fn finish(store: &mut Store, world: &mut SimWorld, grant: u64) {
    let mut polls = 0;
    while !store.is_idle() {
        polls += 1;
        assert!(polls < POLLS_MAX, "it does not end with {grant} at a time");
        let mut budget = Budget::of(grant);
        while let Some(event) = store.poll_within(world, &mut budget) {
            if let Event::PageWritten { frame, .. } = event {
                world.free(frame);
            }
        }
        while world.step() {}
    }
    while store.page_over().is_some() {}
}

/// The map of an object has a node for each 256 pages, one for each 65,536, and so on. Whatever of it is there: empty parts are no work.
#[test]
fn maps_of_all_shapes_are_dropped_in_small_pieces() {
    for pages in [
        &[0][..],
        &[255],
        &[256],
        &[300, 5000],
        &[65_535],
        &[65_536],
        &[0, 65_536],
        &[5000, 70_000],
        &[140_000],
        &[1 << 22],
    ] {
        for (grant, is_cold) in GRANTS.into_iter().flat_map(|grant| [(grant, false), (grant, true)]) {
            for act in 0..3 {
                let mut world = SimWorld::new(CrashDisk::new(20_000, Rng::new(1)), 20_000, Rng::new(2));
                Store::format(&mut world, &FormatOptions::default()).expect("format");
                let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
                let record = ObjectRecord {
                    base: BASE,
                    pages: 1 << 24,
                    ..ObjectRecord::default()
                };
                store.put_object(record).expect("room");
                let dirty = pages.iter().map(|&page| {
                    store.reserve(BASE, page).expect("room");
                    dirty(&mut world, BASE, page, 0)
                });
                let dirty = dirty.collect();
                store
                    .checkpoint_begin(&mut world, dirty, CheckpointKind::Generation)
                    .expect("idle");
                finish(&mut store, &mut world, 1 << 40);
                if is_cold {
                    store.dismantle(&mut world);
                    store = Store::mount(&mut world, MountMode::ReadWrite).expect("mount").0;
                }
                match act {
                    0 => store.delete_object(BASE).expect("it is there"),
                    1 => store.resize(BASE, 1).expect("room"),
                    _ => store.discard_pages(BASE, 0, 1 << 24, &[]).expect("room"),
                }
                store
                    .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation)
                    .expect("idle");
                finish(&mut store, &mut world, grant);
            }
        }
    }
}
