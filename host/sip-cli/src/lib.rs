//! `gond sip`: the engine on the host. `run` starts a program (WASI preview 1), `check` says what a
//! module imports and whether its code is proved, `new` makes a project that works.
//!
//! [`command`] is the whole interface: `gond` passes what stands after `sip` and exits with its
//! status. Errors go to standard error with the file's name; the status is the program's own, 134
//! after a trap, 2 for a command that is not understood.

use sip::compile::{Bounds, Options, compile};
use sip::exec::{Extern, HostError, LinkError, Program, Store, Trap};
use sip::module::{EntityType, Module};
use sip::verify::{check, verify};
use sip::wasi::{Errno, System, Wasi};
use std::io::{Read, Write};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const HELP: &str = "gond sip: software-isolated processes on the host

  gond sip run [--explicit] FILE.wasm [ARGUMENTS]   compile, verify and run a WASI program
  gond sip check [--explicit] FILE.wasm             what it imports, and whether its code is proved
  gond sip contract FILE.contract                   check a contract; print the modules to import from
  gond sip new NAME                                 a project to start from

  --explicit   compare before each access instead of relying on guard pages
";

/// Runs `gond sip` with these words; returns the exit status.
#[allow(
    clippy::case_sensitive_file_extension_comparisons,
    reason = "the flags end where the module's name begins"
)]
pub fn command(words: &[String]) -> i32 {
    let (flags, words): (Vec<&String>, Vec<&String>) = {
        let split = words
            .iter()
            .position(|word| word.ends_with(".wasm"))
            .unwrap_or(words.len());
        let (before, after) = words.split_at(split);
        let (flags, mut rest): (Vec<&String>, Vec<&String>) = before.iter().partition(|word| word.starts_with("--"));
        rest.extend(after);
        (flags, rest)
    };
    let mut options = Options::default();
    for flag in flags {
        match flag.as_str() {
            "--explicit" => options.bounds = Bounds::Explicit,
            "--help" => {
                print!("{HELP}");
                return 0;
            }
            other => return complain(&format!("unknown option {other}\n\n{HELP}"), 2),
        }
    }
    let result = match (words.first().map(|word| word.as_str()), words.get(1)) {
        (Some("run"), Some(file)) => run(file, &words[1..], options),
        (Some("check"), Some(file)) => check_file(file, options),
        (Some("contract"), Some(file)) => contract(file),
        (Some("new"), Some(name)) => new(name),
        (None | Some("help"), _) => {
            print!("{HELP}");
            Ok(0)
        }
        _ => Err((format!("not understood\n\n{HELP}"), 2)),
    };
    result.unwrap_or_else(|(text, status)| complain(&text, status))
}

type Outcome = Result<i32, (String, i32)>;

fn complain(text: &str, status: i32) -> i32 {
    eprintln!("gond sip: {text}");
    status
}

fn read(file: &str) -> Result<Vec<u8>, (String, i32)> {
    std::fs::read(file).map_err(|error| (format!("{file}: {error}"), 1))
}

struct Host {
    arguments: Vec<String>,
    environment: Vec<String>,
    start: Instant,
}

impl System for Host {
    fn arguments(&self) -> &[String] {
        &self.arguments
    }
    fn environment(&self) -> &[String] {
        &self.environment
    }
    fn write(&mut self, descriptor: u32, bytes: &[u8]) -> Result<usize, Errno> {
        let written = match descriptor {
            1 => std::io::stdout()
                .write_all(bytes)
                .and_then(|()| std::io::stdout().flush()),
            2 => std::io::stderr().write_all(bytes),
            _ => return Err(Errno::BadDescriptor),
        };
        written.map(|()| bytes.len()).map_err(|_| Errno::Io)
    }
    fn read(&mut self, descriptor: u32, bytes: &mut [u8]) -> Result<usize, Errno> {
        if descriptor != 0 {
            return Err(Errno::BadDescriptor);
        }
        std::io::stdin().read(bytes).map_err(|_| Errno::Io)
    }
    fn clock(&mut self, clock: u32) -> Result<u64, Errno> {
        let since = match clock {
            0 => SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| Errno::Io)?,
            1 => self.start.elapsed(),
            _ => return Err(Errno::Invalid),
        };
        u64::try_from(since.as_nanos()).map_err(|_| Errno::Io)
    }
    fn random(&mut self, bytes: &mut [u8]) {
        let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(bytes));
        if read.is_err() {
            bytes.fill(0);
        }
    }
}

