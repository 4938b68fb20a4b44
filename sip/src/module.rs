//! The statements of a module outside its function bodies: the summary that translator, verifier and
//! executor share. It owns everything it holds and refers to the bytes of the module only by range.

use crate::limits;
use alloc::{string::String, vec::Vec};
use wasmparser::{
    CompositeInnerType, ConstExpr, DataKind, ElementItems, ElementKind, ExternalKind, FuncToValidate, FunctionBody,
    HeapType, Operator, Parser, RefType, TableInit, TypeRef, ValidPayload, Validator, ValidatorResources, WasmFeatures,
};

/// The proposals that are accepted beyond the first version of WebAssembly.
pub const FEATURES: WasmFeatures = WasmFeatures::WASM2
    .union(WasmFeatures::TAIL_CALL)
    .union(WasmFeatures::MULTI_MEMORY)
    .union(WasmFeatures::EXTENDED_CONST);

/// Name of the module from which the exchange heap's functions are imported.
pub const EXCHANGE: &str = "gondwana:heap";

/// Name of the module from which what concerns all channels is imported.
pub const CHANNEL: &str = "gondwana:channel";

/// The accessors that the compiler inlines: (handle, offset) to a value, and stores; copies between a
/// block and the first memory (handle, offset, address, bytes). Names and types.
pub const ACCESSORS: [(&str, &[ValType], &[ValType]); 15] = {
    use ValType::{F32, F64, I32, I64};
    [
        ("len", &[I32], &[I32]),
        ("ld8", &[I32, I32], &[I32]),
        ("ld16", &[I32, I32], &[I32]),
        ("ld32", &[I32, I32], &[I32]),
        ("ld64", &[I32, I32], &[I64]),
        ("ldf32", &[I32, I32], &[F32]),
        ("ldf64", &[I32, I32], &[F64]),
        ("st8", &[I32, I32, I32], &[]),
        ("st16", &[I32, I32, I32], &[]),
        ("st32", &[I32, I32, I32], &[]),
        ("st64", &[I32, I32, I64], &[]),
        ("stf32", &[I32, I32, F32], &[]),
        ("stf64", &[I32, I32, F64], &[]),
        ("copy_in", &[I32, I32, I32, I32], &[]),
        ("copy_out", &[I32, I32, I32, I32], &[]),
    ]
};

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValType {
    /// 32-bit integer.
    I32,
    /// 64-bit integer.
    I64,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// 128-bit vector.
    V128,
    /// Handle of a function, or null.
    FuncRef,
    /// Handle of something of the host's, or null.
    ExternRef,
}

impl ValType {
    /// Whether the value travels in a vector register.
    pub const fn is_vector_class(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::V128)
    }
}

/// Signature of a function.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct FuncType {
    /// Types of the parameters.
    pub params: Vec<ValType>,
    /// Types of the results.
    pub results: Vec<ValType>,
}

/// Limits of a table or memory, in elements or pages of 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size at instantiation.
    pub min: u64,
    /// Greatest size, if the module states one.
    pub max: Option<u64>,
}

/// A table's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableType {
    /// The type of its elements.
    pub element: ValType,
    /// How many, in elements.
    pub limits: Limits,
}

/// A global's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalType {
    /// Type of its value.
    pub content: ValType,
    /// Whether it may change.
    pub mutable: bool,
}

/// The kind of an import or an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntityType {
    /// A function of the type with this index.
    Func(u32),
    /// A table.
    Table(TableType),
    /// A memory.
    Memory(Limits),
    /// A global.
    Global(GlobalType),
}

/// One import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// Name of the module.
    pub module: String,
    /// Name in it.
    pub name: String,
    /// The kind that is wanted.
    pub ty: EntityType,
}

/// The target of an export, by index in the space of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportIndex {
    /// Function.
    Func(u32),
    /// Table.
    Table(u32),
    /// Memory.
    Memory(u32),
    /// Global.
    Global(u32),
}

/// One step of a constant expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ConstOp {
    /// Push a 32-bit integer.
    I32(i32),
    /// Push a 64-bit integer.
    I64(i64),
    /// Push single precision bits.
    F32(u32),
    /// Push double precision bits.
    F64(u64),
    /// Push a vector.
    V128(u128),
    /// Push a global's value.
    GlobalGet(u32),
    /// Push a function's handle.
    RefFunc(u32),
    /// Push null.
    RefNull,
    /// 32-bit sum of two.
    I32Add,
    /// 32-bit difference of two.
    I32Sub,
    /// 32-bit product of two.
    I32Mul,
    /// 64-bit sum of two.
    I64Add,
    /// 64-bit difference of two.
    I64Sub,
    /// 64-bit product of two.
    I64Mul,
}

