//! Syncs ahead of the checkpoint that runs.
//!
//! A sync does not wait for the end of a checkpoint that makes a generation. While that of generation *g+1* is built, it writes two records: one in the journal of
//! *g*, which a mount finds if the power fails before the superblock, and one in that of *g+1*, marked *ahead*, which it finds behind
//! it. One flush makes both stable. The first also carries what the checkpoint has of the objects concerned and *g* has not.
//!
//! The maps belong to the checkpoint. So the *places* of the pages stand here, where every look-up sees them, until the next
//! checkpoint has entered them in the maps (*landing*). The bitmap of *g+1* must not name their blocks, for a record names only blocks that are free: such a
//! block is busy and not used until the checkpoint is over. Nor is it free before that, whatever becomes of the page: a
//! record names it.
//!
//! Who pays: the page's block is promised as always; the nodes of its path are promised anew when the sync is begun, for landing makes
//! them. The heap for a place, 40 bytes, is found before the sync goes ahead, and there are [`PLACES_MAX`] of them at most, and [`TAKEN_MAX`] blocks. A sync for which anything is lacking waits
//! for the end of the checkpoint.

use crate::checkpoint::{Checkpoint, Step};
use crate::containers::{Boxed, Map};
use crate::event::{DirtyPage, Failure};
use crate::geometry::RECORD_BLOCKS;
use crate::heap::NoHeap;
use crate::jobs::{Progress, Running, Work};
use crate::journal::{Chain, Item, record_blocks};
use crate::map::{Entry, Path};
use crate::pending::{CHANGES_MAX, Journaled};
use crate::recording::Recording;
use crate::store::{COST_READ, JournalState, Store};
use crate::sync::{GROUP_MAX, SyncGroup, SyncRequest};
use crate::world::World;
use crate::writing::COST_NODE;

/// Places that wait to be landed, at most.
const PLACES_MAX: usize = 1000;
/// Blocks that are taken beside one checkpoint, at most: a page that is written again takes another one.
const TAKEN_MAX: usize = 4 * PLACES_MAX;
/// Blocks whose fate is decided in one step of the end of a checkpoint.
const TAKEN_PIECE: usize = 4;
/// The cost of looking what a checkpoint has of an object, or of a page.
const COST_CARRIED: u64 = 150;
/// The cost of looking which syncs go ahead together, at most.
const COST_GATHER: u64 = 6_000;
/// The cost of landing a page whose path is there.
const COST_LANDED: u64 = 2_500;

/// The place of a page, and the nodes that are promised for its path.
#[derive(Copy, Clone)]
struct Place {
    entry: Entry,
    nodes: u64,
}

/// What becomes of a block when the checkpoint is over.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Fate {
    /// It holds a page.
    Used,
    /// A record names it, or may do so, and no place.
    Freed,
}

/// What syncs that went ahead have left.
pub(crate) struct Ahead {
    /// The journal of the generation that is being built.
    pub(crate) chain: Chain,
    /// Whether its last record names no page.
    pub(crate) is_sealed: bool,
    places: Map<(u64, u64), Place>,
    /// Blocks that were taken beside the running checkpoint.
    taken: Map<u64, Fate>,
    /// Nodes that are promised for places, and those of them that the running checkpoint has taken over.
    cost: u64,
    landing: u64,
}

impl Default for Ahead {
    fn default() -> Self {
        Self {
            chain: Chain::new(0, 0, 0),
            is_sealed: true,
            places: Map::default(),
            taken: Map::default(),
            cost: 0,
            landing: 0,
        }
    }
}

impl Ahead {
    /// A checkpoint begins that makes the generation of this journal: gives the nodes that it has to make for places, which it takes over.
    pub(crate) fn begin(&mut self, chain: Chain) -> u64 {
        (self.chain, self.is_sealed) = (chain, true);
        self.landing += core::mem::take(&mut self.cost);
        self.landing
    }

    /// It failed: the nodes that it has not made are promised here again.
    pub(crate) fn take_back(&mut self) {
        self.cost += core::mem::take(&mut self.landing);
    }

