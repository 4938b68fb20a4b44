//! The server as a program outside of the kernel.
#![no_std]
#![no_main]

kernel::image!(outside);
