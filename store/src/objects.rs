//! The objects as callers see them: the table with the changes on top that came while it was frozen.

use crate::containers::Map;
use crate::event::{DeleteError, NoRoom, PutError};
use crate::heap::NoHeap;
use crate::jobs::{Running, Work};
use crate::map::levels_for;
use crate::pages::View;
use crate::pending::{Beneath, Entries, MapChanges};
use crate::record::ObjectRecord;
use crate::space::{POOL, POOL_OF_DELETES};
use crate::store::{COST_HEAP, Store};
use crate::sync::SyncRequest;
use crate::table::{Absent, Held};
use crate::world::World;

/// The cost of putting a piece of changes beneath others.
const COST_BENEATH: u64 = 4_000;

impl Store {
    /// The object at `base`, if its row is in memory: that of one that is [held](Store::hold) is, and all are where the store was mounted so.
    pub fn object(&self, base: u64) -> Option<&ObjectRecord> {
        match self.overlay.get_ref(base) {
            Some(change) => change.as_ref(),
            None => self.table.get(base).map(|row| &row.record),
        }
    }

    /// Pages of an object that is to have at least so many, and the levels of its map, which keeps those of before when the object is cut.
    pub(crate) fn shape(&self, base: u64, pages: u64) -> (u64, u8) {
        let row = self.table.get(base);
        let record = match self.overlay.get_ref(base) {
            Some(change) => change.as_ref(),
            None => row.map(|row| &row.record),
        };
        let pages = record.map_or(0, |record| record.pages).max(pages);
        (pages, levels_for(pages).max(row.map_or(0, |row| row.map.levels)))
    }

    /// The levels of the map of an object, which it keeps until it is empty; `None` if it has nothing, and no work under way may give it
    /// anything.
    pub fn map_levels(&self, base: u64) -> Option<u8> {
        let map = self.table.get(base).map(|row| row.map).unwrap_or_default();
        let is_used = self.is_frozen()
            || !self.collected.is_empty()
            || self.syncs().next().is_some()
            || self.pending.by_object().has(base)
            || self.prepared.by_object().has(base)
            || self.ahead.has(base, 0, u64::MAX)
            || !self.maps.is_blank(base, &map);
        is_used.then_some(map.levels)
    }

    /// The object that `address` lies in, of those whose rows are in memory.
    pub fn object_containing(&self, address: u64) -> Option<&ObjectRecord> {
        let found = self.at_or_before(address).ok().flatten();
        found.filter(|record| address < record.end())
    }

