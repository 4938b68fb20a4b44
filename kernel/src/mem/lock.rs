//! The kernel lock: one value, entered by one processor at a time, with interrupts off.

use core::{
    cell::UnsafeCell,
    mem::{MaybeUninit, offset_of},
    ops::{Deref, DerefMut},
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// A value behind a spin lock, put there once at the start.
pub struct Lock<T> {
    taken: AtomicBool,
    filled: AtomicBool,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value is reached only through a guard, and there is one guard at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The right to use the value.
pub struct Guard<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    /// Offset of the byte that is 1 while somebody is inside, for the fast paths in assembly.
    pub const TAKEN: usize = offset_of!(Self, taken);
    /// Offset of the value.
    pub const VALUE: usize = offset_of!(Self, value);

    /// A lock without its value; taken, so that nobody can enter before [`Lock::fill`].
    pub const fn empty() -> Self {
        Self {
            taken: AtomicBool::new(true),
            filled: AtomicBool::new(false),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Puts the value in and opens the lock. A second time is a bug that ends the kernel.
    pub fn fill(&self, value: T) {
        assert!(!self.filled.swap(true, Relaxed), "the lock has its value");
        // SAFETY: the lock is taken since it was made, so nobody looks at the place; and the one
        // who fills it is alone, as was just checked.
        unsafe { (*self.value.get()).write(value) };
        self.taken.store(false, Release);
    }

    /// Enters. Interrupts are off, so the holder is another processor and goes on.
    #[inline(always)]
    pub fn enter(&self) -> Guard<'_, T> {
        while self.taken.swap(true, Acquire) {
            while self.taken.load(Relaxed) {
                core::hint::spin_loop();
            }
        }
        Guard(self)
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the lock could be entered, so it was filled; this guard is the only one.
        unsafe { (*self.0.value.get()).assume_init_ref() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { (*self.0.value.get()).assume_init_mut() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.taken.store(false, Release);
    }
}
