//! Compiler bugs, injected into good code one class at a time: the verifier must refuse every one.
//! A class changes one instruction (or one jump-table entry) wherever it applies in the corpus.
#![allow(clippy::cast_possible_wrap, clippy::cast_sign_loss, reason = "a test")]

use iced_x86::{Code, Decoder, DecoderOptions, Encoder, Instruction, Mnemonic, OpKind, Register};
use sip::compile::{Bounds, Cpu, Image, Options, compile};
use sip::layout;
use sip::verify::check;

const CORPUS: &[&str] = &[
    r#"(module
      (import "env" "f" (func $imported (param i32) (result i32)))
      (memory 1) (table 10 funcref) (global $g (mut i64) (i64.const 1))
      (type $t (func (param i32) (result i32)))
      (func $load (param i32) (result i32) (i32.load offset=8 (local.get 0)))
      (func $store (param i32 i64) (i64.store offset=16 (local.get 0) (local.get 1)))
      (func $global (param i64) (global.set $g (i64.add (global.get $g) (local.get 0))))
      (func $indirect (param i32 i32) (result i32)
        (i32.add (call_indirect (type $t) (local.get 1) (local.get 0)) (i32.load (local.get 1))))
      (func $switch (param i32) (result i32)
        (block (block (block (block (block (br_table 0 1 2 3 4 (local.get 0))) (return (i32.const 7))) (return (i32.const 9)))
          (return (i32.const 11))) (return (i32.const 13))) (i32.const 3))
      (func $saved (param i32 i32) (result i32) (local i32)
        (local.set 2 (call $load (local.get 1)))
        (i32.add (i32.add (local.get 0) (local.get 2)) (call $imported (local.get 1))))
      (func $grow (param i32) (result i32) (i32.add (memory.grow (local.get 0)) (call $load (local.get 0))))
      (func $many (param i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.add (local.get 5) (local.get 6)))
      (func $tail (param i32) (result i32) (drop (call $load (local.get 0))) (return_call $load (local.get 0)))
      (func $trap (param i32) (if (local.get 0) (then unreachable))))"#,
    r#"(module
      (import "gondwana:heap" "ld64" (func $ld (param i32 i32) (result i64)))
      (import "gondwana:heap" "st32" (func $st (param i32 i32 i32)))
      (func (param i32 i32) (result i64) (call $st (local.get 0) (local.get 1) (i32.const 4)) (call $ld (local.get 0) (local.get 1))))"#,
];

struct Site<'a> {
    image: &'a Image,
    ins: Instruction,
    next: Instruction,
    function: usize,
}

impl Site<'_> {
    fn is_field(&self, field: u32) -> bool {
        self.ins.mnemonic() == Mnemonic::Mov
            && self.ins.op0_kind() == OpKind::Register
            && self.ins.op1_kind() == OpKind::Memory
            && matches!(
                self.ins.memory_base(),
                Register::RDI | Register::RBX | Register::R12 | Register::R13 | Register::R14 | Register::R15
            )
            && self.ins.memory_index() == Register::None
            // There `rdi` is the runtime block.
            && self.function != 7
            && self.ins.memory_displacement64() == u64::from(field)
    }
    fn field_to(&self, from: u32, to: u32) -> Option<Vec<u8>> {
        self.is_field(from)
            .then(|| self.edit(|ins| ins.set_memory_displacement64(u64::from(to))))?
    }
    fn edit(&self, change: impl FnOnce(&mut Instruction)) -> Option<Vec<u8>> {
        let mut ins = self.ins;
        change(&mut ins);
        let mut encoder = Encoder::new(64);
        encoder.encode(&ins, self.ins.ip()).ok()?;
        let bytes = encoder.take_buffer();
        (bytes.len() <= self.ins.len()).then_some(bytes)
    }
    fn is(&self, mnemonic: Mnemonic) -> bool {
        self.ins.mnemonic() == mnemonic
    }
    fn nop(&self, mnemonic: Mnemonic) -> Option<Vec<u8>> {
        self.is(mnemonic).then(|| vec![0x90; self.ins.len()])
    }
    fn heap(&self) -> bool {
        !self.is(Mnemonic::Lea)
            && self.ins.memory_index() != Register::None
            && self.ins.memory_index_scale() == 1
            && self.image.module.memories.len() == 1
            && !self.element()
    }
    fn element(&self) -> bool {
        // Element accesses are whole words and stand in the function with the indirect call.
        self.function == 3
            && self.image.module.memories.len() == 1
            && self.ins.memory_size().size() == 8
            && self.ins.memory_index() != Register::None
    }
    fn jcc(&self, mnemonic: Mnemonic, to: fn(Instruction) -> Code) -> Option<Vec<u8>> {
        self.is(mnemonic).then(|| self.edit(|ins| ins.set_code(to(*ins))))?
    }
    fn spill(&self) -> bool {
        self.is(Mnemonic::Mov) && self.ins.op0_kind() == OpKind::Memory && self.ins.memory_base() == Register::RSP
    }
    fn reload(&self) -> bool {
        self.is(Mnemonic::Mov)
            && self.ins.op1_kind() == OpKind::Memory
            && self.ins.memory_base() == Register::RSP
            && matches!(
                self.ins.op0_register(),
                Register::RBX | Register::R12 | Register::R13 | Register::R14 | Register::R15
            )
    }
    fn store_global(&self) -> bool {
        self.ins.op0_kind() == OpKind::Memory
            && self.ins.memory_base() == Register::RDI
            && self.function == 2
            && self.image.module.memories.len() == 1
            && self.ins.memory_displacement64() >= u64::from(self.image.layout.cells)
    }
    fn explicit(&self) -> bool {
        self.image.options.bounds == Bounds::Explicit
    }
    fn exchange(&self) -> bool {
        self.image.module.memories.is_empty()
    }
    fn replace(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        (bytes.len() <= self.ins.len()).then(|| bytes.to_vec())
    }
}

