//! The translator: one pass over a function's operators, validating each before it is translated,
//! onto Cranelift's frontend, which makes the SSA form.
//!
//! The operand stack holds SSA values; blocks carry theirs as block parameters. After a branch the
//! rest of a block is validated but not translated (`reachable` is false); blocks opened there are
//! kept as dead frames so that ends match. Vectors rest on the stack as `i8x16` and are cast where
//! an instruction wants another shape. References are `i64` handles, 0 is null.
//!
//! [`control`] has blocks, branches and calls; [`numeric`] the scalar instructions; [`memory`]
//! loads, stores, tables and the exchange heap; [`simd`] the vector instructions.

mod control;
mod memory;
mod numeric;
mod simd;

use crate::abi::{self, Place};
use crate::compile::{Bounds, Options};
use crate::layout::{self, Builtin, Layout};
use crate::limits;
use crate::module::{Body, FEATURES, FuncType, Module, Refusal, ValType, val_type};
use crate::refine::{self, Access, Loop};
use alloc::{collections::BTreeMap, vec::Vec};
use control::Frame;
use cranelift_codegen::ir::{
    self, AbiParam, AliasRegionData, ArgumentPurpose, Endianness, InstBuilder, MemFlagsData, Signature, SourceLoc,
    TrapCode, Type, Value, types,
};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use wasmparser::{
    FuncToValidate, FuncValidator, FuncValidatorAllocations, Operator, OperatorsReader, ValidatorResources,
};

/// Code of a trap: why a process stopped. The numbers are Cranelift's user trap codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TrapKind {
    /// An `unreachable` instruction.
    Unreachable = 1,
    /// A table access outside the table.
    TableBounds = 2,
    /// An indirect call of a null element.
    NullElement = 3,
    /// An indirect call of a function of another type.
    BadSignature = 4,
    /// A memory access outside the memory.
    MemoryBounds = 5,
    /// The stack limit.
    StackOverflow = 6,
    /// An integer result that does not fit.
    IntegerOverflow = 7,
    /// A division by zero.
    DivisionByZero = 8,
    /// A conversion of a value that is no number.
    BadConversion = 9,
    /// An access of the exchange heap outside a block, or by a stale handle.
    BlockBounds = 10,
    /// The host's function failed; its own error says more.
    Host = 11,
    /// The process was stopped from outside: its time is over.
    Interrupted = 12,
    /// A service of the engine refused: a bad handle, a message out of contract; the error says more.
    Service = 13,
}

impl TrapKind {
    /// Every kind, in order of its number.
    pub const ALL: [Self; 13] = [
        Self::Unreachable,
        Self::TableBounds,
        Self::NullElement,
        Self::BadSignature,
        Self::MemoryBounds,
        Self::StackOverflow,
        Self::IntegerOverflow,
        Self::DivisionByZero,
        Self::BadConversion,
        Self::BlockBounds,
        Self::Host,
        Self::Interrupted,
        Self::Service,
    ];

    /// The kind with this number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).wrapping_sub(1)).copied()
    }

    /// The text for a user; the words of the WebAssembly specification where it has some.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::TableBounds => "out of bounds table access",
            Self::NullElement => "uninitialized element",
            Self::BadSignature => "indirect call type mismatch",
            Self::MemoryBounds => "out of bounds memory access",
            Self::StackOverflow => "call stack exhausted",
            Self::IntegerOverflow => "integer overflow",
            Self::DivisionByZero => "integer divide by zero",
            Self::BadConversion => "invalid conversion to integer",
            Self::BlockBounds => "out of bounds or stale block access",
            Self::Host => "host function failed",
            Self::Interrupted => "its time is over",
            Self::Service => "refused",
        }
    }

    fn code(self) -> TrapCode {
        match self {
            Self::MemoryBounds => TrapCode::HEAP_OUT_OF_BOUNDS,
            other => TrapCode::unwrap_user(other as u8),
        }
    }

    /// The kind that a trap code of Cranelift's stands for.
    pub(crate) fn from_cranelift(code: TrapCode) -> Option<Self> {
        match code {
            TrapCode::HEAP_OUT_OF_BOUNDS => Some(Self::MemoryBounds),
            TrapCode::STACK_OVERFLOW => Some(Self::StackOverflow),
            TrapCode::INTEGER_OVERFLOW => Some(Self::IntegerOverflow),
            TrapCode::INTEGER_DIVISION_BY_ZERO => Some(Self::DivisionByZero),
            TrapCode::BAD_CONVERSION_TO_INTEGER => Some(Self::BadConversion),
            other => Self::from_code(other.as_raw().get()),
        }
    }
}

