//! Lives in which heap is refused beside pages of memory: the n-th allocation of the store fails, at random moments and during recovery.

use sim::lab::{self, Go, Kind, Subject, Tally};
use sim::own::Refusing;

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

/// Runs a kind; gives what was seen.
fn run_seeds(kind: Kind, seeds: u64) -> Tally {
    let seeds = sim::seeds::number("GOND_SEEDS").unwrap_or(seeds);
    let from = sim::seeds::number("GOND_FROM").unwrap_or(0);
    let runs = lab::plan(&[kind], from, seeds);
    let mut all = Tally::default();
    let mut failed = Vec::new();
    let before = Refusing::count();
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
    assert_eq!(
        failed, [""; 0],
        "repeat with GOND_FROM and GOND_SEEDS=1, or ./gond crash --only {kind}"
    );
    let refused = Refusing::count() - before;
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
