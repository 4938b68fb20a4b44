//! Taking an object away from the domains that have it, and objects from a domain.
//!
//! The rights of a domain stand in its nodes, and its links let user code do it. First nodes die, many in one step
//! ([`crate::protection::node`]): nothing is derived from them any more, and no link is made by them. Then what they have linked is unlinked, node by node. That is work
//! for each leaf and each domain, so it is done in pieces ([`Server::unlink_node`]).
//!
//! * A *withdrawal* takes an object away from all domains. The call that takes a right away comes back when no node is left that is older than its
//!   epoch. A domain that may have the object by another capability finds it again, and does pieces of the withdrawal before that.
//! * A domain *forgets* one node, because its place is needed, or all of them, because its APD has changed. Until
//!   that is done it finds nothing that it does not have.
//!
//! Should the thread of a call end before, the list of work sees to the rest.

use core::ops::Range;

use abi::{Error, Rights};
use kcore::{SpaceId, portal::Stale};

use crate::{
    Server, Step, Stop, World,
    accounts::Resource,
    directory::object::{ENDS, ObjectId},
    lives::budget::Cost,
    lives::continuation::Continuation,
    lives::work::{Piece, Work},
    protection::domain::Cached,
    protection::node::{NodeRef, Nodes, PAGE_BYTES, found},
};

/// The cost of unlinking a leaf, and the first one of a domain, with which upper tables go; of dropping a node, and of freeing a page of them.
const COST_LEAF: Cost = Cost::calling(110, 1);
const COST_FIRST_LEAF: Cost = Cost::calling(1_950, 3);
const COST_NODE: Cost = Cost::calling(250, 1);
const COST_PAGE: Cost = Cost::own(250);
/// The cost of having a domain forget all, beside its nodes: of hiding them, of making the kernel forget its calls, and of flushing its space.
const COST_FORGET: Cost = Cost::calling(1_050, 2);
/// Domains from which an object that ends is taken in one piece.
pub(crate) const FEW: u32 = 4;

/// A withdrawal that is not over.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Withdrawal {
    pub(crate) base: u64,
    pub(crate) serial: u64,
    /// Nodes older than that are to be unlinked.
    pub(crate) epoch: u64,
}

/// The fate of the domains of an object's procedures.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CalleesOf {
    /// They stay.
    Nobody,
    /// Those of a password retire.
    Password(u64),
    /// All of them end.
    Object,
}

impl Server {
    /// Takes an object away from every domain that has it. Work beyond the event's budget is done behind it.
    pub fn withdraw(&mut self, world: &mut impl World, id: ObjectId) {
        let withdrawal = self.withdraw_begin(world, id);
        // The list does the rest.
        let _ = self.goes_on(world, Work::Withdrawal(withdrawal, CalleesOf::Nobody), true);
    }

    /// Takes an object that ends away from all domains but a few, as far as the budget reaches; tells whether that was done. Its callees
    /// end.
    pub(crate) fn withdraw_all_but_few(&mut self, world: &mut impl World, id: ObjectId) -> bool {
        let object = self.objects.get_mut(id);
        let base = object.base();
        if !object.record.pdx.is_empty() && !self.callees_of_object_end(world, base) {
            return false;
        }
        let object = self.objects.get_mut(id);
        if object.nodes.len() > FEW {
            object.closed_by = ENDS;
        }
        self.withdraw_from_most(world, id)
    }

    /// Takes an object away from all domains but a few, as far as the budget reaches; tells whether that was done.
    fn withdraw_from_most(&mut self, world: &mut impl World, id: ObjectId) -> bool {
        if self.objects.get(id).nodes.len() <= FEW {
            return true;
        }
        if self.holders(id).next().is_some() {
            self.withdraw_begin(world, id);
        }
        self.unlink_stale(world, id)
    }

