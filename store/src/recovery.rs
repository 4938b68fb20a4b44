//! Replaying the journal.

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
use crate::world::{BLOCK, World};
use alloc::vec::Vec;

/// Losses told by name.
const LOSSES_MAX: usize = 1000;

/// One record as found.
struct Found {
    items: Vec<Item>,
    after: Chain,
}

/// The journal region of a generation, read piece by piece.
struct Region {
    start: u64,
    length: u64,
    /// The bytes read so far; an unreadable block is zeroes.
    bytes: Vec<u8>,
    /// The unreadable blocks among them.
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
            bytes: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// Whether one of `count` blocks from `at` on could not be read.
    fn is_unread(&self, at: u64, count: u64) -> bool {
        self.unread.iter().any(|block| (at..at + count).contains(block))
    }

    /// The bytes of `count` blocks from `at` on; `None` past the end.
    fn blocks(&mut self, world: &mut impl World, at: u64, count: u64) -> Result<Option<&[u8]>, MountError> {
        let end = at + count;
        if end > self.length {
            return Ok(None);
        }
        while ((self.bytes.len() / BLOCK) as u64) < end {
            let from = (self.bytes.len() / BLOCK) as u64;
            let wanted = from..(from + RECORD_BLOCKS).min(self.length);
            reserve(&mut self.bytes, (wanted.end - from) as usize * BLOCK)?;
            let blocks = wanted.map(|block| self.start + block);
            read_blocks(world, blocks, |block, bytes| {
                if bytes.is_err() {
                    push(&mut self.unread, block - self.start)?;
                }
                self.bytes.extend_from_slice(bytes.unwrap_or(&[0; BLOCK]));
                Ok(())
            })?;
        }
        Ok(self.bytes.get(at as usize * BLOCK..end as usize * BLOCK))
    }
}

impl Store {
    /// Looks for journal records of a later generation than the one found: each was written behind a superblock that was stable.
    pub(crate) fn look_for_newer(&mut self, world: &mut impl World, unreadable: bool) -> Result<(), MountError> {
        let newer = self.generation + 1;
        let mut region = Region::of(self, newer);
        let extent = if unreadable { Extent::Whole } else { Extent::Record };
        let records = self.intact(world, &mut region, 0, extent, |header| {
            header.generation > self.generation
        })?;
        let newer = records
            .iter()
            .map(|record| record.after.generation)
            .max()
            .unwrap_or(newer);
        if unreadable || !records.is_empty() {
            self.lose(Loss::Generation {
                found: self.generation,
                newer,
                records: records.len() as u32,
            })?;
            self.name_losses(&records)?;
        }
        Ok(())
    }

