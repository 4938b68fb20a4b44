//! The bytes of an instance: what the paper's constructor does, as one routine for all modules, driven by the
//! module's tables. It works on a slice and is told addresses, so it is the same on the host, in tests and in
//! a program of the system, where the slice is the data segment itself.
//!
//! In order: get memory for thunks and data (the thunks are the module's own pages, mapped once more);
//! [`instantiate`]; for each import, now or at the first call, [`bind`]; then call the functions of the list
//! [`at_start`]. Cyclic imports need no more than that all instances exist before they are bound. At the end of an instance
//! the functions of [`at_end`] are called, those of importers before those of what they import ([`end_order`]).

use super::fault::{Cause, Fault};
use super::format::{self, Module};
use alloc::vec::Vec;

/// What the code of an instance needs of the task.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Runtime {
    /// The address of its table of instantiated modules.
    pub table: u64,
    /// The address of the routine that lazy stubs call, `binder(data, slot)`.
    pub binder: u64,
    /// The address of the routine that thunks of variadic functions call, `reach(from, words)`: how many of so many words from
    /// an address on can be read. The address is a multiple of 16 in the caller's frame, and the result is even.
    pub reach: u64,
    /// The address of the routine that calls what all instances of a table want called at their end, `end(table)`.
    pub end: u64,
}

