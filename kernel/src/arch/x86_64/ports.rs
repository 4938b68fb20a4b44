//! I/O ports: the log, the exit device, and what drivers need.

use core::arch::asm;

use abi::host::{EXIT_PORT, LOG_PORT};

/// Reads a byte.
pub fn read8(port: u16) -> u8 {
    let value: u8;
    // SAFETY: port access has no effect on memory.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Writes a byte.
pub fn write8(port: u16, value: u8) {
    // SAFETY: as in `read8`; no device that the kernel drives by port does DMA by a port write.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) };
}

fn read16(port: u16) -> u16 {
    let value: u16;
    // SAFETY: as in `read8`.
    unsafe { asm!("in ax, dx", in("dx") port, out("ax") value, options(nomem, nostack, preserves_flags)) };
    value
}

fn write16(port: u16, value: u16) {
    // SAFETY: as in `write8`.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nomem, nostack, preserves_flags)) };
}

fn read32(port: u16) -> u32 {
    let value: u32;
    // SAFETY: as in `read8`.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack, preserves_flags)) };
    value
}

fn write32(port: u16, value: u32) {
    // SAFETY: as in `write8`.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack, preserves_flags)) };
}

/// The ports of the machine, for drivers.
#[derive(Copy, Clone)]
pub struct IoPorts;

impl drivers::world::Ports for IoPorts {
    fn read_u8(&self, port: u16) -> u8 {
        read8(port)
    }

    fn read_u16(&self, port: u16) -> u16 {
        read16(port)
    }

    fn read_u32(&self, port: u16) -> u32 {
        read32(port)
    }

    fn write_u8(&self, port: u16, value: u8) {
        write8(port, value);
    }

    fn write_u16(&self, port: u16, value: u16) {
        write16(port, value);
    }

    fn write_u32(&self, port: u16, value: u32) {
        write32(port, value);
    }
}

/// Appends to the kernel's log.
pub fn log_bytes(bytes: &[u8]) {
    for &byte in bytes {
        write8(LOG_PORT, byte);
    }
}

/// Ends the machine with this value of the exit device.
pub fn exit(value: u8) -> ! {
    write32(EXIT_PORT, u32::from(value));
    // No such device: the machine has no other way off that is known here.
    super::interrupts::stop_forever()
}
