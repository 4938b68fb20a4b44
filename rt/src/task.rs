//! Starting programs.
//!
//! A program is an image object. Starting it clones the image, copy-on-write and with one page more,
//! writes that page (the *start page*: arguments and the like) and creates a task that begins at the
//! image's entry point. The clone moves to the new task's kill list and goes with it.

use abi::{
    address::PAGE,
    layout::{ApdDescription, ExitReport, FOREVER, PRIORITY_DEFAULT},
    start::{ARGUMENTS_BYTES, ARGUMENTS_OFFSET, IMAGE_ENTRY_AT, START_MAGIC, Start},
};

use crate::{Directory, Error, Kind, Object, arguments, call, error::Result, object, report};

/// A program that can be started, as often as one likes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Program {
    image: u64,
    bytes: u64,
    entry_offset: u64,
    root_directory: u64,
}

/// How to start it. Made by [`Options::default`].
#[derive(Copy, Clone, Debug)]
pub struct Options<'a> {
    /// Its protection domain; none: the creator's.
    pub apd: Option<&'a ApdDescription>,
    /// Bound on its memory in pages; 0: the system's.
    pub limit_pages: u64,
    /// Its priority.
    pub priority: u64,
    /// A word for it, beside the arguments.
    pub word: u64,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            apd: None,
            limit_pages: 0,
            priority: PRIORITY_DEFAULT,
            word: 0,
        }
    }
}

impl Program {
    /// The program that a path leads to.
    ///
    /// # Errors
    /// As [`Directory::find`]; [`Error::WrongKind`], [`Error::NotAProgram`].
    pub fn find(directory: &Directory, path: &str) -> Result<Self> {
        let found = directory.find(path)?;
        if found.kind != Kind::Program {
            return Err(Error::WrongKind(found.kind));
        }
        Self::at(found.capability.address)
    }

    /// The program whose image stands at an address.
    ///
    /// # Errors
    /// As [`Object::open`]; [`Error::NotAProgram`].
    pub fn at(address: u64) -> Result<Self> {
        const ELF: u32 = u32::from_le_bytes(*b"\x7fELF");
        let image = Object::open(address)?;
        let magic = image.first::<core::cell::Cell<u32>>()?.get();
        let entry = image
            .region()
            .at_offset::<core::cell::Cell<u64>>(IMAGE_ENTRY_AT)
            .map(core::cell::Cell::get);
        match entry {
            Some(entry) if magic == ELF && entry < image.bytes() => {
                let root_directory =
                    object::own_start().map_or(abi::address::ROOT_DIRECTORY, |start| start.root_directory);
                Ok(Self {
                    image: image.base(),
                    bytes: image.bytes(),
                    entry_offset: entry,
                    root_directory,
                })
            }
            _ => Err(Error::NotAProgram),
        }
    }

    /// Starts it with its name and arguments.
    ///
    /// # Errors
    /// [`Error::ArgumentsTooLong`]; as `ObjClone` and `TaskCreate`.
    pub fn start<'n>(&self, name: &'n str, arguments: &[&str], options: &Options<'_>) -> Result<Task<'n>> {
        let clone = Object::clone_of(self.image, self.bytes, PAGE)?;
        match self.start_clone(&clone, name, arguments, options) {
            Ok(task) => Ok(task),
            Err(error) => {
                clone.delete()?;
                Err(error)
            }
        }
    }

    fn start_clone<'n>(
        &self,
        clone: &Object,
        name: &'n str,
        arguments: &[&str],
        options: &Options<'_>,
    ) -> Result<Task<'n>> {
        let page = clone.base() + self.bytes;
        let all = core::iter::once(name).chain(arguments.iter().copied());
        let (count, length) = object::write_arguments(clone, self.bytes + ARGUMENTS_OFFSET, ARGUMENTS_BYTES, |into| {
            arguments::join(all, into)
        })
        .ok_or(Error::ArgumentsTooLong)?;
        let start = Start {
            magic: START_MAGIC,
            image: clone.base(),
            image_bytes: self.bytes,
            root_directory: self.root_directory,
            argument_count: count as u64,
            argument_bytes: length as u64,
            word: options.word,
        };
        let head = clone
            .region()
            .at_offset::<core::cell::Cell<[u64; Start::WORDS]>>(self.bytes)
            .ok_or(Error::NotAProgram)?;
        head.set(start.to_words());
        let entry = clone.base() + self.entry_offset;
        let (thread, id) = call::task_create(entry, page, options.apd, options.limit_pages, options.priority)?;
        Ok(Task {
            thread,
            id,
            image: report::Image {
                name,
                base: clone.base(),
                bytes: self.bytes,
            },
        })
    }
}

/// A task that was started.
#[derive(Copy, Clone, Debug)]
pub struct Task<'n> {
    thread: u64,
    id: u64,
    image: report::Image<'n>,
}

impl<'n> Task<'n> {
    /// Its first thread.
    pub const fn thread(&self) -> u64 {
        self.thread
    }

    /// Its number.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Where its image stands.
    pub const fn image(&self) -> report::Image<'n> {
        self.image
    }

    /// Waits for it to end.
    ///
    /// # Errors
    /// As `ThreadWait`.
    pub fn wait(&self) -> abi::error::Result<report::Shown<'n>> {
        self.wait_for(FOREVER)
    }

    /// Waits for it to end, so many nanoseconds at most.
    ///
    /// # Errors
    /// As `ThreadWait`.
    pub fn wait_for(&self, timeout_ns: u64) -> abi::error::Result<report::Shown<'n>> {
        let report: ExitReport = call::thread_wait(self.thread, timeout_ns)?;
        Ok(report::Shown {
            report,
            image: self.image,
        })
    }

    /// Waits for it to end, and gives its status only.
    ///
    /// # Errors
    /// As `ThreadWait`.
    pub fn wait_status(&self) -> abi::error::Result<u64> {
        call::thread_wait_status(self.thread, FOREVER).map(|(_, status)| status)
    }

    /// Ends it.
    ///
    /// # Errors
    /// As `ThreadDelete`.
    pub fn end(&self, status: u64) -> abi::error::Result<()> {
        call::thread_delete(self.thread, status)
    }
}
