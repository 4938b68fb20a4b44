//! The memory that one message and its answer, or one protected call and its return, touch in the kernel: a warm round trip
//! (the rows `ipc-round-trip` and `pdx-round-trip`) in single steps, each instruction decoded, its own bytes and those that it
//! reads and writes collected.
//!
//! The steps are taken over the protocol that GDB speaks with QEMU, which needs no GDB. Counted are instructions in the
//! kernel's half of the addresses only, and what they name in memory; what the processor reads by itself (page tables when
//! a root is loaded, descriptors) is not.

use crate::machine::{Machine, Wiring};
use crate::place::Scratch;
use crate::script::{self, Patience, Source};
use crate::{bare, build, image};
use anyhow::{Context, Result, bail};
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess, Register};
use object::{Object, ObjectSymbol};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a cache line.
const LINE: u64 = 64;
/// Where the kernel's half of the addresses begins.
const KERNEL: u64 = 1 << 63;
/// Round trips that pass before one is looked at: the benchmark's own warming up and then some.
const PASSED: usize = 200;
/// System calls of a round trip: the client's call, the server's reply-and-wait; or a protected call and its return.
const CALLS: usize = 2;
/// Steps that a round trip takes at most; it takes some two hundred.
const STEPS_MAX: usize = 100_000;
/// The longest instruction, in bytes.
const INSTRUCTION: usize = 15;
/// Registers in QEMU's answer, 8 bytes each: the general ones in this order, then `rip`.
const GENERAL: [Register; 16] = [
    Register::RAX,
    Register::RBX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::RBP,
    Register::RSP,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];
const RIP: usize = GENERAL.len() * 8;
/// Behind them the flags and six selectors, 4 bytes each, then the bases of FS and GS.
const FS_BASE: usize = RIP + 8 + 7 * 4;
const GS_BASE: usize = FS_BASE + 8;

/// The round trip that is watched.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RoundTrip {
    /// A message and its answer, between two threads of the bare µ-kernel.
    Message,
    /// A protected call and its return.
    ProtectedCall,
}

impl RoundTrip {
    /// Its name in `--json`: the row that measures its instructions.
    pub fn row(self) -> &'static str {
        match self {
            Self::Message => "ipc-round-trip",
            Self::ProtectedCall => "pdx-round-trip",
        }
    }

    /// The kernel's entry, and the number of the call that begins it.
    fn begins(self) -> (&'static str, u64) {
        match self {
            Self::Message => (
                "kernel::arch::x86_64::syscall::entry_bare",
                abi::nucleus::Call::Ipc as u64,
            ),
            Self::ProtectedCall => ("kernel::arch::x86_64::syscall::entry_inside", abi::Call::PdxCall as u64),
        }
    }
}

/// A connection to QEMU that speaks GDB's protocol.
struct Remote {
    stream: BufReader<TcpStream>,
}

impl Remote {
    fn connect(port: u16) -> Result<Self> {
        let started = Instant::now();
        loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(Duration::from_mins(5)))?;
                    let stream = BufReader::new(stream);
                    return Ok(Self { stream });
                }
                Err(error) if started.elapsed() > Duration::from_mins(1) => {
                    return Err(error).context("QEMU does not listen for a debugger");
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn byte(&mut self) -> Result<u8> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte).context("QEMU does not answer")?;
        Ok(byte[0])
    }

    /// Asks, and gives the answer.
    fn ask(&mut self, what: &str) -> Result<String> {
        let sum = what.bytes().fold(0_u8, u8::wrapping_add);
        write!(self.stream.get_mut(), "${what}#{sum:02x}")?;
        while self.byte()? != b'$' {}
        let mut answer = String::new();
        loop {
            match self.byte()? {
                b'#' => break,
                byte => answer.push(byte.into()),
            }
        }
        // Its checksum: the line loses nothing.
        self.byte()?;
        self.byte()?;
        self.stream.get_mut().write_all(b"+")?;
        if answer.starts_with('E') {
            bail!("QEMU refuses '{what}': {answer}");
        }
        Ok(answer)
    }

    fn bytes(&mut self, what: &str) -> Result<Vec<u8>> {
        let answer = self.ask(what)?;
        let digits = answer.as_bytes().chunks_exact(2);
        digits
            .map(|two| Ok(u8::from_str_radix(std::str::from_utf8(two)?, 16)?))
            .collect()
    }

    fn registers(&mut self) -> Result<Registers> {
        let bytes = self.bytes("g")?;
        if bytes.len() < GS_BASE + 8 {
            bail!("QEMU tells of too few registers");
        }
        Ok(Registers(bytes))
    }
}

/// The registers of the processor.
struct Registers(Vec<u8>);

impl Registers {
    fn word(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.0[at..at + 8]);
        u64::from_le_bytes(word)
    }

    fn rip(&self) -> u64 {
        self.word(RIP)
    }

    /// A register by name; a segment's is its base.
    fn get(&self, register: Register) -> Option<u64> {
        match register {
            Register::FS => return Some(self.word(FS_BASE)),
            Register::GS => return Some(self.word(GS_BASE)),
            _ if register.is_segment_register() => return Some(0),
            _ => {}
        }
        let place = GENERAL.iter().position(|&one| one == register.full_register())?;
        Some(self.word(8 * place))
    }
}

