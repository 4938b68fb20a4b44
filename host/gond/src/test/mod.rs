//! `gond test`: everything there is to test, in stages.
//!
//! Each stage reports single tests to the [`Tally`]. Standard output gets one line for each failed test with what is
//! known about it, one for each stage, and at the very end `N passed, M failed` alone on a line.

mod house;

mod guest;

mod contract;

mod laboratory;

pub mod crash;

mod engine;

mod server;

mod tools;

mod guides;

mod fuzz;

mod mutants;

use crate::arguments::{misused, show_size};
use crate::build::{self, Built};
use crate::disk::lock_image;
use crate::display::{self, Job};
use crate::image;
use crate::machine::{self, Machine};
use crate::place::{self, Scratch};
use crate::script::{self, Patience, Played, Source, Verdict};
use crate::transfer;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A stage: its name, what is shown while it runs, and what it does.
struct Stage {
    name: &'static str,
    about: &'static str,
    run: fn(&mut Bench<'_>) -> Result<()>,
}

/// The stages that run only if they are named: each takes an hour or more.
const LONG: [Stage; 2] = [
    Stage {
        name: "fuzz",
        about: "millions of calls at random, with every assertion on",
        run: fuzz::run,
    },
    Stage {
        name: "mutants",
        about: "small changes of the logic that a test must notice",
        run: mutants::run,
    },
];

const STAGES: [Stage; 12] = [
    Stage {
        name: "house",
        about: "formatting, lints and host tests",
        run: house::run,
    },
    Stage {
        name: "suite",
        about: "the suite inside the system",
        run: guest::run,
    },
    Stage {
        name: "nucleus",
        about: "the suite of the bare µ-kernel",
        run: guest::run_nucleus,
    },
    Stage {
        name: "server",
        about: "the server outside of the kernel",
        run: server::run,
    },
    Stage {
        name: "engine",
        about: "the engine for isolated processes inside the system",
        run: engine::run,
    },
    Stage {
        name: "contract",
        about: "the promises of the command line",
        run: contract::run,
    },
    Stage {
        name: "laboratory",
        about: "the store on simulated disks that lose their power",
        run: laboratory::run,
    },
    Stage {
        name: "crash",
        about: "power cuts under load",
        run: crash::run,
    },
    Stage {
        name: "power",
        about: "OO1 across a power cut",
        run: guest::run_power,
    },
    Stage {
        name: "tools",
        about: "the debugger, back-traces, gdb",
        run: tools::run,
    },
    Stage {
        name: "tour",
        about: "the tour of the README",
        run: guest::run_tour,
    },
    Stage {
        name: "guides",
        about: "what the documents say, typed in a copy of the sources",
        run: guides::run,
    },
];

/// The results so far.
#[derive(Default)]
pub struct Tally {
    passed: u32,
    failed: Vec<String>,
}

/// The tools of a stage: where it reports, and where it may put things.
pub struct Bench<'a> {
    tally: &'a mut Tally,
    job: Job,
    stage: &'static str,
    root: PathBuf,
    scratch: Scratch,
    keep: Keep,
    /// The random choices of the stages `fuzz` and `mutants`.
    dice: fuzz::Dice,
}

/// Whether the disk images of failed stages are kept.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Keep {
    Nothing,
    Failed,
}

