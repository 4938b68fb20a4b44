//! What a change costs must not grow with what others have changed.

mod plain;

use std::time::{Duration, Instant};

use plain::PlainWorld;
use store::{CheckpointKind, FormatOptions, MountMode, ObjectRecord, PageFlags, Store};

const BASE: u64 = 1 << 40;
const SLOT: u64 = 1 << 21;
const OBJECTS: u64 = 4000;
/// How much dearer a change may be where there are thousands of others..
const DEARER: u32 = 10;

fn record(number: u64) -> ObjectRecord {
    ObjectRecord {
        base: BASE + number * SLOT,
        pages: 8,
        ..ObjectRecord::default()
    }
}

fn mounted() -> (PlainWorld, Store) {
    let mut world = PlainWorld::new(60_000);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    (world, store)
}

/// The time of the fastest of many changes to an object: the others were interrupted.
fn cost(store: &mut Store, base: u64) -> [Duration; 3] {
    let mut least = [Duration::MAX; 3];
    for _ in 0..200 {
        let mut time = |kind: usize, act: &mut dyn FnMut()| {
            let start = Instant::now();
            act();
            least[kind] = least[kind].min(start.elapsed());
        };
        time(0, &mut || store.reserve(base, 0).expect("room"));
        store.unreserve(base, 0);
        time(1, &mut || {
            store.set_page_flags(base, 1, PageFlags::READ).expect("room");
        });
        let mut changed = record(0);
        (changed.base, changed.tag) = (base, 1);
        time(2, &mut || store.put_object(&changed).expect("room"));
    }
    least
}

#[test]
fn a_change_costs_the_same_however_many_others_are_pending() {
    for frozen in [false, true] {
        let (mut world, mut store) = mounted();
        store.put_object(&record(OBJECTS)).expect("room");
        if frozen {
            store
                .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Periodic)
                .expect("idle");
        }
        let alone = cost(&mut store, record(OBJECTS).base);
        for number in 0..OBJECTS {
            store.put_object(&record(number)).expect("room");
            let base = record(number).base;
            store.set_page_flags(base, 0, PageFlags::READ).expect("room");
        }
        let among = cost(&mut store, record(OBJECTS).base);
        for (alone, among) in alone.into_iter().zip(among) {
            let bound = alone.max(Duration::from_nanos(100)) * DEARER;
            assert!(among < bound, "{among:?} instead of {alone:?}, frozen: {frozen}");
        }
    }
}