fn run(file: &str, arguments: &[&String], options: Options) -> Outcome {
    let fail = |text: String| (format!("{file}: {text}"), 1);
    let image = compile(&read(file)?, options).map_err(|refusal| fail(refusal.to_string()))?;
    let module = image.module.clone();
    let image = verify(image).map_err(|violation| fail(format!("not proved: {violation}")))?;
    let program = Program::load(image).map_err(|error| fail(error.to_string()))?;
    let mut store = Store::new().map_err(|error| fail(error.to_string()))?;
    let wasi = Wasi::new(Host {
        arguments: arguments.iter().map(|word| (*word).clone()).collect(),
        environment: Vec::new(),
        start: Instant::now(),
    });
    let mut imports = Vec::new();
    for (at, import) in wasi.imports(&mut store, &module).into_iter().enumerate() {
        let wanted = &module.imports[at];
        let unknown = || LinkError::Unknown(wanted.module.clone(), wanted.name.clone());
        imports.push(import.ok_or_else(|| fail(unknown().to_string()))?);
    }
    let instance = store
        .instantiate(&program, &imports)
        .map_err(|error| fail(error.to_string()))?;
    if let Some(Extern::Memory(memory)) = store.export(instance, "memory") {
        wasi.set_memory(memory);
    }
    let Some(Extern::Func(start)) = store.export(instance, "_start") else {
        return Err(fail(
            "it exports no function '_start'; is it built as a program?".into(),
        ));
    };
    match store.call(start, &[]) {
        Ok(_) => Ok(0),
        Err(Trap {
            host: Some(HostError::Exit(status)),
            ..
        }) => Ok(status),
        Err(trap) => Err((format!("{file}: the process was stopped: {trap}"), 134)),
    }
}

fn describe(module: &Module, ty: &EntityType) -> String {
    match ty {
        EntityType::Func(ty) => {
            let ty = &module.types[*ty as usize];
            format!("function {:?} -> {:?}", ty.params, ty.results)
        }
        EntityType::Table(_) => "table".into(),
        EntityType::Memory(limits) => format!("memory of {} pages or more", limits.min),
        EntityType::Global(_) => "global".into(),
    }
}

fn check_file(file: &str, options: Options) -> Outcome {
    let bytes = read(file)?;
    let start = Instant::now();
    let image = compile(&bytes, options).map_err(|refusal| (format!("{file}: {refusal}"), 1))?;
    let compiled = start.elapsed();
    println!(
        "{file}: {} bytes, {} functions, compiled in {compiled:.1?}",
        bytes.len(),
        image.functions.len()
    );
    for import in &image.module.imports {
        println!(
            "  imports {}.{}: {}",
            import.module,
            import.name,
            describe(&image.module, &import.ty)
        );
    }
    let start = Instant::now();
    match check(&image) {
        Ok(instructions) => {
            let spent = start.elapsed();
            println!(
                "proved: {} bytes of machine code, {instructions} instructions, in {spent:.1?}",
                image.code.len()
            );
            Ok(0)
        }
        Err(violation) => Err((format!("{file}: NOT proved: {violation}"), 1)),
    }
}

fn contract(file: &str) -> Outcome {
    use sip::contract::{Contract, Side};
    let fail = |text: String| (format!("{file}: {text}"), 1);
    let text = String::from_utf8(read(file)?).map_err(|error| fail(error.to_string()))?;
    let contract = Contract::parse(&text).map_err(|error| fail(error.to_string()))?;
    for side in [Side::Client, Side::Server] {
        println!("{}", contract.import_module(side));
        for (at, message) in contract.messages.iter().enumerate() {
            if contract.sends(side, at) {
                println!("  {}: {:?}", message.name, contract.send_type(at).params);
            }
        }
    }
    println!("at most {} messages under way in one direction", contract.queue());
    Ok(0)
}

fn new(name: &str) -> Outcome {
    let good = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if !good {
        return Err((
            format!("'{name}' is no name for a project: letters, digits, '-' and '_'"),
            2,
        ));
    }
    let fail = |error: std::io::Error| (format!("{name}: {error}"), 1);
    std::fs::create_dir(name).map_err(fail)?;
    std::fs::create_dir(format!("{name}/src")).map_err(fail)?;
    let manifest = format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n");
    std::fs::write(format!("{name}/Cargo.toml"), manifest).map_err(fail)?;
    let main = "fn main() {\n    let name = std::env::args().nth(1).unwrap_or_else(|| \"world\".into());\n    println!(\"Hello, {name}, from a software-isolated process.\");\n}\n";
    std::fs::write(format!("{name}/src/main.rs"), main).map_err(fail)?;
    let file = name.to_string();
    println!(
        "made {name}. Build and run it:\n\n  cd {name}\n  rustup target add wasm32-wasip1\n  cargo build --release --target wasm32-wasip1\n  gond sip run target/wasm32-wasip1/release/{file}.wasm\n"
    );
    Ok(0)
}
