//! Transient memory is paged: where memory is short, the disk takes over transient objects (decision 0215).
//!
//! A thread that lacks a frame, when nothing else helps, has an object of its own *backed*: heaps, clones, whatever its task has made. A backed
//! object has a row in the object table, and its pages go to the disk and come back as those of a kept one; the account pays blocks for it, and frames
//! no more. All else is as before: it stands on the kill list, its home has all rights, and to programs it is transient. Its row says that it goes with the next
//! start ([`store::ROW_ENDS`]).
//!
//! Where a program has bounded the memory of a task (`limit_pages` of `TaskCreate`), nothing of that task or of those below it is backed: the bound is one of all that
//! they make, and nothing else would bound what of it is on the disk.
//!
//! It is what `KeepObject` does ([`crate::durability::keeping`]), done by the fault or the call that lacks the frame, which is made again after each piece.

use abi::{Error, Rights, layout::OBJECT_STACK};
use kcore::ThreadId;

use crate::{
    Server, Step, Stop, World, accounts::Resource, directory::lists::Kind, directory::object::ObjectId,
    durability::keeping::Becomes, lives::budget::Cost, lives::work::piece, pages::pager::FRAME_RESERVE,
};

/// Pages in memory with which an object is worth it: a row, and the nodes of a map, take some.
pub const PAGES_LEAST: u64 = 16;
/// Objects of a task that are looked at, from the one that it made last on, and what that costs in instructions, roughly.
const LOOKED_AT: usize = 128;
const COST_LOOKED_AT: Cost = Cost::own(40);
/// Objects that cannot be backed after which a thread is refused what it lacks.
const FAILURES_MAX: u8 = 4;
/// Faults at the same few pages for which things in use are taken back, before a thread has an object backed first.
const HELPED_MOST: u8 = 16;
/// Such faults at the same few pages after which it is refused.
const HELPED_IN_VAIN: u8 = 128;
/// Frames that an access takes at most: a page, its page table, and those above in the domain.
const FEW: u64 = 5;

/// An object that becomes a backed one for a thread, and how far that has got.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Backing {
    base: u64,
    serial: u64,
    at: u64,
    /// Whether it cannot: what was prepared goes back.
    fails: bool,
}

impl Server {
    /// Goes on with what a thread has begun because it lacks a frame, and tells when its call or fault goes on; nothing if it has begun nothing.
    #[cold]
    #[inline(never)]
    pub(crate) fn backing_goes_on(&mut self, world: &mut impl World, thread: ThreadId) -> Option<Stop> {
        let mut backing = self.threads.find(thread)?.tries.backing?;
        self.current = thread;
        self.budget.begin(piece());
        let step = self.backing_piece(world, &mut backing);
        // Its disk may have had an answer at once, but that ends no thread which is in the middle of something.
        let tries = &mut self.threads.record(thread).tries;
        tries.backing = match step {
            Err(Stop::Again | Stop::Wait(_)) => Some(backing),
            Ok(()) | Err(Stop::Fail(_)) => None,
        };
        tries.failures += u8::from(matches!(step, Err(Stop::Fail(_))));
        Some(match step {
            Err(Stop::Wait(key)) => Stop::Wait(key),
            _ => Stop::Again,
        })
    }

    /// A piece of it.
    ///
    /// # Errors
    /// The need to wait or to go on; why the object cannot be backed: it is as before.
    fn backing_piece(&mut self, world: &mut impl World, backing: &mut Backing) -> Step<()> {
        let Some(id) = self.objects.find_serial(backing.base, backing.serial) else {
            return Ok(());
        };
        // Another thread may have done it, or kept it.
        if self.objects.get(id).is_persistent() {
            return Ok(());
        }
        // Its rest is that of a transient object.
        if !self.cut_piece(world, id) {
            return Err(Stop::Again);
        }
        if !backing.fails {
            match self.keep_piece(world, id, &mut backing.at, Becomes::Backed) {
                Err(Stop::Fail(_)) => backing.fails = true,
                step => return step,
            }
        }
        if !self.keep_undone(id, &mut backing.at) {
            return Err(Stop::Again);
        }
        let next = self.checkpoint.next();
        self.objects.get_mut(id).stays_until = next;
        Err(Error::NoMemory.into())
    }

