//! Directories of the host for a process. The kernel itself keeps paths inside: every path is resolved
//! beneath the directory that it starts from (`openat2`, `RESOLVE_BENEATH`), or its parent is, and the
//! last name is then used as it stands.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps};
use rustix::io::Errno as Os;
use sip::wasi::{At, Entry, Errno, FileId, How, Kind, Stat, Time};

type Answer<T> = Result<T, Errno>;

/// Files that one process has open at most.
const FILES: usize = 4096;

/// A process's open files.
#[derive(Default)]
pub struct Files {
    open: Vec<Option<OwnedFd>>,
    given: Vec<(String, FileId)>,
}

fn errno(error: Os) -> Errno {
    match error {
        Os::ACCESS => Errno::Access,
        Os::AGAIN => Errno::Again,
        Os::BADF => Errno::BadDescriptor,
        Os::BUSY => Errno::Busy,
        Os::EXIST => Errno::Exists,
        Os::FBIG => Errno::TooBig,
        Os::INVAL => Errno::Invalid,
        Os::ISDIR => Errno::IsDirectory,
        Os::LOOP => Errno::Loop,
        Os::MFILE | Os::NFILE => Errno::Descriptors,
        Os::NAMETOOLONG => Errno::NameTooLong,
        Os::NOENT => Errno::NotThere,
        Os::NOMEM => Errno::NoMemory,
        Os::NOSPC | Os::DQUOT => Errno::NoSpace,
        Os::NOSYS => Errno::NoSystemCall,
        Os::NOTDIR => Errno::NotDirectory,
        Os::NOTEMPTY => Errno::NotEmpty,
        Os::OPNOTSUPP => Errno::NotSupported,
        Os::NOTTY => Errno::NotTerminal,
        Os::OVERFLOW => Errno::Overflow,
        Os::PERM => Errno::NotPermitted,
        Os::PIPE => Errno::Pipe,
        Os::ROFS => Errno::ReadOnly,
        Os::SPIPE => Errno::Seek,
        Os::TXTBSY => Errno::TextBusy,
        Os::XDEV => Errno::OtherDevice,
        _ => Errno::Io,
    }
}

const fn kind(of: FileType) -> Kind {
    match of {
        FileType::RegularFile => Kind::Regular,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Link,
        FileType::CharacterDevice => Kind::Character,
        FileType::BlockDevice => Kind::Block,
        FileType::Socket => Kind::Stream,
        _ => Kind::Unknown,
    }
}

