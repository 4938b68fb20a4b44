//! Random signatures: structures by value, floats, `long double`, complex numbers, bit-fields, packed and variadic functions,
//! called directly, through pointers, from code that is no module, and as callbacks. A call through a module must give what it
//! gives without one.
//!
//! A batch is a library, a client and a shared object of the host around the same signatures. The compilers and flags
//! change from batch to batch. Where gcc and clang disagree about a type, the same sources are also compiled without modules, and what fails there
//! is not counted. `SIGNATURES=N cargo test -p module-cli --test signatures` tests N functions instead of some hundred, `SIGNATURE_SEED` begins
//! elsewhere; `signature-runs.txt` has the count of all runs. Needs gcc; without clang, gcc takes its part.

#[path = "signatures/write.rs"]
mod write;

mod tools;

use linker::module::Cause;
use module_cli::make::{self, MakeError};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Functions of a batch.
const BATCH: usize = 48;
/// Functions of the default test: a batch for each set of flags.
const DEFAULT: usize = BATCH * FLAGS.len();

const FLAGS: [&[&str]; 6] = [
    &["-O0"],
    &["-O1"],
    &["-O2"],
    &["-O3"],
    &["-Os"],
    &["-O2", "-gdwarf-4", "-fno-omit-frame-pointer"],
];

/// Flags of clang for objects that become modules: those of [`module_cli::GCC_FLAGS`] that it knows.
const CLANG_FLAGS: [&str; 7] = [
    "-fpie",
    "-fno-plt",
    "-fno-direct-access-external-data",
    "-ffunction-sections",
    "-fdata-sections",
    "-g",
    "-D__gond_module__",
];

fn number(name: &str, otherwise: usize) -> usize {
    let said = std::env::var(name).ok();
    said.map_or(otherwise, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name}={text}"))
    })
}

/// How a batch is compiled.
struct Way {
    flags: &'static [&'static str],
    library: &'static str,
    shared: &'static str,
}

fn way(batch: usize) -> Way {
    let clang = Command::new("clang").arg("--version").output().is_ok();
    let or_clang = |yes: bool| if yes && clang { "clang" } else { "gcc" };
    Way {
        flags: FLAGS[batch % FLAGS.len()],
        library: or_clang(batch % 4 == 3),
        shared: or_clang(batch % 2 == 1),
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn compile(compiler: &str, way: &Way, more: &[&str], folder: &Path, source: &str, output: &str) {
    let mut command = Command::new(compiler);
    command.current_dir(folder).args(["-w", "-std=gnu11", "-msse2"]);
    run(command.args(way.flags).args(more).args([source, "-o", output]));
}

/// Links the module NAME without the functions that the compiler's use of the data register keeps out; these.
fn link(folder: &Path, name: &str, exports: &[String], imports: &str, objects: &str) -> BTreeSet<String> {
    let mut left_out = BTreeSet::new();
    let path = folder.join(format!("{name}.md"));
    for _ in 0..exports.len() {
        let kept: Vec<&str> = exports
            .iter()
            .filter(|line| !left_out.contains(line.split(' ').next().unwrap_or_default()))
            .map(String::as_str)
            .collect();
        let text = format!(
            "[MODULE]\nname {name}\nversion 1\n[IMPORTS]\n{imports}[EXPORTS]\n{}\n[OBJECTS]\n{objects}",
            kept.join("\n")
        );
        std::fs::write(&path, text).expect("a description");
        // Both lie in one process, at addresses of their own.
        let mut window = tools::window(u64::from(name == "client"));
        match make::make(&path, &[], &mut window) {
            Ok((_, built)) => {
                std::fs::write(folder.join(format!("{name}.mm")), built.object).expect("a module");
                return left_out;
            }
            Err(MakeError::Link(faults)) => {
                for fault in faults {
                    // clang cannot leave the data register alone, and has a way of its own with some structures.
                    let other = matches!(&fault.cause, Cause::StackParameter(why) if why.contains("clang passes"));
                    assert!(
                        other || fault.cause == Cause::RegisterTaken,
                        "{}: {fault}",
                        folder.display()
                    );
                    assert!(left_out.insert(fault.symbol.clone()), "{fault}");
                }
            }
            Err(other) => panic!("{other}"),
        }
    }
    panic!("{}: nothing of {name} is left", folder.display());
}

/// How a program ended: with the lines of failures that it printed, or by a crash in a function of this number.
fn failures(command: &mut Command) -> Result<BTreeSet<String>, usize> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    let mut at = said.lines().filter_map(|line| line.strip_prefix("at "));
    if output.status.success() && said.ends_with("end\n") {
        let lines = said.lines().filter(|line| !line.starts_with("at ") && *line != "end");
        return Ok(lines.map(String::from).collect());
    }
    let last = at.next_back().and_then(|number| number.parse().ok());
    Err(last.unwrap_or_else(|| panic!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))))
}

