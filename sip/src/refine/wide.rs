//! Indices that loops carry are carried in 64 bits. Cranelift knows that what a 32-bit instruction makes has a clear upper
//! half, but not what a block's parameter has, and so it widens each of them again at each access.

use super::{Ways, calls, constant, sum};
use alloc::vec::Vec;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::{
    Block, BlockArg, Function, Inst, InstBuilder, InstructionData, Opcode, Value, ValueDef, types,
};
use hashbrown::{HashMap, HashSet};

/// Widens the parameters of blocks that index memory, and what is passed for them.
pub(super) fn widen(function: &mut Function, ways: &Ways) {
    let checked = checked(function);
    let wanted = wanted(function, ways, &checked);
    let mut wide = Wide(HashMap::new());
    for (block, _, param) in &wanted {
        let new = function.dfg.replace_block_param(*param, types::I64);
        let mut cursor = FuncCursor::new(function).at_first_insertion_point(*block);
        cursor.ins().with_result(*param).ireduce(types::I32, new);
        wide.0.insert(*param, new);
    }
    for (block, number, _) in &wanted {
        for branch in ways.to(*block) {
            pass(function, &mut wide, *branch, *block, *number);
        }
    }
    let blocks: Vec<Block> = function.layout.blocks().collect();
    for block in blocks {
        let mut next = function.layout.first_inst(block);
        while let Some(inst) = next {
            next = function.layout.next_inst(inst);
            let Some(value) = extended(function, inst).filter(|_| !checked.contains(&inst)) else {
                continue;
            };
            if !wide.0.contains_key(&value) && !is_load(function, value) {
                continue;
            }
            let new = wide.of(function, value);
            let result = function.dfg.first_result(inst);
            if result != new {
                function.dfg.detach_inst_results(inst);
                function.dfg.change_to_alias(result, new);
                function.layout.remove_inst(inst);
            }
        }
    }
}

/// What makes the numbers that are compared with a length (a trap follows), extensions among them. Those stay where they are: the number that is
/// compared must be the index, and the verifier knows both for the same because one instruction made them.
fn checked(function: &Function) -> HashSet<Inst> {
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
            found.extend(super::maker(function, value).map(|(inst, _)| inst));
        }
    }
    found
}

/// Makes each 64-bit nought that a branch passes from a 32-bit one.
///
/// Cranelift makes a nought by `xor` of an uninitialised register with itself. If it has no register to spare it copies that
/// register, and then the verifier sees a `xor` of two unknown numbers. Of 32 bits the result is an index all the same,
/// because the upper half is clear; of 64 bits it could be anything. What loops carry ([`widen`]) often begins with nought.
/// Behind the optimizer, which would make one constant of both instructions again.
pub(super) fn noughts(function: &mut Function) {
    let last = |block| function.layout.last_inst(block);
    let branches: Vec<Inst> = function.layout.blocks().filter_map(last).collect();
    for branch in branches {
        let count = calls(function, branch).len();
        if !(0..count).any(|which| args(function, branch, which).contains(&None)) {
            continue;
        }
        let mut cursor = FuncCursor::new(function).at_inst(branch);
        cursor.use_srcloc(branch);
        let word = cursor.ins().iconst(types::I32, 0);
        let wide = cursor.ins().uextend(types::I64, word);
        for which in 0..count {
            let mut new = args(function, branch, which).into_iter();
            let dfg = &mut function.dfg;
            let calls = dfg.insts[branch].branch_destination_mut(&mut dfg.jump_tables, &mut dfg.exception_tables);
            calls[which].update_args(&mut dfg.value_lists, |_| {
                new.next().flatten().unwrap_or(BlockArg::Value(wide))
            });
        }
    }
}

/// The arguments that a branch passes one of its ways; nothing for a 64-bit nought.
fn args(function: &Function, branch: Inst, which: usize) -> Vec<Option<BlockArg>> {
    let is_nought = |value: Value| function.dfg.value_type(value) == types::I64 && constant(function, value) == Some(0);
    let args = calls(function, branch)[which].args(&function.dfg.value_lists);
    args.map(|arg| (!arg.as_value().is_some_and(is_nought)).then_some(arg))
        .collect()
}

/// The value that an instruction extends from 32 to 64 bits, if it does that.
fn extended(function: &Function, inst: Inst) -> Option<Value> {
    let InstructionData::Unary {
        opcode: Opcode::Uextend,
        arg,
    } = function.dfg.insts[inst]
    else {
        return None;
    };
    let value = function.dfg.resolve_aliases(arg);
    let result = function.dfg.first_result(inst);
    let right = function.dfg.value_type(value) == types::I32 && function.dfg.value_type(result) == types::I64;
    right.then_some(value)
}

