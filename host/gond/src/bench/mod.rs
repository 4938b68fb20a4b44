//! `gond bench`: rows measured in the system and in Linux, in the same QEMU, in instructions and in time.
//!
//! A program prints a row as `row=NAME ticks=N ns=N …`, in both systems alike. Each row is taken twice: once with QEMU
//! counting instructions (a tick is an instruction), once in plain translation (nanoseconds). Ratios are what counts.

mod rows;

mod compare;

mod tables;

mod stores;

pub mod working_set;

use crate::arguments::misused;
use crate::disk::lock_image;
use crate::display::{self, Job};
use crate::machine::{self, Clock, End, Machine};
use crate::place::{self, Scratch};
use crate::script::{self, Patience, Source, Verdict};
use crate::volume::Volume;
use crate::{bare, build, image, transfer};
use abi::Rights;
use abi::address::{SLOT, slot_of};
use anyhow::{Context, Result, bail};
use rows::{Measured, Meter, System};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use working_set::RoundTrip;

/// The longest that the programs may take together.
const TOTAL: Duration = Duration::from_mins(15);

/// Processors of the machine on which threads work together.
const SCALE_PROCESSORS: u32 = 4;

/// The program of the row `oo1-one-domain-c`.
const OO1_IN_C: &str = "oo1-c";

struct Options {
    json: bool,
    after: After,
    systems: Vec<System>,
    rows: Vec<String>,
    what: What,
}

/// Prints rows as they are measured, as JSON, if that is wanted.
struct Report<'a> {
    is_wanted: bool,
    /// All that are wanted, or none if all are.
    rows: &'a [String],
    told: Mutex<BTreeSet<(&'static str, String)>>,
}

impl Report<'_> {
    fn tell(&self, rows: Vec<Measured>) {
        let Ok(mut told) = self.told.lock() else { return };
        for one in rows {
            let is_wanted = self.is_wanted && (self.rows.is_empty() || self.rows.contains(&one.row));
            if is_wanted && told.insert((one.system.name(), one.row.clone())) {
                println!("{}", one.json());
            }
        }
    }
}

/// The thing to measure.
#[derive(Copy, Clone, PartialEq, Eq)]
enum What {
    Rows,
    WorkingSet,
}

/// The use of the results besides printing them.
#[derive(Copy, Clone, PartialEq, Eq)]
enum After {
    Nothing,
    Compare,
    Update,
}

fn parse(arguments: Vec<OsString>) -> Result<Options> {
    use lexopt::prelude::*;
    let usage = |error: lexopt::Error| misused("bench", error);
    let mut options = Options {
        json: false,
        after: After::Nothing,
        systems: Vec::new(),
        rows: Vec::new(),
        what: What::Rows,
    };
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(usage)? {
        match argument {
            Long("json") => options.json = true,
            Long(name @ ("compare" | "update")) => {
                let after = if name == "compare" {
                    After::Compare
                } else {
                    After::Update
                };
                if options.after != After::Nothing && options.after != after {
                    return Err(misused("bench", "--compare and --update do not go together"));
                }
                options.after = after;
            }
            Long("working-set") => options.what = What::WorkingSet,
            Long("row") => options
                .rows
                .push(parser.value().map_err(usage)?.string().map_err(usage)?),
            Long("system") => {
                let name = parser.value().map_err(usage)?.string().map_err(usage)?;
                let system =
                    System::from_name(&name).ok_or_else(|| misused("bench", format!("there is no system '{name}'")))?;
                options.systems.push(system);
            }
            other => return Err(misused("bench", other.unexpected())),
        }
    }
    if options.systems.is_empty() {
        options.systems = vec![System::Gondwana, System::GondwanaUser, System::Linux];
    }
    if options.after == After::Update && (options.systems.len() < 3 || !options.rows.is_empty()) {
        return Err(misused("bench", "--update needs all rows of all systems"));
    }
    Ok(options)
}

