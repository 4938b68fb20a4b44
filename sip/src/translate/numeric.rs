//! Scalar instructions. Cranelift's have WebAssembly's meaning, traps included, with one exception
//! each for `copysign` operand order (none) and comparison results, which are `i8` and are widened.

use super::Translator;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, InstructionData, MemFlagsData, Opcode, Type, Value, types};
use wasmparser::Operator;

/// With which factor and shift right a number is divided by this one, rounded down; none if it is a power of two or no
/// factor of 32 bits does it. (Granlund and Montgomery, "Division by invariant integers using multiplication", 1994,
/// theorem 4.2: the factor exceeds 2^shift / d by at most 2^(shift - 32) / d.)
fn reciprocal(by: u32) -> Option<(u32, u32)> {
    if by < 3 || by.is_power_of_two() {
        return None;
    }
    (32..=63).find_map(|shift| {
        let whole = 1u128 << shift;
        let factor = whole.div_ceil(u128::from(by));
        let excess = factor * u128::from(by) - whole;
        (excess <= whole >> 32).then_some((u32::try_from(factor).ok()?, shift))
    })
}

impl Translator<'_, '_> {
    pub(super) fn numeric(&mut self, op: &Operator<'_>) -> bool {
        self.constant(op) || self.comparison(op) || self.integer(op) || self.float(op) || self.conversion(op)
    }

    fn constant(&mut self, op: &Operator<'_>) -> bool {
        let value = match op {
            Operator::I32Const { value } => self.builder.ins().iconst(types::I32, i64::from(value.cast_unsigned())),
            Operator::I64Const { value } => self.builder.ins().iconst(types::I64, *value),
            Operator::F32Const { value } => self
                .builder
                .ins()
                .f32const(cranelift_codegen::ir::immediates::Ieee32::with_bits(value.bits())),
            Operator::F64Const { value } => self
                .builder
                .ins()
                .f64const(cranelift_codegen::ir::immediates::Ieee64::with_bits(value.bits())),
            _ => return false,
        };
        self.push(value);
        true
    }

    fn comparison(&mut self, op: &Operator<'_>) -> bool {
        use IntCC::{
            Equal, NotEqual, SignedGreaterThan, SignedGreaterThanOrEqual, SignedLessThan, SignedLessThanOrEqual,
            UnsignedGreaterThan, UnsignedGreaterThanOrEqual, UnsignedLessThan, UnsignedLessThanOrEqual,
        };
        use Operator as O;
        let integer = match op {
            O::I32Eqz | O::I64Eqz => {
                let value = self.pop();
                let zero = self.builder.ins().icmp_imm_s(Equal, value, 0);
                self.push_flag(zero);
                return true;
            }
            O::I32Eq | O::I64Eq => Equal,
            O::I32Ne | O::I64Ne => NotEqual,
            O::I32LtS | O::I64LtS => SignedLessThan,
            O::I32LtU | O::I64LtU => UnsignedLessThan,
            O::I32GtS | O::I64GtS => SignedGreaterThan,
            O::I32GtU | O::I64GtU => UnsignedGreaterThan,
            O::I32LeS | O::I64LeS => SignedLessThanOrEqual,
            O::I32LeU | O::I64LeU => UnsignedLessThanOrEqual,
            O::I32GeS | O::I64GeS => SignedGreaterThanOrEqual,
            O::I32GeU | O::I64GeU => UnsignedGreaterThanOrEqual,
            _ => return self.float_comparison(op),
        };
        let (first, second) = self.pop2();
        let flag = self.builder.ins().icmp(integer, first, second);
        self.push_flag(flag);
        true
    }

    fn float_comparison(&mut self, op: &Operator<'_>) -> bool {
        use Operator as O;
        let code = match op {
            O::F32Eq | O::F64Eq => FloatCC::Equal,
            O::F32Ne | O::F64Ne => FloatCC::NotEqual,
            O::F32Lt | O::F64Lt => FloatCC::LessThan,
            O::F32Gt | O::F64Gt => FloatCC::GreaterThan,
            O::F32Le | O::F64Le => FloatCC::LessThanOrEqual,
            O::F32Ge | O::F64Ge => FloatCC::GreaterThanOrEqual,
            _ => return false,
        };
        let (first, second) = self.pop2();
        let flag = self.builder.ins().fcmp(code, first, second);
        self.push_flag(flag);
        true
    }

    pub(super) fn push_flag(&mut self, flag: Value) {
        let wide = self.builder.ins().uextend(types::I32, flag);
        self.push(wide);
    }

