//! The mounted store: its state and how it is driven.
//!
//! Long work is *jobs*. Two kinds write, checkpoints and syncs; they run one at a time, in the order in
//! which they were begun, and only they change the page maps. Reads run beside them. Every job
//! is advanced by [`Store::poll`] when requests complete; nothing ever waits.
//!
//! From the moment a checkpoint is begun until it is done the table and the maps are *frozen*: changes
//! go to an overlay (`objects.rs`) and to the pending map changes (`pending.rs`), which every
//! lookup sees, so that the checkpoint holds exactly the state of the moment it was begun.

use crate::ahead::Ahead;
use crate::allocation::Allocation;
use crate::breaks::Breaks;
use crate::budget::Budget;
use crate::checkpoint::Checkpoint;
use crate::checksum::Checksums;
use crate::containers::List;
use crate::containers::{Boxed, Map, Queue, boxed};
use crate::copies::Copies;
use crate::event::{CheckpointKind, DirtyPage, Event, Events, Failure, MountMode, NotBegun, Stats, Ticket, written};
use crate::geometry::Geometry;
use crate::heap::NoHeap;
use crate::io::{Io, Purpose};
use crate::jobs::{Running, Work};
use crate::journal::Chain;
use crate::loading::{BadLoads, Load};
use crate::loss::Loss;
use crate::map::{MapKey, MapRoot, Maps};
use crate::pages::{Pass, Read};
use crate::pending::{MapChanges, Pending};
use crate::record::ObjectRecord;
use crate::rows::LeafRead;
use crate::scrub::Scrub;
use crate::snapshots::Snapshots;
use crate::space::{Loan, POOL, Promises};
use crate::sync::SyncGroup;
use crate::table::{NodeId, Table};
use crate::world::{DiskError, Frame, Operation, World};
use alloc::vec::Vec;

/// Whether the journal takes records.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum JournalState {
    /// It does.
    Open,
    /// A record may or may not be on the disk: none may follow it in this generation.
    Closed,
}

/// The reaction of a job to a damaged map node.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum OnDamage {
    /// It makes a node that says so of all its children, and goes on.
    GoOn,
    /// The same, and the loss is noted: a mount reports it.
    Note,
    /// It fails: a mount must not make the loss final.
    Stop,
}

/// A mounted store.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each says one thing, and they are independent"
)]
pub struct Store {
    pub(crate) mode: MountMode,
    pub(crate) breaks: Breaks,
    pub(crate) geometry: Geometry,
    /// Map nodes that small checkpoints leave changed in memory, at most.
    pub(crate) unwritten_nodes_max: usize,
    pub(crate) checksums: Checksums,
    pub(crate) address_bits: u32,
    pub(crate) nonce: u64,
    /// The last durable generation.
    pub(crate) generation: u64,
    pub(crate) high_water: u64,
    pub(crate) lease: u64,
    pub(crate) journal: Chain,
    pub(crate) journal_state: JournalState,
    /// Whether the last record names no page: a mount believes it without looking for what it names.
    pub(crate) is_sealed: bool,
    /// The copies of superblocks.
    pub(crate) copies: Copies,
    /// The reaction to a damaged map node, and the losses found so far.
    pub(crate) on_damage: OnDamage,
    pub(crate) losses: Vec<Loss>,

    pub(crate) allocation: Allocation,
    pub(crate) snapshots: Snapshots,
    pub(crate) promises: Promises,
    /// Blocks that the running and the waiting jobs may still take: the sum of their shares.
    pub(crate) budget: u64,

    pub(crate) table: Table,
    pub(crate) maps: Maps,
    /// Changes to the table while it is frozen; `None` deletes.
    pub(crate) overlay: Map<u64, Option<ObjectRecord>>,
    /// Blocks that their records may take.
    pub(crate) overlay_blocks: u64,
    pub(crate) overlay_deletions: usize,
    /// Changes to maps, by object, that no job has taken over.
    pub(crate) pending: Pending,
    /// Those of objects that are not entered yet.
    pub(crate) prepared: Pending,
    /// Those that the running or waiting checkpoint makes.
    pub(crate) settling: Map<u64, MapChanges>,
    /// Those that it has made.
    pub(crate) settled: Map<u64, MapChanges>,
    /// Maps of deleted objects, to be taken down by the next checkpoint.
    pub(crate) doomed: Map<u64, MapRoot>,
    /// Rows changed since the last checkpoint was begun and not carried by a sync.
    pub(crate) changed: Map<u64, ()>,
    /// Whether there are others for which no heap was found, so that only a generation carries them: how many checkpoints had begun before.
    pub(crate) unnoted: Option<u64>,
    /// Deleted objects whose deletion is not yet in a durable checkpoint, each with the number of checkpoints that had begun before it; and how many have
    /// now.
    pub(crate) deleted: Map<u64, u64>,
    pub(crate) checkpoints: u64,

