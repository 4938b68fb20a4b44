//! The superblock: the root of one generation.

use crate::bytes::{Reader, Unread, Writer, set_word, word};
use crate::checksum::Key;
use crate::containers::{copied, push_reserved};
use crate::geometry::{Geometry, INDEX_MAX};
use crate::heap::{NoHeap, with_room};
use crate::snapshots::format::Twin;
use crate::sums::{TOTAL_WORDS, Totals};
use crate::world::BLOCK;
use alloc::vec::Vec;

/// The first eight bytes of a superblock.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"GONDWANA");
/// The version of the format. Those from [`OLDEST`] on are read.
pub(crate) const VERSION: u32 = 2;
/// The oldest version that is read.
const OLDEST: u32 = 1;
/// Feature of reading: blocks may bear the checksum of version 1.
const CHECKSUMS_OF_VERSION_1: u64 = 1;
/// Feature of reading: inner nodes of the table tell of the leaves below them, and the superblock tells sums over all rows.
const LEAVES_ARE_TOLD: u64 = 2;
/// Feature of writing: snapshots hold blocks, which the bitmap says are free.
const SNAPSHOTS_HOLD: u64 = 1;
/// Feature of reading: the store has grown, and its bitmaps stand elsewhere.
const HAS_GROWN: u64 = 4;
/// Feature of reading: the journal has a root, to which its first record is chained.
const JOURNAL_HAS_ROOT: u64 = 8;
const KNOWN: u64 = CHECKSUMS_OF_VERSION_1 | LEAVES_ARE_TOLD | HAS_GROWN | JOURNAL_HAS_ROOT;
/// No store lives so long; so generations can be counted on without fear of overflow.
pub(crate) const GENERATION_END: u64 = 1 << 62;
/// Flag: the last act before power-off.
const CLEAN: u32 = 1;
/// Offset of the version.
#[cfg(test)]
const VERSION_AT: usize = 8;
/// Offset of the two words of features, without which nobody may read the store, and write to it; behind the longest index.
const FEATURES_AT: usize = 112 + 8 * INDEX_MAX as usize;
/// Offset of what is told of all rows.
const TOTALS_AT: usize = FEATURES_AT + 16;
/// Offset of the section of snapshots: its kind, and where their list stands.
const SECTION_AT: usize = TOTALS_AT + 8 * TOTAL_WORDS;
/// The kind of that section.
const OF_SNAPSHOTS: u64 = 1;
/// Offset of the places of the bitmaps and of the data, of a store that has grown.
const PLACES_AT: usize = SECTION_AT + 32;
/// Offset of the root of the journal.
const ROOT_AT: usize = PLACES_AT + 16;
/// Offset of the generation.
const GENERATION_AT: usize = 32;
/// Offset of the key.
const KEY_AT: usize = 48;
/// Offset of the checksum: the last word.
const CHECKSUM_AT: usize = BLOCK - 8;

/// The place of a block and its checksum. Block zero means that there is none.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub(crate) struct Place {
    pub(crate) block: u64,
    pub(crate) checksum: u64,
}

/// One generation's root.
#[derive(Clone, Eq, PartialEq, Debug)]
pub(crate) struct Superblock {
    pub(crate) generation: u64,
    /// Drawn at each mount, so that nothing an earlier run wrote passes for ours.
    pub(crate) nonce: u64,
    pub(crate) key: Key,
    /// Whether there may be blocks that bear the checksum of version 1.
    pub(crate) of_version_1: bool,
    /// Whether inner nodes of the table tell of the leaves below them, and the totals are known.
    pub(crate) leaves_are_told: bool,
    pub(crate) totals: Totals,
    /// Features of writing that are not known.
    pub(crate) writing: u64,
    /// Where the list of snapshots stands, if there are any.
    pub(crate) snapshots: Option<Twin>,
    pub(crate) geometry: Geometry,
    pub(crate) address_bits: u32,
    pub(crate) clean: bool,
    /// The root of the journal; zero where the first record is chained to the checksum of the superblock.
    pub(crate) journal_root: u64,
    /// Root of the object table.
    pub(crate) table: Place,
    pub(crate) objects: u64,
    /// Slot numbers below this may be in use.
    pub(crate) high_water: u64,
    /// Slot numbers below this may be issued before the next generation is durable.
    pub(crate) lease: u64,
    /// Checksums of the bitmap's index blocks; zero where all beneath is free.
    pub(crate) index: Vec<u64>,
}

