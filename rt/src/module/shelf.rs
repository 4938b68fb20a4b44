//! The shelf: where installed modules are found by name.
//!
//! The directory `/modules` has two names for a module: `NAME-VERSION` for each version, for ever, and `NAME` for the
//! newest. Both lead to the module object with a capability to read and execute, which the root Clist has too. The
//! right to destroy stands in a Clist of its own, `/modules/owners`, which only [`remove`] takes into its domain: so
//! nobody destroys a module by a mistaken address or by `rm`, and [`remove`] asks the kernel to destroy only what no other
//! domain has (`ObjRetire`).
//!
//! A module is checked before it is installed, whoever made it. An installed one is sealed by page limits and trusted to be
//! what was checked; that is why a task reads no more than the header before it uses it.

use alloc::{format, string::String, string::ToString, vec::Vec};

use abi::{
    address::{PAGE, pages_for},
    layout::Capability,
    start::{MODULE_START_MAGIC, ModuleStart},
};
use linker::module::{Fault, Module, fault::Cause, format as objects, format::Part};

use super::{Error, Result};
use crate::{
    Clist, Directory, Kind, Object, Rights, call,
    directory::{Found, Named},
    object::instance::sealed,
};

/// The directory's name in the root directory.
pub const DIRECTORY: &str = "modules";
/// The name in it of the Clist with the rights to destroy.
const OWNERS: &str = "owners";

/// Bytes of a file that are looked at before it is copied.
const FIRST_BYTES: usize = 8;

/// The module in which programs begin that are modules ...
const RUNTIME: &str = "rt";
/// ... and where in it.
const RUNTIME_ENTRY: &str = "rt_start";

/// The directory of modules, if anything was ever installed.
fn directory() -> Result<Option<Directory>> {
    match Directory::root()?.lookup(DIRECTORY) {
        Ok(found) if found.kind == Kind::Directory => Ok(Some(Directory::open(found.capability.address)?)),
        Ok(found) => Err(crate::Error::WrongKind(found.kind).into()),
        Err(crate::Error::NoSuchName) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The shelf as a table of instances sees it: the directory is found once, and then asked for each module.
#[derive(Debug, Default)]
pub(super) struct Shelf(Option<Directory>);

impl Shelf {
    /// Not looked for yet.
    pub(super) const fn new() -> Self {
        Self(None)
    }

    /// Found already: the object with the directory.
    #[cfg(all(target_os = "none", feature = "module"))]
    pub(super) fn at(directory: Object) -> Self {
        // Where it is none, it is looked for when it is needed.
        Self(Directory::of_object(directory).ok())
    }

    /// As [`find`], but the directory is opened only once.
    pub(super) fn find(&mut self, name: &str) -> Result<Module<'static>> {
        if let Some(directory) = &self.0 {
            match module_in(directory, name) {
                // It may have grown, or be another one, since it was opened.
                Err(Error::Missing { .. } | Error::Runtime(_)) => {}
                found => return found,
            }
        }
        self.0 = directory()?;
        module_in(self.0.as_ref().ok_or_else(|| missing(name))?, name)
    }
}

fn missing(name: &str) -> Error {
    Error::Missing {
        module: name.to_string(),
        symbol: String::new(),
        by: String::new(),
    }
}

/// An entry of the directory of modules.
fn found_in(directory: &Directory, name: &str) -> Result<Found> {
    match directory.lookup(name) {
        Ok(found) if found.kind == Kind::Module => Ok(found),
        Ok(found) => Err(crate::Error::WrongKind(found.kind).into()),
        Err(crate::Error::NoSuchName) => Err(missing(name)),
        Err(error) => Err(error.into()),
    }
}

/// The module of a name in the directory of modules. The entry has its address and its length, so nobody else is
/// asked; what the first page holds is compared with both.
fn module_in(directory: &Directory, name: &str) -> Result<Module<'static>> {
    let found = found_in(directory, name)?;
    sealed_at(name, found.capability.address, found.word)
}

/// The installed module at an address, so many bytes long. The name is for messages.
pub(super) fn sealed_at(name: &str, address: u64, bytes: u64) -> Result<Module<'static>> {
    let module = Module::open_header(name, sealed(address, bytes))?;
    in_its_place(name, address, &module)?;
    Ok(module)
}

/// The module that a name on the shelf leads to.
///
/// # Errors
/// [`Error::Missing`]; something else has this name.
pub fn look_up(name: &str) -> Result<Found> {
    found_in(&directory()?.ok_or_else(|| missing(name))?, name)
}

