//! The two serial lines, with a queue of what came in.
//!
//! Output goes straight to the line and is refused while the line is busy; the writer then waits
//! for the line's interrupt. Input is taken from the line as it comes, because its own queue is
//! short. While the queue here is full, input stays in the line, which then does not interrupt for it: the other end
//! waits, nothing is lost, and writers still hear of the transmitter.

use alloc::collections::VecDeque;

use drivers::serial::{Cause, Listen, Serial};

use crate::arch::IoPorts;

/// Bytes of input that wait for a reader at most; further bytes are left in the line.
const QUEUE: usize = 4096;

/// One line.
pub struct Line {
    serial: Option<Serial<IoPorts>>,
    input: VecDeque<u8>,
    blocked: bool,
    /// There was no room for all input.
    full: bool,
    /// The interrupt character came in and was not yet told.
    interrupted: bool,
}

/// The meaning of a line's interrupt.
#[derive(Copy, Clone, Default, Debug)]
pub struct LineNews {
    /// Something can be read.
    pub input: bool,
    /// Something can be written again.
    pub output: bool,
    /// The interrupt character was typed.
    pub interrupted: bool,
}

/// Control-C.
const INTERRUPT: u8 = 3;

impl Line {
    /// The line at a port.
    pub fn new(port: u16) -> Self {
        let mut line = Self {
            serial: Serial::new(IoPorts, port).ok(),
            input: VecDeque::with_capacity(QUEUE),
            blocked: false,
            full: false,
            interrupted: false,
        };
        line.listen();
        line
    }

    /// Has the line interrupt for what is waited for.
    fn listen(&mut self) {
        if let Some(serial) = &mut self.serial {
            serial.listen(match (self.full, self.blocked) {
                (false, false) => Listen::ToReceiver,
                (false, true) => Listen::ToBoth,
                (true, true) => Listen::ToTransmitter,
                (true, false) => Listen::ToNothing,
            });
        }
    }

    /// Writes what the line takes now; tells how much. A line that is not there takes everything.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let Some(serial) = &mut self.serial else {
            return bytes.len();
        };
        let mut written = 0;
        while written < bytes.len() {
            let taken = serial.write_bytes(&bytes[written..]);
            if taken == 0 {
                self.blocked = true;
                self.listen();
                break;
            }
            written += taken;
        }
        written
    }

    /// The next byte of input.
    pub fn read(&mut self) -> Option<u8> {
        if self.input.is_empty() || self.full {
            self.take();
        }
        self.input.pop_front()
    }

    /// Takes what has come. A reader may be here before the interrupt is, which then still tells of
    /// an interrupt character.
    fn take(&mut self) {
        let Some(serial) = &mut self.serial else { return };
        while self.input.len() < QUEUE
            && let Some(byte) = serial.read_byte()
        {
            self.interrupted |= byte == INTERRUPT;
            self.input.push_back(byte);
        }
        let full = self.input.len() >= QUEUE;
        if self.full != full {
            self.full = full;
            self.listen();
        }
    }

    /// Takes the last interrupt character back out of the input: it became an event.
    pub fn swallow_interrupt(&mut self) {
        if let Some(place) = self.input.iter().rposition(|&byte| byte == INTERRUPT) {
            self.input.remove(place);
        }
    }

    /// Handles an interrupt of the line.
    pub fn interrupt(&mut self) -> LineNews {
        self.take();
        let mut news = LineNews::default();
        // A line that keeps on interrupting must not keep the processor: a few rounds, then the next interrupt.
        for _ in 0..16 {
            match self.serial.as_mut().and_then(Serial::cause) {
                Some(Cause::TransmitterEmpty) => {
                    news.output |= core::mem::take(&mut self.blocked);
                    self.listen();
                }
                Some(Cause::Received) => self.take(),
                Some(Cause::Other) => {}
                None => break,
            }
        }
        news.interrupted = core::mem::take(&mut self.interrupted);
        news.input = !self.input.is_empty();
        news
    }
}
