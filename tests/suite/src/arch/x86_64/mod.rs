//! x86-64: the parts of the contract in [`super`].

pub mod crimes;
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

/// `mov esi, 42; xor edi, edi; mov eax, ThreadDelete; syscall; ud2`.
pub const END_CODE: &[u8] = &[0xbe, 42, 0, 0, 0, 0x31, 0xff, 0xb8, 42, 0, 0, 0, 0x0f, 0x05, 0x0f, 0x0b];

/// `mov eax, PdxReturn; syscall; ud2`.
pub const RETURN_CODE: &[u8] = &[0xb8, 2, 0, 0, 0, 0x0f, 0x05, 0x0f, 0x0b];

const _: () =
    assert!(abi::Call::ThreadDelete as u64 == 42 && abi::Call::PdxReturn as u64 == 2 && super::END_STATUS == 42);
