//! The object table: a B+-tree of records, keyed by base address.
//!
//! All nodes are in memory after the mount; lookups never wait. Each node remembers where its last
//! written form lies and whether it has changed since. A changed node has changed ancestors, so a
//! checkpoint finds what to write from the root, children first, and writes it to new blocks. The
//! tree is changed by its owner only between checkpoints (`objects.rs` keeps what comes
//! meanwhile), so no node under I/O is ever touched.

use crate::containers::{List, filled, push, push_reserved, reserve};
use crate::heap::{NoHeap, with_room};
use crate::map::MapRoot;
use crate::record::ObjectRecord;
use crate::superblock::Place;
use crate::table_format::{INNER_MAX, LEAF_BYTES, overflow_blocks, row_bytes};
use alloc::vec::Vec;

/// Number of a node in the arena.
pub(crate) type NodeId = u32;

/// A record with what the store keeps beside it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) record: ObjectRecord,
    pub(crate) map: MapRoot,
    /// Overflow blocks of a large body; block zero where one is not yet written.
    pub(crate) overflow: Vec<Place>,
}

/// Bytes of the heap that a row takes beside the lists of its record: leaves of the table are half full, with room for twice what
/// they hold, and the lists of changed and of deleted objects have room for it.
pub const ROW_HEAP_BYTES: u64 = 3 * core::mem::size_of::<Row>() as u64 + 128;

impl Row {
    fn new(record: ObjectRecord) -> Result<Self, NoHeap> {
        let overflow = filled(Place::default(), overflow_blocks(record.body_bytes()))?;
        let map = MapRoot::default();
        Ok(Self { record, map, overflow })
    }
}

/// The content of a node.
pub(crate) enum Body {
    /// Rows in the order of their bases.
    Leaf(Vec<Row>),
    /// Children, each with the smallest key it may hold.
    Inner(Vec<(u64, NodeId)>),
}

struct Node {
    place: Place,
    dirty: bool,
    body: Body,
}

/// Something that a checkpoint writes as one block.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Part {
    /// A node.
    Node(NodeId),
    /// An overflow block: leaf, row in it, block of the row's body.
    Overflow(NodeId, usize, usize),
}

/// The tree.
pub(crate) struct Table {
    nodes: List<Node>,
    vacant: List<NodeId>,
    root: NodeId,
    rows: u64,
    /// Overflow blocks of all rows.
    overflow: u64,
    /// Blocks of nodes and bodies that are gone; the next checkpoint sets them free.
    released: List<u64>,
    /// Room for the nodes that a put may make, so that it cannot fail half-way.
    spare_rows: Vec<Row>,
    spare_children: Vec<Vec<(u64, NodeId)>>,
}

impl Table {
    /// An empty tree that need not be written.
    pub(crate) fn new() -> Result<Self, NoHeap> {
        let root = Node {
            place: Place::default(),
            dirty: false,
            body: Body::Leaf(Vec::new()),
        };
        let mut nodes = List::default();
        nodes.push(root)?;
        Ok(Self {
            nodes,
            vacant: List::default(),
            root: 0,
            rows: 0,
            overflow: 0,
            released: List::default(),
            spare_rows: Vec::new(),
            spare_children: Vec::new(),
        })
    }

    /// Objects.
    pub(crate) fn len(&self) -> u64 {
        self.rows
    }

    /// Blocks that a complete rewrite would take.
    pub(crate) fn blocks(&self) -> u64 {
        (self.nodes.len() - self.vacant.len()) as u64 + self.overflow
    }

    /// The place of the root.
    pub(crate) fn root_place(&self) -> Place {
        self.nodes[self.root as usize].place
    }

    /// Levels of the tree.
    pub(crate) fn height(&self) -> u64 {
        let mut height = 1;
        let mut id = self.root;
        while let Body::Inner(children) = &self.nodes[id as usize].body {
            height += 1;
            match children.first() {
                Some(&(_, child)) => id = child,
                None => break,
            }
        }
        height
    }

    pub(crate) fn body(&self, id: NodeId) -> &Body {
        &self.nodes[id as usize].body
    }

    pub(crate) fn place(&self, id: NodeId) -> Place {
        self.nodes[id as usize].place
    }

    // ---- looking up

