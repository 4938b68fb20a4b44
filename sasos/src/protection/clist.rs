//! Clists as the server reads them: hostile data in a fixed format (`abi::layout::ClistHeader`).
//!
//! Nothing in a Clist is believed but what its passwords prove. The server reads it page by page,
//! without making pages resident that were never written, and a page that is still on the disk
//! makes the caller wait. Work is bounded, and goes in pieces: a sorted Clist is searched by halves, one that is not
//! only over its first [`UNSORTED_MAX`] capabilities. A list that claims to be sorted and is not
//! finds less than it holds, never more.

use abi::{
    Error, Rights,
    address::PAGE,
    layout::{CAPABILITIES_MAX, CLIST_MAGIC, CLIST_SORTED, CLIST_VERSION, Capability, ClistHeader, PDX_MAX},
};

use crate::{
    Server, Step, Stop, World,
    directory::object::{Object, ObjectId},
    lives::budget::Cost,
    pages::memory::Seen,
    protection::apd::ClistRef,
    protection::search::Enough,
    protection::validation::effective,
};

/// Capabilities that are looked at in a Clist that is not sorted.
pub const UNSORTED_MAX: u64 = 4096;
/// Capabilities for one object that are looked at in a sorted Clist.
const RUN_MAX: u64 = (CAPABILITIES_MAX + PDX_MAX) as u64 + 64;
/// Capabilities read at once.
const BATCH: usize = 32;
/// So many capabilities of a sorted Clist are rather read together than halved on: each half is a read of its own.
const NEAR: u64 = 12;
/// The cost of reading a header or one address in a page that is known, in instructions, roughly.
const COST_READ: Cost = Cost::own(340);
/// The cost of reading [`BATCH`] capabilities there, and of finding out that they are for something else.
const COST_BATCH: Cost = Cost::own(900);
/// The cost of a capability for the object, and of comparing it with a password of the object.
const COST_VISIT: u64 = 40;
const COST_PASSWORD: u64 = 10;

/// The facts that a Clist states of itself, as far as they can be true.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    id: ObjectId,
    count: u64,
    sorted: bool,
}

/// How far a Clist has been searched. Capabilities move up when one before them is removed, so the last one that was seen stands
/// for the place.
#[derive(Copy, Clone, Debug, Default)]
pub struct Reached {
    next: u64,
    /// The capability before it.
    last: Capability,
    /// How far a sorted Clist has been halved: what is sought begins between these two.
    halved: Option<(u64, u64)>,
}

impl Server {
    /// Reads and checks the head of a Clist.
    pub(crate) fn clist_header(
        &mut self,
        world: &mut impl World,
        clist: ClistRef,
        seen: &mut Option<Seen>,
    ) -> Step<Shape> {
        // It may rest.
        let id = self.object_at(world, clist.base)?;
        let object = self.objects.get(id);
        if object.base() != clist.base || object.serial != clist.serial || object.ends() {
            return Err(Error::BadAddress.into());
        }
        if clist.reader != 0 {
            self.budget.spend(cost_passwords(object));
            if !effective(object.rights_of(clist.reader)).contains(Rights::R) {
                return Err(Error::Protection.into());
            }
        }
        let mut bytes = [0; ClistHeader::BYTES];
        self.budget.spend(COST_READ);
        self.read_object(world, id, 0, &mut bytes, seen)?;
        let header = ClistHeader::from_bytes(&bytes);
        let room = (self.objects.get(id).record.pages * PAGE - ClistHeader::BYTES as u64) / Capability::BYTES as u64;
        let well_formed = header.magic == CLIST_MAGIC
            && header.version == CLIST_VERSION
            && header.flags & !CLIST_SORTED == 0
            && header.count <= room;
        if !well_formed {
            return Err(Error::BadClist.into());
        }
        Ok(Shape {
            id,
            count: header.count,
            sorted: header.flags & CLIST_SORTED != 0,
        })
    }

