//! The common case: a call, or a reply that waits for anyone, of a message in registers alone, to a
//! thread that waits for it, with nobody more urgent ready. Counted in instructions (`ipc-round-trip`).
//!
//! Nothing is changed until all is certain. It does what the general path does (a test
//! compares them), but it saves no registers: the words stay where they are. The kernel
//! has it in assembly (`arch/x86_64/message.rs`), and this is the oracle: the same steps in the same order.

use abi::nucleus::{ANYONE, NEVER, REGISTER_WORDS};

use crate::{
    Hardware, Kernel,
    bare::{Bare, THREADS_MAX},
    scheduler::NONE,
};

/// The place where a message is received.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Next instruction of the receiver.
    pub rip: u64,
    /// Its stack pointer.
    pub rsp: u64,
    /// Its index.
    pub receiver: u32,
    /// The sender's identifier.
    pub sender: u64,
}

impl<H: Hardware> Kernel<H, Bare> {
    /// Does the operation if it is such a case. `rip` and `rsp` say where the sender goes on.
    pub fn ipc_fast(&mut self, [to, from, tag, timeouts, window]: [u64; 5], rip: u64, rsp: u64) -> Option<Handover> {
        // The lower part of a tag holds the lengths and the kernel's mark; the lower half of the timeouts is for receiving.
        if tag as u16 > REGISTER_WORDS as u16 || timeouts as u32 != NEVER {
            return None;
        }
        let thread = self.current_thread()?;
        let (sender, space) = (thread.id.0, thread.space);
        if thread.slow != 0 {
            return None;
        }
        let part = &thread.ipc;
        if from != to && (from != ANYONE || part.first_sender() != NONE || part.pending | part.delivered != 0) {
            return None;
        }
        let receiver = to as u32 & (THREADS_MAX as u32 - 1);
        let other = self.threads().table.get(receiver as usize)?;
        let wait_for = other.ipc.wait_for;
        if other.id.0 != to || (wait_for != ANYONE && wait_for != sender) || other.slow != 0 {
            return None;
        }
        if !self.may_run(other) {
            return None;
        }
        let callee = other.space;
        let load = if callee == space {
            None
        } else {
            Some(self.spaces().find(callee)?.load())
        };
        // From here on all is certain.
        self.send_at_once((rip, rsp), from, window);
        let (context, part) = self.receive_at_once(receiver)?;
        part.awaited = 1;
        let (next_rip, next_rsp) = (context.rip, context.rsp);
        self.hand_over_vectors(receiver);
        if let Some(load) = load {
            self.load(callee, load);
        }
        Some(Handover {
            rip: next_rip,
            rsp: next_rsp,
            receiver,
            sender,
        })
    }
}
