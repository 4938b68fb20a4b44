//! Indices that the verifier must have a name for.
//!
//! The number compared with a length must be the index, and the verifier knows them for the same by the name of the
//! instruction that made them. A number that a loop carries has the name of an instruction of the turn before; if that
//! instruction is executed again before the number is compared, the name means the new number and the old one has none.
//! Such a number gets a name by an instruction that changes nothing: a difference with nought.

use super::after::Uses;
use super::{Ways, constant, passed, sum};
use alloc::vec::Vec;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::{Block, Function, Inst, InstBuilder, InstructionData, Opcode, Value, ValueDef, types};
use hashbrown::HashSet;

/// Blocks and values that are looked at for one index; if there are more, it gets a name.
const NEAR: usize = 64;

/// The extensions whose results are compared with a length: a trap follows.
pub(super) fn checked(function: &Function) -> HashSet<Inst> {
    let insts = function
        .layout
        .blocks()
        .flat_map(|block| function.layout.block_insts(block));
    let mut found = HashSet::new();
    for inst in insts {
        let InstructionData::CondTrap { arg, .. } = function.dfg.insts[inst] else {
            continue;
        };
        let Some((_, InstructionData::IntCompare { args, .. })) = super::maker(function, arg) else {
            continue;
        };
        for arg in args {
            let mut value = function.dfg.resolve_aliases(*arg);
            while let Some((rest, _)) = sum(function, value) {
                value = rest;
            }
            let extension = super::maker(function, value).map(|(inst, _)| inst);
            found.extend(extension.filter(|inst| narrow(function, *inst).is_some()));
        }
    }
    found
}

/// Names what an optimized function compares with lengths, and chooses by, where it had no name.
pub(super) fn name(function: &mut Function, ways: &Ways) {
    let mut extensions: Vec<Inst> = checked(function).into_iter().collect();
    extensions.sort_unstable();
    let uses = if extensions.is_empty() {
        None
    } else {
        Some(Uses::new(function))
    };
    for inst in extensions {
        let used = uses.as_ref().map_or_else(Vec::new, |uses| users(function, uses, inst));
        let Some(value) = narrow(function, inst).filter(|value| is_stale(function, ways, *value, &used)) else {
            continue;
        };
        let word = anew(function, inst, value);
        let result = function.dfg.first_result(inst);
        function.dfg.detach_inst_results(inst);
        let mut cursor = FuncCursor::new(function).at_inst(inst);
        cursor.use_srcloc(inst);
        cursor.ins().with_result(result).uextend(types::I64, word);
        function.layout.remove_inst(inst);
    }
    let last = |block| function.layout.last_inst(block);
    let branches: Vec<Inst> = function.layout.blocks().filter_map(last).collect();
    for inst in branches {
        let InstructionData::BranchTable { arg, .. } = function.dfg.insts[inst] else {
            continue;
        };
        if is_stale(function, ways, arg, &[inst]) {
            let word = anew(function, inst, arg);
            if let InstructionData::BranchTable { arg, .. } = &mut function.dfg.insts[inst] {
                *arg = word;
            }
        }
    }
}

/// An extension, and all that compares with its result or accesses memory by it.
fn users(function: &Function, uses: &Uses, extension: Inst) -> Vec<Inst> {
    let mut found = alloc::vec![extension];
    let mut next = 0;
    while let Some(inst) = found.get(next).copied() {
        next += 1;
        let goes_on = next == 1
            || matches!(
                function.dfg.insts[inst].opcode(),
                Opcode::Iadd | Opcode::Ishl | Opcode::Icmp
            );
        let results = function.dfg.inst_results(inst).iter().filter(|_| goes_on);
        for user in results.flat_map(|result| uses.of(*result)) {
            if !found.contains(user) && found.len() < NEAR {
                found.push(*user);
            }
        }
    }
    found
}

/// The number itself, made by an instruction of its own before this one.
fn anew(function: &mut Function, inst: Inst, value: Value) -> Value {
    let mut cursor = FuncCursor::new(function).at_inst(inst);
    cursor.use_srcloc(inst);
    let word = match cursor.func.dfg.value_type(value) {
        types::I64 => cursor.ins().ireduce(types::I32, value),
        _ => value,
    };
    let nought = cursor.ins().iconst(types::I32, 0);
    cursor.ins().isub(word, nought)
}

