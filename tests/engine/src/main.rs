//! The engine inside the system: validates, compiles, proves and runs a module, contains its traps, and
//! refuses code that is not proved. A program of its own, because it brings a compiler along.
//!
//! ```text
//! cargo build -p engine --profile guest --target x86_64-unknown-none    (flags: host/gond/src/build.rs)
//! ./gond import DISK …/engine engine --program
//! ./gond run --disk DISK --script …        the line: engine
//! ```
//!
//! prints a line for each case, `ok NAME` or `FAILED NAME: why`; the last tells how many passed and failed.
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
mod platform;

#[cfg(target_os = "none")]
rt::entry!(main);

#[cfg(target_os = "none")]
fn main() -> rt::Result<()> {
    platform::set_up()?;
    let failed = cases::run();
    if failed > 0 {
        rt::exit(1);
    }
    Ok(())
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("engine: it runs inside the system only; on the host 'gond sip' is the engine");
}
