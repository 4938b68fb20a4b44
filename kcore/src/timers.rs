//! When parked threads are woken: for each priority a binary heap of threads by their times, and each thread's place in its heap. A thread has one
//! time at most, and there is room for all from the start: to park a thread needs no memory.
//!
//! If many times come together, threads of the highest priority are woken first ([`Timers::due`]): those of lower ones cannot keep them waiting.

use alloc::{vec, vec::Vec};

use crate::scheduler::PRIORITIES;

/// A thread that has no time.
const NOWHERE: u32 = u32::MAX;

/// All times.
pub struct Timers {
    /// By priority: threads. The earliest stands first; none is earlier than the one at half its place.
    heaps: [Vec<u32>; PRIORITIES as usize],
    /// By thread.
    times: Vec<Time>,
}

/// A thread's time.
#[derive(Copy, Clone)]
struct Time {
    at_ns: u64,
    /// Its place in the heap.
    place: u32,
    /// Which heap that is.
    priority: u32,
}

impl Timers {
    /// None yet, and room for those of so many threads.
    pub fn new(threads: usize) -> Self {
        let none = Time {
            at_ns: 0,
            place: NOWHERE,
            priority: 0,
        };
        Self {
            heaps: core::array::from_fn(|_| Vec::with_capacity(threads)),
            times: vec![none; threads],
        }
    }

    /// A thread of the highest priority that has one whose time has come.
    pub fn due(&self, now_ns: u64) -> Option<u32> {
        let mut firsts = self.heaps.iter().rev().filter_map(|heap| heap.first());
        firsts.find(|&&thread| self.at(thread) <= now_ns).copied()
    }

    /// The earliest time; instead of those that have come, `later_ns`.
    pub fn next_ns(&self, now_ns: u64, later_ns: u64) -> Option<u64> {
        let firsts = self.heaps.iter().filter_map(|heap| heap.first());
        let times = firsts.map(|&thread| self.at(thread));
        times.map(|at_ns| if at_ns <= now_ns { later_ns } else { at_ns }).min()
    }

    /// Whether that is the time of a thread.
    pub fn has(&self, at_ns: u64, thread: u32) -> bool {
        let time = self.times.get(thread as usize);
        time.is_some_and(|time| {
            let heap = &self.heaps[time.priority as usize];
            time.at_ns == at_ns && heap.get(time.place as usize) == Some(&thread)
        })
    }

    /// All, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        let threads = self.heaps.iter().flatten();
        threads.map(|&thread| (self.at(thread), thread))
    }

    /// Notes the time of a thread that has none.
    pub fn insert(&mut self, at_ns: u64, thread: u32, priority: u8) {
        let priority = u32::from(priority).min(PRIORITIES - 1);
        let heap = &mut self.heaps[priority as usize];
        debug_assert!(heap.len() < heap.capacity(), "there is room for all");
        heap.push(thread);
        let place = heap.len() - 1;
        self.times[thread as usize] = Time {
            at_ns,
            place: NOWHERE,
            priority,
        };
        self.rise(place, thread);
    }

    /// Forgets the time of a thread, if it has one.
    pub fn remove(&mut self, thread: u32) {
        let time = &mut self.times[thread as usize];
        let place = core::mem::replace(&mut time.place, NOWHERE) as usize;
        let heap = &mut self.heaps[time.priority as usize];
        if place >= heap.len() {
            return;
        }
        let Some(last) = heap.pop() else { return };
        if place < heap.len() {
            let place = self.sink(place, last);
            self.rise(place, last);
        }
    }

    fn at(&self, thread: u32) -> u64 {
        self.times[thread as usize].at_ns
    }

    /// The heap that a thread stands in, or is to.
    fn heap_of(&mut self, thread: u32) -> &mut Vec<u32> {
        &mut self.heaps[self.times[thread as usize].priority as usize]
    }

    fn put(&mut self, place: usize, thread: u32) {
        self.heap_of(thread)[place] = thread;
        self.times[thread as usize].place = place as u32;
    }

    /// Puts a thread at a place, or as far above it as it is earlier than what stands there.
    fn rise(&mut self, mut place: usize, thread: u32) {
        while place > 0 {
            let above = (place - 1) / 2;
            let other = self.heap_of(thread)[above];
            if self.at(other) <= self.at(thread) {
                break;
            }
            self.put(place, other);
            place = above;
        }
        self.put(place, thread);
    }

    /// Moves what is earlier up from below a place; gives the place that is left for the thread.
    fn sink(&mut self, mut place: usize, thread: u32) -> usize {
        loop {
            let left = 2 * place + 1;
            let heap = &self.heaps[self.times[thread as usize].priority as usize];
            let Some(&first) = heap.get(left) else {
                return place;
            };
            let second = heap.get(left + 1).filter(|&&second| self.at(second) < self.at(first));
            let (below, other) = second.map_or((left, first), |&second| (left + 1, second));
            if self.at(other) >= self.at(thread) {
                return place;
            }
            self.put(place, other);
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
            let priority = (random >> 20) as u8 % 8;
            timers.remove(thread);
            if let Some((priority, before)) = times[thread as usize].take() {
                assert!(model.remove(&(before, priority, thread)) && !timers.has(before, thread));
            }
            if at_ns % 3 > 0 {
                timers.insert(at_ns, thread, priority);
                model.insert((at_ns, priority, thread));
                times[thread as usize] = Some((priority, at_ns));
                assert!(timers.has(at_ns, thread));
            }
            let now = random >> 51;
            let due = model.iter().filter(|time| time.0 <= now);
            let most_urgent = due
                .map(|&(at_ns, priority, _)| (priority, std::cmp::Reverse(at_ns)))
                .max();
            let told = timers.due(now).and_then(|thread| times[thread as usize]);
            assert_eq!(
                told.map(|(priority, at_ns)| (priority, std::cmp::Reverse(at_ns))),
                most_urgent
            );
            // A priority of which one has come goes on later.
            let first = |of: u8| model.iter().find(|time| time.1 == of);
            let next = |at_ns: u64| if at_ns <= now { now + 7 } else { at_ns };
            let next = (0..8).filter_map(|of| first(of).map(|time| next(time.0))).min();
            assert_eq!(timers.next_ns(now, now + 7), next);
            assert_eq!(timers.iter().count(), model.len());
        }
    }
}
