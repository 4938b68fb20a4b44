//! Changes to page maps that are not yet made in the maps: ranges that read as zero, limits that
//! were set.
//!
//! Making them may need nodes from the disk, and while a checkpoint runs the maps belong to it. So
//! they are noted here, seen by every lookup, and made in the maps by the next checkpoint.

use crate::event::PageFlags;
use alloc::collections::BTreeMap;

/// Whether a sync has carried the changes already.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub(crate) enum Journaled {
    /// They will be lost with the power.
    #[default]
    No,
    /// They are in a record, or about to be.
    Yes,
}

/// The pending changes of one object.
#[derive(Clone, Default, Debug)]
pub(crate) struct MapChanges {
    /// Ranges that read as zero, first page to one past the last; disjoint.
    pub(crate) zeroed: BTreeMap<u64, u64>,
    /// Limits that were set.
    pub(crate) flags: BTreeMap<u64, PageFlags>,
    pub(crate) journaled: Journaled,
    /// Nodes that making them may write, at most.
    pub(crate) cost: u64,
}

impl MapChanges {
    /// The pages from `start` to `end` read as zero and have no limits.
    pub(crate) fn zero(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        self.flags.retain(|page, _| !(start..end).contains(page));
        let (mut start, mut end) = (start, end);
        // Swallow every range that touches.
        while let Some((&from, &to)) = self.zeroed.range(..=end).next_back() {
            if to < start {
                break;
            }
            self.zeroed.remove(&from);
            start = start.min(from);
            end = end.max(to);
        }
        self.zeroed.insert(start, end);
        self.journaled = Journaled::No;
    }

    /// The page has these limits.
    pub(crate) fn limit(&mut self, page: u64, flags: PageFlags) {
        self.flags.insert(page, flags);
        self.journaled = Journaled::No;
    }

    /// The page was written later: nothing pending holds for it.
    pub(crate) fn punch(&mut self, page: u64) {
        self.flags.remove(&page);
        if let Some((&from, &to)) = self.zeroed.range(..=page).next_back()
            && page < to
        {
            self.zeroed.remove(&from);
            if from < page {
                self.zeroed.insert(from, page);
            }
            if page + 1 < to {
                self.zeroed.insert(page + 1, to);
            }
        }
    }

    /// Whether the page reads as zero.
    pub(crate) fn is_zeroed(&self, page: u64) -> bool {
        self.zeroed.range(..=page).next_back().is_some_and(|(_, &to)| page < to)
    }

    /// Puts these changes on top of older ones.
    pub(crate) fn over(self, mut older: Self) -> Self {
        for (&start, &end) in &self.zeroed {
            older.zero(start, end);
        }
        older.flags.extend(self.flags);
        older.cost += self.cost;
        older.journaled = Journaled::No;
        older
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Zero(u64, u64),
        Limit(u64),
        Punch(u64),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0_u64..40, 0_u64..12).prop_map(|(start, length)| Step::Zero(start, start + length)),
            (0_u64..50).prop_map(Step::Limit),
            (0_u64..50).prop_map(Step::Punch),
        ]
    }

    fn any_change() -> impl Strategy<Value = Step> {
        any_step().prop_filter("a page that was written is no change", |step| {
            !matches!(step, Step::Punch(_))
        })
    }

    proptest! {
        #[test]
        fn it_behaves_like_an_array_of_pages(steps in prop::collection::vec(any_step(), 0..40)) {
            let mut changes = MapChanges::default();
            let mut model = [(false, false); 60];
            for step in steps {
                match step {
                    Step::Zero(start, end) => {
                        changes.zero(start, end);
                        model[start as usize..end as usize].fill((true, false));
                    }
                    Step::Limit(page) => {
                        changes.limit(page, PageFlags::READ);
                        model[page as usize].1 = true;
                    }
                    Step::Punch(page) => {
                        changes.punch(page);
                        model[page as usize] = (false, false);
                    }
                }
                for (page, &(zeroed, limited)) in model.iter().enumerate() {
                    prop_assert_eq!(changes.is_zeroed(page as u64), zeroed);
                    prop_assert_eq!(changes.flags.contains_key(&(page as u64)), limited);
                }
            }
        }

        /// What came later lies on top of what was pending before, as if both had been noted in one.
        #[test]
        fn later_changes_lie_on_top(
            older in prop::collection::vec(any_change(), 0..20),
            newer in prop::collection::vec(any_change(), 0..20),
        ) {
            let note = |mut changes: MapChanges, steps: &[Step]| {
                for step in steps {
                    match *step {
                        Step::Zero(start, end) => changes.zero(start, end),
                        Step::Limit(page) => changes.limit(page, PageFlags::from_bits_retain(page as u16)),
                        Step::Punch(page) => changes.punch(page),
                    }
                }
                changes
            };
            let both = note(note(MapChanges::default(), &older), &newer);
            let over = note(MapChanges::default(), &newer).over(note(MapChanges::default(), &older));
            prop_assert_eq!(over.zeroed, both.zeroed);
            prop_assert_eq!(over.flags, both.flags);
        }
    }
}
