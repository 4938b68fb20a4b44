//! Machine code that the linker adds, as bytes.
//!
//! A **thunk** makes one word of a function and an instance: it keeps the caller's data register, loads the
//! instance's (its own distance from the data is constant, so its bytes are the same in every instance),
//! calls, restores. Arguments on the stack are copied below, in order and with the alignment they had.
//! Copying counts in `r11`, the one register that the psABI lets such code change (`r10` is the static chain,
//! `al` the number of vector arguments).
//!
//! Nobody knows how many arguments a call of a variadic function leaves on the stack, only how many are copied at most. They may
//! be the last words of the stack. So where the copied words would reach another page than the stack pointer's, the thunk
//! asks first how many of them can be read ([`reach`]), and leaves the place of the others as it is.
//!
//! An **import stub** is what a direct call to an import leads to: a jump through the descriptor. A **lazy
//! stub** stands in the descriptor until the first call; it names its slot to the binder, with all argument
//! registers kept, and then jumps through the slot. Both are part of the shared text.

use super::entries::{PLAIN, put_common, put_entry, put_signed, put_unsigned};
use super::format::{DATA_BINDER_AT, DATA_REACH_AT};
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

/// The words of arguments that a thunk copies.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Copied {
    /// So many, which are there.
    Exactly(u32),
    /// So many, as far as they can be read; an even number, so that the stack stays aligned.
    UpTo(u32),
}

impl Copied {
    /// Of a function without arguments on the stack.
    pub const NONE: Self = Self::Exactly(0);

    /// Byte of a thunk where the function's address stands: behind the code, which has 16 bytes, 42 or 47 with words on the
    /// stack, 77 with a variable number of them.
    pub const fn constant_at(self) -> u32 {
        match self {
            Self::NONE => 16,
            Self::Exactly(_) => 48,
            Self::UpTo(_) => 80,
        }
    }

    /// Bytes from one thunk to the next.
    pub const fn thunk_bytes(self) -> u32 {
        (self.constant_at() + 8).next_multiple_of(ALIGN as u32)
    }
}

