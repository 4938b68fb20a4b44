//! Stage `tools`: the kernel debugger, back-traces of a kernel that panics, and a session with GDB.

use super::{Bench, play};
use crate::bench::working_set::{self, RoundTrip};
use crate::debugger::Debugger;
use crate::gdb;
use crate::machine::{DebuggerLine, Machine};
use crate::place;
use crate::script::{Patience, Verdict};
use anyhow::{Context, Result};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs the stage.
pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    debugger(bench)?;
    working_set(bench)?;
    if Command::new("gdb")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        bench.tell("gdb is not installed: the session with it is passed over");
        return Ok(());
    }
    gdb_session(bench)
}

/// The most bytes of the kernel that a message and its answer may touch, Liedtke's bound; a protected call and its return, too.
const WORKING_SET: usize = 1024;

/// `gond bench --working-set` still finds the round trips, and they are small.
fn working_set(bench: &mut Bench<'_>) -> Result<()> {
    bench.step("working set");
    for (trip, what) in [
        (
            RoundTrip::Message,
            "a message and its answer touch at most 1 KiB of the kernel",
        ),
        (
            RoundTrip::ProtectedCall,
            "a protected call and its return touch at most 1 KiB of the kernel",
        ),
    ] {
        let rows = working_set::measure(&place::root()?, trip).map(|found| found.rows());
        let outcome = match rows.as_deref() {
            Ok([.., (_, bytes, _)]) if *bytes <= WORKING_SET => Ok(()),
            other => Err(format!("{other:?}")),
        };
        bench.report(what, outcome);
    }
    Ok(())
}

/// Checks that a text holds these words.
fn expect(text: &str, words: &[&str]) -> Result<(), String> {
    match words.iter().find(|word| !text.contains(*word)) {
        None => Ok(()),
        Some(missing) => Err(format!("'{missing}' is not in this:\n{text}")),
    }
}

/// A system that runs while `other` does something to it: what became of the system, its output, what `other` found.
fn beside<T: Send>(
    machine: &Machine,
    lines: &[&str],
    other: impl FnOnce() -> T + Send,
) -> Result<(Verdict, String, T)> {
    std::thread::scope(|scope| {
        let other = scope.spawn(other);
        let (played, output) = play(machine, lines, Patience::seconds(120))?;
        let other = other
            .join()
            .map_err(|_| anyhow::anyhow!("the other side of the test panicked"))?;
        Ok((played.verdict, output, other))
    })
}

/// The report about a system that died.
fn obituary(verdict: Verdict) -> Result<String, String> {
    match verdict {
        Verdict::Dead(text) => Ok(text),
        other => Err(format!("the system was to panic, but {other:?}")),
    }
}

/// Connects to a system that is about to start.
fn connect(path: &Path) -> Result<Debugger> {
    let started = Instant::now();
    loop {
        match Debugger::connect(path) {
            Err(_) if started.elapsed() < Duration::from_mins(1) => std::thread::sleep(Duration::from_millis(20)),
            result => return result,
        }
    }
}

/// Commands and what their answers hold, while the shell waits in a sleep.
const CONVERSATION: [(&str, &[&str]); 10] = [
    ("help", &["registers THREAD", "continue"]),
    ("threads", &["waits for time or a wake, in ThreadSleep", "3 threads"]),
    ("registers 1", &["rip 0000", "in ThreadSleep"]),
    ("spaces", &["1 spaces"]),
    (
        "queues",
        &["processor 0: nobody runs", "processor 1: nobody runs", "timer: 1."],
    ),
    ("memory", &["known to be zero", "KiB in use"]),
    (
        "trace 4096",
        &["call ThreadSleep", "page fault at 0x", "runs in space 0"],
    ),
    ("nonsense", &["there is no command 'nonsense'"]),
    ("space 99", &["no such space"]),
    ("stop", &["the system stands"]),
];

/// The findings of the conversation.
struct Found {
    answers: Vec<(&'static str, String)>,
    /// The answers about the page of the shell's stack pointer, and about its frame.
    page: String,
    frame: String,
    /// The last events twice while the system stood, and once more when it went on.
    events: [String; 3],
    /// The output instead of an answer to `panic`.
    end: String,
}

/// The word behind these words, without its comma.
fn behind<'a>(text: &'a str, words: &str) -> &'a str {
    let rest = text.split_once(words).map_or("", |(_, rest)| rest);
    rest.split([' ', ',', '\n']).next().unwrap_or("")
}

/// Whether all the threads of the shell are there, and wait.
fn is_at_rest(threads: &str) -> bool {
    threads.contains("3 threads") && !threads.contains("running on") && threads.contains("ThreadSleep")
}

