//! Running programs.

use alloc::{string::String, vec::Vec};

use abi::layout::EXCEPTION_INTERRUPT;
use rt::{
    Error, Kind, call,
    module::Binding,
    names::{PathError, Quoted},
    system,
    task::{Options, Program},
};

use crate::{
    attention,
    commands::{Complaint, Outcome, Shell, said},
};

/// Status of commands that Ctrl-C has ended. A program gives it, too, if Ctrl-C has ended a task to which it had passed the terminal on.
pub const STATUS_INTERRUPTED: u64 = 130;
/// Status of tasks that were ended from outside.
pub const STATUS_KILLED: u64 = 137;
/// Time between two looks at tasks that end.
const ORPHAN_NS: u64 = 2_000_000;
/// Looks until tasks count as hanging: ten seconds.
const ORPHAN_LOOKS: u64 = 5_000;
/// Looks until tasks stay that this shell may not end: only the first shell may end any, and some are ending already.
const REFUSED_LOOKS: u64 = 100;

/// Runs a program in the foreground and gives the status it ended with.
///
/// Ctrl-C at the terminal ends it: the system does that by itself, so a program that hangs cannot
/// keep the terminal.
pub fn run(shell: &Shell, name: &str, arguments: &[&str]) -> Outcome<u64> {
    let program = match shell.place.find_program(name) {
        Ok(found) if found.kind == Kind::Program => Program::at(found.capability.address)?,
        Ok(found) => {
            return said(alloc::format!(
                "{name}: this names {}, not a program; 'info {}' tells more",
                kind_in_words(found.kind),
                Quoted(name)
            ));
        }
        Err(Complaint::Runtime(Error::NoSuchName)) if is_module(name) => {
            Program::of_module(name, Binding::Lazy).or_else(|error| said(alloc::format!("{name}: {error}")))?
        }
        Err(Complaint::Runtime(Error::NoSuchName | Error::Path(PathError::Empty))) => {
            let shown = if name.trim().is_empty() {
                alloc::format!("'{name}'")
            } else {
                String::from(name)
            };
            return said(alloc::format!(
                "{shown}: no such command or program; 'help' lists the commands, 'ls' the programs"
            ));
        }
        Err(complaint) => return Err(complaint),
    };
    attention::give_terminal_away();
    let before: Vec<u64> = orphans().collect();
    let options = Options {
        foreground: true,
        ..Options::default()
    };
    let task = program.start(name, arguments, &options)?;
    let ended = task.wait();
    // The interrupt character is the shell's again, if it was the program's.
    let _ = call::console_foreground(0);
    let ended = ended?;
    ended.print();
    if ended.report.exception == EXCEPTION_INTERRUPT || ended.report.status == STATUS_INTERRUPTED {
        end_orphans(&before)?;
    }
    Ok(ended.report.status)
}

/// The first threads of tasks that have lost their parents, the shell's own among them.
fn orphans() -> impl Iterator<Item = u64> {
    system::threads()
        .filter(|report| report.parent == 0)
        .map(|report| report.thread)
}

/// Ends the tasks that an interrupted program has left, and those that they have started: all orphans but those that were there `before`.
/// The end of a task takes some milliseconds, and may make orphans of others.
fn end_orphans(before: &[u64]) -> Outcome {
    for look in 0..ORPHAN_LOOKS {
        let (mut ending, mut refused) = (false, false);
        for thread in orphans().filter(|thread| !before.contains(thread)) {
            // It may be ending already.
            match call::thread_delete(thread, STATUS_KILLED) {
                Err(_) => refused = true,
                Ok(()) => ending = true,
            }
        }
        if !ending && !refused {
            return Ok(());
        }
        if !ending && look >= REFUSED_LOOKS {
            return said(
                "some tasks that it has started go on, and this shell may not end them; 'exit' leads to the first shell, whose 'kill' ends them".into(),
            );
        }
        attention::sleep_ns(ORPHAN_NS)?;
    }
    said("some tasks that it has started do not end; 'ps' lists them".into())
}

/// Whether an installed module has this name.
fn is_module(name: &str) -> bool {
    !name.contains('/') && rt::module::shelf::look_up(name).is_ok()
}

/// A kind of thing, in the middle of a sentence.
pub fn kind_in_words(kind: Kind) -> &'static str {
    match kind {
        Kind::Directory => "a directory",
        Kind::Program => "a program",
        Kind::Data => "an object with data",
        Kind::Clist => "a Clist",
        Kind::Service => "a service",
        Kind::Module => "a module",
    }
}

/// `run PROGRAM [ARGUMENT...]`.
pub fn run_command(shell: &mut Shell, arguments: &[&str]) -> Outcome<u64> {
    let (name, rest) = arguments.split_first().ok_or_else(Complaint::usage)?;
    let rest: Vec<&str> = rest.to_vec();
    run(shell, name, &rest)
}
