//! A thread that runs a closure: the box that leads to it passes through one word.

use alloc::boxed::Box;

use abi::{error::Result, layout::PRIORITY_DEFAULT};

use crate::call;

/// The closure that a thread made by [`spawn`] runs.
type Closure = Box<dyn FnOnce() -> u64 + Send>;

/// Starts a thread that runs a closure and ends with the status it returns.
///
/// # Errors
/// As `ThreadCreate`.
pub(crate) fn spawn(run: impl FnOnce() -> u64 + Send + 'static) -> Result<u64> {
    let word = Box::into_raw(Box::new(Closure::from(Box::new(run)))) as u64;
    let started = call::start_thread(closure_entry(), word, PRIORITY_DEFAULT);
    if started.is_err() {
        // SAFETY: there is no thread that would have taken it.
        drop(unsafe { take(word) });
    }
    started
}

/// Gives back the closure that a word leads to.
///
/// # Safety
/// 1. [`spawn`] made the word, and nobody took its closure before.
unsafe fn take(word: u64) -> Closure {
    // SAFETY: (1).
    *unsafe { Box::from_raw(word as *mut Closure) }
}

crate::thread_entry!(closure_entry, run_closure);

/// Private, as is its entry: its word is always one of [`spawn`]'s.
fn run_closure(word: u64) -> u64 {
    // SAFETY: `spawn` gave the word to this one thread.
    let run = unsafe { take(word) };
    run()
}
