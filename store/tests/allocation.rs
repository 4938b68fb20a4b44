//! The n-th allocation fails, for every n: an error comes back, the store is as before, and a later try succeeds.

mod plain;

use plain::PlainWorld;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use store::{
    BLOCK, CheckpointKind, DeleteError, DirtyPage, Event, Failure, FormatOptions, MountMode, NoRoom, ObjectRecord,
    PageFlags, PageLookup, Pages, PutError, Store,
};

std::thread_local! {
    /// How many allocations of this thread succeed before one fails.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

struct Failing;

// SAFETY: everything is handed to the system's allocator as it came, or refused with a null pointer, which the trait allows.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if LEFT.replace(LEFT.get().wrapping_sub(1)) == 0 {
            return core::ptr::null_mut();
        }
        // SAFETY: the caller answers for the layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
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
        store.put_object(&record).expect("room");
    }
    (world, store)
}

/// What can be seen of the store.
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
    let frame = world.alloc().expect("memory");
    world.bytes_mut(frame).copy_from_slice(&[page as u8; BLOCK]);
    DirtyPage {
        base,
        page,
        frame,
        flags: PageFlags::READ | PageFlags::WRITE,
    }
}

fn checkpoint(world: &mut PlainWorld, store: &mut Store) -> Result<(), Failure> {
    store
        .checkpoint_begin(world, Vec::new(), CheckpointKind::Periodic)
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
            store.reserve_run(base, 77, PAGES - 300)
        });
        (0..PAGES).for_each(|page| store.unreserve(base, page));
        failed += fail_each(&mut store, &NoRoom::Memory, |store| {
            store.reserve_run(base, 77, PAGES - 300)
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
    assert_eq!(failed, 2, "the list and its first piece");

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

#[test]
fn a_change_that_has_no_heap_is_not_made() {
    let (mut world, mut store) = start();
    let mut failed = 0;
    for frozen in [false, true] {
        if frozen {
            // What comes now stands beside what the checkpoint makes.
            store
                .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Periodic)
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

#[test]
fn an_object_that_has_no_heap_is_neither_made_nor_deleted() {
    let (mut world, mut store) = start();
    let mut failed = 0;
    for frozen in [false, true] {
        let first = if frozen { 1000 } else { 10 };
        if frozen {
            // What comes now stands beside the table until the checkpoint is over.
            store
                .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Periodic)
                .expect("idle");
        }
        let object = |number: u64, capabilities: u64| ObjectRecord {
            base: BASE + number * (1 << 32),
            pages: 1 + number % 7,
            capabilities: (0..capabilities).map(|password| (password, 15)).collect(),
            ..ObjectRecord::default()
        };
        // Out of order, small and large, so that leaves and inner nodes are parted, and joined again.
        for number in (0..120).map(|number| first + number * 37 % 120) {
            let record = object(number, number * 13 % 128);
            failed += fail_each(&mut store, &PutError::Memory, |store| store.put_object(&record));
        }
        for number in (first..first + 120).step_by(2) {
            let record = object(number, number * 29 % 128);
            failed += fail_each(&mut store, &PutError::Memory, |store| store.put_object(&record));
        }
        for number in first + 20..first + 120 {
            let base = BASE + number * (1 << 32);
            failed += fail_each(&mut store, &DeleteError::Memory, |store| store.delete_object(base));
        }
    }
    assert!(failed > 500, "{failed} allocations");
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
