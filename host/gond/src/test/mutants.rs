//! Stage `mutants`: do the host tests notice when the logic is wrong?
//!
//! Small changes of the pure crates (mutants, [`switches`]) are drawn by the seed and compiled all together in a clone of the
//! last commit, each behind a switch. One run of each test tells which mutants it reaches. Then each mutant is switched on
//! and the tests that reach it run, the quickest first, until one fails. A mutant that no test notices is a survivor:
//! a test is missing, or the change makes no difference. `docs/mutants.md` lists them with the reason.

mod notes;
mod switches;

use super::Bench;
use crate::build;
use anyhow::{Context, Result, bail};
use notes::Notes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use switches::{Mutant, Source};

/// The first files of the crates that are changed.
const CRATES: [&str; 4] = [
    "kcore/src/lib.rs",
    "sasos/src/lib.rs",
    "store/src/lib.rs",
    "rt/names/src/lib.rs",
];
/// A test that takes a file of `kcore` in by its path.
const LOOM: &str = "kcore/tests/smp_loom.rs";
/// The packages whose tests run.
const PACKAGES: [&str; 5] = ["kcore", "sasos", "store", "names", "sim"];
/// Mutants that are tried unless `--calls` says otherwise.
const COUNT: u64 = 500;
/// Of a hundred mutants that build, so many must be caught.
const CAUGHT_PERCENT: usize = 90;
/// How often the mutants that do not build are left out before something else must be wrong.
const BUILDS: usize = 20;

/// After so many mutants that were caught it is told how far the run is.
const TOLD: usize = 25;
/// Tests that take less processor time are quick.
const QUICK: Duration = Duration::from_millis(300);
/// The unit of `/proc` for processor time.
const TICK: Duration = Duration::from_millis(10);

/// A program of tests, and the folder in which it wants to run.
type Program = (PathBuf, PathBuf);

/// A test: its program, its name, the processor time that it takes, and which mutants it reaches.
#[derive(Clone)]
struct Test {
    program: Program,
    name: String,
    takes: Duration,
    reaches: BTreeSet<usize>,
}

/// Runs the stage.
pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let target = bench.root().join("target/mutants");
    let tree = target.join("tree");
    let _ = std::fs::remove_dir_all(&tree);
    finish(
        Command::new("git")
            .args(["clone", "--quiet", "--shared"])
            .arg(bench.root())
            .arg(&tree),
    )?;
    let count = bench.dice.calls.unwrap_or(COUNT) as usize;
    let mut sources = Vec::new();
    switches::add_question(&tree.join(LOOM), count)?;
    for first in CRATES {
        switches::add_question(&tree.join(first), count)?;
        sources.extend(switches::sources(&tree.join(first)).with_context(|| format!("cannot read {first}"))?);
    }
    if let Some(within) = &bench.dice.within {
        sources.retain(|source| source.path.starts_with(tree.join(within)));
    }
    let all: usize = sources.iter().map(|source| source.mutants.len()).sum();
    if all == 0 {
        let within = bench.dice.within.clone().unwrap_or_default();
        bail!(
            "--in {}: nothing there can be changed; it takes a path such as kcore/src/kernel",
            within.display()
        );
    }
    let mut chosen = draw(&sources, count, bench.dice.seed);
    bench.tell(&format!("{} mutants of {all}, seed {}", chosen.len(), bench.dice.seed));
    let notes = Notes::new(
        &target,
        format!("{} {count} {} {:?}", head(&tree)?, bench.dice.seed, bench.dice.within),
    );
    let tests = if let Some(tests) = notes.load(&mut chosen) {
        bench.tell("goes on where it was interrupted");
        tests
    } else {
        bench.step("building");
        let programs = build_all(bench, &tree, &sources, &mut chosen)?;
        bench.step("running each test once");
        let mut tests = try_tests(bench, &programs)?;
        tests.sort_by_key(|test| test.takes);
        notes.save(&chosen, &tests)?;
        tests
    };
    bench.tell(&format!("{} mutants build; {} tests", chosen.len(), tests.len()));
    let describe = |number: usize| {
        let (source, mutant) = of(&sources, &chosen, number);
        let path = source.path.strip_prefix(&tree).unwrap_or(&source.path).display();
        let is_reached = tests.iter().any(|test| test.reaches.contains(&number));
        let why = if is_reached { "" } else { " (no test reaches it)" };
        format!("{path}:{}: {}{why} (MUTANT={number})", mutant.line, mutant.what)
    };
    // Slow tests run only for what the quick ones of all mutants leave: a run that is interrupted has decided most.
    let quick = tests.partition_point(|test| test.takes < QUICK);
    let (passes, decided) = ([&tests[..quick], &tests[quick..]], notes.decided());
    let tried = Mutex::new((bench, decided));
    for (is_last, tests) in [false, true].into_iter().zip(passes) {
        let decided = tried.lock().unwrap().1.clone();
        let left: Vec<_> = chosen.keys().filter(|number| !decided.contains_key(number)).collect();
        at_once(&left, |&&number| {
            let mut reaching = tests.iter().filter(|test| test.reaches.contains(&number));
            let is_caught = reaching.any(|test| !one(test, &number.to_string()).0);
            let (bench, decided) = &mut *tried.lock().unwrap();
            if is_caught || is_last {
                notes.decide(number, is_caught);
                decided.insert(number, is_caught);
            }
            if !is_caught {
                let word = if is_last { "survived" } else { "left to slow tests" };
                bench.tell(&format!("{word}: {}", describe(number)));
            }
            let caught = decided.values().filter(|is_caught| **is_caught).count();
            let step = format!("{} of {} decided, {caught} caught", decided.len(), chosen.len());
            if is_caught && caught.is_multiple_of(TOLD) {
                bench.tell(&step);
            } else {
                bench.step(&step);
            }
        });
    }
    notes.end();
    let (bench, decided) = tried.into_inner().unwrap();
    let survivors = decided.iter().filter(|(_, is_caught)| !**is_caught);
    let survivors: Vec<_> = survivors.map(|(number, _)| describe(*number)).collect();
    let (tried, caught) = (decided.len(), decided.len() - survivors.len());
    bench.tell(&format!("{caught} of {tried} mutants caught"));
    bench.report(
        "mutants are caught",
        if tried > 0 && caught * 100 >= tried * CAUGHT_PERCENT {
            Ok(())
        } else {
            Err(format!("{caught} of {tried}; survivors:\n{}", survivors.join("\n")))
        },
    );
    Ok(())
}

