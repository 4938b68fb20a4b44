//! Stage `crash`: the plug is pulled at random moments of a running workload, again and again on one disk.
//!
//! Every third time the server is outside of the kernel. After each cut the image must be sound, the system must start
//! from it, and nothing may be missing that was there when a `sync` succeeded; [`names`] are judged by what they lead to. A kill leaves the host's cache whole, so that writes lost or torn by a real power cut
//! do not occur; for those one run is recorded, write by write, and replayed by [`replay`] with
//! subsets of the writes that were under way, whole and torn.

use super::{Bench, expect_success, play};
use crate::machine::Machine;
use crate::script::{Patience, Played, Plug, Verdict};
use crate::{build, check};
use anyhow::Result;
use names::Names;
use std::time::Duration;

mod kills;
mod names;
mod replay;

pub use kills::kills;

/// How often the plug is pulled, and every which time with the server outside.
const CUTS: u32 = 20;
const OUTSIDE_EVERY: u32 = 3;
/// The earliest and the latest moment, in milliseconds from power-on.
const MOMENTS: (u64, u64) = (400, 7000);
/// Lines of a workload: more than it ever gets to run.
const ROUNDS: u32 = 20_000;

/// A generator of numbers that repeats from its seed (splitmix64).
pub struct Chance(u64);

impl Chance {
    /// A new sequence, by the clock, or that of `GOND_SEED`.
    pub fn new() -> Self {
        let given = std::env::var("GOND_SEED").ok().and_then(|text| text.parse().ok());
        Self(given.unwrap_or_else(crate::volume::now_ns))
    }

    /// The sequence of a seed.
    pub fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed from which the sequence goes on.
    pub fn seed(&self) -> u64 {
        self.0
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` up to, not including, `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low).max(1)
    }
}

/// The state that must be on the disk for good.
#[derive(Clone, Default, Debug)]
struct Kept {
    /// The highest number written to the object `log` before a sync that succeeded.
    log: u64,
    /// How often `hello` had run before a sync that succeeded.
    hello: u64,
    /// The names of the load, and what they lead to, when it begins.
    names: Names,
}

/// The room on the disk of a workload.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Disk {
    /// Every line finds what it needs.
    Wide,
    /// A line may be refused: the workload ends there.
    NearlyFull,
}

/// The lines of one workload: objects come, grow and go; a log counts on; now and then all is synced.
fn workload(cut: u32, from: u64, mut names: Names, chance: &mut Chance) -> Vec<String> {
    let mut lines = Vec::new();
    for round in 0..ROUNDS {
        lines.push(format!("write log 0 {:010}", from + u64::from(round) + 1));
        match chance.next() % 6 {
            0 => lines.push("hello".into()),
            1 => {
                lines.push(format!("create work-{cut}-{round} {}K", chance.between(4, 200)));
                lines.push(format!("write work-{cut}-{round} 4000 across-a-page-{round}"));
                lines.push(format!("rm work-{cut}-{round}"));
            }
            2 => lines.push(format!("write scratch {} some-text-{round}", chance.between(0, 60_000))),
            3 | 4 => names::round(&format!("{cut}-{round}"), &mut names, chance, &mut lines),
            _ => {}
        }
        if chance.next().is_multiple_of(3) {
            lines.push("sync".into());
        }
    }
    lines
}

/// The state that a workload had made durable before it was cut.
fn progress(played: &Played, mut kept: Kept) -> Kept {
    let mut seen = kept.clone();
    for (line, status) in &played.statuses {
        if *status != 0 {
            continue;
        }
        if let Some(number) = line.strip_prefix("write log 0 ") {
            seen.log = number.parse().unwrap_or(seen.log);
        }
        if line == "hello" {
            seen.hello += 1;
        }
        if line == "sync" {
            kept = seen.clone();
        }
    }
    kept
}

