//! Code of modules: calling it, and being called by it.
//!
//! A module is code that the program has chosen to run with all of its rights, as a library that was linked into it
//! would; what keeps a program from code that it does not trust is a domain. The convention is that of C on this
//! architecture; a program of this runtime passes and takes words only, because it computes fractions in software.

use alloc::{string::ToString, vec::Vec};

use abi::address::stack_end;
use linker::module::{format::DATA_TABLE_AT, instance::Runtime};

use crate::module::{Error, Instance, Modules, Result};

/// Calls a function of up to four words.
///
/// ```compile_fail
/// fn jump(address: u64) -> u64 {
///     rt::module::call_at(address, [0; 4])
/// }
/// ```
///
/// # Safety
/// 1. The address is that of a function, as [`Modules::symbol`] gave it, of an instance that was not released since.
/// 2. The function takes these words: what it does with them keeps Rust's rules for the caller's memory.
pub unsafe fn call_at(address: u64, [a, b, c, d]: [u64; 4]) -> u64 {
    // SAFETY: (1): the code is there. What it does is the caller's promise (2) and the program's choice (module theory).
    let function: extern "C" fn(u64, u64, u64, u64) -> u64 = unsafe { core::mem::transmute(address as usize) };
    function(a, b, c, d)
}

impl Modules {
    /// Calls an exported function of up to four words. Cost: that of finding the name; [`Modules::symbol`] and
    /// [`call_at`] do without.
    ///
    /// # Safety
    /// 1. The name is that of a function, and it takes these words: what it does with them keeps Rust's rules for the
    ///    caller's memory.
    ///
    /// # Errors
    /// No such export.
    pub unsafe fn call(&'static self, instance: Instance, name: &str, arguments: [u64; 4]) -> Result<u64> {
        let address = self.symbol(instance, name).ok_or_else(|| Error::NoExport {
            module: self.name(instance),
            symbol: name.to_string(),
        })?;
        // SAFETY: (1) it was found just now; (2) promised by the caller.
        Ok(unsafe { call_at(address, arguments) })
    }
}

/// Calls the functions that instances of a table want called at their beginning or their end: the table read them from the data of
/// instances that it has.
pub(crate) fn call_all(functions: Vec<u64>) {
    for function in functions {
        // SAFETY: (1) so the linker wrote them, in a module that was checked when it was installed; (2) they take nothing.
        unsafe { call_at(function, [0; 4]) };
    }
}

/// The functions and words of this program that instances of the table at an address need.
pub(crate) fn runtime(table: u64) -> Runtime {
    Runtime {
        table,
        binder: bind as *const () as u64,
        reach: reach as *const () as u64,
        end: end as *const () as u64,
    }
}

/// Calls what the instances of a table want called at their end, each once: for the C library's `exit`.
extern "C" fn end(table: u64) {
    // SAFETY: so the header of an instance's data says: the table that made it, which was leaked and so stays where it is.
    let modules: &'static Modules = unsafe { &*(table as *const Modules) };
    modules.end();
}

/// How many of so many words from an address in a caller's frame on can be read: as far as the stack goes. A stack that a program
/// made itself goes as far as its object.
extern "C" fn reach(from: u64, words: u32) -> u32 {
    let end = stack_end(from).or_else(|| {
        // The way back stands below, in any case.
        let info = super::obj_info_used(from.wrapping_sub(8)).ok()?;
        info.base.checked_add(info.bytes)
    });
    let there = end.map_or(0, |end| end.saturating_sub(from) / 16 * 2);
    u64::from(words).min(there) as u32
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
