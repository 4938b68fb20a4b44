//! Modules: shared text and private data, late and early binding, cycles, versions, and what is refused.
//!
//! The module objects lie on the disk as files, as the host tool built them (`./gond module system`); each case puts those
//! that it needs on the shelf and takes them away again.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use abi::{Rights, address::PAGE};
use rt::{
    Cell, Directory, Kind, Object, call,
    module::{Binding, Error, Instance, Modules, shelf},
    pdx::{self, Domain, Entry},
    task::Options,
};

use testing::Random;

use crate::{
    arch, assistant,
    case::{Case, Failure, Outcome, Role, Setting, case, ensure, ensure_eq, ensure_error, role},
};

pub const CASES: &[Case] = &[
    case("modules/text-is-everybodys-and-data-is-private", shared_and_private),
    case("modules/instances-of-one-task", several_instances),
    case("modules/a-hundred-instances-share-their-thunks", frames),
    case("modules/late-binding", late),
    case("modules/early-binding-names-what-is-missing", early),
    case("modules/inline-calls", inline_calls),
    case("modules/cycles-end", cycles),
    case("modules/across-a-protected-call", across),
    case("modules/the-newest-by-name-the-old-for-who-has-it", versions),
    case("modules/what-is-used-is-not-destroyed", in_use),
    case("modules/what-was-interrupted-is-finished", interrupted),
    case("modules/a-name-goes-with-its-own-module", renamed),
    case("modules/names-that-lead-nowhere", nowhere),
    case("modules/damaged-objects-are-refused", damaged),
    case("modules/c-library", c_library),
];

pub const ROLES: &[Role] = &[
    role("module-count", count_elsewhere),
    role("module-unbound", call_unbound),
    role("module-hold", hold),
];

