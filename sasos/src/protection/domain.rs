//! Domains: protection domains made real.
//!
//! A domain is one space of the kernel and one *validation cache*: the objects that were found
//! accessible, with rights and where these came from. Its number is that of its space. The domain
//! of a task stands for the task's threads; the domain of a protected procedure belongs to no task
//! and is entered by threads of many.
//!
//! The cache is made of nodes ([`crate::protection::node`]). Invariants: the domain links leaves of objects alone for which it has
//! a node, with the rights of that at most; each node stands in the list of its object. So unlinking the leaves of a node,
//! flushing the space and dropping the node *is* revocation. A dead node makes no link, and it is dropped before the domain can find the object again.
//!
//! A domain that must forget everything (its APD has changed), or gives a node up for another one, does so in pieces ([`crate::protection::withdraw`]). Until
//! that is done it finds nothing that it does not have.

use alloc::vec::Vec;
use core::ops::Range;

use abi::{Error, Rights, address::slot_of};
use kcore::SpaceId;

use crate::{
    Server, World,
    accounts::{AccountId, Resource},
    containers::{Boxed, Places, boxed, push, push_reserved, reserve},
    directory::aside::Aside,
    directory::object::ObjectId,
    lives::budget::Cost,
    lives::task::TaskId,
    lives::work::COST_LARGEST,
    procedures::pdx::Derived,
    protection::apd::Apd,
    protection::node::{Node, NodeRef, Nodes, PAGE_BYTES, Table},
};

/// Domains that have ended and are kept for the next ones, each with a page of nodes at most.
const DOMAINS_KEPT: usize = 8;
/// The cost of a unit of work on a space, in instructions, roughly.
const COST_LINK: u64 = 22;
/// Units of work that must be left for a table of links to be taken out.
const TABLE_WORK: u64 = 350;
const _: () = assert!(TABLE_WORK * COST_LINK <= COST_LARGEST);
/// Bytes that a domain costs without its cache.
const DOMAIN_BYTES: u64 = core::mem::size_of::<Domain>() as u64;

/// An entry of a validation cache.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Cached {
    /// The rights that were validated so far; there may be more.
    pub rights: Rights,
    /// The address of the capability that gave the last of them, in a Clist; zero if the domain made the object.
    pub granted: u64,
    /// The password that gave R among them; zero if it came by creation.
    pub reader: u64,
}

impl Cached {
    /// No rights yet.
    pub const NOTHING: Self = Self::created(Rights::NONE);

    /// Rights of the domain that made the object.
    pub const fn created(rights: Rights) -> Self {
        Self {
            rights,
            granted: 0,
            reader: 0,
        }
    }
}

/// A slot that a domain used of late, and what stands behind it.
#[derive(Copy, Clone, Debug)]
pub struct Linked {
    /// Its number; `u64::MAX` is none.
    pub slot: u64,
    /// The object that it belongs to.
    pub object: ObjectId,
    /// The rights of the domain on it.
    pub rights: Rights,
    /// The epoch of the object in which it had them.
    pub epoch: u64,
    /// [`Cached::granted`].
    pub granted: u64,
}

impl Linked {
    /// The slot of this address, in an object that is in this epoch.
    #[inline]
    pub const fn of(address: u64, object: ObjectId, cached: Cached, epoch: u64) -> Self {
        Self {
            slot: slot_of(address),
            object,
            rights: cached.rights,
            epoch,
            granted: cached.granted,
        }
    }

    /// No slot.
    pub const NONE: Self = Self {
        slot: u64::MAX,
        object: ObjectId(u32::MAX),
        rights: Rights::NONE,
        epoch: 0,
        granted: 0,
    };
}

/// Linked slots that a domain remembers, and validated ones.
const RECENT: usize = 32;

