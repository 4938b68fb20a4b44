//! `gond module twins`: what programs of this system are measured against (`bench/modules`, `bench/linux`). The program with
//! eight libraries, linked statically for this system and with shared objects for Linux; two modules that no source tree has,
//! a library of 1,000 exports and a client of all of them; and OO1 in C, from the sources that Linux runs.

use crate::{Words, bench, sources, system};
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

/// The program, statically linked, and the folder of Linux's files, in the folder of the twins.
const STATIC: &str = "eight-static";
const LINUX: &str = "linux";
/// OO1 in C, statically linked.
const OO1: &str = "oo1-c";
/// Where their sources are.
const SOURCES: [&str; 7] = [
    "bench/link/eight",
    "bench/link/oo1",
    "bench/linux",
    "modules/libc",
    "modules/sqlite",
    "tests/suite/modules",
    "abi/golden",
];

/// Builds them into a folder (`target/twins`); what is younger than its sources is kept.
pub(crate) fn command(words: &Words) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = words.output.clone().unwrap_or_else(|| root.join("target/twins"));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let newest = SOURCES
        .iter()
        .filter_map(|part| system::newest_in(&root.join(part)))
        .max();
    for (script, output, made) in [
        ("eight/static.sh", STATIC, STATIC),
        ("eight/dynamic.sh", LINUX, "linux/lib64/ld-linux-x86-64.so.2"),
        ("oo1/static.sh", OO1, OO1),
    ] {
        if !is_younger(&folder.join(made), newest) {
            run(&root.join("bench/link").join(script), &folder.join(output))?;
        }
    }
    // These are module objects, so a tool with another format makes them again.
    let tool = std::env::current_exe().ok().and_then(|tool| system::changed(&tool));
    if !is_younger(&folder.join("client1000.mm"), newest.max(tool)) {
        for (name, object) in bench::instances::thousand(&folder)? {
            crate::write(&folder.join(format!("{name}.mm")), &object)?;
        }
    }
    println!("{}", folder.display());
    Ok(())
}

fn is_younger(file: &Path, than: Option<SystemTime>) -> bool {
    let made = system::changed(file);
    made.is_some() && made > than
}

/// Runs one of the scripts that link the program.
fn run(script: &Path, output: &Path) -> Result<(), String> {
    let carried = |name: &str, part: &str| {
        let found = sources::find(name).ok_or_else(|| format!("the sources in the crate {name} cannot be had"))?;
        Ok::<_, String>(found.join(part))
    };
    let mut command = Command::new(script);
    command.arg(carried("lua-src", "lua-5.4.7")?);
    command.arg(carried("libsqlite3-sys", "sqlite3")?).arg(output);
    let ended = command
        .output()
        .map_err(|error| format!("{}: {error}", script.display()))?;
    if ended.status.success() {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&ended.stderr);
        Err(format!("{}:\n{said}", script.display()))
    }
}