    /// Whether an object is out of reach because it ends, or the call that deletes it is under way: nobody but its maker finds it. Otherwise
    /// those who come back in time would have to be unlinked at once in the end.
    pub(crate) fn is_closed(&self, id: ObjectId) -> bool {
        let object = self.objects.get(id);
        object.ends()
            || self.threads.find(object.closed_by).is_some_and(|record| {
                matches!(record.continuation, Continuation::Delete { withdrawal, .. } if withdrawal.serial == object.serial)
            })
    }

    /// The same at once, where little is left.
    pub(crate) fn withdraw_whole(&mut self, world: &mut impl World, id: ObjectId) {
        let withdrawal = self.withdraw_begin(world, id);
        self.unbounded(|server| server.withdrawal_piece(world, withdrawal, CalleesOf::Nobody));
    }

    /// A piece of a withdrawal. There may be nothing left to do.
    pub(crate) fn withdrawal_piece(
        &mut self,
        world: &mut impl World,
        withdrawal: Withdrawal,
        callees: CalleesOf,
    ) -> Piece {
        let Withdrawal { base, serial, epoch } = withdrawal;
        let Some(id) = self.objects.find_serial(base, serial) else {
            return Piece::Done;
        };
        let done = self.unlink_older(world, id, epoch)
            && match callees {
                CalleesOf::Nobody => true,
                CalleesOf::Password(password) => self.callees_of_password_retire(world, base, password),
                CalleesOf::Object => self.callees_of_object_end(world, base),
            };
        if done { Piece::Done } else { Piece::More }
    }

    /// Makes all nodes of an object worthless.
    pub(crate) fn withdraw_begin(&mut self, world: &mut impl World, id: ObjectId) -> Withdrawal {
        let object = self.objects.get_mut(id);
        object.epoch += 1;
        let (base, serial, epoch) = (object.base(), object.serial, object.epoch);
        if core::mem::take(&mut object.called) {
            self.calls_into_stale(world, base);
        }
        Withdrawal { base, serial, epoch }
    }

    /// Unlinks all stale nodes of an object, as far as the budget reaches; tells whether those were all.
    fn unlink_stale(&mut self, world: &mut impl World, id: ObjectId) -> bool {
        self.unlink_older(world, id, self.objects.get(id).epoch)
    }

    /// The same with those that are older than an epoch.
    pub(crate) fn unlink_older(&mut self, world: &mut impl World, id: ObjectId, epoch: u64) -> bool {
        while let Some(at) = self.objects.get(id).nodes.first() {
            let Some(done) = self.unlink_node(world, at, epoch) else {
                return true;
            };
            world.flush_space(at.space());
            if !done {
                return false;
            }
        }
        true
    }

    /// Unlinks what a node stands for that is older than an epoch, and takes it out of the list of its object and out of its table, as far as the
    /// budget reaches; tells whether that was all. The space is to be flushed.
    fn unlink_node(&mut self, world: &mut impl World, at: NodeRef, epoch: u64) -> Option<bool> {
        let domain = self.domains.get_mut(at.space())?;
        domain.nodes.at(at.index()).filter(|node| node.epoch < epoch)?;
        if !self.budget.spend(COST_NODE) {
            return Some(false);
        }
        domain.forget_recent();
        let node = domain.nodes.at_mut(at.index())?;
        let object = self.objects.get_mut(node.object());
        let mut cost = COST_FIRST_LEAF;
        while node.linked
            && !domain.ends
            && let Some(number) = object.slots.next_with_leaf(u64::from(node.unlink_from))
        {
            if !self.budget.spend(core::mem::replace(&mut cost, COST_LEAF)) {
                return Some(false);
            }
            world.unlink(at.space(), object.first_slot() + number);
            node.unlink_from = number as u32 + 1;
        }
        let [previous, next] = node.neighbours();
        domain.nodes.remove(at.index());
        self.domains.join(&mut object.nodes, previous, next);
        Some(true)
    }

