//! Snapshots: what they hold stays, whatever becomes of it in the state; what they do not hold comes back; and what tells of them may rot.

mod kept;
mod plain;
mod shown;

use kept::{Medium, State, name, on, record};
use plain::PlainWorld;
use std::collections::BTreeMap;
use store::{
    BLOCK, Budget, CheckpointKind, DirtyPage, Disk, DiskError, Event, FormatOptions, Frame, MountError, MountMode,
    ObjectRecord, Operation, PageFlags, Pages, QueueFull, Random, Request, RollBackError, SNAPSHOTS_MAX, SnapshotError,
    SnapshotName, Step, Store, Structure,
};

const BLOCKS: u64 = 900;
const FIRST: u64 = 1 << 32;

fn base(number: u64) -> u64 {
    FIRST + (number << 21)
}

fn formatted(blocks: u64) -> (PlainWorld, Store) {
    let mut world = PlainWorld::new(blocks);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    (world, store)
}

/// Ends what is under way; tells whether a checkpoint was done.
fn finish(store: &mut Store, world: &mut PlainWorld) -> bool {
    let mut is_done = false;
    while !store.is_idle() {
        match store.poll(world) {
            Some(Event::PageWritten { frame, .. }) => world.free(frame),
            Some(Event::CheckpointFailed { .. } | Event::SyncFailed(..)) => is_done = false,
            Some(Event::CheckpointDone { .. }) => is_done = true,
            _ => {}
        }
    }
    while store.page_over().is_some() {}
    is_done
}

fn checkpoint(store: &mut Store, world: &mut PlainWorld, dirty: Vec<DirtyPage>) {
    let begun = store.checkpoint_begin(world, dirty, CheckpointKind::Generation);
    begun.expect("idle");
    assert!(finish(store, world), "the checkpoint has failed");
}

fn keep(store: &mut Store, world: &mut PlainWorld, text: &str) -> Result<(), SnapshotError> {
    store.keep_snapshot(name(text), 7)?;
    // A snapshot makes a generation of the smallest change.
    store
        .checkpoint_begin(world, Vec::new(), CheckpointKind::Periodic)
        .expect("idle");
    finish(store, world);
    store.snapshot_outcome().expect("it has ended")
}

fn drop_one(store: &mut Store, world: &mut PlainWorld, text: &str) -> Result<(), SnapshotError> {
    store.drop_snapshot(name(text))?;
    checkpoint(store, world, Vec::new());
    store.snapshot_outcome().expect("it has ended")
}

/// Writes pages with a stamp.
fn write(store: &mut Store, world: &mut PlainWorld, base: u64, pages: impl Iterator<Item = u64>, stamp: u8) {
    let pages = pages.map(|page| {
        store.reserve(base, page).expect("room");
        world.dirty(base, page, stamp)
    });
    let pages: Vec<_> = pages.collect();
    checkpoint(store, world, pages);
}

fn state(world: &mut PlainWorld, store: &mut Store) -> (State, Vec<String>) {
    let records: Vec<ObjectRecord> = store.objects().cloned().collect();
    let mut all = State::new();
    for record in records {
        let pages = shown::pages_of(world, store, &record);
        all.insert(record.base, pages);
    }
    let mut wrong = Vec::new();
    let tally = store.verify(world, &mut |finding| wrong.push(format!("{finding:?}")));
    tally.expect("memory");
    (all, wrong)
}

/// The state of a disk, or of a snapshot on it.
fn look(medium: &Medium, blocks: u64, of: Option<&str>) -> (State, Vec<String>) {
    let mut world = on(medium, blocks);
    let mounted = match of {
        None => Store::mount(&mut world, MountMode::ReadOnly),
        Some(of) => Store::mount_snapshot(&mut world, &name(of)).map(|found| found.expect("it is there")),
    };
    match mounted {
        Ok((mut store, report)) => {
            let (all, mut wrong) = state(&mut world, &mut store);
            wrong.extend(report.damage.iter().map(|damage| format!("{damage:?}")));
            (all, wrong)
        }
        Err(error) => (State::new(), vec![error.to_string()]),
    }
}

/// A sound state, snapshots included.
#[track_caller]
fn sound(medium: &Medium, blocks: u64, of: Option<&str>) -> State {
    let (state, wrong) = look(medium, blocks, of);
    assert_eq!(wrong, Vec::<String>::new(), "{of:?}");
    state
}

