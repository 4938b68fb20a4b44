//! Nodes of the object table as blocks.
//!
//! ```text
//! leaf      magic u32, rows u32, then rows: head (64), levels u8, map entry (16), body length u32,
//!           then the body, or, if that is longer than 1024 bytes, {block, checksum} of each
//!           overflow block
//! inner     magic u32, children u32, then {smallest key, block, checksum} of each child
//! overflow  a piece of a body, up to 4096 bytes, the rest zero
//! ```

use crate::bytes::{Put, Reader};
use crate::map::{Entry, LEVELS_MAX, MapRoot};
use crate::record::{HEAD_BYTES, ObjectRecord};
use crate::superblock::Place;
use crate::table::{Body, Part, Row, Table};
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
/// Children of an inner node.
pub(crate) const INNER_MAX: usize = (BLOCK - HEADER) / 24;

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

/// The block of a part of the tree.
pub(crate) fn encode(table: &Table, part: Part, out: &mut [u8; BLOCK]) {
    let mut bytes = Vec::with_capacity(BLOCK);
    match part {
        Part::Node(id) => match table.body(id) {
            Body::Leaf(rows) => {
                bytes.put_u32(LEAF_MAGIC);
                bytes.put_u32(rows.len() as u32);
                for row in rows {
                    encode_row(row, &mut bytes);
                }
            }
            Body::Inner(children) => {
                bytes.put_u32(INNER_MAGIC);
                bytes.put_u32(children.len() as u32);
                for &(key, child) in children {
                    let place = table.place(child);
                    bytes.put_words(&[key, place.block, place.checksum]);
                }
            }
        },
        Part::Overflow(id, at, index) => {
            if let Body::Leaf(rows) = table.body(id)
                && let Some(row) = rows.get(at)
            {
                let mut body = Vec::with_capacity(row.record.body_bytes());
                row.record.encode_body(&mut body);
                bytes.extend(body.iter().skip(index * BLOCK).take(BLOCK));
            }
        }
    }
    bytes.resize(BLOCK, 0);
    out.copy_from_slice(&bytes);
}

fn encode_row(row: &Row, bytes: &mut Vec<u8>) {
    row.record.encode_head(bytes);
    bytes.put_u8(row.map.levels);
    bytes.put_words(&row.map.entry.to_words());
    bytes.put_u32(row.record.body_bytes() as u32);
    if row.overflow.is_empty() {
        row.record.encode_body(bytes);
    }
    for place in &row.overflow {
        bytes.put_words(&[place.block, place.checksum]);
    }
}

/// A node as it was found.
pub(crate) enum Decoded {
    /// Rows; one with overflow blocks still lacks its body, whose length is given.
    Leaf(Vec<(Row, usize)>),
    /// Children.
    Inner(Vec<(u64, Place)>),
}

/// Reads a node. `None` if it makes no sense.
pub(crate) fn decode(bytes: &[u8; BLOCK], address_bits: u32) -> Option<Decoded> {
    let mut reader = Reader::new(bytes);
    let magic = reader.u32()?;
    let count = reader.u32()? as usize;
    if count > BLOCK / 24 {
        return None;
    }
    match magic {
        LEAF_MAGIC => (0..count)
            .map(|_| decode_row(&mut reader, address_bits))
            .collect::<Option<_>>()
            .map(Decoded::Leaf),
        INNER_MAGIC if count > 0 => (0..count)
            .map(|_| {
                Some((
                    reader.u64()?,
                    Place {
                        block: reader.u64()?,
                        checksum: reader.u64()?,
                    },
                ))
            })
            .collect::<Option<_>>()
            .map(Decoded::Inner),
        _ => None,
    }
}

fn decode_row(reader: &mut Reader<'_>, address_bits: u32) -> Option<(Row, usize)> {
    let mut record = ObjectRecord::decode_head(reader)?;
    let levels = reader.u8()?;
    let entry = Entry::from_words([reader.u64()?, reader.u64()?]);
    let length = reader.u32()? as usize;
    if levels > LEVELS_MAX || length > BODY_MAX {
        return None;
    }
    let mut overflow = Vec::new();
    if length <= INLINE_MAX {
        record.decode_body(reader.take(length)?, address_bits)?;
    }
    for _ in 0..overflow_blocks(length) {
        overflow.push(Place {
            block: reader.u64()?,
            checksum: reader.u64()?,
        });
    }
    Some((
        Row {
            record,
            map: MapRoot { levels, entry },
            overflow,
        },
        length,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn leaf() -> [u8; BLOCK] {
        let mut table = Table::new();
        for slot in 0..8_u64 {
            let capabilities = alloc::vec![(slot, 15); if slot == 3 { 120 } else { 2 }];
            let record = ObjectRecord {
                base: slot << 21,
                pages: 1,
                capabilities,
                ..ObjectRecord::default()
            };
            table.put(record).expect("memory");
        }
        let mut block = [0; BLOCK];
        if let Some(&part @ Part::Node(_)) = table.dirty_parts().last() {
            encode(&table, part, &mut block);
        }
        block
    }

    #[test]
    fn a_leaf_comes_back() {
        let Some(Decoded::Leaf(rows)) = decode(&leaf(), 47) else {
            panic!("no leaf")
        };
        assert_eq!(rows.len(), 8);
        assert_eq!((rows[3].0.overflow.len(), rows[4].0.record.capabilities.len()), (1, 2));
    }

    proptest! {
        /// Checksums keep accidents away from the decoder; it must bear anything all the same.
        #[test]
        fn nothing_makes_the_decoder_panic(changes in prop::collection::vec((0..BLOCK, any::<u8>()), 0..40)) {
            let mut block = leaf();
            for (at, byte) in changes {
                block[at] = byte;
            }
            let _ = decode(&block, 47);
            block[..4].copy_from_slice(b"GINN");
            let _ = decode(&block, 47);
        }
    }
}
