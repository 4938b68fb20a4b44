//! The executor: the only unsafe part of the crate. It loads images, makes instances of them, calls
//! their functions, and answers what compiled code asks of the runtime.
//!
//! A [`Store`] is one software-isolated process: its instances, memories, tables, its stack and its
//! runtime block. Everything that compiled code can reach stands at a fixed address in a box or a
//! reservation owned by the store, and is released with it. Code runs only on the store's own stack;
//! a trap, wherever it happens, leaves by the landing of the innermost entry.
#![allow(unsafe_code)]

mod asm;
#[cfg(not(feature = "host"))]
mod bare;
mod builtins;
mod group;
#[cfg(feature = "host")]
mod host;
mod instance;
mod memory;
mod pool;
mod services;
mod short;
#[cfg(not(feature = "host"))]
use bare as host;
#[cfg(not(feature = "host"))]
pub use bare::{Platform, Protection as PageProtection, fault, set_platform};

#[cfg(feature = "host")]
pub use host::Deadline;

pub use group::Group;
pub use instance::{Extern, LinkError};
pub use memory::Reservation;
pub use pool::Pool;
pub use services::{Exchange, Member};

use crate::abi::{self, Place};
use crate::compile::Bounds;
use crate::layout::{self, BUILTIN_COUNT};
use crate::limits;
use crate::module::{FuncType, ValType};
use crate::translate::TrapKind;
use crate::verify::Verified;
use alloc::{boxed::Box, rc::Rc, string::String, sync::Arc, vec::Vec};
use asm::Registers;
use core::sync::atomic::{AtomicBool, Ordering};
use hashbrown::HashMap;
use host::Protection;
use instance::Instance;
use memory::{Memory, Table};

/// A value of WebAssembly. Floats are kept as bits, so that no NaN is changed by a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Val {
    /// 32-bit integer.
    I32(i32),
    /// 64-bit integer.
    I64(i64),
    /// Bits of a single.
    F32(u32),
    /// Bits of a double.
    F64(u64),
    /// A vector.
    V128(u128),
    /// A function's handle, 0 for null.
    FuncRef(u64),
    /// A host value's handle, 0 for null.
    ExternRef(u64),
}

impl Val {
    /// Its type.
    pub const fn ty(&self) -> ValType {
        match self {
            Self::I32(_) => ValType::I32,
            Self::I64(_) => ValType::I64,
            Self::F32(_) => ValType::F32,
            Self::F64(_) => ValType::F64,
            Self::V128(_) => ValType::V128,
            Self::FuncRef(_) => ValType::FuncRef,
            Self::ExternRef(_) => ValType::ExternRef,
        }
    }

    fn bits(self) -> [u64; 2] {
        match self {
            Self::I32(value) => [u64::from(value.cast_unsigned()), 0],
            Self::I64(value) => [value.cast_unsigned(), 0],
            Self::F32(bits) => [u64::from(bits), 0],
            Self::F64(bits) | Self::FuncRef(bits) | Self::ExternRef(bits) => [bits, 0],
            Self::V128(bits) => [bits as u64, (bits >> 64) as u64],
        }
    }

    fn from_bits(ty: ValType, bits: [u64; 2]) -> Self {
        match ty {
            ValType::I32 => Self::I32((bits[0] as u32).cast_signed()),
            ValType::I64 => Self::I64(bits[0].cast_signed()),
            ValType::F32 => Self::F32(bits[0] as u32),
            ValType::F64 => Self::F64(bits[0]),
            ValType::V128 => Self::V128(u128::from(bits[0]) | u128::from(bits[1]) << 64),
            ValType::FuncRef => Self::FuncRef(bits[0]),
            ValType::ExternRef => Self::ExternRef(bits[0]),
        }
    }
}

/// Why a call did not return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trap {
    /// The kind of the trap.
    pub kind: TrapKind,
    /// Offset in the module of the instruction, if compiled code trapped.
    pub wasm: Option<u32>,
    /// The host function's message, if it failed.
    pub host: Option<HostError>,
}

