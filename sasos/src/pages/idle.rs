//! Things that nobody uses are taken back: callees that nobody is inside of, objects that are set aside, and the memory of kept objects that no domain has found.
//!
//! A kept object stays when its program ends, and with it page tables and the records of its slots, which are charged. They are taken back only when
//! somebody lacks memory ([`crate::lives::work`]), for to have them again costs time. Where it is heap that is lacking, objects of which nothing is left in memory come to rest.
//! Decisions 0137 and 0201.

use abi::{Error, address::slot_of};

use store::{LEAF_ROWS_MAX, Look};

use crate::{
    Server, World,
    accounts::{AccountId, Cached, Ledger, Resource},
    directory::activity::COST_REST,
    directory::creation::{AddressesOf, heap_reserve},
    directory::object::ObjectId,
    lives::budget::Cost,
    lives::work::{COST_LARGEST, Piece},
    pages::{
        dismantle::{Costs, piece_of},
        pager::FRAME_RESERVE,
        release::COST_NODE_GONE,
    },
    protection::withdraw::FEW,
};

/// The cost of going on to the next object, in instructions, roughly, and of looking at the records of neighbouring slots and freeing them. The latter begins with however little
/// is left of the budget, so its price is higher than what it takes: with 4,500 an urgent thread was up to 24,068 instructions late.
const COST_OBJECT: Cost = Cost::own(60);
const COST_CHUNK: Cost = Cost::own(8_000);
/// The cost of a row of a leaf that leaves memory: its lists are freed one by one, at some 90 instructions each (51 of them the allocator's, counted). Most rows have one list; rows with three
/// are longer, so that a leaf has fewer. All of a leaf go in one piece.
const COST_ROW_GONE: Cost = Cost::own(160);
const COST_LEAF_GONE: Cost = COST_ROW_GONE.times(LEAF_ROWS_MAX);
const _: () = assert!(COST_LEAF_GONE.outside() <= COST_LARGEST);
/// The cost of ending an object that was set aside.
const COST_ASIDE: Cost = Cost::calling(1_500, 4);
/// Objects in use that are taken back for one who is short: the next one looks at all others first.
const TAKEN_MOST: u32 = 1024;
/// Programs whose part of the cache is taken back one by one.
const USERS_MAX: u8 = 16;
/// How often an object is taken away anew from those who find it again meanwhile.
const TIMES_MAX: u8 = 8;
/// What is taken back here.
const MEMORY: [Resource; 3] = [Resource::Bytes, Resource::Tables, Resource::Frames];
/// Objects that nobody uses come to rest until this part of the heap is free, and those in use until this one is.
const PART_UNUSED: u64 = 2;
const PART_IN_USE: u64 = 8;
/// Free frames below which the machine is short of them.
const FEW_FRAMES: u64 = 2 * FRAME_RESERVE;

/// The things that are taken back now. Things in use are found again, or read again, which takes time: so they go only where the rest does not help.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Takes {
    Unused,
    /// The part of the cache of the program with this account number, which was so much, until it has half of that left.
    OfUser(u64, u64),
    /// Objects that nobody uses and for which a program pays, whose blocks it is charged for no more then.
    Paid,
    /// Leaves of the store's table that no object in use needs, until a part of the heap is free.
    Leaves,
    /// Things in use of all objects that no program pays for; if heap is lacking, or what one program has, of others, too.
    Used,
    /// All such leaves, and map nodes, each of which takes some heap.
    Nodes,
}

