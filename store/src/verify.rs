//! Checking everything: for `gond check` and the crash tests.
//!
//! All that the current generation reaches is read and its checksums compared; every block must be
//! reached once, and the bitmap must say so. Run it on a store that was mounted read-only: it waits
//! for the disk and wants no job under way.

use crate::blocking::{read_block, read_blocks};
use crate::containers::{Map, copied, push_reserved};
use crate::event::{MountError, Structure};
use crate::geometry::BITS;
use crate::heap::{with_room, zeroed};
use crate::map::{Entry, FANOUT, LOST, MapKey, MapRoot, entry_in, first_page, reach};
use crate::store::Store;
use crate::superblock::Place;
use crate::table::{Absent, Body, Row};
use crate::world::{BLOCK, World};
use alloc::vec::Vec;

mod snapshots;
#[cfg(test)]
mod tests;

/// Something that is not as it should be.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Finding {
    /// A block does not have the checksum that its parent states, or cannot be read.
    Damaged {
        /// The structure that it is part of.
        structure: Structure,
        /// The block.
        block: u64,
        /// The object, for pages and maps; for rows, an address from which on the objects are concerned.
        base: u64,
        /// The first page concerned.
        page: u64,
        /// One past the last one, as far as the map reaches; zero for what is no page or map.
        end: u64,
        /// What is wrong.
        fault: Fault,
    },
    /// The contents of pages were lost with a damaged map node, or in a repair: the map says so. That is no fault of
    /// the store.
    Lost {
        /// The object.
        base: u64,
        /// The first page.
        page: u64,
        /// One past the last one, as far as the map reaches.
        end: u64,
    },
    /// Two places lead to the same block.
    SharedBlock(u64),
    /// A block is in use although the bitmap says that it is free.
    MarkedFree(u64),
    /// A block is marked as in use and nothing leads to it.
    Leaked(u64),
    /// Bases do not ascend, objects overlap, or a row cannot be found.
    TableOrder,
    /// A page has contents beyond the end of its object.
    BeyondEnd {
        /// The object.
        base: u64,
        /// The page.
        page: u64,
    },
}

/// What is wrong with a block.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Fault {
    /// It is not as it was written, however often it is read.
    Rotten,
    /// The disk reports an error: it may be as it was written.
    Unread,
}

/// The things that were looked at.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct Verification {
    /// Objects.
    pub objects: u64,
    /// Pages with contents.
    pub pages: u64,
    /// Blocks reached, all kinds.
    pub blocks: u64,
    /// Things found wrong: all findings but [`Finding::Lost`].
    pub findings: u64,
}

/// Pages read at a time.
const BATCH: usize = 64;

struct Check<'a, W: World> {
    store: &'a Store,
    world: &'a mut W,
    report: &'a mut dyn FnMut(Finding),
    /// Blocks that were reached, by group.
    reached: Map<usize, Vec<u64>>,
    tally: Verification,
    /// Pages whose contents are yet to be read.
    batch: Vec<(u64, u64, Entry)>,
    /// Whether the contents of pages are looked at.
    pages: Contents,
}

/// What is looked at of pages.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Contents {
    /// Where they lie.
    Places,
    /// Their contents, too.
    Read,
}

impl Store {
    /// Checks everything and reports each finding.
    ///
    /// # Errors
    /// [`MountError::Memory`] if no frame or no heap could be had.
    pub fn verify(&self, world: &mut impl World, report: &mut dyn FnMut(Finding)) -> Result<Verification, MountError> {
        let mut check = Check::new(self, world, report, Contents::Read)?;
        check.all()?;
        check.bitmap();
        check.snapshots()?;
        Ok(check.tally)
    }

    /// The blocks that are reached, by group, as bits; what is found wrong is reported. The contents of pages are not
    /// read.
    pub(crate) fn reached(
        &self,
        world: &mut impl World,
        report: &mut dyn FnMut(Finding),
    ) -> Result<Map<usize, Vec<u64>>, MountError> {
        let mut check = Check::new(self, world, report, Contents::Places)?;
        check.all()?;
        Ok(check.reached)
    }
}

impl<'a, W: World> Check<'a, W> {
    fn new(
        store: &'a Store,
        world: &'a mut W,
        report: &'a mut dyn FnMut(Finding),
        pages: Contents,
    ) -> Result<Self, MountError> {
        Ok(Self {
            store,
            world,
            report,
            reached: Map::default(),
            tally: Verification::default(),
            batch: with_room(BATCH)?,
            pages,
        })
    }

