//! The kernel's own translations, and what makes processors forget.
//!
//! The strict tables: the direct map without execution, kernel text read-only and executable,
//! constants read-only, data without execution, nothing below the kernel stack. They hang from
//! entries 256 and 511 of every root; user translations are never global, so writing CR3 forgets
//! them.

use core::{
    arch::asm,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use abi::kernel_page::KERNEL_PAGE;
use kcore::{Frame, space::Tags};

use super::{direct, processor};

unsafe extern "C" {
    static __text_start: u8;
    static __text_end: u8;
    static __rodata_end: u8;
    static __kernel_end: u8;
}

const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;
const PRESENT: u64 = 1;
const WRITE: u64 = 2;
const USER: u64 = 4;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const NO_EXECUTE: u64 = 1 << 63;

/// The root that holds the kernel alone.
pub(super) static KERNEL_ROOT: AtomicU32 = AtomicU32::new(0);
/// The frame of the kernel page.
static PAGE_FRAME: AtomicU32 = AtomicU32::new(0);
/// Entries of the upper half: direct map and kernel.
static ENTRIES: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
const PLACES: [usize; 2] = [256, 511];

/// Physical end of the kernel's image.
pub fn kernel_end() -> u64 {
    (&raw const __kernel_end) as u64 - KERNEL_BASE
}

/// Builds the strict tables for memory up to `end` (physical) and loads them, with stacks for that many processors. `take`
/// gives zeroed frames.
pub fn build(end: u64, processors: usize, mut take: impl FnMut() -> Frame) {
    let root = take();
    let high = take();
    let low = take();
    let mut end = end.max(4 << 30);
    end = end.next_multiple_of(1 << 30).min(direct::DIRECT_MAP_BYTES);
    for gib in 0..end >> 30 {
        let middle = take();
        for (index, entry) in direct::table(middle).iter().enumerate() {
            let physical = gib << 30 | (index as u64) << 21;
            entry.store(physical | PRESENT | WRITE | LARGE | GLOBAL | NO_EXECUTE, Relaxed);
        }
        direct::table(low)[gib as usize].store(middle.physical() | PRESENT | WRITE, Relaxed);
    }
    let middle = take();
    direct::table(high)[510].store(middle.physical() | PRESENT | WRITE, Relaxed);
    let [text, text_end, rodata_end, kernel_end] = [
        &raw const __text_start,
        &raw const __text_end,
        &raw const __rodata_end,
        &raw const __kernel_end,
    ]
    .map(|place| place as u64);
    let mut address = text;
    while address < kernel_end {
        let slot = &direct::table(middle)[(address >> 21) as usize & 511];
        if slot.load(Relaxed) == 0 {
            slot.store(take().physical() | PRESENT | WRITE, Relaxed);
        }
        let lowest = Frame((slot.load(Relaxed) >> 12) as u32);
        let rights = match address {
            _ if address < text_end => 0,
            _ if address < rodata_end => NO_EXECUTE,
            _ => NO_EXECUTE | WRITE,
        };
        let place = &direct::table(lowest)[(address >> 12) as usize & 511];
        if address != processor::stack_guard() {
            place.store((address - KERNEL_BASE) | PRESENT | GLOBAL | rights, Relaxed);
        }
        address += 4096;
    }
    build_stacks(high, processors, &mut take);
    build_kernel_page(high, &mut take);
    for (place, (index, table)) in ENTRIES.iter().zip(PLACES.into_iter().zip([low, high])) {
        // Below this entry only the way to the kernel page is the user's.
        let user = if table == high { USER } else { 0 };
        let entry = table.physical() | PRESENT | WRITE | user;
        place.store(entry, Relaxed);
        direct::table(root)[index].store(entry, Relaxed);
    }
    KERNEL_ROOT.store(root.0, Relaxed);
    direct::set_end(end);
    load(root.physical());
}

/// Maps the stacks of all processors but the first, whose are in the image. Between them pages stay unmapped.
fn build_stacks(high: Frame, processors: usize, take: &mut impl FnMut() -> Frame) {
    let window = processor::STACK_WINDOW;
    let tables = [take(), take()];
    direct::table(high)[(window >> 30) as usize & 511].store(tables[0].physical() | PRESENT | WRITE, Relaxed);
    direct::table(tables[0])[(window >> 21) as usize & 511].store(tables[1].physical() | PRESENT | WRITE, Relaxed);
    for number in 1..processors {
        let first = number * (processor::STACK_STRIDE / 4096) as usize;
        for page in processor::stack_pages() {
            direct::table(tables[1])[first + page]
                .store(take().physical() | PRESENT | WRITE | GLOBAL | NO_EXECUTE, Relaxed);
        }
    }
}

/// Maps the kernel page, which users read and execute.
fn build_kernel_page(high: Frame, take: &mut impl FnMut() -> Frame) {
    let [middle, lowest, page] = [take(), take(), take()];
    let place = |table: Frame, shift: u32| &direct::table(table)[(KERNEL_PAGE >> shift) as usize & 511];
    place(high, 30).store(middle.physical() | PRESENT | WRITE | USER, Relaxed);
    place(middle, 21).store(lowest.physical() | PRESENT | WRITE | USER, Relaxed);
    place(lowest, 12).store(page.physical() | PRESENT | USER | GLOBAL, Relaxed);
    PAGE_FRAME.store(page.0, Relaxed);
}

/// The frame of the kernel page.
pub fn kernel_page() -> Frame {
    Frame(PAGE_FRAME.load(Relaxed))
}

/// Entries of the upper half of every root.
pub fn kernel_entries() -> [(usize, u64); 2] {
    [0, 1].map(|which: usize| (PLACES[which], ENTRIES[which].load(Relaxed)))
}

/// What is loaded: root and tag.
fn loaded() -> u64 {
    let value: u64;
    // SAFETY: reading a control register has no effect.
    unsafe { asm!("mov {}, cr3", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// The root that is loaded.
pub fn loaded_root() -> Frame {
    Frame((loaded() >> 12) as u32)
}

/// Loads a root by the value that `kcore` keeps for it.
#[inline(always)]
pub fn load(value: u64) {
    // SAFETY: every root that exists holds the kernel's entries, so the instruction after this
    // one is mapped as before.
    unsafe { asm!("mov cr3, {}", in(reg) value, options(nostack, preserves_flags)) };
}

/// Whether translations are tagged: decided once, when the processor was set up.
pub fn tags() -> Tags {
    let value: u64;
    // SAFETY: reading a control register has no effect.
    unsafe { asm!("mov {}, cr4", out(reg) value, options(nomem, nostack, preserves_flags)) };
    if value & 1 << 17 == 0 {
        Tags::Absent
    } else {
        Tags::Present
    }
}

/// The root that is loaded, unless it is the kernel's own.
pub fn user_root() -> Option<Frame> {
    let root = loaded_root();
    (root.0 != KERNEL_ROOT.load(Relaxed)).then_some(root)
}

/// Goes to the kernel's own root.
pub fn leave_all_roots() {
    load(Frame(KERNEL_ROOT.load(Relaxed)).physical());
}

/// Forgets the user translations of the space that is loaded; without tags that is all of them. Its
/// ports too: they come and go with its pages.
pub fn flush_all() {
    processor::ports_off();
    load(loaded());
}

/// Forgets one page.
pub fn flush_page(address: u64) {
    // SAFETY: forgetting a translation is always allowed.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) };
}
