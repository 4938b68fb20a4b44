//! Which blocks are in use, and when a free one may be used again.
//!
//! Two bitmaps are resident. `used` is what the generation being built reaches and what its
//! checkpoint will store. `busy` adds what may not be overwritten yet: a block set free while
//! generation *g+1* is built is still reached from *g*, and, until *g+2* is durable, *g* is the root
//! one falls back to (invariant 1). Blocks that journal records name are never anything else but
//! set free in this way, so they stay pinned too (invariant 5).
//!
//! On the disk there are three regions, used in turn by the generations. A region holds index
//! blocks with the checksums of its bitmap blocks; zero stands for "all free, never written", so
//! that an empty store of any size costs nothing to format or to mount.

use crate::breaks::{Breaks, Invariant};
use crate::containers::List;
use crate::geometry::{BITMAPS, BITS, Geometry, SUMS};
use crate::heap::{NoHeap, zeroed};
use crate::world::BLOCK;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;

/// Bits in a word of a bitmap.
const WORD: u64 = 64;
/// Blocks that are marked free in one piece: some 100 instructions each.
const RELEASE_PIECE: usize = 32;
/// Words of a bitmap that are cleared in one piece.
const SWEEP_PIECE: usize = 1024;
/// Words in a bitmap block.
const WORDS: usize = BLOCK / 8;

/// A bitmap over blocks.
pub(crate) struct Bits(pub(crate) Vec<u64>);

impl Bits {
    fn new(bits: u64) -> Result<Self, NoHeap> {
        zeroed(bits.div_ceil(WORD)).map(Self)
    }

    /// The next set bit from `from` on.
    fn next(&self, from: usize) -> Option<usize> {
        let mut at = from / WORD as usize;
        let mut mask = u64::MAX << (from as u64 % WORD);
        loop {
            let word = self.0.get(at)? & mask;
            if word != 0 {
                return Some(at * WORD as usize + word.trailing_zeros() as usize);
            }
            mask = u64::MAX;
            at += 1;
        }
    }

    pub(crate) fn get(&self, bit: u64) -> bool {
        self.0
            .get((bit / WORD) as usize)
            .is_some_and(|word| word & (1 << (bit % WORD)) != 0)
    }

    /// Sets or clears a bit; tells whether that changed it.
    fn put(&mut self, bit: u64, to: u64) -> bool {
        let Some(word) = self.0.get_mut((bit / WORD) as usize) else {
            return false;
        };
        let before = *word;
        *word = before & !(1 << (bit % WORD)) | to << (bit % WORD);
        *word != before
    }
}

/// Levels above the bits of the largest disk: each has a bit for a word below that is full.
const LEVELS: usize = 5;

/// Which words of a bitmap are full, so that a free block is found in some steps however large and full the disk is.
struct Full([Bits; LEVELS]);

impl Full {
    fn new(bits: u64) -> Result<Self, NoHeap> {
        let level = |level| Bits::new(bits.div_ceil(WORD.pow(level)));
        Ok(Self([level(1)?, level(2)?, level(3)?, level(4)?, level(5)?]))
    }

    /// Notes what a word of the bitmap is now.
    fn note(&mut self, mut at: usize, mut word: u64) {
        for level in &mut self.0 {
            if !level.put(at as u64, u64::from(word == u64::MAX)) {
                return;
            }
            at /= WORD as usize;
            word = level.0[at];
        }
    }

    /// The first word from there on that is not full, or one past the end.
    fn next(&self, mut at: usize) -> Option<usize> {
        let mut level = 0;
        // Up to where something is not full, and down again.
        for _ in 0..2 * LEVELS {
            let &word = self.0.get(level)?.0.get(at / WORD as usize)?;
            let open = !word & u64::MAX << (at as u64 % WORD);
            at /= WORD as usize;
            if open == 0 {
                (at, level) = (at + 1, level + 1);
                continue;
            }
            at = at * WORD as usize + open.trailing_zeros() as usize;
            if level == 0 {
                return Some(at);
            }
            (at, level) = (at * WORD as usize, level - 1);
        }
        None
    }
}

