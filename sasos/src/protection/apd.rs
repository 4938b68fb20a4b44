//! Active protection domains: the Clists that are searched when an access is validated, in order.
//!
//! A slot remembers which object it meant, not only its address: should the Clist be deleted and
//! its address come to another object, the slot grants nothing, and nobody can reach into a
//! confined domain by making a Clist where one used to be.
//!
//! Leading slots can be locked for ever; locking *all* forbids insertion too. The APD of a
//! protected procedure's domain is sealed: it serves callers that know nothing of each other.
//! Each change of an APD drops the domain's validation cache, and those derived from it.
//!
//! A lock confines: the one who locked a domain chose what it may call. A domain with a locked slot, and the domain of a call merged
//! with it, registers no procedure ([`Server::locks_allow`]), calls only what the locked slots name ([`Apd::calling_slots`]), and
//! shows a procedure nothing but locked slots. The Clists themselves must be out of its reach: a domain that can write a locked Clist, or
//! the code of what it names, is not confined.

use abi::{
    Error, Rights,
    call::arguments::{ApdDelete, ApdFlush, ApdGet, ApdInsert, ApdLock, ApdLookup},
    layout::{APD_SLOTS, ApdDescription, CALL_DEPTH_MAX},
};
use kcore::SpaceId;

use crate::{
    Answer, Server, Step, Stop, World,
    containers::boxed,
    directory::object::ObjectId,
    lives::budget::Cost,
    lives::continuation::Continuation,
    lives::thread::Caller,
    lives::work::{COST_LARGEST, Piece, Work},
};

/// The `slot` argument of `ApdLock` that locks all, empty slots included.
pub const LOCK_ALL: u64 = u64::MAX;

/// The cost of finding a domain that reads through to another, in instructions, roughly; of a Clist that is shown beside what reading it
/// costs; and of the locks of one domain while Clists are shown.
const COST_DERIVED: Cost = Cost::own(340);
const COST_SHOWN: Cost = Cost::own(390);
const COST_LOCKS: Cost = Cost::own(130);
/// The cost of going down the longest line of merged calls and of having its last domain forget.
const COST_LINE: Cost = COST_DERIVED
    .times(CALL_DEPTH_MAX as u64 + 2)
    .and(Cost::calling(1_000, 2));

/// A Clist that a slot names.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ClistRef {
    /// Its base.
    pub base: u64,
    /// The serial number of the object that stood there.
    pub serial: u64,
    /// The password by which it may be read; zero where none is needed: the system has chosen
    /// the Clist, or a domain that made it and gave it no password. A slot whose password is revoked grants nothing from the next search on.
    pub reader: u64,
}

impl ClistRef {
    /// Whether both name the same Clist, by whatever password.
    fn is_same(&self, other: &Self) -> bool {
        (self.base, self.serial) == (other.base, other.serial)
    }
}

/// An active protection domain.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Apd {
    slots: [ClistRef; APD_SLOTS],
    count: u8,
    locked: u8,
    sealed: bool,
}

impl Apd {
    /// No Clist, nothing locked.
    pub const EMPTY: Self = Self {
        slots: [ClistRef {
            base: 0,
            serial: 0,
            reader: 0,
        }; APD_SLOTS],
        count: 0,
        locked: 0,
        sealed: false,
    };

    /// Slots in use.
    pub const fn count(&self) -> usize {
        self.count as usize
    }

    /// Leading slots that are locked; [`APD_SLOTS`] if all are, empty ones included.
    pub const fn locked(&self) -> usize {
        self.locked as usize
    }

    /// The slots in use.
    pub fn slots(&self) -> &[ClistRef] {
        &self.slots[..self.count()]
    }

    /// The slots in which the right to call counts: all as long as nothing is locked.
    pub fn calling_slots(&self) -> &[ClistRef] {
        if self.locked == 0 {
            self.slots()
        } else {
            self.fixed_slots()
        }
    }

    /// The slots that the domain can never change.
    fn fixed_slots(&self) -> &[ClistRef] {
        if self.sealed {
            self.slots()
        } else {
            &self.slots[..self.locked().min(self.count())]
        }
    }

    /// The same APD, whose domain cannot change it.
    #[must_use]
    pub const fn sealed(mut self) -> Self {
        self.sealed = true;
        self
    }

    /// The same APD for a task, which may change what is not locked.
    #[must_use]
    pub const fn unsealed(mut self) -> Self {
        self.sealed = false;
        self
    }

