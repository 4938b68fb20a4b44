//! OO1 with the database as a library: the paper's Table 1.

use super::{Row, gcc, median, module_object, output, sources};
use crate::{header, make};
use linker::module::window::Window;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rounds of a timed process.
const ROUNDS: u32 = 60;
/// Rounds of the two counted processes.
const COUNTED: [u32; 2] = [2, 22];
/// The checksum of docs/spec/oo1.md for 20,000 parts.
const CHECKSUM: &str = "checksum=0x28590a48b29178e6";
const PARTS: [&str; 4] = ["lookup", "forward", "reverse", "insert"];

/// Flags of the library, of the client, and of the link, for each way of ELF.
const WAYS: [(&str, &[&str], &[&str], &str); 5] = [
    ("elf-lazy", &[], &[], "-Wl,-z,lazy"),
    ("elf-now", &[], &[], "-Wl,-z,now"),
    ("elf-noplt", &["-fno-plt"], &["-fno-plt"], "-Wl,-z,now"),
    ("elf-bsymbolic", &["-Wl,-Bsymbolic"], &[], "-Wl,-z,now"),
    ("elf-protected", &["-fvisibility=protected"], &[], "-Wl,-z,now"),
];

/// The sources of server and client, for each way of modules: calls through thunks; inline calls of the server; and of
/// the client's procedure too.
const MODULES: [(&str, &str, &str); 3] = [
    ("module", "server.c", "client.c"),
    ("module-inline", "server.c", "client-inline.c"),
    ("module-procedure", "server-procedure.c", "client-procedure.c"),
];

/// A program to run, with the word for the rounds still to come.
struct Way {
    system: String,
    program: PathBuf,
    words: Vec<String>,
}

impl Way {
    fn command(&self, rounds: u32) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.words).arg(rounds.to_string());
        command
    }
}

/// Builds the two modules of a way in a folder of its own; the words of `gond module` that run them, but for the rounds.
fn module(folder: &Path, from: &Path, system: &str, server: &str, client: &str) -> Result<Vec<String>, String> {
    let folder = folder.join(system);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let here = format!("-I{}", folder.display());
    let include = format!("-I{}", from.display());
    crate::write(&folder.join("gond_inline.h"), header::PRELUDE.as_bytes())?;
    let mut window = Window::default();
    let mut words = vec!["run".to_string()];
    for (name, source) in [("server", server), ("client", client)] {
        let flags = [here.as_str(), include.as_str()];
        module_object(&folder, &from.join(source), &format!("{name}.o"), &flags)?;
        let description = from.join(format!("{name}.md"));
        let folders = [folder.clone()];
        let (_, built) = make::make(&description, &folders, &mut window).map_err(|error| error.to_string())?;
        if name == "server" {
            let sources = make::gather(&description, &folders).map_err(|error| error.to_string())?;
            let text = header::write(&sources, &[])?;
            crate::write(&folder.join("server.inline.h"), text.as_bytes())?;
        }
        let object = folder.join(format!("{name}.mm"));
        crate::write(&object, &built.object)?;
        words.push(object.display().to_string());
    }
    let libc = from.join("libc.md").display().to_string();
    words.extend(["--host", &libc, "--call", "client_run", "--with"].map(String::from));
    Ok(words)
}

