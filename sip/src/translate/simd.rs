//! Vector instructions. A vector rests on the operand stack as `i8x16`; each instruction casts its
//! operands to the shape it works on, which costs nothing in the machine.

use super::Translator;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::{F32X4, F64X2, I8, I8X16, I16, I16X8, I32, I32X4, I64, I64X2};
use cranelift_codegen::ir::{Endianness, InstBuilder, MemFlagsData, Type, Value};
use wasmparser::{MemArg, Operator};

type Ins<'a, 'f> = cranelift_frontend::FuncInstBuilder<'a, 'f>;

impl<'f> Translator<'_, 'f> {
    pub(super) fn simd(&mut self, op: &Operator<'_>) -> bool {
        self.vector_memory(op)
            || self.lanes(op)
            || self.vector_comparison(op)
            || self.vector_integer(op)
            || self.vector_float(op)
            || self.widening(op)
    }

    fn cast(&mut self, value: Value, shape: Type) -> Value {
        if self.builder.func.dfg.value_type(value) == shape {
            return value;
        }
        self.builder
            .ins()
            .bitcast(shape, MemFlagsData::new().with_endianness(Endianness::Little), value)
    }

    fn pop_as(&mut self, shape: Type) -> Value {
        let value = self.pop();
        self.cast(value, shape)
    }

    fn push_vector(&mut self, value: Value) {
        let value = self.cast(value, I8X16);
        self.push(value);
    }

    fn unary(&mut self, shape: Type, make: impl FnOnce(Ins<'_, 'f>, Value) -> Value) {
        let value = self.pop_as(shape);
        let value = make(self.builder.ins(), value);
        self.push_vector(value);
    }

    fn binary(&mut self, shape: Type, make: impl FnOnce(Ins<'_, 'f>, Value, Value) -> Value) {
        let second = self.pop_as(shape);
        let first = self.pop_as(shape);
        let value = make(self.builder.ins(), first, second);
        self.push_vector(value);
    }

    fn vector_memory(&mut self, op: &Operator<'_>) -> bool {
        use Operator as O;
        match op {
            O::V128Load { memarg } => {
                let value = self.load_value(memarg, I8X16, 16);
                self.push(value);
            }
            O::V128Store { memarg } => {
                let value = self.pop();
                self.store_value(memarg, value, 16);
            }
            O::V128Load8x8S { memarg } => self.load_extended(memarg, I8X16, |i, v| i.swiden_low(v)),
            O::V128Load8x8U { memarg } => self.load_extended(memarg, I8X16, |i, v| i.uwiden_low(v)),
            O::V128Load16x4S { memarg } => self.load_extended(memarg, I16X8, |i, v| i.swiden_low(v)),
            O::V128Load16x4U { memarg } => self.load_extended(memarg, I16X8, |i, v| i.uwiden_low(v)),
            O::V128Load32x2S { memarg } => self.load_extended(memarg, I32X4, |i, v| i.swiden_low(v)),
            O::V128Load32x2U { memarg } => self.load_extended(memarg, I32X4, |i, v| i.uwiden_low(v)),
            O::V128Load8Splat { memarg } => self.load_splat(memarg, I8, I8X16),
            O::V128Load16Splat { memarg } => self.load_splat(memarg, I16, I16X8),
            O::V128Load32Splat { memarg } => self.load_splat(memarg, I32, I32X4),
            O::V128Load64Splat { memarg } => self.load_splat(memarg, I64, I64X2),
            O::V128Load32Zero { memarg } => self.load_zero(memarg, I32, I32X4),
            O::V128Load64Zero { memarg } => self.load_zero(memarg, I64, I64X2),
            O::V128Load8Lane { memarg, lane } => self.load_lane(memarg, *lane, I8, I8X16),
            O::V128Load16Lane { memarg, lane } => self.load_lane(memarg, *lane, I16, I16X8),
            O::V128Load32Lane { memarg, lane } => self.load_lane(memarg, *lane, I32, I32X4),
            O::V128Load64Lane { memarg, lane } => self.load_lane(memarg, *lane, I64, I64X2),
            O::V128Store8Lane { memarg, lane } => self.store_lane(memarg, *lane, I8X16, 1),
            O::V128Store16Lane { memarg, lane } => self.store_lane(memarg, *lane, I16X8, 2),
            O::V128Store32Lane { memarg, lane } => self.store_lane(memarg, *lane, I32X4, 4),
            O::V128Store64Lane { memarg, lane } => self.store_lane(memarg, *lane, I64X2, 8),
            _ => return false,
        }
        true
    }

    fn load_extended(&mut self, memarg: &MemArg, shape: Type, widen: impl FnOnce(Ins<'_, 'f>, Value) -> Value) {
        let bits = self.load_value(memarg, I64, 8);
        let vector = self.builder.ins().scalar_to_vector(I64X2, bits);
        let vector = self.cast(vector, shape);
        let value = widen(self.builder.ins(), vector);
        self.push_vector(value);
    }

    fn load_splat(&mut self, memarg: &MemArg, lane: Type, shape: Type) {
        let value = self.load_value(memarg, lane, u64::from(lane.bytes()));
        let value = self.builder.ins().splat(shape, value);
        self.push_vector(value);
    }

    fn load_zero(&mut self, memarg: &MemArg, lane: Type, shape: Type) {
        let value = self.load_value(memarg, lane, u64::from(lane.bytes()));
        let value = self.builder.ins().scalar_to_vector(shape, value);
        self.push_vector(value);
    }

    fn load_lane(&mut self, memarg: &MemArg, lane: u8, scalar: Type, shape: Type) {
        let vector = self.pop_as(shape);
        let value = self.load_value(memarg, scalar, u64::from(scalar.bytes()));
        let value = self.builder.ins().insertlane(vector, value, lane);
        self.push_vector(value);
    }

    fn store_lane(&mut self, memarg: &MemArg, lane: u8, shape: Type, bytes: u64) {
        let vector = self.pop_as(shape);
        let value = self.builder.ins().extractlane(vector, lane);
        self.store_value(memarg, value, bytes);
    }

    fn splat(&mut self, narrow: Option<Type>, shape: Type) {
        let mut value = self.pop();
        if let Some(narrow) = narrow {
            value = self.builder.ins().ireduce(narrow, value);
        }
        let value = self.builder.ins().splat(shape, value);
        self.push_vector(value);
    }

    fn extract(&mut self, shape: Type, lane: u8) -> Value {
        let vector = self.pop_as(shape);
        self.builder.ins().extractlane(vector, lane)
    }

    fn replace(&mut self, shape: Type, narrow: Option<Type>, lane: u8) {
        let mut value = self.pop();
        if let Some(narrow) = narrow {
            value = self.builder.ins().ireduce(narrow, value);
        }
        let vector = self.pop_as(shape);
        let value = self.builder.ins().insertlane(vector, value, lane);
        self.push_vector(value);
    }

    fn lanes(&mut self, op: &Operator<'_>) -> bool {
        use Operator as O;
        let extracted = match op {
            O::V128Const { value } => {
                let constant = self.builder.func.dfg.constants.insert(value.bytes().as_slice().into());
                self.builder.ins().vconst(I8X16, constant)
            }
            O::I8x16ExtractLaneS { lane } => {
                let value = self.extract(I8X16, *lane);
                self.builder.ins().sextend(I32, value)
            }
            O::I8x16ExtractLaneU { lane } => {
                let value = self.extract(I8X16, *lane);
                self.builder.ins().uextend(I32, value)
            }
            O::I16x8ExtractLaneS { lane } => {
                let value = self.extract(I16X8, *lane);
                self.builder.ins().sextend(I32, value)
            }
            O::I16x8ExtractLaneU { lane } => {
                let value = self.extract(I16X8, *lane);
                self.builder.ins().uextend(I32, value)
            }
            O::I32x4ExtractLane { lane } => self.extract(I32X4, *lane),
            O::I64x2ExtractLane { lane } => self.extract(I64X2, *lane),
            O::F32x4ExtractLane { lane } => self.extract(F32X4, *lane),
            O::F64x2ExtractLane { lane } => self.extract(F64X2, *lane),
            _ => return self.placed_lanes(op),
        };
        self.push(extracted);
        true
    }

    fn placed_lanes(&mut self, op: &Operator<'_>) -> bool {
        use Operator as O;
        match op {
            O::I8x16Splat => self.splat(Some(I8), I8X16),
            O::I16x8Splat => self.splat(Some(I16), I16X8),
            O::I32x4Splat => self.splat(None, I32X4),
            O::I64x2Splat => self.splat(None, I64X2),
            O::F32x4Splat => self.splat(None, F32X4),
            O::F64x2Splat => self.splat(None, F64X2),
            O::I8x16ReplaceLane { lane } => self.replace(I8X16, Some(I8), *lane),
            O::I16x8ReplaceLane { lane } => self.replace(I16X8, Some(I16), *lane),
            O::I32x4ReplaceLane { lane } => self.replace(I32X4, None, *lane),
            O::I64x2ReplaceLane { lane } => self.replace(I64X2, None, *lane),
            O::F32x4ReplaceLane { lane } => self.replace(F32X4, None, *lane),
            O::F64x2ReplaceLane { lane } => self.replace(F64X2, None, *lane),
            O::I8x16Shuffle { lanes } => {
                let mask = self.builder.func.dfg.immediates.push(lanes.as_slice().into());
                self.binary(I8X16, |i, a, b| i.shuffle(a, b, mask));
            }
            O::I8x16Swizzle => self.binary(I8X16, |i, a, b| i.swizzle(a, b)),
            O::V128Not => self.unary(I8X16, |i, v| i.bnot(v)),
            O::V128And => self.binary(I8X16, |i, a, b| i.band(a, b)),
            O::V128AndNot => self.binary(I8X16, |i, a, b| i.band_not(a, b)),
            O::V128Or => self.binary(I8X16, |i, a, b| i.bor(a, b)),
            O::V128Xor => self.binary(I8X16, |i, a, b| i.bxor(a, b)),
            O::V128Bitselect => {
                let choose = self.pop();
                self.binary(I8X16, |i, a, b| i.bitselect(choose, a, b));
            }
            O::V128AnyTrue => {
                let value = self.pop();
                let flag = self.builder.ins().vany_true(value);
                self.push_flag(flag);
            }
            O::I8x16AllTrue => self.all_true(I8X16),
            O::I16x8AllTrue => self.all_true(I16X8),
            O::I32x4AllTrue => self.all_true(I32X4),
            O::I64x2AllTrue => self.all_true(I64X2),
            O::I8x16Bitmask => self.bitmask(I8X16),
            O::I16x8Bitmask => self.bitmask(I16X8),
            O::I32x4Bitmask => self.bitmask(I32X4),
            O::I64x2Bitmask => self.bitmask(I64X2),
            _ => return false,
        }
        true
    }

    fn all_true(&mut self, shape: Type) {
        let value = self.pop_as(shape);
        let flag = self.builder.ins().vall_true(value);
        self.push_flag(flag);
    }

    fn bitmask(&mut self, shape: Type) {
        let value = self.pop_as(shape);
        let mask = self.builder.ins().vhigh_bits(I32, value);
        self.push(mask);
    }

    fn vector_comparison(&mut self, op: &Operator<'_>) -> bool {
        use IntCC as C;
        use Operator as O;
        let (shape, code) = match op {
            O::I8x16Eq => (I8X16, C::Equal),
            O::I8x16Ne => (I8X16, C::NotEqual),
            O::I8x16LtS => (I8X16, C::SignedLessThan),
            O::I8x16LtU => (I8X16, C::UnsignedLessThan),
            O::I8x16GtS => (I8X16, C::SignedGreaterThan),
            O::I8x16GtU => (I8X16, C::UnsignedGreaterThan),
            O::I8x16LeS => (I8X16, C::SignedLessThanOrEqual),
            O::I8x16LeU => (I8X16, C::UnsignedLessThanOrEqual),
            O::I8x16GeS => (I8X16, C::SignedGreaterThanOrEqual),
            O::I8x16GeU => (I8X16, C::UnsignedGreaterThanOrEqual),
            O::I16x8Eq => (I16X8, C::Equal),
            O::I16x8Ne => (I16X8, C::NotEqual),
            O::I16x8LtS => (I16X8, C::SignedLessThan),
            O::I16x8LtU => (I16X8, C::UnsignedLessThan),
            O::I16x8GtS => (I16X8, C::SignedGreaterThan),
            O::I16x8GtU => (I16X8, C::UnsignedGreaterThan),
            O::I16x8LeS => (I16X8, C::SignedLessThanOrEqual),
            O::I16x8LeU => (I16X8, C::UnsignedLessThanOrEqual),
            O::I16x8GeS => (I16X8, C::SignedGreaterThanOrEqual),
            O::I16x8GeU => (I16X8, C::UnsignedGreaterThanOrEqual),
            O::I32x4Eq => (I32X4, C::Equal),
            O::I32x4Ne => (I32X4, C::NotEqual),
            O::I32x4LtS => (I32X4, C::SignedLessThan),
            O::I32x4LtU => (I32X4, C::UnsignedLessThan),
            O::I32x4GtS => (I32X4, C::SignedGreaterThan),
            O::I32x4GtU => (I32X4, C::UnsignedGreaterThan),
            O::I32x4LeS => (I32X4, C::SignedLessThanOrEqual),
            O::I32x4LeU => (I32X4, C::UnsignedLessThanOrEqual),
            O::I32x4GeS => (I32X4, C::SignedGreaterThanOrEqual),
            O::I32x4GeU => (I32X4, C::UnsignedGreaterThanOrEqual),
            O::I64x2Eq => (I64X2, C::Equal),
            O::I64x2Ne => (I64X2, C::NotEqual),
            O::I64x2LtS => (I64X2, C::SignedLessThan),
            O::I64x2GtS => (I64X2, C::SignedGreaterThan),
            O::I64x2LeS => (I64X2, C::SignedLessThanOrEqual),
            O::I64x2GeS => (I64X2, C::SignedGreaterThanOrEqual),
            _ => return self.vector_float_comparison(op),
        };
        self.binary(shape, |i, a, b| i.icmp(code, a, b));
        true
    }

    fn vector_float_comparison(&mut self, op: &Operator<'_>) -> bool {
        use FloatCC as C;
        use Operator as O;
        let (shape, code) = match op {
            O::F32x4Eq => (F32X4, C::Equal),
            O::F32x4Ne => (F32X4, C::NotEqual),
            O::F32x4Lt => (F32X4, C::LessThan),
            O::F32x4Gt => (F32X4, C::GreaterThan),
            O::F32x4Le => (F32X4, C::LessThanOrEqual),
            O::F32x4Ge => (F32X4, C::GreaterThanOrEqual),
            O::F64x2Eq => (F64X2, C::Equal),
            O::F64x2Ne => (F64X2, C::NotEqual),
            O::F64x2Lt => (F64X2, C::LessThan),
            O::F64x2Gt => (F64X2, C::GreaterThan),
            O::F64x2Le => (F64X2, C::LessThanOrEqual),
            O::F64x2Ge => (F64X2, C::GreaterThanOrEqual),
            _ => return false,
        };
        self.binary(shape, |i, a, b| i.fcmp(code, a, b));
        true
    }

    fn shift(&mut self, shape: Type, make: impl FnOnce(Ins<'_, 'f>, Value, Value) -> Value) {
        let by = self.pop();
        self.unary(shape, |i, v| make(i, v, by));
    }

    fn vector_integer(&mut self, op: &Operator<'_>) -> bool {
        use Operator as O;
        match op {
            O::I8x16Abs => self.unary(I8X16, |i, v| i.iabs(v)),
            O::I16x8Abs => self.unary(I16X8, |i, v| i.iabs(v)),
            O::I32x4Abs => self.unary(I32X4, |i, v| i.iabs(v)),
            O::I64x2Abs => self.unary(I64X2, |i, v| i.iabs(v)),
            O::I8x16Neg => self.unary(I8X16, |i, v| i.ineg(v)),
            O::I16x8Neg => self.unary(I16X8, |i, v| i.ineg(v)),
            O::I32x4Neg => self.unary(I32X4, |i, v| i.ineg(v)),
            O::I64x2Neg => self.unary(I64X2, |i, v| i.ineg(v)),
            O::I8x16Popcnt => self.unary(I8X16, |i, v| i.popcnt(v)),
            O::I8x16Shl => self.shift(I8X16, |i, v, by| i.ishl(v, by)),
            O::I16x8Shl => self.shift(I16X8, |i, v, by| i.ishl(v, by)),
            O::I32x4Shl => self.shift(I32X4, |i, v, by| i.ishl(v, by)),
            O::I64x2Shl => self.shift(I64X2, |i, v, by| i.ishl(v, by)),
            O::I8x16ShrS => self.shift(I8X16, |i, v, by| i.sshr(v, by)),
            O::I16x8ShrS => self.shift(I16X8, |i, v, by| i.sshr(v, by)),
            O::I32x4ShrS => self.shift(I32X4, |i, v, by| i.sshr(v, by)),
            O::I64x2ShrS => self.shift(I64X2, |i, v, by| i.sshr(v, by)),
            O::I8x16ShrU => self.shift(I8X16, |i, v, by| i.ushr(v, by)),
            O::I16x8ShrU => self.shift(I16X8, |i, v, by| i.ushr(v, by)),
            O::I32x4ShrU => self.shift(I32X4, |i, v, by| i.ushr(v, by)),
            O::I64x2ShrU => self.shift(I64X2, |i, v, by| i.ushr(v, by)),
            O::I8x16Add => self.binary(I8X16, |i, a, b| i.iadd(a, b)),
            O::I16x8Add => self.binary(I16X8, |i, a, b| i.iadd(a, b)),
            O::I32x4Add => self.binary(I32X4, |i, a, b| i.iadd(a, b)),
            O::I64x2Add => self.binary(I64X2, |i, a, b| i.iadd(a, b)),
            O::I8x16Sub => self.binary(I8X16, |i, a, b| i.isub(a, b)),
            O::I16x8Sub => self.binary(I16X8, |i, a, b| i.isub(a, b)),
            O::I32x4Sub => self.binary(I32X4, |i, a, b| i.isub(a, b)),
            O::I64x2Sub => self.binary(I64X2, |i, a, b| i.isub(a, b)),
            O::I16x8Mul => self.binary(I16X8, |i, a, b| i.imul(a, b)),
            O::I32x4Mul => self.binary(I32X4, |i, a, b| i.imul(a, b)),
            O::I64x2Mul => self.binary(I64X2, |i, a, b| i.imul(a, b)),
            O::I8x16AddSatS => self.binary(I8X16, |i, a, b| i.sadd_sat(a, b)),
            O::I8x16AddSatU => self.binary(I8X16, |i, a, b| i.uadd_sat(a, b)),
            O::I8x16SubSatS => self.binary(I8X16, |i, a, b| i.ssub_sat(a, b)),
            O::I8x16SubSatU => self.binary(I8X16, |i, a, b| i.usub_sat(a, b)),
            O::I16x8AddSatS => self.binary(I16X8, |i, a, b| i.sadd_sat(a, b)),
            O::I16x8AddSatU => self.binary(I16X8, |i, a, b| i.uadd_sat(a, b)),
            O::I16x8SubSatS => self.binary(I16X8, |i, a, b| i.ssub_sat(a, b)),
            O::I16x8SubSatU => self.binary(I16X8, |i, a, b| i.usub_sat(a, b)),
            O::I8x16MinS => self.binary(I8X16, |i, a, b| i.smin(a, b)),
            O::I8x16MinU => self.binary(I8X16, |i, a, b| i.umin(a, b)),
            O::I8x16MaxS => self.binary(I8X16, |i, a, b| i.smax(a, b)),
            O::I8x16MaxU => self.binary(I8X16, |i, a, b| i.umax(a, b)),
            O::I16x8MinS => self.binary(I16X8, |i, a, b| i.smin(a, b)),
            O::I16x8MinU => self.binary(I16X8, |i, a, b| i.umin(a, b)),
            O::I16x8MaxS => self.binary(I16X8, |i, a, b| i.smax(a, b)),
            O::I16x8MaxU => self.binary(I16X8, |i, a, b| i.umax(a, b)),
            O::I32x4MinS => self.binary(I32X4, |i, a, b| i.smin(a, b)),
            O::I32x4MinU => self.binary(I32X4, |i, a, b| i.umin(a, b)),
            O::I32x4MaxS => self.binary(I32X4, |i, a, b| i.smax(a, b)),
            O::I32x4MaxU => self.binary(I32X4, |i, a, b| i.umax(a, b)),
            O::I8x16AvgrU => self.binary(I8X16, |i, a, b| i.avg_round(a, b)),
            O::I16x8AvgrU => self.binary(I16X8, |i, a, b| i.avg_round(a, b)),
            O::I16x8Q15MulrSatS => self.binary(I16X8, |i, a, b| i.sqmul_round_sat(a, b)),
            O::I8x16NarrowI16x8S => self.binary(I16X8, |i, a, b| i.snarrow(a, b)),
            O::I8x16NarrowI16x8U => self.binary(I16X8, |i, a, b| i.unarrow(a, b)),
            O::I16x8NarrowI32x4S => self.binary(I32X4, |i, a, b| i.snarrow(a, b)),
            O::I16x8NarrowI32x4U => self.binary(I32X4, |i, a, b| i.unarrow(a, b)),
            _ => return false,
        }
        true
    }

    fn vector_float(&mut self, op: &Operator<'_>) -> bool {
        use Operator as O;
        match op {
            O::F32x4Abs => self.unary(F32X4, |i, v| i.fabs(v)),
            O::F64x2Abs => self.unary(F64X2, |i, v| i.fabs(v)),
            O::F32x4Neg => self.unary(F32X4, |i, v| i.fneg(v)),
            O::F64x2Neg => self.unary(F64X2, |i, v| i.fneg(v)),
            O::F32x4Sqrt => self.unary(F32X4, |i, v| i.sqrt(v)),
            O::F64x2Sqrt => self.unary(F64X2, |i, v| i.sqrt(v)),
            O::F32x4Ceil => self.unary(F32X4, |i, v| i.ceil(v)),
            O::F64x2Ceil => self.unary(F64X2, |i, v| i.ceil(v)),
            O::F32x4Floor => self.unary(F32X4, |i, v| i.floor(v)),
            O::F64x2Floor => self.unary(F64X2, |i, v| i.floor(v)),
            O::F32x4Trunc => self.unary(F32X4, |i, v| i.trunc(v)),
            O::F64x2Trunc => self.unary(F64X2, |i, v| i.trunc(v)),
            O::F32x4Nearest => self.unary(F32X4, |i, v| i.nearest(v)),
            O::F64x2Nearest => self.unary(F64X2, |i, v| i.nearest(v)),
            O::F32x4Add => self.binary(F32X4, |i, a, b| i.fadd(a, b)),
            O::F64x2Add => self.binary(F64X2, |i, a, b| i.fadd(a, b)),
            O::F32x4Sub => self.binary(F32X4, |i, a, b| i.fsub(a, b)),
            O::F64x2Sub => self.binary(F64X2, |i, a, b| i.fsub(a, b)),
            O::F32x4Mul => self.binary(F32X4, |i, a, b| i.fmul(a, b)),
            O::F64x2Mul => self.binary(F64X2, |i, a, b| i.fmul(a, b)),
            O::F32x4Div => self.binary(F32X4, |i, a, b| i.fdiv(a, b)),
            O::F64x2Div => self.binary(F64X2, |i, a, b| i.fdiv(a, b)),
            O::F32x4Min => self.binary(F32X4, |i, a, b| i.fmin(a, b)),
            O::F64x2Min => self.binary(F64X2, |i, a, b| i.fmin(a, b)),
            O::F32x4Max => self.binary(F32X4, |i, a, b| i.fmax(a, b)),
            O::F64x2Max => self.binary(F64X2, |i, a, b| i.fmax(a, b)),
            O::F32x4PMin => self.pseudo(F32X4, |a, b| (b, a)),
            O::F64x2PMin => self.pseudo(F64X2, |a, b| (b, a)),
            O::F32x4PMax => self.pseudo(F32X4, |a, b| (a, b)),
            O::F64x2PMax => self.pseudo(F64X2, |a, b| (a, b)),
            O::F32x4ConvertI32x4S => self.unary(I32X4, |i, v| i.fcvt_from_sint(F32X4, v)),
            O::F32x4ConvertI32x4U => self.unary(I32X4, |i, v| i.fcvt_from_uint(F32X4, v)),
            O::F64x2ConvertLowI32x4S => {
                let value = self.pop_as(I32X4);
                let value = self.builder.ins().swiden_low(value);
                let value = self.builder.ins().fcvt_from_sint(F64X2, value);
                self.push_vector(value);
            }
            O::F64x2ConvertLowI32x4U => {
                let value = self.pop_as(I32X4);
                let value = self.builder.ins().uwiden_low(value);
                let value = self.builder.ins().fcvt_from_uint(F64X2, value);
                self.push_vector(value);
            }
            O::F64x2PromoteLowF32x4 => self.unary(F32X4, |i, v| i.fvpromote_low(v)),
            O::F32x4DemoteF64x2Zero => self.unary(F64X2, |i, v| i.fvdemote(v)),
            O::I32x4TruncSatF32x4S => self.unary(F32X4, |i, v| i.fcvt_to_sint_sat(I32X4, v)),
            O::I32x4TruncSatF32x4U => self.unary(F32X4, |i, v| i.fcvt_to_uint_sat(I32X4, v)),
            O::I32x4TruncSatF64x2SZero => {
                let (value, zero) = self.truncated(|i, v| i.fcvt_to_sint_sat(I64X2, v));
                let value = self.builder.ins().snarrow(value, zero);
                self.push_vector(value);
            }
            O::I32x4TruncSatF64x2UZero => {
                let (value, zero) = self.truncated(|i, v| i.fcvt_to_uint_sat(I64X2, v));
                let value = self.builder.ins().uunarrow(value, zero);
                self.push_vector(value);
            }
            _ => return false,
        }
        true
    }

    fn truncated(&mut self, make: impl FnOnce(Ins<'_, 'f>, Value) -> Value) -> (Value, Value) {
        let value = self.pop_as(F64X2);
        let value = make(self.builder.ins(), value);
        let zero = self.builder.func.dfg.constants.insert([0u8; 16].as_slice().into());
        (value, self.builder.ins().vconst(I64X2, zero))
    }

    /// The pseudo-minimum and -maximum: `second` where `less.0 < less.1`, else `first`.
    fn pseudo(&mut self, shape: Type, less: fn(Value, Value) -> (Value, Value)) {
        let second = self.pop_as(shape);
        let first = self.pop_as(shape);
        let (a, b) = less(first, second);
        let choose = self.builder.ins().fcmp(FloatCC::LessThan, a, b);
        let choose = self.cast(choose, shape);
        let value = self.builder.ins().bitselect(choose, second, first);
        self.push_vector(value);
    }

    fn product(&mut self, shape: Type, widen: impl Fn(Ins<'_, 'f>, Value) -> Value) {
        let second = self.pop_as(shape);
        let first = self.pop_as(shape);
        let a = widen(self.builder.ins(), first);
        let b = widen(self.builder.ins(), second);
        let value = self.builder.ins().imul(a, b);
        self.push_vector(value);
    }

    fn pairwise(&mut self, shape: Type, low: fn(Ins<'_, 'f>, Value) -> Value, high: fn(Ins<'_, 'f>, Value) -> Value) {
        let value = self.pop_as(shape);
        let a = low(self.builder.ins(), value);
        let b = high(self.builder.ins(), value);
        let value = self.builder.ins().iadd_pairwise(a, b);
        self.push_vector(value);
    }

    fn widening(&mut self, op: &Operator<'_>) -> bool {
        use Operator as O;
        match op {
            O::I16x8ExtendLowI8x16S => self.unary(I8X16, |i, v| i.swiden_low(v)),
            O::I16x8ExtendHighI8x16S => self.unary(I8X16, |i, v| i.swiden_high(v)),
            O::I16x8ExtendLowI8x16U => self.unary(I8X16, |i, v| i.uwiden_low(v)),
            O::I16x8ExtendHighI8x16U => self.unary(I8X16, |i, v| i.uwiden_high(v)),
            O::I32x4ExtendLowI16x8S => self.unary(I16X8, |i, v| i.swiden_low(v)),
            O::I32x4ExtendHighI16x8S => self.unary(I16X8, |i, v| i.swiden_high(v)),
            O::I32x4ExtendLowI16x8U => self.unary(I16X8, |i, v| i.uwiden_low(v)),
            O::I32x4ExtendHighI16x8U => self.unary(I16X8, |i, v| i.uwiden_high(v)),
            O::I64x2ExtendLowI32x4S => self.unary(I32X4, |i, v| i.swiden_low(v)),
            O::I64x2ExtendHighI32x4S => self.unary(I32X4, |i, v| i.swiden_high(v)),
            O::I64x2ExtendLowI32x4U => self.unary(I32X4, |i, v| i.uwiden_low(v)),
            O::I64x2ExtendHighI32x4U => self.unary(I32X4, |i, v| i.uwiden_high(v)),
            O::I16x8ExtMulLowI8x16S => self.product(I8X16, |i, v| i.swiden_low(v)),
            O::I16x8ExtMulHighI8x16S => self.product(I8X16, |i, v| i.swiden_high(v)),
            O::I16x8ExtMulLowI8x16U => self.product(I8X16, |i, v| i.uwiden_low(v)),
            O::I16x8ExtMulHighI8x16U => self.product(I8X16, |i, v| i.uwiden_high(v)),
            O::I32x4ExtMulLowI16x8S => self.product(I16X8, |i, v| i.swiden_low(v)),
            O::I32x4ExtMulHighI16x8S => self.product(I16X8, |i, v| i.swiden_high(v)),
            O::I32x4ExtMulLowI16x8U => self.product(I16X8, |i, v| i.uwiden_low(v)),
            O::I32x4ExtMulHighI16x8U => self.product(I16X8, |i, v| i.uwiden_high(v)),
            O::I64x2ExtMulLowI32x4S => self.product(I32X4, |i, v| i.swiden_low(v)),
            O::I64x2ExtMulHighI32x4S => self.product(I32X4, |i, v| i.swiden_high(v)),
            O::I64x2ExtMulLowI32x4U => self.product(I32X4, |i, v| i.uwiden_low(v)),
            O::I64x2ExtMulHighI32x4U => self.product(I32X4, |i, v| i.uwiden_high(v)),
            O::I16x8ExtAddPairwiseI8x16S => self.pairwise(I8X16, |i, v| i.swiden_low(v), |i, v| i.swiden_high(v)),
            O::I16x8ExtAddPairwiseI8x16U => self.pairwise(I8X16, |i, v| i.uwiden_low(v), |i, v| i.uwiden_high(v)),
            O::I32x4ExtAddPairwiseI16x8S => self.pairwise(I16X8, |i, v| i.swiden_low(v), |i, v| i.swiden_high(v)),
            O::I32x4ExtAddPairwiseI16x8U => self.pairwise(I16X8, |i, v| i.uwiden_low(v), |i, v| i.uwiden_high(v)),
            O::I32x4DotI16x8S => {
                let second = self.pop_as(I16X8);
                let first = self.pop_as(I16X8);
                let (a, b) = (
                    self.builder.ins().swiden_low(first),
                    self.builder.ins().swiden_low(second),
                );
                let low = self.builder.ins().imul(a, b);
                let (a, b) = (
                    self.builder.ins().swiden_high(first),
                    self.builder.ins().swiden_high(second),
                );
                let high = self.builder.ins().imul(a, b);
                let value = self.builder.ins().iadd_pairwise(low, high);
                self.push_vector(value);
            }
            _ => return false,
        }
        true
    }
}
