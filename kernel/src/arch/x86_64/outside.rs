//! The way in by `syscall` where the server is a program outside of the kernel.
//!
//! It stands in the place of [`super::syscall::entry`]. A call of a user thread goes on to the server with its arguments in
//! registers ([`crate::outside::deliver`]), and the server's most frequent answer goes straight back to the thread
//! ([`crate::outside::answer`]). Protected calls over a remembered way are done as ever ([`super::portal`]). Everything
//! else, the server's machine calls above all, goes the general way.

use core::{
    arch::naked_asm,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use abi::{
    Call,
    machine::{FIRST_MACHINE_CALL, MachineCall},
};
use kcore::thread::Context;

use super::{
    portal,
    processor::{self, KERNEL_STACK, THREAD_END, USER_RIP, USER_RSP},
    syscall,
};

/// Where the server is entered.
static ENTRY: AtomicU64 = AtomicU64::new(0);
/// Top of its stack.
static STACK: AtomicU64 = AtomicU64::new(0);
/// End of its context: what [`THREAD_END`] is while it works.
static CONTEXT_END: AtomicU64 = AtomicU64::new(0);

/// Lets system calls come to a server outside of the kernel, whose registers stand there.
pub fn answer_outside(context: &Context) {
    let end = core::ptr::from_ref(context) as u64 + size_of::<Context>() as u64;
    CONTEXT_END.store(end, Relaxed);
    processor::set_system_call_entry(entry);
}

/// Sets where the server is entered: user addresses that were checked.
pub fn set_server(entry: u64, stack: u64) {
    ENTRY.store(entry, Relaxed);
    STACK.store(stack, Relaxed);
}

/// Where `syscall` leads.
#[unsafe(naked)]
unsafe extern "C" fn entry() {
    naked_asm!(
        "swapgs",
        "cmp rax, {FIRST_MACHINE_CALL}",
        "jae 7f",
        "lea r14, [rax - {PDX_CALL}]",
        "cmp r14, 1",
        "jbe 3f",
        // A call for the server: the arguments wait in registers that C keeps (the caller has saved his).
        "mov gs:[{USER_RSP}], rsp",
        "mov rsp, gs:[{KERNEL_STACK}]",
        "mov gs:[{USER_RIP}], rcx",
        "mov rbx, rdi",
        "mov rbp, rsi",
        "mov r12, rdx",
        "mov r13, r10",
        "mov r14, r8",
        "mov r15, r9",
        "mov rdi, rax",
        "call {deliver}",
        "mov rsi, rdx",
        "test rax, rax",
        "jz 6f",
        // Into the server: thread, number, arguments, kind 0. It may see what else is in registers.
        "mov rdi, rax",
        "mov rdx, rbx",
        "mov r10, rbp",
        "mov r8, r12",
        "mov r9, r13",
        "mov r12, r14",
        "mov r13, r15",
        "xor ebx, ebx",
        "mov rcx, [rip + {ENTRY}]",
        "mov rsp, [rip + {STACK}]",
        "mov r11d, {FLAGS}",
        "swapgs",
        "sysretq",
        // Not at once.
        "6:",
        "mov rax, rsi",
        "mov rdi, rbx",
        "mov rsi, rbp",
        "mov rdx, r12",
        "mov r10, r13",
        "mov r8, r14",
        "mov r9, r15",
        "mov rcx, gs:[{USER_RIP}]",
        "mov rsp, gs:[{USER_RSP}]",
        "jmp {general}",
        // Protected calls and returns, which run on the registers of a thread: the server makes none.
        "3:",
        "mov r15, gs:[{THREAD_END}]",
        "cmp r15, [rip + {CONTEXT_END}]",
        "mov r15d, 0",
        "je {general}",
        "test r14, r14",
        "jz {portal_call}",
        "jmp {portal_return}",
        // The server's answer to a call: error in rdi, values in rsi and rdx.
        "7:",
        "jne {general}",
        "mov gs:[{USER_RSP}], rsp",
        "mov rsp, gs:[{KERNEL_STACK}]",
        "mov gs:[{USER_RIP}], rcx",
        "mov rbx, rdi",
        "mov rbp, rsi",
        "mov r12, rdx",
        "call {answer}",
        "test rax, rax",
        "jz 8f",
        "mov rcx, rax",
        "mov rsp, rdx",
        "mov rax, rbx",
        "mov rdx, rbp",
        "mov rsi, r12",
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
        "mov r11d, {FLAGS}",
        "swapgs",
        "sysretq",
        "8:",
        "mov rdi, rbx",
        "mov rsi, rbp",
        "mov rdx, r12",
        "mov rcx, gs:[{USER_RIP}]",
        "mov rsp, gs:[{USER_RSP}]",
        "mov eax, {FIRST_MACHINE_CALL}",
        "jmp {general}",
        USER_RSP = const USER_RSP,
        KERNEL_STACK = const KERNEL_STACK,
        USER_RIP = const USER_RIP,
        THREAD_END = const THREAD_END,
        FLAGS = const kcore::thread::USER_FLAGS,
        PDX_CALL = const Call::PdxCall as u64,
        FIRST_MACHINE_CALL = const FIRST_MACHINE_CALL,
        ENTRY = sym ENTRY,
        STACK = sym STACK,
        CONTEXT_END = sym CONTEXT_END,
        deliver = sym crate::outside::deliver,
        answer = sym crate::outside::answer,
        general = sym syscall::general,
        portal_call = sym portal::call,
        portal_return = sym portal::ret,
    );
}

const _: () = assert!(MachineCall::AnswerReturn as u64 == FIRST_MACHINE_CALL);
const _: () = assert!(Call::PdxReturn as u64 == Call::PdxCall as u64 + 1);

/// A call that goes to the server at once.
#[repr(C)]
pub struct Delivery {
    /// The thread's identifier; zero: it does not.
    pub thread: u64,
    /// The call's number, as it was given.
    pub number: u64,
}

/// Where the server's fast answer goes on; `rip` zero: not over the fast path.
#[repr(C)]
pub struct Target {
    /// Next instruction.
    pub rip: u64,
    /// Stack pointer.
    pub rsp: u64,
}
