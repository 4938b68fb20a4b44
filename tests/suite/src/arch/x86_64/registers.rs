//! Values that earlier code has left in registers.
//!
//! A protected procedure must find nothing of its caller but the parameters, a caller nothing of the
//! procedure but the results, and nobody anything of the kernel. A fault must change nothing at all.

use core::arch::{asm, global_asm};

/// The caller's registers after a protected call.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Left {
    /// The error.
    pub error: u64,
    /// Both results.
    pub results: [u64; 2],
    /// Bits set in any general register that holds no result.
    pub general: u64,
    /// Bits set in any vector register, and in the difference of the control words from the initial.
    pub vector: u64,
}

global_asm!(
    ".section .text.suite_registers, \"ax\", @progbits",
    // Gives r8: bits set in any of st0..7, xmm0..15; or-ed with control words that are not
    // initial. Uses 528 bytes of stack, rcx and rdx; for blocks of assembly only.
    // This and the next two look at r9: 1 is all of this, 2 the upper halves of ymm as well. With
    // neither the unit stays untouched.
    "suite_vector_residue:",
    "xor r8d, r8d",
    "test r9, 1",
    "jnz 2f",
    "ret",
    "2:",
    "push rbp",
    "mov rbp, rsp",
    "sub rsp, 528",
    "and rsp, -16",
    // The processor leaves out reserved bytes, where the stack's old content must not count.
    "xor r8d, r8d",
    "mov ecx, 512",
    "2:",
    "mov [rsp + rcx - 8], r8",
    "sub ecx, 8",
    "jnz 2b",
    "fxsave64 [rsp]",
    "movzx r8d, word ptr [rsp]",
    "xor r8d, 0x37f",
    "movzx edx, word ptr [rsp + 2]",
    "or r8, rdx",
    "mov edx, [rsp + 24]",
    "xor edx, 0x1f80",
    "or r8, rdx",
    "mov ecx, 32",
    "2:",
    "or r8, [rsp + rcx]",
    "add ecx, 8",
    "cmp ecx, 416",
    "jb 2b",
    "mov rsp, rbp",
    "pop rbp",
    "ret",
    // Fills the vector registers and changes the control words.
    "suite_vector_fill:",
    "test r9, 1",
    "jz 2f",
    "fninit",
    "fldpi",
    "fldpi",
    "push 0x27f",
    "fldcw [rsp]",
    "mov dword ptr [rsp], 0x7f80",
    "ldmxcsr [rsp]",
    "add rsp, 8",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "pcmpeqd xmm\\n, xmm\\n",
    ".endr",
    "test r9, 2",
    "jz 2f",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "vinsertf128 ymm\\n, ymm\\n, xmm\\n, 1",
    ".endr",
    "2:",
    "ret",
    // Gives r8: bits set in the upper halves of ymm0..15. Spoils all of them.
    "suite_upper_residue:",
    "xor r8d, r8d",
    "test r9, 2",
    "jnz 2f",
    "ret",
    "2:",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "vextractf128 xmm\\n, ymm\\n, 1",
    ".endr",
    ".irp n,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "por xmm0, xmm\\n",
    ".endr",
    "movq r8, xmm0",
    "psrldq xmm0, 8",
    "movq rdx, xmm0",
    "or r8, rdx",
    "ret",
    // The protected procedure. Parameters: rdi: what r9 is above, rsi, rdx, r10.
    // rcx may be the fourth as well, or the entry's address; r11 may be the flags.
    "suite_leak_entry:",
    "or rax, rbx",
    "or rax, rbp",
    "or rax, r8",
    "or rax, r9",
    "or rax, r12",
    "or rax, r13",
    "or rax, r14",
    "or rax, r15",
    "lea rbx, [rip + suite_leak_entry]",
    "cmp rcx, rbx",
    "je 2f",
    "cmp rcx, r10",
    "je 2f",
    "or rax, rcx",
    "2:",
    "and r11, -0x203",
    "or rax, r11",
    "mov r14, rax",
    "mov r9, rdi",
    "call suite_vector_residue",
    "mov r15, r8",
    "call suite_upper_residue",
    "or r15, r8",
    "call suite_vector_fill",
    "mov rdi, r14",
    "mov rsi, r15",
    "mov rbx, -1", "mov rbp, -1", "mov rcx, -1", "mov rdx, -1", "mov r8, -1", "mov r9, -1", "mov r10, -1",
    "mov r12, -1", "mov r13, -1", "mov r14, -1", "mov r15, -1",
    "mov eax, {pdx_return}",
    "syscall",
    "ud2",
    // The same, but it faults instead of returning.
    "suite_faulting_entry:",
    "mov r9, rdi",
    "call suite_vector_fill",
    "mov rbx, -1", "mov rbp, -1", "mov rcx, -1", "mov rdx, -1", "mov rsi, -1", "mov rdi, -1", "mov r8, -1", "mov r9, -1",
    "mov r10, -1", "mov r12, -1", "mov r13, -1", "mov r14, -1", "mov r15, -1", "mov rax, -1",
    "ud2",
    // rdi: entry, rsi: pd, rdx: what r9 is above, rcx: a `Left`.
    "suite_call_and_look:",
    "push rbx", "push rbp", "push r12", "push r13", "push r14", "push r15",
    "push rdx",
    "push rcx",
    "mov r9, rdx",
    "mov r12, rdi",
    "mov r13, rsi",
    "call suite_vector_fill",
    "mov rdi, r12",
    "mov rdx, r13",
    "mov rsi, [rsp + 8]",
    "mov r10, 0x1111", "mov r8, 0x2222", "mov r9, 0x3333",
    "mov rbx, -1", "mov rbp, -1", "mov r12, -1", "mov r13, -1", "mov r14, -1", "mov r15, -1",
    "mov eax, {pdx_call}",
    "syscall",
    "or rbx, rbp", "or rbx, rdi", "or rbx, r8", "or rbx, r9", "or rbx, r10",
    "or rbx, r12", "or rbx, r13", "or rbx, r14", "or rbx, r15",
    "mov rcx, [rsp]",
    "mov [rcx], rax",
    "mov [rcx + 8], rdx",
    "mov [rcx + 16], rsi",
    "mov [rcx + 24], rbx",
    "mov r9, [rsp + 8]",
    "call suite_vector_residue",
    "mov rbx, r8",
    "call suite_upper_residue",
    "or rbx, r8",
    "pop rcx",
    "pop rdx",
    "mov [rcx + 32], rbx",
    "pop r15", "pop r14", "pop r13", "pop r12", "pop rbp", "pop rbx",
    "ret",
    // rdi: number, rsi, rdx: arguments, rcx: where sixteen registers go.
    "suite_call_and_capture:",
    "push rbx", "push rbp", "push r12", "push r13", "push r14", "push r15",
    "push rcx",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, {mark}",
    "mov r10, rdx", "mov r8, rdx", "mov r9, rdx", "mov rbx, rdx", "mov rbp, rdx",
    "mov r12, rdx", "mov r13, rdx", "mov r14, rdx", "mov r15, rdx",
    "syscall",
    "mov rax, [rsp]",
    "mov [rax], rdi", "mov [rax + 8], r8", "mov [rax + 16], r9", "mov [rax + 24], r10",
    "mov [rax + 32], rbx", "mov [rax + 40], rbp", "mov [rax + 48], r12", "mov [rax + 56], r13",
    "mov [rax + 64], r14", "mov [rax + 72], r15",
    "pop rcx",
    "pop r15", "pop r14", "pop r13", "pop r12", "pop rbp", "pop rbx",
    "ret",
    pdx_return = const abi::Call::PdxReturn as u64,
    pdx_call = const abi::Call::PdxCall as u64,
    mark = const MARK,
);

