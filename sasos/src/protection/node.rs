//! A domain's findings about an object: one node for the pair.
//!
//! A node stands in a chain of its domain's table, where an access finds it, and in a list of its object, where a revocation
//! finds it. A node is dead before the first of its links goes, so that none is made anew behind the position where unlinking goes on. It
//! dies in one of two ways:
//!
//! * Its object is taken away from all domains. A node is worth something in one *epoch* of the object alone, the one that it was made in. Raising the
//!   epoch makes all nodes of an object *stale* in one step. None is made in the new epoch before all stale ones are gone: so those in the list of an object are of one
//!   epoch, and a domain that finds the object again does so when nobody has it by a right that is gone.
//! * Its domain forgets it. The node is taken out of its chain ([`Table::hide`]), so that the domain does not find it. The domain has the range of places that it
//!   is forgetting.
//!
//! Dead nodes are unlinked one by one, each with a position of its own, by whoever comes first: the withdrawal, a domain that looks for the object, or the
//! domain that forgets.
//!
//! Nodes come in pages of [`PAGE_NODES`], which the domain's account pays for. A domain that gets no further page, or has
//! [`NODES_MAX`] nodes, gives one up for each new one. A hand goes round the places and gives up the first node that was neither made nor linked since it
//! was there last. So a thread keeps the objects that it has just found, and makes progress with every page of nodes.

use alloc::vec::Vec;

use kcore::SpaceId;

use crate::{containers::push_reserved, directory::object::ObjectId, protection::domain::Cached};

/// Nodes in a page. With each page as many chains are added to the table.
pub(crate) const PAGE_NODES: usize = 64;
/// Nodes of one domain.
pub const NODES_MAX: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 12;
/// Nodes that the hand passes before it takes one that was used: all of a page, so that it comes to its oldest again.
const LOOKS: usize = PAGE_NODES + 1;
/// The bytes of a page: its nodes and its chains.
pub(crate) const PAGE_BYTES: u64 = (PAGE_NODES * (size_of::<Node>() + size_of::<u32>())) as u64;

const NONE: u32 = u32::MAX;

/// A node: number of the domain and place in it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NodeRef(u32);

impl NodeRef {
    const NONE: Self = Self(NONE);

    pub(crate) const fn new(space: SpaceId, index: u32) -> Self {
        Self(space.0 << INDEX_BITS | index)
    }

    /// The domain.
    pub(crate) const fn space(self) -> SpaceId {
        SpaceId(self.0 >> INDEX_BITS)
    }

    /// The place in its table.
    pub(crate) const fn index(self) -> u32 {
        self.0 & (NODES_MAX as u32 - 1)
    }

    fn some(self) -> Option<Self> {
        (self.0 != NONE).then_some(self)
    }
}

/// A domain's knowledge of an object.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The object; a vacant place has none.
    pub(crate) object: u32,
    /// The next in the chain of the table, or the next vacant place.
    chain: u32,
    /// Neighbours in the list of the object.
    next: NodeRef,
    previous: NodeRef,
    /// The epoch of the object in which it was made.
    pub(crate) epoch: u64,
    pub(crate) cached: Cached,
    /// Whether any leaf may be linked.
    pub(crate) linked: bool,
    /// Whether it was made, or a leaf of it linked, since the hand was there last.
    pub(crate) used: bool,
    /// When it is unlinked: the slot of the object where to go on.
    pub(crate) unlink_from: u32,
}

impl Node {
    const VACANT: Self = Self {
        object: NONE,
        chain: NONE,
        next: NodeRef::NONE,
        previous: NodeRef::NONE,
        epoch: 0,
        cached: Cached::NOTHING,
        linked: false,
        used: false,
        unlink_from: 0,
    };

    pub(crate) const fn object(&self) -> ObjectId {
        ObjectId(self.object)
    }

    /// The one before and the one behind it in the list of its object, to be [joined](Nodes::join).
    pub(crate) const fn neighbours(&self) -> [NodeRef; 2] {
        [self.previous, self.next]
    }
}

/// Neighbouring places, with a bit for each that is not vacant.
#[derive(Debug)]
struct Page {
    taken: u64,
    nodes: Vec<Node>,
}

const _: () = assert!(PAGE_NODES == u64::BITS as usize);

