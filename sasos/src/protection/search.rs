//! A search through the Clists of a domain, in pieces.
//!
//! There may be [`APD_SLOTS`] Clists of [`crate::protection::clist::UNSORTED_MAX`] capabilities for each of [`CALL_DEPTH_MAX`] merged calls, all
//! of them written by somebody who means no good. So one event looks at a part only, and the call or the access is done
//! again for the next one. The thread has a bookmark of where it stands, and of the rights that it has found: these are in the domain's cache,
//! too, but the place there may be needed for another object meanwhile.
//!
//! A bookmark is good for the same call, or for the same access tried again: it is dropped when the thread makes another
//! call or is taken out of one, and it is worth nothing once the domain's cache was dropped or the object was taken
//! away from anybody, as it is when a right goes that was found. A capability that is written into a part that was searched already is found by the next search; where one was removed, the
//! Clist is searched from its beginning.

use abi::{
    Error, Rights,
    layout::{CALL_DEPTH_MAX, Capability},
};
use kcore::{SpaceId, ThreadId};

use crate::{
    Server, Step, Stop, World,
    directory::object::{Object, ObjectId},
    lives::budget::Cost,
    protection::apd::{Apd, ClistRef},
    protection::clist::Reached,
    protection::domain::Cached,
};

/// The cost of asking a domain what it has without its Clists, in instructions, roughly.
const COST_LEVEL: Cost = Cost::own(290);
/// The same of passing one that an earlier piece has asked.
const COST_PASSED: Cost = Cost::own(20);

/// Whether a search has found enough.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Enough {
    /// It has.
    Yes,
    /// It goes on.
    No,
}

/// The goal of a search, and the rights that were found so far.
pub(crate) trait Sought {
    /// The slots of an APD that are searched for it.
    fn slots<'a>(&self, apd: &'a Apd) -> &'a [ClistRef] {
        apd.slots()
    }

    /// Rights that a domain has without a Clist, or has found before.
    fn have(&mut self, known: Cached) -> Enough;

    /// The rights that were found so far.
    fn found(&self) -> Cached;

    /// A capability for the object, and where it stands. The error in case nothing else is found may be left in `fault`.
    fn see(&mut self, object: &Object, address: u64, capability: Capability, fault: &mut Option<Error>) -> Enough;
}

/// Which search a bookmark belongs to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Which {
    thread: ThreadId,
    /// The domain, by its serial number, and how often its cache had been dropped.
    domain: (u64, u64),
    /// The object, and how often it had been taken away.
    object: (u64, u64),
    rights: Rights,
}

/// The point that a search has reached.
#[derive(Copy, Clone, Debug, Default)]
struct Place {
    /// The number of merged calls above the domain.
    level: usize,
    /// The Clist's slot in that domain's APD. A change of the slots drops the cache.
    slot: usize,
    /// How far that has been searched.
    reached: Reached,
    /// The error if nothing is found.
    fault: Option<Error>,
}

/// How far a thread has come in a search that is done in pieces.
#[derive(Copy, Clone, Debug)]
pub struct Bookmark {
    which: Which,
    place: Place,
    found: Cached,
}

impl Server {
    /// Looks for something in a domain's own rights and in the Clists of its APD, in order, then in those of the domain with which
    /// its call was merged, until it is enough.
    ///
    /// # Errors
    /// [`Stop::Again`] after a piece; the need to wait for a page; [`Error::DiskError`] if a Clist was damaged, or what the search
    /// says instead, or [`Error::Protection`], if there was not enough.
    pub(crate) fn search(
        &mut self,
        world: &mut impl World,
        space: SpaceId,
        id: ObjectId,
        rights: Rights,
        sought: &mut impl Sought,
    ) -> Step<()> {
        if self.is_closed(id) {
            return Err(Error::BadAddress.into());
        }
        let mut place = Place::default();
        if self.threads.record(self.current).bookmark.is_some() {
            let which = self.which(space, id, rights);
            let marked = self.threads.record(self.current).bookmark.take();
            if let Some(bookmark) = marked.filter(|bookmark| bookmark.which == which) {
                place = bookmark.place;
                if sought.have(bookmark.found) == Enough::Yes {
                    return Ok(());
                }
            }
        }
        match self.search_from(world, space, id, sought, &mut place) {
            Ok(Enough::Yes) => Ok(()),
            Ok(Enough::No) => Err(place.fault.unwrap_or(Error::Protection).into()),
            Err(stop) => {
                let (which, found) = (self.which(space, id, rights), sought.found());
                self.threads.record(self.current).bookmark = Some(Bookmark { which, place, found });
                Err(stop)
            }
        }
    }

    /// The search of the present event for rights of a domain on an object.
    fn which(&self, space: SpaceId, id: ObjectId, rights: Rights) -> Which {
        let domain = self.domains.get(space);
        let object = self.objects.get(id);
        Which {
            thread: self.current,
            domain: domain.map_or((0, 0), |domain| (domain.serial, domain.drained)),
            object: (object.serial, object.epoch),
            rights,
        }
    }

    /// A piece of a search; `place` is where it begins, and then where it stopped.
    fn search_from(
        &mut self,
        world: &mut impl World,
        space: SpaceId,
        id: ObjectId,
        sought: &mut impl Sought,
        place: &mut Place,
    ) -> Step<Enough> {
        let mut from = space;
        for level in 0..=CALL_DEPTH_MAX {
            let Some(domain) = self.domains.get(from) else { break };
            let parent = domain.parent;
            if level < place.level {
                self.budget.spend(COST_PASSED);
                let Some(parent) = parent else { break };
                from = parent;
                continue;
            }
            if level > place.level {
                *place = Place {
                    level,
                    fault: place.fault,
                    ..Place::default()
                };
                if !self.budget.is_left() {
                    return Err(Stop::Again);
                }
            }
            self.budget.spend(COST_LEVEL);
            if let Some(cached) = self.cached(from, id)
                && sought.have(cached) == Enough::Yes
            {
                return Ok(Enough::Yes);
            }
            if let Some(own) = self.by_creation(from, id)
                && sought.have(own) == Enough::Yes
            {
                return Ok(Enough::Yes);
            }
            while let Some(domain) = self.domains.get(from)
                && let Some(&clist) = sought.slots(&domain.apd).get(place.slot)
            {
                if !self.budget.is_left() {
                    return Err(Stop::Again);
                }
                let Place { reached, fault, .. } = place;
                let mut see = |object: &Object, address, capability| sought.see(object, address, capability, fault);
                let searched = self.clist_search(world, clist, id, reached, &mut see);
                match searched {
                    Ok(Enough::Yes) => return Ok(Enough::Yes),
                    Ok(Enough::No) => {}
                    // Another Clist, or the caller's, may still have it.
                    Err(Stop::Fail(error)) => place.fault = Some(error),
                    Err(stop) => return Err(stop),
                }
                (place.slot, place.reached) = (place.slot + 1, Reached::default());
            }
            let Some(parent) = parent else { break };
            from = parent;
        }
        Ok(Enough::No)
    }
}
