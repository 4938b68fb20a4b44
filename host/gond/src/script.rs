//! Script mode: shell lines over the control line, their output to a writer, and never a hang.
//!
//! The guest says `ready`, gets a line, and says `status N` (protocol in `abi::host`). Threads turn what comes from
//! the two sockets and from the script into events for one loop, which also watches the clock: a guest that is
//! silent for too long, or dead, ends the run with the last of its console and of the kernel's log. A guest
//! that reboots is started again and goes on with the next line.

mod source;

pub use source::Source;

use crate::backtrace::KernelLog;
use crate::machine::{End, Machine, Wiring};
use crate::place::Scratch;
use abi::host;
use abi::layout::{STATUS_SYSTEM, exception_name};
use anyhow::{Context, Result, bail};
use source::Next;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How much of the console's end an error shows, in bytes.
const TAIL_BYTES: usize = 2000;
/// How many lines of the kernel's log an error shows.
const LOG_LINES: usize = 20;
/// How many characters of a line of the script an error shows.
const LINE_CHARACTERS: usize = 200;
/// How often the loop looks whether the guest is alive.
const TICK: Duration = Duration::from_millis(100);
/// How long text of the terminal is waited for that the guest sent before its first question.
const OVERTAKEN: Duration = Duration::from_millis(50);

/// When the plug is pulled (SIGKILL), if it is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Plug {
    /// Never.
    Stays,
    /// When the machine has been on for so long.
    After(Duration),
    /// When the guest asks for more lines than there are.
    AtEnd,
}

/// How long a guest may take, and what happens to it.
#[derive(Copy, Clone, Debug)]
pub struct Patience {
    /// Without a word.
    pub silence: Duration,
    /// In all.
    pub total: Option<Duration>,
    /// The plug.
    pub plug: Plug,
}

impl Patience {
    /// Silence of so many seconds, no other bound.
    pub fn seconds(seconds: u64) -> Self {
        Self {
            silence: Duration::from_secs(seconds),
            total: None,
            plug: Plug::Stays,
        }
    }
}

/// How a script ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All lines succeeded and the system powered off cleanly.
    Success,
    /// Powered off cleanly, but something failed, as described.
    Failure(String),
    /// The plug was pulled, as planned.
    Killed,
    /// The guest panicked, died or hung, as described.
    Dead(String),
}

/// The result of a script that was played.
#[derive(Debug)]
pub struct Played {
    /// How it ended.
    pub verdict: Verdict,
    /// The lines that were run to their end, with their statuses.
    pub statuses: Vec<(String, u64)>,
    /// From starting the machine to the first `ready`.
    pub boot_time: Option<Duration>,
}

/// The answer to the guest's question for a line.
enum Answer {
    Given,
    Later,
    PullPlug,
}

enum Event {
    Console(Vec<u8>),
    Control(String),
}

/// A guest that is running, with what connects us to it.
struct Guest {
    child: Child,
    control: UnixStream,
    events: Receiver<Event>,
    /// The kernel that runs.
    kernel: PathBuf,
    log: PathBuf,
    /// Where QEMU's own complaints go.
    complaints: PathBuf,
    started: Instant,
    _scratch: Scratch,
}

impl Guest {
    fn start(machine: &Machine) -> Result<Self> {
        let scratch = Scratch::make()?;
        let (console_path, control_path, log) = (scratch.file("console"), scratch.file("control"), scratch.file("log"));
        let complaints = scratch.file("qemu");
        let listen = |path: &Path| -> Result<UnixListener> {
            let listener = UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let (console, control) = (listen(&console_path)?, listen(&control_path)?);
        let mut command = machine.command(
            &Wiring::Sockets {
                console: &console_path,
                control: &control_path,
            },
            &log,
        )?;
        command.stderr(Stdio::from(std::fs::File::create(&complaints)?));
        let mut child = command.spawn().context("cannot start QEMU")?;
        let connected = accept(&console, &mut child).and_then(|one| Ok((one, accept(&control, &mut child)?)));
        let (console, control) = match connected {
            Ok(pair) => pair,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                let said = std::fs::read_to_string(&complaints).unwrap_or_default();
                return Err(error.context(format!("QEMU did not start: {}", said.trim())));
            }
        };
        let (sender, events) = channel();
        let control_reader = control.try_clone()?;
        let second = sender.clone();
        std::thread::spawn(move || read_console(console, &sender));
        std::thread::spawn(move || read_control(control_reader, &second));
        Ok(Self {
            child,
            control,
            events,
            kernel: machine.kernel.clone(),
            log,
            complaints,
            started: Instant::now(),
            _scratch: scratch,
        })
    }

