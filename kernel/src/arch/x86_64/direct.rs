//! The direct map: all physical memory at one offset, for the kernel only, never executable.
//!
//! User memory is reached through its frames here and never through user addresses, so that SMAP
//! stays on and no access of the kernel can fault.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kcore::Frame;

/// The address of physical address zero.
pub const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;

/// The most that it maps: what one upper table holds.
pub const DIRECT_MAP_BYTES: u64 = 512 << 30;

/// One past the last physical address that is mapped.
static MAPPED_END: AtomicU64 = AtomicU64::new(4 << 30);

/// Notes that the map reaches up to `end`.
pub(super) fn set_end(end: u64) {
    MAPPED_END.store(end, Relaxed);
}

/// A page of the kernel's own: its tables, and what it shows to users or lends to devices. The allocator of frames does not have it.
#[derive(PartialEq, Eq)]
pub struct OwnPage(pub(super) u64);

impl OwnPage {
    /// The page at this physical address, full of zeroes.
    ///
    /// # Safety
    /// (1) It is memory inside the direct map. (2) Nobody else has it, now or later.
    pub unsafe fn take(physical: u64) -> Self {
        let page = Self(physical);
        // SAFETY: a whole page of ours, by (1) and (2).
        unsafe { pointer(physical).write_bytes(0, 4096) };
        page
    }

    /// Its physical address.
    pub const fn physical(&self) -> u64 {
        self.0
    }

    /// The page as a page table.
    pub(super) fn table(&self) -> &'static [AtomicU64; 512] {
        // SAFETY: memory inside the direct map that is the kernel's for good; atomics may be shared with the
        // processors' walkers.
        unsafe { &*pointer(self.0).cast() }
    }

    /// Writes bytes that users may be reading.
    pub fn write(&self, offset: usize, from: &[u8]) {
        // SAFETY: as in `table`.
        unsafe { write_at(self.0, offset, from) };
    }
}

fn pointer(physical: u64) -> *mut u8 {
    (DIRECT_MAP + physical) as *mut u8
}

/// A frame as a page table.
pub fn table(frame: Frame) -> &'static [AtomicU64; 512] {
    // SAFETY: a frame is memory that `kcore`'s allocator was given, all of it inside the direct map, or a table made of such;
    // nothing else makes a `Frame`. The pointer is page-aligned, and an atomic may be shared with the processors' walkers.
    unsafe { &*pointer(frame.physical()).cast() }
}

/// Content of a frame that no running thread can write to.
pub fn bytes(frame: Frame) -> &'static [u8; 4096] {
    // SAFETY: as in `table`; that nobody writes meanwhile is `Hardware::bytes`'s contract.
    unsafe { &*pointer(frame.physical()).cast() }
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
    unsafe { &mut *pointer(frame.physical()).cast() }
}

/// Content of a frame that whoever calls keeps for good.
///
/// # Safety
/// Nobody borrows the frame's content any more by another way, now or later.
pub unsafe fn bytes_for_good(frame: Frame) -> &'static mut [u8; 4096] {
    // SAFETY: as in `table`; the caller sees to it that the borrow is the only one.
    unsafe { &mut *pointer(frame.physical()).cast() }
}

/// Fills a frame with zeroes.
pub fn zero(frame: Frame) {
    // SAFETY: a whole frame inside the direct map; `rep stosq` needs no alignment and DF is clear.
    unsafe {
        core::arch::asm!("rep stosq", inout("rcx") 512u64 => _, inout("rdi") pointer(frame.physical()) => _, in("rax") 0u64, options(nostack, preserves_flags));
    }
}

/// Copies a frame.
pub fn copy(from: Frame, to: Frame) {
    // SAFETY: two whole frames inside the direct map; DF is clear.
    unsafe {
        core::arch::asm!("rep movsq", inout("rcx") 512u64 => _, inout("rsi") pointer(from.physical()) => _, inout("rdi") pointer(to.physical()) => _, options(nostack, preserves_flags));
    }
}

/// Reads bytes that threads may be writing to.
pub fn read(frame: Frame, offset: usize, into: &mut [u8]) {
    let length = into.len().min(4096usize.saturating_sub(offset));
    // SAFETY: the range is inside one frame of the direct map and does not overlap kernel data.
    unsafe {
        move_bytes(
            pointer(frame.physical()).add(offset.min(4096)),
            into.as_mut_ptr(),
            length,
        );
    };
}

/// Copies bytes by instructions that the compiler cannot see into, so it may race with user stores without anything but arbitrary
/// bytes as the result. Words first: nothing is known of how fast bytes are.
///
/// # Safety
/// The ranges are memory, do not overlap, and nothing of Rust's is written.
unsafe fn move_bytes(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the caller's; no alignment is needed, and DF is clear.
    unsafe {
        core::arch::asm!("rep movsq", "mov ecx, {rest:e}", "rep movsb", rest = in(reg) length % 8, inout("rcx") length / 8 => _, inout("rsi") from => _, inout("rdi") to => _, options(nostack, preserves_flags));
    }
}

/// Writes bytes that threads may be using.
pub fn write(frame: Frame, offset: usize, from: &[u8]) {
    // SAFETY: a frame is memory inside the direct map.
    unsafe { write_at(frame.physical(), offset, from) };
}

/// Writes bytes into the page at a physical address, as far as they fit.
///
/// # Safety
/// It is memory inside the direct map, and holds nothing that Rust code has a reference to.
pub(super) unsafe fn write_at(physical: u64, offset: usize, from: &[u8]) {
    let length = from.len().min(4096usize.saturating_sub(offset));
    // SAFETY: as in `read`, in the other direction.
    unsafe { move_bytes(from.as_ptr(), pointer(physical).add(offset.min(4096)), length) };
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
