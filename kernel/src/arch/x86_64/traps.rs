//! The way in by exceptions and interrupts, and out by `iretq`.
//!
//! From user mode the processor pushes straight into the thread's context (the stack in the task
//! state segment ends there); the stub adds the general registers and changes to the kernel stack.
//! From kernel mode only interrupts while idle are expected; an exception there is a panic. Double
//! faults, NMI and machine checks come on stacks of their own and trust nothing, GS least of all.

use core::{
    arch::{asm, global_asm, naked_asm},
    cell::UnsafeCell,
    mem::offset_of,
};

use kcore::thread::Context;

use super::{
    interrupts::VECTORS,
    processor::{KERNEL_STACK, Pointer},
};

/// Interrupt stack of double faults.
pub const STACK_DOUBLE_FAULT: usize = 1;
/// Interrupt stack of NMI.
pub const STACK_NON_MASKABLE: usize = 2;
/// Interrupt stack of machine checks.
pub const STACK_MACHINE_CHECK: usize = 3;

/// Bytes of a stub.
const STUB: usize = 16;

global_asm!(
    ".section .text.entry, \"ax\", @progbits",
    ".balign 16",
    "trap_stubs:",
    ".set vector, 0",
    ".rept {VECTORS}",
    ".balign {STUB}",
    // Exceptions that come with an error code: 8, 10 to 14, 17, 21.
    ".if (vector != 8) && (vector != 10) && (vector != 11) && (vector != 12) && (vector != 13) && (vector != 14) && (vector != 17) && (vector != 21)",
    "push 0",
    ".endif",
    "push vector",
    "jmp {common}",
    ".set vector, vector + 1",
    ".endr",
    ".balign {STUB}",
    VECTORS = const VECTORS,
    STUB = const STUB,
    common = sym common,
);

unsafe extern "C" {
    static trap_stubs: u8;
}

/// Behind every stub: the stack holds vector, error, rip, cs, rflags, rsp, ss.
#[unsafe(naked)]
unsafe extern "C" fn common() {
    naked_asm!(
        "test byte ptr [rsp + 24], 3",
        "jz 2f",
        "swapgs",
        "push rax", "push rbx", "push rcx", "push rdx", "push rsi", "push rdi", "push rbp",
        "push r8", "push r9", "push r10", "push r11", "push r12", "push r13", "push r14", "push r15",
        "mov rdi, rsp",
        "mov rsi, [rsp + {VECTOR}]",
        "mov rsp, gs:[{KERNEL_STACK}]",
        // Clears AC and DF, which the user may have set.
        "push 2",
        "popfq",
        "xor ebp, ebp",
        "call {trap}",
        "ud2",
        "2:",
        "push rax", "push rbx", "push rcx", "push rdx", "push rsi", "push rdi", "push rbp",
        "push r8", "push r9", "push r10", "push r11", "push r12", "push r13", "push r14", "push r15",
        "mov rdi, rsp",
        "mov rbx, rsp",
        "and rsp, -16",
        "call {trap_in_kernel}",
        "mov rsp, rbx",
        "pop r15", "pop r14", "pop r13", "pop r12", "pop r11", "pop r10", "pop r9", "pop r8",
        "pop rbp", "pop rdi", "pop rsi", "pop rdx", "pop rcx", "pop rbx", "pop rax",
        "add rsp, 16",
        // One interrupt each time that they are let in: a thread it woke goes before the next one.
        "and qword ptr [rsp + 16], ~{INTERRUPTS_ON}",
        "iretq",
        INTERRUPTS_ON = const 0x200,
        KERNEL_STACK = const KERNEL_STACK,
        VECTOR = const core::mem::offset_of!(Context, vector),
        trap = sym super::image::kernel_trap,
        trap_in_kernel = sym super::image::kernel_trap_in_kernel,
    );
}

/// Goes on in user mode with these registers: by `sysret` if they are those of a call ([`Context::OF_CALL`]), else by
/// `iretq` with all of them.
///
/// # Safety
/// The context belongs to a thread whose space is loaded; rip and rsp are user addresses, the
/// selectors and flags those of user code.
#[unsafe(naked)]
pub unsafe extern "C" fn resume(context: *const Context) -> ! {
    naked_asm!(
        "cmp dword ptr [rdi + {VECTOR}], {OF_CALL}",
        "jne 2f",
        "mov rcx, [rdi + {RIP}]",
        "mov rsp, [rdi + {RSP}]",
        "mov rax, [rdi + {RAX}]",
        "mov rsi, [rdi + {RSI}]",
        "mov rdx, [rdi + {RDX}]",
        "mov r10, [rdi + {R10}]",
        "mov r12, [rdi + {R12}]",
        "mov r13, [rdi + {R13}]",
        "mov r14, [rdi + {R14}]",
        "mov r15, [rdi + {R15}]",
        "mov rdi, [rdi + {RDI}]",
        clear!("ebx" "ebp" "r8d" "r9d"),
        "mov r11d, {FLAGS}",
        "swapgs",
        "sysretq",
        "2:",
        "mov rsp, rdi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rbp",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop rbx",
        "pop rax",
        "add rsp, 16",
        "swapgs",
        "iretq",
        VECTOR = const offset_of!(Context, vector),
        OF_CALL = const Context::OF_CALL.cast_signed() as i32,
        RIP = const offset_of!(Context, rip),
        RSP = const offset_of!(Context, rsp),
        RAX = const offset_of!(Context, rax),
        RDI = const offset_of!(Context, rdi),
        RSI = const offset_of!(Context, rsi),
        RDX = const offset_of!(Context, rdx),
        R10 = const offset_of!(Context, r10),
        R12 = const offset_of!(Context, r12),
        R13 = const offset_of!(Context, r13),
        R14 = const offset_of!(Context, r14),
        R15 = const offset_of!(Context, r15),
        FLAGS = const kcore::thread::USER_FLAGS,
    );
}

