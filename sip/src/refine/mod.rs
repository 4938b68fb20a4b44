//! Knowledge of numbers, put to use between the translator and Cranelift.
//!
//! WebAssembly computes addresses in 32 bits, which wrap, and the machine in 64, which do not. Taken literally that costs an
//! instruction for each constant offset that a program adds itself, and one for each index that is widened; and compilers
//! for WebAssembly leave masks and comparisons that the machine does better otherwise. So, function by function:
//!
//! 1. [`range`] finds in which range each integer lies, with the trip counts of loops that count;
//! 2. offsets whose addition cannot wrap go into the access ([`fold`]), masks that change nothing go away;
//! 3. a loop that compares its counter before the step compares it behind ([`rotate`]), so that only one of both lives;
//! 4. values that loops carry and index memory with are carried widened ([`wide`]).
//!
//! Nothing here is trusted: what it gets wrong gives wrong results or code that is not proved, as with any part of a
//! compiler.

mod after;
mod range;
mod wide;

pub(crate) use after::after;

use crate::compile::Bounds;
use alloc::vec::Vec;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::{
    Block, Function, Inst, InstBuilder, InstructionData, Opcode, Value, condcodes::CondCode, condcodes::IntCC, types,
};
use hashbrown::{HashMap, HashSet};
use range::Ranges;

/// An access of memory as the translator made it.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    /// The extension of the index, which only this access uses.
    pub index: Inst,
    /// The address: base and index.
    pub address: Value,
    /// The static offset.
    pub offset: i32,
    /// The greatest static offset that may be added without another check.
    pub room: i32,
}

/// A loop: its header and the jump that enters it. All other ways to the header lead around.
#[derive(Clone, Copy)]
pub(crate) struct Loop {
    pub header: Block,
    pub entry: Inst,
}

/// A comparison with more instructions than that behind it in the loop stays as it is: the counter is needed there.
const BELOW: usize = 4;

/// Improves a function.
pub(crate) fn refine(function: &mut Function, bounds: Bounds, accesses: &[Access], loops: &[Loop]) {
    if is_large(function) {
        return;
    }
    let ways = Ways::new(function);
    for around in loops {
        unify(function, &ways, *around);
    }
    let ranges = Ranges::new(function, &ways, loops);
    for around in loops {
        rotate(function, &ways, *around);
    }
    fold(function, &ranges, accesses);
    drop_masks(function, &ranges);
    compare_bytes(function, &ranges);
    // With comparisons the verifier must see that what is compared is what indexes, which a copy for each access shows.
    if bounds == Bounds::Guard {
        wide::widen(function, &ways);
    }
}

/// Blocks that are looked at upwards from the end of a loop.
const CHAIN: usize = 16;
/// A function that carries more values into one block stays as it is: the time for it would grow with their square.
const PARAMETERS: usize = 128;
/// Loops that carry more are not searched for pairs.
const UNIFIED: usize = 24;

fn is_large(function: &Function) -> bool {
    let mut blocks = function.layout.blocks();
    blocks.any(|block| function.dfg.num_block_params(block) > PARAMETERS)
}

/// The branches that lead to each block.
struct Ways(HashMap<Block, Vec<Inst>>);

impl Ways {
    fn new(function: &Function) -> Self {
        let mut ways: HashMap<Block, Vec<Inst>> = HashMap::new();
        for block in function.layout.blocks() {
            let Some(last) = function.layout.last_inst(block) else {
                continue;
            };
            for call in calls(function, last) {
                let to = call.block(&function.dfg.value_lists);
                let list = ways.entry(to).or_default();
                if list.last() != Some(&last) {
                    list.push(last);
                }
            }
        }
        Self(ways)
    }

    fn to(&self, block: Block) -> &[Inst] {
        self.0.get(&block).map_or(&[], Vec::as_slice)
    }
}

