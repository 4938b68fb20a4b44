//! Modules from wasm-smith, and changed ones, against wasmi: each compiled, verified, and its exported
//! functions called with the same arguments in both engines; results, traps and memories must agree.
//! `SIP_FUZZ=from..to` names other seeds than the fixed sample of `cargo test`, for either test;
//! `fuzz-runs.txt` says which have been run.
#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::items_after_statements,
    reason = "a test"
)]

#[path = "support/theirs.rs"]
mod support;

use arbitrary::Unstructured;
use sip::compile::{Bounds, Cpu, Options, compile};
use sip::exec::{Extern, Program, Store, Val};
use sip::verify::verify;
use support::theirs;
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

/// A module of wasm-smith's, at most of about so many instructions in a function.
fn module(seed: u64, instructions: usize) -> Option<Vec<u8>> {
    let config = Config {
        max_imports: 0,
        min_types: 3,
        min_funcs: 4,
        max_funcs: instructions.div_ceil(4),
        max_data_segments: 1,
        max_element_segments: 2,
        min_memories: 1,
        max_instructions: instructions,
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

/// How one module came out.
#[derive(Default)]
struct Counts {
    modules: u64,
    refused: u64,
    proved: u64,
    calls: u64,
}

/// Fuel for wasmi at instantiation and at each call: a changed module may run for ever.
const FUEL: u64 = 1_000_000;

/// Whether a module is small enough for wasmi, which allocates what is declared.
fn is_small(module: &sip::module::Module) -> bool {
    let memories = module
        .memories
        .iter()
        .all(|limits| limits.max.is_some_and(|max| max <= 256));
    memories
        && module
            .tables
            .iter()
            .all(|table| table.limits.max.is_some_and(|max| max <= 10_000))
}

/// Compiles and proves a module and compares what it does with what wasmi does; counts the calls.
fn compare(seed: u64, bytes: &[u8], bounds: Bounds, counts: &mut Counts) {
    counts.modules += 1;
    let image = match compile(bytes, Options { bounds, cpu: Cpu::V2 }) {
        Ok(image) => image,
        Err(sip::module::Refusal::Backend { function, reason }) => panic!("seed {seed}: function {function}: {reason}"),
        Err(_) => {
            counts.refused += 1;
            return;
        }
    };
    let module = image.module.clone();
    let verified = verify(image).unwrap_or_else(|violation| panic!("seed {seed}, {bounds:?}: {violation}"));
    counts.proved += 1;
    if is_small(&module) {
        counts.calls += run_both(seed, bytes, verified);
    }
}

/// How wasmi's part ended: out of fuel is no answer, and the stack is each engine's own affair.
fn is_no_answer(error: &wasmi::Error) -> bool {
    let text = error.to_string();
    text.contains("fuel") || text.contains("stack")
}

fn run_both(seed: u64, bytes: &[u8], verified: sip::verify::Verified) -> u64 {
    let mut config = wasmi::Config::default();
    config.wasm_multi_memory(true).consume_fuel(true);
    let engine = wasmi::Engine::new(&config);
    let Ok(their_module) = wasmi::Module::new(&engine, bytes) else {
        return 0;
    };
    let mut their_store = wasmi::Store::new(&engine, ());
    their_store.set_fuel(FUEL).expect("fuel is on");
    let their_instance = wasmi::Linker::<()>::new(&engine).instantiate_and_start(&mut their_store, &their_module);
    if matches!(&their_instance, Err(error) if is_no_answer(error)) {
        return 0;
    }
    let program = Program::load(verified).expect("memory");
    let mut store = Store::new().expect("memory");
    let instance = store.instantiate(&program, &[]);
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
        their_store.set_fuel(FUEL).expect("fuel is on");
        let outcome = function.call(&mut their_store, &given, &mut results);
        if matches!(&outcome, Err(error) if is_no_answer(error)) {
            return calls;
        }
        let ours = store.call(handle, &args);
        if matches!(&ours, Err(trap) if trap.kind == sip::translate::TrapKind::StackOverflow) {
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

/// The seeds that `SIP_FUZZ` names, or those of the fixed sample.
fn seeds(sample: u64) -> std::ops::Range<u64> {
    let given = std::env::var("SIP_FUZZ").ok().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    given.unwrap_or(0..sample)
}

fn tell(what: &str, counts: &Counts) {
    let Counts {
        modules,
        refused,
        proved,
        calls,
    } = counts;
    println!("{modules} {what}: {refused} refused, {proved} proved, {calls} calls agree");
    assert!(*proved > 0 && *calls > 0);
}

/// Bytes of the stack on which modules run: wasmi stands on it once for each `memory.grow` that a loop does.
const STACK: usize = 1 << 30;

/// Runs a test on a thread with a stack of that size.
fn on_a_large_stack(test: fn()) {
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(test);
    if let Err(panic) = thread.expect("a thread").join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn agrees_with_wasmi() {
    on_a_large_stack(agrees);
}

fn agrees() {
    let mut counts = Counts::default();
    for seed in seeds(400) {
        let Some(bytes) = module(seed, 400) else { continue };
        for bounds in [Bounds::Guard, Bounds::Explicit] {
            compare(seed, &bytes, bounds, &mut counts);
        }
    }
    tell("modules", &counts);
}

/// Changed modules of one good one.
const MUTANTS: usize = 32;

/// Some bytes of a module changed, or overwritten by others of it.
fn change(bytes: &mut [u8], noise: &[u8]) {
    let word = |at: usize| usize::from(u16::from_le_bytes([noise[at], noise[at + 1]]));
    for turn in 0..=usize::from(noise[0] % 3) {
        let noise = 1 + turn * 8;
        let (to, from) = (8 + word(noise) % (bytes.len() - 8), word(noise + 2) % bytes.len());
        match word(noise + 4) % 4 {
            0 => {
                let count = (1 + word(noise + 6) % 12).min(bytes.len() - to.max(from));
                bytes.copy_within(from..from + count, to);
            }
            1 => bytes[to] = [0, 1, 0x7f, 0x80, 0xff, 0x40, 0x0b, 0x20][word(noise + 6) % 8],
            2 => bytes[to] = bytes[to].wrapping_add(1),
            _ => bytes[to] ^= 1 << (word(noise + 6) % 8),
        }
    }
}

/// Small modules with some bytes changed at random: refused, or they do what they do in wasmi.
#[test]
fn mutated_modules() {
    on_a_large_stack(mutated);
}

fn mutated() {
    let mut counts = Counts::default();
    for seed in seeds(40) {
        let Some(good) = module(seed, 40) else { continue };
        let noise = bytes(seed + 7_000_000);
        for (number, noise) in noise.chunks_exact(32).take(MUTANTS).enumerate() {
            let mut bytes = good.clone();
            change(&mut bytes, noise);
            let bounds = [Bounds::Guard, Bounds::Explicit][number % 2];
            compare(seed, &bytes, bounds, &mut counts);
        }
    }
    tell("changed modules", &counts);
}
