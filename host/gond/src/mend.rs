//! `gond mend`: a way out where the root Clist, the root directory or the first program was overwritten, is damaged or is gone.
//!
//! It gathers all that is left: records of the Clist and entries of directories that name an object of the table with a
//! password that it lists. Where a directory is gone or has lost a page, objects that no other directory names get names of their
//! addresses; with `--name-all` they get them in any case. The programs are put back. Both roots are then as `gond check` wants them, and the system starts again. Damaged pages of
//! other objects and damage of the store itself are not mended here.

use crate::arguments::{self, count};
use crate::build;
use crate::check;
use crate::disk::lock_image;
use crate::image;
use crate::tree::{self, Named};
use crate::volume::{Damage, Volume};
use abi::address::{FIRST_PROGRAM, PAGE, ROOT_CLIST, ROOT_DIRECTORY, system_objects};
use abi::layout::{Capability, ClistHeader};
use anyhow::{Context, Result};
use names::clist::{Clist, ClistView};
use names::{Directory, Kind};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// Runs `gond mend`.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    let operands = arguments::operands("mend", arguments, &["IMAGE"], &["name-all"])?;
    let path = Path::new(&operands.values[0]);
    let lock = lock_image(path)?;
    let mut volume = Volume::open(path)?;
    let gone: Vec<u64> = image::missing(&volume).into_iter().map(|(base, _)| base).collect();
    let is_gone = |base| gone.contains(&base);
    let lost_names = is_gone(ROOT_DIRECTORY) || !tree::left(&mut volume, ROOT_DIRECTORY)?.1.is_empty();
    let rotten = has_rotten_program(&mut volume)?;
    let wants_programs = lost_names || rotten || is_gone(FIRST_PROGRAM);
    let programs = wants_programs.then(build::programs).transpose()?;

    let mut volume = Volume::open_for_change(&lock)?;
    if is_gone(ROOT_DIRECTORY) {
        image::make_root_directory(&mut volume)?;
        println!("the root directory was gone and was made anew");
    } else {
        mend_root_directory(&mut volume)?;
    }
    if is_gone(ROOT_CLIST) {
        let clist = image::make_root_clist(&mut volume)?;
        image::name_root_clist(&mut volume, clist)?;
    } else if lost_names {
        let clist = volume.object(ROOT_CLIST).as_ref().and_then(image::owner);
        image::name_root_clist(&mut volume, clist.context("the root Clist has no owner")?)?;
    }
    let lost_below = mend_directories_below(&mut volume)?;
    // Capabilities that are found go into a Clist that is in order.
    let clist = mend_clist(&mut volume, is_gone(ROOT_CLIST))?;
    enter_owners(&mut volume)?;
    tree::recover(&mut volume)?;
    if lost_names || lost_below || operands.has("name-all") {
        let found = name_orphans(&mut volume)?;
        println!("{} to which no name led got names", count(found, "object"));
    }
    if let Some(programs) = &programs {
        image::put_back(&mut volume, programs)?;
        println!("the programs were put back");
    }
    let lost = drop_dead_names(&mut volume)?;
    volume.commit()?;
    match clist {
        Some(found) => println!("the root Clist was made anew of {found} capabilities that were found"),
        None => println!("the root Clist was whole"),
    }
    for name in lost {
        println!("'{name}' led to no object that lists its password, and is gone");
    }
    drop(volume);
    if let Some(programs) = programs.filter(|_| rotten) {
        image::refresh(&lock, &programs)?;
    }
    let left = check::examine(path)?.faults;
    for fault in &left {
        println!("not mended: {fault}");
    }
    Ok(ExitCode::from(u8::from(!left.is_empty())))
}

