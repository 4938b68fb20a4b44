//! The heap: blocks by powers of two, cut from transient objects.
//!
//! A block of 16 bytes to 32 KiB comes from the free list of its size, or from the end of the newest
//! *chunk*, an object of 1 MiB whose pages exist when touched. Anything larger is an object of its
//! own and goes back to the system when freed. Nothing happens before the first allocation: many
//! programs have no heap at all. Lists are linked through the free blocks themselves.
//!
//! All heap objects stand in a table, so that no handle is made of them; and the heap takes none where the program has had
//! a view ([`super::viewed`]). The heap is part of the program's state ([`super::state`]).

#[cfg(target_os = "none")]
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
#[cfg(any(target_os = "none", test))]
use core::{
    alloc::{GlobalAlloc, Layout},
    cell::UnsafeCell,
    ptr::null_mut,
};

use abi::address::slot_of;

#[cfg(any(target_os = "none", test))]
use crate::sync::RawMutex;

/// Smallest block, as a power of two.
#[cfg(any(target_os = "none", test))]
const SMALLEST: u32 = 4;
/// Sizes of blocks: 2^4 … 2^15.
#[cfg(any(target_os = "none", test))]
const SIZES: usize = 12;
/// Bytes of a chunk.
#[cfg(any(target_os = "none", test))]
const CHUNK: u64 = 1 << 20;

/// Heap objects there may be.
#[cfg(target_os = "none")]
const OBJECTS_MAX: usize = 256;

/// The source of objects for the heap.
#[cfg(any(target_os = "none", test))]
pub(super) trait Source {
    /// The address of `bytes` zero bytes, or 0.
    fn create(&self, bytes: u64) -> u64;
    /// Gives them back.
    fn delete(&self, base: u64);
}

/// The beginning of a free block.
#[cfg(any(target_os = "none", test))]
struct FreeBlock {
    next: *mut FreeBlock,
}

/// The free lists and the newest chunk.
#[cfg(any(target_os = "none", test))]
struct State {
    /// Heads of the lists of free blocks, by size.
    free: [*mut FreeBlock; SIZES],
    /// The unused end of the newest chunk.
    next: u64,
    end: u64,
}

/// An allocator over a source of objects. The source's tables come last ([`super::state`]).
#[cfg(any(target_os = "none", test))]
#[repr(C)]
pub(super) struct Heap<S> {
    lock: RawMutex,
    state: UnsafeCell<State>,
    source: S,
}

// SAFETY: the state is touched only while the lock is held.
#[cfg(any(target_os = "none", test))]
unsafe impl<S: Sync> Sync for Heap<S> {}

#[cfg(any(target_os = "none", test))]
impl<S: Source> Heap<S> {
    #[cfg(any(not(feature = "module"), test))]
    const fn new(source: S) -> Self {
        let state = State {
            free: [null_mut(); SIZES],
            next: 0,
            end: 0,
        };
        Self {
            lock: RawMutex::new(),
            state: UnsafeCell::new(state),
            source,
        }
    }

    /// Which list serves a layout; none if it takes an object of its own.
    fn size_of(layout: Layout) -> Option<usize> {
        let bytes = layout.size().max(layout.align()).max(1 << SMALLEST);
        let index = (usize::BITS - (bytes - 1).leading_zeros()).saturating_sub(SMALLEST) as usize;
        (index < SIZES).then_some(index)
    }

    /// A block of the `index`-th size.
    fn block(&self, state: &mut State, index: usize) -> *mut u8 {
        let head = state.free[index];
        if !head.is_null() {
            // SAFETY: a free block is ours, aligned to its size, and begins with the next one.
            state.free[index] = unsafe { (*head).next };
            return head.cast();
        }
        let bytes = 1u64 << (index as u32 + SMALLEST);
        // Chunks begin at a page, and the largest block is larger than that.
        let mut at = state.next.next_multiple_of(bytes);
        if at + bytes > state.end {
            let base = self.source.create(CHUNK);
            if base == 0 {
                return null_mut();
            }
            state.end = base + CHUNK;
            at = base.next_multiple_of(bytes);
        }
        state.next = at + bytes;
        at as *mut u8
    }
}

