//! Things that nobody uses are taken back: callees that nobody is inside of, objects that are set aside, and the memory of kept objects that no domain has found.
//!
//! A kept object stays when its program ends, and with it page tables and the records of its slots, which are charged. They are taken back only when
//! somebody lacks memory ([`crate::lives::work`]), for to have them again costs time. Decision 0137.

use abi::{Error, address::slot_of};

use store::Look;

use crate::{
    Server, World,
    accounts::{AccountId, Cached, Ledger},
    directory::creation::{AddressesOf, heap_reserve},
    directory::object::ObjectId,
    lives::budget::Cost,
    lives::work::Piece,
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
/// The cost of ending an object that was set aside.
const COST_ASIDE: Cost = Cost::calling(1_500, 4);
/// Programs whose part of the cache is taken back one by one.
const USERS_MAX: u8 = 16;
/// How often an object is taken away anew from those who find it again meanwhile.
const TIMES_MAX: u8 = 8;
/// Free frames below which the machine is short of them.
const FEW_FRAMES: u64 = 2 * FRAME_RESERVE;

/// The things that are taken back now. Things in use are found again, or read again, which takes time: so they go only where the rest does not help.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Takes {
    Unused,
    /// The part of the cache of the program with this account number, which was so much, until it has half of that left.
    OfUser(u64, u64),
    /// Things in use of all objects that no program pays for.
    Used,
    /// Map nodes of the store, each of which takes some heap.
    Nodes,
}

/// How far taking back has got.
#[derive(Copy, Clone)]
pub(crate) struct Idle {
    /// Callees that are still to be looked at.
    callees: u32,
    /// The place of the object that is next.
    object: u32,
    /// The address in that object to go on at; zero for its beginning.
    at: u64,
    /// Its slot whose record is next.
    slot: u64,
    /// The number of the account that lacks memory: what others pay for would not help it. It may end meanwhile, and so may the programs below.
    short: u64,
    takes: Takes,
    /// Such an object is taken away from those who have found it: nodes older than this epoch are to go.
    withdrawn: Option<u64>,
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
            object: 0,
            at: 0,
            slot: 0,
            short: Ledger::ROOT_NUMBER,
            takes: Takes::Unused,
            withdrawn: None,
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
        let reserve = heap_reserve(world);
        world.heap().1.saturating_sub(reserve) <= self.heap_of_first.max(reserve)
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
            )
        };
        let before = has(self);
        let takes = self.pager.idle.takes;
        let Some(short) = self.ledger.find_known(self.pager.idle.short) else {
            // It has ended, which gives back all it had.
            self.pager.idle.has_gained = true;
            return Piece::Done;
        };
        let piece = if takes == Takes::Nodes {
            self.idle_nodes(world)
        } else {
            self.idle_callees_and_objects(world, short)
        };
        self.pager.idle.gains |= has(self) != before;
        self.pager.idle.has_gained |= self.pager.idle.gains;
        if piece == Piece::More || !self.ledger.is_within(self.programs, short) {
            return piece;
        }
        let mut idle = self.pager.idle;
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
        let of_cache = self.is_cache_short(Error::LimitReached);
        let takes = match takes {
            // Who has most of it gives way first: so none can take it from others by using much. Others may have filled it again meanwhile.
            Takes::Unused | Takes::OfUser(..) if of_cache && idle.users < USERS_MAX && idle.most.1 > 0 => {
                Takes::OfUser(idle.most.0, idle.most.1)
            }
            Takes::Unused | Takes::OfUser(..) if !idle.has_gained => Takes::Used,
            Takes::Unused | Takes::Used if !idle.has_gained && self.lacks_heap(world) => Takes::Nodes,
            _ => return Piece::Done,
        };
        self.pager.idle = Idle {
            short: idle.short,
            takes,
            users: idle.users + 1,
            below: idle.below,
            has_gained: idle.has_gained,
            ..Idle::default()
        };
        Piece::More
    }

    /// Has the store give up map nodes that are as they are on the disk.
    fn idle_nodes(&mut self, world: &mut impl World) -> Piece {
        // Those that a running job has just read are not taken from under it.
        while !self.checkpoint.is_busy() {
            if !self.budget.spend(COST_NODE_GONE) {
                return Piece::More;
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
        while self.pager.idle.object < self.objects.table_len() {
            if !self.budget.spend(COST_OBJECT) || !self.idle_object(world, ObjectId(self.pager.idle.object), short) {
                return Piece::More;
            }
            self.pager.idle = Idle {
                object: self.pager.idle.object + 1,
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
        if object.leaves == 0 && object.slots.chunks() == 0 && object.limit_bytes == 0
            || !object.is_persistent()
            || object.ends()
            || !self.ledger.is_within(object.account, short)
        {
            return true;
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
        let is_unpaid = self.is_unpaid(id);
        if self.objects.get(id).has_holders() {
            if self.pager.idle.takes == Takes::Unused || !is_unpaid {
                return true;
            }
            if !self.is_taken_away(world, id) {
                return false;
            }
            // Those who have found it again meanwhile are unlinked with each page table. If they are many it is taken away from them, too, but not for ever.
            if self.objects.get(id).nodes.len() > FEW {
                let idle = &mut self.pager.idle;
                (idle.withdrawn, idle.times) = (None, idle.times + 1);
                return idle.times > TIMES_MAX;
            }
        }
        if is_unpaid && self.objects.get(id).limit_bytes > 0 {
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
            let may_go = !charged || is_unpaid;
            if may_go && !self.blocks_of_slots_go(id, first, behind) || !self.budget.spend(COST_CHUNK) {
                return false;
            }
            if may_go {
                self.free_slots(id, first);
                self.pager.idle.gains = true;
            }
            self.pager.idle.slot = behind;
        }
        true
    }

    /// Takes an object away from all who had found it before this pass, as far as the budget reaches; tells whether that was done.
    fn is_taken_away(&mut self, world: &mut impl World, id: ObjectId) -> bool {
        let begun = self.pager.idle.withdrawn;
        let epoch = begun.unwrap_or_else(|| self.withdraw_begin(world, id).epoch);
        self.pager.idle.withdrawn = Some(epoch);
        self.unlink_older(world, id, epoch)
    }
}
