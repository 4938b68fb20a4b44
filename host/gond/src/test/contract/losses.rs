//! Accidents that must lose nothing, and ways out: objects that only bear a name, an image without what the system starts from,
//! and a disk that is full.

use super::{Bench, Stand, gond, name};
use crate::disk::lock_image;
use crate::image;
use crate::test::built;
use crate::transfer;
use crate::volume::Volume;
use abi::address::{FIRST_PROGRAM, ROOT_CLIST, ROOT_DIRECTORY};
use anyhow::{Context, Result};
use std::path::Path;

/// All of it.
pub fn run(stand: &mut Stand<'_, '_>) -> Result<()> {
    kinds(stand)?;
    gone(stand)?;
    full(stand)?;
    old_programs_on_a_full_disk(stand)
}

/// Lines by which a program is to destroy what is not its own, each with a part of the sentence that refuses it.
const NOT_ITS_OWN: [(&str, &str); 6] = [
    ("oo1 remove root-clist", "not an OO1 database"),
    ("oo1 remove shell", "not an OO1 database"),
    ("oo1 remove hello", "not an OO1 database"),
    ("oo1 remove d", "not an OO1 database"),
    ("oo1 remove precious", "not an OO1 database"),
    ("oo1 bench", "is there already"),
];

fn kinds(stand: &mut Stand<'_, '_>) -> Result<()> {
    let made = "create precious 64K\nwrite precious 0 kept\nmkdir d\ncreate d/x 4K\ncreate oo1-bench 4K\noo1 create parts 200\n\
                create parts.pdx 4K\nwrite parts.pdx 0 mine\n";
    let tried: Vec<_> = NOT_ITS_OWN.iter().map(|(line, _)| *line).collect();
    let tried = tried.join("\n");
    let ran = stand.play(&format!(
        "{made}{tried}\noo1 remove parts\ncat parts.pdx\ncat precious\n"
    ))?;
    let refused = NOT_ITS_OWN.iter().all(|(_, says)| ran.output.contains(says));
    let kept = refused && ran.complaints.contains("(and 5 more)") && ran.output.ends_with("mine\nkept\n");
    let outcome = if kept { Ok(()) } else { ran.expect(1, "…mine\nkept\n") };
    stand.bench.report(
        "a program does not destroy what only bears the name of its own",
        outcome,
    );
    let again = stand.play("cat precious\nrm d/x\nrm d\nrm precious\nrm parts.pdx\nrm oo1-bench\n")?;
    stand
        .bench
        .report("and the system starts again", again.expect(0, "kept\n"));
    Ok(())
}

/// An image without one of the objects that the system starts from.
fn gone(stand: &mut Stand<'_, '_>) -> Result<()> {
    let objects = [
        ("root Clist", ROOT_CLIST),
        ("root directory", ROOT_DIRECTORY),
        ("first program", FIRST_PROGRAM),
    ];
    let disk = name(&stand.disk)?;
    for (what, base) in objects {
        stand.bench.step(what);
        let made = stand.play("create notes 4K\nwrite notes 0 kept\nmkdir d\ncreate d/x 4K\nwrite d/x 0 below\n")?;
        let mut volume = Volume::open_for_change(&lock_image(&stand.disk)?)?;
        let notes = crate::tree::find(&mut volume, "notes")?.capability.address;
        let below = crate::tree::find(&mut volume, "d")?.capability.address;
        volume.delete(base)?;
        volume.commit()?;
        drop(volume);
        let started = stand.play("echo alive\n")?;
        let says = format!("has no {what}");
        let mend = format!("./gond mend {disk}");
        let told = started.complaints.contains(&says) && started.complaints.contains(&mend);
        let outcome = if made.status == Some(0) && told {
            Ok(())
        } else {
            started.expect(1, &format!("… {says} … {mend}"))
        };
        stand
            .bench
            .report(&format!("'run' tells that there is no {what}, and what helps"), outcome);
        let mended = gond(&["mend", &disk])?;
        let outcome = if mended.status == Some(0) {
            Ok(())
        } else {
            mended.expect(0, "…")
        };
        stand.bench.report(&format!("'mend' makes the {what} anew"), outcome);
        let (notes, below) = if base == ROOT_DIRECTORY {
            (format!("found-{notes:#x}"), format!("found-{below:#x}"))
        } else {
            ("notes".into(), "d".into())
        };
        let there = stand.play(&format!(
            "cat {notes}\ncat {below}/x\nrm {below}/x\nrm {below}\nrm {notes}\nhello\n"
        ))?;
        let good = there.status == Some(0) && there.output.starts_with("kept\nbelow\nhello, world");
        let outcome = if good {
            Ok(())
        } else {
            there.expect(0, "kept\nbelow\nhello, world …")
        };
        stand
            .bench
            .report(&format!("nothing is lost with the {what} that was gone"), outcome);
        let checked = gond(&["check", &disk])?;
        let outcome = if checked.status == Some(0) {
            Ok(())
        } else {
            checked.expect(0, "…")
        };
        stand.bench.report("check is content", outcome);
    }
    Ok(())
}

