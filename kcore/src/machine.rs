//! The contract between the kernel and its server.
//!
//! `sasos` reaches frames, page tables, threads and portals only through [`Machine`]. The kernel
//! implements it on the hardware ([`crate::Kernel`]); the host simulator implements the hardware
//! below instead, so the same kernel logic and the same server run in tests.
//!
//! All operations are immediate. An operation that takes time is answered by parking the thread
//! ([`crate::wait::Key`]) and doing the whole call again when its key is woken.

use core::ops::Range;

use abi::Rights;

use crate::{
    Frame, Leaf, PageEntry, SpaceId, ThreadId,
    portal::Stale,
    scheduler::Standing,
    thread::{Context, PortalFrame, Resumed},
    wait::Key,
};

/// Why the kernel could not do as asked.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Shortage {
    /// No free frame.
    Frames,
    /// No free slot in the table of spaces.
    Spaces,
    /// No free slot in the table of threads.
    Threads,
}

/// Whether the server wants to see a thread's returns from protected calls.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Intercept {
    /// Returns take the fast path.
    No,
    /// `PdxReturn` comes to the server, like other calls.
    Yes,
}

/// Which stacks of a callee a call may take ([`crate::space::STACKS_OPEN`]).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Stacks {
    /// Those that are free to all.
    Open,
    /// All that it has.
    All,
}

