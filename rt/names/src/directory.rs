//! A directory: a header and fixed entries of 128 bytes, over the bytes of an object.
//!
//! An entry's first byte, its kind, says whether it is in use, and one byte is written whole. Hence
//! the discipline: an insert fills the entry, then moves the header's *reach* past it, and writes the
//! kind last; a remove clears the kind first; a replace inserts the new entry and then removes the
//! old. Whatever moment a checkpoint catches, each name leads to its old or its new capability.
//! Only after a crash inside a replace are there two entries of one name; the first counts, and the
//! next replace or remove of that name clears the rest.
//!
//! An entry carries a [`Mark`] while its name and its object could part in a power cut; [`crate::act`] has the order of
//! these marks and what a start makes of those that it finds.
//!
//! One writer at a time is the caller's duty. Entries that make no sense are passed over by lookups
//! and told by [`DirectoryView::faults`].

mod mark;

pub use mark::{Mark, Marked};

use crate::bytes::{in_order, set_word, word};
use crate::path::{NAME_BYTES, PathError, check_name};
use abi::layout::Capability;

/// Marks a directory: `GONDNAME`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"GONDNAME");
/// The version of the format.
pub const VERSION: u64 = 1;
/// Bytes of an entry, and of the header.
pub const ENTRY_BYTES: usize = 128;
/// The longest object that is read as a directory, in bytes: whoever may make one longer must not make its readers stall.
pub const LARGEST: u64 = 16 << 20;

const VERSION_AT: usize = 8;
const REACH_AT: usize = 16;

const KIND_AT: usize = 0;
const LENGTH_AT: usize = 1;
const MARK_AT: usize = 2;
const ADDRESS_AT: usize = 8;
const PASSWORD_AT: usize = 16;
const WORD_AT: usize = 24;
const NAME_AT: usize = 32;
/// Kind of an entry that is not in use.
const FREE: u8 = 0;

/// The kind of object that a name stands for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Another directory. The second word is zero.
    Directory = 1,
    /// A program image. The second word is its length in bytes, without padding.
    Program = 2,
    /// Any other object. The second word is the exact length of its content in bytes, or zero if
    /// the content is the whole object.
    Data = 3,
    /// A Clist. The second word is zero.
    Clist = 4,
    /// A protected procedure: the password is that of a PDX capability, the second word the address of
    /// its entry point.
    Service = 5,
    /// A module that was installed (`docs/modules.md`). The second word is its length in bytes.
    Module = 6,
}

impl Kind {
    /// From its byte.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Directory,
            2 => Self::Program,
            3 => Self::Data,
            4 => Self::Clist,
            5 => Self::Service,
            6 => Self::Module,
            _ => return None,
        })
    }

    /// A word for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Program => "program",
            Self::Data => "data",
            Self::Clist => "clist",
            Self::Service => "service",
            Self::Module => "module",
        }
    }
}

/// An entry, as it is read and written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// The name.
    pub name: &'a str,
    /// The kind of the object.
    pub kind: Kind,
    /// The way to the object; its address is the object's base.
    pub capability: Capability,
    /// A second word, whose meaning depends on the kind.
    pub word: u64,
}

/// Why a directory could not be opened or changed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The object is no directory.
    NotADirectory,
    /// The directory is of a version unknown here.
    UnknownVersion(u64),
    /// The object is too small for a header and one entry.
    TooSmall,
    /// The object is longer than [`LARGEST`].
    TooLarge,
    /// The name cannot stand in a directory.
    BadName(PathError),
    /// The name is taken.
    Exists,
    /// The name is not there.
    NotFound,
    /// All entries are in use: make the object longer.
    Full,
    /// Names are left in it.
    NotEmpty,
    /// The name leads to an object that the caller has by another capability alone.
    Foreign,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotADirectory => f.write_str("this object is not a directory"),
            Self::UnknownVersion(version) => write!(f, "directory version {version} is unknown"),
            Self::TooSmall => f.write_str("the object is too small for a directory"),
            Self::TooLarge => write!(
                f,
                "the object is too large for a directory: {LARGEST} bytes are the most"
            ),
            Self::BadName(error) => error.fmt(f),
            Self::Exists => f.write_str("the name is taken"),
            Self::NotFound => f.write_str("there is no such name"),
            Self::Full => f.write_str("the directory is full"),
            Self::NotEmpty => f.write_str("the directory is not empty"),
            Self::Foreign => f.write_str(
                "somebody else has written this name: it leads to an object of yours by a password that is not yours",
            ),
        }
    }
}

