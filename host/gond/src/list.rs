//! `gond ls`: the names on a disk image, and the objects to which none leads.

use crate::arguments;
use crate::image;
use crate::tree::{self, Named};
use crate::volume::Volume;
use abi::Rights;
use abi::address::system_objects;
use anyhow::Result;
use names::directory::Mark;
use serde_json::json;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// A line of the list.
struct Row {
    /// Its path is empty if the object has no name.
    named: Named,
    /// `None` if there is no object.
    bytes: Option<u64>,
    /// `None` if the capability is not valid.
    rights: Option<Rights>,
}

/// Runs `gond ls`.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    let operands = arguments::operands("ls", arguments, &["IMAGE"], &["json", "snapshot"])?;
    let mut volume = Volume::open_at(Path::new(&operands.values[0]), operands.snapshot.as_ref())?;
    let (mut all, complaints) = tree::walk(&mut volume);
    all.extend(unnamed(&mut volume, &all));
    let rows: Vec<Row> = all.into_iter().map(|named| row(&volume, named)).collect();
    if operands.has("json") {
        for row in &rows {
            print_json(row);
        }
    } else {
        print_table(&rows);
    }
    for complaint in complaints {
        crate::display::complain(&complaint);
    }
    Ok(ExitCode::SUCCESS)
}

/// The objects to which no name leads.
fn unnamed(volume: &mut Volume, all: &[Named]) -> Vec<Named> {
    let reached: BTreeSet<u64> = all
        .iter()
        .map(|named| named.capability.address)
        .chain(system_objects())
        .collect();
    let mut records = volume.objects();
    records.retain(|record| !reached.contains(&record.base) && record.flags & store::ROW_ENDS == 0);
    let unnamed = |record| {
        Some(Named {
            path: String::new(),
            kind: tree::kind_of(volume, record),
            capability: image::owner(record)?,
            word: 0,
            mark: Mark::Settled,
        })
    };
    records.iter().filter_map(unnamed).collect()
}

fn row(volume: &Volume, named: Named) -> Row {
    let record = volume.object(named.capability.address);
    let bytes = record.as_ref().map(|record| named.content_bytes(record));
    let rights = record.as_ref().and_then(|record| tree::rights_of(record, &named));
    Row { named, bytes, rights }
}

fn print_json(row: &Row) {
    let line = json!({
        "name": Some(&row.named.path).filter(|path| !path.is_empty()),
        "kind": row.named.kind.name(),
        "bytes": row.bytes,
        "address": format!("{:#x}", row.named.capability.address),
        "rights": row.rights.map(|rights| rights.to_string()),
    });
    println!("{line}");
}

/// Stands in the table where there is no name.
const NO_NAME: &str = "(no name)";

/// The widest column of names: longer ones push the rest of their line to the right.
const WIDTH_MAX: usize = 120;

fn print_table(rows: &[Row]) {
    let width = rows
        .iter()
        .map(|row| row.named.path.chars().count())
        .max()
        .unwrap_or(0)
        .max(NO_NAME.len())
        .min(WIDTH_MAX);
    println!(
        "{:width$}  {:9}  {:>12}  {:>14}  RIGHTS",
        "NAME", "KIND", "BYTES", "ADDRESS"
    );
    for row in rows {
        let bytes = row.bytes.map_or("-".into(), |bytes| bytes.to_string());
        let rights = match (row.bytes, row.rights) {
            (None, _) if row.named.mark != Mark::Settled => "taken back at the next start".into(),
            (None, _) => "no such object".into(),
            (_, None) => "not valid".into(),
            (_, Some(rights)) => rights.to_string(),
        };
        let (path, kind, address) = (&row.named.path, row.named.kind.name(), row.named.capability.address);
        let path = if path.is_empty() { NO_NAME } else { path };
        println!("{path:width$}  {kind:9}  {bytes:>12}  {address:#14x}  {rights}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::layout::Capability;
    use names::Kind;

    /// A path of 40,000 directories is longer than a column may be.
    #[test]
    fn a_long_path_is_listed() {
        let named = Named {
            path: "d/".repeat(40_000),
            kind: Kind::Directory,
            capability: Capability::default(),
            word: 0,
            mark: Mark::Settled,
        };
        print_table(&[Row {
            named,
            bytes: None,
            rights: None,
        }]);
    }
}