#[test]
fn names_are_letters_digits_and_some_signs() {
    for text in ["a", "9", "before-upgrade_2.1", &"x".repeat(31)] {
        assert_eq!(name(text).as_str(), text);
    }
    for text in ["", "-a", ".", "a b", "ä", "a/b", &"x".repeat(32), "a\n"] {
        assert_eq!(SnapshotName::new(text), None, "{text:?}");
    }
}

#[test]
fn a_snapshot_stays_as_it_was_and_gives_its_blocks_back() {
    let (mut world, mut store) = formatted(BLOCKS);
    store.put_object(record(base(0), 300)).unwrap();
    store.put_object(record(base(1), 3)).unwrap();
    write(&mut store, &mut world, base(0), 0..300, 1);
    checkpoint(&mut store, &mut world, Vec::new());
    checkpoint(&mut store, &mut world, Vec::new());
    let free = store.stats().free;
    keep(&mut store, &mut world, "one").unwrap();
    let one = sound(&world.disk, BLOCKS, None);
    assert_eq!(sound(&world.disk, BLOCKS, Some("one")), one);
    // A bitmap block, and a chain and a list, both twice.
    assert_eq!(store.blocks_of_snapshots(), 5);
    let verified = store.verify(&mut world, &mut |finding| panic!("{finding:?}")).unwrap();
    assert_eq!(store.snapshots().next().unwrap().blocks, verified.blocks);
    assert_eq!(keep(&mut store, &mut world, "one"), Err(SnapshotError::Exists));
    // All of it goes in the state, and its blocks do not come back.
    store.delete_object(base(0)).unwrap();
    for stamp in 0..4 {
        write(&mut store, &mut world, base(1), 0..3, stamp);
    }
    assert!(store.stats().free <= free, "{} of {free} are free", store.stats().free);
    assert!(store.blocks_of_snapshots() > 300);
    assert_eq!(sound(&world.disk, BLOCKS, Some("one")), one);
    let two = sound(&world.disk, BLOCKS, None);
    assert_ne!(one, two);
    keep(&mut store, &mut world, "two").unwrap();
    assert_eq!(drop_one(&mut store, &mut world, "none"), Err(SnapshotError::Missing));
    drop_one(&mut store, &mut world, "one").unwrap();
    assert_eq!(store.snapshots().map(|one| one.name).collect::<Vec<_>>(), [name("two")]);
    checkpoint(&mut store, &mut world, Vec::new());
    assert_eq!(sound(&world.disk, BLOCKS, Some("two")), two);
    drop(store);
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).unwrap();
    checkpoint(&mut store, &mut world, Vec::new());
    checkpoint(&mut store, &mut world, Vec::new());
    assert!(store.stats().free > free + 290, "{} of {free}", store.stats().free);
    assert_eq!(sound(&world.disk, BLOCKS, None), two);
    assert_eq!(sound(&world.disk, BLOCKS, Some("two")), two);
}

#[test]
fn an_image_goes_back_and_forth() {
    let (mut world, mut store) = formatted(BLOCKS);
    store.put_object(record(base(0), 40)).unwrap();
    write(&mut store, &mut world, base(0), 0..40, 1);
    keep(&mut store, &mut world, "one").unwrap();
    let one = sound(&world.disk, BLOCKS, None);
    store.put_object(record(base(1), 3)).unwrap();
    write(&mut store, &mut world, base(0), 3..20, 2);
    // It goes back with what the journal says kept.
    let page = world.dirty(base(1), 0, 9);
    store.sync_begin(&mut world, vec![page], &[base(1)]).unwrap();
    finish(&mut store, &mut world);
    drop(store);
    let two = sound(&world.disk, BLOCKS, None);
    Store::roll_back(&mut world, &name("one"), Some((name("two"), 8))).unwrap();
    assert_eq!(sound(&world.disk, BLOCKS, None), one);
    assert_eq!(sound(&world.disk, BLOCKS, Some("two")), two);
    for _ in 0..3 {
        let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).unwrap();
        write(&mut store, &mut world, base(0), 0..40, 3);
        write(&mut store, &mut world, base(0), 0..40, 4);
        drop(store);
        Store::roll_back(&mut world, &name("two"), None).unwrap();
        assert_eq!(sound(&world.disk, BLOCKS, None), two);
        Store::roll_back(&mut world, &name("one"), None).unwrap();
        assert_eq!(sound(&world.disk, BLOCKS, None), one);
        assert_eq!(sound(&world.disk, BLOCKS, Some("two")), two);
        assert_eq!(sound(&world.disk, BLOCKS, Some("one")), one);
    }
}

