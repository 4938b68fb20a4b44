//! What is left of an object table: for a repair, which loses the rows of a rotten leaf and no others. Waits for the
//! disk.

use crate::blocking::read_block;
use crate::bytes::Unread;
use crate::checksum::Checksums;
use crate::containers::{filled, push};
use crate::event::{BadRows, MountError, Structure};
use crate::heap::with_room;
use crate::superblock::{Place, Superblock};
use crate::table::{NodeId, Row, Summary, Table};
use crate::table_format::{Decoded, FoundRow, decode};
use crate::table_loading::{damaged, load_with};
use crate::world::{BLOCK, World};
use alloc::vec::Vec;

/// A leaf whose rows are lost.
#[derive(Copy, Clone, Debug)]
pub(crate) struct LostLeaf {
    pub(crate) leaf: NodeId,
    pub(crate) block: u64,
    /// The first address at which an object of the leaf may begin, and one past the last one.
    pub(crate) from: u64,
    pub(crate) end: u64,
    pub(crate) rows: u8,
}

/// A row that has lost its body.
#[derive(Copy, Clone, Debug)]
pub(crate) struct LostBody {
    pub(crate) base: u64,
    pub(crate) block: u64,
}

/// What a table has lost.
#[derive(Default)]
pub(crate) struct Lost {
    pub(crate) leaves: Vec<LostLeaf>,
    pub(crate) bodies: Vec<LostBody>,
}

/// Loads the table with all rows that can be read. A rotten leaf is not in memory then, and known as rotten.
///
/// # Errors
/// [`MountError`]: the disk reports an error for a part of it, or an inner node is rotten, or a leaf of which nobody
/// tells.
pub(crate) fn salvage_table(
    world: &mut impl World,
    checksums: &Checksums,
    superblock: &Superblock,
    lost: &mut Lost,
) -> Result<Table, MountError> {
    let mut table = load_with(world, checksums, superblock, |world, table, levels| {
        let mut from = 0;
        for &(place, told) in &levels.leaves {
            let (leaf, (_, end)) = table.leaf_and_range(from);
            match (read_leaf(world, checksums, superblock.address_bits, place, lost)?, told) {
                (Some(rows), told) => take(table, superblock, (leaf, from), place, (rows, told), lost)?,
                (None, None) => return Err(MountError::Damaged(Structure::Table, place.block)),
                (None, Some(told)) => {
                    table.set_bad(leaf, BadRows::Rotten);
                    let gone = LostLeaf {
                        leaf,
                        block: place.block,
                        from,
                        end,
                        rows: told.rows,
                    };
                    push(&mut lost.leaves, gone)?;
                }
            }
            from = end;
        }
        Ok(())
    })?;
    // The next generation writes rows anew that have lost their body.
    lost.bodies.iter().for_each(|body| table.keep_until_written(body.base));
    if table.is_sound() && table.len() == superblock.objects {
        Ok(table)
    } else {
        Err(damaged(superblock))
    }
}

/// Takes the rows in that are left of a leaf.
fn take(
    table: &mut Table,
    superblock: &Superblock,
    (leaf, from): (NodeId, u64),
    place: Place,
    (rows, told): (Vec<Row>, Option<Summary>),
    lost: &Lost,
) -> Result<(), MountError> {
    if !superblock.leaves_are_told {
        for row in &rows {
            table.add_up(&row.record);
        }
    }
    // The summary of before says of what is lost what it was.
    let is_whole = rows
        .iter()
        .all(|row| !lost.bodies.iter().any(|body| body.base == row.record.base));
    if told.is_none() || !is_whole {
        table.tell(leaf, Summary::of(&rows));
    }
    let installed = table.install(leaf, from, rows);
    installed.map_err(|unread| unread.at(Structure::Table, place.block))
}

/// The rows of a leaf, without the bodies that are rotten; `None` if all of it is rotten. What is read wrong is read
/// again.
fn read_leaf(
    world: &mut impl World,
    checksums: &Checksums,
    address_bits: u32,
    place: Place,
    lost: &mut Lost,
) -> Result<Option<Vec<Row>>, MountError> {
    let Some(bytes) = read_twice(world, checksums, place)? else {
        return Ok(None);
    };
    let found: Vec<FoundRow> = match decode(&bytes, address_bits) {
        Ok(Decoded::Leaf(found)) => found,
        Ok(Decoded::Inner(_)) | Err(Unread::Nonsense) => return Ok(None),
        Err(Unread::NoHeap) => return Err(MountError::Memory),
    };
    let mut rows = with_room(found.len())?;
    for (mut row, length) in found {
        if let Some(block) = read_body(world, checksums, address_bits, &mut row, length)? {
            row.overflow = Vec::new();
            let base = row.record.base;
            push(&mut lost.bodies, LostBody { base, block })?;
        }
        push(&mut rows, row)?;
    }
    Ok(Some(rows))
}

/// Reads the body of a row that stands in blocks of its own; tells a block that is rotten.
fn read_body(
    world: &mut impl World,
    checksums: &Checksums,
    address_bits: u32,
    row: &mut Row,
    length: usize,
) -> Result<Option<u64>, MountError> {
    let Some(&Place { block: first, .. }) = row.overflow.first() else {
        return Ok(None);
    };
    let mut body: Vec<u8> = filled(0, row.overflow.len() * BLOCK)?;
    for (&place, part) in row.overflow.iter().zip(body.as_chunks_mut::<BLOCK>().0) {
        match read_twice(world, checksums, place)? {
            Some(bytes) => *part = bytes,
            None => return Ok(Some(place.block)),
        }
    }
    let Some(body) = body.get(..length) else {
        return Ok(Some(first));
    };
    match row.record.decode_body(body, address_bits) {
        Ok(()) => Ok(None),
        Err(Unread::NoHeap) => Err(MountError::Memory),
        Err(Unread::Nonsense) => {
            row.record.forget_body();
            Ok(Some(first))
        }
    }
}

/// The block at a place, if it is as it was written.
fn read_twice(world: &mut impl World, checksums: &Checksums, place: Place) -> Result<Option<[u8; BLOCK]>, MountError> {
    if place.block >= world.blocks() {
        return Ok(None);
    }
    let mut is_read = false;
    for _ in 0..2 {
        let Some(bytes) = read_block(world, place.block)? else {
            continue;
        };
        is_read = true;
        if checksums.fit(place.checksum, place.block, &bytes) {
            return Ok(<[u8; BLOCK]>::try_from(&bytes[..]).ok());
        }
    }
    if is_read { Ok(None) } else { Err(MountError::Disk) }
}
