//! Protected calls: callee domains, their stacks, how calls end.

pub mod guests;
pub mod pdx;
mod stale;
pub mod unwind;
