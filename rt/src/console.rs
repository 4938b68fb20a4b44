//! Text to and from the console.
//!
//! [`print!`](crate::print) formats into a small buffer on the stack and gives it to the system when
//! it is full and at the end, so a line is one system call. Errors are dropped: a program whose console
//! is gone has nobody to tell.

use core::{
    fmt::{self, Write},
    sync::atomic::AtomicU8,
};

use abi::{
    error::Result,
    layout::{STREAM_CONTROL, STREAM_TERMINAL},
};

use crate::call;

/// A console stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Stream {
    /// The terminal.
    Terminal = STREAM_TERMINAL,
    /// The control line to the host tool.
    Control = STREAM_CONTROL,
}

/// Bytes that gather before a system call.
const BUFFER: usize = 240;

struct Buffered {
    stream: Stream,
    length: usize,
    bytes: [u8; BUFFER],
}

impl Buffered {
    fn flush(&mut self) {
        write_bytes(self.stream, self.bytes.get(..self.length).unwrap_or_default());
        self.length = 0;
    }
}

impl Write for Buffered {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(BUFFER - self.length));
            if let Some(place) = self.bytes.get_mut(self.length..self.length + now.len()) {
                place.copy_from_slice(now);
            }
            self.length += now.len();
            rest = later;
            if self.length == BUFFER {
                self.flush();
            }
        }
        Ok(())
    }
}

/// Writes all bytes to a stream.
pub fn write_bytes(stream: Stream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match call::console_write(stream as u64, bytes) {
            Ok(written) if written > 0 => bytes = bytes.get(written..).unwrap_or_default(),
            _ => return,
        }
    }
}

/// Writes formatted text to a stream.
pub fn write(stream: Stream, text: fmt::Arguments<'_>) {
    let mut buffered = Buffered {
        stream,
        length: 0,
        bytes: [0; BUFFER],
    };
    // The buffer takes everything; an error could only come from a `Display` that fails.
    let _ = buffered.write_fmt(text);
    buffered.flush();
}

/// Reads at least a byte; 0 means the end of the input.
///
/// # Errors
/// As `ConsoleRead`.
pub fn read(stream: Stream, buffer: &mut [u8]) -> Result<usize> {
    call::console_read(stream as u64, buffer)
}

/// Reads as [`read`] does, into places that other threads may look at.
///
/// # Errors
/// As `ConsoleRead`.
pub fn read_shared(stream: Stream, places: &[AtomicU8]) -> Result<usize> {
    call::console_read_shared(stream as u64, places)
}

/// Prints to the terminal.
#[macro_export]
macro_rules! print {
    ($($argument:tt)*) => {
        $crate::console::write($crate::console::Stream::Terminal, ::core::format_args!($($argument)*))
    };
}

/// Prints a line to the terminal.
#[macro_export]
macro_rules! println {
    () => { $crate::print!("\n") };
    ($format:literal $($argument:tt)*) => { $crate::print!("{}\n", ::core::format_args!($format $($argument)*)) };
}
