//! Mounting: the newest intact superblock, what it leads to, and the journal on top.
//!
//! Nothing is written before everything needed has been found intact. A read-write mount then commits
//! a new generation before it accepts a sync (invariant 6): the journal that was replayed is not
//! written to again, and the discarded end of it can never come back to life.

use crate::allocation::Allocation;
use crate::bitmaps::load_bitmaps;
use crate::blocking::read_blocks;
use crate::breaks::{Breaks, Invariant};
use crate::checksum::Checksums;
use crate::containers::{copied, push_reserved};
use crate::copies::COPIES;
use crate::event::{CheckpointKind, Event, Failure, Leaves, MountError, MountMode, MountReport, Structure};
use crate::geometry::{Geometry, region_of};
use crate::heap::with_room;
use crate::io::Io;
use crate::loss::Loss;
use crate::snapshots::Snapshots;
use crate::snapshots::loading::OnLost;
use crate::store::{OnDamage, Parts, Store};
use crate::superblock::{GENERATION_END, Superblock, Unfit};
use crate::table::{Sizes, Table};
use crate::table_loading::load_table;
use crate::world::World;
use alloc::vec::Vec;

/// The superblocks of a disk.
pub(crate) struct Superblocks {
    pub(crate) current: Superblock,
    pub(crate) checksum: u64,
    pub(crate) block: u64,
    /// That of the generation before, with its checksum.
    pub(crate) previous: Option<(Superblock, u64)>,
    pub(crate) bad: Vec<u64>,
    /// Copies that cannot be read and may be of a later generation.
    pub(crate) doubtful: Vec<u64>,
    /// Whether a crash does not explain that: it leaves one copy torn where the superblock of the next generation stands, on a disk that works.
    pub(crate) newer_unreadable: bool,
}

impl Superblocks {
    /// The report of a mount that has found these.
    pub(crate) fn report(&self) -> Result<MountReport, MountError> {
        Ok(MountReport {
            generation: self.current.generation,
            superblock: self.block,
            bad_superblocks: copied(&self.bad)?,
            clean: self.current.clean,
            replayed: 0,
            tail: None,
            damage: Vec::new(),
            losses: Vec::new(),
            first_slot: self.current.lease,
        })
    }

    /// The root of the journal of the current generation.
    pub(crate) fn root_of_journal(&self) -> u64 {
        self.current.root_of_journal(self.checksum)
    }

    /// Refuses a store that this system, or this disk, cannot have.
    pub(crate) fn require_usable(&self, world: &impl World, mode: MountMode) -> Result<(), MountError> {
        let superblock = &self.current;
        if superblock.geometry.total > world.blocks() {
            return Err(MountError::Truncated(superblock.geometry.total, world.blocks()));
        }
        if superblock.address_bits != abi::address::ADDRESS_BITS {
            return Err(MountError::AddressBits(superblock.address_bits));
        }
        if superblock.writing != 0 && mode != MountMode::ReadOnly {
            return Err(MountError::Features(superblock.writing));
        }
        Ok(())
    }

    /// A store of the current generation with these parts.
    pub(crate) fn store(
        &self,
        (mode, breaks): (MountMode, Breaks),
        checksums: Checksums,
        (allocation, snapshots): (Allocation, Snapshots),
        table: Table,
    ) -> Result<Store, MountError> {
        let superblock = &self.current;
        let mut store = Store::from_parts(Parts {
            mode,
            breaks,
            geometry: superblock.geometry,
            checksums,
            address_bits: superblock.address_bits,
            generation: superblock.generation,
            nonce: superblock.nonce,
            high_water: superblock.lease,
            lease: superblock.lease,
            journal_root: self.root_of_journal(),
            allocation,
            snapshots,
            table,
            io: Io::default(),
        })?;
        // A pair of which both are unreadable is as good with either.
        self.bad.iter().for_each(|&block| store.copies.note_bad(block));
        self.doubtful.iter().for_each(|&block| store.copies.doubt(block));
        Ok(store)
    }
}

impl Store {
    /// Mounts the store on the disk.
    ///
    /// # Errors
    /// [`MountError`]; nothing was written, except that [`MountError::Recovery`], [`MountError::Loss`] and
    /// [`MountError::Disk`] may come after the first writes of a recovery, to free blocks and to copies of
    /// superblocks that could not be read, which leave the state as it was.
    pub fn mount(world: &mut impl World, mode: MountMode) -> Result<(Self, MountReport), MountError> {
        Self::mount_with(world, mode, Leaves::All, (Breaks::NONE, Sizes::FULL))
    }

    /// The same, with the leaves of the object table in memory that are needed.
    ///
    /// # Errors
    /// As [`Store::mount`].
    pub fn mount_in_parts(
        world: &mut impl World,
        mode: MountMode,
        leaves: Leaves,
    ) -> Result<(Self, MountReport), MountError> {
        Self::mount_with(world, mode, leaves, (Breaks::NONE, Sizes::FULL))
    }

