//! [`Machine`] for the server, on the kernel's own tables.

use core::{ops::Range, sync::atomic::Ordering::Relaxed};

use abi::{Rights, layout::BootReport};

use super::{Kernel, messages::INTERCEPTED};
use crate::{
    Frame, Half, Hardware, Leaf, Machine, PageEntry, Shortage, SpaceId, ThreadId,
    machine::{Intercept, Stacks},
    paging::{decode_page, encode_page, frame_of, is_present, unused, withhold},
    portal::Stale,
    scheduler::Standing,
    smp::{Processors, Request},
    thread::{Context, NO_TIME, PortalFrame, Resumed, State},
    trace::Kind,
    wait::Key,
};

impl<H: Hardware, P: Half> Machine for Kernel<H, P> {
    #[inline]
    fn frame_zeroed(&mut self) -> Result<Frame, Shortage> {
        self.frames.take_zeroed(&mut self.hardware)
    }

    fn frame_any(&mut self) -> Result<Frame, Shortage> {
        self.frames.take_any()
    }

    fn frame_share(&mut self, frame: Frame) {
        self.frames.share(frame);
    }

    fn frame_release(&mut self, frame: Frame) {
        self.frames.release(frame);
    }

    fn frame_references(&self, frame: Frame) -> u32 {
        self.frames.references(frame)
    }

    fn frame_hold(&mut self, frame: Frame) {
        self.frames.hold(frame);
    }

    fn frame_is_held(&self, frame: Frame) -> bool {
        self.frames.is_held(frame)
    }

    fn frame_let_go(&mut self, frame: Frame) {
        self.frames.let_go(frame);
    }

    fn frame_found(&self, number: u32) -> Option<Frame> {
        self.frames.find(number)
    }

    fn frame_copy(&mut self, from: Frame, to: Frame) {
        self.hardware.copy(from, to);
    }

    fn frame_read(&self, frame: Frame, offset: usize, into: &mut [u8]) {
        self.hardware.read(frame, offset, into);
    }

    fn frame_write(&mut self, frame: Frame, offset: usize, from: &[u8]) {
        self.hardware.write(frame, offset, from);
    }

    fn frames_free(&self) -> u64 {
        self.frames.free()
    }

    fn kernel_frames(&self) -> u64 {
        self.hardware.kernel_frames() + self.frames.kept()
    }

    fn frames_total(&self) -> u64 {
        self.frames.total()
    }

    fn leaf_create(&mut self) -> Result<Leaf, Shortage> {
        self.frames.take_zeroed(&mut self.hardware).map(Leaf::named)
    }

    fn leaf_destroy(&mut self, leaf: Leaf) {
        let linked = self.frames.references(leaf.frame()) > 1;
        debug_assert!(!linked, "a leaf is destroyed while it is linked");
        debug_assert!(
            self.hardware
                .table(leaf.frame())
                .iter()
                .all(|entry| entry.load(Relaxed) == 0),
            "a leaf is destroyed while it has entries"
        );
        if linked {
            // Its memory stays until the last link goes; better a leak than a dangling table.
            self.frames.release(leaf.frame());
        } else {
            self.frames.release_zeroed(leaf.frame());
        }
    }

    #[inline]
    fn leaf_get(&self, leaf: Leaf, index: usize) -> Option<PageEntry> {
        decode_page(self.hardware.table(leaf.frame())[index].load(Relaxed))
    }

    #[inline]
    fn leaf_set(&mut self, leaf: Leaf, index: usize, entry: Option<PageEntry>) {
        self.hardware.table(leaf.frame())[index].store(encode_page(entry), Relaxed);
    }

    #[inline]
    fn leaf_share(&mut self, from: Leaf, entries: Range<usize>, to: Leaf, at: usize) -> bool {
        let (from, to) = (self.hardware.table(from.frame()), self.hardware.table(to.frame()));
        let mut took = false;
        for (entry, copy) in from[entries].iter().zip(&to[at..]) {
            let before = entry.load(Relaxed);
            let shared = withhold(before);
            if shared != before {
                entry.store(shared, Relaxed);
                took = true;
            }
            copy.store(unused(shared), Relaxed);
            if is_present(before) {
                self.frames.share(frame_of(before));
            }
        }
        took
    }