/// Parts of memory that never overlap, for Cranelift's alias analysis.
#[derive(Clone, Copy)]
enum Region {
    Heap = 0,
    Runtime = 1,
    Table = 2,
    Global = 3,
    Exchange = 4,
}

/// The Cranelift type of a value.
pub(crate) const fn clif_type(ty: ValType) -> Type {
    match ty {
        ValType::I32 => types::I32,
        ValType::I64 | ValType::FuncRef | ValType::ExternRef => types::I64,
        ValType::F32 => types::F32,
        ValType::F64 => types::F64,
        ValType::V128 => types::I8X16,
    }
}

/// The machine-level signature of a function type.
pub(crate) fn signature(ty: &FuncType) -> Signature {
    let mut sig = Signature::new(CallConv::Tail);
    sig.params
        .push(AbiParam::special(types::I64, ArgumentPurpose::VMContext));
    let in_registers = |list: &mut Vec<AbiParam>, types: &[ValType], places: Vec<Place>| {
        for (ty, place) in types.iter().zip(places) {
            if !matches!(place, Place::Area(_)) {
                list.push(AbiParam::new(clif_type(*ty)));
            }
        }
    };
    in_registers(&mut sig.params, &ty.params, abi::params(&ty.params));
    in_registers(&mut sig.returns, &ty.results, abi::results(&ty.results));
    sig
}

/// Memory that is used again from one function to the next.
#[derive(Default)]
pub struct Scratch {
    builder: FunctionBuilderContext,
    validator: FuncValidatorAllocations,
}

/// What the passes of [`crate::refine`] want to know of a function.
pub struct Noted {
    accesses: Vec<Access>,
    loops: Vec<Loop>,
}

impl Noted {
    /// Improves the function by what is known of its numbers.
    pub fn refine(&self, function: &mut ir::Function, options: Options) {
        refine::refine(function, options.bounds, &self.accesses, &self.loops);
    }
}

/// Validates and translates one function body into `function`.
///
/// # Errors
/// The refusal of the validator or a limit, with the offset.
pub fn function(
    module: &Module,
    layout: &Layout,
    options: Options,
    body: &Body<'_>,
    function: &mut ir::Function,
    scratch: &mut Scratch,
) -> Result<Noted, Refusal> {
    let (to_validate, body) = body;
    let ty = module.function_type(to_validate.index);
    // A copy: a function may be translated more than once.
    let to_validate = FuncToValidate {
        resources: to_validate.resources.clone(),
        ..*to_validate
    };
    let mut validator = to_validate.into_validator(core::mem::take(&mut scratch.validator));
    function.signature = signature(ty);
    let builder = FunctionBuilder::new(function, &mut scratch.builder);
    let mut translator = Translator {
        module,
        layout,
        options,
        builder,
        context: Value::from_u32(0),
        stack: Vec::new(),
        frames: Vec::new(),
        locals: Vec::new(),
        reachable: true,
        results: ty.results.clone(),
        length: None,
        reloads: Vec::new(),
        accesses: Vec::new(),
        loops: Vec::new(),
        direct: BTreeMap::new(),
    };
    let mut reader = body.get_binary_reader();
    validator.read_locals(&mut reader)?;
    if validator.len_locals() as usize > limits::LOCALS {
        return Err(Refusal::Limit {
            offset: body.range().start,
            what: "locals of a function",
        });
    }
    translator.enter(ty, &validator);
    reader.set_features(FEATURES);
    let mut reader = OperatorsReader::new(reader);
    while !reader.eof() {
        let (op, offset) = reader.read_with_offset()?;
        translator.builder.set_srcloc(SourceLoc::new(offset as u32));
        validator.op(offset, &op)?;
        if validator.control_stack_height() as usize > limits::NESTING {
            return Err(Refusal::Limit {
                offset,
                what: "nested blocks",
            });
        }
        translator.operator(&op, offset)?;
    }
    reader.finish()?;
    translator.builder.seal_all_blocks();
    let reloads = core::mem::take(&mut translator.reloads);
    let noted = Noted {
        accesses: core::mem::take(&mut translator.accesses),
        loops: core::mem::take(&mut translator.loops),
    };
    translator.builder.finalize(TARGET);
    remove_unused(function, reloads);
    scratch.validator = validator.into_allocations();
    Ok(noted)
}

