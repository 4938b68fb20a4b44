//! Leaves come into memory when their rows are needed, and go again.
//!
//! A leaf stays in memory while it has changed, and while somebody [holds](Held) an object in it. Of the others a number stays that has a bound: where there are more, one goes that nobody
//! has needed for a while. What is known of a leaf without its rows stands in its parent ([`Summary`]).

use super::{Body, Node, NodeId, Row, Sizes, Table};
use crate::bytes::Unread;
use crate::containers::List;
use crate::event::BadRows;
use crate::heap::NoHeap;
use crate::record::ObjectRecord;
use crate::sums::Totals;
use crate::superblock::Place;
use alloc::vec::Vec;

/// Nodes that one search for a leaf which may go looks at, each four rows of a leaf counted as one.
const SEARCH: usize = 256;

/// A leaf that a lookup needs and that is not in memory. To be given to [`Store::read_rows`](crate::Store::read_rows).
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Absent {
    pub(crate) leaf: NodeId,
    from: u64,
    end: u64,
}

impl Absent {
    pub(crate) fn new(leaf: NodeId, from: u64, end: u64) -> Self {
        Self { leaf, from, end }
    }

    /// The first address at which an object of the leaf may begin.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// One past the last one.
    pub fn end(&self) -> u64 {
        self.end
    }
}

/// Whether somebody uses an object, so that its leaf stays in memory.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Held {
    No,
    Yes,
}

impl Held {
    pub(super) fn or(self, other: Self) -> Self {
        if self == Self::Yes { self } else { other }
    }
}

/// What the parent of a leaf says of it.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) rows: u8,
    /// Overflow blocks of its rows.
    pub(crate) overflow: u8,
    /// Whether a start must see a row: it has procedures, or goes with the next start.
    pub(crate) is_for_start: bool,
}

/// The parts of a summary on the disk: whether there is one, whether there are rows for a start, and the lowest bit of the number of rows; overflow blocks stand in the low byte.
const IS_TOLD: u16 = 1 << 15;
const IS_FOR_START: u16 = 1 << 14;
const ROWS_SHIFT: u32 = 8;
const ROWS_MASK: u16 = 63;

impl Summary {
    /// That of these rows, which fit into a leaf: so there are at most 46 of them, and 191 overflow blocks.
    pub(crate) fn of(rows: &[Row]) -> Self {
        Self {
            rows: rows.len() as u8,
            overflow: rows.iter().map(|row| row.overflow.len()).sum::<usize>() as u8,
            is_for_start: rows.iter().any(|row| row.record.is_for_start()),
        }
    }

    pub(crate) fn to_bits(self) -> u16 {
        let for_start = if self.is_for_start { IS_FOR_START } else { 0 };
        IS_TOLD | for_start | u16::from(self.rows) << ROWS_SHIFT | u16::from(self.overflow)
    }

    /// `None`: nothing is told.
    pub(crate) fn from_bits(bits: u16) -> Option<Self> {
        (bits & IS_TOLD != 0).then_some(Self {
            rows: (bits >> ROWS_SHIFT & ROWS_MASK) as u8,
            overflow: bits as u8,
            is_for_start: bits & IS_FOR_START != 0,
        })
    }
}

/// Leaves of a kind that lie side by side, and where objects in them may begin.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Stretch {
    pub(crate) leaves: Kind,
    pub(crate) from: u64,
    pub(crate) end: u64,
}

/// The kinds of leaves for those who want to read some of them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    InMemory,
    /// One that is to be read.
    Wanted(NodeId),
    Unread,
}

impl Table {
    /// With nodes that have less room, for tests.
    pub(crate) fn with_sizes(mut self, sizes: Sizes) -> Self {
        self.sizes = sizes;
        self
    }

    /// Bounds the leaves that stay in memory though nobody needs them.
    pub(crate) fn keep(&mut self, leaves: usize) {
        self.idle_max = leaves;
    }

    // ---- loading the nodes

    /// Notes a row of which the superblock does not tell.
    pub(crate) fn add_up(&mut self, record: &ObjectRecord) {
        self.totals.add(record);
    }

    /// Sets what is known of all rows to what a superblock tells.
    pub(crate) fn set_totals(&mut self, totals: Totals) {
        self.totals = totals;
    }

    /// A clean node that is being loaded; the first one made is the root.
    pub(crate) fn add_loaded(&mut self, place: Place, body: Body, summary: Summary) -> Result<NodeId, NoHeap> {
        self.nodes.reserve(1)?;
        self.near.set(None);
        self.nodes.push_reserved(Node {
            place,
            summary,
            dirty: false,
            used: false,
            body,
        });
        Ok((self.nodes.len() - 1) as NodeId)
    }

