//! `gond crash`: the crash laboratory (`host/sim/src/lab.rs`) from the command line; with `--qemu`, kills of the real system (`test/crash.rs`).
//!
//! It lives random lives of the store on simulated disks, cuts their power and judges what is left. Nothing outside of this process
//! is touched. A run that fails is told with its seed and the command that repeats it.

use crate::arguments::{count, misused};
use crate::display::{self, Job};
use anyhow::Result;
use serde_json::{Value, json};
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use sim::lab::{self, Go, Kind, Run, Subject, Tally};
use std::cell::Cell;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Seeds of each kind, unless the user says how many.
const SEEDS: u64 = 2000;
/// The names of all kinds.
pub const KINDS: [&str; Kind::ALL.len()] = {
    let mut names = [""; Kind::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = Kind::ALL[at].name();
        at += 1;
    }
    names
};
/// Characters of what is said of a failure.
const WHAT_MAX: usize = 2000;
/// Failures after which no more runs are begun: they mostly have one cause.
const FAILURES_MAX: usize = 10;
/// The exit status of a command that Ctrl-C has ended.
const ENDED_BY_CTRL_C: u8 = 130;

std::thread_local! {
    /// The run that this thread tries.
    static RUNNING: Cell<Option<Run>> = const { Cell::new(None) };
}

/// A run that failed.
struct Failed {
    /// The run.
    run: Run,
    /// The fault, in words.
    what: String,
}

/// The outcome of some runs.
struct Findings {
    /// By kind.
    tallies: Vec<(Kind, Tally)>,
    /// Those that failed, at most some more than the first ten.
    failed: Vec<Failed>,
    /// How long they took.
    took: Duration,
    /// Those that were asked for.
    asked: usize,
    /// Whether the user ended them before all had begun.
    ended: bool,
}

impl Findings {
    /// All kinds together.
    fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.tallies.iter().for_each(|(_, tally)| total.add(tally));
        total
    }

    /// States a second.
    fn rate(&self) -> u64 {
        let rate = u128::from(self.total().states) * 1000 / self.took.as_millis().max(1);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// The command that repeats a run.
fn repeats(run: Run) -> String {
    format!("./gond crash --only {} --from {} --seeds 1", run.kind, run.seed)
}

/// Runs `gond crash`.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    use lexopt::prelude::*;
    let usage = |error: lexopt::Error| misused("crash", error);
    let (mut seeds, mut from, mut only, mut as_json) = (SEEDS, 0, Vec::new(), false);
    let (mut kills, mut seed) = (None, None);
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(usage)? {
        match argument {
            Long("seeds") => match number(&mut parser, "seeds")? {
                0 => return Err(misused("crash", "--seeds cannot be '0': it is 1 at least")),
                given => seeds = given,
            },
            Long("from") => from = number(&mut parser, "from")?,
            Long("only") => {
                let name = parser.value().map_err(usage)?.to_string_lossy().into_owned();
                let kind = Kind::named(&name).ok_or_else(|| {
                    misused(
                        "crash",
                        format!("there is no kind '{name}'; there are {}", KINDS.join(", ")),
                    )
                })?;
                only.push(kind);
            }
            Long("json") => as_json = true,
            Long("qemu") => kills = Some(number(&mut parser, "qemu")?),
            Long("seed") => seed = Some(number(&mut parser, "seed")?),
            other => return Err(misused("crash", other.unexpected())),
        }
    }
    if let Some(kills) = kills {
        if as_json || !only.is_empty() || (seeds, from) != (SEEDS, 0) {
            return Err(misused("crash", "--qemu goes with --seed alone"));
        }
        return crate::test::crash::kills(kills, seed);
    }
    if seed.is_some() {
        return Err(misused("crash", "--seed goes with --qemu; the laboratory has --from"));
    }
    if only.is_empty() {
        only.extend(Kind::ALL);
    }
    let end_of = |kind: &Kind| kind.seeds().map(|end| (*kind, end));
    if let Some((kind, end)) = only
        .iter()
        .find_map(end_of)
        .filter(|&(_, end)| only.len() == 1 && from >= end)
    {
        return Err(misused("crash", format!("the seeds of '{kind}' end with {}", end - 1)));
    }
    say_what_panics();
    // The first Ctrl-C begins no more runs, and what was found is told; a second one ends the command at once.
    let ended = Arc::new(AtomicBool::new(false));
    flag::register_conditional_shutdown(SIGINT, ENDED_BY_CTRL_C.into(), Arc::clone(&ended))?;
    flag::register(SIGINT, Arc::clone(&ended))?;
    let mut job = Job::begin("crashing the store");
    let findings = run(&only, from, seeds, &ended, &mut job);
    job.clear();
    if as_json {
        println!("{}", to_json(&findings));
    } else {
        print(&findings);
    }
    Ok(if !findings.failed.is_empty() {
        ExitCode::FAILURE
    } else if findings.ended {
        ENDED_BY_CTRL_C.into()
    } else {
        ExitCode::SUCCESS
    })
}

fn number(parser: &mut lexopt::Parser, option: &str) -> Result<u64> {
    let value = parser.value().map_err(|error| misused("crash", error))?;
    let text = value.to_string_lossy();
    let number = text.parse().ok();
    number.ok_or_else(|| misused("crash", format!("--{option} cannot be '{text}': it is a number")))
}

