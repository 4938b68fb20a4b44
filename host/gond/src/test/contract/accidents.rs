//! Accidents that must do no lasting harm: a power cut between a name and its object, overwritten objects that the system starts
//! from, a first program that dies, and input that ends.

use super::{Ran, Stand, gond, name};
use crate::disk::lock_image;
use crate::machine::Machine;
use crate::script::{Patience, Plug, Verdict};
use crate::test::{built, expect_success, play};
use crate::tree::NO_LIMITS;
use crate::volume::{Block, Volume};
use crate::{check, image, tree};
use abi::address::{ROOT_CLIST, ROOT_DIRECTORY};
use abi::layout::Capability;
use anyhow::{Context, Result};
use names::directory::Mark;
use names::{Entry, Kind};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// All of it.
pub fn run(stand: &mut Stand<'_, '_>) -> Result<()> {
    power(stand)?;
    told_cut(stand)?;
    lines(stand)?;
    overwritten(stand)?;
    old_programs(stand)?;
    first_program(stand)?;
    longer_first_program(stand)?;
    names_of_strangers(stand)?;
    full_host(stand)?;
    killed_run(stand)?;
    first_runs_at_once(stand)?;
    end_of_input(stand)
}

/// Lines, the plug pulled behind the last, what `check` must find, and what is there afterwards.
const CUTS: [(&str, &[&str], &[&str]); 5] = [
    ("rm", &["create a 4K", "sync", "rm a"], &["create a 8K"]),
    (
        "rm and create",
        &["create a 4K", "sync", "rm a", "create a 8K", "create b 4K", "rm b"],
        &["create b 4K"],
    ),
    (
        "create behind an rm",
        &["create a 4K", "create b 4K", "sync", "create c 4K", "rm a"],
        &["create a 4K", "cat b"],
    ),
    (
        "mv",
        &["create a 4K", "write a 0 x", "sync", "mv a b", "create c 4K", "rm c"],
        &["cat b", "create a 4K"],
    ),
    (
        "mkdir",
        &["mkdir d", "create d/a 4K", "sync", "create d/b 4K", "rm d/a"],
        &["create d/a 4K"],
    ),
];

fn power(stand: &mut Stand<'_, '_>) -> Result<()> {
    for (what, lines, after) in CUTS {
        stand.bench.step(what);
        let machine = Machine::new(built()?.kernel, stand.bench.file("cut.img"));
        let _ = std::fs::remove_file(&machine.disk);
        image::create(&machine.disk, 64 << 20, Some(&built()?.programs))?;
        let patience = Patience {
            plug: Plug::AtEnd,
            ..Patience::seconds(60)
        };
        let (played, _) = play(&machine, lines, patience)?;
        let mut outcome = match played.verdict {
            Verdict::Killed => check::inspect(&machine.disk).map_err(|error| format!("{error:#}")),
            other => Err(format!("{other:?}")),
        };
        if outcome.is_ok() {
            let (played, output) = play(&machine, after, Patience::seconds(60))?;
            outcome = expect_success(&played, &output)
                .and_then(|()| check::inspect(&machine.disk).map_err(|error| format!("afterwards: {error:#}")));
        }
        stand.bench.report(
            &format!("a power cut right behind {what} parts no name from its object"),
            outcome,
        );
    }
    Ok(())
}

