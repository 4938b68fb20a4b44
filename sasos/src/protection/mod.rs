//! Access to objects: domains and what they have, APDs, Clists, capabilities, validation, withdrawal.

pub mod apd;
pub mod capability;
mod check;
pub mod clist;
pub mod domain;
pub mod node;
pub mod search;
pub mod validation;
pub mod withdraw;
