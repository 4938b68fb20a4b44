//! The checkpoint: from the state of one moment to a new durable generation.
//!
//! Phases, each complete before the next begins:
//!
//! 0. *quash*: copies of superblocks that may bear a generation which is not ours (`copies.rs`) are wiped out
//!    first, that of an attempt that failed among them;
//! 1. *land* and *settle*: what syncs ahead of the last one have left (`ahead.rs`), then pending map changes are made in the maps;
//! 2. *doom*: the maps of deleted objects are taken down;
//! 3. *pages*: every dirty page goes to a new block, its map entry follows;
//! 4. *nodes*: every dirty map node goes to a new block, children first;
//! 5. *table*: the same for the object table, and *snapshots*: what tells of one that is made (`keeping.rs`);
//! 6. *bitmap*: what the bitmap region of this generation lacks;
//! 7. *flush*, then *superblock*, its first copy, then *flush*: the commit;
//! 8. *second*: the other copy, which no one waits for. It is stable with the next flush, and at power-off at once.
//!
//! So a crash never leaves both copies of a superblock unreadable: where that is so, the disk has rotted (`loss.rs`).
//!
//! A small checkpoint makes no generation: behind the pages it writes one journal record and flushes (`recorded.rs`).
//!
//! A failure leaves the previous generation untouched. The pages that it wrote stay dirty in memory and
//! go to other blocks next time.

use crate::allocation::Growth;
use crate::breaks::Invariant;
use crate::containers::{List, Map, push_reserved};
use crate::event::{CheckpointKind, DirtyPage, Event, Failure};
use crate::geometry::{Geometry, SUMS, region_of};
use crate::heap::NoHeap;
use crate::io::{Purpose, WRITES_MAX};
use crate::jobs::{Progress, Work};
use crate::map::{Entry, MapKey};
use crate::settle::{Settling, settle, take_down};
use crate::space::Loan;
use crate::store::{COST_BLOCK, COST_FREE, COST_ROW, COST_SIPHASH, COST_STEP, JournalState, Store};
use crate::superblock::{Place, Superblock};
use crate::table::{NodeId, Part};
use crate::world::{DiskError, Frame, Operation, World};
use crate::writing::{PageJob, PageWriter};
use alloc::vec::Vec;
use beside::Turn;
use keeping::Keeping;
use phase::Phase;
use recorded::Recorded;
use relief::{Position, Relief};

mod beside;
mod growing;
mod keeping;
mod phase;
mod reaching;
mod recorded;
mod relief;

/// Slot numbers that a checkpoint leases beyond those issued.
pub(crate) const LEASE_SLACK: u64 = 4096;
/// The further cost of an entry whose path is not that of the page that was begun last.
const COST_ENTRY_APART: u64 = 600;
/// The cost of listing a part of the table, or of passing a child that has not changed.
const COST_LISTED: u64 = 120;
/// The cost of forgetting a deletion, beside that of its step.
const COST_FORGOTTEN: u64 = 200;
/// The cost of a part of the table as bytes, beside that of each of its rows; and of their checksum and the request.
const COST_ENCODE: u64 = 1_500;
const COST_ENCODED_ROW: u64 = 250;
const COST_SUM: u64 = 4_900;
/// Small things that are done in one step of the end.
const STEP_PIECE: usize = 4;

/// How far a phase got.
pub(crate) enum Step {
    /// It is complete.
    Complete,
    /// It waits for something under way.
    Waiting,
}

