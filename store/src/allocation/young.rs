//! Blocks that attempts at the next generation took: nothing durable names them, so those that an attempt which failed gives up can be used at
//! once. Without this, attempts that fail again and again would fill the disk.
//!
//! There is a row of bits, 4 KiB, for each group in which such blocks are. A block for which no heap is left is an old one: it comes back later.

use super::bits::{Bits, WORD};
use crate::containers::Map;
use crate::geometry::BITS;
use core::ops::Range;

/// Young blocks of a group.
struct Row {
    group: u64,
    bits: Bits,
    /// Words that may have bits set.
    words: Range<usize>,
}

#[derive(Default)]
pub(super) struct Young {
    /// The one to which a block was added last, and the others.
    last: Option<Row>,
    rows: Map<u64, Row>,
    /// Those of a generation that is durable: its blocks are young no more, and the rows are yet to be cleared or given back.
    last_grown_up: Option<Row>,
    grown_up: Map<u64, Row>,
    /// A row for the next group.
    spare: Option<Bits>,
}

impl Young {
    pub(super) fn insert(&mut self, bit: u64) {
        let group = bit / BITS;
        if self.last.as_ref().is_none_or(|row| row.group != group) && !self.go_to(group) {
            return;
        }
        let Some(row) = &mut self.last else { return };
        row.bits.put(bit % BITS, 1);
        let word = (bit % BITS / WORD) as usize;
        row.words = if row.words.is_empty() {
            word..word + 1
        } else {
            row.words.start.min(word)..row.words.end.max(word + 1)
        };
    }

    /// Has the row of a group at hand; tells whether there is heap for that.
    #[cold]
    fn go_to(&mut self, group: u64) -> bool {
        if self.last.is_some() && self.rows.reserve(self.rows.count() + 1).is_err() {
            return false;
        }
        let found = self.rows.remove(group).or_else(|| {
            let bits = self.spare.take().or_else(|| Bits::new(BITS).ok())?;
            Some(Row {
                group,
                bits,
                words: 0..0,
            })
        });
        let is_found = found.is_some();
        if is_found && let Some(before) = core::mem::replace(&mut self.last, found) {
            // There is room for it.
            let _ = self.rows.insert(before.group, before);
        }
        is_found
    }

    /// Takes a block out; tells whether it was in.
    #[inline]
    pub(super) fn remove(&mut self, bit: u64) -> bool {
        let group = bit / BITS;
        let row = match &mut self.last {
            Some(last) if last.group == group => Some(last),
            _ if self.rows.is_empty() => None,
            _ => self.rows.get_mut(group),
        };
        row.is_some_and(|row| row.bits.put(bit % BITS, 0))
    }

    pub(super) fn grow_up(&mut self) {
        while self.sweep_some() {}
        self.grown_up = core::mem::take(&mut self.rows);
        self.last_grown_up = self.last.take();
    }

    /// A row is not needed any more.
    fn keep(&mut self, mut row: Row) {
        if self.spare.is_none()
            && let Some(words) = row.bits.0.get_mut(row.words)
        {
            words.fill(0);
            self.spare = Some(row.bits);
        }
    }

    pub(super) fn is_sweeping(&self) -> bool {
        self.last_grown_up.is_some() || !self.grown_up.is_empty()
    }

    /// Clears a row of those that have grown up, or gives it back; tells whether there are more.
    pub(super) fn sweep_some(&mut self) -> bool {
        let row = self.last_grown_up.take();
        if let Some(row) = row.or_else(|| Some(self.grown_up.pop_first()?.1)) {
            self.keep(row);
        }
        self.is_sweeping()
    }
}
