//! A region: memory that is looked at through cells only.
//!
//! Opening a pointer is one subtraction, two comparisons and a test of alignment; then it is an
//! ordinary reference. Following an object's pointers cannot leave the object, whatever bytes it holds, and
//! cannot touch what Rust owns. [`super`] says why this is safe though others may write or delete the object.

use super::{Cell, Persist, Ptr};
use core::marker::PhantomData;

/// The type of a region for the compiler: a borrow of cells, which threads may share.
type View<'a> = PhantomData<&'a [Cell<u8>]>;

/// A range of memory of one object.
///
/// ```
/// fn may_be_shared<T: Send + Sync>() {}
/// may_be_shared::<rt::Region<'static>>();
/// ```
#[derive(Copy, Clone, Debug)]
pub struct Region<'a> {
    base: u64,
    bytes: u64,
    marker: View<'a>,
}

impl<'a> Region<'a> {
    /// The memory at `base`.
    ///
    /// # Safety
    /// 1. For `'a`, an access to the range is one to memory that Rust does not own, or faults.
    /// 2. All accesses of this program to it are atomic.
    #[inline]
    pub(super) const unsafe fn at(base: u64, bytes: u64) -> Self {
        Self {
            base,
            bytes,
            marker: PhantomData,
        }
    }

    /// Borrowed memory as a region.
    pub fn over(memory: &'a mut [u64]) -> Self {
        // SAFETY: (1) the memory is borrowed exclusively for as long as the region lives; (2) a region has no others.
        unsafe { Self::at(memory.as_mut_ptr() as u64, size_of_val(memory) as u64) }
    }

    /// Address of its first byte.
    #[inline]
    pub const fn base(self) -> u64 {
        self.base
    }

    /// Its length.
    #[inline]
    pub const fn bytes(self) -> u64 {
        self.bytes
    }

    /// Follows a pointer: `None` if it is null, unaligned, or leads out of the region.
    #[inline]
    pub const fn get<T: Persist>(self, pointer: Ptr<T>) -> Option<&'a T> {
        if !self.holds::<T>(pointer.address(), size_of::<T>() as u64) {
            return None;
        }
        // SAFETY: the place is inside the region and aligned, and `T` is made of cells that any
        // bytes are valid for (`Persist`).
        Some(unsafe { &*(pointer.address() as *const T) })
    }

    /// For following many pointers: to values of `T`, and of types that are no longer and are aligned alike.
    pub const fn follow<T: Persist>(self) -> Follow<'a, T> {
        Follow::new(self)
    }

    /// Follows a pointer to `count` values that stand one behind the other.
    pub const fn slice<T: Persist>(self, pointer: Ptr<T>, count: usize) -> Option<&'a [T]> {
        let Some(bytes) = (count as u64).checked_mul(size_of::<T>() as u64) else {
            return None;
        };
        if !self.holds::<T>(pointer.address(), bytes) {
            return None;
        }
        // SAFETY: as in `get`, for all of them.
        Some(unsafe { core::slice::from_raw_parts(pointer.address() as *const T, count) })
    }

    /// The pointer to what stands at `offset`.
    #[inline]
    pub const fn pointer<T: Persist>(self, offset: u64) -> Ptr<T> {
        Ptr::from_address(self.base.wrapping_add(offset))
    }

    /// The value at `offset`.
    pub const fn at_offset<T: Persist>(self, offset: u64) -> Option<&'a T> {
        self.get(self.pointer(offset))
    }

    /// All bytes.
    pub const fn cells(self) -> &'a [Cell<u8>] {
        match self.slice(self.pointer(0), self.bytes as usize) {
            Some(cells) => cells,
            None => &[],
        }
    }

    /// Whether `bytes` bytes at `address` are inside and fit to hold a `T`.
    #[inline(always)]
    const fn holds<T>(self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.base);
        offset <= self.bytes && bytes <= self.bytes - offset && address.is_multiple_of(align_of::<T>() as u64)
    }
}

/// Follows pointers inside a region by one addition and one comparison each.
///
/// One pair of words serves all types of a structure, so it stays in registers: a value of a type that is shorter than `T`
/// is found where a `T` would still fit. Structures whose largest type is `T` lose nothing by that if the
/// shorter values stand inside such, or before the last one.
#[derive(Debug)]
pub struct Follow<'a, T> {
    /// The base, negated: an addition may leave its sum in another register, a subtraction may not.
    minus_base: u64,
    /// How many places there are where a `T` may begin, counted in its alignment.
    places: u64,
    marker: PhantomData<(View<'a>, fn() -> T)>,
}

