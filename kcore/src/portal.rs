//! Remembered ways into protected procedures.
//!
//! The server validates a protected call once; the kernel remembers (caller's space, entry point,
//! kind of call) → callee's space and enters the next time by itself. The table is small and
//! direct-mapped. Nothing in it is ever corrected: whatever could make a validation false moves the
//! epoch on, and with it all ways are forgotten by one addition.

use alloc::{boxed::Box, vec};
use core::mem::offset_of;

use abi::layout::{PD_EMPTY, PD_MERGE};

use crate::SpaceId;

/// A way.
#[derive(Copy, Clone)]
pub struct Way {
    entry: u64,
    /// Epoch and caller's space in one word, so that one comparison checks both.
    tag: u64,
    /// Kind of call.
    pd: u64,
    callee: SpaceId,
}

impl Way {
    // Offsets, for the fast path in assembly.
    /// Of the entry point.
    pub const ENTRY: usize = offset_of!(Self, entry);
    /// Of epoch and caller's space.
    pub const TAG: usize = offset_of!(Self, tag);
    /// Of the kind of call.
    pub const PD: usize = offset_of!(Self, pd);
    /// Of the callee's space.
    pub const CALLEE: usize = offset_of!(Self, callee);
}

const WAYS: usize = 256;

/// The table of ways.
pub struct Portals {
    ways: Box<[Way; WAYS]>,
    epoch: u64,
}

impl Default for Portals {
    fn default() -> Self {
        let empty = Way {
            entry: 0,
            tag: 0,
            pd: u64::MAX,
            callee: SpaceId(0),
        };
        let ways = vec![empty; WAYS]
            .into_boxed_slice()
            .try_into()
            .unwrap_or_else(|_| Box::new([empty; WAYS]));
        Self { ways, epoch: EPOCH }
    }
}

/// One epoch: above the numbers of spaces.
const EPOCH: u64 = 1 << 24;

/// Entry points are far apart in memory and near each other in an object: the high half of a
/// product spreads both.
#[inline(always)]
const fn place(entry: u64, caller: SpaceId) -> usize {
    ((entry as u32).wrapping_add(caller.0).wrapping_mul(Portals::HASH) >> 24) as usize % WAYS
}

impl Portals {
    /// In the tag of a way into a kernel domain: no protected call finds it, whatever it asks for.
    pub const DOMAIN: u64 = EPOCH >> 1;

    /// Multiplier: the place of a way is the high byte of its product with entry plus caller.
    pub const HASH: u32 = 0x9e37_79b9;
    /// Offset of the pointer to the ways, for the fast path in assembly.
    pub const WAYS: usize = offset_of!(Self, ways);
    /// Offset of the epoch.
    pub const EPOCH: usize = offset_of!(Self, epoch);

    #[inline(always)]
    const fn tag(&self, caller: SpaceId) -> u64 {
        self.epoch | caller.0 as u64
    }

    /// The callee of a portal-cache entry.
    #[inline(always)]
    pub fn find(&self, caller: SpaceId, entry: u64, pd: u64) -> Option<SpaceId> {
        let way = &self.ways[place(entry, caller)];
        (way.entry == entry && way.tag == self.tag(caller) && way.pd == pd).then_some(way.callee)
    }

    /// Remembers a way. Only of the two kinds of call that are numbers: an explicit APD stands in memory that
    /// may change.
    pub fn insert(&mut self, caller: SpaceId, entry: u64, pd: u64, callee: SpaceId) {
        if pd == PD_MERGE || pd == PD_EMPTY {
            self.ways[place(entry, caller)] = Way {
                entry,
                tag: self.tag(caller),
                pd,
                callee,
            };
        }
    }

    /// Remembers that a caller may call this entry of a kernel domain.
    pub fn insert_domain(&mut self, caller: SpaceId, entry: u64) {
        self.ways[place(entry, caller)] = Way {
            entry,
            tag: self.tag(caller) | Self::DOMAIN,
            pd: u64::MAX,
            callee: caller,
        };
    }

    /// Whether that is remembered.
    pub fn has_domain(&self, caller: SpaceId, entry: u64) -> bool {
        let way = &self.ways[place(entry, caller)];
        way.entry == entry && way.tag == self.tag(caller) | Self::DOMAIN
    }

    /// Forgets all ways.
    pub fn forget(&mut self) {
        self.epoch += EPOCH;
    }
}

const _: () = assert!(crate::space::SPACES_MAX < Portals::DOMAIN as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_for_its_caller_entry_and_kind_until_forgotten() {
        let mut portals = Portals::default();
        portals.insert(SpaceId(3), 0x1000, 1, SpaceId(4));
        assert_eq!(portals.find(SpaceId(3), 0x1000, 1), Some(SpaceId(4)));
        assert_eq!(portals.find(SpaceId(3), 0x1000, 0), None);
        assert_eq!(portals.find(SpaceId(2), 0x1000, 1), None);
        assert_eq!(portals.find(SpaceId(3), 0x1008, 1), None);
        portals.insert(SpaceId(3), 0x1000, 0x5000, SpaceId(4));
        assert_eq!(portals.find(SpaceId(3), 0x1000, 0x5000), None);
        assert!(!portals.has_domain(SpaceId(3), 0x1000));
        portals.forget();
        assert_eq!(portals.find(SpaceId(3), 0x1000, 1), None);
    }

    #[test]
    fn a_way_into_a_kernel_domain_is_no_protected_call() {
        let mut portals = Portals::default();
        portals.insert_domain(SpaceId(3), u64::MAX << 30);
        assert!(portals.has_domain(SpaceId(3), u64::MAX << 30));
        assert!(!portals.has_domain(SpaceId(4), u64::MAX << 30));
        for pd in [0, 1, 2, u64::MAX] {
            assert_eq!(portals.find(SpaceId(3), u64::MAX << 30, pd), None);
        }
        portals.forget();
        assert!(!portals.has_domain(SpaceId(3), u64::MAX << 30));
    }
}
