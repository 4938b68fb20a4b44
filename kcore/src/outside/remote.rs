//! The server's end: [`Machine`] by machine calls.

use core::ops::Range;

use abi::{
    Error, Rights,
    layout::BootReport,
    machine::MachineCall::{self, self as M},
};

use super::{FRAME_WORDS, frame_from_words, upcall_of};
use crate::{
    Frame, Leaf, Machine, PageEntry, Shortage, SpaceId, ThreadId,
    machine::{Intercept, Stacks},
    paging::{decode_page, encode_page},
    portal::Stale,
    scheduler::Standing,
    thread::{Context, PortalFrame, Resumed},
    wait::Key,
};

/// The way from the server to the kernel, and to memory.
pub trait Gate {
    /// Makes a machine call.
    ///
    /// # Errors
    /// As the kernel answers.
    fn call(&self, call: MachineCall, arguments: [u64; 6]) -> Result<(u64, u64), Error>;
    /// The number of the exchange page's frame.
    fn exchange(&self) -> u32;
    /// Reads bytes of a frame.
    fn read(&self, frame: Frame, offset: usize, into: &mut [u8]);
    /// Writes bytes of a frame.
    fn write(&self, frame: Frame, offset: usize, from: &[u8]);
    /// Copies a frame.
    fn copy(&self, from: Frame, to: Frame);
    /// The entry of a leaf.
    fn entry(&self, leaf: Leaf, index: usize) -> u64;
    /// Bytes of the server's heap in use, and how many it may still take.
    fn heap(&self) -> (u64, u64);
}

/// The kernel, seen from outside.
pub struct Remote<G> {
    /// The way to it.
    pub gate: G,
}

/// Arguments padded to six.
const fn padded<const N: usize>(given: [u64; N]) -> [u64; 6] {
    let mut all = [0; 6];
    let mut index = 0;
    while index < N {
        all[index] = given[index];
        index += 1;
    }
    all
}

impl<G> Remote<G> {
    /// Instructions that a machine call costs beside what it does, roughly: the way to the kernel and back.
    pub const CALL: u64 = 180;
}

impl<G: Gate> Remote<G> {
    /// A call that cannot fail unless this server is wrong.
    ///
    /// # Panics
    /// If the kernel refuses it. The server is contained: see the decision.
    fn must<const N: usize>(&self, call: M, arguments: [u64; N]) -> (u64, u64) {
        match self.gate.call(call, padded(arguments)) {
            Ok(values) => values,
            Err(error) => panic!("the kernel refuses {call:?}{arguments:x?}: {error}"),
        }
    }

    /// A call that the kernel may be short for.
    fn may<const N: usize>(&self, call: M, arguments: [u64; N], short: Shortage) -> Result<u64, Shortage> {
        match self.gate.call(call, padded(arguments)) {
            Ok((value, _)) => Ok(value),
            Err(Error::NoMemory) => Err(Shortage::Frames),
            Err(Error::TableFull) => Err(short),
            Err(error) => panic!("the kernel refuses {call:?}{arguments:x?}: {error}"),
        }
    }

    /// Tells whether there is work left that waits for nothing.
    pub fn tell_unfinished(&self, unfinished: bool) {
        self.must(M::Unfinished, [u64::from(unfinished)]);
    }

    fn exchange(&self) -> Frame {
        Frame::named(self.gate.exchange())
    }

    /// Words of the exchange page.
    pub fn exchanged<const N: usize>(&self) -> [u64; N] {
        let mut words = [0; N];
        for (index, word) in words.iter_mut().enumerate() {
            let mut bytes = [0; 8];
            self.gate.read(self.exchange(), index * 8, &mut bytes);
            *word = u64::from_le_bytes(bytes);
        }
        words
    }

    /// Puts words on the exchange page.
    pub fn put<const N: usize>(&self, words: [u64; N]) {
        for (index, word) in words.iter().enumerate() {
            self.gate.write(self.exchange(), index * 8, &word.to_le_bytes());
        }
    }

    /// Puts text on the exchange page; tells how much fits.
    pub fn put_bytes(&self, bytes: &[u8]) -> usize {
        let length = bytes.len().min(4096);
        self.gate.write(self.exchange(), 0, &bytes[..length]);
        length
    }
}

/// Gathers a line of the log.
struct Line {
    bytes: [u8; 512],
    length: usize,
}

