//! The cases, over the module of `sample.wat`, in both ways to keep accesses inside a memory.

use crate::known::KNOWN;
use crate::platform;
use alloc::{boxed::Box, format, string::String, string::ToString, sync::Arc, vec::Vec};
use rt::{Rights, println};
use sip::compile::{Bounds, Cpu, Image, Options, compile};
use sip::exec::{Extern, Program, Store, Val};
use sip::translate::TrapKind;
use sip::verify::verify;

const SAMPLE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sample.wasm"));

type Outcome = Result<(), String>;

fn image(bounds: Bounds) -> Result<Image, String> {
    compile(SAMPLE, options(bounds)).map_err(|refusal| refusal.to_string())
}

const fn options(bounds: Bounds) -> Options {
    Options { bounds, cpu: Cpu::V2 }
}

fn load(bounds: Bounds) -> Result<Arc<Program>, String> {
    let image = verify(image(bounds)?).map_err(|violation| violation.to_string())?;
    Program::load(image).map_err(|error| error.to_string())
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

    fn expect(&mut self, name: &str, arguments: &[Val], expected: Result<&[Val], TrapKind>) -> Outcome {
        let answer = self.call(name, arguments);
        if answer == expected.map(<[Val]>::to_vec) {
            Ok(())
        } else {
            Err(format!("{name} {arguments:?}: {answer:?}, not {expected:?}"))
        }
    }
}

fn int(value: i32) -> Val {
    Val::I32(value)
}

fn does_what_is_known(program: &Arc<Program>) -> Outcome {
    let mut process = Process::new(program)?;
    for (name, arguments, expected) in KNOWN {
        process.expect(name, arguments, *expected)?;
    }
    Ok(())
}

fn traps_are_contained(program: &Arc<Program>) -> Outcome {
    let mut process = Process::new(program)?;
    // More often than anything could be used up by it.
    for _ in 0..20 {
        for (name, arguments, expected) in KNOWN.iter().filter(|(_, _, expected)| expected.is_err()) {
            process.expect(name, arguments, *expected)?;
        }
        process.expect("fib", &[int(10)], Ok(&[Val::I64(55)]))?;
    }
    Ok(())
}

/// A process that never ends is stopped by another thread, and both it and its program are as good as before.
fn time_is_limited(program: &Arc<Program>) -> Outcome {
    let mut process = Process::new(program)?;
    for _ in 0..3 {
        let code = program.code_range();
        let watch = move || {
            let _ = rt::time::sleep_ms(20);
            u64::from(!platform::set_runnable(&code, Rights::R))
        };
        let watcher = rt::thread::spawn(watch).map_err(|error| error.to_string())?;
        let stopped = process.expect("spin", &[], Err(TrapKind::Interrupted));
        let status = watcher.join_status().map_err(|error| error.to_string())?;
        if status != 0 || !platform::set_runnable(&program.code_range(), Rights::RX) {
            return Err("the right to run was not changed".into());
        }
        stopped?;
        process.expect("fib", &[int(10)], Ok(&[Val::I64(55)]))?;
    }
    Ok(())
}

fn processes_are_apart(program: &Arc<Program>) -> Outcome {
    let (mut one, mut other) = (Process::new(program)?, Process::new(program)?);
    one.expect("store", &[int(0), int(77)], Ok(&[]))?;
    one.expect("count", &[], Ok(&[int(1)]))?;
    one.expect("count", &[], Ok(&[int(2)]))?;
    other.expect("load", &[int(0)], Ok(&[int(0)]))?;
    other.expect("count", &[], Ok(&[int(1)]))?;
    one.expect("load", &[int(0)], Ok(&[int(77)]))
}

/// Reservations go back to the system: more processes one after the other than there is room for at once.
fn processes_end(program: &Arc<Program>) -> Outcome {
    for _ in 0..300 {
        Process::new(program)?.expect("count", &[], Ok(&[int(1)]))?;
    }
    Ok(())
}

/// Every function's first instruction overwritten by one that code must not have.
fn bad_code_is_refused(program: &Arc<Program>) -> Outcome {
    let good = image(program.image().options.bounds)?;
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

fn bad_modules_are_refused(program: &Arc<Program>) -> Outcome {
    let options = program.image().options;
    let mut refused = 0;
    for at in (8..SAMPLE.len()).step_by(7) {
        let mut bytes = SAMPLE.to_vec();
        bytes[at] ^= 0x55;
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

const CASES: [Case; 7] = [
    ("does-what-is-known", does_what_is_known),
    ("traps-are-contained", traps_are_contained),
    ("time-is-limited", time_is_limited),
    ("processes-are-apart", processes_are_apart),
    ("processes-end", processes_end),
    ("bad-code-is-refused", bad_code_is_refused),
    ("bad-modules-are-refused", bad_modules_are_refused),
];

/// Runs all cases; how many failed.
pub fn run() -> usize {
    let (mut passed, mut failed) = (0, 0);
    let mut note = |mode: &str, name: &str, outcome: Outcome| match outcome {
        Ok(()) => {
            passed += 1;
            println!("ok {mode}/{name}");
        }
        Err(why) => {
            failed += 1;
            println!("FAILED {mode}/{name}: {why}");
        }
    };
    for (mode, bounds) in [("guard", Bounds::Guard), ("explicit", Bounds::Explicit)] {
        match load(bounds) {
            Ok(program) => {
                note(mode, "compiles", Ok(()));
                for (name, case) in CASES {
                    note(mode, name, case(&program));
                }
            }
            Err(why) => note(mode, "compiles", Err(why)),
        }
    }
    println!("{passed} passed, {failed} failed");
    failed
}
