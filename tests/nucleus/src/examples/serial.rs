//! A driver for the serial port that lives on interrupt messages.
//!
//! It runs in a space of its own, has the port's eight registers as an fpage of ports and its interrupt, and serves
//! requests of other threads between interrupts. The port is in loop-back mode: what it sends comes back to it.

use abi::{
    layout::PRIORITY_DEFAULT,
    nucleus::{LABEL_INTERRUPT, MAP, port_fpage, tag},
};
use nucleus::{call, message};

use crate::{
    arch::{read_port, write_port},
    case::{Case, Outcome, Setting, case, ensure, ensure_eq, ensure_error},
    world::World,
};

/// The cases.
pub const CASES: &[Case] = &[
    case("examples/serial-driver", serial_driver),
    case("examples/ports-are-rights", ports_are_rights),
];

// begin: serial
/// The registers of the first serial port.
const PORT: u16 = 0x3f8;
/// Its line.
const LINE: u64 = 4;
/// A request: bytes in the first word, how many in the second. The answer comes when they came back.
const LABEL_ECHO: u64 = 100;

nucleus::thread_entry!(driver_entry, driver);
/// The driver. One request at a time; each byte that comes back is an interrupt.
fn driver(_: u64) {
    // Interrupts for received bytes; loop-back, with the outputs that let interrupts through.
    write_port(PORT + 1, 0x01);
    write_port(PORT + 2, 0x07);
    write_port(PORT + 4, 0x1b);
    let (mut client, mut wanted, mut bytes, mut count, mut interrupts) = (0, 0, 0, 0, 0);
    let mut next = message::receive();
    while let Ok(got) = next {
        if got.label() == LABEL_INTERRUPT && got.sender == LINE + 1 {
            interrupts += 1;
            while read_port(PORT + 5) & 1 != 0 {
                bytes |= u64::from(read_port(PORT)) << (8 * count);
                count += 1;
            }
        } else if got.label() == LABEL_ECHO {
            (client, wanted, bytes, count) = (got.sender, got.words[1].min(8), 0, 0);
            for index in 0..wanted {
                write_port(PORT, (got.words[0] >> (8 * index)) as u8);
            }
        }
        next = if client != 0 && count == wanted {
            let to = core::mem::take(&mut client);
            message::reply_and_wait(to, tag(0, 2, 0), [bytes, interrupts, 0, 0])
        } else {
            message::receive()
        };
    }
}
// end: serial

fn serial_driver(setting: &Setting) -> Outcome {
    let mut world = World::new(setting, 0, 0)?;
    let ports = port_fpage(u64::from(PORT), 3);
    call::map(ports, world.space, ports, MAP)?;
    let driver = world.start(driver_entry(), 0)?;
    call::interrupt_bind(LINE, driver)?;
    ensure_error!(call::interrupt_bind(99, driver), BadArgument);
    let mut seen = 0;
    for text in [*b"gondwana", *b"01234567", [0, 1, 2, 3, 0xff, 0xfe, 0, 9]] {
        let got = message::call(driver, tag(LABEL_ECHO, 2, 0), [u64::from_le_bytes(text), 8, 0, 0])?;
        ensure_eq!(got.words[0].to_le_bytes(), text);
        ensure!(got.words[1] > seen, "no interrupt came");
        seen = got.words[1];
    }
    call::interrupt_bind(LINE, 0)?;
    world.end()
}

nucleus::thread_entry!(thief_entry, thief);
/// Reads a port.
fn thief(to: u64) {
    let value = read_port(PORT + 5);
    let _ = message::send(to, tag(0, 1, 0), [u64::from(value), 0, 0, 0]);
}

fn ports_are_rights(setting: &Setting) -> Outcome {
    let (me, _) = call::thread_self()?;
    // This thread has all ports, and uses one before the other's turn.
    read_port(PORT + 5);
    let mut world = World::new(setting, me, 0)?;
    let thief = world.start(thief_entry(), me)?;
    let got = message::receive()?;
    ensure_eq!((got.sender, got.words[0]), (thief, 13));
    // With the port the same instruction works; without, it does not again.
    let ports = port_fpage(u64::from(PORT), 3);
    call::map(ports, world.space, ports, MAP)?;
    message::send(thief, 0, [0; 4])?;
    let got = message::receive()?;
    ensure_eq!((got.sender, got.label()), (thief, 0));
    call::flush(call::memory::Window::ports(u64::from(PORT), 3), 7, 0)?;
    let again = world.start(thief_entry(), me)?;
    ensure_eq!(message::receive()?.sender, again);
    call::thread_priority(0, PRIORITY_DEFAULT)?;
    world.end()
}
