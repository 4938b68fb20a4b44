//! Behind Cranelift's optimizer, which makes of each sum with a constant, in whatever block, one from the oldest number
//! that it knows: then a loop's counter of the turn before lives on beside the next one, in a register of its own and with
//! a move for each turn. Here the sums behind the step are made from the next one again.

use super::{CHAIN, Ways, constant, range, sole, steps_from, sum};
use alloc::vec::Vec;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::dominator_tree::DominatorTree;
use cranelift_codegen::ir::{
    Block, Function, Inst, InstBuilder, InstructionData, Opcode, Type, Value, condcodes::IntCC, types,
};
use cranelift_codegen::loop_analysis::LoopAnalysis;
use hashbrown::{HashMap, HashSet};

/// A number that so many need behind the loop stays as it is.
const LEFT: usize = 4;
/// Loops of more blocks stay as they are.
const BODY: usize = 256;

/// Improves an optimized function.
pub(crate) fn after(function: &mut Function, domtree: &DominatorTree, loops: &LoopAnalysis) {
    if !super::is_large(function) {
        step_early(function, domtree, loops);
    }
    super::wide::noughts(function);
}

/// Makes sums behind the steps of loops from the next number.
fn step_early(function: &mut Function, domtree: &DominatorTree, loops: &LoopAnalysis) {
    let form = Form {
        domtree,
        loops,
        ways: Ways::new(function),
    };
    let mut headers: Vec<(Block, Inst)> = Vec::new();
    for header in function.layout.blocks() {
        let leads_back = |way: &&Inst| {
            let from = function.layout.inst_block(**way);
            from.is_some_and(|from| domtree.block_dominates(header, from))
        };
        let mut back = form.ways.to(header).iter().filter(leads_back);
        if let (Some(back), None) = (back.next(), back.next()) {
            headers.push((header, *back));
        }
    }
    if headers.is_empty() {
        return;
    }
    let mut uses = Uses::new(function);
    for (header, back) in headers {
        let Some(body) = body(function, &form.ways, header, back) else {
            continue;
        };
        for number in 0..function.dfg.num_block_params(header) {
            let counter = Counter {
                header,
                back,
                number,
                body: &body,
            };
            if let Some(plan) = plan(function, &form, &uses, &counter) {
                plan.apply(function, &mut uses);
            }
        }
    }
}

/// The instructions that use each integer.
struct Uses(HashMap<Value, Vec<Inst>>);

impl Uses {
    fn new(function: &Function) -> Self {
        let mut uses: HashMap<Value, Vec<Inst>> = HashMap::new();
        for block in function.layout.blocks() {
            for inst in function.layout.block_insts(block) {
                for value in function.dfg.inst_values(inst) {
                    let list = uses.entry(function.dfg.resolve_aliases(value)).or_default();
                    if list.last() != Some(&inst) {
                        list.push(inst);
                    }
                }
            }
        }
        Self(uses)
    }

    fn of(&self, value: Value) -> &[Inst] {
        self.0.get(&value).map_or(&[], Vec::as_slice)
    }
}

/// How an instruction uses a counter.
#[derive(Clone, Copy)]
enum Use {
    /// It adds a constant.
    Sum(u64),
    /// It compares it with a constant for equality.
    Compare(u64),
    /// It takes the lower half.
    Half,
    /// Anything else.
    Other,
}

fn kind(function: &Function, inst: Inst, value: Value) -> Use {
    match function.dfg.insts[inst] {
        InstructionData::Binary {
            opcode: Opcode::Iadd, ..
        } => match sum(function, function.dfg.first_result(inst)) {
            Some((of, by)) if of == value => Use::Sum(by),
            _ => Use::Other,
        },
        InstructionData::IntCompare {
            cond: IntCC::Equal | IntCC::NotEqual,
            args: [left, right],
            ..
        } if function.dfg.resolve_aliases(left) == value => constant(function, right).map_or(Use::Other, Use::Compare),
        InstructionData::Unary {
            opcode: Opcode::Ireduce,
            ..
        } if function.dfg.value_type(function.dfg.first_result(inst)) == types::I32 => Use::Half,
        _ => Use::Other,
    }
}

