//! The common case: a call, or a reply that waits for anyone, of a message in registers alone, to a
//! thread that waits for it, with nobody more urgent ready. Counted in instructions (`ipc-round-trip`).
//!
//! Nothing is changed until all is certain. What it does is what the general path does (a test
//! compares them); what it does not do is save registers: the words stay where they are.

use abi::nucleus::{ANYONE, REGISTER_WORDS};

use crate::{
    Hardware, Kernel,
    scheduler::NONE,
    thread::{State, Thread},
};

/// Where a message is received.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Next instruction of the receiver.
    pub rip: u64,
    /// Its stack pointer.
    pub rsp: u64,
    /// What loads the root of its space, if that is not loaded.
    pub load: Option<u64>,
    /// Its index.
    pub receiver: u32,
    /// The sender's identifier.
    pub sender: u64,
}

impl<H: Hardware> Kernel<H> {
    /// Does the operation if it is such a case. `rip` and `rsp` say where the sender goes on.
    #[inline(always)]
    pub fn ipc_fast(&mut self, [to, from, tag, timeouts, window]: [u64; 5], rip: u64, rsp: u64) -> Option<Handover> {
        // The lower half of a tag holds the lengths and the kernel's mark.
        if tag as u16 > REGISTER_WORDS as u16 || timeouts >> 32 != u64::from(u32::MAX) {
            return None;
        }
        let me = self.processor.current;
        let thread = self.threads.table.get(me as usize)?;
        let (sender, space) = (thread.id.0, thread.space);
        let part = &thread.ipc;
        if thread.vector_live | part.restricted != 0 {
            return None;
        }
        if from != to && (from != ANYONE || part.senders.head != NONE || part.pending | part.delivered != 0) {
            return None;
        }
        let receiver = (to & 0xffff) as u32;
        let other: &mut Thread = self.threads.table.get_mut(receiver as usize)?;
        let accepts = other.ipc.accepts;
        if other.id.0 != to || other.vector_live != 0 || (accepts != ANYONE && accepts != sender) {
            return None;
        }
        if self.processor.queues.highest() > Some(other.priority) {
            return None;
        }
        let callee = other.space;
        let load = if callee == space {
            None
        } else {
            Some(self.spaces.find_mut(callee)?.load)
        };
        // From here on all is certain.
        other.ipc.accepts = 0;
        other.ipc.wait_for = 0;
        other.ipc.awaited |= u32::from(from == to);
        other.state = State::Running;
        let (next_rip, next_rsp) = (other.context.rip, other.context.rsp);
        self.processor.current = receiver;
        self.processor.space = callee;
        let thread = self.threads.table.get_mut(me as usize)?;
        thread.context.rip = rip;
        thread.context.rsp = rsp;
        thread.state = State::Receiving;
        thread.ipc.wait_for = from;
        thread.ipc.accepts = from;
        thread.ipc.window = window;
        Some(Handover {
            rip: next_rip,
            rsp: next_rsp,
            load,
            receiver,
            sender,
        })
    }
}
