//! `gond check --repair`: says what a repair of the store would do, step by step, and does it if a person says so.
//!
//! The plan and the repair are the store's (`store/src/repair.rs`); here it gets names and words. The image is locked
//! from the first look to the last.

use super::{Names, describe, look};
use crate::arguments::count;
use crate::disk::lock_image;
use crate::display;
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use store::{Fault, Finding, Plan, Step, Structure};

/// Names told of the objects that a leaf has lost.
const NAMES_TOLD: usize = 20;

/// The plan of a repair, as it is printed before anything is written.
struct Said {
    /// The steps of the repair, a sentence each.
    steps: Vec<String>,
    /// Damage that the repair does not touch, a sentence each.
    left: Vec<String>,
    /// Why nothing can be done, if that is so.
    obstacle: Option<String>,
}

/// Runs `gond check --repair`.
pub fn command(path: &Path, yes: bool, as_json: bool) -> Result<ExitCode> {
    let lock = lock_image(path)?;
    let (mut volume, plan) = Volume::open_for_repair(path)?;
    let names = Names::of(&mut volume);
    let said = say(&volume, &plan, &names);
    drop(volume);
    if plan.is_empty() && said.left.is_empty() {
        let checked = look(Volume::open(path)?)?;
        if as_json {
            let mut result = checked.to_json();
            result["repair"] = json!([]);
            result["repaired"] = json!(false);
            println!("{result}");
        } else {
            checked.show(path);
            println!("there is nothing to repair in the store, and nothing was written");
        }
        return Ok(checked.status());
    }
    if !as_json {
        said.show();
    }
    let is_possible = said.obstacle.is_none() && !plan.is_empty();
    let agreed = is_possible && (yes || !as_json && asks(path)?);
    if !agreed {
        if as_json {
            let result = json!({
                "sound": false, "repair": said.steps, "left": said.left, "obstacle": said.obstacle, "repaired": false,
            });
            println!("{result}");
        } else {
            let how = if is_possible {
                format!("; './gond check {} --repair --yes' does this", path.display())
            } else {
                String::new()
            };
            println!("nothing was written{how}");
        }
        if let Some(obstacle) = said.obstacle.filter(|_| yes) {
            bail!("{} was not repaired: {obstacle}", path.display());
        }
        return Ok(ExitCode::FAILURE);
    }
    Volume::repair(&lock, &plan)?;
    let checked = look(Volume::open(path)?)?;
    if as_json {
        let mut result = checked.to_json();
        result["repair"] = json!(said.steps);
        result["left"] = json!(said.left);
        result["repaired"] = json!(true);
        println!("{result}");
    } else {
        println!("this is done; the image was checked again:");
        checked.show(path);
        if !checked.faults.is_empty() {
            println!(
                "what is left: './gond mend {}' sees to names, directories and the programs of the system",
                path.display()
            );
        }
    }
    Ok(checked.status())
}

/// Asks a person at a terminal.
fn asks(path: &Path) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    print!(
        "What is lost is lost for ever, so copy {} first. Type 'yes' to do this: ",
        path.display()
    );
    std::io::stdout().flush().context("cannot write to the terminal")?;
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .context("cannot read from the terminal")?;
    Ok(line.trim() == "yes")
}

impl Said {
    fn show(&self) {
        for step in &self.steps {
            println!("{} {step}", display::bad("repair:"));
        }
        for left in &self.left {
            println!("{} {left}", display::bad("left:"));
        }
        if let Some(obstacle) = &self.obstacle {
            println!("no repair is possible: {obstacle}");
        }
    }
}

/// The plan in words.
fn say(volume: &Volume, plan: &Plan, names: &Names) -> Said {
    let mut said = Said {
        steps: Vec::new(),
        left: Vec::new(),
        obstacle: plan.obstacle().map(|finding| why_not(finding).to_owned()),
    };
    let (mut freed, mut first_freed) = (0, 0);
    for step in &plan.steps {
        match *step {
            Step::Leave(finding) => said
                .left
                .push(format!("{}: {}", describe(finding, names), why_left(finding))),
            Step::Free { first, count } => {
                if freed == 0 {
                    first_freed = first;
                }
                freed += count;
            }
            step => said.steps.push(in_words(volume, step, names)),
        }
    }
    if freed > 0 {
        said.steps.push(format!(
            "{} in use by the bitmap, from block {first_freed} on, to which nothing leads; set free",
            count(freed, "block")
        ));
    }
    said
}

