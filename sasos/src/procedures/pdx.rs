//! Protection domain extension: protected calls into objects.
//!
//! A call names an entry point and how the callee's domain is made: the Clist that was registered
//! with the entry, alone (*empty*), with what the caller's domain can do (*merge*), or with Clists
//! that the caller shows (*explicit*). Callee domains are made on the first call and kept:
//!
//! * empty: one for all callers of the same PDX capability;
//! * merge: one for each caller's domain, which it reads through to and never writes into;
//! * explicit: one for each list of Clists.
//!
//! The first call validates and tells the kernel the way ([`kcore::Machine::portal_cache`]); later
//! ones do not come here. So nothing may be counted per call: the threads inside of a callee are found
//! by looking at the frames of all threads, which only the end of a callee needs.
//!
//! Callees run on stacks of their own domain, made on demand and bounded in number; a call that finds none
//! free waits. Some are free to all, of the others no client gets all (`guests`). A callee ends with its object, and with the caller's domain where it is merged.
//! Threads inside are unwound: the call comes back with `CalleeFault`.

use alloc::vec::Vec;

use abi::{
    Error,
    address::STACK_BYTES,
    call::arguments::{PdxCall, PdxReturn},
    layout::{CALL_DEPTH_MAX, PD_EMPTY, PD_MERGE},
};
use kcore::{
    SpaceId, ThreadId,
    machine::Stacks,
    space::{STACKS_MAX, STACKS_OPEN},
    wait::Key,
};

use crate::{
    Outcome, Server, Step, Stop, World,
    accounts::{AccountId, Resource},
    containers::{Boxed, Map, Places, boxed, push_reserved, reserve},
    lives::budget::Cost,
    lives::exception::{Handlers, SAVED_BYTES},
    lives::thread::Caller,
    lives::work::PIECE,
    procedures::guests::{Admission, Guests},
    procedures::unwind::depth_inside,
    protection::apd::{Apd, ClistRef},
    protection::validation::PdxGrant,
};

/// Callee domains that are kept before unused ones are given up.
pub const CALLEES_MAX: usize = 512;
/// Domains for lists of Clists that callers show which a call looks at.
const EXPLICIT_LOOKS: usize = 8;
/// The most that a look at what a call shows may cost, if the rest of the call is to be done in the same event.
const COST_SHOWN_MOST: u64 = 2500;
/// The cost of making one with its first stack, in instructions, roughly, and what a search needs to get on through all merged calls.
const COST_MAKE: Cost = Cost::calling(6000, 8);
const COST_SEARCH_LEAST: Cost = Cost::own(5500);

/// The rights of a callee's domain beside the registered Clist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Extension {
    /// Nothing.
    Empty,
    /// The rights of the caller's domain, which has this serial number.
    Merge(u64),
    /// Clists that the caller shows.
    Explicit(Boxed<Apd>),
}

impl Extension {
    /// Its part of the order: for Clists a hash of them, which is no serial number of a domain.
    pub(crate) fn number(&self) -> u64 {
        match self {
            Extension::Merge(caller) => *caller,
            Extension::Empty => u64::MAX,
            Extension::Explicit(apd) => {
                let mix =
                    |hash: u64, slot: &ClistRef| (hash.rotate_left(7) ^ slot.base).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                apd.slots().iter().fold(0, mix) | 1 << 63
            }
        }
    }
}

/// The stage of a callee's life.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stage {
    /// Calls enter it.
    Open,
    /// No call enters it any more; it ends when the last one has left.
    Retired,
    /// It ends: threads inside are taken out.
    Ends,
}

/// A callee among those of its kind of extension: number of that, stage, base of the object, password, space. It is also a place to go on
/// behind: a callee that comes to another stage meanwhile comes once more.
pub(crate) type Derived = (u64, Stage, u64, u64, u32);
/// A callee among those of its object: base, stage, password, space.
type OfObject = (u64, Stage, u64, u32);