    #[inline]
    fn leaf_clear(&mut self, leaf: Leaf, entries: Range<usize>) {
        for entry in &self.hardware.table(leaf.frame())[entries] {
            let before = entry.load(Relaxed);
            entry.store(0, Relaxed);
            if is_present(before) {
                self.frames.release(frame_of(before));
            }
        }
    }

    fn space_create(&mut self) -> Result<SpaceId, Shortage> {
        self.spaces.create(&mut self.frames, &mut self.hardware)
    }

    fn space_destroy(&mut self, space: SpaceId) {
        self.leave_everywhere(space);
        self.spaces.destroy(space, &mut self.frames, &mut self.hardware);
    }

    fn space_trim(&mut self, space: SpaceId, work: u64) -> Option<u64> {
        self.leave_everywhere(space);
        self.spaces.trim(space, work, &mut self.frames, &mut self.hardware)
    }

    fn link(&mut self, space: SpaceId, slot: u64, leaf: Leaf, rights: Rights) -> Result<(), Shortage> {
        self.spaces
            .link(space, slot, leaf, rights, &mut self.frames, &mut self.hardware)
    }

    fn unlink(&mut self, space: SpaceId, slot: u64) {
        self.spaces.unlink(space, slot, &mut self.frames, &mut self.hardware);
    }

    fn flush_space(&mut self, space: SpaceId) {
        self.forget_translations(space);
        self.ask_inside(space, Request::Forget);
    }

    fn flush_page(&mut self, address: u64) {
        self.spaces.forget_all();
        self.hardware.flush_page(address);
        self.ask_all(Request::ForgetPage(address));
    }

    fn flush_everything(&mut self) {
        self.spaces.forget_all();
        self.hardware.flush_everything();
        self.ask_all(Request::Forget);
    }

    fn space_tables(&self, space: SpaceId) -> u64 {
        self.spaces.get(space).table_count()
    }

    #[inline]
    fn thread_create(
        &mut self,
        space: SpaceId,
        rip: u64,
        rsp: u64,
        arguments: [u64; 4],
        standing: Standing,
    ) -> Result<ThreadId, Shortage> {
        if self.threads.is_full() {
            self.more_threads()?;
        }
        self.threads.create(space, rip, rsp, arguments, standing)
    }

    fn thread_destroy(&mut self, thread: ThreadId) {
        if let Some(index) = self.threads.find(thread) {
            self.hardware.trace(Kind::End, thread, 0);
            self.detach(index);
            self.forget_timer(index);
            P::thread_ends(self, index);
            self.threads.remove(index);
        }
    }

    fn thread_wake(&mut self, thread: ThreadId, resumed: Resumed) {
        if let Some(index) = self.threads.find(thread) {
            self.wake_index(index, resumed);
        }
    }

    fn thread_suspend(&mut self, thread: ThreadId) {
        if let Some(index) = self.threads.find(thread) {
            self.detach(index);
            self.threads.table[index as usize].wait_begins(self.hardware.now_ns());
        }
    }

    fn wake(&mut self, key: Key, count: u32) -> u32 {
        let Key::Child(parent) = key else {
            return self.wake_word(key.word(), count);
        };
        let parent = self.threads.find(ThreadId(parent));
        let waits = parent.filter(|&index| count > 0 && self.thread(index).state == State::Parked(key));
        waits.map_or(0, |index| {
            self.wake_index(index, Resumed::Woken);
            1
        })
    }

    fn wake_words(&mut self, addresses: Range<u64>) -> u32 {
        let words = Key::Address(addresses.start).word()..Key::Address(addresses.end).word();
        let first = self.waits.first_in(&self.threads.table, words);
        first.map_or(0, |word| self.wake_word(word, u32::MAX))
    }

    #[inline]
    fn oldest(&self, key: Key) -> Option<(ThreadId, SpaceId)> {
        let (index, _) = self.waits.oldest(&self.threads.table, key.word())?;
        let thread = self.thread(index);
        Some((thread.id, thread.space))
    }

