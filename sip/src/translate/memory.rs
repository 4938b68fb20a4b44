//! Loads, stores, bulk memory, tables, references, and the exchange heap's accessors.

use super::{Region, Translator, TrapKind};
use crate::compile::Bounds;
use crate::layout::{self, Builtin};
use crate::refine::Access;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Type, Value, condcodes::IntCC, types};
use wasmparser::{MemArg, MemArgTarget, Operator};

/// The extension that a load does.
#[derive(Clone, Copy)]
enum Narrow {
    Signed8,
    Unsigned8,
    Signed16,
    Unsigned16,
    Signed32,
    Unsigned32,
}

/// The memory that an instruction works on; arrays are of no accepted proposal.
fn memory_of(memarg: &MemArg) -> u32 {
    match memarg.target {
        MemArgTarget::Memory(memory) | MemArgTarget::Array(memory) => memory,
    }
}

impl Translator<'_, '_> {
    pub(super) fn memory(&mut self, op: &Operator<'_>) -> bool {
        use Operator as O;
        use types::{F32, F64, I8, I16, I32, I64};
        match op {
            O::I32Load { memarg } => self.load(memarg, I32, 4),
            O::I64Load { memarg } => self.load(memarg, I64, 8),
            O::F32Load { memarg } => self.load(memarg, F32, 4),
            O::F64Load { memarg } => self.load(memarg, F64, 8),
            O::I32Load8S { memarg } => self.load_narrow(memarg, I32, Narrow::Signed8),
            O::I32Load8U { memarg } => self.load_narrow(memarg, I32, Narrow::Unsigned8),
            O::I32Load16S { memarg } => self.load_narrow(memarg, I32, Narrow::Signed16),
            O::I32Load16U { memarg } => self.load_narrow(memarg, I32, Narrow::Unsigned16),
            O::I64Load8S { memarg } => self.load_narrow(memarg, I64, Narrow::Signed8),
            O::I64Load8U { memarg } => self.load_narrow(memarg, I64, Narrow::Unsigned8),
            O::I64Load16S { memarg } => self.load_narrow(memarg, I64, Narrow::Signed16),
            O::I64Load16U { memarg } => self.load_narrow(memarg, I64, Narrow::Unsigned16),
            O::I64Load32S { memarg } => self.load_narrow(memarg, I64, Narrow::Signed32),
            O::I64Load32U { memarg } => self.load_narrow(memarg, I64, Narrow::Unsigned32),
            O::I32Store { memarg } | O::F32Store { memarg } => self.store(memarg, None, 4),
            O::I64Store { memarg } | O::F64Store { memarg } => self.store(memarg, None, 8),
            O::I32Store8 { memarg } | O::I64Store8 { memarg } => self.store(memarg, Some(I8), 1),
            O::I32Store16 { memarg } | O::I64Store16 { memarg } => self.store(memarg, Some(I16), 2),
            O::I64Store32 { memarg } => self.store(memarg, Some(I32), 4),
            O::MemorySize { mem } => {
                let bytes = self.memory_length(*mem);
                let pages = self.builder.ins().ushr_imm_u(bytes, 16);
                let pages = self.builder.ins().ireduce(I32, pages);
                self.push(pages);
            }
            O::MemoryGrow { mem } => {
                let index = self.index(*mem);
                let pages = self.pop();
                self.call_builtin(Builtin::MemoryGrow, &[index, pages], Some(I32));
                self.refresh_length();
            }
            O::MemoryCopy { dst_mem, src_mem } => self.bulk(Builtin::MemoryCopy, &[*dst_mem, *src_mem]),
            O::MemoryFill { mem } => self.bulk(Builtin::MemoryFill, &[*mem]),
            O::MemoryInit { data_index, mem } => self.bulk(Builtin::MemoryInit, &[*mem, *data_index]),
            O::DataDrop { data_index } => {
                let index = self.index(*data_index);
                self.call_builtin(Builtin::DataDrop, &[index], None);
            }
            O::TableInit { elem_index, table } => self.bulk(Builtin::TableInit, &[*table, *elem_index]),
            O::TableCopy { dst_table, src_table } => self.bulk(Builtin::TableCopy, &[*dst_table, *src_table]),
            O::TableFill { table } => self.bulk(Builtin::TableFill, &[*table]),
            O::ElemDrop { elem_index } => {
                let index = self.index(*elem_index);
                self.call_builtin(Builtin::ElementDrop, &[index], None);
            }
            O::TableGet { table } => {
                let table = self.index(*table);
                let at = self.pop();
                self.call_builtin(Builtin::TableGet, &[table, at], Some(I64));
            }
            O::TableSet { table } => {
                let table = self.index(*table);
                let (at, value) = self.pop2();
                self.call_builtin(Builtin::TableSet, &[table, at, value], None);
            }
            O::TableSize { table } => {
                let table = self.index(*table);
                self.call_builtin(Builtin::TableSize, &[table], Some(I32));
            }
            O::TableGrow { table } => {
                let table = self.index(*table);
                let (value, count) = self.pop2();
                self.call_builtin(Builtin::TableGrow, &[table, value, count], Some(I32));
            }
            O::RefNull { .. } => {
                let null = self.index(0);
                self.push(null);
            }
            O::RefIsNull => {
                let value = self.pop();
                let null = self.builder.ins().icmp_imm_s(IntCC::Equal, value, 0);
                let null = self.builder.ins().uextend(I32, null);
                self.push(null);
            }
            O::RefFunc { function_index } => {
                let index = self.index(*function_index);
                self.call_builtin(Builtin::RefFunc, &[index], Some(I64));
            }
            _ => return false,
        }
        true
    }

