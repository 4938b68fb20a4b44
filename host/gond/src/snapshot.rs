//! `gond snapshot`: states of an image that stay, by a name. They are the store's (`store/src/snapshots.rs`); here they get words.

use crate::arguments::{self, count, misused, show_size};
use crate::check::Names;
use crate::disk::lock_image;
use crate::display::{self, Job};
use crate::send::differing;
use crate::volume::{self, Volume};
use abi::address::PAGE;
use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use store::{ObjectRecord, SnapshotName};

/// The act that the command line asks for.
enum Act {
    Keep(SnapshotName),
    List,
    Compare(SnapshotName, Option<SnapshotName>),
    GoBack {
        name: SnapshotName,
        keep: Option<SnapshotName>,
        yes: bool,
    },
    Drop(SnapshotName),
}

fn parse(arguments: Vec<OsString>) -> Result<(PathBuf, Act, bool)> {
    use lexopt::prelude::*;
    let usage = |error: lexopt::Error| misused("snapshot", error);
    let mut parser = lexopt::Parser::from_args(arguments);
    let (mut words, mut as_json, mut yes, mut keep) = (Vec::<OsString>::new(), false, false, None);
    while let Some(argument) = parser.next().map_err(usage)? {
        match argument {
            Long("json") => as_json = true,
            Long("yes") => yes = true,
            Long("keep") => {
                let value = parser.value().map_err(usage)?;
                keep = Some(arguments::snapshot("snapshot", &value)?);
            }
            Value(word) => words.push(word),
            other => return Err(misused("snapshot", other.unexpected())),
        }
    }
    let mut words = words.into_iter();
    let image = words
        .next()
        .ok_or_else(|| misused("snapshot", "it takes IMAGE and what to do"))?;
    let act = words.next();
    let act = act.as_ref().and_then(|act| act.to_str()).unwrap_or_default();
    let names = words.map(|word| arguments::snapshot("snapshot", &word));
    let names: Vec<SnapshotName> = names.collect::<Result<_>>()?;
    let going_back = act == "rollback";
    let has_json = matches!(act, "ls" | "diff");
    if (yes || keep.is_some()) && !going_back {
        return Err(misused("snapshot", "'--keep' and '--yes' belong to 'rollback'"));
    }
    if as_json && !has_json {
        return Err(misused("snapshot", "'--json' belongs to 'ls' and 'diff'"));
    }
    let act = match (act, &names[..]) {
        ("keep", &[name]) => Act::Keep(name),
        ("ls", []) => Act::List,
        ("diff", &[one]) => Act::Compare(one, None),
        ("diff", &[one, other]) => Act::Compare(one, Some(other)),
        ("rollback", &[name]) => Act::GoBack { name, keep, yes },
        ("drop", &[name]) => Act::Drop(name),
        ("keep" | "rollback" | "drop", _) => return Err(misused("snapshot", format!("'{act}' takes NAME"))),
        ("ls", _) => return Err(misused("snapshot", "'ls' takes no name")),
        ("diff", _) => return Err(misused("snapshot", "'diff' takes A, and perhaps B")),
        ("", _) => return Err(misused("snapshot", "say what to do: keep, ls, diff, rollback or drop")),
        (other, _) => {
            return Err(misused(
                "snapshot",
                format!("'{other}' is not keep, ls, diff, rollback or drop"),
            ));
        }
    };
    Ok((image.into(), act, as_json))
}

/// Runs `gond snapshot`.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    let (path, act, as_json) = parse(arguments)?;
    match act {
        Act::Keep(name) => keep(&path, name),
        Act::List => list(&path, as_json),
        Act::Compare(one, other) => compare(&path, (&one, other.as_ref()), as_json),
        Act::GoBack { name, keep, yes } => go_back(&path, name, keep, yes),
        Act::Drop(name) => drop_one(&path, name),
    }
}

fn keep(path: &Path, name: SnapshotName) -> Result<ExitCode> {
    let lock = lock_image(path)?;
    let _job = Job::begin("keeping a snapshot");
    Volume::open_for_change(&lock)?.keep(name)?;
    println!("kept '{name}'");
    Ok(ExitCode::SUCCESS)
}

fn drop_one(path: &Path, name: SnapshotName) -> Result<ExitCode> {
    let lock = lock_image(path)?;
    let _job = Job::begin("dropping a snapshot");
    if !Volume::open(path)?.snapshots().iter().any(|one| one.name == name) {
        return Err(volume::missing(path, &name));
    }
    Volume::open_for_change(&lock)?.drop_snapshot(name)?;
    // Its blocks are free two generations later, when no power cut can need them.
    Volume::open_for_change(&lock)?.commit()?;
    println!("dropped '{name}'");
    Ok(ExitCode::SUCCESS)
}

