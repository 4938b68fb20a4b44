//! The traces of a kernel that panicked, made readable: its message, the calls that led there, its last events.
//!
//! The kernel writes registers and stack to its log as they are (`abi::host`). Here the unwind tables and the debug
//! information of the same build turn them into calls ([`Image`]): the tables are in the kernel's ELF file and not in
//! the memory of the machine, so they cost the running kernel nothing. Where they do not lead on (a jump to
//! nowhere, a stack that was written over) the stack is searched for return addresses, and the result says so.

use crate::place;
use abi::host::{CANNOT_START, PANIC, PANIC_END, PANIC_REGISTERS, PANIC_STACK, PANIC_TRACE, SERVER_CRASHED};
use addr2line::gimli::{
    self, BaseAddresses, CfaRule, DebugFrame, EhFrame, EndianSlice, LittleEndian, RegisterRule, UnwindContext,
    UnwindSection, UnwindTableRow,
};
use anyhow::{Context, Result};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use std::fmt::Write as _;
use std::path::Path;

/// Calls that are followed at most.
const CALLS_MAX: usize = 2000;
/// Calls that are shown: so many innermost, so many outermost.
const SHOWN: (usize, usize) = (32, 8);

/// Registers by their DWARF numbers.
const REGISTERS: [&str; 17] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip",
];
const RSP: usize = 7;
const RIP: usize = 16;

type Registers = [u64; REGISTERS.len()];

/// The kernel's log of a machine that ended.
pub struct KernelLog {
    /// The output before the panic.
    before: String,
    evidence: Option<Evidence>,
}

/// The output of a kernel that panicked.
#[derive(Default, PartialEq, Debug)]
struct Evidence {
    message: String,
    registers: Option<Registers>,
    /// Address of the first word.
    stack_start: u64,
    stack: Vec<u64>,
    /// How many microseconds before, and what.
    events: Vec<(u64, String)>,
    complete: bool,
}

impl KernelLog {
    /// Reads the log; a missing one is empty.
    pub fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_default();
        Self::of(&String::from_utf8_lossy(&bytes))
    }

    /// Reads the text of a log.
    pub fn of(text: &str) -> Self {
        let panic = text.lines().position(|line| line.starts_with(PANIC));
        let lines: Vec<&str> = text.lines().collect();
        let (before, after) = lines.split_at(panic.unwrap_or(lines.len()));
        Self {
            before: before.join("\n"),
            evidence: panic.map(|_| Evidence::of(after)),
        }
    }

    /// The last lines before a panic, if there was one.
    pub fn last_lines(&self, count: usize) -> String {
        let lines: Vec<&str> = self.before.lines().collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }

    /// Why the system could not start, where it never was up.
    pub fn refusal(&self) -> Option<&str> {
        self.before.lines().find_map(|line| line.strip_prefix(CANNOT_START))
    }

    /// Why the kernel ended by its own fault, in one sentence.
    pub fn reason(&self) -> String {
        match (&self.evidence, self.refusal()) {
            (Some(evidence), _) if evidence.message.starts_with("panicked at") => {
                format!("the kernel {}", evidence.message)
            }
            (Some(evidence), _) => format!("the kernel panicked: {}", evidence.message),
            (None, None) if self.before.contains(SERVER_CRASHED) => {
                "the server crashed outside of the kernel, which contained it and stopped the machine".into()
            }
            (None, Some(why)) => format!("the system cannot start: {why}"),
            (None, None) => "the kernel panicked without a word".into(),
        }
    }

    /// Tells about a panic, as titles and texts: the back-trace, the last events. `kernel` is the ELF file that
    /// ran.
    pub fn account(&self, kernel: &Path) -> Vec<(&'static str, String)> {
        let Some(evidence) = &self.evidence else {
            return Vec::new();
        };
        let calls = match std::fs::read(kernel)
            .context("cannot read the kernel's file")
            .and_then(|bytes| evidence.back_trace(&bytes))
        {
            Ok(calls) => calls,
            Err(error) => format!("there is none: {error:#}"),
        };
        let mut account = vec![("the kernel's back-trace, innermost call first", calls)];
        if !evidence.events.is_empty() {
            account.push(("its last events", evidence.show_events()));
        }
        account
    }
}

