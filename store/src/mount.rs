//! Mounting: the newest intact superblock, what it leads to, and the journal on top.
//!
//! Nothing is written before everything needed has been found intact. A read-write mount then commits
//! a new generation before it accepts a sync (invariant 6): the journal that was replayed is not
//! written to again, and the discarded end of it can never come back to life.

use crate::allocation::Allocation;
use crate::blocking::{read_blocks, read_checked};
use crate::breaks::{Breaks, Invariant};
use crate::checksum::Checksums;
use crate::containers::{copied, push, push_reserved, reserve};
use crate::copies::COPIES;
use crate::event::{CheckpointKind, Event, MountError, MountMode, MountReport, Structure};
use crate::geometry::{Geometry, region_of};
use crate::heap::{NoHeap, with_room, zeroed};
use crate::io::Io;
use crate::store::{OnDamage, Parts, Store};
use crate::superblock::{Place, Superblock, Unfit};
use crate::table::{Body, NodeId, Row, Table};
use crate::table_format::{Decoded, decode};
use crate::world::{BLOCK, World};
use alloc::vec::Vec;

/// More levels than any table has.
const HEIGHT_MAX: usize = 12;

/// The superblocks of a disk.
struct Superblocks {
    current: Superblock,
    checksum: u64,
    block: u64,
    previous: Option<Superblock>,
    bad: Vec<u64>,
    /// Copies that cannot be read and may be of a later generation.
    doubtful: Vec<u64>,
    /// Whether a crash does not explain that: it leaves one copy torn where the superblock of the next generation stands, on a disk that works.
    newer_unreadable: bool,
}

impl Store {
    /// Mounts the store on the disk.
    ///
    /// # Errors
    /// [`MountError`]; nothing was written, except that [`MountError::Recovery`], [`MountError::Loss`] and
    /// [`MountError::Disk`] may come after the first writes of a recovery, to free blocks and to copies of
    /// superblocks that could not be read, which leave the state as it was.
    pub fn mount(world: &mut impl World, mode: MountMode) -> Result<(Self, MountReport), MountError> {
        Self::mount_with(world, mode, Breaks::NONE)
    }

    /// Mounts with an invariant switched off, for tests.
    ///
    /// # Errors
    /// As [`Store::mount`].
    #[cfg(any(test, feature = "break-invariants"))]
    pub fn mount_broken(
        world: &mut impl World,
        mode: MountMode,
        breaks: Breaks,
    ) -> Result<(Self, MountReport), MountError> {
        Self::mount_with(world, mode, breaks)
    }

    fn mount_with(world: &mut impl World, mode: MountMode, breaks: Breaks) -> Result<(Self, MountReport), MountError> {
        let found = find_superblocks(world, mode)?;
        let superblock = &found.current;
        if superblock.geometry.total > world.blocks() {
            return Err(MountError::Truncated(superblock.geometry.total, world.blocks()));
        }
        if superblock.address_bits != abi::address::ADDRESS_BITS {
            return Err(MountError::AddressBits(superblock.address_bits));
        }
        if superblock.writing != 0 && mode != MountMode::ReadOnly {
            return Err(MountError::Features(superblock.writing));
        }
        let checksums = Checksums::new(superblock.key, superblock.of_version_1)?;
        let mut report = MountReport {
            generation: superblock.generation,
            superblock: found.block,
            bad_superblocks: copied(&found.bad)?,
            clean: superblock.clean,
            replayed: 0,
            tail: None,
            damage: Vec::new(),
            losses: Vec::new(),
            first_slot: superblock.lease,
        };
        let allocation = load_bitmaps(world, &checksums, &found, breaks, &mut report)?;
        let table = load_table(world, &checksums, superblock)?;
        let mut store = Self::from_parts(Parts {
            mode,
            breaks,
            geometry: superblock.geometry,
            checksums,
            address_bits: superblock.address_bits,
            generation: superblock.generation,
            nonce: superblock.nonce,
            high_water: superblock.lease,
            lease: superblock.lease,
            superblock_checksum: found.checksum,
            allocation,
            table,
            io: Io::default(),
        })?;
        let opened = store.open(world, &mut report, &found);
        report.losses = core::mem::take(&mut store.losses);
        if let (MountMode::ReadWrite, Some(&loss)) = (mode, report.losses.first()) {
            store.dismantle(world);
            return Err(MountError::Loss(loss));
        }
        match opened {
            Ok(()) => Ok((store, report)),
            Err(error) => {
                store.dismantle(world);
                Err(error)
            }
        }
    }

