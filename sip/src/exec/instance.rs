//! Instantiation: imports are met by name and type, the context is filled, segments are copied.

use super::memory::{Element, Memory, Table};
use super::{Global, Owner, Program, Store, Trap, Val, asm, builtins};
use crate::compile::Bounds;
use crate::layout::{self, BUILTIN_COUNT};
use crate::module::{ConstOp, EntityType, ExportIndex, GlobalType, Limits, SegmentMode, TableType, ValType};
use crate::translate::TrapKind;
use alloc::{boxed::Box, string::String, sync::Arc, vec::Vec};

/// Something that can be imported: an index in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extern {
    /// A function's handle.
    Func(u64),
    /// A table.
    Table(usize),
    /// A memory.
    Memory(usize),
    /// A global.
    Global(usize),
}

/// Why a module could not be instantiated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// Nothing of this module and name was given.
    Unknown(String, String),
    /// The given object is of another kind or type.
    Type(String, String),
    /// Address space or memory is exhausted.
    NoMemory,
    /// A segment or the start function trapped.
    Trap(Trap),
}

impl core::fmt::Display for LinkError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Unknown(module, name) => write!(f, "unknown import: {module}.{name}"),
            Self::Type(module, name) => write!(f, "incompatible import type: {module}.{name}"),
            Self::NoMemory => f.write_str("no memory for the instance"),
            Self::Trap(trap) => write!(f, "{trap}"),
        }
    }
}

/// An instance. Compiled code holds its context's address; the context holds this record's.
pub(super) struct Instance {
    pub store: *mut Store,
    pub program: Arc<Program>,
    context: Box<[[u64; 2]]>,
    /// Handle of each imported function.
    imported: Vec<u64>,
    /// Handle of the first own function.
    first: u64,
    pub memories: Vec<usize>,
    pub tables: Vec<usize>,
    globals: Vec<usize>,
    pub elements: Vec<Vec<u64>>,
    pub dropped_data: Vec<bool>,
}

impl Instance {
    pub fn context_address(&self) -> u64 {
        self.context.as_ptr() as u64
    }

    fn set(&mut self, offset: u32, value: u64) {
        self.context[offset as usize / 16][offset as usize / 8 % 2] = value;
    }

    fn get(&self, offset: u32) -> u64 {
        self.context[offset as usize / 16][offset as usize / 8 % 2]
    }

    /// The handle of a function by its index in the module.
    pub fn function_handles(&self, function: u32) -> u64 {
        let imported = self.imported.len();
        match self.imported.get(function as usize) {
            Some(handle) => *handle,
            None => self.first + (function as usize - imported) as u64,
        }
    }

    /// The table element of one of its own functions; its context has the signatures.
    fn element(&self, own: usize, handle: u64) -> Element {
        let image = &self.program.image;
        let ty = image.module.functions[own + image.module.imported_functions];
        Element {
            code: self.program.address(own),
            context: self.context_address(),
            signature: self.get(image.layout.signature(ty)),
            handle,
        }
    }

    /// Offset in the module of the call that returns to this address, if it is of this instance.
    pub fn call_site(&self, return_address: u64) -> Option<u32> {
        let calls = &self.program.image.calls;
        let at = return_address.checked_sub(self.program.code.base() as u64)?;
        let at = u32::try_from(at).ok()?;
        let found = calls.binary_search_by_key(&at, |(code, _)| *code).ok()?;
        Some(calls[found].1)
    }

    /// A trap raised in a built-in that was called from this return address.
    pub fn trap_at(&self, kind: TrapKind, return_address: u64) -> Trap {
        Trap {
            wasm: self.call_site(return_address),
            ..Trap::new(kind)
        }
    }
}

fn limits_match(have: Limits, size: u64, want: Limits) -> bool {
    size >= want.min && want.max.is_none_or(|want| have.max.is_some_and(|have| have <= want))
}

impl Store {
    /// Makes a host's global.
    pub fn global(&mut self, ty: GlobalType, value: Val) -> Extern {
        self.own_cells.push(Box::new(value.bits()));
        let cell = &raw mut **self.own_cells.last_mut().expect("just pushed");
        self.globals.push(Global { cell, ty });
        Extern::Global(self.globals.len() - 1)
    }

    /// Makes a host's memory.
    pub fn memory(&mut self, limits: Limits) -> Option<Extern> {
        self.memories.push(Box::new(Memory::new(limits, Bounds::Guard)?));
        Some(Extern::Memory(self.memories.len() - 1))
    }