/// A checkpoint that runs or waits, or the place for the next one.
pub(crate) struct Checkpoint {
    kind: CheckpointKind,
    phase: Phase,
    /// The promises of its pages.
    loan: Loan,
    /// The rest of the blocks promised to it.
    share: u64,
    /// Every page it was given, and how many of them were begun.
    pages: List<DirtyPage>,
    begun: usize,
    /// Pages at the beginning that the maps are known to reach.
    grown: usize,
    /// The object of the last of them, and the pages that its map reaches: nothing takes levels away as long as the checkpoint runs.
    reached: (u64, u64),
    writer: PageWriter<usize>,
    /// Writes of pages that there have been.
    written: usize,
    /// Requests under way.
    outstanding: usize,
    failure: Option<Failure>,
    /// How far the pending changes are made.
    settling: Settling,
    /// The map node that was written last, or given up.
    node: Option<MapKey>,
    /// How nodes are being given up, and how far the work was when that was begun last.
    relief: Relief,
    relieved_at: Option<Position>,
    /// The place where table parts are being listed, those to be written, and how many of them were begun.
    listing: Vec<(NodeId, usize)>,
    parts: List<Part>,
    begun_parts: usize,
    /// The frame in which the next part stands already.
    encoded: Option<Frame>,
    /// Bitmap and index blocks before these are written.
    bitmap: usize,
    index: usize,
    changed: Map<u64, ()>,
    /// The record of a small one.
    recorded: Option<Recorded>,
    /// What it does about snapshots.
    keeping: Option<Keeping>,
    /// What it does about the size of the store.
    growing: Option<Growth>,
    /// How many have begun, this one included.
    number: u64,
    /// The second copy of the superblock, and whether it is stable.
    copy: Option<Frame>,
    copied: bool,
    superblock: Turn,
    lease: u64,
    entered: Option<Phase>,
    /// Whether the disk has done its part, and up to which address deletions that are durable are no longer noted.
    is_ending: bool,
    forgotten: u64,
    /// Whether its failure was told.
    is_told: bool,
}

impl Checkpoint {
    /// With room for the pages that it works at.
    ///
    /// # Errors
    /// [`NoHeap`].
    pub(crate) fn new() -> Result<Self, NoHeap> {
        let mut job = Self::blank();
        job.writer = PageWriter::new()?;
        Ok(job)
    }

    fn blank() -> Self {
        Self {
            kind: CheckpointKind::Periodic,
            phase: Phase::Release,
            loan: Loan::default(),
            share: 0,
            pages: List::default(),
            begun: 0,
            grown: 0,
            reached: (0, 0),
            writer: PageWriter::default(),
            written: 0,
            outstanding: 0,
            failure: None,
            settling: Settling::default(),
            node: None,
            relief: Relief::None,
            relieved_at: None,
            listing: Vec::new(),
            parts: List::default(),
            begun_parts: 0,
            encoded: None,
            bitmap: 0,
            index: 0,
            changed: Map::default(),
            recorded: None,
            keeping: None,
            growing: None,
            number: 0,
            copy: None,
            copied: false,
            superblock: Turn::Any,
            lease: 0,
            entered: None,
            is_ending: false,
            forgotten: 0,
            is_told: false,
        }
    }

    /// Begins anew, with promises for its pages, and so many blocks for nodes; with its number, and blocks of the journal if it is a small one.
    pub(crate) fn begin(
        &mut self,
        pages: List<DirtyPage>,
        kind: CheckpointKind,
        (loan, nodes): (Loan, u64),
        changed: Map<u64, ()>,
        (number, record): (u64, Option<u64>),
    ) {
        let mut before = core::mem::replace(self, Self::blank());
        before.writer.clear();
        *self = Self {
            kind,
            loan,
            share: loan.blocks() + nodes,
            pages,
            changed,
            recorded: record.map(Recorded::new),
            number,
            writer: before.writer,
            ..Self::blank()
        };
    }

    /// The rest of the blocks promised to it.
    pub(crate) fn share(&self) -> u64 {
        self.share
    }

    /// Makes it fail before it has begun: something it relied on did not become durable.
    pub(crate) fn fail(&mut self, reason: Failure) {
        self.failure.get_or_insert(reason);
    }

    /// Takes over what a sync before it leaves of its share: the nodes that it made dirty.
    pub(crate) fn inherit(&mut self, share: u64) {
        self.share += share;
    }

    /// A request of this job is complete.
    pub(crate) fn completed(
        &mut self,
        store: &mut Store,
        world: &mut impl World,
        purpose: Purpose,
        result: Result<(), DiskError>,
    ) {
        self.outstanding -= 1;
        if result.is_err() {
            self.fail(Failure::Disk);
        }
        let Purpose::Write(number, entry) = purpose else { return };
        let Some(page) = self.pages.get(number) else { return };
        if result.is_ok() {
            if !store.is_path_known(page.base, page.page) {
                store.spend(COST_ENTRY_APART);
            }
            let old = store.set_entry(world, page.base, page.page, entry);
            store.allocation.free(old.block);
        } else {
            store.allocation.release(entry.block);
        }
        store.give_back(page);
    }

