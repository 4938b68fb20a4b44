//! The console: streams, buffers, the foreground. Reading would take lines from the user, so only
//! what must be refused is read.

use abi::{
    Call, Error,
    address::PAGE,
    layout::{STREAM_CONTROL, STREAM_TERMINAL},
};
use rt::{Object, call};

use crate::{
    arch,
    assistant::{PATIENCE_NS, PRIORITY_LOW, Puppet, start},
    case::{Case, Outcome, Setting, case, ensure, ensure_eq, ensure_error},
};

/// The cases.
pub const CASES: &[Case] = &[
    case("console/streams", streams),
    case("console/buffers", buffers),
    case("console/foreground", foreground),
];

fn streams(_: &Setting) -> Outcome {
    let mut buffer = [0; 4];
    for stream in [STREAM_CONTROL + 1, 255, 1 << 32, u64::MAX] {
        ensure_error!(call::console_write(stream, b"x"), BadArgument);
        ensure_error!(call::console_read(stream, &mut buffer), BadArgument);
    }
    ensure_eq!(call::console_write(STREAM_TERMINAL, b"")?, 0);
    // The tool at the other end of the control line believes what comes over it.
    ensure_error!(call::console_write(STREAM_CONTROL, b"status 0\nready\n"), Protection);
    ensure_error!(call::console_read(STREAM_CONTROL, &mut buffer), Protection);
    Ok(())
}

fn buffers(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    let end = object.base() + PAGE;
    for stream in [STREAM_TERMINAL, STREAM_CONTROL] {
        for (address, bytes) in [
            (0, 1),
            (8, 100),
            (1 << 47, 1),
            (u64::MAX, 1),
            (u64::MAX - 3, 8),
            (end, 1),
            (abi::address::USER_END, 1),
        ] {
            for call in [Call::ConsoleWrite, Call::ConsoleRead] {
                let refused = arch::system_call(call as u64, [stream, address, bytes, 0, 0, 0]).result();
                ensure!(
                    matches!(refused, Err(Error::Protection | Error::BadAddress | Error::BadArgument)),
                    "{call:?} of {bytes} bytes at {address:#x}: {refused:?}"
                );
            }
        }
    }
    Ok(())
}

fn foreground(_: &Setting) -> Outcome {
    ensure_error!(call::console_foreground(1), NoSuchThread);
    ensure_error!(call::console_foreground(u64::MAX), NoSuchThread);
    let task = start(
        "spin",
        &[],
        &rt::task::Options {
            priority: PRIORITY_LOW,
            ..rt::task::Options::default()
        },
    )?;
    call::console_foreground(task.thread())?;
    call::console_foreground(0)?;
    // Its child does not hold the terminal.
    let puppet = Puppet::start(&[])?;
    ensure_error!(puppet.call(Call::ConsoleForeground, &[0])?, Protection);
    puppet.end()?;
    call::console_foreground(task.thread())?;
    task.end(1)?;
    // A foreground task that ended is forgotten.
    task.wait_for(PATIENCE_NS)?;
    ensure_error!(call::console_foreground(task.thread()), NoSuchThread);
    Ok(())
}