    /// Whether this APD keeps all that another one has locked, and locks it too.
    pub fn keeps_locks_of(&self, other: &Self) -> bool {
        let mut pairs = self.slots.iter().zip(&other.slots).take(other.locked());
        self.locked >= other.locked && pairs.all(|(own, others)| own.is_same(others))
    }

    /// Appends a Clist.
    ///
    /// # Errors
    /// [`Error::TableFull`].
    pub fn add(&mut self, clist: ClistRef) -> Result<(), Error> {
        *self.slots.get_mut(self.count as usize).ok_or(Error::TableFull)? = clist;
        self.count += 1;
        Ok(())
    }

    /// Inserts a Clist before a slot.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::TableFull`], [`Error::BadArgument`] if there is no such place.
    pub fn insert(&mut self, slot: u64, clist: ClistRef) -> Result<(), Error> {
        let place = self.changeable(slot)?;
        if place > self.count() {
            return Err(Error::BadArgument);
        }
        if self.count() == APD_SLOTS {
            return Err(Error::TableFull);
        }
        self.slots[place..=self.count as usize].rotate_right(1);
        self.slots[place] = clist;
        self.count += 1;
        Ok(())
    }

    /// Removes a slot.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::BadArgument`] if it is not in use.
    pub fn delete(&mut self, slot: u64) -> Result<(), Error> {
        let place = self.changeable(slot)?;
        if place >= self.count() {
            return Err(Error::BadArgument);
        }
        self.slots[place] = ClistRef::default();
        self.slots[place..self.count as usize].rotate_left(1);
        self.count -= 1;
        Ok(())
    }

    /// Locks a slot and those before it, or [`LOCK_ALL`].
    ///
    /// # Errors
    /// [`Error::Locked`] if the APD is sealed, [`Error::BadArgument`] if the slot is not in use.
    pub fn lock(&mut self, slot: u64) -> Result<(), Error> {
        if self.sealed {
            return Err(Error::Locked);
        }
        let locked = match slot {
            LOCK_ALL => APD_SLOTS as u8,
            slot if slot < u64::from(self.count) => slot as u8 + 1,
            _ => return Err(Error::BadArgument),
        };
        self.locked = self.locked.max(locked);
        Ok(())
    }

    fn changeable(&self, slot: u64) -> Result<usize, Error> {
        if self.sealed {
            return Err(Error::Locked);
        }
        if slot > APD_SLOTS as u64 {
            return Err(Error::BadArgument);
        }
        if slot < u64::from(self.locked) || self.locked() == APD_SLOTS {
            return Err(Error::Locked);
        }
        Ok(slot as usize)
    }

    /// As it passes through memory.
    pub fn description(&self) -> ApdDescription {
        ApdDescription {
            count: u64::from(self.count),
            locked: u64::from(self.locked),
            slots: self.slots.map(|slot| slot.base),
        }
    }
}

/// Words of an [`ApdDescription`].
const WORDS: usize = ApdDescription::BYTES / 8;

fn to_bytes(description: &ApdDescription) -> [u8; ApdDescription::BYTES] {
    let mut bytes = [0; ApdDescription::BYTES];
    let words = [description.count, description.locked]
        .into_iter()
        .chain(description.slots);
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn from_bytes(bytes: &[u8; ApdDescription::BYTES]) -> ApdDescription {
    let mut words = [0; WORDS];
    for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = place.try_into().map_or(0, u64::from_le_bytes);
    }
    let [count, locked, slots @ ..] = words;
    ApdDescription { count, locked, slots }
}

impl Server {
    /// A slot's reference to the Clist at an address (any inside the object) that was chosen by somebody who may.
    ///
    /// # Errors
    /// As [`Server::object_at`].
    pub fn clist_ref(&mut self, world: &mut impl World, address: u64) -> Step<ClistRef> {
        let id = self.object_at(world, address)?;
        Ok(self.clist_of(id))
    }

    /// The same of one that is active.
    pub(crate) fn clist_of(&self, id: ObjectId) -> ClistRef {
        let object = self.objects.get(id);
        ClistRef {
            base: object.base(),
            serial: object.serial,
            reader: 0,
        }
    }

