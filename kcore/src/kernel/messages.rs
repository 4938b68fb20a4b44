//! The part of a thread's record for messages and I/O ports, in every kernel: its place is fixed, because the fast paths in assembly
//! rest on it. Only the bare µ-kernel ([`crate::bare`]) sends messages; elsewhere all of it stays empty.

use core::mem::offset_of;

use abi::nucleus::{ANYONE, REGISTER_WORDS};

use super::Kernel;
use crate::{
    Frame, Half, Hardware, SpaceId, ThreadId,
    scheduler::List,
    smp::Processor,
    thread::{NO_TIME, State, Thread},
};

/// A thread's part for messages.
#[repr(C)]
pub struct Part {
    /// The sender that the thread waits for: a thread, an interrupt, or anyone; zero if it does not wait.
    pub(crate) wait_for: u64,
    /// The window in which it accepts fpages.
    pub(crate) window: u64,
    /// Interrupts that are to be delivered to it, a bit each.
    pub(crate) pending: u32,
    /// Interrupts that were delivered, and wait or are masked until it receives again.
    pub(crate) delivered: u32,
    /// The threads that have waited for a message from this thread: the bits of their places.
    awaited: u32,
    /// The bit of the thread's place, which every 32nd place shares.
    bit: u32,
    /// Threads that wait to send to it.
    pub(super) senders: List,
    /// Its message buffer, or [`Frame::NOWHERE`].
    buffer: Frame,
    /// Its waits that items are given in, counted: with another number it sends another message, or has another window.
    pub(crate) waits: u64,
    /// The fault or exception that it waits to have answered.
    pub(crate) trouble: Option<Trouble>,
}

/// The places that share a bit.
#[derive(Copy, Clone)]
pub(crate) struct Awaited(u32);

impl Awaited {
    /// Them, in a table of so many.
    pub(crate) fn places(self, count: usize) -> impl Iterator<Item = u32> {
        (self.0..count as u32).step_by(u32::BITS as usize)
    }
}

impl Part {
    // Offsets for the fast path in assembly.
    #![allow(missing_docs, reason = "each is the offset of the field of its name")]
    pub const WAIT_FOR: usize = offset_of!(Self, wait_for);
    pub const WINDOW: usize = offset_of!(Self, window);
    pub const AWAITED: usize = offset_of!(Self, awaited);
    pub const BIT: usize = offset_of!(Self, bit);
    pub const SENDERS: usize = offset_of!(Self, senders);
    pub const BUFFER: usize = offset_of!(Self, buffer);
    /// Of `pending`, with `delivered` behind it: together they are one word.
    pub const INTERRUPTS: usize = offset_of!(Self, pending);

    /// As [`Part::NONE`]. Each field by itself: what an option holds besides need not be written.
    #[inline]
    pub(crate) fn clear(&mut self, place: u32) {
        // All are named, so that a new one is not forgotten here.
        let Self {
            wait_for,
            window,
            pending,
            delivered,
            awaited,
            bit,
            senders,
            buffer,
            waits,
            trouble,
        } = self;
        (*wait_for, *window, *waits) = (0, 0, 0);
        (*pending, *delivered, *awaited) = (0, 0, 0);
        *bit = 1 << (place % u32::BITS);
        *senders = List::EMPTY;
        *buffer = Frame::NOWHERE;
        *trouble = None;
    }

    /// A thread waits for a message from this one.
    #[inline(always)]
    pub(crate) fn is_awaited_by(&mut self, bit: u32) {
        self.awaited |= bit;
    }

    /// The bit of the thread's place.
    #[inline(always)]
    pub(crate) fn bit(&self) -> u32 {
        self.bit
    }

    /// A bit of places whose threads may wait for a message from this one.
    pub(crate) fn awaited_by(&self) -> Option<Awaited> {
        (self.awaited != 0).then(|| Awaited(self.awaited.trailing_zeros()))
    }

    /// None of them waits any more.
    pub(crate) fn is_not_awaited_by(&mut self, bit: Awaited) {
        self.awaited &= !(1 << bit.0);
    }

    /// Whether it waits for a message from this sender: a thread, or an interrupt.
    #[inline(always)]
    pub(crate) fn waits_for(&self, sender: u64) -> bool {
        self.wait_for == ANYONE || self.wait_for == sender
    }

