//! Interrupt controllers: the processor's own (with the timer), the one for lines (serial ports).
//! The disk interrupts by message.

use core::{
    arch::asm,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use abi::{
    host::DEBUGGER_LINE,
    nucleus::{INTERRUPT_FIRST_MESSAGE, INTERRUPTS},
};

use super::{clock, direct::DIRECT_MAP, ports::write8, processor};

/// Interrupts that the kernel knows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Interrupt {
    /// The timer asked for with [`set_timer`].
    Timer,
    /// The terminal.
    Terminal,
    /// The control line.
    Control,
    /// The disk.
    Disk,
    /// The debugger's line.
    Debugger,
    /// One that a thread receives as a message, by its number.
    Message(usize),
}

const VECTOR_TIMER: u8 = 32;
const VECTOR_TERMINAL: u8 = 33;
const VECTOR_CONTROL: u8 = 34;
const VECTOR_DISK: u8 = 35;
/// Another processor wants something.
pub const VECTOR_ATTENTION: u8 = 36;
const VECTOR_DEBUGGER: u8 = 47;
/// The vector of the debugger's line.
pub const DEBUGGER_VECTOR: u64 = VECTOR_DEBUGGER as u64;
/// The first of the vectors of interrupts that threads receive.
const VECTOR_MESSAGES: u8 = 48;
const VECTOR_SPURIOUS: u32 = 255;

/// Vectors that have a stub: exceptions, the kernel's own interrupts, those of threads.
pub const VECTORS: usize = VECTOR_MESSAGES as usize + INTERRUPTS as usize;

const LOCAL: u64 = 0xfee0_0000;
const LINES: u64 = 0xfec0_0000;

const LOCAL_ID: u64 = 0x20;
const LOCAL_END: u64 = 0xb0;
const LOCAL_SPURIOUS: u64 = 0xf0;
const LOCAL_COMMAND: u64 = 0x300;
const LOCAL_COMMAND_TO: u64 = 0x310;
const LOCAL_TIMER: u64 = 0x320;
const LOCAL_INITIAL: u64 = 0x380;
const LOCAL_CURRENT: u64 = 0x390;
const LOCAL_DIVIDE: u64 = 0x3e0;

fn local_read(offset: u64) -> u32 {
    // SAFETY: the controller's registers stand at a fixed place in the direct map.
    unsafe { ((DIRECT_MAP + LOCAL + offset) as *const u32).read_volatile() }
}

fn local_write(offset: u64, value: u32) {
    // SAFETY: as in `local_read`; the values written here only concern interrupts.
    unsafe { ((DIRECT_MAP + LOCAL + offset) as *mut u32).write_volatile(value) };
}

fn line_write(index: u32, value: u32) {
    // SAFETY: as in `local_write`, for the controller of lines.
    unsafe {
        ((DIRECT_MAP + LINES) as *mut u32).write_volatile(index);
        ((DIRECT_MAP + LINES + 0x10) as *mut u32).write_volatile(value);
    }
}

/// Timer counts in 2^20 nanoseconds.
static TIMER_SCALE: AtomicU64 = AtomicU64::new(0);

/// Command to another processor's controller: an interrupt with the vector in the low byte.
pub const COMMAND_VECTOR: u32 = 0x4000;
/// Command: to the state after a reset.
pub const COMMAND_INIT: u32 = 0x4500;
/// Command: begin at the page in the low byte.
pub const COMMAND_STARTUP: u32 = 0x4600;

/// The identifier of this processor's controller.
pub fn own_id() -> u8 {
    (local_read(LOCAL_ID) >> 24) as u8
}

/// Sends a command to another processor.
pub fn send(id: u8, command: u32) {
    local_write(LOCAL_COMMAND_TO, u32::from(id) << 24);
    local_write(LOCAL_COMMAND, command);
    // Until it is on its way. The controller accepts it within microseconds.
    while local_read(LOCAL_COMMAND) & 1 << 12 != 0 {
        core::hint::spin_loop();
    }
}

/// Sets this processor's controller up. The clocks have been measured.
pub fn initialise_local() {
    local_write(LOCAL_SPURIOUS, 0x100 | VECTOR_SPURIOUS);
    local_write(LOCAL_DIVIDE, 0b0011);
    local_write(LOCAL_INITIAL, 0);
    local_write(LOCAL_TIMER, u32::from(VECTOR_TIMER));
}

/// The interrupt is being handled.
pub fn finish() {
    local_write(LOCAL_END, 0);
}

/// Sets up the controllers and measures the clocks.
pub fn initialise() {
    // The old controllers off: everything masked.
    write8(0x21, 0xff);
    write8(0xa1, 0xff);
    initialise_local();
    local_write(LOCAL_TIMER, 1 << 16);
    let (ticks, counts) = clock::measure(
        || local_write(LOCAL_INITIAL, u32::MAX),
        || u64::from(u32::MAX - local_read(LOCAL_CURRENT)),
    );
    clock::initialise(ticks);
    TIMER_SCALE.store((counts << 20) / clock::measured_ns(), Relaxed);
    local_write(LOCAL_INITIAL, 0);
    local_write(LOCAL_TIMER, u32::from(VECTOR_TIMER));
}

