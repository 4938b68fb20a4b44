//! The state of an object slot by slot: its leaf, which pages are resident, which are dirty.
//!
//! Most objects have one slot, which stands inline, so that making and destroying them allocates
//! nothing. Further slots stand in chunks that are made when a slot is first touched: a large object
//! costs little until it is used. A chunk has a bit for each leaf of its slots, and a group of chunks one for each
//! chunk, so no search is longer than the number of groups, however few slots of an object were touched.
//!
//! The bits are the server's own. The kernel's leaf holds the same truth about residency; the bits
//! make it cheap to visit the resident pages of a slot that has few of them.

use alloc::vec::Vec;

use abi::{Error, address::PAGES_PER_SLOT};
use kcore::Leaf;

use crate::{
    containers::{filled, reserve},
    directory::address::OBJECT_SLOTS_MAX,
};

/// Slots in a chunk, and chunks in a group: the bits of a word.
const CHUNK: usize = 64;
/// Pages of a part of an object's map: those whose entries stand in one node.
const PART_PAGES: usize = store::FANOUT as usize;
/// Groups of the largest object.
const _: () = assert!(OBJECT_SLOTS_MAX <= 16 * (CHUNK * CHUNK) as u64);

/// One bit for each page of a slot.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct PageBits([u64; PAGES_PER_SLOT as usize / 64]);

impl PageBits {
    /// Whether the bit of page `index` (0..512) is set.
    #[inline]
    pub const fn has(&self, index: usize) -> bool {
        self.0[index / 64 % 8] & 1 << (index % 64) != 0
    }

    /// Sets a bit; tells whether it was clear.
    #[inline]
    pub const fn set(&mut self, index: usize) -> bool {
        let before = self.has(index);
        self.0[index / 64 % 8] |= 1 << (index % 64);
        !before
    }

    /// Clears a bit; tells whether it was set.
    #[inline]
    pub const fn clear(&mut self, index: usize) -> bool {
        let before = self.has(index);
        self.0[index / 64 % 8] &= !(1 << (index % 64));
        before
    }

    /// Sets the bits from `first` to `end`.
    pub fn set_run(&mut self, first: usize, end: usize) {
        for (index, word) in self.words(first, end) {
            *word |= mask(index, first, end);
        }
    }

    /// The words in which bits from `first` to `end` stand, each with its index.
    #[inline]
    fn words(&mut self, first: usize, end: usize) -> impl Iterator<Item = (usize, &mut u64)> {
        let words = end.div_ceil(64).min(self.0.len());
        let begins = (first / 64).min(words);
        (begins..).zip(&mut self.0[begins..words])
    }

    /// Whether no bit is set.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// How many bits are set.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// The bits that are not set in another one.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut left = *self;
        for (word, gone) in left.0.iter_mut().zip(other.0) {
            *word &= !gone;
        }
        left
    }

    /// Whether any page of this slot has its bit set whose entry stands in the same node of the map as that of page `index`. `colour` (0..256) is the number
    /// of pages from the start of the slot to the first at which a node begins.
    #[inline]
    pub(crate) fn has_part(&self, index: usize, colour: usize) -> bool {
        let first = (index + PART_PAGES - colour) / PART_PAGES * PART_PAGES;
        let (first, end) = ((first + colour).saturating_sub(PART_PAGES), first + colour);
        let has = |word: usize| self.0[word % 8] & mask(word, first, end) != 0;
        // Most pages are written beside others.
        has(index / 64) || (first / 64..end.div_ceil(64).min(8)).any(has)
    }

    /// Nodes of the map in which pages of this slot stand that have their bit set.
    pub(crate) fn parts(&self, colour: usize) -> u64 {
        let (word, below) = (colour / 64 % 4, (1 << (colour % 64)) - 1);
        let mut found = 0_u8;
        for (index, &bits) in self.0.iter().enumerate() {
            found |= u8::from(bits & below != 0) << ((index + 3 - word) / 4);
            found |= u8::from(bits & !below != 0) << ((index + 4 - word) / 4);
        }
        found.count_ones().into()
    }

    /// Clears all bits; tells how many were set.
    fn clear_all(&mut self) -> u32 {
        let set = self.0.iter_mut().filter(|word| **word != 0);
        set.map(|word| core::mem::take(word).count_ones()).sum()
    }

    /// The first run of set bits at or after `from`: where it begins and ends.
    pub fn next_run(&self, from: usize) -> Option<(usize, usize)> {
        let start = self.next(from)?;
        let mut end = start;
        while let Some(&word) = self.0.get(end / 64) {
            let ones = (word >> (end % 64)).trailing_ones() as usize;
            end += ones;
            if ones == 0 || end % 64 != 0 {
                break;
            }
        }
        Some((start, end))
    }

    /// The first set bit at or after `from`.
    pub fn next(&self, from: usize) -> Option<usize> {
        next_bit(|word| self.0.get(word).copied(), from)
    }

    /// Clears those bits of a word (0..8) that lie from `first` to `end`; tells which of them were set.
    #[inline]
    pub fn take_word(&mut self, index: usize, first: usize, end: usize) -> u64 {
        let word = &mut self.0[index % 8];
        let taken = *word & mask(index, first, end);
        *word &= !taken;
        taken
    }

    /// Clears the bits from `first` to `end`; tells which of them were set.
    #[must_use]
    pub fn take_run(&mut self, first: usize, end: usize) -> Self {
        let mut taken = Self::default();
        for (index, word) in self.words(first, end) {
            taken.0[index] = *word & mask(index, first, end);
            *word &= !taken.0[index];
        }
        taken
    }
}

