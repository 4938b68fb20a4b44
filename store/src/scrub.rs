//! The scrub: a look at all that is stored, a block at a time, while the disk has nothing else to do.
//!
//! A pass goes through all copies of superblocks ([superblocks]), the inner nodes of the object table, and then through the objects in the order of their addresses:
//! leaves, the bodies of rows, nodes of maps, pages; and then through what only snapshots hold ([snapshots]). Nothing is held or frozen for it. What is read wrong is
//! blamed only if the same place is still named then, and is read wrong again: a block that was set free may have other contents.
//!
//! It reads only as many blocks as it was [allowed](Store::scrub_some), and only while no job runs and nobody waits for
//! the disk, so its rate is a matter of its owner. Damage is told by [`Event::Damaged`]; nothing is repaired here
//! but superblocks, by the generations that come anyway.

use crate::containers::Boxed;
use crate::copies::COPIES;
use crate::event::{BadRows, Event, Structure};
use crate::io::Purpose;
use crate::jobs::Running;
use crate::map::{Entry, FANOUT, LEVELS_MAX, MapKey, entry_in, first_page, reach};
use crate::store::{COST_READ, Store};
use crate::superblock::Place;
use crate::table::{Absent, Body, NodeId};
use crate::world::{DiskError, Frame, Operation, World};
use snapshots::{Piece, Walk};
use way::place_of;

mod snapshots;
mod superblocks;
mod way;

/// Pages of a node that a step looks at.
const PIECE: u64 = 32;

/// How far a scrub is.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct ScrubReport {
    /// Whether a pass is under way.
    pub runs: bool,
    /// Blocks that were looked at in this pass, or in the last one.
    pub seen: u64,
    /// Blocks that were in use when it began.
    pub all: u64,
    /// Damaged ones among them.
    pub damaged: u64,
    /// Passes that are over since the mount.
    pub passes: u64,
}

/// Something that is looked at.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Item {
    /// An inner node of the table.
    Inner(NodeId),
    /// The leaf that an address belongs to.
    Leaf(u64),
    /// A block of the body of a row.
    Body { base: u64, index: usize },
    /// A node of a map, or a page.
    Map(MapKey),
    /// A copy of the superblock of this generation or the one before.
    Superblock { block: u64, generation: u64 },
    /// A copy of the list of snapshots.
    List { block: u64 },
    /// A block of the snapshot that is looked at.
    Snapshot(Piece),
}

impl Item {
    /// The block of an item that its place names by its first copy.
    fn block(self, place: Place) -> u64 {
        match self {
            Self::Superblock { block, .. } | Self::List { block } | Self::Snapshot(Piece::Link { block }) => block,
            _ => place.block,
        }
    }

    /// Whether it is looked at for its own sake.
    fn counts(self) -> bool {
        !matches!(self, Self::Snapshot(Piece::Before(_)))
    }
}

/// Where a pass is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum At {
    /// Between two passes.
    #[default]
    Rest,
    /// At the copy of a superblock in this block.
    Superblock(u64),
    /// At this node of the table, in the order of numbers.
    Inner(NodeId),
    /// At the leaf that this address belongs to.
    Leaf(u64),
    /// At the first object behind this address, of a leaf that ends there.
    Object { from: u64, end: u64 },
    /// At this block of a body.
    Body { base: u64, index: usize, end: u64 },
    /// At this page of an object.
    Page { base: u64, page: u64, end: u64 },
    /// At this copy of the list of snapshots.
    List(usize),
    /// Before the first snapshot behind this generation.
    Snapshots { behind: u64 },
    /// In a snapshot.
    Snapshot,
}

/// A block that is being read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Reading {
    item: Item,
    place: Place,
    frame: Frame,
    /// Whether it was read wrong before.
    again: bool,
}

/// What a step has found.
enum Found {
    /// A block to be read.
    Block(Item, Place),
    /// Nothing here: the cursor has moved on.
    Next,
    /// Rows must come first.
    Waits,
    /// The pass is over.
    End,
}

