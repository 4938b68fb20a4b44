//! The commands: a table of names, usage, help and functions.

mod objects;
mod snapshots;
mod system;

use alloc::{string::String, vec::Vec};
use core::fmt;

use rt::println;

use crate::{
    editor::WIDTH,
    guard::guarded,
    place::Place,
    programs::{self, STATUS_INTERRUPTED},
    text,
};

/// The state of the shell.
#[derive(Clone, Debug, Default)]
pub struct Shell {
    /// Where the user is.
    pub place: Place,
    /// Lines that failed.
    pub failures: u64,
    /// Lines come from the host tool.
    pub scripted: bool,
    /// Another shell has started this one.
    pub nested: bool,
    /// The user leaves it.
    pub leaving: bool,
}

/// Why a command failed.
#[derive(Debug)]
pub enum Complaint {
    /// The system or the runtime refused.
    Runtime(rt::Error),
    /// A sentence for the user.
    Said(String),
    /// The arguments are not what the command takes.
    Usage,
    /// The user typed Ctrl-C.
    Interrupted,
}

impl Complaint {
    /// For `ok_or_else`.
    pub const fn usage() -> Self {
        Self::Usage
    }
}

impl<E: Into<rt::Error>> From<E> for Complaint {
    fn from(error: E) -> Self {
        Self::Runtime(error.into())
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runtime(error) => error.fmt(f),
            Self::Said(text) => f.write_str(text),
            Self::Usage => f.write_str("wrong arguments"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// The result of a command.
pub type Outcome<T = ()> = Result<T, Complaint>;

/// Fails with a sentence.
pub fn said<T>(text: String) -> Outcome<T> {
    Err(Complaint::Said(text))
}

/// A command.
struct Command {
    name: &'static str,
    arguments: &'static str,
    /// One line.
    summary: &'static str,
    /// More, for `help COMMAND`; may be empty.
    text: &'static str,
    run: Run,
}

impl Command {
    /// How it is called, in one line.
    fn usage(&self) -> String {
        let gap = if self.arguments.is_empty() { "" } else { " " };
        alloc::format!("usage: {}{gap}{}", self.name, self.arguments)
    }
}

/// How a command is run.
enum Run {
    /// It succeeds or complains.
    Plain(fn(&mut Shell, &[&str]) -> Outcome),
    /// It ends with a status of its own.
    Status(fn(&mut Shell, &[&str]) -> Outcome<u64>),
}

use Run::{Plain, Status};

const fn command(
    name: &'static str,
    arguments: &'static str,
    summary: &'static str,
    text: &'static str,
    run: Run,
) -> Command {
    Command {
        name,
        arguments,
        summary,
        text,
        run,
    }
}

static COMMANDS: &[Command] = &[
    command(
        "help",
        "[COMMAND]",
        "list the commands, or tell more of one",
        "",
        Plain(help),
    ),
    command(
        "ls",
        "[DIRECTORY]",
        "list names: kind, size, address",
        "The size is that of the content; an object is whole pages.",
        Plain(objects::ls),
    ),
    command(
        "cd",
        "[DIRECTORY]",
        "go to a directory (the root if none is given)",
        "",
        Plain(objects::cd),
    ),
    command("pwd", "", "show where you are", "", Plain(objects::pwd)),
    command("mkdir", "NAME", "make a directory", "", Plain(objects::mkdir)),
    command(
        "create",
        "NAME SIZE",
        "make a persistent object of zero bytes",
        "SIZE is in bytes, or with K, M or G behind it, or as 'ls' shows it: create notes 64K, create notes 1.5 MiB. 128G is the largest.\nThe object gets an address that is its own for ever, and an owner capability in the root Clist.",
        Plain(objects::create),
    ),
    command(
        "rm",
        "[--force] NAME",
        "destroy an object and take its name away",
        "An object without a name goes by its address behind 0x. Every program that uses the object loses it at once. Programs, Clists and services go with --force only, modules by 'module remove NAME', and what the system starts from stays. A program that comes with the system is there again after the next './gond run'.",
        Plain(objects::rm),
    ),
    command(
        "mv",
        "NAME NEW",
        "give an object another name in the same directory",
        "A module keeps its name, by which it is found, and so does what the system starts from.",
        Plain(objects::mv),
    ),
    command(
        "info",
        "NAME",
        "show what the system knows of an object",
        "NAME may also be an address, which begins with 0x; the name 0x1 is ./0x1 then.",
        Plain(objects::info),
    ),
    command(
        "write",
        "[--force] NAME OFFSET TEXT...",
        "write text into an object",
        "Words are joined by a space and ended by a newline. Only data are written without --force, and never what the system starts from.",
        Plain(objects::write),
    ),
    command(
        "cat",
        "NAME",
        "show the text in an object",
        "The text ends at the first zero byte.",
        Plain(objects::cat),
    ),
    command(
        "caps",
        "[NAME]",
        "show the capabilities that the shell holds, or those for an object",
        "A capability is an address and a password. A program that knows it has its rights. NAME may also be an address, as for info.",
        Plain(objects::caps),
    ),
    command(
        "grant",
        "NAME RIGHTS",
        "make a new capability for an object",
        "RIGHTS are letters: r read, w write, x execute, d destroy. The capability is printed; give it to whom you trust.",
        Plain(objects::grant),
    ),
    command(
        "revoke",
        "NAME PASSWORD",
        "take a password of an object away",
        "Programs that came in by it are out at once, and durably. The last password by which the object can be removed stays.",
        Plain(objects::revoke),
    ),
    command(
        "ps",
        "",
        "list the threads",
        "'share' is what the task, with all that it started, may have of the processors before others go first, 'had' what they had last.",
        Plain(system::ps),
    ),
    command(
        "kill",
        "THREAD",
        "end a thread, or a task by its first thread",
        "'ps' lists the threads. Objects of the task that were not kept go with it.",
        Plain(system::kill),
    ),
    command("domains", "", "list the protection domains", "", Plain(system::domains)),
    command(
        "mem",
        "",
        "show memory and disk in use",
        "Memory: 'kernel' is its image, tables and heap, 'objects' the pages of objects in use; a page that several objects share, as a program's image and its clones do, counts for each of them, so the rows may be more than is used. 'tables' are page tables.\nDisk: 'promised' is the part of what is free that is for pages not yet written, or kept for removals; 'changed' is what the next checkpoint writes.",
        Plain(system::mem),
    ),
    command(
        "disk",
        "[grow]",
        "show the size of the disk and what is free, or take what is new of it",
        "Where the host has made the disk larger ('./gond grow IMAGE SIZE' does so), 'disk grow' takes the new part into use at once; until then, and at the \
         next start too, the system leaves it alone. What is new is durable when the command ends, and a power cut before that leaves the size that was. \
         A disk does not become smaller: where the host has cut it off, what stands behind its end cannot be read or written until it has its size back.",
        Plain(system::disk),
    ),
    command(
        "sync",
        "",
        "make everything stable now",
        "The system does so by itself every second.",
        Plain(system::sync),
    ),
    command(
        "scrub",
        "[wait | stop | show]",
        "look at all that is stored, in the background, and tell how far that is",
        "It reads while nobody else wants the disk, 1 MiB a second at most, and names damage on the terminal: what the present state has, and then what \
         only snapshots hold. 'scrub wait' waits for the end (Ctrl-C leaves it running), 'scrub stop' ends it, 'scrub show' only tells how far it is. \
         One begins by itself, more slowly, an hour after the start (a minute behind a power cut) and then each week.",
        Plain(system::scrub),
    ),
    command(
        "log",
        "[LINES]",
        "show what has happened: the last 20 lines of the system's log",
        "Each line begins with the seconds since the start that it belongs to. The lines are written to 'system-log' within a second, where they outlive the \
         power, also for './gond export IMAGE system-log FILE'. When that is full its older half goes. Without it ('rm system-log') the last 16 KiB \
         are kept until the power goes; 'create system-log 64k' begins a new one.",
        Plain(system::log),
    ),
    command(
        "snapshot",
        "keep NAME | ls | drop NAME",
        "keep the state of the whole disk by a name, list such states, or drop one",
        "A snapshot is all that is kept as it is now, and is on the disk when the command ends. It takes room as things change that it holds; \
         'ls' shows how much it holds alone or with others. What only a dropped one held is free again within seconds. To look into one, \
         compare or go back is for './gond snapshot IMAGE' while the system is off: to go back takes every program's objects away.",
        Plain(snapshots::snapshot),
    ),
    command(
        "run",
        "PROGRAM [ARGUMENT...]",
        "run a program; its name alone does as well",
        "Ctrl-C ends the program.",
        Status(programs::run_command),
    ),
    command(
        "oo1",
        "[COMMAND]",
        "the object database benchmark: oo1 create, oo1 run, oo1 pdx",
        "A program; 'oo1' alone lists its commands.",
        Status(oo1),
    ),
    command(
        "module",
        "[COMMAND]",
        "libraries that stand once for everybody: module list, module install",
        "A program; 'module' alone lists its commands. The name of a module that exports main runs it.",
        Status(module),
    ),
    command(
        "time",
        "COMMAND...",
        "run a command and show how long it took",
        "",
        Status(system::time),
    ),
    command(
        "sleep",
        "SECONDS",
        "wait",
        "Decimals are allowed: sleep 0.5. Ctrl-C ends it.",
        Plain(system::sleep),
    ),
    command("echo", "[WORD...]", "print words", "", Plain(system::echo)),
    command("true", "", "succeed", "", Status(|_, _| Ok(0))),
    command("false", "", "fail", "", Status(|_, _| Ok(1))),
    command(
        "exit",
        "",
        "leave a shell that was started in another",
        "The first shell does not end: 'poweroff' ends the system.",
        Plain(exit),
    ),
    command(
        "reboot",
        "",
        "make everything stable and start anew",
        "",
        Plain(system::reboot),
    ),
    command(
        "poweroff",
        "",
        "make everything stable and switch off",
        "",
        Plain(system::poweroff),
    ),
];

/// The names of all commands.
pub fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|command| command.name)
}

impl Shell {
    /// Does what a line says and gives its status, 0 for success. A fault on the way ends the command, not the shell.
    pub fn run_line(&mut self, line: &str) -> u64 {
        let status = match text::words(line) {
            Ok(words) => self.run_guarded(words),
            Err(error) => {
                println!("{error}");
                2
            }
        };
        self.failures += u64::from(status != 0);
        status
    }

