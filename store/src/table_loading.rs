//! The object table at the mount: its inner nodes, and the leaves that somebody wants then. Waits for the disk.

use crate::blocking::{read_blocks, read_checked};
use crate::bytes::Unread;
use crate::checksum::Checksums;
use crate::containers::{Map, push_reserved, reserve};
use crate::event::{BadRows, Leaves, MountError, Structure};
use crate::heap::with_room;
use crate::record::ObjectRecord;
use crate::store::Store;
use crate::superblock::{Place, Superblock};
use crate::table::{Absent, Body, Kind, NodeId, Row, Stretch, Summary, Table};
use crate::table_format::{Decoded, FoundChild, FoundRow, decode, is_leaf};
use crate::world::{BLOCK, DiskError, World};
use alloc::vec::Vec;
use core::ops::Range;

/// More levels than any table has.
pub(crate) const HEIGHT_MAX: usize = 12;
/// Leaves that are read at a time.
const BATCH: usize = 16;

/// What a [survey](Store::survey) shows.
#[derive(Copy, Clone, Debug)]
pub enum Seen<'a> {
    /// The record of an object.
    Row(&'a ObjectRecord),
    /// The objects that begin in a range are not known. The last of them may reach to the next row that is shown.
    Unread {
        /// The first address at which one may begin.
        from: u64,
        /// One past the last.
        end: u64,
    },
}

/// The inner nodes of a table, level by level from the root, and its leaves.
#[derive(Default)]
pub(crate) struct Levels {
    inner: Vec<Vec<(Place, Vec<FoundChild>)>>,
    pub(crate) leaves: Vec<(Place, Option<Summary>)>,
}

/// Loads the inner nodes and those leaves that are wanted, or of which their parents do not tell. The heap that this takes beside all that stays grows with the inner nodes.
pub(crate) fn load_table(
    world: &mut impl World,
    checksums: &Checksums,
    superblock: &Superblock,
    leaves: Leaves,
) -> Result<Table, MountError> {
    let mut table = load_with(world, checksums, superblock, |world, table, levels| {
        let of_leaves = Leaflets {
            checksums,
            superblock,
            all: leaves == Leaves::All || levels.inner.is_empty(),
            told: &levels.leaves,
        };
        of_leaves.load(world, table)
    })?;
    if let Leaves::AsNeeded(most) = leaves {
        table.keep(most);
    }
    // Rows that are not in memory are looked at when they come.
    let sound = (leaves != Leaves::All || table.is_sound()) && table.len() == superblock.objects;
    if sound { Ok(table) } else { Err(damaged(superblock)) }
}

/// The table of an image is damaged, and nothing says more.
pub(crate) fn damaged(superblock: &Superblock) -> MountError {
    MountError::Damaged(Structure::Table, superblock.table.block)
}

/// Loads the inner nodes, and the leaves by a function of the caller's.
pub(crate) fn load_with<W: World>(
    world: &mut W,
    checksums: &Checksums,
    superblock: &Superblock,
    load_leaves: impl FnOnce(&mut W, &mut Table, &Levels) -> Result<(), MountError>,
) -> Result<Table, MountError> {
    let mut table = Table::new()?;
    if superblock.table.block == 0 {
        // Births that were given are not given again, whatever has become of the objects.
        table.set_totals(superblock.totals);
        return Ok(table);
    }
    let levels = read_levels(world, checksums, superblock)?;
    build(&mut table, &levels)?;
    if !table.is_ordered() {
        return Err(damaged(superblock));
    }
    table.set_totals(superblock.totals);
    load_leaves(world, &mut table, &levels)?;
    table.count();
    if levels.leaves.iter().any(|(_, told)| told.is_none()) {
        table.rewrite_inner()?;
    }
    Ok(table)
}

