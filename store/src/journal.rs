//! Journal records: what a sync makes durable without a checkpoint.
//!
//! A record says where pages went, never what they hold, and which rows of the object table changed.
//! Its pages and the record itself go to the disk together, before one flush. So after a crash the
//! *last* record may be whole and its pages not: that record is believed only if every page has
//! the checksum it states. The records before it were flushed before it was begun.
//!
//! ```text
//! 0  magic        8  checksum of all that follows in the record's blocks
//! 16 generation  24  nonce of the mount      32 sequence    40 checksum of the previous record
//! 48 bytes of items (u32)  52 items (u32)    56 ahead       64 items
//! ```
//! The first record of a generation is chained to the *root* of the journal, a number that the superblock names. A record that was written before
//! the superblock bears that number at `ahead`, others zero there: it proves no generation.

use crate::bytes::{Reader, Unread, Writer, set_word, word};
use crate::checksum::{Checksums, Sum};
use crate::containers::{filled, push_reserved};
use crate::event::PageFlags;
use crate::heap::{NoHeap, with_room};
use crate::map::Entry;
use crate::record::ObjectRecord;
use crate::world::BLOCK;
use alloc::vec::Vec;

const MAGIC: u64 = u64::from_le_bytes(*b"GJOURNAL");
const CHECKSUM_AT: usize = 8;
/// The start of the part that the checksum covers.
const COVERED: usize = 16;
/// Offset of the bytes of items and their number.
const COUNTS_AT: usize = 48;
/// Offset of the root, in a record that is ahead of its superblock.
const AHEAD_AT: usize = 56;
/// Bytes of a record's header.
pub(crate) const HEADER: usize = 64;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const ZERO: u8 = 3;
const LIMIT: u8 = 4;
const PAGE: u8 = 5;

/// One change.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Item {
    /// An object appears, or its row changes.
    Put(ObjectRecord),
    /// An object disappears.
    Delete(u64),
    /// Pages read as zero, from the first to one past the last.
    Zero { base: u64, start: u64, end: u64 },
    /// A page has limits.
    Limit { base: u64, page: u64, flags: PageFlags },
    /// A page lies elsewhere.
    Page { base: u64, page: u64, entry: Entry },
}

impl Item {
    /// The base of the object that it changes.
    pub(crate) fn base(&self) -> u64 {
        match *self {
            Self::Put(ref record) => record.base,
            Self::Delete(base) | Self::Zero { base, .. } | Self::Limit { base, .. } | Self::Page { base, .. } => base,
        }
    }

    /// Bytes of a [put](Item::Put) of such a row.
    pub(crate) fn put_bytes(record: &ObjectRecord) -> usize {
        1 + crate::record::HEAD_BYTES + 4 + record.body_bytes()
    }

    /// Bytes in the record.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Put(record) => Self::put_bytes(record),
            Self::Delete(_) => 9,
            Self::Zero { .. } => 25,
            Self::Limit { .. } => 19,
            Self::Page { .. } => PAGE_BYTES,
        }
    }

    fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Self::Put(record) => {
                out.put_u8(PUT);
                record.encode_head(out);
                out.put_u32(record.body_bytes() as u32);
                record.encode_body(out);
            }
            Self::Delete(base) => {
                out.put_u8(DELETE);
                out.put_u64(*base);
            }
            Self::Zero { base, start, end } => {
                out.put_u8(ZERO);
                out.put_words([*base, *start, *end]);
            }
            Self::Limit { base, page, flags } => {
                out.put_u8(LIMIT);
                out.put_u64(*base);
                out.put_u64(*page);
                out.put_u16(flags.bits());
            }
            Self::Page { base, page, entry } => {
                out.put_u8(PAGE);
                let [low, high] = entry.to_words();
                out.put_words([*base, *page, low, high]);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>, address_bits: u32) -> Result<Self, Unread> {
        Ok(match reader.u8()? {
            PUT => {
                let mut record = ObjectRecord::decode_head(reader)?;
                let length = reader.u32()? as usize;
                record.decode_body(reader.take(length)?, address_bits)?;
                Self::Put(record)
            }
            DELETE => Self::Delete(reader.u64()?),
            ZERO => Self::Zero {
                base: reader.u64()?,
                start: reader.u64()?,
                end: reader.u64()?,
            },
            LIMIT => Self::Limit {
                base: reader.u64()?,
                page: reader.u64()?,
                flags: PageFlags::from_bits_retain(reader.u16()?),
            },
            PAGE => Self::Page {
                base: reader.u64()?,
                page: reader.u64()?,
                entry: Entry::from_words([reader.u64()?, reader.u64()?]),
            },
            _ => return Err(Unread::Nonsense),
        })
    }
}

