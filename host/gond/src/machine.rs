//! The machine: QEMU, as `gond` starts it.
//!
//! A q35 board with a virtio disk, a random number generator, two serial ports (terminal and control line),
//! the kernel's log on the debug console and the exit device. A flush of the guest becomes an `fdatasync` of the
//! image. TCG is the accelerator unless asked otherwise: a `/dev/kvm` that exists may yet be unusable.
//!
//! The exit device alone says how it ended. A triple fault makes QEMU leave with status 0, so 0 is no success.

use crate::build;
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// The emulator, unless the variable `QEMU` names another.
const EMULATOR: &str = "qemu-system-x86_64";
/// The name under which the emulator knows the disk.
pub const DISK_NODE: &str = "raw";
/// The status of a command that starts another one, which there is not.
const NOT_FOUND: i32 = 127;

/// The host's number for a disk without room.
const ENOSPC: i32 = 28;

/// The part of QEMU that executes the guest's instructions.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Accelerator {
    /// QEMU's translator.
    Tcg,
    /// The host's processor.
    Kvm,
}

/// The unit of the guest's time-stamp counter.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Clock {
    /// Time.
    Time,
    /// Instructions: each advances it by one, and nothing else does.
    Instructions,
}

/// Where the two serial ports go.
pub enum Wiring<'a> {
    /// Nowhere.
    Nothing,
    /// COM1 to this terminal, COM2 nowhere.
    Terminal,
    /// COM1 to a socket that listens at this path, as a person's terminal; COM2 nowhere.
    Person {
        /// The terminal.
        console: &'a Path,
    },
    /// COM1 and COM2 to sockets that listen at these paths.
    Sockets {
        /// The terminal.
        console: &'a Path,
        /// The control line.
        control: &'a Path,
    },
}

/// Where the kernel debugger's line goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DebuggerLine {
    /// Nowhere: the machine has no such line.
    Absent,
    /// To a socket at this path, where QEMU listens.
    Socket(PathBuf),
    /// To the terminal, which it shares with the console (Ctrl-A C changes over). Needs [`Wiring::Terminal`].
    Terminal,
}

/// A machine to be started, as often as one likes.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The kernel's ELF file.
    pub kernel: PathBuf,
    /// The disk image.
    pub disk: PathBuf,
    /// Bytes of memory.
    pub memory: u64,
    /// Processors.
    pub processors: u32,
    /// The accelerator that executes it.
    pub accelerator: Accelerator,
    /// The unit of its clock.
    pub clock: Clock,
    /// A boot module: the program that comes with the kernel.
    pub module: Option<PathBuf>,
    /// Words on the kernel's command line.
    pub words: Vec<String>,
    /// Where every write to the disk is recorded (`blklogwrites`), if it is.
    pub record: Option<PathBuf>,
    /// From so many flushes on each write finds the disk of the host full (`blkdebug`): for tests.
    pub host_full_from: Option<u64>,
    /// Where the kernel debugger's line goes.
    pub debugger: DebuggerLine,
    /// Whether it has a network card, which is connected to nothing.
    pub card: bool,
    /// Where the emulator listens for what the host wants of it, if it does.
    pub monitor: Option<PathBuf>,
    /// The TCP port on which the emulator waits for GDB before it begins, if it does.
    pub gdb: Option<u16>,
}

/// How a machine ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// Clean power-off; every line succeeded.
    Success,
    /// Clean power-off; some line failed.
    Failure,
    /// The kernel panicked.
    Panic,
    /// It wants to be started again.
    Reboot,
    /// Anything else: processor reset, signal, QEMU's own error. The status, if it had one.
    Dead(Option<i32>),
}

impl End {
    /// From QEMU's exit status.
    pub fn of(status: ExitStatus) -> Self {
        use abi::host::{EXIT_FAILURE, EXIT_PANIC, EXIT_REBOOT, EXIT_SUCCESS, process_status};
        let pairs = [
            (EXIT_SUCCESS, Self::Success),
            (EXIT_FAILURE, Self::Failure),
            (EXIT_PANIC, Self::Panic),
            (EXIT_REBOOT, Self::Reboot),
        ];
        let known = pairs
            .into_iter()
            .find(|&(value, _)| status.code() == Some(process_status(value)));
        known.map_or(Self::Dead(status.code()), |(_, end)| end)
    }
}

