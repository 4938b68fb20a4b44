//! The end of a thread's messages, when the thread ends or is taken out of its wait.
//!
//! Any number of threads may wait for one that ends, so its end goes on in pieces. From the first one on nobody begins to wait for it
//! ([`Kernel::find_thread`]).

use abi::Error;

use crate::{
    Hardware, Kernel, ThreadId,
    bare::{Bare, mapping::Progress},
    scheduler::NONE,
    thread::State,
};

/// Steps of one thread that is told, beside one for each processor that may be the one where it goes on.
const TOLD_STEPS: i32 = 8;

impl<H: Hardware> Kernel<H, Bare> {
    /// A thread that exists and whose end has not begun.
    #[inline]
    pub(in crate::bare) fn find_thread(&self, id: u64) -> Option<u32> {
        self.threads()
            .find(ThreadId(id))
            .filter(|&index| !self.is_ending(index))
    }

    /// A thread is about to end: nobody may go on waiting for it. It is in no list, or runs and does nothing else any more.
    #[inline]
    pub(in crate::bare) fn forget_messages(&mut self, index: u32, steps: &mut i32) -> Progress {
        self.begin_end(index);
        let id = self.id_of(index).0;
        let told = TOLD_STEPS + self.processors_looked_at();
        loop {
            let sender = self.thread(index).ipc.first_sender();
            if sender == NONE {
                break;
            }
            if *steps <= 0 {
                return Progress::More;
            }
            *steps -= told;
            self.fail(sender, Error::NoSuchThread);
        }
        while let Some(bit) = self.thread(index).ipc.awaited_by() {
            for waiting in bit.places(self.threads().table.len()) {
                if *steps <= 0 {
                    return Progress::More;
                }
                *steps -= 1;
                if self.thread(waiting).ipc.wait_for == id {
                    *steps -= told;
                    self.fail(waiting, Error::Deleted);
                }
            }
            self.messages_of(index).is_not_awaited_by(bit);
        }
        self.half.nucleus.unbind(id, &mut self.hardware);
        Progress::Done
    }

    /// Takes a thread out of the operation it waits in, if it waits in one; it is in no list then.
    pub(in crate::bare) fn cancel_messages(&mut self, index: u32) {
        if matches!(self.thread(index).state, State::Sending(_) | State::Receiving) {
            self.detach(index);
            self.set_operation(index, None);
            self.messages_of(index).trouble = None;
        }
    }
}
