//! In which range each integer lies, unsigned: a fixed point over the function, which starts with nothing and widens what
//! does not settle. Loops that count up or down to a constant bound what they step along with the counter.

use super::{Loop, Ways, constant, passed, sole, steps_from, tests};
use alloc::vec::Vec;
use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::{
    Block, Function, Inst, InstructionData, Opcode, Type, Value, ValueDef, condcodes::IntCC, types,
};
use hashbrown::HashMap;

/// Rounds after which ranges of block parameters are widened, and after which the whole is given up.
const WIDEN: usize = 3;
const ROUNDS: usize = 24;

/// From `low` to `high`, both within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub low: u64,
    pub high: u64,
}

impl Range {
    const fn up_to(high: u64) -> Self {
        Self { low: 0, high }
    }

    fn union(self, other: Self) -> Self {
        Self {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
        }
    }

    /// Bits that can be set.
    pub fn bits(self) -> u64 {
        u64::MAX.checked_shr(self.high.leading_zeros()).unwrap_or(0)
    }
}

/// The greatest number of a type.
fn greatest(ty: Type) -> u64 {
    if ty.is_int() && ty.bits() <= 64 {
        u64::MAX >> (64 - ty.bits())
    } else {
        u64::MAX
    }
}

/// The greatest number of a value's type.
pub(super) fn mask(function: &Function, value: Value) -> u64 {
    greatest(function.dfg.value_type(value))
}

/// A parameter of a loop's header that each turn steps by the same.
#[derive(Clone, Copy)]
struct Stepped {
    entry: Inst,
    /// As a signed number.
    step: i64,
    /// How often the loop goes round, at most.
    turns: u64,
}

/// The known ranges of all values of a function.
pub(super) struct Ranges {
    of: SecondaryMap<Value, Option<Range>>,
    stepped: HashMap<Value, Stepped>,
    complete: bool,
}

impl Ranges {
    /// Computes them.
    pub fn new(function: &Function, ways: &Ways, loops: &[Loop]) -> Self {
        let mut ranges = Self {
            of: SecondaryMap::new(),
            stepped: HashMap::new(),
            complete: false,
        };
        for around in loops {
            ranges.count(function, ways, *around);
        }
        for round in 0..ROUNDS {
            let mut changed = false;
            for block in function.layout.blocks() {
                changed |= ranges.enter(function, ways, block, round);
                for inst in function.layout.block_insts(block) {
                    let results = function.dfg.inst_results(inst);
                    let [result] = *results else {
                        // Of a call with several: any number.
                        for result in results {
                            let ty = function.dfg.value_type(*result);
                            if ty.is_int() && ty.bits() <= 64 {
                                let any = Some(Range::up_to(greatest(ty)));
                                changed |= ranges.of[*result] != any;
                                ranges.of[*result] = any;
                            }
                        }
                        continue;
                    };
                    let ty = function.dfg.value_type(result);
                    if !ty.is_int() || ty.bits() > 64 {
                        continue;
                    }
                    if let Some(range) = ranges.made(function, inst, ty) {
                        changed |= ranges.of[result] != Some(range);
                        ranges.of[result] = Some(range);
                    }
                }
            }
            if !changed {
                ranges.complete = true;
                break;
            }
        }
        ranges
    }

    /// The range of a value that the function had when this was made.
    pub fn known(&self, function: &Function, value: Value) -> Range {
        let all = Range::up_to(mask(function, value));
        if !self.complete {
            return all;
        }
        self.of[function.dfg.resolve_aliases(value)].unwrap_or(all)
    }

    /// Notes the parameters of a loop that step, if it is known how often the loop goes round.
    fn count(&mut self, function: &Function, ways: &Ways, around: Loop) {
        let Some(back) = ways.to(around.header).iter().copied().find(|way| *way != around.entry) else {
            return;
        };
        let steps: Vec<(Value, usize, u64)> = function
            .dfg
            .block_params(around.header)
            .iter()
            .enumerate()
            .filter(|(_, param)| matches!(function.dfg.value_type(**param), types::I32 | types::I64))
            .filter_map(|(number, param)| {
                let next = sole(function, back, around.header, number)?;
                Some((*param, number, steps_from(function, next, *param)?))
            })
            .collect();
        let turns = tests(function, ways, around)
            .iter()
            .flat_map(|test| {
                steps.iter().filter_map(|(param, number, step)| {
                    let first = constant(function, sole(function, around.entry, around.header, *number)?)?;
                    let behind = steps_from(function, test.left, *param)?;
                    let greatest = mask(function, *param);
                    let first = first.wrapping_add(behind) & greatest;
                    turns(test.code, first, *step, test.right, greatest)
                })
            })
            .min();
        let Some(turns) = turns else { return };
        for (param, _, step) in steps {
            let step = match function.dfg.value_type(param) {
                types::I32 => i64::from((step as u32).cast_signed()),
                _ => step.cast_signed(),
            };
            let entry = around.entry;
            self.stepped.insert(param, Stepped { entry, step, turns });
        }
    }

