//! The base of WASI: the one trait through which a process reaches the outside. On the host it is
//! streams and directories of the host's; in the system its files can be objects.

use alloc::{string::String, vec::Vec};

macro_rules! errnos {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// WASI's error numbers that are used here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Errno {
            $(#[doc = $text] $name = $number,)*
        }
    };
}

errnos! {
    Success = 0, "None.";
    Access = 2, "Permission denied.";
    Again = 6, "Try again.";
    BadDescriptor = 8, "Bad file descriptor.";
    Busy = 10, "In use.";
    Exists = 20, "It is there already.";
    Fault = 21, "Bad address.";
    TooBig = 22, "File too large.";
    IllegalBytes = 25, "A name that is no UTF-8.";
    Invalid = 28, "Invalid argument.";
    Io = 29, "Input or output failed.";
    IsDirectory = 31, "It is a directory.";
    Loop = 32, "Too many symbolic links.";
    Descriptors = 33, "Too many open files.";
    NameTooLong = 37, "A name that is too long.";
    NotThere = 44, "No such file.";
    NoMemory = 48, "No memory.";
    NoSpace = 51, "No space left.";
    NoSystemCall = 52, "No such call.";
    NotDirectory = 54, "It is no directory.";
    NotEmpty = 55, "A directory that is not empty.";
    NotSocket = 57, "It is no socket.";
    NotSupported = 58, "Not supported.";
    NotTerminal = 59, "It is no terminal.";
    Overflow = 61, "A value that does not fit.";
    NotPermitted = 63, "Not permitted.";
    Pipe = 64, "Nobody reads.";
    ReadOnly = 69, "A read-only file system.";
    Seek = 70, "The descriptor has no position.";
    TextBusy = 74, "A program that runs.";
    OtherDevice = 75, "On another device.";
    NotCapable = 76, "The descriptor does not allow it, or the path leads outside.";
}

/// A file or directory that the system has opened, by the system's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub u32);

/// The kind of a file; WASI's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Kind {
    /// Something else.
    #[default]
    Unknown = 0,
    /// A block device.
    Block = 1,
    /// A character device.
    Character = 2,
    /// A directory.
    Directory = 3,
    /// A file.
    Regular = 4,
    /// A datagram socket.
    Datagram = 5,
    /// A stream socket.
    Stream = 6,
    /// A symbolic link.
    Link = 7,
}

/// The data about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stat {
    /// Number of its device.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// Its kind.
    pub kind: Kind,
    /// How many names it has.
    pub links: u64,
    /// Its length in bytes.
    pub size: u64,
    /// When it was read, written and changed, in nanoseconds of real time.
    pub times: [u64; 3],
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the call")]
pub struct How {
    /// Make it if it is not there.
    pub create: bool,
    /// It must be a directory.
    pub directory: bool,
    /// It must not be there.
    pub exclusive: bool,
    /// Empty it.
    pub truncate: bool,
    /// Follow a symbolic link at the end of the path.
    pub follow: bool,
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Do not wait.
    pub nonblocking: bool,
    /// Each write reaches the disk before it returns.
    pub synchronous: bool,
}

/// The new value of a file's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// It stays.
    Keep,
    /// The present.
    Now,
    /// This, in nanoseconds of real time.
    At(u64),
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the file.
    pub inode: u64,
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
}

/// A path, from a directory that is open. It must not lead out of that directory, neither by `..`
/// nor by a link: the system answers [`Errno::NotCapable`].
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The directory.
    pub directory: FileId,
    /// The path; neither empty nor absolute, no zero byte.
    pub path: &'a str,
}

type Answer<T> = Result<T, Errno>;

