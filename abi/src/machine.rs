//! The calls that the kernel offers to a server outside of it (decision 0038).
//!
//! The server is a user-mode program in a space of its own, the *supervisor space*. What happens to threads comes to it
//! as an *upcall*: the processor enters the server at one fixed place, on its one stack, with the event in registers
//! ([`Upcall`]). It answers with one of the `Answer` calls, and the kernel settles the thread's fate as it would for
//! the server inside. In between the server asks for what it needs with the other *machine calls*, each of which is an
//! operation of `kcore::Machine`. They are made as system calls are, and allowed to nobody else.
//!
//! Memory that the kernel hands out is seen through the *window*: physical address `p` at [`WINDOW`]` + p`. What does
//! not fit into registers passes through the *exchange page*, a frame in that window.

#![allow(
    clippy::doc_markdown,
    reason = "the texts of the table are documentation too, and stand in the manual as they are"
)]

use crate::{call::calls, interface::interface};

interface! {
    /// Where the window on physical memory begins in the supervisor space.
    const WINDOW: u64 = 0x4000_0000_0000;
    /// Bytes of physical memory that the window can show.
    const WINDOW_BYTES: u64 = 512 << 30;

    /// The number of the first machine call.
    const FIRST_MACHINE_CALL: u64 = 0x200;

    /// The surroundings of a server, as it is told of them.
    struct Surroundings {
        /// Physical address of memory for its heap, and only for that.
        heap,
        /// Bytes of it.
        heap_bytes,
        /// Address of the message by which the disk is to interrupt.
        disk_message_address,
        /// Data of the message.
        disk_message_data,
    }
}

/// The subject of an upcall. It comes in rbx, the thread in rdi (or 0), and then:
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Upcall {
    /// A system call: number in rsi, arguments in rdx, r10, r8, r9, r12, r13.
    Call = 0,
    /// A call that is done again because its key was woken; as `Call`.
    CallWoken = 1,
    /// A call that is done again because its time came; as `Call`.
    CallTimedOut = 2,
    /// A page fault: address in rsi, access in rdx (the bits of the right it takes).
    Fault = 3,
    /// Another exception: kind in rsi, address in rdx.
    Exception = 4,
    /// The terminal's interrupt character.
    Interrupt = 5,
    /// The disk or the checkpoint clock wants to be looked at.
    Poll = 6,
}

impl Upcall {
    /// The upcall with this number.
    pub const fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::Call,
            1 => Self::CallWoken,
            2 => Self::CallTimedOut,
            3 => Self::Fault,
            4 => Self::Exception,
            5 => Self::Interrupt,
            6 => Self::Poll,
            _ => return None,
        })
    }
}

