//! `ObjClone`: a copy of an object at a new address, page by page copy-on-write.
//!
//! The clone shares the frames of the source; both entries withhold writing, and the one that writes
//! first gets a frame of its own. Pages of the source that the disk holds are brought in one after another,
//! so a clone depends on nobody's disk and a source may go its way; one that the clone has stays in memory. The limits of pages go with
//! them, those of pages that are not resident included: so a program image is cloned.

use abi::{
    Error, Rights,
    address::{PAGE, SLOT, pages_for, slot_of},
    call::arguments,
};
use kcore::{Leaf, PageEntry, SpaceId, ThreadId, wait::Key};

use crate::{
    Server, Step, Stop, World,
    accounts::AccountId,
    containers::{copied, push},
    directory::creation::{AddressesOf, Kind},
    directory::object::{LimitRange, ObjectId, slots_for},
    lives::budget::Cost,
    lives::continuation::Continuation,
    lives::task::TaskId,
    lives::thread::Caller,
    lives::work::may_be_helped,
    pages::page::limit_ranges,
    pages::pager::{FRAME_RESERVE, absent_limits, index_of},
    pages::slots::PageBits,
    protection::capability::password_or_random,
};

/// Pages an object may have to be cloned.
pub const CLONE_PAGES_MAX: u64 = 1 << 16;
/// Pages that are shared in one piece, in units of which a page is one, where each run of neighbours counts as [`RUN`] more, each page table as [`PART`]. A page costs some 15 instructions, 35 with the
/// server outside, and a run 100 or 300.
const PIECE_UNITS: usize = 30 * (1 + RUN);
const RUN: usize = 8;
/// Pages that each page table counts as, also one without a page.
const PART: usize = 50;
/// An object with no more pages is cloned in one piece.
const WHOLE_PAGES: usize = 36;
/// The most that sharing so many costs, in instructions, roughly.
const COST_SHARES: Cost = Cost::calling(3_500, PIECE_UNITS as u64 / (1 + RUN) as u64);
/// The cost of making a page table, in instructions, roughly.
pub(crate) const COST_TABLE: Cost = Cost::calling(1950, 2);
/// The cost of looking at a run of pages that the store must be asked for, of sharing one and each of its pages, of passing one, of asking for one,
/// and of noting other limits beside each range of them.
pub(crate) const COST_FOUND: Cost = Cost::own(900);
const COST_SHARED: Cost = Cost::calling(1120, 2);
const COST_SHARED_PAGE: Cost = Cost::own(80);
/// Pages of such a run that are shared at once.
const FOUND_PAGES: u64 = 30;
const COST_PASSED: Cost = Cost::calling(100, 1);
const COST_ASKED: Cost = Cost::calling(900, 1);
const COST_LIMIT: Cost = Cost::own(600);
const COST_LIMIT_RANGE: Cost = Cost::own(70);
/// Pages that are asked of the disk at once.
const READ_AHEAD: u64 = 64;
/// Ranges of limits that an object may have for pages that are not resident.
pub const LIMIT_RANGES_MAX: usize = 64;

impl Server {
    /// `ObjClone`: source, extra bytes, password. Done in pieces: each page is as it is at some moment of the call.
    ///
    /// # Errors
    /// [`Error::BadAddress`], [`Error::Protection`], [`Error::BadArgument`] for a source that is too
    /// large, [`Error::NoMemory`], [`Error::LimitReached`], [`Error::DiskError`]. There is no clone then.
    pub fn obj_clone<W: World>(
        &mut self,
        world: &mut W,
        caller: Caller,
        arguments: arguments::ObjClone,
    ) -> Step<(u64, u64)> {
        if let Continuation::CloneFails { base, serial, error } = self.threads.record(caller.thread).continuation {
            return self.clone_goes(world, caller, (base, serial), error);
        }
        let step = self.clone_piece(world, caller, arguments);
        // Where what is missing may come, the clone stays as it is for another try.
        if let Err(Stop::Fail(error)) = step
            && !may_be_helped(error)
            && let Continuation::Clone { base, serial, .. } = self.threads.record(caller.thread).continuation
        {
            return self.clone_goes(world, caller, (base, serial), error);
        }
        step
    }