    fn call_builtin(&mut self, which: Builtin, args: &[Value], result: Option<Type>) {
        let value = self.builtin(which, args);
        match result {
            Some(types::I32) => {
                let value = self.builder.ins().ireduce(types::I32, value);
                self.push(value);
            }
            Some(_) => self.push(value),
            None => {}
        }
    }

    /// A bulk instruction: its immediates, then its three operands.
    fn bulk(&mut self, which: Builtin, immediates: &[u32]) {
        let count = self.pop();
        let (to, from) = self.pop2();
        let mut args = alloc::vec::Vec::new();
        for immediate in immediates {
            args.push(self.index(*immediate));
        }
        args.extend([to, from, count]);
        self.call_builtin(which, &args, None);
    }

    /// The length of the first memory is loaded where it can have changed, at the entry and behind calls, and is a
    /// variable in between: comparisons of the same index are then the same to the optimizer, and it stays in a
    /// register around loops.
    pub(super) fn refresh_length(&mut self) {
        let Some(variable) = self.length else { return };
        let length = self.load_length(0);
        self.reloads.extend(self.builder.func.dfg.value_def(length).inst());
        self.builder.def_var(variable, length);
    }

    fn memory_length(&mut self, memory: u32) -> Value {
        match self.length {
            Some(variable) if memory == 0 => self.builder.use_var(variable),
            _ => self.load_length(memory),
        }
    }

    fn load_length(&mut self, memory: u32) -> Value {
        let record = self.field(self.layout.memory(memory) + 8);
        let flags = self.flags(Region::Runtime);
        self.builder.ins().load(types::I64, flags, record, 0)
    }

    fn heap_flags(&mut self) -> MemFlagsData {
        let region = self.flags(Region::Heap).alias_region();
        MemFlagsData::new()
            .with_endianness(cranelift_codegen::ir::Endianness::Little)
            .with_alias_region(region)
            .with_trap_code(Some(TrapKind::MemoryBounds.code()))
    }

    /// Pops an index and makes the address of an access of `bytes` bytes, checked if need be.
    /// The displacement is returned apart, where it fits, so that it can sit in the instruction.
    pub(super) fn address(&mut self, memarg: &MemArg, bytes: u64) -> (Value, i32) {
        let index = self.pop();
        let index = self.builder.ins().uextend(types::I64, index);
        if self.options.bounds == Bounds::Explicit {
            self.check_bounds(memarg, index, bytes);
        }
        let base = self.field(self.layout.memory(memory_of(memarg)));
        let address = self.builder.ins().iadd(base, index);
        match i32::try_from(memarg.offset) {
            Ok(offset) => {
                self.note(index, address, offset, bytes);
                (address, offset)
            }
            Err(_) => (self.builder.ins().iadd_imm_s(address, memarg.offset as i64), 0),
        }
    }

