//! Lists of objects in which each object knows its neighbours: it is put in and taken out in a few steps, and needs no memory for it.

use crate::directory::object::{ObjectId, Objects};

/// The lists in which an object may stand, one of each kind.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Objects that have, or had, dirty pages.
    Dirty,
    /// The kill list of a task.
    KillList,
}

/// How many kinds there are.
pub(crate) const KINDS: usize = 2;

/// The neighbours of an object in a list: the one put in after it, and the one put in before it.
pub(crate) type Neighbours = Option<[Option<ObjectId>; 2]>;

/// A list; the object that was put in last is its first.
#[derive(Copy, Clone, Default, Debug)]
pub struct ObjectList {
    first: Option<ObjectId>,
    count: usize,
}

impl ObjectList {
    /// The object that was put in last.
    pub(crate) const fn first(&self) -> Option<ObjectId> {
        self.first
    }

    /// How many there are.
    pub const fn count(&self) -> usize {
        self.count
    }
}

impl Objects {
    /// Puts an object into a list, if it is in none of that kind.
    #[inline]
    pub(crate) fn enlist(&mut self, kind: Kind, list: &mut ObjectList, id: ObjectId) {
        let neighbours = &mut self.get_mut(id).neighbours[kind as usize];
        if neighbours.is_some() {
            return;
        }
        *neighbours = Some([None, list.first]);
        self.set_neighbour(kind, list.first, 0, Some(id));
        list.first = Some(id);
        list.count += 1;
    }

    /// Takes an object out of its list of a kind, if it is in one.
    #[inline]
    pub(crate) fn unlist(&mut self, kind: Kind, list: &mut ObjectList, id: ObjectId) {
        let Some([newer, older]) = self.get_mut(id).neighbours[kind as usize].take() else {
            return;
        };
        if newer.is_none() {
            list.first = older;
        }
        self.set_neighbour(kind, newer, 1, older);
        self.set_neighbour(kind, older, 0, newer);
        list.count -= 1;
    }

    fn set_neighbour(&mut self, kind: Kind, of: Option<ObjectId>, side: usize, to: Option<ObjectId>) {
        if let Some(neighbours) = of.and_then(|of| self.get_mut(of).neighbours[kind as usize].as_mut()) {
            neighbours[side] = to;
        }
    }

    /// All objects of a list, from the first on.
    pub(crate) fn listed(&self, kind: Kind, list: &ObjectList) -> impl Iterator<Item = ObjectId> {
        core::iter::successors(list.first, move |&id| self.get(id).neighbours[kind as usize]?[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::{AccountId, Ledger};
    use abi::address::{SLOT, USER_START};
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        /// Two lists of one kind, and one of another, in which the same objects stand.
        #[test]
        fn lists_have_what_was_put_in_and_not_taken_out(steps in prop::collection::vec((0_usize..3, 0_u64..8, any::<bool>()), 0..100)) {
            let (mut objects, mut ledger) = (Objects::default(), Ledger::new(1));
            let ids: Vec<ObjectId> = (0..8)
                .map(|number| {
                    let record = store::ObjectRecord { base: USER_START + number * SLOT, pages: 1, ..Default::default() };
                    objects.insert(record, AccountId::ROOT, &mut ledger).unwrap()
                })
                .collect();
            let mut lists = [ObjectList::default(); 3];
            let mut models: [Vec<ObjectId>; 3] = Default::default();
            for (which, number, in_or_out) in steps {
                let kind = if which == 2 { Kind::Dirty } else { Kind::KillList };
                let id = ids[number as usize];
                let elsewhere = which < 2 && models[1 - which].contains(&id);
                if in_or_out {
                    objects.enlist(kind, &mut lists[which], id);
                    if !elsewhere && !models[which].contains(&id) {
                        models[which].insert(0, id);
                    }
                } else if !elsewhere {
                    objects.unlist(kind, &mut lists[which], id);
                    models[which].retain(|&other| other != id);
                }
                for (which, model) in models.iter().enumerate() {
                    let kind = if which == 2 { Kind::Dirty } else { Kind::KillList };
                    prop_assert_eq!(lists[which].count(), model.len());
                    prop_assert_eq!(lists[which].first(), model.first().copied());
                    prop_assert!(objects.listed(kind, &lists[which]).eq(model.iter().copied()));
                }
            }
        }
    }
}
