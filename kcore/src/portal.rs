//! The portal cache: remembered ways into protected procedures.
//!
//! The server validates a protected call once; the kernel remembers (caller's space, entry point,
//! kind of call) → callee's space and enters the next time by itself. The table is set-associative: the entry point and the caller
//! choose a set of [`WAYS`] entries. Nothing in it is ever corrected. Each space counts two epochs, and an entry is of one epoch of its caller and
//! one of its callee (decision 0139):
//!
//! * what takes a right from a domain moves on that domain's epoch as a caller: all its calls are forgotten by one addition;
//! * what closes a callee, or makes some call of its procedures invalid, moves on its epoch as a callee.
//!
//! A space in the last epoch that its word can hold is not remembered any more: its calls take the slow path.

use alloc::{boxed::Box, vec};
use core::mem::offset_of;

use abi::layout::{PD_EMPTY, PD_MERGE};

use crate::{SpaceId, space::Spaces};

/// An entry.
#[derive(Copy, Clone, Debug)]
pub struct Way {
    entry: u64,
    /// Epoch and space of the caller in one word, so that one comparison checks both ([`Epochs::caller`]).
    tag: u64,
    /// Kind of call.
    pd: u64,
    callee: SpaceId,
    /// The callee's epoch.
    epoch: u32,
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
    /// Of the callee's epoch.
    pub const EPOCH: usize = offset_of!(Self, epoch);

    /// One that is nobody's: no epoch of a caller is zero.
    const EMPTY: Self = Self {
        entry: 0,
        tag: 0,
        pd: u64::MAX,
        callee: SpaceId(0),
        epoch: 0,
    };

    const fn caller(&self) -> SpaceId {
        SpaceId((self.tag & (DOMAIN - 1)) as u32)
    }

    /// Whether it is of the present epochs of both its spaces.
    fn is_live(&self, spaces: &Spaces) -> bool {
        let of_caller = spaces.find(self.caller()).map(|space| space.epochs.caller);
        let of_callee = spaces.find(self.callee).map(|space| space.epochs.callee);
        of_caller == Some(self.tag & !DOMAIN) && of_callee == Some(self.epoch)
    }
}

/// In the tag of an entry for a kernel domain: no protected call finds it, whatever it asks for. Above the numbers of spaces.
const DOMAIN: u64 = 1 << 12;
/// One epoch of a caller: above that.
const EPOCH: u64 = DOMAIN << 1;
const _: () = assert!(crate::space::SPACES_MAX < DOMAIN as usize);

/// A space's epochs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Epochs {
    /// As a caller: a multiple of [`EPOCH`], and the number of the space.
    caller: u64,
    /// As a callee.
    callee: u32,
}

impl Epochs {
    /// Offset of that as a caller.
    pub(crate) const CALLER: usize = offset_of!(Self, caller);
    /// Offset of that as a callee.
    pub(crate) const CALLEE: usize = offset_of!(Self, callee);

    /// Those of a space that has never been there.
    pub(crate) const fn new(space: SpaceId) -> Self {
        Self {
            caller: EPOCH | space.0 as u64,
            callee: 1,
        }
    }

    /// Nothing that it called is remembered any more.
    pub(crate) fn forget_calls(&mut self) {
        self.caller = self.caller.checked_add(EPOCH).unwrap_or(self.caller);
    }

    /// Nobody's calls of it are remembered any more.
    pub(crate) fn forget_callers(&mut self) {
        self.callee = self.callee.saturating_add(1);
    }

    /// Whether the last epoch of a caller, or of a callee, has come: it never ends, so nothing may be of it.
    const fn calls_end(self) -> bool {
        self.caller.checked_add(EPOCH).is_none()
    }

    const fn callers_end(self) -> bool {
        self.callee == u32::MAX
    }

    /// The last epoch but so many, for tests.
    #[cfg(test)]
    pub(crate) fn wear_out(&mut self, left: u32) {
        self.caller |= !(EPOCH - 1);
        self.caller -= u64::from(left) * EPOCH;
        self.callee = u32::MAX - left;
    }
}