    /// Pages handed over for the next checkpoint, and the blocks promised to them.
    pub(crate) collected: List<DirtyPage>,
    pub(crate) collected_share: Loan,
    /// Pages of the last checkpoint that is over, how many of the leading ones the caller has back, and if it failed, what was promised to
    /// them, with what is left of the blocks.
    pub(crate) over: List<DirtyPage>,
    pub(crate) returned: usize,
    pub(crate) over_share: Option<(Loan, u64)>,
    /// Whether a job that failed is being undone: until that is done nothing builds on what was before it.
    pub(crate) is_undoing: bool,

    pub(crate) io: Io,
    pub(crate) loads: Map<MapKey, Load>,
    /// Leaves of the table that are being read, and those of them of which a block has come.
    pub(crate) leaf_reads: Map<NodeId, LeafRead>,
    pub(crate) leaves_come: Queue<NodeId>,
    /// Nodes that could not be read, for those who wait for them.
    pub(crate) bad_loads: BadLoads,
    /// Nodes that came so far, well or not: a job that waits for one need not look again before this moves on.
    pub(crate) nodes_came: u64,
    /// How far the reads that wait for nodes were looked at.
    pub(crate) pass: Pass,
    pub(crate) page_reads: Map<u64, Read>,
    pub(crate) next_read: u64,
    pub(crate) queue: Queue<Work>,
    /// The jobs that do not run, so that they can be begun without heap.
    pub(crate) idle_checkpoint: Option<Boxed<Checkpoint>>,
    pub(crate) idle_group: Option<Boxed<SyncGroup>>,
    /// Whether a checkpoint runs or waits.
    pub(crate) frozen: bool,
    /// Whether that one has done with the table, and only what stands beside it is still to be entered.
    pub(crate) table_done: bool,
    pub(crate) running: Running,
    /// The syncs that go ahead of the checkpoint that runs, and what such syncs have left.
    pub(crate) beside: Option<Boxed<SyncGroup>>,
    pub(crate) ahead: Ahead,
    pub(crate) next_ticket: u64,
    pub(crate) events: Events,
    pub(crate) damaged: u64,
    pub(crate) scrub: Scrub,
    /// Whether something happened that may let a job go on.
    pub(crate) awake: bool,
    /// A completion for which too little was left of the budget.
    pub(crate) arrived: Option<(Purpose, Result<(), DiskError>)>,
    /// The budget of the poll under way, and whether work was left for want of it.
    allowance: Budget,
    stopped: bool,
    /// Whether the budget was used up before the jobs had their turn, and whether they had it first with the one before.
    passed_over: bool,
    jobs_went_first: bool,
}

/// Map nodes that small checkpoints leave changed in memory, at most, unless somebody says otherwise.
const UNWRITTEN_NODES: usize = 256;
/// Map nodes on their way that there is always room for.
pub(crate) const LOADS_MIN: usize = 64;

/// The cost of a block, checksum and request included.
pub(crate) const COST_BLOCK: u64 = 6_400;
/// The cost of a block that came with others in one request.
const COST_BLOCK_OF_RUN: u64 = 3_100;
/// The cost of `SipHash` over a block: the checksum of superblocks, and one that a block may bear that is read in an image of version 1.
pub(crate) const COST_SIPHASH: u64 = 10_500;
/// The cost of the completion of a write and its map entry.
const COST_WRITTEN: u64 = 1_500;
/// The same of one that was one request with another.
const COST_WRITTEN_BESIDE: u64 = 700;
/// The cost of looking how a read may go on, and of asking for its block.
pub(crate) const COST_READ: u64 = 2_400;
/// The cost of looking at a read whose contents are on their way.
pub(crate) const COST_LOOK: u64 = 60;
/// The cost of an event.
const COST_EVENT: u64 = 600;
/// The cost of setting a block free.
pub(crate) const COST_FREE: u64 = 300;
/// The cost of marking a piece of the blocks that may be used again.
const COST_RELEASE: u64 = 3_200;
/// The cost of entering a row in the table.
pub(crate) const COST_ROW: u64 = 5_000;
/// The cost of giving an allocation back.
pub(crate) const COST_HEAP: u64 = 200;
/// The cost of a step of the end of a job: a row, a change of a map, or a page.
pub(crate) const COST_STEP: u64 = 1_500;

