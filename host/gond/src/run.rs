//! `gond run`: the system on this terminal, or playing a script.

use crate::arguments::{misused, show_size, size};
use crate::backtrace::KernelLog;
use crate::disk::{ImageLock, lock_image};
use crate::machine::{self, Accelerator, Clock, DebuggerLine, End, Machine, Wiring};
use crate::place::{self, Scratch};
use crate::script::{self, Patience, Source, Verdict};
use crate::volume::Volume;
use crate::{bare, build, debugger, display, gdb, grow, image, monitor, snapshot};
use anyhow::{Context, Result, bail};
use kcore::smp::PROCESSORS_MAX;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// The image that is used unless another is named.
const DISK: &str = "gondwana.img";
/// Least memory that the system is started with.
const MEMORY_MIN: u64 = 32 << 20;

/// Where the server is.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Server {
    /// Built into the kernel.
    Kernel,
    /// A program outside of it.
    User,
}

/// How long a system with a script may say nothing, in seconds, unless the user says; and with GDB.
const TIMEOUT: u64 = 300;
const TIMEOUT_WITH_GDB: u64 = 7 * 24 * 3600;

struct Options {
    disk: PathBuf,
    /// A snapshot to start from.
    snapshot: Option<store::SnapshotName>,
    /// Unless it is the default.
    disk_size: Option<u64>,
    memory: u64,
    processors: u32,
    accelerator: Accelerator,
    clock: Clock,
    server: Server,
    script: Option<PathBuf>,
    timeout: u64,
    debugger: DebuggerLine,
    gdb: Option<u16>,
    /// A package to run on the bare µ-kernel instead of the system.
    root: Option<String>,
}

fn parse(arguments: Vec<OsString>) -> Result<Options> {
    use lexopt::prelude::*;
    let mut options = Options {
        disk: DISK.into(),
        snapshot: None,
        disk_size: None,
        memory: 128 << 20,
        processors: 1,
        accelerator: Accelerator::Tcg,
        clock: Clock::Time,
        server: Server::Kernel,
        script: None,
        timeout: TIMEOUT,
        debugger: DebuggerLine::Absent,
        gdb: None,
        root: None,
    };
    let mut parser = lexopt::Parser::from_args(arguments);
    let usage = |error: lexopt::Error| misused("run", error);
    while let Some(argument) = parser.next().map_err(usage)? {
        match argument {
            Long("disk") => options.disk = parser.value().map_err(usage)?.into(),
            Long("snapshot") => {
                let value = parser.value().map_err(usage)?;
                options.snapshot = Some(crate::arguments::snapshot("run", &value)?);
            }
            Long("debugger") => {
                let place = optional_value(&mut parser, |word| !word.starts_with('-'));
                options.debugger = match place {
                    None => DebuggerLine::Socket(debugger::SOCKET.into()),
                    Some(place) if place == "stdio" => DebuggerLine::Terminal,
                    Some(place) if place.is_empty() => {
                        return Err(misused("run", "--debugger takes a socket, and '' is not a file name"));
                    }
                    Some(place) => DebuggerLine::Socket(place.into()),
                };
            }
            Long("gdb") => {
                let port = optional_value(&mut parser, |word| !word.starts_with('-'));
                let port = port.map_or(Some(gdb::PORT), |port| port.to_str()?.parse().ok());
                let port = port.filter(|&port| port > 0);
                options.gdb = Some(port.ok_or_else(|| misused("run", "--gdb takes a port number, from 1 to 65535"))?);
            }
            Long("root") => options.root = Some(parser.value().map_err(usage)?.string().map_err(usage)?),
            Long("script") => options.script = Some(parser.value().map_err(usage)?.into()),
            Long(name @ ("disk-size" | "memory" | "cpus" | "accel" | "clock" | "server" | "timeout")) => {
                let name = name.to_owned();
                let value = parser.value().map_err(usage)?.string().map_err(usage)?;
                options
                    .set(&name, &value)
                    .map_err(|good| misused("run", format!("--{name} cannot be '{value}': {good}")))?;
            }
            other => return Err(misused("run", other.unexpected())),
        }
    }
    if options.gdb.is_some() && options.timeout == TIMEOUT {
        // A person at a breakpoint takes time.
        options.timeout = TIMEOUT_WITH_GDB;
    }
    let scripted = options.script.is_some() || !std::io::stdin().is_terminal();
    if scripted && options.debugger == DebuggerLine::Terminal {
        let why = "--debugger stdio needs the terminal, and with --script standard output is the shell's: name a \
                   socket instead";
        return Err(misused("run", why));
    }
    Ok(options)
}