    /// Replays the journal, and commits a generation if this is to be written to and nothing stable is lost.
    fn open(
        &mut self,
        world: &mut impl World,
        report: &mut MountReport,
        found: &Superblocks,
    ) -> Result<(), MountError> {
        // A pair of which both are unreadable is as good with either.
        found.bad.iter().for_each(|&block| self.copies.note_bad(block));
        found.doubtful.iter().for_each(|&block| self.copies.doubt(block));
        self.on_damage = OnDamage::Note;
        self.look_for_newer(world, found.newer_unreadable)?;
        self.recover(world, report)?;
        report.clean &= report.replayed == 0 && self.losses.is_empty();
        match self.mode {
            MountMode::ReadOnly => {}
            MountMode::ReadWrite if !self.losses.is_empty() => return Ok(()),
            MountMode::ReadWrite => {
                self.on_damage = OnDamage::Stop;
                self.open_for_writing(world, found.checksum)?;
            }
            MountMode::AcceptLoss => self.open_for_writing(world, found.checksum)?,
        }
        self.on_damage = OnDamage::GoOn;
        Ok(())
    }

    /// Commits a new generation.
    fn open_for_writing(&mut self, world: &mut impl World, superblock_checksum: u64) -> Result<(), MountError> {
        if !self.io.fill_reserve(world)? {
            return Err(MountError::Memory);
        }
        if !self.breaks.keeps(Invariant::CommitAfterRecovery) {
            // Broken on purpose: the journal begins anew, over the records that were replayed.
            self.journal = crate::journal::Chain::new(self.generation, self.nonce, superblock_checksum);
            return Ok(());
        }
        self.nonce = world.next_u64();
        let begun = self.checkpoint_begin(world, Vec::new(), CheckpointKind::Generation);
        begun.map_err(|_| MountError::Memory)?;
        loop {
            match self.poll(world) {
                Some(Event::CheckpointDone { .. }) => break,
                Some(Event::CheckpointFailed { reason }) => return Err(MountError::Recovery(reason)),
                Some(_) => {}
                None => world.wait(),
            }
        }
        // The second copy of the superblock, too, so that nothing is under way.
        self.wait_for_nodes(world);
        Ok(())
    }
}