    /// Joins what arrives at a block's parameters.
    fn enter(&mut self, function: &Function, ways: &Ways, block: Block, round: usize) -> bool {
        let mut changed = false;
        for (number, param) in function.dfg.block_params(block).iter().enumerate() {
            let ty = function.dfg.value_type(*param);
            if !ty.is_int() || ty.bits() > 64 {
                continue;
            }
            let all = greatest(ty);
            let counted = self.stepped.get(param).and_then(|stepped| {
                let mut range = self.joined(function, &[stepped.entry], block, number)?;
                let way = i128::from(stepped.step) * i128::from(stepped.turns);
                let end = |from: u64| u64::try_from(i128::from(from) + way).ok();
                if stepped.step >= 0 {
                    range.high = end(range.high).filter(|high| *high <= all)?;
                } else {
                    range.low = end(range.low)?;
                }
                Some(range)
            });
            let range = counted.or_else(|| {
                if ways.to(block).is_empty() {
                    return Some(Range::up_to(all));
                }
                self.joined(function, ways.to(block), block, number)
            });
            let Some(mut range) = range else { continue };
            if let Some(have) = self.of[*param] {
                range = range.union(have);
                if range != have && round >= WIDEN {
                    let widths = [0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff];
                    range = Range::up_to(
                        widths
                            .into_iter()
                            .find(|width| range.high <= *width)
                            .unwrap_or(all)
                            .min(all),
                    );
                }
            }
            changed |= self.of[*param] != Some(range);
            self.of[*param] = Some(range);
        }
        changed
    }

    fn joined(&self, function: &Function, branches: &[Inst], block: Block, number: usize) -> Option<Range> {
        branches
            .iter()
            .flat_map(|branch| passed(function, *branch, block, number))
            .filter_map(|value| self.of[value])
            .reduce(Range::union)
    }

    /// The range that an instruction makes; nothing if one of its operands is not known yet.
    fn made(&self, function: &Function, inst: Inst, ty: Type) -> Option<Range> {
        let all = greatest(ty);
        let get = |value: Value| -> Option<Range> {
            let value = function.dfg.resolve_aliases(value);
            match function.dfg.value_def(value) {
                ValueDef::Union(..) => Some(Range::up_to(mask(function, value))),
                _ => self.of[value],
            }
        };
        let full = Some(Range::up_to(all));
        match function.dfg.insts[inst] {
            InstructionData::UnaryImm {
                opcode: Opcode::Iconst,
                imm,
            } => {
                let value = imm.bits().cast_unsigned() & all;
                Some(Range {
                    low: value,
                    high: value,
                })
            }
            InstructionData::Binary { opcode, args } => {
                let (a, b) = (get(args[0])?, get(args[1])?);
                Some(binary(opcode, a, b, all, ty.bits()).unwrap_or(Range::up_to(all)))
            }
            InstructionData::Unary { opcode, arg } => {
                let narrow = mask(function, arg);
                match opcode {
                    Opcode::Uextend => get(arg),
                    Opcode::Sextend => Some(get(arg)?).filter(|range| range.high <= narrow / 2).or(full),
                    Opcode::Ireduce => Some(get(arg)?).filter(|range| range.high <= all).or(full),
                    Opcode::Clz | Opcode::Ctz | Opcode::Popcnt => Some(Range::up_to(u64::from(ty.bits()))),
                    _ => full,
                }
            }
            InstructionData::Ternary {
                opcode: Opcode::Select,
                args,
            } => Some(get(args[1])?.union(get(args[2])?)),
            InstructionData::IntCompare { .. } | InstructionData::FloatCompare { .. } => Some(Range::up_to(1.min(all))),
            InstructionData::Load { opcode, .. } => match opcode {
                Opcode::Uload8 => Some(Range::up_to(0xff)),
                Opcode::Uload16 => Some(Range::up_to(0xffff)),
                Opcode::Uload32 => Some(Range::up_to(0xffff_ffff)),
                _ => full,
            },
            _ => full,
        }
    }
}

