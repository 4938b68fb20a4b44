//! The invariants of threads and queues. Tests and the fuzzer check them.

use super::Kernel;
use crate::{
    Half, Hardware,
    scheduler::LEVELS,
    smp::Processors,
    thread::{NO_TIME, State, Thread},
};

impl<H: Hardware, P: Half> Kernel<H, P> {
    /// Checks all invariants that hold between events: those of threads, queues and the second half.
    ///
    /// # Errors
    /// A sentence that names the broken invariant.
    pub fn check(&mut self) -> Result<(), &'static str> {
        self.check_queues()?;
        self.waits.check(&self.threads.table, &self.links)?;
        P::check(self)
    }

    /// Checks the run queues, and the threads that run.
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
                if thread.standing.level() != self.level(thread) || thread.standing.payer() != part.payer {
                    return Err("a running thread does not stand where it should, or another share pays for it");
                }
            }
            let mut members = 0;
            for level in 0..LEVELS as u8 {
                for index in part.queues.members(&self.links, level) {
                    let thread = &self.threads.table[index as usize];
                    if thread.state != State::Ready || thread.processor != part.number || self.level(thread) != level {
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
        for (index, thread) in self.threads.table.iter().enumerate() {
            if !thread.counts_rightly() {
                return Err("a wait is counted that should not be, or is not");
            }
            if thread.deadline_ns < thread.timer_ns {
                return Err("a deadline without its timer");
            }
            if thread.timer_ns != NO_TIME && !self.timers.has(thread.timer_ns, index as u32) {
                return Err("the timers have a thread under another time, or not at all");
            }
            let waits = !matches!(thread.state, State::Free | State::Ready | State::Running);
            if thread.deadline_ns != NO_TIME && !waits {
                return Err("a thread that waits for nothing has a deadline");
            }
        }
        for (index, thread) in self.threads.table.iter().enumerate() {
            if let Some(processor) = thread.vectors.processor()
                && self.processor.part(processor).unit != index as u32
            {
                return Err("a thread's vector registers are in a unit that holds another's");
            }
            let kept = thread.vectors != thread.vectors.dropped();
            if thread.state == State::Receiving && thread.ipc.trouble.is_none() && kept {
                return Err("a thread that waits for a message has vector registers");
            }
        }
        if count(State::Running) != running {
            return Err("a thread runs and has no processor");
        }
        Ok(())
    }
}