/// Imports files until not even a page fits any more; tells their names.
fn fill(bench: &mut Bench<'_>, disk: &Path) -> Result<Vec<String>> {
    let file = bench.file("filling");
    let mut names = Vec::new();
    let mut bytes = 14_000_000_usize;
    while bytes >= 4096 {
        std::fs::write(&file, vec![b'x'; bytes])?;
        let name = format!("p{}", names.len());
        if transfer::import_file(&lock_image(disk)?, &file, &name).is_ok() {
            names.push(name);
        } else {
            bytes /= 2;
        }
    }
    Ok(names)
}

/// Removals and renamings on a disk that is full, one right behind the other.
fn full(stand: &mut Stand<'_, '_>) -> Result<()> {
    let disk = stand.bench.file("full.img");
    image::create(&disk, image::FURNISHED_MIN, Some(&built()?.programs))?;
    let names = fill(stand.bench, &disk)?;
    let small = names.last().context("nothing fits")?;
    let mut full = Stand {
        disk,
        script: stand.script.clone(),
        bench: stand.bench,
    };
    let refused = full.play("create more 1M\noo1 create a2 30000\n")?;
    let told = refused.output.contains("kept for removals") && refused.output.contains("'rm' makes room");
    let outcome = if told {
        Ok(())
    } else {
        refused.expect(1, "… 'rm' makes room …")
    };
    full.bench
        .report("a full disk is told with figures and what to do", outcome);
    let lines: Vec<_> = names.iter().rev().map(|name| format!("rm {name}")).collect();
    let lines = lines.join("\n");
    let removed = full.play(&format!("mv {small} other\nmv other {small}\n{lines}\necho removed\n"))?;
    full.bench.report(
        "everything can be removed from a disk that is full",
        removed.expect(0, "removed\n"),
    );
    let used = full.play("oo1 create parts 20000\noo1 remove parts\nhello\n")?;
    let outcome = if used.status == Some(0) {
        Ok(())
    } else {
        used.expect(0, "…")
    };
    full.bench.report("and there is room again", outcome);
    let checked = gond(&["check", &name(&full.disk)?])?;
    let outcome = if checked.status == Some(0) {
        Ok(())
    } else {
        checked.expect(0, "…")
    };
    full.bench.report("check is content with it", outcome);
    std::fs::remove_file(&full.disk)?;
    Ok(())
}

/// Programs that are others than those of the sources, on a disk without room for new ones.
fn old_programs_on_a_full_disk(stand: &mut Stand<'_, '_>) -> Result<()> {
    let disk = stand.bench.file("full.img");
    let mut programs = built()?.programs;
    let other = programs
        .iter()
        .find(|(name, _)| name == "hello")
        .context("hello")?
        .1
        .clone();
    programs
        .iter_mut()
        .skip(1)
        .for_each(|(_, file)| file.clone_from(&other));
    image::create(&disk, image::FURNISHED_MIN, Some(&programs))?;
    let names = fill(stand.bench, &disk)?;
    let mut full = Stand {
        disk,
        script: stand.script.clone(),
        bench: stand.bench,
    };
    let lines: Vec<_> = names.iter().map(|name| format!("rm {name}")).collect();
    // Removed blocks are free behind two checkpoints.
    let started = full.play(&format!("{}\nsync\nsync\nsync\nhello\n", lines.join("\n")))?;
    let good = started.status == Some(0)
        && started.output.starts_with("hello, world")
        && started.complaints.contains("stay the old ones: ");
    let outcome = if good {
        Ok(())
    } else {
        started.expect(0, "hello, world …")
    };
    full.bench.report(
        "a full disk starts with its old programs, and tells which they are",
        outcome,
    );
    let next = full.play("oo1\n")?;
    let good = next.output.starts_with("usage: oo1") && !next.complaints.contains("stay the old ones");
    let outcome = if good { Ok(()) } else { next.expect(1, "usage: oo1 …") };
    full.bench
        .report("they are brought up to date when there is room", outcome);
    let size = gond(&["run", "--disk", &name(&full.disk)?, "--disk-size", "64M"])?;
    let told = size.complaints.contains("has grown from") && std::fs::metadata(&full.disk)?.len() == 64 << 20;
    let outcome = if told {
        Ok(())
    } else {
        size.expect(0, "… has grown from …")
    };
    full.bench.report(
        "--disk-size makes an image that is there larger, and it starts",
        outcome,
    );
    std::fs::remove_file(&full.disk)?;
    Ok(())
}