    /// Notes what lost records did.
    fn name_losses(&mut self, records: &[Found]) -> Result<(), NoHeap> {
        for item in records.iter().flat_map(|record| &record.items) {
            if self.losses.len() >= LOSSES_MAX {
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
            if let Some(Loss::Pages { base, end, .. }) = self.losses.last_mut()
                && let Loss::Pages {
                    base: other,
                    first,
                    end: further,
                } = loss
                && (*base, *end) == (other, first)
            {
                *end = further;
            } else if !self.losses.contains(&loss) {
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

    /// Replays the journal of the current generation in memory.
    pub(crate) fn recover(&mut self, world: &mut impl World, report: &mut MountReport) -> Result<(), MountError> {
        let mut region = Region::of(self, self.generation);
        let mut records = self.scan(world, &mut region, report)?;
        if let Some(last) = records.last()
            && self.breaks.keeps(Invariant::DataChecksums)
            && let Some(reason) = self.missing_pages(world, last)?
        {
            let sequence = last.after.sequence - 1;
            if reason == TailReason::Unread {
                self.lose_unread(sequence, 0)?;
                self.name_losses(core::slice::from_ref(last))?;
            }
            report.tail.get_or_insert(Tail {
                sequence,
                reason,
                stranded: 0,
            });
            records.pop();
        }
        for record in records {
            if !self.replay(world, record.items, report)? {
                report.tail = Some(Tail {
                    sequence: self.journal.sequence,
                    reason: TailReason::Nonsense,
                    stranded: 0,
                });
                self.lose(Loss::Records {
                    sequence: self.journal.sequence,
                    stranded: 0,
                })?;
                break;
            }
            report.replayed += 1;
            self.journal = record.after;
        }
        if report.replayed > 0 && !self.table.is_sound() {
            return Err(MountError::Damaged(Structure::Journal, region.start));
        }
        Ok(())
    }

    /// The records that continue the chain without a gap.
    fn scan(
        &mut self,
        world: &mut impl World,
        region: &mut Region,
        report: &mut MountReport,
    ) -> Result<Vec<Found>, MountError> {
        let mut records = Vec::new();
        let mut chain = self.journal;
        // The blocks that the record has behind the last one of the chain, as far as that is known.
        let mut looked_at;
        let mut reason = loop {
            looked_at = 1;
            let Some(front) = region.blocks(world, chain.used, 1)? else {
                break None;
            };
            let Some(header) = Header::decode(front) else {
                break Header::resembles(front, &chain).then_some(TailReason::Torn);
            };
            let ours = header.generation == chain.generation && header.nonce == chain.nonce;
            let next = header.sequence == chain.sequence && header.previous == chain.previous;
            if self.breaks.keeps(Invariant::Chain) && !(ours && next) {
                // The first sector of a record is written whole: a crash does not leave half of the chain's marks.
                break if ours {
                    Some(TailReason::Chain)
                } else {
                    Header::resembles(front, &chain).then_some(TailReason::Torn)
                };
            }
            let blocks = record_blocks(header.item_bytes);
            if blocks > RECORD_BLOCKS {
                break Some(TailReason::Torn);
            }
            looked_at = blocks;
            let at = region.start + chain.used;
            let Some(bytes) = region.blocks(world, chain.used, blocks)? else {
                break Some(TailReason::Torn);
            };
            if !header.is_intact(&self.checksums, at, bytes) {
                break ours.then_some(TailReason::Torn);
            }
            let items = match header.items(bytes, self.address_bits) {
                Ok(items) => items,
                Err(Unread::Nonsense) => break Some(TailReason::Nonsense),
                Err(Unread::NoHeap) => return Err(MountError::Memory),
            };
            chain = chain.after(header.checksum, blocks);
            push(&mut records, Found { items, after: chain })?;
        };
        if region.is_unread(chain.used, looked_at) {
            reason = Some(TailReason::Unread);
        }
        let extent = if reason.is_some() {
            Extent::Whole
        } else {
            Extent::Record
        };
        let behind = |header: &Header| {
            header.generation == chain.generation && header.nonce == chain.nonce && header.sequence > chain.sequence
        };
        let stranded = self.intact(world, region, chain.used, extent, behind)?;
        let impossible = matches!(reason, Some(TailReason::Chain | TailReason::Nonsense));
        if reason == Some(TailReason::Unread) {
            self.lose_unread(chain.sequence, stranded.len() as u32)?;
            self.name_losses(&stranded)?;
        } else if impossible || !stranded.is_empty() {
            self.lose(Loss::Records {
                sequence: chain.sequence,
                stranded: stranded.len() as u32,
            })?;
            self.name_losses(&stranded)?;
        }
        if reason.is_some() || !stranded.is_empty() {
            report.tail = Some(Tail {
                sequence: chain.sequence,
                reason: reason.unwrap_or(TailReason::Torn),
                stranded: stranded.len() as u32,
            });
        }
        Ok(records)
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
    ) -> Result<Vec<Found>, MountError> {
        let mut found = Vec::new();
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
                let after = Chain {
                    generation: header.generation,
                    ..self.journal
                };
                push(&mut found, Found { items, after })?;
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
        items: Vec<Item>,
        report: &mut MountReport,
    ) -> Result<bool, MountError> {
        if !self.is_possible(&items)? {
            return Ok(false);
        }
        for item in items {
            match item {
                Item::Put(record) => {
                    if let Some(old) = self.table.get(record.base).map(|row| row.record.pages) {
                        self.note_zeroed(record.base, record.pages, old)?;
                    }
                    self.table.put(record)?;
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
                    let possible = known && *page < reach(LEVELS_MAX) && self.allocation.is_unused(entry.block);
                    if !possible || blocks.insert(entry.block, ())?.is_some() {
                        return Ok(false);
                    }
                }
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
        self.allocation.claim(entry.block);
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
