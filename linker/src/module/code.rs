//! Compiled code, looked at instruction by instruction (`iced-x86`).
//!
//! Compilers reach variables relative to the instruction pointer: `mod=00 rm=101` in the `ModRM` byte, then 32
//! bits of distance. Relative to `rbx` it is `mod=10 rm=011` and 32 bits, no byte longer, which is why the
//! data register is `rbx`: of the registers that calls preserve only it and `rbp` need no prefix. So code
//! compiled with `rbx` left alone (`-ffixed-rbx`) is turned into code for the data register in place.
//!
//! [`sweep`] finds the functions of a section, the fields that name other places, and who writes `rbx`.
//! Compilers put no data between instructions; where somebody did, decoding fails or a relocation meets no
//! field, and the linker refuses.

use super::input::{Kind, Relocation, Section};
use alloc::vec::Vec;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, InstructionInfoOptions, OpAccess,
    OpKind, Register,
};

/// A stretch of code from the place of one function symbol to the next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// First byte in the section.
    pub start: u64,
    /// One past its last.
    pub end: u64,
    /// It changes the data register.
    pub writes_register: bool,
    /// It cannot be read as instructions to its end.
    pub undecodable: bool,
    /// The fields that name other places.
    pub uses: Vec<Use>,
}

/// How an instruction uses the place that its field names.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// Jump or call to it, the distance in the instruction.
    Branch,
    /// Call through the word there.
    Call,
    /// Jump through the word there.
    Jump,
    /// Its address into a register.
    Address,
    /// The 64-bit word there into a register.
    Load,
    /// Anything else with memory.
    Memory,
    /// An immediate operand, or a displacement from another register.
    Immediate,
    /// The displacement, in an inline call, of the word with the address of the callee's data; from what.
    InlineData(Base),
    /// The displacement, in an inline call, of the word with the address of the callee; from what.
    InlineEntry(Base),
    /// No field of an instruction: data between instructions.
    Data,
}

/// What the register in the operands of an inline call holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Base {
    /// The caller's own data: the callee is imported.
    Own,
    /// Something else: the address of a procedure, which is a function and its data.
    Procedure,
}

/// A field that names another place.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Use {
    /// First byte of the instruction.
    pub start: u64,
    /// First byte of the field.
    pub at: u64,
    /// One past the instruction.
    pub next: u64,
    /// How it is used.
    pub form: Form,
    /// The relocation of the field, by its index.
    pub relocation: Option<usize>,
    /// Without one: the byte in the same section.
    pub target: u64,
}

/// Finds functions and uses. `starts` are the places of function symbols, ascending.
pub fn sweep(section: &Section, starts: &[u64]) -> Vec<Function> {
    debug_assert!(section.kind == Kind::Text);
    let mut bounds: Vec<u64> = starts.iter().copied().filter(|at| *at < section.bytes).collect();
    if bounds.first() != Some(&0) {
        bounds.insert(0, 0);
    }
    bounds.dedup();
    let mut factory = InstructionInfoFactory::new();
    let mut result = Vec::with_capacity(bounds.len());
    let mut next_relocation = 0;
    for (index, &start) in bounds.iter().enumerate() {
        let end = bounds.get(index + 1).copied().unwrap_or(section.bytes);
        let mut function = Function {
            start,
            end,
            writes_register: false,
            undecodable: false,
            uses: Vec::new(),
        };
        function.read(section, &mut next_relocation, &mut factory);
        result.push(function);
    }
    result
}

impl Function {
    fn read(&mut self, section: &Section, next: &mut usize, factory: &mut InstructionInfoFactory) {
        let code = section
            .data
            .get(self.start as usize..self.end as usize)
            .unwrap_or_default();
        let mut decoder = Decoder::with_ip(64, code, self.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut inline = Inline::Outside;
        while decoder.can_decode() {
            let start = decoder.ip();
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                self.undecodable = true;
                break;
            }
            let offsets = decoder.get_constant_offsets(&instruction);
            let end = decoder.ip();
            let field = |at: usize| start + at as u64;
            let mut displacement = None;
            let mut immediate = None;
            while let Some(relocation) = section.relocations.get(*next).filter(|one| one.at < end) {
                let index = *next;
                *next += 1;
                let wide = |bytes: usize| bytes == width(relocation);
                if offsets.has_displacement()
                    && field(offsets.displacement_offset()) == relocation.at
                    && wide(offsets.displacement_size())
                {
                    displacement = Some(index);
                } else if offsets.has_immediate()
                    && field(offsets.immediate_offset()) == relocation.at
                    && wide(offsets.immediate_size())
                {
                    immediate = Some(index);
                } else {
                    self.uses.push(Use::data(relocation, index));
                }
            }
            let uses = self.uses.len();
            self.memory_use(
                &instruction,
                start,
                end,
                field(offsets.displacement_offset()),
                displacement,
            );
            self.immediate_use(&instruction, start, end, field(offsets.immediate_offset()), immediate);
            let named = displacement.map(|_| uses);
            let next = inline.then(&instruction, named, &mut self.uses);
            // What looked like an inline call so far, and does not go on as one, is none.
            self.writes_register |=
                next.is_none() && (inline != Inline::Outside || writes_register(&instruction, factory));
            inline = next.unwrap_or(Inline::Outside);
        }
        self.writes_register |= inline != Inline::Outside;
        while let Some(relocation) = section.relocations.get(*next).filter(|one| one.at < self.end) {
            self.uses.push(Use::data(relocation, *next));
            *next += 1;
        }
    }

