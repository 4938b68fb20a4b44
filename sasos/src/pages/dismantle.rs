//! Emptying an object in pieces, before it ends in memory, or what it has behind its end when it was cut short. Its content is nobody's by then: the
//! store has deleted a kept object, or made it shorter. A transient one that is deleted loses its content with the first piece.

use core::ops::Range;

use abi::{
    Rights,
    address::{PAGE, SLOT, slot_of},
};

use crate::{
    Server, Step, Stop, World,
    directory::object::{Object, ObjectId, Which, slots_for},
    directory::slot_map::cost_of_slots,
    lives::budget::{Allowance, Cost},
    lives::continuation::Continuation,
    lives::thread::Caller,
    pages::page,
    pages::release::Remembered,
    pages::slots::Slot,
    protection::withdraw::FEW,
};

/// The cost of dropping a page of an object, in instructions, roughly.
const COST_PAGE: Cost = Cost::calling(550, 2);
/// The same where nobody remembers it.
const COST_FORGOTTEN: Cost = Cost::calling(120, 1);
/// The further cost where the store may take a promise of space back, and that of the first one in a page table, which stands elsewhere.
const COST_UNPROMISED: Cost = Cost::own(290);
const COST_APART: Cost = Cost::own(1_800);
/// The cost of a page of a persistent object that is clean, where pages are looked at and dropped one by one.
const COST_CLEAN: Cost = Cost::calling(1100, 4);
/// The same of a page table.
const COST_TABLE: Cost = Cost::calling(500, 1);
/// The same of a link to one, for each domain that may have it.
const COST_LINK: Cost = Cost::calling(110, 1);
/// The cost of looking whether a page table has a page, and how many are looked at, at least and at most, before those without are taken back.
const COST_LOOK: u64 = 40;
const LOOKS_LEAST: u64 = 8;
const LOOKS_MOST: u64 = 100;

impl Server {
    /// Drops what an object has in a range of its addresses from `at` on as far as the budget reaches, and tells where to go on. A wrong place
    /// costs time only. `None`: so little is left that the end of the object can drop it at once.
    pub(crate) fn dismantle<W: World>(
        &mut self,
        world: &mut W,
        id: ObjectId,
        range: &Range<u64>,
        at: u64,
    ) -> Option<u64> {
        let at = if range.contains(&at) || at == range.end {
            at
        } else {
            range.start
        };
        if self.pager.awaits_pages() && !self.forget_reads(world, range.start, range.end) {
            return Some(at);
        }
        // These get on with whatever is left, and so come before what has to fit into the rest.
        if !self.semaphores_go(world, range.clone()) || !self.unprepare(id) {
            return Some(at);
        }
        let object = self.objects.get(id);
        // Most objects are small: all that they have is left to the end.
        let costs = Costs::of(object, self.budget);
        let whole = costs.all(object);
        if object.slots.is_one() && self.budget.has(Cost::own(whole)) {
            self.budget.spend(Cost::own(whole));
            return None;
        }
        let (end, cost) = piece_of(object, costs, at, range.end, self.budget);
        let first = object.first_slot();
        // Tables of slots that stay in part stay.
        let whole = if range.start == object.base() {
            0
        } else {
            slots_for(object.base(), object.page_of(range.start))
        };
        let fits = self.budget.has(Cost::own(cost));
        self.budget.spend(Cost::own(cost));
        // The records of a sparse object's slots go here, and therefore all of its tables before.
        if !fits || object.slots.chunks() > 1 && at < end {
            let slots = whole.max(slot_of(at) - first)..slot_of(end - 1) - first + 1;
            let remembered = Remembered::of(object);
            self.drop_pages(world, id, at, end, remembered);
            self.drop_leaves(world, id, &slots);
        }
        if !fits {
            return Some(end);
        }
        (!self.forget_slots(id, whole)).then_some(at)
    }

    /// Whether a range of a transient object has no page in memory. Page tables without a page are taken back if they are many, so that the look
    /// that decides it is short, and in one piece.
    ///
    /// # Errors
    /// [`Stop::Again`].
    pub(crate) fn is_bare<W: World>(&mut self, world: &mut W, caller: Caller, range: page::Range) -> Step<bool> {
        let most = (self.budget.left() / COST_LOOK).clamp(LOOKS_LEAST, LOOKS_MOST);
        let (mut from, mut tables) = (range.from, most);
        let object = self.objects.get(range.id);
        let page = object.next_near(Which::Resident, &mut from, range.to, &mut tables);
        self.budget.spend(Cost::own((most - tables) * COST_LOOK));
        if page.is_some() || tables > 0 {
            return Ok(page.is_none());
        }
        let own = object.serial;
        let withdrawn = match self.threads.record(caller.thread).continuation {
            Continuation::Guards { serial, withdrawn } if serial == own => withdrawn,
            _ if object.nodes.len() <= FEW => None,
            _ => Some(self.withdraw_begin(world, range.id).epoch),
        };
        self.threads.record(caller.thread).continuation = Continuation::Guards { serial: own, withdrawn };
        if withdrawn.is_none_or(|epoch| self.unlink_older(world, range.id, epoch)) {
            self.bare_tables_go(world, range);
        }
        Err(Stop::Again)
    }

