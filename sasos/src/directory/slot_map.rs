//! Which object a slot belongs to: a two-level table over all slot numbers of the address space.
//!
//! A stretch of two gigabytes that belongs to one object, or to none, takes one entry; others
//! have a table of their own while anything is in it. The account whose object parts a stretch pays for that table, until it goes (decision 0120).
//! A stretch is so small that an object that parts two of them is entered in one piece.

use alloc::vec::Vec;

use abi::{
    Error,
    address::{SLOT, USER_END},
};

use crate::{
    accounts::{AccountId, Ledger, Resource},
    containers::{Boxed, Places, boxed, filled},
    lives::budget::Cost,
};

/// Nobody, in place of an owner.
const NONE: u32 = TABLE - 1;
/// In the entry of a stretch: what is below is the number of its table.
const TABLE: u32 = 1 << 31;

/// Slot numbers in a second-level table.
pub(crate) const REACH: u64 = 1024;
/// The cost of an entry that changes, in instructions, roughly.
const COST_ENTRY: u64 = 5;
const STRETCHES: u64 = (USER_END / SLOT).div_ceil(REACH);

/// The cost of giving so many slots another owner. Whole stretches are one entry each.
pub(crate) const fn cost_of_slots(slots: u64) -> Cost {
    Cost::own(COST_ENTRY * if slots < REACH { slots } else { REACH })
}

/// Bytes of a second-level table.
const TABLE_BYTES: u64 = REACH * size_of::<u32>() as u64;

/// The owners of the slots of a stretch.
struct Table {
    owners: Vec<u32>,
    /// Slots that have an owner.
    used: u32,
    /// The account that pays for the table.
    payer: AccountId,
}

/// Slot numbers to objects.
pub(crate) struct SlotMap {
    /// The owner of each stretch, or its table.
    stretches: Vec<u32>,
    tables: Places<Table>,
    /// A table of a stretch that is nobody's any more, for the next one that is parted. Nobody pays for it.
    spare: Option<Boxed<Table>>,
}

impl SlotMap {
    pub(crate) fn new() -> Self {
        Self {
            stretches: (0..STRETCHES).map(|_| NONE).collect(),
            tables: Places::default(),
            spare: None,
        }
    }

    /// The owner of a slot.
    #[inline]
    pub(crate) fn get(&self, slot: u64) -> Option<u32> {
        let mut owner = *self.stretches.get((slot / REACH) as usize)?;
        if owner & TABLE != 0 {
            owner = *self.tables.get(owner & !TABLE)?.owners.get((slot % REACH) as usize)?;
        }
        (owner != NONE).then_some(owner)
    }

    /// The owner of a slot, and a slot behind it up to which nothing changes: what is behind the slot itself in a table, the
    /// end of the stretch elsewhere. None behind the last one.
    pub(crate) fn run(&self, slot: u64) -> Option<(u64, Option<u32>)> {
        let stretch = *self.stretches.get((slot / REACH) as usize)?;
        let next = if stretch & TABLE == 0 {
            (slot / REACH + 1) * REACH
        } else {
            slot + 1
        };
        Some((next, self.get(slot)))
    }

    /// The table of a stretch, if it has one.
    fn table(&mut self, stretch: u64) -> Option<&mut Table> {
        let entry = *self.stretches.get(stretch as usize)?;
        (entry & TABLE != 0).then(|| self.tables.get_mut(entry & !TABLE))?
    }

    /// Gives slots to an owner, or to none. They all had the other state before. `payer` pays for tables that this makes.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::LimitReached`]: nothing has changed.
    pub(crate) fn set(
        &mut self,
        first: u64,
        count: u64,
        owner: Option<u32>,
        payer: AccountId,
        ledger: &mut Ledger,
    ) -> Result<(), Error> {
        // Most objects have one slot, in a stretch that has a table and keeps it.
        if count == 1
            && let Some(Table { owners, used, .. }) = self.table(first / REACH)
            && (owner.is_some() || *used > 1)
            && let Some(place) = owners.get_mut((first % REACH) as usize)
        {
            *place = owner.unwrap_or(NONE);
            *used = if owner.is_some() { *used + 1 } else { *used - 1 };
            return Ok(());
        }
        let end = first + count;
        let [head, tail] = [first / REACH, (end - 1) / REACH];
        // Only the first and the last stretch can be parted.
        let mut parted = false;
        if !first.is_multiple_of(REACH) || end < (head + 1) * REACH {
            parted = self.part_paid(head, payer, ledger)?;
        }
        if tail != head
            && !end.is_multiple_of(REACH)
            && let Err(error) = self.part_paid(tail, payer, ledger)
        {
            if parted {
                let before = self.get(head * REACH).unwrap_or(NONE);
                self.join(head, before, ledger);
            }
            return Err(error);
        }
        for stretch in head..=tail {
            let start = stretch * REACH;
            let (from, to) = (first.max(start) - start, (end - start).min(REACH));
            self.set_part(stretch, (from as usize, to as usize), owner.unwrap_or(NONE), ledger);
        }
        Ok(())
    }