    /// Whether a call was making a clone, and fails for want of something that it was not helped to. The clone goes before the call is answered.
    pub(crate) fn clone_is_given_up(&mut self, thread: ThreadId, error: Error) -> bool {
        let Some(Continuation::Clone { base, serial, .. }) =
            self.threads.find(thread).map(|record| record.continuation)
        else {
            return false;
        };
        self.threads.record(thread).continuation = Continuation::CloneFails { base, serial, error };
        true
    }

    /// A piece of the end of a clone that could not be made whole. It stands on the kill list, so it goes in any case.
    fn clone_goes<W: World>(
        &mut self,
        world: &mut W,
        caller: Caller,
        (base, serial): (u64, u64),
        error: Error,
    ) -> Step<(u64, u64)> {
        let goes_on = self.objects.find_serial(base, serial).is_some() && !self.object_ends(world, base);
        // Nothing is tried again for it, whatever there is by now.
        self.threads.record(caller.thread).continuation = Continuation::CloneFails { base, serial, error };
        Err(if goes_on { Stop::Again } else { error.into() })
    }

    fn clone_piece<W: World>(
        &mut self,
        world: &mut W,
        caller: Caller,
        arguments: arguments::ObjClone,
    ) -> Step<(u64, u64)> {
        let arguments::ObjClone {
            source,
            extra_bytes: extra,
            password,
        } = arguments;
        self.locks_allow_password(caller.domain, password)?;
        self.require_at(world, caller.domain, source, Rights::RX)?;
        let source = self.object_at(world, source)?;
        let source_serial = self.objects.get(source).serial;
        let begun = self.threads.record(caller.thread).continuation;
        // A clone that was made without the limits of absent pages asks for them, though somebody may find out all of them before its next piece.
        let mut asks = match begun {
            Continuation::Clone { asks, .. } => asks,
            _ => self.is_asked_for(source),
        };
        let (clone, from) = if let Continuation::Clone { source: of, from, .. } = begun {
            if of != source_serial {
                return Err(Error::BadAddress.into());
            }
            // It is in nobody's hands yet, but an address can be guessed: somebody may have deleted it, or kept it.
            (self.clone_begun(caller).ok_or(Error::BadAddress)?, from)
        } else {
            let payer = self.payer(caller);
            let clone = self.clone_make(world, caller.domain, payer, Some(caller.task), source, extra)?;
            (clone, 0)
        };
        let object = self.objects.get(clone);
        let (base, serial) = (object.base(), object.serial);
        let at = |from, asks| Continuation::Clone {
            base,
            serial,
            source: source_serial,
            from,
            asks,
        };
        self.threads.record(caller.thread).continuation = at(from, asks);
        // To make a large one is a piece of its own.
        let most = match begun {
            Continuation::Clone { .. } => PIECE_UNITS,
            _ if self.objects.get(source).resident > WHOLE_PAGES as u64 => return Err(Stop::Again),
            _ => WHOLE_PAGES * (1 + RUN) + PART,
        };
        if from == 0 && !self.make_leaves(world, source, clone)? {
            return Err(Stop::Again);
        }
        // This comes only now: to find memory for page tables, pages of the source may have been taken back.
        asks |= self.is_asked_for(source);
        let shared = if asks {
            self.share_found(world, source, clone, from)
        } else {
            self.share_pages(world, source, clone, (from, self.clone_end(source, clone)), most)?
        };
        if let Some((from, stop)) = shared {
            self.threads.record(caller.thread).continuation = at(from, asks);
            return Err(stop);
        }
        Ok(self.clone_done(world, clone, password))
    }

    /// The clone that a call has begun.
    fn clone_begun(&mut self, caller: Caller) -> Option<ObjectId> {
        let Continuation::Clone { base, serial, .. } = self.threads.record(caller.thread).continuation else {
            return None;
        };
        let clone = self.objects.find_serial(base, serial)?;
        (!self.objects.get(clone).is_persistent()).then_some(clone)
    }

