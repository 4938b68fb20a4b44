//! OO1 (Cattell and Skeen 1992): an object database of raw pointers, used from its own domain by
//! ordinary calls and from another by protected ones.
//!
//! [`random`] and [`database`] follow `docs/spec/oo1.md` to the letter, so that checksums equal those of
//! any other program written after it; [`client`] measures; [`service`] is the database in a domain
//! of its own, alive without a process; this file holds the commands.
#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

mod random;

mod database;

mod client;

mod service;

use alloc::{format, string::String, sync::Arc, vec::Vec};
use core::{cell::Cell, fmt};

use client::{Failure, MEASURED, Measured, Operation, Work, run_rounds};
use database::{Database, PARTS, PARTS_RANGE, Words};
use rt::{
    Directory, Kind, Object, arguments,
    names::Quoted,
    println,
    report::{Image, Shown},
    sync::Mutex,
    system, task, thread,
};
use service::{Connection, Service};

rt::entry!(main);

/// The database's name unless one is given.
const DEFAULT_NAME: &str = "oo1-database";
/// The database of `oo1 bench`.
const BENCH_NAME: &str = "oo1-bench";

const USAGE: &str = "\
usage: oo1 create [NAME] [PARTS]  make a database (of 20000 parts) and put it on stable storage
       oo1 run [NAME]             run the benchmark by ordinary calls
       oo1 pdx [NAME]             run it by protected calls, the database in its own domain
       oo1 verify [NAME]          compute the digest of everything in the database
       oo1 remove [NAME]          delete the database and its service
       oo1 bench                  measure both ways with a database of its own (row=... lines)";

/// Why a command failed.
#[derive(Debug)]
enum Complaint {
    /// The system or the runtime refused.
    Runtime(rt::Error),
    /// The rounds failed.
    Rounds(Failure),
    /// A sentence for the user.
    Said(String),
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
            Self::Rounds(failure) => failure.fmt(f),
            Self::Said(text) => f.write_str(text),
        }
    }
}

type Outcome<T = ()> = Result<T, Complaint>;

fn said<T>(text: String) -> Outcome<T> {
    Err(Complaint::Said(text))
}

fn main() -> Outcome {
    let given: Vec<&str> = arguments::rest().collect();
    let name = given.get(1).copied().unwrap_or(DEFAULT_NAME);
    match given.as_slice() {
        ["create"] => create(DEFAULT_NAME, PARTS),
        ["create", text] if text.parse::<u32>().is_ok() => create(DEFAULT_NAME, parse_parts(text)?),
        ["create", name] => create(name, PARTS),
        ["create", name, text] => create(name, parse_parts(text)?),
        ["run"] | ["run", _] => run(name).map(|measured| show(name, &measured, "ordinary calls")),
        ["pdx"] | ["pdx", _] => run_protected(name).map(|measured| show(name, &measured, "protected calls")),
        ["verify"] | ["verify", _] => verify(name),
        ["remove"] | ["remove", _] => {
            remove(name)?;
            println!("{name} deleted");
            Ok(())
        }
        ["bench"] => bench(),
        ["--serve", name] => serve(name),
        _ => {
            if !given.is_empty() {
                println!("oo1: '{}' is none of these:", given.join(" "));
            }
            println!("{USAGE}");
            rt::exit(2)
        }
    }
}

fn parse_parts(text: &str) -> Outcome<u32> {
    match text.parse() {
        Ok(parts) if PARTS_RANGE.contains(&parts) => Ok(parts),
        _ => said(format!(
            "'{text}' is not a number of parts from {} to {}",
            PARTS_RANGE.start(),
            PARTS_RANGE.end()
        )),
    }
}

/// Makes a database under a name and puts it on stable storage.
fn create(name: &str, parts: u32) -> Outcome {
    let object = make(name, parts)?;
    let digest = Database::open(object.region()).map_or(0, |database| database.digest());
    println!("{name}: {parts} parts at {:#x}, digest {digest:#018x}", object.base());
    Ok(())
}