/// The registers before a captured call.
const MARK: u64 = 0x5ca1_ab1e;
/// Registers that [`capture`] looks at.
const CAPTURED: usize = 10;

unsafe extern "C" {
    static suite_leak_entry: u8;
    static suite_faulting_entry: u8;
    fn suite_call_and_look(entry: u64, pd: u64, parts: u64, left: *mut Left);
    fn suite_call_and_capture(number: u64, argument0: u64, argument1: u64, registers: *mut [u64; CAPTURED]);
}

/// A protected procedure whose results are the bits it found set in general and vector registers;
/// it returns with all of them set.
pub fn leak_entry() -> u64 {
    &raw const suite_leak_entry as u64
}

/// A protected procedure that fills all registers and faults.
pub fn faulting_entry() -> u64 {
    &raw const suite_faulting_entry as u64
}

/// Which registers are looked at.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Looked {
    /// The general ones; the vector unit is not used at all.
    General,
    /// The vector registers too.
    All,
}

/// Calls a procedure with all registers filled, and looks what is in them when it comes back.
pub fn call_and_look(entry: u64, pd: u64, looked: Looked) -> Left {
    let mut left = Left::default();
    let parts = if looked == Looked::All {
        super::vectors::parts()
    } else {
        0
    };
    // SAFETY: it keeps the C convention; the vector registers are not used by compiled code here.
    unsafe { suite_call_and_look(entry, pd, parts, &raw mut left) };
    left
}

