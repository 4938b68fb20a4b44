//! The calls that the µ-kernel itself offers to programs that run on it without the server.
//!
//! These programs make the same `syscall` with numbers from [`FIRST_CALL`] on; the register rule of
//! [`crate::call`] holds for them too. The first of them, the *root program*, comes with the kernel
//! as a boot module and finds a [`Root`] behind its image.

#![allow(
    clippy::doc_markdown,
    reason = "the texts of the table are documentation too, and stand in the manual as they are"
)]

use crate::{
    address::{PAGE, SLOT},
    call::calls,
    interface::interface,
};

interface! {
    /// The first number of a call that the µ-kernel answers.
    const FIRST_CALL: u64 = 0x100;

    /// Receives from anyone.
    const ANYONE: u64 = u64::MAX;
    /// Words of a message in registers (r12 to r15).
    const REGISTER_WORDS: usize = 4;
    /// Words of the longest message, those of its items among them.
    const MESSAGE_WORDS: usize = 64;
    /// Items of a message at most.
    const ITEMS_MAX: u64 = 8;

    /// In a tag: how many words, bits 0 to 6, then how many items, bits 8 to 11. Each item is two words more: what
    /// (an fpage), and how ([`MAP`], [`GRANT`], [`LINK`]).
    const TAG_WORDS: u64 = 0x7f;
    /// Shift of the number of items.
    const TAG_ITEMS_SHIFT: u32 = 8;
    /// In a tag: the kernel made the message.
    const TAG_KERNEL: u64 = 1 << 15;
    /// Shift of the label, 48 bits that are the program's own.
    const TAG_LABEL_SHIFT: u32 = 16;

    /// Label of a page fault: address, right that the access takes, rip, space. The window for the answer's items is the
    /// page that was touched; the thread goes on with the registers it has.
    const LABEL_FAULT: u64 = 1;
    /// Label of another exception: vector, error code, rip, rsp. The answer lets the thread go on.
    const LABEL_EXCEPTION: u64 = 2;
    /// Label of an interrupt; the sender is its number plus one.
    const LABEL_INTERRUPT: u64 = 3;

    /// A timeout that never comes. Timeouts are microseconds: of receiving in the lower half of the word, of sending in
    /// the upper.
    const NEVER: u32 = u32::MAX;
    /// Wait as long as it takes, for both.
    const NO_TIMEOUTS: u64 = u64::MAX;

    /// The giver keeps it.
    const MAP: u64 = 0;
    /// It leaves the giver.
    const GRANT: u64 = 1;
    /// Whole slots are seen as the giver has them, now and later.
    const LINK: u64 = 2;

    /// In an fpage: it is one of I/O ports, the first one at bit 12.
    const FPAGE_PORTS: u64 = 8;
    /// Shift of the logarithm of an fpage's size (6 bits); the rights stand below.
    const FPAGE_SIZE_SHIFT: u32 = 4;

    /// Where the message buffers stand in every free space: the thread in place n of the kernel's table has the n-th page.
    const MESSAGE_AREA: u64 = 0x7f80_0000_0000;

    /// Word of the message buffer where registers begin that pass by `ThreadExchange`.
    const BUFFER_REGISTERS: usize = 64;

    /// The thread runs no more until it is started.
    const EXCHANGE_STOP: u64 = 1;
    /// Its registers are written to the caller's message buffer.
    const EXCHANGE_READ: u64 = 2;
    /// Its registers are taken from there.
    const EXCHANGE_WRITE: u64 = 4;
    /// It runs again.
    const EXCHANGE_START: u64 = 8;

    /// The thread is ready or running.
    const THREAD_READY: u64 = 0;
    /// It is stopped.
    const THREAD_STOPPED: u64 = 1;
    /// It waits until its message is received.
    const THREAD_SENDING: u64 = 2;
    /// It waits for a message.
    const THREAD_RECEIVING: u64 = 3;
    /// It waits for an answer to its fault or exception.
    const THREAD_FAULTED: u64 = 4;

    /// Interrupts that there are: lines of the controller from 0, then vectors for messages.
    const INTERRUPTS: u64 = 32;
    /// First interrupt that is raised by message.
    const INTERRUPT_FIRST_MESSAGE: u64 = 24;

