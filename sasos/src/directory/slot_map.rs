//! Which object a slot belongs to: a two-level table over all slot numbers of the address space.
//!
//! A stretch of two gigabytes that belongs to one object, or to none, takes one entry; others
//! have a table of their own while anything is in it. The account whose object parts a stretch pays for that table, until it goes (decision 0120).
//! A stretch is so small that an object that parts two of them is entered in one piece.
//!
//! A table has a list of runs, one for each of the first few objects in the stretch. With more of them it is full: it has a word for each slot, too. The slots of an object
//! are one run, to which it adds and from which it gives back only at the end, or all. So the list never has two runs of one object, and slots go back to nobody without memory,
//! from a list as from a full table.

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

/// Slot numbers in a stretch.
pub(crate) const REACH: u64 = 1024;
/// The cost of an entry that changes, in instructions, roughly.
const COST_ENTRY: u64 = 5;
const STRETCHES: u64 = (USER_END / SLOT).div_ceil(REACH);

/// The cost of a full table that becomes a list, beside that of the slots.
const COST_LIST: u64 = 3000;

/// The cost of giving so many slots another owner. Whole stretches are one entry each.
pub(crate) const fn cost_of_slots(slots: u64) -> Cost {
    Cost::own(COST_ENTRY * if slots < REACH { slots } else { REACH })
}

/// Runs in the list of a table. A table with more is full, and no other.
const RUNS: usize = 16;

/// Bytes of a table, and of the words for each slot that a full one has beside that.
const TABLE_BYTES: u64 = size_of::<Table>() as u64;
const WORDS_BYTES: u64 = REACH * size_of::<u32>() as u64;

/// The slots of a stretch that an owner has.
#[derive(Clone, Copy)]
struct Run {
    from: u16,
    to: u16,
    owner: u32,
}

/// The owners of the slots of a stretch.
struct Table {
    /// The owner of each slot, in a full table. Empty in others.
    words: Vec<u32>,
    /// The runs, in order, in a table that is not full.
    list: [Run; RUNS],
    /// How many runs there are, in either.
    runs: usize,
    /// The account that pays for the table, and that which pays for the words.
    payer: AccountId,
    words_payer: AccountId,
}

impl Table {
    const OF_NOBODY: Self = Self {
        words: Vec::new(),
        list: [Run {
            from: 0,
            to: 0,
            owner: NONE,
        }; RUNS],
        runs: 0,
        payer: AccountId::ROOT,
        words_payer: AccountId::ROOT,
    };

    fn is_full(&self) -> bool {
        !self.words.is_empty()
    }

    #[inline]
    fn get(&self, slot: usize) -> u32 {
        match self.words.get(slot) {
            Some(&owner) => owner,
            None => self.listed(slot).1,
        }
    }

    /// A slot behind this one up to which nothing changes, the next one in a full table, and the owner.
    fn run(&self, slot: usize) -> (usize, u32) {
        match self.words.get(slot) {
            Some(&owner) => (slot + 1, owner),
            None => self.listed(slot),
        }
    }

    /// The same, in a table that is not full.
    #[inline(never)]
    fn listed(&self, slot: usize) -> (usize, u32) {
        match self.list.get(self.behind(slot)..self.runs) {
            Some([run, ..]) if usize::from(run.from) <= slot => (usize::from(run.to), run.owner),
            Some([run, ..]) => (usize::from(run.from), NONE),
            _ => (REACH as usize, NONE),
        }
    }

    /// The place of the first run that ends behind a slot.
    #[inline]
    fn behind(&self, slot: usize) -> usize {
        let list = self.list.get(..self.runs).unwrap_or_default();
        // Most look for the objects that were made last, which stand at the end.
        let before = list.iter().rposition(|run| usize::from(run.to) <= slot);
        before.map_or(0, |place| place + 1)
    }

    /// Whether an owner can get slots, or nobody.
    fn has_room(&self, owner: u32) -> bool {
        owner == NONE || self.is_full() || self.runs < RUNS || self.list.iter().any(|run| run.owner == owner)
    }

    /// Gives slots to an owner for whom there is room, or to nobody.
    fn set(&mut self, from: usize, to: usize, owner: u32) {
        if !self.set_words(from, to, owner) {
            self.set_list(from, to, owner);
        }
    }