    /// All objects whose rows are in memory, in the order of their addresses.
    pub fn objects(&self) -> Objects<'_> {
        self.objects_from(0)
    }

    /// The objects whose bases are at least `base`, in order.
    pub fn objects_from(&self, base: u64) -> Objects<'_> {
        Objects {
            store: self,
            next: Some(base),
        }
    }

    /// Whether an object at `base` was deleted and the deletion is not yet in a durable checkpoint:
    /// its address must not be used again.
    pub fn awaits_deletion(&self, base: u64) -> bool {
        self.deleted.has(base)
    }

    /// The last object that begins at an address or before it.
    ///
    /// # Errors
    /// [`Absent`].
    pub(crate) fn at_or_before(&self, address: u64) -> Result<Option<&ObjectRecord>, Absent> {
        let mut last = self.overlay.below(address.saturating_add(1));
        while let Some((base, None)) = last {
            last = self.overlay.below(base);
        }
        let changed = last.and_then(|(_, change)| change.as_ref());
        let first = changed.map_or(0, |record| record.base + 1);
        let mut row = self.table.floor(address)?;
        // The rows that are passed here were deleted; one that has changed is found beside the table.
        while let Some(found) = row.filter(|row| row.record.base >= first) {
            if !self.overlay.has(found.record.base) {
                return Ok(Some(&found.record));
            }
            row = match found.record.base.checked_sub(1) {
                Some(before) => self.table.floor(before)?,
                None => None,
            };
        }
        Ok(changed)
    }

    /// The first object that begins at an address or behind it.
    ///
    /// # Errors
    /// [`Absent`].
    pub(crate) fn at_or_after(&self, address: u64) -> Result<Option<&ObjectRecord>, Absent> {
        let mut next = self.overlay.from(address);
        while let Some((base, None)) = next {
            next = base.checked_add(1).and_then(|behind| self.overlay.from(behind));
        }
        let changed = next.and_then(|(_, change)| change.as_ref());
        let end = changed.map_or(u64::MAX, |record| record.base);
        let mut row = self.table.ceiling(address)?;
        while let Some(found) = row.filter(|row| row.record.base < end) {
            if !self.overlay.has(found.record.base) {
                return Ok(Some(&found.record));
            }
            row = self.table.ceiling(found.record.base + 1)?;
        }
        Ok(changed)
    }

    /// Enters an object, or changes the record of the one at that base (whose pages it keeps, as
    /// far as the new size covers them). In force at once; durable with the next checkpoint, or by a
    /// sync that names the object. Addresses of an object whose deletion is not durable are given to another one only when it [is](Store::awaits_deletion): a record of
    /// the new one alone could not be mounted beside the row of the old one.
    ///
    /// # Errors
    /// [`PutError`]; nothing was changed.
    pub fn put_object(&mut self, record: ObjectRecord) -> Result<(), PutError> {
        record.check(self.address_bits)?;
        if self.deleted.has(record.base) {
            return Err(PutError::DeletionPending);
        }
        let old_pages = self.object(record.base).map(|old| old.pages);
        // One that gets no longer overlaps nothing new, and its neighbours need not be in memory.
        if old_pages.is_none_or(|old| record.pages > old) {
            let overlaps = self.overlaps(&record).map_err(|_| PutError::Absent)?;
            if overlaps {
                return Err(PutError::Overlap);
            }
        }
        let blocks = blocks_of(&record);
        // A change to an object that is there, a revocation perhaps, may use the pool.
        let room = if old_pages.is_none() {
            self.room(blocks)
        } else {
            self.allocation.promise(self.needed() + blocks)
        };
        room.map_err(|no_room| match no_room {
            NoRoom::Memory => PutError::Memory,
            NoRoom::Disk => PutError::DiskFull,
        })?;
        self.enter(record, old_pages).map_err(|NoHeap| PutError::Memory)
    }

    /// Whether a record overlaps another one.
    fn overlaps(&self, record: &ObjectRecord) -> Result<bool, Absent> {
        if let Some(absent) = self.table.absent_at(record.base) {
            return Err(absent);
        }
        let before = match record.base.checked_sub(1) {
            Some(address) => self.at_or_before(address)?,
            None => None,
        };
        let after = self.at_or_after(record.base + 1)?;
        Ok(before.is_some_and(|other| other.end() > record.base)
            || after.is_some_and(|other| other.base < record.end()))
    }

    /// Enters a record over one with so many pages, or as a new one.
    fn enter(&mut self, record: ObjectRecord, old_pages: Option<u64>) -> Result<(), NoHeap> {
        let (base, pages) = (record.base, record.pages);
        self.room_for_removal(base)?;
        let (row, beside) = if self.writes_table() {
            (None, Some(record))
        } else {
            (Some(self.table.prepare(record, Held::Yes)?), None)
        };
        if let Some(old) = old_pages.filter(|&old| pages < old) {
            self.note_zeroed(base, pages, old)?;
        }
        match row {
            Some(row) => {
                self.overlay_remove(base);
                self.table.enter(row);
            }
            None => self.overlay_put(base, beside)?,
        }
        self.changed.insert(base, ())?;
        Ok(())
    }

    /// Whether a checkpoint still writes the table, so that changes are kept beside it. From then on they are made in it, so that those beside
    /// it become fewer, however many more come.
    pub fn writes_table(&self) -> bool {
        self.is_frozen() && !self.table_done
    }

    /// Deletions beside the table. A look-up passes each of them that lies side by side with others.
    pub fn deletions_beside(&self) -> usize {
        self.overlay_deletions
    }

    /// Makes room to delete an object, and to note that its row has changed.
    fn room_for_removal(&mut self, base: u64) -> Result<(), NoHeap> {
        self.table.expect_removal(0)?;
        self.changed.reserve(self.changed.count() + 1)?;
        self.deleted.reserve(self.deleted.count() + 1)?;
        self.doomed.reserve(self.doomed.count() + 1)?;
        if self.writes_table() && !self.overlay.has(base) {
            self.overlay.reserve(self.overlay.count() + 1)?;
        }
        Ok(())
    }

    /// Deletes an object with all its pages. In force at once; never fails for lack of space on the disk.
    ///
    /// # Errors
    /// [`DeleteError`]; nothing was changed.
    pub fn delete_object(&mut self, base: u64) -> Result<(), DeleteError> {
        self.object(base).ok_or(DeleteError::NoObject)?;
        self.room_for_removal(base).map_err(|NoHeap| DeleteError::Memory)?;
        let noted = self
            .changed
            .insert(base, ())
            .and_then(|_| self.deleted.insert(base, self.checkpoints));
        noted.map_err(|_| DeleteError::Memory)?;
        self.pending.abandon(base);
        if self.writes_table() {
            self.overlay_put(base, None).map_err(|NoHeap| DeleteError::Memory)?;
        } else {
            self.overlay_remove(base);
            self.remove_from_table(base);
        }
        Ok(())
    }

    /// Notes a change to the table beside it.
    fn overlay_put(&mut self, base: u64, change: Option<ObjectRecord>) -> Result<(), NoHeap> {
        let more = change.as_ref().map_or(0, blocks_of);
        let deletes = change.is_none();
        let before = self.overlay.insert(base, change)?;
        self.overlay_deletions += usize::from(deletes);
        if let Some(before) = before {
            self.over_beside(before.as_ref());
        }
        self.overlay_blocks += more;
        Ok(())
    }

    /// Forgets one.
    fn overlay_remove(&mut self, base: u64) {
        if let Some(before) = self.overlay.remove(base) {
            self.over_beside(before.as_ref());
        }
    }

    /// A change is no longer beside the table.
    fn over_beside(&mut self, change: Option<&ObjectRecord>) {
        match change {
            Some(record) => self.overlay_blocks -= blocks_of(record),
            None => self.overlay_deletions -= 1,
        }
    }

    /// Takes a row out of the table, where there is [room](Store::room_for_removal) to note its map.
    fn remove_from_table(&mut self, base: u64) {
        self.pending.abandon(base);
        if let Some(map) = self.table.remove(base) {
            let _ = self.doomed.insert(base, map);
        }
    }

    /// Changes the size of an object; pages beyond a smaller size are gone.
    ///
    /// # Errors
    /// [`PutError`]; nothing was changed. [`PutError::Range`] also if there is no such object.
    pub fn resize(&mut self, base: u64, pages: u64) -> Result<(), PutError> {
        let record = self.object(base).ok_or(PutError::Range)?;
        let mut record = record.copy().map_err(|_| PutError::Memory)?;
        record.pages = pages;
        self.put_object(record)
    }

    /// Makes one of the changes that came while the table was frozen in the table; tells whether there was one, and heap for it. Without, it
    /// stays where it is, and every lookup sees it there; the next checkpoint begins when all are made.
    pub(crate) fn merge_one(&mut self) -> bool {
        let Some(base) = self.overlay.first_key() else {
            self.overlay.release(0);
            return false;
        };
        let made = match self.overlay.get_ref(base) {
            Some(Some(record)) => record
                .copy()
                .map_err(NoHeap::from)
                .and_then(|record| self.table.put(record, Held::Yes)),
            _ => self.room_to_remove().map(|()| self.remove_from_table(base)),
        };
        if made.is_ok() {
            self.overlay_remove(base);
        }
        made.is_ok()
    }

    fn room_to_remove(&mut self) -> Result<(), NoHeap> {
        self.table.expect_removal(0)?;
        self.doomed.reserve(self.doomed.count() + 1)?;
        Ok(())
    }

    /// Whether there are changes beside the table although it is not frozen.
    pub(crate) fn is_short(&mut self) -> bool {
        if !self.is_frozen() {
            self.merge_one();
        }
        !self.is_frozen() && !self.overlay.is_empty()
    }

    /// Notes that pages read as zero.
    pub(crate) fn note_zeroed(&mut self, base: u64, start: u64, end: u64) -> Result<(), NoHeap> {
        let (pages, levels) = self.shape(base, end);
        self.change(base, Entries { zeroed: 1, flags: 0 }, |changes| {
            changes.zero(start, end)?;
            changes.add_cost(2, pages, levels, 0);
            Ok(())
        })
    }

    /// Notes the limits of a page for a mount, which does not count what they cost.
    pub(crate) fn note_limit(&mut self, base: u64, page: u64, flags: crate::PageFlags) -> Result<(), NoHeap> {
        self.change(base, ONE_LIMIT, |changes| changes.limit(page, flags))
    }

    /// Makes some more pending changes of an object, for which there is room then.
    fn change(
        &mut self,
        base: u64,
        more: Entries,
        act: impl FnOnce(&mut MapChanges) -> Result<(), NoHeap>,
    ) -> Result<(), NoHeap> {
        self.room_for_changes(1)?;
        if !self.pending.by_object().has(base) {
            let mut fresh = MapChanges::above(self.beneath(base));
            fresh.expect(more)?;
            self.pending.insert(base, fresh)?;
        }
        let changed = self.pending.change(base, |changes| {
            changes.expect(more)?;
            act(changes)
        });
        changed.ok_or(NoHeap)?
    }

    /// Finds heap for the changes of so many more objects. Changes that jobs have can then come back without asking.
    pub(crate) fn room_for_changes(&mut self, more: usize) -> Result<(), NoHeap> {
        let syncs: usize = self.syncs().map(|request| request.replaced.len()).sum();
        let all = self.pending.by_object().count() + self.settling.count() + self.settled.count() + syncs + more;
        self.pending.reserve(all)?;
        self.settling.reserve(all)?;
        self.settled.reserve(all)?;
        Ok(())
    }

    /// Gives heap back that no changes need.
    pub(crate) fn trim_changes(&mut self) {
        let syncs: usize = self.syncs().map(|request| request.replaced.len()).sum();
        let all = self.pending.by_object().count() + self.settling.count() + self.settled.count() + syncs;
        self.pending.release(all);
        self.settling.release(all);
        self.settled.release(all);
    }

    /// The changes of an object that jobs have.
    pub(crate) fn beneath(&self, base: u64) -> Beneath {
        let syncs = self.syncs().filter_map(|request| {
            let found = request.replaced.binary_search_by_key(&base, |&(of, _)| of);
            found.ok().map(|at| &request.replaced[at].1)
        });
        [&self.settling, &self.settled]
            .into_iter()
            .filter_map(|changes| changes.get_ref(base))
            .chain(syncs)
            .fold(Beneath::default(), Beneath::and)
    }

    /// The syncs that run and wait.
    pub(crate) fn syncs(&self) -> impl Iterator<Item = &SyncRequest> {
        let running = match (&self.running, &self.beside) {
            (Running::Sync(group), _) | (_, Some(group)) => &group.requests[..],
            _ => &[],
        };
        let waiting = self.queue.iter().filter_map(|work| match work {
            Work::Sync(request) => Some(request),
            Work::Checkpoint(_) => None,
        });
        running.iter().chain(waiting)
    }

    /// Some of the changes that a checkpoint could not make, or that are not durable, are pending again; tells whether there were any.
    pub(crate) fn settling_comes_back(&mut self) -> bool {
        for from_settled in [true, false] {
            let map = if from_settled {
                &mut self.settled
            } else {
                &mut self.settling
            };
            let Some((base, mut older)) = map.pop_first() else {
                continue;
            };
            if !self.pending_again(base, &mut older) {
                let map = if from_settled {
                    &mut self.settled
                } else {
                    &mut self.settling
                };
                let _ = map.insert(base, older);
            }
            return true;
        }
        false
    }

    /// Some changes that a job could not make are pending again, beneath what came later; tells whether those were all.
    pub(crate) fn pending_again(&mut self, base: u64, older: &mut MapChanges) -> bool {
        if let Some(done) = self.pending.change(base, |newer| newer.put_beneath(older)) {
            self.spend(COST_BENEATH);
            return done && !self.drop_some(older);
        }
        let pending = self.pending.by_object();
        debug_assert!(pending.room() > pending.count(), "what comes back has room");
        let _ = self.pending.insert(base, core::mem::take(older));
        true
    }

    /// Drops some changes that nobody needs any more; tells whether there was something left of them.
    pub(crate) fn drop_some(&mut self, changes: &mut MapChanges) -> bool {
        let dropped = changes.drop_some();
        self.pay_heap(dropped)
    }

    /// The same for rows that had changed.
    pub(crate) fn drop_rows(&mut self, rows: &mut Map<u64, ()>) -> bool {
        let dropped = rows.drop_some();
        self.pay_heap(dropped)
    }

    /// Pays for allocations that went; tells whether there were any. Without, the budget is as it was.
    fn pay_heap(&mut self, dropped: usize) -> bool {
        if dropped > 0 {
            self.spend(COST_HEAP * dropped as u64);
        }
        dropped > 0
    }

    /// Forgets all pages from `start` to `end`: they read as zero and have no limits but those that `kept` gives to some of them.
    ///
    /// # Errors
    /// [`NoRoom::Disk`] if so many discards are pending that even the pool cannot hold their map nodes;
    /// possible again after the next checkpoint. Nothing has changed then.
    pub fn discard_pages(
        &mut self,
        base: u64,
        start: u64,
        end: u64,
        kept: &[(u64, crate::PageFlags)],
    ) -> Result<(), NoRoom> {
        let (pages, levels) = self.shape(base, 0);
        let end = end.min(pages);
        if start >= end {
            return Ok(());
        }
        let paths = 2 + kept.len() as u64;
        let last = kept.iter().map(|&(page, _)| page).max().unwrap_or(0);
        let edge = self.pending.edge_of(base, last, levels);
        let nodes = paths * u64::from(levels);
        self.room_for_change(nodes.min(all_nodes(pages, levels)) + u64::from(edge))?;
        let entries = Entries {
            zeroed: 1,
            flags: kept.len(),
        };
        let noted = self.change(base, entries, |changes| {
            changes.zero(start, end)?;
            changes.add_cost(paths, pages, levels, edge);
            kept.iter().try_for_each(|&(page, flags)| changes.limit(page, flags))
        });
        noted.map_err(|NoHeap| NoRoom::Memory)
    }

    /// How many ranges that read as zero and limits of pages wait in memory for the next checkpoint.
    pub fn noted(&self) -> usize {
        self.pending.entries()
    }

    /// Blocks that making them in the maps may take, which are promised to them.
    pub fn noted_blocks(&self) -> u64 {
        self.pending.cost()
    }

    /// Sets the limits of a page that is not being written. The map may grow for it, so it leaves the pool alone.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn set_page_flags(&mut self, base: u64, page: u64, flags: crate::PageFlags) -> Result<(), NoRoom> {
        let Some(pages) = self
            .object(base)
            .map(|record| record.pages)
            .filter(|&pages| page < pages)
        else {
            return Ok(());
        };
        let (_, levels) = self.shape(base, pages);
        let edge = self.pending.edge_of(base, page, levels);
        self.room_for_growth(u64::from(levels + edge))?;
        let noted = self.change(base, ONE_LIMIT, |changes| {
            changes.limit(page, flags)?;
            changes.add_cost(1, pages, levels, edge);
            Ok(())
        });
        noted.map_err(|NoHeap| NoRoom::Memory)
    }

    /// Sees to it that `blocks` more may be promised to writers, who leave the pool alone.
    pub(crate) fn room(&mut self, blocks: u64) -> Result<(), NoRoom> {
        self.allocation.promise(self.needed() + POOL + blocks)
    }

    /// Whether so many nodes may be written for what leaves the pool alone.
    pub(crate) fn room_for_growth(&mut self, nodes: u64) -> Result<(), NoRoom> {
        self.room(nodes)
    }

    /// Whether so many nodes may be written, if need be from the pool.
    pub(crate) fn room_for_change(&mut self, nodes: u64) -> Result<(), NoRoom> {
        self.allocation.promise(self.needed() + nodes)
    }

    /// Promises the space that writing this page will take: to be asked for when a page is first
    /// written after a checkpoint. Asking again for the same page promises nothing more.
    ///
    /// # Errors
    /// [`NoRoom`]: the writer must not go on. The next two checkpoints may make room.
    pub fn reserve(&mut self, base: u64, page: u64) -> Result<(), NoRoom> {
        self.reserve_above(POOL, base, page)
    }

    /// The same for a page that may be stored already: if so it needs its new block only until the old one comes back, and may take
    /// that from the pool. So names can be taken away, and directories changed, on a disk that is full.
    ///
    /// # Errors
    /// As [`Store::reserve`].
    pub fn reserve_stored(&mut self, world: &impl World, base: u64, page: u64) -> Result<(), NoRoom> {
        match self.reserve(base, page) {
            // A page whose map node is not in memory may be stored.
            Err(NoRoom::Disk) if matches!(self.view(world, base, page), View::Stored(_) | View::Missing(..)) => {
                self.reserve_above(POOL_OF_DELETES, base, page)
            }
            other => other,
        }
    }

    fn reserve_above(&mut self, pool: u64, base: u64, page: u64) -> Result<(), NoRoom> {
        let (_, levels) = self.shape(base, page.saturating_add(1));
        let edge = self.promises.edge(base, levels);
        let fresh = self.promises.add(base, page, levels);
        if !fresh.map_err(|NoHeap| NoRoom::Memory)? {
            return Ok(());
        }
        self.allocation.promise(self.needed() + pool).inspect_err(|_| {
            self.promises.remove(base, page);
            self.promises.lower_edge(base, edge, levels);
        })
    }

    /// Promises neighbouring pages of an object that has so many pages, and may not be entered yet: `first` up to `end`. Costs some 200 instructions for each 256 of them.
    ///
    /// # Errors
    /// [`NoRoom::Disk`]: promises that these pages had before are gone too. [`NoRoom::Memory`]: nothing has changed.
    pub fn reserve_run(&mut self, base: u64, pages: u64, first: u64, end: u64) -> Result<(), NoRoom> {
        let (_, levels) = self.shape(base, pages.max(end));
        self.promises
            .add_run(base, first, end, levels)
            .map_err(|NoHeap| NoRoom::Memory)?;
        let room = self.room(0);
        if room.is_err() {
            (first..end).for_each(|page| self.unreserve(base, page));
        }
        room
    }

    /// Whether so many more pages, not yet promised, may have room. The nodes above them are not counted, so only `false` is certain.
    pub fn has_room_for(&self, pages: u64) -> bool {
        self.allocation.free_blocks() >= self.needed() + POOL + pages
    }

    /// Takes a promise back, for a page that will not be written after all. (Checkpoint and sync
    /// redeem the promises of the pages they are given.)
    pub fn unreserve(&mut self, base: u64, page: u64) {
        self.promises.remove(base, page);
    }
}

