//! x86-64: `syscall`, the time-stamp counter, and where control enters a program.
//!
//! Register rule (DESIGN §3): a call clobbers every register but rsp and its results. The
//! compiler saves what it is told is clobbered; rbx and rbp it cannot be told about, so the stub
//! pushes them. The target has no red zone, so pushing below rsp is safe.

use core::arch::asm;

use super::super::Answer;

/// Does a call.
///
/// # Safety
/// As [`super::super::raw`].
#[inline(always)]
pub unsafe fn system_call(number: u64, arguments: [u64; 6]) -> Answer {
    let [a, b, c, d, e, f] = arguments;
    let (error, value, value2);
    // SAFETY: the kernel keeps rsp and what lies above it; every other register is declared
    // clobbered or pushed. What the call does to memory is the caller's promise.
    unsafe {
        asm!(
            "push rbx",
            "push rbp",
            "syscall",
            "pop rbp",
            "pop rbx",
            inlateout("rax") number => error,
            inlateout("rdi") a => _,
            inlateout("rsi") b => value2,
            inlateout("rdx") c => value,
            inlateout("r10") d => _,
            inlateout("r8") e => _,
            inlateout("r9") f => _,
            lateout("rcx") _,
            lateout("r11") _,
            lateout("r12") _,
            lateout("r13") _,
            lateout("r14") _,
            lateout("r15") _,
        );
    }
    Answer { error, value, value2 }
}

/// Does `Ipc`: the message's first words pass in r12 to r15, both ways. A fast path would not have
/// touched the buffer, but the compiler must think so: the asm is no `nomem`.
///
/// # Safety
/// What is received may land in the window.
#[inline(always)]
pub unsafe fn message(
    [to, from, tag, timeouts, window]: [u64; 5],
    [mut w0, mut w1, mut w2, mut w3]: [u64; 4],
) -> (Answer, [u64; 4]) {
    let (error, value, value2);
    // SAFETY: as in `system_call`.
    unsafe {
        asm!(
            "push rbx",
            "push rbp",
            "syscall",
            "pop rbp",
            "pop rbx",
            inlateout("rax") abi::nucleus::Call::Ipc as u64 => error,
            inlateout("rdi") to => _,
            inlateout("rsi") from => value2,
            inlateout("rdx") tag => value,
            inlateout("r10") timeouts => _,
            inlateout("r8") window => _,
            lateout("r9") _,
            lateout("rcx") _,
            lateout("r11") _,
            inlateout("r12") w0,
            inlateout("r13") w1,
            inlateout("r14") w2,
            inlateout("r15") w3,
        );
    }
    (Answer { error, value, value2 }, [w0, w1, w2, w3])
}

/// The time-stamp counter.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: reading the counter touches nothing; user code may do it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Whether a relocation of this kind is "base of the image plus addend" (`R_X86_64_RELATIVE`).
#[cfg(target_os = "none")]
pub const fn is_relative(kind: u64) -> bool {
    kind == 8
}

/// Ends the thread by an illegal instruction.
pub fn fault() -> ! {
    // SAFETY: the instruction traps and does nothing else.
    unsafe { asm!("ud2", options(noreturn)) }
}

// The first instruction. rdi is the address of the root page, rsp the top of a stack, aligned.
// Nothing is relocated yet, so everything is reached relative to rip.
#[cfg(target_os = "none")]
core::arch::global_asm!(
    ".section .text._start, \"ax\", @progbits",
    ".globl _start",
    ".type _start, @function",
    ".hidden _DYNAMIC",
    ".hidden __ehdr_start",
    "_start:",
    "xor ebp, ebp",
    "lea rsi, [rip + _DYNAMIC]",
    "lea rdx, [rip + __ehdr_start]",
    "call {begin}",
    "ud2",
    ".size _start, . - _start",
    begin = sym super::super::entry::begin,
);

/// Expands to the body of a naked function that is the first of a thread: it calls `$function` (C
/// convention) with the thread's parameter and deletes the thread.
#[doc(hidden)]
#[macro_export]
macro_rules! nucleus_thread_wrapper {
    ($function:path) => {
        ::core::arch::naked_asm!(
            "xor ebp, ebp",
            "call {function}",
            "xor edi, edi",
            "mov eax, {thread_delete}",
            "syscall",
            "ud2",
            function = sym $function,
            thread_delete = const $crate::abi::nucleus::Call::ThreadDelete as u64,
        )
    };
}
