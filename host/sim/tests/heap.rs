//! Lives in which heap is refused beside pages of memory: the n-th allocation of the store fails, at random moments and during recovery.

use sim::lab::{self, Go, Kind, Subject, Tally};
use sim::own;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// Allocations that were refused.
static REFUSED: AtomicU64 = AtomicU64::new(0);

struct Failing;

// SAFETY: everything is handed to the system's allocator as it came, or refused with a null pointer, which the trait allows.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if own::fails() {
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

#[global_allocator]
static ALLOCATOR: Failing = Failing;

#[test]
fn heap_that_is_refused_loses_nothing() {
    let seeds = sim::seeds::number("GOND_SEEDS").unwrap_or(300);
    let from = sim::seeds::number("GOND_FROM").unwrap_or(0);
    let runs = lab::plan(&[Kind::Memory], from, seeds);
    let mut all = Tally::default();
    let mut failed = Vec::new();
    lab::go(
        &runs,
        Subject::SOUND,
        |_| {},
        |run, outcome| {
            match outcome {
                Ok(tally) => all.add(&tally),
                Err(what) => failed.push(format!("seed {}: {what}", run.seed)),
            }
            if failed.len() < 5 { Go::On } else { Go::Home }
        },
    );
    assert_eq!(failed, [""; 0], "repeat with GOND_FROM and GOND_SEEDS=1");
    let refused = REFUSED.load(Ordering::Relaxed);
    println!("{refused} allocations refused, {all:?}");
    assert!(refused > seeds && all.failed_syncs > 0, "{refused}");
}
