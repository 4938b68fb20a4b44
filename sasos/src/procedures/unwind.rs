//! How protected calls end other than by returning: threads are unwound, callee domains end.
//!
//! A callee ends with its object, with the domain that it is merged with, or when it is of no use any more. From that moment on nobody
//! enters it. Threads inside go back to whoever called it first, with `CalleeFault`; calls that they made from there are given up. This may
//! strike the very thread whose call brought it about: see [`Server::settle`].
//!
//! A callee whose password is no longer registered is *retired*: nobody enters it either, and threads inside may finish.
//!
//! An end is work for each thread, each stack and each object that the domain has found, so it is done in pieces
//! ([`crate::lives::work`]). A thread that is behind the place which the search has reached cannot come inside again.

use abi::Error;
use kcore::{SpaceId, ThreadId, portal::Stale, thread::Resumed, wait::Key};

use crate::{
    Outcome, Server, World,
    accounts::AccountId,
    accounts::Resource,
    lives::budget::Cost,
    lives::exception::SAVED_BYTES,
    lives::thread::{Life, Pause},
    lives::work::{Piece, Work},
    procedures::pdx::{Looks, Stage},
};

/// The cost of looking at a thread or at a place of callees, in instructions, roughly; at a frame of a thread, and of taking it out of its calls.
const COST_PLACE: Cost = Cost::calling(40, 1);
const COST_FRAME: Cost = Cost::calling(15, 1);
const COST_UNWIND: Cost = Cost::calling(1500, 8);
/// The cost of closing a callee, that is, of its new places in the orders of all; of taking it off with its domain in the end; and of seeing
/// whether somebody is inside of one.
const COST_CLOSE: Cost = Cost::calling(4100, 4);
const COST_REMOVE: Cost = Cost::calling(3700, 4);
const COST_LOOK: Cost = Cost::calling(180, 1);
/// Places of callees that a poll looks at.
const LOOKS: usize = 64;

/// The domain of a procedure that ends.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Leaving {
    pub(crate) space: SpaceId,
    /// The serial number of the domain.
    serial: u64,
}

/// At which depth of its calls a thread entered a space for the first time; its own domain does
/// not count.
pub(crate) fn depth_inside(world: &impl World, thread: ThreadId, space: SpaceId) -> Option<usize> {
    let depth = world.portal_depth(thread);
    // Frame i leads back to the space of depth i.
    let leads_back = |&index: &usize| {
        world
            .portal_frame(thread, index)
            .is_some_and(|frame| frame.space == space)
    };
    let within = (1..depth).find(leads_back);
    within.or_else(|| (depth > 0 && world.thread_space(thread) == space).then_some(depth))
}

impl Server {
    /// Takes a thread out of its innermost calls until `depth` are left. The caller there gets
    /// `CalleeFault`; whatever the thread was doing is given up.
    pub fn unwind_to(&mut self, world: &mut impl World, thread: ThreadId, depth: usize) {
        let mut unwound = false;
        while world.portal_depth(thread) > depth {
            if self
                .callee_leave(world, thread, Error::CalleeFault as u64, 0, 0)
                .is_none()
            {
                break;
            }
            unwound = true;
        }
        if !unwound {
            return;
        }
        self.waiting_ends(world, thread);
        self.handler_left(world, thread);
        world.thread_drop_operation(thread);
        let record = self.threads.record(thread);
        record.bookmark = None;
        // Nobody suspends a thread inside of a callee: if it paused, it slept there.
        record.pause = Pause::No;
        world.thread_wake(thread, Resumed::Woken);
    }

    /// The answer to a call that may have ended callees, the caller's own among them.
    /// `depth` is how many calls the thread was inside of before.
    pub fn settle(&mut self, world: &impl World, thread: ThreadId, depth: usize, outcome: Outcome) -> Outcome {
        if self.threads.find(thread).is_none_or(|record| record.life != Life::Live) {
            return Outcome::Gone;
        }
        if world.portal_depth(thread) < depth {
            Outcome::Resume
        } else {
            outcome
        }
    }

    // ---- ends -----------------------------------------------------------------------------------

    /// A callee domain begins to end: nobody enters it any more.
    pub(crate) fn callee_ends(&mut self, world: &mut impl World, space: SpaceId) {
        if self.callee_closes(world, space, Stage::Ends) {
            let serial = self.domains.serial(space);
            self.work_enter(Work::Callee(Leaving { space, serial }));
        }
    }

    /// Nobody enters a callee any more: a thread that waits for a stack of it looks anew. Tells whether it comes to this stage now.
    fn callee_closes(&mut self, world: &mut impl World, space: SpaceId, stage: Stage) -> bool {
        // A call between two pieces may have remembered it.
        world.portal_forget(Stale::CallsInto(space));
        let closes = self.callees.advance(space, stage);
        if closes {
            world.wake(Key::Stack(space.0), u32::MAX);
            // A client whose threads wait for its turn has a stack.
            for client in self
                .callees
                .get(space)
                .iter()
                .flat_map(|callee| callee.guests.clients())
            {
                world.wake(Key::Turn(space.0, client.share()), u32::MAX);
            }
        }
        closes
    }

    /// A piece of the end of a callee domain: threads inside are unwound; derived domains, its stacks and what it has found end before it.
    pub(crate) fn callee_piece(&mut self, world: &mut impl World, leaving: Leaving) -> Piece {
        let Leaving { space, serial } = leaving;
        if self.domains.serial(space) != serial {
            return Piece::Done;
        }
        if self.callees_of_domain_end(world, space)
            || !self.callee_is_left(world, space, serial)
            || !self.callee_gives_stacks_back(world, space)
            || !self.domain_ends_soon(world, space)
        {
            return Piece::More;
        }
        self.budget.spend(COST_REMOVE);
        self.domain_end(world, space);
        self.callees.remove(space);
        self.work.release();
        Piece::Done
    }