    pub(crate) fn advance(&mut self, store: &mut Store, world: &mut impl World) -> Progress {
        while self.failure.is_none() && self.phase != Phase::Done {
            let step = match self.relief {
                Relief::None => self.step(store, world),
                Relief::Quiet => Ok(self.quiet_for_relief(store)),
                Relief::Nodes => self.write_for_relief(store, world),
                Relief::Frames => Ok(self.relieve(store, world)),
            };
            match (step, self.relief) {
                (Ok(Step::Complete), Relief::None) => self.phase = self.phase_behind(),
                (Ok(Step::Complete), Relief::Quiet) => self.relief = Relief::Nodes,
                (Ok(Step::Complete), Relief::Nodes) => self.relief = Relief::Frames,
                (Ok(Step::Complete), Relief::Frames) => self.relief = Relief::None,
                (Ok(Step::Waiting), _) => return Progress::Waiting,
                (Err(Failure::Memory), Relief::None) if self.may_relieve(store) => self.relief = Relief::Quiet,
                (Err(reason), _) => self.fail(reason),
            }
        }
        if self.outstanding > 0 || store.beside.is_some() {
            return Progress::Waiting;
        }
        for frame in self.copy.take().into_iter().chain(self.encoded.take()) {
            store.io.recycle(world, frame);
        }
        self.end(store)
    }

    /// A step of the phase. One that fails has not entered it: where memory comes from elsewhere, it is entered again.
    fn step(&mut self, store: &mut Store, world: &mut impl World) -> Result<Step, Failure> {
        let entering = self.entered != Some(self.phase);
        let step = self.step_of_phase(store, world, entering)?;
        self.entered = Some(self.phase);
        Ok(step)
    }

    fn step_of_phase(&mut self, store: &mut Store, world: &mut impl World, entering: bool) -> Result<Step, Failure> {
        match self.phase {
            Phase::Release if store.release_blocks() => Ok(Step::Complete),
            Phase::Release => Ok(Step::Waiting),
            Phase::Quash if entering => self.wipe_doubtful(store, world),
            Phase::QuashFlush => {
                if entering && store.copies.doubtful().next().is_some() {
                    self.submit(store, world, Operation::Flush, 0, Frame(0), Purpose::Flush);
                }
                if self.outstanding == 0 {
                    store.copies.trust_all();
                }
                Ok(self.when_quiet())
            }
            Phase::Rows => Ok(self.record_rows(store)),
            Phase::Land => store.land(world),
            Phase::Settle => settle(store, world, &mut self.settling, self.writer.asks()),
            Phase::Doom => take_down(store, world, self.writer.asks()),
            Phase::Pages => {
                if !self.grow_maps(store, world)? {
                    return Ok(Step::Waiting);
                }
                self.write_pages(store, world)
            }
            Phase::Sum => Ok(self.sum_record(store)),
            Phase::Record => self.write_record(store, world),
            Phase::Nodes => self.write_nodes(store, world),
            Phase::Freed => {
                while let Some(block) = store.table.last_released() {
                    if !store.may_go_on(COST_FREE) {
                        return Ok(Step::Waiting);
                    }
                    store.spend(COST_FREE);
                    store.table.forget_released();
                    store.allocation.free(block);
                }
                Ok(Step::Complete)
            }
            Phase::Table => {
                // Where its first step failed, it goes on.
                if entering && self.parts.is_empty() {
                    self.listing = store.table.begin_listing()?;
                }
                while !self.listing.is_empty() {
                    if !store.may_go_on(COST_LISTED) {
                        return Ok(Step::Waiting);
                    }
                    store.spend(COST_LISTED);
                    store.table.list_dirty(&mut self.listing, &mut self.parts)?;
                }
                self.write_table(store, world)
            }
            Phase::Snapshots => self.write_snapshots(store, world),
            Phase::Grow => Ok(self.make_room(store)),
            Phase::Bitmap => self.write_bitmap(store, world),
            Phase::Index => self.write_index(store, world),
            Phase::Drain if !store.release_blocks() || !store.keep_blocks() || store.copies.under_way > 0 => {
                Ok(Step::Waiting)
            }
            Phase::Quash | Phase::Drain => Ok(self.when_quiet()),
            Phase::Flush => {
                if entering && store.breaks.keeps(Invariant::FlushFirst) {
                    self.submit(store, world, Operation::Flush, 0, Frame(0), Purpose::Flush);
                }
                Ok(self.when_superblock_may_go(store))
            }
            Phase::Superblock => {
                if entering {
                    self.superblock = Turn::Any;
                    store.spend(COST_BLOCK + COST_SIPHASH);
                    self.write_superblock(store, world)?;
                }
                Ok(self.when_quiet())
            }
            Phase::Commit => {
                if entering {
                    self.submit(store, world, Operation::Flush, 0, Frame(0), Purpose::Flush);
                }
                Ok(self.when_quiet())
            }
            // If one of them fails this must, too.
            Phase::Second if store.beside.is_some() => Ok(Step::Waiting),
            Phase::Second => {
                self.write_second(store, world);
                Ok(Step::Complete)
            }
            Phase::SecondFlush if self.kind != CheckpointKind::Shutdown => Ok(Step::Complete),
            Phase::SecondFlush => {
                // The first flush is for what is complete: the copy must be.
                if store.copies.under_way == 0 && core::mem::replace(&mut self.copied, true) {
                    return Ok(Step::Complete);
                }
                if store.copies.under_way == 0 {
                    store.submit_copy(world, None);
                }
                Ok(Step::Waiting)
            }
            Phase::Done => Ok(Step::Complete),
        }
    }

