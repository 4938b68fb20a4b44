//! What the engine wants of the system: ranges of addresses out of transient objects.
//!
//! A reservation is an object that is made as large as it may become and shrunk at once to one page: what
//! lies beyond it in its slot is its own and not mapped, so that an access there faults. Making a part
//! usable grows the object. So a reservation fits in one slot here; a larger one is refused.

use abi::address::PAGE;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use rt::{Rights, call};
use sip::exec::{PageProtection, Platform, set_platform};

/// The word that the engine keeps for the one thread that runs compiled code.
static CURRENT: AtomicU64 = AtomicU64::new(0);

static PLATFORM: Platform = Platform {
    reserve,
    protect,
    release,
    set_current,
};

/// Names the platform to the engine and leads faults to it.
///
/// # Errors
/// As `ExcptReg`.
pub fn set_up() -> rt::Result<()> {
    set_platform(&PLATFORM);
    crate::arch::register()
}

/// The engine's word.
pub fn current() -> u64 {
    CURRENT.load(Relaxed)
}

fn set_current(word: u64) -> u64 {
    CURRENT.swap(word, Relaxed)
}

fn reserve(bytes: usize) -> *mut u8 {
    let Ok((base, _)) = call::obj_create(bytes as u64, 0) else {
        return core::ptr::null_mut();
    };
    let slot = |address: u64| address / abi::address::SLOT;
    if slot(base) != slot(base + bytes as u64 - 1) || call::obj_resize(base, PAGE).is_err() {
        let _ = call::obj_delete(base);
        return core::ptr::null_mut();
    }
    base as *mut u8
}

fn protect(at: *mut u8, bytes: usize, protection: PageProtection) -> bool {
    let at = at as u64;
    let Ok(info) = find(at) else {
        return false;
    };
    let (base, end) = (info.base, at + bytes as u64);
    if end > base + info.bytes && call::obj_resize(base, end - base).is_err() {
        return false;
    }
    match protection {
        PageProtection::ReadWrite => true,
        PageProtection::ReadExecute => call::page_limit(at, bytes as u64 / PAGE, Rights::RX.bits().into()).is_ok(),
    }
}

/// The object that holds an address, or else ends before it in the same slot.
fn find(at: u64) -> rt::Result<abi::layout::ObjectInfo> {
    let first = at / abi::address::SLOT * abi::address::SLOT;
    let mut page = at & !(PAGE - 1);
    loop {
        match call::obj_info(page) {
            Ok(info) => return Ok(info),
            Err(error) if page == first => return Err(error),
            Err(_) => page -= PAGE,
        }
    }
}

fn release(at: *mut u8, _bytes: usize) {
    let _ = call::obj_delete(at as u64);
}
