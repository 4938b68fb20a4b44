//! Stage `fuzz`: calls at random by the million, on a kernel and a server that are built with every assertion on and
//! check themselves every thousand events.
//!
//! Six machines: the server inside of the kernel and outside, on one processor and on four; the bare µ-kernel on one and
//! on four. The calls come in portions, each with a seed of its own, so that what fails is repeated soon.

use super::{Bench, expect_success, guest::suite_cases, play};
use crate::machine::{self, End, Machine};
use crate::script::Patience;
use crate::{bare, build, image};
use anyhow::Result;
use std::path::Path;
use std::time::Duration;

/// What the command line says of it.
#[derive(Copy, Clone, Debug)]
pub struct Dice {
    /// Calls on each machine.
    pub calls: u64,
    /// The seed of the first portion; the next ones count on from it.
    pub seed: u64,
}

impl Default for Dice {
    fn default() -> Self {
        Self {
            calls: 2_500_000,
            seed: crate::volume::now_ns() >> 20,
        }
    }
}

/// Calls of one portion.
const PORTION: u64 = 250_000;
/// The longest that a portion may take. It takes a minute where nothing else runs.
const PATIENCE: Duration = Duration::from_mins(20);
/// Memory of the machines, in bytes.
const MEMORY: u64 = 512 << 20;
/// Processors of the machines.
const PROCESSORS: [u32; 2] = [1, 4];

impl Dice {
    /// The portions: calls, and the seed.
    fn portions(self) -> impl Iterator<Item = (u64, u64)> {
        let count = self.calls.div_ceil(PORTION);
        (0..count).map(move |index| {
            let calls = PORTION.min(self.calls - index * PORTION);
            (calls, self.seed.wrapping_add(index))
        })
    }
}

/// Runs the stage.
pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    machine::require_emulator()?;
    let kernel = build::kernel(bench.root(), build::Profile::Checked)?;
    let server = build::server(build::Profile::Checked)?;
    let programs = build::programs()?;
    for processors in PROCESSORS {
        for (place, server) in [("inside", None), ("outside", Some(&server))] {
            let disk = bench.file(&format!("{place}-{processors}.img"));
            image::create(&disk, 256 << 20, Some(&programs))?;
            let mut machine = Machine::new(kernel.clone(), disk);
            (machine.processors, machine.memory) = (processors, MEMORY);
            if let Some(server) = server {
                machine = machine.with_server(server.clone());
            }
            calls_of_server(bench, &machine, place)?;
        }
    }
    let program = build::root_program("nucleus-suite")?;
    for processors in PROCESSORS {
        calls_of_nucleus(bench, &kernel, &program, processors)?;
    }
    Ok(())
}

/// The last words of a portion that tell what it did.
fn told(output: &str) -> &str {
    output.lines().find(|line| line.starts_with("fuzz: ")).unwrap_or(output)
}

fn calls_of_server(bench: &mut Bench<'_>, machine: &Machine, place: &str) -> Result<()> {
    let patience = Patience {
        total: Some(PATIENCE),
        ..Patience::seconds(PATIENCE.as_secs())
    };
    for (calls, seed) in bench.dice.portions() {
        let what = format!(
            "server {place}, processors: {}, {calls} calls, seed {seed}",
            machine.processors
        );
        bench.step(&what);
        let line = format!("suite --only fuzz/calls --calls {calls} --seed {seed}");
        let (played, output) = play(machine, &[&line], patience)?;
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

fn calls_of_nucleus(bench: &mut Bench<'_>, kernel: &Path, program: &Path, processors: u32) -> Result<()> {
    for (calls, seed) in bench.dice.portions() {
        let what = format!("bare µ-kernel, processors: {processors}, {calls} calls, seed {seed}");
        let mut machine = bare::machine(kernel, program, &bench.scratch)?;
        (machine.processors, machine.memory) = (processors, MEMORY);
        machine
            .words
            .extend(["only=fuzz".into(), format!("calls={calls}"), format!("seed={seed}")]);
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
            calls: 2 * PORTION + 5,
            seed: u64::MAX,
        };
        let portions: Vec<_> = dice.portions().collect();
        assert_eq!(portions, [(PORTION, u64::MAX), (PORTION, 0), (5, 1)]);
    }
}