fn converse(socket: &Path) -> Result<Found> {
    let mut debugger = connect(socket)?;
    let started = Instant::now();
    // The shell's first thread may sleep before the others have started, and the others may sleep before the first one does.
    while !is_at_rest(&debugger.ask("threads")?) && started.elapsed() < Duration::from_mins(1) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut answers = Vec::new();
    for (command, _) in CONVERSATION {
        answers.push((command, debugger.ask(command)?));
    }
    let registers = debugger.ask("registers 1")?;
    let stack = behind(&registers, "rsp ");
    let page = debugger.ask(&format!("page 0 0x{stack}"))?;
    let frame = debugger.ask(&format!("mapping {}", behind(&page, "resident: frame ")))?;
    let first = debugger.ask("trace 40")?;
    // The server's timer would tick several times in this.
    std::thread::sleep(Duration::from_millis(500));
    let second = debugger.ask("trace 40")?;
    debugger.ask("continue")?;
    let started = Instant::now();
    let mut third = second.clone();
    while third == second && started.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(50));
        third = debugger.ask("trace 40")?;
    }
    Ok(Found {
        answers,
        page,
        frame,
        events: [first, second, third],
        end: match debugger.ask("panic") {
            Ok(answer) => format!("it answered {answer}"),
            Err(error) => error.to_string(),
        },
    })
}

fn debugger(bench: &mut Bench<'_>) -> Result<()> {
    let mut machine = bench.fresh_machine("debugger.img")?;
    machine.processors = 2;
    let socket = bench.file("debugger");
    machine.debugger = DebuggerLine::Socket(socket.clone());
    let (verdict, output, found) = beside(&machine, &["echo hello", "sleep 300"], || converse(&socket))?;
    let found = found.with_context(|| format!("the conversation with the debugger ({verdict:?})"))?;
    for ((command, words), (_, answer)) in CONVERSATION.iter().zip(&found.answers) {
        bench.report(&format!("the debugger answers '{command}'"), expect(answer, words));
    }
    bench.report(
        "the page of the shell's stack is found",
        expect(
            &found.page,
            &["linked: leaf 0x", "resident: frame 0x", "dirty; 1 references"],
        ),
    );
    let used = ["1 references\n  0x7f00", "in space 0 (rw-"];
    bench.report("so is what its frame is used for", expect(&found.frame, &used));
    let [first, second, third] = &found.events;
    let check = |holds: bool| {
        if holds {
            Ok(())
        } else {
            Err(format!("{first}\n{second}\n{third}"))
        }
    };
    bench.report("nothing happens while the system stands", check(first == second));
    bench.report("it goes on afterwards", check(second != third));
    bench.report("a panic has no answer", expect(&found.end, &["the system has ended"]));
    let alone = output == "hello\n";
    bench.report(
        "standard output is the shell's alone",
        if alone { Ok(()) } else { Err(output) },
    );
    let calls = [
        "the kernel panicked at kernel/src/debugger.rs",
        "kernel::debugger::Debugger::attend  (kernel/src/debugger.rs:",
        "kernel::event::trap_in_kernel",
        "traps::common",
        "us before: kernel panic",
    ];
    let text = obituary(verdict);
    let stack = text.clone().and_then(|text| {
        let (_, told) = text.split_once("the boot used ").ok_or("the log does not tell")?;
        let [used, all] = [told, behind(told, "of ")].map(|told| behind(told, "").parse::<u32>());
        match (used, all) {
            (Ok(used), Ok(all)) if used > 0 && used < all / 2 => Ok(()),
            _ => Err(text),
        }
    });
    let shown = text.and_then(|text| {
        let guessed = text.contains("guessed");
        expect(&text, &calls).and(if guessed { Err(text) } else { Ok(()) })
    });
    bench.report("a panic is shown with the calls that led to it", shown);
    bench.report("the boot leaves most of its stack", stack);
    Ok(())
}

/// A session: stops at the first trap, looks around, and sends the kernel to a place where nothing is.
const SESSION: &str = "\
set language c
hbreak *'kernel_trap'
set language rust
continue
backtrace
gondwana-threads
gondwana-current
gondwana-trace 3
delete
set $rip = 16
continue
";

fn gdb_session(bench: &mut Bench<'_>) -> Result<()> {
    let mut machine = bench.fresh_machine("gdb.img")?;
    // A port that is free now; nobody else is likely to take it in the next second.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    machine.gdb = Some(port);
    let script = bench.file("session");
    std::fs::write(&script, SESSION)?;
    let words = gdb::command_line(&machine, port)?;
    let session = || -> Result<String> {
        let output = Command::new(&words[0])
            .args(["-batch", "-nx", "-ex", "set tcp connect-timeout 60"])
            .args(&words[1..])
            .arg("-x")
            .arg(&script)
            .stdin(Stdio::null())
            .output()
            .context("cannot start gdb")?;
        let (said, complained) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        Ok(format!("{said}\n{complained}"))
    };
    let (verdict, _, session) = beside(&machine, &["echo hello"], session)?;
    let seen = [
        "Breakpoint 1",
        "kernel_trap (context=0x",
        "traps::common",
        "State::Running",
        "  rip 0000",
        "Kind::Switch  thread 0.1",
    ];
    bench.report(
        "gdb stops at a breakpoint and reads the kernel",
        expect(&session?, &seen),
    );
    let calls = ["page fault (vector 14) in the kernel at 0x10", "traps::common"];
    let shown = obituary(verdict).and_then(|text| expect(&text, &calls));
    bench.report(
        "an exception of the kernel is shown with the calls that led to it",
        shown,
    );
    Ok(())
}
