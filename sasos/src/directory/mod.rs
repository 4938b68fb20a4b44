//! Which objects there are: records, addresses, how objects come and go.

pub(crate) mod activity;
pub mod address;
pub(crate) mod aside;
pub mod creation;
pub mod lifecycle;
pub(crate) mod lists;
pub mod names;
pub mod object;
mod resize;
pub(crate) mod slot_map;
pub(crate) mod unknown;
