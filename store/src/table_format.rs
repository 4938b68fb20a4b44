//! Nodes of the object table as blocks.
//!
//! ```text
//! leaf      magic u32, rows u32, then rows: head (64), levels u8, map entry (16), body length u32,
//!           then the body, or, if that is longer than 1024 bytes, {block, checksum} of each
//!           overflow block
//! inner     magic u32, children u32, then {smallest key, block, checksum} of each child; where that is a
//!           leaf, the upper 16 bits of the block's word are its summary (`table/paging.rs`)
//! overflow  a piece of a body, up to 4096 bytes, the rest zero
//! ```

use crate::bytes::{Reader, Unread, Writer, word};
use crate::containers::push_reserved;
use crate::heap::with_room;
use crate::map::{Entry, LEVELS_MAX, MapRoot};
use crate::record::{HEAD_BYTES, ObjectRecord};
use crate::superblock::Place;
use crate::table::{Body, Part, Row, Summary, Table};
use crate::world::BLOCK;
use alloc::vec::Vec;

const LEAF_MAGIC: u32 = u32::from_le_bytes(*b"GLEF");
const INNER_MAGIC: u32 = u32::from_le_bytes(*b"GINN");
const HEADER: usize = 8;
/// Bytes of a row without its body.
const ROW_BYTES: usize = HEAD_BYTES + 1 + 16 + 4;
/// Longest body that stands in the leaf.
const INLINE_MAX: usize = 1024;
/// Longest body there can be: more than this is no record of ours.
const BODY_MAX: usize = 64 * 1024;
/// Bytes for rows in a leaf.
pub(crate) const LEAF_BYTES: usize = BLOCK - HEADER;
/// Rows of a leaf, at most.
pub const LEAF_ROWS_MAX: u64 = (LEAF_BYTES / ROW_BYTES) as u64;
/// Children of an inner node.
pub(crate) const INNER_MAX: usize = (BLOCK - HEADER) / 24;
/// Overflow blocks of one row, at most.
pub(crate) const OVERFLOW_MAX: usize = BODY_MAX / BLOCK;
/// Bits of a word that are the number of a block.
const BLOCK_BITS: u32 = 48;

/// Overflow blocks for a body of that length.
pub(crate) fn overflow_blocks(body_bytes: usize) -> usize {
    if body_bytes > INLINE_MAX {
        body_bytes.div_ceil(BLOCK)
    } else {
        0
    }
}

/// Bytes of a row in its leaf.
pub(crate) fn row_bytes(row: &Row) -> usize {
    ROW_BYTES
        + if row.overflow.is_empty() {
            row.record.body_bytes()
        } else {
            16 * row.overflow.len()
        }
}

/// The block of a part of the tree. Tells how many rows stand in it.
pub(crate) fn encode(table: &Table, part: Part, out: &mut [u8; BLOCK]) -> u64 {
    out.fill(0);
    let from = match part {
        Part::Node(_) => 0,
        Part::Overflow(.., index) => index * BLOCK,
    };
    let mut bytes = Writer::new(out, from);
    match part {
        Part::Node(id) => match table.body(id) {
            Body::Leaf(rows) => {
                bytes.put_u32(LEAF_MAGIC);
                bytes.put_u32(rows.len() as u32);
                for row in rows {
                    encode_row(row, &mut bytes);
                }
                return rows.len() as u64;
            }
            Body::Inner(children) => {
                bytes.put_u32(INNER_MAGIC);
                bytes.put_u32(children.len() as u32);
                for &(key, child) in children {
                    let place = table.place(child);
                    let told = table.summary(child).map_or(0, Summary::to_bits);
                    let block = place.block | u64::from(told) << BLOCK_BITS;
                    bytes.put_words([key, block, place.checksum]);
                }
            }
            Body::Absent(_) => {}
        },
        Part::Overflow(id, at, _) => {
            if let Body::Leaf(rows) = table.body(id)
                && let Some(row) = rows.get(at)
            {
                row.record.encode_body(&mut bytes);
            }
        }
    }
    0
}

