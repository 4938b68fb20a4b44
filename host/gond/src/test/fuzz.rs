//! Stage `fuzz`: calls at random by the million, on a kernel and a server that are built with every assertion on and
//! check themselves every thousand events.
//!
//! Twelve machines: the server inside of the kernel and outside, and the bare µ-kernel, each on 1, 2, 4 and 16 processors. The calls come in portions, each with a seed of
//! its own, so that a failure is repeated soon.

use super::{Bench, expect_success, guest::suite_cases, play};
use crate::machine::{self, End, Machine};
use crate::script::Patience;
use crate::{bare, build, image};
use anyhow::Result;
use std::path::Path;
use std::time::Duration;

/// The options of the command line.
#[derive(Clone, Debug)]
pub struct Dice {
    /// Calls on each machine, or mutants; if not as many as the stage makes by itself.
    pub calls: Option<u64>,
    /// The seed of the first portion; the next ones count on from it.
    pub seed: u64,
    /// The file or folder whose mutants are tried, if not all.
    pub within: Option<std::path::PathBuf>,
    /// The machine, if not all.
    pub machine: Option<&'static str>,
}

impl Default for Dice {
    fn default() -> Self {
        Self {
            calls: None,
            seed: crate::volume::now_ns() >> 20,
            within: None,
            machine: None,
        }
    }
}

/// The component that answers calls.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Answers {
    Inside,
    Outside,
    Nobody,
}

/// The machines: name, who answers calls, processors.
const MACHINES: [(&str, Answers, u32); 12] = [
    ("inside-1", Answers::Inside, 1),
    ("outside-1", Answers::Outside, 1),
    ("bare-1", Answers::Nobody, 1),
    ("inside-2", Answers::Inside, 2),
    ("outside-2", Answers::Outside, 2),
    ("bare-2", Answers::Nobody, 2),
    ("inside-4", Answers::Inside, 4),
    ("outside-4", Answers::Outside, 4),
    ("bare-4", Answers::Nobody, 4),
    ("inside-16", Answers::Inside, 16),
    ("outside-16", Answers::Outside, 16),
    ("bare-16", Answers::Nobody, 16),
];

/// The machine of this name, or what names there are.
pub fn machine_named(name: &str) -> Result<&'static str, String> {
    let names = MACHINES.map(|(name, ..)| name);
    let found = names.into_iter().find(|known| *known == name);
    found.ok_or_else(|| format!("there is no machine '{name}'; there are {}", names.join(", ")))
}

/// Calls on each machine unless the command line says otherwise.
const CALLS: u64 = 2_500_000;
/// Calls of one portion.
const PORTION: u64 = 100_000;
/// The longest that a portion may take. It takes some seconds where nothing else runs.
const PATIENCE: Duration = Duration::from_mins(20);
/// Memory of the machines, in bytes.
const MEMORY: u64 = 512 << 20;

impl Dice {
    /// The portions: calls, and the seed.
    fn portions(self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.calls.unwrap_or(CALLS);
        (0..all.div_ceil(PORTION)).map(move |index| {
            let calls = PORTION.min(all - index * PORTION);
            (calls, self.seed.wrapping_add(index))
        })
    }
}

/// Runs the stage.
pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    machine::require_emulator()?;
    let kernel = |image| build::kernel(bench.root(), build::Profile::Checked, image);
    let inside = kernel(build::Kernel::Inside)?;
    let bare = kernel(build::Kernel::Bare)?;
    let only = bench.dice.machine;
    let is_wanted = |name: &str| only.is_none_or(|only| only == name);
    for (name, answers, processors) in MACHINES.into_iter().filter(|(name, ..)| is_wanted(name)) {
        if answers == Answers::Nobody {
            let program = build::root_program("nucleus-suite")?;
            calls_of_nucleus(bench, name, (&bare, &program, processors))?;
            continue;
        }
        let disk = bench.file(&format!("{name}.img"));
        image::create(&disk, 256 << 20, Some(&build::programs()?))?;
        let mut machine = Machine::new(inside.clone(), disk);
        (machine.processors, machine.memory) = (processors, MEMORY);
        if answers == Answers::Outside {
            machine = machine.with_server(build::server(build::Profile::Checked)?);
        }
        calls_of_server(bench, name, &machine)?;
    }
    Ok(())
}

/// The words of a portion that tell what it did.
fn told(output: &str) -> String {
    let is_telling = |line: &&str| line.starts_with("fuzz: ") || line.starts_with("killer: ");
    let lines: Vec<&str> = output.lines().filter(is_telling).collect();
    if lines.is_empty() {
        output.to_owned()
    } else {
        lines.join("; ")
    }
}

fn calls_of_server(bench: &mut Bench<'_>, name: &str, machine: &Machine) -> Result<()> {
    let patience = Patience {
        total: Some(PATIENCE),
        ..Patience::seconds(PATIENCE.as_secs())
    };
    for (calls, seed) in bench.dice.clone().portions() {
        let what = format!("{name}, {calls} calls, seed {seed}");
        bench.step(&what);
        let lines = ["fuzz/calls", "killer"].map(|name| format!("suite --only {name} --calls {calls} --seed {seed}"));
        let (played, output) = play(machine, &lines.each_ref().map(String::as_str), patience)?;
        bench.tell(&format!("{what}: {}", told(&output)));
        let failed = suite_cases(&output).into_iter().find_map(|(_, why)| why);
        let outcome = match failed {
            Some(why) => Err(why),
            None => expect_success(&played, &output),
        };
        let sound = crate::check::inspect(&machine.disk);
        bench.report(
            &what,
            outcome.and(sound.map_err(|error| format!("the image: {error:#}"))),
        );
    }
    Ok(())
}

fn calls_of_nucleus(
    bench: &mut Bench<'_>,
    name: &str,
    (kernel, program, processors): (&Path, &Path, u32),
) -> Result<()> {
    let portions = bench.dice.clone().portions();
    for ((calls, seed), cases) in portions.flat_map(|portion| [(portion, "fuzz"), (portion, "killer")]) {
        let what = format!("{name}, {cases}, {calls} calls, seed {seed}");
        let mut machine = bare::machine(kernel, program, &bench.scratch)?;
        (machine.processors, machine.memory) = (processors, MEMORY);
        machine.words.extend([
            format!("only={cases}"),
            format!("calls={calls}"),
            format!("seed={seed}"),
        ]);
        let outcome = match bare::run(&machine, &bench.scratch, PATIENCE, &mut bench.job) {
            Ok((End::Success, log)) => {
                bench.tell(&format!("{what}: {}", told(&log)));
                Ok(())
            }
            Ok((end, log)) => Err(format!("it ended with {end:?}; the kernel's log:\n{log}")),
            Err(error) => Err(format!("{error:#}")),
        };
        bench.report(&what, outcome);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_add_up_and_each_has_a_seed() {
        let dice = Dice {
            calls: Some(2 * PORTION + 5),
            seed: u64::MAX,
            within: None,
            machine: None,
        };
        let portions: Vec<_> = dice.portions().collect();
        assert_eq!(portions, [(PORTION, u64::MAX), (PORTION, 0), (5, 1)]);
    }
}
