//! Clists by the addresses at which records of procedures name them.
//!
//! A record names the Clist of its procedure by the base address alone. If that address were used again, the procedure would get
//! the Clist of another object. So the records are counted by the slot in which the named base lies, those of rows that are not
//! active included. A named object that is deleted leaves its first slot held, and no other; the slot is free again with the last record.
//!
//! A record that is, or was, a row of the object table may come back by a power cut until its end is in a checkpoint. Until then its
//! slot is held, too.

use abi::{
    Error,
    address::{FIRST_FREE, OBJECTS_END, SLOT, slot_of, system_objects},
};
use alloc::vec::Vec;
use store::{ObjectRecord, ROW_ENDS, Seen};

use crate::{
    Server,
    containers::{Map, push},
    directory::{address::Addresses, unknown::Unknown},
};

/// The records that name a slot.
#[derive(Copy, Clone, Default)]
struct Name {
    /// How many.
    records: u32,
    /// Whether the object has gone, so that the slot is held for them alone.
    gone: bool,
    /// Whether the slot must wait for a checkpoint after the last one.
    lasting: bool,
}

/// All names, by slot.
#[derive(Default)]
pub struct Names(Map<u64, Name>);

/// The slot that a Clist's base lies in; none for no Clist, or where no object can be made.
fn slot_named(clist: u64) -> Option<u64> {
    (FIRST_FREE..OBJECTS_END).contains(&clist).then(|| slot_of(clist))
}

impl Names {
    /// Notes that a record names a Clist.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn add(&mut self, clist: u64) -> Result<(), Error> {
        let Some(slot) = slot_named(clist) else { return Ok(()) };
        if !self.0.has(slot) {
            self.0.insert(slot, Name::default())?;
        }
        if let Some(name) = self.0.get_mut(slot) {
            name.records += 1;
        }
        Ok(())
    }

    /// Whether records name the object that goes and that began in a slot: the slot is held then, and waits for a checkpoint in the end if
    /// it must.
    pub(crate) fn object_goes(&mut self, slot: u64, lasting: bool) -> bool {
        let name = self.0.get_mut(slot);
        name.map(|name| {
            name.gone = true;
            name.lasting |= lasting;
        })
        .is_some()
    }

    /// Whether records name a slot.
    pub(crate) fn has(&self, slot: u64) -> bool {
        self.0.has(slot)
    }

    /// The first named slot from this one on.
    pub(crate) fn from(&self, slot: u64) -> Option<u64> {
        self.0.first_in(slot..u64::MAX).map(|(slot, _)| slot)
    }

    /// How many records name each slot.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (u64, u32)> {
        self.0.iter().map(|(slot, name)| (slot, name.records))
    }
}

/// The slots that a Clist of one of a record's procedures begins in.
pub(crate) fn slots_named(record: &ObjectRecord) -> impl Iterator<Item = u64> {
    record.pdx.iter().filter_map(|pdx| slot_named(pdx.clist))
}

/// What a start finds out about the rows of earlier ones, which it sees in the order of their addresses. All that have procedures are among those that it sees.
pub(crate) struct Found {
    pub(crate) names: Names,
    pub(crate) addresses: Addresses,
    pub(crate) unknown: Unknown,
    /// Whether what was seen last was not read, so that its last object may reach to the next row.
    unread: bool,
    /// The slot from which on none was issued before.
    lease: u64,
    /// The bases of objects that go with this start.
    pub(crate) ending: Vec<u64>,
}

impl Found {
    pub(crate) fn new(lease: u64) -> Self {
        Self {
            names: Names::default(),
            addresses: Addresses::new(0),
            unknown: Unknown::default(),
            unread: false,
            lease,
            ending: Vec::new(),
        }
    }

    /// Notes what is seen: the addresses that it holds, or may hold, and the Clists that it names.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn see(&mut self, seen: Seen<'_>) -> Result<(), Error> {
        let record = match seen {
            Seen::Row(record) => record,
            Seen::Unread { from, end } => {
                // The last leaf is not read only where it is rotten.
                let end = if end == u64::MAX {
                    self.lease
                } else {
                    slot_of(end - 1) + 1
                };
                self.may_hold(slot_of(from), end)?;
                self.unread = true;
                return Ok(());
            }
        };
        if core::mem::take(&mut self.unread) {
            self.may_hold(self.addresses.mark(), slot_of(record.base))?;
        }
        let (first, end) = (slot_of(record.base), slot_of(record.end() - 1) + 1);
        if record.flags & ROW_ENDS != 0 && !system_objects().contains(&record.base) {
            push(&mut self.ending, record.base)?;
        } else {
            for pdx in record.pdx.iter() {
                self.names.add(pdx.clist)?;
            }
        }
        self.addresses.hold(first, end);
        Ok(())
    }

    /// Notes slots of which it is not known whether objects hold them, behind all that was seen.
    fn may_hold(&mut self, first: u64, end: u64) -> Result<(), Error> {
        let first = first.max(self.addresses.mark());
        if first < end {
            self.addresses.hold(first, end);
            self.unknown.add(first, end)?;
        }
        Ok(())
    }

    /// Holds the slots that are named and hold no object, behind the last row.
    pub(crate) fn hold_named(&mut self) {
        let mut next = 0;
        while let Some((slot, _)) = self.names.0.first_in(next..u64::MAX) {
            if self.addresses.hold_free(slot) {
                self.names.object_goes(slot, false);
            }
            next = slot + 1;
        }
    }
}

impl Server {
    /// A record no longer names a Clist. If it was a row, a power cut may bring it back before the next checkpoint.
    pub(crate) fn name_ends(&mut self, clist: u64, was_row: bool) {
        let Some(slot) = slot_named(clist) else { return };
        let Some(name) = self.names.0.get_mut(slot) else { return };
        name.records = name.records.saturating_sub(1);
        name.lasting |= was_row;
        let ended = *name;
        if ended.records > 0 {
            return;
        }
        self.names.0.remove(slot);
        if ended.gone {
            self.slots_end(slot, 1, ended.lasting);
        } else if let Some(id) = self.objects.find(clist) {
            self.objects.get_mut(id).in_rows |= ended.lasting;
        }
    }

    /// Slots are free: at once, or after the next checkpoint.
    pub(crate) fn slots_end(&mut self, first: u64, slots: u64, lasting: bool) {
        if lasting {
            self.checkpoint.hold_addresses(first, slots);
        } else {
            self.addresses.give_back(first, slots);
        }
    }
}

const _: () = assert!(FIRST_FREE.is_multiple_of(SLOT));