/// Runs `gond bench`.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    if stores::is_asked(&arguments) {
        return stores::command(arguments);
    }
    let options = parse(arguments)?;
    let root = place::root()?;
    for row in &options.rows {
        if !rows::is_known(row) && !compare::has(&root, row, &options.systems) {
            let why = format!(
                "there is no row '{row}' of these systems in bench/results.json; without --row all are measured"
            );
            return Err(misused("bench", why));
        }
    }
    machine::require_emulator()?;
    if options.what == What::WorkingSet {
        for (index, trip) in [RoundTrip::Message, RoundTrip::ProtectedCall].into_iter().enumerate() {
            let found = working_set::measure(&root, trip)?;
            if options.json {
                print!("{}", found.json());
            } else {
                print!("{}{}", if index > 0 { "\n" } else { "" }, found.table());
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let report = Report {
        is_wanted: options.json,
        rows: &options.rows,
        told: Mutex::default(),
    };
    let mut results = Vec::new();
    for &system in &options.systems {
        let mut measured = match system {
            System::Gondwana | System::GondwanaUser => gondwana(system, &options.rows, &report)?,
            System::Linux => linux(&root, &options.rows, &report)?,
        };
        measured.retain(|one| options.rows.is_empty() || options.rows.contains(&one.row));
        results.extend(measured);
    }
    if results.is_empty() {
        bail!("there is no such row");
    }
    if options.json {
        // Those that have but one figure.
        report.tell(results.clone());
    } else {
        print!("{}", tables::render(&results));
    }
    rows::check_checksums(&results)?;
    match options.after {
        After::Nothing => Ok(ExitCode::SUCCESS),
        After::Update => {
            compare::store(&root, &results)?;
            tables::update_document(&root, &results)?;
            Ok(ExitCode::SUCCESS)
        }
        After::Compare => {
            let worse = compare::regressions(&root, &results, &options.rows)?;
            for line in &worse {
                display::complain(line);
            }
            Ok(if worse.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
    }
}

/// The rows of this system, with its server here or there: these, or all if there are none. Others may be among them, which are
/// measured with them.
fn gondwana(system: System, rows: &[String], report: &Report<'_>) -> Result<Vec<Measured>> {
    let wants = |meter| rows.is_empty() || rows.iter().any(|row| Meter::of(row) == meter);
    let mut lines: Vec<&str> = [(Meter::Micro, "micro"), (Meter::Oo1, "oo1 bench")]
        .into_iter()
        .filter_map(|(meter, line)| wants(meter).then_some(line))
        .collect();
    let built = build::all()?;
    // The same C as in Linux knows nothing of where the server is.
    let oo1_in_c = (system == System::Gondwana && wants(Meter::Oo1))
        .then(|| build::twins(&place::root()?))
        .transpose()?
        .map(|twins| twins.join(OO1_IN_C));
    lines.extend(oo1_in_c.is_some().then_some(OO1_IN_C));
    let server = (system == System::GondwanaUser)
        .then(|| build::server(build::Profile::Guest))
        .transpose()?;
    let mut outputs: Vec<String> = Vec::new();
    for clock in [Clock::Instructions, Clock::Time] {
        let mut output = String::new();
        let tell = |line: &str| {
            if let Some(counted) = outputs.first() {
                report.tell(rows::complete(system, counted, line));
            }
        };
        if !lines.is_empty() {
            let scratch = Scratch::make()?;
            let disk = scratch.file("bench.img");
            image::create(&disk, image::DEFAULT_SIZE, Some(&built.programs))?;
            if let Some(program) = &oo1_in_c {
                transfer::import_program(&lock_image(&disk)?, program, OO1_IN_C)?;
            }
            let mut machine = Machine::new(built.kernel.clone(), disk);
            machine.clock = clock;
            if let Some(server) = &server {
                machine = machine.with_server(server.clone());
            }
            output += &measure_here(&machine, &lines, &tell)?;
        }
        if wants(Meter::Disk) && clock == Clock::Instructions {
            output += &measure_disk(&built, server.clone(), rows, &tell)?;
        }
        if wants(Meter::Start) && clock == Clock::Instructions {
            output += &measure_starts(&built, server.as_ref(), rows, &tell)?;
        }
        if server.is_none() && wants(Meter::Bare) {
            let measured = measure_bare(clock)?;
            measured.lines().for_each(tell);
            output += &measured;
        }
        if server.is_none() && wants(Meter::Modules) {
            output += &measure_modules(&built, clock, &tell)?;
        }
        outputs.push(output);
    }
    if server.is_none() && wants(Meter::Scale) {
        // The rows `scale-…` need several processors, and with several only times can be measured.
        let scratch = Scratch::make()?;
        let disk = scratch.file("bench.img");
        image::create(&disk, image::DEFAULT_SIZE, Some(&built.programs))?;
        let mut machine = Machine::new(built.kernel, disk);
        machine.processors = SCALE_PROCESSORS;
        let tell = |line: &str| report.tell(rows::complete(system, "", line));
        let together = measure_here(&machine, &["micro --scale"], &tell)?;
        outputs[1].push_str(&together);
    }
    Ok(rows::merge(system, &outputs[0], &outputs[1]))
}

/// The rows of the bare µ-kernel: its suite's, from the kernel's log.
fn measure_bare(clock: Clock) -> Result<String> {
    let mut job = Job::begin("measuring the bare µ-kernel");
    let scratch = Scratch::make()?;
    let program = build::root_program("nucleus-suite")?;
    let kernel = build::kernel(&place::root()?, build::Profile::Guest, build::Kernel::Bare)?;
    let mut machine = bare::machine(&kernel, &program, &scratch)?;
    machine.clock = clock;
    machine.words.push("bench".into());
    let (end, output) = bare::run(&machine, &scratch, TOTAL, &mut job)?;
    job.clear();
    match end {
        End::Success => Ok(output),
        end => bail!("the suite of the bare µ-kernel ended with {end:?}; the kernel's log:\n{output}"),
    }
}

/// The rows of modules: on a disk that has them, and what they are compared with.
fn measure_modules(built: &build::Built, clock: Clock, tell: &dyn Fn(&str)) -> Result<String> {
    let root = place::root()?;
    let scratch = Scratch::make()?;
    let disk = scratch.file("modules.img");
    image::create(&disk, image::DEFAULT_SIZE, Some(&built.programs))?;
    let twins = build::twins(&root)?;
    let mut files = build::modules(&root)?;
    files.extend(["thousand.mm", "client1000.mm"].map(|name| twins.join(name)));
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        transfer::import_file(&lock_image(&disk)?, &file, &name)?;
    }
    transfer::import_program(&lock_image(&disk)?, &twins.join("eight-static"), "eight-static")?;
    let mut machine = Machine::new(built.kernel.clone(), disk);
    machine.clock = clock;
    measure_here(&machine, &["module-bench"], tell)
}

/// The size of the disk for the rows `disk-…`, with room for the objects of all, and pages of the data that they read.
const DISK_BYTES: u64 = 1 << 30;
const DISK_PAGES: u64 = 16_384;
/// The size of the object of the rows `…-8x`: eight times the memory of the machine.
const LARGE_BYTES: u64 = 1 << 30;
/// The memory for the rows `writer-wait…`.
const WRITER_MEMORY: u64 = 1 << 30;

/// The rows of the disk: with data that no start has read yet. In instructions only, for the host's own cache would decide about times.
fn measure_disk(
    built: &build::Built,
    server: Option<build::Server>,
    rows: &[String],
    tell: &dyn Fn(&str),
) -> Result<String> {
    let scratch = Scratch::make()?;
    let disk = scratch.file("disk.img");
    image::create(&disk, DISK_BYTES, Some(&built.programs))?;
    let data = scratch.file("disk-data");
    write_pages(&data, DISK_PAGES)?;
    transfer::import_file(&lock_image(&disk)?, &data, "disk-data")?;
    let mut machine = Machine::new(built.kernel.clone(), disk);
    machine.clock = Clock::Instructions;
    let is_inside = server.is_none();
    if let Some(server) = server {
        machine = machine.with_server(server);
    }
    // A heap never grows where its program had an object before: those with many objects are programs of their own.
    let programs: [&[&str]; 4] = [
        &[
            "disk-read-in-turn",
            "disk-read-at-random",
            "disk-cached-in-turn",
            "disk-cached-at-random",
        ],
        &["disk-objects-1k"],
        &["disk-objects-16k"],
        // Behind these an object with many dirty pages is deleted.
        &["disk-sync-1", "disk-sync-256"],
    ];
    let mut output = measure_disk_rows(&machine, &programs, rows, tell)?;
    // A hundred MiB of dirty pages are more than the memory of the others has room for.
    machine.memory = WRITER_MEMORY;
    output += &measure_disk_rows(&machine, &[&["writer-wait", "writer-wait-1m"]], rows, tell)?;
    // The rows `disk-read…` say what the server outside costs.
    if is_inside && (rows.is_empty() || rows.iter().any(|row| row.contains("-8x"))) {
        output += &measure_large(built, tell)?;
    }
    Ok(output)
}

/// The rows of an object of eight times the memory.
fn measure_large(built: &build::Built, tell: &dyn Fn(&str)) -> Result<String> {
    let scratch = Scratch::make()?;
    let disk = scratch.file("large.img");
    image::create(&disk, 2 * LARGE_BYTES, Some(&built.programs))?;
    let data = scratch.file("disk-large");
    write_pages(&data, LARGE_BYTES / 4096)?;
    transfer::import_file(&lock_image(&disk)?, &data, "disk-large")?;
    std::fs::remove_file(&data).context("cannot remove the data for the disk")?;
    let mut machine = Machine::new(built.kernel.clone(), disk);
    machine.clock = Clock::Instructions;
    measure_here(&machine, &["micro --large"], tell)
}

/// Writes a file of so many pages, each of which begins with its number.
fn write_pages(path: &Path, pages: u64) -> Result<()> {
    let file = std::fs::File::create(path).context("cannot make the data for the disk")?;
    let mut file = std::io::BufWriter::with_capacity(1 << 20, file);
    let mut page = [0; 4096];
    for number in 0..pages {
        page[..8].copy_from_slice(&number.to_le_bytes());
        file.write_all(&page).context("cannot write the data for the disk")?;
    }
    file.flush().context("cannot write the data for the disk")
}

/// Those of the rows that are wanted, each list by a program of its own.
fn measure_disk_rows(machine: &Machine, programs: &[&[&str]], rows: &[String], tell: &dyn Fn(&str)) -> Result<String> {
    let lines: Vec<String> = programs
        .iter()
        .map(|names| {
            let wanted = names
                .iter()
                .filter(|name| rows.is_empty() || rows.iter().any(|row| row == *name));
            wanted.fold(String::from("micro"), |line, name| line + " " + name)
        })
        .filter(|line| line != "micro")
        .collect();
    if lines.is_empty() {
        return Ok(String::new());
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    measure_here(machine, &lines, tell)
}

/// The rows `start-…`: how many objects the disk has beside the system's own, and its size.
const STARTS: [(&str, u64, u64); 4] = [
    ("thousand", 1_000, image::DEFAULT_SIZE),
    ("ten-thousand", 10_000, image::DEFAULT_SIZE),
    ("hundred-thousand", 100_000, image::DEFAULT_SIZE),
    ("million", 1_000_000, 1 << 30),
];

/// Objects that are read then, evenly far from one another: each keeps a leaf of the table.
const ACTIVE: u64 = 1000;

/// The rows of starts: from the boot to the first program behind the prompt, and the heap then. In instructions only.
fn measure_starts(
    built: &build::Built,
    server: Option<&build::Server>,
    rows: &[String],
    tell: &dyn Fn(&str),
) -> Result<String> {
    let mut output = String::new();
    for (name, objects, bytes) in STARTS {
        let all = ["", "-heap", "-active-heap"].map(|what| format!("start-{name}{what}"));
        let wants = |row: &String| all.contains(row);
        if !rows.is_empty() && !rows.iter().any(wants) {
            continue;
        }
        let scratch = Scratch::make()?;
        let disk = scratch.file("start.img");
        image::create(&disk, bytes, Some(&built.programs))?;
        let first = add_objects(&disk, objects)?;
        let step = objects / ACTIVE;
        let mut machine = Machine::new(built.kernel.clone(), disk);
        machine.clock = Clock::Instructions;
        if let Some(server) = server {
            machine = machine.with_server(server.clone());
        }
        let line = format!("micro --started {name} {first} {ACTIVE} {step}");
        output += &measure_here(&machine, &[&line], tell)?;
    }
    Ok(output)
}

/// Enters so many objects of one page behind all that the disk has. Nobody names them. Tells the slot of the first one.
fn add_objects(disk: &Path, objects: u64) -> Result<u64> {
    let lock = lock_image(disk)?;
    let mut volume = Volume::open_for_change(&lock)?;
    let end = volume.objects().last().map_or(0, store::ObjectRecord::end);
    let first = slot_of(end) + 1;
    for slot in first..first + objects {
        volume.put(&store::ObjectRecord {
            base: slot * SLOT,
            pages: 1,
            capabilities: vec![(slot, Rights::OWNER.bits())],
            ..store::ObjectRecord::default()
        })?;
    }
    volume.commit()?;
    Ok(first)
}

/// Runs these lines; `tell` gets each line of their output as it comes.
fn measure_here(machine: &Machine, lines: &[&str], tell: &dyn Fn(&str)) -> Result<String> {
    let what = match (machine.clock, machine.processors) {
        (Clock::Instructions, _) => "counting instructions in Gondwana",
        (Clock::Time, 1) => "taking times in Gondwana",
        (Clock::Time, _) => "taking times in Gondwana on several processors",
    };
    let mut output = Progress {
        job: Job::begin(what),
        bytes: Vec::new(),
        told: 0,
        tell,
    };
    let patience = Patience {
        total: Some(TOTAL),
        ..Patience::seconds(300)
    };
    let lines = Source::lines(lines.iter().copied());
    let played = script::play(machine, lines, &mut output, patience)?;
    output.job.clear();
    let text = String::from_utf8_lossy(&output.bytes).into_owned();
    match played.verdict {
        Verdict::Success => Ok(text),
        Verdict::Failure(what) | Verdict::Dead(what) => bail!("{what}\n--- output:\n{text}"),
        Verdict::Killed => bail!("the plug was pulled"),
    }
}

/// Collects output and shows its last line.
struct Progress<'a> {
    job: Job,
    bytes: Vec<u8>,
    /// Bytes of the lines that were told.
    told: usize,
    tell: &'a dyn Fn(&str),
}

impl std::io::Write for Progress<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        let text = String::from_utf8_lossy(&self.bytes);
        if let Some(line) = text.trim_end().lines().last() {
            self.job.step(line);
        }
        while let Some(length) = self.bytes[self.told..].iter().position(|&byte| byte == b'\n') {
            (self.tell)(&String::from_utf8_lossy(&self.bytes[self.told..self.told + length]));
            self.told += length + 1;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The runs of Linux that give these rows, or all if there are none: how `bench/linux/run` calls each, and what is said meanwhile. Those of the disk
/// have a machine of their own and, as in Gondwana, no times.
fn linux_runs(rows: &[String]) -> Vec<(&'static str, Clock, &'static str)> {
    let is_of_disk = |row: &String| Meter::of(row) == Meter::Disk;
    let wants_disk = rows.is_empty() || rows.iter().any(is_of_disk);
    let wants_others = rows.is_empty() || !rows.iter().all(is_of_disk);
    let all = [
        (
            wants_others,
            "icount",
            Clock::Instructions,
            "counting instructions in Linux",
        ),
        (
            wants_disk,
            "disk",
            Clock::Instructions,
            "counting instructions of the disk in Linux",
        ),
        (wants_others, "time", Clock::Time, "taking times in Linux"),
    ];
    let wanted = all.into_iter().filter(|(is_wanted, ..)| *is_wanted);
    wanted.map(|(_, mode, clock, what)| (mode, clock, what)).collect()
}

/// The rows of Linux: these, or all if there are none. Others may be among them, which are measured with them.
fn linux(root: &Path, rows: &[String], report: &Report<'_>) -> Result<Vec<Measured>> {
    let folder = root.join("target/linux");
    let twins = build::twins(root)?;
    let status = Command::new(root.join("bench/linux/prepare"))
        .arg(&folder)
        .arg(twins.join("linux"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    if !status.context("cannot start bench/linux/prepare")?.success() {
        bail!("Linux could not be prepared (above); './gond bench --system gondwana' does without it");
    }
    let (mut counted, mut timed) = (String::new(), String::new());
    for (mode, clock, what) in linux_runs(rows) {
        let mut job = Job::begin(what);
        let mut child = Command::new(root.join("bench/linux/run"))
            .arg(&folder)
            .arg(mode)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start bench/linux/run")?;
        let stdout = child.stdout.take().context("bench/linux/run has no standard output")?;
        for line in BufReader::new(stdout).lines() {
            let line = line.context("cannot read Linux's output")?;
            job.step(&line);
            let text = match clock {
                Clock::Instructions => &mut counted,
                Clock::Time => {
                    report.tell(rows::complete(System::Linux, &counted, &line));
                    &mut timed
                }
            };
            *text += &line;
            text.push('\n');
        }
        job.clear();
        if !child.wait()?.success() {
            bail!("Linux could not be measured (above)");
        }
    }
    Ok(rows::merge(System::Linux, &counted, &timed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_runs_for_what_is_wanted() {
        let modes = |rows: &[&str]| -> Vec<&str> {
            let rows: Vec<String> = rows.iter().map(|&row| row.to_owned()).collect();
            linux_runs(&rows).into_iter().map(|(mode, ..)| mode).collect()
        };
        assert_eq!(modes(&[]), ["icount", "disk", "time"]);
        assert_eq!(modes(&["disk-sync-1", "disk-read-in-turn-mmap"]), ["disk"]);
        assert_eq!(modes(&["null-call"]), ["icount", "time"]);
        assert_eq!(modes(&["null-call", "disk-sync-1"]), ["icount", "disk", "time"]);
    }

    #[test]
    fn results_are_compared_or_stored() {
        let parsed = |words: &[&str]| parse(words.iter().map(OsString::from).collect());
        assert!(parsed(&["--compare", "--compare"]).is_ok_and(|options| options.after == After::Compare));
        assert!(parsed(&["--update"]).is_ok_and(|options| options.after == After::Update));
        assert!(parsed(&["--compare", "--update"]).is_err());
        assert!(parsed(&["--update", "--compare"]).is_err());
    }
}
