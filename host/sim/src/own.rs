//! Whose memory is being allocated: a test that has allocations fail spares those of the simulator itself.

use std::cell::Cell;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
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