/// The birth that the next object gets.
fn births(world: &mut PlainWorld) -> u64 {
    Store::mount(world, MountMode::ReadOnly).unwrap().0.births()
}

#[test]
fn going_back_gives_no_birth_anew_and_refuses_what_is_not_there() {
    let (mut world, mut store) = formatted(BLOCKS);
    keep(&mut store, &mut world, "one").unwrap();
    let record = ObjectRecord {
        birth: 1000,
        ..record(base(0), 1)
    };
    store.put_object(record).unwrap();
    checkpoint(&mut store, &mut world, Vec::new());
    drop(store);
    let before = births(&mut world);
    assert!(before > 1000);
    let now = sound(&world.disk, BLOCKS, None);
    let missing = Store::roll_back(&mut world, &name("none"), Some((name("kept"), 1)));
    assert_eq!(missing, Err(RollBackError::Snapshot(SnapshotError::Missing)));
    let exists = Store::roll_back(&mut world, &name("one"), Some((name("one"), 1)));
    assert_eq!(exists, Err(RollBackError::Snapshot(SnapshotError::Exists)));
    assert_eq!(sound(&world.disk, BLOCKS, None), now);
    Store::roll_back(&mut world, &name("one"), None).unwrap();
    assert_eq!(births(&mut world), before);
    assert_eq!(sound(&world.disk, BLOCKS, None), State::new());
}

#[test]
fn a_full_disk_refuses_a_snapshot_and_loses_nothing_by_that() {
    let (mut world, mut store) = formatted(400);
    store.put_object(record(base(0), 1000)).unwrap();
    keep(&mut store, &mut world, "one").unwrap();
    let pages: Vec<_> = (0..999)
        .take_while(|&page| store.reserve(base(0), page).is_ok())
        .collect();
    let pages = pages.iter().map(|&page| world.dirty(base(0), page, 5)).collect();
    checkpoint(&mut store, &mut world, pages);
    for _ in 0..4 {
        checkpoint(&mut store, &mut world, Vec::new());
    }
    let full = sound(&world.disk, 400, None);
    for number in 0.. {
        match keep(&mut store, &mut world, &format!("n{number}")) {
            Ok(()) => assert!(number < 20, "each takes blocks"),
            Err(error) => {
                assert_eq!(error, SnapshotError::DiskFull);
                break;
            }
        }
    }
    // What it may not take it does not take, however often it is asked for.
    let free = store.stats().free;
    for _ in 0..50 {
        assert_eq!(keep_or(&mut store, "more"), Err(SnapshotError::DiskFull));
    }
    assert_eq!(store.stats().free, free);
    assert_eq!(sound(&world.disk, 400, None), full);
    assert_eq!(sound(&world.disk, 400, Some("one")).len(), 1);
    // There is always room to drop one.
    drop_one(&mut store, &mut world, "one").unwrap();
    assert_eq!(sound(&world.disk, 400, None), full);
}

/// Asks for a snapshot; what is refused at once leaves the next checkpoint as any other.
fn keep_or(store: &mut Store, text: &str) -> Result<(), SnapshotError> {
    store.keep_snapshot(name(text), 1)
}

#[test]
fn there_are_64_snapshots_at_most() {
    let (mut world, mut store) = formatted(BLOCKS);
    store.put_object(record(base(0), 8)).unwrap();
    let mut states = BTreeMap::new();
    for number in 0..SNAPSHOTS_MAX {
        let page = number as u64 % 8;
        write(
            &mut store,
            &mut world,
            base(0),
            core::iter::once(page),
            number as u8 + 1,
        );
        let text = format!("snapshot-number-{number:02}");
        keep(&mut store, &mut world, &text).unwrap();
        states.insert(text, sound(&world.disk, BLOCKS, None));
    }
    assert_eq!(keep_or(&mut store, "one-more"), Err(SnapshotError::TooMany));
    for (text, state) in &states {
        assert_eq!(sound(&world.disk, BLOCKS, Some(text)), *state);
    }
    drop_one(&mut store, &mut world, "snapshot-number-00").unwrap();
    keep(&mut store, &mut world, "one-more").unwrap();
    assert_eq!(store.snapshots().count(), SNAPSHOTS_MAX);
    assert_eq!(
        Store::mount(&mut world, MountMode::ReadOnly)
            .unwrap()
            .0
            .snapshots()
            .count(),
        SNAPSHOTS_MAX
    );
}