/// Blocks that attempts at the next generation took: nothing durable names them, so those that an attempt which failed
/// gives up can be used at once. Without this, attempts that fail again and again would fill the disk.
struct Young {
    bits: Bits,
    /// Words that may have bits set.
    words: Range<usize>,
    /// Whether the generation is durable that they were taken for: they are young no more, and the bits are yet to be cleared.
    grown_up: bool,
}

impl Young {
    fn new(blocks: u64) -> Result<Self, NoHeap> {
        Ok(Self {
            bits: Bits::new(blocks)?,
            words: 0..0,
            grown_up: false,
        })
    }

    fn insert(&mut self, bit: u64) {
        while self.sweep_some() {}
        self.bits.put(bit, 1);
        let word = (bit / WORD) as usize;
        self.words = if self.words.is_empty() {
            word..word + 1
        } else {
            self.words.start.min(word)..self.words.end.max(word + 1)
        };
    }

    /// Takes a block out; tells whether it was in.
    fn remove(&mut self, bit: u64) -> bool {
        !self.grown_up && self.bits.put(bit, 0)
    }

    fn grow_up(&mut self) {
        while self.sweep_some() {}
        self.grown_up = !self.words.is_empty();
    }

    fn is_sweeping(&self) -> bool {
        self.grown_up
    }

    /// Clears some bits of those that have grown up; tells whether there are more.
    fn sweep_some(&mut self) -> bool {
        if self.grown_up {
            let end = self.words.end.min(self.words.start + SWEEP_PIECE);
            if let Some(words) = self.bits.0.get_mut(self.words.start..end) {
                words.fill(0);
            }
            self.words.start = end;
            self.grown_up = !self.words.is_empty();
        }
        self.grown_up
    }
}

/// One on-disk region as it now is, or as we must assume it to be.
pub(crate) struct Region {
    /// Checksums of the bitmap blocks, zero for "all free".
    pub(crate) sums: Vec<u64>,
    /// Checksums of the index blocks.
    pub(crate) index: Vec<u64>,
    /// Bitmap blocks that differ from `used`.
    stale: Bits,
}

impl Region {
    fn new(geometry: &Geometry) -> Result<Self, NoHeap> {
        Ok(Self {
            sums: zeroed(geometry.bitmap_blocks())?,
            index: zeroed(geometry.index_blocks())?,
            stale: Bits::new(geometry.bitmap_blocks())?,
        })
    }
}

/// Bytes of heap that a disk of so many blocks takes at its mount, unless it cannot be one.
pub fn heap_for(blocks: u64) -> Option<u64> {
    Geometry::new(blocks, None)
        .ok()
        .map(|geometry| Allocation::heap(&geometry))
}

/// The allocator.
pub(crate) struct Allocation {
    geometry: Geometry,
    breaks: Breaks,
    pub(crate) used: Bits,
    busy: Bits,
    full: Full,
    free: u64,
    /// The place where the search goes on.
    hint: usize,
    /// Set free while the next generation is being built.
    freed_now: List<u64>,
    /// Set free while the current generation was built.
    freed_before: List<u64>,
    /// Set free before that: nothing needs them any more, they are only yet to be marked.
    releasing: List<u64>,
    young: Young,
    /// Allocated since the last commit; kept only to break invariant 5.
    recent: BTreeSet<u64>,
    pub(crate) regions: [Region; BITMAPS],
    /// A bitmap block that all regions are known to lack.
    marked: Option<usize>,
}

impl Allocation {
    /// With every data block free.
    pub(crate) fn new(geometry: Geometry, breaks: Breaks) -> Result<Self, NoHeap> {
        let blocks = geometry.total - geometry.data_start();
        Ok(Self {
            geometry,
            breaks,
            used: Bits::new(blocks)?,
            busy: Bits::new(blocks)?,
            full: Full::new(blocks)?,
            free: blocks,
            hint: 0,
            freed_now: List::default(),
            freed_before: List::default(),
            releasing: List::default(),
            marked: None,
            young: Young::new(blocks)?,
            recent: BTreeSet::new(),
            regions: [
                Region::new(&geometry)?,
                Region::new(&geometry)?,
                Region::new(&geometry)?,
            ],
        })
    }

