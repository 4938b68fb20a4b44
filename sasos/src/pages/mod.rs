//! Memory: slots, residency and dirt, pages made, read, copied, dropped.

pub(crate) mod ahead;
pub mod backing;
pub(crate) mod cache;
pub mod clone;
pub mod copy;
pub mod dismantle;
pub(crate) mod idle;
pub mod memory;
pub mod page;
pub mod pager;
pub mod queues;
pub mod reading;
pub mod release;
pub mod slots;
pub mod unmap;