fn build(folder: &Path) -> Result<Vec<Way>, String> {
    let from = sources();
    let path = |name: &str| from.join(name).display().to_string();
    let (server, client, main) = (path("server.c"), path("client.c"), path("main.c"));
    let way = |system: &str, program: PathBuf, words: Vec<String>| Way {
        system: system.into(),
        program,
        words,
    };
    gcc(folder, ["-static", &server, &client, &main, "-o", "oo1-static"])?;
    let mut ways = vec![way("static", folder.join("oo1-static"), Vec::new())];
    for (system, server, client) in MODULES {
        let words = module(folder, &from, system, server, client)?;
        ways.push(way(
            system,
            std::env::current_exe().map_err(|error| error.to_string())?,
            words,
        ));
    }
    for (system, library, client_flags, link) in WAYS {
        let shared = format!("lib{system}.so");
        let mut all = vec!["-fPIC", "-shared", server.as_str(), "-o", shared.as_str()];
        all.extend(library);
        gcc(folder, all)?;
        let program = format!("oo1-{system}");
        let mut all = vec![
            client.as_str(),
            &main,
            "-o",
            &program,
            "-L.",
            "-Wl,-rpath,$ORIGIN",
            link,
        ];
        all.extend(client_flags);
        let name = format!("-l{system}");
        all.push(&name);
        gcc(folder, all)?;
        ways.push(way(system, folder.join(program), Vec::new()));
    }
    Ok(ways)
}

/// Median times of the parts of a process.
fn run(way: &Way) -> Result<[u64; 4], String> {
    let text = output(&mut way.command(ROUNDS))?;
    let mut words = text.split_whitespace();
    if words.next() != Some(CHECKSUM) {
        return Err(format!("{}: wrong checksum: {text}", way.system));
    }
    let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
    let mut medians = [0; 4];
    for (slot, pair) in medians.iter_mut().zip(numbers.chunks_exact(2)) {
        *slot = pair[0];
    }
    Ok(medians)
}

/// Instructions of a round; `None` without callgrind.
fn count(way: &Way, folder: &Path) -> Option<u64> {
    let counted = COUNTED.map(|rounds| {
        let plain = way.command(rounds);
        let file = folder.join("callgrind.out");
        let mut valgrind = Command::new("valgrind");
        valgrind
            .arg("--tool=callgrind")
            .arg(format!("--callgrind-out-file={}", file.display()));
        valgrind.arg(plain.get_program()).args(plain.get_args());
        let text = valgrind.output().ok()?;
        let text = String::from_utf8_lossy(&text.stderr).into_owned();
        let line = text.lines().find(|line| line.contains("Collected :"))?;
        line.split_whitespace().last()?.parse::<u64>().ok()
    });
    let [Some(short), Some(long)] = counted else {
        return None;
    };
    Some(long.saturating_sub(short) / u64::from(COUNTED[1] - COUNTED[0]))
}

/// A ratio with three digits behind the point.
fn ratio(value: Option<u64>, to: Option<u64>) -> Option<f64> {
    let thousandths = value?.saturating_mul(1000).checked_div(to?)?;
    u32::try_from(thousandths)
        .ok()
        .map(|thousandths| f64::from(thousandths) / 1000.0)
}

/// All ways, in turn.
pub(super) fn measure(folder: &Path, runs: usize) -> Result<Vec<Row>, String> {
    let ways = build(folder)?;
    let mut samples: Vec<[Vec<u64>; 5]> = ways.iter().map(|_| Default::default()).collect();
    for _ in 0..runs {
        for (way, samples) in ways.iter().zip(&mut samples) {
            let parts = run(way)?;
            for (list, value) in samples.iter_mut().zip(parts) {
                list.push(value);
            }
            samples[4].push(parts.iter().sum());
        }
    }
    let mut rows = Vec::new();
    for (way, mut samples) in ways.iter().zip(samples) {
        let mut more = json!({"runs": runs});
        for (name, list) in PARTS.iter().zip(&mut samples) {
            more[name] = median(list).into();
        }
        more["least"] = samples[4].iter().min().copied().into();
        rows.push(Row {
            name: "link-oo1",
            system: way.system.clone(),
            instructions: count(way, folder),
            ns: Some(median(&mut samples[4])),
            more,
        });
    }
    let (time, code) = (rows[0].ns, rows[0].instructions);
    for row in &mut rows {
        row.more["ns_to_static"] = json!(ratio(row.ns, time));
        row.more["instructions_to_static"] = json!(ratio(row.instructions, code));
    }
    Ok(rows)
}