/// Makes the trait out of its table, and a machine of whatever holds one.
macro_rules! machine {
    ($($(#[$meta:meta])* fn $call:ident(& $($receiver:ident)+ $(, $argument:ident: $type:ty)*) $(-> $result:ty)?;)*) => {
        /// The operations that a server may ask of the kernel below it.
        pub trait Machine {
            $($(#[$meta])* fn $call(& $($receiver)+ $(, $argument: $type)*) $(-> $result)?;)*
        }

        impl<T: HoldsMachine> Machine for T {
            $(
                #[inline]
                fn $call(& $($receiver)+ $(, $argument: $type)*) $(-> $result)? {
                    machine!(@held $($receiver)+).$call($($argument),*)
                }
            )*
        }
    };
    (@held mut $self:ident) => { $self.held_mut() };
    (@held $self:ident) => { $self.held() };
}

/// A world that holds a machine beside something else, a disk say. It is a machine, too: it hands every call on.
pub trait HoldsMachine {
    /// The machine.
    type Held: Machine;
    /// The machine, to look at.
    fn held(&self) -> &Self::Held;
    /// The machine.
    fn held_mut(&mut self) -> &mut Self::Held;
}

machine! {
    // ---- frames: counted references; a frame goes back when its last reference is dropped -----

    /// A frame full of zeroes with one reference.
    ///
    /// # Errors
    /// [`Shortage::Frames`].
    fn frame_zeroed(&mut self) -> Result<Frame, Shortage>;
    /// A frame with arbitrary content and one reference.
    ///
    /// # Errors
    /// [`Shortage::Frames`].
    fn frame_any(&mut self) -> Result<Frame, Shortage>;
    /// Adds a reference.
    fn frame_share(&mut self, frame: Frame);
    /// Drops a reference.
    fn frame_release(&mut self, frame: Frame);
    /// How many references there are.
    fn frame_references(&self, frame: Frame) -> u32;
    /// Adds a reference that can be told from the others, of which a frame has at most one.
    fn frame_hold(&mut self, frame: Frame);
    /// Whether one of the references is such a one.
    fn frame_is_held(&self, frame: Frame) -> bool;
    /// Drops that reference, or another one if there is none such.
    fn frame_let_go(&mut self, frame: Frame);
    /// The frame with a number that was noted elsewhere, by a store say; nothing if this machine hands out no such frame.
    fn frame_found(&self, number: u32) -> Option<Frame>;
    /// Copies the content of a frame.
    fn frame_copy(&mut self, from: Frame, to: Frame);
    /// Reads bytes out of a frame; `offset + into.len()` is at most a page.
    fn frame_read(&self, frame: Frame, offset: usize, into: &mut [u8]);
    /// Writes bytes into a frame; `offset + from.len()` is at most a page.
    fn frame_write(&mut self, frame: Frame, offset: usize, from: &[u8]);
    /// Frames that are free.
    fn frames_free(&self) -> u64;
    /// Frames that the kernel itself holds, beside those it hands out: image, heap, own tables.
    fn kernel_frames(&self) -> u64;
    /// Frames that can be handed out, free or not.
    fn frames_total(&self) -> u64;

    // ---- leaves: page tables for one slot, shared by all spaces that link them ----------------

    /// An empty leaf.
    ///
    /// # Errors
    /// [`Shortage::Frames`].
    fn leaf_create(&mut self) -> Result<Leaf, Shortage>;
    /// Frees a leaf. All its entries are empty and no space links it (else it is kept and the
    /// call is reported as a bug in debug builds).
    fn leaf_destroy(&mut self, leaf: Leaf);
    /// The entry of page `index` (0..512); `None` if no page is resident there.
    fn leaf_get(&self, leaf: Leaf, index: usize) -> Option<PageEntry>;
    /// Writes the entry of page `index`. References on frames are the caller's business.
    /// Taking something away (another frame, fewer rights, nothing) is visible to running threads
    /// only after a flush.
    fn leaf_set(&mut self, leaf: Leaf, index: usize, entry: Option<PageEntry>);
    /// Gives empty entries of a leaf, from `at` on, the frames and the limits of entries that are there, and each frame one more reference.
    /// Writing is withheld from both; tells whether it was taken away from any of the first ones: then translations are to be flushed.
    fn leaf_share(&mut self, from: Leaf, entries: Range<usize>, to: Leaf, at: usize) -> bool;
    /// Empties entries of which nobody has a translation, and drops their references to the frames.
    fn leaf_clear(&mut self, leaf: Leaf, entries: Range<usize>);

    // ---- spaces ---------------------------------------------------------------------------------

    /// A new space that holds nothing.
    ///
    /// # Errors
    /// [`Shortage::Spaces`], [`Shortage::Frames`].
    fn space_create(&mut self) -> Result<SpaceId, Shortage>;
    /// Destroys a space: everything still linked is unlinked. No thread runs in it or has a portal
    /// frame that returns to it.
    fn space_destroy(&mut self, space: SpaceId);
    /// Takes links and upper tables out of a space in which no thread runs or will run, before it is destroyed: so many of both at most that
    /// it costs some ten instructions a unit of work, or one table more. Tells how many units are left over; none if tables are left.
    fn space_trim(&mut self, space: SpaceId, work: u64) -> Option<u64>;
    /// Links a leaf at a slot with rights (only RWX count), or changes the rights of the link.
    ///
    /// # Errors
    /// [`Shortage::Frames`] if an upper table is missing and cannot be had.
    fn link(&mut self, space: SpaceId, slot: u64, leaf: Leaf, rights: Rights) -> Result<(), Shortage>;
    /// Removes what is linked at a slot. Follow with [`Machine::flush_space`].
    fn unlink(&mut self, space: SpaceId, slot: u64);
    /// Makes every processor that runs the space forget its translations.
    fn flush_space(&mut self, space: SpaceId);
    /// Makes every processor forget the translation of one page, in all spaces.
    fn flush_page(&mut self, address: u64);
    /// Makes every processor forget all user translations.
    fn flush_everything(&mut self);
    /// Page-table pages that the space owns.
    fn space_tables(&self, space: SpaceId) -> u64;

    // ---- threads --------------------------------------------------------------------------------

    /// A suspended thread that will begin at `rip` with `rsp` and the first argument registers, and whose processor time is charged to a share.
    ///
    /// # Errors
    /// [`Shortage::Threads`].
    fn thread_create(
        &mut self,
        space: SpaceId,
        rip: u64,
        rsp: u64,
        arguments: [u64; 4],
        standing: Standing
    ) -> Result<ThreadId, Shortage>;
    /// Removes a thread from wherever it is. If it is the calling one, answer `Outcome::Gone`.
    fn thread_destroy(&mut self, thread: ThreadId);
    /// Makes a parked thread ready; it goes on with what it was parked with.
    fn thread_wake(&mut self, thread: ThreadId, resumed: Resumed);
    /// Takes a ready or parked thread off until [`Machine::thread_wake`].
    fn thread_suspend(&mut self, thread: ThreadId);
    /// Wakes up to `count` threads parked on `key`, oldest first; tells how many. Not more than 32, unless these are all: then they may be woken a
    /// little later, some at a time.
    fn wake(&mut self, key: Key, count: u32) -> u32;
    /// Wakes all who wait on the first word in a range of addresses that anybody waits on; tells how many.
    fn wake_words(&mut self, addresses: Range<u64>) -> u32;
    /// The thread that has been parked on `key` longest, and the space that it runs in. [`Machine::thread_answer`] can end its call, while the
    /// thread of the present event is on its processor.
    fn oldest(&self, key: Key) -> Option<(ThreadId, SpaceId)>;
    /// Whether the thread is parked on `key` and [`Machine::thread_answer`] can end that, also if the thread of the present event has left its
    /// processor. A machine may always say no: then it is woken, and does its call again.
    fn thread_can_be_answered(&self, thread: ThreadId, key: Key) -> bool;
    /// Ends the call that a thread is parked in with these values. If the thread of the present event has left its processor, the
    /// answered one runs there at once, unless somebody more urgent waits.
    fn thread_answer(&mut self, thread: ThreadId, value: u64, value2: u64);
    /// Whether the thread is ready or running, and not parked.
    fn thread_is_ready(&self, thread: ThreadId) -> bool;
    /// The space it runs in now.
    fn thread_space(&self, thread: ThreadId) -> SpaceId;
    /// Its user registers. Complete only while it is stopped by a fault or parked.
    fn thread_context(&self, thread: ThreadId) -> Context;
    /// Gives it other user registers.
    fn thread_set_context(&mut self, thread: ThreadId, context: &Context);
    /// Makes a parked thread go on in user mode, not retry what it was parked with; tells whether that was a call.
    fn thread_drop_operation(&mut self, thread: ThreadId) -> bool;
    /// Processor time used, in nanoseconds.
    fn thread_time_ns(&self, thread: ThreadId) -> u64;
    /// The time for which it has waited while its protected calls came to the server, in nanoseconds: when it was neither running nor ready.
    fn thread_waited_ns(&self, thread: ThreadId) -> u64;
    /// Changes its priority.
    fn thread_set_priority(&mut self, thread: ThreadId, priority: u8);

    // ---- shares of the processors ([`crate::shares`]) ---------------------------------------------

    /// Makes the share with a number, or makes it anew if nobody names it any more: below another, with a bound in thousandths of all
    /// processors. Share 0 is there from the start, and bounded by nothing.
    ///
    /// # Errors
    /// [`Shortage::Frames`].
    fn share_open(&mut self, share: u32, parent: u32, bound: u64) -> Result<(), Shortage>;
    /// The processor time that a share may use in a period, and the time that it used in the last one, in thousandths of all processors.
    fn share_told(&self, share: u32) -> (u64, u64);

    // ---- portals --------------------------------------------------------------------------------

    /// Enters a protected procedure: pushes a frame that returns to the caller as it stands in its
    /// context, takes one of the callee's stacks, and sets the context to begin at `entry`.
    /// `None` if the callee has no such stack free or the frame stack is full (see `portal_depth`).
    fn portal_enter(
        &mut self,
        thread: ThreadId,
        callee: SpaceId,
        entry: u64,
        arguments: [u64; 4],
        stacks: Stacks
    ) -> Option<()>;
    /// Returns from a protected procedure: pops the frame and gives the stack back. The context
    /// then stands at the caller with those results.
    fn portal_leave(&mut self, thread: ThreadId, error: u64, value: u64, value2: u64) -> Option<PortalFrame>;
    /// How many protected calls the thread is inside of.
    fn portal_depth(&self, thread: ThreadId) -> usize;
    /// One of its frames, the outermost at 0; `None` from `portal_depth` on.
    fn portal_frame(&self, thread: ThreadId, index: usize) -> Option<PortalFrame>;
    /// Remembers a validated way, for the kernel's fast path: calls of `entry` with `pd` from
    /// `caller` enter `callee`.
    fn portal_cache(&mut self, caller: SpaceId, entry: u64, pd: u64, callee: SpaceId);
    /// The callee that a call is known to enter, as the portal cache has it: whoever may make the call enters it without asking. A machine may always say
    /// that it knows none.
    fn portal_known(&self, caller: SpaceId, entry: u64, pd: u64) -> Option<SpaceId>;
    /// Forgets portal-cache entries. To be called whenever a validation may have become false.
    fn portal_forget(&mut self, stale: Stale);
    /// Protected calls and returns of a thread come to the server, not over the fast path, and its waits are counted.
    fn portal_intercept(&mut self, thread: ThreadId, intercept: Intercept);
    /// How many of its stacks are free. Each call that is inside of it has one.
    fn portal_free_stacks(&self, callee: SpaceId) -> usize;
    /// Gives the callee space one more stack, by its top address.
    fn portal_add_stack(&mut self, callee: SpaceId, top: u64);

    // ---- the rest of the world ------------------------------------------------------------------

    /// Nanoseconds since boot.
    fn now_ns(&self) -> u64;
    /// Nanoseconds between 1970 and boot; zero if there is no clock.
    fn boot_time_ns(&self) -> u64;
    /// A random word fit for passwords.
    fn random(&mut self) -> u64;
    /// Mixes words into the generator: what comes then depends on them and on all that went in before.
    fn stir_random(&mut self, words: [u64; 2]);
    /// Writes bytes to a console stream; tells how many were taken (0: try again when woken on
    /// [`Key::ConsoleOut`]).
    fn console_write(&mut self, stream: u64, bytes: &[u8]) -> usize;
    /// Takes one byte of input from a console stream, if there is any.
    fn console_read(&mut self, stream: u64) -> Option<u8>;
    /// Writes a line to the kernel's log.
    fn log(&mut self, line: core::fmt::Arguments<'_>);
    /// Bytes of the server's heap that are in use, and how many it may still take.
    fn heap(&self) -> (u64, u64);
    /// Powers off or restarts with this value of the exit device, once the call returns.
    fn stop(&mut self, exit: u8);
    /// The report of the boot for `SystemInfo`.
    fn boot_report(&self) -> abi::layout::BootReport;
}
