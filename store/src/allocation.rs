//! Which blocks are in use, and when a free one may be used again.
//!
//! Two bits of each block are known. *Used* is what the generation being built reaches and what its
//! checkpoint will store. *Busy* adds what may not be overwritten yet: a block set free while
//! generation *g+1* is built is still reached from *g*, and, until *g+2* is durable, *g* is the root
//! one falls back to (invariant 1). Blocks that journal records name are never anything else but
//! set free in this way, so they stay pinned too (invariant 5). The bits stand in [groups], and a group of which no block is busy takes no heap.
//! What snapshots hold is busy, too, and stays so when it is set free ([held]).
//!
//! On the disk there are three regions, used in turn by the generations. A region holds index
//! blocks with the checksums of its bitmap blocks; zero stands for "all free, never written", so
//! that an empty store of any size costs nothing to format or to mount.

use crate::breaks::{Breaks, Invariant};
use crate::containers::{List, Map};
use crate::event::NoRoom;
use crate::geometry::{BITMAPS, BITS, Geometry};
use crate::heap::{NoHeap, zeroed};
use crate::world::BLOCK;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;

use bits::{Bits, WORD};
use groups::{AREA_HEAP, GROUP_HEAP, Groups};
pub(crate) use growing::Growth;
use growing::Retired;
use young::Young;

mod bits;
mod groups;
mod growing;
mod held;
mod young;

/// Blocks that are marked free in one piece: some 100 instructions each.
const RELEASE_PIECE: usize = 32;

/// One on-disk region as it now is, or as we must assume it to be.
pub(crate) struct Region {
    /// Checksums of the index blocks.
    pub(crate) index: Vec<u64>,
    /// Bitmap blocks that differ from what is used.
    stale: Bits,
}

impl Region {
    fn new(geometry: &Geometry) -> Result<Self, NoHeap> {
        Ok(Self {
            index: zeroed(geometry.index_blocks())?,
            stale: Bits::new(geometry.bitmap_blocks())?,
        })
    }
}

/// The allocator.
pub(crate) struct Allocation {
    geometry: Geometry,
    breaks: Breaks,
    groups: Groups,
    /// The word where the search goes on.
    hint: usize,
    /// Set free while the next generation is being built.
    freed_now: List<u64>,
    /// Set free while the current generation was built.
    freed_before: List<u64>,
    /// Set free before that: nothing needs them any more, they are only yet to be marked.
    releasing: List<u64>,
    /// Where the bitmaps stood before they moved.
    retired: Retired,
    /// The blocks that the next checkpoint is to make of the store.
    wanted: Option<u64>,
    young: Young,
    /// Groups of which all is held, for nobody knows what is.
    unknown: Map<usize, ()>,
    /// Allocated since the last commit; kept only to break invariant 5.
    recent: BTreeSet<u64>,
    pub(crate) regions: [Region; BITMAPS],
    /// A bitmap block that all regions are known to lack.
    marked: Option<usize>,
}

/// The bits of the bitmaps themselves, where they stand among the data.
fn reserved(geometry: &Geometry) -> Range<u64> {
    let blocks = geometry.among_data();
    blocks.start - geometry.data_start()..blocks.end - geometry.data_start()
}

impl Allocation {
    /// With every data block free.
    pub(crate) fn new(geometry: Geometry, breaks: Breaks) -> Result<Self, NoHeap> {
        Ok(Self {
            geometry,
            breaks,
            groups: Groups::new(geometry.total - geometry.data_start(), reserved(&geometry))?,
            hint: 0,
            freed_now: List::default(),
            freed_before: List::default(),
            releasing: List::default(),
            marked: None,
            retired: Retired::default(),
            wanted: None,
            young: Young::default(),
            unknown: Map::default(),
            recent: BTreeSet::new(),
            regions: [
                Region::new(&geometry)?,
                Region::new(&geometry)?,
                Region::new(&geometry)?,
            ],
        })
    }

    /// Bytes of heap that the bitmaps of such a store take, where blocks of so many groups are in use.
    pub(crate) fn heap(geometry: &Geometry, groups: u64) -> u64 {
        // Of each group: whether it is there, full, closed, and stale in the regions; with levels above. A row of young blocks, and a spare one.
        let bits = (3 + BITMAPS as u64) * geometry.bitmap_blocks().div_ceil(WORD) * 8 * 65 / 64;
        let areas = groups.min(geometry.index_blocks()) * AREA_HEAP;
        bits + 256 * geometry.index_blocks() + areas + groups * GROUP_HEAP + 2 * BLOCK as u64
    }

