//! Programs of other people's, compiled by clang at every level and for both kinds of bounds and of processors: every
//! function is proved as it is compiled first, no proof takes a tenth of the steps that it may, and what the programs
//! print is what they print on the machine.
//!
//! By itself the test takes the sources of this tree. Those of others do not stand in it; Debian has them:
//!
//! ```text
//! SIP_FOREIGN=FOLDER cargo test --release -p sip-cli --test foreign -- --nocapture
//! ```
//!
//! The packages are fetched into the folder once (`apt-get source`, with the servers that this machine uses). Each C file that
//! compiles without being configured is a module; beside that, [`PROGRAMS`] have drivers in `foreign/`, which run.

#[path = "foreign/fetch.rs"]
mod fetch;
#[path = "foreign/judge.rs"]
mod judge;
#[path = "foreign/packages.rs"]
mod packages;
mod support;

use judge::{Counts, OPTIONS, judge};
use packages::{PACKAGES, PROGRAMS, Program};
use sip::compile::compile;
use sip::exec::{Extern, Program as Loaded, Store, Val};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::{Folder, finish};

const LEVELS: [&str; 5] = ["-O1", "-O0", "-O2", "-O3", "-Os"];
const DRIVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign");
const KERNELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sip/bench");
/// A program that takes longer hangs.
const LIMIT: Duration = Duration::from_mins(3);
/// C files that are taken of one package, at most, and folders with headers.
const FILES: usize = 120;
const HEADERS: usize = 25;
/// Packages of the list that must be there.
const ENOUGH: usize = 40;
/// Folders of a package that are left out: other machines' files, and programs that want a configured package.
const LEFT_OUT: [&str; 14] = [
    ".", "debian", "test", "win", "msvc", "example", "contrib", "fuzz", "doc", "mpn", "tune", "demo", "build", "python",
];

/// Runs clang; says whether it could do what it was told.
fn clang(words: &[&str]) -> bool {
    let mut command = Command::new("clang");
    finish(command.arg("-w").args(words), LIMIT).is_ok_and(|ended| ended.status.is_some_and(|status| status.success()))
}

/// A module of one C file, whatever it needs of others: that is imported.
fn unit(folder: &Path, source: &Path, level: &str, headers: &[PathBuf]) -> Option<Vec<u8>> {
    let (file, source) = (folder.to_str()?, source.to_str()?);
    let mut words = vec![
        "--target=wasm32-wasi",
        level,
        "-std=gnu99",
        "-mbulk-memory",
        "-msign-ext",
        "-nostdlib",
    ];
    words.extend([
        "-D_WASI_EMULATED_SIGNAL",
        "-D_WASI_EMULATED_MMAN",
        "-DHAVE_STDINT_H",
        "-idirafter",
        DRIVERS,
    ]);
    for folder in headers {
        words.extend(["-I", folder.to_str()?]);
    }
    words.extend([
        "-Wl,--no-entry",
        "-Wl,--export-all",
        "-Wl,--allow-undefined",
        "-o",
        file,
        source,
    ]);
    if !clang(&words) {
        return None;
    }
    let bytes = std::fs::read(file).ok();
    let _ = std::fs::remove_file(file);
    bytes
}

/// The C files of a package and its folders with headers, from the top down.
fn gather(folder: &Path, sources: &mut Vec<PathBuf>, headers: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let ends = |path: &PathBuf, ending: &str| path.extension().is_some_and(|have| have == ending);
    if paths.iter().any(|path| ends(path, "h")) {
        headers.push(folder.to_path_buf());
    }
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_symlink() || LEFT_OUT.iter().any(|left| name.starts_with(left)) && path.is_dir() {
            continue;
        }
        if path.is_dir() {
            gather(&path, sources, headers);
        } else if ends(&path, "c") {
            sources.push(path);
        }
    }
}

/// Does this with each, on all processors.
fn on_all_processors<T: Sync>(of: &[T], work: impl Fn(usize, &T) + Sync) {
    let next = AtomicUsize::new(0);
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                while let Some((at, item)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, of.get(at)?)))
                {
                    work(at, item);
                }
            });
        }
    });
}

/// All C files of a package that compile at the first level, at every level.
fn units(folder: &Folder, package: &str, sources: &Path, all: &Mutex<Counts>) {
    let (mut files, mut headers) = (Vec::new(), Vec::new());
    gather(sources, &mut files, &mut headers);
    headers.sort_by_key(|path| path.components().count());
    headers.truncate(HEADERS);
    let step = files.len().div_ceil(FILES).max(1);
    let files: Vec<PathBuf> = files.into_iter().step_by(step).collect();
    on_all_processors(&files, |at, source| {
        for level in LEVELS {
            let Some(bytes) = unit(&folder.0.join(format!("{package}-{at}.wasm")), source, level, &headers) else {
                return;
            };
            let name = format!(
                "{package}: {} {level}",
                source.strip_prefix(sources).unwrap_or(source).display()
            );
            let counts = judge(&name, &bytes);
            all.lock().expect("no panic").add(counts);
        }
    });
}

