//! The format of page-table entries (x86-64, four levels).
//!
//! A leaf entry carries the page's *own* limits, an upper entry the domain's rights; the hardware
//! takes both (`docs/design/microkernel.md`). One software bit says that writing is withheld although the limits
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
/// In an entry above the lowest level: a page of that size, not a table.
const LARGE: u64 = 1 << 7;
/// Software: the limits allow writing, the hardware is told not to.
const WITHHELD: u64 = 1 << 9;
/// From the bit for writing to that.
const WITHHELD_SHIFT: u32 = (WITHHELD / WRITE).trailing_zeros();
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// The entry in a leaf for one resident page.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PageEntry {
    /// Its frame.
    pub frame: Frame,
    /// The most that any domain may do with it (subset of RWX; R is implied).
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
    let bits = encode_with(entry.frame.number(), entry.limits);
    // Writing moves to the other bit, if it is withheld.
    let withheld = bits & WRITE & (entry.write_withheld as u64) << WRITE.trailing_zeros();
    bits ^ withheld | withheld << WITHHELD_SHIFT
}

/// A leaf entry from which writing is withheld, if its limits allow it.
pub const fn withhold(bits: u64) -> u64 {
    let write = bits & WRITE;
    bits ^ write | write << WITHHELD_SHIFT
}

/// A leaf entry that nobody has used yet.
pub const fn unused(bits: u64) -> u64 {
    bits & !(ACCESSED | DIRTY)
}

/// Decodes a leaf entry.
pub const fn decode_page(bits: u64) -> Option<PageEntry> {
    if bits & PRESENT == 0 {
        return None;
    }
    Some(PageEntry {
        frame: frame_of(bits),
        limits: mapping_rights(bits | (bits & WITHHELD) >> WITHHELD_SHIFT),
        write_withheld: bits & WITHHELD != 0,
        accessed: bits & ACCESSED != 0,
        dirty: bits & DIRTY != 0,
    })
}

/// An entry that leads to a further table and restricts nothing.
pub const fn encode_table(frame: Frame) -> u64 {
    frame.physical() | PRESENT | WRITE | USER
}

/// Whether an upper entry is memory and leads to no table.
pub const fn is_large(bits: u64) -> bool {
    bits & LARGE != 0
}

/// The right to write is the bit that entries have for it, and that to execute the lowest.
const _: () = assert!(Rights::W.bits() as u64 == WRITE && Rights::X.bits() == 1);
/// Those of an entry that is there are the rights, but for the one to execute ([`present_rights`]).
const _: () = assert!(Rights::R.bits() as u64 == USER && Rights::X.bits() as u64 == PRESENT);

/// An upper entry that links a leaf with a domain's rights.
#[inline(always)]
pub const fn encode_link(leaf: Frame, rights: Rights) -> u64 {
    encode_with(leaf.number(), rights)
}

#[inline(always)]
const fn encode_with(frame: u32, rights: Rights) -> u64 {
    let rights = rights.bits() as u64;
    // Without branches: this is on fast paths.
    (frame as u64) << 12 | PRESENT | USER | rights & WRITE | !rights << 63
}

/// Decodes an upper entry that links a leaf: the leaf's frame, the domain's rights.
pub const fn decode_link(bits: u64) -> Option<(Frame, Rights)> {
    match decode_page(bits) {
        Some(entry) => Some((entry.frame, entry.limits)),
        None => None,
    }
}

/// Software, free spaces: the mapping that this entry belongs to is of this size, not of a larger
/// one that was split.
const EXACT: u64 = 1 << 9;
/// Software, free spaces: the table below belongs to another space and is linked.
const LINKED: u64 = 1 << 10;
/// Software, free spaces: the table below is linked by others, and stays when it is empty.
const SHARED: u64 = 1 << 11;
/// Software, free spaces: entries present in the table below, ten bits.
const COUNT_SHIFT: u32 = 52;
/// One entry more in the table below, to be added to the entry above it.
pub const COUNT_ONE: u64 = 1 << COUNT_SHIFT;

/// Entries of a lowest table of a server's space that its upper entry has one mark for.
pub const STRETCH: usize = 64;

/// Software, spaces of the server: something was linked in the stretch of entry `index` of the table below.
#[inline(always)]
pub const fn stretch_mark(index: usize) -> u64 {
    COUNT_ONE << (index / STRETCH)
}

/// Whether the entry's mapping has the entry's own size or a larger one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Fit {
    /// The mapping is just this entry.
    Exact,
    /// The entry is part of a larger mapping that was split.
    Part,
}

/// An entry of a free space: a page of 4 KiB (level 0), 2 MiB (1) or 1 GiB (2). A frame from this number on may be a device.
pub const fn encode_mapping(frame: u32, rights: Rights, level: u8, fit: Fit) -> u64 {
    let mut bits = encode_with(frame, rights);
    if level > 0 {
        bits |= LARGE;
    }
    if matches!(fit, Fit::Exact) {
        bits |= EXACT;
    }
    bits
}

/// The rights that an entry of a free space allows, or a leaf's if nothing is withheld.
#[inline(always)]
pub const fn mapping_rights(bits: u64) -> Rights {
    let read = Rights::R.bits() as u64;
    match Rights::from_bits(read | bits & WRITE | !bits >> 63) {
        Some(rights) => rights,
        None => Rights::R,
    }
}

/// The entry of the same page in another space, which nobody has used yet, with those of these rights that it allows.
#[inline(always)]
pub const fn restricted(bits: u64, rights: Rights) -> u64 {
    let rights = rights.bits() as u64;
    bits & !(ACCESSED | DIRTY | WRITE & !rights) | !rights << 63
}

