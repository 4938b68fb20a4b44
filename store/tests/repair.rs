//! Every block of small stores, damaged in turn and repaired: what was not damaged is as it was, what is lost is told
//! before, and the check afterwards is sound. The power fails at every request of a repair, too.

mod plain;
mod shown;

use plain::PlainWorld;
use std::collections::{BTreeMap, BTreeSet};
use store::{
    BLOCK, CheckpointKind, DirtyPage, Disk, DiskError, Event, Finding, FormatOptions, Frame, Loss, MountMode,
    ObjectRecord, Operation, PageFlags, Pages, Plan, QueueFull, Random, Request, Step, Store,
};

const BLOCKS: u64 = 700;
const LARGE: u64 = 1 << 32;
const PAGES: u64 = 600;
/// An object whose body has blocks of its own.
const CROWDED: u64 = LARGE + (20 << 21);
/// Objects that the journal makes, and deletes.
const LATE: u64 = LARGE + (200 << 21);
const DOOMED: u64 = LARGE + (5 << 21);
/// One that a record changes.
const CHANGED: u64 = LARGE + (7 << 21);

type Medium = BTreeMap<u64, [u8; BLOCK]>;
/// Each object, and the first bytes of its pages; none for one that cannot be read.
type State = BTreeMap<u64, (ObjectRecord, Vec<Option<u8>>)>;

fn slot(number: u64) -> u64 {
    LARGE + ((number + 1) << 21)
}

fn record(base: u64, pages: u64, capabilities: usize) -> ObjectRecord {
    ObjectRecord {
        base,
        pages,
        account: 2,
        capabilities: (0..capabilities as u64).map(|at| (base + at, 15)).collect(),
        ..ObjectRecord::default()
    }
}

fn world(medium: &Medium) -> PlainWorld {
    let mut world = PlainWorld::new(BLOCKS);
    world.disk.clone_from(medium);
    world
}

fn finish(store: &mut Store, world: &mut PlainWorld) {
    while !store.is_idle() {
        match store.poll(world) {
            Some(Event::PageWritten { frame, .. }) => world.free(frame),
            Some(Event::CheckpointFailed { reason } | Event::SyncFailed(_, reason)) => panic!("{reason:?}"),
            _ => {}
        }
    }
}

fn checkpoint(store: &mut Store, world: &mut PlainWorld, dirty: Vec<DirtyPage>) {
    store
        .checkpoint_begin(world, dirty, CheckpointKind::Generation)
        .expect("idle");
    finish(store, world);
}

/// A store with so many small objects beside a large one, in two generations; and records behind them that change, make
/// and delete objects. Tells the state of the generation before the last one, too.
fn sample(objects: u64) -> (Medium, State, State) {
    let mut world = PlainWorld::new(BLOCKS);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    store.put_object(record(LARGE, PAGES, 2)).expect("room");
    for number in 1..=objects {
        let capabilities = if slot(number) == CROWDED { 128 } else { 3 };
        store.put_object(record(slot(number), 1, capabilities)).expect("room");
    }
    let mut dirty: Vec<_> = (1..=objects)
        .map(|number| world.dirty(slot(number), 0, number as u8))
        .collect();
    dirty.extend((0..20).map(|at| world.dirty(LARGE, at * 29, 100)));
    checkpoint(&mut store, &mut world, dirty);
    let before = state(&mut world, &mut store).0;
    let mut dirty: Vec<_> = (0..20).map(|at| world.dirty(LARGE, at * 29 + 1, 101)).collect();
    dirty.push(world.dirty(slot(3), 0, 203));
    checkpoint(&mut store, &mut world, dirty);
    for (page, stamp) in [(100, 102), (101, 103), (29, 104)] {
        let page = world.dirty(LARGE, page, stamp);
        store.sync_begin(&mut world, vec![page], &[]).expect("heap");
        finish(&mut store, &mut world);
    }
    store.delete_object(DOOMED).expect("room");
    store.put_object(record(LATE, 2, 3)).expect("room");
    store.put_object(record(CHANGED, 1, 4)).expect("room");
    store.discard_pages(LARGE, 58, 59, &[]).expect("room");
    let page = world.dirty(LATE, 1, 105);
    let changed = [DOOMED, LATE, CHANGED, LARGE];
    store.sync_begin(&mut world, vec![page], &changed).expect("heap");
    finish(&mut store, &mut world);
    assert!(store.seal(&mut world).is_some());
    finish(&mut store, &mut world);
    let medium = world.disk.clone();
    let (now, wrong) = examine(&medium);
    assert_eq!(wrong, Vec::<String>::new());
    (medium, before, now)
}

