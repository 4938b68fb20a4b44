//! Rows of the object table on their way from the disk.
//!
//! A lookup that needs a leaf which is not in memory says so ([`Absent`]). [`Store::read_rows`] begins to read it, and an event tells when those who wait may look again. A leaf is taken
//! in row by row, as far as the budget reaches, for it has up to 46 of them; then the bodies that stand in blocks of their own are read, one block after the other.
//!
//! A leaf that cannot be read hides its own objects and no others. The next who looks for one of them is told why, and then it is tried again.

use crate::bytes::Unread;
use crate::containers::{Map, push_reserved};
use crate::event::{BadRows, Event, Structure};
use crate::heap::{NoHeap, with_room};
use crate::io::Purpose;
use crate::pending::MapChanges;
use crate::record::{BIRTH_END, ObjectRecord};
use crate::store::{COST_HEAP, Store};
use crate::sums::Sums;
use crate::superblock::Place;
use crate::table::{Absent, NodeId};
use crate::table_format::{FoundRow, LeafReader};
use crate::world::{BLOCK, DiskError, Frame, Operation, World};
use alloc::vec::Vec;

/// Leaves that are being read at once, at most.
const READS_MAX: usize = 32;
/// The cost of making a row of its bytes, of a body of a whole block, and of taking a leaf in.
const COST_ROW_READ: u64 = 700;
const COST_BODY: u64 = 4_000;
const COST_TAKEN_IN: u64 = 3_000;
/// The cost of looking for a leaf that may go, in a part of the table.
const COST_LEAVES_PASSED: u64 = 3_000;

/// A leaf being read.
pub(crate) struct LeafRead {
    frame: Frame,
    /// The number by which those who want it wait: an address that belongs to it.
    key: u64,
    stage: Stage,
    /// Whether the block that is on its way was read wrong before.
    again: bool,
}

/// How far it is.
enum Stage {
    /// Its block is on its way.
    Coming,
    /// Its rows are made.
    Rows { reader: LeafReader, rows: Vec<FoundRow> },
    /// The body of this row is on its way, of which so much has come.
    Body {
        rows: Vec<FoundRow>,
        at: usize,
        body: Vec<u8>,
    },
}

/// What a step of a leaf has come to.
enum Step {
    /// It goes on with the next step.
    Next,
    /// It waits for the disk.
    Waits,
    /// It is over.
    Over,
}

impl Store {
    /// Begins to read the rows that a lookup lacks, unless they are on their way. Gives the number that [`Event::RowsRead`] bears when it is time to look again, well or not.
    ///
    /// # Errors
    /// [`BadRows`].
    pub fn read_rows(&mut self, world: &mut impl World, absent: Absent) -> Result<u64, BadRows> {
        let leaf = absent.leaf;
        if let Some(read) = self.leaf_reads.get_ref(leaf) {
            return Ok(read.key);
        }
        // Nobody pays for these reads, so they have a bound: another one ends first, and whoever waited for it looks again.
        if let Some(read) = self
            .leaf_reads
            .values()
            .next()
            .filter(|_| self.leaf_reads.count() >= READS_MAX)
        {
            return Ok(read.key);
        }
        if let Some(bad) = self.table.take_bad(leaf) {
            return Err(bad);
        }
        let place = self.table.place(leaf);
        if !self.allocation.is_used(place.block) {
            self.note_rotten(place, absent.from());
            return Err(BadRows::Rotten);
        }
        self.expect_leaf().map_err(|NoHeap| BadRows::Memory)?;
        let Some(frame) = world.alloc() else {
            self.events.forget(1);
            return Err(BadRows::Memory);
        };
        let key = absent.from();
        let read = LeafRead {
            frame,
            key,
            stage: Stage::Coming,
            again: false,
        };
        let _ = self.leaf_reads.insert(leaf, read);
        self.io
            .submit(world, Operation::Read, place.block, frame, Purpose::Leaf(leaf));
        Ok(key)
    }

    /// Whether rows are on their way for those who wait by this number.
    pub fn reads_rows(&self, key: u64) -> bool {
        self.leaf_reads.values().any(|read| read.key == key)
    }

    /// Finds heap for one more leaf to be read.
    fn expect_leaf(&mut self) -> Result<(), NoHeap> {
        self.expect_read()?;
        let reads = self.leaf_reads.count() + 1;
        self.leaf_reads.reserve(reads)?;
        self.leaves_come.reserve(reads)?;
        self.events.expect(1)
    }

    /// Tells that a leaf is rotten whose objects begin at an address or behind it.
    fn note_rotten(&mut self, place: Place, from: u64) {
        self.damaged += 1;
        self.events.mention(Event::Damaged {
            structure: Structure::Table,
            block: place.block,
            base: from,
            page: 0,
            snapshot: 0,
        });
    }