    /// Clones an object whatever the rights on it. The clone stands on the task's kill list, and
    /// `domain` has all rights. Tells base and password.
    ///
    /// # Errors
    /// Those of [`Server::obj_clone`].
    pub fn object_clone<W: World>(
        &mut self,
        world: &mut W,
        domain: SpaceId,
        task: TaskId,
        source: u64,
        extra_bytes: u64,
    ) -> Step<(u64, u64)> {
        let source = self.object_at(world, source)?;
        let payer = self.tasks.get(task).map_or(AccountId::ROOT, |task| task.account);
        let clone = self.clone_make(world, domain, payer, Some(task), source, extra_bytes)?;
        let shared = self.unbounded(|server| {
            server.make_leaves(world, source, clone)?;
            if server.is_asked_for(source) {
                Ok(server.share_found(world, source, clone, 0))
            } else {
                server.share_pages(world, source, clone, (0, server.clone_end(source, clone)), usize::MAX)
            }
        });
        if let Err(stop) = shared.and_then(|more| more.map_or(Ok(()), |(_, stop)| Err(stop))) {
            self.object_drop(world, clone, AddressesOf::Free);
            return Err(stop);
        }
        Ok(self.clone_done(world, clone, 0))
    }

    /// A clone that has no pages yet.
    fn clone_make<W: World>(
        &mut self,
        world: &mut W,
        domain: SpaceId,
        payer: AccountId,
        task: Option<TaskId>,
        source: ObjectId,
        extra_bytes: u64,
    ) -> Step<ObjectId> {
        let pages = self.objects.get(source).record.pages;
        if pages > CLONE_PAGES_MAX {
            return Err(Error::BadArgument.into());
        }
        let extra = pages_for(extra_bytes).ok_or(Error::NoMemory)?;
        let total = pages.checked_add(extra).ok_or(Error::NoMemory)?;
        let clone = self.object_make(world, Kind::Plain, total, payer, task, domain)?;
        let known = !self.is_asked_for(source);
        let limits = copied(if known {
            &self.objects.get(source).absent_limits
        } else {
            &[]
        });
        let step = limits
            .map_err(Stop::from)
            .and_then(|limits| self.set_limits(clone, limits).map_err(Stop::from));
        if let Err(stop) = step {
            self.object_drop(world, clone, AddressesOf::Free);
            return Err(stop);
        }
        Ok(clone)
    }

    /// Gives a clone the page tables for the pages of its source, as far as the budget reaches; tells whether those were all, and left enough to share
    /// pages.
    fn make_leaves<W: World>(&mut self, world: &mut W, source: ObjectId, clone: ObjectId) -> Step<bool> {
        let pages = self.objects.get(source).record.pages;
        let clone_object = self.objects.get(clone);
        // The source may be longer by now than its clone.
        let slots = slots_for(clone_object.base(), pages).min(clone_object.slot_count());
        let mut makes = false;
        for slot in 0..slots {
            let slots = &self.objects.get(clone).slots;
            if slots.get(slot).is_some_and(|slot| slot.leaf().is_some()) {
                continue;
            }
            if !self.budget.spend(COST_TABLE) {
                return Ok(false);
            }
            self.make_leaf(world, clone, slot)?;
            makes = true;
        }
        Ok(!makes || self.budget.has(COST_SHARES))
    }

    /// The address in a source up to which a clone can have its pages. Either of them may have another length by now.
    fn clone_end(&self, source: ObjectId, clone: ObjectId) -> u64 {
        let object = self.objects.get(source);
        object
            .end()
            .min(object.address_of(self.objects.get(clone).record.pages))
    }

    /// Lists the password of a clone that is complete. Tells base and password.
    fn clone_done<W: World>(&mut self, world: &mut W, clone: ObjectId, password: u64) -> (u64, u64) {
        let password = password_or_random(world, password);
        let record = &mut self.objects.get_mut(clone).record;
        // Room was made with the object.
        let _ = push(&mut record.capabilities, (password, Rights::OWNER.bits()));
        (record.base, password)
    }

    /// Whether the store must be asked for pages of an object.
    pub(crate) fn is_asked_for(&self, id: ObjectId) -> bool {
        let object = self.objects.get(id);
        object.is_persistent() && !object.is_complete()
    }

