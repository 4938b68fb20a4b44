//! The scrub of what snapshots hold: their tables, maps and pages, and the blocks that tell of them.
//!
//! Snapshots come in turn behind the present state, from the oldest to the youngest of those that are there when the pass begins. Each is walked by its own table, which is not
//! in memory: one node a level is ([`Way`]). What it shares with a state that was looked at is passed, with all that is below:
//!
//! - with the present state, what that uses: nothing that a snapshot holds becomes anything else. Where the present state has changed and that is not yet written, what
//!   it uses may lead to blocks that it has given up; so nothing is passed there.
//! - with the snapshot before, what stands there at the same address. What an older one shares, that one shares, too. Its nodes are read for that a second time, pages never.
//!
//! So a rotten block that several states have is named with the first of them. A snapshot that is dropped meanwhile is left where the walk is: from then on its blocks may become
//! others. One that comes meanwhile is looked at by the next pass.

use super::way::{Answer, Known, Level, Way, place_of};
use super::{At, Found, Item, PIECE};
use crate::bytes::Unread;
use crate::containers::{boxed, push};
use crate::event::Structure;
use crate::heap::NoHeap;
use crate::map::{FANOUT, MapKey, MapRoot, entry_in, first_page, reach};
use crate::snapshots::format::{Entry, Twin, decode_link};
use crate::store::{COST_READ, Store};
use crate::superblock::Place;
use crate::table_format::{RowSeen, child_at, is_leaf, row_from};
use crate::table_loading::HEIGHT_MAX;
use crate::world::{Frame, World};
use alloc::vec::Vec;

/// What is read of a snapshot.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    /// A copy of a block of its chain.
    Link { block: u64 },
    /// A bitmap block.
    Bitmap,
    /// A node of its table, or of a map.
    Node(Level),
    /// The same of the snapshot before, for comparison.
    Before(Level),
    /// A block of the body of a row.
    Body,
    /// A page.
    Page(u64),
}

/// Where a walk is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Step {
    /// At a copy of a block of the chain.
    Link { twin: Twin, copy: usize },
    /// At the bitmap blocks that it names.
    Bitmaps,
    /// At the first object from this address on.
    Object { from: u64 },
    /// At this block of the body of its row.
    Body { index: usize },
    /// At this page of the object.
    Page { page: u64 },
}

/// A walk through a snapshot.
pub(super) struct Walk {
    generation: u64,
    step: Step,
    /// The bitmap blocks that a block of the chain names, and the block behind it.
    wanted: Vec<Entry>,
    next: Option<Twin>,
    here: Way,
    /// The snapshot before, and the row of the same object in it.
    before: Option<Way>,
    row: Option<RowSeen>,
    row_before: Option<RowSeen>,
    /// Blocks that may still be read: no disk has more, but a stranger's may name one as often as it likes.
    left: u64,
}

impl Walk {
    pub(super) fn clear(&mut self, world: &mut impl World) {
        self.here.clear(world);
        if let Some(before) = &mut self.before {
            before.clear(world);
        }
    }

    /// Whether the snapshot before has the same node of its table on the way to an address.
    fn is_before_in_table(&self, world: &impl World, address: u64, place: Place) -> Answer<bool> {
        match &self.before {
            Some(before) => before.has_in_table(world, address, place),
            None => Answer::Known(false),
        }
    }

    /// The same of a node of the map of the object, or a page.
    fn is_before_in_map(&self, world: &impl World, at: (u8, u64), place: Place) -> Answer<bool> {
        match (&self.before, &self.row_before) {
            (Some(before), Some(row)) => before.has_in_map(world, row.map, at, place),
            _ => Answer::Known(false),
        }
    }
}

impl Store {
    /// The list of snapshots, and then the first of them behind a generation; those that came since the pass began are left to the next one.
    pub(super) fn scrub_list(&mut self, copy: usize) -> Found {
        let block = self.snapshots.list.and_then(|list| list.blocks.get(copy).copied());
        match (block, self.snapshots.list) {
            (Some(block), Some(list)) if self.geometry.is_data(block) => {
                Found::Block(Item::List { block }, list.place())
            }
            _ => {
                self.scrub.at = At::Snapshots { behind: 0 };
                Found::Next
            }
        }
    }