/// The value that a loop passes for a parameter, without the extension of a sum with the parameter's lower half.
fn root(function: &Function, param: Value, next: Value) -> Option<(Value, u64)> {
    if let Some(step) = steps_from(function, next, param) {
        return (step != 0).then_some((param, step));
    }
    let InstructionData::Unary {
        opcode: Opcode::Uextend,
        arg,
    } = super::maker(function, next)?.1
    else {
        return None;
    };
    let mut value = function.dfg.resolve_aliases(*arg);
    let mut by = 0u64;
    for _ in 0..4 {
        if let InstructionData::Unary {
            opcode: Opcode::Ireduce,
            arg,
        } = super::maker(function, value)?.1
        {
            // A narrower part is no half: what is above it may be anything.
            let halves = function.dfg.value_type(value) == types::I32 && function.dfg.value_type(param) == types::I64;
            let step = by & range::mask(function, value);
            return (halves && function.dfg.resolve_aliases(*arg) == param && step != 0).then_some((value, step));
        }
        let (rest, more) = sum(function, value)?;
        (value, by) = (rest, by.wrapping_add(more));
    }
    None
}

/// The knowledge of the function's form.
struct Form<'a> {
    domtree: &'a DominatorTree,
    loops: &'a LoopAnalysis,
    ways: Ways,
}

/// A counter: a parameter of a loop's header.
struct Counter<'a> {
    header: Block,
    back: Inst,
    number: usize,
    /// The blocks of the loop.
    body: &'a HashSet<Block>,
}

/// The change to make to a counter.
struct Plan {
    param: Value,
    /// The parameter, or its lower half, to which the step is added.
    stepped: Value,
    step: u64,
    /// The step goes before this instruction.
    first: Inst,
    /// Sums and comparisons behind it, with their constants.
    moved: Vec<(Inst, Use)>,
    /// The instructions that use the number of the last turn behind the loop.
    left: Vec<Inst>,
}

/// The place where an instruction uses a counter, and how.
struct Place {
    inst: Inst,
    block: Block,
    kind: Use,
    movable: bool,
}

/// All that uses the parameter, or its lower half.
fn places(function: &Function, uses: &Uses, param: Value, ty: Type) -> Option<Vec<Place>> {
    let mut all = Vec::new();
    let mut gather = |of: Value| {
        let mut halves = Vec::new();
        for inst in uses.of(of) {
            let Some(block) = function.layout.inst_block(*inst) else {
                continue;
            };
            match kind(function, *inst, of) {
                Use::Half => halves.push(function.dfg.first_result(*inst)),
                kind => all.push(Place {
                    inst: *inst,
                    block,
                    movable: matches!(kind, Use::Sum(_) | Use::Compare(_)) && function.dfg.value_type(of) == ty,
                    kind,
                }),
            }
        }
        halves
    };
    let halves = gather(param);
    let plain = halves.into_iter().all(|half| gather(half).is_empty());
    plain.then_some(all)
}

/// Whether a parameter has no bit in its upper half.
fn is_word(function: &Function, ways: &Ways, header: Block, number: usize) -> bool {
    let mut values = ways
        .to(header)
        .iter()
        .flat_map(|way| super::passed(function, *way, header, number));
    values.all(|value| match super::maker(function, value) {
        Some((_, InstructionData::Unary { opcode, arg })) => {
            *opcode == Opcode::Uextend && function.dfg.value_type(*arg).bits() <= 32
        }
        Some((_, InstructionData::Load { opcode, .. })) => {
            matches!(opcode, Opcode::Uload8 | Opcode::Uload16 | Opcode::Uload32)
        }
        _ => constant(function, value).is_some_and(|value| u32::try_from(value).is_ok()),
    })
}

/// Finds where the step of a counter should stand: as far up from the way back as no way leads past it and nothing else
/// uses the number further on.
fn plan(function: &Function, form: &Form, uses: &Uses, counter: &Counter) -> Option<Plan> {
    let Counter {
        header,
        back,
        number,
        body,
    } = *counter;
    let param = function.dfg.block_params(header)[number];
    if !matches!(function.dfg.value_type(param), types::I32 | types::I64) {
        return None;
    }
    let (stepped, step) = root(function, param, sole(function, back, header, number)?)?;
    let all = places(function, uses, param, function.dfg.value_type(stepped))?;
    let (movable, fixed): (Vec<Place>, Vec<Place>) = all.into_iter().partition(|place| place.movable);
    let mut block = function.layout.inst_block(back)?;
    for _ in 0..CHAIN {
        if block == header || fixed.iter().any(|place| place.block == block) {
            break;
        }
        let [before] = form.ways.to(block) else { break };
        let above = function.layout.inst_block(*before)?;
        if form.loops.innermost_loop(above) != form.loops.innermost_loop(header) {
            break;
        }
        block = above;
    }
    let below = |at: Block| at != block && form.domtree.block_dominates(block, at);
    // A use of this turn's number behind the loop gets it from the next one; further on in the loop it lives anyway.
    let (left, fixed): (Vec<Place>, Vec<Place>) = fixed
        .into_iter()
        .partition(|place| !body.contains(&place.block) && below(place.block));
    let halved = stepped != param && !left.is_empty();
    if left.len() > LEFT
        || fixed.iter().any(|place| below(place.block))
        || halved && !is_word(function, &form.ways, header, number)
    {
        return None;
    }
    let order = |a: &Inst, b: &Inst| function.layout.pp_cmp(*a, *b);
    let here = fixed.iter().filter(|place| place.block == block);
    let last = here.map(|place| place.inst).max_by(order);
    let terminator = function.layout.last_inst(block)?;
    let behind = |place: &Place| match last {
        Some(last) if place.block == block => function.layout.pp_cmp(place.inst, last).is_gt(),
        _ => place.block == block || below(place.block),
    };
    let moved: Vec<Place> = movable.into_iter().filter(behind).collect();
    if moved.is_empty() || last == Some(terminator) {
        return None;
    }
    let here = moved.iter().filter(|place| place.block == block);
    let first = here.map(|place| place.inst).min_by(order).unwrap_or(terminator);
    // The lower half must be there already.
    if let Some(made) = function.dfg.value_def(stepped).inst() {
        let at = function.layout.inst_block(made)?;
        let there = if at == block {
            function.layout.pp_cmp(made, first).is_lt()
        } else {
            form.domtree.block_dominates(at, block)
        };
        there.then_some(())?;
    }
    Some(Plan {
        param,
        stepped,
        step,
        first,
        moved: moved.into_iter().map(|place| (place.inst, place.kind)).collect(),
        left: left.into_iter().map(|place| place.inst).collect(),
    })
}