/// The nodes of one domain, found by their object: a table of chains that grows by a page at a time, so that no step costs
/// more than a page does.
#[derive(Debug)]
pub(crate) struct Table {
    /// The first node of each chain.
    chains: Vec<u32>,
    /// Bits of a hash that count; above half of it the last chains may be missing.
    mask: usize,
    pages: Vec<Page>,
    /// Pages that are paid for.
    paid: usize,
    vacant: u32,
    count: u32,
    /// The place where the search for one to give up goes on.
    hand: u32,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            chains: Vec::new(),
            mask: 0,
            pages: Vec::new(),
            paid: 0,
            vacant: NONE,
            count: 0,
            hand: 0,
        }
    }
}

impl Table {
    #[inline]
    fn chain_of(&self, object: u32) -> usize {
        let hash = object.wrapping_mul(0x9e37_79b9) as usize >> 7;
        let chain = hash & self.mask;
        if chain < self.chains.len() {
            chain
        } else {
            chain & self.mask >> 1
        }
    }

    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<&Node> {
        self.pages
            .get(index as usize / PAGE_NODES)?
            .nodes
            .get(index as usize % PAGE_NODES)
    }

    /// The first node at or behind a place.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        let mut place = from as usize;
        loop {
            let here = self.pages.get(place / PAGE_NODES)?.taken & u64::MAX << (place % PAGE_NODES);
            place -= place % PAGE_NODES;
            if here != 0 {
                return Some(place as u32 + here.trailing_zeros());
            }
            place += PAGE_NODES;
        }
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut Node> {
        self.pages
            .get_mut(index as usize / PAGE_NODES)?
            .nodes
            .get_mut(index as usize % PAGE_NODES)
    }

    /// The place of the node that the domain finds for an object, whatever it is worth.
    #[inline]
    pub(crate) fn place(&self, id: ObjectId) -> Option<u32> {
        let mut index = *self.chains.get(self.chain_of(id.0))?;
        while let Some(node) = self.at(index) {
            if node.object == id.0 {
                return Some(index);
            }
            index = node.chain;
        }
        None
    }

    /// The node itself.
    #[inline]
    pub(crate) fn find(&self, id: ObjectId) -> Option<&Node> {
        self.at(self.place(id)?)
    }

    /// The same, to change.
    #[inline]
    pub(crate) fn find_mut(&mut self, id: ObjectId) -> Option<&mut Node> {
        self.at_mut(self.place(id)?)
    }

    /// Lets no node be found any more. They stay until they are removed.
    pub(crate) fn hide_all(&mut self) {
        self.chains.fill(NONE);
    }

    /// How many nodes there are.
    pub(crate) fn count(&self) -> usize {
        self.count as usize
    }

    /// Places, vacant ones included.
    pub(crate) fn places(&self) -> u32 {
        (self.pages.len() * PAGE_NODES) as u32
    }

    /// Whether there is a vacant place.
    pub(crate) fn has_room(&self) -> bool {
        self.vacant != NONE && self.paid == self.pages.len()
    }

    /// Pages that are paid for.
    pub(crate) const fn paid(&self) -> u64 {
        self.paid as u64
    }

    /// Frees a page of a table that nobody will use again, and whose places are all vacant, but for the first page; tells whether there was one.
    pub(crate) fn free_page(&mut self) -> bool {
        self.pages.len() > 1 && self.pages.pop().is_some()
    }

    /// Nobody has the table any more, and all places are vacant: of its pages the first stays. Tells how many were paid for.
    pub(crate) fn let_go(&mut self) -> u64 {
        let paid = core::mem::take(&mut self.paid);
        if paid > 1 {
            let first = self.pages.drain(..).next();
            *self = Self::default();
            first.and_then(|page| self.add_page(page.nodes));
        }
        paid as u64
    }

    /// Whether there may be a further page.
    pub(crate) fn may_grow(&self) -> bool {
        self.paid * PAGE_NODES < NODES_MAX
    }

    /// Adds a page, which is paid for. `None` without memory: nothing has changed.
    pub(crate) fn grow(&mut self) -> Option<()> {
        if self.paid == self.pages.len() {
            let mut page = Vec::new();
            page.try_reserve_exact(PAGE_NODES).ok()?;
            self.add_page(page)?;
        }
        self.paid += 1;
        Some(())
    }

