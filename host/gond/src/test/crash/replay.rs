//! A recorded run, replayed with the writes that a real power cut loses or tears.
//!
//! QEMU's `blklogwrites` records every write and flush of a workload. `sim::blklog` then makes, for each time between
//! two flushes, disks on which any of its writes are missing or torn; the store must mount and verify each, and
//! find it at least as new as what had been flushed.

use super::super::{Bench, expect_success, play};
use super::{Chance, workload};
use crate::machine::Machine;
use crate::script::Patience;
use crate::{image, test};
use anyhow::{Context, Result};
use sim::blklog::{self, ReplayOptions, ReplayReport};
use std::fs::File;
use std::io::BufReader;

/// Size of the disk: small, for it is made thousands of times.
const DISK_BYTES: u64 = 48 << 20;
/// Lines of the recorded workload.
const LINES: usize = 120;
/// Disks made for each time between two flushes.
const DISKS: usize = 50;

/// Records a workload and replays it.
pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let built = test::built()?;
    let (disk, record) = (bench.file("recorded.img"), bench.file("recorded.log"));
    image::create(&disk, DISK_BYTES, Some(&built.programs))?;
    let (blocks, base) = blklog::read_image(BufReader::new(File::open(&disk)?)).context("cannot read the image")?;
    File::create(&record)?;
    let mut machine = Machine::new(built.kernel, disk);
    machine.record = Some(record.clone());
    let mut chance = Chance::new();
    let seed = chance.seed();
    let mut lines: Vec<String> = ["create log 4K", "create scratch 64K"].map(str::to_owned).into();
    lines.extend(workload(0, 0, super::Names::new(), &mut chance).into_iter().take(LINES));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    bench.step("recording a workload");
    let (played, output) = play(&machine, &lines, Patience::seconds(60))?;
    bench.report("a workload is recorded", expect_success(&played, &output));
    let log = test::slurp(&record)?;
    let options = ReplayOptions { seed, per_epoch: DISKS };
    let mut progress = |done, all| bench.step(&format!("replaying what was recorded: flush {done} of {all}"));
    let report = blklog::replay(&log, base, blocks, options, &mut progress).context("the recording cannot be read")?;
    bench.tell(&format!(
        "{} disks with lost and torn writes were made of a recording of {} flushes and {} writes",
        report.images, report.epochs, report.writes
    ));
    bench.report("every disk with lost and torn writes is sound", judge(&report, seed));
    Ok(())
}

fn judge(report: &ReplayReport, seed: u64) -> Result<(), String> {
    if report.failed > 0 {
        let failures = report.failures.iter();
        let lines: Vec<String> = failures
            .map(|one| format!("flush {}, disk {}: {}", one.epoch, one.image, one.what))
            .collect();
        return Err(format!(
            "{} disks are not sound (GOND_SEED={seed} repeats it):\n{}",
            report.failed,
            lines.join("\n")
        ));
    }
    // A recording without these would have tested nothing.
    if report.epochs < 20 || report.replayed == 0 {
        return Err(format!("too little was recorded to test anything: {report:?}"));
    }
    Ok(())
}
