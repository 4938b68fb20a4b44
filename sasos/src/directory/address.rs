//! Free addresses, in whole slots.
//!
//! Two windows: objects and stacks. At a start every slot of the window of objects is free that no row of the object table holds, and
//! that no row names as the Clist of a procedure ([`crate::directory::names`]). A slot that a running system gives
//! back is used again: at once if the object never was on the disk, otherwise when its deletion is
//! in a checkpoint. Free slots stand in two orders: by address, so that neighbours are joined, and by length, so that the shortest run
//! that is long enough is found at once. The run that reaches to the end of the window is a mark, which falls when the slots before it
//! come back. Stacks are never kept, so their window starts afresh with each boot.

use alloc::vec::Vec;

use abi::{
    Error,
    address::{FIRST_FREE, OBJECT_BYTES_MAX, OBJECTS_END, SLOT, STACKS_START, USER_END, slot_of},
};

use crate::containers::{Map, push_reserved};
use crate::lives::budget::Cost;

/// Slots one object may have.
pub const OBJECT_SLOTS_MAX: u64 = OBJECT_BYTES_MAX / SLOT;
/// Single slots that wait for reuse outside the tree.
const RECENT_MAX: usize = 256;
/// Room for so many more runs is made at once, and given back when twice as many are not needed.
const ROOM_STEP: usize = 64;
/// The cost of noting a free slot, in instructions, roughly: two maps lose and get a run where it lies between others.
pub(crate) const COST_SETTLE: Cost = Cost::own(2_400);

/// The free addresses of both windows.
pub struct Addresses {
    /// From here to the end of the window all slots are free.
    next: u64,
    /// Single slots given back last.
    recent: Vec<u64>,
    /// Other free ranges: first slot to number of slots; never adjacent to one another, nor to `next`.
    free: Map<u64, u64>,
    /// The same by number of slots and first slot.
    by_length: Map<(u64, u64), ()>,
    /// Runs that were issued and may come back: between any two free ranges stands one, so there is room for as many.
    issued: usize,
    /// Runs that there is room for.
    room: usize,
    next_stack: u64,
    stacks: Vec<u64>,
}

impl Addresses {
    /// All slots are free from `first` on, and from the first one for objects on.
    pub fn new(first: u64) -> Self {
        Self {
            next: first.max(slot_of(FIRST_FREE)),
            recent: Vec::with_capacity(RECENT_MAX),
            free: Map::default(),
            by_length: Map::default(),
            issued: 0,
            room: 0,
            next_stack: slot_of(STACKS_START),
            stacks: Vec::new(),
        }
    }

    /// The slot from which on all are free.
    pub fn mark(&self) -> u64 {
        self.next
    }

    /// Notes at the start that slots are held; they come in ascending order and may overlap.
    pub(crate) fn hold(&mut self, first: u64, end: u64) {
        let limit = slot_of(OBJECTS_END);
        let (first, end) = (first.min(limit), end.min(limit));
        if end > self.next {
            let free_from = core::mem::replace(&mut self.next, end);
            if first > free_from {
                self.note_free(free_from, first - free_from);
            }
        }
    }

    /// Notes at the start that a slot is held, if it is free; tells whether it was. Behind [those](Addresses::hold) that objects hold.
    pub(crate) fn hold_free(&mut self, slot: u64) -> bool {
        if slot >= self.next {
            self.hold(slot, slot + 1);
            return true;
        }
        let Some((first, length)) = self
            .free
            .last_below(slot + 1)
            .filter(|&(first, length)| slot - first < length)
        else {
            return false;
        };
        self.remove_free(first);
        for (first, end) in [(first, slot), (slot + 1, first + length)] {
            if first < end {
                self.note_free(first, end - first);
            }
        }
        true
    }

    /// Makes sure that there is room for one more run to come back.
    #[inline]
    pub(crate) fn expect_back(&mut self) -> Result<(), Error> {
        let runs = self.issued + RECENT_MAX + 2;
        if runs > self.room {
            self.free.reserve(runs + ROOM_STEP)?;
            self.by_length.reserve(runs + ROOM_STEP)?;
            self.room = runs + ROOM_STEP;
        }
        Ok(())
    }

    /// Notes a run that will come back though it was not taken here: it is of an earlier start, or part of a longer one. Room for it was
    /// [made](Addresses::expect_back), or is asked for when it comes.
    pub(crate) fn note_issued(&mut self) {
        self.issued += 1;
    }

    /// Notes that an object comes to rest, whose addresses stay held: room for them is asked for when it is active again.
    pub(crate) fn note_rests(&mut self) {
        self.issued = self.issued.saturating_sub(1);
    }

    /// Whether at least so many runs are known that will come back.
    pub(crate) fn expects(&self, runs: usize) -> bool {
        self.issued >= runs
    }

