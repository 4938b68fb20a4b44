//! `snapshot`: states of the whole disk, kept by a name.

use alloc::{format, string::String, vec::Vec};

use abi::{Error, address::PAGE, layout::SnapshotReport};
use rt::{println, system, time as clock};

use super::{Complaint, Outcome, Shell, said};
use crate::text::Bytes;

/// Seconds of a minute, an hour and a day.
const UNITS: [(u64, &str); 4] = [(86_400, "days"), (3_600, "h"), (60, "min"), (1, "s")];

pub fn snapshot(_: &mut Shell, arguments: &[&str]) -> Outcome {
    match arguments {
        ["keep", name] => keep(name),
        ["drop", name] => drop(name),
        ["ls"] => list(),
        _ => Err(Complaint::Usage),
    }
}

fn keep(name: &str) -> Outcome {
    match system::keep_snapshot(name) {
        Ok(()) => {
            println!("kept '{name}'");
            Ok(())
        }
        Err(Error::InUse) => said(format!(
            "snapshot: there is a snapshot '{name}'; 'snapshot drop {name}' makes room for a new one"
        )),
        Err(Error::TableFull) => {
            said("snapshot: there are 64 snapshots, and these are the most; 'snapshot drop NAME' drops one".into())
        }
        Err(Error::DiskFull) => said(format!(
            "snapshot: the disk has no room for '{name}'; 'snapshot drop NAME' and 'rm NAME' make some"
        )),
        Err(other) => refused(name, other),
    }
}

fn drop(name: &str) -> Outcome {
    match system::drop_snapshot(name) {
        Ok(()) => {
            println!("dropped '{name}'");
            Ok(())
        }
        Err(Error::BadAddress) => said(format!(
            "snapshot: there is no snapshot '{name}'; 'snapshot ls' lists them"
        )),
        Err(other) => refused(name, other),
    }
}

/// The errors that keeping and dropping have in common.
fn refused(name: &str, error: Error) -> Outcome {
    match error {
        Error::BadArgument => said(format!(
            "snapshot: '{name}' is not a name of a snapshot: 1 to 31 letters, digits, '-', '_' and '.', the first a letter or a digit"
        )),
        Error::Protection => said("snapshot: only who may switch the system off may do this".into()),
        other => Err(other.into()),
    }
}

fn list() -> Outcome {
    let snapshots: Vec<(String, SnapshotReport)> = system::snapshots()
        .map(|report| (system::snapshot_name(&report), report))
        .collect();
    let Some(width) = snapshots.iter().map(|(name, _)| name.len()).max() else {
        println!("there are no snapshots");
        return Ok(());
    };
    let (width, now) = (width.max(4), clock::of_day_ns());
    println!("{:width$}  {:>8}  {:>8}  {:>10}", "name", "age", "objects", "holds");
    for (name, report) in &snapshots {
        let damage = if report.damaged == 0 { "" } else { "  damaged" };
        println!(
            "{name:width$}  {:>8}  {:>8}  {:>10}{damage}",
            age(now.saturating_sub(report.time_ns)),
            report.objects,
            Bytes(report.blocks * PAGE)
        );
    }
    if system::store()?.returning != 0 {
        println!("blocks of a snapshot that was dropped are still coming back; 'mem' shows what is free");
    }
    Ok(())
}

/// A time that has passed, in the largest unit of which there are two.
fn age(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let fits = |&&(unit, _): &&(u64, &str)| seconds >= 2 * unit;
    let (unit, name) = UNITS.iter().find(fits).copied().unwrap_or((1, "s"));
    format!("{} {name}", seconds / unit)
}