    /// Goes to the next snapshot.
    pub(super) fn scrub_next_snapshot(&mut self, behind: u64) -> Found {
        let known = self.snapshots.known.iter();
        let of_pass = known.filter(|known| known.record.generation <= self.scrub.begun);
        let later = of_pass
            .clone()
            .filter(|known| known.record.generation > behind)
            .min_by_key(|known| known.record.generation);
        let Some(next) = later else { return Found::End };
        let earlier = of_pass
            .filter(|known| known.record.generation < next.record.generation)
            .max_by_key(|known| known.record.generation);
        let way = |known: &crate::snapshots::Known| Way::new(known.head, known.record.table);
        let walk = Walk {
            generation: next.record.generation,
            step: Step::Link {
                twin: next.head,
                copy: 0,
            },
            wanted: Vec::new(),
            next: None,
            here: way(next),
            before: earlier.map(way),
            row: None,
            row_before: None,
            left: self.geometry.data_blocks(),
        };
        let Ok(walk) = boxed(walk) else {
            self.scrub.allowed = 0;
            return Found::Waits;
        };
        self.scrub.walk = Some(walk);
        self.scrub.at = At::Snapshot;
        Found::Next
    }

    /// Whether a snapshot is still there.
    fn has_snapshot(&self, way: &Way) -> bool {
        self.snapshots.known.iter().any(|known| known.head == way.head)
    }

    /// Whether what is read for a walk still belongs to a snapshot that is there.
    pub(super) fn scrub_holds(&self, piece: Piece) -> bool {
        let Some(walk) = self.scrub.walk.as_ref().filter(|_| self.scrub.at == At::Snapshot) else {
            return false;
        };
        match piece {
            Piece::Before(_) => walk.before.as_ref().is_some_and(|before| self.has_snapshot(before)),
            _ => self.has_snapshot(&walk.here),
        }
    }

    /// What is wrong with a block of a snapshot: the structure, and where: the object, the page and the generation.
    pub(super) fn scrub_name(&self, piece: Piece) -> (Structure, (u64, u64, u64)) {
        let Some(walk) = &self.scrub.walk else {
            return (Structure::Snapshots, (0, 0, 0));
        };
        let (generation, base) = (walk.generation, walk.row.as_ref().map_or(0, |row| row.base));
        match (piece, walk.step) {
            (Piece::Page(page), _) => (Structure::Page, (base, page, generation)),
            (Piece::Node(Level::Map(level)), Step::Page { page }) => {
                let first = page / reach(level) * reach(level);
                (Structure::Map, (base, first, generation))
            }
            (Piece::Node(_), Step::Object { from }) => (Structure::Table, (from, 0, generation)),
            (Piece::Body, _) => (Structure::Table, (base, 0, generation)),
            _ => (Structure::Snapshots, (0, 0, generation)),
        }
    }

    /// Goes on with the walk.
    pub(super) fn scrub_walk(&mut self, world: &mut impl World) -> Found {
        let Some(mut walk) = self.scrub.walk.take() else {
            self.scrub.at = At::Snapshots { behind: u64::MAX };
            return Found::Next;
        };
        if walk.left == 0 || !self.has_snapshot(&walk.here) {
            return self.scrub_leaves(world, walk);
        }
        if let Some(mut gone) = walk.before.take_if(|before| !self.has_snapshot(before)) {
            gone.clear(world);
        }
        self.spend(COST_READ);
        let found = match walk.step {
            Step::Link { twin, copy } => {
                let block = twin.blocks.get(copy);
                if block.is_none() {
                    walk.step = Step::Bitmaps;
                }
                block.map(|&block| (Piece::Link { block }, twin.place()))
            }
            Step::Bitmaps => {
                let place = walk.wanted.last().map(|entry| entry.1);
                if place.is_none() {
                    walk.step = match walk.next.take() {
                        Some(twin) => Step::Link { twin, copy: 0 },
                        None => Step::Object { from: 0 },
                    };
                }
                place.map(|place| (Piece::Bitmap, place))
            }
            Step::Object { from: u64::MAX } => return self.scrub_leaves(world, walk),
            Step::Object { from } => self.walk_table(world, &mut walk, from),
            Step::Body { index } => self.walk_body(&mut walk, index),
            Step::Page { page } => self.walk_map(world, &mut walk, page),
        };
        let found = match found {
            Some((piece, place)) if self.geometry.is_data(place.block) => {
                walk.left -= 1;
                Found::Block(Item::Snapshot(piece), place)
            }
            Some((piece, place)) => {
                // Where it is said to be there is nothing: whoever said so was compared with its checksum.
                self.scrub.walk = Some(walk);
                self.scrub_walked(world, piece, place, None);
                return Found::Next;
            }
            None => Found::Next,
        };
        self.scrub.walk = Some(walk);
        found
    }

    /// Leaves a snapshot for the next one.
    fn scrub_leaves(&mut self, world: &mut impl World, mut walk: crate::containers::Boxed<Walk>) -> Found {
        walk.clear(world);
        let behind = walk.generation;
        self.scrub.at = At::Snapshots { behind };
        Found::Next
    }

