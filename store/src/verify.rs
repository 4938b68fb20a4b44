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
use crate::map::{Entry, FANOUT, LOST, MapKey, MapRoot, entry_in, first_page};
use crate::store::Store;
use crate::superblock::Place;
use crate::table::{Absent, Body, Row};
use crate::world::{BLOCK, World};
use alloc::vec::Vec;

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
        /// The object, for pages and maps.
        base: u64,
        /// The first page concerned.
        page: u64,
    },
    /// The contents of a page were lost when a map node was found damaged.
    Lost {
        /// The object.
        base: u64,
        /// The page.
        page: u64,
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

/// The things that were looked at.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct Verification {
    /// Objects.
    pub objects: u64,
    /// Pages with contents.
    pub pages: u64,
    /// Blocks reached, all kinds.
    pub blocks: u64,
    /// Things found wrong.
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
}

impl Store {
    /// Checks everything and reports each finding.
    ///
    /// # Errors
    /// [`MountError::Memory`] if no frame or no heap could be had.
    pub fn verify(&self, world: &mut impl World, report: &mut dyn FnMut(Finding)) -> Result<Verification, MountError> {
        let mut check = Check {
            store: self,
            world,
            report,
            reached: Map::default(),
            tally: Verification::default(),
            batch: with_room(BATCH)?,
        };
        check.table()?;
        for (base, root) in self.doomed.pairs() {
            check.map(base, root, u64::MAX)?;
        }
        check.read_batch()?;
        check.bitmap();
        Ok(check.tally)
    }
}

impl<W: World> Check<'_, W> {
    fn find(&mut self, finding: Finding) {
        self.tally.findings += 1;
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

    fn read(&mut self, place: Place) -> Result<Option<Vec<u8>>, MountError> {
        if !self.store.geometry.is_data(place.block) {
            return Ok(None);
        }
        let found = read_block(self.world, place.block)?;
        Ok(found.filter(|bytes| self.store.checksums.fit(place.checksum, place.block, bytes)))
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
        if self.read(place)?.is_none() {
            self.find(Finding::Damaged {
                structure: Structure::Table,
                block: place.block,
                base: 0,
                page: 0,
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
        if entry.block == LOST {
            self.find(Finding::Lost {
                base: key.base,
                page: first_page(key),
            });
        } else if entry.block != 0 {
            // A node that many entries share is gone through once: six levels of such nodes would take for ever.
            if !self.reach(entry.block)? {
                return Ok(());
            }
            bytes = self.read(place)?;
            if bytes.is_none() {
                let page = first_page(key);
                self.find(Finding::Damaged {
                    structure: Structure::Map,
                    block: entry.block,
                    base: key.base,
                    page,
                });
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
        if self.store.geometry.is_data(entry.block) {
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
        let mut pages = batch.iter();
        let blocks = batch.iter().map(|&(_, _, entry)| entry.block);
        let (tally, report) = (&mut self.tally, &mut self.report);
        read_blocks(self.world, blocks, |block, bytes| {
            let Some(&(base, page, entry)) = pages.next() else {
                return Ok(());
            };
            let intact = bytes.is_ok_and(|bytes| store.checksums.fit(entry.checksum, block, bytes));
            if !intact {
                tally.findings += 1;
                report(Finding::Damaged {
                    structure: Structure::Page,
                    block,
                    base,
                    page,
                });
            }
            Ok(())
        })?;
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