impl core::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = &mut self.bytes[self.length..];
        let length = text.len().min(room.len());
        room[..length].copy_from_slice(&text.as_bytes()[..length]);
        self.length += length;
        Ok(())
    }
}

impl<G: Gate> Machine for Remote<G> {
    fn frame_zeroed(&mut self) -> Result<Frame, Shortage> {
        let frame = self.may(M::FrameZeroed, [], Shortage::Frames)?;
        Ok(Frame::named(frame as u32))
    }

    fn frame_any(&mut self) -> Result<Frame, Shortage> {
        let frame = self.may(M::FrameAny, [], Shortage::Frames)?;
        Ok(Frame::named(frame as u32))
    }

    fn frame_share(&mut self, frame: Frame) {
        self.must(M::FrameShare, [u64::from(frame.number())]);
    }

    fn frame_release(&mut self, frame: Frame) {
        self.must(M::FrameRelease, [u64::from(frame.number())]);
    }

    fn frame_references(&self, frame: Frame) -> u32 {
        self.must(M::FrameReferences, [u64::from(frame.number())]).0 as u32
    }

    fn frame_hold(&mut self, frame: Frame) {
        self.must(M::FrameHold, [u64::from(frame.number())]);
    }

    fn frame_is_held(&self, frame: Frame) -> bool {
        self.must(M::FrameReferences, [u64::from(frame.number())]).1 != 0
    }

    fn frame_let_go(&mut self, frame: Frame) {
        self.must(M::FrameLetGo, [u64::from(frame.number())]);
    }

    fn frame_found(&self, number: u32) -> Option<Frame> {
        // The kernel says no in every call to a number that it does not know.
        Some(Frame::named(number))
    }

    fn frame_copy(&mut self, from: Frame, to: Frame) {
        self.gate.copy(from, to);
    }

    fn frame_read(&self, frame: Frame, offset: usize, into: &mut [u8]) {
        self.gate.read(frame, offset, into);
    }

    fn frame_write(&mut self, frame: Frame, offset: usize, from: &[u8]) {
        self.gate.write(frame, offset, from);
    }

    fn frames_free(&self) -> u64 {
        self.must(M::FrameCounts, []).0
    }

    fn kernel_frames(&self) -> u64 {
        self.must(M::KernelFrames, []).0
    }

    fn frames_total(&self) -> u64 {
        self.must(M::FrameCounts, []).1
    }

    fn leaf_create(&mut self) -> Result<Leaf, Shortage> {
        let frame = self.may(M::LeafCreate, [], Shortage::Frames)?;
        Ok(Leaf::named(Frame::named(frame as u32)))
    }

    fn leaf_destroy(&mut self, leaf: Leaf) {
        self.must(M::LeafDestroy, [u64::from(leaf.frame().number())]);
    }

    fn leaf_get(&self, leaf: Leaf, index: usize) -> Option<PageEntry> {
        decode_page(self.gate.entry(leaf, index))
    }

    fn leaf_set(&mut self, leaf: Leaf, index: usize, entry: Option<PageEntry>) {
        self.must(
            M::LeafSet,
            [u64::from(leaf.frame().number()), index as u64, encode_page(entry)],
        );
    }

    fn leaf_share(&mut self, from: Leaf, entries: Range<usize>, to: Leaf, at: usize) -> bool {
        let [from, to] = [from, to].map(|leaf| u64::from(leaf.frame().number()));
        let [index, count, at] = [entries.start, entries.len(), at].map(|number| number as u64);
        self.must(M::LeafShare, [from, index, count, to, at]).0 != 0
    }

    fn leaf_clear(&mut self, leaf: Leaf, entries: Range<usize>) {
        let [index, count] = [entries.start, entries.len()].map(|number| number as u64);
        self.must(M::LeafClear, [u64::from(leaf.frame().number()), index, count]);
    }

    fn space_create(&mut self) -> Result<SpaceId, Shortage> {
        let space = self.may(M::SpaceCreate, [], Shortage::Spaces)?;
        Ok(SpaceId(space as u32))
    }

    fn space_destroy(&mut self, space: SpaceId) {
        self.must(M::SpaceDestroy, [u64::from(space.0)]);
    }

    fn space_trim(&mut self, space: SpaceId, work: u64) -> Option<u64> {
        let left = self.must(M::SpaceTrim, [u64::from(space.0), work]).0;
        left.checked_sub(1)
    }