/// The domain of a protected procedure.
#[derive(Debug)]
pub(crate) struct Callee {
    /// The object.
    pub(crate) base: u64,
    /// The PDX capability.
    pub(crate) password: u64,
    /// The Clist that was registered with it: a call that registers another one does not mean this domain.
    clist: u64,
    /// How its domain is made.
    pub(crate) extension: Extension,
    /// Bases of its stacks.
    pub(crate) stacks: Vec<u64>,
    /// Calls that have one of its kept stacks.
    pub(crate) guests: Guests,
    handlers: Handlers,
    /// The stage of its life.
    pub(crate) stage: Stage,
    /// The threads in places before this one are not inside any more.
    pub(crate) searched: usize,
    /// The account that pays for its domain and stacks.
    pub(crate) payer: AccountId,
}

/// The callees that a walk over all places looks for. Each kind of walk has a place of its own.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Looks {
    Retired,
    Unused,
}

/// All callee domains.
#[derive(Default)]
pub struct Callees {
    /// By the number of the space.
    table: Places<Callee>,
    /// All of them in two orders, so that nobody looks at those of others. There is room for them at any stage.
    by_extension: Map<Derived, ()>,
    by_object: Map<OfObject, ()>,
    /// Those that are not open.
    closed: usize,
    /// The places that are looked at next: for those that have retired, and for those that nobody uses. One place for both would have each pass what the
    /// other has to see.
    looked_at: [u32; 2],
    /// Whether polls have looked at them first the last time.
    went_first: bool,
}

impl Callees {
    pub(crate) fn get(&self, space: SpaceId) -> Option<&Callee> {
        self.table.get(space.0)
    }

