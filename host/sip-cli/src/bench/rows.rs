//! The rows.

use super::Figure;
use super::build::{KERNELS, Kernel, Workshop};
use sip::compile::{Bounds, Cpu, Image, Options, compile};
use sip::exec::{Exchange, Extern, Group, Pool, Program, Store, Val};
use sip::module::EntityType;
use sip::verify::{check, verify};
use std::io::{Read, Write};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

const MODES: [(&str, Bounds); 2] = [("sip-guard", Bounds::Guard), ("sip-explicit", Bounds::Explicit)];

fn options(bounds: Bounds) -> Options {
    // What clang does by default: no newer instructions than any x86-64 of this century has.
    Options { bounds, cpu: Cpu::V2 }
}

fn image(bytes: &[u8], bounds: Bounds) -> Result<Image, String> {
    compile(bytes, options(bounds)).map_err(|refusal| refusal.to_string())
}

fn load(bytes: &[u8], bounds: Bounds) -> Result<Arc<Program>, String> {
    let image = verify(image(bytes, bounds)?).map_err(|violation| violation.to_string())?;
    Program::load(image).map_err(|error| error.to_string())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn figure(row: &str, system: &str, value: f64, unit: &'static str) -> Figure {
    Figure {
        row: row.into(),
        system: system.into(),
        value,
        unit,
    }
}

#[allow(clippy::cast_precision_loss, reason = "times of seconds, in nanoseconds")]
fn since(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64
}

/// A kernel in one store, ready to be called.
struct Ready {
    store: Box<Store>,
    run: u64,
}

impl Ready {
    fn new(bytes: &[u8], bounds: Bounds) -> Result<Self, String> {
        let mut store = Store::new().map_err(|error| error.to_string())?;
        let instance = store
            .instantiate(&load(bytes, bounds)?, &[])
            .map_err(|error| error.to_string())?;
        let Some(Extern::Func(run)) = store.export(instance, "run") else {
            return Err("the kernel exports no 'run'".into());
        };
        Ok(Self { store, run })
    }

    fn run(&mut self, times: u32) -> Result<u64, String> {
        let result = self.store.call(self.run, &[Val::I32(times.cast_signed())]);
        match result.map_err(|trap| trap.to_string())?[..] {
            [Val::I64(sum)] => Ok(sum.cast_unsigned()),
            _ => Err("the kernel yields no sum".into()),
        }
    }

    fn sample(&mut self, times: u32) -> Result<(f64, u64), String> {
        self.run(1)?;
        let start = Instant::now();
        let sum = self.run(times)?;
        Ok((since(start), sum))
    }
}

fn native(workshop: &Workshop, kernel: &Kernel) -> Result<(f64, u64), String> {
    let output = Command::new(workshop.native(kernel))
        .arg(kernel.times.to_string())
        .output();
    let output = output.map_err(|error| format!("{}: {error}", kernel.name))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace();
    let time = words.next().and_then(|word| word.parse().ok());
    let sum = words.next().and_then(|word| word.parse().ok());
    time.zip(sum)
        .ok_or_else(|| format!("{}: it printed '{}'", kernel.name, text.trim()))
}

/// Every kernel in all three ways, and the ratios.
pub fn kernels(workshop: &Workshop, rounds: usize) -> Result<Vec<Figure>, String> {
    let mut ready = Vec::new();
    for kernel in &KERNELS {
        let bytes = workshop.module(kernel)?;
        let mut both = Vec::new();
        for (_, bounds) in MODES {
            both.push(Ready::new(&bytes, bounds).map_err(|text| format!("{}: {text}", kernel.name))?);
        }
        ready.push(both);
    }
    let mut samples = vec![[const { Vec::new() }; 3]; KERNELS.len()];
    for _ in 0..rounds {
        for ((kernel, ready), samples) in KERNELS.iter().zip(&mut ready).zip(&mut samples) {
            let (time, sum) = native(workshop, kernel)?;
            samples[0].push(time);
            for (at, ready) in ready.iter_mut().enumerate() {
                let (time, ours) = ready.sample(kernel.times)?;
                if ours != sum {
                    return Err(format!(
                        "{}: {ours} in {}, {sum} on the machine",
                        kernel.name, MODES[at].0
                    ));
                }
                samples[at + 1].push(time);
            }
        }
    }
    let mut figures = Vec::new();
    let mut logs = [0.0; 2];
    for (kernel, samples) in KERNELS.iter().zip(&mut samples) {
        let [native, guard, explicit] = samples.each_mut().map(|samples| median(samples));
        logs[0] += (guard / native).ln();
        logs[1] += (explicit / guard).ln();
        let row = format!("kernel-{}", kernel.name);
        for (system, time) in [("native", native), ("sip-guard", guard), ("sip-explicit", explicit)] {
            figures.push(figure(&row, system, time / f64::from(kernel.times), "ns"));
        }
    }
    #[allow(clippy::cast_precision_loss, reason = "eight")]
    let [guard, explicit] = logs.map(|log| (log / KERNELS.len() as f64).exp());
    figures.push(figure("sip-guard", "native", guard, "times"));
    figures.push(figure("sip-explicit", "sip-guard", explicit, "times"));
    Ok(figures)
}

/// How fast modules become code, and code becomes proved.
#[allow(clippy::cast_precision_loss, reason = "lengths of files")]
pub fn compiler(workshop: &Workshop, rounds: usize) -> Result<Vec<Figure>, String> {
    let bytes = workshop.large_module()?;
    let mut figures = Vec::new();
    for (mode, bounds) in MODES {
        let (mut compiled, mut verified) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let start = Instant::now();
            let image = image(&bytes, bounds)?;
            compiled.push(bytes.len() as f64 / since(start) * 60e3);
            let start = Instant::now();
            check(&image).map_err(|violation| violation.to_string())?;
            verified.push(image.code.len() as f64 / since(start) * 1e3);
        }
        figures.push(figure("sip-compile", mode, median(&mut compiled), "megabytes_a_minute"));
        figures.push(figure("sip-verify", mode, median(&mut verified), "megabytes_a_second"));
    }
    Ok(figures)
}