    /// Notes an access, whose offset may grow by what is added to its index: as far as an instruction can say it, or as
    /// far as the guard after the memory's end reaches where the comparison leaves the offset out.
    fn note(&mut self, index: Value, address: Value, offset: i32, bytes: u64) {
        let room = match self.options.bounds {
            Bounds::Guard => i32::MAX - 1,
            Bounds::Explicit => (layout::GUARD_BYTES as i32).saturating_sub(bytes as i32),
        };
        if let Some(index) = self.builder.func.dfg.value_def(index).inst() {
            self.accesses.push(Access {
                index,
                address,
                offset,
                room,
            });
        }
    }

    /// One comparison. An offset that stays within the guard after the memory's end needs no part
    /// in it, so that neighbouring accesses share the check.
    fn check_bounds(&mut self, memarg: &MemArg, index: Value, bytes: u64) {
        let length = self.memory_length(memory_of(memarg));
        let outside = if memarg.offset + bytes <= layout::GUARD_BYTES {
            self.builder
                .ins()
                .icmp(IntCC::UnsignedGreaterThanOrEqual, index, length)
        } else {
            let end = self.builder.ins().iadd_imm_s(index, (memarg.offset + bytes) as i64);
            self.builder.ins().icmp(IntCC::UnsignedGreaterThan, end, length)
        };
        self.builder.ins().trapnz(outside, TrapKind::MemoryBounds.code());
    }

    pub(super) fn load_value(&mut self, memarg: &MemArg, ty: Type, bytes: u64) -> Value {
        let (address, offset) = self.address(memarg, bytes);
        let flags = self.heap_flags();
        self.builder.ins().load(ty, flags, address, offset)
    }

    fn load(&mut self, memarg: &MemArg, ty: Type, bytes: u64) {
        let value = self.load_value(memarg, ty, bytes);
        self.push(value);
    }

    /// A load that is its own extension. As a narrow load and an extension the optimizer would see two values, keep
    /// both, and extend once more in a register.
    fn load_narrow(&mut self, memarg: &MemArg, wide: Type, narrow: Narrow) {
        let bytes = match narrow {
            Narrow::Signed8 | Narrow::Unsigned8 => 1,
            Narrow::Signed16 | Narrow::Unsigned16 => 2,
            Narrow::Signed32 | Narrow::Unsigned32 => 4,
        };
        let (address, offset) = self.address(memarg, bytes);
        let flags = self.heap_flags();
        let ins = self.builder.ins();
        let value = match narrow {
            Narrow::Signed8 => ins.sload8(wide, flags, address, offset),
            Narrow::Unsigned8 => ins.uload8(wide, flags, address, offset),
            Narrow::Signed16 => ins.sload16(wide, flags, address, offset),
            Narrow::Unsigned16 => ins.uload16(wide, flags, address, offset),
            Narrow::Signed32 => ins.sload32(flags, address, offset),
            Narrow::Unsigned32 => ins.uload32(flags, address, offset),
        };
        self.push(value);
    }

    pub(super) fn store_value(&mut self, memarg: &MemArg, value: Value, bytes: u64) {
        let (address, offset) = self.address(memarg, bytes);
        let flags = self.heap_flags();
        self.builder.ins().store(flags, value, address, offset);
    }

    fn store(&mut self, memarg: &MemArg, narrow: Option<Type>, bytes: u64) {
        let mut value = self.pop();
        if let Some(narrow) = narrow {
            value = self.builder.ins().ireduce(narrow, value);
        }
        self.store_value(memarg, value, bytes);
    }

