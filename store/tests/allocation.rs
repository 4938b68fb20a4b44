//! The n-th allocation fails, for every n: an error comes back, the store is as before, and a later try succeeds.

mod plain;

use plain::PlainWorld;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use store::{
    BLOCK, BadPage, Budget, CheckpointKind, DeleteError, DirtyPage, Disk, DiskError, Event, Failure, FormatOptions,
    Frame, MountError, MountMode, NoRoom, NotBegun, ObjectRecord, Operation, PageFlags, PageLookup, Pages, PdxList,
    PdxRecord, PutError, QueueFull, Random, ReadStart, Request, Store, World,
};

std::thread_local! {
    /// How many allocations of this thread succeed before one fails.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    /// Whether all fail.
    static REFUSES: Cell<bool> = const { Cell::new(false) };
    /// How often this thread has called the heap.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

struct Failing;

// SAFETY: everything is handed to the system's allocator as it came, or refused with a null pointer, which the trait allows.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        if REFUSES.get() || LEFT.replace(LEFT.get().wrapping_sub(1)) == 0 {
            return core::ptr::null_mut();
        }
        // SAFETY: the caller answers for the layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: every pointer given out came from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;

const BASE: u64 = 1 << 40;
/// Two levels of map nodes, and more than a chunk of a container has entries.
const PAGES: u64 = 100 << 8;

fn start() -> (PlainWorld, Store) {
    let mut world = PlainWorld::new(60_000);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    for object in 0..4 {
        let record = ObjectRecord {
            base: BASE + object * (1 << 32),
            pages: PAGES,
            ..ObjectRecord::default()
        };
        store.put_object(record).expect("room");
    }
    (world, store)
}

/// The visible state of the store.
fn digest(store: &Store) -> String {
    format!("{:?} {:?}", store.stats(), store.objects().collect::<Vec<_>>())
}

/// Lets each allocation of an operation fail in its turn; gives how many there were.
fn fail_each<E: PartialEq + core::fmt::Debug>(
    store: &mut Store,
    expected: &E,
    mut operation: impl FnMut(&mut Store) -> Result<(), E>,
) -> u64 {
    let before = digest(store);
    for n in 0.. {
        LEFT.set(n);
        let result = operation(store);
        let left = LEFT.replace(u64::MAX);
        match result {
            Ok(()) => {
                assert!(left <= n, "an allocation failed, and nobody was told");
                return n;
            }
            Err(error) => assert_eq!(error, *expected),
        }
        assert_eq!(digest(store), before, "allocation {n}");
    }
    unreachable!()
}

fn dirty(world: &mut PlainWorld, base: u64, page: u64) -> DirtyPage {
    DirtyPage {
        flags: PageFlags::READ | PageFlags::WRITE,
        ..world.dirty(base, page, page as u8)
    }
}

fn checkpoint(world: &mut PlainWorld, store: &mut Store) -> Result<(), Failure> {
    store
        .checkpoint_begin(world, Vec::new(), CheckpointKind::Generation)
        .expect("idle");
    loop {
        match store.poll(world).expect("it ends") {
            Event::CheckpointDone { .. } => return Ok(()),
            Event::CheckpointFailed { reason } => return Err(reason),
            _ => {}
        }
    }
}

