//! The cases, over the module of `sample.wat`.

use alloc::{boxed::Box, format, string::String, string::ToString, sync::Arc, vec::Vec};
use rt::println;
use sip::compile::{Bounds, Cpu, Image, Options, compile};
use sip::exec::{Extern, Program, Store, Val};
use sip::translate::TrapKind;
use sip::verify::verify;

const SAMPLE: &[u8] = include_bytes!("sample.wasm");

type Outcome = Result<(), String>;

fn image() -> Result<Image, String> {
    let options = Options {
        bounds: Bounds::Explicit,
        cpu: Cpu::V2,
    };
    compile(SAMPLE, options).map_err(|refusal| refusal.to_string())
}

struct Process {
    store: Box<Store>,
    instance: usize,
}

impl Process {
    fn new(program: &Arc<Program>) -> Result<Self, String> {
        let mut store = Store::new().map_err(|error| error.to_string())?;
        let instance = store.instantiate(program, &[]).map_err(|error| error.to_string())?;
        Ok(Self { store, instance })
    }

    fn call(&mut self, name: &str, arguments: &[Val]) -> Result<Vec<Val>, TrapKind> {
        let Some(Extern::Func(function)) = self.store.export(self.instance, name) else {
            return Err(TrapKind::Host);
        };
        self.store.call(function, arguments).map_err(|trap| trap.kind)
    }

    fn expect(&mut self, name: &str, arguments: &[Val], expected: &Result<Vec<Val>, TrapKind>) -> Outcome {
        let answer = self.call(name, arguments);
        if answer == *expected {
            Ok(())
        } else {
            Err(format!("{name} {arguments:?}: {answer:?}, not {expected:?}"))
        }
    }
}

fn int(value: i32) -> Val {
    Val::I32(value)
}

fn computes(program: &Arc<Program>) -> Outcome {
    let mut process = Process::new(program)?;
    process.expect("fib", &[int(20)], &Ok(alloc::vec![Val::I64(6765)]))?;
    process.expect("load", &[int(16)], &Ok(alloc::vec![int(i32::from_le_bytes(*b"gond"))]))?;
    process.expect("call", &[int(0), int(21)], &Ok(alloc::vec![int(42)]))?;
    process.expect(
        "root",
        &[Val::F64(0x4022_0000_0000_0000)],
        &Ok(alloc::vec![Val::F64(0x4008_0000_0000_0000)]),
    )
}

fn traps_are_contained(program: &Arc<Program>) -> Outcome {
    let mut process = Process::new(program)?;
    for _ in 0..3 {
        for (name, arguments, trap) in [
            ("unreachable", &[][..], TrapKind::Unreachable),
            ("divide", &[int(1), int(0)], TrapKind::DivisionByZero),
            ("divide", &[int(i32::MIN), int(-1)], TrapKind::IntegerOverflow),
            ("load", &[int(65536)], TrapKind::MemoryBounds),
            ("load", &[int(65533)], TrapKind::MemoryBounds),
            ("store", &[int(-1), int(1)], TrapKind::MemoryBounds),
            ("call", &[int(1), int(1)], TrapKind::NullElement),
            ("call", &[int(2), int(1)], TrapKind::TableBounds),
            ("deep", &[int(0)], TrapKind::StackOverflow),
        ] {
            process.expect(name, arguments, &Err(trap))?;
        }
        // And it goes on.
        process.expect("fib", &[int(10)], &Ok(alloc::vec![Val::I64(55)]))?;
    }
    Ok(())
}

fn memory_grows(program: &Arc<Program>) -> Outcome {
    let mut process = Process::new(program)?;
    process.expect("grow", &[int(1)], &Ok(alloc::vec![int(1)]))?;
    process.expect("store", &[int(131_068), int(7)], &Ok(Vec::new()))?;
    process.expect("load", &[int(131_068)], &Ok(alloc::vec![int(7)]))?;
    process.expect("load", &[int(131_069)], &Err(TrapKind::MemoryBounds))?;
    process.expect("grow", &[int(1)], &Ok(alloc::vec![int(-1)]))
}

fn processes_are_apart(program: &Arc<Program>) -> Outcome {
    let (mut one, mut other) = (Process::new(program)?, Process::new(program)?);
    one.expect("store", &[int(0), int(77)], &Ok(Vec::new()))?;
    one.expect("count", &[], &Ok(alloc::vec![int(1)]))?;
    one.expect("count", &[], &Ok(alloc::vec![int(2)]))?;
    other.expect("load", &[int(0)], &Ok(alloc::vec![int(0)]))?;
    other.expect("count", &[], &Ok(alloc::vec![int(1)]))?;
    one.expect("load", &[int(0)], &Ok(alloc::vec![int(77)]))
}

/// Every function's first instruction overwritten by one that code must not have.
fn bad_code_is_refused(_: &Arc<Program>) -> Outcome {
    let good = image()?;
    for function in &good.functions {
        // hlt; syscall; mov rax, [rsi]; ret too early would be fine, so it is not among them.
        for bad in [&[0xf4][..], &[0x0f, 0x05], &[0x48, 0x8b, 0x06]] {
            let mut image = good.clone();
            let at = function.start as usize;
            image.code[at..at + bad.len()].copy_from_slice(bad);
            if verify(image).is_ok() {
                return Err(format!("{bad:x?} at {at:#x} was accepted"));
            }
        }
    }
    Ok(())
}

fn bad_modules_are_refused(_: &Arc<Program>) -> Outcome {
    let mut refused = 0;
    for at in (8..SAMPLE.len()).step_by(7) {
        let mut bytes = SAMPLE.to_vec();
        bytes[at] ^= 0x55;
        let options = Options {
            bounds: Bounds::Explicit,
            cpu: Cpu::V2,
        };
        match compile(&bytes, options) {
            Err(_) => refused += 1,
            Ok(image) => {
                verify(image).map_err(|violation| format!("byte {at}: {violation}"))?;
            }
        }
    }
    if refused > 5 {
        Ok(())
    } else {
        Err(format!("only {refused} refused"))
    }
}

type Case = (&'static str, fn(&Arc<Program>) -> Outcome);

const CASES: [Case; 6] = [
    ("engine/computes", computes),
    ("engine/traps-are-contained", traps_are_contained),
    ("engine/memory-grows", memory_grows),
    ("engine/processes-are-apart", processes_are_apart),
    ("engine/bad-code-is-refused", bad_code_is_refused),
    ("engine/bad-modules-are-refused", bad_modules_are_refused),
];

/// Runs all cases; how many failed.
pub fn run() -> usize {
    let program = image()
        .and_then(|image| verify(image).map_err(|violation| violation.to_string()))
        .and_then(|image| Program::load(image).map_err(|error| error.to_string()));
    let program = match program {
        Ok(program) => program,
        Err(why) => {
            println!("FAILED engine/compiles: {why}");
            println!("0 passed, 1 failed");
            return 1;
        }
    };
    println!("ok engine/compiles");
    let mut failed = 0;
    for (name, case) in CASES {
        match case(&program) {
            Ok(()) => println!("ok {name}"),
            Err(why) => {
                failed += 1;
                println!("FAILED {name}: {why}");
            }
        }
    }
    println!("{} passed, {failed} failed", CASES.len() + 1 - failed);
    failed
}
