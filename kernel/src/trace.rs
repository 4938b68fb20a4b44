//! The ring of the last events: recorded on the general paths, read by the debugger and after a panic.

use kcore::{
    ThreadId,
    trace::{Kind, Trace},
};

use crate::arch;

/// The ring.
pub static TRACE: Trace = Trace::new();

/// Records an interrupt. Those of the debugger's line are left out: each character that is typed is one.
pub fn interrupt(thread: ThreadId, vector: u64) {
    if vector != arch::DEBUGGER_VECTOR {
        let processor = u64::from(arch::mark().processor());
        record(Kind::Interrupt, thread, processor << 32 | vector);
    }
}

/// Records an event now.
#[inline(always)]
pub fn record(kind: Kind, thread: ThreadId, value: u64) {
    TRACE.record(arch::ticks_halves(), kind, thread.0 as u32, value);
}
