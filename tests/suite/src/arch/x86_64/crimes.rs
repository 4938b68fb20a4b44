//! Acts that are forbidden to a program, and how a program ends that does one.
//!
//! Each is committed by an assistant; the suite compares the exit report. Where processors differ in
//! the exception they raise, any of the listed kinds is right.

use core::arch::{asm, x86_64::__cpuid_count};

use abi::{
    Rights,
    layout::{EXCEPTION_ARITHMETIC, EXCEPTION_ILLEGAL, EXCEPTION_PROTECTION},
};

use super::guarded::{jump, load, store};

/// The address that the report must name.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Named {
    /// It does not matter.
    Any,
    /// Exactly this.
    Exactly(u64),
    /// One inside the program's image.
    InImage,
    /// One in the window of stacks.
    InStacks,
}

/// Something that must not be done.
#[derive(Copy, Clone, Debug)]
pub struct Crime {
    /// Its name.
    pub name: &'static str,
    /// The kind of exception it ends with.
    pub kind: u64,
    /// The address in the report.
    pub named: Named,
    /// The rights in the report.
    pub wanted: Rights,
    deed: fn(),
}

const KERNEL: u64 = 0xffff_ffff_8010_0000;
const DIRECT: u64 = 0xffff_8000_0000_0000;
const TOP: u64 = u64::MAX - 7;
const NOWHERE: u64 = 0x0000_6000_0000_0000;
const NON_CANONICAL: u64 = 0x0000_8000_0000_0000;

const fn access(name: &'static str, named: Named, wanted: Rights, deed: fn()) -> Crime {
    Crime {
        name,
        kind: EXCEPTION_PROTECTION,
        named,
        wanted,
        deed,
    }
}

const fn illegal(name: &'static str, deed: fn()) -> Crime {
    Crime {
        name,
        kind: EXCEPTION_ILLEGAL,
        named: Named::Any,
        wanted: Rights::NONE,
        deed,
    }
}

const fn arithmetic(name: &'static str, deed: fn()) -> Crime {
    Crime {
        name,
        kind: EXCEPTION_ARITHMETIC,
        named: Named::Any,
        wanted: Rights::NONE,
        deed,
    }
}

/// An assembly sequence that is not to be survived, as a function.
macro_rules! deed {
    ($($line:literal),* $(; $($operand:tt)*)?) => {
        || {
            // SAFETY: if the system lets it pass, only this assistant suffers, and says so by ending well.
            unsafe { asm!($($line,)* $($($operand)*)?) }
        }
    };
}