    fn link(&mut self, space: SpaceId, slot: u64, leaf: Leaf, rights: Rights) -> Result<(), Shortage> {
        let arguments = [
            u64::from(space.0),
            slot,
            u64::from(leaf.frame().number()),
            u64::from(rights.bits()),
        ];
        self.may(M::Link, arguments, Shortage::Frames).map(|_| ())
    }

    fn unlink(&mut self, space: SpaceId, slot: u64) {
        self.must(M::Unlink, [u64::from(space.0), slot]);
    }

    fn flush_space(&mut self, space: SpaceId) {
        self.must(M::FlushSpace, [u64::from(space.0)]);
    }

    fn flush_page(&mut self, address: u64) {
        self.must(M::FlushPage, [address]);
    }

    fn flush_everything(&mut self) {
        self.must(M::FlushEverything, []);
    }

    fn space_tables(&self, space: SpaceId) -> u64 {
        self.must(M::SpaceTables, [u64::from(space.0)]).0
    }

    fn thread_create(
        &mut self,
        space: SpaceId,
        rip: u64,
        rsp: u64,
        arguments: [u64; 4],
        standing: Standing,
    ) -> Result<ThreadId, Shortage> {
        self.put(arguments);
        let (priority, share) = (u64::from(standing.priority()), u64::from(standing.share()));
        let call = [u64::from(space.0), rip, rsp, priority, share];
        self.may(M::ThreadCreate, call, Shortage::Threads).map(ThreadId)
    }

    fn thread_destroy(&mut self, thread: ThreadId) {
        self.must(M::ThreadDestroy, [thread.0]);
    }

    fn thread_wake(&mut self, thread: ThreadId, resumed: Resumed) {
        self.must(M::ThreadWake, [thread.0, upcall_of(resumed) as u64]);
    }

    fn thread_suspend(&mut self, thread: ThreadId) {
        self.must(M::ThreadSuspend, [thread.0]);
    }

    fn wake(&mut self, key: Key, count: u32) -> u32 {
        let (kind, value) = key.to_words();
        self.must(M::Wake, [kind, value, u64::from(count)]).0 as u32
    }

    fn wake_words(&mut self, addresses: Range<u64>) -> u32 {
        self.must(M::WakeWords, [addresses.start, addresses.end]).0 as u32
    }

    fn oldest(&self, key: Key) -> Option<(ThreadId, SpaceId)> {
        let (kind, value) = key.to_words();
        let (thread, space) = self.must(M::Oldest, [kind, value]);
        (thread != 0).then_some((ThreadId(thread), SpaceId(space as u32)))
    }

    fn thread_can_be_answered(&self, _: ThreadId, _: Key) -> bool {
        // It would run where the server does. It is woken, and does its call again.
        false
    }

    fn thread_answer(&mut self, thread: ThreadId, value: u64, value2: u64) {
        self.must(M::ThreadAnswer, [thread.0, value, value2]);
    }

    fn thread_is_ready(&self, thread: ThreadId) -> bool {
        self.must(M::ThreadIsReady, [thread.0]).0 != 0
    }

    fn thread_space(&self, thread: ThreadId) -> SpaceId {
        SpaceId(self.must(M::ThreadSpace, [thread.0]).0 as u32)
    }

    fn thread_context(&self, thread: ThreadId) -> Context {
        self.must(M::ThreadContext, [thread.0]);
        Context::from_words(self.exchanged())
    }

    fn thread_set_context(&mut self, thread: ThreadId, context: &Context) {
        self.put(context.to_words());
        self.must(M::ThreadSetContext, [thread.0]);
    }

    fn thread_drop_operation(&mut self, thread: ThreadId) -> bool {
        self.must(M::ThreadDropOperation, [thread.0]).0 != 0
    }

    fn thread_time_ns(&self, thread: ThreadId) -> u64 {
        self.must(M::ThreadTime, [thread.0]).0
    }

    fn thread_waited_ns(&self, thread: ThreadId) -> u64 {
        self.must(M::ThreadWaited, [thread.0]).0
    }

    fn thread_set_priority(&mut self, thread: ThreadId, priority: u8) {
        self.must(M::ThreadSetPriority, [thread.0, u64::from(priority)]);
    }