/// Those bits of a word that lie from `first` to `end`.
#[inline]
const fn mask(index: usize, first: usize, end: usize) -> u64 {
    const fn below(bits: usize) -> u64 {
        if bits < 64 { (1 << bits) - 1 } else { u64::MAX }
    }
    below(end.saturating_sub(index * 64)) & !below(first.saturating_sub(index * 64))
}

/// The first run of set bits of a word, which has some: where it begins and ends.
#[inline]
pub const fn first_run(word: u64) -> (usize, usize) {
    let start = word.trailing_zeros();
    (start as usize, (start + (word >> start).trailing_ones()) as usize)
}

/// The first set bit at or after `from` in some words.
#[inline]
fn next_bit(word_at: impl Fn(usize) -> Option<u64>, from: usize) -> Option<usize> {
    let mut word = from / 64;
    let mut bits = word_at(word)? & u64::MAX << (from % 64);
    while bits == 0 {
        word += 1;
        bits = word_at(word)?;
    }
    Some(word * 64 + bits.trailing_zeros() as usize)
}

/// One slot of an object.
#[derive(Copy, Clone, Debug)]
pub struct Slot {
    leaf: Option<Leaf>,
    /// Pages that have an entry in the leaf.
    pub resident: PageBits,
    /// Pages of a persistent object that were changed since they last went to the disk.
    pub dirty: PageBits,
    /// Pages of a kept object that are charged as blocks of the disk.
    pub blocks: PageBits,
}

impl Slot {
    const EMPTY: Self = Self {
        leaf: None,
        resident: PageBits([0; 8]),
        dirty: PageBits([0; 8]),
        blocks: PageBits([0; 8]),
    };

    /// The page table that serves the slot, if it was ever touched.
    #[inline]
    pub const fn leaf(&self) -> Option<Leaf> {
        self.leaf
    }
}

/// Neighbouring slots.
#[derive(Debug, Default)]
struct Chunk {
    /// All of them, or none.
    slots: Vec<Slot>,
    /// A bit for each one that has a leaf.
    leaves: u64,
}

/// Neighbouring chunks, with a bit for each.
#[derive(Copy, Clone, Debug, Default)]
struct Group {
    /// Those that were made.
    made: u64,
    /// Those that have a leaf.
    leaves: u64,
}

/// The slots of an object, by number within it.
#[derive(Debug)]
pub struct Slots {
    first: Slot,
    rest: Vec<Chunk>,
    groups: Vec<Group>,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            first: Slot::EMPTY,
            rest: Vec::new(),
            groups: Vec::new(),
        }
    }
}

impl Slots {
    /// A slot, if it was ever touched.
    #[inline]
    pub fn get(&self, number: u64) -> Option<&Slot> {
        if number == 0 {
            return Some(&self.first);
        }
        let (chunk, place) = split(number);
        self.rest.get(chunk)?.slots.get(place)
    }

    /// A slot that was touched, to change.
    #[inline]
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Slot> {
        if number == 0 {
            return Some(&mut self.first);
        }
        let (chunk, place) = split(number);
        self.rest.get_mut(chunk)?.slots.get_mut(place)
    }

    /// A slot that was [made](Slots::make), to change.
    #[inline]
    pub fn touch(&mut self, number: u64) -> &mut Slot {
        if number == 0 {
            return &mut self.first;
        }
        let (chunk, place) = split(number);
        &mut self.rest[chunk].slots[place]
    }

