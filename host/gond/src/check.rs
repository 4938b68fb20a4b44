//! `gond check`: is all of a disk image as it should be?
//!
//! The store verifies itself (checksums, table, allocation, journal); on top of that stand the names: every
//! directory must make sense, every entry lead to an object that lists its capability, and the root Clist be in order.
//! Objects without a name are no fault: a program may keep a capability elsewhere. With `--repair` it tells what can be
//! done about damage of the store, and does it on a person's word (`check/repair.rs`).

use crate::arguments::{self, count, show_size};
use crate::disk::lock_image;
use crate::display::{self, Job};
use crate::tree::{self, Named, is_taken_back};
use crate::volume::Volume;
use abi::address::{FIRST_PROGRAM, OBJECT_BYTES_MAX, PAGE, ROOT_CLIST, ROOT_DIRECTORY};
use anyhow::{Result, anyhow, bail};
use names::Kind;
use names::directory::Mark;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use store::{Finding, ROW_ENDS, TailReason};

mod repair;

/// The findings of a check.
pub struct Checked {
    /// Faults, each a sentence.
    pub faults: Vec<String>,
    /// Remarks that are no faults.
    pub notes: Vec<String>,
    /// Objects, pages with content, blocks in use.
    pub counts: [u64; 3],
    /// Names in all directories.
    pub names: usize,
    /// Objects to which no name leads.
    pub unnamed: usize,
    /// The snapshots, each with the bytes that it holds alone.
    pub snapshots: Vec<(String, u64)>,
}

/// Runs `gond check`.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    let flags = ["json", "accept-loss", "repair", "yes"];
    let operands = arguments::operands("check", arguments, &["IMAGE"], &flags)?;
    let path = Path::new(&operands.values[0]);
    let (repair, accept) = (operands.has("repair"), operands.has("accept-loss"));
    if repair && accept {
        return Err(arguments::misused(
            "check",
            "'--repair' gives up losses, too; give one of the two",
        ));
    }
    if operands.has("yes") && !repair {
        return Err(arguments::misused("check", "'--yes' belongs to '--repair'"));
    }
    if repair {
        return repair::command(path, operands.has("yes"), operands.has("json"));
    }
    let volume = if accept {
        Volume::accept_loss(&lock_image(path)?)?
    } else {
        Volume::open(path)?
    };
    let checked = look(volume)?;
    if operands.has("json") {
        println!("{}", checked.to_json());
    } else {
        checked.show(path);
    }
    Ok(checked.status())
}

impl Checked {
    /// All of it, for programs.
    fn to_json(&self) -> serde_json::Value {
        let [objects, pages, blocks] = self.counts;
        json!({
            "sound": self.faults.is_empty(), "objects": objects, "pages": pages, "blocks": blocks,
            "names": self.names, "unnamed": self.unnamed, "faults": self.faults, "notes": self.notes,
            "snapshots": self.snapshots.iter().map(|(name, alone)| json!({"name": name, "alone": alone})).collect::<Vec<_>>(),
        })
    }

    /// All of it, for people.
    fn show(&self, path: &Path) {
        let [objects, pages, blocks] = self.counts;
        for note in &self.notes {
            println!("note: {note}");
        }
        for fault in &self.faults {
            println!("{} {fault}", display::bad("fault:"));
        }
        println!(
            "{} ({}, the root directory, {} without a name), {}, {} in use",
            count(objects, "object"),
            count(self.names as u64, "name"),
            self.unnamed,
            count(pages, "page"),
            count(blocks, "block")
        );
        if self.faults.is_empty() {
            println!("{} is sound", path.display());
        } else {
            let faults = count(self.faults.len() as u64, "fault");
            println!("{} has {faults}", path.display());
        }
    }

