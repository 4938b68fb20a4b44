//! Images that a stranger has made: blocks of a good image with snapshots and a journal are changed, and all checksums are right all the same.
//!
//! A stranger who has the key of an image can change it and make its checksums right again. So here each block is believed whatever it holds (`store::seal_for_believers`), and each seed changes one to
//! five fields: to other numbers, to the numbers of other blocks (so that nodes lead to each other), to what another block has there. Nothing that may then be done with the image
//! may panic, go on for ever, or lose a page of memory; each refusal is a sentence. What is *shown* is the stranger's.
//!
//! `GOND_SEEDS`, `GOND_FROM` and `GOND_SEED` choose the seeds.

use sim::disk::{Block, CrashDisk};
use sim::rng::Rng;
use sim::seeds;
use sim::world::{SimWorld, dirty};
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::{
    BLOCK, CheckpointKind, Disk, DiskError, Event, FormatOptions, Frame, Leaves, MountError, MountMode, ObjectRecord,
    Operation, Pages, QueueFull, Random, ReadStart, Request, RollBackError, SnapshotName, Store, seal_for_believers,
};

const BLOCKS: u64 = 500;
const FIRST: u64 = 1 << 32;
/// The object with the highest map.
const HIGH: u64 = 5001;
/// Pages of memory.
const MEMORY: usize = 2000;
/// Requests to the disk that one use of an image may make, and polls without one. A sound image takes 3,000.
const REQUESTS: u64 = 60_000;
const POLLS: u64 = 400_000;

type Medium = BTreeMap<u64, Block>;

fn base(number: u64) -> u64 {
    FIRST + (number << 21)
}

fn name(text: &str) -> SnapshotName {
    SnapshotName::new(text).expect("a name")
}

/// A world that counts the requests.
struct Counting {
    inner: SimWorld,
    left: u64,
}

impl Counting {
    fn new(medium: &Medium, rng: &mut Rng) -> Self {
        let disk = CrashDisk::from_medium(BLOCKS + 100, medium.clone(), rng.fork());
        Self {
            inner: SimWorld::new(disk, MEMORY, rng.fork()),
            left: REQUESTS,
        }
    }

    fn count(&mut self, blocks: u64) {
        assert!(self.left >= blocks, "it goes on for ever");
        self.left -= blocks;
    }

    fn must_be_empty(&self, what: &str) {
        assert_eq!(self.inner.memory.used(), 0, "{what}: pages of memory are lost");
    }
}

impl Pages for Counting {
    fn alloc(&mut self) -> Option<Frame> {
        self.inner.alloc()
    }
    fn free(&mut self, frame: Frame) {
        self.inner.free(frame);
    }
    fn bytes(&self, frame: Frame) -> &[u8; BLOCK] {
        self.inner.bytes(frame)
    }
    fn bytes_mut(&mut self, frame: Frame) -> &mut [u8; BLOCK] {
        self.inner.bytes_mut(frame)
    }
}

impl Disk for Counting {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        self.count(1);
        self.inner.submit(request)
    }
    fn run_max(&self) -> usize {
        self.inner.run_max()
    }
    fn submit_run(&mut self, tag: u32, operation: Operation, first: u64, frames: &[Frame]) -> Result<(), QueueFull> {
        self.count(frames.len() as u64);
        self.inner.submit_run(tag, operation, first, frames)
    }
    fn complete(&mut self) -> Option<(u32, Result<(), DiskError>)> {
        self.inner.complete()
    }
    fn wait(&mut self) {
        self.inner.wait();
    }
}

impl Random for Counting {
    fn next_u64(&mut self) -> u64 {
        self.inner.next_u64()
    }
}

/// Goes on until the store rests. Pages that are read are counted.
fn finish(store: &mut Store, world: &mut Counting) {
    for _ in 0..POLLS {
        match store.poll(world) {
            Some(Event::PageWritten { frame, .. } | Event::PageRead { frame, .. }) => world.free(frame),
            Some(_) => {}
            None if store.is_idle() => {
                while store.page_over().is_some() {}
                return;
            }
            None => drop(world.inner.step()),
        }
    }
    panic!("it never rests");
}

fn checkpoint(store: &mut Store, world: &mut Counting, pages: Vec<store::DirtyPage>, kind: CheckpointKind) {
    if store.checkpoint_begin(world, pages, kind).is_ok() {
        finish(store, world);
    }
}