const ONE_LIMIT: Entries = Entries { zeroed: 0, flags: 1 };

/// Blocks that a new record may take in the table.
pub(crate) fn blocks_of(record: &ObjectRecord) -> u64 {
    3 + record.body_bytes() as u64 / 4096
}

/// Nodes that a map of so many levels over so many pages has, at most.
pub(crate) fn all_nodes(pages: u64, levels: u8) -> u64 {
    pages / 128 + u64::from(levels) + 1
}

/// Objects in the order of their addresses, of those whose rows are in memory.
pub struct Objects<'a> {
    store: &'a Store,
    next: Option<u64>,
}

impl<'a> Iterator for Objects<'a> {
    type Item = &'a ObjectRecord;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.store.at_or_after(self.next?) {
                Ok(record) => {
                    let record = record?;
                    self.next = record.base.checked_add(1);
                    return Some(record);
                }
                // The keys of leaves ascend.
                Err(absent) => self.next = Some(absent.end()).filter(|&end| end < u64::MAX),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain::PlainWorld;
    use crate::{FormatOptions, MountMode};

    /// Objects may touch and not overlap, also while one is made longer.
    #[test]
    fn objects_do_not_overlap() {
        const BASE: u64 = 1 << 40;
        let mut world = PlainWorld::new(2000);
        Store::format(&mut world, &FormatOptions::default()).expect("format");
        let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
        let overlap = Err(PutError::Overlap);
        for (first, pages, result) in [
            (8, 8, Ok(())),
            (7, 2, overlap),
            (0, 100, overlap),
            (6, 2, Ok(())),
            (15, 1, overlap),
            (16, 1, Ok(())),
            (8, 9, overlap),
            (6, 3, overlap),
            (8, 7, Ok(())),
            (8, 8, Ok(())),
        ] {
            let record = ObjectRecord {
                base: BASE + first * 4096,
                pages,
                ..ObjectRecord::default()
            };
            assert_eq!(store.put_object(record), result, "{pages} pages at {first}");
        }
        assert_eq!(store.objects().map(|record| record.pages).sum::<u64>(), 11);
    }
}