/// Bytes of a page in a record.
pub(crate) const PAGE_BYTES: usize = 33;

/// Blocks of a record with that many bytes of items.
pub(crate) fn record_blocks(item_bytes: usize) -> u64 {
    (HEADER + item_bytes).div_ceil(BLOCK) as u64
}

/// The end of the journal of the current generation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Chain {
    pub(crate) generation: u64,
    pub(crate) nonce: u64,
    /// The root of the journal.
    pub(crate) root: u64,
    pub(crate) sequence: u64,
    /// Checksum of the record before, or the root.
    pub(crate) previous: u64,
    /// Blocks used.
    pub(crate) used: u64,
}

impl Chain {
    /// The chain of a generation without records.
    pub(crate) fn new(generation: u64, nonce: u64, root: u64) -> Self {
        Self {
            generation,
            nonce,
            root,
            sequence: 0,
            previous: root,
            used: 0,
        }
    }

    /// The next record, with room for so many bytes of items, which are yet to be put in; one that is ahead of the superblock, or another.
    ///
    /// # Errors
    /// [`NoHeap`].
    pub(crate) fn draft(&self, checksums: &Checksums, item_bytes: usize, is_ahead: IsAhead) -> Result<Draft, NoHeap> {
        let mut bytes = filled(0, record_blocks(item_bytes) as usize * BLOCK)?;
        let mut out = Writer::new(&mut bytes, 0);
        out.put_words([MAGIC, 0, self.generation, self.nonce, self.sequence, self.previous]);
        if is_ahead == IsAhead::Yes {
            set_word(&mut bytes, AHEAD_AT, self.root);
        }
        Ok(Draft {
            bytes,
            items: 0,
            end: HEADER,
            summed: COVERED,
            sum: checksums.sum(),
        })
    }

    /// The chain with one record more.
    pub(crate) fn after(&self, checksum: u64, blocks: u64) -> Self {
        Self {
            sequence: self.sequence + 1,
            previous: checksum,
            used: self.used + blocks,
            ..*self
        }
    }
}

/// Whether a record is written before the superblock of its generation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum IsAhead {
    Yes,
    No,
}

/// A record in the making: the items are put in, then it is summed up piece by piece, then it can be written.
pub(crate) struct Draft {
    bytes: Vec<u8>,
    items: u32,
    /// The end of the items so far.
    end: usize,
    /// The end of what is summed up.
    summed: usize,
    sum: Sum,
}

impl Draft {
    /// Its blocks.
    pub(crate) fn blocks(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.bytes.chunks_exact(BLOCK)
    }

    /// Bytes of items that there is room for.
    pub(crate) fn room(&self) -> usize {
        self.bytes.len() - self.end
    }

    /// Puts an item in.
    pub(crate) fn put(&mut self, item: &Item) {
        item.encode(&mut Writer::new(&mut self.bytes[self.end..], 0));
        self.end += item.bytes();
        self.items += 1;
    }

    /// No item comes any more: the header tells of those that are there, and what they did not need goes.
    fn close(&mut self) {
        let item_bytes = self.end - HEADER;
        let counts = item_bytes as u64 | u64::from(self.items) << 32;
        set_word(&mut self.bytes, COUNTS_AT, counts);
        self.bytes.truncate(record_blocks(item_bytes) as usize * BLOCK);
    }

    /// Bytes of the piece that is summed up next, without the zeroes behind the last item.
    pub(crate) fn left_to_sum(&self) -> usize {
        self.end.saturating_sub(self.summed).min(BLOCK)
    }

    /// Sums a piece of the length of a block up; the checksum, when that was the last one of a record that begins at `block`.
    pub(crate) fn sum_up(&mut self, checksums: &Checksums, block: u64) -> Option<u64> {
        if self.summed == COVERED {
            self.close();
        }
        let end = (self.summed + BLOCK).min(self.bytes.len());
        let items_end = self.end.saturating_sub(self.summed);
        self.sum.add(checksums, &self.bytes[self.summed..end], items_end);
        self.summed = end;
        (end == self.bytes.len()).then(|| {
            let checksum = self.sum.finish(block);
            set_word(&mut self.bytes, CHECKSUM_AT, checksum);
            checksum
        })
    }
}

/// A record's header as found.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) checksum: u64,
    pub(crate) generation: u64,
    pub(crate) nonce: u64,
    pub(crate) sequence: u64,
    pub(crate) previous: u64,
    pub(crate) item_bytes: usize,
    items: u32,
    /// The root of its journal, if it was written before the superblock.
    pub(crate) ahead: u64,
}

