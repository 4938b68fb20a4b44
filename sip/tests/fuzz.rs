//! Modules from wasm-smith against wasmi: each compiled in both modes, verified, and its exported
//! functions called with the same arguments in both engines; results, traps and memories must agree.
//! `SIP_FUZZ=from..to` names other seeds than the fixed sample of `cargo test`.
#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::items_after_statements,
    reason = "a test"
)]

use arbitrary::Unstructured;
use sip::compile::{Bounds, Cpu, Options, compile};
use sip::exec::{Extern, Program, Store, Val};
use sip::verify::verify;
use wasm_smith::{Config, Module};

fn bytes(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..24_000)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

fn module(seed: u64) -> Option<Vec<u8>> {
    let config = Config {
        max_imports: 0,
        min_types: 3,
        min_funcs: 4,
        max_data_segments: 1,
        max_element_segments: 2,
        min_memories: 1,
        max_instructions: 400,
        gc_enabled: false,
        exceptions_enabled: false,
        threads_enabled: false,
        relaxed_simd_enabled: false,
        memory64_enabled: false,
        custom_page_sizes_enabled: false,
        wide_arithmetic_enabled: false,
        shared_everything_threads_enabled: false,
        canonicalize_nans: true,
        max_memories: 2,
        max_memory32_bytes: 4 << 20,
        memory_max_size_required: true,
        max_table_elements: 1000,
        table_max_size_required: true,
        export_everything: true,
        allow_start_export: false,
        ..Config::default()
    };
    let mut module = Module::new(config, &mut Unstructured::new(&bytes(seed))).ok()?;
    module.ensure_termination(1000).ok()?;
    Some(module.to_bytes())
}

