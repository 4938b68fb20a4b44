//! Address ranges, memories and tables. Each reserves all that it may ever need when it is made, so
//! that its base never moves; growing only makes more of the range usable.

use super::host::{self, Protection};
use crate::compile::Bounds;
use crate::layout::{self, ELEMENT_BYTES, GUARD_BYTES, GUARDED_BYTES, PAGE_BYTES};
use crate::limits;
use crate::module::{Limits, TableType, ValType};
use core::ops::Range;

/// A range of addresses, given back when dropped.
pub struct Reservation {
    base: *mut u8,
    bytes: usize,
}

impl Reservation {
    /// Reserves whole pages that nothing may touch yet.
    pub fn new(bytes: usize) -> Option<Self> {
        let bytes = bytes.next_multiple_of(4096);
        let base = host::reserve(bytes);
        (!base.is_null()).then_some(Self { base, bytes })
    }

    /// None at all.
    pub const fn empty() -> Self {
        Self {
            base: core::ptr::null_mut(),
            bytes: 0,
        }
    }

    /// Its lowest address.
    pub const fn base(&self) -> *mut u8 {
        self.base
    }

    /// Its length.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: the whole of what `new` reserved; the owner's drop is the end of all users.
            unsafe { host::release(self.base, self.bytes) };
        }
    }
}

/// A linear memory.
#[repr(C)]
pub(super) struct Memory {
    /// Bytes in use; compiled code reads it here.
    pub length: u64,
    /// Greatest size in pages.
    max: u64,
    /// Its type as declared, for linking.
    pub declared: Limits,
    range: Reservation,
    /// The bytes that segments filled before any code ran.
    filled: Range<usize>,
    /// Whether the host has had its bytes to write.
    lent: bool,
}

/// Bytes that segments have filled and that are made zero again without asking which pages are there.
const FILLED: usize = 64 << 10;

impl Memory {
    /// Makes a memory, zero-filled.
    pub fn new(declared: Limits, bounds: Bounds) -> Option<Self> {
        let max = declared.max.unwrap_or(limits::MEMORY_PAGES).min(limits::MEMORY_PAGES);
        let bytes = match bounds {
            Bounds::Guard => GUARDED_BYTES,
            Bounds::Explicit => max * PAGE_BYTES + GUARD_BYTES,
        };
        let range = Reservation::new(bytes as usize)?;
        let mut memory = Self {
            length: 0,
            max,
            declared,
            range,
            filled: 0..0,
            lent: false,
        };
        memory.grow(declared.min)?;
        Some(memory)
    }

    /// Whether code with guard pages for checks may use it.
    pub fn is_guarded(&self) -> bool {
        self.range.bytes() as u64 >= GUARDED_BYTES
    }

    /// Its lowest address.
    pub fn base(&self) -> *mut u8 {
        self.range.base()
    }

    /// Whether it is as one of this type begins.
    pub fn is_like(&self, declared: Limits) -> bool {
        self.declared == declared && self.has_not_grown()
    }

    /// Whether it has the size with which it began.
    pub fn has_not_grown(&self) -> bool {
        self.length == self.declared.min * PAGE_BYTES
    }

    /// Makes all of it zero; says whether that was possible. `ran` says whether any code used it.
    pub fn clear(&mut self, ran: bool) -> bool {
        let filled = core::mem::take(&mut self.filled);
        let lent = core::mem::take(&mut self.lent);
        if !ran && !lent && filled.len() <= FILLED {
            self.bytes_mut()[filled].fill(0);
            return true;
        }
        // SAFETY: the whole usable part; no reference into it is live.
        self.length == 0 || unsafe { host::discard(self.range.base(), self.length as usize) }
    }

    /// Adds pages; yields the old size in pages.
    pub fn grow(&mut self, pages: u64) -> Option<u64> {
        let old = self.length / PAGE_BYTES;
        let new = old.checked_add(pages).filter(|new| *new <= self.max)?;
        // SAFETY: the part lies in the reservation, which has `max` pages, and gains rights only.
        let done = unsafe {
            let at = self.range.base().add(self.length as usize);
            host::protect(at, (pages * PAGE_BYTES) as usize, Protection::ReadWrite)
        };
        if !done {
            return None;
        }
        self.length = new * PAGE_BYTES;
        Some(old)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `length` bytes are mapped; compiled code does not run while the borrow lives.
        unsafe { core::slice::from_raw_parts(self.range.base(), self.length as usize) }
    }

