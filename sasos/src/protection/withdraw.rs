//! Taking an object away from the domains that have it, and everything away from a domain.
//!
//! What a domain may do stands in its nodes, and its links let user code do it. Raising the epoch of an object makes all nodes
//! of it worthless at once, so that nothing is derived any more from a right that is gone. Unlinking is work for each leaf and each domain, and where that
//! is much it is done in pieces, node by node ([`crate::protection::node`]): the call that takes a right away comes back when no node is
//! left that is older than its epoch. Should its thread end before, `Event::Poll` sees to the rest. A domain that may have the
//! object by another capability finds it again, in a node of the new epoch; its old node is unlinked before.

use core::ops::Range;

use abi::{Error, Rights};
use kcore::SpaceId;

use crate::{
    Server, Step, Stop, World,
    accounts::Resource,
    directory::object::ObjectId,
    lives::work::{Piece, Work},
    protection::domain::Cached,
    protection::node::{NodeRef, Nodes, PAGE_BYTES, found},
};

/// What unlinking a leaf costs, dropping a node, and looking at a vacant place.
const COST_LEAF: u64 = 110;
const COST_NODE: u64 = 250;
const COST_VACANT: u64 = 8;
/// Domains from which an object that ends is taken in one piece.
const FEW: u32 = 4;

/// A withdrawal that is not over.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Withdrawal {
    pub(crate) base: u64,
    pub(crate) serial: u64,
    /// Nodes older than that are to be unlinked.
    epoch: u64,
}

impl Server {
    /// Takes an object away from every domain that has it. Who still has a right finds it again. What the event's budget does not reach is
    /// done behind it.
    pub fn withdraw<W: World>(&mut self, world: &mut W, id: ObjectId) {
        let withdrawal = self.withdraw_begin(world, id);
        if self.withdrawal_piece(world, withdrawal) == Piece::More
            && self.work.enter_further(Work::Withdrawal(withdrawal)).is_err()
        {
            self.withdraw_whole(world, id);
        }
    }

    /// Takes an object that ends away from all domains but a few, as far as the budget reaches; tells whether that was done.
    pub(crate) fn withdraw_all_but_few<W: World>(&mut self, world: &mut W, id: ObjectId) -> bool {
        let object = self.objects.get(id);
        if object.holders.len() + object.stale.len() <= FEW {
            return true;
        }
        if object.holders.first().is_some() {
            self.withdraw_begin(world, id);
        }
        self.unlink_stale(world, id, u64::MAX)
    }

    /// The same at once, where little is left.
    pub(crate) fn withdraw_whole<W: World>(&mut self, world: &mut W, id: ObjectId) {
        let withdrawal = self.withdraw_begin(world, id);
        self.unbounded(|server| server.withdrawal_piece(world, withdrawal));
    }

    /// A piece of a withdrawal by the call that began it, the first or another one, to be made again until it is done. Should nobody do so, the
    /// rest is done in any case.
    ///
    /// # Errors
    /// [`Stop::Again`].
    pub(crate) fn withdrawal_goes_on<W: World>(
        &mut self,
        world: &mut W,
        withdrawal: Withdrawal,
        first: bool,
    ) -> Step<()> {
        if self.withdrawal_piece(world, withdrawal) == Piece::Done {
            return Ok(());
        }
        if first && self.work.enter_further(Work::Withdrawal(withdrawal)).is_err() {
            self.unbounded(|server| server.withdrawal_piece(world, withdrawal));
            return Ok(());
        }
        Err(Stop::Again)
    }

    /// A piece of a withdrawal. There may be nothing left to do.
    pub(crate) fn withdrawal_piece<W: World>(&mut self, world: &mut W, withdrawal: Withdrawal) -> Piece {
        let Withdrawal { base, serial, epoch } = withdrawal;
        match self.objects.find_serial(base, serial) {
            Some(id) if !self.unlink_stale(world, id, epoch) => Piece::More,
            _ => Piece::Done,
        }
    }

    /// Makes all nodes of an object worthless.
    pub(crate) fn withdraw_begin<W: World>(&mut self, world: &mut W, id: ObjectId) -> Withdrawal {
        let object = self.objects.get_mut(id);
        object.epoch += 1;
        let (base, serial, epoch) = (object.base(), object.serial, object.epoch);
        self.domains.join(&mut object.stale, &mut object.holders);
        if core::mem::take(&mut object.called) {
            world.portal_forget();
        }
        Withdrawal { base, serial, epoch }
    }

    /// Unlinks nodes of an object that are older than an epoch; tells whether that were all.
    fn unlink_stale<W: World>(&mut self, world: &mut W, id: ObjectId, epoch: u64) -> bool {
        // The oldest come first.
        while let Some(node) = self.objects.get(id).stale.first()
            && self.domains.node(node).is_some_and(|node| node.epoch < epoch)
        {
            let done = self.unlink_node(world, node);
            world.flush_space(node.space());
            if !done {
                return false;
            }
        }
        true
    }

