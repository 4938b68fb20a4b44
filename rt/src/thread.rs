//! Threads of the program's own task.

use abi::{
    error::Result,
    layout::{ExitReport, FOREVER},
};

use crate::{call, object};

pub use call::ThreadEntry;

/// A thread.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Thread {
    id: u64,
}

impl Thread {
    /// The calling thread.
    pub fn current() -> Self {
        Self {
            id: call::thread_my_id(),
        }
    }

    /// Its number.
    pub const fn id(self) -> u64 {
        self.id
    }

    /// Waits for it to end, and gives its report.
    ///
    /// # Errors
    /// As `ThreadWait`.
    pub fn join(self) -> Result<ExitReport> {
        call::thread_wait(self.id, FOREVER)
    }

    /// Waits for it to end, and gives its status only.
    ///
    /// # Errors
    /// As `ThreadWait`.
    pub fn join_status(self) -> Result<u64> {
        call::thread_wait_status(self.id, FOREVER).map(|(_, status)| status)
    }

    /// Ends it.
    ///
    /// # Errors
    /// As `ThreadDelete`.
    pub fn end(self, status: u64) -> Result<()> {
        call::thread_delete(self.id, status)
    }

    /// Suspends it until [`Thread::resume`].
    ///
    /// # Errors
    /// As `ThreadSleep`.
    pub fn suspend(self) -> Result<()> {
        call::thread_sleep(self.id, FOREVER)
    }

    /// Wakes it.
    ///
    /// # Errors
    /// As `ThreadResume`.
    pub fn resume(self) -> Result<()> {
        call::thread_resume(self.id)
    }
}

/// Starts a thread that runs a closure and ends with the status it returns.
///
/// # Errors
/// As `ThreadCreate`.
pub fn spawn(run: impl FnOnce() -> u64 + Send + 'static) -> Result<Thread> {
    object::spawn(run).map(|id| Thread { id })
}

/// Starts a thread at an entry; needs no heap.
///
/// # Errors
/// As `ThreadCreate`.
pub fn start(entry: ThreadEntry, parameter: u64, priority: u64) -> Result<Thread> {
    call::start_thread(entry, parameter, priority).map(|id| Thread { id })
}

/// Lets others run.
pub fn yield_now() {
    // It cannot fail for the caller itself.
    let _ = call::thread_sleep(0, 0);
}
