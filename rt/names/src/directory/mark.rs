//! Marks: what an entry says of a change that is not finished.
//!
//! A mark is one byte of its entry and is written whole, so an entry has the old or the new one. Directories that were
//! made before there were marks have zeros there: all of their entries are settled.

use super::{
    Directory, DirectoryView, ENTRY_BYTES, Entry, Error, FREE, Fault, MAGIC, MARK_AT, REACH_AT, VERSION, VERSION_AT,
    capacity, check_header, entry, is_named, kind_byte, reach, set_kind,
};
use crate::bytes::{in_order, set_word, word};
use crate::path::check_name;
use abi::layout::Capability;

/// How far an entry is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mark {
    /// The name and its object are as durable as each other.
    Settled = 0,
    /// The name was made since the last start: it may be on the disk before its object is.
    Young = 1,
    /// The object is being deleted. Lookups do not see the name.
    Doomed = 2,
    /// The object is getting another name in this directory.
    Leaving = 3,
    /// The object is not kept yet. Lookups do not see the name.
    Unborn = 4,
}

impl Mark {
    const fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::Young,
            2 => Self::Doomed,
            3 => Self::Leaving,
            4 => Self::Unborn,
            _ => Self::Settled,
        }
    }

    /// Whether lookups pass over the entry.
    pub const fn is_hidden(self) -> bool {
        matches!(self, Self::Doomed | Self::Unborn)
    }
}

/// A marked entry.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Marked {
    /// Its place.
    pub index: usize,
    /// The mark.
    pub mark: Mark,
    /// The way to its object.
    pub capability: Capability,
}

impl<'a> DirectoryView<'a> {
    /// The entries that make sense and are not settled, from a place on.
    pub fn marked(&self, from: usize) -> impl Iterator<Item = (Marked, Entry<'a>)> + use<'a> {
        let bytes = self.bytes;
        (from..reach(bytes)).filter_map(move |index| {
            let mark = of(bytes, index);
            let found = entry(bytes, index).filter(|_| mark != Mark::Settled)?;
            let capability = found.capability;
            Some((
                Marked {
                    index,
                    mark,
                    capability,
                },
                found,
            ))
        })
    }
}

impl DirectoryView<'_> {
    /// The place of a name, and how far its entry is.
    pub fn find(&self, name: &str) -> Option<Marked> {
        let index = self.position(name)?;
        Some(Marked {
            index,
            mark: of(self.bytes, index),
            capability: entry(self.bytes, index)?.capability,
        })
    }

    /// The first entry from a place on whose object is being deleted or renamed.
    pub fn interrupted(&self, from: usize) -> Option<Marked> {
        let is_interrupted = |index: &usize| {
            matches!(of(self.bytes, *index), Mark::Doomed | Mark::Leaving) && kind_byte(self.bytes, *index) != FREE
        };
        let mut all = (from..reach(self.bytes)).filter(is_interrupted);
        all.find_map(|index| {
            Some(Marked {
                index,
                mark: of(self.bytes, index),
                capability: entry(self.bytes, index)?.capability,
            })
        })
    }
}

impl Directory<'_> {
    /// Adds an entry with a mark, and tells where it is.
    ///
    /// # Errors
    /// As [`Directory::insert`].
    pub fn insert_marked(&mut self, new: &Entry<'_>, mark: Mark) -> Result<Marked, Error> {
        check_name(new.name).map_err(Error::BadName)?;
        if self.view().position(new.name).is_some() {
            return Err(Error::Exists);
        }
        Ok(Marked {
            index: self.add(new, mark)?,
            mark,
            capability: new.capability,
        })
    }

    /// Marks the entry of a name, and frees others of the name that a crash has left. Gives it as it was.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn mark(&mut self, name: &str, mark: Mark) -> Result<Marked, Error> {
        let before = self.view().find(name).ok_or(Error::NotFound)?;
        let index = before.index;
        for other in index + 1..reach(self.bytes) {
            if is_named(self.bytes, other, name) {
                set_kind(self.bytes, other, FREE);
            }
        }
        set(self.bytes, index, mark);
        Ok(before)
    }

    /// Makes a directory of bytes that were overwritten: of what makes sense as entries, each name once. Tells how many others went.
    ///
    /// # Errors
    /// [`Error::TooSmall`].
    pub fn mend(bytes: &mut [u8]) -> Result<usize, Error> {
        let mut went = 0;
        for index in 0..capacity(bytes) {
            if kind_byte(bytes, index) != FREE && entry(bytes, index).is_none() {
                set_kind(bytes, index, FREE);
                went += 1;
            }
        }
        let reach = (0..capacity(bytes)).rfind(|&index| kind_byte(bytes, index) != FREE);
        let reach = reach.map_or(0, |last| last as u64 + 1);
        if check_header(bytes).is_err()
            || word(bytes, REACH_AT) < reach
            || word(bytes, REACH_AT) > capacity(bytes) as u64
        {
            let header = bytes.get_mut(..ENTRY_BYTES * 2).ok_or(Error::TooSmall)?;
            header[..ENTRY_BYTES].fill(0);
            set_word(bytes, VERSION_AT, VERSION);
            set_word(bytes, REACH_AT, reach);
            in_order();
            set_word(bytes, 0, MAGIC);
        }
        // Of a name that stands there twice the first entry counts: the others lead nowhere.
        for index in 0..capacity(bytes) {
            let view = DirectoryView { bytes };
            if matches!(view.fault(index), Some(Fault::Repeated(_))) {
                set_kind(bytes, index, FREE);
                went += 1;
            }
        }
        Ok(went)
    }

    /// Gives an entry the mark that it is told with, if it is still an entry of that object.
    pub fn set_mark(&mut self, marked: &Marked) {
        if self.is_still(marked) {
            set(self.bytes, marked.index, marked.mark);
        }
    }

    /// Whether another entry bears the name of a hidden one meanwhile. Cost: a look at all others. Of two that are seen the first counts anyway, and the
    /// next change of that name frees the rest.
    pub fn is_shadowed(&self, marked: &Marked) -> bool {
        let others = |found: Entry<'_>| {
            self.view()
                .position(found.name)
                .is_some_and(|index| index != marked.index)
        };
        entry(self.bytes, marked.index).is_some_and(others)
    }

    /// Whether another entry that is seen bears the capability of one that is seen. Cost: a look at all entries.
    pub fn has_twin(&self, marked: &Marked) -> bool {
        let same = |found: &Entry<'_>| found.capability == marked.capability;
        self.view().iter().filter(same).count() > 1
    }

    /// Frees an entry, if it is still one of that object.
    pub fn free(&mut self, marked: &Marked) {
        if self.is_still(marked) {
            set_kind(self.bytes, marked.index, FREE);
        }
    }

    fn is_still(&self, marked: &Marked) -> bool {
        entry(self.bytes, marked.index).is_some_and(|found| found.capability == marked.capability)
    }
}

/// The mark of the entry at `index`.
pub(super) fn of(bytes: &[u8], index: usize) -> Mark {
    of_entry(bytes.get(ENTRY_BYTES * (index + 1)..).unwrap_or_default())
}

/// The mark of the entry in these bytes.
pub(super) fn of_entry(place: &[u8]) -> Mark {
    Mark::from_byte(place.get(MARK_AT).copied().unwrap_or(0))
}

fn set(bytes: &mut [u8], index: usize, mark: Mark) {
    if let Some(place) = bytes.get_mut(ENTRY_BYTES * (index + 1) + MARK_AT) {
        *place = mark as u8;
    }
}
