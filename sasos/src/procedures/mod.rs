//! Protected calls: callee domains, their stacks, how calls end.

pub mod guests;
pub mod pdx;
pub mod unwind;