/// Why a block is no superblock for us.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Unfit {
    /// No sign of this format.
    Foreign,
    /// Ours, but damaged.
    Damaged,
    /// Ours, of a later version.
    Newer(u32),
    /// Ours, with features of reading that are unknown.
    Features(u64),
    /// There is no heap for its index.
    NoHeap,
}

impl From<Unread> for Unfit {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Nonsense => Self::Damaged,
            Unread::NoHeap => Self::NoHeap,
        }
    }
}

impl Superblock {
    /// A copy of it.
    ///
    /// # Errors
    /// [`NoHeap`].
    pub(crate) fn copy(&self) -> Result<Self, NoHeap> {
        let index = copied(&self.index)?;
        Ok(Self { index, ..*self })
    }

    /// What the first record of its journal is chained to, where it has that checksum.
    pub(crate) fn root_of_journal(&self, checksum: u64) -> u64 {
        if self.journal_root == 0 {
            checksum
        } else {
            self.journal_root
        }
    }

    /// Makes the block for position `block`; gives its checksum.
    pub(crate) fn encode(&self, block: u64, bytes: &mut [u8; BLOCK]) -> u64 {
        bytes.fill(0);
        let mut out = Writer::new(bytes, 0);
        out.put_u64(MAGIC);
        out.put_u32(VERSION);
        out.put_u32(self.address_bits);
        out.put_u32(if self.clean { CLEAN } else { 0 });
        out.put_u32(self.geometry.journal as u32);
        out.put_words([
            self.geometry.total,
            self.generation,
            self.nonce,
            self.key.low,
            self.key.high,
            self.table.block,
            self.table.checksum,
            self.objects,
            self.high_water,
            self.lease,
            self.index.len() as u64,
        ]);
        out.put_all(&self.index, |sum| sum.to_le_bytes());
        let of_version_1 = if self.of_version_1 { CHECKSUMS_OF_VERSION_1 } else { 0 };
        let told = if self.leaves_are_told { LEAVES_ARE_TOLD } else { 0 };
        let has_grown = if self.geometry.has_grown() { HAS_GROWN } else { 0 };
        let has_root = if self.journal_root == 0 { 0 } else { JOURNAL_HAS_ROOT };
        set_word(bytes, FEATURES_AT, of_version_1 | told | has_grown | has_root);
        set_word(bytes, ROOT_AT, self.journal_root);
        if self.geometry.has_grown() {
            set_word(bytes, PLACES_AT, self.geometry.bitmaps);
            set_word(bytes, PLACES_AT + 8, self.geometry.data);
        }
        let hold = if self.snapshots.is_some() { SNAPSHOTS_HOLD } else { 0 };
        set_word(bytes, FEATURES_AT + 8, self.writing | hold);
        if let Some(list) = self.snapshots {
            set_word(bytes, SECTION_AT, OF_SNAPSHOTS);
            for (word, at) in list.to_words().into_iter().zip((SECTION_AT + 8..).step_by(8)) {
                set_word(bytes, at, word);
            }
        }
        if self.leaves_are_told {
            for (word, at) in self.totals.to_words().into_iter().zip((TOTALS_AT..).step_by(8)) {
                set_word(bytes, at, word);
            }
        }
        // Both copies carry the checksum of the first one's place, so that they are equal.
        let checksum = self.key.checksum(block & !1, &bytes[..CHECKSUM_AT]);
        set_word(bytes, CHECKSUM_AT, checksum);
        checksum
    }