    /// Sees to it that slots from this one on can be given to nobody without memory: the stretch that this parts has a table. The account
    /// gets back more with the slots, so its limit does not matter.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn expect_end(&mut self, slot: u64, payer: AccountId, ledger: &mut Ledger) -> Result<(), Error> {
        if slot.is_multiple_of(REACH) {
            return Ok(());
        }
        if self.part(slot / REACH, payer)? {
            ledger.force(payer, Resource::Bytes, TABLE_BYTES);
        }
        Ok(())
    }

    /// The account that pays for each table, and how many bytes.
    pub(crate) fn charges(&self) -> impl Iterator<Item = (AccountId, u64)> {
        self.tables.iter().map(|(_, table)| (table.payer, TABLE_BYTES))
    }

    /// Gives a stretch a table of its own; tells whether it had none.
    fn part_paid(&mut self, stretch: u64, payer: AccountId, ledger: &mut Ledger) -> Result<bool, Error> {
        let entry = self.stretches.get(stretch as usize).ok_or(Error::BadAddress)?;
        if *entry & TABLE != 0 {
            return Ok(false);
        }
        ledger.take(payer, Resource::Bytes, TABLE_BYTES)?;
        let parted = self.part(stretch, payer);
        parted.inspect_err(|_| ledger.give(payer, Resource::Bytes, TABLE_BYTES))
    }

    /// The same, before it is paid for.
    fn part(&mut self, stretch: u64, payer: AccountId) -> Result<bool, Error> {
        let entry = self.stretches.get_mut(stretch as usize).ok_or(Error::BadAddress)?;
        if *entry & TABLE != 0 {
            return Ok(false);
        }
        let owner = *entry;
        let spare = self.spare.take_if(|_| owner == NONE);
        let make = || match spare {
            Some(table) => Ok(table),
            None => boxed(Table {
                owners: filled(owner, REACH as usize)?,
                used: if owner == NONE { 0 } else { REACH as u32 },
                payer,
            }),
        };
        let (number, mut table) = self.tables.vacant().and_then(|number| Ok((number, make()?)))?;
        table.payer = payer;
        self.tables.put(number, table);
        *entry = TABLE | number;
        Ok(true)
    }

    /// All of a stretch is of one owner, or of none: its table goes.
    fn join(&mut self, stretch: u64, owner: u32, ledger: &mut Ledger) {
        if let Some(entry) = self.stretches.get_mut(stretch as usize) {
            let before = core::mem::replace(entry, owner);
            if before & TABLE != 0
                && let Some(table) = self.tables.take(before & !TABLE)
            {
                ledger.give(table.payer, Resource::Bytes, TABLE_BYTES);
                if table.used == 0 {
                    self.spare = Some(table);
                }
            }
        }
    }

    fn set_part(&mut self, stretch: u64, (from, to): (usize, usize), owner: u32, ledger: &mut Ledger) {
        if to - from == REACH as usize {
            self.join(stretch, owner, ledger);
            return;
        }
        let Some(table) = self.table(stretch) else { return };
        table.owners[from..to].fill(owner);
        if owner == NONE {
            table.used -= (to - from) as u32;
        } else {
            table.used += (to - from) as u32;
        }
        if table.used == 0 {
            self.join(stretch, NONE, ledger);
        }
    }
}

impl SlotMap {
    /// Whether no slot belongs to anybody and no table is left over.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.stretches.iter().all(|&stretch| stretch == NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::{Amounts, UNLIMITED};
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    /// Slots that are compared: around the ends of stretches.
    const EDGES: [u64; 9] = [
        0,
        1,
        2,
        REACH - 2,
        REACH - 1,
        REACH,
        REACH + 1,
        2 * REACH - 1,
        2 * REACH,
    ];

