//! The shell: the first program, and the way a person meets the system.
//!
//! [`editor`] is the line editor and [`text`] cuts lines into words, both pure and tested on the host.
//! [`commands`] is the table of commands; a word that is not in it is looked up as a program in the
//! directory. [`script`] is the other way lines come in: over the control line from the host tool,
//! which is told how each one went.
#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

mod ahead;

mod attention;

mod editor;

mod guard;

mod log;

mod text;

mod commands;

mod place;

mod programs;

mod script;

mod terminal;

use rt::{call, println, system};

rt::entry!(main);

fn main() {
    let boot = system::boot().unwrap_or_default();
    let mut shell = commands::Shell {
        // Only the first shell has no parent: it ends the system with itself.
        nested: call::thread_info(0).is_ok_and(|report| report.parent != 0),
        ..commands::Shell::default()
    };
    let recovered = if boot.clean == 1 || shell.nested {
        Recovered::default()
    } else {
        recover()
    };
    if shell.nested {
        // With a script nobody is at the terminal: a shell without input ends at once, and prints nothing.
        if boot.script == 0 {
            terminal::converse(&mut shell);
        }
        return;
    }
    log::keep();
    if boot.script == 1 {
        script::serve(&mut shell);
    } else {
        terminal::greet(&boot, &recovered);
        terminal::converse(&mut shell);
        // The terminal is gone, and with it the only one who could say anything else.
        if let Err(error) = system::power_off(system::Outcome::Success) {
            println!("poweroff: {error}");
        }
    }
    // Both end the system themselves; this is for the case that it refused.
    println!("shell: the system did not stop");
}

/// Tells how many names a start after a power cut has put in order.
#[derive(Clone, Debug, Default)]
struct Recovered {
    /// Names whose making or removing the cut had interrupted, and that are gone.
    names: u64,
    /// Why others are left as they were.
    left: Option<rt::Error>,
    /// Why there is nothing to recover them from.
    failed: Option<rt::Error>,
}

/// Finishes or takes back what the power cut left of changes of names.
fn recover() -> Recovered {
    match guard::guarded("shell", rt::directory::recover) {
        Some(Ok(recovery)) => Recovered {
            names: recovery.went,
            left: recovery.left,
            failed: None,
        },
        Some(Err(error)) => Recovered {
            failed: Some(error),
            ..Recovered::default()
        },
        None => Recovered::default(),
    }
}