/// The calls that are to be forgotten.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Stale {
    /// All.
    All,
    /// Those that a space makes.
    CallsOf(SpaceId),
    /// Those into a space.
    CallsInto(SpaceId),
}

/// Entries of a set.
pub const WAYS: usize = 4;
const SETS_LOG2: u32 = 9;
/// Entries of the table.
pub const WAYS_MAX: usize = WAYS << SETS_LOG2;

/// Aligned, so that the fast path in assembly sees where a set ends.
#[derive(Copy, Clone)]
#[repr(C, align(128))]
struct Set([Way; WAYS]);

const _: () = assert!(size_of::<Set>() == 128 && size_of::<Way>() * WAYS == size_of::<Set>());

/// The table.
pub struct Portals {
    sets: Box<[Set]>,
    /// Their place in memory, for the fast path in assembly.
    base: usize,
    /// The place in a full set that the next entry takes.
    victim: usize,
    /// Whether something was entered since all was forgotten.
    used: bool,
}

impl Default for Portals {
    fn default() -> Self {
        let sets = vec![Set([Way::EMPTY; WAYS]); 1 << SETS_LOG2].into_boxed_slice();
        let base = sets.as_ptr() as usize;
        let victim = 0;
        Self {
            sets,
            base,
            victim,
            used: false,
        }
    }
}

impl Portals {
    /// See [`DOMAIN`].
    pub const DOMAIN: u64 = DOMAIN;
    /// Multiplier: the high bits of its product with entry plus caller are the number of a set. Entry points are far apart in memory
    /// and near each other in an object: the high half of a product spreads both.
    pub const HASH: u32 = 0x9e37_79b9;
    /// How far the product is shifted for that.
    pub const HASH_SHIFT: u32 = 32 - SETS_LOG2;
    /// Bytes of a set.
    pub const SET_BYTES: usize = size_of::<Set>();
    /// Offset of the address of the table.
    pub const BASE: usize = offset_of!(Self, base);

    #[inline(always)]
    const fn set(entry: u64, caller: SpaceId) -> usize {
        ((entry as u32).wrapping_add(caller.0).wrapping_mul(Self::HASH) >> Self::HASH_SHIFT) as usize
    }

    /// The callee of an entry.
    #[inline(always)]
    pub fn find(&self, spaces: &Spaces, caller: SpaceId, entry: u64, pd: u64) -> Option<SpaceId> {
        let tag = spaces.find(caller)?.epochs.caller;
        let of = |way: &&Way| way.entry == entry && way.tag == tag && way.pd == pd;
        let way = self.sets.get(Self::set(entry, caller))?.0.iter().find(of)?;
        (spaces.find(way.callee)?.epochs.callee == way.epoch).then_some(way.callee)
    }

    /// Remembers a way. Only of the two kinds of call that are numbers: an explicit APD stands in memory that
    /// may change.
    pub(crate) fn insert(&mut self, spaces: &Spaces, caller: SpaceId, entry: u64, pd: u64, callee: SpaceId) {
        if pd == PD_MERGE || pd == PD_EMPTY {
            self.put(spaces, caller, entry, pd, callee, 0);
        }
    }

    /// Remembers that a caller may call this entry of a kernel domain.
    pub(crate) fn insert_domain(&mut self, spaces: &Spaces, caller: SpaceId, entry: u64) {
        self.put(spaces, caller, entry, u64::MAX, caller, DOMAIN);
    }

    /// Whether that is remembered: what the fast path in assembly looks at.
    #[cfg(test)]
    fn has_domain(&self, spaces: &Spaces, caller: SpaceId, entry: u64) -> bool {
        let tag = spaces.find(caller).map(|space| space.epochs.caller | DOMAIN);
        let is = |way: &Way| way.entry == entry && Some(way.tag) == tag;
        self.sets[Self::set(entry, caller)].0.iter().any(is)
    }

