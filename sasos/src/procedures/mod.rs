//! Protected calls: callee domains, their stacks, how calls end.

pub mod pdx;
pub mod unwind;