/// Puts objects and pages on a store, as far as there is room for them.
fn write(store: &mut Store, world: &mut Counting, base: u64, pages: impl Iterator<Item = u64>, stamp: u8) {
    let mut all = Vec::new();
    for page in pages {
        if store.find_near(base).is_ok() && store.reserve(base, page).is_ok() {
            all.push(dirty(world, base, page, stamp));
        }
    }
    checkpoint(store, world, all, CheckpointKind::Generation);
}

fn record(number: u64) -> ObjectRecord {
    ObjectRecord {
        base: base(number),
        // One with a map of five levels.
        pages: match number {
            3 => 500,
            HIGH => 1 << 33,
            _ => 40,
        },
        account: 2,
        // Some have their bodies in blocks of their own.
        capabilities: (0..if number.is_multiple_of(5) { 100 } else { 3 })
            .map(|at| (at + 1, 15))
            .collect(),
        ..ObjectRecord::default()
    }
}

/// A good image: a table of several levels if its nodes are small, maps of two levels, two snapshots, and a journal.
fn sample(small: bool) -> Medium {
    let mut world = Counting::new(&Medium::new(), &mut Rng::new(1));
    world.inner.disk.set_blocks(BLOCKS);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    world.inner.disk.set_blocks(BLOCKS + 100);
    let sizes = if small { (700, 3) } else { (4000, 100) };
    let mounted = Store::mount_with_small_nodes(&mut world, MountMode::ReadWrite, Leaves::All, sizes);
    let (mut store, _) = mounted.expect("mount");
    for number in (0..12).chain([HIGH]) {
        store.put_object(record(number)).expect("room");
    }
    write(&mut store, &mut world, base(3), [0, 1, 260, 400].into_iter(), 1);
    write(&mut store, &mut world, base(1), 0..9, 2);
    write(&mut store, &mut world, base(HIGH), [0, 1 << 32].into_iter(), 3);
    for (text, number) in [("one", 2), ("two", 3)] {
        store.keep_snapshot(name(text), 7).expect("room");
        checkpoint(&mut store, &mut world, Vec::new(), CheckpointKind::Generation);
        assert_eq!(store.snapshot_outcome(), Some(Ok(())));
        write(&mut store, &mut world, base(number), 0..6, 5);
    }
    store.delete_object(base(4)).expect("it is there");
    write(&mut store, &mut world, base(1), 3..6, 6);
    for page in 0..3 {
        store.reserve(base(2), page).expect("room");
        let page = dirty(&mut world, base(2), page, 9);
        store.sync_begin(&mut world, vec![page], &[base(2)]).expect("heap");
        finish(&mut store, &mut world);
    }
    store.dismantle(&mut world);
    world.must_be_empty("the sample");
    let mut medium = world.inner.disk.crash(&[], Rng::new(2)).medium().clone();
    seal(&mut medium);
    medium
}

/// Seals all superblocks.
fn seal(medium: &mut Medium) {
    for block in 0..4 {
        if let Some(bytes) = medium.get_mut(&block).filter(|bytes| bytes.starts_with(b"GONDWANA")) {
            seal_for_believers(block, Arc::make_mut(bytes));
        }
    }
}