/// The services that a process gets from outside. A system without files need not say anything of them.
///
/// A system that keeps what its process says, and a process that says something:
///
/// ```
/// use sip::compile::{Options, compile};
/// use sip::exec::{Extern, Program, Store};
/// use sip::verify::verify;
/// use sip::wasi::{Errno, System, Wasi};
/// use std::{cell::RefCell, rc::Rc};
///
/// struct Notebook(Rc<RefCell<Vec<u8>>>);
///
/// impl System for Notebook {
///     fn arguments(&self) -> &[String] {
///         &[]
///     }
///     fn environment(&self) -> &[String] {
///         &[]
///     }
///     fn write(&mut self, _stream: u32, bytes: &[u8]) -> Result<usize, Errno> {
///         self.0.borrow_mut().extend_from_slice(bytes);
///         Ok(bytes.len())
///     }
///     fn read(&mut self, _stream: u32, _bytes: &mut [u8]) -> Result<usize, Errno> {
///         Ok(0) // Nothing more will come.
///     }
///     fn clock(&mut self, _clock: u32) -> Result<u64, Errno> {
///         Err(Errno::NotSupported)
///     }
///     fn random(&mut self, bytes: &mut [u8]) {
///         bytes.fill(4); // Chosen by a fair die. A real system asks for randomness here.
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let module = wat::parse_str(r#"(module
///     (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
///     (memory (export "memory") 1)
///     (data (i32.const 0) "\08\00\00\00\05\00\00\00" "hello")
///     (func (export "_start")
///         (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))))"#)?;
/// let image = compile(&module, Options::default()).map_err(|refusal| refusal.to_string())?;
/// let image = verify(image).map_err(|violation| violation.to_string())?;
/// let program = Program::load(image).map_err(|error| error.to_string())?;
///
/// let said = Rc::default();
/// let wasi = Wasi::new(Notebook(Rc::clone(&said)));
/// let mut store = Store::new().map_err(|error| error.to_string())?;
/// let module = &program.image().module;
/// // All imports must be WASI's here; 'gond sip run' also looks for channels.
/// let imports: Option<Vec<Extern>> = wasi.imports(&mut store, module).into_iter().collect();
/// let imports = imports.ok_or("an import that is not WASI's")?;
/// let instance = store.instantiate(&program, &imports).map_err(|error| error.to_string())?;
/// // Pointers that the process passes are looked up in this memory.
/// if let Some(Extern::Memory(memory)) = store.export(instance, "memory") {
///     wasi.set_memory(memory);
/// }
/// let Some(Extern::Func(start)) = store.export(instance, "_start") else {
///     return Err("no _start".into());
/// };
/// store.call(start, &[]).map_err(|trap| trap.to_string())?;
/// assert_eq!(*said.borrow(), b"hello");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Every method answers an [`Errno`], which goes to the process as it is.
#[allow(clippy::missing_errors_doc, reason = "said once, above")]
pub trait System {
    /// Arguments, the program's name first.
    fn arguments(&self) -> &[String];
    /// Environment, as `name=value`.
    fn environment(&self) -> &[String];
    /// Writes to a stream (1 or 2); the number of bytes taken.
    fn write(&mut self, descriptor: u32, bytes: &[u8]) -> Answer<usize>;
    /// Reads from a stream (0); the number of bytes given.
    fn read(&mut self, descriptor: u32, bytes: &mut [u8]) -> Answer<usize>;
    /// Nanoseconds of a clock: 0 real time, 1 monotonic.
    fn clock(&mut self, clock: u32) -> Answer<u64>;
    /// Fills with random bytes.
    fn random(&mut self, bytes: &mut [u8]);
    /// Sleeps so many nanoseconds.
    fn sleep(&mut self, nanoseconds: u64) -> Answer<()> {
        let _ = nanoseconds;
        Err(Errno::NotSupported)
    }

    /// Directories that the process has from the start, with their names.
    fn directories(&self) -> Vec<(String, FileId)> {
        Vec::new()
    }
    /// Opens a file or directory. [`Errno::NotDirectory`] for something else where [`How::directory`] is set. A directory that is
    /// opened for writing is refused with [`Errno::IsDirectory`], here or by the caller.
    fn open(&mut self, at: At<'_>, how: How) -> Answer<FileId> {
        let _ = (at, how);
        Err(Errno::NoSystemCall)
    }
    /// Closes it; its number is not used by the caller any more.
    fn close(&mut self, file: FileId) {
        let _ = file;
    }
    /// Reads from a position; 0 at the end.
    fn read_at(&mut self, file: FileId, at: u64, bytes: &mut [u8]) -> Answer<usize> {
        let _ = (file, at, bytes);
        Err(Errno::NoSystemCall)
    }
    /// Writes at a position.
    fn write_at(&mut self, file: FileId, at: u64, bytes: &[u8]) -> Answer<usize> {
        let _ = (file, at, bytes);
        Err(Errno::NoSystemCall)
    }
    /// Brings what was written to the disk.
    fn sync(&mut self, file: FileId) -> Answer<()> {
        let _ = file;
        Err(Errno::NoSystemCall)
    }
    /// The data about an open file.
    fn stat(&mut self, file: FileId) -> Answer<Stat> {
        let _ = file;
        Err(Errno::NoSystemCall)
    }
    /// The data about a path; a link at its end is followed or not.
    fn stat_path(&mut self, at: At<'_>, follow: bool) -> Answer<Stat> {
        let _ = (at, follow);
        Err(Errno::NoSystemCall)
    }
    /// Makes a file longer or shorter.
    fn set_size(&mut self, file: FileId, bytes: u64) -> Answer<()> {
        let _ = (file, bytes);
        Err(Errno::NoSystemCall)
    }
    /// Sets when a file was read and written.
    fn set_times(&mut self, file: FileId, read: Time, written: Time) -> Answer<()> {
        let _ = (file, read, written);
        Err(Errno::NoSystemCall)
    }
    /// The same, of a path.
    fn set_times_path(&mut self, at: At<'_>, follow: bool, read: Time, written: Time) -> Answer<()> {
        let _ = (at, follow, read, written);
        Err(Errno::NoSystemCall)
    }
    /// All entries of a directory, `.` and `..` first.
    fn entries(&mut self, directory: FileId) -> Answer<Vec<Entry>> {
        let _ = directory;
        Err(Errno::NoSystemCall)
    }
    /// Makes a directory.
    fn create_directory(&mut self, at: At<'_>) -> Answer<()> {
        let _ = at;
        Err(Errno::NoSystemCall)
    }
    /// Removes an empty directory.
    fn remove_directory(&mut self, at: At<'_>) -> Answer<()> {
        let _ = at;
        Err(Errno::NoSystemCall)
    }
    /// Removes a name of a file.
    fn unlink(&mut self, at: At<'_>) -> Answer<()> {
        let _ = at;
        Err(Errno::NoSystemCall)
    }
    /// Gives a file another name.
    fn rename(&mut self, from: At<'_>, to: At<'_>) -> Answer<()> {
        let _ = (from, to);
        Err(Errno::NoSystemCall)
    }
    /// Gives a file one more name.
    fn link(&mut self, from: At<'_>, to: At<'_>) -> Answer<()> {
        let _ = (from, to);
        Err(Errno::NoSystemCall)
    }
    /// Makes a symbolic link.
    fn symlink(&mut self, target: &str, at: At<'_>) -> Answer<()> {
        let _ = (target, at);
        Err(Errno::NoSystemCall)
    }
    /// The content of a symbolic link.
    fn read_link(&mut self, at: At<'_>) -> Answer<String> {
        let _ = at;
        Err(Errno::NoSystemCall)
    }
}
