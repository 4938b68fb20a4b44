//! Types that may stand in objects: plain data, in cells, and pointers to such.
//!
//! A persistent structure is made with [`persist!`](crate::persist): `repr(C)`, without holes, every
//! field a [`Cell`] of plain data. No references, no function pointers, no `bool` or enumerations: the
//! bytes may have been written by anyone, at any time.

use core::{
    fmt,
    marker::PhantomData,
    sync::atomic::{AtomicU32, AtomicU64},
};

use super::Cell;

/// Data that any bytes are a valid value of, and that may be copied.
///
/// # Safety
/// 1. Every pattern of bits is valid.
/// 2. There is no padding.
/// 3. It holds no reference.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($type:ty)*) => { $(
        // SAFETY: an integer is all that is asked.
        unsafe impl Plain for $type {}
    )* };
}
plain!(u8 i8 u16 i16 u32 i32 u64 i64 usize isize);

// SAFETY: an array is its elements.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// A type that a persistent pointer may lead to: plain data in cells.
///
/// # Safety
/// 1. It consists of [`Cell`]s of [`Plain`] data, or atomics: all accesses are atomic.
/// 2. It is `repr(C)` or an array.
///
/// [`persist!`](crate::persist) sees to both.
pub unsafe trait Persist: 'static {}

// SAFETY: our cell of plain data is all that is asked.
unsafe impl<T: Plain> Persist for Cell<T> {}
// SAFETY: an atomic is a cell too.
unsafe impl Persist for AtomicU32 {}
// SAFETY: an atomic is a cell too.
unsafe impl Persist for AtomicU64 {}
// SAFETY: an array is its elements.
unsafe impl<T: Persist, const N: usize> Persist for [T; N] {}

/// Defines structures that may stand in objects.
///
/// ```
/// use rt::{Cell, Ptr};
/// rt::persist! {
///     /// A list.
///     pub struct Node {
///         /// The next one.
///         pub next: Cell<Ptr<Node>>,
///         /// A value.
///         pub value: Cell<u64>,
///     }
/// }
/// ```
#[macro_export]
macro_rules! persist {
    ($($(#[$meta:meta])* $visibility:vis struct $name:ident { $($(#[$field_meta:meta])* $field_visibility:vis $field:ident: $type:ty,)* })*) => { $(
        $(#[$meta])*
        #[repr(C)]
        $visibility struct $name { $($(#[$field_meta])* $field_visibility $field: $type,)* }

        const _: () = {
            const fn is_persist<T: $crate::Persist>() {}
            $(is_persist::<$type>();)*
            assert!(size_of::<$name>() == 0 $(+ size_of::<$type>())*, "a persistent structure has no holes");
        };

        #[allow(unsafe_code, reason = "this macro is part of rt's object module")]
        // SAFETY: every field is `Persist`, as just checked, and it is `repr(C)`.
        unsafe impl $crate::Persist for $name {}
    )* };
}

/// An address of a `T`, as it stands in objects. It is data: only a [`Region`](super::Region) follows it.
#[repr(transparent)]
pub struct Ptr<T> {
    address: u64,
    marker: PhantomData<fn() -> T>,
}

// SAFETY: it is a word; that of another pointer, or no pointer at all, is as good.
unsafe impl<T: 'static> Plain for Ptr<T> {}

impl<T> Ptr<T> {
    /// The pointer to nothing.
    pub const NULL: Self = Self::from_address(0);

    /// The pointer with this address.
    #[inline]
    pub const fn from_address(address: u64) -> Self {
        Self {
            address,
            marker: PhantomData,
        }
    }

    /// The pointer to something that stands in an object.
    #[inline]
    pub fn to(place: &T) -> Self {
        Self::from_address(core::ptr::from_ref(place) as u64)
    }

    /// Its address.
    #[inline]
    pub const fn address(self) -> u64 {
        self.address
    }

    /// Whether it leads nowhere.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.address == 0
    }

    /// The pointer to the `index`-th behind this one, in an array.
    #[inline]
    #[must_use]
    pub const fn offset(self, index: u64) -> Self {
        Self::from_address(self.address.wrapping_add(index.wrapping_mul(size_of::<T>() as u64)))
    }
}

impl<T> Copy for Ptr<T> {}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> PartialEq for Ptr<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl<T> Eq for Ptr<T> {}

impl<T> Default for Ptr<T> {
    fn default() -> Self {
        Self::NULL
    }
}

impl<T> fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.address)
    }
}