/// Runs some kinds until `ended` says that no more are wanted, and shows how far it is.
fn run(kinds: &[Kind], from: u64, seeds: u64, ended: &AtomicBool, job: &mut Job) -> Findings {
    let runs = lab::plan(kinds, from, seeds);
    let mut findings = Findings {
        tallies: kinds.iter().map(|&kind| (kind, Tally::default())).collect(),
        failed: Vec::new(),
        took: Duration::ZERO,
        asked: runs.len(),
        ended: false,
    };
    let (began, mut done, mut states) = (job.elapsed(), 0, 0);
    lab::go(
        &runs,
        Subject::SOUND,
        |run| RUNNING.set(Some(run)),
        |run, outcome| {
            done += 1;
            match outcome {
                Ok(tally) => {
                    states += tally.states;
                    let of_kind = findings.tallies.iter_mut().filter(|(kind, _)| *kind == run.kind);
                    of_kind.for_each(|(_, all)| all.add(&tally));
                }
                Err(what) => findings.failed.push(Failed {
                    run,
                    what: what.chars().take(WHAT_MAX).collect(),
                }),
            }
            job.step(&format!("{done} of {} runs, {states} states", runs.len()));
            if findings.failed.len() < FAILURES_MAX && !ended.load(Ordering::Relaxed) {
                Go::On
            } else {
                Go::Home
            }
        },
    );
    findings.ended = done < runs.len() && ended.load(Ordering::Relaxed);
    findings.took = job.elapsed().saturating_sub(began);
    findings
}

/// A panic ends the process: which run it was must be said before.
fn say_what_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        if let Some(run) = RUNNING.try_with(Cell::get).ok().flatten() {
            display::complain(&format!("the store panicked; '{}' repeats it", repeats(run)));
            std::process::exit(1);
        }
    }));
}

fn print(findings: &Findings) {
    for Failed { run, what } in &findings.failed {
        println!("{} {} {}: {what}", display::bad("FAILED"), run.kind, run.seed);
        println!("       {}", repeats(*run));
    }
    println!(
        "{:8} {:>7} {:>9} {:>10} {:>9} {:>9} {:>9}",
        "kind", "runs", "cuts", "states", "syncs", "ckpts", "replayed"
    );
    for (kind, tally) in &findings.tallies {
        println!(
            "{:8} {:>7} {:>9} {:>10} {:>9} {:>9} {:>9}",
            kind.name(),
            tally.runs,
            tally.crashes + tally.recovery_cuts + tally.growth_cuts,
            tally.states,
            tally.syncs,
            tally.checkpoints,
            tally.replayed
        );
    }
    let total = findings.total();
    if findings.ended {
        println!(
            "ended early: {} of {} runs",
            total.runs + findings.failed.len() as u64,
            findings.asked
        );
    }
    if total.told + total.unharmed + total.silent > 0 {
        println!(
            "damaged disks: {} told, {} unharmed, {} older without a word",
            total.told, total.unharmed, total.silent
        );
    }
    println!(
        "{} in {} s, {} a second: {}",
        count(total.states, "state"),
        findings.took.as_secs(),
        findings.rate(),
        match findings.failed.len() {
            0 => "all as they must be".to_owned(),
            failed => format!("{} failed", count(failed as u64, "run")),
        }
    );
}

fn to_json(findings: &Findings) -> Value {
    let kinds = findings.tallies.iter().map(|(kind, tally)| {
        json!({
            "kind": kind.name(), "runs": tally.runs, "cuts": tally.crashes, "recovery_cuts": tally.recovery_cuts,
            "growths": tally.growths, "growth_cuts": tally.growth_cuts, "snapshots": tally.kept, "dropped": tally.dropped, "rolled_back": tally.rolled,
            "states": tally.states, "syncs": tally.syncs, "syncs_ahead": tally.syncs_ahead, "failed_syncs": tally.failed_syncs,
            "checkpoints": tally.checkpoints, "small_checkpoints": tally.small_checkpoints, "failed_checkpoints": tally.failed_checkpoints,
            "replayed": tally.replayed, "tails": tally.tails, "reads": tally.reads, "groups": tally.acts,
            "names": tally.names, "disk_full": tally.disk_full, "refused_pages": tally.refused_pages, "told": tally.told, "unharmed": tally.unharmed, "silent": tally.silent,
        })
    });
    let failed = findings.failed.iter().map(|Failed { run, what }| {
        json!({"kind": run.kind.name(), "seed": run.seed, "what": what, "repeat": repeats(*run)})
    });
    json!({
        "states": findings.total().states, "asked": findings.asked, "ended_early": findings.ended, "seconds": findings.took.as_secs_f64(), "rate": findings.rate(),
        "kinds": kinds.collect::<Vec<_>>(), "failed": failed.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_knows_all_kinds_and_the_last_seed() {
        let text = crate::help::asked("help", &["crash".into()])
            .ok()
            .flatten()
            .expect("a text");
        for kind in Kind::ALL {
            assert!(text.contains(&format!("\n  {} ", kind.name())), "{kind}");
        }
        let last = Kind::Short.seeds().expect("they end") - 1;
        assert!(text.contains(&last.to_string()));
    }
}