    /// Makes a loaded node the root.
    pub(crate) fn set_root(&mut self, root: NodeId) -> Result<(), NoHeap> {
        if root != 0 {
            self.vacant.push(0)?;
            self.nodes[0].body = Body::Inner(Vec::new());
        }
        self.root = root;
        self.near.set(None);
        Ok(())
    }

    /// Counts the rows and overflow blocks that the summaries of all leaves tell.
    pub(crate) fn count(&mut self) {
        let leaves = || self.nodes.iter().filter(|node| !matches!(node.body, Body::Inner(_)));
        let rows = leaves().map(|node| u64::from(node.summary.rows)).sum();
        let overflow = leaves().map(|node| u64::from(node.summary.overflow)).sum();
        (self.rows, self.overflow) = (rows, overflow);
    }

    /// Has the next generation write all inner nodes: their parents must say of them what is found out now.
    pub(crate) fn rewrite_inner(&mut self) -> Result<(), NoHeap> {
        for id in self.node_ids()? {
            if matches!(self.body(id), Body::Inner(_)) {
                self.soil(id);
            }
        }
        Ok(())
    }

    /// Whether a node on the way to an address lies there and is as it is on the disk.
    pub(crate) fn has_clean(&self, address: u64, place: Place) -> bool {
        let mut id = self.root;
        loop {
            let node = &self.nodes[id as usize];
            if node.place == place {
                return !node.dirty;
            }
            let Body::Inner(children) = &node.body else {
                return false;
            };
            let at = children.partition_point(|&(key, _)| key <= address).saturating_sub(1);
            match children.get(at) {
                Some(&(_, child)) => id = child,
                None => return false,
            }
        }
    }

    /// Whether the keys of all inner nodes ascend, each within what its parent says of it.
    pub(crate) fn is_ordered(&self) -> bool {
        self.is_ordered_below(self.root, (0, u64::MAX))
    }

    fn is_ordered_below(&self, id: NodeId, (from, end): (u64, u64)) -> bool {
        let Body::Inner(children) = self.body(id) else {
            return true;
        };
        let keys = children.iter().skip(1).map(|&(key, _)| key);
        let ascends = keys
            .clone()
            .zip(core::iter::once(from).chain(keys))
            .all(|(key, before)| before < key && key < end);
        ascends
            && (0..children.len()).all(|at| {
                let within = super::range_of_child(children, at, (from, end));
                self.is_ordered_below(children[at].1, within)
            })
    }

    /// Notes what is told of a leaf that was read.
    pub(crate) fn tell(&mut self, leaf: NodeId, summary: Summary) {
        self.nodes[leaf as usize].summary = summary;
    }

    // ---- leaves

    /// The leaf that an address belongs to, if it is not in memory.
    pub(crate) fn absent_at(&self, address: u64) -> Option<Absent> {
        let (leaf, (from, end)) = self.leaf_and_range(address);
        matches!(self.body(leaf), Body::Absent(_)).then_some(Absent { leaf, from, end })
    }

    /// Why a leaf that is not in memory could not be read, if nobody was told yet.
    pub(crate) fn bad(&self, leaf: NodeId) -> Option<BadRows> {
        match self.body(leaf) {
            Body::Absent(bad) => *bad,
            _ => None,
        }
    }

    /// The same, for somebody who tells.
    pub(crate) fn take_bad(&mut self, leaf: NodeId) -> Option<BadRows> {
        match &mut self.nodes[leaf as usize].body {
            Body::Absent(bad) => bad.take(),
            _ => None,
        }
    }

    /// All leaves in order, those of a kind together; `wants` says of one that is not in memory, by what is told of it and the end of its range, if it is to be read.
    pub(crate) fn stretches(&self, wants: impl Fn(Summary, u64) -> bool) -> Result<List<Stretch>, NoHeap> {
        let mut stretches = List::default();
        self.stretches_below(self.root, (0, u64::MAX), &wants, &mut stretches)?;
        Ok(stretches)
    }

    fn stretches_below(
        &self,
        id: NodeId,
        (from, end): (u64, u64),
        wants: &impl Fn(Summary, u64) -> bool,
        stretches: &mut List<Stretch>,
    ) -> Result<(), NoHeap> {
        let node = &self.nodes[id as usize];
        let leaves = match &node.body {
            Body::Inner(children) => {
                for (at, &(_, child)) in children.iter().enumerate() {
                    let within = super::range_of_child(children, at, (from, end));
                    self.stretches_below(child, within, wants, stretches)?;
                }
                return Ok(());
            }
            Body::Leaf(_) => Kind::InMemory,
            Body::Absent(_) if wants(node.summary, end) => Kind::Wanted(id),
            Body::Absent(_) => Kind::Unread,
        };
        let count = stretches.len();
        match count.checked_sub(1).and_then(|last| stretches.get_mut(last)) {
            Some(last) if last.leaves == leaves => last.end = end,
            _ => stretches.push(Stretch { leaves, from, end })?,
        }
        Ok(())
    }

