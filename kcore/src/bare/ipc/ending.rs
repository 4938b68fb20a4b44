//! The end of a thread's messages, when the thread ends or is taken out of its wait.

use abi::Error;

use crate::{Hardware, Kernel, bare::Bare, scheduler::NONE, thread::State};

impl<H: Hardware> Kernel<H, Bare> {
    /// A thread is about to end: nobody may go on waiting for it. It is in no list.
    #[inline]
    pub(in crate::bare) fn forget_messages(&mut self, index: u32) {
        let id = self.id_of(index).0;
        loop {
            let sender = self.thread(index).ipc.first_sender();
            if sender == NONE {
                break;
            }
            self.fail(sender, Error::NoSuchThread);
        }
        for waiting in self.thread(index).ipc.awaited_by(self.threads().table.len() as u32) {
            if self.thread(waiting).ipc.wait_for == id {
                self.fail(waiting, Error::Deleted);
            }
        }
        self.half.nucleus.unbind(id, &mut self.hardware);
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
