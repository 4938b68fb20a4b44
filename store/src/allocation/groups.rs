//! Which blocks are used and which are busy, in groups. A group is what one bitmap block of the disk tells of: 128 MiB.
//!
//! A group of which no block is busy takes no heap, and only such a group may be *absent*; each other one takes 8 KiB. So the heap is in
//! proportion to what is used of a disk, not to its size. The kernel's heap pays, on the machine's account: blocks of all accounts stand
//! in one group. A group comes when a block of it is promised, taken or read at the mount, and goes when its last block is released.
//!
//! Blocks that are promised stand in groups that are there, so that nothing that was promised needs heap later.
//!
//! The bitmaps of a store that has grown stand among the data: their blocks are *reserved*, which is busy and never used, and their groups are always there.
//!
//! Which blocks snapshots hold is in `held.rs`: 4 KiB more for each group with such blocks.

use super::bits::{Levels, WORD};
use crate::geometry::{BITMAPS, BITS, SUMS};
use crate::heap::{NoHeap, with_room, zeroed};
use crate::world::BLOCK;
use alloc::vec::Vec;
use core::ops::Range;

mod extending;
mod held;

/// Words in a bitmap block.
pub(super) const WORDS: usize = BLOCK / 8;
/// The places of busy blocks among the words of a group, behind those of used ones, and of the bits that say which of them are full.
const BUSY: usize = WORDS;
const FULL: usize = 2 * WORDS;
const GROUP_WORDS: usize = FULL + WORDS / WORD as usize;
/// The place of held blocks, where a group has any.
const HELD: usize = GROUP_WORDS;
/// Groups that an index block of the disk tells of.
const AREA: usize = SUMS as usize;
/// Bytes of heap for a group that is there, with what the heap itself needs; and for the index block above it.
pub(super) const GROUP_HEAP: u64 = GROUP_WORDS as u64 * 8 + 32;
pub(super) const AREA_HEAP: u64 = SUMS * (size_of::<Group>() as u64 + BITMAPS as u64 * 8) + 128;

/// One group; without words it is absent.
#[derive(Default)]
struct Group {
    words: Vec<u64>,
    used: u32,
    busy: u32,
}

impl Group {
    #[inline]
    fn put_used(&mut self, bit: u64, to: bool) -> bool {
        let (_, _, word, mask) = place(bit);
        let Some(word) = self.words.get_mut(word) else {
            return false;
        };
        if (*word & mask != 0) == to {
            return false;
        }
        *word ^= mask;
        self.used = if to { self.used + 1 } else { self.used - 1 };
        true
    }

    /// The number of busy blocks before, if that changes it.
    #[inline]
    fn put_busy(&mut self, bit: u64, to: bool) -> Option<u32> {
        let (_, _, word, mask) = place(bit);
        let found = self.words.get_mut(BUSY + word)?;
        if (*found & mask != 0) == to {
            return None;
        }
        let was_full = *found == u64::MAX;
        *found ^= mask;
        if was_full || *found == u64::MAX {
            self.words[FULL + word / 64] ^= 1 << (word % 64);
        }
        let before = self.busy;
        self.busy = if to { before + 1 } else { before - 1 };
        Some(before)
    }
}

/// The groups of an index block, and the checksums of their bitmap blocks in each region, zero for "all free". It is empty as long as none of
/// the groups was ever there.
#[derive(Default)]
struct Area {
    groups: Vec<Group>,
    sums: [Vec<u64>; BITMAPS],
}

/// All groups of a disk.
pub(super) struct Groups {
    blocks: u64,
    /// Blocks that are always busy and never used.
    reserved: Range<u64>,
    areas: Vec<Area>,
    /// Groups that are there.
    there: Levels,
    /// Groups of which all blocks are busy.
    full: Levels,
    /// Groups that are absent or full.
    closed: Levels,
    /// Free blocks of groups that are there, and blocks of absent ones.
    free: u64,
    absent: u64,
}

/// The place of a block: its area, group in it, word in that, and bit.
const fn place(bit: u64) -> (usize, usize, usize, u64) {
    let group = (bit / BITS) as usize;
    let word = (bit % BITS / WORD) as usize;
    (group / AREA, group % AREA, word, 1 << (bit % WORD))
}