    /// Adds a page with room for its nodes.
    fn add_page(&mut self, mut page: Vec<Node>) -> Option<()> {
        self.pages.try_reserve(1).ok()?;
        self.chains.try_reserve(PAGE_NODES).ok()?;
        let first = self.places();
        page.clear();
        for index in first..first + PAGE_NODES as u32 {
            let chain = index + 1;
            push_reserved(&mut page, Node { chain, ..Node::VACANT });
        }
        if let Some(last) = page.last_mut() {
            last.chain = core::mem::replace(&mut self.vacant, first);
        }
        push_reserved(&mut self.pages, Page { taken: 0, nodes: page });
        for _ in 0..PAGE_NODES {
            self.add_chain();
        }
        Some(())
    }

    /// One more chain, which takes over a part of another one.
    fn add_chain(&mut self) {
        let new = self.chains.len();
        push_reserved(&mut self.chains, NONE);
        if new > self.mask {
            self.mask = self.mask << 1 | 1;
        }
        let before = new & self.mask >> 1;
        if before == new {
            return;
        }
        let mut index = core::mem::replace(&mut self.chains[before], NONE);
        while let Some(node) = self.at(index) {
            let (next, chain) = (node.chain, self.chain_of(node.object));
            let head = core::mem::replace(&mut self.chains[chain], index);
            if let Some(node) = self.at_mut(index) {
                node.chain = head;
            }
            index = next;
        }
    }

    /// Puts a node into a vacant place, and tells which.
    pub(crate) fn insert(&mut self, node: &Node) -> Option<u32> {
        let index = self.vacant;
        let chain = self.chain_of(node.object);
        let head = *self.chains.get(chain)?;
        let place = self.at_mut(index)?;
        let vacant = place.chain;
        *place = Node {
            chain: head,
            ..node.clone()
        };
        self.vacant = vacant;
        self.chains[chain] = index;
        self.pages[index as usize / PAGE_NODES].taken |= 1 << (index as usize % PAGE_NODES);
        self.count += 1;
        Some(index)
    }

    /// Lets a node be found no more. It stays until it is removed.
    pub(crate) fn hide(&mut self, index: u32) {
        let Some((object, next)) = self.at(index).map(|node| (node.object, node.chain)) else {
            return;
        };
        let chain = self.chain_of(object);
        if self.chains[chain] == index {
            self.chains[chain] = next;
            return;
        }
        let mut before = self.chains[chain];
        while let Some(node) = self.at_mut(before) {
            if node.chain == index {
                node.chain = next;
                return;
            }
            before = node.chain;
        }
    }

    /// Takes a node out, which stands in no list any more.
    pub(crate) fn remove(&mut self, index: u32) {
        self.hide(index);
        let chain = self.vacant;
        if let Some(node) = self.at_mut(index) {
            *node = Node { chain, ..Node::VACANT };
            self.vacant = index;
            self.pages[index as usize / PAGE_NODES].taken &= !(1 << (index as usize % PAGE_NODES));
            self.count -= 1;
        }
    }

    /// The next node to be given up, where no place is vacant.
    pub(crate) fn victim(&mut self) -> Option<u32> {
        let places = self.places();
        if self.count == 0 {
            return None;
        }
        for _ in 0..LOOKS {
            let index = self.hand % places;
            self.hand = index + 1;
            if !self.at_mut(index).is_some_and(|node| core::mem::take(&mut node.used)) {
                return Some(index);
            }
        }
        Some(self.hand - 1)
    }
}

/// A list of nodes of one object.
#[derive(Copy, Clone, Debug)]
pub struct NodeList {
    head: NodeRef,
    tail: NodeRef,
    count: u32,
}

impl NodeList {
    /// None.
    pub(crate) const EMPTY: Self = Self {
        head: NodeRef::NONE,
        tail: NodeRef::NONE,
        count: 0,
    };

    /// How many there are.
    pub(crate) const fn len(&self) -> u32 {
        self.count
    }

    /// The first.
    pub(crate) fn first(&self) -> Option<NodeRef> {
        self.head.some()
    }
}

/// The places of nodes, for lists that go through many tables.
pub(crate) trait Nodes {
    fn node(&self, node: NodeRef) -> Option<&Node>;
    fn node_mut(&mut self, node: NodeRef) -> Option<&mut Node>;

    /// The one after another in a list.
    fn after(&self, node: NodeRef) -> Option<NodeRef> {
        self.node(node)?.next.some()
    }

    /// Puts a node at the end of a list.
    fn append(&mut self, list: &mut NodeList, space: SpaceId, index: u32) {
        let new = NodeRef::new(space, index);
        if let Some(node) = self.node_mut(new) {
            node.previous = list.tail;
            node.next = NodeRef::NONE;
        }
        match list.tail.some().and_then(|tail| self.node_mut(tail)) {
            Some(tail) => tail.next = new,
            None => list.head = new,
        }
        list.tail = new;
        list.count += 1;
    }