/// All inner nodes, and where the leaves are.
fn read_levels(world: &mut impl World, checksums: &Checksums, superblock: &Superblock) -> Result<Levels, MountError> {
    let mut levels = Levels {
        inner: with_room(HEIGHT_MAX)?,
        leaves: Vec::new(),
    };
    let mut next = with_room(1)?;
    push_reserved(&mut next, (superblock.table, None));
    loop {
        let told = next.iter().any(|(_, told): &(Place, Option<Summary>)| told.is_some());
        if told || begins_with_leaf(world, checksums, &next)? {
            levels.leaves = next;
            return Ok(levels);
        }
        let mut level = with_room(next.len())?;
        let mut below = Vec::new();
        let places = next.iter().map(|&(place, _)| place);
        read_checked(world, checksums, places, Structure::Table, |place, bytes| {
            let node = decode(bytes, superblock.address_bits);
            // All leaves stand at the same depth.
            let Decoded::Inner(children) = node.map_err(|unread| unread.at(Structure::Table, place.block))? else {
                return Err(MountError::Damaged(Structure::Table, place.block));
            };
            reserve(&mut below, children.len())?;
            below.extend(children.iter().map(|&(_, child, told)| (child, told)));
            push_reserved(&mut level, (place, children));
            Ok(())
        })?;
        if levels.inner.len() + 1 >= HEIGHT_MAX || below.len() as u64 > superblock.geometry.total {
            return Err(MountError::Damaged(Structure::Table, superblock.table.block));
        }
        // Where a node stood on two levels, its leaves would, too.
        require_distinct(below.iter().map(|&(place, _)| place.block))?;
        push_reserved(&mut levels.inner, level);
        next = below;
    }
}

/// Whether the first node of a level is a leaf. That it is intact is seen when it is read.
fn begins_with_leaf(
    world: &mut impl World,
    checksums: &Checksums,
    level: &[(Place, Option<Summary>)],
) -> Result<bool, MountError> {
    let mut is = false;
    let first = level.iter().take(1).map(|&(place, _)| place);
    read_checked(world, checksums, first, Structure::Table, |_, bytes| {
        is = is_leaf(bytes);
        Ok(())
    })?;
    Ok(is)
}

/// Puts the tree together, with leaves that are not in memory.
fn build(table: &mut Table, levels: &Levels) -> Result<(), MountError> {
    let mut ids: Vec<NodeId> = with_room(levels.leaves.len())?;
    for &(place, told) in &levels.leaves {
        let id = table.add_loaded(place, Body::Absent(None), told.unwrap_or_default())?;
        push_reserved(&mut ids, id);
    }
    for level in levels.inner.iter().rev() {
        let mut below = core::mem::replace(&mut ids, with_room(level.len())?).into_iter();
        for (place, children) in level {
            let mut known = with_room(children.len())?;
            known.extend(children.iter().map(|&(key, ..)| key).zip(below.by_ref()));
            let id = table.add_loaded(*place, Body::Inner(known), Summary::default())?;
            push_reserved(&mut ids, id);
        }
    }
    if let [root] = ids[..] {
        table.set_root(root)?;
    }
    Ok(())
}

/// The leaves that are read at the mount.
struct Leaflets<'a> {
    checksums: &'a Checksums,
    superblock: &'a Superblock,
    /// Whether all are, and stay in memory.
    all: bool,
    told: &'a [(Place, Option<Summary>)],
}

impl Leaflets<'_> {
    /// Reads them, some at a time, in the order of their keys.
    fn load(&self, world: &mut impl World, table: &mut Table) -> Result<(), MountError> {
        let mut bodies = Map::default();
        let mut next = 0;
        let mut told = self.told.iter();
        loop {
            let mut batch: Vec<((Place, Option<Summary>), u64, NodeId)> = with_room(BATCH)?;
            while batch.len() < BATCH
                && let Some(&(place, told)) = told.next()
            {
                let (leaf, (from, end)) = table.leaf_and_range(next);
                if self.all || told.is_none() {
                    push_reserved(&mut batch, ((place, told), from, leaf));
                }
                next = end;
            }
            if batch.is_empty() {
                if told.len() == 0 {
                    return Ok(());
                }
                continue;
            }
            let mut found: Vec<Vec<FoundRow>> = with_room(batch.len())?;
            let places = batch.iter().map(|&((place, _), ..)| place);
            read_checked(world, self.checksums, places, Structure::Table, |place, bytes| {
                let node = decode(bytes, self.superblock.address_bits);
                let Decoded::Leaf(rows) = node.map_err(|unread| unread.at(Structure::Table, place.block))? else {
                    return Err(MountError::Damaged(Structure::Table, place.block));
                };
                push_reserved(&mut found, rows);
                Ok(())
            })?;
            for (leaf, rows) in batch.into_iter().zip(found) {
                // A body that rows of several leaves name would be taken into memory as often.
                for body in rows.iter().flat_map(|(row, _)| &row.overflow) {
                    if bodies.insert(body.block, ())?.is_some() {
                        return Err(MountError::Damaged(Structure::Table, body.block));
                    }
                }
                let rows = read_bodies(world, self.checksums, self.superblock.address_bits, rows)?;
                self.take(table, leaf, rows)?;
            }
        }
    }

    /// Takes in what a leaf tells, and its rows if they stay.
    fn take(
        &self,
        table: &mut Table,
        ((place, told), from, leaf): ((Place, Option<Summary>), u64, NodeId),
        rows: Vec<Row>,
    ) -> Result<(), MountError> {
        if told.is_none() {
            table.tell(leaf, Summary::of(&rows));
        }
        if !self.superblock.leaves_are_told {
            for row in &rows {
                table.add_up(&row.record);
            }
        }
        if self.all {
            let installed = table.install(leaf, from, rows);
            installed.map_err(|unread| unread.at(Structure::Table, place.block))?;
        }
        Ok(())
    }
}