/// The value of an option that may stand without one: behind `=`, or the next word if it `fits`.
fn optional_value(parser: &mut lexopt::Parser, fits: impl FnOnce(&str) -> bool) -> Option<OsString> {
    if let Some(value) = parser.optional_value() {
        return Some(value);
    }
    let mut words = parser.try_raw_args()?;
    if words.peek()?.to_str().is_some_and(fits) {
        words.next()
    } else {
        None
    }
}

impl Options {
    /// Sets an option with a value of its own form.
    ///
    /// # Errors
    /// The values that it can have, in words.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "disk-size" => self.disk_size = Some(image::size(value, image::FURNISHED_MIN)?),
            "memory" => {
                let bytes = size(value).filter(|&bytes| bytes >= MEMORY_MIN);
                let bytes =
                    bytes.ok_or_else(|| format!("a size is 128M or 1G, and {} at least", show_size(MEMORY_MIN)))?;
                if let Some(most) = memory_of_host().filter(|&most| bytes > most) {
                    return Err(format!("this computer has {}", show_size(most)));
                }
                self.memory = bytes;
            }
            "cpus" => {
                let number = value.parse().ok().filter(|n| (1..=PROCESSORS_MAX).contains(n));
                self.processors = number.ok_or_else(|| format!("it is a number from 1 to {PROCESSORS_MAX}"))? as u32;
            }
            "timeout" => {
                let seconds = value.parse().ok().filter(|&seconds| seconds > 0);
                self.timeout = seconds.ok_or("it is a number of seconds, 1 at least")?;
            }
            "server" => {
                let places = [
                    (abi::host::SERVER_KERNEL, Server::Kernel),
                    (abi::host::SERVER_USER, Server::User),
                ];
                self.server = one_of(value, &places)?;
            }
            "clock" => self.clock = one_of(value, &[("time", Clock::Time), ("instructions", Clock::Instructions)])?,
            _ => self.accelerator = one_of(value, &[("tcg", Accelerator::Tcg), ("kvm", Accelerator::Kvm)])?,
        }
        Ok(())
    }
}

/// Bytes of memory of the computer that this tool runs on, if it tells.
fn memory_of_host() -> Option<u64> {
    let all = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = all.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    size(&total.trim().replace(" kB", "K"))
}

/// The value with this name, or the names that there are.
fn one_of<T: Copy>(name: &str, values: &[(&str, T)]) -> Result<T, String> {
    let found = values.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = values.iter().map(|(known, _)| *known).collect();
        format!("it is {}", names.join(" or "))
    })
}

/// Runs `gond run`.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    let mut options = parse(arguments)?;
    if let Some(package) = &options.root {
        return run_root(package, &options);
    }
    // Input that ends is a script: a terminal never does.
    let script = options
        .script
        .or_else(|| (!std::io::stdin().is_terminal()).then(|| "-".into()));
    image::possible(&options.disk)?;
    debugger::possible(&options.debugger)?;
    let size = options.disk_size.unwrap_or(image::DEFAULT_SIZE);
    let source = script.as_deref().map(Source::open).transpose()?;
    machine::require_emulator()?;
    let built = build::all()?;
    let (copy, name) = (Scratch::make()?, options.snapshot);
    if let Some(name) = name {
        let disk = copy.file("snapshot.img");
        snapshot::copy_of(&options.disk, &name, &disk)?;
        options.disk = disk;
    }
    let made = if options.disk.exists() {
        None
    } else {
        image::create_locked(&options.disk, size, &built.programs)?
    };
    let lock: ImageLock = if let Some(lock) = made {
        display::note(&format!("made the disk image {}", options.disk.display()));
        lock
    } else {
        // It was there, or another run has made it meanwhile.
        let lock = lock_image(&options.disk)?;
        let writable = std::fs::OpenOptions::new().write(true).open(&options.disk);
        writable.with_context(|| {
            let path = options.disk.display();
            format!("cannot write the disk image {path}; make it writable ('ls -l' and 'lsattr' show what it is), or take a copy")
        })?;
        if let Some(size) = options.disk_size {
            grow::at_start(&lock, size)?;
        }
        if image::refresh(&lock, &built.programs)? && source.is_some() {
            image::tell_undone(&mut Volume::open(&options.disk)?);
        }
        lock
    };
    lock.hold_in_children()?;
    let mut machine = Machine::new(built.kernel, options.disk);
    machine.memory = options.memory;
    machine.processors = options.processors;
    machine.accelerator = options.accelerator;
    machine.clock = options.clock;
    if options.server == Server::User {
        machine = machine.with_server(build::server(build::Profile::Guest)?);
    }
    machine.debugger = options.debugger;
    machine.gdb = options.gdb;
    // A copy of a snapshot is gone at the end.
    let _monitor = if name.is_none() {
        monitor::place(&mut machine)
    } else {
        None
    };
    let _socket = debugger::announce(&machine);
    gdb::announce(&machine)?;
    match source {
        Some(source) => play(&machine, source, options.timeout),
        None => interact(&machine),
    }
}