    pub(crate) fn get_mut(&mut self, space: SpaceId) -> Option<&mut Callee> {
        self.table.get_mut(space.0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SpaceId, &Callee)> {
        self.table.iter().map(|(number, callee)| (SpaceId(number), callee))
    }

    /// Numbers of spaces that may be a callee's.
    pub(crate) fn end(&self) -> u32 {
        self.table.end()
    }

    /// Base of the object whose procedures run in a domain, if it is a callee's.
    pub fn object_of(&self, space: SpaceId) -> Option<u64> {
        self.get(space).map(|callee| callee.base)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.table.count()
    }

    /// How many of them calls enter.
    pub fn count_open(&self) -> usize {
        self.count() - self.closed
    }

    /// Whether a poll looks at them first, which each second one does.
    pub(crate) const fn take_turn(&mut self) -> bool {
        self.went_first = !self.went_first;
        self.went_first
    }

    /// Whether any is not open.
    pub(crate) fn has_closed(&self) -> bool {
        self.closed > 0
    }

    /// Stacks that all callee domains have together.
    pub fn stack_count(&self) -> usize {
        self.iter().map(|(_, callee)| callee.stacks.len()).sum()
    }

    /// Exception handlers of a callee's domain.
    pub fn handlers_mut(&mut self, space: SpaceId) -> Option<&mut Handlers> {
        self.get_mut(space).map(|callee| &mut callee.handlers)
    }

    /// One that can be entered. Of explicit ones some are looked at, for callers may show lists without end; a further domain is made then.
    fn find(&self, grant: &PdxGrant, extension: &Extension) -> Option<SpaceId> {
        let key = |space| (extension.number(), Stage::Open, grant.base, grant.password, space);
        let mut at = 0;
        for _ in 0..EXPLICIT_LOOKS {
            let ((.., space), ()) = self.by_extension.first_in(key(at)..key(u32::MAX))?;
            let callee = self.get(SpaceId(space))?;
            if callee.clist == grant.clist && callee.extension == *extension {
                return Some(SpaceId(space));
            }
            at = space + 1;
        }
        None
    }

    fn insert(&mut self, space: SpaceId, callee: Callee) -> Result<(), Error> {
        self.table.reach(space.0)?;
        let all = self.table.count() + 1;
        self.by_extension.reserve(all)?;
        self.by_object.reserve(all)?;
        self.table.put(space.0, boxed(callee)?);
        self.list(space);
        Ok(())
    }

    /// The keys of a callee in the two orders.
    fn keys(&self, space: SpaceId) -> Option<(Derived, OfObject)> {
        let callee = self.get(space)?;
        let (number, stage) = (callee.extension.number(), callee.stage);
        let (base, password) = (callee.base, callee.password);
        Some((
            (number, stage, base, password, space.0),
            (base, stage, password, space.0),
        ))
    }

    fn list(&mut self, space: SpaceId) {
        if let Some((derived, of_object)) = self.keys(space) {
            // Room was made when it came.
            let _ = self.by_extension.insert(derived, ());
            let _ = self.by_object.insert(of_object, ());
        }
    }

    fn unlist(&mut self, space: SpaceId) {
        if let Some((derived, of_object)) = self.keys(space) {
            self.by_extension.remove(derived);
            self.by_object.remove(of_object);
        }
    }

    /// Brings a callee to a later stage; tells whether it was at an earlier one. No new calls find it.
    pub(crate) fn advance(&mut self, space: SpaceId, stage: Stage) -> bool {
        let Some(before) = self
            .get(space)
            .map(|callee| callee.stage)
            .filter(|&before| before < stage)
        else {
            return false;
        };
        self.unlist(space);
        if let Some(callee) = self.get_mut(space) {
            callee.stage = stage;
        }
        self.list(space);
        self.closed += usize::from(before == Stage::Open);
        true
    }

    /// The place to look at, round and round.
    pub(crate) const fn place(&self, looks: Looks) -> SpaceId {
        SpaceId(self.looked_at[looks as usize])
    }

    /// That place was looked at: the next one is another. Only what was paid for is passed, or the rounds of equal events would pass the same places
    /// every time.
    pub(crate) fn pass_place(&mut self, looks: Looks) {
        let end = self.end().max(1);
        let place = &mut self.looked_at[looks as usize];
        *place = (*place + 1) % end;
    }

    /// Takes one off that ends.
    pub(crate) fn remove(&mut self, space: SpaceId) {
        self.unlist(space);
        if self.table.take(space.0).is_some() {
            self.closed -= 1;
            let left = self.table.count();
            self.by_extension.release(left);
            self.by_object.release(left);
        }
    }

    /// The domains that read through to one, in a fixed order: the first, or the one behind another.
    pub(crate) fn derived_after(&self, caller: u64, after: Option<Derived>) -> Option<Derived> {
        let number = Extension::Merge(caller).number();
        let from = after.map_or(
            (number, Stage::Open, 0, 0, 0),
            |(number, stage, base, password, space)| (number, stage, base, password, space + 1),
        );
        let next = self.by_extension.first_in(from..(number + 1, Stage::Open, 0, 0, 0));
        next.map(|(key, ())| key)
    }

    /// One of the domains that read through to another, which does not end yet.
    pub(crate) fn derived_that_lives(&self, caller: u64) -> Option<SpaceId> {
        let (_, stage, .., space) = self.derived_after(caller, None)?;
        (stage < Stage::Ends).then_some(SpaceId(space))
    }

    /// A callee of an object, which does not end yet.
    pub(crate) fn first_of_object(&self, base: u64) -> Option<SpaceId> {
        let key = |stage| (base, stage, 0, 0);
        let next = self.by_object.first_in(key(Stage::Open)..key(Stage::Ends));
        next.map(|((.., space), ())| SpaceId(space))
    }

    /// The open callees of an object, in a fixed order of their passwords and spaces: the first, or the one behind another.
    pub(crate) fn open_of_object_after(&self, base: u64, after: Option<SpaceId>) -> Option<SpaceId> {
        let behind = after.and_then(|space| {
            let callee = self.get(space)?;
            Some((base, Stage::Open, callee.password, space.0 + 1))
        });
        let from = behind.unwrap_or((base, Stage::Open, 0, 0));
        let next = self.by_object.first_in(from..(base, Stage::Retired, 0, 0));
        next.map(|((.., space), ())| SpaceId(space))
    }

    /// A callee of a password that is open.
    pub(crate) fn first_of_password(&self, base: u64, password: u64) -> Option<SpaceId> {
        let key = |space| (base, Stage::Open, password, space);
        let next = self.by_object.first_in(key(0)..key(u32::MAX));
        next.map(|((.., space), ())| SpaceId(space))
    }
}

impl Server {
    // ---- calls ----------------------------------------------------------------------------------

