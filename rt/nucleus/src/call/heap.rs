//! A heap that only grows: memory is cut from a fixed range and comes back when the last block is
//! freed first. Programs on the bare µ-kernel allocate little, and say beforehand how much.

use core::{
    alloc::{GlobalAlloc, Layout},
    cell::UnsafeCell,
    ptr::null_mut,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// A heap of so many bytes, which lie in the program's own data.
#[repr(C, align(64))]
pub struct Heap<const BYTES: usize> {
    memory: UnsafeCell<[u8; BYTES]>,
    used: AtomicUsize,
}

// SAFETY: the memory is handed out in pieces that do not overlap: `used` grows by compare and
// exchange, and shrinks only over the last piece, by the one who gives it back.
unsafe impl<const BYTES: usize> Sync for Heap<BYTES> {}

impl<const BYTES: usize> Heap<BYTES> {
    /// An empty heap.
    #[allow(clippy::new_without_default, reason = "it is made for a static")]
    pub const fn new() -> Self {
        Self {
            memory: UnsafeCell::new([0; BYTES]),
            used: AtomicUsize::new(0),
        }
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }
}

// SAFETY: blocks are disjoint, lie in the memory, and are aligned as asked; what is freed is never
// used again by its owner.
unsafe impl<const BYTES: usize> GlobalAlloc for Heap<BYTES> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let base = self.memory.get() as usize;
        let mut start = 0;
        let taken = self.used.fetch_update(Relaxed, Relaxed, |used| {
            start = (base + used).next_multiple_of(layout.align()) - base;
            let end = start.checked_add(layout.size())?;
            (end <= BYTES).then_some(end)
        });
        match taken {
            Ok(_) => (base + start) as *mut u8,
            Err(_) => null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let start = block as usize - self.memory.get() as usize;
        // Not the last block: it stays used for good.
        let _ = self
            .used
            .compare_exchange(start + layout.size(), start, Relaxed, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_disjoint_aligned_and_the_last_comes_back() {
        let heap = Heap::<256>::new();
        let layout = |bytes, align| Layout::from_size_align(bytes, align).expect("a layout");
        // SAFETY: the blocks are not touched, only their addresses are looked at.
        unsafe {
            let first = heap.alloc(layout(3, 1)) as usize;
            let second = heap.alloc(layout(16, 16));
            assert!(second as usize >= first + 3 && (second as usize).is_multiple_of(16));
            let used = heap.used();
            let third = heap.alloc(layout(40, 8));
            heap.dealloc(third, layout(40, 8));
            assert_eq!(heap.used(), used);
            heap.dealloc(first as *mut u8, layout(3, 1));
            assert_eq!(heap.used(), used, "not the last block");
            assert!(heap.alloc(layout(257, 1)).is_null());
        }
    }
}