    fn tell(&mut self, text: &str) {
        // A guest that is gone is noticed by its exit status, not here.
        let _ = self.control.write_all(format!("{text}\n").as_bytes());
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn accept(listener: &UnixListener, child: &mut Child) -> Result<UnixStream> {
    let started = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(status) = child.try_wait()? {
            bail!("it ended at once ({status})");
        }
        if started.elapsed() > Duration::from_mins(1) {
            bail!("it did not open its serial ports within a minute");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn read_console(mut stream: UnixStream, events: &Sender<Event>) {
    let mut buffer = [0; 4096];
    while let Ok(length) = stream.read(&mut buffer) {
        if length == 0 || events.send(Event::Console(buffer[..length].to_vec())).is_err() {
            return;
        }
    }
}

fn read_control(stream: UnixStream, events: &Sender<Event>) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    // A guest that never ends its line must not fill our memory: what is too long is cut.
    while let Ok(length) = reader.by_ref().take(8192).read_until(b'\n', &mut line) {
        let text = String::from_utf8_lossy(&line).trim().to_owned();
        if length == 0 || events.send(Event::Control(text)).is_err() {
            return;
        }
        line.clear();
    }
}

/// Plays a script, through reboots, and copies what the terminal shows to `output`; what it shows before the first line goes to standard error.
pub fn play(machine: &Machine, mut source: Source, output: &mut dyn Write, patience: Patience) -> Result<Played> {
    let mut player = Player {
        source: &mut source,
        output,
        patience,
        began: Instant::now(),
        statuses: Vec::new(),
        running: None,
        tail: VecDeque::new(),
        pending_return: false,
        trouble: None,
        boots: 0,
        prompted: false,
        boot_time: None,
    };
    let verdict = loop {
        let mut guest = Guest::start(machine)?;
        player.boots += 1;
        player.prompted = false;
        if let Some(verdict) = player.attend(&mut guest)? {
            break verdict;
        }
    };
    Ok(Played {
        verdict,
        statuses: player.statuses,
        boot_time: player.boot_time,
    })
}

struct Player<'a> {
    source: &'a mut Source,
    output: &'a mut dyn Write,
    patience: Patience,
    began: Instant,
    statuses: Vec<(String, u64)>,
    /// The line that the guest has not yet answered.
    running: Option<String>,
    tail: VecDeque<u8>,
    /// A carriage return came last: whether it stays depends on the next byte.
    pending_return: bool,
    /// Why the script counts as failed although every status was zero.
    trouble: Option<String>,
    boots: u32,
    /// Whether this guest has asked for a line. What the terminal shows before that no line has printed, so it is no output of the script.
    prompted: bool,
    boot_time: Option<Duration>,
}

impl Player<'_> {
    /// Follows one guest to its end; `None` if it wants to be started again.
    fn attend(&mut self, guest: &mut Guest) -> Result<Option<Verdict>> {
        let mut heard = Instant::now();
        let mut asked = false;
        loop {
            if asked {
                match self.answer(guest) {
                    Answer::Given => {
                        asked = false;
                        heard = Instant::now();
                    }
                    Answer::Later => {}
                    Answer::PullPlug => {
                        // Output that it printed before it asked may still be on its way through the other socket.
                        while let Ok(event) = guest.events.recv_timeout(TICK * 3) {
                            self.take(event, guest)?;
                        }
                        return Ok(Some(Verdict::Killed));
                    }
                }
            }
            match guest.events.recv_timeout(TICK) {
                Ok(event) => {
                    heard = Instant::now();
                    asked |= self.take(event, guest)?;
                }
                Err(RecvTimeoutError::Timeout) => {}
                // Both sockets are closed: only the exit status is missing.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TICK / 10),
            }
            if let Some(status) = guest.child.try_wait()? {
                while let Ok(event) = guest.events.recv_timeout(Duration::from_secs(5)) {
                    self.take(event, guest)?;
                }
                self.output.flush()?;
                return Ok(self.judge(End::of(status), guest));
            }
            // While it waits for us it may be as silent as it likes.
            let silent = !asked && heard.elapsed() > self.patience.silence;
            if let Some(verdict) = self.out_of_patience(guest, silent) {
                let _ = guest.child.kill();
                let _ = guest.child.wait();
                self.output.flush()?;
                return Ok(Some(verdict));
            }
        }
    }

    fn out_of_patience(&self, guest: &Guest, silent: bool) -> Option<Verdict> {
        if matches!(self.patience.plug, Plug::After(limit) if guest.started.elapsed() > limit) {
            return Some(Verdict::Killed);
        }
        if silent {
            let what = format!("the system said nothing for {} s", self.patience.silence.as_secs());
            return Some(Verdict::Dead(self.obituary(&what, guest)));
        }
        if self.patience.total.is_some_and(|limit| self.began.elapsed() > limit) {
            return Some(Verdict::Dead(self.obituary("the script takes too long", guest)));
        }
        None
    }

    /// Handles one event; tells whether the guest asked for a line.
    fn take(&mut self, event: Event, guest: &Guest) -> Result<bool> {
        match event {
            Event::Console(bytes) => self.print(&bytes)?,
            Event::Control(text) if text == host::READY => {
                self.boot_time.get_or_insert_with(|| guest.started.elapsed());
                // Text that the guest printed before this question may still be on its way through the other socket.
                let until = Instant::now() + OVERTAKEN;
                while !self.prompted
                    && let Some(left) = until.checked_duration_since(Instant::now())
                    && let Ok(event) = guest.events.recv_timeout(left)
                {
                    self.take(event, guest)?;
                }
                self.prompted = true;
                return Ok(true);
            }
            Event::Control(text) => {
                let status = text
                    .strip_prefix(host::STATUS)
                    .and_then(|rest| rest.trim().parse().ok());
                if let (Some(status), Some(line)) = (status, self.running.take()) {
                    self.statuses.push((line, status));
                } else if !text.is_empty() {
                    // A program that has gone wrong may send anything.
                    let text: String = text.chars().filter(|one| !one.is_control()).collect();
                    let text = shortened(&text);
                    self.trouble
                        .get_or_insert(format!("the system said '{text}' on the control line"));
                }
            }
        }
        Ok(false)
    }

    /// Gives the guest a line or the end, if either is there.
    fn answer(&mut self, guest: &mut Guest) -> Answer {
        match self.source.next() {
            Next::Line(text) => {
                guest.tell(&format!("{} {text}", host::LINE));
                self.running = Some(text);
            }
            Next::Wait => return Answer::Later,
            Next::End if self.patience.plug == Plug::AtEnd => return Answer::PullPlug,
            Next::End => guest.tell(host::END),
            Next::Bad(error) => {
                self.trouble.get_or_insert(error);
                guest.tell(host::END);
            }
        }
        Answer::Given
    }

    /// Copies the terminal's bytes, with plain newlines.
    fn print(&mut self, bytes: &[u8]) -> Result<()> {
        let mut plain = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            if std::mem::take(&mut self.pending_return) && byte != b'\n' {
                plain.push(b'\r');
            }
            if byte == b'\r' {
                self.pending_return = true;
            } else {
                plain.push(byte);
            }
        }
        self.tail.extend(&plain);
        let excess = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
        if !self.prompted {
            // If nobody takes our complaints, the terminal's end is in the verdict still.
            let _ = std::io::stderr().write_all(&plain);
            return Ok(());
        }
        self.output.write_all(&plain).context("cannot write the output")?;
        self.output.flush().context("cannot write the output")
    }

