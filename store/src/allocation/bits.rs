//! Bits, and bits above them that say which words are full.

use crate::heap::{NoHeap, zeroed};
use alloc::vec::Vec;

/// Bits in a word.
pub(super) const WORD: u64 = 64;
/// Levels that reach over the groups of the largest disk.
const LEVELS: usize = 3;

/// Bits in a row.
pub(super) struct Bits(pub(super) Vec<u64>);

impl Bits {
    pub(super) fn new(bits: u64) -> Result<Self, NoHeap> {
        zeroed(bits.div_ceil(WORD)).map(Self)
    }

    /// Has room for so many bits, the new words with that value.
    pub(super) fn extend(&mut self, bits: u64, word: u64) -> Result<(), NoHeap> {
        let words = usize::try_from(bits.div_ceil(WORD)).map_err(|_| NoHeap)?;
        let more = words.saturating_sub(self.0.len());
        self.0.try_reserve_exact(more).map_err(|_| NoHeap)?;
        self.0.resize(words.max(self.0.len()), word);
        Ok(())
    }

    /// The next set bit from `from` on.
    pub(super) fn next(&self, from: usize) -> Option<usize> {
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

    /// Sets or clears a bit; tells whether that changed it.
    pub(super) fn put(&mut self, bit: u64, to: u64) -> bool {
        let Some(word) = self.0.get_mut((bit / WORD) as usize) else {
            return false;
        };
        let before = *word;
        *word = before & !(1 << (bit % WORD)) | to << (bit % WORD);
        *word != before
    }
}

/// A bit for each group, and levels above that have a bit for each word below that is full: a clear bit is found in some steps however many
/// are set.
pub(super) struct Levels([Bits; LEVELS]);

impl Levels {
    /// All words with that value, zero or all bits.
    pub(super) fn new(bits: u64, word: u64) -> Result<Self, NoHeap> {
        let level = |level| -> Result<Bits, NoHeap> {
            let mut bits = Bits::new(bits.div_ceil(WORD.pow(level)))?;
            bits.0.fill(word);
            Ok(bits)
        };
        Ok(Self([level(0)?, level(1)?, level(2)?]))
    }

    /// Has room for so many bits, the new words with the value that all of them [had](Levels::new). Without heap some levels are longer than they must be.
    pub(super) fn extend(&mut self, bits: u64, word: u64) -> Result<(), NoHeap> {
        for (level, row) in (0..).zip(&mut self.0) {
            row.extend(bits.div_ceil(WORD.pow(level)), word)?;
        }
        Ok(())
    }

    /// The lowest level.
    pub(super) fn lowest(&self) -> &[u64] {
        &self.0[0].0
    }

    /// Sets or clears a bit.
    pub(super) fn put(&mut self, mut at: usize, mut to: bool) {
        for level in &mut self.0 {
            if !level.put(at as u64, u64::from(to)) {
                return;
            }
            at /= WORD as usize;
            to = level.0.get(at) == Some(&u64::MAX);
        }
    }

    /// The first clear bit from there on.
    pub(super) fn next(&self, mut at: usize) -> Option<usize> {
        let mut level = 0;
        // Up to where something is clear, and down again.
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
