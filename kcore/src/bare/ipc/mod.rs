//! Synchronous messages between threads (Liedtke 1995, section 2.2; `docs/design/microkernel.md`).
//!
//! One operation sends and then receives: either half may be left out, and a call is both with the
//! same partner. A thread that waits to send is *parked with its operation*: the message still stands
//! in its registers and its message buffer, the request in [`Operation`]; the receiver takes it
//! from there, or the thread does the whole operation again. A thread that waits to receive has only
//! [`Part::wait_for`]; the sender writes the message into its context. So nothing is ever half
//! done, and a thread can be deleted at any point:
//!
//! * its senders, a queue in order of arrival through the thread table, do their operation again and find it gone;
//! * who waits for a message from it alone is told so (a scan, made only if somebody ever did);
//! * what it had begun itself is nothing but its state.
//!
//! `phases`: the two halves; `transfer`: one message; `trouble`: faults, exceptions and interrupts as
//! messages; `ending`: deletion; `fast`: the common case in few instructions; `apart`: the halves by themselves in few.
//!
//! **Time slices** pass along: if a thread waits for the one that it sent to, that one runs at once
//! on what is left of the slice, unless somebody more urgent is ready.

mod apart;
mod ending;
pub(in crate::bare) mod fast;
mod phases;
pub(in crate::bare) mod transfer;
mod trouble;

use abi::{
    Error,
    nucleus::{ITEMS_MAX, MESSAGE_WORDS, NEVER, TAG_ITEMS_SHIFT, TAG_KERNEL, TAG_WORDS},
};

use crate::{messages::Part, thread::Operation};
pub use apart::Apart;
pub use fast::Handover;
pub(in crate::bare) use trouble::INTERRUPT_TAG;

/// The receiving operation of a thread that waits, for it to be done again without its timeout.
pub(super) fn receiving(part: &Part) -> Operation {
    Request::new([0, part.wait_for, 0, abi::nucleus::NO_TIMEOUTS, part.window, 0]).operation()
}

/// The arguments of the operation.
#[derive(Copy, Clone, Debug)]
pub(in crate::bare) struct Request {
    pub to: u64,
    pub from: u64,
    pub tag: u64,
    pub timeouts: u64,
    pub window: u64,
}

impl Request {
    pub fn new([to, from, tag, timeouts, window, _]: [u64; 6]) -> Self {
        Self {
            to,
            from,
            tag,
            timeouts,
            window,
        }
    }

    /// The operation that this is.
    pub fn operation(&self) -> Operation {
        Operation {
            number: abi::nucleus::Call::Ipc as u64,
            arguments: [self.to, self.from, self.tag, self.timeouts, self.window, 0],
        }
    }

    /// Its receiving half.
    pub fn receiving(&self) -> Self {
        Self { to: 0, ..*self }
    }

    pub fn send_us(&self) -> u32 {
        (self.timeouts >> 32) as u32
    }

    pub fn receive_us(&self) -> u32 {
        self.timeouts as u32
    }
}

/// The deadline of a timeout that begins now.
fn deadline(now_ns: impl FnOnce() -> u64, timeout_us: u32) -> Option<u64> {
    (timeout_us != NEVER).then(|| now_ns() + u64::from(timeout_us) * 1000)
}

/// A tag that a program may send, taken apart.
#[derive(Copy, Clone, Debug)]
pub(in crate::bare) struct Tag {
    /// Words, those of items among them.
    pub words: usize,
    /// Items.
    pub items: usize,
    /// All of it, as it is.
    pub whole: u64,
}

impl Tag {
    pub fn parse(tag: u64) -> Result<Self, Error> {
        let items = tag >> TAG_ITEMS_SHIFT & 15;
        let words = (tag & TAG_WORDS) + 2 * items;
        let unused = tag & (1 << 7 | 0x7000 | TAG_KERNEL);
        if unused != 0 || items > ITEMS_MAX || words > MESSAGE_WORDS as u64 {
            return Err(Error::BadArgument);
        }
        Ok(Self {
            words: words as usize,
            items: items as usize,
            whole: tag,
        })
    }
}