/// A constant expression: steps on a stack that end with one value.
pub type Const = Vec<ConstOp>;

/// The place where a segment goes when the module is instantiated.
#[derive(Clone, Debug, PartialEq)]
pub enum SegmentMode {
    /// Nowhere: `init` instructions copy from it.
    Passive,
    /// Into the table or memory with this index, at this offset.
    Active(u32, Const),
    /// Nowhere; it only declares references.
    Declared,
}

/// An element segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Element {
    /// Its place.
    pub mode: SegmentMode,
    /// Its content.
    pub items: Vec<Const>,
}

/// A data segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// Its place.
    pub mode: SegmentMode,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Everything but the bodies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Module {
    /// Function types.
    pub types: Vec<FuncType>,
    /// Imports, in order.
    pub imports: Vec<Import>,
    /// Type index of each function, imports first.
    pub functions: Vec<u32>,
    /// Tables, imports first.
    pub tables: Vec<TableType>,
    /// Initial values of the tables the module defines.
    pub table_inits: Vec<Option<Const>>,
    /// Memories, imports first.
    pub memories: Vec<Limits>,
    /// Globals, imports first.
    pub globals: Vec<GlobalType>,
    /// Initial values of the globals the module defines.
    pub global_inits: Vec<Const>,
    /// Exports by name.
    pub exports: Vec<(String, ExportIndex)>,
    /// Function to call at the end of instantiation.
    pub start: Option<u32>,
    /// Element segments.
    pub elements: Vec<Element>,
    /// Data segments.
    pub data: Vec<Data>,
    /// How many functions are imported.
    pub imported_functions: usize,
    /// How many tables are imported.
    pub imported_tables: usize,
    /// How many memories are imported.
    pub imported_memories: usize,
    /// How many globals are imported.
    pub imported_globals: usize,
}

/// Why a module was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not valid WebAssembly of the accepted proposals.
    Invalid {
        /// Byte offset in the module.
        offset: u64,
        /// The validator's words.
        reason: String,
    },
    /// It is valid but asks for more than [`limits`] allow.
    Limit {
        /// Byte offset in the module.
        offset: u64,
        /// Name of the limit.
        what: &'static str,
    },
    /// The code generator failed.
    Backend {
        /// Index of the function.
        function: u32,
        /// The generator's words.
        reason: String,
    },
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Invalid { offset, reason } => write!(f, "invalid at byte {offset:#x}: {reason}"),
            Self::Limit { offset, what } => write!(f, "over the limit at byte {offset:#x}: {what}"),
            Self::Backend { function, reason } => write!(f, "function {function} cannot be compiled: {reason}"),
        }
    }
}

impl From<wasmparser::BinaryReaderError> for Refusal {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::Invalid {
            offset: error.offset(),
            reason: error.message().into(),
        }
    }
}

/// A function body waiting to be validated and translated.
pub type Body<'a> = (FuncToValidate<ValidatorResources>, FunctionBody<'a>);

impl Module {
    /// Reads a module and validates all of it but the bodies, which it returns.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] or [`Refusal::Limit`], with the offset of the fault.
    pub fn parse(bytes: &[u8]) -> Result<(Self, Vec<Body<'_>>), Refusal> {
        if bytes.len() > limits::MODULE_BYTES {
            return Err(Refusal::Limit {
                offset: 0,
                what: "module bytes",
            });
        }
        let mut module = Self::default();
        let mut bodies = Vec::new();
        let mut validator = Validator::new_with_features(FEATURES);
        for payload in Parser::new(0).parse_all(bytes) {
            let payload = payload?;
            if let ValidPayload::Func(function, body) = validator.payload(&payload)? {
                if body.range().end - body.range().start > limits::FUNCTION_BYTES as _ {
                    return Err(Refusal::Limit {
                        offset: body.range().start,
                        what: "bytes of a function",
                    });
                }
                bodies.push((function, body));
            }
            module.section(payload)?;
            module.check_limits()?;
        }
        Ok((module, bodies))
    }

