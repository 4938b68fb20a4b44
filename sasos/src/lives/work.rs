//! Long work: one budget an event, one list of what goes on behind it.
//!
//! No event holds the kernel for more than some [`PIECE`] instructions, whoever provokes it. A call that is not done then comes again
//! ([`crate::Stop::Again`]), with its place in its continuation. Work that nobody comes again for, because its thread has ended or because it
//! has no thread, stands in the list here: tasks that were killed or have ended, domains of procedures that end, rights that
//! are being withdrawn. Each does a piece, then the next one has its turn: one item of each program in a turn, so that neither large work nor much of it
//! keeps back what others wait for (decision 0191); a callee has turns of its own. The
//! event that enters something does the first piece with what it has left, and that is mostly all; [`crate::Event::Poll`] does
//! the others.
//!
//! So what an ending task had comes back in pieces, too. A call that fails for want of it is made again after each piece, until the list is empty
//! or the call succeeds ([`crate::Server::work_behind`]).

use abi::Error;
use kcore::{SpaceId, ThreadId, wait::Key};
use store::Budget;

use crate::{
    Outcome, Server, Step, Stop, World,
    accounts::AccountId,
    containers::Map,
    lives::budget::Cost,
    lives::task::TaskId,
    lives::thread::{Life, Tries},
    procedures::unwind::Leaving,
    protection::withdraw::{CalleesOf, Withdrawal},
};

/// The most that one event may spend on long work, in instructions, roughly.
pub const PIECE: u64 = 12_000;

/// So much is left for the first item of a poll, whatever was looked at before: enough for the first tables of a space. An item that needs more to get on sees to
/// that itself.
pub(crate) const COST_LARGEST: u64 = 8_000;
/// The cost of a piece that comes to nothing, because too little was left for it; and of taking an item off the list, which its calls may have done
/// to the end.
const COST_TURN: Cost = Cost::own(430);
const COST_TAKE: Cost = Cost::own(400);
/// The most that a poll may spend on ends and have something left for the store.
const COST_LITTLE: u64 = 3000;
/// So much is left at least to taking back what nobody uses, for somebody who lacks it.
const COST_TAKES_BACK: Cost = Cost::own(3000);
/// So much the first piece of a withdrawal has at least, whatever the call has looked at before: enough for one domain. Little work is done at once then, and is not in the
/// list, where nobody pays for its place.
const COST_FIRST: Cost = Cost::calling(2_500, 5);
/// How often a thread that lacks something waits for a piece of the list, in parts: a piece of what is taken back counts as one, for all objects may be looked at, and
/// others as so many.
const TRIES_MAX: u16 = 64_000;
const TRY: u16 = 32;

/// The budget of one event.
pub(crate) const fn piece() -> Budget {
    Budget::of(PIECE)
}

/// Work that goes on behind the event that began it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// The threads of a task have to end, or have, and the task with them; or one that has ended has children.
    Task(TaskId),
    /// The domain of a procedure ends.
    Callee(Leaving),
    /// An object is taken away from the domains that have it, and its callees close.
    Withdrawal(Withdrawal, CalleesOf),
    /// The object with that base and serial number was cut short, and what it has behind its end is dropped.
    Cut(u64, u64),
    /// The object with that base and serial number is deleted, and what it has is dropped.
    Object(u64, u64),
    /// A domain with that serial number forgets what it has found, and those that read through to it.
    Forgetting(SpaceId, u64),
    /// The server takes back callees and pages that nobody uses ([`crate::pages::idle`]).
    Idle,
}

/// Whether a call that fails so is tried again, if what it lacks may come.
pub(crate) const fn may_be_helped(error: Error) -> bool {
    matches!(error, Error::NoMemory | Error::LimitReached | Error::DiskFull)
}

/// Whether a refusal says that memory, or a share of it, is used up.
const fn lacks_memory(error: Error) -> bool {
    matches!(error, Error::NoMemory | Error::LimitReached)
}

