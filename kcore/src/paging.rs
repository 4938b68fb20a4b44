//! The format of page-table entries (x86-64, four levels).
//!
//! A leaf entry carries the page's *own* limits, an upper entry the domain's rights; the hardware
//! takes both (DESIGN §3). One software bit says that writing is withheld although the limits
//! allow it: the page is shared copy-on-write, under checkpoint, or clean and to be noticed when
//! first written. Which of these it is follows from the frame's reference count and the server's
//! dirty list, so it is not stored twice.

use abi::Rights;

use crate::Frame;

const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
/// Software: the limits allow writing, the hardware is told not to.
const WITHHELD: u64 = 1 << 9;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// What stands in a leaf for one resident page.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PageEntry {
    /// Its frame.
    pub frame: Frame,
    /// What any domain may do with it at most (subset of RWX; R is implied).
    pub limits: Rights,
    /// Whether the next write must fault although the limits allow it.
    pub write_withheld: bool,
    /// Whether it was used since the bit was last cleared (read only).
    pub accessed: bool,
    /// Whether it was written since the bit was last cleared (read only).
    pub dirty: bool,
}

impl PageEntry {
    /// An entry for a page that may be written at once, if the limits allow it.
    pub const fn new(frame: Frame, limits: Rights) -> Self {
        Self {
            frame,
            limits,
            write_withheld: false,
            accessed: false,
            dirty: false,
        }
    }

    /// The same, but the next write faults.
    #[must_use]
    pub const fn withheld(mut self) -> Self {
        self.write_withheld = true;
        self
    }
}

/// Encodes a leaf entry.
pub const fn encode_page(entry: Option<PageEntry>) -> u64 {
    let Some(entry) = entry else { return 0 };
    let mut bits = (entry.frame.0 as u64) << 12 | PRESENT | USER;
    if entry.limits.contains(Rights::W) {
        bits |= if entry.write_withheld { WITHHELD } else { WRITE };
    }
    if !entry.limits.contains(Rights::X) {
        bits |= NO_EXECUTE;
    }
    bits
}

/// Decodes a leaf entry.
pub const fn decode_page(bits: u64) -> Option<PageEntry> {
    if bits & PRESENT == 0 {
        return None;
    }
    let mut limits = Rights::R;
    if bits & (WRITE | WITHHELD) != 0 {
        limits = limits.union(Rights::W);
    }
    if bits & NO_EXECUTE == 0 {
        limits = limits.union(Rights::X);
    }
    Some(PageEntry {
        frame: frame_of(bits),
        limits,
        write_withheld: bits & WITHHELD != 0,
        accessed: bits & ACCESSED != 0,
        dirty: bits & DIRTY != 0,
    })
}

/// An entry that leads to a further table and restricts nothing.
pub const fn encode_table(frame: Frame) -> u64 {
    (frame.0 as u64) << 12 | PRESENT | WRITE | USER
}

/// An upper entry that links a leaf with a domain's rights.
pub const fn encode_link(leaf: Frame, rights: Rights) -> u64 {
    let mut bits = (leaf.0 as u64) << 12 | PRESENT | USER;
    if rights.contains(Rights::W) {
        bits |= WRITE;
    }
    if !rights.contains(Rights::X) {
        bits |= NO_EXECUTE;
    }
    bits
}

/// Decodes an upper entry that links a leaf: the leaf's frame, the domain's rights.
pub const fn decode_link(bits: u64) -> Option<(Frame, Rights)> {
    match decode_page(bits) {
        Some(entry) => Some((entry.frame, entry.limits)),
        None => None,
    }
}

/// Whether an entry is there at all.
pub const fn is_present(bits: u64) -> bool {
    bits & PRESENT != 0
}

/// The frame that an entry names.
pub const fn frame_of(bits: u64) -> Frame {
    Frame(((bits & ADDRESS) >> 12) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_entry_comes_back_as_it_went() {
        for limits in [Rights::R, Rights::RW, Rights::RX, Rights::RWX] {
            for withheld in [false, true] {
                let mut entry = PageEntry::new(Frame(0x1234), limits);
                entry.write_withheld = withheld && limits.contains(Rights::W);
                assert_eq!(decode_page(encode_page(Some(entry))), Some(entry));
            }
        }
        assert_eq!(decode_page(encode_page(None)), None);
    }
}
