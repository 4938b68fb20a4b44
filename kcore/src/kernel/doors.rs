//! The doors to the kernel's rooms: anybody may look; all changes from outside of this folder stand here, in `messages`, and in
//! [`crate::Machine`].

use super::{Kernel, processors::Elsewhere};
use crate::{
    Half, Hardware, SpaceId, ThreadId,
    frames::Frames,
    scheduler::NONE,
    smp::Processors,
    space::Spaces,
    thread::{Context, Operation, Resumed, State, Thread, Threads},
};

/// Memory, spaces and the second half, for a half that builds page tables itself. Threads and processors are not among them.
pub(crate) struct Tables<'a, H, P> {
    pub half: &'a mut P,
    pub spaces: &'a mut Spaces,
    pub frames: &'a mut Frames,
    pub hardware: &'a mut H,
    pub elsewhere: Elsewhere<'a>,
}

impl<H: Hardware, P: Half> Kernel<H, P> {
    /// Physical memory.
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Spaces.
    #[inline(always)]
    pub fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    /// Threads.
    #[inline(always)]
    pub fn threads(&self) -> &Threads<H::Row> {
        &self.threads
    }

    /// The callee of a protected call that is remembered.
    pub fn portal_way(&self, caller: SpaceId, entry: u64, pd: u64) -> Option<SpaceId> {
        self.portals.find(&self.spaces, caller, entry, pd)
    }

    /// All protected calls that are remembered: caller, entry, kind, callee.
    pub fn portal_ways(&self) -> impl Iterator<Item = (SpaceId, u64, u64, SpaceId)> {
        self.portals.live(&self.spaces)
    }

    /// The thread with this index.
    #[inline(always)]
    pub fn thread(&self, index: u32) -> &Thread {
        &self.threads.table[index as usize]
    }

    /// The thread's identifier by index.
    #[inline]
    pub fn id_of(&self, index: u32) -> ThreadId {
        self.thread(index).id
    }

    /// The thread that runs here.
    #[inline(always)]
    pub fn current_thread(&self) -> Option<&Thread> {
        let index = self.processor.runs_now();
        self.threads.table.get(index)
    }

    /// The thread that runs here, by index.
    #[inline]
    pub fn current(&self) -> Option<u32> {
        let current = self.processor.runs_now();
        (current != NONE as usize).then_some(current as u32)
    }

    /// The registers of the thread that runs here.
    #[inline(always)]
    pub fn current_context(&mut self) -> Option<&mut Context> {
        let index = self.processor.runs_now();
        let thread = self.threads.table.get_mut(index)?;
        Some(&mut thread.context)
    }

    /// The registers of a thread that does not run elsewhere: there they are in the processor.
    #[inline(always)]
    pub fn context_of(&mut self, index: u32) -> &mut Context {
        let thread = &mut self.threads.table[index as usize];
        debug_assert!(
            thread.state != State::Running || thread.processor == self.processor.number,
            "the registers of a thread that runs elsewhere"
        );
        &mut thread.context
    }

    /// The running thread has called: it goes on there.
    #[inline(always)]
    pub fn called_from(&mut self, (rip, rsp): (u64, u64)) -> Option<&Thread> {
        let index = self.processor.runs_now();
        let thread = self.threads.table.get_mut(index)?;
        (thread.context.rip, thread.context.rsp) = (rip, rsp);
        Some(thread)
    }

    /// The operation that a thread is to do again. The slice goes on in which it did it before, or a thread with one long call after the other would have
    /// no end of it.
    #[inline(always)]
    pub fn take_operation(&mut self, index: u32) -> Option<Operation> {
        if self.processor.again == index {
            self.processor.again = NONE;
            if self.processor.current == index {
                self.processor.slice_ns = self.processor.again_slice_ns;
            }
        }
        self.threads.table[index as usize].operation.take()
    }

    /// A thread that is in no list does this when it runs, or nothing.
    #[inline(always)]
    pub(crate) fn set_operation(&mut self, index: u32, operation: Option<Operation>) {
        self.threads.table[index as usize].operation = operation;
    }

    /// A thread that is in no list does this when it runs, for the first time.
    pub(crate) fn begin_operation(&mut self, index: u32, operation: Operation) {
        let thread = &mut self.threads.table[index as usize];
        thread.operation = Some(operation);
        thread.resumed = Resumed::First;
    }

    /// A thread that is in no list has new registers, and nothing to do again.
    pub(crate) fn begin_anew(&mut self, index: u32, context: Context) {
        let thread = &mut self.threads.table[index as usize];
        thread.operation = None;
        thread.vectors = thread.vectors.dropped();
        thread.context = context;
    }

    /// Fills a free frame with zeroes if fewer than `goal` are ready ([`Frames::prepare_one`]).
    pub fn prepare_frame(&mut self, goal: u32) -> bool {
        self.frames.prepare_one(&mut self.hardware, goal)
    }

    /// The running thread's space may call this entry of a kernel domain.
    pub fn remember_domain(&mut self, entry: u64) {
        if let Some(space) = self.current_thread().map(|thread| thread.space) {
            self.portals.insert_domain(&self.spaces, space, entry);
        }
    }

    /// The parts that build page tables.
    pub(crate) fn tables(&mut self) -> Tables<'_, H, P> {
        Tables {
            half: &mut self.half,
            spaces: &mut self.spaces,
            frames: &mut self.frames,
            hardware: &mut self.hardware,
            elsewhere: Elsewhere {
                processors: &self.processor,
                count: self.processors,
            },
        }
    }

    /// A space forgets what it had of its translations: some were taken from it.
    #[inline(always)]
    pub(crate) fn forget_translations(&mut self, space: SpaceId) {
        self.spaces.forget(space);
        self.hardware.flush_root(self.spaces.get(space).root());
    }

    /// Threads, to set and to break in tests.
    #[cfg(any(test, feature = "fake-hardware"))]
    pub fn threads_mut(&mut self) -> &mut Threads<H::Row> {
        &mut self.threads
    }

    /// The thread that runs here, to set and to break in tests.
    #[cfg(any(test, feature = "fake-hardware"))]
    pub fn current_thread_mut(&mut self) -> Option<&mut Thread> {
        self.threads.table.get_mut(self.processor.runs_now())
    }

    /// Physical memory, to use up and to break in tests.
    #[cfg(any(test, feature = "fake-hardware"))]
    pub fn frames_mut(&mut self) -> (&mut Frames, &mut H) {
        (&mut self.frames, &mut self.hardware)
    }
}
