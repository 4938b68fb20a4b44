//! The bounds of a module. Each limit is a named constant and has an error of its own, so that a
//! refusal says which bound was met; none of the passes is worse than linear between these bounds.

/// Bytes of a module.
pub const MODULE_BYTES: usize = 256 << 20;
/// Functions of a module, imports included.
pub const FUNCTIONS: usize = 1 << 20;
/// Memories of a module, imports included.
pub const MEMORIES: usize = 64;
/// Tables of a module, imports included.
pub const TABLES: usize = 64;
/// Globals of a module, imports included.
pub const GLOBALS: usize = 1 << 16;
/// Types of a module.
pub const TYPES: usize = 1 << 16;
/// Bytes of one function's body.
pub const FUNCTION_BYTES: usize = 2 << 20;
/// Locals of a function, parameters included.
pub const LOCALS: usize = 50_000;
/// Blocks nested in one function.
pub const NESTING: usize = 5_000;
/// Elements that a table can ever have: its address range is reserved when it is made.
pub const TABLE_ELEMENTS: u64 = 1 << 20;
/// Pages of 64 KiB that a memory can ever have.
pub const MEMORY_PAGES: u64 = 65_536;
/// Bytes of stack of a software-isolated process.
pub const STACK_BYTES: usize = 1 << 20;
/// Bytes beneath the stack limit, for the runtime's own calls.
pub const STACK_RESERVE: usize = 512 << 10;
/// Values in the scratch area through which parameters and results travel that no register holds.
pub const AREA_VALUES: usize = 1024;
/// Messages that wait in one direction of a channel; a power of two. A contract that needs more is refused.
pub const QUEUE_MESSAGES: usize = 16;
/// Endpoints of a process.
pub const ENDPOINTS: usize = 1024;