impl core::error::Error for Error {}

/// An entry that makes no sense, as told by [`DirectoryView::faults`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The kind at this index is unknown.
    UnknownKind(usize, u8),
    /// The name at this index is not a name.
    BadName(usize),
    /// The name at this index stands also before it.
    Repeated(usize),
    /// The header says that more entries may be in use than fit.
    BadReach(u64),
    /// An entry is in use behind the header's reach.
    BehindReach(usize),
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::UnknownKind(index, kind) => write!(f, "entry {index} is of unknown kind {kind}"),
            Self::BadName(index) => write!(f, "the name of entry {index} is not a name"),
            Self::Repeated(index) => write!(f, "the name of entry {index} stands there twice"),
            Self::BadReach(reach) => write!(f, "the header's reach of {reach} entries does not fit the object"),
            Self::BehindReach(index) => write!(f, "entry {index} is in use behind the header's reach"),
        }
    }
}

/// A directory that can be read.
#[derive(Copy, Clone, Debug)]
pub struct DirectoryView<'a> {
    bytes: &'a [u8],
}

impl<'a> DirectoryView<'a> {
    /// Opens the bytes of an object.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], [`Error::UnknownVersion`] or [`Error::TooSmall`].
    pub fn open(bytes: &'a [u8]) -> Result<Self, Error> {
        check_header(bytes)?;
        Ok(Self { bytes })
    }

    /// How many entries the object has room for.
    pub fn capacity(&self) -> usize {
        capacity(self.bytes)
    }

    /// How many names are there.
    pub fn count(&self) -> usize {
        self.iter().count()
    }

    /// The entry of `name`.
    pub fn lookup(&self, name: &str) -> Option<Entry<'a>> {
        self.position(name).and_then(|index| entry(self.bytes, index))
    }

    /// All entries that make sense, in the order of the object.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let bytes = self.bytes;
        (0..reach(bytes))
            .filter(move |index| !mark::of(bytes, *index).is_hidden())
            .filter_map(move |index| entry(bytes, index))
    }

    /// All faults of the directory.
    pub fn faults(&self) -> impl Iterator<Item = Fault> + use<'a> {
        let view = *self;
        let stored = word(view.bytes, REACH_AT);
        let header = (stored > view.capacity() as u64).then_some(Fault::BadReach(stored));
        header
            .into_iter()
            .chain((0..view.capacity()).filter_map(move |index| view.fault(index)))
    }

    fn fault(&self, index: usize) -> Option<Fault> {
        let kind = kind_byte(self.bytes, index);
        if kind == FREE || mark::of(self.bytes, index).is_hidden() {
            return None;
        }
        if index >= reach(self.bytes) {
            return Some(Fault::BehindReach(index));
        }
        if Kind::from_byte(kind).is_none() {
            return Some(Fault::UnknownKind(index, kind));
        }
        let Some(found) = entry(self.bytes, index) else {
            return Some(Fault::BadName(index));
        };
        (self.position(found.name) != Some(index)).then_some(Fault::Repeated(index))
    }

    fn position(&self, name: &str) -> Option<usize> {
        (0..reach(self.bytes)).find(|&index| is_named(self.bytes, index, name))
    }
}

/// A directory that can be changed. One writer at a time is the caller's duty.
#[derive(Debug)]
pub struct Directory<'a> {
    bytes: &'a mut [u8],
}

impl<'a> Directory<'a> {
    /// Makes an empty directory of the bytes, whatever they held.
    ///
    /// # Errors
    /// [`Error::TooSmall`].
    pub fn format(bytes: &'a mut [u8]) -> Result<Self, Error> {
        if capacity(bytes) == 0 {
            return Err(Error::TooSmall);
        }
        // The magic goes first and comes back last: half a format is no directory.
        set_word(bytes, 0, 0);
        in_order();
        for index in 0..capacity(bytes) {
            set_kind(bytes, index, FREE);
        }
        set_word(bytes, VERSION_AT, VERSION);
        if let Some(rest) = bytes.get_mut(REACH_AT..ENTRY_BYTES) {
            rest.fill(0);
        }
        in_order();
        set_word(bytes, 0, MAGIC);
        Ok(Self { bytes })
    }

