//! How a disk is furnished: the root Clist, the root directory, the programs (`docs/spec/directory-format.md`).
//!
//! A new image has no name before it is whole, so that an interrupted run leaves nothing half made, and it gets its name only where nothing
//! has that name: another run may have made an image meanwhile, and use it. On an image that exists, programs older than the sources are replaced, but only if it was
//! powered off cleanly: after a crash recovery belongs to the system itself.

use crate::arguments::{self, misused, show_size};
use crate::build::{self, Programs};
use crate::disk::{ImageLock, lock_file, require_image_file};
use crate::display;
use crate::place::NewFile;
use crate::tree::{self, NO_LIMITS};
use crate::volume::{Block, Damage, Volume, now_ns};
use abi::Rights;
use abi::address::{FIRST_PROGRAM, PAGE, ROOT_CLIST, ROOT_DIRECTORY, SLOT};
use abi::layout::{Capability, OBJECT_PERSISTENT};
use anyhow::{Context, Result, bail};
use linker::Image;
use names::clist::Clist;
use names::{Directory, Entry, Kind};
use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::{ObjectRecord, PageFlags};

/// Size of a new image, in bytes.
pub const DEFAULT_SIZE: u64 = 256 << 20;
/// Size of the root directory and of the root Clist. Pages never written take no room on the disk.
const ROOT_BYTES: u64 = 1 << 20;
/// Bytes of the system's log.
const LOG_BYTES: u64 = 64 << 10;
/// Tag of the objects that hold programs put there by `gond`, which it may replace.
const INSTALLED: u64 = u64::from_le_bytes(*b"GONDPROG");

/// A block that one commit sets free can be used behind the next.
const COMMITS_TO_FREE: u32 = 2;

/// The smallest disk that has room for the programs and some objects.
pub const FURNISHED_MIN: u64 = 16 << 20;
/// The smallest disk without programs.
pub const BARE_MIN: u64 = store::BLOCKS_MIN * PAGE;
/// The largest disk.
const SIZE_MAX: u64 = store::BLOCKS_MAX * PAGE;

/// The size of a disk, in bytes.
///
/// # Errors
/// The sizes that there are, in words.
pub fn size(text: &str, least: u64) -> Result<u64, String> {
    let bytes = arguments::size(text).filter(|bytes| (least..=SIZE_MAX).contains(bytes));
    bytes.ok_or_else(|| format!("a disk has {} to {}", show_size(least), show_size(SIZE_MAX)))
}

/// `gond format`.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(arguments);
    let usage = |error: lexopt::Error| misused("format", error);
    let (mut path, mut size_text, mut furnish) = (None, None, true);
    while let Some(argument) = parser.next().map_err(usage)? {
        match argument {
            Long("disk-size") => size_text = Some(parser.value().map_err(usage)?.string().map_err(usage)?),
            Long("bare") => furnish = false,
            Value(value) if path.is_none() => path = Some(PathBuf::from(value)),
            other => return Err(misused("format", other.unexpected())),
        }
    }
    let path = path.ok_or_else(|| misused("format", "'format' takes the name of an image"))?;
    let least = if furnish { FURNISHED_MIN } else { BARE_MIN };
    let bytes = size_text.map_or(Ok(DEFAULT_SIZE), |text| {
        size(&text, least).map_err(|good| misused("format", format!("--disk-size cannot be '{text}': {good}")))
    })?;
    if path.exists() {
        bail!(taken(&path));
    }
    possible(&path)?;
    let programs = if furnish { Some(build::programs()?) } else { None };
    create(&path, bytes, programs.as_ref())?;
    Ok(ExitCode::SUCCESS)
}

/// Makes an image with the programs, if there are any.
///
/// # Errors
/// Something has the name, or the image cannot be made.
pub fn create(path: &Path, bytes: u64, programs: Option<&Programs>) -> Result<()> {
    if !finish(make(path, bytes, programs)?, path)? {
        bail!(taken(path));
    }
    Ok(())
}

/// Makes an image for a run, which has its lock before the image has its name; or makes none, because something has come to have the name.
pub fn create_locked(path: &Path, bytes: u64, programs: &Programs) -> Result<Option<ImageLock>> {
    let mut new = make(path, bytes, Some(programs))?;
    let lock = lock_file(path, new.file().try_clone()?)?;
    Ok(finish(new, path)?.then_some(lock))
}

