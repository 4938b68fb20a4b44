//! What only some systems have beside the kernel that all have: nothing under the server, the bare µ-kernel's half ([`crate::bare`]) where there
//! is none. It is a type parameter of [`Kernel`], so a kernel without a half has neither its state nor its methods (decision 0102).

use core::fmt;

use crate::{Hardware, Kernel, SpaceId, thread::THREADS_MAX};

/// A half, and what every kernel tells it. What a half does not say here is right for one that has no messages and no mappings.
pub trait Half: Sized + Default {
    /// Threads that may exist.
    const THREADS_MAX: usize = THREADS_MAX;

    /// A thread is about to end. It is in no list.
    #[inline(always)]
    fn thread_ends<H: Hardware>(_: &mut Kernel<H, Self>, _index: u32) {}

    /// An interrupt that a program may have asked for has come.
    #[inline(always)]
    fn interrupt<H: Hardware>(_: &mut Kernel<H, Self>, _interrupt: usize) {}

    /// The I/O permission bitmap of a space in the processor's format (a set bit forbids), or nothing if it never had a port.
    #[inline(always)]
    fn ports(&self, _: SpaceId) -> Option<&[u8; 8192]> {
        None
    }

    /// Checks what must always hold of the half.
    ///
    /// # Errors
    /// What does not hold, in words.
    fn check<H: Hardware>(_: &mut Kernel<H, Self>) -> Result<(), &'static str> {
        Ok(())
    }

    /// Writes who has a frame, and gives how many there are.
    ///
    /// # Errors
    /// That of `out`.
    fn report(&self, _frame: u32, _out: &mut dyn fmt::Write) -> Result<usize, fmt::Error> {
        Ok(0)
    }
}

/// The server answers: there is nothing else.
impl Half for () {}