    /// The same in a table that is not full.
    fn set_list(&mut self, from: usize, to: usize, owner: u32) {
        let (place, [first, end]) = (self.behind(from), [from as u16, to as u16]);
        let (before, behind) = self.list.split_at_mut(place);
        match (before.last_mut(), behind) {
            (Some(run), _) if run.owner == owner => run.to = end,
            (_, []) => {}
            (_, [run, ..]) if owner == NONE && run.from < first => run.to = first,
            (_, behind) if owner == NONE => {
                behind.copy_within(1.., 0);
                self.runs -= 1;
            }
            (_, behind) => {
                behind.copy_within(..behind.len() - 1, 1);
                behind[0] = Run {
                    from: first,
                    to: end,
                    owner,
                };
                self.runs += 1;
            }
        }
    }

    /// The same, if the table is full and has these slots; tells whether. The run goes on from the slot before, or it comes or goes.
    #[inline]
    fn set_words(&mut self, from: usize, to: usize, owner: u32) -> bool {
        let Some((before, [first, rest @ ..])) = self
            .words
            .get_mut(..to)
            .and_then(|words| words.split_at_mut_checked(from))
        else {
            return false;
        };
        let whose = if owner == NONE { *first } else { owner };
        *first = owner;
        if !rest.is_empty() {
            rest.fill(owner);
        }
        if before.last() != Some(&whose) {
            self.runs = if owner == NONE { self.runs - 1 } else { self.runs + 1 };
        }
        true
    }

    /// Makes a full table of one that has a list. The account that pays for the table pays for the words, too, unless its limit is near:
    /// then that of the object which is one too many.
    fn make_full(&mut self, payer: AccountId, ledger: &mut Ledger) -> Result<(), Error> {
        let mut payers = [self.payer, payer].into_iter();
        let payer = payers.find(|&payer| ledger.take(payer, Resource::Bytes, WORDS_BYTES).is_ok());
        let payer = payer.ok_or(Error::LimitReached)?;
        self.words = filled(NONE, REACH as usize).inspect_err(|_| ledger.give(payer, Resource::Bytes, WORDS_BYTES))?;
        self.words_payer = payer;
        for run in self.list.iter().take(self.runs) {
            self.words[usize::from(run.from)..usize::from(run.to)].fill(run.owner);
        }
        Ok(())
    }

    /// Makes a list of the words of a full table. There are so few runs.
    #[cold]
    fn make_list(&mut self, ledger: &mut Ledger) {
        let words = core::mem::take(&mut self.words);
        ledger.give(self.words_payer, Resource::Bytes, WORDS_BYTES);
        self.runs = 0;
        let mut from = 0;
        while let Some(&owner) = words.get(from) {
            let mut to = from + 1;
            // Most gaps are long. Two words are compared at once.
            while let Some(next) = words.get(to..).and_then(<[u32]>::first_chunk::<16>)
                && next.as_chunks().0.iter().all(|two| *two == [owner; 2])
            {
                to += next.len();
            }
            while words.get(to) == Some(&owner) {
                to += 1;
            }
            if owner != NONE
                && let Some(run) = self.list.get_mut(self.runs)
            {
                (run.from, run.to, run.owner) = (from as u16, to as u16, owner);
                self.runs += 1;
            }
            from = to;
        }
    }
}

/// Slot numbers to objects.
pub(crate) struct SlotMap {
    /// The owner of each stretch, or its table.
    stretches: Vec<u32>,
    tables: Places<Table>,
    /// A table of a stretch that is nobody's any more, for the next one that is parted. Nobody pays for it.
    spare: Option<Boxed<Table>>,
    /// Full tables that became lists, until that is charged.
    lists: u64,
}

impl SlotMap {
    pub(crate) fn new() -> Self {
        Self {
            stretches: (0..STRETCHES).map(|_| NONE).collect(),
            tables: Places::default(),
            spare: None,
            lists: 0,
        }
    }

    /// The owner of a slot.
    #[inline]
    pub(crate) fn get(&self, slot: u64) -> Option<u32> {
        let mut owner = *self.stretches.get((slot / REACH) as usize)?;
        if owner & TABLE != 0 {
            owner = self.tables.get(owner & !TABLE)?.get((slot % REACH) as usize);
        }
        (owner != NONE).then_some(owner)
    }