type Class = (&'static str, fn(&Site<'_>) -> Option<Vec<u8>>);

const JNOP: fn(&Site<'_>, Mnemonic) -> Option<Vec<u8>> = |site, mnemonic| site.nop(mnemonic);

#[rustfmt::skip]
const CLASSES: &[Class] = &[
    ("memory base from the length's address", |s| { let m = s.image.layout.memory(0); if s.exchange() { None } else { s.field_to(m, m + 8) } }),
    ("memory base from the runtime block", |s| if s.exchange() { None } else { s.field_to(s.image.layout.memory(0), 0) }),
    ("memory base from the instance record", |s| if s.exchange() { None } else { s.field_to(s.image.layout.memory(0), 8) }),
    ("index not zero-extended", |s| (s.function == 0 && !s.explicit() && !s.exchange() && matches!(s.ins.code(), Code::Mov_r32_rm32 | Code::Mov_rm32_r32) && s.ins.op1_kind() == OpKind::Register).then(|| s.edit(|i| { let (a, b) = (i.op0_register().full_register(), i.op1_register().full_register()); i.set_code(Code::Mov_r64_rm64); i.set_op0_register(a); i.set_op1_register(b); }))?.or_else(|| Some(vec![0x90; s.ins.len()]))),
    ("negative displacement", |s| s.heap().then(|| s.edit(|i| { i.set_memory_displ_size(1); i.set_memory_displacement64((-8i64) as u64); }))?),
    ("scaled index", |s| (s.heap() && !s.explicit()).then(|| s.edit(|i| i.set_memory_index_scale(8)))?),
    ("index register never written", |s| s.heap().then(|| s.edit(|i| i.set_memory_index(Register::R11)))?),
    ("base register never written", |s| s.heap().then(|| s.edit(|i| i.set_memory_base(Register::R11)))?),
    ("bounds check left out", |s| s.nop(Mnemonic::Jae)),
    ("bounds check turned round", |s| s.jcc(Mnemonic::Jae, |_| Code::Jb_rel32_64)),
    ("bounds check off by one", |s| (!s.explicit()).then(|| s.jcc(Mnemonic::Jae, |_| Code::Ja_rel32_64))?),
    ("signed bounds check", |s| s.jcc(Mnemonic::Jae, |_| Code::Jge_rel32_64)),
    ("bound compared with itself", |s| (s.is(Mnemonic::Cmp) && s.ins.op1_kind() == OpKind::Memory).then(|| s.edit(|i| { let r = i.op0_register(); i.set_code(Code::Cmp_r64_rm64); i.set_op1_kind(OpKind::Register); i.set_op1_register(r); }))?),
    ("signature check left out", |s| (s.function == 3 && !s.exchange()).then(|| JNOP(s, Mnemonic::Jne))?),
    ("signature check turned round", |s| (s.function == 3 && !s.exchange()).then(|| s.jcc(Mnemonic::Jne, |_| Code::Je_rel32_64))?),
    ("signature compared with another field", |s| (s.function == 3 && !s.exchange()).then(|| s.field_to(s.image.layout.signature(0), layout::STACK_LIMIT))?),
    ("callee's context from another field", |s| (s.element() && s.ins.memory_displacement64() == 8).then(|| s.edit(|i| i.set_memory_displacement64(24)))?),
    ("callee's code from another field", |s| (s.element() && s.ins.memory_displacement64() == 8).then(|| s.edit(|i| i.set_memory_displacement64(16)))?),
    ("element address too coarse", |s| (s.is(Mnemonic::Shl) && s.function == 3).then(|| s.edit(|i| i.set_immediate8(6)))?),
    ("element address too fine", |s| (s.is(Mnemonic::Shl) && s.function == 3).then(|| s.edit(|i| i.set_immediate8(4)))?),
    ("callee-saved register not restored", |s| s.reload().then(|| vec![0x90; s.ins.len()])),
    ("callee-saved register from the wrong slot", |s| s.reload().then(|| s.edit(|i| { i.set_memory_displ_size(1); let d = i.memory_displacement64(); i.set_memory_displacement64(d ^ 8); }))?.or_else(|| Some(vec![0x90; s.ins.len()]))),
    ("frame pointer not restored", |s| s.is(Mnemonic::Pop).then(|| s.replace(&[0x59]))?),
    ("frame pointer left on the stack", |s| s.nop(Mnemonic::Pop)),
    ("frame pointer not saved", |s| s.nop(Mnemonic::Push)),
    ("frame misaligned at a call", |s| (s.is(Mnemonic::Sub) && s.ins.op0_register() == Register::RSP).then(|| s.edit(|i| { let v = i.immediate(1) + 8; i.set_immediate8to64(v as i64); }))?),
    ("frame larger than checked", |s| (s.is(Mnemonic::Sub) && s.ins.op0_register() == Register::RSP).then(|| s.edit(|i| { let v = i.immediate(1) + 48; i.set_immediate8to64(v as i64); }))?),
    ("stack check left out", |s| s.nop(Mnemonic::Ja).filter(|_| s.ins.ip32() - s.image.functions[s.function].start < 0x18)),
    ("stack check turned round", |s| s.jcc(Mnemonic::Ja, |_| Code::Jbe_rel32_64).filter(|_| s.ins.ip32() - s.image.functions[s.function].start < 0x18)),
    ("stack check against another field", |s| s.field_to(layout::STACK_LIMIT, layout::HANDLE_MASK)),
    ("bit test by a register reaches beyond its operand", |s| s.spill().then(|| s.replace(&[0x48, 0x0f, 0xa3, 0x04, 0x24]))?),
    ("spill over the return address", |s| s.spill().then(|| s.edit(|i| { i.set_memory_base(Register::RBP); i.set_memory_displ_size(1); i.set_memory_displacement64(8); }))?),
    ("spill into the caller's frame", |s| s.spill().then(|| s.edit(|i| { i.set_memory_base(Register::RBP); i.set_memory_displ_size(1); i.set_memory_displacement64(16); }))?),
    ("spill below the stack pointer", |s| s.spill().then(|| s.edit(|i| { i.set_memory_base(Register::RBP); i.set_memory_displ_size(1); i.set_memory_displacement64(-128i64 as u64); }))?),
    ("global's store into the stack limit", |s| s.store_global().then(|| s.edit(|i| i.set_memory_displacement64(u64::from(layout::STACK_LIMIT))))?),
    ("global's store into a built-in's entry", |s| s.store_global().then(|| s.edit(|i| i.set_memory_displacement64(u64::from(layout::BUILTINS))))?),
    ("global's store into the signatures", |s| s.store_global().then(|| s.edit(|i| i.set_memory_displacement64(u64::from(s.image.layout.signature(0)))))?),
    ("global's store behind the context", |s| s.store_global().then(|| s.edit(|i| i.set_memory_displacement64(u64::from(s.image.layout.bytes))))?),
    ("call one byte into a function", |s| (s.is(Mnemonic::Call) && s.ins.op0_kind() == OpKind::NearBranch64).then(|| s.edit(|i| { let t = i.near_branch64() + 1; i.set_near_branch64(t); }))?),
    ("call into the padding", |s| (s.is(Mnemonic::Call) && s.ins.op0_kind() == OpKind::NearBranch64).then(|| s.edit(|i| i.set_near_branch64(u64::from(s.image.functions[0].end))))?),
    ("branch into another function", |s| (s.is(Mnemonic::Ja)).then(|| s.edit(|i| i.set_near_branch64(u64::from(s.image.functions[(s.function + 1) % s.image.functions.len()].start) + 4)))?),
    ("branch into an instruction", |s| (s.is(Mnemonic::Ja)).then(|| s.edit(|i| { let t = u64::from(s.image.functions[s.function].start) + 5; i.set_near_branch64(t); }))?),
    ("switch index not clamped", |s| s.nop(Mnemonic::Cmovb).and_then(|_| s.edit(|i| { i.set_code(Code::Mov_r32_rm32); }))),
    ("switch clamped on the wrong side", |s| s.jcc(Mnemonic::Cmovb, |_| Code::Cmovae_r32_rm32)),
    ("switch clamped to more than the table", |s| (s.function == 4 && s.is(Mnemonic::Mov) && s.ins.op1_kind() == OpKind::Immediate32 && s.ins.immediate32() == 4).then(|| s.edit(|i| i.set_immediate32(0x1000)))?),
    ("switch table at another address", |s| (s.is(Mnemonic::Lea) && s.ins.is_ip_rel_memory_operand()).then(|| s.edit(|i| { let t = i.ip_rel_memory_address() + 1; i.set_memory_displacement64(t); }))?),
    ("context not passed to a callee", |s| (matches!(s.function, 5 | 6 | 8) && s.is(Mnemonic::Mov) && s.ins.op0_register() == Register::RDI && s.ins.op1_kind() == OpKind::Register).then(|| vec![0x90; s.ins.len()])),
    ("another import's context", |s| (!s.exchange()).then(|| s.field_to(s.image.layout.function(0) + 8, layout::INSTANCE))?),
    ("import's code from the instance record", |s| (!s.exchange()).then(|| s.field_to(s.image.layout.function(0), layout::INSTANCE))?),
    ("built-in's code from the runtime block", |s| (!s.exchange()).then(|| s.field_to(layout::BUILTINS, layout::RUNTIME))?),
    ("system call", |s| (!s.is(Mnemonic::Ud2)).then(|| s.replace(&[0x0f, 0x05]))?),
    ("halt", |s| (!s.is(Mnemonic::Ud2)).then(|| s.replace(&[0xf4]))?),
    ("interrupts off", |s| (!s.is(Mnemonic::Ud2)).then(|| s.replace(&[0xfa]))?),
    ("port output", |s| (!s.is(Mnemonic::Ud2)).then(|| s.replace(&[0xee]))?),
    ("model-specific register", |s| (!s.is(Mnemonic::Ud2)).then(|| s.replace(&[0x0f, 0x30]))?),
    ("page table root", |s| (!s.is(Mnemonic::Ud2)).then(|| s.replace(&[0x0f, 0x22, 0xd8]))?),
    ("breakpoint", |s| (!s.is(Mnemonic::Ud2)).then(|| s.replace(&[0xcc]))?),
    ("segment override", |s| (s.heap() && s.next.len() > 1).then(|| s.edit(|i| { i.set_segment_prefix(Register::GS); i.set_memory_displacement64(0); i.set_memory_displ_size(0); }))?),
    ("string copy", |s| s.heap().then(|| s.replace(&[0xf3, 0xa4]))?),
    ("scratch area underrun", |s| (s.function == 7 && s.ins.op1_kind() == OpKind::Memory && s.ins.memory_displacement64() == 16 && s.ins.op0_register().is_gpr32()).then(|| s.edit(|i| i.set_memory_displacement64((-8i64).cast_unsigned())))?),
    ("return that pops arguments", |s| (s.is(Mnemonic::Mov) && s.ins.op0_register() == Register::RSP).then(|| s.replace(&[0xc2, 8, 0]))?),
    ("return left out", |s| s.nop(Mnemonic::Ret).filter(|_| s.function != 3 && s.next.mnemonic() != Mnemonic::Ud2)),
    ("trap left out", |s| s.nop(Mnemonic::Ud2).filter(|_| s.next.mnemonic() != Mnemonic::Ud2)),
    ("debug register", |s| (!s.is(Mnemonic::Ud2)).then(|| s.replace(&[0x0f, 0x23, 0xc0]))?),
    ("segment register", |s| (!s.is(Mnemonic::Ud2)).then(|| s.replace(&[0x8e, 0xe8]))?),
    ("stack pointer from a value", |s| (s.is(Mnemonic::Mov) && s.ins.op0_register() == Register::RSP).then(|| s.edit(|i| i.set_op1_register(Register::RAX)))?),
    ("block check left out", |s| (s.exchange()).then(|| JNOP(s, Mnemonic::Ja))?.filter(|_| s.ins.ip32() > 0x18)),
    ("handle not masked", |s| (s.exchange()).then(|| s.nop(Mnemonic::And))?),
    ("handle masked too wide", |s| (s.exchange() && s.is(Mnemonic::And)).then(|| s.edit(|i| i.set_immediate32(0xffff)))?),
    ("block's base and length exchanged", |s| (s.exchange() && s.ins.op0_kind() == OpKind::Register && s.ins.memory_index() != Register::None && s.is(Mnemonic::Mov) && s.ins.memory_displacement64() == 8).then(|| s.edit(|i| { i.set_memory_displ_size(0); i.set_memory_displacement64(0); }))?),
    ("handle table from another field", |s| s.exchange().then(|| s.field_to(layout::HANDLES, layout::RUNTIME))?),
];

fn images() -> Vec<Image> {
    let mut images = Vec::new();
    for text in CORPUS {
        for bounds in [Bounds::Guard, Bounds::Explicit] {
            let bytes = wat::parse_str(text).expect("the corpus parses");
            images.push(compile(&bytes, Options { bounds, cpu: Cpu::V2 }).expect("the corpus compiles"));
        }
    }
    images
}

/// Bytes of the switch's table: four cases, which are too many for comparisons, and the default.
const TABLE: u32 = 20;

/// Instructions of a function, as far as they are code: up to the first padding or constant that
/// does not decode; jump tables come after an indirect jump, and are skipped.
fn instructions(image: &Image, function: usize) -> Vec<Instruction> {
    let range = image.functions[function].clone();
    let mut found = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let bytes = &image.code[at as usize..range.end as usize];
        let mut decoder = Decoder::with_ip(64, bytes, u64::from(at), DecoderOptions::NONE);
        let ins = decoder.decode();
        if ins.is_invalid() {
            break;
        }
        found.push(ins);
        at = ins.next_ip32();
        if ins.mnemonic() == Mnemonic::Jmp
            && ins.op0_kind() == OpKind::Register
            && image.functions[function].end - at > TABLE
            && function == 4
        {
            at += TABLE;
        }
    }
    found
}