/// Runs the stage.
pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let machine = bench.fresh_machine("crash.img")?;
    let outside = machine.clone().with_server(build::server(build::Profile::Guest)?);
    let prepare = ["create log 4K", "write log 0 0000000000", "create scratch 64K", "sync"];
    let (played, output) = play(&machine, &prepare, Patience::seconds(60))?;
    bench.report("the workload is prepared", expect_success(&played, &output));
    let mut chance = Chance::new();
    let mut kept = Kept::default();
    for cut in 1..=CUTS {
        let seed = chance.seed();
        let moment = Duration::from_millis(chance.between(MOMENTS.0, MOMENTS.1));
        let (machine, server) = if cut.is_multiple_of(OUTSIDE_EVERY) {
            (&outside, ", the server outside")
        } else {
            (&machine, "")
        };
        let what = format!("power cut {cut} of {CUTS}{server}, after {} ms", moment.as_millis());
        bench.step(&what);
        let outcome = one_cut((machine, Disk::Wide), cut, moment, &mut chance, &mut kept)?;
        let failed = outcome.is_err();
        bench.report(
            &what,
            outcome.map_err(|why| format!("{why}\n(GOND_SEED={seed} repeats the lines, not the moment)")),
        );
        if failed {
            return Ok(());
        }
    }
    replay::run(bench)
}

/// Runs a workload, cuts it, checks the image, and looks whether everything that was kept is there.
fn one_cut(
    (machine, disk): (&Machine, Disk),
    cut: u32,
    moment: Duration,
    chance: &mut Chance,
    kept: &mut Kept,
) -> Result<Result<(), String>> {
    let lines = workload(cut, kept.log, kept.names.clone(), chance);
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let patience = Patience {
        plug: Plug::After(moment),
        ..Patience::seconds(60)
    };
    let (played, _) = play(machine, &lines, patience)?;
    let refused = played.statuses.last().is_some_and(|(_, status)| *status != 0);
    match &played.verdict {
        // A fast machine may have done it all.
        Verdict::Killed | Verdict::Success => {}
        Verdict::Failure(_) if refused && disk == Disk::NearlyFull => {}
        Verdict::Failure(what) | Verdict::Dead(what) => return Ok(Err(format!("the workload: {what}"))),
    }
    let done = played.statuses.len() - usize::from(refused);
    let states = names::states(&kept.names, &lines, done);
    let removed = names::removed(&lines[..done]);
    *kept = progress(&played, kept.clone());
    if let Err(error) = check::inspect(&machine.disk) {
        return Ok(Err(format!("the image is not sound: {error:#}")));
    }
    let (played, output) = play(machine, &["cat log", "hello", "sync"], Patience::seconds(60))?;
    if let Err(why) = expect_success(&played, &output) {
        return Ok(Err(format!("afterwards: {why}")));
    }
    if let Err(error) = check::inspect(&machine.disk) {
        return Ok(Err(format!(
            "the image is not sound after the start that recovered it: {error:#}"
        )));
    }
    kept.names = names::found(&machine.disk)?;
    Ok(names::judge(&kept.names, &states, &removed).and_then(|()| compare(&output, kept)))
}

/// Compares what is there with what was kept, and goes on from what is there.
fn compare(output: &str, kept: &mut Kept) -> Result<(), String> {
    let is_number = |text: &str| text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut words = output.split(|c: char| c.is_whitespace() || c == '\0');
    let log = words
        .find(|word| is_number(word))
        .and_then(|word| word.parse::<u64>().ok());
    let hello = output
        .split_once("run ")
        .and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<u64>().ok());
    let (Some(log), Some(hello)) = (log, hello) else {
        return Err(format!(
            "the log or the counter of hello is gone; kept was {kept:?}\n{output}"
        ));
    };
    // This run of hello counts itself.
    if log < kept.log || hello < kept.hello + 1 {
        return Err(format!(
            "something synced is lost: kept was {kept:?}, there is log {log}, hello {hello}\n{output}"
        ));
    }
    (kept.log, kept.hello) = (log, hello);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_synced_counts_as_kept() {
        let statuses = [
            ("write log 0 0000000007", 0),
            ("hello", 0),
            ("sync", 0),
            ("hello", 0),
            ("write log 0 0000000008", 0),
            ("sync", 1),
        ];
        let statuses = statuses
            .iter()
            .map(|(line, status)| ((*line).to_owned(), *status))
            .collect();
        let played = Played {
            verdict: Verdict::Killed,
            statuses,
            boot_time: None,
        };
        let mut kept = progress(&played, Kept::default());
        assert_eq!((kept.log, kept.hello), (7, 1));
        assert!(compare("0000000006\nhello, world: run 3 of", &mut kept.clone()).is_err());
        assert!(compare("0000000009\0\0\nhello, world: run 1 of", &mut kept.clone()).is_err());
        assert!(compare("0000000009\0\0\nhello, world: run 2 of", &mut kept).is_ok());
        assert_eq!((kept.log, kept.hello), (9, 2));
    }
}