    /// Gives up the rows of a leaf that is not in memory: it is empty from now on, and is written so.
    pub(crate) fn give_up(&mut self, leaf: NodeId, address: u64) {
        if self.leaf_of(address) != leaf || !matches!(self.body(leaf), Body::Absent(_)) {
            return;
        }
        self.keep_until_written(address);
        let node = &mut self.nodes[leaf as usize];
        let gone = core::mem::take(&mut node.summary);
        node.body = Body::Leaf(Vec::new());
        self.rows -= u64::from(gone.rows);
        self.overflow -= u64::from(gone.overflow);
    }

    /// Adds the sums over all rows up anew. All are in memory.
    pub(crate) fn add_up_all(&mut self) {
        let mut totals = Totals {
            births: self.totals.births,
            ..Totals::default()
        };
        for node in self.nodes.iter() {
            if let Body::Leaf(rows) = &node.body {
                for row in rows {
                    totals.add(&row.record);
                }
            }
        }
        self.totals = totals;
    }

    /// Notes that births below that number were given.
    pub(crate) fn raise_births(&mut self, births: u64) {
        self.totals.births = self.totals.births.max(births);
    }

    /// Notes why a leaf could not be read.
    pub(crate) fn set_bad(&mut self, leaf: NodeId, reason: BadRows) {
        if let Body::Absent(bad) = &mut self.nodes[leaf as usize].body {
            *bad = Some(reason);
        }
    }

    /// Takes the rows of the leaf in that an address belongs to, which is not in memory.
    ///
    /// # Errors
    /// [`Unread::Nonsense`]: they cannot be what was written there.
    pub(crate) fn install(&mut self, leaf: NodeId, address: u64, rows: Vec<Row>) -> Result<(), Unread> {
        let (id, (from, end)) = self.leaf_and_range(address);
        if id != leaf || !self.may_be(Absent { leaf, from, end }, &rows) {
            return Err(Unread::Nonsense);
        }
        let node = &mut self.nodes[id as usize];
        node.used = true;
        node.body = Body::Leaf(rows);
        self.idle += 1;
        Ok(())
    }

    /// Whether these may be the rows of a leaf that is not in memory.
    pub(crate) fn may_be(&self, absent: Absent, rows: &[Row]) -> bool {
        let node = &self.nodes[absent.leaf as usize];
        let is_told = matches!(node.body, Body::Absent(_)) && node.summary == Summary::of(rows);
        is_told && self.may_stand(rows, (absent.from, absent.end))
    }

