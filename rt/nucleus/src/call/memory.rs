//! Memory that comes and goes: ranges of addresses in which no Rust object lies, and the words in them.
//!
//! Words are read and written by volatile accesses, because devices and other spaces see them, too. A thread whose
//! creator put its stack into the free range keeps out of that slot; its creator is the one who vouches for it.
//!
//! There are two: the *free range*, where programs receive and map what they like, and in σ₀ the memory
//! that the kernel gave the root program at its physical addresses, below the free range.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use abi::{Rights, nucleus::fpage};

use super::entry::RootPage;

/// Beginning of the free range.
pub const FREE_START: u64 = 0x1000_0000_0000;
/// One past its end.
pub const FREE_END: u64 = abi::nucleus::ROOT_GIVES_BELOW;

/// An fpage of this library's ranges, or nothing: as a window, as what is given, as what is flushed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Window(u64);

impl Window {
    /// Nothing: as a window it receives no fpages.
    pub const NOTHING: Self = Self(0);

    /// `2^log2` bytes at `base` with these rights.
    ///
    /// # Panics
    /// If it leaves the ranges.
    pub fn memory(base: u64, log2: u8, rights: Rights) -> Self {
        let end = 1u64.checked_shl(log2.into()).and_then(|bytes| base.checked_add(bytes));
        assert!(end.is_some_and(|end| end <= FREE_END), "{base:#x} is not free to use");
        Self(fpage(base, log2, rights))
    }

    /// `2^log2` ports from `first`.
    pub const fn ports(first: u64, log2: u8) -> Self {
        Self(abi::nucleus::port_fpage(first, log2))
    }

    /// Its word.
    pub const fn word(self) -> u64 {
        self.0
    }
}

/// Reads a word. Where nothing is mapped the thread faults.
///
/// # Panics
/// If the address is outside of the ranges, or not that of a word.
pub fn read(address: u64) -> u64 {
    check(address);
    // SAFETY: no Rust object is there, and any bits are a word.
    unsafe { (address as *const u64).read_volatile() }
}

/// Writes a word. Where nothing is mapped the thread faults.
///
/// # Panics
/// As [`read`].
pub fn write(address: u64, word: u64) {
    check(address);
    // SAFETY: no Rust object is there.
    unsafe { (address as *mut u64).write_volatile(word) };
}

/// Looks at the page that holds an address, so that it is there afterwards.
pub fn touch(address: u64) {
    // SAFETY: a byte is read, atomically, and forgotten. Where nothing is mapped the thread faults.
    unsafe { AtomicU8::from_ptr(address as *mut u8) }.load(Relaxed);
}

/// Copies the program's image, as it is now, to `to`; how many bytes that are.
///
/// # Panics
/// As [`read`].
pub fn copy_image(root: RootPage, to: u64) -> u64 {
    let head = root.head();
    for at in (0..head.image_bytes).step_by(8) {
        // SAFETY: the image is mapped as a whole, in whole pages, and any bits are a word; other threads may write it.
        write(
            to + at,
            unsafe { AtomicU64::from_ptr((head.image + at) as *mut u64) }.load(Relaxed),
        );
    }
    head.image_bytes
}

fn check(address: u64) {
    assert!(
        address < FREE_END && address.is_multiple_of(8),
        "{address:#x} is not free to use"
    );
}
