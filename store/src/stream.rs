//! Streams: the difference of two states of a store, or a whole one, as bytes that another store can take (docs/spec/stream-format.md).
//!
//! A stream tells of objects and pages, not of blocks: rows stand in it whole, as the object table has them, and pages by their numbers. So it fits
//! a disk of any size. It is a head, records, and an end; each bears a sum over all bytes before it, so that nothing in it can be left out, exchanged or cut without
//! a trace. The sum is under no secret key: it tells accidents, and nothing of who made the stream.
//!
//! A reader believes nothing. It keeps one record in memory, of a length that has a bound, and takes records in one order alone: objects that are gone,
//! then the others, both by ascending addresses, each with its pages in ascending order.

use crate::bytes::{Reader, Unread, Writer};
use crate::containers::{push_reserved, reserve};
use crate::event::PageFlags;
use crate::geometry::{BLOCKS_MAX, BLOCKS_MIN};
use crate::heap::{NoHeap, with_room};
use crate::record::{BIRTH_END, BODY_MAX, HEAD_BYTES, ObjectRecord};
use crate::snapshots::SnapshotName;
use crate::snapshots::format::{Identity, put_name, read_name};
use crate::world::BLOCK;
use alloc::vec::Vec;
use core::fmt;
use core::hash::Hasher;
use siphasher::sip::SipHasher13;

/// The first eight bytes.
const MAGIC: u64 = u64::from_le_bytes(*b"GONDSEND");
/// The version of the format.
const VERSION: u32 = 1;
/// Bytes before the contents of the head, and of a record.
const BEFORE_HEAD: usize = 16;
const BEFORE_RECORD: usize = 8;
/// Bytes of a name.
const NAME: usize = 32;
/// Bytes of the contents of the head.
const HEAD: usize = 8 + 4 * 8 + (NAME + 8 + 16) + (NAME + 16);
/// Bytes of the largest contents of a record.
const RECORD_MAX: usize = HEAD_BYTES + BODY_MAX;
/// Kinds of records.
const DELETE: u32 = 1;
const OBJECT: u32 = 2;
const PAGE: u32 = 3;
const ZERO_PAGE: u32 = 4;
const LIMIT: u32 = 5;
const CLEAR: u32 = 6;
const END: u32 = 7;
/// Flags of the head.
const HAS_BASE: u32 = 1;
const IS_SNAPSHOT: u32 = 2;

const _: () = assert!(HEAD <= RECORD_MAX && 16 + BLOCK <= RECORD_MAX);

/// A snapshot that a stream names.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// Its name, where the stream was made.
    pub name: SnapshotName,
    /// Tells it from all others.
    pub identity: Identity,
}

/// The head of a stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StreamHead {
    /// 47 or 56.
    pub address_bits: u32,
    /// Blocks of the disk that it comes from.
    pub blocks: u64,
    /// Objects of the state that it leads to.
    pub objects: u64,
    /// Above all births that were given.
    pub births: u64,
    /// Slot numbers below this may be in use.
    pub high_water: u64,
    /// The snapshot that it leads to, and when that was made; none where it leads to a state that has no name.
    pub target: Option<(Named, u64)>,
    /// The snapshot from which it is the difference; none if it is a whole state.
    pub base: Option<Named>,
}

/// A record of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StreamItem<'a> {
    /// The object at this address is gone.
    Delete(u64),
    /// An object is there and has this row. It keeps its pages if it was there with this birth.
    Object(ObjectRecord),
    /// A page of the object has contents, zeroes where there are none, and limits.
    Page(u64, PageFlags, Option<&'a [u8; BLOCK]>),
    /// A page of the object reads as zero, with limits.
    Limit(u64, PageFlags),
    /// Pages of the object, from the first to one past the last, read as zero and have no limits.
    Clear(u64, u64),
    /// The end.
    End,
}

