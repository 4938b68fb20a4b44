//! The threads' places: a stretch of the kernel's addresses whose frames come on demand, so that a context never moves (decision 0103).

use core::{
    ops::{Deref, DerefMut},
    slice,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use kcore::{
    Frame,
    thread::{THREADS_MAX, Thread},
};

use crate::arch::{THREAD_WINDOW, THREAD_WINDOW_BYTES, map_threads};

/// The places that are made.
pub struct Row {
    length: usize,
    /// Bytes that have memory.
    mapped: u64,
}

/// Whether there is a row: there is one stretch.
static TAKEN: AtomicBool = AtomicBool::new(false);

const FIRST: *mut Thread = THREAD_WINDOW as *mut Thread;

const _: () = assert!(THREAD_WINDOW.is_multiple_of(align_of::<Thread>() as u64));
const _: () = assert!((THREADS_MAX * size_of::<Thread>()) as u64 <= THREAD_WINDOW_BYTES);

impl Row {
    /// The row, without places.
    ///
    /// # Panics
    /// If it was taken before.
    pub fn take() -> Self {
        assert!(!TAKEN.swap(true, Relaxed), "the row of threads is taken once");
        Self { length: 0, mapped: 0 }
    }
}

impl Deref for Row {
    type Target = [Thread];

    #[inline(always)]
    fn deref(&self) -> &[Thread] {
        // SAFETY: the first `length` places have memory for good and were written; the stretch is this one row's. A processor pushes into the
        // context of the thread that it runs alone, and nothing of such a thread is read or written before that processor has given it up
        // (`Kernel::hold`).
        unsafe { slice::from_raw_parts(FIRST, self.length) }
    }
}

impl DerefMut for Row {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Thread] {
        // SAFETY: as in `deref`, and this borrow is the only one.
        unsafe { slice::from_raw_parts_mut(FIRST, self.length) }
    }
}

impl kcore::thread::Row for Row {
    fn extend(&mut self, frame: Frame) {
        if !map_threads(self.mapped, frame) {
            return;
        }
        self.mapped += 4096;
        let places = (self.mapped / size_of::<Thread>() as u64) as usize;
        for index in self.length..places.min(THREADS_MAX) {
            // SAFETY: the place lies below `mapped`, so all of it has memory; no reference to it was made yet.
            unsafe { FIRST.add(index).write(Thread::vacant(index)) };
            self.length = index + 1;
        }
    }
}