/// Removes those of the loads whose values nobody uses: the optimizer takes no load away that might be of something
/// that changes.
fn remove_unused(function: &mut ir::Function, loads: Vec<ir::Inst>) {
    let mut unused: BTreeMap<Value, ir::Inst> = loads
        .into_iter()
        .map(|load| (function.dfg.first_result(load), load))
        .collect();
    let instructions = function
        .layout
        .blocks()
        .flat_map(|block| function.layout.block_insts(block));
    for instruction in instructions {
        for value in function.dfg.inst_values(instruction) {
            unused.remove(&function.dfg.resolve_aliases(value));
        }
        if unused.is_empty() {
            return;
        }
    }
    for load in unused.into_values() {
        function.layout.remove_inst(load);
    }
}

const TARGET: cranelift_codegen::isa::TargetFrontendConfig = cranelift_codegen::isa::TargetFrontendConfig {
    default_call_conv: CallConv::Tail,
    pointer_width: target_lexicon::PointerWidth::U64,
    page_size_align_log2: 12,
};

struct Translator<'m, 'f> {
    module: &'m Module,
    layout: &'m Layout,
    options: Options,
    builder: FunctionBuilder<'f>,
    context: Value,
    stack: Vec<Value>,
    frames: Vec<Frame>,
    locals: Vec<Variable>,
    reachable: bool,
    /// Result types of the function.
    results: Vec<ValType>,
    /// The length of the first memory, where accesses are compared with it.
    length: Option<Variable>,
    /// The instructions that load it.
    reloads: Vec<ir::Inst>,
    /// The accesses of memory and the loops, for [`crate::refine`].
    accesses: Vec<Access>,
    loops: Vec<Loop>,
    /// References to functions that are called directly.
    direct: BTreeMap<u32, ir::FuncRef>,
}

impl Translator<'_, '_> {
    /// Opens the function: parameters into locals, other locals to zero, the outermost frame.
    fn enter(&mut self, ty: &FuncType, validator: &FuncValidator<ValidatorResources>) {
        let entry = self.builder.create_block();
        self.builder.append_block_params_for_function_params(entry);
        self.builder.switch_to_block(entry);
        self.builder.seal_block(entry);
        let given: Vec<Value> = self.builder.block_params(entry).to_vec();
        self.context = given[0];
        let mut registers = given[1..].iter();
        let mut values = Vec::new();
        for (ty, place) in ty.params.iter().zip(abi::params(&ty.params)) {
            values.push(match place {
                Place::Area(slot) => self.area_load(*ty, slot),
                _ => *registers.next().expect("one machine parameter for each register"),
            });
        }
        for (local, value) in values.into_iter().enumerate() {
            let variable = self.builder.declare_var(clif_type(ty.params[local]));
            self.builder.def_var(variable, value);
            self.locals.push(variable);
        }
        for local in ty.params.len()..validator.len_locals() as usize {
            let ty = validator.get_local_type(local as u32).map_or(ValType::I32, val_type);
            let variable = self.builder.declare_var(clif_type(ty));
            let zero = self.zero(ty);
            self.builder.def_var(variable, zero);
            self.locals.push(variable);
        }
        if self.options.bounds == Bounds::Explicit && !self.module.memories.is_empty() {
            self.length = Some(self.builder.declare_var(types::I64));
            self.refresh_length();
        }
        let exit = self.builder.create_block();
        for ty in &ty.results {
            self.builder.append_block_param(exit, clif_type(*ty));
        }
        self.frames.push(Frame::function(exit, ty.results.len()));
    }