    fn status(&self) -> ExitCode {
        if self.faults.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// Checks an image; an error if anything is wrong with it.
pub fn inspect(path: &Path) -> Result<()> {
    let checked = examine(path)?;
    if checked.faults.is_empty() {
        Ok(())
    } else {
        bail!("{}", checked.faults.join("\n"))
    }
}

/// Checks an image and tells all.
pub fn examine(path: &Path) -> Result<Checked> {
    look(Volume::open(path)?)
}

fn look(mut volume: Volume) -> Result<Checked> {
    let mut checked = Checked {
        faults: Vec::new(),
        notes: Vec::new(),
        counts: [0; 3],
        names: 0,
        unnamed: 0,
        snapshots: Vec::new(),
    };
    let names = Names::of(&mut volume);
    tell_mount(&volume, &names, &mut checked);
    let records = volume.objects();
    let pages_of = |base| {
        records
            .iter()
            .find(|record| record.base == base)
            .map_or(0, |record| record.pages)
    };
    let mut lost = BTreeMap::<u64, u64>::new();
    let (store, world) = volume.parts();
    let faults = &mut checked.faults;
    let mut tell = |finding: Finding| match finding {
        Finding::Lost { base, page, end } => {
            *lost.entry(base).or_default() += end.min(pages_of(base)).saturating_sub(page);
        }
        other => faults.push(describe(other, &names)),
    };
    world.show(Some(Job::begin("checking")));
    let verified = store
        .verify(world, &mut tell)
        .map_err(|error| anyhow!("cannot verify: {error}"));
    world.show(None);
    let verified = verified?;
    for (base, pages) in lost {
        checked.notes.push(format!(
            "{} of {} {} lost to damage: reading one is an error, until it is written anew",
            count(pages, "page"),
            names.object(base),
            if pages == 1 { "was" } else { "were" }
        ));
    }
    let report = volume.report();
    if verified.findings > 0 || !report.losses.is_empty() || !report.damage.is_empty() {
        checked.notes.push(
            "'gond check IMAGE --repair' says what can be done about what is damaged, before it does it".to_owned(),
        );
    }
    check_snapshots(&mut volume, &mut checked)?;
    checked.counts = [verified.objects, verified.pages, verified.blocks];
    check_sizes(&volume, &names, &mut checked);
    check_names(&mut volume, &mut checked);
    Ok(checked)
}

/// The names that lead to objects, as far as the directories can be read.
pub struct Names(BTreeMap<u64, String>);

impl Names {
    /// Those of an image.
    pub fn of(volume: &mut Volume) -> Self {
        let (all, _) = tree::walk(volume);
        let mut names: BTreeMap<u64, String> = [
            (ROOT_CLIST, "the root Clist"),
            (ROOT_DIRECTORY, "the root directory"),
            (FIRST_PROGRAM, "the first program"),
        ]
        .map(|(base, name)| (base, name.into()))
        .into();
        for named in all {
            names
                .entry(named.capability.address)
                .or_insert_with(|| format!("'{}'", named.path));
        }
        Self(names)
    }

    /// An object as people know it.
    pub fn object(&self, base: u64) -> String {
        match self.0.get(&base) {
            Some(name) => format!("{name}, object {base:#x}"),
            None => format!("object {base:#x}, which has no name"),
        }
    }
}

/// Tells the findings of the mount.
fn tell_mount(volume: &Volume, names: &Names, checked: &mut Checked) {
    let report = volume.report();
    let state = if report.clean {
        "powered off cleanly"
    } else {
        "not powered off cleanly"
    };
    checked.notes.push(format!(
        "generation {}, {state}, {} to replay",
        report.generation,
        count(report.replayed.into(), "journal record")
    ));
    if let Some(tail) = &report.tail {
        let text = format!("the journal ends at record {} ({:?})", tail.sequence, tail.reason);
        if tail.stranded == 0 && matches!(tail.reason, TailReason::Torn | TailReason::Data) {
            checked
                .notes
                .push(format!("{text}, as the power failed while it was written"));
        }
    }
    for loss in &report.losses {
        let what = match loss.base() {
            Some(base) => format!("{loss} ({})", names.object(base)),
            None => loss.to_string(),
        };
        checked.faults.push(what);
    }
    if !report.losses.is_empty() {
        checked.notes.push(
            "the system does not start from an image that has lost something; 'gond check --accept-loss IMAGE' \
             gives up what is lost, for ever: copy the image first"
                .into(),
        );
    }
    for block in &report.bad_superblocks {
        checked
            .notes
            .push(format!("the superblock copy at block {block} is unreadable"));
    }
    for (structure, block) in &report.damage {
        checked
            .faults
            .push(format!("{structure:?} at block {block} is damaged"));
    }
}

fn describe(finding: Finding, names: &Names) -> String {
    match finding {
        Finding::Damaged {
            structure,
            block,
            base,
            page,
            ..
        } if base != 0 => {
            format!(
                "{structure:?} at block {block} is damaged: page {page} of {}",
                names.object(base)
            )
        }
        Finding::Damaged { structure, block, .. } => format!("{structure:?} at block {block} is damaged"),
        Finding::Lost { base, page, .. } => format!("page {page} of {} was lost to damage", names.object(base)),
        Finding::SharedBlock(block) => format!("block {block} is reached twice, or lies outside of the data"),
        Finding::MarkedFree(block) => format!("block {block} is in use and marked as free"),
        Finding::Leaked(block) => format!("block {block} is marked as in use and nothing leads to it"),
        Finding::TableOrder => "the object table is out of order, or objects overlap".into(),
        Finding::BeyondEnd { base, page } => format!("page {page} lies behind the end of {}", names.object(base)),
    }
}

/// Each snapshot must be whole: all that it reaches is as it was written, and is held by it.
fn check_snapshots(volume: &mut Volume, checked: &mut Checked) -> Result<()> {
    let path = volume.path().to_owned();
    let (store, world) = volume.parts();
    let shares = store.shares_of_snapshots(world);
    let shares = shares.map_err(|error| anyhow!("cannot see what snapshots hold: {error}"))?;
    for (name, alone) in shares {
        let alone = alone * PAGE;
        let mut found = Vec::new();
        match Volume::open_snapshot(&path, &name) {
            Ok(mut snapshot) => {
                let names = Names::of(&mut snapshot);
                let (store, world) = snapshot.parts();
                world.show(Some(Job::begin(format!("checking snapshot '{name}'"))));
                let verified = store.verify(world, &mut |finding| {
                    if !matches!(finding, Finding::Lost { .. }) {
                        found.push(describe(finding, &names));
                    }
                });
                world.show(None);
                verified.map_err(|error| anyhow!("cannot verify snapshot '{name}': {error}"))?;
            }
            Err(error) => found.push(format!("{error:#}")),
        }
        let is_whole = found.is_empty();
        let faults = found.into_iter().map(|fault| format!("snapshot '{name}': {fault}"));
        checked.faults.extend(faults);
        if !is_whole {
            checked.notes.push(format!(
                "'./gond snapshot {} drop {name}' drops the snapshot, and its damage; the state does not need it",
                path.display()
            ));
        }
        checked
            .notes
            .push(format!("snapshot '{name}' holds {} alone", show_size(alone)));
        checked.snapshots.push((name.to_string(), alone));
    }
    Ok(())
}

/// An object with more addresses than the system gives one cannot be reached there, nor destroyed.
fn check_sizes(volume: &Volume, names: &Names, checked: &mut Checked) {
    for record in volume.objects() {
        let bytes = record.pages.saturating_mul(PAGE);
        if bytes > OBJECT_BYTES_MAX {
            checked.faults.push(format!(
                "{} has {}, and the system reaches only objects of {} at most; './gond export IMAGE {:#x} FILE' brings \
                 its content out",
                names.object(record.base),
                show_size(bytes),
                show_size(OBJECT_BYTES_MAX),
                record.base
            ));
        }
    }
}

fn check_names(volume: &mut Volume, checked: &mut Checked) {
    for (base, what) in [(ROOT_CLIST, "root Clist"), (ROOT_DIRECTORY, "root directory")] {
        if volume.object(base).is_none() {
            checked.faults.push(format!("there is no {what} (at {base:#x})"));
        }
    }
    if volume.object(FIRST_PROGRAM).is_none() {
        checked
            .notes
            .push("there is no first program, so the system cannot start from this image".into());
    }
    let (all, complaints) = tree::walk(volume);
    checked.faults.extend(complaints);
    let mut reached = BTreeSet::from([ROOT_CLIST, ROOT_DIRECTORY, FIRST_PROGRAM]);
    tell_unfinished(volume, &all, &mut reached, checked);
    let mut bad = BTreeMap::<&str, usize>::new();
    for named in &all {
        reached.insert(named.capability.address);
        if is_taken_back(volume, named) {
            continue;
        }
        if let Some(fault) = fault_of(volume, named) {
            let count = bad.entry(directory_of(&named.path)).or_default();
            *count += 1;
            if *count <= BAD_NAMES {
                checked.faults.push(format!("'{}': {fault}", named.path));
            }
        }
    }
    for (directory, count) in bad {
        if let more @ 1.. = count.saturating_sub(BAD_NAMES) {
            checked
                .faults
                .push(format!("directory '/{directory}': {more} more names like these"));
        }
    }
    checked.names = all.len();
    let mut objects = volume.objects();
    objects.retain(|record| !reached.contains(&record.base));
    let ending = objects.iter().filter(|record| record.flags & ROW_ENDS != 0).count();
    checked.unnamed = objects.len() - ending;
    if ending > 0 {
        checked.notes.push(format!(
            "{} of programs that ran when the power went: gone with the next start",
            count(ending as u64, "object")
        ));
    }
    if checked.unnamed > 0 {
        checked.notes.push(format!(
            "no name leads to {}, which a program may keep elsewhere; 'gond mend --name-all IMAGE' gives names, and \
             'rm ADDRESS' in the system removes one",
            count(checked.unnamed as u64, "object")
        ));
    }
    check_clists(volume, &all, checked);
}

/// Bad names of one directory that are told one by one: programs can write a directory full of them.
const BAD_NAMES: usize = 20;

/// The directory that a path's last name stands in.
fn directory_of(path: &str) -> &str {
    path.rfind('/').map_or("", |at| &path[..=at])
}

/// Tells which acts on names a power cut left unfinished: the next start sees to them.
fn tell_unfinished(volume: &mut Volume, all: &[Named], reached: &mut BTreeSet<u64>, checked: &mut Checked) {
    let below = all.iter().filter(|named| named.kind == Kind::Directory);
    let directories = below.map(|named| (named.capability.address, format!("{}/", named.path)));
    for (base, prefix) in directories.chain([(ROOT_DIRECTORY, String::new())]).collect::<Vec<_>>() {
        // A directory that cannot be read was told already.
        for named in tree::marked(volume, base, &prefix).unwrap_or_default() {
            let address = named.capability.address;
            let there = volume.object(address).is_some();
            let what = match named.mark {
                Mark::Doomed if there => "was being removed: the next start after a power cut finishes that",
                Mark::Doomed => "is removed: the next start after a power cut takes the entry away",
                Mark::Unborn => "was being made: the next start after a power cut finishes that, or takes it back",
                _ if is_taken_back(volume, &named) => {
                    "was made just before the power failed: the next start takes the name back"
                }
                _ => continue,
            };
            reached.insert(address);
            checked.notes.push(format!("'{}' {what}", named.path));
        }
    }
}

/// Describes the fault of an entry, if it has one.
fn fault_of(volume: &Volume, named: &Named) -> Option<String> {
    let base = named.capability.address;
    let Some(record) = volume.object(base) else {
        return Some(format!("there is no object at {base:#x}"));
    };
    if tree::rights_of(&record, named).is_none() {
        return Some(format!("the object at {base:#x} does not list its password"));
    }
    let whole = record.pages.saturating_mul(PAGE);
    let too_long = matches!(named.kind, Kind::Data | Kind::Program) && named.word > whole;
    too_long.then(|| format!("its content has {} bytes and the object only {whole}", named.word))
}

fn check_clists(volume: &mut Volume, all: &[Named], checked: &mut Checked) {
    let mut bases: BTreeSet<u64> = all
        .iter()
        .filter(|one| one.kind == Kind::Clist)
        .map(|one| one.capability.address)
        .collect();
    bases.insert(ROOT_CLIST);
    for base in bases {
        match tree::capabilities(volume, base) {
            Ok((_, true)) => {}
            Ok((_, false)) => checked
                .faults
                .push(format!("the Clist at {base:#x} is not in the order that it promises")),
            // An entry without an object was told already.
            Err(_) if volume.object(base).is_none() => {}
            Err(error) => checked.faults.push(format!("{error:#}")),
        }
    }
}