/// A domain.
#[derive(Debug)]
pub struct Domain {
    /// Never the same for two domains since the start of the system; never zero.
    pub serial: u64,
    /// The task it stands for; none for the domain of a protected procedure.
    pub task: Option<TaskId>,
    /// The account that pays for its tables.
    pub account: AccountId,
    /// Page tables of its space that are charged.
    tables: u64,
    /// The APD in which rights are looked for.
    pub apd: Apd,
    /// The rights that were found.
    pub(in crate::protection) nodes: Table,
    /// How often the cache was dropped as a whole.
    pub(in crate::protection) drained: u64,
    /// Places of nodes that it does not find any more and that are to be unlinked.
    pub(in crate::protection) forgetting: Range<u32>,
    /// Whether it ends, and its links go with its space.
    pub(in crate::protection) ends: bool,
    /// In the domain of a merged call: the caller's, to which it reads through.
    pub parent: Option<SpaceId>,
    /// Domains that read through to it.
    pub(crate) derived: u32,
    /// Whether a thread was made in it.
    pub(crate) is_mother: bool,
    /// How often the parent had been drained when this one was, or was made.
    pub(in crate::protection) inherits: u64,
    /// The last of the domains that read through to this one to which the round under way has come, and which has forgotten.
    pub(in crate::protection) told: Option<Derived>,
    /// How often this one had been drained when that round began, and when the last one began that has come to its end: a round is under way
    /// while these differ.
    pub(in crate::protection) round: u64,
    pub(in crate::protection) forgotten: u64,
    /// How often it had been drained when the parent drained it last: the parent's round waits for that, and for no later change.
    pub(in crate::protection) due: u64,
    /// Whether the list of work does the rest of its rounds.
    pub(in crate::protection) is_listed: bool,
    /// Slots that were linked, with all the rights that the cache has, each in the place of its number: further pages in
    /// them need no link.
    linked: [(u64, Linked); RECENT],
    /// The one of them that was linked last.
    last: u8,
    /// Slots in which an address was validated of late, linked or not.
    validated: [(u64, Linked); RECENT],
    /// How often it has forgotten them. Each of them stands beside this number as it was then.
    forgot: u64,
    /// The object that it has set aside.
    pub(crate) aside: Aside,
}

impl Domain {
    /// Page tables of its space that are charged.
    #[inline]
    pub(crate) const fn tables(&self) -> u64 {
        self.tables
    }

    /// Bytes of the server that are charged for it.
    pub(crate) fn bytes(&self) -> u64 {
        DOMAIN_BYTES + self.nodes.paid() * PAGE_BYTES
    }

    /// Objects in its cache.
    pub fn cached_objects(&self) -> u64 {
        self.nodes.count() as u64
    }

    /// Its remembered slots may not be true any more: the next access goes through the cache and the tables.
    pub(crate) fn forget_recent(&mut self) {
        self.forgot += 1;
    }

    /// Lets it find an object that it had set aside, and has linked with all rights, if it has not forgotten that. Tells what it has found.
    pub(crate) fn revive(&mut self, id: ObjectId, epoch: u64) -> Option<Cached> {
        let node = self.nodes.find_mut(id)?;
        node.epoch = epoch;
        node.used = true;
        node.cached = Cached::created(Rights::OWNER);
        Some(node.cached)
    }
}

/// All domains, by the number of their space.
pub struct Domains {
    table: Places<Domain>,
    /// Records that nobody has.
    spare: Vec<Boxed<Domain>>,
    next_serial: u64,
    /// Page tables of all of them that are charged.
    tables: u64,
}

impl Default for Domains {
    fn default() -> Self {
        Self {
            table: Places::default(),
            spare: Vec::new(),
            next_serial: 1,
            tables: 0,
        }
    }
}

