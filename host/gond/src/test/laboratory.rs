//! Stage `laboratory`: the crash laboratory, a hundred thousand states and more.
//!
//! It is run as a command of its own, so that a store that panics fails one test and not all.

use super::Bench;
use crate::crash::KINDS;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Seeds of each kind.
const SEEDS: u64 = 800;
/// States that are asked for.
const STATES: u64 = 100_000;

/// Runs the stage.
pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let mut child = Command::new(program)
        .args(["crash", "--json", "--seeds", &SEEDS.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the laboratory")?;
    while child.try_wait().context("cannot wait for the laboratory")?.is_none() {
        bench.step("power cuts on simulated disks");
        std::thread::sleep(Duration::from_millis(200));
    }
    let output = child.wait_with_output().context("cannot wait for the laboratory")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let found: Result<Value, _> = serde_json::from_slice(&output.stdout);
    let Ok(found) = found else {
        bench.report("the laboratory comes to its end", Err(said.into_owned()));
        return Ok(());
    };
    let failed = found["failed"].as_array().context("no list of failures")?;
    for kind in KINDS {
        let of_kind = failed.iter().filter(|failure| failure["kind"] == kind);
        let why: Vec<String> = of_kind
            .map(|failure| {
                let text = |key: &str| failure[key].as_str().unwrap_or_default().to_owned();
                format!("{}\n{}", text("what"), text("repeat"))
            })
            .collect();
        let outcome = if why.is_empty() { Ok(()) } else { Err(why.join("\n")) };
        bench.report(&format!("lives of the kind '{kind}'"), outcome);
    }
    let states = found["states"].as_u64().context("no number of states")?;
    let enough = if states >= STATES || !failed.is_empty() {
        Ok(())
    } else {
        Err(format!("{states}, and {STATES} are asked for"))
    };
    bench.report("the number of states", enough);
    bench.tell(&format!(
        "{states} states of crashed disks in {:.0} s",
        found["seconds"].as_f64().unwrap_or_default()
    ));
    ensure!(
        output.status.success() == failed.is_empty(),
        "the exit status of the laboratory says something else than its findings"
    );
    Ok(())
}
