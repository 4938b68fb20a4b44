//! The invariants of threads, queues and spaces. Tests check them, and `KernelCheck` does while
//! the machine is fuzzed.

use abi::nucleus::ANYONE;

use crate::{
    Hardware, Kernel,
    bare::{Bare, nucleus::Nucleus},
    messages::WAITS,
    scheduler::NONE,
    thread::{State, Thread},
};

impl<H: Hardware> Kernel<H, Bare> {
    pub(super) fn check_all(&mut self) -> u64 {
        if let Err(what) = self.check() {
            self.hardware.log(format_args!("the kernel is inconsistent: {what}"));
            self.hardware.stop(abi::host::EXIT_PANIC);
        }
        self.half.nucleus.calls
    }

    /// Checks threads, their waits and their queues, the threads that spaces count, and who receives which interrupts.
    ///
    /// # Errors
    /// A sentence that names the broken invariant.
    pub fn check_messages(&self) -> Result<(), &'static str> {
        let mut in_queues = 0;
        for (index, thread) in self.threads().table.iter().enumerate() {
            let part = &thread.ipc;
            let mut sender = part.first_sender();
            let mut steps = 0;
            while sender != NONE {
                if self.thread(sender).state != State::Sending(index as u32) {
                    return Err("a queue of senders holds a thread that does not send there");
                }
                steps += 1;
                if steps > self.threads().table.len() {
                    return Err("a queue of senders is a circle");
                }
                sender = self.next_sender(sender);
            }
            in_queues += steps;
            if steps > 0 && thread.state == State::Free {
                return Err("threads send to one that does not exist");
            }
            if (thread.state == State::Receiving) != (part.wait_for != 0) {
                return Err("a thread receives without waiting for anyone, or the other way round");
            }
            let waits = thread.state == State::Receiving && part.trouble.is_some();
            if waits != (thread.slow & WAITS != 0) {
                return Err("the fast path may deliver where it must not, or never again");
            }
            if self.is_ending(index as u32)
                && (waits || part.wait_for != 0 || matches!(thread.state, State::Sending(_)))
            {
                return Err("a thread whose end has begun waits");
            }
            let partner = crate::ThreadId(part.wait_for);
            if part.wait_for != 0
                && part.wait_for != ANYONE
                && Nucleus::interrupt_of(part.wait_for).is_none()
                && self.threads().find(partner).is_none()
            {
                return Err("a thread waits for one that does not exist");
            }
            if thread.state == State::Running && part.trouble.is_some() {
                return Err("a running thread is in trouble");
            }
        }
        let sending = |state: State| matches!(state, State::Sending(_));
        let senders = self
            .threads()
            .table
            .iter()
            .filter(|thread| sending(thread.state))
            .count();
        if senders != in_queues {
            return Err("a thread that sends is in no queue");
        }
        for part in self.half.nucleus.spaces.iter().flatten() {
            let space = (part.id & 0xffff) as u32;
            let inside = |thread: &&Thread| thread.space.0 == space && thread.ipc.buffer().is_some();
            if self.threads().table.iter().filter(inside).count() != part.threads as usize {
                return Err("a space counts its threads wrongly");
            }
        }
        for (interrupt, line) in self.half.nucleus.interrupts.iter().enumerate() {
            if (self.half.nucleus.bound >> interrupt & 1 != 0) != (line.thread != 0) {
                return Err("an interrupt is bound to nobody, or somebody's is not");
            }
        }
        Ok(())
    }
}