fn state(world: &mut PlainWorld, store: &mut Store) -> (State, Vec<String>) {
    let mut wrong = Vec::new();
    let records: Vec<ObjectRecord> = store.objects().cloned().collect();
    let mut all = State::new();
    for record in records {
        let pages = shown::pages_of(world, store, &record);
        all.insert(record.base, (record, pages));
    }
    let tally = store.verify(world, &mut |finding| {
        if !matches!(finding, Finding::Lost { .. }) {
            wrong.push(format!("{finding:?}"));
        }
    });
    assert_eq!(tally.expect("memory").findings, wrong.len() as u64);
    (all, wrong)
}

/// What a disk holds, and what is wrong with it.
fn examine(medium: &Medium) -> (State, Vec<String>) {
    let mut world = world(medium);
    let (mut store, report) = match Store::mount(&mut world, MountMode::ReadOnly) {
        Ok(mounted) => mounted,
        Err(error) => return (State::new(), vec![error.to_string()]),
    };
    let (all, mut wrong) = state(&mut world, &mut store);
    wrong.extend(report.losses.iter().map(|loss| format!("{loss:?}")));
    wrong.extend(report.damage.iter().map(|damage| format!("{damage:?}")));
    wrong.extend(report.bad_superblocks.iter().map(|block| format!("superblock {block}")));
    (all, wrong)
}

/// What a plan says is lost, and whether objects may be as they were a generation ago.
#[derive(Default, Debug)]
struct Told {
    pages: BTreeSet<(u64, u64)>,
    bodies: BTreeSet<u64>,
    /// Objects of which something newer may be lost, or which may be gone.
    objects: BTreeSet<u64>,
    rows: Vec<(u64, u64)>,
    goes_back: bool,
}

fn told(plan: &Plan) -> Told {
    let mut told = Told::default();
    for step in &plan.steps {
        match *step {
            Step::GoBack { .. } | Step::GiveUp(Loss::Generation { .. } | Loss::Records { .. }) => told.goes_back = true,
            Step::GiveUp(Loss::Pages { base, first, end }) | Step::Pages { base, first, end, .. } => {
                told.pages.extend((first..end.min(PAGES)).map(|page| (base, page)));
            }
            Step::GiveUp(Loss::Object { base }) => drop(told.objects.insert(base)),
            Step::Body { base, .. } => drop(told.bodies.insert(base)),
            Step::Rows { from, end, .. } => told.rows.push((from, end)),
            Step::Superblock { .. }
            | Step::Bitmap { .. }
            | Step::OldBitmap { .. }
            | Step::Mark { .. }
            | Step::Free { .. } => {}
            Step::Snapshot { .. } | Step::SnapshotLost { .. } | Step::Snapshots { .. } => {
                panic!("there are no snapshots: {step:?}")
            }
            Step::Leave(finding) => panic!("{finding:?}"),
        }
    }
    told
}

/// Whether a store is as it was, but for what was told.
fn compare(now: &State, old: &[&State], told: &Told, what: &str) {
    let bases: BTreeSet<u64> = old
        .iter()
        .flat_map(|state| state.keys())
        .chain(now.keys())
        .copied()
        .collect();
    for base in bases {
        let is_gone = told.rows.iter().any(|&(from, end)| (from..end).contains(&base));
        if is_gone {
            assert!(!now.contains_key(&base), "{what}: {base:#x}");
            continue;
        }
        if told.objects.contains(&base) {
            continue;
        }
        let olds = || old.iter().map(|state| state.get(&base));
        let Some((record, pages)) = now.get(&base) else {
            assert!(olds().any(|old| old.is_none()), "{what}: {base:#x} is gone");
            continue;
        };
        let is_old = olds().flatten().any(|(old, _)| {
            let mut old = old.clone();
            if told.bodies.contains(&base) {
                old.capabilities.clear();
            }
            old == *record
        });
        assert!(is_old, "{what}: {base:#x} is another");
        for (at, &page) in pages.iter().enumerate() {
            let key = (base, at as u64);
            let is_old = olds().flatten().any(|(_, old)| old.get(at) == Some(&page));
            let is_lost = told.pages.contains(&key) && page.is_none();
            assert!(is_old || is_lost, "{what}: page {key:#x?} is {page:?}");
        }
    }
}

