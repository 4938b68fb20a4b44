//! x86-64: the parts of the contract in [`super`].

pub mod crimes;
pub mod entered;
pub mod guarded;
pub mod handlers;
pub mod oddities;
pub mod registers;
pub mod vectors;

use rt::call::Answer;

/// Does any system call with any arguments.
///
/// It may take away or change memory of this program. The suite uses it on memory that the compiler
/// knows nothing of, or in a task that is there to be spoilt.
pub fn system_call(number: u64, arguments: [u64; 6]) -> Answer {
    // SAFETY: see above; what a spoilt assistant does hurts nobody but itself, that is what is tested.
    unsafe { rt::call::raw(number, arguments) }
}

/// Does a call without arguments through a stub at that address; gives its value.
pub fn call_by(stub: u64, number: u64) -> u64 {
    let value;
    // SAFETY: the stub does the system call and returns; all that one may clobber is declared or kept.
    unsafe {
        core::arch::asm!(
            "push rbx", "push rbp", "call r12", "pop rbp", "pop rbx",
            inout("rax") number => _, out("rdx") value, out("rcx") _, out("rsi") _, out("rdi") _, out("r8") _,
            out("r9") _, out("r10") _, out("r11") _, inout("r12") stub => _, out("r13") _, out("r14") _, out("r15") _,
        );
    }
    value
}

/// `mov esi, 42; xor edi, edi; mov eax, ThreadDelete; syscall; ud2`.
pub const END_CODE: &[u8] = &[0xbe, 42, 0, 0, 0, 0x31, 0xff, 0xb8, 42, 0, 0, 0, 0x0f, 0x05, 0x0f, 0x0b];

/// `mov eax, PdxReturn; syscall; ud2`.
pub const RETURN_CODE: &[u8] = &[0xb8, 2, 0, 0, 0, 0x0f, 0x05, 0x0f, 0x0b];

const _: () =
    assert!(abi::Call::ThreadDelete as u64 == 42 && abi::Call::PdxReturn as u64 == 2 && super::END_STATUS == 42);
