//! The serial line over a fake 16550.

use super::*;
use std::cell::RefCell;
use std::collections::VecDeque;

/// A chip with the registers the driver uses. Transmitted bytes stay in its queue until a test
/// drains them.
#[derive(Debug, Default)]
struct Chip {
    divisor: [u8; 2],
    line_control: u8,
    modem_control: u8,
    interrupt_enable: u8,
    transmit: VecDeque<u8>,
    received: VecDeque<u8>,
    has_overrun: bool,
    /// Whether the transmitter became empty since the identity register was read.
    owes_transmitter: bool,
}

#[derive(Debug)]
struct FakePorts {
    chip: Option<RefCell<Chip>>,
}

impl FakePorts {
    fn new() -> Self {
        FakePorts {
            chip: Some(RefCell::default()),
        }
    }

    fn chip(&self) -> std::cell::RefMut<'_, Chip> {
        self.chip.as_ref().unwrap().borrow_mut()
    }
}

impl Ports for &FakePorts {
    fn read_u8(&self, port: u16) -> u8 {
        let Some(chip) = &self.chip else { return 0xff };
        let mut chip = chip.borrow_mut();
        assert_eq!(chip.line_control & 0x80, 0);
        match port - COM1 {
            0 => chip.received.pop_front().unwrap_or(0),
            2 => {
                let enabled = |bit: u8| chip.interrupt_enable & bit != 0;
                if enabled(4) && chip.has_overrun {
                    0xc6
                } else if enabled(1) && !chip.received.is_empty() {
                    0xc4
                } else if enabled(2) && chip.owes_transmitter {
                    chip.owes_transmitter = false;
                    0xc2
                } else {
                    0xc1
                }
            }
            5 => {
                let overrun = u8::from(std::mem::take(&mut chip.has_overrun)) << 1;
                let empty = u8::from(chip.transmit.is_empty()) * 0x60;
                u8::from(!chip.received.is_empty()) | overrun | empty
            }
            other => panic!("read of register {other}"),
        }
    }

    fn write_u8(&self, port: u16, value: u8) {
        let Some(chip) = &self.chip else { return };
        let mut chip = chip.borrow_mut();
        match port - COM1 {
            at @ (0 | 1) if chip.line_control & 0x80 != 0 => chip.divisor[usize::from(at)] = value,
            0 if chip.modem_control & 0x10 != 0 => chip.received.push_back(value),
            0 => {
                assert!(chip.transmit.len() < 16, "the transmitter's queue ran over");
                chip.transmit.push_back(value);
            }
            1 => {
                chip.interrupt_enable = value;
                chip.owes_transmitter = chip.transmit.is_empty();
            }
            2 => {
                chip.received.clear();
                chip.transmit.clear();
            }
            3 => chip.line_control = value,
            4 => chip.modem_control = value,
            other => panic!("write of register {other}"),
        }
    }

    fn read_u16(&self, _: u16) -> u16 {
        unreachable!()
    }
    fn read_u32(&self, _: u16) -> u32 {
        unreachable!()
    }
    fn write_u16(&self, _: u16, _: u16) {
        unreachable!()
    }
    fn write_u32(&self, _: u16, _: u32) {
        unreachable!()
    }
}

#[test]
fn set_up_leaves_the_line_ready_and_quiet() {
    let ports = FakePorts::new();
    let mut line = Serial::new(&ports, COM1).unwrap();
    assert_eq!(line.read_byte(), None);
    let chip = ports.chip();
    assert_eq!((chip.divisor, chip.line_control), ([1, 0], 3));
    assert_eq!((chip.modem_control, chip.interrupt_enable), (0xb, 0));
    assert!(chip.transmit.is_empty());
}

#[test]
fn no_chip_is_noticed() {
    let ports = FakePorts { chip: None };
    assert_eq!(Serial::new(&ports, COM1).unwrap_err(), Absent);
}

#[test]
fn writes_go_out_as_far_as_there_is_room() {
    let ports = FakePorts::new();
    let mut line = Serial::new(&ports, COM1).unwrap();
    assert_eq!(line.write_byte(b'a'), Ok(()));
    assert_eq!(line.write_byte(b'b'), Err(Busy));
    assert_eq!(line.write_bytes(b"cd"), 0);
    assert_eq!(ports.chip().transmit.drain(..).collect::<Vec<_>>(), b"a");
    let text = *b"0123456789abcdefXYZ";
    assert_eq!(line.write_bytes(&text), 16);
    assert_eq!(ports.chip().transmit.drain(..).collect::<Vec<_>>(), text[..16]);
    assert_eq!(line.write_bytes(&[]), 0);
}

#[test]
fn reads_what_came_and_counts_what_was_lost() {
    let ports = FakePorts::new();
    let mut line = Serial::new(&ports, COM1).unwrap();
    ports.chip().received.extend(*b"hi");
    ports.chip().has_overrun = true;
    assert_eq!(
        [line.read_byte(), line.read_byte(), line.read_byte()],
        [Some(b'h'), Some(b'i'), None]
    );
    assert_eq!(line.overruns(), 1);
}

#[test]
fn causes_come_one_by_one_until_there_is_none() {
    let ports = FakePorts::new();
    let mut line = Serial::new(&ports, COM1).unwrap();
    ports.chip().received.push_back(b'x');
    assert_eq!(line.cause(), None);
    line.listen(Listen::ToBoth);
    ports.chip().has_overrun = true;
    assert_eq!(line.cause(), Some(Cause::Other));
    assert_eq!(line.overruns(), 1);
    assert_eq!(line.cause(), Some(Cause::Received));
    assert_eq!(line.read_byte(), Some(b'x'));
    assert_eq!(line.cause(), Some(Cause::TransmitterEmpty));
    assert_eq!(line.cause(), None);
    line.listen(Listen::ToReceiver);
    assert_eq!(ports.chip().interrupt_enable, 5);
    line.listen(Listen::ToNothing);
    assert_eq!(ports.chip().interrupt_enable, 0);
}