impl Trap {
    /// A trap that names no instruction.
    pub const fn new(kind: TrapKind) -> Self {
        Self {
            kind,
            wasm: None,
            host: None,
        }
    }
}

impl core::fmt::Display for Trap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match &self.host {
            Some(HostError::Exit(status)) => write!(f, "exit with status {status}")?,
            Some(HostError::Failed(text)) => write!(f, "{}: {text}", self.kind.message())?,
            None => f.write_str(self.kind.message())?,
        }
        match self.wasm {
            Some(at) => write!(f, " at byte {at:#x} of the module"),
            None => Ok(()),
        }
    }
}

/// How a host function fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostError {
    /// The process asked to end, with this status.
    Exit(i32),
    /// The fault, for the user.
    Failed(String),
}

/// A host function: it gets the store, so that it may call back, and its arguments and result places.
pub type HostFn = Box<dyn FnMut(&mut Store, &[Val], &mut [Val]) -> Result<(), HostError>>;

/// The block that compiled code and runtime share. Code may touch only `area`.
#[repr(C, align(16))]
pub(crate) struct Runtime {
    area: [[u64; 2]; limits::AREA_VALUES],
    /// Stack pointer of the innermost entry.
    pub(crate) entry_stack: u64,
    /// The place of the last fault, and the address it touched.
    fault: [u64; 2],
    /// The report that a built-in or host function left for the entry.
    raised: Option<Trap>,
    /// Whether the process is to stop: what it calls of the runtime does not return to it.
    interrupted: AtomicBool,
    /// Ranges of code that may fault.
    code: Vec<[u64; 2]>,
}

impl Runtime {
    /// Whether what the process has called returns to it.
    fn may_return(&self) -> Result<(), Trap> {
        if self.interrupted.load(Ordering::Relaxed) {
            Err(Trap::new(TrapKind::Interrupted))
        } else {
            Ok(())
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The process's blocks and endpoints are free again; those it had sent are not its any more.
        if let Some(member) = &mut self.member {
            member.leave();
        }
        if let Some(pool) = self.pool.take() {
            pool.keep_stack(core::mem::replace(&mut self.stack, Reservation::empty()), self.ran);
            for memory in self.memories.drain(..) {
                let bounds = if memory.is_guarded() {
                    Bounds::Guard
                } else {
                    Bounds::Explicit
                };
                pool.keep_memory(bounds, *memory, self.ran);
            }
            for table in self.tables.drain(..) {
                pool.keep_table(*table);
            }
        }
    }
}

/// A fault handler asks this: whether the fault is compiled code's, and then where to go on with
/// which stack pointer.
///
/// # Safety
/// `runtime` is the block of the process that runs on this processor.
pub(crate) unsafe fn on_fault(runtime: *mut Runtime, at: u64, address: u64) -> Option<(u64, u64)> {
    // SAFETY: the caller's condition; the block is not borrowed while compiled code runs.
    let runtime = unsafe { &mut *runtime };
    if !runtime.code.iter().any(|range| (range[0]..range[1]).contains(&at)) {
        return None;
    }
    runtime.fault = [at, address];
    Some((asm::sip_landing as *const () as u64, runtime.entry_stack))
}

/// A timer's handler asks this: as [`on_fault`] for a process whose time is over, wherever it is. If it is not in
/// compiled code now, it stops before it is there again.
///
/// # Safety
/// As for [`on_fault`].
#[cfg(feature = "host")]
pub(crate) unsafe fn on_time_over(runtime: *mut Runtime, at: u64) -> Option<(u64, u64)> {
    // SAFETY: the caller's condition; of a block that may be borrowed, only the atomic word is touched.
    unsafe { (*runtime).interrupted.store(true, Ordering::Relaxed) };
    // SAFETY: the ranges of code and the fault's place are changed by the runtime only before it enters compiled
    // code and after it was left; at an address of compiled code neither is borrowed.
    unsafe { on_fault(runtime, at, at) }
}

/// A loaded image: its code in executable memory. It can be had only of verified images.
pub struct Program {
    pub(crate) image: Verified,
    code: Reservation,
    /// Its types, counted: equal ones have the same number.
    numbers: HashMap<FuncType, u64>,
    /// The number of each type by its index.
    signatures: Vec<u64>,
}

impl Program {
    /// Puts an image's code in executable memory.
    ///
    /// # Errors
    /// No memory.
    pub fn load(image: Verified) -> Result<Arc<Self>, LinkError> {
        let bytes = image.code.len().max(1).next_multiple_of(4096);
        let code = Reservation::new(bytes).ok_or(LinkError::NoMemory)?;
        // SAFETY: the reservation is new, whole pages, and nothing refers to it.
        unsafe {
            if !host::protect(code.base(), bytes, Protection::ReadWrite) {
                return Err(LinkError::NoMemory);
            }
            core::ptr::copy_nonoverlapping(image.code.as_ptr(), code.base(), image.code.len());
            if !host::protect(code.base(), bytes, Protection::ReadExecute) {
                return Err(LinkError::NoMemory);
            }
        }
        let mut numbers = HashMap::new();
        let types = image.module.types.iter();
        let signatures = types
            .map(|ty| {
                let next = numbers.len() as u64;
                *numbers.entry(ty.clone()).or_insert(next)
            })
            .collect();
        Ok(Arc::new(Self {
            image,
            code,
            numbers,
            signatures,
        }))
    }

