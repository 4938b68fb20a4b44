//! System software on the bare µ-kernel, each piece small enough to be printed in
//! `docs/guide/nucleus.md`: two memory managers beside each other, a pager on top of a pager, one that
//! pins, and drivers that live on interrupts.

pub mod card;
pub mod manager;
pub mod pinned;
pub mod serial;
pub mod stacked;

/// The cases.
pub const CASES: &[&[crate::case::Case]] = &[
    manager::CASES,
    stacked::CASES,
    pinned::CASES,
    serial::CASES,
    card::CASES,
];
