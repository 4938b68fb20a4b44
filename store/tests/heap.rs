//! Too little heap. For a large disk: the mount says how much it takes, has written nothing, and a later one succeeds. For a record: the checkpoint makes a generation.

mod plain;

use plain::PlainWorld;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use store::{
    BLOCK, CheckpointKind, DirtyPage, Disk, DiskError, Event, FormatOptions, Frame, MountError, MountMode,
    ObjectRecord, Operation, PageFlags, Pages, QueueFull, Random, Request, Store,
};

/// Allocations that grow with the disk have this size or more. (Two pieces of the journal have 128 KiB.)
const LARGE: usize = 256 << 10;
/// The record of a small checkpoint of one page.
const RECORD: usize = 3 * BLOCK;
/// 96 GiB.
const BLOCKS: u64 = 96 << 18;

thread_local! {
    /// The size from which on allocations of this thread are counted, and how many of them succeed before one fails.
    static FAILING: Cell<(usize, u64)> = const { Cell::new((usize::MAX, 0)) };
}

/// Has one allocation fail, of this size or more, behind so many others of that size.
fn fail_behind(size: usize, others: u64) {
    FAILING.set((size, others));
}

/// No allocation fails.
fn fail_none() {
    FAILING.set((usize::MAX, 0));
}

struct Failing;

impl Failing {
    /// Whether this allocation is the one that fails.
    fn fails(size: usize) -> bool {
        let (from, left) = FAILING.get();
        if size < from {
            return false;
        }
        FAILING.set((from, left.wrapping_sub(1)));
        left == 0
    }
}

// SAFETY: everything is handed to the system's allocator as it came, or refused with a null pointer, which the trait allows.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if Self::fails(layout.size()) {
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

#[test]
fn a_disk_that_is_too_large_for_the_heap_is_refused_in_a_sentence() {
    for mode in [MountMode::ReadOnly, MountMode::ReadWrite] {
        let mut world = PlainWorld::new(BLOCKS);
        Store::format(&mut world, &FormatOptions::default()).expect("format");
        let before = world.disk.clone();
        // The world makes its frames beforehand: what fails then is the store's.
        let frames: Vec<_> = (0..64).map(|_| world.alloc().expect("memory")).collect();
        for frame in frames {
            world.free(frame);
        }
        let mut failed = 0;
        for n in 0.. {
            fail_behind(LARGE, n);
            let mounted = Store::mount(&mut world, mode);
            fail_none();
            match mounted {
                Ok((store, _)) => {
                    store.dismantle(&mut world);
                    break;
                }
                Err(error) => {
                    assert!(
                        matches!(error, MountError::TooLarge { blocks: BLOCKS, .. }),
                        "{error:?}"
                    );
                    let told = error.to_string();
                    assert!(told.contains("98304 MiB") && told.contains("12364 KiB"), "{told}");
                    assert!(world.disk == before, "it wrote");
                    failed += 1;
                }
            }
        }
        assert!(failed >= 3, "{failed} large allocations are not enough for this disk");
    }
}

#[test]
fn a_checkpoint_without_heap_for_its_record_makes_a_generation() {
    let mut world = PlainWorld::new(2000);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    let base = 1 << 32;
    let record = ObjectRecord {
        base,
        pages: 1,
        ..ObjectRecord::default()
    };
    store.put_object(record).expect("put");
    for is_short in [false, true] {
        let before = store.stats().generation;
        store.reserve(base, 0).expect("room");
        let page = world.dirty(base, 0, 7);
        let begun = store.checkpoint_begin(&mut world, vec![page], CheckpointKind::Periodic);
        begun.expect("idle");
        if is_short {
            fail_behind(RECORD, 0);
        }
        let events: Vec<Event> = core::iter::from_fn(|| store.poll(&mut world)).collect();
        fail_none();
        let generation = before + u64::from(is_short);
        assert!(events.contains(&Event::CheckpointDone { generation }), "{events:?}");
    }
}
