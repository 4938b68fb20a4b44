//! The end of the kernel by its own fault: what is written to the log, for the host tool to make a back-trace of.
//!
//! Nothing here trusts more than it must: no lock, no allocation, and a second panic ends at once. The kernel keeps no
//! frame pointers and unwinds nothing itself; it writes down the registers and the stack as they are, and the
//! host tool, which has the unwind tables of the same build, finds the calls in them (`abi::host` has the form).

use core::{
    fmt::Write,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use abi::host::{EXIT_PANIC, PANIC, PANIC_END, PANIC_REGISTERS, PANIC_STACK, PANIC_TRACE};
use kcore::{ThreadId, thread::Context, trace::Kind};

use crate::{
    arch,
    log::Log,
    trace::{self, TRACE},
};

/// Events of the trace that are written.
const EVENTS: usize = 16;
/// Words of the stack that are written at most.
const STACK_WORDS: usize = 8192;

/// The processor that writes its account, if the end has begun.
static ENDING: AtomicU32 = AtomicU32::new(NOBODY);
const NOBODY: u32 = u32::MAX;

#[panic_handler]
fn panic(information: &core::panic::PanicInfo<'_>) -> ! {
    end(format_args!("{information}"), &arch::registers())
}

/// Ends the kernel: `what` happened, with these registers. Of the flags and segments nothing is read.
pub fn end(what: core::fmt::Arguments<'_>, registers: &Context) -> ! {
    let me = arch::mark().processor();
    match ENDING.compare_exchange(NOBODY, me, Relaxed, Relaxed) {
        Ok(_) => arch::halt_others(),
        // It failed again while it wrote.
        Err(first) if first == me => arch::exit(EXIT_PANIC),
        // The account of the first is the one that counts.
        Err(_) => arch::stop_forever(),
    }
    trace::record(Kind::Panic, ThreadId(0), 0);
    // Writing to the log cannot fail.
    let _ = write_evidence(what, registers);
    arch::exit(EXIT_PANIC)
}

fn write_evidence(what: core::fmt::Arguments<'_>, registers: &Context) -> core::fmt::Result {
    let c = registers;
    writeln!(Log, "{PANIC}{what}")?;
    writeln!(
        Log,
        "{PANIC_REGISTERS} rax={:x} rdx={:x} rcx={:x} rbx={:x} rsi={:x} rdi={:x} rbp={:x} rsp={:x} r8={:x} r9={:x} \
         r10={:x} r11={:x} r12={:x} r13={:x} r14={:x} r15={:x} rip={:x}",
        c.rax,
        c.rdx,
        c.rcx,
        c.rbx,
        c.rsi,
        c.rdi,
        c.rbp,
        c.rsp,
        c.r8,
        c.r9,
        c.r10,
        c.r11,
        c.r12,
        c.r13,
        c.r14,
        c.r15,
        c.rip
    )?;
    let (mut address, words) = arch::stack_above(c.rsp);
    for row in words[..words.len().min(STACK_WORDS)].chunks(16) {
        write!(Log, "{PANIC_STACK} {address:x}:")?;
        for word in row {
            write!(Log, " {word:x}")?;
        }
        writeln!(Log)?;
        address += size_of_val(row) as u64;
    }
    let now = arch::ticks();
    for event in TRACE.last(EVENTS) {
        write!(
            Log,
            "{PANIC_TRACE} {} ",
            now.saturating_sub(event.ticks) / arch::ticks_per_us()
        )?;
        match event.thread {
            0 => writeln!(Log, "{event}")?,
            thread => writeln!(
                Log,
                "thread {}: {event}",
                kcore::thread::Name(ThreadId(u64::from(thread)))
            )?,
        }
    }
    writeln!(Log, "{PANIC_END}")
}