/// After a power cut a script tells once, on standard error, which syncs and names are lost, though no shell greets. The same with programs to
/// be brought up to date, behind which the image counts as clean.
fn told_cut(stand: &mut Stand<'_, '_>) -> Result<()> {
    let programs = built()?.programs;
    let mut older = programs.clone();
    older.pop();
    for (what, programs) in [("the same", &programs), ("older", &older)] {
        stand.bench.step("a script behind a power cut");
        let machine = Machine::new(built()?.kernel, stand.bench.file("told.img"));
        let _ = std::fs::remove_file(&machine.disk);
        image::create(&machine.disk, 64 << 20, Some(programs))?;
        let patience = Patience {
            plug: Plug::AtEnd,
            ..Patience::seconds(60)
        };
        play(&machine, &["create a 4K", "sync", "rm a"], patience)?;
        std::fs::write(&stand.script, "echo alive\n")?;
        let words = [
            "run",
            "--disk",
            &name(&machine.disk)?,
            "--script",
            &name(&stand.script)?,
        ];
        let (first, second) = (gond(&words)?, gond(&words)?);
        let told = |ran: &Ran| {
            ran.complaints
                .matches("1 name is gone that was being made or removed")
                .count()
        };
        let outcome = first.expect(0, "alive\n").and_then(|()| second.expect(0, "alive\n"));
        let outcome = outcome.and_then(|()| match (told(&first), told(&second)) {
            (1, 0) => Ok(()),
            counts => Err(format!("told {counts:?} times: {}", first.complaints)),
        });
        stand.bench.report(
            &format!("a script behind a power cut is told which names are gone, with {what} programs"),
            outcome,
        );
    }
    Ok(())
}

fn lines(stand: &mut Stand<'_, '_>) -> Result<()> {
    // The user may insist on writing to a program, and its pages forbid it.
    let ran = stand.play("write --force hello 0 boom\nhello\necho alive\nrm --force hello\nhello\necho gone\n")?;
    let whole = ran.output.contains("the page's limits forbid it") && ran.output.matches("hello, world").count() == 1;
    let lives = ran.output.contains("alive\n") && ran.output.ends_with("gone\n");
    stand.bench.report(
        "a program whose pages forbid writing stays whole, and can be removed",
        if whole && lives { Ok(()) } else { ran.expect(1, "…") },
    );
    Ok(())
}

/// A run that is killed takes its emulator with it, and nobody gets at the image before. The log of the system is on the image.
fn killed_run(stand: &mut Stand<'_, '_>) -> Result<()> {
    stand.bench.step("a run that is killed");
    let image = stand.bench.file("killed.img");
    image::create(&image, 64 << 20, Some(&built()?.programs))?;
    std::fs::write(&stand.script, "sleep 2\necho ready\nsleep 100\n")?;
    let (disk, script) = (name(&image)?, name(&stand.script)?);
    let mut run = Command::new(std::env::current_exe()?)
        .args(["run", "--disk", &disk, "--script", &script])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(output) = &mut run.stdout {
        BufReader::new(output).read_line(&mut line)?;
    }
    run.kill()?;
    run.wait()?;
    let begun = Instant::now();
    while lock_image(&image).is_err() && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut left = 0;
    for process in std::fs::read_dir("/proc")?.flatten() {
        let words = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        left += usize::from(String::from_utf8_lossy(&words).contains(&disk));
    }
    let outcome = match (line.as_str(), lock_image(&image), left) {
        ("ready\n", Ok(_), 0) => Ok(()),
        (line, free, left) => Err(format!("{line:?}, free: {}, emulators: {left}", free.is_ok())),
    };
    let what = "a run that is killed takes its emulator with it, and the image is in use until then";
    stand.bench.report(what, outcome);
    std::fs::write(&stand.script, "log\nrm system-log\nlog\n")?;
    let ran = gond(&["run", "--disk", &disk, "--script", &script])?;
    let ends: Vec<_> = ran
        .output
        .lines()
        .filter(|line| line.contains(" start at 20"))
        .map(|line| line.contains("behind a power cut"))
        .collect();
    // Without the object there are the lines since the start.
    let outcome = if ends == [false, true, true] && ran.status == Some(0) {
        Ok(())
    } else {
        Err(format!("{}\n{}", ran.output, ran.complaints))
    };
    let what = "the system's log tells of the session before, and that it was killed";
    stand.bench.report(what, outcome);
    Ok(())
}