// Not inlined: there are many places that free something, and a program shall be small.
// SAFETY: blocks are disjoint, as long and as aligned as asked, and stay until they are freed.
#[cfg(any(target_os = "none", test))]
unsafe impl<S: Source + Sync> GlobalAlloc for Heap<S> {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(index) = Self::size_of(layout) else {
            let fits = layout.align() as u64 <= abi::address::PAGE;
            return if fits {
                self.source.create(layout.size() as u64) as *mut u8
            } else {
                null_mut()
            };
        };
        self.lock.lock();
        // SAFETY: the lock is held.
        let block = self.block(unsafe { &mut *self.state.get() }, index);
        self.lock.unlock();
        block
    }

    #[inline(never)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(index) = Self::size_of(layout) else {
            self.source.delete(block as u64);
            return;
        };
        self.lock.lock();
        // SAFETY: the lock is held; the caller gives up the block, which is aligned for a word and holds
        // at least one.
        unsafe {
            let state = &mut *self.state.get();
            let free = block as u64 as *mut FreeBlock;
            free.write(FreeBlock {
                next: state.free[index],
            });
            state.free[index] = free;
        }
        self.lock.unlock();
    }

    #[inline(never)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller says that size and alignment make a layout.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let (before, after) = (Self::size_of(layout), Self::size_of(new));
        if before.is_some() && before == after {
            return block;
        }
        // SAFETY: as promised to us.
        let place = unsafe { self.alloc(new) };
        if !place.is_null() {
            // SAFETY: both blocks are at least that long and disjoint; the old one is given up.
            unsafe {
                core::ptr::copy_nonoverlapping(block, place, layout.size().min(size));
                self.dealloc(block, layout);
            }
        }
        place
    }
}

/// Transient objects of the system, entered in a table. Nothing but zeroes is an empty one.
#[cfg(target_os = "none")]
#[repr(C)]
pub(super) struct Objects {
    /// One past the last place ever used.
    reach: AtomicUsize,
    /// Whether there must be none: the heap is its first chunk.
    confined: bool,
    /// The first and the last slot of each object, 32 bits each; 0 is a free place.
    places: [AtomicU64; OBJECTS_MAX],
}

/// First and last slot of a range.
pub(super) const fn slots(base: u64, bytes: u64) -> (u64, u64) {
    let bytes = if bytes == 0 { 1 } else { bytes };
    (slot_of(base), slot_of(base.saturating_add(bytes - 1)))
}

/// How often the heap asks for another object, because the program has had a view where the last one is. Each is twice as long as the one
/// before, up to the longest that there may be: longer than most gaps that deleted objects leave.
#[cfg(target_os = "none")]
const ATTEMPTS: usize = 1 + (abi::address::OBJECT_BYTES_MAX / abi::address::SLOT).ilog2() as usize;

#[cfg(target_os = "none")]
impl Objects {
    /// Whether a slot of the range is one of the heap's. A caller marks the range first and asks then; the heap enters an object first
    /// and looks for marks then ([`super::viewed`]). So one of the two sees the other.
    fn owns(&self, base: u64, bytes: u64) -> bool {
        let (first, last) = slots(base, bytes);
        let reach = self.reach.load(Ordering::SeqCst).min(OBJECTS_MAX);
        self.places.iter().take(reach).any(|place| {
            let word = place.load(Ordering::SeqCst);
            word != 0 && word >> 32 <= last && first <= word & u64::from(u32::MAX)
        })
    }