#[test]
fn a_promise_that_has_no_heap_is_none() {
    let (mut world, mut store) = start();
    let mut failed = 0;
    for object in 0..4 {
        let base = BASE + object * (1 << 32);
        for page in (0..PAGES).step_by(256) {
            failed += fail_each(&mut store, &NoRoom::Memory, |store| store.reserve(base, page));
        }
        failed += fail_each(&mut store, &NoRoom::Memory, |store| {
            store.reserve_run(base, PAGES, 77, PAGES - 300)
        });
        (0..PAGES).for_each(|page| store.unreserve(base, page));
        failed += fail_each(&mut store, &NoRoom::Memory, |store| {
            store.reserve_run(base, PAGES, 77, PAGES - 300)
        });
        (0..PAGES)
            .filter(|page| page % 256 != 0)
            .for_each(|page| store.unreserve(base, page));
    }
    assert!(failed > 20, "{failed} allocations");

    let promised = digest(&store);
    let pages: Vec<_> = (0..4)
        .flat_map(|object| (1..90).map(move |leaf| (BASE + object * (1 << 32), leaf << 8)))
        .map(|(base, page)| dirty(&mut world, base, page))
        .collect();
    let mut failed = 0;
    for &page in &pages {
        failed += fail_each(&mut store, &Failure::Memory, |store| store.freeze_page(page));
    }
    assert_eq!(failed, 3, "the list and its two pieces");

    // Others use the heap meanwhile; what comes back has its place all the same, without asking.
    store.reserve(BASE, 3).expect("room");
    store.unreserve(BASE, 3);
    LEFT.set(0);
    store.freeze_cancel();
    assert_eq!(LEFT.replace(u64::MAX), 0, "it allocated");
    assert_eq!(digest(&store), promised);
    while store.page_over().is_some() {}

    for &page in &pages {
        store.freeze_page(page).expect("heap");
    }
    assert_eq!(checkpoint(&mut world, &mut store), Ok(()));
    store.dismantle(&mut world);
    let (store, _) = Store::mount(&mut world, MountMode::ReadOnly).expect("mount");
    let mut findings = Vec::new();
    let found = store
        .verify(&mut world, &mut |finding| findings.push(finding))
        .expect("memory");
    assert_eq!((findings, found.pages), (Vec::new(), pages.len() as u64));
}

/// The checkpoint was not begun, so nobody is told that its pages were written.
#[test]
fn pages_of_a_checkpoint_that_was_given_up_come_back_unwritten() {
    let (mut world, mut store) = start();
    while store.poll(&mut world).is_some() {}
    for page in 0..3 {
        store.reserve(BASE, page).expect("room");
        let page = dirty(&mut world, BASE, page);
        store.freeze_page(page).expect("heap");
    }
    store.freeze_cancel();
    assert_eq!(store.poll(&mut world), None);
    let back: Vec<u64> = core::iter::from_fn(|| store.page_over())
        .map(|page| page.page)
        .collect();
    assert_eq!(back.len(), 3, "{back:?}");
}

#[test]
fn a_change_that_has_no_heap_is_not_made() {
    let (mut world, mut store) = start();
    let mut failed = 0;
    for frozen in [false, true] {
        if frozen {
            // Later changes stand beside what the checkpoint makes.
            store
                .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation)
                .expect("idle");
        }
        for object in 0..4 {
            let base = BASE + object * (1 << 32);
            for page in (0..600).step_by(3) {
                let flags = PageFlags::READ;
                failed += fail_each(&mut store, &NoRoom::Memory, |store| {
                    let result = store.set_page_flags(base, page, flags);
                    let expected = if result.is_ok() || frozen {
                        PageLookup::Zero(flags)
                    } else {
                        PageLookup::Absent
                    };
                    assert_eq!(store.page_flags(&world, base, page), expected);
                    result
                });
                let start = 1000 + page;
                failed += fail_each(&mut store, &NoRoom::Memory, |store| {
                    store.discard_pages(base, start, start + 2, &[])
                });
            }
        }
    }
    assert!(failed > 50, "{failed} allocations");
    while let Some(event) = store.poll(&mut world) {
        assert!(!matches!(event, Event::CheckpointFailed { .. }), "{event:?}");
    }
    assert_eq!(checkpoint(&mut world, &mut store), Ok(()));
    for page in 0..600 {
        let expected = if page % 3 == 0 {
            PageLookup::Zero(PageFlags::READ)
        } else {
            PageLookup::Absent
        };
        assert_eq!(store.page_flags(&world, BASE, page), expected);
    }
}

/// Each change of a row copies its record, however much it lists.
#[test]
fn the_copy_of_a_record_is_two_allocations() {
    let (_, mut store) = start();
    let mut full = record(0);
    for password in 1..16 {
        let pdx = PdxRecord {
            password,
            entries: &[4096; 12],
            ..PdxRecord::default()
        };
        full.pdx.add(pdx).expect("memory");
    }
    let copies = fail_each(&mut store, &abi::Error::NoMemory, |_| full.copy().map(|_| ()));
    assert_eq!(copies, 2);
}