    fn put(&mut self, spaces: &Spaces, caller: SpaceId, entry: u64, pd: u64, callee: SpaceId, mark: u64) {
        let (Some(from), Some(to)) = (spaces.find(caller), spaces.find(callee)) else {
            return;
        };
        if from.epochs.calls_end() || to.epochs.callers_end() {
            return;
        }
        let new = Way {
            entry,
            tag: from.epochs.caller | mark,
            pd,
            callee,
            epoch: to.epochs.callee,
        };
        let set = &mut self.sets[Self::set(entry, caller)].0;
        let same = |way: &Way| (way.entry, way.tag, way.pd) == (new.entry, new.tag, new.pd);
        let place = set
            .iter()
            .position(same)
            .or_else(|| set.iter().position(|way| !way.is_live(spaces)))
            .unwrap_or_else(|| {
                self.victim += 1;
                self.victim % WAYS
            });
        set[place] = new;
        self.used = true;
    }

    /// Forgets everything: thousands of instructions, for what concerns too many spaces. A chain of domains asks for it again and again.
    pub(crate) fn clear(&mut self) {
        if !core::mem::take(&mut self.used) {
            return;
        }
        // Two loops: the inner one is four stores, where `flat_map` asks for each way whether the set has ended.
        for set in &mut self.sets {
            for way in &mut set.0 {
                way.tag = 0;
            }
        }
    }