    fn integer(&mut self, op: &Operator<'_>) -> bool {
        use Operator as O;
        if let O::I32Clz | O::I64Clz | O::I32Ctz | O::I64Ctz | O::I32Popcnt | O::I64Popcnt = op {
            let value = self.pop();
            let ins = self.builder.ins();
            let value = match op {
                O::I32Clz | O::I64Clz => ins.clz(value),
                O::I32Ctz | O::I64Ctz => ins.ctz(value),
                _ => ins.popcnt(value),
            };
            self.push(value);
            return true;
        }
        let known = matches!(
            op,
            O::I32Add
                | O::I32Sub
                | O::I32Mul
                | O::I32DivS
                | O::I32DivU
                | O::I32RemS
                | O::I32RemU
                | O::I32And
                | O::I32Or
                | O::I32Xor
                | O::I32Shl
                | O::I32ShrS
                | O::I32ShrU
                | O::I32Rotl
                | O::I32Rotr
                | O::I64Add
                | O::I64Sub
                | O::I64Mul
                | O::I64DivS
                | O::I64DivU
                | O::I64RemS
                | O::I64RemU
                | O::I64And
                | O::I64Or
                | O::I64Xor
                | O::I64Shl
                | O::I64ShrS
                | O::I64ShrU
                | O::I64Rotl
                | O::I64Rotr
        );
        if !known {
            return false;
        }
        let (a, b) = self.pop2();
        if let O::I32DivU | O::I32RemU = op
            && let Some(quotient) = self.quotient(a, b)
        {
            let value = if matches!(op, O::I32DivU) {
                quotient
            } else {
                let product = self.builder.ins().imul(quotient, b);
                self.builder.ins().isub(a, product)
            };
            self.push(value);
            return true;
        }
        let ins = self.builder.ins();
        let value = match op {
            O::I32Add | O::I64Add => ins.iadd(a, b),
            O::I32Sub | O::I64Sub => ins.isub(a, b),
            O::I32Mul | O::I64Mul => ins.imul(a, b),
            O::I32DivS | O::I64DivS => ins.sdiv(a, b),
            O::I32DivU | O::I64DivU => ins.udiv(a, b),
            O::I32RemS | O::I64RemS => ins.srem(a, b),
            O::I32RemU | O::I64RemU => ins.urem(a, b),
            O::I32And | O::I64And => ins.band(a, b),
            O::I32Or | O::I64Or => ins.bor(a, b),
            O::I32Xor | O::I64Xor => ins.bxor(a, b),
            O::I32Shl | O::I64Shl => ins.ishl(a, b),
            O::I32ShrS | O::I64ShrS => ins.sshr(a, b),
            O::I32ShrU | O::I64ShrU => ins.ushr(a, b),
            O::I32Rotl | O::I64Rotl => ins.rotl(a, b),
            _ => ins.rotr(a, b),
        };
        self.push(value);
        true
    }

    /// A quotient by a constant, as the upper part of a product in 64 bits: Cranelift makes one in 32 bits, which takes
    /// two registers of its own and longer.
    fn quotient(&mut self, value: Value, by: Value) -> Option<Value> {
        let inst = self.builder.func.dfg.value_def(by).inst()?;
        let InstructionData::UnaryImm {
            opcode: Opcode::Iconst,
            imm,
        } = self.builder.func.dfg.insts[inst]
        else {
            return None;
        };
        let (factor, shift) = reciprocal(imm.bits() as u32)?;
        let wide = self.builder.ins().uextend(types::I64, value);
        let factor = self.builder.ins().iconst(types::I64, i64::from(factor));
        let product = self.builder.ins().imul(wide, factor);
        let quotient = self.builder.ins().ushr_imm_u(product, i64::from(shift));
        Some(self.builder.ins().ireduce(types::I32, quotient))
    }

    fn float(&mut self, op: &Operator<'_>) -> bool {
        use Operator as O;
        let unary = matches!(
            op,
            O::F32Abs
                | O::F32Neg
                | O::F32Ceil
                | O::F32Floor
                | O::F32Trunc
                | O::F32Nearest
                | O::F32Sqrt
                | O::F64Abs
                | O::F64Neg
                | O::F64Ceil
                | O::F64Floor
                | O::F64Trunc
                | O::F64Nearest
                | O::F64Sqrt
        );
        let binary = matches!(
            op,
            O::F32Add
                | O::F32Sub
                | O::F32Mul
                | O::F32Div
                | O::F32Min
                | O::F32Max
                | O::F32Copysign
                | O::F64Add
                | O::F64Sub
                | O::F64Mul
                | O::F64Div
                | O::F64Min
                | O::F64Max
                | O::F64Copysign
        );
        let value = if unary {
            let value = self.pop();
            let ins = self.builder.ins();
            match op {
                O::F32Abs | O::F64Abs => ins.fabs(value),
                O::F32Neg | O::F64Neg => ins.fneg(value),
                O::F32Ceil | O::F64Ceil => ins.ceil(value),
                O::F32Floor | O::F64Floor => ins.floor(value),
                O::F32Trunc | O::F64Trunc => ins.trunc(value),
                O::F32Nearest | O::F64Nearest => ins.nearest(value),
                _ => ins.sqrt(value),
            }
        } else if binary {
            let (a, b) = self.pop2();
            let ins = self.builder.ins();
            match op {
                O::F32Add | O::F64Add => ins.fadd(a, b),
                O::F32Sub | O::F64Sub => ins.fsub(a, b),
                O::F32Mul | O::F64Mul => ins.fmul(a, b),
                O::F32Div | O::F64Div => ins.fdiv(a, b),
                O::F32Min | O::F64Min => ins.fmin(a, b),
                O::F32Max | O::F64Max => ins.fmax(a, b),
                _ => ins.fcopysign(a, b),
            }
        } else {
            return false;
        };
        self.push(value);
        true
    }

