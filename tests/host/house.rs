//! The rules of the house, checked over `cargo metadata` and the sources, not by good intentions.
//!
//! Rule 1: dependencies point down; nothing depends on the kernel; pure crates build without `std`.
//! Rule 2: pure crates forbid unsafe code; elsewhere it lives in named places and each use says why it is sound.
//! Rule 3: `cfg(target_arch)` stands only in an `arch/mod.rs`.
//! Besides: every file opens with its theory, nothing is left unfinished, no file outgrows its reader.
//!
//! When one of these fails, the sources are wrong, unless `docs/decisions/` says that the rule is.

#[path = "house/allocation.rs"]
mod allocation;
#[path = "house/links.rs"]
mod links;
#[path = "house/source.rs"]
mod source;

use serde_json::Value;
use source::{Source, has_word, sources};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Crates and their height. A crate may depend only on lower ones, within what [`FORBIDDEN`] leaves.
const HEIGHTS: &[(&str, u32)] = &[
    ("abi", 0),
    ("kcore", 10),
    ("store", 10),
    ("linker", 10),
    ("names", 10),
    ("sasos", 20),
    ("drivers", 20),
    ("kernel", 30),
    ("crt0", 35),
    ("rt", 40),
    ("rt-module", 45),
    ("nucleus", 40),
    ("server", 45),
    ("shell", 50),
    ("hello", 50),
    ("oo1", 50),
    ("module", 50),
    ("suite", 50),
    ("measure", 45),
    ("micro", 50),
    ("module-bench", 50),
    ("nucleus-suite", 50),
    ("testing", 10),
    ("sip", 50),
    ("engine", 60),
    ("sim", 60),
    ("store-bench", 60),
    ("sip-cli", 70),
    ("module-cli", 65),
    ("gond", 70),
];

/// Dependencies that are forbidden: programs stay on their side of the system call boundary, the system
/// on its own, and neither knows the host.
const FORBIDDEN: &[(&[&str], &[&str])] = &[
    (
        &[
            "crt0",
            "rt",
            "rt-module",
            "shell",
            "hello",
            "oo1",
            "module",
            "suite",
            "measure",
            "micro",
            "module-bench",
            "nucleus",
        ],
        &["kcore", "store", "sasos", "drivers", "kernel"],
    ),
    // On the bare µ-kernel drivers are programs.
    (&["nucleus-suite"], &["kcore", "store", "sasos", "kernel"]),
    (&["gond", "sim"], &["kernel", "rt"]),
    (&["linker", "names", "kcore"], &["store"]),
    (&["store"], &["kcore"]),
];

/// Crates that hold logic only.
const PURE: &[&str] = &["abi", "kcore", "sasos", "store", "linker", "names"];

/// Crates that must build without the standard library.
const FREESTANDING: &[&str] = &[
    "abi",
    "kcore",
    "sasos",
    "store",
    "linker",
    "names",
    "drivers",
    "kernel",
    "server",
    "crt0",
    "rt",
    "rt-module",
    "shell",
    "hello",
    "oo1",
    "module",
    "suite",
    "measure",
    "micro",
    "module-bench",
    "nucleus",
    "nucleus-suite",
    "testing",
];

/// Where `unsafe` may stand, as beginnings of paths.
const UNSAFE_PLACES: &[&str] = &[
    "kernel/src/arch/",
    "kernel/src/mem/",
    "kernel/src/mem.rs",
    "drivers/src/dma",
    "rt/crt0/src/",
    "rt/src/call",
    "rt/src/object",
    "sasos/program/src/arch/",
    "sasos/program/src/mem/",
    "rt/src/entry",
    "rt/nucleus/src/call",
    "sip/src/exec/",
    // Imports of a WebAssembly guest, and the text of bindings for them.
    "sip/guest/",
    "host/sip-cli/src/bindings/",
    // Maps modules and calls them, in a process of the host.
    "host/module-cli/src/host/memory.rs",
    // Opens a map of a file, in a program that only benchmarks start.
    "bench/store-peers/src/lmdb.rs",
    // An allocator that fails on purpose.
    "kcore/tests/failing/mod.rs",
    "sasos/tests/heap.rs",
    "store/tests/allocation.rs",
    "store/tests/heap.rs",
    "store/tests/ahead_heap.rs",
    "host/sim/tests/heap.rs",
    // Loom's cells are opened to see that one processor at a time is inside.
    "kcore/tests/smp_loom.rs",
    // The suite breaks rules on purpose.
    "tests/suite/src/arch/",
    "tests/nucleus/src/arch/",
    // It registers handlers.
    "tests/engine/src/arch/",
];