/// Why a stream is not taken.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StreamError {
    /// It does not begin as one.
    Foreign,
    /// It has a version that is not known.
    Newer(u32),
    /// It ends in the middle.
    Cut,
    /// It is not as it was written.
    Damaged,
    /// It is as it was written and makes no sense.
    Nonsense,
    /// There is something behind its end.
    Behind,
    /// There is no heap for a record.
    Memory,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("this is no stream of 'gond send'"),
            Self::Newer(version) => write!(f, "the stream has version {version}, which a newer system made"),
            Self::Cut => f.write_str("the stream ends in the middle"),
            Self::Damaged => f.write_str("the stream is not as it was sent: a checksum is wrong"),
            Self::Nonsense => f.write_str("the stream makes no sense, though its checksums are right"),
            Self::Behind => f.write_str("there is something behind the end of the stream"),
            Self::Memory => f.write_str("there is not enough memory for a record of the stream"),
        }
    }
}

impl From<Unread> for StreamError {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Nonsense => Self::Nonsense,
            Unread::NoHeap => Self::Memory,
        }
    }
}

impl From<NoHeap> for StreamError {
    fn from(_: NoHeap) -> Self {
        Self::Memory
    }
}

/// The sum over all bytes.
struct Sum(SipHasher13);

impl Sum {
    fn new() -> Self {
        Self(SipHasher13::new_with_keys(MAGIC, VERSION.into()))
    }

    fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    fn now(&self) -> u64 {
        self.0.finish()
    }
}

/// What was counted on the way.
#[derive(Copy, Clone, PartialEq, Eq, Default)]
struct Counts {
    deletes: u64,
    objects: u64,
    pages: u64,
}

impl Counts {
    fn add(&mut self, item: &StreamItem<'_>) {
        match item {
            StreamItem::Delete(_) => self.deletes += 1,
            StreamItem::Object(_) => self.objects += 1,
            StreamItem::Page(..) | StreamItem::Limit(..) | StreamItem::Clear(..) => self.pages += 1,
            StreamItem::End => {}
        }
    }
}

/// Makes a stream.
pub struct StreamWriter {
    sum: Sum,
    counts: Counts,
    bytes: Vec<u8>,
}

impl StreamWriter {
    /// Begins one.
    ///
    /// # Errors
    /// [`StreamError::Memory`].
    pub fn new() -> Result<Self, StreamError> {
        Ok(Self {
            sum: Sum::new(),
            counts: Counts::default(),
            bytes: with_room(BEFORE_HEAD + RECORD_MAX + 8)?,
        })
    }

    /// Room for so many bytes, all zero.
    fn room(&mut self, length: usize) -> Result<&mut [u8], StreamError> {
        self.bytes.clear();
        reserve(&mut self.bytes, length).map_err(|_| StreamError::Memory)?;
        (0..length).for_each(|_| push_reserved(&mut self.bytes, 0));
        Ok(&mut self.bytes)
    }

    /// What was put, with its sum.
    fn sealed(&mut self) -> &[u8] {
        let end = self.bytes.len() - 8;
        self.sum.add(&self.bytes[..end]);
        let sum = self.sum.now().to_le_bytes();
        self.bytes[end..].copy_from_slice(&sum);
        self.sum.add(&sum);
        &self.bytes
    }