/// The rights that an entry allows that is there: their bits are its lowest ones, but for executing, which another one forbids.
#[inline(always)]
pub const fn present_rights(bits: u64) -> Rights {
    match Rights::from_bits(bits & (PRESENT | WRITE | USER) ^ bits >> 63) {
        Some(rights) => rights,
        None => Rights::R,
    }
}

/// Whether an entry of the lowest level is there, and a mapping by itself.
#[inline(always)]
pub const fn is_exact_page(bits: u64) -> bool {
    bits & (PRESENT | EXACT) == PRESENT | EXACT
}

/// The same entry without these rights, of those to write and execute.
#[inline(always)]
pub const fn lowered(bits: u64, rights: Rights) -> u64 {
    let rights = rights.bits() as u64;
    bits & !(WRITE & rights) | rights << 63 & NO_EXECUTE
}

/// Entry `index` of the table that takes the place of a large entry at `level`.
pub const fn split_entry(large: u64, level: u8, index: usize) -> u64 {
    let frames = 1 << (9 * (level as u32 - 1));
    let frame = number_of(large) + index as u32 * frames;
    encode_mapping(frame, mapping_rights(large), level - 1, Fit::Part)
}

/// An entry that leads to a table of a free space's own with that many entries.
pub const fn encode_counted_table(frame: Frame, entries: u64) -> u64 {
    encode_table(frame) | entries << COUNT_SHIFT
}

/// Entries present in the table below.
pub const fn table_entries(bits: u64) -> u64 {
    bits >> COUNT_SHIFT & 0x3ff
}

/// An entry that links another space's table with a right to it.
pub const fn encode_linked(table: Frame, rights: Rights) -> u64 {
    encode_link(table, rights) | LINKED
}

/// Whether the table below belongs to another space.
pub const fn is_linked(bits: u64) -> bool {
    bits & LINKED != 0
}

/// Whether others link the table below.
pub const fn is_shared(bits: u64) -> bool {
    bits & SHARED != 0
}

/// The entry of a table that others link.
pub const SHARED_MARK: u64 = SHARED;

/// How an entry of a free space fits its mapping.
pub const fn fit_of(bits: u64) -> Fit {
    if bits & EXACT != 0 { Fit::Exact } else { Fit::Part }
}

/// Whether an entry is there at all.
pub const fn is_present(bits: u64) -> bool {
    bits & PRESENT != 0
}

/// The frame that an entry names: one of the kernel's tables, or memory that it handed out.
pub const fn frame_of(bits: u64) -> Frame {
    Frame::named(number_of(bits))
}

/// The number in an entry, which may be a device's.
pub const fn number_of(bits: u64) -> u32 {
    ((bits & ADDRESS) >> 12) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_lowered_as_its_rights_are() {
        for has in [Rights::R, Rights::RW, Rights::RX, Rights::RWX] {
            for taken in [Rights::W, Rights::X, Rights::RWX.without(Rights::R)] {
                let left = encode_mapping(77, has.without(taken), 0, Fit::Part);
                let entry = encode_mapping(77, has, 0, Fit::Part);
                assert_eq!(lowered(entry, taken), left, "{has} without {taken}");
            }
        }
    }

    #[test]
    fn a_mapping_given_on_allows_what_both_allow() {
        let all = [Rights::R, Rights::RW, Rights::RX, Rights::RWX];
        for (own, given) in all.into_iter().flat_map(|own| all.map(|given| (own, given))) {
            let entry = encode_mapping(0x1234, own, 0, Fit::Exact);
            let other = restricted(entry | ACCESSED | DIRTY, given);
            let both = own.intersection(given);
            assert_eq!(other, encode_mapping(0x1234, both, 0, Fit::Exact));
            assert_eq!((mapping_rights(other), present_rights(other)), (both, both));
        }
    }

    #[test]
    fn a_page_entry_comes_back_as_it_went() {
        for limits in [Rights::R, Rights::RW, Rights::RX, Rights::RWX] {
            for withheld in [false, true] {
                let mut entry = PageEntry::new(Frame::named(0x1234), limits);
                entry.write_withheld = withheld && limits.contains(Rights::W);
                assert_eq!(decode_page(encode_page(Some(entry))), Some(entry));
            }
        }
        assert_eq!(decode_page(encode_page(None)), None);
    }

    #[test]
    fn a_large_entry_splits_into_its_parts() {
        for rights in [Rights::R, Rights::RW, Rights::RX, Rights::RWX] {
            let large = encode_mapping(0x40_0000, rights, 2, Fit::Exact);
            assert!(is_large(large) && fit_of(large) == Fit::Exact);
            assert_eq!((number_of(large), mapping_rights(large)), (0x40_0000, rights));
            let middle = split_entry(large, 2, 3);
            assert!(is_large(middle) && fit_of(middle) == Fit::Part);
            assert_eq!((number_of(middle), mapping_rights(middle)), (0x40_0600, rights));
            let page = split_entry(middle, 1, 511);
            assert!(!is_large(page));
            assert_eq!((number_of(page), mapping_rights(page)), (0x40_07ff, rights));
            let narrowed = lowered(page, Rights::RWX);
            assert_eq!((number_of(narrowed), mapping_rights(narrowed)), (0x40_07ff, Rights::R));
        }
    }

    #[test]
    fn a_table_entry_counts_beside_its_frame() {
        let mut entry = encode_counted_table(Frame::named(0x1234), 0);
        for _ in 0..512 {
            entry += COUNT_ONE;
        }
        assert_eq!((table_entries(entry), frame_of(entry)), (512, Frame::named(0x1234)));
        assert!(!is_linked(entry) && !is_shared(entry) && !is_large(entry));
    }
}