/// The longest file that need not say why it is so long.
const LINES_MAX: usize = 800;
/// How it says so.
const LONG_EXCUSE: &str = "This file is long because";

fn root() -> PathBuf {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("GOND_ROOT")
        .map_or_else(built, PathBuf::from)
        .canonicalize()
        .expect("the source tree")
}

fn packages() -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo metadata starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    match metadata["packages"].take() {
        Value::Array(packages) => packages,
        other => panic!("no packages in {other}"),
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// The workspace's own crates that a package depends on, those for its tests left out.
fn inner_dependencies(package: &Value) -> Vec<&str> {
    let all = package["dependencies"].as_array().expect("dependencies");
    let inner = all.iter().filter(|one| one["path"].is_string() && one["kind"] != "dev");
    inner.map(|one| text(one, "name")).collect()
}

fn height(name: &str) -> u32 {
    let known = HEIGHTS.iter().find(|(known, _)| *known == name);
    known
        .unwrap_or_else(|| panic!("crate {name} has no height yet: decide where it stands in tests/host/house.rs"))
        .1
}

/// Fails with all complaints at once.
fn expect_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// The source files of a crate, by its folder.
fn sources_of<'a>(all: &'a [Source], package: &Value) -> Vec<&'a Source> {
    let manifest = Path::new(text(package, "manifest_path"));
    let folder = manifest
        .parent()
        .expect("a folder")
        .strip_prefix(root())
        .expect("inside the tree");
    let source = format!("{}/src/", folder.display());
    all.iter().filter(|file| file.path.starts_with(&source)).collect()
}

/// The root file of a crate.
fn root_file<'a>(all: &'a [Source], package: &Value) -> &'a Source {
    let files = sources_of(all, package);
    let named = |name: &str| files.iter().find(|file| file.path.ends_with(name)).copied();
    named("src/lib.rs")
        .or_else(|| named("src/main.rs"))
        .unwrap_or_else(|| panic!("{} has no root", text(package, "name")))
}

#[test]
fn dependencies_point_down() {
    let mut complaints = Vec::new();
    for package in packages() {
        let name = text(&package, "name");
        for dependency in inner_dependencies(&package) {
            if height(dependency) >= height(name) {
                complaints.push(format!("{name} depends on {dependency}, which does not stand below it"));
            }
            if FORBIDDEN
                .iter()
                .any(|(who, what)| who.contains(&name) && what.contains(&dependency))
            {
                complaints.push(format!("{name} must not depend on {dependency}"));
            }
        }
    }
    expect_none(&complaints);
}

#[test]
fn abi_depends_on_nothing() {
    let packages = packages();
    let abi = packages
        .iter()
        .find(|package| text(package, "name") == "abi")
        .expect("abi");
    let all = abi["dependencies"].as_array().expect("dependencies");
    assert!(all.iter().all(|one| one["kind"] == "dev"), "abi depends on {all:?}");
}

/// Frames of any number are for fake hardware (docs/decisions/0071): the host's, and tests.
#[test]
fn no_target_makes_frames_of_numbers() {
    for package in packages() {
        let name = text(&package, "name");
        let all = package["dependencies"].as_array().expect("dependencies");
        for one in all.iter().filter(|one| one["kind"] != "dev") {
            let features = one["features"].as_array().expect("features");
            let fake = features.iter().any(|feature| feature == "fake-hardware");
            assert!(!fake || name == "sim", "{name} may make frames of numbers");
        }
    }
}