    /// The bytes of the head, which is the first thing in a stream.
    ///
    /// # Errors
    /// [`StreamError::Memory`].
    pub fn head(&mut self, head: &StreamHead) -> Result<&[u8], StreamError> {
        let bytes = self.room(BEFORE_HEAD + HEAD + 8)?;
        let mut out = Writer::new(bytes, 0);
        out.put_u64(MAGIC);
        out.put_u32(VERSION);
        out.put_u32(HEAD as u32);
        out.put_u32(head.address_bits);
        let base = if head.base.is_some() { HAS_BASE } else { 0 };
        let target = if head.target.is_some() { IS_SNAPSHOT } else { 0 };
        out.put_u32(base | target);
        out.put_words([head.blocks, head.objects, head.births, head.high_water]);
        let put = |out: &mut Writer<'_>, named: Option<&Named>| match named {
            Some(named) => {
                put_name(out, &named.name);
                out.put_words(named.identity.0);
            }
            None => out.put_bytes(&[0; NAME + 16]),
        };
        put(&mut out, head.target.as_ref().map(|target| &target.0));
        out.put_u64(head.target.map_or(0, |target| target.1));
        put(&mut out, head.base.as_ref());
        Ok(self.sealed())
    }

    /// The bytes of a record.
    ///
    /// # Errors
    /// [`StreamError::Memory`].
    pub fn item(&mut self, item: &StreamItem<'_>) -> Result<&[u8], StreamError> {
        self.counts.add(item);
        let (kind, length) = match item {
            StreamItem::Delete(_) => (DELETE, 8),
            StreamItem::Object(record) => (OBJECT, HEAD_BYTES + record.body_bytes()),
            StreamItem::Page(_, _, Some(_)) => (PAGE, 16 + BLOCK),
            StreamItem::Page(..) => (ZERO_PAGE, 16),
            StreamItem::Limit(..) => (LIMIT, 16),
            StreamItem::Clear(..) => (CLEAR, 16),
            StreamItem::End => (END, 24),
        };
        let counts = self.counts;
        let bytes = self.room(BEFORE_RECORD + length + 8)?;
        let mut out = Writer::new(bytes, 0);
        out.put_u32(kind);
        out.put_u32(length as u32);
        match item {
            StreamItem::Delete(base) => out.put_u64(*base),
            StreamItem::Object(record) => {
                record.encode_head(&mut out);
                record.encode_body(&mut out);
            }
            StreamItem::Page(page, flags, content) => {
                out.put_words([*page, flags.bits().into()]);
                if let Some(content) = content {
                    out.put_bytes(&content[..]);
                }
            }
            StreamItem::Limit(page, flags) => out.put_words([*page, flags.bits().into()]),
            StreamItem::Clear(first, end) => out.put_words([*first, *end]),
            StreamItem::End => out.put_words([counts.deletes, counts.objects, counts.pages]),
        }
        Ok(self.sealed())
    }
}

/// Where the bytes of a stream come from.
pub trait Source {
    /// The next bytes; tells how many there were, fewer only at the end.
    fn fill(&mut self, bytes: &mut [u8]) -> usize;
}

impl Source for &[u8] {
    fn fill(&mut self, bytes: &mut [u8]) -> usize {
        let count = bytes.len().min(self.len());
        let (taken, rest) = self.split_at(count);
        bytes[..count].copy_from_slice(taken);
        *self = rest;
        count
    }
}

/// How far a stream is.
#[derive(Copy, Clone, PartialEq, Eq)]
enum At {
    /// At objects that are gone, of which none may begin before this address.
    Deletes(u64),
    /// At objects, of which none may begin before this address, and pages of the last one: it has so many, and none may come before the other one.
    Objects {
        end: u64,
        pages: u64,
        next: u64,
    },
    Over,
}

/// Takes a stream apart.
pub struct StreamReader<S> {
    source: S,
    head: StreamHead,
    sum: Sum,
    counts: Counts,
    at: At,
    bytes: Vec<u8>,
}

impl<S: Source> StreamReader<S> {
    /// Reads the head.
    ///
    /// # Errors
    /// [`StreamError`].
    pub fn new(mut source: S) -> Result<Self, StreamError> {
        let mut bytes: Vec<u8> = with_room(RECORD_MAX)?;
        (0..RECORD_MAX).for_each(|_| push_reserved(&mut bytes, 0));
        let mut sum = Sum::new();
        let mut before = [0; BEFORE_HEAD];
        let got = source.fill(&mut before);
        let magic = MAGIC.to_le_bytes();
        if before[..got.min(8)] != magic[..got.min(8)] || got == 0 {
            return Err(StreamError::Foreign);
        }
        if got < BEFORE_HEAD {
            return Err(StreamError::Cut);
        }
        sum.add(&before);
        let mut reader = Reader::new(&before[8..]);
        let (version, length) = (reader.u32()?, reader.u32()? as usize);
        read_sealed(&mut source, &mut sum, &mut bytes, length)?;
        if version != VERSION {
            return Err(StreamError::Newer(version));
        }
        let head = decode_head(&bytes[..length])?;
        Ok(Self {
            source,
            head,
            sum,
            counts: Counts::default(),
            at: At::Deletes(0),
            bytes,
        })
    }

