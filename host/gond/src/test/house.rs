//! Stage `house`: formatting, lints, and all tests that run on the host.

use super::{Bench, cases};
use crate::build;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// How much of a failed command's output is shown, in lines.
const SHOWN: usize = 200;

/// Runs the stage.
pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let mut format = build::cargo(bench.root());
    format.args(["fmt", "--all", "--check"]);
    check(bench, "formatting (cargo fmt --all)", format)?;
    let mut lints = build::cargo(bench.root());
    lints.args(["clippy", "--quiet", "--all-targets", "--", "-D", "warnings"]);
    check(bench, "lints of what runs on the host (cargo clippy)", lints)?;
    for (what, command) in build::lints(bench.root()) {
        check(bench, what, command)?;
    }
    host_tests(bench)
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

/// `cargo test`, with each test counted by itself.
fn host_tests(bench: &mut Bench<'_>) -> Result<()> {
    bench.step("building the host tests");
    let mut command = build::cargo(bench.root());
    command
        .args(["test", "--no-fail-fast", "--color", "never"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start cargo")?;
    let mut stderr = child.stderr.take().context("cargo has no standard error")?;
    let complaints = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stderr.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let mut output = String::new();
    let stdout = child.stdout.take().context("cargo has no standard output")?;
    for line in BufReader::new(stdout).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        bench.step(line.strip_prefix("test ").unwrap_or(&line));
        output.push_str(&line);
        output.push('\n');
    }
    let status = child.wait().context("cannot wait for cargo")?;
    let complaints = complaints.join().unwrap_or_default();
    let all = cases(&output);
    let failed: Vec<_> = all.iter().filter(|(_, why)| why.is_some()).collect();
    bench.add_passed((all.len() - failed.len()) as u32);
    for (name, _) in &failed {
        bench.report(name, Err(details(&output, name)));
    }
    if !status.success() && failed.is_empty() {
        bench.report("cargo test", Err(format!("{}\n{}", cut(&complaints), cut(&output))));
    }
    Ok(())
}

/// What the test harness printed about one failed test.
fn details(output: &str, name: &str) -> String {
    let head = format!("---- {name} stdout ----");
    let section = output.lines().skip_while(|line| *line != head).skip(1);
    let lines: Vec<&str> = section
        .take_while(|line| !line.starts_with("---- ") && *line != "failures:")
        .collect();
    cut(lines.join("\n").trim())
}
