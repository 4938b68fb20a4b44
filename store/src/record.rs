//! The record of one object, and its only encoding.
//!
//! A record has a head of fixed size and a body that lists capabilities and PDX capabilities. The
//! object table keeps the body in the leaf or, if it is large, in overflow blocks; a journal record
//! carries both. The decoder checks every limit, for the bytes come from a disk.

use crate::bytes::{Reader, Unread, Writer};
use crate::containers::{copied, push_reserved, reserve};
use crate::event::PutError;
use crate::heap::with_room;
use crate::world::BLOCK;
use abi::Error;
use abi::layout::{CAPABILITIES_MAX, ENTRIES_MAX, PDX_MAX};
use alloc::vec::Vec;

/// One PDX capability of an object.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct PdxRecord<'a> {
    /// The password that allows the call.
    pub password: u64,
    /// Base of the Clist by which the callee's domain is extended.
    pub clist: u64,
    /// The password by which who registered it could read that Clist; zero where the Clist had none to show, and in records of old images.
    pub reader: u64,
    /// Addresses that may be entered (at most 192).
    pub entries: &'a [u64],
}

/// The PDX capabilities of an object, one behind the other: each is its password, its Clist, that one's reader, the number of its
/// entries, and these. All stand
/// in one allocation, for a record is copied with each change of it.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct PdxList(Vec<u64>);

/// Words of a PDX capability before its entries, and the bytes of these on the disk.
const PDX_HEAD: usize = 4;
const PDX_BYTES: usize = 17;
/// Bytes of the reader of each, which is there only if one of the object's has any: rows of old images keep their size, which nobody measures anew.
const READER_BYTES: usize = 8;
/// Set in the number of PDX capabilities where each has a reader.
const READERS: u8 = 128;

impl PdxList {
    /// All in order.
    pub fn iter(&self) -> impl Iterator<Item = PdxRecord<'_>> {
        let mut rest = &self.0[..];
        core::iter::from_fn(move || {
            let &[password, clist, reader, count, ref behind @ ..] = rest else {
                return None;
            };
            let (entries, behind) = behind.split_at_checked(count as usize)?;
            rest = behind;
            Some(PdxRecord {
                password,
                clist,
                reader,
                entries,
            })
        })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any has a reader.
    fn has_readers(&self) -> bool {
        self.iter().any(|pdx| pdx.reader != 0)
    }

    /// How many there are. Goes through them.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// How many entries they have together.
    pub fn entries(&self) -> usize {
        self.0.len() - PDX_HEAD * self.len()
    }

    /// Appends one.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn add(&mut self, pdx: PdxRecord<'_>) -> Result<(), Error> {
        let more = PDX_HEAD + pdx.entries.len();
        self.0.try_reserve_exact(more).map_err(|_| Error::NoMemory)?;
        let head = [pdx.password, pdx.clist, pdx.reader, pdx.entries.len() as u64];
        self.0.extend(head.into_iter().chain(pdx.entries.iter().copied()));
        Ok(())
    }

    /// Takes the one with a password out; gives its Clist.
    pub fn remove(&mut self, password: u64) -> Option<u64> {
        let mut at = 0;
        let found = self.iter().find_map(|pdx| {
            let start = at;
            at += PDX_HEAD + pdx.entries.len();
            (pdx.password == password).then_some((pdx.clist, start..at))
        });
        let (clist, words) = found?;
        self.0.drain(words);
        Some(clist)
    }

    /// Takes the entries from an address on out.
    pub fn cut(&mut self, end: u64) {
        let (mut from, mut to) = (0, 0);
        while let Some(&[password, clist, reader, count]) = self.0.get(from..).and_then(<[u64]>::first_chunk) {
            let head = to;
            self.0[head..head + PDX_HEAD].copy_from_slice(&[password, clist, reader, 0]);
            (from, to) = (from + PDX_HEAD, to + PDX_HEAD);
            for at in from..from + count as usize {
                let entry = self.0[at];
                if entry < end {
                    self.0[to] = entry;
                    self.0[head + PDX_HEAD - 1] += 1;
                    to += 1;
                }
            }
            from += count as usize;
        }
        self.0.truncate(to);
    }
}