fn list(path: &Path, as_json: bool) -> Result<ExitCode> {
    let mut volume = Volume::open(path)?;
    let snapshots = volume.snapshots();
    let (store, world) = volume.parts();
    world.show(Some(Job::begin("reading what snapshots hold")));
    let shares = store.shares_of_snapshots(world);
    world.show(None);
    let shares = shares.map_err(|error| anyhow!("cannot read the snapshots of {}: {error}", path.display()))?;
    let alone = |name: &SnapshotName| {
        shares
            .iter()
            .find(|(other, _)| other == name)
            .map_or(0, |share| share.1)
    };
    if as_json {
        for one in &snapshots {
            let line = json!({
                "name": one.name.as_str(), "generation": one.generation, "time_ns": one.time, "objects": one.objects,
                "bytes": one.blocks * PAGE, "alone": alone(&one.name) * PAGE, "damaged": one.is_damaged,
                "identity": one.identity.to_string(),
            });
            println!("{line}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    if snapshots.is_empty() {
        println!("there are no snapshots");
        return Ok(ExitCode::SUCCESS);
    }
    let width = snapshots
        .iter()
        .map(|one| one.name.as_str().len())
        .max()
        .unwrap_or(0)
        .max(4);
    println!(
        "{:width$}  {:19}  {:>8}  {:>10}  {:>10}",
        "NAME", "MADE (UTC)", "OBJECTS", "HOLDS", "ALONE"
    );
    for one in &snapshots {
        let (holds, alone) = (show_size(one.blocks * PAGE), show_size(alone(&one.name) * PAGE));
        let damage = if one.is_damaged { "  damaged" } else { "" };
        let made = show_time(one.time);
        println!(
            "{:width$}  {made:19}  {:>8}  {holds:>10}  {alone:>10}{damage}",
            one.name, one.objects
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// A time in nanoseconds since 1970, as date and time of day (UTC). The date is by Hinnant's algorithm, `civil_from_days`.
fn show_time(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

fn go_back(path: &Path, name: SnapshotName, keep: Option<SnapshotName>, yes: bool) -> Result<ExitCode> {
    let lock = lock_image(path)?;
    let there = Volume::open(path)?.snapshots();
    if !there.iter().any(|one| one.name == name) {
        return Err(volume::missing(path, &name));
    }
    if let Some(keep) = keep.filter(|keep| there.iter().any(|one| one.name == *keep)) {
        bail!("there is a snapshot '{keep}' already: take another name for the present state");
    }
    let what = match keep {
        Some(keep) => format!("the present state stays as '{keep}'"),
        None => "what was changed since is lost ('--keep NAME' keeps it)".into(),
    };
    println!("{} goes back to '{name}'; {what}", path.display());
    if !yes && !asks()? {
        println!("nothing was written; '--yes' does it without a question");
        return Ok(ExitCode::FAILURE);
    }
    let _job = Job::begin("going back");
    Volume::roll_back(&lock, &name, keep)?;
    println!("done");
    Ok(ExitCode::SUCCESS)
}

/// Asks a person at a terminal.
fn asks() -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    print!("Type 'yes' to do this: ");
    std::io::stdout().flush().context("cannot write to the terminal")?;
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.context("cannot read from the terminal")?;
    Ok(line.trim() == "yes")
}

/// A copy of an image that has gone back to a snapshot, for a start from it. Where the image has holes the copy has them, too.
pub fn copy_of(path: &Path, name: &SnapshotName, copy: &Path) -> Result<()> {
    let lock = lock_image(path)?;
    if !Volume::open(path)?.snapshots().iter().any(|one| one.name == *name) {
        return Err(volume::missing(path, name));
    }
    let job = Job::begin("copying the image");
    let how = ["--sparse=always", "--reflink=never", "--"];
    let status = Command::new("cp").args(how).arg(path).arg(copy).status();
    let status = status.context("cannot start 'cp', which copies the image")?;
    drop((job, lock));
    if !status.success() {
        bail!(
            "cannot copy {} to {}: see above; TMPDIR names a folder with more room",
            path.display(),
            copy.display()
        );
    }
    std::fs::set_permissions(copy, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let lock = lock_image(copy)?;
    Volume::roll_back(&lock, name, None)?;
    display::note(&format!(
        "this starts from snapshot '{name}', on a copy that is gone at the end; {} stays as it is",
        path.display()
    ));
    Ok(())
}

/// A difference of two states.
struct Difference {
    kind: &'static str,
    base: u64,
    name: String,
    /// Bytes of the object in each.
    bytes: [Option<u64>; 2],
    /// Bytes of pages that differ, and whether rights or procedures do.
    changed: u64,
    has_other_rights: bool,
}

fn compare(path: &Path, (one, other): (&SnapshotName, Option<&SnapshotName>), as_json: bool) -> Result<ExitCode> {
    let (mut before, mut after) = (Volume::open_snapshot(path, one)?, Volume::open_at(path, other)?);
    let names = [Names::of(&mut before), Names::of(&mut after)];
    let records = [before.objects(), after.objects()];
    let bases: BTreeSet<u64> = records.iter().flatten().map(|record| record.base).collect();
    let mut job = Job::begin("comparing");
    let total = bases.len();
    let mut found = Vec::new();
    for (number, base) in bases.into_iter().enumerate() {
        job.step(&format!("{number} of {total} objects"));
        let [was, is] = [before.object(base), after.object(base)];
        // Another object at the same address is another object.
        let is_same = was
            .as_ref()
            .zip(is.as_ref())
            .is_some_and(|(was, is)| was.birth == is.birth);
        if is_same && let Some((was, is)) = was.as_ref().zip(is.as_ref()) {
            let changed = changed_bytes(&mut before, &mut after, was, is)?;
            let has_other_rights = was.capabilities != is.capabilities || was.pdx != is.pdx;
            if changed > 0 || has_other_rights || was.pages != is.pages {
                found.push(Difference {
                    kind: "changed",
                    base,
                    name: names[1].object(base),
                    bytes: [was, is].map(|record| Some(record.pages * PAGE)),
                    changed,
                    has_other_rights,
                });
            }
            continue;
        }
        for (place, kind, record) in [(0, "only in A", was), (1, "only in B", is)] {
            let Some(record) = record else { continue };
            let mut bytes = [None; 2];
            bytes[place] = Some(record.pages * PAGE);
            found.push(Difference {
                kind,
                base,
                name: names[place].object(base),
                bytes,
                changed: 0,
                has_other_rights: false,
            });
        }
    }
    drop(job);
    let title = other.map_or("the state".to_owned(), |other| format!("'{other}'"));
    if as_json {
        for difference in &found {
            println!("{}", difference.to_json());
        }
    } else if found.is_empty() {
        println!("'{one}' and {title} are equal");
    } else {
        println!("A is '{one}', B is {title}");
        found.iter().for_each(Difference::show);
        println!("{}", count(found.len() as u64, "difference"));
    }
    Ok(ExitCode::from(u8::from(!found.is_empty())))
}

/// Bytes of the pages that differ between two states of an object.
fn changed_bytes(before: &mut Volume, after: &mut Volume, was: &ObjectRecord, is: &ObjectRecord) -> Result<u64> {
    let base = was.base;
    let marks = [before.parts().0.mark_of(base), after.parts().0.mark_of(base)];
    if was.pages == is.pages && marks[0].is_some() && marks[0] == marks[1] {
        return Ok(0);
    }
    let is_zero =
        |page: &Option<Box<volume::Block>>| page.as_ref().is_none_or(|page| page.iter().all(|&byte| byte == 0));
    let (mut bytes, mut from) = (0, 0);
    while let Some(found) = differing(after, base, Some(before), from)? {
        for page in found {
            from = page + 1;
            let one = if page < was.pages {
                before.page(base, page)?.content
            } else {
                None
            };
            let other = after.page(base, page)?.content;
            if one != other && !(is_zero(&one) && is_zero(&other)) {
                bytes += PAGE;
            }
        }
    }
    // Of one that became shorter.
    from = is.pages;
    while let Some(found) = differing(before, base, None, from)? {
        for page in found {
            from = page + 1;
            bytes += if is_zero(&before.page(base, page)?.content) {
                0
            } else {
                PAGE
            };
        }
    }
    Ok(bytes)
}

impl Difference {
    fn to_json(&self) -> Value {
        json!({
            "kind": self.kind, "address": format!("{:#x}", self.base), "object": self.name, "bytes_a": self.bytes[0],
            "bytes_b": self.bytes[1], "changed": self.changed, "rights": self.has_other_rights,
        })
    }

    fn show(&self) {
        let size = |place: usize| self.bytes[place].map_or(String::new(), show_size);
        let what = match self.bytes {
            [Some(was), Some(is)] if was != is => format!("{} became {}", size(0), size(1)),
            [Some(_), Some(_)] => String::new(),
            [Some(_), None] => size(0),
            _ => size(1),
        };
        let changed = if self.changed > 0 {
            format!("{} changed", show_size(self.changed))
        } else {
            String::new()
        };
        let rights = if self.has_other_rights { "other rights" } else { "" };
        let parts: Vec<&str> = [&what[..], &changed, rights]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        println!("{}: {}: {}", self.kind, self.name, parts.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        assert_eq!(show_time(0), "1970-01-01 00:00:00");
        assert_eq!(show_time(951_782_400_000_000_000), "2000-02-29 00:00:00");
        assert_eq!(show_time(1_795_958_107_999_999_999), "2026-11-29 13:15:07");
        assert_eq!(show_time(4_107_542_400_000_000_000), "2100-03-01 00:00:00");
    }
}