/// Makes an image, whole but for its name.
fn make(path: &Path, bytes: u64, programs: Option<&Programs>) -> Result<NewFile> {
    path.file_name()
        .with_context(|| format!("'{}' is not a file name", path.display()))?;
    possible(path)?;
    let cannot = || format!("cannot make {}", path.display());
    let mut new = NewFile::begin(path).with_context(cannot)?;
    furnish(new.file().try_clone().with_context(cannot)?, path, bytes, programs)?;
    Ok(new)
}

/// Gives an image its name; tells whether the name was free.
fn finish(new: NewFile, path: &Path) -> Result<bool> {
    match new.finish() {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        named => named
            .map(|()| true)
            .with_context(|| format!("cannot make {}", path.display())),
    }
}

/// Why no image is made where something is.
fn taken(path: &Path) -> String {
    format!("{} exists; remove it first if you mean it", path.display())
}

/// Whether a disk image is there, or can be made.
pub fn possible(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) {
        bail!("cannot make the disk image {}: its folder is not there", path.display());
    }
    require_image_file(path)
}

/// Makes the image in a new file; complaints name the image.
fn furnish(file: File, path: &Path, bytes: u64, programs: Option<&Programs>) -> Result<()> {
    let mut volume = Volume::create(file, path, bytes)?;
    let clist = make_root_clist(&mut volume)?;
    let directory = make_root_directory(&mut volume)?;
    tree::change_root_clist(&mut volume, |root| {
        root.insert(clist).and_then(|()| root.insert(directory))
    })?;
    name_root_clist(&mut volume, clist)?;
    if let Some(programs) = programs {
        put_back(&mut volume, programs)?;
        make_log(&mut volume)?;
    }
    volume.commit()
}

/// Enters programs, those that are on the image already as they stand. A name that leads to something is left to it: to what the user gave it, or
/// to an older program, which the next start replaces. Nothing is deleted.
pub fn put_back(volume: &mut Volume, programs: &Programs) -> Result<()> {
    let (mut taken, _) = tree::entries(volume, ROOT_DIRECTORY, "")?;
    taken.retain(|named| volume.object(named.capability.address).is_some());
    let mut old: Vec<_> = volume.objects();
    old.retain(|record| is_installed(record) && record.base != FIRST_PROGRAM);
    for (index, (name, file)) in programs.iter().enumerate() {
        if index > 0 && taken.iter().any(|named| named.path == name.as_str()) {
            continue;
        }
        let image = lay_out(name, file)?;
        let found = if index == 0 {
            volume.object(FIRST_PROGRAM)
        } else {
            let mut current = None;
            for (at, record) in old.iter().enumerate() {
                if difference(volume, record.base, &image)?.is_none() {
                    current = Some(at);
                    break;
                }
            }
            current.map(|at| old.swap_remove(at))
        };
        let capability = match found.as_ref().and_then(owner) {
            Some(capability) => capability,
            None if index == 0 => put_image(volume, FIRST_PROGRAM, &image, INSTALLED)?,
            None => {
                let base = volume.free_address();
                put_image(volume, base, &image, INSTALLED)?
            }
        };
        enter(volume, name, Kind::Program, capability, image.bytes.len() as u64)?;
    }
    Ok(())
}

/// Whether an object holds a program that `gond` installed, and may replace.
pub fn is_installed(record: &ObjectRecord) -> bool {
    record.tag == INSTALLED
}

/// The owner capability of an object.
pub fn owner(record: &ObjectRecord) -> Option<Capability> {
    let is_owner = |&&(_, rights): &&(u64, u8)| rights == Rights::OWNER.bits();
    let (password, _) = record.capabilities.iter().find(is_owner)?;
    Some(Capability {
        address: record.base,
        password: *password,
    })
}

/// Makes the root Clist, empty.
pub fn make_root_clist(volume: &mut Volume) -> Result<Capability> {
    make_root(volume, ROOT_CLIST, |bytes| {
        Clist::format(bytes).map(drop).map_err(Into::into)
    })
}

/// Makes the root directory, empty.
pub fn make_root_directory(volume: &mut Volume) -> Result<Capability> {
    make_root(volume, ROOT_DIRECTORY, |bytes| {
        Directory::format_zeroed(bytes).map(drop).map_err(Into::into)
    })
}

