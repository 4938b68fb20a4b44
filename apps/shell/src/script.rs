//! Lines from the host tool, over the control line (protocol in `abi::host`): `ready` asks for the
//! next one, `line TEXT` or `end` comes back, `status N` tells how it went.

use alloc::{string::String, vec::Vec};

use abi::host::{END, LINE, LINE_BYTES, READY, STATUS};
use rt::{
    console::{Stream, read, write},
    println,
    system::{self, Outcome},
};

use crate::commands::Shell;

/// A request of the host.
#[derive(PartialEq, Eq, Debug)]
enum Request {
    /// Do this line.
    Line(String),
    /// There are no more.
    End,
    /// The request is not understood.
    Unknown,
}

/// Does lines until the host has no more, then powers off; the outcome tells whether any failed.
pub fn serve(shell: &mut Shell) {
    shell.scripted = true;
    let mut input = Input::default();
    loop {
        write(Stream::Control, format_args!("{READY}\n"));
        match input.line().as_deref().map(parse) {
            Some(Request::Line(line)) => {
                let status = shell.run_line(&line);
                write(Stream::Control, format_args!("{STATUS} {status}\n"));
            }
            Some(Request::Unknown) => write(Stream::Control, format_args!("{STATUS} 1\n")),
            // The line went dead: there is no host any more.
            Some(Request::End) | None => break,
        }
    }
    if let Err(error) = system::power_off(shell.outcome()) {
        println!("poweroff: {error}");
    }
}

impl Shell {
    /// How the session went so far.
    pub fn outcome(&self) -> Outcome {
        if self.scripted && self.failures > 0 {
            Outcome::Failure
        } else {
            Outcome::Success
        }
    }
}

fn parse(line: &[u8]) -> Request {
    let Ok(text) = core::str::from_utf8(line) else {
        return Request::Unknown;
    };
    match text.split_once(' ').unwrap_or((text, "")) {
        (LINE, rest) => Request::Line(rest.into()),
        (END, "") => Request::End,
        _ => Request::Unknown,
    }
}

/// Bytes of the control line that were read but not used.
#[derive(Default)]
struct Input {
    waiting: Vec<u8>,
}

impl Input {
    /// The next line, without its end; none when there is nothing more. What is longer than any
    /// line may be loses its end.
    fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.waiting.iter().position(|byte| *byte == b'\n') {
                let rest = self.waiting.split_off(end + 1);
                let mut line = core::mem::replace(&mut self.waiting, rest);
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                line.truncate(LINE.len() + 1 + LINE_BYTES);
                return Some(line);
            }
            let mut buffer = [0; 256];
            let count = read(Stream::Control, &mut buffer).ok().filter(|count| *count > 0)?;
            self.waiting.extend(buffer.iter().take(count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Request, parse};

    #[test]
    fn requests_are_understood() {
        assert_eq!(parse(b"line create a 10"), Request::Line("create a 10".into()));
        assert_eq!(parse(b"line "), Request::Line(String::new()));
        assert_eq!(parse(b"end"), Request::End);
        assert_eq!(parse(b"end x"), Request::Unknown);
        assert_eq!(parse(b"\xff"), Request::Unknown);
    }
}