/// How far taking back has got.
#[derive(Copy, Clone)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each says one thing, and they are independent"
)]
pub(crate) struct Idle {
    /// Callees that are still to be looked at.
    callees: u32,
    /// Places of objects that were looked at: from the pager's hand on, and behind the last one from the first one on.
    seen: u32,
    /// Whether it is heap that is lacking.
    of_heap: bool,
    /// Whether one program alone is short.
    of_one: bool,
    /// Objects that were taken back from those who use them, or whose program pays for them.
    taken: u32,
    /// Whether there are objects that cannot come to rest before a checkpoint has written them.
    pub(crate) has_unwritten: bool,
    /// The address in that object to go on at; zero for its beginning.
    at: u64,
    /// Its slot whose record is next.
    slot: u64,
    /// The number of the account that lacks memory: what others pay for would not help it. It may end meanwhile, and so may the programs below.
    short: u64,
    takes: Takes,
    /// Such an object is taken away from those who have found it: nodes older than this epoch are to go.
    withdrawn: Option<u64>,
    /// An object that has come to rest here has left a leaf that may leave memory.
    rested: Option<u64>,
    /// How often that was begun anew.
    times: u8,
    /// How many programs' part of the cache was taken back.
    users: u8,
    /// The account number of the program that has most of the cache, as far as objects were looked at, and how much that was. One whose part is being taken back is none of these.
    most: (u64, u64),
    /// Programs with as much of the cache as this have it dirty or in use by a read under way: it cannot be taken back now.
    below: u64,
    /// Whether anything was taken back since these things were begun with, or since the beginning.
    gains: bool,
    pub(crate) has_gained: bool,
}

impl Default for Idle {
    fn default() -> Self {
        Self {
            callees: 0,
            seen: 0,
            of_heap: false,
            of_one: false,
            taken: 0,
            has_unwritten: false,
            at: 0,
            slot: 0,
            short: Ledger::ROOT_NUMBER,
            takes: Takes::Unused,
            withdrawn: None,
            rested: None,
            times: 0,
            users: 0,
            most: (Ledger::ROOT_NUMBER, 0),
            below: u64::MAX,
            gains: false,
            has_gained: false,
        }
    }
}

impl Server {
    /// Taking back begins anew, of what is charged to an account or below it.
    pub(crate) fn idle_anew(&mut self, short: AccountId) {
        self.pager.idle = Idle {
            callees: self.callees.end(),
            short: self.ledger.number(short),
            ..Idle::default()
        };
    }

    /// Whether an account has less than a part left of what it may have of something, or the machine is short of heap.
    fn has_little(&self, world: &impl World, short: AccountId, resources: &[Resource], part: u64) -> bool {
        let is_little = |&resource: &Resource| {
            let left = self.ledger.left(short, resource);
            left < left.saturating_add(self.ledger.used(short, resource)) / part
        };
        resources.iter().any(is_little) || self.lacks_heap(world)
    }

    /// Whether so much was taken back that the rest may stay: of what nobody uses all goes, but objects come to rest only until half of the heap is free, which the next program gets a part of; of what is in use
    /// a part goes.
    fn is_enough(&self, world: &impl World, short: AccountId) -> bool {
        let idle = &self.pager.idle;
        let (resources, part) = match idle.takes {
            Takes::Paid | Takes::Used => (&MEMORY[..], PART_IN_USE),
            _ if idle.of_heap => (&MEMORY[..1], PART_UNUSED),
            _ => return false,
        };
        let has_little = || {
            self.has_little(world, short, resources, part)
                || idle.of_heap && self.heap_for_programs(world) < Self::heap_part(world)
        };
        idle.gains && (idle.taken >= TAKEN_MOST || !has_little())
    }

    /// The account that lacks memory when somebody could not have some; none if it was refused for another reason.
    pub(crate) fn who_is_short(&self, world: &impl World, payer: AccountId, error: Error) -> Option<AccountId> {
        let machine = self.lacks_heap(world) || world.frames_free() < FEW_FRAMES;
        match error {
            Error::NoMemory | Error::LimitReached if machine => Some(AccountId::ROOT),
            Error::NoMemory | Error::LimitReached => self.ledger.who_is_short(payer),
            _ => None,
        }
    }

    /// Whether programs are refused heap, or soon are, whatever their accounts have left.
    fn lacks_heap(&self, world: &impl World) -> bool {
        self.heap_for_programs(world) == 0
    }

    /// The heap that programs may still take, whatever their accounts have left: rows of the store's table that nobody pays for take some, too.
    fn heap_for_programs(&self, world: &impl World) -> u64 {
        let reserve = heap_reserve(world);
        world.heap().1.saturating_sub(reserve + self.heap_of_first.max(reserve))
    }

    /// What of the heap is to be free when it was lacking.
    fn heap_part(world: &impl World) -> u64 {
        let (used, left) = world.heap();
        (used + left) / PART_IN_USE
    }

