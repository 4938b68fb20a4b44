//! Stage `house`: formatting, lints, and all tests that run on the host.
//!
//! Cargo builds the tests; their executables are run from here, one after the other, so that each can be
//! watched: one that hangs is ended and counted as failed.

use super::{Bench, cases};
use crate::build;
use anyhow::{Context, Result};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How much of a failed command's output is shown, in lines.
const SHOWN: usize = 200;
/// The longest that the tests of one executable may take.
const PATIENCE: Duration = Duration::from_mins(8);

/// Runs the stage.
pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let mut format = build::cargo(bench.root());
    format.args(["fmt", "--all", "--check"]);
    check(bench, "formatting (cargo fmt --all)", format)?;
    let mut lints = build::cargo(bench.root());
    lints.args(["clippy", "--quiet", "--all-targets", "--", "-D", "warnings"]);
    check(bench, "lints of what runs on the host (cargo clippy)", lints)?;
    for (what, command) in build::lints(bench.root())? {
        check(bench, what, command)?;
    }
    let Some(executables) = build_tests(bench)? else {
        return Ok(());
    };
    for executable in executables {
        run_executable(bench, &executable)?;
    }
    let mut documents = build::cargo(bench.root());
    documents.args(["test", "--doc", "--no-fail-fast", "--color", "never"]);
    run_tests(bench, "documentation", documents)
}

/// A command that must succeed.
fn check(bench: &mut Bench<'_>, what: &str, mut command: Command) -> Result<()> {
    bench.step(what);
    let output = command.output().context("cannot start cargo")?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    bench.report(
        what,
        if output.status.success() {
            Ok(())
        } else {
            Err(cut(&said))
        },
    );
    Ok(())
}

fn cut(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() <= SHOWN {
        return text.to_owned();
    }
    format!("{}\n… {} more lines", lines[..SHOWN].join("\n"), lines.len() - SHOWN)
}

/// Tests in a file.
struct Executable {
    name: String,
    path: PathBuf,
    /// The folder of its crate, where Cargo would run it.
    folder: PathBuf,
}

/// Builds the tests and tells where they are; `None` (and a failure reported) if they do not build.
fn build_tests(bench: &mut Bench<'_>) -> Result<Option<Vec<Executable>>> {
    bench.step("building the host tests");
    let mut command = build::cargo(bench.root());
    command.args([
        "test",
        "--no-run",
        "--quiet",
        "--message-format",
        "json-render-diagnostics",
    ]);
    let output = command.output().context("cannot start cargo")?;
    if !output.status.success() {
        bench.report(
            "the host tests build",
            Err(cut(&String::from_utf8_lossy(&output.stderr))),
        );
        return Ok(None);
    }
    let lines = output.stdout.split(|&byte| byte == b'\n');
    let messages = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    Ok(Some(messages.filter_map(|message| executable_of(&message)).collect()))
}

/// The test executable that one of Cargo's messages tells of.
fn executable_of(message: &Value) -> Option<Executable> {
    if message["profile"]["test"] != true {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let name = format!("{package}/{}", message["target"]["name"].as_str()?);
    Some(Executable {
        name,
        path: message["executable"].as_str()?.into(),
        folder,
    })
}

fn run_executable(bench: &mut Bench<'_>, executable: &Executable) -> Result<()> {
    let mut command = Command::new(&executable.path);
    command
        .current_dir(&executable.folder)
        .env("CARGO_MANIFEST_DIR", &executable.folder)
        .stdin(Stdio::null());
    run_tests(bench, &executable.name, command)
}

/// Runs a command that prints as Rust's test harness does, and counts each test by itself.
fn run_tests(bench: &mut Bench<'_>, name: &str, mut command: Command) -> Result<()> {
    bench.step(name);
    let started = Instant::now();
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start the tests of {name}"))?;
    let lines = lines_of(&mut child)?;
    let mut output = String::new();
    let ended = loop {
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => {
                let shown = line.strip_prefix("test ").and_then(|rest| rest.split(" ... ").next());
                bench.step(&format!("{name}: {}", shown.unwrap_or_default()));
                output.push_str(&line);
                output.push('\n');
            }
            Err(RecvTimeoutError::Disconnected) => break Some(child.wait().context("cannot wait for tests")?),
            Err(RecvTimeoutError::Timeout) if started.elapsed() > PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            Err(RecvTimeoutError::Timeout) => bench.step(name),
        }
    };
    let mut failures = 0;
    for (test, why) in cases(&output) {
        failures += u32::from(why.is_some());
        let outcome = if why.is_some() {
            Err(details(&output, &test))
        } else {
            Ok(())
        };
        bench.report(&format!("{name}: {test}"), outcome);
    }
    match ended {
        None => bench.report(
            name,
            Err(format!(
                "no end after {} minutes\n{}",
                PATIENCE.as_secs() / 60,
                cut(&output)
            )),
        ),
        Some(status) if !status.success() && failures == 0 => {
            bench.report(name, Err(format!("{status}\n{}", cut(&output))));
        }
        Some(_) => {}
    }
    Ok(())
}

/// Gives the lines that a child prints on both of its outputs, as they come.
fn lines_of(child: &mut Child) -> Result<Receiver<String>> {
    let (sender, lines) = channel();
    let outputs: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|pipe| Box::new(pipe) as _),
        child.stderr.take().map(|pipe| Box::new(pipe) as _),
    ];
    for output in outputs {
        let output = output.context("a test has no output")?;
        let sender = sender.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
    }
    Ok(lines)
}

/// Finds the output of the test harness about one failed test.
fn details(output: &str, name: &str) -> String {
    let head = format!("---- {name} stdout ----");
    let section = output.lines().skip_while(|line| *line != head).skip(1);
    let lines: Vec<&str> = section
        .take_while(|line| !line.starts_with("---- ") && *line != "failures:")
        .collect();
    cut(lines.join("\n").trim())
}
