//! x86-64: what stands between the kernel's way of entering a program and a C function. The trap and the first
//! instruction are `crt0`'s.

#[cfg(all(target_os = "none", not(feature = "module")))]
crt0::start!(super::super::entry::begin);

/// The stack pointer of the caller.
#[cfg(all(target_os = "none", feature = "module"))]
#[inline(always)]
pub fn stack_pointer() -> u64 {
    let pointer;
    // SAFETY: it reads a register.
    unsafe { core::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// The first instructions of a program that is a module: they jump to the address in the word behind them.
pub const JUMP_TO_NEXT: u64 = 0xcccc_0000_0002_25ff;

/// Defines a function that the kernel enters on a fresh stack, which calls `$function` (C convention) with the word that
/// the kernel gives. The two topmost words of the stack stay free: they lead to the program's state.
#[cfg(all(target_os = "none", feature = "module"))]
macro_rules! entered {
    ($(#[$meta:meta])* $visibility:vis $name:ident, $function:path) => {
        $(#[$meta])*
        // SAFETY: the kernel enters here with the word in the first argument's register and a fresh stack.
        #[unsafe(naked)]
        $visibility extern "C" fn $name() -> ! {
            ::core::arch::naked_asm!("xor ebp, ebp", "sub rsp, 16", "call {function}", "ud2", function = sym $function)
        }
    };
}
#[cfg(all(target_os = "none", feature = "module"))]
pub(crate) use entered;

/// Expands to the body of a naked function that is entered by a protected call: it hands the four
/// words to `$function` (C convention), which [leaves](leave_procedure) with its results and does not return.
///
/// The kernel passes the fourth word in r10 as well, because `sysret` needs rcx.
#[doc(hidden)]
#[macro_export]
macro_rules! pdx_wrapper {
    ($function:path) => {
        ::core::arch::naked_asm!("mov rcx, r10", "call {function}", "ud2", function = sym $function)
    };
}

/// Ends a protected call with two results. The procedure's function does this itself instead of returning to its wrapper: a function that does not return
/// gives nobody his registers back.
///
/// # Safety
/// 1. The kernel entered the caller for a protected call, and nothing of its frames is used any more.
#[doc(hidden)]
#[inline(always)]
pub unsafe fn leave_procedure(first: u64, second: u64) -> ! {
    // SAFETY: (1) the call takes two words and does not come back.
    unsafe {
        core::arch::asm!(
            "syscall",
            "ud2",
            // The kernel compares all of the register, and of a shorter word the rest would be open.
            in("rax") abi::Call::PdxReturn as u64,
            in("rdi") first,
            in("rsi") second,
            options(noreturn, nostack),
        )
    }
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