fn theirs(value: &Val) -> wasmi::Val {
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

/// Bits of a number, with all NaNs alike; `None` for references, whose handles mean nothing.
fn ours_bits(value: &Val) -> Option<u128> {
    Some(match value {
        Val::I32(value) => u128::from(value.cast_unsigned()),
        Val::I64(value) => u128::from(value.cast_unsigned()),
        Val::F32(bits) => u128::from(if f32::from_bits(*bits).is_nan() {
            0x7fc0_0000
        } else {
            *bits
        }),
        Val::F64(bits) => u128::from(if f64::from_bits(*bits).is_nan() {
            0x7ff8 << 48
        } else {
            *bits
        }),
        Val::V128(bits) => *bits,
        Val::FuncRef(_) | Val::ExternRef(_) => return None,
    })
}

fn their_bits(value: &wasmi::Val) -> Option<u128> {
    Some(match value {
        wasmi::Val::I32(value) => u128::from(value.cast_unsigned()),
        wasmi::Val::I64(value) => u128::from(value.cast_unsigned()),
        wasmi::Val::F32(value) => return ours_bits(&Val::F32(value.to_bits())),
        wasmi::Val::F64(value) => return ours_bits(&Val::F64(value.to_bits())),
        wasmi::Val::V128(value) => value.as_u128(),
        _ => return None,
    })
}

/// Runs one seed; says how many calls were compared.
fn compare(seed: u64, bounds: Bounds) -> usize {
    let Some(bytes) = module(seed) else { return 0 };
    let image = match compile(&bytes, Options { bounds, cpu: Cpu::V2 }) {
        Ok(image) => image,
        Err(sip::module::Refusal::Backend { function, reason }) => panic!("seed {seed}: function {function}: {reason}"),
        Err(_) => return 0,
    };
    let module = image.module.clone();
    let verified = verify(image).unwrap_or_else(|violation| panic!("seed {seed}, {bounds:?}: {violation}"));
    let program = Program::load(verified).expect("memory");
    let mut store = Store::new().expect("memory");
    let instance = store.instantiate(&program, &[]);

    let mut config = wasmi::Config::default();
    config.wasm_multi_memory(true);
    let engine = wasmi::Engine::new(&config);
    let Ok(their_module) = wasmi::Module::new(&engine, &bytes[..]) else {
        return 0;
    };
    let mut their_store = wasmi::Store::new(&engine, ());
    let their_instance = wasmi::Linker::<()>::new(&engine).instantiate_and_start(&mut their_store, &their_module);
    assert_eq!(
        instance.is_ok(),
        their_instance.is_ok(),
        "seed {seed}: instantiation: {instance:?}, {their_instance:?}"
    );
    let (Ok(instance), Ok(their_instance)) = (instance, their_instance) else {
        return 1;
    };
    let mut calls = 1;
    for (name, value) in store.exports(instance) {
        let Extern::Func(handle) = value else { continue };
        let ty = store.function_type(handle).expect("a function").clone();
        use sip::module::ValType as T;
        let args: Vec<Val> = ty
            .params
            .iter()
            .enumerate()
            .map(|(at, ty)| match ty {
                T::I32 => Val::I32((seed as i32).wrapping_mul(31).wrapping_add(at as i32)),
                T::I64 => Val::I64(seed.cast_signed().wrapping_mul(0x1_0001).wrapping_add(at as i64)),
                T::F32 => Val::F32((seed as f32 * 1.5).to_bits()),
                T::F64 => Val::F64((seed as f64 * -0.25).to_bits()),
                T::V128 => Val::V128(u128::from(seed).wrapping_mul(0x0101_0000_3f80_0001_4000_0003_0002_0005)),
                T::FuncRef => Val::FuncRef(0),
                T::ExternRef => Val::ExternRef(0),
            })
            .collect();
        let Some(function) = their_instance.get_func(&their_store, &name) else {
            continue;
        };
        let given: Vec<wasmi::Val> = args.iter().map(theirs).collect();
        let mut results = vec![wasmi::Val::I32(0); ty.results.len()];
        let outcome = function.call(&mut their_store, &given, &mut results);
        let ours = store.call(handle, &args);
        // How deep the stack is is each engine's own affair.
        if matches!(&ours, Err(trap) if trap.kind == sip::translate::TrapKind::StackOverflow)
            || matches!(&outcome, Err(error) if error.to_string().contains("stack"))
        {
            return calls;
        }
        assert_eq!(
            ours.is_ok(),
            outcome.is_ok(),
            "seed {seed}: {name}{args:?}: {ours:?}, {outcome:?}"
        );
        if let Ok(ours) = ours {
            let alike = ours.iter().zip(&results).all(|(ours, theirs)| {
                ours_bits(ours)
                    .zip(their_bits(theirs))
                    .is_none_or(|(ours, theirs)| ours == theirs)
            });
            assert!(alike, "seed {seed}: {name}{args:?}: {ours:?}, {results:?}");
        }
        calls += 1;
    }
    let _ = module;
    for (name, value) in store.exports(instance) {
        if let Extern::Memory(memory) = value {
            let theirs = their_instance
                .get_memory(&their_store, &name)
                .expect("the same exports");
            let same = store.memory_bytes(memory).expect("a memory") == theirs.data(&their_store);
            assert!(same, "seed {seed}: memory {name} differs");
        }
    }
    calls
}

#[test]
fn agrees_with_wasmi() {
    let range = std::env::var("SIP_FUZZ").ok().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    let (mut modules, mut calls) = (0u64, 0);
    for seed in range.unwrap_or(0..400) {
        for bounds in [Bounds::Guard, Bounds::Explicit] {
            let compared = compare(seed, bounds);
            modules += u64::from(compared > 0);
            calls += compared;
        }
    }
    println!("{modules} modules, {calls} calls agree");
    assert!(modules > 0);
}

/// Bytes of good modules changed at random: refused or run, never a panic.
#[test]
fn mutated_modules() {
    let (mut refused, mut accepted) = (0, 0);
    for seed in 0..150u64 {
        let Some(mut bytes) = module(seed) else { continue };
        let noise = self::bytes(seed + 7_000_000);
        for pair in noise.chunks(8).take(1 + (seed % 4) as usize) {
            let at = u64::from_le_bytes(pair.try_into().expect("eight")) as usize % bytes.len();
            bytes[at] ^= pair[7] | 1;
        }
        match compile(&bytes, Options::default()) {
            Ok(image) => {
                verify(image).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
                accepted += 1;
            }
            Err(_) => refused += 1,
        }
    }
    println!("{refused} refused, {accepted} accepted and proved");
}
