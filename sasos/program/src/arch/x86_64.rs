//! x86-64: where events come in, and answers go out.

use core::arch::{asm, naked_asm};

use abi::machine::MachineCall;

/// The kernel's entry: kind in rbx, thread in rdi, words in rsi, rdx, r10, r8, r9, r12, r13; a fresh, aligned stack.
#[unsafe(naked)]
pub unsafe extern "C" fn entry() {
    naked_asm!(
        "push r13",
        "push r13",
        "push r12",
        "push rbx",
        "mov rcx, r10",
        "xor ebp, ebp",
        "call {upcall}",
        "ud2",
        upcall = sym super::upcall,
    )
}

/// Answers an event. The next one begins anew.
#[inline(always)]
pub fn answer(call: MachineCall, [first, second, third]: [u64; 3]) -> ! {
    // SAFETY: the kernel takes the answer and does not come back here; what the words mean is for it to check.
    unsafe {
        asm!(
            "syscall",
            "ud2",
            in("rax") call as u64,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            options(noreturn),
        )
    }
}