fn encode_row(row: &Row, bytes: &mut Writer<'_>) {
    row.record.encode_head(bytes);
    bytes.put_u8(row.map.levels);
    bytes.put_words(row.map.entry.to_words());
    bytes.put_u32(row.record.body_bytes() as u32);
    if row.overflow.is_empty() {
        row.record.encode_body(bytes);
    }
    for place in &row.overflow {
        bytes.put_words([place.block, place.checksum]);
    }
}

/// A row of a leaf as it was found. Where it has overflow blocks it still lacks its body, whose length is given.
pub(crate) type FoundRow = (Row, usize);

/// A child of an inner node as it was found: its smallest key, its place, and what is told of it.
pub(crate) type FoundChild = (u64, Place, Option<Summary>);

/// A node as it was found.
pub(crate) enum Decoded {
    Leaf(Vec<FoundRow>),
    Inner(Vec<FoundChild>),
}

/// A leaf that is read row by row.
#[derive(Copy, Clone)]
pub(crate) struct LeafReader {
    /// The place of the next row, and how many are left.
    at: usize,
    pub(crate) left: usize,
}

impl LeafReader {
    /// # Errors
    /// [`Unread::Nonsense`]: it is no leaf.
    pub(crate) fn new(bytes: &[u8; BLOCK]) -> Result<Self, Unread> {
        match head(bytes)? {
            (LEAF_MAGIC, left) => Ok(Self { at: HEADER, left }),
            _ => Err(Unread::Nonsense),
        }
    }

    /// The next row.
    pub(crate) fn next(&mut self, bytes: &[u8; BLOCK], address_bits: u32) -> Result<Option<FoundRow>, Unread> {
        if self.left == 0 {
            return Ok(None);
        }
        let mut reader = Reader::new(bytes.get(self.at..).unwrap_or_default());
        let row = decode_row(&mut reader, address_bits)?;
        self.at = BLOCK - reader.left();
        self.left -= 1;
        Ok(Some(row))
    }
}

/// The magic of a node, and how many rows or children it has.
fn head(bytes: &[u8; BLOCK]) -> Result<(u32, usize), Unread> {
    let mut reader = Reader::new(bytes);
    let magic = reader.u32()?;
    let count = reader.u32()? as usize;
    if count > BLOCK / 24 {
        return Err(Unread::Nonsense);
    }
    Ok((magic, count))
}

/// Whether a block says that it is a leaf.
pub(crate) fn is_leaf(bytes: &[u8; BLOCK]) -> bool {
    head(bytes).is_ok_and(|(magic, _)| magic == LEAF_MAGIC)
}

/// Reads a node.
pub(crate) fn decode(bytes: &[u8; BLOCK], address_bits: u32) -> Result<Decoded, Unread> {
    match head(bytes)? {
        (LEAF_MAGIC, count) => {
            let mut rows = with_room(count)?;
            let mut leaf = LeafReader::new(bytes)?;
            while let Some(row) = leaf.next(bytes, address_bits)? {
                push_reserved(&mut rows, row);
            }
            Ok(Decoded::Leaf(rows))
        }
        (INNER_MAGIC, count) if count > 0 => {
            let mut children = with_room(count)?;
            let mut reader = Reader::new(&bytes[HEADER..]);
            for _ in 0..count {
                let key = reader.u64()?;
                let mut place = decode_place(&mut reader)?;
                let told = (place.block >> BLOCK_BITS) as u16;
                place.block &= (1 << BLOCK_BITS) - 1;
                push_reserved(&mut children, (key, place, Summary::from_bits(told)));
            }
            Ok(Decoded::Inner(children))
        }
        _ => Err(Unread::Nonsense),
    }
}

/// A child of an inner node, to which an address leads.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct ChildSeen {
    /// The smallest key that its parent says it may have.
    pub(crate) key: u64,
    pub(crate) place: Place,
    /// The addresses that lead to it.
    pub(crate) range: (u64, u64),
}