/// The newest version of a module, or with `NAME-VERSION` that one. Cost: two directories opened and searched, the object
/// asked for, and the reading of a header.
///
/// # Errors
/// As [`look_up`]; [`Error::LeadsNowhere`]; damaged.
pub fn find(name: &str) -> Result<Module<'static>> {
    module_of(name, look_up(name)?)
}

/// The module that a name leads to, if there still is one: reading what is gone would be a fault.
fn module_of(name: &str, found: Found) -> Result<Module<'static>> {
    match Object::open(found.capability.address) {
        Ok(object) if object.base() == found.capability.address && object.bytes() >= found.word => {
            sealed_at(name, object.base(), found.word)
        }
        Ok(_) => Err(Fault::file(name, Cause::BadModule("its address is not the object's")).into()),
        Err(abi::Error::BadAddress) => Err(Error::LeadsNowhere(name.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// The module at an address, whoever put it there: all of it is checked.
///
/// # Errors
/// As `ObjInfo`; damaged.
pub fn at(address: u64) -> Result<Module<'static>> {
    let object = Object::open(address)?;
    let name = format!("{:#x}", object.base());
    let module = Module::open(&name, sealed(object.base(), object.bytes()))?;
    in_its_place(&name, object.base(), &module)?;
    Ok(module)
}

/// How an installed module begins as a program: in the module [`RUNTIME`], which makes its instance and calls `main`.
pub(crate) fn program(name: &str) -> Result<ModuleStart> {
    let directory = directory()?.ok_or_else(|| missing(name))?;
    let module = found_in(&directory, name)?;
    let runtime = module_in(&directory, RUNTIME)?;
    let entry = runtime
        .value_of(RUNTIME_ENTRY)
        .filter(|value| value & objects::PRIVATE == 0);
    let entry = entry.ok_or_else(|| Error::NoExport {
        module: RUNTIME.to_string(),
        symbol: RUNTIME_ENTRY.to_string(),
    })?;
    Ok(ModuleStart {
        jump: call::JUMP_TO_NEXT,
        entry: objects::resolve(entry, 0),
        magic: MODULE_START_MAGIC,
        module: module.capability.address,
        module_bytes: module.word,
        shelf: directory.object().base(),
        shelf_bytes: directory.object().bytes(),
        flags: 0,
    })
}

fn in_its_place(name: &str, address: u64, module: &Module<'_>) -> Result<()> {
    if module.address == address {
        Ok(())
    } else {
        Err(Fault::file(name, Cause::BadModule("its address is not the object's")).into())
    }
}

/// All names on the shelf that lead to modules.
///
/// # Errors
/// As [`Directory::list`].
pub fn list() -> Result<Vec<Named>> {
    let Some(directory) = directory()? else {
        return Ok(Vec::new());
    };
    let mut all = directory.list()?;
    all.retain(|named| named.found.kind == Kind::Module);
    Ok(all)
}

/// Where an instruction of an installed module is, for messages: `; in lua_next+0x1c of lua-5.4.7`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The module's long name.
    pub module: String,
    /// The function; empty before the first.
    pub function: String,
    /// Bytes from the start of the function, or of the module.
    pub offset: u64,
}

impl core::fmt::Display for Place {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.function.is_empty() {
            return write!(f, "; in {}+{:#x}", self.module, self.offset);
        }
        write!(f, "; in {}+{:#x} of {}", self.function, self.offset, self.module)
    }
}

/// The function of an installed module in which an instruction lies, if it lies in one. The address may be anything: it is
/// only compared. Cost: the shelf read, and the module's symbols.
pub fn place_of(instruction: u64) -> Option<Place> {
    let within = |named: &Named| {
        let start = named.found.capability.address;
        (start..start.saturating_add(named.found.word)).contains(&instruction)
    };
    let named = list().ok()?.into_iter().find(within)?;
    let module = find(&named.name).ok()?;
    let symbols = module.symbols();
    let last = symbols
        .partition_point(|symbol| symbol.address <= instruction)
        .checked_sub(1);
    let symbol = last.and_then(|last| symbols.get(last));
    Some(Place {
        module: format!("{}-{}", module.name(), module.version()),
        function: symbol.map_or_else(String::new, |symbol| symbol.name.to_string()),
        offset: instruction - symbol.map_or(module.address, |symbol| symbol.address),
    })
}

