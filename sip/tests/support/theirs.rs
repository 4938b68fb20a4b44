//! Values as wasmi has them.

use sip::exec::Val;

/// A value of wasmi's; references are null.
pub fn theirs(value: &Val) -> wasmi::Val {
    match value {
        Val::I32(value) => wasmi::Val::I32(*value),
        Val::I64(value) => wasmi::Val::I64(*value),
        Val::F32(bits) => wasmi::Val::F32(wasmi::F32::from_bits(*bits)),
        Val::F64(bits) => wasmi::Val::F64(wasmi::F64::from_bits(*bits)),
        Val::V128(bits) => wasmi::Val::V128((*bits).into()),
        Val::FuncRef(_) => wasmi::Val::default_for_ty(wasmi::ValType::FuncRef),
        Val::ExternRef(_) => wasmi::Val::default_for_ty(wasmi::ValType::ExternRef),
    }
}