impl Domains {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.table.count() as u64
    }

    /// Page tables of all their spaces.
    pub(crate) const fn tables(&self) -> u64 {
        self.tables
    }

    /// Places in the table, vacant ones included.
    pub(crate) fn places(&self) -> u64 {
        u64::from(self.table.end())
    }

    /// A domain that exists.
    pub fn get(&self, space: SpaceId) -> Option<&Domain> {
        self.table.get(space.0)
    }

    /// The same, to change.
    pub fn get_mut(&mut self, space: SpaceId) -> Option<&mut Domain> {
        self.table.get_mut(space.0)
    }

    /// The serial number of a domain; zero if there is no such domain.
    pub fn serial(&self, space: SpaceId) -> u64 {
        self.get(space).map_or(0, |domain| domain.serial)
    }

    /// Every domain.
    pub fn iter(&self) -> impl Iterator<Item = (SpaceId, &Domain)> {
        self.table.iter().map(|(number, domain)| (SpaceId(number), domain))
    }

    /// A slot, if the domain is known to have it linked.
    #[inline]
    pub fn linked(&self, space: SpaceId, slot: u64) -> Option<&Linked> {
        let domain = self.get(space)?;
        let (forgot, linked) = &domain.linked[slot as usize % RECENT];
        (linked.slot == slot && *forgot == domain.forgot).then_some(linked)
    }

    /// The slot that the domain has linked last.
    #[inline]
    pub(crate) fn last_linked(&self, space: SpaceId) -> Option<&Linked> {
        let domain = self.get(space)?;
        let (forgot, linked) = &domain.linked[domain.last as usize % RECENT];
        (*forgot == domain.forgot).then_some(linked)
    }

    /// The same, to be remembered.
    #[inline]
    pub(crate) fn remember_linked(&mut self, space: SpaceId, linked: Linked) {
        if let Some(domain) = self.get_mut(space) {
            let place = linked.slot as usize % RECENT;
            domain.last = place as u8;
            domain.linked[place] = (domain.forgot, linked);
        }
    }

    /// A slot, if the domain validated an address in it of late.
    #[inline]
    pub fn validated(&self, space: SpaceId, slot: u64) -> Option<&Linked> {
        let domain = self.get(space)?;
        let (forgot, validated) = &domain.validated[slot as usize % RECENT];
        (validated.slot == slot && *forgot == domain.forgot).then_some(validated)
    }

    /// The same, to be remembered.
    #[inline]
    pub fn remember_validated(&mut self, space: SpaceId, validated: Linked) {
        if let Some(domain) = self.get_mut(space) {
            domain.validated[validated.slot as usize % RECENT] = (domain.forgot, validated);
        }
    }

    /// A domain's earlier finding about an object, whatever it is worth now.
    #[inline]
    pub(in crate::protection) fn node_of(&self, space: SpaceId, object: ObjectId) -> Option<&Node> {
        self.get(space)?.nodes.find(object)
    }

    /// Makes room for one more domain.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    fn expect(&mut self) -> Result<(), Error> {
        if self.spare.is_empty() {
            reserve(&mut self.spare, DOMAINS_KEPT)?;
            let domain = boxed(Domain {
                serial: 0,
                task: None,
                account: AccountId::ROOT,
                tables: 0,
                apd: Apd::EMPTY,
                nodes: Table::default(),
                drained: 0,
                forgetting: 0..0,
                ends: false,
                parent: None,
                derived: 0,
                is_mother: false,
                inherits: 0,
                told: None,
                round: 0,
                forgotten: 0,
                due: 0,
                is_listed: false,
                linked: [(0, Linked::NONE); RECENT],
                last: 0,
                validated: [(0, Linked::NONE); RECENT],
                forgot: 0,
                aside: Aside::default(),
            })?;
            push(&mut self.spare, domain)?;
        }
        Ok(())
    }

    /// The domain of a new space.
    ///
    /// # Errors
    /// [`Error::NoMemory`]: nothing has changed.
    fn enter(&mut self, space: SpaceId, apd: &Apd, parent: Option<SpaceId>, account: AccountId) -> Result<(), Error> {
        self.table.reach(space.0)?;
        let mut domain = self.spare.pop().ok_or(Error::NoMemory)?;
        let inherits = parent.and_then(|parent| self.get_mut(parent)).map_or(0, |parent| {
            parent.derived += 1;
            parent.drained
        });
        domain.inherits = inherits;
        domain.serial = self.next_serial;
        domain.task = None;
        domain.account = account;
        domain.apd = *apd;
        domain.parent = parent;
        domain.derived = 0;
        domain.is_mother = false;
        domain.told = None;
        (domain.round, domain.forgotten, domain.due) = (domain.drained, domain.drained, domain.drained);
        domain.is_listed = false;
        domain.aside = Aside::default();
        domain.forget_recent();
        self.table.put(space.0, domain);
        self.next_serial += 1;
        Ok(())
    }

    /// A domain has ended, and its nodes are gone; tells how many pages of them were paid for.
    fn remove(&mut self, space: SpaceId) -> u64 {
        let Some(mut domain) = self.table.take(space.0) else {
            return 0;
        };
        let paid = domain.nodes.let_go();
        self.tables -= core::mem::take(&mut domain.tables);
        domain.forgetting = 0..0;
        domain.ends = false;
        if self.spare.len() < DOMAINS_KEPT {
            push_reserved(&mut self.spare, domain);
        }
        paid
    }
}