/// Tests a batch; how many functions it had.
fn batch(seed: u64, index: usize, count: usize) -> usize {
    let way = way(index);
    let folder: PathBuf = tools::folder(&format!("signatures-{index}"));
    let batch = write::Batch::new(seed, index as u64, count);
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a source");
    write("types.h", &batch.types());
    write("library.c", &batch.library());
    write("shared.c", &batch.shared());
    write(
        "host.md",
        "[MODULE]\nname host\nversion 1\n[EXPORTS]\nreport\nfrom_outside\nmemcpy\nmemset\n",
    );
    let build = |compiler: &str, more: &[&str], source: &str, output: &str| {
        compile(compiler, &way, more, &folder, source, output);
    };
    let module = |compiler: &str| match compiler {
        "clang" => [&["-c"], CLANG_FLAGS.as_slice()].concat(),
        _ => [&["-c"], module_cli::GCC_FLAGS.as_slice()].concat(),
    };
    build(way.library, &module(way.library), "library.c", "library.o");
    let mut left_out = link(&folder, "library", &batch.exports(), "host.md\n", "library.o\n");
    assert!(left_out.is_empty() || way.library == "clang", "{left_out:?}");
    build(way.shared, &["-shared", "-fPIC"], "shared.c", "shared.so");
    loop {
        write("client.c", &batch.client(&left_out));
        build("gcc", &module("gcc"), "client.c", "client.o");
        let exports = ["start".to_string()];
        let none = link(&folder, "client", &exports, "library.md\nhost.md\n", "client.o\n");
        assert!(none.is_empty(), "{none:?}");
        let mut modules = Command::new(env!("CARGO_BIN_EXE_module-cli"));
        modules
            .args(["run", "library.mm", "client.mm", "--host", "host.md", "--call", "start"])
            .current_dir(&folder)
            .env("LD_PRELOAD", folder.join("shared.so"));
        let found = failures(&mut modules);
        if found.as_ref().is_ok_and(BTreeSet::is_empty) {
            break;
        }
        // The same without modules: what fails there is between the compilers.
        build(way.library, &["-c", "-fPIC"], "library.c", "library-native.o");
        build("gcc", &["-c", "-fPIC"], "client.c", "client-native.o");
        write("main.c", "int start(void);\nint main(void) { return start(); }\n");
        let objects = ["library-native.o", "client-native.o", "./shared.so"];
        build("gcc", &objects, "main.c", "native");
        let native = failures(Command::new(folder.join("native")).current_dir(&folder));
        let place = format!(
            "seed {seed}, batch {index}, {} and {} {:?}, {}",
            way.library,
            way.shared,
            way.flags,
            folder.display()
        );
        match (found, native) {
            (Ok(found), Ok(native)) => {
                let ours: Vec<&String> = found.difference(&native).collect();
                assert!(ours.is_empty(), "{place}: {ours:?}");
                println!("batch {index}: {} calls differ without modules, too", found.len());
                break;
            }
            (Err(found), Err(native)) if found == native => {
                println!("batch {index}: function {found} crashes without modules, too");
                left_out.insert(format!("f{found}"));
            }
            (found, native) => panic!("{place}: {found:?}, without modules {native:?}"),
        }
    }
    if std::env::var_os("SIGNATURES").is_some() {
        let _ = std::fs::remove_dir_all(&folder);
    }
    count - left_out.len()
}

#[test]
fn random_signatures_are_called_as_without_modules() {
    if Command::new("gcc").arg("--version").output().is_err() {
        eprintln!("not tested: no gcc");
        return;
    }
    let (wanted, seed) = (number("SIGNATURES", DEFAULT), number("SIGNATURE_SEED", 1) as u64);
    let (mut done, mut index) = (0, 0);
    while done < wanted {
        done += batch(seed, index, BATCH.min(wanted - done).max(4));
        index += 1;
    }
    println!("{done} functions in {index} batches");
}
