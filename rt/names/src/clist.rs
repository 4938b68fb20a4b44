//! A Clist: the capabilities that a domain holds, in an object (format in `abi::layout`).
//!
//! A header and records of 16 bytes, sorted by address and then password, so that the server finds
//! one by halves. Several capabilities may bear one address: an object has several passwords.
//!
//! Insert and remove shift records one at a time, address before password, from the end that keeps
//! the order; whatever moment a checkpoint or the server's search catches, all capabilities but the
//! one in question are there, and the addresses are in order. At worst one record pairs an address
//! with another's password, which is valid for nothing. One writer at a time is the caller's duty.

use crate::bytes::{in_order, set_word, word};
use abi::layout::{CLIST_MAGIC, CLIST_SORTED, CLIST_VERSION, Capability, ClistHeader};

/// The longest object that is read as a Clist, in bytes.
pub const LARGEST: u64 = 64 << 20;

const FLAGS_AT: usize = 16;
const COUNT_AT: usize = 24;

/// Why a Clist could not be opened or changed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The object is no Clist, or its count does not fit the object.
    NotAClist,
    /// The Clist is of a version unknown here.
    UnknownVersion(u64),
    /// The object is too small for a header and one capability.
    TooSmall,
    /// The object is longer than [`LARGEST`].
    TooLarge,
    /// The Clist is not sorted, so it can be read but not changed here.
    Unsorted,
    /// There is no room for another capability: make the object longer.
    Full,
    /// The capability is not there.
    NotFound,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotAClist => f.write_str("this object is not a Clist"),
            Self::UnknownVersion(version) => write!(f, "Clist version {version} is unknown"),
            Self::TooSmall => f.write_str("the object is too small for a Clist"),
            Self::TooLarge => write!(f, "the object is too large for a Clist: {LARGEST} bytes are the most"),
            Self::Unsorted => f.write_str("the Clist is not sorted"),
            Self::Full => f.write_str("the Clist is full"),
            Self::NotFound => f.write_str("the capability is not in the Clist"),
        }
    }
}

impl core::error::Error for Error {}

/// A Clist that can be read.
#[derive(Copy, Clone, Debug)]
pub struct ClistView<'a> {
    bytes: &'a [u8],
    count: usize,
    sorted: bool,
}

impl<'a> ClistView<'a> {
    /// Opens the bytes of an object.
    ///
    /// # Errors
    /// [`Error::NotAClist`], [`Error::UnknownVersion`] or [`Error::TooSmall`].
    pub fn open(bytes: &'a [u8]) -> Result<Self, Error> {
        let count = check_header(bytes)?;
        Ok(Self {
            bytes,
            count,
            sorted: word(bytes, FLAGS_AT) & CLIST_SORTED != 0,
        })
    }

    /// How many capabilities are there.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many there is room for.
    pub fn capacity(&self) -> usize {
        capacity(self.bytes)
    }

    /// Whether the header says that they are sorted.
    pub fn is_sorted(&self) -> bool {
        self.sorted
    }

    /// All capabilities, in the order of the object.
    pub fn iter(&self) -> impl Iterator<Item = Capability> + use<'a> {
        let bytes = self.bytes;
        (0..self.count).map(move |index| record(bytes, index))
    }

    /// All capabilities that bear `address`.
    pub fn find(&self, address: u64) -> impl Iterator<Item = Capability> + use<'a> {
        let start = if self.sorted {
            lower_bound(self.bytes, self.count, address, 0)
        } else {
            0
        };
        let (bytes, sorted) = (self.bytes, self.sorted);
        (start..self.count)
            .map(move |index| record(bytes, index))
            .take_while(move |found| !sorted || found.address == address)
            .filter(move |found| found.address == address)
    }

    /// The bytes that are written when all capabilities of an object are taken away, beside the header.
    pub fn written_without(&self, address: u64) -> core::ops::Range<usize> {
        let at = |index| ClistHeader::BYTES + Capability::BYTES * index;
        at(lower_bound(self.bytes, self.count, address, 0))..at(self.count)
    }

    /// Whether exactly this capability is there.
    pub fn contains(&self, capability: Capability) -> bool {
        self.find(capability.address).any(|found| found == capability)
    }

    /// Whether the order is what the header promises.
    pub fn order_holds(&self) -> bool {
        let key = |index| (record(self.bytes, index).address, record(self.bytes, index).password);
        !self.sorted || (1..self.count).all(|index| key(index - 1) <= key(index))
    }
}

/// A sorted Clist that can be changed. One writer at a time is the caller's duty.
#[derive(Debug)]
pub struct Clist<'a> {
    bytes: &'a mut [u8],
    count: usize,
}

