//! The costs of an instance: time and memory.

use super::{Row, gcc, median, module_object, output};
use crate::host::{Binding, Library, Task};
use crate::{make, sources};
use linker::module::window::{WINDOW_START, Window};
use linker::module::{Module, instance};
use serde_json::json;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const EXPORTS: usize = 1000;
const TIMES: usize = 2001;

/// Sources and descriptions of a library of 1,000 exports that all need its data, and of a client of all.
fn write_sources(folder: &Path) -> Result<(), String> {
    let (mut library, mut client) = (String::from("static int v;\n"), String::new());
    let (mut exports, mut body) = (String::new(), String::new());
    for index in 0..EXPORTS {
        let _ = writeln!(library, "int f{index}(int x) {{ return v += x + {index}; }}");
        let _ = writeln!(client, "int f{index}(int x);");
        let _ = writeln!(body, "x += f{index}(x);");
        let _ = writeln!(exports, "f{index}");
    }
    let _ = writeln!(client, "int use(int x) {{ {body} return x; }}");
    let files = [
        ("thousand.c", library),
        ("client1000.c", client),
        (
            "thousand.md",
            format!("[MODULE]\nname thousand\nversion 1\n[EXPORTS]\n{exports}[OBJECTS]\nthousand.o\n"),
        ),
        (
            "client1000.md",
            "[MODULE]\nname client1000\nversion 1\n[IMPORTS]\nthousand.md\n[EXPORTS]\nuse\n[OBJECTS]\nclient1000.o\n"
                .into(),
        ),
    ];
    for (name, text) in files {
        crate::write(&folder.join(name), text.as_bytes())?;
    }
    Ok(())
}

fn row(name: &'static str, system: &str, ns: Option<u64>, more: serde_json::Value) -> Row {
    Row {
        name,
        system: system.into(),
        instructions: None,
        ns,
        more,
    }
}

/// Builds both in a folder: their names and module objects.
pub(crate) fn thousand(folder: &Path) -> Result<[(&'static str, Vec<u8>); 2], String> {
    write_sources(folder)?;
    let mut window = Window::default();
    let mut build = |name| {
        let source = folder.join(format!("{name}.c"));
        module_object(folder, &source, &format!("{name}.o"), &[])?;
        let description = folder.join(format!("{name}.md"));
        let (_, built) = make::make(&description, &[], &mut window).map_err(|error| error.to_string())?;
        Ok::<_, String>((name, built.object))
    };
    Ok([build("thousand")?, build("client1000")?])
}

/// An instance of a library of 1,000 exports for a client that knows them all.
pub(super) fn instantiate(folder: &Path) -> Result<Vec<Row>, String> {
    let objects = thousand(folder)?.map(|(_, object)| object);
    let library = Module::open("thousand", &objects[0]).map_err(|fault| fault.to_string())?;
    let client = Module::open("client1000", &objects[1]).map_err(|fault| fault.to_string())?;
    // A warm pool: the memory of earlier instances, used again.
    let mut own = vec![0; library.data_bytes as usize];
    let mut importer = vec![0; client.data_bytes as usize];
    instance::instantiate(&client, 0x1000, instance::Runtime::default(), &mut importer);
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let start = Instant::now();
        instance::instantiate(&library, 0x10_0000, instance::Runtime::default(), &mut own);
        let bound = instance::bind(&client, &mut importer, 0, &library, 0x10_0000, None);
        times.push(start.elapsed().as_nanos() as u64);
        bound.map_err(|fault| fault.to_string())?;
    }
    let mut rows = vec![row(
        "link-instantiate",
        "module",
        Some(median(&mut times)),
        json!({"exports": EXPORTS}),
    )];
    // The same with new memory from the host's system.
    let (one, two) = (objects[0].clone(), objects[1].clone());
    let load = |name: &str, object| Library::load(name, object).map_err(|error| error.to_string());
    let libraries = [load("thousand", one)?, load("client1000", two)?];
    let mut times = Vec::new();
    for _ in 0..TIMES / 10 {
        let task = Task::new(Binding::Eager);
        for library in &libraries {
            task.add(library);
        }
        let start = Instant::now();
        let made = task.instance("client1000");
        times.push(start.elapsed().as_nanos() as u64);
        made.map_err(|error| error.to_string())?;
    }
    rows.push(row(
        "link-instantiate",
        "module-mapped",
        Some(median(&mut times)),
        json!({"exports": EXPORTS, "instances": 2}),
    ));
    gcc(folder, ["-fPIC", "-shared", "thousand.c", "-o", "libthousand.so"])?;
    let client = [
        "-fPIC",
        "-shared",
        "client1000.c",
        "-o",
        "libclient1000.so",
        "-L.",
        "-lthousand",
    ];
    gcc(folder, client.iter().chain(&["-Wl,-rpath,$ORIGIN"]))?;
    gcc(
        folder,
        [
            super::sources().join("dlopen.c").display().to_string().as_str(),
            "-o",
            "dlopen",
        ],
    )?;
    for (system, mode) in [("elf-now", "now"), ("elf-lazy", "lazy")] {
        let mut command = Command::new(folder.join("dlopen"));
        command.current_dir(folder).args(["./libclient1000.so", mode, "501"]);
        let ns = output(&mut command)?.trim().parse().ok();
        rows.push(row(
            "link-instantiate",
            system,
            ns,
            json!({"exports": EXPORTS, "instances": 2}),
        ));
    }
    Ok(rows)
}