    /// Unlinks the slots of an object in a range of numbers from every domain.
    pub(crate) fn unlink_everywhere<W: World>(&mut self, world: &mut W, id: ObjectId, slots: &Range<u64>) {
        let object = self.objects.get(id);
        let mut next = object.nodes.first();
        while let Some(node) = next {
            next = self.domains.after(node);
            if self.domains.node(node).is_none_or(|node| !node.linked) {
                continue;
            }
            let mut from = slots.start;
            while let Some(number) = object.slots.next_with_leaf(from).filter(|&number| number < slots.end) {
                world.unlink(node.space(), object.first_slot() + number);
                from = number + 1;
            }
            if let Some(domain) = self.domains.get_mut(node.space()) {
                domain.forget_recent();
            }
            world.flush_space(node.space());
        }
    }

    /// Whether another domain has an object.
    pub(crate) fn others_hold(&self, id: ObjectId, space: SpaceId) -> bool {
        self.holders(id).any(|holder| holder != space)
    }

    /// The domains that have an object.
    pub fn holders(&self, id: ObjectId) -> impl Iterator<Item = SpaceId> {
        let object = self.objects.get(id);
        // If one is stale, all are.
        let first = object.nodes.first();
        let first = first.filter(|&node| self.domains.node(node).is_some_and(|node| node.epoch == object.epoch));
        core::iter::successors(first, |&node| self.domains.after(node)).map(NodeRef::space)
    }

    // ---- a domain finds ---------------------------------------------------------------------------

    /// Sees to it that a domain has a place for what it finds out about an object, and nothing is left of what anybody once had.
    ///
    /// # Errors
    /// [`Stop::Again`] after a piece; [`Error::NoMemory`] if it cannot have a single node.
    pub(in crate::protection) fn prepare_node(
        &mut self,
        world: &mut impl World,
        space: SpaceId,
        id: ObjectId,
    ) -> Step<()> {
        self.forget_piece(world, space)?;
        if !self.unlink_stale(world, id) {
            return Err(Stop::Again);
        }
        let Some(domain) = self.domains.get(space) else {
            return Err(Error::Protection.into());
        };
        if domain.nodes.has_room() || domain.nodes.place(id).is_some() || self.nodes_grow(world, space) {
            return Ok(());
        }
        let domain = self.domains.get_mut(space);
        let victim = domain.and_then(|domain| domain.nodes.victim());
        self.forget_one(world, space, victim.ok_or(Error::NoMemory)?);
        self.forget_piece(world, space)
    }

    /// A further page of nodes for a domain; tells whether it got one.
    fn nodes_grow(&mut self, world: &impl World, space: SpaceId) -> bool {
        let enough = self.enough_heap(world).is_ok();
        let Some(domain) = self
            .domains
            .get_mut(space)
            .filter(|domain| enough && domain.nodes.may_grow())
        else {
            return false;
        };
        let account = domain.account;
        if self.ledger.take(account, Resource::Bytes, PAGE_BYTES).is_err() {
            return false;
        }
        let grown = domain.nodes.grow().is_some();
        if !grown {
            self.ledger.give(account, Resource::Bytes, PAGE_BYTES);
        }
        grown
    }

    /// Enters rights into a domain's cache, where [`Server::prepare_node`] has made a place.
    pub(in crate::protection) fn cache_rights(&mut self, space: SpaceId, id: ObjectId, cached: Cached) {
        let Some(domain) = self.domains.get_mut(space) else {
            return;
        };
        let object = self.objects.get_mut(id);
        object.called |= cached.rights.contains(Rights::P);
        if let Some(node) = domain.nodes.find_mut(id) {
            node.cached = cached;
            // Existing links have the old rights. More rights need no flush: a processor that remembers fewer looks
            // again before it faults, and the fault links anew.
            domain.forget_recent();
        } else if let Some(place) = domain.nodes.insert(&found(id, object.epoch, cached)) {
            self.domains.append(&mut object.nodes, space, place);
        }
    }