/// Makes an empty object for the system's log, which the shell fills.
fn make_log(volume: &mut Volume) -> Result<()> {
    let capability = Capability {
        address: volume.free_address(),
        password: volume.password(),
    };
    volume.put(&new_record(
        capability.address,
        LOG_BYTES / PAGE,
        capability.password,
        0,
    ))?;
    enter(volume, names::SYSTEM_LOG, Kind::Data, capability, 0)
}

/// Gives the root Clist its name.
pub fn name_root_clist(volume: &mut Volume, clist: Capability) -> Result<()> {
    let entry = Entry {
        name: "root-clist",
        kind: Kind::Clist,
        capability: clist,
        word: 0,
    };
    tree::change_directory(volume, ROOT_DIRECTORY, |root| root.replace(&entry))
}

/// The objects without which the system does not start, each with what it is.
const STARTED_FROM: [(u64, &str); 3] = [
    (ROOT_CLIST, "root Clist"),
    (ROOT_DIRECTORY, "root directory"),
    (FIRST_PROGRAM, "first program"),
];

/// Those of them that an image has not.
pub fn missing(volume: &Volume) -> Vec<(u64, &'static str)> {
    STARTED_FROM
        .into_iter()
        .filter(|(base, _)| volume.object(*base).is_none())
        .collect()
}

/// Makes one of the two root objects and formats it.
fn make_root(volume: &mut Volume, base: u64, format: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Capability> {
    let capability = Capability {
        address: base,
        password: volume.password(),
    };
    volume.put(&new_record(base, ROOT_BYTES / PAGE, capability.password, 0))?;
    let mut bytes = vec![0; ROOT_BYTES as usize];
    format(&mut bytes)?;
    tree::put_whole(volume, base, &bytes)?;
    Ok(capability)
}

/// The record of a persistent object with one owner capability.
pub fn new_record(base: u64, pages: u64, password: u64, tag: u64) -> ObjectRecord {
    let now = now_ns();
    ObjectRecord {
        base,
        pages,
        flags: OBJECT_PERSISTENT,
        created_ns: now,
        modified_ns: now,
        tag,
        capabilities: vec![(password, Rights::OWNER.bits())],
        ..ObjectRecord::default()
    }
}

/// Enters an object in the root directory and its owner capability in the root Clist.
pub fn enter(volume: &mut Volume, name: &str, kind: Kind, capability: Capability, word: u64) -> Result<()> {
    tree::change_root_clist(volume, |clist| {
        // Those of objects that were here before are nobody's.
        let named = clist.view().contains(capability);
        if !named {
            clist.remove_all(capability.address);
        }
        clist.insert(capability)
    })?;
    let (directory, name) = tree::split(volume, name)?;
    let entry = Entry {
        name: &name,
        kind,
        capability,
        word,
    };
    tree::change_directory(volume, directory, |directory| directory.replace(&entry))
}

fn lay_out(name: &str, file: &Path) -> Result<Image> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    linker::layout(&bytes).with_context(|| format!("the program '{name}' ({})", file.display()))
}

/// Puts a program image at `base`.
pub fn put_image(volume: &mut Volume, base: u64, image: &Image, tag: u64) -> Result<Capability> {
    let capability = Capability {
        address: base,
        password: volume.password(),
    };
    volume.put(&new_record(base, image.page_count() as u64, capability.password, tag))?;
    write_image(volume, base, image)?;
    Ok(capability)
}

fn limits(rights: Rights) -> PageFlags {
    PageFlags::from_bits_retain(u16::from(rights.bits()))
}

fn write_image(volume: &mut Volume, base: u64, image: &Image) -> Result<()> {
    for (page, (content, rights)) in image.pages().enumerate() {
        let content: &Block = content.try_into().context("a page has 4096 bytes")?;
        if content.iter().any(|&byte| byte != 0) {
            volume.write(base, page as u64, content, limits(rights))?;
        } else {
            volume.set_limits(base, page as u64, limits(rights))?;
        }
    }
    Ok(())
}

/// In what way an object is not the image that it should be.
enum Difference {
    /// It is another one.
    Other,
    /// One of its pages cannot be read.
    Damaged(Damage),
}