    fn all(&mut self) -> Result<(), MountError> {
        self.table()?;
        self.read_batch()?;
        // Nobody will read the pages of deleted objects.
        self.pages = Contents::Places;
        for (base, root) in self.store.doomed.pairs() {
            self.map(base, root, u64::MAX)?;
        }
        Ok(())
    }

    fn find(&mut self, finding: Finding) {
        self.tally.findings += u64::from(!matches!(finding, Finding::Lost { .. }));
        (self.report)(finding);
    }

    /// Notes that a block is reached; tells whether nothing else led to it before.
    fn reach(&mut self, block: u64) -> Result<bool, MountError> {
        self.tally.blocks += 1;
        if !self.store.geometry.is_data(block) {
            self.find(Finding::SharedBlock(block));
            return Ok(true);
        }
        let bit = block - self.store.geometry.data_start();
        let group = (bit / BITS) as usize;
        if !self.reached.has(group) {
            self.reached.insert(group, zeroed(BITS / 64)?)?;
        }
        let words = self.reached.get_mut(group).map_or(&mut [][..], Vec::as_mut_slice);
        let mask = 1 << (bit % 64);
        if let Some(word) = words.get_mut((bit % BITS / 64) as usize) {
            if *word & mask != 0 {
                self.find(Finding::SharedBlock(block));
                return Ok(false);
            }
            *word |= mask;
        }
        if !self.store.allocation.is_used(block) {
            self.find(Finding::MarkedFree(block));
        }
        Ok(true)
    }

    fn read(&mut self, place: Place) -> Result<Result<Vec<u8>, Fault>, MountError> {
        let mut fault = Fault::Rotten;
        if !self.store.geometry.is_data(place.block) {
            return Ok(Err(fault));
        }
        // What is read wrong once is not blamed.
        for _ in 0..2 {
            fault = match read_block(self.world, place.block)? {
                Some(bytes) if self.store.checksums.fit(place.checksum, place.block, &bytes) => return Ok(Ok(bytes)),
                Some(_) => Fault::Rotten,
                None => Fault::Unread,
            };
        }
        Ok(Err(fault))
    }

    fn table(&mut self) -> Result<(), MountError> {
        let store = self.store;
        if !store.table.is_sound() {
            self.find(Finding::TableOrder);
        }
        for id in store.table.node_ids()? {
            self.table_block(store.table.place(id))?;
            if let Body::Leaf(rows) = store.table.body(id) {
                self.rows(rows)?;
            }
        }
        // Those that are not in memory, in the order of their keys.
        let mut next = 0;
        while next < u64::MAX {
            let (_, (_, end)) = store.table.leaf_and_range(next);
            if let Some(absent) = store.table.absent_at(next) {
                self.absent(absent)?;
            }
            next = end;
        }
        Ok(())
    }