    /// Whether interrupts wait for it, or are masked until it receives again.
    #[inline(always)]
    pub(crate) fn has_interrupts(&self) -> bool {
        self.pending | self.delivered != 0
    }

    /// Its message buffer.
    #[inline(always)]
    pub(crate) fn buffer(&self) -> Option<Frame> {
        (self.buffer != Frame::NOWHERE).then_some(self.buffer)
    }

    /// It has this message buffer from now on; gives the one it had.
    pub(crate) fn set_buffer(&mut self, buffer: Option<Frame>) -> Option<Frame> {
        let before = self.buffer();
        self.buffer = buffer.unwrap_or(Frame::NOWHERE);
        before
    }

    /// The thread that has waited longest to send to this one, or [`crate::scheduler::NONE`].
    #[inline(always)]
    pub(crate) fn first_sender(&self) -> u32 {
        self.senders.head
    }

    /// Of a thread that has none.
    pub(crate) const NONE: Self = Self {
        wait_for: 0,
        window: 0,
        awaited: 0,
        bit: 0,
        senders: List::EMPTY,
        pending: 0,
        delivered: 0,
        buffer: Frame::NOWHERE,
        waits: 0,
        trouble: None,
    };
}

// In a thread's `slow`: why the fast paths do not serve it.
/// Its messages may go to its supervisor only.
pub(crate) const SUPERVISED: u32 = 1;
/// Its space's I/O ports are on, and must be turned off when another space runs.
pub(crate) const PORTS: u32 = 2;
/// It waits for the answer to a fault.
pub(crate) const WAITS: u32 = 4;
/// The server looks at its protected calls and returns, and its waits are counted: in no kernel with messages.
pub(crate) const INTERCEPTED: u32 = 8;
/// It uses a vector unit that no single instruction gives its initial state.
pub(crate) const OLD_UNIT: u32 = 16;
/// It waits, and items of a message are being given to it.
pub(crate) const TAKES: u32 = 32;
/// Its end has begun, which takes several pieces.
pub(crate) const ENDS: u32 = 64;

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

/// The doors through which messages change threads. A thread's wait and its list change here and nowhere in [`crate::bare`].
impl Thread {
    /// It has a message, and is the current one of this processor, under this index.
    #[inline(always)]
    fn receives_at_once(&mut self, processor: &mut Processor, index: u32) {
        debug_assert!(
            self.state == State::Receiving && self.slow & TAKES == 0,
            "a message for a thread that waits for none, or takes another one"
        );
        self.ipc.wait_for = 0;
        self.slow &= !WAITS;
        self.deadline_ns = NO_TIME;
        self.state = State::Running;
        self.processor = processor.number;
        self.unbegun = false;
        processor.current = index;
        processor.upset = true;
    }

    /// It has sent, and waits for a message.
    #[inline(always)]
    pub(crate) fn has_sent(&mut self, (rip, rsp): (u64, u64), from: u64, window: u64, deadline_ns: u64) {
        (self.context.rip, self.context.rsp) = (rip, rsp);
        self.vectors = self.vectors.dropped();
        self.receive(from, window);
        self.deadline_ns = deadline_ns;
    }

    /// It is in trouble, and waits for its helper.
    #[inline(always)]
    pub(crate) fn is_in_trouble(&mut self, trouble: Trouble, helper: u64) {
        self.ipc.trouble = Some(trouble);
        self.receive(helper, 0);
        self.slow |= WAITS;
    }
}

impl<H: Hardware, P: Half> Kernel<H, P> {
    /// A thread's part for messages.
    #[inline(always)]
    pub(crate) fn messages_of(&mut self, index: u32) -> &mut Part {
        &mut self.threads.table[index as usize].ipc
    }

    /// The thread behind this one that waits to send to the same one, or [`crate::scheduler::NONE`].
    pub(crate) fn next_sender(&self, sender: u32) -> u32 {
        self.links[sender as usize].next()
    }

    /// Puts a thread that is in no list behind the others that send to `to`.
    pub(crate) fn wait_to_send(&mut self, sender: u32, to: u32, until: Option<u64>) {
        let thread = &mut self.threads.table[sender as usize];
        thread.state = State::Sending(to);
        thread.ipc.waits += 1;
        if let Some(at_ns) = until {
            self.set_deadline(sender, at_ns);
        }
        let queue = &mut self.threads.table[to as usize].ipc.senders;
        queue.push_back(&mut self.links, sender);
    }