#[test]
fn what_a_dropped_snapshot_held_comes_back_in_pieces() {
    const MANY: u64 = 40_000;
    let (mut world, mut store) = formatted(4 * MANY);
    store.put_object(record(base(0), MANY)).unwrap();
    store.put_object(record(base(800), 3)).unwrap();
    checkpoint(&mut store, &mut world, Vec::new());
    let free = store.stats().free;
    write(&mut store, &mut world, base(0), 0..MANY, 1);
    keep(&mut store, &mut world, "small").unwrap();
    let small = store.snapshots().next().unwrap().blocks;
    write(&mut store, &mut world, base(0), 0..MANY - 10, 2);
    keep(&mut store, &mut world, "large").unwrap();
    store.delete_object(base(0)).unwrap();
    for _ in 0..3 {
        checkpoint(&mut store, &mut world, Vec::new());
    }
    assert!(store.blocks_of_snapshots() > 2 * MANY - 10);
    // Behind the checkpoint that drops it: pieces that take a few events each, and no more than some blocks in a list.
    store.drop_snapshot(name("small")).unwrap();
    store
        .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Periodic)
        .unwrap();
    let (mut polls, mut rounds, mut kept) = (0, 0, false);
    loop {
        let event = store.poll_within(&mut world, &mut { Budget::of(20_000) });
        polls += 1;
        assert!(store.stats().held <= 32_768 + 64, "{:?}", store.stats());
        assert!(polls < 100_000, "it does not end");
        if store.is_idle() && !store.is_stopped() && event.is_none() {
            if !store.is_reclaiming() {
                break;
            }
            rounds += 1;
            let (page, kind) = if core::mem::replace(&mut kept, true) {
                (None, CheckpointKind::Generation)
            } else {
                // One that comes meanwhile holds what it holds.
                store.keep_snapshot(name("between"), 1).unwrap();
                (Some(world.dirty(base(800), 0, 7)), CheckpointKind::Periodic)
            };
            let pages = page.into_iter().collect();
            store.checkpoint_begin(&mut world, pages, kind).unwrap();
        }
        match event {
            Some(Event::PageWritten { frame, .. }) => world.free(frame),
            Some(Event::CheckpointFailed { reason }) => panic!("{reason:?}"),
            _ => {}
        }
    }
    assert!(rounds >= 1 && polls > 1_000, "{rounds}, {polls}");
    assert!(kept);
    // What is held is what a start would hold.
    let at_a_start = Store::mount(&mut on(&world.disk, 4 * MANY), MountMode::ReadOnly)
        .unwrap()
        .0;
    assert_eq!(store.blocks_of_snapshots(), at_a_start.blocks_of_snapshots());
    for _ in 0..3 {
        checkpoint(&mut store, &mut world, Vec::new());
    }
    assert!(
        store.blocks_of_snapshots() < MANY + 1_000,
        "{}",
        store.blocks_of_snapshots()
    );
    assert!(
        store.stats().free > free - small - 100,
        "{} of {free}",
        store.stats().free
    );
    let (_, wrong) = look(&world.disk, 4 * MANY, Some("between"));
    assert_eq!(wrong, Vec::<String>::new());
    let large = sound(&world.disk, 4 * MANY, Some("large"));
    assert_eq!(
        large[&base(0)].iter().filter(|page| **page == Some(2)).count() as u64,
        MANY - 10
    );
    for text in ["large", "between"] {
        drop_one(&mut store, &mut world, text).unwrap();
    }
    for _ in 0..6 {
        checkpoint(&mut store, &mut world, Vec::new());
    }
    assert!(store.stats().free + 4 > free, "{} of {free}", store.stats().free);
}

#[test]
fn shares_are_what_comes_back() {
    let (mut world, mut store) = formatted(BLOCKS);
    store.put_object(record(base(0), 100)).unwrap();
    write(&mut store, &mut world, base(0), 0..100, 1);
    keep(&mut store, &mut world, "one").unwrap();
    write(&mut store, &mut world, base(0), 0..50, 2);
    keep(&mut store, &mut world, "two").unwrap();
    write(&mut store, &mut world, base(0), 0..20, 3);
    drop(store);
    let (store, _) = Store::mount(&mut world, MountMode::ReadOnly).unwrap();
    let shares = store.shares_of_snapshots(&mut world).unwrap();
    assert_eq!(
        shares.iter().map(|share| share.0).collect::<Vec<_>>(),
        [name("one"), name("two")]
    );
    // Pages, a map node and the leaf of the table; the nodes above are the entry in the row.
    assert_eq!(shares[0].1, 52);
    assert_eq!(shares[1].1, 22);
}

