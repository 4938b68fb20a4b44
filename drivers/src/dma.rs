//! The one unsafe module: memory that a device also sees.
//!
//! The kernel maps all physical memory and all device registers at one fixed distance from their
//! physical addresses ([`DirectMap`]). From it come the two kinds of memory that drivers use,
//! [`Window`] and [`Page`], both checked for bounds and alignment and read and written with
//! volatile accesses only, because neither holds still. A [`DataPage`] is a promise instead of
//! memory: that a frame may be handed to a device for the time of a request.
//!
//! The values keep addresses as integers, with exposed provenance: the memory belongs to no Rust
//! allocation.

#![allow(unsafe_code)]

use crate::world::{DmaMemory, Mmio, PAGE_BYTES};
use core::ptr;

/// The kernel's map of physical memory: physical address `p` is accessible at virtual address `p +
/// offset`.
#[derive(Clone, Copy, Debug)]
pub struct DirectMap {
    offset: usize,
}

impl DirectMap {
    /// A direct map at distance `offset` (wrapping).
    ///
    /// # Safety
    /// 1. For as long as any [`Window`] or [`Page`] made from this map lives, the physical range it
    ///    was made for is mapped readable and writable at `physical + offset`; registers uncached.
    pub const unsafe fn new(offset: usize) -> Self {
        DirectMap { offset }
    }

    /// The `bytes` bytes of device registers at `physical`.
    ///
    /// # Safety
    /// 1. The range holds device registers, or nothing (not memory that Rust code owns), and
    ///    `physical` is aligned to four bytes.
    /// 2. The holder of the window may program the device. The caller vouches for what the device
    ///    then does to memory.
    pub unsafe fn window(&self, physical: u64, bytes: usize) -> Window {
        Window(Range {
            base: self.locate(physical),
            bytes,
        })
    }

    /// The frame at `physical`, zeroed, as memory shared with a device.
    ///
    /// # Safety
    /// 1. `physical` is the address of a frame of [`PAGE_BYTES`], aligned to its size, that nobody
    ///    else uses until the page is dropped (dropping does not free the frame) and the device no
    ///    longer has its address.
    pub unsafe fn page(&self, physical: u64) -> Page {
        let page = Page {
            physical,
            range: Range {
                base: self.locate(physical),
                bytes: PAGE_BYTES,
            },
        };
        for offset in (0..PAGE_BYTES).step_by(8) {
            page.write_u64(offset, 0);
        }
        page
    }

    fn locate(self, physical: u64) -> usize {
        (physical as usize).wrapping_add(self.offset)
    }
}

/// A word that may be read and written as plain bytes: what [`Range`] can access.
trait Word: Copy {
    /// The value of a read from nowhere.
    const ALL_ONES: Self;
    fn native_of(little_endian: Self) -> Self;
    fn little_endian_of(native: Self) -> Self;
}

macro_rules! words {
    ($($word:ty)*) => { $(impl Word for $word {
        const ALL_ONES: Self = <$word>::MAX;
        fn native_of(little_endian: Self) -> Self { <$word>::from_le(little_endian) }
        fn little_endian_of(native: Self) -> Self { native.to_le() }
    })* };
}
words! { u8 u16 u32 u64 }

/// Addresses `base .. base + bytes`, valid for volatile reads and writes as long as the value
/// lives. (Private: only [`DirectMap`] makes one, and its conditions are what the accesses below
/// rely on.)
#[derive(Debug)]
struct Range {
    base: usize,
    bytes: usize,
}

impl Range {
    /// The address of a `W` at `offset`, if one lies wholly inside and aligned there.
    fn address_of<W: Word>(&self, offset: usize) -> Option<*mut W> {
        let end = offset.checked_add(size_of::<W>())?;
        let address = self.base.wrapping_add(offset);
        (end <= self.bytes && address.is_multiple_of(align_of::<W>()))
            .then(|| ptr::with_exposed_provenance_mut(address))
    }

    fn read<W: Word>(&self, offset: usize) -> W {
        match self.address_of::<W>(offset) {
            // SAFETY: `address_of` checked bounds and alignment; the range is mapped
            // (`DirectMap::new` 1) and is either registers or a frame of ours (`window` 1, `page`
            // 1). A device may write it at the same time: the access is volatile, every bit pattern
            // is a valid word, and nothing is assumed about its value.
            Some(address) => W::native_of(unsafe { ptr::read_volatile(address) }),
            None => W::ALL_ONES,
        }
    }

    fn write<W: Word>(&self, offset: usize, value: W) {
        if let Some(address) = self.address_of::<W>(offset) {
            // SAFETY: as in `read`; no Rust reference to the range exists, since only this type
            // reaches it.
            unsafe { ptr::write_volatile(address, W::little_endian_of(value)) }
        }
    }
}

/// A window of device registers in the direct map.
#[derive(Debug)]
pub struct Window(Range);

