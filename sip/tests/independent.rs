//! Findings of an adversarial reading of the verifier: machine code that its author wrote to get out, beside its
//! harmless twin. The proof makes every refusal; a request to the runtime, allowed with any registers, ends in
//! a trap.

#[path = "support/code.rs"]
mod code;
mod support;
use code::{field, image, verdict, verdict_with};
use sip::compile::Bounds;
use sip::exec::{Extern, Program, Store, Val};
use sip::layout;
use sip::verify::{Reason, verify};
use support::{World, words};

/// The end of a call of this machine code.
fn run(code: &[u8]) -> String {
    let program = Program::load(verify(image(code, Bounds::Guard)).expect("proved")).expect("memory");
    let mut store = Store::new().expect("memory");
    let instance = store.instantiate(&program, &[]).expect("no imports");
    let Some(Extern::Func(run)) = store.export(instance, "run") else {
        panic!("no 'run'")
    };
    match store.call(run, &[Val::I32(0), Val::I32(0)]) {
        Ok(values) => format!("{values:?}"),
        Err(trap) => trap.to_string(),
    }
}

/// An address so far beneath the stack pointer that it wraps is above every limit, as a number.
#[test]
fn a_stack_check_that_wraps() {
    let frame = |steps: usize| {
        // mov rcx, rsp; sub rcx, 0x7fff_fff0, so many times; cmp rcx, [rdi + STACK_LIMIT]; jb to the trap
        let mut code = vec![0x48, 0x89, 0xe1];
        for _ in 0..steps {
            code.extend_from_slice(&[0x48, 0x81, 0xe9, 0xf0, 0xff, 0xff, 0x7f]);
        }
        code.extend_from_slice(&[0x48, 0x3b, 0x4f, layout::STACK_LIMIT as u8, 0x0f, 0x82, 18, 0, 0, 0]);
        // mov rdx, rsp; sub rsp, 0x7fff_fff0; mov [rsp], rax; mov rsp, rdx; ret
        code.extend_from_slice(&[0x48, 0x89, 0xe2, 0x48, 0x81, 0xec, 0xf0, 0xff, 0xff, 0x7f, 0x48]);
        code.extend_from_slice(&[0x89, 0x04, 0x24, 0x48, 0x89, 0xd4, 0xc3]);
        code
    };
    // How far it takes depends on where the stack is: 2^47 beneath it is nothing on any machine.
    assert_eq!(verdict(&frame(1 << 16)), Err(Reason::StackCheck));
    assert_eq!(verdict(&frame(1)), Err(Reason::StackCheck));
    // The twin compares the stack pointer with a limit raised by the frame.
    // mov rcx, [rdi + STACK_LIMIT]; add rcx, 0x10000; cmp rsp, rcx; jb to the trap
    let mut twin = field(1, layout::STACK_LIMIT);
    twin.extend_from_slice(&[
        0x48, 0x81, 0xc1, 0, 0, 1, 0, 0x48, 0x39, 0xcc, 0x0f, 0x82, 0x0f, 0, 0, 0,
    ]);
    // sub rsp, 0x10000; mov [rsp], rax; add rsp, 0x10000; ret... the trap
    twin.extend_from_slice(&[0x48, 0x81, 0xec, 0, 0, 1, 0, 0x48, 0x89, 0x04, 0x24]);
    twin.extend_from_slice(&[0x48, 0x81, 0xc4, 0, 0, 1, 0, 0xc3]);
    let at = twin.len();
    let jump = 7 + 7 + 3 + 2;
    let target = (at - jump - 4) as u32;
    twin[jump..jump + 4].copy_from_slice(&target.to_le_bytes());
    assert_eq!(verdict(&twin), Ok(()));
}