    /// Addresses of the code. If the embedder can take the right to run away from pages (of code that nobody
    /// else runs), that stops a process that never ends: it traps with [`TrapKind::Interrupted`].
    pub fn code_range(&self) -> core::ops::Range<u64> {
        let base = self.code.base() as u64;
        base..base + self.code.bytes() as u64
    }

    /// The image.
    pub fn image(&self) -> &crate::compile::Image {
        &self.image
    }

    fn address(&self, own: usize) -> u64 {
        self.code.base() as u64 + u64::from(self.image.functions[own].start)
    }
}

/// The context that compiled code is given when it calls a host function.
#[repr(C)]
struct HostFunction {
    store: *mut Store,
    ty: FuncType,
    body: Option<HostFn>,
}

/// The owner of the functions from a handle on.
#[derive(Clone, Copy)]
enum Owner {
    Instance(usize),
    Host(usize),
    Service(usize),
}

/// A global's cell and type.
#[derive(Clone, Copy)]
struct Global {
    cell: *mut [u64; 2],
    ty: crate::module::GlobalType,
}

/// One software-isolated process.
pub struct Store {
    runtime: Box<Runtime>,
    stack: Reservation,
    instances: Vec<Box<Instance>>,
    hosts: Vec<Box<HostFunction>>,
    services: Vec<Box<services::Service>>,
    memories: Vec<Box<Memory>>,
    tables: Vec<Box<Table>>,
    globals: Vec<Global>,
    own_cells: Vec<Box<[u64; 2]>>,
    owners: Vec<(u64, Owner)>,
    next_handle: u64,
    /// The program whose types have the numbers that it counts them by: so they need not be looked up.
    numbered: Option<Arc<Program>>,
    /// Numbers of the other types.
    signatures: HashMap<FuncType, u64>,
    handle_table: u64,
    member: Option<Box<Member>>,
    /// The state that the processes of the group share, or null.
    group: *mut group::Shared,
    depth: u32,
    /// Whether any code ran: before that, stack and area are as they were, and memories but for their segments.
    ran: bool,
    /// The place where stack and memories go in the end.
    pool: Option<Rc<Pool>>,
}

/// A handle table with no block in it, for processes that have no exchange heap.
static EMPTY_HANDLES: [[u64; 2]; layout::HANDLES_MAX as usize] = [[0; 2]; layout::HANDLES_MAX as usize];

/// Entries from the host into a process that may stand on its stack at once.
const ENTRIES: u32 = 64;

impl Store {
    /// An empty process with a stack of its own. It is boxed because compiled code refers to it.
    ///
    /// # Errors
    /// No memory.
    pub fn new() -> Result<Box<Self>, LinkError> {
        Ok(Self::on_stack(Self::new_stack()?))
    }