#[test]
fn an_object_that_has_no_heap_is_neither_made_nor_deleted() {
    let (mut world, mut store) = start();
    let mut failed = 0;
    for frozen in [false, true] {
        let first = if frozen { 1000 } else { 10 };
        if frozen {
            // Later changes stand beside the table until the checkpoint is over.
            store
                .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation)
                .expect("idle");
        }
        let object = |number: u64, capabilities: u64| ObjectRecord {
            base: BASE + number * (1 << 32),
            pages: 1 + number % 7,
            capabilities: (0..capabilities).map(|password| (password, 15)).collect(),
            ..ObjectRecord::default()
        };
        let put =
            |store: &mut Store, record: &ObjectRecord| store.put_object(record.copy().map_err(|_| PutError::Memory)?);
        // Out of order, small and large, so that leaves and inner nodes are parted, and joined again.
        for number in (0..120).map(|number| first + number * 37 % 120) {
            let record = object(number, number * 13 % 128);
            failed += fail_each(&mut store, &PutError::Memory, |store| put(store, &record));
        }
        for number in (first..first + 120).step_by(2) {
            let record = object(number, number * 29 % 128);
            failed += fail_each(&mut store, &PutError::Memory, |store| put(store, &record));
        }
        for number in first + 20..first + 120 {
            let base = BASE + number * (1 << 32);
            failed += fail_each(&mut store, &DeleteError::Memory, |store| store.delete_object(base));
        }
    }
    assert!(failed > 400, "{failed} allocations");
    while let Some(event) = store.poll(&mut world) {
        assert!(!matches!(event, Event::CheckpointFailed { .. }), "{event:?}");
    }
    assert_eq!(checkpoint(&mut world, &mut store), Ok(()));
    let before: Vec<_> = store.objects().cloned().collect();
    assert_eq!(before.len(), 4 + 20 + 20);
    store.dismantle(&mut world);
    let (store, _) = Store::mount(&mut world, MountMode::ReadOnly).expect("mount");
    assert!(store.objects().eq(&before));
}

/// A world that takes no part in what fails and what is counted.
struct Apart(PlainWorld);

impl Apart {
    fn with<T>(&mut self, act: impl FnOnce(&mut PlainWorld) -> T) -> T {
        let (left, refuses, calls) = (LEFT.replace(u64::MAX), REFUSES.replace(false), CALLS.get());
        let result = act(&mut self.0);
        LEFT.set(left);
        REFUSES.set(refuses);
        CALLS.set(calls);
        result
    }
}

impl Pages for Apart {
    fn alloc(&mut self) -> Option<Frame> {
        self.with(PlainWorld::alloc)
    }
    fn free(&mut self, frame: Frame) {
        self.with(|world| world.free(frame));
    }
    fn bytes(&self, frame: Frame) -> &[u8; BLOCK] {
        self.0.bytes(frame)
    }
    fn bytes_mut(&mut self, frame: Frame) -> &mut [u8; BLOCK] {
        self.0.bytes_mut(frame)
    }
}

impl Disk for Apart {
    fn blocks(&self) -> u64 {
        self.0.blocks()
    }
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        self.with(|world| world.submit(request))
    }
    fn complete(&mut self) -> Option<(u32, Result<(), DiskError>)> {
        self.with(PlainWorld::complete)
    }
    fn wait(&mut self) {
        self.with(PlainWorld::wait);
    }
}

impl Random for Apart {
    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}

const PARTS: u64 = 300;

/// Many objects, of which some have long bodies.
fn record(number: u64) -> ObjectRecord {
    let long = number.is_multiple_of(7);
    let mut pdx = PdxList::default();
    if long {
        let one = PdxRecord {
            entries: &[4096; 3],
            ..PdxRecord::default()
        };
        pdx.add(one).expect("memory");
    }
    ObjectRecord {
        base: BASE + number * (1 << 32),
        pages: 1000,
        capabilities: (0..if long { 128 } else { 2 }).map(|password| (password, 15)).collect(),
        pdx,
        ..ObjectRecord::default()
    }
}