    /// A run of free slots. `None` if there is none, leaving aside the [recent](Addresses::settle_one) ones for more than one slot. Room
    /// for it to come back is [there](Addresses::expect_back).
    #[inline]
    pub fn take(&mut self, slots: u64) -> Option<u64> {
        let recent = if slots == 1 { self.recent.pop() } else { None };
        let taken = recent.or_else(|| self.take_free(slots).or_else(|| self.take_behind(slots)));
        self.issued += usize::from(taken.is_some());
        taken
    }

    fn take_behind(&mut self, slots: u64) -> Option<u64> {
        let end = self
            .next
            .checked_add(slots)
            .filter(|&end| end <= slot_of(OBJECTS_END))?;
        Some(core::mem::replace(&mut self.next, end))
    }

    /// The shortest run that is long enough.
    fn take_free(&mut self, slots: u64) -> Option<u64> {
        let ((length, first), ()) = self.by_length.from((slots, 0)).map(|(key, &value)| (key, value))?;
        self.remove_free(first);
        if length > slots {
            self.note_free(first + slots, length - slots);
        }
        Some(first)
    }

    /// Takes the slots right behind a run, if they are free and not among the [recent](Addresses::settle_one) ones.
    pub fn extend(&mut self, behind: u64, slots: u64) -> bool {
        if behind == self.next {
            return self.take_behind(slots).is_some();
        }
        let Some(length) = self.free.get(behind).filter(|&length| length >= slots) else {
            return false;
        };
        self.remove_free(behind);
        if length > slots {
            self.note_free(behind + slots, length - slots);
        }
        true
    }

    /// Gives slots of either window back. Those below the first one for objects have fixed uses and are not given out again.
    #[inline]
    pub fn give_back(&mut self, first: u64, slots: u64) {
        if first >= slot_of(STACKS_START) {
            // Room was made when they were taken.
            for slot in first..first + slots {
                push_reserved(&mut self.stacks, slot);
            }
            return;
        }
        self.issued = self.issued.saturating_sub(1);
        let runs = self.issued + RECENT_MAX + 2;
        if runs + 2 * ROOM_STEP < self.room {
            self.room = runs + ROOM_STEP;
            self.free.release(self.room);
            self.by_length.release(self.room);
        }
        if first < slot_of(FIRST_FREE) {
            return;
        }
        if slots == 1 && self.recent.len() < RECENT_MAX {
            push_reserved(&mut self.recent, first);
        } else {
            self.insert_free(first, slots);
        }
    }

    fn insert_free(&mut self, mut first: u64, mut slots: u64) {
        if let Some((before, length)) = self.free.last_below(first)
            && before + length == first
        {
            self.remove_free(before);
            first = before;
            slots += length;
        }
        slots += self.remove_free(first + slots).unwrap_or(0);
        if first + slots == self.next {
            self.next = first;
        } else {
            self.note_free(first, slots);
        }
    }

    /// Room was made when the slots were taken. A part of a run, of which there may be more than of runs, is lost until the next start
    /// if there is no memory to note it: of addresses there are plenty.
    fn note_free(&mut self, first: u64, slots: u64) {
        if self.free.insert(first, slots).is_ok() && self.by_length.insert((slots, first), ()).is_err() {
            self.free.remove(first);
        }
    }

    fn remove_free(&mut self, first: u64) -> Option<u64> {
        let slots = self.free.remove(first)?;
        self.by_length.remove((slots, first));
        Some(slots)
    }

    /// Moves a single slot that came back lately among the other free ones; false if there is none.
    pub fn settle_one(&mut self) -> bool {
        let slot = self.recent.pop();
        slot.map(|slot| self.insert_free(slot, 1)).is_some()
    }

    /// Whether a slot of the window of objects is free.
    pub(crate) fn is_free(&self, slot: u64) -> bool {
        let in_run = |(first, length)| slot - first < length;
        slot >= self.next || self.recent.contains(&slot) || self.free.last_below(slot + 1).is_some_and(in_run)
    }