/// Installs a module object from its file's bytes: checks it, moves it to the address of a new object, seals that, and
/// gives it its names; tells them. `file` is only for messages.
///
/// # Errors
/// Damaged, with what is wrong; [`Error::Installed`]; [`Error::LeadsNowhere`]; the newest version exports what this one does not, so that it
/// could not take its place; as `ObjCreate`, `PageLimit` and `KeepObject`.
pub fn install(file: &str, bytes: &[u8]) -> Result<String> {
    let module = Module::open(file, bytes)?;
    let (name, version) = (module.name().to_string(), module.version().to_string());
    let full = format!("{name}-{version}");
    match look_up(&full) {
        Err(Error::Missing { .. }) => {}
        Ok(found) => {
            if let Some(mut directory) = directory()? {
                lead(&mut directory, &name)?;
            }
            return Err(match module_of(&full, found) {
                Err(gone @ Error::LeadsNowhere(_)) => gone,
                _ => Error::Installed(full),
            });
        }
        Err(error) => return Err(error),
    }
    match find(&name) {
        Ok(newest) => serves_clients_of(&module, &newest)?,
        Err(Error::Missing { .. }) => {}
        Err(error) => return Err(error),
    }
    crate::names::check_name(&full)?;
    let mut directory = match directory()? {
        Some(directory) => directory,
        None => Directory::root()?.create_directory(DIRECTORY)?,
    };
    let mut owners = match directory.find(OWNERS) {
        Ok(found) => Clist::open(found.capability.address)?,
        Err(crate::Error::NoSuchName) => {
            let mut object = directory.create(OWNERS, Kind::Clist, PAGE, 0)?;
            object.with_bytes_mut(|bytes| crate::names::clist::Clist::format(bytes).map(|_| ()))?;
            Clist::of_object(object)
        }
        Err(error) => return Err(error.into()),
    };
    let length = bytes.len() as u64;
    let (mut object, owner) = Object::create_with_password(length)?;
    let base = object.base();
    let made = object
        .with_bytes_mut(|place| {
            let place = place.get_mut(..bytes.len()).unwrap_or_default();
            place.copy_from_slice(bytes);
            objects::move_to(file, place, base)
        })
        .map_err(Error::from)
        .and_then(|()| seal(&object, &module));
    if let Err(error) = made {
        object.delete()?;
        return Err(error);
    }
    let password = object.grant(Rights::RX)?;
    let owner = Capability {
        address: base,
        password: owner,
    };
    let capability = Capability {
        address: base,
        password,
    };
    // A power cut leaves a right to an object without a name, or a long name alone: `settle` knows both.
    owners.insert(owner)?;
    if let Err(error) = directory.publish(&full, Kind::Module, capability, length) {
        forget(owners.object().base(), base)?;
        object.delete()?;
        return Err(error.into());
    }
    directory.replace(
        &name,
        Found {
            kind: Kind::Module,
            capability,
            word: length,
        },
    )?;
    // The rights of the maker go: this domain has from now on what everybody has.
    call::apd_flush()?;
    Ok(full)
}

/// Lets the short name of a module lead to the version that was installed last, by the clock, or to nothing if there is none.
fn lead(directory: &mut Directory, short: &str) -> Result<()> {
    let before = format!("{short}-");
    let others = list()?.into_iter().filter(|named| named.name.starts_with(&before));
    let versions = others.filter(|named| find(&named.name).is_ok_and(|one| one.name() == short));
    let installed = |named: &Named| call::obj_info(named.found.capability.address).map_or(0, |info| info.created_ns);
    let leads = directory.lookup(short).map(|found| found.capability.address);
    match versions.max_by_key(installed) {
        Some(newest) if leads == Ok(newest.found.capability.address) => Ok(()),
        Some(newest) => Ok(directory.replace(short, newest.found)?),
        None if leads.is_ok() => Ok(directory.remove(short)?),
        None => Ok(()),
    }
}