    fn share_open(&mut self, share: u32, parent: u32, bound: u64) -> Result<(), Shortage> {
        let call = [u64::from(share), u64::from(parent), bound];
        self.may(M::ShareOpen, call, Shortage::Frames).map(|_| ())
    }

    fn share_told(&self, share: u32) -> (u64, u64) {
        self.must(M::ShareTold, [u64::from(share)])
    }

    fn portal_enter(
        &mut self,
        thread: ThreadId,
        callee: SpaceId,
        entry: u64,
        arguments: [u64; 4],
        stacks: Stacks,
    ) -> Option<()> {
        self.put(arguments);
        let all = u64::from(stacks == Stacks::All);
        let entered = self.must(M::PortalEnter, [thread.0, u64::from(callee.0), entry, all]).0;
        (entered != 0).then_some(())
    }

    fn portal_leave(&mut self, thread: ThreadId, error: u64, value: u64, value2: u64) -> Option<PortalFrame> {
        let left = self.must(M::PortalLeave, [thread.0, error, value, value2]).0;
        (left != 0).then(|| frame_from_words(self.exchanged::<FRAME_WORDS>()))
    }

    fn portal_depth(&self, thread: ThreadId) -> usize {
        self.must(M::PortalDepth, [thread.0]).0 as usize
    }

    fn portal_frame(&self, thread: ThreadId, index: usize) -> Option<PortalFrame> {
        let there = self.must(M::PortalFrame, [thread.0, index as u64]).0;
        (there != 0).then(|| frame_from_words(self.exchanged::<FRAME_WORDS>()))
    }

    fn portal_cache(&mut self, caller: SpaceId, entry: u64, pd: u64, callee: SpaceId) {
        let arguments = [u64::from(caller.0), entry, pd, u64::from(callee.0)];
        self.must(M::PortalCache, arguments);
    }

    /// Not asked for: the server's own search takes about as long as a machine call.
    fn portal_known(&self, _: SpaceId, _: u64, _: u64) -> Option<SpaceId> {
        None
    }

    fn portal_forget(&mut self, stale: Stale) {
        let (which, space) = match stale {
            Stale::All => (0, SpaceId(0)),
            Stale::CallsOf(space) => (1, space),
            Stale::CallsInto(space) => (2, space),
        };
        self.must(M::PortalForget, [which, u64::from(space.0)]);
    }

    fn portal_intercept(&mut self, thread: ThreadId, intercept: Intercept) {
        let wanted = u64::from(intercept == Intercept::Yes);
        self.must(M::PortalInterceptReturn, [thread.0, wanted]);
    }

    fn portal_free_stacks(&self, callee: SpaceId) -> usize {
        self.must(M::PortalFreeStacks, [u64::from(callee.0)]).0 as usize
    }

    fn portal_add_stack(&mut self, callee: SpaceId, top: u64) {
        self.must(M::PortalAddStack, [u64::from(callee.0), top]);
    }

    fn now_ns(&self) -> u64 {
        self.must(M::Now, []).0
    }

    fn boot_time_ns(&self) -> u64 {
        self.must(M::Now, []).1
    }

    fn random(&mut self) -> u64 {
        self.must(M::Random, []).0
    }

    fn stir_random(&mut self, words: [u64; 2]) {
        self.must(M::StirRandom, words);
    }

    fn console_write(&mut self, stream: u64, bytes: &[u8]) -> usize {
        let length = self.put_bytes(bytes);
        self.must(M::ConsoleWrite, [stream, length as u64]).0 as usize
    }

    fn console_read(&mut self, stream: u64) -> Option<u8> {
        let (byte, there) = self.must(M::ConsoleRead, [stream]);
        (there != 0).then_some(byte as u8)
    }

    fn log(&mut self, line: core::fmt::Arguments<'_>) {
        let mut text = Line {
            bytes: [0; 512],
            length: 0,
        };
        // A line that is too long ends early.
        let _ = core::fmt::write(&mut text, line);
        let length = self.put_bytes(&text.bytes[..text.length]);
        self.must(M::Log, [length as u64]);
    }

    fn heap(&self) -> (u64, u64) {
        self.gate.heap()
    }

    fn stop(&mut self, exit: u8) {
        self.must(M::Stop, [u64::from(exit)]);
    }

    fn boot_report(&self) -> BootReport {
        self.must(M::BootReport, []);
        BootReport::from_words(self.exchanged())
    }
}
