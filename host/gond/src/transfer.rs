//! `gond import` and `gond export`: files to objects and back, byte for byte.
//!
//! A large file is brought over in several commits; its name is entered with the last one, so that an
//! interrupted import leaves no half file under the name, only room on the disk that `gond check` tells of.

use crate::arguments::{self, show_size, text};
use crate::disk::{ImageLock, lock_image};
use crate::display::{self, Job};
use crate::place::NewFile;
use crate::volume::{Block, Volume};
use crate::{image, place, tree};
use abi::address::{OBJECT_BYTES_MAX, OBJECTS_END, PAGE, pages_for};
use abi::layout::Capability;
use anyhow::{Context, Result, bail};
use names::{Kind, Quoted};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use store::BLOCK;

/// Pages that are kept in memory before they are committed.
const BATCH: usize = 8192;
/// Bytes of the largest file that is read as a program: ten times what most are with their debug information.
const PROGRAM_FILE_MAX: u64 = 1 << 30;

/// Runs `gond import`.
pub fn import_command(arguments: Vec<OsString>) -> Result<ExitCode> {
    let operands = arguments::operands("import", arguments, &["IMAGE", "FILE", "NAME"], &["program"])?;
    let (image, file) = (Path::new(&operands.values[0]), Path::new(&operands.values[1]));
    let name = text("import", &operands.values[2])?;
    if let Some(what) = place::irregular(file) {
        bail!(
            "cannot import {}: it is {what}, not a regular file; write its content to a file first",
            file.display()
        );
    }
    let lock = lock_image(image)?;
    // Requests that cannot work are refused before the image is opened for writing.
    let mut volume = Volume::open(image)?;
    let (_, last) = tree::split(&mut volume, &name)?;
    if let Ok(found) = tree::find(&mut volume, &name) {
        let way_out = if abi::address::system_objects().contains(&found.capability.address) {
            "the system starts from it, so take another name".into()
        } else {
            let force = if found.kind == Kind::Data { "" } else { "--force " };
            let remove = match found.kind {
                Kind::Module => format!("module remove {}", Quoted(&last)),
                _ => format!("rm {force}{}", Quoted(&name)),
            };
            format!("remove it in the system ('{remove}'), or take another name")
        };
        bail!("there is a '{last}' already: {way_out}");
    }
    drop(volume);
    if operands.has("program") {
        import_program(&lock, file, &name)?;
    } else {
        import_file(&lock, file, &name)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Enters a program's file under a name.
pub fn import_program(image: &ImageLock, file: &Path, name: &str) -> Result<()> {
    let long = std::fs::metadata(file).map_or(0, |found| found.len());
    if long > PROGRAM_FILE_MAX {
        bail!(
            "{} cannot be a program here: it has {}, and {} are the most; 'strip' makes a program's file smaller",
            file.display(),
            show_size(long),
            show_size(PROGRAM_FILE_MAX)
        );
    }
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let laid_out = linker::layout(&bytes).with_context(|| format!("{} cannot be a program here", file.display()))?;
    let mut volume = Volume::open_for_change(image)?;
    tree::recover(&mut volume)?;
    let base = volume.free_address();
    let size = laid_out.bytes.len() as u64;
    let capability = image::put_image(&mut volume, base, &laid_out, 0)
        .with_context(|| format!("cannot import {} of {}", file.display(), show_size(size)))?;
    image::enter(&mut volume, name, Kind::Program, capability, size)?;
    volume.commit()
}

/// Brings a file onto a disk under a name that is free.
///
/// # Errors
/// If the file cannot be read, or the disk has no room.
pub fn import_file(image: &ImageLock, path: &Path, name: &str) -> Result<()> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let bytes = file.metadata()?.len();
    if bytes == 0 {
        bail!("{} is empty, and an object has at least one byte", path.display());
    }
    if bytes > OBJECT_BYTES_MAX {
        bail!(
            "cannot import {}: it has {}, and one object has {} at most; 'split' makes several files of it",
            path.display(),
            show_size(bytes),
            show_size(OBJECT_BYTES_MAX)
        );
    }
    let mut volume = Volume::open_for_change(image)?;
    tree::recover(&mut volume)?;
    let base = volume.free_address();
    let pages = pages_for(bytes)
        .filter(|pages| base + pages * PAGE <= OBJECTS_END)
        .context("the file is too large")?;
    let capability = Capability {
        address: base,
        password: volume.password(),
    };
    let put = volume.put(&image::new_record(base, pages, capability.password, 0));
    if let Err(error) = put.and_then(|()| copy_in(&mut volume, &mut file, base, bytes)) {
        // Pages that were committed on the way are given back; the first error is the one to tell.
        let _ = volume.delete(base).and_then(|()| volume.commit());
        return Err(error.context(format!("cannot import {} of {}", path.display(), show_size(bytes))));
    }
    image::enter(&mut volume, name, Kind::Data, capability, bytes)?;
    volume.commit()?;
    if linker::elf::is_elf(&start_of(path)) {
        display::note("this is an ELF file, kept as data; to make it a program that the shell starts, use --program");
    }
    Ok(())
}

fn start_of(path: &Path) -> Vec<u8> {
    let mut start = Vec::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(64).read_to_end(&mut start);
    }
    start
}

