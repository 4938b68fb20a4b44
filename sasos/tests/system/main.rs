//! The system as a whole, on the host: scripted users against server, kernel logic and store.
//!
//! * `harness`: plays the machine and the users; `install`: the disk; `check`: what must hold after anything.
//! * `boot`, `tasks`, `waiting`, `tokens`, `calls`, `locks`, `sight`, `frames`, `exceptions`, `console`: scripts.
//! * `fuzz`: any call with any argument; `crash`: the power goes, and comes back; `storm`: short memory and a disk that fails; `named`: names and power cuts.
#![allow(missing_docs, reason = "tests explain themselves")]

mod check;
mod harness;
mod install;

mod boot;
mod calls;
mod console;
mod crash;
mod ends;
mod exceptions;
mod families;
mod frames;
mod fuzz;
mod locks;
mod log;
mod named;
mod sight;
mod snapshots;
mod storm;
mod tasks;
mod tokens;
mod waiting;
