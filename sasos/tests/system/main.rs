//! The system as a whole, on the host: scripted users against server, kernel logic and store.
//!
//! * `harness`: plays the machine and the users; `check`: what must hold after anything.
//! * `boot`, `tasks`, `waiting`, `calls`, `exceptions`, `console`: scripts.
//! * `fuzz`: any call with any argument; `crash`: the power goes, and comes back.
#![allow(missing_docs, reason = "tests explain themselves")]

mod check;
mod harness;

mod boot;
mod tasks;
mod waiting;
mod calls;
mod exceptions;
mod console;
mod fuzz;
mod crash;
