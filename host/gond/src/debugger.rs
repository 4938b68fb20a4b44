//! `gond debugger`: talks to the kernel debugger of a system that runs with `gond run --debugger`.
//!
//! Without commands it connects the terminal (or asks what comes on standard input, a line each); with commands it asks
//! each and prints the answers. The other side writes
//! what is typed (it expects a terminal in raw mode) and, when it waits, its prompt.

use crate::arguments::misused;
use crate::display;
use crate::machine::{DebuggerLine, Machine};
use abi::host::DEBUGGER_PROMPT;
use anyhow::{Context, Result, anyhow, bail};
use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// The socket unless another is named.
pub const SOCKET: &str = "gondwana.debugger";
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

const SILENT: &str = "the kernel debugger does not answer: the kernel has not started, or hangs with interrupts off \
                      ('./gond run --gdb' shows where)";

fn is_time_out(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
    )
}

/// A socket's name in the file system, which goes away with the value.
pub struct SocketName(pub PathBuf);

impl Drop for SocketName {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The advice for a socket that cannot be had.
const OTHER: &str = "name another socket for the debugger";

/// Fails where the emulator could not make the debugger's socket.
pub fn possible(line: &DebuggerLine) -> Result<()> {
    let DebuggerLine::Socket(path) = line else {
        return Ok(());
    };
    let shown = path.display();
    if UnixStream::connect(path).is_ok() {
        bail!("another system's debugger listens at {shown}: {OTHER}");
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        bail!(
            "there is no folder '{}' for the debugger's socket: make it, or name another socket",
            folder.display()
        );
    }
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            bail!("{shown} is a file: {OTHER}");
        }
        // It is that of a system that has died: the emulator would take it away, too.
        std::fs::remove_file(path).map_err(|error| anyhow!("cannot remove {shown} ({error}): {OTHER}"))?;
    }
    let tried = UnixListener::bind(path).map_err(|error| anyhow!("cannot make the socket {shown} ({error}): {OTHER}"));
    tried.map(|_| drop(SocketName(path.clone())))
}

/// Says how to reach the debugger of a machine that is about to start, if it has one.
pub fn announce(machine: &Machine) -> Option<SocketName> {
    match &machine.debugger {
        DebuggerLine::Absent => None,
        DebuggerLine::Terminal => {
            display::note("kernel debugger: Ctrl-A C changes between it and the shell");
            None
        }
        DebuggerLine::Socket(path) => {
            display::note(&format!("kernel debugger: ./gond debugger {}", path.display()));
            Some(SocketName(path.clone()))
        }
    }
}

/// A connection to the debugger.
pub struct Debugger {
    stream: UnixStream,
}

impl Debugger {
    /// Connects to the socket of a system that runs.
    pub fn connect(path: &Path) -> Result<Self> {
        // A socket of this name could not be made.
        if std::fs::metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
            bail!(
                "'{}' is no debugger's socket; './gond run --debugger' starts a system with one, which './gond debugger' finds",
                path.display()
            );
        }
        let stream = UnixStream::connect(path).with_context(|| {
            format!(
                "no debugger at '{}'; start the system with './gond run --debugger {0}'",
                path.display()
            )
        })?;
        let mut debugger = Self { stream };
        debugger.meet()?;
        debugger.stream.set_read_timeout(Some(PATIENCE))?;
        Ok(debugger)
    }

    /// Waits until somebody answers. What is sent before the kernel listens may be lost or may be answered later, so each
    /// try is a word of its own, and only the answer to the last one counts.
    fn meet(&mut self) -> Result<()> {
        let mut heard = String::new();
        self.stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        for attempt in 0..PATIENCE.as_secs() {
            let word = format!("hello-{attempt}");
            // Control-U: whatever was half typed goes.
            writeln!(self.stream, "\x15{word}").context("cannot write to the debugger")?;
            let answered = |heard: &str| {
                heard
                    .rsplit_once(&format!("'{word}'"))
                    .is_some_and(|(_, rest)| rest.ends_with(DEBUGGER_PROMPT))
            };
            loop {
                let mut buffer = [0; 256];
                match self.stream.read(&mut buffer) {
                    Ok(0) => bail!("the system has ended"),
                    Ok(length) => heard.push_str(&String::from_utf8_lossy(&buffer[..length])),
                    Err(error) if is_time_out(&error) => break,
                    Err(error) => return Err(error).context("cannot read from the debugger"),
                }
                if answered(&heard) {
                    return Ok(());
                }
            }
        }
        bail!(SILENT)
    }

    /// Asks, and gives the answer with plain newlines.
    pub fn ask(&mut self, command: &str) -> Result<String> {
        self.stream.write_all(command.as_bytes())?;
        self.stream.write_all(b"\n")?;
        let said = self.answer()?;
        // Its first line is the command.
        Ok(said
            .split_once('\n')
            .map_or_else(String::new, |(_, rest)| rest.to_owned()))
    }

    /// Everything up to the next prompt.
    fn answer(&mut self) -> Result<String> {
        let mut bytes = Vec::new();
        let mut buffer = [0];
        let prompt = DEBUGGER_PROMPT.as_bytes();
        while !(bytes == prompt || bytes.ends_with(&[b"\n", prompt].concat())) {
            match self.stream.read(&mut buffer) {
                Ok(0) => bail!("the system has ended"),
                Ok(_) => bytes.push(buffer[0]),
                Err(error) if is_time_out(&error) => bail!(SILENT),
                Err(error) => return Err(error).context("cannot read from the debugger"),
            }
        }
        bytes.truncate(bytes.len() - prompt.len());
        Ok(String::from_utf8_lossy(&bytes).replace('\r', ""))
    }
}

