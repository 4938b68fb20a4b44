//! Containers whose every allocation can fail.
//!
//! Stable Rust has neither a fallible `BTreeMap` nor a fallible `Box::new`. [`Map`] stands for the one, [`boxed`] for the other; where
//! a vector grows, [`push`] asks first. Taking something out of a container never asks for memory.

use alloc::{boxed::Box, vec::Vec};

use abi::Error;

pub mod list;
pub mod map;
pub mod places;
pub mod queue;

pub use list::List;
pub use map::Map;
pub use places::Places;
pub use queue::Queue;

/// A value on the heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boxed<T>(Box<[T; 1]>);

/// Puts a value on the heap.
///
/// # Errors
/// [`Error::NoMemory`].
#[inline]
pub fn boxed<T>(value: T) -> Result<Boxed<T>, Error> {
    let mut one = Vec::new();
    one.try_reserve_exact(1).map_err(|_| Error::NoMemory)?;
    one.push(value);
    // There is room for one and no more, so nothing is allocated anew.
    let one = Box::<[T; 1]>::try_from(one.into_boxed_slice());
    one.map(Boxed).map_err(|_| Error::NoMemory)
}

impl<T> core::ops::Deref for Boxed<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0[0]
    }
}

impl<T> core::ops::DerefMut for Boxed<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0[0]
    }
}

/// Appends to a vector.
///
/// # Errors
/// [`Error::NoMemory`]: the vector is as it was.
#[inline]
pub fn push<T>(vector: &mut Vec<T>, value: T) -> Result<(), Error> {
    reserve(vector, 1)?;
    vector.push(value);
    Ok(())
}

/// Appends to a vector in which room was made before: it never asks for memory.
#[inline]
pub fn push_reserved<T>(vector: &mut Vec<T>, value: T) {
    debug_assert!(vector.len() < vector.capacity(), "room was made");
    if vector.len() < vector.capacity() {
        vector.push(value);
    }
}

/// Makes room in a vector for so many more.
///
/// # Errors
/// [`Error::NoMemory`].
#[inline]
pub fn reserve<T>(vector: &mut Vec<T>, more: usize) -> Result<(), Error> {
    vector.try_reserve(more).map_err(|_| Error::NoMemory)
}

/// Gives memory of a vector back that needs no more than so many places, unless there is none for the shorter one.
pub fn shrink<T>(vector: &mut Vec<T>, needed: usize) {
    let needed = needed.max(vector.len());
    if vector.capacity() > 4 * needed + 64 {
        let mut shorter = Vec::new();
        if shorter.try_reserve_exact(2 * needed).is_ok() {
            shorter.append(vector);
            *vector = shorter;
        }
    }
}

/// A copy of what can be copied.
///
/// # Errors
/// [`Error::NoMemory`].
pub fn copied<T: Copy>(values: &[T]) -> Result<Vec<T>, Error> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(values.len()).map_err(|_| Error::NoMemory)?;
    copy.extend_from_slice(values);
    Ok(copy)
}

/// So many equal values.
///
/// # Errors
/// [`Error::NoMemory`].
pub fn filled<T: Copy>(value: T, count: usize) -> Result<Vec<T>, Error> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| Error::NoMemory)?;
    values.resize(count, value);
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_was_cleared_is_empty_and_has_its_room() {
        let mut queue = Queue::default();
        queue.reserve(3).unwrap();
        for value in [1, 2, 3] {
            queue.push_reserved(value);
        }
        queue.clear();
        assert_eq!((queue.count(), queue.first()), (0, None));
        // Without its room this would stop at the assertion.
        queue.push_reserved(4);
        assert_eq!(queue.pop(), Some(4));
    }
}
