//! Commands on names, objects and capabilities.

use alloc::{collections::BTreeSet, format, string::String, vec::Vec};

use abi::{
    address::OBJECT_BYTES_MAX,
    layout::{Capability, OBJECT_PERSISTENT, OBJECT_STACK},
};
use rt::{
    Cell, Clist, Directory, Error, Kind, Object, Rights, call,
    directory::Found,
    names::{self, Quoted},
    print, println,
};

use super::{Complaint, Outcome, Shell, said};
use crate::{
    attention, programs,
    text::{self, Bytes, Printable},
};

/// Bytes that `cat` reads at a time.
const PIECE: usize = 4096;

/// Looks a name up; a complaint has the name in it.
fn find(shell: &Shell, name: &str) -> Outcome<Found> {
    match shell.place.find(name) {
        Err(Complaint::Runtime(Error::NoSuchName)) => said(format!("{name}: there is no such name; 'ls' lists them")),
        Err(Complaint::Runtime(error @ Error::Directory(names::directory::Error::Foreign))) => said(format!(
            "{name}: {error}; 'rm {}' takes the name alone away",
            Quoted(name)
        )),
        other => other,
    }
}

/// The command that destroys what a name leads to, in quotation marks.
fn removal_of(path: &str, kind: Kind) -> String {
    match kind {
        // The shelf knows a module by its name alone.
        Kind::Module => format!("'module remove {}'", Quoted(path.rsplit('/').next().unwrap_or(path))),
        Kind::Data | Kind::Directory => format!("'rm {}'", Quoted(path)),
        Kind::Program | Kind::Clist | Kind::Service => format!("'rm --force {}'", Quoted(path)),
    }
}

/// Complains of a name that is taken.
fn taken(shell: &Shell, command: &str, path: &str) -> Outcome {
    let way_out = match shell.place.find(path) {
        Ok(found) if is_own(&found) => "the system starts from it, so take another name".into(),
        Ok(found) if found.kind == Kind::Directory => format!("'ls {}' lists what is in it", Quoted(path)),
        Ok(found) if found.kind != Kind::Data => {
            let kind = programs::kind_in_words(found.kind);
            format!("it is {kind}, which {} would destroy", removal_of(path, found.kind))
        }
        _ => format!("{} would destroy it", removal_of(path, Kind::Data)),
    };
    said(format!("{command}: {path} is there already; {way_out}"))
}

pub fn ls(shell: &mut Shell, arguments: &[&str]) -> Outcome {
    let path = match arguments {
        [] => ".",
        [path] => path,
        _ => return Err(Complaint::Usage),
    };
    let directory = shell.place.directory(path)?;
    let mut all = directory.list()?;
    all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    for named in &all {
        attention::check()?;
        let Found { kind, capability, word } = named.found;
        let size = match kind {
            Kind::Data | Kind::Program | Kind::Module if word > 0 => Some(word),
            _ => call::obj_info(capability.address).ok().map(|info| info.bytes),
        };
        let size = size.map_or_else(|| String::from("-"), |bytes| format!("{}", Bytes(bytes)));
        println!(
            "{:<10}{size:>10}  {:#014x}  {}",
            kind.name(),
            capability.address,
            named.name
        );
    }
    Ok(())
}

pub fn cd(shell: &mut Shell, arguments: &[&str]) -> Outcome {
    match arguments {
        [] => shell.place.enter("/"),
        [path] => shell.place.enter(path),
        _ => Err(Complaint::Usage),
    }
}

pub fn pwd(shell: &mut Shell, arguments: &[&str]) -> Outcome {
    if !arguments.is_empty() {
        return Err(Complaint::Usage);
    }
    println!("{}", shell.place.path());
    Ok(())
}

pub fn mkdir(shell: &mut Shell, arguments: &[&str]) -> Outcome {
    let [path] = arguments else {
        return Err(Complaint::Usage);
    };
    let (mut directory, name) = shell.place.parent(path)?;
    match directory.create_directory(&name) {
        Err(Error::Directory(names::directory::Error::Exists)) => taken(shell, "mkdir", path),
        other => Ok(other.map(drop)?),
    }
}

