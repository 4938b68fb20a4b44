//! The surroundings of a root program, and calls that concern nobody else.

use abi::{address::PAGE, nucleus::ROOT_MAGIC};
use nucleus::call;

use crate::{
    arch,
    case::{Case, Outcome, Setting, case, ensure, ensure_eq, ensure_error},
};

/// The cases.
pub const CASES: &[Case] = &[
    case("basics/root-page", root_page),
    case("basics/self", this_thread),
    case("basics/clock", clock),
    case("basics/unknown-calls", unknown_calls),
];

fn root_page(setting: &Setting) -> Outcome {
    let head = setting.root.head();
    ensure_eq!(head.magic, ROOT_MAGIC);
    ensure_eq!(head.image_bytes % PAGE, 0);
    ensure!(setting.root.command_line().contains(abi::host::BARE_WORD));
    let mut before = 0;
    for (start, end) in setting.root.memory() {
        ensure!(start < end && before <= start, "memory {start:#x} to {end:#x}");
        before = end;
    }
    ensure!(before > 0, "no memory is told");
    Ok(())
}

fn this_thread(_: &Setting) -> Outcome {
    let (thread, _) = call::thread_self()?;
    ensure!(thread != 0);
    ensure_eq!(call::thread_self()?.0, thread);
    Ok(())
}

fn clock(_: &Setting) -> Outcome {
    let first = call::clock_now()?;
    let second = call::clock_now()?;
    ensure!(first <= second, "time went back from {first} to {second}");
    Ok(())
}

fn unknown_calls(_: &Setting) -> Outcome {
    for number in [0, 1, 8, 0xff, 0x1ff, u64::MAX] {
        ensure_error!(arch::any(number, [0; 6]), BadCall);
    }
    Ok(())
}
