//! A queue whose growth moves no entry: the entries stand in parts of one size, and only a part's three words are ever copied.

use alloc::{collections::VecDeque, vec::Vec};

use abi::Error;

/// Entries of a part.
const PART: usize = 64;

/// A queue.
#[derive(Debug)]
pub struct Queue<T> {
    /// The parts with entries, in order. Those between the first and the last one are full.
    parts: VecDeque<VecDeque<T>>,
    /// The others. Both have room for all parts, so that none of them asks for memory when it moves.
    spare: Vec<VecDeque<T>>,
    count: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            parts: VecDeque::new(),
            spare: Vec::new(),
            count: 0,
        }
    }
}

impl<T> Queue<T> {
    /// Makes room for so many entries in all.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn reserve(&mut self, entries: usize) -> Result<(), Error> {
        // One part more than the entries fill: what the first one has given away is not there for the last one.
        let wanted = entries.div_ceil(PART) + 1;
        while self.parts.len() + self.spare.len() < wanted {
            let all = self.parts.len() + self.spare.len() + 1;
            let mut part = VecDeque::new();
            let room = (part.try_reserve_exact(PART))
                .and_then(|()| self.parts.try_reserve(all - self.parts.len()))
                .and_then(|()| self.spare.try_reserve(all - self.spare.len()));
            room.map_err(|_| Error::NoMemory)?;
            self.spare.push(part);
        }
        Ok(())
    }

    /// Appends where there is [room](Queue::reserve).
    pub fn push_reserved(&mut self, value: T) {
        if self.parts.back().is_none_or(|part| part.len() == PART) {
            let Some(part) = self.spare_part() else { return };
            self.parts.push_back(part);
        }
        if let Some(part) = self.parts.back_mut() {
            part.push_back(value);
            self.count += 1;
        }
    }

    /// Puts one before all others, where there is [room](Queue::reserve).
    pub fn push_front_reserved(&mut self, value: T) {
        if self.parts.front().is_none_or(|part| part.len() == PART) {
            let Some(part) = self.spare_part() else { return };
            self.parts.push_front(part);
        }
        if let Some(part) = self.parts.front_mut() {
            part.push_front(value);
            self.count += 1;
        }
    }

    fn spare_part(&mut self) -> Option<VecDeque<T>> {
        let part = self.spare.pop();
        debug_assert!(part.is_some(), "room was made");
        part
    }

    /// Takes all out, which keeps the room.
    pub fn clear(&mut self) {
        while self.pop().is_some() {}
    }

    /// Takes the first one out.
    pub fn pop(&mut self) -> Option<T> {
        let part = self.parts.front_mut()?;
        let value = part.pop_front();
        if part.is_empty() {
            self.spare.extend(self.parts.pop_front());
        }
        self.count -= 1;
        value
    }

    /// Takes the last one out.
    pub fn pop_last(&mut self) -> Option<T> {
        let part = self.parts.back_mut()?;
        let value = part.pop_back();
        if part.is_empty() {
            self.spare.extend(self.parts.pop_back());
        }
        self.count -= 1;
        value
    }

    /// The first one.
    pub fn first(&self) -> Option<&T> {
        self.parts.front()?.front()
    }

    /// The last one.
    pub fn last(&self) -> Option<&T> {
        self.parts.back()?.back()
    }

    /// The same, to change.
    pub fn last_mut(&mut self) -> Option<&mut T> {
        self.parts.back_mut()?.back_mut()
    }

    /// How many there are.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.parts.iter().flatten()
    }

    /// The same, to change.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.parts.iter_mut().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stay_in_order_and_keep_to_the_room_that_was_made() -> Result<(), Error> {
        let (mut queue, mut model) = (Queue::default(), VecDeque::new());
        let mut state = 0x9E37_79B9_u64;
        for step in 0..200_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Long ways up and down, so that parts come and go.
            let grows = (state >> 33) % 16 < if step % 4000 < 2000 { 10 } else { 6 };
            if grows {
                queue.reserve(model.len() + 1)?;
                let before = queue.parts.len() + queue.spare.len();
                if state >> 62 == 0 {
                    queue.push_front_reserved(step);
                    model.push_front(step);
                } else {
                    queue.push_reserved(step);
                    model.push_back(step);
                }
                assert_eq!(queue.parts.len() + queue.spare.len(), before);
            } else if state >> 62 == 0 {
                assert_eq!(queue.pop_last(), model.pop_back());
            } else {
                assert_eq!(queue.pop(), model.pop_front());
            }
            assert_eq!((queue.count(), queue.first()), (model.len(), model.front()));
        }
        assert!(queue.iter().eq(&model));
        assert!(queue.iter_mut().rev().eq(model.iter_mut().rev()));
        Ok(())
    }

    #[test]
    fn an_entry_that_is_taken_out_can_be_put_back() -> Result<(), Error> {
        for entries in [1, PART - 1, PART, PART + 1, 3 * PART] {
            let mut queue = Queue::default();
            queue.reserve(entries)?;
            (0..entries).for_each(|entry| queue.push_reserved(entry));
            for turn in 0..3 * entries {
                let entry = queue.pop().ok_or(Error::NoMemory)?;
                if turn % 3 == 0 {
                    queue.push_front_reserved(entry);
                } else {
                    queue.push_reserved(entry);
                }
                assert_eq!(queue.iter().count(), entries);
            }
        }
        Ok(())
    }

    #[test]
    fn growth_moves_no_entry() -> Result<(), Error> {
        let mut queue = Queue::default();
        queue.reserve(1)?;
        queue.push_reserved(0);
        let first = core::ptr::from_ref(queue.first().ok_or(Error::NoMemory)?);
        for entry in 1..100 * PART {
            queue.reserve(entry + 1)?;
            queue.push_reserved(entry);
        }
        assert!(core::ptr::eq(first, queue.first().ok_or(Error::NoMemory)?));
        Ok(())
    }
}
