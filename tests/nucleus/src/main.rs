//! The suite of the bare µ-kernel: a root program with a table of cases.
//!
//! It prints a line for each case to the kernel's log, `ok NAME` or `FAILED NAME: why`, then
//! `N passed, N failed`, and stops the machine with success only if none failed. A case that faults
//! takes the machine with it: the runner sees that the last line is missing.
#![cfg_attr(not(test), no_std, no_main)]
#![deny(unsafe_code)]
#![allow(clippy::unnecessary_wraps, reason = "cases have one shape")]

extern crate alloc;

mod case;

#[allow(unsafe_code, reason = "the one module of the suite that does what no safe code can")]
mod arch;
mod world;

mod basics;
mod bench;
mod examples;
mod fuzz;
mod killer;
mod messages;
mod spaces;

use abi::{
    host::{EXIT_FAILURE, EXIT_SUCCESS},
    layout::PRIORITY_DEFAULT,
};
use case::Setting;
use nucleus::{Heap, RootPage, call, log};

/// All cases, in the order in which they run.
const GROUPS: &[&[case::Case]] = &[
    basics::CASES,
    messages::CASES,
    spaces::CASES,
    killer::CASES,
    fuzz::CASES,
];

#[cfg_attr(target_os = "none", global_allocator)]
static HEAP: Heap<{ 64 << 10 }> = Heap::new();

nucleus::entry!(main);

/// The value that follows `name=` on the command line.
fn option(root: RootPage, name: &str) -> Option<&'static str> {
    let mut words = root.command_line().split_whitespace();
    words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn main(root: RootPage) {
    let setting = Setting {
        root,
        calls: option(root, "calls").and_then(|calls| calls.parse().ok()),
        seed: option(root, "seed").and_then(|seed| seed.parse().ok()).unwrap_or(1),
    };
    messages::prepare(root);
    // The first thread begins with the highest priority; the cases are among equals.
    if call::thread_priority(0, PRIORITY_DEFAULT).is_err() {
        log!("FAILED priority: it cannot be lowered");
    }
    let only = option(root, "only").unwrap_or("");
    if setting
        .root
        .command_line()
        .split_whitespace()
        .any(|word| word == "bench")
    {
        let failed = bench::run(&setting, only);
        call::stop(if failed == 0 { EXIT_SUCCESS } else { EXIT_FAILURE })
    }
    let (mut passed, mut failed) = (0, 0);
    let all = GROUPS.iter().chain(examples::CASES).copied().flatten();
    for case in all.filter(|case| case.name.starts_with(only)) {
        match (case.run)(&setting) {
            Ok(()) => {
                passed += 1;
                log!("ok {}", case.name);
            }
            Err(why) => {
                failed += 1;
                log!("FAILED {}: {why} (seed {})", case.name, setting.seed);
            }
        }
    }
    log!("{passed} passed, {failed} failed, {} bytes of heap used", HEAP.used());
    call::stop(if failed == 0 { EXIT_SUCCESS } else { EXIT_FAILURE })
}