    /// A thread that is in no list waits for a message.
    pub(crate) fn wait_to_receive(&mut self, me: u32, from: u64, window: u64, until: Option<u64>) {
        if let Some(partner) = self.threads.find(ThreadId(from)) {
            let bit = self.threads.table[me as usize].ipc.bit;
            self.threads.table[partner as usize].ipc.is_awaited_by(bit);
        }
        let thread = &mut self.threads.table[me as usize];
        thread.operation = None;
        if thread.ipc.trouble.is_none() {
            thread.vectors = thread.vectors.dropped();
        }
        thread.receive(from, window);
        if let Some(at_ns) = until {
            self.set_deadline(me, at_ns);
        }
    }

    /// The registers of a thread in trouble stay as they are, which the fast path does not know.
    pub(crate) fn waits_as_it_is(&mut self, index: u32) {
        self.threads.table[index as usize].slow |= WAITS;
    }

    /// A thread's end has begun.
    pub(crate) fn begin_end(&mut self, index: u32) {
        self.threads.table[index as usize].slow |= ENDS;
    }

    /// Whether a thread's end has begun.
    #[inline(always)]
    pub(crate) fn is_ending(&self, index: u32) -> bool {
        self.threads.table[index as usize].slow & ENDS != 0
    }

    /// A thread that waits is being given items, until its wait ends. No fast path ends it, so that it is counted.
    pub(crate) fn begin_giving(&mut self, receiver: u32) {
        self.threads.table[receiver as usize].slow |= TAKES;
    }

    /// Takes a receiver out of its wait; it is in no list then. A running thread goes on running.
    pub(crate) fn end_wait(&mut self, receiver: u32) {
        let thread = &mut self.threads.table[receiver as usize];
        thread.ipc.wait_for = 0;
        thread.ipc.waits += u64::from(thread.slow & TAKES != 0);
        thread.slow &= !(WAITS | TAKES);
        if thread.state == State::Receiving {
            thread.state = State::Suspended;
        }
        thread.deadline_ns = NO_TIME;
    }

    /// Whether a thread that is in no list can run here at once.
    #[inline(always)]
    pub(crate) fn may_run(&self, thread: &Thread) -> bool {
        thread.can_run_on(self.processor.number) && !self.processor.queues.any_of(thread.more_urgent)
    }

    /// A thread that waits for a message has one, and runs instead of the current one, which waits from now on: it is [told](Thread::has_sent) for what. Both, in this order.
    #[inline(always)]
    pub(crate) fn pass_at_once(&mut self, receiver: u32) -> Option<(&mut Thread, &mut Thread)> {
        let processor = &mut *self.processor;
        let both = [receiver, processor.current].map(|index| index as usize);
        let [thread, current] = self.threads.table.get_disjoint_mut(both).ok()?;
        thread.receives_at_once(processor, receiver);
        Some((thread, current))
    }

    /// The same, of a current one that does not wait.
    #[inline(always)]
    pub(crate) fn receive_at_once(&mut self, receiver: u32) -> Option<&mut Thread> {
        let thread = self.threads.table.get_mut(receiver as usize)?;
        thread.receives_at_once(&mut self.processor, receiver);
        Some(thread)
    }

    /// The thread with this index is in trouble no more: its helper has answered. The caller lets it run next.
    #[inline(always)]
    pub(crate) fn trouble_is_over(&mut self, index: u32) {
        if let Some(thread) = self.threads.table.get_mut(index as usize) {
            thread.ipc.trouble = None;
            thread.slow &= !WAITS;
        }
    }

    /// The running thread goes behind others of its priority here, and a slice begins: for a thread that an interrupt lets run at once.
    #[inline(always)]
    pub(crate) fn make_room(&mut self) {
        self.account();
        if let Some(index) = self.current() {
            self.enqueue_at(index, self.processor.number);
        }
        self.begin_slice(self.processor.since_ns);
    }

    /// The messages of a new thread go to its supervisor only.
    pub(crate) fn supervise_one(&mut self, index: u32) {
        self.threads.table[index as usize].slow = SUPERVISED;
    }

    /// The messages of threads in a space go to its supervisor only, or no longer.
    pub(crate) fn supervise(&mut self, space: SpaceId, is_supervised: bool) {
        for thread in self.threads.table.iter_mut().filter(|thread| thread.space == space) {
            thread.slow = thread.slow & !SUPERVISED | u32::from(is_supervised);
        }
    }

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