/// The result of a piece.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Piece {
    /// It was the last.
    Done,
    /// There is more to do: the budget is used up, or another item must go before.
    More,
}

/// An item of the list, and the number of the account of the program whose it is: that of the root for what is no program's.
#[derive(Copy, Clone, Debug)]
struct Item {
    work: Work,
    program: u64,
}

/// The list.
#[derive(Default)]
pub struct WorkList {
    /// By turn, and in a turn in order. An item that has done a piece has the next turn behind those of its program, so that none is passed by more than one of each
    /// that comes later. One that an event had too little left for keeps its place: it would otherwise be the last of each, if the others take the same every time.
    items: Map<(u64, u64), Item>,
    /// The first, if it was alone when it came: mostly it is done before there is another.
    alone: Option<((u64, u64), Item)>,
    /// The turn under way, and how many items were put in.
    turn: u64,
    put: u64,
    /// Items that may come for which room was asked: one for each task and each callee.
    promised: usize,
    /// Whether [`Work::Idle`] is in the list.
    idles: bool,
    /// Whether something was entered by the event under way.
    fresh: bool,
    /// Whether the last poll did nothing but end something.
    had_all: bool,
    /// The number of the account for which a callee could not be made or grow. By the time that it is asked for, the account may be gone.
    refused: Option<u64>,
}

impl WorkList {
    /// Whether nothing is left to do.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.alone.is_none() && self.items.is_empty()
    }

    /// Items that are left.
    pub fn count(&self) -> usize {
        self.items.count() + usize::from(self.alone.is_some())
    }

    /// Whether nothing is left to do but to look for what nobody uses.
    pub(crate) fn is_idle(&self) -> bool {
        self.count() == 1 && self.idles
    }

    /// Whether something was entered by the event under way.
    #[inline(always)]
    pub(crate) const fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Whether what ends has left nothing of the last poll to the store.
    pub(crate) const fn had_all(&self) -> bool {
        self.had_all
    }

    /// The rest of this poll's budget, if so little was spent that the store may have it.
    pub(crate) fn leaves_some(&mut self, left: u64) -> Option<Budget> {
        self.had_all = left < PIECE - COST_LITTLE;
        (!self.had_all).then_some(Budget::of(left))
    }

    /// An account could not have what a protected call takes.
    pub(crate) const fn refuse(&mut self, account: u64) {
        self.refused = Some(account);
    }

    /// Makes room for an item that may be entered later and must not fail then.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn promise(&mut self) -> Result<(), Error> {
        self.reserve()?;
        self.promised += 1;
        Ok(())
    }

    /// Room for one more item, and all that were promised.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn reserve(&mut self) -> Result<(), Error> {
        self.items.reserve(self.count() + self.promised + 1)
    }

    /// The item that room was promised for will not be entered any more.
    pub(crate) const fn release(&mut self) {
        self.promised -= 1;
    }

    /// Gives some of the room back that is neither in use nor promised.
    pub(crate) fn give_back(&mut self) {
        self.items.release(self.count() + self.promised);
    }

    fn put(&mut self, turn: u64, item: Item) {
        self.put += 1;
        self.put_back((turn, self.put), item);
    }

    fn put_back(&mut self, place: (u64, u64), item: Item) {
        if self.is_empty() {
            self.alone = Some((place, item));
        } else {
            // There is room.
            let _ = self.items.insert(place, item);
        }
    }

    fn take(&mut self) -> Option<((u64, u64), Item)> {
        self.alone.take().or_else(|| self.items.pop_first())
    }
}

