//! The rows.

use super::Figure;
use super::build::{KERNELS, Kernel, Workshop};
use super::peer::{self, Peer};
use sip::compile::{Bounds, Cpu, Image, Options, compile};
use sip::exec::{Exchange, Extern, Group, Pool, Program, Store, Val};
use sip::module::EntityType;
use sip::verify::{check, verify};
use std::io::{Read, Write};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

/// The ways in which a kernel is run beside the machine's. The last is for the peer, which uses what the processor has.
const MODES: [(&str, Options); 3] = [
    // The default of clang: no newer instructions than any x86-64 of this century has.
    ("sip-guard", options(Bounds::Guard, Cpu::V2)),
    ("sip-explicit", options(Bounds::Explicit, Cpu::V2)),
    ("sip-guard-v3", options(Bounds::Guard, Cpu::V3)),
];

const fn options(bounds: Bounds, cpu: Cpu) -> Options {
    Options { bounds, cpu }
}

fn image(bytes: &[u8], options: Options) -> Result<Image, String> {
    compile(bytes, options).map_err(|refusal| refusal.to_string())
}

fn load(bytes: &[u8], options: Options) -> Result<Arc<Program>, String> {
    let image = verify(image(bytes, options)?).map_err(|violation| violation.to_string())?;
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
    fn new(bytes: &[u8], options: Options) -> Result<Self, String> {
        let mut store = Store::new().map_err(|error| error.to_string())?;
        let instance = store
            .instantiate(&load(bytes, options)?, &[])
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

/// Every kernel in every way, and the ratios.
pub fn kernels(workshop: &Workshop, rounds: usize, mut peer: Option<&mut Peer>) -> Result<Vec<Figure>, String> {
    // The newer instructions are for the peer's sake, and where there are any.
    let newer = peer.is_some()
        && std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("bmi2")
        && std::arch::is_x86_feature_detected!("lzcnt");
    let modes = &MODES[..if newer { 3 } else { 2 }];
    let mut ready = Vec::new();
    for kernel in &KERNELS {
        let bytes = workshop.module(kernel)?;
        let mut ours = Vec::new();
        for (_, options) in modes {
            ours.push(Ready::new(&bytes, *options).map_err(|text| format!("{}: {text}", kernel.name))?);
        }
        let theirs = peer.as_mut().map(|peer| peer.load(&workshop.module_file(kernel)));
        ready.push((ours, theirs.transpose()?));
    }
    let mut systems = vec!["native"];
    systems.extend(modes.iter().map(|(mode, _)| *mode));
    systems.extend(peer.is_some().then_some(peer::NAME));
    let mut samples = vec![vec![Vec::new(); systems.len()]; KERNELS.len()];
    for _ in 0..rounds {
        for ((kernel, (ours, theirs)), samples) in KERNELS.iter().zip(&mut ready).zip(&mut samples) {
            let mut round = vec![native(workshop, kernel)?];
            for ready in ours {
                round.push(ready.sample(kernel.times)?);
            }
            if let (Some(peer), Some(module)) = (&mut peer, theirs) {
                round.push(peer.sample(*module, kernel.times)?);
            }
            let expected = round[0].1;
            for (((time, sum), samples), system) in round.into_iter().zip(samples).zip(&systems) {
                if sum != expected {
                    return Err(format!("{}: {sum} in {system}, {expected} on the machine", kernel.name));
                }
                samples.push(time);
            }
        }
    }
    let mut figures = Vec::new();
    let mut medians: Vec<Vec<f64>> = Vec::new();
    for (kernel, samples) in KERNELS.iter().zip(&mut samples) {
        let times: Vec<f64> = samples.iter_mut().map(|samples| median(samples)).collect();
        for (system, time) in systems.iter().zip(&times) {
            let row = format!("kernel-{}", kernel.name);
            figures.push(figure(&row, system, time / f64::from(kernel.times), "ns"));
        }
        medians.push(times);
    }
    let at = |system: &str| systems.iter().position(|known| *known == system);
    for (row, beside) in RATIOS {
        let (Some(above), Some(below)) = (at(row), at(beside)) else {
            continue;
        };
        let logs: f64 = medians.iter().map(|times| (times[above] / times[below]).ln()).sum();
        #[allow(clippy::cast_precision_loss, reason = "eight")]
        figures.push(figure(row, beside, (logs / KERNELS.len() as f64).exp(), "times"));
    }
    Ok(figures)
}

/// The pairs that are compared, by the geometric mean over the kernels that both have run.
const RATIOS: [(&str, &str); 5] = [
    ("sip-guard", "native"),
    ("sip-explicit", "sip-guard"),
    (peer::NAME, "native"),
    ("sip-guard", peer::NAME),
    ("sip-guard-v3", peer::NAME),
];

/// How fast modules become code, and code becomes proved.
#[allow(clippy::cast_precision_loss, reason = "lengths of files")]
pub fn compiler(workshop: &Workshop, rounds: usize, mut peer: Option<&mut Peer>) -> Result<Vec<Figure>, String> {
    let bytes = workshop.large_module()?;
    let a_minute = |time: f64| bytes.len() as f64 / time * 60e3;
    let mut figures = Vec::new();
    let (mut compiled, mut verified) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    let mut theirs = Vec::new();
    for _ in 0..rounds {
        for (at, (_, options)) in MODES[..2].iter().enumerate() {
            let start = Instant::now();
            let image = image(&bytes, *options)?;
            compiled[at].push(a_minute(since(start)));
            let start = Instant::now();
            check(&image).map_err(|violation| violation.to_string())?;
            verified[at].push(image.code.len() as f64 / since(start) * 1e3);
        }
        if let Some(peer) = &mut peer {
            theirs.push(a_minute(peer.compile(&workshop.large_file())?));
        }
    }
    for (at, (mode, _)) in MODES[..2].iter().enumerate() {
        figures.push(figure(
            "sip-compile",
            mode,
            median(&mut compiled[at]),
            "megabytes_a_minute",
        ));
        figures.push(figure(
            "sip-verify",
            mode,
            median(&mut verified[at]),
            "megabytes_a_second",
        ));
    }
    if peer.is_some() {
        figures.push(figure(
            "sip-compile",
            peer::NAME,
            median(&mut theirs),
            "megabytes_a_minute",
        ));
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
        let programs = [load(&modules[0], MODES[0].1)?, load(&modules[1], MODES[0].1)?];
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
pub fn instantiate(workshop: &Workshop, rounds: usize, mut peer: Option<&mut Peer>) -> Result<Vec<Figure>, String> {
    const TIMES: u32 = 300;
    let pool = Pool::new();
    let kernel = &KERNELS[7];
    let program = load(&workshop.module(kernel)?, MODES[0].1)?;
    let module = peer.as_mut().map(|peer| peer.load(&workshop.module_file(kernel)));
    let module = module.transpose()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let start = Instant::now();
        for _ in 0..TIMES {
            let mut store = Store::pooled(&pool).map_err(|error| error.to_string())?;
            store.instantiate(&program, &[]).map_err(|error| error.to_string())?;
        }
        ours.push(since(start) / f64::from(TIMES));
        if let (Some(peer), Some(module)) = (&mut peer, module) {
            theirs.push(peer.instantiate(module, TIMES)? / f64::from(TIMES));
        }
    }
    let mut figures = vec![figure("sip-instantiate", "sip-guard", median(&mut ours), "ns")];
    if peer.is_some() {
        figures.push(figure("sip-instantiate", peer::NAME, median(&mut theirs), "ns"));
    }
    Ok(figures)
}
