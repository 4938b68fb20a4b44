//! `gond receive`: makes the state of an image that of a stream from standard input.
//!
//! A whole state goes to a new file, which has no name before it is whole. A difference is kept in memory, and one checkpoint makes it durable with the
//! snapshot that it leads to, when the end of the stream has shown that nothing is missing: the image is as it was or as the sender's is.

use crate::arguments::{self, misused, show_size};
use crate::disk::{ImageLock, lock_image, require_image_file};
use crate::display::Job;
use crate::image;
use crate::place::NewFile;
use crate::tree;
use crate::volume::{self, Volume};
use abi::address::{PAGE, ROOT_CLIST, ROOT_DIRECTORY};
use anyhow::{Context, Result, anyhow, bail};
use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::{Identity, Named, SnapshotName, Source, StreamError, StreamHead, StreamItem, StreamReader};

/// Pages of a whole state that wait in memory for the next checkpoint, at most.
const PENDING_MAX: usize = 8192;

/// Runs `gond receive`.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    use lexopt::prelude::*;
    let usage = |error: lexopt::Error| misused("receive", error);
    let mut parser = lexopt::Parser::from_args(arguments);
    let (mut path, mut name, mut size) = (None, None, None);
    while let Some(argument) = parser.next().map_err(usage)? {
        match argument {
            Long("disk-size") => {
                let text = parser.value().map_err(usage)?.string().map_err(usage)?;
                let bytes = image::size(&text, image::BARE_MIN);
                size =
                    Some(bytes.map_err(|good| misused("receive", format!("--disk-size cannot be '{text}': {good}")))?);
            }
            Value(word) if path.is_none() => path = Some(PathBuf::from(word)),
            Value(word) if name.is_none() => name = Some(arguments::snapshot("receive", &word)?),
            other => return Err(misused("receive", other.unexpected())),
        }
    }
    let path = path.ok_or_else(|| misused("receive", "'receive' takes IMAGE, and perhaps NAME"))?;
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(misused(
            "receive",
            "a stream comes from a file ('< FILE') or a program ('... |')",
        ));
    }
    image::possible(&path)?;
    let (path, target) = receive(Input::of(input.lock()), &path, name, size)?;
    match target {
        Some((named, _)) => println!("{} is at '{}' now", path.display(), named.name),
        None => println!("{} has the state that was sent; it has no name", path.display()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Where a state went, and the snapshot that it is there.
type Received = (PathBuf, Option<(Named, u64)>);

/// Takes a stream: makes an image, or changes one.
fn receive(source: impl Source, path: &Path, name: Option<SnapshotName>, size: Option<u64>) -> Result<Received> {
    let stream = StreamReader::new(source).map_err(refused)?;
    if stream.head().base.is_none() {
        return take_whole(stream, path, name, size);
    }
    if size.is_some() {
        return Err(misused(
            "receive",
            "'--disk-size' is for a whole state: './gond grow IMAGE SIZE' makes an image larger",
        ));
    }
    take_difference(stream, path, name)
}

fn refused(error: StreamError) -> anyhow::Error {
    let advice = match error {
        StreamError::Foreign | StreamError::Newer(_) => "",
        _ => "; send it again",
    };
    anyhow!("nothing was changed: {error}{advice}")
}

/// Standard input.
struct Input<R>(R);

impl<R: Read> Input<R> {
    fn of(reader: R) -> Input<std::io::BufReader<R>> {
        Input(std::io::BufReader::with_capacity(1 << 18, reader))
    }
}

impl<R: Read> Source for Input<R> {
    fn fill(&mut self, bytes: &mut [u8]) -> usize {
        let mut count = 0;
        while count < bytes.len() {
            match self.0.read(&mut bytes[count..]) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // An error of the pipe ends the stream: the reader then finds it cut.
                Err(_) => break,
            }
        }
        count
    }
}

/// The snapshot that a stream leads to: with the name that the user gives, or its own.
fn target(head: &StreamHead, name: Option<SnapshotName>) -> Option<(Named, u64)> {
    match (head.target, name) {
        (Some((named, time)), name) => Some((
            Named {
                name: name.unwrap_or(named.name),
                ..named
            },
            time,
        )),
        // It is one from now on, and was none where it comes from.
        (None, Some(name)) => Some((
            Named {
                name,
                identity: Identity::NONE,
            },
            volume::now_ns(),
        )),
        (None, None) => None,
    }
}

fn require_width(head: &StreamHead) -> Result<()> {
    if head.address_bits != abi::address::ADDRESS_BITS {
        bail!(
            "nothing was changed: the stream is of a system with addresses of {} bits, and this one has {}",
            head.address_bits,
            abi::address::ADDRESS_BITS
        );
    }
    Ok(())
}

/// How the pages of an object are taken.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Commits {
    /// All at the end.
    One,
    /// Whenever many wait: nobody sees them before the end.
    Many,
}