/// Finishes what a power cut left of [`install`] and [`remove`]: every short name leads to the version installed last, and a module
/// that has no name but the short one goes. For the start, when nobody else is at it.
///
/// # Errors
/// As [`remove`].
pub fn settle() -> Result<()> {
    let Some(mut directory) = directory()? else {
        return Ok(());
    };
    let (mut stay, mut shorts) = (Vec::new(), Vec::new());
    for named in list()? {
        let found = named.found;
        // A module that cannot be read stays: it is damaged, and no cut did that.
        let Ok(module) = module_of(&named.name, found) else {
            stay.push(found.capability.address);
            continue;
        };
        // A removal leaves the short name for the last, so a module with any other is not being removed.
        if named.name != module.name() {
            stay.push(found.capability.address);
        }
        shorts.push(module.name().to_string());
    }
    shorts.sort_unstable();
    shorts.dedup();
    for short in shorts {
        lead(&mut directory, &short)?;
    }
    let owners = directory.find(OWNERS)?.capability.address;
    let mut nameless = Clist::open(owners)?.capabilities()?;
    nameless.retain(|one| !stay.contains(&one.address));
    for one in nameless {
        match retire(owners, one.address) {
            Ok(()) | Err(abi::Error::BadAddress) => forget(owners, one.address)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Destroys a module, with the right that stands in the Clist of owners, if no other domain has it.
fn retire(owners: u64, base: u64) -> core::result::Result<(), abi::Error> {
    call::apd_insert(0, owners)?;
    let retired = call::obj_retire(base);
    call::apd_delete(0)?;
    call::apd_flush()?;
    retired
}

/// Drops the rights to a module that is gone.
fn forget(owners: u64, base: u64) -> Result<()> {
    Clist::root()?.remove_all(base)?;
    Clist::open(owners)?.remove_all(base)?;
    Ok(())
}

/// Installs the module object that a name from the root directory leads to: a file, as `gond import` brings it.
///
/// # Errors
/// As [`Directory::find`] and [`install`]; not a module by its first bytes, or too long for one.
pub fn install_file(name: &str) -> Result<String> {
    let found = Directory::root()?.find(name)?;
    if found.kind != Kind::Data {
        return Err(crate::Error::WrongKind(found.kind).into());
    }
    let object = Object::open(found.capability.address)?;
    let length = if found.word > 0 { found.word } else { object.bytes() };
    // An object may be longer than all memory.
    Module::begins(name, &object.copy::<FIRST_BYTES>(0), length)?;
    // A copy: others may write the file at any time, but not between the check and the use.
    let cells = object.region().cells().iter().take(length as usize);
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(cells.len()).map_err(|_| abi::Error::NoMemory)?;
    bytes.extend(cells.map(crate::Cell::get));
    install(name, &bytes)
}

/// Limits the pages of a module object: text to be read and executed, the rest to be read.
fn seal(object: &Object, module: &Module<'_>) -> Result<()> {
    let (text, end) = (module.part_at(Part::Text) as u64, module.part_at(Part::ReadOnly) as u64);
    let all = object.bytes();
    for (from, to, rights) in [(0, text, Rights::R), (text, end, Rights::RX), (end, all, Rights::R)] {
        if let Some(pages) = pages_for(to - from).filter(|pages| *pages > 0) {
            call::page_limit(object.base() + from, pages, rights.bits().into())?;
        }
    }
    Ok(())
}

/// Whether a new version exports all that an old one did, under the same numbers.
fn serves_clients_of(new: &Module<'_>, old: &Module<'_>) -> Result<()> {
    let wanted = old.export_count();
    let cause = match (new.hash(wanted), old.hash(wanted)) {
        (None, _) => Cause::InterfaceShrunk {
            wanted,
            found: new.export_count(),
        },
        (new, old) if new != old => Cause::InterfaceChanged,
        _ => return Ok(()),
    };
    Err(Fault::file(old.name(), cause).about(new.version()).into())
}

/// Destroys an installed version, given as `NAME-VERSION`, or as `NAME` the newest, if no other domain has it, and takes
/// all names away that lead to it; tells which it was. If it was the newest, the one installed before it is again. Of a
/// module that is gone already the names go.
///
/// # Errors
/// [`Error::InUse`]; as [`look_up`]; as `ObjRetire`.
pub fn remove(name: &str) -> Result<String> {
    let base = look_up(name)?.capability.address;
    let mut directory = directory()?.ok_or(crate::Error::NoSuchName)?;
    let mut names = list()?;
    // A name counts by where it leads, not by what it says: another module may have the one that this one had.
    names.retain(|named| named.found.capability.address == base);
    let owners = directory.find(OWNERS)?.capability.address;
    let module = match find(name) {
        Ok(module) => module,
        Err(Error::LeadsNowhere(_)) => {
            forget(owners, base)?;
            for named in names {
                directory.remove(&named.name)?;
            }
            return Ok(name.to_string());
        }
        Err(error) => return Err(error),
    };
    let short = module.name().to_string();
    let full = format!("{short}-{}", module.version());
    // The names go first, so that nobody finds it while it goes; the short one last, by which a start knows what was begun.
    let (newest, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|named| named.name == short);
    for named in &others {
        directory.remove(&named.name)?;
    }
    if !newest.is_empty() {
        lead(&mut directory, &short)?;
    }
    let told = if name == short { full } else { name.to_string() };
    match retire(owners, base) {
        Ok(()) => {
            forget(owners, base)?;
            Ok(told)
        }
        Err(error) => {
            for named in &others {
                directory.insert(&named.name, named.found)?;
            }
            for named in newest {
                directory.replace(&short, named.found)?;
            }
            match error {
                abi::Error::InUse => Err(Error::InUse(told)),
                other => Err(other.into()),
            }
        }
    }
}
