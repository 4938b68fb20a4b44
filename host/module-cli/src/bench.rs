//! `gond bench --host`: linking measured on the host's processor (docs/modules.md has the tables).
//!
//! | row | what |
//! |---|---|
//! | `link-oo1` | a round of OO1 (docs/spec/oo1.md) with the database as a library, linked in several ways |
//! | `link-instantiate` | an instance of a library of 1,000 exports, with a client's descriptor filled |
//! | `link-memory` | private memory of a further instance of sqlite3 |
//!
//! Times are of processes run in turn, one of each way after the other, medians over the runs. Instructions
//! are counted by callgrind, where it is installed, as the difference of a long run and a short one.

pub(crate) mod instances;
mod oo1;

use crate::{GCC_FLAGS, Words};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A measured row.
pub(crate) struct Row {
    name: &'static str,
    system: String,
    instructions: Option<u64>,
    ns: Option<u64>,
    /// Further figures.
    more: Value,
}

impl Row {
    fn to_json(&self) -> Value {
        let mut line =
            json!({"row": self.name, "system": self.system, "instructions": self.instructions, "ns": self.ns});
        if let (Some(line), Some(more)) = (line.as_object_mut(), self.more.as_object()) {
            line.extend(more.clone());
        }
        line
    }
}

/// The folder of the C sources.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/link")
}

/// Runs a program to its end; its output.
fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name}: {}\n{text}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn gcc<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(folder: &Path, words: I) -> Result<(), String> {
    output(Command::new("gcc").current_dir(folder).arg("-O2").args(words)).map(|_| ())
}

/// Compiles a source to an object for a module.
fn module_object(folder: &Path, source: &Path, object: &str, flags: &[&str]) -> Result<(), String> {
    let mut words: Vec<&OsStr> = GCC_FLAGS.iter().map(OsStr::new).collect();
    words.extend(flags.iter().map(OsStr::new));
    words.extend(["-c", "-o", object].map(OsStr::new));
    words.push(source.as_os_str());
    gcc(folder, words)
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// Measures everything and prints it.
pub(crate) fn command(words: &Words) -> Result<(), String> {
    let folder = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = folder.with_file_name("link-bench");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut rows = oo1::measure(&folder, words.runs.unwrap_or(40))?;
    rows.extend(instances::instantiate(&folder)?);
    rows.extend(instances::memory(&folder)?);
    if words.json {
        for row in &rows {
            println!("{}", row.to_json());
        }
        return Ok(());
    }
    println!("| row | system | instructions | ns | more |");
    println!("| --- | --- | ---: | ---: | --- |");
    for row in &rows {
        let number = |value: Option<u64>| value.map_or("–".to_string(), |value| value.to_string());
        let more = row.more.as_object().into_iter().flatten();
        let more: Vec<String> = more.map(|(key, value)| format!("{key} {value}")).collect();
        let (instructions, ns) = (number(row.instructions), number(row.ns));
        println!(
            "| {} | {} | {instructions} | {ns} | {} |",
            row.name,
            row.system,
            more.join(", ")
        );
    }
    Ok(())
}