/// Names of places in the kernel's image.
struct Symbols(BTreeMap<u64, (u64, String)>);

impl Symbols {
    fn read(kernel: &Path) -> Result<Self> {
        let bytes = std::fs::read(kernel).with_context(|| format!("cannot read {}", kernel.display()))?;
        let file = object::File::parse(&*bytes).context("the kernel is no ELF file")?;
        let named = file.symbols().filter(|symbol| symbol.size() > 0).filter_map(|symbol| {
            let name = format!("{:#}", rustc_demangle::demangle(symbol.name().ok()?));
            Some((symbol.address(), (symbol.size(), name)))
        });
        Ok(Self(named.collect()))
    }

    fn address(&self, name: &str) -> Result<u64> {
        let found = self.0.iter().find(|(_, (_, known))| known == name);
        found
            .map(|(&address, _)| address)
            .with_context(|| format!("the kernel has no symbol {name}"))
    }

    /// The part of the kernel that an address belongs to.
    fn name(&self, address: u64) -> &str {
        match self.0.range(..=address).next_back() {
            Some((&start, (size, name))) if address - start < *size => name,
            _ => "the kernel's heap: threads and spaces",
        }
    }
}

/// The memory that was touched.
pub struct Found {
    trip: RoundTrip,
    instructions: u64,
    code: BTreeSet<u64>,
    /// Bytes of data, with the name of what they belong to.
    data: BTreeMap<u64, String>,
}

fn lines<'a>(bytes: impl Iterator<Item = &'a u64>) -> usize {
    bytes.map(|byte| byte / LINE).collect::<BTreeSet<_>>().len()
}

impl Found {
    fn nothing(trip: RoundTrip) -> Self {
        Self {
            trip,
            instructions: 0,
            code: BTreeSet::new(),
            data: BTreeMap::new(),
        }
    }

    /// Rows: what, bytes, lines.
    pub fn rows(&self) -> Vec<(String, usize, usize)> {
        let mut rows = vec![("code".to_owned(), self.code.len(), lines(self.code.iter()))];
        let names: BTreeSet<&String> = self.data.values().collect();
        for name in names {
            let of_name = || self.data.iter().filter(|(_, of)| *of == name).map(|(byte, _)| byte);
            rows.push((format!("data: {name}"), of_name().count(), lines(of_name())));
        }
        let all = || self.code.iter().chain(self.data.keys());
        rows.push(("in all".to_owned(), all().count(), lines(all())));
        rows
    }

    /// One object a line.
    pub fn json(&self) -> String {
        let mut text = String::new();
        for (what, bytes, lines) in self.rows() {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{}",
                json!({ "row": self.trip.row(), "touched": what, "bytes": bytes, "lines": lines })
            );
        }
        text
    }

    /// A table to read.
    pub fn table(&self) -> String {
        let rows = self.rows();
        let width = rows.iter().map(|(what, ..)| what.chars().count()).max().unwrap_or(0);
        let trip = match self.trip {
            RoundTrip::Message => "One round trip of a message",
            RoundTrip::ProtectedCall => "A protected call and its return",
        };
        let mut text = format!(
            "{trip}, warm: {} instructions of the kernel.\n\n| {:width$} | bytes | lines of {LINE} | bytes of these |\n| {:-<width$} | ----: | ----------: | -------------: |\n",
            self.instructions, "what the kernel touches", ""
        );
        for (what, bytes, lines) in rows {
            let of_lines = lines as u64 * LINE;
            let _ = writeln!(text, "| {what:width$} | {bytes:>5} | {lines:>11} | {of_lines:>14} |");
        }
        text
    }

    fn add(&mut self, instruction: &Instruction, registers: &Registers, symbols: &Symbols) -> Result<()> {
        self.instructions += 1;
        let start = instruction.ip();
        self.code.extend(start..start + instruction.len() as u64);
        let mut factory = InstructionInfoFactory::new();
        for memory in factory.info(instruction).used_memory() {
            if memory.access() == OpAccess::NoMemAccess {
                continue;
            }
            let address = memory
                .virtual_address(0, |register, _, _| registers.get(register))
                .context("an operand in memory without an address")?;
            for byte in address..address + memory.memory_size().size() as u64 {
                self.data.insert(byte, symbols.name(byte).to_owned());
            }
        }
        Ok(())
    }
}