    /// Reads the block found at position `block`; also gives its checksum.
    pub(crate) fn decode(block: u64, bytes: &[u8; BLOCK]) -> Result<(Self, u64), Unfit> {
        let mut reader = Reader::new(bytes);
        if reader.u64() != Ok(MAGIC) {
            return Err(Unfit::Foreign);
        }
        // The version stands before everything that another version may have changed.
        let version = match reader.u32() {
            Ok(version) if version > VERSION => return Err(Self::newer_or_rotten(block, bytes, version)),
            Ok(version @ OLDEST..=VERSION) => version,
            _ => return Err(Unfit::Damaged),
        };
        let mut found = Self::decode_fields(&mut reader)?;
        let [reading, writing] = [0, 8].map(|at| word(bytes, FEATURES_AT + at));
        found.of_version_1 = version == 1 || reading & CHECKSUMS_OF_VERSION_1 != 0;
        found.leaves_are_told = version != 1 && reading & LEAVES_ARE_TOLD != 0;
        if found.leaves_are_told {
            let words: [u64; TOTAL_WORDS] = core::array::from_fn(|at| word(bytes, TOTALS_AT + 8 * at));
            found.totals = Totals::from_words(words);
        }
        if version != 1 && reading & HAS_GROWN != 0 {
            let [bitmaps, data] = [0, 8].map(|at| word(bytes, PLACES_AT + at));
            (found.geometry.bitmaps, found.geometry.data) = (bitmaps, data);
        }
        if version != 1 && reading & JOURNAL_HAS_ROOT != 0 {
            found.journal_root = word(bytes, ROOT_AT);
        }
        found.writing = writing & !SNAPSHOTS_HOLD;
        if writing & SNAPSHOTS_HOLD != 0 {
            let words = [8, 16, 24].map(|at| word(bytes, SECTION_AT + at));
            found.snapshots = Some(Twin::from_words(words));
        }
        let checksum = word(bytes, CHECKSUM_AT);
        let intact = found.key.checksum(block & !1, &bytes[..CHECKSUM_AT]) == checksum
            && found.geometry.is_sound()
            && (found.geometry.has_grown() || version == 1 || reading & HAS_GROWN == 0)
            && found.index.len() as u64 == found.geometry.index_blocks()
            && (version == 1 || (reading & JOURNAL_HAS_ROOT == 0) == (found.journal_root == 0))
            && (found.snapshots.is_none() || word(bytes, SECTION_AT) == OF_SNAPSHOTS)
            && found.generation % 2 == block / 2
            && (1..GENERATION_END).contains(&found.generation);
        match reading & !KNOWN {
            _ if !intact => Err(Unfit::Damaged),
            0 => Ok((found, checksum)),
            unknown => Err(Unfit::Features(unknown)),
        }
    }

    /// The key and the checksum stay where they are in every version, and the checksum stays what it is: a copy that does not bear its own is rotten, whatever version it
    /// says.
    fn newer_or_rotten(block: u64, bytes: &[u8; BLOCK], version: u32) -> Unfit {
        let [low, high] = [0, 8].map(|at| word(bytes, KEY_AT + at));
        let is_whole = Key { low, high }.checksum(block & !1, &bytes[..CHECKSUM_AT]) == word(bytes, CHECKSUM_AT);
        if is_whole {
            Unfit::Newer(version)
        } else {
            Unfit::Damaged
        }
    }

    /// The generation that an unreadable superblock says it is of.
    pub(crate) fn claimed_generation(bytes: &[u8]) -> Option<u64> {
        (word(bytes, 0) == MAGIC).then(|| word(bytes, GENERATION_AT))
    }

    fn decode_fields(reader: &mut Reader<'_>) -> Result<Self, Unread> {
        let address_bits = reader.u32()?;
        let clean = reader.u32()? & CLEAN != 0;
        let journal = u64::from(reader.u32()?);
        let geometry = Geometry::usual(reader.u64()?, journal);
        let mut found = Self {
            generation: reader.u64()?,
            nonce: reader.u64()?,
            key: Key {
                low: reader.u64()?,
                high: reader.u64()?,
            },
            of_version_1: false,
            leaves_are_told: false,
            totals: Totals::default(),
            writing: 0,
            snapshots: None,
            geometry,
            address_bits,
            clean,
            journal_root: 0,
            table: Place {
                block: reader.u64()?,
                checksum: reader.u64()?,
            },
            objects: reader.u64()?,
            high_water: reader.u64()?,
            lease: reader.u64()?,
            index: Vec::new(),
        };
        let sums = reader.u64()?;
        if sums > INDEX_MAX {
            return Err(Unread::Nonsense);
        }
        found.index = with_room(sums as usize)?;
        for _ in 0..sums {
            push_reserved(&mut found.index, reader.u64()?);
        }
        Ok(found)
    }
}