    /// Takes back all that nobody uses.
    pub fn take_back(&mut self, world: &mut impl World) {
        self.idle_anew(AccountId::ROOT);
        self.unbounded(|server| while server.idle_piece(world) == Piece::More {});
    }

    /// A piece of it.
    pub(crate) fn idle_piece(&mut self, world: &mut impl World) -> Piece {
        let has = |server: &Self| {
            (
                server.callees.count_open(),
                server.pager.leaves,
                server.objects.resident_pages,
                server.objects.count(),
            )
        };
        let before = has(self);
        let takes = self.pager.idle.takes;
        let Some(short) = self.ledger.find_known(self.pager.idle.short) else {
            // It has ended, which gives back all it had.
            self.pager.idle.has_gained = true;
            return Piece::Done;
        };
        let piece = if matches!(takes, Takes::Leaves | Takes::Nodes) {
            self.idle_nodes(world)
        } else {
            if self.pager.idle.seen == 0 {
                let part = if matches!(takes, Takes::Paid | Takes::Used) {
                    PART_IN_USE
                } else {
                    PART_UNUSED
                };
                self.pager.idle.of_heap = self.has_little(world, short, &MEMORY[..1], part);
            }
            self.idle_callees_and_objects(world, short)
        };
        self.pager.idle.gains |= has(self) != before;
        self.pager.idle.has_gained |= self.pager.idle.gains;
        if piece == Piece::More {
            return piece;
        }
        // To one program it helps what its own objects have, and nothing else.
        let are_all = self.ledger.is_within(self.programs, short);
        let mut idle = self.pager.idle;
        idle.of_one = !are_all;
        if let Takes::OfUser(number, had) = takes
            && let Some(user) = self.ledger.find_known(number)
        {
            let has = self.part_of_cache(self.ledger.cached(user));
            if !idle.gains {
                idle.below = idle.below.min(had);
            } else if has > idle.most.1 {
                idle.most = (number, has);
            }
        }
        let of_cache = are_all && self.is_cache_short(Error::LimitReached);
        // What was gained may be something else than what is lacking.
        let is_helped = idle.has_gained && self.who_is_short(world, short, Error::LimitReached).is_none();
        let takes = match takes {
            // Who has most of it gives way first: so none can take it from others by using much. Others may have filled it again meanwhile.
            Takes::Unused | Takes::OfUser(..) if of_cache && idle.users < USERS_MAX && idle.most.1 > 0 => {
                Takes::OfUser(idle.most.0, idle.most.1)
            }
            Takes::Unused | Takes::OfUser(..) if !is_helped && idle.of_heap => Takes::Paid,
            Takes::Unused | Takes::OfUser(..) | Takes::Paid if !is_helped && are_all && self.lacks_heap(world) => {
                Takes::Leaves
            }
            Takes::Unused | Takes::OfUser(..) | Takes::Paid | Takes::Leaves if !is_helped => Takes::Used,
            Takes::Used if are_all && !is_helped && self.lacks_heap(world) => Takes::Nodes,
            _ => return Piece::Done,
        };
        self.pager.idle = Idle {
            short: idle.short,
            takes,
            users: idle.users + 1,
            below: idle.below,
            has_gained: idle.has_gained,
            has_unwritten: idle.has_unwritten,
            of_one: idle.of_one,
            ..Idle::default()
        };
        Piece::More
    }

    /// Has the store give up leaves of the table, and then map nodes, that are as they are on the disk.
    fn idle_nodes(&mut self, world: &mut impl World) -> Piece {
        let takes_leaves = self.pager.idle.takes == Takes::Leaves;
        // Those that a running job has just read are not taken from under it.
        while !self.checkpoint.is_busy() {
            if !self.budget.spend(COST_NODE_GONE) {
                return Piece::More;
            }
            if let Some(rows) = self.store.drop_leaf() {
                self.budget.spend(COST_ROW_GONE.times(rows));
                self.pager.idle.gains |= rows > 0;
                self.store.give_heap_back();
                if takes_leaves && self.heap_for_programs(world) >= Self::heap_part(world) {
                    break;
                }
                continue;
            }
            if takes_leaves {
                break;
            }
            match self.store.shrink(world) {
                Look::Dropped => self.pager.idle.gains = true,
                Look::Passed => {}
                Look::Over => {
                    // The others go once a generation has written them.
                    if self.store.has_unwritten() {
                        self.checkpoint.request_generation();
                    }
                    break;
                }
            }
            self.store.give_heap_back();
        }
        Piece::Done
    }