    /// A Clist that a domain may read and that is well-formed.
    pub(crate) fn clist_for(&mut self, world: &mut impl World, space: SpaceId, address: u64) -> Step<ClistRef> {
        let id = self.object_at(world, address)?;
        let cached = self.require(world, space, id, Rights::R)?;
        // A domain that made the object may show any of its passwords.
        let listed = self.objects.get(id).reading_password().filter(|_| cached.reader == 0);
        let clist = ClistRef {
            reader: listed.unwrap_or(cached.reader),
            ..self.clist_of(id)
        };
        self.clist_header(world, clist, &mut None)?;
        Ok(clist)
    }

    /// Reads an APD description of a domain. Each Clist in it must be readable there. Those that an earlier piece of the call has seen stand
    /// in the record of its thread.
    pub(crate) fn apd_read(&mut self, world: &mut impl World, space: SpaceId, address: u64) -> Step<Apd> {
        let mut bytes = [0; ApdDescription::BYTES];
        self.read_user(world, space, address, &mut bytes)?;
        let description = from_bytes(&bytes);
        let all_locked = description.locked == APD_SLOTS as u64;
        if description.count > APD_SLOTS as u64 || (description.locked > description.count && !all_locked) {
            return Err(Error::BadArgument.into());
        }
        let record = self.threads.record(self.current);
        let seen = record
            .shown
            .take()
            .filter(|_| record.continuation == Continuation::Shows);
        let mut apd = seen.map_or(Apd::EMPTY, |seen| *seen);
        while let Some(&slot) = description.slots[..description.count as usize].get(apd.count()) {
            let seen = if self.budget.is_left() {
                self.budget.spend(COST_SHOWN);
                self.clist_for(world, space, slot)
            } else {
                Err(Stop::Again)
            };
            apd.add(seen.or_else(|stop| self.shows_later(&apd, stop))?)?;
        }
        apd.locked = description.locked as u8;
        Ok(apd)
    }

    /// A call stops that shows Clists: a later piece of it need not look at those again that it has seen.
    pub(crate) fn shows_later<T>(&mut self, seen: &Apd, stop: Stop) -> Step<T> {
        if !matches!(stop, Stop::Fail(_)) {
            let record = self.threads.record(self.current);
            record.shown = Some(boxed(*seen)?);
            record.continuation = Continuation::Shows;
        }
        Err(stop)
    }

    /// The APDs that a domain searches: its own, then those of the domains it reads through to.
    fn apds(&self, space: SpaceId) -> impl Iterator<Item = &Apd> {
        let domain = self.domains.get(space);
        core::iter::successors(domain, |domain| self.domains.get(domain.parent?)).map(|domain| &domain.apd)
    }

    /// Whether a domain is locked, in its first slots or in all, or reads through to one that is.
    pub(crate) fn is_locked(&self, space: SpaceId) -> bool {
        self.apds(space).any(|apd| apd.locked > 0)
    }

    /// Refuses what would let a locked domain choose its procedures.
    ///
    /// # Errors
    /// [`Error::Locked`].
    pub(crate) fn locks_allow(&self, space: SpaceId) -> Result<(), Error> {
        if self.is_locked(space) {
            Err(Error::Locked)
        } else {
            Ok(())
        }
    }

    /// Refuses a new password that a locked domain has chosen: others may have been told it before.
    ///
    /// # Errors
    /// [`Error::Locked`].
    pub(crate) fn locks_allow_password(&self, space: SpaceId, password: u64) -> Result<(), Error> {
        if password == 0 { Ok(()) } else { self.locks_allow(space) }
    }

    /// Whether all that an APD names stands in slots which a domain can never change; of a domain without locks nothing is asked.
    ///
    /// # Errors
    /// [`Error::Locked`].
    pub(crate) fn locks_allow_showing(&mut self, space: SpaceId, shown: &Apd) -> Result<(), Error> {
        if !self.is_locked(space) {
            return Ok(());
        }
        // One way up for all that is shown. Those on the way have one slot each but for the last, which is a task's or was shown to.
        let mut missing = (1_u32 << shown.count()) - 1;
        let mut domains = 0;
        for apd in self.apds(space) {
            domains += 1;
            for fixed in apd.fixed_slots() {
                for (place, clist) in shown.slots().iter().enumerate() {
                    missing &= !(u32::from(fixed.is_same(clist)) << place);
                }
            }
        }
        self.budget.spend(COST_LOCKS.times(domains));
        if missing == 0 { Ok(()) } else { Err(Error::Locked) }
    }

