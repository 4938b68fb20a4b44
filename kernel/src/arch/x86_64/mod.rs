//! x86-64 under QEMU or on a PC: everything that needs privileged instructions.
//!
//! In reading order: [`boot`] (32-bit entry to Rust), [`start`] (what the loader tells),
//! [`direct`] (all memory at one offset), [`paging`], [`processor`] (tables, features),
//! [`syscall`] and [`traps`] (the two ways in, the one way out), [`portal`] (protected calls), [`interrupts`], [`clock`],
//! [`vector`] (x87, SSE, AVX), [`ports`], [`acpi`] and [`smp`] (the other processors); [`domain`] (calls of kernel domains); [`outside`] where the server is not
//! in the kernel.

/// For assembly: clears registers, named by their lower halves, one instruction each.
macro_rules! clear {
    ($($register:literal)+) => { concat!($("xor ", $register, ", ", $register, "\n"),+) };
}

pub mod acpi;
pub mod boot;
pub mod clock;
pub mod direct;
pub mod domain;
pub mod image;
pub mod interrupts;
pub mod message;
pub mod outside;
pub mod paging;
pub mod portal;
pub mod ports;
pub mod processor;
pub mod smp;
pub mod start;
pub mod syscall;
pub mod traps;
pub mod vector;