    /// Nodes that are promised here.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// Places that wait.
    pub(crate) fn count(&self) -> usize {
        self.places.count()
    }

    /// The place of a page.
    pub(crate) fn get(&self, base: u64, page: u64) -> Option<Entry> {
        if self.places.is_empty() {
            return None;
        }
        self.places.get((base, page)).map(|place| place.entry)
    }

    /// Whether one of some pages of an object has a place here.
    pub(crate) fn has(&self, base: u64, first: u64, end: u64) -> bool {
        self.places.first_in((base, first)..(base, end)).is_some()
    }

    /// Finds heap for so many more.
    fn expect(&mut self, pages: usize) -> Result<(), NoHeap> {
        self.places.reserve(self.places.count() + pages)?;
        self.taken.reserve(self.taken.count() + pages)?;
        Ok(())
    }

    /// Notes a block that was taken, for which there is [room](Ahead::expect).
    pub(crate) fn take(&mut self, block: u64) {
        let _ = self.taken.insert(block, Fate::Used);
    }

    /// A block that was taken holds nothing that counts.
    pub(crate) fn give_up(&mut self, block: u64) {
        if let Some(fate) = self.taken.get_mut(block) {
            *fate = Fate::Freed;
        }
    }

    /// A page has its place, for which there is [room](Ahead::expect), and so many nodes are promised for its path. It may have had another one.
    pub(crate) fn put(&mut self, base: u64, page: u64, entry: Entry, nodes: u64) {
        self.cost += nodes;
        let before = self.places.insert((base, page), Place { entry, nodes });
        if let Ok(Some(before)) = before {
            self.cost -= before.nodes;
            self.give_up(before.entry.block);
        }
    }

    /// The page is in its map, or gone: its block there.
    pub(crate) fn remove(&mut self, base: u64, page: u64) -> Option<u64> {
        if self.places.is_empty() {
            return None;
        }
        let place = self.places.remove((base, page))?;
        let promised = if self.landing > 0 {
            &mut self.landing
        } else {
            &mut self.cost
        };
        *promised = promised.saturating_sub(place.nodes);
        Some(place.entry.block)
    }

    /// Gives heap back that nobody needs.
    fn trim(&mut self) {
        self.places.release(self.places.count());
        self.taken.release(self.taken.count());
    }
}

impl SyncRequest {
    /// Blocks for the nodes that landing each of its pages may make.
    fn nodes(store: &Store, page: &DirtyPage) -> u64 {
        // A map that grows gets nodes on its left edge.
        2 * u64::from(store.shape(page.base, 0).1)
    }
}

impl Store {
    /// The checkpoint that runs or waits.
    fn checkpoint(&self) -> Option<&Checkpoint> {
        if let Running::Checkpoint(job) = &self.running {
            return Some(job);
        }
        self.queue.iter().find_map(|work| match work {
            Work::Checkpoint(job) => Some(&**job),
            Work::Sync(_) => None,
        })
    }

    /// Promises the nodes for which the pages of a sync that was accepted have no promise, if it may go ahead of a checkpoint. Without them it waits.
    pub(crate) fn promise_landing(&mut self, request: &mut SyncRequest) {
        if !self.checkpoint().is_some_and(Checkpoint::makes_generation) {
            return;
        }
        let nodes: u64 = request.pages.iter().map(|page| SyncRequest::nodes(self, page)).sum();
        let again = self.syncs().map(|sync| sync.pages.len()).sum::<usize>() + request.pages.len();
        if self.allocation.promise(self.needed() + nodes + again as u64).is_ok() {
            self.budget += nodes;
            request.share += nodes;
            request.may_go_ahead = true;
        }
    }

    /// Has a sync go ahead, as far as it gets.
    pub(crate) fn advance_beside(&mut self, world: &mut impl World) {
        loop {
            let Some(mut group) = self.beside.take().or_else(|| self.begin_beside()) else {
                return;
            };
            if group.advance(self, world) == Progress::Waiting {
                self.beside = Some(group);
                return;
            }
            self.idle_group = Some(group);
        }
    }