    /// Puts a page table into a slot that was [made](Slots::make), or takes it away.
    pub fn set_leaf(&mut self, number: u64, leaf: Option<Leaf>) {
        if number == 0 {
            self.first.leaf = leaf;
            return;
        }
        let (index, place) = split(number);
        let chunk = &mut self.rest[index];
        chunk.slots[place].leaf = leaf;
        set_bit(&mut chunk.leaves, place, leaf.is_some());
        set_bit(&mut self.groups[index / CHUNK].leaves, index, chunk.leaves != 0);
    }

    /// Puts a page table with one page into a slot that was [made](Slots::make).
    #[inline]
    pub(crate) fn enter_leaf(&mut self, number: u64, leaf: Leaf, page: usize) {
        let slot = if number == 0 {
            &mut self.first
        } else {
            let (index, place) = split(number);
            let chunk = &mut self.rest[index];
            set_bit(&mut chunk.leaves, place, true);
            set_bit(&mut self.groups[index / CHUNK].leaves, index, true);
            &mut chunk.slots[place]
        };
        slot.leaf = Some(leaf);
        slot.resident.set(page);
    }

    /// Bytes that [`Slots::make`] will take for a slot.
    pub fn cost(&self, number: u64) -> u64 {
        if self.get(number).is_some() {
            return 0;
        }
        let (chunk, _) = split(number);
        let chunks = (chunk + 1).max(self.rest.len());
        tables_cost(chunks) - tables_cost(self.rest.len()) + CHUNK_COST
    }

    /// Bytes that [`Slots::make`] has taken so far.
    pub(crate) fn bytes(&self) -> u64 {
        tables_cost(self.rest.len()) + self.chunks() * CHUNK_COST
    }

