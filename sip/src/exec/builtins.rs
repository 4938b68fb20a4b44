//! The requests of compiled code to the runtime: memory and table instructions that are more than one
//! access. Arguments arrive widened to 64 bits. Of compiled WebAssembly those that are `i32` are below 2³² and indices
//! name something; of machine code that somebody wrote they are whatever its registers held, and every one is checked.

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
        Builtin::MemoryGrow => store.memories[memory(instance, a)?]
            .grow(b)
            .unwrap_or(u64::from(u32::MAX)),
        Builtin::MemoryCopy => memory_copy(store, instance, [a, b, c, d, e])?,
        Builtin::MemoryFill => {
            let memory = store.memories[memory(instance, a)?].bytes_mut();
            part(memory, b, d, TrapKind::MemoryBounds)?.fill(c as u8);
            0
        }
        Builtin::MemoryInit => {
            let module = instance.program.image.module.clone();
            let data = module.data.get(b as usize).ok_or(TrapKind::MemoryBounds)?;
            let segment: &[u8] = if instance.dropped_data[b as usize] {
                &[]
            } else {
                &data.bytes
            };
            let memory = store.memories[memory(instance, a)?].bytes_mut();
            init(memory, segment, c, d, e, TrapKind::MemoryBounds)?
        }
        Builtin::DataDrop => {
            *instance
                .dropped_data
                .get_mut(a as usize)
                .ok_or(TrapKind::MemoryBounds)? = true;
            0
        }
        Builtin::TableGet => {
            let table = &store.tables[table(instance, a)?];
            table.elements().get(b as usize).ok_or(TrapKind::TableBounds)?.handle
        }
        Builtin::TableSet => {
            let table = table(instance, a)?;
            let value = store.element(table, c);
            let elements = store.tables[table].elements_mut();
            *elements.get_mut(b as usize).ok_or(TrapKind::TableBounds)? = value;
            0
        }
        Builtin::TableSize => store.tables[table(instance, a)?].length,
        Builtin::TableGrow => {
            let table = table(instance, a)?;
            let value = store.element(table, b);
            store.tables[table].grow(c, value).unwrap_or(u64::from(u32::MAX))
        }
        Builtin::TableFill => {
            let table = table(instance, a)?;
            let value = store.element(table, c);
            part(store.tables[table].elements_mut(), b, d, TrapKind::TableBounds)?.fill(value);
            0
        }
        Builtin::TableCopy => table_copy(store, instance, [a, b, c, d, e])?,
        Builtin::TableInit => table_init(store, instance, a, b, [c, d, e])?,
        Builtin::ElementDrop => {
            instance
                .elements
                .get_mut(a as usize)
                .ok_or(TrapKind::TableBounds)?
                .clear();
            0
        }
        Builtin::RefFunc => {
            let functions = instance.program.image.module.functions.len();
            if a >= functions as u64 {
                return Err(TrapKind::TableBounds);
            }
            instance.function_handles(a as u32)
        }
        Builtin::BlockIn | Builtin::BlockOut => block_copy(store, instance, ALL[builtin as usize], [a, b, c, d])?,
    };
    Ok(())
}

/// Which of the store's memories the instance knows by a number, if any.
fn memory(instance: &Instance, number: u64) -> Result<usize, TrapKind> {
    let found = instance.memories.get(number as usize);
    found.copied().ok_or(TrapKind::MemoryBounds)
}

/// Which of the store's tables the instance knows by a number, if any.
fn table(instance: &Instance, number: u64) -> Result<usize, TrapKind> {
    let found = instance.tables.get(number as usize);
    found.copied().ok_or(TrapKind::TableBounds)
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
    let (to, from) = (memory(instance, to)?, memory(instance, from)?);
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
    let (to, from) = (table(instance, to)?, table(instance, from)?);
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
    number: u64,
    segment: u64,
    [at, source, count]: [u64; 3],
) -> Outcome {
    let outside = TrapKind::TableBounds;
    let handles = instance.elements.get(segment as usize).ok_or(outside)?;
    let end = source.checked_add(count).ok_or(outside)?;
    let handles = handles.get(source as usize..end as usize).ok_or(outside)?;
    let table = table(instance, number)?;
    let elements: alloc::vec::Vec<Element> = handles.iter().map(|handle| store.element(table, *handle)).collect();
    part(store.tables[table].elements_mut(), at, count, outside)?.copy_from_slice(&elements);
    Ok(0)
}