/// Changes a field of a block: of those that the whole image has, all kinds alike.
fn change(medium: &mut Medium, rng: &mut Rng) -> String {
    let mut kinds: BTreeMap<[u8; 4], Vec<u64>> = BTreeMap::new();
    for (&block, bytes) in &*medium {
        let magic = match &bytes[..4] {
            magic @ (b"GOND" | b"GJOU" | b"GSNA" | b"GLEF" | b"GINN") => magic.try_into().expect("four bytes"),
            _ => [0; 4],
        };
        kinds.entry(magic).or_default().push(block);
    }
    let kinds: Vec<_> = kinds.into_values().collect();
    let blocks: Vec<u64> = medium.keys().copied().collect();
    let kind = rng.below(kinds.len() as u64) as usize;
    let block = *rng.pick(&kinds[kind]);
    let bytes = medium[&block].clone();
    if rng.one_in(12) {
        // A whole block becomes what another one is: nodes lead to themselves.
        let other = *rng.pick(&blocks);
        let copy = medium[&other].clone();
        medium.insert(block, copy);
        return format!("block {block} is what {other} is");
    }
    // Mostly a field that something is in.
    let used: Vec<usize> = (0..BLOCK / 4)
        .filter(|at| bytes[4 * at..4 * at + 4] != [0; 4])
        .collect();
    let at = if used.is_empty() || rng.one_in(8) {
        4 * rng.below(BLOCK as u64 / 4) as usize
    } else {
        4 * *rng.pick(&used)
    };
    if rng.one_in(12) {
        // All that is behind is the same: a node has as many children as it can have, and these may be itself.
        let (at, size) = (at / 8 * 8, [16, 24][rng.below(2) as usize]);
        let data = Arc::make_mut(medium.get_mut(&block).expect("it is there"));
        if rng.one_in(2) && at + 8 < BLOCK {
            // Where an entry of a map has its block, and a child of the table.
            let at = at + size - 16;
            data[at..at + 4].copy_from_slice(&(block as u32).to_le_bytes());
        }
        for to in at + size..BLOCK {
            data[to] = data[to - size];
        }
        return format!("block {block}, from byte {at}: the same {size} bytes");
    }
    let size = [1, 2, 4, 8][rng.below(4) as usize].min(BLOCK - at);
    let before = bytes[at..]
        .iter()
        .take(8)
        .rev()
        .fold(0, |word, &byte| word << 8 | u64::from(byte));
    let value = match rng.below(10) {
        0 => rng.next_u64(),
        1 => rng.below(8),
        2 => u64::MAX,
        3 => before ^ 1 << rng.below(8 * size as u64),
        4 => before.wrapping_add(1),
        5 => before.wrapping_sub(1),
        6 => [1 << 47, (1 << 48) - 1, 1 << 63, 4096, BLOCKS, 1 << 32, 256, 6][rng.below(8) as usize],
        7 => block,
        _ => *rng.pick(&blocks),
    };
    let block_bytes = Arc::make_mut(medium.get_mut(&block).expect("it is there"));
    block_bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    format!("block {block}, byte {at}, {size} bytes: {value:#x}")
}

/// An error must tell people something.
fn is_sentence(text: &str) {
    let is_told = text.split(' ').count() > 3 && !text.contains("recovery failed");
    assert!(is_told, "no sentence: {text}");
}

#[derive(Default)]
struct Tally(HashMap<&'static str, [u64; 2]>);

impl Tally {
    fn note<T>(&mut self, what: &'static str, result: Result<T, MountError>) -> Option<T> {
        let counts = self.0.entry(what).or_default();
        counts[usize::from(result.is_err())] += 1;
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                is_sentence(&error.to_string());
                None
            }
        }
    }
}

/// Reads everything of a mounted store that may be asked for.
fn read_all(store: &mut Store, world: &mut Counting) {
    let records: Vec<(u64, u64)> = store
        .objects()
        .take(60)
        .map(|record| (record.base, record.pages))
        .collect();
    for (base, pages) in records {
        for page in (0..pages.min(8)).chain([260, 400, pages / 2, pages.saturating_sub(1)]) {
            if matches!(store.read_page(world, base, page), ReadStart::Reading) {
                finish(store, world);
            }
        }
    }
    let _ = store.verify(world, &mut |_| {});
    let _ = store.shares_of_snapshots(world);
}

/// Uses a store that is mounted for writing.
fn use_store(store: &mut Store, world: &mut Counting, rng: &mut Rng) {
    store.scrub_begin();
    store.scrub_some(3000);
    finish(store, world);
    write(store, world, base(3), [1, 2, 261, 399].into_iter(), 7);
    let there: Vec<SnapshotName> = store.snapshots().map(|one| one.name).collect();
    if !there.is_empty() && store.drop_snapshot(*rng.pick(&there)).is_ok() {
        checkpoint(store, world, Vec::new(), CheckpointKind::Generation);
    }
    if store.keep_snapshot(name("three"), 1).is_ok() {
        checkpoint(store, world, Vec::new(), CheckpointKind::Periodic);
    }
    let objects: Vec<u64> = store.objects().take(40).map(|record| record.base).collect();
    for base in objects {
        match rng.below(4) {
            0 => drop(store.delete_object(base)),
            1 => drop(store.discard_pages(base, 0, 1 << rng.below(40), &[])),
            2 => drop(store.reserve(base, rng.below(500))),
            _ => {}
        }
    }
    let _ = store.put_object(record(40));
    for _ in 0..3 {
        checkpoint(store, world, Vec::new(), CheckpointKind::Generation);
    }
    write(store, world, base(40), 0..20, 8);
    finish(store, world);
    read_all(store, world);
}

