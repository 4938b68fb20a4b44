//! A Clist: the object with the capabilities that a domain holds.

use alloc::vec::Vec;

use abi::{
    address::{PAGE, ROOT_CLIST},
    layout::{Capability, ClistHeader},
};
use names::clist;

use crate::{Cell, Object, error::Result};

/// A Clist object. One writer at a time is the callers' business.
#[derive(Debug)]
pub struct Clist {
    object: Object,
}

impl Clist {
    /// The Clist that the first task's protection domain begins with.
    ///
    /// # Errors
    /// As [`Clist::open`].
    pub fn root() -> Result<Self> {
        Self::open(ROOT_CLIST)
    }

    /// The Clist at an address.
    ///
    /// # Errors
    /// As [`Object::open`]; not a Clist.
    pub fn open(address: u64) -> Result<Self> {
        let object = Object::open(address)?;
        if object.bytes() > clist::LARGEST {
            return Err(clist::Error::TooLarge.into());
        }
        let clist = Self { object };
        clist.count()?;
        Ok(clist)
    }

    /// A new, empty, transient Clist.
    ///
    /// # Errors
    /// As [`Object::create`].
    pub fn create() -> Result<Self> {
        let mut object = Object::create(PAGE)?;
        object.with_bytes_mut(|bytes| clist::Clist::format(bytes).map(|_| ()))?;
        Ok(Self { object })
    }

    /// The Clist in an object that is known to hold one (see [`crate::object::Attachment`]).
    pub fn of_object(object: Object) -> Self {
        Self { object }
    }

    /// Destroys it.
    ///
    /// # Errors
    /// As `ObjDelete`.
    pub fn delete(self) -> Result<()> {
        Ok(self.object.delete()?)
    }

    /// Its object.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Adds a capability, making the object longer if need be.
    ///
    /// # Errors
    /// As `ObjResize`; not a sorted Clist; full, if it would become longer than [`clist::LARGEST`].
    pub fn insert(&mut self, capability: Capability) -> Result<()> {
        match self.change(|clist| clist.insert(capability)) {
            Err(crate::Error::Clist(clist::Error::Full)) if self.object.bytes() * 2 <= clist::LARGEST => {
                self.object.resize(self.object.bytes() * 2)?;
                self.change(|clist| clist.insert(capability))
            }
            other => other,
        }
    }

    /// Takes a capability away.
    ///
    /// # Errors
    /// Not there; not a sorted Clist.
    pub fn remove(&mut self, capability: Capability) -> Result<()> {
        self.change(|clist| clist.remove(capability))
    }

    /// Takes all capabilities of an object away; tells how many there were.
    ///
    /// # Errors
    /// Not a sorted Clist.
    pub fn remove_all(&mut self, address: u64) -> Result<usize> {
        self.change(|clist| Ok(clist.remove_all(address)))
    }

    /// Asks for the room that it takes to [remove all](Clist::remove_all) capabilities of an object.
    pub(crate) fn make_room_without(&mut self, address: u64) -> Result<()> {
        let written = self.change(|clist| Ok(clist.view().written_without(address)))?;
        for range in [0..ClistHeader::BYTES, written] {
            self.object.rewrite(range.start as u64..range.end as u64);
        }
        Ok(())
    }

    /// All capabilities.
    ///
    /// # Errors
    /// Not a Clist.
    pub fn capabilities(&self) -> Result<Vec<Capability>> {
        Ok((0..self.count()?).map_while(self.records()).collect())
    }

    /// Whether a capability stands in it; none if it has no capability of that object at all. Cost: a search by halves.
    ///
    /// # Errors
    /// Not a Clist.
    pub(crate) fn lists(&self, capability: Capability) -> Result<Option<bool>> {
        let (count, records) = (self.count()?, self.records());
        let first = Capability {
            password: 0,
            ..capability
        };
        let from = clist::first_not_before(count, first, |index| records(index).unwrap_or(capability));
        let all = (from..count).map_while(records);
        let mut all = all.take_while(|one| one.address == capability.address).peekable();
        Ok(all.peek().is_some().then(|| all.any(|one| one == capability)))
    }

    /// Its records, by number; there are more than capabilities.
    fn records(&self) -> impl Fn(usize) -> Option<Capability> {
        let region = self.object.region();
        move |index| {
            let record: &Cell<[u64; 2]> = region.at_offset((ClistHeader::BYTES + index * Capability::BYTES) as u64)?;
            Some(Capability::from_words(record.get()))
        }
    }

    /// How many there are.
    fn count(&self) -> Result<usize> {
        let header: [u8; ClistHeader::BYTES] = self.object.copy(0);
        Ok(clist::count_of(&header, self.object.bytes() as usize)?)
    }

    fn change<R>(
        &mut self,
        change: impl FnOnce(&mut clist::Clist<'_>) -> core::result::Result<R, clist::Error>,
    ) -> Result<R> {
        Ok(self
            .object
            .with_bytes_mut(|bytes| clist::Clist::open_mut(bytes).and_then(|mut clist| change(&mut clist)))?)
    }
}