    fn memory_use(&mut self, instruction: &Instruction, start: u64, next: u64, at: u64, relocation: Option<usize>) {
        if relocation.is_none() && !instruction.is_ip_rel_memory_operand() {
            return;
        }
        let form = if instruction.is_ip_rel_memory_operand() {
            match instruction.code() {
                Code::Call_rm64 => Form::Call,
                Code::Jmp_rm64 => Form::Jump,
                Code::Lea_r64_m => Form::Address,
                Code::Mov_r64_rm64 => Form::Load,
                _ => Form::Memory,
            }
        } else {
            // An absolute or based displacement: an absolute address in it.
            Form::Immediate
        };
        self.uses.push(Use {
            start,
            at,
            next,
            form,
            relocation,
            target: instruction.ip_rel_memory_address(),
        });
    }

    fn immediate_use(&mut self, instruction: &Instruction, start: u64, next: u64, at: u64, relocation: Option<usize>) {
        let branch = matches!(instruction.op0_kind(), OpKind::NearBranch64 | OpKind::NearBranch32)
            || matches!(instruction.flow_control(), FlowControl::XbeginXabortXend)
                && instruction.op0_kind() == OpKind::NearBranch64;
        let target = instruction.near_branch_target();
        let leaves = branch && !(self.start..self.end).contains(&target);
        if relocation.is_none() && !leaves {
            return;
        }
        self.uses.push(Use {
            start,
            at,
            next,
            form: if branch { Form::Branch } else { Form::Immediate },
            relocation,
            target,
        });
    }
}

/// How far an inline call has been read. It is three instructions, `mov rbx, [P + data]`, `call [P + entry]` and
/// `mov rbx, R`, with the module's own data in a register `R` that calls preserve, which is `P` too if the callee is
/// imported. So `rbx` is as before at its end, and nothing lies between that could use it; what uses it elsewhere is as
/// good as in a function without inline calls.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Inline {
    /// Not in one.
    Outside,
    /// The callee's data is loaded: `P`, and the use of the displacement.
    Loaded(Register, usize),
    /// And the callee called: that use too.
    Called(Register, usize, usize),
}

impl Inline {
    /// After one more instruction, whose displacement is the use `named`; none if this is not how an inline call begins or
    /// goes on.
    fn then(self, instruction: &Instruction, named: Option<usize>, uses: &mut [Use]) -> Option<Self> {
        let place = instruction.memory_base();
        let word = named.filter(|_| instruction.memory_index() == Register::None && place.is_gpr64());
        let writes_register = instruction.op0_register() == Register::RBX;
        match (self, instruction.code()) {
            (Self::Outside, Code::Mov_r64_rm64) if writes_register => Some(Self::Loaded(place, word?)),
            (Self::Loaded(from, data), Code::Call_rm64) if place == from => Some(Self::Called(from, data, word?)),
            (Self::Called(from, data, entry), Code::Mov_rm64_r64 | Code::Mov_r64_rm64)
                if writes_register && is_kept(instruction.op1_register()) =>
            {
                let own = instruction.op1_register() == from;
                let base = if own { Base::Own } else { Base::Procedure };
                uses.get_mut(data)?.form = Form::InlineData(base);
                uses.get_mut(entry)?.form = Form::InlineEntry(base);
                Some(Self::Outside)
            }
            _ => None,
        }
    }
}

/// Whether calls preserve a register, `rbx` apart.
fn is_kept(register: Register) -> bool {
    const KEPT: [Register; 5] = [
        Register::RBP,
        Register::R12,
        Register::R13,
        Register::R14,
        Register::R15,
    ];
    KEPT.contains(&register)
}

impl Use {
    fn data(relocation: &Relocation, index: usize) -> Self {
        Self {
            start: relocation.at,
            at: relocation.at,
            next: relocation.at,
            form: Form::Data,
            relocation: Some(index),
            target: 0,
        }
    }
}

/// Bytes that a relocation fills.
pub fn width(relocation: &Relocation) -> usize {
    use object::elf;
    match relocation.kind {
        elf::R_X86_64_64
        | elf::R_X86_64_PC64
        | elf::R_X86_64_GOTOFF64
        | elf::R_X86_64_GOTPC64
        | elf::R_X86_64_GOT64
        | elf::R_X86_64_GOTPCREL64
        | elf::R_X86_64_PLTOFF64
        | elf::R_X86_64_TPOFF64
        | elf::R_X86_64_DTPOFF64
        | elf::R_X86_64_SIZE64 => 8,
        elf::R_X86_64_16 | elf::R_X86_64_PC16 => 2,
        elf::R_X86_64_8 | elf::R_X86_64_PC8 => 1,
        _ => 4,
    }
}

fn writes_register(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
    let info = factory.info_options(instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
    info.used_registers().iter().any(|used| {
        used.register().full_register() == Register::RBX
            && matches!(
                used.access(),
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
    })
}

/// Turns the operand at `[rip + …]` whose field is at `at` into one at `[rbx + displacement]`; false if the
/// instruction is none that this can be done to. `code` begins with the instruction.
pub fn use_register(code: &mut [u8], at: usize, length: usize, displacement: i32) -> bool {
    let Some(modrm) = at.checked_sub(1).and_then(|at| code.get_mut(at)) else {
        return false;
    };
    if *modrm & 0b1100_0111 != 0b0000_0101 {
        return false;
    }
    *modrm = (*modrm & 0b0011_1000) | 0b1000_0011;
    let Some(field) = code.get_mut(at..at + 4) else {
        return false;
    };
    field.copy_from_slice(&displacement.to_le_bytes());
    // A prefix could have made another register of it: read it again.
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let instruction = decoder.decode();
    !instruction.is_invalid()
        && instruction.len() == length
        && instruction.memory_base() == Register::RBX
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == i64::from(displacement).cast_unsigned()
}