/// A block to and fro between two processes on one thread, small and large; and a byte between two
/// threads through pipes.
pub fn messages(workshop: &Workshop, rounds: usize) -> Result<Vec<Figure>, String> {
    const TRIPS: u32 = 500_000;
    let mut figures = Vec::new();
    let mut sizes = Vec::new();
    for bytes in [1, 1 << 20] {
        let modules = workshop.echo_modules(bytes, TRIPS)?;
        let programs = [load(&modules[0], Bounds::Guard)?, load(&modules[1], Bounds::Guard)?];
        sizes.push((bytes, programs, Vec::new()));
    }
    let mut samples = Vec::new();
    for _ in 0..rounds {
        for (_, programs, samples) in &mut sizes {
            samples.push(echo(workshop, programs)? / f64::from(TRIPS));
        }
        samples.push(pipes().map_err(|error| format!("pipes: {error}"))?);
    }
    for (bytes, _, samples) in &mut sizes {
        let row = format!("sip-message-round-trip-{bytes}");
        figures.push(figure(&row, "sip-guard", median(samples), "ns"));
    }
    figures.push(figure("sip-message-round-trip-1", "pipe", median(&mut samples), "ns"));
    Ok(figures)
}

fn echo(workshop: &Workshop, programs: &[Arc<Program>; 2]) -> Result<f64, String> {
    let heap = Exchange::new(4 << 20, 64, 4).map_err(|error| error.to_string())?;
    let mut group = Group::new(&heap);
    for program in programs {
        let process = group.add().map_err(|error| error.to_string())?;
        let store = group.store(process);
        store.offer(&workshop.echo);
        let module = &program.image().module;
        let mut imports = Vec::new();
        for import in &module.imports {
            let EntityType::Func(ty) = import.ty else {
                return Err(format!("{} is no function", import.name));
            };
            let met = store.service(&import.module, &import.name, &module.types[ty as usize]);
            imports.push(met.ok_or_else(|| format!("{} is unknown", import.module))??);
        }
        let instance = store
            .instantiate(program, &imports)
            .map_err(|error| error.to_string())?;
        if let Some(Extern::Func(run)) = store.export(instance, "run") {
            group.start(process, run);
        }
    }
    group
        .connect(&workshop.echo, 0, 1)
        .map_err(|error| error.message().to_string())?;
    let start = Instant::now();
    for outcome in group.run() {
        outcome.map_err(|trap| trap.to_string())?;
    }
    Ok(since(start))
}

fn pipes() -> std::io::Result<f64> {
    const TRIPS: u32 = 5_000;
    let (mut there, mut to) = std::io::pipe()?;
    let (mut from, mut back) = std::io::pipe()?;
    let peer = std::thread::spawn(move || {
        let mut byte = [0];
        while there.read_exact(&mut byte).is_ok() && back.write_all(&byte).is_ok() {}
    });
    let mut byte = [0];
    let start = Instant::now();
    for _ in 0..TRIPS {
        to.write_all(&byte)?;
        from.read_exact(&mut byte)?;
    }
    let spent = since(start) / f64::from(TRIPS);
    drop(to);
    let _ = peer.join();
    Ok(spent)
}

/// A process out of a loaded image, until it can be called; with the end of it.
pub fn instantiate(workshop: &Workshop, rounds: usize) -> Result<Vec<Figure>, String> {
    const TIMES: u32 = 300;
    let pool = Pool::new();
    let program = load(&workshop.module(&KERNELS[7])?, Bounds::Guard)?;
    let mut samples = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        for _ in 0..TIMES {
            let mut store = Store::pooled(&pool).map_err(|error| error.to_string())?;
            store.instantiate(&program, &[]).map_err(|error| error.to_string())?;
        }
        samples.push(since(start) / f64::from(TIMES));
    }
    Ok(vec![figure("sip-instantiate", "sip-guard", median(&mut samples), "ns")])
}
