//! Random tests: one run for each seed, and the seed of a run that fails is told.
//!
//! Three variables of the environment choose the seeds: `GOND_SEED` repeats one, `GOND_SEEDS` sets how many there are, and `GOND_FROM` the
//! first of them.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// The number in a variable of the environment, if there is one.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs a test once for each seed, `usual` of them unless the environment says otherwise, and gives the results. There are none if one seed
/// is repeated: sums over the seeds say nothing then.
///
/// # Panics
/// Where a run does, behind the last one: all seeds that fail are told.
pub fn run<T>(usual: u64, test: impl FnMut(u64) -> T) -> Option<Vec<T>> {
    if let Some(seed) = number("GOND_SEED") {
        run_each(seed..seed + 1, test);
        return None;
    }
    let from = number("GOND_FROM").unwrap_or(0);
    Some(run_each(from..from + number("GOND_SEEDS").unwrap_or(usual), test))
}

fn run_each<T>(seeds: Range<u64>, mut test: impl FnMut(u64) -> T) -> Vec<T> {
    let (mut results, mut failed) = (Vec::new(), None);
    for seed in seeds {
        match catch_unwind(AssertUnwindSafe(|| test(seed))) {
            Ok(result) => results.push(result),
            Err(panic) => {
                eprintln!("repeat with GOND_SEED={seed}");
                failed = Some(panic);
            }
        }
    }
    match failed {
        Some(panic) => resume_unwind(panic),
        None => results,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_that_fails_fails_the_test_behind_the_last_one() {
        let mut seen = Vec::new();
        let ran = catch_unwind(AssertUnwindSafe(|| {
            run_each(3..7, |seed| {
                seen.push(seed);
                assert_ne!(seed, 4, "this seed fails on purpose");
            })
        }));
        assert!(ran.is_err());
        assert_eq!(seen, [3, 4, 5, 6]);
        assert_eq!(run_each(3..7, |seed| seed * 2), [6, 8, 10, 12]);
    }
}
