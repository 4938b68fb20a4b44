//! The instance context: the one block of memory that compiled code is handed, in `rdi`, and from
//! which it reaches everything else. Translator, verifier and executor agree on it here and nowhere
//! else. Code may read all of it and write only the cells of the instance's own globals; whatever a
//! pointer in it designates has a fixed address for the life of the instance.
//!
//! ```text
//! 0x000  runtime block            0x008  instance            0x010  stack limit
//! 0x018  exchange handle table    0x020  handle mask         0x028  reserved
//! 0x030  entries of the built-in functions (8 bytes each)
//! ....   signatures    8 bytes: the engine's number of type i
//! ....   memories     16 bytes: base, address of the length
//! ....   tables       16 bytes: base, address of the length
//! ....   functions    16 bytes: code, context (imports only)
//! ....   globals       8 bytes: address of the cell (imports only)
//! ....   cells        16 bytes: own globals
//! ```

use crate::module::Module;

/// Offset of the address of the runtime block.
pub const RUNTIME: u32 = 0x00;
/// Offset of the address of the executor's record of the instance.
pub const INSTANCE: u32 = 0x08;
/// Offset of the lowest address that the stack pointer may take.
pub const STACK_LIMIT: u32 = 0x10;
/// Offset of the address of the exchange handle table.
pub const HANDLES: u32 = 0x18;
/// Offset of the number of handles less one, a power of two less one.
pub const HANDLE_MASK: u32 = 0x20;
/// Offset of the first built-in's code address.
pub const BUILTINS: u32 = 0x30;

/// Bytes of a table's element: code, context, signature, handle.
pub const ELEMENT_BYTES: u32 = 32;
/// Offset of the code address in an element.
pub const ELEMENT_CODE: u32 = 0;
/// Offset of the context in an element.
pub const ELEMENT_CONTEXT: u32 = 8;
/// Offset of the signature number in an element.
pub const ELEMENT_SIGNATURE: u32 = 16;
/// Offset of the handle in an element.
pub const ELEMENT_HANDLE: u32 = 24;

/// Bytes of a handle's entry in the exchange table: base, length.
pub const HANDLE_BYTES: u32 = 16;
/// Handles of a process; a power of two.
pub const HANDLES_MAX: u32 = 4096;

/// Bytes of a memory's reservation when guard pages stand for bounds checks: any 32-bit index, any
/// 32-bit offset, and the widest access.
pub const GUARDED_BYTES: u64 = (8 << 30) + GUARD_BYTES;
/// Bytes that are never mapped after a memory, also with explicit checks.
pub const GUARD_BYTES: u64 = 64 << 10;
/// Bytes of a page of WebAssembly memory.
pub const PAGE_BYTES: u64 = 64 << 10;
/// Bytes at the start of the runtime block through which values travel.
pub const AREA_BYTES: u32 = crate::limits::AREA_VALUES as u32 * 16;
/// Bytes below the stack limit that code may touch: what a function pushes before its check.
pub const STACK_RED_BYTES: i64 = 4096;

/// The functions that the runtime provides to compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Builtin {
    /// (memory, pages) → old size or −1.
    MemoryGrow,
    /// (to memory, from memory, to, from, bytes).
    MemoryCopy,
    /// (memory, at, byte, bytes).
    MemoryFill,
    /// (memory, segment, to, from, bytes).
    MemoryInit,
    /// (segment).
    DataDrop,
    /// (table, index) → handle.
    TableGet,
    /// (table, index, handle).
    TableSet,
    /// (table) → elements.
    TableSize,
    /// (table, handle, elements) → old size or −1.
    TableGrow,
    /// (table, at, handle, elements).
    TableFill,
    /// (to table, from table, to, from, elements).
    TableCopy,
    /// (table, segment, to, from, elements).
    TableInit,
    /// (segment).
    ElementDrop,
    /// (function) → handle.
    RefFunc,
    /// (block, offset, address in the first memory, bytes): into the block.
    BlockIn,
    /// The same, out of the block.
    BlockOut,
}

/// How many built-in functions there are.
pub const BUILTIN_COUNT: u32 = Builtin::BlockOut as u32 + 1;

/// The places of things in a module's instance context. All in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// First signature.
    pub signatures: u32,
    /// First memory.
    pub memories: u32,
    /// First table.
    pub tables: u32,
    /// First imported function.
    pub functions: u32,
    /// First imported global's address.
    pub globals: u32,
    /// First own global's cell.
    pub cells: u32,
    /// End of the context.
    pub bytes: u32,
}

impl Layout {
    /// The layout of a module's context.
    pub fn new(module: &Module) -> Self {
        let signatures = BUILTINS + 8 * BUILTIN_COUNT;
        let memories = signatures + 8 * module.types.len() as u32;
        let tables = memories + 16 * module.memories.len() as u32;
        let functions = tables + 16 * module.tables.len() as u32;
        let globals = functions + 16 * module.imported_functions as u32;
        let cells = (globals + 8 * module.imported_globals as u32).next_multiple_of(16);
        let bytes = cells + 16 * (module.globals.len() - module.imported_globals) as u32;
        Self {
            signatures,
            memories,
            tables,
            functions,
            globals,
            cells,
            bytes,
        }
    }

    /// Offset of a signature.
    pub const fn signature(&self, ty: u32) -> u32 {
        self.signatures + 8 * ty
    }
    /// Offset of a memory's base; the address of its length follows.
    pub const fn memory(&self, memory: u32) -> u32 {
        self.memories + 16 * memory
    }
    /// Offset of a table's base; the address of its length follows.
    pub const fn table(&self, table: u32) -> u32 {
        self.tables + 16 * table
    }
    /// Offset of an imported function's code; its context follows.
    pub const fn function(&self, function: u32) -> u32 {
        self.functions + 16 * function
    }
    /// Offset of an imported global's address.
    pub const fn global(&self, global: u32) -> u32 {
        self.globals + 8 * global
    }
    /// Offset of the cell of the own global with this index among own globals.
    pub const fn cell(&self, own: u32) -> u32 {
        self.cells + 16 * own
    }
}

/// Offset of a built-in's code address.
pub const fn builtin(which: Builtin) -> u32 {
    BUILTINS + 8 * which as u32
}