    /// Notes that leaves of an object are linked in a domain, if that has found out that it has the right that is needed, and that still holds; all that it has found
    /// out.
    #[inline]
    pub(crate) fn note_linked(&mut self, space: SpaceId, id: ObjectId, needed: Rights) -> Option<Cached> {
        let epoch = self.objects.get(id).epoch;
        let node = self.domains.get_mut(space)?.nodes.find_mut(id)?;
        (node.epoch == epoch && node.cached.rights.contains(needed)).then(|| {
            (node.linked, node.used) = (true, true);
            node.cached
        })
    }

    // ---- a domain forgets -------------------------------------------------------------------------

    /// Has a domain forget all that it has found out, and the kernel the calls of it and of all that read through to it.
    pub(in crate::protection) fn forget_all(&mut self, world: &mut impl World, space: SpaceId) {
        self.forget_own(space);
        self.calls_of_stale(world, space);
    }

    /// Has a domain forget all that it has found out, and the kernel its own calls: those that read through to it have their turn behind it.
    pub(in crate::protection) fn forget_in_turn(&mut self, world: &mut impl World, space: SpaceId) {
        self.forget_own(space);
        self.own_calls_stale(world, space);
    }

    fn forget_own(&mut self, space: SpaceId) {
        self.budget.spend(COST_FORGET);
        let Some(domain) = self.domains.get_mut(space) else {
            return;
        };
        domain.forget_recent();
        domain.drained += 1;
        domain.nodes.hide_all();
        domain.forgetting = 0..u32::MAX;
    }

    /// Has a domain that is forgetting nothing forget one node.
    fn forget_one(&mut self, world: &mut impl World, space: SpaceId, place: u32) {
        let Some(domain) = self.domains.get_mut(space) else {
            return;
        };
        domain.nodes.hide(place);
        domain.forgetting = place..place + 1;
        domain.forget_recent();
        let node = domain.nodes.at(place);
        if node.is_some_and(|node| node.cached.rights.contains(Rights::P)) {
            world.portal_forget(Stale::CallsOf(space));
        }
    }

    /// Unlinks a piece of what a domain has to forget.
    ///
    /// # Errors
    /// [`Stop::Again`].
    #[inline]
    pub(in crate::protection) fn forget_piece(&mut self, world: &mut impl World, space: SpaceId) -> Step<()> {
        match self.domains.get(space) {
            Some(domain) if !domain.forgetting.is_empty() => self.forget_on(world, space),
            _ => Ok(()),
        }
    }

    fn forget_on(&mut self, world: &mut impl World, space: SpaceId) -> Step<()> {
        let mut step = Ok(());
        while let Some(domain) = self
            .domains
            .get_mut(space)
            .filter(|domain| !domain.forgetting.is_empty())
        {
            let next = domain.nodes.next(domain.forgetting.start);
            let Some(place) = next.filter(|place| domain.forgetting.contains(place)) else {
                domain.forgetting = 0..0;
                break;
            };
            domain.forgetting.start = place;
            if self.unlink_node(world, NodeRef::new(space, place), u64::MAX) == Some(false) {
                step = Err(Stop::Again);
                break;
            }
        }
        if self.domains.get(space).is_some_and(|domain| !domain.ends) {
            world.flush_space(space);
        }
        step
    }

    /// A domain that ends forgets what it has found, as far as the budget reaches; tells whether that was all. Its space goes as a whole, so nothing
    /// needs to be unlinked from it.
    pub(in crate::protection) fn nodes_end(&mut self, world: &mut impl World, space: SpaceId) -> bool {
        let Some(domain) = self.domains.get_mut(space) else {
            return true;
        };
        if !core::mem::replace(&mut domain.ends, true) {
            domain.forgetting = 0..u32::MAX;
            world.portal_forget(Stale::CallsOf(space));
        }
        if self.forget_piece(world, space).is_err() {
            return false;
        }
        while self
            .domains
            .get_mut(space)
            .is_some_and(|domain| domain.nodes.free_page())
        {
            if !self.budget.spend(COST_PAGE) {
                return false;
            }
        }
        true
    }
}

const _: () = assert!(PAGE_BYTES < 4096);
