//! The crash laboratory on the store as it is: some runs of each kind, every one repeatable by its seed.
//!
//! `GOND_SEEDS` sets how many seeds of each kind are run, `GOND_SEED` repeats one. `./gond crash` runs more, and faster.

use sim::lab::{self, Go, Kind, Run, Subject, Tally};
use sim::seeds::number;
use store::{Leaves, Store};

/// A store with a table whose nodes are small, and whose leaves are in memory when they are needed.
const IN_PARTS: Subject = Subject {
    mount: |world, mode| Store::mount_with_small_nodes(world, mode, Leaves::AsNeeded(3), (500, 3)),
    lie: None,
};

/// Runs `seeds` of a kind on all processors; `None` if one seed was repeated.
fn run_seeds(kind: Kind, seeds: u64) -> Option<Tally> {
    run_seeds_of(Subject::SOUND, kind, seeds)
}

/// The same with another subject.
fn run_seeds_of(subject: Subject, kind: Kind, seeds: u64) -> Option<Tally> {
    let repeated = number("GOND_SEED");
    let seeds = number("GOND_SEEDS").unwrap_or(seeds);
    let runs = match repeated {
        Some(seed) => vec![Run { kind, seed }],
        None => lab::plan(&[kind], 0, seeds),
    };
    let (mut all, mut failed) = (Tally::default(), None);
    let tell = |run: Run, outcome| match outcome {
        Ok(tally) => {
            all.add(&tally);
            Go::On
        }
        Err(what) => {
            failed = Some((run, what));
            Go::Home
        }
    };
    lab::go(&runs, subject, |_| {}, tell);
    if let Some((run, what)) = failed {
        let seed = run.seed;
        panic!(
            "{kind}, seed {seed}: {what}\nto repeat: ./gond crash --only {kind} --from {seed} --seeds 1, or GOND_SEED={seed} cargo test -p sim \
             --test crash {kind}"
        );
    }
    println!("{kind}: {} seeds, {all:?}", runs.len());
    repeated.is_none().then_some(all)
}

#[test]
fn cuts_lose_nothing_that_was_acknowledged() {
    if let Some(tally) = run_seeds(Kind::Cuts, 1000) {
        assert!(tally.states > 3 * tally.crashes && tally.recovery_cuts > tally.crashes / 4);
        assert!(tally.replayed > 0 && tally.tails > 0 && tally.refused_syncs > 0 && tally.failed_syncs == 0);
        assert!(tally.small_checkpoints > 0 && tally.small_checkpoints < tally.checkpoints);
        assert!(tally.scrubs > 0 && tally.reads_ahead > 0);
        assert!(tally.growths > tally.runs / 2 && tally.growth_cuts > tally.runs / 2);
        assert!(tally.mounted_growths > tally.runs / 8);
        assert!(tally.kept > tally.runs && tally.dropped > tally.runs / 8 && tally.rolled > tally.runs / 10);
        assert!(tally.acts > tally.crashes / 2 && tally.names > tally.crashes / 2);
    }
}

#[test]
fn full_disks_lose_nothing() {
    if let Some(tally) = run_seeds(Kind::Full, 300) {
        assert!(tally.disk_full > 0);
    }
}

#[test]
fn failing_disks_lose_nothing() {
    if let Some(tally) = run_seeds(Kind::Failing, 300) {
        assert!(tally.failed_checkpoints > 0 && tally.failed_syncs > 0);
    }
}

/// Where the disk is full, syncs and checkpoints fail in all orders, and what they had lent comes back.
#[test]
fn tight_disks_lose_nothing() {
    if let Some(tally) = run_seeds(Kind::Tight, 600) {
        assert!(tally.disk_full > 0 && tally.failed_checkpoints > 0 && tally.failed_syncs > 0);
    }
}

#[test]
fn memory_that_is_refused_loses_nothing() {
    if let Some(tally) = run_seeds(Kind::Memory, 300) {
        // Checkpoints and syncs have pages in reserve, so that none fails for this.
        assert!(tally.refused_pages > tally.runs && tally.failed_checkpoints + tally.failed_syncs == 0);
    }
}

#[test]
fn rot_is_named_or_does_no_harm() {
    if let Some(tally) = run_seeds(Kind::Rot, 200) {
        assert!(tally.told > tally.unharmed && tally.unharmed > 0);
        assert!(tally.repairs > tally.runs && tally.repair_cuts > tally.runs / 2);
        // The format cannot tell some damage of superblocks and journal from a power cut.
        assert!(tally.silent < tally.told / 20);
    }
}

#[test]
fn syncs_ahead_of_checkpoints_lose_nothing() {
    if let Some(tally) = run_seeds(Kind::Ahead, 300) {
        assert!(tally.syncs_ahead > tally.syncs / 4, "{tally:?}");
    }
}

/// All sequences of up to two operations. Those of three are 19,652 more: `./gond crash --only short --seeds 20876`.
#[test]
fn short_lives_lose_nothing() {
    if let Some(tally) = run_seeds(Kind::Short, 4 * (16 + 16 * 16)) {
        assert!(tally.states > 4 * tally.crashes / 2 && tally.recovery_cuts > 0);
    }
}

/// Leaves of the table come and go, beside all other faults of the disk.
#[test]
fn a_table_in_parts_loses_nothing() {
    for (kind, seeds) in [
        (Kind::Cuts, 400),
        (Kind::Full, 200),
        (Kind::Failing, 200),
        (Kind::Tight, 200),
        (Kind::Memory, 200),
        (Kind::Rot, 200),
    ] {
        if let Some(tally) = run_seeds_of(IN_PARTS, kind, seeds) {
            assert!(tally.leaves > tally.runs, "{kind}: {tally:?}");
        }
    }
}