    /// A leaf that is not in memory.
    fn absent(&mut self, absent: Absent) -> Result<(), MountError> {
        let place = self.store.table.place(absent.leaf);
        match self.store.read_leaf(self.world, place) {
            Ok(rows) => {
                if !self.store.table.may_be(absent, &rows) {
                    self.find(Finding::TableOrder);
                }
                self.rows(&rows)
            }
            Err(MountError::Memory) => Err(MountError::Memory),
            // That of the leaf itself was found before.
            Err(MountError::Damaged(structure, block)) if block != place.block => {
                self.find(Finding::Damaged {
                    structure,
                    block,
                    base: absent.from(),
                    page: 0,
                    end: 0,
                    fault: Fault::Rotten,
                });
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    fn rows(&mut self, rows: &[Row]) -> Result<(), MountError> {
        for row in rows {
            for &place in &row.overflow {
                self.table_block(place)?;
            }
            self.tally.objects += 1;
            self.map(row.record.base, &row.map, row.record.pages)?;
        }
        Ok(())
    }

    /// A written part of the table. One that was changed by the replayed journal still counts,
    /// for its old block is in use until the next checkpoint.
    fn table_block(&mut self, place: Place) -> Result<(), MountError> {
        if place.block == 0 {
            return Ok(());
        }
        self.reach(place.block)?;
        if let Err(fault) = self.read(place)? {
            self.find(Finding::Damaged {
                structure: Structure::Table,
                block: place.block,
                base: 0,
                page: 0,
                end: 0,
                fault,
            });
        }
        Ok(())
    }

    fn map(&mut self, base: u64, root: &MapRoot, pages: u64) -> Result<(), MountError> {
        self.below(
            MapKey {
                base,
                level: root.levels,
                index: 0,
            },
            root.entry,
            pages,
        )
    }

    fn below(&mut self, key: MapKey, entry: Entry, pages: u64) -> Result<(), MountError> {
        if key.level == 0 {
            return self.page(key, entry, pages);
        }
        let place = Place {
            block: entry.block,
            checksum: entry.checksum,
        };
        let mut bytes = None;
        let page = first_page(key);
        let end = page.saturating_add(reach(key.level));
        if entry.block == LOST && !self.store.maps.contains(key) {
            self.find(Finding::Lost {
                base: key.base,
                page,
                end,
            });
        } else if entry.block != 0 && entry.block != LOST {
            // A node that many entries share is gone through once: six levels of such nodes would take for ever.
            if !self.reach(entry.block)? {
                return Ok(());
            }
            match self.read(place)? {
                Ok(found) => bytes = Some(found),
                Err(fault) => self.find(Finding::Damaged {
                    structure: Structure::Map,
                    block: entry.block,
                    base: key.base,
                    page,
                    end,
                    fault,
                }),
            }
        }
        // The node in memory is newer than the one on the disk.
        if let Some(frame) = self.store.maps.frame(key) {
            bytes = Some(copied(self.world.bytes(frame))?);
        }
        let Some(bytes) = bytes else { return Ok(()) };
        let Ok(bytes) = <&[u8; BLOCK]>::try_from(&bytes[..]) else {
            return Ok(());
        };
        for slot in 0..FANOUT {
            let child = MapKey {
                level: key.level - 1,
                index: key.index * FANOUT + slot,
                ..key
            };
            let entry = entry_in(bytes, slot);
            if !entry.is_none() || self.store.maps.contains(child) {
                self.below(child, entry, pages)?;
            }
        }
        Ok(())
    }

    fn page(&mut self, key: MapKey, entry: Entry, pages: u64) -> Result<(), MountError> {
        if entry.block == 0 {
            return Ok(());
        }
        if entry.block == LOST {
            self.find(Finding::Lost {
                base: key.base,
                page: key.index,
                end: key.index + 1,
            });
            return Ok(());
        }
        self.tally.pages += 1;
        self.reach(entry.block)?;
        let pending = self
            .store
            .pending
            .by_object()
            .get_ref(key.base)
            .is_some_and(|changes| changes.is_zeroed(key.index));
        if key.index >= pages && !pending {
            self.find(Finding::BeyondEnd {
                base: key.base,
                page: key.index,
            });
        }
        // The next generation drops one that is to read as zero.
        if self.store.geometry.is_data(entry.block) && self.pages == Contents::Read && !pending {
            push_reserved(&mut self.batch, (key.base, key.index, entry));
        }
        if self.batch.len() >= BATCH {
            self.read_batch()
        } else {
            Ok(())
        }
    }

    fn read_batch(&mut self) -> Result<(), MountError> {
        let mut batch = core::mem::take(&mut self.batch);
        let store = self.store;
        let mut doubtful: Vec<(u64, u64, Entry)> = with_room(batch.len())?;
        let mut pages = batch.iter();
        let blocks = batch.iter().map(|&(_, _, entry)| entry.block);
        read_blocks(self.world, blocks, |block, bytes| {
            let Some(&page) = pages.next() else {
                return Ok(());
            };
            if !bytes.is_ok_and(|bytes| store.checksums.fit(page.2.checksum, block, bytes)) {
                push_reserved(&mut doubtful, page);
            }
            Ok(())
        })?;
        for (base, page, Entry { block, checksum, .. }) in doubtful {
            if let Err(fault) = self.read(Place { block, checksum })? {
                self.find(Finding::Damaged {
                    structure: Structure::Page,
                    block,
                    base,
                    page,
                    end: page + 1,
                    fault,
                });
            }
        }
        batch.clear();
        self.batch = batch;
        Ok(())
    }

    /// Compares what is marked as in use with what was reached.
    fn bitmap(&mut self) {
        let (start, store) = (self.store.geometry.data_start(), self.store);
        for group in 0..store.allocation.bitmap_blocks() {
            for (at, &used) in store.allocation.used_words(group).iter().enumerate() {
                let reached = self.reached.get_ref(group).and_then(|words| words.get(at));
                let leaked = used & !reached.copied().unwrap_or(0);
                for bit in (0..64).filter(|bit| leaked & (1 << bit) != 0) {
                    let block = start + group as u64 * BITS + at as u64 * 64 + bit;
                    if !self.store.table.is_released(block) {
                        self.find(Finding::Leaked(block));
                    }
                }
            }
        }
    }
}
