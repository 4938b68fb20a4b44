//! Interrupts and the threads that receive them.

use abi::{
    Error,
    nucleus::{ANYONE, INTERRUPT_FIRST_MESSAGE, INTERRUPTS},
};

use super::Nucleus;
use crate::{Hardware, Kernel, ThreadId, bare::Bare};

/// One interrupt.
#[derive(Copy, Clone, Debug)]
pub struct Line {
    /// The thread that receives it, or zero.
    pub(in crate::bare) thread: u64,
}

impl Line {
    /// Nobody receives it.
    pub(in crate::bare) const UNBOUND: Self = Self { thread: 0 };
}

impl Nucleus {
    /// The interrupt that an identifier names: its number plus one, which no thread ever has.
    pub(in crate::bare) fn interrupt_of(from: u64) -> Option<usize> {
        (1..=INTERRUPTS).contains(&from).then(|| (from - 1) as usize)
    }

    /// The interrupts that a thread receives from there, a bit each.
    pub(in crate::bare) fn interrupts_of(from: u64) -> u32 {
        match Self::interrupt_of(from) {
            Some(interrupt) => 1 << interrupt,
            None if from == ANYONE => u32::MAX,
            None => 0,
        }
    }

    /// A thread ends: its interrupts are nobody's.
    #[inline]
    pub(in crate::bare) fn unbind(&mut self, thread: u64, hardware: &mut impl Hardware) {
        let mut left = self.bound;
        while left != 0 {
            let interrupt = left.trailing_zeros() as usize;
            left &= left - 1;
            if self.interrupts[interrupt].thread == thread {
                self.bind(interrupt, 0);
                hardware.mask_interrupt(interrupt);
            }
        }
    }

    /// A thread receives an interrupt from now on; zero: nobody.
    fn bind(&mut self, interrupt: usize, thread: u64) {
        self.interrupts[interrupt].thread = thread;
        self.bound = self.bound & !(1 << interrupt) | u32::from(thread != 0) << interrupt;
    }
}

impl<H: Hardware> Kernel<H, Bare> {
    pub(super) fn interrupt_bind(&mut self, interrupt: u64, thread: u64) -> Result<(u64, u64), Error> {
        let Some(number) = Nucleus::interrupt_of(interrupt.wrapping_add(1)) else {
            return Err(Error::BadArgument);
        };
        if thread != 0 && self.find_thread(thread).is_none() {
            return Err(Error::NoSuchThread);
        }
        let before = self.half.nucleus.interrupts[number].thread;
        if let Some(index) = self.threads().find(ThreadId(before)) {
            let part = self.messages_of(index);
            part.pending &= !(1 << number);
            part.delivered &= !(1 << number);
        }
        self.half.nucleus.bind(number, thread);
        if thread == 0 {
            self.hardware.mask_interrupt(number);
        } else {
            self.hardware.unmask_interrupt(number);
        }
        Ok((0, 0))
    }

    pub(super) fn interrupt_message_address(&mut self, interrupt: u64) -> Result<(u64, u64), Error> {
        if !(INTERRUPT_FIRST_MESSAGE..INTERRUPTS).contains(&interrupt) {
            return Err(Error::BadArgument);
        }
        Ok(self.hardware.interrupt_message(interrupt as usize))
    }
}