#[test]
fn every_class_is_refused() {
    let images = images();
    for image in &images {
        check(image).expect("the corpus is proved as it is");
    }
    let mut report = Vec::new();
    for (name, change) in CLASSES {
        let mut injected = 0;
        for image in &images {
            for function in 0..image.functions.len() {
                let code = instructions(image, function);
                for (at, ins) in code.iter().enumerate() {
                    let next = code.get(at + 1).copied().unwrap_or_default();
                    let site = Site {
                        image,
                        ins: *ins,
                        next,
                        function,
                    };
                    let Some(mut bytes) = change(&site) else { continue };
                    bytes.resize(ins.len(), 0x90);
                    let start = ins.ip32() as usize;
                    if image.code[start..start + bytes.len()] == bytes[..] {
                        continue;
                    }
                    let mut broken = image.clone();
                    broken.code[start..start + bytes.len()].copy_from_slice(&bytes);
                    injected += 1;
                    if let Ok(count) = check(&broken) {
                        report.push(format!(
                            "{name}: accepted at {start:#x} of function {function} ({count}, {:?}): {:?}",
                            image.options.bounds,
                            ins.code()
                        ));
                    }
                }
            }
        }
        if injected == 0 {
            report.push(format!("{name}: applies nowhere"));
        }
        println!("{injected:4} of {name}");
    }
    assert!(CLASSES.len() >= 30);
    assert!(report.is_empty(), "{}", report.join("\n"));
}

#[test]
fn corrupted_jump_tables_are_refused() {
    for image in images().iter().filter(|image| !image.module.memories.is_empty()) {
        let code = instructions(image, 4);
        let jump = code
            .iter()
            .find(|ins| ins.mnemonic() == Mnemonic::Jmp && ins.op0_kind() == OpKind::Register);
        let table = jump.expect("the switch has a table").next_ip32() as usize;
        for (entry, value) in [(0, 1i32), (1, -4096), (2, 0x1_0000), (0, i32::MIN)] {
            let mut broken = image.clone();
            broken.code[table + 4 * entry..table + 4 * entry + 4].copy_from_slice(&value.to_le_bytes());
            assert!(check(&broken).is_err(), "entry {entry} = {value}");
        }
    }
}

/// Random single-bit faults: whatever the verifier accepts must at least still decode and prove; it
/// may not panic or run for ever on any of them.
#[test]
fn bit_flips_never_panic() {
    for image in images() {
        let mut refused = 0;
        for bit in 0..image.code.len() * 8 {
            let mut broken = image.clone();
            broken.code[bit / 8] ^= 1 << (bit % 8);
            refused += usize::from(check(&broken).is_err());
        }
        println!("{refused} of {} refused", image.code.len() * 8);
    }
}
