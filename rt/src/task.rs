//! Starting programs.
//!
//! A program is an image object, or a module that exports `main`. Starting an image clones it, copy-on-write and with
//! one page more, writes that page (the *start page*: arguments and the like) and creates a task that begins at the
//! image's entry point. For a module nothing is cloned: the start page is the first of a fresh object, and the task begins
//! there with a jump into the module `rt`, which does the rest (decision 0066). Either object moves to the
//! new task's kill list and goes with it.

use abi::{
    address::PAGE,
    layout::{ApdDescription, ExitReport, FOREVER, PRIORITY_DEFAULT, TASK_FOREGROUND},
    start::{
        ARGUMENTS_BYTES, ARGUMENTS_OFFSET, IMAGE_ENTRY_AT, MODULE_START_EAGER, MODULE_START_OFFSET, ModuleStart,
        START_MAGIC, Start,
    },
};

use crate::{
    Cell, Directory, Error, Kind, Object, arguments, call,
    error::Result,
    module::{self, Binding, shelf},
    object::{self, instance::ARENA_BYTES},
    report,
};

/// A program that can be started, as often as one likes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Program {
    body: Body,
    root_directory: u64,
}

/// The code that a task begins with.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Body {
    Image { base: u64, bytes: u64, entry_offset: u64 },
    Module(ModuleStart),
}

/// The root directory that this program was told, for those that it starts.
fn root_directory() -> u64 {
    object::own_start().map_or(abi::address::ROOT_DIRECTORY, |start| start.root_directory)
}

/// How to start it. Made by [`Options::default`].
#[derive(Copy, Clone, Debug)]
pub struct Options<'a> {
    /// Its protection domain; none: the creator's.
    pub apd: Option<&'a ApdDescription>,
    /// Bound on its memory in pages; 0: the system's.
    pub limit_pages: u64,
    /// Bound on its processor time, in thousandths of all processors; 0: the system's.
    pub limit_share: u64,
    /// Its priority.
    pub priority: u64,
    /// Whether the terminal's interrupt character ends it from its first instruction on, where the caller holds the terminal
    /// (`ConsoleForeground`).
    pub foreground: bool,
    /// A word for it, beside the arguments.
    pub word: u64,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            apd: None,
            limit_pages: 0,
            limit_share: 0,
            priority: PRIORITY_DEFAULT,
            foreground: false,
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
        let magic = image.first::<Cell<u32>>()?.get();
        let entry = image.region().at_offset::<Cell<u64>>(IMAGE_ENTRY_AT).map(Cell::get);
        match entry {
            Some(entry) if magic == ELF && entry < image.bytes() => Ok(Self {
                body: Body::Image {
                    base: image.base(),
                    bytes: image.bytes(),
                    entry_offset: entry,
                },
                root_directory: root_directory(),
            }),
            _ => Err(Error::NotAProgram),
        }
    }

    /// The program that an installed module is: the newest version of that name, or with `NAME-VERSION` that one. It begins
    /// in the newest version of the module `rt`. The domain that it is started in must have R and X on both, and R on the
    /// directory of modules. Cost: a directory opened and two names looked up in it.
    ///
    /// # Errors
    /// [`module::Error::Missing`] with the name of the one that is not installed, the program or `rt`; damaged;
    /// [`module::Error::NoExport`] if the installed `rt` begins no programs.
    pub fn of_module(name: &str, binding: Binding) -> module::Result<Self> {
        let start = shelf::program(name)?;
        let flags = if binding == Binding::Eager {
            MODULE_START_EAGER
        } else {
            0
        };
        Ok(Self {
            body: Body::Module(ModuleStart { flags, ..start }),
            root_directory: root_directory(),
        })
    }

    /// Starts it with its name and arguments.
    ///
    /// # Errors
    /// [`Error::ArgumentsTooLong`]; as `ObjClone`, for a module as `ObjCreate`; as `TaskCreate`.
    pub fn start<'n>(&self, name: &'n str, arguments: &[&str], options: &Options<'_>) -> Result<Task<'n>> {
        let (object, page) = match self.body {
            Body::Image { base, bytes, .. } => (Object::clone_of(base, bytes, PAGE)?, bytes),
            Body::Module(_) => (Object::create(ARENA_BYTES)?, 0),
        };
        match self.start_in(&object, page, name, arguments, options) {
            Ok(task) => Ok(task),
            Err(error) => {
                object.delete()?;
                Err(error)
            }
        }
    }

    /// Starts it in an object made for it, whose start page lies at byte `page`.
    fn start_in<'n>(
        &self,
        object: &Object,
        page: u64,
        name: &'n str,
        arguments: &[&str],
        options: &Options<'_>,
    ) -> Result<Task<'n>> {
        let all = core::iter::once(name).chain(arguments.iter().copied());
        let room = object.region();
        let room = room.slice(room.pointer(page + ARGUMENTS_OFFSET), ARGUMENTS_BYTES as usize);
        let (count, length) = arguments::join(all, room.unwrap_or_default()).ok_or(Error::ArgumentsTooLong)?;
        let start = Start {
            magic: START_MAGIC,
            image: object.base(),
            image_bytes: page,
            root_directory: self.root_directory,
            argument_count: count as u64,
            argument_bytes: length as u64,
            word: options.word,
        };
        put(object, page, start.to_words())?;
        let (entry, image) = match self.body {
            Body::Image {
                bytes, entry_offset, ..
            } => (object.base() + entry_offset, (object.base(), bytes)),
            Body::Module(start) => {
                put(object, MODULE_START_OFFSET, start.to_words())?;
                (object.base() + MODULE_START_OFFSET, (start.module, start.module_bytes))
            }
        };
        let page = object.base() + page;
        let foreground = if options.foreground { TASK_FOREGROUND } else { 0 };
        let (thread, id) = call::task_create(
            entry,
            page,
            options.apd,
            options.limit_pages,
            options.priority | foreground,
            options.limit_share,
        )?;
        Ok(Task {
            thread,
            id,
            image: report::Image {
                name,
                base: image.0,
                bytes: image.1,
            },
        })
    }
}

/// Writes words into a fresh object.
fn put<const N: usize>(object: &Object, at: u64, words: [u64; N]) -> Result<()> {
    let place = object.region().at_offset::<Cell<[u64; N]>>(at);
    place.ok_or(Error::NotAProgram)?.set(words);
    Ok(())
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

    /// Where its image stands, or the module that it is.
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