    /// As [`Store::new`], with the stack and the memories of processes that have ended, if there are any,
    /// and leaving its own to those to come.
    ///
    /// # Errors
    /// No memory.
    pub fn pooled(pool: &Rc<Pool>) -> Result<Box<Self>, LinkError> {
        let stack = match pool.stack() {
            Some(stack) => stack,
            None => Self::new_stack()?,
        };
        let mut store = Self::on_stack(stack);
        store.pool = Some(pool.clone());
        Ok(store)
    }

    fn new_stack() -> Result<Reservation, LinkError> {
        let bytes = limits::STACK_BYTES + limits::STACK_RESERVE;
        let stack = Reservation::new(bytes + 4096).ok_or(LinkError::NoMemory)?;
        // SAFETY: all but the lowest page of a new reservation.
        if unsafe { host::protect(stack.base().add(4096), bytes, Protection::ReadWrite) } {
            Ok(stack)
        } else {
            Err(LinkError::NoMemory)
        }
    }

    fn on_stack(stack: Reservation) -> Box<Self> {
        Box::new(Self {
            runtime: Box::new(Runtime {
                area: [[0; 2]; limits::AREA_VALUES],
                entry_stack: 0,
                fault: [0; 2],
                raised: None,
                interrupted: AtomicBool::new(false),
                code: Vec::new(),
            }),
            stack,
            instances: Vec::new(),
            hosts: Vec::new(),
            services: Vec::new(),
            memories: Vec::new(),
            tables: Vec::new(),
            globals: Vec::new(),
            own_cells: Vec::new(),
            owners: Vec::new(),
            next_handle: 1,
            numbered: None,
            signatures: HashMap::new(),
            handle_table: EMPTY_HANDLES.as_ptr() as u64,
            member: None,
            group: core::ptr::null_mut(),
            depth: 0,
            ran: false,
            pool: None,
        })
    }

    /// Lets the types of a program have the numbers that it has counted them by, if no type has one yet.
    fn number_types(&mut self, program: Arc<Program>) {
        if self.numbered.is_none() && self.signatures.is_empty() {
            self.numbered = Some(program);
        }
    }

    /// The number of one of a program's types.
    fn signature_of(&mut self, program: &Arc<Program>, index: usize) -> u64 {
        match &self.numbered {
            Some(numbered) if Arc::ptr_eq(numbered, program) => program.signatures[index],
            _ => self.signature(&program.image.module.types[index]),
        }
    }

    /// The number of a type, the same for all types that are equal.
    fn signature(&mut self, ty: &FuncType) -> u64 {
        let numbered = self.numbered.as_ref();
        if let Some(known) = numbered.and_then(|program| program.numbers.get(ty)) {
            return *known;
        }
        if let Some(known) = self.signatures.get(ty) {
            return *known;
        }
        let before = self.numbered.as_ref().map_or(0, |program| program.numbers.len());
        let next = (before + self.signatures.len()) as u64;
        self.signatures.insert(ty.clone(), next);
        next
    }

    /// Registers a host function and returns its handle.
    pub fn host_function(&mut self, ty: FuncType, body: HostFn) -> Extern {
        let store: *mut Self = self;
        self.hosts.push(Box::new(HostFunction {
            store,
            ty,
            body: Some(body),
        }));
        let handle = self.next_handle;
        self.next_handle += 1;
        self.owners.push((handle, Owner::Host(self.hosts.len() - 1)));
        Extern::Func(handle)
    }

    fn owner(&self, handle: u64) -> Option<(u64, Owner)> {
        if handle == 0 || handle >= self.next_handle {
            return None;
        }
        let at = self.owners.partition_point(|(first, _)| *first <= handle);
        let (first, owner) = *self.owners.get(at.checked_sub(1)?)?;
        Some((handle - first, owner))
    }