/// How often a counter goes on from `first` by `step` while `code` holds between it and `limit`.
fn turns(code: IntCC, first: u64, step: u64, limit: u64, greatest: u64) -> Option<u64> {
    let negative = step > greatest / 2;
    if step == 0 {
        return None;
    }
    match code {
        IntCC::NotEqual => {
            let (way, size) = if negative {
                (first.wrapping_sub(limit) & greatest, step.wrapping_neg() & greatest)
            } else {
                (limit.wrapping_sub(first) & greatest, step)
            };
            (way % size == 0).then_some(way / size)
        }
        IntCC::UnsignedLessThan
        | IntCC::UnsignedLessThanOrEqual
        | IntCC::SignedLessThan
        | IntCC::SignedLessThanOrEqual => {
            let signed = matches!(code, IntCC::SignedLessThan | IntCC::SignedLessThanOrEqual);
            let ceiling = if signed { greatest / 2 } else { greatest };
            let limit = if matches!(code, IntCC::UnsignedLessThanOrEqual | IntCC::SignedLessThanOrEqual) {
                limit.checked_add(1)?
            } else {
                limit
            };
            // It never wraps on the way, so that it is past the limit when it is past it once.
            if negative || first > ceiling || limit.checked_add(step)? > ceiling {
                return None;
            }
            Some(limit.saturating_sub(first).div_ceil(step))
        }
        _ => None,
    }
}

/// For a loop that goes on while its counter, which begins with `first` and steps by `step`, is with `behind` added another
/// number than `right`: with which number the counter behind its step can be compared in order, and whether it is below it
/// while the loop goes on (or above it). Nothing if it wraps before.
pub(super) fn limit(first: u64, step: u64, behind: u64, right: u64, greatest: u64) -> Option<(u64, bool)> {
    let turns = turns(
        IntCC::NotEqual,
        first.wrapping_add(behind) & greatest,
        step,
        right,
        greatest,
    )?;
    let up = step <= greatest / 2;
    let size = if up { step } else { step.wrapping_neg() & greatest };
    let way = size.checked_mul(turns.checked_add(1)?)?;
    let last = if up {
        first.checked_add(way)?
    } else {
        first.checked_sub(way)?
    };
    (last <= greatest).then_some((last, up))
}