    /// Bytes of heap that the bitmaps of such a store take while it is mounted.
    pub(crate) fn heap(geometry: &Geometry) -> u64 {
        // Used, busy, young, and at mount the one of the generation before; which words of it are full.
        4 * (geometry.total / 8) + geometry.total / 8 / 60 + (BITMAPS as u64 + 1) * 8 * geometry.bitmap_blocks()
    }

    fn blocks(&self) -> u64 {
        self.geometry.total - self.geometry.data_start()
    }

    /// Takes over what mount read: the bits of the current generation, which are in `used`, and of the previous one, if
    /// they could be read. `false` if a bit past the end is set.
    pub(crate) fn load(&mut self, previous: Option<&[u64]>, region: usize) -> bool {
        let blocks = self.blocks();
        let past_end = self.used.0.len() as u64 * WORD;
        if (blocks..past_end).any(|bit| self.used.get(bit)) {
            return false;
        }
        self.busy.0.copy_from_slice(&self.used.0);
        for (at, &word) in previous.into_iter().flatten().enumerate() {
            let only_before = word & !self.used.0.get(at).copied().unwrap_or(0);
            for bit in (0..WORD).filter(|bit| only_before & (1 << bit) != 0) {
                let bit = at as u64 * WORD + bit;
                if bit < blocks && self.set_busy(bit, 1) {
                    hold(&mut self.freed_before, self.geometry.data_start() + bit);
                }
            }
        }
        let mut busy = 0;
        for (at, &word) in self.busy.0.iter().enumerate() {
            busy += u64::from(word.count_ones());
            self.full.note(at, word);
        }
        self.free = blocks - busy;
        // The content of the other regions is unknown: write all of them but what is free.
        for other in (0..BITMAPS).filter(|&other| other != region) {
            for block in 0..self.geometry.bitmap_blocks() {
                let stale = !self.is_free(block as usize);
                self.regions[other].stale.put(block, u64::from(stale));
            }
        }
        true
    }

