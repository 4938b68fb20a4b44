//! Acts of the suite that safe code cannot do, each processor architecture by itself. All unsafe
//! code of the suite stands here. Name by name:
//!
//! * `system_call(number, arguments) -> Answer`: any call, whatever it does to the caller.
//! * `call_by(stub, number) -> u64`: a call without arguments through a stub of the kernel page.
//! * `obj_cre_pdx(object, password, clist, entries)`: any addresses as entries.
//! * `call_at(address, words)`, `call_export(modules, instance, name, words)`: functions of modules.
//! * `guard()`: from now on the three probes survive a protection fault.
//! * `peek`, `poke`, `fetch`: one load, store or call at any address; tell whether it was allowed.
//! * `load`, `store`, `jump`: the same without a safety net.
//! * `CRIMES`: what a program must not do, with how it has to end; `commit(crime)` does it.
//! * `ODDITIES`: what is strange but allowed; `Oddity::run` tells whether all went well.
//! * `caller_entry`, `callee_entry`: a thread and a protected procedure whose stacks have the two topmost words free.
//! * `handlers`: exception handlers of every kind, and accesses that they put right.
//! * `registers`: what a protected call, a system call and a fault leave in registers.
//! * `vectors`: states of the vector unit, held and compared.
//! * `END_CODE`: position-independent code that ends the thread with [`END_STATUS`];
//!   `RETURN_CODE`: the same for a protected procedure that returns at once.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::{
    END_CODE, RETURN_CODE, call_by,
    crimes::{CRIMES, Crime, Named, commit},
    entered::{callee_entry, caller_entry},
    guarded::{fetch, guard, jump, load, peek, poke, store},
    handlers,
    oddities::ODDITIES,
    registers, system_call, vectors,
};

use rt::module::{Instance, Modules};

/// Registers any addresses of an object as entries.
///
/// # Errors
/// As `ObjCrePdx`.
pub fn obj_cre_pdx(object: u64, password: u64, clist: u64, entries: &[u64]) -> abi::error::Result<u64> {
    // SAFETY: entries of the suite's own image are procedures made by `pdx_entry!`; what else is entered is code in objects.
    unsafe { rt::call::obj_cre_pdx(object, password, clist, entries) }
}

/// Calls a function of a module.
pub fn call_at(address: u64, words: [u64; 4]) -> u64 {
    // SAFETY: the suite's modules are its own: their functions take the words that the cases give.
    unsafe { rt::module::call_at(address, words) }
}

/// Calls an export.
///
/// # Errors
/// No such export.
pub fn call_export(
    modules: &'static Modules,
    instance: Instance,
    name: &str,
    words: [u64; 4],
) -> rt::module::Result<u64> {
    // SAFETY: as in `call_at`.
    unsafe { modules.call(instance, name, words) }
}

/// Status of a thread that ran `END_CODE`.
pub const END_STATUS: u64 = 42;

/// Writes bytes to an address, word by word; what follows within the last word becomes zero.
pub fn write_bytes(address: u64, bytes: &[u8]) {
    for (index, chunk) in bytes.chunks(8).enumerate() {
        let mut word = [0; 8];
        for (place, byte) in word.iter_mut().zip(chunk) {
            *place = *byte;
        }
        store(address + 8 * index as u64, u64::from_le_bytes(word));
    }
}
