//! What compiled code asks the runtime to do: memory and table instructions that are more than one
//! access. Arguments arrive widened to 64 bits; those that are `i32` in WebAssembly are below 2³².

use super::asm::Registers;
use super::memory::Element;
use super::{Store, instance::Instance};
use crate::layout::Builtin;
use crate::translate::TrapKind;

type Outcome = Result<u64, TrapKind>;

const ALL: [Builtin; 16] = [
    Builtin::MemoryGrow,
    Builtin::MemoryCopy,
    Builtin::MemoryFill,
    Builtin::MemoryInit,
    Builtin::DataDrop,
    Builtin::TableGet,
    Builtin::TableSet,
    Builtin::TableSize,
    Builtin::TableGrow,
    Builtin::TableFill,
    Builtin::TableCopy,
    Builtin::TableInit,
    Builtin::ElementDrop,
    Builtin::RefFunc,
    Builtin::BlockIn,
    Builtin::BlockOut,
];

pub(super) fn call(
    store: &mut Store,
    instance: &mut Instance,
    builtin: u32,
    registers: &mut Registers,
) -> Result<(), TrapKind> {
    let [_, a, b, c, d, e] = registers.ints;
    registers.ints[0] = match ALL[builtin as usize] {
        Builtin::MemoryGrow => store.memories[instance.memories[a as usize]]
            .grow(b)
            .unwrap_or(u64::from(u32::MAX)),
        Builtin::MemoryCopy => memory_copy(store, instance, [a, b, c, d, e])?,
        Builtin::MemoryFill => {
            let memory = store.memories[instance.memories[a as usize]].bytes_mut();
            part(memory, b, d, TrapKind::MemoryBounds)?.fill(c as u8);
            0
        }
        Builtin::MemoryInit => {
            let module = instance.program.image.module.clone();
            let segment: &[u8] = if instance.dropped_data[b as usize] {
                &[]
            } else {
                &module.data[b as usize].bytes
            };
            let memory = store.memories[instance.memories[a as usize]].bytes_mut();
            init(memory, segment, c, d, e, TrapKind::MemoryBounds)?
        }
        Builtin::DataDrop => {
            instance.dropped_data[a as usize] = true;
            0
        }
        Builtin::TableGet => {
            let table = &store.tables[instance.tables[a as usize]];
            table.elements().get(b as usize).ok_or(TrapKind::TableBounds)?.handle
        }
        Builtin::TableSet => {
            let value = store.element(instance.tables[a as usize], c);
            let table = &mut store.tables[instance.tables[a as usize]];
            *table.elements_mut().get_mut(b as usize).ok_or(TrapKind::TableBounds)? = value;
            0
        }
        Builtin::TableSize => store.tables[instance.tables[a as usize]].length,
        Builtin::TableGrow => {
            let value = store.element(instance.tables[a as usize], b);
            store.tables[instance.tables[a as usize]]
                .grow(c, value)
                .unwrap_or(u64::from(u32::MAX))
        }
        Builtin::TableFill => {
            let value = store.element(instance.tables[a as usize], c);
            let table = store.tables[instance.tables[a as usize]].elements_mut();
            part(table, b, d, TrapKind::TableBounds)?.fill(value);
            0
        }
        Builtin::TableCopy => table_copy(store, instance, [a, b, c, d, e])?,
        Builtin::TableInit => table_init(store, instance, a, b, [c, d, e])?,
        Builtin::ElementDrop => {
            instance.elements[a as usize].clear();
            0
        }
        Builtin::RefFunc => instance.function_handles(a as u32),
        Builtin::BlockIn | Builtin::BlockOut => block_copy(store, instance, ALL[builtin as usize], [a, b, c, d])?,
    };
    Ok(())
}

/// Copies between a block and the instance's first memory; nothing is copied if either part is outside.
fn block_copy(
    store: &mut Store,
    instance: &Instance,
    which: Builtin,
    [handle, offset, at, bytes]: [u64; 4],
) -> Outcome {
    let memory = instance.memories.first().ok_or(TrapKind::MemoryBounds)?;
    let memory = store.memories[*memory].bytes_mut();
    let memory = part(memory, at, bytes, TrapKind::MemoryBounds)?;
    let member = store.member.as_mut().ok_or(TrapKind::BlockBounds)?;
    let block = part(member.block_bytes(handle as u32), offset, bytes, TrapKind::BlockBounds)?;
    if which == Builtin::BlockIn {
        block.copy_from_slice(memory);
    } else {
        memory.copy_from_slice(block);
    }
    Ok(0)
}

fn part<T>(whole: &mut [T], at: u64, count: u64, outside: TrapKind) -> Result<&mut [T], TrapKind> {
    let end = at.checked_add(count).ok_or(outside)?;
    whole.get_mut(at as usize..end as usize).ok_or(outside)
}

fn init<T: Copy>(to: &mut [T], from: &[T], at: u64, source: u64, count: u64, outside: TrapKind) -> Outcome {
    let end = source.checked_add(count).ok_or(outside)?;
    let from = from.get(source as usize..end as usize).ok_or(outside)?;
    part(to, at, count, outside)?.copy_from_slice(from);
    Ok(0)
}

fn memory_copy(store: &mut Store, instance: &Instance, [to, from, at, source, count]: [u64; 5]) -> Outcome {
    let outside = TrapKind::MemoryBounds;
    let (to, from) = (instance.memories[to as usize], instance.memories[from as usize]);
    if to == from {
        let memory = store.memories[to].bytes_mut();
        part(memory, source, count, outside)?;
        part(memory, at, count, outside)?;
        memory.copy_within(source as usize..(source + count) as usize, at as usize);
        return Ok(0);
    }
    let [to, from] = store.memories.get_disjoint_mut([to, from]).map_err(|_| outside)?;
    init(to.bytes_mut(), from.bytes(), at, source, count, outside)
}

fn table_copy(store: &mut Store, instance: &Instance, [to, from, at, source, count]: [u64; 5]) -> Outcome {
    let outside = TrapKind::TableBounds;
    let (to, from) = (instance.tables[to as usize], instance.tables[from as usize]);
    if to == from {
        let table = store.tables[to].elements_mut();
        part(table, source, count, outside)?;
        part(table, at, count, outside)?;
        table.copy_within(source as usize..(source + count) as usize, at as usize);
        return Ok(0);
    }
    let [to, from] = store.tables.get_disjoint_mut([to, from]).map_err(|_| outside)?;
    init(to.elements_mut(), from.elements(), at, source, count, outside)
}

pub(super) fn table_init(
    store: &mut Store,
    instance: &Instance,
    table: u64,
    segment: u64,
    [at, source, count]: [u64; 3],
) -> Outcome {
    let outside = TrapKind::TableBounds;
    let handles = &instance.elements[segment as usize];
    let end = source.checked_add(count).ok_or(outside)?;
    let handles = handles.get(source as usize..end as usize).ok_or(outside)?;
    let table = instance.tables[table as usize];
    let elements: alloc::vec::Vec<Element> = handles.iter().map(|handle| store.element(table, *handle)).collect();
    part(store.tables[table].elements_mut(), at, count, outside)?.copy_from_slice(&elements);
    Ok(0)
}