fn find_superblocks(world: &mut impl World, mode: MountMode) -> Result<Superblocks, MountError> {
    if world.blocks() < COPIES {
        return Err(MountError::Foreign);
    }
    let room = COPIES as usize;
    let mut good: Vec<(u64, Superblock, u64)> = with_room(room)?;
    let (mut bad, mut blank, mut claims) = (with_room(room)?, with_room(room)?, with_room(room)?);
    let mut unread: Vec<u64> = with_room(room)?;
    let mut unfit = Unfit::Foreign;
    read_blocks(world, 0..COPIES, |block, bytes| {
        let Ok(bytes) = bytes else {
            push_reserved(&mut bad, block);
            push_reserved(&mut unread, block);
            return Ok(());
        };
        if bytes.iter().all(|&byte| byte == 0) {
            push_reserved(&mut blank, block);
        }
        match Superblock::decode(block, bytes) {
            Ok((superblock, checksum)) => push_reserved(&mut good, (block, superblock, checksum)),
            Err(Unfit::Newer(version)) => return Err(MountError::Newer(version)),
            Err(Unfit::Features(unknown)) => return Err(MountError::Features(unknown)),
            Err(Unfit::NoHeap) => return Err(MountError::Memory),
            Err(reason) => {
                push_reserved(&mut bad, block);
                if let Some(generation) = Superblock::claimed_generation(bytes) {
                    push_reserved(&mut claims, (block, generation));
                }
                if reason == Unfit::Damaged {
                    unfit = reason;
                }
            }
        }
        Ok(())
    })?;
    let newest = good.iter().map(|(_, superblock, _)| superblock.generation).max();
    let Some(at) = good
        .iter()
        .position(|(_, superblock, _)| Some(superblock.generation) == newest)
    else {
        return Err(match unfit {
            _ if !unread.is_empty() => MountError::Disk,
            Unfit::Foreign => MountError::Foreign,
            _ => MountError::Damaged(Structure::Superblock, 0),
        });
    };
    let (block, current, checksum) = good.swap_remove(at);
    // A fresh store has no previous generation: its first pair of blocks is zero, not bad.
    if current.generation == 1 {
        bad.retain(|block| !blank.contains(block));
    }
    // A copy that says it is of the generation before costs nothing, rotten or not. Where both are rotten, both must say so.
    let newer = Geometry::superblock(current.generation + 1, 0);
    let is_bad = |block: &u64| bad.contains(block);
    let is_old = |block: u64| claims.contains(&(block, current.generation - 1));
    let mut doubtful: Vec<u64> = with_room(room)?;
    for block in [newer, newer + 1] {
        if is_bad(&block) && !is_old(block) {
            push_reserved(&mut doubtful, block);
        }
    }
    let both = [newer, newer + 1].iter().all(is_bad);
    // Where one of the two is intact and old, nothing later than the next generation was begun: another copy may be anything.
    let newer_unreadable = both && !doubtful.is_empty() || doubtful.iter().any(|block| unread.contains(block));
    if newer_unreadable && !unread.is_empty() {
        // A disk that fails may work again, and then nothing is lost: an acknowledged generation may have one copy alone, behind a power cut.
        if mode == MountMode::ReadWrite {
            return Err(MountError::Disk);
        }
        for block in unread.into_iter().filter(|block| block / 2 != newer / 2) {
            push_reserved(&mut doubtful, block);
        }
    }
    let previous = good.into_iter().map(|(_, superblock, _)| superblock).find(|other| {
        other.generation + 1 == current.generation && other.key == current.key && other.geometry == current.geometry
    });
    Ok(Superblocks {
        current,
        checksum,
        block,
        previous,
        bad,
        doubtful,
        newer_unreadable,
    })
}

fn load_bitmaps(
    world: &mut impl World,
    checksums: &Checksums,
    found: &Superblocks,
    breaks: Breaks,
    report: &mut MountReport,
) -> Result<Allocation, MountError> {
    let Superblocks { current, previous, .. } = found;
    let too_large = |NoHeap| MountError::TooLarge {
        blocks: current.geometry.total,
        heap: Allocation::heap(&current.geometry),
    };
    let mut allocation = Allocation::new(current.geometry, breaks).map_err(too_large)?;
    let region = region_of(current.generation);
    load_bitmap(
        world,
        checksums,
        current,
        &mut allocation.used.0,
        &mut allocation.regions[region].sums,
    )?;
    let before = match previous {
        Some(previous) => {
            let mut words = zeroed(allocation.used.0.len() as u64).map_err(too_large)?;
            let mut sums = zeroed(current.geometry.bitmap_blocks()).map_err(too_large)?;
            Some(load_bitmap(world, checksums, previous, &mut words, &mut sums).map(|()| words))
        }
        None => None,
    };
    let before = match before {
        Some(Ok(words)) => Some(words),
        Some(Err(MountError::Damaged(structure, block))) => {
            push(&mut report.damage, (structure, block))?;
            None
        }
        Some(Err(error)) => return Err(error),
        None => None,
    };
    allocation.regions[region].index.copy_from_slice(&current.index);
    if allocation.load(before.as_deref(), region) {
        Ok(allocation)
    } else {
        Err(MountError::Damaged(
            Structure::Bitmap,
            current.geometry.bitmap_start(region),
        ))
    }
}

/// Reads the bitmap of a generation, and the checksums of its blocks, into zeroes.
fn load_bitmap(
    world: &mut impl World,
    checksums: &Checksums,
    superblock: &Superblock,
    words: &mut [u64],
    sums: &mut [u64],
) -> Result<(), MountError> {
    let geometry = superblock.geometry;
    let region = region_of(superblock.generation);
    load_words(world, checksums, geometry.index_start(region), &superblock.index, sums)?;
    load_words(world, checksums, geometry.bitmap_start(region), sums, words)
}