fn in_words(volume: &Volume, step: Step, names: &Names) -> String {
    match step {
        Step::Superblock { block } => {
            format!("the superblock copy at block {block} is unreadable; it is written anew, and nothing is lost")
        }
        Step::GoBack {
            structure,
            block,
            from,
            to,
        } => format!(
            "{structure:?} at block {block} is damaged, and nothing else leads to what stands below it; the image goes \
             back from generation {from} to {to}, which is whole, and what was changed since is lost"
        ),
        Step::GiveUp(loss) => {
            let whose = loss
                .base()
                .map_or(String::new(), |base| format!(" ({})", names.object(base)));
            format!("{loss}{whose}; this is given up")
        }
        Step::Bitmap { block } => format!(
            "the allocation bitmap is damaged at block {block}; it is rebuilt from what is in use, and nothing is lost"
        ),
        Step::OldBitmap { block } => format!(
            "the allocation bitmap of the generation before is damaged at block {block}; it is written over, and \
             nothing is lost"
        ),
        Step::Rows { block, from, end, rows } => {
            let gone = count(u64::from(rows), "object");
            format!(
                "the leaf of the object table at block {block} is damaged; lost: its {gone} from {from:#x} to {:#x}{}",
                end - 1,
                names_between(volume, names, from, end)
            )
        }
        Step::Body { block, base } => format!(
            "block {block} with the capabilities and procedures of {} is damaged; the object stays without them, and \
             './gond export IMAGE {base:#x} FILE' brings its content out",
            names.object(base)
        ),
        Step::Pages {
            structure,
            block,
            base,
            first,
            end,
        } => {
            let end = volume
                .object(base)
                .map_or(end, |record| end.min(record.pages).max(first + 1));
            let pages = match end - first {
                1 => format!("page {first}"),
                _ => format!("pages {first} to {}", end - 1),
            };
            format!(
                "{structure:?} at block {block} is damaged; {pages} of {} lost: reading {} is an error, until it is written anew",
                if end - first == 1 {
                    format!("{} is", names.object(base))
                } else {
                    format!("{} are", names.object(base))
                },
                if end - first == 1 { "it" } else { "one" },
            )
        }
        Step::Mark { block } => format!("block {block} is in use and marked as free; it is marked as in use"),
        Step::Snapshot { name } => format!(
            "what says which blocks snapshot '{name}' holds is damaged; it is written anew from what the snapshot reaches, \
             and nothing is lost"
        ),
        Step::SnapshotLost { name } => {
            format!("nothing says any more where snapshot '{name}' is; lost: the snapshot. The state does not need it")
        }
        Step::Snapshots { block, is_lost: false } => {
            format!(
                "the list of snapshots is damaged at block {block} or its copy; it is written anew, and nothing is lost"
            )
        }
        Step::Snapshots { block, is_lost: true } => format!(
            "the list of snapshots at block {block} is damaged, and so is its copy; lost: all snapshots. The state does not \
             need them"
        ),
        Step::Free { .. } | Step::Leave(_) => String::new(),
    }
}

/// The objects with names that begin in a range, and are not there.
fn names_between(volume: &Volume, names: &Names, from: u64, end: u64) -> String {
    let mut gone = names
        .0
        .range(from..end)
        .filter(|&(&base, _)| volume.object(base).is_none());
    let told: Vec<String> = gone.by_ref().take(NAMES_TOLD).map(|(_, name)| name.clone()).collect();
    match (told.is_empty(), gone.count()) {
        (true, _) => String::new(),
        (false, 0) => format!(": {}", told.join(", ")),
        (false, more) => format!(": {} and {more} more names", told.join(", ")),
    }
}

/// Why a finding is left as it is.
fn why_left(finding: Finding) -> &'static str {
    match finding {
        Finding::Damaged {
            structure: Structure::Page,
            fault: Fault::Unread,
            ..
        } => "the disk reports an error, and it may be read another time, or from a copy on a disk that works",
        Finding::BeyondEnd { .. } => "nobody can read it there",
        other => why_not(other),
    }
}

/// Why there is no repair for a finding.
fn why_not(finding: Finding) -> &'static str {
    match finding {
        Finding::Damaged {
            fault: Fault::Unread, ..
        } => {
            "the disk reports an error where something stands to which much may belong; copy the image to a disk that \
             works, and repair the copy"
        }
        Finding::SharedBlock(_) => {
            "two places lead to the same block, and nothing says which is right; './gond export' brings out what you \
             need"
        }
        _ => "nothing says what stood there; './gond export' brings out what you need",
    }
}