/// The bits of a word below one.
fn below(bit: u64) -> u64 {
    if bit < WORD { (1 << bit) - 1 } else { u64::MAX }
}

/// The words of a group of which no block is busy.
pub(super) fn new_words() -> Result<Vec<u64>, NoHeap> {
    zeroed(GROUP_WORDS as u64)
}

impl Groups {
    /// With every block free but those that are reserved.
    pub(super) fn new(blocks: u64, reserved: Range<u64>) -> Result<Self, NoHeap> {
        let groups = blocks.div_ceil(BITS);
        let mut areas = with_room(groups.div_ceil(SUMS) as usize)?;
        areas.resize_with(groups.div_ceil(SUMS) as usize, Area::default);
        let mut all = Self {
            blocks,
            reserved: reserved.clone(),
            areas,
            there: Levels::new(groups, 0)?,
            full: Levels::new(groups, 0)?,
            closed: Levels::new(groups, u64::MAX)?,
            free: 0,
            absent: blocks,
        };
        if !reserved.is_empty() {
            for group in reserved.start / BITS..reserved.end.div_ceil(BITS) {
                all.open(group as usize)?;
            }
        }
        Ok(all)
    }

    /// The bits of a word of a group that are reserved.
    fn reserved_in(&self, group: usize, at: usize) -> u64 {
        if self.reserved.is_empty() {
            return 0;
        }
        let start = group as u64 * BITS + at as u64 * WORD;
        let from = self.reserved.start.clamp(start, start + WORD) - start;
        let end = self.reserved.end.clamp(start, start + WORD) - start;
        below(end) & !below(from)
    }

    /// The bits of a word of a group that may be used: they are not past the end, nor reserved.
    fn usable_in(&self, group: usize, at: usize) -> u64 {
        below(self.size(group).saturating_sub(at as u64 * WORD)) & !self.reserved_in(group, at)
    }

    /// Free blocks of groups that are there: those that may be promised.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// Blocks of absent groups.
    pub(super) fn absent(&self) -> u64 {
        self.absent
    }

    fn count(&self) -> usize {
        self.blocks.div_ceil(BITS) as usize
    }

    /// Blocks in a group: the last one may have fewer.
    pub(super) fn size(&self, group: usize) -> u64 {
        self.blocks.saturating_sub(group as u64 * BITS).min(BITS)
    }

    fn group(&self, group: usize) -> Option<&Group> {
        let found = self.areas.get(group / AREA)?.groups.get(group % AREA)?;
        (!found.words.is_empty()).then_some(found)
    }

    pub(super) fn is_there(&self, group: usize) -> bool {
        self.group(group).is_some()
    }

    /// One bit for each group that is there, in words.
    pub(super) fn all_there(&self) -> &[u64] {
        self.there.lowest()
    }

    /// The words of the used blocks of a group, none if it is absent.
    pub(super) fn used_words(&self, group: usize) -> &[u64] {
        self.group(group).map_or(&[], |group| &group.words[..WORDS])
    }

    /// Whether no block of a group is used.
    pub(super) fn is_unused(&self, group: usize) -> bool {
        self.group(group).is_none_or(|group| group.used == 0)
    }

    /// Whether no block of a group is busy.
    pub(super) fn is_idle(&self, group: usize) -> bool {
        self.group(group).is_none_or(|group| group.busy == 0)
    }

    fn word(&self, bit: u64, from: usize) -> u64 {
        let (area, group, word, mask) = place(bit);
        let group = self.areas.get(area).and_then(|area| area.groups.get(group));
        let word = group.and_then(|group| group.words.get(from + word));
        word.map_or(0, |word| word & mask)
    }

    pub(super) fn is_used(&self, bit: u64) -> bool {
        self.word(bit, 0) != 0
    }

    pub(super) fn is_busy(&self, bit: u64) -> bool {
        self.word(bit, BUSY) != 0
    }

