//! Remembered ways into protected procedures.
//!
//! The server validates a protected call once; the kernel remembers (caller's space, entry point,
//! kind of call) → callee's space and enters the next time by itself. The table is small and
//! direct-mapped. Nothing in it is ever corrected: whatever could make a validation false moves the
//! epoch on, and with it all ways are forgotten by one addition.

use alloc::{boxed::Box, vec};

use crate::SpaceId;

/// A way.
#[derive(Copy, Clone)]
struct Way {
    entry: u64,
    /// Epoch, caller's space and kind of call in one word, so that one comparison checks all.
    tag: u64,
    callee: SpaceId,
}

const WAYS: usize = 256;

/// The table of ways.
pub struct Portals {
    ways: Box<[Way; WAYS]>,
    epoch: u64,
}

impl Default for Portals {
    fn default() -> Self {
        let empty = Way { entry: 0, tag: 0, callee: SpaceId(0) };
        let ways = vec![empty; WAYS].into_boxed_slice().try_into().unwrap_or_else(|_| Box::new([empty; WAYS]));
        Self { ways, epoch: EPOCH }
    }
}

/// One epoch: above caller and kind.
const EPOCH: u64 = 1 << 24;

#[inline(always)]
const fn place(entry: u64, tag: u64) -> usize {
    ((entry ^ tag << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % WAYS
}

impl Portals {
    /// Only the two kinds of call that are numbers are remembered (an explicit APD stands in memory
    /// that may change): any other `pd` gives a tag that no way has.
    #[inline(always)]
    const fn tag(&self, caller: SpaceId, pd: u64) -> u64 {
        (self.epoch | (caller.0 as u64) << 1) ^ pd
    }

    /// The callee of a remembered way.
    #[inline(always)]
    pub fn find(&self, caller: SpaceId, entry: u64, pd: u64) -> Option<SpaceId> {
        let tag = self.tag(caller, pd);
        let way = &self.ways[place(entry, tag)];
        (way.entry == entry && way.tag == tag && pd <= 1).then_some(way.callee)
    }

    /// Remembers a way.
    pub fn insert(&mut self, caller: SpaceId, entry: u64, pd: u64, callee: SpaceId) {
        if pd <= 1 {
            let tag = self.tag(caller, pd);
            self.ways[place(entry, tag)] = Way { entry, tag, callee };
        }
    }

    /// Forgets all ways.
    pub fn forget(&mut self) {
        self.epoch += EPOCH;
    }
}

const _: () = assert!(crate::space::SPACES_MAX << 1 < EPOCH as usize);

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
        portals.forget();
        assert_eq!(portals.find(SpaceId(3), 0x1000, 1), None);
    }
}
