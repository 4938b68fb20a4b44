//! `gond run`: the system on this terminal, or playing a script.

use crate::arguments::{misused, size};
use crate::disk::{ImageLock, lock_image};
use crate::machine::{self, Accelerator, End, Machine, Wiring};
use crate::place::Scratch;
use crate::script::{self, Patience, Source, Verdict};
use crate::{build, display, image};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

/// The image that is used unless another is named.
const DISK: &str = "gondwana.img";
/// Least memory that the system is started with.
const MEMORY_MIN: u64 = 32 << 20;
/// Most processors of QEMU's board.
const PROCESSORS_MAX: u32 = 255;

/// Where the server is.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Server {
    /// Built into the kernel.
    Kernel,
    /// A program outside of it.
    User,
}

struct Options {
    disk: PathBuf,
    disk_size: u64,
    memory: u64,
    processors: u32,
    accelerator: Accelerator,
    server: Server,
    script: Option<PathBuf>,
    timeout: u64,
}

fn parse(arguments: Vec<OsString>) -> Result<Options> {
    use lexopt::prelude::*;
    let mut options = Options {
        disk: DISK.into(),
        disk_size: image::DEFAULT_SIZE,
        memory: 128 << 20,
        processors: 1,
        accelerator: Accelerator::Tcg,
        server: Server::Kernel,
        script: None,
        timeout: 300,
    };
    let mut parser = lexopt::Parser::from_args(arguments);
    let usage = |error: lexopt::Error| misused("run", error);
    while let Some(argument) = parser.next().map_err(usage)? {
        match argument {
            Long("disk") => options.disk = parser.value().map_err(usage)?.into(),
            Long("script") => options.script = Some(parser.value().map_err(usage)?.into()),
            Long(name @ ("disk-size" | "memory" | "cpus" | "accel" | "server" | "timeout")) => {
                let name = name.to_owned();
                let value = parser.value().map_err(usage)?.string().map_err(usage)?;
                options
                    .set(&name, &value)
                    .ok_or_else(|| misused("run", format!("--{name} cannot be '{value}'")))?;
            }
            other => return Err(misused("run", other.unexpected())),
        }
    }
    Ok(options)
}

impl Options {
    /// Sets an option with a value of its own form; `None` if the value is bad.
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "disk-size" => self.disk_size = size(value)?,
            "memory" => self.memory = size(value).filter(|&bytes| bytes >= MEMORY_MIN)?,
            "cpus" => self.processors = value.parse().ok().filter(|n| (1..=PROCESSORS_MAX).contains(n))?,
            "timeout" => self.timeout = value.parse().ok().filter(|&seconds| seconds > 0)?,
            "server" => {
                self.server = match value {
                    abi::host::SERVER_KERNEL => Server::Kernel,
                    abi::host::SERVER_USER => Server::User,
                    _ => return None,
                }
            }
            "accel" => {
                self.accelerator = match value {
                    "tcg" => Accelerator::Tcg,
                    "kvm" => Accelerator::Kvm,
                    _ => return None,
                }
            }
            _ => return None,
        }
        Some(())
    }
}

/// Runs `gond run`.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    let options = parse(arguments)?;
    let source = options.script.as_deref().map(Source::open).transpose()?;
    machine::require_emulator()?;
    let built = build::all()?;
    let _lock: ImageLock = if options.disk.exists() {
        let lock = lock_image(&options.disk)?;
        image::refresh(&options.disk, &built.programs)?;
        lock
    } else {
        image::create(&options.disk, options.disk_size, Some(&built.programs))?;
        display::note(&format!("made the disk image {}", options.disk.display()));
        lock_image(&options.disk)?
    };
    let mut machine = Machine::new(built.kernel, options.disk);
    machine.memory = options.memory;
    machine.processors = options.processors;
    machine.accelerator = options.accelerator;
    if options.server == Server::User {
        machine = machine.with_server(build::server()?);
    }
    match source {
        Some(source) => play(&machine, source, options.timeout),
        None => interact(&machine),
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
            // A line that failed at the prompt was seen there.
            End::Success | End::Failure => return Ok(ExitCode::SUCCESS),
            End::Panic => bail!(
                "{}; the last of the kernel's log:\n{}",
                script::panic_of(&log),
                script::last_lines(&log, 20)
            ),
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
