//! Machine code that the linker adds, as bytes.
//!
//! A **thunk** makes one word of a function and an instance: it keeps the caller's data register, loads the
//! instance's (its own distance from the data is constant, so its bytes are the same in every instance),
//! calls, restores. Arguments on the stack are copied below, in order and with the alignment they had.
//! Copying counts in `r11`, the one register that the psABI lets such code change (`r10` is the static chain,
//! `al` the number of vector arguments).
//!
//! An **import stub** is what a direct call to an import leads to: a jump through the descriptor. A **lazy
//! stub** stands in the descriptor until the first call; it names its slot to the binder, with all argument
//! registers kept, and then jumps through the slot. Both are part of the shared text.

use super::format::DATA_BINDER_AT;
use alloc::vec::Vec;

/// Alignment of thunks and stubs.
pub const ALIGN: usize = 16;

fn pad(code: &mut Vec<u8>) {
    // int3: nobody gets here.
    code.resize(code.len().next_multiple_of(ALIGN), 0xcc);
}

/// Ends an instruction with the distance to what is `from_start` bytes behind the code's first byte.
fn distance(code: &mut Vec<u8>, from_start: i32) {
    let next = (code.len() as u32 + 4).cast_signed();
    code.extend(from_start.wrapping_sub(next).to_le_bytes());
}

/// Byte of a thunk where the function's address stands: behind the code, which has 16 bytes, or 42 or 47 with words
/// on the stack.
pub const fn constant_at(words: u32) -> u32 {
    if words == 0 { 16 } else { 48 }
}

/// A thunk for the function at `function` with `words` words of arguments on the stack; `to_data` is the
/// distance from the thunk's first byte to the data.
pub fn thunk(function: u64, words: u32, to_data: i32) -> Vec<u8> {
    let constant = constant_at(words);
    let mut code = Vec::with_capacity(80);
    // push rbx
    code.push(0x53);
    let odd = words % 2 == 1;
    if odd {
        // lea rsp, [rsp - 8]
        code.extend([0x48, 0x8d, 0x64, 0x24, 0xf8]);
    }
    // lea rbx, [rip + to_data]
    code.extend([0x48, 0x8d, 0x1d]);
    distance(&mut code, to_data);
    let copied = 8 * words + if odd { 8 } else { 0 };
    if words > 0 {
        // mov r11d, words
        code.extend([0x41, 0xbb]);
        code.extend(words.to_le_bytes());
        // again: push qword [rsp + from]; each push brings the word before into its place
        code.extend([0xff, 0xb4, 0x24]);
        code.extend((8 + copied).to_le_bytes());
        // dec r11d; jnz again
        code.extend([0x41, 0xff, 0xcb, 0x75, 0xf4]);
    }
    // call [rip + constant]
    code.extend([0xff, 0x15]);
    distance(&mut code, constant.cast_signed());
    if words > 0 {
        // lea rsp, [rsp + copied]
        code.extend([0x48, 0x8d, 0xa4, 0x24]);
        code.extend(copied.to_le_bytes());
    }
    // pop rbx; ret
    code.extend([0x5b, 0xc3]);
    code.resize(constant as usize, 0xcc);
    code.extend(function.to_le_bytes());
    pad(&mut code);
    code
}

/// A jump through the word at `slot` of the data.
pub fn import_stub(slot: i32) -> Vec<u8> {
    let mut code = Vec::with_capacity(ALIGN);
    // jmp [rbx + slot]
    code.extend([0xff, 0xa3]);
    code.extend(slot.to_le_bytes());
    pad(&mut code);
    code
}

/// Where a call of a weak function that nobody defines ends: a fault.
pub fn trap_stub() -> Vec<u8> {
    let mut code = Vec::from([0x0f, 0x0b]);
    pad(&mut code);
    code
}

/// The lazy stub of the word at `slot`; `to_common` is the distance from its first byte to [`lazy_common`].
pub fn lazy_stub(slot: i32, to_common: i32) -> Vec<u8> {
    let mut code = Vec::with_capacity(ALIGN);
    // mov r11d, slot
    code.extend([0x41, 0xbb]);
    code.extend(slot.to_le_bytes());
    // jmp common
    code.push(0xe9);
    distance(&mut code, to_common);
    pad(&mut code);
    code
}

/// What all lazy stubs end in: calls `binder(data, slot)` with everything kept that may carry arguments
/// (general registers, the static chain, the low halves of the vector registers), then jumps through the slot.
pub fn lazy_common() -> Vec<u8> {
    let mut code = Vec::with_capacity(160);
    // push rbp; mov rbp, rsp
    code.extend([0x55, 0x48, 0x89, 0xe5]);
    // push rdi, rsi, rdx, rcx, rax, r8, r9, r10, r11
    code.extend([0x57, 0x56, 0x52, 0x51, 0x50]);
    for register in 0x50..=0x53 {
        code.extend([0x41, register]);
    }
    // sub rsp, 136: eight vectors, and the stack aligned to 16
    code.extend([0x48, 0x81, 0xec, 136, 0, 0, 0]);
    // movups [rsp + 16 n], xmm n
    for vector in 0..8_u8 {
        code.extend([0x0f, 0x11, 0x44 | (vector << 3), 0x24, 16 * vector]);
    }
    // mov rdi, rbx; mov esi, r11d; call [rbx + binder]
    code.extend([0x48, 0x89, 0xdf, 0x44, 0x89, 0xde, 0xff, 0x93]);
    code.extend(DATA_BINDER_AT.to_le_bytes());
    for vector in 0..8_u8 {
        code.extend([0x0f, 0x10, 0x44 | (vector << 3), 0x24, 16 * vector]);
    }
    code.extend([0x48, 0x81, 0xc4, 136, 0, 0, 0]);
    for register in (0x58..=0x5b).rev() {
        code.extend([0x41, register]);
    }
    code.extend([0x58, 0x59, 0x5a, 0x5e, 0x5f]);
    // pop rbp; jmp [rbx + r11]
    code.extend([0x5d, 0x42, 0xff, 0x24, 0x1b]);
    pad(&mut code);
    code
}