    /// A free slot of the window of stacks.
    #[inline]
    pub fn take_stack(&mut self) -> Option<u64> {
        self.stacks.pop().or_else(|| {
            let slot = self.next_stack;
            let room = self.stacks.try_reserve((slot + 1 - slot_of(STACKS_START)) as usize);
            (slot < slot_of(USER_END) && room.is_ok()).then(|| {
                self.next_stack += 1;
                slot
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Take(u64),
        GiveBack(usize),
        Extend(usize, u64),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (1_u64..6).prop_map(Step::Take),
            2 => any::<usize>().prop_map(Step::GiveBack),
            1 => (any::<usize>(), 1_u64..4).prop_map(|(which, slots)| Step::Extend(which, slots)),
        ]
    }

    proptest! {
        /// Nor is one lost: the runs behind others are free when they are, and in the end all are one run again.
        #[test]
        fn no_slot_is_issued_twice(steps in prop::collection::vec(any_step(), 1..200)) {
            let first = slot_of(FIRST_FREE);
            let mut addresses = Addresses::new(first);
            let mut used: Vec<(u64, u64)> = Vec::new();
            for step in steps {
                match step {
                    Step::Take(slots) => used.extend(addresses.take(slots).map(|start| (start, slots))),
                    Step::GiveBack(which) if !used.is_empty() => {
                        let (start, slots) = used.swap_remove(which % used.len());
                        addresses.give_back(start, slots);
                    }
                    Step::Extend(which, slots) if !used.is_empty() => {
                        let which = which % used.len();
                        let (start, length) = used[which];
                        let (behind, mark) = (start + length, addresses.mark());
                        let is_used = |slot: u64| used.iter().any(|&(start, slots)| (start..start + slots).contains(&slot));
                        while addresses.settle_one() {}
                        let mark = mark.min(addresses.mark());
                        let is_free = behind == mark || behind + slots <= mark && !(behind..behind + slots).any(is_used);
                        prop_assert_eq!(addresses.extend(behind, slots), is_free);
                        used[which].1 += if is_free { slots } else { 0 };
                    }
                    _ => {}
                }
                let mut seen = BTreeSet::new();
                for &(start, slots) in &used {
                    for slot in start..start + slots {
                        prop_assert!(seen.insert(slot) && slot >= first && slot < addresses.mark() && !addresses.is_free(slot));
                    }
                }
            }
            for (start, slots) in used {
                addresses.give_back(start, slots);
            }
            while addresses.settle_one() {}
            prop_assert_eq!(addresses.mark(), first);
        }
    }

    #[test]
    fn everything_given_back_can_be_taken_as_a_whole() {
        let first = slot_of(FIRST_FREE);
        let all = slot_of(OBJECTS_END) - first;
        let mut addresses = Addresses::new(first);
        let taken: Vec<u64> = (0..64).filter_map(|_| addresses.take(1)).collect();
        assert_eq!((taken.len(), addresses.take(all - 63)), (64, None));
        for slot in taken {
            addresses.give_back(slot, 1);
        }
        while addresses.settle_one() {}
        assert_eq!(addresses.take(all), Some(first));
        assert_eq!((addresses.take(1), addresses.take(u64::MAX)), (None, None));
        addresses.give_back(first, all);
        assert_eq!(addresses.mark(), first);
    }

    #[test]
    fn the_shortest_run_is_taken_however_many_are_too_short() {
        let first = slot_of(FIRST_FREE);
        let mut addresses = Addresses::new(first);
        let lengths: Vec<u64> = (1..401).map(|number| 2 + number % 7).collect();
        let taken: Vec<(u64, u64)> = lengths
            .iter()
            .filter_map(|&slots| Some((addresses.take(slots)?, slots)))
            .collect();
        let end = addresses.mark();
        for &(start, slots) in taken.iter().step_by(2) {
            addresses.give_back(start, slots);
        }
        let start = taken[6].0;
        assert_eq!(addresses.take(2), Some(start));
        assert_eq!(addresses.take(9), Some(end), "none is so long");
        assert_eq!(
            addresses.take(8),
            taken.iter().step_by(2).find(|run| run.1 == 8).map(|run| run.0)
        );
    }

    #[test]
    fn what_is_held_at_the_start_is_not_free_and_all_else_is() {
        let first = slot_of(FIRST_FREE);
        let mut addresses = Addresses::new(0);
        for (from, end) in [
            (3, 5),
            (first, first + 2),
            (first + 4, first + 9),
            (first + 5, first + 7),
            (first + 9, first + 10),
        ] {
            addresses.hold(from, end);
        }
        assert_eq!(
            (addresses.is_free(first + 3), addresses.is_free(first + 4)),
            (true, false)
        );
        assert_eq!(addresses.take(3), Some(first + 10));
        assert_eq!(
            (addresses.take(2), addresses.take(1)),
            (Some(first + 2), Some(first + 13))
        );
        // A row where no object can be leaves all before it free, and nothing behind the window.
        addresses.hold(u64::MAX - 1, u64::MAX);
        let rest = slot_of(OBJECTS_END) - (first + 14);
        assert_eq!(addresses.take(rest + 1), None);
        assert_eq!(addresses.take(rest), Some(first + 14));
        addresses.give_back(4, 1);
        assert!(!addresses.is_free(4), "it is below the window");
    }

    #[test]
    fn stacks_come_from_their_window_and_go_back_to_it() {
        let mut addresses = Addresses::new(0);
        let slot = addresses.take_stack().unwrap();
        assert_eq!(slot, slot_of(STACKS_START));
        addresses.give_back(slot, 1);
        assert_eq!(addresses.take_stack(), Some(slot));
    }
}
