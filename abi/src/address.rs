//! Pages, slots and the windows of the one address space.
//!
//! Addresses have 47 bits. The space is cut into *slots* of 2 MiB, the reach of one page-table
//! leaf; every object owns whole slots, so that giving a domain an object is one entry a slot.

use crate::interface::interface;

interface! {
    /// Bytes in a page.
    const PAGE: u64 = 4096;
    /// Bytes in a slot: the reach of one page-table leaf.
    const SLOT: u64 = 2 << 20;
    /// Pages in a slot.
    const PAGES_PER_SLOT: u64 = SLOT / PAGE;
    /// Significant bits of a user address.
    const ADDRESS_BITS: u32 = 47;

    /// First address an object may have; everything below faults, null above all.
    const USER_START: u64 = 1 << 32;
    /// One past the last user address. The slot above it stays empty, so that no instruction can
    /// end at a non-canonical address (`sysret` would fault in the kernel).
    const USER_END: u64 = (1 << ADDRESS_BITS) - SLOT;

    /// The object that holds the root Clist; `gond` makes it with the disk.
    const ROOT_CLIST: u64 = USER_START;
    /// The root directory; `gond` makes it with the disk.
    const ROOT_DIRECTORY: u64 = USER_START + SLOT;
    /// The image of the first program, the shell; `gond` makes it with the disk.
    const FIRST_PROGRAM: u64 = USER_START + 2 * SLOT;
    /// First address that `gond` gives to other objects.
    const FIRST_FREE: u64 = USER_START + 16 * SLOT;

    /// Where stacks live: a window of its own, because they are never kept and their addresses
    /// may be used again at once, even after a crash.
    const STACKS_START: u64 = 0x7f00_0000_0000;
    /// One past the window of objects, the start of the window of stacks.
    const OBJECTS_END: u64 = STACKS_START;
    /// Bytes that one object may have: so many addresses belong to it, whatever is in them.
    const OBJECT_BYTES_MAX: u64 = 128 << 30;
    /// Bytes that a stack may grow to. The rest of its slot stays empty and catches overflow.
    const STACK_BYTES: u64 = 1 << 20;
}

/// The objects without which no start succeeds. They are not deleted ([decision 0136](../../../docs/decisions/0136-objects-that-stay.md)).
pub const fn system_objects() -> [u64; 3] {
    [ROOT_CLIST, ROOT_DIRECTORY, FIRST_PROGRAM]
}

/// Base of the stack in a slot of the window of stacks: [`STACK_BYTES`] in the middle of the slot, so that what runs over
/// hits nothing on either side, at a colour that varies from slot to slot. The server places stacks so, and a program
/// finds the end of the stack that it runs on by it.
pub const fn stack_base(slot: u64) -> u64 {
    slot * SLOT + (SLOT - STACK_BYTES) / 2 + slot * 7 % 16 * PAGE
}

/// One past the last byte of the stack that holds `address`, or that ends there; `None` where no stack can be.
#[inline(always)]
pub const fn stack_end(address: u64) -> Option<u64> {
    if address < STACKS_START || address >= USER_END {
        return None;
    }
    let end = stack_base(slot_of(address)) + STACK_BYTES;
    if end.wrapping_sub(address) <= STACK_BYTES {
        Some(end)
    } else {
        None
    }
}

/// Number of the slot that holds `address`.
pub const fn slot_of(address: u64) -> u64 {
    address / SLOT
}

/// Bytes rounded up to whole pages, in pages; `None` on overflow.
pub const fn pages_for(bytes: u64) -> Option<u64> {
    match bytes.checked_add(PAGE - 1) {
        Some(sum) => Some(sum / PAGE),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_stack_is_found_from_inside_only() {
        for slot in (slot_of(STACKS_START)..slot_of(USER_END)).step_by(4099) {
            let base = stack_base(slot);
            let end = base + STACK_BYTES;
            assert!(base > slot * SLOT && end < (slot + 1) * SLOT && base.is_multiple_of(PAGE));
            for inside in [base, base + 8, end - 8, end] {
                assert_eq!(stack_end(inside), Some(end));
            }
            for outside in [slot * SLOT, base - 1, end + 1, (slot + 1) * SLOT - 1] {
                assert_eq!(stack_end(outside), None);
            }
        }
        for outside in [0, OBJECTS_END - 1, USER_END, u64::MAX] {
            assert_eq!(stack_end(outside), None);
        }
    }
}