/// All of them.
pub const CRIMES: &[Crime] = &[
    access("read-null", Named::Exactly(0), Rights::R, || read(0)),
    access("write-null", Named::Exactly(8), Rights::W, || store(8, 1)),
    access("jump-null", Named::Exactly(0), Rights::X, || jump(0)),
    access("read-kernel", Named::Exactly(KERNEL), Rights::R, || read(KERNEL)),
    access("write-kernel", Named::Exactly(KERNEL), Rights::W, || store(KERNEL, 0)),
    access("jump-kernel", Named::Exactly(KERNEL), Rights::X, || jump(KERNEL)),
    access("read-direct-map", Named::Exactly(DIRECT), Rights::R, || read(DIRECT)),
    access("read-top", Named::Exactly(TOP), Rights::R, || read(TOP)),
    access("read-nowhere", Named::Exactly(NOWHERE), Rights::R, || read(NOWHERE)),
    access(
        "write-user-end",
        Named::Exactly(abi::address::USER_END),
        Rights::W,
        || store(abi::address::USER_END, 1),
    ),
    access("write-text", Named::InImage, Rights::W, overwrite_text),
    access("execute-data", Named::InImage, Rights::X, execute_data),
    access("execute-stack", Named::InStacks, Rights::X, execute_stack),
    access("recurse", Named::InStacks, Rights::W, || {
        core::hint::black_box(recurse(1));
    }),
    access(
        "push-without-stack",
        Named::Exactly(u64::MAX - 7),
        Rights::W,
        deed!("xor esp, esp", "push rax"; options(noreturn)),
    ),
    illegal("read-non-canonical", || read(NON_CANONICAL)),
    illegal("write-non-canonical", || store(u64::MAX >> 1, 0)),
    illegal("jump-non-canonical", || jump(NON_CANONICAL)),
    illegal(
        "push-non-canonical",
        deed!("mov rsp, {}", "push rax"; in(reg) NON_CANONICAL + 64, options(noreturn)),
    ),
    illegal(
        "return-non-canonical",
        deed!("push {}", "ret"; in(reg) NON_CANONICAL, options(noreturn)),
    ),
    arithmetic(
        "divide-by-zero",
        deed!("xor ecx, ecx", "div rcx"; out("rcx") _, out("rax") _, out("rdx") _),
    ),
    arithmetic(
        "divide-overflow",
        deed!("mov rax, rdx", "mov ecx, 1", "div rcx"; out("rcx") _, out("rax") _, inout("rdx") 7u64 => _),
    ),
    arithmetic(
        "x87-divide-by-zero",
        deed!("fninit", "push 0x37b", "fldcw [rsp]", "fld1", "fldz", "fdivp", "fwait", "pop {}"; out(reg) _),
    ),
    illegal("undefined", deed!("ud2"; options(noreturn))),
    illegal("breakpoint", deed!("int3")),
    illegal(
        "trap-flag",
        deed!("pushfq", "or qword ptr [rsp], 0x100", "popfq", "nop", "nop"),
    ),
    illegal("interrupt-1", deed!(".byte 0xf1")),
    illegal("interrupt-128", deed!("int 0x80")),
    illegal("interrupt-double-fault", deed!("int 8")),
    illegal("interrupt-page-fault", deed!("int 14")),
    illegal("interrupt-timer", deed!("int 32")),
    illegal("interrupt-255", deed!("int 255")),
    illegal("halt", deed!("hlt")),
    illegal("interrupts-off", deed!("cli")),
    illegal("interrupts-on", deed!("sti")),
    illegal("port-in", deed!("in al, 0x60"; out("al") _)),
    illegal(
        "port-out",
        deed!("mov dx, 0xf4", "mov al, 0x10", "out dx, al"; out("dx") _, out("al") _),
    ),
    illegal(
        "read-msr",
        deed!("mov ecx, 0xc0000080", "rdmsr"; out("rcx") _, out("rax") _, out("rdx") _),
    ),
    illegal(
        "write-msr",
        deed!("mov ecx, 0xc0000082", "xor eax, eax", "xor edx, edx", "wrmsr"; out("rcx") _, out("rax") _, out("rdx") _),
    ),
    illegal("read-control", deed!("mov rax, cr3"; out("rax") _)),
    illegal("write-control", deed!("xor eax, eax", "mov cr3, rax"; out("rax") _)),
    illegal("write-debug", deed!("xor eax, eax", "mov dr7, rax"; out("rax") _)),
    illegal("clear-task-switched", deed!("clts")),
    illegal("invalidate", deed!("invlpg [rsp]")),
    illegal("write-back", deed!("wbinvd")),
    illegal("swap-gs", deed!("swapgs")),
    illegal("system-return", deed!("xor ecx, ecx", "sysretq"; options(noreturn))),
    illegal("load-table", deed!("sub rsp, 16", "lidt [rsp]", "add rsp, 16")),
    illegal("load-task", deed!("mov ax, 0x28", "ltr ax"; out("ax") _)),
    illegal("load-kernel-data", deed!("mov ax, 0x10", "mov ss, ax"; out("ax") _)),
    illegal(
        "load-beyond-table",
        deed!("mov eax, 0xfff8", "mov ds, ax"; out("rax") _),
    ),
    // Far returns and `iret` are left out: QEMU 7.2 reads their stack as the kernel would, which SMAP forbids,
    // so they fault for ever.
    illegal(
        "far-to-kernel",
        deed!("push 8", "push 0", "jmp fword ptr [rsp + 4]"; options(noreturn)),
    ),
    illegal(
        "extended-control",
        deed!("xor ecx, ecx", "xor edx, edx", "mov eax, 1", "xsetbv"; out("rcx") _, out("rax") _, out("rdx") _),
    ),
    illegal(
        "performance-counter",
        deed!("xor ecx, ecx", "rdpmc"; out("rcx") _, out("rax") _, out("rdx") _),
    ),
    illegal("descriptor-table-address", store_table),
    illegal("system-enter", deed!("sysenter"; options(noreturn))),
    illegal("locked-nonsense", deed!(".byte 0xf0, 0x90")),
];

/// Does it. Coming back means that it was allowed.
pub fn commit(crime: &Crime) {
    (crime.deed)();
}

fn read(address: u64) {
    core::hint::black_box(load(address));
}

fn overwrite_text() {
    store(overwrite_text as *const () as u64, 0x90);
}

fn execute_data() {
    static DATA: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0xc3);
    DATA.store(0xc3, core::sync::atomic::Ordering::Relaxed);
    jump(DATA.as_ptr() as u64);
}

fn execute_stack() {
    let code = core::hint::black_box(0xc3_u64);
    jump(&raw const code as u64);
}

#[allow(unconditional_recursion, reason = "that is the crime")]
fn recurse(depth: u64) -> u64 {
    let frame = core::hint::black_box([depth; 32]);
    recurse(frame[1] + 1) + frame[0]
}

/// Where the processor does not forbid it, there is nothing to test: ends as if it did.
fn store_table() {
    if __cpuid_count(7, 0).ecx & 1 << 2 == 0 {
        // SAFETY: it ends the thread, as expected of a crime.
        unsafe { asm!("ud2", options(noreturn)) }
    }
    // SAFETY: ten bytes of the stack are written below the frame's end, which is moved first.
    unsafe { asm!("sub rsp, 16", "sgdt [rsp]", "add rsp, 16") }
}