/// Seals a copy of a superblock that was changed, and has all other blocks of the image believed, whatever they hold: so are those of an image that somebody has made
/// who has its key. The root of the journal stays what it was. For tests.
#[cfg(any(test, feature = "break-invariants"))]
pub fn seal_for_believers(block: u64, bytes: &mut [u8; BLOCK]) {
    if word(bytes, ROOT_AT) == 0 {
        let root = word(bytes, CHECKSUM_AT);
        set_word(bytes, ROOT_AT, root);
        let features = word(bytes, FEATURES_AT);
        set_word(bytes, FEATURES_AT, features | JOURNAL_HAS_ROOT);
    }
    set_word(bytes, KEY_AT, Key::OF_BELIEVERS.low);
    set_word(bytes, KEY_AT + 8, Key::OF_BELIEVERS.high);
    let checksum = Key::OF_BELIEVERS.checksum(block & !1, &bytes[..CHECKSUM_AT]);
    set_word(bytes, CHECKSUM_AT, checksum);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        let geometry = Geometry::new(1000, None).unwrap();
        Superblock {
            generation: 6,
            nonce: 7,
            key: Key { low: 1, high: 2 },
            of_version_1: false,
            leaves_are_told: true,
            totals: Totals::from_words([8, 9, 10, 11, 12]),
            writing: 0,
            snapshots: Some(Twin::from_words([400, 500, 13])),
            geometry,
            address_bits: 47,
            clean: true,
            journal_root: 14,
            table: Place {
                block: 300,
                checksum: 9,
            },
            objects: 4,
            high_water: 5,
            lease: 6,
            index: alloc::vec![11],
        }
    }

    #[test]
    fn both_copies_open_and_every_flipped_bit_shows() {
        let mut block = [7; BLOCK];
        let checksum = sample().encode(1, &mut block);
        let mut clean = [0; BLOCK];
        sample().encode(1, &mut clean);
        assert_eq!(block, clean, "nothing of what was there is left");
        assert_eq!(Superblock::decode(0, &block), Ok((sample(), checksum)));
        assert_eq!(Superblock::decode(1, &block), Ok((sample(), checksum)));
        assert_eq!(Superblock::decode(2, &block), Err(Unfit::Damaged));
        for bit in 0..BLOCK * 8 {
            let mut bad = block;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(0, &bad).is_err(), "bit {bit}");
        }
    }

    /// Two turned bits, one of them in the version, made a store that of a newer system, which refused it for good.
    #[test]
    fn only_what_bears_its_own_checksum_is_newer() {
        let mut block = [7; BLOCK];
        sample().encode(1, &mut block);
        for version_bit in 0..32 {
            let mut newer = block;
            newer[VERSION_AT + version_bit / 8] ^= 1 << (version_bit % 8);
            for other in (8 * VERSION_AT + 32..BLOCK * 8).step_by(37) {
                let mut bad = newer;
                bad[other / 8] ^= 1 << (other % 8);
                assert_eq!(
                    Superblock::decode(0, &bad),
                    Err(Unfit::Damaged),
                    "bits {version_bit}, {other}"
                );
            }
            let version = word(&newer, VERSION_AT) as u32;
            let checksum = sample().key.checksum(0, &newer[..CHECKSUM_AT]);
            set_word(&mut newer, CHECKSUM_AT, checksum);
            if version > VERSION {
                assert_eq!(Superblock::decode(0, &newer), Err(Unfit::Newer(version)));
            }
        }
    }
}