fn copy_in(volume: &mut Volume, file: &mut File, base: u64, bytes: u64) -> Result<()> {
    let mut job = Job::begin("importing");
    let mut left = bytes;
    let mut page = 0;
    while left > 0 {
        let mut content: Block = [0; BLOCK];
        let part = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
        file.read_exact(&mut content[..part])
            .context("the file became shorter meanwhile")?;
        if content.iter().any(|&byte| byte != 0) {
            volume.write(base, page, &content, tree::NO_LIMITS)?;
        }
        left -= part as u64;
        page += 1;
        if volume.pending() >= BATCH {
            volume.commit()?;
            job.step(&format!("{} of {}", show_size(bytes - left), show_size(bytes)));
        }
    }
    Ok(())
}

/// Runs `gond export`.
pub fn export_command(arguments: Vec<OsString>) -> Result<ExitCode> {
    let operands = arguments::operands("export", arguments, &["IMAGE", "NAME", "FILE"], &["snapshot"])?;
    let name = text("export", &operands.values[1])?;
    let target = Path::new(&operands.values[2]);
    let mut volume = Volume::open_at(Path::new(&operands.values[0]), operands.snapshot.as_ref())?;
    let (base, bytes) = place_of(&mut volume, &name)?;
    let image = Path::new(&operands.values[0]);
    if target
        .canonicalize()
        .is_ok_and(|target| image.canonicalize().is_ok_and(|image| image == target))
    {
        bail!("{} is the image itself: give another file", target.display());
    }
    if target == Path::new("-") {
        to_stream(&mut volume, base, bytes, &mut std::io::stdout().lock()).context("cannot export")?;
        return Ok(ExitCode::SUCCESS);
    }
    let copied = replace(target, |file| to_file(&mut volume, base, bytes, file));
    copied.with_context(|| format!("cannot export to {}", target.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Where the content of an object stands, and how long it is. The object is given by its name, or by its address behind `0x`: so it can be had
/// though no directory can be read. A name that begins so can be told from it by `/`.
fn place_of(volume: &mut Volume, name: &str) -> Result<(u64, u64)> {
    let digits = name.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
    if let Some(Ok(base)) = digits {
        let record = volume
            .object(base)
            .with_context(|| format!("no object begins at {base:#x}; './gond ls IMAGE' lists all"))?;
        return Ok((base, record.pages.saturating_mul(PAGE)));
    }
    let named = tree::find(volume, name)?;
    let base = named.capability.address;
    let record = volume
        .object(base)
        .with_context(|| format!("'{name}' leads to {base:#x}, where there is no object"))?;
    Ok((base, named.content_bytes(&record)))
}

/// Makes a file, or replaces one when all of the new one is there: half a file under the right name would be taken for a whole one, and what is not
/// a file, such as a device or a link, is written through.
fn replace(target: &Path, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    let there = std::fs::symlink_metadata(target).ok();
    if there.is_some_and(|there| !there.is_file()) {
        return write(&mut File::create(target)?);
    }
    let mut new = NewFile::begin(target)?;
    write(new.file())?;
    Ok(new.replace()?)
}

/// Writes to what takes one byte behind the other.
fn to_stream(volume: &mut Volume, base: u64, bytes: u64, output: &mut dyn Write) -> Result<()> {
    const ZERO: Block = [0; BLOCK];
    copy_out(volume, base, bytes, |_, length, content| {
        output.write_all(content.unwrap_or(&ZERO[..length]))
    })?;
    Ok(output.flush()?)
}

/// Writes to a new file; pages that were never written are holes in it.
fn to_file(volume: &mut Volume, base: u64, bytes: u64, file: &mut File) -> Result<()> {
    if !file.metadata()?.is_file() {
        return to_stream(volume, base, bytes, file);
    }
    file.set_len(bytes)?;
    copy_out(volume, base, bytes, |at, _, content| {
        content.map_or(Ok(()), |content| file.write_all_at(content, at))
    })
}

/// Hands the content over page by page: where a page stands, its length, and its bytes unless it was never written.
fn copy_out(
    volume: &mut Volume,
    base: u64,
    bytes: u64,
    mut take: impl FnMut(u64, usize, Option<&[u8]>) -> std::io::Result<()>,
) -> Result<()> {
    let mut job = Job::begin("exporting");
    for page in 0..bytes.div_ceil(PAGE) {
        let at = page * PAGE;
        if page.is_multiple_of(256) {
            job.step(&format!("{} of {}", show_size(at), show_size(bytes)));
        }
        let length = usize::try_from(bytes - at).unwrap_or(BLOCK).min(BLOCK);
        let content = volume.page(base, page)?.content;
        take(at, length, content.as_ref().map(|content| &content[..length]))?;
    }
    Ok(())
}
