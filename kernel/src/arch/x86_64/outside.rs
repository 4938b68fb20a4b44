//! The way in by `syscall` where the server is a program outside of the kernel.
//!
//! It stands in the place of [`super::syscall::entry`]. A call of a user thread goes on to the server with its arguments in
//! registers ([`crate::outside::deliver`]), and the server's most frequent answer goes straight back to the thread
//! ([`crate::outside::answer`]). Protected calls through a portal-cache entry are done as ever ([`super::portal`]). Everything
//! else, the server's machine calls above all, takes the slow path.

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
    domain, portal,
    processor::{KERNEL_STACK, THREAD_END, USER_RIP, USER_RSP},
    syscall,
};

/// The address at which the server is entered.
static ENTRY: AtomicU64 = AtomicU64::new(0);
/// Top of its stack.
static STACK: AtomicU64 = AtomicU64::new(0);
/// End of its context: what [`THREAD_END`] is while it works.
static CONTEXT_END: AtomicU64 = AtomicU64::new(0);

/// The target of `syscall` with the server outside of the kernel.
pub const ENTRY_OUTSIDE: syscall::Entry = entry;

/// Notes where the server's registers stand.
pub fn note_server(context: &Context) {
    let end = core::ptr::from_ref(context) as u64 + size_of::<Context>() as u64;
    CONTEXT_END.store(end, Relaxed);
}

/// Sets where the server is entered: user addresses that were checked.
pub fn set_server(entry: u64, stack: u64) {
    ENTRY.store(entry, Relaxed);
    STACK.store(stack, Relaxed);
}

/// The target of `syscall`.
#[unsafe(naked)]
unsafe extern "C" fn entry() {
    naked_asm!(
        "swapgs",
        "cmp rax, {COUNT}",
        "jae 2f",
        "jmp qword ptr [rax * 8 + {ways}]",
        "2:",
        "cmp rax, {FIRST_MACHINE_CALL}",
        "je {answer}",
        "jb {call}",
        "jmp {general}",
        COUNT = const WAYS.len(),
        FIRST_MACHINE_CALL = const FIRST_MACHINE_CALL,
        ways = sym WAYS,
        call = sym call,
        answer = sym answer,
        general = sym syscall::general_outside,
    );
}

/// The targets of the first numbers.
static WAYS: [unsafe extern "C" fn(); Call::DomainCall as usize + 1] = {
    let mut ways: [unsafe extern "C" fn(); Call::DomainCall as usize + 1] = [call; _];
    ways[Call::PdxCall as usize] = portal_call;
    ways[Call::PdxReturn as usize] = portal_return;
    ways[Call::DomainCall as usize] = domain_call;
    ways
};

/// A call for the server. The arguments wait in registers that C keeps (the caller has saved his).
#[unsafe(naked)]
unsafe extern "C" fn call() {
    naked_asm!(
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
        USER_RSP = const USER_RSP,
        KERNEL_STACK = const KERNEL_STACK,
        USER_RIP = const USER_RIP,
        FLAGS = const kcore::thread::USER_FLAGS,
        ENTRY = sym ENTRY,
        STACK = sym STACK,
        deliver = sym crate::outside::deliver,
        general = sym syscall::general_outside,
    );
}

/// The server's answer to a call: error in rdi, values in rsi and rdx.
#[unsafe(naked)]
unsafe extern "C" fn answer() {
    naked_asm!(
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
        clear!("ebx" "ebp" "edi" "r8d" "r9d" "r10d" "r12d" "r13d" "r14d" "r15d"),
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
        FLAGS = const kcore::thread::USER_FLAGS,
        FIRST_MACHINE_CALL = const FIRST_MACHINE_CALL,
        answer = sym crate::outside::answer,
        general = sym syscall::general_outside,
    );
}

/// Defines the way of a call through a portal-cache entry, which runs on the registers of a thread: the server has none.
macro_rules! portal_way {
    ($(#[$meta:meta])* $name:ident, $way:path) => {
        $(#[$meta])*
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "mov r15, gs:[{THREAD_END}]",
                "cmp r15, [rip + {CONTEXT_END}]",
                "jne {way}",
                "jmp {general}",
                THREAD_END = const THREAD_END,
                CONTEXT_END = sym CONTEXT_END,
                way = sym $way,
                general = sym syscall::general_outside,
            );
        }
    };
}

portal_way!(
    /// A protected call.
    portal_call,
    portal::outside::call
);
portal_way!(
    /// The return from one.
    portal_return,
    portal::outside::ret
);
portal_way!(
    /// A call of a kernel domain.
    domain_call,
    domain::outside::call
);

const _: () = assert!(MachineCall::AnswerReturn as u64 == FIRST_MACHINE_CALL);

/// A call that goes to the server at once.
#[repr(C)]
pub struct Delivery {
    /// The thread's identifier; zero: it does not.
    pub thread: u64,
    /// The call's number, as it was given.
    pub number: u64,
}

/// The place where the server's fast answer goes on; `rip` zero: not over the fast path.
#[repr(C)]
pub struct Target {
    /// Next instruction.
    pub rip: u64,
    /// Stack pointer.
    pub rsp: u64,
}
