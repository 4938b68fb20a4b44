//! The common case: a call, or a reply that waits for anyone, of a message of words alone, to a
//! thread that waits for it, with nobody more urgent ready. Counted in instructions (`ipc-round-trip`, `ipc-64-words`, `ipc-timeout`).
//!
//! Nothing is changed until all is certain. It does what the general path does (a test
//! compares them), but it saves no registers: the first words stay where they are. The kernel
//! has it in assembly (`arch/x86_64/message.rs`), and this is the oracle: the same steps in the same order.
//!
//! A deadline costs little: mostly the timers have the thread already, for the deadline of an earlier message, and leave it there until that
//! time has come ([`Thread`]).

use abi::nucleus::{ANYONE, MESSAGE_WORDS, NEVER, REGISTER_WORDS};

use crate::{
    Hardware, Kernel,
    bare::{Bare, THREADS_MAX},
    scheduler::NONE,
    thread::{NO_TIME, Thread},
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
        // The lower part of a tag holds the lengths and the kernel's mark.
        let words = usize::from(tag as u16);
        if words > MESSAGE_WORDS {
            return None;
        }
        let thread = self.current_thread()?;
        let (sender, space, bit) = (thread.id.0, thread.space, thread.ipc.bit());
        if thread.slow != 0 {
            return None;
        }
        if !would_wait(thread, to, from) {
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
        let deadline_ns = self.deadline_at_once(thread, timeouts as u32)?;
        if words > REGISTER_WORDS {
            let (mine, its) = (thread.ipc.buffer()?, other.ipc.buffer()?);
            self.copy_words(mine, its, words);
        }
        // From here on all is certain.
        let (other, thread) = self.pass_at_once(receiver)?;
        thread.has_sent((rip, rsp), from, window, deadline_ns);
        other.ipc.is_awaited_by(bit);
        let (next_rip, next_rsp) = (other.context.rip, other.context.rsp);
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

    /// The deadline of a thread that is about to wait, if there is none or the timers need not be told.
    #[inline(always)]
    pub(in crate::bare) fn deadline_at_once(&self, thread: &Thread, receive_us: u32) -> Option<u64> {
        if receive_us == NEVER {
            return Some(NO_TIME);
        }
        let at_ns = self.hardware.now_ns() + u64::from(receive_us) * 1000;
        (receive_us != 0 && at_ns >= thread.timer_ns).then_some(at_ns)
    }
}

/// Whether nothing is there for a thread that has sent to `to` and receives from `from`: an answer cannot be, and of anyone nobody waits.
#[inline(always)]
pub(in crate::bare) fn would_wait(thread: &Thread, to: u64, from: u64) -> bool {
    let part = &thread.ipc;
    from == to || from == ANYONE && part.first_sender() == NONE && !part.has_interrupts()
}
