//! Values by number, each in a box of its own: growth moves none of them, and a vacant place costs its pointer alone.
//!
//! The lowest vacant number is given first, so vacant places gather at the end, where they are given back.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use abi::Error;

use super::{Boxed, boxed, reserve, shrink};

/// Places that come and go together: the bits of a word.
const GROUP: usize = 64;
/// Groups that are given back in one step at most.
const STEP: usize = 64;

/// Numbers to values.
#[derive(Debug)]
pub struct Places<T> {
    boxes: Vec<Option<Boxed<T>>>,
    /// A word for each group; a bit is set where the place is vacant.
    vacant: Vec<u64>,
    /// No group before this one has a vacant place.
    first: usize,
    count: usize,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self {
            boxes: Vec::new(),
            vacant: Vec::new(),
            first: 0,
            count: 0,
        }
    }
}

impl<T> Places<T> {
    /// How many values there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// One past the last number that may have a value.
    pub fn end(&self) -> u32 {
        self.boxes.len() as u32
    }

    /// The value with a number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        self.boxes.get(number as usize)?.as_deref()
    }

    /// The same, to change.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.boxes.get_mut(number as usize)?.as_deref_mut()
    }

    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..)
            .zip(&self.boxes)
            .filter_map(|(number, value)| Some((number, value.as_deref()?)))
    }

    /// The lowest number without a value. [`Places::put`] then finds its place.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn vacant(&mut self) -> Result<u32, Error> {
        loop {
            match self.vacant.get(self.first) {
                Some(0) => self.first += 1,
                Some(word) => return Ok((self.first * GROUP) as u32 + word.trailing_zeros()),
                None => self.reach((self.first * GROUP) as u32)?,
            }
        }
    }

    /// Makes a place for a number.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn reach(&mut self, number: u32) -> Result<(), Error> {
        let groups = number as usize / GROUP + 1;
        if groups > self.vacant.len() {
            let more = groups - self.vacant.len();
            reserve(&mut self.vacant, more)?;
            reserve(&mut self.boxes, more * GROUP)?;
            self.vacant.resize(groups, u64::MAX);
            self.boxes.resize_with(groups * GROUP, || None);
        }
        Ok(())
    }

    /// Puts a value into a place that was [made](Places::reach) and is vacant.
    pub fn put(&mut self, number: u32, value: Boxed<T>) {
        let (place, bit) = (number as usize, 1 << (number as usize % GROUP));
        if let (Some(place), Some(word)) = (self.boxes.get_mut(place), self.vacant.get_mut(place / GROUP)) {
            self.count += usize::from(*word & bit != 0);
            *word &= !bit;
            *place = Some(value);
        }
    }

    /// Puts a value into the lowest vacant place; tells its number.
    ///
    /// # Errors
    /// [`Error::NoMemory`]: nothing has changed.
    pub fn add(&mut self, value: T) -> Result<u32, Error> {
        let number = self.vacant()?;
        self.put(number, boxed(value)?);
        Ok(number)
    }

    /// Takes a value out.
    pub fn take(&mut self, number: u32) -> Option<Boxed<T>> {
        let value = self.boxes.get_mut(number as usize)?.take()?;
        let group = number as usize / GROUP;
        self.vacant[group] |= 1 << (number as usize % GROUP);
        self.first = self.first.min(group);
        self.count -= 1;
        self.give_back();
        Some(value)
    }

    /// Gives vacant groups at the end back, but for one: the next value may need it at once. Some in one step, so it is to be called now
    /// and then.
    pub fn give_back(&mut self) {
        if self.vacant.last() != Some(&u64::MAX) {
            return;
        }
        let vacant = self
            .vacant
            .iter()
            .rev()
            .take(STEP + 1)
            .take_while(|&&word| word == u64::MAX);
        let gone = vacant.count().saturating_sub(1);
        if gone > 0 {
            self.vacant.truncate(self.vacant.len() - gone);
            self.boxes.truncate(self.vacant.len() * GROUP);
            shrink(&mut self.vacant, 0);
            shrink(&mut self.boxes, 0);
        }
    }
}

impl<T> Index<u32> for Places<T> {
    type Output = T;

    /// # Panics
    /// If the place is vacant.
    #[inline]
    fn index(&self, number: u32) -> &T {
        self.boxes[number as usize].as_ref().expect("a value with that number")
    }
}

impl<T> IndexMut<u32> for Places<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        self.boxes[number as usize].as_mut().expect("a value with that number")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_are_a_map_that_fills_from_the_front(steps in prop::collection::vec((0_u32..300, 0_u8..5), 0..1500)) {
            let mut places = Places::default();
            let mut model = BTreeMap::new();
            for (value, (number, step)) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => {
                        let lowest = (0..=u32::MAX).find(|number| !model.contains_key(number)).unwrap();
                        prop_assert_eq!(places.add(value), Ok(lowest));
                        model.insert(lowest, value);
                    }
                    2 => {
                        places.reach(number).unwrap();
                        places.put(number, boxed(value).unwrap());
                        model.insert(number, value);
                    }
                    _ => prop_assert_eq!(places.take(number).map(|value| *value), model.remove(&number)),
                }
                prop_assert_eq!(places.count(), model.len());
                prop_assert!(places.iter().map(|(number, &value)| (number, value)).eq(model.clone()));
                let last = model.last_key_value().map_or(0, |(&last, _)| last as usize + 1);
                let reached = places.end() as usize;
                prop_assert!(last <= reached && (step == 2 || reached < 300 + 3 * GROUP));
            }
        }
    }

    #[test]
    fn what_many_leave_behind_is_given_back() {
        let mut places = Places::default();
        for number in 0..4096_u32 {
            assert_eq!(places.add(number), Ok(number));
        }
        (0..4096).for_each(|number| assert_eq!(places.take(number).map(|value| *value), Some(number)));
        assert!(places.end() <= 64 && places.boxes.capacity() <= 256 && places.vacant.capacity() <= 128);
    }
}