    /// Enters an object; false if the table is full.
    fn enter(&self, base: u64, bytes: u64) -> bool {
        const { assert!(slot_of(abi::address::USER_END) <= 1 << 32) };
        let (first, last) = slots(base, bytes);
        let word = first << 32 | last;
        let free = |place: &AtomicU64| {
            place
                .compare_exchange(0, word, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        };
        let Some(index) = self.places.iter().position(free) else {
            return false;
        };
        self.reach.fetch_max(index + 1, Ordering::SeqCst);
        true
    }

    fn strike(&self, base: u64) {
        for place in &self.places {
            let word = place.load(Ordering::Relaxed);
            if word >> 32 == slot_of(base) {
                let _ = place.compare_exchange(word, 0, Ordering::SeqCst, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(target_os = "none")]
impl Source for Objects {
    /// An object where the program never had a view. Those that the kernel gives elsewhere are held until one is found, or
    /// it would give the same one again. It gives the addresses of deleted objects first, one slot as it came back and more where they fit:
    /// so a longer one is asked for each time, and cut when it lies well.
    fn create(&self, bytes: u64) -> u64 {
        if self.confined {
            return 0;
        }
        let mut refused = [0; ATTEMPTS];
        let mut found = 0;
        let mut length = bytes;
        for place in &mut refused {
            let Ok((base, _)) = crate::call::obj_create(length, 0) else {
                break;
            };
            if self.enter(base, bytes) {
                // Entered first: a view that is made meanwhile sees it, or is seen here.
                if super::state::find().is_some_and(|state| !state.viewed.holds(base, bytes)) {
                    found = base;
                    break;
                }
                self.strike(base);
            }
            *place = base;
            length = length.max(abi::address::SLOT).saturating_mul(2);
        }
        if found != 0 && length > bytes {
            // SAFETY: Rust owns nothing there yet. What is not cut off has no memory, and goes with the rest.
            let _ = unsafe { crate::call::obj_resize_unchecked(found, bytes) };
        }
        for base in refused.into_iter().filter(|base| *base != 0) {
            give_back(base);
        }
        found
    }

    fn delete(&self, base: u64) {
        self.strike(base);
        give_back(base);
    }
}

/// Deletes an object that nothing of the heap stands in. If it does not go, it goes with the task.
#[cfg(target_os = "none")]
fn give_back(base: u64) {
    // SAFETY: Rust owns nothing there (any more): the allocator's caller gave the block up, or never had it.
    let _ = unsafe { crate::call::obj_delete_unchecked(base) };
}

/// The program's heap.
#[cfg(target_os = "none")]
pub(super) type ProgramHeap = Heap<Objects>;

#[cfg(target_os = "none")]
impl ProgramHeap {
    /// An empty one.
    #[cfg(not(feature = "module"))]
    pub(super) const fn empty() -> Self {
        Self::new(Objects {
            reach: AtomicUsize::new(0),
            confined: false,
            places: [const { AtomicU64::new(0) }; OBJECTS_MAX],
        })
    }

    /// Gives a heap that has nothing yet a first chunk: zero bytes that are nobody's. A `confined` one never gets another.
    #[cfg(feature = "module")]
    pub(super) fn begin(&mut self, next: u64, end: u64, confined: bool) {
        self.source.confined = confined;
        let state = self.state.get_mut();
        (state.next, state.end) = (next, end);
    }
}

/// The allocator of Rust's collections: the heap of the program that runs.
#[cfg(target_os = "none")]
struct Current;

// SAFETY: as that of the heap.
#[cfg(target_os = "none")]
unsafe impl GlobalAlloc for Current {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: promised by the caller.
        unsafe { super::state::state().heap.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: promised by the caller.
        unsafe { super::state::state().heap.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: promised by the caller.
        unsafe { super::state::state().heap.realloc(block, layout, size) }
    }
}

#[cfg(target_os = "none")]
#[global_allocator]
static HEAP: Current = Current;

/// Whether a slot of the range is one that the program's heap has; a thread without state has none.
pub(super) fn owns(base: u64, bytes: u64) -> bool {
    #[cfg(target_os = "none")]
    let owns = super::state::find().is_some_and(|state| state.heap.source.owns(base, bytes));
    #[cfg(not(target_os = "none"))]
    let owns = base == 0 && bytes == 0;
    owns
}

/// The address of `bytes` zero bytes that are Rust's own from now on, until the task ends; 0 if there are none.
pub(super) fn take(bytes: u64) -> u64 {
    #[cfg(target_os = "none")]
    let base = super::state::find().map_or(0, |state| state.heap.source.create(bytes));
    // The host's heap is not ours.
    #[cfg(not(target_os = "none"))]
    let (base, _) = (0, bytes);
    base
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{alloc, sync::Mutex};

    /// Takes chunks from the host and counts them.
    #[derive(Default)]
    struct Host(Mutex<Vec<(u64, u64)>>);

    impl Host {
        fn layout(bytes: u64) -> Layout {
            Layout::from_size_align(bytes as usize, 4096).unwrap()
        }
    }

    impl Source for Host {
        fn create(&self, bytes: u64) -> u64 {
            // SAFETY: the layout is not empty.
            let base = unsafe { alloc::alloc_zeroed(Self::layout(bytes)) } as u64;
            self.0.lock().unwrap().push((base, bytes));
            base
        }
        fn delete(&self, base: u64) {
            let mut all = self.0.lock().unwrap();
            let index = all.iter().position(|(at, _)| *at == base).expect("an object of ours");
            let (base, bytes) = all.swap_remove(index);
            // SAFETY: `create` made it with this layout.
            unsafe { alloc::dealloc(base as *mut u8, Self::layout(bytes)) };
        }
    }

    impl Drop for Host {
        fn drop(&mut self) {
            while let Some(base) = self.0.get_mut().unwrap().last().map(|(base, _)| *base) {
                self.delete(base);
            }
        }
    }

    /// Blocks of random sizes, filled with a mark of their own, keep it until they are freed.
    #[test]
    fn blocks_do_not_meet() {
        let heap = Heap::new(Host::default());
        let mut seed = 7u64;
        let mut random = |bound: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % bound
        };
        let mut live: Vec<(*mut u8, Layout, u8)> = Vec::new();
        for step in 0..20_000u32 {
            if live.len() > 200 || (random(3) == 0 && !live.is_empty()) {
                let (block, layout, mark) = live.swap_remove(random(live.len() as u64) as usize);
                // SAFETY: the block is live and that long.
                unsafe {
                    assert!(
                        core::slice::from_raw_parts(block, layout.size())
                            .iter()
                            .all(|byte| *byte == mark)
                    );
                    heap.dealloc(block, layout);
                }
            } else {
                let size = 1 + random(if step % 50 == 0 { 100_000 } else { 600 }) as usize;
                let layout = Layout::from_size_align(size, 1 << random(7)).unwrap();
                // SAFETY: the layout is not empty; the block is that long.
                unsafe {
                    let block = heap.alloc(layout);
                    assert!(!block.is_null() && (block as usize).is_multiple_of(layout.align()));
                    block.write_bytes(step as u8, size);
                    live.push((block, layout, step as u8));
                }
            }
        }
        for (block, layout, _) in live {
            // SAFETY: the block is live.
            unsafe { heap.dealloc(block, layout) };
        }
        assert!(
            heap.source.0.lock().unwrap().iter().all(|(_, bytes)| *bytes == CHUNK),
            "large blocks went back"
        );
    }

    #[test]
    fn growing_keeps_the_content() {
        let heap = Heap::new(Host::default());
        // SAFETY: layouts are not empty and as they were; the block is as long as asked last.
        unsafe {
            let mut size = 3;
            let mut block = heap.alloc(Layout::from_size_align(size, 1).unwrap());
            block.copy_from_nonoverlapping(b"abc".as_ptr(), 3);
            while size < 200_000 {
                block = heap.realloc(block, Layout::from_size_align(size, 1).unwrap(), size * 3);
                size *= 3;
                assert_eq!(core::slice::from_raw_parts(block, 3), b"abc");
            }
            heap.dealloc(block, Layout::from_size_align(size, 1).unwrap());
        }
    }
}