impl<T> Copy for Follow<'_, T> {}

impl<T> Clone for Follow<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<'a, T: Persist> Follow<'a, T> {
    const SHIFT: u32 = align_of::<T>().trailing_zeros();

    const fn new(region: Region<'a>) -> Self {
        let fits = region.bytes.checked_sub(size_of::<T>() as u64);
        let aligned = region.base.is_multiple_of(align_of::<T>() as u64);
        let places = match fits {
            Some(last) if aligned => (last >> Self::SHIFT) + 1,
            _ => 0,
        };
        Self {
            minus_base: region.base.wrapping_neg(),
            places,
            marker: PhantomData,
        }
    }

    /// The value that a pointer leads to: `None` if it is null, unaligned, or leads to where no `T` fits into the region.
    ///
    /// ```compile_fail
    /// let follow = rt::Region::over(&mut [0; 4]).follow::<rt::Cell<u64>>();
    /// let _ = follow.get(rt::Ptr::<rt::Cell<[u64; 2]>>::NULL);
    /// ```
    #[inline(always)]
    pub const fn get<U: Persist>(self, pointer: Ptr<U>) -> Option<&'a U> {
        const {
            assert!(
                size_of::<U>() <= size_of::<T>() && align_of::<U>() == align_of::<T>(),
                "no longer, and aligned alike"
            );
        }
        // Turned by the alignment, an unaligned offset becomes a huge one.
        if pointer
            .address()
            .wrapping_add(self.minus_base)
            .rotate_right(Self::SHIFT)
            >= self.places
        {
            return None;
        }
        // SAFETY: as in `Region::get`: a `T` fits there and is aligned, so a `U` does and is.
        Some(unsafe { &*(pointer.address() as *const U) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_followed_only_inside() {
        let mut memory = [0u64; 8];
        let region = Region::over(&mut memory);
        let base = region.base();
        let at = |address| region.get(Ptr::<Cell<u64>>::from_address(address));
        assert!(at(base).is_some() && at(base + 56).is_some());
        let words = region.follow::<Cell<u64>>();
        let followed = |address| words.get(Ptr::<Cell<u64>>::from_address(address));
        assert!(followed(base).is_some() && followed(base + 56).is_some());
        for outside in [0, 8, base - 8, base + 57, base + 60, base + 64, u64::MAX, base + 1] {
            assert!(at(outside).is_none(), "{outside:#x}");
            assert!(followed(outside).is_none(), "{outside:#x}");
        }
        let longer = region.follow::<Cell<[u64; 9]>>();
        assert!(longer.get(Ptr::<Cell<[u64; 9]>>::from_address(base)).is_none());
        // A shorter value is followed where a longest one would fit.
        let pairs = region.follow::<Cell<[u64; 2]>>();
        let second = |address| pairs.get(Ptr::<Cell<u64>>::from_address(address));
        assert!(second(base).is_some() && second(base + 48).is_some());
        for outside in [0, base - 8, base + 1, base + 52, base + 56, base + 64, u64::MAX] {
            assert!(second(outside).is_none(), "{outside:#x}");
        }
        assert_eq!(region.slice(region.pointer::<Cell<u8>>(60), 4).map(<[_]>::len), Some(4));
        assert!(region.slice(region.pointer::<Cell<u8>>(60), 5).is_none());
        assert!(region.slice(region.pointer::<Cell<u64>>(0), usize::MAX).is_none());
        assert_eq!(region.cells().len(), 64);
    }

    #[test]
    fn what_is_written_through_one_pointer_is_read_through_another() {
        let mut memory = [0u64; 4];
        let region = Region::over(&mut memory);
        let (word, bytes) = (
            region.at_offset::<Cell<u64>>(8).unwrap(),
            region.at_offset::<Cell<[u8; 8]>>(8).unwrap(),
        );
        word.set(0x0102_0304_0506_0708);
        assert_eq!(bytes.get()[0], 8);
        assert_eq!(Ptr::to(word).address(), region.base() + 8);
    }
}