impl Evidence {
    fn of(lines: &[&str]) -> Self {
        let mut found = Self::default();
        for (number, line) in lines.iter().enumerate() {
            if let Some(rest) = line.strip_prefix(PANIC_REGISTERS) {
                found.registers = registers(rest);
            } else if let Some(rest) = line.strip_prefix(PANIC_STACK) {
                found.add_stack(rest);
            } else if let Some(rest) = line.strip_prefix(PANIC_TRACE) {
                let event = rest.trim().split_once(' ');
                let event = event.and_then(|(us, text)| Some((us.parse().ok()?, text.to_owned())));
                found.events.extend(event);
            } else if *line == PANIC_END {
                found.complete = true;
            } else if found.registers.is_none() {
                let text = if number == 0 {
                    line.strip_prefix(PANIC).unwrap_or(line)
                } else {
                    line
                };
                found.message.push_str(if number == 0 { "" } else { " " });
                found.message.push_str(text.trim());
            }
        }
        found
    }

    fn add_stack(&mut self, text: &str) {
        let Some((address, words)) = text.split_once(':') else {
            return;
        };
        let hexadecimal = |word: &str| u64::from_str_radix(word, 16).ok();
        let Some(address) = hexadecimal(address.trim()) else {
            return;
        };
        if self.stack.is_empty() {
            self.stack_start = address;
        }
        // The pieces follow each other; one that does not was damaged, and so is what comes behind it.
        if address == self.stack_start.wrapping_add(8 * self.stack.len() as u64) {
            self.stack.extend(words.split_whitespace().map_while(hexadecimal));
        }
    }

    fn word(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.stack_start)?;
        (offset % 8 == 0)
            .then(|| self.stack.get((offset / 8) as usize).copied())
            .flatten()
    }

    fn show_events(&self) -> String {
        let lines = self
            .events
            .iter()
            .map(|(us, text)| format!("{us:>10} us before: {text}"));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn back_trace(&self, kernel: &[u8]) -> Result<String> {
        let image = Image::read(kernel)?;
        let registers = self
            .registers
            .context("the kernel did not come to write its registers down")?;
        let mut calls = self.follow(&image, registers);
        let mut text = String::new();
        let guessed = calls.len() < 2;
        if guessed {
            calls.extend(self.search(&image));
        }
        let mut lines: Vec<String> = calls.iter().flat_map(|&address| image.describe(address)).collect();
        // How the panic was told is nobody's question.
        let machinery = |line: &String| {
            ["core::panicking::", "kernel::panic::", "rust_begin_unwind"]
                .iter()
                .any(|name| line.contains(name))
        };
        let first = lines
            .iter()
            .rposition(machinery)
            .filter(|_| !guessed)
            .map_or(0, |last| last + 1);
        lines.drain(..first.min(lines.len().saturating_sub(1)));
        let left_out = lines.len().saturating_sub(SHOWN.0 + SHOWN.1);
        for (number, line) in lines.iter().enumerate() {
            if left_out > 0 && number == SHOWN.0 {
                let _ = writeln!(text, "     ... {left_out} more ...");
            }
            if left_out == 0 || number < SHOWN.0 || number >= SHOWN.0 + left_out {
                let _ = writeln!(text, "{number:4} {line}");
            }
        }
        if guessed {
            text.push_str("(from the second on guessed: what on the stack looks like a return address)\n");
        }
        if !self.complete {
            text.push_str("(the account breaks off: the kernel failed again while it wrote)\n");
        }
        Ok(text.trim_end().to_owned())
    }

    /// The instructions of the calls that are active, innermost first, by the unwind tables. But for the first, each is
    /// the last byte of the instruction that called.
    fn follow(&self, image: &Image<'_>, mut registers: Registers) -> Vec<u64> {
        let mut calls = vec![registers[RIP]];
        while calls.len() < CALLS_MAX {
            let at = calls.last().copied().unwrap_or_default();
            // A jump to nowhere came by a call, if there is no better explanation.
            let next = match image.unwind(at) {
                Some(row) => self.unwound(&row, &registers),
                None if calls.len() == 1 && !image.is_code(at) => self.returned(&registers),
                None => None,
            };
            let Some(next) = next.filter(|next| image.is_code(next[RIP])) else {
                break;
            };
            registers = next;
            calls.push(registers[RIP].wrapping_sub(1));
        }
        calls
    }

    /// The registers after a return without a frame.
    fn returned(&self, registers: &Registers) -> Option<Registers> {
        let mut next = *registers;
        next[RIP] = self.word(registers[RSP])?;
        next[RSP] = registers[RSP].wrapping_add(8);
        Some(next)
    }

    /// The caller's registers, by a row of the unwind tables.
    fn unwound(&self, row: &UnwindTableRow<usize>, registers: &Registers) -> Option<Registers> {
        let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else {
            return None;
        };
        let frame = registers.get(usize::from(register.0))?.wrapping_add_signed(*offset);
        let mut next = *registers;
        next[RSP] = frame;
        next[RIP] = 0;
        for (register, rule) in row.registers() {
            let place = next.get_mut(usize::from(register.0))?;
            *place = match *rule {
                RegisterRule::Offset(offset) => self.word(frame.wrapping_add_signed(offset))?,
                RegisterRule::ValOffset(offset) => frame.wrapping_add_signed(offset),
                RegisterRule::Register(other) => *registers.get(usize::from(other.0))?,
                RegisterRule::SameValue => *place,
                _ => 0,
            };
        }
        // A stack that does not shrink would go round for ever.
        (next[RSP] > registers[RSP]).then_some(next)
    }

    /// Words of the stack that stand behind a call instruction, as the last byte of that.
    fn search(&self, image: &Image<'_>) -> Vec<u64> {
        let calls = self.stack.iter().map(|word| word.wrapping_sub(1));
        calls
            .filter(|&last| image.is_behind_call(last.wrapping_add(1)))
            .collect()
    }
}