    fn when_quiet(&self) -> Step {
        if self.outstanding == 0 {
            Step::Complete
        } else {
            Step::Waiting
        }
    }

    fn submit(
        &mut self,
        store: &mut Store,
        world: &mut impl World,
        operation: Operation,
        block: u64,
        frame: Frame,
        purpose: Purpose,
    ) {
        self.outstanding += 1;
        store.io.submit(world, operation, block, frame, purpose);
    }

    fn write_pages(&mut self, store: &mut Store, world: &mut impl World) -> Result<Step, Failure> {
        let mut writer = core::mem::take(&mut self.writer);
        let written = writer.write(store, world, self);
        self.writer = writer;
        Ok(if written? { self.when_quiet() } else { Step::Waiting })
    }

    fn write_nodes(&mut self, store: &mut Store, world: &mut impl World) -> Result<Step, Failure> {
        while self.outstanding < WRITES_MAX && store.may_go_on(COST_BLOCK) {
            let Some(key) = store.maps.next_dirty(self.node) else {
                return Ok(Step::Complete);
            };
            let Some(frame) = store.maps.frame(key) else {
                self.node = Some(key);
                continue;
            };
            store.spend(COST_BLOCK);
            let Some(block) = self.block(store)? else {
                return Ok(Step::Waiting);
            };
            self.node = Some(key);
            let entry = Entry {
                block,
                checksum: store.checksums.of(block, world.bytes(frame)),
                ..Entry::NONE
            };
            let old = store.set_node_entry(world, key, entry);
            store.allocation.free(old.block);
            self.submit(store, world, Operation::Write, block, frame, Purpose::Resident);
        }
        Ok(Step::Waiting)
    }

    fn write_table(&mut self, store: &mut Store, world: &mut impl World) -> Result<Step, Failure> {
        while let Some(&part) = self.parts.get(self.begun_parts) {
            // Its bytes and their checksum are two steps, where there are many rows.
            if self.encoded.is_none() {
                let Some(frame) = self.scratch(store, world, COST_ENCODE)? else {
                    return Ok(Step::Waiting);
                };
                let rows = crate::table_format::encode(&store.table, part, world.bytes_mut(frame));
                store.spend(COST_ENCODED_ROW * rows);
                self.encoded = Some(frame);
            }
            if !store.may_go_on(COST_SUM) {
                return Ok(Step::Waiting);
            }
            store.spend(COST_SUM);
            let Some(block) = self.block(store)? else {
                return Ok(Step::Waiting);
            };
            let Some(frame) = self.encoded.take() else {
                return Ok(Step::Waiting);
            };
            let checksum = store.checksums.of(block, world.bytes(frame));
            let old = store.table.set_place(part, Place { block, checksum });
            store.allocation.free(old.block);
            self.begun_parts += 1;
            self.submit(store, world, Operation::Write, block, frame, Purpose::Scratch(frame));
        }
        Ok(Step::Complete)
    }