    fn judge(&mut self, end: End, guest: &Guest) -> Option<Verdict> {
        let dead = |what: &str| Some(Verdict::Dead(self.obituary(what, guest)));
        match end {
            End::Reboot => {
                self.running = None;
                None
            }
            End::Panic => dead(&KernelLog::read(&guest.log).reason()),
            End::Dead(Some(0)) if last_lines(&guest.complaints, LOG_LINES).contains("GDBstub") => {
                dead("GDB ended the machine")
            }
            End::Dead(Some(0)) => dead("the processor was reset (a triple fault?)"),
            End::Dead(Some(status)) => dead(&format!("QEMU ended with status {status}")),
            End::Dead(None) => dead("QEMU was killed by a signal"),
            // A first program that is no shell, for example: what it said is on the terminal only.
            End::Failure if !self.prompted => {
                Some(Verdict::Failure(self.obituary("the system reports a failure", guest)))
            }
            End::Success | End::Failure => Some(self.sum_up(end)),
        }
    }

    /// Judges a clean power-off.
    fn sum_up(&mut self, end: End) -> Verdict {
        if let Some(trouble) = self.trouble.take() {
            return Verdict::Failure(trouble);
        }
        if let Some((line, status)) = self.statuses.iter().find(|(_, status)| *status != 0) {
            let count = self.statuses.iter().filter(|(_, status)| *status != 0).count();
            let more = if count > 1 {
                format!(" (and {} more)", count - 1)
            } else {
                String::new()
            };
            let line = shortened(line);
            return Verdict::Failure(format!("'{line}' failed with {}{more}", ending(*status)));
        }
        if let Next::Line(line) = self.source.next() {
            return Verdict::Failure(format!("the system was powered off before '{}'", shortened(&line)));
        }
        // Before a reboot the guest may count failures that we were told of too; it cannot know more.
        if end == End::Failure {
            Verdict::Failure("the system reports a failure".into())
        } else {
            Verdict::Success
        }
    }