/// Two snapshots and a state, each with pages of its own.
fn sample() -> (Medium, [State; 3]) {
    let (mut world, mut store) = formatted(400);
    store.put_object(record(base(0), 40)).unwrap();
    write(&mut store, &mut world, base(0), 0..40, 1);
    keep(&mut store, &mut world, "one").unwrap();
    let one = sound(&world.disk, 400, None);
    write(&mut store, &mut world, base(0), 0..30, 2);
    keep(&mut store, &mut world, "two").unwrap();
    let two = sound(&world.disk, 400, None);
    store.put_object(record(base(1), 4)).unwrap();
    write(&mut store, &mut world, base(0), 0..20, 3);
    write(&mut store, &mut world, base(1), 0..4, 3);
    // The superblock of the generation before has the same snapshots then.
    checkpoint(&mut store, &mut world, Vec::new());
    drop(store);
    let now = sound(&world.disk, 400, None);
    (world.disk, [one, two, now])
}

/// Fills the disk.
fn fill(world: &mut PlainWorld) -> Result<(), MountError> {
    let (mut store, _) = Store::mount(world, MountMode::ReadWrite)?;
    for stamp in 10..14 {
        store.put_object(record(base(9), 400)).expect("room");
        let pages: Vec<_> = (0..400)
            .take_while(|&page| store.reserve(base(9), page).is_ok())
            .collect();
        let pages = pages.iter().map(|&page| world.dirty(base(9), page, stamp)).collect();
        checkpoint(&mut store, world, pages);
        store.delete_object(base(9)).unwrap();
        for _ in 0..3 {
            checkpoint(&mut store, world, Vec::new());
        }
    }
    Ok(())
}

/// The blocks that tell of snapshots begin with these.
fn tells(bytes: &[u8; BLOCK]) -> bool {
    bytes.starts_with(b"GSNAP")
}

#[test]
fn what_tells_of_snapshots_may_rot_block_by_block() {
    let (medium, [one, two, now]) = sample();
    let snapshots = [("one", &one), ("two", &two)];
    let (mut refused, mut rebuilt) = (0, 0);
    for (&block, bytes) in medium.iter().filter(|&(&block, _)| block >= 4) {
        let mut world = on(&medium, 400);
        world.disk.get_mut(&block).unwrap()[77] ^= 4;
        let damaged = world.disk.clone();
        // Nothing of a snapshot is used for something else, whatever cannot be read of it.
        match fill(&mut world) {
            Ok(()) => {
                let is_its = world.disk.get(&block) == damaged.get(&block);
                if is_its {
                    world.disk.insert(block, *bytes);
                }
                for (text, state) in snapshots {
                    let (found, wrong) = look(&world.disk, 400, Some(text));
                    assert!(&found == state && wrong.is_empty(), "block {block}, {text}: {wrong:?}");
                }
            }
            Err(error) => {
                assert!(
                    !matches!(error, MountError::Damaged(Structure::Snapshots, _)),
                    "there is a copy: {block}"
                );
                refused += 1;
            }
        }
        // A repair loses no snapshot, and the check is content.
        let mut world = on(&damaged, 400);
        let (mut store, plan) = match Store::mount_for_repair(&mut world) {
            Ok(mounted) => mounted,
            // The root of the table of both generations.
            Err(MountError::Damaged(Structure::Table, damaged)) if damaged == block => continue,
            Err(error) => panic!("{block}: {error}"),
        };
        let is_of_snapshots = plan
            .steps
            .iter()
            .any(|step| matches!(step, Step::Snapshot { .. } | Step::Snapshots { .. }));
        let is_lost = |step: &Step| matches!(step, Step::SnapshotLost { .. } | Step::Snapshots { is_lost: true, .. });
        assert!(!plan.steps.iter().any(is_lost), "{block}: {:?}", plan.steps);
        if plan.is_empty() {
            store.dismantle(&mut world);
            continue;
        }
        store
            .repair(&mut world, &plan)
            .unwrap_or_else(|error| panic!("{block}: {error}"));
        drop(store);
        rebuilt += u64::from(is_of_snapshots);
        if is_of_snapshots {
            assert_eq!(sound(&world.disk, 400, None), now, "block {block}");
            fill(&mut world).unwrap();
            for (text, state) in snapshots {
                assert_eq!(sound(&world.disk, 400, Some(text)), *state, "block {block}");
            }
        }
    }
    // Two bitmap blocks, two chains and a list that are written twice.
    assert_eq!(rebuilt, 8);
    assert!(refused > 0);
}

