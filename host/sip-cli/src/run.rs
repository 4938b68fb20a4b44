//! `gond sip run`: one program, or two that a channel joins. They take turns on one thread, and each
//! ends by itself: the other sees its peer gone.

use crate::host::Host;
use crate::{Outcome, explicit, image, misused, read_contract};
use sip::compile::Options;
use sip::contract::{Contract, Protocol, Side};
use sip::exec::{Deadline, Exchange, Extern, Group, HostError, Program, Trap};
use sip::module::{EntityType, Module};
use sip::wasi::Wasi;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the exchange heap, its blocks and its channels.
const HEAP: (usize, u32, u32) = (256 << 20, 1 << 16, 256);

/// The options of the command line.
#[derive(Default)]
struct Words {
    options: Option<Options>,
    /// How long the programs may run.
    timeout: Option<Duration>,
    contracts: Vec<String>,
    /// Directories of the host and their names for the programs.
    directories: Vec<(String, String)>,
    environment: Vec<String>,
    /// Each program's file and its arguments.
    programs: Vec<Vec<String>>,
}

/// How much longer than its time a function of the host may wait before everything is ended.
const PATIENCE: Duration = Duration::from_secs(1);

fn seconds(text: &str) -> Result<Duration, (String, i32)> {
    let seconds = text
        .parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let seconds = seconds.filter(|time| !time.is_zero());
    seconds.ok_or_else(|| {
        misused(&format!(
            "--timeout cannot be '{text}': it is a number of seconds above 0"
        ))
    })
}

fn parse(words: &[String]) -> Result<Words, (String, i32)> {
    let mut parsed = Words::default();
    let mut words = words.iter();
    let mut plain = false;
    while let Some(word) = words.next() {
        if !plain && word == "--" && !parsed.programs.is_empty() {
            plain = true;
        } else if !plain && image::is_program(word) {
            parsed.programs.push(vec![word.clone()]);
        } else if let Some(program) = parsed.programs.last_mut() {
            program.push(word.clone());
        } else {
            let mut value = |what: &str| {
                let value = words.next().cloned();
                value.ok_or_else(|| misused(&format!("{word} wants {what}")))
            };
            match word.as_str() {
                "--explicit" => parsed.options = Some(explicit()),
                "--timeout" => parsed.timeout = Some(seconds(&value("SECONDS")?)?),
                "--channel" => parsed.contracts.push(value("a FILE.contract")?),
                "--env" => parsed.environment.push(value("NAME=VALUE")?),
                "--dir" => {
                    let path = value("a directory")?;
                    let (path, name) = path.rsplit_once('=').unwrap_or((&path, &path));
                    parsed.directories.push((path.into(), name.into()));
                }
                other if other.starts_with("--") => return Err(misused(&format!("run knows no option {other}"))),
                other => return Err(misused(&format!("'{other}' is no FILE.wasm and no IMAGE.sip"))),
            }
        }
    }
    match (parsed.programs.len(), parsed.contracts.is_empty()) {
        (0, _) => Err(misused("run wants a FILE.wasm")),
        (1, true) | (2, false) => Ok(parsed),
        (1, false) => Err(misused("a channel joins two programs, and only one FILE.wasm is named")),
        (2, true) => Err(misused(
            "two programs want a channel between them: --channel FILE.contract",
        )),
        _ => Err(misused("run starts one program, or two with a channel")),
    }
}

/// Which of a contract's sides a module is, by its imports.
fn sides(module: &Module, contract: &Contract) -> Vec<Side> {
    let mut sides: Vec<Side> = Vec::new();
    for import in &module.imports {
        if let Some((side, name, _)) = Side::of_module(&import.module)
            && name == contract.name
            && !sides.contains(&side)
        {
            sides.push(side);
        }
    }
    sides
}

/// Tells which of two modules is the client; their imports say so.
fn client(contract: &Contract, [a, b]: [(&str, &Module); 2]) -> Result<usize, (String, i32)> {
    let name = &contract.name;
    let (ours, theirs) = (sides(a.1, contract), sides(b.1, contract));
    let may = |sides: &[Side], side| sides.contains(&side);
    for ((file, _), sides) in [(a, &ours), (b, &theirs)] {
        if sides.is_empty() {
            return Err((
                format!("{file}: imports nothing of the contract {name}; build it with the bindings of that contract"),
                1,
            ));
        }
    }
    // Where a module is both, the first on the command line is the client.
    if may(&ours, Side::Client) && may(&theirs, Side::Server) {
        Ok(0)
    } else if may(&ours, Side::Server) && may(&theirs, Side::Client) {
        Ok(1)
    } else {
        let side = ours[0].name();
        Err((format!("{} and {} are both the {side} of {name}", a.0, b.0), 1))
    }
}