/// Two first runs of one image at once: each works on the image that has the name, or is refused.
fn first_runs_at_once(stand: &mut Stand<'_, '_>) -> Result<()> {
    stand.bench.step("two first runs at once");
    let image = stand.bench.file("at-once.img");
    let disk = name(&image)?;
    let mut runs = Vec::new();
    for object in ["one", "two"] {
        let script = stand.bench.file(object);
        std::fs::write(&script, format!("create {object} 4K\nsync\nsleep 3\n"))?;
        let run = Command::new(std::env::current_exe()?)
            .args(["run", "--disk", &disk, "--script", &name(&script)?])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        runs.push((object, run));
    }
    let mut wrong = Vec::new();
    let mut refused = 0;
    for (object, run) in runs {
        let end = run.wait_with_output()?;
        let complaint = String::from_utf8_lossy(&end.stderr);
        if end.status.success() {
            let found = tree::find(&mut Volume::open(&image)?, object);
            wrong.extend(
                found
                    .err()
                    .map(|error| format!("what '{object}' had synced is gone: {error:#}")),
            );
        } else if complaint.contains("is in use by another gond") {
            refused += 1;
        } else {
            wrong.push(complaint.into_owned());
        }
    }
    let outcome = match wrong.as_slice() {
        [] if refused < 2 => Ok(()),
        wrong => Err(format!("{refused} refused; {}", wrong.join("; "))),
    };
    stand.bench.report(
        "of two first runs at once none replaces the image of the other",
        outcome,
    );
    Ok(())
}

/// Overwrites the first bytes of an object on an image.
fn zap(disk: &Path, base: u64) -> Result<()> {
    let mut volume = Volume::open_for_change(&lock_image(disk)?)?;
    let mut block: Block = **volume.page(base, 0)?.content.as_ref().context("the page is empty")?;
    block[..4].copy_from_slice(b"zap\n");
    volume.write(base, 0, &block, NO_LIMITS)?;
    volume.commit()
}

/// Programs that are others than those of the sources, on an image whose plug was pulled.
fn old_programs(stand: &mut Stand<'_, '_>) -> Result<()> {
    let machine = Machine::new(built()?.kernel, stand.bench.file("old.img"));
    let mut programs = built()?.programs;
    // They are all the same one here, and not what their names say.
    let other = programs.last().context("a program")?.1.clone();
    programs
        .iter_mut()
        .skip(1)
        .for_each(|(_, file)| file.clone_from(&other));
    image::create(&machine.disk, 64 << 20, Some(&programs))?;
    let patience = Patience {
        plug: Plug::AtEnd,
        ..Patience::seconds(60)
    };
    play(&machine, &["create kept 4K", "write kept 0 kept", "sync"], patience)?;
    let disk = name(&machine.disk)?;
    std::fs::write(&stand.script, "hello\ncat kept\n")?;
    let ran = gond(&[
        "run",
        "--disk",
        &disk,
        "--script",
        &name(&stand.script)?,
        "--timeout",
        "60",
    ])?;
    let good = ran.status == Some(0) && ran.output.starts_with("hello, world") && ran.output.contains("\nkept");
    stand.bench.report(
        "old programs on an image whose plug was pulled are replaced before it starts",
        if good {
            Ok(())
        } else {
            ran.expect(0, "hello, world …")
        },
    );
    Ok(())
}

/// A first program that is longer than that of the sources: its name tells the length, too.
fn longer_first_program(stand: &mut Stand<'_, '_>) -> Result<()> {
    let mut programs = built()?.programs;
    let suite = programs.iter().find(|(name, _)| name == "suite");
    let longer = suite.context("suite")?.1.clone();
    programs.first_mut().context("a first program")?.1 = longer;
    let disk = stand.bench.file("longer.img");
    image::create(&disk, 64 << 20, Some(&programs))?;
    let mut longer = Stand {
        disk,
        script: stand.script.clone(),
        bench: stand.bench,
    };
    let ran = longer.play("echo alive\n")?;
    longer.bench.report(
        "a first program that is longer than that of the sources is replaced",
        ran.expect(0, "alive\n"),
    );
    let checked = gond(&["check", &name(&longer.disk)?])?;
    let outcome = if checked.status == Some(0) {
        Ok(())
    } else {
        checked.expect(0, "…")
    };
    longer.bench.report("check is content with it", outcome);
    std::fs::remove_file(&longer.disk)?;
    Ok(())
}

