//! Ticks in which nobody runs. Where instructions are counted the clock goes on then, so time that is spent waiting for a disk would count as well: a thread of the lowest priority runs
//! whenever others wait, and counts its own ticks, which are taken off.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rt::{
    Result,
    abi::layout::PRIORITY_MIN,
    thread::{self, Thread},
    thread_entry,
    time::ticks,
};

/// A look at the clock that comes later than this behind the one before was interrupted.
const INTERRUPTED_TICKS: u64 = 200;

static OVER: AtomicBool = AtomicBool::new(false);
/// Ticks of the thread that runs while others wait.
static WAITED: AtomicU64 = AtomicU64::new(0);

thread_entry!(wait_entry, wait);

fn wait(_: u64) -> u64 {
    let mut before = ticks();
    while !OVER.load(Ordering::Relaxed) {
        let now = ticks();
        let passed = now.wrapping_sub(before);
        if passed < INTERRUPTED_TICKS {
            WAITED.store(WAITED.load(Ordering::Relaxed) + passed, Ordering::Relaxed);
        }
        before = now;
    }
    0
}

/// The thread that waits. There is one at a time.
pub struct Idle {
    thread: Thread,
}

impl Idle {
    /// Begins to count.
    ///
    /// # Errors
    /// As `ThreadCreate`.
    pub fn begin() -> Result<Self> {
        OVER.store(false, Ordering::Relaxed);
        Ok(Self {
            thread: thread::start(wait_entry(), 0, PRIORITY_MIN)?,
        })
    }

    /// Ends the thread.
    ///
    /// # Errors
    /// As `ThreadWait`.
    pub fn end(self) -> Result<()> {
        OVER.store(true, Ordering::Relaxed);
        self.thread.join()?;
        Ok(())
    }
}

/// The clock without what was waited while there was such a thread.
pub fn busy_ticks() -> u64 {
    ticks().wrapping_sub(WAITED.load(Ordering::Relaxed))
}
