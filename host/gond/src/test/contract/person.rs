//! A person at the terminal: Ctrl-C, what is typed while a command runs, and what is pasted.

use super::Stand;
use crate::machine::{Machine, Wiring};
use crate::test::built;
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// All of it.
pub fn run(stand: &mut Stand<'_, '_>) -> Result<()> {
    let interrupted = "Ctrl-C ends a command of the shell, and what is typed meanwhile is kept";
    converse(stand, interrupted, interrupt)?;
    let nested = "Ctrl-C gives the prompt of a nested shell back, whatever the program has left";
    converse(stand, nested, interrupt_nested)?;
    converse(stand, "each line of a paste is run", paste)?;
    converse(
        stand,
        "of too much that is typed ahead, whole lines are discarded with a message",
        overflow,
    )
}

/// A person at the terminal.
struct Person {
    stream: UnixStream,
    seen: String,
}

impl Person {
    fn says(&mut self, text: &str) -> Result<()> {
        Ok(self.stream.write_all(text.as_bytes())?)
    }

    /// Waits until the terminal shows something that it did not show before, and gives all up to there.
    fn sees(&mut self, text: &str) -> Result<String> {
        let started = Instant::now();
        while started.elapsed() < Duration::from_mins(1) {
            if let Some(at) = self.seen.find(text) {
                return Ok(self.seen.drain(..at + text.len()).collect());
            }
            let mut buffer = [0; 256];
            match self.stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => self.seen.push_str(&String::from_utf8_lossy(&buffer[..length])),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        bail!("'{text}' is not in {:?}", self.seen)
    }
}

/// Starts the machine, has a person talk at its first prompt, and lets the person switch it off.
fn converse(stand: &mut Stand<'_, '_>, what: &str, talk: impl FnOnce(&mut Person) -> Result<()>) -> Result<()> {
    stand.bench.step(what);
    let machine = Machine::new(built()?.kernel, stand.disk.clone());
    let (console, log) = (stand.bench.file("terminal"), stand.bench.file("terminal.log"));
    let _ = std::fs::remove_file(&console);
    let listener = UnixListener::bind(&console)?;
    let mut child = machine
        .command(&Wiring::Person { console: &console }, &log)?
        .stderr(Stdio::null())
        .spawn()?;
    let (stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut person = Person {
        stream,
        seen: String::new(),
    };
    let talked = person.sees("gondwana> ").and_then(|_| talk(&mut person));
    let talked = talked.and_then(|()| person.says("poweroff\r"));
    let started = Instant::now();
    while child.try_wait()?.is_none() && talked.is_ok() && started.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let off = child.try_wait()?.is_some();
    let _ = child.kill();
    let _ = child.wait();
    stand.bench.report(what, talked.map_err(|error| format!("{error:#}")));
    stand.bench.report(
        "poweroff at the prompt",
        if off { Ok(()) } else { Err("it is still on".into()) },
    );
    Ok(())
}

fn interrupt(person: &mut Person) -> Result<()> {
    // A line that was given up behind half an arrow key is not run.
    person.says("echo given up\x1b[\x03\recho not\x1b\r")?;
    let shown = person.sees("\nnot\n")?;
    if !shown.contains("^C") || shown.contains("\ngiven up\n") {
        bail!("it shows {shown:?}");
    }
    person.says("sleep 1000\r")?;
    person.sees("sleep 1000\x1b[K\n")?;
    person.says("\x03")?;
    person.sees("sleep: interrupted")?;
    // Input that comes while a command runs is not lost.
    person.says("sleep 1\recho typed ahead\r")?;
    person.sees("\ntyped ahead\n")?;
    // The suite has passed the terminal on to a task that has started others, and those others: Ctrl-C ends them all.
    person.says("suite --verbose --only tasks/share\r")?;
    person.sees("begun tasks/share")?;
    // A while, for the case to start its own. However many there are by then, none may be left.
    std::thread::sleep(CASE_BEGINS);
    person.says("\x03")?;
    person.sees("interrupted in tasks/")?;
    person.says("ps\recho end of ps\r")?;
    person.sees("share  had\n")?;
    let listing = person.sees("\nend of ps\n")?;
    let threads = listing.lines().filter(|line| line.trim_start().starts_with("0x"));
    let tasks: BTreeSet<_> = threads.filter_map(|line| line.split_whitespace().nth(1)).collect();
    if tasks.len() != 1 {
        bail!("tasks are left: {listing}");
    }
    Ok(())
}

/// How long a case that has begun takes to start tasks of its own, of the two seconds that it runs: a machine with other work may see its beginning late.
const CASE_BEGINS: Duration = Duration::from_millis(300);
/// How long a shell may look at tasks that it may not end.
const NESTED: Duration = Duration::from_secs(10);

/// A shell in the shell may not end the tasks of a program that it has interrupted.
fn interrupt_nested(person: &mut Person) -> Result<()> {
    person.says("shell\r")?;
    person.sees("gondwana> shell\x1b[K\n")?;
    person.sees("gondwana> ")?;
    person.says("suite --verbose --only tasks/share\r")?;
    person.sees("begun tasks/share")?;
    std::thread::sleep(CASE_BEGINS);
    person.says("\x03")?;
    person.sees("interrupted in tasks/")?;
    let interrupted = Instant::now();
    person.says("echo back\r")?;
    person.sees("\nback\n")?;
    if interrupted.elapsed() > NESTED {
        bail!("the prompt came back after {:?}", interrupted.elapsed());
    }
    person.says("exit\r")?;
    person.sees("gondwana> exit\x1b[K\n")?;
    person.sees("gondwana> ").map(|_| ())
}

/// Lines of a paste.
const PASTED: usize = 60;

/// Pastes at an idle prompt, and behind a command that takes its time.
fn paste(person: &mut Person) -> Result<()> {
    // The last paste is more than the kernel and the line keep while a program runs. The line editor passes over bells.
    let bells = "\x07".repeat(100);
    for (first, letter, padding) in [
        ("", 'p', ""),
        ("sleep 1\r", 'q', ""),
        ("suite --only tasks/share\r", 'r', &bells),
    ] {
        let lines: Vec<String> = (0..PASTED)
            .map(|line| format!("create {letter}{line:02} 4K{padding}\r"))
            .collect();
        person.says(&format!("{first}{}echo end of {letter}\r", lines.concat()))?;
        let shown = person.sees(&format!("\nend of {letter}\n"))?;
        let missing: Vec<_> = (0..PASTED)
            .map(|line| format!("\n{letter}{line:02}: 4 KiB at"))
            .filter(|made| !shown.contains(made))
            .collect();
        if !missing.is_empty() {
            bail!("missing: {missing:?}");
        }
    }
    Ok(())
}

/// Types more than the shell keeps while a command runs: 64 KiB of bells, which no line editor shows, and then half a line.
fn overflow(person: &mut Person) -> Result<()> {
    person.says("sleep 1000\r")?;
    person.sees("sleep 1000\x1b[K\n")?;
    let line = format!("{}\r", "\x07".repeat(1023));
    person.says(&line.repeat(64))?;
    person.says("echo one too many\recho half a li\x03")?;
    person.sees("sleep: interrupted")?;
    person.says("ne\recho after\r")?;
    let shown = person.sees("\nafter\n")?;
    let told = shown.contains("the lines behind it are discarded");
    if !told || shown.contains("too many") || shown.contains("ne: ") {
        bail!("it shows {shown:?}");
    }
    Ok(())
}