    /// Whether rows ascend within a range and overlap neither one another nor their neighbours, as far as these are in memory.
    fn may_stand(&self, rows: &[Row], (from, end): (u64, u64)) -> bool {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return true;
        };
        let before = from.checked_sub(1).and_then(|at| self.floor(at).ok().flatten());
        let behind = self.ceiling(end).ok().flatten();
        first.record.base >= from
            && last.record.base < end
            && rows
                .array_windows()
                .all(|[one, next]| one.record.base < next.record.base && one.record.end() <= next.record.base)
            && before.is_none_or(|before| before.record.end() <= first.record.base)
            && behind.is_none_or(|behind| last.record.end() <= behind.record.base)
    }

    /// Whether a leaf is in memory and may go.
    pub(super) fn is_idle(&self, id: NodeId) -> bool {
        let node = &self.nodes[id as usize];
        match &node.body {
            // An empty root may never have been written.
            Body::Leaf(rows) => !node.dirty && node.place.block != 0 && rows.iter().all(|row| row.held == Held::No),
            _ => false,
        }
    }

    /// Notes that somebody uses an object; `false` if it is not in memory.
    pub(crate) fn hold(&mut self, base: u64) -> bool {
        let id = self.leaf_of(base);
        let was_idle = self.is_idle(id);
        let Body::Leaf(rows) = &mut self.nodes[id as usize].body else {
            return false;
        };
        let Ok(at) = rows.binary_search_by_key(&base, |row| row.record.base) else {
            return false;
        };
        rows[at].held = Held::Yes;
        self.idle -= usize::from(was_idle);
        true
    }

    /// Notes that nobody uses an object any more.
    pub(crate) fn let_go(&mut self, base: u64) {
        let id = self.leaf_of(base);
        let Body::Leaf(rows) = &mut self.nodes[id as usize].body else {
            return;
        };
        let Ok(at) = rows.binary_search_by_key(&base, |row| row.record.base) else {
            return;
        };
        if core::mem::replace(&mut rows[at].held, Held::No) == Held::Yes {
            self.idle += usize::from(self.is_idle(id));
        }
    }

    /// Whether more leaves are in memory that nobody needs than may stay.
    pub(crate) fn has_surplus(&self) -> bool {
        self.idle > self.idle_max
    }

    /// Whether leaves are in memory that nobody needs.
    pub(crate) fn has_idle(&self) -> bool {
        self.idle > 0
    }

    /// Has the leaf that an address belongs to stay until it is written, with all that leads to it.
    pub(crate) fn keep_until_written(&mut self, address: u64) {
        let mut id = self.root;
        loop {
            self.soil(id);
            let Body::Inner(children) = self.body(id) else { return };
            let at = children.partition_point(|&(key, _)| key <= address).saturating_sub(1);
            match children.get(at) {
                Some(&(_, child)) => id = child,
                None => return,
            }
        }
    }

    /// Looks at some nodes, and lets a leaf go that nobody has needed for a while; tells how many rows it had. The next call looks at others.
    pub(crate) fn evict(&mut self) -> Option<usize> {
        let mut looked = 0;
        while looked < SEARCH {
            self.hand = (self.hand + 1) % self.nodes.len();
            let id = self.hand as NodeId;
            looked += match self.body(id) {
                Body::Leaf(rows) => 1 + rows.len() / 4,
                Body::Inner(_) | Body::Absent(_) => 1,
            };
            if self.is_idle(id) && !core::mem::take(&mut self.nodes[id as usize].used) {
                return Some(self.drop_leaf(id));
            }
        }
        None
    }

    /// Lets the leaf go that an address belongs to, if it may; tells how many rows it had.
    pub(crate) fn evict_at(&mut self, address: u64) -> Option<usize> {
        let id = self.leaf_of(address);
        self.is_idle(id).then(|| self.drop_leaf(id))
    }

    fn drop_leaf(&mut self, id: NodeId) -> usize {
        let node = &mut self.nodes[id as usize];
        node.body = Body::Absent(None);
        self.idle -= 1;
        usize::from(node.summary.rows)
    }

    /// Notes that the leaf of an address was needed.
    pub(crate) fn touch(&mut self, address: u64) {
        let id = self.leaf_of(address);
        self.nodes[id as usize].used = true;
    }

    /// Whether no leaf is missing.
    pub(crate) fn has_all_rows(&self) -> bool {
        self.nodes.iter().all(|node| !matches!(node.body, Body::Absent(_)))
    }

    /// Whether all leaves may stay in memory though nobody needs them.
    pub(crate) fn all_have_place(&self) -> bool {
        let leaves = self.nodes.iter().filter(|node| !matches!(node.body, Body::Inner(_)));
        leaves.count() <= self.idle_max
    }

    /// Whether another leaf may stay in memory though nobody needs it.
    pub(crate) fn has_place(&self) -> bool {
        self.idle < self.idle_max
    }

    // ---- checks

    /// Whether the bases ascend, no objects overlap and every row can be found, as far as they are in memory.
    pub(crate) fn is_sound(&self) -> bool {
        let mut rows = 0;
        let (mut end, mut next) = (0, 0);
        let all = self.has_all_rows();
        loop {
            match self.ceiling(next) {
                Ok(Some(row)) => {
                    if row.record.base < end || self.get(row.record.base).is_none() {
                        return false;
                    }
                    end = row.record.end();
                    rows += 1;
                    next = row.record.base + 1;
                }
                Ok(None) => break,
                // It cannot go backwards where the keys ascend.
                Err(absent) if absent.end > next => next = absent.end,
                Err(_) => return false,
            }
            if next == u64::MAX {
                break;
            }
        }
        self.is_ordered() && (rows == self.rows || !all)
    }

    /// The ranges of the leaves that have changed.
    pub(crate) fn changed_ranges(&self) -> Result<List<(u64, u64)>, NoHeap> {
        let mut ranges = List::default();
        self.changed_below(self.root, (0, u64::MAX), &mut ranges)?;
        Ok(ranges)
    }

    fn changed_below(&self, id: NodeId, range: (u64, u64), ranges: &mut List<(u64, u64)>) -> Result<(), NoHeap> {
        let node = &self.nodes[id as usize];
        match &node.body {
            _ if !node.dirty => {}
            Body::Inner(children) => {
                for (at, &(_, child)) in children.iter().enumerate() {
                    self.changed_below(child, super::range_of_child(children, at, range), ranges)?;
                }
            }
            Body::Leaf(_) | Body::Absent(_) => ranges.push(range)?,
        }
        Ok(())
    }

    /// Whether the counts are those of the nodes.
    #[cfg(test)]
    pub(crate) fn counts_are_right(&self) -> bool {
        let ids = 0..self.nodes.len() as NodeId;
        let dirty = ids.clone().filter(|&id| self.nodes[id as usize].dirty).count();
        (dirty, ids.filter(|&id| self.is_idle(id)).count()) == (self.dirty, self.idle)
    }
}
