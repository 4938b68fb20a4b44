//! Snapshots at a mount: the list, the chains, and what they hold. Waits for the disk.

use super::format::{Entry, Link, Record, Twin, decode_link, decode_list};
use super::reach::{Wanted, find_reached};
use super::{Known, SnapshotName, Snapshots};
use crate::allocation::Allocation;
use crate::blocking::{read_block, read_blocks};
use crate::bytes::Unread;
use crate::checksum::Checksums;
use crate::containers::push;
use crate::event::{MountError, MountReport, Structure};
use crate::geometry::Geometry;
use crate::superblock::{Place, Superblock};
use crate::world::{BLOCK, World};
use alloc::vec::Vec;

/// What a mount does where it cannot read which blocks are held.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum OnLost {
    /// It is refused: a block that a snapshot needs could be used. Where a bitmap block alone cannot be read, the table of its snapshot says what is held
    /// of that group ([`super::reach`]); where that cannot be read either, all of the group is held.
    Refuse,
    /// It is told, for nothing will be written.
    Tell,
    /// It is told, and what is held will be found out from the tables. Both copies of everything are read.
    Rebuild,
}

/// What is read of the blocks that tell of snapshots.
pub(crate) struct Telling<'a> {
    pub(crate) checksums: &'a Checksums,
    pub(crate) geometry: Geometry,
    /// Whether second copies are read where the first is whole.
    pub(crate) both: bool,
    /// Blocks that are not as they were written; and whether the disk reports an error for one.
    pub(crate) bad: Vec<u64>,
    pub(crate) is_unread: bool,
}

/// How much of a chain there is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Chain {
    /// What it says, if its first block can be read.
    pub(crate) record: Option<Record>,
    /// Whether all of its blocks can.
    pub(crate) is_whole: bool,
}

impl<'a> Telling<'a> {
    pub(crate) fn new(checksums: &'a Checksums, geometry: Geometry, both: bool) -> Self {
        Self {
            checksums,
            geometry,
            both,
            bad: Vec::new(),
            is_unread: false,
        }
    }

    /// A block under a checksum, if it can be read; what is read wrong is read again.
    pub(crate) fn read(
        &mut self,
        world: &mut impl World,
        block: u64,
        place: Place,
    ) -> Result<Option<Vec<u8>>, MountError> {
        let mut is_read = false;
        for _ in 0..2 {
            if !self.geometry.is_data(block) {
                is_read = true;
                break;
            }
            if let Some(bytes) = read_block(world, block)? {
                is_read = true;
                if self.checksums.fit(place.checksum, place.block, &bytes) {
                    return Ok(Some(bytes));
                }
            }
        }
        self.is_unread |= !is_read;
        push(&mut self.bad, block)?;
        Ok(None)
    }

    /// Why what stands in a block, and in its copy, cannot be had: a disk that cannot be read now has no damage that a repair could mend.
    pub(crate) fn gone(&self, block: u64) -> MountError {
        if self.is_unread {
            MountError::Disk
        } else {
            MountError::Damaged(Structure::Snapshots, block)
        }
    }

    /// One of the copies of a block.
    fn twin(&mut self, world: &mut impl World, twin: &Twin) -> Result<Option<Vec<u8>>, MountError> {
        let place = twin.place();
        let mut found = None;
        for block in twin.blocks {
            if found.is_none() || self.both {
                let copy = self.read(world, block, place)?;
                found = found.or(copy);
            }
        }
        Ok(found)
    }

    /// The names of the snapshots, with the first blocks of their chains; `None` if they cannot be read.
    pub(crate) fn list(
        &mut self,
        world: &mut impl World,
        list: &Twin,
    ) -> Result<Option<Vec<(SnapshotName, Twin)>>, MountError> {
        let Some(bytes) = self.twin(world, list)? else {
            return Ok(None);
        };
        match decode_list(&bytes) {
            Ok(found) => Ok(Some(found)),
            Err(Unread::NoHeap) => Err(MountError::Memory),
            Err(Unread::Nonsense) => Ok(None),
        }
    }

    /// A block of a chain, whose groups are behind all before.
    fn link(
        &mut self,
        world: &mut impl World,
        name: &SnapshotName,
        (twin, from): (&Twin, u64),
    ) -> Result<Option<Link>, MountError> {
        let Some(bytes) = self.twin(world, twin)? else {
            return Ok(None);
        };
        let link = match decode_link(&bytes) {
            Ok(link) => link,
            Err(Unread::NoHeap) => return Err(MountError::Memory),
            Err(Unread::Nonsense) => return Ok(None),
        };
        let groups = self.geometry.bitmap_blocks();
        let is_fit = |&(group, place): &Entry| (from..groups).contains(&group) && self.geometry.is_data(place.block);
        let goes_on = link.next.is_none() || !link.entries.is_empty();
        let is_sound = link.record.name == *name && link.entries.iter().all(is_fit) && goes_on;
        Ok(Some(link).filter(|_| is_sound))
    }

    /// Shows each block of a chain, with where it stands.
    pub(crate) fn chain<W: World>(
        &mut self,
        world: &mut W,
        (name, head): (&SnapshotName, &Twin),
        mut show: impl FnMut(&mut Self, &mut W, &Twin, &Link) -> Result<(), MountError>,
    ) -> Result<Chain, MountError> {
        let mut chain = Chain {
            record: None,
            is_whole: false,
        };
        let (mut next, mut from) = (Some(*head), 0);
        while let Some(twin) = next {
            let Some(link) = self.link(world, name, (&twin, from))? else {
                return Ok(chain);
            };
            chain.record.get_or_insert(link.record);
            show(self, world, &twin, &link)?;
            from = link.entries.last().map_or(from, |last| last.0 + 1);
            next = link.next;
        }
        chain.is_whole = true;
        Ok(chain)
    }