calls! {
    /// A machine call.
    MachineCall;
    0x200 AnswerReturn answer_return(error, value, value2) -> "", ""; "server";
        "The event was a call and is done: error (0: none) and two values go to the thread.";
    0x201 AnswerBlock answer_block(kind, key, deadline) -> "", ""; "server";
        "The thread is parked on a key until it is woken or the time has come (u64::MAX: never); a call, which stands on the exchange page (number, six arguments), is then done again.";
    0x202 AnswerResume answer_resume() -> "", ""; "server";
        "The thread's context is set; it runs.";
    0x203 AnswerGone answer_gone() -> "", ""; "server";
        "The thread is gone, suspended, or ended.";
    0x204 Ready ready(entry, stack, clean) -> "", ""; "server";
        "The server is up: from now on events come to that entry on that stack. clean: whether the last power-off was.";
    0x205 GiveUp give_up(bytes) -> "", ""; "server";
        "The server cannot start, for the reason on the exchange page. The machine stops.";
    0x206 Surroundings surroundings() -> "", ""; "server";
        "Writes a Surroundings to the exchange page.";
    0x207 MapDevice map_device(physical, bytes) -> "", ""; "server";
        "Shows device registers in the window. Refused over memory.";
    0x208 PortRead port_read(port, bytes) -> "value", ""; "server";
        "Reads 1, 2 or 4 bytes from a port of the PCI configuration mechanism.";
    0x209 PortWrite port_write(port, bytes, value) -> "", ""; "server";
        "Writes 1, 2 or 4 bytes to a port of the PCI configuration mechanism.";

    0x20a AnswerAgain answer_again() -> "", ""; "server";
        "A piece of a long call is done; the call, which stands on the exchange page as with AnswerBlock, is done again when others had their turn.";
    0x20b Unfinished unfinished(flag) -> "", ""; "server";
        "Whether a checkpoint has work left that waits for nothing, so that Poll should come soon.";

    0x210 FrameZeroed frame_zeroed() -> "frame", ""; "server";
        "A frame full of zeroes with one reference.";
    0x211 FrameAny frame_any() -> "frame", ""; "server";
        "A frame with arbitrary content and one reference.";
    0x212 FrameShare frame_share(frame) -> "", ""; "server";
        "Adds a reference.";
    0x213 FrameRelease frame_release(frame) -> "", ""; "server";
        "Drops a reference.";
    0x214 FrameReferences frame_references(frame) -> "references", "held"; "server";
        "How many references there are, and whether one of them is a hold.";
    0x215 FrameCounts frame_counts() -> "free", "total"; "server";
        "Frames that are free, and that can be handed out.";
    0x216 KernelFrames kernel_frames() -> "frames", ""; "server";
        "Frames that the kernel itself holds.";
    0x217 FrameHold frame_hold(frame) -> "", ""; "server";
        "Adds a reference that can be told from the others, of which a frame has at most one.";
    0x218 FrameLetGo frame_let_go(frame) -> "", ""; "server";
        "Drops that reference, or another one if there is none such.";

    0x220 LeafCreate leaf_create() -> "leaf", ""; "server";
        "An empty leaf.";
    0x221 LeafDestroy leaf_destroy(leaf) -> "", ""; "server";
        "Frees a leaf that has no entry and no link.";
    0x222 LeafSet leaf_set(leaf, index, entry) -> "", ""; "server";
        "Writes the entry of a page, in the format of the page tables. (Entries are read through the window.)";
    0x223 LeafShare leaf_share(from, index, count, to, at) -> "taken", ""; "server";
        "Gives empty entries of a leaf, from at on, the frames and the limits of so many other entries, withholds writing from both, and tells whether it was taken away from any.";
    0x224 LeafClear leaf_clear(leaf, index, count) -> "", ""; "server";
        "Empties entries and drops their references to the frames.";

    0x228 SpaceCreate space_create() -> "space", ""; "server";
        "A space that holds nothing.";
    0x229 SpaceDestroy space_destroy(space) -> "", ""; "server";
        "Destroys a space.";
    0x22a Link link(space, slot, leaf, rights) -> "", ""; "server";
        "Links a leaf at a slot, or changes the rights of the link.";
    0x22b Unlink unlink(space, slot) -> "", ""; "server";
        "Removes what is linked at a slot.";
    0x22c FlushSpace flush_space(space) -> "", ""; "server";
        "Every processor that runs the space forgets its translations.";
    0x22d FlushPage flush_page(address) -> "", ""; "server";
        "Every processor forgets one page, in all spaces.";
    0x22e FlushEverything flush_everything() -> "", ""; "server";
        "Every processor forgets all user translations.";
    0x22f SpaceTables space_tables(space) -> "pages", ""; "server";
        "Page-table pages that the space owns.";

    0x230 ThreadCreate thread_create(space, rip, rsp, priority, share) -> "thread", ""; "server";
        "A suspended thread, whose time is charged to that share; four argument words stand on the exchange page.";
    0x231 ThreadDestroy thread_destroy(thread) -> "", ""; "server";
        "Removes a thread.";
    0x232 ThreadWake thread_wake(thread, resumed) -> "", ""; "server";
        "Makes a parked thread ready (resumed: an Upcall of a call).";
    0x233 ThreadSuspend thread_suspend(thread) -> "", ""; "server";
        "Takes a thread off until ThreadWake.";
    0x234 Wake wake(kind, key, count) -> "woken", ""; "server";
        "Wakes up to count threads parked on a key: 32 at most, unless these are all.";
    0x235 ThreadIsReady thread_is_ready(thread) -> "0 or 1", ""; "server";
        "Whether it is ready or running.";
    0x236 ThreadSpace thread_space(thread) -> "space", ""; "server";
        "The space it runs in now.";
    0x237 ThreadContext thread_context(thread) -> "", ""; "server";
        "Writes its user registers to the exchange page.";
    0x238 ThreadSetContext thread_set_context(thread) -> "", ""; "server";
        "Gives it the user registers on the exchange page. Selectors and privileged flags are the kernel's.";
    0x239 ThreadDropOperation thread_drop_operation(thread) -> "", ""; "server";
        "It goes on in user mode, and does not retry what it was parked with.";
    0x23a ThreadTime thread_time(thread) -> "ns", ""; "server";
        "Processor time used.";
    0x23b ThreadSetPriority thread_set_priority(thread, priority) -> "", ""; "server";
        "Changes its priority.";
    0x23c SpaceTrim space_trim(space, work) -> "left", ""; "server";
        "Takes tables out of a space that nobody runs in any more, some ten instructions a unit of work; how many units are left over, and one; 0 if tables are left.";
    0x23d WakeWords wake_words(from, to) -> "woken", ""; "server";
        "Wakes all that wait on the first word in a range of addresses on which anybody does; 0 if nobody does.";

    0x23e ShareOpen share_open(share, parent, bound) -> "", ""; "server";
        "Makes a share of the processors below another, or makes it anew. The bound is in thousandths of all processors.";
    0x23f ShareTold share_told(share) -> "thousandths it may have", "thousandths it had"; "server";
        "Tells how much processor time a share may use in a period, and how much it used in the last one.";

    0x240 PortalEnter portal_enter(thread, callee, entry, all) -> "0 or 1", ""; "server";
        "Enters a protected procedure with the four words on the exchange page, on a stack that is free to all callers or, if all is not 0, on any free one; 0 if that is not possible.";
    0x241 PortalLeave portal_leave(thread, error, value, value2) -> "0 or 1", ""; "server";
        "Returns from one; the frame that was popped is on the exchange page. 0 if there is none.";
    0x242 PortalDepth portal_depth(thread) -> "depth", ""; "server";
        "How many protected calls it is inside of.";
    0x243 PortalFrame portal_frame(thread, index) -> "0 or 1", ""; "server";
        "Writes a frame to the exchange page; 0 if there is no such frame.";
    0x244 PortalCache portal_cache(caller, entry, pd, callee) -> "", ""; "server";
        "Remembers a validated way.";
    0x245 PortalForget portal_forget(which, space) -> "", ""; "server";
        "Forgets portal-cache entries: all (0), those of the calls that a space makes (1), or of those into it (2).";
    0x246 PortalInterceptReturn portal_intercept_return(thread, wanted) -> "", ""; "server";
        "Whether the next return from a protected call comes to the server.";
    0x247 PortalAddStack portal_add_stack(callee, top) -> "", ""; "server";
        "Gives the callee space one more stack.";
    0x248 PortalFreeStacks portal_free_stacks(callee) -> "count", ""; "server";
        "How many of its stacks are free; each call that is inside of it has one.";
    0x249 Oldest oldest(kind, key) -> "thread", "space"; "server";
        "The thread that has been parked on a key longest, and the space it runs in; 0 if none is.";
    0x24a ThreadAnswer thread_answer(thread, value, value2) -> "", ""; "server";
        "Ends the call that a thread is parked in, with these values.";
    0x24b ThreadWaited thread_waited(thread) -> "ns", ""; "server";
        "The time for which it has waited while its protected calls came to the server.";

    0x250 Now now() -> "ns", "ns between 1970 and boot"; "server";
        "The clock.";
    0x251 Random random() -> "word", ""; "server";
        "A word fit for passwords.";
    0x252 ConsoleWrite console_write(stream, bytes) -> "written", ""; "server";
        "Writes that many bytes of the exchange page to a stream.";
    0x253 ConsoleRead console_read(stream) -> "byte", "whether there was one"; "server";
        "Takes a byte of input.";
    0x254 Log log(bytes) -> "", ""; "server";
        "Writes that many bytes of the exchange page to the kernel's log.";
    0x255 Stop stop(exit) -> "", ""; "server";
        "Stops the machine once the event is answered.";
    0x256 BootReport boot_report() -> "", ""; "server";
        "Writes the BootReport to the exchange page.";
    0x257 StirRandom stir_random(word0, word1) -> "", ""; "server";
        "Mixes two words into the random generator.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for info in TABLE {
            let call = MachineCall::from_number(info.number).expect("a call");
            assert_eq!(call as u64, info.number);
            assert!(info.number >= FIRST_MACHINE_CALL && info.arguments.len() <= 6);
        }
        assert_eq!(MachineCall::from_number(0x20f), None);
        for number in 0..7 {
            assert_eq!(Upcall::from_number(number).map(|upcall| upcall as u64), Some(number));
        }
        assert_eq!(Upcall::from_number(7), None);
    }
}