    fn range() -> impl Strategy<Value = (u64, u64)> {
        let edge = || prop::sample::select(&EDGES);
        let ends = (edge(), edge()).prop_map(|(one, other)| (one.min(other), one.max(other) + 1));
        prop_oneof![edge().prop_map(|slot| (slot, slot + 1)), ends]
    }

    proptest! {
        /// Objects that are made, cut and deleted, against a map; each table is paid by somebody, and two tables are all that the account can pay.
        #[test]
        fn it_says_whose_each_slot_is(steps in prop::collection::vec((range(), 0..4), 0..60)) {
            let mut ledger = Ledger::new(1);
            let limits: Amounts = core::array::from_fn(|at| if at == Resource::Bytes as usize { 2 * TABLE_BYTES } else { UNLIMITED[at] });
            let payer = ledger.open(AccountId::ROOT, limits).unwrap();
            let mut map = SlotMap::new();
            let mut objects: BTreeMap<u64, (u64, u32)> = BTreeMap::new();
            for (number, ((first, end), act)) in steps.into_iter().enumerate() {
                let owner = number as u32;
                let over = |(&base, &(past, _)): (&u64, &(u64, u32))| base < end && first < past;
                let there = objects.iter().find(|object| over(*object)).map(|(&base, &object)| (base, object));
                let before: Vec<_> = EDGES.iter().map(|&slot| map.run(slot)).collect();
                let result = match (act, there) {
                    (0..2, None) => map.set(first, end - first, Some(owner), payer, &mut ledger).map(|()| {
                        objects.insert(first, (end, owner));
                    }),
                    (2, Some((base, (past, _)))) => map.set(base, past - base, None, payer, &mut ledger).map(|()| {
                        objects.remove(&base);
                    }),
                    // The end of an object is cut off, with room that was seen to before.
                    (3, Some((base, (past, owner)))) if base < first && first < past => {
                        map.expect_end(first, payer, &mut ledger).map(|()| {
                            map.set(first, past - first, None, payer, &mut ledger).unwrap();
                            objects.insert(base, (first, owner));
                        })
                    }
                    _ => Ok(()),
                };
                if let Err(error) = result {
                    prop_assert_eq!(error, Error::LimitReached);
                    let after: Vec<_> = EDGES.iter().map(|&slot| map.run(slot)).collect();
                    prop_assert_eq!(before, after);
                }
                let mut tables = 0;
                for stretch in 0..3 {
                    let (from, to) = (stretch * REACH, (stretch + 1) * REACH);
                    let whole = objects.iter().any(|(&base, &(past, _))| base <= from && to <= past);
                    let some = objects.iter().any(|(&base, &(past, _))| base < to && from < past);
                    tables += u64::from(some && !whole);
                    // A table that was made for one owner stays until nobody has any of it.
                    let (next, _) = map.run(from).unwrap();
                    let expected = if some && !whole { next == from + 1 } else { some || next == to };
                    prop_assert!(expected);
                }
                let paid: u64 = map.charges().map(|(by, bytes)| { assert_eq!(by, payer); bytes }).sum();
                prop_assert_eq!(ledger.used(payer, Resource::Bytes), paid);
                prop_assert!(paid >= tables * TABLE_BYTES);
                for slot in EDGES {
                    let wanted = objects.range(..=slot).next_back().filter(|(_, object)| slot < object.0).map(|(_, object)| object.1);
                    prop_assert_eq!(map.get(slot), wanted);
                    let (next, owner) = map.run(slot).unwrap();
                    prop_assert_eq!(owner, wanted);
                    prop_assert!(next > slot && (slot..next).all(|slot| map.get(slot) == wanted));
                }
            }
            for (base, (past, _)) in objects {
                map.set(base, past - base, None, payer, &mut ledger).unwrap();
            }
            prop_assert!(map.is_empty() && ledger.used(payer, Resource::Bytes) == 0);
        }
    }

    #[test]
    fn there_is_nothing_behind_the_last_slot() {
        let (mut map, mut ledger) = (SlotMap::new(), Ledger::new(1));
        let end = (USER_END / SLOT).div_ceil(REACH) * REACH;
        map.set(end - 1, 1, Some(5), AccountId::ROOT, &mut ledger).unwrap();
        assert_eq!((map.get(end - 1), map.run(end - 1)), (Some(5), Some((end, Some(5)))));
        assert_eq!((map.get(end), map.run(end)), (None, None));
        let behind = map.set(end, 1, Some(5), AccountId::ROOT, &mut ledger);
        assert_eq!(behind, Err(Error::BadAddress));
    }
}
