//! Calls of the sample's functions, one after the other in one instance, and what they yield. wasmi says the
//! same on the host (`sip/tests/sample.rs`).

use sip::exec::Val;
use sip::translate::TrapKind;

/// A call of an exported function: its name, its arguments, its results or the trap that ends it.
pub type Known = (&'static str, &'static [Val], Result<&'static [Val], TrapKind>);

const fn int(value: i32) -> Val {
    Val::I32(value)
}

const fn float(value: f64) -> Val {
    Val::F64(value.to_bits())
}

/// In their order.
pub const KNOWN: &[Known] = &[
    ("fib", &[int(20)], Ok(&[Val::I64(6765)])),
    ("load", &[int(16)], Ok(&[int(i32::from_le_bytes(*b"gond"))])),
    ("call", &[int(0), int(21)], Ok(&[int(42)])),
    ("root", &[float(9.0)], Ok(&[float(3.0)])),
    ("truncate", &[float(-7.9)], Ok(&[int(-7)])),
    ("lanes", &[int(7)], Ok(&[int(30_247)])),
    ("primes", &[int(50_000)], Ok(&[int(5133)])),
    (
        "stir",
        &[Val::I64(1), int(100_000)],
        Ok(&[Val::I64(-5_148_215_721_143_182_993)]),
    ),
    ("fill", &[int(100), int(7), int(8)], Ok(&[])),
    ("copy", &[int(102), int(100), int(6)], Ok(&[])),
    ("load", &[int(102)], Ok(&[int(0x0707_0707)])),
    ("count", &[], Ok(&[int(1)])),
    ("count", &[], Ok(&[int(2)])),
    ("unreachable", &[], Err(TrapKind::Unreachable)),
    ("divide", &[int(1), int(0)], Err(TrapKind::DivisionByZero)),
    ("divide", &[int(i32::MIN), int(-1)], Err(TrapKind::IntegerOverflow)),
    ("truncate", &[float(f64::NAN)], Err(TrapKind::BadConversion)),
    ("load", &[int(65_532)], Ok(&[int(0)])),
    ("load", &[int(65_533)], Err(TrapKind::MemoryBounds)),
    ("load", &[int(65_536)], Err(TrapKind::MemoryBounds)),
    ("load far", &[int(0xffff)], Err(TrapKind::MemoryBounds)),
    ("load far", &[int(-1)], Err(TrapKind::MemoryBounds)),
    ("store", &[int(-1), int(1)], Err(TrapKind::MemoryBounds)),
    ("store", &[int(i32::MIN), int(1)], Err(TrapKind::MemoryBounds)),
    ("fill", &[int(65_530), int(1), int(7)], Err(TrapKind::MemoryBounds)),
    ("call", &[int(1), int(1)], Err(TrapKind::NullElement)),
    ("call", &[int(2), int(1)], Err(TrapKind::BadSignature)),
    ("call", &[int(4), int(1)], Err(TrapKind::TableBounds)),
    ("deep", &[int(0)], Err(TrapKind::StackOverflow)),
    ("fib", &[int(10)], Ok(&[Val::I64(55)])),
    ("count", &[], Ok(&[int(3)])),
    ("grow", &[int(1)], Ok(&[int(1)])),
    ("store", &[int(131_068), int(7)], Ok(&[])),
    ("load", &[int(131_068)], Ok(&[int(7)])),
    ("load", &[int(131_069)], Err(TrapKind::MemoryBounds)),
    ("grow", &[int(1)], Ok(&[int(-1)])),
];
