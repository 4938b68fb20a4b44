//! How an access is decided.
//!
//! First the domain's validation cache. Then the implicit right of the domain that made the object,
//! while that is transient. Then the Clists of the APD, in order, until what was found is enough;
//! in the domain of a merged call the caller's cache and APD after its own, of which it takes a
//! copy and into which it never writes. What was found is cached; what was not found is searched
//! again next time, because somebody may write the capability into a Clist any moment.
//!
//! Page tables cannot withhold reading from who may write or execute, so W and X bring R with them.

use abi::{Error, Rights, address::slot_of, layout::CALL_DEPTH_MAX};
use kcore::SpaceId;

use crate::{
    Server, Step, Stop, World,
    apd::Apd,
    clist::Search,
    domain::{Cached, Granted, Linked},
    object::ObjectId,
};

/// The rights that a set of listed rights amounts to.
pub const fn effective(rights: Rights) -> Rights {
    if rights.bits() & Rights::RWX.bits() == 0 {
        rights
    } else {
        rights.union(Rights::R)
    }
}

/// A PDX capability that a domain holds for an entry point.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PdxGrant {
    /// Base of the object.
    pub base: u64,
    /// The password of the PDX capability.
    pub password: u64,
    /// The Clist that extends the callee's domain, or zero.
    pub clist: u64,
}

impl Server {
    /// Validates an access of a domain as if it were made, and caches it. Tells the object's base.
    ///
    /// # Errors
    /// [`Error::BadAddress`], [`Error::Protection`]; what reading Clists brings.
    #[inline]
    pub fn validate<W: World>(&mut self, world: &mut W, space: SpaceId, address: u64, needed: Rights) -> Step<u64> {
        let recent = self.domains.validated(space);
        if recent.slot == slot_of(address) && recent.rights.contains(needed) {
            let object = self.objects.get(recent.object);
            if object.holds(address) {
                return Ok(object.base());
            }
        }
        let id = self.object_at(world, address)?;
        let cached = self.require(world, space, id, needed)?;
        let recent = Linked {
            slot: slot_of(address),
            object: id,
            rights: cached.rights,
        };
        self.domains.remember_validated(space, recent);
        Ok(self.objects.get(id).base())
    }

    /// Makes sure that a domain has rights on an object.
    ///
    /// # Errors
    /// [`Error::Protection`]; what reading Clists brings.
    #[inline(always)]
    pub fn require<W: World>(&mut self, world: &mut W, space: SpaceId, id: ObjectId, needed: Rights) -> Step<Cached> {
        match self.domains.cached(space, id) {
            Some(cached) if cached.rights.contains(needed) => Ok(cached),
            known => self.discover(world, space, id, needed, known),
        }
    }

    /// As [`Server::require`], for the object that holds an address.
    ///
    /// # Errors
    /// [`Error::BadAddress`], and those of `require`.
    pub fn require_at<W: World>(
        &mut self,
        world: &mut W,
        space: SpaceId,
        address: u64,
        needed: Rights,
    ) -> Step<ObjectId> {
        let id = self.object_at(world, address)?;
        self.require(world, space, id, needed)?;
        Ok(id)
    }

    /// The rights that a domain is known to have at an address; for reports.
    pub fn known_rights(&self, space: SpaceId, address: u64) -> Rights {
        let cached = self.objects.find(address).and_then(|id| self.domains.cached(space, id));
        cached.map_or(Rights::NONE, |cached| cached.rights)
    }

    #[cold]
    #[inline(never)]
    fn discover<W: World>(
        &mut self,
        world: &mut W,
        space: SpaceId,
        id: ObjectId,
        needed: Rights,
        known: Option<Cached>,
    ) -> Step<Cached> {
        let mut found = known.unwrap_or(Cached {
            rights: Rights::NONE,
            granted: Granted::Created,
        });
        let mut from = space;
        let mut outcome = Ok(());
        for _ in 0..=CALL_DEPTH_MAX {
            let Some(domain) = self.domains.get(from) else { break };
            let (apd, parent, serial) = (domain.apd, domain.parent, domain.serial);
            if let Some(cached) = self.domains.cached(from, id) {
                add(&mut found, cached.rights, cached.granted);
            }
            if self.objects.get(id).home == serial {
                add(&mut found, self.objects.get(id).home_rights(), Granted::Created);
            }
            if !found.rights.contains(needed) {
                match self.search_apd(world, &apd, id, needed, &mut found) {
                    // Another Clist, or the caller's, may still give the right.
                    Err(Stop::Fail(error)) => outcome = Err(error),
                    other => other?,
                }
            }
            if found.rights.contains(needed) {
                break;
            }
            let Some(parent) = parent else { break };
            from = parent;
        }
        let known = known.map_or(Rights::NONE, |known| known.rights);
        if found.rights != known {
            self.cache_rights(world, space, id, found);
        }
        if found.rights.contains(needed) {
            return Ok(found);
        }
        outcome?;
        Err(Error::Protection.into())
    }

