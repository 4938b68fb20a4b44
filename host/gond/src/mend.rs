//! `gond mend`: a way out where the root Clist or the root directory was overwritten.
//!
//! It gathers all that is left: records of the Clist and entries of directories that name an object of the table with a
//! password that it lists. Both roots are then as `gond check` wants them, and the system has its names again. Damage of the
//! store itself is not mended here.

use crate::arguments;
use crate::disk::{Access, lock_image};
use crate::tree::{self, Named};
use crate::volume::Volume;
use abi::Rights;
use abi::address::{FIRST_PROGRAM, ROOT_CLIST, ROOT_DIRECTORY};
use abi::layout::{Capability, ClistHeader};
use anyhow::{Context, Result, bail};
use names::clist::{Clist, ClistView};
use names::{Directory, Kind};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// Runs `gond mend`.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    let operands = arguments::operands("mend", arguments, &["IMAGE"], &[])?;
    let path = Path::new(&operands.values[0]);
    let _lock = lock_image(path)?;
    let mut volume = Volume::open(path, Access::Write)?;
    for (base, what) in [(ROOT_CLIST, "root Clist"), (ROOT_DIRECTORY, "root directory")] {
        if volume.object(base).is_none() {
            bail!(
                "{} has no {what} at all: export what you need and make another image",
                path.display()
            );
        }
    }
    let dropped = mend_directory(&mut volume)?;
    let clist = mend_clist(&mut volume)?;
    tree::recover(&mut volume)?;
    let lost = drop_dead_names(&mut volume)?;
    volume.commit()?;
    match dropped {
        Some(dropped) => println!("the root directory was mended; {dropped} entries of it made no sense and are gone"),
        None => println!("the root directory was whole"),
    }
    match clist {
        Some(found) => println!("the root Clist was made anew of {found} capabilities that were found"),
        None => println!("the root Clist was whole"),
    }
    for name in lost {
        println!("'{name}' led to no object that lists its password, and is gone");
    }
    Ok(ExitCode::SUCCESS)
}

/// Mends the root directory; tells how many entries went, if anything was to be done.
fn mend_directory(volume: &mut Volume) -> Result<Option<usize>> {
    let old = tree::whole(volume, ROOT_DIRECTORY)?;
    let mut new = old.clone();
    let dropped = Directory::mend(&mut new).context("the root directory")?;
    tree::write_back(volume, ROOT_DIRECTORY, &old, &new)?;
    Ok((old != new).then_some(dropped))
}

/// Makes the root Clist anew if it is none; tells of how many capabilities.
fn mend_clist(volume: &mut Volume) -> Result<Option<usize>> {
    let old = tree::whole(volume, ROOT_CLIST)?;
    if ClistView::open(&old).is_ok_and(|view| view.is_sorted() && view.order_holds()) {
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
    for base in [ROOT_CLIST, ROOT_DIRECTORY, FIRST_PROGRAM] {
        let owners = volume
            .object(base)
            .map(|record| record.capabilities)
            .unwrap_or_default();
        let owners = owners.into_iter().filter(|(_, rights)| *rights == Rights::OWNER.bits());
        found.extend(owners.map(|(password, _)| Capability {
            address: base,
            password,
        }));
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
