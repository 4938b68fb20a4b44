//! The module that runs inside the system (`tests/engine`): that wasmi and this engine both yield what
//! `known.rs` says. So what the system is compared with is no opinion of this engine's.

#[path = "../../tests/engine/src/known.rs"]
mod known;
#[path = "support/theirs.rs"]
mod support;

use known::KNOWN;
use sip::compile::{Bounds, Options, compile};
use sip::exec::{Extern, Program, Store, Val};
use sip::translate::TrapKind;
use sip::verify::verify;
use support::theirs;

fn sample() -> Vec<u8> {
    wat::parse_str(include_str!("../../tests/engine/src/sample.wat")).expect("a good text")
}

/// In one form for both.
fn ours(value: &wasmi::Val) -> Val {
    match value {
        wasmi::Val::I32(value) => Val::I32(*value),
        wasmi::Val::I64(value) => Val::I64(*value),
        wasmi::Val::F32(value) => Val::F32(value.to_bits()),
        wasmi::Val::F64(value) => Val::F64(value.to_bits()),
        other => panic!("{other:?}"),
    }
}

fn kind(error: &wasmi::Error) -> TrapKind {
    use wasmi::TrapCode as Code;
    match error.as_trap_code().expect("a trap") {
        Code::UnreachableCodeReached => TrapKind::Unreachable,
        Code::MemoryOutOfBounds => TrapKind::MemoryBounds,
        Code::TableOutOfBounds => TrapKind::TableBounds,
        Code::IndirectCallToNull => TrapKind::NullElement,
        Code::IntegerDivisionByZero => TrapKind::DivisionByZero,
        Code::IntegerOverflow => TrapKind::IntegerOverflow,
        Code::BadConversionToInteger => TrapKind::BadConversion,
        Code::StackOverflow => TrapKind::StackOverflow,
        Code::BadSignature => TrapKind::BadSignature,
        other => panic!("{other:?}"),
    }
}

#[test]
fn wasmi_yields_what_is_known() {
    let engine = wasmi::Engine::default();
    let module = wasmi::Module::new(&engine, sample()).expect("valid");
    let mut store = wasmi::Store::new(&engine, ());
    let instance = wasmi::Linker::<()>::new(&engine)
        .instantiate_and_start(&mut store, &module)
        .expect("it starts");
    for (name, arguments, expected) in KNOWN {
        let function = instance.get_func(&store, name).expect("exported");
        let arguments_given: Vec<_> = arguments.iter().map(theirs).collect();
        let mut results = vec![wasmi::Val::I32(0); function.ty(&store).results().len()];
        let outcome = function
            .call(&mut store, &arguments_given, &mut results)
            .map_err(|error| kind(&error))
            .map(|()| results.iter().map(ours).collect::<Vec<_>>());
        assert_eq!(outcome, expected.map(<[Val]>::to_vec), "{name} {arguments:?}");
    }
}

#[test]
fn this_engine_yields_what_is_known() {
    for bounds in [Bounds::Guard, Bounds::Explicit] {
        let options = Options {
            bounds,
            ..Options::default()
        };
        let image = compile(&sample(), options).expect("it compiles");
        let program = Program::load(verify(image).expect("it is proved")).expect("memory");
        let mut store = Store::new().expect("memory");
        let instance = store.instantiate(&program, &[]).expect("it starts");
        for (name, arguments, expected) in KNOWN {
            let Some(Extern::Func(function)) = store.export(instance, name) else {
                panic!("{name} is not exported");
            };
            let outcome = store.call(function, arguments).map_err(|trap| trap.kind);
            assert_eq!(
                outcome,
                expected.map(<[Val]>::to_vec),
                "{bounds:?}: {name} {arguments:?}"
            );
        }
    }
}