fn overwritten(stand: &mut Stand<'_, '_>) -> Result<()> {
    for (what, base) in [("root Clist", ROOT_CLIST), ("root directory", ROOT_DIRECTORY)] {
        let kept = stand.play(&format!("create notes-{base} 4K\nwrite notes-{base} 0 kept\n"))?;
        stand.bench.report(
            "something is kept",
            if kept.status == Some(0) {
                Ok(())
            } else {
                kept.expect(0, "")
            },
        );
        zap(&stand.disk, base)?;
        let disk = name(&stand.disk)?;
        let started = stand.play("echo alive\nls\n")?;
        let alive = started.output.starts_with("alive\n");
        stand.bench.report(
            &format!("the system starts with a {what} that was overwritten"),
            if alive { Ok(()) } else { started.expect(1, "alive\n…") },
        );
        let told = gond(&["check", &disk])?;
        stand.bench.report(
            "check tells of it",
            if told.status == Some(1) {
                Ok(())
            } else {
                told.expect(1, "…")
            },
        );
        let import = gond(&["import", &disk, &name(&stand.script)?, "imported"])?;
        let told = import.status == Some(1) && import.complaints.contains("./gond mend");
        stand.bench.report(
            "import tells what helps",
            if told {
                Ok(())
            } else {
                import.expect(1, "…./gond mend…")
            },
        );
        let mended = gond(&["mend", &disk])?;
        stand.bench.report(
            "mend mends it",
            if mended.status == Some(0) {
                Ok(())
            } else {
                mended.expect(0, "…")
            },
        );
        let there = stand.play(&format!("cat notes-{base}\n"))?;
        stand
            .bench
            .report(&format!("nothing is lost with the {what}"), there.expect(0, "kept\n"));
        let checked = gond(&["check", &disk])?;
        stand.bench.report(
            "check is content",
            if checked.status == Some(0) {
                Ok(())
            } else {
                checked.expect(0, "…")
            },
        );
    }
    Ok(())
}

