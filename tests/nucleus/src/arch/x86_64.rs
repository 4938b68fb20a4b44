//! Exceptions and ports of x86-64. Each exception stands in front of a `nop`-like end to which its handler moves the thread.

use core::arch::{asm, x86_64::__cpuid_count};

use abi::{error::Result, nucleus::Registers};
use drivers::{
    dma::{DirectMap, Window},
    world::Ports,
};
use nucleus::call;

/// Divide error, single step, breakpoint, invalid opcode, general protection.
pub const CRIMES: [u64; 5] = [0, 1, 3, 6, 13];

/// Trap flag.
const STEP: u64 = 1 << 8;

/// Runs into the exception in this place of [`CRIMES`]; 42 if its handler moved it on.
#[inline(never)]
pub fn crime(number: u64) -> u64 {
    let mut found: u64 = 0;
    // SAFETY: each stretch ends at its last instruction whatever happens: the handler writes rip
    // there and the answer into rbx's stand-in r12. The stack and other registers stay.
    unsafe {
        match number {
            0 => asm!(
                "xor edx, edx", "xor ecx, ecx", "lea r13, [rip + 2f]", "mov eax, 1", "div rcx", "2:",
                inout("r12") found, out("rax") _, out("rcx") _, out("rdx") _, out("r13") _,
            ),
            1 => asm!(
                "lea r13, [rip + 2f]", "pushfq", "or qword ptr [rsp], 0x100", "popfq", "nop", "2:",
                inout("r12") found, out("r13") _,
            ),
            2 => asm!("lea r13, [rip + 2f]", "int3", "2:", inout("r12") found, out("r13") _),
            3 => asm!("lea r13, [rip + 2f]", "ud2", "2:", inout("r12") found, out("r13") _),
            _ => asm!(
                "lea r13, [rip + 2f]", "mov rax, 0x800000000000", "mov rax, [rax]", "2:",
                inout("r12") found, out("rax") _, out("r13") _,
            ),
        }
    }
    found
}

/// Goes on behind the exception.
pub fn move_on(_: usize, registers: &mut Registers) {
    registers.rip = registers.r13;
    registers.r12 = 42;
    registers.rflags &= !STEP;
}

/// `ThreadExchange` of a thread that is in [`crime`].
pub fn exchange(me: u64, thread: u64, what: u64, registers: &mut Registers) -> Result<u64> {
    // SAFETY: the cases write only registers with which `crime` goes on.
    unsafe { call::thread_exchange(me, thread, what, registers) }
}

/// Reads a byte from a port that the space has.
pub fn read_port(port: u16) -> u8 {
    let value: u8;
    // SAFETY: a port access touches no memory; without the right to the port the thread faults.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Writes a byte to a port that the space has.
pub fn write_port(port: u16, value: u8) {
    // SAFETY: as in `read_port`; the serial line does no DMA, and of PCI's configuration only cards without buffers are changed.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) };
}

/// All ports, of a space that has them.
pub struct AllPorts;

impl Ports for AllPorts {
    fn read_u8(&self, port: u16) -> u8 {
        read_port(port)
    }

    fn read_u16(&self, port: u16) -> u16 {
        let value: u16;
        // SAFETY: as in `read_port`.
        unsafe { asm!("in ax, dx", in("dx") port, out("ax") value, options(nomem, nostack, preserves_flags)) };
        value
    }

    fn read_u32(&self, port: u16) -> u32 {
        let value: u32;
        // SAFETY: as in `read_port`.
        unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack, preserves_flags)) };
        value
    }

    fn write_u8(&self, port: u16, value: u8) {
        write_port(port, value);
    }

    fn write_u16(&self, port: u16, value: u16) {
        // SAFETY: as in `write_port`.
        unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nomem, nostack, preserves_flags)) };
    }

    fn write_u32(&self, port: u16, value: u32) {
        // SAFETY: as in `write_port`.
        unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack, preserves_flags)) };
    }
}

/// The registers of a card without buffers, where a space has them.
pub fn registers(address: u64, bytes: usize) -> Window {
    // SAFETY: addresses are what a space has them at, and where it has none the thread faults. The cases map
    // only registers there. The card is given no address of memory, so it does nothing to memory.
    unsafe { DirectMap::new(0).window(address, bytes) }
}

/// What `fxsave` writes, and behind it the upper halves of the registers of AVX.
#[repr(C, align(64))]
struct Saved([u64; 96]);

/// Whether the processor and the system offer AVX.
fn has_upper_halves() -> bool {
    __cpuid_count(1, 0).ecx & (1 << 27 | 1 << 28) == 1 << 27 | 1 << 28
}

/// Control words of x87 and SSE that belong to a pattern: they round in its way.
fn control_words(pattern: u64) -> (u16, u32) {
    let way = pattern & 3;
    (0x37f | (way << 10) as u16, 0x1f80 | (way << 13) as u32)
}

/// Fills all vector registers with a pattern, and sets the control words by it.
pub fn fill_vectors(pattern: u64) {
    let (x87, sse) = control_words(pattern);
    // SAFETY: it changes the vector unit only, which compiled code here does not use; the control words mask all exceptions.
    unsafe {
        asm!(
            "fninit", "fldcw [{x87}]", "ldmxcsr [{sse}]",
            "movq xmm0, {pattern}",
            "punpcklqdq xmm0, xmm0",
            ".irp n,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
            "movdqa xmm\\n, xmm0",
            ".endr",
            "test {upper}, {upper}",
            "jz 2f",
            ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
            "vinsertf128 ymm\\n, ymm\\n, xmm\\n, 1",
            ".endr",
            "2:",
            x87 = in(reg) &raw const x87, sse = in(reg) &raw const sse, pattern = in(reg) pattern,
            upper = in(reg) u64::from(has_upper_halves()), options(nostack),
        );
    }
}

/// The content of the vector registers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Held {
    /// The pattern.
    Own,
    /// Their initial state.
    Initial,
    /// Something else.
    Foreign,
}

/// Whether the vector registers are what [`fill_vectors`] made of them with this pattern.
pub fn held_vectors(pattern: u64) -> Held {
    let mut saved = Saved([0; 96]);
    // SAFETY: writes what `fxsave` writes, and the upper halves behind that; compiled code here does not use the unit.
    unsafe {
        asm!(
            "fxsave64 [{saved}]",
            "test {upper}, {upper}",
            "jz 2f",
            ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
            "vextractf128 [{saved} + 512 + 16 * \\n], ymm\\n, 1",
            ".endr",
            "2:",
            saved = in(reg) &raw mut saved, upper = in(reg) u64::from(has_upper_halves()), options(nostack),
        );
    }
    // The control words; then eight registers of x87, sixteen of SSE, and their upper halves.
    let [first, _, _, control, rest @ ..] = saved.0;
    let upper: &[u64] = if has_upper_halves() { &rest[60..] } else { &[] };
    let is = |pattern: u64, (x87, sse): (u16, u32)| {
        let registers = || rest[16..48].iter().chain(upper);
        first as u16 == x87 && control as u32 == sse && registers().all(|&word| word == pattern)
    };
    if is(pattern, control_words(pattern)) {
        Held::Own
    } else if is(0, control_words(0)) && rest[..16].iter().all(|&word| word == 0) {
        Held::Initial
    } else {
        Held::Foreign
    }
}