/// A path inside one of QEMU's comma-separated options.
fn escaped(path: &Path) -> Result<String> {
    let text = path
        .to_str()
        .with_context(|| format!("the path {} is not UTF-8", path.display()))?;
    Ok(text.replace(',', ",,"))
}

impl Machine {
    /// The ordinary machine with this kernel and disk.
    pub fn new(kernel: PathBuf, disk: PathBuf) -> Self {
        Self {
            kernel,
            disk,
            memory: 128 << 20,
            processors: 1,
            accelerator: Accelerator::Tcg,
            clock: Clock::Time,
            module: None,
            words: Vec::new(),
            record: None,
            host_full_from: None,
            debugger: DebuggerLine::Absent,
            card: false,
            monitor: None,
            gdb: None,
        }
    }

    /// The same machine with its server outside of the kernel.
    #[must_use]
    pub fn with_server(mut self, server: build::Server) -> Self {
        self.kernel = server.kernel;
        self.module = Some(server.program);
        self
    }

    /// A machine that runs this program on the bare µ-kernel. The disk is there, and nobody uses it.
    pub fn bare(kernel: PathBuf, program: PathBuf, disk: PathBuf) -> Self {
        Self {
            module: Some(program),
            words: vec![abi::host::BARE_WORD.to_owned()],
            ..Self::new(kernel, disk)
        }
    }

    /// The command that starts it. The kernel's log goes to the file `log`.
    pub fn command(&self, wiring: &Wiring<'_>, log: &Path) -> Result<Command> {
        let mut command = emulator();
        command.args([
            "-name",
            "gondwana",
            "-machine",
            "q35",
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
        ]);
        command.args(["-display", "none"]);
        command.args([
            "-smp",
            &self.processors.to_string(),
            "-m",
            &format!("{}K", self.memory >> 10),
        ]);
        self.add_processor(&mut command);
        self.add_disk(&mut command)?;
        command.args(["-object", "rng-random,filename=/dev/urandom,id=random"]);
        command.args(["-device", "virtio-rng-pci,rng=random,disable-legacy=on"]);
        if self.card {
            command.args([
                "-netdev",
                "user,id=net,restrict=on",
                "-device",
                "e1000e,netdev=net,romfile=",
            ]);
        }
        command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        command.args(["-chardev", &format!("file,id=log,path={}", escaped(log)?)]);
        command.args(["-device", "isa-debugcon,chardev=log,iobase=0xe9"]);
        command.arg("-kernel").arg(&self.kernel);
        if let Some(module) = &self.module {
            command.arg("-initrd").arg(module);
        }
        let mut words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        match wiring {
            Wiring::Nothing => {
                command.args(["-chardev", "null,id=console", "-chardev", "null,id=control"]);
                command.stdin(Stdio::null()).stdout(Stdio::null());
            }
            Wiring::Terminal => {
                command.args([
                    "-chardev",
                    "stdio,id=console,mux=on,signal=off",
                    "-chardev",
                    "null,id=control",
                ]);
            }
            Wiring::Person { console } => {
                let socket = format!("socket,id=console,path={},server=off", escaped(console)?);
                command.args(["-chardev", &socket, "-chardev", "null,id=control"]);
                command.stdin(Stdio::null()).stdout(Stdio::null());
            }
            Wiring::Sockets { console, control } => {
                for (name, path) in [("console", console), ("control", control)] {
                    command.args([
                        "-chardev",
                        &format!("socket,id={name},path={},server=off", escaped(path)?),
                    ]);
                }
                words.push(abi::host::SCRIPT_WORD);
                command.stdin(Stdio::null()).stdout(Stdio::null());
            }
        }
        if !words.is_empty() {
            command.args(["-append", &words.join(" ")]);
        }
        self.add_debugger(&mut command)?;
        // The console comes last: of those that share a terminal, that one has it first.
        command.args(["-device", "isa-serial,chardev=control,iobase=0x2f8,irq=3"]);
        command.args(["-device", "isa-serial,chardev=console,iobase=0x3f8,irq=4"]);
        if let Some(monitor) = &self.monitor {
            let socket = format!("socket,id=monitor,path={},server=on,wait=off", escaped(monitor)?);
            command.args(["-chardev", &socket, "-mon", "chardev=monitor,mode=control"]);
        }
        if let Some(port) = self.gdb {
            command.args(["-S", "-gdb", &format!("tcp:127.0.0.1:{port}")]);
        }
        Ok(command)
    }