    /// Unlinks what a node stands for and drops it, as far as the budget reaches; tells whether that was all. The space is to be flushed.
    fn unlink_node<W: World>(&mut self, world: &mut W, at: NodeRef) -> bool {
        let Some(domain) = self.domains.get_mut(at.space()) else {
            return true;
        };
        domain.forget_recent();
        let Some(node) = domain.nodes.at_mut(at.index()).filter(|node| !node.is_vacant()) else {
            return true;
        };
        let object = self.objects.get(node.object());
        while node.linked
            && let Some(number) = object.slots.next_with_leaf(u64::from(node.unlink_from))
        {
            if !self.budget.spend(COST_LEAF) {
                return false;
            }
            world.unlink(at.space(), object.first_slot() + number);
            node.unlink_from = number as u32 + 1;
        }
        self.budget.spend(COST_NODE);
        self.drop_node(at);
        true
    }

    /// Takes a node out of the list of its object and out of its table.
    fn drop_node(&mut self, at: NodeRef) {
        let Some((id, epoch)) = self.domains.node(at).map(|node| (node.object(), node.epoch)) else {
            return;
        };
        let object = self.objects.get_mut(id);
        let list = if epoch == object.epoch {
            &mut object.holders
        } else {
            &mut object.stale
        };
        self.domains.take_out(list, at);
        if let Some(domain) = self.domains.get_mut(at.space()) {
            domain.nodes.remove(at.index());
        }
    }

