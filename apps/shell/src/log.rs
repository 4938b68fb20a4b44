//! The system's log, written to an object that outlives the power (decision 0212).
//!
//! The object with the name [`SYSTEM_LOG`] in the root directory holds the lines, and zeroes behind them; `gond` makes it with the disk. Without it, or where
//! something else has that name, nothing is written. When it is full its older half goes.
//!
//! The first shell looks for lines each second, on a thread of its own. Whoever may write the object may also delete it meanwhile: so the writing is guarded work, like all that reads
//! objects.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::layout::LOG_BYTES_MAX;
use rt::{Cell, Directory, Kind, Object, names::SYSTEM_LOG, system, thread, time};

use crate::guard::guarded;

const LOOK_NS: u64 = 1_000_000_000;
/// Bytes of the object that are used at most.
const BYTES_MAX: usize = 1 << 20;

/// The position of the first line that is not written yet.
static POSITION: AtomicU64 = AtomicU64::new(0);

/// Begins to write lines as they come.
pub fn keep() {
    // Without a thread to spare the lines stay in the system's memory, where `log` finds the last ones.
    let _ = thread::spawn(|| {
        loop {
            let is_new = system::log(POSITION.load(Relaxed), &mut [0]).is_ok_and(|(_, count)| count > 0);
            if is_new {
                // An error is told nowhere: it would be one more line of the log.
                let _ = guarded("log", write);
            }
            if time::sleep_ns(LOOK_NS).is_err() {
                return 0;
            }
        }
    });
}

/// The object, if there is one.
fn object() -> rt::Result<Option<Object>> {
    let root = Directory::root()?;
    match root.lookup(SYSTEM_LOG) {
        Ok(found) if found.kind == Kind::Data => Ok(Some(Object::open(found.capability.address)?)),
        _ => Ok(None),
    }
}

/// The part of the object that is used.
fn cells(object: &Object) -> &[Cell<u8>] {
    let cells = object.region().cells();
    &cells[..cells.len().min(BYTES_MAX)]
}

/// The lines from a position on, and the position behind them.
fn lines_from(from: u64) -> rt::Result<(Vec<u8>, u64)> {
    let mut lines = Vec::new();
    let mut next = from;
    let mut piece = [0; LOG_BYTES_MAX as usize];
    loop {
        let (first, count) = system::log(next, &mut piece)?;
        if count == 0 {
            return Ok((lines, next));
        }
        if first > next && next > 0 {
            lines.extend_from_slice(b"(some lines are missing)\n");
        }
        lines.extend_from_slice(piece.get(..count).unwrap_or_default());
        next = first + count as u64;
    }
}

/// Writes the lines that are new, if there is an object for them.
fn write() -> rt::Result<()> {
    let (lines, next) = lines_from(POSITION.load(Relaxed))?;
    let object = object()?;
    // Now, or lines that the disk refuses would be put into the object anew each second.
    POSITION.store(next, Relaxed);
    if let Some(object) = object {
        append(cells(&object), &lines);
        object.flush()?;
    }
    Ok(())
}

/// The length of the text that the cells hold.
fn length(cells: &[Cell<u8>]) -> usize {
    cells.partition_point(|cell| cell.get() != 0)
}

/// Puts lines behind the text in the cells. If there is no room, lines at its front go, and half of it at least.
fn append(cells: &[Cell<u8>], lines: &[u8]) {
    let half = cells.len() / 2;
    let lines = &lines[lines.len().saturating_sub(half)..];
    let mut end = length(cells);
    if end + lines.len() > cells.len() {
        let from = end - end.min(half);
        let cut = cells[from..end].iter().position(|cell| cell.get() == b'\n');
        let from = cut.map_or(end, |cut| from + cut + 1);
        for (to, at) in (from..end).enumerate() {
            cells[to].set(cells[at].get());
        }
        for cell in &cells[end - from..end] {
            cell.set(0);
        }
        end -= from;
    }
    for (cell, byte) in cells[end..].iter().zip(lines) {
        cell.set(*byte);
    }
}

/// All lines that are in the object, where those of the last second may be missing; without it those that the system has.
///
/// # Errors
/// Those of the directory, the object and `SystemInfo`.
pub fn all() -> rt::Result<Vec<u8>> {
    let Some(object) = object()? else {
        return Ok(lines_from(0)?.0);
    };
    let cells = cells(&object);
    Ok(cells[..length(cells)].iter().map(Cell::get).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(cells: &[Cell<u8>]) -> Vec<u8> {
        assert!(
            cells[length(cells)..].iter().all(|cell| cell.get() == 0),
            "bytes behind the end"
        );
        cells[..length(cells)].iter().map(Cell::get).collect()
    }

    #[test]
    fn lines_are_put_behind_each_other_and_the_older_half_goes() {
        let mut memory = [0_u64; 8];
        let region = rt::Region::over(&mut memory);
        let cells = region.cells();
        append(cells, b"first line\nsecond\n");
        assert_eq!(text(cells), b"first line\nsecond\n");
        append(cells, b"the third one is longer\n");
        append(cells, b"the fourth line has room!\n");
        assert_eq!(
            text(cells),
            b"second\nthe third one is longer\nthe fourth line has room!\n"
        );
        for _ in 0..100 {
            append(cells, b"12\n");
            let text = text(cells);
            assert!(text.ends_with(b"12\n") && text.len() <= 64);
        }
        // More than fits: the end of it.
        append(cells, &[b'x'; 200]);
        assert!(text(cells).ends_with(&[b'x'; 32]));
    }
}