/// Puts modules on the shelf, runs a story, and takes them away again.
pub fn with(files: &[&str], story: impl FnOnce() -> Outcome) -> Outcome {
    let mut installed = Vec::new();
    for file in files {
        let name = format!("{file}.mm");
        match shelf::install_file(&name) {
            Ok(full) => installed.push(full),
            Err(Error::Runtime(rt::Error::NoSuchName)) => {
                return Err(Failure::new(format_args!(
                    "{name} is not on this disk: './gond module system' builds it, './gond import' brings it"
                )));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let told = story();
    for full in installed.iter().rev() {
        match shelf::remove(full) {
            // The story may have done it.
            Ok(_) | Err(Error::Missing { .. }) => {}
            Err(error) if told.is_ok() => return Err(error.into()),
            Err(_) => {}
        }
    }
    told
}

fn number(modules: &'static Modules, instance: Instance, function: &str) -> Outcome<i64> {
    Ok(arch::call_export(modules, instance, function, [0; 4])?.cast_signed())
}

fn shared_and_private(_: &Setting) -> Outcome {
    with(&["counter"], || {
        let modules = Modules::new(Binding::Eager);
        let counter = modules.instance("counter")?;
        ensure_eq!(modules.instance("counter")?, counter);
        for expected in 1..=3 {
            ensure_eq!(number(modules, counter, "counter_next")?, expected);
        }
        let address = modules.module_address(counter).unwrap_or(0);
        let before = call::obj_info(address)?;
        ensure!(
            before.rights & u64::from(Rights::W.bits()) == 0,
            "a module may be written: {before:x?}"
        );
        // Another task uses the same object, at the same address, and counts from the beginning.
        assistant::run_well("module-count", &[address, 5], &Options::default(), 5)?;
        let after = call::obj_info(address)?;
        ensure_eq!(after.resident, before.resident);
        ensure_eq!(number(modules, counter, "counter_peek")?, 3);
        ensure!(
            modules
                .data_address(counter)
                .is_some_and(|data| !(before.base..before.base + before.bytes).contains(&data))
        );
        ensure!(arch::call_export(modules, counter, "nothing_like_it", [0; 4]).is_err());
        // The shell's sentence about a program that failed in it.
        let symbols = shelf::find("counter")?.symbols();
        let next = symbols.iter().find(|symbol| symbol.name == "counter_next");
        let place = next.and_then(|symbol| shelf::place_of(symbol.address + 1));
        let expected = format!("; in counter_next+0x1 of counter-{}", modules.version(counter));
        ensure_eq!(place.map(|place| place.to_string()), Some(expected));
        ensure_eq!(
            shelf::place_of(before.base),
            Some(shelf::Place {
                module: format!("counter-{}", modules.version(counter)),
                function: String::new(),
                offset: 0,
            })
        );
        ensure_eq!(shelf::place_of(modules.data_address(counter).unwrap_or(0)), None);
        Ok(())
    })
}

/// Counts in an instance of its own; gives how far it came, or 0 if the module is not at this address.
fn count_elsewhere(numbers: &[u64; 6]) -> u64 {
    let [address, times, ..] = *numbers;
    let modules = Modules::new(Binding::Lazy);
    let Ok(counter) = modules.instance("counter") else {
        return 0;
    };
    if modules.module_address(counter) != Some(address) {
        return 0;
    }
    let mut last = Ok(0);
    for _ in 0..times {
        last = arch::call_export(modules, counter, "counter_next", [0; 4]);
    }
    last.unwrap_or(0)
}

fn several_instances(_: &Setting) -> Outcome {
    with(&["counter"], || {
        let modules = Modules::new(Binding::Eager);
        let (first, second) = (modules.instance("counter")?, modules.another("counter")?);
        let functions = [first, second].map(|one| modules.symbol(one, "counter_next").unwrap_or(0));
        ensure!(
            functions[0] != functions[1] && !functions.contains(&0),
            "{functions:x?}"
        );
        for round in 1..=5 {
            ensure_eq!(arch::call_at(functions[0], [0; 4]), round);
            ensure_eq!(arch::call_at(functions[1], [0; 4]), round);
            ensure_eq!(arch::call_at(functions[1], [0; 4]) - 1, round);
            ensure_eq!(arch::call_export(modules, second, "counter_peek", [0; 4])?, round + 1);
            // An instance that was used begins anew for the next.
            let data = modules.data_address(second);
            modules.release(second);
            ensure_eq!(modules.another("counter")?, second);
            ensure_eq!(modules.data_address(second), data);
            for _ in 0..round {
                arch::call_at(functions[1], [0; 4]);
            }
        }
        ensure_eq!(modules.count(), 2);
        Ok(())
    })
}

/// Frames in use.
fn used() -> Outcome<u64> {
    let memory = rt::system::memory()?;
    Ok(memory.frames - memory.free)
}

fn frames(_: &Setting) -> Outcome {
    const INSTANCES: u64 = 100;
    with(&["counter"], || {
        let modules = Modules::new(Binding::Eager);
        let counter = modules.instance("counter")?;
        let before = used()?;
        for _ in 0..INSTANCES {
            let one = modules.another("counter")?;
            ensure_eq!(number(modules, one, "counter_next")?, 1);
        }
        let taken = used()? - before;
        // A page of data each, and tables; a copy of the thunks would be another page each.
        ensure!(
            taken < INSTANCES + INSTANCES / 4,
            "{INSTANCES} instances took {taken} frames"
        );
        ensure_eq!(number(modules, counter, "counter_next")?, 1);
        Ok(())
    })
}

fn late(_: &Setting) -> Outcome {
    with(&["counter", "client"], || {
        let modules = Modules::new(Binding::Lazy);
        let client = modules.instance("client")?;
        ensure_eq!(modules.count(), 1);
        ensure_eq!(number(modules, client, "client_sum")?, 21 + 70 + 800);
        ensure_eq!(modules.count(), 2);
        ensure_eq!(number(modules, client, "client_next")?, 1);
        ensure_eq!(number(modules, client, "client_next")?, 2);
        ensure_eq!(number(modules, client, "client_used")?, 3);
        // It is the same instance that others in the table get.
        let counter = modules.known("counter").ok_or(Error::NoInstance(0))?;
        ensure_eq!(number(modules, counter, "counter_next")?, 3);
        ensure_eq!(number(modules, client, "client_peek")?, 3);
        // Nobody has installed what this calls: the thread ends, and says why.
        assistant::run_well("module-unbound", &[], &Options::default(), 126)
    })
}

/// Calls what is not there.
fn call_unbound(_: &[u64; 6]) -> u64 {
    let modules = Modules::new(Binding::Lazy);
    let Ok(client) = modules.instance("client") else {
        return 1;
    };
    arch::call_export(modules, client, "client_absent", [1, 0, 0, 0]).map_or(2, |_| 3)
}

fn early(_: &Setting) -> Outcome {
    with(&["counter", "client"], || {
        let modules = Modules::new(Binding::Eager);
        let Err(error) = modules.instance("client") else {
            return Err(Failure::new(format_args!("it was bound to nothing")));
        };
        let text = error.to_string();
        for part in ["client", "'absent_function'", "absent", "not installed"] {
            ensure!(text.contains(part), "'{part}' is not in: {text}");
        }
        // Nothing half made is left.
        ensure_eq!(modules.count(), 0);
        let text = shelf::find("absent").map_or_else(|error| error.to_string(), |_| "found".to_string());
        ensure!(text.contains("absent"), "{text}");
        Ok(())
    })
}

fn inline_calls(_: &Setting) -> Outcome {
    with(&["counter", "inline"], || {
        // A function that is called inline is there before the first call, whenever the rest is bound.
        let modules = Modules::new(Binding::Lazy);
        let client = modules.instance("inline")?;
        ensure_eq!(modules.count(), 2);
        let counter = modules.known("counter").ok_or(Error::NoInstance(0))?;
        ensure_eq!(number(modules, client, "inline_next")?, 1);
        ensure_eq!(number(modules, counter, "counter_next")?, 2);
        ensure_eq!(number(modules, client, "inline_peek")?, 2);
        ensure_eq!(number(modules, client, "inline_sum")?, 21 + 70 + 800);
        ensure_eq!(
            arch::call_export(modules, client, "inline_many", [4, 0, 0, 0])?,
            3 + 4 + 5 + 6
        );
        // Its own data is its own after each of them: it was used by 1, 1 and 4.
        ensure_eq!(arch::call_export(modules, client, "inline_back", [10, 0, 0, 0])?, 16);
        let further = modules.another("inline")?;
        ensure_eq!(arch::call_export(modules, further, "inline_back", [1, 0, 0, 0])?, 1);
        ensure_eq!(number(modules, further, "inline_next")?, 7);
        let other = Modules::new(Binding::Eager);
        let client = other.instance("inline")?;
        ensure_eq!(number(other, client, "inline_next")?, 1);
        // A newer exporter, which the client was not linked against.
        with(&["counter2"], || {
            let after = Modules::new(Binding::Lazy);
            let client = after.instance("inline")?;
            ensure_eq!(number(after, client, "inline_next")?, 100);
            ensure_eq!(number(after, client, "inline_next")?, 200);
            ensure_eq!(number(other, other.instance("inline")?, "inline_next")?, 2);
            Ok(())
        })
    })?;
    with(&["inline"], || {
        let Err(error) = Modules::new(Binding::Lazy).instance("inline") else {
            return Err(Failure::new(format_args!("it was bound to nothing")));
        };
        let text = error.to_string();
        for part in ["inline", "'counter_next'", "counter", "not installed"] {
            ensure!(text.contains(part), "'{part}' is not in: {text}");
        }
        Ok(())
    })
}

fn cycles(_: &Setting) -> Outcome {
    with(&["ping", "pong"], || {
        for (binding, at_first) in [(Binding::Eager, 2), (Binding::Lazy, 1)] {
            let modules = Modules::new(binding);
            let ping = modules.instance("ping")?;
            ensure_eq!(modules.count(), at_first);
            ensure_eq!(number(modules, ping, "ping_constructed")?, 7);
            // 5 4 3 2 1 0: the last of the six calls is pong's third.
            ensure_eq!(
                arch::call_export(modules, ping, "ping_down", [5, 0, 0, 0])?.cast_signed(),
                -3
            );
            ensure_eq!(modules.count(), 2);
            let pong = modules.instance("pong")?;
            ensure_eq!(number(modules, pong, "pong_calls")?, 3);
            ensure_eq!(arch::call_export(modules, pong, "pong_down", [1, 0, 0, 0])?, 4);
        }
        Ok(())
    })
}

/// The function of the service's own instance.
static COUNTS: AtomicU64 = AtomicU64::new(0);

rt::pdx_entry!(counting_entry, counting);
fn counting(_: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    (arch::call_at(COUNTS.load(SeqCst), [0; 4]), 0)
}

fn across(_: &Setting) -> Outcome {
    with(&["counter"], || {
        let (service, own) = (Modules::new(Binding::Eager), Modules::new(Binding::Eager));
        let counter = service.instance("counter")?;
        COUNTS.store(service.symbol(counter, "counter_next").unwrap_or(0), SeqCst);
        // The callee's domain has the image, the data of the service's instances, and the module.
        let mut clist = pdx::clist_for(&[])?;
        for object in service.memory() {
            pdx::grant(&mut clist, object, Rights::RWX)?;
        }
        clist.insert(shelf::look_up("counter")?.capability)?;
        let (image, _) = pdx::own_image().ok_or(rt::Error::NotAProgram)?;
        let entry: Entry = counting_entry();
        let password = pdx::register(image, &clist, &[entry])?;
        let mut ours = rt::Clist::create()?;
        ours.insert(abi::layout::Capability {
            address: image,
            password,
        })?;
        call::apd_insert(0, ours.object().base())?;
        let mine = own.instance("counter")?;
        for round in 1..=4 {
            let domain = if round % 2 == 0 { Domain::Empty } else { Domain::Merge };
            ensure_eq!(pdx::call(entry, domain, [0; 4])?.0, round);
            ensure_eq!(number(own, mine, "counter_next")?.cast_unsigned(), round);
        }
        ensure_eq!(own.module_address(mine), service.module_address(counter));
        // The domains of the procedure end with the right to call it.
        call::apd_delete(0)?;
        call::obj_passwd(image, password, 0)?;
        Ok(())
    })
}

fn versions(_: &Setting) -> Outcome {
    with(&["counter", "client"], || {
        let before = Modules::new(Binding::Lazy);
        let old = before.instance("counter")?;
        ensure_eq!(number(before, old, "counter_next")?, 1);
        with(&["counter2"], || {
            // A client of the old one keeps it, for later bindings, too.
            ensure_eq!(before.instance("counter")?, old);
            let client = before.instance("client")?;
            ensure_eq!(number(before, client, "client_next")?, 2);
            // A later program has the new one, and the client of the old one works with it.
            let after = Modules::new(Binding::Lazy);
            let client = after.instance("client")?;
            ensure_eq!(number(after, client, "client_next")?, 100);
            let new = after.instance("counter")?;
            ensure_eq!(after.version(new), "2.0");
            ensure_eq!(number(after, new, "counter_step")?, 100);
            // Both have their names.
            let named = shelf::find("counter-1.0")?;
            ensure_eq!(Some(named.address), before.module_address(old));
            let third = Modules::new(Binding::Lazy);
            let again = third.instance_at(named.address)?;
            ensure_eq!(third.version(again), "1.0");
            match shelf::install_file("counter2.mm") {
                Err(Error::Installed(name)) => ensure_eq!(name, "counter-2.0"),
                other => return Err(Failure::new(format_args!("the same version again: {other:?}"))),
            }
            Ok(())
        })?;
        // The newest is gone, so the one before it is the newest.
        ensure_eq!(shelf::find("counter")?.version(), "1.0");
        Ok(())
    })?;
    with(&["counter2"], || match shelf::install_file("counter.mm") {
        // It exports less than the newest, so it cannot take its place.
        Err(Error::Fault(fault)) => {
            let text = fault.to_string();
            ensure!(text.contains("counter"), "{text}");
            Ok(())
        }
        other => Err(Failure::new(format_args!("an older version took over: {other:?}"))),
    })
}

fn in_use(_: &Setting) -> Outcome {
    with(&["counter"], || {
        let address = shelf::look_up("counter")?.capability.address;
        let ready = Object::create(PAGE)?;
        let mut clist = rt::Clist::create()?;
        pdx::grant(&mut clist, ready.base(), Rights::RW)?;
        // The assistant holds what this task holds, and the page.
        call::apd_insert(0, clist.object().base())?;
        let user = assistant::start("module-hold", &[ready.base()], &Options::default())?;
        call::apd_delete(0)?;
        let step: &Cell<u64> = ready.first()?;
        assistant::wait_until("the module is used", || step.get() == 1)?;
        // Nobody has the right to destroy it by its address ...
        ensure_error!(call::obj_delete(address), Protection);
        // ... and who has it may not while it is used.
        match shelf::remove("counter") {
            Err(Error::InUse(name)) => ensure_eq!(name, "counter-1.0"),
            other => return Err(Failure::new(format_args!("removed under its user: {other:?}"))),
        }
        ensure_eq!(shelf::look_up("counter")?.capability.address, address);
        ensure_error!(call::obj_delete(address), Protection);
        step.set(2);
        let report = assistant::report_of(&user, assistant::PATIENCE_NS)?;
        ensure_eq!(report.status, 2);
        ensure_eq!(shelf::remove("counter")?, "counter-1.0");
        ensure_error!(call::obj_info(address), BadAddress);
        ensure!(matches!(shelf::look_up("counter"), Err(Error::Missing { .. })));
        Ok(())
    })
}

/// Uses the counter once, waits, uses it again; gives the count.
fn hold(numbers: &[u64; 6]) -> u64 {
    let modules = Modules::new(Binding::Eager);
    let (Ok(counter), Ok(page)) = (modules.instance("counter"), Object::open(numbers[0])) else {
        return 100;
    };
    let Ok(step) = page.first::<Cell<u64>>() else {
        return 101;
    };
    let first = arch::call_export(modules, counter, "counter_next", [0; 4]);
    if first.is_err() {
        return 102;
    }
    step.set(1);
    if assistant::wait_until("the word to go on", || step.get() == 2).is_err() {
        return 103;
    }
    arch::call_export(modules, counter, "counter_next", [0; 4]).unwrap_or(104)
}

/// What a power cut may leave of an installation or a removal is finished by the next start, which does the same.
fn interrupted(_: &Setting) -> Outcome {
    let root = Directory::root()?;
    shelf::install_file("counter.mm")?;
    let address = shelf::look_up("counter")?.capability.address;
    let mut directory = Directory::open(root.find(shelf::DIRECTORY)?.capability.address)?;
    // Cut between the two names: the next attempt finishes it, too.
    for again in [false, true] {
        directory.remove("counter")?;
        ensure!(matches!(shelf::look_up("counter"), Err(Error::Missing { .. })));
        if again {
            ensure!(matches!(shelf::install_file("counter.mm"), Err(Error::Installed(_))));
        } else {
            shelf::settle()?;
        }
        ensure_eq!(shelf::look_up("counter")?.capability.address, address);
    }
    // Of an installed second version: the short name is that of the first.
    let first = shelf::look_up("counter")?;
    shelf::install_file("counter2.mm")?;
    let second = shelf::look_up("counter-2.0")?;
    directory.replace("counter", first)?;
    shelf::settle()?;
    ensure_eq!(shelf::look_up("counter")?.capability.address, second.capability.address);
    shelf::remove("counter-2.0")?;
    ensure_eq!(shelf::look_up("counter")?.capability.address, address);
    // A removal whose long name went, and an object that has no name at all.
    for names in [&["counter-1.0"][..], &["counter-1.0", "counter"]] {
        if shelf::look_up("counter").is_err() {
            shelf::install_file("counter.mm")?;
        }
        let address = shelf::look_up("counter")?.capability.address;
        for name in names {
            directory.remove(name)?;
        }
        shelf::settle()?;
        ensure!(matches!(shelf::look_up("counter"), Err(Error::Missing { .. })));
        ensure_error!(call::obj_info(address), BadAddress);
    }
    Ok(())
}

/// The directory of modules.
fn shelf_directory() -> Outcome<Directory> {
    let found = Directory::root()?.find(shelf::DIRECTORY)?;
    Ok(Directory::open(found.capability.address)?)
}

fn renamed(_: &Setting) -> Outcome {
    shelf::install_file("counter.mm")?;
    let first = shelf::look_up("counter")?.capability.address;
    shelf_directory()?.rename("counter-1.0", "old")?;
    // A start finishes removals, and this is none.
    shelf::settle()?;
    ensure_eq!(shelf::find("old")?.address, first);
    shelf::install_file("counter.mm")?;
    let second = shelf::look_up("counter-1.0")?.capability.address;
    ensure!(first != second, "two modules at {first:#x}");
    ensure_eq!(shelf::remove("old")?, "old");
    ensure_error!(call::obj_info(first), BadAddress);
    ensure!(matches!(shelf::look_up("old"), Err(Error::Missing { .. })));
    for name in ["counter-1.0", "counter"] {
        ensure_eq!(shelf::find(name)?.address, second);
    }
    // All names go, whatever they are.
    let found = shelf::look_up("counter")?;
    shelf_directory()?.insert("other", found)?;
    ensure_eq!(shelf::remove("counter")?, "counter-1.0");
    for name in ["counter-1.0", "counter", "other"] {
        ensure!(matches!(shelf::look_up(name), Err(Error::Missing { .. })), "{name}");
    }
    Ok(())
}

fn nowhere(_: &Setting) -> Outcome {
    shelf::install_file("counter.mm")?;
    let found = shelf::look_up("counter")?;
    shelf::remove("counter")?;
    for name in ["counter-1.0", "counter"] {
        shelf_directory()?.insert(name, found)?;
    }
    for name in ["counter-1.0", "counter"] {
        match shelf::find(name) {
            Err(Error::LeadsNowhere(told)) => ensure_eq!(told, name),
            other => return Err(Failure::new(format_args!("found in nothing: {other:?}"))),
        }
    }
    shelf::settle()?;
    ensure_eq!(shelf::remove("counter-1.0")?, "counter-1.0");
    ensure!(shelf::list()?.is_empty(), "{:?}", shelf::list());
    Ok(())
}

fn damaged(setting: &Setting) -> Outcome {
    let root = Directory::root()?;
    let Some(file) = root.open_object("counter.mm")? else {
        return Err(Failure::new(format_args!("counter.mm is not on this disk")));
    };
    let whole: Vec<u8> = file.region().cells().iter().map(Cell::get).collect();
    let refuse = |what: &str, bytes: &[u8]| match shelf::install("damaged", bytes) {
        Err(Error::Fault(_)) => Ok(()),
        other => Err(Failure::new(format_args!("{what}: {other:?}"))),
    };
    refuse("nothing", &[])?;
    refuse("a header alone", whole.get(..256).unwrap_or_default())?;
    refuse("zeroes", &[0; 8192])?;
    // A file of an earlier tool is refused with advice.
    let mut earlier = whole.clone();
    earlier[7] -= 1;
    let text = shelf::install("earlier", &earlier).unwrap_or_else(|error| error.to_string());
    ensure!(text.contains("build it again"), "{text}");
    // Magic, version, address, the bytes of the data, a part, a name.
    for (at, byte) in [(0, 0), (7, 1), (9, 0xff), (27, 0xff), (51, 0xff), (39, 0xff)] {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        refuse(&format!("byte {at}"), &bytes)?;
    }
    // Whatever is changed, it is refused or it is a module; nothing worse.
    let mut random = Random::at(setting.seed, 0);
    let tables = 1024.min(whole.len() as u64);
    for _ in 0..60 {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(3) {
            bytes[random.below(tables) as usize] = random.word() as u8;
        }
        if let Ok(full) = shelf::install("changed", &bytes) {
            shelf::remove(&full)?;
        }
    }
    // A name on the shelf that leads to something else.
    with(&["pong"], || {
        let found = root.find(shelf::DIRECTORY)?;
        let mut directory = Directory::open(found.capability.address)?;
        let object = Object::create(PAGE)?;
        let mut forged = shelf::look_up("pong")?;
        forged.capability.address = object.base();
        directory.insert("forged", forged)?;
        let asked = Modules::new(Binding::Eager).instance("forged");
        directory.remove("forged")?;
        ensure!(matches!(asked, Err(Error::Fault(_))), "{asked:?}");
        ensure!(forged.kind == Kind::Module);
        Ok(())
    })
}

fn c_library(_: &Setting) -> Outcome {
    with(&["libc", "text"], || {
        for binding in [Binding::Eager, Binding::Lazy] {
            let modules = Modules::new(binding);
            let (text, other) = (modules.instance("text")?, modules.another("text")?);
            ensure_eq!(number(modules, text, "text_check")?, 0);
            ensure_eq!(number(modules, other, "text_check")?, 0);
            ensure_eq!(arch::call_export(modules, text, "text_mark", [2, 0, 0, 0])?, 2);
            ensure_eq!(arch::call_export(modules, other, "text_mark", [3, 0, 0, 0])?, 3);
            ensure_eq!(modules.count(), 3);
        }
        Ok(())
    })
}
