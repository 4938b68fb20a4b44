//! Waiting for each other: a mutex over wait-and-wake on an address, and semaphores.

use core::sync::atomic::{AtomicU32, Ordering};

use abi::{error::Result, layout::FOREVER};

use crate::call;

pub use crate::object::{Guard, Mutex};

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
        if self
            .0
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
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

/// A semaphore of the system: it is named by an address, so whoever may read there may use it. It ends with the task that made it,
/// also if its address is in a persistent object; threads that wait for it then get [`Error::Deleted`].
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

#[cfg(test)]
mod tests {
    use super::*;

    /// System calls that something makes.
    fn calls(act: impl FnOnce()) -> u64 {
        let before = call::COUNTED.get();
        act();
        call::COUNTED.get() - before
    }

    #[test]
    fn a_lock_that_nobody_waits_for_makes_no_call() {
        let (raw, mutex) = (RawMutex::new(), Mutex::new(0));
        let rounds = || {
            for _ in 0..3 {
                raw.lock();
                raw.unlock();
                *mutex.lock() += 1;
            }
        };
        assert_eq!(calls(rounds), 0);
        // A waiting thread is woken, once, and the lock is free then.
        raw.lock();
        raw.0.store(CONTENDED, Ordering::Relaxed);
        assert_eq!(calls(|| raw.unlock()), 1);
        assert_eq!(calls(rounds), 0);
    }
}
