//! The window: memory that the kernel hands out, and the frames that devices share, at one distance from their
//! physical addresses.
//!
//! Threads may be using the same memory, so what is theirs is copied by single instructions that the compiler cannot
//! see into; references are given only to frames that nobody else can touch, by the contracts of `kcore::Hardware` and
//! `store::world::Pages`, which are the same here.

use core::arch::asm;

use abi::{
    Error,
    machine::{MachineCall, Surroundings, WINDOW},
};
use drivers::dma::{self, DirectMap, Page};
use kcore::{
    Frame, Leaf,
    outside::{Gate, Remote},
};

use super::heap;

/// The window, and with it the way to the kernel.
#[derive(Copy, Clone)]
pub struct Window {
    /// The number of the page over which more than a few words go to and fro.
    exchange: u32,
}

fn pointer(frame: Frame) -> *mut u8 {
    (WINDOW + frame.physical()) as *mut u8
}

/// Makes a machine call.
fn ask(call: MachineCall, arguments: [u64; 6]) -> Result<(u64, u64), Error> {
    // SAFETY: (1) machine calls write to no address but that of the exchange page, of which there are no references. (2)
    // They make no threads in this space.
    unsafe { nucleus::call::raw(call as u64, arguments) }.result()
}

impl Window {
    /// Asks the kernel where everything is.
    pub fn open() -> (Self, Surroundings) {
        let exchange = ask(MachineCall::Surroundings, [0; 6]).map_or(0, |(frame, _)| frame);
        let window = Self {
            exchange: exchange as u32,
        };
        let surroundings = Surroundings::from_words(Remote { gate: window }.exchanged());
        (window, surroundings)
    }

    /// Content of a frame that no running thread can write to.
    #[allow(clippy::unused_self, reason = "the result is borrowed from the window")]
    pub fn bytes(&self, frame: Frame) -> &[u8; 4096] {
        // SAFETY: the kernel shows every frame that it hands out, for ever. That nobody writes meanwhile is the contract
        // of the traits that this serves.
        unsafe { &*pointer(frame).cast() }
    }

    /// Content of a frame that no running thread can touch.
    #[allow(clippy::unused_self, reason = "the result is borrowed from the window")]
    pub fn bytes_mut(&mut self, frame: Frame) -> &mut [u8; 4096] {
        // SAFETY: as in `bytes`; exclusivity is that contract too, bound to the exclusive borrow.
        unsafe { &mut *pointer(frame).cast() }
    }

    /// The map that drivers use.
    fn map() -> DirectMap {
        // SAFETY: (1) frames that were handed out and registers that `MapDevice` showed are at this distance for ever.
        unsafe { DirectMap::new(WINDOW as usize) }
    }

    /// Registers of a device.
    pub fn registers(self, physical: u64, bytes: usize) -> Option<dma::Window> {
        if !physical.is_multiple_of(4) {
            return None;
        }
        self.call(MachineCall::MapDevice, [physical, bytes as u64, 0, 0, 0, 0])
            .ok()?;
        // SAFETY: (1) the kernel checked that it is not memory, and showed it. (2) The drivers of this tree only hand
        // devices pages that they were given for it.
        Some(unsafe { Self::map().window(physical, bytes) })
    }

    /// A page to share with a device.
    pub fn device_page(self) -> Option<Page> {
        let (frame, _) = self.call(MachineCall::FrameAny, [0; 6]).ok()?;
        // SAFETY: (1) the frame was taken for this and is never given to anyone else.
        Some(unsafe { Self::map().page(frame << 12) })
    }
}

/// Copies bytes, words first, by instructions that may race with stores of threads with nothing but arbitrary bytes as the result.
///
/// # Safety
/// The ranges are memory, do not overlap, and nothing of Rust's is written.
unsafe fn move_bytes(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the caller's; no alignment is needed, and DF is clear.
    unsafe {
        asm!("rep movsq", "mov ecx, {rest:e}", "rep movsb", rest = in(reg) length % 8, inout("rcx") length / 8 => _, inout("rsi") from => _, inout("rdi") to => _, options(nostack, preserves_flags));
    }
}

impl Gate for Window {
    fn call(&self, call: MachineCall, arguments: [u64; 6]) -> Result<(u64, u64), Error> {
        ask(call, arguments)
    }

    fn exchange(&self) -> u32 {
        self.exchange
    }

    fn read(&self, frame: Frame, offset: usize, into: &mut [u8]) {
        let length = into.len().min(4096usize.saturating_sub(offset));
        // SAFETY: inside one frame that the window shows; the target is ours.
        unsafe { move_bytes(pointer(frame).add(offset.min(4096)), into.as_mut_ptr(), length) };
    }

    fn write(&self, frame: Frame, offset: usize, from: &[u8]) {
        let length = from.len().min(4096usize.saturating_sub(offset));
        // SAFETY: as in `read`, in the other direction.
        unsafe { move_bytes(from.as_ptr(), pointer(frame).add(offset.min(4096)), length) };
    }

    fn copy(&self, from: Frame, to: Frame) {
        // SAFETY: two whole frames that the window shows.
        unsafe {
            asm!("rep movsq", inout("rcx") 512u64 => _, inout("rsi") pointer(from) => _, inout("rdi") pointer(to) => _, options(nostack, preserves_flags));
        }
    }

    fn entry(&self, leaf: Leaf, index: usize) -> u64 {
        #[allow(clippy::cast_ptr_alignment, reason = "frames are aligned to pages")]
        let entries = pointer(leaf.frame()).cast::<u64>();
        // SAFETY: a leaf is a frame that the window shows; its entries are words that processors may change.
        unsafe { entries.add(index % 512).read_volatile() }
    }

    fn heap(&self) -> (u64, u64) {
        heap::usage()
    }
}
