//! The split virtqueue (2.7): the one way requests reach a device and come back.
//!
//! Three arrays in shared memory. The *descriptor table* names pieces of memory and links them to
//! chains. The driver puts a chain's first index (its *head*) into the *available ring*; the
//! device, done with it in any order, puts the head into the *used ring*. Both rings carry a
//! free-running 16-bit index saying how much was put in.
//!
//! Shared memory is only ever written for the device to read, or read as an allegation. What the
//! driver itself must know (which descriptors are free, how chains run, which heads the device
//! holds) stands in private arrays. So a device that writes nonsense can be told apart from one
//! that does not: a used index that runs ahead of what was handed over, or a head that is not out
//! there, is a [`Violation`], after which the queue is not to be used again.

use crate::world::{DmaMemory, PAGE_BYTES};
use core::sync::atomic::{Ordering, fence};

/// The most descriptors a queue has here: its table then fills one page, and both rings fit in
/// another.
pub(crate) const MOST_DESCRIPTORS: u16 = (PAGE_BYTES / DESCRIPTOR_BYTES) as u16;

const DESCRIPTOR_BYTES: usize = 16;
const DESCRIPTOR_NEXT: u16 = 1;
const DESCRIPTOR_DEVICE_WRITES: u16 = 2;

/// Both rings begin with {flags u16, index u16}; entries of 2 (available) or 8 bytes (used) follow.
const RING_INDEX: usize = 2;
const RING_ENTRIES: usize = 4;
const USED_ENTRY_BYTES: usize = 8;
/// Where the used ring starts in the page of the rings: past 4 + 2 × 256 + 2 bytes of the available
/// ring.
const USED: usize = 1024;

/// In the available ring's flags: do not interrupt. In the used ring's: do not ring the doorbell.
const FLAG_QUIET: u16 = 1;

/// The device's use of a piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    DeviceReads,
    DeviceWrites,
}

/// A piece of memory in a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) physical: u64,
    pub(crate) bytes: u32,
    pub(crate) direction: Direction,
}

/// A chain could not be added: fewer descriptors are free than it has segments (or it has none).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full;

/// A chain the device has finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Used {
    /// The result of [`Queue::add`] for it.
    pub(crate) head: u16,
    /// How many bytes the device says it wrote.
    pub(crate) written: u32,
}

/// The device broke the rules of the used ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    /// The used index says that more chains are finished than the device was given.
    IndexRanAhead,
    /// The entry names no chain that the device holds: out of range, never given, or given back
    /// before.
    UnknownHead(u32),
}

/// Where a queue's three parts are, as the device is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
}

/// A queue whose shared memory is two pages `D`.
#[derive(Debug)]
pub(crate) struct Queue<D> {
    descriptors: D,
    rings: D,
    /// Number of descriptors and of entries in each ring; a power of two, at most
    /// [`MOST_DESCRIPTORS`].
    size: u16,
    /// Index of the first free descriptor, if `free` is not 0.
    first_free: u16,
    free: u16,
    /// The descriptor that follows another in its chain, or in the list of free ones.
    next: [u16; MOST_DESCRIPTORS as usize],
    /// For the head of a chain the device holds: its length. For every other descriptor: 0.
    chain_length: [u16; MOST_DESCRIPTORS as usize],
    /// Chains the device holds.
    outstanding: u16,
    /// How many chains were put into the available ring and taken out of the used ring, modulo
    /// 2^16.
    available_index: u16,
    used_index: u16,
}

impl<D: DmaMemory> Queue<D> {
    /// An empty queue of `size` descriptors (a power of two, at most [`MOST_DESCRIPTORS`]) in two
    /// zeroed pages.
    pub(crate) fn new(size: u16, descriptors: D, rings: D) -> Self {
        debug_assert!(size.is_power_of_two() && size <= MOST_DESCRIPTORS);
        Queue {
            descriptors,
            rings,
            size,
            first_free: 0,
            free: size,
            next: core::array::from_fn(|index| index as u16 + 1),
            chain_length: [0; MOST_DESCRIPTORS as usize],
            outstanding: 0,
            available_index: 0,
            used_index: 0,
        }
    }

    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    pub(crate) fn addresses(&self) -> Addresses {
        let rings = self.rings.physical();
        Addresses {
            descriptors: self.descriptors.physical(),
            available: rings,
            used: rings + USED as u64,
        }
    }

