//! Snapshots: generations that stay, by a name.
//!
//! A snapshot is the root of the object table as a checkpoint wrote it, and a copy of that generation's bitmap: the blocks that it *holds*.
//! Nothing that is reachable is ever overwritten, so its contents are those of that moment as long as no block of it is used again. It is made
//! by a checkpoint ([`Store::keep_snapshot`]), which therefore makes a generation; it goes with another one ([`Store::drop_snapshot`]).
//!
//! The bitmap of a generation says what the table of that generation reaches, and nothing else. The blocks of the snapshots themselves, which hold
//! what stands in `format.rs`, are no part of it: they are held, as those are that a snapshot reaches. The superblock names a list of snapshots; each has a
//! chain of blocks that name its bitmap blocks. List and chains are written twice, for nothing else says what they say.
//!
//! A snapshot that is dropped is so with the generation that has no entry of it. Its blocks come back behind two generations, as all do.

use crate::containers::{List, Map, push_reserved, reserve};
use crate::event::{Failure, MountError, MountMode, NoRoom};
use crate::heap::NoHeap;
use crate::store::Store;
use alloc::vec::Vec;
use core::fmt;
use format::{ENTRIES, Record, Twin};
use reclaim::Reclaim;

pub(crate) mod format;
pub(crate) mod loading;
mod reach;
mod reclaim;
mod shares;
mod view;

pub use format::Identity;
pub use view::RollBackError;

/// Snapshots that a store may have.
pub const SNAPSHOTS_MAX: usize = 64;
/// Bytes of the longest name.
const NAME_MAX: usize = 31;

/// The name of a snapshot: 1 to 31 letters, digits, hyphens, underscores and full stops of ASCII, of which the first is a letter or a digit.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotName {
    bytes: [u8; NAME_MAX],
    length: u8,
}

impl SnapshotName {
    /// The name that a text is, if it can be one.
    pub fn new(text: &str) -> Option<Self> {
        Self::from_bytes(text.as_bytes())
    }

    fn from_bytes(text: &[u8]) -> Option<Self> {
        let is_fit = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        if !text.first()?.is_ascii_alphanumeric() || !text.iter().all(is_fit) {
            return None;
        }
        let mut bytes = [0; NAME_MAX];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        let length = text.len() as u8;
        Some(Self { bytes, length })
    }

    /// Its bytes.
    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.as_str())
    }
}

/// What is known of a snapshot.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Snapshot {
    /// Its name.
    pub name: SnapshotName,
    /// The generation that it is.
    pub generation: u64,
    /// When it was made, in nanoseconds since 1970, as its maker said.
    pub time: u64,
    /// Objects in it.
    pub objects: u64,
    /// Blocks that it holds, alone or with others.
    pub blocks: u64,
    /// Tells it from all other snapshots, on whatever image.
    pub identity: Identity,
    /// Whether blocks that say which those are cannot be read: a repair writes them anew.
    pub is_damaged: bool,
}

/// Why a snapshot was not made, or not dropped. Nothing of it has changed.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum SnapshotError {
    /// There is one of that name.
    Exists,
    /// There is none of that name.
    Missing,
    /// There are as many as there may be.
    TooMany,
    /// Another request waits, or runs.
    Busy,
    /// The disk has no room for what tells of it.
    DiskFull,
    /// There is no heap for it.
    Memory,
    /// The checkpoint that was to do it failed.
    Checkpoint,
    /// The store is mounted for reading alone.
    ReadOnly,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exists => "there is a snapshot of that name",
            Self::Missing => "there is no snapshot of that name",
            Self::TooMany => "there are 64 snapshots, and these are the most",
            Self::Busy => "another snapshot is being made or dropped",
            Self::DiskFull => "the disk has no room for it",
            Self::Memory => "there is not enough memory for it",
            Self::Checkpoint => "the checkpoint that was to do it failed",
            Self::ReadOnly => "the store is open for reading alone",
        })
    }
}

impl From<NoHeap> for SnapshotError {
    fn from(_: NoHeap) -> Self {
        Self::Memory
    }
}

/// A snapshot of a mounted store.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub(crate) record: Record,
    /// The first block of its chain.
    pub(crate) head: Twin,
    pub(crate) is_damaged: bool,
}