    /// Adds what the Clists of an APD give on an object, until it is enough.
    fn search_apd<W: World>(
        &mut self,
        world: &mut W,
        apd: &Apd,
        id: ObjectId,
        needed: Rights,
        found: &mut Cached,
    ) -> Step<()> {
        let mut failure = None;
        for &clist in apd.slots() {
            let searched = self.clist_search(world, clist, id, &mut |object, address, capability| {
                add(
                    found,
                    effective(object.rights_of(capability.password)),
                    Granted::Clist(address),
                );
                if found.rights.contains(needed) {
                    Search::Stop
                } else {
                    Search::Continue
                }
            });
            match searched {
                Ok(Search::Stop) => return Ok(()),
                Ok(Search::Continue) => {}
                Err(Stop::Fail(error)) => failure = Some(error),
                Err(wait) => return Err(wait),
            }
        }
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Finds a PDX capability that lets a domain enter at `entry`.
    ///
    /// # Errors
    /// [`Error::BadAddress`]; [`Error::Protection`] if it holds none for the object,
    /// [`Error::NotAnEntry`] if what it holds does not name the entry.
    pub fn pdx_grant<W: World>(&mut self, world: &mut W, space: SpaceId, entry: u64) -> Step<PdxGrant> {
        let id = self.object_at(world, entry)?;
        if self.objects.get(id).record.pdx.is_empty() {
            let held = self.domains.cached(space, id).is_some();
            return Err(if held { Error::NotAnEntry } else { Error::Protection }.into());
        }
        let mut grant = None;
        let mut holds = false;
        let mut from = Some(space);
        for _ in 0..=CALL_DEPTH_MAX {
            let Some(domain) = from.and_then(|space| self.domains.get(space)) else {
                break;
            };
            let (apd, parent) = (domain.apd, domain.parent);
            for &clist in apd.slots() {
                self.clist_search(world, clist, id, &mut |object, _, capability| {
                    for pdx in object
                        .record
                        .pdx
                        .iter()
                        .filter(|pdx| pdx.password == capability.password)
                    {
                        holds = true;
                        if pdx.entries.contains(&entry) {
                            grant = Some(PdxGrant {
                                base: object.base(),
                                password: pdx.password,
                                clist: pdx.clist,
                            });
                            return Search::Stop;
                        }
                    }
                    Search::Continue
                })?;
                if let Some(grant) = grant {
                    return Ok(self.remember_call(world, space, id, grant));
                }
            }
            from = parent;
        }
        // An owner could register any capability, so it needs none.
        match self.require(world, space, id, Rights::OWNER) {
            Ok(_) => {
                holds = true;
                let object = self.objects.get(id);
                if let Some(pdx) = object.record.pdx.iter().find(|pdx| pdx.entries.contains(&entry)) {
                    let grant = PdxGrant {
                        base: object.base(),
                        password: pdx.password,
                        clist: pdx.clist,
                    };
                    return Ok(self.remember_call(world, space, id, grant));
                }
            }
            Err(Stop::Fail(Error::Protection)) => {}
            Err(stop) => return Err(stop),
        }
        Err(if holds { Error::NotAnEntry } else { Error::Protection }.into())
    }

    /// Notes P in the cache, so that whatever drops the entry makes the kernel forget its way.
    fn remember_call<W: World>(&mut self, world: &mut W, space: SpaceId, id: ObjectId, grant: PdxGrant) -> PdxGrant {
        let mut cached = self.domains.cached(space, id).unwrap_or(Cached {
            rights: Rights::NONE,
            granted: Granted::Created,
        });
        if !cached.rights.contains(Rights::P) {
            cached.rights = cached.rights.union(Rights::P);
            self.cache_rights(world, space, id, cached);
        }
        grant
    }
}

/// Adds rights; the source is that of the last addition that gave something new.
fn add(found: &mut Cached, rights: Rights, granted: Granted) {
    if !found.rights.contains(rights) {
        *found = Cached {
            rights: found.rights.union(rights),
            granted,
        };
    }
}
