//! Too little heap for a large disk: the mount says how much it takes, has written nothing, and a later one succeeds.

mod plain;

use plain::PlainWorld;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use store::{
    BLOCK, DirtyPage, Disk, DiskError, FormatOptions, Frame, MountError, MountMode, Operation, PageFlags, Pages,
    QueueFull, Random, Request, Store,
};

/// Allocations from this size on are counted: they grow with the disk. (Two pieces of the journal have 128 KiB.)
const LARGE: usize = 256 << 10;
/// 96 GiB.
const BLOCKS: u64 = 96 << 18;

/// How many large allocations succeed before one fails.
static LEFT: AtomicU64 = AtomicU64::new(u64::MAX);

struct Failing;

impl Failing {
    /// Whether this allocation is the one that fails.
    fn fails(size: usize) -> bool {
        size >= LARGE
            && LEFT
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.wrapping_sub(1)))
                .is_ok_and(|left| left == 0)
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
            LEFT.store(n, Ordering::Relaxed);
            let mounted = Store::mount(&mut world, mode);
            LEFT.store(u64::MAX, Ordering::Relaxed);
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