/// Does a system call; tells whether every register that holds no result is as before or zero.
pub fn nothing_of_the_kernel(number: u64, arguments: [u64; 2]) -> bool {
    let mut registers = [0; CAPTURED];
    // SAFETY: it keeps the C convention; the suite uses it for calls that write nothing.
    unsafe { suite_call_and_capture(number, arguments[0], arguments[1], &raw mut registers) };
    registers
        .iter()
        .all(|&register| register == 0 || register == MARK || arguments.contains(&register))
}

/// Touches a page for the first time with all registers in use; gives the bits that changed.
pub fn changed_by_a_fault(fresh: u64) -> u64 {
    let changed: u64;
    // SAFETY: reads a word of a page made for it; registers are declared or kept; the vector
    // registers are not used by compiled code here.
    unsafe {
        asm!(
            "push rbx", "push rbp",
            "movq xmm0, rdi", "movq xmm15, rdi",
            "mov rbx, rdi", "mov rbp, rdi", "mov rax, rdi", "mov rcx, rdi", "mov rdx, rdi", "mov rsi, rdi", "mov r8, rdi", "mov r9, rdi",
            "mov r10, rdi", "mov r11, rdi", "mov r12, rdi", "mov r13, rdi", "mov r14, rdi", "mov r15, rdi",
            "mov rax, [rdi]",
            "xor rbx, rdi", "xor rbp, rdi", "xor rcx, rdi", "xor rdx, rdi", "xor rsi, rdi", "xor r8, rdi", "xor r9, rdi",
            "xor r10, rdi", "xor r11, rdi", "xor r12, rdi", "xor r13, rdi", "xor r14, rdi", "xor r15, rdi",
            "or rax, rbx", "or rax, rbp", "or rax, rcx", "or rax, rdx", "or rax, rsi", "or rax, r8", "or rax, r9",
            "or rax, r10", "or rax, r11", "or rax, r12", "or rax, r13", "or rax, r14", "or rax, r15",
            "movq rcx, xmm0", "xor rcx, rdi", "or rax, rcx", "movq rcx, xmm15", "xor rcx, rdi", "or rax, rcx",
            "pop rbp", "pop rbx",
            in("rdi") fresh,
            out("rax") changed, out("rcx") _, out("rdx") _, out("rsi") _, out("r8") _, out("r9") _,
            out("r10") _, out("r11") _, out("r12") _, out("r13") _, out("r14") _, out("r15") _,
        );
    }
    changed
}
