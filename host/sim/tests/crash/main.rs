//! Crash tests: random lives of a store, every one repeatable by its seed.
//!
//! `GOND_SEEDS` sets how many seeds are run, `GOND_SEED` repeats one.

mod driver;
mod model;

use driver::{Options, Tally, run};
use sim::seeds::number;
use std::sync::atomic::{AtomicU64, Ordering};
use store::{Breaks, Invariant};

const SEEDS: u64 = 2000;
const GOOD: Options = Options {
    breaks: Breaks::NONE,
    blocks: 900,
    steps: 250,
    failing: 0,
};

/// Runs the seeds on all processors; the first failure ends it.
fn run_seeds(name: &str, seeds: u64, options: Options) -> Tally {
    let seeds: Vec<u64> = match number("GOND_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("GOND_SEEDS").map_or(seeds, |all| all * seeds / SEEDS).max(1)).collect(),
    };
    let next = AtomicU64::new(0);
    let work = || {
        let mut tally = Tally::default();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(&seed) = seeds.get(at as usize) else {
                return tally;
            };
            let outcome = std::panic::catch_unwind(|| run(seed, options)).unwrap_or_else(|_| Err("panicked".into()));
            match outcome {
                Ok(found) => tally.add(&found),
                Err(what) => {
                    panic!("{name}, seed {seed}: {what}\nto repeat: GOND_SEED={seed} cargo test -p sim {name}")
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut tally = Tally::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            match worker.join() {
                Ok(found) => tally.add(&found),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    println!("{name}: {} seeds, {tally:?}", seeds.len());
    tally
}

#[test]
fn nothing_acknowledged_is_lost() {
    let tally = run_seeds("nothing_acknowledged_is_lost", SEEDS, GOOD);
    if number("GOND_SEED").is_none() {
        assert!(tally.images > 5 * tally.crashes && tally.replayed > 0 && tally.tails > 0 && tally.refused_syncs > 0);
        assert!(tally.acts > tally.crashes / 2);
        assert!(tally.small_checkpoints > 0 && tally.small_checkpoints < tally.checkpoints);
    }
}

#[test]
fn a_full_disk_loses_nothing() {
    let tally = run_seeds("a_full_disk_loses_nothing", SEEDS / 5, Options { blocks: 140, ..GOOD });
    if number("GOND_SEED").is_none() {
        assert!(tally.disk_full > 0);
    }
}

#[test]
fn a_failing_disk_loses_nothing() {
    let tally = run_seeds(
        "a_failing_disk_loses_nothing",
        SEEDS / 5,
        Options { failing: 60, ..GOOD },
    );
    if number("GOND_SEED").is_none() {
        assert!(tally.failed_checkpoints > 0 && tally.failed_syncs > 0);
    }
}

/// Where the disk is full, syncs and checkpoints fail in all orders, and what they had lent comes back.
#[test]
fn a_small_disk_that_fails_loses_nothing() {
    let options = |blocks, failing| Options {
        blocks,
        steps: 300,
        failing,
        ..GOOD
    };
    for (blocks, failing) in [(140, 30), (150, 30), (180, 20), (250, 30)] {
        let tally = run_seeds(
            "a_small_disk_that_fails_loses_nothing",
            SEEDS / 10,
            options(blocks, failing),
        );
        if number("GOND_SEED").is_none() {
            assert!(tally.disk_full > 0 && tally.failed_checkpoints > 0 && tally.failed_syncs > 0);
        }
    }
}

/// Every invariant is there for a reason: without it some life ends badly.
#[test]
fn every_broken_invariant_shows() {
    for invariant in Invariant::ALL {
        let options = Options {
            breaks: Breaks::without(invariant),
            ..GOOD
        };
        let caught = (0..2000).find_map(|seed| {
            let outcome = std::panic::catch_unwind(|| run(seed, options)).unwrap_or_else(|_| Err("panicked".into()));
            outcome.err().map(|what| (seed, what))
        });
        let (seed, what) = caught.unwrap_or_else(|| panic!("nothing notices that {invariant:?} is broken"));
        println!(
            "{invariant:?}: seed {seed}: {}",
            what.chars().take(160).collect::<String>()
        );
    }
}
