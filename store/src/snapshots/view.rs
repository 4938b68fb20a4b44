//! A snapshot as the state: for reading it, and for going back to it. Waits for the disk.

use super::format::{Link, Record, Twin};
use super::loading::{OnLost, Telling, load_snapshots};
use super::{Request, SnapshotError, SnapshotName, Snapshots};
use crate::allocation::Allocation;
use crate::bitmaps::hold_before;
use crate::breaks::Breaks;
use crate::checksum::Checksums;
use crate::containers::{Map, push};
use crate::event::{CheckpointKind, Failure, Leaves, MountError, MountMode, MountReport, Structure};
use crate::geometry::BITS;
use crate::heap::{NoHeap, zeroed};
use crate::mount::{Superblocks, find_superblocks};
use crate::store::Store;
use crate::superblock::Superblock;
use crate::table_loading::load_table;
use crate::verify::Finding;
use crate::world::{BLOCK, World};
use alloc::vec::Vec;

/// Why an image did not go back to a snapshot.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum RollBackError {
    /// It cannot be mounted, or the snapshot cannot.
    Mount(MountError),
    /// There is no such snapshot, or the present state could not be kept as one.
    Snapshot(SnapshotError),
}

impl From<MountError> for RollBackError {
    fn from(error: MountError) -> Self {
        Self::Mount(error)
    }
}

impl From<NoHeap> for RollBackError {
    fn from(_: NoHeap) -> Self {
        Self::Mount(MountError::Memory)
    }
}

impl From<SnapshotError> for RollBackError {
    fn from(error: SnapshotError) -> Self {
        Self::Snapshot(error)
    }
}

impl Superblock {
    /// The superblock as it would be if this were the state.
    fn with(&self, record: &Record) -> Result<Self, NoHeap> {
        let mut of = self.copy()?;
        (of.table, of.objects, of.totals) = (record.table, record.objects, record.totals);
        of.leaves_are_told = true;
        Ok(of)
    }
}

impl Superblocks {
    /// The chain of a snapshot: what it says, and its bitmap in an allocator in which nothing else is used.
    fn chain_of(
        &self,
        world: &mut impl World,
        checksums: &Checksums,
        name: &SnapshotName,
        report: &mut MountReport,
    ) -> Result<Option<(Record, Allocation)>, MountError> {
        let Some(list) = self.current.snapshots else {
            return Ok(None);
        };
        let geometry = self.current.geometry;
        let mut telling = Telling::new(checksums, geometry, false);
        let Some(names) = telling.list(world, &list)? else {
            return Err(telling.gone(list.blocks[0]));
        };
        let Some(&(_, head)) = names.iter().find(|(other, _)| other == name) else {
            return Ok(None);
        };
        let mut allocation = Allocation::new(geometry, Breaks::NONE)?;
        let chain = telling.chain(world, (name, &head), |telling, world, _: &Twin, link: &Link| {
            let shown = telling.bitmaps(world, &link.entries, |group, bytes| {
                take_bitmap(&mut allocation, group, bytes).map_err(MountError::from)
            });
            shown.map(drop)
        })?;
        for &block in &telling.bad {
            push(&mut report.damage, (Structure::Snapshots, block))?;
        }
        let Some(record) = chain.record.filter(|_| chain.is_whole) else {
            return Err(telling.gone(head.blocks[0]));
        };
        Ok(Some((record, allocation)))
    }
}

/// Takes over which blocks of a group a snapshot holds; all of them, if nobody knows, so that those that it needs count as used.
fn take_bitmap(allocation: &mut Allocation, group: usize, bytes: Option<&[u8; BLOCK]>) -> Result<(), NoHeap> {
    let mut words = zeroed(BITS / 64)?;
    match bytes {
        Some(bytes) => {
            for (word, found) in words.iter_mut().zip(bytes.as_chunks().0) {
                *word = u64::from_le_bytes(*found);
            }
        }
        None => words.fill(u64::MAX),
    }
    allocation.mask(group, &mut words);
    allocation.rebuild(group, &words).map(drop)
}

