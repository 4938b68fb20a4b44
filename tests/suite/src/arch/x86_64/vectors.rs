//! States of the vector unit: x87, SSE and, where there is AVX, the upper halves.
//!
//! Compiled code of the target does not use the unit, so these functions need to declare nothing.

use core::arch::{asm, x86_64::__cpuid_count};

/// Whether the processor and the system offer AVX.
pub fn has_upper_halves() -> bool {
    __cpuid_count(1, 0).ecx & (1 << 27 | 1 << 28) == 1 << 27 | 1 << 28
}

/// Which parts there are, as the routines in `registers` take it.
pub fn parts() -> u64 {
    1 | u64::from(has_upper_halves()) << 1
}

/// Fills all vector registers with a pattern, runs for so many ticks without a system call, and gives
/// the bits that changed meanwhile.
pub fn hold(pattern: u64, ticks: u64) -> u64 {
    let end = rt::time::ticks().wrapping_add(ticks);
    let changed: u64;
    // SAFETY: uses vector registers, which compiled code here does not, and declared ones.
    unsafe {
        asm!(
            "movq xmm0, {pattern}",
            "punpcklqdq xmm0, xmm0",
            ".irp n,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
            "movdqa xmm\\n, xmm0",
            ".endr",
            "test {upper}, {upper}",
            "jz 2f",
            ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
            "vinsertf128 ymm\\n, ymm\\n, xmm\\n, 1",
            ".endr",
            "2:",
            "rdtsc", "shl rdx, 32", "or rax, rdx", "cmp rax, {end}",
            "jb 2b",
            "xor {changed}, {changed}",
            "test {upper}, {upper}",
            "jz 2f",
            // The upper halves: all as that of the first, and that one as the pattern.
            "vextractf128 xmm0, ymm0, 1",
            ".irp n,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
            "vextractf128 [rsp - 16], ymm\\n, 1",
            "mov rax, [rsp - 16]", "xor rax, {pattern}", "or {changed}, rax",
            "mov rax, [rsp - 8]", "xor rax, {pattern}", "or {changed}, rax",
            ".endr",
            "2:",
            ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
            "movdqu [rsp - 16], xmm\\n",
            "mov rax, [rsp - 16]", "xor rax, {pattern}", "or {changed}, rax",
            "mov rax, [rsp - 8]", "xor rax, {pattern}", "or {changed}, rax",
            ".endr",
            pattern = in(reg) pattern, end = in(reg) end, upper = in(reg) u64::from(has_upper_halves()),
            changed = out(reg) changed, out("rax") _, out("rdx") _,
        );
    }
    changed
}

/// The control and status word of SSE.
pub fn control() -> u32 {
    let mut word = 0_u32;
    // SAFETY: writes that word.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack, preserves_flags)) };
    word
}

/// Sets the control and status word of SSE.
pub fn set_control(word: u32) {
    // SAFETY: reads that word; the suite gives it values without reserved bits.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack, preserves_flags)) };
}

/// Bits set in any vector register of the calling thread.
pub fn residue() -> u64 {
    let bits: u64;
    // SAFETY: the routine spoils what is declared.
    unsafe {
        asm!(
            "call suite_vector_residue",
            in("r9") 1_u64, out("r8") bits, out("rcx") _, out("rdx") _,
        );
    }
    bits
}

/// Sets bits in all vector registers.
pub fn fill() {
    // SAFETY: the routine spoils vector registers only.
    unsafe { asm!("call suite_vector_fill", in("r9") parts()) };
}
