//! The engine inside the system: validates, compiles, proves and runs modules, contains their traps, and
//! refuses code that is not proved. A program of its own, because it brings a compiler along.
//!
//! ```text
//! engine                                              the cases of `cases.rs`
//! engine [--seconds N] MODULE [FUNCTION [NUMBERS]]    a module out of an object; nothing is provided to it
//! ```
//!
//! The cases print a line each, `ok NAME` or `FAILED NAME: why`; the last tells how many passed and failed.
//! `./gond test --only engine` builds it, puts it on a disk and runs it.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
#[allow(unsafe_code, reason = "the one module that registers handlers")]
mod arch;
#[cfg(target_os = "none")]
mod cases;
#[cfg(target_os = "none")]
mod command;
#[cfg(target_os = "none")]
mod known;
#[cfg(target_os = "none")]
mod platform;

#[cfg(target_os = "none")]
rt::entry!(main);

#[cfg(target_os = "none")]
fn main() -> rt::Result<()> {
    platform::set_up()?;
    let words: alloc::vec::Vec<&str> = rt::arguments::rest().collect();
    if words.is_empty() {
        if cases::run() > 0 {
            rt::exit(1);
        }
    } else if let Err(why) = command::run(&words) {
        rt::println!("engine: {why}");
        rt::exit(1);
    }
    Ok(())
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("engine: it runs inside the system only; on the host 'gond sip' is the engine");
}
