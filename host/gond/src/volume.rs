//! A disk image, opened: objects by address, for reading and, in groups, for change.
//!
//! Changes collect in memory and reach the disk with [`Volume::commit`], which is one checkpoint of the store:
//! all of them or none. Whatever the image holds, reading it ends in an answer or an error.

use crate::arguments::show_size;
use crate::disk::{HostWorld, ImageLock};
use abi::address::PAGE;
use anyhow::{Context, Result, anyhow, bail};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use store::{
    BLOCK, BadPage, CheckpointKind, DirtyPage, Event, Failure, FormatOptions, Frame, Identity, MountError, MountMode,
    MountReport, ObjectRecord, PageFlags, PageLookup, Pages, Plan, PutError, Random, ReadStart, RollBackError,
    Snapshot, SnapshotError, SnapshotName, Stats, Store,
};

/// So many polls of the store without an event mean that it will never have one.
const STUCK: u32 = 1 << 20;

/// The content of one page.
pub type Block = [u8; BLOCK];

/// A page as it was read.
pub struct Page {
    /// Its content, or `None` if it was never written and so is all zero.
    pub content: Option<Box<Block>>,
    /// Its limits, if any were set.
    pub limits: Option<PageFlags>,
}

/// A page of an object that the disk does not give back as it was written.
#[derive(Clone, Debug)]
pub struct Damage {
    image: PathBuf,
    base: u64,
    /// Its number in the object.
    pub page: u64,
    /// The fault, as a sentence.
    pub what: &'static str,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            image,
            base,
            page,
            what,
        } = self;
        write!(
            f,
            "{}: page {page} of the object at {base:#x} is damaged: {what}",
            image.display()
        )
    }
}

impl std::error::Error for Damage {}

/// An opened disk image.
pub struct Volume {
    world: HostWorld,
    store: Store,
    report: MountReport,
    path: PathBuf,
    /// As it was before any change: a change that finds no room is given up.
    before: Stats,
    changed: BTreeMap<(u64, u64), (Frame, PageFlags)>,
}

impl Volume {
    /// Opens an image for reading: it is recovered in memory only.
    pub fn open(path: &Path) -> Result<Self> {
        Self::mount(HostWorld::open(path)?, path, MountMode::ReadOnly)
    }

    /// Opens a snapshot of an image for reading, as if it were the state.
    pub fn open_snapshot(path: &Path, name: &SnapshotName) -> Result<Self> {
        let mut world = HostWorld::open(path)?;
        match Store::mount_snapshot(&mut world, name) {
            Ok(Some(mounted)) => Ok(Self::of(world, path, mounted)),
            Ok(None) => Err(missing(path, name)),
            Err(error) => bail!("snapshot '{name}' of {} is refused: {error}", path.display()),
        }
    }

    /// Opens the state of an image for reading, or one of its snapshots.
    pub fn open_at(path: &Path, snapshot: Option<&SnapshotName>) -> Result<Self> {
        match snapshot {
            Some(name) => Self::open_snapshot(path, name),
            None => Self::open(path),
        }
    }

    /// Goes back to a snapshot, with the present state kept as another one if a name is given for it.
    pub fn roll_back(lock: &ImageLock, name: &SnapshotName, keep: Option<SnapshotName>) -> Result<()> {
        let path = lock.path();
        let mut world = HostWorld::open_for_change(lock)?;
        let kept = keep.map(|keep| (keep, now_ns()));
        Store::roll_back(&mut world, name, kept).map_err(|error| match (error, keep) {
            (RollBackError::Snapshot(SnapshotError::Missing), _) => missing(path, name),
            (RollBackError::Snapshot(error), Some(keep)) => {
                anyhow!("{}; nothing was rolled back", refusal(path, &keep, error))
            }
            (RollBackError::Snapshot(error), None) => anyhow!("{} was not rolled back: {error}", path.display()),
            (RollBackError::Mount(error), _) => anyhow!("{} was not rolled back: {error}", path.display()),
        })
    }