/// Names of things of the module that are none: built-in functions take what the registers hold.
#[test]
fn built_in_functions_take_any_registers() {
    for which in 0..layout::BUILTIN_COUNT {
        // mov rcx, [rdi + STACK_LIMIT]; add rcx, 64; cmp rsp, rcx; jb over the call; sub rsp, 8
        let mut code = field(1, layout::STACK_LIMIT);
        code.extend_from_slice(&[0x48, 0x83, 0xc1, 64, 0x48, 0x39, 0xcc, 0x72, 0]);
        let from = code.len();
        code.extend_from_slice(&[0x48, 0x83, 0xec, 8]);
        // mov rsi, 2^40; rdx, rcx, r8, r9 from it
        code.extend_from_slice(&[0x48, 0xbe, 0, 0, 0, 0, 0, 1, 0, 0]);
        code.extend_from_slice(&[0x48, 0x89, 0xf2, 0x48, 0x89, 0xf1, 0x49, 0x89, 0xf0, 0x49, 0x89, 0xf1]);
        // call [rdi + built-in]; add rsp, 8; mov eax, 7; ret
        code.extend_from_slice(&[0xff, 0x97]);
        code.extend_from_slice(&(layout::BUILTINS + 8 * which).to_le_bytes());
        code.extend_from_slice(&[0x48, 0x83, 0xc4, 8, 0xb8, 7, 0, 0, 0, 0xc3]);
        code[from - 1] = (code.len() - from) as u8;
        let said = run(&code);
        assert!(said.starts_with("out of bounds"), "{which}: {said}");
    }
}

/// Shifts of what is nought for certain: by more than a register has bits, all told.
#[test]
fn shifts_of_nought() {
    // and eax, 0; shl rax, 31, nine times; ret
    let mut code = vec![0x83, 0xe0, 0];
    for _ in 0..9 {
        code.extend_from_slice(&[0x48, 0xc1, 0xe0, 31]);
    }
    code.push(0xc3);
    assert_eq!(verdict(&code), Ok(()));
}

/// A displacement near the end of all numbers, and a number that was compared when it was less by ten.
#[test]
fn displacements_near_the_end_of_all_numbers() {
    let with = |far: i64| {
        let mut code = Vec::new();
        // and eax, 0; and ecx, 0; add rax, 5; add rcx, 5; add rax, rcx; mov r8, rax; sub r8, 10
        code.extend_from_slice(&[0x83, 0xe0, 0, 0x83, 0xe1, 0, 0x48, 0x83, 0xc0, 5, 0x48, 0x83, 0xc1, 5]);
        code.extend_from_slice(&[0x48, 0x01, 0xc8, 0x49, 0x89, 0xc0, 0x49, 0x83, 0xe8, 10]);
        // mov rdx, [rdi + the length's address]; cmp r8, [rdx]; jae to the end
        code.extend_from_slice(&field(2, image(&[0xc3], Bounds::Explicit).layout.memory(0) + 8));
        code.extend_from_slice(&[0x4c, 0x3b, 0x02, 0x73, 7 + 3 + 10 + 3 + 3]);
        // mov rdx, [rdi + memory]; add rdx, rax; mov rcx, far; add rdx, rcx; mov rax, [rdx]; ret
        code.extend_from_slice(&field(2, image(&[0xc3], Bounds::Explicit).layout.memory(0)));
        code.extend_from_slice(&[0x48, 0x01, 0xc2, 0x48, 0xb9]);
        code.extend_from_slice(&far.to_le_bytes());
        code.extend_from_slice(&[0x48, 0x01, 0xca, 0x48, 0x8b, 0x02, 0xc3]);
        verdict_with(&code, Bounds::Explicit)
    };
    assert_eq!(with(64), Ok(()));
    assert_eq!(with(i64::MAX - 10), Err(Reason::OutOfBounds));
}

/// Endpoint 0 is nobody's, also before a process has any.
#[test]
fn endpoint_nought_of_a_process_without_endpoints() {
    let contract = "contract C
        message m(x: i32)
        state S { ! m -> end }";
    for (side, call) in [
        (
            "client",
            r#"(import "{client C}" "m" (func $f (param i32 i32) (result i32))) (func (export "main") (drop (call $f (i32.const 0) (i32.const 1))))"#,
        ),
        (
            "server",
            r#"(import "{server C}" "receive" (func $f (param i32) (result i32))) (func (export "main") (drop (call $f (i32.const 0))))"#,
        ),
        (
            "server",
            r#"(import "{server C}" "m.x" (func $f (param i32) (result i32))) (func (export "main") (drop (call $f (i32.const 0))))"#,
        ),
    ] {
        let mut world = World::new(&[contract]);
        world.add(&format!("(module {call})"));
        let outcomes = world.group.run();
        assert!(
            words(&outcomes[0]).contains("names no endpoint"),
            "{side}: {}",
            words(&outcomes[0])
        );
    }
}

