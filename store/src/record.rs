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
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct PdxRecord {
    /// The password that allows the call.
    pub password: u64,
    /// Base of the Clist by which the callee's domain is extended.
    pub clist: u64,
    /// Addresses that may be entered (at most 192).
    pub entries: Vec<u64>,
}

/// All that the object table knows of an object, but for where its pages lie.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct ObjectRecord {
    /// First address; a multiple of the page size; the key of the table.
    pub base: u64,
    /// Size in pages, at least one.
    pub pages: u64,
    /// `abi::layout::OBJECT_…`.
    pub flags: u64,
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
    pub pdx: Vec<PdxRecord>,
}

/// Bytes of an encoded head.
pub(crate) const HEAD_BYTES: usize = 8 * 8;
/// Rights that mean something.
const RIGHTS_END: u8 = 32;

impl ObjectRecord {
    /// One past the last address.
    pub fn end(&self) -> u64 {
        self.base.saturating_add(self.pages.saturating_mul(BLOCK as u64))
    }

    /// A copy, with room for one more capability of either kind, should that be why it is copied.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn copy(&self) -> Result<Self, Error> {
        let mut pdx = Vec::new();
        reserve(&mut pdx, self.pdx.len() + 1)?;
        for one in &self.pdx {
            let entries = copied(&one.entries)?;
            push_reserved(&mut pdx, PdxRecord { entries, ..*one });
        }
        let mut capabilities = Vec::new();
        reserve(&mut capabilities, self.capabilities.len() + 1)?;
        capabilities.extend_from_slice(&self.capabilities);
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
        out.put_words(&[
            self.base,
            self.pages,
            self.flags,
            self.account,
            self.created_ns,
            self.modified_ns,
            self.pager,
            self.tag,
        ]);
    }

    /// Appends the body.
    pub(crate) fn encode_body(&self, out: &mut Writer<'_>) {
        out.put_u8(self.capabilities.len() as u8);
        out.put_u8(self.pdx.len() as u8);
        for &(password, rights) in &self.capabilities {
            out.put_u64(password);
            out.put_u8(rights);
        }
        for pdx in &self.pdx {
            out.put_u64(pdx.password);
            out.put_u64(pdx.clist);
            out.put_u8(pdx.entries.len() as u8);
            out.put_words(&pdx.entries);
        }
    }

    /// Size of the encoded body.
    pub(crate) fn body_bytes(&self) -> usize {
        2 + 9 * self.capabilities.len() + self.pdx.iter().map(|pdx| 17 + 8 * pdx.entries.len()).sum::<usize>()
    }

    /// A record with the head that `reader` stands at, and an empty body.
    pub(crate) fn decode_head(reader: &mut Reader<'_>) -> Result<Self, Unread> {
        Ok(Self {
            base: reader.u64()?,
            pages: reader.u64()?,
            flags: reader.u64()?,
            account: reader.u64()?,
            created_ns: reader.u64()?,
            modified_ns: reader.u64()?,
            pager: reader.u64()?,
            tag: reader.u64()?,
            capabilities: Vec::new(),
            pdx: Vec::new(),
        })
    }

    /// Fills the body in and checks the whole record.
    pub(crate) fn decode_body(&mut self, body: &[u8], address_bits: u32) -> Result<(), Unread> {
        let mut reader = Reader::new(body);
        let (capabilities, pdx) = (reader.u8()? as usize, reader.u8()? as usize);
        self.capabilities = with_room(capabilities)?;
        for _ in 0..capabilities {
            push_reserved(&mut self.capabilities, (reader.u64()?, reader.u8()?));
        }
        self.pdx = with_room(pdx)?;
        for _ in 0..pdx {
            let (password, clist, entries) = (reader.u64()?, reader.u64()?, reader.u8()?);
            let mut record = PdxRecord {
                password,
                clist,
                entries: with_room(entries.into())?,
            };
            for _ in 0..entries {
                push_reserved(&mut record.entries, reader.u64()?);
            }
            push_reserved(&mut self.pdx, record);
        }
        let whole = reader.is_empty() && self.check(address_bits).is_ok();
        whole.then_some(()).ok_or(Unread::Nonsense)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_record() -> impl Strategy<Value = ObjectRecord> {
        let pdx = (
            any::<u64>(),
            any::<u64>(),
            prop::collection::vec(any::<u64>(), 0..=ENTRIES_MAX),
        )
            .prop_map(|(password, clist, entries)| PdxRecord {
                password,
                clist,
                entries,
            });
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
                flags: words[0],
                account: words[1],
                created_ns: words[2],
                modified_ns: words[3],
                pager: words[4],
                tag: words[5],
                capabilities,
                pdx,
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
        fn no_bytes_make_the_decoder_panic(head in any::<[u8; HEAD_BYTES]>(), body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&head, &body);
        }
    }
}
