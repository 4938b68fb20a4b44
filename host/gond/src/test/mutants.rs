//! Stage `mutants`: do the host tests notice when the logic is wrong?
//!
//! `cargo mutants` lists every small change that it knows to make in the pure crates. A part of them, spread over the whole list and
//! chosen by the seed, is made one at a time in a clone of the last commit, and the tests of the changed crate run. A mutant
//! that no test notices is a survivor: a test is missing, or the change makes no difference. `docs/mutants.md` lists them with the reason.

use super::Bench;
use crate::build;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// What is changed together, and whose tests run for it besides those of the changed crate.
const GROUPS: [(&[&str], &[&str]); 2] = [(&["kcore", "sasos", "names"], &[]), (&["store"], &["store", "sim"])];
/// Mutants that are tried unless `--calls` says otherwise.
pub const COUNT: u64 = 500;
/// Of a hundred mutants that build, so many must be caught.
const CAUGHT_PERCENT: usize = 90;
/// The longest that one build or one run of tests may take, in seconds. An endless loop is noticed by it.
const PATIENCE: &str = "240";

/// Runs the stage.
pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let tree = bench.file("tree");
    finish(
        Command::new("git")
            .args(["clone", "--quiet", "--shared"])
            .arg(bench.root())
            .arg(&tree),
    )?;
    if mutants(&tree)
        .arg("--version")
        .output()
        .map_or(true, |output| !output.status.success())
    {
        bench.step("cargo install cargo-mutants (once)");
        finish(build::cargo(bench.root()).args(["install", "--quiet", "--locked", "cargo-mutants"]))?;
    }
    let total: usize = GROUPS
        .iter()
        .map(|(packages, _)| count(&tree, packages))
        .sum::<Result<usize>>()?;
    let parts = (total / bench.dice.calls.unwrap_or(COUNT).max(1) as usize).max(1);
    let part = bench.dice.seed as usize % parts;
    bench.tell(&format!(
        "{total} mutants, part {part} of {parts} (seed {})",
        bench.dice.seed
    ));
    let (mut caught, mut survivors) = (0, Vec::new());
    for (group, (packages, tests)) in GROUPS.iter().enumerate() {
        bench.step(&packages.join(", "));
        let out = bench.file(&format!("out-{group}"));
        let mut command = mutants(&tree);
        command.args([
            "--in-place",
            "--baseline",
            "skip",
            "--sharding",
            "round-robin",
            "--no-times",
            "--colors",
            "never",
        ]);
        command.args([
            "--timeout",
            PATIENCE,
            "--build-timeout",
            PATIENCE,
            "--shard",
            &format!("{part}/{parts}"),
        ]);
        command
            .arg("--output")
            .arg(&out)
            .env("CARGO_TARGET_DIR", bench.root().join("target/mutants"));
        for package in *tests {
            command.args(["--test-package", package]);
        }
        for package in *packages {
            command.args(["--package", package]);
        }
        // Its exit status tells of survivors, which the lists do, too.
        let output = command.output().context("cannot start cargo mutants")?;
        let listed = |name: &str| std::fs::read_to_string(out.join("mutants.out").join(name));
        let Ok(found) = listed("caught.txt") else {
            bail!("cargo mutants failed:\n{}", String::from_utf8_lossy(&output.stderr));
        };
        caught += found.lines().count() + listed("timeout.txt")?.lines().count();
        survivors.extend(listed("missed.txt")?.lines().map(str::to_owned));
    }
    let tried = caught + survivors.len();
    for survivor in &survivors {
        bench.tell(&format!("survived: {survivor}"));
    }
    bench.tell(&format!("{caught} of {tried} mutants caught"));
    bench.report(
        "mutants are caught",
        if tried > 0 && caught * 100 >= tried * CAUGHT_PERCENT {
            Ok(())
        } else {
            Err(format!("{caught} of {tried}; survivors:\n{}", survivors.join("\n")))
        },
    );
    Ok(())
}

/// The tool, in the clone.
fn mutants(tree: &Path) -> Command {
    let mut command = build::cargo(tree);
    command.current_dir(tree).arg("mutants");
    command
}

/// How many mutants there are of some crates.
fn count(tree: &Path, packages: &[&str]) -> Result<usize> {
    let mut command = mutants(tree);
    command.arg("--list");
    for package in packages {
        command.args(["--package", package]);
    }
    let output = command.output().context("cannot start cargo mutants")?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().count())
}

/// Runs a command that must succeed.
fn finish(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
