//! A mutex with its data. It stands here because giving out exclusive references is unsafe code;
//! programs find it in [`crate::sync`].

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    ops::{Deref, DerefMut},
};

use crate::sync::RawMutex;

/// Data that one thread at a time may touch.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    lock: RawMutex,
    data: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread at a time to the data.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// A free mutex.
    pub const fn new(data: T) -> Self {
        Self {
            lock: RawMutex::new(),
            data: UnsafeCell::new(data),
        }
    }

    /// Waits until nobody else has the data, and takes it.
    pub fn lock(&self) -> Guard<'_, T> {
        self.lock.lock();
        Guard {
            mutex: self,
            data: PhantomData,
        }
    }
}

/// The data of a locked mutex; unlocks when dropped. To the compiler it is an exclusive borrow of the data, so threads
/// share it only if they may share the data:
///
/// ```compile_fail
/// fn may_be_shared<T: Sync>() {}
/// may_be_shared::<rt::sync::Guard<'static, core::cell::Cell<u64>>>();
/// ```
#[derive(Debug)]
pub struct Guard<'a, T> {
    mutex: &'a Mutex<T>,
    data: PhantomData<&'a mut T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held for as long as the guard lives.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed exclusively.
        unsafe { &mut *self.mutex.data.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.mutex.lock.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::Mutex;

    #[test]
    fn the_data_comes_out_as_it_was_left() {
        let mutex = Mutex::new(1);
        *mutex.lock() += 1;
        assert_eq!(*mutex.lock(), 2);
    }
}
