//! x86-64: `syscall`, the time-stamp counter, and the first instruction of a program.
//!
//! Register rule (`docs/decisions/0002`): a call clobbers every register but rsp and its results. The
//! compiler saves what it is told is clobbered; rbx and rbp it cannot be told about, so the stub
//! pushes them. The target has no red zone, so pushing below rsp is safe.

use core::arch::asm;

use crate::Answer;

/// Makes a call.
///
/// # Safety
/// Whatever the call does to memory at the addresses given keeps Rust's rules for it.
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

/// The time-stamp counter.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: reading the counter touches nothing; user code may do it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Uses the vector unit: a register of it is zero from now on.
#[inline(always)]
pub fn use_vectors() {
    // SAFETY: every 64-bit processor has the register, and compiled code knows that it is not kept.
    unsafe { core::arch::asm!("pxor xmm0, xmm0", out("xmm0") _, options(nomem, nostack, preserves_flags)) };
}

/// Whether a relocation of this kind is "base of the image plus addend" (`R_X86_64_RELATIVE`).
///
/// Inlined whatever the build optimizes: a call of it might go through a word that is not relocated yet.
#[inline(always)]
pub const fn is_relative(kind: u64) -> bool {
    kind == 8
}

/// Ends the protected call or the thread by an illegal instruction.
pub fn fault() -> ! {
    // SAFETY: the instruction traps and does nothing else.
    unsafe { asm!("ud2", options(noreturn)) }
}

/// Defines the first instruction of a program, which calls `$begin` (C convention) with the word that the kernel
/// gives, the dynamic section, and the base of the image. rsp is the top of a stack, aligned. Nothing is relocated
/// yet, so everything is reached relative to rip.
#[macro_export]
macro_rules! start {
    ($begin:path) => {
        ::core::arch::global_asm!(
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
            begin = sym $begin,
        );
    };
}
