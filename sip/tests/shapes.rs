//! Shapes that compilers make: code that is right, and was refused once. Most were found in libraries that clang
//! compiled. Each stands beside a twin that must stay refused.

#[path = "support/code.rs"]
mod code;
use code::{field, image, verdict, verdict_with};
use sip::compile::{Bounds, Care, Cpu, Options, compile_judged};
use sip::exec::{Extern, Program, Store, Val};
use sip::verify::{Reason, check, refused, verify};

/// `mov rdx, [rdi + the length's address]; mov rdx, [rdx]; mov r8, [rdi + memory]`, and then this.
fn with_memory(bounds: Bounds, rest: &[u8]) -> Result<(), Reason> {
    let memory = image(&[0xc3], bounds).layout.memory(0);
    let mut code = field(2, memory + 8);
    code.extend_from_slice(&[0x48, 0x8b, 0x12, 0x4c, 0x8b, 0x87]);
    code.extend_from_slice(&memory.to_le_bytes());
    code.extend_from_slice(rest);
    verdict_with(&code, bounds)
}

/// A pointer that a loop carries ends with nought. Cranelift makes that by `xor` of a register with its copy.
#[test]
fn nought_for_a_pointer() {
    let text = r#"(module (import "env" "f" (func $f (param i32) (result i32))) (memory 1)
      (func (param $x i32) (result i32) (local $at i32)
        (local.set $at (i32.load (local.get $x)))
        (block $out
          (loop $next
            (br_if $out (i32.eqz (call $f (i32.load offset=8 (local.get $at)))))
            (br_if $next (local.tee $at (i32.load (local.get $at)))))
          (local.set $at (i32.const 0)))
        (block $none
          (drop (call $f (local.get $x)))
          (br_if $none (i32.eqz (i32.load offset=4 (local.get $at))))
          (return (i32.load offset=12 (local.get $at))))
        (local.get $at)))"#;
    let bytes = wat::parse_str(text).expect("a good text");
    for bounds in [Bounds::Guard, Bounds::Explicit] {
        for cpu in [Cpu::V2, Cpu::V3] {
            // Nothing is compiled again.
            let image = compile_judged(&bytes, Options { bounds, cpu }, |_, _| Vec::new()).expect("compiles");
            assert!(check(&image).is_ok(), "{bounds:?} {cpu:?}");
        }
    }
    // mov ecx, eax; xor rax, rcx is no nought: the copy has half of it.
    let all = |xor: &[u8]| {
        let code = [&[0x89, 0xc1][..], xor, &[0x45, 0x8b, 0x0c, 0x00, 0xc3]].concat();
        with_memory(Bounds::Guard, &code)
    };
    assert_eq!(all(&[0x31, 0xc8]), Ok(()), "xor eax, ecx is a word");
    assert_eq!(all(&[0x48, 0x31, 0xc8]), Err(Reason::UnknownAddress));
}

/// A sum that a loop makes of its own result grows with every turn, and a counter comes nearer to a length.
#[test]
fn loops_that_grow() {
    // and eax, 0xff; and ecx, 0xff; top: lea ecx, [rcx + rax]; test edx, edx; jne top; mov r9d, [r8 + rcx]; ret
    let sum = |lea: &[u8]| {
        let start = [0x25, 0xff, 0, 0, 0, 0x81, 0xe1, 0xff, 0, 0, 0];
        let back = (-4 - lea.len() as i8).cast_unsigned();
        let end = [0x85, 0xd2, 0x75, back, 0x45, 0x8b, 0x0c, 0x08, 0xc3];
        with_memory(Bounds::Guard, &[&start[..], lea, &end].concat())
    };
    assert_eq!(sum(&[0x8d, 0x0c, 0x01]), Ok(()));
    // lea rcx, [rcx + rax]: after enough turns it is beyond everything.
    assert_eq!(sum(&[0x48, 0x8d, 0x0c, 0x01]), Err(Reason::UnknownAddress));
    // mov ecx, esi; cmp rcx, rdx; jae out; top: add rcx, 1; test eax, eax; jne top; mov r9d, [r8 + rcx]; out: ret
    let counter = |access: &[u8]| {
        let start = [0x89, 0xf1, 0x48, 0x39, 0xd1, 0x73, 8 + access.len() as u8];
        let turns = [0x48, 0x83, 0xc1, 1, 0x85, 0xc0, 0x75, 0xf8];
        with_memory(Bounds::Explicit, &[&start[..], &turns, access, &[0xc3]].concat())
    };
    assert_eq!(counter(&[]), Ok(()));
    assert_eq!(counter(&[0x45, 0x8b, 0x0c, 0x08]), Err(Reason::UnknownAddress));
}

