//! Modules: libraries linked once, at one address, for everybody (Deller & Heiser, *Linking Programs in a
//! Single Address Space*, USENIX 1999).
//!
//! A **module** is text and read-only data at an address that is its name for ever. An **instance** of it is
//! a *data segment*: thunks, descriptors of the imported modules, private variables. While code of the
//! instance runs, one register, `rbx`, holds the address of the segment's data ([`code`] says how compiled
//! code is brought to use it). A **descriptor** has a word for each export of the imported module; a call
//! across modules is an indirect call through such a word, so there is no table but the descriptor.
//!
//! A function pointer is one word, the same for a descriptor, a variable or an argument. For a function that
//! needs its instance's data it is the address of a *thunk* in the instance's segment, which loads the
//! register, calls, and restores it. For a function that needs no data it is the function's own address.
//! Which function is which is not declared but found out ([`code`], [`graph`]).
//!
//! The way: [`description`] says what goes in; [`input`] reads ELF; [`graph`] decides what must be private;
//! [`link`] lays out, relocates and writes the object; [`frames`] says in it how functions are left, [`entries`] writes that
//! down and [`unwind`] reads it; [`debug`] keeps what debuggers want to know. [`format`] reads and checks the object;
//! [`instance`] makes the bytes of a data segment, on the host and on the target alike. [`window`] hands out addresses.

pub mod description;
pub mod fault;
pub mod format;
pub mod instance;
pub mod unwind;
pub mod window;

#[cfg(feature = "build")]
pub mod code;
#[cfg(feature = "build")]
pub mod debug;
#[cfg(feature = "build")]
pub mod entries;
#[cfg(feature = "build")]
pub mod frames;
#[cfg(feature = "build")]
pub mod graph;
#[cfg(feature = "build")]
pub mod input;
#[cfg(feature = "build")]
pub mod link;
#[cfg(feature = "build")]
pub mod relocate;
#[cfg(feature = "build")]
pub mod stack;
#[cfg(feature = "build")]
pub mod symbols;
#[cfg(feature = "build")]
pub mod thunk;

pub use description::Description;
pub use fault::{Cause, Fault};
pub use format::Module;
