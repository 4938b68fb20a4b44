//! Modules for people: what is on the shelf, what goes there and from there, and programs that are modules.
//!
//! A program that is a module exports `main`. It is run by this program's image: that makes the instance, binds
//! the rest at the first calls, and calls `main` with the arguments. Nothing is copied but data.
#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

use alloc::{string::String, vec::Vec};
use core::{cell::Cell, fmt};

use rt::{
    Object, arguments,
    module::{Binding, Error, Modules, shelf},
    println,
};

rt::entry!(main);

const USAGE: &str = "\
usage: module list                  all installed versions, the newest of each marked
       module install FILE...       check module objects and put them on the shelf; imported ones first
       module show NAME             what a module exports and imports
       module remove NAME           destroy a version that nobody uses
       module run NAME [ARGUMENT]...  run a module that exports main; --eager before NAME binds all at once
NAME is that of a module (the newest version), or NAME-VERSION. FILE is a name from the root directory, as
'gond import' gives it.";

/// Why a command failed.
#[derive(Debug)]
enum Complaint {
    /// The runtime, with the name that it is about.
    Module(String, Error),
    /// Not what the command takes.
    Usage,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Module(about, Error::Runtime(error)) => write!(f, "{about}: {error}"),
            Self::Module(_, error) => error.fmt(f),
            Self::Usage => f.write_str(USAGE),
        }
    }
}

/// For `map_err`: an error about a name.
fn about<E: Into<Error>>(name: &str) -> impl FnOnce(E) -> Complaint {
    let name = String::from(name);
    move |error| Complaint::Module(name, error.into())
}

fn main() -> Result<(), Complaint> {
    let given: Vec<&str> = arguments::rest().collect();
    match given.as_slice() {
        ["list"] => list(),
        ["install", files @ ..] if !files.is_empty() => files.iter().try_for_each(|file| install(file)),
        ["show", name] => show(name),
        ["remove", name] => {
            let gone = shelf::remove(name).map_err(about(name))?;
            println!("{gone} removed");
            Ok(())
        }
        ["run", "--eager", rest @ ..] if !rest.is_empty() => run(Binding::Eager, rest),
        ["run", rest @ ..] if !rest.is_empty() => run(Binding::Lazy, rest),
        _ => Err(Complaint::Usage),
    }
}

fn list() -> Result<(), Complaint> {
    let mut all = shelf::list().map_err(about(shelf::DIRECTORY))?;
    all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let newest = |address: u64| {
        let mut same = all.iter().filter(|named| named.found.capability.address == address);
        same.clone().count() > 1 && same.next().is_some()
    };
    for named in &all {
        let address = named.found.capability.address;
        let module = shelf::find(&named.name).map_err(about(&named.name))?;
        // Each version once, under its long name.
        if named.name != module.name() {
            let mark = if newest(address) { "newest" } else { "" };
            println!("{:<24}{address:#014x}{:>9}  {mark}", named.name, named.found.word);
        }
    }
    Ok(())
}

fn install(file: &str) -> Result<(), Complaint> {
    let full = shelf::install_file(file).map_err(about(file))?;
    let module = shelf::find(&full).map_err(about(file))?;
    println!("{full} installed at {:#x}", module.address);
    Ok(())
}

fn show(name: &str) -> Result<(), Complaint> {
    let module = shelf::find(name).map_err(about(name))?;
    println!("{} {} at {:#x}", module.name(), module.version(), module.address);
    println!(
        "{} bytes, of which an instance has {} of its own; {} functions are called through thunks of it",
        module.bytes().len(),
        module.data_bytes,
        module.thunks_used()
    );
    for import in module.imports() {
        let when = if import.lazy { "at the first call" } else { "at once" };
        println!(
            "imports {} (described: {}, {} exports), bound {when}",
            import.name(),
            import.version(),
            import.count
        );
    }
    for export in module.exports() {
        println!("exports {}", export.name);
    }
    Ok(())
}

fn run(binding: Binding, words: &[&str]) -> Result<(), Complaint> {
    let name = words.first().copied().unwrap_or_default();
    let modules = Modules::new(binding);
    let instance = modules.instance(name).map_err(about(name))?;
    // Arguments stand on the start page as C wants them: each ended by a zero byte.
    let places = Object::create((words.len() as u64 + 1) * 8).map_err(about(name))?;
    for (index, word) in words.iter().enumerate() {
        if let Some(place) = places.region().at_offset::<Cell<u64>>(index as u64 * 8) {
            place.set(word.as_ptr() as u64);
        }
    }
    let started = modules.call(instance, "main", [words.len() as u64, places.base(), 0, 0]);
    // What `main` returns is an int, in the lower half.
    let status = u64::from(started.map_err(about(name))? as u32);
    // The C library, if there is one, writes what is left in its streams.
    if let Some(library) = modules.known("libc")
        && let Some(exit) = modules.symbol(library, "exit")
    {
        rt::module::call_at(exit, [status, 0, 0, 0]);
    }
    rt::exit(status)
}
