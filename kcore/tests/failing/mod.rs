//! The system's allocator, which lets one allocation fail and counts: `kcore/tests/heap.rs` uses it, and so do `allocation.rs` and `growth.rs` of `sasos/tests`.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    /// The allocation that fails, as a number of allocations from now; zero for none.
    pub static UNTIL_FAILURE: Cell<u64> = const { Cell::new(0) };
    /// Bytes of the longest allocation.
    pub static LONGEST: Cell<usize> = const { Cell::new(0) };
    /// Blocks that were freed.
    pub static FREED: Cell<u64> = const { Cell::new(0) };
}

pub struct Failing {
    /// Whether this allocation is the test's own: it neither fails nor counts.
    pub spares: fn() -> bool,
}

// SAFETY: the system's allocator does all, or nothing is allocated, as the contract of `GlobalAlloc` allows.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !(self.spares)() {
            let before = UNTIL_FAILURE.try_with(|left| left.replace(left.get().saturating_sub(1)));
            if before == Ok(1) {
                return core::ptr::null_mut();
            }
            let _ = LONGEST.try_with(|longest| longest.set(longest.get().max(layout.size())));
        }
        // SAFETY: passed on as it came.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let _ = FREED.try_with(|freed| freed.set(freed.get() + 1));
        // SAFETY: passed on as it came.
        unsafe { System.dealloc(memory, layout) }
    }
}