    /// Makes a host's table of nulls.
    pub fn table(&mut self, ty: TableType) -> Option<Extern> {
        self.tables.push(Box::new(Table::new(ty, Element::NULL)?));
        Some(Extern::Table(self.tables.len() - 1))
    }

    /// The form in memory of a table's element with this handle.
    pub(super) fn element(&mut self, table: usize, handle: u64) -> Element {
        if handle == 0 {
            return Element::NULL;
        }
        if self.tables[table].element_type() == ValType::ExternRef {
            return Element {
                handle,
                ..Element::NULL
            };
        }
        if let Some((own, Owner::Instance(at))) = self.owner(handle) {
            return self.instances[at].element(own as usize, handle);
        }
        let Some((code, context, ty)) = self.resolve(handle) else {
            return Element::NULL;
        };
        let ty = ty.clone();
        Element {
            code,
            context,
            signature: self.signature(&ty),
            handle,
        }
    }

    fn meets(&self, given: Extern, wanted: &EntityType, program: &Program) -> bool {
        match (given, wanted) {
            (Extern::Func(handle), EntityType::Func(ty)) => self
                .function_type(handle)
                .is_some_and(|have| *have == program.image.module.types[*ty as usize]),
            (Extern::Table(at), EntityType::Table(want)) => self.tables.get(at).is_some_and(|have| {
                have.declared.element == want.element && limits_match(have.declared.limits, have.length, want.limits)
            }),
            (Extern::Memory(at), EntityType::Memory(want)) => self.memories.get(at).is_some_and(|have| {
                limits_match(have.declared, have.length / layout::PAGE_BYTES, *want)
                    && (have.is_guarded() || program.image.options.bounds == Bounds::Explicit)
            }),
            (Extern::Global(at), EntityType::Global(want)) => self.globals.get(at).is_some_and(|have| have.ty == *want),
            _ => false,
        }
    }

    /// Makes an instance of a program, with what its imports name, in their order.
    ///
    /// # Errors
    /// A [`LinkError`]. The bytes that active segments wrote before a trap stay written, as specified.
    pub fn instantiate(&mut self, program: &Arc<Program>, imports: &[Extern]) -> Result<usize, LinkError> {
        let module = program.image.module.clone();
        for (at, import) in module.imports.iter().enumerate() {
            let names = || (import.module.clone(), import.name.clone());
            let Some(given) = imports.get(at) else {
                let (from, name) = names();
                return Err(LinkError::Unknown(from, name));
            };
            if !self.meets(*given, &import.ty, program) {
                let (from, name) = names();
                return Err(LinkError::Type(from, name));
            }
        }
        let own_functions = (module.functions.len() - module.imported_functions) as u64;
        let mut instance = Box::new(Instance {
            store: self,
            program: program.clone(),
            context: alloc::vec![[0; 2]; program.image.layout.bytes.div_ceil(16) as usize].into(),
            imported: Vec::new(),
            first: self.next_handle,
            memories: Vec::new(),
            tables: Vec::new(),
            globals: Vec::new(),
            elements: Vec::new(),
            dropped_data: alloc::vec![false; module.data.len()],
        });
        for given in imports.iter().take(module.imports.len()) {
            match *given {
                Extern::Func(handle) => instance.imported.push(handle),
                Extern::Table(at) => instance.tables.push(at),
                Extern::Memory(at) => instance.memories.push(at),
                Extern::Global(at) => instance.globals.push(at),
            }
        }
        self.owners
            .push((self.next_handle, Owner::Instance(self.instances.len())));
        self.next_handle += own_functions;
        let base = program.code.base() as u64;
        let range = [base, base + program.code.bytes() as u64];
        if !self.runtime.code.contains(&range) {
            // A timer's handler reads the list of whichever process is current: none is while it grows.
            let current = super::host::set_current(core::ptr::null_mut());
            self.runtime.code.push(range);
            super::host::set_current(current);
        }
        self.instances.push(instance);
        let at = self.instances.len() - 1;
        if let Err(error) = self.make_state(at) {
            // Its context is not filled, and none of its code has run: nobody may find its functions by a number.
            self.owners.pop();
            self.next_handle -= own_functions;
            return Err(error);
        }
        self.fill_context(at);
        self.run_segments(at)?;
        Ok(at)
    }

    /// The instance, apart from the store: its box does not move while the store's other parts do.
    fn split(&mut self, at: usize) -> (&mut Instance, &mut Self) {
        let instance: *mut Instance = &raw mut *self.instances[at];
        // SAFETY: the box stays where it is, and no method that is called through the second
        // reference touches this instance but by reading its program and addresses.
        (unsafe { &mut *instance }, self)
    }

