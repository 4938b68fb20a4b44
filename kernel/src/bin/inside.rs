//! The server inside the kernel: the image that is used by default.
#![no_std]
#![no_main]

kernel::image!(inside);
