//! The processor's own tables and features: segments, the task state segment, the interrupt table,
//! control registers. And the little that is known per processor, reached through GS.

use core::{
    arch::{asm, x86_64::__cpuid_count},
    cell::UnsafeCell,
    mem::offset_of,
};

use super::{syscall, traps};

/// What the entry code finds at GS.
#[repr(C, align(64))]
pub struct PerProcessor {
    /// The interrupted user's stack pointer, during a system call.
    pub user_rsp: u64,
    /// Top of this processor's kernel stack.
    pub kernel_stack: u64,
    /// The second value of the call, or zero.
    pub value2: u64,
    /// Where the user goes on, during a system call.
    pub user_rip: u64,
    /// The sender of the message that is being received over the fast path.
    pub sender: u64,
    tss: Tss,
    ports: PortMap,
    gdt: [u64; 7],
}

/// Which ports user code may use (a set bit forbids), and a byte of ones behind them, as the processor wants it.
#[repr(C)]
struct PortMap {
    map: [u8; PORT_BYTES],
    end: u8,
}

/// Bytes of a map of ports.
const PORT_BYTES: usize = 8192;
/// Where the map stands in the task state segment while it counts.
const PORTS_ON: u16 = (offset_of!(PerProcessor, ports) - offset_of!(PerProcessor, tss)) as u16;
/// The last byte of the segment, the map included.
const TSS_LIMIT: u64 = PORTS_ON as u64 + PORT_BYTES as u64;
/// Behind that: no port at all.
const PORTS_OFF: u16 = u16::MAX;

/// Task state segment: where the processor finds stacks.
#[repr(C, packed(4))]
struct Tss {
    reserved0: u32,
    rsp0: u64,
    rsp1: u64,
    rsp2: u64,
    reserved1: u64,
    interrupt_stacks: [u64; 7],
    reserved2: u64,
    reserved3: u16,
    io_map: u16,
}

/// Offset of [`PerProcessor::user_rsp`].
pub const USER_RSP: usize = offset_of!(PerProcessor, user_rsp);
/// Offset of [`PerProcessor::kernel_stack`].
pub const KERNEL_STACK: usize = offset_of!(PerProcessor, kernel_stack);
/// Offset of [`PerProcessor::value2`].
pub const VALUE2: usize = offset_of!(PerProcessor, value2);
/// Offset of [`PerProcessor::user_rip`].
pub const USER_RIP: usize = offset_of!(PerProcessor, user_rip);

/// Offset of [`PerProcessor::sender`].
pub const SENDER: usize = offset_of!(PerProcessor, sender);

/// A value that only its processor touches, with interrupts off.
struct Own<T>(UnsafeCell<T>);

// SAFETY: each processor touches only its own part, with interrupts off; the accessors below are
// the only way in.
unsafe impl<T> Sync for Own<T> {}

static BOOT: Own<PerProcessor> = Own(UnsafeCell::new(PerProcessor {
    user_rsp: 0,
    kernel_stack: 0,
    value2: 0,
    user_rip: 0,
    sender: 0,
    tss: Tss {
        reserved0: 0,
        rsp0: 0,
        rsp1: 0,
        rsp2: 0,
        reserved1: 0,
        interrupt_stacks: [0; 7],
        reserved2: 0,
        reserved3: 0,
        io_map: PORTS_OFF,
    },
    ports: PortMap {
        map: [u8::MAX; PORT_BYTES],
        end: u8::MAX,
    },
    // Null, kernel code, kernel data, user data, user code, TSS (two words).
    gdt: [
        0,
        0x00af_9b00_0000_ffff,
        0x00cf_9300_0000_ffff,
        0x00cf_f300_0000_ffff,
        0x00af_fb00_0000_ffff,
        0,
        0,
    ],
}));

const STACK_BYTES: usize = 64 << 10;
/// The lowest page of the kernel stack is not mapped: running over the end is a double fault, not
/// silent damage to whatever lies below.
const GUARD_BYTES: usize = 4096;

/// A stack, aligned as the processor wants it.
#[repr(C, align(4096))]
struct Stack<const BYTES: usize>(UnsafeCell<[u8; BYTES]>);