/// Compares the object at `base` with an image.
fn difference(volume: &mut Volume, base: u64, image: &Image) -> Result<Option<Difference>> {
    let pages = volume.object(base).map(|record| record.pages);
    let mut found = (pages != Some(image.page_count() as u64)).then_some(Difference::Other);
    for (index, (content, rights)) in image.pages().enumerate() {
        let page = match volume.page(base, index as u64) {
            Ok(page) => page,
            Err(error) => return Ok(Some(Difference::Damaged(error.downcast()?))),
        };
        let same = match &page.content {
            Some(stored) => stored[..] == *content,
            None => content.iter().all(|&byte| byte == 0),
        };
        if !same || page.limits.unwrap_or(NO_LIMITS) != limits(rights) {
            found = Some(Difference::Other);
        }
    }
    Ok(found)
}

/// The change that brings one program on an existing image up to date.
enum Step {
    /// Enter it as new.
    Install,
    /// Put the new image where the old one is.
    InPlace,
    /// Enter a new object, delete this one.
    Replace(Capability),
}

/// A program on an image that is another one than that of the sources.
struct Stale<'a> {
    name: &'a str,
    image: Image,
    step: Step,
    /// Whether it is another one, or damaged.
    why: Difference,
}

/// Brings the programs on an image up to date, if that is needed and safe: damaged ones, too. Those for which the disk has no room stay, and the system starts with
/// them: else nothing could be removed from a disk that is full.
///
/// Tells whether a power cut was there that the start has still to see to.
///
/// # Errors
/// Nothing can be started from the image.
pub fn refresh(lock: &ImageLock, programs: &Programs) -> Result<bool> {
    let mut volume = Volume::open(lock.path())?;
    let was_cut = !volume.report().clean;
    let shown = lock.path().display();
    let makes_anew = format!("'./gond mend {shown}' makes it anew from what is left");
    if let Some((_, what)) = missing(&volume).first() {
        bail!("{shown} has no {what}, and the system cannot start: {makes_anew}");
    }
    for (base, what) in STARTED_FROM {
        // The first program is put there anew below.
        let damage = (base != FIRST_PROGRAM)
            .then(|| tree::left(&mut volume, base))
            .transpose()?;
        if let Some(damage) = damage.and_then(|(_, damaged)| damaged.into_iter().next()) {
            bail!("{damage}. It is the {what}, without which the system cannot start: {makes_anew}");
        }
    }
    let roots = tree::entries(&mut volume, ROOT_DIRECTORY, "").and(tree::capabilities(&mut volume, ROOT_CLIST));
    if let Err(error) = roots {
        display::complain(&format!("{shown}: {error:#}; {makes_anew}"));
        return Ok(was_cut);
    }
    let mut stale = Vec::new();
    for (index, (name, file)) in programs.iter().enumerate() {
        let image = lay_out(name, file)?;
        if let Some((step, why)) = plan(&mut volume, index, name, &image)? {
            stale.push(Stale { name, image, step, why });
        }
    }
    if stale.is_empty() {
        return Ok(was_cut);
    }
    if was_cut {
        display::note(&format!(
            "{shown} was not powered off cleanly; nothing that was stable is lost"
        ));
        tell_undone(&mut volume);
    }
    drop(volume);
    let list = |names: &[&str]| names.join(", ");
    let mut done: Vec<&str> = stale.iter().map(|one| one.name).collect();
    if replace(lock, &stale).is_err() {
        // One after the other needs room for one alone.
        let mut left = Vec::new();
        let mut why = None;
        for one in &stale {
            if let Err(error) = replace(lock, core::slice::from_ref(one)) {
                left.push(one.name);
                why = Some(error);
            }
        }
        // An attempt that failed leaves no clean end behind.
        replace(lock, &[])?;
        done.retain(|name| !left.contains(name));
        if let Some(error) = why {
            display::complain(&format!(
                "these programs on {shown} stay the old ones: {} ({error:#}). The next run tries again",
                list(&left)
            ));
        }
    }
    for one in stale.iter().filter(|one| done.contains(&one.name)) {
        if let Difference::Damaged(damage) = &one.why {
            display::complain(&format!(
                "{damage}. It was the program '{}', which was put there anew",
                one.name
            ));
        }
    }
    if !done.is_empty() {
        display::note(&format!("brought up to date on {shown}: {}", list(&done)));
    }
    Ok(false)
}

/// Tells what a power cut has undone, as the shell's greeting does: for those that no shell greets. The acts on names are brought to their end in
/// memory alone.
pub fn tell_undone(volume: &mut Volume) {
    if volume.report().tail.is_some() {
        display::complain("the power had failed during a sync, which is undone; what was stable before is there");
    }
    // A directory that cannot be read is told by others.
    match tree::recover(volume).unwrap_or(0) {
        0 => {}
        1 => display::complain("1 name is gone that was being made or removed when the power failed"),
        names => display::complain(&format!(
            "{names} names are gone that were being made or removed when the power failed"
        )),
    }
}