    /// Has an index block's table there.
    fn open_area(&mut self, area: usize) -> Result<(), NoHeap> {
        let Some(area) = self.areas.get_mut(area) else {
            return Err(NoHeap);
        };
        if !area.groups.is_empty() {
            return Ok(());
        }
        let sums = [zeroed(SUMS)?, zeroed(SUMS)?, zeroed(SUMS)?];
        let mut groups = with_room(AREA)?;
        groups.resize_with(AREA, Group::default);
        *area = Area { groups, sums };
        Ok(())
    }

    /// Has a group there, with every block free if it was absent.
    pub(super) fn open(&mut self, group: usize) -> Result<(), NoHeap> {
        if self.is_there(group) || group >= self.count() {
            return Ok(());
        }
        self.open_area(group / AREA)?;
        let words = new_words()?;
        self.install(group, words);
        Ok(())
    }

    /// Has an absent group there with these words, in an area that is there.
    fn install(&mut self, group: usize, words: Vec<u64>) {
        self.areas[group / AREA].groups[group % AREA].words = words;
        self.there.put(group, true);
        self.closed.put(group, false);
        let size = self.size(group);
        let reserved = self.reserve(group);
        self.free += size - reserved;
        self.absent -= size;
        if reserved == size {
            self.full.put(group, true);
            self.closed.put(group, true);
        }
    }

    /// Makes the reserved blocks of a group busy that has come; tells how many of them were not.
    fn reserve(&mut self, group: usize) -> u64 {
        let start = group as u64 * BITS;
        let end = start + self.size(group);
        let (from, to) = (
            self.reserved.start.clamp(start, end),
            self.reserved.end.clamp(start, end),
        );
        let found = self.group_mut(start);
        found.map_or(0, |found| found.add_busy_range(from - start, to - start))
    }

    /// Gives the heap of a group back of which no block is busy.
    pub(super) fn close(&mut self, group: usize) {
        if !self.is_there(group) || !self.is_idle(group) {
            return;
        }
        self.areas[group / AREA].groups[group % AREA] = Group::default();
        self.there.put(group, false);
        self.closed.put(group, true);
        self.free -= self.size(group);
        self.absent += self.size(group);
    }

    /// The first absent group from one on.
    pub(super) fn next_absent(&self, from: usize) -> Option<usize> {
        self.there.next(from).filter(|&group| group < self.count())
    }

    /// Has a group there that the mount read, all busy blocks of which are used or reserved; `false`, and then it is not to be used, if it names others than are there.
    pub(super) fn load(&mut self, group: usize, words: impl Iterator<Item = u64>) -> Result<bool, NoHeap> {
        self.open(group)?;
        let size = self.size(group);
        for (at, word) in words.take(WORDS).enumerate() {
            if word == 0 {
                continue;
            }
            if word & !self.usable_in(group, at) != 0 {
                return Ok(false);
            }
            let (area, place) = (group / AREA, group % AREA);
            let Some(found) = self.areas.get_mut(area).and_then(|area| area.groups.get_mut(place)) else {
                return Ok(false);
            };
            found.words[at] = word;
            found.used += word.count_ones();
            self.free -= u64::from(found.add_busy(at, word));
            if u64::from(found.busy) == size {
                self.full.put(group, true);
                self.closed.put(group, true);
            }
        }
        Ok(true)
    }

    /// The group of a block, if it is there.
    #[inline]
    fn group_mut(&mut self, bit: u64) -> Option<&mut Group> {
        let (area, group, ..) = place(bit);
        self.areas.get_mut(area)?.groups.get_mut(group)
    }

    /// Says of a block whose group is there whether it is used; tells whether that changed it.
    #[inline]
    pub(super) fn put_used(&mut self, bit: u64, to: bool) -> bool {
        self.group_mut(bit).is_some_and(|group| group.put_used(bit, to))
    }

    /// Says of a block whose group is there whether it is busy; tells whether that changed it.
    pub(super) fn put_busy(&mut self, bit: u64, to: bool) -> bool {
        let before = self.group_mut(bit).and_then(|group| group.put_busy(bit, to));
        before.map(|before| self.counted(bit, before, to)).is_some()
    }