/// Builds a program for the machine, and at every level for WebAssembly; runs all, and compares what they print.
fn program(folder: &Folder, program: &Program, sources: &Path, all: &Mutex<Counts>) {
    let mut words = vec![format!("{DRIVERS}/{}.c", program.name)];
    for word in program.sources {
        words.extend(
            packages::files(sources, word)
                .iter()
                .map(|path| path.display().to_string()),
        );
    }
    for header in program.headers {
        words.extend(["-I".into(), sources.join(header).display().to_string()]);
    }
    words.extend(["-I", DRIVERS, "-ftls-model=local-exec"].map(String::from));
    words.extend(program.flags.iter().map(ToString::to_string));
    let build = |first: &[&str], to: &Path| {
        let mut all: Vec<&str> = first.to_vec();
        all.extend(words.iter().map(String::as_str));
        all.extend(["-o", to.to_str().unwrap_or_default(), "-lm"]);
        clang(&all)
    };
    let machine = folder.0.join(program.name);
    assert!(
        build(&["-O2"], &machine),
        "{} does not build for the machine",
        program.name
    );
    let right = finish(&mut Command::new(&machine), LIMIT).expect("it starts").said;
    assert!(right[0].len() > 20, "{}: {right:?}", program.name);
    for level in LEVELS {
        let module = machine.with_extension(format!("{level}.wasm"));
        let target = [
            "--target=wasm32-wasi",
            level,
            "-mbulk-memory",
            "-msign-ext",
            "-Wl,-z,stack-size=1048576",
        ];
        assert!(build(&target, &module), "{} does not build at {level}", program.name);
        let bytes = std::fs::read(&module).expect("built");
        let counts = judge(&format!("{} {level}", program.name), &bytes);
        all.lock().expect("no panic").add(counts);
        for mode in [&[][..], &["--explicit"]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sip-cli"));
            let ended = finish(command.arg("run").args(mode).arg(&module), LIMIT).expect("it starts");
            assert_eq!(ended.said, right, "{} {level} {mode:?}", program.name);
        }
        all.lock().expect("no panic").runs += 2;
    }
}

/// The kernels of the benchmarks at every level: proved, and the sum of each is that on the machine.
#[test]
fn programs_of_this_tree() {
    if !clang(&["--target=wasm32", "-print-search-dirs"]) {
        println!("left out: there is no clang");
        return;
    }
    let folder = Folder::new("foreign-own");
    let all = Mutex::new(Counts::default());
    let names = [
        "sieve",
        "sha256",
        "matrix",
        "quicksort",
        "json",
        "hashmap",
        "interpreter",
        "regex",
    ];
    on_all_processors(&names, |_, name| {
        let source = PathBuf::from(format!("{KERNELS}/{name}.c"));
        let machine = folder.0.join(name);
        let native = format!("{KERNELS}/native.c");
        let words = [
            "-O2",
            "-o",
            machine.to_str().expect("plain"),
            source.to_str().expect("plain"),
            &native,
        ];
        assert!(clang(&words), "{name}");
        let said = finish(&mut Command::new(&machine), LIMIT).expect("it starts").said;
        let right: u64 = said[0]
            .split_whitespace()
            .nth(1)
            .and_then(|sum| sum.parse().ok())
            .expect("a sum");
        for level in LEVELS {
            let bytes = unit(&machine.with_extension("wasm"), &source, level, &[]).expect("it compiles");
            let counts = judge(&format!("{name} {level}"), &bytes);
            all.lock().expect("no panic").add(counts);
            // The slowest kernel takes a second without an optimizer.
            for options in OPTIONS.iter().filter(|_| level == "-O1") {
                let image = sip::verify::verify(compile(&bytes, *options).expect("compiles")).expect("proved");
                let mut store = Store::new().expect("memory");
                let instance = store
                    .instantiate(&Loaded::load(image).expect("memory"), &[])
                    .expect("no imports");
                let Some(Extern::Func(run)) = store.export(instance, "run") else {
                    panic!("no 'run'")
                };
                let sum = store.call(run, &[Val::I32(1)]);
                assert_eq!(
                    sum,
                    Ok(vec![Val::I64(right.cast_signed())]),
                    "{name} {level} {options:?}"
                );
            }
        }
    });
    all.into_inner().expect("no panic").report("this tree");
}

/// The packages, fetched, and a folder to work in; nothing if they are not asked for.
fn others() -> Option<(Vec<(&'static str, PathBuf)>, Folder)> {
    static FETCHED: Mutex<()> = Mutex::new(());
    let Some(place) = std::env::var_os("SIP_FOREIGN").map(PathBuf::from) else {
        println!("left out: SIP_FOREIGN names no folder");
        return None;
    };
    let one_at_a_time = FETCHED.lock();
    let fetched = fetch::all(&place, PACKAGES).unwrap_or_else(|why| panic!("{why}"));
    drop(one_at_a_time);
    assert!(fetched.len() >= ENOUGH, "only {} packages can be had", fetched.len());
    let name = std::thread::current().name().unwrap_or_default().to_string();
    Some((fetched, Folder::new(&name)))
}

#[test]
fn programs_of_others() {
    let Some((fetched, folder)) = others() else { return };
    let all = Mutex::new(Counts::default());
    on_all_processors(PROGRAMS, |_, of| {
        if let Some((_, sources)) = fetched.iter().find(|(package, _)| *package == of.package) {
            program(&folder, of, sources, &all);
        }
    });
    all.into_inner().expect("no panic").report("programs");
}

#[test]
fn files_of_others() {
    let Some((fetched, folder)) = others() else { return };
    let all = Mutex::new(Counts::default());
    for (package, sources) in &fetched {
        units(&folder, package, sources, &all);
        println!("{package}: {}", all.lock().expect("no panic").line());
    }
    all.into_inner().expect("no panic").report("single files");
}