/// The parts of a new store.
pub(crate) struct Parts {
    pub(crate) mode: MountMode,
    pub(crate) breaks: Breaks,
    pub(crate) geometry: Geometry,
    pub(crate) checksums: Checksums,
    pub(crate) address_bits: u32,
    pub(crate) generation: u64,
    pub(crate) nonce: u64,
    pub(crate) high_water: u64,
    pub(crate) lease: u64,
    pub(crate) journal_root: u64,
    pub(crate) allocation: Allocation,
    pub(crate) snapshots: Snapshots,
    pub(crate) table: Table,
    pub(crate) io: Io,
}

impl Store {
    /// # Errors
    /// [`NoHeap`].
    pub(crate) fn from_parts(parts: Parts) -> Result<Self, NoHeap> {
        let mut store = Self {
            mode: parts.mode,
            breaks: parts.breaks,
            geometry: parts.geometry,
            unwritten_nodes_max: UNWRITTEN_NODES,
            checksums: parts.checksums,
            address_bits: parts.address_bits,
            nonce: parts.nonce,
            generation: parts.generation,
            high_water: parts.high_water,
            lease: parts.lease,
            journal: Chain::new(parts.generation, parts.nonce, parts.journal_root),
            journal_state: JournalState::Open,
            is_sealed: true,
            copies: Copies::default(),
            on_damage: OnDamage::GoOn,
            losses: Vec::new(),
            allocation: parts.allocation,
            snapshots: parts.snapshots,
            promises: Promises::default(),
            budget: 0,
            table: parts.table,
            maps: Maps::default(),
            overlay: Map::default(),
            overlay_blocks: 0,
            overlay_deletions: 0,
            pending: Pending::default(),
            prepared: Pending::default(),
            settling: Map::default(),
            settled: Map::default(),
            doomed: Map::default(),
            changed: Map::default(),
            unnoted: None,
            deleted: Map::default(),
            checkpoints: 0,
            collected: List::default(),
            collected_share: Loan::default(),
            over: List::default(),
            returned: 0,
            over_share: None,
            is_undoing: false,
            io: parts.io,
            loads: Map::default(),
            leaf_reads: Map::default(),
            leaves_come: Queue::default(),
            bad_loads: BadLoads::default(),
            nodes_came: 0,
            pass: Pass::default(),
            page_reads: Map::default(),
            next_read: 0,
            queue: Queue::default(),
            idle_checkpoint: Some(boxed(Checkpoint::new()?)?),
            idle_group: Some(boxed(SyncGroup::new()?)?),
            frozen: false,
            table_done: false,
            running: Running::Nothing,
            beside: None,
            ahead: Ahead::default(),
            next_ticket: 1,
            events: Events::default(),
            damaged: 0,
            scrub: Scrub::default(),
            awake: false,
            arrived: None,
            allowance: Budget::ALL,
            stopped: false,
            passed_over: false,
            jobs_went_first: false,
        };
        // The room that a checkpoint needs is there from now on.
        store.loads.reserve(LOADS_MIN)?;
        store.bad_loads.reserve(LOADS_MIN)?;
        store.maps.expect()?;
        store.io.expect(LOADS_MIN)?;
        store.queue.reserve(LOADS_MIN)?;
        store.events.expect(LOADS_MIN)?;
        store.events.forget(LOADS_MIN);
        Ok(store)
    }

    /// Takes something off the budget.
    pub(crate) fn spend(&mut self, cost: u64) {
        self.allowance.spend(cost);
    }

    /// The rest of the budget.
    pub(crate) fn allowance(&self) -> u64 {
        self.allowance.left()
    }

