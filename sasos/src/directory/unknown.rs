//! Addresses of which it is not known whether objects hold them.
//!
//! A start reads few leaves of the object table. Of the others it knows from where to where their objects begin, so all slots there are held. They become known piece by piece: those of an object
//! when it becomes active, and those between objects when somebody needs free addresses ([`Server::reveal`]). So nothing is ever looked at twice, and a slot that was given back since is not among them.

use abi::{
    Error,
    address::{FIRST_FREE, OBJECTS_END, SLOT, slot_of},
};

use crate::{Server, Step, Stop, World, containers::Map, directory::address::COST_SETTLE};

/// Runs of slots, each from its first one to one past its last one, in order.
#[derive(Default)]
pub struct Unknown(Map<u64, u64>);

impl Unknown {
    /// Adds a run behind all others; one that begins where the last one ends makes that longer.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn add(&mut self, first: u64, end: u64) -> Result<(), Error> {
        let (first, end) = (first.max(slot_of(FIRST_FREE)), end.min(slot_of(OBJECTS_END)));
        if first >= end {
            return Ok(());
        }
        let last = self.0.last_below(u64::MAX).filter(|&(_, before)| before >= first);
        self.0.insert(last.map_or(first, |(start, _)| start), end)?;
        Ok(())
    }

    /// Finds heap for one run more, if there is any that may be parted.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn expect(&mut self) -> Result<(), Error> {
        if self.0.is_empty() {
            return Ok(());
        }
        let runs = self.0.count() + 1;
        self.0.reserve(runs)
    }

    /// The first run that has slots from this one on.
    pub(crate) fn from(&self, slot: u64) -> Option<(u64, u64)> {
        let before = self.0.last_below(slot).filter(|&(_, end)| end > slot);
        before.or_else(|| self.0.first_in(slot..u64::MAX))
    }

    /// Slots are known, for which there is [room](Unknown::expect).
    pub(crate) fn take_out(&mut self, first: u64, slots: u64) {
        let last = first + slots;
        while let Some((start, end)) = self.from(first).filter(|&(start, _)| start < last) {
            self.0.remove(start);
            for (from, to) in [(start, end.min(first)), (last.max(start), end)] {
                if from < to {
                    let noted = self.0.insert(from, to);
                    debug_assert!(noted.is_ok(), "room was made");
                }
            }
        }
    }
}

impl Server {
    /// Finds out about the slots up to the next object, in the first run that has slots from `slot` on: those that hold nothing are free then. Tells whether there was such a run.
    ///
    /// # Errors
    /// The need to wait for rows; no heap for what is found.
    pub(crate) fn reveal(&mut self, world: &mut impl World, slot: u64) -> Step<bool> {
        let Some((first, end)) = self.unknown.from(slot) else {
            return Ok(false);
        };
        self.budget.spend(COST_SETTLE);
        self.unknown.expect()?;
        self.addresses.expect_back()?;
        // On a disk made by others an object may begin in a slot before.
        let containing = self.store.find_containing(first * SLOT);
        let found =
            containing.and_then(|row| row.map_or_else(|| self.store.find_from(first * SLOT), |row| Ok(Some(row))));
        let row = match found {
            Ok(row) => row.map(|row| (slot_of(row.base).max(first), slot_of(row.end() - 1) + 1)),
            Err(absent) => {
                let stop = self.rows_wait(world, absent);
                if stop == Stop::Fail(Error::DiskError) {
                    // Where the last object of those rows ends is not known. Of addresses there are plenty.
                    self.unknown.take_out(first, end - first);
                    return Ok(true);
                }
                return Err(stop);
            }
        };
        let (begins, ends) = row.unwrap_or((end, end));
        let gap = first..begins.min(end);
        self.unknown.take_out(first, ends.min(end) - first);
        let mut from = gap.start;
        while from < gap.end {
            let named = self.names.from(from).filter(|&named| named < gap.end);
            let to = named.unwrap_or(gap.end);
            if from < to {
                self.addresses.expect_back()?;
                self.addresses.note_issued();
                self.addresses.give_back(from, to - from);
            }
            if let Some(named) = named {
                self.names.object_goes(named, false);
            }
            from = to + 1;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_what_is_left_of_them(
            lengths in prop::collection::vec((0_u64..4, 1_u64..9), 0..12),
            taken in prop::collection::vec((0_u64..80, 1_u64..12), 0..30),
        ) {
            let first = slot_of(FIRST_FREE);
            let (mut unknown, mut model, mut at) = (Unknown::default(), BTreeSet::new(), first);
            for (gap, length) in lengths {
                at += gap;
                unknown.add(at, at + length).unwrap();
                model.extend(at..at + length);
                at += length;
            }
            for (from, slots) in taken {
                unknown.expect().unwrap();
                unknown.take_out(first + from, slots);
                for slot in first + from..first + from + slots {
                    model.remove(&slot);
                }
                let mut found = BTreeSet::new();
                let mut next = 0;
                while let Some((start, end)) = unknown.from(next) {
                    found.extend(start.max(next)..end);
                    next = end;
                }
                prop_assert_eq!(&found, &model);
            }
        }
    }
}