#[test]
fn a_snapshot_of_which_both_copies_rot_is_lost_alone() {
    let (medium, [one, two, now]) = sample();
    let telling: Vec<u64> = medium
        .iter()
        .filter(|(_, bytes)| tells(bytes))
        .map(|(&block, _)| block)
        .collect();
    let mut lost = [0; 3];
    for &first in &telling {
        for &second in telling.iter().filter(|&&second| second > first) {
            let mut world = on(&medium, 400);
            for block in [first, second] {
                world.disk.get_mut(&block).unwrap()[20] ^= 4;
            }
            let damaged = world.disk.clone();
            let mounted =
                Store::mount(&mut world, MountMode::ReadWrite).map(|(store, _)| store.dismantle(&mut on(&medium, 400)));
            let mut world = on(&damaged, 400);
            let (mut store, plan) = Store::mount_for_repair(&mut world).expect("a plan");
            let names: Vec<_> = plan
                .steps
                .iter()
                .filter_map(|step| match step {
                    Step::SnapshotLost { name } => Some(name.to_string()),
                    _ => None,
                })
                .collect();
            let all = plan
                .steps
                .iter()
                .any(|step| matches!(step, Step::Snapshots { is_lost: true, .. }));
            assert_eq!(mounted.is_err(), all || !names.is_empty(), "{:?}", plan.steps);
            store.repair(&mut world, &plan).expect("repaired");
            drop(store);
            assert_eq!(sound(&world.disk, 400, None), now);
            fill(&mut world).unwrap();
            for (at, (text, state)) in [("one", &one), ("two", &two)].into_iter().enumerate() {
                if all || names.iter().any(|name| name == text) {
                    lost[at] += 1;
                    assert!(Store::mount_snapshot(&mut world, &name(text)).unwrap().is_none());
                } else {
                    assert_eq!(sound(&world.disk, 400, Some(text)), *state);
                }
            }
            lost[2] += u64::from(all);
        }
    }
    // The list takes both with it. Lists of before are nobody's.
    assert_eq!(lost, [2, 2, 1]);
}

/// Where a bitmap of a snapshot is rotten its table says what is held, and no more is: the disk can be written to, and has as much room as before.
#[test]
fn a_rotten_bitmap_of_a_snapshot_takes_no_room() {
    let (mut world, mut store) = formatted(BLOCKS);
    for number in 0..30 {
        let mut object = record(base(number), 300);
        // Some with bodies in blocks of their own.
        object.capabilities = (0..if number % 7 == 0 { 100 } else { 2 })
            .map(|at| (at + 1, 15))
            .collect();
        store.put_object(object).unwrap();
    }
    // A map of two levels, and pages behind one of one.
    store.put_object(record(base(40), 70_000)).unwrap();
    write(&mut store, &mut world, base(40), [1, 300, 69_000].into_iter(), 1);
    write(&mut store, &mut world, base(3), 0..20, 2);
    keep(&mut store, &mut world, "one").unwrap();
    write(&mut store, &mut world, base(3), 0..9, 3);
    keep(&mut store, &mut world, "two").unwrap();
    store.delete_object(base(40)).unwrap();
    write(&mut store, &mut world, base(3), 2..30, 4);
    store.reserve(base(3), 5).unwrap();
    let page = world.dirty(base(3), 5, 9);
    store.sync_begin(&mut world, vec![page], &[base(3)]).unwrap();
    finish(&mut store, &mut world);
    let now = sound(&world.disk, BLOCKS, None);
    assert_eq!(now[&base(3)][5], Some(9));
    let room = |medium: &Medium| {
        let mut world = on(medium, BLOCKS);
        let (mut store, report) = Store::mount(&mut world, MountMode::ReadWrite).expect("mounted for writing");
        let damaged = store.snapshots().filter(|one| one.is_damaged).count();
        assert_eq!((report.replayed, report.losses.len()), (1, 0));
        let room = (store.blocks_of_snapshots(), store.stats().free, store.stats().held);
        assert_eq!(state(&mut world, &mut store).0, now);
        store.dismantle(&mut world);
        (room, damaged)
    };
    let (sound_room, none) = room(&world.disk);
    let mut rotten = 0;
    for (block, text) in bitmaps_of(&world.disk) {
        let mut medium = world.disk.clone();
        medium.get_mut(&block).unwrap()[20] ^= 4;
        let (found, damaged) = room(&medium);
        assert_eq!(found, sound_room, "the bitmap of {text}");
        rotten += damaged;
    }
    assert_eq!((none, rotten), (0, 2));
}