    /// Code, context and type of a function.
    fn resolve(&self, handle: u64) -> Option<(u64, u64, &FuncType)> {
        match self.owner(handle)? {
            (_, Owner::Host(host)) => {
                let function = &*self.hosts[host];
                let context = core::ptr::from_ref(function) as u64;
                Some((asm::sip_host as *const () as u64, context, &function.ty))
            }
            (_, Owner::Service(service)) => {
                let service = &*self.services[service];
                let context = core::ptr::from_ref(service) as u64;
                Some((service.code(), context, &service.ty))
            }
            (own, Owner::Instance(instance)) => {
                let instance = &*self.instances[instance];
                let module = &instance.program.image.module;
                let index = own as usize + module.imported_functions;
                let ty = module.function_type(index as u32);
                Some((instance.program.address(own as usize), instance.context_address(), ty))
            }
        }
    }

    /// The type of a function.
    pub fn function_type(&self, handle: u64) -> Option<&FuncType> {
        self.resolve(handle).map(|(_, _, ty)| ty)
    }

    /// Calls a function by handle.
    ///
    /// # Errors
    /// The trap that ended it. Arguments of other types than the function's are a trap too.
    pub fn call(&mut self, handle: u64, args: &[Val]) -> Result<Vec<Val>, Trap> {
        let mut registers = Registers::default();
        let (code, ty) = self.prepare(handle, args, &mut registers)?;
        self.enter(code, &mut registers)?;
        let results = ty.results.iter().zip(abi::results(&ty.results)).map(|(ty, place)| {
            let bits = match place {
                Place::Int(at) => [registers.ints[at], 0],
                Place::Float(at) => registers.floats[at],
                Place::Area(at) => self.runtime.area[at],
            };
            Val::from_bits(*ty, bits)
        });
        Ok(results.collect())
    }

    /// Puts a call's arguments where the convention wants them; yields code and type.
    fn prepare(&mut self, handle: u64, args: &[Val], registers: &mut Registers) -> Result<(u64, FuncType), Trap> {
        let wrong = || Trap::new(TrapKind::BadSignature);
        let (code, context, ty) = self.resolve(handle).ok_or_else(wrong)?;
        if args.len() != ty.params.len() || args.iter().zip(&ty.params).any(|(arg, ty)| arg.ty() != *ty) {
            return Err(wrong());
        }
        let ty = ty.clone();
        self.ran = true;
        registers.ints[0] = context;
        for (arg, place) in args.iter().zip(abi::params(&ty.params)) {
            match place {
                Place::Int(at) => registers.ints[at + 1] = arg.bits()[0],
                Place::Float(at) => registers.floats[at] = arg.bits(),
                Place::Area(at) => self.runtime.area[at] = arg.bits(),
            }
        }
        Ok((code, ty))
    }

    /// The stack pointer's start.
    fn stack_top(&self) -> u64 {
        self.stack.base() as u64 + self.stack.bytes() as u64 - 8
    }

    /// Offset in the module of the call that returns to this address.
    fn call_site(&self, return_address: u64) -> Option<u32> {
        self.instances
            .iter()
            .find_map(|instance| instance.call_site(return_address))
    }

    fn enter(&mut self, code: u64, registers: &mut Registers) -> Result<(), Trap> {
        if self.depth >= ENTRIES {
            return Err(Trap::new(TrapKind::StackOverflow));
        }
        let runtime: *mut Runtime = &raw mut *self.runtime;
        // A nested entry goes on where the host function stands, on the same stack. If there is
        // no room for that, the check in the callee's prologue says so.
        let stack = if self.depth == 0 { self.stack_top() } else { 0 };
        let previous = host::set_current(runtime);
        self.depth += 1;
        // SAFETY: `code` is a verified function's entry or a thunk's and `registers` holds its
        // context and arguments; the stack is the store's own and, at depth 0, unused.
        let trapped = unsafe { asm::sip_enter(registers, code, runtime.cast(), stack) } != 0;
        self.depth -= 1;
        host::set_current(previous);
        if trapped { Err(self.trap()) } else { Ok(()) }
    }

