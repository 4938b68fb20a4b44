//! How much a caller may see of others (decision 0091).
//!
//! D on the root directory shows everything. Everybody else sees his own: the threads of his task and those that descend
//! from it, domains of these, protected procedures that extend or are paid for by his own domain, and objects on which his
//! domain is known to have a right. The rest is as if it were not there. Inside a protected call the caller is the
//! callee: nothing of the task whose thread it runs on is its own.
//!
//! Lists go in the order of their tables, as far as the budget of an event reaches. The continuation of the call says where they go on.

use abi::{
    Rights,
    address::{ROOT_DIRECTORY, SLOT},
    layout::{CALL_DEPTH_MAX, ObjectInfo},
};
use kcore::{SpaceId, ThreadId};

use crate::{
    Server, Step, Stop, World, directory::object::ObjectId, lives::budget::Cost, lives::continuation::Continuation,
    lives::thread::Caller, lives::thread::Thread,
};

/// The cost of looking at a place of a table, in instructions, roughly; at a slot, or a stretch without objects; whether an object there is known;
/// and of going one parent up.
const COST_PLACE: Cost = Cost::own(60);
const COST_COUNTED: Cost = Cost::calling(40, 1);
const COST_SLOT: Cost = Cost::own(40);
const COST_KNOWN: Cost = Cost::own(170);
const COST_PARENT: Cost = Cost::own(60);
/// How many parents are followed up from a thread.
pub const GENERATIONS_MAX: usize = 16;

/// How much a caller may see.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Sight {
    /// Everything.
    All,
    /// His own.
    Own,
}

impl Server {
    /// How much the caller of the present call may see; found out once in a call.
    pub(crate) fn sight(&mut self, world: &mut impl World, caller: Caller) -> Step<Sight> {
        if let Continuation::Report { sight, .. } = self.threads.record(caller.thread).continuation {
            return Ok(sight);
        }
        let sight = match self.validate(world, caller.domain, ROOT_DIRECTORY, Rights::D) {
            Ok(_) => Sight::All,
            Err(Stop::Fail(_)) => Sight::Own,
            Err(stop) => return Err(stop),
        };
        self.threads.record(caller.thread).continuation = Continuation::Report {
            sight,
            at: 0,
            counts: (0, 0, 0),
        };
        Ok(sight)
    }

    fn report_goes_on<T>(&mut self, caller: Caller, place: u64) -> Step<T> {
        if let Some(at) = self.report_at(caller) {
            *at = place;
        }
        Err(Stop::Again)
    }

    /// Counts the threads that are in a domain now, in pieces, for a report of the caller.
    ///
    /// # Errors
    /// [`Stop::Again`].
    pub(crate) fn threads_in(&mut self, world: &impl World, caller: Caller, space: SpaceId) -> Step<u64> {
        let serial = self.domains.serial(space);
        let (mut place, mut count) = match self.threads.record(caller.thread).continuation {
            Continuation::Report { counts, .. } if counts.0 == serial => (counts.1, counts.2),
            _ => (0, 0),
        };
        while u64::from(place) < self.threads.places() && self.budget.spend(COST_COUNTED) {
            let thread = self.threads.live_at(place as usize);
            count += u32::from(thread.is_some_and(|record| world.thread_space(record.id) == space));
            place += 1;
        }
        // Also of a whole count: should nothing be left to write the report, that does not count again.
        if let Continuation::Report { counts, .. } = &mut self.threads.record(caller.thread).continuation {
            *counts = (serial, place, count);
        }
        if u64::from(place) < self.threads.places() {
            return Err(Stop::Again);
        }
        Ok(count.into())
    }

    /// The place in a table where the report of a call goes on.
    fn report_at(&mut self, caller: Caller) -> Option<&mut u64> {
        match &mut self.threads.record(caller.thread).continuation {
            Continuation::Report { at, .. } => Some(at),
            _ => None,
        }
    }

    /// Whether a thread is the caller's own, or descends from what is.
    pub(crate) fn is_own_thread(&mut self, caller: Caller, thread: ThreadId) -> bool {
        if thread == caller.thread {
            return true;
        }
        let here = self.domains.serial(caller.domain);
        let home = self.is_home(caller);
        let mut next = self.threads.find(thread);
        for _ in 0..GENERATIONS_MAX {
            self.budget.spend(COST_PARENT);
            let Some(record) = next else { return false };
            if home && record.task == caller.task || record.parent == caller.thread && record.parent_domain == here {
                return true;
            }
            // A thread that a callee made on the parent's thread is not the parent's.
            next = self
                .threads
                .find(record.parent)
                .filter(|parent| self.domains.serial(parent.domain) == record.parent_domain);
        }
        false
    }