    fn operator(&mut self, op: &Operator<'_>, offset: u64) -> Result<(), Refusal> {
        if self.control(op)? || !self.reachable {
            return Ok(());
        }
        if self.numeric(op) || self.memory(op) || self.simd(op) {
            return Ok(());
        }
        Err(Refusal::Invalid {
            offset,
            reason: "instruction is not translated".into(),
        })
    }

    fn push(&mut self, value: Value) {
        self.stack.push(value);
    }

    fn pop(&mut self) -> Value {
        self.stack.pop().expect("the validator has counted")
    }

    fn pop2(&mut self) -> (Value, Value) {
        let second = self.pop();
        (self.pop(), second)
    }

    fn zero(&mut self, ty: ValType) -> Value {
        match ty {
            ValType::F32 => self.builder.ins().f32const(0.0),
            ValType::F64 => self.builder.ins().f64const(0.0),
            ValType::V128 => {
                let zero = self.builder.func.dfg.constants.insert([0u8; 16].as_slice().into());
                self.builder.ins().vconst(types::I8X16, zero)
            }
            other => self.builder.ins().iconst(clif_type(other), 0),
        }
    }

    fn flags(&mut self, region: Region) -> MemFlagsData {
        let names = ["heap", "runtime", "table", "global", "exchange"];
        let data = AliasRegionData {
            user_id: region as u32,
            description: names[region as usize].into(),
        };
        let region = self.builder.func.dfg.alias_regions.insert(data);
        MemFlagsData::trusted()
            .with_endianness(Endianness::Little)
            .with_alias_region(Some(region))
    }

    /// A field of the context that never changes.
    fn field(&mut self, offset: u32) -> Value {
        let flags = MemFlagsData::trusted().with_readonly().with_can_move();
        self.builder.ins().load(types::I64, flags, self.context, offset as i32)
    }

    /// As [`Self::field`], but read where it is needed: what a call needs once takes no register around a loop.
    fn field_here(&mut self, offset: u32) -> Value {
        let flags = MemFlagsData::trusted().with_readonly();
        self.builder.ins().load(types::I64, flags, self.context, offset as i32)
    }

    fn area_load(&mut self, ty: ValType, slot: usize) -> Value {
        let flags = self.flags(Region::Runtime);
        let runtime = self.field(layout::RUNTIME);
        self.builder.ins().load(clif_type(ty), flags, runtime, slot as i32 * 16)
    }

    fn area_store(&mut self, value: Value, slot: usize) {
        let flags = self.flags(Region::Runtime);
        let runtime = self.field(layout::RUNTIME);
        self.builder.ins().store(flags, value, runtime, slot as i32 * 16);
    }

    /// Calls a function of the runtime; every argument is widened to 64 bits.
    fn builtin(&mut self, which: Builtin, args: &[Value]) -> Value {
        let mut sig = Signature::new(CallConv::Tail);
        sig.params
            .push(AbiParam::special(types::I64, ArgumentPurpose::VMContext));
        let mut values = alloc::vec![self.context];
        for arg in args {
            sig.params.push(AbiParam::new(types::I64));
            let wide = self.builder.func.dfg.value_type(*arg) == types::I64;
            values.push(if wide {
                *arg
            } else {
                self.builder.ins().uextend(types::I64, *arg)
            });
        }
        sig.returns.push(AbiParam::new(types::I64));
        let sig = self.builder.import_signature(sig);
        let code = self.field_here(layout::builtin(which));
        let call = self.builder.ins().call_indirect(sig, code, &values);
        self.builder.inst_results(call)[0]
    }

    fn index(&mut self, value: u32) -> Value {
        self.builder.ins().iconst(types::I64, i64::from(value))
    }
}