    /// Whether an APD may be that of a task which a domain makes: it begins with all that is locked there, and locks it too.
    pub(crate) fn locks_are_kept(&self, space: SpaceId, apd: &Apd) -> bool {
        self.apds(space).all(|own| apd.keeps_locks_of(own))
    }

    /// Changes the APD of the caller's domain, which forgets all that it has found out, as do those that read through to it. That
    /// goes on in pieces: the change was made by the first.
    fn apd_change(
        &mut self,
        world: &mut impl World,
        caller: Caller,
        change: impl FnOnce(&mut Apd) -> Result<(), Error>,
    ) -> Answer {
        let space = caller.domain;
        let Some(domain) = self.domains.get_mut(space) else {
            return Err(Error::Protection.into());
        };
        let begun = self.threads.record(caller.thread).continuation;
        let until = if let Continuation::ApdForgets { until } = begun {
            until
        } else {
            change(&mut domain.apd)?;
            self.forget_all(world, space);
            let until = self.domains.get(space).map_or(0, |domain| domain.drained);
            self.threads.record(caller.thread).continuation = Continuation::ApdForgets { until };
            until
        };
        self.reach_the_last();
        self.forget_derived(world, space, until)
            .or_else(|stop| self.forgetting_is_listed(world, space, stop))?;
        Ok((0, 0))
    }

    /// Whether a call has made its change, and the domain is forgetting.
    fn apd_forgets(&mut self, caller: Caller) -> bool {
        let continuation = self.threads.record(caller.thread).continuation;
        matches!(continuation, Continuation::ApdForgets { .. })
    }

    /// The list of work does the rest, should nobody make the call again. It has one item for a domain, however many change its APD.
    fn forgetting_is_listed(&mut self, world: &mut impl World, space: SpaceId, stop: Stop) -> Step<()> {
        let Some(domain) = self.domains.get_mut(space).filter(|domain| !domain.is_listed) else {
            return Err(stop);
        };
        domain.is_listed = true;
        let work = Work::Forgetting(space, domain.serial);
        if self.work_enter_further(work).is_err() {
            self.unbounded(|server| server.work_piece(world, work, true));
            return Ok(());
        }
        Err(stop)
    }

    /// The list's piece of what follows changes of an APD, if the domain is still there: it forgets, and so do those that read through to it, and
    /// those that read through to these. `first` is whether the event has done no other item.
    pub(crate) fn forgetting_piece(
        &mut self,
        world: &mut impl World,
        space: SpaceId,
        serial: u64,
        first: bool,
    ) -> Piece {
        if first {
            self.reach_the_last();
        }
        let Some(until) = self
            .domains
            .get(space)
            .filter(|domain| domain.serial == serial)
            .map(|domain| domain.drained)
        else {
            return Piece::Done;
        };
        if self.forget_derived(world, space, until).is_err() {
            return Piece::More;
        }
        if let Some(domain) = self.domains.get_mut(space) {
            domain.is_listed = false;
        }
        Piece::Done
    }

    /// Once in an event, enough for the way to the end of the longest line of merged calls: where no domain is reached, nothing is noted.
    fn reach_the_last(&mut self) {
        if self.budget.left() >= COST_LARGEST {
            self.budget.at_least(COST_LINE);
        }
    }

    /// The domains that read through to one forget in turn, until all have forgotten what it had when it was drained for the time `until`. A round goes
    /// from the first of them to the last, and the domain notes how far it has come. A change meanwhile has a further round, and begins none anew: those who
    /// change an APD all the time do not keep one another from their answers.
    fn forget_derived(&mut self, world: &mut impl World, space: SpaceId, until: u64) -> Step<()> {
        self.forget_piece(world, space)?;
        loop {
            let Some(domain) = self.domains.get_mut(space).filter(|domain| domain.forgotten < until) else {
                return Ok(());
            };
            if domain.round == domain.forgotten {
                domain.round = domain.drained;
            }
            let (serial, drained, round, told) = (domain.serial, domain.drained, domain.round, domain.told);
            // The look that finds none costs as much.
            let any = self.budget.spend(COST_DERIVED);
            let Some(told) = self.callees.derived_after(serial, told) else {
                if let Some(domain) = self.domains.get_mut(space) {
                    (domain.forgotten, domain.told) = (round, None);
                }
                continue;
            };
            if !any {
                return Err(Stop::Again);
            }
            let next = SpaceId(told.4);
            if self.domains.get(next).is_some_and(|derived| derived.inherits < round) {
                self.forget_in_turn(world, next);
                if let Some(derived) = self.domains.get_mut(next) {
                    (derived.inherits, derived.due) = (drained, derived.drained);
                }
            }
            let due = self.domains.get(next).map_or(0, |derived| derived.due);
            self.forget_derived(world, next, due)?;
            if let Some(domain) = self.domains.get_mut(space) {
                domain.told = Some(told);
            }
            // This domain is noted as done, so the next event does not go down to it again.
            if !self.budget.is_left() {
                return Err(Stop::Again);
            }
        }
    }

