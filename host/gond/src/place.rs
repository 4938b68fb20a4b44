//! Where things are: the sources, what is built from them, and a folder for the moment.

use anyhow::{Context, Result, bail};
use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions, Permissions};
use std::io::ErrorKind;
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

/// Where a link leads, if nothing is there.
pub fn dangling(path: &Path) -> Option<PathBuf> {
    std::fs::read_link(path).ok().filter(|_| !path.exists())
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
/// On a file system without such files it has a name of its own until then, which a maker that is killed leaves behind. Whatever bears such a name
/// already may be somebody's: it stays, and another name is taken.
pub struct NewFile {
    file: File,
    target: PathBuf,
    /// The name of its own, where files without one cannot be made.
    name: Option<PathBuf>,
}

impl NewFile {
    /// Begins it. It may be read by those alone who may read the file that it replaces.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn begin(target: &Path) -> std::io::Result<Self> {
        let unnamed = options(target)
            .custom_flags(OFlags::TMPFILE.bits().cast_signed())
            .open(folder_of(target).unwrap_or(Path::new(".")));
        Self::with(target, unnamed.ok())
    }

    /// Goes on with a file that has no name; without one it makes one that has.
    fn with(target: &Path, unnamed: Option<File>) -> std::io::Result<Self> {
        let (file, name) = if let Some(file) = unnamed {
            (file, None)
        } else {
            let (name, file) = with_free_name(target, |name| options(target).create_new(true).open(name))?;
            (file, Some(name))
        };
        let target = target.into();
        let made = Self { file, target, name };
        if let Ok(before) = std::fs::metadata(&made.target) {
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

    /// Gives it the name that it was made for, unless something has that name.
    ///
    /// # Errors
    /// Those of the operating system: `AlreadyExists` if something has the name.
    pub fn finish(mut self) -> std::io::Result<()> {
        match self.name.take() {
            None => link_unnamed(&self.file, &self.target),
            Some(name) => rename_to_free(&name, &self.target).inspect_err(|_| self.name = Some(name)),
        }?;
        flush_folder_of(&self.target);
        Ok(())
    }

    /// Gives it the name that it was made for, in place of a file that has that name.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn replace(mut self) -> std::io::Result<()> {
        let name = match self.name.take() {
            Some(name) => name,
            None => with_free_name(&self.target, |name| link_unnamed(&self.file, name))?.0,
        };
        std::fs::rename(&name, &self.target).inspect_err(|_| self.name = Some(name))?;
        flush_folder_of(&self.target);
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

/// How a file is opened that is to have the name `target`.
fn options(target: &Path) -> OpenOptions {
    let mode = if target.exists() { 0o600 } else { 0o666 };
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(mode);
    options
}

/// The folder in a path, if there is one in it.
fn folder_of(path: &Path) -> Option<&Path> {
    path.parent().filter(|folder| !folder.as_os_str().is_empty())
}

/// Has the name of a file survive a power cut of the host. A file system that cannot do this has its own way.
fn flush_folder_of(path: &Path) {
    let folder = File::open(folder_of(path).unwrap_or(Path::new(".")));
    let _ = folder.and_then(|folder| folder.sync_all());
}

/// Makes something beside `target`, under the first name that nothing has.
fn with_free_name<T>(target: &Path, make: impl Fn(&Path) -> std::io::Result<T>) -> std::io::Result<(PathBuf, T)> {
    let mut number = 0_u64;
    loop {
        let name = target.with_file_name(format!(".gond-{}-{number}.new", std::process::id()));
        match make(&name) {
            Ok(made) => return Ok((name, made)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Gives a file without a name one that nothing has.
fn link_unnamed(file: &File, name: &Path) -> std::io::Result<()> {
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, itself, CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

/// Gives a file another name, one that nothing has.
fn rename_to_free(from: &Path, to: &Path) -> std::io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems can do this only with a second name.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            std::fs::hard_link(from, to)?;
            std::fs::remove_file(from)
        }
        renamed => Ok(renamed?),
    }
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
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
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
    use std::io::Write;

    fn content(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    /// A new file, written and not finished.
    fn new_file(target: &Path, begin: fn(&Path) -> std::io::Result<NewFile>) -> NewFile {
        let mut new = begin(target).unwrap();
        new.file().write_all(b"new").unwrap();
        new
    }

    /// Both ways: files without a name, and such that have one from the start.
    const WAYS: [fn(&Path) -> std::io::Result<NewFile>; 2] = [NewFile::begin, |target| NewFile::with(target, None)];

    #[test]
    fn a_new_file_replaces_another_only_where_it_is_to() {
        for begin in WAYS {
            let folder = Scratch::make().unwrap();
            let (target, link) = (folder.file("target"), folder.file("link"));
            new_file(&target, begin).finish().unwrap();
            assert_eq!(content(&target), "new");

            std::fs::write(&target, "came meanwhile").unwrap();
            let refused = new_file(&target, begin).finish().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
            assert_eq!(content(&target), "came meanwhile");
            std::os::unix::fs::symlink("nowhere", &link).unwrap();
            assert!(new_file(&link, begin).finish().is_err() && link.is_symlink());

            new_file(&target, begin).replace().unwrap();
            assert_eq!(content(&target), "new");
            drop(new_file(&folder.file("given up"), begin));
            assert_eq!(std::fs::read_dir(folder.file(".")).unwrap().count(), 2);
        }
    }

    #[test]
    fn names_that_others_have_are_left_to_them() {
        for begin in WAYS {
            let folder = Scratch::make().unwrap();
            let target = folder.file("target");
            let others = [0, 1].map(|number| folder.file(&format!(".gond-{}-{number}.new", std::process::id())));
            for other in &others {
                std::fs::write(other, "other").unwrap();
            }
            new_file(&target, begin).finish().unwrap();
            new_file(&target, begin).replace().unwrap();
            assert!(others.iter().all(|other| content(other) == "other"));
            assert_eq!(std::fs::read_dir(folder.file(".")).unwrap().count(), 3);
        }
    }
}