/// Bytes in ranges of addresses that are this process's alone: copied pages, and those that began as zero.
fn private_bytes(ranges: &[(u64, u64)]) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let mut counted = false;
    let mut sum = 0;
    for line in maps.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if let Some((start, _)) = first.split_once('-')
            && let Ok(start) = u64::from_str_radix(start, 16)
        {
            counted = ranges.iter().any(|(from, to)| (*from..*to).contains(&start));
        } else if counted && line.starts_with("Anonymous:") {
            let kilobytes = line.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
            sum += kilobytes.unwrap_or(0) * 1024;
        }
    }
    sum
}

/// Private memory of further instances of sqlite3, after each has worked; its heap not counted.
pub(super) fn memory(folder: &Path) -> Result<Vec<Row>, String> {
    let Some(path) = sources::find("libsqlite3-sys") else {
        eprintln!("link-memory: left out, there are no sources of sqlite3");
        return Ok(Vec::new());
    };
    let source = path.join("sqlite3/sqlite3.c");
    let flags = ["-DSQLITE_THREADSAFE=0", "-DSQLITE_OMIT_LOAD_EXTENSION"];
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    // A minute each, so only once.
    if !folder.join("sqlite3.o").is_file() {
        module_object(folder, &source, "sqlite3.part", &flags)?;
        rename(folder, "sqlite3.part", "sqlite3.o")?;
    }
    if !folder.join("sqlite3-pic.o").is_file() {
        let name = source.display().to_string();
        gcc(
            folder,
            [
                "-fPIC",
                "-c",
                flags[0],
                flags[1],
                name.as_str(),
                "-o",
                "sqlite3-pic.part",
            ],
        )?;
        rename(folder, "sqlite3-pic.part", "sqlite3-pic.o")?;
    }
    let include = format!("-I{}", path.join("sqlite3").display());
    module_object(folder, &tests.join("sqlclient.c"), "sqlclient.o", &[&include])?;
    let mut window = Window::parse("window", &format!("{:#x} 1 nobody 1\n", WINDOW_START + (1 << 32)))
        .map_err(|fault| fault.to_string())?;
    let mut libraries = Vec::new();
    for name in ["sqlite", "sqlclient"] {
        let description = tests.join(format!("{name}.md"));
        let made = make::make(&description, &[folder.to_path_buf()], &mut window);
        let (_, built) = made.map_err(|error| error.to_string())?;
        libraries.push(Library::load(name, built.object).map_err(|error| error.to_string())?);
    }
    let libc = make::describe(&tests.join("libc.md")).map_err(|error| error.to_string())?;
    let mut rows = Vec::new();
    let mut tasks = Vec::new();
    let mut ranges = Vec::new();
    let (thunks, data) = {
        let module = libraries[0].module();
        (u64::from(module.thunk_bytes()), u64::from(module.data_bytes))
    };
    for count in 1..=100_u64 {
        let task = Task::new(Binding::Eager);
        for library in &libraries {
            task.add(library);
        }
        task.add_foreign(&libc).map_err(|error| error.to_string())?;
        let work = task.instance("sqlclient").map_err(|error| error.to_string())?;
        for (name, argument) in [("start", 0), ("step", count)] {
            task.call(work, name, [argument, 0, 0, 0]);
        }
        let sqlite = task.instance("sqlite").map_err(|error| error.to_string())?;
        let at = task.data_address(sqlite).unwrap_or(0);
        ranges.push((at - thunks, at + data));
        tasks.push(task);
        if count == 1 || count == 100 {
            let bytes = private_bytes(&ranges);
            let each = bytes / count;
            let more = json!({"instances": count, "private_bytes": bytes, "private_bytes_each": each, "data": data});
            rows.push(row("link-memory", "module", None, more));
        }
    }
    gcc(folder, ["-shared", "sqlite3-pic.o", "-o", "libsqlmem.so", "-lm"])?;
    let program = super::sources().join("sqlmem.c").display().to_string();
    let client = tests.join("sqlclient.c").display().to_string();
    let words = [
        program.as_str(),
        &client,
        &include,
        "-o",
        "sqlmem",
        "-L.",
        "-lsqlmem",
        "-Wl,-rpath,$ORIGIN",
    ];
    gcc(folder, words)?;
    let bytes: Option<u64> = output(&mut Command::new(folder.join("sqlmem")))?.trim().parse().ok();
    rows.push(row(
        "link-memory",
        "elf-now",
        None,
        json!({"instances": 1, "private_bytes": bytes, "private_bytes_each": bytes}),
    ));
    Ok(rows)
}

fn rename(folder: &Path, from: &str, to: &str) -> Result<(), String> {
    std::fs::rename(folder.join(from), folder.join(to)).map_err(|error| format!("{to}: {error}"))
}