    /// `ApdInsert`.
    pub(crate) fn apd_insert(&mut self, world: &mut impl World, caller: Caller, arguments: ApdInsert) -> Answer {
        let ApdInsert { slot, clist: address } = arguments;
        if self.apd_forgets(caller) {
            return self.apd_change(world, caller, |_| Ok(()));
        }
        // Cheap refusals first; the copy is not kept.
        self.domain_apd(caller.domain).insert(slot, ClistRef::default())?;
        let clist = self.clist_for(world, caller.domain, address)?;
        self.apd_change(world, caller, |apd| apd.insert(slot, clist))
    }

    /// `ApdDelete`.
    pub(crate) fn apd_delete(&mut self, world: &mut impl World, caller: Caller, arguments: ApdDelete) -> Answer {
        self.apd_change(world, caller, |apd| apd.delete(arguments.slot))
    }

    /// `ApdGet`.
    pub(crate) fn apd_get(&mut self, world: &mut impl World, caller: Caller, arguments: ApdGet) -> Answer {
        let description = self.domain_apd(caller.domain).description();
        let place = (arguments.description, arguments.room);
        self.tell(world, caller, place, &to_bytes(&description))
    }

    /// `ApdLock`.
    pub(crate) fn apd_lock(&mut self, world: &mut impl World, caller: Caller, arguments: ApdLock) -> Answer {
        let Some(domain) = self.domains.get_mut(caller.domain) else {
            return Err(Error::Protection.into());
        };
        domain.apd.lock(arguments.slot)?;
        // The kernel may remember calls by what counts no more.
        self.calls_of_stale(world, caller.domain);
        Ok((0, 0))
    }

    /// `ApdLookup`.
    // Little but a look at the validation cache: a call of it would cost half as much again.
    #[inline(always)]
    pub(crate) fn apd_lookup(&mut self, world: &mut impl World, caller: Caller, arguments: ApdLookup) -> Answer {
        let ApdLookup { address, rights: bits } = arguments;
        let needed = Rights::from_bits(bits).ok_or(Error::BadArgument)?;
        Ok((self.validate(world, caller.domain, address, needed)?, 0))
    }

