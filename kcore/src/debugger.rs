//! The kernel debugger's language: what may be typed, and the line it is typed on.
//!
//! Pure: the kernel brings the serial line ([`LineEditor`] turns its bytes into lines), [`parse`] turns a line into a
//! [`Command`], and [`crate::Kernel::report`] answers those that only look. `stop`, `continue`, `panic` and
//! `trace` are the kernel's own business.

use core::fmt;

use crate::{thread::THREADS_MAX, trace::EVENTS};

/// Events that `trace` shows unless told otherwise.
const TRACE_LINES: usize = 24;

/// The commands of the debugger.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Nothing: an empty line.
    Nothing,
    /// The list of commands.
    Help,
    /// All threads, a line each.
    Threads,
    /// The registers and portal frames of a thread.
    Registers(ThreadName),
    /// All spaces, a line each.
    Spaces,
    /// The tables and links of a space.
    Space(u32),
    /// The mapping of an address in a space.
    Page {
        /// The space.
        space: u32,
        /// The address.
        address: u64,
    },
    /// The uses of a frame.
    Mapping(u32),
    /// Run queues, parked threads, timers.
    Queues,
    /// The last events.
    Trace(usize),
    /// Frames and heap.
    Memory,
    /// Freeze the system.
    Stop,
    /// Let it go on.
    Continue,
    /// Panic.
    Panic,
}

/// A thread as it is typed: its place, and its version if it matters.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ThreadName {
    /// Place in the table, less than [`THREADS_MAX`].
    pub index: u32,
    /// Version, if one was given.
    pub version: Option<u64>,
}

/// The text that `help` prints.
pub const HELP: &str = "\
threads             all threads: state, priority, space, what each waits for
registers THREAD    registers and portal frames of a thread (7, or 7.2 for the second in place 7)
spaces              all spaces
space SPACE         the tables and links of a space
page SPACE ADDRESS  what the tables of a space say of an address
mapping FRAME       where a frame (its number: address / 4096) is used
queues              run queues, parked threads, timers
trace [COUNT]       the last events (24)
memory              frames and the kernel's heap
stop                freezes the system; all commands work while it stands
continue            lets it go on
panic               a kernel panic, to see its back-trace; what was not synced is lost
help                this list
Numbers are decimal, or hexadecimal with 0x. The system stands while an answer is written.
";

/// Why a line is no command.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Misuse<'a> {
    /// There is no such command.
    Unknown(&'a str),
    /// An argument is missing: the command's form.
    Missing(&'static str),
    /// An argument too many: the argument, the command's form.
    Surplus(&'a str, &'static str),
    /// A number that cannot be read, or is too large: the word, the command's form.
    BadNumber(&'a str, &'static str),
}

impl fmt::Display for Misuse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misuse::Unknown(word) => write!(f, "there is no command '{word}'; 'help' lists them"),
            Misuse::Missing(form) => write!(f, "an argument is missing: {form}"),
            Misuse::Surplus(word, form) => write!(f, "'{word}' is too much: {form}"),
            Misuse::BadNumber(word, form) => write!(f, "'{word}' is not a number that fits here: {form}"),
        }
    }
}

/// A number: decimal, or hexadecimal with `0x`.
fn number(word: &str) -> Option<u64> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match word.strip_prefix("0x") {
        Some(hexadecimal) if digits(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok(),
        None if digits(word) => word.parse().ok(),
        _ => None,
    }
}

fn thread(word: &str) -> Option<ThreadName> {
    let (index, version) = match word.split_once('.') {
        Some((index, version)) => (index, Some(number(version)?)),
        None => (word, None),
    };
    let index = number(index).filter(|&index| index < THREADS_MAX as u64)? as u32;
    Some(ThreadName { index, version })
}

/// The words behind a command, and the form that complaints show.
struct Arguments<'a, I> {
    words: I,
    form: &'static str,
    next: Option<&'a str>,
}