    /// Shows the visitor each capability of a Clist for `target`, with the address where it stands.
    /// A Clist that is gone, malformed or not to be read any more holds none. `reached` is how far an earlier piece of the search has come, and then this one; what it
    /// costs is taken from the event's budget.
    pub(crate) fn clist_search(
        &mut self,
        world: &mut impl World,
        clist: ClistRef,
        target: ObjectId,
        reached: &mut Reached,
        visit: &mut dyn FnMut(&Object, u64, Capability) -> Enough,
    ) -> Step<Enough> {
        let mut seen = None;
        let shape = match self.clist_header(world, clist, &mut seen) {
            Ok(shape) => shape,
            Err(Stop::Fail(Error::BadAddress | Error::BadClist | Error::Protection)) => return Ok(Enough::No),
            Err(stop) => return Err(stop),
        };
        let base = self.objects.get(target).base();
        let (first, end) = if shape.sorted {
            let first = self.near_below(world, shape, base, &mut reached.halved, &mut seen)?;
            (first, shape.count.min(first + NEAR + RUN_MAX))
        } else {
            (0, shape.count.min(UNSORTED_MAX))
        };
        let mut next = first.max(self.still_reached(world, shape, *reached, &mut seen)?);
        let cost_visit = Cost::own(COST_VISIT).and(cost_passwords(self.objects.get(target)));
        while next < end {
            let mut bytes = [0; BATCH * Capability::BYTES];
            let most = if shape.sorted { NEAR as usize + 4 } else { BATCH };
            let batch = ((end - next) as usize).min(most);
            self.budget.spend(COST_BATCH);
            self.read_object(
                world,
                shape.id,
                place(next),
                &mut bytes[..batch * Capability::BYTES],
                &mut seen,
            )?;
            let object = self.objects.get(target);
            for record in bytes[..batch * Capability::BYTES].chunks_exact(Capability::BYTES) {
                let capability = record.try_into().map(Capability::from_bytes).unwrap_or_default();
                let seen = object.holds(capability.address);
                if seen {
                    if visit(object, clist.base + place(next), capability) == Enough::Yes {
                        return Ok(Enough::Yes);
                    }
                    self.budget.spend(cost_visit);
                } else if shape.sorted && capability.address >= object.end() {
                    return Ok(Enough::No);
                }
                next += 1;
                (reached.next, reached.last) = (next, capability);
                if seen && !self.budget.is_left() {
                    return Err(Stop::Again);
                }
            }
            if !self.budget.is_left() {
                return Err(Stop::Again);
            }
        }
        Ok(Enough::No)
    }

    /// The place where a search goes on: after the last capability that was seen, or at the beginning if that stands elsewhere now.
    fn still_reached(
        &mut self,
        world: &mut impl World,
        shape: Shape,
        reached: Reached,
        seen: &mut Option<Seen>,
    ) -> Step<u64> {
        let Some(before) = reached.next.checked_sub(1).filter(|before| *before < shape.count) else {
            return Ok(0);
        };
        let mut bytes = [0; Capability::BYTES];
        self.budget.spend(COST_READ);
        self.read_object(world, shape.id, place(before), &mut bytes, seen)?;
        let same = Capability::from_bytes(&bytes) == reached.last;
        Ok(if same { reached.next } else { 0 })
    }

    /// An index of a sorted Clist, at most [`NEAR`] before the first capability whose address is at least `address`. `halved` is how far an earlier
    /// piece has come, and then this one.
    fn near_below(
        &mut self,
        world: &mut impl World,
        shape: Shape,
        address: u64,
        halved: &mut Option<(u64, u64)>,
        seen: &mut Option<Seen>,
    ) -> Step<u64> {
        let (mut low, mut high) = (0, shape.count);
        if let Some((below, above)) = *halved
            && (below == 0 || self.is_below(world, shape, below - 1, address, seen)?)
            && (above >= shape.count || !self.is_below(world, shape, above, address, seen)?)
        {
            (low, high) = (below, above.min(shape.count));
        }
        while high - low > NEAR {
            let middle = low + (high - low) / 2;
            if self.is_below(world, shape, middle, address, seen)? {
                low = middle + 1;
            } else {
                high = middle;
            }
            *halved = Some((low, high));
            if !self.budget.is_left() {
                return Err(Stop::Again);
            }
        }
        Ok(low)
    }

    /// Whether the capability at an index stands before those for `address`; none does that is not there.
    fn is_below(
        &mut self,
        world: &mut impl World,
        shape: Shape,
        index: u64,
        address: u64,
        seen: &mut Option<Seen>,
    ) -> Step<bool> {
        if index >= shape.count {
            return Ok(false);
        }
        let mut bytes = [0; 8];
        self.budget.spend(COST_READ);
        self.read_object(world, shape.id, place(index), &mut bytes, seen)?;
        Ok(u64::from_le_bytes(bytes) < address)
    }
}

/// The cost of comparing a password with all that an object has.
fn cost_passwords(object: &Object) -> Cost {
    Cost::own(COST_PASSWORD * (object.record.capabilities.len() + object.record.pdx.len()) as u64)
}

/// Offset of a capability in a Clist.
const fn place(index: u64) -> u64 {
    ClistHeader::BYTES as u64 + index * Capability::BYTES as u64
}
