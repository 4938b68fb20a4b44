//! The suite of the WebAssembly project for WASI preview 1 (`wasi-testsuite`), where somebody has it:
//!
//! ```text
//! git clone --depth 1 --branch prod/testsuite-base https://github.com/WebAssembly/wasi-testsuite
//! WASI_TESTSUITE=wasi-testsuite cargo test -p sip-cli --test wasi_testsuite -- --nocapture
//! ```
//!
//! Each module of `tests/*/testsuite/wasm32-wasip1` runs as `gond sip run` does it, by the JSON file beside it, in both of
//! its forms: what is to be run with which arguments, environment and root folder, what it prints, and its status. Its root
//! is a copy of the suite's folder. A stream that is named must say what is written there and no more; the suite's own
//! runner looks at as many bytes as it expects.
//!
//! The modules may not be committed here, so that without the variable nothing but the runner itself is tested.

mod support;

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{Folder, finish};

/// Modules of the suite that was looked at (commit 9f80ca35). A newer one has these at least.
const MODULES: usize = 72;
/// Modules that do not pass, and why. One that passes does not belong here.
const EXCEPTIONS: [(&str, &str); 0] = [];
/// How long a module may take. The slowest need a tenth of a second.
const LIMIT: Duration = Duration::from_mins(1);

/// A module's arguments and files, and the results that are expected.
#[derive(Default)]
struct Specification {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// The folder that the module has as `/`.
    root: Option<PathBuf>,
    status: i64,
    /// The text that the streams must have, if that is asked: standard output, standard error.
    streams: [Option<String>; 2],
}

fn text(value: &Value) -> Result<String, String> {
    let text = value.as_str().map(str::to_string);
    text.ok_or_else(|| format!("{value} should be a text"))
}

impl Specification {
    /// That of a module: of the file beside it, if there is one.
    fn of(module: &Path) -> Result<Self, String> {
        let file = module.with_extension("json");
        if !file.exists() {
            return Ok(Self::default());
        }
        let bytes = fs::read(&file).map_err(|error| error.to_string())?;
        let value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        let folder = module.parent().unwrap_or(Path::new("."));
        Self::parse(&value, folder)
    }

    fn parse(value: &Value, folder: &Path) -> Result<Self, String> {
        let mut made = Self::default();
        let fields = value.as_object().ok_or("no object")?;
        let Some(operations) = fields.get("operations") else {
            for (field, value) in fields {
                made.field(field, value, folder)?;
            }
            return Ok(made);
        };
        let operations = operations.as_array().ok_or("'operations' is no list")?;
        if let Some(field) = fields.keys().find(|field| *field != "operations") {
            return Err(format!("the field '{field}' is not understood"));
        }
        for operation in operations {
            let operation = operation.as_object().ok_or("an operation is no object")?;
            let fields = operation.iter().filter(|(field, _)| *field != "type");
            match operation.get("type").and_then(Value::as_str) {
                Some("run" | "wait") => {
                    for (field, value) in fields {
                        made.field(field, value, folder)?;
                    }
                }
                Some("read") => {
                    let of = |field| operation.get(field).map(text).transpose();
                    let stream = of("id")?.unwrap_or_else(|| "stdout".into());
                    made.expect(&stream, &of("payload")?.unwrap_or_default())?;
                }
                _ => return Err(format!("the operation {operation:?} is not understood")),
            }
        }
        Ok(made)
    }

    fn field(&mut self, field: &str, value: &Value, folder: &Path) -> Result<(), String> {
        match field {
            "args" => {
                let list = value.as_array().ok_or("'args' is no list")?;
                self.arguments = list.iter().map(text).collect::<Result<_, _>>()?;
            }
            "env" => {
                let list = value.as_object().ok_or("'env' is no object")?;
                let pairs = list.iter().map(|(name, value)| Ok((name.clone(), text(value)?)));
                self.environment = pairs.collect::<Result<_, String>>()?;
            }
            "root" if value.is_null() => {}
            "root" => self.root = Some(folder.join(text(value)?)),
            "exit_code" => self.status = value.as_i64().ok_or("'exit_code' is no number")?,
            "stdout" | "stderr" => self.expect(field, &text(value)?)?,
            _ => return Err(format!("the field '{field}' is not understood")),
        }
        Ok(())
    }