/// Runs the store until nothing is left to do; gives what came that was not a page.
fn run(world: &mut impl World, store: &mut Store) -> Option<Event> {
    let mut last = None;
    while let Some(event) = store.poll(world) {
        if !matches!(event, Event::PageWritten { .. }) {
            last = Some(event);
        }
    }
    last
}

fn page(world: &mut Apart, store: &mut Store, base: u64, page: u64) -> DirtyPage {
    store.reserve(base, page).expect("room");
    world.with(|world| dirty(world, base, page))
}

/// A store with objects, pages and changes, some of them in the journal only.
fn full() -> Apart {
    let mut world = Apart(PlainWorld::new(20_000));
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    (0..PARTS).for_each(|number| store.put_object(record(number)).expect("room"));
    let pages: Vec<_> = (0..8)
        .map(|number| page(&mut world, &mut store, BASE + (number << 32), 300 + number))
        .collect();
    store
        .checkpoint_begin(&mut world, pages, CheckpointKind::Generation)
        .expect("idle");
    assert!(matches!(
        run(&mut world, &mut store),
        Some(Event::CheckpointDone { .. })
    ));
    while store.page_over().is_some() {}
    for round in 0..3 {
        change(&mut world, &mut store, round);
        let late = vec![page(&mut world, &mut store, BASE + (round << 32), 700)];
        let named: Vec<_> = (0..PARTS).step_by(11).map(|number| BASE + (number << 32)).collect();
        store.sync_begin(&mut world, late, &named).expect("heap");
        assert!(matches!(run(&mut world, &mut store), Some(Event::SyncDone(_))));
    }
    store.dismantle(&mut world);
    world
}

/// Objects come and go, change, and lose pages.
fn change(_: &mut Apart, store: &mut Store, round: u64) {
    let other = record(PARTS + round);
    store.put_object(other).expect("room");
    store.delete_object(BASE + ((40 + round) << 32)).expect("it is there");
    store.discard_pages(BASE + (1 << 32), 290, 310, &[]).expect("room");
    store
        .set_page_flags(BASE + (2 << 32), 5 + round, PageFlags::READ)
        .expect("room");
    store.resize(BASE + (3 << 32), 900 - round).expect("room");
}

/// The contents of a disk: its objects, and that all is sound.
fn contents(world: &mut Apart) -> Vec<ObjectRecord> {
    let (store, report) = Store::mount(world, MountMode::ReadOnly).expect("mount");
    assert!(report.losses.is_empty() && report.damage.is_empty());
    let mut findings = Vec::new();
    store
        .verify(world, &mut |finding| findings.push(finding))
        .expect("memory");
    assert_eq!(findings, []);
    let objects = store.objects().cloned().collect();
    store.dismantle(world);
    objects
}

/// Whether the allocation that was to fail was reached, since `LEFT` was set.
fn reached() -> bool {
    LEFT.replace(u64::MAX) > u64::MAX / 2
}

#[test]
fn a_mount_that_has_no_heap_changes_nothing() {
    for mode in [MountMode::ReadOnly, MountMode::ReadWrite] {
        let mut world = full();
        let objects = contents(&mut world);
        for n in 0.. {
            LEFT.set(n);
            let mounted = Store::mount(&mut world, mode);
            let failed = reached();
            match mounted {
                Ok((store, _)) => {
                    store.dismantle(&mut world);
                    if !failed {
                        assert!(n > 200, "{n} allocations");
                        break;
                    }
                }
                Err(MountError::Memory | MountError::TooLarge { .. } | MountError::Recovery(Failure::Memory)) => {
                    assert!(failed);
                }
                Err(error) => panic!("allocation {n}: {error:?}"),
            }
            assert_eq!(contents(&mut world), objects, "allocation {n}");
        }
        assert_eq!(contents(&mut world), objects);
    }
}

