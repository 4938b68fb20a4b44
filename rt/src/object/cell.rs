//! A place in memory that others may read and write at the same time: another thread, another domain.
//!
//! Every access is one relaxed atomic access, or one for each piece of a value that is longer than a word or aligned
//! to less than its size. So a race is no undefined behaviour; it may tear a value between its pieces, and since any
//! bits are a value of plain data, what comes out of a torn read is a value, too. On this architecture a relaxed access
//! is the plain instruction.

use core::{
    cell::UnsafeCell,
    fmt,
    mem::MaybeUninit,
    sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed},
};

use super::Plain;

/// Plain data in memory that others may write meanwhile.
///
/// The cell of the standard library is for one thread, and does not stand in objects:
///
/// ```compile_fail
/// fn first(object: &rt::Object) -> rt::abi::error::Result<&core::cell::Cell<u64>> {
///     object.first()
/// }
/// ```
#[repr(transparent)]
pub struct Cell<T>(UnsafeCell<T>);

// SAFETY: all accesses are atomic.
unsafe impl<T: Plain> Sync for Cell<T> {}

/// An atomic that takes a value over piece by piece.
trait Piece: Sized {
    /// Its value.
    type Word: Copy;
    /// Reads one.
    ///
    /// # Safety
    /// 1. The address is that of a word in a cell, aligned.
    unsafe fn load(at: *mut Self::Word) -> Self::Word;
    /// Writes one.
    ///
    /// # Safety
    /// As [`Piece::load`].
    unsafe fn store(at: *mut Self::Word, word: Self::Word);

    /// Copies a value out of a cell.
    ///
    /// # Safety
    /// 1. `from` is a cell's, `to` the place of such a value that is the caller's alone.
    /// 2. `T` is aligned at least as a word.
    #[inline(always)]
    unsafe fn load_all<T: Plain>(from: *mut T, to: *mut T) {
        for index in 0..size_of::<T>() / size_of::<Self::Word>() {
            // SAFETY: the word lies in the cell and in the value (1), aligned as they are (2).
            unsafe {
                to.cast::<Self::Word>()
                    .add(index)
                    .write(Self::load(from.cast::<Self::Word>().add(index)));
            }
        }
    }

    /// Copies a value into a cell.
    ///
    /// # Safety
    /// As [`Piece::load_all`], with `to` the cell's.
    #[inline(always)]
    unsafe fn store_all<T: Plain>(from: *const T, to: *mut T) {
        for index in 0..size_of::<T>() / size_of::<Self::Word>() {
            // SAFETY: as in `load_all`; plain data has no padding, so every word of it is initialized (`Plain` 2).
            unsafe {
                Self::store(
                    to.cast::<Self::Word>().add(index),
                    from.cast::<Self::Word>().add(index).read(),
                );
            }
        }
    }
}

macro_rules! pieces {
    ($($atomic:ident $word:ident)*) => { $(
        impl Piece for $atomic {
            type Word = $word;
            #[inline(always)]
            unsafe fn load(at: *mut $word) -> $word {
                // SAFETY: (1), and all accesses to a cell are atomic.
                unsafe { $atomic::from_ptr(at) }.load(Relaxed)
            }
            #[inline(always)]
            unsafe fn store(at: *mut $word, word: $word) {
                // SAFETY: as above.
                unsafe { $atomic::from_ptr(at) }.store(word, Relaxed);
            }
        }
    )* };
}
pieces!(AtomicU8 u8 AtomicU16 u16 AtomicU32 u32 AtomicU64 u64);

impl<T: Plain> Cell<T> {
    /// A cell with this value.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// The value.
    #[inline(always)]
    pub fn get(&self) -> T {
        let from = self.0.get();
        let mut value = MaybeUninit::<T>::uninit();
        let to = value.as_mut_ptr();
        // SAFETY: (1) `from` is this cell's, `to` this function's; (2) by the arms. All bytes are written, for plain
        // data is a multiple of its alignment and has no padding (`Plain` 2), and any bits are valid (`Plain` 1).
        unsafe {
            match align_of::<T>() {
                1 => AtomicU8::load_all(from, to),
                2 => AtomicU16::load_all(from, to),
                4 => AtomicU32::load_all(from, to),
                _ => AtomicU64::load_all(from, to),
            }
            value.assume_init()
        }
    }

    /// Sets it.
    #[inline(always)]
    pub fn set(&self, value: T) {
        let (from, to) = (&raw const value, self.0.get());
        // SAFETY: (1) `to` is this cell's, `from` this function's; (2) by the arms.
        unsafe {
            match align_of::<T>() {
                1 => AtomicU8::store_all(from, to),
                2 => AtomicU16::store_all(from, to),
                4 => AtomicU32::store_all(from, to),
                _ => AtomicU64::store_all(from, to),
            }
        }
    }
}

impl<T: Plain + fmt::Debug> fmt::Debug for Cell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl<T: Plain + Default> Default for Cell<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

#[cfg(test)]
mod tests {
    use super::Cell;

    #[test]
    fn values_of_every_size_come_back() {
        let (a, b, c, d) = (Cell::new(1u8), Cell::new(2u16), Cell::new(3i32), Cell::new(4u64));
        a.set(a.get() + 1);
        b.set(b.get() + 1);
        c.set(c.get() - 5);
        d.set(d.get() + 1);
        assert_eq!((a.get(), b.get(), c.get(), d.get()), (2, 3, -2, 5));
        let (bytes, words, none) = (Cell::new([0u8; 10]), Cell::new([0u64; 3]), Cell::new([0u32; 0]));
        bytes.set(*b"conn-type7");
        words.set([1, 2, u64::MAX]);
        none.set([]);
        assert_eq!(
            (bytes.get(), words.get(), none.get()),
            (*b"conn-type7", [1, 2, u64::MAX], [])
        );
    }

    /// Threads may share a cell: the sum of what they wrote last is whole, because a word does not tear.
    #[test]
    fn threads_share_a_cell() {
        let cell = Cell::new(0u64);
        std::thread::scope(|scope| {
            for byte in 1..5u64 {
                let cell = &cell;
                scope.spawn(move || (0..10_000).for_each(|_| cell.set(byte * 0x0101_0101_0101_0101)));
            }
            for _ in 0..10_000 {
                assert_eq!(cell.get() % 0x0101_0101_0101_0101, 0);
            }
        });
    }
}