    /// A block of a leaf, or of a body, has come.
    pub(crate) fn leaf_arrived(&mut self, world: &mut impl World, leaf: NodeId, result: Result<(), DiskError>) {
        let Some(mut read) = self.leaf_reads.remove(leaf) else {
            return;
        };
        let taken = if result.is_err() {
            Err(BadRows::Disk)
        } else {
            self.take_block_of_leaf(world, leaf, &mut read)
        };
        match taken {
            Ok(()) => {
                read.again = false;
                let _ = self.leaf_reads.insert(leaf, read);
                self.leaves_come.push_reserved(leaf);
            }
            // What is read wrong once is not blamed.
            Err(BadRows::Disk | BadRows::Rotten) if !read.again => {
                read.again = true;
                let (block, frame) = (self.coming(leaf, &read).block, read.frame);
                let _ = self.leaf_reads.insert(leaf, read);
                self.io
                    .submit(world, Operation::Read, block, frame, Purpose::Leaf(leaf));
            }
            Err(bad) => self.leaf_is_over(world, leaf, &read, Err(bad)),
        }
    }

    /// The place of the block that is on its way, or has come.
    fn coming(&self, leaf: NodeId, read: &LeafRead) -> Place {
        match &read.stage {
            Stage::Body { rows, at, body } => rows[*at].0.overflow[body.len() / BLOCK],
            _ => self.table.place(leaf),
        }
    }

    /// Looks whether what has come is what was written.
    fn take_block_of_leaf(&mut self, world: &mut impl World, leaf: NodeId, read: &mut LeafRead) -> Result<(), BadRows> {
        let bytes = world.bytes(read.frame);
        let place = self.coming(leaf, read);
        if !self.checksums.fit(place.checksum, place.block, bytes) {
            return Err(BadRows::Rotten);
        }
        match &mut read.stage {
            Stage::Coming => {
                let reader = LeafReader::new(bytes).map_err(|_| BadRows::Rotten)?;
                let rows = with_room(reader.left).map_err(|NoHeap| BadRows::Memory)?;
                read.stage = Stage::Rows { reader, rows };
            }
            // There is room for all of it.
            Stage::Body { body, .. } => body.extend_from_slice(bytes),
            Stage::Rows { .. } => {}
        }
        Ok(())
    }

    /// Goes on with leaves that have come, as far as the budget reaches; tells whether that were all.
    pub(crate) fn advance_leaves(&mut self, world: &mut impl World) -> bool {
        while let Some(&leaf) = self.leaves_come.first() {
            if !self.may_go_on(COST_BODY) {
                return false;
            }
            let Some(mut read) = self.leaf_reads.remove(leaf) else {
                self.leaves_come.pop();
                continue;
            };
            match self.advance_leaf(world, leaf, &mut read) {
                Ok(Step::Next) => {
                    let _ = self.leaf_reads.insert(leaf, read);
                }
                Ok(Step::Waits) => {
                    let _ = self.leaf_reads.insert(leaf, read);
                    self.leaves_come.pop();
                }
                Ok(Step::Over) => {
                    self.leaves_come.pop();
                    self.leaf_is_over(world, leaf, &read, Ok(()));
                }
                Err(bad) => {
                    self.leaves_come.pop();
                    self.leaf_is_over(world, leaf, &read, Err(bad));
                }
            }
        }
        true
    }

    /// One step: a row, the end of a body, or the leaf that is whole.
    fn advance_leaf(&mut self, world: &mut impl World, leaf: NodeId, read: &mut LeafRead) -> Result<Step, BadRows> {
        let from = match &mut read.stage {
            Stage::Coming => return Ok(Step::Waits),
            Stage::Rows { reader, rows } => {
                self.spend(COST_ROW_READ);
                let row = reader.next(world.bytes(read.frame), self.address_bits);
                match row.map_err(bad_rows)? {
                    Some(row) => {
                        push_reserved(rows, row);
                        return Ok(Step::Next);
                    }
                    None => 0,
                }
            }
            Stage::Body { rows, at, body } => {
                let (row, length) = &mut rows[*at];
                if let Some(place) = row.overflow.get(body.len() / BLOCK) {
                    if !self.allocation.is_used(place.block) {
                        return Err(BadRows::Rotten);
                    }
                    self.io
                        .submit(world, Operation::Read, place.block, read.frame, Purpose::Leaf(leaf));
                    return Ok(Step::Waits);
                }
                self.spend(COST_BODY);
                let body = body.get(..*length).ok_or(BadRows::Rotten)?;
                row.record.decode_body(body, self.address_bits).map_err(bad_rows)?;
                *at + 1
            }
        };
        let (Stage::Rows { rows, .. } | Stage::Body { rows, .. }) = &mut read.stage else {
            return Ok(Step::Waits);
        };
        let next = rows.iter().skip(from).position(|(row, _)| !row.overflow.is_empty());
        let rows = core::mem::take(rows);
        if let Some(next) = next {
            let at = from + next;
            let body = with_room(rows[at].0.overflow.len() * BLOCK).map_err(|NoHeap| BadRows::Memory)?;
            read.stage = Stage::Body { rows, at, body };
            return Ok(Step::Next);
        }
        self.spend(COST_TAKEN_IN);
        let mut whole = with_room(rows.len()).map_err(|NoHeap| BadRows::Memory)?;
        for (row, _) in rows {
            push_reserved(&mut whole, row);
        }
        self.table.install(leaf, read.key, whole).map_err(bad_rows)?;
        Ok(Step::Over)
    }