    /// Blocks that may be allocated.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.free + self.releasing.len() as u64
    }

    /// Blocks set free and not yet usable.
    pub(crate) fn held_blocks(&self) -> u64 {
        (self.freed_now.len() + self.freed_before.len()) as u64
    }

    fn mark(&mut self, bit: u64, to: u64) {
        if self.used.put(bit, to) {
            let block = (bit / BITS) as usize;
            if self.marked == Some(block) {
                return;
            }
            self.marked = Some(block);
            for region in &mut self.regions {
                region.stale.put(block as u64, 1);
            }
        }
    }

    /// Says whether a block may not be overwritten; tells whether that changed it.
    fn set_busy(&mut self, bit: u64, to: u64) -> bool {
        let changed = self.busy.put(bit, to);
        if changed {
            let at = (bit / WORD) as usize;
            self.full.note(at, self.busy.0[at]);
        }
        changed
    }

    /// A block that nothing durable reaches.
    pub(crate) fn alloc(&mut self) -> Option<u64> {
        if self.free == 0 {
            self.release_some();
        }
        let bit = self.free_from(self.hint).or_else(|| self.free_from(0))?;
        self.hint = (bit / WORD) as usize;
        self.take(bit);
        Some(self.geometry.data_start() + bit)
    }

    /// The first free block from a word on.
    fn free_from(&self, at: usize) -> Option<u64> {
        let at = self.full.next(at)?;
        let word = self.busy.0.get(at)?;
        Some(at as u64 * WORD + u64::from(word.trailing_ones())).filter(|&bit| bit < self.blocks())
    }

    fn take(&mut self, bit: u64) {
        self.mark(bit, 1);
        if self.set_busy(bit, 1) {
            self.free -= 1;
        }
        if !self.breaks.keeps(Invariant::Pins) {
            self.recent.insert(self.geometry.data_start() + bit);
        }
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
        self.geometry.is_data(block) && self.used.get(block - self.geometry.data_start())
    }

    /// Takes the unused block that a replayed record names.
    pub(crate) fn claim(&mut self, block: u64) {
        if self.is_unused(block) {
            self.take(block - self.geometry.data_start());
            self.freed_before.remove(&block);
        }
    }

    /// The block is no longer reached from the generation being built.
    pub(crate) fn free(&mut self, block: u64) {
        if !self.geometry.is_data(block) {
            return;
        }
        let unpinned = !self.breaks.keeps(Invariant::Pins) && self.recent.contains(&block);
        if self.young.remove(block - self.geometry.data_start()) || unpinned || !self.breaks.keeps(Invariant::NoReuse) {
            self.release(block);
        } else if self.used.get(block - self.geometry.data_start()) {
            self.mark(block - self.geometry.data_start(), 0);
            hold(&mut self.freed_now, block);
        }
    }

    /// Takes back an allocation that came to nothing.
    pub(crate) fn release(&mut self, block: u64) {
        let bit = block - self.geometry.data_start();
        self.young.remove(bit);
        self.mark(bit, 0);
        if self.set_busy(bit, 0) {
            self.free += 1;
        }
        self.hint = self.hint.min((bit / WORD) as usize);
    }

    /// A checkpoint failed after it may have written to a region: all of it is to be written again.
    pub(crate) fn restale(&mut self, region: usize) {
        let stale = &mut self.regions[region].stale.0;
        stale.fill(u64::MAX);
        let past_end = self.geometry.bitmap_blocks() % WORD;
        if let Some(last) = stale.last_mut().filter(|_| past_end > 0) {
            *last = u64::MAX >> (WORD - past_end);
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
        while self.release_some() {}
        self.regions[region].stale.0.fill(0);
        self.marked = None;
        self.young.grow_up();
        self.recent.clear();
        self.releasing = core::mem::replace(&mut self.freed_before, core::mem::take(&mut self.freed_now));
    }

    /// Whether blocks are yet to be marked free.
    pub(crate) fn is_releasing(&self) -> bool {
        !self.releasing.is_empty() || self.young.is_sweeping()
    }

    /// Marks some blocks free that nothing needs any more; tells whether there were any.
    pub(crate) fn release_some(&mut self) -> bool {
        self.young.sweep_some();
        for _ in 0..RELEASE_PIECE {
            let Some(block) = self.releasing.pop() else { break };
            if self.set_busy(block - self.geometry.data_start(), 0) {
                self.free += 1;
            }
        }
        self.is_releasing()
    }

    /// Whether all of a bitmap block is free.
    pub(crate) fn is_free(&self, block: usize) -> bool {
        self.words(block).iter().all(|&word| word == 0)
    }

    fn words(&self, block: usize) -> &[u64] {
        let start = (block * WORDS).min(self.used.0.len());
        let end = (start + WORDS).min(self.used.0.len());
        &self.used.0[start..end]
    }

    /// Fills `out` with a bitmap block.
    pub(crate) fn encode(&self, block: usize, out: &mut [u8; BLOCK]) {
        out.fill(0);
        for (place, word) in out.chunks_exact_mut(8).zip(self.words(block)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Fills `out` with an index block.
    pub(crate) fn encode_index(&self, region: usize, block: usize, out: &mut [u8; BLOCK]) {
        out.fill(0);
        let sums = self.regions[region].sums.iter().skip(block * SUMS as usize);
        for (place, sum) in out.chunks_exact_mut(8).zip(sums) {
            place.copy_from_slice(&sum.to_le_bytes());
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_block_comes_back_after_two_commits() {
        let geometry = Geometry::new(200, None).unwrap();
        let mut allocation = Allocation::new(geometry, Breaks::NONE).unwrap();
        let all = allocation.free_blocks();
        let block = allocation.alloc().unwrap();
        allocation.commit(1);
        allocation.free(block);
        assert_eq!(allocation.free_blocks(), all - 1);
        allocation.commit(2);
        assert_eq!(allocation.free_blocks(), all - 1);
        allocation.commit(0);
        assert_eq!(allocation.free_blocks(), all);
        assert!(!allocation.release_some());
        assert_eq!(allocation.alloc(), Some(block));
    }

    #[test]
    fn every_block_can_be_allocated_once() {
        let geometry = Geometry::new(300, None).unwrap();
        let mut allocation = Allocation::new(geometry, Breaks::NONE).unwrap();
        let all = allocation.free_blocks();
        let blocks: BTreeSet<u64> = core::iter::from_fn(|| allocation.alloc()).collect();
        assert_eq!(blocks.len() as u64, all);
        assert!(blocks.iter().all(|&block| geometry.is_data(block)));
        assert_eq!(allocation.free_blocks(), 0);
    }

    /// On a large disk that is full but for one block, that one is found at once wherever it is.
    #[test]
    fn the_last_free_block_is_found_wherever_it_is() {
        let geometry = Geometry::new(1 << 26, None).unwrap();
        let mut allocation = Allocation::new(geometry, Breaks::NONE).unwrap();
        let blocks = allocation.blocks();
        allocation.used.0.fill(u64::MAX);
        let past_end = blocks % WORD;
        assert!(past_end > 0);
        *allocation.used.0.last_mut().unwrap() = u64::MAX >> (WORD - past_end);
        assert!(allocation.load(None, 0));
        assert_eq!((allocation.free_blocks(), allocation.alloc()), (0, None));
        for round in 0..2000_u64 {
            let bit = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks;
            allocation.release(geometry.data_start() + bit);
            // The search begins behind it, too.
            allocation.hint = (round * 77_777_777 % (blocks / WORD)) as usize;
            assert_eq!(allocation.alloc(), Some(geometry.data_start() + bit));
            assert_eq!(allocation.alloc(), None);
        }
    }

    #[test]
    fn a_replayed_record_takes_unused_blocks_and_no_others() {
        let geometry = Geometry::new(300, None).unwrap();
        let mut allocation = Allocation::new(geometry, Breaks::NONE).unwrap();
        let all = allocation.free_blocks();
        let block = allocation.alloc().unwrap();
        let unused = geometry.total - 1;
        let outside = [
            0,
            1,
            geometry.data_start() - 1,
            geometry.total,
            geometry.total + 64,
            u64::MAX,
        ];
        for (other, is_unused) in outside
            .map(|block| (block, false))
            .into_iter()
            .chain([(block, false), (unused, true)])
        {
            assert_eq!(allocation.is_unused(other), is_unused, "{other}");
            allocation.claim(other);
        }
        assert!(!allocation.is_unused(unused));
        assert_eq!(allocation.free_blocks(), all - 2);

        // A block that is set free is unused again, though its content must stay for now.
        allocation.free(block);
        assert!(allocation.is_unused(block));
        assert_eq!((allocation.free_blocks(), allocation.held_blocks()), (all - 2, 1));
    }

    /// Blocks that a read under way may need, more than one piece keeps, are free a generation later than others.
    #[test]
    fn blocks_that_are_kept_for_reads_are_free_a_generation_later() {
        let commit = |allocation: &mut Allocation| {
            allocation.commit(0);
            while allocation.release_some() {}
        };
        for keeps in [false, true] {
            let geometry = Geometry::new(4000, None).expect("a layout");
            let mut allocation = Allocation::new(geometry, Breaks::NONE).expect("heap");
            let (all, many) = (allocation.free_blocks(), RELEASE_PIECE as u64 + 8);
            let blocks: Vec<u64> = (0..many).map(|_| allocation.alloc().expect("room")).collect();
            commit(&mut allocation);
            for &block in &blocks {
                allocation.free(block);
            }
            commit(&mut allocation);
            if keeps {
                assert!(allocation.keep_some(), "more than one piece");
                assert!(!allocation.keep_some());
            }
            commit(&mut allocation);
            assert_eq!(allocation.free_blocks(), if keeps { all - many } else { all });
            commit(&mut allocation);
            assert_eq!(allocation.free_blocks(), all);
        }
    }
}