/// What a checkpoint is to do about snapshots.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    Keep {
        name: SnapshotName,
        time: u64,
        received: Identity,
    },
    Drop {
        name: SnapshotName,
    },
    /// The list is written anew.
    Write,
}

/// The snapshots of a mounted store.
#[derive(Default)]
pub(crate) struct Snapshots {
    pub(crate) known: Vec<Known>,
    /// Where the list of the last durable generation stands.
    pub(crate) list: Option<Twin>,
    /// What the next checkpoint is to do, and the blocks promised for that.
    request: Option<Request>,
    promised: u64,
    /// Whether the running one does something.
    runs: bool,
    outcome: Option<Result<(), SnapshotError>>,
    pub(crate) reclaim: Reclaim,
    /// Why it is not known what a snapshot holds, if that is so. All of the groups in question is held.
    pub(crate) doubt: Option<MountError>,
    /// What a mount for repair has found: whether the list is damaged, the snapshots of which nothing is left but the name, and what others reach.
    pub(crate) is_list_bad: bool,
    pub(crate) lost: Vec<SnapshotName>,
    pub(crate) rebuilt: Vec<(SnapshotName, Map<usize, Vec<u64>>)>,
}

impl Snapshots {
    /// Blocks that are promised for a request that waits.
    pub(crate) fn promised(&self) -> u64 {
        self.promised
    }

    /// Hands the request over to a checkpoint that begins, with the blocks promised for it.
    pub(crate) fn take(&mut self) -> Option<(Request, u64)> {
        let request = self.request.take()?;
        self.runs = true;
        Some((request, core::mem::take(&mut self.promised)))
    }

    /// The request that was taken is done, or was given up.
    pub(crate) fn end(&mut self, outcome: Result<(), SnapshotError>) {
        self.runs = false;
        self.outcome = Some(outcome);
    }

    fn find(&self, name: &SnapshotName) -> Option<&Known> {
        self.known.iter().find(|known| known.record.name == *name)
    }

    /// Those that there will be when a request is done, with room for one more.
    pub(crate) fn behind(&self, request: &Request) -> Result<Vec<Known>, NoHeap> {
        let mut behind = Vec::new();
        reserve(&mut behind, self.known.len() + 1)?;
        for &known in &self.known {
            if !matches!(request, Request::Drop { name } if *name == known.record.name) {
                push_reserved(&mut behind, known);
            }
        }
        Ok(behind)
    }
}

/// Blocks that a request takes, where the bitmap has so many blocks that are not all free.
pub(crate) fn cost(request: &Request, groups: u64) -> u64 {
    match request {
        Request::Keep { .. } => cost_of_chain(groups) + 2,
        Request::Drop { .. } | Request::Write => 2,
    }
}

/// Blocks of a chain with so many bitmap blocks.
fn cost_of_chain(groups: u64) -> u64 {
    groups + 2 * groups.div_ceil(ENTRIES as u64).max(1)
}

impl Store {
    /// The snapshots, in the order in which they were made.
    pub fn snapshots(&self) -> impl Iterator<Item = Snapshot> {
        self.snapshots.known.iter().map(|known| self.snapshot(known))
    }

    /// The one of the lowest generation that is at least this.
    pub fn snapshot_from(&self, generation: u64) -> Option<Snapshot> {
        let known = self.snapshots.known.iter();
        let known = known.filter(|known| known.record.generation >= generation);
        let first = known.min_by_key(|known| known.record.generation)?;
        Some(self.snapshot(first))
    }

    /// How many there are.
    pub fn snapshot_count(&self) -> usize {
        self.snapshots.known.len()
    }

    fn snapshot(&self, known: &Known) -> Snapshot {
        Snapshot {
            name: known.record.name,
            generation: known.record.generation,
            time: known.record.time,
            objects: known.record.objects,
            blocks: known.record.blocks,
            identity: Identity::of(&known.record, self.checksums.key()),
            is_damaged: known.is_damaged,
        }
    }

    /// Has the next checkpoint make a snapshot of what it makes durable. Begin one then; when it is done or has failed,
    /// [`Store::snapshot_outcome`] tells whether there is a snapshot.
    ///
    /// # Errors
    /// [`SnapshotError`]: the next checkpoint is as any other.
    pub fn keep_snapshot(&mut self, name: SnapshotName, time: u64) -> Result<(), SnapshotError> {
        self.keep_received(name, time, Identity::NONE)
    }