pub fn create(shell: &mut Shell, arguments: &[&str]) -> Outcome {
    let (path, size) = match arguments {
        [path, size] => (path, String::from(*size)),
        // As `ls` shows it: a number and its unit.
        [path, number, unit] if unit.starts_with(|first: char| first.is_alphabetic()) => {
            (path, format!("{number} {unit}"))
        }
        _ => return Err(Complaint::Usage),
    };
    let Some(bytes) = text::size(&size).filter(|bytes| *bytes > 0) else {
        return said(format!("create: '{size}' is not a size; try 4096, 64K, 1.5M or 1G"));
    };
    if bytes > OBJECT_BYTES_MAX {
        return said(format!(
            "create: {} are too many addresses for one object; {} are the most",
            Bytes(bytes),
            Bytes(OBJECT_BYTES_MAX)
        ));
    }
    let (mut directory, name) = shell.place.parent(path)?;
    let object = match directory.create(&name, Kind::Data, bytes, 0) {
        Err(Error::Directory(names::directory::Error::Exists)) => return taken(shell, "create", path),
        other => other?,
    };
    println!("{path}: {} at {:#x}", Bytes(object.bytes()), object.base());
    Ok(())
}

/// The rest of the arguments, and whether `--force` stands before them.
fn forced<'a, 'b>(arguments: &'a [&'b str]) -> (bool, &'a [&'b str]) {
    match arguments {
        ["--force", rest @ ..] => (true, rest),
        _ => (false, arguments),
    }
}

/// Whether the system starts from what a name leads to.
fn is_own(found: &Found) -> bool {
    abi::address::system_objects().contains(&found.capability.address)
}

/// Refuses to change the objects that the system starts from.
fn refuse_own(command: &str, path: &str, found: &Found) -> Outcome {
    if is_own(found) {
        return said(format!(
            "{command}: {path} is what the system starts from; it stays as it is"
        ));
    }
    Ok(())
}

/// Refuses to spoil objects that others rely on: never those that the system starts from, and any but data only if the user insists.
fn refuse_system(command: &str, path: &str, found: &Found, force: bool) -> Outcome {
    refuse_own(command, path, found)?;
    let kind = programs::kind_in_words(found.kind);
    // Force does not help where the name gives no right to write.
    let gives = match (command, found.kind) {
        ("write", Kind::Service) => Some("the right to call it"),
        ("write", Kind::Module) => Some("the rights to read and execute it"),
        _ => None,
    };
    if let Some(gives) = gives {
        return said(format!(
            "write: {path} is {kind}: its name gives {gives}, and none to write"
        ));
    }
    if found.kind == Kind::Data || force {
        return Ok(());
    }
    if (command, found.kind) == ("rm", Kind::Module) {
        return said(format!(
            "rm: {path} is {kind}; {} destroys it",
            removal_of(path, found.kind)
        ));
    }
    let does = match (command, found.kind) {
        ("write", Kind::Program) => "writes where the limits of its pages allow it",
        _ => "does it all the same",
    };
    said(format!(
        "{command}: {path} is {kind}; '{command} --force {}' {does}",
        Quoted(path)
    ))
}

