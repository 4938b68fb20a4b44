//! Lives in which heap is refused beside pages of memory: the n-th allocation of the store fails, at random moments and during recovery.
//!
//! It takes an allocator that refuses, so `./gond crash` refuses pages alone to the same lives.

use sim::lab::{self, Go, Kind, Run, Subject, Tally};
use sim::own;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use store::{Breaks, Invariant, Store};

/// Allocations that were refused.
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// A test has all processors, and counts what is refused to it alone.
static TURN: Mutex<()> = Mutex::new(());

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

/// Runs a kind; gives what was seen.
fn run_seeds(kind: Kind, seeds: u64) -> Tally {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let seeds = sim::seeds::number("GOND_SEEDS").unwrap_or(seeds);
    let from = sim::seeds::number("GOND_FROM").unwrap_or(0);
    let runs = lab::plan(&[kind], from, seeds);
    let mut all = Tally::default();
    let mut failed = Vec::new();
    let before = REFUSED.load(Ordering::Relaxed);
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
    let refused = REFUSED.load(Ordering::Relaxed) - before;
    println!("{refused} allocations refused, {all:?}");
    assert!(refused > seeds && all.failed_syncs > 0, "{refused}");
    all
}

#[test]
fn heap_that_is_refused_loses_nothing() {
    run_seeds(Kind::Memory, 300);
}

#[test]
fn heap_that_is_refused_to_syncs_ahead_of_checkpoints_loses_nothing() {
    let tally = run_seeds(Kind::Heap, 300);
    assert!(tally.syncs_ahead > tally.syncs / 8, "{tally:?}");
}

/// The one invariant that counts only where heap is refused; the others are in `broken.rs`.
#[test]
fn a_record_that_is_not_begun_anew_is_noticed() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let subject = Subject {
        mount: |world, mode| Store::mount_broken(world, mode, Breaks::without(Invariant::BegunAnew)),
        lie: None,
    };
    let mut caught = (0..500).filter_map(|seed| {
        let run = Run { kind: Kind::Heap, seed };
        run.go(subject).err().map(|what| (seed, what))
    });
    let (seed, what) = caught.next().expect("a life that notices");
    println!("{seed}: {}", what.chars().take(160).collect::<String>());
}