    /// The row of the object at `base`.
    pub(crate) fn get(&self, base: u64) -> Option<&Row> {
        self.floor(base).filter(|row| row.record.base == base)
    }

    /// The row with the largest base that is at most `address`.
    pub(crate) fn floor(&self, address: u64) -> Option<&Row> {
        self.floor_in(self.root, address)
    }

    fn floor_in(&self, id: NodeId, address: u64) -> Option<&Row> {
        match self.body(id) {
            Body::Leaf(rows) => {
                let after = rows.partition_point(|row| row.record.base <= address);
                rows[..after].last()
            }
            Body::Inner(children) => {
                let after = children.partition_point(|&(key, _)| key <= address);
                children[..after]
                    .iter()
                    .rev()
                    .find_map(|&(_, child)| self.floor_in(child, address))
            }
        }
    }

    /// The row with the smallest base that is at least `address`.
    pub(crate) fn ceiling(&self, address: u64) -> Option<&Row> {
        self.ceiling_in(self.root, address)
    }

    fn ceiling_in(&self, id: NodeId, address: u64) -> Option<&Row> {
        match self.body(id) {
            Body::Leaf(rows) => rows.get(rows.partition_point(|row| row.record.base < address)),
            Body::Inner(children) => {
                let first = children.partition_point(|&(key, _)| key <= address).saturating_sub(1);
                children[first..]
                    .iter()
                    .find_map(|&(_, child)| self.ceiling_in(child, address))
            }
        }
    }

    // ---- changing

    /// Enters a record; an object that is there already keeps its map.
    ///
    /// # Errors
    /// [`NoHeap`]: nothing has changed.
    pub(crate) fn put(&mut self, record: ObjectRecord) -> Result<(), NoHeap> {
        let row = self.prepare(record)?;
        self.enter(row);
        Ok(())
    }

    /// Makes a row of a record, and room for it.
    pub(crate) fn prepare(&mut self, record: ObjectRecord) -> Result<Row, NoHeap> {
        let row = Row::new(record)?;
        self.expect(&row)?;
        Ok(row)
    }

    /// Enters a row that was prepared last.
    pub(crate) fn enter(&mut self, row: Row) {
        if let Some((key, right)) = self.put_in(self.root, row) {
            let left = self.root;
            let mut children = self.spare_children.pop().unwrap_or_default();
            push_reserved(&mut children, (0, left));
            push_reserved(&mut children, (key, right));
            self.root = self.add(Body::Inner(children));
        }
    }

    /// Makes room for a row, and for the nodes that it may take.
    fn expect(&mut self, row: &Row) -> Result<(), NoHeap> {
        self.expect_removal(row.overflow.len())?;
        let (mut id, mut depth, mut full) = (self.root, 0, 0);
        let rows = loop {
            match &mut self.nodes[id as usize].body {
                Body::Leaf(rows) => break rows,
                Body::Inner(children) => {
                    depth += 1;
                    // Full nodes right above the leaf are parted with it.
                    full = if children.len() < INNER_MAX { 0 } else { full + 1 };
                    reserve(children, 1)?;
                    let at = children.partition_point(|&(key, _)| key <= row.record.base);
                    id = children[at.saturating_sub(1)].1;
                }
            }
        };
        reserve(rows, 1)?;
        if rows.iter().map(row_bytes).sum::<usize>() + row_bytes(row) <= LEAF_BYTES {
            return Ok(());
        }
        let more = rows.len() + 1;
        reserve(&mut self.spare_rows, more)?;
        let inner = full + usize::from(full == depth);
        while self.spare_children.len() < inner {
            push(&mut self.spare_children, with_room(INNER_MAX + 1)?)?;
        }
        self.nodes.reserve(inner + 1)?;
        let places = self.nodes.len() + inner + 1 - self.vacant.len();
        self.vacant.reserve(places)?;
        Ok(())
    }

    /// Makes room for the blocks that a removal, or a put with so many overflow blocks, releases.
    ///
    /// # Errors
    /// [`NoHeap`].
    pub(crate) fn expect_removal(&mut self, overflow: usize) -> Result<(), NoHeap> {
        let blocks = self.blocks() as usize + overflow;
        self.released.reserve(blocks)?;
        let vacant = self.nodes.len() - self.vacant.len();
        self.vacant.reserve(vacant)?;
        Ok(())
    }

