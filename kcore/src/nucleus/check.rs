//! What must always hold of threads, queues and spaces: checked by tests, and by `KernelCheck` while
//! the machine is fuzzed.

use abi::nucleus::ANYONE;

use crate::{
    Hardware, Kernel,
    ipc::WAITS,
    nucleus::Nucleus,
    scheduler::{NONE, PRIORITIES},
    thread::{State, Thread},
};

impl<H: Hardware> Kernel<H> {
    pub(super) fn check_all(&mut self) -> u64 {
        if let Err(what) = self.check() {
            self.hardware.log(format_args!("the kernel is inconsistent: {what}"));
            self.hardware.stop(abi::host::EXIT_PANIC);
        }
        self.nucleus.calls
    }

    /// Checks all that must hold between events: threads, queues, messages, free spaces.
    ///
    /// # Errors
    /// What does not hold, in words.
    pub fn check(&mut self) -> Result<(), &'static str> {
        self.check_queues()?;
        self.check_messages()?;
        self.check_counts()?;
        self.mapping_check()
    }

    /// Checks who waits for a processor, and who has one.
    fn check_queues(&self) -> Result<(), &'static str> {
        let is = |state: State| move |thread: &&Thread| thread.state == state;
        let count = |state: State| self.threads.table.iter().filter(is(state)).count();
        let (mut ready, mut running) = (0, 0);
        for part in self.parts() {
            if let Some(thread) = self.threads.table.get(part.current as usize) {
                running += 1;
                if thread.state != State::Running || thread.processor != part.number {
                    return Err("a processor has a thread that does not run there");
                }
            }
            let mut members = 0;
            for priority in 0..PRIORITIES as u8 {
                for index in part.queues.members(&self.links, priority) {
                    let thread = &self.threads.table[index as usize];
                    if thread.state != State::Ready || thread.processor != part.number || thread.priority != priority {
                        return Err("a run queue holds a thread that does not wait there");
                    }
                    members += 1;
                    if members > part.queues.count() {
                        return Err("a run queue holds more than it counts");
                    }
                }
            }
            if members != part.queues.count() {
                return Err("a run queue counts more than it holds");
            }
            ready += members as usize;
        }
        if count(State::Ready) != ready {
            return Err("a thread is ready and in no run queue");
        }
        if count(State::Running) != running {
            return Err("a thread runs and has no processor");
        }
        Ok(())
    }

    /// Checks threads, their waits and their queues.
    ///
    /// # Errors
    /// What does not hold, in words.
    pub fn check_messages(&self) -> Result<(), &'static str> {
        let mut in_queues = 0;
        for (index, thread) in self.threads.table.iter().enumerate() {
            let part = &thread.ipc;
            let mut sender = part.senders.head;
            let mut steps = 0;
            while sender != NONE {
                if self.threads.table[sender as usize].state != State::Sending(index as u32) {
                    return Err("a queue of senders holds a thread that does not send there");
                }
                steps += 1;
                if steps > self.threads.table.len() {
                    return Err("a queue of senders is a circle");
                }
                sender = self.links[sender as usize].next();
            }
            in_queues += steps;
            if steps > 0 && thread.state == State::Free {
                return Err("threads send to one that does not exist");
            }
            if (thread.state == State::Receiving) != (part.wait_for != 0) {
                return Err("a thread receives without waiting for anyone, or the other way round");
            }
            let waits = thread.state == State::Receiving && (thread.deadline.is_some() || part.trouble.is_some());
            if waits != (thread.slow & WAITS != 0) {
                return Err("the fast path may deliver where it must not, or never again");
            }
            if thread
                .deadline
                .is_some_and(|at_ns| !self.timers.contains(&(at_ns, index as u32)))
            {
                return Err("a deadline without its timer");
            }
            let partner = crate::ThreadId(part.wait_for);
            if part.wait_for != 0
                && part.wait_for != ANYONE
                && Nucleus::interrupt_of(part.wait_for).is_none()
                && self.threads.find(partner).is_none()
            {
                return Err("a thread waits for one that does not exist");
            }
            if thread.state == State::Running && part.trouble.is_some() {
                return Err("a running thread is in trouble");
            }
        }
        let sending = |state: State| matches!(state, State::Sending(_));
        let senders = self.threads.table.iter().filter(|thread| sending(thread.state)).count();
        if senders != in_queues {
            return Err("a thread that sends is in no queue");
        }
        for part in self.nucleus.spaces.iter().flatten() {
            let space = (part.id & 0xffff) as u32;
            let inside = |thread: &&crate::thread::Thread| {
                thread.state != State::Free && thread.space.0 == space && thread.ipc.buffer.is_some()
            };
            if self.threads.table.iter().filter(inside).count() != part.threads as usize {
                return Err("a space counts its threads wrongly");
            }
        }
        Ok(())
    }
}
