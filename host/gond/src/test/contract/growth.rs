//! A disk that grows beside the running system: what `gond grow` does, and what the shell's `disk` says and does.

use super::{Ran, Stand, gond, name};
use crate::test::built;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

/// A run of the system that is given its lines one by one.
struct Talk {
    lines: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Talk {
    /// Gives a line, and waits until what it says has this in it; tells all up to there.
    fn says(&mut self, line: &str, awaited: &str) -> Result<String> {
        writeln!(self.lines, "{line}")?;
        let mut all = String::new();
        while !all.contains(awaited) {
            if self.output.read_line(&mut all)? == 0 {
                anyhow::bail!("'{line}' does not say '{awaited}': {all}");
            }
        }
        Ok(all)
    }
}

/// All of it.
pub fn run(stand: &mut Stand<'_, '_>) -> Result<()> {
    stand.bench.step("a disk grows beside the running system");
    let disk = stand.bench.file("growing.img");
    crate::image::create(&disk, 64 << 20, Some(&built()?.programs))?;
    let talked = talk(&disk);
    stand.bench.report(
        "a disk grows beside the running system",
        talked.map_err(|error| format!("{error:#}")),
    );
    let disk = name(&disk)?;
    let checked = gond(&["check", &disk])?;
    let sound = checked.output.ends_with("is sound\n") && std::fs::metadata(&disk)?.len() == 1 << 30;
    stand
        .bench
        .report("it is sound then", if sound { Ok(()) } else { checked.expect(0, "…") });
    Ok(())
}

fn talk(disk: &Path) -> Result<()> {
    let path = name(disk)?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["run", "--disk", &path, "--script", "-", "--timeout", "120"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut talk = Talk {
        lines: child.stdin.take().context("piped")?,
        output: BufReader::new(child.stdout.take().context("piped")?),
    };
    let talked = grows(&mut talk, &path);
    drop(talk);
    let ended = child.wait()?;
    talked?;
    if !ended.success() || Path::new(&format!("{path}.monitor")).exists() {
        anyhow::bail!("it ended with {ended}, or the monitor is still there");
    }
    Ok(())
}

/// Has the host do something, which is to end so and say that.
fn host(words: &[&str], status: i32, says: &str) -> Result<()> {
    let Ran {
        status: found,
        output,
        complaints,
    } = gond(words)?;
    if found == Some(status) && (output.contains(says) || complaints.contains(says)) {
        return Ok(());
    }
    anyhow::bail!("{words:?}: {found:?} {output} {complaints}")
}

fn grows(talk: &mut Talk, disk: &str) -> Result<()> {
    talk.says("disk", "in use       64 MiB")?;
    host(&["grow", disk, "32M"], 1, "does not become smaller")?;
    host(&["grow", disk, "300M"], 0, "'disk grow' in its shell")?;
    talk.says("disk", "236 MiB are new: 'disk grow' takes them")?;
    talk.says("disk grow", "it had 64 MiB before")?;
    talk.says("disk", "in use      300 MiB")?;
    host(&["grow", disk, "1G"], 0, "'disk grow' in its shell")?;
    talk.says("disk grow", "it had 300 MiB before")?;
    talk.says("create large 500M", "large")?;
    Ok(())
}