/// The commit that a tree is of.
fn head(tree: &Path) -> Result<String> {
    let output = Command::new("git")
        .current_dir(tree)
        .args(["rev-parse", "HEAD"])
        .output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Does something with each, several at a time: one more than there are processors, for a worker sleeps while it waits for its test.
fn at_once<T: Sync>(all: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let worker = || {
        while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(one);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..=std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(worker);
        }
    });
}

/// Which mutant has which number: its file, and its place there.
type Chosen = BTreeMap<usize, (usize, usize)>;

/// So many mutants at random (the generator is `SplitMix64`), in an order in which a smaller number is the beginning of a larger one.
fn draw(sources: &[Source], count: usize, mut seed: u64) -> Chosen {
    let every = |(file, source): (usize, &Source)| {
        (0..source.mutants.len())
            .map(move |index| (file, index))
            .collect::<Vec<_>>()
    };
    let mut all: Vec<_> = sources.iter().enumerate().flat_map(every).collect();
    let count = count.min(all.len());
    for place in 0..count {
        seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut drawn = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let other = place + ((drawn ^ (drawn >> 31)) % (all.len() - place) as u64) as usize;
        all.swap(place, other);
    }
    all.truncate(count);
    all.into_iter().enumerate().collect()
}

fn of<'a>(sources: &'a [Source], chosen: &Chosen, number: usize) -> (&'a Source, &'a Mutant) {
    let (file, index) = chosen[&number];
    (&sources[file], &sources[file].mutants[index])
}

/// Writes and builds, and leaves out the mutants that the compiler refuses until all that are left build. Gives the tests' programs.
fn build_all(bench: &mut Bench<'_>, tree: &Path, sources: &[Source], chosen: &mut Chosen) -> Result<Vec<Program>> {
    let mut command = "check";
    for _ in 0..BUILDS {
        let mut places = BTreeMap::new();
        for (file, source) in sources.iter().enumerate() {
            let own: Vec<_> = chosen
                .iter()
                .filter(|(_, at)| at.0 == file)
                .map(|(number, at)| (*number, at.1))
                .collect();
            let path = source.path.strip_prefix(tree)?.to_owned();
            places.insert(path, switches::write(source, &own)?);
        }
        let output = build::cargo(tree)
            .current_dir(tree)
            .args([command, "--tests", "--keep-going", "--message-format", "json"])
            .args(PACKAGES.iter().flat_map(|package| ["--package", package]))
            .env("CARGO_TARGET_DIR", bench.root().join("target/mutants"))
            .env("RUSTFLAGS", "--cap-lints allow")
            .output()
            .context("cannot start cargo")?;
        let (mut programs, mut refused, mut unknown) = (Vec::new(), BTreeSet::new(), String::new());
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else {
                continue;
            };
            if let Some(program) = message["executable"].as_str()
                && let Some(manifest) = message["manifest_path"].as_str()
                && message["profile"]["test"] == true
            {
                programs.push((program.into(), Path::new(manifest).with_file_name("")));
            }
            let error = &message["message"];
            // An error that stands nowhere is the linker's, or sums up others.
            if error["level"] == "error" {
                match culprit(&places, error) {
                    Some(number) => _ = refused.insert(number),
                    None => unknown.push_str(error["rendered"].as_str().unwrap_or_default()),
                }
            }
        }
        match (output.status.success(), command) {
            (true, "check") => command = "build",
            (true, _) => return Ok(programs),
            (false, _) if refused.is_empty() => {
                bail!(
                    "the mutants do not build:\n{unknown}{}",
                    String::from_utf8_lossy(&output.stderr)
                )
            }
            (false, _) => chosen.retain(|number, _| !refused.contains(number)),
        }
    }
    bail!("mutants that do not build are still left")
}