/// Refuses blocks that several parents lead to. Each would be taken into memory as often as it is named, and a crafted table names one a million times.
fn require_distinct(all: impl ExactSizeIterator<Item = u64>) -> Result<(), MountError> {
    let mut blocks = with_room(all.len())?;
    all.for_each(|block| push_reserved(&mut blocks, block));
    blocks.sort_unstable();
    match blocks.array_windows().find(|[one, next]| one == next) {
        Some(&[block, _]) => Err(MountError::Damaged(Structure::Table, block)),
        None => Ok(()),
    }
}

fn read_bodies(
    world: &mut impl World,
    checksums: &Checksums,
    address_bits: u32,
    rows: Vec<FoundRow>,
) -> Result<Vec<Row>, MountError> {
    let mut whole = with_room(rows.len())?;
    for (mut row, length) in rows {
        if let Some(&Place { block: first, .. }) = row.overflow.first() {
            let mut body = with_room(row.overflow.len() * BLOCK)?;
            let places = row.overflow.iter().copied();
            read_checked(world, checksums, places, Structure::Table, |_, bytes| {
                body.extend_from_slice(bytes);
                Ok(())
            })?;
            let body = body.get(..length).ok_or(MountError::Damaged(Structure::Table, first))?;
            let decoded = row.record.decode_body(body, address_bits);
            decoded.map_err(|unread| unread.at(Structure::Table, first))?;
        }
        push_reserved(&mut whole, row);
    }
    Ok(whole)
}