/// Of a bit in memory that an immediate names, only the operand is touched.
#[test]
fn a_bit_in_memory() {
    // and eax, 0xff, and one of these of [r8 + rax]
    let of = |test: &[u8]| {
        let code = [&[0x25, 0xff, 0, 0, 0][..], test, &[0xc3]].concat();
        with_memory(Bounds::Guard, &code)
    };
    assert_eq!(of(&[0x41, 0x0f, 0xba, 0x24, 0x00, 5]), Ok(()), "bt dword, 5");
    assert_eq!(of(&[0x41, 0x0f, 0xba, 0x24, 0x00, 255]), Ok(()), "bt dword, 255");
    assert_eq!(of(&[0x49, 0x0f, 0xba, 0x24, 0x00, 53]), Ok(()), "bt qword, 53");
    assert_eq!(of(&[0x66, 0x41, 0x0f, 0xba, 0x24, 0x00, 9]), Ok(()), "bt word, 9");
    assert_eq!(
        of(&[0x41, 0x0f, 0xa3, 0x0c, 0x00]),
        Err(Reason::NotAllowed),
        "bt dword, ecx"
    );
    assert_eq!(
        of(&[0x49, 0x0f, 0xa3, 0x0c, 0x00]),
        Err(Reason::NotAllowed),
        "bt qword, rcx"
    );
    assert_eq!(
        of(&[0x41, 0x0f, 0xba, 0x2c, 0x00, 5]),
        Err(Reason::NotAllowed),
        "bts dword, 5"
    );
    // The operand itself must lie in the memory: bt dword [r8 + 0x7fffffff * 8 + rax], and through no pointer at all.
    assert_eq!(
        verdict(&[0x0f, 0xba, 0x20, 5, 0xc3]),
        Err(Reason::UnknownAddress),
        "bt [rax], 5"
    );
    // mov rax, [rdi + memory's length]; bt of the length: read only is no place to look at in pieces.
    let at = field(0, image(&[0xc3], Bounds::Guard).layout.memory(0) + 8);
    assert_eq!(
        verdict(&[&at[..], &[0x0f, 0xba, 0x60, 8, 5, 0xc3]].concat()),
        Err(Reason::OutOfBounds)
    );
}

/// An access stands behind the step of the counter that it is made from, with the index of this turn.
#[test]
fn an_access_behind_the_step() {
    let turns = |step: &[u8]| {
        // mov ecx, esi; top: mov eax, ecx; cmp rax, rdx; jae out; the step; mov r9d, [r8 + rax]; test r9d, r9d; jne top
        let start = [0x89, 0xf1, 0x89, 0xc8, 0x48, 0x39, 0xd0, 0x73, 12];
        let end = [0x45, 0x8b, 0x0c, 0x00, 0x45, 0x85, 0xc9, 0x75, 0xed, 0xc3];
        with_memory(Bounds::Explicit, &[&start[..], step, &end].concat())
    };
    assert_eq!(turns(&[0x83, 0xe9, 4]), Ok(()), "sub ecx, 4");
    assert_eq!(turns(&[0x83, 0xe8, 4]), Err(Reason::OutOfBounds), "sub eax, 4");
}

