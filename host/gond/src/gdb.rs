//! `gond run --gdb`: how to reach the machine with GDB.

use crate::machine::Machine;
use crate::{display, place};
use anyhow::Result;

/// The port unless another is given.
pub const PORT: u16 = 1234;

/// The command line that connects GDB to a machine that waits for it at `port`.
pub fn command_line(machine: &Machine, port: u16) -> Result<Vec<String>> {
    let script = place::root()?.join("kernel/gdb");
    Ok(vec![
        "gdb".into(),
        "-q".into(),
        machine.kernel.display().to_string(),
        "-x".into(),
        script.display().to_string(),
        "-ex".into(),
        format!("target remote localhost:{port}"),
    ])
}

/// Says how to connect to a machine that is about to start, if it waits for GDB.
pub fn announce(machine: &Machine) -> Result<()> {
    let Some(port) = machine.gdb else { return Ok(()) };
    let words = command_line(machine, port)?;
    let quoted: Vec<String> = words
        .into_iter()
        .map(|word| if word.contains(' ') { format!("'{word}'") } else { word })
        .collect();
    display::note(&format!(
        "the machine waits for GDB before its first instruction; in another terminal: {}",
        quoted.join(" ")
    ));
    Ok(())
}