/// Whether a value is loaded from memory, as it is or from fewer bits.
fn is_load(function: &Function, value: Value) -> bool {
    let Some(inst) = function.dfg.value_def(value).inst() else {
        return false;
    };
    matches!(
        function.dfg.insts[inst].opcode(),
        Opcode::Load | Opcode::Uload8 | Opcode::Uload16
    )
}

/// The parameters that are extended, and the parameters that are passed for them.
fn wanted(function: &Function, ways: &Ways, checked: &HashSet<Inst>) -> Vec<(Block, usize, Value)> {
    let entry = function.layout.entry_block();
    let carried = |value: Value| match function.dfg.value_def(value) {
        ValueDef::Param(block, number) if Some(block) != entry => Some((block, number, value)),
        _ => None,
    };
    let mut wanted: Vec<(Block, usize, Value)> = Vec::new();
    let mut seen = HashSet::new();
    let insts = function
        .layout
        .blocks()
        .flat_map(|block| function.layout.block_insts(block));
    wanted.extend(
        insts
            .filter(|inst| !checked.contains(inst))
            .filter_map(|inst| carried(extended(function, inst)?))
            .filter(|param| seen.insert(param.2)),
    );
    let mut at = 0;
    while let Some((block, number, _)) = wanted.get(at).copied() {
        at += 1;
        for branch in ways.to(block) {
            let more = super::passed(function, *branch, block, number).filter_map(carried);
            wanted.extend(more.filter(|param| seen.insert(param.2)));
        }
    }
    wanted
}

/// Passes the widened value for a parameter.
fn pass(function: &mut Function, wide: &mut Wide, branch: Inst, block: Block, number: usize) {
    for which in 0..calls(function, branch).len() {
        let call = calls(function, branch)[which];
        let pool = &function.dfg.value_lists;
        if call.block(pool) != block {
            continue;
        }
        let Some(value) = call.args(pool).nth(number).and_then(|arg| arg.as_value()) else {
            continue;
        };
        let value = function.dfg.resolve_aliases(value);
        if function.dfg.value_type(value) == types::I64 {
            continue;
        }
        let new = wide.of(function, value);
        let dfg = &mut function.dfg;
        let calls = dfg.insts[branch].branch_destination_mut(&mut dfg.jump_tables, &mut dfg.exception_tables);
        let mut at = 0;
        calls[which].update_args(&mut dfg.value_lists, |arg| {
            at += 1;
            if at == number + 1 { BlockArg::Value(new) } else { arg }
        });
    }
}

/// Values and what they are widened.
struct Wide(HashMap<Value, Value>);

impl Wide {
    /// A value in 64 bits, made where it is made itself.
    fn of(&mut self, function: &mut Function, value: Value) -> Value {
        if let Some(known) = self.0.get(&value) {
            return *known;
        }
        let inst = function.dfg.value_def(value).inst();
        let new = if let Some(inst) = inst {
            Self::made(function, value, inst)
        } else {
            let block = function.dfg.value_def(value).unwrap_block();
            let mut cursor = FuncCursor::new(function).at_first_insertion_point(block);
            cursor.ins().uextend(types::I64, value)
        };
        self.0.insert(value, new);
        new
    }

    fn made(function: &mut Function, value: Value, inst: Inst) -> Value {
        let mut cursor = FuncCursor::new(function).at_inst(inst);
        cursor.use_srcloc(inst);
        let loaded = match cursor.func.dfg.insts[inst] {
            InstructionData::Load {
                opcode: opcode @ (Opcode::Load | Opcode::Uload8 | Opcode::Uload16),
                arg,
                flags,
                offset,
            } => {
                let flags = cursor.func.dfg.mem_flags[flags];
                Some(match opcode {
                    Opcode::Load => cursor.ins().uload32(flags, arg, offset),
                    Opcode::Uload8 => cursor.ins().uload8(types::I64, flags, arg, offset),
                    _ => cursor.ins().uload16(types::I64, flags, arg, offset),
                })
            }
            InstructionData::UnaryImm {
                opcode: Opcode::Iconst,
                imm,
            } => {
                let wide = i64::from(imm.bits() as u32);
                return cursor.ins().iconst(types::I64, wide);
            }
            _ => None,
        };
        if let Some(loaded) = loaded {
            cursor.func.dfg.detach_inst_results(inst);
            cursor.ins().with_result(value).ireduce(types::I32, loaded);
            function.layout.remove_inst(inst);
            return loaded;
        }
        let mut cursor = FuncCursor::new(function).after_inst(inst);
        cursor.use_srcloc(inst);
        cursor.ins().uextend(types::I64, value)
    }
}