    /// The same with nodes that have less room, for tests: so many bytes for the rows of a leaf, and so many children.
    ///
    /// # Errors
    /// As [`Store::mount`].
    #[cfg(any(test, feature = "break-invariants"))]
    pub fn mount_with_small_nodes(
        world: &mut impl World,
        mode: MountMode,
        leaves: Leaves,
        (leaf, inner): (usize, usize),
    ) -> Result<(Self, MountReport), MountError> {
        Self::mount_with(world, mode, leaves, (Breaks::NONE, Sizes { leaf, inner }))
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
        Self::mount_with(world, mode, Leaves::All, (breaks, Sizes::FULL))
    }

    fn mount_with(
        world: &mut impl World,
        mode: MountMode,
        leaves: Leaves,
        (breaks, sizes): (Breaks, Sizes),
    ) -> Result<(Self, MountReport), MountError> {
        let found = find_superblocks(world, mode)?;
        found.require_usable(world, mode)?;
        let superblock = &found.current;
        let checksums = Checksums::new(superblock.key, superblock.of_version_1)?;
        let mut report = found.report()?;
        let previous = found.previous.as_ref().map(|(previous, _)| previous);
        let on_lost = if mode == MountMode::ReadOnly {
            OnLost::Tell
        } else {
            OnLost::Refuse
        };
        let newest = (superblock, previous);
        let parts = load_bitmaps(world, &checksums, newest, breaks, (on_lost, &mut report))?;
        let table = load_table(world, &checksums, superblock, leaves)?.with_sizes(sizes);
        let mut store = found.store((mode, breaks), checksums, parts, table)?;
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
    pub(crate) fn open(
        &mut self,
        world: &mut impl World,
        report: &mut MountReport,
        found: &Superblocks,
    ) -> Result<(), MountError> {
        self.on_damage = OnDamage::Note;
        self.look_for_newer(world, found.newer_unreadable)?;
        self.recover(world, report)?;
        report.clean &= report.replayed == 0 && self.losses.is_empty();
        match self.mode {
            MountMode::ReadOnly => {}
            MountMode::ReadWrite if !self.losses.is_empty() => return Ok(()),
            MountMode::ReadWrite => {
                self.on_damage = OnDamage::Stop;
                self.open_for_writing(world, found.root_of_journal())?;
            }
            MountMode::AcceptLoss => {
                let losses = core::mem::take(&mut self.losses);
                self.pass_lost_generations(&losses);
                self.losses = losses;
                self.open_for_writing(world, found.root_of_journal())?;
            }
        }
        self.on_damage = OnDamage::GoOn;
        Ok(())
    }

    /// Numbers the next generation behind one that is given up and of which records may be left: they would prove it to each mount that finds an
    /// older one. The superblock and the bitmaps of the current one stay until the next one is stable.
    pub(crate) fn pass_lost_generations(&mut self, losses: &[Loss]) {
        let newer = losses.iter().filter_map(|loss| match *loss {
            Loss::Generation { newer, .. } => Some(newer),
            _ => None,
        });
        let newest = newer.max().unwrap_or(0);
        if newest > self.generation + 1 && newest < GENERATION_END / 2 {
            // Two of any six are.
            let may_be = |&number: &u64| {
                number % 2 == self.generation % 2 && region_of(number + 1) != region_of(self.generation)
            };
            self.generation = (newest..newest + 6).find(may_be).unwrap_or(self.generation);
        }
    }

    /// Commits a new generation.
    pub(crate) fn open_for_writing(&mut self, world: &mut impl World, journal_root: u64) -> Result<(), MountError> {
        if !self.io.fill_reserve(world)? {
            return Err(MountError::Memory);
        }
        if !self.breaks.keeps(Invariant::CommitAfterRecovery) {
            // Broken on purpose: the journal begins anew, over the records that were replayed.
            self.journal = crate::journal::Chain::new(self.generation, self.nonce, journal_root);
            return Ok(());
        }
        self.nonce = world.next_u64();
        self.commit_generation(world, CheckpointKind::Generation)
    }

    /// Makes a generation of what is in memory, and waits for it.
    pub(crate) fn commit_generation(&mut self, world: &mut impl World, kind: CheckpointKind) -> Result<(), MountError> {
        let begun = self.checkpoint_begin(world, Vec::new(), kind);
        begun.map_err(|_| MountError::Memory)?;
        loop {
            match self.poll(world) {
                Some(Event::CheckpointDone { .. }) => break,
                Some(Event::CheckpointFailed { reason }) => {
                    // It may be full only of what nobody knows.
                    let doubt = self.snapshots.doubt.filter(|_| reason == Failure::DiskFull);
                    return Err(doubt.unwrap_or(MountError::Recovery(reason)));
                }
                Some(_) => {}
                None => world.wait(),
            }
        }
        // The second copy of the superblock, too, so that nothing is under way.
        self.wait_for_nodes(world);
        Ok(())
    }
}

pub(crate) fn find_superblocks(world: &mut impl World, mode: MountMode) -> Result<Superblocks, MountError> {
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
    let others = good.into_iter().map(|(_, superblock, checksum)| (superblock, checksum));
    let previous = { others }.find(|(other, _)| {
        other.generation + 1 == current.generation
            && other.key == current.key
            && other.geometry.is_like(&current.geometry)
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

#[cfg(test)]
mod tests;
