//! x86-64: what stands between the kernel's way of entering a program and a C function. The trap and the first
//! instruction are `crt0`'s.

#[cfg(target_os = "none")]
crt0::start!(super::super::entry::begin);

/// Expands to the body of a naked function that is entered by a protected call: it hands the four
/// words to `$function` (C convention) and returns its two results.
///
/// The kernel passes the fourth word in r10 as well, because `sysret` needs rcx.
#[doc(hidden)]
#[macro_export]
macro_rules! pdx_wrapper {
    ($function:path) => {
        ::core::arch::naked_asm!(
            "mov rcx, r10",
            "call {function}",
            "mov rdi, rax",
            "mov rsi, rdx",
            "mov eax, {pdx_return}",
            "syscall",
            "ud2",
            function = sym $function,
            pdx_return = const $crate::abi::Call::PdxReturn as u64,
        )
    };
}

/// Expands to the body of a naked function that is the first of a thread: it calls `$function` (C
/// convention) with the thread's parameter and ends the thread with its result.
#[doc(hidden)]
#[macro_export]
macro_rules! thread_wrapper {
    ($function:path) => {
        ::core::arch::naked_asm!(
            "call {function}",
            "xor edi, edi",
            "mov rsi, rax",
            "mov eax, {thread_delete}",
            "syscall",
            "ud2",
            function = sym $function,
            thread_delete = const $crate::abi::Call::ThreadDelete as u64,
        )
    };
}