impl Nodes for Domains {
    fn node(&self, node: NodeRef) -> Option<&Node> {
        self.get(node.space())?.nodes.at(node.index())
    }

    fn node_mut(&mut self, node: NodeRef) -> Option<&mut Node> {
        self.get_mut(node.space())?.nodes.at_mut(node.index())
    }
}

impl Server {
    /// A new domain that searches that APD, which is not sealed, paid for by an account.
    pub(crate) fn domain_create(
        &mut self,
        world: &mut impl World,
        apd: &Apd,
        account: AccountId,
    ) -> Result<SpaceId, Error> {
        self.domain_make(world, apd, None, account)
    }

    /// A new domain for a protected procedure: its APD cannot be changed from inside. `parent` is
    /// the caller's domain if the call is merged.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::LimitReached`].
    pub fn callee_domain_create(
        &mut self,
        world: &mut impl World,
        apd: Apd,
        parent: Option<SpaceId>,
        account: AccountId,
    ) -> Result<SpaceId, Error> {
        self.domain_make(world, &apd.sealed(), parent, account)
    }

    fn domain_make(
        &mut self,
        world: &mut impl World,
        apd: &Apd,
        parent: Option<SpaceId>,
        account: AccountId,
    ) -> Result<SpaceId, Error> {
        self.enough_heap(world)?;
        self.ledger.take(account, Resource::Bytes, DOMAIN_BYTES)?;
        let space = self.ledger.take(account, Resource::Spaces, 1).and_then(|()| {
            let made = self.space_make(world, apd, parent, account);
            made.inspect_err(|_| self.ledger.give(account, Resource::Spaces, 1))
        });
        let space = space.inspect_err(|_| self.ledger.give(account, Resource::Bytes, DOMAIN_BYTES))?;
        if let Err(error) = self.charge_tables(world, space) {
            self.domain_end(world, space);
            return Err(error);
        }
        Ok(space)
    }

    fn space_make(
        &mut self,
        world: &mut impl World,
        apd: &Apd,
        parent: Option<SpaceId>,
        account: AccountId,
    ) -> Result<SpaceId, Error> {
        self.domains.expect()?;
        let space = world.space_create().map_err(|_| Error::NoMemory)?;
        let entered = self.domains.enter(space, apd, parent, account);
        entered.inspect_err(|_| world.space_destroy(space)).map(|()| space)
    }

    /// Charges the page tables that a space has got since this was last asked.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: they are not charged, and must [go back](Server::tables_go_back).
    #[inline(always)]
    pub(crate) fn charge_tables(&mut self, world: &impl World, space: SpaceId) -> Result<(), Error> {
        let tables = world.space_tables(space);
        match self.domains.get_mut(space) {
            Some(domain) if domain.tables < tables => self.charge_new_tables(space, tables),
            _ => Ok(()),
        }
    }