/// Makes the changes that a stream tells of, in memory or in a file without a name.
fn apply<S: Source>(stream: &mut StreamReader<S>, volume: &mut Volume, commits: Commits) -> Result<()> {
    let mut job = Job::begin("receiving");
    let (mut base, mut bytes) = (0, 0);
    loop {
        match stream.read().map_err(refused)? {
            StreamItem::Delete(gone) => {
                if volume.object(gone).is_none() {
                    return Err(refused(StreamError::Nonsense));
                }
                volume.delete(gone)?;
            }
            StreamItem::Object(record) => {
                base = record.base;
                // Another object at the same address has none of the pages of the one before.
                if let Some(old) = volume.object(base).filter(|old| old.birth != record.birth) {
                    volume.discard(base, 0, old.pages)?;
                }
                volume.put(&record)?;
            }
            StreamItem::Page(page, limits, content) => {
                volume.write(base, page, content.unwrap_or(&[0; PAGE as usize]), limits)?;
                bytes += PAGE;
            }
            StreamItem::Limit(page, limits) => {
                volume.discard(base, page, 1)?;
                volume.set_limits(base, page, limits)?;
            }
            StreamItem::Clear(first, end) => volume.discard(base, first, end - first)?,
            StreamItem::End => break,
        }
        if commits == Commits::Many && volume.pending() >= PENDING_MAX {
            volume.commit()?;
        }
        job.step_on_terminal(&show_size(bytes));
    }
    let head = *stream.head();
    let (store, _) = volume.parts();
    store.raise_births(head.births);
    store.raise_high_water(head.high_water);
    let objects = volume.objects().len() as u64;
    if objects != head.objects {
        bail!(
            "nothing was changed: the stream leads to {} objects, and here there would be {objects}",
            head.objects
        );
    }
    Ok(())
}

/// Makes all of it durable.
fn finish(volume: &mut Volume, target: Option<(Named, u64)>) -> Result<()> {
    match target {
        Some((named, time)) => volume.keep_received(named.name, time, named.identity),
        None => volume.commit(),
    }
}

fn take_whole<S: Source>(
    mut stream: StreamReader<S>,
    path: &Path,
    name: Option<SnapshotName>,
    size: Option<u64>,
) -> Result<Received> {
    let head = *stream.head();
    require_width(&head)?;
    let mut bytes = size.unwrap_or(head.blocks * PAGE);
    // The file itself, not a link to it, is what is replaced.
    let path = &path.canonicalize().unwrap_or_else(|_| path.into());
    let lock: Option<ImageLock> = if path.exists() {
        let lock = lock_image(path)?;
        require_fresh(path)?;
        if size.is_none() {
            bytes = std::fs::metadata(path)?.len().max(image::BARE_MIN);
        }
        Some(lock)
    } else {
        None
    };
    let cannot = || format!("cannot make {}", path.display());
    let mut new = NewFile::begin(path).with_context(cannot)?;
    let mut volume = Volume::create(new.file().try_clone().with_context(cannot)?, path, bytes)?;
    apply(&mut stream, &mut volume, Commits::Many)
        .with_context(|| format!("{} was not made: the stream was not taken", path.display()))?;
    let target = target(&head, name);
    finish(&mut volume, target)?;
    drop(volume);
    if lock.is_some() {
        new.replace().with_context(cannot)?;
    } else {
        match new.finish() {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                bail!(
                    "nothing was changed: {} was made meanwhile by somebody else",
                    path.display()
                )
            }
            named => named.with_context(cannot)?,
        }
    }
    Ok((path.into(), target))
}

/// Refuses to replace an image on which there is more than `gond format` puts there.
fn require_fresh(path: &Path) -> Result<()> {
    require_image_file(path)?;
    let mut volume = Volume::open(path)?;
    let is_made = |base: u64| base == ROOT_CLIST || base == ROOT_DIRECTORY;
    let others = volume.objects();
    let is_fresh = volume.snapshots().is_empty()
        && others
            .iter()
            .all(|record| is_made(record.base) || image::is_installed(record))
        && tree::entries(&mut volume, ROOT_DIRECTORY, "").is_ok();
    if is_fresh {
        return Ok(());
    }
    bail!(
        "nothing was changed: the stream is a whole state, and {} has objects or snapshots of its own; name an image that is not there yet",
        path.display()
    )
}

fn take_difference<S: Source>(
    mut stream: StreamReader<S>,
    path: &Path,
    name: Option<SnapshotName>,
) -> Result<Received> {
    let head = *stream.head();
    require_width(&head)?;
    let base = head.base.context("a difference has a base")?;
    let what = path.display();
    if !path.exists() {
        bail!(
            "nothing was changed: {what} is not there, and the stream is the difference from snapshot '{}'; send the whole of that first",
            base.name
        );
    }
    let lock = lock_image(path)?;
    let there = Volume::open(path)?.snapshots();
    let Some(found) = there.iter().find(|one| one.identity == base.identity) else {
        let why = if there.iter().any(|one| one.name == base.name) {
            "its snapshot of that name is another one"
        } else {
            "it has no such snapshot"
        };
        bail!(
            "nothing was changed: the stream is the difference from snapshot '{}', and {what} cannot take it: {why}. \
             './gond snapshot {what} ls' lists what it has; send a difference from one that both images have, or a whole state to a new image",
            base.name
        );
    };
    let target = target(&head, name);
    if let Some((named, _)) = target {
        if let Some(other) = there.iter().find(|one| one.identity == named.identity) {
            bail!(
                "nothing was changed: {what} has that snapshot already, as '{}'",
                other.name
            );
        }
        if there.iter().any(|one| one.name == named.name) {
            bail!(
                "nothing was changed: {what} has another snapshot '{0}': './gond receive {what} NAME' gives this one another name",
                named.name
            );
        }
    }
    let mut volume = Volume::open_for_change(&lock)?;
    let (store, _) = volume.parts();
    if !store.is_at(&found.name) {
        let here = found.name;
        bail!(
            "nothing was changed: {what} is not as it was in snapshot '{here}' any more, and the stream is the difference from that. \
             './gond snapshot {what} rollback {here} --keep NAME' goes back to it and keeps what is there now as NAME; then receive again"
        );
    }
    apply(&mut stream, &mut volume, Commits::One)?;
    finish(&mut volume, target)?;
    Ok((path.into(), target))
}

#[cfg(test)]
mod tests;