    /// The snapshots.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.store.snapshots().collect()
    }

    /// Keeps the state as a snapshot, all changes included.
    pub fn keep(&mut self, name: SnapshotName) -> Result<()> {
        self.keep_received(name, now_ns(), Identity::NONE)
    }

    /// The same for a snapshot of another image, with its time and identity.
    pub fn keep_received(&mut self, name: SnapshotName, time: u64, identity: Identity) -> Result<()> {
        let asked = self.store.keep_received(name, time, identity);
        self.end_snapshot(name, asked)
    }

    /// Drops a snapshot.
    pub fn drop_snapshot(&mut self, name: SnapshotName) -> Result<()> {
        let asked = self.store.drop_snapshot(name);
        self.end_snapshot(name, asked)
    }

    fn end_snapshot(&mut self, name: SnapshotName, asked: Result<(), SnapshotError>) -> Result<()> {
        asked.map_err(|error| refusal(&self.path, &name, error))?;
        self.commit()?;
        let outcome = self.store.snapshot_outcome();
        outcome.unwrap_or(Ok(())).map_err(|error| {
            refusal(&self.path, &name, error)
                .context("what was changed is on the image, but the snapshot of it was not made or dropped")
        })
    }

    /// Opens an image for change.
    pub fn open_for_change(lock: &ImageLock) -> Result<Self> {
        Self::mount(HostWorld::open_for_change(lock)?, lock.path(), MountMode::ReadWrite)
    }

    /// Opens an image for change as it is, and so gives up what it has lost.
    pub fn accept_loss(lock: &ImageLock) -> Result<Self> {
        Self::mount(HostWorld::open_for_change(lock)?, lock.path(), MountMode::AcceptLoss)
    }

    /// Opens what is left of an image, for reading, and tells what a repair would do.
    pub fn open_for_repair(path: &Path) -> Result<(Self, Plan)> {
        let world = HostWorld::open(path)?;
        Self::mount_for_repair(world, path)
    }

    /// Does what a repair was said to do, if that is still what there is to do.
    pub fn repair(lock: &ImageLock, said: &Plan) -> Result<()> {
        let path = lock.path();
        let (mut volume, plan) = Self::mount_for_repair(HostWorld::open_for_change(lock)?, path)?;
        if plan.steps != said.steps {
            bail!(
                "nothing was changed: the second look at {} has found something else than the first. Copy the image to \
                 a disk that works, and repair the copy",
                path.display()
            );
        }
        volume.store.repair(&mut volume.world, &plan).map_err(|error| {
            let change = if volume.store.may_have_committed() {
                ", or is repaired: './gond check IMAGE' shows it"
            } else {
                ""
            };
            anyhow!(
                "{} was not repaired, and is as it was before{change}: {error}",
                path.display()
            )
        })
    }

    fn mount_for_repair(mut world: HostWorld, path: &Path) -> Result<(Self, Plan)> {
        let (store, plan) = Store::mount_for_repair(&mut world).map_err(|error| {
            let advice = match error {
                MountError::Damaged(..) => {
                    ". Nothing else on the image says what stood there: what can be had back is in an older copy of it"
                }
                _ => "",
            };
            anyhow!("{} cannot be repaired: {error}{advice}", path.display())
        })?;
        let volume = Self {
            world,
            before: store.stats(),
            store,
            report: plan.report.clone(),
            path: path.into(),
            changed: BTreeMap::new(),
        };
        Ok((volume, plan))
    }

    /// Makes an image with an empty store of a new file; complaints name it `path`.
    pub fn create(file: File, path: &Path, bytes: u64) -> Result<Self> {
        let mut world = HostWorld::create(file, bytes)
            .with_context(|| format!("cannot make the disk image {} of {}", path.display(), show_size(bytes)))?;
        let options = FormatOptions {
            first_slot: abi::address::slot_of(abi::address::FIRST_FREE),
            ..FormatOptions::default()
        };
        Store::format(&mut world, &options).map_err(|error| anyhow!("cannot format {}: {error:?}", path.display()))?;
        Self::mount(world, path, MountMode::ReadWrite)
    }

    fn of(world: HostWorld, path: &Path, (store, report): (Store, MountReport)) -> Self {
        Self {
            world,
            before: store.stats(),
            store,
            report,
            path: path.into(),
            changed: BTreeMap::new(),
        }
    }

    fn mount(mut world: HostWorld, path: &Path, mode: MountMode) -> Result<Self> {
        match Store::mount(&mut world, mode) {
            Ok(mounted) => Ok(Self::of(world, path, mounted)),
            Err(error) => bail!("{} is refused: {}", path.display(), error),
        }
    }

    /// Where the image is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The findings of the mount.
    pub fn report(&self) -> &MountReport {
        &self.report
    }

    /// The store and its world, for those who verify them.
    pub fn parts(&mut self) -> (&mut Store, &mut HostWorld) {
        (&mut self.store, &mut self.world)
    }

    /// Random bits for a password: never zero, which would ask the system for one.
    pub fn password(&mut self) -> u64 {
        loop {
            let bits = self.world.next_u64();
            if bits != 0 {
                return bits;
            }
        }
    }

    /// The record of the object that begins at `base`.
    pub fn object(&self, base: u64) -> Option<ObjectRecord> {
        self.store.object(base).cloned()
    }

    /// All objects, in order of their addresses.
    pub fn objects(&self) -> Vec<ObjectRecord> {
        self.store.objects().cloned().collect()
    }

    /// Reads a page, changes not yet committed included.
    pub fn page(&mut self, base: u64, page: u64) -> Result<Page> {
        if let Some(&(frame, limits)) = self.changed.get(&(base, page)) {
            return Ok(Page {
                content: Some(Box::new(*self.world.bytes(frame))),
                limits: Some(limits),
            });
        }
        match self.store.read_page(&mut self.world, base, page) {
            ReadStart::Zero(limits) => Ok(Page { content: None, limits }),
            ReadStart::Reading => self.await_page(base, page),
            ReadStart::NoMemory => bail!("there is not enough memory"),
        }
    }

    fn await_page(&mut self, base: u64, page: u64) -> Result<Page> {
        while let Some(event) = self.next_event() {
            match event {
                Event::PageRead {
                    base: b,
                    page: p,
                    frame,
                    flags,
                } if (b, p) == (base, page) => {
                    let content = Box::new(*self.world.bytes(frame));
                    self.world.free(frame);
                    // Where the map had to be read first, a page that was never written comes as zeroes.
                    return Ok(match self.store.page_flags(&self.world, base, page) {
                        PageLookup::Absent => Page {
                            content: None,
                            limits: None,
                        },
                        PageLookup::Zero(limits) => Page {
                            content: None,
                            limits: Some(limits),
                        },
                        PageLookup::Stored(_) | PageLookup::Unknown => Page {
                            content: Some(content),
                            limits: Some(flags),
                        },
                    });
                }
                Event::PageBad {
                    base: b,
                    page: p,
                    reason,
                } if (b, p) == (base, page) => {
                    let what = match reason {
                        BadPage::Checksum => "its checksum is wrong",
                        BadPage::Map => "the page map above it is damaged",
                        BadPage::Ahead => "it was read ahead",
                        BadPage::Disk => "the image could not be read",
                        BadPage::Memory => bail!("there is not enough memory"),
                        BadPage::Gone => bail!("the object at {base:#x} was deleted"),
                    };
                    let image = self.path.clone();
                    return Err(Damage {
                        image,
                        base,
                        page,
                        what,
                    }
                    .into());
                }
                _ => {}
            }
        }
        bail!("the store left page {page} of the object at {base:#x} unread")
    }

    /// Drives the store until it has something to tell, or nothing to do.
    fn next_event(&mut self) -> Option<Event> {
        // Requests complete as they are submitted, so each poll gets on; a store that does not is stuck.
        for _ in 0..STUCK {
            if let Some(event) = self.store.poll(&mut self.world) {
                return Some(event);
            }
            if self.store.is_idle() {
                return None;
            }
        }
        None
    }

    /// Reads the first `bytes` of an object. Damaged pages are zero, and told.
    ///
    /// # Errors
    /// Any but [`Damage`].
    pub fn read_left(&mut self, base: u64, bytes: u64) -> Result<(Vec<u8>, Vec<Damage>)> {
        let length = usize::try_from(bytes)?;
        let (mut content, mut damaged) = (Vec::new(), Vec::new());
        content
            .try_reserve_exact(length)
            .with_context(|| format!("the object at {base:#x} does not fit into memory"))?;
        for page in 0..bytes.div_ceil(BLOCK as u64) {
            let part = BLOCK.min(length - content.len());
            let block = match self.page(base, page) {
                Ok(page) => page.content,
                Err(error) => {
                    damaged.push(error.downcast::<Damage>()?);
                    None
                }
            };
            match block {
                Some(block) => content.extend_from_slice(&block[..part]),
                None => content.resize(content.len() + part, 0),
            }
        }
        Ok((content, damaged))
    }

    /// Puts a record in the table, new or in place of the one at its base.
    pub fn put(&mut self, record: &ObjectRecord) -> Result<()> {
        let end_slot = abi::address::slot_of(record.end().saturating_sub(1)) + 1;
        self.store.raise_high_water(end_slot);
        self.store.put_object(record.clone()).map_err(|error| match error {
            PutError::DiskFull => self.full(),
            other => anyhow!(
                "cannot put the object at {:#x} on {}: {other:?}",
                record.base,
                self.path.display()
            ),
        })
    }

    /// Deletes an object.
    pub fn delete(&mut self, base: u64) -> Result<()> {
        self.changed.retain(|&(object, _), (frame, _)| {
            if object == base {
                self.world.free(*frame);
            }
            object != base
        });
        self.store
            .delete_object(base)
            .map_err(|error| anyhow!("cannot delete the object at {base:#x}: {error:?}"))
    }

    /// Sets the limits of a page that stays all zero, or whose content is left as it is.
    pub fn set_limits(&mut self, base: u64, page: u64, limits: PageFlags) -> Result<()> {
        self.store
            .set_page_flags(base, page, limits)
            .map_err(|error| anyhow!("cannot set the limits of page {page} at {base:#x}: {error:?}"))
    }

    /// Makes the pages from `first` on read as zero again.
    pub fn discard(&mut self, base: u64, first: u64, count: u64) -> Result<()> {
        self.store
            .discard_pages(base, first, first.saturating_add(count), &[])
            .map_err(|error| anyhow!("cannot discard pages at {base:#x}: {error:?}"))
    }

    /// Writes a page; it reaches the disk with the next commit.
    pub fn write(&mut self, base: u64, page: u64, content: &Block, limits: PageFlags) -> Result<()> {
        let frame = if let Some(&(frame, _)) = self.changed.get(&(base, page)) {
            frame
        } else {
            let reserved = self.store.reserve_stored(&self.world, base, page);
            reserved.map_err(|_| self.full())?;
            self.world.alloc().context("there is not enough memory")?
        };
        *self.world.bytes_mut(frame) = *content;
        self.changed.insert((base, page), (frame, limits));
        Ok(())
    }

    fn full(&self) -> anyhow::Error {
        let (disk, before) = (self.path.display(), &self.before);
        anyhow!(
            "the disk {disk} has no room for this: {} of {} are free, of which {} are kept for changes and removals. {}Remove objects in the \
             system ('rm'), or make the image larger ('./gond grow {disk} SIZE')",
            show_size(before.free * PAGE),
            show_size(before.blocks * PAGE),
            show_size(before.reserved.min(before.free) * PAGE),
            self.held()
        )
    }

    /// A sentence about the blocks that snapshots hold; empty if there are none.
    fn held(&self) -> String {
        let (blocks, path) = (self.store.blocks_of_snapshots(), self.path.display());
        if blocks == 0 {
            return String::new();
        }
        let bytes = show_size(blocks * PAGE);
        format!(
            "Snapshots hold {bytes} that the state does not need: './gond snapshot {path} ls' tells which, and './gond snapshot {path} drop NAME' gives it back. "
        )
    }

    /// Makes all changes durable.
    pub fn commit(&mut self) -> Result<()> {
        let dirty: Vec<DirtyPage> = self
            .changed
            .iter()
            .map(|(&(base, page), &(frame, flags))| DirtyPage {
                base,
                page,
                frame,
                flags,
            })
            .collect();
        self.store
            .checkpoint_begin(&mut self.world, dirty, CheckpointKind::Shutdown)
            .map_err(|_| anyhow!("a checkpoint is running already"))?;
        loop {
            match self.next_event() {
                Some(Event::PageWritten { frame, .. }) => self.world.free(frame),
                Some(Event::CheckpointDone { .. }) => {
                    self.changed.clear();
                    return Ok(());
                }
                Some(Event::CheckpointFailed { reason }) => {
                    self.changed.clear();
                    // The store has done with the failed one before it begins another.
                    while self.store.page_over().is_some() {}
                    let reason = match reason {
                        Failure::Disk => "the host's disk has no room or reports an error".into(),
                        other => format!("{other:?}"),
                    };
                    let path = self.path.display();
                    let change = if self.store.may_have_committed() {
                        format!(", or has the change: './gond ls {path}' shows what is there")
                    } else {
                        String::new()
                    };
                    bail!("cannot write to {path}: {reason}; the image is as it was before{change}");
                }
                Some(_) => {}
                None => bail!("the checkpoint of {} did not end", self.path.display()),
            }
        }
    }

    /// An address for a new object: where the longest run of slots begins that no object holds and no procedure names as its Clist.
    pub fn free_address(&self) -> u64 {
        use abi::address::{FIRST_FREE, OBJECTS_END, SLOT};
        let mut held = vec![(OBJECTS_END, OBJECTS_END)];
        for record in self.store.objects() {
            held.push((record.base / SLOT * SLOT, record.end().next_multiple_of(SLOT)));
            held.extend(
                record
                    .pdx
                    .iter()
                    .map(|pdx| (pdx.clist / SLOT * SLOT, (pdx.clist | (SLOT - 1)).saturating_add(1))),
            );
        }
        held.sort_unstable();
        let (mut at, mut longest) = (FIRST_FREE, (0, FIRST_FREE));
        for (first, end) in held {
            let bytes = first.min(OBJECTS_END).saturating_sub(at);
            if bytes > longest.0 {
                longest = (bytes, at);
            }
            at = at.max(end);
        }
        longest.1
    }

    /// How many pages wait for the next commit.
    pub fn pending(&self) -> usize {
        self.changed.len()
    }
}

