//! The tools of a reader: a terminal, a second one, the kernel debugger, GDB.

use super::blocks::conversation;
use super::compare;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long anything may take that a reader waits for; the kernel may have to be built in it, on a busy host.
const PATIENCE: Duration = Duration::from_mins(10);
/// How long an answer of the debugger may be another than the one shown: the system comes to what the guide speaks of.
const SETTLE: Duration = Duration::from_secs(20);

/// The outcome of lines in a terminal.
pub struct Ran {
    status: Option<i32>,
    lines: String,
    pub said: String,
    complained: String,
}

impl Ran {
    /// Whether they ended with this status.
    pub fn expect(&self, status: i32) -> Result<(), String> {
        if self.status == Some(status) {
            return Ok(());
        }
        let Self {
            status,
            lines,
            said,
            complained,
        } = self;
        Err(format!("{lines}\nended with {status:?}\n{said}\n{complained}"))
    }
}

/// The host's shell in the tree, for these lines.
fn shell(tree: &Path, lines: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-e", "-c", lines]).current_dir(tree);
    command
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("GOND_ROOT")
        .stdin(Stdio::null());
    command
}

/// Types lines and waits for their end.
pub fn type_in(tree: &Path, lines: &str) -> Result<Ran> {
    let output = shell(tree, lines).output().context("cannot start a shell")?;
    Ok(Ran {
        status: output.status.code(),
        lines: lines.to_owned(),
        said: String::from_utf8_lossy(&output.stdout).into_owned(),
        complained: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// A second terminal, in which a system runs.
pub struct Terminal {
    child: Child,
    errors: Option<ChildStderr>,
    _input: ChildStdin,
}

impl Terminal {
    /// Starts what the lines say and types these lines in the system. Comes back when the last of them has begun, or, where GDB is
    /// waited for, at once.
    pub fn open(tree: &Path, text: &str, lines: &[String]) -> Result<(Self, Result<(), String>)> {
        const MARK: &str = "-- begun --";
        let mut command = shell(tree, text);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // Its own group, so that the emulator ends with it.
        let mut child = command.process_group(0).spawn().context("cannot start a shell")?;
        let (mut input, output) = (
            child.stdin.take().context("no input")?,
            child.stdout.take().context("no output")?,
        );
        let errors = child.stderr.take();
        let (last, first) = lines.split_last().context("a second terminal needs a line to type")?;
        for line in first
            .iter()
            .map(String::as_str)
            .chain([format!("echo {MARK}").as_str(), last])
        {
            writeln!(input, "{line}").context("the second terminal ended at once")?;
        }
        let (sender, printed) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let terminal = Self {
            child,
            errors,
            _input: input,
        };
        if text.contains("--gdb") {
            return Ok((terminal, Ok(())));
        }
        let began = Instant::now();
        let outcome = loop {
            match printed.recv_timeout(PATIENCE.saturating_sub(began.elapsed())) {
                Ok(line) if line == MARK => break Ok(()),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => break Err("the system did not come to its prompt".to_owned()),
                Err(RecvTimeoutError::Disconnected) => break Err("the system ended before its prompt".to_owned()),
            }
        };
        // The last line is given as soon as the mark is answered.
        std::thread::sleep(Duration::from_millis(500));
        Ok((terminal, outcome))
    }

    /// Waits until it ends by itself; what it said on standard error.
    pub fn end(mut self) -> Result<String> {
        let mut said = String::new();
        let began = Instant::now();
        while self.child.try_wait()?.is_none() {
            if began.elapsed() > PATIENCE {
                bail!("the second terminal did not end");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if let Some(mut errors) = self.errors.take() {
            errors.read_to_string(&mut said)?;
        }
        Ok(said)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill")
            .args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status();
        let _ = self.child.wait();
    }
}

/// A port that is free now; nobody else is likely to take it in the next seconds.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Asks the debugger of the second terminal's system, until each answer is as shown or does not become so.
pub fn ask_debugger(tree: &Path, text: &str) -> Result<Result<(), String>> {
    for (question, shown) in conversation(text, "kernel> ").1 {
        let began = Instant::now();
        loop {
            let ran = type_in(tree, &format!("./gond debugger gondwana.debugger '{question}'"))?;
            let outcome = ran.expect(0).and_then(|()| compare(&ran.said, &shown));
            match outcome {
                Ok(()) => break,
                Err(_) if began.elapsed() < SETTLE => std::thread::sleep(Duration::from_millis(200)),
                Err(why) => return Ok(Err(format!("kernel> {question}\n{why}"))),
            }
        }
    }
    Ok(Ok(()))
}

/// Whether there is a GDB.
pub fn has_gdb() -> bool {
    let mut command = Command::new("gdb");
    command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

/// A session with GDB: its commands as a script. The parts shown come one after the other in what is printed.
pub fn session(tree: &Path, text: &str) -> Result<Result<(), String>> {
    let (start, lines) = conversation(text, "(gdb) ");
    let script = tree.join("target/session");
    let commands: String = lines.iter().flat_map(|(line, _)| [*line, "\n"]).collect();
    std::fs::write(&script, commands)?;
    let start = start.join("\n").replacen(
        "gdb ",
        "timeout 120 gdb -batch -nx -ex 'set tcp connect-timeout 60' ",
        1,
    );
    let ran = type_in(tree, &format!("{} -x {} 2>&1", start.trim_end(), script.display()))?;
    let shown: String = lines.iter().flat_map(|(_, shown)| ["...\n", shown]).collect();
    Ok(compare(&ran.said, &format!("{shown}...\n")))
}
