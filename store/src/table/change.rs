//! Rows that come, change and go. The leaf of each is in memory: whoever changes a row has looked for it before.

use super::{Body, Held, Node, NodeId, Row, Summary, Table};
use crate::containers::{push, push_reserved, reserve};
use crate::heap::{NoHeap, with_room};
use crate::map::MapRoot;
use crate::record::ObjectRecord;
use crate::superblock::Place;
use crate::table_format::{OVERFLOW_MAX, row_bytes};
use alloc::vec::Vec;

impl Table {
    /// Enters a record; an object that is there already keeps its map.
    ///
    /// # Errors
    /// [`NoHeap`]: nothing has changed.
    pub(crate) fn put(&mut self, record: ObjectRecord, held: Held) -> Result<(), NoHeap> {
        let row = self.prepare(record, held)?;
        self.enter(row);
        Ok(())
    }

    /// Makes a row of a record, and room for it.
    pub(crate) fn prepare(&mut self, record: ObjectRecord, held: Held) -> Result<Row, NoHeap> {
        let row = Row::new(record, held)?;
        self.expect(&row)?;
        Ok(row)
    }

    /// Enters a row that was prepared last.
    pub(crate) fn enter(&mut self, row: Row) {
        self.totals.add(&row.record);
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
        let most = self.sizes;
        let rows = loop {
            match &mut self.nodes[id as usize].body {
                Body::Leaf(rows) => break rows,
                Body::Inner(children) => {
                    depth += 1;
                    // Full nodes right above the leaf are parted with it.
                    full = if children.len() < most.inner { 0 } else { full + 1 };
                    reserve(children, 1)?;
                    let at = children.partition_point(|&(key, _)| key <= row.record.base);
                    id = children[at.saturating_sub(1)].1;
                }
                Body::Absent(_) => {
                    debug_assert!(false, "the leaf of a row that is put is in memory");
                    return Err(NoHeap);
                }
            }
        };
        reserve(rows, 1)?;
        if rows.iter().map(row_bytes).sum::<usize>() + row_bytes(row) <= most.leaf {
            return Ok(());
        }
        let more = rows.len() + 1;
        reserve(&mut self.spare_rows, more)?;
        let inner = full + usize::from(full == depth);
        while self.spare_children.len() < inner {
            push(&mut self.spare_children, with_room(most.inner + 1)?)?;
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
        // One row goes, of each level one node is joined, and as many may go at the top.
        let nodes = 2 * self.height() as usize + 1;
        self.released.reserve(nodes + OVERFLOW_MAX + overflow)?;
        self.vacant.reserve(nodes)?;
        Ok(())
    }

    fn add(&mut self, body: Body) -> NodeId {
        let node = Node {
            place: Place::default(),
            summary: Summary::default(),
            dirty: true,
            used: true,
            body,
        };
        self.dirty += 1;
        self.near.set(None);
        if let Some(id) = self.vacant.pop() {
            self.nodes[id as usize] = node;
            return id;
        }
        self.nodes.push_reserved(node);
        (self.nodes.len() - 1) as NodeId
    }

    /// Notes that a node changes: it stays in memory until it is written.
    pub(super) fn soil(&mut self, id: NodeId) {
        if self.nodes[id as usize].dirty {
            return;
        }
        self.idle -= usize::from(self.is_idle(id));
        self.nodes[id as usize].dirty = true;
        self.dirty += 1;
    }

    /// Gives the key and number of a new right neighbour if the node had to be split.
    fn put_in(&mut self, id: NodeId, mut new: Row) -> Option<(u64, NodeId)> {
        let base = new.record.base;
        self.soil(id);
        match &mut self.nodes[id as usize].body {
            Body::Leaf(rows) => {
                let at = rows.partition_point(|row| row.record.base < base);
                let old = rows.get_mut(at).filter(|row| row.record.base == base);
                let replaced = if let Some(old) = old {
                    new.map = old.map;
                    new.held = new.held.or(old.held);
                    self.overflow = self.overflow + new.overflow.len() as u64 - old.overflow.len() as u64;
                    Some(core::mem::replace(old, new))
                } else {
                    self.overflow += new.overflow.len() as u64;
                    self.rows += 1;
                    rows.insert(at, new);
                    None
                };
                if let Some(replaced) = replaced {
                    self.totals.take_off(&replaced.record);
                    self.released_by(&replaced);
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
            Body::Absent(_) => None,
        }
    }

    fn split_leaf(&mut self, id: NodeId) -> Option<(u64, NodeId)> {
        let most = self.sizes.leaf;
        let Body::Leaf(rows) = &mut self.nodes[id as usize].body else {
            return None;
        };
        let total: usize = rows.iter().map(row_bytes).sum();
        if total <= most || rows.len() < 2 {
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
        let most = self.sizes.inner;
        let Body::Inner(children) = &mut self.nodes[id as usize].body else {
            return None;
        };
        if children.len() <= most {
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
            self.soil(id);
            match &mut self.nodes[id as usize].body {
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
                Body::Absent(_) => return,
            }
        }
    }

    /// Removes an object; gives its map. There is [room](Table::expect_removal).
    pub(crate) fn remove(&mut self, base: u64) -> Option<MapRoot> {
        self.get(base)?;
        let row = self.remove_in(self.root, base)?;
        self.rows -= 1;
        self.overflow -= row.overflow.len() as u64;
        self.totals.take_off(&row.record);
        self.released_by(&row);
        self.lower_root();
        Some(row.map)
    }

    fn remove_in(&mut self, id: NodeId, base: u64) -> Option<Row> {
        self.soil(id);
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
            Body::Absent(_) => None,
        }
    }

    /// Bytes a node takes, and what fits; `None` of a leaf that is not in memory.
    pub(super) fn fill(&self, id: NodeId) -> Option<(usize, usize)> {
        match self.body(id) {
            Body::Leaf(rows) => Some((rows.iter().map(row_bytes).sum(), self.sizes.leaf)),
            Body::Inner(children) => Some((children.len(), self.sizes.inner)),
            Body::Absent(_) => None,
        }
    }

    /// Joins the child at `at` of an inner node with a neighbour if it has become small. A neighbour that is not in memory is left alone.
    pub(super) fn rebalance(&mut self, id: NodeId, at: usize) {
        let Body::Inner(children) = self.body(id) else { return };
        let Some((size, capacity)) = self.fill(children[at].1) else {
            return;
        };
        if size > capacity / 3 || children.len() < 2 {
            return;
        }
        if size == 0 {
            // Who has its keys then is in memory: somebody may have looked there for the place of a row that is still to come.
            let heir = children.get(at.checked_sub(1).unwrap_or(1));
            if heir.is_some_and(|&(_, heir)| self.fill(heir).is_some()) {
                self.drop_child(id, at);
            }
            return;
        }
        let pairs = [(at, at + 1), (at.wrapping_sub(1), at)];
        let fitting = pairs.into_iter().find(|&(left, right)| {
            let (Some(&(_, left)), Some(&(_, right))) = (children.get(left), children.get(right)) else {
                return false;
            };
            let sizes = self.fill(left).zip(self.fill(right));
            sizes.is_some_and(|((left, _), (right, _))| left + right <= capacity)
        });
        if let Some((left, right)) = fitting {
            self.join(id, left, right);
        }
    }

    /// Takes an empty child out of an inner node that has others: a neighbour has its keys from then on.
    fn drop_child(&mut self, id: NodeId, at: usize) {
        let Body::Inner(children) = &mut self.nodes[id as usize].body else {
            return;
        };
        let (key, gone) = children.remove(at);
        if at == 0
            && let Some(first) = children.first_mut()
        {
            first.0 = key;
        }
        self.drop_node(gone);
    }

    /// Rows or children of a node.
    fn entries(&self, id: NodeId) -> usize {
        match self.body(id) {
            Body::Leaf(rows) => rows.len(),
            Body::Inner(children) => children.len(),
            Body::Absent(_) => 0,
        }
    }

    /// Moves all of the right child into the left one, if there is heap for that.
    fn join(&mut self, id: NodeId, left: usize, right: usize) {
        let Body::Inner(children) = self.body(id) else { return };
        let (kept, gone) = (children[left].1, children[right].1);
        let more = self.entries(gone);
        let room = match &mut self.nodes[kept as usize].body {
            Body::Leaf(rows) => reserve(rows, more),
            Body::Inner(children) => reserve(children, more),
            Body::Absent(_) => return,
        };
        let Body::Inner(children) = &mut self.nodes[id as usize].body else {
            return;
        };
        if room.is_err() {
            return;
        }
        let (key, _) = children.remove(right);
        self.soil(kept);
        let body = self.drop_node(gone);
        match (&mut self.nodes[kept as usize].body, body) {
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
        self.near.set(None);
        self.soil(id);
        self.dirty -= 1;
        let node = &mut self.nodes[id as usize];
        node.dirty = false;
        // So it is no leaf that may go.
        let body = core::mem::replace(&mut node.body, Body::Inner(Vec::new()));
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
}
