//! The 16550 serial line (PC16550D data sheet): COM1 carries the console, COM2 the control line.
//!
//! Nothing here waits. A byte is written if the transmitter has room and read if one has come;
//! whoever wants to wait enables the interrupt. Both directions go through the chip's 16-byte
//! queues.

use crate::world::Ports;

/// The first port of the first serial line (interrupt line 4).
pub const COM1: u16 = 0x3f8;
/// The first port of the second serial line (interrupt line 3).
pub const COM2: u16 = 0x2f8;

/// Bytes that can be written at once when the transmitter is empty.
pub const TRANSMIT_BYTES: usize = 16;

const DATA: u16 = 0;
const INTERRUPT_ENABLE: u16 = 1;
const INTERRUPT_IDENTITY: u16 = 2;
const FIFO_CONTROL: u16 = 2;
const LINE_CONTROL: u16 = 3;
const MODEM_CONTROL: u16 = 4;
const LINE_STATUS: u16 = 5;
const MODEM_STATUS: u16 = 6;
const DIVISOR_LOW: u16 = 0;
const DIVISOR_HIGH: u16 = 1;

const ENABLE_RECEIVED: u8 = 1;
const ENABLE_TRANSMITTER_EMPTY: u8 = 2;
const ENABLE_LINE_ERROR: u8 = 4;

/// Both queues on and cleared; an interrupt for each byte received, so that none waits for a
/// second.
const FIFO_ON_AND_CLEAR: u8 = 0b0000_0111;
const EIGHT_BITS_NO_PARITY_ONE_STOP: u8 = 0b0000_0011;
const DIVISOR_ACCESS: u8 = 0x80;
/// 115,200 baud, the chip's fastest.
const DIVISOR: u16 = 1;
/// Terminal ready, request to send, and "output 2", which on a PC lets the interrupt through.
const READY_WITH_INTERRUPTS: u8 = 0b0000_1011;
const LOOPBACK: u8 = 0b0001_1110;

const STATUS_RECEIVED: u8 = 1;
const STATUS_OVERRUN: u8 = 1 << 1;
const STATUS_TRANSMITTER_EMPTY: u8 = 1 << 5;
/// The value that an empty bus reads as: no chip has all status bits set.
const NOTHING: u8 = 0xff;

/// No working 16550 answers at these ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Absent;

/// The transmitter has no room: the byte was not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busy;

/// Which of the line's events interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listen {
    /// None.
    ToNothing,
    /// Bytes received (and lost).
    ToReceiver,
    /// The transmitter being empty.
    ToTransmitter,
    /// Bytes received, and the transmitter being empty.
    ToBoth,
}

/// Why the line interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Bytes can be read.
    Received,
    /// [`TRANSMIT_BYTES`] bytes can be written.
    TransmitterEmpty,
    /// Something else, now acknowledged (a modem line changed, a byte was lost).
    Other,
}

/// A serial line behind the ports `P`.
#[derive(Debug)]
pub struct Serial<P> {
    ports: P,
    base: u16,
    overruns: u32,
}

impl<P: Ports> Serial<P> {
    /// Sets up the chip whose first port is `base`: 115,200 baud, 8 bits, no parity, one stop bit,
    /// queues on, no interrupts. A byte is sent in a circle to see that it is there. Bytes that came
    /// earlier are lost (switching the queues on clears them): the other end waits to be spoken to.
    ///
    /// # Errors
    /// [`Absent`] if the byte does not come back.
    pub fn new(ports: P, base: u16) -> Result<Self, Absent> {
        let line = Serial {
            ports,
            base,
            overruns: 0,
        };
        line.write(INTERRUPT_ENABLE, 0);
        line.write(LINE_CONTROL, DIVISOR_ACCESS);
        line.write(DIVISOR_LOW, DIVISOR as u8);
        line.write(DIVISOR_HIGH, (DIVISOR >> 8) as u8);
        line.write(LINE_CONTROL, EIGHT_BITS_NO_PARITY_ONE_STOP);
        line.write(FIFO_CONTROL, FIFO_ON_AND_CLEAR);
        line.write(MODEM_CONTROL, LOOPBACK);
        let probe = 0xae;
        line.write(DATA, probe);
        // At 115,200 baud the circle takes 87 microseconds; a port access takes about one.
        let came_back = (0..1000).any(|_| line.has_received()) && line.read(DATA) == probe;
        line.write(FIFO_CONTROL, FIFO_ON_AND_CLEAR);
        line.write(MODEM_CONTROL, READY_WITH_INTERRUPTS);
        if came_back { Ok(line) } else { Err(Absent) }
    }