pub fn rm(shell: &mut Shell, arguments: &[&str]) -> Outcome {
    let (force, &[path]) = forced(arguments) else {
        return Err(Complaint::Usage);
    };
    let found = match shell.place.find(path) {
        // A name that looks like an address is the name still.
        Err(Complaint::Runtime(Error::NoSuchName)) if let Some(address) = address_in(path) => {
            return rm_unnamed(path, address, force);
        }
        Err(Complaint::Runtime(Error::Directory(names::directory::Error::Foreign))) => {
            let (mut directory, name) = shell.place.parent(path)?;
            directory.remove(&name)?;
            println!("{path}: the name is gone; the object that it led to is yours by another name, and stays");
            return Ok(());
        }
        _ => find(shell, path)?,
    };
    let mut force = force;
    if found.kind == Kind::Directory {
        match Directory::open(found.capability.address).and_then(|directory| directory.list()) {
            Ok(names) if names.is_empty() => force = true,
            Ok(_) => {
                return said(format!(
                    "rm: {path} is not empty; 'ls {}' lists what is to be removed first",
                    Quoted(path)
                ));
            }
            // The user may insist on removing an object that is no directory any more.
            Err(_) if force => {}
            Err(error) => {
                return said(format!("rm: {path}: {error}; 'rm --force {}' removes it", Quoted(path)));
            }
        }
    }
    if found.kind == Kind::Module {
        // Where its module is gone, there is only the name to be taken away. What stands on the shelf goes by 'module remove': it
        // has the right to destroy it, and refuses while others use it, so this look must be no use.
        let info = call::obj_info(found.capability.address);
        call::apd_flush()?;
        force = match info {
            Err(abi::Error::BadAddress) => true,
            info => force && Rights::from_bits(info?.rights).unwrap_or_default().contains(Rights::D),
        };
    }
    refuse_system("rm", path, &found, force)?;
    // The system does not reach such an object, and would answer that there is none: the name must not go alone.
    if matches!(found.kind, Kind::Data | Kind::Program) && found.word > OBJECT_BYTES_MAX {
        return said(format!(
            "rm: {path} has {}, and the system reaches only objects of {} at most: it stays; './gond export' brings its content out",
            Bytes(found.word),
            Bytes(OBJECT_BYTES_MAX)
        ));
    }
    let (mut directory, name) = shell.place.parent(path)?;
    Ok(directory.delete(&name, found.kind)?)
}

/// Destroys an object that no name leads to.
fn rm_unnamed(text: &str, address: u64, force: bool) -> Outcome {
    let info = call::obj_info(address)?;
    let base = info.base;
    if base != address {
        return said(format!(
            "rm: {text} is inside of the object at {base:#x}; give that address"
        ));
    }
    if info.flags & OBJECT_PERSISTENT == 0 {
        return said(format!("rm: the object at {text} is not kept: it goes with its task"));
    }
    let as_found = |kind| Found {
        kind,
        capability: Capability {
            address: base,
            password: 0,
        },
        word: 0,
    };
    refuse_own("rm", text, &as_found(Kind::Data))?;
    if let Some((path, kind)) = path_to(base)? {
        return said(format!(
            "rm: the object at {text} has the name {path}; {} takes both away",
            removal_of(&path, kind)
        ));
    }
    let kind = if info.pdx > 0 {
        Kind::Service
    } else if info.tag != 0 {
        Kind::Program
    } else if Directory::open(base).is_ok() {
        Kind::Directory
    } else if Clist::open(base).and_then(|clist| clist.capabilities()).is_ok() {
        Kind::Clist
    } else {
        Kind::Data
    };
    refuse_system("rm", text, &as_found(kind), force)?;
    call::obj_delete(base)?;
    Clist::root()?.remove_all(base)?;
    Ok(())
}

/// The path by which a directory that the root leads to names the object at `base`, and its kind.
fn path_to(base: u64) -> Outcome<Option<(String, Kind)>> {
    let root = Directory::root()?;
    let mut seen = BTreeSet::from([root.object().base()]);
    let mut waiting = Vec::from([(root, String::from("/"))]);
    while let Some((directory, prefix)) = waiting.pop() {
        attention::check()?;
        for named in directory.list()? {
            let (address, path) = (named.found.capability.address, format!("{prefix}{}", named.name));
            if address == base {
                return Ok(Some((path, named.found.kind)));
            }
            // An entry may say that it is a directory and lead to something else.
            if named.found.kind == Kind::Directory
                && let Ok(below) = Directory::open(address)
                && seen.insert(address)
            {
                waiting.push((below, format!("{path}/")));
            }
        }
    }
    Ok(None)
}