    #[cold]
    fn charge_new_tables(&mut self, space: SpaceId, tables: u64) -> Result<(), Error> {
        let Some(domain) = self.domains.get_mut(space) else {
            return Ok(());
        };
        let (account, more) = (domain.account, tables - domain.tables);
        self.ledger.take(account, Resource::Frames, more)?;
        let taken = self.ledger.take(account, Resource::Tables, more);
        taken.inspect_err(|_| self.ledger.give(account, Resource::Frames, more))?;
        domain.tables = tables;
        self.domains.tables += more;
        Ok(())
    }

    /// Takes the page tables out of a space that are not charged. They are its newest, with nothing in them but what was linked just now.
    #[cold]
    pub(crate) fn tables_go_back(&mut self, world: &mut impl World, space: SpaceId) {
        let charged = self.domains.get(space).map_or(0, Domain::tables);
        while world.space_tables(space) > charged {
            world.space_trim(space, 1);
        }
        world.flush_space(space);
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

    /// Drops all that a domain has found out. Accessible objects are found again when they are touched.
    pub fn domain_flush(&mut self, world: &mut impl World, space: SpaceId) {
        self.forget_all(world, space);
        // Nothing fails without a bound.
        let _ = self.unbounded(|server| server.forget_piece(world, space));
    }

    /// The rights that a domain is known to have on an object.
    #[inline]
    pub fn cached(&self, space: SpaceId, id: ObjectId) -> Option<Cached> {
        let node = self.domains.node_of(space, id)?;
        (node.epoch == self.objects.get(id).epoch).then_some(node.cached)
    }

    /// Has the space of a domain that ends give its tables back, and the domain forget what it has found, as far as the budget reaches; tells
    /// whether what is left is little. No thread is inside or will return to it.
    pub(crate) fn domain_ends_soon(&mut self, world: &mut impl World, space: SpaceId) -> bool {
        if self.domains.get(space).is_none() {
            return true;
        }
        // Tables are whole pieces of work: none is begun with little, and behind the last one that this event takes nothing else is.
        let work = self.budget.left() / COST_LINK;
        if work < TABLE_WORK {
            self.budget.use_up();
            return false;
        }
        let left = world.space_trim(space, work);
        self.refund_tables(world, space);
        let Some(left) = left else {
            self.budget.use_up();
            return false;
        };
        self.budget.spend(Cost::own((work - left.min(work)) * COST_LINK));
        self.nodes_end(world, space)
    }

    /// Takes back what page tables cost that a space does not have any more.
    fn refund_tables(&mut self, world: &impl World, space: SpaceId) {
        if let Some(domain) = self.domains.get_mut(space) {
            let tables = world.space_tables(space);
            let gone = domain.tables - tables;
            domain.tables = tables;
            self.ledger.give(domain.account, Resource::Tables, gone);
            self.ledger.give(domain.account, Resource::Frames, gone);
            self.domains.tables -= gone;
        }
    }

    /// Ends a domain. No thread is inside or will return to it, and none reads through to it.
    pub fn domain_end(&mut self, world: &mut impl World, space: SpaceId) {
        let Some(domain) = self.domains.get(space) else {
            return;
        };
        let (account, tables, parent) = (domain.account, domain.tables, domain.parent);
        if let Some(parent) = parent.and_then(|parent| self.domains.get_mut(parent)) {
            parent.derived -= 1;
        }
        // The space goes as a whole: nothing needs to be unlinked one by one.
        self.unbounded(|server| server.nodes_end(world, space));
        let bytes = DOMAIN_BYTES + self.domains.remove(space) * PAGE_BYTES;
        world.space_destroy(space);
        self.ledger.give(account, Resource::Tables, tables);
        self.ledger.give(account, Resource::Frames, tables);
        self.ledger.give(account, Resource::Bytes, bytes);
        self.ledger.give(account, Resource::Spaces, 1);
    }
}
