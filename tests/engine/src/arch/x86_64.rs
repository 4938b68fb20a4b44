//! Handlers of exceptions, which lead faults of compiled code to the engine's landing.
//!
//! A handler runs on the stack that faulted and leaves by going on elsewhere, with the registers as they
//! were. The landing wants another stack pointer: a few instructions between set it. One thread runs
//! compiled code, so that one word is enough for it.

use abi::layout::{EXCEPTION_ARITHMETIC, EXCEPTION_ILLEGAL, EXCEPTION_PROTECTION, RESUME_AT, RESUME_END};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where to go on, and with which stack pointer.
static LANDING: AtomicU64 = AtomicU64::new(0);
static STACK: AtomicU64 = AtomicU64::new(0);

#[unsafe(naked)]
extern "C" fn go_on() {
    // Both words were set by the handler that goes on here.
    core::arch::naked_asm!(
        "mov rsp, [rip + {stack}]",
        "jmp qword ptr [rip + {landing}]",
        stack = sym STACK,
        landing = sym LANDING,
    )
}

extern "C" fn handler(_kind: u64, address: u64, instruction: u64, _wanted: u64) -> ! {
    // SAFETY: the word is the one that the engine keeps for the thread that runs compiled code, which
    // is the thread that faulted.
    let place = unsafe { sip::exec::fault(crate::platform::current(), instruction, address) };
    let (action, at) = match place {
        Some((landing, stack)) => {
            LANDING.store(landing, Relaxed);
            STACK.store(stack, Relaxed);
            (RESUME_AT, go_on as *const () as u64)
        }
        None => (RESUME_END, 0),
    };
    loop {
        // SAFETY: `go_on` sets the stack pointer that the landing expects and goes there; the engine
        // has given both for exactly this fault.
        let _ = unsafe { rt::call::excpt_return(action, at) };
    }
}

/// Leads the faults that compiled code can raise to the engine.
///
/// # Errors
/// As `ExcptReg`.
pub fn register() -> rt::Result<()> {
    for kind in [EXCEPTION_ARITHMETIC, EXCEPTION_ILLEGAL, EXCEPTION_PROTECTION] {
        // SAFETY: the handler is such a function; it ends with `excpt_return` and touches three words.
        unsafe { rt::call::excpt_reg(kind, handler as *const () as u64) }?;
    }
    Ok(())
}
