//! `gond grow`, and the growth of an image that `gond run --disk-size` asks for: the file becomes longer, and the store takes what is new.

use crate::arguments::{misused, operands, show_size, text};
use crate::disk::{HostWorld, ImageLock, lock_image};
use crate::display::Job;
use crate::image;
use crate::machine;
use crate::monitor::Monitor;
use crate::volume::Volume;
use abi::address::PAGE;
use anyhow::{Context, Result, anyhow};
use serde_json::json;
use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::ExitCode;
use store::{BadSize, GrowError, MountError, Store};

/// Runs `gond grow`.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    let given = operands("grow", arguments, &["IMAGE", "SIZE"], &[])?;
    let (path, size) = (Path::new(&given.values[0]), text("grow", &given.values[1])?);
    let bytes = image::size(&size, image::BARE_MIN)
        .map_err(|good| misused("grow", format!("the size cannot be '{size}': {good}")))?;
    let lock = match lock_image(path) {
        Ok(lock) => lock,
        Err(in_use) => {
            return match Monitor::of(path) {
                Some(monitor) => grow_running(monitor?, path, bytes),
                None => Err(in_use),
            };
        }
    };
    match grow(&lock, bytes)? {
        Some(before) => println!(
            "{} had {} and has {} now",
            path.display(),
            show_size(before),
            show_size(bytes)
        ),
        None => println!("{} has {} already", path.display(), show_size(bytes)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the disk of a running system larger, which takes what is new when somebody there says so.
fn grow_running(mut monitor: Monitor, path: &Path, bytes: u64) -> Result<ExitCode> {
    let has = std::fs::metadata(path)?.len();
    if bytes < has {
        return Err(too_small(path, has, bytes).into());
    }
    monitor
        .ask(
            "block_resize",
            &json!({ "node-name": machine::DISK_NODE, "size": bytes }),
        )
        .with_context(|| {
            format!(
                "the disk of the system that runs on {} was not made larger",
                path.display()
            )
        })?;
    println!(
        "{} is in use: its disk has {} now, and the system that runs on it takes what is new with 'disk grow' in its shell",
        path.display(),
        show_size(bytes)
    );
    Ok(ExitCode::SUCCESS)
}

/// Makes an image larger, and gives the size of before; `None` if it has the size.
///
/// # Errors
/// The size cannot be, or the image cannot be written to: its state is as before, and so is its size unless the complaint says otherwise.
pub fn grow(lock: &ImageLock, bytes: u64) -> Result<Option<u64>> {
    let path = lock.path();
    let total = bytes / PAGE;
    let mut volume = Volume::open(path)?;
    let before = volume.parts().0.stats().blocks;
    if before == total {
        return Ok(None);
    }
    if total < before {
        return Err(too_small(path, before * PAGE, bytes).into());
    }
    // The growth replays the journal, so no later start can tell the user what a power cut has undone.
    image::tell_undone(&mut volume);
    drop(volume);
    let _job = Job::begin("growing the image");
    let file = OpenOptions::new().write(true).open(path);
    let file = file.with_context(|| format!("cannot write the disk image {}", path.display()))?;
    let length = file.metadata()?.len();
    // A store does not look behind its end, so a longer file is the same image.
    if length < total * PAGE {
        file.set_len(total * PAGE)
            .with_context(|| format!("cannot make {} as long as {}", path.display(), show_size(bytes)))?;
    }
    let grown = Store::grow(&mut HostWorld::open_for_change(lock)?, total);
    let now = || Volume::open(path).map(|mut volume| volume.parts().0.stats().blocks);
    match grown {
        Ok(before) => Ok(Some(before * PAGE)),
        Err(error) => {
            if length < total * PAGE && now().is_ok_and(|now| now == before) {
                let _ = file.set_len(length);
            }
            Err(refusal(path, before, error))
        }
    }
}

/// A size that the image cannot have, though nothing is wrong with it.
#[derive(Debug)]
struct Unfit(String);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Unfit {}

fn too_small(path: &Path, has: u64, wanted: u64) -> Unfit {
    Unfit(format!(
        "{0} has {1}, and an image does not become smaller: it stays as it is. A smaller one is made by './gond send {0} | ./gond receive NEW --disk-size {2}'",
        path.display(),
        show_size(has),
        show_size(wanted).replace(' ', "")
    ))
}

fn refusal(path: &Path, before: u64, error: GrowError) -> anyhow::Error {
    let what = path.display();
    match error {
        GrowError::Size(BadSize::Smaller(blocks)) => too_small(path, blocks * PAGE, 0).into(),
        GrowError::Size(BadSize::TooLittle(blocks)) => Unfit(format!(
            "{what} cannot grow by so little, for what tells of the new blocks has no room in them: {} bytes is the least above its {}",
            blocks * PAGE,
            show_size(before * PAGE)
        ))
        .into(),
        GrowError::Size(BadSize::TooLarge(blocks)) => anyhow!("an image has {} at most", show_size(blocks * PAGE)),
        GrowError::Mount(MountError::Loss(loss)) => {
            anyhow!(
                "{what} was not grown: {}; './gond check {what}' tells more",
                MountError::Loss(loss)
            )
        }
        GrowError::Mount(error) => {
            anyhow!("{what} was not grown, and has the size that it had, or the new one: {error}")
        }
    }
}

/// What `gond run --disk-size` does with an image that is there: one that cannot have the size is used as it is.
pub fn at_start(lock: &ImageLock, bytes: u64) -> Result<()> {
    let told = match grow(lock, bytes) {
        Ok(None) => return Ok(()),
        Ok(Some(before)) => format!(
            "{} has grown from {} to {}",
            lock.path().display(),
            show_size(before),
            show_size(bytes)
        ),
        Err(error) if error.is::<Unfit>() => error.to_string(),
        Err(error) => return Err(error),
    };
    crate::display::note(&told);
    Ok(())
}