    /// A block to write to, or `None` if one may come back soon: after a job that failed, each of its pages still has a block, and gives it back when it is
    /// written anew.
    fn block(&mut self, store: &mut Store) -> Result<Option<u64>, Failure> {
        match store.take_young_block(&mut self.share) {
            Err(Failure::DiskFull) if self.outstanding > 0 => Ok(None),
            taken => taken.map(Some),
        }
    }

    /// A frame to write from, at that cost, or `None` if one will come back soon, or no more may be done now.
    fn scratch(&self, store: &mut Store, world: &mut impl World, cost: u64) -> Result<Option<Frame>, Failure> {
        if self.outstanding >= WRITES_MAX || !store.may_go_on(COST_BLOCK) {
            return Ok(None);
        }
        match store.io.frame(world) {
            Some(frame) => {
                store.spend(cost);
                Ok(Some(frame))
            }
            None if self.outstanding > 0 => Ok(None),
            None => Err(Failure::Memory),
        }
    }

    fn write_bitmap(&mut self, store: &mut Store, world: &mut impl World) -> Result<Step, Failure> {
        let region = region_of(store.generation + 1);
        while let Some(block) = store.allocation.next_stale(region, self.bitmap) {
            let mut sum = 0;
            if store.allocation.is_free(block) {
                if !store.may_go_on(COST_LISTED) {
                    return Ok(Step::Waiting);
                }
                store.spend(COST_LISTED);
            } else {
                let Some(frame) = self.scratch(store, world, COST_BLOCK)? else {
                    return Ok(Step::Waiting);
                };
                let at = self.geometry(store).bitmap_start(region) + block as u64;
                store.allocation.encode(block, world.bytes_mut(frame));
                sum = store.checksums.of(at, world.bytes(frame));
                self.submit(store, world, Operation::Write, at, frame, Purpose::Scratch(frame));
            }
            store.allocation.set_sum(region, block, sum);
            self.bitmap = block + 1;
        }
        Ok(Step::Complete)
    }

    fn write_index(&mut self, store: &mut Store, world: &mut impl World) -> Result<Step, Failure> {
        let region = region_of(store.generation + 1);
        // Nothing changes the bitmap any more, so the index blocks to be written are those above what it lacked.
        while let Some(block) = store.allocation.next_stale(region, self.index * SUMS as usize) {
            let block = block / SUMS as usize;
            let mut sum = 0;
            if !store.allocation.is_index_free(region, block) {
                let Some(frame) = self.scratch(store, world, COST_BLOCK)? else {
                    return Ok(Step::Waiting);
                };
                let at = self.geometry(store).index_start(region) + block as u64;
                store.allocation.encode_index(region, block, world.bytes_mut(frame));
                sum = store.checksums.of(at, world.bytes(frame));
                self.submit(store, world, Operation::Write, at, frame, Purpose::Scratch(frame));
            }
            store.allocation.regions[region].index[block] = sum;
            self.index = block + 1;
        }
        Ok(Step::Complete)
    }