fn registers(text: &str) -> Option<Registers> {
    let mut found = [None; REGISTERS.len()];
    for (name, value) in text.split_whitespace().filter_map(|word| word.split_once('=')) {
        let place = REGISTERS.iter().position(|register| *register == name)?;
        found[place] = Some(u64::from_str_radix(value, 16).ok()?);
    }
    let mut registers = [0; REGISTERS.len()];
    for (place, value) in registers.iter_mut().zip(found) {
        *place = value?;
    }
    Some(registers)
}

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// The kernel's ELF file.
struct Image<'a> {
    text: &'a [u8],
    text_start: u64,
    /// Functions: address, end, name.
    symbols: Vec<(u64, u64, String)>,
    debug_frame: DebugFrame<Reader<'a>>,
    eh_frame: EhFrame<Reader<'a>>,
    bases: BaseAddresses,
    lines: addr2line::Context<Reader<'a>>,
    /// The folder that is left out of the paths of our sources.
    root: String,
}

impl<'a> Image<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self> {
        let file = object::File::parse(bytes).context("the kernel's file is no ELF file")?;
        let data = |name: &str| -> &'a [u8] {
            let section = file.section_by_name(name);
            section.and_then(|section| section.data().ok()).unwrap_or_default()
        };
        let start = |name: &str| file.section_by_name(name).map_or(0, |section| section.address());
        let mut symbols: Vec<(u64, u64, String)> = file
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text || symbol.kind() == SymbolKind::Label)
            .filter_map(|symbol| {
                let name = format!("{:#}", rustc_demangle::demangle(symbol.name().ok()?));
                Some((symbol.address(), symbol.address() + symbol.size(), name))
            })
            .collect();
        symbols.sort_unstable();
        let load = |section: gimli::SectionId| -> Result<Reader<'a>, gimli::Error> {
            Ok(EndianSlice::new(data(section.name()), LittleEndian))
        };
        let dwarf = gimli::Dwarf::load(load).context("the kernel's debug information cannot be read")?;
        let mut debug_frame = DebugFrame::new(data(".debug_frame"), LittleEndian);
        debug_frame.set_address_size(8);
        Ok(Self {
            text: data(".text"),
            text_start: start(".text"),
            symbols,
            debug_frame,
            eh_frame: EhFrame::new(data(".eh_frame"), LittleEndian),
            bases: BaseAddresses::default()
                .set_text(start(".text"))
                .set_eh_frame(start(".eh_frame")),
            lines: addr2line::Context::from_dwarf(dwarf).context("the kernel's line numbers cannot be read")?,
            root: place::root().map_or_else(|_| String::new(), |root| format!("{}/", root.display())),
        })
    }

    fn is_code(&self, address: u64) -> bool {
        address
            .checked_sub(self.text_start)
            .is_some_and(|offset| offset < self.text.len() as u64)
    }

    /// Whether a call instruction ends at this address.
    fn is_behind_call(&self, address: u64) -> bool {
        let Some(before) = address
            .checked_sub(self.text_start)
            .and_then(|offset| self.text.get(..offset as usize))
        else {
            return false;
        };
        let from_end = |count: usize| {
            before
                .len()
                .checked_sub(count)
                .and_then(|place| before.get(place))
                .copied()
        };
        // Direct; through a register or memory, by length.
        from_end(5) == Some(0xe8) || [2, 3, 6, 7].into_iter().any(|length| from_end(length) == Some(0xff))
    }

    /// How to come from this instruction to the caller.
    fn unwind(&self, address: u64) -> Option<UnwindTableRow<usize>> {
        let mut context = UnwindContext::new();
        let by_debug =
            self.debug_frame
                .unwind_info_for_address(&self.bases, &mut context, address, DebugFrame::cie_from_offset);
        if let Ok(row) = by_debug {
            return Some(row.clone());
        }
        let mut context = UnwindContext::new();
        let by_exceptions =
            self.eh_frame
                .unwind_info_for_address(&self.bases, &mut context, address, EhFrame::cie_from_offset);
        by_exceptions.ok().cloned()
    }

    /// Names the function at this instruction: a line for it, before that one for each that was inlined there.
    fn describe(&self, address: u64) -> Vec<String> {
        let mut described = Vec::new();
        if let Ok(mut frames) = self.lines.find_frames(address).skip_all_loads() {
            while let Ok(Some(frame)) = frames.next() {
                let name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
                let Some(name) = name else { continue };
                let name = format!("{:#}", rustc_demangle::demangle(&name));
                let place = frame
                    .location
                    .and_then(|location| Some((location.file?, location.line?)));
                described.push(match place {
                    Some((file, line)) => format!("{name}  ({}:{line})", self.shorten(file)),
                    None => name,
                });
            }
        }
        if described.is_empty() {
            let symbol = self.symbol(address);
            described.push(symbol.unwrap_or_else(|| format!("{address:#x}, which is not code of the kernel")));
        }
        described
    }

    /// The symbol that holds an address; of those without a size the nearest below.
    fn symbol(&self, address: u64) -> Option<String> {
        if !self.is_code(address) {
            return None;
        }
        let below = self.symbols.partition_point(|symbol| symbol.0 <= address);
        let (start, _, name) = self.symbols[..below]
            .iter()
            .rev()
            .find(|(start, end, _)| address < *end || start == end)?;
        Some(format!("{name}+{:#x}", address - start))
    }

    /// A source file's path from the root of its tree.
    fn shorten<'b>(&self, file: &'b str) -> &'b str {
        let ours = file.strip_prefix(self.root.as_str());
        ours.or_else(|| file.split_once("/library/").map(|(_, rest)| rest))
            .unwrap_or(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "gondwana 0.1.0\nfirst program\npanic: panicked at kernel/src/x.rs:1:2:\nit is so\n\
        panic registers: rax=0 rdx=1 rcx=2 rbx=3 rsi=4 rdi=5 rbp=6 rsp=ffff80 r8=8 r9=9 r10=a r11=b r12=c r13=d r14=e r15=f rip=ffffffff80000000\n\
        panic stack ffff80: 1 ffffffff80000001\npanic stack ffff90: 2\npanic stack ffffff: 3\n\
        panic trace 500 thread 1.1: call SemWait\npanic trace 0 kernel panic\npanic end\n";

    #[test]
    fn evidence_is_read() {
        let log = KernelLog::of(LOG);
        assert_eq!(log.last_lines(1), "first program");
        assert_eq!(log.reason(), "the kernel panicked at kernel/src/x.rs:1:2: it is so");
        let evidence = log.evidence.unwrap();
        let registers = evidence.registers.unwrap();
        assert_eq!(
            (registers[RSP], registers[RIP], registers[15]),
            (0xff_ff80, 0xffff_ffff_8000_0000, 0xf)
        );
        assert_eq!(
            evidence.stack,
            [1, 0xffff_ffff_8000_0001, 2],
            "a piece out of line is left out"
        );
        assert_eq!(
            (
                evidence.word(0xff_ff90),
                evidence.word(0xff_ff98),
                evidence.word(0xff_ff84)
            ),
            (Some(2), None, None)
        );
        assert_eq!(
            evidence.show_events(),
            "       500 us before: thread 1.1: call SemWait\n         0 us before: kernel panic"
        );
        assert!(evidence.complete);
    }

    #[test]
    fn what_breaks_off_is_no_reason_to_fail() {
        for end in (0..LOG.len()).filter(|&end| LOG.is_char_boundary(end)) {
            let log = KernelLog::of(&LOG[..end]);
            assert!(!log.reason().is_empty());
            for (_, text) in log.account(Path::new("/dev/null")) {
                assert!(!text.is_empty());
            }
        }
        let refused = KernelLog::of("gondwana cannot start: the disk is refused: Damaged\n");
        assert_eq!(
            refused.reason(),
            "the system cannot start: the disk is refused: Damaged"
        );
        assert!(refused.account(Path::new("/dev/null")).is_empty());
        assert_eq!(KernelLog::of("").reason(), "the kernel panicked without a word");
    }
}