fn use_image(medium: &Medium, rng: &mut Rng, tally: &mut Tally) {
    for mode in [MountMode::ReadOnly, MountMode::ReadWrite, MountMode::AcceptLoss] {
        let leaves = *rng.pick(&[Leaves::All, Leaves::AsNeeded(3)]);
        let mut world = Counting::new(medium, rng);
        let what = ["read", "write", "accept"][mode as usize % 3];
        if let Some((mut store, _)) = tally.note(what, Store::mount_in_parts(&mut world, mode, leaves)) {
            read_all(&mut store, &mut world);
            if mode != MountMode::ReadOnly {
                use_store(&mut store, &mut world, rng);
            }
            store.dismantle(&mut world);
        }
        world.must_be_empty(what);
        // The image that this has left must be as harmless.
        world.left = REQUESTS;
        if mode != MountMode::ReadOnly
            && let Some((store, _)) = tally.note("again", Store::mount(&mut world, MountMode::ReadWrite))
        {
            store.dismantle(&mut world);
        }
        world.must_be_empty("again");
    }
    for text in ["one", "two"] {
        let mut world = Counting::new(medium, rng);
        if let Some(Some((mut store, _))) = tally.note("snapshot", Store::mount_snapshot(&mut world, &name(text))) {
            read_all(&mut store, &mut world);
            store.dismantle(&mut world);
        }
        world.must_be_empty("a snapshot");
    }
    let mut world = Counting::new(medium, rng);
    if let Some((mut store, plan)) = tally.note("plan", Store::mount_for_repair(&mut world)) {
        tally.note("repair", store.repair(&mut world, &plan));
        store.dismantle(&mut world);
    }
    world.must_be_empty("repair");
    let mut world = Counting::new(medium, rng);
    match Store::roll_back(&mut world, &name("one"), rng.one_in(2).then(|| (name("kept"), 1))) {
        Ok(()) => drop(tally.note("back", Ok(()))),
        Err(RollBackError::Mount(error)) => drop(tally.note::<()>("back", Err(error))),
        Err(RollBackError::Snapshot(error)) => is_sentence(&error.to_string()),
    }
    world.must_be_empty("going back");
    let mut world = Counting::new(medium, rng);
    let _ = Store::grow(&mut world, BLOCKS + 100);
    world.must_be_empty("growth");
}

/// The seed that runs now, and how many have run: who watches ends the test where none comes to its end.
static RUNNING: AtomicU64 = AtomicU64::new(0);

#[test]
fn no_image_makes_the_store_panic_or_go_on_for_ever() {
    let samples = [sample(false), sample(true)];
    let mut all = Tally::default();
    std::thread::spawn(|| {
        loop {
            let before = RUNNING.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_secs(100));
            let now = RUNNING.load(Ordering::Relaxed);
            if before == now {
                eprintln!("seed {} has no end: repeat with GOND_SEED={0}", now - 1);
                std::process::abort();
            }
        }
    });
    // A good image is used without a refusal.
    for medium in &samples {
        use_image(medium, &mut Rng::new(1), &mut all);
    }
    assert!(all.0.values().all(|counts| counts[1] == 0), "{:?}", all.0);
    seeds::run(800, |seed| {
        RUNNING.store(seed + 1, Ordering::Relaxed);
        let mut rng = Rng::new(seed ^ 0x5ea1);
        let mut medium = rng.pick(&samples).clone();
        let count = 1 + rng.below(5);
        let changes: Vec<String> = (0..count).map(|_| change(&mut medium, &mut rng)).collect();
        seal(&mut medium);
        let used = catch_unwind(AssertUnwindSafe(|| use_image(&medium, &mut rng, &mut all)));
        if let Err(panic) = used {
            eprintln!("seed {seed}: {changes:?}");
            resume_unwind(panic);
        }
    });
    println!("{:?}", all.0);
}
