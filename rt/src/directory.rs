//! Directories: names for objects.
//!
//! A name and its object are made, renamed and deleted in orders that neither a power cut nor a failure can spoil; they
//! stand in [`names::act`]. A capability goes into the root Clist, so that every later task that starts from it may use the
//! object, and its maker still may when it is no longer the maker's own. [`recover`] is what a start does after a power cut.

use alloc::{collections::BTreeSet, string::String, vec::Vec};

use abi::{
    address::{PAGE, ROOT_DIRECTORY},
    layout::Capability,
};
use names::{Entry, act, directory, path::Path};

pub use names::Kind;

use crate::{Cell, Clist, Error, Object, Rights, error::Result, object};

/// The object that a name leads to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The kind of the object.
    pub kind: Kind,
    /// The way to the object.
    pub capability: Capability,
    /// A second word, by kind ([`names::Kind`]).
    pub word: u64,
}

/// A name with what it leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// The name.
    pub name: String,
    /// The object that it leads to.
    pub found: Found,
}

/// A directory object. One writer at a time is the callers' business.
#[derive(Debug)]
pub struct Directory {
    object: Object,
}

impl Directory {
    /// The root directory.
    ///
    /// # Errors
    /// As [`Directory::open`].
    pub fn root() -> Result<Self> {
        Self::open(object::own_start().map_or(ROOT_DIRECTORY, |start| start.root_directory))
    }

    /// The directory at an address.
    ///
    /// # Errors
    /// As [`Object::open`]; not a directory.
    pub fn open(address: u64) -> Result<Self> {
        Self::of_object(Object::open(address)?)
    }

    /// The directory in an object that is open already.
    ///
    /// # Errors
    /// Not a directory.
    pub(crate) fn of_object(object: Object) -> Result<Self> {
        if object.bytes() > directory::LARGEST {
            return Err(directory::Error::TooLarge.into());
        }
        let directory = Self { object };
        directory.reach()?;
        Ok(directory)
    }

    /// Its object.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Looks a path up, from here or, if it begins with `/`, from the root.
    ///
    /// # Errors
    /// [`Error::NoSuchName`], [`Error::Path`], [`Error::WrongKind`] for a name on the way that is no
    /// directory; [`names::directory::Error::Foreign`] for one by which the caller would use an object with rights that the name does not give; the
    /// system's.
    pub fn find(&self, path: &str) -> Result<Found> {
        let (directory, name) = self.parent_of(path)?;
        directory.as_ref().unwrap_or(self).lookup_own(name)
    }

    /// As [`Directory::lookup`], but an address alone is not believed: others may write the directory, and what the caller does with the name it does
    /// with its own rights.
    fn lookup_own(&self, name: &str) -> Result<Found> {
        let found = self.lookup(name)?;
        if is_own(found.capability) {
            Ok(found)
        } else {
            Err(directory::Error::Foreign.into())
        }
    }