#[test]
fn nothing_depends_on_the_kernel() {
    for package in packages() {
        let all = package["dependencies"].as_array().expect("dependencies");
        assert!(
            all.iter().all(|one| text(one, "name") != "kernel"),
            "{} depends on the kernel",
            text(&package, "name")
        );
    }
}

#[test]
fn freestanding_crates_say_so() {
    let all = sources(&root());
    let mut complaints = Vec::new();
    for package in packages() {
        let name = text(&package, "name");
        if !FREESTANDING.contains(&name) {
            continue;
        }
        let file = root_file(&all, &package);
        if !file.code.contains("no_std") {
            complaints.push(format!("{} is not no_std", file.path));
        }
        for file in sources_of(&all, &package) {
            for (number, line) in file.code_without_tests().lines().enumerate() {
                if has_word(line, "std") && line.contains("std::") {
                    complaints.push(format!("{}:{}: uses std", file.path, number + 1));
                }
            }
        }
    }
    expect_none(&complaints);
}

#[test]
fn pure_crates_forbid_unsafe_code() {
    let all = sources(&root());
    for package in packages() {
        if PURE.contains(&text(&package, "name")) {
            let file = root_file(&all, &package);
            assert!(
                file.code.contains("#![forbid(unsafe_code)]"),
                "{} does not forbid unsafe code",
                file.path
            );
        }
    }
}

#[test]
fn unsafe_code_lives_in_its_places() {
    let mut complaints = Vec::new();
    for file in sources(&root()) {
        if UNSAFE_PLACES.iter().any(|place| file.path.starts_with(place)) {
            continue;
        }
        for (number, line) in file.code.lines().enumerate() {
            // `#[unsafe(naked)]` in a macro of rt is no code of the program that uses it.
            if has_word(line, "unsafe") && line.trim() != "#[unsafe(naked)]" {
                complaints.push(format!(
                    "{}:{}: unsafe outside of its places: {}",
                    file.path,
                    number + 1,
                    line.trim()
                ));
            }
        }
    }
    expect_none(&complaints);
}

#[test]
fn unsafe_code_says_why_it_is_sound() {
    let mut complaints = Vec::new();
    for file in sources(&root()) {
        for number in file.unjustified_unsafe() {
            complaints.push(format!(
                "{}:{}: unsafe without '// SAFETY:' or '# Safety'",
                file.path,
                number + 1
            ));
        }
    }
    expect_none(&complaints);
}

/// The half of the bare µ-kernel is named by its own image alone (decision 0102): what kcore has in common, the server and the other two
/// images do without it.
#[test]
fn the_bare_half_is_named_by_the_bare_image_alone() {
    let mut complaints = Vec::new();
    for file in sources(&root()) {
        let path = file.path.as_str();
        if path.starts_with("kcore/src/bare/") || path.starts_with("kcore/tests/") || path == "kernel/src/bare.rs" {
            continue;
        }
        let common = path.starts_with("kcore/src/") && path != "kcore/src/lib.rs";
        let mut uses = (file.code.split("use kcore::").skip(1)).filter_map(|rest| rest.split(';').next());
        let named = file.code.contains("kcore::bare") || uses.any(|used| has_word(used, "bare"));
        if named || common && file.code.lines().any(|line| has_word(line, "bare")) {
            complaints.push(format!("{path}: names kcore::bare"));
        }
    }
    expect_none(&complaints);
}

#[test]
fn architectures_are_chosen_in_one_place() {
    let mut complaints = Vec::new();
    for file in sources(&root()) {
        if file.path.ends_with("arch/mod.rs") {
            continue;
        }
        for (number, line) in file.code.lines().enumerate() {
            if has_word(line, "target_arch") {
                complaints.push(format!(
                    "{}:{}: target_arch outside of an arch/mod.rs",
                    file.path,
                    number + 1
                ));
            }
        }
    }
    expect_none(&complaints);
}