#[allow(
    clippy::cast_sign_loss,
    clippy::unnecessary_cast,
    reason = "the fields have other types on other hosts"
)]
fn stat(from: &fs::Stat) -> Stat {
    let time = |seconds: i64, nanoseconds: u64| (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(nanoseconds);
    Stat {
        device: from.st_dev as u64,
        inode: from.st_ino as u64,
        kind: kind(FileType::from_raw_mode(from.st_mode as _)),
        links: from.st_nlink as u64,
        size: from.st_size as u64,
        times: [
            time(from.st_atime as i64, from.st_atime_nsec as u64),
            time(from.st_mtime as i64, from.st_mtime_nsec as u64),
            time(from.st_ctime as i64, from.st_ctime_nsec as u64),
        ],
    }
}

fn timestamps(read: Time, written: Time) -> Timestamps {
    let one = |time| match time {
        Time::Keep => (0, fs::UTIME_OMIT),
        Time::Now => (0, fs::UTIME_NOW),
        Time::At(at) => ((at / 1_000_000_000).cast_signed(), (at % 1_000_000_000).cast_signed()),
    };
    let [last_access, last_modification] = [read, written]
        .map(one)
        .map(|(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec });
    Timestamps {
        last_access,
        last_modification,
    }
}

impl Files {
    /// With these directories, under their names.
    ///
    /// # Errors
    /// One that cannot be opened, in words.
    pub fn new(directories: &[(String, String)]) -> Result<Self, String> {
        let mut files = Self::default();
        for (path, name) in directories {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = fs::open(path, flags, Mode::empty()).map_err(|error| format!("--dir {path}: {error}"))?;
            let file = files
                .add(opened)
                .map_err(|_| "--dir: too many directories".to_string())?;
            files.given.push((name.clone(), file));
        }
        Ok(files)
    }

    /// The directories that the process has from the start.
    pub fn directories(&self) -> Vec<(String, FileId)> {
        self.given.clone()
    }

    fn add(&mut self, file: OwnedFd) -> Answer<FileId> {
        let at = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        if at >= FILES {
            return Err(Errno::Descriptors);
        }
        if at == self.open.len() {
            self.open.push(None);
        }
        self.open[at] = Some(file);
        Ok(FileId(at as u32))
    }

    fn get(&self, file: FileId) -> Answer<BorrowedFd<'_>> {
        let entry = self.open.get(file.0 as usize).and_then(Option::as_ref);
        entry.map(AsFd::as_fd).ok_or(Errno::BadDescriptor)
    }

    fn resolve(&self, at: At<'_>, path: &str, flags: OFlags, mode: Mode) -> Answer<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let directory = self.get(at.directory)?;
        // The kernel gives up when something is renamed meanwhile.
        for _ in 0..16 {
            match fs::openat2(directory, path, flags | OFlags::CLOEXEC, mode, resolve) {
                Err(Os::AGAIN) => {}
                Err(Os::XDEV) => return Err(Errno::NotCapable),
                done => return done.map_err(errno),
            }
        }
        Err(Errno::Again)
    }

    /// The directory that a path's last name is in, and that name, with the slashes behind it.
    fn parent<'a>(&self, at: At<'a>) -> Answer<(OwnedFd, &'a str)> {
        let bare = at.path.trim_end_matches('/');
        let (parent, name) = match bare.rfind('/') {
            Some(slash) => (&at.path[..slash], &at.path[slash + 1..]),
            None => (".", at.path),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        Ok((self.resolve(at, parent, flags, Mode::empty())?, name))
    }

    pub fn open(&mut self, at: At<'_>, how: How) -> Answer<FileId> {
        let mut flags = match (how.read, how.write) {
            (_, false) => OFlags::RDONLY,
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
        };
        flags.set(OFlags::CREATE, how.create);
        flags.set(OFlags::EXCL, how.exclusive);
        flags.set(OFlags::TRUNC, how.truncate);
        flags.set(OFlags::DIRECTORY, how.directory);
        flags.set(OFlags::NOFOLLOW, !how.follow);
        flags.set(OFlags::NONBLOCK, how.nonblocking);
        flags.set(OFlags::SYNC, how.synchronous);
        let mode = if how.create {
            Mode::from_raw_mode(0o666)
        } else {
            Mode::empty()
        };
        let file = self.resolve(at, at.path, flags, mode)?;
        self.add(file)
    }

    pub fn close(&mut self, file: FileId) {
        if let Some(entry) = self.open.get_mut(file.0 as usize) {
            *entry = None;
        }
    }

    pub fn read_at(&self, file: FileId, at: u64, bytes: &mut [u8]) -> Answer<usize> {
        rustix::io::pread(self.get(file)?, bytes, at).map_err(errno)
    }

    pub fn write_at(&self, file: FileId, at: u64, bytes: &[u8]) -> Answer<usize> {
        rustix::io::pwrite(self.get(file)?, bytes, at).map_err(errno)
    }

    pub fn sync(&self, file: FileId) -> Answer<()> {
        fs::fsync(self.get(file)?).map_err(errno)
    }

    pub fn stat(&self, file: FileId) -> Answer<Stat> {
        fs::fstat(self.get(file)?).map(|found| stat(&found)).map_err(errno)
    }

    /// Tells about the file that a path names, without opening it.
    fn look_up(&self, at: At<'_>, follow: bool) -> Answer<OwnedFd> {
        let mut flags = OFlags::PATH;
        flags.set(OFlags::NOFOLLOW, !follow);
        self.resolve(at, at.path, flags, Mode::empty())
    }

    pub fn stat_path(&self, at: At<'_>, follow: bool) -> Answer<Stat> {
        let file = self.look_up(at, follow)?;
        fs::fstat(file).map(|found| stat(&found)).map_err(errno)
    }

    pub fn set_size(&self, file: FileId, bytes: u64) -> Answer<()> {
        fs::ftruncate(self.get(file)?, bytes).map_err(errno)
    }

    pub fn set_times(&self, file: FileId, read: Time, written: Time) -> Answer<()> {
        fs::futimens(self.get(file)?, &timestamps(read, written)).map_err(errno)
    }

    pub fn set_times_path(&self, at: At<'_>, follow: bool, read: Time, written: Time) -> Answer<()> {
        let file = self.look_up(at, follow)?;
        fs::utimensat(file, "", &timestamps(read, written), AtFlags::EMPTY_PATH).map_err(errno)
    }

    pub fn entries(&self, directory: FileId) -> Answer<Vec<Entry>> {
        let mut found = Vec::new();
        for entry in Dir::read_from(self.get(directory)?).map_err(errno)? {
            let entry = entry.map_err(errno)?;
            found.push(Entry {
                inode: entry.ino(),
                kind: kind(entry.file_type()),
                name: entry.file_name().to_string_lossy().into_owned(),
            });
        }
        // The two that every directory has come first, the rest as it comes.
        found.sort_by_key(|entry| match entry.name.as_str() {
            "." => 0,
            ".." => 1,
            _ => 2,
        });
        Ok(found)
    }

    pub fn create_directory(&self, at: At<'_>) -> Answer<()> {
        let (parent, name) = self.parent(at)?;
        fs::mkdirat(parent, name, Mode::from_raw_mode(0o777)).map_err(errno)
    }

    pub fn remove_directory(&self, at: At<'_>) -> Answer<()> {
        let (parent, name) = self.parent(at)?;
        fs::unlinkat(parent, name, AtFlags::REMOVEDIR).map_err(errno)
    }

    pub fn unlink(&self, at: At<'_>) -> Answer<()> {
        let (parent, name) = self.parent(at)?;
        fs::unlinkat(parent, name, AtFlags::empty()).map_err(errno)
    }

    pub fn rename(&self, from: At<'_>, to: At<'_>) -> Answer<()> {
        let ((from, old), (to, new)) = (self.parent(from)?, self.parent(to)?);
        fs::renameat(from, old, to, new).map_err(errno)
    }

    pub fn link(&self, from: At<'_>, to: At<'_>) -> Answer<()> {
        let ((from, old), (to, new)) = (self.parent(from)?, self.parent(to)?);
        fs::linkat(from, old, to, new, AtFlags::empty()).map_err(errno)
    }

    pub fn symlink(&self, target: &str, at: At<'_>) -> Answer<()> {
        let (parent, name) = self.parent(at)?;
        fs::symlinkat(target, parent, name).map_err(errno)
    }

    pub fn read_link(&self, at: At<'_>) -> Answer<String> {
        let (parent, name) = self.parent(at)?;
        let target = fs::readlinkat(parent, name, Vec::new()).map_err(errno)?;
        target.into_string().map_err(|_| Errno::IllegalBytes)
    }
}