/// A root program on the bare µ-kernel; the kernel's log is its output.
fn run_root(package: &str, options: &Options) -> Result<ExitCode> {
    machine::require_emulator()?;
    let program = build::root_program(package)?;
    let kernel = build::kernel(&place::root()?, build::Profile::Guest, build::Kernel::Bare)?;
    let scratch = Scratch::make()?;
    let mut machine = bare::machine(&kernel, &program, &scratch)?;
    machine.memory = options.memory;
    machine.processors = options.processors;
    machine.accelerator = options.accelerator;
    machine.clock = options.clock;
    let mut job = display::Job::begin(format!("{package} on the bare µ-kernel"));
    let (end, log) = bare::run(&machine, &scratch, Duration::from_secs(options.timeout), &mut job)?;
    job.clear();
    print!("{log}");
    match end {
        End::Success => Ok(ExitCode::SUCCESS),
        End::Failure => bail!("{package} stopped the machine with failure"),
        other => bail!("the machine ended with {other:?}"),
    }
}

fn play(machine: &Machine, source: Source, timeout: u64) -> Result<ExitCode> {
    let played = script::play(
        machine,
        source,
        &mut std::io::stdout().lock(),
        Patience::seconds(timeout),
    )?;
    match played.verdict {
        Verdict::Success => Ok(ExitCode::SUCCESS),
        Verdict::Failure(what) | Verdict::Dead(what) => bail!(what),
        Verdict::Killed => bail!("the plug was pulled"),
    }
}

/// The system on this terminal, through its reboots.
fn interact(machine: &Machine) -> Result<ExitCode> {
    let scratch = Scratch::make()?;
    let log = scratch.file("log");
    display::note(&display::faint("Ctrl-A X pulls the plug, Ctrl-A H helps"));
    let settings = terminal_settings();
    loop {
        let status = machine
            .command(&Wiring::Terminal, &log)?
            .status()
            .context("cannot start QEMU")?;
        restore_terminal(settings.as_deref());
        match End::of(status) {
            End::Reboot => {}
            // A line that failed at the prompt was seen there: the shell calls it no failure.
            End::Success => return Ok(ExitCode::SUCCESS),
            End::Failure => bail!("the first program has ended, so the system was switched off; see above"),
            End::Panic => {
                bail!(last_words(&KernelLog::read(&log), &machine.kernel))
            }
            End::Dead(Some(0)) => bail!(
                "the machine went off without saying so: the plug was pulled, or the processor was reset. What was \
                 synced or in a checkpoint is on the disk. The last of the kernel's log:\n{}",
                script::last_lines(&log, 8)
            ),
            End::Dead(_) => bail!(
                "QEMU ended unexpectedly ({status}); the last of the kernel's log:\n{}",
                script::last_lines(&log, 8)
            ),
        }
    }
}

/// The text that a user is shown when the kernel has stopped by a fault of its own.
fn last_words(log: &KernelLog, kernel: &Path) -> String {
    let mut text = log.reason();
    for (title, content) in log.account(kernel) {
        script::push_section(&mut text, title, &content);
    }
    script::push_section(&mut text, "the last of the kernel's log", &log.last_lines(20));
    // A start that is refused may be so because that was lost.
    if log.refusal().is_none() {
        text.push_str("\nWhat was synced or in a checkpoint is on the disk.");
    }
    text
}

/// The terminal's settings, in the form that `stty` takes back.
fn terminal_settings() -> Option<String> {
    if !std::io::stdin().is_terminal() {
        return None;
    }
    let output = Command::new("stty")
        .arg("-g")
        .stdin(Stdio::inherit())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    String::from_utf8(output.stdout)
        .ok()
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
}

/// QEMU killed by a signal leaves the terminal raw.
fn restore_terminal(settings: Option<&str>) {
    if let Some(settings) = settings {
        let _ = Command::new("stty").arg(settings).stdin(Stdio::inherit()).status();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_start_promises_nothing_about_the_disk() {
        let told = |log: &str| last_words(&KernelLog::of(log), Path::new("/dev/null"));
        assert!(told("").ends_with("What was synced or in a checkpoint is on the disk."));
        let refused = told("gondwana cannot start: the disk is refused: it has lost something that was stable\n");
        assert!(
            refused.contains("lost something") && !refused.contains("is on the disk"),
            "{refused}"
        );
    }

    #[test]
    fn the_machine_has_less_memory_than_the_computer() {
        let parsed = |memory: &str| parse(["--memory", memory].map(OsString::from).to_vec());
        assert!(memory_of_host().is_some_and(|bytes| bytes > MEMORY_MIN));
        assert!(parsed("32M").is_ok_and(|options| options.memory == 32 << 20));
        assert!(parsed("31M").is_err());
        let told = parsed("1024T").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(told.contains("this computer has "), "{told}");
    }
}
