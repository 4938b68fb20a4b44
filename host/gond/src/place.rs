//! Where things are: the sources, what is built from them, and a folder for the moment.

use anyhow::{Context, Result, bail};
use rustix::fs::{AtFlags, CWD, OFlags};
use std::fs::{File, OpenOptions, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The root of the source tree: where this tool was built from, unless `GOND_ROOT` says otherwise.
pub fn root() -> Result<PathBuf> {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = std::env::var_os("GOND_ROOT").map_or_else(built, PathBuf::from);
    let root = root
        .canonicalize()
        .with_context(|| format!("there is no source tree at {}", root.display()))?;
    if root.join("kernel/linker.ld").is_file() && root.join("Cargo.toml").is_file() {
        return Ok(root);
    }
    bail!(
        "{} is not Gondwana's source tree: start the script ./gond that stands in it",
        root.display()
    )
}

/// The kind of a file that is no regular file. A caller asks this before opening the file, because opening a named pipe waits for its other end, perhaps
/// for ever.
pub fn irregular(path: &Path) -> Option<&'static str> {
    let kind = std::fs::metadata(path).ok()?.file_type();
    let kinds = [
        (kind.is_dir(), "a folder"),
        (kind.is_fifo(), "a named pipe"),
        (kind.is_socket(), "a socket"),
        (kind.is_char_device() || kind.is_block_device(), "a device"),
        (!kind.is_file(), "something else"),
    ];
    kinds.into_iter().find(|(is, _)| *is).map(|(_, what)| what)
}

/// A file that is being made, or will replace another: it has no name before it is whole, so that nothing of it is left where its maker is ended.
/// On a file system without such files it has another name until then, which a maker that is killed leaves behind.
pub struct NewFile {
    file: File,
    target: PathBuf,
    /// Its other name, where files without one cannot be made.
    name: Option<PathBuf>,
}

impl NewFile {
    /// Begins it. It may be read by those alone who may read the file that it replaces.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn begin(target: &Path) -> std::io::Result<Self> {
        let before = std::fs::metadata(target).ok();
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mode = if before.is_some() { 0o600 } else { 0o666 };
        let unnamed = OpenOptions::new()
            .read(true)
            .write(true)
            .mode(mode)
            .custom_flags(OFlags::TMPFILE.bits().cast_signed())
            .open(folder.unwrap_or(Path::new(".")));
        let (file, name) = if let Ok(file) = unnamed {
            (file, None)
        } else {
            let name = unfinished(target);
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create_new(true).mode(mode).open(&name)?;
            (file, Some(name))
        };
        let target = target.into();
        let made = Self { file, target, name };
        if let Some(before) = before {
            let owned = fchown(&made.file, Some(before.uid()), Some(before.gid()));
            let kept = if owned.is_ok() { 0o777 } else { 0o700 };
            made.file
                .set_permissions(Permissions::from_mode(before.mode() & kept))?;
        }
        Ok(made)
    }

    /// Where it is written.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives it the name that it was made for.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn finish(mut self) -> std::io::Result<()> {
        if self.name.is_none() {
            let name = unfinished(&self.target);
            let itself = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            rustix::fs::linkat(CWD, itself, CWD, &name, AtFlags::SYMLINK_FOLLOW)?;
            self.name = Some(name);
        }
        if let Some(name) = &self.name {
            std::fs::rename(name, &self.target)?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = std::fs::remove_file(name);
        }
    }
}

/// Another name for a file that is being made. What an interrupted maker of the same file has left under such a name is removed.
pub fn unfinished(target: &Path) -> PathBuf {
    let (folder, name) = (
        target.parent().unwrap_or(Path::new("")),
        target.file_name().unwrap_or_default(),
    );
    let of_process = |process: &str| {
        let mut name = name.to_owned();
        name.push(format!(".{process}.new"));
        folder.join(name)
    };
    let here = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    for found in std::fs::read_dir(here).into_iter().flatten().flatten() {
        let found = found.file_name().to_string_lossy().into_owned();
        let process = found.strip_suffix(".new").and_then(|rest| rest.rsplit('.').next());
        let Some(process) = process.filter(|process| process.parse::<u32>().is_ok()) else {
            continue;
        };
        let is_its = of_process(process).file_name().is_some_and(|its| its == found.as_str());
        if is_its && !Path::new("/proc").join(process).exists() {
            let _ = std::fs::remove_file(of_process(process));
        }
    }
    of_process(&std::process::id().to_string())
}

/// A folder that goes away with the value. Its path is short, because sockets' paths must be.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a folder that did not exist.
    pub fn make() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("gond-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| format!("cannot make the folder {}", path.display())),
            }
        }
    }

    /// Where something of this name goes.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_interrupted_maker_left_is_removed() {
        let folder = Scratch::make().unwrap();
        // No process has this number: Linux has 2^22 at most.
        let (dead, alive) = (folder.file("copy.4294967295.new"), folder.file("copy.1.new"));
        let (other, users) = (folder.file("other.4294967295.new"), folder.file("copy.x.new"));
        for file in [&dead, &alive, &other, &users] {
            std::fs::write(file, "").unwrap();
        }
        let own = unfinished(&folder.file("copy"));
        assert_eq!(own, folder.file(&format!("copy.{}.new", std::process::id())));
        assert!(!dead.exists() && alive.exists() && other.exists() && users.exists());
    }
}