    /// Takes out of a list what stands between two places in it.
    fn join(&mut self, list: &mut NodeList, previous: NodeRef, next: NodeRef) {
        match previous.some().and_then(|previous| self.node_mut(previous)) {
            Some(previous) => previous.next = next,
            None => list.head = next,
        }
        match next.some().and_then(|next| self.node_mut(next)) {
            Some(next) => next.previous = previous,
            None => list.tail = previous,
        }
        list.count -= 1;
    }
}

/// A node for an object that is found in this epoch of it.
pub(crate) const fn found(id: ObjectId, epoch: u64, cached: Cached) -> Node {
    Node {
        object: id.0,
        epoch,
        cached,
        used: true,
        ..Node::VACANT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::Rights;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_table_is_a_map(steps in prop::collection::vec((0_u32..400, any::<bool>()), 0..1500)) {
            let mut table = Table::default();
            let mut model = BTreeMap::new();
            for (number, (key, insert)) in steps.into_iter().enumerate() {
                let id = ObjectId(key);
                if insert && !model.contains_key(&key) {
                    if !table.has_room() {
                        table.grow().unwrap();
                    }
                    table.insert(&found(id, number as u64, Cached::created(Rights::R))).unwrap();
                    model.insert(key, number as u64);
                } else if !insert && let Some(place) = table.place(id) {
                    table.remove(place);
                    prop_assert!(model.remove(&key).is_some());
                }
                prop_assert_eq!(table.count(), model.len());
                prop_assert_eq!(table.find(id).map(|node| node.epoch), model.get(&key).copied());
            }
            for key in 0..400 {
                prop_assert_eq!(table.find(ObjectId(key)).map(|node| node.epoch), model.get(&key).copied());
            }
        }
    }

    proptest! {
        /// Nodes that are hidden are not found, keep their places until they are removed, and leave room for another of their object.
        #[test]
        fn hidden_nodes_stay_in_their_places(
            steps in prop::collection::vec((0_u32..150, 0..8), 0..400),
            frees_pages in any::<bool>(),
        ) {
            let mut table = Table::default();
            let (mut seen, mut hidden) = (BTreeMap::new(), Vec::new());
            for (key, act) in steps {
                let id = ObjectId(key);
                let place = table.place(id);
                prop_assert_eq!(place, seen.get(&key).copied());
                match (act, place) {
                    (0..4, None) => {
                        let full = seen.len() + hidden.len() == table.places() as usize;
                        prop_assert_eq!(table.has_room(), !full);
                        if full {
                            table.grow().unwrap();
                        }
                        let place = table.insert(&found(id, 0, Cached::created(Rights::R))).unwrap();
                        prop_assert!(!seen.values().chain(&hidden).any(|&other| other == place));
                        seen.insert(key, place);
                    }
                    (4, Some(place)) => {
                        table.remove(place);
                        seen.remove(&key);
                    }
                    (5, Some(place)) => {
                        table.hide(place);
                        seen.remove(&key);
                        hidden.push(place);
                    }
                    (6, _) => {
                        if let Some(place) = hidden.pop() {
                            table.remove(place);
                        }
                    }
                    _ => {}
                }
                prop_assert_eq!(table.count(), seen.len() + hidden.len());
                let next = |place: &u32| table.next(place + 1);
                prop_assert_eq!(core::iter::successors(table.next(0), next).count(), table.count());
                let stand = (0..table.places()).filter(|&place| table.at(place).is_some_and(|node| node.object != NONE));
                prop_assert_eq!(stand.count(), table.count());
            }
            table.hide_all();
            prop_assert!((0..150).all(|key| table.place(ObjectId(key)).is_none()));
            for place in seen.into_values().chain(hidden) {
                table.remove(place);
            }
            prop_assert_eq!((table.count(), table.next(0)), (0, None));
            let places = table.places();
            if frees_pages {
                while table.free_page() {}
            }
            prop_assert_eq!(table.let_go(), u64::from(places) / PAGE_NODES as u64);
            // The first page is there still, for the next domain that pays for it.
            prop_assert_eq!((table.paid(), table.places()), (0, places.min(PAGE_NODES as u32)));
            prop_assert!(!table.has_room() && table.may_grow());
            table.grow().unwrap();
            prop_assert_eq!((table.paid(), table.places(), table.has_room()), (1, PAGE_NODES as u32, true));
            for key in 0..PAGE_NODES as u32 {
                let place = table.insert(&found(ObjectId(key), 0, Cached::created(Rights::R)));
                prop_assert_eq!(table.place(ObjectId(key)), place);
            }
            prop_assert!(!table.has_room() && table.insert(&found(ObjectId(999), 0, Cached::created(Rights::R))).is_none());
        }
    }

    #[test]
    fn a_domain_has_so_many_nodes_and_no_more() {
        let mut table = Table::default();
        for key in 0..NODES_MAX as u32 {
            if !table.has_room() {
                assert!(table.may_grow());
                table.grow().unwrap();
            }
            let place = table.insert(&found(ObjectId(key), 0, Cached::created(Rights::R)));
            let node = NodeRef::new(SpaceId(9), place.unwrap());
            assert_eq!((node.space(), Some(node.index())), (SpaceId(9), place));
        }
        assert!(!table.may_grow() && !table.has_room());
        // Nobody has to look through many others for a node.
        let length = |chain: &u32| core::iter::successors(table.at(*chain), |node| table.at(node.chain)).count();
        let longest = table.chains.iter().map(length).max();
        assert!(longest <= Some(12), "{longest:?}");
    }

    #[test]
    fn the_hand_passes_what_was_used_since_it_was_there() {
        let mut table = Table::default();
        assert_eq!(table.victim(), None);
        table.grow().unwrap();
        for key in 0..PAGE_NODES as u32 {
            table
                .insert(&found(ObjectId(key), 0, Cached::created(Rights::R)))
                .unwrap();
        }
        // All are new: once around, then the first.
        assert_eq!(table.victim(), Some(0));
        assert_eq!(table.victim(), Some(1));
        table.at_mut(2).unwrap().used = true;
        assert_eq!(table.victim(), Some(3));
        for place in 4..PAGE_NODES as u32 {
            assert_eq!(table.victim(), Some(place));
        }
        for place in [0, 1, 2] {
            assert_eq!(table.victim(), Some(place));
        }
        // Of more nodes than it passes at once it takes one that was used.
        table.grow().unwrap();
        for key in 0..PAGE_NODES as u32 {
            table
                .insert(&found(ObjectId(99 + key), 0, Cached::created(Rights::R)))
                .unwrap();
        }
        (0..table.places()).for_each(|place| table.at_mut(place).unwrap().used = true);
        assert_eq!(table.victim(), Some(2 + LOOKS as u32));
        // The next one was passed by then.
        assert_eq!(table.victim(), Some(3));
    }

    struct Tables(Vec<Table>);

    impl Nodes for Tables {
        fn node(&self, node: NodeRef) -> Option<&Node> {
            self.0.get(node.space().0 as usize)?.at(node.index())
        }

        fn node_mut(&mut self, node: NodeRef) -> Option<&mut Node> {
            self.0.get_mut(node.space().0 as usize)?.at_mut(node.index())
        }
    }

    proptest! {
        /// Two lists through many tables, against two vectors.
        #[test]
        fn lists_go_through_many_tables(steps in prop::collection::vec((0_u32..6, 0_u32..12, 0..2_usize), 0..150)) {
            let mut tables = Tables((0..6).map(|_| Table::default()).collect());
            for table in &mut tables.0 {
                table.grow().unwrap();
                for key in 0..12 {
                    table.insert(&found(ObjectId(key), 0, Cached::created(Rights::R))).unwrap();
                }
            }
            let (mut lists, mut model) = ([NodeList::EMPTY; 2], [Vec::new(), Vec::new()]);
            for (space, index, which) in steps {
                let node = NodeRef::new(SpaceId(space), index);
                if let Some(at) = model.iter().position(|list| list.contains(&node)) {
                    let [previous, next] = tables.node(node).unwrap().neighbours();
                    tables.join(&mut lists[at], previous, next);
                    model[at].retain(|other| *other != node);
                } else {
                    tables.append(&mut lists[which], SpaceId(space), index);
                    model[which].push(node);
                }
                for (list, wanted) in lists.iter().zip(&model) {
                    let all: Vec<_> = core::iter::successors(list.first(), |&node| tables.after(node)).take(100).collect();
                    prop_assert_eq!(&all, wanted);
                    prop_assert_eq!((list.len() as usize, list.tail.some()), (wanted.len(), wanted.last().copied()));
                }
            }
        }
    }
}