/// A scaled index is compared as it is, and a comparison of it says nothing of another multiple.
#[test]
fn a_scaled_index_is_compared() {
    let scaled = |access: &[u8]| {
        // mov eax, esi; and eax, 0xffffff; lea ecx, [rax * 4]; cmp rcx, rdx; jae out; the access; out: ret
        let mask = [0x89, 0xf0, 0x25, 0xff, 0xff, 0xff, 0];
        let compare = [0x8d, 0x0c, 0x85, 0, 0, 0, 0, 0x48, 0x39, 0xd1, 0x73, access.len() as u8];
        with_memory(Bounds::Explicit, &[&mask[..], &compare, access, &[0xc3]].concat())
    };
    assert_eq!(scaled(&[0x45, 0x8b, 0x0c, 0x08]), Ok(()), "[r8 + rcx]");
    assert_eq!(
        scaled(&[0x45, 0x8b, 0x0c, 0x80]),
        Ok(()),
        "[r8 + rax * 4], the same number"
    );
    assert_eq!(
        scaled(&[0x45, 0x8b, 0x0c, 0x00]),
        Err(Reason::OutOfBounds),
        "[r8 + rax]: less, but nobody compared it"
    );
    assert_eq!(
        scaled(&[0x45, 0x8b, 0x0c, 0xc0]),
        Err(Reason::OutOfBounds),
        "[r8 + rax * 8]"
    );
    // shl rcx, 2
    let more = [0x48, 0xc1, 0xe1, 2, 0x45, 0x8b, 0x0c, 0x08];
    assert_eq!(scaled(&more), Err(Reason::OutOfBounds));
}

/// A constant index that the compiler keeps in the code, as a whole word or half of one.
#[test]
fn an_index_in_the_code() {
    let constant = |load: &[u8], compared: u32, access: u32| {
        // the load, whose displacement leads behind everything; cmp rax, rdx; jae out; mov r9d, [r8 + access]; out: ret
        let tail = [
            &[0x48, 0x39, 0xd0, 0x73, 7, 0x45, 0x8b, 0x88][..],
            &access.to_le_bytes(),
            &[0xc3],
        ]
        .concat();
        let mut code = load.to_vec();
        code.extend_from_slice(&(tail.len() as u32).to_le_bytes());
        code.extend_from_slice(&tail);
        code.extend_from_slice(&compared.to_le_bytes());
        code.extend_from_slice(&[0; 4]);
        with_memory(Bounds::Explicit, &code)
    };
    const { assert!(sip::layout::GUARD_BYTES < 0x2_0000) };
    for load in [&[0x8b, 0x05][..], &[0x48, 0x8b, 0x05]] {
        assert_eq!(constant(load, 0x10_0000, 0x10_0000), Ok(()), "{load:x?}");
        assert_eq!(
            constant(load, 0x10_0000, 0x12_0000),
            Err(Reason::OutOfBounds),
            "{load:x?}"
        );
    }
    // movsxd rax, [rip + ...]: with its sign it is another number.
    assert_eq!(
        constant(&[0x48, 0x63, 0x05], 0x10_0000, 0x10_0000),
        Err(Reason::OutOfBounds)
    );
}

/// The greater of two numbers, by a conditional: one instruction of AVX.
#[test]
fn the_greater_of_two() {
    let text = r"(module
      (func (param f64 f64) (result f64)
        (select (local.get 1) (local.get 0) (f64.lt (local.get 0) (local.get 1))))
      (func (param f32 f32) (result f32)
        (select (local.get 1) (local.get 0) (f32.lt (local.get 0) (local.get 1)))))";
    let cpu = Cpu::V3;
    let options = Options {
        cpu,
        ..Options::default()
    };
    let image = compile_judged(&wat::parse_str(text).expect("a good text"), options, |_, _| Vec::new());
    assert!(check(&image.expect("compiles")).is_ok());
}

/// A comparison is enough in guard mode, too, where an index alone would reach beyond the reservation.
#[test]
fn a_comparison_in_guard_mode() {
    // mov eax, esi; shl rax, 8; cmp rax, rdx; jae out; mov r9d, [r8 + rax]; out: ret
    let mut code = [
        0x89, 0xf0, 0x48, 0xc1, 0xe0, 8, 0x48, 0x39, 0xd0, 0x73, 4, 0x45, 0x8b, 0x0c, 0x00, 0xc3,
    ];
    assert_eq!(with_memory(Bounds::Guard, &code), Ok(()));
    // cmp rdx, rax
    code[7..9].copy_from_slice(&[0x39, 0xc2]);
    assert_eq!(with_memory(Bounds::Guard, &code), Err(Reason::OutOfBounds));
}