impl Header {
    /// The header at the front of a block, if it looks like one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        Self::read(&mut Reader::new(bytes)).ok()
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Unread> {
        if reader.u64()? != MAGIC {
            return Err(Unread::Nonsense);
        }
        Ok(Self {
            checksum: reader.u64()?,
            generation: reader.u64()?,
            nonce: reader.u64()?,
            sequence: reader.u64()?,
            previous: reader.u64()?,
            item_bytes: reader.u32()? as usize,
            items: reader.u32()?,
            ahead: reader.u64()?,
        })
    }

    /// Whether it is of the journal of a chain.
    pub(crate) fn is_of(&self, chain: &Chain) -> bool {
        self.generation == chain.generation
            && self.nonce == chain.nonce
            && (self.ahead == 0 || self.ahead == chain.root)
    }

    /// Whether it was written ahead of a superblock that came to nothing.
    pub(crate) fn is_left_over(&self, chain: &Chain) -> bool {
        self.ahead != 0 && self.ahead != chain.root && self.previous != chain.previous
    }

    /// Whether a block that is no record bears most of the marks of the one that comes next: rot has taken the others.
    pub(crate) fn resembles(bytes: &[u8], chain: &Chain) -> bool {
        let marks = [
            (0, MAGIC),
            (16, chain.generation),
            (24, chain.nonce),
            (32, chain.sequence),
            (40, chain.previous),
        ];
        marks.iter().filter(|&&(at, mark)| word(bytes, at) == mark).count() >= 4
    }

    /// Whether the record that fills `bytes`, found at `block`, is intact.
    pub(crate) fn is_intact(&self, checksums: &Checksums, block: u64, bytes: &[u8]) -> bool {
        bytes
            .get(COVERED..)
            .is_some_and(|covered| checksums.fit(self.checksum, block, covered))
    }

    /// The items.
    pub(crate) fn items(&self, bytes: &[u8], address_bits: u32) -> Result<Vec<Item>, Unread> {
        let covered = bytes.get(HEADER..HEADER + self.item_bytes).ok_or(Unread::Nonsense)?;
        // None is shorter.
        if self.items as usize > covered.len() / Item::Delete(0).bytes() {
            return Err(Unread::Nonsense);
        }
        let mut reader = Reader::new(covered);
        let mut items = with_room(self.items as usize)?;
        for _ in 0..self.items {
            push_reserved(&mut items, Item::decode(&mut reader, address_bits)?);
        }
        reader.is_empty().then_some(items).ok_or(Unread::Nonsense)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Key;

    fn checksums() -> Checksums {
        Checksums::new(Key { low: 1, high: 2 }, false).unwrap()
    }

    fn encode(chain: Chain, block: u64, items: &[Item]) -> (Vec<u8>, u64) {
        // More room than they need.
        let mut draft = chain.draft(&checksums(), 3 * BLOCK, IsAhead::No).unwrap();
        for item in items {
            draft.put(item);
        }
        let checksum = core::iter::from_fn(|| Some(draft.sum_up(&checksums(), block)))
            .flatten()
            .next()
            .unwrap();
        (draft.bytes, checksum)
    }

    #[test]
    fn a_record_comes_back_and_its_size_is_as_announced() {
        let record = ObjectRecord {
            base: 4096,
            pages: 2,
            capabilities: alloc::vec![(7, 15)],
            ..ObjectRecord::default()
        };
        let entry = Entry {
            block: 77,
            flags: PageFlags::READ,
            checksum: 5,
        };
        let items = [
            Item::Put(record),
            Item::Delete(8192),
            Item::Zero {
                base: 4096,
                start: 0,
                end: 1,
            },
            Item::Limit {
                base: 4096,
                page: 1,
                flags: PageFlags::WRITE,
            },
            Item::Page {
                base: 4096,
                page: 1,
                entry,
            },
        ];
        let chain = Chain::new(3, 4, 5);
        let (bytes, checksum) = encode(chain, 10, &items);
        let header = Header::decode(&bytes).unwrap();
        assert_eq!(header.checksum, checksum);
        assert!(header.is_intact(&checksums(), 10, &bytes));
        assert!(!header.is_intact(&checksums(), 11, &bytes));
        assert_eq!(header.items(&bytes, 47).as_deref(), Ok(&items[..]));
        assert_eq!(
            bytes.len() as u64 / 4096,
            record_blocks(items.iter().map(Item::bytes).sum())
        );
    }

    proptest::proptest! {
        #[test]
        fn nothing_makes_the_decoder_panic(changes in proptest::collection::vec((0..4096_usize, proptest::num::u8::ANY), 0..40)) {
            let record = ObjectRecord { base: 4096, pages: 2, ..ObjectRecord::default() };
            let (mut bytes, _) = encode(Chain::new(3, 4, 5), 10, &[Item::Put(record), Item::Delete(8192)]);
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            if let Some(header) = Header::decode(&bytes) {
                let _ = header.items(&bytes, 47);
            }
        }
    }
}