impl Plan {
    /// Makes sums and comparisons behind the step from the stepped number.
    fn apply(self, function: &mut Function, uses: &mut Uses) {
        let ty = function.dfg.value_type(self.stepped);
        let mut cursor = FuncCursor::new(function).at_inst(self.first);
        cursor.use_srcloc(self.first);
        // As a difference, through which no addressing mode looks.
        let by = cursor.ins().iconst(ty, wrapped(ty, self.step.wrapping_neg()));
        let next = cursor.ins().isub(self.stepped, by);
        let mut known = Vec::new();
        for (inst, kind) in self.moved {
            known.push(inst);
            let mut cursor = FuncCursor::new(function).at_inst(inst);
            cursor.use_srcloc(inst);
            match kind {
                Use::Compare(with) => {
                    let with = cursor.ins().iconst(ty, wrapped(ty, with.wrapping_add(self.step)));
                    if let InstructionData::IntCompare { args, .. } = &mut cursor.func.dfg.insts[inst] {
                        *args = [next, with];
                    }
                }
                Use::Sum(by) if by == self.step => {
                    let result = cursor.func.dfg.first_result(inst);
                    cursor.func.dfg.detach_inst_results(inst);
                    cursor.func.dfg.change_to_alias(result, next);
                    cursor.func.layout.remove_inst(inst);
                    known.extend(uses.of(result));
                }
                Use::Sum(by) => {
                    let rest = cursor.ins().iconst(ty, wrapped(ty, by.wrapping_sub(self.step)));
                    if let InstructionData::Binary { args, .. } = &mut cursor.func.dfg.insts[inst] {
                        *args = [next, rest];
                    }
                }
                Use::Half | Use::Other => {}
            }
        }
        for inst in self.left {
            known.push(inst);
            let mut cursor = FuncCursor::new(function).at_inst(inst);
            cursor.use_srcloc(inst);
            let by = cursor.ins().iconst(ty, wrapped(ty, self.step.wrapping_neg()));
            let before = cursor.ins().iadd(next, by);
            let wide = if self.stepped == self.param {
                before
            } else {
                cursor.ins().uextend(types::I64, before)
            };
            let (param, stepped) = (self.param, self.stepped);
            cursor.func.dfg.map_inst_values(inst, |value| match value {
                _ if value == param => wide,
                _ if value == stepped => before,
                other => other,
            });
        }
        uses.0.insert(next, known);
    }
}

/// The blocks of a loop, unless there are very many.
fn body(function: &Function, ways: &Ways, header: Block, back: Inst) -> Option<HashSet<Block>> {
    let mut body = HashSet::from_iter([header]);
    let mut open: Vec<Block> = function.layout.inst_block(back).into_iter().collect();
    while let Some(block) = open.pop() {
        if body.insert(block) {
            let above = ways.to(block).iter().filter_map(|way| function.layout.inst_block(*way));
            open.extend(above);
        }
        if body.len() > BODY {
            return None;
        }
    }
    Some(body)
}

/// A constant as Cranelift wants it.
fn wrapped(ty: Type, value: u64) -> i64 {
    if ty == types::I32 {
        i64::from(value as u32)
    } else {
        value.cast_signed()
    }
}