/// Writes `value` into the word at byte `at` of the data.
fn put(data: &mut [u8], at: u32, value: u64) {
    let at = at as usize;
    if let Some(word) = data.get_mut(at..at.saturating_add(8)) {
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// Makes the data of an instance at address `at`: template, zero, fix-ups, header. `data` must have
/// [`Module::data_bytes`] bytes; a shorter one is filled as far as it goes. Cost: the template's bytes and the
/// fix-ups (paper, section 4.1, first step).
///
/// `runtime` is stored for the instance's code.
pub fn instantiate(module: &Module<'_>, at: u64, runtime: Runtime, data: &mut [u8]) {
    let template = module.template();
    let split = template.len().min(data.len());
    let (begin, rest) = data.split_at_mut(split);
    begin.copy_from_slice(&template[..split]);
    rest.fill(0);
    finish(module, at, runtime, data);
}

/// The part of [`instantiate`] behind the template: for data that already has its bytes because the pages
/// are copies of the module's.
pub fn finish(module: &Module<'_>, at: u64, runtime: Runtime, data: &mut [u8]) {
    for fixup in module.fixups() {
        let word = crate::elf::long(data, fixup as usize).unwrap_or(0);
        put(data, fixup, word.wrapping_add(at));
    }
    put(data, format::DATA_SELF_AT, at);
    put(data, format::DATA_MODULE_AT, module.address);
    put(data, format::DATA_TABLE_AT, runtime.table);
    put(data, format::DATA_BINDER_AT, runtime.binder);
    put(data, format::DATA_REACH_AT, runtime.reach);
    put(data, format::DATA_END_AT, runtime.end);
}

/// The functions that an instance with this data wants called when it is made, first to last.
pub fn at_start<'a>(module: &Module<'_>, data: &'a [u8]) -> impl DoubleEndedIterator<Item = u64> + 'a {
    functions(data, module.init_at as usize, module.init_count as usize)
}

/// The functions that it wants called at its end, first to last.
pub fn at_end<'a>(module: &Module<'_>, data: &'a [u8]) -> impl Iterator<Item = u64> + 'a {
    let behind = module.init_at as usize + module.init_count as usize * 8;
    functions(data, behind, module.fini_count as usize).rev()
}

fn functions(data: &[u8], at: usize, count: usize) -> impl DoubleEndedIterator<Item = u64> + '_ {
    let words = data.get(at..).unwrap_or_default().as_chunks::<8>().0;
    let words = words.get(..count).unwrap_or_default();
    // Zero and -1 are places that were left empty.
    let all = words.iter().map(|word| u64::from_le_bytes(*word));
    all.filter(|address| *address != 0 && *address != u64::MAX)
}

/// The numbers of instances in the order in which they end: each before those whose modules it imports, but for cycles.
pub fn end_order(modules: &[Module<'_>]) -> Vec<usize> {
    let mut order = Vec::with_capacity(modules.len());
    let mut seen = alloc::vec![false; modules.len()];
    for first in (0..modules.len()).rev() {
        // A path of instances, each with the import of it that is looked at next.
        let mut path = Vec::from([(first, 0)]);
        if core::mem::replace(&mut seen[first], true) {
            continue;
        }
        while let Some((number, next)) = path.last_mut() {
            let module = &modules[*number];
            if *next == module.import_count() {
                order.push(*number);
                path.pop();
                continue;
            }
            let name = module.import(*next).name();
            *next += 1;
            for (other, _) in modules.iter().enumerate().filter(|(_, one)| one.is_named(name)) {
                if !core::mem::replace(&mut seen[other], true) {
                    path.push((other, 0));
                }
            }
        }
    }
    order.reverse();
    order
}

/// Binds import number `index` of `importer` to an instance of `exporter` whose data is at `exporter_data`:
/// fills the descriptor in the importer's `data`, as far as the importer's code uses it, and the words that hold imports. The
/// word of `called`, the export that a lazy stub asks for, is filled whatever the importer's tables say of its code: else the
/// stub would ask for ever.
/// An exporter with more exports than the importer knows is as good (section 4.1). Cost: the exports that are used.
///
/// # Errors
/// If the exporter is not what the importer was linked against: fewer exports, or others.
pub fn bind(
    importer: &Module<'_>,
    data: &mut [u8],
    index: u32,
    exporter: &Module<'_>,
    exporter_data: u64,
    called: Option<u32>,
) -> Result<(), Fault> {
    let import = importer.import(index);
    let wanted = import.count;
    let fault = |cause| Err(Fault::file(importer.name(), cause).about(exporter.name()));
    match exporter.hash(wanted) {
        None => {
            let found = exporter.export_count();
            return fault(Cause::InterfaceShrunk { wanted, found });
        }
        Some(hash) if hash != import.hash => return fault(Cause::InterfaceChanged),
        Some(_) => {}
    }
    // The words that the importer's code names are enough; where it names many, all of them are quicker.
    if importer.wanted_count() < wanted as usize / 4 {
        put(data, import.descriptor, exporter_data);
        for export in importer
            .wanted_of(index)
            .chain(called)
            .filter(|export| *export < wanted)
        {
            put(
                data,
                import.descriptor + 8 + export * 8,
                format::resolve(exporter.value(export), exporter_data),
            );
        }
    } else {
        fill(data, import.descriptor, exporter, wanted, exporter_data);
    }
    for fixup in importer.import_fixups().filter(|fixup| fixup.import == index) {
        // What an inline call leads to is decided by what the exporter has now, with a thunk before it or without.
        let entry = if fixup.entry {
            exporter.entry(fixup.export)
        } else {
            None
        };
        let value = entry.unwrap_or_else(|| format::resolve(exporter.value(fixup.export), exporter_data));
        put(data, fixup.at, value.wrapping_add_signed(fixup.addend));
    }
    Ok(())
}

/// Fills a descriptor: the exporter's data, then `count` words.
fn fill(data: &mut [u8], at: u32, exporter: &Module<'_>, count: u32, exporter_data: u64) {
    put(data, at, exporter_data);
    let first = at as usize + 8;
    let Some(words) = data.get_mut(first..first + count as usize * 8) else {
        return;
    };
    let values = exporter.part(format::Part::Values);
    for (word, value) in words.chunks_exact_mut(8).zip(values.chunks_exact(8)) {
        let value = value.try_into().map_or(0, u64::from_le_bytes);
        word.copy_from_slice(&format::resolve(value, exporter_data).to_le_bytes());
    }
}

/// Binds import number `index` to addresses found by other means, in the order of the exports it was linked
/// against: for a host, whose libraries are not modules. The data's address in the descriptor stays zero, and a function is its
/// own entry.
pub fn bind_foreign(importer: &Module<'_>, data: &mut [u8], index: u32, address: impl Fn(u32) -> u64) {
    let import = importer.import(index);
    for export in 0..import.count {
        put(data, import.descriptor + 8 + export * 8, address(export));
    }
    for fixup in importer.import_fixups().filter(|fixup| fixup.import == index) {
        put(data, fixup.at, address(fixup.export).wrapping_add_signed(fixup.addend));
    }
}