    fn write_superblock(&mut self, store: &mut Store, world: &mut impl World) -> Result<(), Failure> {
        let generation = store.generation + 1;
        let clean = self.kind == CheckpointKind::Shutdown;
        self.lease = if clean {
            store.high_water
        } else {
            store.high_water.saturating_add(LEASE_SLACK)
        };
        let first = store.io.frame(world).ok_or(Failure::Memory)?;
        let geometry = self.geometry(store);
        let index = &mut store.allocation.regions[region_of(generation)].index;
        let mut superblock = Superblock {
            index: core::mem::take(index),
            generation,
            nonce: store.nonce,
            key: store.checksums.key(),
            of_version_1: store.checksums.of_version_1,
            leaves_are_told: true,
            totals: store.table.totals(),
            writing: 0,
            snapshots: self.list(store),
            geometry,
            address_bits: store.address_bits,
            clean,
            journal_root: self.number,
            table: store.table.root_place(),
            objects: store.table.len(),
            high_water: store.high_water,
            lease: self.lease,
        };
        let sums = superblock.index.len();
        // What is new is all free. There is room: heap was found for it.
        (sums..geometry.index_blocks() as usize).for_each(|_| push_reserved(&mut superblock.index, 0));
        superblock.encode(Geometry::superblock(generation, 0), world.bytes_mut(first));
        superblock.index.truncate(sums);
        store.allocation.regions[region_of(generation)].index = superblock.index;
        self.copy = store.io.frame(world);
        if let Some(frame) = self.copy {
            let bytes = *world.bytes(first);
            *world.bytes_mut(frame) = bytes;
        }
        let block = store.copies.begin(generation);
        self.submit(store, world, Operation::Write, block, first, Purpose::Scratch(first));
        Ok(())
    }

    /// Wipes the copies of superblocks that nothing may build on.
    fn wipe_doubtful(&mut self, store: &mut Store, world: &mut impl World) -> Result<Step, Failure> {
        for block in store.copies.doubtful() {
            let frame = store.io.frame(world).ok_or(Failure::Memory)?;
            world.bytes_mut(frame).fill(0);
            self.submit(store, world, Operation::Write, block, frame, Purpose::Scratch(frame));
        }
        Ok(self.when_quiet())
    }

    /// Writes the second copy, now that the first is stable. Without it the generation is durable all the same.
    fn write_second(&mut self, store: &mut Store, world: &mut impl World) {
        let [_, block] = store.copies.blocks(store.generation + 1);
        match self.copy.take() {
            Some(frame) => store.submit_copy(world, Some((frame, block))),
            // It is of an older generation.
            None => store.copies.note_bad(block),
        }
    }

    /// The disk has done its part, one way or the other: the rest is done in memory, as far as the budget reaches.
    fn end(&mut self, store: &mut Store) -> Progress {
        if !core::mem::replace(&mut self.is_ending, true) {
            while let Some(at) = self.writer.pop() {
                self.pages.get(at).iter().for_each(|page| store.give_back(page));
            }
            store.over = core::mem::take(&mut self.pages);
            store.returned = if store.events.omits_pages {
                store.over.len()
            } else {
                self.begun
            };
            match self.failure {
                None => self.commit(store),
                Some(_) => self.abort(store),
            }
        }
        while store.may_go_on(COST_STEP) {
            let more = match self.failure {
                None => self.commit_step(store),
                Some(_) => self.abort_step(store),
            };
            // Last, for a snapshot that is made holds what is used.
            let more = more || store.own_some();
            if more {
                store.spend(COST_STEP);
                continue;
            }
            store.table_done = true;
            if !store.may_go_on(COST_ROW) {
                break;
            }
            store.spend(COST_ROW);
            if !store.merge_one() {
                self.tell(store);
                return Progress::Over;
            }
        }
        Progress::Waiting
    }

    /// The record is durable, or the new generation is the one that is.
    fn commit(&mut self, store: &mut Store) {
        store.budget = store.budget.saturating_sub(self.share);
        store.promises.settle(self.loan);
        if let Some(recorded) = &mut self.recorded {
            recorded.done(store);
            return;
        }
        store.generation += 1;
        store.copies.first_is_written();
        store.unnoted = store.unnoted.filter(|&before| before >= self.number);
        store.allocation.commit(region_of(store.generation));
        self.commit_growth(store);
        self.commit_snapshots(store);
        store.lease = self.lease;
        (store.journal, store.is_sealed) = (store.ahead.chain, store.ahead.is_sealed);
        store.journal_state = JournalState::Open;
    }

    fn commit_step(&mut self, store: &mut Store) -> bool {
        if self.recorded.is_some() {
            return store.forget_settled() || store.drop_rows(&mut self.changed);
        }
        for _ in 0..STEP_PIECE {
            let Some((base, &before)) = store.deleted.from(self.forgotten) else {
                self.forgotten = u64::MAX;
                break;
            };
            if before < self.number {
                store.spend(COST_FORGOTTEN);
                store.deleted.remove(base);
            }
            self.forgotten = base + 1;
        }
        let parts = (0..STEP_PIECE).map_while(|_| self.parts.pop());
        parts.for_each(|part| store.table.clear_dirty(part));
        !self.parts.is_empty()
            || self.forgotten < u64::MAX
            || store.maps.clean_some()
            || store.forget_settled()
            || store.drop_rows(&mut self.changed)
            || self.grow_some(store)
            || self.hold_some(store)
    }