/// The child of an inner node to which an address in a range leads that leads to the node; none if it is no inner node. Takes no heap.
pub(crate) fn child_at(bytes: &[u8; BLOCK], address: u64, (from, end): (u64, u64)) -> Option<ChildSeen> {
    let (INNER_MAGIC, count @ 1..) = head(bytes).ok()? else {
        return None;
    };
    let key = |at: usize| word(bytes, HEADER + 24 * at);
    // Those before the first and from the second on were compared, whatever their order: so the range has the address.
    let (mut first, mut end_at) = (0, count);
    while first < end_at {
        let at = first.midpoint(end_at);
        if key(at) <= address {
            first = at + 1;
        } else {
            end_at = at;
        }
    }
    let at = first.saturating_sub(1);
    let from = if at == 0 { from } else { from.max(key(at)) };
    let end = if at + 1 < count { end.min(key(at + 1)) } else { end };
    let place = Place {
        block: word(bytes, HEADER + 24 * at + 8) & ((1 << BLOCK_BITS) - 1),
        checksum: word(bytes, HEADER + 24 * at + 16),
    };
    Some(ChildSeen {
        key: key(at),
        place,
        range: (from, end),
    })
}

/// A row, without what its body says.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct RowSeen {
    pub(crate) base: u64,
    pub(crate) pages: u64,
    pub(crate) map: MapRoot,
    bodies: [Place; OVERFLOW_MAX],
    count: usize,
}

impl RowSeen {
    /// Overflow blocks.
    pub(crate) fn bodies(&self) -> &[Place] {
        self.bodies.get(..self.count).unwrap_or_default()
    }
}

/// The first row of a leaf whose base is at least an address; none where there is none, or where what is before it makes no sense. Takes no heap.
pub(crate) fn row_from(bytes: &[u8; BLOCK], address: u64) -> Option<RowSeen> {
    let (LEAF_MAGIC, count) = head(bytes).ok()? else {
        return None;
    };
    let mut reader = Reader::new(&bytes[HEADER..]);
    for _ in 0..count {
        let (base, pages) = (reader.u64().ok()?, reader.u64().ok()?);
        reader.take(HEAD_BYTES - 16).ok()?;
        let levels = reader.u8().ok()?;
        let entry = Entry::from_words([reader.u64().ok()?, reader.u64().ok()?]);
        let length = reader.u32().ok()? as usize;
        if levels > LEVELS_MAX || length > BODY_MAX {
            return None;
        }
        let count = overflow_blocks(length);
        let rest = if count == 0 { length } else { 16 * count };
        let mut rest = Reader::new(reader.take(rest).ok()?);
        if base < address {
            continue;
        }
        let mut bodies = [Place::default(); OVERFLOW_MAX];
        for place in bodies.iter_mut().take(count) {
            *place = decode_place(&mut rest).ok()?;
        }
        return Some(RowSeen {
            base,
            pages,
            map: MapRoot { levels, entry },
            bodies,
            count,
        });
    }
    None
}

fn decode_place(reader: &mut Reader<'_>) -> Result<Place, Unread> {
    let (block, checksum) = (reader.u64()?, reader.u64()?);
    Ok(Place { block, checksum })
}

