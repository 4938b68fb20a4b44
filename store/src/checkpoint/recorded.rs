//! Small checkpoints: all that changed stands in one journal record, and nothing else is written but the pages.
//!
//! Such a checkpoint costs its pages, a record and one flush. Map nodes and table rows stay changed in memory, as behind a sync, until a
//! checkpoint that makes a generation writes them once for all records before it.

use super::{Checkpoint, Phase, Step};
use crate::containers::{Map, push_reserved};
use crate::event::{CheckpointKind, DirtyPage, Failure};
use crate::geometry::RECORD_BLOCKS;
use crate::heap::{NoHeap, with_room};
use crate::io::Purpose;
use crate::journal::{IsAhead, Item, PAGE_BYTES, record_blocks};
use crate::map::Entry;
use crate::pending::{CHANGES_MAX, Journaled};
use crate::recording::Recording;
use crate::store::Store;
use crate::world::{BLOCK, World};

/// Pages of a small checkpoint, at most.
const PAGES_MAX: usize = 1000;
/// Room in its record for rows, and for changes of maps that are not pages.
const ROWS_ROOM: usize = 2 * BLOCK;
/// Objects whose rows it carries at most: each is one step.
const ROWS_MAX: usize = 64;
/// The cost of putting a change of a map in.
const COST_CHANGE: u64 = 500;

/// The record of a small checkpoint.
#[derive(Default)]
pub(super) struct Recorded {
    /// Blocks of the journal that are kept for it.
    blocks: u64,
    record: Recording,
    /// Rows, and changes of maps, of objects before these are in it.
    rows: u64,
    changes: u64,
}

impl Recorded {
    /// With blocks of the journal that are kept for it.
    pub(super) fn new(blocks: u64) -> Self {
        Self {
            blocks,
            ..Self::default()
        }
    }

    /// Puts a page that is on its way into the record.
    pub(super) fn put_page(&mut self, page: &DirtyPage, entry: Entry) {
        let DirtyPage { base, page, .. } = *page;
        self.record.put_paid(&Item::Page { base, page, entry });
    }

    /// The record is durable.
    pub(super) fn done(&mut self, store: &mut Store) {
        if let Some((journal, has_pages)) = self.record.done() {
            (store.journal, store.is_sealed) = (journal, !has_pages);
        }
        self.blocks = 0;
    }
}

impl Store {
    /// The journal blocks of a record that holds a checkpoint of so many pages with these rows; `None` if that is to make a generation.
    pub(crate) fn record_for(&self, kind: CheckpointKind, pages: usize, changed: &Map<u64, ()>) -> Option<u64> {
        let changes = self.settling.count();
        let is_small = pages <= PAGES_MAX && changed.count() <= ROWS_MAX && changes <= ROWS_MAX;
        // Addresses and blocks of an object that is gone are free behind a generation without it.
        let leaves_nothing = self.deleted.is_empty() && self.doomed.is_empty();
        let left = self.allocation.free_blocks().saturating_sub(self.needed());
        let nodes = self.maps.dirty_len() + self.table.dirty_len() + self.ahead.count() + pages;
        if kind != CheckpointKind::Periodic
            || !is_small
            || pages + changed.count() + changes == 0
            || !leaves_nothing
            || self.unnoted.is_some()
            || self.allocation.is_to_grow()
            || nodes > self.unwritten_nodes_max
            || self.allocation.held_blocks() + pages as u64 > left / 4
        {
            return None;
        }
        let blocks = record_blocks(pages * PAGE_BYTES + ROWS_ROOM);
        (blocks <= RECORD_BLOCKS && self.journal_end()? + blocks <= self.geometry.journal).then_some(blocks)
    }
}

impl Checkpoint {
    /// The end of the journal behind this checkpoint, with the end before it.
    pub(crate) fn journal_behind(&self, end: Option<u64>) -> Option<u64> {
        match &self.recorded {
            Some(recorded) => end.map(|end| end + recorded.blocks),
            None => Some(0),
        }
    }

    /// Puts rows and changes of maps into the record. If they do not fit, or there is no heap for them, the checkpoint makes a generation.
    pub(super) fn record_rows(&mut self, store: &mut Store) -> Step {
        let Some(mut recorded) = self.recorded.take() else {
            return Step::Complete;
        };
        match self.record_some(store, &mut recorded) {
            Ok(Some(step)) => {
                self.recorded = Some(recorded);
                step
            }
            Ok(None) | Err(NoHeap) => Step::Complete,
        }
    }

    /// `None`: something does not fit.
    fn record_some(&self, store: &mut Store, recorded: &mut Recorded) -> Result<Option<Step>, NoHeap> {
        if !recorded.record.has_begun() {
            recorded.record.begin(
                store,
                (store.journal, IsAhead::No),
                self.pages.len() * PAGE_BYTES + ROWS_ROOM,
            )?;
        }
        let room = |recorded: &Recorded| recorded.record.room().saturating_sub(self.pages.len() * PAGE_BYTES);
        while let Some((base, ())) = self.changed.from(recorded.rows) {
            let Some(row) = store.table.get(base) else {
                return Ok(None);
            };
            let item = Item::Put(row.record.copy()?);
            if item.bytes() > room(recorded) {
                return Ok(None);
            }
            if !recorded.record.put(store, &item) {
                return Ok(Some(Step::Waiting));
            }
            recorded.rows = base + 1;
        }
        while let Some((base, changes)) = store.settling.from(recorded.changes) {
            if changes.journaled == Journaled::No && store.table.get(base).is_some() {
                let count = changes.count();
                if count > CHANGES_MAX {
                    return Ok(None);
                }
                let mut items = with_room(count)?;
                changes.items(base).for_each(|item| push_reserved(&mut items, item));
                let bytes = items.iter().map(Item::bytes).sum::<usize>();
                if bytes > room(recorded) {
                    return Ok(None);
                }
                if !store.may_go_on(COST_CHANGE * items.len() as u64) {
                    return Ok(Some(Step::Waiting));
                }
                store.spend(COST_CHANGE * items.len() as u64);
                for item in &items {
                    recorded.record.put_paid(item);
                }
            }
            recorded.changes = base + 1;
        }
        Ok(Some(Step::Complete))
    }

    /// Sums the record up.
    pub(super) fn sum_record(&mut self, store: &mut Store) -> Step {
        let summed = self
            .recorded
            .as_mut()
            .is_none_or(|recorded| recorded.record.sum_up(store));
        if summed { Step::Complete } else { Step::Waiting }
    }

    /// Has it written.
    pub(super) fn write_record(&mut self, store: &mut Store, world: &mut impl World) -> Result<Step, Failure> {
        let written = match &mut self.recorded {
            Some(recorded) => recorded
                .record
                .write(store, world, &mut self.outstanding, Purpose::Scratch)?,
            None => true,
        };
        Ok(if written { self.when_quiet() } else { Step::Waiting })
    }

    /// The phase behind this one, of a small checkpoint or another.
    pub(super) fn phase_behind(&self) -> Phase {
        match self.phase {
            Phase::Settle if self.recorded.is_some() => Phase::Pages,
            Phase::Pages if self.recorded.is_some() => Phase::Sum,
            Phase::Flush if self.recorded.is_some() => Phase::Done,
            phase => phase.next(),
        }
    }
}