    /// `PdxCall`: entry, parameter, pd, three more parameters.
    pub fn pdx_call(&mut self, world: &mut impl World, caller: Caller, arguments: PdxCall) -> Outcome {
        let PdxCall {
            entry,
            parameter0,
            pd,
            parameter1,
            parameter2,
            parameter3,
        } = arguments;
        let doom = self.threads.record(caller.thread).doom;
        if world.portal_depth(caller.thread) >= doom.map_or(CALL_DEPTH_MAX, |doom| doom.depth_max()) {
            return Outcome::Return(Err(Error::TooDeep));
        }
        // The portal cache may know the callee: the call left the fast path only because no open stack was free. Then no right is searched for again.
        let known = world.portal_known(caller.domain, entry, pd);
        let callee = match known.map_or_else(|| self.callee_for(world, caller, entry, pd), Ok) {
            Ok(callee) => callee,
            Err(stop) => return Outcome::from(Err(stop)),
        };
        let parameters = [parameter0, parameter1, parameter2, parameter3];
        match self.callee_enter(world, caller, callee, entry, parameters) {
            Ok(None) => {}
            Ok(Some(key)) => return Outcome::Block(key, None),
            // A new callee without a stack stays. The next try finds it, and where memory is short it ends like any callee that nobody is inside of.
            Err(error) => return Outcome::Return(Err(error)),
        }
        if known.is_none() && (pd == PD_EMPTY || pd == PD_MERGE) {
            world.portal_cache(caller.domain, entry, pd, callee);
        }
        Outcome::Resume
    }

    /// `PdxReturn`: result, second result.
    pub fn pdx_return(&mut self, world: &mut impl World, caller: Caller, arguments: PdxReturn) -> Outcome {
        let PdxReturn { result, result2 } = arguments;
        if self.callee_leave(world, caller.thread, 0, result, result2).is_none() {
            return Outcome::Return(Err(Error::NotInCall));
        }
        self.handler_left(world, caller.thread);
        if self.doom_falls(world, caller.thread) {
            Outcome::Gone
        } else {
            Outcome::Resume
        }
    }

    /// Takes a thread out of its innermost call, with those results. `None` if it is in none.
    pub(crate) fn callee_leave(
        &mut self,
        world: &mut impl World,
        thread: ThreadId,
        error: u64,
        value: u64,
        value2: u64,
    ) -> Option<()> {
        let space = world.thread_space(thread);
        world.portal_leave(thread, error, value, value2)?;
        let depth = world.portal_depth(thread);
        let callee = self.callees.get_mut(space);
        if let Some(gone) = callee.and_then(|callee| callee.guests.leave(thread, depth)) {
            self.turns_come(world, space, gone);
        }
        if let Some(doom) = &mut self.threads.record(thread).doom {
            doom.left_call(depth);
        }
        Some(())
    }

    /// A guest of that client has left: it and others may have more kept stacks now. So threads that wait for their client's turn look anew, as many of
    /// each client as may enter.
    #[cold]
    fn turns_come(&mut self, world: &mut impl World, space: SpaceId, gone: AccountId) {
        let Some(callee) = self.callees.get(space) else { return };
        let others = callee.guests.clients().filter(|&client| client != gone);
        for client in core::iter::once(gone).chain(others) {
            let count = callee.guests.turns(client);
            if count > 0 {
                world.wake(Key::Turn(space.0, client.share()), count);
            }
        }
    }

    /// The domain that a call enters.
    fn callee_for(&mut self, world: &mut impl World, caller: Caller, entry: u64, pd: u64) -> Step<SpaceId> {
        let extension = match pd {
            PD_MERGE => Extension::Merge(self.domains.serial(caller.domain)),
            PD_EMPTY => Extension::Empty,
            address => {
                let shown = self.apd_read(world, caller.domain, address)?;
                if self.budget.left() < PIECE - COST_SHOWN_MOST {
                    return self.shows_later(&shown, Stop::Again);
                }
                self.locks_allow_showing(caller.domain, &shown)?;
                Extension::Explicit(boxed(shown)?)
            }
        };
        // Last, for no cache has what it finds: another search behind it would drop its bookmark, and it that one's, for ever. A domain
        // that it has found no room for yet is made in the same event.
        self.budget.spend(COST_MAKE);
        self.budget.at_least(COST_SEARCH_LEAST);
        let grant = match (self.pdx_grant(world, caller.domain, entry), &extension) {
            (Err(stop), Extension::Explicit(shown)) => self.shows_later(shown, stop)?,
            (grant, _) => grant?,
        };
        if let Some(space) = self.callees.find(&grant, &extension) {
            return Ok(space);
        }
        // So that it is active.
        if grant.clist != 0 {
            self.object_at(world, grant.clist)?;
        }
        Ok(self.callee_make(world, caller.domain, &grant, extension)?)
    }

