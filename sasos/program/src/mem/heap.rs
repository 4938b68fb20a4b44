//! The global allocator: talc over the memory that the kernel put aside.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use abi::machine::{Surroundings, WINDOW};
use spinning_top::RawSpinlock;
use talc::{TalcLock, source::Manual};

#[global_allocator]
static HEAP: TalcLock<RawSpinlock, Manual> = TalcLock::new(Manual);

static CLAIMED: AtomicBool = AtomicBool::new(false);

/// Gives the heap its memory, once.
pub fn initialise(surroundings: &Surroundings) {
    if CLAIMED.swap(true, Relaxed) {
        return;
    }
    let start = (WINDOW + surroundings.heap) as *mut u8;
    // SAFETY: the kernel put the range aside for this heap alone and shows it in the window for ever; it is claimed once.
    // A range that is too small is not claimed, and the first allocation fails.
    let _ = unsafe { HEAP.lock().claim(start, surroundings.heap_bytes as usize) };
}

/// Bytes allocated, and bytes that may still be.
pub fn usage() -> (u64, u64) {
    let heap = HEAP.lock();
    let counters = heap.counters();
    (counters.allocated_bytes as u64, counters.available_bytes as u64)
}
