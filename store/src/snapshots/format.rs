//! The blocks of snapshots as bytes: the list that the superblock names, and the chain of each of them.

use super::{Known, SNAPSHOTS_MAX, SnapshotName};
use crate::bytes::{Reader, Unread, Writer, set_word, word};
use crate::checksum::Key;
use crate::containers::push_reserved;
use crate::heap::with_room;
use crate::sums::{TOTAL_WORDS, Totals};
use crate::superblock::Place;
use crate::world::BLOCK;
use alloc::vec::Vec;
use core::fmt;

/// The first eight bytes of the list, and of each block of a chain.
const LIST_MAGIC: u64 = u64::from_le_bytes(*b"GSNAPLST");
const CHAIN_MAGIC: u64 = u64::from_le_bytes(*b"GSNAPSHT");
/// Where the entries of the list begin, and how long one is.
const LIST_AT: usize = 64;
/// Where the entries of a block of a chain begin, and how long one is.
const CHAIN_AT: usize = 168;
const ENTRY_BYTES: usize = 24;
/// Bitmap blocks that a block of a chain names.
pub(crate) const ENTRIES: usize = (BLOCK - CHAIN_AT) / ENTRY_BYTES;
/// Bytes of a name with its length.
const NAME_BYTES: usize = 32;

/// Where the identity of a snapshot that was received stands, behind the last entry.
const IDENTITY_AT: usize = BLOCK - 16;

const _: () = assert!(CHAIN_AT + ENTRIES * ENTRY_BYTES <= IDENTITY_AT);
const _: () = assert!(LIST_AT + SNAPSHOTS_MAX * (NAME_BYTES + 24) <= BLOCK);

/// A block that is written twice. Both copies are equal; the checksum is that of the first one's place.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub(crate) struct Twin {
    pub(crate) blocks: [u64; 2],
    pub(crate) checksum: u64,
}

impl Twin {
    /// Where its first copy stands. Under the checksum of that place both are compared.
    pub(crate) fn place(&self) -> Place {
        Place {
            block: self.blocks[0],
            checksum: self.checksum,
        }
    }

    /// As three words.
    pub(crate) fn to_words(self) -> [u64; 3] {
        [self.blocks[0], self.blocks[1], self.checksum]
    }

    pub(crate) fn from_words([first, second, checksum]: [u64; 3]) -> Self {
        Self {
            blocks: [first, second],
            checksum,
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Unread> {
        Ok(Self::from_words([reader.u64()?, reader.u64()?, reader.u64()?]))
    }
}

/// What a chain says of its snapshot.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) name: SnapshotName,
    pub(crate) generation: u64,
    pub(crate) time: u64,
    pub(crate) table: Place,
    pub(crate) objects: u64,
    pub(crate) totals: Totals,
    pub(crate) high_water: u64,
    /// Blocks that it holds; in blocks of the chain that are not the first, those of the groups from there on.
    pub(crate) blocks: u64,
    /// The identity that it came with from another image; zeroes for one that was made here, which has its own ([`Identity::of`]).
    pub(crate) received: Identity,
}

/// Tells a snapshot from all others, on whatever image it is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Identity(pub [u64; 2]);

impl Identity {
    /// Stands where there is none.
    pub const NONE: Self = Self([0; 2]);

    /// That of a snapshot on an image with this key: the one that it came with, or one that follows from what it is. Images that are copies of each
    /// other have the same key, and their snapshots the same identities as long as they are the same.
    pub(crate) fn of(record: &Record, key: Key) -> Self {
        if record.received != Self::NONE {
            return record.received;
        }
        let Place { block, checksum } = record.table;
        let words = [record.generation, record.time, block, checksum];
        Self(key.identity(words))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.0[0], self.0[1])
    }
}

/// A bitmap block of a snapshot: the group that it tells of, and its place.
pub(crate) type Entry = (u64, Place);

/// A block of a chain.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub(crate) record: Record,
    /// The next block.
    pub(crate) next: Option<Twin>,
    /// In ascending order of their groups.
    pub(crate) entries: Vec<Entry>,
}

impl Link {
    /// The blocks that say what the snapshot holds, as far as this one knows: itself, which stands there, and the bitmaps that it names.
    pub(crate) fn blocks(&self, twin: &Twin) -> impl Iterator<Item = u64> + use<'_> {
        let bitmaps = self.entries.iter().map(|entry| entry.1.block);
        twin.blocks.into_iter().chain(bitmaps)
    }
}

pub(crate) fn put_name(out: &mut Writer<'_>, name: &SnapshotName) {
    out.put_u8(name.length);
    out.put_bytes(&name.bytes);
}