    /// The same for one that is not busy any more; tells whether its group has a busy block still.
    pub(super) fn clear_busy(&mut self, bit: u64) -> bool {
        let before = self.group_mut(bit).and_then(|group| group.put_busy(bit, false));
        let Some(before) = before else { return true };
        self.counted(bit, before, false);
        before > 1
    }

    /// Takes the first free block of a word, if its group is there; tells whether it was unused.
    #[inline]
    pub(super) fn take_in(&mut self, word: usize) -> Option<(u64, bool)> {
        let first = word as u64 * WORD;
        let group = self.group_mut(first)?;
        let busy = *group.words.get(BUSY + word % WORDS)?;
        let bit = first + u64::from(busy.trailing_ones());
        let is_one = busy != u64::MAX && bit < self.blocks;
        is_one.then(|| self.take(bit))
    }

    /// Says that a free block of a group that is there is used and busy; tells whether it was unused.
    pub(super) fn take(&mut self, bit: u64) -> (u64, bool) {
        let taken = self
            .group_mut(bit)
            .map(|group| (group.put_used(bit, true), group.put_busy(bit, true)));
        let (is_new, before) = taken.unwrap_or_default();
        if let Some(before) = before {
            self.counted(bit, before, true);
        }
        (bit, is_new)
    }

    /// A block of a group that had so many busy ones has become busy, or is no more.
    #[inline]
    fn counted(&mut self, bit: u64, before: u32, to: bool) {
        self.free = if to { self.free - 1 } else { self.free + 1 };
        let group = (bit / BITS) as usize;
        if u64::from(before) + u64::from(to) == self.size(group) {
            self.full.put(group, to);
            self.closed.put(group, to);
        }
    }

    /// The first free block of a group from a word on.
    fn free_in(&self, group: usize, word: usize) -> Option<u64> {
        let start = group as u64 * BITS;
        let Some(found) = self.group(group) else {
            return Some(start).filter(|&bit| bit < self.blocks);
        };
        let (words, full) = found.words.split_at(FULL);
        let mut open = u64::MAX << (word % 64);
        for (at, full) in full.iter().enumerate().take(WORDS / 64).skip(word / 64) {
            open &= !full;
            if open != 0 {
                let word = at * 64 + open.trailing_zeros() as usize;
                let bit = start + word as u64 * WORD + u64::from(words[BUSY + word].trailing_ones());
                return Some(bit).filter(|&bit| bit < self.blocks);
            }
            open = u64::MAX;
        }
        None
    }

    /// The first free block from a word on, in groups that a level does not exclude.
    fn free_from(&self, excluded: &Levels, word: usize) -> Option<u64> {
        let group = excluded.next(word / WORDS)?;
        if group > word / WORDS {
            return self.free_in(group, 0);
        }
        // Behind the word there may be none, though the group has some.
        let here = self.free_in(group, word % WORDS);
        here.or_else(|| self.free_in(excluded.next(group + 1)?, 0))
    }

    /// The first free block from a word on, or else from the start. Its group may be absent.
    pub(super) fn next_free(&self, word: usize) -> Option<u64> {
        let behind = self.free_from(&self.full, word);
        behind.or_else(|| self.free_from(&self.full, 0))
    }

    /// The same in groups that are there.
    pub(super) fn next_free_there(&self, word: usize) -> Option<u64> {
        let behind = self.free_from(&self.closed, word);
        behind.or_else(|| self.free_from(&self.closed, 0))
    }

    /// The checksums that an index block of a region holds, none if all are zero.
    pub(super) fn sums(&self, region: usize, block: usize) -> &[u64] {
        self.areas.get(block).map_or(&[], |area| &area.sums[region])
    }

    /// Notes the checksum of a bitmap block, zero for one that is all free.
    pub(super) fn set_sum(&mut self, region: usize, group: usize, sum: u64) {
        let sums = self.areas.get_mut(group / AREA).map(|area| &mut area.sums[region]);
        if let Some(place) = sums.and_then(|sums| sums.get_mut(group % AREA)) {
            *place = sum;
        }
    }
}