    fn conversion(&mut self, op: &Operator<'_>) -> bool {
        use Operator as O;
        use types::{F32, F64, I8, I16, I32, I64};
        let convert: fn(&mut Self, Value) -> Value = match op {
            O::I32WrapI64 => |t, v| t.builder.ins().ireduce(I32, v),
            O::I64ExtendI32S => |t, v| t.builder.ins().sextend(I64, v),
            O::I64ExtendI32U => |t, v| t.builder.ins().uextend(I64, v),
            O::I32Extend8S => |t, v| t.sign_extend(v, I8, I32),
            O::I32Extend16S => |t, v| t.sign_extend(v, I16, I32),
            O::I64Extend8S => |t, v| t.sign_extend(v, I8, I64),
            O::I64Extend16S => |t, v| t.sign_extend(v, I16, I64),
            O::I64Extend32S => |t, v| t.sign_extend(v, I32, I64),
            O::I32TruncF32S | O::I32TruncF64S => |t, v| t.builder.ins().fcvt_to_sint(I32, v),
            O::I32TruncF32U | O::I32TruncF64U => |t, v| t.builder.ins().fcvt_to_uint(I32, v),
            O::I64TruncF32S | O::I64TruncF64S => |t, v| t.builder.ins().fcvt_to_sint(I64, v),
            O::I64TruncF32U | O::I64TruncF64U => |t, v| t.builder.ins().fcvt_to_uint(I64, v),
            O::I32TruncSatF32S | O::I32TruncSatF64S => |t, v| t.builder.ins().fcvt_to_sint_sat(I32, v),
            O::I32TruncSatF32U | O::I32TruncSatF64U => |t, v| t.builder.ins().fcvt_to_uint_sat(I32, v),
            O::I64TruncSatF32S | O::I64TruncSatF64S => |t, v| t.builder.ins().fcvt_to_sint_sat(I64, v),
            O::I64TruncSatF32U | O::I64TruncSatF64U => |t, v| t.builder.ins().fcvt_to_uint_sat(I64, v),
            O::F32ConvertI32S | O::F32ConvertI64S => |t, v| t.builder.ins().fcvt_from_sint(F32, v),
            O::F32ConvertI32U | O::F32ConvertI64U => |t, v| t.builder.ins().fcvt_from_uint(F32, v),
            O::F64ConvertI32S | O::F64ConvertI64S => |t, v| t.builder.ins().fcvt_from_sint(F64, v),
            O::F64ConvertI32U | O::F64ConvertI64U => |t, v| t.builder.ins().fcvt_from_uint(F64, v),
            O::F32DemoteF64 => |t, v| t.builder.ins().fdemote(F32, v),
            O::F64PromoteF32 => |t, v| t.builder.ins().fpromote(F64, v),
            O::I32ReinterpretF32 => |t, v| t.builder.ins().bitcast(I32, MemFlagsData::new(), v),
            O::I64ReinterpretF64 => |t, v| t.builder.ins().bitcast(I64, MemFlagsData::new(), v),
            O::F32ReinterpretI32 => |t, v| t.builder.ins().bitcast(F32, MemFlagsData::new(), v),
            O::F64ReinterpretI64 => |t, v| t.builder.ins().bitcast(F64, MemFlagsData::new(), v),
            _ => return false,
        };
        let value = self.pop();
        let value = convert(self, value);
        self.push(value);
        true
    }

    fn sign_extend(&mut self, value: Value, narrow: Type, wide: Type) -> Value {
        let value = self.builder.ins().ireduce(narrow, value);
        self.builder.ins().sextend(wide, value)
    }
}

#[cfg(test)]
mod tests {
    use super::reciprocal;

    #[test]
    fn quotients_by_constants() {
        let divisors = (3..2000u32).chain([
            65_535,
            65_537,
            1_000_003,
            0x7fff_ffff,
            0x8000_0001,
            u32::MAX - 1,
            u32::MAX,
        ]);
        let mut known = 0;
        for by in divisors {
            let Some((factor, shift)) = reciprocal(by) else {
                continue;
            };
            known += 1;
            // Quotients change at multiples: wrong factors are wrong just below and at one, the great ones first.
            let last = u32::MAX / by * by;
            let ends = [
                0,
                1,
                by - 1,
                by,
                by.wrapping_add(1),
                last - 1,
                last,
                u32::MAX - 1,
                u32::MAX,
            ];
            let spread = (0..64).map(|at| (u32::MAX / 64).wrapping_mul(at) / by * by);
            for value in ends.into_iter().chain(spread.flat_map(|at| [at, at.wrapping_sub(1)])) {
                let quotient = (u64::from(value) * u64::from(factor)) >> shift;
                assert_eq!(quotient, u64::from(value / by), "{value} / {by}");
            }
        }
        assert!(known > 1000);
    }
}
