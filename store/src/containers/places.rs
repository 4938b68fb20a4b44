//! Values by number, each in a box of its own: growth moves none of them, and a vacant place costs its pointer alone.
//!
//! The lowest vacant number is given first, so vacant places gather at the end, where they are given back. The places of the first few
//! thousand numbers stand in one vector, where they are found at once; those behind them in groups, so that a table of any size grows
//! and shrinks in pieces: only one pointer a group is ever copied.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use abi::Error;

use super::{Boxed, boxed, push, reserve, shrink};

/// Places that come and go together: the bits of a word.
const GROUP: usize = 64;
/// Groups that are given back in one step at most.
const STEP: usize = 8;
/// Places in the vector, which is copied when it grows.
const FEW: usize = if cfg!(test) { 2 * GROUP } else { 64 * GROUP };

/// Where a value is, or would be.
type Place<T> = Option<Boxed<T>>;

/// Numbers to values.
#[derive(Debug)]
pub struct Places<T> {
    few: Vec<Place<T>>,
    groups: Vec<Boxed<[Place<T>; GROUP]>>,
    /// A word for each group of all; a bit is set where the place is vacant.
    vacant: Vec<u64>,
    /// No group before this one has a vacant place.
    first: usize,
    count: usize,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self {
            few: Vec::new(),
            groups: Vec::new(),
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
        (self.vacant.len() * GROUP) as u32
    }

    /// The value with a number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        match self.few.get(number as usize) {
            Some(place) => place.as_deref(),
            None => self.get_behind(number),
        }
    }

    #[cold]
    fn get_behind(&self, number: u32) -> Option<&T> {
        let behind = (number as usize).checked_sub(FEW)?;
        self.groups.get(behind / GROUP)?[behind % GROUP].as_deref()
    }

    /// The same, to change.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.place_mut(number)?.as_deref_mut()
    }

    #[inline]
    fn place_mut(&mut self, number: u32) -> Option<&mut Place<T>> {
        if (number as usize) < self.few.len() {
            self.few.get_mut(number as usize)
        } else {
            self.place_behind(number)
        }
    }

    #[cold]
    fn place_behind(&mut self, number: u32) -> Option<&mut Place<T>> {
        let behind = (number as usize).checked_sub(FEW)?;
        self.groups.get_mut(behind / GROUP)?.get_mut(behind % GROUP)
    }

    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let behind = self.groups.iter().flat_map(|group| group.iter());
        (0..)
            .zip(self.few.iter().chain(behind))
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
        while self.end() <= number {
            reserve(&mut self.vacant, 1)?;
            if self.few.len() < FEW {
                reserve(&mut self.few, GROUP)?;
                self.few.resize_with(self.few.len() + GROUP, || None);
            } else {
                push(&mut self.groups, boxed([const { None }; GROUP])?)?;
            }
            push(&mut self.vacant, u64::MAX)?;
        }
        Ok(())
    }

    /// Puts a value into a place that was [made](Places::reach) and is vacant.
    pub fn put(&mut self, number: u32, value: Boxed<T>) {
        let bit = 1 << (number as usize % GROUP);
        let before = self.place_mut(number).and_then(|place| place.replace(value));
        if let Some(word) = self.vacant.get_mut(number as usize / GROUP) {
            self.count += usize::from(before.is_none());
            *word &= !bit;
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
        let value = self.place_mut(number)?.take()?;
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
        let vacant = self
            .vacant
            .iter()
            .rev()
            .take(STEP + 1)
            .take_while(|&&word| word == u64::MAX);
        let gone = vacant.count().saturating_sub(1);
        if gone == 0 {
            return;
        }
        for _ in 0..gone {
            self.vacant.pop();
            if self.groups.pop().is_none() {
                self.few.truncate(self.vacant.len() * GROUP);
            }
        }
        shrink(&mut self.vacant, 0);
        shrink(&mut self.groups, 0);
        shrink(&mut self.few, 0);
    }
}

impl<T> Index<u32> for Places<T> {
    type Output = T;

    /// # Panics
    /// If the place is vacant.
    #[inline]
    fn index(&self, number: u32) -> &T {
        self.get(number).expect("a value with that number")
    }
}

impl<T> IndexMut<u32> for Places<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        self.get_mut(number).expect("a value with that number")
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
        for left in (1..=4096 / GROUP).rev().step_by(STEP).skip(1) {
            assert!(places.vacant.len() == left, "some in one step");
            places.give_back();
        }
        assert!(places.end() <= 64 && places.groups.capacity() <= 128 && places.few.capacity() <= 256);
    }
}
