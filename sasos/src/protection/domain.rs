//! Domains: protection domains made real.
//!
//! A domain is one space of the kernel and one *validation cache*: the objects that were found
//! accessible, with rights and where these came from. Its number is that of its space. The domain
//! of a task stands for the task's threads; the domain of a protected procedure belongs to no task
//! and is entered by threads of many.
//!
//! Invariants: what the space links is in the cache, with those rights at most; an object in the
//! cache has the domain among its holders. So dropping a cache entry, unlinking its leaves and
//! flushing the space *is* revocation.

use alloc::{boxed::Box, vec::Vec};

use abi::{Error, Rights};
use kcore::SpaceId;

use crate::{
    Server, World,
    accounts::{AccountId, Resource},
    directory::object::ObjectId,
    lives::task::TaskId,
    protection::apd::Apd,
};

/// Bytes that a domain costs without its cache.
pub(crate) const DOMAIN_BYTES: u64 = core::mem::size_of::<Domain>() as u64;

/// Why a domain has rights on an object.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Granted {
    /// It made the object, which is still transient.
    Created,
    /// By the capability at this address, in a Clist.
    Clist(u64),
}

/// An entry of a validation cache.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Cached {
    /// The rights that were validated so far; there may be more.
    pub rights: Rights,
    /// Where the last of them came from.
    pub granted: Granted,
}

const NO_KEY: u32 = u32::MAX;

/// A validation cache: an open hash table, object to rights, at most half full.
#[derive(Debug, Default)]
pub struct Cache {
    places: Vec<(u32, Option<Cached>)>,
    count: usize,
}

impl Cache {
    #[inline]
    fn home(&self, key: u32) -> usize {
        (key.wrapping_mul(0x9e37_79b9) as usize >> 7) & (self.places.len() - 1)
    }

    /// How many objects are in it.
    pub fn count(&self) -> usize {
        self.count
    }

    /// What is known of an object.
    #[inline]
    pub fn get(&self, object: ObjectId) -> Option<Cached> {
        if self.places.is_empty() {
            return None;
        }
        let mut place = self.home(object.0);
        loop {
            let (key, cached) = self.places[place];
            if key == object.0 {
                return cached;
            }
            if key == NO_KEY {
                return None;
            }
            place = (place + 1) & (self.places.len() - 1);
        }
    }

    /// Puts an entry in, or another in its place; tells whether the object is new here.
    pub fn insert(&mut self, object: ObjectId, cached: Cached) -> bool {
        if self.places.len() < 2 * (self.count + 1) {
            self.grow();
        }
        let mut place = self.home(object.0);
        while self.places[place].0 != NO_KEY && self.places[place].0 != object.0 {
            place = (place + 1) & (self.places.len() - 1);
        }
        let new = self.places[place].0 == NO_KEY;
        self.places[place] = (object.0, Some(cached));
        self.count += usize::from(new);
        new
    }

    fn grow(&mut self) {
        let larger = alloc::vec![(NO_KEY, None); (2 * self.places.len()).max(16)];
        let before = core::mem::replace(&mut self.places, larger);
        self.count = 0;
        for (key, cached) in before {
            if let Some(cached) = cached {
                self.insert(ObjectId(key), cached);
            }
        }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, object: ObjectId) -> Option<Cached> {
        self.get(object)?;
        let mask = self.places.len() - 1;
        let mut hole = self.home(object.0);
        while self.places[hole].0 != object.0 {
            hole = (hole + 1) & mask;
        }
        let removed = self.places[hole].1;
        // What follows without a gap and may stand in the hole moves back into it.
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let key = self.places[place].0;
            if key == NO_KEY {
                break;
            }
            if (place.wrapping_sub(self.home(key)) & mask) >= (place.wrapping_sub(hole) & mask) {
                self.places[hole] = self.places[place];
                hole = place;
            }
        }
        self.places[hole] = (NO_KEY, None);
        self.count -= 1;
        removed
    }

    /// Every object in it, with what is known.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectId, Cached)> {
        self.places
            .iter()
            .filter_map(|&(key, cached)| Some((ObjectId(key), cached?)))
    }
}