    /// Copies a segment into it; says whether there was room.
    pub fn fill_segment(&mut self, at: usize, bytes: &[u8]) -> bool {
        let Some(place) = at
            .checked_add(bytes.len())
            .and_then(|end| self.bytes_mut().get_mut(at..end))
        else {
            return false;
        };
        place.copy_from_slice(bytes);
        if !bytes.is_empty() {
            let end = at + bytes.len();
            let filled = &self.filled;
            self.filled = if filled.is_empty() {
                at..end
            } else {
                filled.start.min(at)..filled.end.max(end)
            };
        }
        true
    }

    /// Its bytes, for the host to write, of which nobody keeps account.
    pub fn lend(&mut self) -> &mut [u8] {
        self.lent = true;
        self.bytes_mut()
    }

    /// Its bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`; the borrow is unique.
        unsafe { core::slice::from_raw_parts_mut(self.range.base(), self.length as usize) }
    }
}

/// An element of a table as compiled code reads it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Element {
    pub code: u64,
    pub context: u64,
    pub signature: u64,
    pub handle: u64,
}

const _: () = assert!(size_of::<Element>() == ELEMENT_BYTES as usize);

impl Element {
    /// The null element, whose signature no function has.
    pub const NULL: Self = Self {
        code: 0,
        context: 0,
        signature: u64::MAX,
        handle: 0,
    };
}

/// A table.
#[repr(C)]
pub(super) struct Table {
    /// Elements in use; compiled code reads it here.
    pub length: u64,
    max: u64,
    pub declared: TableType,
    range: Reservation,
}

impl Table {
    /// Makes a table of elements like `initial`.
    pub fn new(declared: TableType, initial: Element) -> Option<Self> {
        let limit = limits::TABLE_ELEMENTS;
        let max = declared.limits.max.unwrap_or(limit).min(limit).max(declared.limits.min);
        let range = Reservation::new(((max * u64::from(ELEMENT_BYTES)) as usize).max(1))?;
        let mut table = Self {
            length: 0,
            max,
            declared,
            range,
        };
        table.grow(declared.limits.min, initial)?;
        Some(table)
    }

    /// The type of its elements.
    pub fn element_type(&self) -> ValType {
        self.declared.element
    }

    /// Its lowest address.
    pub fn base(&self) -> u64 {
        self.range.base() as u64
    }

    /// Adds elements; yields the old size.
    pub fn grow(&mut self, count: u64, initial: Element) -> Option<u64> {
        let old = self.length;
        let new = old.checked_add(count).filter(|new| *new <= self.max)?;
        let bytes = ((new * u64::from(ELEMENT_BYTES)) as usize).next_multiple_of(4096);
        let from = ((old * u64::from(ELEMENT_BYTES)) as usize).next_multiple_of(4096);
        // SAFETY: the part lies in the reservation, which has room for `max` elements.
        if !unsafe { host::protect(self.range.base().add(from), bytes - from, Protection::ReadWrite) } {
            return None;
        }
        self.length = new;
        self.elements_mut()[old as usize..].fill(initial);
        Some(old)
    }

    /// Its elements.
    pub fn elements(&self) -> &[Element] {
        // SAFETY: `length` elements are mapped and were written when the table grew over them.
        unsafe { core::slice::from_raw_parts(self.range.base().cast(), self.length as usize) }
    }

    /// Its elements, to write.
    pub fn elements_mut(&mut self) -> &mut [Element] {
        // SAFETY: mapped as above; any bytes are an element, and the borrow is unique.
        unsafe { core::slice::from_raw_parts_mut(self.range.base().cast(), self.length as usize) }
    }
}

/// Room for the widest index, offset and access in a guarded reservation.
const _: () = assert!(GUARDED_BYTES >= (1 << 32) + (1 << 32) + 16);
const _: () = assert!(layout::GUARD_BYTES.is_multiple_of(4096));