    /// The head.
    pub fn head(&self) -> &StreamHead {
        &self.head
    }

    /// The next record. Behind [`StreamItem::End`] there is nothing, and all of the stream is as it was sent.
    ///
    /// # Errors
    /// [`StreamError`].
    pub fn read(&mut self) -> Result<StreamItem<'_>, StreamError> {
        if self.at == At::Over {
            return Ok(StreamItem::End);
        }
        let mut before = [0; BEFORE_RECORD];
        if self.source.fill(&mut before) < BEFORE_RECORD {
            return Err(StreamError::Cut);
        }
        self.sum.add(&before);
        let mut reader = Reader::new(&before);
        let (kind, length) = (reader.u32()?, reader.u32()? as usize);
        read_sealed(&mut self.source, &mut self.sum, &mut self.bytes, length)?;
        let item = decode_item(kind, &self.bytes[..length], self.counts, self.head.address_bits)?;
        self.at = self.at.behind(&item, &self.head, self.counts)?;
        self.counts.add(&item);
        if matches!(item, StreamItem::End) {
            self.at = At::Over;
            if self.source.fill(&mut [0]) != 0 {
                return Err(StreamError::Behind);
            }
        }
        Ok(item)
    }
}

impl At {
    /// Where a stream is behind a record, if that may stand here.
    fn behind(self, item: &StreamItem<'_>, head: &StreamHead, counts: Counts) -> Result<Self, StreamError> {
        let is_difference = head.base.is_some();
        let next = match (item, self) {
            (&StreamItem::Delete(base), Self::Deletes(from)) if is_difference && base >= from && base < u64::MAX => {
                Self::Deletes(base + 1)
            }
            (StreamItem::Object(record), Self::Deletes(_) | Self::Objects { .. }) => {
                let from = match self {
                    Self::Objects { end, .. } => end,
                    _ => 0,
                };
                if record.base < from || record.birth >= head.births {
                    return Err(StreamError::Nonsense);
                }
                Self::Objects {
                    end: record.end(),
                    pages: record.pages,
                    next: 0,
                }
            }
            (
                StreamItem::Page(..) | StreamItem::Limit(..) | StreamItem::Clear(..),
                Self::Objects { end, pages, next },
            ) => {
                let (first, behind) = match *item {
                    StreamItem::Clear(first, behind) if is_difference => (first, behind),
                    StreamItem::Page(page, ..) | StreamItem::Limit(page, _) => (page, page.saturating_add(1)),
                    _ => return Err(StreamError::Nonsense),
                };
                if first < next || first >= behind || behind > pages {
                    return Err(StreamError::Nonsense);
                }
                Self::Objects {
                    end,
                    pages,
                    next: behind,
                }
            }
            // A whole state has all of its objects.
            (StreamItem::End, _) if is_difference || counts.objects == head.objects => self,
            _ => return Err(StreamError::Nonsense),
        };
        Ok(next)
    }
}

/// Reads contents of this length, and the sum behind them.
fn read_sealed(source: &mut impl Source, sum: &mut Sum, bytes: &mut [u8], length: usize) -> Result<(), StreamError> {
    // A length that no record has is not as it was written: nothing is read for it.
    let contents = bytes.get_mut(..length).ok_or(StreamError::Damaged)?;
    let mut found = [0; 8];
    if source.fill(contents) < length || source.fill(&mut found) < 8 {
        return Err(StreamError::Cut);
    }
    sum.add(contents);
    if sum.now().to_le_bytes() != found {
        return Err(StreamError::Damaged);
    }
    sum.add(&found);
    Ok(())
}