/// Where what says the same is rotten, too, all of the group is held. If there is no room then, the mount says what is wrong; a repair helps.
#[test]
fn a_disk_that_is_full_of_what_nobody_knows_says_so() {
    let (mut world, mut store) = formatted(400);
    store.put_object(record(base(0), 40)).unwrap();
    write(&mut store, &mut world, base(0), 0..20, 1);
    keep(&mut store, &mut world, "one").unwrap();
    let table = world.disk.iter().filter(|(_, bytes)| bytes.starts_with(b"GLEF"));
    let table: Vec<u64> = table.map(|(&block, _)| block).collect();
    write(&mut store, &mut world, base(0), 0..20, 2);
    // What the next start has to write.
    store.reserve(base(0), 5).unwrap();
    let page = world.dirty(base(0), 5, 9);
    store.sync_begin(&mut world, vec![page], &[base(0)]).unwrap();
    finish(&mut store, &mut world);
    drop(store);
    let (bitmap, _) = bitmaps_of(&world.disk)[0];
    let mut told = 0;
    for &leaf in &table {
        let mut medium = world.disk.clone();
        for block in [bitmap, leaf] {
            medium.get_mut(&block).unwrap()[20] ^= 4;
        }
        let mut world = on(&medium, 400);
        let mounted = Store::mount(&mut world, MountMode::ReadWrite).map(|_| ());
        let Err(error) = mounted else { continue };
        assert_eq!(error, MountError::Damaged(Structure::Snapshots, bitmap), "{leaf}");
        assert!(error.to_string().contains("--repair"), "{error}");
        assert_eq!(world.disk, medium, "a refused mount leaves the disk as it is");
        let (_, report) = Store::mount(&mut world, MountMode::ReadOnly).expect("it can be read");
        assert_eq!(report.damage, [(Structure::Snapshots, bitmap)]);
        let (mut store, plan) = Store::mount_for_repair(&mut world).expect("a plan");
        store.repair(&mut world, &plan).expect("repaired");
        drop(store);
        fill(&mut world).expect("mounted for writing");
        told += 1;
    }
    assert_eq!(told, 1, "the leaf of the snapshot");
}

/// The bitmap blocks of the snapshots of a disk, each with the name of its snapshot, in the order of these; the first copy of each chain is read.
fn bitmaps_of(medium: &Medium) -> Vec<(u64, String)> {
    let word = |bytes: &[u8; BLOCK], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let chains = medium.values().filter(|bytes| bytes.starts_with(b"GSNAPSHT"));
    let named = chains.flat_map(|bytes| {
        let name = String::from_utf8(bytes[9..9 + usize::from(bytes[8])].to_vec()).unwrap();
        (0..word(bytes, 160) as usize).map(move |at| (name.clone(), word(bytes, 168 + 24 * at + 8)))
    });
    let named: std::collections::BTreeSet<(String, u64)> = named.collect();
    named.into_iter().map(|(name, block)| (block, name)).collect()
}

/// The same on a disk of several groups: what records of the journal name there is no nonsense for that.
#[test]
fn what_was_synced_stays_where_a_bitmap_of_a_snapshot_rots() {
    const TWO_GROUPS: u64 = 40_000;
    let (mut world, mut store) = formatted(TWO_GROUPS);
    store.put_object(record(base(0), 40)).unwrap();
    write(&mut store, &mut world, base(0), 0..20, 1);
    keep(&mut store, &mut world, "one").unwrap();
    write(&mut store, &mut world, base(0), 0..2, 3);
    store.reserve(base(0), 5).unwrap();
    let page = world.dirty(base(0), 5, 9);
    store.sync_begin(&mut world, vec![page], &[base(0)]).unwrap();
    while !store.is_idle() {
        if let Some(Event::PageWritten { frame, .. }) = store.poll(&mut world) {
            world.free(frame);
        }
    }
    drop(store);
    let now = sound(&world.disk, TWO_GROUPS, None);
    assert_eq!(now[&base(0)][5], Some(9));
    // The leaf of the snapshot says the same, and is another one now: without it all of the group is held.
    let bitmaps = bitmaps_of(&world.disk);
    let leaves = world.disk.iter().filter(|(_, bytes)| bytes.starts_with(b"GLEF"));
    let mut unknown = 0;
    for (&leaf, _) in leaves {
        let mut world = on(&world.disk, TWO_GROUPS);
        for block in [bitmaps[0].0, leaf] {
            world.disk.get_mut(&block).unwrap()[20] ^= 4;
        }
        let Ok((mut store, report)) = Store::mount(&mut world, MountMode::ReadWrite) else {
            continue;
        };
        unknown += u64::from(store.blocks_of_snapshots() > 30_000);
        assert_eq!((report.replayed, report.losses.len()), (1, 0), "leaf {leaf}");
        assert_eq!(state(&mut world, &mut store).0, now, "leaf {leaf}");
    }
    assert_eq!((bitmaps.len(), unknown), (1, 1), "the leaf of the snapshot");
}

