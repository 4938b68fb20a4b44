//! The µ-kernel alone, under a root program.
#![no_std]
#![no_main]

kernel::image!(bare);
