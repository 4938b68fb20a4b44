//! Blocks that snapshots hold: a third bit of each block, in groups that have such blocks. One that is held is busy, whether it is used or not.

use super::{BUSY, FULL, Group, Groups, HELD, WORD, WORDS};
use crate::containers::push_reserved;
use crate::heap::NoHeap;

impl Group {
    /// Makes blocks of a word busy; tells how many were not.
    pub(super) fn add_busy(&mut self, at: usize, bits: u64) -> u32 {
        let Some(busy) = self.words.get_mut(BUSY + at) else {
            return 0;
        };
        let more = bits & !*busy;
        *busy |= bits;
        if more != 0 && *busy == u64::MAX {
            self.words[FULL + at / 64] |= 1 << (at % 64);
        }
        self.busy += more.count_ones();
        more.count_ones()
    }

    /// Makes the blocks busy that stand between two places of the group; tells how many were not. All 32,768 of a group without busy blocks are some 8,000 instructions.
    pub(super) fn add_busy_range(&mut self, from: u64, to: u64) -> u64 {
        // Whole words, and parts of a word on both sides of them.
        let (first, last) = (from.div_ceil(WORD), to / WORD);
        if first > last {
            let bits = super::below(to % WORD) & !super::below(from % WORD);
            return self.add_busy(last as usize, bits).into();
        }
        let mut more = 0;
        if !from.is_multiple_of(WORD) {
            more += self.add_busy(first as usize - 1, !super::below(from % WORD));
        }
        if !to.is_multiple_of(WORD) {
            more += self.add_busy(last as usize, super::below(to % WORD));
        }
        let whole = BUSY + first as usize..BUSY + last as usize;
        let mut all = 0;
        for busy in self.words.get_mut(whole).into_iter().flatten() {
            all += if *busy == 0 { WORD as u32 } else { busy.count_zeros() };
            *busy = u64::MAX;
        }
        for (at, full) in (0..)
            .step_by(64)
            .zip(self.words.get_mut(FULL..HELD).into_iter().flatten())
        {
            *full |= super::below(last.saturating_sub(at)) & !super::below(first.saturating_sub(at));
        }
        self.busy += all;
        u64::from(more + all)
    }
}

impl Groups {
    /// Whether a snapshot holds a block.
    pub(in super::super) fn is_held(&self, bit: u64) -> bool {
        self.word(bit, HELD) != 0
    }

    /// The words of the held blocks of a group, none if there are none.
    pub(in super::super) fn held_words(&self, group: usize) -> &[u64] {
        let found = self.group(group).and_then(|group| group.words.get(HELD..));
        found.unwrap_or_default()
    }

    /// Finds room for the held blocks of a group.
    pub(in super::super) fn open_held(&mut self, group: usize) -> Result<(), NoHeap> {
        self.open(group)?;
        let Some(found) = self.group_at(group) else {
            return Err(NoHeap);
        };
        if found.words.len() == HELD {
            found.words.try_reserve_exact(WORDS).map_err(|_| NoHeap)?;
            (0..WORDS).for_each(|_| push_reserved(&mut found.words, 0));
        }
        Ok(())
    }

    fn group_at(&mut self, group: usize) -> Option<&mut Group> {
        let area = self.areas.get_mut(group / super::AREA)?;
        let found = area.groups.get_mut(group % super::AREA)?;
        (!found.words.is_empty()).then_some(found)
    }

    /// Says of a block, in a group with room for that, whether a snapshot holds it; tells whether that changed it. It is busy before and after.
    pub(in super::super) fn put_held(&mut self, bit: u64, to: bool) -> bool {
        let (_, _, word, mask) = super::place(bit);
        let found = self.group_mut(bit).and_then(|group| group.words.get_mut(HELD + word));
        let Some(found) = found.filter(|found| (**found & mask != 0) != to) else {
            return false;
        };
        *found ^= mask;
        true
    }

    /// Holds the used blocks of a group, in which there is room for that.
    pub(in super::super) fn hold_used(&mut self, group: usize) {
        if let Some(found) = self.group_at(group)
            && let Some((used, held)) = found.words.split_at_mut_checked(HELD)
        {
            held.iter_mut().zip(used).for_each(|(held, used)| *held |= *used);
        }
    }

    /// Holds blocks of a group; `false`, and nothing is changed from there on, if some lie past the end.
    pub(in super::super) fn hold(&mut self, group: usize, words: impl Iterator<Item = u64>) -> Result<bool, NoHeap> {
        if group >= self.count() {
            return Ok(false);
        }
        self.open_held(group)?;
        let size = self.size(group);
        let (mut more, mut is_sound, mut is_full) = (0, true, false);
        for (at, word) in words.take(WORDS).enumerate() {
            let usable = self.usable_in(group, at);
            is_sound &= word & !usable == 0;
            let word = word & usable;
            if word != 0 {
                let Some(found) = self.group_at(group) else {
                    return Ok(false);
                };
                found.words[HELD + at] |= word;
                more += found.add_busy(at, word);
                is_full = u64::from(found.busy) == size;
            }
        }
        self.free -= u64::from(more);
        if more > 0 && is_full {
            self.full.put(group, true);
            self.closed.put(group, true);
        }
        Ok(is_sound)
    }

    /// Clears the bits past the end among the words of a group.
    pub(in super::super) fn mask(&self, group: usize, words: &mut [u64]) {
        (0..)
            .zip(words)
            .for_each(|(at, word)| *word &= self.usable_in(group, at));
    }

    /// Holds all blocks of a group.
    pub(in super::super) fn hold_all(&mut self, group: usize) -> Result<(), NoHeap> {
        self.hold(group, core::iter::repeat_n(u64::MAX, WORDS)).map(drop)
    }

    /// Blocks that are held and not used.
    pub(in super::super) fn only_held(&self) -> u64 {
        let groups = self.areas.iter().flat_map(|area| &area.groups);
        let words = groups.filter_map(|group| group.words.split_at_checked(HELD));
        let only = words.flat_map(|(used, held)| held.iter().zip(used).map(|(held, used)| held & !used));
        only.map(|word| u64::from(word.count_ones())).sum()
    }

    /// Groups that are there.
    pub(in super::super) fn count_there(&self) -> u64 {
        let words = self.there.lowest().iter();
        words.map(|word| u64::from(word.count_ones())).sum()
    }

    /// The last group before one that is there.
    pub(in super::super) fn last_there(&self, below: usize) -> Option<usize> {
        let words = self.there.lowest();
        let mut at = below.div_ceil(WORD as usize).min(words.len());
        let mut mask = match below % WORD as usize {
            0 => u64::MAX,
            bits => (1 << bits) - 1,
        };
        while let Some(before) = at.checked_sub(1) {
            let word = words.get(before)? & mask;
            if word != 0 {
                return Some(before * WORD as usize + 63 - word.leading_zeros() as usize);
            }
            (at, mask) = (before, u64::MAX);
        }
        None
    }
}