/// The mutant that an error is about: the one in whose own text it stands, or else the innermost around it.
fn culprit(places: &BTreeMap<PathBuf, switches::Places>, error: &serde_json::Value) -> Option<usize> {
    let spans = error["spans"].as_array()?.iter().filter_map(|span| {
        let range = span["byte_start"].as_u64()? as usize..span["byte_end"].as_u64()? as usize;
        Some((places.get(Path::new(span["file_name"].as_str()?))?, range))
    });
    let holds = |outer: &Range<usize>, inner: &Range<usize>| outer.start <= inner.start && inner.end <= outer.end;
    let own = |(places, range): (&switches::Places, Range<usize>)| {
        places.iter().find(|place| holds(&place.1, &range)).map(|place| place.0)
    };
    let around = |(places, range): (&switches::Places, Range<usize>)| {
        places
            .iter()
            .filter(|place| holds(&place.2, &range))
            .min_by_key(|place| place.2.len())
            .map(|place| place.0)
    };
    spans.clone().find_map(own).or_else(|| spans.clone().find_map(around))
}

/// Runs each test with all switches off: it must pass.
fn try_tests(bench: &mut Bench<'_>, programs: &[Program]) -> Result<Vec<Test>> {
    let mut found = Vec::new();
    for program in programs {
        let listed = Command::new(&program.0)
            .args(["--list", "--format", "terse"])
            .output()?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        found.extend(names.map(|name| Test {
            program: program.clone(),
            name: name.to_owned(),
            takes: Duration::from_mins(10),
            reaches: BTreeSet::new(),
        }));
    }
    let (numbers, tests) = (
        (0..found.len()).collect::<Vec<_>>(),
        Mutex::new((bench, Vec::new(), None)),
    );
    at_once(&numbers, |&number| {
        let (mut test, file) = (found[number].clone(), {
            let (bench, tests, failed) = &mut *tests.lock().unwrap();
            if failed.is_some() {
                return;
            }
            bench.step(&format!("{} of {} tests have run once", tests.len(), found.len()));
            bench.file(&format!("reached{number}"))
        });
        let (passes, takes) = one(&test, &file.to_string_lossy());
        let reached = std::fs::read(&file).unwrap_or_default();
        let (reached, _) = reached.as_chunks::<4>();
        test.takes = takes;
        test.reaches = reached
            .iter()
            .map(|bytes| u32::from_le_bytes(*bytes) as usize)
            .collect();
        let (_, tests, failed) = &mut *tests.lock().unwrap();
        if passes {
            tests.push(test);
        } else {
            *failed = Some(format!("{} of {}", test.name, test.program.0.display()));
        }
    });
    let (_, tests, failed) = tests.into_inner().unwrap();
    match failed {
        Some(name) => bail!("{name} fails without any mutant"),
        None => Ok(tests),
    }
}

/// Runs one test, and says whether it passed in ten times its processor time, and how much of that it took. Memory is bounded, too: a mutant may never end.
/// No bound counts the time of the clock: on a loaded machine a test would fail for want of a processor, and the mutant would be told as caught.
fn one(test: &Test, mutant: &str) -> (bool, Duration) {
    let seconds = test.takes.as_secs() * 10 + 5;
    let limited = format!("ulimit -t {seconds}; ulimit -v 8000000; exec \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &limited, "sh"]).arg(&test.program.0);
    command
        .args(["--exact", &test.name, "--test-threads", "1"])
        .env("MUTANT", mutant);
    command
        .current_dir(&test.program.1)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().and_then(watch).unwrap_or_default()
}

/// Waits for a test, and ends it when for a minute it has used no processor time and wanted none: it waits for what never comes.
fn watch(mut child: Child) -> std::io::Result<(bool, Duration)> {
    let (mut used, mut since, mut pause) = (0, Instant::now(), Duration::from_micros(500));
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status.success(), TICK * used as u32 + since.elapsed().min(pause)));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
        let now = ticks(child.id());
        if now != used || wants_processor(child.id()) {
            (used, since) = (now, Instant::now());
        } else if since.elapsed() > Duration::from_mins(1) {
            child.kill()?;
            child.wait()?;
            return Ok((false, TICK * used as u32));
        }
    }
}

/// Whether a thread of a process runs, or would if a processor were free: state R, behind the name in brackets.
fn wants_processor(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task"));
    threads.into_iter().flatten().flatten().any(|thread| {
        let line = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        line.rsplit(')').next().is_some_and(|fields| fields.starts_with(" R"))
    })
}

/// The processor time that a process has used, in the unit of `/proc`: fields 14 and 15 of its line, which follow the name in brackets.
fn ticks(process: u32) -> u64 {
    let line = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = line.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum()
}

/// Runs a command that must succeed.
fn finish(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