fn decode_row(reader: &mut Reader<'_>, address_bits: u32) -> Result<FoundRow, Unread> {
    let mut record = ObjectRecord::decode_head(reader)?;
    let levels = reader.u8()?;
    let entry = Entry::from_words([reader.u64()?, reader.u64()?]);
    let length = reader.u32()? as usize;
    if levels > LEVELS_MAX || length > BODY_MAX {
        return Err(Unread::Nonsense);
    }
    if length <= INLINE_MAX {
        record.decode_body(reader.take(length)?, address_bits)?;
    }
    let blocks = overflow_blocks(length);
    let mut overflow = with_room(blocks)?;
    for _ in 0..blocks {
        push_reserved(&mut overflow, decode_place(reader)?);
    }
    let map = MapRoot { levels, entry };
    Ok((Row::read(record, map, overflow), length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn leaf() -> [u8; BLOCK] {
        let mut table = Table::new().unwrap();
        for slot in 0..8_u64 {
            let capabilities = alloc::vec![(slot, 15); if slot == 3 { 120 } else { 2 }];
            let record = ObjectRecord {
                base: slot << 21,
                pages: 1,
                capabilities,
                ..ObjectRecord::default()
            };
            table.put(record, crate::table::Held::No).expect("memory");
        }
        let mut block = [0; BLOCK];
        let (mut way, mut parts) = (table.begin_listing().unwrap(), crate::containers::List::default());
        while !way.is_empty() {
            table.list_dirty(&mut way, &mut parts).unwrap();
        }
        if let Some(&part @ Part::Node(_)) = parts.last() {
            encode(&table, part, &mut block);
        }
        block
    }

    #[test]
    fn a_leaf_comes_back() {
        let Ok(Decoded::Leaf(rows)) = decode(&leaf(), 47) else {
            panic!("no leaf")
        };
        assert_eq!(rows.len(), 8);
        assert_eq!((rows[3].0.overflow.len(), rows[4].0.record.capabilities.len()), (1, 2));
    }

    /// What is seen without heap is what the decoder says.
    #[test]
    fn rows_are_seen_as_they_are_decoded() {
        let block = leaf();
        let Ok(Decoded::Leaf(rows)) = decode(&block, 47) else {
            panic!("no leaf")
        };
        let mut from = 0;
        for (row, _) in &rows {
            let seen = row_from(&block, from).expect("a row");
            assert_eq!((seen.base, seen.pages), (row.record.base, row.record.pages));
            assert_eq!((seen.map, seen.bodies()), (row.map, &row.overflow[..]));
            from = seen.base + 1;
        }
        assert_eq!(row_from(&block, from), None);
        assert_eq!(child_at(&block, 0, (0, u64::MAX)), None);
    }

    fn inner(keys: &[u64]) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let mut out = Writer::new(&mut block, 0);
        out.put_u32(INNER_MAGIC);
        out.put_u32(keys.len() as u32);
        for (number, &key) in keys.iter().enumerate() {
            out.put_words([key, (number as u64 + 100) | (0xabcd << BLOCK_BITS), 7]);
        }
        block
    }

    #[test]
    fn an_address_leads_to_one_child() {
        let block = inner(&[50, 100, 200]);
        for (address, number, range) in [
            (10, 0, (10, 100)),
            (60, 0, (10, 100)),
            (100, 1, (100, 200)),
            (199, 1, (100, 200)),
            (299, 2, (200, 300)),
        ] {
            let child = child_at(&block, address, (10, 300)).expect("a child");
            assert_eq!((child.place.block, child.range), (100 + number, range), "{address}");
        }
    }

    proptest! {
        /// Checksums keep accidents away from the decoder; it must bear anything all the same.
        #[test]
        fn nothing_makes_the_decoder_panic(changes in prop::collection::vec((0..BLOCK, any::<u8>()), 0..40)) {
            let mut block = leaf();
            for (at, byte) in changes {
                block[at] = byte;
            }
            let _ = (decode(&block, 47), row_from(&block, 1 << 23));
            block[..4].copy_from_slice(b"GINN");
            let _ = (decode(&block, 47), child_at(&block, 0, (0, u64::MAX)));
        }

        /// Whatever the order of the keys, a walk that goes on behind the range of each child comes to an end.
        #[test]
        fn each_child_has_the_address_that_leads_to_it(keys in prop::collection::vec(any::<u64>(), 1..20), address in 5..u64::MAX) {
            let child = child_at(&inner(&keys), address, (5, u64::MAX)).expect("a child");
            prop_assert!(child.range.0 <= address && address < child.range.1);
        }
    }
}
