//! How an access is decided.
//!
//! First the domain's validation cache. Then the implicit right of the domain that made the object,
//! while that is transient. Then the Clists of the APD, in order, until what was found is enough;
//! in the domain of a merged call the caller's cache and APD after its own, of which it takes a
//! copy and into which it never writes. Rights that were found are cached; the others are searched
//! again next time, because somebody may write the capability into a Clist any moment.
//!
//! A search through many long Clists is done in pieces (`search.rs`).
//!
//! Page tables cannot withhold reading from who may write or execute, so W and X bring R with them.

use abi::{Error, Rights, address::slot_of, layout::Capability};
use kcore::SpaceId;

use crate::{
    Server, Step, Stop, World,
    directory::object::{Object, ObjectId},
    protection::apd::{Apd, ClistRef},
    protection::domain::{Cached, Linked},
    protection::search::{Enough, Sought},
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
    /// The password by which that Clist may be read, as in a slot ([`ClistRef`](crate::protection::apd::ClistRef)).
    pub reader: u64,
}

impl Server {
    /// Validates an access of a domain as if it were made, and caches it. Tells the address of the capability that gave the right, as [`Cached`] has it.
    #[inline]
    pub(crate) fn validate(
        &mut self,
        world: &mut impl World,
        space: SpaceId,
        address: u64,
        needed: Rights,
    ) -> Step<u64> {
        if let Some(recent) = self.validated(space, address, needed) {
            return Ok(recent.granted);
        }
        self.validate_anew(world, space, address, needed)
    }

    /// The same in a slot that the domain does not remember.
    #[inline(never)]
    fn validate_anew(&mut self, world: &mut impl World, space: SpaceId, address: u64, needed: Rights) -> Step<u64> {
        let id = self.object_at(world, address)?;
        let cached = self.require(world, space, id, needed)?;
        let recent = Linked::of(address, id, cached, self.objects.get(id).epoch);
        self.domains.remember_validated(space, recent);
        Ok(cached.granted)
    }

    /// The finding of a domain that validated such an access at an address of late.
    #[inline]
    fn validated(&self, space: SpaceId, address: u64, needed: Rights) -> Option<&Linked> {
        let recent = self.domains.validated(space, slot_of(address))?;
        let object = self.objects.active(recent.object)?;
        let holds = recent.rights.contains(needed) && object.epoch == recent.epoch && object.holds(address);
        holds.then_some(recent)
    }

    /// Whether a domain is known to have rights at an address: nothing is searched.
    pub(crate) fn knows(&self, space: SpaceId, address: u64, needed: Rights) -> bool {
        self.validated(space, address, needed).is_some() || self.known_rights(space, address).contains(needed)
    }

    /// Makes sure that a domain has rights on an object.
    #[inline(always)]
    pub(crate) fn require(
        &mut self,
        world: &mut impl World,
        space: SpaceId,
        id: ObjectId,
        needed: Rights,
    ) -> Step<Cached> {
        match self.cached(space, id) {
            Some(cached) if cached.rights.contains(needed) => Ok(cached),
            _ => self.discover(world, space, id, needed),
        }
    }

    /// As [`Server::require`], for the object that holds an address.
    pub(crate) fn require_at(
        &mut self,
        world: &mut impl World,
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
        let cached = self.objects.find(address).and_then(|id| self.cached(space, id));
        cached.map_or(Rights::NONE, |cached| cached.rights)
    }

    #[cold]
    #[inline(never)]
    fn discover(&mut self, world: &mut impl World, space: SpaceId, id: ObjectId, needed: Rights) -> Step<Cached> {
        self.prepare_node(world, space, id)?;
        let known = self.cached(space, id).unwrap_or(Cached::NOTHING);
        let mut access = AccessSought { needed, found: known };
        // An object that the domain has made needs no search.
        let outcome = match self.by_creation(space, id) {
            Some(own) if access.have(own) == Enough::Yes => Ok(()),
            _ => self.search(world, space, id, needed, &mut access),
        };
        self.cache_found(space, id, known, access.found);
        outcome.map(|()| access.found)
    }

    /// The rights that a domain has on an object that it has made.
    pub(in crate::protection) fn by_creation(&self, space: SpaceId, id: ObjectId) -> Option<Cached> {
        let object = self.objects.get(id);
        let domain = self.domains.get(space)?;
        (object.home == domain.serial).then(|| Cached::created(object.home_rights()))
    }