impl Store {
    /// Shows the table in the order of addresses, for a start: rows that are in memory, those that have procedures or go with this start, and the last ones; all if there is place for them. Of a leaf that is not
    /// read, or rotten, the range is shown. Waits for the disk.
    ///
    /// # Errors
    /// [`MountError::Disk`], [`MountError::Memory`], and what `show` says.
    pub fn survey(
        &mut self,
        world: &mut impl World,
        mut show: impl FnMut(Seen<'_>) -> Result<(), MountError>,
    ) -> Result<(), MountError> {
        let all = self.table.all_have_place();
        let stretches = self
            .table
            .stretches(|told, end| all || told.is_for_start || end == u64::MAX)?;
        let mut at = 0;
        while let Some(&stretch) = stretches.get(at) {
            let (from, end) = (stretch.from, stretch.end);
            match stretch.leaves {
                Kind::InMemory => self.show_rows(from..end, &mut show)?,
                Kind::Unread => show(Seen::Unread { from, end })?,
                Kind::Wanted(_) => {
                    let mut batch: Vec<Absent> = with_room(BATCH)?;
                    while batch.len() < BATCH
                        && let Some(&Stretch {
                            leaves: Kind::Wanted(leaf),
                            from,
                            end,
                        }) = stretches.get(at)
                    {
                        push_reserved(&mut batch, Absent::new(leaf, from, end));
                        at += 1;
                    }
                    self.show_leaves(world, batch, &mut show)?;
                    continue;
                }
            }
            at += 1;
        }
        Ok(())
    }

    /// Reads some leaves and shows their rows.
    fn show_leaves(
        &mut self,
        world: &mut impl World,
        batch: Vec<Absent>,
        show: &mut impl FnMut(Seen<'_>) -> Result<(), MountError>,
    ) -> Result<(), MountError> {
        let read = self.read_leaves(world, &batch)?;
        for (absent, rows) in batch.into_iter().zip(read) {
            let Some(rows) = rows else {
                show(Seen::Unread {
                    from: absent.from(),
                    end: absent.end(),
                })?;
                continue;
            };
            rows.iter().try_for_each(|row| show(Seen::Row(&row.record)))?;
            if self.table.has_place() {
                // It was seen to fit.
                let _ = self.table.install(absent.leaf, absent.from(), rows);
            }
        }
        Ok(())
    }

    /// Shows the records in memory that begin in a range.
    fn show_rows(
        &self,
        range: Range<u64>,
        show: &mut impl FnMut(Seen<'_>) -> Result<(), MountError>,
    ) -> Result<(), MountError> {
        let mut at = range.start;
        while at < range.end
            && let Ok(Some(record)) = self.at_or_after(at)
            && record.base < range.end
        {
            show(Seen::Row(record))?;
            at = record.base + 1;
        }
        Ok(())
    }

    /// The rows of some leaves, from the disk; none of those that are rotten.
    fn read_leaves(&mut self, world: &mut impl World, batch: &[Absent]) -> Result<Vec<Option<Vec<Row>>>, MountError> {
        let mut found: Vec<Option<Vec<FoundRow>>> = with_room(batch.len())?;
        let places = || batch.iter().map(|absent| self.table.place(absent.leaf));
        let mut expected = places();
        read_blocks(world, places().map(|place| place.block), |block, bytes| {
            let bytes = bytes.map_err(|DiskError| MountError::Disk)?;
            let fits = expected
                .next()
                .is_some_and(|place| self.checksums.fit(place.checksum, block, bytes));
            let rows = match decode(bytes, self.address_bits) {
                Err(Unread::NoHeap) => return Err(MountError::Memory),
                Ok(Decoded::Leaf(rows)) if fits => Some(rows),
                _ => None,
            };
            push_reserved(&mut found, rows);
            Ok(())
        })?;
        let mut whole = with_room(batch.len())?;
        for (&absent, rows) in batch.iter().zip(found) {
            let rows = match rows.map(|rows| read_bodies(world, &self.checksums, self.address_bits, rows)) {
                None | Some(Err(MountError::Damaged(..))) => None,
                Some(rows) => Some(rows?).filter(|rows| self.table.may_be(absent, rows)),
            };
            self.damaged += u64::from(rows.is_none());
            push_reserved(&mut whole, rows);
        }
        Ok(whole)
    }

    /// The rows of a leaf, from the disk.
    pub(crate) fn read_leaf(&self, world: &mut impl World, place: Place) -> Result<Vec<Row>, MountError> {
        let mut found = None;
        let places = core::iter::once(place);
        read_checked(world, &self.checksums, places, Structure::Table, |place, bytes| {
            let node = decode(bytes, self.address_bits);
            found = Some(node.map_err(|unread| unread.at(Structure::Table, place.block))?);
            Ok(())
        })?;
        let Some(Decoded::Leaf(rows)) = found else {
            return Err(MountError::Damaged(Structure::Table, place.block));
        };
        read_bodies(world, &self.checksums, self.address_bits, rows)
    }

    /// Brings the leaf into memory that an address belongs to, at the mount; `false` if it is rotten.
    pub(crate) fn bring(&mut self, world: &mut impl World, address: u64) -> Result<bool, MountError> {
        let Some(absent) = self.table.absent_at(address) else {
            return Ok(true);
        };
        if self.table.bad(absent.leaf) == Some(BadRows::Rotten) {
            return Ok(false);
        }
        // What is read wrong once would be a loss.
        for _ in 0..2 {
            let rows = match self.read_leaf(world, self.table.place(absent.leaf)) {
                Err(MountError::Damaged(..)) => continue,
                read => read?,
            };
            if self.table.install(absent.leaf, absent.from(), rows).is_ok() {
                return Ok(true);
            }
        }
        self.table.set_bad(absent.leaf, BadRows::Rotten);
        self.damaged += 1;
        Ok(false)
    }
}
