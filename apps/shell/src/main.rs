//! The shell: the first program, and the way a person meets the system.
//!
//! [`editor`] is the line editor and [`text`] cuts lines into words, both pure and tested on the host.
//! [`commands`] is the table of commands; a word that is not in it is looked up as a program in the
//! directory. [`script`] is the other way lines come in: over the control line from the host tool,
//! which is told how each one went.
#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

mod editor;

mod text;

mod commands;

mod place;

mod programs;

mod script;

mod terminal;

use rt::{println, system};

rt::entry!(main);

fn main() {
    let boot = system::boot().unwrap_or_default();
    let mut shell = commands::Shell::default();
    if boot.script == 1 {
        script::serve(&mut shell);
    } else {
        terminal::converse(&mut shell, &boot);
    }
    // Both end the system themselves; this is for the case that it refused.
    println!("shell: the system did not stop");
}