/// Reads blocks of words whose checksums are given; where there is none, the block was never written.
fn load_words(
    world: &mut impl World,
    checksums: &Checksums,
    start: u64,
    sums: &[u64],
    words: &mut [u64],
) -> Result<(), MountError> {
    let places = (start..).zip(sums).filter(|&(_, &checksum)| checksum != 0);
    let places = places.map(|(block, &checksum)| Place { block, checksum });
    read_checked(world, checksums, places, Structure::Bitmap, |place, bytes| {
        let from = (place.block - start) as usize * (BLOCK / 8);
        for (word, found) in words.iter_mut().skip(from).zip(bytes.chunks_exact(8)) {
            *word = crate::bytes::word(found, 0);
        }
        Ok(())
    })
}

/// A row whose body is yet to be read, with the length of the body.
type LoadedRow = (Row, usize);

fn load_table(world: &mut impl World, checksums: &Checksums, superblock: &Superblock) -> Result<Table, MountError> {
    let mut table = Table::new()?;
    let root = superblock.table;
    if root.block != 0 {
        let mut ids: Vec<NodeId> = Vec::new();
        let levels = read_levels(world, checksums, superblock)?;
        let leaves = levels.iter().flatten().filter_map(|(_, node)| match node {
            Decoded::Leaf(rows) => Some(rows),
            Decoded::Inner(_) => None,
        });
        require_distinct(leaves.flatten().flat_map(|(row, _)| &row.overflow))?;
        for level in levels.into_iter().rev() {
            let mut below = core::mem::take(&mut ids).into_iter();
            reserve(&mut ids, level.len())?;
            for (place, node) in level {
                let body = match node {
                    Decoded::Leaf(rows) => Body::Leaf(read_bodies(world, checksums, superblock.address_bits, rows)?),
                    Decoded::Inner(children) => {
                        let mut known = with_room(children.len())?;
                        known.extend(children.into_iter().map(|(key, _)| key).zip(below.by_ref()));
                        Body::Inner(known)
                    }
                };
                push_reserved(&mut ids, table.add_loaded(place, body)?);
            }
        }
        if let [root] = ids[..] {
            table.set_root(root)?;
        }
    }
    let sound = table.is_sound() && table.len() == superblock.objects;
    if sound {
        Ok(table)
    } else {
        Err(MountError::Damaged(Structure::Table, root.block))
    }
}

/// All nodes, level by level from the root.
fn read_levels(
    world: &mut impl World,
    checksums: &Checksums,
    superblock: &Superblock,
) -> Result<Vec<Vec<(Place, Decoded)>>, MountError> {
    let mut levels = with_room(HEIGHT_MAX)?;
    let mut next = with_room(1)?;
    push_reserved(&mut next, superblock.table);
    while !next.is_empty() {
        let mut level = with_room(next.len())?;
        let mut below: Vec<Place> = Vec::new();
        let places = next.iter().copied();
        read_checked(world, checksums, places, Structure::Table, |place, bytes| {
            let node = decode(bytes, superblock.address_bits);
            let node = node.map_err(|unread| unread.at(Structure::Table, place.block))?;
            match &node {
                Decoded::Inner(children) => {
                    reserve(&mut below, children.len())?;
                    below.extend(children.iter().map(|&(_, child)| child));
                }
                // All leaves stand at the same depth.
                Decoded::Leaf(_) if !below.is_empty() => {
                    return Err(MountError::Damaged(Structure::Table, place.block));
                }
                Decoded::Leaf(_) => {}
            }
            push_reserved(&mut level, (place, node));
            Ok(())
        })?;
        let mixed = !below.is_empty() && level.iter().any(|(_, node)| matches!(node, Decoded::Leaf(_)));
        if mixed || levels.len() >= HEIGHT_MAX || below.len() as u64 > superblock.geometry.total {
            return Err(MountError::Damaged(Structure::Table, superblock.table.block));
        }
        // Where a node stood on two levels, its leaves would, too.
        require_distinct(below.iter())?;
        push_reserved(&mut levels, level);
        next = below;
    }
    Ok(levels)
}

/// Refuses blocks that several parents lead to. Each would be taken into memory as often as it is named, and a crafted table names one a million times.
fn require_distinct<'a>(places: impl Iterator<Item = &'a Place> + Clone) -> Result<(), MountError> {
    let mut blocks = with_room(places.clone().count())?;
    places.for_each(|place| push_reserved(&mut blocks, place.block));
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
    rows: Vec<LoadedRow>,
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

#[cfg(test)]
mod tests;