impl Server {
    /// Enters an item that room was promised for.
    pub(crate) fn work_enter(&mut self, work: Work) {
        let account = match work {
            Work::Task(task) => self.tasks.get(task).map(|task| task.account),
            Work::Callee(leaving) => self.callees.get(leaving.space).map(|callee| callee.payer),
            Work::Forgetting(space, _) => self.domains.get(space).map(|domain| domain.account),
            Work::Withdrawal(..) | Work::Cut(..) | Work::Object(..) => Some(self.account_of(self.current)),
            Work::Idle => None,
        };
        let program = account.and_then(|account| self.ledger.program_of(account, self.programs));
        let program = program.unwrap_or(AccountId::ROOT);
        let item = Item {
            work,
            program: self.ledger.number(program),
        };
        self.put_item(program, self.work.turn, item);
        self.work.idles |= work == Work::Idle;
        self.work.fresh = true;
    }

    /// Puts an item into the next turn of its program, from the turn `now` on. Callees have turns of their own: clients make them, and the service that pays for them
    /// would have all its ends behind them.
    fn put_item(&mut self, program: AccountId, now: u64, item: Item) {
        let is_callee = matches!(item.work, Work::Callee(_));
        let turn = self.ledger.next_turn(program, is_callee, now);
        self.work.put(turn, item);
    }