impl<'a> Clist<'a> {
    /// Makes an empty Clist of the bytes, whatever they held.
    ///
    /// # Errors
    /// [`Error::TooSmall`].
    pub fn format(bytes: &'a mut [u8]) -> Result<Self, Error> {
        if capacity(bytes) == 0 {
            return Err(Error::TooSmall);
        }
        set_word(bytes, 0, 0);
        in_order();
        let header = ClistHeader {
            magic: 0,
            version: CLIST_VERSION,
            flags: CLIST_SORTED,
            count: 0,
        };
        if let Some(place) = bytes.get_mut(..ClistHeader::BYTES) {
            place.copy_from_slice(&header.to_bytes());
        }
        in_order();
        set_word(bytes, 0, CLIST_MAGIC);
        Ok(Self { bytes, count: 0 })
    }

    /// Opens the bytes of an object for change.
    ///
    /// # Errors
    /// As [`ClistView::open`], and [`Error::Unsorted`].
    pub fn open_mut(bytes: &'a mut [u8]) -> Result<Self, Error> {
        let view = ClistView::open(bytes)?;
        if !view.sorted {
            return Err(Error::Unsorted);
        }
        let count = view.count;
        Ok(Self { bytes, count })
    }

    /// The Clist for reading.
    pub fn view(&self) -> ClistView<'_> {
        ClistView {
            bytes: self.bytes,
            count: self.count,
            sorted: true,
        }
    }

    /// Adds a capability; one that is already there stays as it is.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub fn insert(&mut self, new: Capability) -> Result<(), Error> {
        let at = lower_bound(self.bytes, self.count, new.address, new.password);
        if at < self.count && record(self.bytes, at) == new {
            return Ok(());
        }
        if self.count >= capacity(self.bytes) {
            return Err(Error::Full);
        }
        let last = self.count;
        let moved = if at == last { new } else { record(self.bytes, last - 1) };
        set_record(self.bytes, last, moved);
        in_order();
        self.set_count(last + 1);
        for index in (at + 1..last).rev() {
            let moved = record(self.bytes, index - 1);
            set_record(self.bytes, index, moved);
        }
        set_record(self.bytes, at, new);
        Ok(())
    }

    /// Takes a capability away.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn remove(&mut self, old: Capability) -> Result<(), Error> {
        let at = lower_bound(self.bytes, self.count, old.address, old.password);
        if at >= self.count || record(self.bytes, at) != old {
            return Err(Error::NotFound);
        }
        for index in at + 1..self.count {
            let moved = record(self.bytes, index);
            set_record(self.bytes, index - 1, moved);
        }
        in_order();
        self.set_count(self.count - 1);
        set_record(self.bytes, self.count, Capability::default());
        Ok(())
    }

    /// Takes all capabilities away that bear `address`, and tells how many there were.
    pub fn remove_all(&mut self, address: u64) -> usize {
        let mut removed = 0;
        loop {
            let Some(found) = self.view().find(address).next() else {
                return removed;
            };
            if self.remove(found).is_err() {
                return removed;
            }
            removed += 1;
        }
    }

    fn set_count(&mut self, count: usize) {
        set_word(self.bytes, COUNT_AT, count as u64);
        self.count = count;
    }
}

/// How many capabilities a Clist has that is so long. For readers who copy the header and each capability out of memory that
/// others may write.
///
/// # Errors
/// As [`ClistView::open`].
pub fn count_of(header: &[u8], bytes: usize) -> Result<usize, Error> {
    let capacity = bytes.saturating_sub(ClistHeader::BYTES) / Capability::BYTES;
    if capacity == 0 {
        return Err(Error::TooSmall);
    }
    if word(header, 0) != CLIST_MAGIC {
        return Err(Error::NotAClist);
    }
    if word(header, 8) != CLIST_VERSION {
        return Err(Error::UnknownVersion(word(header, 8)));
    }
    let count = usize::try_from(word(header, COUNT_AT)).map_err(|_| Error::NotAClist)?;
    if count > capacity {
        Err(Error::NotAClist)
    } else {
        Ok(count)
    }
}

fn check_header(bytes: &[u8]) -> Result<usize, Error> {
    count_of(bytes, bytes.len())
}

fn capacity(bytes: &[u8]) -> usize {
    bytes.len().saturating_sub(ClistHeader::BYTES) / Capability::BYTES
}

fn record(bytes: &[u8], index: usize) -> Capability {
    let at = ClistHeader::BYTES + Capability::BYTES * index;
    Capability {
        address: word(bytes, at),
        password: word(bytes, at + 8),
    }
}

fn set_record(bytes: &mut [u8], index: usize, value: Capability) {
    let at = ClistHeader::BYTES + Capability::BYTES * index;
    set_word(bytes, at, value.address);
    in_order();
    set_word(bytes, at + 8, value.password);
    in_order();
}

/// Index of the first of `count` sorted records that is not before (`address`, `password`).
fn lower_bound(bytes: &[u8], count: usize, address: u64, password: u64) -> usize {
    first_not_before(count, Capability { address, password }, |index| record(bytes, index))
}

/// The same of records that are read otherwise: one after another, out of memory that others may write.
pub fn first_not_before(count: usize, wanted: Capability, record: impl Fn(usize) -> Capability) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = usize::midpoint(low, high);
        let found = record(middle);
        if (found.address, found.password) < (wanted.address, wanted.password) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests;
