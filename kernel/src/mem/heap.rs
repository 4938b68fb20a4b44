//! The global allocator: talc over a range that is claimed piece by piece.

use core::{
    alloc::Layout,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use spinning_top::RawSpinlock;
use talc::{
    TalcLock,
    base::{Talc, binning::Binning},
    source::Source,
};

/// The least that is claimed at once.
const PIECE: u64 = 1 << 20;

/// Next address to claim, and the end of what may be claimed.
static NEXT: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);
static START: AtomicU64 = AtomicU64::new(0);

/// Claims further pieces of the range when the allocator has run out.
#[derive(Debug)]
pub struct Pieces;

// SAFETY: `acquire` uses only the allocator it is given, and every piece is claimed once.
unsafe impl Source for Pieces {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        // Head room for the allocator's own words and for alignment.
        let wanted = (layout.size() + 2 * layout.align() + 4096) as u64;
        let start = NEXT.load(Relaxed);
        // The last piece is what is left.
        let bytes = wanted.next_multiple_of(PIECE).min(END.load(Relaxed) - start);
        if bytes < wanted {
            return Err(());
        }
        NEXT.store(start + bytes, Relaxed);
        // SAFETY: the piece lies in the range that `initialise` was given, behind all earlier ones.
        unsafe { talc.claim(start as *mut u8, bytes as usize) }
            .map(|_| ())
            .ok_or(())
    }
}

#[global_allocator]
static HEAP: TalcLock<RawSpinlock, Pieces> = TalcLock::new(Pieces);

/// Gives the heap its range.
///
/// # Safety
/// 1. The range is memory of the direct map that nothing else uses, now or later.
/// 2. It is called once, before the first allocation.
pub unsafe fn initialise(start: u64, end: u64) {
    START.store(start, Relaxed);
    NEXT.store(start, Relaxed);
    END.store(end, Relaxed);
}

/// Bytes allocated, and bytes that may still be.
pub fn usage() -> (u64, u64) {
    let heap = HEAP.lock();
    let counters = heap.counters();
    (
        counters.allocated_bytes as u64,
        counters.available_bytes as u64 + END.load(Relaxed) - NEXT.load(Relaxed),
    )
}

/// Bytes taken from the range so far.
pub fn claimed() -> u64 {
    NEXT.load(Relaxed) - START.load(Relaxed)
}