    fn add(&mut self, body: Body) -> NodeId {
        let node = Node {
            place: Place::default(),
            dirty: true,
            body,
        };
        if let Some(id) = self.vacant.pop() {
            self.nodes[id as usize] = node;
            return id;
        }
        self.nodes.push_reserved(node);
        (self.nodes.len() - 1) as NodeId
    }

    /// Gives the key and number of a new right neighbour if the node had to be split.
    fn put_in(&mut self, id: NodeId, mut new: Row) -> Option<(u64, NodeId)> {
        let base = new.record.base;
        self.nodes[id as usize].dirty = true;
        match &mut self.nodes[id as usize].body {
            Body::Leaf(rows) => {
                let at = rows.partition_point(|row| row.record.base < base);
                let old = rows.get_mut(at).filter(|row| row.record.base == base);
                if let Some(old) = old {
                    new.map = old.map;
                    self.overflow = self.overflow + new.overflow.len() as u64 - old.overflow.len() as u64;
                    let replaced = core::mem::replace(old, new);
                    self.released_by(&replaced);
                } else {
                    self.overflow += new.overflow.len() as u64;
                    self.rows += 1;
                    rows.insert(at, new);
                }
                self.split_leaf(id)
            }
            Body::Inner(children) => {
                let at = children.partition_point(|&(key, _)| key <= base).saturating_sub(1);
                let child = children[at].1;
                let (key, right) = self.put_in(child, new)?;
                if let Body::Inner(children) = &mut self.nodes[id as usize].body {
                    children.insert(at + 1, (key, right));
                }
                self.split_inner(id)
            }
        }
    }

    fn split_leaf(&mut self, id: NodeId) -> Option<(u64, NodeId)> {
        let Body::Leaf(rows) = &mut self.nodes[id as usize].body else {
            return None;
        };
        let total: usize = rows.iter().map(row_bytes).sum();
        if total <= LEAF_BYTES {
            return None;
        }
        let mut left = 0;
        let at = rows.iter().position(|row| {
            left += row_bytes(row);
            left > total / 2
        })?;
        // Room for it was made before.
        let mut right = core::mem::take(&mut self.spare_rows);
        right.extend(rows.drain(at.max(1)..));
        let key = right.first()?.record.base;
        Some((key, self.add(Body::Leaf(right))))
    }

    fn split_inner(&mut self, id: NodeId) -> Option<(u64, NodeId)> {
        let Body::Inner(children) = &mut self.nodes[id as usize].body else {
            return None;
        };
        if children.len() <= INNER_MAX {
            return None;
        }
        let mut right = self.spare_children.pop().unwrap_or_default();
        right.extend(children.drain(children.len() / 2..));
        let key = right.first()?.0;
        Some((key, self.add(Body::Inner(right))))
    }

    /// Sets the root of an object's map.
    pub(crate) fn set_map(&mut self, base: u64, map: MapRoot) {
        if self.get(base).is_none_or(|row| row.map == map) {
            return;
        }
        let mut id = self.root;
        loop {
            let node = &mut self.nodes[id as usize];
            node.dirty = true;
            match &mut node.body {
                Body::Leaf(rows) => {
                    if let Some(row) = rows.iter_mut().find(|row| row.record.base == base) {
                        row.map = map;
                    }
                    return;
                }
                Body::Inner(children) => {
                    let at = children.partition_point(|&(key, _)| key <= base).saturating_sub(1);
                    id = children[at].1;
                }
            }
        }
    }

    /// Removes an object; gives its map.
    pub(crate) fn remove(&mut self, base: u64) -> Option<MapRoot> {
        self.get(base)?;
        let row = self.remove_in(self.root, base)?;
        self.rows -= 1;
        self.overflow -= row.overflow.len() as u64;
        self.released_by(&row);
        self.lower_root();
        Some(row.map)
    }

    fn remove_in(&mut self, id: NodeId, base: u64) -> Option<Row> {
        self.nodes[id as usize].dirty = true;
        match &mut self.nodes[id as usize].body {
            Body::Leaf(rows) => {
                let at = rows.iter().position(|row| row.record.base == base)?;
                Some(rows.remove(at))
            }
            Body::Inner(children) => {
                let at = children.partition_point(|&(key, _)| key <= base).saturating_sub(1);
                let child = children[at].1;
                let row = self.remove_in(child, base);
                self.rebalance(id, at);
                row
            }
        }
    }