impl Store {
    /// Mounts a snapshot for reading, as the state; `None` if there is none of that name. The journal and what came later are as if they had never been, and so are
    /// other snapshots.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn mount_snapshot(
        world: &mut impl World,
        name: &SnapshotName,
    ) -> Result<Option<(Self, MountReport)>, MountError> {
        let found = find_superblocks(world, MountMode::ReadOnly)?;
        found.require_usable(world, MountMode::ReadOnly)?;
        let checksums = Checksums::new(found.current.key, found.current.of_version_1)?;
        let mut report = found.report()?;
        let Some((record, allocation)) = found.chain_of(world, &checksums, name, &mut report)? else {
            return Ok(None);
        };
        report.generation = record.generation;
        let superblock = found.current.with(&record)?;
        let table = load_table(world, &checksums, &superblock, Leaves::All)?;
        let parts = (allocation, Snapshots::default());
        let mode = (MountMode::ReadOnly, Breaks::NONE);
        let mut store = found.store(mode, checksums, parts, table)?;
        (store.high_water, store.lease) = (record.high_water, record.high_water);
        Ok(Some((store, report)))
    }

    /// Goes back to a snapshot: a new generation has its table, and its blocks in use. Before, what the journal says is made durable; and the present state
    /// is kept as a snapshot, if a name is given for that, with the time. Births are not given anew, and snapshots stay as they are. A power cut leaves
    /// the one state or the other. The image is as one that was powered off then.
    ///
    /// # Errors
    /// [`RollBackError`]: the state is as before, but perhaps with the new snapshot of it.
    pub fn roll_back(
        world: &mut impl World,
        name: &SnapshotName,
        keep: Option<(SnapshotName, u64)>,
    ) -> Result<(), RollBackError> {
        // Nothing is kept for the sake of a snapshot that cannot be read.
        let Some((store, report)) = Self::mount_snapshot(world, name)? else {
            return Err(SnapshotError::Missing.into());
        };
        store.dismantle(world);
        if let Some(&(structure, block)) = report.damage.first() {
            return Err(MountError::Damaged(structure, block).into());
        }
        let (mut store, _) = Self::mount(world, MountMode::ReadWrite)?;
        let kept = store.finish_for_going_back(world, keep);
        store.dismantle(world);
        kept?;
        let found = find_superblocks(world, MountMode::ReadWrite)?;
        found.require_usable(world, MountMode::ReadWrite)?;
        let checksums = Checksums::new(found.current.key, found.current.of_version_1)?;
        let mut report = found.report()?;
        let chain = found.chain_of(world, &checksums, name, &mut report)?;
        let (record, mut allocation) = chain.ok_or(SnapshotError::Missing)?;
        let refuse = (OnLost::Refuse, &mut report);
        let snapshots = load_snapshots(world, &checksums, &found.current, &mut allocation, refuse)?;
        hold_before(
            world,
            &checksums,
            &mut allocation,
            (&found.current, &snapshots),
            &mut report,
        )?;
        // Until the generation behind the new one is durable, the one before is what a mount falls back to.
        while allocation.keep_some() {}
        let superblock = found.current.with(&record)?;
        let table = load_table(world, &checksums, &superblock, Leaves::All)?;
        let mode = (MountMode::ReadWrite, Breaks::NONE);
        let mut store = found.store(mode, checksums, (allocation, snapshots), table)?;
        store.table.raise_births(found.current.totals.births);
        let done = store
            .open_for_writing(world, found.checksum)
            .and_then(|()| store.commit_generation(world, CheckpointKind::Shutdown));
        store.dismantle(world);
        Ok(done?)
    }

    /// Has all that is there durable, in a generation without a journal, and perhaps kept as a snapshot.
    fn finish_for_going_back(
        &mut self,
        world: &mut impl World,
        keep: Option<(SnapshotName, u64)>,
    ) -> Result<(), RollBackError> {
        if let Some((name, time)) = keep {
            self.keep_snapshot(name, time)?;
        }
        self.commit_generation(world, CheckpointKind::Shutdown)?;
        match self.snapshot_outcome() {
            Some(Err(error)) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Has the snapshots whose chains or bitmaps are damaged written anew by the next checkpoint, from what they reach; for a repair.
    pub(crate) fn rebuild_snapshots(&mut self, world: &mut impl World, found: &Superblocks) -> Result<(), MountError> {
        let damaged = self.snapshots.known.iter().filter(|known| known.is_damaged);
        let mut records: Vec<Record> = Vec::new();
        for known in damaged {
            push(&mut records, known.record)?;
        }
        for record in records {
            let reached = match reached_of(world, found, &record) {
                // Nothing says what it is any more.
                Err(MountError::Damaged(..)) => {
                    self.snapshots.known.retain(|known| known.record.name != record.name);
                    push(&mut self.snapshots.lost, record.name)?;
                    continue;
                }
                other => other?,
            };
            for (group, words) in reached.pairs() {
                self.allocation.hold_words(group, words)?;
            }
            push(&mut self.snapshots.rebuilt, (record.name, reached))?;
        }
        Ok(())
    }

    /// The checkpoint of a repair writes the list anew.
    pub(crate) fn write_snapshots_again(&mut self) -> Result<(), MountError> {
        if self.snapshots.list.is_none() {
            return Ok(());
        }
        let begun = self.request_of_snapshots(Request::Write);
        begun.map_err(|error| MountError::Recovery(Failure::from(error)))
    }
}

/// The blocks that the table of a snapshot reaches.
fn reached_of(
    world: &mut impl World,
    found: &Superblocks,
    record: &Record,
) -> Result<Map<usize, Vec<u64>>, MountError> {
    let checksums = Checksums::new(found.current.key, found.current.of_version_1)?;
    let superblock = found.current.with(record)?;
    let table = load_table(world, &checksums, &superblock, Leaves::All)?;
    let allocation = Allocation::new(superblock.geometry, Breaks::NONE)?;
    let mode = (MountMode::ReadOnly, Breaks::NONE);
    let store = found.store(mode, checksums, (allocation, Snapshots::default()), table)?;
    let mut is_unread = false;
    let reached = store.reached(world, &mut |finding| {
        is_unread |= matches!(
            finding,
            Finding::Damaged {
                fault: crate::Fault::Unread,
                ..
            }
        );
    });
    store.dismantle(world);
    if is_unread {
        return Err(MountError::Disk);
    }
    reached
}