    /// Describes a guest that did not end well.
    fn obituary(&self, what: &str, guest: &Guest) -> String {
        let mut text = what.to_owned();
        if let Some(line) = &self.running {
            let _ = write!(text, ", while it ran '{}'", shortened(line));
        } else if self.statuses.is_empty() && self.boots <= 1 {
            text.push_str(", before it asked for the first line");
        }
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        let complaints = last_lines(&guest.complaints, LOG_LINES);
        if !complaints.is_empty() {
            push_section(&mut text, "QEMU says", &complaints);
        }
        push_section(
            &mut text,
            "the last of the console",
            String::from_utf8_lossy(&tail).trim_end(),
        );
        let log = KernelLog::read(&guest.log);
        for (title, content) in log.account(&guest.kernel) {
            push_section(&mut text, title, &content);
        }
        push_section(&mut text, "the last of the kernel's log", &log.last_lines(LOG_LINES));
        text
    }
}

/// A status for people: those from `STATUS_SYSTEM` on are the system's.
fn ending(status: u64) -> String {
    match status.checked_sub(STATUS_SYSTEM) {
        Some(exception) => exception_name(exception).to_owned(),
        None => format!("status {status}"),
    }
}

/// The beginning of a line, in which one knows it again.
fn shortened(line: &str) -> String {
    let end = line
        .char_indices()
        .nth(LINE_CHARACTERS)
        .map_or(line.len(), |(at, _)| at);
    let more = if end < line.len() { " …" } else { "" };
    format!("{}{more}", &line[..end])
}

/// Appends a titled section to a text.
pub fn push_section(text: &mut String, title: &str, content: &str) {
    if content.is_empty() {
        let _ = write!(text, "\n--- {title}: nothing");
    } else {
        let _ = write!(text, "\n--- {title}:\n{content}");
    }
}

/// The last lines of a file that may be missing.
pub fn last_lines(path: &Path, count: usize) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests;
