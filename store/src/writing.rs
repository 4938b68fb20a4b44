//! Pages on their way to new blocks: what checkpoints and syncs have in common.
//!
//! A page can be written when the map nodes on its path are in memory. Pages whose nodes are being read stand aside until some have come,
//! and are looked at again before all others.

use crate::containers::Queue;
use crate::event::{DirtyPage, Failure};
use crate::heap::NoHeap;
use crate::io::{Purpose, WRITES_MAX};
use crate::map::{Entry, MISSING_MAX, MapRoot, Path, reach};
use crate::store::{COST_READ, Store};
use crate::world::{Operation, World};

/// The cost of looking whether the map of an object reaches a page, and of a level that is put on top without a node.
const COST_GROW: u64 = 450;
const COST_LEVEL: u64 = 600;
/// The cost of writing a page, and of writing one with the one before it, in one request; and the part of either that goes to finding its place.
const COST_PAGE: u64 = 4_200;
const COST_PAGE_BESIDE: u64 = 3_400;
const COST_TAKEN: u64 = 700;
/// The further cost of a page whose path is not that of the page before it.
const COST_PATH: u64 = 1_800;
/// The cost of making a node.
pub(crate) const COST_NODE: u64 = 5_000;

/// A job that writes pages.
pub(crate) trait PageJob {
    /// Names one of its pages.
    type At: Copy;
    /// The next page that was not begun.
    ///
    /// # Errors
    /// [`Failure::Memory`]: it is still the next one.
    fn next(&mut self, store: &mut Store) -> Result<Option<Self::At>, Failure>;
    /// Whether there is one.
    fn has_next(&self) -> bool;
    /// A page.
    fn page(&self, at: Self::At) -> Option<DirtyPage>;
    /// Whether a page of an object that has so many, or that is gone, is written; otherwise it is given back.
    fn wants(&self, page: DirtyPage, pages: Option<u64>) -> bool;
    /// Whether pages enter their maps, whose nodes must be there then.
    fn enters_maps(&self) -> bool {
        true
    }
    /// Takes a block for a page, out of what was promised.
    fn take_block(&mut self, store: &mut Store, at: Self::At) -> Result<u64, Failure>;
    /// A page is on its way to that place.
    fn placed(&mut self, at: Self::At, entry: Entry) -> Purpose;
    /// Requests under way.
    fn outstanding(&mut self) -> &mut usize;
}

/// What the table says of an object.
#[derive(Copy, Clone)]
struct KnownRow {
    base: u64,
    /// Its pages; none if it is gone.
    pages: Option<u64>,
    map: MapRoot,
}

impl KnownRow {
    fn look_up(store: &Store, base: u64) -> Self {
        let row = store.table.get(base);
        Self {
            base,
            pages: row.map(|row| row.record.pages),
            map: row.map(|row| row.map).unwrap_or_default(),
        }
    }
}

/// The pages of a job that were begun and are not on their way.
#[derive(Default)]
pub(crate) struct PageWriter<At> {
    /// Those whose path must be looked at.
    retry: Queue<At>,
    /// Those whose nodes are being read, and how many nodes had come when they were last looked at.
    blocked: Queue<At>,
    nodes_seen: u64,
    /// If memory is short, one page waits at a time: two would take their paths away from each other.
    pub(crate) narrow: bool,
}

impl<At: Copy> PageWriter<At> {
    /// With room for the pages that wait, and the one that is looked at.
    ///
    /// # Errors
    /// [`NoHeap`].
    pub(crate) fn new() -> Result<Self, NoHeap> {
        let (mut retry, mut blocked) = (Queue::default(), Queue::default());
        retry.reserve(WRITES_MAX + 1)?;
        blocked.reserve(WRITES_MAX + 1)?;
        Ok(Self {
            retry,
            blocked,
            nodes_seen: 0,
            narrow: false,
        })
    }

    /// Nodes that a job asks for at once to drop pages. If memory is short, it is one: all on the way to a page fit into the reserve then.
    pub(crate) fn asks(&self) -> usize {
        if self.narrow { 1 } else { MISSING_MAX }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.retry.clear();
        self.blocked.clear();
        self.narrow = false;
    }

    /// Takes a page back that was begun and not written.
    pub(crate) fn pop(&mut self) -> Option<At> {
        self.retry.pop().or_else(|| self.blocked.pop())
    }

    /// Pages that waited for nodes are looked at again, before all others.
    pub(crate) fn unblock(&mut self) {
        while let Some(at) = self.blocked.pop_last() {
            self.retry.push_front_reserved(at);
        }
    }

