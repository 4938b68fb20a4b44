//! The way in by `syscall` where the server is a program outside of the kernel.
//!
//! It stands in the place of [`super::syscall::entry`]. Four ways share it. A call of a user thread goes on to the server
//! with its arguments in registers ([`deliver`]); the server's most frequent answer goes straight back to the thread
//! ([`answer`]); protected calls over a remembered way are done here as ever. Everything else, the server's machine
//! calls above all, is [`system_call`].
//!
//! [`deliver`]: crate::outside::deliver
//! [`answer`]: crate::outside::answer
//! [`system_call`]: crate::outside::system_call

use core::{
    arch::naked_asm,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use abi::{
    Call,
    machine::{FIRST_MACHINE_CALL, MachineCall},
};

use super::processor::{self, KERNEL_STACK, USER_RIP, USER_RSP, VALUE2};

/// Where the server is entered.
static ENTRY: AtomicU64 = AtomicU64::new(0);
/// Top of its stack.
static STACK: AtomicU64 = AtomicU64::new(0);

/// Lets system calls come to a server outside of the kernel. Its entry and stack are user addresses that were checked.
pub fn answer_outside() {
    processor::set_system_call_entry(entry as *const () as u64);
}

/// Sets where the server is entered.
pub fn set_server(entry: u64, stack: u64) {
    ENTRY.store(entry, Relaxed);
    STACK.store(stack, Relaxed);
}

/// Where `syscall` leads.
#[allow(clippy::too_many_lines, reason = "four ways through one stretch of assembly")]
#[unsafe(naked)]
unsafe extern "C" fn entry() {
    naked_asm!(
        "swapgs",
        "mov gs:[{USER_RSP}], rsp",
        "mov rsp, gs:[{KERNEL_STACK}]",
        "mov gs:[{USER_RIP}], rcx",
        "cmp rax, {FIRST_MACHINE_CALL}",
        "jae 7f",
        "cmp rax, {PDX_CALL}",
        "je 3f",
        "cmp rax, {PDX_RETURN}",
        "je 4f",
        // A call for the server: the arguments wait in registers that C keeps (the caller has saved his).
        "mov rbx, rdi",
        "mov rbp, rsi",
        "mov r12, rdx",
        "mov r13, r10",
        "mov r14, r8",
        "mov r15, r9",
        "push rax",
        "push rax",
        "mov rdi, rax",
        "call {deliver}",
        "pop rsi",
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
        "mov r11d, 0x202",
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
        "mov rsp, gs:[{KERNEL_STACK}]",
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
        // The server's answer to a call: error in rdi, values in rsi and rdx.
        "7:",
        "jne 2b",
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
        "9:",
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
        "8:",
        "mov rdi, rbx",
        "mov rsi, rbp",
        "mov rdx, r12",
        "mov eax, {FIRST_MACHINE_CALL}",
        "jmp 2b",
        // Protected call: entry in rdi, kind in rdx, parameters in rsi, r10, r8, r9.
        "3:",
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
        // Not over a remembered way: a call like others.
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
        "jz 12f",
        "mov rcx, rax",
        "mov rsp, rdx",
        "mov rdx, rbx",
        "mov rsi, rbp",
        "xor eax, eax",
        "jmp 9b",
        "12:",
        "mov rdi, rbx",
        "mov rsi, rbp",
        "mov eax, {PDX_RETURN}",
        "jmp 2b",
        USER_RSP = const USER_RSP,
        KERNEL_STACK = const KERNEL_STACK,
        USER_RIP = const USER_RIP,
        VALUE2 = const VALUE2,
        PDX_CALL = const Call::PdxCall as u64,
        PDX_RETURN = const Call::PdxReturn as u64,
        FIRST_MACHINE_CALL = const FIRST_MACHINE_CALL,
        ENTRY = sym ENTRY,
        STACK = sym STACK,
        deliver = sym crate::outside::deliver,
        answer = sym crate::outside::answer,
        system_call = sym crate::outside::system_call,
        portal_call = sym crate::outside::portal_call,
        portal_return = sym crate::outside::portal_return,
    );
}

const _: () = assert!(MachineCall::AnswerReturn as u64 == FIRST_MACHINE_CALL);
