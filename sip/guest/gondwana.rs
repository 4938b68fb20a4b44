//! What every guest in Rust needs beside the bindings of its contracts: blocks of the exchange heap, and
//! endpoints. A block or endpoint has one owner; sending it moves it, and dropping it ends it.
//!
//! Copy this file into a project as the module `gondwana`; `gond sip new` does.
#![allow(dead_code)]

use core::marker::PhantomData;
use core::mem::{forget, size_of};

mod raw {
    #[link(wasm_import_module = "gondwana:heap")]
    unsafe extern "C" {
        pub safe fn alloc(bytes: i32) -> i32;
        pub safe fn free(block: i32);
        pub safe fn len(block: i32) -> i32;
        pub safe fn put(block: i32, slot: i32, child: i32);
        pub safe fn take(block: i32, slot: i32) -> i32;
        pub safe fn ld8(block: i32, offset: i32) -> i32;
        pub safe fn ld32(block: i32, offset: i32) -> i32;
        pub safe fn ld64(block: i32, offset: i32) -> i64;
        pub safe fn ldf32(block: i32, offset: i32) -> f32;
        pub safe fn ldf64(block: i32, offset: i32) -> f64;
        pub safe fn st8(block: i32, offset: i32, value: i32);
        pub safe fn st32(block: i32, offset: i32, value: i32);
        pub safe fn st64(block: i32, offset: i32, value: i64);
        pub safe fn stf32(block: i32, offset: i32, value: f32);
        pub safe fn stf64(block: i32, offset: i32, value: f64);
        pub fn copy_in(block: i32, offset: i32, from: *const u8, bytes: i32);
        pub fn copy_out(block: i32, offset: i32, to: *mut u8, bytes: i32);
    }
    #[link(wasm_import_module = "gondwana:channel")]
    unsafe extern "C" {
        pub safe fn close(endpoint: i32);
    }
}

/// The other end of the channel is closed: its process has ended, or has closed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerGone;

/// An end of a channel whose contract is not known here; the bindings of its contract make more of it.
#[derive(Debug)]
pub struct Endpoint(i32);

impl Endpoint {
    /// From the number that the engine gave; it must be used for nothing else.
    pub const fn from_raw(number: i32) -> Self {
        Self(number)
    }
    /// Its number.
    pub const fn raw(&self) -> i32 {
        self.0
    }
    /// Its number, to give away.
    pub const fn into_raw(self) -> i32 {
        let number = self.0;
        forget(self);
        number
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        raw::close(self.0);
    }
}

/// What a block can hold: numbers of which every pattern of bits is one.
pub trait Plain: Copy {
    /// Reads one at an offset in bytes.
    fn load(block: i32, offset: i32) -> Self;
    /// Writes one.
    fn store(block: i32, offset: i32, value: Self);
}

macro_rules! plain {
    ($($ty:ty: $load:ident $store:ident $via:ty),*) => {$(
        impl Plain for $ty {
            fn load(block: i32, offset: i32) -> Self {
                raw::$load(block, offset) as Self
            }
            fn store(block: i32, offset: i32, value: Self) {
                raw::$store(block, offset, value as $via);
            }
        }
    )*};
}
plain!(u8: ld8 st8 i32, i32: ld32 st32 i32, u32: ld32 st32 i32, i64: ld64 st64 i64, u64: ld64 st64 i64,
    f32: ldf32 stf32 f32, f64: ldf64 stf64 f64);

/// A block of the exchange heap that holds elements of one type. An index outside traps.
#[derive(Debug)]
pub struct Block<T: Plain>(i32, PhantomData<T>);

impl<T: Plain> Block<T> {
    /// A block of so many elements, all zero. The process is stopped if the heap is full.
    pub fn new(count: usize) -> Self {
        Self(raw::alloc((count * size_of::<T>()) as i32), PhantomData)
    }

    /// A block with these elements.
    pub fn from_slice(elements: &[T]) -> Self {
        let mut block = Self::new(elements.len());
        block.write(0, elements);
        block
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        raw::len(self.0) as u32 as usize / size_of::<T>()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An element.
    pub fn get(&self, at: usize) -> T {
        T::load(self.0, (at * size_of::<T>()) as i32)
    }

    /// Changes an element.
    pub fn set(&mut self, at: usize, value: T) {
        T::store(self.0, (at * size_of::<T>()) as i32, value);
    }

    /// Copies elements out, from this one on.
    pub fn read(&self, at: usize, to: &mut [T]) {
        let (offset, bytes) = ((at * size_of::<T>()) as i32, size_of_val(to) as i32);
        // SAFETY: the engine writes `bytes` bytes at `to`, which is as long and holds plain numbers.
        unsafe { raw::copy_out(self.0, offset, to.as_mut_ptr().cast(), bytes) };
    }

    /// Copies elements in, from this one on.
    pub fn write(&mut self, at: usize, from: &[T]) {
        let (offset, bytes) = ((at * size_of::<T>()) as i32, size_of_val(from) as i32);
        // SAFETY: the engine reads `bytes` bytes at `from`, which is as long.
        unsafe { raw::copy_in(self.0, offset, from.as_ptr().cast(), bytes) };
    }

    /// The same block, seen as elements of another type.
    pub fn cast<U: Plain>(self) -> Block<U> {
        Block(self.into_raw(), PhantomData)
    }

    /// Puts a block into a slot (below 64) of this one: it then belongs to it and goes where it goes.
    /// The process is stopped if the slot is taken.
    pub fn put<U: Plain>(&mut self, slot: usize, child: Block<U>) {
        raw::put(self.0, slot as i32, child.into_raw());
    }

    /// Takes the block out of a slot; `None` if it is empty.
    pub fn take<U: Plain>(&mut self, slot: usize) -> Option<Block<U>> {
        match raw::take(self.0, slot as i32) {
            0 => None,
            block => Some(Block(block, PhantomData)),
        }
    }

    /// From the handle that the engine gave; it must be used for nothing else.
    pub const fn from_raw(handle: i32) -> Self {
        Self(handle, PhantomData)
    }

    /// Its handle, to give away.
    pub const fn into_raw(self) -> i32 {
        let handle = self.0;
        forget(self);
        handle
    }
}

impl<T: Plain> Drop for Block<T> {
    fn drop(&mut self) {
        raw::free(self.0);
    }
}
