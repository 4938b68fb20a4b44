//! Values by number, each in a box of its own: growth moves none of them, and a vacant place costs its pointer alone.
//!
//! The lowest vacant number is given first, so vacant places gather at the end, where they are given back. Places stand in groups, so
//! that a table of many thousands grows and shrinks in pieces: only one pointer a group is ever copied.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use abi::Error;

use super::{Boxed, boxed, push, shrink};

/// Places that come and go together: the bits of a word.
const GROUP: usize = 64;
/// Groups that are given back in one step at most.
const STEP: usize = 8;

#[derive(Debug)]
struct Group<T> {
    /// A bit is set where the place is vacant.
    vacant: u64,
    boxes: [Option<Boxed<T>>; GROUP],
}

impl<T> Group<T> {
    const VACANT: Self = Self {
        vacant: u64::MAX,
        boxes: [const { None }; GROUP],
    };
}

/// Numbers to values.
#[derive(Debug)]
pub struct Places<T> {
    groups: Vec<Boxed<Group<T>>>,
    /// No group before this one has a vacant place.
    first: usize,
    count: usize,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
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
        (self.groups.len() * GROUP) as u32
    }

    /// The value with a number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        self.groups.get(number as usize / GROUP)?.boxes[number as usize % GROUP].as_deref()
    }

    /// The same, to change.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.groups.get_mut(number as usize / GROUP)?.boxes[number as usize % GROUP].as_deref_mut()
    }

    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..)
            .zip(self.groups.iter().flat_map(|group| &group.boxes))
            .filter_map(|(number, value)| Some((number, value.as_deref()?)))
    }

    /// The lowest number without a value. [`Places::put`] then finds its place.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn vacant(&mut self) -> Result<u32, Error> {
        loop {
            match self.groups.get(self.first).map(|group| group.vacant) {
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
            push(&mut self.groups, boxed(Group::VACANT)?)?;
        }
        Ok(())
    }

    /// Puts a value into a place that was [made](Places::reach) and is vacant.
    pub fn put(&mut self, number: u32, value: Boxed<T>) {
        let (place, bit) = (number as usize % GROUP, 1 << (number as usize % GROUP));
        if let Some(group) = self.groups.get_mut(number as usize / GROUP) {
            self.count += usize::from(group.vacant & bit != 0);
            group.vacant &= !bit;
            group.boxes[place] = Some(value);
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
        let at = number as usize / GROUP;
        let group = self.groups.get_mut(at)?;
        let value = group.boxes[number as usize % GROUP].take()?;
        group.vacant |= 1 << (number as usize % GROUP);
        self.first = self.first.min(at);
        self.count -= 1;
        self.give_back();
        Some(value)
    }

    /// Gives vacant groups at the end back, but for one: the next value may need it at once. Some in one step, so it is to be called now
    /// and then.
    pub fn give_back(&mut self) {
        let is_vacant = |group: &Boxed<Group<T>>| group.vacant == u64::MAX;
        for _ in 0..STEP {
            if !matches!(&*self.groups, [.., before, last] if is_vacant(before) && is_vacant(last)) {
                break;
            }
            self.groups.pop();
        }
        shrink(&mut self.groups, 0);
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
            assert!(places.groups.len() == left, "some in one step");
            places.give_back();
        }
        assert!(places.end() <= 64 && places.groups.capacity() <= 128);
    }
}