/// All that the object table knows of an object, but for where its pages lie.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct ObjectRecord {
    /// First address; a multiple of the page size; the key of the table.
    pub base: u64,
    /// Size in pages, at least one.
    pub pages: u64,
    /// `abi::layout::OBJECT_…`, of which the lower 16 bits are kept.
    pub flags: u64,
    /// Tells it from all other objects that stood at its base, before or after; below [`BIRTH_END`]. Zero in rows of old images.
    pub birth: u64,
    /// The bank account that pays.
    pub account: u64,
    /// Nanoseconds since 1970 (or boot, where no clock is set).
    pub created_ns: u64,
    /// As `created_ns`.
    pub modified_ns: u64,
    /// The user-level pager's entry point, or zero.
    pub pager: u64,
    /// A number for the owner's use.
    pub tag: u64,
    /// Passwords and the rights they give (at most 128).
    pub capabilities: Vec<(u64, u8)>,
    /// PDX capabilities (at most 16).
    pub pdx: PdxList,
}

/// A flag of a row: the object goes with the next start, which sees such rows ([`crate::Store::survey`]).
pub const ROW_ENDS: u64 = 1 << 2;
/// Bits of the flags, which share a word with the birth.
const FLAG_BITS: u32 = 16;
const FLAGS: u64 = (1 << FLAG_BITS) - 1;
/// Births are below this.
pub const BIRTH_END: u64 = 1 << (64 - FLAG_BITS);
/// Bytes of an encoded head.
pub(crate) const HEAD_BYTES: usize = 8 * 8;
/// Bytes of the longest body.
pub(crate) const BODY_MAX: usize = 2 + 9 * CAPABILITIES_MAX + (PDX_BYTES + READER_BYTES + 8 * ENTRIES_MAX) * PDX_MAX;
/// Rights that mean something.
const RIGHTS_END: u8 = 32;

impl ObjectRecord {
    /// Whether a start must see the row.
    pub(crate) fn is_for_start(&self) -> bool {
        self.pdx.iter().next().is_some() || self.flags & ROW_ENDS != 0
    }

    /// One past the last address.
    pub fn end(&self) -> u64 {
        self.base.saturating_add(self.pages.saturating_mul(BLOCK as u64))
    }