    #[inline]
    fn thread_can_be_answered(&self, thread: ThreadId, key: Key) -> bool {
        self.threads.get(thread).state == State::Parked(key)
    }

    fn thread_answer(&mut self, thread: ThreadId, value: u64, value2: u64) {
        let index = thread.index() as u32;
        let thread = &mut self.threads.table[index as usize];
        let State::Parked(key) = thread.state else { return };
        thread.operation = None;
        let (rip, rsp) = (thread.context.rip, thread.context.rsp);
        thread.context.reset(rip, rsp);
        thread.context.set_results(0, value, value2);
        thread.deadline_ns = NO_TIME;
        if thread.is_intercepted() {
            thread.wait_ends(self.hardware.now_ns());
        }
        self.hardware.trace(Kind::Wake, thread.id, Resumed::Woken as u64);
        self.leave_queue(index, key);
        self.pass_to(index);
    }

    fn thread_is_ready(&self, thread: ThreadId) -> bool {
        // A thread that waits for the server itself is as good as running.
        let state = self.threads.get(thread).state;
        matches!(state, State::Ready | State::Running | State::Parked(Key::Supervisor))
    }

    #[inline]
    fn thread_space(&self, thread: ThreadId) -> SpaceId {
        self.threads.get(thread).space
    }

    #[inline]
    fn thread_context(&self, thread: ThreadId) -> Context {
        self.threads.get(thread).context.whole()
    }

    fn thread_set_context(&mut self, thread: ThreadId, context: &Context) {
        self.hold(thread.index() as u32);
        self.threads.get_mut(thread).context = *context;
    }

    fn thread_drop_operation(&mut self, thread: ThreadId) -> bool {
        self.hold(thread.index() as u32);
        self.threads.get_mut(thread).unbegun = false;
        self.take_operation(thread.index() as u32).is_some()
    }

    fn thread_time_ns(&self, thread: ThreadId) -> u64 {
        let thread = self.threads.get(thread);
        thread.time_ns + self.running_ns(thread)
    }

    fn thread_waited_ns(&self, thread: ThreadId) -> u64 {
        self.threads.get(thread).waited_by(self.hardware.now_ns())
    }

    fn thread_set_priority(&mut self, thread: ThreadId, priority: u8) {
        let Some(index) = self.threads.find(thread) else { return };
        let waiting = self.threads.table[index as usize].state == State::Ready;
        if waiting {
            self.detach(index);
        }
        let thread = &mut self.threads.table[index as usize];
        thread.set_priority(priority);
        let number = thread.processor;
        let (at_ns, priority) = (thread.timer_ns, thread.standing.priority());
        if at_ns != NO_TIME {
            self.timers.remove(index);
            self.timers.insert(at_ns, index, priority);
        }
        if waiting {
            self.enqueue(index);
        }
        self.processor.part_mut(number).upset = true;
        // On its processor another thread may be more urgent now.
        self.call(index);
    }

    fn share_open(&mut self, share: u32, parent: u32, bound: u64) -> Result<(), Shortage> {
        self.shares.open(share, parent, bound)
    }

    fn share_told(&self, share: u32) -> (u64, u64) {
        self.shares.told(share)
    }

    fn portal_enter(
        &mut self,
        thread: ThreadId,
        callee: SpaceId,
        entry: u64,
        arguments: [u64; 4],
        stacks: Stacks,
    ) -> Option<()> {
        let thread = self.threads.get_mut(thread);
        let frame = thread.frames.get_mut(thread.depth as usize)?;
        let callee_space = self.spaces.get_mut(callee);
        let stack = match stacks {
            Stacks::Open => callee_space.take_stack()?,
            Stacks::All => callee_space.take_any_stack()?,
        };
        *frame = PortalFrame {
            rip: thread.context.rip,
            rsp: thread.context.rsp,
            stack,
            space: thread.space,
        };
        thread.depth += 1;
        thread.space = callee;
        thread.vectors = thread.vectors.dropped();
        self.processor.upset = true;
        thread.context.reset(entry, stack);
        thread.context.set_arguments(arguments);
        Some(())
    }