#[test]
fn files_open_with_their_theory() {
    let files = sources(&root());
    let silent = files.iter().filter(|file| !file.text.starts_with("//!"));
    expect_none(
        &silent
            .map(|file| format!("{} does not open with a '//!' comment", file.path))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn nothing_is_left_unfinished() {
    // Put together from halves, or this file would not pass.
    let marks = [
        ["TO", "DO"],
        ["FIX", "ME"],
        ["XX", "X"],
        ["unimplemented", "!"],
        ["todo", "!"],
    ]
    .map(|half| half.concat());
    let mut complaints = Vec::new();
    for file in sources(&root()) {
        for (number, line) in file.text.lines().enumerate() {
            if let Some(mark) = marks
                .iter()
                .find(|mark| has_word(line, mark.trim_end_matches('!')) && line.contains(*mark))
            {
                complaints.push(format!("{}:{}: {mark}", file.path, number + 1));
            }
        }
    }
    expect_none(&complaints);
}

/// Blocks of the guide that are printed from sources: the path and the name stand above each. With `GOND_BLESS=1`
/// they are printed anew.
#[test]
fn the_guide_prints_what_runs() {
    let path = root().join("docs/guide/nucleus.md");
    let guide = std::fs::read_to_string(&path).expect("the guide");
    let mut printed = String::new();
    let mut lines = guide.lines();
    let mut blocks = 0;
    while let Some(line) = lines.next() {
        printed += line;
        printed.push('\n');
        let marked = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        let Some((file, name)) = marked.and_then(|mark| mark.split_once(": ")) else {
            continue;
        };
        let source = std::fs::read_to_string(root().join(file)).unwrap_or_else(|_| panic!("no file {file}"));
        let (_, begun) = source.split_once(&format!("// begin: {name}\n")).expect("a beginning");
        let (excerpt, _) = begun.split_once(&format!("// end: {name}\n")).expect("an end");
        printed = printed + "```rust\n" + excerpt + "```\n";
        blocks += 1;
        assert_eq!(lines.next(), Some("```rust"), "a block follows {line}");
        lines.by_ref().find(|line| *line == "```").expect("the block ends");
    }
    if std::env::var_os("GOND_BLESS").is_some() {
        std::fs::write(&path, &printed).expect("write the guide");
    }
    assert!(blocks >= 4, "{blocks} blocks");
    assert!(
        printed == guide,
        "docs/guide/nucleus.md differs from the sources; GOND_BLESS=1 prints them anew"
    );
}

/// A program that a guide prints as a file is what `cargo fmt` would leave of it: a reader's first one must not show as changed.
#[test]
fn programs_of_the_guides_are_formatted() {
    let mut listings = 0;
    for guide in ["first-program", "nucleus"] {
        let path = root().join(format!("docs/guide/{guide}.md"));
        let text = std::fs::read_to_string(path).expect("the guide");
        for (before, _) in text.match_indices(".rs -->\n") {
            let is_file = text[..before]
                .rfind("<!-- ")
                .is_some_and(|at| text[at..].starts_with("<!-- file "));
            let block = text[before..]
                .split_once("```rust\n")
                .and_then(|(_, rest)| rest.split_once("```"));
            let Some((listing, _)) = block.filter(|_| is_file) else {
                continue;
            };
            assert_eq!(formatted(listing), listing, "docs/guide/{guide}.md, listing {listings}");
            listings += 1;
        }
    }
    assert!(listings >= 2, "{listings} listings");
}

/// The text of a program as `rustfmt` would have it.
fn formatted(program: &str) -> String {
    let config = root().join("rustfmt.toml");
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024", "--emit", "stdout", "--config-path"])
        .arg(config)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("rustfmt starts");
    let mut input = child.stdin.take().expect("its input");
    input.write_all(program.as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn documents_name_only_what_there_is() {
    expect_none(&links::broken(&root()));
}

#[test]
fn no_file_outgrows_its_reader() {
    let files = sources(&root());
    let long = files
        .iter()
        .filter(|file| file.text.lines().count() > LINES_MAX && !file.text.contains(LONG_EXCUSE));
    expect_none(
        &long
            .map(|file| {
                format!(
                    "{} has {} lines and does not say why",
                    file.path,
                    file.text.lines().count()
                )
            })
            .collect::<Vec<_>>(),
    );
}
