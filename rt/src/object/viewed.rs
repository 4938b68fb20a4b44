//! Where the program has had views of objects, so that its heap never begins to live there.
//!
//! Another domain may delete an object under a view, and the kernel may give its address away again. If that is to
//! another object, the view shows that one or faults, and both are harmless. It must not be to this program's own heap:
//! then the view would write over what Rust owns. So every handle marks its slots here before it is used, and the
//! heap takes no object in a marked slot ([`super::heap`]).
//!
//! Marks stay, because nobody knows how long a copy of a view lives. They are bits by the number of the slot, modulo
//! [`SLOTS`]; for areas of [`LARGE`] slots that an object covers whole, by the number of the area. Two slots that share a
//! bit cost the heap another call when it grows; a program that has had views in all [`SLOTS`] has a heap that does not grow.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::heap::slots;

/// Bits for slots: those of 128 GiB of addresses have one each.
const SLOTS: u64 = 1 << 16;
/// Bits for areas of 1 GiB.
const AREAS: u64 = 1 << 12;
/// Slots of an area; an object that covers whole ones marks those.
const LARGE: u64 = 512;

/// The marks.
#[derive(Debug)]
pub(super) struct Viewed {
    slots: [AtomicU64; SLOTS as usize / 64],
    areas: [AtomicU64; AREAS as usize / 64],
}

impl Viewed {
    /// No marks.
    #[cfg(any(test, not(all(target_os = "none", feature = "module"))))]
    pub(super) const fn new() -> Self {
        Self {
            slots: [const { AtomicU64::new(0) }; SLOTS as usize / 64],
            areas: [const { AtomicU64::new(0) }; AREAS as usize / 64],
        }
    }

    /// Marks a range. A look at the heap's table after this sees what the heap entered before it looked here, for all
    /// these accesses have one order.
    #[inline]
    pub(super) fn mark(&self, base: u64, bytes: u64) {
        let (first, last) = slots(base, bytes);
        if first == last {
            set(&self.slots, first % SLOTS);
        } else {
            self.mark_all(first, last + 1);
        }
    }

    /// Marks slots: those of whole areas by the number of the area.
    fn mark_all(&self, first: u64, end: u64) {
        let areas = first.div_ceil(LARGE)..end / LARGE;
        let (begin, rest) = if areas.is_empty() {
            (first..end, 0..0)
        } else {
            (first..areas.start * LARGE, areas.end * LARGE..end)
        };
        for slot in begin.chain(rest) {
            set(&self.slots, slot % SLOTS);
        }
        for area in areas {
            set(&self.areas, area % AREAS);
        }
    }

    /// Whether a range was marked, or shares a bit with one that was.
    #[cfg_attr(
        not(any(target_os = "none", test)),
        expect(dead_code, reason = "the host's heap is not ours")
    )]
    pub(super) fn holds(&self, base: u64, bytes: u64) -> bool {
        let (first, last) = slots(base, bytes);
        let mut slots = first..(last + 1).min(first + SLOTS);
        let mut areas = first / LARGE..last / LARGE + 1;
        slots.any(|slot| is_set(&self.slots, slot % SLOTS)) || areas.any(|area| is_set(&self.areas, area % AREAS))
    }
}

#[inline]
fn set(words: &[AtomicU64], bit: u64) {
    if !is_set(words, bit)
        && let Some(word) = words.get(bit as usize / 64)
    {
        word.fetch_or(1 << (bit % 64), SeqCst);
    }
}

#[inline]
fn is_set(words: &[AtomicU64], bit: u64) -> bool {
    words
        .get(bit as usize / 64)
        .is_some_and(|word| word.load(SeqCst) >> (bit % 64) & 1 != 0)
}

#[cfg(test)]
mod tests {
    use abi::address::{PAGE, SLOT, USER_START};

    use super::*;

    #[test]
    fn what_was_marked_is_held_and_its_neighbours_are_not() {
        let viewed = Viewed::new();
        let at = |slot: u64| USER_START + slot * SLOT + 3 * PAGE;
        assert!(!viewed.holds(at(0), 1 << 20));
        viewed.mark(at(5), PAGE);
        viewed.mark(at(9), 3 * SLOT);
        for (slot, held) in [
            (4, false),
            (5, true),
            (6, false),
            (8, false),
            (9, true),
            (12, true),
            (13, false),
        ] {
            assert_eq!(viewed.holds(at(slot), PAGE), held, "slot {slot}");
        }
        assert!(viewed.holds(at(2), 4 * SLOT), "a range that reaches into a marked slot");
    }

    #[test]
    fn large_objects_are_marked_from_end_to_end() {
        let viewed = Viewed::new();
        let (base, bytes) = (USER_START + 700 * SLOT + PAGE, 2000 * SLOT);
        viewed.mark(base, bytes);
        for slot in 700..=2700 {
            assert!(viewed.holds(USER_START + slot * SLOT, PAGE), "slot {slot}");
        }
        assert!(!viewed.holds(USER_START + 699 * SLOT, PAGE) && !viewed.holds(USER_START + 2701 * SLOT, PAGE));
    }
}
