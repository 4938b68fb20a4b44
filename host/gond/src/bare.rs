//! Programs on the bare µ-kernel: started as a boot module, heard through the kernel's log, judged by the exit device.

use crate::display::Job;
use crate::machine::{End, Machine, Wiring};
use crate::place::Scratch;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of the disk that such a machine has and does not use.
const DISK_BYTES: u64 = 1 << 20;

/// A machine that runs `program` on `kernel`; what it needs besides lies in `scratch`.
pub fn machine(kernel: &Path, program: &Path, scratch: &Scratch) -> Result<Machine> {
    let disk = scratch.file("unused.img");
    std::fs::File::create(&disk)
        .and_then(|file| file.set_len(DISK_BYTES))
        .with_context(|| format!("cannot make {}", disk.display()))?;
    Ok(Machine::bare(kernel.to_owned(), program.to_owned(), disk))
}

/// Runs it to its end, or to the end of `patience`; gives how it ended and the kernel's log.
pub fn run(machine: &Machine, scratch: &Scratch, patience: Duration, job: &mut Job) -> Result<(End, String)> {
    let log = scratch.file("log");
    let mut child = machine
        .command(&Wiring::Nothing, &log)?
        .spawn()
        .context("cannot start QEMU")?;
    let started = Instant::now();
    let read = || String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for QEMU")? {
            return Ok((End::of(status), read()));
        }
        if started.elapsed() > patience {
            let _ = child.kill();
            let _ = child.wait();
            bail!("no end after {} s; the kernel's log:\n{}", patience.as_secs(), read());
        }
        job.step(read().trim_end().lines().last().unwrap_or_default());
        std::thread::sleep(Duration::from_millis(50));
    }
}