    /// Work was left for want of a budget: the next poll goes on.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
        self.awake = true;
    }

    /// Whether the last poll has left work that waits for nothing but a budget.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Whether the budget allows something of that cost. If not, the next poll goes on.
    pub(crate) fn may_go_on(&mut self, cost: u64) -> bool {
        if self.stopped || !self.allowance.allows(cost) {
            self.stop();
        }
        !self.stopped
    }

    /// Takes up completions, advances the jobs and gives the next event, if there is one. To be
    /// called after every completion interrupt and after anything was begun, until it gives `None`; and again if it has
    /// [stopped](Store::is_stopped) then.
    pub fn poll(&mut self, world: &mut impl World) -> Option<Event> {
        self.poll_within(world, &mut { Budget::ALL })
    }

    /// The same within the budget of an event: `None` with work left if that is used up.
    pub fn poll_within(&mut self, world: &mut impl World, budget: &mut Budget) -> Option<Event> {
        self.allowance = *budget;
        let event = self.poll_some(world);
        // Work outside of polls, a mount for one, has no bound.
        *budget = core::mem::replace(&mut self.allowance, Budget::ALL);
        event
    }

    fn poll_some(&mut self, world: &mut impl World) -> Option<Event> {
        self.stopped = false;
        if self.allowance.is_untouched() {
            // However much is read: without checkpoints there would be no memory to read into at last. Not twice in turn, for jobs
            // may wait for what is yet to be taken up.
            let jobs_first = core::mem::take(&mut self.passed_over) && !self.jobs_went_first;
            self.jobs_went_first = jobs_first;
            if jobs_first {
                self.advance_jobs(world);
            }
        }
        // Rows that found no heap when the checkpoint ended.
        while !self.frozen && !self.overlay.is_empty() && self.may_go_on(COST_ROW) {
            // One that fails leaves the budget untouched: reads, which may give heap back, go on.
            if !self.merge_one() {
                break;
            }
            self.spend(COST_ROW);
        }
        loop {
            self.io.pump(world);
            self.take_up(world);
            if !self.awake {
                // A poll that comes soon may bring writes of the next blocks.
                if self.stopped || self.io.may_grow() || !self.io.pump_all(world) {
                    break;
                }
                continue;
            }
            self.awake = false;
            let all_read = self.advance_leaves(world) && self.advance_reads(world);
            // Too little for what a job does next is as good as no turn.
            self.passed_over = !self.allowance.allows(COST_BLOCK);
            if !all_read || !self.may_go_on(1) {
                break;
            }
            self.advance_jobs(world);
            if self.stopped {
                break;
            }
            self.release_blocks();
            self.let_leaves_go();
            // All who waited have seen what came.
            self.bad_loads.clear();
            self.maps.release_arrived();
            self.advance_reclaim(world);
            self.advance_scrub(world);
        }
        if self.stopped {
            self.io.pump_at_rest(world);
        }
        if let Some(&page) = self.over.get(self.returned) {
            // There may be very many of these. The others are no more than what was done.
            if !self.may_go_on(COST_EVENT) {
                return None;
            }
            self.spend(COST_EVENT);
            self.returned += 1;
            return Some(written(&page));
        }
        // Few at a time, for the steps that lead to them have paid.
        let event = self.events.take();
        if event.is_some() {
            self.spend(COST_EVENT);
        }
        event
    }

    /// Lets blocks be used again that nothing needs since the last checkpoint, as far as the budget reaches; tells whether that were all.
    pub(crate) fn release_blocks(&mut self) -> bool {
        while self.allocation.is_releasing() {
            if !self.may_go_on(COST_RELEASE) {
                return false;
            }
            self.spend(COST_RELEASE);
            let promised = self.needed() + POOL;
            self.allocation.release_some(promised);
        }
        true
    }

    /// Keeps blocks back for reads that began before the current generation was durable, as far as the budget reaches; tells whether that were
    /// all. Reads are numbered in the order in which they began.
    pub(crate) fn keep_blocks(&mut self) -> bool {
        let first = self.page_reads.values().next();
        let keeps = first.is_some_and(|read| read.generation < self.generation);
        while keeps && self.may_go_on(COST_RELEASE) {
            self.spend(COST_RELEASE);
            if !self.allocation.keep_some() {
                return true;
            }
        }
        !keeps
    }

    /// Takes up completions, as far as the budget reaches.
    fn take_up(&mut self, world: &mut impl World) {
        // Nothing left is no reason to come again where nothing has come: jobs that wait for the disk would look again and again.
        loop {
            let beside = self.io.has_more() && self.arrived.is_none();
            let Some((purpose, result)) = self.arrived.take().or_else(|| self.io.complete(world)) else {
                break;
            };
            let cost = if beside {
                COST_WRITTEN_BESIDE
            } else {
                self.cost_of(&purpose)
            };
            if !self.may_go_on(cost) {
                self.arrived = Some((purpose, result));
                return;
            }
            self.spend(cost);
            self.awake = true;
            self.dispatch(world, purpose, result);
            self.io.pump(world);
        }
    }

    /// Whether a checkpoint can begin: none runs, and no job that failed is being undone.
    pub fn is_ready(&self) -> bool {
        !self.frozen && !self.is_undoing
    }

    /// Whether the second copies of superblocks are written, too, or given up.
    pub fn is_copied(&self) -> bool {
        self.copies.under_way == 0
    }

    /// Whether no job runs or waits, nothing is under way on the disk and no event waits.
    pub fn is_idle(&self) -> bool {
        matches!(self.running, Running::Nothing)
            && self.queue.is_empty()
            && self.io.is_idle()
            && self.arrived.is_none()
            && self.events.is_empty()
    }

    /// Begins to make the present state durable: the table as it now is, what was handed over by
    /// [`Store::freeze_page`], and `dirty`, which together must name every page changed since the last checkpoint. The frames stay frozen until
    /// [`Event::PageWritten`] gives each back; [`Event::CheckpointDone`] or
    /// [`Event::CheckpointFailed`] ends it.
    ///
    /// # Errors
    /// [`NotBegun`]; nothing was taken.
    pub fn checkpoint_begin(
        &mut self,
        world: &mut impl World,
        dirty: Vec<DirtyPage>,
        kind: CheckpointKind,
    ) -> Result<(), NotBegun> {
        let _ = &world;
        if !self.is_ready() {
            return Err(NotBegun::Busy);
        }
        debug_assert!(
            self.over_share.is_none(),
            "pages of a checkpoint that failed have come back"
        );
        while self.page_over().is_some() {}
        if self.is_short() {
            return Err(NotBegun::Memory);
        }
        self.expect_job(1).map_err(|NoHeap| NotBegun::Memory)?;
        let Some(mut job) = self.idle_checkpoint.take() else {
            return Err(NotBegun::Busy);
        };
        let mut failure = None;
        for page in dirty {
            if let Err(reason) = self.freeze_page(page) {
                self.events.mention(written(&page));
                failure = Some(reason);
            }
        }
        let wanted = self.snapshots.take();
        let of_snapshots = wanted.map_or(0, |(_, blocks)| blocks);
        let root = self.checkpoints + 1;
        let landing = self.ahead.begin(Chain::new(self.generation + 1, self.nonce, root));
        let nodes = self.maps.dirty_len() as u64 + self.pending.cost() + self.table_cost() + of_snapshots + landing;
        self.budget += nodes;
        let loan = core::mem::take(&mut self.collected_share);
        let pages = core::mem::take(&mut self.collected);
        // None is being settled now, and each of the maps has room for all.
        self.pending.hand_over(&mut self.settling);
        let changed = core::mem::take(&mut self.changed);
        self.checkpoints = root;
        let record = self
            .record_for(kind, pages.len(), &changed)
            .filter(|_| wanted.is_none());
        job.begin(pages, kind, (loan, nodes), changed, (self.checkpoints, record));
        job.keep(wanted);
        job.grow(self.allocation.take_growth());
        if let Some(reason) = failure {
            job.fail(reason);
        }
        if self.mode == MountMode::ReadOnly {
            job.fail(Failure::ReadOnly);
        }
        self.queue.push_reserved(Work::Checkpoint(job));
        self.frozen = true;
        self.table_done = false;
        self.awake = true;
        Ok(())
    }

    /// Finds heap for one more job and its events.
    pub(crate) fn expect_job(&mut self, events: usize) -> Result<(), NoHeap> {
        self.queue.reserve(self.queue.count() + 1)?;
        self.events.expect(events)
    }

    /// Whether the table and the maps belong to a checkpoint.
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// The cost of taking a completion up.
    fn cost_of(&self, purpose: &Purpose) -> u64 {
        match purpose {
            Purpose::Page(_)
            | Purpose::Node(_)
            | Purpose::Leaf(_)
            | Purpose::Run(_)
            | Purpose::Scrub
            | Purpose::Reclaim
                if self.checksums.of_version_1 =>
            {
                COST_BLOCK + COST_SIPHASH
            }
            Purpose::Page(_) | Purpose::Node(_) | Purpose::Leaf(_) | Purpose::Scrub | Purpose::Reclaim => COST_BLOCK,
            Purpose::Run(_) => COST_BLOCK_OF_RUN,
            _ => COST_WRITTEN,
        }
    }

    /// From now on the caller takes pages back with the checkpoint or sync that they belong to, by [`Store::page_over`] or because it knows them, and is not told of each. To
    /// be called before the first job.
    pub fn omit_pages(&mut self) {
        self.events.omits_pages = true;
    }

    /// Gives some heap back of lists that were long, to be called now and then.
    pub fn give_heap_back(&mut self) {
        let _ = self.changed.give_back()
            || self.deleted.give_back()
            || self.overlay.give_back()
            || self.doomed.give_back()
            || self.pending.give_back()
            || self.settling.give_back()
            || self.settled.give_back()
            || self.maps.give_back()
            || self.promises.give_back()
            || self.loads.give_back()
            || self.leaf_reads.give_back()
            || self.page_reads.give_back();
    }

    /// Writes the second copy of a superblock from a frame of ours to its block, or flushes it.
    pub(crate) fn submit_copy(&mut self, world: &mut impl World, place: Option<(Frame, u64)>) {
        self.copies.under_way += 1;
        let (operation, (frame, block)) = match place {
            Some(place) => (Operation::Write, place),
            None => (Operation::Flush, (Frame(0), 0)),
        };
        self.io.submit(world, operation, block, frame, Purpose::Copy(place));
    }

    /// Gives all frames back. For host tools; nothing is written.
    pub fn dismantle(mut self, world: &mut impl World) {
        self.scrub_dismantle(world);
        self.maps.clear(world);
        self.io.empty_reserve(world);
    }

    // ---- space

    /// Blocks for a complete rewrite of the table, and for its growth.
    pub(crate) fn table_cost(&self) -> u64 {
        self.table.blocks() + self.table.height() + 1
    }

    /// Says how many map nodes small checkpoints may leave changed in memory, which stay there until one makes a generation. A part of the memory.
    pub fn keep_unwritten(&mut self, nodes: usize) {
        self.unwritten_nodes_max = nodes;
    }

    /// Has an empty record stand behind the last one, if that names pages: the disk holds these then, and a mount tells a page that has rotted by its name instead
    /// of taking the record for one that the power cut off. To be called when there is nothing else to do; what becomes of that sync does not matter.
    pub fn seal(&mut self, world: &mut impl World) -> Option<Ticket> {
        if self.is_sealed || self.is_frozen() || !self.queue.is_empty() {
            return None;
        }
        self.is_sealed = true;
        self.sync_begin(world, Vec::new(), &[]).ok()
    }

    /// Whether there are map nodes that only a generation writes.
    pub fn has_unwritten(&self) -> bool {
        self.maps.dirty_len() > 0
    }

    /// The figures.
    pub fn stats(&self) -> Stats {
        Stats {
            blocks: self.geometry.total,
            free: self.allocation.free_blocks(),
            held: self.allocation.held_blocks(),
            reserved: self.needed() + POOL,
            generation: self.generation,
            objects: self.table.len(),
            map_nodes: self.maps.len() as u64,
            table_nodes: self.table.blocks(),
            writes: self.io.writes,
            reads: self.io.reads,
            flushes: self.io.flushes,
            journal_used: self.journal.used,
            damaged: self.damaged,
        }
    }

    /// Whether a disk error has left open if the last checkpoint is on the disk, though it failed: the next mount may find it.
    pub fn may_have_committed(&self) -> bool {
        self.copies.doubtful().next().is_some()
    }

    pub(crate) fn new_ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        ticket
    }
}