// SAFETY: only ever used as a stack, by address.
unsafe impl<const BYTES: usize> Sync for Stack<BYTES> {}

impl<const BYTES: usize> Stack<BYTES> {
    fn top(&self) -> u64 {
        self.0.get() as u64 + BYTES as u64
    }
}

static KERNEL: Stack<{ GUARD_BYTES + STACK_BYTES }> = Stack(UnsafeCell::new([0; GUARD_BYTES + STACK_BYTES]));
static DOUBLE_FAULT: Stack<8192> = Stack(UnsafeCell::new([0; 8192]));
static NON_MASKABLE: Stack<8192> = Stack(UnsafeCell::new([0; 8192]));
static MACHINE_CHECK: Stack<8192> = Stack(UnsafeCell::new([0; 8192]));

/// The page below the kernel stack, which stays unmapped.
pub fn stack_guard() -> u64 {
    KERNEL.0.get() as u64
}

/// This processor's area.
#[inline(always)]
fn own() -> *mut PerProcessor {
    BOOT.0.get()
}

/// Sets the second value that the system call under way returns.
#[inline(always)]
pub fn set_value2(value: u64) {
    // SAFETY: interrupts are off, and this processor alone uses its area.
    unsafe { (*own()).value2 = value };
}

/// Sets the sender of the message that the system call under way receives.
#[inline(always)]
pub fn set_sender(sender: u64) {
    // SAFETY: as in `set_value2`.
    unsafe { (*own()).sender = sender };
}

/// Where the caller of the system call under way goes on: instruction, stack.
#[inline(always)]
pub fn caller() -> (u64, u64) {
    // SAFETY: as in `set_value2`.
    unsafe { ((*own()).user_rip, (*own()).user_rsp) }
}

/// Lets faults and interrupts of user code push into this context.
pub fn set_thread(context: &kcore::thread::Context) {
    let end = core::ptr::from_ref(context) as u64 + size_of::<kcore::thread::Context>() as u64;
    // SAFETY: as in `set_value2`; the table of threads never moves, so the address stays good
    // until another thread is set.
    unsafe { (*own()).tss.rsp0 = end };
}

/// User code on this processor may use the ports of this map (a set bit forbids) until [`ports_off`].
pub fn ports_on(map: &[u8; PORT_BYTES]) {
    // SAFETY: as in `set_value2`; the map lies in the segment, whose limit covers it.
    unsafe {
        (*own()).ports.map = *map;
        (*own()).tss.io_map = PORTS_ON;
    }
}

/// Whether they are still on.
pub fn ports_are_on() -> bool {
    // SAFETY: as in `set_value2`.
    unsafe { (*own()).tss.io_map == PORTS_ON }
}

/// User code on this processor may use no port.
pub fn ports_off() {
    // SAFETY: as in `set_value2`.
    unsafe { (*own()).tss.io_map = PORTS_OFF };
}