impl Bench<'_> {
    /// Notes the outcome of a test. On failure the text says what is known.
    pub fn report(&mut self, test: &str, outcome: Result<(), String>) {
        self.job.step(test);
        match outcome {
            Ok(()) => self.tally.passed += 1,
            Err(why) => {
                self.job.clear();
                println!("{} {}: {test}\n{}", display::bad("FAILED"), self.stage, indent(&why));
                self.tally.failed.push(format!("{}: {test}", self.stage));
            }
        }
    }

    /// Prints something that the reader of a successful run wants to know.
    pub fn tell(&mut self, text: &str) {
        self.job.clear();
        println!("{:10} {text}", self.stage);
    }

    /// Shows what is going on.
    pub fn step(&mut self, detail: &str) {
        self.job.step(detail);
    }

    /// The root of the source tree.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path for something that goes away with the stage.
    pub fn file(&self, name: &str) -> PathBuf {
        self.scratch.file(name)
    }

    /// A machine with a fresh disk of this name.
    pub fn fresh_machine(&self, name: &str) -> Result<Machine> {
        let built = built()?;
        let disk = self.file(name);
        image::create(&disk, 256 << 20, Some(&built.programs))?;
        for file in build::modules(&self.root)? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            transfer::import_file(&lock_image(&disk)?, &file, &name)?;
        }
        Ok(Machine::new(built.kernel, disk))
    }

    /// Keeps a file of a failed stage where it can be looked at.
    fn keep_evidence(&mut self) {
        if self.keep == Keep::Nothing {
            return;
        }
        let folder = self.root.join("target/failed").join(self.stage);
        let kept = std::fs::create_dir_all(&folder).and_then(|()| {
            for entry in std::fs::read_dir(self.scratch.file("."))?.flatten() {
                if entry.path().is_file() {
                    std::fs::copy(entry.path(), folder.join(entry.file_name()))?;
                }
            }
            Ok(())
        });
        match kept {
            Ok(()) => display::note(&format!("kept what the stage left in {}", folder.display())),
            Err(error) => display::complain(&format!("cannot keep what the stage left: {error}")),
        }
    }
}

/// Kernel and programs, built.
pub fn built() -> Result<Built> {
    machine::require_emulator()?;
    build::all()
}

/// Plays lines in the shell and collects what they print.
pub fn play(machine: &Machine, lines: &[&str], patience: Patience) -> Result<(Played, String)> {
    let mut output = Vec::new();
    let played = script::play(machine, Source::lines(lines.iter().copied()), &mut output, patience)?;
    Ok((played, String::from_utf8_lossy(&output).into_owned()))
}

