//! Synchronous messages between threads (Liedtke 1995, section 2.2; `docs/design/microkernel.md`).
//!
//! One operation sends and then receives: either half may be left out, and a call is both with the
//! same partner. A thread that waits to send is *parked with its operation*: the message still stands
//! in its registers and its message buffer, the request in [`Operation`]; whoever receives takes it
//! from there, or the thread does the whole operation again. A thread that waits to receive has only
//! [`Part::wait_for`]; whoever sends writes the message into its context. So nothing is ever half
//! done, and a thread can be deleted at any point:
//!
//! * its senders, a queue in order of arrival through the thread table, do their operation again and find it gone;
//! * who waits for a message from it alone is told so (a scan, made only if somebody ever did);
//! * what it had begun itself is nothing but its state.
//!
//! `phases`: the two halves; `transfer`: one message; `trouble`: faults, exceptions and interrupts as
//! messages; `ending`: deletion; `fast`: the common case in few instructions.
//!
//! **Time slices** pass along: if a thread waits for the one that it sent to, that one runs at once
//! on what is left of the slice, unless somebody more urgent is ready.

mod ending;
mod fast;
mod phases;
pub(crate) mod transfer;
mod trouble;

use abi::{
    Error,
    nucleus::{ITEMS_MAX, MESSAGE_WORDS, NEVER, REGISTER_WORDS, TAG_ITEMS_SHIFT, TAG_KERNEL, TAG_WORDS},
};

use core::mem::offset_of;

use crate::{
    Frame, Hardware, Kernel, ThreadId,
    scheduler::List,
    thread::{Operation, THREADS_MAX},
};
pub use fast::Handover;
pub(crate) use trouble::INTERRUPT_TAG;

/// What a thread has for messages.
#[repr(C)]
pub struct Part {
    /// Whose message the thread waits for: a thread, an interrupt, or anyone; zero if it does not.
    pub(crate) wait_for: u64,
    /// Where it accepts fpages.
    pub(crate) window: u64,
    /// Interrupts that are to be delivered to it, a bit each.
    pub(crate) pending: u32,
    /// Interrupts that were delivered, and wait or are masked until it receives again.
    pub(crate) delivered: u32,
    /// Not zero once somebody waited for a message from this thread alone.
    pub(crate) awaited: u32,
    /// Threads that wait to send to it.
    pub(crate) senders: List,
    /// Its message buffer.
    pub(crate) buffer: Option<Frame>,
    /// The fault or exception that it waits to have answered.
    pub(crate) trouble: Option<Trouble>,
}

impl Part {
    // Offsets for the fast path in assembly.
    #![allow(missing_docs, reason = "each is the offset of the field of its name")]
    pub const WAIT_FOR: usize = offset_of!(Self, wait_for);
    pub const WINDOW: usize = offset_of!(Self, window);
    pub const AWAITED: usize = offset_of!(Self, awaited);
    pub const SENDERS: usize = offset_of!(Self, senders);
    /// Of `pending`, with `delivered` behind it: together they are one word.
    pub const INTERRUPTS: usize = offset_of!(Self, pending);

    /// The receiving operation of a thread that waits, for it to be done again without its timeout.
    pub(crate) fn receiving(&self) -> Operation {
        Request::new([0, self.wait_for, 0, abi::nucleus::NO_TIMEOUTS, self.window, 0]).operation()
    }

    /// As [`Part::NONE`]. Each field by itself: what an option holds besides need not be written.
    #[inline]
    pub(crate) fn clear(&mut self) {
        // All are named, so that a new one is not forgotten here.
        let Self {
            wait_for,
            window,
            pending,
            delivered,
            awaited,
            senders,
            buffer,
            trouble,
        } = self;
        (*wait_for, *window) = (0, 0);
        (*pending, *delivered, *awaited) = (0, 0, 0);
        *senders = List::EMPTY;
        *buffer = None;
        *trouble = None;
    }

    /// Of a thread that has none.
    pub(crate) const NONE: Self = Self {
        wait_for: 0,
        window: 0,
        awaited: 0,
        senders: List::EMPTY,
        pending: 0,
        delivered: 0,
        buffer: None,
        trouble: None,
    };
}

// In a thread's `slow`: why the fast path does not serve it.
/// Its messages may go to its supervisor only.
pub(crate) const SUPERVISED: u32 = 1;
/// Its space's I/O ports are on, and must be turned off when another space runs.
pub(crate) const PORTS: u32 = 2;
/// It waits with a deadline, or for the answer to a fault.
pub(crate) const WAITS: u32 = 4;

const _: () = assert!(Part::INTERRUPTS.is_multiple_of(8) && offset_of!(Part, delivered) == Part::INTERRUPTS + 4);
const _: () = assert!(abi::nucleus::INTERRUPTS == 32, "a bit each");

/// A fault or another exception, as the message that tells of it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// `LABEL_FAULT` or `LABEL_EXCEPTION`.
    pub label: u64,
    /// The message.
    pub words: [u64; REGISTER_WORDS],
}

impl<H: Hardware> Kernel<H> {
    /// The thread with this index runs with ports that are on: its messages take the general path, which turns them off for others.
    pub fn with_ports(&mut self, index: u32) {
        self.threads.table[index as usize].slow |= PORTS;
    }

    /// The ports that one thread ran with here are those that the one with this index runs with now, of the same space.
    #[inline]
    pub fn pass_ports(&mut self, from: ThreadId, to: u32) {
        self.left_ports(from);
        self.with_ports(to);
    }

    /// The ports that a thread ran with here are off, or another's. One that went on elsewhere may have them on there.
    #[inline]
    pub fn left_ports(&mut self, from: ThreadId) {
        let left = &mut self.threads.table[from.index() % THREADS_MAX];
        if left.id == from && left.processor == self.processor.number {
            left.slow &= !PORTS;
        }
    }

    /// The thread with this index runs without ports, whatever it had elsewhere.
    #[inline]
    pub fn without_ports(&mut self, index: u32) {
        self.threads.table[index as usize].slow &= !PORTS;
    }
}

/// The arguments of the operation.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Request {
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
fn deadline(now_ns: u64, timeout_us: u32) -> Option<u64> {
    (timeout_us != NEVER).then(|| now_ns + u64::from(timeout_us) * 1000)
}

/// A tag that a program may send, taken apart.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Tag {
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