    /// The owner of a slot, and a slot behind it up to which nothing changes: at most the end of the stretch. None behind the last one.
    pub(crate) fn run(&self, slot: u64) -> Option<(u64, Option<u32>)> {
        let stretch = *self.stretches.get((slot / REACH) as usize)?;
        let at = (slot % REACH) as usize;
        let (next, owner) = match stretch & TABLE {
            0 => (REACH as usize, stretch),
            _ => self.tables.get(stretch & !TABLE)?.run(at),
        };
        Some((slot - at as u64 + next as u64, (owner != NONE).then_some(owner)))
    }

    /// The table of a stretch, if it has one.
    fn table(&mut self, stretch: u64) -> Option<&mut Table> {
        let entry = *self.stretches.get(stretch as usize)?;
        (entry & TABLE != 0).then(|| self.tables.get_mut(entry & !TABLE))?
    }

    /// Gives slots to an owner, or to none. They all had the other state before. An owner that has slots gets those behind them, and
    /// gives back its last ones or all. `payer` pays for what this makes.
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
        let (end, owner) = (first + count, owner.unwrap_or(NONE));
        // Most objects lie in one stretch, which has a table that stays.
        let from = (first % REACH) as usize;
        let to = from + count as usize;
        if let Some(table) = self.table(first / REACH) {
            if table.set_words(from, to, owner) {
                if table.runs <= RUNS {
                    table.make_list(ledger);
                    self.lists += 1;
                }
                return Ok(());
            }
            let stays = if owner == NONE {
                table.runs > 1
            } else {
                table.has_room(owner)
            };
            if !table.is_full() && to <= REACH as usize && count < REACH && stays {
                table.set_list(from, to, owner);
                return Ok(());
            }
        }
        self.set_parts(first, end, owner, payer, ledger)
    }

    /// The same, in any tables.
    #[inline(never)]
    fn set_parts(
        &mut self,
        first: u64,
        end: u64,
        owner: u32,
        payer: AccountId,
        ledger: &mut Ledger,
    ) -> Result<(), Error> {
        let [head, tail] = [first / REACH, (end - 1) / REACH];
        // Only the first and the last stretch can be parted.
        let mut made = false;
        if !first.is_multiple_of(REACH) || end < (head + 1) * REACH {
            made = self.make_room(head, owner, payer, ledger)?;
        }
        if tail != head
            && !end.is_multiple_of(REACH)
            && let Err(error) = self.make_room(tail, owner, payer, ledger)
        {
            match self.table(head).filter(|_| made) {
                Some(table) if table.is_full() => table.make_list(ledger),
                Some(table) => {
                    let before = table.get(0);
                    self.join(head, before, ledger);
                }
                None => {}
            }
            return Err(error);
        }
        for stretch in head..=tail {
            let start = stretch * REACH;
            self.set_part(
                stretch,
                first.max(start) - start,
                (end - start).min(REACH),
                owner,
                ledger,
            );
        }
        Ok(())
    }

    /// Sees to it that slots from this one on can be given to nobody without memory: the stretch that this parts has a table. The account
    /// gets back more with the slots, so its limit does not matter.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn expect_end(&mut self, slot: u64, payer: AccountId, ledger: &mut Ledger) -> Result<(), Error> {
        if slot.is_multiple_of(REACH) || self.table(slot / REACH).is_some() {
            return Ok(());
        }
        self.part(slot / REACH, payer)?;
        ledger.force(payer, Resource::Bytes, TABLE_BYTES);
        Ok(())
    }

    /// The cost of full tables that have become lists since this was asked last.
    pub(crate) fn cost_of_lists(&mut self) -> Cost {
        Cost::own(COST_LIST * core::mem::take(&mut self.lists))
    }

    /// The accounts that pay for each table, and how many bytes.
    pub(crate) fn charges(&self) -> impl Iterator<Item = (AccountId, u64)> {
        self.tables.iter().flat_map(|(_, table)| {
            let words = if table.is_full() { WORDS_BYTES } else { 0 };
            [(table.payer, TABLE_BYTES), (table.words_payer, words)]
        })
    }

    /// Sees to it that a part of a stretch can be given to an owner, or to nobody; tells whether that has made anything.
    fn make_room(&mut self, stretch: u64, owner: u32, payer: AccountId, ledger: &mut Ledger) -> Result<bool, Error> {
        match self.table(stretch) {
            Some(table) if table.has_room(owner) => return Ok(false),
            Some(table) => table.make_full(payer, ledger)?,
            None => {
                ledger.take(payer, Resource::Bytes, TABLE_BYTES)?;
                let parted = self.part(stretch, payer);
                parted.inspect_err(|_| ledger.give(payer, Resource::Bytes, TABLE_BYTES))?;
            }
        }
        Ok(true)
    }

    /// Gives a stretch that has none a table of its own, which is charged to the payer already.
    fn part(&mut self, stretch: u64, payer: AccountId) -> Result<(), Error> {
        let entry = self.stretches.get_mut(stretch as usize).ok_or(Error::BadAddress)?;
        let number = self.tables.vacant()?;
        let mut table = match self.spare.take() {
            Some(spare) => spare,
            None => boxed(Table::OF_NOBODY)?,
        };
        table.payer = payer;
        if *entry != NONE {
            table.set(0, REACH as usize, *entry);
        }
        self.tables.put(number, table);
        *entry = TABLE | number;
        Ok(())
    }

    /// All of a stretch is of one owner, or of none: its table goes, which is not full.
    fn join(&mut self, stretch: u64, owner: u32, ledger: &mut Ledger) {
        if let Some(entry) = self.stretches.get_mut(stretch as usize) {
            let before = core::mem::replace(entry, owner);
            if before & TABLE != 0
                && let Some(table) = self.tables.take(before & !TABLE)
            {
                debug_assert!(!table.is_full(), "the slots of one object are one run");
                ledger.give(table.payer, Resource::Bytes, TABLE_BYTES);
                if table.runs == 0 {
                    self.spare = Some(table);
                }
            }
        }
    }

    /// Gives slots of a stretch that has room to an owner, or to nobody.
    fn set_part(&mut self, stretch: u64, from: u64, to: u64, owner: u32, ledger: &mut Ledger) {
        if to - from == REACH {
            self.join(stretch, owner, ledger);
            return;
        }
        let Some(table) = self.table(stretch) else { return };
        table.set(from as usize, to as usize, owner);
        if table.runs == 0 {
            self.join(stretch, NONE, ledger);
        } else if table.runs <= RUNS && table.is_full() {
            table.make_list(ledger);
            self.lists += 1;
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

    const EDGE: u64 = RUNS as u64 + 4;

    /// Slots that are compared, and where objects begin and end: more at the beginning of two stretches than a list has runs, and the ends of stretches.
    fn edges() -> Vec<u64> {
        (0..EDGE)
            .chain(REACH - 2..REACH + EDGE)
            .chain(2 * REACH - 1..=2 * REACH)
            .collect()
    }

    fn range() -> impl Strategy<Value = (u64, u64)> {
        let edge = || prop::sample::select(edges());
        let ends = (edge(), edge()).prop_map(|(one, other)| (one.min(other), one.max(other) + 1));
        prop_oneof![20 => edge().prop_map(|slot| (slot, slot + 1)), 1 => ends]
    }

    #[derive(Clone, Copy, Debug)]
    enum Act {
        Make,
        Delete,
        Cut,
        Grow,
    }

    /// Many objects are made, then many deleted, and so on.
    fn acts() -> impl Strategy<Value = Vec<(Act, (u64, u64))>> {
        let some = |makes, deletes| {
            let act = prop_oneof![makes => Just(Act::Make), deletes => Just(Act::Delete), 1 => Just(Act::Cut), 1 => Just(Act::Grow)];
            prop::collection::vec((act, range()), 0..150)
        };
        let both = (some(12, 1), some(1, 12)).prop_map(|(more, fewer)| [more, fewer].concat());
        prop::collection::vec(both, 1..4).prop_map(|parts| parts.concat())
    }

    /// The payer that the table of a stretch should have, and that of its words.
    type Paid = Option<(AccountId, Option<AccountId>)>;

    proptest! {
        /// Objects that are made, cut, extended and deleted, against a map. What each of two accounts is charged for is there, and told, and an account
        /// can pay for two tables and for the words of one.
        #[test]
        fn it_says_whose_each_slot_is(steps in acts()) {
            let mut ledger = Ledger::new(1);
            let most = 2 * TABLE_BYTES + WORDS_BYTES;
            let limits: Amounts = core::array::from_fn(|at| if at == Resource::Bytes as usize { most } else { UNLIMITED[at] });
            let payers = [0; 2].map(|_| ledger.open(AccountId::ROOT, limits).unwrap());
            let mut map = SlotMap::new();
            // By the first slot: the slot behind the last one, and the owner.
            let mut objects: BTreeMap<u64, (u64, u32)> = BTreeMap::new();
            let mut tables: [Paid; 3] = [None; 3];
            for (number, (act, (first, end))) in steps.into_iter().enumerate() {
                let there = |from: u64, to: u64| {
                    let mut all = objects.iter().filter(move |&(&base, &(past, _))| base < to && from < past);
                    all.next().map(|(&base, &(past, owner))| (base, past, owner))
                };
                let payer_of = |owner: u32| payers[owner as usize % 2];
                let (mut payer, owner) = (payer_of(number as u32), number as u32);
                let changed = match (act, there(first, end)) {
                    (Act::Make, None) => map.set(first, end - first, Some(owner), payer, &mut ledger).map(|()| Some((first, end, owner))),
                    (Act::Delete, Some((base, past, owner))) => {
                        map.set(base, past - base, None, payer_of(owner), &mut ledger).unwrap();
                        Ok(Some((base, base, owner)))
                    }
                    // The end of an object is cut off, with room that was seen to before.
                    (Act::Cut, Some((base, past, owner))) if base < first && first < past => {
                        payer = payer_of(owner);
                        map.expect_end(first, payer, &mut ledger).unwrap();
                        map.set(first, past - first, None, payer, &mut ledger).unwrap();
                        Ok(Some((base, first, owner)))
                    }
                    (Act::Grow, Some((base, past, owner))) if past < end && there(past, end).is_none() => {
                        payer = payer_of(owner);
                        map.set(past, end - past, Some(owner), payer, &mut ledger).map(|()| Some((base, end, owner)))
                    }
                    _ => Ok(None),
                };
                match changed {
                    Ok(Some((base, past, _))) if base == past => { objects.remove(&base); }
                    Ok(Some((base, past, owner))) => { objects.insert(base, (past, owner)); }
                    Ok(None) => {}
                    Err(error) => prop_assert_eq!(error, Error::LimitReached),
                }
                let mut paid = [0; 2];
                for (stretch, table) in (0..).zip(&mut tables) {
                    let (from, to) = (stretch * REACH, (stretch + 1) * REACH);
                    let parts: Vec<_> = objects.iter().filter(|&(&base, &(past, _))| base < to && from < past).collect();
                    let whole = parts.iter().any(|&(&base, &(past, _))| base <= from && to <= past);
                    // A table that was made for one owner stays until nobody has any of it.
                    *table = match *table {
                        _ if parts.is_empty() => None,
                        None if whole => None,
                        None => Some((payer, None)),
                        Some((by, _)) if parts.len() <= RUNS => Some((by, None)),
                        // The second one pays if the first cannot.
                        Some((by, None)) => {
                            let table = map.table(stretch).unwrap();
                            prop_assert!([by, payer].contains(&table.words_payer));
                            Some((by, Some(table.words_payer)))
                        }
                        table => table,
                    };
                    let charges = table.iter().flat_map(|&(by, words)| [Some((by, TABLE_BYTES)), words.map(|by| (by, WORDS_BYTES))]);
                    charges.flatten().for_each(|(by, bytes)| paid[usize::from(by == payers[1])] += bytes);
                }
                for (payer, paid) in payers.into_iter().zip(paid) {
                    prop_assert_eq!(ledger.used(payer, Resource::Bytes), paid);
                    prop_assert_eq!(map.charges().filter(|charge| charge.0 == payer).map(|charge| charge.1).sum::<u64>(), paid);
                }
                let bytes = map.tables.iter().map(|(_, table)| size_of_val(table) + size_of_val(&*table.words));
                prop_assert_eq!(bytes.sum::<usize>() as u64, paid[0] + paid[1]);
                let wanted = |slot: u64| {
                    let object = objects.range(..=slot).next_back().filter(|(_, object)| slot < object.0);
                    object.map(|(_, object)| object.1)
                };
                for slot in edges() {
                    prop_assert_eq!(map.get(slot), wanted(slot));
                    let (next, owner) = map.run(slot).unwrap();
                    prop_assert_eq!(owner, wanted(slot));
                    prop_assert!(next > slot && next <= (slot / REACH + 1) * REACH);
                    prop_assert!(edges().into_iter().chain([next - 1]).all(|other| !(slot..next).contains(&other) || wanted(other) == owner));
                }
            }
            for (base, (past, _)) in objects {
                map.set(base, past - base, None, payers[0], &mut ledger).unwrap();
            }
            prop_assert!(map.is_empty() && payers.iter().all(|&payer| ledger.used(payer, Resource::Bytes) == 0));
        }
    }

    /// The last object of a stretch that had many has a table as small as one that was always alone.
    #[test]
    fn a_lone_object_in_a_stretch_has_a_small_table() {
        let (mut map, mut ledger) = (SlotMap::new(), Ledger::new(1));
        for stretch in 0..1000 {
            let mut set = |slot: u64, owner| {
                map.set(stretch * REACH + 3 * slot, 2, owner, AccountId::ROOT, &mut ledger)
                    .unwrap();
            };
            let others = if stretch % 2 == 0 { 0 } else { 40 };
            (0..=others).for_each(|other| set(other, Some(7 + other as u32)));
            (0..others).for_each(|other| set(other, None));
        }
        assert_eq!(map.lists, 500, "the cost of each is told");
        let bytes: u64 = map.charges().map(|charge| charge.1).sum();
        assert!(bytes < 1000 * 300, "{bytes}");
        assert_eq!(ledger.used(AccountId::ROOT, Resource::Bytes), bytes);
    }

    /// An object over the border of two stretches makes the first table full, and cannot pay for that of the second.
    #[test]
    fn an_object_that_cannot_pay_for_all_pays_for_nothing() {
        for (objects, cost) in [(0, TABLE_BYTES), (RUNS as u64, WORDS_BYTES)] {
            let (mut map, mut ledger) = (SlotMap::new(), Ledger::new(1));
            let mut limits = UNLIMITED;
            limits[Resource::Bytes as usize] = TABLE_BYTES + WORDS_BYTES - 1;
            let before = ledger.open(AccountId::ROOT, limits).unwrap();
            for slot in 0..objects {
                map.set(slot, 1, Some(slot as u32), before, &mut ledger).unwrap();
            }
            for (limit, expected) in [
                (cost + TABLE_BYTES - 1, Err(Error::LimitReached)),
                (cost + TABLE_BYTES, Ok(())),
            ] {
                let mut limits = UNLIMITED;
                limits[Resource::Bytes as usize] = limit;
                let payer = ledger.open(AccountId::ROOT, limits).unwrap();
                let made = map.set(REACH - 3, 8, Some(100), payer, &mut ledger);
                assert_eq!(made, expected);
                let paid = if made.is_ok() { limit } else { 0 };
                assert_eq!(ledger.used(payer, Resource::Bytes), paid);
                let all: u64 = map.charges().map(|charge| charge.1).sum();
                assert_eq!(all, paid + objects.min(1) * TABLE_BYTES);
                assert_eq!(
                    [REACH - 3, REACH + 4].map(|slot| map.get(slot)),
                    [made.is_ok().then_some(100); 2]
                );
                assert!((0..objects).all(|slot| map.get(slot) == Some(slot as u32)));
                ledger.close(payer);
            }
        }
    }

    /// The first account of a stretch pays for all of its table, and gets back what an object less makes needless.
    #[test]
    fn the_first_account_pays_for_a_full_table_if_it_can() {
        let (mut map, mut ledger) = (SlotMap::new(), Ledger::new(1));
        let [first, other] = [0; 2].map(|_| ledger.open(AccountId::ROOT, UNLIMITED).unwrap());
        let mut set = |slot: u64, owner: Option<u32>, payer| {
            map.set(slot, 1, owner, payer, &mut ledger).unwrap();
            [first, other].map(|payer| ledger.used(payer, Resource::Bytes))
        };
        assert_eq!(set(0, Some(0), first), [TABLE_BYTES, 0]);
        for slot in 1..RUNS as u64 {
            assert_eq!(set(slot, Some(slot as u32), other), [TABLE_BYTES, 0]);
        }
        assert_eq!(set(RUNS as u64, Some(99), other), [TABLE_BYTES + WORDS_BYTES, 0]);
        assert_eq!(set(5, None, other), [TABLE_BYTES, 0]);
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
