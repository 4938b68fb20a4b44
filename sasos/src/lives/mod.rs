//! Tasks and threads: how they begin, what is done to them, exceptions, how they end.

pub(crate) mod budget;
pub(crate) mod chunks;
pub mod continuation;
pub mod control;
pub mod doom;
pub mod ending;
pub mod exception;
mod farewell;
pub mod log;
pub mod task;
pub mod thread;
pub mod work;