    fn section(&mut self, payload: wasmparser::Payload<'_>) -> Result<(), Refusal> {
        use wasmparser::Payload;
        match payload {
            Payload::TypeSection(reader) => {
                for group in reader {
                    for sub in group?.into_types() {
                        let CompositeInnerType::Func(ty) = &sub.composite_type.inner else {
                            return Err(Refusal::Invalid {
                                offset: 0,
                                reason: "only function types are known".into(),
                            });
                        };
                        self.types.push(FuncType {
                            params: val_types(ty.params()),
                            results: val_types(ty.results()),
                        });
                    }
                }
            }
            Payload::ImportSection(reader) => {
                for import in reader.into_imports() {
                    self.import(import?);
                }
            }
            Payload::FunctionSection(reader) => {
                for ty in reader {
                    self.functions.push(ty?);
                }
            }
            Payload::TableSection(reader) => {
                for table in reader {
                    let table = table?;
                    self.tables.push(table_type(table.ty));
                    self.table_inits.push(match table.init {
                        TableInit::RefNull => None,
                        TableInit::Expr(expr) => Some(constant(&expr)?),
                    });
                }
            }
            Payload::MemorySection(reader) => {
                for memory in reader {
                    let memory = memory?;
                    self.memories.push(Limits {
                        min: memory.initial,
                        max: memory.maximum,
                    });
                }
            }
            Payload::GlobalSection(reader) => {
                for global in reader {
                    let global = global?;
                    self.globals.push(global_type(global.ty));
                    self.global_inits.push(constant(&global.init_expr)?);
                }
            }
            Payload::ExportSection(reader) => {
                for export in reader {
                    let export = export?;
                    let index = match export.kind {
                        ExternalKind::Func | ExternalKind::FuncExact => ExportIndex::Func(export.index),
                        ExternalKind::Table => ExportIndex::Table(export.index),
                        ExternalKind::Memory => ExportIndex::Memory(export.index),
                        ExternalKind::Global => ExportIndex::Global(export.index),
                        ExternalKind::Tag => continue,
                    };
                    self.exports.push((export.name.into(), index));
                }
            }
            Payload::StartSection { func, .. } => self.start = Some(func),
            Payload::ElementSection(reader) => {
                for element in reader {
                    self.element(element?)?;
                }
            }
            Payload::DataSection(reader) => {
                for data in reader {
                    let data = data?;
                    let mode = match data.kind {
                        DataKind::Passive => SegmentMode::Passive,
                        DataKind::Active {
                            memory_index,
                            offset_expr,
                        } => SegmentMode::Active(memory_index, constant(&offset_expr)?),
                    };
                    self.data.push(Data {
                        mode,
                        bytes: data.data.into(),
                    });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn import(&mut self, import: wasmparser::Import<'_>) {
        let ty = match import.ty {
            TypeRef::Func(ty) | TypeRef::FuncExact(ty) => {
                self.functions.push(ty);
                self.imported_functions += 1;
                EntityType::Func(ty)
            }
            TypeRef::Table(ty) => {
                self.tables.push(table_type(ty));
                self.imported_tables += 1;
                EntityType::Table(table_type(ty))
            }
            TypeRef::Memory(ty) => {
                let limits = Limits {
                    min: ty.initial,
                    max: ty.maximum,
                };
                self.memories.push(limits);
                self.imported_memories += 1;
                EntityType::Memory(limits)
            }
            TypeRef::Global(ty) => {
                self.globals.push(global_type(ty));
                self.imported_globals += 1;
                EntityType::Global(global_type(ty))
            }
            TypeRef::Tag(_) => return,
        };
        self.imports.push(Import {
            module: import.module.into(),
            name: import.name.into(),
            ty,
        });
    }

    fn element(&mut self, element: wasmparser::Element<'_>) -> Result<(), Refusal> {
        let mode = match element.kind {
            ElementKind::Passive => SegmentMode::Passive,
            ElementKind::Declared => SegmentMode::Declared,
            ElementKind::Active {
                table_index,
                offset_expr,
            } => SegmentMode::Active(table_index.unwrap_or(0), constant(&offset_expr)?),
        };
        let mut items = Vec::new();
        match element.items {
            ElementItems::Functions(functions) => {
                for function in functions {
                    items.push(alloc::vec![ConstOp::RefFunc(function?)]);
                }
            }
            ElementItems::Expressions(_, exprs) => {
                for expr in exprs {
                    items.push(constant(&expr?)?);
                }
            }
        }
        self.elements.push(Element { mode, items });
        Ok(())
    }

    fn check_limits(&self) -> Result<(), Refusal> {
        let over = |what| Err(Refusal::Limit { offset: 0, what });
        match () {
            () if self.types.len() > limits::TYPES => over("types"),
            () if self.functions.len() > limits::FUNCTIONS => over("functions"),
            () if self.memories.len() > limits::MEMORIES => over("memories"),
            () if self.tables.len() > limits::TABLES => over("tables"),
            () if self.globals.len() > limits::GLOBALS => over("globals"),
            () if self
                .tables
                .iter()
                .any(|table| table.limits.min > limits::TABLE_ELEMENTS) =>
            {
                over("elements of a table")
            }
            () => Ok(()),
        }
    }

    /// The type of the function with this index.
    pub fn function_type(&self, function: u32) -> &FuncType {
        &self.types[self.functions[function as usize] as usize]
    }

    /// The import that this function is, if it is one.
    pub fn function_import(&self, function: u32) -> Option<&Import> {
        self.imports
            .iter()
            .filter(|import| matches!(import.ty, EntityType::Func(_)))
            .nth(function as usize)
    }

    /// Name of the exchange heap's accessor that this function is: an import of [`EXCHANGE`] with
    /// the accessor's name and type. An import of another type stays an import, which nothing meets.
    pub fn accessor(&self, function: u32) -> Option<&'static str> {
        if function as usize >= self.imported_functions {
            return None;
        }
        let import = self
            .function_import(function)
            .filter(|import| import.module == EXCHANGE)?;
        let ty = self.function_type(function);
        ACCESSORS
            .iter()
            .find(|(name, params, results)| *name == import.name && ty.params == *params && ty.results == *results)
            .map(|(name, ..)| *name)
    }

    /// The export of this name.
    pub fn export(&self, name: &str) -> Option<ExportIndex> {
        self.exports
            .iter()
            .find(|(have, _)| have == name)
            .map(|(_, index)| *index)
    }
}

/// The type of a value, as this crate names it. Only types of the accepted proposals reach it.
pub fn val_type(ty: wasmparser::ValType) -> ValType {
    match ty {
        wasmparser::ValType::I32 => ValType::I32,
        wasmparser::ValType::I64 => ValType::I64,
        wasmparser::ValType::F32 => ValType::F32,
        wasmparser::ValType::F64 => ValType::F64,
        wasmparser::ValType::V128 => ValType::V128,
        wasmparser::ValType::Ref(ty) => ref_type(ty),
    }
}

fn ref_type(ty: RefType) -> ValType {
    match ty.heap_type() {
        HeapType::Abstract {
            ty: wasmparser::AbstractHeapType::Extern,
            ..
        } => ValType::ExternRef,
        _ => ValType::FuncRef,
    }
}

fn val_types(types: &[wasmparser::ValType]) -> Vec<ValType> {
    types.iter().map(|ty| val_type(*ty)).collect()
}

fn table_type(ty: wasmparser::TableType) -> TableType {
    TableType {
        element: ref_type(ty.element_type),
        limits: Limits {
            min: ty.initial,
            max: ty.maximum,
        },
    }
}

fn global_type(ty: wasmparser::GlobalType) -> GlobalType {
    GlobalType {
        content: val_type(ty.content_type),
        mutable: ty.mutable,
    }
}

fn constant(expr: &ConstExpr<'_>) -> Result<Const, Refusal> {
    let mut ops = Vec::new();
    let mut reader = expr.get_operators_reader();
    while !reader.eof() {
        let offset = reader.original_position();
        ops.push(match reader.read()? {
            Operator::I32Const { value } => ConstOp::I32(value),
            Operator::I64Const { value } => ConstOp::I64(value),
            Operator::F32Const { value } => ConstOp::F32(value.bits()),
            Operator::F64Const { value } => ConstOp::F64(value.bits()),
            Operator::V128Const { value } => ConstOp::V128(u128::from_le_bytes(*value.bytes())),
            Operator::GlobalGet { global_index } => ConstOp::GlobalGet(global_index),
            Operator::RefFunc { function_index } => ConstOp::RefFunc(function_index),
            Operator::RefNull { .. } => ConstOp::RefNull,
            Operator::I32Add => ConstOp::I32Add,
            Operator::I32Sub => ConstOp::I32Sub,
            Operator::I32Mul => ConstOp::I32Mul,
            Operator::I64Add => ConstOp::I64Add,
            Operator::I64Sub => ConstOp::I64Sub,
            Operator::I64Mul => ConstOp::I64Mul,
            Operator::End => continue,
            _ => {
                return Err(Refusal::Invalid {
                    offset,
                    reason: "unknown constant instruction".into(),
                });
            }
        });
    }
    Ok(ops)
}
