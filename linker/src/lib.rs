//! From ELF files to what this system runs.
//!
//! Two products. A program is kept as an *image object*: its bytes lie in the object as they will lie in
//! memory, from the ELF header at offset 0 onward, and each page carries the limits (read, write, execute)
//! of its segment. Running the program clones the object copy-on-write at a new address and enters it; the
//! program's own start code relocates it. All that is left to do here is to check that a file can be
//! treated like that, and to spread it out: [`image::layout`].
//!
//! A library is a *module* (Deller & Heiser, USENIX 1999): linked once, at an address of its own that never
//! changes, its text shared by everybody, with a private data segment for each instance: [`module`].
//!
//! The crate is pure, and never panics on any input; [`elf`] reads executables, `object` relocatables.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod image;

pub mod elf;

pub mod module;

pub use image::{Image, LayoutError, layout};