/// A slot that a domain used last, and what stands behind it.
#[derive(Copy, Clone, Debug)]
pub struct Linked {
    /// Its number; `u64::MAX` is none.
    pub slot: u64,
    /// Whose it is.
    pub object: ObjectId,
    /// The rights of the domain on it.
    pub rights: Rights,
}

impl Linked {
    /// No slot.
    pub const NONE: Self = Self {
        slot: u64::MAX,
        object: ObjectId(u32::MAX),
        rights: Rights::NONE,
    };
}

/// A domain.
#[derive(Debug)]
pub struct Domain {
    /// Never the same for two domains since the start of the system; never zero.
    pub serial: u64,
    /// The task it stands for; none for the domain of a protected procedure.
    pub task: Option<TaskId>,
    /// Who pays for its tables.
    pub account: AccountId,
    /// Page tables of its space that are charged.
    tables: u64,
    /// Where rights are looked for.
    pub apd: Apd,
    /// What was found.
    pub cache: Cache,
    /// How often the cache was dropped as a whole.
    pub drained: u64,
    /// In the domain of a merged call: the caller's, to which it reads through.
    pub parent: Option<SpaceId>,
    /// The slot that was linked last, with all the rights that the cache has: further pages in
    /// it need no link.
    pub linked: Linked,
    /// The slot in which an address was validated last, linked or not.
    validated: Linked,
    live: bool,
}

impl Domain {
    /// Page tables of its space that are charged.
    #[inline]
    pub(crate) const fn tables(&self) -> u64 {
        self.tables
    }

    /// What it had may not be true any more: the next access goes through the cache and the tables.
    pub(crate) fn forget_recent(&mut self) {
        self.linked = Linked::NONE;
        self.validated = Linked::NONE;
    }
}

/// All domains, by the number of their space.
pub struct Domains {
    #[allow(clippy::vec_box, reason = "growth must not copy all domains")]
    table: Vec<Box<Domain>>,
    next_serial: u64,
    live: u64,
    /// Objects, by base and serial number, that domains lost and are still being unlinked.
    pub(crate) unlinking: Vec<(u64, u64)>,
}

impl Default for Domains {
    fn default() -> Self {
        Self {
            table: Vec::new(),
            next_serial: 1,
            live: 0,
            unlinking: Vec::new(),
        }
    }
}

impl Domains {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.live
    }

    /// A domain that exists.
    pub fn get(&self, space: SpaceId) -> Option<&Domain> {
        self.table
            .get(space.0 as usize)
            .filter(|domain| domain.live)
            .map(|domain| &**domain)
    }

    /// The same, to change.
    pub fn get_mut(&mut self, space: SpaceId) -> Option<&mut Domain> {
        self.table
            .get_mut(space.0 as usize)
            .filter(|domain| domain.live)
            .map(|domain| &mut **domain)
    }

    /// The serial number of a domain; zero if there is no such domain.
    pub fn serial(&self, space: SpaceId) -> u64 {
        self.get(space).map_or(0, |domain| domain.serial)
    }

    /// Every domain.
    pub fn iter(&self) -> impl Iterator<Item = (SpaceId, &Domain)> {
        self.table
            .iter()
            .enumerate()
            .filter(|(_, domain)| domain.live)
            .map(|(number, domain)| (SpaceId(number as u32), &**domain))
    }

    /// The slot that a domain linked last.
    #[inline]
    pub fn linked(&self, space: SpaceId) -> Linked {
        self.table
            .get(space.0 as usize)
            .map_or(Linked::NONE, |domain| domain.linked)
    }

    /// The slot in which a domain validated an address last.
    #[inline]
    pub fn validated(&self, space: SpaceId) -> Linked {
        self.table
            .get(space.0 as usize)
            .map_or(Linked::NONE, |domain| domain.validated)
    }

    /// The same, to be remembered.
    #[inline]
    pub fn remember_validated(&mut self, space: SpaceId, validated: Linked) {
        if let Some(domain) = self.get_mut(space) {
            domain.validated = validated;
        }
    }

    /// The rights that the cache of a domain has for an object.
    #[inline]
    pub fn cached(&self, space: SpaceId, object: ObjectId) -> Option<Cached> {
        self.table.get(space.0 as usize)?.cache.get(object)
    }

    fn enter(&mut self, space: SpaceId, apd: &Apd, parent: Option<SpaceId>, account: AccountId) {
        let place = space.0 as usize;
        while self.table.len() <= place {
            self.table.push(Box::new(Domain {
                serial: 0,
                task: None,
                account: AccountId::ROOT,
                tables: 0,
                apd: Apd::EMPTY,
                cache: Cache::default(),
                drained: 0,
                parent: None,
                linked: Linked::NONE,
                validated: Linked::NONE,
                live: false,
            }));
        }
        let domain = &mut self.table[place];
        domain.serial = self.next_serial;
        domain.task = None;
        domain.account = account;
        domain.apd = *apd;
        domain.parent = parent;
        domain.forget_recent();
        domain.live = true;
        self.next_serial += 1;
        self.live += 1;
    }
}

