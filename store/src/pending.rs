//! Changes to page maps that are not yet made in the maps: ranges that read as zero, limits that
//! were set.
//!
//! Making them may need nodes from the disk, and while a checkpoint runs the maps belong to it. So
//! they are noted here, seen by every lookup, and made in the maps by the next checkpoint.

use crate::containers::Map;
use crate::event::PageFlags;
use crate::heap::NoHeap;
use crate::journal::Item;
use crate::map::FANOUT;
use crate::objects::all_nodes;

/// Changes of the map of one object that a record carries at most.
pub(crate) const CHANGES_MAX: usize = 32;

/// Changes that are put beneath others in one piece.
const BENEATH_PIECE: usize = 8;

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
#[derive(Default, Debug)]
pub(crate) struct MapChanges {
    /// Ranges that read as zero, first page to one past the last; disjoint.
    pub(crate) zeroed: Map<u64, u64>,
    /// Limits that were set.
    pub(crate) flags: Map<u64, PageFlags>,
    pub(crate) journaled: Journaled,
    /// Nodes that making them may write, at most.
    pub(crate) cost: u64,
    /// Nodes of the map's left edge among them, for limits of pages beyond its first node.
    pub(crate) edge: u8,
    /// Those that jobs have of the object, which may come back beneath these.
    beneath: Beneath,
}

/// Changes that may come back beneath others, at most.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Beneath {
    all: Entries,
    /// Those that must find room there: the others bring theirs along.
    room: Entries,
}

impl Beneath {
    /// These, and those of one job more.
    pub(crate) fn and(self, changes: &MapChanges) -> Self {
        let entries = changes.entries();
        let room = Entries {
            zeroed: Map::<u64, u64>::beside(entries.zeroed),
            flags: Map::<u64, PageFlags>::beside(entries.flags),
        };
        Self {
            all: self.all.and(entries),
            room: self.room.and(room),
        }
    }

    /// How many must find room.
    pub(crate) fn room(self) -> usize {
        self.room.zeroed + self.room.flags
    }
}

/// The changes that no job has taken over, by object, and what all of them cost: asked for at each promise, so it is never added up.
#[derive(Default, Debug)]
pub(crate) struct Pending {
    by_object: Map<u64, MapChanges>,
    cost: u64,
    /// Ranges and limits of all objects.
    entries: usize,
}

impl Pending {
    /// Nodes that making all changes may write, at most.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// Ranges and limits of all objects.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// Whether those are the sums.
    pub(crate) fn is_exact(&self) -> bool {
        self.cost == self.by_object.values().map(|changes| changes.cost).sum::<u64>()
            && self.entries == self.by_object.values().map(MapChanges::count).sum()
    }

    /// Those of all objects.
    pub(crate) fn by_object(&self) -> &Map<u64, MapChanges> {
        &self.by_object
    }

    /// Makes room for those of so many objects.
    pub(crate) fn reserve(&mut self, objects: usize) -> Result<(), NoHeap> {
        Ok(self.by_object.reserve(objects)?)
    }

    /// Promises room for fewer.
    pub(crate) fn release(&mut self, objects: usize) {
        self.by_object.release(objects);
    }

    /// Gives some heap back; whether there was any.
    pub(crate) fn give_back(&mut self) -> bool {
        self.by_object.give_back()
    }

    /// Changes those of an object, if it has any.
    pub(crate) fn change<T>(&mut self, base: u64, act: impl FnOnce(&mut MapChanges) -> T) -> Option<T> {
        let changes = self.by_object.get_mut(base)?;
        let before = (changes.cost, changes.count());
        let done = act(changes);
        self.cost = self.cost + changes.cost - before.0;
        self.entries = self.entries + changes.count() - before.1;
        Some(done)
    }

    /// Enters those of an object that has none.
    pub(crate) fn insert(&mut self, base: u64, changes: MapChanges) -> Result<(), NoHeap> {
        let (cost, entries) = (changes.cost, changes.count());
        self.by_object.insert(base, changes)?;
        self.cost += cost;
        self.entries += entries;
        Ok(())
    }

    /// Their object is gone: they cost nothing, and the next checkpoint drops them, in pieces.
    pub(crate) fn abandon(&mut self, base: u64) {
        self.change(base, |changes| (changes.cost, changes.edge) = (0, 0));
    }

    /// Nodes of the left edge that a limit of this page may need beside its path, and that the changes of its object do not have.
    pub(crate) fn edge_of(&self, base: u64, page: u64, levels: u8) -> u8 {
        if page < FANOUT {
            return 0;
        }
        let has = self.by_object.get_ref(base).map_or(0, |changes| changes.edge);
        levels.saturating_sub(has)
    }

    /// Takes those of an object out.
    pub(crate) fn take(&mut self, base: u64) -> Option<MapChanges> {
        let changes = self.by_object.remove(base)?;
        self.cost -= changes.cost;
        self.entries -= changes.count();
        Some(changes)
    }

    /// Hands all over to a job that has none.
    pub(crate) fn hand_over(&mut self, to: &mut Map<u64, MapChanges>) {
        core::mem::swap(&mut self.by_object, to);
        self.cost = 0;
        self.entries = 0;
    }
}