    fn expect(&mut self, stream: &str, more: &str) -> Result<(), String> {
        let at = match stream {
            "stdout" => 0,
            "stderr" => 1,
            _ => return Err(format!("there is no stream '{stream}'")),
        };
        self.streams[at].get_or_insert_default().push_str(more);
        Ok(())
    }
}

/// Copies what is in a folder, but for what earlier runs of the suite have left there.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.extension().is_some_and(|ending| ending == "cleanup") {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy(&from, &to)?;
        } else {
            fs::copy(from, to)?;
        }
    }
    Ok(())
}

/// Runs a module; what is wrong with it, if something is.
fn run(module: &Path, limit: Duration) -> Result<(), String> {
    let specification = Specification::of(module).map_err(|text| format!("its JSON file: {text}"))?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_sip-cli"));
    command.arg("run");
    let name = module.file_stem().unwrap_or_default().to_string_lossy();
    let home = Folder::new(&format!("wasi-{name}"));
    if let Some(root) = &specification.root {
        copy(root, &home.0).map_err(|error| format!("{}: {error}", root.display()))?;
        command.arg("--dir").arg(format!("{}=/", home.0.display()));
    }
    for (name, value) in &specification.environment {
        command.args(["--env", &format!("{name}={value}")]);
    }
    // An argument may look like a program.
    command.arg(module).arg("--").args(&specification.arguments);
    let ended = finish(command.stdin(Stdio::null()), limit).map_err(|error| error.to_string())?;
    let error = ended.said[1].trim();
    let Some(status) = ended.status else {
        return Err(format!("it was still running after {limit:?}: {error}"));
    };
    if status.code().map(i64::from) != Some(specification.status) {
        return Err(format!("{status} instead of {}: {error}", specification.status));
    }
    for (said, expected) in ended.said.iter().zip(&specification.streams) {
        if let Some(expected) = expected
            && said != expected
        {
            return Err(format!("it said {said:?} instead of {expected:?}"));
        }
    }
    Ok(())
}

/// The modules of a suite, by name. It is the clone, or the folder `tests` in it.
fn modules(suite: &Path) -> Vec<PathBuf> {
    let tests = suite.join("tests");
    let tests = if tests.is_dir() { &tests } else { suite };
    let entries = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect::<Vec<_>>()
    };
    let folders = entries(tests).into_iter();
    let mut found: Vec<PathBuf> = folders
        .flat_map(|folder| entries(&folder.join("testsuite/wasm32-wasip1")))
        .filter(|file| file.extension().is_some_and(|ending| ending == "wasm"))
        .collect();
    found.sort();
    found
}

/// Runs all and yields those that fail, each with the reason.
fn failures(modules: &[PathBuf], limit: Duration) -> Vec<(String, String)> {
    let mut failures = Vec::new();
    for module in modules {
        if let Err(why) = run(module, limit) {
            let name = module.file_stem().unwrap_or_default().to_string_lossy();
            failures.push((name.into_owned(), why));
        }
    }
    failures
}

#[test]
fn the_suite_passes() {
    let Some(suite) = std::env::var_os("WASI_TESTSUITE") else {
        eprintln!("WASI_TESTSUITE names no folder: the suite was not run (docs/sip.md says where it is)");
        return;
    };
    let modules = modules(Path::new(&suite));
    assert!(
        modules.len() >= MODULES,
        "{} has {} modules instead of {MODULES}; is it the branch prod/testsuite-base?",
        Path::new(&suite).display(),
        modules.len()
    );
    let failed = failures(&modules, LIMIT);
    println!(
        "wasi-testsuite: {} of {} pass",
        modules.len() - failed.len(),
        modules.len()
    );
    for (name, why) in &failed {
        println!("  {name:<40} {why}");
    }
    let names: Vec<&str> = failed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        EXCEPTIONS.map(|(name, _)| name),
        "other modules fail than are known to"
    );
}