fn indent(text: &str) -> String {
    text.lines()
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The outcome of a script that should have succeeded.
pub fn expect_success(played: &Played, output: &str) -> Result<(), String> {
    match &played.verdict {
        Verdict::Success => Ok(()),
        Verdict::Failure(what) | Verdict::Dead(what) => Err(format!("{what}\n--- output:\n{output}")),
        Verdict::Killed => Err("the plug was pulled".into()),
    }
}

/// Runs `gond test`.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    use lexopt::prelude::*;
    let usage = |error: lexopt::Error| misused("test", error);
    let (mut only, mut keep, mut dice) = (Vec::new(), Keep::Nothing, fuzz::Dice::default());
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(usage)? {
        match argument {
            Long("only") => {
                let name = parser.value().map_err(usage)?.string().map_err(usage)?;
                let mut stages = STAGES.iter().chain(&LONG);
                if !stages.clone().any(|stage| stage.name == name) {
                    let names: Vec<_> = stages.by_ref().map(|stage| stage.name).collect();
                    return Err(misused(
                        "test",
                        format!("there is no stage '{name}'; there are {}", names.join(", ")),
                    ));
                }
                only.push(name);
            }
            Long("keep") => keep = Keep::Failed,
            Long("calls") => {
                let calls = number(&mut parser, "calls")?;
                if calls == 0 {
                    return Err(misused("test", "--calls cannot be '0': it is 1 at least"));
                }
                dice.calls = Some(calls);
            }
            Long("in") => dice.within = Some(parser.value().map_err(usage)?.into()),
            Long("machine") => {
                let name = parser.value().map_err(usage)?.string().map_err(usage)?;
                dice.machine = Some(fuzz::machine_named(&name).map_err(|what| misused("test", what))?);
            }
            Long("seed") => dice.seed = number(&mut parser, "seed")?,
            other => return Err(misused("test", other.unexpected())),
        }
    }
    let root = place::root()?;
    check_within(&root, &only, dice.within.as_deref())?;
    note_little_disk(&root);
    let mut tally = Tally::default();
    let is_named = |stage: &&Stage| only.iter().any(|name| name == stage.name);
    let all = STAGES.iter().filter(|stage| only.is_empty() || is_named(stage));
    for stage in all.chain(LONG.iter().filter(is_named)) {
        run_stage(stage, &root, (keep, &dice), &mut tally)?;
    }
    for name in &tally.failed {
        println!("{} {name}", display::bad("FAILED"));
    }
    println!("{} passed, {} failed", tally.passed, tally.failed.len());
    Ok(if tally.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The space on the disk that all stages need at most, with everything that they build.
const DISK_BYTES: u64 = 6 << 30;

/// Says so where there is less: what fails then says many other things.
fn note_little_disk(root: &Path) {
    let Ok(about) = rustix::fs::statvfs(root) else { return };
    let free = about.f_bavail.saturating_mul(about.f_frsize);
    if free < DISK_BYTES && !root.join("target/programs").exists() {
        display::note(&format!(
            "{} are free on this disk; the tests build and write up to {}",
            show_size(free),
            show_size(DISK_BYTES)
        ));
    }
}

/// Refuses a place for `--in` that no stage would look at, before hours go by.
fn check_within(root: &Path, only: &[String], within: Option<&Path>) -> Result<()> {
    let Some(within) = within else { return Ok(()) };
    if !only.iter().any(|stage| stage == "mutants") {
        return Err(misused("test", "--in is an option of '--only mutants'"));
    }
    if !root.join(within).exists() {
        let what = format!(
            "--in cannot be '{}': the sources have no such file or folder",
            within.display()
        );
        return Err(misused("test", what));
    }
    Ok(())
}

/// The value of an option that takes a number.
fn number(parser: &mut lexopt::Parser, option: &str) -> Result<u64> {
    let value = parser.value().map_err(|error| misused("test", error))?;
    let text = value.to_string_lossy();
    let number = text.parse().ok();
    number.ok_or_else(|| misused("test", format!("--{option} cannot be '{text}': it is a number")))
}

fn run_stage(stage: &Stage, root: &Path, (keep, dice): (Keep, &fuzz::Dice), tally: &mut Tally) -> Result<()> {
    let (passed, failed) = (tally.passed, tally.failed.len());
    let mut bench = Bench {
        tally,
        job: Job::begin(format!("{}: {}", stage.name, stage.about)),
        stage: stage.name,
        root: root.to_owned(),
        scratch: Scratch::make()?,
        keep,
        dice: dice.clone(),
    };
    if let Err(error) = (stage.run)(&mut bench) {
        bench.report("the stage as a whole", Err(format!("{error:#}")));
    }
    if bench.tally.failed.len() > failed {
        bench.keep_evidence();
    }
    bench.job.clear();
    let seconds = bench.job.elapsed().as_secs();
    let (passed, failed) = (bench.tally.passed - passed, bench.tally.failed.len() - failed);
    let mark = if failed == 0 {
        display::good("ok")
    } else {
        display::bad("failed")
    };
    println!(
        "{:10} {mark}: {passed} passed, {failed} failed, {seconds} s",
        stage.name
    );
    Ok(())
}

/// Cases in the form of Rust's test harness: `test NAME ... ok`.
/// For each its name, and `Some(why)` if it failed.
pub fn cases(output: &str) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    for line in output.lines() {
        let Some((name, result)) = line
            .trim()
            .strip_prefix("test ")
            .and_then(|rest| rest.split_once(" ... "))
        else {
            continue;
        };
        let name = name.trim().trim_end_matches(" - should panic").to_owned();
        let result = result.trim();
        match result.split(|c: char| !c.is_ascii_alphabetic()).next() {
            Some("ok") => found.push((name, None)),
            Some("ignored") => {}
            _ => found.push((name, Some(result.to_owned()))),
        }
    }
    found
}

/// Reads a file that a test needs.
pub fn slurp(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_parsed() {
        let output = "hello\ntest a::b ... ok\ntest c - should panic ... ok\n test d ... FAILED: 3 is not 4\ntest e ... ignored, slow\ntest result: ok. 1 passed\n";
        let expected = [("a::b", None), ("c", None), ("d", Some("FAILED: 3 is not 4"))];
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, why)| (name.to_string(), why.map(str::to_owned)))
            .collect();
        assert_eq!(cases(output), expected);
    }
}