    /// Takes in what was read, or could not be: the walk goes on behind it.
    pub(super) fn scrub_walked(&mut self, world: &mut impl World, piece: Piece, place: Place, frame: Option<Frame>) {
        let Some(mut walk) = self.scrub.walk.take() else {
            if let Some(frame) = frame {
                world.free(frame);
            }
            return;
        };
        match (piece, walk.step) {
            (Piece::Node(level), _) => {
                walk.here.put(world, level, place, frame);
                self.scrub.walk = Some(walk);
                return;
            }
            (Piece::Before(level), _) => {
                match &mut walk.before {
                    Some(before) => before.put(world, level, place, frame),
                    None => frame.into_iter().for_each(|frame| world.free(frame)),
                }
                self.scrub.walk = Some(walk);
                return;
            }
            (Piece::Link { .. }, Step::Link { twin, copy }) => {
                let told = match frame {
                    Some(frame) => take_link(world, frame, &mut walk),
                    None => Ok(()),
                };
                match told {
                    Ok(()) => walk.step = Step::Link { twin, copy: copy + 1 },
                    // It is read again when there is heap.
                    Err(NoHeap) => self.scrub.allowed = 0,
                }
            }
            (Piece::Bitmap, _) => drop(walk.wanted.pop()),
            (Piece::Body, Step::Body { index }) => walk.step = Step::Body { index: index + 1 },
            (Piece::Page(page), Step::Page { .. }) => walk.step = Step::Page { page: page + 1 },
            _ => {}
        }
        if let Some(frame) = frame {
            world.free(frame);
        }
        self.scrub.walk = Some(walk);
    }

    // ---- the table

    /// Finds the first object from an address on, or the node that is to be read before it is found.
    fn walk_table(&self, world: &impl World, walk: &mut Walk, from: u64) -> Option<(Piece, Place)> {
        let (mut place, mut range, mut key) = (walk.here.root, (0, u64::MAX), 0);
        let mut depth = 0;
        let behind = loop {
            let level = Level::Table(depth);
            if depth == HEIGHT_MAX {
                break range.1;
            }
            match walk.here.at(level, place) {
                Known::Bad => break range.1,
                Known::Unread => {
                    let address = range.0.max(key);
                    if place.block == 0 || self.uses_table(place, address, range) {
                        break range.1;
                    }
                    match walk.is_before_in_table(world, address, place) {
                        Answer::Known(true) => break range.1,
                        Answer::Known(false) => return Some((Piece::Node(level), place)),
                        Answer::Wants(level, place) => return Some((Piece::Before(level), place)),
                    }
                }
                Known::Here(frame) => {
                    let bytes = world.bytes(frame);
                    if is_leaf(bytes) {
                        match row_from(bytes, from).filter(|row| row.base < range.1) {
                            Some(row) => return Self::walk_to(world, walk, &row),
                            None => break range.1,
                        }
                    }
                    match child_at(bytes, from, range) {
                        Some(child) => (place, range, key) = (child.place, child.range, child.key),
                        None => break range.1,
                    }
                    depth += 1;
                }
            }
        };
        walk.step = Step::Object { from: behind };
        None
    }

    /// Goes to an object, once its row in the snapshot before is known.
    fn walk_to(world: &impl World, walk: &mut Walk, row: &RowSeen) -> Option<(Piece, Place)> {
        let before = match &walk.before {
            Some(before) => match before.row(world, row.base) {
                Answer::Known(before) => before,
                Answer::Wants(level, place) => return Some((Piece::Before(level), place)),
            },
            None => None,
        };
        (walk.row, walk.row_before) = (Some(*row), before);
        walk.step = Step::Body { index: 0 };
        None
    }

    fn walk_body(&self, walk: &mut Walk, index: usize) -> Option<(Piece, Place)> {
        let row = walk.row.as_ref()?;
        let Some(&place) = row.bodies().get(index) else {
            walk.step = Step::Page { page: 0 };
            return None;
        };
        let before = walk.row_before.as_ref().map_or(&[][..], RowSeen::bodies);
        if self.uses_body(row.base, place) || before.contains(&place) {
            walk.step = Step::Body { index: index + 1 };
            return None;
        }
        Some((Piece::Body, place))
    }

    // ---- the map

