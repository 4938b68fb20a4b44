//! Stage `contract`: what `gond` promises on its command line, seen from outside, with the real system.

mod accidents;
mod growth;
mod losses;
mod nonsense;
mod person;
mod rot;
mod shelf;
mod states;
mod unnamed;

use super::{Bench, built, play, slurp};
use crate::script::Patience;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The result of a run of this tool.
struct Ran {
    status: Option<i32>,
    output: String,
    complaints: String,
}

/// Runs this very tool with these words.
fn gond(words: &[&str]) -> Result<Ran> {
    let tool = std::env::current_exe().context("where is this tool?")?;
    let output = Command::new(tool)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .context("cannot start this tool")?;
    Ok(Ran {
        status: output.status.code(),
        output: String::from_utf8_lossy(&output.stdout).into_owned(),
        complaints: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

impl Ran {
    /// Checks status and output.
    fn expect(&self, status: i32, output: &str) -> Result<(), String> {
        if self.status == Some(status) && self.output == output {
            return Ok(());
        }
        Err(format!(
            "expected status {status} and output {output:?}, got status {:?}, output {:?}\n{}",
            self.status, self.output, self.complaints
        ))
    }
}

/// A disk image and a script for it.
struct Stand<'a, 'b> {
    bench: &'a mut Bench<'b>,
    disk: PathBuf,
    script: PathBuf,
}

impl Stand<'_, '_> {
    fn play(&mut self, lines: &str) -> Result<Ran> {
        std::fs::write(&self.script, lines)?;
        let (disk, script) = (name(&self.disk)?, name(&self.script)?);
        gond(&["run", "--disk", &disk, "--script", &script, "--timeout", "60"])
    }

    /// A script whose output and exit status are known.
    fn case(&mut self, what: &str, lines: &str, status: i32, output: &str) -> Result<()> {
        self.bench.step(what);
        let ran = self.play(lines)?;
        self.bench.report(what, ran.expect(status, output));
        Ok(())
    }
}

fn name(path: &Path) -> Result<String> {
    Ok(path.to_str().context("the path is not UTF-8")?.to_owned())
}

/// Runs the stage.
pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    built()?;
    let (disk, script) = (bench.file("contract.img"), bench.file("script"));
    let mut stand = Stand { bench, disk, script };
    figures(&mut stand)?;
    scripts(&mut stand)?;
    files(&mut stand)?;
    refusals(&mut stand)?;
    nonsense::run(&mut stand)?;
    losses::run(&mut stand)?;
    rot::run(&mut stand)?;
    unnamed::run(&mut stand)?;
    shelf::run(&mut stand)?;
    states::run(&mut stand)?;
    growth::run(&mut stand)?;
    accidents::run(&mut stand)?;
    person::run(&mut stand)
}

/// The most that the kernel's image may take, in bytes.
const KERNEL_BYTES: u64 = 3 << 19;
/// The longest time from power-on to the shell.
const BOOT: Duration = Duration::from_secs(2);
/// The most memory in use at the prompt, in MiB.
const MEMORY_MIB: f64 = 24.0;

/// The figures that the system promises at the prompt.
fn figures(stand: &mut Stand<'_, '_>) -> Result<()> {
    let kernel = loaded_bytes(&slurp(&built()?.kernel)?)?;
    let small = if kernel <= KERNEL_BYTES {
        Ok(())
    } else {
        Err(format!("it has {kernel} bytes"))
    };
    stand.bench.report("the kernel's image has at most 1.5 MiB", small);
    let machine = stand.bench.fresh_machine("figures.img")?;
    let (played, output) = play(&machine, &["mem"], Patience::seconds(60))?;
    let boot = played.boot_time.unwrap_or(Duration::MAX);
    let quick = if boot <= BOOT {
        Ok(())
    } else {
        Err(format!("it took {boot:?}\n{:?}", played.verdict))
    };
    stand.bench.report("the shell is there within 2 s of power-on", quick);
    let used = output
        .lines()
        .find_map(|line| line.trim().strip_prefix("used"))
        .and_then(mebibytes);
    let few = if used.is_some_and(|used| used <= MEMORY_MIB) {
        Ok(())
    } else {
        Err(output)
    };
    stand
        .bench
        .report("at most 24 MiB of memory are in use at the prompt", few);
    Ok(())
}

/// Bytes of an ELF file that are loaded; debug information is not.
fn loaded_bytes(elf: &[u8]) -> Result<u64> {
    use object::{Object, ObjectSegment};
    let file = object::File::parse(elf).context("the kernel is no ELF file")?;
    Ok(file.segments().map(|segment| segment.file_range().1).sum())
}

/// A size as the shell shows it, in MiB.
fn mebibytes(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let number: f64 = words.next()?.parse().ok()?;
    Some(match words.next()? {
        "KiB" => number / 1024.0,
        "MiB" => number,
        "GiB" => number * 1024.0,
        _ => number / f64::from(1 << 20),
    })
}

fn scripts(stand: &mut Stand<'_, '_>) -> Result<()> {
    stand.case(
        "output is what the lines print, no more",
        "# a comment\n\necho one two\necho three\n",
        0,
        "one two\nthree\n",
    )?;
    stand.case("a script that only powers off succeeds", "poweroff\n", 0, "")?;
    stand.case("an empty script succeeds", "\n", 0, "")?;
    stand.case("a line that fails makes status 1", "false\necho after\n", 1, "after\n")?;
    stand.case(
        "a script goes on after a reboot",
        "echo before\nreboot\necho after\n",
        0,
        "before\nafter\n",
    )?;
    stand.case(
        "a failure before a reboot counts",
        "false\nreboot\necho after\n",
        1,
        "after\n",
    )?;
    stand.case(
        "lines behind a power-off count as failed",
        "poweroff\necho never\n",
        1,
        "",
    )?;
    let unknown = stand.play("no-such-program\n")?;
    let told = unknown.status == Some(1);
    stand.bench.report(
        "an unknown program makes status 1",
        if told { Ok(()) } else { unknown.expect(1, "") },
    );
    for run in 1..=2 {
        let hello = stand.play("hello\n")?;
        let counted = hello.status == Some(0) && hello.output.contains(&format!("run {run} "));
        let outcome = if counted {
            Ok(())
        } else {
            hello.expect(0, &format!("… run {run} …"))
        };
        stand
            .bench
            .report(&format!("hello counts its runs across power-offs ({run})"), outcome);
    }
    Ok(())
}

fn files(stand: &mut Stand<'_, '_>) -> Result<()> {
    let (source, target) = (stand.bench.file("source"), stand.bench.file("target"));
    // Not a multiple of a page, with a page of zeroes in the middle.
    let mut content: Vec<u8> = (0..100_003_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    content[8192..16384].fill(0);
    std::fs::write(&source, &content)?;
    let (disk, source, target_name) = (name(&stand.disk)?, name(&source)?, name(&target)?);
    let imported = gond(&["import", &disk, &source, "imported"])?;
    stand.bench.report("import", imported.expect(0, ""));
    let info = stand.play("info imported\n")?;
    let there = info.status == Some(0) && !info.output.is_empty();
    stand.bench.report(
        "an imported object is there in the system",
        if there { Ok(()) } else { info.expect(0, "…") },
    );
    let exported = gond(&["export", &disk, "imported", &target_name])?;
    stand.bench.report("export", exported.expect(0, ""));
    let same = slurp(&target)? == content;
    stand.bench.report(
        "export gives back what import took",
        if same { Ok(()) } else { Err("the bytes differ".into()) },
    );
    let checked = gond(&["check", &disk])?;
    let sound = checked.status == Some(0);
    stand.bench.report(
        "check finds the image sound",
        if sound { Ok(()) } else { checked.expect(0, "") },
    );
    Ok(())
}

fn refusals(stand: &mut Stand<'_, '_>) -> Result<()> {
    let good = slurp(&stand.disk)?;
    let mut damaged = good.clone();
    damaged[..16 << 10].fill(0x5a);
    let foreign = vec![0x42; 1 << 20];
    let truncated = &good[..good.len() / 2];
    for (what, bytes) in [
        ("damaged", &damaged[..]),
        ("foreign", &foreign[..]),
        ("truncated", truncated),
    ] {
        let path = stand.bench.file("bad.img");
        std::fs::write(&path, bytes)?;
        let ran = gond(&["run", "--disk", &name(&path)?, "--script", "/dev/null"])?;
        let refused = ran.status == Some(1) && ran.complaints.contains("refused");
        let untouched = slurp(&path)? == bytes;
        let outcome = if refused && untouched {
            Ok(())
        } else {
            Err(format!("untouched: {untouched}\n{}", ran.complaints))
        };
        stand
            .bench
            .report(&format!("a {what} image is refused and not written to"), outcome);
    }
    Ok(())
}
