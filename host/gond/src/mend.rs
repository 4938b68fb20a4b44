//! `gond mend`: a way out where the root Clist, the root directory or the first program was overwritten or is gone.
//!
//! It gathers all that is left: records of the Clist and entries of directories that name an object of the table with a
//! password that it lists. Where the root directory is gone, objects that no other directory names get names of their addresses, and
//! the programs are put back. Both roots are then as `gond check` wants them, and the system starts again. Damage of the
//! store itself is not mended here.

use crate::arguments::{self, count};
use crate::build;
use crate::disk::{Access, lock_image};
use crate::image;
use crate::tree::{self, Named};
use crate::volume::Volume;
use abi::address::{FIRST_PROGRAM, ROOT_CLIST, ROOT_DIRECTORY, system_objects};
use abi::layout::{Capability, ClistHeader};
use anyhow::{Context, Result};
use names::clist::{Clist, ClistView};
use names::{Directory, DirectoryView, Kind};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use store::ObjectRecord;

/// Runs `gond mend`.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    let operands = arguments::operands("mend", arguments, &["IMAGE"], &[])?;
    let path = Path::new(&operands.values[0]);
    let _lock = lock_image(path)?;
    let gone: Vec<u64> = image::missing(&Volume::open(path, Access::Read)?)
        .into_iter()
        .map(|(base, _)| base)
        .collect();
    let is_gone = |base| gone.contains(&base);
    let wants_programs = is_gone(ROOT_DIRECTORY) || is_gone(FIRST_PROGRAM);
    let programs = wants_programs.then(build::programs).transpose()?;

    let mut volume = Volume::open(path, Access::Write)?;
    let said = if is_gone(ROOT_DIRECTORY) {
        image::make_root_directory(&mut volume)?;
        "the root directory was gone and was made anew".to_owned()
    } else {
        match mend_directory(&mut volume)? {
            Some(dropped) => {
                format!("the root directory was mended; {dropped} entries of it made no sense and are gone")
            }
            None => "the root directory was whole".to_owned(),
        }
    };
    println!("{said}");
    if is_gone(ROOT_CLIST) {
        let clist = image::make_root_clist(&mut volume)?;
        image::name_root_clist(&mut volume, clist)?;
    } else if is_gone(ROOT_DIRECTORY) {
        let clist = volume.object(ROOT_CLIST).as_ref().and_then(image::owner);
        image::name_root_clist(&mut volume, clist.context("the root Clist has no owner")?)?;
    }
    // Capabilities that are found go into a Clist that is in order.
    let clist = mend_clist(&mut volume, is_gone(ROOT_CLIST))?;
    enter_owners(&mut volume)?;
    if is_gone(ROOT_DIRECTORY) {
        let found = name_orphans(&mut volume)?;
        println!("{} to which no name led got names", count(found, "object"));
    }
    if let Some(programs) = &programs {
        image::put_back(&mut volume, programs)?;
        println!("the programs were put back");
    }
    tree::recover(&mut volume)?;
    let lost = drop_dead_names(&mut volume)?;
    volume.commit()?;
    match clist {
        Some(found) => println!("the root Clist was made anew of {found} capabilities that were found"),
        None => println!("the root Clist was whole"),
    }
    for name in lost {
        println!("'{name}' led to no object that lists its password, and is gone");
    }
    Ok(ExitCode::SUCCESS)
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
    objects.retain(|record| !system_objects().contains(&record.base) && !image::is_installed(record));
    let kinds: Vec<_> = objects.iter().map(|record| kind_of(volume, record)).collect();
    let mut named = BTreeSet::new();
    for (record, _) in objects.iter().zip(&kinds).filter(|(_, kind)| **kind == Kind::Directory) {
        let (inside, _) = tree::entries(volume, record.base, "")?;
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

/// The kind of an object, as its content shows it.
fn kind_of(volume: &mut Volume, record: &ObjectRecord) -> Kind {
    // One that is too large for a directory or Clist is neither; pages that cannot be read are data.
    let Ok(bytes) = tree::whole(volume, record.base) else {
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

/// Mends the root directory; tells how many entries went, if anything was to be done.
fn mend_directory(volume: &mut Volume) -> Result<Option<usize>> {
    let old = tree::whole(volume, ROOT_DIRECTORY)?;
    let mut new = old.clone();
    let dropped = Directory::mend(&mut new).context("the root directory")?;
    tree::write_back(volume, ROOT_DIRECTORY, &old, &new)?;
    Ok((old != new).then_some(dropped))
}

/// Makes the root Clist anew if it is none or was gone; tells of how many capabilities.
fn mend_clist(volume: &mut Volume, was_gone: bool) -> Result<Option<usize>> {
    let old = tree::whole(volume, ROOT_CLIST)?;
    if !was_gone && ClistView::open(&old).is_ok_and(|view| view.is_sorted() && view.order_holds()) {
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
    let (all, _) = tree::walk(volume)?;
    found.extend(
        all.iter()
            .filter(|named| named.kind != Kind::Service)
            .map(|named| named.capability),
    );
    // A service's name has a password that lets one call it and no more.
    let services = all.iter().filter(|named| named.kind == Kind::Service);
    let owned = services.map(|named| named.capability.address).chain(system_objects());
    found.extend(owned.filter_map(|base| image::owner(&volume.object(base)?)));
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
    tree::write_back(volume, ROOT_CLIST, &old, &new)?;
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