    /// Takes threads out of a callee, and what they have made there from them; tells whether those were all.
    fn callee_is_left(&mut self, world: &mut impl World, space: SpaceId, serial: u64) -> bool {
        let is_mother = self.domains.get(space).is_some_and(|domain| domain.is_mother);
        let mut search = is_mother || self.is_inside(world, space);
        while search {
            let Some(callee) = self.callees.get_mut(space) else {
                return true;
            };
            let (index, base) = (callee.searched, callee.base);
            if index as u64 >= self.threads.places() {
                return true;
            }
            if !self.budget.spend(COST_PLACE) {
                return false;
            }
            callee.searched = index + 1;
            self.child_loses_domain(world, index, serial);
            let Some(thread) = self.threads.live_at(index).map(|record| record.id) else {
                continue;
            };
            self.budget.spend(COST_FRAME.times(world.portal_depth(thread) as u64));
            if let Some(depth) = depth_inside(world, thread, space) {
                self.remark(
                    world,
                    format_args!("thread {:#x} is taken out of a callee at {base:#x} that ends", thread.0),
                );
                self.budget.spend(COST_UNWIND);
                self.unwind_to(world, thread, depth - 1);
                self.doom_falls(world, thread);
                search = is_mother || self.is_inside(world, space);
            }
        }
        true
    }

    /// Whether a thread is inside of a callee, or will come back there.
    fn is_inside(&self, world: &impl World, space: SpaceId) -> bool {
        let stacks = self.callees.get(space).map_or(0, |callee| callee.stacks.len());
        world.portal_free_stacks(space) < stacks
    }

    fn callee_gives_stacks_back(&mut self, world: &mut impl World, space: SpaceId) -> bool {
        while let Some(&stack) = self.callees.get(space).and_then(|callee| callee.stacks.last()) {
            if !self.object_ends(world, stack) {
                return false;
            }
            if let Some(callee) = self.callees.get_mut(space) {
                callee.stacks.pop();
                self.ledger.give(callee.payer, Resource::Bytes, SAVED_BYTES);
            }
        }
        true
    }

    /// Has the callees end that read through to a domain that ends; tells whether there are any.
    pub(crate) fn callees_of_domain_end(&mut self, world: &mut impl World, domain: SpaceId) -> bool {
        if self.domains.get(domain).is_none_or(|domain| domain.derived == 0) {
            return false;
        }
        let serial = self.domains.serial(domain);
        // The next piece does what the budget does not reach.
        while let Some(space) = self.callees.derived_that_lives(serial)
            && self.budget.spend(COST_CLOSE)
        {
            self.callee_ends(world, space);
        }
        true
    }

    /// Has the callees end of an object that goes, as far as the budget reaches; tells whether those were all.
    pub(crate) fn callees_of_object_end(&mut self, world: &mut impl World, base: u64) -> bool {
        while let Some(space) = self.callees.first_of_object(base) {
            if !self.budget.spend(COST_CLOSE) {
                return false;
            }
            self.callee_ends(world, space);
        }
        true
    }

    /// A PDX password is no longer registered, or for another Clist: nobody enters with it any more, and threads inside may finish. Retires its
    /// callees as far as the budget reaches; tells whether those were all.
    pub(crate) fn callees_of_password_retire(&mut self, world: &mut impl World, base: u64, password: u64) -> bool {
        while let Some(space) = self.callees.first_of_password(base, password) {
            if !self.budget.spend(COST_CLOSE) {
                return false;
            }
            if self.is_inside(world, space) {
                self.callee_closes(world, space, Stage::Retired);
            } else {
                self.callee_ends(world, space);
            }
        }
        true
    }

    /// Has some of the retired callees end that nobody is inside of: the polls look at all of them in turn.
    pub(crate) fn retired_callees_end(&mut self, world: &mut impl World) {
        if !self.callees.has_closed() {
            return;
        }
        for _ in 0..LOOKS {
            let space = self.callees.place(Looks::Retired);
            let is_retired = self
                .callees
                .get(space)
                .is_some_and(|callee| callee.stage == Stage::Retired);
            if !self.budget.spend(COST_PLACE) || is_retired && !self.callee_ends_if_left(world, space) {
                return;
            }
            self.callees.pass_place(Looks::Retired);
        }
    }

    /// Has callees end that nobody is inside of and that an account, or one below it, pays for, of so many at most and as far as the budget
    /// reaches; tells how many are left to be looked at.
    pub(crate) fn unused_callees_end(&mut self, world: &mut impl World, most: u32, payer: AccountId) -> u32 {
        for passed in 0..most {
            let space = self.callees.place(Looks::Unused);
            let paid = self.callees.get(space).map(|callee| callee.payer);
            let goes_on = match paid {
                Some(paid) if self.ledger.is_within(paid, payer) => self.callee_ends_if_left(world, space),
                Some(_) => self.budget.spend(COST_LOOK),
                None => self.budget.spend(COST_PLACE),
            };
            if !goes_on {
                return most - passed;
            }
            self.callees.pass_place(Looks::Unused);
        }
        0
    }

    /// Has a callee end that nobody is inside of; false if the budget is used up.
    fn callee_ends_if_left(&mut self, world: &mut impl World, space: SpaceId) -> bool {
        let lives = self.callees.get(space).is_some_and(|callee| callee.stage < Stage::Ends);
        if lives && !self.is_inside(world, space) {
            if !self.budget.spend(COST_CLOSE) {
                return false;
            }
            self.callee_ends(world, space);
        }
        self.budget.spend(COST_LOOK)
    }
}
