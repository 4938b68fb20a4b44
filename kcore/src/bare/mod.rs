//! The bare µ-kernel's half: what a kernel has beside the common part where no server answers ([decision 0102]).
//!
//! * [`mapping`]: free spaces, built by map, grant, flush and link; [`ipc`]: messages between threads; [`nucleus`]: the calls;
//!   [`going`]: work in pieces.
//!
//! Its methods are those of `Kernel<H, Bare>`: a kernel of another system has none of them, and nothing outside of this folder names it but
//! `lib.rs` (a house test). Its state is private to this folder.
//!
//! [decision 0102]: ../../../docs/decisions/0102-two-halves-of-kcore.md

pub mod going;
pub mod ipc;
pub mod mapping;
pub mod nucleus;

use core::fmt;

use crate::{Half, Hardware, Kernel, SpaceId};

/// Threads that may exist. Several calls look at all of them, so there are fewer than under a server.
pub const THREADS_MAX: usize = 1 << 10;

/// The state of the half.
#[derive(Default)]
pub struct Bare {
    /// Free spaces and who has which page from whom.
    mapping: mapping::Mapping,
    /// Identifiers, pagers, interrupts.
    nucleus: nucleus::Nucleus,
}

impl Half for Bare {
    const THREADS_MAX: usize = THREADS_MAX;

    #[inline(always)]
    fn thread_ends<H: Hardware>(kernel: &mut Kernel<H, Self>, index: u32) {
        let mut all = i32::MAX;
        kernel.forget_messages(index, &mut all);
    }

    fn interrupt<H: Hardware>(kernel: &mut Kernel<H, Self>, interrupt: usize) {
        kernel.interrupt_message(interrupt);
    }

    fn ports(&self, space: SpaceId) -> Option<&[u8; 8192]> {
        self.mapping.ports(space)
    }

    fn check<H: Hardware>(kernel: &mut Kernel<H, Self>) -> Result<(), &'static str> {
        kernel.check_messages()?;
        kernel.mapping_check()
    }

    fn report(&self, frame: u32, out: &mut dyn fmt::Write) -> Result<usize, fmt::Error> {
        self.mapping.report(frame, out)
    }
}