    /// Bytes a node takes, as a part of what fits.
    fn fill(&self, id: NodeId) -> (usize, usize) {
        match self.body(id) {
            Body::Leaf(rows) => (rows.iter().map(row_bytes).sum(), LEAF_BYTES),
            Body::Inner(children) => (children.len(), INNER_MAX),
        }
    }

    /// Joins the child at `at` of an inner node with a neighbour if it has become small.
    fn rebalance(&mut self, id: NodeId, at: usize) {
        let Body::Inner(children) = self.body(id) else { return };
        let (size, capacity) = self.fill(children[at].1);
        if size > capacity / 3 {
            return;
        }
        let pairs = [(at, at + 1), (at.wrapping_sub(1), at)];
        let fitting = pairs.into_iter().find(|&(left, right)| {
            let (Some(&(_, left)), Some(&(_, right))) = (children.get(left), children.get(right)) else {
                return false;
            };
            self.fill(left).0 + self.fill(right).0 <= capacity
        });
        if let Some((left, right)) = fitting {
            self.join(id, left, right);
        }
    }

    /// Rows or children of a node.
    fn entries(&self, id: NodeId) -> usize {
        match self.body(id) {
            Body::Leaf(rows) => rows.len(),
            Body::Inner(children) => children.len(),
        }
    }

    /// Moves all of the right child into the left one, if there is heap for that. Where one is empty, none is needed.
    fn join(&mut self, id: NodeId, left: usize, right: usize) {
        let Body::Inner(children) = self.body(id) else { return };
        let (kept, gone) = (children[left].1, children[right].1);
        if self.entries(kept) == 0 {
            let body = core::mem::replace(&mut self.nodes[gone as usize].body, Body::Leaf(Vec::new()));
            self.nodes[kept as usize].body = body;
        }
        let more = self.entries(gone);
        let room = match &mut self.nodes[kept as usize].body {
            Body::Leaf(rows) => reserve(rows, more),
            Body::Inner(children) => reserve(children, more),
        };
        let Body::Inner(children) = &mut self.nodes[id as usize].body else {
            return;
        };
        if room.is_err() {
            return;
        }
        let (key, _) = children.remove(right);
        let body = self.drop_node(gone);
        let kept = &mut self.nodes[kept as usize];
        kept.dirty = true;
        match (&mut kept.body, body) {
            (Body::Leaf(rows), Body::Leaf(more)) => rows.extend(more),
            (Body::Inner(children), Body::Inner(mut more)) => {
                // The first key of the right one was only a lower bound within that node.
                if let Some(first) = more.first_mut() {
                    first.0 = key;
                }
                children.extend(more);
            }
            _ => {}
        }
    }

    /// Notes the overflow blocks of a row that is gone; [room](Table::expect_removal) was made.
    fn released_by(&mut self, row: &Row) {
        let blocks = row.overflow.iter().map(|place| place.block).filter(|&block| block != 0);
        blocks.for_each(|block| self.released.push_reserved(block));
    }

    fn drop_node(&mut self, id: NodeId) -> Body {
        let node = &mut self.nodes[id as usize];
        let body = core::mem::replace(&mut node.body, Body::Leaf(Vec::new()));
        node.dirty = false;
        let place = core::mem::take(&mut node.place);
        if place.block != 0 {
            self.released.push_reserved(place.block);
        }
        self.vacant.push_reserved(id);
        body
    }

    fn lower_root(&mut self) {
        while let Body::Inner(children) = self.body(self.root)
            && let [(_, only)] = children[..]
        {
            self.drop_node(self.root);
            self.root = only;
        }
    }

    // ---- writing

    /// A block of a node or body that is gone.
    pub(crate) fn last_released(&self) -> Option<u64> {
        self.released.last().copied()
    }

    /// That one is set free.
    pub(crate) fn forget_released(&mut self) {
        self.released.pop();
    }

    /// Whether a block belonged to a part that is gone and is not yet set free.
    pub(crate) fn is_released(&self, block: u64) -> bool {
        self.released.iter().any(|&released| released == block)
    }

