//! Our store as an engine: the large records are the pages of one object, the small ones are objects of one page that was
//! never written.

use crate::file::{Counts, FileWorld};
use crate::{CACHE, Durable, Engine, Outcome, Page, held};
use std::fs::File;
use std::path::Path;
use store::{
    BLOCK, CheckpointKind, DirtyPage, Event, FormatOptions, Frame, MountMode, ObjectRecord, PageFlags, Pages,
    ReadStart, Store,
};

/// Where the object of the large records begins.
const BASE: u64 = abi::address::FIRST_FREE;
/// Where the small ones begin: each has a slot of its own, behind the largest object of these rows.
const FIRST_SMALL: u64 = BASE + (1 << 40);

/// Blocks of the smallest store here: behind a few checkpoints it still has so many to spare that none is made to free some.
const BLOCKS_MIN: u64 = 1 << 14;

/// The store over a file.
pub struct Own {
    world: FileWorld,
    store: Store,
}

fn base(number: u64) -> u64 {
    FIRST_SMALL + number * abi::address::SLOT
}

impl Own {
    /// Makes a file with an object of so many pages, in a store of twice the size, at least 64 MiB. Pages are written by [`Engine::write`].
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path, pages: u64) -> Outcome<Self> {
        let fail = |error: std::io::Error| format!("{}: {error}", path.display());
        let file = File::create_new(path).map_err(fail)?;
        file.set_len((2 * pages).max(BLOCKS_MIN) * BLOCK as u64).map_err(fail)?;
        drop(file);
        let mut world = Self::world(path)?;
        let options = FormatOptions {
            first_slot: abi::address::slot_of(BASE),
            ..FormatOptions::default()
        };
        Store::format(&mut world, &options).map_err(|error| format!("format: {error:?}"))?;
        let mut own = Self::mount(world)?;
        own.put(ObjectRecord {
            base: BASE,
            pages,
            ..ObjectRecord::default()
        })?;
        own.checkpoint(Vec::new(), CheckpointKind::Generation)?;
        Ok(own)
    }

    /// Opens one that was made.
    ///
    /// # Errors
    /// It cannot be mounted.
    pub fn open(path: &Path) -> Outcome<Self> {
        Self::mount(Self::world(path)?)
    }

    fn world(path: &Path) -> Outcome<FileWorld> {
        let file = File::options().read(true).write(true).open(path);
        let world = file.and_then(FileWorld::over);
        world.map_err(|error| format!("{}: {error}", path.display()))
    }

    fn mount(mut world: FileWorld) -> Outcome<Self> {
        let mounted = Store::mount(&mut world, MountMode::ReadWrite);
        let (mut store, _) = mounted.map_err(|error| format!("mount: {error:?}"))?;
        store.keep_unwritten(CACHE / BLOCK);
        Ok(Self { world, store })
    }

    fn put(&mut self, record: ObjectRecord) -> Outcome<()> {
        self.store.raise_high_water(abi::address::slot_of(record.end() - 1) + 1);
        let put = self.store.put_object(record);
        put.map_err(|error| format!("put: {error:?}"))
    }

    fn dirty(&mut self, page: u64, fill: &mut dyn FnMut(u64, &mut Page)) -> Outcome<DirtyPage> {
        let reserved = self.store.reserve(BASE, page);
        reserved.map_err(|error| format!("reserve: {error:?}"))?;
        let frame = self.world.alloc().ok_or("no memory")?;
        fill(page, self.world.bytes_mut(frame));
        Ok(DirtyPage {
            base: BASE,
            page,
            frame,
            flags: PageFlags::READ,
        })
    }

    /// Makes these pages durable by a sync; `false` if that needs a checkpoint.
    fn sync(&mut self, pages: Vec<DirtyPage>) -> Outcome<bool> {
        let begun = self.store.sync_begin(&mut self.world, pages, &[]);
        begun.map_err(|failure| format!("sync: {failure:?}"))?;
        let mut back: Vec<Frame> = Vec::new();
        let is_durable = loop {
            match self.store.poll(&mut self.world) {
                Some(Event::PageWritten { frame, .. }) => back.push(frame),
                Some(Event::SyncDone(_)) => break true,
                Some(Event::SyncNeedsCheckpoint(_)) => break false,
                Some(Event::SyncFailed(_, failure)) => return Err(format!("sync: {failure:?}")),
                Some(_) => {}
                None => return Err("the sync does not end".into()),
            }
        };
        if is_durable {
            for frame in back {
                self.world.free(frame);
            }
        }
        Ok(is_durable)
    }

    fn checkpoint(&mut self, pages: Vec<DirtyPage>, kind: CheckpointKind) -> Outcome<()> {
        let begun = self.store.checkpoint_begin(&mut self.world, pages, kind);
        begun.map_err(|why| format!("checkpoint: {why:?}"))?;
        loop {
            match self.store.poll(&mut self.world) {
                Some(Event::PageWritten { frame, .. }) => self.world.free(frame),
                Some(Event::CheckpointDone { .. }) => return Ok(()),
                Some(Event::CheckpointFailed { reason }) => return Err(format!("checkpoint: {reason:?}")),
                Some(_) => {}
                None => return Err("the checkpoint does not end".into()),
            }
        }
    }

    /// The last generation: rows say with it how often the store folded its journal.
    pub fn generation(&self) -> u64 {
        self.store.stats().generation
    }
}