/// The runner sees what goes wrong: each module here but the good ones breaks one of its promises.
#[test]
fn the_runner_sees_failures() {
    let suite = Folder::new("runner");
    let folder = suite.0.join("tests/text/testsuite/wasm32-wasip1");
    fs::create_dir_all(folder.join("root/inner.cleanup")).expect("a folder");
    fs::create_dir_all(folder.join("root/inner")).expect("a folder");
    fs::write(folder.join("root/file"), "").expect("a file");
    let wasi = r#"(import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (import "wasi_snapshot_preview1" "args_sizes_get" (func $args (param i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "environ_sizes_get" (func $env (param i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "path_unlink_file" (func $unlink (param i32 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "path_remove_directory" (func $remove (param i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (data (i32.const 0) "\10\00\00\00\02\00\00\00") (data (i32.const 16) "hifileinner.cleanup")"#;
    let says = "(drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))";
    let counts = "(drop (call $args (i32.const 64) (i32.const 68))) (drop (call $env (i32.const 72) (i32.const 76)))
        (call $exit (i32.add (i32.load (i32.const 64)) (i32.load (i32.const 76))))";
    // It removes 'file' and 'inner', which are there, and 'inner.cleanup', which is not (44).
    let removes = "(call $exit (i32.add (i32.add
        (call $unlink (i32.const 3) (i32.const 18) (i32.const 4)) (call $remove (i32.const 3) (i32.const 22) (i32.const 5)))
        (call $remove (i32.const 3) (i32.const 22) (i32.const 13))))";
    let cases = [
        (
            "args",
            counts,
            r#"{"args": ["b.wasm"], "env": {"A": "=2"}, "exit_code": 7}"#,
            "",
        ),
        ("default", "", "", ""),
        (
            "default-status",
            "(call $exit (i32.const 2))",
            "",
            "exit status: 2 instead of 0",
        ),
        ("field", "", r#"{"exitcode": 0}"#, "the field 'exitcode'"),
        ("more", says, r#"{"stdout": "h"}"#, r#"it said "hi" instead of "h""#),
        (
            "operation",
            "",
            r#"{"operations": [{"type": "connect"}]}"#,
            "is not understood",
        ),
        (
            "operations",
            says,
            r#"{"operations": [{"type": "run"}, {"type": "read", "payload": "h"}, {"type": "read", "payload": "i"},
                {"type": "wait"}]}"#,
            "",
        ),
        (
            "read",
            "",
            r#"{"operations": [{"type": "read", "payload": "x"}]}"#,
            r#"it said "" instead of "x""#,
        ),
        ("root", removes, r#"{"root": "root", "exit_code": 44}"#, ""),
        ("root-again", removes, r#"{"root": "root", "exit_code": 44}"#, ""),
        ("spin", "(loop (br 0))", "", "it was still running"),
        ("status", "", r#"{"exit_code": 3}"#, "exit status: 0 instead of 3"),
        ("stderr", "", r#"{"stderr": "x"}"#, r#"it said "" instead of "x""#),
        ("stdout", says, r#"{"stdout": "hi"}"#, ""),
        ("trap", "unreachable", "", "exit status: 134 instead of 0: gond sip: "),
        (
            "wait",
            "",
            r#"{"operations": [{"type": "wait", "exit_code": 1}]}"#,
            "exit status: 0 instead of 1",
        ),
    ];
    for (name, body, json, _) in cases {
        let module = wat::parse_str(format!("(module {wasi} (func (export \"_start\") {body}))")).expect("text");
        fs::write(folder.join(format!("{name}.wasm")), module).expect("a file");
        if !json.is_empty() {
            fs::write(folder.join(format!("{name}.json")), json).expect("a file");
        }
    }
    let modules = modules(&suite.0);
    assert_eq!(modules.len(), cases.len());
    let mut failed = failures(&modules, Duration::from_secs(10)).into_iter();
    for (name, _, _, why) in cases.iter().filter(|case| !case.3.is_empty()) {
        let (found, said) = failed.next().unwrap_or_default();
        assert!(found == *name && said.contains(why), "{name}: {found}: {said}");
    }
    assert_eq!(failed.next(), None);
}
