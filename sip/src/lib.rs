//! Software-isolated processes (Singularity, MSPC 2006), with WebAssembly where MSIL stood.
//!
//! A module is *validated* (`wasmparser`), *translated* to Cranelift's intermediate form by the
//! translator in [`translate`], improved by what is known of its numbers (`refine`), *compiled* to x86-64 by Cranelift, and the machine code is then
//! *verified again* by [`verify`], an abstract interpreter that knows only the layout of the
//! instance context ([`layout`]) and nothing of the compiler. Code that passes may run without a
//! page table of its own, so neither translator nor Cranelift need be trusted.
//!
//! Three rules make the machine code provable. (1) Compiled functions pass nothing on the stack:
//! what does not fit in registers travels through a scratch area of the runtime block ([`abi`]).
//! (2) References are handles, never pointers; only the runtime writes tables. (3) Bases of
//! memories and tables never move, their lengths never shrink.
//!
//! Processes share nothing but blocks of the exchange heap ([`exchange`]), which have exactly one
//! owner, and meet over channels whose [`contract`] is checked at load and stepped at each send.
#![cfg_attr(not(any(test, feature = "host")), no_std)]
#![deny(unsafe_code)]
// Offsets and immediates are seen signed and unsigned, as the machine does; boxes inside vectors are
// there because compiled code holds the addresses of what they hold; a loaded program stays on the
// thread of its store.
#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::vec_box,
    clippy::arc_with_non_send_sync
)]
extern crate alloc;

pub mod abi;
pub mod compile;
pub mod contract;
pub mod exchange;
pub mod exec;
pub mod layout;
pub mod limits;
pub mod module;
mod refine;
pub mod stored;
pub mod translate;
pub mod verify;
pub mod wasi;