    /// The value of an operator that takes none; zero of the others.
    fn plain_constant(&self, at: usize, op: ConstOp) -> [u64; 2] {
        match op {
            ConstOp::I32(value) => [u64::from(value.cast_unsigned()), 0],
            ConstOp::I64(value) => [value.cast_unsigned(), 0],
            ConstOp::F32(bits) => [u64::from(bits), 0],
            ConstOp::F64(bits) => [bits, 0],
            ConstOp::V128(bits) => [bits as u64, (bits >> 64) as u64],
            ConstOp::RefFunc(function) => [self.instances[at].function_handles(function), 0],
            ConstOp::GlobalGet(global) => {
                let cell = self.globals[self.instances[at].globals[global as usize]].cell;
                // SAFETY: cells live as long as the store and compiled code does not run now.
                unsafe { *cell }
            }
            _ => [0; 2],
        }
    }

    fn constant(&self, at: usize, expr: &[ConstOp]) -> [u64; 2] {
        // Nearly all are of one operator.
        if let [op] = expr {
            return self.plain_constant(at, *op);
        }
        let mut stack: Vec<[u64; 2]> = Vec::new();
        for op in expr {
            let value = match *op {
                binary @ (ConstOp::I32Add
                | ConstOp::I32Sub
                | ConstOp::I32Mul
                | ConstOp::I64Add
                | ConstOp::I64Sub
                | ConstOp::I64Mul) => {
                    let second = stack.pop().map_or(0, |value| value[0]);
                    let first = stack.pop().map_or(0, |value| value[0]);
                    let narrow = |value: u64| [u64::from(value as u32), 0];
                    match binary {
                        ConstOp::I32Add => narrow(first.wrapping_add(second)),
                        ConstOp::I32Sub => narrow(first.wrapping_sub(second)),
                        ConstOp::I32Mul => narrow(first.wrapping_mul(second)),
                        ConstOp::I64Add => [first.wrapping_add(second), 0],
                        ConstOp::I64Sub => [first.wrapping_sub(second), 0],
                        _ => [first.wrapping_mul(second), 0],
                    }
                }
                plain => self.plain_constant(at, plain),
            };
            stack.push(value);
        }
        stack.pop().unwrap_or_default()
    }

    fn make_state(&mut self, at: usize) -> Result<(), LinkError> {
        let program = self.instances[at].program.clone();
        let module = &program.image.module;
        let bounds = program.image.options.bounds;
        for limits in &module.memories[module.imported_memories..] {
            let spare = self.pool.as_ref().and_then(|pool| pool.memory(*limits, bounds));
            let memory = match spare {
                Some(memory) => memory,
                None => Memory::new(*limits, bounds).ok_or(LinkError::NoMemory)?,
            };
            self.memories.push(Box::new(memory));
            self.instances[at].memories.push(self.memories.len() - 1);
        }
        for (own, ty) in module.globals[module.imported_globals..].iter().enumerate() {
            let value = self.constant(at, &module.global_inits[own]);
            let offset = program.image.layout.cell(own as u32);
            let cell = &raw mut self.instances[at].context[offset as usize / 16];
            // SAFETY: the cell lies in the instance's own context.
            unsafe { *cell = value };
            self.globals.push(Global { cell, ty: *ty });
            self.instances[at].globals.push(self.globals.len() - 1);
        }
        self.number_types(program.clone());
        for index in 0..module.types.len() {
            let signature = self.signature_of(&program, index);
            self.instances[at].set(program.image.layout.signature(index as u32), signature);
        }
        for (own, ty) in module.tables[module.imported_tables..].iter().enumerate() {
            let spare = self.pool.as_ref().and_then(|pool| pool.table(ty));
            let table = match spare {
                Some(table) => table,
                None => Table::new(*ty, Element::NULL).ok_or(LinkError::NoMemory)?,
            };
            self.tables.push(Box::new(table));
            let table = self.tables.len() - 1;
            self.instances[at].tables.push(table);
            if let Some(expr) = &module.table_inits[own] {
                let handle = self.constant(at, expr)[0];
                let element = self.element(table, handle);
                self.tables[table].elements_mut().fill(element);
            }
        }
        for segment in &module.elements {
            let handles = segment.items.iter().map(|expr| self.constant(at, expr)[0]).collect();
            self.instances[at].elements.push(handles);
        }
        Ok(())
    }