    fn portal_leave(&mut self, thread: ThreadId, error: u64, value: u64, value2: u64) -> Option<PortalFrame> {
        if self.threads.get(thread).depth > 0 {
            self.hold(thread.index() as u32);
        }
        if self.threads.get(thread).depth > 0 && self.processor.current == thread.index() as u32 {
            // A crossing even where caller and callee share a space: the processor is set up anew, or
            // the vector unit would stay on with what the callee left in it.
            self.set_up_anew();
        }
        let thread = self.threads.get_mut(thread);
        let frame = *thread.frames.get((thread.depth as usize).wrapping_sub(1))?;
        let callee = thread.space;
        self.spaces.get_mut(callee).give_stack(frame.stack);
        thread.depth -= 1;
        thread.space = frame.space;
        thread.vectors = thread.vectors.dropped();
        thread.context.reset(frame.rip, frame.rsp);
        thread.context.set_results(error, value, value2);
        self.wake(Key::Stack(callee.0), u32::MAX);
        Some(frame)
    }

    #[inline]
    fn portal_depth(&self, thread: ThreadId) -> usize {
        self.threads.get(thread).depth as usize
    }

    fn portal_frame(&self, thread: ThreadId, index: usize) -> Option<PortalFrame> {
        let thread = self.threads.get(thread);
        let frames = thread.frames.get(..thread.depth as usize)?;
        frames.get(index).copied()
    }

    fn portal_cache(&mut self, caller: SpaceId, entry: u64, pd: u64, callee: SpaceId) {
        self.portals.insert(&self.spaces, caller, entry, pd, callee);
    }

    fn portal_known(&self, caller: SpaceId, entry: u64, pd: u64) -> Option<SpaceId> {
        self.portals.find(&self.spaces, caller, entry, pd)
    }

    fn portal_forget(&mut self, stale: Stale) {
        match stale {
            Stale::All => self.portals.clear(),
            Stale::CallsOf(space) => self.spaces.get_mut(space).epochs.forget_calls(),
            Stale::CallsInto(space) => self.spaces.get_mut(space).epochs.forget_callers(),
        }
    }

    fn portal_intercept(&mut self, thread: ThreadId, intercept: Intercept) {
        let now = self.hardware.now_ns();
        let thread = self.threads.get_mut(thread);
        match intercept {
            Intercept::Yes => {
                thread.slow |= INTERCEPTED;
                thread.wait_begins(now);
            }
            Intercept::No => {
                thread.slow &= !INTERCEPTED;
                thread.wait_ends(now);
            }
        }
    }

    fn portal_free_stacks(&self, callee: SpaceId) -> usize {
        self.spaces.get(callee).free_stacks().len()
    }

    fn portal_add_stack(&mut self, callee: SpaceId, top: u64) {
        self.spaces.get_mut(callee).add_stack(top);
        self.wake(Key::Stack(callee.0), u32::MAX);
    }

    fn now_ns(&self) -> u64 {
        self.hardware.now_ns()
    }

    fn boot_time_ns(&self) -> u64 {
        self.hardware.boot_time_ns()
    }

    fn random(&mut self) -> u64 {
        self.hardware.random()
    }

    fn stir_random(&mut self, words: [u64; 2]) {
        self.hardware.stir_random(words);
    }

    fn console_write(&mut self, stream: u64, bytes: &[u8]) -> usize {
        self.hardware.console_write(stream, bytes)
    }

    fn console_read(&mut self, stream: u64) -> Option<u8> {
        self.hardware.console_read(stream)
    }

    fn log(&mut self, line: core::fmt::Arguments<'_>) {
        self.hardware.log(line);
    }

    fn heap(&self) -> (u64, u64) {
        self.hardware.heap()
    }

    fn stop(&mut self, exit: u8) {
        self.processor.upset = true;
        self.hardware.stop(exit);
    }

    fn boot_report(&self) -> BootReport {
        self.hardware.boot_report()
    }
}