/// The half-width form of `movsxd` is read in different widths by processors of different makers.
#[test]
fn movsxd_of_half_a_word() {
    assert_eq!(verdict(&[0x48, 0x63, 0xc1, 0xc3]), Ok(()));
    assert_eq!(verdict(&[0x66, 0x63, 0xc1, 0xc3]), Err(Reason::NotAllowed));
}

/// Knowledge at targets is paid for: it can be as much as the code is long, at as many places.
#[test]
fn much_that_is_known_at_many_targets() {
    let with = |facts: usize, targets: usize| {
        // mov rdx, [rdi + the length's address]; room for a slot each; so many comparisons of a number in a slot
        let mut code = field(2, image(&[0xc3], Bounds::Explicit).layout.memory(0) + 8);
        code.extend_from_slice(&field(1, layout::STACK_LIMIT));
        code.extend_from_slice(&[0x48, 0x81, 0xc1, 0, 0, 1, 0, 0x48, 0x39, 0xcc, 0x73, 2, 0x0f, 0x0b]);
        code.extend_from_slice(&[0x48, 0x81, 0xec, 0, 0, 1, 0]);
        for at in 0..facts as u32 {
            // mov eax, esi; mov [rsp + 8 * at], rax; cmp rax, [rdx]; jb over a trap
            code.extend_from_slice(&[0x89, 0xf0, 0x48, 0x89, 0x84, 0x24]);
            code.extend_from_slice(&(8 * at).to_le_bytes());
            code.extend_from_slice(&[0x48, 0x3b, 0x02, 0x72, 2, 0x0f, 0x0b]);
        }
        // jz to the next instruction
        code.extend_from_slice(&[0x74, 0].repeat(targets));
        verdict_with(&code, Bounds::Explicit)
    };
    assert_eq!(with(10, 20_000), Ok(()));
    assert_eq!(with(2_000, 200), Ok(()));
    assert_eq!(with(2_000, 20_000), Err(Reason::TooComplex));
}

/// Registers that carry no argument hold nothing of the host's when a process is entered.
#[test]
fn what_registers_hold_at_the_entry() {
    let mut code = field(2, image(&[0xc3], Bounds::Guard).layout.memory(0));
    // mov [rdx + 8 * n], each register that is no argument; then xmm8 to xmm15 behind them
    for (at, register) in [3u8, 5, 10, 11, 12, 13, 14, 15].into_iter().enumerate() {
        code.extend_from_slice(&[
            0x48 | register >> 3 << 2,
            0x89,
            0x42 | (register & 7) << 3,
            8 * at as u8,
        ]);
    }
    for at in 0..8u8 {
        code.extend_from_slice(&[0x44, 0x0f, 0x11, 0x82 | at << 3]);
        code.extend_from_slice(&(64 + 16 * u32::from(at)).to_le_bytes());
    }
    // xor eax, eax; ret
    code.extend_from_slice(&[0x31, 0xc0, 0xc3]);
    let program = Program::load(verify(image(&code, Bounds::Guard)).expect("proved")).expect("memory");
    let mut store = Store::new().expect("memory");
    let instance = store.instantiate(&program, &[]).expect("no imports");
    let Some(Extern::Func(run)) = store.export(instance, "run") else {
        panic!("no 'run'")
    };
    assert_eq!(store.call(run, &[Val::I32(0), Val::I32(0)]), Ok(vec![Val::I32(0)]));
    let memory = store.memory_bytes(0).expect("one");
    assert!(memory[..192].iter().all(|byte| *byte == 0), "{:x?}", &memory[..192]);
}