/// Begins a checkpoint or a sync of some changes and pages and runs it to its end.
fn job(world: &mut Apart, store: &mut Store, pages: Vec<DirtyPage>, by_sync: bool) -> Result<(), Failure> {
    if by_sync {
        let named = [
            BASE + (40 << 32),
            BASE + (PARTS << 32),
            BASE + (1 << 32),
            BASE + (2 << 32),
        ];
        store.sync_begin(world, pages, &named)?;
    } else {
        store
            .checkpoint_begin(world, pages, CheckpointKind::Generation)
            .map_err(|reason| {
                assert_eq!(reason, NotBegun::Memory);
                Failure::Memory
            })?;
    }
    match run(world, store) {
        Some(Event::CheckpointDone { .. } | Event::SyncDone(_)) => Ok(()),
        Some(Event::CheckpointFailed { reason } | Event::SyncFailed(_, reason)) => Err(reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_checkpoint_or_sync_that_has_no_heap_may_be_done_again() {
    for by_sync in [false, true] {
        let world = full();
        let disk = world.0.disk.clone();
        for n in 0.. {
            let mut world = Apart(PlainWorld::new(20_000));
            world.0.disk.clone_from(&disk);
            let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
            change(&mut world, &mut store, 5);
            let pages: Vec<_> = (0..60)
                .map(|number| page(&mut world, &mut store, BASE + (number << 32), 500))
                .collect();
            let all = |store: &Store| store.objects().cloned().collect::<Vec<_>>();
            let (objects, again) = (all(&store), pages.clone());
            LEFT.set(n);
            let result = job(&mut world, &mut store, pages, by_sync);
            let failed = reached();
            while store.page_over().is_some() {}
            assert!(all(&store) == objects, "allocation {n}");
            if let Err(reason) = result {
                assert!(failed && reason == Failure::Memory, "allocation {n}: {reason:?}");
                for page in &again {
                    assert_eq!(store.reserve(page.base, page.page), Ok(()));
                }
                // A sync whose record may have begun is followed by a checkpoint.
                assert_eq!(job(&mut world, &mut store, again, false), Ok(()), "allocation {n}");
                while store.page_over().is_some() {}
            }
            store.dismantle(&mut world);
            assert_eq!(
                contents(&mut world).len() as u64,
                objects.len() as u64,
                "allocation {n}"
            );
            if !failed {
                assert!(n > 10, "{n} allocations");
                break;
            }
        }
    }
}

#[test]
fn a_page_that_has_no_heap_is_read_later() {
    let mut world = full();
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadOnly).expect("mount");
    let mut failures = 0;
    for (number, wanted) in [(4, 304), (5, 305), (0, 700)] {
        let base = BASE + (number << 32);
        for n in 0.. {
            LEFT.set(n);
            let start = store.read_page(&mut world, base, wanted);
            let event = store.poll(&mut world);
            let failed = reached();
            match (start, event) {
                (ReadStart::NoMemory, None)
                | (
                    ReadStart::Reading,
                    Some(Event::PageBad {
                        reason: BadPage::Memory,
                        ..
                    }),
                ) => {
                    assert!(failed);
                    failures += 1;
                }
                (ReadStart::Reading, Some(Event::PageRead { frame, .. })) => {
                    assert_eq!(world.bytes(frame)[0], wanted as u8);
                    world.free(frame);
                    break;
                }
                other => panic!("allocation {n}: {other:?}"),
            }
        }
    }
    assert!(failures > 0);
    store.dismantle(&mut world);
}

/// A sync that waits behind a checkpoint needs the rows that came meanwhile in the table: without heap for them it fails, and is not told as durable.
#[test]
fn a_sync_behind_a_checkpoint_without_heap_for_its_rows_loses_nothing() {
    const BASE: u64 = 1 << 32;
    let mut durable = 0;
    for n in 0..60 {
        let mut world = Apart(PlainWorld::new(2000));
        Store::format(&mut world, &FormatOptions::default()).expect("format");
        let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
        store
            .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation)
            .expect("idle");
        let record = ObjectRecord {
            base: BASE,
            pages: 300,
            capabilities: vec![(1, 15); 100],
            ..ObjectRecord::default()
        };
        store.put_object(record).expect("room");
        let page = page(&mut world, &mut store, BASE, 252);
        let ticket = store.sync_begin(&mut world, vec![page], &[BASE]).expect("memory");
        LEFT.set(n);
        let done = loop {
            match store.poll(&mut world).expect("it ends") {
                Event::SyncDone(done) if done == ticket => break true,
                Event::SyncFailed(..) | Event::SyncNeedsCheckpoint(..) => break false,
                _ => {}
            }
        };
        LEFT.set(u64::MAX);
        run(&mut world, &mut store);
        if done {
            durable += 1;
            let read = store.read_page(&mut world, BASE, 252);
            assert_eq!(read, ReadStart::Reading, "allocation {n}, at once");
            run(&mut world, &mut store);
            assert_eq!(checkpoint(&mut world.0, &mut store), Ok(()));
            store.dismantle(&mut world);
            let (mut store, _) = Store::mount(&mut world, MountMode::ReadOnly).expect("mount");
            let read = store.read_page(&mut world, BASE, 252);
            assert_eq!(read, ReadStart::Reading, "allocation {n}, after a start");
        }
    }
    assert!(durable > 10, "{durable}");
}

/// However many objects were deleted, a checkpoint begins without a list of them. Each address is free again when the checkpoint is durable that began
/// behind the deletion.
#[test]
fn a_checkpoint_begins_without_heap_for_deletions() {
    let (mut world, mut store) = start();
    let bases: Vec<u64> = (0..600).map(|number| BASE + (100 + number) * (1 << 32)).collect();
    for &base in &bases {
        let record = ObjectRecord {
            base,
            pages: 1,
            ..ObjectRecord::default()
        };
        store.put_object(record).expect("room");
    }
    checkpoint(&mut world, &mut store).expect("durable");
    let (before, meanwhile) = bases.split_at(500);
    for &base in before {
        store.delete_object(base).expect("it is there");
    }
    LEFT.set(0);
    let begun = store.checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation);
    let asked = LEFT.replace(u64::MAX) != 0;
    assert!(begun.is_ok() && !asked, "{begun:?}");
    for &base in meanwhile {
        store.delete_object(base).expect("it is there");
    }
    while !matches!(store.poll(&mut world).expect("it ends"), Event::CheckpointDone { .. }) {}
    assert!(before.iter().all(|&base| !store.awaits_deletion(base)));
    assert!(meanwhile.iter().all(|&base| store.awaits_deletion(base)));
    checkpoint(&mut world, &mut store).expect("durable");
    assert!(!meanwhile.iter().any(|&base| store.awaits_deletion(base)));
}

