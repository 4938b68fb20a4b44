//! Names on a disk image: following paths through directories, listing them, and adding to them.
//!
//! On the host there is no protection to respect, so a directory is read whatever its capability says; whether
//! that capability is valid is `gond check`'s question.

use crate::image;
use crate::volume::{Block, Damage, Volume};
use abi::Rights;
use abi::address::{PAGE, ROOT_CLIST, ROOT_DIRECTORY};
use abi::layout::Capability;
use anyhow::{Context, Result, anyhow, bail};
use names::act;
use names::clist::{Clist, ClistView};
use names::directory::Mark;
use names::{Directory, DirectoryView, Entry, Kind, Path};
use std::collections::{BTreeMap, BTreeSet};
use store::{ObjectRecord, PageFlags};

/// The largest directory or Clist that is read, in bytes.
const LARGEST: u64 = names::clist::LARGEST;

/// The limits of ordinary data: none.
pub const NO_LIMITS: PageFlags = PageFlags::READ.union(PageFlags::WRITE).union(PageFlags::EXECUTE);

/// A directory entry that owns its name.
#[derive(Clone, Debug)]
pub struct Named {
    /// The whole path from the root directory.
    pub path: String,
    /// The kind of object that it stands for.
    pub kind: Kind,
    /// The capability.
    pub capability: Capability,
    /// The entry's second word.
    pub word: u64,
    /// How far it is.
    pub mark: Mark,
}

impl Named {
    fn of(prefix: &str, entry: &Entry<'_>, mark: Mark) -> Self {
        let path = format!("{prefix}{}", entry.name);
        Self {
            path,
            kind: entry.kind,
            capability: entry.capability,
            word: entry.word,
            mark,
        }
    }

    /// How long the content is: exactly if the entry says so, else the whole object.
    pub fn content_bytes(&self, record: &ObjectRecord) -> u64 {
        let whole = record.pages.saturating_mul(PAGE);
        match self.kind {
            Kind::Data | Kind::Program if self.word > 0 => self.word.min(whole),
            _ => whole,
        }
    }
}

/// The rights that a capability gives on an object; `None` if the object does not list its password.
pub fn rights_of(record: &ObjectRecord, named: &Named) -> Option<Rights> {
    let password = named.capability.password;
    if named.kind == Kind::Service {
        let pdx = record.pdx.iter().find(|pdx| pdx.password == password)?;
        return pdx.entries.contains(&named.word).then_some(Rights::P);
    }
    let (_, bits) = record.capabilities.iter().find(|(listed, _)| *listed == password)?;
    Rights::from_bits(u64::from(*bits))
}

/// The bytes of the object at `base`.
///
/// # Errors
/// Also the first [`Damage`].
pub fn whole(volume: &mut Volume, base: u64) -> Result<Vec<u8>> {
    let (bytes, damaged) = left(volume, base)?;
    damaged
        .into_iter()
        .next()
        .map_or(Ok(bytes), |damage| Err(damage.into()))
}

/// The content of the object at `base`, with zeroes for damaged pages, and the numbers of these.
pub fn left(volume: &mut Volume, base: u64) -> Result<(Vec<u8>, Vec<Damage>)> {
    let record = volume
        .object(base)
        .with_context(|| format!("there is no object at {base:#x}"))?;
    let bytes = record.pages.saturating_mul(PAGE);
    if bytes > LARGEST {
        bail!("the object at {base:#x} is too large for a directory or Clist");
    }
    volume.read_left(base, bytes)
}

/// The kind of an object, as its content shows it.
pub fn kind_of(volume: &mut Volume, record: &ObjectRecord) -> Kind {
    if image::is_installed(record) {
        return Kind::Program;
    }
    // One that is too large for a directory or Clist is neither; pages that cannot be read are data.
    let Ok(bytes) = whole(volume, record.base) else {
        return Kind::Data;
    };
    if DirectoryView::open(&bytes).is_ok() {
        Kind::Directory
    } else if ClistView::open(&bytes).is_ok() {
        Kind::Clist
    } else {
        Kind::Data
    }
}

/// Writes back what changed between `old` and `new`.
pub fn write_back(volume: &mut Volume, base: u64, old: &[u8], new: &[u8]) -> Result<()> {
    for (page, (old, new)) in old.chunks(PAGE as usize).zip(new.chunks(PAGE as usize)).enumerate() {
        if old != new {
            let content: &Block = new.try_into().context("a page has 4096 bytes")?;
            volume.write(base, page as u64, content, NO_LIMITS)?;
        }
    }
    Ok(())
}

/// Puts `new` in place of the whole object at `base`, damaged pages included.
pub fn put_whole(volume: &mut Volume, base: u64, new: &[u8]) -> Result<()> {
    let empty = vec![0; new.len()];
    volume.discard(base, 0, new.len() as u64 / PAGE)?;
    write_back(volume, base, &empty, new)
}

