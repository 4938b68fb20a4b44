//! Running programs.

use alloc::vec::Vec;

use rt::{
    Error, Kind, call,
    module::Binding,
    task::{Options, Program},
};

use crate::{
    attention,
    commands::{Complaint, Outcome, Shell, said},
};

/// Runs a program in the foreground and gives the status it ended with.
///
/// Ctrl-C at the terminal ends it: the system does that by itself, so a program that hangs cannot
/// keep the terminal.
pub fn run(shell: &Shell, name: &str, arguments: &[&str]) -> Outcome<u64> {
    let program = match shell.place.find_program(name) {
        Ok(found) if found.kind == Kind::Program => Program::at(found.capability.address)?,
        Ok(found) => {
            return said(alloc::format!(
                "{name}: this names {}, not a program; 'info {name}' tells more",
                kind_in_words(found.kind)
            ));
        }
        Err(Error::NoSuchName) if is_module(name) => {
            Program::of_module(name, Binding::Lazy).or_else(|error| said(alloc::format!("{name}: {error}")))?
        }
        Err(Error::NoSuchName) => {
            return said(alloc::format!(
                "{name}: no such command or program; 'help' lists the commands, 'ls' the programs"
            ));
        }
        Err(error) => return Err(error.into()),
    };
    attention::give_terminal_away();
    let task = program.start(name, arguments, &Options::default())?;
    // A program that has already ended cannot be interrupted, and need not.
    let _ = call::console_foreground(task.thread());
    let ended = task.wait();
    // The interrupt character is the shell's again.
    call::console_foreground(0)?;
    let ended = ended?;
    ended.print();
    Ok(ended.report.status)
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