    /// Finds what is to be read next of the object, from a page on.
    fn walk_map(&self, world: &impl World, walk: &mut Walk, page: u64) -> Option<(Piece, Place)> {
        let &RowSeen { base, pages, map, .. } = walk.row.as_ref()?;
        let MapRoot { levels, mut entry } = map;
        if page >= reach(levels).min(pages) {
            walk.step = Step::Object {
                from: base.saturating_add(1),
            };
            return None;
        }
        for level in (1..=levels).rev() {
            let index = page / reach(level);
            let key = MapKey { base, level, index };
            let behind = Step::Page {
                page: first_page(key).saturating_add(reach(level)),
            };
            let place = place_of(entry);
            if !self.geometry.is_data(entry.block) {
                walk.step = behind;
                return None;
            }
            match walk.here.at(Level::Map(level), place) {
                Known::Bad => {
                    walk.step = behind;
                    return None;
                }
                Known::Unread => {
                    let known = if self.uses_node(key, place) {
                        Answer::Known(true)
                    } else {
                        walk.is_before_in_map(world, (level, page), place)
                    };
                    return match known {
                        Answer::Known(true) => {
                            walk.step = behind;
                            None
                        }
                        Answer::Known(false) => Some((Piece::Node(Level::Map(level)), place)),
                        Answer::Wants(level, place) => Some((Piece::Before(level), place)),
                    };
                }
                Known::Here(frame) if level > 1 => entry = entry_in(world.bytes(frame), page / reach(level - 1)),
                Known::Here(frame) => return self.walk_pages(walk, world, (base, pages), (frame, page)),
            }
        }
        self.walk_page(walk, world, (base, page), place_of(entry))
    }

    /// Finds the next page below a node from one on, as far as a piece reaches.
    fn walk_pages(
        &self,
        walk: &mut Walk,
        world: &impl World,
        (base, pages): (u64, u64),
        (frame, from): (Frame, u64),
    ) -> Option<(Piece, Place)> {
        let end = (from / FANOUT + 1).saturating_mul(FANOUT).min(pages);
        for page in from..end.min(from.saturating_add(PIECE)) {
            let place = place_of(entry_in(world.bytes(frame), page));
            let found = self.walk_page(walk, world, (base, page), place);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// A page that is to be read, or the node that is to be read to know that; without either the walk goes on behind it.
    fn walk_page(
        &self,
        walk: &mut Walk,
        world: &impl World,
        (base, page): (u64, u64),
        place: Place,
    ) -> Option<(Piece, Place)> {
        if self.geometry.is_data(place.block) && !self.uses_page(base, page, place) {
            match walk.is_before_in_map(world, (0, page), place) {
                Answer::Known(true) => {}
                Answer::Known(false) => {
                    walk.step = Step::Page { page };
                    return Some((Piece::Page(page), place));
                }
                Answer::Wants(level, wanted) => {
                    walk.step = Step::Page { page };
                    return Some((Piece::Before(level), wanted));
                }
            }
        }
        walk.step = Step::Page { page: page + 1 };
        None
    }

    // ---- what the present state shares

    /// Whether the present state has a node of the table of a snapshot on the way to an address, and all that is below it.
    fn uses_table(&self, place: Place, address: u64, range: (u64, u64)) -> bool {
        let changes = self.pending.by_object().from(range.0);
        self.allocation.is_used(place.block)
            && (self.table.dirty_len() == 0 || self.table.has_clean(address, place))
            && !self.maps.is_dirty_among(range)
            && changes.is_none_or(|(base, _)| base >= range.1)
    }

    fn uses_body(&self, base: u64, place: Place) -> bool {
        let is_named = match self.table.get(base) {
            Some(row) => row.overflow.contains(&place),
            None => self.table.absent_at(base).is_some(),
        };
        is_named && self.allocation.is_used(place.block)
    }

    fn uses_node(&self, key: MapKey, place: Place) -> bool {
        let changes = self.pending.by_object().has(key.base) || self.doomed.has(key.base);
        self.allocation.is_used(place.block) && !changes && !self.maps.is_dirty_node(key)
    }

    fn uses_page(&self, base: u64, page: u64, place: Place) -> bool {
        self.allocation.is_used(place.block) && !self.doomed.has(base) && !self.drops(base, page)
    }
}

/// Takes in what a block of a chain says. Its copies say the same.
fn take_link(world: &impl World, frame: Frame, walk: &mut Walk) -> Result<(), NoHeap> {
    let link = match decode_link(world.bytes(frame)) {
        Ok(link) => link,
        Err(Unread::NoHeap) => return Err(NoHeap),
        Err(Unread::Nonsense) => return Ok(()),
    };
    walk.wanted.clear();
    for &entry in link.entries.iter().rev() {
        push(&mut walk.wanted, entry)?;
    }
    walk.next = link.next;
    Ok(())
}
