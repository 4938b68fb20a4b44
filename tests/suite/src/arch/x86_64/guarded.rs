//! Single accesses at any address.
//!
//! The probes are three instructions at known places. A handler for protection faults, once
//! [`guard`] has registered it, lets the thread go on behind a probe that was refused; any other
//! fault ends the thread as if there were no handler.

use core::arch::{asm, global_asm};

use abi::layout::{EXCEPTION_PROTECTION, RESUME_AT, RESUME_END};

global_asm!(
    ".section .text.suite_probes, \"ax\", @progbits",
    // rdi: address. Gives rax: whether it was allowed, rdx: the word.
    "suite_peek:",
    "xor eax, eax",
    "suite_peek_at:",
    "mov rdx, [rdi]",
    "mov eax, 1",
    "suite_peek_out:",
    "ret",
    // rdi: address, rsi: the word. Gives rax: whether it was allowed.
    "suite_poke:",
    "xor eax, eax",
    "suite_poke_at:",
    "mov [rdi], rsi",
    "mov eax, 1",
    "suite_poke_out:",
    "ret",
    // rdi: address of a `ret`. Gives rax: whether it was allowed.
    "suite_fetch:",
    "push rbx",
    "mov rbx, rsp",
    "call rdi",
    "mov eax, 1",
    "pop rbx",
    "ret",
    "suite_fetch_out:",
    "mov rsp, rbx",
    "xor eax, eax",
    "pop rbx",
    "ret",
);

/// Whether an access was allowed, and the word that was read.
#[repr(C)]
struct Peeked {
    allowed: u64,
    word: u64,
}

unsafe extern "C" {
    fn suite_peek(address: u64) -> Peeked;
    fn suite_poke(address: u64, word: u64) -> u64;
    fn suite_fetch(address: u64) -> u64;
    static suite_peek_at: u8;
    static suite_peek_out: u8;
    static suite_poke_at: u8;
    static suite_poke_out: u8;
    static suite_fetch_out: u8;
}

/// Reads a word; `None` if that was refused.
pub fn peek(address: u64) -> Option<u64> {
    // SAFETY: one load, of memory that holds anything, by code that the compiler does not see.
    let Peeked { allowed, word } = unsafe { suite_peek(address) };
    (allowed != 0).then_some(word)
}

/// Writes a word; tells whether that was allowed.
pub fn poke(address: u64, word: u64) -> bool {
    // SAFETY: one store. The suite gives it addresses inside objects it made for that, or such as
    // must be refused.
    unsafe { suite_poke(address, word) != 0 }
}

/// Calls code that consists of a return; tells whether that was allowed.
pub fn fetch(address: u64) -> bool {
    // SAFETY: the suite gives it such code, or addresses that must be refused.
    unsafe { suite_fetch(address) != 0 }
}

/// Reads a word. A refusal ends the thread.
pub fn load(address: u64) -> u64 {
    let word;
    // SAFETY: as in `peek`.
    unsafe { asm!("mov {}, [{}]", out(reg) word, in(reg) address, options(nostack)) };
    word
}

/// Writes a word. A refusal ends the thread.
pub fn store(address: u64, word: u64) {
    // SAFETY: as in `poke`.
    unsafe { asm!("mov [{}], {}", in(reg) address, in(reg) word, options(nostack)) };
}

/// Goes on at an address for ever. A refusal ends the thread.
pub fn jump(address: u64) -> ! {
    // SAFETY: the thread gives up everything it has.
    unsafe { asm!("jmp {}", in(reg) address, options(noreturn)) }
}

/// Lets the probes of this task survive protection faults.
///
/// # Errors
/// As `ExcptReg`.
pub fn guard() -> abi::error::Result<()> {
    // SAFETY: the handler is such a function, and goes on where the probe left off or not at all.
    unsafe { rt::call::excpt_reg(EXCEPTION_PROTECTION, survive as *const () as u64) }.map(|_| ())
}

extern "C" fn survive(_kind: u64, address: u64, instruction: u64, wanted: u64) -> ! {
    let probes = [
        (&raw const suite_peek_at, &raw const suite_peek_out),
        (&raw const suite_poke_at, &raw const suite_poke_out),
    ];
    let mut out = probes
        .iter()
        .find(|(at, _)| *at as u64 == instruction)
        .map(|(_, out)| *out as u64);
    if wanted == u64::from(abi::Rights::X.bits()) && address == instruction {
        out = Some(&raw const suite_fetch_out as u64);
    }
    let (action, target) = out.map_or((RESUME_END, 0), |out| (RESUME_AT, out));
    loop {
        // SAFETY: the probes go on behind themselves with the registers as they were.
        let _ = unsafe { rt::call::excpt_return(action, target) };
    }
}