pub(crate) fn read_name(reader: &mut Reader<'_>) -> Result<SnapshotName, Unread> {
    let length = usize::from(reader.u8()?);
    let bytes = reader.take(NAME_BYTES - 1)?;
    let (name, rest) = bytes.split_at_checked(length).ok_or(Unread::Nonsense)?;
    let is_padded = rest.iter().all(|&byte| byte == 0);
    SnapshotName::from_bytes(name)
        .filter(|_| is_padded)
        .ok_or(Unread::Nonsense)
}

/// Makes the list of these snapshots.
pub(crate) fn encode_list(known: &[Known], bytes: &mut [u8; BLOCK]) {
    bytes.fill(0);
    let mut out = Writer::new(bytes, 0);
    out.put_words([LIST_MAGIC, known.len() as u64]);
    out.put_bytes(&[0; LIST_AT - 16]);
    for known in known {
        put_name(&mut out, &known.record.name);
        out.put_words(known.head.to_words());
    }
}

/// The names of the snapshots, each with the first block of its chain.
pub(crate) fn decode_list(bytes: &[u8]) -> Result<Vec<(SnapshotName, Twin)>, Unread> {
    let mut reader = Reader::new(bytes);
    let (magic, count) = (reader.u64()?, reader.u64()?);
    if magic != LIST_MAGIC || count > SNAPSHOTS_MAX as u64 {
        return Err(Unread::Nonsense);
    }
    reader.take(LIST_AT - 16)?;
    let mut found: Vec<(SnapshotName, Twin)> = with_room(count as usize)?;
    for _ in 0..count {
        let entry = (read_name(&mut reader)?, Twin::read(&mut reader)?);
        if found.iter().any(|other| other.0 == entry.0) {
            return Err(Unread::Nonsense);
        }
        push_reserved(&mut found, entry);
    }
    Ok(found)
}

/// Makes a block of a chain, of entries in descending order.
pub(crate) fn encode_link(record: &Record, next: Option<Twin>, descending: &[Entry], bytes: &mut [u8; BLOCK]) {
    bytes.fill(0);
    let mut out = Writer::new(bytes, 0);
    out.put_u64(CHAIN_MAGIC);
    put_name(&mut out, &record.name);
    out.put_words([
        record.generation,
        record.time,
        record.table.block,
        record.table.checksum,
        record.objects,
    ]);
    out.put_words(record.totals.to_words());
    out.put_words([record.high_water, record.blocks]);
    out.put_words(next.unwrap_or_default().to_words());
    out.put_u64(descending.len() as u64);
    for &(group, place) in descending.iter().rev() {
        out.put_words([group, place.block, place.checksum]);
    }
    set_word(bytes, IDENTITY_AT, record.received.0[0]);
    set_word(bytes, IDENTITY_AT + 8, record.received.0[1]);
}

/// Reads a block of a chain.
pub(crate) fn decode_link(bytes: &[u8]) -> Result<Link, Unread> {
    let mut reader = Reader::new(bytes);
    if reader.u64()? != CHAIN_MAGIC {
        return Err(Unread::Nonsense);
    }
    let name = read_name(&mut reader)?;
    let (generation, time) = (reader.u64()?, reader.u64()?);
    let table = read_place(&mut reader)?;
    let objects = reader.u64()?;
    let mut totals = [0; TOTAL_WORDS];
    for word in &mut totals {
        *word = reader.u64()?;
    }
    let record = Record {
        name,
        generation,
        time,
        table,
        objects,
        totals: Totals::from_words(totals),
        high_water: reader.u64()?,
        blocks: reader.u64()?,
        received: Identity([0, 8].map(|at| word(bytes, IDENTITY_AT + at))),
    };
    let next = Twin::read(&mut reader)?;
    let count = reader.u64()?;
    if count > ENTRIES as u64 {
        return Err(Unread::Nonsense);
    }
    let mut entries: Vec<Entry> = with_room(count as usize)?;
    for _ in 0..count {
        let entry = (reader.u64()?, read_place(&mut reader)?);
        // In order, so none is told twice.
        if entries.last().is_some_and(|last| last.0 >= entry.0) {
            return Err(Unread::Nonsense);
        }
        push_reserved(&mut entries, entry);
    }
    Ok(Link {
        record,
        next: Some(next).filter(|next| next.blocks != [0, 0]),
        entries,
    })
}

fn read_place(reader: &mut Reader<'_>) -> Result<Place, Unread> {
    Ok(Place {
        block: reader.u64()?,
        checksum: reader.u64()?,
    })
}