    fn trap(&mut self) -> Trap {
        self.runtime.interrupted.store(false, Ordering::Relaxed);
        if let Some(raised) = self.runtime.raised.take() {
            return raised;
        }
        let [at, address] = self.runtime.fault;
        if at == address {
            // It could not run the instruction where it stands: no access of its own is to blame.
            return Trap::new(TrapKind::Interrupted);
        }
        for instance in &self.instances {
            let program = &instance.program;
            let base = program.code.base() as u64;
            if let Some(site) = at
                .checked_sub(base)
                .and_then(|at| program.image.trap_at(u32::try_from(at).ok()?))
            {
                return Trap {
                    kind: site.kind,
                    wasm: Some(site.wasm),
                    host: None,
                };
            }
        }
        Trap::new(TrapKind::Interrupted)
    }
}

/// The thunks arrive here: calls the built-in or the host function and returns 0, or the runtime
/// block's address if the caller is to be left by the landing.
extern "sysv64" fn dispatch(registers: *mut Registers, builtin: u32, return_address: u64) -> u64 {
    // SAFETY: the thunk passes its own block; the context in it is an instance's for a built-in and
    // a host function's otherwise, as the layout says and the verifier has proved.
    unsafe {
        let registers = &mut *registers;
        let context = registers.ints[0];
        let store;
        let result = if builtin < BUILTIN_COUNT {
            let instance = *((context + u64::from(layout::INSTANCE)) as *const *mut Instance);
            store = (*instance).store;
            builtins::call(&mut *store, &mut *instance, builtin, registers)
                .map_err(|kind| (*instance).trap_at(kind, return_address))
        } else {
            let function = context as *mut HostFunction;
            store = (*function).store;
            call_host(&mut *store, function, registers).map_err(|trap| Trap {
                wasm: trap.wasm.or_else(|| (*store).call_site(return_address)),
                ..trap
            })
        };
        match result.and_then(|()| (*store).runtime.may_return()) {
            Ok(()) => 0,
            Err(trap) => {
                (*store).runtime.raised = Some(trap);
                &raw mut *(*store).runtime as u64
            }
        }
    }
}

/// # Safety
/// `function` is one of the store's host functions.
unsafe fn call_host(store: &mut Store, function: *mut HostFunction, registers: &mut Registers) -> Result<(), Trap> {
    // SAFETY: the caller's condition; the body is taken out while it runs, so that calling the same
    // function again from inside it finds it gone instead of borrowed twice.
    let (ty, body) = unsafe { (&(*function).ty, &mut (*function).body) };
    let mut running = body.take().ok_or_else(|| Trap {
        kind: TrapKind::Host,
        wasm: None,
        host: Some(HostError::Failed("host function called from inside itself".into())),
    })?;
    let mut args = Vec::with_capacity(ty.params.len());
    for (ty, place) in ty.params.iter().zip(abi::params(&ty.params)) {
        let bits = match place {
            Place::Int(at) => [registers.ints[at + 1], 0],
            Place::Float(at) => registers.floats[at],
            Place::Area(at) => store.runtime.area[at],
        };
        args.push(Val::from_bits(*ty, bits));
    }
    let mut results: Vec<Val> = ty.results.iter().map(|ty| Val::from_bits(*ty, [0; 2])).collect();
    let outcome = running(store, &args, &mut results);
    *body = Some(running);
    outcome.map_err(|error| Trap {
        kind: TrapKind::Host,
        wasm: None,
        host: Some(error),
    })?;
    for (result, place) in results.iter().zip(abi::results(&ty.results)) {
        match place {
            Place::Int(at) => registers.ints[at] = result.bits()[0],
            Place::Float(at) => registers.floats[at] = result.bits(),
            Place::Area(at) => store.runtime.area[at] = result.bits(),
        }
    }
    Ok(())
}
