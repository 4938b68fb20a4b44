//! Places for more threads (decision 0103).

use super::Kernel;
use crate::{Half, Hardware, Shortage, thread::Row};

impl<H: Hardware, P: Half> Kernel<H, P> {
    /// Makes places for that many threads in all, as far as so many may exist.
    ///
    /// # Errors
    /// [`Shortage::Frames`]: there is no memory.
    #[cold]
    pub fn make_places(&mut self, threads: usize) -> Result<(), Shortage> {
        while self.threads.table.len() < threads.min(P::THREADS_MAX) {
            let frame = self.frames.keep(&mut self.hardware)?;
            self.threads.table.extend(frame);
        }
        // Room for their vector registers, too: at its first use of the unit a thread could only be told by an exception that there is no memory.
        for index in self.threads.places()..self.threads.table.len() {
            self.vectors_make_room(index as u32)?;
        }
        self.threads.admit(P::THREADS_MAX);
        Ok(())
    }

    /// Makes some more places for threads.
    ///
    /// # Errors
    /// [`Shortage::Threads`]: so many may not exist; [`Shortage::Frames`]: there is no memory.
    #[cold]
    pub(super) fn more_threads(&mut self) -> Result<(), Shortage> {
        let known = self.threads.places();
        if known >= P::THREADS_MAX {
            return Err(Shortage::Threads);
        }
        self.make_places(known + 1)
    }
}