    /// Whether there is a page that may be begun with.
    fn has_page(&self, job: &impl PageJob<At = At>) -> bool {
        let waiting_max = if self.narrow { 1 } else { WRITES_MAX };
        self.blocked.count() < waiting_max && (!self.retry.is_empty() || job.has_next())
    }

    /// Writes pages as far as the budget reaches; tells whether all were begun and none waits.
    pub(crate) fn write(
        &mut self,
        store: &mut Store,
        world: &mut impl World,
        job: &mut impl PageJob<At = At>,
    ) -> Result<bool, Failure> {
        if self.nodes_seen != store.nodes_came {
            self.nodes_seen = store.nodes_came;
            self.unblock();
        }
        let mut known_row: Option<KnownRow> = None;
        while *job.outstanding() < WRITES_MAX && self.has_page(job) && store.may_go_on(COST_PAGE_BESIDE) {
            let at = match self.retry.pop() {
                Some(at) => at,
                None => match job.next(store)? {
                    Some(at) => at,
                    None => break,
                },
            };
            let Some(page) = job.page(at) else { continue };
            // Nothing but this changes rows meanwhile, and mostly all pages are of one object.
            let known = known_row.filter(|row| row.base == page.base);
            let mut row = known.unwrap_or_else(|| KnownRow::look_up(store, page.base));
            if !job.wants(page, row.pages) {
                store.spend(COST_READ);
                store.give_back(&page);
                continue;
            }
            if row.pages.is_some() && job.enters_maps() {
                if !store.maps.is_prepared(page.base, &row.map, page.page) {
                    if !store.may_go_on(COST_PAGE + COST_PATH) {
                        self.retry.push_front_reserved(at);
                        return Ok(false);
                    }
                    store.spend(COST_PATH);
                }
                let nodes = store.maps.len();
                let before = row.map;
                let path = store.prepare(world, page.base, &mut row.map, page.page);
                if row.map != before {
                    store.table.set_map(page.base, row.map);
                }
                known_row = Some(row);
                match path {
                    // Nodes that were made are a step of their own.
                    Path::Ready if store.maps.len() > nodes => {
                        store.spend(COST_NODE);
                        self.retry.push_front_reserved(at);
                        continue;
                    }
                    Path::Ready => {}
                    Path::NoMemory => {
                        self.retry.push_front_reserved(at);
                        return Err(Failure::Memory);
                    }
                    Path::Missing(missing) => {
                        store.spend(COST_READ);
                        self.blocked.push_front_reserved(at);
                        store.load_for_job(world, missing)?;
                        continue;
                    }
                }
            }
            store.spend(COST_TAKEN);
            let taken = match job.take_block(store, at) {
                Err(Failure::DiskFull) if *job.outstanding() > 0 => Ok(None),
                taken => taken.map(Some),
            };
            let taken = taken.inspect_err(|_| self.retry.push_front_reserved(at))?;
            let Some(block) = taken else {
                // After a job that failed, each of its pages still has a block, which comes back when the page is written anew.
                self.retry.push_front_reserved(at);
                return Ok(false);
            };
            let cost = if store.io.follows(block) {
                COST_PAGE_BESIDE
            } else {
                COST_PAGE
            };
            store.spend(cost - COST_TAKEN);
            let entry = Entry {
                block,
                flags: page.flags,
                checksum: store.checksums.of(block, world.bytes(page.frame)),
            };
            let purpose = job.placed(at, entry);
            *job.outstanding() += 1;
            store.io.submit(world, Operation::Write, block, page.frame, purpose);
        }
        Ok(self.blocked.is_empty() && !self.has_page(job))
    }
}

impl Store {
    /// Makes the map of an object reach a page, level by level: before the first path is prepared, for growing moves paths. Tells how many pages it reaches then;
    /// `None` if the budget does not allow it.
    pub(crate) fn grow_map(&mut self, world: &mut impl World, base: u64, page: u64) -> Result<Option<u64>, Failure> {
        loop {
            let row = self.table.get(base).map(|row| row.map);
            let grows = row.filter(|root| page >= reach(root.levels));
            let cost = match &grows {
                None => COST_GROW,
                Some(root) if self.maps.is_blank(base, root) => COST_LEVEL,
                Some(_) => COST_NODE,
            };
            if !self.may_go_on(cost) {
                return Ok(None);
            }
            self.spend(cost);
            let Some(mut root) = grows else {
                return Ok(Some(row.map_or(u64::MAX, |root| reach(root.levels))));
            };
            if !self.maps.grow(&mut self.io.lender(world), base, &mut root) {
                return Err(Failure::Memory);
            }
            self.table.set_map(base, root);
        }
    }
}
