//! Free addresses, in whole slots.
//!
//! Two windows: objects and stacks. A slot of the window of objects that was never used since the
//! disk was made comes from a mark that only rises; the store keeps a *lease* of slot numbers on
//! the disk, so that after a crash nothing below it is issued again. A slot that a running system gives
//! back is used again: at once if the object never was on the disk, otherwise when its deletion is
//! in a checkpoint. Stacks are never kept, so their window starts afresh with each boot.

use alloc::vec::Vec;

use abi::{
    Error,
    address::{FIRST_FREE, OBJECT_BYTES_MAX, OBJECTS_END, SLOT, STACKS_START, USER_END, slot_of},
};

use crate::containers::{Map, push_reserved};

/// Slots one object may have.
pub const OBJECT_SLOTS_MAX: u64 = OBJECT_BYTES_MAX / SLOT;
/// When fewer slots than this are left of the lease, a checkpoint renews it.
const LEASE_SHORT: u64 = 512;
/// Single slots that wait for reuse outside the tree.
const RECENT_MAX: usize = 256;

/// The free addresses of both windows.
pub struct Addresses {
    /// The first slot that this start may issue: objects of earlier starts stand below it.
    first: u64,
    /// The first slot that was never issued.
    next: u64,
    /// Slots below this may be issued without asking the store.
    leased: u64,
    /// The lease that the largest run asked for in vain would need.
    wanted: u64,
    /// Single slots given back last.
    recent: Vec<u64>,
    /// Other free ranges: first slot to number of slots; never adjacent.
    free: Map<u64, u64>,
    /// Runs that were issued and may come back: between any two free ranges stands one, so there is room for as many.
    issued: usize,
    next_stack: u64,
    stacks: Vec<u64>,
}

impl Addresses {
    /// All slots from `first` on are free; those below `leased` may be issued.
    pub fn new(first: u64, leased: u64) -> Self {
        let first = first.max(slot_of(FIRST_FREE));
        Self {
            first,
            next: first,
            leased,
            wanted: 0,
            recent: Vec::with_capacity(RECENT_MAX),
            free: Map::default(),
            issued: 0,
            next_stack: slot_of(STACKS_START),
            stacks: Vec::new(),
        }
    }

    /// Whether an object of an earlier start may stand in a slot.
    pub fn is_from_before(&self, slot: u64) -> bool {
        slot < self.first
    }

    /// The first slot that was never issued.
    pub fn mark(&self) -> u64 {
        self.next
    }

    /// Whether a run that is not free now would be, behind what was ever issued, with a longer lease.
    pub fn has_room_behind(&self, slots: u64) -> bool {
        self.next.saturating_add(slots) <= slot_of(OBJECTS_END)
    }

    /// Up to where the next lease should reach at least.
    pub fn lease_goal(&self) -> u64 {
        self.next.max(self.wanted)
    }

    /// The end of the lease.
    pub fn leased(&self) -> u64 {
        self.leased
    }

    /// Tells that the store now holds a lease up to there.
    pub fn set_leased(&mut self, end: u64) {
        self.leased = self.leased.max(end);
    }

    /// Whether a checkpoint should renew the lease soon.
    pub fn lease_is_short(&self) -> bool {
        self.next + LEASE_SHORT > self.leased
    }

    /// Makes sure that there is room for one more run to come back.
    #[inline]
    pub(crate) fn expect_back(&mut self) -> Result<(), Error> {
        self.free.reserve(self.issued + RECENT_MAX + 2)
    }

    /// A run of free slots. `None` if there is none, or only behind the lease. Room for it to come back is
    /// [there](Addresses::expect_back).
    #[inline]
    pub fn take(&mut self, slots: u64) -> Option<u64> {
        let recent = if slots == 1 { self.recent.pop() } else { None };
        let taken = recent.or_else(|| self.take_free(slots).or_else(|| self.take_fresh(slots)));
        self.issued += usize::from(taken.is_some());
        taken
    }

    fn take_fresh(&mut self, slots: u64) -> Option<u64> {
        let end = self.next.checked_add(slots)?;
        if end > self.leased.min(slot_of(OBJECTS_END)) {
            if end <= slot_of(OBJECTS_END) {
                self.wanted = self.wanted.max(end);
            }
            return None;
        }
        let first = self.next;
        self.next = end;
        self.wanted = 0;
        Some(first)
    }

    /// First fit among the first few ranges: a bound on the time, not on what is found in the end.
    fn take_free(&mut self, slots: u64) -> Option<u64> {
        let (first, length) = self.free.iter().take(64).find(|&(_, length)| length >= slots)?;
        self.free.remove(first);
        if length > slots {
            self.note_free(first + slots, length - slots);
        }
        Some(first)
    }