/// Of what an instruction takes the lower half, with the upper half clear: an extension of 32 bits, or a mask.
fn narrow(function: &Function, inst: Inst) -> Option<Value> {
    let result = *function.dfg.inst_results(inst).first()?;
    if function.dfg.value_type(result) != types::I64 {
        return None;
    }
    match function.dfg.insts[inst] {
        InstructionData::Unary {
            opcode: Opcode::Uextend,
            arg,
        } if function.dfg.value_type(arg) == types::I32 => Some(arg),
        InstructionData::Binary {
            opcode: Opcode::Band,
            args: [value, mask],
        } if constant(function, mask) == Some(u64::from(u32::MAX)) => Some(value),
        _ => None,
    }
}

/// From what a value is made so that it may go by the same name: its parts and extensions, sums with constants, shifts.
fn origin(function: &Function, value: Value) -> Option<Value> {
    match super::maker(function, value)?.1 {
        InstructionData::Unary {
            opcode: Opcode::Uextend | Opcode::Ireduce,
            arg,
        } => Some(*arg),
        InstructionData::Binary {
            opcode: Opcode::Iadd | Opcode::Isub | Opcode::Ishl | Opcode::Band,
            args: [a, b],
        } if constant(function, *a).is_none() => constant(function, *b).map(|_| *a),
        InstructionData::Binary {
            opcode: Opcode::Iadd | Opcode::Band,
            args: [_, b],
        } => Some(*b),
        _ => None,
    }
    .map(|value| function.dfg.resolve_aliases(value))
}

/// Whether an instruction that made a number which a block got can be executed again between the block and one of these uses.
fn is_stale(function: &Function, ways: &Ways, value: Value, uses: &[Inst]) -> bool {
    let carried = |value: Value| match function.dfg.value_def(value) {
        ValueDef::Param(block, number) if !ways.to(block).is_empty() => Some((block, number)),
        _ => None,
    };
    let mut value = function.dfg.resolve_aliases(value);
    while let Some(from) = origin(function, value) {
        value = from;
    }
    let Some((from, _)) = carried(value) else { return false };
    if uses.len() >= NEAR {
        return true;
    }
    let mut values = alloc::vec![value];
    let mut next = 0;
    while let Some(value) = values.get(next).copied() {
        next += 1;
        if values.len() > NEAR {
            return true;
        }
        if let Some((block, number)) = carried(value) {
            if ways.to(block).len() > NEAR {
                return true;
            }
            for way in ways.to(block) {
                for value in passed(function, *way, block, number) {
                    if !values.contains(&value) {
                        values.push(value);
                    }
                }
            }
        } else if let Some((made, _)) = super::maker(function, value) {
            if leads(function, made, from, uses) {
                return true;
            }
            values.extend(origin(function, value).filter(|value| !values.contains(value)));
        }
    }
    false
}

/// Whether a way leads from an instruction to one of others, not through the block `around`.
fn leads(function: &Function, made: Inst, around: Block, to: &[Inst]) -> bool {
    let Some(block) = function.layout.inst_block(made) else {
        return false;
    };
    let within = |block: Block| {
        let all = to.iter().copied();
        all.filter(move |inst| function.layout.inst_block(*inst) == Some(block))
    };
    if within(block).any(|inst| function.layout.pp_cmp(made, inst).is_lt()) {
        return true;
    }
    let mut seen: Vec<Block> = Vec::new();
    let mut open = alloc::vec![block];
    while let Some(block) = open.pop() {
        let Some(last) = function.layout.last_inst(block) else {
            continue;
        };
        let calls = super::calls(function, last);
        if calls.len() > NEAR {
            return true;
        }
        for call in calls {
            let next = call.block(&function.dfg.value_lists);
            if next == around || seen.contains(&next) {
                continue;
            }
            if within(next).next().is_some() || seen.len() >= NEAR {
                return true;
            }
            seen.push(next);
            open.push(next);
        }
    }
    false
}