    fn blocks(&self) -> u64 {
        self.geometry.total - self.geometry.data_start()
    }

    /// Takes over a bitmap block of the current generation, and its checksum. `false` if a bit past the end is set.
    pub(crate) fn load(
        &mut self,
        region: usize,
        group: usize,
        (bytes, sum): (&[u8; BLOCK], u64),
    ) -> Result<bool, NoHeap> {
        let is_sound = self.groups.load(group, words(bytes))?;
        self.groups.set_sum(region, group, sum);
        // The content of the other regions is unknown: write all of them but what is free.
        for other in (0..BITMAPS).filter(|&other| other != region) {
            let stale = !self.groups.is_unused(group);
            self.regions[other].stale.put(group as u64, u64::from(stale));
        }
        Ok(is_sound)
    }

    /// Takes over which blocks of a group the current generation reaches, where its bitmap cannot be read: each region lacks it.
    pub(crate) fn rebuild(&mut self, group: usize, words: &[u64]) -> Result<bool, NoHeap> {
        let is_sound = self.groups.load(group, words.iter().copied())?;
        for region in &mut self.regions {
            region.stale.put(group as u64, u64::from(!self.groups.is_unused(group)));
        }
        Ok(is_sound)
    }

    /// Holds what a bitmap block of the generation before names and the current one does not.
    pub(crate) fn load_before(&mut self, group: usize, bytes: &[u8; BLOCK]) -> Result<(), NoHeap> {
        for (at, word) in words(bytes).enumerate() {
            let used = self.groups.used_words(group).get(at).copied().unwrap_or(0);
            let mut only_before = word & !used;
            if only_before != 0 {
                self.groups.open(group)?;
            }
            while only_before != 0 {
                let bit = group as u64 * BITS + at as u64 * WORD + u64::from(only_before.trailing_zeros());
                only_before &= only_before - 1;
                if bit < self.blocks() && self.groups.put_busy(bit, true) {
                    hold(&mut self.freed_before, self.geometry.data_start() + bit);
                }
            }
        }
        Ok(())
    }