    /// The syncs that go ahead next, if there are any that may.
    fn begin_beside(&mut self) -> Option<Boxed<SyncGroup>> {
        let Some(Work::Sync(first)) = self.queue.first() else {
            return None;
        };
        let Running::Checkpoint(job) = &self.running else {
            return None;
        };
        let is_open = self.journal_state == JournalState::Open && !self.is_undoing;
        if !first.may_go_ahead || !is_open || !job.takes_syncs() || self.idle_group.is_none() {
            return None;
        }
        if !self.may_go_on(COST_GATHER) {
            return None;
        }
        let Running::Checkpoint(job) = &self.running else {
            return None;
        };
        let (mut count, mut pages, mut own, mut carried, mut cost) = (0, 0, 0, 0, 0);
        for work in self.queue.iter().take(GROUP_MAX) {
            let Work::Sync(next) = work else { break };
            cost += COST_CARRIED * (next.touched.len() + next.pages.len()) as u64;
            if count > 0 && cost > COST_GATHER {
                break;
            }
            let Some(more) = self.carried_for(job, next) else { break };
            let blocks = record_blocks(own + next.bytes + carried + more);
            let has_room = blocks <= RECORD_BLOCKS
                && self.journal.used + blocks <= self.geometry.journal
                && self.ahead.count() + pages + next.pages.len() <= PLACES_MAX
                && self.ahead.taken.count() + pages + next.pages.len() <= TAKEN_MAX;
            if !next.may_go_ahead || !has_room {
                break;
            }
            count += 1;
            pages += next.pages.len();
            own += next.bytes;
            carried += more;
        }
        self.spend(cost);
        let mut group = self.idle_group.take()?;
        let begun = count > 0 && self.ahead.expect(pages).is_ok() && group.begin_beside(self, count, carried).is_ok();
        if !begun {
            self.idle_group = Some(group);
            // It is not looked at again before the checkpoint is over.
            if let Some(Work::Sync(first)) = self.queue.iter_mut().next() {
                first.may_go_ahead = false;
            }
            return None;
        }
        Some(group)
    }

    /// Bytes of what the record of a sync in the current journal must carry for the checkpoint; `None`, if it cannot go ahead: the
    /// checkpoint has changed the map of one of its pages. Should that fail, the change would come back above the page.
    fn carried_for(&self, job: &Checkpoint, request: &SyncRequest) -> Option<usize> {
        for page in &request.pages {
            let settled = self.settled.get_ref(page.base);
            if settled.is_some_and(|changes| changes.is_zeroed(page.page) || changes.flags.has(page.page)) {
                return None;
            }
        }
        let mut bytes = 0;
        for &base in &request.touched {
            if job.has_changed(base) {
                let row = self.table.get(base);
                bytes += row.map_or(Item::Delete(base).bytes(), |row| Item::put_bytes(&row.record));
            }
            if let Some(changes) = self.settled.get_ref(base).filter(|changes| changes.is_unjournaled()) {
                if changes.count() > CHANGES_MAX {
                    return None;
                }
                bytes += changes.items(base).map(|item| item.bytes()).sum::<usize>();
            }
        }
        Some(bytes)
    }

    /// Puts what a checkpoint has of an object, and the current generation has not, into the record of a sync that goes ahead; `false` if the budget does
    /// not allow it.
    pub(crate) fn carry(&mut self, record: &mut Recording, base: u64) -> Result<bool, Failure> {
        if !self.may_go_on(COST_CARRIED) {
            return Ok(false);
        }
        self.spend(COST_CARRIED);
        let Running::Checkpoint(job) = &self.running else {
            return Ok(true);
        };
        let row = self.table.get(base);
        if job.has_changed(base) {
            let item = match row {
                Some(row) => Item::Put(row.record.copy()?),
                None => Item::Delete(base),
            };
            if !record.put(self, &item) {
                return Ok(false);
            }
        }
        let Some(changes) = self.settled.get_ref(base).filter(|changes| changes.is_unjournaled()) else {
            return Ok(true);
        };
        let count = changes.count() as u64;
        changes.items(base).for_each(|item| record.put_paid(&item));
        self.spend(COST_CARRIED * count);
        Ok(true)
    }

