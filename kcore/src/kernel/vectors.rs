//! The vector unit (x87, SSE, AVX) of each processor, and the threads that use it (decision 0138).
//!
//! A thread that never used the unit runs with the unit off, and pays nothing. Its first use traps, and from then on the unit is on
//! whenever it runs. Messages and protected calls declare the registers clobbered: the fast paths give the unit its initial
//! state, and leave it on for a thread that uses it. So nobody sees what another thread, or another domain, had there:
//!
//! * A thread that runs in user mode is `UNUSED` and the unit of its processor is off; or it is `loaded` there, and the unit holds its state.
//! * A thread that waits for a message has nothing to save; one whose fault is a message keeps all of it.
//! * The slow paths note only that a state is dropped. [`Kernel::vectors_follow`] sets the unit up before a thread runs.

use super::Kernel;
use crate::{Half, Hardware, Shortage, messages::OLD_UNIT, scheduler::NONE, thread::VectorState};

impl<H: Hardware, P: Half> Kernel<H, P> {
    /// The running thread, if there is one, uses the unit for the first time. Room for its state came with its place.
    pub fn vectors_begin(&mut self) -> Option<()> {
        let index = self.current()?;
        let is_quick = self.hardware.vectors_are_quick();
        let thread = &mut self.threads.table[index as usize];
        debug_assert!(thread.vectors == VectorState::UNUSED, "its unit was off");
        thread.vectors = VectorState::INITIAL;
        thread.slow |= if is_quick { 0 } else { OLD_UNIT };
        self.vectors_change(index);
        Some(())
    }

    /// Makes room for the state of each thread that will be in a place.
    pub(super) fn vectors_make_room(&mut self, index: u32) -> Result<(), Shortage> {
        if !self.hardware.vectors_have_room(index) {
            let frame = self.frames.keep(&mut self.hardware)?;
            self.hardware.vectors_take_room(index, frame);
        }
        Ok(())
    }

    /// Sets this processor's unit up for the thread that runs here next.
    #[inline(always)]
    pub fn vectors_follow(&mut self, next: u32) {
        let uses = self.threads.table[next as usize].vectors != VectorState::UNUSED;
        if uses || self.processor.unit != NONE {
            self.vectors_change(next);
        }
    }

    fn vectors_change(&mut self, next: u32) {
        let here = VectorState::loaded(self.processor.number);
        let owner = self.processor.unit;
        if let Some(before) = self.threads.table.get_mut(owner as usize)
            && before.vectors == here
        {
            if owner == next {
                return;
            }
            self.hardware.vectors_save(owner);
            before.vectors = VectorState::SAVED;
            self.unbind(owner);
        }
        let thread = &mut self.threads.table[next as usize];
        debug_assert!(
            thread.can_run_on(self.processor.number),
            "its state is in another processor's unit"
        );
        match thread.vectors {
            VectorState::UNUSED => return self.vectors_leave(),
            VectorState::SAVED => self.hardware.vectors_load(next),
            _ => self.hardware.vectors_initial(),
        }
        thread.vectors = here;
        self.processor.unit = next;
    }

    fn vectors_leave(&mut self) {
        self.hardware.vectors_off();
        self.processor.unit = NONE;
    }

    /// The running thread goes into another domain, on a fast path.
    #[inline(always)]
    pub(super) fn cross_vectors(&mut self) {
        let thread = self.threads.table.get(self.processor.current as usize);
        if thread.is_some_and(|thread| thread.vectors != VectorState::UNUSED) {
            self.hardware.vectors_initial();
        }
    }

    /// A message goes from the thread that was running to one that runs next, on a fast path. Neither keeps a state ([`crate::thread::Thread::has_sent`]).
    #[inline(always)]
    pub(crate) fn hand_over_vectors(&mut self, receiver: u32) {
        let thread = &mut self.threads.table[receiver as usize];
        if thread.vectors != VectorState::UNUSED {
            self.hardware.vectors_initial();
            thread.vectors = VectorState::loaded(self.processor.number);
            self.processor.unit = receiver;
        } else if self.processor.unit != NONE {
            self.vectors_leave();
        }
    }
}
