//! What a thread's record holds for messages and for I/O ports, whoever answers: its place is fixed, because the fast paths in assembly
//! rest on it. Only the bare µ-kernel ([`crate::bare`]) sends messages; elsewhere all of it stays empty.

use core::mem::offset_of;

use abi::nucleus::REGISTER_WORDS;

use crate::{Frame, Hardware, Kernel, ThreadId, scheduler::List};

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

impl<H: Hardware, P: crate::Half> Kernel<H, P> {
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
        let left = &mut self.threads.table[from.index()];
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