    /// Its pages are promised their room again as they are [taken back](Store::page_over).
    fn abort(&mut self, store: &mut Store) {
        store.budget = (store.budget + self.loan.blocks()).saturating_sub(self.share);
        store.over_share = Some((self.loan, self.loan.blocks()));
        store.is_undoing = true;
        store.ahead.take_back();
        if self.recorded.is_some() {
            // The record may be on the disk: none may follow it in this generation. Nothing else was written but pages.
            store.journal_state = JournalState::Closed;
            return;
        }
        if self.phase >= Phase::Superblock {
            // The next mount may find this generation: nothing may build on the one before.
            let [block, _] = store.copies.blocks(store.generation + 1);
            store.copies.doubt(block);
            store.journal_state = JournalState::Closed;
        }
        store.allocation.restale(region_of(store.generation + 1));
    }

    fn abort_step(&mut self, store: &mut Store) -> bool {
        if self.give_snapshots_up(store) {
            return true;
        }
        // Nodes stay dirty; overflow blocks have no mark of their own but that they lie nowhere.
        if let Some(part) = self.parts.pop() {
            if matches!(part, Part::Overflow(..)) && self.parts.len() < self.begun_parts {
                let place = store.table.set_place(part, Place::default());
                store.allocation.free(place.block);
            }
            return true;
        }
        // Changes made in the maps are not durable: a sync must still carry them.
        if store.change_comes_back(&mut []) || store.settling_comes_back() {
            return true;
        }
        let changed = self.changed.pop_first();
        store.changed_again(changed.into_iter().map(|(base, ())| base));
        if changed.is_some() || store.drop_rows(&mut self.changed) {
            return true;
        }
        if !core::mem::replace(&mut self.is_told, true) {
            let reason = self.failure.unwrap_or(Failure::Checkpoint);
            store.events.tell(Event::CheckpointFailed { reason });
        }
        // No checkpoint waits while one runs. The job that was to come after this one fails too.
        if let Some(Work::Sync(request)) = store.queue.pop() {
            store.undo(&request, |ticket| Event::SyncFailed(ticket, Failure::Checkpoint));
            return true;
        }
        false
    }

    /// All is done.
    fn tell(&mut self, store: &mut Store) {
        store.frozen = false;
        store.is_undoing = false;
        store.deleted.release(0);
        if !self.is_told {
            store.events.tell(Event::CheckpointDone {
                generation: store.generation,
            });
        }
    }
}

impl PageJob for Checkpoint {
    type At = usize;

    fn next(&mut self, store: &mut Store) -> Result<Option<usize>, Failure> {
        if self.has_next() {
            let events = store.events.of_pages(1);
            store.events.expect(events)?;
            self.begun += 1;
            return Ok(Some(self.begun - 1));
        }
        Ok(None)
    }
    fn has_next(&self) -> bool {
        self.begun < self.pages.len()
    }
    fn page(&self, at: usize) -> Option<DirtyPage> {
        self.pages.get(at).copied()
    }
    fn wants(&self, page: DirtyPage, pages: Option<u64>) -> bool {
        // Not what was deleted or cut off before the checkpoint was begun.
        pages.is_some_and(|pages| page.page < pages)
    }
    fn take_block(&mut self, store: &mut Store, _: usize) -> Result<u64, Failure> {
        if self.recorded.is_some() {
            store.take_block(&mut self.share)
        } else {
            store.take_young_block(&mut self.share)
        }
    }
    fn placed(&mut self, at: usize, entry: Entry) -> Purpose {
        if let (Some(recorded), Some(page)) = (&mut self.recorded, self.pages.get(at)) {
            recorded.put_page(page, entry);
        }
        self.written += 1;
        Purpose::Write(at, entry)
    }
    fn outstanding(&mut self) -> &mut usize {
        &mut self.outstanding
    }
}
