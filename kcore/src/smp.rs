//! Several processors: whose turn it is in the kernel, and what processors ask of one another.
//!
//! One processor at a time handles an event; the others run user code, wait for their turn, or are halted.
//! [`protocol`] is the part that they do at the same time. It is the very source that the kernel runs
//! and that `tests/smp_loom.rs` runs under every interleaving.

use crate::thread::Operation;

mod atomic {
    pub use core::{
        hint::spin_loop,
        sync::atomic::{AtomicU32, AtomicU64, Ordering},
    };
}

pub mod protocol;
pub mod record;

pub use protocol::{Mailbox, Turn, Waiting};
pub use record::{Processor, Processors};

/// Processors that the kernel can use.
pub const PROCESSORS_MAX: usize = 16;
const _: () = assert!(
    PROCESSORS_MAX <= u16::BITS as usize,
    "each has a bit in the line for a turn"
);

/// Looks of a processor that waits for its turn until it gets in line. Shorter waits are over by then, and the holder of a moment ago, which comes
/// back, may go first.
const PATIENCE: u32 = 4;
/// Looks at a free lock until a processor goes before the first one in line, which does not look: where the machine is a guest, its host may let
/// others run in the place of that processor.
const ABSENCE: u32 = 16;

/// A request to other processors. The asker waits until they have done it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// To forget all user translations.
    Forget,
    /// To forget the translation of the page at an address.
    ForgetPage(u64),
    /// To load the kernel's own root: the one that is loaded is about to be freed.
    LeaveRoot,
}

/// A system call, or an exception that is not raised again by itself ([`Operation::raised`]), that was waiting for its turn when
/// its thread was taken off the processor. Nothing of it was done.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct HandedOver {
    /// The caller's next instruction. (Not for an exception: its registers stand in the context.)
    pub rip: u64,
    /// Its stack pointer.
    pub rsp: u64,
    /// The call, or the exception.
    pub operation: Operation,
}

impl HandedOver {
    /// As words of a [`Mailbox`].
    pub fn to_words(self) -> [u64; protocol::WORDS] {
        let [a0, a1, a2, a3, a4, a5] = self.operation.arguments;
        [self.rip, self.rsp, self.operation.number, a0, a1, a2, a3, a4, a5]
    }

    /// From words of a [`Mailbox`].
    pub fn from_words(words: [u64; protocol::WORDS]) -> Self {
        let [rip, rsp, number, arguments @ ..] = words;
        Self {
            rip,
            rsp,
            operation: Operation { number, arguments },
        }
    }
}

impl Turn {
    /// Offset of its word, for the fast paths in assembly.
    pub const WORD: usize = core::mem::offset_of!(Self, word);

    /// A turn that processor 0 has.
    pub const fn taken() -> Self {
        Self {
            word: atomic::AtomicU32::new(protocol::TAKEN),
        }
    }
}

impl Mailbox {
    /// A box with nothing in it.
    pub const fn empty() -> Self {
        Self {
            requests: atomic::AtomicU32::new(0),
            address: atomic::AtomicU64::new(0),
            handed: [const { atomic::AtomicU64::new(0) }; protocol::WORDS],
        }
    }
}
