//! The kernel lock: one value, entered by one processor at a time, with interrupts off.

use core::{
    cell::UnsafeCell,
    mem::{MaybeUninit, offset_of},
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use kcore::smp::{
    Turn,
    protocol::{Mark, STOP},
};

use crate::arch;

/// State that processors share by turns.
pub trait Shared {
    /// This processor enters after another one was in.
    fn change_over(&mut self, processor: u32);
    /// This processor is about to leave: checks what must hold then. For builds with assertions.
    fn check_before_leaving(&self);
}

/// A value behind a spin lock, put there once at the start.
pub struct Lock<T> {
    turn: Turn,
    filled: AtomicBool,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value is reached only through a guard, and there is one guard at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The right to use the value.
pub struct Guard<'a, T: Shared>(&'a Lock<T>);

impl<T> Lock<T> {
    /// Offset of the word that says whose turn it is, for the fast paths in assembly.
    pub const TURN: usize = offset_of!(Self, turn) + Turn::WORD;
    /// Offset of the value.
    pub const VALUE: usize = offset_of!(Self, value);
}

impl<T: Shared> Lock<T> {
    /// A lock without its value; taken, so that nobody can enter before [`Lock::fill`].
    pub const fn empty() -> Self {
        Self {
            turn: Turn::taken(),
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
        self.turn.leave();
    }

    /// Enters, behind the processors that are in line. Interrupts are off, so the holder is another processor and goes on. No thread runs here, or it has been
    /// given up, so nobody asks for it.
    #[inline(always)]
    pub fn enter(&self) -> Guard<'_, T> {
        let me = arch::mark();
        if !self.turn.try_again(me) {
            while !self.wait(me, 0) {}
        }
        Guard(self)
    }

    /// Enters if that needs no waiting: nobody is inside and this processor was in last. For the fast paths, which are
    /// left for the slow one otherwise.
    #[inline(always)]
    pub fn enter_at_once(&self) -> Option<Guard<'_, T>> {
        self.turn.try_again(arch::mark()).then(|| Guard(self))
    }

    /// Enters, unless the holder wants to have the thread that runs here: it must be handed over first
    /// ([`arch::hand_over`]).
    #[inline(always)]
    pub fn enter_unless_stopped(&self) -> Option<Guard<'_, T>> {
        let me = arch::mark();
        // The guard is made only if the lock is entered: dropping one opens it.
        (self.turn.try_again(me) || self.wait(me, STOP)).then(|| Guard(self))
    }

    /// The guard of a lock that the entry code has entered, as [`Lock::enter_at_once`] does.
    ///
    /// # Safety
    /// 1. This processor has the turn, and nobody else on it has or makes a guard.
    #[inline(always)]
    pub unsafe fn entered(&self) -> Guard<'_, T> {
        Guard(self)
    }

    /// Waits for the turn, doing meanwhile what other processors ask for; gives up if they ask for one of `stops`.
    #[cold]
    #[inline(never)]
    fn wait(&self, me: Mark, stops: u32) -> bool {
        let Some(changed) = self.turn.take(me, || arch::serve() & stops == 0) else {
            return false;
        };
        if changed {
            // SAFETY: the lock is taken, and was filled before it could be; the guard is made after this.
            unsafe { (*self.value.get()).assume_init_mut() }.change_over(me.processor());
        }
        true
    }
}

impl<T: Shared> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the lock could be entered, so it was filled; this guard is the only one.
        unsafe { (*self.0.value.get()).assume_init_ref() }
    }
}

impl<T: Shared> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { (*self.0.value.get()).assume_init_mut() }
    }
}

impl<T: Shared> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            self.check_before_leaving();
        }
        self.0.turn.leave();
    }
}