    fn callee_make(
        &mut self,
        world: &mut impl World,
        caller: SpaceId,
        grant: &PdxGrant,
        extension: Extension,
    ) -> Result<SpaceId, Error> {
        let mut apd = Apd::EMPTY;
        if grant.clist != 0 {
            let clist = self.objects.find(grant.clist).ok_or(Error::BadAddress)?;
            let clist = self.clist_of(clist);
            apd.add(ClistRef {
                reader: grant.reader,
                ..clist
            })?;
        }
        if let Extension::Explicit(shown) = &extension {
            for &clist in shown.slots() {
                apd.add(clist)?;
            }
        }
        let parent = matches!(extension, Extension::Merge(_)).then_some(caller);
        if self.callees.count_open() >= CALLEES_MAX {
            self.unused_callees_end(world, self.callees.end(), AccountId::ROOT);
        }
        let payer = self.callee_payer(grant, parent);
        let space = self
            .callee_domain_create(world, apd, parent, payer)
            .inspect_err(|_| self.work.refuse(self.ledger.number(payer)))?;
        if let Err(error) = self.work.promise() {
            self.domain_end(world, space);
            return Err(error);
        }
        let callee = Callee {
            base: grant.base,
            password: grant.password,
            clist: grant.clist,
            extension,
            stacks: Vec::new(),
            guests: Guests::default(),
            handlers: Handlers::default(),
            stage: Stage::Open,
            searched: 0,
            payer,
        };
        if let Err(error) = self.callees.insert(space, callee) {
            self.work.release();
            self.domain_end(world, space);
            return Err(error);
        }
        Ok(space)
    }

    /// The payer of a callee's domain and stacks: the service, because all callers share it; if it is merged, the one caller's domain,
    /// or clients could make a service pay for one domain after another. For a service of the system's own, all programs pay.
    fn callee_payer(&self, grant: &PdxGrant, parent: Option<SpaceId>) -> AccountId {
        let payer = if let Some(caller) = parent {
            self.domains.get(caller).map(|domain| domain.account)
        } else {
            let object = self.objects.find(grant.base);
            object.map(|id| self.objects.get(id).account)
        };
        payer
            .filter(|&payer| parent.is_some() || self.ledger.is_within(payer, self.programs))
            .unwrap_or(self.programs)
    }

    /// Enters a callee on a stack that is free to all, or on one that the client may take; else tells what to wait for.
    fn callee_enter(
        &mut self,
        world: &mut impl World,
        caller: Caller,
        space: SpaceId,
        entry: u64,
        parameters: [u64; 4],
    ) -> Result<Option<Key>, Error> {
        let thread = caller.thread;
        if world
            .portal_enter(thread, space, entry, parameters, Stacks::Open)
            .is_some()
        {
            return Ok(None);
        }
        let client = self.ledger.family(self.payer(caller), self.programs);
        let callee = self.callees.get_mut(space).ok_or(Error::NoMemory)?;
        let is_shared = !matches!(callee.extension, Extension::Merge(_));
        let (open, depth) = (callee.stacks.len() < STACKS_OPEN, world.portal_depth(thread));
        if !open && is_shared {
            match callee
                .guests
                .ask(client, || depth_inside(world, thread, space).is_some())?
            {
                Admission::Enter => {}
                Admission::Full => return Ok(Some(Key::Stack(space.0))),
                Admission::AtBound => return Ok(Some(Key::Turn(space.0, client.share()))),
            }
        }
        let stacks = if open { Stacks::Open } else { Stacks::All };
        if open || world.portal_enter(thread, space, entry, parameters, stacks).is_none() {
            if !self.callee_stack_add(world, space)? {
                return Ok(Some(Key::Stack(space.0)));
            }
            (world.portal_enter(thread, space, entry, parameters, stacks)).ok_or(Error::NoMemory)?;
        }
        if !open
            && is_shared
            && let Some(callee) = self.callees.get_mut(space)
        {
            callee.guests.enter(thread, depth, client);
        }
        Ok(None)
    }