    /// All protected calls that are remembered: caller, entry, kind, callee. For checks.
    pub fn live<'a>(&'a self, spaces: &'a Spaces) -> impl Iterator<Item = (SpaceId, u64, u64, SpaceId)> + 'a {
        let all = self.sets.iter().flat_map(|set| &set.0);
        let calls = all.filter(|way| way.tag & DOMAIN == 0 && way.is_live(spaces));
        calls.map(|way| (way.caller(), way.entry, way.pd, way.callee))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::fake_spaces as spaces;

    #[test]
    fn a_way_is_for_its_caller_entry_and_kind_until_forgotten() {
        let mut spaces = spaces(5);
        let mut portals = Portals::default();
        portals.insert(&spaces, SpaceId(3), 0x1000, 1, SpaceId(4));
        assert_eq!(portals.find(&spaces, SpaceId(3), 0x1000, 1), Some(SpaceId(4)));
        assert_eq!(portals.find(&spaces, SpaceId(3), 0x1000, 0), None);
        assert_eq!(portals.find(&spaces, SpaceId(2), 0x1000, 1), None);
        assert_eq!(portals.find(&spaces, SpaceId(3), 0x1008, 1), None);
        portals.insert(&spaces, SpaceId(3), 0x1000, 0x5000, SpaceId(4));
        assert_eq!(portals.find(&spaces, SpaceId(3), 0x1000, 0x5000), None);
        assert!(!portals.has_domain(&spaces, SpaceId(3), 0x1000));
        // Calls of others, and into others, are no reason to forget it.
        spaces.get_mut(SpaceId(4)).epochs.forget_calls();
        spaces.get_mut(SpaceId(3)).epochs.forget_callers();
        assert_eq!(portals.find(&spaces, SpaceId(3), 0x1000, 1), Some(SpaceId(4)));
        spaces.get_mut(SpaceId(3)).epochs.forget_calls();
        assert_eq!(portals.find(&spaces, SpaceId(3), 0x1000, 1), None);
        portals.insert(&spaces, SpaceId(3), 0x1000, 1, SpaceId(4));
        spaces.get_mut(SpaceId(4)).epochs.forget_callers();
        assert_eq!(portals.find(&spaces, SpaceId(3), 0x1000, 1), None);
        portals.insert(&spaces, SpaceId(3), 0x1000, 1, SpaceId(4));
        assert_eq!(
            portals.live(&spaces).collect::<Vec<_>>(),
            [(SpaceId(3), 0x1000, 1, SpaceId(4))]
        );
        portals.clear();
        assert_eq!(portals.find(&spaces, SpaceId(3), 0x1000, 1), None);
    }

    #[test]
    fn a_way_into_a_kernel_domain_is_no_protected_call() {
        let mut spaces = spaces(5);
        let mut portals = Portals::default();
        portals.insert_domain(&spaces, SpaceId(3), u64::MAX << 30);
        assert!(portals.has_domain(&spaces, SpaceId(3), u64::MAX << 30));
        assert!(!portals.has_domain(&spaces, SpaceId(4), u64::MAX << 30));
        for pd in [0, 1, 2, u64::MAX] {
            assert_eq!(portals.find(&spaces, SpaceId(3), u64::MAX << 30, pd), None);
        }
        spaces.get_mut(SpaceId(3)).epochs.forget_calls();
        assert!(!portals.has_domain(&spaces, SpaceId(3), u64::MAX << 30));
    }

    /// A hundred procedures in play are remembered; a set that is full loses one entry for each new one.
    #[test]
    fn many_ways_hold_and_dead_ones_make_room() {
        let mut spaces = spaces(40);
        let mut portals = Portals::default();
        let calls: Vec<(SpaceId, u64)> = (0..100)
            .map(|number| (SpaceId(number % 7), 0x5_0000_0000 + u64::from(number) * 48))
            .collect();
        let held = |portals: &Portals, spaces: &Spaces| {
            let found = |&&(caller, entry): &&(SpaceId, u64)| portals.find(spaces, caller, entry, 1).is_some();
            calls.iter().filter(found).count()
        };
        for &(caller, entry) in &calls {
            portals.insert(&spaces, caller, entry, 1, SpaceId(39));
        }
        assert_eq!(held(&portals, &spaces), 100);
        // One domain calls more than the table holds: it takes from others, and never more than the places that there are.
        for entry in 0..2 * WAYS_MAX as u64 {
            portals.insert(&spaces, SpaceId(20), 0x7_0000_0000 + entry * 16, 1, SpaceId(39));
        }
        assert_eq!(portals.live(&spaces).count(), WAYS_MAX);
        // When it changes, its entries make room before any of the others'.
        spaces.get_mut(SpaceId(20)).epochs.forget_calls();
        for &(caller, entry) in &calls {
            portals.insert(&spaces, caller, entry, 1, SpaceId(39));
        }
        assert_eq!(held(&portals, &spaces), 100);
        assert!(
            portals
                .sets
                .iter()
                .all(|set| core::ptr::from_ref(set).addr().is_multiple_of(Portals::SET_BYTES))
        );
    }

    /// Nothing is remembered in the last epoch, for it would never end.
    #[test]
    fn epochs_do_not_wrap() {
        for (caller, callee) in [(1, 9), (9, 1), (1, 1), (0, 9), (9, 0)] {
            let mut spaces = spaces(2);
            let mut portals = Portals::default();
            spaces.get_mut(SpaceId(0)).epochs.wear_out(caller);
            spaces.get_mut(SpaceId(1)).epochs.wear_out(callee);
            let try_it = |portals: &mut Portals, spaces: &Spaces| {
                portals.insert(spaces, SpaceId(0), 0x1000, 1, SpaceId(1));
                portals.find(spaces, SpaceId(0), 0x1000, 1).is_some()
            };
            let lasts = caller > 0 && callee > 0;
            assert_eq!(try_it(&mut portals, &spaces), lasts);
            for _ in 0..3 {
                spaces.get_mut(SpaceId(0)).epochs.forget_calls();
                spaces.get_mut(SpaceId(1)).epochs.forget_callers();
                assert!(
                    portals.find(&spaces, SpaceId(0), 0x1000, 1).is_none(),
                    "it was forgotten"
                );
                assert!(!try_it(&mut portals, &spaces), "{caller} {callee}");
            }
            assert_eq!(portals.live(&spaces).count(), 0);
        }
    }
}
