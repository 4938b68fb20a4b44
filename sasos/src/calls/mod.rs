//! The door to the whole: one function a call, reports, the start, the check of everything.

pub mod boot;
pub mod check;
pub mod dispatch;
pub mod info;
pub mod sight;
