//! From ELF files to program images.
//!
//! A program is kept as an *image object*: its bytes lie in the object as they will lie in memory, from
//! the ELF header at offset 0 onward, and each page carries the limits (read, write, execute) of its
//! segment. Running the program clones the object copy-on-write at a new address and enters it; the
//! program's own start code relocates it. So all that is left to do here is to check that a file can
//! be treated like that, and to spread it out: [`image::layout`].
//!
//! Later this crate links modules (Deller & Heiser) at addresses of their own. It is pure, and never
//! panics on any input; [`elf`] reads the file format, [`image`] decides.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod image;

pub mod elf;

pub use image::{Image, LayoutError, layout};
