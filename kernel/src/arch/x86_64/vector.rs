//! Registers of x87, SSE and AVX, a state a thread.
//!
//! The unit is off (CR0.TS) until a thread uses it. Then the thread's state is loaded, or a fresh
//! one, and it is saved when another thread comes. A protected call declares these registers
//! clobbered: crossing a domain with a live state drops it and turns the unit off again, so nothing
//! leaks to the callee and nothing is saved.
//!
//! Each processor has a unit. A thread whose state is in one (`Thread::vector_on`) goes on nowhere else until it is saved, which
//! happens when that processor runs somebody else. So no processor must ask another for a state.

use alloc::vec::Vec;
use core::{
    arch::{asm, x86_64::__cpuid_count},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use kcore::smp::PROCESSORS_MAX;
use store::containers::{Boxed, boxed};

/// A state in memory: x87, SSE and AVX fit.
#[repr(C, align(64))]
struct Area([u8; 1024]);

/// The states of all threads.
pub struct Vectors {
    /// The thread whose state each processor's unit holds.
    loaded: [Option<u32>; PROCESSORS_MAX],
    areas: Vec<Option<Boxed<Area>>>,
}

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

impl Vectors {
    /// No states. This processor's unit is enabled.
    pub fn new(threads: usize) -> Self {
        enable();
        Self {
            loaded: [None; PROCESSORS_MAX],
            areas: (0..threads).map(|_| None).collect(),
        }
    }

    /// A thread uses this processor's unit and it was off: gives it its state, a fresh one if `live` says that
    /// it has none. `None`: there is no memory for a state.
    pub fn load(&mut self, processor: u32, thread: u32, live: bool) -> Option<()> {
        let area = &mut self.areas[thread as usize];
        if area.is_none() {
            *area = Some(boxed(Area::fresh()).ok()?);
        }
        let area = area.as_mut()?;
        turn_on();
        if !live {
            **area = Area::fresh();
        }
        let parts = PARTS.load(Relaxed);
        // SAFETY: the unit is on and the area is a valid state: it was saved by a unit like this or is the initial one.
        unsafe {
            if parts == 0 {
                asm!("fxrstor64 [{}]", in(reg) area.0.as_ptr(), options(nostack));
            } else {
                asm!("xrstor64 [{}]", in(reg) area.0.as_ptr(), in("eax") parts as u32, in("edx") 0, options(nostack));
            }
        }
        self.loaded[processor as usize] = Some(thread);
        Some(())
    }

    /// Before a thread runs on this processor: if the unit holds another's state, saves it (`live`: whether that one
    /// still wants it) and turns the unit off. The same if its own was dropped. Tells whose state is not in
    /// the unit any more.
    #[inline]
    pub fn before(&mut self, processor: u32, next: u32, live: impl Fn(u32) -> bool) -> Option<u32> {
        let owner = self.loaded[processor as usize]?;
        let wanted = live(owner);
        if owner == next && wanted {
            return None;
        }
        if wanted && let Some(area) = &mut self.areas[owner as usize] {
            let parts = PARTS.load(Relaxed);
            // SAFETY: the unit is on (it holds a state) and the area is large enough for the enabled parts.
            unsafe {
                if parts == 0 {
                    asm!("fxsave64 [{}]", in(reg) area.0.as_mut_ptr(), options(nostack));
                } else {
                    asm!("xsave64 [{}]", in(reg) area.0.as_mut_ptr(), in("eax") parts as u32, in("edx") 0, options(nostack));
                }
            }
        }
        self.loaded[processor as usize] = None;
        turn_off();
        Some(owner)
    }
}

impl Area {
    /// The initial state: control words as the processor starts with, registers zero.
    fn fresh() -> Self {
        let mut area = Area([0; 1024]);
        // x87 control word and MXCSR: all exceptions masked, nearest rounding.
        area.0[0..2].copy_from_slice(&0x037fu16.to_le_bytes());
        area.0[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
        // XSAVE header: x87 and SSE parts are given; AVX is initial.
        area.0[512] = 3;
        area
    }
}
