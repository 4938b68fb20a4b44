//! The in-system test suite: an ordinary program with a table of cases.
//!
//! ```text
//! suite [--only NAME] [--verbose] [--seed N] [--calls N]
//! ```
//!
//! runs its cases, or those whose name begins with NAME, and prints a line for each: `ok NAME` or
//! `FAILED NAME: why`, and with `--verbose` another where it begins, `begun NAME`; the last line tells how many passed and failed, and the status is 0 only if
//! none failed. Everything random follows from the seed, which every failure names.
//!
//! Each case runs in a task of its own (`suite --case NAME …`), so one that faults or hangs fails
//! alone. What has to fault, recurse or exhaust something on purpose does so in an assistant, a task
//! from the same image (`suite --assistant ROLE …`, module [`assistant`]). All unsafe code is in [`arch`].
#![cfg_attr(not(test), no_std, no_main)]
#![deny(unsafe_code)]
#![allow(clippy::unnecessary_wraps, reason = "cases have one shape")]

extern crate alloc;

mod case;

#[allow(unsafe_code, reason = "the one module of the suite that does what no safe code can")]
mod arch;
mod assistant;
mod options;
mod runner;

mod apd;
mod capabilities;
mod clists;
mod console;
mod faults;
mod fuzz;
mod killer;
mod modules;
mod native;
mod objects;
mod pages;
mod parallel;
mod pdx;
mod semaphores;
mod store;
mod system;
mod tasks;
mod threads;
mod vectors;

use options::Invocation;

/// All cases, in the order in which they run.
const GROUPS: &[&[case::Case]] = &[
    objects::CASES,
    capabilities::CASES,
    clists::CASES,
    apd::CASES,
    pages::CASES,
    threads::CASES,
    tasks::CASES,
    semaphores::CASES,
    faults::CASES,
    vectors::CASES,
    parallel::CASES,
    pdx::CASES,
    pdx::refusals::CASES,
    console::CASES,
    store::CASES,
    system::CASES,
    modules::CASES,
    native::CASES,
    killer::CASES,
    fuzz::CASES,
];

/// All parts that assistants play.
const ROLES: &[&[case::Role]] = &[
    assistant::ROLES,
    faults::ROLES,
    objects::ROLES,
    pdx::refusals::ROLES,
    threads::ROLES,
    tasks::ROLES,
    system::ROLES,
    modules::ROLES,
    killer::ROLES,
    fuzz::ROLES,
];

rt::entry!(main);

fn main() -> Ended {
    let status = match Invocation::parse(rt::arguments::rest()) {
        Ok(Invocation::Suite { only, verbose, setting }) => runner::run_all(GROUPS, only, verbose, setting),
        Ok(Invocation::Case { name, setting }) => runner::run_case(GROUPS, name, &setting),
        Ok(Invocation::Assistant { role, numbers }) => runner::play(ROLES, role, &numbers),
        Err(why) => {
            rt::println!("suite: {why}; use: suite [--only NAME] [--verbose] [--seed N] [--calls N]");
            2
        }
    };
    Ended(status)
}

/// The status that the program ends with.
struct Ended(u64);

impl rt::call::entry::Termination for Ended {
    fn status(self) -> u64 {
        self.0
    }
}
