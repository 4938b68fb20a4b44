//! The direct map: all physical memory at one offset, for the kernel only, never executable.
//!
//! User memory is reached through its frames here and never through user addresses, so that SMAP
//! stays on and no access of the kernel can fault.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kcore::Frame;

/// Where physical address zero stands.
pub const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;

/// The most that it maps: what one upper table holds.
pub const DIRECT_MAP_BYTES: u64 = 512 << 30;

/// One past the last physical address that is mapped.
static MAPPED_END: AtomicU64 = AtomicU64::new(4 << 30);

/// Notes that the map reaches up to `end`.
pub(super) fn set_end(end: u64) {
    MAPPED_END.store(end, Relaxed);
}

fn pointer(frame: Frame) -> *mut u8 {
    (DIRECT_MAP + frame.physical()) as *mut u8
}

/// A frame as a page table.
pub fn table(frame: Frame) -> &'static [AtomicU64; 512] {
    // SAFETY: frames come from the allocator, which only knows memory inside the direct map;
    // the pointer is page-aligned and an atomic may be shared with the processors' walkers.
    unsafe { &*pointer(frame).cast() }
}

/// Content of a frame that no running thread can write to.
pub fn bytes(frame: Frame) -> &'static [u8; 4096] {
    // SAFETY: as in `table`; that nobody writes meanwhile is `Hardware::bytes`'s contract.
    unsafe { &*pointer(frame).cast() }
}

/// Content of a frame that no running thread can touch. The caller, the one holder of the kernel
/// lock, borrows one frame at a time.
#[allow(
    clippy::mut_from_ref,
    reason = "the exclusive borrow is that of the hardware value above"
)]
pub fn bytes_mut(frame: Frame) -> &'static mut [u8; 4096] {
    // SAFETY: as in `table`; exclusivity is `Hardware::bytes_mut`'s contract, which ties the
    // result to an exclusive borrow of the hardware layer.
    unsafe { &mut *pointer(frame).cast() }
}

/// Fills a frame with zeroes.
pub fn zero(frame: Frame) {
    // SAFETY: a whole frame inside the direct map; `rep stosq` needs no alignment and DF is clear.
    unsafe {
        core::arch::asm!("rep stosq", inout("rcx") 512u64 => _, inout("rdi") pointer(frame) => _, in("rax") 0u64, options(nostack, preserves_flags));
    }
}

/// Copies a frame.
pub fn copy(from: Frame, to: Frame) {
    // SAFETY: two whole frames inside the direct map; DF is clear.
    unsafe {
        core::arch::asm!("rep movsq", inout("rcx") 512u64 => _, inout("rsi") pointer(from) => _, inout("rdi") pointer(to) => _, options(nostack, preserves_flags));
    }
}

/// Reads bytes that threads may be writing to.
pub fn read(frame: Frame, offset: usize, into: &mut [u8]) {
    let length = into.len().min(4096usize.saturating_sub(offset));
    // SAFETY: the range is inside one frame of the direct map and does not overlap kernel data.
    // The copy is done by one instruction that the compiler cannot see into, so it may race with user
    // stores without anything but arbitrary bytes as the result.
    unsafe {
        core::arch::asm!("rep movsb", inout("rcx") length => _, inout("rsi") pointer(frame).add(offset.min(4096)) => _, inout("rdi") into.as_mut_ptr() => _, options(nostack, preserves_flags));
    }
}

/// Writes bytes that threads may be using.
pub fn write(frame: Frame, offset: usize, from: &[u8]) {
    let length = from.len().min(4096usize.saturating_sub(offset));
    // SAFETY: as in `read`, in the other direction.
    unsafe {
        core::arch::asm!("rep movsb", inout("rcx") length => _, inout("rsi") from.as_ptr() => _, inout("rdi") pointer(frame).add(offset.min(4096)) => _, options(nostack, preserves_flags));
    }
}

/// Whether a range of physical addresses is mapped, for device registers. They stand below 4 GiB
/// or are mapped with the memory above; a device beyond is refused.
pub fn map_device(physical: u64, bytes: u64) -> bool {
    physical
        .checked_add(bytes)
        .is_some_and(|end| end <= MAPPED_END.load(Relaxed))
}

/// Bytes of physical memory by address: for the loader's and the firmware's tables.
pub fn physical_bytes(physical: u64, length: usize) -> Option<&'static [u8]> {
    if !map_device(physical, length as u64) {
        return None;
    }
    // SAFETY: inside the direct map; the tables of loader and firmware are not written to any more.
    Some(unsafe { core::slice::from_raw_parts((DIRECT_MAP + physical) as *const u8, length) })
}