impl<'a, I: Iterator<Item = &'a str>> Arguments<'a, I> {
    fn optional<T>(&mut self, read: impl FnOnce(&'a str) -> Option<T>) -> Result<Option<T>, Misuse<'a>> {
        let Some(word) = self.next.take() else { return Ok(None) };
        self.next = self.words.next();
        read(word).map(Some).ok_or(Misuse::BadNumber(word, self.form))
    }

    fn one<T>(&mut self, read: impl FnOnce(&'a str) -> Option<T>) -> Result<T, Misuse<'a>> {
        self.optional(read)?.ok_or(Misuse::Missing(self.form))
    }
}

/// The command that a line holds.
///
/// # Errors
/// [`Misuse`], to be shown to whoever typed it.
pub fn parse(line: &str) -> Result<Command, Misuse<'_>> {
    let mut words = line.split_ascii_whitespace();
    let Some(name) = words.next() else {
        return Ok(Command::Nothing);
    };
    let next = words.next();
    let mut arguments = Arguments {
        words,
        form: form(name).ok_or(Misuse::Unknown(name))?,
        next,
    };
    let small = |word: &str| number(word).and_then(|number| u32::try_from(number).ok());
    let command = match name {
        "threads" => Command::Threads,
        "registers" => Command::Registers(arguments.one(thread)?),
        "spaces" => Command::Spaces,
        "space" => Command::Space(arguments.one(small)?),
        "page" => Command::Page {
            space: arguments.one(small)?,
            address: arguments.one(number)?,
        },
        "mapping" => Command::Mapping(arguments.one(small)?),
        "queues" => Command::Queues,
        "trace" => {
            let count = arguments
                .optional(number)?
                .map(|count| count.min(EVENTS as u64) as usize);
            Command::Trace(count.unwrap_or(TRACE_LINES))
        }
        "memory" => Command::Memory,
        "stop" => Command::Stop,
        "continue" => Command::Continue,
        "panic" => Command::Panic,
        _ => Command::Help,
    };
    match arguments.next {
        None => Ok(command),
        Some(word) => Err(Misuse::Surplus(word, arguments.form)),
    }
}

/// The line of [`HELP`] that belongs to a command.
fn form(name: &str) -> Option<&'static str> {
    HELP.lines()
        .filter(|line| !line.starts_with("Numbers"))
        .find(|line| line.split_ascii_whitespace().next() == Some(name))
}

/// Bytes of a line at most; further bytes are not taken.
pub const LINE_BYTES: usize = 120;

/// Bytes into lines: what a terminal in raw mode needs.
pub struct LineEditor {
    bytes: [u8; LINE_BYTES],
    length: usize,
    /// The last byte was a carriage return: a newline after it belongs to it.
    returned: bool,
}

/// The effect of a byte on the line.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Typed {
    /// Nothing to show.
    Nothing,
    /// It was added: show it.
    Echo(u8),
    /// The last character went: take it off the screen.
    Erased,
    /// The whole line went.
    Discarded,
    /// The line is complete: [`LineEditor::take`] gives it.
    Line,
}

impl Default for LineEditor {
    fn default() -> Self {
        Self {
            bytes: [0; LINE_BYTES],
            length: 0,
            returned: false,
        }
    }
}

impl LineEditor {
    /// Takes a byte.
    pub fn push(&mut self, byte: u8) -> Typed {
        let returned = core::mem::replace(&mut self.returned, byte == b'\r');
        match byte {
            b'\n' if returned => Typed::Nothing,
            b'\r' | b'\n' => Typed::Line,
            // Backspace and delete.
            8 | 127 if self.length > 0 => {
                self.length -= 1;
                Typed::Erased
            }
            // Control-C and Control-U.
            3 | 21 => {
                self.length = 0;
                Typed::Discarded
            }
            b' '..=b'~' if self.length < LINE_BYTES => {
                self.bytes[self.length] = byte;
                self.length += 1;
                Typed::Echo(byte)
            }
            _ => Typed::Nothing,
        }
    }