impl Mmio for Window {
    fn read_u8(&self, offset: usize) -> u8 {
        self.0.read(offset)
    }
    fn read_u16(&self, offset: usize) -> u16 {
        self.0.read(offset)
    }
    fn read_u32(&self, offset: usize) -> u32 {
        self.0.read(offset)
    }
    fn write_u8(&self, offset: usize, value: u8) {
        self.0.write(offset, value);
    }
    fn write_u16(&self, offset: usize, value: u16) {
        self.0.write(offset, value);
    }
    fn write_u32(&self, offset: usize, value: u32) {
        self.0.write(offset, value);
    }
}

/// A frame shared with a device, in the direct map.
#[derive(Debug)]
pub struct Page {
    physical: u64,
    range: Range,
}

impl DmaMemory for Page {
    fn physical(&self) -> u64 {
        self.physical
    }
    fn read_u8(&self, offset: usize) -> u8 {
        self.range.read(offset)
    }
    fn read_u16(&self, offset: usize) -> u16 {
        self.range.read(offset)
    }
    fn read_u32(&self, offset: usize) -> u32 {
        self.range.read(offset)
    }
    fn write_u8(&self, offset: usize, value: u8) {
        self.range.write(offset, value);
    }
    fn write_u16(&self, offset: usize, value: u16) {
        self.range.write(offset, value);
    }
    fn write_u32(&self, offset: usize, value: u32) {
        self.range.write(offset, value);
    }
    fn write_u64(&self, offset: usize, value: u64) {
        self.range.write(offset, value);
    }
}

/// A frame that may be given to a device as the data of a request.
///
/// Drivers take this and not a bare address, so that safe code cannot have a device write over the
/// kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPage {
    physical: u64,
}

impl DataPage {
    /// Promises the frame at `physical` to devices.
    ///
    /// # Safety
    /// 1. `physical` is the address of a frame of [`PAGE_BYTES`], aligned to its size.
    /// 2. While a request that names the page is with a device (from its submission until its
    ///    completion was taken), the frame is not freed or used for anything else; a page being
    ///    *read into* is not accessed at all; one being *written from* may be read, and what is
    ///    written to it meanwhile may or may not reach the disk.
    pub const unsafe fn new(physical: u64) -> Self {
        DataPage { physical }
    }

    /// The frame of a request of the store. Only the store makes requests, and its contract is what makes this sound: it
    /// keeps a frame until the request's completion was taken, reads into frames that nobody has mapped yet, and writes
    /// from frames that nobody can write to (`store::world::Request`).
    pub(crate) const fn lent(frame: store::world::Frame) -> Self {
        // SAFETY: (1) frames are frames. (2) As above.
        unsafe { Self::new((frame.0 as u64) << 12) }
    }

    /// A frame of the fake machine, whose addresses are keys in a map: no hardware ever sees them.
    #[cfg(test)]
    pub(crate) const fn in_fake_memory(physical: u64) -> Self {
        DataPage { physical }
    }

    /// The frame's physical address.
    pub const fn physical(self) -> u64 {
        self.physical
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of the test's own, standing in for physical memory: with offset 0, "physical" is its
    /// address.
    #[repr(align(4096))]
    struct Frame([u8; PAGE_BYTES]);

    fn frame() -> (*mut Frame, u64) {
        let frame = Box::into_raw(Box::new(Frame([0xaa; PAGE_BYTES])));
        (frame, frame.expose_provenance() as u64)
    }

    #[test]
    fn pages_are_zeroed_and_hold_little_endian_words() {
        let (frame, physical) = frame();
        // SAFETY: (new 1, page 1) the frame is a live allocation, aligned, used only through `page`
        // until freed below.
        let page = unsafe { DirectMap::new(0).page(physical) };
        assert_eq!(page.physical(), physical);
        assert!((0..PAGE_BYTES).all(|offset| page.read_u8(offset) == 0));
        page.write_u64(8, 0x1122_3344_5566_7788);
        assert_eq!(page.read_u8(8), 0x88);
        assert_eq!(page.read_u16(10), 0x5566);
        assert_eq!(page.read_u32(12), 0x1122_3344);
        page.write_u8(4095, 7);
        assert_eq!(page.read_u8(4095), 7);
        // SAFETY: came from `Box::into_raw`, and `page` is not used any more.
        drop(unsafe { Box::from_raw(frame) });
    }

    #[test]
    fn outside_and_unaligned_accesses_touch_nothing() {
        let (frame, physical) = frame();
        // SAFETY: (new 1, window 1) a live allocation that nobody else uses.
        let window = unsafe { DirectMap::new(0).window(physical, 8) };
        assert_eq!(window.read_u32(4), 0xaaaa_aaaa);
        for offset in [1, 2, 3, 5, 8, 4096, usize::MAX, usize::MAX - 3] {
            assert_eq!(window.read_u32(offset), u32::MAX, "offset {offset}");
            window.write_u32(offset, 0);
        }
        assert_eq!(window.read_u16(7), u16::MAX);
        assert_eq!(window.read_u8(8), u8::MAX);
        window.write_u16(8, 0);
        window.write_u8(8, 0);
        // SAFETY: came from `Box::into_raw`, and `window` is not used any more.
        let frame = unsafe { Box::from_raw(frame) };
        assert!(frame.0.iter().all(|byte| *byte == 0xaa));
    }
}
