//! What the kernel offers to a server outside of it (decision 0038).
//!
//! The server is a user-mode program in a space of its own, the *supervisor space*. What happens to threads comes to it
//! as an *upcall*: the processor enters the server at one fixed place, on its one stack, with the event in registers
//! ([`Upcall`]). It answers with one of the `Answer` calls, and the kernel settles the thread's fate as it would for
//! the server inside. In between the server asks for what it needs with the other *machine calls*, each of which is an
//! operation of `kcore::Machine`. They are made as system calls are, and allowed to nobody else.
//!
//! Memory that the kernel hands out is seen through the *window*: physical address `p` at [`WINDOW`]` + p`. What does
//! not fit into registers passes through the *exchange page*, a frame in that window.

use crate::layout::layout;

/// Where the window on physical memory begins in the supervisor space.
pub const WINDOW: u64 = 0x4000_0000_0000;
/// Bytes of physical memory that the window can show.
pub const WINDOW_BYTES: u64 = 512 << 30;

/// What an upcall is about. It comes in rbx, the thread in rdi (or 0), and then:
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

/// The number of the first machine call.
pub const FIRST_MACHINE_CALL: u64 = 0x200;

macro_rules! machine_calls {
    ($($number:literal $name:ident ($($argument:ident),*) -> $value:literal; $text:literal;)*) => {
        /// A machine call.
        #[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
        #[repr(u64)]
        pub enum MachineCall { $(#[doc = $text] $name = $number,)* }

        impl MachineCall {
            /// All of them: call, names of its arguments, what it gives, what it does.
            pub const TABLE: &'static [(Self, &'static [&'static str], &'static str, &'static str)] =
                &[$((Self::$name, &[$(stringify!($argument),)*], $value, $text),)*];

            /// The call with this number.
            pub const fn from_number(number: u64) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

machine_calls! {
    0x200 AnswerReturn(error, value, value2) -> "";
        "The event was a call and is done: error (0: none) and two values go to the thread.";
    0x201 AnswerBlock(kind, key, deadline) -> "";
        "The thread is parked on a key until it is woken or the time has come (u64::MAX: never); a call, which stands on the exchange page (number, six arguments), is then done again.";
    0x202 AnswerResume() -> "";
        "The thread's context is set; it runs.";
    0x203 AnswerGone() -> "";
        "The thread is gone, suspended, or ended.";
    0x204 Ready(entry, stack, clean) -> "";
        "The server is up: from now on events come to that entry on that stack. clean: whether the last power-off was.";
    0x205 GiveUp(bytes) -> "";
        "The server cannot start, for the reason on the exchange page. The machine stops.";
    0x206 Surroundings() -> "";
        "Writes a Surroundings to the exchange page.";
    0x207 MapDevice(physical, bytes) -> "";
        "Shows device registers in the window. Refused over memory.";
    0x208 PortRead(port, bytes) -> "value";
        "Reads 1, 2 or 4 bytes from a port of the PCI configuration mechanism.";
    0x209 PortWrite(port, bytes, value) -> "";
        "Writes 1, 2 or 4 bytes to a port of the PCI configuration mechanism.";

    0x210 FrameZeroed() -> "frame";
        "A frame full of zeroes with one reference.";
    0x211 FrameAny() -> "frame";
        "A frame with arbitrary content and one reference.";
    0x212 FrameShare(frame) -> "";
        "Adds a reference.";
    0x213 FrameRelease(frame) -> "";
        "Drops a reference.";
    0x214 FrameReferences(frame) -> "references";
        "How many references there are.";
    0x215 FrameCounts() -> "free, total";
        "Frames that are free, and that can be handed out.";
    0x216 KernelFrames() -> "frames";
        "Frames that the kernel itself holds.";

    0x220 LeafCreate() -> "leaf";
        "An empty leaf.";
    0x221 LeafDestroy(leaf) -> "";
        "Frees a leaf that has no entry and no link.";
    0x222 LeafSet(leaf, index, entry) -> "";
        "Writes the entry of a page, in the format of the page tables. (Entries are read through the window.)";

    0x228 SpaceCreate() -> "space";
        "A space that holds nothing.";
    0x229 SpaceDestroy(space) -> "";
        "Destroys a space.";
    0x22a Link(space, slot, leaf, rights) -> "";
        "Links a leaf at a slot, or changes the rights of the link.";
    0x22b Unlink(space, slot) -> "";
        "Removes what is linked at a slot.";
    0x22c FlushSpace(space) -> "";
        "Every processor that runs the space forgets its translations.";
    0x22d FlushPage(address) -> "";
        "Every processor forgets one page, in all spaces.";
    0x22e FlushEverything() -> "";
        "Every processor forgets all user translations.";
    0x22f SpaceTables(space) -> "pages";
        "Page-table pages that the space owns.";

    0x230 ThreadCreate(space, rip, rsp, priority) -> "thread";
        "A suspended thread; four argument words stand on the exchange page.";
    0x231 ThreadDestroy(thread) -> "";
        "Removes a thread.";
    0x232 ThreadWake(thread, resumed) -> "";
        "Makes a parked thread ready (resumed: an Upcall of a call).";
    0x233 ThreadSuspend(thread) -> "";
        "Takes a thread off until ThreadWake.";
    0x234 Wake(kind, key, count) -> "woken";
        "Wakes up to count threads parked on a key.";
    0x235 ThreadIsReady(thread) -> "0 or 1";
        "Whether it is ready or running.";
    0x236 ThreadSpace(thread) -> "space";
        "The space it runs in now.";
    0x237 ThreadContext(thread) -> "";
        "Writes its user registers to the exchange page.";
    0x238 ThreadSetContext(thread) -> "";
        "Gives it the user registers on the exchange page. Selectors and privileged flags are the kernel's.";
    0x239 ThreadDropOperation(thread) -> "";
        "It goes on in user mode, and does not retry what it was parked with.";
    0x23a ThreadTime(thread) -> "ns";
        "Processor time used.";
    0x23b ThreadSetPriority(thread, priority) -> "";
        "Changes its priority.";

    0x240 PortalEnter(thread, callee, entry) -> "0 or 1";
        "Enters a protected procedure with the four words on the exchange page; 0 if that is not possible.";
    0x241 PortalLeave(thread, error, value, value2) -> "0 or 1";
        "Returns from one; the frame that was popped is on the exchange page. 0 if there is none.";
    0x242 PortalDepth(thread) -> "depth";
        "How many protected calls it is inside of.";
    0x243 PortalFrame(thread, index) -> "0 or 1";
        "Writes a frame to the exchange page; 0 if there is no such frame.";
    0x244 PortalCache(caller, entry, pd, callee) -> "";
        "Remembers a validated way.";
    0x245 PortalForget() -> "";
        "Forgets all remembered ways.";
    0x246 PortalInterceptReturn(thread, wanted) -> "";
        "Whether the next return from a protected call comes to the server.";
    0x247 PortalAddStack(callee, top) -> "";
        "Gives the callee space one more stack.";

    0x250 Now() -> "ns, ns between 1970 and boot";
        "The clock.";
    0x251 Random() -> "word";
        "A word fit for passwords.";
    0x252 ConsoleWrite(stream, bytes) -> "written";
        "Writes that many bytes of the exchange page to a stream.";
    0x253 ConsoleRead(stream) -> "byte, whether there was one";
        "Takes a byte of input.";
    0x254 Log(bytes) -> "";
        "Writes that many bytes of the exchange page to the kernel's log.";
    0x255 Stop(exit) -> "";
        "Stops the machine once the event is answered.";
    0x256 BootReport() -> "";
        "Writes the BootReport to the exchange page.";
}

layout! {
    /// What a server is told of its surroundings.
    Surroundings {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for &(call, arguments, ..) in MachineCall::TABLE {
            assert_eq!(MachineCall::from_number(call as u64), Some(call));
            assert!(call as u64 >= FIRST_MACHINE_CALL && arguments.len() <= 6);
        }
        assert_eq!(MachineCall::from_number(0x20f), None);
        for number in 0..7 {
            assert_eq!(Upcall::from_number(number).map(|upcall| upcall as u64), Some(number));
        }
        assert_eq!(Upcall::from_number(7), None);
    }
}
