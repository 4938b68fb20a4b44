//! Stage `engine`: the engine for isolated processes as a program of the system. It compiles, proves and runs
//! modules there, contains their traps, and stops those that never end.

use super::{Bench, guest, play};
use crate::disk::lock_image;
use crate::script::Patience;
use crate::{build, transfer};
use anyhow::{Context, Result};
use std::time::Duration;

/// A module as a file of bytes:
///
/// ```text
/// (module
///   (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
///   (func (export "trap") unreachable)
///   (func (export "spin") (loop (br 0))))
/// ```
const MODULE: &[u8] = b"\0asm\x01\0\0\0\
    \x01\x0a\x02\x60\x02\x7f\x7f\x01\x7f\x60\0\0\
    \x03\x04\x03\0\x01\x01\
    \x07\x15\x03\x03add\0\0\x04trap\0\x01\x04spin\0\x02\
    \x0a\x15\x03\x07\0\x20\0\x20\x01\x6a\x0b\x03\0\0\x0b\x07\0\x03\x40\x0c\0\x0b\x0b";

/// Lines over the module that was brought in: each with its status, and what it must say.
const LINES: [(&str, u64, &str); 7] = [
    ("engine module add 20 22", 0, "42"),
    ("engine module trap", 1, "the process was stopped: unreachable"),
    (
        "engine --seconds 1 module spin",
        1,
        "the process was stopped: its time is over",
    ),
    ("engine module add 1", 1, "'add' takes 2 numbers"),
    ("engine half add 1 2", 1, "engine: half: "),
    ("engine hello", 1, "it is no data"),
    ("engine module add 1 2", 0, "3"),
];

/// The engine compiles a whole module in each case.
const TOTAL: Duration = Duration::from_mins(4);

/// Runs the stage.
pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let engine = build::engine()?;
    let machine = bench.fresh_machine("engine.img")?;
    transfer::import_program(&lock_image(&machine.disk)?, &engine, build::ENGINE)?;
    for (name, bytes) in [("module", MODULE), ("half", &MODULE[..MODULE.len() / 2])] {
        let file = bench.file(name);
        std::fs::write(&file, bytes).with_context(|| format!("cannot write {}", file.display()))?;
        transfer::import_file(&lock_image(&machine.disk)?, &file, name)?;
    }
    guest::suite_on(bench, &machine, build::ENGINE)?;

    let patience = Patience {
        total: Some(TOTAL),
        ..Patience::seconds(120)
    };
    for (line, status, said) in LINES {
        let (played, output) = play(&machine, &[line], patience)?;
        let found = played.statuses.first().map(|(_, status)| *status);
        let outcome = if found == Some(status) && output.contains(said) {
            Ok(())
        } else {
            Err(format!(
                "status {found:?}, not {status}, or '{said}' is not in:\n{output}"
            ))
        };
        bench.report(&format!("'{line}'"), outcome);
    }
    let sound = crate::check::inspect(&machine.disk);
    bench.report(
        "the image is sound afterwards",
        sound.map(drop).map_err(|error| format!("{error:#}")),
    );
    Ok(())
}