pub fn mv(shell: &mut Shell, arguments: &[&str]) -> Outcome {
    let [old, new] = arguments else {
        return Err(Complaint::Usage);
    };
    let found = find(shell, old)?;
    refuse_own("mv", old, &found)?;
    if found.kind == Kind::Module {
        return said(format!(
            "mv: {old} is a module, which is found by the name that it was built with; {} destroys it",
            removal_of(old, found.kind)
        ));
    }
    let (mut directory, name) = shell.place.parent(old)?;
    let (other, new_name) = shell.place.parent(new)?;
    if directory.object().base() != other.object().base() {
        return said(format!(
            "mv: {new} is in another directory; a name is changed within one"
        ));
    }
    match directory.rename(&name, &new_name) {
        Err(Error::Directory(names::directory::Error::Exists)) => said(format!("mv: {new} is there already")),
        other => {
            other?;
            shell.place.follow(old, new);
            Ok(())
        }
    }
}

/// The address that the text is, if it is one.
fn address_in(text: &str) -> Option<u64> {
    text::number(text).filter(|_| text.starts_with("0x"))
}

/// The address that a name leads to, or the address itself: behind `0x`. A name that begins so can be told from it by `./`.
fn address_of(shell: &Shell, text: &str) -> Outcome<u64> {
    match address_in(text) {
        Some(address) => Ok(address),
        None => Ok(find(shell, text)?.capability.address),
    }
}

pub fn info(shell: &mut Shell, arguments: &[&str]) -> Outcome {
    let [name] = arguments else {
        return Err(Complaint::Usage);
    };
    let address = address_of(shell, name)?;
    let info = call::obj_info(address)?;
    println!("address       {:#x}", info.base);
    println!("size          {} ({} bytes)", Bytes(info.bytes), info.bytes);
    println!("your rights   {}", Rights::from_bits(info.rights).unwrap_or_default());
    let life = match info.flags {
        flags if flags & OBJECT_PERSISTENT != 0 => "persistent",
        flags if flags & OBJECT_STACK != 0 => "a stack, goes with its thread",
        _ => "transient, goes with its task",
    };
    println!("life          {life}");
    println!(
        "capabilities  {}, and {} for protected calls",
        info.capabilities, info.pdx
    );
    println!("in memory     {}", Bytes(info.resident * abi::address::PAGE));
    if info.tag != 0 {
        println!("tag           {:#x}", info.tag);
    }
    if let Ok(found) = shell.place.find(name) {
        println!("kind          {}", found.kind.name());
        if found.kind == Kind::Service {
            println!("entry         {:#x}", found.word);
        }
    }
    Ok(())
}

pub fn write(shell: &mut Shell, arguments: &[&str]) -> Outcome {
    let (force, [name, offset, words @ ..]) = forced(arguments) else {
        return Err(Complaint::Usage);
    };
    if words.is_empty() {
        return Err(Complaint::Usage);
    }
    let Some(offset) = text::size(offset) else {
        return said(format!("write: '{offset}' is not an offset"));
    };
    let found = find(shell, name)?;
    refuse_system("write", name, &found, force)?;
    let object = Object::open(found.capability.address)?;
    let mut line = words.join(" ");
    line.push('\n');
    let region = object.region();
    let end = offset
        .checked_add(line.len() as u64)
        .filter(|end| *end <= region.bytes());
    let Some(cells) = end.and_then(|_| region.slice::<Cell<u8>>(region.pointer(offset), line.len())) else {
        return said(format!(
            "write: the text does not fit: with its newline it takes {} bytes from {offset} on, and {name} has {}",
            line.len(),
            region.bytes()
        ));
    };
    for (cell, byte) in cells.iter().zip(line.bytes()) {
        cell.set(byte);
    }
    Ok(())
}

pub fn cat(shell: &mut Shell, arguments: &[&str]) -> Outcome {
    let [name] = arguments else {
        return Err(Complaint::Usage);
    };
    let found = find(shell, name)?;
    let object = Object::open(found.capability.address)?;
    let cells = object.region().cells();
    // The content of a data object may be shorter than its pages.
    let length = if found.kind == Kind::Data && found.word > 0 {
        found.word as usize
    } else {
        cells.len()
    };
    let content = cells.get(..length).unwrap_or(cells);
    let mut text = Printable::default();
    for piece in content.chunks(PIECE) {
        attention::check()?;
        let bytes: Vec<u8> = piece.iter().map(Cell::get).take_while(|byte| *byte != 0).collect();
        print!("{}", text.piece(&bytes));
        if bytes.len() < piece.len() {
            break;
        }
    }
    print!("{}", text.end());
    Ok(())
}

