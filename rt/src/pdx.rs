//! Protected procedures: calling into another protection domain.
//!
//! An entry point is made of a plain function with [`pdx_entry!`](crate::pdx_entry), registered for
//! the image it stands in with [`register`], and called with [`call()`]. During the call the thread
//! runs on a stack of the callee's domain, which is what the registered Clist grants and, for
//! [`Domain::Merge`], what the caller's own grants as well. Four words go in, two come out.
//!
//! The function must expect anything: its parameters come from another domain.

use abi::{
    error::Result,
    layout::{PD_EMPTY, PD_MERGE},
};

use crate::{Clist, Object, call};

pub use call::PdxEntry as Entry;

/// The rights of the callee's domain beside the registered Clist.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Domain {
    /// Those of the caller's domain.
    Merge = PD_MERGE,
    /// Nothing.
    Empty = PD_EMPTY,
}

/// Registers entry points of an object that the domain owns; gives the password of the capability
/// by which they may be called.
///
/// # Errors
/// As `ObjCrePdx`.
pub fn register(object_base: u64, clist: &Clist, entries: &[Entry]) -> Result<u64> {
    call::register_entries(object_base, clist.object().base(), entries)
}

/// Calls an entry point: one of the program's, or the address of one that somebody told. The kernel enters only
/// where the owner of the object registered it. A callee in [`Domain::Merge`] has all of the caller's memory, and is trusted
/// as a library is (the fifth condition of [`crate::object`]).
///
/// # Errors
/// As `PdxCall`; `CalleeFault` if the callee ended badly.
#[inline]
pub fn call(entry: impl Into<u64>, domain: Domain, words: [u64; 4]) -> Result<(u64, u64)> {
    let [w0, w1, w2, w3] = words;
    call::pdx_call(entry.into(), w0, domain as u64, w1, w2, w3)
}

/// The program's own image: base and length. None on the host.
pub fn own_image() -> Option<(u64, u64)> {
    crate::object::own_start().map(|start| (start.image, start.image_bytes))
}

/// A Clist that grants the program's own image, and the memory of `objects`, to whoever it is
/// registered with: what a protected procedure of this program needs to run.
///
/// # Errors
/// As `ObjCreate` and `ObjPasswd`.
pub fn clist_for(objects: &[&Object]) -> crate::Result<Clist> {
    let mut clist = Clist::create()?;
    let image = own_image().ok_or(crate::Error::NotAProgram)?.0;
    grant(&mut clist, image, crate::Rights::RWX)?;
    for object in objects {
        grant(&mut clist, object.base(), crate::Rights::RW)?;
    }
    Ok(clist)
}

/// Registers a new password of the object with those rights, and enters it in the Clist.
///
/// # Errors
/// As `ObjPasswd` and [`Clist::insert`].
pub fn grant(clist: &mut Clist, address: u64, rights: crate::Rights) -> crate::Result<()> {
    let password = call::obj_passwd(address, 0, rights.bits().into())?;
    clist.insert(abi::layout::Capability { address, password })
}
