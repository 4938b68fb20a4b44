//! `gond`, the one host tool: builds the system, runs it, tests it, measures it, and works on its disks.
//!
//! It uses the same crates as the target (`store`, `linker`, `names`, `abi`), so that no format has a second
//! definition. In reading order:
//!
//! * [`arguments`], [`help`], [`display`]: what the user types, asks and sees.
//! * [`place`], [`build`]: where the sources are, and the one definition of how their target parts are built.
//! * [`disk`], [`volume`], [`tree`], [`image`]: a disk image as a `World` for the store, objects in it,
//!   names in those, and how a new disk is furnished.
//! * [`check`], [`list`], [`mend`], [`snapshot`], [`transfer`]: `gond check`, `ls`, `mend`, `snapshot`, `import` and `export`.
//! * [`send`], [`receive`], [`grow`]: states as streams from image to image, and larger images.
//! * [`machine`], [`script`], [`run`]: QEMU, shell lines over the control line, `gond run`.
//! * [`backtrace`], [`debugger`], [`gdb`]: what helps when the kernel fails.
//! * [`tour`]: the README's tour, played for real.
//! * [`crash`], [`test`], [`bench`]: `gond crash`, `gond test` and `gond bench`.
//!
//! Every error says what failed, on what, and where it helps what to do. Standard output carries results
//! only; progress and complaints go to standard error. The exit status is 0 for success, 1 for failure, 2 for
//! wrong usage.
#![forbid(unsafe_code)]

mod arguments;
mod help;

mod display;

mod place;

mod build;

mod disk;
mod volume;

mod tree;

mod image;

mod check;
mod grow;
mod list;
mod mend;
mod monitor;
mod receive;
mod send;
mod snapshot;
mod transfer;

mod machine;

mod backtrace;
mod debugger;
mod gdb;

mod script;

mod bare;

mod run;

mod tour;

mod crash;

mod test;

mod bench;

use arguments::Usage;
use std::process::ExitCode;

/// The status that a shell shows for a process that SIGPIPE ended.
const STATUS_BROKEN_PIPE: i32 = 141;
/// How the library's message about EPIPE ends.
const BROKEN_PIPE: &str = "(os error 32)";

fn main() -> ExitCode {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let Some(failure) = panic
            .payload_as_str()
            .and_then(|text| text.strip_prefix("failed printing to "))
        else {
            return usual(panic);
        };
        // The reader of our output has closed the pipe, as in './gond ls IMAGE | head -1'. That is no fault; a signal would give the same status.
        if failure.ends_with(BROKEN_PIPE) {
            std::process::exit(STATUS_BROKEN_PIPE);
        }
        if let Some(why) = failure.strip_prefix("stdout: ") {
            display::complain(&format!("cannot write the output: {why}; send it where there is room"));
        }
        std::process::exit(1);
    }));
    match dispatch() {
        Ok(code) => code,
        Err(error) if error.is::<Usage>() => {
            display::complain(&format!("{error:#}"));
            ExitCode::from(2)
        }
        Err(error) => {
            display::complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn dispatch() -> anyhow::Result<ExitCode> {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let rest: Vec<std::ffi::OsString> = std::env::args_os().skip(2).collect();
    if let Some(text) = help::asked(&command, &rest)? {
        print!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    match command.as_str() {
        "run" => run::command(rest),
        "debugger" => debugger::command(rest),
        "build" => build::command(rest),
        "test" => test::command(rest),
        "bench" => bench::command(rest),
        "crash" => crash::command(rest),
        "tour" => tour::command(rest),
        "format" => image::command(rest),
        "check" => check::command(rest),
        "mend" => mend::command(rest),
        "ls" => list::command(rest),
        "snapshot" => snapshot::command(rest),
        "send" => send::command(rest),
        "receive" => receive::command(rest),
        "grow" => grow::command(rest),
        "import" => transfer::import_command(rest),
        "export" => transfer::export_command(rest),
        "" => {
            eprint!("{}", help::overview());
            Ok(ExitCode::from(2))
        }
        other => Err(Usage(format!("there is no command '{other}'; './gond help' lists them")).into()),
    }
}
