//! Replaying the journal: record by record, for it may be as large as all the heap of a small machine, and its items larger.

use crate::blocking::read_blocks;
use crate::breaks::Invariant;
use crate::bytes::Unread;
use crate::containers::{Map, push, reserve};
use crate::event::{BadPage, Failure, MountError, MountMode, MountReport, Structure, Tail, TailReason};
use crate::geometry::RECORD_BLOCKS;
use crate::heap::NoHeap;
use crate::journal::{Chain, Header, Item, record_blocks};
use crate::loss::Loss;
use crate::map::{Entry, LEVELS_MAX, Path, reach};
use crate::store::Store;
use crate::table::Held;
use crate::world::{BLOCK, World};
use alloc::vec::Vec;

/// Losses told by name.
const LOSSES_MAX: usize = 1000;

/// One record as found.
struct Found {
    items: Vec<Item>,
    after: Chain,
}

/// The end of a chain of records: a further record, or none. If a record should be there, the reason why there is none; and the number of blocks that were looked at.
enum Next {
    Record(Found),
    End(Option<TailReason>, u64),
}

/// Records that no chain leads to.
#[derive(Default)]
struct Stranded {
    count: u32,
    /// The latest of their generations.
    newest: u64,
    /// The changes that they made, as losses: [`LOSSES_MAX`] at most.
    losses: Vec<Loss>,
}

/// Blocks of a journal region that are in memory: a mount must not need more of it the more records there are.
const WINDOW: u64 = 2 * RECORD_BLOCKS;

/// The journal region of a generation, of which a window is in memory.
struct Region {
    start: u64,
    length: u64,
    /// The first block of the window.
    first: u64,
    /// The bytes of the window; an unreadable block is zeroes.
    bytes: Vec<u8>,
    /// The unreadable blocks that were found.
    unread: Vec<u64>,
}

/// How much of a journal region is looked through.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Extent {
    /// As far as a record could reach.
    Record,
    /// All of it.
    Whole,
}

