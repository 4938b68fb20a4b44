//! Notes of a run: which mutants build, what each test reaches, and which mutants are decided. The same run goes on there after an interruption.

use super::{Chosen, Test};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

pub struct Notes {
    tests: PathBuf,
    verdicts: PathBuf,
    /// The commit and the choices of the run.
    key: String,
}

impl Notes {
    pub fn new(folder: &std::path::Path, key: String) -> Self {
        let (tests, verdicts) = (folder.join("tests.json"), folder.join("verdicts"));
        Self { tests, verdicts, key }
    }

    /// The tests of the same run, if that was interrupted; keeps the mutants that build.
    pub fn load(&self, chosen: &mut Chosen) -> Option<Vec<Test>> {
        let noted: Value = serde_json::from_slice(&std::fs::read(&self.tests).ok()?).ok()?;
        if noted["key"] != self.key.as_str() {
            return None;
        }
        let numbers = |value: &Value| -> Option<_> {
            let all = value.as_array()?.iter();
            all.map(|number| Some(number.as_u64()? as usize)).collect()
        };
        let test = |value: &Value| -> Option<_> {
            Some(Test {
                program: (value[0].as_str()?.into(), value[1].as_str()?.into()),
                name: value[2].as_str()?.into(),
                takes: Duration::from_millis(value[3].as_u64()?),
                reaches: numbers(&value[4])?,
            })
        };
        let builds: std::collections::BTreeSet<usize> = numbers(&noted["builds"])?;
        let tests = noted["tests"].as_array()?.iter().map(test).collect::<Option<_>>()?;
        chosen.retain(|number, _| builds.contains(number));
        Some(tests)
    }

    /// A new run tries its mutants from now on.
    pub fn save(&self, chosen: &Chosen, tests: &[Test]) -> Result<()> {
        let test = |test: &Test| {
            json!([
                test.program.0,
                test.program.1,
                test.name,
                test.takes.as_millis() as u64,
                test.reaches
            ])
        };
        let tests: Vec<_> = tests.iter().map(test).collect();
        let builds: Vec<_> = chosen.keys().collect();
        let noted = json!({"key": self.key, "builds": builds, "tests": tests});
        let _ = std::fs::remove_file(&self.verdicts);
        std::fs::write(&self.tests, noted.to_string()).context("cannot note the tests")
    }

    /// Whether a mutant is caught.
    pub fn decide(&self, number: usize, is_caught: bool) {
        let file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&self.verdicts);
        let _ = file.and_then(|mut file| writeln!(file, "{number} {is_caught}"));
    }

    /// The decisions made before an interruption.
    pub fn decided(&self) -> BTreeMap<usize, bool> {
        let noted = std::fs::read_to_string(&self.verdicts).unwrap_or_default();
        let verdict = |line: &str| {
            let (number, is_caught) = line.split_once(' ')?;
            Some((number.parse().ok()?, is_caught.parse().ok()?))
        };
        noted.lines().filter_map(verdict).collect()
    }

    /// The run is over: the same one again begins anew.
    pub fn end(&self) {
        let _ = std::fs::remove_file(&self.tests);
    }
}