    /// Enters another one, of which the event under way does nothing more.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn work_enter_further(&mut self, work: Work) -> Result<(), Error> {
        self.work.reserve()?;
        let fresh = self.work.fresh;
        self.work_enter(work);
        self.work.fresh = fresh;
        Ok(())
    }

    /// Does a first piece of what the event under way has entered. To be called when an event is over: the end of a task may end callees, and
    /// threads inside of them, and with these further tasks, which must not pile up on the kernel's stack.
    #[inline(always)]
    pub fn finish_ends(&mut self, world: &mut impl World) {
        if self.work.fresh {
            self.work_on(world);
        }
    }

    /// Does what is in the list, each item in turn, as far as the event's budget reaches.
    pub(crate) fn work_on(&mut self, world: &mut impl World) {
        let mut first = true;
        while self.budget.is_left()
            && let Some((place, item)) = self.work.take()
        {
            self.work.turn = place.0;
            let had = self.budget.left();
            let piece = self.work_piece(world, item.work, first);
            self.budget.spend(COST_TAKE);
            if piece == Piece::More {
                self.budget.spend(COST_TURN);
                if !self.budget.is_left() && (!first || had < COST_LARGEST) {
                    self.work.put_back(place, item);
                } else {
                    let program = self.ledger.find(item.program);
                    self.put_item(program, place.0, item);
                }
            } else if item.work == Work::Idle {
                self.work.idles = false;
            }
            first = false;
        }
        self.work.fresh = false;
    }

    /// Whether a call has left something to be done behind it, or fails and may not have to.
    #[inline(always)]
    pub(crate) fn has_work_behind(&self, outcome: &Outcome) -> bool {
        let lacks = |error: &Error| may_be_helped(*error) || !self.work.is_empty();
        self.work.fresh || matches!(outcome, Outcome::Return(Err(error)) if lacks(error))
    }

    /// A piece of an item; `first` is whether the event has done no other.
    pub(crate) fn work_piece(&mut self, world: &mut impl World, work: Work, first: bool) -> Piece {
        match work {
            Work::Task(task) => self.task_piece(world, task),
            Work::Callee(leaving) => self.callee_piece(world, leaving),
            Work::Withdrawal(withdrawal, callees) => self.withdrawal_piece(world, withdrawal, callees),
            Work::Cut(base, serial) => self.cut_of(world, base, serial),
            Work::Object(base, serial) => self.object_piece(world, base, serial),
            Work::Forgetting(space, serial) => self.forgetting_piece(world, space, serial, first),
            Work::Idle => self.idle_piece(world),
        }
    }

    /// A piece of work by the call that began it, the first or another one, to be made again until it is done. Should nobody do so, the
    /// list does the rest.
    ///
    /// # Errors
    /// [`Stop::Again`].
    pub(crate) fn goes_on(&mut self, world: &mut impl World, work: Work, first: bool) -> Step<()> {
        // There is one withdrawal in an event, so the budget is raised once (decision 0164).
        if first && matches!(work, Work::Withdrawal(..)) {
            self.budget.at_least(COST_FIRST);
        }
        if self.work_piece(world, work, true) == Piece::Done {
            return Ok(());
        }
        if first && self.work_enter_further(work).is_err() {
            self.unbounded(|server| server.work_piece(world, work, true));
            return Ok(());
        }
        Err(Stop::Again)
    }

    /// Does what a call has left to be done behind it, and says what becomes of its answer. A call that fails for want of something is made again
    /// when a piece more of the list is done, from where its continuation stands. But the list may take the very thread out of the procedure that called, or end
    /// it. Then the answer is nobody's, and above all nothing is made again where the thread is now: it would be made with its caller's rights.
    #[cold]
    #[inline(never)]
    pub(crate) fn work_behind(&mut self, world: &mut impl World, thread: ThreadId, outcome: Outcome) -> Outcome {
        let lives = self
            .threads
            .find(thread)
            .is_some_and(|record| record.life == Life::Live);
        let depth = if lives { world.portal_depth(thread) } else { 0 };
        self.finish_ends(world);
        let instead = match outcome {
            Outcome::Return(Err(error)) if !self.has_taken_effect(thread) => {
                if self.ends_may_help(world, thread, 0, error) {
                    Some(Outcome::Again)
                } else if self.checkpoint_may_help(world, thread, 0, error) {
                    Some(Outcome::Block(Key::Checkpoint, None))
                } else if self.backing_begins(world, thread, 0, error) {
                    Some(Outcome::Again)
                } else {
                    self.clone_is_given_up(thread, error).then_some(Outcome::Again)
                }
            }
            _ => None,
        };
        self.settle(world, thread, depth, instead.unwrap_or(outcome))
    }

    /// Whether a thread that finds the disk full, or the cache or the heap full of what is not written, may wait for a checkpoint, which is asked for: blocks may be free behind it, pages are clean, and objects can come to rest. `what` is the
    /// address of a fault, or zero for a call.
    pub(crate) fn checkpoint_may_help(
        &mut self,
        world: &mut impl World,
        thread: ThreadId,
        what: u64,
        error: Error,
    ) -> bool {
        let is_unwritten = lacks_memory(error) && self.pager.idle.has_unwritten;
        let waits = self.waits_for_checkpoint(thread, error);
        let is_full = error == Error::DiskFull || is_unwritten || waits || self.is_cache_short(error);
        if !is_full || self.threads.find(thread).is_none() || waits {
            return waits;
        }
        let may_come = self.checkpoint.is_running()
            || self.checkpoint.changed
            || self.pager.dirty > 0
            || self.store.stats().held > 0;
        let come = may_come && self.threads.record(thread).may_wait_for_blocks(what);
        if come {
            let number = self.generation_request(world);
            self.threads.record(thread).full_until = number;
        }
        come
    }

    /// Whether a thread that lacks something waits for a checkpoint already. Waiters are woken twice: at the moment that it holds, and at its end.
    fn waits_for_checkpoint(&self, thread: ThreadId, error: Error) -> bool {
        let record = self.threads.find(thread);
        (error == Error::DiskFull || lacks_memory(error))
            && record.is_some_and(|record| self.checkpoint_reached(record.full_until).is_none())
    }

    /// Whether the call of a thread has done all it does, and only its result was waited for.
    fn has_taken_effect(&self, thread: ThreadId) -> bool {
        let record = self.threads.find(thread);
        record.is_some_and(|record| record.continuation.has_taken_effect())
    }

    /// Whether there may be enough of what somebody lacks when more of the list is done; a piece of it is done then, and the call goes on
    /// where it stands. `what` is the page of a fault, or zero for a call. When nothing ends, what nobody uses is taken back, once for each call.
    /// Nobody is kept waiting for ever by others who begin and end without rest.
    pub(crate) fn ends_may_help(&mut self, world: &mut impl World, thread: ThreadId, what: u64, error: Error) -> bool {
        let refused = self.work.refused.take();
        let lacks_cache = core::mem::take(&mut self.pager.cache_refused) && self.is_cache_short(error);
        // Objects that cannot come to rest before it is over are not looked at again.
        if self.threads.find(thread).is_none() || lacks_memory(error) && self.waits_for_checkpoint(thread, error) {
            return false;
        }
        // Things in use by somebody who ends are free soon, too.
        let lacks = matches!(
            error,
            Error::NoMemory | Error::LimitReached | Error::TableFull | Error::InUse
        );
        let record = self.threads.record(thread);
        let mut tries = Tries {
            what,
            ..Tries::default()
        };
        let is_another = record.tries.what != what;
        if record.tries.what == what {
            tries = record.tries;
            tries.pieces += if self.work.is_idle() { 1 } else { TRY };
        }
        // A fault takes page tables for the object and for the domain, a search takes nodes of the domain, and a protected call takes memory of the service.
        let object = self.objects.find(what).map(|id| self.objects.get(id).account);
        let service = refused.map(|number| self.ledger.find(number));
        let domain = self
            .domains
            .get(world.thread_space(thread))
            .map(|domain| domain.account);
        let payers = [object, service, domain, Some(self.account_of(thread))];
        let mut payers = payers.into_iter().flatten();
        if lacks_cache && !self.work.idles && self.pager.idle.has_gained {
            // There was room, which others have filled since.
            tries.had_idle = false;
        }
        let short = payers
            .find_map(|payer| self.who_is_short(world, payer, error))
            .or(lacks_cache.then_some(self.programs))
            .or_else(|| self.who_has_set_aside(thread, error));
        // What ends leaves nothing to the cache, so that does not come first.
        let comes_first = if lacks_cache {
            self.work.idles
        } else {
            !self.work.is_empty()
        };
        let takes_back = short.is_some() && !tries.had_idle && !comes_first;
        if takes_back && self.work_enter_further(Work::Idle).is_ok() {
            self.idle_anew(short.unwrap_or(AccountId::ROOT));
            self.budget.at_least(COST_TAKES_BACK);
            tries.had_idle = true;
        }
        let may_help = lacks && !self.work.is_empty() && tries.pieces < TRIES_MAX;
        let takes_from_cache = may_help && lacks_cache && self.work.idles && self.idle_piece(world) == Piece::More;
        if may_help && !takes_from_cache {
            self.work_on(world);
        }
        // The list may have ended the thread.
        if self.threads.find(thread).is_none() {
            return true;
        }
        let again = may_help && (!takes_back || !self.work.is_empty() || self.pager.idle.has_gained);
        if lacks_cache && !self.is_cache_short(error) {
            // There is room. Others may fill it before this one has some.
            tries.had_idle = false;
        }
        if again && is_another && lacks_memory(error) {
            self.threads.record(thread).helped.note(what);
        }
        self.threads.record(thread).tries = if again {
            tries
        } else {
            Tries {
                checkpoints: tries.checkpoints,
                failures: tries.failures,
                ..Tries::default()
            }
        };
        again
    }

    /// Does something without a bound: where it is little, or nothing else is possible.
    pub(crate) fn unbounded<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let left = self.budget.lift();
        let done = act(self);
        self.budget.begin(left);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room for the ends of many tasks and callees goes back when they are gone: nobody pays for it.
    #[test]
    fn room_for_items_goes_with_what_it_was_for() {
        const MANY: usize = 2000;
        let mut work = WorkList::default();
        (0..MANY).for_each(|_| work.promise().expect("room"));
        assert!(work.items.room() >= MANY);
        (0..MANY).for_each(|_| work.release());
        (0..MANY).for_each(|_| work.give_back());
        assert!(work.items.room() < MANY / 4, "{}", work.items.room());
    }
}