/// A directory that others may write: what they write there of the user's objects does nothing to these, whatever the user or the next start does.
fn names_of_strangers(stand: &mut Stand<'_, '_>) -> Result<()> {
    let machine = Machine::new(built()?.kernel, stand.bench.file("strangers.img"));
    image::create(&machine.disk, 64 << 20, Some(&built()?.programs))?;
    let patience = Patience {
        plug: Plug::AtEnd,
        ..Patience::seconds(60)
    };
    let lines = ["create notes 4K", "write notes 0 kept", "mkdir d", "create d/own 4K"];
    play(&machine, &lines, Patience::seconds(60))?;
    let mut volume = Volume::open_for_change(&lock_image(&machine.disk)?)?;
    let (all, _) = tree::walk(&mut volume);
    let of = |path: &str| {
        all.iter()
            .find(|named| named.path == path)
            .map(|named| named.capability)
    };
    let (notes, directory) = (of("notes").context("notes")?, of("d").context("d")?.address);
    let marks = [Mark::Settled, Mark::Young, Mark::Doomed, Mark::Leaving, Mark::Unborn];
    for (number, mark) in marks.into_iter().enumerate() {
        let name = format!("n{number}");
        let entry = Entry {
            name: &name,
            kind: Kind::Data,
            capability: Capability {
                password: notes.password ^ (1 << number),
                ..notes
            },
            word: 0,
        };
        tree::change_directory(&mut volume, directory, |directory| {
            directory.insert_marked(&entry, mark).map(drop)
        })?;
    }
    volume.commit()?;
    drop(volume);
    // Marks mean something to a start behind a power cut.
    play(&machine, &["sync"], patience)?;
    let mut strangers = Stand {
        disk: machine.disk,
        script: stand.script.clone(),
        bench: stand.bench,
    };
    let used = strangers.play("cat d/n0\nwrite d/n0 0 zap\ngrant d/n0 r\ncat notes\n")?;
    let good = used.status == Some(1) && used.output.ends_with("\nkept\n") && !used.output.contains("kept\nd/n0");
    let outcome = if good { Ok(()) } else { used.expect(1, "…\nkept\n") };
    strangers
        .bench
        .report("a stranger's name of one's own object is not followed", outcome);
    // The start took n2 away: a deleted name that gives no right on what has its address.
    let removed = strangers.play("rm d/n0\nrm d/n1\nrm d/n3\nrm d/n4\nrm d/own\nrm d\ncat notes\n")?;
    let good = removed.status == Some(0) && removed.output.ends_with("kept\n");
    let outcome = if good { Ok(()) } else { removed.expect(0, "…kept\n") };
    strangers.bench.report("rm takes such a name alone away", outcome);
    let checked = gond(&["check", &name(&strangers.disk)?])?;
    let outcome = if checked.status == Some(0) {
        Ok(())
    } else {
        checked.expect(0, "…")
    };
    strangers.bench.report("check is content with it", outcome);
    std::fs::remove_file(&strangers.disk)?;
    Ok(())
}

/// A write for which the host has no room is an error of the disk; the machine does not stop.
fn full_host(stand: &mut Stand<'_, '_>) -> Result<()> {
    let mut machine = Machine::new(built()?.kernel, stand.bench.file("host-full.img"));
    image::create(&machine.disk, 64 << 20, Some(&built()?.programs))?;
    // More than a start makes, and fewer than the lines.
    machine.host_full_from = Some(8);
    let lines: Vec<String> = (0..10).map(|number| format!("create a{number} 4K\nsync")).collect();
    let lines = format!("{}\necho alive", lines.join("\n"));
    let lines: Vec<&str> = lines.lines().collect();
    let (played, output) = play(&machine, &lines, Patience::seconds(60))?;
    let failed = output.contains("(DiskError)");
    let outcome = if failed && output.contains("\nalive\n") {
        Ok(())
    } else {
        Err(format!("{:?}\n{output}", played.verdict))
    };
    stand.bench.report(
        "a full disk of the host is an error of the disk, and the system goes on",
        outcome,
    );
    let checked = check::inspect(&machine.disk).map_err(|error| format!("{error:#}"));
    stand.bench.report("its image is sound", checked);
    Ok(())
}

fn first_program(stand: &mut Stand<'_, '_>) -> Result<()> {
    let built = built()?;
    let disk = stand.bench.file("first.img");
    let hello: Vec<_> = built.programs.into_iter().filter(|(name, _)| name == "hello").collect();
    image::create(&disk, 64 << 20, Some(&hello))?;
    let (played, output) = play(&Machine::new(built.kernel, disk), &[], Patience::seconds(60))?;
    // No line has run, so nothing is the output of one.
    let outcome = match played.verdict {
        Verdict::Failure(what) if output.is_empty() && what.contains("The first program has ended with status") => {
            Ok(())
        }
        other => Err(format!("{other:?}\n{output}")),
    };
    stand
        .bench
        .report("a first program that ends is told of, and is a failure", outcome);
    Ok(())
}

fn end_of_input(stand: &mut Stand<'_, '_>) -> Result<()> {
    let disk = name(&stand.disk)?;
    let ran = gond(&["run", "--disk", &disk])?;
    stand.bench.report("input that ends switches off", ran.expect(0, ""));
    Ok(())
}