    /// Begins to list all that must be written, children before parents: the way from the root to the place where the listing is.
    pub(crate) fn begin_listing(&self) -> Result<Vec<(NodeId, usize)>, NoHeap> {
        let mut way = with_room(self.height() as usize + 1)?;
        if self.nodes[self.root as usize].dirty {
            push_reserved(&mut way, (self.root, 0));
        }
        Ok(way)
    }

    /// Lists some more parts: nothing is left when the way is empty.
    ///
    /// # Errors
    /// [`NoHeap`]: nothing was listed.
    pub(crate) fn list_dirty(&self, way: &mut Vec<(NodeId, usize)>, parts: &mut List<Part>) -> Result<(), NoHeap> {
        let Some(top) = way.last_mut() else { return Ok(()) };
        let (id, at) = *top;
        match &self.nodes[id as usize].body {
            Body::Leaf(rows) => {
                if let Some(row) = rows.get(at) {
                    parts.reserve(row.overflow.len())?;
                    top.1 += 1;
                    let unwritten = row.overflow.iter().enumerate().filter(|(_, place)| place.block == 0);
                    unwritten.for_each(|(index, _)| parts.push_reserved(Part::Overflow(id, at, index)));
                    return Ok(());
                }
            }
            Body::Inner(children) => {
                if let Some(&(_, child)) = children.get(at) {
                    top.1 += 1;
                    if self.nodes[child as usize].dirty {
                        push(way, (child, 0))?;
                    }
                    return Ok(());
                }
            }
        }
        parts.push(Part::Node(id))?;
        way.pop();
        Ok(())
    }

    /// Notes where a part now lies; gives where it lay before.
    pub(crate) fn set_place(&mut self, part: Part, new: Place) -> Place {
        match part {
            Part::Node(id) => core::mem::replace(&mut self.nodes[id as usize].place, new),
            Part::Overflow(id, at, index) => {
                let Body::Leaf(rows) = &mut self.nodes[id as usize].body else {
                    return Place::default();
                };
                let place = rows.get_mut(at).and_then(|row| row.overflow.get_mut(index));
                place.map_or(Place::default(), |place| core::mem::replace(place, new))
            }
        }
    }

    /// A part is written.
    pub(crate) fn clear_dirty(&mut self, part: Part) {
        if let Part::Node(id) = part {
            self.nodes[id as usize].dirty = false;
        }
    }

    // ---- reading

    /// A clean node that is being loaded; the first one made is the root.
    pub(crate) fn add_loaded(&mut self, place: Place, body: Body) -> Result<NodeId, NoHeap> {
        self.nodes.reserve(1)?;
        if let Body::Leaf(rows) = &body {
            self.rows += rows.len() as u64;
            self.overflow += rows.iter().map(|row| row.overflow.len() as u64).sum::<u64>();
        }
        let node = Node {
            place,
            dirty: false,
            body,
        };
        self.nodes.push_reserved(node);
        Ok((self.nodes.len() - 1) as NodeId)
    }

    /// Makes a loaded node the root.
    pub(crate) fn set_root(&mut self, root: NodeId) -> Result<(), NoHeap> {
        if root != 0 {
            self.vacant.push(0)?;
        }
        self.root = root;
        Ok(())
    }

    /// Whether the bases ascend, no objects overlap and every row can be found.
    pub(crate) fn is_sound(&self) -> bool {
        let mut rows = 0;
        let mut end = 0;
        let mut next = self.ceiling(0);
        while let Some(row) = next {
            if row.record.base < end || self.get(row.record.base).is_none() {
                return false;
            }
            end = row.record.end();
            rows += 1;
            next = self.ceiling(row.record.base + 1);
        }
        rows == self.rows
    }