    /// What a record must carry of an object for the checkpoint is in it: in the journal of the current generation.
    pub(crate) fn is_carried(&mut self, base: u64) {
        if let Running::Checkpoint(job) = &mut self.running {
            job.row_is_carried(base);
        }
        if let Some(changes) = self.settled.get_mut(base) {
            changes.journaled = Journaled::Yes;
        }
    }

    /// Whether the checkpoint has come to where it waits for syncs that went ahead.
    pub(crate) fn waits_for_beside(&self) -> bool {
        match &self.running {
            Running::Checkpoint(job) => job.waits_for_syncs(),
            _ => true,
        }
    }

    /// Takes a block for a page of a sync that goes ahead, out of its share of the promises.
    pub(crate) fn take_block_ahead(&mut self, share: &mut u64) -> Result<u64, Failure> {
        let block = self.allocation.alloc_ahead().ok_or_else(|| self.why_no_block())?;
        self.ahead.take(block);
        self.draw(share);
        Ok(block)
    }

    /// The checkpoint is over, one way or the other: some of the blocks that syncs took ahead of it are used from now on, or set free; tells
    /// whether there were any.
    pub(crate) fn own_some(&mut self) -> bool {
        for _ in 0..TAKEN_PIECE {
            let Some((block, fate)) = self.ahead.taken.pop_first() else {
                break;
            };
            self.allocation.own(block);
            if fate == Fate::Freed {
                self.allocation.free(block);
            }
        }
        if self.ahead.taken.is_empty() {
            self.ahead.trim();
            return false;
        }
        true
    }

    /// Enters the places of pages in the maps, as far as the budget reaches.
    pub(crate) fn land(&mut self, world: &mut impl World) -> Result<Step, Failure> {
        while let Some((base, page)) = self.ahead.places.first_key() {
            if !self.may_go_on(COST_LANDED) {
                return Ok(Step::Waiting);
            }
            self.spend(COST_LANDED);
            debug_assert!(self.table.absent_at(base).is_none(), "its row stays in memory");
            let is_there = self.table.get(base).is_some_and(|row| page < row.record.pages);
            if !is_there {
                if let Some(block) = self.ahead.remove(base, page) {
                    self.allocation.free(block);
                }
                continue;
            }
            if self.grow_map(world, base, page)?.is_none() {
                return Ok(Step::Waiting);
            }
            let mut root = self.table.get(base).map(|row| row.map).unwrap_or_default();
            let nodes = self.maps.len();
            let path = self.prepare(world, base, &mut root, page);
            self.table.set_map(base, root);
            self.spend(COST_NODE * self.maps.len().saturating_sub(nodes) as u64);
            match path {
                Path::NoMemory => return Err(Failure::Memory),
                Path::Missing(missing) => {
                    self.spend(COST_READ);
                    self.load_for_job(world, missing)?;
                    return Ok(Step::Waiting);
                }
                Path::Ready => {
                    let entry = self.ahead.get(base, page).unwrap_or(Entry::NONE);
                    self.ahead.remove(base, page);
                    let old = self.set_entry(world, base, page, entry);
                    self.allocation.free(old.block);
                }
            }
        }
        self.ahead.landing = 0;
        Ok(Step::Complete)
    }
}

impl SyncGroup {
    /// The nodes that are promised for landing a page of it.
    pub(crate) fn put_ahead(&self, store: &mut Store, at: (usize, usize)) {
        let request = &self.requests[at.0];
        let (page, entry) = (request.pages[at.1], request.places[at.1]);
        let nodes = SyncRequest::nodes(store, &page);
        store.ahead.put(page.base, page.page, entry, nodes);
    }
}