/// The scrub of a mounted store.
#[derive(Default)]
pub(crate) struct Scrub {
    at: At,
    /// Blocks that may still be read.
    allowed: u64,
    reading: Option<Reading>,
    /// Nodes on the way to the page where the pass is, by level: which were looked at, and the contents of those that are not in memory.
    way: [Option<(MapKey, Place, Option<Frame>)>; LEVELS_MAX as usize + 1],
    /// The leaf whose rows were read for the scrub last: what was read was compared.
    came: Option<NodeId>,
    /// The generation that was durable when the pass began; and the walk through a snapshot.
    begun: u64,
    walk: Option<Boxed<Walk>>,
    pub(crate) report: ScrubReport,
}

impl Scrub {
    /// Whether a block is being read.
    pub(crate) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Gives all frames back.
    fn forget_all(&mut self, world: &mut impl World) {
        self.forget_way(world);
        if let Some(mut walk) = self.walk.take() {
            walk.clear(world);
        }
    }

    /// Those above the page of an object.
    fn forget_way(&mut self, world: &mut impl World) {
        for (_, _, frame) in self.way.iter_mut().filter_map(Option::take) {
            if let Some(frame) = frame {
                world.free(frame);
            }
        }
    }
}

impl Store {
    /// Begins a pass, unless one is under way. It goes on as far as it is [allowed](Store::scrub_some).
    pub fn scrub_begin(&mut self) {
        if self.scrub.at != At::Rest {
            return;
        }
        let free = self.allocation.free_blocks() + self.allocation.held_blocks();
        self.scrub.at = At::Superblock(0);
        self.scrub.begun = self.generation;
        self.scrub.report = ScrubReport {
            runs: true,
            all: self.geometry.data_blocks().saturating_sub(free) + COPIES,
            passes: self.scrub.report.passes,
            ..ScrubReport::default()
        };
    }

    /// Ends a pass before its time.
    pub fn scrub_end(&mut self, world: &mut impl World) {
        self.scrub.forget_all(world);
        self.scrub.at = At::Rest;
        self.scrub.allowed = 0;
        self.scrub.report.runs = false;
    }

    /// Allows a pass that is under way to read so many blocks; what was allowed before is over. It goes on with the next polls.
    pub fn scrub_some(&mut self, blocks: u64) {
        if self.scrub.at != At::Rest {
            self.scrub.allowed = blocks;
            self.awake = true;
        }
    }

    /// How far the scrub is.
    pub fn scrub_report(&self) -> ScrubReport {
        self.scrub.report
    }

    /// Gives all frames of the scrub back that nothing is read into.
    pub(crate) fn scrub_dismantle(&mut self, world: &mut impl World) {
        self.scrub.forget_all(world);
    }