    fn idle_callees_and_objects(&mut self, world: &mut impl World, short: AccountId) -> Piece {
        let callees = self.unused_callees_end(world, self.pager.idle.callees, short);
        self.pager.idle.callees = callees;
        if callees > 0 {
            return Piece::More;
        }
        while self.pager.idle.seen < self.objects.table_len() {
            let object = ObjectId(self.pager.hand_of_idle % self.objects.table_len());
            if !self.budget.spend(COST_OBJECT) || !self.idle_object(world, object, short) {
                return Piece::More;
            }
            self.pager.hand_of_idle = object.0 + 1;
            if self.is_enough(world, short) {
                break;
            }
            self.pager.idle = Idle {
                seen: self.pager.idle.seen + 1,
                slot: 0,
                at: 0,
                withdrawn: None,
                times: 0,
                ..self.pager.idle
            };
        }
        Piece::Done
    }

    /// Takes back what an object has in memory, if it is idle, as far as the budget reaches; tells whether that was all. Dirty pages stay, and so does what is
    /// charged for blocks of the disk while the program lives that pays for it.
    fn idle_object(&mut self, world: &mut impl World, id: ObjectId, short: AccountId) -> bool {
        if !self.leaf_goes() {
            return false;
        }
        if !self.objects.is_live(id) {
            return true;
        }
        let object = self.objects.get(id);
        if object.is_set_aside() && self.ledger.is_within(object.account, short) {
            let goes = self.budget.spend(COST_ASIDE);
            if goes {
                self.object_drop(world, id, AddressesOf::Free);
            }
            return goes;
        }
        if !object.is_persistent() || object.ends() || !self.ledger.is_within(object.account, short) {
            return true;
        }
        if object.leaves == 0 && object.slots.chunks() == 0 && object.limit_bytes == 0 {
            return self.idle_rests(world, id);
        }
        if object.cached != Cached::default() {
            self.budget.spend(COST_OBJECT);
            let user = self.ledger.number(object.user);
            let has = self.part_of_cache(self.ledger.cached(object.user));
            let idle = &mut self.pager.idle;
            let (of, goes) = match idle.takes {
                Takes::OfUser(of, had) => (Some(of), of == user && has > had / 2),
                _ => (None, true),
            };
            if of != Some(user) && has > idle.most.1 && has < idle.below {
                idle.most = (user, has);
            }
            if !goes {
                return true;
            }
        } else if matches!(self.pager.idle.takes, Takes::OfUser(..)) {
            return true;
        }
        let goes_whole = self.goes_whole(id);
        let idle = &mut self.pager.idle;
        let goes_in_use = match idle.takes {
            Takes::Unused | Takes::Paid => false,
            Takes::Used => goes_whole || idle.of_one,
            Takes::OfUser(..) | Takes::Leaves | Takes::Nodes => goes_whole,
        };
        let (of_heap, of_users) = (idle.of_heap, matches!(idle.takes, Takes::Paid | Takes::Used));
        // What is taken away would be found again before it is written.
        let waits = self.objects.get(id).dirty > 0 || of_heap && !self.is_written(id);
        if of_users && waits && !self.is_unpaid(id) {
            self.pager.idle.has_unwritten = true;
            return true;
        }
        if self.objects.get(id).has_holders() {
            if !goes_in_use {
                return true;
            }
            // Rights that were found stay known where page tables alone are lacking: the links to those go one by one.
            let stays_known = !goes_whole && self.objects.get(id).nodes.len() <= FEW;
            if !stays_known && !self.is_taken_away(world, id) {
                return false;
            }
            // Those who have found it again meanwhile are unlinked with each page table. If they are many it is taken away from them, too, but not for ever.
            if self.objects.get(id).nodes.len() > FEW {
                let idle = &mut self.pager.idle;
                (idle.withdrawn, idle.times) = (None, idle.times + 1);
                return idle.times > TIMES_MAX;
            }
        }
        if goes_whole && self.objects.get(id).limit_bytes > 0 {
            self.forget_limits(id);
            self.pager.idle.gains = true;
        }
        let object = self.objects.get(id);
        let at = self.pager.idle.at.max(object.base());
        if at < object.end() {
            let (end, cost) = piece_of(object, Costs::clean(self.budget), at, object.end(), self.budget);
            let slots = slot_of(at) - object.first_slot()..slot_of(end - 1) - object.first_slot() + 1;
            let fits = self.budget.has(Cost::own(cost));
            self.budget.spend(Cost::own(cost));
            self.drop_clean(world, id, at, end);
            self.drop_leaves(world, id, &slots);
            self.pager.idle.at = end;
            if !fits {
                return false;
            }
        }
        while let Some((first, behind, charged)) = self.objects.get(id).slots.next_bare(self.pager.idle.slot) {
            // Blocks of an object that no program pays for are charged no more: they are like those of an earlier start then.
            let may_go = !charged || goes_whole;
            if may_go && !self.blocks_of_slots_go(id, first, behind) || !self.budget.spend(COST_CHUNK) {
                return false;
            }
            if may_go {
                self.free_slots(id, first);
                self.pager.idle.gains = true;
            }
            self.pager.idle.slot = behind;
        }
        self.pager.idle.taken += u32::from(of_users);
        self.idle_rests(world, id)
    }