/// How many ranges and limits there are.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Entries {
    pub(crate) zeroed: usize,
    pub(crate) flags: usize,
}

impl Entries {
    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            zeroed: self.zeroed + other.zeroed,
            flags: self.flags + other.flags,
        }
    }
}

impl MapChanges {
    /// Whether no record has them.
    pub(crate) fn is_unjournaled(&self) -> bool {
        self.journaled == Journaled::No
    }

    /// How many there are of each kind.
    pub(crate) fn entries(&self) -> Entries {
        Entries {
            zeroed: self.zeroed.count(),
            flags: self.flags.count(),
        }
    }

    /// How many there are of both kinds.
    pub(crate) fn count(&self) -> usize {
        self.zeroed.count() + self.flags.count()
    }

    /// The items of a journal record that repeat these changes, which are of the object at `base`.
    pub(crate) fn items(&self, base: u64) -> impl Iterator<Item = Item> {
        let zeroed = self.zeroed.iter();
        let zeroed = zeroed.map(move |(start, end)| Item::Zero { base, start, end });
        let flags = self.flags.iter();
        zeroed.chain(flags.map(move |(page, flags)| Item::Limit { base, page, flags }))
    }

    /// No changes, where jobs have these.
    pub(crate) fn above(beneath: Beneath) -> Self {
        Self {
            beneath,
            ..Self::default()
        }
    }

    /// Adds the nodes of so many paths, and of the left edge; all changes together touch no more than all nodes.
    pub(crate) fn add_cost(&mut self, paths: u64, pages: u64, levels: u8, edge: u8) {
        let nodes = self.cost + paths * u64::from(levels) + u64::from(edge);
        self.cost = nodes.min(all_nodes(pages, levels));
        self.edge += edge;
    }

    /// Finds heap for so many more, and for those that may come back.
    pub(crate) fn expect(&mut self, more: Entries) -> Result<(), NoHeap> {
        let own = self.entries().and(more);
        let (here, all) = (own.and(self.beneath.room), own.and(self.beneath.all));
        self.zeroed.reserve_beside(here.zeroed, all.zeroed)?;
        self.flags.reserve_beside(here.flags, all.flags)?;
        Ok(())
    }

    /// The same changes to lie above those and themselves, with room for so many more.
    pub(crate) fn copy(&self, beneath: Beneath, more: Entries) -> Result<Self, NoHeap> {
        let mut copy = Self {
            journaled: self.journaled,
            cost: self.cost,
            edge: self.edge,
            ..Self::above(beneath.and(self))
        };
        copy.expect(self.entries().and(more))?;
        copy.zeroed.fill_from(&self.zeroed);
        copy.flags.fill_from(&self.flags);
        Ok(copy)
    }

    /// The pages from `start` to `end` read as zero and have no limits.
    pub(crate) fn zero(&mut self, start: u64, end: u64) -> Result<(), NoHeap> {
        if start >= end {
            return Ok(());
        }
        self.zeroed.reserve(self.zeroed.count() + 1)?;
        self.flags.cut(start..end);
        self.add_range(start, end)?;
        self.journaled = Journaled::No;
        Ok(())
    }

    fn add_range(&mut self, mut start: u64, mut end: u64) -> Result<(), NoHeap> {
        // It swallows every range that touches: that which begins before it, and those from there to the last one.
        for before in [start, end.saturating_add(1)] {
            if let Some((from, to)) = self.zeroed.last_below(before).filter(|&(_, to)| to >= start) {
                start = start.min(from);
                end = end.max(to);
            }
        }
        self.zeroed.cut(start..end.saturating_add(1));
        self.zeroed.insert(start, end)?;
        Ok(())
    }

    /// The page has these limits.
    pub(crate) fn limit(&mut self, page: u64, flags: PageFlags) -> Result<(), NoHeap> {
        self.flags.insert(page, flags)?;
        self.journaled = Journaled::No;
        Ok(())
    }

    /// The page was written later: nothing pending holds for it.
    pub(crate) fn punch(&mut self, page: u64) -> Result<(), NoHeap> {
        self.zeroed.reserve(self.zeroed.count() + 1)?;
        self.flags.remove(page);
        if let Some((from, to)) = self
            .zeroed
            .last_below(page.saturating_add(1))
            .filter(|&(_, to)| page < to)
        {
            self.zeroed.remove(from);
            if from < page {
                self.zeroed.insert(from, page)?;
            }
            if page + 1 < to {
                self.zeroed.insert(page + 1, to)?;
            }
        }
        Ok(())
    }

    /// Whether the page reads as zero.
    pub(crate) fn is_zeroed(&self, page: u64) -> bool {
        self.zeroed
            .last_below(page.saturating_add(1))
            .is_some_and(|(_, to)| page < to)
    }

    /// Drops some; gives the number of allocations that went, none if nothing is left.
    pub(crate) fn drop_some(&mut self) -> usize {
        match self.flags.drop_some() {
            0 => self.zeroed.drop_some(),
            dropped => dropped,
        }
    }

