//! Wasmtime as a peer of the engine for isolated processes: `gond sip bench --peer wasmtime` starts this program, names
//! modules to it and asks for samples one at a time, so that its runs stand between ours.
//!
//! It reads requests, a line each, and answers each with a line: numbers with blanks between them, or `error` and a text.
//!
//! | request | answer |
//! |---|---|
//! | `load FILE` | the module's number |
//! | `run NUMBER TIMES` | nanoseconds of one call of `run(TIMES)`, after one of `run(1)`, and its sum |
//! | `instantiate NUMBER TIMES` | nanoseconds of making so many instances and dropping each |
//! | `compile FILE` | nanoseconds of compiling it |
//!
//! Settings are as Wasmtime has them but for what [`settings`] names: neither fuel nor epochs, guard pages around a
//! reserved memory instead of comparisons, Cranelift at `speed`, instructions as the processor has them, compiled on
//! one thread, instances out of a pool. `docs/decisions/0048` says why this is a tool outside of the workspace.

#![forbid(unsafe_code)]

use std::io::{BufRead, Write};
use std::time::Instant;
use wasmtime::{
    Config, Engine, Instance, InstanceAllocationStrategy, InstancePre, Linker, Module, OptLevel,
    PoolingAllocationConfig, Store, TypedFunc,
};

/// A module that was named: ready to be called, and to be instantiated again.
struct Loaded {
    again: InstancePre<()>,
    store: Store<()>,
    run: TypedFunc<i32, i64>,
}

/// The options of the engine. The rest are its defaults, most of which ask for the same: 4 GiB of address space and guard
/// pages for each memory, faults for traps, memories filled by copy-on-write.
fn settings() -> Config {
    let mut pool = PoolingAllocationConfig::new();
    // As many as are live at once, with room. That the pool gives back what an instance has touched is the default, and
    // the quicker way here: to clear it instead (`linear_memory_keep_resident`) took longer for 4 and for 64 KiB.
    pool.total_core_instances(64).total_memories(64).total_tables(64);
    let mut config = Config::new();
    config
        .cranelift_opt_level(OptLevel::Speed)
        .consume_fuel(false)
        .epoch_interruption(false)
        // Our code has no tables for unwinding either.
        .native_unwind_info(false)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

/// The engine and all that was loaded into it.
struct Peer {
    engine: Engine,
    linker: Linker<()>,
    loaded: Vec<Loaded>,
}

type Answer = Result<Vec<u64>, String>;

/// The first line of an error and of what led to it.
fn said(error: &wasmtime::Error) -> String {
    format!("{error:#}").replace('\n', "; ")
}

fn since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Peer {
    fn new() -> Result<Self, String> {
        let engine = Engine::new(&settings()).map_err(|error| said(&error))?;
        Ok(Self {
            linker: Linker::new(&engine),
            engine,
            loaded: Vec::new(),
        })
    }

    fn module(&self, file: &str) -> Result<(Module, u64), String> {
        let bytes = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
        let start = Instant::now();
        let module = Module::new(&self.engine, &bytes).map_err(|error| said(&error))?;
        Ok((module, since(start)))
    }

    fn load(&mut self, file: &str) -> Answer {
        let module = self.module(file)?.0;
        let fail = |error: wasmtime::Error| said(&error);
        let again = self.linker.instantiate_pre(&module).map_err(fail)?;
        let mut store = Store::new(&self.engine, ());
        let instance: Instance = again.instantiate(&mut store).map_err(fail)?;
        let run = instance.get_typed_func(&mut store, "run").map_err(fail)?;
        self.loaded.push(Loaded { again, store, run });
        Ok(vec![self.loaded.len() as u64 - 1])
    }

    fn run(&mut self, number: usize, times: i32) -> Answer {
        let Loaded { store, run, .. } = self.loaded.get_mut(number).ok_or("no such module")?;
        let mut call = |times| run.call(&mut *store, times).map_err(|error| said(&error));
        call(1)?;
        let start = Instant::now();
        let sum = call(times)?;
        Ok(vec![since(start), sum.cast_unsigned()])
    }

    fn instantiate(&self, number: usize, times: i32) -> Answer {
        let Loaded { again, .. } = self.loaded.get(number).ok_or("no such module")?;
        let start = Instant::now();
        for _ in 0..times {
            let mut store = Store::new(&self.engine, ());
            again.instantiate(&mut store).map_err(|error| said(&error))?;
        }
        Ok(vec![since(start)])
    }

    fn answer(&mut self, request: &str) -> Answer {
        let (what, rest) = request.split_once(' ').unwrap_or((request, ""));
        let numbers = || {
            let (number, times) = rest.split_once(' ')?;
            Some((number.parse().ok()?, times.parse().ok()?))
        };
        match (what, numbers()) {
            ("load", _) => self.load(rest),
            ("compile", _) => Ok(vec![self.module(rest)?.1]),
            ("run", Some((number, times))) => self.run(number, times),
            ("instantiate", Some((number, times))) => self.instantiate(number, times),
            _ => Err(format!("'{request}' is no request")),
        }
    }
}

fn main() -> std::io::Result<()> {
    let mut peer = Peer::new();
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let answer = peer
            .as_mut()
            .map_err(|error| error.clone())
            .and_then(|peer| peer.answer(&line));
        match answer {
            Ok(numbers) => {
                let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
                writeln!(output, "{}", words.join(" "))?;
            }
            Err(text) => writeln!(output, "error {text}")?,
        }
        output.flush()?;
    }
    Ok(())
}
