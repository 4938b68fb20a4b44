//! A kernel's second half. Every kernel has the first one ([`crate::kernel`]). The bare µ-kernel adds messages and mappings ([`crate::bare`]); a kernel under
//! a server adds nothing. The second half is a type parameter of [`Kernel`], so a kernel without it has neither its state nor its methods (decision 0102).

use core::fmt;

use crate::{Hardware, Kernel, SpaceId, thread::THREADS_MAX};

/// A second half, and the events that every kernel reports to it. The defaults are for a half without messages and mappings.
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

    /// Checks the invariants of the half.
    ///
    /// # Errors
    /// A sentence that names the broken invariant.
    fn check<H: Hardware>(_: &mut Kernel<H, Self>) -> Result<(), &'static str> {
        Ok(())
    }

    /// Writes the names of a frame's holders, and returns how many there are.
    ///
    /// # Errors
    /// The error of `out`.
    fn report(&self, _frame: u32, _out: &mut dyn fmt::Write) -> Result<usize, fmt::Error> {
        Ok(0)
    }
}

/// The server answers: there is nothing else.
impl Half for () {}