/// What becomes of the links that stand for a cache.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Links {
    Remove,
    GoWithTheSpace,
}

impl Server {
    /// A new domain that searches that APD, paid for by an account.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::LimitReached`].
    pub fn domain_create<W: World>(&mut self, world: &mut W, apd: Apd, account: AccountId) -> Result<SpaceId, Error> {
        self.domain_make(world, &apd.unsealed(), None, account)
    }

    /// A new domain for a protected procedure: its APD cannot be changed from inside. `parent` is
    /// the caller's domain if the call is merged.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::LimitReached`].
    pub fn callee_domain_create<W: World>(
        &mut self,
        world: &mut W,
        apd: Apd,
        parent: Option<SpaceId>,
        account: AccountId,
    ) -> Result<SpaceId, Error> {
        self.domain_make(world, &apd.sealed(), parent, account)
    }

    fn domain_make<W: World>(
        &mut self,
        world: &mut W,
        apd: &Apd,
        parent: Option<SpaceId>,
        account: AccountId,
    ) -> Result<SpaceId, Error> {
        self.enough_heap(world)?;
        self.ledger.take(account, Resource::Bytes, DOMAIN_BYTES)?;
        let Ok(space) = world.space_create() else {
            self.ledger.give(account, Resource::Bytes, DOMAIN_BYTES);
            return Err(Error::NoMemory);
        };
        self.domains.enter(space, apd, parent, account);
        if let Err(error) = self.charge_tables(world, space) {
            self.domain_end(world, space);
            return Err(error);
        }
        Ok(space)
    }

    /// Charges the page tables that a space has got since this was last asked.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: they are there and not charged.
    pub(crate) fn charge_tables<W: World>(&mut self, world: &W, space: SpaceId) -> Result<(), Error> {
        let Some(domain) = self.domains.get_mut(space) else {
            return Ok(());
        };
        let more = world.space_tables(space).saturating_sub(domain.tables);
        if more > 0 {
            let account = domain.account;
            self.ledger.take(account, Resource::Frames, more)?;
            if let Err(error) = self.ledger.take(account, Resource::Tables, more) {
                self.ledger.give(account, Resource::Frames, more);
                return Err(error);
            }
            domain.tables += more;
        }
        Ok(())
    }

    /// Says for which task a domain stands.
    pub fn domain_set_task(&mut self, space: SpaceId, task: TaskId) {
        if let Some(domain) = self.domains.get_mut(space) {
            domain.task = Some(task);
        }
    }

    /// The APD of a domain.
    pub fn domain_apd(&self, space: SpaceId) -> Apd {
        self.domains.get(space).map_or(Apd::EMPTY, |domain| domain.apd)
    }