// ---- thousands of changes of one object go in pieces

/// The most changes that the server notes before it asks for a checkpoint.
const NOTED: u64 = 4096;
const GRANT: u64 = 16_500;
/// Calls of the heap that take as long as an event may.
const FEW: u64 = 80;

const LARGE: u64 = 1 << 16;

/// Calls of the heap that something makes.
fn calls<T>(act: impl FnOnce() -> T) -> (T, u64) {
    let before = CALLS.get();
    let done = act();
    (done, CALLS.get() - before)
}

/// A store with an object that has some thousand changes, both limits and ranges that read as zero.
fn changed() -> (Apart, Store) {
    let mut world = Apart(PlainWorld::new(60_000));
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    let record = ObjectRecord {
        base: BASE,
        pages: LARGE,
        ..ObjectRecord::default()
    };
    store.put_object(record).expect("room");
    change_apart(&mut store, 0);
    (world, store)
}

fn change_apart(store: &mut Store, first: u64) {
    for number in 0..NOTED / 2 {
        let page = first + number * 8;
        store.set_page_flags(BASE, page, PageFlags::READ).expect("room");
        store.discard_pages(BASE, page + 2, page + 3, &[]).expect("room");
    }
}

/// Runs a checkpoint; gives what became of it, and the most calls of the heap by one grant. There is heap as long as that is asked for.
fn run_by_grants(world: &mut Apart, store: &mut Store, has_heap: impl Fn(&PlainWorld) -> bool) -> (bool, u64) {
    let (mut done, mut most) = (None, 0);
    while !store.is_idle() {
        REFUSES.set(!has_heap(&world.0));
        let ((), of_grant) = calls(|| {
            let mut budget = Budget::of(GRANT);
            while let Some(event) = store.poll_within(world, &mut budget) {
                match event {
                    Event::CheckpointDone { .. } => done = Some(true),
                    Event::CheckpointFailed { .. } => done = Some(false),
                    _ => {}
                }
            }
        });
        most = most.max(of_grant);
    }
    REFUSES.set(false);
    while store.page_over().is_some() {}
    (done.expect("it ends"), most)
}