    fn run_guarded(&mut self, words: Vec<String>) -> u64 {
        let Some(name) = words.first().cloned() else {
            return 0;
        };
        let mut shell = self.clone();
        let done = guarded(&name, move || {
            let status = shell.run_words(&words.iter().map(String::as_str).collect::<Vec<_>>());
            (status, shell)
        });
        let Some((status, shell)) = done else {
            return 1;
        };
        *self = shell;
        status
    }

    /// Does what the words of a line say.
    pub fn run_words(&mut self, words: &[&str]) -> u64 {
        let Some((name, arguments)) = words.split_first() else {
            return 0;
        };
        let command = COMMANDS.iter().find(|command| command.name == *name);
        let outcome = match command.map(|command| &command.run) {
            Some(Plain(run)) => run(self, arguments).map(|()| 0),
            Some(Status(run)) => run(self, arguments),
            None => programs::run(self, name, arguments),
        };
        match (outcome, command) {
            (Ok(status), _) => status,
            (Err(Complaint::Usage), Some(command)) => {
                println!("{}", command.usage());
                2
            }
            (Err(complaint @ Complaint::Said(_)), _) => {
                println!("{complaint}");
                1
            }
            (Err(Complaint::Interrupted), _) => {
                println!("{name}: interrupted");
                STATUS_INTERRUPTED
            }
            (Err(complaint), _) => {
                println!("{name}: {complaint}");
                1
            }
        }
    }
}

/// Where `help` shows what a command does.
const SUMMARY_COLUMN: usize = 34;

fn help(_: &mut Shell, arguments: &[&str]) -> Outcome {
    match arguments {
        [] => {
            for command in COMMANDS {
                // Long arguments have a line of their own.
                let gap = if command.arguments.len() < 23 { "" } else { "\n" };
                let column = if gap.is_empty() {
                    23 - command.arguments.len()
                } else {
                    SUMMARY_COLUMN
                };
                let indented = alloc::format!("\n{:SUMMARY_COLUMN$}", "");
                let summary = text::wrapped(command.summary, WIDTH - SUMMARY_COLUMN).replace('\n', &indented);
                println!("  {:<9}{}{gap}{:column$}{summary}", command.name, command.arguments, "");
            }
            let rest = "Any other word is the name of a program. Words may be quoted; # begins a comment. A line has up to 1,000 characters, one of a script up to 4,000.";
            println!("{}", text::wrapped(rest, WIDTH));
            Ok(())
        }
        [name] => {
            let Some(command) = COMMANDS.iter().find(|command| command.name == *name) else {
                return said(alloc::format!("help: there is no command '{name}'; 'help' lists them"));
            };
            println!("{}\n{}.", command.usage(), command.summary);
            if !command.text.is_empty() {
                println!("{}", text::wrapped(command.text, WIDTH));
            }
            Ok(())
        }
        _ => Err(Complaint::Usage),
    }
}

fn exit(shell: &mut Shell, arguments: &[&str]) -> Outcome {
    match arguments {
        [] if shell.nested => {
            shell.leaving = true;
            Ok(())
        }
        [] => said("exit: this is the first shell; 'poweroff' ends the system".into()),
        _ => Err(Complaint::Usage),
    }
}

/// As `oo1`.
fn module(shell: &mut Shell, arguments: &[&str]) -> Outcome<u64> {
    programs::run(shell, "module", arguments)
}

/// The benchmark is a program like others; it stands among the commands so that `help` shows it.
fn oo1(shell: &mut Shell, arguments: &[&str]) -> Outcome<u64> {
    programs::run(shell, "oo1", arguments)
}