    /// Makes an empty directory of bytes that are all zero, as those of a new object are: writes
    /// (and so touches) only the first page.
    ///
    /// # Errors
    /// [`Error::TooSmall`].
    pub fn format_zeroed(bytes: &'a mut [u8]) -> Result<Self, Error> {
        if capacity(bytes) == 0 {
            return Err(Error::TooSmall);
        }
        set_word(bytes, VERSION_AT, VERSION);
        in_order();
        set_word(bytes, 0, MAGIC);
        Ok(Self { bytes })
    }

    /// Opens the bytes of an object for reading.
    ///
    /// # Errors
    /// As [`DirectoryView::open`].
    pub fn open(bytes: &[u8]) -> Result<DirectoryView<'_>, Error> {
        DirectoryView::open(bytes)
    }

    /// Opens the bytes of an object for change.
    ///
    /// # Errors
    /// As [`DirectoryView::open`].
    pub fn open_mut(bytes: &'a mut [u8]) -> Result<Self, Error> {
        check_header(bytes)?;
        Ok(Self { bytes })
    }

    /// The directory for reading.
    pub fn view(&self) -> DirectoryView<'_> {
        DirectoryView { bytes: self.bytes }
    }

    /// The entry of `name`.
    pub fn lookup(&self, name: &str) -> Option<Entry<'_>> {
        self.view().lookup(name)
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// [`Error::BadName`], [`Error::Exists`], [`Error::Full`].
    pub fn insert(&mut self, new: &Entry<'_>) -> Result<(), Error> {
        check_name(new.name).map_err(Error::BadName)?;
        if self.view().position(new.name).is_some() {
            return Err(Error::Exists);
        }
        self.add(new, Mark::Settled).map(|_| ())
    }

    /// Adds an entry, or puts it in place of the one that bears its name. Needs one free entry
    /// either way.
    ///
    /// # Errors
    /// [`Error::BadName`], [`Error::Full`].
    pub fn replace(&mut self, new: &Entry<'_>) -> Result<(), Error> {
        check_name(new.name).map_err(Error::BadName)?;
        let added = self.add(new, Mark::Settled)?;
        self.clear(new.name, Some(added));
        Ok(())
    }

    /// Takes a name away; the object it stands for is untouched.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn remove(&mut self, name: &str) -> Result<(), Error> {
        if self.clear(name, None) {
            Ok(())
        } else {
            Err(Error::NotFound)
        }
    }

    /// Writes an entry to the first free place and tells which.
    fn add(&mut self, new: &Entry<'_>, mark: Mark) -> Result<usize, Error> {
        let free = |index: &usize| kind_byte(self.bytes, *index) == FREE;
        let index = (0..capacity(self.bytes)).find(free).ok_or(Error::Full)?;
        let at = ENTRY_BYTES * (index + 1);
        let place = self.bytes.get_mut(at..at + ENTRY_BYTES).ok_or(Error::Full)?;
        place.fill(0);
        if let Some(text) = place.get_mut(NAME_AT..NAME_AT + new.name.len()) {
            text.copy_from_slice(new.name.as_bytes());
        }
        set_word(place, ADDRESS_AT, new.capability.address);
        set_word(place, PASSWORD_AT, new.capability.password);
        set_word(place, WORD_AT, new.word);
        if let Some(length) = place.get_mut(LENGTH_AT) {
            *length = new.name.len() as u8;
        }
        if let Some(byte) = place.get_mut(MARK_AT) {
            *byte = mark as u8;
        }
        in_order();
        if index >= reach(self.bytes) {
            set_word(self.bytes, REACH_AT, index as u64 + 1);
        }
        in_order();
        set_kind(self.bytes, index, new.kind as u8);
        Ok(index)
    }

    /// Frees all entries of `name` but `except`; tells whether there were any.
    fn clear(&mut self, name: &str, except: Option<usize>) -> bool {
        let mut found = false;
        for index in 0..reach(self.bytes) {
            if Some(index) != except && is_named(self.bytes, index, name) {
                set_kind(self.bytes, index, FREE);
                found = true;
            }
        }
        found
    }
}