    /// Tells the device not to interrupt. It may still do so now and then (2.7.7).
    pub(crate) fn silence(&mut self) {
        self.rings.write_u16(0, FLAG_QUIET);
    }

    /// Gives the device the chain of `segments`; those it writes must come last (2.7.4.2). The
    /// chain's head is returned, and is free for another chain when [`take_used`](Self::take_used)
    /// has named it.
    pub(crate) fn add(&mut self, segments: &[Segment]) -> Result<u16, Full> {
        if segments.is_empty() || segments.len() > usize::from(self.free) {
            return Err(Full);
        }
        let head = self.first_free;
        for (position, segment) in segments.iter().enumerate() {
            let index = self.first_free;
            self.first_free = self.next[usize::from(index)];
            let link = if position + 1 < segments.len() {
                DESCRIPTOR_NEXT
            } else {
                0
            };
            let access = match segment.direction {
                Direction::DeviceReads => 0,
                Direction::DeviceWrites => DESCRIPTOR_DEVICE_WRITES,
            };
            let at = usize::from(index) * DESCRIPTOR_BYTES;
            self.descriptors.write_u64(at, segment.physical);
            self.descriptors.write_u32(at + 8, segment.bytes);
            self.descriptors.write_u16(at + 12, link | access);
            self.descriptors
                .write_u16(at + 14, if link == 0 { 0 } else { self.first_free });
        }
        let length = segments.len() as u16;
        self.free -= length;
        self.chain_length[usize::from(head)] = length;
        self.outstanding += 1;

        let entry = usize::from(self.available_index & (self.size - 1));
        self.rings.write_u16(RING_ENTRIES + 2 * entry, head);
        // The device must see the entry and its descriptors before the index that announces them.
        fence(Ordering::Release);
        self.available_index = self.available_index.wrapping_add(1);
        self.rings.write_u16(RING_INDEX, self.available_index);
        Ok(head)
    }

    /// Whether the device wants the doorbell rung for what was added.
    pub(crate) fn wants_doorbell(&self) -> bool {
        // The index must be out before the flag is read, or device and driver may each think the
        // other is awake.
        fence(Ordering::SeqCst);
        self.rings.read_u16(USED) & FLAG_QUIET == 0
    }

    /// Whether the device has announced anything that was not taken yet.
    pub(crate) fn has_used(&self) -> bool {
        self.rings.read_u16(USED + RING_INDEX) != self.used_index
    }

    /// Takes the next finished chain, if there is one.
    pub(crate) fn take_used(&mut self) -> Result<Option<Used>, Violation> {
        let announced = self.rings.read_u16(USED + RING_INDEX).wrapping_sub(self.used_index);
        if announced == 0 {
            return Ok(None);
        }
        if announced > self.outstanding {
            return Err(Violation::IndexRanAhead);
        }
        // The entry, and what the device wrote elsewhere for it, must be read after the index.
        fence(Ordering::Acquire);
        let entry = USED + RING_ENTRIES + USED_ENTRY_BYTES * usize::from(self.used_index & (self.size - 1));
        let alleged = self.rings.read_u32(entry);
        let written = self.rings.read_u32(entry + 4);
        let head = u16::try_from(alleged)
            .ok()
            .filter(|head| self.holds(*head))
            .ok_or(Violation::UnknownHead(alleged))?;
        self.used_index = self.used_index.wrapping_add(1);
        self.release(head);
        Ok(Some(Used { head, written }))
    }

    fn holds(&self, head: u16) -> bool {
        self.chain_length
            .get(usize::from(head))
            .is_some_and(|length| *length != 0)
    }

    /// Puts the chain at `head`, which the device no longer holds, before the free descriptors.
    fn release(&mut self, head: u16) {
        let length = core::mem::take(&mut self.chain_length[usize::from(head)]);
        let mut last = head;
        for _ in 1..length {
            last = self.next[usize::from(last)];
        }
        self.next[usize::from(last)] = self.first_free;
        self.first_free = head;
        self.free += length;
        self.outstanding -= 1;
    }
}

#[cfg(test)]
mod tests;
