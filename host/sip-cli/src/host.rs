//! The services that a process on the host gets: arguments, standard streams, files, clocks, randomness.

use crate::files::Files;
use sip::wasi::{At, Entry, Errno, FileId, How, Stat, System, Time};
use std::io::{Read, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The host, for one process.
pub struct Host {
    arguments: Vec<String>,
    environment: Vec<String>,
    start: Instant,
    files: Files,
}

impl Host {
    /// For a process with these arguments, its own name first, this environment, and these directories
    /// under their names.
    ///
    /// # Errors
    /// A directory that cannot be opened, in words.
    pub fn new(arguments: &[String], environment: &[String], directories: &[(String, String)]) -> Result<Self, String> {
        Ok(Self {
            arguments: arguments.to_vec(),
            environment: environment.to_vec(),
            start: Instant::now(),
            files: Files::new(directories)?,
        })
    }
}

impl System for Host {
    fn arguments(&self) -> &[String] {
        &self.arguments
    }
    fn environment(&self) -> &[String] {
        &self.environment
    }
    fn write(&mut self, descriptor: u32, bytes: &[u8]) -> Result<usize, Errno> {
        let written = match descriptor {
            1 => std::io::stdout()
                .write_all(bytes)
                .and_then(|()| std::io::stdout().flush()),
            2 => std::io::stderr().write_all(bytes),
            _ => return Err(Errno::BadDescriptor),
        };
        written.map(|()| bytes.len()).map_err(|_| Errno::Io)
    }
    fn read(&mut self, descriptor: u32, bytes: &mut [u8]) -> Result<usize, Errno> {
        if descriptor != 0 {
            return Err(Errno::BadDescriptor);
        }
        std::io::stdin().read(bytes).map_err(|_| Errno::Io)
    }
    fn clock(&mut self, clock: u32) -> Result<u64, Errno> {
        let since = match clock {
            0 => SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| Errno::Io)?,
            1 => self.start.elapsed(),
            _ => return Err(Errno::Invalid),
        };
        u64::try_from(since.as_nanos()).map_err(|_| Errno::Io)
    }
    fn random(&mut self, bytes: &mut [u8]) {
        let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(bytes));
        if read.is_err() {
            bytes.fill(0);
        }
    }
    fn sleep(&mut self, nanoseconds: u64) -> Result<(), Errno> {
        std::thread::sleep(Duration::from_nanos(nanoseconds));
        Ok(())
    }

    fn directories(&self) -> Vec<(String, FileId)> {
        self.files.directories()
    }
    fn open(&mut self, at: At<'_>, how: How) -> Result<FileId, Errno> {
        self.files.open(at, how)
    }
    fn close(&mut self, file: FileId) {
        self.files.close(file);
    }
    fn read_at(&mut self, file: FileId, at: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.files.read_at(file, at, bytes)
    }
    fn write_at(&mut self, file: FileId, at: u64, bytes: &[u8]) -> Result<usize, Errno> {
        self.files.write_at(file, at, bytes)
    }
    fn sync(&mut self, file: FileId) -> Result<(), Errno> {
        self.files.sync(file)
    }
    fn stat(&mut self, file: FileId) -> Result<Stat, Errno> {
        self.files.stat(file)
    }
    fn stat_path(&mut self, at: At<'_>, follow: bool) -> Result<Stat, Errno> {
        self.files.stat_path(at, follow)
    }
    fn set_size(&mut self, file: FileId, bytes: u64) -> Result<(), Errno> {
        self.files.set_size(file, bytes)
    }
    fn set_times(&mut self, file: FileId, read: Time, written: Time) -> Result<(), Errno> {
        self.files.set_times(file, read, written)
    }
    fn set_times_path(&mut self, at: At<'_>, follow: bool, read: Time, written: Time) -> Result<(), Errno> {
        self.files.set_times_path(at, follow, read, written)
    }
    fn entries(&mut self, directory: FileId) -> Result<Vec<Entry>, Errno> {
        self.files.entries(directory)
    }
    fn create_directory(&mut self, at: At<'_>) -> Result<(), Errno> {
        self.files.create_directory(at)
    }
    fn remove_directory(&mut self, at: At<'_>) -> Result<(), Errno> {
        self.files.remove_directory(at)
    }
    fn unlink(&mut self, at: At<'_>) -> Result<(), Errno> {
        self.files.unlink(at)
    }
    fn rename(&mut self, from: At<'_>, to: At<'_>) -> Result<(), Errno> {
        self.files.rename(from, to)
    }
    fn link(&mut self, from: At<'_>, to: At<'_>) -> Result<(), Errno> {
        self.files.link(from, to)
    }
    fn symlink(&mut self, target: &str, at: At<'_>) -> Result<(), Errno> {
        self.files.symlink(target, at)
    }
    fn read_link(&mut self, at: At<'_>) -> Result<String, Errno> {
        self.files.read_link(at)
    }
}
