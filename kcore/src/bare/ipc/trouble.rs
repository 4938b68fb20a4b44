//! Faults, exceptions and interrupts as messages.

use abi::nucleus::{LABEL_EXCEPTION, LABEL_FAULT, LABEL_INTERRUPT, NO_TIMEOUTS, TAG_KERNEL, tag};

use super::Request;
use crate::{
    Hardware, Kernel, ThreadId,
    bare::{Bare, mapping::Progress, nucleus::Nucleus},
    event::{Access, Outcome},
    messages::Trouble,
};

/// The message of an interrupt.
pub(in crate::bare) const INTERRUPT_TAG: u64 = tag(LABEL_INTERRUPT, 1, 0) | TAG_KERNEL;

impl<H: Hardware> Kernel<H, Bare> {
    /// A page fault of the running thread: a message to its space's pager. `None` if there is none.
    pub(in crate::bare) fn fault_message(&mut self, me: u32, address: u64, access: Access) -> Option<Outcome> {
        let thread = self.thread(me);
        let (rip, space) = (thread.context.rip, thread.space);
        let pager = self.half.nucleus.pager(space);
        let words = [
            address,
            u64::from(access.right().bits()),
            rip,
            self.half.nucleus.id_of_space(space),
        ];
        self.trouble(me, pager, LABEL_FAULT, words)
    }

    /// Another exception: a message to the handler of the space.
    pub(in crate::bare) fn exception_message(&mut self, me: u32) -> Option<Outcome> {
        let thread = self.thread(me);
        let context = &thread.context;
        let words = [context.vector, context.error, context.rip, context.rsp];
        let handler = self.half.nucleus.handler(thread.space);
        self.trouble(me, handler, LABEL_EXCEPTION, words)
    }

    fn trouble(&mut self, me: u32, helper: u64, label: u64, words: [u64; 4]) -> Option<Outcome> {
        let to = self.find_thread(helper)?;
        if to == me {
            return None;
        }
        self.messages_of(me).trouble = Some(Trouble { label, words });
        self.leave_processor(me);
        if !self.waits_for(to, me) {
            self.wait_to_send(me, to, None);
            return Some(Outcome::Gone);
        }
        let nothing = Request::new([0; 6]);
        // A message of the kernel's has no items, so it is done at once and cannot fail.
        if self.transfer((me, to), &nothing, me, &mut 0) == Ok(Progress::Done) {
            self.wait_for_answer(me, helper);
            self.pass_to(to);
        }
        Some(Outcome::Gone)
    }

    /// A thread in trouble waits for the thread that was told of it.
    pub(super) fn wait_for_answer(&mut self, me: u32, helper: u64) {
        let request = Request::new([0, helper, 0, NO_TIMEOUTS, 0, 0]);
        self.begin_wait(me, &request);
        self.waits_as_it_is(me);
    }

    /// An interrupt has come: delivers it, or keeps it for its thread. It stays masked.
    pub fn interrupt_message(&mut self, interrupt: usize) {
        let Some(line) = self.half.nucleus.interrupts.get(interrupt) else {
            return;
        };
        let Some(thread) = self.threads().find(ThreadId(line.thread)) else {
            return;
        };
        let from = interrupt as u64 + 1;
        let part = self.messages_of(thread);
        if part.trouble.is_none() && (part.wait_for == abi::nucleus::ANYONE || part.wait_for == from) {
            part.delivered |= 1 << interrupt;
            self.deliver(thread, INTERRUPT_TAG, from, [interrupt as u64, 0, 0, 0]);
            self.enqueue(thread);
        } else {
            part.pending |= 1 << interrupt;
        }
    }

    /// Gives the running thread an interrupt that waits for it, if it receives from there.
    pub(super) fn take_interrupt(&mut self, me: u32, from: u64) -> bool {
        let wanted = Nucleus::interrupts_of(from);
        let part = self.messages_of(me);
        let ready = part.pending & wanted;
        if ready == 0 {
            return false;
        }
        let interrupt = ready.trailing_zeros();
        part.pending &= !(1 << interrupt);
        part.delivered |= 1 << interrupt;
        self.deliver(
            me,
            INTERRUPT_TAG,
            u64::from(interrupt) + 1,
            [u64::from(interrupt), 0, 0, 0],
        );
        true
    }

    /// Receiving again lets the interrupts in that were delivered before.
    pub(super) fn acknowledge(&mut self, me: u32, from: u64) {
        let wanted = Nucleus::interrupts_of(from);
        let part = self.messages_of(me);
        let mut done = part.delivered & wanted;
        part.delivered &= !wanted;
        while done != 0 {
            let interrupt = done.trailing_zeros();
            done &= done - 1;
            self.hardware.unmask_interrupt(interrupt as usize);
        }
    }
}