    /// Whether all that is charged for an object may go: because no program that lives pays for it, or because that one lacks heap, and nothing else helps.
    fn goes_whole(&self, id: ObjectId) -> bool {
        let idle = &self.pager.idle;
        self.is_unpaid(id) || idle.of_heap && matches!(idle.takes, Takes::Paid | Takes::Used)
    }

    /// Has an object come to rest, if heap is lacking and nothing of the object is in memory any more; tells whether the budget was enough for that.
    fn idle_rests(&mut self, world: &mut impl World, id: ObjectId) -> bool {
        let idle = &self.pager.idle;
        let keeps_charge = self.objects.get(id).all_blocks() > 0 && !self.goes_whole(id);
        let is_used = self.objects.get(id).has_holders();
        if !idle.of_heap || matches!(idle.takes, Takes::OfUser(..)) || keeps_charge || is_used {
            return true;
        }
        if !self.is_written(id) {
            self.pager.idle.has_unwritten = true;
            return true;
        }
        let fits = self.budget.spend(COST_REST);
        let base = self.objects.get(id).base();
        if fits && self.come_to_rest(world, id) {
            // Another object may have its place by the next event.
            self.pager.idle = Idle {
                gains: true,
                rested: Some(base),
                slot: 0,
                at: 0,
                withdrawn: None,
                times: 0,
                ..self.pager.idle
            };
        }
        fits && self.leaf_goes()
    }

    /// The leaf of an object that has come to rest goes with it, if no other object needs it: it takes more heap than the object did. Tells whether the budget was enough for that.
    fn leaf_goes(&mut self) -> bool {
        let Some(base) = self.pager.idle.rested else {
            return true;
        };
        let fits = self.budget.allows(COST_LEAF_GONE);
        if fits {
            // One that a running job has just read is not taken from under it.
            let rows = if self.checkpoint.is_busy() {
                0
            } else {
                self.store.drop_leaf_at(base)
            };
            self.budget.spend(COST_ROW_GONE.times(rows));
            self.pager.idle.rested = None;
            self.store.give_heap_back();
        }
        fits
    }

    /// Takes an object away from all who had found it before this pass, as far as the budget reaches; tells whether that was done.
    fn is_taken_away(&mut self, world: &mut impl World, id: ObjectId) -> bool {
        let begun = self.pager.idle.withdrawn;
        let epoch = begun.unwrap_or_else(|| self.withdraw_begin(world, id).epoch);
        self.pager.idle.withdrawn = Some(epoch);
        self.unlink_older(world, id, epoch)
    }
}