    /// Begins to back an object for a fault before anything in use is taken back, where that has helped often at the same few pages.
    pub(crate) fn backing_comes_first(
        &mut self,
        world: &impl World,
        thread: ThreadId,
        what: u64,
        error: Error,
    ) -> bool {
        let times = self.threads.record(thread).helped.times;
        let begins = times % HELPED_MOST == HELPED_MOST - 1 && self.backing_begins(world, thread, what, error);
        if begins {
            // Not set to zero: objects may be found again and again that cannot be backed.
            self.threads.record(thread).helped.times += 1;
        }
        begins
    }

    /// Counts a read of the thread that is served, for which a frame was made free; tells whether that was so often at the same few pages that each takes the place of another.
    pub(crate) fn reads_in_vain(&mut self, page: u64) -> bool {
        let Some(_) = self.threads.find(self.current) else {
            return false;
        };
        let helped = &mut self.threads.record(self.current).helped;
        helped.note(page);
        helped.times >= HELPED_IN_VAIN
    }

    /// Whether things in use may be taken back for a fault. If they were so often at the same few pages, the thread gets on no more: this fault is refused, and the count begins anew.
    pub(crate) fn may_be_helped(&mut self, thread: ThreadId) -> bool {
        let times = &mut self.threads.record(thread).helped.times;
        let may = *times < HELPED_IN_VAIN;
        *times = if may { *times } else { 0 };
        may
    }

    /// Begins to back an object for a thread that was refused a frame, if there is one; tells whether it did. `what` is the address of a fault, or zero for a call.
    #[cold]
    pub(crate) fn backing_begins(&mut self, world: &impl World, thread: ThreadId, what: u64, error: Error) -> bool {
        let lacks_memory = matches!(error, Error::NoMemory | Error::LimitReached);
        let Some(record) = self.threads.find(thread).filter(|_| lacks_memory) else {
            return false;
        };
        if record.tries.failures >= FAILURES_MAX || self.checkpoint.last_failed() || self.checkpoint.is_closing() {
            self.threads.record(thread).tries.failures = 0;
            return false;
        }
        let touched = self.objects.find(what);
        let payers = [
            Some(self.account_of(thread)),
            touched.map(|id| self.objects.get(id).account),
        ];
        let is_short = |account| self.ledger.left(account, Resource::Frames) < FEW;
        if world.frames_free() > FRAME_RESERVE + FEW && !payers.into_iter().flatten().any(is_short) {
            return false;
        }
        let Some(id) = touched
            .filter(|&id| self.may_be_backed(id))
            .or_else(|| self.largest_to_back(thread))
        else {
            return false;
        };
        let object = self.objects.get(id);
        let backing = Backing {
            base: object.base(),
            serial: object.serial,
            at: 0,
            fails: false,
        };
        self.threads.record(thread).tries.backing = Some(backing);
        true
    }

    /// The object with most pages in memory of those that the task of a thread made last.
    fn largest_to_back(&mut self, thread: ThreadId) -> Option<ObjectId> {
        let task = self.tasks.get(self.threads.find(thread)?.task)?;
        let listed = self.objects.listed(Kind::KillList, &task.kill_list).take(LOOKED_AT);
        let largest = listed
            .filter(|&id| self.may_be_backed(id))
            .max_by_key(|&id| self.objects.get(id).resident);
        self.budget.spend(COST_LOOKED_AT.times(LOOKED_AT as u64));
        largest
    }

    /// Whether an object may be backed, and is worth it. One that has no password yet is still being made.
    fn may_be_backed(&self, id: ObjectId) -> bool {
        let object = self.objects.get(id);
        !object.is_persistent()
            && object.resident >= PAGES_LEAST
            && object.record.flags & OBJECT_STACK == 0
            && !object.is_set_aside()
            && !object.record.capabilities.is_empty()
            && object.stays_until != self.checkpoint.next()
            && object.absent_limits.iter().all(|range| range.limits != Rights::NONE)
            && !self.is_closed(id)
            && !self.ledger.is_memory_bounded(object.account)
    }
}
