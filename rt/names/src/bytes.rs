//! Little-endian words inside a byte slice, with out-of-range places reading as zero and writes to
//! them dropped: callers have checked the range, and hostile input must not be able to panic.

use core::sync::atomic::{Ordering, fence};

/// The word at byte `at`.
pub fn word(bytes: &[u8], at: usize) -> u64 {
    let Some(place) = at.checked_add(8).and_then(|end| bytes.get(at..end)) else {
        return 0;
    };
    u64::from_le_bytes(place.try_into().unwrap_or_default())
}

/// Sets the word at byte `at`.
pub fn set_word(bytes: &mut [u8], at: usize, value: u64) {
    if let Some(place) = at.checked_add(8).and_then(|end| bytes.get_mut(at..end)) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

/// Earlier writes are in memory before later ones, for everybody who looks at the
/// object meanwhile: another thread, or the checkpoint that the power cut will fall back to.
pub fn in_order() {
    fence(Ordering::Release);
}