fn decode_head(bytes: &[u8]) -> Result<StreamHead, StreamError> {
    let mut reader = Reader::new(bytes);
    let (address_bits, flags) = (reader.u32()?, reader.u32()?);
    let (blocks, objects) = (reader.u64()?, reader.u64()?);
    let (births, high_water) = (reader.u64()?, reader.u64()?);
    let named = |bytes: &[u8], is_there: bool| -> Result<Option<Named>, StreamError> {
        if !is_there {
            let is_empty = bytes.iter().all(|&byte| byte == 0);
            return if is_empty { Ok(None) } else { Err(StreamError::Nonsense) };
        }
        let mut reader = Reader::new(bytes);
        let name = read_name(&mut reader)?;
        let identity = Identity([reader.u64()?, reader.u64()?]);
        if identity == Identity::NONE {
            return Err(StreamError::Nonsense);
        }
        Ok(Some(Named { name, identity }))
    };
    let target = named(reader.take(NAME + 16)?, flags & IS_SNAPSHOT != 0)?;
    let time = reader.u64()?;
    let base = named(reader.take(NAME + 16)?, flags & HAS_BASE != 0)?;
    let is_sound = reader.is_empty()
        && flags & !(HAS_BASE | IS_SNAPSHOT) == 0
        && (address_bits == 47 || address_bits == 56)
        && (BLOCKS_MIN..=BLOCKS_MAX).contains(&blocks)
        // Nobody has given so many: an image that took them could make no more objects.
        && births <= BIRTH_END / 2
        && high_water <= 1 << 40
        && (target.is_some() || time == 0);
    if !is_sound {
        return Err(StreamError::Nonsense);
    }
    Ok(StreamHead {
        address_bits,
        blocks,
        objects,
        births,
        high_water,
        target: target.map(|target| (target, time)),
        base,
    })
}

fn decode_item(kind: u32, bytes: &[u8], counts: Counts, address_bits: u32) -> Result<StreamItem<'_>, StreamError> {
    let mut reader = Reader::new(bytes);
    let item = match kind {
        DELETE => StreamItem::Delete(reader.u64()?),
        OBJECT => {
            let mut record = ObjectRecord::decode_head(&mut reader)?;
            let body = reader.take(reader.left())?;
            record.decode_body(body, address_bits)?;
            StreamItem::Object(record)
        }
        PAGE => {
            let (page, flags) = (reader.u64()?, read_flags(&mut reader)?);
            let content = reader.take(BLOCK)?.try_into().map_err(|_| StreamError::Nonsense)?;
            StreamItem::Page(page, flags, Some(content))
        }
        ZERO_PAGE => StreamItem::Page(reader.u64()?, read_flags(&mut reader)?, None),
        LIMIT => {
            let (page, flags) = (reader.u64()?, read_flags(&mut reader)?);
            if flags.is_empty() {
                return Err(StreamError::Nonsense);
            }
            StreamItem::Limit(page, flags)
        }
        CLEAR => StreamItem::Clear(reader.u64()?, reader.u64()?),
        END => {
            let [deletes, objects, pages] = [reader.u64()?, reader.u64()?, reader.u64()?];
            let told = Counts {
                deletes,
                objects,
                pages,
            };
            if told != counts {
                return Err(StreamError::Nonsense);
            }
            StreamItem::End
        }
        _ => return Err(StreamError::Nonsense),
    };
    if reader.is_empty() {
        Ok(item)
    } else {
        Err(StreamError::Nonsense)
    }
}

fn read_flags(reader: &mut Reader<'_>) -> Result<PageFlags, StreamError> {
    let bits = u16::try_from(reader.u64()?).map_err(|_| StreamError::Nonsense)?;
    Ok(PageFlags::from_bits_retain(bits))
}