    fn is_home(&self, caller: Caller) -> bool {
        let own = self.threads.find(caller.thread);
        own.is_some_and(|own| own.domain == caller.domain)
    }

    fn is_own_domain(&mut self, caller: Caller, space: SpaceId) -> bool {
        let mut space = space;
        for _ in 0..CALL_DEPTH_MAX {
            self.budget.spend(COST_PARENT);
            if space == caller.domain {
                return true;
            }
            let Some(domain) = self.domains.get(space) else {
                return false;
            };
            if let Some(task) = domain.task {
                let first = self.tasks.get(task).map(|task| task.first);
                return self.is_home(caller) && task == caller.task
                    || first.is_some_and(|first| self.is_own_thread(caller, first));
            }
            let payer = self.domains.get(caller.domain).map(|own| own.account);
            if payer == Some(domain.account) {
                return true;
            }
            let Some(above) = domain.parent else { return false };
            space = above;
        }
        false
    }

    /// Whether a domain has made an object, or is known to have a right on it.
    fn is_known_object(&self, space: SpaceId, id: ObjectId) -> bool {
        self.objects.get(id).home == self.domains.serial(space) || self.cached(space, id).is_some()
    }

    /// Goes through places of a table from where the call stands, until one is found. None at the end of the table.
    ///
    /// # Errors
    /// [`Stop::Again`] after a piece.
    fn next_place<T>(
        &mut self,
        caller: Caller,
        first: u64,
        places: u64,
        found: impl Fn(&mut Self, u64) -> Option<T>,
    ) -> Step<Option<T>> {
        let from = self.report_at(caller).map_or(first, |at| first.max(*at));
        for place in from..places {
            if !self.budget.spend(COST_PLACE) {
                return self.report_goes_on(caller, place);
            }
            if let Some(item) = found(self, place) {
                // It is found here again if the report is not done with it.
                if let Some(at) = self.report_at(caller) {
                    *at = place;
                }
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    /// The first thread that the caller may see, in order of places, from that of the number `index` on.
    pub(crate) fn next_thread(&mut self, world: &mut impl World, caller: Caller, index: u64) -> Step<Option<ThreadId>> {
        let sight = self.sight(world, caller)?;
        let (first, places) = (ThreadId(index).index() as u64, self.threads.places());
        self.next_place(caller, first, places, |server, place| {
            let thread = server.threads.at(place as usize).map(|record: &Thread| record.id)?;
            (sight == Sight::All || server.is_own_thread(caller, thread)).then_some(thread)
        })
    }

    /// The first domain that the caller may see, from the number `index` on.
    pub(crate) fn next_domain(&mut self, world: &mut impl World, caller: Caller, index: u64) -> Step<Option<SpaceId>> {
        let sight = self.sight(world, caller)?;
        let places = self.domains.places();
        self.next_place(caller, index, places, |server, place| {
            let space = SpaceId(place as u32);
            server.domains.get(space)?;
            (sight == Sight::All || server.is_own_domain(caller, space)).then_some(space)
        })
    }

    /// The report on the first object that the caller may see, active or not, whose base is at least `from`.
    pub(crate) fn next_object(
        &mut self,
        world: &mut impl World,
        caller: Caller,
        from: u64,
    ) -> Step<Option<ObjectInfo>> {
        let sight = self.sight(world, caller)?;
        let first = from / SLOT * SLOT;
        let mut at = self.report_at(caller).map_or(first, |at| first.max(*at));
        let mut active = None;
        while self.budget.spend(COST_SLOT) {
            let Some((next, id)) = self.objects.at_or_behind(at) else {
                at = u64::MAX;
                break;
            };
            at = next;
            let Some(id) = id else { continue };
            self.budget.spend(COST_KNOWN);
            let base = self.objects.get(id).base();
            if base >= from && (sight == Sight::All || self.is_known_object(caller.domain, id)) {
                active = Some((base, id));
                break;
            }
        }
        // The report is still to be written. If that takes another event, it does not look so far again.
        let reached = active.map_or(at, |(base, _)| base / SLOT * SLOT);
        if let Some(at) = self.report_at(caller) {
            *at = reached;
        }
        // Those of the store are in order.
        let stored = match self.store.find_from(from) {
            _ if sight != Sight::All => None,
            Ok(stored) => stored,
            Err(absent) => return Err(self.rows_wait(world, absent)),
        };
        // It comes first if all active ones that were looked at end before it begins.
        let stored = stored.filter(|record| active.map_or(record.base < at, |(base, _)| record.base < base));
        match (stored, active) {
            (Some(record), _) => Ok(Some(Self::stored_info(record))),
            (None, Some((_, id))) => Ok(Some(self.object_info(id, caller.domain))),
            (None, None) if at == u64::MAX => Ok(None),
            (None, None) => self.report_goes_on(caller, at),
        }
    }
}