    /// Blocks that may be allocated.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.groups.free() + self.groups.absent() + self.releasing.len() as u64
    }

    /// Sees to it that so many blocks can be had, those that were promised before among them: they are free, and none of them needs more heap. Opens
    /// groups for that, one for each 32,768 blocks.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub(crate) fn promise(&mut self, blocks: u64) -> Result<(), NoRoom> {
        while self.groups.free() + (self.releasing.len() as u64) < blocks {
            if self.free_blocks() < blocks {
                return Err(NoRoom::Disk);
            }
            let from = self.hint / groups::WORDS;
            let absent = self.groups.next_absent(from).or_else(|| self.groups.next_absent(0));
            self.groups
                .open(absent.ok_or(NoRoom::Disk)?)
                .map_err(|NoHeap| NoRoom::Memory)?;
        }
        Ok(())
    }

    /// Blocks set free and not yet usable.
    pub(crate) fn held_blocks(&self) -> u64 {
        (self.freed_now.len() + self.freed_before.len()) as u64 + self.retired.count()
    }

    /// Says whether a block is used; tells whether that changed it.
    fn mark(&mut self, bit: u64, to: bool) -> bool {
        let changed = self.groups.put_used(bit, to);
        if changed {
            self.marked(bit);
        }
        changed
    }

    /// Notes that the bit of a block has changed: each region of the disk has an old bitmap block for it now.
    fn marked(&mut self, bit: u64) {
        let block = (bit / BITS) as usize;
        if self.marked != Some(block) {
            self.marked = Some(block);
            for region in &mut self.regions {
                region.stale.put(block as u64, 1);
            }
        }
    }

    /// A block that nothing durable reaches.
    pub(crate) fn alloc(&mut self) -> Option<u64> {
        let found = self.take_free()?;
        Some(self.taken(found))
    }

    /// Such a block that no generation may name before it is [owned](Allocation::own).
    pub(crate) fn alloc_ahead(&mut self) -> Option<u64> {
        let (bit, _) = self.take_free()?;
        self.groups.put_used(bit, false);
        Some(self.geometry.data_start() + bit)
    }

    /// What is built from now on may name a block.
    pub(crate) fn own(&mut self, block: u64) {
        let bit = block - self.geometry.data_start();
        let is_new = self.groups.put_used(bit, true);
        self.taken((bit, is_new));
    }

    /// Takes a free block; tells whether it was unused.
    fn take_free(&mut self) -> Option<(u64, bool)> {
        if self.groups.free() + self.groups.absent() == 0 {
            self.release_some(u64::MAX);
        }
        let taken = match self.groups.take_in(self.hint) {
            Some(taken) => taken,
            None => self.take_next()?,
        };
        self.hint = (taken.0 / WORD) as usize;
        Some(taken)
    }

    /// Takes the next free block, or without heap for its group one for which none is needed.
    fn take_next(&mut self) -> Option<(u64, bool)> {
        let mut bit = self.groups.next_free(self.hint)?;
        if let Err(NoHeap) = self.groups.open((bit / BITS) as usize) {
            if self.groups.free() == 0 {
                self.release_some(u64::MAX);
            }
            bit = self.groups.next_free_there(self.hint)?;
        }
        Some(self.groups.take(bit))
    }

    /// A block was taken, which may have been used.
    fn taken(&mut self, (bit, is_new): (u64, bool)) -> u64 {
        if is_new {
            self.marked(bit);
        }
        let block = self.geometry.data_start() + bit;
        if !self.breaks.keeps(Invariant::Pins) {
            self.recent.insert(block);
        }
        block
    }

    /// A block for a checkpoint: as long as it is not committed, nothing durable names it.
    pub(crate) fn alloc_young(&mut self) -> Option<u64> {
        let block = self.alloc()?;
        self.young.insert(block - self.geometry.data_start());
        Some(block)
    }

    /// Whether nothing of the generation being built reaches the block.
    pub(crate) fn is_unused(&self, block: u64) -> bool {
        self.geometry.is_data(block) && !self.is_used(block)
    }

    /// Whether it is a block that something of the generation being built reaches.
    pub(crate) fn is_used(&self, block: u64) -> bool {
        self.geometry.is_data(block) && self.groups.is_used(block - self.geometry.data_start())
    }

    /// Takes the unused block that a replayed record names.
    pub(crate) fn claim(&mut self, block: u64) -> Result<(), NoHeap> {
        if self.is_unused(block) {
            let bit = block - self.geometry.data_start();
            self.groups.open((bit / BITS) as usize)?;
            let is_held = self.groups.is_busy(bit);
            let taken = self.groups.take(bit);
            self.taken(taken);
            // There may be very many that are held, and no store names one in a record.
            if is_held {
                self.freed_before.remove(&block);
            }
        }
        Ok(())
    }

    /// The block is no longer reached from the generation being built.
    pub(crate) fn free(&mut self, block: u64) {
        if !self.geometry.is_data(block) {
            return;
        }
        let bit = block - self.geometry.data_start();
        let unpinned = !self.breaks.keeps(Invariant::Pins) && self.recent.contains(&block);
        if self.young.remove(bit) || unpinned || !self.breaks.keeps(Invariant::NoReuse) {
            self.release(block);
        } else if self.mark(bit, false) && !self.groups.is_held(bit) {
            hold(&mut self.freed_now, block);
        }
    }

    /// Takes back an allocation that came to nothing.
    pub(crate) fn release(&mut self, block: u64) {
        let bit = block - self.geometry.data_start();
        self.young.remove(bit);
        self.mark(bit, false);
        if !self.groups.is_held(bit) {
            self.groups.put_busy(bit, false);
        }
        self.hint = self.hint.min((bit / WORD) as usize);
    }

    /// A checkpoint failed after it may have written to a region: all of it is to be written again. (Absent groups of which it has something are
    /// known to be.)
    pub(crate) fn restale(&mut self, region: usize) {
        let there = self.groups.all_there();
        for (word, there) in self.regions[region].stale.0.iter_mut().zip(there) {
            *word |= there;
        }
    }

    /// Reads that began before the current generation was durable keep what was set free then from being reused for one generation more.
    /// Does so for some blocks; tells whether there are more.
    pub(crate) fn keep_some(&mut self) -> bool {
        for _ in 0..RELEASE_PIECE {
            let Some(block) = self.freed_before.pop() else { break };
            hold(&mut self.freed_now, block);
        }
        !self.freed_before.is_empty()
    }

    /// The generation being built is durable.
    pub(crate) fn commit(&mut self, region: usize) {
        // Nothing, where a checkpoint has waited for it.
        while self.release_some(u64::MAX) {}
        self.regions[region].stale.0.fill(0);
        self.marked = None;
        self.young.grow_up();
        self.recent.clear();
        self.retired.commit();
        self.releasing = core::mem::replace(&mut self.freed_before, core::mem::take(&mut self.freed_now));
    }

    /// Whether blocks are yet to be marked free.
    pub(crate) fn is_releasing(&self) -> bool {
        !self.releasing.is_empty() || self.retired.is_releasing() || self.young.is_sweeping()
    }

    /// Marks some blocks free that nothing needs any more; tells whether there are more. Where this leaves a group without busy blocks, its heap comes
    /// back if a group's free blocks remain beside those that are promised, `promised` in all.
    pub(crate) fn release_some(&mut self, promised: u64) -> bool {
        self.young.sweep_some();
        for _ in 0..RELEASE_PIECE {
            let block = self.releasing.pop();
            let bit = block.map(|block| block - self.geometry.data_start());
            let Some(bit) = bit.or_else(|| self.retired.next()) else {
                break;
            };
            if self.groups.is_held(bit) || self.groups.clear_busy(bit) {
                continue;
            }
            let group = (bit / BITS) as usize;
            let left = self.groups.free().saturating_sub(self.groups.size(group));
            if left >= promised.saturating_add(BITS) {
                self.groups.close(group);
                // One for each piece: what a piece may cost has a bound.
                break;
            }
        }
        self.is_releasing()
    }

    /// Whether all of a bitmap block is free.
    pub(crate) fn is_free(&self, block: usize) -> bool {
        self.groups.is_unused(block)
    }

    /// The words of a bitmap block, none if all of it is free.
    pub(crate) fn used_words(&self, block: usize) -> &[u64] {
        self.groups.used_words(block)
    }

    /// Bitmap blocks.
    pub(crate) fn bitmap_blocks(&self) -> usize {
        self.blocks().div_ceil(BITS) as usize
    }

    /// Fills `out` with a bitmap block.
    pub(crate) fn encode(&self, block: usize, out: &mut [u8; BLOCK]) {
        fill(out, self.groups.used_words(block));
    }

    /// Notes the checksum that a bitmap block has in a region.
    pub(crate) fn set_sum(&mut self, region: usize, block: usize, sum: u64) {
        self.groups.set_sum(region, block, sum);
    }

    /// Whether an index block of a region has no checksum but zero.
    pub(crate) fn is_index_free(&self, region: usize, block: usize) -> bool {
        self.groups.sums(region, block).iter().all(|&sum| sum == 0)
    }

    /// Fills `out` with an index block.
    pub(crate) fn encode_index(&self, region: usize, block: usize, out: &mut [u8; BLOCK]) {
        fill(out, self.groups.sums(region, block));
    }

    /// The next bitmap block from `from` on that a region lacks.
    pub(crate) fn next_stale(&self, region: usize, from: usize) -> Option<usize> {
        self.regions[region].stale.next(from)
    }
}

/// Notes a block that was set free and must not be used yet. Without heap for the list nobody uses it before the next mount.
fn hold(list: &mut List<u64>, block: u64) {
    let _ = list.push(block);
}

/// The words of a bitmap block.
fn words(bytes: &[u8; BLOCK]) -> impl Iterator<Item = u64> {
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// Fills `out` with words, and with zeroes behind them.
pub(crate) fn fill(out: &mut [u8; BLOCK], words: &[u64]) {
    let (places, _) = out.as_chunks_mut();
    let (filled, rest) = places.split_at_mut(words.len().min(places.len()));
    for (place, word) in filled.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    rest.fill([0; 8]);
}

#[cfg(test)]
impl Allocation {
    /// Says the contrary of whether a block is used.
    pub(crate) fn flip(&mut self, block: u64) {
        let bit = block - self.geometry.data_start();
        self.groups.open((bit / BITS) as usize).expect("heap");
        self.groups.put_used(bit, !self.groups.is_used(bit));
    }
}

#[cfg(test)]
mod tests;