    /// Puts some older changes beneath these; tells whether those were all. There must be [room](MapChanges::expect) for them.
    pub(crate) fn put_beneath(&mut self, older: &mut Self) -> bool {
        self.journaled = Journaled::No;
        for _ in 0..BENEATH_PIECE {
            // The limits first: they lie on top of the ranges that were noted with them.
            if let Some((page, flags)) = older.flags.pop_first() {
                if !self.is_zeroed(page) && !self.flags.has(page) {
                    self.flags.take_room(&mut older.flags);
                    let put = self.flags.insert(page, flags);
                    debug_assert!(put.is_ok(), "what comes back has room");
                }
            } else if let Some((start, end)) = older.zeroed.pop_first() {
                self.zeroed.take_room(&mut older.zeroed);
                let put = self.add_range(start, end);
                debug_assert!(put.is_ok(), "what comes back has room");
            } else {
                self.cost += core::mem::take(&mut older.cost);
                self.edge = self.edge.max(older.edge);
                self.beneath = older.beneath;
                return true;
            }
        }
        false
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

    /// A sync carries changes that came back, though one that failed had them in its record.
    #[test]
    fn what_comes_back_is_to_be_journaled_again() {
        let (mut older, mut newer) = (MapChanges::default(), MapChanges::default());
        older.zero(3, 4).unwrap();
        newer.beneath = Beneath::default().and(&older);
        newer.expect(Entries::default()).unwrap();
        newer.journaled = Journaled::Yes;
        while !newer.put_beneath(&mut older) {}
        assert_eq!(newer.journaled, Journaled::No);
    }

    proptest! {
        /// However many there are, and whatever is noted meanwhile.
        #[test]
        fn what_comes_back_brings_its_room_along(
            older in prop::collection::vec((0_u64..6000, 0_u64..3), 0..3000),
            newer in prop::collection::vec((0_u64..6000, 0_u64..3), 0..600),
            swallowed in 0_u64..6000,
        ) {
            let one = |changes: &mut MapChanges, &(page, kind): &(u64, u64)| {
                changes.expect(Entries { zeroed: 1, flags: 1 }).unwrap();
                match kind {
                    0 => changes.zero(page, page + 1).unwrap(),
                    1 => changes.zero(page, (page + 40).min(swallowed)).unwrap(),
                    _ => changes.limit(page, PageFlags::READ).unwrap(),
                }
            };
            let mut beneath = MapChanges::default();
            for step in &older {
                one(&mut beneath, step);
            }
            let mut over = MapChanges::above(Beneath::default().and(&beneath));
            over.expect(Entries::default()).unwrap();
            let (before, meanwhile) = newer.split_at(newer.len() / 2);
            for step in before {
                one(&mut over, step);
            }
            let mut meanwhile = meanwhile.iter();
            while !over.put_beneath(&mut beneath) {
                meanwhile.by_ref().take(2).for_each(|step| one(&mut over, step));
            }
        }

        #[test]
        fn it_behaves_like_an_array_of_pages(steps in prop::collection::vec(any_step(), 0..40)) {
            let mut changes = MapChanges::default();
            let mut model = [(false, false); 60];
            for step in steps {
                match step {
                    Step::Zero(start, end) => {
                        changes.zero(start, end).unwrap();
                        model[start as usize..end as usize].fill((true, false));
                    }
                    Step::Limit(page) => {
                        changes.limit(page, PageFlags::READ).unwrap();
                        model[page as usize].1 = true;
                    }
                    Step::Punch(page) => {
                        changes.punch(page).unwrap();
                        model[page as usize] = (false, false);
                    }
                }
                prop_assert!(changes.zeroed.iter().all(|(start, end)| start < end));
                for (page, &(zeroed, limited)) in model.iter().enumerate() {
                    prop_assert_eq!(changes.is_zeroed(page as u64), zeroed);
                    prop_assert_eq!(changes.flags.has(page as u64), limited);
                }
            }
        }

        /// Later changes lie on top of those that were pending before, as if both had been noted in one.
        #[test]
        fn later_changes_lie_on_top(
            older in prop::collection::vec(any_change(), 0..20),
            newer in prop::collection::vec(any_change(), 0..20),
        ) {
            let note = |mut changes: MapChanges, steps: &[Step]| {
                for step in steps {
                    match *step {
                        Step::Zero(start, end) => changes.zero(start, end).unwrap(),
                        Step::Limit(page) => changes.limit(page, PageFlags::from_bits_retain(page as u16)).unwrap(),
                        Step::Punch(page) => changes.punch(page).unwrap(),
                    }
                }
                changes
            };
            let both = note(note(MapChanges::default(), &older), &newer);
            let mut older = note(MapChanges::default(), &older);
            let mut over = note(MapChanges::default(), &newer);
            over.beneath = Beneath::default().and(&older);
            over.expect(Entries::default()).unwrap();
            while !over.put_beneath(&mut older) {}
            prop_assert!(over.zeroed.iter().eq(both.zeroed.iter()));
            prop_assert!(over.flags.iter().eq(both.flags.iter()));
        }
    }
}