    /// Ends a domain. No thread is inside or will return to it.
    pub fn domain_end<W: World>(&mut self, world: &mut W, space: SpaceId) {
        let Some(domain) = self.domains.get_mut(space) else {
            return;
        };
        domain.live = false;
        let account = domain.account;
        let tables = core::mem::take(&mut domain.tables);
        self.domains.live -= 1;
        // The space goes as a whole: nothing needs to be unlinked one by one.
        self.drain_cache(world, space, Links::GoWithTheSpace);
        self.unlinking_ends(space);
        world.space_destroy(space);
        self.ledger.give(account, Resource::Tables, tables);
        self.ledger.give(account, Resource::Frames, tables);
        self.ledger.give(account, Resource::Bytes, DOMAIN_BYTES);
    }

    /// Drops all that a domain's cache has. What is accessible is found again when it is touched.
    pub fn domain_flush<W: World>(&mut self, world: &mut W, space: SpaceId) {
        if self.drain_cache(world, space, Links::Remove) {
            world.flush_space(space);
        }
    }

    /// Empties a cache; tells whether anything was unlinked.
    fn drain_cache<W: World>(&mut self, world: &mut W, space: SpaceId, links: Links) -> bool {
        let Some(domain) = self.domains.table.get_mut(space.0 as usize) else {
            return false;
        };
        domain.forget_recent();
        domain.drained += 1;
        let mut cache = core::mem::take(&mut domain.cache);
        let mut had_procedures = false;
        let mut unlinked = false;
        for place in &mut cache.places {
            let (key, cached) = core::mem::replace(place, (NO_KEY, None));
            let Some(cached) = cached else { continue };
            had_procedures |= cached.rights.contains(Rights::P);
            forget_holder(&mut self.objects.get_mut(ObjectId(key)).holders, space);
            if links == Links::Remove {
                unlinked |= self.unlink_slots(world, space, ObjectId(key), 0);
            }
        }
        cache.count = 0;
        // The room serves the domain, or the next one of this number.
        self.domains.table[space.0 as usize].cache = cache;
        if had_procedures {
            world.portal_forget();
        }
        unlinked
    }

    /// Enters rights into a domain's cache.
    pub(crate) fn cache_rights<W: World>(&mut self, world: &mut W, space: SpaceId, id: ObjectId, cached: Cached) {
        let Some(domain) = self.domains.get_mut(space) else {
            return;
        };
        // What is linked is linked with the old rights.
        domain.forget_recent();
        if domain.cache.insert(id, cached) {
            self.objects.get_mut(id).holders.push(space);
        } else {
            // More rights than before: links carry the old ones until they are made anew. More
            // rights need no flush: a processor that remembers fewer looks again before it faults.
            self.relink_slots(world, space, id, cached.rights);
        }
    }

    fn relink_slots<W: World>(&mut self, world: &mut W, space: SpaceId, id: ObjectId, rights: Rights) {
        if rights.intersection(Rights::RWX).is_empty() {
            return;
        }
        let object = self.objects.get(id);
        let mut from = 0;
        while let Some(number) = object.slots.next_with_leaf(from) {
            if let Some(leaf) = object.slots.get(number).and_then(crate::pages::slots::Slot::leaf) {
                // Without memory for a table the link is missing; the next access tries again.
                let _ = world.link(space, object.first_slot() + number, leaf, rights);
            }
            from = number + 1;
        }
    }
}

fn forget_holder(holders: &mut Vec<SpaceId>, space: SpaceId) {
    if let Some(place) = holders.iter().position(|&holder| holder == space) {
        holders.swap_remove(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cache_is_a_map(steps in prop::collection::vec((0_u32..40, any::<bool>(), 0_u64..32), 0..300)) {
            let mut cache = Cache::default();
            let mut model = BTreeMap::new();
            for (key, insert, bits) in steps {
                let cached = Cached { rights: Rights::from_bits(bits).unwrap(), granted: Granted::Created };
                if insert {
                    prop_assert_eq!(cache.insert(ObjectId(key), cached), model.insert(key, cached).is_none());
                } else {
                    prop_assert_eq!(cache.remove(ObjectId(key)), model.remove(&key));
                }
                prop_assert_eq!(cache.count(), model.len());
                for key in 0..40 {
                    prop_assert_eq!(cache.get(ObjectId(key)), model.get(&key).copied());
                }
            }
        }
    }
}