    /// Whether nobody wants anything of the disk but those who look at it in the background.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self.running, Running::Nothing)
            && self.queue.is_empty()
            && self.page_reads.is_empty()
            && self.loads.is_empty()
            && self.leaf_reads.is_empty()
            && !self.is_undoing
    }

    /// Goes on with a pass until a block is on its way, as far as the budget reaches.
    pub(crate) fn advance_scrub(&mut self, world: &mut impl World) {
        while self.scrub.at != At::Rest && self.scrub.allowed > 0 && self.scrub.reading.is_none() && self.is_quiet() {
            if !self.may_go_on(COST_READ) {
                return;
            }
            self.spend(COST_READ);
            match self.scrub_step(world) {
                Found::Next => {}
                Found::Waits => return,
                Found::End => {
                    self.scrub.report.passes += 1;
                    self.scrub_end(world);
                }
                Found::Block(item, place) => {
                    self.scrub.allowed -= 1;
                    if !self.scrub_read(world, item, place) {
                        // There is no memory now. What is allowed next looks at it.
                        self.scrub.allowed = 0;
                    }
                }
            }
        }
    }

    fn scrub_read(&mut self, world: &mut impl World, item: Item, place: Place) -> bool {
        let Some(frame) = self.expect_read().ok().and_then(|()| world.alloc()) else {
            return false;
        };
        let again = false;
        self.scrub.reading = Some(Reading {
            item,
            place,
            frame,
            again,
        });
        self.io
            .submit(world, Operation::Read, item.block(place), frame, Purpose::Scrub);
        true
    }

    /// A block has come.
    pub(crate) fn scrub_arrived(&mut self, world: &mut impl World, result: Result<(), DiskError>) {
        let Some(mut reading) = self.scrub.reading.take() else {
            return;
        };
        let Reading { item, place, frame, .. } = reading;
        if let Item::Superblock { block, generation } = item {
            return self.superblock_arrived(world, reading, (block, generation), result);
        }
        let fits = result.is_ok() && self.checksums.fit(place.checksum, place.block, world.bytes(frame));
        let is_there = self.scrub.at != At::Rest && self.scrub_place(world, item, place) == Some(place);
        if !is_there && (!fits || matches!(item, Item::Snapshot(_))) {
            // It is another block by now, and is looked at when the pass comes to it.
            world.free(frame);
            return;
        }
        if !fits && !reading.again {
            reading.again = true;
            self.scrub.reading = Some(reading);
            self.io
                .submit(world, Operation::Read, item.block(place), frame, Purpose::Scrub);
            return;
        }
        self.scrub.report.seen += u64::from(item.counts());
        if fits {
            self.scrub_passed(world, item, place, Some(frame));
            return;
        }
        world.free(frame);
        if item.counts() {
            let (structure, at) = match item {
                Item::Inner(_) => (Structure::Table, (0, 0, 0)),
                Item::Leaf(base) | Item::Body { base, .. } => (Structure::Table, (base, 0, 0)),
                Item::Map(key) if key.level == 0 => (Structure::Page, (key.base, key.index, 0)),
                Item::Map(key) => (Structure::Map, (key.base, first_page(key), 0)),
                Item::Superblock { .. } => (Structure::Superblock, (0, 0, 0)),
                Item::List { .. } => (Structure::Snapshots, (0, 0, 0)),
                Item::Snapshot(piece) => self.scrub_name(piece),
            };
            self.scrub_blames(structure, item.block(place), at);
        }
        self.scrub_passed(world, item, place, None);
    }

    /// A block is rotten: of this object, page and snapshot.
    fn scrub_blames(&mut self, structure: Structure, block: u64, (base, page, snapshot): (u64, u64, u64)) {
        self.scrub.report.damaged += 1;
        self.damaged += 1;
        self.events.mention(Event::Damaged {
            structure,
            block,
            base,
            page,
            snapshot,
        });
    }

    /// Moves on behind what was looked at; a damaged node leads nowhere.
    fn scrub_passed(&mut self, world: &mut impl World, item: Item, place: Place, frame: Option<Frame>) {
        let mut left = frame;
        match (item, self.scrub.at) {
            (Item::Snapshot(piece), At::Snapshot) => return self.scrub_walked(world, piece, place, frame),
            (Item::List { .. }, At::List(copy)) => self.scrub.at = At::List(copy + 1),
            (Item::Inner(id), At::Inner(at)) if id == at => self.scrub.at = At::Inner(id + 1),
            (Item::Leaf(from), At::Leaf(at)) if from == at => {
                let (_, (_, end)) = self.table.leaf_and_range(from);
                self.scrub.at = At::Object { from, end };
            }
            (Item::Body { base, index }, At::Body { end, .. }) => {
                self.scrub.at = At::Body {
                    base,
                    index: index + 1,
                    end,
                };
            }
            (Item::Map(key), At::Page { base, page, end }) if key.base == base => {
                if key.level == 0 {
                    let page = page.max(key.index + 1);
                    self.scrub.at = At::Page { base, page, end };
                } else if frame.is_none() {
                    let behind = first_page(key).saturating_add(reach(key.level));
                    let page = page.max(behind);
                    self.scrub.at = At::Page { base, page, end };
                } else {
                    let kept = left.take().filter(|_| !self.maps.contains(key));
                    if kept.is_none() {
                        left = frame;
                    }
                    let before = self.scrub.way[key.level as usize].replace((key, place, kept));
                    if let Some((_, _, Some(old))) = before {
                        world.free(old);
                    }
                }
            }
            _ => {}
        }
        if let Some(frame) = left {
            world.free(frame);
        }
    }

    /// Where something lies now, if its written form counts.
    fn scrub_place(&self, world: &impl World, item: Item, place: Place) -> Option<Place> {
        match item {
            Item::Superblock { .. } => None,
            Item::List { .. } => Some(self.snapshots.list?.place()),
            Item::Snapshot(piece) => self.scrub_holds(piece).then_some(place),
            Item::Inner(id) => Some(self.table.place(id)),
            Item::Leaf(from) => Some(self.table.place(self.table.leaf_and_range(from).0)),
            Item::Body { base, index } => self.table.get(base)?.overflow.get(index).copied(),
            Item::Map(key) => {
                let row = self.table.get(key.base)?;
                let mut entry = row.map.entry;
                for level in (key.level + 1..=row.map.levels).rev() {
                    let above = MapKey {
                        base: key.base,
                        level,
                        index: first_page(key) / reach(level),
                    };
                    entry = self.scrub_child(world, above, entry, first_page(key) / reach(level - 1))?;
                }
                (key.level <= row.map.levels).then_some(place_of(entry))
            }
        }
    }

    /// The entry in a node to which an entry leads, if that is in memory or was read for the scrub.
    fn scrub_child(&self, world: &impl World, key: MapKey, entry: Entry, slot: u64) -> Option<Entry> {
        let frame = match self.maps.frame(key) {
            Some(frame) => frame,
            None => match self.scrub.way[key.level as usize] {
                Some((at, place, Some(frame))) if at == key && place == place_of(entry) => frame,
                _ => return None,
            },
        };
        Some(entry_in(world.bytes(frame), slot))
    }

    fn scrub_step(&mut self, world: &mut impl World) -> Found {
        // The row of an object at which the pass is may have left memory: nobody holds it.
        if let At::Body { base, .. } | At::Page { base, .. } = self.scrub.at
            && let Some(absent) = self.table.absent_at(base)
        {
            return self.scrub_rows(world, absent);
        }
        match self.scrub.at {
            At::Rest => Found::End,
            At::Superblock(block) => self.scrub_superblock(block),
            At::List(copy) => self.scrub_list(copy),
            At::Snapshots { behind } => self.scrub_next_snapshot(behind),
            At::Snapshot => self.scrub_walk(world),
            At::Inner(id) => self.scrub_inner(id),
            At::Leaf(from) => self.scrub_leaf(world, from),
            At::Object { from, end } => {
                // Rows of this leaf that have gone from memory are looked at behind their leaf once more.
                self.scrub.at = match self.table.ceiling(from) {
                    Ok(Some(row)) if row.record.base < end => At::Body {
                        base: row.record.base,
                        index: 0,
                        end,
                    },
                    Err(absent) if absent.from() < end => At::Leaf(from),
                    _ if end == u64::MAX => At::List(0),
                    _ => At::Leaf(end),
                };
                Found::Next
            }
            At::Body { base, index, end } => {
                let place = self.table.get(base).and_then(|row| row.overflow.get(index));
                match place.copied() {
                    Some(place) if self.geometry.is_data(place.block) => {
                        Found::Block(Item::Body { base, index }, place)
                    }
                    Some(_) => {
                        let index = index + 1;
                        self.scrub.at = At::Body { base, index, end };
                        Found::Next
                    }
                    None => {
                        let page = 0;
                        self.scrub.at = At::Page { base, page, end };
                        Found::Next
                    }
                }
            }
            At::Page { base, page, end } => match self.scrub_map(world, base, page) {
                Ok(Some((key, place))) => Found::Block(Item::Map(key), place),
                Ok(None) => {
                    self.scrub.forget_way(world);
                    let from = base + 1;
                    self.scrub.at = At::Object { from, end };
                    Found::Next
                }
                Err(page) => {
                    self.scrub.at = At::Page { base, page, end };
                    Found::Next
                }
            },
        }
    }

    fn scrub_inner(&mut self, id: NodeId) -> Found {
        self.scrub.at = match self.table.body_if_any(id) {
            None => At::Leaf(0),
            Some(Body::Inner(children)) if !children.is_empty() && !self.table.is_dirty(id) => {
                let place = self.table.place(id);
                if self.geometry.is_data(place.block) {
                    return Found::Block(Item::Inner(id), place);
                }
                At::Inner(id + 1)
            }
            Some(_) => At::Inner(id + 1),
        };
        Found::Next
    }

    fn scrub_leaf(&mut self, world: &mut impl World, from: u64) -> Found {
        let (leaf, (_, end)) = self.table.leaf_and_range(from);
        if let Some(absent) = self.table.absent_at(from) {
            // Who reads the rows compares all of it, and tells what is wrong.
            self.scrub.came = Some(leaf);
            return self.scrub_rows(world, absent);
        }
        let place = self.table.place(leaf);
        let was_read = self.scrub.came.take() == Some(leaf);
        self.scrub.report.seen += u64::from(was_read);
        if self.geometry.is_data(place.block) && !self.table.is_dirty(leaf) && !was_read {
            return Found::Block(Item::Leaf(from), place);
        }
        self.scrub.at = At::Object { from, end };
        Found::Next
    }

    /// Has rows come that are not in memory; a leaf that cannot be read is passed.
    fn scrub_rows(&mut self, world: &mut impl World, absent: Absent) -> Found {
        match self.read_rows(world, absent) {
            Ok(_) => {
                self.scrub.allowed -= 1;
                Found::Waits
            }
            Err(BadRows::Memory) => {
                self.scrub.allowed = 0;
                Found::Waits
            }
            Err(_) => {
                self.scrub.forget_way(world);
                self.scrub.report.seen += 1;
                self.scrub.report.damaged += 1;
                self.scrub.at = match absent.end() {
                    u64::MAX => At::List(0),
                    end => At::Leaf(end),
                };
                Found::Next
            }
        }
    }

    /// What is to be read next of an object's map, from a page on; `None` if that is all. `Err`: to go on at that page.
    fn scrub_map(&self, world: &impl World, base: u64, page: u64) -> Result<Option<(MapKey, Place)>, u64> {
        let Some(row) = self.table.get(base) else {
            return Ok(None);
        };
        if page >= reach(row.map.levels).min(row.record.pages) {
            return Ok(None);
        }
        // The entry that leads to the node above the page.
        let mut above = Entry::NONE;
        let mut entry = row.map.entry;
        for level in (1..=row.map.levels).rev() {
            let key = MapKey {
                base,
                level,
                index: page / reach(level),
            };
            let behind = first_page(key).saturating_add(reach(level));
            let in_memory = self.maps.contains(key);
            let is_stored = self.geometry.is_data(entry.block);
            if !in_memory && !is_stored {
                return Err(behind);
            }
            let was_seen = matches!(self.scrub.way[level as usize], Some((at, place, frame))
                if at == key && (in_memory || place == place_of(entry) && frame.is_some()));
            // What a node that has changed looks like on the disk is of no account.
            if is_stored && !was_seen && !self.maps.is_dirty_node(key) {
                return Ok(Some((key, place_of(entry))));
            }
            let slot = page / reach(level - 1);
            above = entry;
            entry = match self.scrub_child(world, key, entry, slot) {
                Some(entry) => entry,
                None => return Err(behind),
            };
        }
        let is_wanted = |page, entry: Entry| self.geometry.is_data(entry.block) && !self.drops(base, page);
        let found = |page, entry| {
            let key = MapKey {
                base,
                level: 0,
                index: page,
            };
            Ok(Some((key, place_of(entry))))
        };
        if is_wanted(page, entry) {
            return found(page, entry);
        }
        // Those behind it in the same node, so that a node with few pages takes one step.
        let node = MapKey {
            base,
            level: 1,
            index: page / FANOUT,
        };
        for page in page + 1..first_page(node) + FANOUT {
            let entry = self.scrub_child(world, node, above, page);
            if let Some(entry) = entry.filter(|&entry| page < row.record.pages && is_wanted(page, entry)) {
                return found(page, entry);
            }
        }
        Err(first_page(node) + FANOUT)
    }

    /// Whether a page is to read as zero, though its map does not say so yet.
    fn drops(&self, base: u64, page: u64) -> bool {
        [self.pending.by_object().get_ref(base), self.settling.get_ref(base)]
            .into_iter()
            .flatten()
            .any(|changes| changes.is_zeroed(page))
    }
}
