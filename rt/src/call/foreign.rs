//! Code of modules: calling it, and being called by it.
//!
//! A module is code that the program has chosen to run with all of its rights, as a library that was linked into it
//! would; what keeps a program from code that it does not trust is a domain. The convention is that of C on this
//! architecture; a program of this runtime passes and takes words only, because it computes fractions in software.

use linker::module::format::DATA_TABLE_AT;

use crate::module::Modules;

/// Calls a function of up to four words.
pub(crate) fn call(address: u64, [a, b, c, d]: [u64; 4]) -> u64 {
    // SAFETY: the address is that of an export of an instance, or of a function that a module wants called when an
    // instance is made: both were read from a module object that was checked when it was installed. What the code
    // does is the program's choice (module theory).
    let function: extern "C" fn(u64, u64, u64, u64) -> u64 = unsafe { core::mem::transmute(address as usize) };
    function(a, b, c, d)
}

/// The address of the routine that lazy stubs call.
pub(crate) fn binder() -> u64 {
    bind as *const () as u64
}

/// Binds the import whose word stands at `slot` of the data, or ends the thread with a message. A thread without state
/// ends, too: it could not be told what memory to take, and must not find that out with the table's lock in its hand.
extern "C" fn bind(data: u64, slot: u32) {
    #[cfg(all(target_os = "none", feature = "module"))]
    crate::object::state::state();
    // SAFETY: only lazy stubs call this, with the data of an instance. Its header holds the address of the table that
    // made it, which was leaked and so stays where it is.
    let modules: &'static Modules = unsafe {
        let place = data.wrapping_add(u64::from(DATA_TABLE_AT)) as *const u64;
        &*(place.read() as *const Modules)
    };
    if let Err(error) = modules.bind_slot(data, slot) {
        crate::println!("{}: {error}", crate::arguments::program());
        if super::thread_info(0).is_ok_and(|report| report.depth > 0) {
            // The thread is the caller's: the protected call ends, not it.
            crt0::fault();
        }
        super::entry::exit(STATUS_UNBOUND);
    }
}

/// Status of a thread that called what could not be bound.
pub const STATUS_UNBOUND: u64 = 126;