    /// Makes room for a slot.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn make(&mut self, number: u64) -> Result<(), Error> {
        if self.get(number).is_some() {
            return Ok(());
        }
        let (chunk, _) = split(number);
        let slots = filled(Slot::EMPTY, CHUNK)?;
        if let Some(more) = (chunk + 1).checked_sub(self.rest.len()) {
            reserve(&mut self.rest, more)?;
            let (before, groups) = (self.groups.len(), (chunk + 1).div_ceil(CHUNK));
            reserve(&mut self.groups, groups - before)?;
            self.rest.resize_with(chunk + 1, Chunk::default);
            self.groups.resize(groups, Group::default());
        }
        self.rest[chunk].slots = slots;
        set_bit(&mut self.groups[chunk / CHUNK].made, chunk, true);
        Ok(())
    }

    /// Whether a slot has no dirty page, and whether its chunk has none.
    pub(crate) fn are_clean(&self, number: u64) -> (bool, bool) {
        let is_clean = |slot: &Slot| slot.dirty.is_empty();
        if number == 0 {
            return (is_clean(&self.first), false);
        }
        let (chunk, place) = split(number);
        let Some(chunk) = self.rest.get(chunk) else {
            return (true, true);
        };
        let slot = chunk.slots.get(place).is_none_or(is_clean);
        let with_leaf = chunk
            .slots
            .iter()
            .enumerate()
            .filter(|(place, _)| chunk.leaves & 1 << place != 0);
        (slot, slot && with_leaf.map(|(_, slot)| slot).all(is_clean))
    }

    /// The first slot at or after `from` that has a leaf.
    #[inline]
    pub fn next_with_leaf(&self, from: u64) -> Option<u64> {
        if from == 0 && self.first.leaf.is_some() {
            return Some(0);
        }
        self.next_of_rest(from)
    }

    /// The same behind the first slot.
    fn next_of_rest(&self, from: u64) -> Option<u64> {
        let (chunk, place) = split(from.max(1));
        let here = self.rest.get(chunk)?.leaves & u64::MAX << place;
        let (chunk, leaves) = if here == 0 {
            let next = next_bit(|group| Some(self.groups.get(group)?.leaves), chunk + 1)?;
            (next, self.rest.get(next)?.leaves)
        } else {
            (chunk, here)
        };
        Some((chunk * CHUNK) as u64 + u64::from(leaves.trailing_zeros()) + 1)
    }

    /// Clears `blocks` of pages, counted from the start of the first slot. Tells how many were set, how many parts of the map, as
    /// [`PageBits::parts`] has them, have none any more, and in how many slots some were set.
    pub(crate) fn clear_blocks(&mut self, first: u64, end: u64, colour: usize) -> (u64, u64, u64) {
        let (mut gone, mut parts, mut slots) = (0, 0, 0);
        for number in first / PAGES_PER_SLOT..end.div_ceil(PAGES_PER_SLOT) {
            if let Some(slot) = self.get_mut(number) {
                let start = number * PAGES_PER_SLOT;
                let [first, end] = [first, end].map(|page| page.saturating_sub(start) as usize);
                if slot.blocks.is_empty() {
                    continue;
                }
                slots += 1;
                parts += slot.blocks.parts(colour);
                if first == 0 && end >= PAGES_PER_SLOT as usize {
                    gone += u64::from(slot.blocks.clear_all());
                } else {
                    gone += u64::from(slot.blocks.take_run(first, end).count());
                    parts -= slot.blocks.parts(colour);
                }
            }
        }
        (gone, parts, slots)
    }

    /// Whether nothing is known but of the first slot.
    #[inline]
    pub(crate) fn is_one(&self) -> bool {
        self.rest.is_empty()
    }

    /// How many chunks there are.
    pub(crate) fn chunks(&self) -> u64 {
        let made = |group: &Group| u64::from(group.made.count_ones());
        self.groups.iter().map(made).sum()
    }

    /// The first slot of the last chunk that has no leaf, if all of its slots are behind so many.
    pub(crate) fn last_bare(&self, count: u64) -> Option<u64> {
        let bare = |group: &Group| group.made & !group.leaves;
        let group = self.groups.iter().rposition(|group| bare(group) != 0)?;
        let chunk = group * CHUNK + bare(&self.groups[group]).ilog2() as usize;
        let first = (chunk * CHUNK) as u64 + 1;
        (first >= count).then_some(first)
    }

    /// The first slot of the first chunk at or after a slot that has no leaf, the slot behind it, and whether blocks are charged in it.
    pub(crate) fn next_bare(&self, from: u64) -> Option<(u64, u64, bool)> {
        let bare = |group: usize| self.groups.get(group).map(|group| group.made & !group.leaves);
        let chunk = next_bit(bare, split(from.max(1)).0)?;
        let charged = self.rest.get(chunk)?.slots.iter().any(|slot| !slot.blocks.is_empty());
        let first = (chunk * CHUNK) as u64 + 1;
        Some((first, first + CHUNK as u64, charged))
    }

    /// How many slots there are up to the end of the chunk of the last of so many.
    pub(crate) const fn whole_chunks(count: u64) -> u64 {
        count.saturating_sub(1).next_multiple_of(CHUNK as u64) + 1
    }

    /// Frees the [chunk](Slots::last_bare) that begins with a slot, and with the last one the tables of all; tells how many bytes that were.
    pub(crate) fn free(&mut self, first: u64) -> u64 {
        let (chunk, _) = split(first);
        self.rest[chunk].slots = Vec::new();
        set_bit(&mut self.groups[chunk / CHUNK].made, chunk, false);
        let mut bytes = CHUNK_COST;
        if self.groups.iter().all(|group| group.made == 0) {
            bytes += tables_cost(self.rest.len());
            (self.rest, self.groups) = (Vec::new(), Vec::new());
        }
        bytes
    }

    /// Forgets everything. Pages and leaves have been taken away before.
    pub fn clear(&mut self) {
        debug_assert!(
            self.first.leaf.is_none() && self.first.resident.is_empty() && self.first.dirty.is_empty(),
            "slots are given back with something in them"
        );
        self.first.blocks = PageBits::default();
        (self.rest, self.groups) = (Vec::new(), Vec::new());
    }
}

/// Bytes of the slots of a chunk, and of the tables of so many chunks.
pub(crate) const CHUNK_COST: u64 = (CHUNK * size_of::<Slot>()) as u64;
const fn tables_cost(chunks: usize) -> u64 {
    (chunks * size_of::<Chunk>() + chunks.div_ceil(CHUNK) * size_of::<Group>()) as u64
}

const fn set_bit(word: &mut u64, bit: usize, to: bool) {
    *word = *word & !(1 << (bit % CHUNK)) | (to as u64) << (bit % CHUNK);
}

