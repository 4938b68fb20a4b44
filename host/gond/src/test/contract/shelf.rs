//! Names of installed modules: what leads to a module stays while it is there, and what leads nowhere is told and goes.

use super::{Stand, gond, name};
use crate::disk::lock_image;
use crate::tree;
use crate::volume::Volume;
use abi::layout::Capability;
use anyhow::{Context, Result};
use names::directory::Mark;
use names::{Entry, Kind};

/// Lines about an installed module that must fail, and a part of the sentence.
const REFUSED: &[(&str, &str)] = &[
    (
        "mv modules/counter-1.0 modules/old",
        "which is found by the name that it was built with; 'module remove counter-1.0' destroys it",
    ),
    ("rm modules/counter-1.0", "'module remove counter-1.0' destroys it"),
    ("rm --force modules/counter", "'module remove counter' destroys it"),
    (
        "mkdir modules/counter",
        "a module, which 'module remove counter' would destroy",
    ),
    ("write --force modules/counter 0 zap", "and none to write"),
];

/// Names that lead nowhere, as earlier versions could leave them.
const NOWHERE: [&str; 3] = ["counter-0.9", "lost", "rem aining"];

/// All of it.
pub fn run(stand: &mut Stand<'_, '_>) -> Result<()> {
    let machine = stand.bench.fresh_machine("shelf.img")?;
    let mut shelf = Stand {
        disk: machine.disk,
        script: stand.script.clone(),
        bench: stand.bench,
    };
    let lines: Vec<&str> = REFUSED.iter().map(|(line, _)| *line).collect();
    let ran = shelf.play(&format!(
        "module install counter.mm\n{}\nmodule remove counter\nmodule install counter.mm\nmodule list\n",
        lines.join("\n")
    ))?;
    let all_fail = ran.complaints.contains(&format!("and {} more", REFUSED.len() - 1));
    let told = REFUSED.iter().all(|(_, says)| ran.output.contains(says));
    let stays = ran
        .output
        .lines()
        .last()
        .is_some_and(|last| last.starts_with("counter-1.0 "));
    let outcome = if all_fail && told && stays {
        Ok(())
    } else {
        ran.expect(1, "…")
    };
    shelf.bench.report(
        "the names of a module are not changed, and removal is by 'module remove'",
        outcome,
    );
    let import = gond(&["import", &name(&shelf.disk)?, &name(&shelf.script)?, "modules/counter"])?;
    let told = import.status == Some(1) && import.complaints.contains("('module remove counter')");
    let outcome = if told { Ok(()) } else { import.expect(1, "…") };
    shelf.bench.report("import tells how a module is removed", outcome);
    leads_nowhere(&mut shelf)?;
    std::fs::remove_file(&shelf.disk)?;
    Ok(())
}

fn leads_nowhere(shelf: &mut Stand<'_, '_>) -> Result<()> {
    let mut volume = Volume::open_for_change(&lock_image(&shelf.disk)?)?;
    let (all, _) = tree::walk(&mut volume);
    let directory = all.iter().find(|named| named.path == "modules").context("modules")?;
    let directory = directory.capability.address;
    for (number, name) in NOWHERE.iter().enumerate() {
        let entry = Entry {
            name,
            kind: Kind::Module,
            capability: Capability {
                address: abi::address::OBJECTS_END - ((number as u64 + 1) << 30),
                password: 5,
            },
            word: 4096,
        };
        tree::change_directory(&mut volume, directory, |directory| {
            directory.insert_marked(&entry, Mark::Settled).map(drop)
        })?;
    }
    volume.commit()?;
    drop(volume);
    let ran = shelf.play("module list\nmodule show lost\n")?;
    let hints =
        ["counter-0.9", "lost", "rem\\ aining"].map(|name| format!("'module remove {name}' takes the name away\n"));
    let told = hints.iter().all(|hint| ran.output.contains(hint));
    let good = told && ran.output.contains("\ncounter-1.0 ") && ran.complaints.contains("and 1 more");
    let outcome = if good { Ok(()) } else { ran.expect(1, "…") };
    shelf
        .bench
        .report("a name that leads nowhere is told, and hides no module", outcome);
    let ran = shelf.play(
        "module remove counter-0.9\nmodule remove rem\\ aining\nrm modules/lost\nmodule remove counter\nls modules\n",
    )?;
    let last = ran.output.lines().last().unwrap_or_default();
    let removed = ran
        .output
        .starts_with("counter-0.9 removed\nrem aining removed\ncounter-1.0 removed\nclist ");
    let outcome = if ran.status == Some(0) && removed && last.ends_with(" owners") {
        Ok(())
    } else {
        ran.expect(0, "…")
    };
    shelf.bench.report("names that lead nowhere go", outcome);
    let checked = gond(&["check", &name(&shelf.disk)?])?;
    let outcome = if checked.status == Some(0) {
        Ok(())
    } else {
        checked.expect(0, "…")
    };
    shelf.bench.report("check is content with the shelf", outcome);
    Ok(())
}
