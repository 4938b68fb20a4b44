//! The way in by `syscall`, and out by `sysret`.
//!
//! Four ways share the entry. Protected calls and returns over a remembered way are done at once
//! ([`portal_call`], [`portal_return`]), messages to a thread that waits for them too ([`ipc_fast`]); everything
//! else is `crate::event::system_call`. Only rip and rsp of the caller are kept: by the register rule (DESIGN §3) the
//! stub has saved what it needs.
//!
//! The first words of a message are in r12 to r15: registers that C functions preserve, so over the fast
//! path they pass from sender to receiver without being touched.
//!
//! [`ipc_fast`]: crate::event::ipc_fast
//!
//! `sysret` with a non-canonical address faults in the kernel with the user's stack. It cannot
//! happen: rcx comes from a `syscall` instruction in user memory, which ends below the empty top slot, or from
//! an entry point that the server checked. R11 is built from a constant.

use core::arch::naked_asm;

use abi::{Call, nucleus};

use super::processor::{KERNEL_STACK, SENDER, USER_RIP, USER_RSP, VALUE2};

/// What a call returns in registers: error, value. The second value goes through the processor's area.
#[repr(C)]
pub struct Results {
    /// Error, or zero.
    pub error: u64,
    /// Value.
    pub value: u64,
}

/// Where a protected call continues; `rip` zero: not over the fast path.
#[repr(C)]
pub struct Target {
    /// Next instruction.
    pub rip: u64,
    /// Stack pointer.
    pub rsp: u64,
}

/// The words of a message that are in registers, as the entry code leaves them on the kernel stack.
#[derive(Copy, Clone)]
#[repr(C)]
pub struct Words(pub [u64; nucleus::REGISTER_WORDS]);

/// Where `syscall` leads.
#[allow(clippy::too_many_lines, reason = "four ways through one stretch of assembly")]
#[unsafe(naked)]
pub unsafe extern "C" fn entry() {
    naked_asm!(
        "swapgs",
        "mov gs:[{USER_RSP}], rsp",
        "mov rsp, gs:[{KERNEL_STACK}]",
        "mov gs:[{USER_RIP}], rcx",
        "cmp rax, {PDX_RETURN}",
        "ja 7f",
        "jmp qword ptr [90f + rax * 8]",
        ".pushsection .rodata.calls, \"a\", @progbits",
        ".balign 32",
        "90:",
        ".quad 2f, 3f, 4f",
        ".popsection",
        "7:",
        "cmp rax, {IPC}",
        "je 8f",
        // The general way: six arguments as C wants them, the number as the seventh.
        "2:",
        "mov rcx, r10",
        "push rax",
        "push rax",
        "call {system_call}",
        "mov rsi, gs:[{VALUE2}]",
        "mov rcx, gs:[{USER_RIP}]",
        "mov rsp, gs:[{USER_RSP}]",
        "mov qword ptr gs:[{VALUE2}], 0",
        "xor edi, edi",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "xor r10d, r10d",
        "mov r11d, 0x202",
        "swapgs",
        "sysretq",
        "3:",
        // Protected call: entry in rdi, kind in rdx, parameters in rsi, r10, r8, r9.
        // By the register rule the caller has saved rbx, rbp and r12 to r15: they keep the
        // arguments over the call.
        "mov rbx, rsi",
        "mov rbp, r10",
        "mov r12, r8",
        "mov r13, r9",
        "mov r14, rdi",
        "mov r15, rdx",
        "mov rsi, rdx",
        "call {portal_call}",
        "test rax, rax",
        "jz 5f",
        "mov rcx, rax",
        "mov rsp, rdx",
        "mov rdi, rbx",
        "mov rsi, rbp",
        "mov rdx, r12",
        "mov r10, r13",
        "xor eax, eax",
        "xor ebx, ebx",
        "xor ebp, ebp",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "xor r12d, r12d",
        "xor r13d, r13d",
        "xor r14d, r14d",
        "xor r15d, r15d",
        "mov r11d, 0x202",
        "swapgs",
        "sysretq",
        "5:",
        "mov rdi, r14",
        "mov rsi, rbx",
        "mov rdx, r15",
        "mov r10, rbp",
        "mov r8, r12",
        "mov r9, r13",
        "mov eax, {PDX_CALL}",
        "jmp 2b",
        // Return from a protected call: results in rdi and rsi.
        "4:",
        "mov rbx, rdi",
        "mov rbp, rsi",
        "call {portal_return}",
        "test rax, rax",
        "jz 6f",
        "mov rcx, rax",
        "mov rsp, rdx",
        "mov rdx, rbx",
        "mov rsi, rbp",
        "xor eax, eax",
        "xor ebx, ebx",
        "xor ebp, ebp",
        "xor edi, edi",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "xor r10d, r10d",
        "xor r12d, r12d",
        "xor r13d, r13d",
        "xor r14d, r14d",
        "xor r15d, r15d",
        "mov r11d, 0x202",
        "swapgs",
        "sysretq",
        "6:",
        "mov rdi, rbx",
        "mov rsi, rbp",
        "mov eax, {PDX_RETURN}",
        "jmp 2b",
        // A message: receiver in rdi, whom to receive from in rsi, tag in rdx, timeouts in r10, window in r8.
        "8:",
        "mov rcx, r10",
        "mov rbx, rdx",
        "mov rbp, r10",
        "push r8",
        "push rdi",
        "push rsi",
        "push rsi",
        "call {ipc_fast}",
        "test rax, rax",
        "jz 9f",
        "mov rcx, rax",
        "mov rsp, rdx",
        "mov rdx, rbx",
        "mov rsi, gs:[{SENDER}]",
        "xor eax, eax",
        "xor ebx, ebx",
        "xor ebp, ebp",
        "xor edi, edi",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "xor r10d, r10d",
        "mov r11d, 0x202",
        "swapgs",
        "sysretq",
        "9:",
        "pop rsi",
        "pop rsi",
        "pop rdi",
        "pop r8",
        "mov rdx, rbx",
        "mov rcx, rbp",
        "push r15",
        "push r14",
        "push r13",
        "push r12",
        "call {ipc}",
        "ud2",
        USER_RSP = const USER_RSP,
        SENDER = const SENDER,
        IPC = const nucleus::Call::Ipc as u64,
        ipc = sym crate::event::ipc,
        ipc_fast = sym crate::event::ipc_fast,
        KERNEL_STACK = const KERNEL_STACK,
        USER_RIP = const USER_RIP,
        VALUE2 = const VALUE2,
        PDX_CALL = const Call::PdxCall as u64,
        PDX_RETURN = const Call::PdxReturn as u64,
        system_call = sym crate::event::system_call,
        portal_call = sym crate::event::portal_call,
        portal_return = sym crate::event::portal_return,
    );
}

// The table of ways in goes by number.
const _: () = assert!(Call::ThreadMyId as u64 == 0 && Call::PdxCall as u64 == 1 && Call::PdxReturn as u64 == 2);