    /// The directory that a path's last name is looked up in (none: this one), and that name.
    ///
    /// # Errors
    /// As [`Directory::find`].
    pub fn parent_of<'p>(&self, path: &'p str) -> Result<(Option<Self>, &'p str)> {
        let path = Path::parse(path)?;
        let (before, last) = path.split_last().ok_or(Error::Path(names::PathError::Empty))?;
        let mut directory = if path.is_absolute() { Some(Self::root()?) } else { None };
        for name in before {
            let found = directory.as_ref().unwrap_or(self).lookup_own(name)?;
            if found.kind != Kind::Directory {
                return Err(Error::WrongKind(found.kind));
            }
            directory = Some(Self::open(found.capability.address)?);
        }
        Ok((directory, last))
    }

    /// The object that a path leads to, or none if there is no such name.
    ///
    /// # Errors
    /// As [`Directory::find`] and [`Object::open`].
    pub fn open_object(&self, path: &str) -> Result<Option<Object>> {
        match self.find(path) {
            Ok(found) => Ok(Some(Object::open(found.capability.address)?)),
            Err(Error::NoSuchName) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All names, in the order in which they stand there, without those that are being made or removed.
    ///
    /// # Errors
    /// Not a directory.
    pub fn list(&self) -> Result<Vec<Named>> {
        let mut all = Vec::new();
        for index in 0..self.reach()? {
            if let Some(entry) = directory::visible_entry_of(&self.entry(index)) {
                all.push(Named {
                    name: entry.name.into(),
                    found: found(entry),
                });
            }
        }
        Ok(all)
    }

    /// How many entries may be in use.
    fn reach(&self) -> Result<usize> {
        let header: [u8; 32] = self.object.copy(0);
        Ok(directory::reach_of(&header, self.object.bytes() as usize)?)
    }

    /// A copy of an entry's bytes: others may write the directory meanwhile.
    fn entry(&self, index: usize) -> [u8; directory::ENTRY_BYTES] {
        self.object.copy(Self::at(index))
    }

    fn at(index: usize) -> u64 {
        (directory::ENTRY_BYTES * (index + 1)) as u64
    }

    /// Makes a persistent object of `bytes` zero bytes under a name. `word` is the entry's second
    /// word, whose meaning depends on the kind ([`names::Kind`]): the exact length of the content for data, or 0 if that is the
    /// whole object.
    ///
    /// # Errors
    /// The name is taken or is none; as `ObjCreate` and `KeepObject`.
    pub fn create(&mut self, name: &str, kind: Kind, bytes: u64, word: u64) -> Result<Object> {
        self.check_free(name)?;
        let (mut object, password) = Object::create_with_password(bytes)?;
        if kind == Kind::Directory {
            object.with_bytes_mut(|bytes| directory::Directory::format_zeroed(bytes).map(|_| ()))?;
        }
        let capability = Capability {
            address: object.base(),
            password,
        };
        match self.publish(name, kind, capability, word) {
            Ok(()) => Ok(object),
            Err(error) => {
                // Nobody else knows it. If it cannot go, it is transient and goes with its task.
                let _ = object.delete();
                Err(error)
            }
        }
    }

    /// Makes a directory under a name.
    ///
    /// # Errors
    /// As [`Directory::create`].
    pub fn create_directory(&mut self, name: &str) -> Result<Self> {
        Ok(Self {
            object: self.create(name, Kind::Directory, 4 * PAGE, 0)?,
        })
    }

    /// Enters an object's capability in the root Clist, keeps the object, and gives it a name.
    ///
    /// # Errors
    /// The name is taken or is none; as `KeepObject`.
    pub fn publish(&mut self, name: &str, kind: Kind, capability: Capability, word: u64) -> Result<()> {
        act::publish(&mut self.acting(), &entry(name, Found { kind, capability, word }))
    }

    /// Enters a name.
    ///
    /// # Errors
    /// The name is taken or is none; as `ObjResize` when the directory has to grow.
    pub fn insert(&mut self, name: &str, found: Found) -> Result<()> {
        self.change_growing(|directory| directory.insert(&entry(name, found)))
    }

    /// Lets a name lead to something else from now on, or enters it. A name that is there waits for a checkpoint first.
    ///
    /// # Errors
    /// As [`Directory::insert`], and as `SystemControl`.
    pub fn replace(&mut self, name: &str, found: Found) -> Result<()> {
        act::replace(&mut self.acting(), &entry(name, found))
    }

    /// Gives what a name leads to another name in this directory.
    ///
    /// # Errors
    /// [`Error::NoSuchName`]; the new name is taken or is none.
    pub fn rename(&mut self, old: &str, new: &str) -> Result<()> {
        let found = self.lookup(old)?;
        act::rename(&mut self.acting(), old, &entry(new, found))
    }

    /// Takes a name away; what it stands for stays.
    ///
    /// # Errors
    /// [`Error::NoSuchName`].
    pub fn remove(&mut self, name: &str) -> Result<()> {
        self.change(|directory| directory.remove(name))
    }

    /// Takes a name away and destroys the object that it stands for. The caller says which kind it means, so that no program destroys what
    /// only bears the name.
    ///
    /// # Errors
    /// [`Error::NoSuchName`]; [`Error::WrongKind`]; a directory with names in it; as `ObjDelete`. The name stays then.
    pub fn delete(&mut self, name: &str, kind: Kind) -> Result<()> {
        let found = self.lookup(name)?;
        if found.kind != kind {
            return Err(Error::WrongKind(found.kind));
        }
        let names = match kind {
            Kind::Directory => Self::open(found.capability.address).and_then(|inner| inner.list()).ok(),
            _ => None,
        };
        if names.is_some_and(|names| !names.is_empty()) {
            return Err(directory::Error::NotEmpty.into());
        }
        act::delete(&mut self.acting(), name)
    }

    fn acting(&mut self) -> Acting<'_> {
        Acting { directory: self }
    }

    fn check_free(&self, name: &str) -> Result<()> {
        names::check_name(name)?;
        match self.lookup(name) {
            Ok(_) => Err(Error::Directory(directory::Error::Exists)),
            Err(Error::NoSuchName) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Looks a single name up, for callers that have no path to take apart. Cost: a comparison for each name before it.
    ///
    /// # Errors
    /// [`Error::NoSuchName`]; not a directory.
    pub fn lookup(&self, name: &str) -> Result<Found> {
        let region = self.object.region();
        // An entry of this name begins with its kind, which is any but 0, and the name's length.
        let begins = |index: &usize| {
            let head: Option<&Cell<[u8; 2]>> = region.at_offset(Self::at(*index));
            head.map(Cell::get)
                .is_some_and(|[kind, length]| kind != 0 && usize::from(length) == name.len())
        };
        let named = |index| {
            let bytes = self.entry(index);
            directory::visible_entry_of(&bytes)
                .filter(|entry| entry.name == name)
                .map(found)
        };
        let mut all = (0..self.reach()?).filter(begins);
        all.find_map(named).ok_or(Error::NoSuchName)
    }

    /// A change for which the object may have to be twice as large.
    fn change_growing(
        &mut self,
        mut change: impl FnMut(&mut directory::Directory<'_>) -> core::result::Result<(), directory::Error>,
    ) -> Result<()> {
        match self.change(&mut change) {
            Err(Error::Directory(directory::Error::Full)) if self.object.bytes() * 2 <= directory::LARGEST => {
                self.object.resize(self.object.bytes() * 2)?;
                self.change(change)
            }
            other => other,
        }
    }

    fn change<R>(
        &mut self,
        change: impl FnOnce(&mut directory::Directory<'_>) -> core::result::Result<R, directory::Error>,
    ) -> Result<R> {
        Ok(self.object.with_bytes_mut(|bytes| {
            directory::Directory::open_mut(bytes).and_then(|mut directory| change(&mut directory))
        })?)
    }
}

/// A directory in the middle of an act.
struct Acting<'a> {
    directory: &'a mut Directory,
}

impl act::System for Acting<'_> {
    type Error = Error;

    fn change(
        &mut self,
        change: &mut dyn FnMut(&mut directory::Directory<'_>) -> core::result::Result<(), directory::Error>,
    ) -> Result<()> {
        self.directory.change_growing(change)
    }

    fn make_room(&mut self, entry: &directory::Marked) -> Result<()> {
        let at = Directory::at(entry.index);
        self.directory.object.rewrite(at..at + directory::ENTRY_BYTES as u64);
        Clist::root()?.make_room_without(entry.capability.address)
    }

    fn flush(&mut self) -> Result<()> {
        match self.directory.object.flush() {
            // An object that is not kept is not there after a power cut, and needs no order.
            Ok(()) | Err(abi::Error::NotPersistent) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn flush_all(&mut self) -> Result<()> {
        match crate::system::checkpoint() {
            // A program that may not ask for a checkpoint has no name of the root's to lose.
            Ok(()) | Err(abi::Error::Protection) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn is_there(&mut self, address: u64) -> bool {
        match crate::call::obj_info_used(address) {
            // A transient object has the address of one that is gone: after a start such addresses are used again.
            Ok(info) => info.flags & abi::layout::OBJECT_PERSISTENT != 0,
            Err(error) => error != abi::Error::BadAddress,
        }
    }

    fn is_own(&mut self, capability: Capability) -> bool {
        is_own(capability)
    }

    fn gives_right(&mut self, capability: Capability) -> bool {
        granting(capability.address).any(|granted| capability_at(granted) == Some(capability))
    }

    fn keep(&mut self, address: u64) -> Result<()> {
        Ok(crate::call::keep_object(address)?)
    }

    fn delete(&mut self, address: u64) -> Result<()> {
        match crate::call::obj_delete(address) {
            // An object that is gone already must not keep its name alive.
            Ok(()) | Err(abi::Error::BadAddress) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn enter(&mut self, capability: Capability) -> Result<()> {
        Clist::root()?.insert(capability)?;
        if granting(capability.address).next().is_none() {
            Clist::root()?.remove(capability)?;
        }
        Ok(())
    }

    fn leave(&mut self, address: u64) -> Result<()> {
        Clist::root()?.remove_all(address).map(|_| ())
    }
}

/// Whether the caller has the object of a capability by this one, or not at all.
fn is_own(capability: Capability) -> bool {
    let listed = Clist::root().and_then(|root| root.lists(capability));
    if listed == Ok(Some(true)) {
        return true;
    }
    // By another Clist, or because the caller made it.
    let first = granting(capability.address).next();
    first.is_none_or(|granted| capability_at(granted) == Some(capability))
}

/// The addresses of the capabilities by which the caller has its rights on the object at an address; 0 if it made the object.
fn granting(address: u64) -> impl Iterator<Item = u64> {
    let rights = [Rights::R, Rights::W, Rights::X, Rights::D, Rights::P];
    let lookup = move |rights: Rights| crate::call::apd_lookup(address, rights.bits().into()).ok();
    rights.into_iter().filter_map(lookup)
}

/// The capability at an address in a Clist.
fn capability_at(address: u64) -> Option<Capability> {
    let clist = Object::open(address).ok()?;
    let record = clist.region().at_offset::<Cell<[u64; 2]>>(address - clist.base())?;
    Some(Capability::from_words(record.get()))
}

/// Entries that a start reads in directories whose capabilities the root Clist did not have: those of new directories, or a stranger's.
const STRANGE_ENTRIES: usize = 4096;

/// What [`recover`] did about names.
#[derive(Copy, Clone, Debug, Default)]
pub struct Recovery {
    /// Names that went.
    pub went: u64,
    /// Why some are left as they were: the disk fails or is full, or memory is short.
    pub left: Option<Error>,
}

/// Finishes or takes back what a power cut left of acts on names, in all directories that the root leads to. Directories that
/// cannot be read are passed over, and those of strangers behind the first [`STRANGE_ENTRIES`] of their entries.
///
/// # Errors
/// The root directory or the root Clist is none.
pub fn recover() -> Result<Recovery> {
    let root = Directory::root()?;
    let capabilities = Clist::root()?.capabilities()?;
    let own: BTreeSet<_> = capabilities.iter().map(Capability::to_words).collect();
    let mut seen = BTreeSet::from([root.object.base()]);
    let mut waiting = Vec::from([root]);
    let (mut recovery, mut left) = (Recovery::default(), STRANGE_ENTRIES);
    while let Some(mut directory) = waiting.pop() {
        match act::recover(&mut directory.acting()) {
            Ok(went) => recovery.went += went,
            Err(error @ Error::System(abi::Error::DiskError | abi::Error::DiskFull | abi::Error::NoMemory)) => {
                recovery.left = Some(error);
            }
            Err(_) => {}
        }
        let Ok(names) = directory.list() else { continue };
        for Named { found, .. } in names {
            if found.kind != Kind::Directory || seen.contains(&found.capability.address) {
                continue;
            }
            let Ok(below) = Directory::open(found.capability.address) else {
                continue;
            };
            if !own.contains(&found.capability.to_words()) {
                // An address inside one is not another one.
                let Some(less) = below.reach().ok().and_then(|reach| left.checked_sub(reach + 1)) else {
                    continue;
                };
                left = less;
            }
            if seen.insert(below.object.base()) {
                waiting.push(below);
            }
        }
    }
    // Shelves that cannot be read are passed over, too.
    let _ = crate::module::shelf::settle();
    Ok(recovery)
}

fn found(entry: Entry<'_>) -> Found {
    Found {
        kind: entry.kind,
        capability: entry.capability,
        word: entry.word,
    }
}

fn entry(name: &str, found: Found) -> Entry<'_> {
    Entry {
        name,
        kind: found.kind,
        capability: found.capability,
        word: found.word,
    }
}