    /// All nodes in use.
    pub(crate) fn node_ids(&self) -> Result<Vec<NodeId>, NoHeap> {
        let mut ids = with_room(self.nodes.len())?;
        push_reserved(&mut ids, self.root);
        let mut at = 0;
        while let Some(&id) = ids.get(at) {
            if let Body::Inner(children) = self.body(id) {
                ids.extend(children.iter().map(|&(_, child)| child));
            }
            at += 1;
        }
        Ok(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    fn record(slot: u64, capabilities: usize) -> ObjectRecord {
        ObjectRecord {
            base: slot << 21,
            pages: 1,
            capabilities: alloc::vec![(1, 15); capabilities],
            ..ObjectRecord::default()
        }
    }

    #[test]
    fn rows_that_overlap_are_not_sound() {
        for (pages, sound) in [(512, true), (513, false)] {
            let mut table = Table::new().unwrap();
            table.put(record(1, 0)).unwrap();
            table.put(ObjectRecord { pages, ..record(0, 0) }).unwrap();
            assert_eq!(table.is_sound(), sound);
        }
    }

    /// The empty root that a table is made with counts no more when one is loaded.
    #[test]
    fn a_table_that_was_loaded_has_the_blocks_that_were_read() {
        let mut table = Table::new().unwrap();
        let mut children = Vec::new();
        for slot in 1..4 {
            let row = Row::new(record(slot, if slot == 2 { 128 } else { 0 })).unwrap();
            children.push((
                slot << 21,
                table
                    .add_loaded(Place::default(), Body::Leaf(alloc::vec![row]))
                    .unwrap(),
            ));
        }
        let root = table.add_loaded(Place::default(), Body::Inner(children)).unwrap();
        table.set_root(root).unwrap();
        let overflow = table.get(2 << 21).unwrap().overflow.len() as u64;
        assert!(overflow > 0 && table.is_sound());
        assert_eq!((table.len(), table.height(), table.blocks()), (3, 2, 4 + overflow));
    }

    #[test]
    fn inner_nodes_part_when_they_are_full() {
        let mut table = Table::new().unwrap();
        (0..10_000).for_each(|slot| table.put(record(slot, 0)).unwrap());
        assert_eq!((table.len(), table.height()), (10_000, 3));
        assert!(table.is_sound());
        for id in table.node_ids().unwrap() {
            if let Body::Inner(children) = table.body(id) {
                assert!((1..=INNER_MAX).contains(&children.len()));
            }
        }
    }

    /// A node counts as small up to a third.
    #[test]
    fn two_nodes_that_are_a_third_full_become_one() {
        for (count, nodes) in [(INNER_MAX / 3, 1), (INNER_MAX / 3 + 1, 2)] {
            let mut table = Table::new().unwrap();
            let leaf = table.root;
            let mut children = Vec::new();
            for half in 0..2 {
                let keys = (half * count..(half + 1) * count)
                    .map(|key| (key as u64, leaf))
                    .collect();
                children.push((
                    (half * count) as u64,
                    table.add_loaded(Place::default(), Body::Inner(keys)).unwrap(),
                ));
            }
            let root = table.add_loaded(Place::default(), Body::Inner(children)).unwrap();
            table.expect_removal(0).unwrap();
            table.rebalance(root, 0);
            let Body::Inner(children) = table.body(root) else {
                panic!("an inner node")
            };
            assert_eq!(children.len(), nodes, "{count}");
            assert_eq!(table.fill(children[0].1).0, count * 2 / nodes);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_behaves_like_a_sorted_map(steps in prop::collection::vec((0_u64..400, 0_usize..128, any::<bool>()), 0..1200)) {
            let mut table = Table::new().unwrap();
            let mut model = BTreeMap::new();
            for (slot, capabilities, put) in steps {
                if put {
                    table.put(record(slot, capabilities)).unwrap();
                    model.insert(slot << 21, capabilities);
                } else {
                    table.expect_removal(0).unwrap();
                    prop_assert_eq!(table.remove(slot << 21).is_some(), model.remove(&(slot << 21)).is_some());
                }
            }
            prop_assert!(table.is_sound());
            prop_assert_eq!(table.len(), model.len() as u64);
            for slot in 0..400 {
                let address = (slot << 21) + 5;
                let floor = model.range(..=address).next_back().map(|(&base, _)| base);
                let ceiling = model.range(address..).next().map(|(&base, _)| base);
                prop_assert_eq!(table.floor(address).map(|row| row.record.base), floor);
                prop_assert_eq!(table.ceiling(address).map(|row| row.record.base), ceiling);
            }
            for (base, capabilities) in model {
                prop_assert_eq!(table.get(base).map(|row| row.record.capabilities.len()), Some(capabilities));
                table.expect_removal(0).unwrap();
                prop_assert!(table.remove(base).is_some());
            }
            prop_assert_eq!(table.blocks(), 1);
        }
    }
}