    /// `ApdFlush`.
    pub(crate) fn apd_flush(&mut self, world: &mut impl World, caller: Caller, _arguments: ApdFlush) -> Answer {
        self.apd_change(world, caller, |_| Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn clist(base: u64) -> ClistRef {
        ClistRef {
            base,
            serial: 1,
            reader: 0,
        }
    }

    fn bases(apd: &Apd) -> Vec<u64> {
        apd.slots().iter().map(|slot| slot.base).collect()
    }

    #[test]
    fn slots_shift() {
        let mut apd = Apd::EMPTY;
        for (slot, base) in [(0, 10), (1, 30), (1, 20), (0, 5)] {
            apd.insert(slot, clist(base)).unwrap();
        }
        assert_eq!(bases(&apd), [5, 10, 20, 30]);
        apd.delete(1).unwrap();
        assert_eq!(bases(&apd), [5, 20, 30]);
        assert_eq!(apd.insert(4, clist(1)), Err(Error::BadArgument));
        assert_eq!(apd.delete(3), Err(Error::BadArgument));
        assert_eq!(from_bytes(&to_bytes(&apd.description())), apd.description());
    }

    #[test]
    fn sixteen_slots_are_all() {
        let mut apd = Apd::EMPTY;
        for base in 0..16 {
            apd.insert(0, clist(base)).unwrap();
        }
        assert_eq!(apd.insert(3, clist(99)), Err(Error::TableFull));
        assert_eq!(apd.add(clist(99)), Err(Error::TableFull));
        for slot in [16, 17, 1 << 63, u64::MAX] {
            assert!(apd.delete(slot).is_err());
        }
    }

    proptest! {
        /// Against a list, a number of slots that are locked, and a seal.
        #[test]
        fn slots_are_a_list_of_which_the_first_are_locked(steps in prop::collection::vec((0_u8..5, 0_u64..18), 0..60)) {
            let (mut apd, mut model, mut locked) = (Apd::EMPTY, Vec::new(), 0);
            for (number, (kind, slot)) in steps.into_iter().enumerate() {
                let (base, place, before) = (number as u64, slot as usize, apd);
                let refusal = match place {
                    17.. => Some(Error::BadArgument),
                    _ if place < locked || locked == APD_SLOTS => Some(Error::Locked),
                    _ => None,
                };
                let expected = match kind {
                    0 | 1 => match refusal {
                        None if place > model.len() => Err(Error::BadArgument),
                        None if model.len() == APD_SLOTS => Err(Error::TableFull),
                        None => {
                            model.insert(place, base);
                            Ok(())
                        }
                        Some(error) => Err(error),
                    },
                    2 => match refusal {
                        None if place >= model.len() => Err(Error::BadArgument),
                        None => {
                            model.remove(place);
                            Ok(())
                        }
                        Some(error) => Err(error),
                    },
                    3 if model.len() == APD_SLOTS => Err(Error::TableFull),
                    3 => {
                        model.push(base);
                        Ok(())
                    }
                    _ if slot == 17 && number > 40 => {
                        locked = APD_SLOTS;
                        Ok(())
                    }
                    _ if place < model.len() && place < 4 => {
                        locked = locked.max(place + 1);
                        Ok(())
                    }
                    _ => Err(Error::BadArgument),
                };
                let result = match kind {
                    0 | 1 => apd.insert(slot, clist(base)),
                    2 => apd.delete(slot),
                    3 => apd.add(clist(base)),
                    _ if slot == 17 && number > 40 => apd.lock(LOCK_ALL),
                    _ if place < model.len() && place >= 4 => Err(Error::BadArgument),
                    _ => apd.lock(slot),
                };
                prop_assert_eq!(result, expected);
                prop_assert_eq!(bases(&apd), &model[..]);
                let fixed = locked.min(model.len());
                let calling = if locked == 0 { model.len() } else { fixed };
                prop_assert_eq!(apd.calling_slots().len(), calling);
                prop_assert_eq!(apd.fixed_slots().len(), fixed);
                prop_assert_eq!(apd.sealed().fixed_slots().len(), model.len());
                let told = apd.description();
                prop_assert_eq!((told.count, told.locked), (model.len() as u64, locked as u64));
                let rest = model.iter().copied().chain(core::iter::repeat(0)).take(APD_SLOTS);
                prop_assert!(told.slots.into_iter().eq(rest));
                prop_assert_eq!(from_bytes(&to_bytes(&told)), told);
                // Nothing that a domain does to its slots undoes a lock; one that has fewer locks does not keep those of this.
                prop_assert!(apd.keeps_locks_of(&before) || kind == 3 && before.locked() > before.count());
                prop_assert_eq!(before.keeps_locks_of(&apd), before.locked() == locked && before.slots[..locked] == apd.slots[..locked]);
                let mut sealed = apd.sealed();
                let refused = [sealed.insert(0, clist(1)), sealed.delete(0), sealed.lock(0), sealed.lock(LOCK_ALL)];
                prop_assert_eq!(refused, [Err(Error::Locked); 4]);
                prop_assert_eq!(sealed.unsealed(), apd);
            }
        }
    }

    #[test]
    fn locks_hold_and_only_grow() {
        let mut apd = Apd::EMPTY;
        for base in 1..5 {
            apd.add(clist(base)).unwrap();
        }
        apd.lock(1).unwrap();
        apd.lock(0).unwrap();
        assert_eq!(apd.locked(), 2);
        assert_eq!(apd.delete(1), Err(Error::Locked));
        assert_eq!(apd.insert(1, clist(9)), Err(Error::Locked));
        let original = apd;
        apd.insert(2, clist(9)).unwrap();
        assert!(apd.keeps_locks_of(&original));
        assert!(!Apd::EMPTY.keeps_locks_of(&original));
        apd.lock(LOCK_ALL).unwrap();
        assert_eq!(apd.insert(5, clist(9)), Err(Error::Locked));
        assert_eq!(original.sealed().insert(4, clist(9)), Err(Error::Locked));
    }
}
