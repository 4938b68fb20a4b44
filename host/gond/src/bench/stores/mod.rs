//! `gond bench --store`: our store over a file, beside databases, on the host (decision 0195).
//!
//! A program with crates of its own (`bench/store-peers`) does a round of a row of one engine each time it is started: once
//! under a counter of instructions and system calls, then some times for the clock, the engines in turns.

mod counter;
mod shown;

use crate::arguments::misused;
use crate::display::Job;
use crate::place;
use anyhow::{Context, Result, bail};
use counter::Counted;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use store_bench::Row;

/// The engines, ours first, as they are shown.
pub const ENGINES: [&str; 4] = ["store", "lmdb", "redb", "sqlite"];
/// Rounds that are timed, unless somebody says otherwise.
const ROUNDS: u64 = 5;
/// The work of a round, as the program knows it.
const SIZE: &str = "whole";

#[derive(Debug)]
struct Options {
    json: bool,
    update: bool,
    rounds: u64,
    rows: Vec<Row>,
    engines: Vec<&'static str>,
}

/// A row of an engine.
pub struct Stored {
    row: Row,
    engine: &'static str,
    counted: Counted,
    /// Nanoseconds of an operation, the median of the rounds.
    ns: u64,
}

/// Whether these words are for this command.
pub fn is_asked(arguments: &[OsString]) -> bool {
    arguments.iter().any(|word| word == "--store")
}

fn parse(arguments: Vec<OsString>) -> Result<Options> {
    use lexopt::prelude::*;
    let usage = |error: lexopt::Error| misused("bench", error);
    let mut options = Options {
        json: false,
        update: false,
        rounds: ROUNDS,
        rows: Vec::new(),
        engines: Vec::new(),
    };
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(usage)? {
        match argument {
            Long("store") => {}
            Long("json") => options.json = true,
            Long("update") => options.update = true,
            Long(name @ ("compare" | "working-set" | "host")) => {
                return Err(misused("bench", format!("--{name} does not go with --store")));
            }
            Long("rounds") => {
                let word = parser.value().map_err(usage)?.string().map_err(usage)?;
                let rounds = word.parse().ok().filter(|&rounds| rounds > 0);
                options.rounds = rounds.ok_or_else(|| {
                    misused(
                        "bench",
                        format!("--rounds cannot be '{word}': it is a number, 1 at least"),
                    )
                })?;
            }
            Long("row") => {
                let name = parser.value().map_err(usage)?.string().map_err(usage)?;
                let row = Row::from_name(&name);
                let all = Row::ALL.map(Row::name).join(", ");
                let why = || misused("bench", format!("--store has no row '{name}'; it has {all}"));
                options.rows.push(row.ok_or_else(why)?);
            }
            Long("system") => {
                let name = parser.value().map_err(usage)?.string().map_err(usage)?;
                let engine = ENGINES.into_iter().find(|engine| *engine == name);
                let why = || {
                    let all = ENGINES.join(", ");
                    misused("bench", format!("--store has no system '{name}'; it has {all}"))
                };
                options.engines.push(engine.ok_or_else(why)?);
            }
            other => return Err(misused("bench", other.unexpected())),
        }
    }
    if options.update && !(options.rows.is_empty() && options.engines.is_empty()) {
        return Err(misused("bench", "--update needs all rows of all systems"));
    }
    if options.rows.is_empty() {
        options.rows = Row::ALL.into();
    }
    if options.engines.is_empty() {
        options.engines = ENGINES.into();
    }
    Ok(options)
}

