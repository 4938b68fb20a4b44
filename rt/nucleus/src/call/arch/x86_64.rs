//! x86-64: the message call, and what stands between the kernel's way of entering a program and a C function. The
//! plain trap and the first instruction are `crt0`'s.

use core::arch::asm;

use crt0::Answer;

/// Does `Ipc`: the message's first words pass in r12 to r15, both ways. A fast path would not have
/// touched the buffer, but the compiler must think so: the asm is no `nomem`.
///
/// # Safety
/// Pages that are received may land in the window.
#[inline(always)]
pub unsafe fn message(
    [to, from, tag, timeouts, window]: [u64; 5],
    [mut w0, mut w1, mut w2, mut w3]: [u64; 4],
) -> (Answer, [u64; 4]) {
    let (error, value, value2);
    // SAFETY: as in `crt0::system_call`.
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

#[cfg(target_os = "none")]
crt0::start!(super::super::entry::begin);

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