fn damage(medium: &Medium, block: u64) -> Medium {
    let mut bad = medium.clone();
    if let Some(bytes) = bad.get_mut(&block) {
        bytes[1000] ^= 0x10;
        bytes[20] ^= 1;
    }
    bad
}

/// Repairs a disk; gives it with the plan and the number of requests that the repair made, or as it is where these fail.
fn repair(medium: &Medium, what: &str, fails_from: Option<usize>) -> Result<(Medium, Plan, usize), Medium> {
    let mut world = world(medium);
    let (mut store, plan) = Store::mount_for_repair(&mut world).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(
        !world.log.iter().any(|(operation, _)| *operation != Operation::Read),
        "{what}: it wrote"
    );
    let begun = world.log.len();
    if let Some(number) = fails_from {
        world.failing_numbers = begun + number..usize::MAX;
    }
    if plan.is_empty() {
        store.dismantle(&mut world);
        return Ok((world.disk, plan, 0));
    }
    match store.repair(&mut world, &plan) {
        Ok(()) => {}
        Err(_) if fails_from.is_some() => return Err(world.disk),
        Err(error) => panic!("{what}: {error}"),
    }
    store.dismantle(&mut world);
    let requests = world.log.len() - begun;
    Ok((world.disk, plan, requests))
}

fn each_block(objects: u64, cuts: usize) -> BTreeMap<String, usize> {
    let (medium, before, now) = sample(objects);
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for (number, &block) in medium.keys().enumerate() {
        let what = format!("block {block}");
        let bad = damage(&medium, block);
        let (good, plan, requests) = repair(&bad, &what, None).unwrap_or_else(|_| panic!("{what}"));
        for step in &plan.steps {
            let kind = format!("{step:?}");
            let end = kind.find(|c: char| !c.is_alphabetic()).unwrap_or(kind.len());
            *kinds.entry(kind[..end].to_owned()).or_default() += 1;
        }
        let told = told(&plan);
        let olds: &[&State] = if told.goes_back { &[&now, &before] } else { &[&now] };
        let (after, wrong) = examine(&good);
        assert_eq!(wrong, Vec::<String>::new(), "{what}: {:?}", plan.steps);
        compare(&after, olds, &told, &what);
        if plan.is_empty() {
            assert!(good == bad, "{what}: a sound store was written to");
            continue;
        }
        assert!(Store::mount(&mut world(&good), MountMode::ReadWrite).is_ok(), "{what}");
        let again = repair(&good, &what, None).unwrap_or_else(|_| panic!("{what}")).1;
        assert!(again.is_empty(), "{what}: {:?}", again.steps);
        if number % cuts != 0 {
            continue;
        }
        for cut in 0..requests {
            let what = format!("block {block}, cut at {cut}");
            let Err(left) = repair(&bad, &what, Some(cut)) else {
                continue;
            };
            let (good, plan, _) = repair(&left, &what, None).unwrap_or_else(|_| panic!("{what}"));
            let told_then = self::told(&plan);
            let (after, wrong) = examine(&good);
            assert_eq!(wrong, Vec::<String>::new(), "{what}: {:?}", plan.steps);
            // The repaired generation may be there, and then nothing is lost once more.
            let both = Told {
                pages: told.pages.union(&told_then.pages).copied().collect(),
                bodies: told.bodies.clone(),
                objects: told.objects.union(&told_then.objects).copied().collect(),
                rows: told.rows.clone(),
                goes_back: told.goes_back,
            };
            compare(&after, olds, &both, &what);
        }
    }
    kinds
}

#[test]
fn a_table_of_several_leaves_is_repaired() {
    let kinds = each_block(120, 1);
    for kind in [
        "Superblock",
        "Bitmap",
        "OldBitmap",
        "Rows",
        "Body",
        "Pages",
        "Free",
        "GoBack",
        "GiveUp",
    ] {
        assert!(kinds.contains_key(kind), "{kind}: {kinds:?}");
    }
}

#[test]
fn a_table_of_one_leaf_is_repaired() {
    let kinds = each_block(20, 1);
    assert!(kinds.contains_key("GoBack") && kinds.contains_key("Body"), "{kinds:?}");
}