    /// Gives the clone what the source has from an address on where only the store knows all of it, as far as the budget reaches. Facts found
    /// out of the source need not be asked again. Tells where to go on and why it stopped, if there is more.
    fn share_found<W: World>(
        &mut self,
        world: &mut W,
        source: ObjectId,
        clone: ObjectId,
        from: u64,
    ) -> Option<(u64, Stop)> {
        let (base, end) = (self.objects.get(source).base(), self.clone_end(source, clone));
        let mut at = from.max(base);
        while at < end {
            let [of_source, of_clone] = [source, clone].map(|id| self.cost_of_limit(id));
            if !self.budget.allows(COST_FOUND.and(of_source).and(of_clone)) {
                return Some((at, Stop::Again));
            }
            self.budget.spend(COST_FOUND);
            let before = at;
            let mut noted = true;
            while at < end && at - before < FOUND_PAGES * PAGE && self.is_resident(source, at) {
                at += PAGE;
            }
            if before < at {
                let pages = COST_SHARED_PAGE.times((at - before) / PAGE);
                self.budget.spend(COST_SHARED.and(pages));
                let shared = self.share_pages(world, source, clone, (before, at), usize::MAX);
                if let Err(stop) = shared {
                    return Some((before, stop));
                }
            } else {
                match self.limits_of_absent(world, source, at) {
                    Ok(Some(limits)) => {
                        if let Err(error) = self.limit_absent(clone, (at - base) / PAGE, limits) {
                            return Some((at, error.into()));
                        }
                        // The account of the source pays for what is noted there. If it cannot, it is found out again.
                        noted = self.objects.get(source).known.max(base) != at
                            || self.limit_absent(source, (at - base) / PAGE, limits).is_ok();
                        at += PAGE;
                    }
                    // It came at once: it is resident now, or the next look tells why not.
                    Ok(None) => {}
                    Err(stop) => {
                        if matches!(stop, Stop::Wait(Key::Page(_))) {
                            self.read_ahead(world, source, at, end);
                        }
                        return Some((at, stop));
                    }
                }
            }
            let object = self.objects.get_mut(source);
            if noted && object.known.max(base) == before {
                object.known = if at < object.end() { at } else { u64::MAX };
            }
        }
        None
    }

    /// Asks the disk for the next pages as well, up to `to`, so that it has enough to do. Each takes a frame: where memory is
    /// short, it would be that of the page that the call waits for.
    pub(crate) fn read_ahead<W: World>(&mut self, world: &mut W, id: ObjectId, from: u64, to: u64) {
        let end = to.min(from + READ_AHEAD * PAGE);
        let mut next = from + PAGE;
        // A page that could not be read is for the call that comes to it.
        while next < end && world.frames_free() > FRAME_RESERVE && !self.pager.failed.has(next) && !self.has_all_reads()
        {
            let passes = self.is_resident(id, next) || self.pager.reading.has(next);
            let cost = if passes { COST_PASSED } else { COST_ASKED };
            if !self.budget.has(cost) {
                break;
            }
            self.budget.spend(cost);
            if !passes
                && !matches!(
                    self.limits_of_absent(world, id, next),
                    Ok(_) | Err(Stop::Wait(Key::Page(_)))
                )
            {
                break;
            }
            next += PAGE;
        }
    }

    /// The cost of noting other limits of a page that is not resident: the list of all ranges is made anew.
    fn cost_of_limit(&self, id: ObjectId) -> Cost {
        let ranges = self.objects.get(id).absent_limits.len() as u64;
        COST_LIMIT.and(COST_LIMIT_RANGE.times(ranges))
    }

    /// Gives a page that is not resident these limits, where it has others.
    fn limit_absent(&mut self, id: ObjectId, page: u64, limits: Rights) -> Result<(), Error> {
        let object = self.objects.get(id);
        let ranges = &object.absent_limits;
        if page >= object.record.pages || absent_limits(ranges, page) == limits {
            return Ok(());
        }
        self.budget.spend(self.cost_of_limit(id));
        let change = LimitRange {
            first: page,
            end: page + 1,
            limits,
        };
        let ranges = limit_ranges(ranges, change)?;
        self.set_limits(id, ranges)
    }

    /// Whether a page of an object has an entry.
    pub(crate) fn is_resident(&self, id: ObjectId, address: u64) -> bool {
        let object = self.objects.get(id);
        let slot = object.slots.get(slot_of(address) - object.first_slot());
        slot.is_some_and(|slot| slot.resident.has(index_of(address)))
    }