fn begin(world: &mut Apart, store: &mut Store) {
    store
        .checkpoint_begin(world, Vec::new(), CheckpointKind::Generation)
        .expect("idle");
}

/// A checkpoint has thousands of changes of an object: the first that comes behind them finds room for itself, not for all.
#[test]
fn the_first_change_beside_a_checkpoint_is_cheap() {
    let (mut world, mut store) = changed();
    begin(&mut world, &mut store);
    let (noted, limit) = calls(|| store.set_page_flags(BASE, 7, PageFlags::READ));
    assert_eq!(noted, Ok(()));
    let (noted, range) = calls(|| store.discard_pages(BASE, 20, 21, &[]));
    assert_eq!(noted, Ok(()));
    let (begun, sync) = calls(|| store.sync_begin(&mut world, Vec::new(), &[BASE]));
    begun.expect("heap");
    assert!(limit + range < FEW && sync < FEW, "{limit} and {range}, sync {sync}");
}

/// The changes that a checkpoint has made go in pieces, and so do those of an object that is deleted.
#[test]
fn changes_that_nobody_needs_go_in_pieces() {
    let (mut world, mut store) = changed();
    begin(&mut world, &mut store);
    let (done, most) = run_by_grants(&mut world, &mut store, |_| true);
    assert!(done && most < FEW, "made: {most}");
    change_apart(&mut store, 4);
    let (deleted, at_once) = calls(|| store.delete_object(BASE));
    assert_eq!(deleted, Ok(()));
    assert!(at_once < FEW, "deleted: {at_once}");
    assert_eq!(store.noted_blocks(), 0, "they cost nothing");
    begin(&mut world, &mut store);
    let (done, most) = run_by_grants(&mut world, &mut store, |_| true);
    assert!(done && most < FEW, "dropped: {most}");
    assert_eq!(store.noted(), 0);
}

/// The changes of a checkpoint that fails come back in pieces and without heap, beneath those of syncs behind it and what came later: whether they
/// were made in the maps or not.
#[test]
fn changes_that_come_back_have_room() {
    for (meanwhile, are_made) in [0, 1, 40, NOTED / 2]
        .into_iter()
        .flat_map(|some| [(some, false), (some, true)])
    {
        let (mut world, mut store) = changed();
        begin(&mut world, &mut store);
        for number in 0..meanwhile {
            let page = number * 8 + 4;
            store.set_page_flags(BASE, page, PageFlags::WRITE).expect("room");
            store.discard_pages(BASE, page + 2, page + 3, &[]).expect("room");
            if number < 10 {
                store.sync_begin(&mut world, Vec::new(), &[BASE]).expect("heap");
            }
        }
        assert_eq!(store.noted() as u64, 2 * meanwhile);
        world.0.failing = Some((Operation::Write, 0..60_000));
        world.0.log.clear();
        let has_heap = |world: &PlainWorld| are_made && world.log.is_empty();
        let (done, most) = run_by_grants(&mut world, &mut store, has_heap);
        assert!(!done && most < FEW, "{meanwhile} meanwhile: {most}");
        assert_eq!(store.noted() as u64, NOTED + 2 * meanwhile);
        for number in 0..NOTED / 2 {
            let flags = |page| store.page_flags(&world, BASE, page);
            assert_eq!(flags(number * 8), PageLookup::Zero(PageFlags::READ));
            if number < meanwhile {
                assert_eq!(flags(number * 8 + 4), PageLookup::Zero(PageFlags::WRITE));
            }
        }
        world.0.failing = None;
        begin(&mut world, &mut store);
        assert!(
            run_by_grants(&mut world, &mut store, |_| true).0,
            "it is done with heap"
        );
        assert_eq!(store.noted(), 0);
    }
}
