//! Lists that may become long: dirty pages that were handed over for a checkpoint, blocks that were set free, nodes of a table.
//!
//! There may be as many as memory has frames or the disk has blocks, so a list stands in pieces: none of them is ever copied when it
//! grows, and what it takes away it gives back piece by piece.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use abi::Error;

use super::{push, push_reserved, shrink};

/// Bytes of a piece, or somewhat less.
const PIECE_BYTES: usize = 8192;

/// A list that grows at its end.
#[derive(Debug)]
pub struct List<T> {
    /// All before the one with the end are full, all behind it empty.
    pieces: Vec<Vec<T>>,
    len: usize,
    /// Entries that room was promised to.
    promised: usize,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self {
            pieces: Vec::new(),
            len: 0,
            promised: 0,
        }
    }
}

impl<T> List<T> {
    /// Entries of a piece: a power of two, so that the piece of an entry is found by a shift.
    const PIECE: usize = 1 << (PIECE_BYTES / size_of::<T>()).ilog2();

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// An entry by its place.
    #[inline]
    pub fn get(&self, place: usize) -> Option<&T> {
        self.pieces.get(place / Self::PIECE)?.get(place % Self::PIECE)
    }

    /// The same, to change.
    #[inline]
    pub fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        self.pieces.get_mut(place / Self::PIECE)?.get_mut(place % Self::PIECE)
    }

    /// The last entry.
    pub fn last(&self) -> Option<&T> {
        self.get(self.len.checked_sub(1)?)
    }

    /// All in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    /// Makes room for so many more, which is kept for them whatever is taken out.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    #[inline]
    pub fn reserve(&mut self, more: usize) -> Result<(), Error> {
        let all = self.len + more;
        if more == 0 || all <= self.promised {
            return Ok(());
        }
        while self.pieces.len() * Self::PIECE < all {
            let mut piece = Vec::new();
            piece.try_reserve_exact(Self::PIECE).map_err(|_| Error::NoMemory)?;
            push(&mut self.pieces, piece)?;
        }
        self.promised = self.promised.max(all);
        Ok(())
    }

    /// Appends an entry where there is [room](List::reserve).
    pub fn push_reserved(&mut self, entry: T) {
        debug_assert!(self.len < self.pieces.len() * Self::PIECE, "room was made");
        if let Some(piece) = self.pieces.get_mut(self.len / Self::PIECE) {
            push_reserved(piece, entry);
            self.len += 1;
        }
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// [`Error::NoMemory`]: the list is as it was.
    pub fn push(&mut self, entry: T) -> Result<(), Error> {
        let promised = self.promised;
        self.reserve(1)?;
        self.promised = promised;
        self.push_reserved(entry);
        Ok(())
    }

    /// Takes the last entry off.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let place = self.len.checked_sub(1)?;
        let piece = self.pieces.get_mut(place / Self::PIECE)?;
        let entry = piece.pop();
        self.len = place;
        if piece.is_empty() && place >= self.promised {
            // A promise that failed half-way has left pieces behind this one.
            self.pieces.truncate(place / Self::PIECE);
            shrink(&mut self.pieces, 0);
        }
        entry
    }

    /// Takes an entry out, if it is there; the last one takes its place.
    pub fn remove(&mut self, entry: &T)
    where
        T: PartialEq,
    {
        let Some(place) = self.iter().position(|other| other == entry) else {
            return;
        };
        let last = self.pop();
        if let (Some(last), Some(found)) = (last, self.get_mut(place)) {
            *found = last;
        }
    }
}

impl<T> Index<usize> for List<T> {
    type Output = T;

    /// # Panics
    /// If the list is shorter.
    #[inline]
    fn index(&self, place: usize) -> &T {
        &self.pieces[place / Self::PIECE][place % Self::PIECE]
    }
}

impl<T> IndexMut<usize> for List<T> {
    #[inline]
    fn index_mut(&mut self, place: usize) -> &mut T {
        &mut self.pieces[place / Self::PIECE][place % Self::PIECE]
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
            assert_eq!(list.get(1299), Some(&page(1299)));
            assert_eq!(list.get(512), Some(&page(512)));
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
            list.remove(&gone);
            list.remove(&5000);
            assert_eq!(list.len(), 1024);
            let mut left: Vec<u64> = list.iter().copied().collect();
            left.sort_unstable();
            assert!(left.into_iter().eq((0..1025).filter(|&entry| entry != gone)));
        }
    }

    #[test]
    fn room_that_was_promised_is_kept() {
        let mut list = List::default();
        list.reserve(5000).unwrap();
        let room = list.pieces.len();
        (0..5000_u64).for_each(|entry| list.push_reserved(entry));
        assert!((0..5000).all(|place| list[place] == place as u64));
        while list.pop().is_some() {}
        assert_eq!(list.pieces.len(), room);
        (0..6000).for_each(|entry| list.push(entry).unwrap());
        assert!(list.pieces.len() > room);
        while list.pop().is_some() {}
        assert_eq!(list.pieces.len(), room);
    }

    #[test]
    fn a_promise_of_nothing_keeps_no_room() {
        let mut list = List::default();
        (0..100_000_u64).for_each(|entry| list.push(entry).unwrap());
        list.reserve(0).unwrap();
        while list.pop().is_some() {}
        assert!(list.pieces.is_empty());
        assert!(list.pieces.capacity() <= 64);
    }

    #[test]
    fn pieces_of_a_promise_that_failed_go_with_the_one_before_them() {
        let mut list = List::default();
        list.push(0_u64).unwrap();
        list.pieces.extend([Vec::new(), Vec::new()]);
        assert_eq!(list.pop(), Some(0));
        assert!(list.pieces.is_empty());
    }
}