    /// Gives the clone the frames of up to `most` pages of the source in a range of addresses, where each run and each page table counts as some pages more. Tells where
    /// to go on, if there are more.
    fn share_pages<W: World>(
        &mut self,
        world: &mut W,
        source: ObjectId,
        clone: ObjectId,
        (from, to): (u64, u64),
        most: usize,
    ) -> Step<Option<(u64, Stop)>> {
        let object = self.objects.get(source);
        let (from, to) = (from.max(object.base()), to.min(object.end()));
        // Nothing below asks for a frame, so no entry of the source goes meanwhile.
        let charged = object
            .resident
            .min(most as u64)
            .min((to / PAGE).saturating_sub(from / PAGE));
        self.charge_pages(clone, charged)?;
        let (mut shared, mut looked) = (0, 0);
        let mut taken_away = false;
        let mut more = None;
        let mut at = from;
        while let Some(part) = self.next_part(source, clone, at, to) {
            if looked >= most {
                more = Some(at);
                break;
            }
            looked += PART;
            let mut of_clone = part.of_clone.map(|(slot, leaf)| {
                let state = self.objects.get_mut(clone).slots.touch(slot);
                (leaf, &mut state.resident)
            });
            let mut next = 0;
            while let Some((first, end)) = part.pages.next_run(next) {
                if looked >= most {
                    more = Some(part.start + first as u64 * PAGE);
                    break;
                }
                let at = first.wrapping_add_signed(part.offset);
                // Its task may have written to some by now.
                let there = of_clone.as_ref().and_then(|(_, resident)| resident.next(at));
                let there = there.map_or(end, |there| first + there - at);
                let run = if there == first { 1 } else { end.min(there) - first };
                let run = run.min(most - looked);
                next = first + run;
                looked += run + RUN;
                if let Some((leaf, resident)) = &mut of_clone
                    && there != first
                {
                    taken_away |= world.leaf_share(part.leaf, first..next, *leaf, at);
                    resident.set_run(at, at + run);
                    shared += run as u64;
                }
            }
            if more.is_some() {
                break;
            }
            at = part.end;
        }
        self.objects.get_mut(clone).resident += shared;
        self.objects.resident_pages += shared;
        self.refund_pages(clone, charged - shared);
        if taken_away {
            world.flush_everything();
        }
        Ok(more.map(|next| (next, Stop::Again)))
    }

    /// The next pages of a source in a range of addresses that lie in one slot, and in one slot of its clone.
    fn next_part(&self, source: ObjectId, clone: ObjectId, from: u64, to: u64) -> Option<Part> {
        let (object, copy) = (self.objects.get(source), self.objects.get(clone));
        let to = to.min(object.address_of(copy.record.pages));
        let number = object.slots.next_with_leaf(slot_of(from) - object.first_slot())?;
        let start = (object.first_slot() + number) * SLOT;
        let from = from.max(start);
        if from >= to {
            return None;
        }
        let target = copy.base() + (from - object.base());
        let end = to.min(start + SLOT).min(from + SLOT - target % SLOT);
        let state = object.slots.get(number)?;
        let mut pages = state.resident;
        let slot = slot_of(target) - copy.first_slot();
        Some(Part {
            start,
            end,
            leaf: state.leaf()?,
            pages: pages.take_run(index_of(from), ((end - start) / PAGE) as usize),
            of_clone: copy.slots.get(slot).and_then(|state| Some((slot, state.leaf()?))),
            offset: index_of(target).cast_signed() - index_of(from).cast_signed(),
        })
    }
}

/// Pages of a source that lie in one slot, and in one slot of its clone.
struct Part {
    /// The address of the source's slot.
    start: u64,
    /// The address in the source behind them.
    end: u64,
    leaf: Leaf,
    /// Those that are resident.
    pages: PageBits,
    /// The slot of the clone, and its leaf.
    of_clone: Option<(u64, Leaf)>,
    /// From the index of a page in the source's slot to that in the clone's.
    offset: isize,
}

/// Withholds writing from a page that its limits let be written; tells whether it was taken away. Then
/// translations are to be flushed.
pub(crate) fn withhold<W: World>(world: &mut W, leaf: Leaf, index: usize) -> bool {
    let Some(entry) = world.leaf_get(leaf, index) else {
        return false;
    };
    let took = entry.limits.contains(Rights::W) && !entry.write_withheld;
    if took {
        world.leaf_set(leaf, index, Some(PageEntry::new(entry.frame, entry.limits).withheld()));
    }
    took
}
