//! Registers of x87, SSE and AVX: the instructions for [`kcore`]'s rules (`kernel/vectors.rs` there, decision 0138).
//!
//! The unit is off by CR0.TS: its use is an exception. The initial state is loaded by `xrstor` from an image in which no part is
//! given, so that the processor initialises all of them: registers zero, x87 control word 0x37f. MXCSR is read from the image in any case.

use alloc::vec::Vec;
use core::{
    arch::{asm, x86_64::__cpuid_count},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use kcore::{Frame, thread::VECTORS_BYTES};

use super::direct;

/// Bytes of a state in memory.
const AREA: usize = VECTORS_BYTES;
/// States that a frame holds: those of neighbours in the table of threads.
const NEIGHBOURS: usize = 4096 / AREA;

/// A state in memory, aligned as the instructions want it.
#[repr(C, align(64))]
struct Area([u8; AREA]);

/// The initial state, for `xrstor` and `fxrstor`: control words with all exceptions masked, nearest rounding; no part is given.
pub static INITIAL: Initial = Initial(Area::INITIAL);

/// A state that never changes.
#[repr(C, align(64))]
pub struct Initial(Area);

/// The states of threads that are in no unit.
#[derive(Default)]
pub struct Vectors {
    frames: Vec<Option<&'static mut [u8; 4096]>>,
}

/// The parts that the fast paths initialise: all that [`enable`] enables. A part that is not enabled is left out by the processor.
pub const ALL_PARTS: u32 = 7;

/// Which parts are enabled (XCR0), or zero without XSAVE. The same on all processors.
static PARTS: AtomicU64 = AtomicU64::new(0);

fn turn_off() {
    // SAFETY: sets CR0.TS: the next use traps.
    unsafe { asm!("mov {tmp}, cr0", "or {tmp}, 8", "mov cr0, {tmp}", tmp = out(reg) _, options(nomem, nostack)) };
}

fn turn_on() {
    // SAFETY: clears CR0.TS; the caller loads a state before user code runs.
    unsafe { asm!("clts", options(nomem, nostack, preserves_flags)) };
}

/// Enables this processor's unit and its parts, and turns it off until it is used.
pub fn enable() {
    let features = __cpuid_count(1, 0);
    let mut parts = 0;
    // SAFETY: CR0: monitor the coprocessor, native errors, no emulation, off. CR4: FXSAVE and
    // SIMD exceptions, which every 64-bit processor has, and XSAVE where it is reported.
    unsafe {
        asm!("mov {tmp}, cr0", "and {tmp}, {mask}", "or {tmp}, 0x2a", "mov cr0, {tmp}", tmp = out(reg) _, mask = in(reg) !4u64, options(nomem, nostack));
        asm!("mov {tmp}, cr4", "or {tmp}, 0x600", "mov cr4, {tmp}", tmp = out(reg) _, options(nomem, nostack));
        if features.ecx & 1 << 26 != 0 {
            parts = if features.ecx & 1 << 28 != 0 { 7 } else { 3 };
            asm!("mov {tmp}, cr4", "or {tmp}, {bit}", "mov cr4, {tmp}", tmp = out(reg) _, bit = in(reg) 1u64 << 18, options(nomem, nostack));
            asm!("xsetbv", in("ecx") 0, in("eax") parts as u32, in("edx") 0, options(nomem, nostack, preserves_flags));
        }
    }
    PARTS.store(parts, Relaxed);
}

/// Loads a state into the unit, which is on.
fn load(area: &[u8; AREA]) {
    let parts = PARTS.load(Relaxed);
    let area = area.as_ptr();
    // SAFETY: the unit is on and the area is a valid state: it was saved by a unit like this or is the initial one. It is aligned to 64: part of a frame, or an `Area`.
    unsafe {
        if parts == 0 {
            asm!("fxrstor64 [{}]", in(reg) area, options(nostack, readonly));
        } else {
            asm!("xrstor64 [{}]", in(reg) area, in("eax") parts as u32, in("edx") 0, options(nostack, readonly));
        }
    }
}

impl Vectors {
    /// No states. This processor's unit is enabled.
    pub fn new(threads: usize) -> Self {
        enable();
        Self {
            frames: (0..threads.div_ceil(NEIGHBOURS)).map(|_| None).collect(),
        }
    }

    /// Whether the fast paths can initialise the unit: where there is XSAVE.
    pub fn are_quick() -> bool {
        PARTS.load(Relaxed) != 0
    }

    /// See [`kcore::Hardware::vectors_have_room`].
    pub fn have_room(&self, thread: u32) -> bool {
        self.area(thread).is_some()
    }

    /// See [`kcore::Hardware::vectors_take_room`].
    pub fn take_room(&mut self, thread: u32, frame: Frame) {
        // SAFETY: the frame is given away for good: `kcore` never maps it, borrows it or gives it back (`Kernel::vectors_make_room`).
        let states = unsafe { direct::bytes_for_good(frame) };
        states.as_chunks_mut().0.fill(Area::INITIAL.0);
        self.frames[thread as usize / NEIGHBOURS] = Some(states);
    }

    fn area(&self, thread: u32) -> Option<&[u8; AREA]> {
        let states = self.frames.get(thread as usize / NEIGHBOURS)?.as_ref()?;
        Some(&states.as_chunks().0[thread as usize % NEIGHBOURS])
    }

    /// Turns this processor's unit on with the initial state.
    #[inline]
    pub fn initial() {
        turn_on();
        load(&INITIAL.0.0);
    }

    /// Turns it on with a thread's state.
    pub fn load(&mut self, thread: u32) {
        turn_on();
        load(self.area(thread).unwrap_or(&INITIAL.0.0));
    }

    /// Saves the state in the unit, which is on.
    pub fn save(&mut self, thread: u32) {
        let states = self.frames[thread as usize / NEIGHBOURS].as_mut();
        let states = states.expect("each place has room before a thread gets it");
        let area: &mut [u8; AREA] = &mut states.as_chunks_mut().0[thread as usize % NEIGHBOURS];
        let (area, parts) = (area.as_mut_ptr(), PARTS.load(Relaxed));
        // SAFETY: the unit is on (it holds a state) and the area is large enough for the enabled parts.
        unsafe {
            if parts == 0 {
                asm!("fxsave64 [{}]", in(reg) area, options(nostack));
            } else {
                asm!("xsave64 [{}]", in(reg) area, in("eax") parts as u32, in("edx") 0, options(nostack));
            }
        }
    }

    /// Turns it off.
    pub fn off() {
        turn_off();
    }
}

impl Area {
    /// The initial state: control words as the processor starts with, registers zero or not given.
    const INITIAL: Self = {
        let mut area = Area([0; 1024]);
        // x87 control word, MXCSR.
        (area.0[0], area.0[1]) = (0x7f, 0x03);
        (area.0[24], area.0[25]) = (0x80, 0x1f);
        area
    };
}
