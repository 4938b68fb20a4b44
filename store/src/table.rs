//! The object table: a B+-tree of records, keyed by base address.
//!
//! Inner nodes are in memory after the mount. A leaf is in memory when somebody needs its rows (`table/paging.rs`): a lookup that comes to one that is not says so
//! with a value, and never waits. Each node remembers where its last written form lies and whether it has changed since. A changed node has changed ancestors, so a
//! checkpoint finds what to write from the root, children first, and writes it to new blocks. The
//! tree is changed by its owner only between checkpoints (`objects.rs` keeps what comes
//! meanwhile), so no node under I/O is ever touched.

use crate::containers::{List, filled, push, push_reserved};
use crate::event::BadRows;
use crate::heap::{NoHeap, with_room};
use crate::map::MapRoot;
use crate::record::ObjectRecord;
use crate::sums::Totals;
use crate::superblock::Place;
use crate::table_format::{INNER_MAX, LEAF_BYTES, overflow_blocks};
use alloc::vec::Vec;
use core::cell::Cell;
pub use paging::Absent;
pub(crate) use paging::{Held, Kind, Stretch, Summary};

mod change;
mod paging;

/// Number of a node in the arena.
pub(crate) type NodeId = u32;

/// A record with what the store keeps beside it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) record: ObjectRecord,
    pub(crate) map: MapRoot,
    /// Overflow blocks of a large body; block zero where one is not yet written.
    pub(crate) overflow: Vec<Place>,
    /// Whether somebody uses the object, so that its leaf stays in memory.
    held: Held,
}

/// Bytes of the heap that a row takes beside the lists of its record: leaves of the table are half full, with room for twice what
/// they hold, and the lists of changed and of deleted objects have room for it.
pub const ROW_HEAP_BYTES: u64 = 3 * core::mem::size_of::<Row>() as u64 + 128;

impl Row {
    fn new(record: ObjectRecord, held: Held) -> Result<Self, NoHeap> {
        let overflow = filled(Place::default(), overflow_blocks(record.body_bytes()))?;
        let map = MapRoot::default();
        Ok(Self {
            record,
            map,
            overflow,
            held,
        })
    }

    /// A row that was read.
    pub(crate) fn read(record: ObjectRecord, map: MapRoot, overflow: Vec<Place>) -> Self {
        Self {
            record,
            map,
            overflow,
            held: Held::No,
        }
    }
}

/// The content of a node.
pub(crate) enum Body {
    /// Rows in the order of their bases.
    Leaf(Vec<Row>),
    /// Children, each with the smallest key it may hold.
    Inner(Vec<(u64, NodeId)>),
    /// A leaf that is not in memory; and why it could not be read, if that was tried and nobody was told yet.
    Absent(Option<BadRows>),
}

struct Node {
    place: Place,
    /// What its parent says of a leaf on the disk: as it was read, or written last.
    summary: Summary,
    dirty: bool,
    /// Whether it was needed since the search for leaves that may go came by.
    used: bool,
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

/// Bytes of rows in a leaf, and children of an inner node, at most. Fewer for tests, so that a small table is a high one.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Sizes {
    pub(crate) leaf: usize,
    pub(crate) inner: usize,
}

impl Sizes {
    pub(crate) const FULL: Self = Self {
        leaf: LEAF_BYTES,
        inner: INNER_MAX,
    };
}

