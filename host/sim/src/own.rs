//! Whose memory is being allocated: a test that has allocations fail spares those of the simulator itself.
//!
//! Some tests say when the simulator allocates ([`Own`]), others when what is tried does ([`Tried`]). The second kind has one allocation
//! fail by [`fail_at`], if the allocator of the program asks [`fails`].

use std::cell::Cell;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static TRIED: Cell<bool> = const { Cell::new(false) };
    /// Allocations that succeed before one fails.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// While one lives, what this thread allocates is the simulator's own.
pub struct Own(());

impl Own {
    /// From now on.
    pub fn begin() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self(())
    }

    /// Whether it is the simulator that allocates.
    pub fn is_now() -> bool {
        DEPTH.try_with(Cell::get).is_ok_and(|depth| depth > 0)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// While one lives, what this thread allocates is for what is tried, but for what is the simulator's [own](Own).
pub struct Tried(());

impl Tried {
    /// From now on.
    pub fn begin() -> Self {
        TRIED.set(true);
        Self(())
    }
}

impl Drop for Tried {
    fn drop(&mut self) {
        TRIED.set(false);
    }
}

/// Lets the allocation behind so many more of what is tried fail, once.
pub fn fail_at(allocations: u64) {
    LEFT.set(allocations);
}

/// Whether an allocation is to fail. Asked once for each.
pub fn fails() -> bool {
    if !TRIED.try_with(Cell::get).is_ok_and(|tried| tried) || Own::is_now() || LEFT.get() == u64::MAX {
        return false;
    }
    let left = LEFT.get();
    LEFT.set(left.checked_sub(1).unwrap_or(u64::MAX));
    left == 0
}