/// Changes the directory at `base`.
pub fn change_directory(
    volume: &mut Volume,
    base: u64,
    change: impl FnOnce(&mut Directory<'_>) -> Result<(), names::Error>,
) -> Result<()> {
    let old = whole(volume, base)?;
    let mut new = old.clone();
    let mut directory = Directory::open_mut(&mut new).map_err(|error| fault(base, &error))?;
    change(&mut directory)?;
    write_back(volume, base, &old, &new)
}

/// Changes the root Clist.
pub fn change_root_clist(
    volume: &mut Volume,
    change: impl FnOnce(&mut Clist<'_>) -> Result<(), names::clist::Error>,
) -> Result<()> {
    let old = whole(volume, ROOT_CLIST).map_err(|error| fault(ROOT_CLIST, &error))?;
    let mut new = old.clone();
    let mut clist = Clist::open_mut(&mut new).map_err(|error| fault(ROOT_CLIST, &error))?;
    change(&mut clist).context("the root Clist")?;
    write_back(volume, ROOT_CLIST, &old, &new)
}

/// Tells what is wrong with a directory or a Clist, and for those that the system starts from what helps.
fn fault(base: u64, error: &dyn std::fmt::Display) -> anyhow::Error {
    match base {
        ROOT_CLIST => anyhow!("the root Clist ({base:#x}): {error}; './gond mend IMAGE' makes it anew"),
        ROOT_DIRECTORY => anyhow!("the root directory ({base:#x}): {error}; './gond mend IMAGE' makes it anew"),
        _ => anyhow!("the object at {base:#x}: {error}"),
    }
}

/// The names in the directory at `base`, as far as its pages can be read, and what is wrong with it.
pub fn entries(volume: &mut Volume, base: u64, prefix: &str) -> Result<(Vec<Named>, Vec<String>)> {
    let (mut bytes, damaged) = left(volume, base)?;
    let mut faults: Vec<String> = damaged.iter().map(ToString::to_string).collect();
    if !damaged.is_empty() {
        // The header may have been in one of them.
        Directory::mend(&mut bytes).map_err(|error| fault(base, &error))?;
    }
    let view = DirectoryView::open(&bytes).map_err(|error| fault(base, &error))?;
    faults.extend(view.faults().map(|fault| fault.to_string()));
    let marks: BTreeMap<&str, Mark> = view
        .marked(0)
        .map(|(marked, entry)| (entry.name, marked.mark))
        .collect();
    let named = |entry: Entry<'_>| {
        let mark = marks.get(entry.name).copied().unwrap_or(Mark::Settled);
        Named::of(prefix, &entry, mark)
    };
    Ok((view.iter().map(named).collect(), faults))
}

/// Lists the acts that a power cut left unfinished in the directory at `base`.
pub fn marked(volume: &mut Volume, base: u64, prefix: &str) -> Result<Vec<Named>> {
    let bytes = whole(volume, base)?;
    let view = DirectoryView::open(&bytes).map_err(|error| fault(base, &error))?;
    let named = |(marked, entry): (names::directory::Marked, Entry<'_>)| Named::of(prefix, &entry, marked.mark);
    Ok(view.marked(0).map(named).collect())
}

/// Does what the system's next start would do about acts that a power cut left unfinished: before an image is written to
/// that was not powered off cleanly, for afterwards it counts as clean. Tells how many names are gone.
pub fn recover(volume: &mut Volume) -> Result<u64> {
    let mut went = 0;
    if volume.report().clean {
        return Ok(went);
    }
    let (all, _) = walk(volume);
    let below = all.iter().filter(|named| named.kind == Kind::Directory);
    let bases: BTreeSet<u64> = below.map(|named| named.capability.address).collect();
    for base in bases.into_iter().chain([ROOT_DIRECTORY]) {
        // One that cannot be read is for `check` to tell.
        if whole(volume, base).is_ok_and(|bytes| DirectoryView::open(&bytes).is_ok()) {
            went += act::recover(&mut Acting { volume, base })?;
        }
    }
    Ok(went)
}

/// A directory in which unfinished acts are brought to their end; all of it is durable with the next commit.
struct Acting<'a> {
    volume: &'a mut Volume,
    base: u64,
}

impl act::System for Acting<'_> {
    type Error = anyhow::Error;

    fn change(&mut self, change: &mut dyn FnMut(&mut Directory<'_>) -> Result<(), names::Error>) -> Result<()> {
        change_directory(self.volume, self.base, change)
    }

    fn make_room(&mut self, _: &names::directory::Marked) -> Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn flush_all(&mut self) -> Result<()> {
        Ok(())
    }

    fn is_there(&mut self, address: u64) -> bool {
        self.volume.object(address).is_some()
    }

    fn is_own(&mut self, capability: Capability) -> bool {
        let listed = capabilities(self.volume, ROOT_CLIST).map_or_else(|_| Vec::new(), |(listed, _)| listed);
        let mut same = listed.iter().filter(|one| one.address == capability.address).peekable();
        if same.peek().is_some() && !same.any(|one| *one == capability) {
            return false;
        }
        // Here nobody else asks for the password: it may be that of an object that was there before.
        self.volume.object(capability.address).is_some_and(|record| {
            let destroys =
                |rights: u8| Rights::from_bits(rights.into()).is_some_and(|rights| rights.contains(Rights::D));
            let mut plain = record.capabilities.iter();
            plain.any(|&(password, rights)| password == capability.password && destroys(rights))
        })
    }

    fn gives_right(&mut self, capability: Capability) -> bool {
        let record = self.volume.object(capability.address);
        record.is_some_and(|record| {
            let plain = record.capabilities.iter().map(|(password, _)| *password);
            let mut all = plain.chain(record.pdx.iter().map(|pdx| pdx.password));
            all.any(|password| password == capability.password)
        })
    }

    fn keep(&mut self, _address: u64) -> Result<()> {
        Ok(())
    }

    fn delete(&mut self, address: u64) -> Result<()> {
        self.volume.delete(address)
    }

    fn enter(&mut self, capability: Capability) -> Result<()> {
        if self.gives_right(capability) {
            change_root_clist(self.volume, |clist| clist.insert(capability))?;
        }
        Ok(())
    }

    fn leave(&mut self, address: u64) -> Result<()> {
        change_root_clist(self.volume, |clist| {
            clist.remove_all(address);
            Ok(())
        })
    }
}

/// The capabilities of the Clist at `base`, and whether they stand in the order that it promises.
pub fn capabilities(volume: &mut Volume, base: u64) -> Result<(Vec<Capability>, bool)> {
    let bytes = whole(volume, base)?;
    let view = ClistView::open(&bytes).map_err(|error| fault(base, &error))?;
    Ok((view.iter().collect(), view.order_holds()))
}

/// Follows a path.
pub fn find(volume: &mut Volume, path: &str) -> Result<Named> {
    let (directory, name) = split(volume, path)?;
    let prefix = path
        .strip_suffix(&name)
        .unwrap_or_default()
        .trim_start_matches('/')
        .to_owned();
    let (all, _) = entries(volume, directory, &prefix)?;
    all.into_iter()
        .find(|named| named.path == format!("{prefix}{name}"))
        .with_context(|| format!("there is no '{path}' on this image; './gond ls IMAGE' lists what there is"))
}

/// Follows a path up to its last name: the directory's base, and that name.
pub fn split(volume: &mut Volume, path: &str) -> Result<(u64, String)> {
    let parsed = Path::parse(path).with_context(|| format!("'{path}' is not a name"))?;
    let Some((before, last)) = parsed.split_last() else {
        bail!("'{path}' is the root directory itself")
    };
    let mut directory = ROOT_DIRECTORY;
    for name in before {
        let (all, _) = entries(volume, directory, "")?;
        let step = all.into_iter().find(|named| named.path == name);
        let step = step.with_context(|| format!("there is no directory '{name}' on the way to '{path}'"))?;
        if step.kind != Kind::Directory {
            bail!(
                "'{name}' on the way to '{path}' is no directory: its kind is {}",
                step.kind.name()
            );
        }
        directory = step.capability.address;
    }
    Ok((directory, last.to_owned()))
}

/// Whether the next start takes a name back, because the power failed when it was on the disk and its object was not.
pub fn is_taken_back(volume: &Volume, named: &Named) -> bool {
    !volume.report().clean && named.mark != Mark::Settled && volume.object(named.capability.address).is_none()
}

/// Everything that has a name, in order of paths, and what is wrong with the directories. A directory that is
/// reached twice is listed twice and entered once; one whose name is taken back is not there to be entered.
pub fn walk(volume: &mut Volume) -> (Vec<Named>, Vec<String>) {
    let mut seen = BTreeSet::from([ROOT_DIRECTORY]);
    let mut waiting = vec![(ROOT_DIRECTORY, String::new())];
    let (mut found, mut complaints) = (Vec::new(), Vec::new());
    while let Some((base, prefix)) = waiting.pop() {
        let here = match entries(volume, base, &prefix) {
            Ok((here, faults)) => {
                complaints.extend(
                    faults
                        .into_iter()
                        .map(|fault| format!("directory '/{prefix}': {fault}")),
                );
                here
            }
            Err(error) => {
                complaints.push(format!("directory '/{prefix}': {error:#}"));
                continue;
            }
        };
        for named in here {
            let is_there = named.kind == Kind::Directory && !is_taken_back(volume, &named);
            if is_there && seen.insert(named.capability.address) {
                waiting.push((named.capability.address, format!("{}/", named.path)));
            }
            found.push(named);
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    (found, complaints)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::lock_image;

    /// A name whose deletion had begun leads to an object that has its address now, and a capability of the old one is listed still: only one that
    /// the object knows, and that destroys, lets the deletion be finished.
    #[test]
    fn a_deletion_is_finished_for_the_object_that_was_meant() {
        let path = std::env::temp_dir().join(format!("gond-deletions-{}.img", std::process::id()));
        image::create(&path, 16 << 20, None).unwrap();
        let mut volume = Volume::open_for_change(&lock_image(&path).unwrap()).unwrap();
        for (number, (listed, knows, rights, goes)) in [
            (true, false, Rights::OWNER, false),
            (false, false, Rights::OWNER, false),
            (true, true, Rights::R, false),
            (false, true, Rights::R, false),
            (true, true, Rights::OWNER, true),
            (false, true, Rights::OWNER, true),
        ]
        .into_iter()
        .enumerate()
        {
            let address = volume.free_address();
            let password = volume.password();
            let capability = Capability { address, password };
            let mut record = image::new_record(address, 1, if knows { password } else { volume.password() }, 0);
            record.capabilities[0].1 = rights.bits();
            volume.put(&record).unwrap();
            if listed {
                change_root_clist(&mut volume, |clist| clist.insert(capability)).unwrap();
            }
            let name = format!("name{number}");
            let doomed = Entry {
                name: &name,
                kind: Kind::Data,
                capability,
                word: 0,
            };
            let insert = |directory: &mut Directory<'_>| directory.insert_marked(&doomed, Mark::Doomed).map(|_| ());
            change_directory(&mut volume, ROOT_DIRECTORY, insert).unwrap();
            let volume = &mut volume;
            let mut acting = Acting {
                volume,
                base: ROOT_DIRECTORY,
            };
            act::recover(&mut acting).unwrap();
            assert_eq!(volume.object(address).is_none(), goes, "{number}");
            // An object that may not be destroyed keeps its name.
            assert_eq!(find(volume, &name).is_ok(), knows && !goes, "{number}");
            volume.commit().unwrap();
        }
        std::fs::remove_file(&path).unwrap();
    }

    /// A power cut right behind `mkdir`: the name is on the disk and the directory is not, and the next start takes the name back.
    #[test]
    fn a_directory_whose_name_is_taken_back_is_no_fault() {
        let path = std::env::temp_dir().join(format!("gond-taken-back-{}.img", std::process::id()));
        image::create(&path, 16 << 20, None).unwrap();
        let lock = lock_image(&path).unwrap();
        for (name, mark, complaints) in [("new", Mark::Young, 0), ("gone", Mark::Settled, 1)] {
            let mut volume = Volume::open_for_change(&lock).unwrap();
            let capability = Capability {
                address: volume.free_address(),
                password: 7,
            };
            let entry = Entry {
                name,
                kind: Kind::Directory,
                capability,
                word: 0,
            };
            let insert = |directory: &mut Directory<'_>| directory.insert_marked(&entry, mark).map(|_| ());
            change_directory(&mut volume, ROOT_DIRECTORY, insert).unwrap();
            volume.commit().unwrap();
            drop(volume);
            let clean = walk(&mut Volume::open(&path).unwrap()).1;
            assert_eq!(clean.len(), 1, "behind a clean end nothing is taken back: {clean:?}");
            // A start that has not come to its end.
            drop(Volume::open_for_change(&lock).unwrap());
            assert_eq!(walk(&mut Volume::open(&path).unwrap()).1.len(), complaints, "{name}");
            let mut volume = Volume::open_for_change(&lock).unwrap();
            let remove = |directory: &mut Directory<'_>| directory.remove(name);
            change_directory(&mut volume, ROOT_DIRECTORY, remove).unwrap();
            volume.commit().unwrap();
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_capability_that_gives_nothing_is_not_entered() {
        let path = std::env::temp_dir().join(format!("gond-entered-{}.img", std::process::id()));
        image::create(&path, 16 << 20, None).unwrap();
        let mut volume = Volume::open_for_change(&lock_image(&path).unwrap()).unwrap();
        let address = volume.free_address();
        volume.put(&image::new_record(address, 1, 7, 0)).unwrap();
        for (password, gives) in [(8, false), (7, true)] {
            let capability = Capability { address, password };
            let volume = &mut volume;
            let mut acting = Acting {
                volume,
                base: ROOT_DIRECTORY,
            };
            act::System::enter(&mut acting, capability).unwrap();
            let (listed, _) = capabilities(acting.volume, ROOT_CLIST).unwrap();
            assert_eq!(listed.contains(&capability), gives);
        }
        std::fs::remove_file(&path).unwrap();
    }
}