    /// A copy, with room for one more password, should that be why it is copied.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn copy(&self) -> Result<Self, Error> {
        let mut capabilities = Vec::new();
        reserve(&mut capabilities, self.capabilities.len() + 1)?;
        capabilities.extend_from_slice(&self.capabilities);
        let pdx = PdxList(copied(&self.pdx.0)?);
        Ok(Self {
            capabilities,
            pdx,
            ..*self
        })
    }

    /// Whether the record respects every limit, in a space of `address_bits`.
    pub(crate) fn check(&self, address_bits: u32) -> Result<(), PutError> {
        let end = self
            .pages
            .checked_mul(BLOCK as u64)
            .and_then(|bytes| self.base.checked_add(bytes));
        let in_range = end.is_some_and(|end| end <= 1 << address_bits);
        if self.birth >= BIRTH_END {
            return Err(PutError::Limits);
        }
        if self.pages == 0 || !self.base.is_multiple_of(BLOCK as u64) || !in_range {
            return Err(PutError::Range);
        }
        let fits = self.capabilities.len() <= CAPABILITIES_MAX
            && self.capabilities.iter().all(|&(_, rights)| rights < RIGHTS_END)
            && self.pdx.len() <= PDX_MAX
            && self.pdx.iter().all(|pdx| pdx.entries.len() <= ENTRIES_MAX);
        if fits { Ok(()) } else { Err(PutError::Limits) }
    }

    /// Appends the head.
    pub(crate) fn encode_head(&self, out: &mut Writer<'_>) {
        out.put_words([
            self.base,
            self.pages,
            self.flags & FLAGS | self.birth << FLAG_BITS,
            self.account,
            self.created_ns,
            self.modified_ns,
            self.pager,
            self.tag,
        ]);
    }

    /// Appends the body.
    pub(crate) fn encode_body(&self, out: &mut Writer<'_>) {
        let has_readers = self.pdx.has_readers();
        let readers = if has_readers { READERS } else { 0 };
        out.put_bytes(&[self.capabilities.len() as u8, readers | self.pdx.len() as u8]);
        out.put_all(&self.capabilities, |&(password, rights)| {
            let mut bytes = [rights; 9];
            bytes[..8].copy_from_slice(&password.to_le_bytes());
            bytes
        });
        for pdx in self.pdx.iter() {
            out.put_u64(pdx.password);
            out.put_u64(pdx.clist);
            if has_readers {
                out.put_u64(pdx.reader);
            }
            out.put_u8(pdx.entries.len() as u8);
            out.put_all(pdx.entries, |entry| entry.to_le_bytes());
        }
    }

    /// Size of the encoded body.
    pub(crate) fn body_bytes(&self) -> usize {
        let readers = if self.pdx.has_readers() { READER_BYTES } else { 0 };
        2 + 9 * self.capabilities.len() + (PDX_BYTES + readers) * self.pdx.len() + 8 * self.pdx.entries()
    }

    /// A record with the head that `reader` stands at, and an empty body.
    pub(crate) fn decode_head(reader: &mut Reader<'_>) -> Result<Self, Unread> {
        let (base, pages, flags) = (reader.u64()?, reader.u64()?, reader.u64()?);
        Ok(Self {
            base,
            pages,
            flags: flags & FLAGS,
            birth: flags >> FLAG_BITS,
            account: reader.u64()?,
            created_ns: reader.u64()?,
            modified_ns: reader.u64()?,
            pager: reader.u64()?,
            tag: reader.u64()?,
            capabilities: Vec::new(),
            pdx: PdxList::default(),
        })
    }

    /// Empties the body again.
    pub(crate) fn forget_body(&mut self) {
        self.capabilities = Vec::new();
        self.pdx = PdxList::default();
    }

    /// Fills the body in and checks the whole record.
    pub(crate) fn decode_body(&mut self, body: &[u8], address_bits: u32) -> Result<(), Unread> {
        let mut reader = Reader::new(body);
        let (capabilities, pdx) = (reader.u8()? as usize, reader.u8()?);
        let (pdx, readers) = (usize::from(pdx & !READERS), pdx & READERS != 0);
        self.capabilities = with_room(capabilities)?;
        for _ in 0..capabilities {
            push_reserved(&mut self.capabilities, (reader.u64()?, reader.u8()?));
        }
        let head = PDX_BYTES + if readers { READER_BYTES } else { 0 };
        let entries = reader.left().saturating_sub(head * pdx) / 8;
        let mut words = with_room(PDX_HEAD * pdx + entries)?;
        for _ in 0..pdx {
            let (password, clist) = (reader.u64()?, reader.u64()?);
            let of_clist = if readers { reader.u64()? } else { 0 };
            let entries = reader.u8()?;
            for word in [password, clist, of_clist, entries.into()] {
                push_reserved(&mut words, word);
            }
            for _ in 0..entries {
                push_reserved(&mut words, reader.u64()?);
            }
        }
        self.pdx = PdxList(words);
        let whole = reader.is_empty() && self.check(address_bits).is_ok();
        whole.then_some(()).ok_or(Unread::Nonsense)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Plain = (u64, u64, u64, Vec<u64>);

    fn list(plain: &[Plain]) -> PdxList {
        let mut list = PdxList::default();
        for (password, clist, reader, entries) in plain {
            let pdx = PdxRecord {
                password: *password,
                clist: *clist,
                reader: *reader,
                entries,
            };
            list.add(pdx).unwrap();
        }
        list
    }

    fn any_record() -> impl Strategy<Value = ObjectRecord> {
        let pdx = (
            any::<u64>(),
            any::<u64>(),
            any::<u64>(),
            prop::collection::vec(any::<u64>(), 0..=ENTRIES_MAX),
        );
        (
            0_u64..1 << 30,
            1_u64..1 << 30,
            any::<[u64; 6]>(),
            prop::collection::vec((any::<u64>(), 0..RIGHTS_END), 0..=CAPABILITIES_MAX),
            prop::collection::vec(pdx, 0..=PDX_MAX),
        )
            .prop_map(|(slot, pages, words, capabilities, pdx)| ObjectRecord {
                base: slot * BLOCK as u64,
                pages,
                flags: words[0] & FLAGS,
                birth: words[0] >> FLAG_BITS,
                account: words[1],
                created_ns: words[2],
                modified_ns: words[3],
                pager: words[4],
                tag: words[5],
                capabilities,
                pdx: list(&pdx),
            })
    }

    fn decode(head: &[u8], body: &[u8]) -> Result<ObjectRecord, Unread> {
        let mut record = ObjectRecord::decode_head(&mut Reader::new(head))?;
        record.decode_body(body, 47)?;
        Ok(record)
    }

    proptest! {
        #[test]
        fn what_is_encoded_comes_back(record in any_record()) {
            let (mut head, mut body) = ([0; HEAD_BYTES], alloc::vec![0; record.body_bytes()]);
            record.encode_head(&mut Writer::new(&mut head, 0));
            record.encode_body(&mut Writer::new(&mut body, 0));
            let mut window = [0; 100];
            record.encode_body(&mut Writer::new(&mut window, 60));
            prop_assert!(body.iter().skip(60).zip(&window).all(|(one, other)| one == other));
            prop_assert_eq!(decode(&head, &body[..body.len() - 1]), Err(Unread::Nonsense));
            prop_assert_eq!(decode(&head, &body), Ok(record));
            body.push(0);
            prop_assert_eq!(decode(&head, &body), Err(Unread::Nonsense));
        }

        #[test]
        fn the_list_behaves_like_a_vector(
            mut plain in prop::collection::vec((0..6_u64, any::<u64>(), any::<u64>(), prop::collection::vec(0..100_u64, 0..9)), 0..6),
            password in 0..6_u64,
            end in 0..110_u64,
        ) {
            let mut packed = list(&plain);
            let gone = plain.iter().position(|pdx| pdx.0 == password).map(|at| plain.remove(at).1);
            prop_assert_eq!(packed.remove(password), gone);
            for pdx in &mut plain {
                pdx.3.retain(|&entry| entry < end);
            }
            packed.cut(end);
            prop_assert_eq!(packed.len(), plain.len());
            prop_assert_eq!(packed.entries(), plain.iter().map(|pdx| pdx.3.len()).sum::<usize>());
            prop_assert!(packed.iter().map(|pdx| (pdx.password, pdx.clist, pdx.reader, pdx.entries.to_vec())).eq(plain));
        }

        #[test]
        fn old_bodies_have_no_readers(mut record in any_record()) {
            let mut old = alloc::vec![record.capabilities.len() as u8, record.pdx.len() as u8];
            for &(password, rights) in &record.capabilities {
                old.extend(password.to_le_bytes());
                old.push(rights);
            }
            for pdx in record.pdx.iter() {
                old.extend([pdx.password, pdx.clist].map(u64::to_le_bytes).concat());
                old.push(pdx.entries.len() as u8);
                old.extend(pdx.entries.iter().flat_map(|entry| entry.to_le_bytes()));
            }
            let mut head = [0; HEAD_BYTES];
            record.encode_head(&mut Writer::new(&mut head, 0));
            let plain: Vec<Plain> = record.pdx.iter().map(|pdx| (pdx.password, pdx.clist, 0, pdx.entries.to_vec())).collect();
            record.pdx = list(&plain);
            // A row that is loaded and written again has its old size: its leaf may be full.
            let mut again = alloc::vec![0; record.body_bytes()];
            record.encode_body(&mut Writer::new(&mut again, 0));
            prop_assert_eq!(&again, &old);
            prop_assert_eq!(decode(&head, &old), Ok(record));
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(head in any::<[u8; HEAD_BYTES]>(), body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&head, &body);
        }
    }
}