    /// Shows the blocks of some entries, each with its number there; none for one that cannot be read. Tells whether all can.
    pub(crate) fn bitmaps(
        &mut self,
        world: &mut impl World,
        entries: &[Entry],
        mut show: impl FnMut(usize, Option<&[u8; BLOCK]>) -> Result<(), MountError>,
    ) -> Result<bool, MountError> {
        let (mut all, mut doubtful) = (entries.iter(), Vec::new());
        read_blocks(world, entries.iter().map(|entry| entry.1.block), |block, bytes| {
            let Some(entry) = all.next() else { return Ok(()) };
            match bytes {
                Ok(bytes) if self.checksums.fit(entry.1.checksum, block, bytes) => show(entry.0 as usize, Some(bytes)),
                _ => Ok(push(&mut doubtful, *entry)?),
            }
        })?;
        let mut is_whole = true;
        for (group, place) in doubtful {
            let bytes = self.read(world, place.block, place)?;
            let bytes = bytes.as_deref().and_then(|bytes| bytes.try_into().ok());
            is_whole &= bytes.is_some();
            show(group as usize, bytes)?;
        }
        Ok(is_whole)
    }
}

/// Holds what the snapshots of a generation hold, behind what the generation itself uses.
///
/// # Errors
/// [`MountError`].
pub(crate) fn load_snapshots(
    world: &mut impl World,
    checksums: &Checksums,
    superblock: &Superblock,
    allocation: &mut Allocation,
    (on_lost, report): (OnLost, &mut MountReport),
) -> Result<Snapshots, MountError> {
    let mut snapshots = Snapshots {
        list: superblock.snapshots,
        ..Snapshots::default()
    };
    let Some(list) = superblock.snapshots else {
        return Ok(snapshots);
    };
    let mut telling = Telling::new(checksums, superblock.geometry, on_lost == OnLost::Rebuild);
    let names = telling.list(world, &list)?;
    snapshots.is_list_bad = !telling.bad.is_empty() || names.is_none();
    for block in list.blocks {
        allocation.hold_block(block)?;
    }
    if names.is_none() && on_lost == OnLost::Refuse {
        return Err(telling.gone(list.blocks[0]));
    }
    for (name, head) in names.unwrap_or_default() {
        let bad = telling.bad.len();
        let mut unknown = Wanted::default();
        let chain = telling.chain(world, (&name, &head), |telling, world, twin, link| {
            for block in link.blocks(twin) {
                allocation.hold_block(block)?;
            }
            telling
                .bitmaps(world, &link.entries, |group, bytes| {
                    let is_sound = match bytes {
                        Some(bytes) => allocation.hold_group(group, bytes)?,
                        None => false,
                    };
                    if is_sound { Ok(()) } else { Ok(unknown.add(group)?) }
                })
                .map(drop)
        })?;
        if !chain.is_whole && on_lost == OnLost::Refuse {
            return Err(telling.gone(head.blocks[0]));
        }
        let is_known = unknown.is_empty();
        if let Some(record) = chain.record.filter(|_| !is_known && on_lost == OnLost::Refuse) {
            let block = telling.bad.last().copied().unwrap_or(head.blocks[0]);
            let found = Telling::new(checksums, superblock.geometry, false);
            match find_reached(world, found, record.table, &mut unknown)? {
                None => {
                    for (group, words) in unknown.groups() {
                        allocation.hold_words(group, words)?;
                    }
                }
                Some(is_unread) => {
                    for (group, _) in unknown.groups() {
                        allocation.hold_all(group)?;
                    }
                    telling.is_unread |= is_unread;
                    snapshots.doubt.get_or_insert(telling.gone(block));
                }
            }
        }
        match chain.record {
            Some(record) => push(
                &mut snapshots.known,
                Known {
                    record,
                    head,
                    is_damaged: !chain.is_whole || !is_known || on_lost == OnLost::Rebuild && telling.bad.len() > bad,
                },
            )?,
            None => push(&mut snapshots.lost, name)?,
        }
    }
    if telling.is_unread && on_lost == OnLost::Rebuild {
        return Err(MountError::Disk);
    }
    for &block in &telling.bad {
        push(&mut report.damage, (Structure::Snapshots, block))?;
    }
    Ok(snapshots)
}

/// Holds for two generations what the snapshots of the generation before held, of those that are gone. Tells a block that cannot be read: then not all is held.
pub(crate) fn hold_snapshots_before(
    world: &mut impl World,
    checksums: &Checksums,
    previous: &Superblock,
    allocation: &mut Allocation,
    current: &Snapshots,
) -> Result<Option<u64>, MountError> {
    let list = previous.snapshots.filter(|list| current.list != Some(*list));
    let Some(list) = list else { return Ok(None) };
    let mut telling = Telling::new(checksums, previous.geometry, false);
    let names = telling.list(world, &list)?;
    for block in list.blocks {
        allocation.hold_block_before(block)?;
    }
    for (name, head) in names.unwrap_or_default() {
        if current.known.iter().any(|known| known.head == head) {
            continue;
        }
        telling.chain(world, (&name, &head), |telling, world, twin, link| {
            for block in link.blocks(twin) {
                allocation.hold_block_before(block)?;
            }
            telling
                .bitmaps(world, &link.entries, |group, bytes| match bytes {
                    Some(bytes) => Ok(allocation.load_before(group, bytes)?),
                    None => Ok(()),
                })
                .map(drop)
        })?;
    }
    Ok(telling.bad.first().copied())
}
