//! Entries that leave the two topmost words of their stack free, as those of the runtime's module do.

use rt::{call::ThreadEntry, pdx::Entry};

use crate::native;

/// The first function of a thread that runs [`native::caller`].
pub fn caller_entry() -> ThreadEntry {
    // SAFETY: the kernel enters here with the word in the first argument's register and a fresh stack; it never returns.
    #[unsafe(naked)]
    extern "C" fn wrapper() -> ! {
        core::arch::naked_asm!(
            "sub rsp, 16",
            "call {function}",
            "xor edi, edi",
            "mov rsi, rax",
            "mov eax, {thread_delete}",
            "syscall",
            "ud2",
            function = sym native::caller,
            thread_delete = const abi::Call::ThreadDelete as u64,
        )
    }
    // SAFETY: it does what the body of `thread_wrapper!` does, further down on the stack.
    unsafe { ThreadEntry::new(wrapper as *const () as u64) }
}

/// The protected procedure [`native::callee`].
pub fn callee_entry() -> Entry {
    // SAFETY: the kernel enters here with the words in registers and a fresh stack; it never returns.
    #[unsafe(naked)]
    extern "C" fn wrapper() -> ! {
        core::arch::naked_asm!(
            "mov rcx, r10",
            "sub rsp, 16",
            "call {function}",
            "mov rdi, rax",
            "mov rsi, rdx",
            "mov eax, {pdx_return}",
            "syscall",
            "ud2",
            function = sym native::callee,
            pdx_return = const abi::Call::PdxReturn as u64,
        )
    }
    // SAFETY: it does as `pdx_wrapper!` and `leave_procedure`, with two words of the stack left free, around a function of any words.
    unsafe { Entry::new(wrapper as *const () as u64) }
}