/// Builds kernel and benchmark and watches one round trip.
pub fn measure(root: &Path, trip: RoundTrip) -> Result<Found> {
    let scratch = Scratch::make()?;
    // A port that is free now; nobody else is likely to take it in the next second.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    if trip == RoundTrip::Message {
        let kernel = build::kernel(root, build::Profile::Guest, build::Kernel::Bare)?;
        let program = build::root_program("nucleus-suite")?;
        let mut machine = bare::machine(&kernel, &program, &scratch)?;
        machine.words.extend(["bench".into(), "only=ipc-round-trip".into()]);
        machine.gdb = Some(port);
        let mut child = machine
            .command(&Wiring::Nothing, &scratch.file("log"))?
            .spawn()
            .context("cannot start QEMU")?;
        let found = watch(port, trip, &Symbols::read(&kernel)?);
        let _ = child.kill();
        let _ = child.wait();
        return found;
    }
    let built = build::all()?;
    let symbols = Symbols::read(&built.kernel)?;
    let disk = scratch.file("bench.img");
    image::create(&disk, image::DEFAULT_SIZE, Some(&built.programs))?;
    let mut machine = Machine::new(built.kernel, disk);
    machine.gdb = Some(port);
    std::thread::scope(|scope| {
        let found = scope.spawn(|| watch(port, trip, &symbols));
        // It is ended in the midst of the row: what becomes of the script tells nothing.
        let played = script::play(
            &machine,
            Source::lines(["micro pdx-round-trip"]),
            &mut std::io::sink(),
            Patience::seconds(300),
        );
        let found = found.join().map_err(|_| anyhow::anyhow!("the watcher panicked"))?;
        found.map_err(|error| match played {
            Err(why) => error.context(why),
            Ok(_) => error,
        })
    })
}

/// Watches one round trip, and ends the machine.
fn watch(port: u16, trip: RoundTrip, symbols: &Symbols) -> Result<Found> {
    let mut remote = Remote::connect(port)?;
    let found = remote.watch(trip, symbols);
    // The request to end has no answer.
    let _ = remote.stream.get_mut().write_all(b"$k#6b");
    found
}

impl Remote {
    fn watch(&mut self, trip: RoundTrip, symbols: &Symbols) -> Result<Found> {
        let (entry, begins) = trip.begins();
        let entry = symbols.address(entry)?;
        self.ask(&format!("Z0,{entry:x},1"))?;
        let mut registers = self.registers_at_next_call()?;
        let mut passed = 0;
        while passed < PASSED || registers.get(Register::RAX) != Some(begins) {
            registers = self.registers_at_next_call()?;
            passed += usize::from(registers.get(Register::RAX) == Some(begins));
        }
        self.ask(&format!("z0,{entry:x},1"))?;
        let (mut found, mut calls) = (Found::nothing(trip), 0);
        for _ in 0..STEPS_MAX {
            let rip = registers.rip();
            if rip == entry {
                calls += 1;
                if calls > CALLS {
                    return Ok(found);
                }
            }
            if rip >= KERNEL {
                let code = self.bytes(&format!("m{rip:x},{INSTRUCTION:x}"))?;
                let instruction = Decoder::with_ip(64, &code, rip, DecoderOptions::NONE).decode();
                found.add(&instruction, &registers, symbols)?;
            }
            self.ask("s")?;
            registers = self.registers()?;
        }
        bail!("the round trip does not end")
    }

    /// Lets the machine run on to the breakpoint; off it first, if it stands there.
    fn registers_at_next_call(&mut self) -> Result<Registers> {
        self.ask("s")?;
        let answer = self.ask("c")?;
        if !answer.starts_with('T') {
            bail!("the machine ended before the message: {answer}");
        }
        self.registers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers(words: &[(usize, u64)]) -> Registers {
        let mut bytes = vec![0; GS_BASE + 8];
        for &(at, word) in words {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        Registers(bytes)
    }

    #[test]
    fn instructions_and_their_operands_are_counted_once() {
        let symbols = Symbols([(0x1000, (0x40, "lock".to_owned()))].into());
        // rbx = 0x1008, rsp = 0x2010, GS = 0x1030.
        let registers = registers(&[(8, 0x1008), (8 * 7, 0x2010), (GS_BASE, 0x1030)]);
        let mut found = Found::nothing(RoundTrip::Message);
        let codes: [&[u8]; 5] = [
            &[0x48, 0x8b, 0x03],                         // mov rax, [rbx]
            &[0x48, 0x8b, 0x03],                         // the same from elsewhere
            &[0x50],                                     // push rax
            &[0x65, 0x48, 0x89, 0x04, 0x25, 8, 0, 0, 0], // mov gs:[8], rax
            &[0x48, 0x8d, 0x03],                         // lea rax, [rbx]
        ];
        for (index, code) in codes.into_iter().enumerate() {
            let at = KERNEL + 0x100 * index as u64;
            let instruction = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
            found.add(&instruction, &registers, &symbols).unwrap();
        }
        let heap = "data: the kernel's heap: threads and spaces";
        let expected = [("code", 19, 5), ("data: lock", 16, 1), (heap, 8, 1), ("in all", 43, 7)];
        let rows = found.rows();
        let seen: Vec<_> = rows
            .iter()
            .map(|(what, bytes, lines)| (what.as_str(), *bytes, *lines))
            .collect();
        assert_eq!(seen, expected);
        assert_eq!(found.instructions, 5);
    }
}