fn make(name: &str, parts: u32) -> Outcome<Object> {
    let mut directory = Directory::root()?;
    let object = match directory.create(name, Kind::Data, database::size(parts), database::size(parts)) {
        Err(rt::Error::Directory(rt::names::directory::Error::Exists)) => {
            return said(format!(
                "{name} is there already; 'rm {}' would destroy it, and 'oo1 create NAME' takes another name",
                Quoted(name)
            ));
        }
        other => other?,
    };
    match fill(object.base(), parts) {
        Ok(()) => Ok(object),
        Err(why) => {
            directory.delete(name, Kind::Data)?;
            said(format!(
                "{name}: {parts} parts were not made, and nothing is left of them: {why}"
            ))
        }
    }
}

/// Makes a database in an object and puts it on stable storage. A thread of its own writes it: where disk or memory end, the fault
/// ends that thread alone.
fn fill(address: u64, parts: u32) -> Outcome {
    let work = move || -> rt::Result<()> {
        let object = Object::open(address)?;
        Database::make(object.region(), parts).ok_or(rt::abi::Error::BadArgument)?;
        let (clist, directory) = (rt::Clist::root()?, Directory::root()?);
        Ok(Object::flush_together(&[&object, clist.object(), directory.object()])?)
    };
    let result = Arc::new(Mutex::new(None));
    let place = Arc::clone(&result);
    let report = thread::spawn(move || {
        *place.lock() = Some(work());
        0
    })?
    .join()?;
    let image = Image {
        name: "its writer",
        base: 0,
        bytes: 0,
    };
    match result.lock().take() {
        Some(result) => Ok(result?),
        None => said(format!("{}", Shown { report, image })),
    }
}

/// The object of a name, if there is a database in it.
fn database_object(name: &str) -> Outcome<Object> {
    let directory = Directory::root()?;
    let Some(object) = directory.open_object(name)? else {
        return said(format!(
            "there is no '{name}'; make it with: oo1 create {}",
            Quoted(name)
        ));
    };
    if Database::open(object.region()).is_none() {
        return said(format!("'{name}' is not an OO1 database"));
    }
    Ok(object)
}

/// Opens a database, and undoes an interrupted insert.
fn open(name: &str) -> Outcome<(Object, u32)> {
    let object = database_object(name)?;
    let database = Database::open(object.region()).ok_or(rt::Error::NoSuchName)?;
    let removed = database.undo();
    if removed > 0 {
        println!("{name}: {removed} parts of an interrupted run removed");
    }
    let initial = database.initial();
    Ok((object, initial))
}

/// Runs the benchmark by ordinary calls, in the client's own domain.
fn run(name: &str) -> Outcome<Measured> {
    let (object, initial) = open(name)?;
    let database = Database::open(object.region()).ok_or(rt::Error::NoSuchName)?;
    // Out of the compiler's sight, as the two-domain version's procedure is.
    let procedure: client::Procedure = core::hint::black_box(client::deliver);
    let call = |operation, w0, w1, w2| {
        let deliver = move |[w0, w1, w2, w3]: Words| procedure(w0, w1, w2, w3);
        Some(match operation {
            Operation::Lookup => database.lookup(w0, deliver),
            Operation::Forward => database.forward(w0, deliver),
            Operation::Reverse => database.reverse(w0, deliver),
            Operation::Insert => database.insert([w0, w1, w2], deliver),
            Operation::Undo => database.undo(),
            Operation::Digest => database.digest(),
        })
    };
    run_rounds(&Work::prepare(initial), &call, rt::time::ticks).map_err(Complaint::Rounds)
}

/// Runs it by protected calls: the database in its own domain, called back in the client's.
fn run_protected(name: &str) -> Outcome<Measured> {
    let (_, initial) = open(name)?;
    let service = find_service(name)?;
    let connection = Connection::open(&service)?;
    let procedure = service::deliver_entry();
    let reason = Cell::new(None);
    let call = |operation, w0, w1, w2| {
        let result = service.call(operation, [w0, w1, w2], procedure);
        result.map_err(|error| reason.set(Some(error))).ok()
    };
    let measured = run_rounds(&Work::prepare(initial), &call, rt::time::ticks)
        .map_err(|failure| reason.take().map_or(Complaint::Rounds(failure), Complaint::Runtime));
    connection.close()?;
    measured
}

