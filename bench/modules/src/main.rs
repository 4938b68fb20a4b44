//! The costs of modules in the system: instances, memory, and the start of a program with eight libraries, as modules and linked
//! statically.
//!
//! It needs a disk that has the modules as files and, for the comparison, the program `eight-static` (`docs/modules.md`
//! says how they get there), and prints a line for each row, as `measure` has them.
#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

use alloc::{format, string::String};

use measure::{SAMPLES, Samples};
use rt::{
    Directory,
    module::{Binding, Error, Instance, Modules, shelf},
    println, system,
    task::{Options, Program},
};

rt::entry!(main);

/// In the order in which they are installed.
const FILES: [&str; 14] = [
    "rt",
    "libc",
    "lua",
    "luai",
    "sqlite",
    "sqlrows",
    "counter",
    "ping",
    "pong",
    "steps",
    "digest",
    "eight",
    "thousand",
    "client1000",
];
/// Instances whose memory is measured.
const INSTANCES: u64 = 100;

/// Why something was not measured.
fn why(error: impl core::fmt::Display) -> String {
    format!("not measured: {error}")
}

fn main() -> Result<(), String> {
    let ticks_per_us = system::boot().map_or(0, |boot| boot.ticks_per_us);
    for file in FILES {
        match shelf::install_file(&format!("{file}.mm")) {
            Ok(_) | Err(Error::Installed(_)) => {}
            Err(error) => return Err(format!("{file}.mm: {error}")),
        }
    }
    // The checkpoint of the installed modules is not to be written while rows are measured; the second one gives the old blocks back.
    for _ in 0..2 {
        system::checkpoint().map_err(why)?;
    }
    for (name, client) in [("module-instance-lua", "luai"), ("module-instance-sqlite", "sqlrows")] {
        println!("{}", instances(name, client).map_err(why)?.row(ticks_per_us));
    }
    println!(
        "{}",
        thousand("module-instantiate-1000").map_err(why)?.row(ticks_per_us)
    );
    for (name, library) in [
        ("module-memory-100", "sqlite"),
        ("module-memory-100-lua", "lua"),
        ("module-memory-100-counter", "counter"),
    ] {
        let (bytes, first) = memory(library).map_err(why)?;
        println!("row={name} bytes={bytes} first={first}");
    }
    let root = Directory::root().map_err(why)?;
    for (name, binding, words) in [
        ("module-start-8-uncalled", Binding::Lazy, &["nothing"] as &[&str]),
        ("module-start-8", Binding::Lazy, &[]),
        ("module-start-8-eager", Binding::Eager, &[]),
    ] {
        let program = Program::of_module("eight", binding).map_err(why)?;
        println!("{}", start(name, program, words).map_err(why)?.row(ticks_per_us));
    }
    match Program::find(&root, "eight-static") {
        Ok(program) => {
            let samples = start("static-start-8", program, &[]).map_err(why)?;
            println!("{}", samples.row(ticks_per_us));
        }
        Err(rt::Error::NoSuchName) => println!("eight-static is not on this disk"),
        Err(error) => return Err(why(error)),
    }
    Ok(())
}

/// An instance of a client and the filling of its descriptors, in memory that was used before.
fn instances(name: &'static str, client: &str) -> Result<Samples, Error> {
    let modules = Modules::new(Binding::Eager);
    modules.instance(client)?;
    let mut failed = None;
    let taken = Samples::new(name, 1).take(SAMPLES, || {
        match modules.another(client) {
            Ok(instance) => modules.release(instance),
            Err(error) => failed = Some(error),
        }
        Ok(())
    })?;
    failed.map_or(Ok(taken), Err)
}

/// An instance of a library of 1,000 exports and one of a client that knows them all, both in memory used before.
fn thousand(name: &'static str) -> Result<Samples, Error> {
    let modules = Modules::new(Binding::Eager);
    modules.instance("client1000")?;
    let mut failed = None;
    let taken = Samples::new(name, 1).take(SAMPLES, || {
        let made = modules.another("thousand").and_then(|library| {
            modules.release(modules.another("client1000")?);
            modules.release(library);
            Ok(())
        });
        failed = failed.take().or(made.err());
        Ok(())
    })?;
    failed.map_or(Ok(taken), Err)
}

/// Frames in use, in bytes.
fn used() -> Result<u64, Error> {
    let memory = system::memory()?;
    Ok((memory.frames - memory.free) * rt::abi::address::PAGE)
}

/// Bytes that a further instance of a module takes, and the first.
fn memory(name: &str) -> Result<(u64, u64), Error> {
    let modules = Modules::new(Binding::Lazy);
    let before = used()?;
    let first: Instance = modules.instance(name)?;
    let one = used()?;
    for _ in 0..INSTANCES {
        modules.another(name)?;
    }
    let all = used()?;
    modules.release(first);
    Ok(((all - one) / INSTANCES, one - before))
}

/// Starting a program, its end, and its reaping.
fn start(name: &'static str, program: Program, words: &[&str]) -> Result<Samples, Error> {
    Ok(Samples::new(name, 1).take(SAMPLES / 4, || {
        let task = program.start(name, words, &Options::default())?;
        task.wait_status()?;
        Ok(())
    })?)
}