impl Engine for Own {
    fn write(&mut self, pages: &[u64], durable: Durable, fill: &mut dyn FnMut(u64, &mut Page)) -> Outcome<()> {
        let mut all = Vec::with_capacity(pages.len());
        for &page in pages {
            all.push(self.dirty(page, fill)?);
        }
        if durable == Durable::Sync && self.sync(all.clone())? {
            return Ok(());
        }
        self.checkpoint(all, CheckpointKind::Periodic)
    }

    fn probe(&mut self, page: u64, see: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        match self.store.read_page(&mut self.world, BASE, page) {
            ReadStart::Zero(_) => return Err(format!("page {page} was never written")),
            ReadStart::NoMemory => return Err("no memory".into()),
            ReadStart::Reading => {}
        }
        loop {
            match self.store.poll(&mut self.world) {
                Some(Event::PageRead { frame, .. }) => {
                    see(self.world.bytes(frame));
                    self.world.free(frame);
                    return Ok(());
                }
                Some(Event::PageBad { reason, .. }) => return Err(format!("page {page}: {reason:?}")),
                Some(_) => {}
                None => return Err(format!("page {page} does not come")),
            }
        }
    }

    fn scan(&mut self, pages: u64, see: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        (0..pages).try_for_each(|page| self.probe(page, see))
    }

    fn create(&mut self, first: u64, count: u64) -> Outcome<()> {
        for number in first..first + count {
            self.put(ObjectRecord {
                base: base(number),
                pages: 1,
                tag: held(number),
                ..ObjectRecord::default()
            })?;
        }
        self.checkpoint(Vec::new(), CheckpointKind::Periodic)
    }

    fn delete(&mut self, first: u64, count: u64) -> Outcome<()> {
        for number in first..first + count {
            let deleted = self.store.delete_object(base(number));
            deleted.map_err(|error| format!("delete: {error:?}"))?;
        }
        self.checkpoint(Vec::new(), CheckpointKind::Periodic)
    }

    fn find(&mut self, number: u64) -> Outcome<Option<u64>> {
        Ok(self.store.object(base(number)).map(|record| record.tag))
    }

    fn count(&mut self) -> Outcome<u64> {
        Ok(self.store.objects_from(FIRST_SMALL).count() as u64)
    }

    fn counts(&self) -> Option<Counts> {
        Some(self.world.counts)
    }

    fn close(mut self: Box<Self>) -> Outcome<()> {
        self.checkpoint(Vec::new(), CheckpointKind::Shutdown)
    }
}
