//! Waiting for each other: a mutex over wait-and-wake on an address, and semaphores.

use core::{
    cell::UnsafeCell,
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicU32, Ordering},
};

use abi::{error::Result, layout::FOREVER};

use crate::call;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// A lock without data. The word tells whether it is held and whether anyone waits, so that a free
/// lock is taken and given back without a system call.
#[derive(Debug, Default)]
pub struct RawMutex(AtomicU32);

impl RawMutex {
    /// A free lock.
    pub const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Takes it, waiting if need be.
    #[inline]
    pub fn lock(&self) {
        if self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        while self.0.swap(CONTENDED, Ordering::Acquire) != FREE {
            // `Changed` is no error here: the word is looked at again either way.
            let _ = call::address_wait(self.address(), CONTENDED.into(), FOREVER);
        }
    }

    /// Gives it back. Only who holds it may.
    #[inline]
    pub fn unlock(&self) {
        if self.0.swap(FREE, Ordering::Release) == CONTENDED {
            let _ = call::address_wake(self.address(), 1);
        }
    }

    fn address(&self) -> u64 {
        core::ptr::from_ref(&self.0) as u64
    }
}

/// Data that one thread at a time may touch.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    lock: RawMutex,
    data: UnsafeCell<T>,
}

mod guard {
    //! The two promises that a mutex makes to the compiler.
    #![allow(unsafe_code, reason = "a mutex gives out exclusive references by its own rule")]

    use super::{Deref, DerefMut, Mutex};

    // SAFETY: the lock lets one thread at a time to the data.
    unsafe impl<T: Send> Sync for Mutex<T> {}

    /// The data of a locked mutex; unlocks when dropped.
    #[derive(Debug)]
    pub struct Guard<'a, T>(pub(super) &'a Mutex<T>);

    impl<T> Deref for Guard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            // SAFETY: the lock is held for as long as the guard lives.
            unsafe { &*self.0.data.get() }
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: as above, and the guard is borrowed exclusively.
            unsafe { &mut *self.0.data.get() }
        }
    }
}

pub use guard::Guard;

impl<T> Mutex<T> {
    /// A free mutex.
    pub const fn new(data: T) -> Self {
        Self { lock: RawMutex::new(), data: UnsafeCell::new(data) }
    }

    /// Waits until nobody else has the data, and takes it.
    pub fn lock(&self) -> Guard<'_, T> {
        self.lock.lock();
        Guard(self)
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.lock.unlock();
    }
}

/// A semaphore of the system: it is named by an address, so whoever may read there may use it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Semaphore {
    address: u64,
}

impl Semaphore {
    /// Makes a semaphore at an address that the domain may write.
    ///
    /// # Errors
    /// As `SemCreate`.
    pub fn create(address: u64, value: u64) -> Result<Self> {
        call::sem_create(address, value)?;
        Ok(Self { address })
    }

    /// The semaphore that stands at an address.
    pub const fn at(address: u64) -> Self {
        Self { address }
    }

    /// Takes one, or waits for it.
    ///
    /// # Errors
    /// As `SemWait`.
    pub fn wait(self) -> Result<()> {
        call::sem_wait(self.address, FOREVER)
    }

    /// Takes one, or waits for it for so many nanoseconds.
    ///
    /// # Errors
    /// As `SemWait`.
    pub fn wait_for(self, timeout_ns: u64) -> Result<()> {
        call::sem_wait(self.address, timeout_ns)
    }

    /// Gives one.
    ///
    /// # Errors
    /// As `SemSignal`.
    pub fn signal(self) -> Result<()> {
        call::sem_signal(self.address)
    }

    /// Deletes it; who waits gets `Deleted`.
    ///
    /// # Errors
    /// As `SemDelete`.
    pub fn delete(self) -> Result<()> {
        call::sem_delete(self.address)
    }
}