/// Runs `gond bench --store`.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    let options = parse(arguments)?;
    let root = place::root()?;
    counter::require()?;
    let bench = Bench {
        program: build(&root)?,
        files: Files::make(&root)?,
    };
    let mut all = Vec::new();
    for &engine in &options.engines {
        bench.prepare(engine)?;
    }
    for &row in &options.rows {
        for one in bench.row(row, &options)? {
            if options.json {
                println!("{}", one.json());
            }
            all.push(one);
        }
    }
    let table = shown::table(&all, &options.engines);
    if !options.json {
        print!("{table}");
    }
    if options.update {
        shown::update_document(&root, &table)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn build(root: &Path) -> Result<PathBuf> {
    let target = root.join("target/peer");
    let mut job = Job::begin("building the databases beside the store (minutes, once)");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--release", "--locked", "--manifest-path"])
        .arg(root.join("bench/store-peers/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .stdin(Stdio::null())
        .output()
        .context("cannot start cargo")?;
    job.clear();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!(
            "the databases beside the store could not be built:\n{}",
            said.trim_end()
        );
    }
    Ok(target.join("release/store-peers"))
}

/// A folder for the files of the engines, beside what is built: where temporary files go may be memory, which has no flush.
struct Files {
    path: PathBuf,
    _lock: File,
}

impl Files {
    /// Takes the place, and removes what a run that was killed has left there, which is gigabytes.
    fn make(root: &Path) -> Result<Self> {
        let path = root.join("target/stores");
        let fail = || format!("cannot make the folder {}", path.display());
        let lock = File::create(root.join("target/stores.lock")).with_context(fail)?;
        if lock.try_lock().is_err() {
            bail!("another './gond bench --store' is running in this tree");
        }
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).with_context(fail)?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

struct Bench {
    program: PathBuf,
    files: Files,
}

/// The numbers of a line `name=number …`.
fn numbers(line: &str) -> BTreeMap<&str, u64> {
    let words = line.split_whitespace().filter_map(|word| word.split_once('='));
    words
        .filter_map(|(name, number)| Some((name, number.parse().ok()?)))
        .collect()
}

/// The number of that name in a line.
fn number(line: &str, name: &str) -> Result<u64> {
    let found = numbers(line).get(name).copied();
    found.with_context(|| format!("bench/store-peers does not tell {name}: {line}"))
}

/// The middle one.
fn median(mut list: Vec<u64>) -> u64 {
    list.sort_unstable();
    list.get(list.len() / 2).copied().unwrap_or(0)
}

impl Bench {
    fn folder(&self, engine: &str) -> PathBuf {
        self.files.path.join(engine)
    }

    fn words(&self, what: &str, engine: &str) -> Vec<OsString> {
        vec![
            what.into(),
            engine.into(),
            self.folder(engine).into_os_string(),
            SIZE.into(),
        ]
    }

    /// Has the program do something; the line that it prints.
    fn ask(&self, words: &[OsString]) -> Result<String> {
        let output = Command::new(&self.program)
            .args(words)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        answer(&output)
    }

    fn prepare(&self, engine: &str) -> Result<()> {
        let mut job = Job::begin(format!("filling {engine}"));
        let folder = self.folder(engine);
        std::fs::create_dir(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        self.ask(&self.words("prepare", engine))?;
        job.clear();
        Ok(())
    }

    /// A row of all engines.
    fn row(&self, row: Row, options: &Options) -> Result<Vec<Stored>> {
        let words = |what, engine, round: u64| {
            let mut words = self.words(what, engine);
            words.extend([row.name().into(), round.to_string().into()]);
            words
        };
        let mut job = Job::begin(row.name());
        let mut counts = Vec::new();
        for &engine in &options.engines {
            job.step(&format!("counting {engine}"));
            let counted = counter::count(&self.program, &words("count", engine, 0), &self.files.path)?;
            counted
                .agrees()
                .with_context(|| format!("{} of {engine}", row.name()))?;
            counts.push(counted);
        }
        let mut times: Vec<Vec<u64>> = vec![Vec::new(); options.engines.len()];
        for round in 1..=options.rounds {
            let mut sums = Vec::new();
            for (place, &engine) in options.engines.iter().enumerate() {
                job.step(&format!("round {round}, {engine}"));
                let line = self.ask(&words("run", engine, round))?;
                times[place].push(number(&line, "ns")? / number(&line, "operations")?.max(1));
                let mut sum = vec![number(&line, "sum")?];
                if round == options.rounds && !row.reads() {
                    sum.push(number(&self.ask(&words("verify", engine, round))?, "sum")?);
                }
                sums.push(sum);
            }
            if let Some(place) = sums.iter().position(|sum| *sum != sums[0]) {
                let (ours, theirs) = (options.engines[0], options.engines[place]);
                bail!("{}: {ours} and {theirs} did not do the same work", row.name());
            }
        }
        job.clear();
        let measured = options.engines.iter().zip(counts).zip(times);
        Ok(measured
            .map(|((&engine, counted), times)| Stored {
                row,
                engine,
                counted,
                ns: median(times),
            })
            .collect())
    }
}

/// The line that the program printed, or its complaint.
fn answer(output: &std::process::Output) -> Result<String> {
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Options, String> {
        parse(words.iter().map(OsString::from).collect()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn the_option_is_known_and_what_goes_with_it() {
        let words = ["--json", "--store"].map(OsString::from);
        assert!(is_asked(&words) && !is_asked(&words[..1]));
        let all = parsed(&["--store", "--json"]).unwrap();
        assert_eq!((all.rows.len(), all.engines, all.rounds), (6, ENGINES.to_vec(), ROUNDS));
        let some = parsed(&["--store", "--row", "store-probe", "--system", "redb", "--rounds", "2"]).unwrap();
        assert_eq!(
            (some.rows, some.engines, some.rounds),
            (vec![Row::Probe], vec!["redb"], 2)
        );
        for (words, told) in [
            (&["--store", "--compare"][..], "--compare does not go with --store"),
            (
                &["--store", "--row", "null-call"],
                "no row 'null-call'; it has store-sync-1,",
            ),
            (
                &["--store", "--system", "linux"],
                "no system 'linux'; it has store, lmdb,",
            ),
            (&["--store", "--rounds", "0"], "--rounds cannot be '0'"),
            (
                &["--store", "--update", "--row", "store-scan"],
                "--update needs all rows",
            ),
        ] {
            let error = parsed(words).unwrap_err();
            assert!(error.contains(told) && error.contains("./gond help bench"), "{error}");
        }
    }
}
