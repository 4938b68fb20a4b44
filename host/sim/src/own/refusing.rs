//! An allocator that refuses what is to [fail](super::fails).

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// Allocations that were refused in this program.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, but for what is to fail. A program in which heap is to be refused has it as its global allocator.
#[derive(Debug)]
pub struct Refusing;

impl Refusing {
    /// Allocations that were refused in this program.
    pub fn count() -> u64 {
        REFUSED.load(Ordering::Relaxed)
    }
}

// SAFETY: everything is handed to the system's allocator as it came, or refused with a null pointer, which the trait allows.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if super::fails() {
            REFUSED.fetch_add(1, Ordering::Relaxed);
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
