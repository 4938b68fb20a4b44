//! Modules for people: what is on the shelf, what goes there and from there, and programs that are modules.
//!
//! A program that is a module exports `main`, and begins in the module `rt` (decision 0066). The shell starts it by its
//! name; `module run` does so too, and can have it bound at once.
#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

use alloc::{string::String, vec::Vec};
use core::fmt;

use rt::{
    arguments,
    module::{Binding, Error, shelf},
    println,
    task::{Options, Program},
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
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Module(about, Error::Runtime(error)) => write!(f, "{about}: {error}"),
            Self::Module(_, error) => error.fmt(f),
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
        _ => {
            if !given.is_empty() {
                println!("module: '{}' is none of these:", given.join(" "));
            }
            println!("{USAGE}");
            rt::exit(2)
        }
    }
}

fn list() -> Result<(), Complaint> {
    let mut all = shelf::list().map_err(about(shelf::DIRECTORY))?;
    all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let newest = |address: u64| {
        let mut same = all.iter().filter(|named| named.found.capability.address == address);
        same.clone().count() > 1 && same.next().is_some()
    };
    let mut failed = false;
    for named in &all {
        let address = named.found.capability.address;
        let module = match shelf::find(&named.name) {
            Ok(module) => module,
            // One that cannot be read does not hide the others.
            Err(error) => {
                println!("{}", about(&named.name)(error));
                failed = true;
                continue;
            }
        };
        // Each version once, under its long name.
        if named.name != module.name() {
            let mark = if newest(address) { "newest" } else { "" };
            println!("{:<24}{address:#014x}{:>9}  {mark}", named.name, named.found.word);
        }
    }
    if failed {
        rt::exit(1)
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
        "{} bytes, of which an instance has {} of its own; functions called through thunks of it: {}",
        module.bytes().len(),
        module.data_bytes,
        module.thunks_used()
    );
    for import in module.imports() {
        let when = if import.lazy { "at the first call" } else { "at once" };
        println!(
            "imports {} (described: {}, exports: {}), bound {when}",
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

/// Starts a module as the shell does, and ends as it ends.
fn run(binding: Binding, words: &[&str]) -> Result<(), Complaint> {
    let [name, arguments @ ..] = words else { return Ok(()) };
    let program = Program::of_module(name, binding).map_err(about(name))?;
    let options = Options {
        foreground: true,
        ..Options::default()
    };
    let task = program.start(name, arguments, &options);
    let task = task.map_err(about(name))?;
    let ended = task.wait().map_err(about(name))?;
    ended.print();
    rt::exit(ended.report.status)
}
