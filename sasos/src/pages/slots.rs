//! The state of an object slot by slot: its leaf, which pages are resident, which are dirty.
//!
//! Most objects have one slot, which stands inline, so that making and destroying them allocates
//! nothing. Further slots stand in chunks that are made when a slot is first touched: an object of
//! a terabyte costs little until it is used.
//!
//! The bits are the server's own. The kernel's leaf holds the same truth about residency; the bits
//! make it cheap to visit the resident pages of a slot that has few of them.

use alloc::vec::Vec;

use abi::{Error, address::PAGES_PER_SLOT};
use kcore::Leaf;

use crate::containers::{filled, reserve};

/// Slots in a chunk.
const CHUNK: usize = 64;
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

    /// Sets all bits that are set in another one; tells how many of them were clear.
    pub fn add(&mut self, other: &Self) -> u32 {
        let before = self.count();
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
        }
        self.count() - before
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
        let mut word = from / 64;
        let mut bits = self.0.get(word)? & u64::MAX << (from % 64);
        while bits == 0 {
            word += 1;
            bits = *self.0.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }
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

    /// Puts a page table there, or takes it away.
    pub fn set_leaf(&mut self, leaf: Option<Leaf>) {
        self.leaf = leaf;
    }
}

/// The slots of an object, by number within it.
#[derive(Debug)]
pub struct Slots {
    first: Slot,
    rest: Vec<Vec<Slot>>,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            first: Slot::EMPTY,
            rest: Vec::new(),
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
        self.rest.get(chunk)?.get(place)
    }

    /// A slot that was touched, to change.
    #[inline]
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Slot> {
        if number == 0 {
            return Some(&mut self.first);
        }
        let (chunk, place) = split(number);
        self.rest.get_mut(chunk)?.get_mut(place)
    }

    /// A slot that was [made](Slots::make), to change.
    #[inline]
    pub fn touch(&mut self, number: u64) -> &mut Slot {
        if number == 0 {
            return &mut self.first;
        }
        let (chunk, place) = split(number);
        &mut self.rest[chunk][place]
    }

    /// Bytes that [`Slots::make`] will take for a slot.
    pub fn cost(&self, number: u64) -> u64 {
        if self.get(number).is_some() {
            return 0;
        }
        let (chunk, _) = split(number);
        let more = (chunk + 1).saturating_sub(self.rest.len());
        (more * core::mem::size_of::<Vec<Slot>>() + CHUNK * core::mem::size_of::<Slot>()) as u64
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
            self.rest.resize_with(chunk + 1, Vec::new);
        }
        self.rest[chunk] = slots;
        Ok(())
    }

    /// The first slot at or after `from` that has a leaf.
    pub fn next_with_leaf(&self, from: u64) -> Option<u64> {
        if from == 0 && self.first.leaf.is_some() {
            return Some(0);
        }
        let (chunk, mut place) = split(from.max(1));
        for (index, slots) in self.rest.iter().enumerate().skip(chunk) {
            let slots = slots.get(place..).unwrap_or_default();
            if let Some(found) = slots.iter().position(|slot| slot.leaf.is_some()) {
                return Some((index * CHUNK + place + found) as u64 + 1);
            }
            place = 0;
        }
        None
    }

    /// Clears `blocks` of pages, counted from the start of the first slot. Tells how many were set.
    pub fn clear_blocks(&mut self, first: u64, end: u64) -> u64 {
        let mut gone = 0;
        let mut clear = |number: u64, slot: &mut Slot| {
            let start = number * PAGES_PER_SLOT;
            let mut from = first.saturating_sub(start) as usize;
            while let Some(index) = slot.blocks.next(from).filter(|&index| start + (index as u64) < end) {
                slot.blocks.clear(index);
                gone += 1;
                from = index + 1;
            }
        };
        clear(0, &mut self.first);
        let from = first / PAGES_PER_SLOT;
        let to = end.div_ceil(PAGES_PER_SLOT);
        let (chunk, _) = split(from.max(1));
        for (index, slots) in self.rest.iter_mut().enumerate().skip(chunk) {
            let start = (index * CHUNK) as u64 + 1;
            if start >= to {
                break;
            }
            for (place, slot) in slots.iter_mut().enumerate() {
                clear(start + place as u64, slot);
            }
        }
        gone
    }

    /// Forgets everything. Pages and leaves have been taken away before.
    pub fn clear(&mut self) {
        debug_assert!(
            self.first.leaf.is_none() && self.first.resident.is_empty() && self.first.dirty.is_empty(),
            "slots are given back with something in them"
        );
        self.first.blocks = PageBits::default();
        self.rest = Vec::new();
    }
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
        let mut others = PageBits::default();
        others.set(2);
        others.set(3);
        assert_eq!(others.add(&bits), bits.count() - 1);
        assert_eq!(others.count(), bits.count() + 1);
    }

    #[test]
    fn slots_with_leaves_are_found_in_order() {
        let mut slots = Slots::default();
        for number in [0, 1, 64, 65, 1000] {
            slots.make(number).unwrap();
            slots
                .touch(number)
                .set_leaf(Some(Leaf::of_fake_hardware(number as u32)));
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
        assert_eq!(found, [0, 1, 64, 65, 1000]);
        assert!(slots.get(2000).is_none());
    }
}