/// Runs `gond debugger`.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    use lexopt::prelude::*;
    let (mut path, mut commands) = (None, Vec::new());
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(|error| misused("debugger", error))? {
        match argument {
            Value(value) if path.is_none() => path = Some(PathBuf::from(value)),
            Value(value) => commands.push(value.string().map_err(|error| misused("debugger", error))?),
            other => return Err(misused("debugger", other.unexpected())),
        }
    }
    let debugger = Debugger::connect(&path.unwrap_or_else(|| SOCKET.into()))?;
    if commands.is_empty() {
        return if std::io::stdin().is_terminal() {
            converse(debugger)
        } else {
            ask_all(debugger, std::io::stdin().lines())
        };
    }
    ask_all(debugger, commands.into_iter().map(Ok))
}

/// Asks and prints the answers; fails if one of them says that this is no command.
fn ask_all(mut debugger: Debugger, commands: impl Iterator<Item = std::io::Result<String>>) -> Result<ExitCode> {
    let mut status = ExitCode::SUCCESS;
    for command in commands {
        let command = command?;
        print!("{}", debugger.ask(&command)?);
        if kcore::debugger::parse(&command).is_err() {
            status = ExitCode::FAILURE;
        }
    }
    Ok(status)
}

/// Connects terminal and debugger until either ends.
fn converse(debugger: Debugger) -> Result<ExitCode> {
    const LEAVE: [u8; 2] = [3, 4];
    let mut stream = debugger.stream;
    stream.set_read_timeout(None)?;
    display::note(&display::faint(
        "'help' lists the commands; Ctrl-C leaves, the system goes on",
    ));
    // The other side shows what is typed, and Ctrl-C comes as a character: the settings are put back below.
    terminal(&["-icanon", "-echo", "-isig"]);
    print!("{DEBUGGER_PROMPT}");
    std::io::stdout().flush()?;
    let mut keys = stream.try_clone()?;
    std::thread::spawn(move || {
        let mut buffer = [0; 256];
        while let Ok(length) = std::io::stdin().read(&mut buffer) {
            let typed = &buffer[..length];
            if length == 0 || typed.iter().any(|key| LEAVE.contains(key)) || keys.write_all(typed).is_err() {
                break;
            }
        }
        let _ = keys.shutdown(std::net::Shutdown::Both);
    });
    let mut buffer = [0; 4096];
    while let Ok(length) = stream.read(&mut buffer) {
        if length == 0 {
            break;
        }
        std::io::stdout().write_all(&buffer[..length])?;
        std::io::stdout().flush()?;
    }
    terminal(&["icanon", "echo", "isig"]);
    println!();
    Ok(ExitCode::SUCCESS)
}

/// Changes settings of the terminal; where that fails only the looks suffer.
fn terminal(settings: &[&str]) {
    let _ = Command::new("stty")
        .args(settings)
        .stdin(Stdio::inherit())
        .stderr(Stdio::null())
        .status();
}
