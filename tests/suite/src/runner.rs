//! Runs cases, each in a task of its own, and counts.

use alloc::format;

use rt::{abi::layout::EXCEPTION_INTERRUPT, println, task::Options};

use crate::{
    assistant::{PATIENCE_NS, program, wait_until},
    case::{Case, Failure, Outcome, Role, Setting},
    system::figures,
};

/// Status of a case that failed and has said why.
const STATUS_FAILED: u64 = 3;
/// Status of a program that Ctrl-C has ended: the shell then ends the tasks that were left behind.
const STATUS_INTERRUPTED: u64 = 130;
/// Status of a program that does not know what it was asked for.
const STATUS_UNKNOWN: u64 = 2;

/// Runs all cases whose name begins so, and tells the beginning of each if `verbose`; gives the status of the program.
pub fn run_all(groups: &[&[Case]], only: Option<&str>, verbose: bool, setting: Setting) -> u64 {
    println!("suite: seed {:#x}", setting.seed);
    let (mut passed, mut failed) = (0_u64, 0_u64);
    let mut before = None;
    for case in groups
        .iter()
        .copied()
        .flatten()
        .filter(|case| only.is_none_or(|only| case.name.starts_with(only)))
    {
        match run_apart(case, verbose, &setting) {
            Ok(Verdict::Passed) => {
                println!("ok {}", case.name);
                passed += 1;
            }
            Ok(Verdict::Failed) => failed += 1,
            Ok(Verdict::Interrupted) => {
                println!("interrupted in {} after {passed} passed, {failed} failed", case.name);
                return STATUS_INTERRUPTED;
            }
            Err(why) => {
                println!("FAILED {}: {why} (seed {:#x})", case.name, setting.seed);
                failed += 1;
            }
        }
        // The first case has made resident what all of them need.
        before = before.or_else(|| figures().ok());
    }
    if only.is_none()
        && let Some(before) = before
    {
        match balance(before) {
            Ok(()) => {
                println!("ok {BALANCE}");
                passed += 1;
            }
            Err(why) => {
                println!("FAILED {BALANCE}: {why} (seed {:#x})", setting.seed);
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if passed == 0 && failed == 0 {
        println!("suite: there is no such case");
        return STATUS_UNKNOWN;
    }
    u64::from(failed != 0)
}

/// The name of the check that all cases together leave the system as it was.
const BALANCE: &str = "suite/nothing-is-left";
/// Frames that may have been taken for good: pages read from the disk, tables that grew.
const FRAMES_SLACK: u64 = 256;
/// Objects that may have come for good: those of the disk that were used, the files of modules above all, stay active.
const OBJECTS_SLACK: u64 = 16;

/// Waits until everything is as before.
fn balance(before: [u64; 4]) -> Outcome {
    let [threads, domains, objects, used] = before;
    let settled = || {
        figures().is_ok_and(|after| {
            after[0] <= threads
                && after[1] <= domains
                && after[2] <= objects + OBJECTS_SLACK
                && after[3] <= used + FRAMES_SLACK
        })
    };
    wait_until("", settled).or_else(|_| {
        let (after, memory) = (figures()?, rt::system::memory()?);
        Err(Failure::new(format_args!(
            "threads, domains, objects and used frames were {before:?} and are {after:?}: {memory:?}"
        )))
    })
}

/// How a case ended that needs no more words.
enum Verdict {
    Passed,
    /// It has said why.
    Failed,
    /// The user typed Ctrl-C.
    Interrupted,
}

/// Runs a case in a task of its own.
fn run_apart(case: &Case, verbose: bool, setting: &Setting) -> Outcome<Verdict> {
    let (seed, calls) = (format!("{:#x}", setting.seed), format!("{}", setting.calls));
    let arguments = ["--case", case.name, "--seed", &seed, "--calls", &calls];
    let options = Options {
        foreground: true,
        ..Options::default()
    };
    let task = program()?.start("suite", &arguments, &options)?;
    if verbose {
        println!("begun {}", case.name);
    }
    let shown = match task.wait_for(case.limit_ms * 1_000_000) {
        Err(abi::Error::TimedOut) => {
            task.end(1)?;
            task.wait_for(PATIENCE_NS)?;
            return Err(Failure::new(format_args!("it did not end within {} ms", case.limit_ms)));
        }
        ended => ended?,
    };
    if shown.report.exception == EXCEPTION_INTERRUPT {
        return Ok(Verdict::Interrupted);
    }
    match shown.report.status {
        0 => Ok(Verdict::Passed),
        STATUS_FAILED => Ok(Verdict::Failed),
        _ => Err(Failure::new(format_args!("{shown}"))),
    }
}

/// Runs a case in this task; gives the status of the program.
pub fn run_case(groups: &[&[Case]], name: &str, setting: &Setting) -> u64 {
    let Some(case) = groups.iter().copied().flatten().find(|case| case.name == name) else {
        return STATUS_UNKNOWN;
    };
    match (case.run)(setting) {
        Ok(()) => 0,
        Err(why) => {
            println!("FAILED {name}: {why} (seed {:#x})", setting.seed);
            STATUS_FAILED
        }
    }
}

/// Plays a part; gives the status of the program.
pub fn play(roles: &[&[Role]], name: &str, numbers: &[u64; 6]) -> u64 {
    let Some(role) = roles.iter().copied().flatten().find(|role| role.name == name) else {
        return STATUS_UNKNOWN;
    };
    (role.play)(numbers)
}