    /// Tells those who wait for a leaf.
    fn leaf_is_over(&mut self, world: &mut impl World, leaf: NodeId, read: &LeafRead, outcome: Result<(), BadRows>) {
        world.free(read.frame);
        if let Err(bad) = outcome {
            self.table.set_bad(leaf, bad);
        }
        if outcome == Err(BadRows::Rotten) {
            self.note_rotten(self.table.place(leaf), read.key);
        }
        self.events.tell(Event::RowsRead { key: read.key });
    }

    /// Lets leaves go that nobody needs, as far as the budget reaches.
    pub(crate) fn let_leaves_go(&mut self) {
        // What stands beside the table will be entered in leaves that were looked for when it came.
        while self.table.has_surplus() && self.overlay.is_empty() && self.may_go_on(COST_TAKEN_IN) {
            let rows = self.table.evict().unwrap_or_default();
            self.spend(COST_LEAVES_PASSED + COST_HEAP * 3 * rows as u64);
        }
    }

    /// Lets a leaf go that nobody needs though it might stay, because heap is short; tells how many rows it had, or that a part of the table was looked at in vain. `None`: there is no
    /// such leaf.
    pub fn drop_leaf(&mut self) -> Option<u64> {
        let may_go = self.overlay.is_empty() && self.table.has_idle();
        may_go.then(|| self.table.evict().unwrap_or_default() as u64)
    }

    /// The same of the leaf that an address belongs to: how many rows it had, or none if it stays.
    pub fn drop_leaf_at(&mut self, address: u64) -> u64 {
        let may_go = self.overlay.is_empty();
        may_go
            .then(|| self.table.evict_at(address))
            .flatten()
            .unwrap_or_default() as u64
    }

    // ---- looking

    /// The sums over the rows of programs, and over the others.
    pub fn sums(&self) -> [Sums; 2] {
        self.table.totals().sums
    }

    /// Above the birth of every row that there is or was.
    pub fn births(&self) -> u64 {
        self.table.totals().births
    }

    /// Notes that births below that number were given.
    pub fn raise_births(&mut self, births: u64) {
        self.table.raise_births(births.min(BIRTH_END));
    }

    /// Whether the rows of all objects are in memory.
    pub fn has_all_rows(&self) -> bool {
        self.table.has_all_rows()
    }

    /// The object that `address` lies in.
    ///
    /// # Errors
    /// [`Absent`]: rows must be read first.
    pub fn find_containing(&self, address: u64) -> Result<Option<&ObjectRecord>, Absent> {
        let found = self.at_or_before(address)?;
        Ok(found.filter(|record| address < record.end()))
    }

    /// The first object whose base is at least `base`.
    ///
    /// # Errors
    /// [`Absent`]: rows must be read first.
    pub fn find_from(&self, base: u64) -> Result<Option<&ObjectRecord>, Absent> {
        self.at_or_after(base)
    }

    /// Whether the rows are in memory that an object at `base` needs to be entered, or to be made longer.
    ///
    /// # Errors
    /// [`Absent`]: rows must be read first.
    pub fn find_near(&self, base: u64) -> Result<(), Absent> {
        if let Some(absent) = self.table.absent_at(base) {
            return Err(absent);
        }
        if let Some(before) = base.checked_sub(1) {
            self.at_or_before(before)?;
        }
        self.at_or_after(base + 1)?;
        Ok(())
    }

    /// Notes that somebody uses the object at `base`, from now on until it is deleted or [let go](Store::let_go): its row is in memory, as one that was just found is, and stays there.
    pub fn hold(&mut self, base: u64) {
        self.table.touch(base);
        let is_there = self.table.hold(base) || self.overlay.has(base);
        debug_assert!(is_there, "an object that is held was found");
    }

    /// Whether all that is known of the object at `base` is in its row and its map, so that it can be [let go](Store::let_go).
    pub fn may_let_go(&self, base: u64) -> bool {
        let is_noted = |noted: &Map<u64, MapChanges>| noted.has(base);
        let noted = [self.pending.by_object(), &self.settling, &self.settled];
        let is_ahead = self.ahead.has(base, 0, u64::MAX);
        !self.writes_table() && !self.overlay.has(base) && !is_ahead && !noted.into_iter().any(is_noted)
    }

    /// Notes that nobody uses the object at `base` any more: its row may leave memory, unless it will change because the object's map has.
    pub fn let_go(&mut self, base: u64) {
        if self.maps.is_dirty(base) {
            self.table.keep_until_written(base);
        }
        self.table.let_go(base);
    }
}

/// Why rows that make no sense, or for which there is no heap, are not there.
fn bad_rows(unread: Unread) -> BadRows {
    match unread {
        Unread::Nonsense => BadRows::Rotten,
        Unread::NoHeap => BadRows::Memory,
    }
}