/// A thunk for the function at `function` that copies `words`; `to_data` and `to_reach` are the
/// distances from the thunk's first byte to the data, and to [`reach`].
pub fn thunk(function: u64, words: Copied, to_data: i32, to_reach: i32) -> Vec<u8> {
    let constant = words.constant_at();
    let mut code = Vec::with_capacity(96);
    // push rbx
    code.push(0x53);
    let copied = match words {
        Copied::Exactly(count) => {
            // lea rsp, [rsp - 8]
            if count % 2 == 1 {
                code.extend([0x48, 0x8d, 0x64, 0x24, 0xf8]);
            }
            8 * count.next_multiple_of(2)
        }
        Copied::UpTo(count) => 8 * count,
    };
    // lea rbx, [rip + to_data]
    code.extend([0x48, 0x8d, 0x1d]);
    distance(&mut code, to_data);
    match words {
        Copied::NONE => {}
        Copied::Exactly(count) => {
            // mov r11d, count
            code.extend([0x41, 0xbb]);
            code.extend(count.to_le_bytes());
            // again: push qword [rsp + from]; each push brings the word before into its place
            code.extend([0xff, 0xb4, 0x24]);
            code.extend((8 + copied).to_le_bytes());
            // dec r11d; jnz again
            code.extend([0x41, 0xff, 0xcb, 0x75, 0xf4]);
        }
        Copied::UpTo(count) => {
            // lea r11, [rsp + the last byte]; xor r11, rsp; shr r11, 12: zero if it is in the same page
            code.extend([0x4c, 0x8d, 0x9c, 0x24]);
            code.extend((15 + copied).to_le_bytes());
            code.extend([0x49, 0x31, 0xe3, 0x49, 0xc1, 0xeb, 12]);
            // mov r11d, count; jz over
            code.extend([0x41, 0xbb]);
            code.extend(count.to_le_bytes());
            code.extend([0x74, 5]);
            // call reach
            code.push(0xe8);
            distance(&mut code, to_reach);
            // over: lea rsp, [rsp + 8 r11 - copied]: the place of those that are not copied
            code.extend([0x4a, 0x8d, 0xa4, 0xdc]);
            code.extend(copied.wrapping_neg().to_le_bytes());
            // test r11, r11; jz done
            code.extend([0x4d, 0x85, 0xdb, 0x74, 12]);
            // again: push qword [rsp + from]; dec r11; jnz again; done:
            code.extend([0xff, 0xb4, 0x24]);
            code.extend((8 + copied).to_le_bytes());
            code.extend([0x49, 0xff, 0xcb, 0x75, 0xf4]);
        }
    }
    // call [rip + constant]
    code.extend([0xff, 0x15]);
    distance(&mut code, constant.cast_signed());
    if words != Copied::NONE {
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

/// Code between keeping all that may carry arguments (general registers, the static chain, the low halves of the vector
/// registers) and having it back. At its end the caller's `rbp` is back, too. `kept` is the number of the last register that is
/// kept, 10 or 11; `padding` aligns the stack.
fn keeping(kept: u8, padding: u8, code_between: &[u8]) -> Vec<u8> {
    let mut code = Vec::with_capacity(160);
    // push rbp; mov rbp, rsp
    code.extend([0x55, 0x48, 0x89, 0xe5]);
    // push rdi, rsi, rdx, rcx, rax, r8, ...
    code.extend([0x57, 0x56, 0x52, 0x51, 0x50]);
    for register in 8..=kept {
        code.extend([0x41, 0x48 + register]);
    }
    // sub rsp: eight vectors, and the stack aligned to 16
    code.extend([0x48, 0x81, 0xec, 128 + padding, 0, 0, 0]);
    // movups [rsp + 16 n], xmm n
    for vector in 0..8_u8 {
        code.extend([0x0f, 0x11, 0x44 | (vector << 3), 0x24, 16 * vector]);
    }
    code.extend(code_between);
    for vector in 0..8_u8 {
        code.extend([0x0f, 0x10, 0x44 | (vector << 3), 0x24, 16 * vector]);
    }
    code.extend([0x48, 0x81, 0xc4, 128 + padding, 0, 0, 0]);
    for register in (8..=kept).rev() {
        code.extend([0x41, 0x50 + register]);
    }
    // pop rax, rcx, rdx, rsi, rdi, rbp
    code.extend([0x58, 0x59, 0x5a, 0x5e, 0x5f, 0x5d]);
    code
}

/// What all lazy stubs end in: calls `binder(data, slot)` with everything kept, then jumps through the slot.
pub fn lazy_common() -> Vec<u8> {
    // mov rdi, rbx; mov esi, r11d; call [rbx + binder]
    let mut bind = Vec::from([0x48, 0x89, 0xdf, 0x44, 0x89, 0xde, 0xff, 0x93]);
    bind.extend(DATA_BINDER_AT.to_le_bytes());
    let mut code = keeping(11, 8, &bind);
    debug_assert!(code.len() == POPPED_AT as usize);
    // jmp [rbx + r11]
    code.extend([0x42, 0xff, 0x24, 0x1b]);
    pad(&mut code);
    code
}

/// What thunks call whose words reach another page: `reach(arguments, words)` of the task's runtime, which says how many words from
/// there on can be read; with everything kept. It stands behind the thunks, in the same pages.
pub fn reach() -> Vec<u8> {
    // lea rdi, [rbp + 32]: above rbp, the way back, rbx and the caller's way back
    let mut ask = Vec::from([0x48, 0x8d, 0x7d, 32]);
    // mov esi, r11d; call [rbx + reach]; mov r11d, eax
    ask.extend([0x44, 0x89, 0xde, 0xff, 0x93]);
    ask.extend(DATA_REACH_AT.to_le_bytes());
    ask.extend([0x41, 0x89, 0xc3]);
    let mut code = keeping(10, 0, &ask);
    debug_assert!(code.len() == POPPED_AT as usize);
    code.push(0xc3);
    pad(&mut code);
    code
}

/// Byte of [`lazy_common`] and of [`reach`] behind `pop rbp`.
const POPPED_AT: u8 = 137;
/// Numbers of registers, as the psABI has them for DWARF (figure 3.36).
const RBX: u8 = 3;
const RBP: u8 = 6;
const RSP: u8 = 7;

/// Rules say where the frame's address is, and where what was saved stands in words below it (DWARF 5, 6.4.2).
fn after(rules: &mut Vec<u8>, bytes: u8) {
    // DW_CFA_advance_loc, or the form with a byte
    if bytes < 0x40 {
        rules.push(0x40 | bytes);
    } else {
        rules.extend([0x02, bytes]);
    }
}

fn frame_at(rules: &mut Vec<u8>, above_rsp: u64) {
    // DW_CFA_def_cfa
    rules.extend([0x0c, RSP]);
    put_unsigned(rules, above_rsp);
}

fn saved(rules: &mut Vec<u8>, register: u8) {
    // DW_CFA_offset: two words below
    rules.extend([0x80 | register, 2]);
}

fn restored(rules: &mut Vec<u8>, register: u8) {
    // DW_CFA_restore
    rules.push(0xc0 | register);
}

fn expression(rules: &mut Vec<u8>, code: &[u8]) {
    put_unsigned(rules, code.len() as u64);
    rules.extend(code);
}

/// The rules of [`lazy_common`] and of [`reach`].
pub fn keeping_rules() -> Vec<u8> {
    let mut rules = Vec::new();
    after(&mut rules, 1);
    frame_at(&mut rules, 16);
    saved(&mut rules, RBP);
    after(&mut rules, 3);
    // DW_CFA_def_cfa_register
    rules.extend([0x0d, RBP]);
    after(&mut rules, POPPED_AT - 4);
    frame_at(&mut rules, 8);
    restored(&mut rules, RBP);
    rules
}

/// The rules of all thunks without words on the stack that lie side by side: of 32 bytes each, of which `rbx` is on the
/// stack before 1 to 14. One entry instead of one for each thunk, as linkers do for procedure linkage tables.
fn plain_rules() -> Vec<u8> {
    // (rip - 1) & 31 < 14
    const PUSHED: [u8; 6] = [0x80, 0x7f, 0x4f, 0x1a, 0x3e, 0x2d];
    let mut rules = Vec::new();
    // DW_CFA_def_cfa_expression: rsp + 8 + (pushed << 3)
    rules.push(0x0f);
    let mut code = Vec::from([0x77, 8]);
    code.extend(PUSHED);
    code.extend([0x33, 0x24, 0x22]);
    expression(&mut rules, &code);
    // DW_CFA_val_expression rbx: pushed ? [frame - 16] : rbx
    rules.extend([0x16, RBX]);
    let mut code = Vec::from(PUSHED);
    // bra over: drop; breg3 0; skip over: lit16; minus; deref
    code.extend([0x28, 6, 0, 0x13, 0x73, 0, 0x2f, 3, 0, 0x40, 0x1c, 0x06]);
    expression(&mut rules, &code);
    rules
}

/// The rules of a thunk that copies words.
fn copying_rules(words: Copied) -> Vec<u8> {
    let (Copied::Exactly(count) | Copied::UpTo(count)) = words;
    let odd = count % 2 == 1;
    let before = if odd { 24 } else { 16 };
    let copied = before + 8 * u64::from(count);
    let mut rules = Vec::new();
    after(&mut rules, 1);
    frame_at(&mut rules, 16);
    saved(&mut rules, RBX);
    if odd {
        after(&mut rules, 5);
        frame_at(&mut rules, before);
    }
    // In the loop r11 counts the words that are still to be pushed, between push and dec one too many.
    let copying = |rules: &mut Vec<u8>, above: u64| {
        rules.push(0x0f);
        let mut code = Vec::from([0x77]);
        put_signed(&mut code, above.cast_signed());
        // breg11 0; lit3; shl; minus
        code.extend([0x7b, 0, 0x33, 0x24, 0x1c]);
        expression(rules, &code);
    };
    after(&mut rules, if let Copied::Exactly(_) = words { 7 + 6 } else { 43 });
    copying(&mut rules, copied);
    // A variable number is tested for zero first.
    after(&mut rules, if let Copied::Exactly(_) = words { 7 } else { 5 + 7 });
    copying(&mut rules, copied + 8);
    after(&mut rules, 3);
    copying(&mut rules, copied);
    after(&mut rules, 2);
    frame_at(&mut rules, copied);
    after(&mut rules, 6 + 8);
    frame_at(&mut rules, 16);
    after(&mut rules, 1);
    frame_at(&mut rules, 8);
    restored(&mut rules, RBX);
    rules
}

/// What lies behind the thunks: how they are left, relative to where it stands, so that it is right in every instance.
/// `words` are those of the thunks in their order, those without words first; [`reach`] stands behind the last if one needs it;
/// `at` is the byte behind all.
pub fn entries(words: &[Copied], at: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let plain = words.iter().take_while(|words| **words == Copied::NONE).count();
    let common = put_common(&mut bytes, &PLAIN);
    let mut start = -i64::from(at);
    let mut put = |covered: u32, rules: &[u8]| {
        put_entry(&mut bytes, common, start, covered, None, rules);
        start += i64::from(covered);
    };
    if plain > 0 {
        put(plain as u32 * Copied::NONE.thunk_bytes(), &plain_rules());
    }
    for &words in &words[plain..] {
        put(words.thunk_bytes(), &copying_rules(words));
    }
    if needs_reach(words) {
        put(reach().len() as u32, &keeping_rules());
    }
    bytes.extend([0; 8]);
    bytes
}

/// Whether one of the thunks copies a variable number of words.
pub fn needs_reach(words: &[Copied]) -> bool {
    words.iter().any(|words| matches!(words, Copied::UpTo(_)))
}
