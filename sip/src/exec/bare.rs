//! The platform layer inside the system: the embedder of the engine gives four functions, once.

use super::Runtime;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The use that a range of addresses allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Reading and writing.
    ReadWrite,
    /// Reading and running.
    ReadExecute,
}

/// The functions that the embedder provides.
pub struct Platform {
    /// Reserves so many bytes, whole pages that nothing may touch; null if there are none.
    pub reserve: fn(usize) -> *mut u8,
    /// Changes what a part of a reservation may be used for.
    pub protect: fn(*mut u8, usize, Protection) -> bool,
    /// Gives a whole reservation back.
    pub release: fn(*mut u8, usize),
    /// Keeps a word for the running thread and returns the one before. A fault handler passes it to
    /// [`fault`].
    pub set_current: fn(u64) -> u64,
}

static PLATFORM: AtomicPtr<Platform> = AtomicPtr::new(ptr::null_mut());

/// Names the platform; before that, every reservation fails.
pub fn set_platform(platform: &'static Platform) {
    PLATFORM.store(ptr::from_ref(platform).cast_mut(), Ordering::Release);
}

fn platform() -> Option<&'static Platform> {
    // SAFETY: only `set_platform` stores, a shared reference that lives for ever.
    unsafe { PLATFORM.load(Ordering::Acquire).as_ref() }
}

/// The embedder's handler asks this after a fault at instruction `at` that touched `address`: where
/// to go on, and with which stack pointer, if the fault is compiled code's.
///
/// # Safety
/// `current` is the word that `set_current` keeps for the thread that faulted.
pub unsafe fn fault(current: u64, at: u64, address: u64) -> Option<(u64, u64)> {
    if current == 0 {
        None
    } else {
        // SAFETY: the caller's condition.
        unsafe { super::on_fault(current as *mut Runtime, at, address) }
    }
}

pub(super) fn set_current(runtime: *mut Runtime) -> *mut Runtime {
    platform().map_or(ptr::null_mut(), |platform| {
        (platform.set_current)(runtime as u64) as *mut Runtime
    })
}

/// As [`set_current`], from one process to another.
pub(super) fn switch_current(runtime: *mut Runtime) {
    set_current(runtime);
}

pub(super) fn reserve(bytes: usize) -> *mut u8 {
    platform().map_or(ptr::null_mut(), |platform| (platform.reserve)(bytes))
}

/// # Safety
/// The range is whole pages of a reservation, and no reference is live to what loses a right.
pub(super) unsafe fn protect(at: *mut u8, bytes: usize, protection: Protection) -> bool {
    bytes == 0 || platform().is_some_and(|platform| (platform.protect)(at, bytes, protection))
}

/// # Safety
/// The range is a whole reservation that nothing refers to any more.
pub(super) unsafe fn release(at: *mut u8, bytes: usize) {
    if let Some(platform) = platform() {
        (platform.release)(at, bytes);
    }
}

/// Makes a usable part of a reservation read as zero.
///
/// # Safety
/// The range may be written, and no reference is live to any of it.
pub(super) unsafe fn discard(at: *mut u8, bytes: usize) -> bool {
    // SAFETY: the caller's condition.
    unsafe { ptr::write_bytes(at, 0, bytes) };
    true
}