    /// The same for the copy of a snapshot of another image, with the identity that it has there.
    ///
    /// # Errors
    /// As [`Store::keep_snapshot`].
    pub fn keep_received(&mut self, name: SnapshotName, time: u64, received: Identity) -> Result<(), SnapshotError> {
        if self.snapshots.find(&name).is_some() {
            return Err(SnapshotError::Exists);
        }
        if self.snapshots.known.len() >= SNAPSHOTS_MAX {
            return Err(SnapshotError::TooMany);
        }
        self.request_of_snapshots(Request::Keep { name, time, received })
    }

    /// Has the next checkpoint drop a snapshot, as [`Store::keep_snapshot`] has it make one. Its blocks come back two generations later.
    ///
    /// # Errors
    /// [`SnapshotError`]: the next checkpoint is as any other.
    pub fn drop_snapshot(&mut self, name: SnapshotName) -> Result<(), SnapshotError> {
        if self.snapshots.find(&name).is_none() {
            return Err(SnapshotError::Missing);
        }
        self.request_of_snapshots(Request::Drop { name })
    }

    /// Whether the state of a store that has just been mounted for writing is that of a snapshot.
    pub fn is_at(&self, name: &SnapshotName) -> bool {
        let is_written = self.table.dirty_len() == 0 && self.overlay.is_empty() && self.pending.by_object().is_empty();
        let known = self.snapshots.find(name);
        is_written && known.is_some_and(|known| known.record.table == self.table.root_place())
    }

    pub(crate) fn request_of_snapshots(&mut self, request: Request) -> Result<(), SnapshotError> {
        if self.mode == MountMode::ReadOnly {
            return Err(SnapshotError::ReadOnly);
        }
        if self.snapshots.runs || self.snapshots.request.is_some() {
            return Err(SnapshotError::Busy);
        }
        let rebuilt = self.snapshots.rebuilt.iter();
        let rebuilt: u64 = rebuilt.map(|(_, words)| cost_of_chain(words.count() as u64)).sum();
        let blocks = cost(&request, self.allocation.groups_there()) + rebuilt;
        // What drops a snapshot may use the pool, as what deletes does.
        let room = match request {
            Request::Keep { .. } => self.room(blocks),
            Request::Drop { .. } | Request::Write => self.allocation.promise(self.needed() + blocks),
        };
        room.map_err(|no_room| match no_room {
            NoRoom::Disk => SnapshotError::DiskFull,
            NoRoom::Memory => SnapshotError::Memory,
        })?;
        self.snapshots.request = Some(request);
        self.snapshots.promised = blocks;
        self.snapshots.outcome = None;
        Ok(())
    }

    /// How the last request for a snapshot has ended, once; `None` as long as it has not.
    pub fn snapshot_outcome(&mut self) -> Option<Result<(), SnapshotError>> {
        self.snapshots.outcome.take()
    }

    /// Whether a request waits for a checkpoint, or for the end of one.
    pub fn is_asked_for_snapshot(&self) -> bool {
        self.snapshots.runs || self.snapshots.request.is_some()
    }

    /// Takes a request back that no checkpoint has begun with: the next one is as any other.
    pub fn forget_snapshot(&mut self) {
        self.snapshots.request = None;
        self.snapshots.promised = 0;
    }

    /// Blocks that only snapshots hold, those that tell of them included.
    pub fn blocks_of_snapshots(&self) -> u64 {
        if self.snapshots.list.is_none() {
            return 0;
        }
        self.allocation.only_held()
    }

    /// Gives the blocks back that an attempt took for snapshots.
    pub(crate) fn release_taken(&mut self, taken: &mut List<u64>, most: usize) -> bool {
        for _ in 0..most {
            let Some(block) = taken.pop() else { break };
            self.allocation.release_held(block);
        }
        !taken.is_empty()
    }
}

impl From<SnapshotError> for Failure {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Memory => Self::Memory,
            SnapshotError::DiskFull => Self::DiskFull,
            _ => Self::Checkpoint,
        }
    }
}