impl Region {
    fn of(store: &Store, generation: u64) -> Self {
        Self {
            start: store.geometry.journal_start(generation),
            length: store.geometry.journal,
            first: 0,
            bytes: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// Whether one of `count` blocks from `at` on could not be read.
    fn is_unread(&self, at: u64, count: u64) -> bool {
        self.unread.iter().any(|block| (at..at + count).contains(block))
    }

    /// The bytes of `count` blocks from `at` on, no more than a record has; `None` past the end.
    fn blocks(&mut self, world: &mut impl World, at: u64, count: u64) -> Result<Option<&[u8]>, MountError> {
        let end = at + count;
        if end > self.length {
            return Ok(None);
        }
        let has = self.first..self.first + (self.bytes.len() / BLOCK) as u64;
        if !has.contains(&at) || end > has.end {
            let kept = if has.contains(&at) { has.end - at } else { 0 };
            self.bytes.drain(..self.bytes.len() - kept as usize * BLOCK);
            self.first = at;
            let wanted = at + kept..(at + WINDOW).min(self.length);
            reserve(&mut self.bytes, (wanted.end - wanted.start) as usize * BLOCK)?;
            let start = self.start;
            read_blocks(world, wanted.map(|block| start + block), |block, bytes| {
                if bytes.is_err() && !self.is_unread(block - start, 1) {
                    push(&mut self.unread, block - start)?;
                }
                self.bytes.extend_from_slice(bytes.unwrap_or(&[0; BLOCK]));
                Ok(())
            })?;
        }
        let offset = (at - self.first) as usize * BLOCK;
        Ok(self.bytes.get(offset..offset + count as usize * BLOCK))
    }
}

/// Notes as losses what lost records did.
fn name_losses(losses: &mut Vec<Loss>, items: &[Item]) -> Result<(), NoHeap> {
    for item in items {
        if losses.len() >= LOSSES_MAX {
            break;
        }
        let loss = match *item {
            Item::Put(ref record) => Loss::Object { base: record.base },
            Item::Delete(base) => Loss::Object { base },
            Item::Zero { base, start, end } if start < end => Loss::Pages {
                base,
                first: start,
                end,
            },
            Item::Limit { base, page, .. } | Item::Page { base, page, .. } => Loss::Pages {
                base,
                first: page,
                end: page.saturating_add(1),
            },
            Item::Zero { .. } => continue,
        };
        // Neighbours mostly come one after the other.
        if let Some(Loss::Pages { base, end, .. }) = losses.last_mut()
            && let Loss::Pages {
                base: other,
                first,
                end: further,
            } = loss
            && (*base, *end) == (other, first)
        {
            *end = further;
        } else if !losses.contains(&loss) {
            push(losses, loss)?;
        }
    }
    Ok(())
}

impl Store {
    /// Looks for journal records of a later generation than the one found: each was written behind a superblock that was stable, or is marked as ahead of it.
    pub(crate) fn look_for_newer(&mut self, world: &mut impl World, unreadable: bool) -> Result<(), MountError> {
        let newer = self.generation + 1;
        let mut region = Region::of(self, newer);
        let extent = if unreadable { Extent::Whole } else { Extent::Record };
        // Those that are ahead of their superblock prove nothing, and what they say stands in the current journal, too.
        let is_proof = |header: &Header| header.ahead == 0 || !self.breaks.keeps(Invariant::AheadIsNoProof);
        let found = self.intact(world, &mut region, 0, extent, |header| {
            header.generation > self.generation && is_proof(header)
        })?;
        if unreadable || found.count > 0 {
            self.lose(Loss::Generation {
                found: self.generation,
                newer: newer.max(found.newest),
                records: found.count,
            })?;
            self.lose_all(found.losses)?;
        }
        Ok(())
    }

    /// Notes losses that were not noted before.
    fn lose_all(&mut self, losses: Vec<Loss>) -> Result<(), NoHeap> {
        for loss in losses {
            if !self.losses.contains(&loss) {
                self.lose(loss)?;
            }
        }
        Ok(())
    }

    /// Notes a loss.
    pub(crate) fn lose(&mut self, loss: Loss) -> Result<(), NoHeap> {
        push(&mut self.losses, loss)?;
        Ok(())
    }

    /// Notes that records cannot be read. They may be there: a disk that fails may work again, and until then nothing is to be written over them.
    fn lose_unread(&mut self, sequence: u64, stranded: u32) -> Result<(), MountError> {
        if self.mode == MountMode::ReadWrite {
            return Err(MountError::Disk);
        }
        Ok(self.lose(Loss::Records { sequence, stranded })?)
    }

    /// Replays the journal of the current generation in memory: each record as soon as the next one shows that the disk had all of it.
    pub(crate) fn recover(&mut self, world: &mut impl World, report: &mut MountReport) -> Result<(), MountError> {
        let mut region = Region::of(self, self.generation);
        let mut chain = self.journal;
        let mut last: Option<Found> = None;
        let is_possible = loop {
            match self.next_record(world, &mut region, &chain)? {
                Next::Record(found) => {
                    chain = found.after;
                    if let Some(before) = last.replace(found)
                        && !self.replay_whole(world, before, report)?
                    {
                        break false;
                    }
                }
                Next::End(reason, looked_at) => {
                    self.tell_tail(world, &mut region, &chain, (reason, looked_at), report)?;
                    break true;
                }
            }
        };
        if is_possible && let Some(last) = last {
            self.replay_last(world, last, report)?;
        }
        if report.replayed > 0 && !self.is_sound_where_changed(world)? {
            return Err(MountError::Damaged(Structure::Journal, region.start));
        }
        Ok(())
    }

    /// Whether rows of leaves that the journal has changed overlap no others.
    fn is_sound_where_changed(&mut self, world: &mut impl World) -> Result<bool, MountError> {
        for &(from, end) in self.table.changed_ranges()?.iter() {
            for at in [from.checked_sub(1), Some(end)].into_iter().flatten() {
                self.bring_neighbour(world, at, at == end)?;
            }
            let mut end_before = match from.checked_sub(1) {
                Some(before) => self
                    .table
                    .floor(before)
                    .ok()
                    .flatten()
                    .map_or(0, |row| row.record.end()),
                None => 0,
            };
            let mut next = self.table.ceiling(from).ok().flatten();
            while let Some(row) = next {
                if row.record.base < end_before || self.table.get(row.record.base).is_none() {
                    return Ok(false);
                }
                end_before = row.record.end();
                next = if row.record.base < end {
                    self.table.ceiling(row.record.base + 1).ok().flatten()
                } else {
                    None
                };
            }
        }
        Ok(true)
    }

    /// Brings the leaf in that has the last row up to an address, or the first one behind it; one that is rotten has none.
    fn bring_neighbour(&mut self, world: &mut impl World, address: u64, behind: bool) -> Result<(), MountError> {
        loop {
            let found = if behind {
                self.table.ceiling(address)
            } else {
                self.table.floor(address)
            };
            match found.map(drop) {
                Err(absent) if self.bring(world, absent.from())? => {}
                _ => return Ok(()),
            }
        }
    }

    /// Brings the leaves in that a record changes. What it says of objects whose rows are rotten is lost.
    fn bring_leaves(&mut self, world: &mut impl World, items: &mut Vec<Item>) -> Result<(), MountError> {
        let mut lost: Vec<Item> = Vec::new();
        let mut at = 0;
        while let Some(item) = items.get(at) {
            if self.bring(world, item.base())? {
                at += 1;
            } else {
                push(&mut lost, items.remove(at))?;
            }
        }
        let mut losses = core::mem::take(&mut self.losses);
        let named = name_losses(&mut losses, &lost);
        self.losses = losses;
        Ok(named?)
    }

    /// Replays the last record, if its pages are there: no other one shows that the disk had them.
    fn replay_last(&mut self, world: &mut impl World, last: Found, report: &mut MountReport) -> Result<(), MountError> {
        let missing = if self.breaks.keeps(Invariant::DataChecksums) {
            self.missing_pages(world, &last)?
        } else {
            None
        };
        let Some(reason) = missing else {
            return self.replay_whole(world, last, report).map(|_| ());
        };
        let sequence = last.after.sequence - 1;
        if reason == TailReason::Unread {
            self.lose_unread(sequence, 0)?;
            name_losses(&mut self.losses, &last.items)?;
        }
        report.tail.get_or_insert(Tail {
            sequence,
            reason,
            stranded: 0,
        });
        Ok(())
    }

    /// Replays a record; `false` if it cannot be true, which is told then.
    fn replay_whole(
        &mut self,
        world: &mut impl World,
        record: Found,
        report: &mut MountReport,
    ) -> Result<bool, MountError> {
        if self.replay(world, record.items, report)? {
            report.replayed += 1;
            self.journal = record.after;
            return Ok(true);
        }
        report.tail = Some(Tail {
            sequence: self.journal.sequence,
            reason: TailReason::Nonsense,
            stranded: 0,
        });
        self.lose(Loss::Records {
            sequence: self.journal.sequence,
            stranded: 0,
        })?;
        Ok(false)
    }

    /// The record that continues a chain without a gap.
    fn next_record(&self, world: &mut impl World, region: &mut Region, chain: &Chain) -> Result<Next, MountError> {
        let Some(front) = region.blocks(world, chain.used, 1)? else {
            return Ok(Next::End(None, 1));
        };
        let Some(header) = Header::decode(front) else {
            let torn = Header::resembles(front, chain).then_some(TailReason::Torn);
            return Ok(Next::End(torn, 1));
        };
        let ours = header.is_of(chain);
        let next = header.sequence == chain.sequence && header.previous == chain.previous;
        if self.breaks.keeps(Invariant::Chain) && !(ours && next) {
            // The first sector of a record is written whole: a crash does not leave half of the chain's marks.
            let reason = if ours {
                Some(TailReason::Chain)
            } else if header.is_left_over(chain) {
                None
            } else {
                Header::resembles(front, chain).then_some(TailReason::Torn)
            };
            return Ok(Next::End(reason, 1));
        }
        let blocks = record_blocks(header.item_bytes);
        if blocks > RECORD_BLOCKS {
            return Ok(Next::End(Some(TailReason::Torn), 1));
        }
        let at = region.start + chain.used;
        let Some(bytes) = region.blocks(world, chain.used, blocks)? else {
            return Ok(Next::End(Some(TailReason::Torn), blocks));
        };
        if !header.is_intact(&self.checksums, at, bytes) {
            return Ok(Next::End(ours.then_some(TailReason::Torn), blocks));
        }
        match header.items(bytes, self.address_bits) {
            Ok(items) => Ok(Next::Record(Found {
                items,
                after: chain.after(header.checksum, blocks),
            })),
            Err(Unread::Nonsense) => Ok(Next::End(Some(TailReason::Nonsense), blocks)),
            Err(Unread::NoHeap) => Err(MountError::Memory),
        }
    }

    /// Tells why a chain ends, and what stands behind its end.
    fn tell_tail(
        &mut self,
        world: &mut impl World,
        region: &mut Region,
        chain: &Chain,
        (reason, looked_at): (Option<TailReason>, u64),
        report: &mut MountReport,
    ) -> Result<(), MountError> {
        let is_unread = region.is_unread(chain.used, looked_at);
        let reason = if is_unread { Some(TailReason::Unread) } else { reason };
        let extent = if reason.is_some() {
            Extent::Whole
        } else {
            Extent::Record
        };
        let behind = |header: &Header| header.is_of(chain) && header.sequence > chain.sequence;
        let stranded = self.intact(world, region, chain.used, extent, behind)?;
        let count = stranded.count;
        let impossible = matches!(reason, Some(TailReason::Chain | TailReason::Nonsense));
        if reason == Some(TailReason::Unread) {
            self.lose_unread(chain.sequence, count)?;
            self.lose_all(stranded.losses)?;
        } else if impossible || count > 0 {
            self.lose(Loss::Records {
                sequence: chain.sequence,
                stranded: count,
            })?;
            self.lose_all(stranded.losses)?;
        }
        if reason.is_some() || count > 0 {
            report.tail = Some(Tail {
                sequence: chain.sequence,
                reason: reason.unwrap_or(TailReason::Torn),
                stranded: count,
            });
        }
        Ok(())
    }

    /// Intact records from a block of a region on. Only one record is ever on its way, so in a journal that has not rotted there is
    /// none at all if there is none within the length of one.
    fn intact(
        &self,
        world: &mut impl World,
        region: &mut Region,
        from: u64,
        extent: Extent,
        wanted: impl Fn(&Header) -> bool,
    ) -> Result<Stranded, MountError> {
        let mut found = Stranded::default();
        let start = region.start;
        let mut at = from;
        let mut end = if extent == Extent::Whole {
            u64::MAX
        } else {
            from + RECORD_BLOCKS + 1
        };
        while at < end {
            let Some(front) = region.blocks(world, at, 1)? else {
                break;
            };
            let mut step = 1;
            if let Some(header) = Header::decode(front)
                && wanted(&header)
                && record_blocks(header.item_bytes) <= RECORD_BLOCKS
                && let Some(bytes) = region.blocks(world, at, record_blocks(header.item_bytes))?
                && header.is_intact(&self.checksums, start + at, bytes)
            {
                let items = match header.items(bytes, self.address_bits) {
                    Ok(items) => items,
                    Err(Unread::Nonsense) => Vec::new(),
                    Err(Unread::NoHeap) => return Err(MountError::Memory),
                };
                found.count += 1;
                found.newest = found.newest.max(header.generation);
                name_losses(&mut found.losses, &items)?;
                step = record_blocks(header.item_bytes);
                end = end.max(at + step + RECORD_BLOCKS + 1);
            }
            at += step;
        }
        Ok(found)
    }

    /// Why not every page of a record is as the record says, if that is so.
    fn missing_pages(&self, world: &mut impl World, record: &Found) -> Result<Option<TailReason>, MountError> {
        let entries = || {
            record.items.iter().filter_map(|item| match item {
                Item::Page { entry, .. } => Some(*entry),
                _ => None,
            })
        };
        if entries().any(|entry| !self.geometry.is_data(entry.block)) {
            return Ok(Some(TailReason::Data));
        }
        let (mut wanted, mut missing) = (entries(), None);
        read_blocks(world, entries().map(|entry| entry.block), |block, bytes| {
            let entry = wanted.next();
            let fit = |bytes| entry.is_some_and(|entry| self.checksums.fit(entry.checksum, block, bytes));
            match bytes.map(|bytes| fit(bytes)) {
                Ok(true) => {}
                // A page that is not there: the record counts for nothing, whatever could not be read.
                Ok(false) => missing = Some(TailReason::Data),
                Err(_) => missing = missing.or(Some(TailReason::Unread)),
            }
            Ok(())
        })?;
        Ok(missing)
    }

    /// Makes what a record says; `false`, with nothing made, if it cannot be true.
    fn replay(
        &mut self,
        world: &mut impl World,
        mut items: Vec<Item>,
        report: &mut MountReport,
    ) -> Result<bool, MountError> {
        self.bring_leaves(world, &mut items)?;
        if !self.is_possible(&items)? {
            return Ok(false);
        }
        for item in items {
            // What is changed in the map of an object will change its row, and what is noted for it needs that.
            self.table.keep_until_written(item.base());
            match item {
                Item::Put(record) => {
                    if let Some(old) = self.table.get(record.base).map(|row| row.record.pages) {
                        self.note_zeroed(record.base, record.pages, old)?;
                    }
                    self.table.put(record, Held::No)?;
                }
                Item::Delete(base) => {
                    self.pending.take(base);
                    self.table.expect_removal(0)?;
                    if let Some(map) = self.table.remove(base) {
                        self.doomed.insert(base, map)?;
                        self.deleted.insert(base, 0)?;
                    }
                }
                Item::Zero { base, start, end } => self.note_zeroed(base, start, end)?,
                Item::Limit { base, page, flags } => {
                    self.note_limit(base, page, flags)?;
                }
                Item::Page { base, page, entry } => self.replay_page(world, base, page, entry, report)?,
            }
        }
        self.let_leaves_go();
        Ok(true)
    }

    /// Whether the blocks are free, each is named once, and every object is there when it is needed.
    fn is_possible(&self, items: &[Item]) -> Result<bool, NoHeap> {
        let (mut blocks, mut put) = (Map::default(), Map::default());
        for item in items {
            match item {
                Item::Put(record) => drop(put.insert(record.base, ())?),
                Item::Page { base, page, entry } => {
                    let known = put.has(*base) || self.table.get(*base).is_some();
                    let possible = known
                        && *page < reach(LEVELS_MAX)
                        && self.allocation.is_unused(entry.block)
                        && !self.allocation.is_surely_held(entry.block);
                    if !possible || blocks.insert(entry.block, ())?.is_some() {
                        return Ok(false);
                    }
                }
                // A map grows for a limit: further than any map reaches, and the table could not be read again.
                Item::Limit { page, .. } if *page >= reach(LEVELS_MAX) => return Ok(false),
                Item::Delete(_) | Item::Zero { .. } | Item::Limit { .. } => {}
            }
        }
        Ok(true)
    }

    fn replay_page(
        &mut self,
        world: &mut impl World,
        base: u64,
        page: u64,
        entry: Entry,
        report: &mut MountReport,
    ) -> Result<(), MountError> {
        self.allocation.claim(entry.block)?;
        self.pending
            .change(base, |changes| changes.punch(page))
            .unwrap_or(Ok(()))?;
        loop {
            let Some(row) = self.table.get(base) else {
                self.allocation.free(entry.block);
                return Ok(());
            };
            let mut root = row.map;
            let path = self.prepare(world, base, &mut root, page);
            self.table.set_map(base, root);
            match path {
                Path::Ready => break,
                Path::NoMemory => return Err(MountError::Memory),
                Path::Missing(missing) => {
                    match self.load_for_job(world, missing) {
                        Ok(()) => {}
                        Err(Failure::Disk) => return Err(MountError::Disk),
                        Err(_) => return Err(MountError::Memory),
                    }
                    if self.wait_for_nodes(world) == Some(BadPage::Map) {
                        push(&mut report.damage, (Structure::Map, missing.entry.block))?;
                    }
                }
            }
        }
        let old = self.set_entry(world, base, page, entry);
        self.allocation.free(old.block);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