/// Lets the serial ports interrupt.
pub fn enable_serial() {
    let processor = local_read(LOCAL_ID) & 0xff00_0000;
    for (line, vector) in [
        (4, VECTOR_TERMINAL),
        (3, VECTOR_CONTROL),
        (DEBUGGER_LINE, VECTOR_DEBUGGER),
    ] {
        line_write(0x10 + 2 * line + 1, processor);
        line_write(0x10 + 2 * line, u32::from(vector));
    }
}

/// In a line's entry: the line is masked.
const LINE_MASKED: u32 = 1 << 16;
/// In a line's entry: it asks for as long as its device wants something.
const LINE_LEVEL: u32 = 1 << 15;
/// The first of the lines of PCI devices, which ask like that. Those before it ask once for each
/// event; an event while masked is lost, so they are never masked for long.
const FIRST_LEVEL: usize = 16;

/// The entry of the line of an interrupt that a thread receives; none for interrupts by message,
/// which come once for each message, and have no mask.
fn line_entry(interrupt: usize) -> Option<(u32, u32)> {
    let level = if interrupt >= FIRST_LEVEL { LINE_LEVEL } else { 0 };
    ((interrupt as u64) < INTERRUPT_FIRST_MESSAGE).then(|| (0x10 + 2 * interrupt as u32, vector_of(interrupt) | level))
}

/// Masks an interrupt that a thread receives.
pub fn mask_interrupt(interrupt: usize) {
    if let Some((index, entry)) = line_entry(interrupt) {
        line_write(index, entry | LINE_MASKED);
    }
}

/// Lets it in: its line goes to this processor.
pub fn unmask_interrupt(interrupt: usize) {
    if let Some((index, entry)) = line_entry(interrupt) {
        line_write(index + 1, local_read(LOCAL_ID) & 0xff00_0000);
        line_write(index, entry);
    }
}

/// The message that a device writes to raise an interrupt: address, data.
pub fn interrupt_message(interrupt: usize) -> (u64, u32) {
    (
        LOCAL | u64::from(local_read(LOCAL_ID) >> 24) << 12,
        vector_of(interrupt),
    )
}

fn vector_of(interrupt: usize) -> u32 {
    u32::from(VECTOR_MESSAGES) + interrupt as u32
}

/// The message by which the disk interrupts this processor: address, data.
pub fn disk_message() -> (u64, u32) {
    (
        LOCAL | u64::from(local_read(LOCAL_ID) >> 24) << 12,
        u32::from(VECTOR_DISK),
    )
}

/// Asks for an interrupt of this processor's timer at that time, if none is due earlier.
pub fn set_timer(at_ns: u64) {
    if at_ns >= processor::timer_ns() {
        return;
    }
    processor::set_timer_ns(at_ns);
    let wait = at_ns.saturating_sub(clock::now_ns());
    let counts = (u128::from(wait) * u128::from(TIMER_SCALE.load(Relaxed))) >> 20;
    local_write(LOCAL_INITIAL, (counts as u64).clamp(1, u64::from(u32::MAX)) as u32);
}

/// Tells the controller that the interrupt of this vector is being handled, and gives that interrupt.
pub fn accept(vector: u64) -> Option<Interrupt> {
    // A device that goes on asking is masked before its interrupt ends, or it would come again at once.
    if vector >= u64::from(VECTOR_MESSAGES) + FIRST_LEVEL as u64 && vector < VECTORS as u64 {
        mask_interrupt(vector as usize - usize::from(VECTOR_MESSAGES));
    }
    if vector >= 32 {
        finish();
    }
    match vector as u8 {
        VECTOR_TIMER => {
            processor::set_timer_ns(u64::MAX);
            Some(Interrupt::Timer)
        }
        VECTOR_TERMINAL => Some(Interrupt::Terminal),
        VECTOR_CONTROL => Some(Interrupt::Control),
        VECTOR_DISK => Some(Interrupt::Disk),
        VECTOR_DEBUGGER => Some(Interrupt::Debugger),
        vector if (VECTOR_MESSAGES..VECTORS as u8).contains(&vector) => {
            Some(Interrupt::Message(usize::from(vector - VECTOR_MESSAGES)))
        }
        _ => None,
    }
}

/// Sleeps until an interrupt has been handled.
pub fn wait_for_interrupt() {
    // SAFETY: interrupts are on only inside; `sti` takes effect after `hlt`, so none is missed.
    unsafe { asm!("sti", "hlt", "cli", options(nostack)) };
}

/// Lets interrupts in that are waiting.
pub fn poll_interrupts() {
    // SAFETY: as in `wait_for_interrupt`; one instruction passes with interrupts on.
    unsafe { asm!("sti", "nop", "cli", options(nostack)) };
}

/// Stops this processor.
pub fn stop_forever() -> ! {
    loop {
        // SAFETY: nothing runs here any more.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}
