//! Memory that comes and goes: ranges of addresses in which no Rust object lies, and the words in them.
//!
//! There are two: the *free range*, where programs receive and map what they like, and in σ₀ the memory
//! that the kernel gave the root program at its physical addresses, below the free range.

use abi::{Rights, nucleus::fpage};

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
        assert!(base + (1 << log2) <= FREE_END, "{base:#x} is not free to use");
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
    // SAFETY: a byte is read and forgotten. Where nothing is mapped the thread faults.
    unsafe { (address as *const u8).read_volatile() };
}

/// Copies the program's image, as it is now, to `to`.
///
/// # Panics
/// As [`read`].
pub fn copy_image(image: u64, bytes: u64, to: u64) {
    let mut at = 0;
    while at < bytes {
        // SAFETY: the image is mapped as a whole, and any bits are a word.
        write(to + at, unsafe { ((image + at) as *const u64).read_volatile() });
        at += 8;
    }
}

fn check(address: u64) {
    assert!(
        address < FREE_END && address.is_multiple_of(8),
        "{address:#x} is not free to use"
    );
}