fn binary(opcode: Opcode, a: Range, b: Range, all: u64, width: u32) -> Option<Range> {
    let by = (b.low == b.high).then_some(b.low);
    let within = |range: Range| (range.high <= all).then_some(range);
    match opcode {
        Opcode::Iadd => {
            let sum = |a: Range, b: Range| {
                within(Range {
                    low: a.low.checked_add(b.low)?,
                    high: a.high.checked_add(b.high)?,
                })
            };
            // An addition of nearly 2^n is a subtraction.
            let less = |a: Range, by: u64| {
                let by = by.wrapping_neg() & all;
                (by != 0 && by <= a.low).then(|| Range {
                    low: a.low - by,
                    high: a.high - by,
                })
            };
            sum(a, b)
                .or_else(|| by.and_then(|by| less(a, by)))
                .or_else(|| (a.low == a.high).then(|| less(b, a.low)).flatten())
        }
        Opcode::Isub => (a.low >= b.high).then(|| Range {
            low: a.low - b.high,
            high: a.high - b.low,
        }),
        Opcode::Imul => within(Range {
            low: a.low.checked_mul(b.low)?,
            high: a.high.checked_mul(b.high)?,
        }),
        Opcode::Band => Some(Range::up_to(a.high.min(b.high))),
        Opcode::Bor => Some(Range {
            low: a.low.max(b.low),
            high: a.bits() | b.bits(),
        }),
        Opcode::Bxor => Some(Range::up_to(a.bits() | b.bits())),
        Opcode::Ishl => {
            let by = by? & u64::from(width - 1);
            (a.high.leading_zeros() >= by as u32).then_some(())?;
            within(Range {
                low: a.low << by,
                high: a.high << by,
            })
        }
        Opcode::Ushr | Opcode::Sshr => {
            if opcode == Opcode::Sshr && a.high > all / 2 {
                return None;
            }
            let by = by.map_or(0, |by| by & u64::from(width - 1));
            Some(Range {
                low: if b.low == b.high { a.low >> by } else { 0 },
                high: a.high >> by,
            })
        }
        Opcode::Udiv => Some(Range {
            low: a.low / b.high.max(1),
            high: a.high / b.low.max(1),
        }),
        Opcode::Urem => Some(Range::up_to(a.high.min(b.high.saturating_sub(1)))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD: u64 = u32::MAX as u64;

    #[test]
    fn counted_turns_are_what_a_loop_does() {
        let codes = [
            IntCC::NotEqual,
            IntCC::UnsignedLessThan,
            IntCC::UnsignedLessThanOrEqual,
            IntCC::SignedLessThan,
            IntCC::SignedLessThanOrEqual,
        ];
        let holds = |code: IntCC, a: u8, b: u8| match code {
            IntCC::NotEqual => a != b,
            IntCC::UnsignedLessThan => a < b,
            IntCC::UnsignedLessThanOrEqual => a <= b,
            IntCC::SignedLessThan => a.cast_signed() < b.cast_signed(),
            _ => a.cast_signed() <= b.cast_signed(),
        };
        let mut known = 0;
        for code in codes {
            for first in (0..=255u8).step_by(3) {
                for step in 1..=255u8 {
                    for limit in (0..=255u8).step_by(5) {
                        let Some(said) = turns(code, first.into(), step.into(), limit.into(), 255) else {
                            continue;
                        };
                        known += 1;
                        let (mut at, mut round) = (first, 0u64);
                        while round <= 300 && holds(code, at, limit) {
                            at = at.wrapping_add(step);
                            round += 1;
                        }
                        assert_eq!(said, round, "{code:?} {first} {step} {limit}");
                    }
                }
            }
        }
        assert!(known > 100_000);
    }

    #[test]
    fn an_ordered_comparison_ends_a_loop_where_the_equality_did() {
        let mut known = 0;
        for first in (0..=255u8).step_by(7) {
            for step in 1..=255u8 {
                for behind in [0, step, 1, 250] {
                    for right in (0..=255u8).step_by(3) {
                        let said = limit(first.into(), step.into(), behind.into(), right.into(), 255);
                        let Some((limit, up)) = said else { continue };
                        known += 1;
                        let mut at = first;
                        for _ in 0..300 {
                            let goes_on = at.wrapping_add(behind) != right;
                            at = at.wrapping_add(step);
                            assert_eq!(
                                goes_on,
                                if up {
                                    u64::from(at) < limit
                                } else {
                                    u64::from(at) > limit
                                }
                            );
                            if !goes_on {
                                break;
                            }
                        }
                    }
                }
            }
        }
        assert!(known > 10_000);
    }

    #[test]
    fn ranges_hold_what_instructions_make() {
        let opcodes = [
            Opcode::Iadd,
            Opcode::Isub,
            Opcode::Imul,
            Opcode::Band,
            Opcode::Bor,
            Opcode::Bxor,
            Opcode::Ishl,
            Opcode::Ushr,
            Opcode::Sshr,
            Opcode::Udiv,
            Opcode::Urem,
        ];
        let make = |opcode: Opcode, a: u32, b: u32| match opcode {
            Opcode::Iadd => a.wrapping_add(b),
            Opcode::Isub => a.wrapping_sub(b),
            Opcode::Imul => a.wrapping_mul(b),
            Opcode::Band => a & b,
            Opcode::Bor => a | b,
            Opcode::Bxor => a ^ b,
            Opcode::Ishl => a.wrapping_shl(b),
            Opcode::Ushr => a.wrapping_shr(b),
            Opcode::Sshr => (a.cast_signed().wrapping_shr(b)).cast_unsigned(),
            Opcode::Udiv => a.checked_div(b).unwrap_or(0),
            _ => a.checked_rem(b).unwrap_or(0),
        };
        let ends = [
            0,
            1,
            2,
            5,
            31,
            32,
            255,
            256,
            0x7fff_fffe,
            0x7fff_ffff,
            0x8000_0000,
            u32::MAX - 1,
            u32::MAX,
        ];
        let mut known = 0;
        for opcode in opcodes {
            for (low, high) in ends.iter().flat_map(|low| ends.iter().map(move |high| (*low, *high))) {
                for (first, last) in ends.iter().flat_map(|low| ends.iter().map(move |high| (*low, *high))) {
                    if low > high || first > last {
                        continue;
                    }
                    let range = |low: u32, high: u32| Range {
                        low: low.into(),
                        high: high.into(),
                    };
                    let Some(said) = binary(opcode, range(low, high), range(first, last), WORD, 32) else {
                        continue;
                    };
                    known += 1;
                    for a in ends.iter().filter(|a| (low..=high).contains(*a)) {
                        for b in ends.iter().filter(|b| (first..=last).contains(*b)) {
                            // Divisions by nought trap and make nothing.
                            if *b == 0 && matches!(opcode, Opcode::Udiv | Opcode::Urem) {
                                continue;
                            }
                            let made = u64::from(make(opcode, *a, *b));
                            assert!(
                                (said.low..=said.high).contains(&made),
                                "{opcode} {low}..={high} {first}..={last}: {a} {b} {said:?}"
                            );
                        }
                    }
                }
            }
        }
        assert!(known > 10_000);
    }
}
