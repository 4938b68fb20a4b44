//! One damaged page in what the system starts from, or in a directory: the system starts again after at most one command, which its
//! message names; what is lost is told; and the user's objects are there meanwhile by their addresses.

use super::{Ran, Stand, gond, name};
use crate::test::slurp;
use crate::tree;
use crate::volume::Volume;
use abi::address::{FIRST_PROGRAM, ROOT_CLIST, ROOT_DIRECTORY};
use anyhow::{Context, Result};
use store::BLOCK;

/// Which block of an object is damaged.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Part {
    /// That of its first page.
    FirstPage,
    /// The map node above it.
    Map,
}

/// All of it.
pub fn run(stand: &mut Stand<'_, '_>) -> Result<()> {
    let disk = stand.bench.file("rot.img");
    let mut rot = Stand {
        disk,
        script: stand.script.clone(),
        bench: stand.bench,
    };
    let _ = std::fs::remove_file(&rot.disk);
    let made = gond(&["format", &name(&rot.disk)?, "--disk-size", "16M"])?;
    rot.bench.report("an image is made", made.expect(0, ""));
    rot.play("create mine 4K\nwrite mine 0 precious\nmkdir d\ncreate d/x 4K\nwrite d/x 0 below\n")?;
    let good = slurp(&rot.disk)?;
    let mut volume = Volume::open(&rot.disk)?;
    let [hello, mine, d, below] = ["hello", "mine", "d", "d/x"].map(|path| tree::find(&mut volume, path));
    let (hello, mine) = (hello?.capability.address, mine?.capability.address);
    let (d, below) = (d?.capability.address, below?.capability.address);
    drop(volume);
    let found = |base| format!("found-{base:#x}");
    // The object that is damaged, the command that helps if the system does not start, and the places of the two texts afterwards.
    let cases = [
        ("program", hello, Part::FirstPage, None, ["mine".into(), "d/x".into()]),
        (
            "first program",
            FIRST_PROGRAM,
            Part::FirstPage,
            None,
            ["mine".into(), "d/x".into()],
        ),
        (
            "first program's map",
            FIRST_PROGRAM,
            Part::Map,
            None,
            ["mine".into(), "d/x".into()],
        ),
        (
            "root Clist",
            ROOT_CLIST,
            Part::FirstPage,
            Some("the root Clist"),
            ["mine".into(), "d/x".into()],
        ),
        (
            "root directory",
            ROOT_DIRECTORY,
            Part::FirstPage,
            Some("the root directory"),
            [found(mine), format!("{}/x", found(d))],
        ),
        (
            "directory",
            d,
            Part::FirstPage,
            Some("'d'"),
            ["mine".into(), found(below)],
        ),
    ];
    for (what, base, part, mended, texts) in cases {
        rot.bench.step(what);
        damage(&rot, &good, base, part)?;
        reached(&mut rot, what, mine)?;
        starts_again(&mut rot, what, mended, &texts)?;
        // Blocks below a map node that is lost stay in use: nobody knows them any more.
        if part == Part::FirstPage {
            let checked = gond(&["check", &name(&rot.disk)?])?;
            let outcome = if checked.status == Some(0) {
                Ok(())
            } else {
                checked.expect(0, "…")
            };
            rot.bench
                .report(&format!("check is content after a damaged {what}"), outcome);
        }
    }
    damage(&rot, &good, mine, Part::FirstPage)?;
    let left = gond(&["mend", &name(&rot.disk)?])?;
    let outcome = if left.status == Some(1) && left.output.contains("not mended: ") {
        Ok(())
    } else {
        left.expect(1, "not mended: …")
    };
    rot.bench.report(
        "mend says with its status that damage of a user's object is left",
        outcome,
    );
    std::fs::remove_file(&rot.disk)?;
    Ok(())
}

/// Puts the good image in place, but for one bit.
fn damage(stand: &Stand<'_, '_>, good: &[u8], base: u64, part: Part) -> Result<()> {
    std::fs::write(&stand.disk, good)?;
    let mut volume = Volume::open(&stand.disk)?;
    let content = volume.page(base, 0)?.content.context("the page is empty")?;
    drop(volume);
    let blocks = || good.chunks_exact(BLOCK);
    let page = blocks()
        .rposition(|block| *block == content[..])
        .context("no block has the page")?;
    let leads_to_page = |block: &[u8]| block[..6] == page.to_le_bytes()[..6];
    let block = match part {
        Part::FirstPage => page,
        Part::Map => blocks().rposition(leads_to_page).context("no map leads to the page")?,
    };
    let mut bad = good.to_vec();
    bad[block * BLOCK + 100] ^= 1;
    std::fs::write(&stand.disk, bad)?;
    Ok(())
}

/// The user's object is there by its address, whatever is damaged.
fn reached(stand: &mut Stand<'_, '_>, what: &str, mine: u64) -> Result<()> {
    let (disk, address) = (name(&stand.disk)?, format!("{mine:#x}"));
    let listed = gond(&["ls", &disk])?;
    let exported = gond(&["export", &disk, &address, "-"])?;
    let good = listed.output.contains(&address) && exported.output.starts_with("precious\n");
    let outcome = if good {
        Ok(())
    } else {
        Err(format!("{}{}{}", listed.output, listed.complaints, exported.complaints))
    };
    stand.bench.report(
        &format!("with a damaged {what} the user's objects are there by address"),
        outcome,
    );
    Ok(())
}

fn starts_again(stand: &mut Stand<'_, '_>, what: &str, mended: Option<&str>, texts: &[String; 2]) -> Result<()> {
    let disk = name(&stand.disk)?;
    let lines = format!("hello\ncat {}\ncat {}\n", texts[0], texts[1]);
    let is_good = |ran: &Ran| ran.status == Some(0) && ran.output.ends_with("precious\nbelow\n");
    let mut started = stand.play(&lines)?;
    let mut told = started.complaints.contains("is damaged: ");
    if let Some(lost) = mended {
        // Without a directory of the user's the system starts, and `mend` brings back what was in it.
        told = started.complaints.contains(&format!("./gond mend {disk}")) || lost == "'d'";
        let mend = gond(&["mend", &disk])?;
        told &= mend.status == Some(0) && mend.output.contains(&format!("page 0 of {lost} is lost: "));
        started = stand.play(&lines)?;
    }
    let outcome = if told && is_good(&started) {
        Ok(())
    } else {
        started.expect(0, "… precious\nbelow\n")
    };
    stand.bench.report(
        &format!("the system starts again after a damaged {what}, and tells of it"),
        outcome,
    );
    Ok(())
}