    /// The registers of a thread, as they pass by `ThreadExchange`. Flags are the arithmetic ones, DF and TF.
    struct Registers {
        /// General register.
        r15,
        /// General register.
        r14,
        /// General register.
        r13,
        /// General register.
        r12,
        /// General register.
        r11,
        /// General register.
        r10,
        /// General register.
        r9,
        /// General register.
        r8,
        /// General register.
        rbp,
        /// General register.
        rdi,
        /// General register.
        rsi,
        /// General register.
        rdx,
        /// General register.
        rcx,
        /// General register.
        rbx,
        /// General register.
        rax,
        /// Next instruction.
        rip,
        /// Flags.
        rflags,
        /// Stack pointer.
        rsp,
    }

    /// The root program's space is σ₀: it has memory and devices at their physical addresses. All that it gives to
    /// others and flushes lies below this address; its own image, stack and message buffers, which are the kernel's, lie above.
    const ROOT_GIVES_BELOW: u64 = 0x5000_0000_0000;
    /// Where the image of the root program lies.
    const ROOT_IMAGE: u64 = 0x6000_0000_0000;
    /// Top of its first stack, 2 MiB below the image's slot and growing down.
    const ROOT_STACK_TOP: u64 = ROOT_IMAGE - SLOT;
    /// Bytes of its first stack.
    const ROOT_STACK_BYTES: u64 = 256 << 10;

    /// Marks a [`Root`].
    const ROOT_MAGIC: u64 = 0x544f_4f52_4e57_4447;
    /// Offset of the ranges of memory on the root page: pairs of words, start and end in bytes.
    const ROOT_MEMORY_OFFSET: u64 = 256;
    /// Offset of the command line on the root page: UTF-8.
    const ROOT_COMMAND_OFFSET: u64 = 1024;
    /// Room for the command line.
    const ROOT_COMMAND_BYTES: u64 = 2048;

    /// The head of the root page, right behind the root program's image.
    struct Root {
        /// [`ROOT_MAGIC`].
        magic,
        /// Base of the image: [`ROOT_IMAGE`].
        image,
        /// Bytes of the image, without this page.
        image_bytes,
        /// Ranges of memory that the kernel hands out, at [`ROOT_MEMORY_OFFSET`].
        memory_count,
        /// Bytes of the command line, at [`ROOT_COMMAND_OFFSET`].
        command_bytes,
        /// Physical address of the firmware's table of tables (RSDP), or 0.
        firmware,
    }
}

