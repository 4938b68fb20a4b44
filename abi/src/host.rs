//! The protocol between the guest and the host tool.
//!
//! COM1 is the terminal. COM2 is the *control line*: in script mode the shell asks there for each
//! line (`ready`), gets `line TEXT` or `end`, and tells how it went (`status N`). All of it is
//! text, a line each. The kernel's log goes to the debug console port.
//! A third line, where it is there, is the kernel debugger's: commands in, answers and a prompt out. A power-off tells its
//! outcome through the exit device: QEMU's status is twice the value plus one.

use crate::interface::interface;

interface! {
    /// The heap is one in so many bytes of the machine's memory: the kernel divides memory by it, and the host tool says by it which disks are too large.
    const HEAP_PART: u64 = 8;
    /// The heap has so many bytes at most.
    const HEAP_MOST: u64 = 0x4000_0000;
    /// Port of the exit device.
    const EXIT_PORT: u16 = 0xf4;
    /// Port of the kernel's log.
    const LOG_PORT: u16 = 0xe9;
    /// First port of the debugger's serial line.
    const DEBUGGER_PORT: u16 = 0x3e8;
    /// Interrupt line of the debugger's serial line; not the one that a third serial port shares with the first.
    const DEBUGGER_LINE: u32 = 5;
    /// The debugger's prompt.
    const DEBUGGER_PROMPT: &str = "kernel> ";
    /// Clean power-off, every line succeeded.
    const EXIT_SUCCESS: u8 = 0x10;
    /// Clean power-off, some line failed.
    const EXIT_FAILURE: u8 = 0x11;
    /// The kernel panicked.
    const EXIT_PANIC: u8 = 0x12;
    /// A reboot is asked for: the host tool starts the machine again.
    const EXIT_REBOOT: u8 = 0x13;

    /// Begins the line of the log that says why the kernel panicked. The lines behind it are what is known, for a
    /// back-trace: registers, stack, the last events, an end.
    const PANIC: &str = "panic: ";
    /// Begins a line of `NAME=VALUE`, in hexadecimal: the registers where it panicked.
    const PANIC_REGISTERS: &str = "panic registers:";
    /// Begins a line `ADDRESS: WORD...`, in hexadecimal: a piece of the stack, from the stack pointer upwards.
    const PANIC_STACK: &str = "panic stack";
    /// Begins a line of the trace: microseconds before now, then what happened. The oldest event comes first.
    const PANIC_TRACE: &str = "panic trace";
    /// Begins the line of the log that says why the system cannot start.
    const CANNOT_START: &str = "gondwana cannot start: ";
    /// The last line of a panic.
    const PANIC_END: &str = "panic end";

    /// Word on the kernel's command line: lines come over the control line.
    const SCRIPT_WORD: &str = "script";
    /// The server inside the kernel.
    const SERVER_KERNEL: &str = "kernel";
    /// The server is the boot module, a user-mode program.
    const SERVER_USER: &str = "user";
    /// Start of the line in the kernel's log that tells of a crash of such a server.
    const SERVER_CRASHED: &str = "the server outside of the kernel has crashed";
    /// A word on the kernel's command line where there is no server. The root program sees the line.
    const BARE_WORD: &str = "bare";
    /// Guest to host: the next line, please.
    const READY: &str = "ready";
    /// Guest to host, followed by a space and a number: the last line's outcome, zero is success.
    const STATUS: &str = "status";
    /// Host to guest, followed by a space and the line.
    const LINE: &str = "line";
    /// Host to guest: there are no more lines.
    const END: &str = "end";
    /// The longest line that passes, in bytes, without its newline.
    const LINE_BYTES: usize = 4000;
}

/// QEMU's exit status for a value written to the exit device.
pub const fn process_status(value: u8) -> i32 {
    value as i32 * 2 + 1
}
