//! The window: physical memory in the supervisor space, each address at one distance.

use core::sync::atomic::Ordering::Relaxed;

use abi::{
    Rights,
    address::{PAGE, SLOT},
    machine::{WINDOW, WINDOW_BYTES},
};

use crate::{
    Frame, Hardware, Shortage,
    frames::Frames,
    paging::{Fit, encode_mapping, encode_table, frame_of, is_large, is_present, number_of},
};

/// Shows the memory from `from` to `to` (physical, whole pages) under this root, readable and writable.
///
/// The tables are the root's for ever: there is one supervisor space, and it is never destroyed.
///
/// # Errors
/// [`Shortage::Frames`] if a table cannot be had, or if the range lies beyond the window.
pub fn show(
    root: Frame,
    from: u64,
    to: u64,
    frames: &mut Frames,
    hardware: &mut impl Hardware,
) -> Result<(), Shortage> {
    if to > WINDOW_BYTES {
        return Err(Shortage::Frames);
    }
    let mut at = from;
    while at < to {
        let address = WINDOW + at;
        let middle = below(root, address >> 39, frames, hardware)?;
        let low = below(middle, address >> 30, frames, hardware)?;
        let index = (address >> 21) as usize & 511;
        let here = hardware.table(low)[index].load(Relaxed);
        if at.is_multiple_of(SLOT) && to - at >= SLOT && !is_present(here) {
            hardware.table(low)[index].store(encode_mapping(frame(at), Rights::RW, 1, Fit::Part), Relaxed);
            at += SLOT;
            continue;
        }
        if is_present(here) && is_large(here) {
            // All of the slot is shown already, and leads to no table.
            at = (at / SLOT + 1) * SLOT;
            continue;
        }
        let leaf = below(low, address >> 21, frames, hardware)?;
        let entry = encode_mapping(frame(at), Rights::RW, 0, Fit::Part);
        hardware.table(leaf)[(address >> 12) as usize & 511].store(entry, Relaxed);
        at += PAGE;
    }
    Ok(())
}

const fn frame(physical: u64) -> u32 {
    (physical >> 12) as u32
}

/// The table under an entry, made if it is missing.
fn below(parent: Frame, index: u64, frames: &mut Frames, hardware: &mut impl Hardware) -> Result<Frame, Shortage> {
    let index = index as usize & 511;
    let entry = hardware.table(parent)[index].load(Relaxed);
    if is_present(entry) {
        return Ok(frame_of(entry));
    }
    let made = frames.take_zeroed(hardware)?;
    hardware.table(parent)[index].store(encode_table(made), Relaxed);
    Ok(made)
}

/// The memory at a user address under this root: its frame, the offset in it, for reading only. For reports of
/// crashes.
pub fn look(root: Frame, address: u64, hardware: &impl Hardware) -> Option<(Frame, usize)> {
    let mut table = root;
    for shift in [39, 30, 21, 12] {
        let entry = hardware.table(table)[(address >> shift) as usize & 511].load(Relaxed);
        if address >= abi::address::USER_END || !is_present(entry) {
            return None;
        }
        if shift == 21 && is_large(entry) {
            let page = (address % SLOT) / PAGE;
            return Some((Frame::named(number_of(entry) + page as u32), (address % PAGE) as usize));
        }
        table = frame_of(entry);
    }
    Some((table, (address % PAGE) as usize))
}