    fn fill_context(&mut self, at: usize) {
        let (instance, store) = self.split(at);
        let program = instance.program.clone();
        let (module, layout) = (&program.image.module, &program.image.layout);
        instance.set(layout::RUNTIME, &raw const *store.runtime as u64);
        let record: *mut Instance = instance;
        instance.set(layout::INSTANCE, record as u64);
        let limit = store.stack.base() as u64 + 4096 + crate::limits::STACK_RESERVE as u64;
        instance.set(layout::STACK_LIMIT, limit);
        instance.set(layout::HANDLES, store.handle_table);
        instance.set(layout::HANDLE_MASK, u64::from(layout::HANDLES_MAX) - 1);
        for builtin in 0..BUILTIN_COUNT {
            instance.set(
                layout::BUILTINS + 8 * builtin,
                asm::sip_builtins as *const () as u64 + 16 * u64::from(builtin),
            );
        }
        for index in 0..instance.memories.len() {
            let memory = &*store.memories[instance.memories[index]];
            instance.set(layout.memory(index as u32), memory.base() as u64);
            instance.set(layout.memory(index as u32) + 8, &raw const memory.length as u64);
        }
        for index in 0..instance.tables.len() {
            let table = &*store.tables[instance.tables[index]];
            instance.set(layout.table(index as u32), table.base());
            instance.set(layout.table(index as u32) + 8, &raw const table.length as u64);
        }
        for index in 0..instance.imported.len() {
            let Some((code, context, _)) = store.resolve(instance.imported[index]) else {
                continue;
            };
            instance.set(layout.function(index as u32), code);
            instance.set(layout.function(index as u32) + 8, context);
        }
        for index in 0..module.imported_globals {
            instance.set(
                layout.global(index as u32),
                store.globals[instance.globals[index]].cell as u64,
            );
        }
    }

    fn run_segments(&mut self, at: usize) -> Result<(), LinkError> {
        let module = self.instances[at].program.image.module.clone();
        let trap = |kind| LinkError::Trap(Trap::new(kind));
        for (segment, element) in module.elements.iter().enumerate() {
            if let SegmentMode::Active(table, offset) = &element.mode {
                let to = self.constant(at, offset)[0];
                let count = element.items.len() as u64;
                let (instance, store) = self.split(at);
                builtins::table_init(store, instance, u64::from(*table), segment as u64, [to, 0, count])
                    .map_err(trap)?;
            }
            if element.mode != SegmentMode::Passive {
                self.instances[at].elements[segment].clear();
            }
        }
        for (segment, data) in module.data.iter().enumerate() {
            if let SegmentMode::Active(memory, offset) = &data.mode {
                let to = self.constant(at, offset)[0] as usize;
                let memory = self.instances[at].memories[*memory as usize];
                if !self.memories[memory].fill_segment(to, &data.bytes) {
                    return Err(trap(TrapKind::MemoryBounds));
                }
                self.instances[at].dropped_data[segment] = true;
            }
        }
        if let Some(start) = module.start {
            let handle = self.instances[at].function_handles(start);
            self.call(handle, &[]).map_err(LinkError::Trap)?;
        }
        Ok(())
    }

    /// The export of an instance under a name.
    pub fn export(&self, instance: usize, name: &str) -> Option<Extern> {
        let instance = self.instances.get(instance)?;
        Some(match instance.program.image.module.export(name)? {
            ExportIndex::Func(function) => Extern::Func(instance.function_handles(function)),
            ExportIndex::Table(table) => Extern::Table(instance.tables[table as usize]),
            ExportIndex::Memory(memory) => Extern::Memory(instance.memories[memory as usize]),
            ExportIndex::Global(global) => Extern::Global(instance.globals[global as usize]),
        })
    }

    /// Names of an instance's exports, with what they are.
    pub fn exports(&self, instance: usize) -> Vec<(String, Extern)> {
        let Some(record) = self.instances.get(instance) else {
            return Vec::new();
        };
        let names = record.program.image.module.exports.iter();
        names
            .filter_map(|(name, _)| Some((name.clone(), self.export(instance, name)?)))
            .collect()
    }

    /// A global's value.
    pub fn global_value(&self, global: usize) -> Option<Val> {
        let global = self.globals.get(global)?;
        // SAFETY: cells live as long as the store; compiled code runs only in `&mut self` methods.
        Some(Val::from_bits(global.ty.content, unsafe { *global.cell }))
    }

    /// A memory's bytes.
    pub fn memory_bytes(&mut self, memory: usize) -> Option<&mut [u8]> {
        Some(self.memories.get_mut(memory)?.lend())
    }
}
