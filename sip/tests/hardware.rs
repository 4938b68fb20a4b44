//! Processors that do other than a decoder's plain reading tells: code that only such a difference
//! makes dangerous is refused, and its harmless twin is not.

use sip::compile::{Image, Options, compile};
use sip::verify::{Reason, check};

/// A function with room for anything, in a module with one memory.
fn image() -> Image {
    let text = r"(module (memory 1) (func (param i32 i32) (result i32)
        (i32.store (local.get 0) (i32.mul (local.get 1) (i32.const 1234567)))
        (i32.store offset=4 (local.get 0) (i32.mul (local.get 1) (i32.const 7654321)))
        (i32.store offset=8 (local.get 0) (i32.mul (local.get 1) (i32.const 1231231)))
        (i32.load (local.get 1))))";
    compile(&wat::parse_str(text).expect("text"), Options::default()).expect("compiles")
}

/// The verifier's answer to these bytes at the function's start, with `ud2` behind them.
fn verdict(code: &[u8]) -> Result<(), Reason> {
    let mut image = image();
    let start = image.functions[0].start as usize;
    let end = start + code.len();
    image.code[start..end].copy_from_slice(code);
    image.code[end..end + 2].copy_from_slice(&[0x0f, 0x0b]);
    check(&image).map(|_| ()).map_err(|violation| violation.reason)
}

#[test]
fn addresses_of_half_a_pointer() {
    // mov eax, [rip + 0]; the same relative to eip; lea rax of it.
    assert_eq!(verdict(&[0x8b, 0x05, 0, 0, 0, 0]), Ok(()));
    assert_eq!(verdict(&[0x67, 0x8b, 0x05, 0, 0, 0, 0]), Err(Reason::NotAllowed));
    assert_eq!(verdict(&[0x48, 0x8d, 0x05, 0, 0, 0, 0]), Ok(()));
    assert_eq!(verdict(&[0x67, 0x48, 0x8d, 0x05, 0, 0, 0, 0]), Err(Reason::NotAllowed));
    // mov eax, [edi]: the context's lower half.
    assert_eq!(verdict(&[0x8b, 0x07]), Ok(()));
    assert_eq!(verdict(&[0x67, 0x8b, 0x07]), Err(Reason::UnknownAddress));
}

#[test]
fn branches_with_an_operand_size() {
    // jmp +0, jz +0, ret, call of the function itself is no twin: it needs a stack check.
    assert_eq!(verdict(&[0xe9, 0, 0, 0, 0]), Ok(()));
    assert_eq!(verdict(&[0x66, 0xe9, 0, 0, 0, 0]), Err(Reason::NotAllowed));
    assert_eq!(verdict(&[0x0f, 0x84, 0, 0, 0, 0]), Ok(()));
    assert_eq!(verdict(&[0x66, 0x0f, 0x84, 0, 0, 0, 0]), Err(Reason::NotAllowed));
    assert_eq!(verdict(&[0xc3]), Ok(()));
    for prefix in [0x66, 0xf2, 0xf3, 0x2e, 0x3e, 0x48] {
        assert_eq!(verdict(&[prefix, 0xc3]), Err(Reason::NotAllowed), "{prefix:#x}");
    }
}

#[test]
fn registers_that_are_left_as_they_were() {
    let memory = image().layout.memory(0).to_le_bytes();
    // mov rsi, [rdi + memory]; one that makes eax of ecx; mov edx, [rsi + rax].
    let with = |make: &[u8]| {
        let mut code = vec![0x48, 0x8b, 0xb7];
        code.extend_from_slice(&memory);
        code.extend_from_slice(make);
        code.extend_from_slice(&[0x8b, 0x14, 0x06]);
        verdict(&code)
    };
    assert_eq!(with(&[0x89, 0xc8]), Ok(()), "mov");
    assert_eq!(
        with(&[0x0f, 0x44, 0xc1]),
        Ok(()),
        "cmove, which clears the upper half in any case"
    );
    assert_eq!(with(&[0xf3, 0x0f, 0xb8, 0xc1]), Ok(()), "popcnt");
    for (name, make) in [
        ("bsf", &[0x0f, 0xbc, 0xc1][..]),
        ("bsr", &[0x0f, 0xbd, 0xc1]),
        ("tzcnt", &[0xf3, 0x0f, 0xbc, 0xc1]),
        ("lzcnt", &[0xf3, 0x0f, 0xbd, 0xc1]),
    ] {
        assert_eq!(with(make), Err(Reason::UnknownAddress), "{name}");
    }
}

#[test]
fn other_encodings() {
    // movaps xmm0, xmm1; vmovaps of them; the same with a prefix of AVX-512.
    assert_eq!(verdict(&[0x0f, 0x28, 0xc1]), Ok(()));
    assert_eq!(verdict(&[0xc5, 0xf8, 0x28, 0xc1]), Ok(()));
    assert_eq!(verdict(&[0x62, 0xf1, 0x7c, 0x08, 0x28, 0xc1]), Err(Reason::NotAllowed));
}

/// Everything privileged or strange that fits in a few bytes.
#[test]
fn what_no_process_may_say() {
    for (name, code) in [
        ("hlt", &[0xf4][..]),
        ("syscall", &[0x0f, 0x05]),
        ("int 0x80", &[0xcd, 0x80]),
        ("int3", &[0xcc]),
        ("wrfsbase", &[0xf3, 0x48, 0x0f, 0xae, 0xd0]),
        ("rdpkru", &[0x0f, 0x01, 0xee]),
        ("wrpkru", &[0x0f, 0x01, 0xef]),
        ("xrstor", &[0x0f, 0xae, 0x2f]),
        ("ldmxcsr", &[0x0f, 0xae, 0x17]),
        ("std", &[0xfd]),
        ("popf", &[0x9d]),
        ("cli", &[0xfa]),
        ("in al, dx", &[0xec]),
        ("mov cr3, rax", &[0x0f, 0x22, 0xd8]),
        ("mov ds, eax", &[0x8e, 0xd8]),
        ("mov eax, fs:[rdi]", &[0x64, 0x8b, 0x07]),
        ("movsb", &[0xa4]),
        // These two share a mnemonic with moves of vector registers.
        ("movsd, the string instruction", &[0xa5]),
        ("cmpsd, the string instruction", &[0xa7]),
        ("xlatb", &[0xd7]),
        ("maskmovdqu", &[0x66, 0x0f, 0xf7, 0xc1]),
        ("lock inc", &[0xf0, 0xff, 0x07]),
        ("xchg", &[0x87, 0x07]),
        ("enter", &[0xc8, 0, 0, 0]),
        ("leave", &[0xc9]),
        ("push imm", &[0x6a, 0]),
        ("fld1", &[0xd9, 0xe8]),
        ("movq mm0", &[0x0f, 0x6f, 0xc1]),
        ("jrcxz", &[0xe3, 0]),
        ("loop", &[0xe2, 0]),
        ("far return", &[0xcb]),
        ("iretq", &[0x48, 0xcf]),
        ("rdtsc", &[0x0f, 0x31]),
        ("cpuid", &[0x0f, 0xa2]),
        ("prefetch", &[0x0f, 0x18, 0x0f]),
        ("clflush", &[0x0f, 0xae, 0x3f]),
        ("pause", &[0xf3, 0x90]),
        ("bt in memory", &[0x0f, 0xa3, 0x07]),
    ] {
        assert_eq!(verdict(code), Err(Reason::NotAllowed), "{name}");
    }
}