/// A disk so full that nothing can be entered, of which many pages in as many nodes are damaged.
#[test]
fn a_full_disk_is_repaired() {
    let mut world = PlainWorld::new(BLOCKS);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    let mut written = Vec::new();
    'full: for number in 0.. {
        if store.put_object(record(slot(number), 200, 3)).is_err() {
            break;
        }
        let mut dirty = Vec::new();
        for page in [1, 100] {
            if store.reserve(slot(number), page).is_err() {
                let _ = store.delete_object(slot(number));
                checkpoint(&mut store, &mut world, dirty);
                break 'full;
            }
            dirty.push(world.dirty(slot(number), page, number as u8));
        }
        checkpoint(&mut store, &mut world, dirty);
        written.push(number);
    }
    checkpoint(&mut store, &mut world, Vec::new());
    let blocks: BTreeMap<(u64, u64), u64> = written
        .iter()
        .flat_map(|&number| [(number, 1), (number, 100)])
        .map(|(number, page)| {
            let _ = store.read_page(&mut world, slot(number), page);
            while let Some(event) = store.poll(&mut world) {
                if let Event::PageRead { frame, .. } = event {
                    world.free(frame);
                }
            }
            let (_, block) = world.log.last().expect("it was read");
            ((number, page), *block)
        })
        .collect();
    let medium = world.disk.clone();
    let (now, wrong) = examine(&medium);
    assert_eq!(wrong, Vec::<String>::new());
    for many in [1, 30, written.len()] {
        let mut bad = medium.clone();
        for &number in &written[..many] {
            bad = damage(&bad, blocks[&(number, 1)]);
        }
        let what = format!("{many} damaged pages of {}", written.len());
        let (good, plan, _) = repair(&bad, &what, None).unwrap_or_else(|_| panic!("{what}"));
        let told = told(&plan);
        assert_eq!(told.pages.len(), many);
        let (after, wrong) = examine(&good);
        assert_eq!(wrong, Vec::<String>::new(), "{what}");
        compare(&after, &[&now], &told, &what);
    }
}

/// Superblocks of three generations are lost, and a record proves the newest one: behind the repair it proves nothing any more.
#[test]
fn a_record_of_a_generation_that_was_given_up_proves_nothing_later() {
    let mut world = PlainWorld::new(BLOCKS);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    let old = world.disk[&0];
    assert_eq!(store.stats().generation, 2);
    store.put_object(record(LARGE, PAGES, 2)).expect("room");
    for stamp in 3..6 {
        let dirty = vec![world.dirty(LARGE, 1, stamp)];
        checkpoint(&mut store, &mut world, dirty);
    }
    let page = world.dirty(LARGE, 2, 7);
    store.sync_begin(&mut world, vec![page], &[]).expect("heap");
    finish(&mut store, &mut world);
    assert_eq!(store.stats().generation, 5);
    let mut bad = world.disk.clone();
    bad.insert(0, old);
    for block in 1..4 {
        bad = damage(&bad, block);
    }
    let (good, plan, requests) = repair(&bad, "superblocks", None).expect("it is repaired");
    let gives_up = |step: &Step| matches!(step, Step::GiveUp(Loss::Generation { found: 2, newer: 5, .. }));
    assert!(plan.steps.iter().any(gives_up), "{:?}", plan.steps);
    let cuts = (0..requests).filter_map(|cut| repair(&bad, "cut", Some(cut)).err());
    let ends = cuts.map(|left| repair(&left, "behind a cut", None).expect("it is repaired").0);
    let mut world = self::world(&bad);
    // The second start writes the other copies anew.
    for mode in [MountMode::AcceptLoss, MountMode::ReadWrite] {
        let accepted = Store::mount(&mut world, mode);
        assert!(accepted.is_ok(), "{}", accepted.err().expect("an error"));
    }
    for mut disk in ends.chain([good, world.disk]) {
        for _ in 0..4 {
            let (state, wrong) = examine(&disk);
            assert_eq!((state, wrong), (State::new(), Vec::new()));
            let mut world = self::world(&disk);
            let mounted = Store::mount(&mut world, MountMode::ReadWrite);
            assert!(mounted.is_ok(), "{}", mounted.err().expect("an error"));
            disk = world.disk;
        }
    }
}