    /// The line, which the editor forgets: what comes next begins a new one.
    pub fn take(&mut self) -> &str {
        let length = core::mem::take(&mut self.length);
        // Only printable characters come in.
        core::str::from_utf8(&self.bytes[..length]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(editor: &mut LineEditor, bytes: &[u8]) -> Option<String> {
        let mut line = None;
        for &byte in bytes {
            if editor.push(byte) == Typed::Line {
                line = Some(editor.take().to_owned());
            }
        }
        line
    }

    #[test]
    fn commands_are_understood() {
        let thread = |index, version| Command::Registers(ThreadName { index, version });
        for (line, command) in [
            ("", Command::Nothing),
            ("  \t ", Command::Nothing),
            ("help", Command::Help),
            ("  threads ", Command::Threads),
            ("registers 7", thread(7, None)),
            ("registers 7.2", thread(7, Some(2))),
            ("registers 0x7", thread(7, None)),
            ("spaces", Command::Spaces),
            ("space 0x10", Command::Space(16)),
            (
                "page 3 0x100000000",
                Command::Page {
                    space: 3,
                    address: 1 << 32,
                },
            ),
            ("mapping 0xabc", Command::Mapping(0xabc)),
            ("queues", Command::Queues),
            ("trace", Command::Trace(TRACE_LINES)),
            ("trace 3", Command::Trace(3)),
            ("trace 99999999999", Command::Trace(EVENTS)),
            ("memory", Command::Memory),
            ("stop", Command::Stop),
            ("continue", Command::Continue),
            ("panic", Command::Panic),
        ] {
            assert_eq!(parse(line), Ok(command), "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_the_form_that_is_right() {
        for (line, beginning, end) in [
            ("thraeds", "there is no command 'thraeds'", "'help' lists them"),
            ("Numbers", "there is no command 'Numbers'", "'help' lists them"),
            ("space", "an argument is missing: space SPACE", "of a space"),
            ("page 1", "an argument is missing: page SPACE ADDRESS", "an address"),
            (
                "space x",
                "'x' is not a number that fits here: space SPACE",
                "of a space",
            ),
            ("space +1", "'+1' is not a number", "of a space"),
            ("space 0x", "'0x' is not a number", "of a space"),
            ("space 4294967296", "'4294967296' is not a number", "of a space"),
            (
                "page 1 0x10000000000000000",
                "'0x10000000000000000' is not",
                "an address",
            ),
            ("registers 16384", "'16384' is not a number", ")"),
            ("registers 7.", "'7.' is not a number", ")"),
            ("registers .7", "'.7' is not a number", ")"),
            ("trace -1", "'-1' is not a number", "(24)"),
            ("threads all", "'all' is too much: threads", "waits for"),
            ("page 1 2 3", "'3' is too much: page", "an address"),
        ] {
            let text = parse(line).expect_err(line).to_string();
            assert!(text.starts_with(beginning) && text.ends_with(end), "{line}: {text}");
        }
    }

    #[test]
    fn no_line_makes_the_parser_panic() {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize
        };
        let pieces = [
            "space",
            "page",
            "registers",
            "trace",
            " ",
            "0x",
            "f",
            "9",
            ".",
            "é",
            "\0",
            "18446744073709551616",
        ];
        for _ in 0..20_000 {
            let line: String = (0..next() % 8).map(|_| pieces[next() % pieces.len()]).collect();
            if let Err(misuse) = parse(&line) {
                assert!(!misuse.to_string().is_empty());
            }
        }
    }

    #[test]
    fn every_command_of_the_help_is_a_command() {
        for line in HELP.lines().filter(|line| !line.starts_with("Numbers")) {
            let name = line.split_ascii_whitespace().next().unwrap();
            assert!(!matches!(parse(name), Err(Misuse::Unknown(_))), "{name}");
        }
    }

    #[test]
    fn lines_are_edited() {
        let mut editor = LineEditor::default();
        assert_eq!(typed(&mut editor, b"spax\x7fce 1\r").as_deref(), Some("space 1"));
        assert_eq!(editor.push(b'\n'), Typed::Nothing, "the newline of a carriage return");
        assert_eq!(typed(&mut editor, b"\n").as_deref(), Some(""));
        assert_eq!(typed(&mut editor, b"wrong\x03help\n").as_deref(), Some("help"));
        assert_eq!(typed(&mut editor, b"\x08\x08a\xff\x1b\n").as_deref(), Some("a"));
        let long = [b'x'; 3 * LINE_BYTES];
        assert_eq!(typed(&mut editor, &long), None);
        assert_eq!(typed(&mut editor, b"\r").map(|line| line.len()), Some(LINE_BYTES));
    }
}
