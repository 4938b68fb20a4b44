//! Waiting: the keys on which threads are parked, and the queues of parked threads (decision 0110).

mod key;
mod queues;

pub use key::Key;
pub(crate) use queues::{Place, WaitQueues};

/// A key's threads that one event wakes at once, if all of them are to be woken. Of more, the timer's interrupts wake some each.
pub const AT_ONCE: u32 = 8;