calls! {
    /// A call that the µ-kernel answers.
    Call;
    0x100 LogWrite log_write(bytes, count) -> "", ""; "-";
        "Writes up to eight bytes (little-endian, the first one lowest) to the kernel's log.";
    0x101 MachineStop machine_stop(exit) -> "", ""; "root program";
        "Stops the machine with that value of the exit device.";
    0x102 ThreadSelf thread_self() -> "thread", "space"; "-";
        "The calling thread, and the space it runs in.";
    0x103 ClockNow clock_now() -> "ns", ""; "-";
        "Nanoseconds since boot.";

    0x108 SpaceCreate space_create(quota, pager, handler, supervisor) -> "space", ""; "quota";
        "Makes an empty space below the caller's, with that much of the caller's quota (units of 64 bytes of kernel memory). Page faults of its threads become messages to the thread pager, other exceptions to the thread handler (0: such a thread ends). With a supervisor its threads can send to that thread only (0: to any).";
    0x109 SpaceDelete space_delete(space) -> "", ""; "above the space";
        "Deletes a space with its threads, the spaces below it, and all that others have from it. Once that has begun the space is given nothing, gives nothing, and makes neither spaces nor threads (BadArgument).";
    0x10a SpaceControl space_control(space, pager, handler, supervisor) -> "", ""; "above the space";
        "Names the space's pager, handler and supervisor anew.";

    0x110 ThreadCreate thread_create(space, rip, rsp, parameter, priority) -> "thread", "message buffer"; "the space or above it";
        "Makes a thread that begins at rip with the parameter in rdi, ready to run, in the space (0: the caller's own). Its priority is at most the caller's. The message buffer is a page of the kernel's in the thread's space, whose quota pays for both (LimitReached).";
    0x111 ThreadDelete thread_delete(thread) -> "", ""; "the thread's space or above it";
        "Deletes a thread (0: the caller). A thread that waits to send to it gets NoSuchThread, one that waits for its message Deleted.";
    0x112 ThreadExchange thread_exchange(thread, what) -> "state", ""; "the thread's space or above it";
        "Stops, reads, writes and starts another thread as the EXCHANGE_ bits in what say, in this order. Registers pass through the caller's message buffer. A thread whose registers are written gives up the message it waits for, but not the answer to its fault. Gives a THREAD_ state.";
    0x113 ThreadPriority thread_priority(thread, priority) -> "", ""; "the thread's space or above it";
        "Changes the priority of a thread (0: the caller), at most to the caller's.";
    0x114 Yield yield_now() -> "", ""; "-";
        "Lets the others of the caller's priority run first.";

    0x118 Ipc ipc(to, from, tag, timeouts, window) -> "tag", "sender"; "-";
        "Sends a message to a thread (0: to nobody), then receives one from a thread, an interrupt (its number plus one) or anyone (2^64-1; 0: from nobody). The four registers always pass, whatever the tag says. Sending waits until the receiver receives, receiving until somebody sends: each for its timeout. With from equal to to it is a call. The tag says how long the message is; its first four words pass in r12 to r15, the rest in the message buffer. Items of the message are mapped into the receiver's window. An error of the sending half means that nothing was received either.";

    0x120 Map map(source, space, window, how) -> "count", ""; "above the space";
        "Gives an fpage of the caller's to a space below it, into a window (MAP, GRANT or LINK). Tells how many pages of the source were there to give; of ports how many ports, and of a LINK how many slots. Pages are given in the order of their addresses in the source; what stands in the target of one is flushed before it is given, so a frame that comes back to the root's space by that is given, too, if its page is still ahead. The same with a receiver that agrees is an item of a message.";
    0x121 Flush flush(fpage, rights, own) -> "", ""; "-";
        "Takes rights on an fpage from all who have it from the caller's space, directly or not; taking R takes the pages. Pages that the caller granted are not taken. own 1: from the caller's space as well.";

    0x128 InterruptBind interrupt_bind(interrupt, thread) -> "", ""; "root program's space";
        "Makes the thread the receiver of an interrupt (thread 0: of nobody): a line of the controller below 24, or one that devices raise by message. After one was delivered the next waits, and a line that goes on asking is masked, until the thread receives again.";
    0x129 InterruptMessage interrupt_message(interrupt) -> "address", "data"; "root program's space";
        "The value that a device must write, and the address, to raise an interrupt by message.";

    0x130 KernelCheck kernel_check() -> "operations", "most work in one"; "root program's space";
        "Checks what must hold of the kernel's threads, queues and spaces, and stops the machine if it does not. Tells how many calls were answered so far.";
}

/// A tag.
pub const fn tag(label: u64, words: u64, items: u64) -> u64 {
    label << TAG_LABEL_SHIFT | items << TAG_ITEMS_SHIFT | words
}

/// The word of timeouts, in microseconds.
pub const fn timeouts(send_us: u32, receive_us: u32) -> u64 {
    receive_us as u64 | (send_us as u64) << 32
}

/// An fpage of `2^log2` bytes at `base` with these rights ([`crate::Rights`]).
pub const fn fpage(base: u64, log2: u8, rights: crate::Rights) -> u64 {
    base | (log2 as u64) << FPAGE_SIZE_SHIFT | rights.bits() as u64
}

/// An fpage of `2^log2` ports from `first`.
pub const fn port_fpage(first: u64, log2: u8) -> u64 {
    first << 12 | (log2 as u64) << FPAGE_SIZE_SHIFT | FPAGE_PORTS
}

/// Address of a thread's message buffer.
pub const fn message_buffer(thread: u64) -> u64 {
    MESSAGE_AREA + (thread & 0xffff) * PAGE
}
