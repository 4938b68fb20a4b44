//! A table by small numbers that grows in chunks: nothing in it moves, and growing takes as long however much there is.
//!
//! The first chunk is there from the start and is found by one comparison; most systems never need another.

use alloc::{boxed::Box, vec::Vec};
use core::ops::{Index, IndexMut};

use abi::Error;
use kcore::thread::THREADS_MAX;

use crate::containers::{push_reserved, reserve};

/// Places of the first chunk.
pub(crate) const FIRST_PLACES: usize = 256;

/// Places of each further one.
const CHUNK: usize = 64;

/// The table.
#[derive(Debug)]
pub struct Chunks<T> {
    first: Box<[T; FIRST_PLACES]>,
    /// There is room for all from the start.
    more: Vec<Vec<T>>,
}

impl<T: Default> Default for Chunks<T> {
    fn default() -> Self {
        let first: Box<[T]> = (0..FIRST_PLACES).map(|_| T::default()).collect();
        let Ok(first) = first.try_into() else {
            unreachable!("so many were made")
        };
        Self {
            first,
            more: Vec::with_capacity((THREADS_MAX - FIRST_PLACES) / CHUNK),
        }
    }
}

impl<T: Default> Chunks<T> {
    /// Makes the places up to this one; tells how many that are.
    #[inline]
    pub(crate) fn extend_to(&mut self, index: usize) -> Result<usize, Error> {
        if index < FIRST_PLACES {
            Ok(0)
        } else {
            self.extend_by_chunks(index)
        }
    }

    #[cold]
    fn extend_by_chunks(&mut self, index: usize) -> Result<usize, Error> {
        let before = self.len();
        while index >= self.len() {
            if self.more.len() == self.more.capacity() {
                return Err(Error::TableFull);
            }
            let mut chunk = Vec::new();
            reserve(&mut chunk, CHUNK)?;
            chunk.resize_with(CHUNK, T::default);
            push_reserved(&mut self.more, chunk);
        }
        Ok(self.len() - before)
    }
}

impl<T> Chunks<T> {
    /// How many there are.
    pub fn len(&self) -> usize {
        FIRST_PLACES + self.more.len() * CHUNK
    }

    /// The item in a place, if there is one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        match self.first.get(index) {
            None => self.get_behind(index),
            found => found,
        }
    }

    #[cold]
    fn get_behind(&self, index: usize) -> Option<&T> {
        self.more.get((index - FIRST_PLACES) / CHUNK)?.get(index % CHUNK)
    }

    #[cold]
    fn get_behind_mut(&mut self, index: usize) -> &mut T {
        &mut self.more[(index - FIRST_PLACES) / CHUNK][index % CHUNK]
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.more.iter().flatten())
    }
}

impl<T> Index<usize> for Chunks<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        self.get(index).expect("a place that was made")
    }
}

impl<T> IndexMut<usize> for Chunks<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        if index < FIRST_PLACES {
            return &mut self.first[index];
        }
        self.get_behind_mut(index)
    }
}

const _: () = assert!(FIRST_PLACES.is_multiple_of(CHUNK) && (THREADS_MAX - FIRST_PLACES).is_multiple_of(CHUNK));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_made_in_chunks_up_to_the_last() {
        let mut places = Chunks::<usize>::default();
        for index in 0..THREADS_MAX {
            assert!(
                places.extend_to(index).is_ok() && places[index] == 0 && places.len() < index + FIRST_PLACES + CHUNK
            );
            places[index] = index;
        }
        assert!(places.iter().copied().eq(0..THREADS_MAX));
        assert_eq!(places.extend_to(THREADS_MAX), Err(Error::TableFull));
        assert!(places.get(THREADS_MAX).is_none() && places.get(THREADS_MAX - 1) == Some(&(THREADS_MAX - 1)));
    }
}
