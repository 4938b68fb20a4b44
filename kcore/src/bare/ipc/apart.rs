//! A message of words alone that is only sent or only received, a call of a thread that does not wait yet, or an answer of one for which others wait, in fewer
//! instructions than the general path takes for the same: what is left out are the questions that other calls need. The partner waits already, or the thread
//! waits. Counted in instructions (`ipc-send-receive`, `ipc-queued`).
//!
//! Nothing is changed before it is certain that it is such a case.

use abi::nucleus::{ANYONE, MESSAGE_WORDS, NEVER, REGISTER_WORDS};

use super::Request;
use crate::{
    Hardware, Kernel,
    bare::{Bare, THREADS_MAX},
    scheduler::NONE,
    thread::{State, Thread},
};

/// How the operation of a thread ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Apart {
    /// The thread goes on, with the results in its registers.
    GoesOn,
    /// The thread waits, and is off its processor.
    Waits,
}

/// The length of a message of words alone.
fn plain_words(tag: u64) -> Option<usize> {
    let words = usize::from(tag as u16);
    (words <= MESSAGE_WORDS).then_some(words)
}

impl<H: Hardware> Kernel<H, Bare> {
    /// Does the operation of the running thread if it is such a case. Arguments, the message's first words, and where the thread goes on.
    #[inline(always)]
    pub fn ipc_apart(
        &mut self,
        [to, from, tag, timeouts, window]: [u64; 5],
        words: [u64; REGISTER_WORDS],
        at: (u64, u64),
    ) -> Option<Apart> {
        let request = Request {
            to,
            from,
            tag,
            timeouts,
            window,
        };
        match (to, from) {
            (0, _) => self.receive_apart(&request, at),
            _ => self.send_apart(&request, words, at),
        }
    }

    #[inline(always)]
    fn send_apart(&mut self, request: &Request, words: [u64; REGISTER_WORDS], at: (u64, u64)) -> Option<Apart> {
        let count = plain_words(request.tag)?;
        let me = self.current()?;
        let thread = self.current_thread()?;
        let receiver = request.to as u32 & (THREADS_MAX as u32 - 1);
        let other = self.threads().table.get(receiver as usize)?;
        if thread.slow != 0 || other.id.0 != request.to || receiver == me {
            return None;
        }
        let sender = thread.id.0;
        if other.ipc.waits_for(sender) {
            if other.slow != 0 {
                return None;
            }
            if request.from != 0 {
                return self.answer_apart(request, (me, receiver), words, at);
            }
            if count > REGISTER_WORDS {
                let (mine, its) = (thread.ipc.buffer()?, other.ipc.buffer()?);
                self.copy_words(mine, its, count);
            }
            // From here on it is certain.
            self.deliver(receiver, request.tag, sender, words);
            self.enqueue(receiver);
            let context = self.context_of(me);
            context.reset(at.0, at.1);
            context.set_results(0, 0, 0);
            return Some(Apart::GoesOn);
        }
        if request.send_us() != NEVER || self.find_thread(request.to).is_none() {
            return None;
        }
        self.called_from(at)?;
        let context = self.context_of(me);
        context.set_message_words(words);
        self.forget_going(me);
        self.set_operation(me, Some(request.operation()));
        self.leave_processor(me);
        self.wait_to_send(me, receiver, None);
        Some(Apart::Waits)
    }

    /// A message to a thread that waits for it, and the next one is there already.
    #[inline(never)]
    fn answer_apart(
        &mut self,
        request: &Request,
        (me, receiver): (u32, u32),
        words: [u64; REGISTER_WORDS],
        at: (u64, u64),
    ) -> Option<Apart> {
        let (count, thread) = (plain_words(request.tag)?, self.current_thread()?);
        if thread.ipc.has_interrupts() {
            return None;
        }
        let sender = self.sender_for(me, request.from)?;
        let next = self.waiting_message(thread, sender)?;
        let id = thread.id.0;
        if count > REGISTER_WORDS {
            let (mine, its) = (thread.ipc.buffer()?, self.thread(receiver).ipc.buffer()?);
            self.copy_words(mine, its, count);
        }
        // From here on it is certain.
        self.deliver(receiver, request.tag, id, words);
        self.take_message((sender, me), next, at)?;
        self.enqueue(receiver);
        Some(Apart::GoesOn)
    }

    fn receive_apart(&mut self, request: &Request, at: (u64, u64)) -> Option<Apart> {
        let me = self.current()?;
        let thread = self.current_thread()?;
        if thread.slow != 0 || thread.ipc.has_interrupts() {
            return None;
        }
        let sender = if request.from == ANYONE {
            let first = thread.ipc.first_sender();
            (first != NONE).then_some(first)
        } else {
            let partner = self.find_thread(request.from).filter(|&partner| partner != me)?;
            (self.thread(partner).state == State::Sending(me)).then_some(partner)
        };
        let Some(sender) = sender else {
            if request.receive_us() == 0 {
                return None;
            }
            self.called_from(at)?;
            self.forget_going(me);
            self.leave_processor(me);
            let until = self.until(me, request.receive_us());
            self.wait_to_receive(me, request.from, request.window, until);
            return Some(Apart::Waits);
        };
        let message = self.waiting_message(thread, sender)?;
        // From here on it is certain.
        self.take_message((sender, me), message, at)?;
        Some(Apart::GoesOn)
    }

    /// The message that a sender has waiting for this thread, and the number of its words. None if it has more than words, or needs the general way.
    #[inline(always)]
    fn waiting_message(&self, thread: &Thread, sender: u32) -> Option<(Request, usize)> {
        let request = self.request_of(sender);
        let count = plain_words(request.tag)?;
        let other = self.thread(sender);
        let has_buffers = count <= REGISTER_WORDS || other.ipc.buffer().is_some() && thread.ipc.buffer().is_some();
        (other.slow == 0 && other.ipc.trouble.is_none() && has_buffers).then_some((request, count))
    }

    /// The running thread takes such a message.
    #[inline(always)]
    fn take_message(
        &mut self,
        (sender, me): (u32, u32),
        (request, count): (Request, usize),
        at: (u64, u64),
    ) -> Option<()> {
        if count > REGISTER_WORDS {
            self.copy_buffer(sender, me, count);
        }
        let other = self.thread(sender);
        let (words, id) = (other.context.message_words(), other.id.0);
        self.called_from(at)?;
        self.forget_going(me);
        self.deliver(me, request.tag, id, words);
        self.sent(sender, me, &request);
        Some(())
    }
}