/// Whether a page of an installed program is damaged.
fn has_rotten_program(volume: &mut Volume) -> Result<bool> {
    let mut installed = volume.objects();
    installed.retain(image::is_installed);
    for record in installed {
        if !volume.read_left(record.base, record.pages * PAGE)?.1.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Enters the owner capabilities of the system objects in place of those that one of them had before it was made anew.
fn enter_owners(volume: &mut Volume) -> Result<()> {
    let owners: Vec<Capability> = system_objects()
        .into_iter()
        .filter_map(|base| image::owner(&volume.object(base)?))
        .collect();
    tree::change_root_clist(volume, |clist| {
        for owner in owners {
            if !clist.view().contains(owner) {
                clist.remove_all(owner.address);
                clist.insert(owner)?;
            }
        }
        Ok(())
    })
}

/// Gives objects names of their addresses to which no directory leads; tells how many. Programs that were installed are put back otherwise.
fn name_orphans(volume: &mut Volume) -> Result<u64> {
    let mut objects = volume.objects();
    // An object that the next start deletes gets no name: the name would lead nowhere then.
    objects.retain(|record| {
        !system_objects().contains(&record.base) && !image::is_installed(record) && record.flags & store::ROW_ENDS == 0
    });
    let kinds: Vec<_> = objects.iter().map(|record| tree::kind_of(volume, record)).collect();
    let mut named = BTreeSet::new();
    let directories = objects.iter().zip(&kinds).filter(|(_, kind)| **kind == Kind::Directory);
    for base in directories.map(|(record, _)| record.base).chain([ROOT_DIRECTORY]) {
        let (inside, _) = tree::entries(volume, base, "")?;
        named.extend(inside.iter().map(|named| named.capability.address));
    }
    let mut found = 0;
    for (record, kind) in objects.iter().zip(kinds) {
        let orphan = image::owner(record).filter(|_| !named.contains(&record.base));
        if let Some(capability) = orphan {
            image::enter(volume, &format!("found-{:#x}", record.base), kind, capability, 0)?;
            found += 1;
        }
    }
    Ok(found)
}

/// Mends the root directory, and tells what was to be done.
fn mend_root_directory(volume: &mut Volume) -> Result<()> {
    let (old, damaged) = tree::left(volume, ROOT_DIRECTORY)?;
    let mut new = old.clone();
    let dropped = Directory::mend(&mut new).context("the root directory")?;
    if !damaged.is_empty() {
        put_what_is_left(volume, "the root directory", ROOT_DIRECTORY, &new, &damaged)?;
    } else if old != new {
        tree::write_back(volume, ROOT_DIRECTORY, &old, &new)?;
        println!("the root directory was mended; {dropped} entries of it made no sense and are gone");
    } else {
        println!("the root directory was whole");
    }
    Ok(())
}

/// Mends all other directories that have damaged pages; tells whether there were any. Each is listed when it is mended: names in it may lead to more.
fn mend_directories_below(volume: &mut Volume) -> Result<bool> {
    let mut seen = BTreeSet::from([ROOT_DIRECTORY]);
    let mut waiting = vec![(ROOT_DIRECTORY, String::new())];
    let mut any = false;
    while let Some((base, prefix)) = waiting.pop() {
        if base != ROOT_DIRECTORY {
            any |= mend_directory(volume, base, prefix.trim_end_matches('/'))?;
        }
        // One that leads nowhere or is no directory is for `check` to tell.
        let (inside, _) = tree::entries(volume, base, &prefix).unwrap_or_default();
        for named in inside {
            if named.kind == Kind::Directory && seen.insert(named.capability.address) {
                waiting.push((named.capability.address, format!("{}/", named.path)));
            }
        }
    }
    Ok(any)
}

/// Mends a directory below the root if pages of it are damaged; tells whether any were.
fn mend_directory(volume: &mut Volume, base: u64, path: &str) -> Result<bool> {
    let (mut new, damaged) = tree::left(volume, base).unwrap_or_default();
    if damaged.is_empty() {
        return Ok(false);
    }
    Directory::mend(&mut new).with_context(|| path.to_owned())?;
    put_what_is_left(volume, &format!("'{path}'"), base, &new, &damaged)?;
    Ok(true)
}

/// Puts what is left of an object in its place, and tells what is lost.
fn put_what_is_left(volume: &mut Volume, what: &str, base: u64, left: &[u8], damaged: &[Damage]) -> Result<()> {
    for damage in damaged {
        println!("page {} of {what} is lost: {}", damage.page, damage.what);
    }
    println!("{what} was made anew of what is left");
    tree::put_whole(volume, base, left)
}

/// Makes the root Clist anew if it is none, is damaged or was gone; tells of how many capabilities.
fn mend_clist(volume: &mut Volume, was_gone: bool) -> Result<Option<usize>> {
    let (old, damaged) = tree::left(volume, ROOT_CLIST)?;
    for damage in &damaged {
        println!("page {} of the root Clist is lost: {}", damage.page, damage.what);
    }
    let lost = was_gone || !damaged.is_empty();
    if !lost && ClistView::open(&old).is_ok_and(|view| view.is_sorted() && view.order_holds()) {
        return Ok(None);
    }
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let records = old[ClistHeader::BYTES..].chunks_exact(Capability::BYTES);
    let mut found: Vec<Capability> = records
        .map(|record| Capability {
            address: word(&record[..8]),
            password: word(&record[8..]),
        })
        .collect();
    let (all, _) = tree::walk(volume);
    found.extend(
        all.iter()
            .filter(|named| named.kind != Kind::Service)
            .map(|named| named.capability),
    );
    // A service's name has a password that lets one call it and no more.
    let services = all.iter().filter(|named| named.kind == Kind::Service);
    let owned = services.map(|named| named.capability.address).chain(system_objects());
    found.extend(owned.filter_map(|base| image::owner(&volume.object(base)?)));
    if lost {
        // Objects without names: their capabilities may have stood in the part that is lost.
        let known: BTreeSet<u64> = found.iter().map(|capability| capability.address).collect();
        let mut unknown = volume.objects();
        unknown.retain(|record| !known.contains(&record.base));
        found.extend(unknown.iter().filter_map(image::owner));
    }
    let mut new = vec![0; old.len()];
    let mut clist = Clist::format(&mut new).context("the root Clist")?;
    for capability in found {
        let record = volume.object(capability.address);
        let listed = |(password, _): &(u64, _)| *password == capability.password;
        if record.is_some_and(|record| record.capabilities.iter().any(listed)) {
            clist.insert(capability).context("the root Clist")?;
        }
    }
    let count = clist.view().count();
    tree::put_whole(volume, ROOT_CLIST, &new)?;
    Ok(Some(count))
}

/// Takes names of the root directory away that lead nowhere.
fn drop_dead_names(volume: &mut Volume) -> Result<Vec<String>> {
    let (all, _) = tree::entries(volume, ROOT_DIRECTORY, "")?;
    let is_dead = |named: &Named| {
        volume
            .object(named.capability.address)
            .is_none_or(|record| tree::rights_of(&record, named).is_none())
    };
    let dead: Vec<String> = all
        .iter()
        .filter(|named| is_dead(named))
        .map(|named| named.path.clone())
        .collect();
    tree::change_directory(volume, ROOT_DIRECTORY, |directory| {
        dead.iter().try_for_each(|name| directory.remove(name))
    })?;
    Ok(dead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Scratch;

    /// Objects that no name leads to get one each, also those of programs; an object of more addresses than the system gives is a fault.
    #[test]
    fn what_has_no_name_gets_one_and_what_is_too_large_is_told() {
        let scratch = Scratch::make().unwrap();
        let path = scratch.file("a.img");
        image::create(&path, 16 << 20, None).unwrap();
        let mut volume = Volume::open_for_change(&lock_image(&path).unwrap()).unwrap();
        let base = volume.free_address();
        volume.put(&image::new_record(base, 3, 5, 0)).unwrap();
        volume.commit().unwrap();
        drop(volume);
        let checked = check::examine(&path).unwrap();
        assert!(
            checked.faults.is_empty() && checked.unnamed == 1,
            "{:?}",
            checked.faults
        );
        assert!(checked.notes.iter().any(|note| note.contains("gond mend --name-all")));

        let mut volume = Volume::open_for_change(&lock_image(&path).unwrap()).unwrap();
        assert_eq!(name_orphans(&mut volume).unwrap(), 1);
        assert_eq!(name_orphans(&mut volume).unwrap(), 0);
        let found = tree::find(&mut volume, &format!("found-{base:#x}")).unwrap();
        assert_eq!((found.kind, found.capability.address), (Kind::Data, base));

        // An object that the next start deletes gets no name, and a check tells of it.
        let ends = volume.free_address();
        let mut record = image::new_record(ends, 3, 7, 0);
        record.flags |= store::ROW_ENDS;
        volume.put(&record).unwrap();
        volume.commit().unwrap();
        assert_eq!(name_orphans(&mut volume).unwrap(), 0);
        drop(volume);
        let checked = check::examine(&path).unwrap();
        assert!(checked.faults.is_empty() && checked.unnamed == 0);
        assert!(
            checked
                .notes
                .iter()
                .any(|note| note.contains("gone with the next start"))
        );
        let mut volume = Volume::open_for_change(&lock_image(&path).unwrap()).unwrap();

        let large = volume.free_address();
        let pages = abi::address::OBJECT_BYTES_MAX / PAGE + 1;
        volume.put(&image::new_record(large, pages, 6, 0)).unwrap();
        volume.commit().unwrap();
        drop(volume);
        let faults = check::examine(&path).unwrap().faults.join("\n");
        assert!(
            faults.contains(&format!("./gond export IMAGE {large:#x} FILE")),
            "{faults}"
        );
    }
}