/// How many entries of a directory that is so long may be in use, whatever its header claims. With [`entry_of`] for readers
/// who copy the header and each entry out of memory that others may write.
///
/// # Errors
/// As [`DirectoryView::open`].
pub fn reach_of(header: &[u8], bytes: usize) -> Result<usize, Error> {
    let capacity = (bytes / ENTRY_BYTES).saturating_sub(1);
    if capacity == 0 {
        return Err(Error::TooSmall);
    }
    if word(header, 0) != MAGIC {
        return Err(Error::NotADirectory);
    }
    match word(header, VERSION_AT) {
        VERSION => Ok(usize::try_from(word(header, REACH_AT))
            .unwrap_or(usize::MAX)
            .min(capacity)),
        other => Err(Error::UnknownVersion(other)),
    }
}

fn check_header(bytes: &[u8]) -> Result<(), Error> {
    reach_of(bytes, bytes.len()).map(|_| ())
}

fn capacity(bytes: &[u8]) -> usize {
    (bytes.len() / ENTRY_BYTES).saturating_sub(1)
}

/// How many entries may be in use, whatever the header claims.
fn reach(bytes: &[u8]) -> usize {
    usize::try_from(word(bytes, REACH_AT))
        .unwrap_or(usize::MAX)
        .min(capacity(bytes))
}

fn kind_byte(bytes: &[u8], index: usize) -> u8 {
    bytes.get(ENTRY_BYTES * (index + 1) + KIND_AT).copied().unwrap_or(FREE)
}

fn set_kind(bytes: &mut [u8], index: usize, kind: u8) {
    if let Some(place) = bytes.get_mut(ENTRY_BYTES * (index + 1) + KIND_AT) {
        *place = kind;
    }
}

// Entries that were read: what an act costs.
#[cfg(test)]
std::thread_local!(pub(crate) static READ: core::cell::Cell<u64> = const { core::cell::Cell::new(0) });

/// The bytes of an entry.
fn place(bytes: &[u8], index: usize) -> Option<&[u8]> {
    #[cfg(test)]
    READ.set(READ.get() + 1);
    let at = ENTRY_BYTES * (index + 1);
    bytes.get(at..at + ENTRY_BYTES)
}

fn entry(bytes: &[u8], index: usize) -> Option<Entry<'_>> {
    entry_of(place(bytes, index)?)
}

/// The entry in these bytes, if it is in use, makes sense and is not hidden: for readers who copy one entry after the other.
pub fn visible_entry_of(place: &[u8]) -> Option<Entry<'_>> {
    entry_of(place).filter(|_| !mark::of_entry(place).is_hidden())
}

/// The entry in these bytes, if it is in use and makes sense.
fn entry_of(place: &[u8]) -> Option<Entry<'_>> {
    let kind = Kind::from_byte(*place.get(KIND_AT)?)?;
    let length = usize::from(*place.get(LENGTH_AT)?);
    if length > NAME_BYTES {
        return None;
    }
    let name = core::str::from_utf8(place.get(NAME_AT..NAME_AT + length)?).ok()?;
    check_name(name).ok()?;
    let capability = Capability {
        address: word(place, ADDRESS_AT),
        password: word(place, PASSWORD_AT),
    };
    Some(Entry {
        name,
        kind,
        capability,
        word: word(place, WORD_AT),
    })
}

/// Whether the entry at `index` is in use and bears `name`. Compares bytes before it decodes.
fn is_named(bytes: &[u8], index: usize, name: &str) -> bool {
    let Some(place) = place(bytes, index) else {
        return false;
    };
    if place.get(KIND_AT) == Some(&FREE)
        || mark::of(bytes, index).is_hidden()
        || place.get(LENGTH_AT).copied().map(usize::from) != Some(name.len())
    {
        return false;
    }
    place.get(NAME_AT..NAME_AT + name.len()) == Some(name.as_bytes()) && entry(bytes, index).is_some()
}

#[cfg(test)]
mod tests;
