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

use super::{direct, direct::OwnPage, processor};

unsafe extern "C" {
    static __text_start: u8;
    static __text_end: u8;
    static __rodata_end: u8;
    static __kernel_end: u8;
}

/// The place of the threads: addresses of the kernel that one upper table serves.
pub const THREAD_WINDOW: u64 = 0xffff_ffff_0000_0000;
/// Its bytes.
pub const THREAD_WINDOW_BYTES: u64 = 1 << 30;
/// That upper table.
static THREAD_TABLE: AtomicU64 = AtomicU64::new(0);

const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;
const PRESENT: u64 = 1;
const WRITE: u64 = 2;
const USER: u64 = 4;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const NO_EXECUTE: u64 = 1 << 63;

/// The root that holds the kernel alone.
pub(super) static KERNEL_ROOT: AtomicU32 = AtomicU32::new(0);
/// The place of the kernel page in memory.
static PAGE: AtomicU64 = AtomicU64::new(0);
/// Entries of the upper half: direct map and kernel.
static ENTRIES: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
const PLACES: [usize; 2] = [256, 511];

/// Physical end of the kernel's image.
pub fn kernel_end() -> u64 {
    (&raw const __kernel_end) as u64 - KERNEL_BASE
}

/// Builds the strict tables for memory up to `end` (physical) and loads them, with stacks for that many processors. `take`
/// gives zeroed frames.
pub fn build(end: u64, processors: usize, mut take: impl FnMut() -> OwnPage) {
    let root = take();
    let high = take();
    let low = take();
    let mut end = end.max(4 << 30);
    end = end.next_multiple_of(1 << 30).min(direct::DIRECT_MAP_BYTES);
    for gib in 0..end >> 30 {
        let middle = take();
        for (index, entry) in middle.table().iter().enumerate() {
            let physical = gib << 30 | (index as u64) << 21;
            entry.store(physical | PRESENT | WRITE | LARGE | GLOBAL | NO_EXECUTE, Relaxed);
        }
        low.table()[gib as usize].store(middle.physical() | PRESENT | WRITE, Relaxed);
    }
    let middle = take();
    high.table()[510].store(middle.physical() | PRESENT | WRITE, Relaxed);
    let [text, text_end, rodata_end, kernel_end] = [
        &raw const __text_start,
        &raw const __text_end,
        &raw const __rodata_end,
        &raw const __kernel_end,
    ]
    .map(|place| place as u64);
    let mut address = text;
    let mut last: Option<(usize, OwnPage)> = None;
    while address < kernel_end {
        let index = (address >> 21) as usize & 511;
        let lowest = match last {
            Some((of, table)) if of == index => table,
            _ => take(),
        };
        middle.table()[index].store(lowest.physical() | PRESENT | WRITE, Relaxed);
        let rights = match address {
            _ if address < text_end => 0,
            _ if address < rodata_end => NO_EXECUTE,
            _ => NO_EXECUTE | WRITE,
        };
        let place = &lowest.table()[(address >> 12) as usize & 511];
        if address != processor::stack_guard() {
            place.store((address - KERNEL_BASE) | PRESENT | GLOBAL | rights, Relaxed);
        }
        last = Some((index, lowest));
        address += 4096;
    }
    build_stacks(&high, processors, &mut take);
    build_kernel_page(&high, &mut take);
    let threads = take();
    high.table()[(THREAD_WINDOW >> 30) as usize & 511].store(threads.physical() | PRESENT | WRITE, Relaxed);
    THREAD_TABLE.store(threads.physical(), Relaxed);
    for (place, (index, table)) in ENTRIES.iter().zip(PLACES.into_iter().zip([&low, &high])) {
        // Below this entry only the way to the kernel page is the user's.
        let user = if *table == high { USER } else { 0 };
        let entry = table.physical() | PRESENT | WRITE | user;
        place.store(entry, Relaxed);
        root.table()[index].store(entry, Relaxed);
    }
    KERNEL_ROOT.store((root.physical() >> 12) as u32, Relaxed);
    direct::set_end(end);
    load(root.physical());
}

/// Maps the stacks of all processors but the first, whose are in the image. Between them pages stay unmapped.
fn build_stacks(high: &OwnPage, processors: usize, take: &mut impl FnMut() -> OwnPage) {
    let window = processor::STACK_WINDOW;
    let tables = [take(), take()];
    high.table()[(window >> 30) as usize & 511].store(tables[0].physical() | PRESENT | WRITE, Relaxed);
    tables[0].table()[(window >> 21) as usize & 511].store(tables[1].physical() | PRESENT | WRITE, Relaxed);
    for number in 1..processors {
        let first = number * (processor::STACK_STRIDE / 4096) as usize;
        for page in processor::stack_pages() {
            tables[1].table()[first + page].store(take().physical() | PRESENT | WRITE | GLOBAL | NO_EXECUTE, Relaxed);
        }
    }
}

/// Maps the kernel page, which users read and execute.
fn build_kernel_page(high: &OwnPage, take: &mut impl FnMut() -> OwnPage) {
    let [middle, lowest, page] = [take(), take(), take()];
    let place = |table: &OwnPage, shift: u32| &table.table()[(KERNEL_PAGE >> shift) as usize & 511];
    place(high, 30).store(middle.physical() | PRESENT | WRITE | USER, Relaxed);
    place(&middle, 21).store(lowest.physical() | PRESENT | WRITE | USER, Relaxed);
    place(&lowest, 12).store(page.physical() | PRESENT | USER | GLOBAL, Relaxed);
    PAGE.store(page.physical(), Relaxed);
}

/// Gives the page of the threads' window at this offset its memory, a frame of zeroes that is the kernel's from now on. If a table is
/// missing the frame becomes that, and nothing has got memory: tells which.
///
/// No processor needs to forget anything: what was not present is not remembered.
pub fn map_threads(offset: u64, frame: Frame) -> bool {
    let entry = &OwnPage(THREAD_TABLE.load(Relaxed)).table()[(offset >> 21) as usize & 511];
    let table = entry.load(Relaxed) & !0xfff;
    if table == 0 {
        entry.store(frame.physical() | PRESENT | WRITE, Relaxed);
        return false;
    }
    let place = &OwnPage(table).table()[(offset >> 12) as usize & 511];
    place.store(frame.physical() | PRESENT | WRITE | GLOBAL | NO_EXECUTE, Relaxed);
    true
}

/// The kernel page.
pub fn kernel_page() -> OwnPage {
    OwnPage(PAGE.load(Relaxed))
}

/// Entries of the upper half of every root.
pub fn kernel_entries() -> [(usize, u64); 2] {
    [0, 1].map(|which: usize| (PLACES[which], ENTRIES[which].load(Relaxed)))
}

/// The loaded root and tag.
fn loaded() -> u64 {
    let value: u64;
    // SAFETY: reading a control register has no effect.
    unsafe { asm!("mov {}, cr3", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// The physical address of the root that is loaded.
pub fn loaded_root() -> u64 {
    loaded() & !0xfff
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
pub fn user_root() -> Option<u64> {
    let root = loaded_root();
    (root != kernel_root()).then_some(root)
}

fn kernel_root() -> u64 {
    u64::from(KERNEL_ROOT.load(Relaxed)) << 12
}

/// Goes to the kernel's own root.
pub fn leave_all_roots() {
    load(kernel_root());
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
