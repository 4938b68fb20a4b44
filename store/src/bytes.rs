//! Little-endian words in and out of byte sequences. Neither reading nor writing past an end panics.

use crate::event::{MountError, Structure};
use crate::heap::NoHeap;

/// Why bytes were not read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unread {
    /// They make no sense, or end too early.
    Nonsense,
    /// There is no heap for what they say.
    NoHeap,
}

impl Unread {
    /// The meaning of that at mount, where the bytes are of that structure and stand in that block.
    pub(crate) fn at(self, structure: Structure, block: u64) -> MountError {
        match self {
            Self::Nonsense => MountError::Damaged(structure, block),
            Self::NoHeap => MountError::Memory,
        }
    }
}

impl From<NoHeap> for Unread {
    fn from(_: NoHeap) -> Self {
        Self::NoHeap
    }
}

impl From<abi::Error> for Unread {
    fn from(_: abi::Error) -> Self {
        Self::NoHeap
    }
}

/// Reads words from the front of a byte slice.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Unread> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(Unread::Nonsense)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Unread> {
        self.take(N)?.try_into().map_err(|_| Unread::Nonsense)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Unread> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Unread> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Unread> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Unread> {
        self.array().map(u64::from_le_bytes)
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Writes little-endian words into a byte slice, which shows the part of what is written from `from` on.
pub(crate) struct Writer<'a> {
    out: &'a mut [u8],
    from: usize,
    at: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut [u8], from: usize) -> Self {
        Self { out, from, at: 0 }
    }

    /// Most words are shown whole, and a table part has some five hundred of them.
    #[inline]
    pub(crate) fn put_bytes(&mut self, bytes: &[u8]) {
        let start = self.at;
        self.at += bytes.len();
        let shown = start.checked_sub(self.from).and_then(|first| self.out.get_mut(first..));
        match shown.and_then(|shown| shown.get_mut(..bytes.len())) {
            Some(place) => place.copy_from_slice(bytes),
            None => self.put_part(start, bytes),
        }
    }

    /// Writes what is shown of bytes that stand across an end, or beyond it.
    #[cold]
    fn put_part(&mut self, start: usize, bytes: &[u8]) {
        let end = start + bytes.len();
        let (first, last) = (start.max(self.from), end.min(self.from + self.out.len()));
        if first < last {
            self.out[first - self.from..last - self.from].copy_from_slice(&bytes[first - start..last - start]);
        }
    }

    pub(crate) fn put_u8(&mut self, value: u8) {
        self.put_bytes(&[value]);
    }

    pub(crate) fn put_u16(&mut self, value: u16) {
        self.put_bytes(&value.to_le_bytes());
    }

    pub(crate) fn put_u32(&mut self, value: u32) {
        self.put_bytes(&value.to_le_bytes());
    }

    pub(crate) fn put_u64(&mut self, value: u64) {
        self.put_bytes(&value.to_le_bytes());
    }

    /// Writes some words.
    #[inline]
    pub(crate) fn put_words<const N: usize>(&mut self, words: [u64; N]) {
        self.put_bytes(words.map(u64::to_le_bytes).as_flattened());
    }

    /// Writes values of the same length. Many may be the passwords of an object, or a procedure's entry points, most of them before or behind the part that is
    /// shown: these are passed over at once.
    pub(crate) fn put_all<T, const N: usize>(&mut self, values: &[T], encode: impl Fn(&T) -> [u8; N]) {
        let shown = |end: usize| (end.saturating_sub(self.at) / N).min(values.len());
        let (first, last) = (shown(self.from), shown(self.from + self.out.len() + N - 1));
        self.at += first * N;
        let (shown, behind) = values[first..].split_at(last.max(first) - first);
        let start = self.at.checked_sub(self.from);
        let places = start.and_then(|start| self.out.get_mut(start..start + shown.len() * N));
        if let Some(places) = places {
            for (place, value) in places.as_chunks_mut().0.iter_mut().zip(shown) {
                *place = encode(value);
            }
            self.at += shown.len() * N;
        } else {
            for value in shown {
                self.put_bytes(&encode(value));
            }
        }
        self.at += behind.len() * N;
    }
}

/// The word at `offset` of a block; zero past its end.
pub(crate) fn word(bytes: &[u8], offset: usize) -> u64 {
    bytes
        .get(offset..offset + 8)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

/// Sets the word at `offset` of a block.
pub(crate) fn set_word(bytes: &mut [u8], offset: usize, value: u64) {
    if let Some(place) = bytes.get_mut(offset..offset + 8) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}