/// Reads a model-specific register.
fn read_msr(number: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: only registers that every 64-bit processor has are read.
    unsafe {
        asm!("rdmsr", in("ecx") number, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
    };
    u64::from(low) | u64::from(high) << 32
}

/// Writes a model-specific register.
///
/// # Safety
/// The value is one the rest of the kernel can live with.
unsafe fn write_msr(number: u32, value: u64) {
    // SAFETY: the caller answers for the value.
    unsafe {
        asm!("wrmsr", in("ecx") number, in("eax") value as u32, in("edx") (value >> 32) as u32, options(nostack, preserves_flags));
    };
}

/// A random word of the processor, if it has such an instruction and it delivers.
pub fn random_word() -> Option<u64> {
    if __cpuid_count(1, 0).ecx & 1 << 30 == 0 {
        return None;
    }
    for _ in 0..16 {
        let (word, ok): (u64, u8);
        // SAFETY: the instruction exists (checked above) and has no effect on memory.
        unsafe { asm!("rdrand {}", "setc {}", out(reg) word, out(reg_byte) ok, options(nomem, nostack)) };
        if ok != 0 {
            return Some(word);
        }
    }
    None
}

/// Which of the optional protections the processor has and now uses.
#[derive(Copy, Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a feature that is there or not")]
pub struct Protections {
    /// Supervisor mode execution prevention.
    pub smep: bool,
    /// Supervisor mode access prevention.
    pub smap: bool,
    /// User mode instruction prevention.
    pub umip: bool,
    /// Translations tagged with their space.
    pub pcid: bool,
}

const EFER: u32 = 0xc000_0080;
const STAR: u32 = 0xc000_0081;
const LSTAR: u32 = 0xc000_0082;
const FMASK: u32 = 0xc000_0084;
const GS_BASE: u32 = 0xc000_0101;
const KERNEL_GS_BASE: u32 = 0xc000_0102;

/// Flags that a system call clears: TF, IF, DF, IOPL, NT, AC.
const FLAGS_CLEARED: u64 = 1 << 8 | 1 << 9 | 1 << 10 | 3 << 12 | 1 << 14 | 1 << 18;

/// Sets this processor up: segments, stacks, traps, system calls, protections.
pub fn initialise() -> Protections {
    let own = own();
    // SAFETY: called once, before anything else uses the area; interrupts are off.
    unsafe {
        (*own).kernel_stack = KERNEL.top();
        let mut stacks = [0; 7];
        stacks[traps::STACK_DOUBLE_FAULT - 1] = DOUBLE_FAULT.top();
        stacks[traps::STACK_NON_MASKABLE - 1] = NON_MASKABLE.top();
        stacks[traps::STACK_MACHINE_CHECK - 1] = MACHINE_CHECK.top();
        (*own).tss.interrupt_stacks = stacks;
        let base = (&raw const (*own).tss) as u64;
        let limit = TSS_LIMIT;
        (*own).gdt[5] = limit | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56;
        (*own).gdt[6] = base >> 32;
        let pointer = Pointer {
            limit: 7 * 8 - 1,
            base: (&raw const (*own).gdt) as u64,
        };
        asm!(
            "lgdt [{pointer}]",
            "push 8",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "retfq",
            "2:",
            "mov ds, {zero:x}",
            "mov es, {zero:x}",
            "mov fs, {zero:x}",
            "mov gs, {zero:x}",
            "mov ss, {data:x}",
            "ltr {tss:x}",
            // No local table: what the loader left there is none of ours.
            "lldt {zero:x}",
            pointer = in(reg) &raw const pointer,
            scratch = out(reg) _,
            zero = in(reg) 0u64,
            data = in(reg) 0x10u64,
            tss = in(reg) 0x28u64,
        );
        write_msr(GS_BASE, own as u64);
        write_msr(KERNEL_GS_BASE, 0);
        write_msr(EFER, read_msr(EFER) | 1);
        write_msr(STAR, 0x10 << 48 | 0x08 << 32);
        write_msr(LSTAR, syscall::entry as *const () as u64);
        write_msr(FMASK, FLAGS_CLEARED);
    }
    traps::load();
    protections()
}

/// The operand of `lgdt` and `lidt`.
#[repr(C, packed)]
pub struct Pointer {
    /// Size in bytes, less one.
    pub limit: u16,
    /// Address.
    pub base: u64,
}

/// Turns on what the processor offers.
fn protections() -> Protections {
    let features = __cpuid_count(7, 0);
    let found = Protections {
        smep: features.ebx & 1 << 7 != 0,
        smap: features.ebx & 1 << 20 != 0,
        umip: features.ecx & 1 << 2 != 0,
        pcid: __cpuid_count(1, 0).ecx & 1 << 17 != 0,
    };
    let mut bits: u64 = 1 << 7;
    for (present, bit) in [(found.umip, 11), (found.pcid, 17), (found.smep, 20), (found.smap, 21)] {
        bits |= u64::from(present) << bit;
    }
    // SAFETY: only features that the processor reports are turned on; none takes from the kernel
    // what it uses: it runs no user page and touches none by its user address.
    unsafe {
        asm!("mov {tmp}, cr4", "or {tmp}, {bits}", "mov cr4, {tmp}", tmp = out(reg) _, bits = in(reg) bits, options(nostack));
    };
    found
}