    /// Unlinks the slots of an object in a range of numbers from every domain.
    pub(crate) fn unlink_everywhere<W: World>(&mut self, world: &mut W, id: ObjectId, slots: &Range<u64>) {
        let object = self.objects.get(id);
        for list in [object.holders, object.stale] {
            let mut next = list.first();
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
    }

    /// Whether another domain has an object.
    pub(crate) fn others_hold(&self, id: ObjectId, space: SpaceId) -> bool {
        self.holders(id).any(|holder| holder != space)
    }

    /// The domains that have an object.
    pub fn holders(&self, id: ObjectId) -> impl Iterator<Item = SpaceId> {
        let first = self.objects.get(id).holders.first();
        core::iter::successors(first, |&node| self.domains.after(node)).map(NodeRef::space)
    }

    // ---- a domain finds ---------------------------------------------------------------------------

    /// Sees to it that a domain has a place for what it finds out about an object, and nothing is left of what it once had.
    ///
    /// # Errors
    /// [`Stop::Again`] after a piece; [`Error::NoMemory`] if it cannot have a single node.
    pub(in crate::protection) fn prepare_node<W: World>(
        &mut self,
        world: &mut W,
        space: SpaceId,
        id: ObjectId,
    ) -> Step<()> {
        self.drain_piece(world, space)?;
        let Some(domain) = self.domains.get_mut(space) else {
            return Err(Error::Protection.into());
        };
        if let Some(place) = domain.nodes.place(id) {
            let live = domain
                .nodes
                .at(place)
                .is_some_and(|node| node.epoch == self.objects.get(id).epoch);
            return if live {
                Ok(())
            } else {
                self.give_up(world, NodeRef::new(space, place))
            };
        }
        if domain.nodes.has_room() {
            return Ok(());
        }
        let may_grow = domain.nodes.may_grow();
        if may_grow && self.enough_heap(world).is_ok() && self.nodes_grow(space) {
            return Ok(());
        }
        let victim = self.domains.get_mut(space).and_then(|domain| domain.nodes.victim());
        let victim = victim.ok_or(Error::NoMemory)?;
        self.give_up(world, NodeRef::new(space, victim))
    }

    /// A further page of nodes for a domain; tells whether it got one.
    fn nodes_grow(&mut self, space: SpaceId) -> bool {
        let Some(domain) = self.domains.get_mut(space) else {
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

    /// Unlinks and drops a node.
    ///
    /// # Errors
    /// [`Stop::Again`] after a piece.
    fn give_up<W: World>(&mut self, world: &mut W, at: NodeRef) -> Step<()> {
        let had_calls = self
            .domains
            .node(at)
            .is_some_and(|node| node.cached.rights.contains(Rights::P));
        if had_calls {
            world.portal_forget();
        }
        let done = self.unlink_node(world, at);
        world.flush_space(at.space());
        if done { Ok(()) } else { Err(Stop::Again) }
    }

    /// Enters rights into a domain's cache, where [`Server::prepare_node`] has made a place.
    pub(in crate::protection) fn cache_rights(&mut self, space: SpaceId, id: ObjectId, cached: Cached) {
        let Some(domain) = self.domains.get_mut(space) else {
            return;
        };
        // What is linked is linked with the old rights. More rights need no flush: a processor that remembers fewer looks
        // again before it faults, and the fault links anew.
        domain.forget_recent();
        let object = self.objects.get_mut(id);
        let calls = cached.rights.contains(Rights::P);
        domain.calls |= calls;
        object.called |= calls;
        if let Some(node) = domain.nodes.place(id).and_then(|place| domain.nodes.at_mut(place)) {
            node.cached = cached;
        } else if let Some(place) = domain.nodes.insert(&found(id, object.epoch, cached)) {
            self.domains.append(&mut object.holders, space, place);
        }
    }

    /// Notes that leaves of an object are linked in a domain; `false` if the domain does not have it.
    pub(crate) fn note_linked(&mut self, space: SpaceId, id: ObjectId) -> bool {
        let domain = self.domains.get_mut(space);
        let node = domain.and_then(|domain| domain.nodes.find_mut(id));
        node.map(|node| node.linked = true).is_some()
    }

    // ---- a domain forgets -------------------------------------------------------------------------

    /// Has a domain forget all that it has found out.
    pub(in crate::protection) fn drain_begin<W: World>(&mut self, world: &mut W, space: SpaceId) {
        let Some(domain) = self.domains.get_mut(space) else {
            return;
        };
        domain.forget_recent();
        domain.drained += 1;
        if core::mem::take(&mut domain.calls) {
            world.portal_forget();
        }
        domain.nodes.hide();
        domain.draining = Some(0);
    }

    /// Unlinks a piece of what a domain has to forget.
    ///
    /// # Errors
    /// [`Stop::Again`].
    #[inline]
    pub(in crate::protection) fn drain_piece<W: World>(&mut self, world: &mut W, space: SpaceId) -> Step<()> {
        match self.domains.get(space).and_then(|domain| domain.draining) {
            None => Ok(()),
            Some(from) => self.drain_from(world, space, from),
        }
    }

    fn drain_from<W: World>(&mut self, world: &mut W, space: SpaceId, from: u32) -> Step<()> {
        let mut place = from;
        let done = loop {
            let Some(domain) = self.domains.get_mut(space) else {
                break true;
            };
            domain.draining = Some(place);
            let Some(node) = domain.nodes.at(place).filter(|_| domain.nodes.count() > 0) else {
                domain.draining = None;
                break true;
            };
            let vacant = node.is_vacant();
            if !self.budget.spend(COST_VACANT) || !vacant && !self.unlink_node(world, NodeRef::new(space, place)) {
                break false;
            }
            place += 1;
        };
        world.flush_space(space);
        if done { Ok(()) } else { Err(Stop::Again) }
    }

    /// A domain that ends forgets what it has found, as far as the budget reaches; tells whether that was all. Its space goes as a whole, so nothing
    /// needs to be unlinked from it.
    pub(in crate::protection) fn nodes_end<W: World>(&mut self, world: &mut W, space: SpaceId) -> bool {
        let Some(domain) = self.domains.get_mut(space) else {
            return true;
        };
        if core::mem::take(&mut domain.calls) {
            world.portal_forget();
        }
        let mut place = domain.draining.take().unwrap_or(0);
        while let Some(domain) = self.domains.get_mut(space).filter(|domain| domain.nodes.count() > 0)
            && let Some(node) = domain.nodes.at(place)
        {
            if !node.is_vacant() {
                if !self.budget.spend(COST_NODE) {
                    domain.draining = Some(place);
                    return false;
                }
                self.drop_node(NodeRef::new(space, place));
            }
            place += 1;
        }
        true
    }

    // ---- checks -----------------------------------------------------------------------------------

    /// What does not hold of nodes and lists, with the number of the object.
    pub(crate) fn check_nodes(&self) -> Option<(&'static str, u64)> {
        let mut listed = 0;
        for (id, object) in self.objects.iter() {
            for (list, present) in [(object.holders, true), (object.stale, false)] {
                let mut count = 0;
                let mut oldest = 0;
                let mut next = list.first();
                while let Some(at) = next {
                    next = self.domains.after(at);
                    count += 1;
                    let good = self.domains.get(at.space()).is_some()
                        && self.domains.node(at).is_some_and(|node| {
                            let age = oldest..=object.epoch;
                            oldest = node.epoch;
                            node.object() == id && (node.epoch == object.epoch) == present && age.contains(&node.epoch)
                        });
                    if !good {
                        return Some(("a node in the wrong list", u64::from(id.0)));
                    }
                }
                if count != list.len() {
                    return Some(("the length of a list of nodes", u64::from(id.0)));
                }
                listed += u64::from(count);
            }
        }
        let known: u64 = self.domains.iter().map(|(_, domain)| domain.cached_objects()).sum();
        (known != listed).then_some(("nodes in no list", known))
    }
}

const _: () = assert!(PAGE_BYTES < 4096);
