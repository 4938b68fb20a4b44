//! Free spaces against the abstract model of Appendix A: one case for each rule, long operations,
//! random sequences, and all short sequences.

#[path = "../fake/mod.rs"]
mod fake;

mod bench;
mod burnt;
mod claims;
mod directed;
mod errors;
mod exhaustive;
mod interleaved;
mod long;
mod model;
mod nodes;
mod open;
mod random;
mod remembered;
mod sparse;
mod starved;
mod stretches;
mod world;

thread_local! {
    /// Whether memory for nodes and port bitmaps is refused.
    static REFUSES: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

struct Refusing;

// SAFETY: the system's, which may refuse.
unsafe impl std::alloc::GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        if (layout.size() == 4096 || layout.size() == 8192) && REFUSES.try_with(|flag| flag.get()).unwrap_or(false) {
            return core::ptr::null_mut();
        }
        unsafe { std::alloc::System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: std::alloc::Layout) {
        unsafe { std::alloc::System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static HEAP: Refusing = Refusing;