fn service_name(name: &str) -> String {
    format!("{name}.pdx")
}

/// The service of a database; made by a task of its own if there is none yet.
fn find_service(name: &str) -> Outcome<Service> {
    let directory = Directory::root()?;
    let service = service_name(name);
    match Service::find(&directory, &service) {
        Ok(found) => Ok(found),
        Err(rt::Error::NoSuchName) => {
            let program = task::Program::find(&directory, arguments::program())?;
            let ended = program
                .start(arguments::program(), &["--serve", name], &task::Options::default())?
                .wait()?;
            if ended.report.status != 0 {
                return said(format!("the service was not made: {ended}"));
            }
            Ok(Service::find(&directory, &service)?)
        }
        Err(error) => said(format!(
            "'{service}' is not the service of '{name}': {error}; rename or remove it"
        )),
    }
}

/// The task that becomes the service of a database.
fn serve(name: &str) -> Outcome {
    let (object, _) = open(name)?;
    Ok(service::install(&mut Directory::root()?, &service_name(name), &object)?)
}

/// Prints the results of the rounds, for people.
fn show(name: &str, measured: &Measured, how: &str) {
    println!("{name}, {how}: ticks of the warm rounds (median of nine), checksum");
    for (part, title) in MEASURED.iter().enumerate() {
        println!(
            "  {title:<8}{:>12}  {:#018x}",
            measured.warm[part], measured.checksums[part]
        );
    }
    println!(
        "  {:<8}{:>12}  {:#018x}",
        "round",
        measured.warm.iter().sum::<u64>(),
        measured.checksum
    );
    println!("  {:<8}{:>12}  {:#018x}", "digest", "", measured.digest);
}

fn verify(name: &str) -> Outcome {
    let (object, _) = open(name)?;
    let database = Database::open(object.region()).ok_or(rt::Error::NoSuchName)?;
    println!(
        "{name}: {} parts at {:#x}, digest {:#018x}",
        database.count(),
        object.base(),
        database.digest()
    );
    Ok(())
}

/// Deletes a database and its service. An entry that has the service's name and is not its service stays.
fn remove(name: &str) -> Outcome {
    let mut directory = Directory::root()?;
    if matches!(directory.find(name), Err(rt::Error::NoSuchName)) {
        return said(format!("there is no '{name}'; 'ls /' lists the names"));
    }
    let object = database_object(name)?;
    let service = service_name(name);
    if directory.find(&service).is_ok_and(|found| found.kind == Kind::Service) {
        let property = Service::find(&directory, &service).and_then(|service| service.property());
        if property.is_ok_and(|(_, database)| database != object.base()) {
            return said(format!("{service} is not the service of '{name}'; nothing is deleted"));
        }
        directory.delete(&service, Kind::Service)?;
        if let Ok((clist, _)) = property {
            rt::call::obj_delete(clist)?;
            rt::Clist::root()?.remove_all(clist)?;
        }
    }
    Ok(directory.delete(name, Kind::Data)?)
}

/// Measures both ways and prints the rows.
fn bench() -> Outcome {
    let ticks_per_us = system::boot()?.ticks_per_us;
    if Directory::root()?.find(BENCH_NAME).is_ok() {
        return said(format!(
            "'{BENCH_NAME}' is there already, perhaps from a run that was interrupted; 'oo1 remove {BENCH_NAME}' deletes a database"
        ));
    }
    make(BENCH_NAME, PARTS)?;
    let near = run(BENCH_NAME)?;
    println!("{}", near.row("oo1-one-domain", ticks_per_us));
    let far = run_protected(BENCH_NAME)?;
    println!("{}", far.row("oo1-two-domains", ticks_per_us));
    remove(BENCH_NAME)?;
    if (near.checksum, near.digest) != (far.checksum, far.digest) {
        return said(String::from("the two ways gave different checksums"));
    }
    Ok(())
}
