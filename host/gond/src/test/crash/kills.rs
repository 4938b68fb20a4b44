//! `gond crash --qemu N`: the whole system killed in the middle of its work, on machines in turns.

use super::{Chance, Disk, Kept, MOMENTS, one_cut};
use crate::build::{self, Built};
use crate::disk::lock_image;
use crate::display::{self, Job};
use crate::machine::Machine;
use crate::place::Scratch;
use crate::script::Patience;
use crate::test::{built, expect_success, play};
use crate::{image, transfer};
use anyhow::{Result, bail};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Processors of the machines.
const PROCESSORS: [u32; 3] = [1, 2, 4];
/// Bytes of their memory.
const MEMORY: [u64; 2] = [128 << 20, 32 << 20];
/// Bytes of the disks, and of a file that leaves little room on the smaller one.
const WIDE: u64 = 256 << 20;
const SMALL: u64 = 16 << 20;
const FILLING: usize = 9 << 20;

/// One disk, and what must be on it.
struct Subject {
    machine: Machine,
    disk: Disk,
    kept: Kept,
}

impl Subject {
    fn new(built: &Built, scratch: &Scratch, disk: Disk) -> Result<Self> {
        let (name, bytes) = match disk {
            Disk::Wide => ("wide.img", WIDE),
            Disk::NearlyFull => ("small.img", SMALL),
        };
        let path = scratch.file(name);
        image::create(&path, bytes, Some(&built.programs))?;
        if disk == Disk::NearlyFull {
            fill(&path, &scratch.file("filling"))?;
        }
        let machine = Machine::new(built.kernel.clone(), path);
        let prepare = ["create log 4K", "write log 0 0000000000", "create scratch 64K", "sync"];
        let (played, output) = play(&machine, &prepare, Patience::seconds(60))?;
        if let Err(why) = expect_success(&played, &output) {
            bail!("the workload cannot be prepared: {why}");
        }
        Ok(Self {
            machine,
            disk,
            kept: Kept::default(),
        })
    }
}

/// Takes most of the room of a disk.
fn fill(disk: &Path, file: &Path) -> Result<()> {
    std::fs::write(file, [7; 4096].repeat(FILLING / 4096))?;
    transfer::import_file(&lock_image(disk)?, file, "filling")
}

/// Kills the system so many times; with the seed of an earlier run, with its lines at its moments.
pub fn kills(count: u64, seed: Option<u64>) -> Result<ExitCode> {
    let (built, outside) = (built()?, build::server(build::Profile::Guest)?);
    let scratch = Scratch::make()?;
    let mut chance = seed.map_or_else(Chance::new, Chance::of);
    display::note(&format!("the seed is {}", chance.seed()));
    let mut subjects = [
        Subject::new(&built, &scratch, Disk::Wide)?,
        Subject::new(&built, &scratch, Disk::NearlyFull)?,
    ];
    let mut job = Job::begin("killing the system");
    for kill in 0..count {
        let moment = Duration::from_millis(chance.between(MOMENTS.0, MOMENTS.1));
        let turn = kill as usize;
        let subject = &mut subjects[turn / 12 % 2];
        let mut machine = subject.machine.clone();
        machine.processors = PROCESSORS[turn % 3];
        machine.memory = MEMORY[turn / 6 % 2];
        let is_outside = turn / 3 % 2 == 1;
        if is_outside {
            machine = machine.with_server(outside.clone());
        }
        let what = format!(
            "kill {} of {count}: {} processors, {} MiB, the server {}, a disk {}, after {} ms",
            kill + 1,
            machine.processors,
            machine.memory >> 20,
            if is_outside { "outside" } else { "inside" },
            if subject.disk == Disk::Wide {
                "with room"
            } else {
                "nearly full"
            },
            moment.as_millis()
        );
        job.step(&what);
        let number = u32::try_from(kill).unwrap_or(u32::MAX);
        if let Err(why) = one_cut((&machine, subject.disk), number, moment, &mut chance, &mut subject.kept)? {
            job.clear();
            println!("{} {what}: {why}", display::bad("FAILED"));
            return Ok(ExitCode::FAILURE);
        }
    }
    job.clear();
    println!("{count} kills, and nothing was lost");
    Ok(ExitCode::SUCCESS)
}