/// Functions that a judge refuses are compiled again, these only, and everything finds everything else.
#[test]
fn refused_functions_are_compiled_again() {
    let text = r#"(module (memory 1)
      (func $one (param i32) (result i32) (i32.add (i32.load (local.get 0)) (i32.const 1)))
      (func $two (param i32) (result i32) (i32.mul (call $one (local.get 0)) (i32.load offset=4 (local.get 0))))
      (func (export "run") (param i32) (result i32)
        (i32.add (call $one (local.get 0)) (call $two (local.get 0))))
      (data (i32.const 8) "\06\00\00\00\05\00\00\00"))"#;
    let bytes = wat::parse_str(text).expect("a good text");
    let code = |image: &sip::compile::Image, at: usize| {
        let range = &image.functions[at];
        image.code[range.start as usize..range.end as usize].to_vec()
    };
    for bounds in [Bounds::Guard, Bounds::Explicit] {
        let options = Options {
            bounds,
            ..Options::default()
        };
        let mut asked = Vec::new();
        let mut seen = Vec::new();
        let image = compile_judged(&bytes, options, |image, before| {
            asked.push(before);
            seen.push([0, 1, 2].map(|at| code(image, at).len()));
            if before == Care::Fast { vec![1, 7] } else { vec![1] }
        });
        let image = image.expect("compiles");
        let cares = [Care::Fast, Care::Plain];
        assert_eq!(asked, cares[..if bounds == Bounds::Guard { 2 } else { 1 }]);
        assert_eq!(refused(&image), Ok(Vec::new()));
        let last = [0, 1, 2].map(|at| code(&image, at).len());
        assert!(
            seen.iter().all(|sizes| (sizes[0], sizes[2]) == (last[0], last[2])),
            "{seen:?} {last:?}"
        );
        // In guard mode only the last form has comparisons.
        assert!(bounds == Bounds::Explicit || seen[1][1] < last[1], "{seen:?} {last:?}");
        let program = Program::load(verify(image).expect("proved")).expect("memory");
        let mut store = Store::new().expect("memory");
        let instance = store.instantiate(&program, &[]).expect("no imports");
        let Some(Extern::Func(run)) = store.export(instance, "run") else {
            panic!("no 'run'")
        };
        assert_eq!(store.call(run, &[Val::I32(8)]), Ok(vec![Val::I32(7 + 7 * 5)]));
        for beyond in [65_529, 65_536, -1] {
            let trap = store.call(run, &[Val::I32(beyond)]).expect_err("a trap").to_string();
            assert!(trap.starts_with("out of bounds memory access"), "{trap}");
        }
    }
}

/// All functions that are not proved are told, not the first alone.
#[test]
fn every_refused_function_is_told() {
    let text = "(module (memory 1) (func (result i32) (i32.load (i32.const 1)))
      (func (result i32) (i32.load (i32.const 2))) (func (result i32) (i32.load (i32.const 3))))";
    let bytes = wat::parse_str(text).expect("a good text");
    let mut image = compile_judged(&bytes, Options::default(), |_, _| Vec::new()).expect("compiles");
    for at in [0, 2] {
        // hlt
        let start = image.functions[at].start as usize;
        image.code[start] = 0xf4;
    }
    let told = refused(&image).expect("no contradiction");
    let told: Vec<_> = told
        .into_iter()
        .map(|(at, what)| (at, what.offset, what.reason))
        .collect();
    let of = |at: usize| (at, image.functions[at].start, Reason::NotAllowed);
    assert_eq!(told, [of(0), of(2)]);
    assert_eq!(
        check(&image).map_err(|first| first.offset),
        Err(image.functions[0].start)
    );
}
