//! Lists that may become long: dirty pages that were handed over for a checkpoint, blocks that were set free.
//!
//! There may be as many as memory has frames or the disk has blocks, so a list grows by pieces and says when there is no heap for
//! another one.

use crate::heap::{NoHeap, with_room};
use alloc::vec::Vec;

/// Entries of a piece: twelve kilobytes of dirty pages.
const PIECE: usize = 512;

/// A list that grows at its end.
pub(crate) struct List<T> {
    /// All but the last are full.
    pieces: Vec<Vec<T>>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { pieces: Vec::new() }
    }
}

impl<T: Copy> List<T> {
    pub(crate) fn len(&self) -> usize {
        let last = self.pieces.last().map_or(0, Vec::len);
        self.pieces.len().saturating_sub(1) * PIECE + last
    }

    pub(crate) fn get(&self, index: usize) -> Option<T> {
        self.pieces.get(index / PIECE)?.get(index % PIECE).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    /// Appends an entry; on an error the list is as it was.
    pub(crate) fn push(&mut self, entry: T) -> Result<(), NoHeap> {
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE) {
            let piece = with_room(PIECE)?;
            self.pieces.try_reserve(1).map_err(|_| NoHeap)?;
            self.pieces.push(piece);
        }
        if let Some(piece) = self.pieces.last_mut() {
            piece.push(entry);
        }
        Ok(())
    }

    /// Takes the last entry off.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let piece = self.pieces.last_mut()?;
        let entry = piece.pop();
        if piece.is_empty() {
            self.pieces.pop();
        }
        entry
    }

    /// Takes an entry out, if it is there; the last one takes its place.
    pub(crate) fn remove(&mut self, entry: T)
    where
        T: PartialEq,
    {
        let Some(place) = self.iter().position(|&other| other == entry) else {
            return;
        };
        let last = self.pop();
        if let (Some(last), Some(piece)) = (last, self.pieces.get_mut(place / PIECE))
            && let Some(found) = piece.get_mut(place % PIECE)
        {
            *found = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{DirtyPage, PageFlags};
    use crate::world::Frame;

    #[test]
    fn it_is_a_list() {
        let page = |page| DirtyPage {
            base: 4096,
            page,
            frame: Frame(7),
            flags: PageFlags::READ,
        };
        let mut list = List::default();
        for round in 0..2 {
            for number in 0..1300 {
                assert_eq!(list.len() as u64, number);
                list.push(page(number)).unwrap();
            }
            assert_eq!(list.get(1299), Some(page(1299)));
            assert_eq!(list.get(512), Some(page(512)));
            assert_eq!(list.get(1300), None);
            assert!(list.iter().map(|page| page.page).eq(0..1300));
            for number in (0..1300).rev() {
                assert_eq!(list.pop(), Some(page(number)), "round {round}");
            }
            assert_eq!(list.pop(), None);
        }
    }

    #[test]
    fn an_entry_is_taken_out_wherever_it_is() {
        for gone in [0, 700, 1023, 1024] {
            let mut list = List::default();
            (0..1025_u64).for_each(|entry| list.push(entry).unwrap());
            list.remove(gone);
            list.remove(5000);
            assert_eq!(list.len(), 1024);
            let mut left: Vec<u64> = list.iter().copied().collect();
            left.sort_unstable();
            assert!(left.into_iter().eq((0..1025).filter(|&entry| entry != gone)));
        }
    }
}