    /// Gives a callee one more stack; tells whether it may have one.
    fn callee_stack_add(&mut self, world: &mut impl World, space: SpaceId) -> Result<bool, Error> {
        let Some(callee) = self.callees.get_mut(space) else {
            return Err(Error::NoMemory);
        };
        let count = callee.stacks.len();
        if count >= STACKS_MAX {
            return Ok(false);
        }
        match reserve(&mut callee.stacks, 1) {
            Err(_) if count > 0 => return Ok(false),
            room => room?,
        }
        let payer = callee.payer;
        // With it goes what a handler may interrupt there, so that none is missed where a service counts on it.
        let paid = self.ledger.take(payer, Resource::Bytes, SAVED_BYTES);
        let made = paid.and_then(|()| {
            self.stack_create(world, payer, space)
                .inspect_err(|_| self.ledger.give(payer, Resource::Bytes, SAVED_BYTES))
        });
        let stack = match made {
            Ok(stack) => stack,
            Err(_) if count > 0 => return Ok(false),
            Err(error) => {
                self.work.refuse(self.ledger.number(payer));
                return Err(error);
            }
        };
        if let Some(callee) = self.callees.get_mut(space) {
            push_reserved(&mut callee.stacks, stack);
        }
        world.portal_add_stack(space, stack + STACK_BYTES);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callee(base: u64, password: u64, extension: Extension) -> Callee {
        Callee {
            base,
            password,
            clist: 0,
            extension,
            stacks: Vec::new(),
            guests: Guests::default(),
            handlers: Handlers::default(),
            stage: Stage::Open,
            searched: 0,
            payer: AccountId::ROOT,
        }
    }

    #[test]
    fn a_callee_is_found_by_capability_and_extension() {
        let mut callees = Callees::default();
        let grant = |base, password| PdxGrant {
            base,
            password,
            clist: 0,
            reader: 0,
        };
        callees.insert(SpaceId(4), callee(0x1000, 7, Extension::Empty)).unwrap();
        callees
            .insert(SpaceId(5), callee(0x1000, 7, Extension::Merge(2)))
            .unwrap();
        callees
            .insert(SpaceId(6), callee(0x1000, 8, Extension::Merge(2)))
            .unwrap();
        callees
            .insert(
                SpaceId(9),
                callee(0x1000, 7, Extension::Explicit(boxed(Apd::EMPTY).unwrap())),
            )
            .unwrap();
        assert_eq!(callees.find(&grant(0x1000, 7), &Extension::Empty), Some(SpaceId(4)));
        assert_eq!(callees.find(&grant(0x1000, 8), &Extension::Empty), None);
        assert_eq!(callees.find(&grant(0x1000, 7), &Extension::Merge(2)), Some(SpaceId(5)));
        assert_eq!(callees.find(&grant(0x1000, 7), &Extension::Merge(3)), None);
        assert_eq!(
            callees.find(&grant(0x1000, 7), &Extension::Explicit(boxed(Apd::EMPTY).unwrap())),
            Some(SpaceId(9))
        );
        // One behind the other, and none that reads through to the next caller.
        callees
            .insert(SpaceId(7), callee(0x1000, 9, Extension::Merge(3)))
            .unwrap();
        let first = callees.derived_after(2, None).unwrap();
        let second = callees.derived_after(2, Some(first)).unwrap();
        assert_eq!([first.4, second.4], [5, 6]);
        assert_eq!(callees.derived_after(2, Some(second)), None);
        callees.advance(SpaceId(7), Stage::Ends);
        callees.remove(SpaceId(7));
        for space in [5, 6] {
            callees.advance(SpaceId(space), Stage::Ends);
            callees.remove(SpaceId(space));
        }
        assert_eq!(callees.derived_after(2, None), None);
        assert_eq!(callees.count(), 2);
        assert_eq!(callees.object_of(SpaceId(9)), Some(0x1000));
    }
}
