//! A process's descriptors: what each is, which rights it has, and where it stands.

use super::system::{Entry, Errno, FileId, Kind, System};
use alloc::{string::String, vec::Vec};

/// Descriptors of a process at most.
pub const DESCRIPTORS: usize = 4096;

/// Rights of a descriptor, a bit each, as WASI numbers them.
pub mod rights {
    /// To read.
    pub const READ: u64 = 1 << 1;
    /// To seek, and to ask for the position.
    pub const SEEK: u64 = 1 << 2 | 1 << 5;
    /// To write.
    pub const WRITE: u64 = 1 << 6;
    /// To extend.
    pub const ALLOCATE: u64 = 1 << 8;
    /// To read a directory.
    pub const READDIR: u64 = 1 << 14;
    /// To set the size of a file by its path, and so to empty it when it is opened.
    pub const PATH_SET_SIZE: u64 = 1 << 19;
    /// To set the size.
    pub const SET_SIZE: u64 = 1 << 22;
    /// The rights a file can allow: all but paths and directories.
    pub const FILE: u64 = 0x1ff | 1 << 21 | SET_SIZE | 1 << 23 | 1 << 27;
    /// The rights a directory can allow.
    pub const DIRECTORY: u64 = 1 | 1 << 3 | 1 << 4 | 0x3f_fe00 | 0x0780_0000;
    /// The rights a stream can allow.
    pub const STREAM: u64 = READ | WRITE | 1 << 3 | 1 << 21 | 1 << 27;
}

/// The kind of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A standard stream.
    Stream(u32),
    /// A file or directory.
    File(FileId),
}

/// A descriptor.
#[derive(Clone, Debug)]
pub struct Descriptor {
    pub what: What,
    pub kind: Kind,
    /// The place of the next read or write.
    pub position: u64,
    /// Append 1, each write to the disk 2, do not wait 4, and 8 and 16 for reads and all.
    pub flags: u16,
    pub base: u64,
    pub inheriting: u64,
    /// The name of a directory that the process has from the start.
    pub preopen: Option<String>,
    /// The entries that `readdir` goes through.
    pub entries: Vec<Entry>,
}

/// All of a process's.
#[derive(Default)]
pub struct Descriptors {
    table: Vec<Option<Descriptor>>,
}

impl Descriptors {
    /// The streams, and the directories that the system gives.
    pub fn new(system: &impl System) -> Self {
        let stream = |at: u32| Descriptor {
            what: What::Stream(at),
            kind: Kind::Character,
            position: 0,
            flags: u16::from(at > 0),
            base: rights::STREAM,
            inheriting: 0,
            preopen: None,
            entries: Vec::new(),
        };
        let directory = |(name, file)| Descriptor {
            what: What::File(file),
            kind: Kind::Directory,
            position: 0,
            flags: 0,
            base: rights::DIRECTORY,
            inheriting: rights::DIRECTORY | rights::FILE,
            preopen: Some(name),
            entries: Vec::new(),
        };
        let streams = (0..3).map(stream);
        let all = streams.chain(system.directories().into_iter().map(directory));
        Self {
            table: all.map(Some).collect(),
        }
    }

    /// The descriptor of a number.
    pub fn get(&mut self, number: u64) -> Result<&mut Descriptor, Errno> {
        let entry = self.table.get_mut(number as usize).and_then(Option::as_mut);
        entry.ok_or(Errno::BadDescriptor)
    }

    /// A file, not a stream and not a directory.
    pub fn file(&mut self, number: u64) -> Result<(&mut Descriptor, FileId), Errno> {
        let descriptor = self.get(number)?;
        match descriptor.what {
            What::File(file) if descriptor.kind != Kind::Directory => Ok((descriptor, file)),
            _ => Err(Errno::BadDescriptor),
        }
    }

    /// A file or directory.
    pub fn any_file(&mut self, number: u64) -> Result<FileId, Errno> {
        match self.get(number)?.what {
            What::File(file) => Ok(file),
            What::Stream(_) => Err(Errno::Invalid),
        }
    }

    /// A directory.
    pub fn directory(&mut self, number: u64) -> Result<(&mut Descriptor, FileId), Errno> {
        let descriptor = self.get(number)?;
        match descriptor.what {
            What::File(file) if descriptor.kind == Kind::Directory => Ok((descriptor, file)),
            _ => Err(Errno::NotDirectory),
        }
    }

    /// Gives a descriptor the lowest free number.
    pub fn add(&mut self, descriptor: Descriptor) -> Result<u32, Errno> {
        if let Some(at) = self.table.iter().position(Option::is_none) {
            self.table[at] = Some(descriptor);
            return Ok(at as u32);
        }
        if self.table.len() >= DESCRIPTORS {
            return Err(Errno::Descriptors);
        }
        self.table.push(Some(descriptor));
        Ok(self.table.len() as u32 - 1)
    }

    /// Takes a descriptor out of the table.
    pub fn remove(&mut self, number: u64) -> Result<Descriptor, Errno> {
        let entry = self.table.get_mut(number as usize).and_then(Option::take);
        entry.ok_or(Errno::BadDescriptor)
    }

    /// Makes a descriptor have another's number; yields what had it.
    pub fn renumber(&mut self, from: u64, to: u64) -> Result<Option<Descriptor>, Errno> {
        self.get(to)?;
        self.get(from)?;
        if from == to {
            return Ok(None);
        }
        let moved = self.remove(from)?;
        let old = self.remove(to)?;
        self.table[to as usize] = Some(moved);
        Ok(Some(old))
    }
}