/// Runs `gond sip run`.
pub fn command(words: &[String]) -> Outcome {
    let words = parse(words)?;
    let mut protocols = Vec::new();
    for file in &words.contracts {
        protocols.push(Protocol::new(read_contract(file)?));
    }
    let mut programs = Vec::new();
    for arguments in &words.programs {
        let file = &arguments[0];
        let fail = |text: String| (format!("{file}: {text}"), 1);
        let image = image::prove(file, image::load(file, words.options)?)?;
        programs.push(Program::load(image).map_err(|error| fail(error.to_string()))?);
    }
    let heap = Exchange::new(HEAP.0, HEAP.1, HEAP.2).map_err(|error| (error.to_string(), 1))?;
    let mut group = Group::new(&heap);
    // Start functions run as soon as there is an instance.
    let _limit = words.timeout.map(limit).transpose()?;
    for (arguments, program) in words.programs.iter().zip(&programs) {
        add(&mut group, program, arguments, &protocols, &words)?;
    }
    for protocol in &protocols {
        let named = |at: usize| (words.programs[at][0].as_str(), &*programs[at].image().module);
        let client = client(protocol.contract(), [named(0), named(1)])?;
        let joined = group.connect(protocol, client, 1 - client);
        joined.map_err(|error| (error.message().to_string(), 1))?;
    }
    let mut status = 0;
    for (outcome, arguments) in group.run().into_iter().zip(&words.programs) {
        let ended = match outcome {
            Ok(()) => 0,
            Err(Trap {
                host: Some(HostError::Exit(status)),
                ..
            }) => status,
            Err(trap) => {
                eprintln!("gond sip: {}: the process was stopped: {trap}", arguments[0]);
                134
            }
        };
        if status == 0 {
            status = ended;
        }
    }
    Ok(status)
}

/// Ends what this thread runs from now on after so long; and everything, if that waits for the host.
fn limit(time: Duration) -> Result<Deadline, (String, i32)> {
    let fail = |error: std::io::Error| (format!("no timer for --timeout: {error}"), 1);
    std::thread::Builder::new()
        .spawn(move || {
            std::thread::sleep(time.saturating_add(PATIENCE));
            eprintln!("gond sip: a process waits for the host, and its time is over");
            Deadline::end_program(134);
        })
        .map_err(fail)?;
    Deadline::after(time).map_err(fail)
}

fn add(
    group: &mut Group,
    program: &Arc<Program>,
    arguments: &[String],
    protocols: &[Arc<Protocol>],
    words: &Words,
) -> Result<(), (String, i32)> {
    let file = &arguments[0];
    let fail = |text: String| (format!("{file}: {text}"), 1);
    let process = group.add().map_err(|error| fail(error.to_string()))?;
    let store = group.store(process);
    for protocol in protocols {
        store.offer(protocol);
    }
    let host = Host::new(arguments, &words.environment, &words.directories).map_err(|text| (text, 1))?;
    let wasi = Wasi::new(host);
    let module = program.image().module.clone();
    let mut imports = Vec::new();
    for (import, wasi) in module.imports.iter().zip(wasi.imports(store, &module)) {
        let named = |text: &str| fail(format!("it imports {}.{}: {text}", import.module, import.name));
        let met = match (wasi, import.ty) {
            (Some(met), _) => met,
            (None, EntityType::Func(ty)) => store
                .service(&import.module, &import.name, &module.types[ty as usize])
                .ok_or_else(|| named("nobody here provides that"))?
                .map_err(|text| named(&text))?,
            _ => return Err(named("nobody here provides that")),
        };
        imports.push(met);
    }
    let instance = store
        .instantiate(program, &imports)
        .map_err(|error| fail(error.to_string()))?;
    if let Some(Extern::Memory(memory)) = store.export(instance, "memory") {
        wasi.set_memory(memory);
    }
    let Some(Extern::Func(start)) = store.export(instance, "_start") else {
        return Err(fail(
            "it exports no function '_start'; is it built as a program?".into(),
        ));
    };
    group.start(process, start);
    Ok(())
}