    /// Takes page tables without a page back, as far as the budget reaches. Those that have just been linked by one of many stay.
    fn bare_tables_go<W: World>(&mut self, world: &mut W, range: page::Range) {
        let id = range.id;
        let first = self.objects.get(id).first_slot();
        let (mut next, end) = (slot_of(range.from) - first, slot_of(range.to - 1) - first + 1);
        while self.budget.spend(Cost::calling(COST_LOOK, 1))
            && let object = self.objects.get(id)
            && let Some(number) = object.slots.next_with_leaf(next).filter(|&number| number < end)
        {
            next = number + 1;
            let state = object.slots.get(number).filter(|state| state.resident.is_empty());
            let Some(leaf) = state.and_then(Slot::leaf) else {
                continue;
            };
            let linked = world.frame_references(leaf.frame()) > 1;
            if linked && object.nodes.len() > FEW {
                continue;
            }
            self.budget.spend(if linked {
                COST_TABLE.and(COST_LINK.times(u64::from(FEW)))
            } else {
                COST_TABLE
            });
            let slots = number..next;
            if linked {
                self.unlink_everywhere(world, id, &slots);
            }
            self.leaves_go(world, id, &slots);
        }
    }

    /// Drops the pages of a persistent object in a range that the disk has as they are.
    pub(crate) fn drop_clean<W: World>(&mut self, world: &mut W, id: ObjectId, from: u64, to: u64) {
        let mut next = from;
        let remembered = Remembered::of(self.objects.get(id));
        while let Some(place) = self.objects.get(id).next_page(Which::Resident, next, to) {
            next = place.address + PAGE;
            let Some(entry) = world.leaf_get(place.leaf, place.index) else {
                continue;
            };
            let object = self.objects.get_mut(id);
            let writable = !entry.write_withheld && entry.limits.contains(Rights::W);
            let dirty = object.slots.touch(place.slot).dirty.has(place.index);
            // A frame that somebody else has too may be on its way to the disk. If none is, a clone has it.
            let may_be_written = self.checkpoint.is_busy() && world.frame_references(entry.frame) > 1;
            if dirty || writable || may_be_written {
                continue;
            }
            object.known = 0;
            self.drop_pages(world, id, place.address, next, remembered);
        }
    }
}

/// The costs of dropping parts of an object, in instructions, roughly, with those of the calls of the machine.
#[derive(Copy, Clone)]
pub(crate) struct Costs {
    /// A page.
    page: u64,
    /// A page table, and its link in one domain.
    table: u64,
    link: u64,
    /// The first page in a page table, beside that.
    apart: u64,
    /// Its addresses, when they come back.
    slots: u64,
}

impl Costs {
    /// Those of clean pages of an object that nobody has.
    #[inline]
    pub(crate) fn clean(budget: Allowance) -> Self {
        Self::priced(budget, COST_CLEAN, Cost::own(0))
    }

    /// Those of an object whose content is dropped.
    #[inline]
    fn of(object: &Object, budget: Allowance) -> Self {
        let page = if object.has_holders() {
            COST_PAGE
        } else {
            COST_FORGOTTEN
        };
        let costs = if object.blocks > 0 {
            Self::priced(budget, page.and(COST_UNPROMISED), COST_APART)
        } else {
            Self::priced(budget, page, Cost::own(0))
        };
        Self {
            slots: budget.price(cost_of_slots(object.slot_count())),
            ..costs
        }
    }

    #[inline]
    fn priced(budget: Allowance, page: Cost, apart: Cost) -> Self {
        Self {
            page: budget.price(page),
            table: budget.price(COST_TABLE),
            link: budget.price(COST_LINK),
            apart: budget.price(apart),
            slots: 0,
        }
    }

    /// That of the page table of a slot.
    #[inline]
    fn table(self, object: &Object, slot: u64) -> u64 {
        self.table + self.link * u64::from(object.linkers(slot))
    }

    /// That of all that an object has.
    #[inline]
    fn all(self, object: &Object) -> u64 {
        object.resident * self.page + object.leaves * (self.table(object, 0) + self.apart) + self.slots
    }
}

/// How far a piece from `at` on goes, and what it costs: more than is left of the budget, or all up to `to`.
pub(crate) fn piece_of(object: &Object, costs: Costs, at: u64, to: u64, budget: Allowance) -> (u64, u64) {
    let whole = costs.all(object);
    if budget.has(Cost::own(whole)) {
        return (to, whole);
    }
    let (mut end, mut cost) = (at, 0);
    while end < to && budget.has(Cost::own(cost)) {
        let Some(number) = object.slots.next_with_leaf(slot_of(end) - object.first_slot()) else {
            return (to, cost + costs.slots);
        };
        let start = (object.first_slot() + number) * SLOT;
        let from = end.saturating_sub(start).div_ceil(PAGE) as usize;
        let page = object.slots.get(number).and_then(|state| state.resident.next(from));
        let address = page.map(|index| start + index as u64 * PAGE);
        if let Some(address) = address.filter(|&address| address < to) {
            let apart = if from == 0 { costs.apart } else { 0 };
            (end, cost) = (address + PAGE, cost + costs.page + apart);
        } else {
            (end, cost) = ((start + SLOT).min(to), cost + costs.table(object, number));
        }
    }
    (end, cost + costs.slots)
}