/// What a request was promised it gets, however full the disk is and however much the next table will need.
#[test]
fn a_snapshot_that_was_promised_room_is_made() {
    let mut made = 0;
    for pages in 0..60 {
        let (mut world, mut store) = formatted(400);
        // A table of many blocks.
        for number in 0..60 {
            let mut object = record(base(number), 300);
            object.capabilities = (0..100).map(|at| (at + 1, 15)).collect();
            store.put_object(object).unwrap();
        }
        checkpoint(&mut store, &mut world, Vec::new());
        let full = (0..300)
            .find(|&page| store.reserve(base(0), page).is_err())
            .expect("it gets full");
        for page in full.saturating_sub(pages)..full {
            store.unreserve(base(0), page);
        }
        let first = full.saturating_sub(pages);
        let pages = (0..first).map(|page| world.dirty(base(0), page, 7)).collect();
        let mut object = record(base(1), 300);
        object.capabilities = (0..100).map(|at| (at + 2, 15)).collect();
        let _ = store.put_object(object);
        if store.keep_snapshot(name("one"), 1).is_err() {
            continue;
        }
        checkpoint(&mut store, &mut world, pages);
        assert_eq!(store.snapshot_outcome(), Some(Ok(())), "{first} pages");
        made += 1;
    }
    assert!(made > 20, "{made}");
}

#[test]
fn requests_that_fail_leave_the_snapshots_as_they_were_or_will_be() {
    let (medium, [one, two, now]) = sample();
    for act in ["keep", "drop"] {
        let ask = |store: &mut Store| {
            let asked = if act == "keep" {
                store.keep_snapshot(name("three"), 1)
            } else {
                store.drop_snapshot(name("one"))
            };
            asked.unwrap();
        };
        // The last ones come behind its end: what is free then is what is free behind the others.
        let mut free = Vec::new();
        for number in 0..60 {
            let mut world = on(&medium, 400);
            let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).unwrap();
            let requests = world.log.len();
            world.failing_numbers = requests + number..requests + number + 1;
            world.done_all_the_same = number % 2 == 0;
            ask(&mut store);
            let page = world.dirty(base(0), 39, 9);
            store
                .checkpoint_begin(&mut world, vec![page], CheckpointKind::Periodic)
                .unwrap();
            let done = finish(&mut store, &mut world);
            let outcome = store.snapshot_outcome().expect("it has ended");
            assert_eq!(outcome.is_ok(), done, "{act} {number}");
            // The next one is as if nothing had been.
            world.failing_numbers = 0..0;
            if !done {
                ask(&mut store);
            }
            let page = world.dirty(base(0), 39, 9);
            let pages = if done { Vec::new() } else { vec![page] };
            checkpoint(&mut store, &mut world, pages);
            for _ in 0..3 {
                checkpoint(&mut store, &mut world, Vec::new());
            }
            free.push(store.stats().free + store.stats().held);
            drop(store);
            let mut then = now.clone();
            then.get_mut(&base(0)).unwrap()[39] = Some(9);
            assert_eq!(sound(&world.disk, 400, None), then);
            assert_eq!(sound(&world.disk, 400, Some("two")), two);
            if act == "keep" {
                assert_eq!(sound(&world.disk, 400, Some("one")), one);
                assert_eq!(sound(&world.disk, 400, Some("three")), then);
            } else {
                assert!(Store::mount_snapshot(&mut world, &name("one")).unwrap().is_none());
            }
        }
        let last = free[59];
        assert!(free.iter().all(|&free| free == last), "{act}: {free:?}");
    }
}
