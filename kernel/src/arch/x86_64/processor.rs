//! The processor's own tables and features: segments, the task state segment, the interrupt table,
//! control registers. And the little that is known per processor, reached through GS.

use core::{
    arch::{asm, x86_64::__cpuid_count},
    cell::UnsafeCell,
    mem::{MaybeUninit, offset_of},
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use kcore::{
    SpaceId,
    smp::{PROCESSORS_MAX, Processor, Processors, protocol::Mark},
};

use super::{syscall, traps};

/// The data that the entry code finds at GS.
#[repr(C, align(64))]
pub struct PerProcessor {
    /// The interrupted user's stack pointer, during a system call.
    pub user_rsp: u64,
    /// Top of this processor's kernel stack.
    pub kernel_stack: u64,
    /// The second value of the call that is about to return.
    pub value2: u64,
    /// The user's next instruction, during a system call.
    pub user_rip: u64,
    /// Its own address.
    own: *mut PerProcessor,
    /// By what it takes the kernel lock (`kcore::smp::protocol::Mark`).
    mark: u32,
    /// When its timer will interrupt, in nanoseconds since the start.
    pub timer_ns: u64,
    /// The record that the kernel's logic keeps of it.
    record: Processor,
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
/// The place of the map in the task state segment while it counts.
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

const OWN: usize = offset_of!(PerProcessor, own);
/// Offset of the mark by which this processor takes the kernel lock.
pub const MARK: usize = offset_of!(PerProcessor, mark);
/// Offset of the processor's record.
pub const RECORD: usize = offset_of!(PerProcessor, record);
/// Offset of the space whose root is loaded.
pub const LOADED_SPACE: usize = RECORD + Processor::SPACE;
/// Offset of the end of the running thread's context, where user code's faults are pushed.
pub const THREAD_END: usize = offset_of!(PerProcessor, tss) + offset_of!(Tss, rsp0);

/// A value that only its processor touches, with interrupts off.
struct Own<T>(UnsafeCell<T>);

// SAFETY: each processor touches only its own part, with interrupts off; the accessors below are
// the only way in.
unsafe impl<T> Sync for Own<T> {}

const EMPTY: PerProcessor = PerProcessor {
    user_rsp: 0,
    kernel_stack: 0,
    value2: 0,
    user_rip: 0,
    own: core::ptr::null_mut(),
    mark: 0,
    timer_ns: u64::MAX,
    record: Processor::new(0),
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
};

/// Zeroes until the first processor is [initialised](initialise), so that they take no room in the kernel's image.
static AREAS: [Own<MaybeUninit<PerProcessor>>; PROCESSORS_MAX] =
    [const { Own(UnsafeCell::new(MaybeUninit::zeroed())) }; PROCESSORS_MAX];

/// A word of this processor's area.
#[inline(always)]
fn word<const AT: usize>() -> usize {
    let word;
    // SAFETY: as in `own`. The word changes, but by the holder of the kernel lock alone, which looks.
    unsafe {
        asm!("mov {:e}, gs:[{AT}]", out(reg) word, AT = const AT, options(pure, readonly, nostack, preserves_flags));
    };
    word
}

/// The records of the processors: each stands in its processor's area. Only the holder of the kernel lock reaches this value.
pub struct Records(());

/// Whether it was made.
static TAKEN: AtomicBool = AtomicBool::new(false);

impl Records {
    /// The records.
    ///
    /// # Panics
    /// If they were taken before.
    pub fn take() -> Self {
        assert!(!TAKEN.swap(true, Relaxed), "the records are taken once");
        Self(())
    }

    /// The record of a processor; its own if there is none with that number.
    fn place(number: u32) -> *mut Processor {
        let area = AREAS.get(number as usize).map_or_else(own, |area| area.0.get().cast());
        // SAFETY: an area, whose field is not read here.
        unsafe { &raw mut (*area).record }
    }
}

impl Deref for Records {
    type Target = Processor;

    #[inline(always)]
    fn deref(&self) -> &Processor {
        // SAFETY: the record was made when the first processor was initialised, and is reached through this one value. The fast paths write to it while they have the kernel
        // lock, and so nobody a reference.
        unsafe { &(*own()).record }
    }
}

impl DerefMut for Records {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Processor {
        // SAFETY: as in `deref`, and this borrow is the only one.
        unsafe { &mut (*own()).record }
    }
}

impl Processors for Records {
    fn part(&self, number: u32) -> &Processor {
        // SAFETY: as in `deref`; the other processors have no reference either, since they have not the lock.
        unsafe { &*Self::place(number) }
    }

    fn part_mut(&mut self, number: u32) -> &mut Processor {
        // SAFETY: as in `part`, and this borrow is the only one.
        unsafe { &mut *Self::place(number) }
    }

    #[inline(always)]
    fn own_number(&self) -> u32 {
        word::<{ RECORD + Processor::NUMBER }>() as u32
    }

    #[inline(always)]
    fn runs_now(&self) -> usize {
        word::<{ RECORD + Processor::CURRENT }>()
    }

    #[inline(always)]
    fn note_space(&mut self, space: SpaceId) {
        // SAFETY: as in `deref_mut`; the word is the record's space.
        unsafe {
            asm!("mov gs:[{AT}], {:e}", in(reg) space.0, AT = const LOADED_SPACE, options(nostack, preserves_flags));
        };
    }
}

/// Bytes of a processor's kernel stack.
const STACK_BYTES: usize = 64 << 10;
/// Bytes of the first processor's, on which the boot runs, too: it moves large values about and mounts the store.
const FIRST_STACK_BYTES: usize = 256 << 10;
/// The lowest page of the kernel stack is not mapped: running over the end is a double fault, not
/// silent damage to whatever lies below.
const GUARD_BYTES: usize = 4096;

/// A stack, aligned as the processor wants it.
#[repr(C, align(4096))]
pub struct Stack<const BYTES: usize>(UnsafeCell<[u8; BYTES]>);

// SAFETY: only ever used as a stack, by address.
unsafe impl<const BYTES: usize> Sync for Stack<BYTES> {}

impl<const BYTES: usize> Stack<BYTES> {
    fn top(&self) -> u64 {
        self.0.get() as u64 + BYTES as u64
    }
}

/// The first processor's kernel stack, from its first instruction in Rust on. The page below it is not mapped once the kernel's own
/// tables are loaded; before that the boot does little.
pub static KERNEL: Stack<FIRST_STACK> = Stack(UnsafeCell::new([0; FIRST_STACK]));
/// Bytes of that, with its guard page.
pub const FIRST_STACK: usize = GUARD_BYTES + FIRST_STACK_BYTES;
static DOUBLE_FAULT: Stack<8192> = Stack(UnsafeCell::new([0; 8192]));
static NON_MASKABLE: Stack<8192> = Stack(UnsafeCell::new([0; 8192]));
static MACHINE_CHECK: Stack<8192> = Stack(UnsafeCell::new([0; 8192]));

/// The words of a stack from `rsp` up to its top, and the address of the first: what is mapped of a processor's kernel
/// stack if `rsp` lies in it or in its guard page, nothing if it lies elsewhere.
pub fn stack_above(rsp: u64) -> (u64, &'static [u64]) {
    let found = AREAS.iter().enumerate().find_map(|(number, area)| {
        // SAFETY: written when the processor was started, read as a whole word; a stack that is not there yet is zero.
        let top = unsafe { (&raw const (*area.0.get().cast::<PerProcessor>()).kernel_stack).read_volatile() };
        let guard = top.checked_sub(if number == 0 { FIRST_STACK as u64 } else { STACK_TOP })?;
        (guard..top).contains(&rsp).then_some((guard, top))
    });
    let Some((guard, top)) = found else {
        return (rsp, &[]);
    };
    let from = rsp.max(guard + GUARD_BYTES as u64).next_multiple_of(8);
    // SAFETY: inside a kernel stack and above its guard page, so mapped for good. The caller is about to end
    // the kernel on this very stack or on another one: words below its own frames may change, which are only shown.
    let words = unsafe { core::slice::from_raw_parts(from as *const u64, ((top - from) / 8) as usize) };
    (from, words)
}

/// The page below the kernel stack, which stays unmapped.
pub fn stack_guard() -> u64 {
    KERNEL.0.get() as u64
}

/// Bytes of the first processor's kernel stack that were used since the start, and all of them. Takes as many looks as there are
/// words that were not.
pub fn stack_used() -> (usize, usize) {
    let first = KERNEL.0.get() as usize + GUARD_BYTES;
    let words = (first..first + FIRST_STACK_BYTES).step_by(size_of::<u64>());
    // SAFETY: inside the stack and above its guard page, so mapped for good; read as a whole word each, while only this
    // function's frames change, which lie above all words that are still zero.
    let unused = words.take_while(|&word| unsafe { (word as *const u64).read_volatile() } == 0);
    (FIRST_STACK_BYTES - unused.count() * size_of::<u64>(), FIRST_STACK_BYTES)
}

/// The place of the other processors' stacks: above the image, a stretch of addresses each.
pub const STACK_WINDOW: u64 = 0xffff_ffff_c000_0000;
/// Bytes of a stretch.
pub const STACK_STRIDE: u64 = 32 * 4096;
/// Top of the kernel stack in a stretch, whose first page is not mapped.
pub const STACK_TOP: u64 = (GUARD_BYTES + STACK_BYTES) as u64;
/// Bytes of an interrupt stack, and of the guard page below it.
const INTERRUPT_STACK: u64 = 3 * 4096;

/// The pages of a stretch that are mapped: the kernel stack, then three interrupt stacks, each above a guard page.
pub fn stack_pages() -> impl Iterator<Item = usize> {
    const FIRST: usize = (STACK_TOP / 4096) as usize;
    (1..FIRST).chain((FIRST..FIRST + 9).filter(|page| !(page - FIRST).is_multiple_of(3)))
}

/// This processor's area.
#[inline(always)]
fn own() -> *mut PerProcessor {
    let own;
    // SAFETY: in the kernel GS leads to the area, in which its address stands.
    unsafe {
        asm!("mov {}, gs:[{OWN}]", out(reg) own, OWN = const OWN, options(pure, nomem, nostack, preserves_flags));
    };
    own
}

/// By what this processor takes the kernel lock.
#[inline(always)]
pub fn mark() -> u32 {
    let mark;
    // SAFETY: as in `own`.
    unsafe {
        asm!("mov {:e}, gs:[{MARK}]", out(reg) mark, MARK = const MARK, options(pure, nomem, nostack, preserves_flags));
    };
    mark
}

/// Sets the second value that the system call under way returns.
#[inline(always)]
pub fn set_value2(value: u64) {
    // SAFETY: interrupts are off, and this processor alone uses its area.
    unsafe { asm!("mov gs:[{VALUE2}], {}", in(reg) value, VALUE2 = const VALUE2, options(nostack, preserves_flags)) };
}

/// The point where the caller of the system call under way goes on: instruction, stack. Noted by the fast ways, and where a call waits for its turn; the
/// general way notes it in the caller's context.
#[inline(always)]
pub fn caller() -> (u64, u64) {
    let (rip, rsp);
    // SAFETY: as in `own`. The entry code alone writes these words, before it calls Rust.
    unsafe {
        asm!("mov {}, gs:[{USER_RIP}]", "mov {}, gs:[{USER_RSP}]", out(reg) rip, out(reg) rsp,
            USER_RIP = const USER_RIP, USER_RSP = const USER_RSP, options(readonly, nostack, preserves_flags));
    };
    (rip, rsp)
}

/// When this processor's timer will interrupt.
pub fn timer_ns() -> u64 {
    // SAFETY: as in `set_value2`.
    unsafe { (*own()).timer_ns }
}

/// Notes when it will.
pub fn set_timer_ns(at_ns: u64) {
    // SAFETY: as in `set_value2`.
    unsafe { (*own()).timer_ns = at_ns };
}

/// Lets faults and interrupts of user code push into this context.
pub fn set_thread(context: &kcore::thread::Context) {
    let end = core::ptr::from_ref(context) as u64 + size_of::<kcore::thread::Context>() as u64;
    // SAFETY: as in `set_value2`; the table of threads never moves, so the address stays good
    // until another thread is set.
    unsafe { asm!("mov gs:[{RSP0}], {}", in(reg) end, RSP0 = const THREAD_END, options(nostack, preserves_flags)) };
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

/// Bytes of the instruction that makes a system call.
const CALL_BYTES: u64 = 2;

/// Puts the registers of the system call under way into the running thread's context, so that it will
/// make the call again: nothing of it was done. rip and rsp of `context` do not matter.
pub fn restart_call(context: &kcore::thread::Context) {
    let (rip, rsp) = caller();
    let again = kcore::thread::Context {
        rip: rip.wrapping_sub(CALL_BYTES),
        rsp,
        ..*context
    };
    let bytes = size_of::<kcore::thread::Context>() as u64;
    // SAFETY: the context of the thread that runs here ends there; until it is handed over, this
    // processor alone writes to it, as it does when it traps.
    unsafe { (((*own()).tss.rsp0 - bytes) as *mut kcore::thread::Context).write(again) };
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

/// Level of the largest pages that the processor knows: 2 (1 GiB) or 1 (2 MiB, which every 64-bit processor has).
pub fn largest_page() -> u8 {
    let has_features = __cpuid_count(0x8000_0000, 0).eax >= 0x8000_0001;
    if has_features && __cpuid_count(0x8000_0001, 0).edx & 1 << 26 != 0 {
        2
    } else {
        1
    }
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

/// The tops of a processor's stacks: for the kernel, for double faults, NMI, machine checks. The first one runs before there is
/// a window, so its stacks are part of the image.
fn stack_tops(number: u32) -> [u64; 4] {
    if number == 0 {
        return [
            KERNEL.top(),
            DOUBLE_FAULT.top(),
            NON_MASKABLE.top(),
            MACHINE_CHECK.top(),
        ];
    }
    let first = STACK_WINDOW + u64::from(number) * STACK_STRIDE + STACK_TOP;
    [0, 1, 2, 3].map(|which| first + which * INTERRUPT_STACK)
}

/// Sets this processor up, which has that number, and as the first one all processors' areas: segments, stacks, traps, system calls (which lead to `entry`), protections.
pub fn initialise(number: u32, entry: syscall::Entry) -> Protections {
    if number == 0 {
        for (number, area) in (0..).zip(&AREAS) {
            let area: *mut PerProcessor = area.0.get().cast();
            // SAFETY: the first processor is initialised first, so that nobody uses an area yet.
            unsafe {
                area.write(EMPTY);
                (*area).record = Processor::new(number);
            }
        }
    }
    let own: *mut PerProcessor = AREAS[number as usize % PROCESSORS_MAX].0.get().cast();
    let [kernel, double_fault, non_maskable, machine_check] = stack_tops(number);
    // SAFETY: called once on each processor, before it uses its area otherwise; interrupts are off.
    unsafe {
        (*own).own = own;
        (*own).mark = Mark::of(number).0;
        (*own).kernel_stack = kernel;
        let mut stacks = [0; 7];
        stacks[traps::STACK_DOUBLE_FAULT - 1] = double_fault;
        stacks[traps::STACK_NON_MASKABLE - 1] = non_maskable;
        stacks[traps::STACK_MACHINE_CHECK - 1] = machine_check;
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
        write_msr(LSTAR, entry as *const () as u64);
        write_msr(FMASK, FLAGS_CLEARED);
    }
    if number == 0 {
        traps::fill();
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
