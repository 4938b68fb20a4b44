//! Exception handlers: they see what happened, and put it right in one way or the other.

use core::{
    arch::asm,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use abi::layout::{EXCEPTION_ARITHMETIC, EXCEPTION_ILLEGAL, EXCEPTION_PROTECTION, RESUME_AT, RESUME_END, RESUME_RETRY};

use super::guarded::load;

/// The handler's act before it leaves.
static DEED: AtomicU64 = AtomicU64::new(0);
/// How it leaves, and where to.
static ACTION: AtomicU64 = AtomicU64::new(0);
static LANDING: AtomicU64 = AtomicU64::new(0);
/// Its arguments: kind, address, instruction, wanted rights; and how often it was called.
static SEEN: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
static CALLS: AtomicU64 = AtomicU64::new(0);

const DEED_NONE: u64 = 0;
const DEED_ALLOW: u64 = 1;
const DEED_FAULT: u64 = 2;
const DEED_RETURN_NONSENSE: u64 = 3;
const DEED_RETRY_FEW: u64 = 4;

extern "C" fn handler(kind: u64, address: u64, instruction: u64, wanted: u64) -> ! {
    CALLS.fetch_add(1, Relaxed);
    for (place, word) in SEEN.iter().zip([kind, address, instruction, wanted]) {
        place.store(word, Relaxed);
    }
    match DEED.load(Relaxed) {
        DEED_ALLOW => {
            let page = address & !(abi::address::PAGE - 1);
            let _ = rt::call::page_limit(page, 1, abi::Rights::RWX.bits().into());
        }
        DEED_FAULT => {
            core::hint::black_box(load(0x18));
        }
        DEED_RETURN_NONSENSE => {
            for (action, target) in [(3, 0), (u64::MAX, 0), (RESUME_AT, u64::MAX), (RESUME_AT, 1 << 47)] {
                // SAFETY: none of these is an action with a place to go, so the handler goes on.
                let refused = unsafe { rt::call::excpt_return(action, target) };
                if refused != Err(abi::Error::BadArgument) {
                    rt::exit(1);
                }
            }
        }
        DEED_RETRY_FEW if CALLS.load(Relaxed) > 3 => ACTION.store(RESUME_END, Relaxed),
        _ => {}
    }
    loop {
        // SAFETY: the places to go on at are set by the functions below, for themselves.
        let _ = unsafe { rt::call::excpt_return(ACTION.load(Relaxed), LANDING.load(Relaxed)) };
    }
}

fn register(kind: u64, deed: u64, action: u64) -> abi::error::Result<u64> {
    DEED.store(deed, Relaxed);
    ACTION.store(action, Relaxed);
    CALLS.store(0, Relaxed);
    // SAFETY: the handler is such a function and touches only its own words.
    unsafe { rt::call::excpt_reg(kind, handler as *const () as u64) }
}

/// Address of the handler of this module.
pub fn address() -> u64 {
    handler as *const () as u64
}

/// The handler's last arguments: kind, address, instruction, wanted rights.
pub fn seen() -> [u64; 4] {
    [0, 1, 2, 3].map(|index| SEEN[index].load(Relaxed))
}

/// How often the handler was called since it was registered.
pub fn calls() -> u64 {
    CALLS.load(Relaxed)
}

/// Registers no handler; gives the one that was there.
///
/// # Errors
/// As `ExcptReg`.
pub fn unregister(kind: u64) -> abi::error::Result<u64> {
    // SAFETY: no handler is always right.
    unsafe { rt::call::excpt_reg(kind, 0) }
}

/// Writes a word to a page that its limits forbid to write; the handler lifts them and the
/// instruction is tried again. Tells which registers it found changed, one bit each.
///
/// # Errors
/// As `ExcptReg`.
pub fn write_allowed_late(address: u64, word: u64) -> abi::error::Result<u64> {
    register(EXCEPTION_PROTECTION, DEED_ALLOW, RESUME_RETRY)?;
    let changed: u64;
    // SAFETY: writes a word of an object made for it; registers are declared or kept.
    unsafe {
        asm!(
            "push rbx", "push rbp",
            "mov rbx, 0x1b1b", "mov rbp, 0x2b2b", "mov rcx, 0x3b3b", "mov r11, 0x4b4b", "mov r15, 0x5b5b", "mov rax, 0x6b6b",
            "mov [rdi], rsi",
            "xor rbx, 0x1b1b", "xor rbp, 0x2b2b", "xor rcx, 0x3b3b", "xor r11, 0x4b4b", "xor r15, 0x5b5b", "xor rax, 0x6b6b",
            "or rax, rbx", "or rax, rbp", "or rax, rcx", "or rax, r11", "or rax, r15",
            "pop rbp", "pop rbx",
            in("rdi") address, in("rsi") word,
            out("rax") changed, out("rcx") _, out("r11") _, out("r15") _,
        );
    }
    Ok(changed)
}

/// Runs an instruction that raises an exception, with a handler that goes on behind it.
macro_rules! skipped {
    ($kind:expr, $deed:expr, $instruction:literal) => {{
        register($kind, $deed, RESUME_AT)?;
        let instruction: u64;
        // SAFETY: the instruction raises an exception, and the handler goes on behind it with the
        // registers as they were.
        unsafe {
            asm!(
                "lea {at}, [rip + 3f]", "mov [{landing}], {at}",
                "lea {at}, [rip + 2f]",
                "xor edx, edx", "xor ecx, ecx", "mov eax, 5",
                "2:", $instruction,
                "ud2",
                "3:",
                at = out(reg) instruction, landing = in(reg) LANDING.as_ptr(),
                out("rax") _, out("rcx") _, out("rdx") _,
            );
        }
        instruction
    }};
}

/// Divides by zero and goes on behind; gives the instruction's address.
///
/// # Errors
/// As `ExcptReg`.
pub fn skip_division() -> abi::error::Result<u64> {
    Ok(skipped!(EXCEPTION_ARITHMETIC, DEED_NONE, "div rcx"))
}

/// Runs an undefined instruction and goes on behind; gives its address.
///
/// # Errors
/// As `ExcptReg`.
pub fn skip_undefined() -> abi::error::Result<u64> {
    Ok(skipped!(EXCEPTION_ILLEGAL, DEED_NONE, "ud2"))
}

/// Runs into a breakpoint and goes on behind; gives the address behind it, which is what the handler is told. If no handler
/// was called for it, one was for another instruction.
///
/// # Errors
/// As `ExcptReg`.
pub fn skip_breakpoint() -> abi::error::Result<u64> {
    Ok(skipped!(EXCEPTION_ILLEGAL, DEED_NONE, "int3\nnop") + 1)
}

/// Reads null and goes on behind; gives the instruction's address.
///
/// # Errors
/// As `ExcptReg`.
pub fn skip_null() -> abi::error::Result<u64> {
    Ok(skipped!(EXCEPTION_PROTECTION, DEED_NONE, "mov rax, [rcx]"))
}

/// As [`skip_null`], with a handler that first tries to leave in ways that there are not.
///
/// # Errors
/// As `ExcptReg`.
pub fn skip_null_after_nonsense() -> abi::error::Result<u64> {
    Ok(skipped!(EXCEPTION_PROTECTION, DEED_RETURN_NONSENSE, "mov rax, [rcx]"))
}

/// Reads null with a handler that gives up. Ends the thread.
pub fn end_in_handler() -> ! {
    let _ = register(EXCEPTION_PROTECTION, DEED_NONE, RESUME_END);
    core::hint::black_box(load(0x10));
    rt::exit(1)
}

/// Jumps to an address that no instruction can have, with a handler that tries again. Ends the thread.
pub fn retry_non_canonical() -> ! {
    let _ = register(EXCEPTION_ILLEGAL, DEED_RETRY_FEW, RESUME_RETRY);
    super::guarded::jump(1 << 47)
}

/// Reads null with a handler that faults itself. Ends the thread.
pub fn fault_in_handler() -> ! {
    let _ = register(EXCEPTION_PROTECTION, DEED_FAULT, RESUME_RETRY);
    core::hint::black_box(load(0x10));
    rt::exit(1)
}