const fn split(number: u64) -> (usize, usize) {
    ((number - 1) as usize / CHUNK, (number - 1) as usize % CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_found_in_order() {
        let mut bits = PageBits::default();
        for index in [0, 63, 64, 300, 511] {
            assert!(bits.set(index));
            assert!(!bits.set(index));
        }
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(index) = bits.next(from) {
            found.push(index);
            from = index + 1;
        }
        assert_eq!(found, [0, 63, 64, 300, 511]);
        assert_eq!(bits.count(), 5);
        assert!(bits.clear(64) && !bits.clear(64) && !bits.has(64));
    }

    #[test]
    fn runs_are_found_in_order() {
        let runs = [(0, 1), (3, 64), (65, 200), (256, 320), (321, 322), (448, 512)];
        let mut bits = PageBits::default();
        for (start, end) in runs {
            (start..end).for_each(|index| assert!(bits.set(index)));
        }
        let mut from = 0;
        for run in runs {
            assert_eq!(bits.next_run(from), Some(run));
            from = run.1;
        }
        assert_eq!(bits.next_run(from), None);
    }

    #[test]
    fn slots_with_leaves_are_found_in_order() {
        let mut slots = Slots::default();
        for number in [0, 1, 64, 65, 1000, 9000, 65_535] {
            slots.make(number).unwrap();
            slots.set_leaf(number, Some(Leaf::of_fake_hardware(number as u32)));
        }
        slots.make(70).unwrap();
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(number) = slots.next_with_leaf(from) {
            assert_eq!(
                slots.get(number).and_then(Slot::leaf),
                Some(Leaf::of_fake_hardware(number as u32))
            );
            found.push(number);
            from = number + 1;
        }
        assert_eq!(found, [0, 1, 64, 65, 1000, 9000, 65_535]);
        assert!(slots.get(2000).is_none());
        slots.set_leaf(9000, None);
        assert_eq!(slots.next_with_leaf(1001), Some(65_535));
        slots.set_leaf(1000, None);
        assert_eq!(slots.next_with_leaf(66), Some(65_535));
        assert_eq!(slots.next_with_leaf(65_536), None);
    }

    /// Chunks without leaves go from the last on; what they cost comes back to the byte.
    #[test]
    fn chunks_without_leaves_are_given_back() {
        let mut slots = Slots::default();
        let mut cost = 0;
        for number in [1, 64, 65, 130, 5000] {
            cost += slots.cost(number);
            slots.make(number).unwrap();
            assert_eq!(slots.cost(number), 0);
        }
        assert_eq!(slots.chunks(), 4);
        slots.set_leaf(5000, Some(Leaf::of_fake_hardware(1)));
        assert_eq!(slots.last_bare(1), Some(129), "the last one has a leaf");
        slots.set_leaf(5000, None);
        slots.touch(130).blocks.set(500);
        slots.touch(129).blocks.set(0);
        assert_eq!(slots.last_bare(4994), None, "the last one begins before");
        let mut free = |from: u64| {
            let first = slots.last_bare(from)?;
            let end = Slots::whole_chunks(first + 1);
            let (blocks, _, _) = slots.clear_blocks(first * PAGES_PER_SLOT, end * PAGES_PER_SLOT, 0);
            cost -= slots.free(first);
            Some(blocks)
        };
        assert_eq!(free(4993), Some(0));
        assert_eq!(free(129), Some(2));
        assert_eq!(free(66), None);
        assert_eq!([free(65), free(1), free(0)], [Some(0), Some(0), None]);
        assert_eq!(cost, 0);
        for (count, whole) in [(0, 1), (1, 1), (2, 65), (65, 65), (66, 129)] {
            assert_eq!(Slots::whole_chunks(count), whole);
        }
    }

    #[test]
    fn parts_are_those_of_the_map_in_one_slot() {
        for colour in [0, 1, 7, 64, 100, 255] {
            let mut bits = PageBits::default();
            let part = |index: usize| (index + PART_PAGES - colour) / PART_PAGES;
            for index in [3, 511, 255, 256, 0, colour, colour + 255, colour + 256, 130] {
                let index = index.min(511);
                let has = |bits: &PageBits| (0..512).any(|other| part(other) == part(index) && bits.has(other));
                assert_eq!(bits.has_part(index, colour), has(&bits), "{index}, {colour}");
                bits.set(index);
                assert!(bits.has_part(index, colour));
                let mut all: Vec<usize> = (0..512).filter(|other| bits.has(*other)).map(part).collect();
                all.dedup();
                assert_eq!(bits.parts(colour), all.len() as u64, "{index}, {colour}");
            }
        }
    }

    #[test]
    fn runs_of_bits_are_taken() {
        for (first, end) in [(0, 512), (0, 64), (63, 65), (64, 128), (5, 5), (130, 131), (500, 900)] {
            let mut bits = PageBits::default();
            (0..512).step_by(3).for_each(|index| _ = bits.set(index));
            let gone = bits.take_run(first, end);
            for index in 0..512 {
                let (was, inside) = (index % 3 == 0, (first..end).contains(&index));
                assert_eq!(
                    (bits.has(index), gone.has(index)),
                    (was && !inside, was && inside),
                    "{index}"
                );
            }
            let mut set = gone;
            set.set_run(first, end);
            assert!((0..512).all(|index| set.has(index) == (first..end).contains(&index)));
        }
    }
}