/// Replaces programs, all or none, and gives the blocks of the old ones back.
fn replace(lock: &ImageLock, stale: &[Stale<'_>]) -> Result<()> {
    let mut volume = Volume::open_for_change(lock)?;
    // The programs may be older than the kernel by more than it still understands: they cannot wait for the next start.
    tree::recover(&mut volume)?;
    for one in stale {
        carry_out(&mut volume, one.name, &one.image, &one.step)
            .with_context(|| format!("cannot replace the program '{}'", one.name))?;
    }
    (0..COMMITS_TO_FREE).try_for_each(|_| volume.commit())
}

fn plan(volume: &mut Volume, index: usize, name: &str, image: &Image) -> Result<Option<(Step, Difference)>> {
    if index == 0 {
        return Ok(difference(volume, FIRST_PROGRAM, image)?.map(|why| (Step::InPlace, why)));
    }
    let (all, _) = tree::entries(volume, ROOT_DIRECTORY, "")?;
    let Some(named) = all.into_iter().find(|named| named.path == name) else {
        return Ok(Some((Step::Install, Difference::Other)));
    };
    let base = named.capability.address;
    let ours = volume.object(base).as_ref().is_some_and(is_installed);
    // A name that the user gave to something else is the user's.
    if !ours {
        return Ok(None);
    }
    Ok(difference(volume, base, image)?.map(|why| (Step::Replace(named.capability), why)))
}

fn carry_out(volume: &mut Volume, name: &str, image: &Image, step: &Step) -> Result<()> {
    match step {
        Step::InPlace => {
            let Some(mut record) = volume.object(FIRST_PROGRAM) else {
                bail!("there is no object at {FIRST_PROGRAM:#x}")
            };
            // Where a map node was damaged, pages behind the end are marked as lost, too: up to the end of the last slot nobody else has any.
            record.pages = record.pages.next_multiple_of(SLOT / PAGE);
            volume.put(&record)?;
            volume.discard(FIRST_PROGRAM, 0, record.pages)?;
            record.pages = image.page_count() as u64;
            record.modified_ns = now_ns();
            volume.put(&record)?;
            write_image(volume, FIRST_PROGRAM, image)?;
            // Its name tells how long the program is.
            let (all, _) = tree::entries(volume, ROOT_DIRECTORY, "")?;
            let named = all.into_iter().find(|named| named.capability.address == FIRST_PROGRAM);
            named.map_or(Ok(()), |named| {
                enter(
                    volume,
                    &named.path,
                    Kind::Program,
                    named.capability,
                    image.bytes.len() as u64,
                )
            })
        }
        Step::Install | Step::Replace(_) => {
            let base = volume.free_address();
            let capability = put_image(volume, base, image, INSTALLED)?;
            enter(volume, name, Kind::Program, capability, image.bytes.len() as u64)?;
            if let Step::Replace(old) = step {
                volume.delete(old.address)?;
                tree::change_root_clist(volume, |clist| {
                    clist.remove_all(old.address);
                    Ok(())
                })?;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::lock_image;
    use crate::place::Scratch;

    /// Two first runs of one image at once: the one that is behind leaves the image of the other alone, which is in use from its first moment.
    #[test]
    fn an_image_that_has_come_meanwhile_stays() {
        let scratch = Scratch::make().unwrap();
        let path = scratch.file("a.img");
        let behind = make(&path, 16 << 20, None).unwrap();
        let lock = create_locked(&path, 16 << 20, &Vec::new()).unwrap().unwrap();
        let content = std::fs::read(&path).unwrap();
        assert!(!finish(behind, &path).unwrap());
        assert!(create_locked(&path, 16 << 20, &Vec::new()).unwrap().is_none());
        let refused = create(&path, 16 << 20, None).unwrap_err().to_string();
        assert!(
            refused.ends_with("a.img exists; remove it first if you mean it"),
            "{refused}"
        );
        assert!(lock_image(&path).is_err(), "its maker has the lock");
        assert!(std::fs::read(&path).unwrap() == content);
        drop(lock);
        assert!(lock_image(&path).is_ok());
        assert_eq!(std::fs::read_dir(scratch.file(".")).unwrap().count(), 1);
    }
}