    /// Writes one byte if the transmitter is empty.
    ///
    /// # Errors
    /// [`Busy`] if it is not.
    pub fn write_byte(&mut self, byte: u8) -> Result<(), Busy> {
        if self.write_bytes(&[byte]) == 1 {
            Ok(())
        } else {
            Err(Busy)
        }
    }

    /// Writes as many of `bytes` as the transmitter takes now: up to [`TRANSMIT_BYTES`] if it is
    /// empty, else none. Returns how many.
    pub fn write_bytes(&mut self, bytes: &[u8]) -> usize {
        if self.status() & STATUS_TRANSMITTER_EMPTY == 0 {
            return 0;
        }
        let taken = &bytes[..bytes.len().min(TRANSMIT_BYTES)];
        for byte in taken {
            self.write(DATA, *byte);
        }
        taken.len()
    }

    /// The next byte received, if there is one.
    pub fn read_byte(&mut self) -> Option<u8> {
        (self.status() & STATUS_RECEIVED != 0).then(|| self.read(DATA))
    }

    /// How often bytes were lost since the line was set up because nobody read them in time.
    pub fn overruns(&self) -> u32 {
        self.overruns
    }

    /// Chooses the events that interrupt. Listening to the transmitter while it is empty interrupts
    /// at once.
    pub fn listen(&mut self, listen: Listen) {
        let receiver = ENABLE_RECEIVED | ENABLE_LINE_ERROR;
        self.write(
            INTERRUPT_ENABLE,
            match listen {
                Listen::ToNothing => 0,
                Listen::ToReceiver => receiver,
                Listen::ToTransmitter => ENABLE_TRANSMITTER_EMPTY,
                Listen::ToBoth => receiver | ENABLE_TRANSMITTER_EMPTY,
            },
        );
    }

    /// Why the line interrupts now, the most urgent cause first; `None` if it does not. An
    /// interrupt is handled when the causes have been seen to until there is none: received bytes
    /// are acknowledged by reading them, the rest by this call.
    pub fn cause(&mut self) -> Option<Cause> {
        let identity = self.read(INTERRUPT_IDENTITY);
        if identity & 1 != 0 {
            return None;
        }
        match identity >> 1 & 7 {
            0b001 => Some(Cause::TransmitterEmpty),
            0b010 | 0b110 => Some(Cause::Received),
            0b011 => {
                self.status();
                Some(Cause::Other)
            }
            _ => {
                self.read(MODEM_STATUS);
                Some(Cause::Other)
            }
        }
    }

    /// The line status; reading it forgets an overrun, which is therefore counted here.
    fn status(&mut self) -> u8 {
        match self.read(LINE_STATUS) {
            NOTHING => 0,
            status => {
                if status & STATUS_OVERRUN != 0 {
                    self.overruns = self.overruns.saturating_add(1);
                }
                status
            }
        }
    }

    fn has_received(&self) -> bool {
        let status = self.read(LINE_STATUS);
        status != NOTHING && status & STATUS_RECEIVED != 0
    }

    fn read(&self, register: u16) -> u8 {
        self.ports.read_u8(self.base + register)
    }

    fn write(&self, register: u16, value: u8) {
        self.ports.write_u8(self.base + register, value);
    }
}

#[cfg(test)]
mod tests;