/// The destinations of a branch.
fn calls(function: &Function, branch: Inst) -> &[cranelift_codegen::ir::BlockCall] {
    let data = &function.dfg.insts[branch];
    if data.opcode().is_branch() {
        data.branch_destination(&function.dfg.jump_tables, &function.dfg.exception_tables)
    } else {
        &[]
    }
}

/// The value that a branch passes for the parameter with this number, once for each of its ways to the block.
fn passed(function: &Function, branch: Inst, block: Block, number: usize) -> impl Iterator<Item = Value> {
    let pool = &function.dfg.value_lists;
    calls(function, branch)
        .iter()
        .filter(move |call| call.block(pool) == block)
        .filter_map(move |call| call.args(pool).nth(number)?.as_value())
        .map(|value| function.dfg.resolve_aliases(value))
}

/// The value that a branch passes for the parameter, if it has one way to the block only.
fn sole(function: &Function, branch: Inst, block: Block, number: usize) -> Option<Value> {
    let mut values = passed(function, branch, block, number);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// The instruction that makes a value.
fn maker(function: &Function, value: Value) -> Option<(Inst, &InstructionData)> {
    let value = function.dfg.resolve_aliases(value);
    let inst = function.dfg.value_def(value).inst()?;
    Some((inst, &function.dfg.insts[inst]))
}

/// A constant, as an unsigned number of its width.
fn constant(function: &Function, value: Value) -> Option<u64> {
    match maker(function, value)?.1 {
        InstructionData::UnaryImm {
            opcode: Opcode::Iconst,
            imm,
        } => Some(imm.bits().cast_unsigned() & range::mask(function, value)),
        _ => None,
    }
}

/// A sum of a value and a constant.
fn sum(function: &Function, value: Value) -> Option<(Value, u64)> {
    let (
        _,
        InstructionData::Binary {
            opcode: Opcode::Iadd,
            args: [a, b],
        },
    ) = maker(function, value)?
    else {
        return None;
    };
    let of = |value: &Value| function.dfg.resolve_aliases(*value);
    if let Some(by) = constant(function, *b) {
        return Some((of(a), by));
    }
    constant(function, *a).map(|by| (of(b), by))
}

/// A value as `root` plus a constant, if it is that.
fn steps_from(function: &Function, mut value: Value, root: Value) -> Option<u64> {
    let mask = range::mask(function, root);
    let mut by = 0u64;
    for _ in 0..8 {
        value = function.dfg.resolve_aliases(value);
        if value == root {
            return Some(by & mask);
        }
        let (rest, more) = sum(function, value)?;
        value = rest;
        by = by.wrapping_add(more);
    }
    None
}

/// A comparison that holds whenever a loop goes round.
struct Test {
    /// The comparison, or what is no comparison and not nought.
    inst: Option<Inst>,
    code: IntCC,
    left: Value,
    /// The constant on its right.
    right: u64,
    /// Instructions between it and the way back.
    below: usize,
}

/// The value whose truth is meant, whether what is meant is that it is false: without extensions and comparisons of a
/// truth with nought.
fn truth(function: &Function, mut value: Value) -> (Value, bool) {
    let mut inverted = false;
    loop {
        value = function.dfg.resolve_aliases(value);
        match maker(function, value) {
            Some((
                _,
                InstructionData::Unary {
                    opcode: Opcode::Uextend,
                    arg,
                },
            )) => value = *arg,
            Some((
                _,
                InstructionData::IntCompare {
                    cond: IntCC::Equal,
                    args: [of, zero],
                    ..
                },
            )) if constant(function, *zero) == Some(0) && is_truth(function, *of) => {
                inverted = !inverted;
                value = *of;
            }
            _ => return (value, inverted),
        }
    }
}

/// Whether a value is an extended comparison.
fn is_truth(function: &Function, value: Value) -> bool {
    match maker(function, value) {
        Some((_, InstructionData::IntCompare { .. } | InstructionData::FloatCompare { .. })) => true,
        Some((
            _,
            InstructionData::Unary {
                opcode: Opcode::Uextend,
                arg,
            },
        )) => is_truth(function, *arg),
        _ => false,
    }
}

/// The comparisons with constants on the only way from a loop's last block back, the nearest first, as they are when the
/// loop goes round; none if there are several ways around.
fn tests(function: &Function, ways: &Ways, around: Loop) -> Vec<Test> {
    let mut tests = Vec::new();
    let back: Vec<Inst> = ways
        .to(around.header)
        .iter()
        .copied()
        .filter(|way| *way != around.entry)
        .collect();
    let [mut branch] = back[..] else { return tests };
    let mut to = around.header;
    let mut below = 0;
    for _ in 0..CHAIN {
        if let InstructionData::Brif { arg, blocks, .. } = &function.dfg.insts[branch] {
            let [yes, no] = blocks
                .each_ref()
                .map(|call| call.block(&function.dfg.value_lists) == to);
            if yes != no {
                tests.extend(test(function, *arg, yes, below));
            }
        }
        let Some(block) = function.layout.inst_block(branch) else {
            break;
        };
        if block == around.header {
            break;
        }
        below += function.layout.block_insts(block).take(BELOW + 1).count();
        let [before] = ways.to(block) else { break };
        (branch, to) = (*before, block);
    }
    tests
}

/// The facts that hold where a condition is `holds`.
fn test(function: &Function, condition: Value, holds: bool, below: usize) -> Option<Test> {
    let (value, inverted) = truth(function, condition);
    let holds = holds != inverted;
    let test = match maker(function, value) {
        Some((inst, InstructionData::IntCompare { cond, args, .. })) => {
            let code = if holds { *cond } else { cond.complement() };
            let [left, right] = args.map(|arg| function.dfg.resolve_aliases(arg));
            Test {
                inst: Some(inst),
                code,
                left,
                right: constant(function, right)?,
                below,
            }
        }
        Some((_, InstructionData::FloatCompare { .. })) => return None,
        _ => Test {
            inst: None,
            code: if holds { IntCC::NotEqual } else { IntCC::Equal },
            left: value,
            right: 0,
            below,
        },
    };
    Some(test)
}

/// A loop that counts to a constant and goes on while its counter is another number goes on while the counter behind the
/// step is below it, or above it. As an equality Cranelift would compare the counter before the step, and both would live.
fn rotate(function: &mut Function, ways: &Ways, around: Loop) {
    let Some(back) = ways.to(around.header).iter().copied().find(|way| *way != around.entry) else {
        return;
    };
    let found = tests(function, ways, around).into_iter().find_map(|test| {
        let inst = test
            .inst
            .filter(|_| test.code == IntCC::NotEqual && test.below <= BELOW)?;
        let params = function.dfg.block_params(around.header).iter().enumerate();
        let mut turning = params.filter_map(|(number, param)| {
            let step = steps_from(function, sole(function, back, around.header, number)?, *param)?;
            let behind = steps_from(function, test.left, *param)?;
            let first = constant(function, sole(function, around.entry, around.header, number)?)?;
            Some((
                *param,
                step,
                range::limit(first, step, behind, test.right, range::mask(function, *param))?,
            ))
        });
        Some((inst, turning.next_back()?))
    });
    let Some((inst, (param, step, (limit, up)))) = found else {
        return;
    };
    let ty = function.dfg.value_type(param);
    let mut cursor = FuncCursor::new(function).at_inst(inst);
    cursor.use_srcloc(inst);
    let step = cursor.ins().iconst(ty, step.cast_signed());
    let next = cursor.ins().iadd(param, step);
    let limit = cursor.ins().iconst(ty, limit.cast_signed());
    if let InstructionData::IntCompare { args, cond, .. } = &mut function.dfg.insts[inst] {
        *args = [next, limit];
        *cond = match (*cond, up) {
            (IntCC::NotEqual, true) => IntCC::UnsignedLessThan,
            (IntCC::NotEqual, false) => IntCC::UnsignedGreaterThan,
            (_, true) => IntCC::UnsignedGreaterThanOrEqual,
            (_, false) => IntCC::UnsignedLessThanOrEqual,
        };
    }
}

/// Of two numbers that a loop carries and that always differ by the same, keeps one.
fn unify(function: &mut Function, ways: &Ways, around: Loop) {
    let params: Vec<Value> = function.dfg.block_params(around.header).to_vec();
    if params.len() > UNIFIED {
        return;
    }
    let (mut gone, mut unneeded) = (HashSet::new(), Vec::new());
    for (kept, first) in params.iter().enumerate() {
        for (number, second) in params.iter().enumerate() {
            let ty = function.dfg.value_type(*first);
            let apart = number == kept || gone.contains(&number) || gone.contains(&kept);
            if apart || !matches!(ty, types::I32 | types::I64) || ty != function.dfg.value_type(*second) {
                continue;
            }
            let Some(by) = differ(function, ways, around, kept, number) else {
                continue;
            };
            gone.insert(number);
            let mut cursor = FuncCursor::new(function).at_first_insertion_point(around.header);
            let unused = cursor.func.dfg.replace_block_param(*second, ty);
            let by = cursor.ins().iconst(ty, by.cast_signed());
            cursor.ins().with_result(*second).iadd(*first, by);
            unneeded.push((number, unused));
        }
    }
    unneeded.sort_unstable_by_key(|(number, _)| core::cmp::Reverse(*number));
    for (number, param) in unneeded {
        function.dfg.remove_block_param(param);
        for way in ways.to(around.header) {
            let dfg = &mut function.dfg;
            let calls = dfg.insts[*way].branch_destination_mut(&mut dfg.jump_tables, &mut dfg.exception_tables);
            for call in calls {
                if call.block(&dfg.value_lists) == around.header {
                    call.remove(number, &mut dfg.value_lists);
                }
            }
        }
    }
}

/// By how much the second of two parameters is greater, if it always is.
fn differ(function: &Function, ways: &Ways, around: Loop, first: usize, second: usize) -> Option<u64> {
    let params = function.dfg.block_params(around.header);
    let (a, b) = (params[first], params[second]);
    let mask = range::mask(function, a);
    let passed = |number: usize, way: Inst| sole(function, way, around.header, number);
    let by = {
        let (x, y) = (passed(first, around.entry)?, passed(second, around.entry)?);
        match (constant(function, x), constant(function, y)) {
            (Some(x), Some(y)) => y.wrapping_sub(x) & mask,
            _ => apart(function, x, y)?,
        }
    };
    for way in ways.to(around.header).iter().filter(|way| **way != around.entry) {
        let (x, y) = (passed(first, *way)?, passed(second, *way)?);
        let along = steps_from(function, x, a).zip(steps_from(function, y, b));
        let right = along.is_some_and(|(x, y)| x == y) || apart(function, x, y) == Some(by);
        if !right {
            return None;
        }
    }
    Some(by)
}

/// By how much `b` is greater than `a`, where both are sums of one number and constants.
fn apart(function: &Function, a: Value, b: Value) -> Option<u64> {
    let mask = range::mask(function, a);
    let mut root = a;
    let mut back = 0u64;
    for _ in 0..4 {
        if let Some(by) = steps_from(function, b, root) {
            return Some(by.wrapping_sub(back) & mask);
        }
        let (rest, more) = sum(function, root)?;
        (root, back) = (rest, back.wrapping_add(more));
    }
    None
}

/// Puts constants that are added to an index without wrapping into the accesses.
fn fold(function: &mut Function, ranges: &Ranges, accesses: &[Access]) {
    let mut users: HashMap<Value, Vec<Inst>> = accesses.iter().map(|access| (access.address, Vec::new())).collect();
    for block in function.layout.blocks() {
        for inst in function.layout.block_insts(block) {
            for value in function.dfg.inst_values(inst) {
                if let Some(list) = users.get_mut(&function.dfg.resolve_aliases(value)) {
                    list.push(inst);
                }
            }
        }
    }
    for access in accesses {
        let InstructionData::Unary { arg, .. } = function.dfg.insts[access.index] else {
            continue;
        };
        let (mut index, mut offset) = (function.dfg.resolve_aliases(arg), access.offset);
        while let Some((rest, by)) = sum(function, index) {
            let all = i64::from(offset) + by.cast_signed();
            let Some(all) = i32::try_from(all).ok().filter(|all| *all <= access.room) else {
                break;
            };
            if ranges.known(function, rest).high + by > u64::from(u32::MAX) {
                break;
            }
            (index, offset) = (rest, all);
        }
        let users = &users[&access.address];
        let plain = |inst: &Inst| {
            matches!(
                &function.dfg.insts[*inst],
                InstructionData::Load { .. } | InstructionData::Store { .. }
            )
        };
        if offset == access.offset || !users.iter().all(plain) {
            continue;
        }
        for user in users {
            match &mut function.dfg.insts[*user] {
                InstructionData::Load { offset: at, .. } | InstructionData::Store { offset: at, .. } => {
                    *at = offset.into();
                }
                _ => {}
            }
        }
        if let InstructionData::Unary { arg, .. } = &mut function.dfg.insts[access.index] {
            *arg = index;
        }
    }
}

/// Compares bytes as bytes where one is cut out for nothing else.
fn compare_bytes(function: &mut Function, ranges: &Ranges) {
    let masked = |function: &Function, value: Value| match maker(function, value) {
        Some((
            _,
            InstructionData::Binary {
                opcode: Opcode::Band,
                args: [of, mask],
            },
        )) if constant(function, *mask) == Some(0xff) => Some(*of),
        _ => None,
    };
    let blocks: Vec<Block> = function.layout.blocks().collect();
    for block in blocks {
        let mut next = function.layout.first_inst(block);
        while let Some(inst) = next {
            next = function.layout.next_inst(inst);
            let InstructionData::IntCompare { cond, args, .. } = function.dfg.insts[inst] else {
                continue;
            };
            let signed = cond != cond.unsigned();
            let bytes = args.iter().all(|arg| ranges.known(function, *arg).high <= 0xff);
            let cut = args.map(|arg| masked(function, arg));
            if signed || !bytes || cut == [None, None] || function.dfg.value_type(args[0]) != types::I32 {
                continue;
            }
            let mut cursor = FuncCursor::new(function).at_inst(inst);
            cursor.use_srcloc(inst);
            let halves = [0, 1].map(|at| match constant(cursor.func, args[at]) {
                Some(value) => cursor.ins().iconst(types::I8, value.cast_signed()),
                None => cursor.ins().ireduce(types::I8, cut[at].unwrap_or(args[at])),
            });
            if let InstructionData::IntCompare { args, .. } = &mut function.dfg.insts[inst] {
                *args = halves;
            }
        }
    }
}

/// Removes masks that keep all bits that can be set.
fn drop_masks(function: &mut Function, ranges: &Ranges) {
    let blocks: Vec<Block> = function.layout.blocks().collect();
    for block in blocks {
        let mut next = function.layout.first_inst(block);
        while let Some(inst) = next {
            next = function.layout.next_inst(inst);
            let InstructionData::Binary {
                opcode: Opcode::Band,
                args: [value, mask],
            } = function.dfg.insts[inst]
            else {
                continue;
            };
            let Some(mask) = constant(function, mask) else { continue };
            let value = function.dfg.resolve_aliases(value);
            let bits = ranges.known(function, value).bits();
            let result = function.dfg.first_result(inst);
            if bits & !mask == 0 && value != result {
                function.dfg.detach_inst_results(inst);
                function.dfg.change_to_alias(result, value);
                function.layout.remove_inst(inst);
            }
        }
    }
}