    fn add_debugger(&self, command: &mut Command) -> Result<()> {
        use abi::host::{DEBUGGER_LINE, DEBUGGER_PORT};
        let chardev = match &self.debugger {
            DebuggerLine::Absent => return Ok(()),
            DebuggerLine::Terminal => "console",
            DebuggerLine::Socket(path) => {
                let socket = format!("socket,id=debugger,path={},server=on,wait=off", escaped(path)?);
                command.args(["-chardev", &socket]);
                "debugger"
            }
        };
        let device = format!("isa-serial,chardev={chardev},iobase={DEBUGGER_PORT:#x},irq={DEBUGGER_LINE}");
        command.args(["-device", &device]);
        Ok(())
    }

    fn add_processor(&self, command: &mut Command) {
        match (self.accelerator, self.clock) {
            (Accelerator::Kvm, _) => command.args(["-accel", "kvm", "-cpu", "max"]),
            (Accelerator::Tcg, Clock::Time) => command.args(["-accel", "tcg,thread=multi", "-cpu", "max"]),
            // Without `-erms` a `rep` counts one instruction an iteration, as it should.
            (Accelerator::Tcg, Clock::Instructions) => command.args([
                "-accel",
                "tcg,thread=single",
                "-icount",
                "shift=0,sleep=off",
                "-cpu",
                "max,-erms",
            ]),
        };
    }

    fn add_disk(&self, command: &mut Command) -> Result<()> {
        let utf8 = |path: &Path| -> Result<String> {
            Ok(path
                .to_str()
                .with_context(|| format!("the path {} is not UTF-8", path.display()))?
                .to_owned())
        };
        let cache = json!({ "direct": false, "no-flush": false });
        let file = json!({ "driver": "file", "node-name": "file", "filename": utf8(&self.disk)?, "cache": cache });
        let mut below = vec![file];
        if let Some(flushes) = self.host_full_from {
            let next = |state| json!({ "event": "flush_to_disk", "state": state, "new_state": state + 1 });
            let fault = json!({ "event": "write_aio", "state": flushes + 1, "errno": ENOSPC });
            below.push(json!({
                "driver": "blkdebug", "node-name": "full", "image": "file",
                "set-state": (1..=flushes).map(next).collect::<Vec<_>>(), "inject-error": [fault],
            }));
        }
        let top = below.last().map(|node| node["node-name"].clone());
        below.push(json!({ "driver": "raw", "node-name": DISK_NODE, "file": top, "cache": cache }));
        for node in below {
            command.args(["-blockdev", &node.to_string()]);
        }
        let top = match &self.record {
            None => DISK_NODE,
            Some(record) => {
                let log = json!({ "driver": "file", "node-name": "record-file", "filename": utf8(record)? });
                let writes = json!({
                    "driver": "blklogwrites", "node-name": "record", "file": DISK_NODE, "log": "record-file",
                    "log-sector-size": 512, "log-super-update-interval": 1,
                });
                command.args(["-blockdev", &log.to_string(), "-blockdev", &writes.to_string()]);
                "record"
            }
        };
        command.args([
            "-device",
            &format!("virtio-blk-pci,drive={top},disable-legacy=on,write-cache=on,werror=report,rerror=report"),
        ]);
        Ok(())
    }
}

/// The emulator's name, or the file that the environment names instead.
fn emulator_path() -> OsString {
    std::env::var_os("QEMU").unwrap_or_else(|| EMULATOR.into())
}

/// A command that starts the emulator, and ends it when the thread that has started it ends: nobody is left who writes to an image.
fn emulator() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--"]).arg(emulator_path());
    command
}

/// Fails, with advice, if the emulator is not installed.
pub fn require_emulator() -> Result<()> {
    let path = emulator_path();
    let started = emulator()
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match started {
        Ok(status) if status.success() => Ok(()),
        Ok(status) if status.code() != Some(NOT_FOUND) => bail!("{} does not work ({status})", path.display()),
        Err(_) => {
            bail!("setpriv is not installed, which ends QEMU with gond: run 'sudo apt-get install -y util-linux'")
        }
        _ => bail!(
            "QEMU is not installed ({} not found): run 'sudo apt-get install -y qemu-system-x86', or start the \
             script ./gond, which does it",
            path.display()
        ),
    }
}
