//! Dirty pages that were handed over for a checkpoint.
//!
//! There may be as many as memory has frames, so the list grows by pieces and says when there is no heap for another one.

use crate::event::DirtyPage;
use alloc::vec::Vec;

/// Pages in a piece: twelve kilobytes.
const PIECE: usize = 512;

/// No heap.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct NoHeap;

/// A list of pages that grows at its end.
#[derive(Default)]
pub(crate) struct PageList {
    /// All but the last are full.
    pieces: Vec<Vec<DirtyPage>>,
}

impl PageList {
    pub(crate) fn len(&self) -> usize {
        let last = self.pieces.last().map_or(0, Vec::len);
        self.pieces.len().saturating_sub(1) * PIECE + last
    }

    pub(crate) fn get(&self, index: usize) -> Option<DirtyPage> {
        self.pieces.get(index / PIECE)?.get(index % PIECE).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &DirtyPage> {
        self.pieces.iter().flatten()
    }

    /// Appends a page; on an error the list is as it was.
    pub(crate) fn push(&mut self, page: DirtyPage) -> Result<(), NoHeap> {
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE) {
            let mut piece = Vec::new();
            piece.try_reserve_exact(PIECE).map_err(|_| NoHeap)?;
            self.pieces.try_reserve(1).map_err(|_| NoHeap)?;
            self.pieces.push(piece);
        }
        if let Some(piece) = self.pieces.last_mut() {
            piece.push(page);
        }
        Ok(())
    }

    /// Takes the last page off.
    pub(crate) fn pop(&mut self) -> Option<DirtyPage> {
        let piece = self.pieces.last_mut()?;
        let page = piece.pop();
        if piece.is_empty() {
            self.pieces.pop();
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::PageFlags;
    use crate::world::Frame;

    #[test]
    fn it_is_a_list() {
        let page = |page| DirtyPage {
            base: 4096,
            page,
            frame: Frame(7),
            flags: PageFlags::READ,
        };
        let mut list = PageList::default();
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
}