/// Double fault: nothing can be trusted but the ports. The processor pushed an error code.
#[unsafe(naked)]
unsafe extern "C" fn double_fault() {
    naked_asm!("push 8", "jmp {fatal}", fatal = sym fatal);
}

/// Machine check, likewise, without an error code.
#[unsafe(naked)]
unsafe extern "C" fn machine_check() {
    naked_asm!("push 0", "push 18", "jmp {fatal}", fatal = sym fatal);
}

/// Behind both: makes a context of the registers as they were, and does not come back.
#[unsafe(naked)]
unsafe extern "C" fn fatal() {
    naked_asm!(
        // A machine check may come in user mode, with the user's GS.
        "test byte ptr [rsp + 24], 3",
        "jz 2f",
        "swapgs",
        "2:",
        "push rax", "push rbx", "push rcx", "push rdx", "push rsi", "push rdi", "push rbp",
        "push r8", "push r9", "push r10", "push r11", "push r12", "push r13", "push r14", "push r15",
        "mov rdi, rsp",
        "and rsp, -16",
        "cld",
        "call {fatal}",
        "ud2",
        fatal = sym crate::event::fatal,
    );
}

/// The registers here: those that a function keeps for its caller, the stack pointer and the place of the call. The
/// others are zero.
#[inline(always)]
pub fn registers() -> Context {
    let mut context = Context::default();
    // SAFETY: the function below writes the fields of the context that it is given, and nothing else.
    unsafe { note_registers(&raw mut context) };
    context
}

#[unsafe(naked)]
unsafe extern "C" fn note_registers(context: *mut Context) {
    naked_asm!(
        "mov [rdi + {rbx}], rbx",
        "mov [rdi + {rbp}], rbp",
        "mov [rdi + {r12}], r12",
        "mov [rdi + {r13}], r13",
        "mov [rdi + {r14}], r14",
        "mov [rdi + {r15}], r15",
        // As if this had returned already.
        "lea rax, [rsp + 8]",
        "mov [rdi + {rsp}], rax",
        "mov rax, [rsp]",
        "mov [rdi + {rip}], rax",
        "ret",
        rbx = const offset_of!(Context, rbx),
        rbp = const offset_of!(Context, rbp),
        r12 = const offset_of!(Context, r12),
        r13 = const offset_of!(Context, r13),
        r14 = const offset_of!(Context, r14),
        r15 = const offset_of!(Context, r15),
        rsp = const offset_of!(Context, rsp),
        rip = const offset_of!(Context, rip),
    );
}

/// NMI: nobody here sends one; a stray one changes nothing.
#[unsafe(naked)]
unsafe extern "C" fn non_maskable() {
    naked_asm!("iretq");
}

/// The interrupt table.
#[repr(C, align(4096))]
struct Table(UnsafeCell<[[u64; 2]; 256]>);

// SAFETY: written once at the start, read by processors only.
unsafe impl Sync for Table {}

static TABLE: Table = Table(UnsafeCell::new([[0; 2]; 256]));

const fn gate(address: u64, stack: usize, privilege: u64) -> [u64; 2] {
    [
        address & 0xffff
            | 8 << 16
            | (stack as u64) << 32
            | (0x8e | privilege << 5) << 40
            | (address >> 16 & 0xffff) << 48,
        address >> 32,
    ]
}

/// Fills the table that all processors share.
pub fn fill() {
    let stubs = (&raw const trap_stubs) as u64;
    // SAFETY: at the start, by one processor, before interrupts are on.
    let table = unsafe { &mut *TABLE.0.get() };
    for (vector, slot) in table.iter_mut().enumerate().take(VECTORS) {
        // A breakpoint is the one exception that user code may ask for.
        let privilege = if vector == 3 { 3 } else { 0 };
        *slot = gate(stubs + (vector * STUB) as u64, 0, privilege);
    }
    table[2] = gate(non_maskable as *const () as u64, STACK_NON_MASKABLE, 0);
    table[8] = gate(double_fault as *const () as u64, STACK_DOUBLE_FAULT, 0);
    table[18] = gate(machine_check as *const () as u64, STACK_MACHINE_CHECK, 0);
    // The interrupt controller's spurious vector needs no answer.
    table[255] = gate(non_maskable as *const () as u64, 0, 0);
}

/// Loads the table on this processor.
pub fn load() {
    let pointer = Pointer {
        limit: 256 * 16 - 1,
        base: TABLE.0.get() as u64,
    };
    // SAFETY: the table is complete and never goes away.
    unsafe { asm!("lidt [{}]", in(reg) &raw const pointer, options(readonly, nostack, preserves_flags)) };
}

/// The address that the last page fault was about.
pub fn fault_address() -> u64 {
    let address: u64;
    // SAFETY: reading a control register has no effect.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    address
}

/// Goes on in user mode.
#[inline(always)]
pub fn go_on(context: *const Context) -> ! {
    // SAFETY: contexts are made by `kcore` with user selectors, flags and checked addresses, and
    // the caller has loaded the thread's space.
    unsafe { resume(context) }
}