    /// The address of a table's element, checked against the table's length.
    pub(super) fn element(&mut self, table: u32, index: Value) -> Value {
        let base = self.field(self.layout.table(table));
        let record = self.field(self.layout.table(table) + 8);
        let flags = self.flags(Region::Runtime);
        let length = self.builder.ins().load(types::I64, flags, record, 0);
        let index = self.builder.ins().uextend(types::I64, index);
        let outside = self
            .builder
            .ins()
            .icmp(IntCC::UnsignedGreaterThanOrEqual, index, length);
        self.builder.ins().trapnz(outside, TrapKind::TableBounds.code());
        let offset = self
            .builder
            .ins()
            .ishl_imm_u(index, i64::from(layout::ELEMENT_BYTES.trailing_zeros()));
        self.builder.ins().iadd(base, offset)
    }

    /// Inlines a call of an accessor of the exchange heap; says whether the import is one.
    pub(super) fn exchange(&mut self, function: u32) -> bool {
        use types::{F32, F64, I8, I16, I32, I64};
        let Some(accessor) = self.module.accessor(function) else {
            return false;
        };
        match accessor {
            "ld8" => self.block_load(I8, Some(I32)),
            "ld16" => self.block_load(I16, Some(I32)),
            "ld32" => self.block_load(I32, None),
            "ld64" => self.block_load(I64, None),
            "ldf32" => self.block_load(F32, None),
            "ldf64" => self.block_load(F64, None),
            "st8" => self.block_store(I8, true),
            "st16" => self.block_store(I16, true),
            "st32" => self.block_store(I32, false),
            "st64" => self.block_store(I64, false),
            "stf32" => self.block_store(F32, false),
            "stf64" => self.block_store(F64, false),
            "copy_in" => self.block_copy(Builtin::BlockIn),
            "copy_out" => self.block_copy(Builtin::BlockOut),
            "len" => {
                let handle = self.pop();
                let entry = self.block_entry(handle);
                let flags = self.flags(Region::Table);
                let length = self.builder.ins().load(I64, flags, entry, 8);
                let length = self.builder.ins().ireduce(I32, length);
                self.push(length);
            }
            _ => return false,
        }
        true
    }

    fn block_copy(&mut self, which: Builtin) {
        let (address, bytes) = self.pop2();
        let (handle, offset) = self.pop2();
        self.call_builtin(which, &[handle, offset, address, bytes], None);
    }

    fn block_entry(&mut self, handle: Value) -> Value {
        let table = self.field(layout::HANDLES);
        let index = self
            .builder
            .ins()
            .band_imm_u(handle, i64::from(layout::HANDLES_MAX - 1));
        let index = self.builder.ins().uextend(types::I64, index);
        let offset = self
            .builder
            .ins()
            .ishl_imm_u(index, i64::from(layout::HANDLE_BYTES.trailing_zeros()));
        self.builder.ins().iadd(table, offset)
    }

    /// Pops offset and handle: one masked look-up, one check; the address of the access.
    fn block_address(&mut self, bytes: u32) -> Value {
        let (handle, offset) = self.pop2();
        let entry = self.block_entry(handle);
        let flags = self.flags(Region::Table);
        let length = self.builder.ins().load(types::I64, flags, entry, 8);
        let offset = self.builder.ins().uextend(types::I64, offset);
        let end = self.builder.ins().iadd_imm_s(offset, i64::from(bytes));
        let outside = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, end, length);
        self.builder.ins().trapnz(outside, TrapKind::BlockBounds.code());
        let base = self.builder.ins().load(types::I64, flags, entry, 0);
        self.builder.ins().iadd(base, offset)
    }

    fn block_load(&mut self, ty: Type, widen: Option<Type>) {
        let address = self.block_address(ty.bytes());
        let flags = self.flags(Region::Exchange);
        let mut value = self.builder.ins().load(ty, flags, address, 0);
        if let Some(wide) = widen {
            value = self.builder.ins().uextend(wide, value);
        }
        self.push(value);
    }

    fn block_store(&mut self, ty: Type, narrow: bool) {
        let mut value = self.pop();
        if narrow {
            value = self.builder.ins().ireduce(ty, value);
        }
        let address = self.block_address(ty.bytes());
        let flags = self.flags(Region::Exchange);
        self.builder.ins().store(flags, value, address, 0);
    }
}
