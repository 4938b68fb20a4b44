//! When parked threads are woken: a binary heap of (time, thread), and each thread's place in it. A thread has one time at most, and there is
//! room for all from the start: to park a thread needs no memory.

use alloc::{vec, vec::Vec};

/// A thread that has no time.
const NOWHERE: u32 = u32::MAX;

/// All times.
pub struct Timers {
    /// The earliest stands first; none is earlier than the one at half its place.
    heap: Vec<(u64, u32)>,
    /// By thread: where its time stands.
    places: Vec<u32>,
}

impl Timers {
    /// None yet, and room for those of so many threads.
    pub fn new(threads: usize) -> Self {
        Self {
            heap: Vec::with_capacity(threads),
            places: vec![NOWHERE; threads],
        }
    }

    /// The earliest time, and whose it is.
    pub fn first(&self) -> Option<(u64, u32)> {
        self.heap.first().copied()
    }

    /// Whether that is the time of a thread.
    pub fn has(&self, at_ns: u64, thread: u32) -> bool {
        let place = self.places.get(thread as usize);
        place.is_some_and(|&place| self.heap.get(place as usize) == Some(&(at_ns, thread)))
    }

    /// All, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        self.heap.iter().copied()
    }

    /// Notes the time of a thread that has none.
    pub fn insert(&mut self, at_ns: u64, thread: u32) {
        debug_assert!(self.heap.len() < self.heap.capacity(), "there is room for all");
        self.heap.push((at_ns, thread));
        self.rise(self.heap.len() - 1, (at_ns, thread));
    }

    /// Forgets the time of a thread, if it has one.
    pub fn remove(&mut self, thread: u32) {
        let place = core::mem::replace(&mut self.places[thread as usize], NOWHERE) as usize;
        if place >= self.heap.len() {
            return;
        }
        let Some(last) = self.heap.pop() else { return };
        if place < self.heap.len() {
            let place = self.sink(place, last);
            self.rise(place, last);
        }
    }

    fn put(&mut self, place: usize, entry: (u64, u32)) {
        self.heap[place] = entry;
        self.places[entry.1 as usize] = place as u32;
    }

    /// Puts an entry at a place, or as far above it as it is earlier than what stands there.
    fn rise(&mut self, mut place: usize, entry: (u64, u32)) {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.heap[above] <= entry {
                break;
            }
            self.put(place, self.heap[above]);
            place = above;
        }
        self.put(place, entry);
    }

    /// Moves what is earlier up from below a place; gives the place that is left for the entry.
    fn sink(&mut self, mut place: usize, entry: (u64, u32)) -> usize {
        loop {
            let left = 2 * place + 1;
            let Some(&first) = self.heap.get(left) else {
                return place;
            };
            let right = self.heap.get(left + 1).is_some_and(|&second| second < first);
            let below = left + usize::from(right);
            if self.heap[below] >= entry {
                return place;
            }
            self.put(place, self.heap[below]);
            place = below;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn times_are_those_of_a_sorted_set() {
        let mut timers = Timers::new(100);
        let (mut model, mut times) = (BTreeSet::new(), [None; 100]);
        let mut random = 1u64;
        for _ in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let (thread, at_ns) = ((random >> 33) as u32 % 100, random >> 50);
            timers.remove(thread);
            if let Some(before) = times[thread as usize].take() {
                assert!(model.remove(&(before, thread)) && !timers.has(before, thread));
            }
            if at_ns % 3 > 0 {
                timers.insert(at_ns, thread);
                model.insert((at_ns, thread));
                times[thread as usize] = Some(at_ns);
                assert!(timers.has(at_ns, thread));
            }
            assert_eq!(timers.first(), model.first().copied());
            assert_eq!(timers.iter().count(), model.len());
        }
    }
}