    /// Takes the slots right behind a run, if they are free and not among the [recent](Addresses::settle_one) ones.
    pub fn extend(&mut self, behind: u64, slots: u64) -> bool {
        if behind == self.next {
            return self.take_fresh(slots).is_some();
        }
        let Some(length) = self.free.get(behind).filter(|&length| length >= slots) else {
            return false;
        };
        self.free.remove(behind);
        if length > slots {
            self.note_free(behind + slots, length - slots);
        }
        true
    }

    /// Gives slots of either window back.
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
        self.free.release(self.issued + RECENT_MAX + 2);
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
            self.free.remove(before);
            first = before;
            slots += length;
        }
        if let Some(length) = self.free.remove(first + slots) {
            slots += length;
        }
        self.note_free(first, slots);
    }

    /// Room was made when the slots were taken. A part of a run, of which there may be more than of runs, is lost until the next start
    /// if there is no memory to note it: of addresses there are plenty.
    fn note_free(&mut self, first: u64, slots: u64) {
        let _ = self.free.insert(first, slots);
    }

    /// Moves a single slot that came back lately among the other free ones; false if there is none.
    pub fn settle_one(&mut self) -> bool {
        let slot = self.recent.pop();
        slot.map(|slot| self.insert_free(slot, 1)).is_some()
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
            let mut addresses = Addresses::new(first, first + 300);
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
                        let is_free = behind == mark && behind + slots <= first + 300
                            || behind + slots <= mark && !(behind..behind + slots).any(is_used);
                        while addresses.settle_one() {}
                        prop_assert_eq!(addresses.extend(behind, slots), is_free);
                        used[which].1 += if is_free { slots } else { 0 };
                    }
                    _ => {}
                }
                let mut seen = BTreeSet::new();
                for &(start, slots) in &used {
                    for slot in start..start + slots {
                        prop_assert!(seen.insert(slot) && slot >= first && slot < addresses.mark());
                    }
                }
                prop_assert!(addresses.mark() <= first + 300);
            }
            for (start, slots) in used {
                addresses.give_back(start, slots);
            }
            let all = addresses.mark() - first;
            while addresses.settle_one() {}
            if all > 0 {
                prop_assert_eq!(addresses.take(all), Some(first));
            }
        }
    }

    #[test]
    fn everything_given_back_can_be_taken_as_a_whole() {
        let first = slot_of(FIRST_FREE);
        let mut addresses = Addresses::new(first, first + 64);
        let taken: Vec<u64> = (0..64).filter_map(|_| addresses.take(1)).collect();
        assert_eq!(taken.len(), 64);
        assert_eq!(addresses.take(1), None);
        for slot in taken {
            addresses.give_back(slot, 1);
        }
        while addresses.settle_one() {}
        assert_eq!(addresses.take(64), Some(first));
    }

    #[test]
    fn a_lease_is_asked_for_before_it_is_used_up() {
        let first = slot_of(FIRST_FREE);
        let mut addresses = Addresses::new(first, first + 600);
        assert_eq!((addresses.leased(), addresses.lease_is_short()), (first + 600, false));
        addresses.take(88).unwrap();
        assert!(!addresses.lease_is_short());
        addresses.take(1).unwrap();
        assert!(addresses.lease_is_short());
        // The goal is what was asked for in vain, until something fresh is found.
        assert_eq!(addresses.lease_goal(), first + 89);
        assert_eq!((addresses.take(1000), addresses.take(900)), (None, None));
        assert_eq!(addresses.lease_goal(), first + 1089);
        addresses.set_leased(first);
        assert_eq!(addresses.leased(), first + 600);
        addresses.set_leased(first + 1089);
        assert_eq!(addresses.take(1000), Some(first + 89));
        assert_eq!(addresses.lease_goal(), first + 1089);
        // Beyond the window there is no goal.
        let rest = slot_of(OBJECTS_END) - addresses.mark();
        assert_eq!(
            (addresses.has_room_behind(rest), addresses.has_room_behind(rest + 1)),
            (true, false)
        );
        assert_eq!(addresses.take(rest + 1), None);
        assert_eq!(addresses.lease_goal(), first + 1089);
        assert_eq!(addresses.take(rest), None);
        assert_eq!(addresses.lease_goal(), slot_of(OBJECTS_END));
    }

    #[test]
    fn stacks_come_from_their_window_and_go_back_to_it() {
        let mut addresses = Addresses::new(0, 0);
        let slot = addresses.take_stack().unwrap();
        assert_eq!(slot, slot_of(STACKS_START));
        addresses.give_back(slot, 1);
        assert_eq!(addresses.take_stack(), Some(slot));
        assert_eq!(addresses.take(1), None, "nothing is leased");
    }
}