/// There is no snapshot of that name.
pub fn missing(path: &Path, name: &SnapshotName) -> anyhow::Error {
    let path = path.display();
    anyhow!("there is no snapshot '{name}' of {path}; './gond snapshot {path} ls' lists them")
}

/// Why a snapshot was not made or dropped, and what to do.
fn refusal(path: &Path, name: &SnapshotName, error: SnapshotError) -> anyhow::Error {
    let what = path.display();
    match error {
        SnapshotError::Missing => missing(path, name),
        SnapshotError::Exists => anyhow!(
            "there is a snapshot '{name}' of {what} already: take another name, or drop it ('./gond snapshot {what} drop {name}')"
        ),
        SnapshotError::TooMany => anyhow!(
            "{error}: './gond snapshot {what} ls' tells what each snapshot holds alone, and './gond snapshot {what} drop NAME' gives that back"
        ),
        // There may be no snapshot to drop.
        SnapshotError::DiskFull => anyhow!(
            "{error}: remove objects in the system ('rm'), drop a snapshot ('./gond snapshot {what} ls' tells what each holds alone), or make the image larger ('./gond grow {what} SIZE')"
        ),
        other => anyhow!("snapshot '{name}' of {what}: {other}"),
    }
}

/// Nanoseconds since 1970.
pub fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{FLUSHES_LEFT, lock_image};
    use crate::place::Scratch;

    /// If the flush behind the superblock fails, the change may be there, and the complaint says how to look. If an earlier one fails, it is not there.
    #[test]
    fn a_change_whose_flush_failed_is_told_as_what_it_is() {
        const BASE: u64 = abi::address::FIRST_FREE;
        let scratch = Scratch::make().unwrap();
        let mut told = Vec::new();
        for flush in 0.. {
            let path = scratch.file(&format!("{flush}.img"));
            let file = File::options().read(true).write(true).create_new(true).open(&path);
            Volume::create(file.unwrap(), &path, 2 << 20).unwrap().commit().unwrap();
            let mut volume = Volume::open_for_change(&lock_image(&path).unwrap()).unwrap();
            volume.put(&crate::image::new_record(BASE, 1, 7, 0)).unwrap();
            volume.write(BASE, 0, &[1; BLOCK], crate::tree::NO_LIMITS).unwrap();
            FLUSHES_LEFT.set(flush);
            let result = volume.commit();
            FLUSHES_LEFT.set(u32::MAX);
            drop(volume);
            let is_there = Volume::open(&path).unwrap().object(BASE).is_some();
            let Err(error) = result else {
                assert!(is_there);
                break;
            };
            let complaint = format!("{error:#}");
            let look = format!("or has the change: './gond ls {}' shows what is there", path.display());
            let is_open = complaint.contains(&look);
            assert!(
                is_open || complaint.ends_with("the image is as it was before"),
                "{complaint}"
            );
            assert!(is_open || !is_there, "{flush}: {complaint}");
            told.push(is_open);
        }
        assert_eq!(told, [false, true]);
    }
}