/// A name for each address that the root directory knows.
fn names_of_addresses() -> rt::Result<Vec<(u64, String)>> {
    Ok(Directory::root()?
        .list()?
        .into_iter()
        .map(|named| (named.found.capability.address, named.name))
        .collect())
}

pub fn caps(shell: &mut Shell, arguments: &[&str]) -> Outcome {
    let only = match arguments {
        [] => None,
        [name] => Some(call::obj_info(address_of(shell, name)?)?.base),
        _ => return Err(Complaint::Usage),
    };
    let names = names_of_addresses()?;
    let apd = call::apd_get()?;
    let slots = apd.slots.get(..apd.count as usize).unwrap_or_default();
    for (slot, address) in slots.iter().enumerate() {
        let clist = Clist::open(*address)?;
        println!(
            "Clist {slot} at {address:#x}{}",
            if (slot as u64) < apd.locked { " (locked)" } else { "" }
        );
        for Capability { address, password } in clist.capabilities()? {
            attention::check()?;
            if only.is_none_or(|only| only == address) {
                let name = names
                    .iter()
                    .find(|(known, _)| *known == address)
                    .map_or("", |(_, name)| name);
                let capability = format!("{address:#x}:{password:#018x}");
                // The longest address has twelve digits.
                println!("{}", format!("  {capability:<33}  {name}").trim_end());
            }
        }
    }
    Ok(())
}

pub fn grant(shell: &mut Shell, arguments: &[&str]) -> Outcome {
    let [name, letters] = arguments else {
        return Err(Complaint::Usage);
    };
    let Some(rights) = text::rights(letters) else {
        return said(format!("grant: '{letters}' are not rights; use letters of rwxd"));
    };
    let address = find(shell, name)?.capability.address;
    let password = call::obj_passwd(address, 0, rights.bits().into())?;
    println!("{address:#x}:{password:#018x}  {rights}");
    Ok(())
}

/// How a name and its object are taken away, if that is possible.
fn way_out_of(name: &str, found: &Found) -> String {
    if is_own(found) {
        return "the system starts from it, so it stays".into();
    }
    format!("{} takes both away", removal_of(name, found.kind))
}

pub fn revoke(shell: &mut Shell, arguments: &[&str]) -> Outcome {
    let [name, text] = arguments else {
        return Err(Complaint::Usage);
    };
    // The user may give the whole capability, as `grant` printed it.
    let digits = text.rsplit(':').next().unwrap_or(text);
    let Some(password) = text::number(digits) else {
        return said(format!("revoke: '{text}' is not a password"));
    };
    let named = find(shell, name)?;
    let address = named.capability.address;
    if named.capability.password == password {
        return said(format!(
            "revoke: by this password the name {name} leads to its object, and would lead nowhere; {}",
            way_out_of(name, &named)
        ));
    }
    let mut root = Clist::root()?;
    // A service's name has a password that lets one call it and no more.
    let controls = |one: &Capability| {
        one.address == address && (named.kind != Kind::Service || one.password != named.capability.password)
    };
    if root
        .capabilities()?
        .into_iter()
        .filter(controls)
        .all(|one| one.password == password)
    {
        return said(format!(
            "revoke: without this password nobody could remove {name} any more; {}",
            way_out_of(name, &named)
        ));
    }
    match call::obj_passwd(address, password, 0) {
        Err(abi::Error::BadArgument) => {
            return said(format!(
                "revoke: {name} has no such password; 'caps {}' shows some",
                Quoted(name)
            ));
        }
        other => other?,
    };
    // A password that is gone is of no use in the Clist either.
    match root.remove(Capability { address, password }) {
        Ok(()) | Err(Error::Clist(names::clist::Error::NotFound)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