/// The tree.
pub(crate) struct Table {
    nodes: List<Node>,
    vacant: List<NodeId>,
    root: NodeId,
    sizes: Sizes,
    rows: u64,
    /// Overflow blocks of all rows.
    overflow: u64,
    totals: Totals,
    /// Nodes that have changed.
    dirty: usize,
    /// Leaves in memory that may go, how many of them may stay, and where the search for one that goes is.
    idle: usize,
    idle_max: usize,
    hand: usize,
    /// The place in its leaf of the row that was found last: who changes pages of an object asks for its row many times for each.
    recent: Cell<usize>,
    /// The leaf that was looked for last, and the addresses that belong to it: who asks for a row asks for its neighbours, too. None when a node has come or gone since.
    near: Cell<Option<(NodeId, u64, u64)>>,
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
            summary: Summary::default(),
            dirty: false,
            used: false,
            body: Body::Leaf(Vec::new()),
        };
        let mut nodes = List::default();
        nodes.push(root)?;
        Ok(Self {
            nodes,
            vacant: List::default(),
            root: 0,
            sizes: Sizes::FULL,
            rows: 0,
            overflow: 0,
            totals: Totals::default(),
            dirty: 0,
            idle: 0,
            idle_max: usize::MAX,
            hand: 0,
            recent: Cell::new(0),
            near: Cell::new(None),
            released: List::default(),
            spare_rows: Vec::new(),
            spare_children: Vec::new(),
        })
    }

    /// Objects.
    pub(crate) fn len(&self) -> u64 {
        self.rows
    }

    /// What is known of all rows.
    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// Blocks that a complete rewrite would take.
    pub(crate) fn blocks(&self) -> u64 {
        (self.nodes.len() - self.vacant.len()) as u64 + self.overflow
    }

    /// Nodes that the next generation writes.
    pub(crate) fn dirty_len(&self) -> usize {
        self.dirty
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

    /// The content of a node by its number, which may be that of none.
    pub(crate) fn body_if_any(&self, id: NodeId) -> Option<&Body> {
        self.nodes.get(id as usize).map(|node| &node.body)
    }

    /// Whether the next generation writes a node.
    pub(crate) fn is_dirty(&self, id: NodeId) -> bool {
        self.nodes[id as usize].dirty
    }

    pub(crate) fn place(&self, id: NodeId) -> Place {
        self.nodes[id as usize].place
    }

    /// What a parent says of a leaf; nothing of an inner node.
    pub(crate) fn summary(&self, id: NodeId) -> Option<Summary> {
        let node = &self.nodes[id as usize];
        (!matches!(node.body, Body::Inner(_))).then_some(node.summary)
    }

    // ---- looking up

    /// The leaf that an address belongs to.
    fn leaf_of(&self, address: u64) -> NodeId {
        self.leaf_and_range(address).0
    }

    /// The leaf that an address belongs to, and what may stand in it.
    #[inline]
    pub(crate) fn leaf_and_range(&self, address: u64) -> (NodeId, (u64, u64)) {
        match self.near.get() {
            Some((leaf, from, end)) if from <= address && address < end => (leaf, (from, end)),
            _ => self.search_leaf(address),
        }
    }

    #[inline(never)]
    fn search_leaf(&self, address: u64) -> (NodeId, (u64, u64)) {
        let (mut id, mut range) = (self.root, (0, u64::MAX));
        while let Body::Inner(children) = self.body(id) {
            let at = children.partition_point(|&(key, _)| key <= address).saturating_sub(1);
            let Some(&(_, child)) = children.get(at) else { break };
            range = range_of_child(children, at, range);
            id = child;
        }
        self.near.set(Some((id, range.0, range.1)));
        (id, range)
    }

    /// The row of the object at `base`, if there is one and it is in memory: that of an object which somebody uses is.
    pub(crate) fn get(&self, base: u64) -> Option<&Row> {
        let Body::Leaf(rows) = self.body(self.leaf_of(base)) else {
            return None;
        };
        if let Some(row) = rows.get(self.recent.get()).filter(|row| row.record.base == base) {
            return Some(row);
        }
        let at = rows.binary_search_by_key(&base, |row| row.record.base).ok()?;
        self.recent.set(at);
        rows.get(at)
    }

    /// The row with the largest base that is at most `address`.
    ///
    /// # Errors
    /// [`Absent`]: it may be in a leaf that is not in memory.
    pub(crate) fn floor(&self, address: u64) -> Result<Option<&Row>, Absent> {
        let (leaf, (from, end)) = self.leaf_and_range(address);
        match self.body(leaf) {
            Body::Leaf(rows) => {
                let after = rows.partition_point(|row| row.record.base <= address);
                match rows[..after].last() {
                    None => self.floor_in(self.root, address, (0, u64::MAX)),
                    row => Ok(row),
                }
            }
            Body::Inner(_) => Ok(None),
            Body::Absent(_) => Err(Absent::new(leaf, from, end)),
        }
    }

    fn floor_in(&self, id: NodeId, address: u64, (from, end): (u64, u64)) -> Result<Option<&Row>, Absent> {
        match self.body(id) {
            Body::Leaf(rows) => {
                let after = rows.partition_point(|row| row.record.base <= address);
                Ok(rows[..after].last())
            }
            Body::Inner(children) => {
                let after = children.partition_point(|&(key, _)| key <= address).max(1);
                for at in (0..after.min(children.len())).rev() {
                    let within = range_of_child(children, at, (from, end));
                    if let Some(row) = self.floor_in(children[at].1, address, within)? {
                        return Ok(Some(row));
                    }
                }
                Ok(None)
            }
            Body::Absent(_) => Err(Absent::new(id, from, end)),
        }
    }

    /// The row with the smallest base that is at least `address`.
    ///
    /// # Errors
    /// [`Absent`]: it may be in a leaf that is not in memory.
    pub(crate) fn ceiling(&self, address: u64) -> Result<Option<&Row>, Absent> {
        let (leaf, (from, end)) = self.leaf_and_range(address);
        match self.body(leaf) {
            Body::Leaf(rows) => match rows.get(rows.partition_point(|row| row.record.base < address)) {
                None => self.ceiling_in(self.root, address, (0, u64::MAX)),
                row => Ok(row),
            },
            Body::Inner(_) => Ok(None),
            Body::Absent(_) => Err(Absent::new(leaf, from, end)),
        }
    }

    fn ceiling_in(&self, id: NodeId, address: u64, (from, end): (u64, u64)) -> Result<Option<&Row>, Absent> {
        match self.body(id) {
            Body::Leaf(rows) => Ok(rows.get(rows.partition_point(|row| row.record.base < address))),
            Body::Inner(children) => {
                let first = children.partition_point(|&(key, _)| key <= address).saturating_sub(1);
                for at in first..children.len() {
                    let within = range_of_child(children, at, (from, end));
                    if let Some(row) = self.ceiling_in(children[at].1, address, within)? {
                        return Ok(Some(row));
                    }
                }
                Ok(None)
            }
            Body::Absent(_) => Err(Absent::new(id, from, end)),
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
            // It is as it is on the disk.
            Body::Absent(_) => {
                way.pop();
                return Ok(());
            }
        }
        parts.push(Part::Node(id))?;
        way.pop();
        Ok(())
    }

    /// Notes where a part now lies; gives where it lay before.
    pub(crate) fn set_place(&mut self, part: Part, new: Place) -> Place {
        match part {
            Part::Node(id) => {
                let node = &mut self.nodes[id as usize];
                // A parent is written behind its children, and says this of them.
                if let Body::Leaf(rows) = &node.body {
                    node.summary = Summary::of(rows);
                }
                core::mem::replace(&mut node.place, new)
            }
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
        if let Part::Node(id) = part
            && core::mem::take(&mut self.nodes[id as usize].dirty)
        {
            self.dirty -= 1;
            self.idle += usize::from(self.is_idle(id));
        }
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

/// The keys that a child may have, of a node that may have those of a range: its first child has the first of them, whatever its key says.
fn range_of_child(children: &[(u64, NodeId)], at: usize, (from, end): (u64, u64)) -> (u64, u64) {
    let first = if at == 0 { from } else { children[at].0 };
    (first, children.get(at + 1).map_or(end, |&(key, _)| key))
}

#[cfg(test)]
mod tests;