    /// Finds a PDX capability that lets a domain enter at `entry`.
    ///
    /// # Errors
    /// [`Error::BadAddress`]; [`Error::Protection`] if it holds none for the object,
    /// [`Error::NotAnEntry`] if what it holds does not name the entry, [`Error::Locked`] if it owns the object, but is
    /// locked and has no PDX capability in a locked slot; those of [`Server::search`].
    pub fn pdx_grant(&mut self, world: &mut impl World, space: SpaceId, entry: u64) -> Step<PdxGrant> {
        let id = self.object_at(world, entry)?;
        if self.is_closed(id) {
            return Err(Error::BadAddress.into());
        }
        let held = self.cached(space, id);
        if self.objects.get(id).record.pdx.is_empty() {
            let error = if held.is_some() {
                Error::NotAnEntry
            } else {
                Error::Protection
            };
            return Err(error.into());
        }
        self.prepare_node(world, space, id)?;
        let known = held.unwrap_or(Cached::NOTHING);
        let mut entrance = EntranceSought {
            entry,
            grant: None,
            found: known,
        };
        let outcome = self.search(world, space, id, Rights::P, &mut entrance);
        self.cache_found(space, id, known, entrance.found);
        let grant = match outcome {
            Ok(()) => entrance.grant,
            Err(Stop::Fail(Error::Protection))
                if entrance.found.rights.contains(Rights::OWNER) && self.is_locked(space) =>
            {
                return Err(Error::Locked.into());
            }
            // An owner could register any capability, so it needs none. One that is locked could not.
            Err(Stop::Fail(error)) if !self.is_locked(space) && entrance.found.rights.contains(Rights::OWNER) => {
                let object = self.objects.get(id);
                let named = object.record.pdx.iter().find(|pdx| pdx.entries.contains(&entry));
                let named = named.map(|pdx| PdxGrant {
                    base: object.base(),
                    password: pdx.password,
                    clist: pdx.clist,
                    reader: pdx.reader,
                });
                let refused = if error == Error::Protection {
                    Error::NotAnEntry
                } else {
                    error
                };
                Some(named.ok_or(refused)?)
            }
            Err(stop) => return Err(stop),
        };
        let grant = grant.ok_or(Error::Protection)?;
        Ok(self.remember_call(space, id, grant))
    }

    /// Enters into a domain's cache what a search has found, if that is more than the cache has.
    fn cache_found(&mut self, space: SpaceId, id: ObjectId, known: Cached, found: Cached) {
        if found.rights != known.rights {
            self.cache_rights(space, id, found);
        }
    }

    /// Notes P in the cache, so that whatever drops the entry makes the kernel forget its way.
    fn remember_call(&mut self, space: SpaceId, id: ObjectId, grant: PdxGrant) -> PdxGrant {
        let mut cached = self.cached(space, id).unwrap_or(Cached::NOTHING);
        if !cached.rights.contains(Rights::P) {
            cached.rights = cached.rights.union(Rights::P);
            self.cache_rights(space, id, cached);
        }
        grant
    }
}

/// Rights on an object.
struct AccessSought {
    needed: Rights,
    found: Cached,
}

impl AccessSought {
    fn enough(&self) -> Enough {
        if self.found.rights.contains(self.needed) {
            Enough::Yes
        } else {
            Enough::No
        }
    }
}

impl Sought for AccessSought {
    fn have(&mut self, known: Cached) -> Enough {
        add(&mut self.found, known);
        self.enough()
    }

    fn found(&self) -> Cached {
        self.found
    }

    fn see(&mut self, object: &Object, address: u64, capability: Capability, _: &mut Option<Error>) -> Enough {
        let rights = effective(object.rights_of(capability.password));
        add(
            &mut self.found,
            Cached {
                rights,
                granted: address,
                reader: capability.password,
            },
        );
        self.enough()
    }
}

/// A PDX capability that names an entry; on the way, rights on the object, among which may be the owner's.
struct EntranceSought {
    entry: u64,
    grant: Option<PdxGrant>,
    found: Cached,
}

impl Sought for EntranceSought {
    fn slots<'a>(&self, apd: &'a Apd) -> &'a [ClistRef] {
        apd.calling_slots()
    }

    fn have(&mut self, known: Cached) -> Enough {
        add(&mut self.found, known);
        Enough::No
    }

    fn found(&self) -> Cached {
        self.found
    }

    fn see(&mut self, object: &Object, address: u64, capability: Capability, fault: &mut Option<Error>) -> Enough {
        for pdx in object
            .record
            .pdx
            .iter()
            .filter(|pdx| pdx.password == capability.password)
        {
            if pdx.entries.contains(&self.entry) {
                self.grant = Some(PdxGrant {
                    base: object.base(),
                    password: pdx.password,
                    clist: pdx.clist,
                    reader: pdx.reader,
                });
                return Enough::Yes;
            }
            // It holds something, which is worth another error.
            fault.get_or_insert(Error::NotAnEntry);
        }
        let rights = effective(object.rights_of(capability.password));
        add(
            &mut self.found,
            Cached {
                rights,
                granted: address,
                reader: capability.password,
            },
        );
        Enough::No
    }
}

/// Adds rights; the source is that of the last addition that gave something new, and for R of the one that gave it.
fn add(found: &mut Cached, more: Cached) {
    if !found.rights.contains(more.rights) {
        let reads = found.rights.contains(Rights::R);
        *found = Cached {
            rights: found.rights.union(more.rights),
            granted: more.granted,
            reader: if reads { found.reader } else { more.reader },
        };
    }
}
